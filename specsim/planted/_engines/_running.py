"""What connections to engines in this process share: installed packages, requests side by side, crashes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib import import_module
from itertools import islice
from typing import Any

from specsim.planted._engines._requests import Completion, Failure, Request

Answers = list[Completion | Failure]


def need(module: str, package: str) -> Any:
    """The module of an engine. Raises ImportError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed; run: pip install {package} ({error})") from None


def side_by_side(
    answer: Callable[[Request], Answers], requests: Sequence[Request], executor: ThreadPoolExecutor, most: int
) -> Iterator[Completion | Failure]:
    """The answers to `requests`, as they are finished, with at most `most` requests under way."""
    waiting, running = iter(requests), set[Future[Answers]]()
    while True:
        running |= {executor.submit(answer, one) for one in islice(waiting, most - len(running))}
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield from future.result()


def or_failures(answer: Callable[[], Answers], requests: Sequence[Request]) -> Answers:
    """What `answer` gives for `requests`, or a failure of each if the engine raises."""
    try:
        return answer()
    except NotImplementedError as error:
        return [Failure(request.number, "refused", str(error)) for request in requests]
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:300]
        return [Failure(request.number, "crash", text) for request in requests]
