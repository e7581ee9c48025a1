"""Tests whether a log's accept flags and drafted tokens follow from its own rows.

docs/importing-logs.md has the method under "trace audit", docs/proofs.md the proof for flags under "Logs". A
log cannot show whether its text follows the target's distribution."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core._tables import Piece, Table, as_dict, span
from specsim.core._types import Floats, Ints, checked
from specsim.core._verdicts import BUDGET, Finding, Judged, Verdict
from specsim.core.distributions import TOLERANCE
from specsim.core.stats import chi_square, log_e_value
from specsim.traces._format import DTYPES, AnyColumns, Layout
from specsim.traces._pieces import decode
from specsim.traces._reader import Trace
from specsim.traces._truncated import acceptance_chances

#: Bins of the acceptance probability, and of the image of the drafted tokens.
FLAG_BINS, TOKEN_BINS = 10, 16
#: Alternatives: shifts of the log-odds, or shares of coins decided beforehand.
SHIFTS, SHARES = (0.1, 0.3, 1.0, 3.0), (0.01, 0.1)


class FlagBin(NamedTuple):
    """Tested tokens with an acceptance probability from `min` to `max`: counts, and the expected range."""

    min: float
    max: float
    tested: int
    accepted: int
    expected: tuple[float, float]
    z: float  #: standard errors outside the expected range, for information


@dataclass(frozen=True, eq=False)
class LogAudit(Judged):
    """The result of `audit_log`. Base-10 logarithms of e-values decide; `flags` and `chi_square_p` inform."""

    steps: int
    lenience: float
    flags: tuple[FlagBin, ...]
    contradictions: int  #: impossible flags
    e_flags: float | None  #: None without flags
    token_counts: Ints = field(repr=False)
    chi_square_p: float
    e_tokens: float
    root: int
    listed = "flags"

    @property
    def alarm(self) -> float:
        """The base-10 logarithm of the e-value from which a test rejects."""
        return float(np.log10(2 / BUDGET))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What deviates, of the kinds "flags" and "drafted tokens"."""
        sure = f"{self.contradictions:,} reject a token with acceptance probability 1; "
        tests = (
            ("flags", self.e_flags, sure * bool(self.contradictions)),
            ("drafted tokens", self.e_tokens, ""),
        )
        found = ((kind, said + self._said(e)) for kind, e, said in tests if e is not None and e >= self.alarm)
        return tuple(Finding(kind, text) for kind, text in found)

    def _said(self, e: float) -> str:
        return f"e = 10^{e:.1f}, rejected from 10^{self.alarm:.1f}"

    @property
    def verdict(self) -> Verdict:
        """ "consistent" if no deviation was found; else "deviates", with false-alarm probability ≤ 1e-6."""
        return Verdict.DEVIATES if self.findings else Verdict.CONSISTENT

    @property
    def subject(self) -> str:
        return f"{self.steps:,} steps"

    def headline(self) -> str:
        kinds = ", ".join(finding.kind for finding in self.findings)
        return super().headline() + (f" ({kinds})" if kinds else "")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON; an infinite e-value is "inf"."""
        e_flags = "inf" if self.e_flags == np.inf else self.e_flags
        more: dict[str, Any] = {"log10_e_flags": e_flags, "log10_e_tokens": self.e_tokens}
        more |= {"findings": [finding.kind for finding in self.findings]}
        return as_dict(self, "verdict", "findings", "alarm", without=("e_flags", "e_tokens"), **more)

    def evidence(self) -> Iterator[Piece]:
        if self.e_flags is not None:
            rows = []
            for one in self.flags:
                counts = f"{one.tested:,}", f"{one.accepted:,}", span(one.expected, "{:.1f}".format)
                rows.append((f"{one.min:.1f} – {one.max:.1f}", *counts, f"{one.z:.1f}"))
            yield Table(("min(1, p/q)", "tested", "accepted", "expected", "z"), rows)

    def size(self) -> str:
        flags = "not logged" if self.e_flags is None else self._said(self.e_flags)
        return (
            f"Accept flags: {flags}. Drafted tokens: {self._said(self.e_tokens)}. The probability of a false "
            f"alarm is at most {BUDGET:g}."
        )

    def meaning(self) -> str:
        return "A log compared with itself does not show whether the target's distribution was sampled."


@checked
@shows_progress("audit", " rows")
def audit_log(
    trace: Trace, *, lenience: float = 1.0, rng: RandomSource = None, progress: ShowProgress = None
) -> LogAudit:
    """Test the accept flags and the drafted tokens of a trace against its own rows, in one pass.

    The test is for token-wise verification of chains; block and tree verification accept with other
    probabilities. docs/importing-logs.md has the method.

    Parameters
    ----------
    trace : Trace
        Of `open_trace`.
    lenience : float
        In (0, 1]; 1 is the standard rule.
    rng : int, Generator or None
        The seed of the tokens' uniforms.
    progress : bool or callable, optional
        As in `specsim.simulate`, in rows.

    Returns
    -------
    LogAudit

    Raises
    ------
    ValueError
        For a trace without drafts, or a damaged row.

    Examples
    --------
    >>> from specsim.traces import default_trace
    >>> print(audit_log(default_trace()).verdict)
    consistent
    """
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience: {lenience} is outside (0, 1]; give 1 for the standard rule")
    lenience = float(lenience)
    if trace.gamma == 0 or not trace.num_steps:
        raise ValueError(f"{trace.path}: no step has a draft; give a trace with drafted tokens")
    layout, root = trace.layout, root_of(rng)
    flags, tokens = _Flags(layout.gamma), np.zeros(TOKEN_BINS, dtype=np.int64)
    for columns, _ in trace.scan(told(progress)):
        if layout.flags:
            flags.add(columns, layout, lenience)
        tokens += _token_counts(columns, layout, key_of(root), int(columns.step[0]))
    law = np.full(TOKEN_BINS, 1 / TOKEN_BINS)
    return LogAudit(
        steps=trace.num_steps,
        lenience=lenience,
        flags=flags.bins(),
        contradictions=flags.contradictions,
        e_flags=flags.log_e() / math.log(10) if layout.flags else None,
        token_counts=tokens,
        chi_square_p=chi_square(tokens, law).p_value,
        e_tokens=log_e_value(tokens, law) / math.log(10),
        root=root,
    )


class _Flags:
    """Sums over tested tokens, by bin of their acceptance probability, and by position."""

    def __init__(self, gamma: int) -> None:
        alternatives = 2 * (len(SHIFTS) + len(SHARES))
        # tested, accepted, the least and the most that are expected, the variance, and the log ratios
        self.sums = np.zeros((FLAG_BINS, 5 + alternatives))
        self.position_logs = np.zeros((gamma, alternatives))
        self.contradictions = 0

    def add(self, columns: AnyColumns, layout: Layout, lenience: float) -> None:
        accepted = columns.accepted.reshape(-1, layout.rows_per_step)[:, :-1]
        tested = accepted >= 0
        low, high = acceptance_chances(columns, layout, lenience, TOLERANCE[DTYPES[layout.dtype]])[:, tested]
        passed = accepted[tested] == 1
        self.contradictions += int(((low == 1.0) & ~passed).sum())
        middle = (low + high) / 2
        bins = np.minimum((middle * FLAG_BINS).astype(np.int64), FLAG_BINS - 1)
        ratios = [*_log_ratios(low, high, passed)]
        for i, part in enumerate((tested[tested], passed, low, high, middle * (1 - middle), *ratios)):
            self.sums[:, i] += np.bincount(bins, part, FLAG_BINS)
        for i, part in enumerate(ratios):
            self.position_logs[:, i] += np.bincount(np.nonzero(tested)[1], part, layout.gamma)

    def log_e(self) -> float:
        """The log of the e-value: a mean over alternatives, by bin, by position, and overall."""
        if self.contradictions:
            return float("inf")
        logs = self.sums[:, 5:]
        every = np.concatenate([logs.ravel(), self.position_logs.ravel(), logs.sum(axis=0)])
        return float(scipy.special.logsumexp(every) - np.log(every.size))

    def bins(self) -> tuple[FlagBin, ...]:
        found = []
        for i in np.flatnonzero(self.sums[:, 0]).tolist():
            tested, accepted, low, high, variance = self.sums[i, :5].tolist()
            outside = accepted - min(max(accepted, low), high)
            z = outside / np.sqrt(variance) if variance > 0 else 0.0
            counts = int(tested), int(accepted), (low, high)
            found.append(FlagBin(i / FLAG_BINS, (i + 1) / FLAG_BINS, *counts, float(z)))
        return tuple(found)


def _log_ratios(low: Floats, high: Floats, passed: NDArray[np.bool_]) -> Any:
    """For each alternative the log-likelihood ratios [n] of the flags; 0 for certainties."""
    for sign, end in ((1.0, high), (-1.0, low)):
        sure = (end <= 0.0) | (end >= 1.0)
        a = np.where(sure, 0.5, end)
        odds, way = np.log(a) - np.log1p(-a), np.where(passed, 1.0, -1.0)
        for shift in SHIFTS:
            moved = odds + sign * shift
            ratio = scipy.special.log_expit(way * moved) - scipy.special.log_expit(way * odds)
            yield np.where(sure, 0.0, ratio)
        rest, own = (1 - a, a) if sign > 0 else (a, 1 - a)
        for share in SHARES:  # a share is accepted, or rejected, without a test
            ratio = np.where(way == sign, np.log1p(share * rest / own), np.log1p(-share))
            yield np.where(sure, 0.0, ratio)


def _token_counts(columns: AnyColumns, layout: Layout, key: Key, first: int) -> Ints:
    """Counts by bin of the images of the drafted tokens of whole steps, from step number `first` on."""
    stride = layout.rows_per_step
    drafted = np.arange(columns.token.size) % stride < layout.gamma
    token = columns.token[drafted][:, None]
    rows = decode(columns.q[drafted]).astype(np.float64)
    ids = getattr(columns, "q_tokens", None)
    ids = np.arange(rows.shape[1]) if ids is None else ids[drafted]
    own = (ids == token) & (ids >= 0)
    value = np.where(own, rows, 0.0).sum(axis=1)
    ahead = (rows > value[:, None]) | ((rows == value[:, None]) & (ids < token))
    above = np.where(ahead, rows, 0.0).sum(axis=1)
    total = rows.sum(axis=1)
    if layout.top is not None:
        # two less than are listed: the cells must not depend on the drafted token
        head = np.minimum(layout.top - 2, (ids >= 0).sum(axis=1) - 1)
        cells = np.pad(np.cumsum(-np.sort(-rows, axis=1), axis=1), [(0, 0), (1, 0)])
        kept = cells[np.arange(len(rows)), np.maximum(head, 0)]
        total = np.maximum(total, 1.0)
        inside = own.any(axis=1) & (ahead.sum(axis=1) < head)
        above, value = np.where(inside, above, kept), np.where(inside, value, total - kept)
    steps = columns.token.size // stride
    u = uniforms(key, int(Purpose.COUNT), first, steps, layout.gamma).T.ravel()
    image = (above + u * value) / total
    bins = np.minimum((image * TOKEN_BINS).astype(np.int64), TOKEN_BINS - 1)
    return np.bincount(bins, minlength=TOKEN_BINS)
