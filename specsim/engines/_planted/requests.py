"""What an engine is asked, how it processes rows before it draws a token, and what it answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specsim.core._arguments import checked
from specsim.core._files import read_table
from specsim.core._json import printable
from specsim.core._types import Floats
from specsim.core._verdicts import LONGEST
from specsim.models._processed import SAMPLING, process


@checked
@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from the rows of the target.

    `logprobs` is None if no log-probabilities are asked for, 0 for those of the emitted tokens, k for lists
    of the k most probable tokens too. With `penalties`, those of repetition, presence and frequency are sent,
    with values that change nothing. Raises ValueError, naming the parameter, for values out of range."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    logprobs: int | None = 0
    penalties: bool = False

    def __post_init__(self) -> None:
        top, stops = self.top_k, all(one and isinstance(one, str) for one in self.stop)
        for name, value, good, wanted in (
            ("temperature", self.temperature, 0.0 <= self.temperature <= 1e6, "in [0, 1000000]"),
            ("top_k", top, top is None or top >= 1, "at least 1, or None"),
            ("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "in (0, 1]"),
            ("min_p", self.min_p, 0.0 <= self.min_p <= 1.0, "in [0, 1]"),
            ("stop", self.stop, stops, "strings, none empty"),
            ("logprobs", self.logprobs, (self.logprobs or 0) >= 0, "at least 0, or None"),
        ):
            if not good:
                raise ValueError(f"{name}: {value!r} is not {wanted}")


#: The orders of temperature and truncation that engines are known to use. In the last one top-k and top-p
#: each look at the same row, and what both keep is renormalised.
ORDERS = {
    "temperature, top-k, top-p, min-p": ("temperature", "top_k", "top_p", "min_p"),
    "temperature, min-p, top-k, top-p": ("temperature", "min_p", "top_k", "top_p"),
    "temperature, top-p, top-k, min-p": ("temperature", "top_p", "top_k", "min_p"),
    "top-k, top-p, min-p, temperature": ("top_k", "top_p", "min_p", "temperature"),
    "top-p, min-p, top-k, temperature": ("top_p", "min_p", "top_k", "temperature"),
    "temperature, top-k with top-p, min-p": ("temperature", "joint", "min_p"),
}
#: The order of transformers.
FIRST_ORDER = "temperature, top-k, top-p, min-p"


def processed(rows: Floats, sampling: Sampling, order: str = FIRST_ORDER) -> Floats:
    """`rows` [..., V] after temperature, top-k, top-p and min-p, in an order of `ORDERS`."""
    return process(rows, ORDERS[order], **{name: getattr(sampling, name) for name in SAMPLING})


def possible_orders(sampling: Sampling) -> list[str]:
    """The orders that can give different rows, the first one alone if at most one step does anything."""
    truncations = sampling.top_k is not None, sampling.top_p != 1.0, sampling.min_p != 0.0
    several = (sampling.temperature != 1.0) + sum(truncations) > 1
    return list(ORDERS) if several else [FIRST_ORDER]


@dataclass(frozen=True)
class Request:
    """`n` texts after one prompt; `number` is unique in a run. `seed` None leaves the seed to the engine."""

    number: int
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int | None = None
    n: int = 1
    sampling: Sampling = Sampling()


@dataclass(frozen=True)
class Completion:
    """Text `index` of request `number`.

    `logprobs` has an entry for each token, None where the engine gave none. `drafted`, `accepted` and `steps`
    are what the engine reports for this text, or with the first text of a request for all of them; None where
    it reports nothing. `seconds` is the time from sending the request to its answer."""

    number: int
    index: int
    tokens: tuple[int, ...]
    logprobs: tuple[float | None, ...] | None = None
    top: tuple[dict[int, float], ...] | None = None
    drafted: int | None = None
    accepted: int | None = None
    finish: str | None = None
    seconds: float = 0.0
    steps: int | None = None


#: Why a request has no completion, by kind.
FAILURES: dict[str, str] = read_table("servers")["failures"]


class FailedError(Exception):
    """A request has no completion; `kind` is a key of `FAILURES`."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Failure:
    """Request `number` has no completion; `kind` is a key of `FAILURES`, `text` says what happened.

    The text may hold words of a server, so it is escaped and cut."""

    number: int
    kind: str
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text, LONGEST))


class Engine(Protocol):
    """A serving engine with a planted checkpoint."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def describe(self) -> dict[str, Any]:
        """The model, the settings, and whether the engine speculates, as plain JSON."""

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        """Yield the `n` completions of each request, or one failure, in the order in which they end."""

    def counters(self) -> dict[str, int] | None:
        """Return numbers since the engine was started: "drafted", "accepted" and, where reported, "steps".

        None without counters. Audits take differences."""

    def close(self) -> None:
        """Free what the engine holds. A second call does nothing."""
