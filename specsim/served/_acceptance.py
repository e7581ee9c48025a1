"""`read_acceptance`: what engines log of accepted tokens, added up, with α by position and its intervals.

docs/checking-metrics.md lists the files and their fields."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy

from specsim.core._tables import CONFIDENCE, NONE, Line, Piece, Shown, Table, span
from specsim.core._types import Floats, checked
from specsim.served._feasible import Range, read
from specsim.served._records import Record, read_records

#: By how much a printed rate or mean may differ from that of the counts, beside its rounding.
ROUNDING = 1e-3
#: Numbers of steps that are tried for a line that does not print it, and what such a line prints.
TRIED, PRINTED = 500, {"accepted", "drafted", "tokens_per_step", "by_position"}


class Counted(NamedTuple):
    """Steps of a record, and those that accepted each position; `lengths` is the likely histogram."""

    steps: Range
    reached: tuple[Range, ...]
    lengths: tuple[int, ...]


def _counted(record: Record) -> Counted | None:
    """The steps of a record; None where it does not tell, or prints what cannot be."""
    if record.lengths:
        first, *rest = (Range(n, n) for n in np.cumsum(record.lengths[::-1])[::-1].tolist())
        return Counted(first, tuple(rest), record.lengths)
    numbers = record.numbers
    if not numbers.keys() >= PRINTED:
        return None
    accepted, drafted = numbers["accepted"], numbers["drafted"]
    rates = [read("by_position", rate) for rate in numbers["by_position"]]
    mean, full = read("tokens_per_step", numbers["tokens_per_step"]), drafted / len(rates)
    least = max(math.ceil(full), math.ceil(accepted / (mean.high - 1) - 1e-9) if mean.high > 1 else 1, 1)
    most = math.floor(accepted / (mean.low - 1) + 1e-9) if accepted and mean.low > 1 else drafted
    least, most = (numbers.get("steps", end) for end in (least, most))
    found = []
    many = most - least > TRIED
    for steps in (least, most) if many else range(least, most + 1):
        ends = [Range(math.ceil(r.low * steps - 1e-9), math.floor(r.high * steps + 1e-9)) for r in rates]
        low, high = (sum(side) for side in zip(*ends, strict=True))
        if many or (low <= accepted <= high and all(one.low <= one.high for one in ends)):
            found.append((steps, ends))
    if not found:
        return None
    likely = min((steps for steps, _ in found), key=lambda n: abs(n - full))  # mostly drafts have γ tokens
    every = [*zip(*(ends for _, ends in found), strict=True)]
    reached = [Range(min(r.low for r in some), max(r.high for r in some)) for some in every]
    if len(found) == 1 and sum(one.low for one in reached) == accepted:
        reached = [Range(one.low, one.low) for one in reached]
    counts = [likely, *(min(likely, round(sum(r) / 2)) for r in reached), 0]
    lengths = tuple(max(0, one - later) for one, later in pairwise(counts))
    return Counted(Range(found[0][0], found[-1][0]), tuple(reached), lengths)


def _contradictions(record: Record, alone: bool) -> Iterator[str]:
    """What of a record cannot be true; of one `alone` without a histogram, `check_metrics` says more."""
    numbers, lengths = record.numbers, record.lengths
    steps, accepted, drafted, gamma = (numbers.get(n) for n in ("steps", "accepted", "drafted", "gamma"))
    parts = _parts([record])
    if parts and parts[0] != drafted:
        yield f"{drafted:,} drafted, and {parts[0]:,} accepted, rejected and ignored"
    if lengths:
        if min(lengths) < 0:
            yield "a position is accepted more often than the one before it, or than there are steps"
        counted, passed = sum(lengths), sum(k * n for k, n in enumerate(lengths))
        if steps not in (None, counted):
            yield f"{steps:,} steps, and {counted:,} in the histogram"
        if accepted not in (None, passed):
            yield f"{accepted:,} accepted, and {passed:,} in the histogram"
        steps, accepted = counted, passed
        longest = max((k for k, number in enumerate(lengths) if number), default=0)
        if gamma is not None and longest > gamma:
            yield f"{longest} accepted in a step, of at most {gamma} drafted"
    elif alone:
        return
    elif numbers.keys() >= PRINTED and not _counted(record):
        yield "its mean length and its rates by position are those of no count of steps"
    if drafted is None or accepted is None:
        return
    if drafted < accepted:
        yield f"{accepted:,} accepted of {drafted:,} drafted"
    if gamma is not None and steps is not None and drafted > gamma * steps:
        yield f"{drafted:,} drafted in {steps:,} steps of at most {gamma}"
    rate, mean = numbers.get("acceptance_rate"), numbers.get("tokens_per_step")
    if rate is not None and drafted and _differ("acceptance_rate", rate, accepted / drafted):
        yield f"acceptance rate {rate:.8}, and {accepted:,} accepted of {drafted:,}"
    means = [1 + accepted / steps] if steps else []
    if record.engine == "sglang" and "emitted" in numbers and steps:
        means.append(numbers["emitted"] / steps)  # the last step may be cut short
    if mean is not None and means and all(_differ("tokens_per_step", mean, one) for one in means):
        yield f"mean length {mean:.8}, and {accepted:,} accepted in {steps:,} steps"


def _differ(name: str, printed: str, true: float) -> bool:
    low, high = read(name, printed)
    return not low - ROUNDING <= true <= high + ROUNDING


def _parts(records: Sequence[Record]) -> list[int]:
    """Accepted, rejected and ignored drafted tokens, after their sum; empty where these are not told."""
    names = ("accepted", "rejected", "ignored")
    told = all(one.numbers.keys() >= {*names} for one in records)
    parts = [sum(one.numbers[name] for one in records) for name in names] if told else []
    return [sum(parts), *parts] if told else []


#: Contradictions and unreadable lines that are shown; requests or lines that tell how much they differ.
SHOWN, FEW = 5, 5


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
    requests: int  #: those that were read; 0 for the counters of a server, or lines of a log
    gamma: int | None  #: the largest logged draft length
    lengths: tuple[int, ...]  #: how many steps accepted 0, 1, … drafted tokens
    positions: tuple[AcceptedPosition, ...]  #: with 95 % intervals
    numbers: dict[str, Any] = field(repr=False)  #: totals, as arguments of `check_metrics`
    contradictions: tuple[str, ...]  #: of single requests whose numbers cannot all be true, the first few
    contradicting: int  #: how many requests have such numbers
    unreadable: tuple[str, ...] = field(repr=False)  #: lines that could not be read, with the reason
    name: str = ""  #: of which server, model or log, where there are several
    series: tuple["Acceptance", ...] = field(default=(), repr=False)  #: of each of these
    suspect: dict[str, Any] = field(default_factory=dict, repr=False)  #: the first contradicting record
    rejected: tuple[int, ...] = ()  #: accepted, rejected and ignored drafted tokens, after their sum
    likely: bool = False  #: whether `lengths` is the likeliest histogram of several
    means: tuple[float, ...] = field(default=(), repr=False)  #: tokens per step of each, without counts

    confidence: ClassVar[float] = CONFIDENCE
    long, derived = 4, ("confidence",)

    @property
    def exit_code(self) -> int:
        """0 if no request contradicts itself, else 1."""
        return int(self.contradicting > 0)

    def records(self) -> list[dict[str, Any]]:
        """The positions."""
        rows = [one._asdict() for one in self.positions]
        for row in rows:
            row["low"], row["high"] = row.pop("interval")
        return rows

    def parts(self) -> Iterator[Piece]:
        for line in self.contradictions[:1]:
            of = f" (such requests: {self.contradicting:,} of {self.requests:,})" if self.requests else ""
            yield Line(f"impossible: {line}{of}", "bold red")
        yield from (f"  {line}" for line in self.contradictions[1:])
        if self.series:
            columns = ("", "steps", "drafted", "accepted", "tokens per step", "α drafted")
            yield Table(columns, [*map(_row, self.series)])
        if self.positions:
            rows = [
                (one.position, f"{one.tested:,}", f"{one.accepted:,}", f"{one.alpha:.4f}", span(one.interval))
                for one in self.positions
            ]
            yield Table(("position", "tested", "accepted", "α", f"{CONFIDENCE:.0%} interval"), rows)
        what, means = "requests" if self.requests else "lines", np.array(self.means)
        if self.means:
            reach = half_width(means, np.ones_like(means)) if len(means) >= FEW else math.nan
            interval = span((means.mean() - reach, means.mean() + reach))
            text = f"{means.mean():.4g} tokens per step, from {min(means):.4g} to {max(means):.4g}"
            yield f"the mean of {len(means):,} {what} is {text}; {CONFIDENCE:.0%} interval {interval}"
        if 0 < len(means) < FEW or any(math.isnan(one.interval[0]) for one in self.positions):
            yield f"fewer than {FEW} {what} are too few for an interval, since steps of each are alike"
        of = f"{self.requests:,} request{'s' * (self.requests != 1)}" if self.requests else "a server"
        most = "" if self.gamma is None else f", γ {self.gamma}"
        about = "about " * self.likely
        steps = f"{about}{sum(self.lengths):,} steps of {of}" if self.lengths else of
        yield f"{steps}{most}, definitions of {self.engine}"
        if self.rejected:
            text = "drafted {:,} = {:,} accepted + {:,} rejected + {:,} ignored".format(*self.rejected)
            alpha = self.rejected[1] / max(1, sum(self.rejected[1:3]))
            yield f"{text}; if ignored ones are behind a rejection, α verified is {alpha:.4f}"
        if self.unreadable:
            yield f"{len(self.unreadable):,} lines could not be read; the first:"
            yield from (f"  {line}" for line in self.unreadable[:SHOWN])


def _row(one: Acceptance) -> tuple[str, ...]:
    """A row of the table of series."""
    steps, drafted, accepted = counts = [one.numbers.get(name) for name in ("steps", "drafted", "accepted")]
    mean, rate = (one.numbers.get(name, NONE) for name in ("tokens_per_step", "acceptance_rate"))
    if steps and not isinstance(steps, Range) and accepted is not None:
        mean = f"{1 + accepted / steps:.5g}"
    if drafted and accepted is not None:
        rate = f"{accepted / drafted:.4f}"
    shown = (NONE if n is None else str(n) if isinstance(n, Range) else f"{n:,}" for n in counts)
    return one.name, *shown, str(mean), str(rate)


@checked
def read_acceptance(path: str | Path, *more: str | Path) -> Acceptance:
    """Read how many drafted tokens were accepted from what engines logged.

    Parameters
    ----------
    path, *more : path or str
        A log, JSON Lines of responses or records, a folder of them, a JSON document, or a server's /metrics;
        or the text of one; "-" is standard input. docs/checking-metrics.md lists their fields.

    Returns
    -------
    Acceptance
        The sum of all. Its intervals are hulls of two: the exact binomial one for independent steps, and one
        from the differences between requests, whose steps are alike.

    Raises
    ------
    ValueError
        For a file without numbers of speculative decoding.
    OSError
        If a file is missing or cannot be read.

    References
    ----------
    Clopper & Pearson, Biometrika 26 (1934), for the binomial interval; Cochran, "Sampling techniques" (1977),
    section 6.4, for the ratio of sums over requests.

    Examples
    --------
    >>> found = read_acceptance(
    ...     "SpecDecoding metrics: Mean acceptance length: 3.30, Accepted: 23 tokens, Drafted: 40 tokens, "
    ...     "Per-position acceptance rate: 0.900, 0.700, 0.500, 0.200, Avg Draft acceptance rate: 57.5%"
    ... )
    >>> [(one.tested, one.accepted) for one in found.positions], found.numbers["accepted"]
    ([(10, 9), (9, 7), (7, 5), (5, 2)], 23)
    """
    groups: dict[str, list[Record]] = {}
    unreadable: list[str] = []
    for source in (path, *more):
        for record in some_records(source, unreadable):
            name = ": ".join(one for one in (str(source)[:60] if more else "", record.part) if one)
            groups.setdefault(name, []).append(record)
    main = [one for some in groups.values() for one in some if not one.beside]
    parts = {name: some for name, some in groups.items() if len(some) < len(main) or some[0].beside}
    series = [acceptance_of(some, name=name) for name, some in parts.items() if name]
    return acceptance_of(main, unreadable, series=series)


def some_records(source: str | Path, unreadable: list[str]) -> list[Record]:
    """What `read_records` reads. Raises ValueError for nothing."""
    if found := [*read_records(source, unreadable)]:
        return found
    first = f"; the first unreadable line is {unreadable[0]}" if unreadable else ""
    what = f"no numbers of speculative decoding; give a log that has some{first}"
    raise ValueError(f"{str(source)[:200]}: {what}")


def acceptance_of(
    records: list[Record], unreadable: Sequence[str] = (), name: str = "", series: Sequence[Acceptance] = ()
) -> Acceptance:
    if any(one.is_request and one.lengths for one in records):  # others were without speculation
        records = [one for one in records if one.lengths or not one.is_request]
    wrong = [(one, reasons) for one in records if (reasons := [*_contradictions(one, len(records) == 1)])]
    known = [*map(_counted, records)]
    for one, found in zip(records, known, strict=True) if len(records) > 1 else ():
        if found and found.steps.low == found.steps.high:
            one.numbers.setdefault("steps", int(found.steps.low))
    counted = [one for one in known if one] if all(known) else []
    gammas = [one.numbers.get("gamma", len(one.numbers.get("by_position", ()))) for one in records]
    gamma, engines = max(gammas) if all(gammas) else None, {one.engine for one in records}
    lengths = tuple(map(sum, zip_longest(*(one.lengths for one in counted), fillvalue=0)))
    why = [f"{one.place}: {'; '.join(reasons)}" for one, reasons in wrong]
    why = [f"{one.name}: {text}" for one in series for text in one.contradictions if text not in why] + why
    numbers = {} if wrong else _numbers(records, counted, gamma)
    several = isinstance(numbers.get("tokens_per_step"), Range)
    return Acceptance(
        engine=engines.pop() if len(engines) == 1 else "other",
        requests=len(records) if all(one.is_request for one in records) else 0,
        gamma=gamma,
        lengths=lengths,
        positions=() if wrong else tuple(_positions(records, counted, lengths)),
        numbers=numbers,
        contradictions=tuple(why[:SHOWN]),
        contradicting=len(why),
        unreadable=tuple(unreadable),
        name=name,
        series=tuple(series),
        suspect=_arguments(wrong[0][0]) if wrong else {},
        rejected=tuple(_parts(records)),
        likely=any(one.steps.low < one.steps.high for one in counted),
        means=tuple(float(one.numbers["tokens_per_step"]) for one in records if several),
    )


def _arguments(record: Record) -> dict[str, Any]:
    """The numbers of one record as it prints them, and of its histogram, for `check_metrics`."""
    found = {k: v for k, v in record.numbers.items() if k not in ("first", "rejected", "ignored")}
    counted = _counted(record)
    if record.lengths and counted and min(record.lengths) >= 0:
        gamma = max(found.get("gamma", 0), len(record.lengths) - 1)
        found = _numbers([record._replace(is_request=False)], [counted], gamma) | found | {"gamma": gamma}
    if "by_position" in found:
        found["gamma"] = len(found["by_position"])
    return found | ({"requests": 1} if record.is_request and "emitted" in found else {})


def _numbers(records: list[Record], counted: list[Counted], gamma: int | None) -> dict[str, Any]:
    """The totals that all records have, as arguments of `check_metrics`."""
    if len(records) == 1 and not records[0].lengths:
        return _arguments(records[0])
    names = "steps", "accepted", "drafted", "emitted"
    counts = {name: [one.numbers.get(name) for one in records] for name in names}
    found: dict[str, Any] = {name: sum(some) for name, some in counts.items() if None not in some}
    if counted:
        steps = Range(*(sum(ends) for ends in zip(*(one.steps for one in counted), strict=True)))
        if not steps.high:
            return {}
        exact = all(one.low == one.high for some in counted for one in (some.steps, *some.reached))
        found["steps"] = int(steps.low) if exact else steps
        if exact:
            found["accepted"] = sum(k * n for one in counted for k, n in enumerate(one.lengths))
        if gamma:
            none = Range(0, 0)
            rows = zip_longest(*(one.reached for one in counted), fillvalue=none)
            sums = [Range(*(sum(ends) for ends in zip(*row, strict=True))) for row in rows]
            sums = (sums + [none] * gamma)[:gamma]
            found["gamma"] = gamma
            found["by_position"] = [
                one.low / steps.low if exact else Range(one.low / steps.high, min(1.0, one.high / steps.low))
                for one in sums
            ]
    for name in ("tokens_per_step", "acceptance_rate") if not found else ():
        values: set[Any] = {one.numbers.get(name) for one in records}
        if None not in values:  # the mean of all is between those that are printed
            low, high = zip(*(read(name, value) for value in values), strict=True)
            found[name] = values.pop() if len(values) == 1 else Range(min(low), max(high))
    if found and all(one.is_request for one in records):
        found["requests"] = len(records)
    return found


def _positions(
    records: list[Record], counted: list[Counted], lengths: tuple[int, ...]
) -> Iterator[AcceptedPosition]:
    rows = [one.lengths for one in counted]
    if not rows and all({"first", "steps"} <= one.numbers.keys() for one in records):
        pairs = ((one.numbers["steps"], one.numbers["first"]) for one in records)
        rows = [(max(0, steps - first), first) for steps, first in pairs]
        lengths = (0, 0)
    table = np.zeros((len(rows), len(lengths)))
    for row, one in zip(table, rows, strict=True):
        row[: len(one)] = one
    reached = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]  # steps that accepted at least k
    for i in range(1, len(lengths)):
        tested, accepted = reached[:, i - 1], reached[:, i]
        n, hits = int(tested.sum()), int(accepted.sum())
        if n:
            yield AcceptedPosition(i, n, hits, hits / n, _interval(tested, accepted))


def _interval(tested: Floats, accepted: Floats) -> tuple[float, float]:
    """The hull of the binomial interval and that of a ratio of sums over requests."""
    n, hits, some = int(tested.sum()), int(accepted.sum()), tested > 0
    low, high = scipy.stats.binomtest(hits, n).proportion_ci(CONFIDENCE)
    if some.sum() > 1:
        reach = half_width(accepted[some], tested[some])
        low, high = min(low, hits / n - reach), max(high, hits / n + reach)
    few = 1 < len(tested) < FEW
    return (math.nan, math.nan) if few else (max(0.0, float(low)), min(1.0, float(high)))


def half_width(tops: Floats, bottoms: Floats) -> float:
    """Of the interval of a ratio of sums, from the differences between its terms, two or more."""
    n = len(tops)
    variance = ((tops - tops.sum() / bottoms.sum() * bottoms) ** 2).sum() * n / (n - 1) / bottoms.sum() ** 2
    return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.sqrt(variance))
