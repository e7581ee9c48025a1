"""What connections to engines in this process share: installed packages, checkpoints that an engine converts,
requests side by side, crashes.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

from specsim.engines._planted.folder import Planted
from specsim.engines._planted.requests import Completion, Failure, Request

Answers = list[Completion | Failure]


def need(module: str, package: str) -> Any:
    """The module of an engine. Raises ImportError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed; run: pip install {package} ({error})") from None


def convert(module: str, options: Sequence[str], package: str) -> None:
    """Run a module that converts a checkpoint. Raises ImportError that says what to install, and ValueError
    with the module's last line if it fails.
    """
    ran = subprocess.run([sys.executable, "-m", module, *options], capture_output=True, text=True)
    if ran.returncode:
        last = (ran.stderr.strip() or ran.stdout.strip()).rpartition("\n")[2][:300]
        if last.startswith(("ModuleNotFoundError", "ImportError")) or "No module named" in last:
            raise ImportError(f"{module} cannot be run; run: pip install {package} ({last})")
        raise ValueError(f"{module} {' '.join(options)}: {last}")


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


def one_by_one(
    answer: Callable[[Request], Answers], requests: Sequence[Request]
) -> Iterator[Completion | Failure]:
    """The answers to `requests`, one after the other, or their failures."""
    for request in requests:
        yield from or_failures(partial(answer, request), [request])


def or_failures(answer: Callable[[], Answers], requests: Sequence[Request]) -> Answers:
    """What `answer` gives for `requests`, or a failure of each if the engine raises."""
    try:
        return answer()
    except NotImplementedError as error:
        return [Failure(request.number, "refused", str(error)) for request in requests]
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:300]
        return [Failure(request.number, "crash", text) for request in requests]


def described(
    engine: str, version: str, planted: Planted, gamma: int, logprobs: str | None, **more: Any
) -> dict[str, Any]:
    """What an engine in this process says of itself; `gamma` 0 without speculation."""
    return {
        "engine": engine,
        "version": version,
        "model": planted.digest,
        "speculative": gamma > 0,
        "gamma": gamma,
        **more,
        "logprobs": logprobs,
    }
