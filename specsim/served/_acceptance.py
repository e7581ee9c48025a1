"""`read_acceptance`: α by position, with intervals, from what engines log of accepted lengths."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from specsim.core._arguments import checked
from specsim.core._tables import Piece, Shown, Table, as_dict, span
from specsim.core._types import Floats
from specsim.served._logged import Request, read_logged

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
        """Everything as plain Python values, for JSON."""
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
        `specsim.served._logged` has the fields.

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
    logged = read_logged(Path(path))
    requests = logged.requests
    wrong = [(one, reasons) for one in requests if (reasons := list(one.contradictions()))]
    lengths = _total([one.lengths for one in requests])
    known = [one.gamma for one in requests if one.gamma is not None]
    gamma = max(known) if known and len(known) == len(requests) else None
    return Acceptance(
        engine=logged.engine,
        requests=0 if logged.whole_server else len(requests),
        gamma=gamma,
        lengths=lengths,
        positions=() if wrong else _positions(requests, lengths),
        numbers=logged.gauges | ({} if wrong else _numbers(requests, lengths, gamma, logged.whole_server)),
        contradictions=tuple(f"{one.place}: {'; '.join(reasons)}" for one, reasons in wrong[:SHOWN]),
        contradicting=len(wrong),
        unreadable=tuple(logged.unreadable),
    )


def _total(histograms: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    total = Counter[int]()
    for lengths in histograms:
        total.update(dict(enumerate(lengths)))
    return tuple(total[k] for k in range(max(total, default=-1) + 1))


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
