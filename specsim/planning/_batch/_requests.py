"""Requests: when they arrive, how long they are, and how many of their drafted tokens are accepted."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from specsim.core._files import PathLike, read_columns
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints, array_of, check_between, check_count, checked, said_of
from specsim.planning._batch._kernel import BLOCK
from specsim.planning._plan import rates_to

#: The longest prompt and output, in tokens, and the most requests of a replication.
LONGEST, MOST_REQUESTS = 2**24, 10**7
#: The columns of a log.
COLUMNS = ("arrival", "prompt", "output")


@checked
@dataclass(frozen=True)
class Geometric:
    """Lengths 1, 2, … with P(n) = (1 - 1/m)^{n-1}/m and mean m ≥ 1."""

    mean: float

    def __post_init__(self) -> None:
        check_between("mean", self.mean, 1.0, LONGEST / 64, "mean length")

    def __str__(self) -> str:
        return f"geometric:{self.mean:g}"

    def lengths(self, u: Floats) -> Ints:
        """The lengths at these uniforms."""
        if self.mean == 1.0:
            return np.ones(len(u), dtype=np.int64)
        return np.asarray(np.floor(np.log1p(-u) / math.log1p(-1.0 / self.mean)) + 1.0, dtype=np.int64)


@checked
@dataclass(frozen=True)
class Beta:
    """Acceptance rates of requests, Beta-distributed; within a request acceptances are independent.

    `mean` is in [0, 1], the standard `deviation` in [0, 0.5]."""

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        check_between("mean", self.mean, 0.0, 1.0, "probability")
        check_between("deviation", self.deviation, 0.0, 0.5, "standard deviation")
        if not 0.0 < self.deviation**2 < self.mean * (1.0 - self.mean):
            most = math.sqrt(self.mean * (1.0 - self.mean))
            raise ValueError(f"deviation: {self.deviation:g} is not between 0 and {most:g}; give one rate")

    def rates(self, u: Floats) -> Floats:
        """The rates at these uniforms."""
        size = self.mean * (1.0 - self.mean) / self.deviation**2 - 1.0
        return np.asarray(scipy.special.betaincinv(self.mean * size, (1.0 - self.mean) * size, u))


@checked
@dataclass(frozen=True, eq=False)
class LoggedLengths:
    """Logged accepted lengths: `lengths[k]` steps accepted exactly k of γ drafted tokens.

    A simulated step draws from these, whatever the request. Longer drafts than the log's are refused."""

    lengths: ArrayLike

    def __post_init__(self) -> None:
        found: NDArray[Any] = np.zeros((0, 0))
        with suppress(TypeError, ValueError):  # of rows of unequal lengths, or of another object
            found = array_of("lengths", self.lengths)
        if found.ndim != 1 or len(found) < 2 or found.dtype.kind not in "iu" or found.min() < 0:
            raise ValueError("lengths: are not counts; give steps that accepted 0, 1, …, γ tokens, γ ≥ 1")
        if not found.sum():
            raise ValueError("lengths: no step was logged; give a count > 0")
        object.__setattr__(self, "lengths", tuple(found.tolist()))

    @classmethod
    def of_shares(cls, shares: Sequence[float]) -> "LoggedLengths":
        """From the shares of all steps that accepted each position, which fall, to twelve decimals."""
        reached = [round(10**12 * one) for one in (1.0, *shares, 0.0)]
        return cls([earlier - later for earlier, later in pairwise(reached)])

    @property
    def survival(self) -> Floats:
        """[γ] probabilities of accepting at least 1, 2, …, γ tokens."""
        lengths = np.asarray(self.lengths, dtype=np.float64)
        return np.asarray(np.cumsum(lengths[::-1])[-2::-1] / lengths.sum())


Acceptance = ArrayLike | Beta | LoggedLengths


@checked
@dataclass(frozen=True, eq=False)
class RequestLog:
    """Logged requests: seconds of arrival ≥ 0, in order, and tokens ≥ 1 of prompt and output, each [n]."""

    arrival: ArrayLike = field(repr=False)
    prompt: ArrayLike = field(repr=False)
    output: ArrayLike = field(repr=False)

    def __post_init__(self) -> None:
        columns = {name: np.asarray(getattr(self, name), dtype=np.float64) for name in COLUMNS}
        size = len({one.shape for one in columns.values()})
        if size > 1 or columns["arrival"].ndim != 1 or not columns["arrival"].size:
            raise ValueError("arrival, prompt, output: differ in length, or are empty; give a row a request")
        for name, column in columns.items():
            least, most = (0.0, 1e12) if name == "arrival" else (1.0, LONGEST)
            whole = (name == "arrival") | (column == np.floor(column))
            right = (column >= least) & (column <= most) & whole
            _check_rows(name, column, right, f"a number from {least:g} to {most:g}")
        falls = np.concatenate([[True], np.diff(columns["arrival"]) >= 0.0])
        _check_rows("arrival", columns["arrival"], falls, "times in order, none before the one above it")
        object.__setattr__(self, "arrival", columns["arrival"])
        for name in ("prompt", "output"):
            object.__setattr__(self, name, columns[name].astype(np.int64))

    def __len__(self) -> int:
        return len(np.asarray(self.arrival))

    @classmethod
    def read(cls, path: PathLike) -> "RequestLog":
        """Read a CSV file with the columns arrival (seconds), prompt and output (tokens), in any order."""
        found = read_columns(path, COLUMNS)
        with said_of(path):
            return cls(**found)


def _check_rows(name: str, column: Floats, right: NDArray[np.bool_], wanted: str) -> None:
    wrong = np.flatnonzero(~right)
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"{name}: request {row + 1} has {column[row]:g}; give {wanted}")


@dataclass(frozen=True)
class Workload:
    """The requests of a simulation; `rate` is None where all are there from the beginning."""

    rate: float | None
    log: RequestLog | None
    prompt: int | Geometric
    output: int | Geometric
    acceptance: Acceptance
    requests: int

    def __post_init__(self) -> None:
        if self.log is not None and self.rate is not None:
            raise ValueError("rate: the log has the arrivals; leave the rate out")
        if self.rate is not None:
            if self.rate == 0.0:
                raise ValueError("rate: 0 requests per second never arrive; leave it out for a full server")
            check_between("rate", self.rate, 1e-9, 1e9, "number of requests per second")
            object.__setattr__(self, "rate", float(self.rate))
        for name, length in (("prompt", self.prompt), ("output", self.output)):
            if not isinstance(length, Geometric):
                check_count(name, length, 1, LONGEST)
        if self.log is None:
            check_count("requests", self.requests, 1, MOST_REQUESTS)

    def __str__(self) -> str:
        if isinstance(self.acceptance, Beta):
            alpha = f"α {self.acceptance.mean:g} ± {self.acceptance.deviation:g} between requests"
        elif isinstance(self.acceptance, LoggedLengths):
            tokens = 1.0 + float(self.acceptance.survival.sum())
            alpha = f"logged accepted lengths, {tokens:.4g} tokens per step"
        else:
            rates = np.atleast_1d(np.asarray(self.acceptance)).tolist()
            alpha = "α " + ", ".join(f"{one:g}" for one in rates) + " of tested tokens"
        if self.log is not None:
            return f"the {len(self.log):,} requests of a log, {alpha}"
        return f"prompts of {self.prompt} and outputs of {self.output} tokens, {alpha}"

    @property
    def count(self) -> int:
        return self.requests if self.log is None else len(self.log)

    def draw(self, key: Key) -> "Drawn":
        """The requests of one replication; another rate changes arrivals alone, in proportion."""
        count, alphas = self.count, np.zeros(self.count)
        if self.log is None:
            gaps, *lengths = uniforms(key, Purpose.CONTEXT, 0, count, 3)
            arrivals = np.zeros(count) if self.rate is None else np.cumsum(-np.log1p(-gaps)) / self.rate
            prompts, outputs = (
                law.lengths(u) if isinstance(law, Geometric) else np.full(count, law, dtype=np.int64)
                for law, u in zip((self.prompt, self.output), lengths, strict=True)
            )
        else:
            arrivals, prompts, outputs = (np.asarray(getattr(self.log, name)) for name in COLUMNS)
            arrivals = arrivals - arrivals[0]
        if isinstance(self.acceptance, Beta):
            (u,) = uniforms(key, Purpose.DRAFT, 0, count, 1)
            alphas[:] = self.acceptance.rates(u)
        elif not isinstance(self.acceptance, LoggedLengths) and np.ndim(self.acceptance) == 0:
            alphas[:] = float(self.acceptance)  # type: ignore[arg-type]  # a number
        needed = -(-outputs // BLOCK)
        return Drawn(arrivals, prompts, outputs, alphas, np.cumsum(needed) - needed)

    def survival(self, longest: int, policy: str) -> Floats:
        """[longest] probabilities of accepting at least k + 1 tokens; empty where requests have rates.

        The first parameter of the `policy` limits its drafts."""
        if isinstance(self.acceptance, Beta):
            return np.empty(0)
        if isinstance(self.acceptance, LoggedLengths):
            found = self.acceptance.survival
            if longest > len(found):
                asked = f"{longest} drafted tokens, where the log of alpha has {len(found)}"
                raise ValueError(f"policy: {asked}; give {policy.partition('=')[0]}={len(found)}")
            return found
        rates = rates_to(self.acceptance, max(longest, 1))
        return np.asarray(np.cumprod(rates) if np.ndim(self.acceptance) else np.empty(0))


class Drawn(NamedTuple):
    arrivals: Floats
    prompts: Ints
    outputs: Ints
    alphas: Floats  #: acceptance rates, where each has its own
    blocks: Ints  #: the first block of uniforms of each: it needs at most one for each token
