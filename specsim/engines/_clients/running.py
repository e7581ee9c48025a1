"""What connections to engines in this process share: packages, checkpoints that are converted, crashes."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, ClassVar

from specsim.core._types import check_counts
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.requests import NEUTRAL, Completion, FailedError, Failure, Request
from specsim.models._processed import SAMPLING

Answers = list[Completion | Failure]


class InProcess:
    """An engine in this process, which makes one text after the other, with γ drafted tokens, or 0.
    Subclasses open it (`_open`) and make a text (`_text`). Raises ImportError without its package."""

    name: ClassVar[str]
    #: The distribution package, and the rows of the returned log-probabilities: "raw", "processed", or None.
    _package: ClassVar[str]
    _logprobs: ClassVar[str | None] = None
    #: The architectures that it loads, and those for which it has no drafts.
    _loads: ClassVar[tuple[str, ...]] = ("llama",)
    _without_drafts: ClassVar[tuple[str, ...]] = ()
    #: A temporary folder that it reads as long as it is open.
    _folder: Any = None
    #: What else describes it, and the parameters of `Sampling` that it does not have.
    _settings: Mapping[str, Any] = {}
    _lacks = frozenset({"stop_ids", "penalty_last_n", "defaults", *NEUTRAL}) - {*SAMPLING}

    def __init__(self, planted: Planted, *, speculative: bool = True, gamma: int = 4):
        check_counts(gamma=gamma)
        if (made_as := planted.architecture) not in self._loads:
            raise ValueError(f"engine {self.name}: does not load {made_as} checkpoints; plant others for it")
        if speculative and made_as in self._without_drafts:
            raise ValueError(f"engine {self.name}: has no drafts for {made_as}; give --no-speculative")
        self._planted, self._gamma = planted, gamma if speculative else 0
        self._open()
        self.version = version(self._package)

    def _open(self) -> None:
        raise NotImplementedError

    def _text(self, request: Request, index: int) -> dict[str, Any]:
        """The fields of a completion; raises NotImplementedError for what the engine does not support."""
        raise NotImplementedError

    def _texts(self, request: Request) -> Iterator[dict[str, Any]]:
        """Those of all texts of a request."""
        return (self._text(request, index) for index in range(request.n))

    def _answer(self, request: Request) -> Answers:
        self._check(request)
        started, found = time.perf_counter(), list[Completion | Failure]()
        for index, made in enumerate(self._texts(request)):
            found.append(Completion(request.number, index, **made, seconds=time.perf_counter() - started))
        return found

    def _tried(self, request: Request) -> Answers:
        return or_failures(lambda: self._answer(request), [request])

    def _check(self, request: Request) -> None:
        """Raise NotImplementedError for a parameter that the engine does not have."""
        asked = vars(request.sampling)
        if lacking := sorted(x for x in self._lacks if asked[x] not in (None, (), NEUTRAL.get(x))):
            raise NotImplementedError(f"{', '.join(lacking)}: {self.name} has no such parameter here")

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "version": self.version,
            "model": self._planted.digest,
            "speculative": self._gamma > 0,
            "gamma": self._gamma,
            **self._settings,
            "logprobs": self._logprobs,
        }

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        for request in requests:
            yield from self._tried(request)

    def counters(self) -> dict[str, int] | None:
        """None: an engine reports the counts of each request, or nothing."""
        return None

    def close(self) -> None:
        self._model: Any = None
        self._drafting: dict[str, Any] = {}  # what it drafts with
        if self._folder:
            self._folder.cleanup()


def need(module: str, package: str) -> Any:
    """Import the module of an engine. Raises ImportError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed; run: pip install {package} ({error})") from None


def convert(module: str, options: Sequence[str], package: str) -> None:
    """Run a module that converts a checkpoint. Raises ImportError, or ValueError with its last line."""
    ran = subprocess.run([sys.executable, "-m", module, *options], capture_output=True, text=True)
    if ran.returncode:
        last = (ran.stderr.strip() or ran.stdout.strip()).rpartition("\n")[2][:300]
        if last.startswith(("ModuleNotFoundError", "ImportError")) or "No module named" in last:
            raise ImportError(f"{module} cannot be run; run: pip install {package} ({last})")
        raise ValueError(f"{module} {' '.join(options)}: {last}")


def or_failures(answer: Callable[[], Answers], requests: Sequence[Request]) -> Answers:
    """What `answer` gives for `requests`, or a failure of each if the engine raises."""
    try:
        return answer()
    except FailedError as error:
        kind, text = error.kind, str(error)
    except NotImplementedError as error:
        kind, text = "refused", str(error)
    except Exception as error:
        kind, text = "crash", f"{type(error).__name__}: {error}"[:300]
    return [Failure(request.number, kind, text) for request in requests]
