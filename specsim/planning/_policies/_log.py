"""A log of drafts: for each position of a text the drafted token, its features, and whether it was accepted.

Every draft-length policy can be simulated on one log, hence all with the same random numbers. docs/proofs.md
has the law of a log, and the proof that steps read from it follow standard speculative sampling."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy  # its modules, which load slowly, are loaded at their first use
from numpy.typing import NDArray

from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniform, uniforms
from specsim.core._types import Floats, Ints, TokenArray, check_count, checked, count_of
from specsim.models import Model
from specsim.models._base import check_pair, drawn_text, shared_contexts
from specsim.models._drafts.sampling import draw_siblings
from specsim.models._processed import Processed
from specsim.traces._format import reached_rows
from specsim.traces._reader import Trace

#: The values of `DraftLog.accepted`. A trace has no test of a draft at a bonus position.
ACCEPTED, REJECTED, UNKNOWN = 1, 0, -1

#: Rows of a trace that are read, and positions whose rows models compute, at a time: few, to stay in cache.
CHUNK_ROWS, CHUNK = 4096, 1024

#: Arrays of a log with one entry for each position.
PER_POSITION = ("tokens", "drafted", "accepted", "beta", "tail")


class Features(NamedTuple):
    """The draft's statistics of drafted tokens, arrays of one shape."""

    confidence: Floats  #: q(drafted token), in (0, 1]
    entropy: Floats  #: H(q) in nats
    top: Floats  #: the largest probability in q

    def part(self, chosen: slice) -> "Features":
        return Features(*(column[chosen] for column in self))


@dataclass(frozen=True, eq=False)
class DraftLog:
    """A text of N ≥ 1 positions and the draft's proposal at each; see the module for its distribution.

    `draft_log` and `log_from_trace` return it. Raises ValueError for wrong shapes, or values out of range."""

    tokens: NDArray[np.int32] = field(repr=False)  #: [N] the text; -1 where unknown
    drafted: NDArray[np.int32] = field(repr=False)  #: [N] the token drafted there; -1 likewise
    accepted: NDArray[np.int8] = field(repr=False)  #: [N] `ACCEPTED`, `REJECTED` or `UNKNOWN`
    features: Features = field(repr=False)  #: [N] of the token drafted there
    beta: Floats = field(repr=False)  #: [N] Σ min(p, q)
    tail: Ints = field(repr=False)  #: [N] the row of `tails` after a rejected token, else -1
    tails: Features = field(repr=False)  #: [R, ahead] of the tokens drafted there
    source: str = "made by hand"
    root: int | None = None  #: the seed that draws it again

    def __post_init__(self) -> None:
        n = len(self.accepted)
        if n == 0:
            raise ValueError("log: is empty; draw at least one position")
        columns: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in PER_POSITION}
        for name, column in (columns | self.features._asdict()).items():
            if np.shape(column) != (n,):
                raise ValueError(f"{name}: shape {np.shape(column)}; give [{n}], as accepted has")
        _check_range("accepted", self.accepted, UNKNOWN, ACCEPTED)
        _check_range("beta", self.beta, 0.0, 1.0)
        _check_range("tail", self.tail, -1, len(self.tails.confidence) - 1)
        if np.ndim(self.tails.confidence) != 2 or len({np.shape(column) for column in self.tails}) > 1:
            raise ValueError("tails: differ in shape; give three arrays [R, ahead]")
        tested = self.features.confidence[np.asarray(self.accepted) != UNKNOWN]
        for confidence in (tested, self.tails.confidence):
            _check_range("confidence", confidence, np.nextafter(0.0, 1.0), 1.0)
        for features in (self.features, self.tails):
            _check_range("entropy", features.entropy, 0.0, np.finfo(float).max)
            _check_range("top", features.top, np.nextafter(0.0, 1.0), 1.0)

    def __len__(self) -> int:
        return len(self.accepted)

    @property
    def ahead(self) -> int:
        """Tokens after each rejected one: steps of up to ahead + 1 tokens are never truncated."""
        return int(self.tails.confidence.shape[1])

    @property
    def alpha_context(self) -> float:
        """The mean of Σ min(p, q) over the positions of the text."""
        return float(np.mean(self.beta))

    @cached_property
    def runs(self) -> Ints:
        """[N] the number of drafted tokens that would be accepted from each position on."""
        n = len(self)
        stops = np.where(self.accepted == ACCEPTED, n, np.arange(n))
        return np.asarray(np.minimum.accumulate(stops[::-1])[::-1] - np.arange(n))

    @cached_property
    def lists(self) -> tuple[list[Any], ...]:
        """`accepted`, `runs`, `features`, `tail` and `tails`, which plain Python reads faster than arrays."""
        features, tails = ([column.tolist() for column in part] for part in (self.features, self.tails))
        return self.accepted.tolist(), self.runs.tolist(), features, self.tail.tolist(), tails

    def part(self, start: int, stop: int) -> "DraftLog":
        """The positions [start, stop) as a log; they must be a non-empty part of [0, N)."""
        if not 0 <= start < stop <= len(self):
            raise ValueError(f"part [{start}, {stop}) is empty or outside; give a part of [0, {len(self)})")
        chosen = slice(start, stop)
        return replace(
            self,
            **{name: getattr(self, name)[chosen] for name in PER_POSITION},
            features=self.features.part(chosen),
            source=f"{self.source}, positions {start} to {stop - 1}",
        )

    def split(self, share: float) -> "tuple[DraftLog, DraftLog]":
        """The first `share` of the positions, to fit policies, and the others, to compare them."""
        cut = int(share * len(self)) if 0 < share < 1 else 0
        if not 0 < cut < len(self):
            why = f"{share} of {len(self)} positions leaves one part empty"
            raise ValueError(f"share: {why}; give one such as 0.25, of a longer log")
        return self.part(0, cut), self.part(cut, len(self))


@checked
def draft_log(
    target: Model,
    draft: Model,
    tokens: int | str = 100_000,
    *,
    rng: RandomSource = None,
    ahead: int = 16,
    temperature: float = 1.0,
) -> DraftLog:
    """Draw a text of a target, and what a draft proposes at each position, to simulate draft-length policies.

    Every random number is a function of seed and position, so a longer log begins with the shorter one.

    Parameters
    ----------
    target, draft : Model
        Two models over one vocabulary; the text begins after one of their contexts.
    tokens : int or str
        Length of the text, ≥ 1.
    rng : int, Generator or None
        The seed.
    ahead : int
        Tokens kept after each rejected one, ≥ 0: the log never truncates steps of up to `ahead` + 1.
    temperature : float
        Of both models' rows, ≥ 0.

    Returns
    -------
    DraftLog

    Raises
    ------
    ValueError, TypeError
        For anything but two models over one vocabulary, or numbers out of range.

    Examples
    --------
    >>> from specsim.models import TableModel
    >>> log = draft_log(TableModel([0.5, 0.3, 0.2]), TableModel([0.2, 0.3, 0.5]), 1000, rng=1)
    >>> len(log), round(log.alpha_context, 12), log.ahead
    (1000, 0.7, 16)
    """
    check_pair(target, draft)
    tokens, ahead = count_of("tokens", tokens), check_count("ahead", ahead, 0)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature: {temperature} is not a finite number ≥ 0")
    if temperature != 1:
        target, draft = (Processed(one, temperature=temperature) for one in (target, draft))
    root, order = root_of(rng), max(target.order, draft.order)
    key, contexts = key_of(root), shared_contexts(target, draft)
    context = contexts[int(uniform(key, Purpose.CONTEXT, 0, 0) * len(contexts))]
    text = drawn_text(target, context, uniforms(key, Purpose.VERIFY, 0, tokens, 1)[0])
    parts = [_draw_part(target, draft, text, first, ahead, key) for first in range(0, tokens, CHUNK)]
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    drafted, accepted, beta = joined[:3]
    rejected = accepted == 0
    features, tails = Features(*joined[3:6]), Features(*joined[6:])
    tail = np.where(rejected, np.cumsum(rejected) - 1, -1)
    source = f"a text of {tokens:,} tokens" + f" at temperature {temperature:g}" * (temperature != 1)
    return DraftLog(text[order:], drafted, accepted, features, beta, tail, tails, source, root)


def _draw_part(
    target: Model, draft: Model, text: TokenArray, first: int, ahead: int, key: Key
) -> tuple[Any, ...]:
    """drafted, accepted, β, features [B], and those of the tails [R, ahead], from position `first` on."""
    order = max(target.order, draft.order)
    size = min(CHUNK, len(text) - order - first)
    every = np.arange(size)
    histories = text[first + every[:, None] + np.arange(order)]
    x = text[first + order : first + order + size]
    p, q = target.rows(histories), draft.rows(histories)
    drawn = uniforms(key, Purpose.DRAFT, first, size, 1 + ahead)

    accepted = uniforms(key, Purpose.VERIFY, first, size, 2)[1] * p[every, x] < q[every, x]
    lost = np.flatnonzero(~accepted)
    drafted = x.copy()
    excess = np.maximum(q[lost] - p[lost], 0.0)
    weights = np.where(excess.any(axis=1, keepdims=True), excess, q[lost])  # rounding may leave nothing
    drafted[lost] = _draw(weights, drawn[0, lost])
    tails = Features(*(np.empty((lost.size, ahead)) for _ in Features._fields))
    behind, last = histories[lost], drafted[lost]
    for k in range(ahead):
        behind = np.concatenate([behind, last[:, None]], axis=1)[:, 1 if order else 0 :]
        rows = draft.rows(behind)
        last = _draw(rows, drawn[1 + k, lost])
        for column, values in zip(tails, read_rows(rows, last), strict=True):
            column[:, k] = values
    beta = np.minimum(p, q).sum(axis=1).clip(max=1.0)
    return drafted, accepted.astype(np.int8), beta, *read_rows(q, drafted), *tails


def _draw(weights: Floats, u: Floats) -> TokenArray:
    """A token from each row of weights [B, V], with u [B]."""
    return draw_siblings("sampled", weights, u[None])[0].astype(np.int32)


def log_from_trace(trace: Trace) -> DraftLog:
    """Convert a recorded trace to a log of drafts, without tails and `UNKNOWN` at bonus positions.

    Positions 0 … τ of its steps, one after the other, become those of the log. A trace lacks the draft's
    tokens after a rejected one (`ahead` is 0), and the outcome of a draft at the bonus position. A policy
    that drafts on ends its step there, and `PolicyRun.truncated` counts such steps: in the first case their
    time is too small, in the second also their tokens per step. With few of them the log is as good as a
    drawn one. Consecutive steps must continue each other, as `specsim trace record` writes them; no step of
    a policy crosses the end of a recorded one.

    Parameters
    ----------
    trace : Trace
        With whole rows, accept flags, and q at the bonus position.

    Returns
    -------
    DraftLog

    Raises
    ------
    ValueError, TypeError
        For anything but such a trace, no step, or a damaged row.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import open_trace
    >>> from specsim.traces import writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writer(folder, vocab_size=2, gamma=1) as steps:
    ...         steps.append(context=0, tokens=[0], accepted=1, p=[[0.5, 0.5]] * 2, q=[[0.75, 0.25]] * 2)
    ...     log = log_from_trace(open_trace(folder))
    >>> len(log), log.drafted.tolist()
    (2, [0, -1])
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace: expected what open_trace returns, got {type(trace).__name__}")
    if trace.num_steps == 0:
        raise ValueError(f"{trace.path}: the trace has no step; record some")
    if trace.top is not None:
        raise ValueError(f"{trace.path}: lists {trace.top} tokens a row; record the trace with whole rows")
    if not (trace.layout.flags and trace.layout.bonus):
        missing = "q at the bonus position" if trace.layout.flags else "the accept flags"
        raise ValueError(f"{trace.path}: lacks {missing}; record them")
    outcomes = np.concatenate([shard.columns.accepted for shard in trace.shards])
    per_chunk = max(1, CHUNK_ROWS // (trace.gamma + 1))
    parts = []
    for first in range(0, trace.num_steps, per_chunk):
        steps = np.arange(first, min(first + per_chunk, trace.num_steps))
        drafted, p, q = trace.steps(steps)
        accepted = outcomes.reshape(-1, trace.gamma + 1)[steps]
        kept = reached_rows(accepted, trace.gamma + 1)
        p, q, accepted = (column[kept] for column in (p, q, accepted))
        drafted = np.pad(drafted, [(0, 0), (0, 1)], constant_values=-1)[kept]
        features = read_rows(q, drafted)
        features.confidence[accepted == UNKNOWN] = 0.0  # nothing was drafted, and the value is not used
        beta = np.minimum(p, q).sum(axis=1).clip(max=1.0)
        tokens = np.where(accepted == ACCEPTED, drafted, -1).astype(np.int32)
        parts.append((tokens, drafted, accepted, beta, *features))
    tokens, drafted, accepted, beta, *columns = (np.concatenate(c) for c in zip(*parts, strict=True))
    tail, tails = np.full(len(accepted), -1), Features(*[np.empty((0, 0))] * 3)
    source = f"trace {trace.path.name}, {trace.num_steps:,} steps of γ = {trace.gamma}"
    return DraftLog(tokens, drafted, accepted, Features(*columns), beta, tail, tails, source)


def read_rows(q: Floats, drafted: NDArray[np.int32]) -> Features:
    """The features of tokens `drafted` [B] from rows q [B, V]."""
    confidence, entropy = q[np.arange(len(q)), drafted], scipy.special.entr(q).sum(axis=1)
    # rounding may leave a row slightly above 1
    return Features(confidence.clip(max=1.0), entropy.clip(min=0.0), q.max(axis=1).clip(max=1.0))


def _check_range(name: str, values: NDArray[np.generic], low: float, high: float) -> None:
    array = np.asarray(values)
    wrong = ~((array >= low) & (array <= high))
    if wrong.any():
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        where = ", ".join(str(int(i)) for i in place)
        bounds = f"[{low:.3g}, {high:.3g}]"
        raise ValueError(f"{name}, position {where}: {array[place]} is outside {bounds}; give a value in it")
