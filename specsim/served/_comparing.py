"""`compare_acceptance`: whether two logs differ in tokens per step, by requests, whose steps are alike."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from specsim.core._tables import CONFIDENCE, Line, Piece, Shown, Table, span
from specsim.core._types import Floats, check_between, checked
from specsim.served._acceptance import acceptance_of, half_width, some_records

#: Random exchanges, and the probability with which a change of `detectable` is shown.
EXCHANGES, POWER = 9_999, 0.9


class LoggedTokens(NamedTuple):
    """Tokens per step of a log over all its requests, with an interval from the differences between them."""

    log: str
    requests: int
    steps: int
    tokens_per_step: float
    low: float
    high: float
    decimals: int  #: those that the interval settles to one unit; later ones are noise


@dataclass(frozen=True, eq=False)
class AcceptanceComparison(Shown):
    """The result of `compare_acceptance`."""

    logs: tuple[LoggedTokens, ...]  #: the old one, and the new one if there is one
    false_alarm: float
    change: float | None = None  #: new less old tokens per step
    paired: str = ""  #: how requests were paired, "by id" or "by order"; empty if they were not
    p_value: float | None = None  #: of equal distributions; None where too few requests could tell
    detectable: float | None = None  #: the change that is shown with probability .9
    derived, listed = ("verdict",), "logs"

    @property
    def verdict(self) -> str:
        """A fall or a rise, no change, or inconclusive; empty of one log."""
        if self.change is None or self.p_value is None:
            return "" if self.change is None else "inconclusive"
        return "no change" if self.p_value > self.false_alarm else "fall" if self.change < 0.0 else "rise"

    @property
    def exit_code(self) -> int:
        """1 for a fall, 3 if inconclusive, else 0."""
        return {"fall": 1, "inconclusive": 3}.get(self.verdict, 0)

    def parts(self) -> Iterator[Piece]:
        names = ("log", "requests", "steps", "tokens/step", f"{CONFIDENCE:.0%} interval", "decimals known")
        rows = [
            (log, f"{requests:,}", f"{steps:,}", f"{mean:.4f}", span((low, high)), decimals)
            for log, requests, steps, mean, low, high, decimals in self.logs
        ]
        how = f"requests paired {self.paired}" if self.paired else "requests not paired"
        rate = f"at a false-alarm rate of {self.false_alarm:g}"
        if self.verdict == "inconclusive":
            yield Line(f"inconclusive: too few requests to show any change {rate}; {how}", "bold")
        elif self.verdict:
            shown = "no change is shown" if self.verdict == "no change" else f"a {self.verdict} is shown"
            yield Line(f"{shown}: {self.change:+.4f} tokens per step, p = {self.p_value:.2g}", "bold")
        else:
            yield Line(f"{rows[0][3]} tokens per step, {names[4]} {rows[0][4]}", "bold")
        yield Table(names, rows)
        if self.detectable is not None:
            yield f"{how}; a change of {self.detectable:.3f} is shown with probability {POWER:g}, {rate}"


@checked
def compare_acceptance(
    old: str | Path, new: str | Path | None = None, *, false_alarm: float = 0.01
) -> AcceptanceComparison:
    """Test whether the tokens per step of two logs differ, request by request.

    The steps of a request are alike, so that requests are exchanged, not steps. Requests with the same ids
    in both logs, else as many in the same order, are pairs, which exchange within themselves.

    Parameters
    ----------
    old, new : path
        Logs with accepted lengths of requests, or their steps and accepted tokens, as `read_acceptance` reads
        them; `new` may be missing.
    false_alarm : float
        The probability of calling equal distributions a change, in (0, 1); half of it is for a fall.

    Returns
    -------
    AcceptanceComparison

    Raises
    ------
    ValueError
        For logs without requests, or that contradict themselves.

    References
    ----------
    Phipson & Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010), for p-values of random exchanges; Cochran,
    "Sampling techniques" (1977), section 6.4, for the interval of a ratio of sums.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, accepted in (("old", 40), ("new", 20)):
    ...     rows = [json.dumps({"acceptance_histogram": [i, 30, accepted]}) for i in range(20)]
    ...     _ = (folder / f"{name}.jsonl").write_text("\\n".join(rows))
    >>> found = compare_acceptance(folder / "old.jsonl", folder / "new.jsonl")
    >>> found.verdict, found.paired, found.p_value
    ('fall', 'by order', 0.0002)
    """
    check_between("false_alarm", false_alarm, 0.0, 1.0, "probability", "()")
    ids, tokens, steps = _requests_of(old)
    before, paired = _summed(str(old), tokens, steps), ""
    if new is None:
        return AcceptanceComparison((before,), false_alarm)
    new_ids, *after = _requests_of(new)
    logs, places = (before, _summed(str(new), *after)), {one: i for i, one in enumerate(new_ids)}
    change, n, m = logs[1].tokens_per_step - before.tokens_per_step, len(ids), len(new_ids)
    if "" not in places and len({*ids}) == n == m and places.keys() == {*ids}:
        after, paired = [column[[places[one] for one in ids]] for column in after], "by id"
    elif n == m:
        paired = "by order"
    ways = 2**n if paired else math.comb(n + m, n)
    if min(n, m) < 2 or 2.0 / min(ways, EXCHANGES + 1) > false_alarm:
        return AcceptanceComparison(logs, false_alarm, change, paired)
    tokens, steps = np.append(tokens, after[0]), np.append(steps, after[1])

    def difference(one: Any, other: Any, axis: int) -> Any:
        first, second = (tokens[i].sum(axis) / steps[i].sum(axis) for i in (one, other))
        return second - first

    kind, rows = "samples" if paired else "independent", (np.arange(n), np.arange(n, n + m))
    how: Any = {"n_resamples": EXCHANGES, "batch": max(1, 2**22 // (n + m)), "vectorized": True}
    how |= {"permutation_type": kind, "random_state": np.random.default_rng(0)}
    ran = scipy.stats.permutation_test(rows, difference, **how)
    reach = scipy.stats.norm.isf(false_alarm / 2.0) + scipy.stats.norm.ppf(POWER)
    detectable = float(reach * np.std(ran.null_distribution))
    return AcceptanceComparison(logs, false_alarm, change, paired, float(ran.pvalue), detectable)


def _requests_of(path: str | Path) -> tuple[list[str], Floats, Floats]:
    """Of each request of a log that has steps: its id, empty if it has none, its tokens, and its steps."""
    records = [one for one in some_records(path, []) if not one.beside]
    found = acceptance_of(records)
    if not found.requests:
        raise ValueError(f"{path}: has the counters of a server, not those of requests; log its responses")
    if found.contradictions:
        raise ValueError(found.contradictions[0])
    rows = []
    for one in [one for one in records if one.lengths] or records:
        steps, accepted = (one.numbers.get(name) for name in ("steps", "accepted"))
        if one.lengths:
            steps, accepted = sum(one.lengths), sum(k * n for k, n in enumerate(one.lengths))
        if steps is None or accepted is None:
            lacks = "neither a histogram of accepted lengths nor counts of steps and accepted tokens"
            raise ValueError(f"{one.place}: has {lacks}; log one of both for each request")
        rows += [(one.identity, accepted + steps, steps)] * (steps > 0)
    if not rows:
        raise ValueError(f"{path}: no request has a step; log requests that speculate")
    ids, tokens, counts = zip(*rows, strict=True)
    return [*ids], np.array(tokens, dtype=np.float64), np.array(counts, dtype=np.float64)


def _summed(log: str, tokens: Floats, steps: Floats) -> LoggedTokens:
    """A ratio of sums over requests, with its interval."""
    n, mean, reach, decimals = len(steps), float(tokens.sum() / steps.sum()), math.inf, 0
    if n > 1:
        reach = half_width(tokens, steps)
        decimals = min(max(0, math.floor(-math.log10(max(2.0 * reach, 1e-9)))), 9)
    return LoggedTokens(log, n, int(steps.sum()), mean, max(1.0, mean - reach), mean + reach, decimals)
