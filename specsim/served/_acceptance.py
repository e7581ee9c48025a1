"""`read_acceptance`: α by position, with intervals, from what engines log of accepted lengths: a histogram
for each request, or counters of a server. docs/checking-metrics.md lists the files and their fields."""

import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from specsim.core._arguments import checked
from specsim.core._files import open_file
from specsim.core._lines import LONGEST, Line, log_files, read_line, read_lines, split_lines
from specsim.core._tables import Piece, Shown, Table, as_dict, span
from specsim.core._types import Floats
from specsim.served._prometheus import COUNTERS, Series, read_series
from specsim.traces._responses import COUNTS, first_of

#: The names of a number that `COUNTS` lacks, the present one first.
HISTOGRAM = ("acceptance_histogram", "spec_correct_drafts_histogram", "spec_accept_histogram")
RATE = ("draft_acceptance_rate", "spec_accept_rate")
MEAN = ("mean_acceptance_length", "spec_accept_length")
BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
GAUGES = {"spec_accept_length": "tokens_per_step", "spec_accept_rate": "acceptance_rate"}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
#: The most tokens accepted in a step, and the largest count.
MOST_ACCEPTED, MOST = 256, 2**53
#: By how much a printed rate or mean may differ from that of the counts.
ROUNDING = 1e-3
DEEPEST = 12


class Request(NamedTuple):
    """What was logged of a request, or of a server; None where it was not."""

    place: str
    engine: str
    lengths: tuple[int, ...]  #: [k] steps that accepted k drafted tokens
    gamma: int | None = None
    steps: int | None = None
    accepted: int | None = None
    drafted: int | None = None
    rate: float | None = None
    mean: float | None = None
    emitted: int | None = None

    def contradictions(self) -> Iterator[str]:
        steps, accepted = sum(self.lengths), sum(k * steps for k, steps in enumerate(self.lengths))
        if min(self.lengths, default=0) < 0:
            yield "a position is accepted more often than the one before it, or than there are steps"
        if self.steps is not None and self.steps != steps:
            yield f"{self.steps:,} steps, and {steps:,} in the histogram"
        if self.accepted is not None and self.accepted != accepted:
            yield f"{self.accepted:,} accepted, and {accepted:,} in the histogram"
        longest = max((k for k, number in enumerate(self.lengths) if number), default=0)
        if self.gamma is not None and longest > self.gamma:
            yield f"{longest} accepted in a step, of at most {self.gamma} drafted"
        if self.drafted is not None:
            if self.drafted < accepted:
                yield f"{accepted:,} accepted of {self.drafted:,} drafted"
            if self.gamma is not None and self.drafted > self.gamma * steps:
                yield f"{self.drafted:,} drafted in {steps:,} steps of at most {self.gamma}"
            if self.rate is not None and self.drafted and _differ(self.rate, accepted / self.drafted):
                yield f"acceptance rate {self.rate:.6g}, and {accepted:,} accepted of {self.drafted:,}"
        if self.mean is not None and steps and not self._mean_is_true(steps, accepted):
            yield f"mean length {self.mean:.6g}, and {accepted:,} accepted in {steps:,} steps"

    def _mean_is_true(self, steps: int, accepted: int) -> bool:
        """SGLang divides the tokens of a request by its steps; its last step may be cut short."""
        means = [1 + accepted / steps]
        if self.engine == "sglang" and self.emitted is not None:
            means.append(self.emitted / steps)
        return not all(_differ(self.mean or 0.0, mean) for mean in means)


def _differ(one: float, other: float) -> bool:
    return not abs(one - other) <= ROUNDING


def _documents(files: list[Path]) -> Iterator[Line]:
    """The lines of files; a file that ends in .json is one document."""
    for file in files:
        if file.suffix != ".json":
            yield from read_lines([file])
        else:
            yield read_line(file.read_bytes() if file.stat().st_size <= LONGEST else None, str(file))


def _requests(value: Any, place: str, depth: int = 0) -> Iterator[Request]:
    """The requests anywhere in a document."""
    if depth > DEEPEST:
        return
    if isinstance(value, Mapping):
        histogram = first_of(value, HISTOGRAM)
        if histogram is not None:
            yield _request(value, histogram, place)
            return
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _requests(inner, place, depth + 1)


def _request(values: Mapping[str, Any], histogram: Any, place: str) -> Request:
    sglang = any(name.startswith("spec_") for name in values)
    engine = str(values.get("engine", "sglang" if sglang else "vllm"))
    lengths = _lengths(histogram)
    gamma = _count(values.get("num_spec_tokens"), "num_spec_tokens")
    if gamma is None and isinstance(histogram, list) and any(lengths):
        gamma = len(histogram) - 1
    counts = {name: COUNTS[name] for name in ("steps", "accepted", "drafted", "emitted")}
    return Request(
        place=place,
        engine=ENGINES.get(engine, "vllm"),
        lengths=lengths,
        gamma=gamma,
        rate=_ratio(first_of(values, RATE), RATE[0]),
        mean=_ratio(first_of(values, MEAN), MEAN[0]),
        **{name: _count(first_of(values, names), names[0]) for name, names in counts.items()},
    )


def _lengths(histogram: Any) -> tuple[int, ...]:
    """A histogram, dense or sparse, as a tuple."""
    if isinstance(histogram, Mapping):
        keys = [key for key in histogram if isinstance(key, str) and key.isdecimal() and len(key) < 6]
        if len(keys) < len(histogram):
            raise ValueError("acceptance_histogram: its keys are not numbers of accepted tokens")
        sparse = {int(key): histogram[key] for key in keys}
        if max(sparse, default=0) > MOST_ACCEPTED:
            raise ValueError(f"acceptance_histogram: has more than {MOST_ACCEPTED} accepted in a step")
        histogram = [sparse.get(k, 0) for k in range(max(sparse, default=0) + 1)]
    if not isinstance(histogram, list) or len(histogram) > MOST_ACCEPTED + 1:
        raise ValueError(f"acceptance_histogram: {reprlib.repr(histogram)} is not a list of counts")
    counts = [_count(one, "acceptance_histogram") for one in histogram]
    return tuple(0 if one is None else one for one in counts)


def _count(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name}: {reprlib.repr(value)} is not a count")
    return int(value)


def _ratio(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError(f"{name}: {reprlib.repr(value)} is not a number ≥ 0")
    return float(value)


def _of_counters(path: Path) -> "Acceptance":
    """Counters in Prometheus' text; those of several series, such as engines, are added up."""
    counts, positions, gauges = Counter[str](), Counter[int](), dict[str, str]()
    engine, several = "vllm", set[str]()
    for place, found in _series(path):
        engine = ENGINES.get(found.engine, engine)
        if found.name in GAUGES:
            text = str(found.value)
            several |= {found.name} if gauges.setdefault(GAUGES[found.name], text) != text else set()
        elif found.name in COUNTERS:
            counts[COUNTERS[found.name]] += _count(found.value, place) or 0
        else:
            position = found.labels.get("position", "")
            if not position.isdecimal() or len(position) > 3:
                raise ValueError(f"{place}: {BY_POSITION} has no position; give the label position")
            positions[int(position)] += _count(found.value, place) or 0
    if not counts and not gauges:
        raise ValueError(f"{path}: neither JSON nor counters such as vllm:{next(iter(COUNTERS))}; log them")
    for name in several:  # of several ranks or models; their mean is not known
        gauges.pop(GAUGES[name])
    requests = [_server(str(path), engine, counts, positions)] if counts["steps"] and positions else []
    if not requests:
        gauges |= {name: str(count) for name, count in counts.items() if count}
    if not requests and not gauges:
        raise ValueError(f"{path}: its counters are 0, or differ between servers; log a run of one server")
    return _of_requests(requests, engine, gauges)


def _series(path: Path) -> Iterator[tuple[str, Series]]:
    """The lines of Prometheus' text about speculative decoding, with their places."""
    names = {*COUNTERS, *GAUGES, BY_POSITION}
    with open_file(path) as file:
        for number, line in enumerate(split_lines(file), 1):
            try:
                found = read_series((line or b"").decode("utf-8", "replace"), names)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            if found is not None:
                yield f"{path}:{number}", found


def _server(place: str, engine: str, counts: Mapping[str, int], positions: Mapping[int, int]) -> Request:
    """The histogram that counts by position amount to."""
    gamma = max(positions) + 1
    reached = [counts["steps"], *(positions.get(i, 0) for i in range(gamma)), 0]
    lengths = tuple(one - other for one, other in pairwise(reached))
    others = {name: counts.get(name) for name in ("accepted", "drafted")}
    return Request(place, engine, lengths, gamma, counts["steps"], **others)


#: Two-sided confidence of the intervals.
CONFIDENCE = 0.95
#: Contradictions and unreadable lines that are shown.
SHOWN = 5


class AcceptedPosition(NamedTuple):
    """How often the drafted token at a position was accepted, of the `tested` steps that accepted all before.

    If drafts vary in length, `tested` includes shorter ones, and `alpha` is a lower bound of the rate."""

    position: int
    tested: int
    accepted: int
    alpha: float
    interval: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Acceptance(Shown):
    """The result of `read_acceptance`."""

    engine: str  #: whose definitions the numbers have, a key of `DEFINITIONS`
    requests: int  #: those with a histogram; 0 for the counters of a server
    gamma: int | None  #: the largest logged draft length
    lengths: tuple[int, ...]  #: how many steps accepted 0, 1, … drafted tokens
    positions: tuple[AcceptedPosition, ...]  #: with 95 % intervals
    numbers: dict[str, Any] = field(repr=False)  #: totals, as arguments of `check_metrics`
    contradictions: tuple[str, ...]  #: of single requests whose numbers cannot all be true, the first few
    contradicting: int  #: how many requests have such numbers
    unreadable: tuple[str, ...] = field(repr=False)  #: lines that could not be read, with the reason

    @property
    def exit_code(self) -> int:
        """0 if no request contradicts itself, else 1."""
        return int(self.contradicting > 0)

    def to_dict(self) -> dict[str, Any]:
        return as_dict(self, confidence=CONFIDENCE)

    def records(self) -> list[dict[str, Any]]:
        """The positions."""
        rows = [one._asdict() for one in self.positions]
        for row in rows:
            row["low"], row["high"] = row.pop("interval")
        return rows

    def parts(self) -> Iterator[Piece]:
        if self.positions:
            rows = [
                (one.position, f"{one.tested:,}", f"{one.accepted:,}", f"{one.alpha:.4f}", span(one.interval))
                for one in self.positions
            ]
            yield Table(("position", "tested", "accepted", "α", f"{CONFIDENCE:.0%} interval"), rows)
        if self.lengths:
            of = f"{self.requests:,} requests" if self.requests else "a server"
            most = "not logged" if self.gamma is None else self.gamma
            yield f"{sum(self.lengths):,} steps of {of}, γ {most}, definitions of {self.engine}"
        if self.contradicting:
            yield f"{self.contradicting:,} requests contradict themselves; the first:"
            yield from (f"  {line}" for line in self.contradictions)
        if self.unreadable:
            yield f"{len(self.unreadable):,} lines could not be read; the first:"
            yield from (f"  {line}" for line in self.unreadable[:SHOWN])


@checked
def read_acceptance(path: str | Path) -> Acceptance:
    """Read how many drafted tokens were accepted from what an engine logged.

    Parameters
    ----------
    path : path
        JSON Lines of responses or records, a folder of them, a JSON document, or a server's /metrics;
        docs/checking-metrics.md lists their fields.

    Returns
    -------
    Acceptance
        Its intervals are hulls of two: the exact binomial one for independent steps, and one from the
        differences between requests, whose steps are alike.

    Raises
    ------
    ValueError
        For a file without accepted lengths.
    OSError
        If the file is missing or cannot be read.

    References
    ----------
    Clopper & Pearson, Biometrika 26 (1934), for the binomial interval; Cochran, "Sampling techniques" (1977),
    section 6.4, for the ratio of sums over requests.

    Examples
    --------
    >>> import json, tempfile
    >>> record = {"acceptance_histogram": [39, 1, 0, 3], "num_spec_steps": 43, "num_draft_tokens": 129}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     print(json.dumps({"metrics": {"speculative_decoding": record}}), file=file, flush=True)
    ...     found = read_acceptance(file.name)
    >>> [(one.tested, one.accepted) for one in found.positions], found.numbers["accepted"]
    ([(43, 4), (4, 3), (3, 3)], 10)
    """
    place = Path(path)
    files = log_files(place)
    if not place.is_dir():
        with open_file(place) as file:
            begins = file.read(4096).lstrip()
        if not begins.startswith((b"{", b"[")):
            return _of_counters(place)
    found, unreadable = [], []
    for line in _documents(files):
        problem = line.problem
        if not problem:
            try:
                found += list(_requests(line.record, line.place))
            except ValueError as error:
                problem = ascii(str(error))[1:-1]
        if problem:
            unreadable.append(f"{line.place}: {problem}")
    if not found:
        first = f"; the first unreadable line is {unreadable[0]}" if unreadable else ""
        raise ValueError(f"{path}: has no accepted lengths; log one of {', '.join(HISTOGRAM)}{first}")
    return _of_requests(found, found[0].engine, unreadable=unreadable)


def _of_requests(
    requests: list[Request], engine: str, gauges: dict[str, str] | None = None, unreadable: Sequence[str] = ()
) -> Acceptance:
    """What `requests` amount to; with `gauges` of a server, whose counters are one of them or none."""
    wrong = [(one, reasons) for one in requests if (reasons := list(one.contradictions()))]
    lengths = tuple(map(sum, zip_longest(*(one.lengths for one in requests), fillvalue=0)))
    known = [one.gamma for one in requests if one.gamma is not None]
    gamma = max(known) if known and len(known) == len(requests) else None
    return Acceptance(
        engine=engine,
        requests=len(requests) if gauges is None else 0,
        gamma=gamma,
        lengths=lengths,
        positions=() if wrong else _positions(requests, lengths),
        numbers=(gauges or {}) | ({} if wrong else _numbers(requests, lengths, gamma, gauges is not None)),
        contradictions=tuple(f"{one.place}: {'; '.join(reasons)}" for one, reasons in wrong[:SHOWN]),
        contradicting=len(wrong),
        unreadable=tuple(unreadable),
    )


def _numbers(
    requests: list[Request], lengths: tuple[int, ...], gamma: int | None, whole_server: bool
) -> dict[str, Any]:
    """The totals that all requests have, as arguments of `check_metrics`."""
    steps = sum(lengths)
    if not steps:
        return {}
    found: dict[str, Any] = {"steps": steps, "accepted": sum(k * n for k, n in enumerate(lengths))}
    for name in ("drafted", "emitted"):
        counts = [getattr(one, name) for one in requests]
        if None not in counts:
            found[name] = sum(counts)
    if gamma:
        reached = np.cumsum(lengths[::-1])[::-1].tolist()[1:]
        found["gamma"] = gamma
        found["by_position"] = [one / steps for one in (reached + [0] * gamma)[:gamma]]
    if not whole_server:
        found["requests"] = len(requests)
    return found


def _positions(requests: list[Request], lengths: tuple[int, ...]) -> tuple[AcceptedPosition, ...]:
    table = np.zeros((len(requests), len(lengths)))
    for row, one in zip(table, requests, strict=True):
        row[: len(one.lengths)] = one.lengths
    reached = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]  # steps that accepted at least k
    found = []
    for i in range(1, len(lengths)):
        tested, accepted = reached[:, i - 1], reached[:, i]
        n, hits = int(tested.sum()), int(accepted.sum())
        if n:
            found.append(AcceptedPosition(i, n, hits, hits / n, _interval(tested, accepted)))
    return tuple(found)


def _interval(tested: Floats, accepted: Floats) -> tuple[float, float]:
    """The hull of the binomial interval and that of a ratio of sums over requests."""
    n, hits, tail = tested.sum(), accepted.sum(), (1 - CONFIDENCE) / 2
    low = float(scipy.stats.beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(scipy.stats.beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    requests = int((tested > 0).sum())
    if requests > 1:
        variance = ((accepted - hits / n * tested) ** 2).sum() * requests / (requests - 1) / n**2
        reach = float(scipy.stats.t.ppf(1 - tail, requests - 1) * np.sqrt(variance))
        low, high = min(low, hits / n - reach), max(high, hits / n + reach)
    return max(0.0, float(low)), min(1.0, float(high))
