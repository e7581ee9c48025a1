"""α of a trace by entropy, by document and along the text, with bootstrap intervals over documents.

The contexts are those of `alpha_context`: positions 0 … τ of each step; without accept flags those where
steps begin; in a text (γ = 0) all. Intervals resample whole documents, since tokens of one are correlated."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import ArrayLike, NDArray

from specsim import rules
from specsim.core._kernels import Kernel, fetch, inner_summary_kernel, kernel, summary_kernel
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import CONFIDENCE, NONE, Piece, Shown, Table, bars, row_of, span
from specsim.core._types import Floats, Ints, check_choice, check_count, checked
from specsim.models import chain
from specsim.rules import Rule
from specsim.traces._format import AnyColumns, Columns, Layout, reached_rows, rounding
from specsim.traces._pieces import AHEAD, LINE, PIECE, VALUES, bits_of, decode
from specsim.traces._reader import Trace
from specsim.traces._summary import Interval, TraceBounds, TraceSummary, bound_reach, summarise_with
from specsim.traces._truncated import acceptance_chances, drafted_probabilities

MOST_BINS = 2**16
RESAMPLES = 2000
#: The decimals of entropies that are given. Machines differ by 1e-7, since they sum in different orders.
DECIMALS = 4
ALONE = "No intervals: they need two documents, since the tokens of one document are alike."
#: Lags of the autocorrelation, and those that are shown.
LAGS, LAGS_SHOWN = range(1, 21), (1, 2, 4, 8, 16)


class Group(NamedTuple):
    """Contexts of a range of entropies in nats, or of a document (`min` is its number)."""

    min: float
    max: float
    contexts: int
    beta: Interval  #: bounds on their mean β
    tested: int  #: contexts where a drafted token was tested
    accepted: int


@dataclass(frozen=True, eq=False)
class Reading(Shown):
    """The result of `read_alpha`. `intervals` is empty for fewer than two documents."""

    entropy_of: str  #: "p" or "q"
    documents: tuple[Group, ...] = field(repr=False)
    by_entropy: tuple[Group, ...]
    intervals: dict[str, Interval]  #: {name: 95 % confidence interval over documents, its outer ends}
    #: {"acceptance" or "β": (value, number of pairs) at lags 1, 2, … within documents}, where known.
    autocorrelation: dict[str, list[tuple[float, int]]] = field(repr=False)
    root: int  #: the seed of the resampling
    confidence: ClassVar[float] = CONFIDENCE
    derived = ("confidence",)

    def parts(self) -> Iterator[Piece]:
        if self.intervals:
            number = len(self.documents)
            yield f"{CONFIDENCE:.0%} intervals, from {number:,} documents resampled (seed {self.root}):"
            names = [name.replace("_", " ").replace("alpha", "α") for name in self.intervals]
            yield Table((), [*zip(names, map(span, self.intervals.values()), strict=True)])
        else:
            yield ALONE
        rows = []
        for group, bar in zip(self.by_entropy, bars([one.beta[0] for one in self.by_entropy]), strict=True):
            known = f"{group.min:.2f} – {group.max:.2f}", f"{group.contexts:,}", span(group.beta)
            accepted = f"{group.accepted / group.tested:.4f}" if group.tested else NONE
            rows.append((*known, accepted, bar))
        yield Table((f"entropy of {self.entropy_of}", "contexts", "mean β", "accepted", ""), rows)
        if len(self.documents) > 1:  # the k-th true mean is between the k-th lower and the k-th upper bound
            ranked = list(zip(*map(sorted, zip(*(d.beta for d in self.documents), strict=True)), strict=True))
            least, median, most = (span(ranked[k]) for k in (0, len(ranked) // 2, -1))
            yield f"documents: mean β from {least} to {most}, median {median}"
        for name, values in self.autocorrelation.items():
            shown = [f"{lag}: {values[lag - 1][0]:.3f}" for lag in LAGS_SHOWN if values[lag - 1][1]]
            if shown:
                yield f"autocorrelation of {name:<10}  " + "  ".join(shown)

    def records(self) -> list[dict[str, Any]]:
        """The groups by entropy, then the documents."""
        groups = {"entropy": self.by_entropy, "document": self.documents}
        return [{"group": kind} | row_of(one) for kind, some in groups.items() for one in some]


class _Contexts(NamedTuple):
    """One entry for each context, in order."""

    document: Ints
    beta: Floats  #: [2, N]
    entropy: Floats  #: NaN where q is not known
    accepted: NDArray[np.int8]  #: 1 accepted, 0 rejected, −1 not tested
    begins: NDArray[np.bool_]  #: whether a step begins here
    tokens: Floats  #: [2, N] bounds on the tokens that the standard rule emits; none where there are flags


@checked
@shows_progress("groups", " rows")
def read_alpha(
    trace: Trace,
    *,
    entropy_of: str = "q",
    bins: int = 8,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> Reading:
    """Read α of a trace by entropy, by document and along the text, in one pass over the rows.

    Parameters
    ----------
    trace : Trace
        Of `open_trace`.
    entropy_of : {"q", "p"}
        The rows whose entropy is used; a truncated row's tail counts as one token.
    bins : int
        Bins of entropy at most, ≥ 1, with equally many contexts.
    rng : int, Generator or None
        The seed of the bootstrap over documents.
    progress : bool or callable, optional
        As in `specsim.simulate`, in rows.

    Returns
    -------
    Reading

    Raises
    ------
    ValueError
        For a damaged row, no step, or arguments out of range.

    Examples
    --------
    >>> from specsim.traces import default_trace
    >>> len(read_alpha(default_trace(), bins=4).by_entropy)
    4
    """
    return summarise_and_read(trace, entropy_of=entropy_of, bins=bins, rng=rng, progress=progress)[1]


@shows_progress("summarise", " rows")
def summarise_and_read(
    trace: Trace,
    *,
    skip_damaged: bool = False,
    entropy_of: str = "q",
    bins: int = 8,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> tuple[TraceSummary | TraceBounds, Reading]:
    """The results of `summarise` and `read_alpha`, in one pass over the rows without skipped shards."""
    check_choice("entropy_of", entropy_of, ("p", "q"))
    check_count("bins", bins, most=MOST_BINS)

    def contexts(columns: AnyColumns, beta: Floats) -> _Contexts:
        return _contexts(columns, beta, trace.layout, entropy_of)

    summary, parts = summarise_with(trace, contexts, skip_damaged, told(progress))
    found = _Contexts(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))
    slack, root = rounding(trace.layout), root_of(rng)
    begins = np.flatnonzero(np.diff(found.document, prepend=~found.document[:1]))  # of runs of a document
    names, document = np.unique(found.document[begins], return_inverse=True)
    with ThreadPoolExecutor(1) as pool:  # drawing takes as long as all the rest
        draws = pool.submit(document_draws, len(names), root)
        document = np.repeat(document, np.diff(begins, append=found.document.size))
        sums = _sums(found, document, len(names))
        return summary, Reading(
            entropy_of=entropy_of,
            documents=_groups(sums, names, names, slack),
            by_entropy=_by_entropy(found, bins, slack),
            autocorrelation=_correlations(found, trace.layout),
            intervals=_intervals(sums, draws.result(), trace.layout, slack) if len(names) > 1 else {},
            root=root,
        )


def _contexts(columns: AnyColumns, beta: Floats, layout: Layout, entropy_of: str) -> _Contexts:
    stride = layout.rows_per_step
    if layout.flags:
        reached, tokens = reached_rows(columns.accepted, stride), np.empty((2, 0))
    else:
        reached, chances = columns.position == 0, acceptance_chances(columns, layout)
        tokens = 1.0 + bound_reach(chances, beta.reshape(2, -1, stride)).sum(axis=2)
    rows = np.flatnonzero(reached)
    position, entropy = columns.position[rows], entropies(columns, entropy_of, rows)
    if not layout.bonus and entropy_of == "q":
        entropy[position == layout.gamma] = np.nan
    known = columns.context[rows], beta[:, rows], entropy, columns.accepted[rows]
    return _Contexts(*known, position == 0, tokens)


def _sums(found: _Contexts, belongs: Ints, size: int) -> Floats:
    """[8, size] sums, see `_add`, over the contexts that belong to 0, 1, … size - 1, or to none, -1."""
    sums = np.zeros((8, size + 1))  # the last is for none
    _add(belongs, found.beta, found.accepted, found.begins, found.tokens, sums)
    return sums[:, :-1]


@kernel
def _add(belongs, beta, accepted, begins, tokens, sums):  # type: ignore[no-untyped-def]
    """Add to `sums`: contexts, those that were tested, that were accepted, that begin a step; β; tokens."""
    for t in range(belongs.size):
        k = belongs[t]
        sums[0, k] += 1
        sums[1, k] += accepted[t] >= 0
        sums[2, k] += accepted[t] == 1
        sums[3, k] += begins[t]
        for end in range(2):
            sums[4 + end, k] += beta[end, t]
            if tokens.size:
                sums[6 + end, k] += tokens[end, t]


def _groups(sums: Floats, least: Any, most: Any, slack: float) -> tuple[Group, ...]:
    """A group for each column of `sums`, see `_add`; empty groups are omitted."""
    found_groups = []
    for i in np.flatnonzero(sums[0]):
        contexts, tested, accepted, _, low, high, *_ = sums[:, i].tolist()
        beta = max(0.0, low / contexts - slack), min(1.0, high / contexts + slack)
        counts = int(contexts), beta, int(tested), int(accepted)
        found_groups.append(Group(least[i].item(), most[i].item(), *counts))
    return tuple(found_groups)


def _by_entropy(found: _Contexts, bins: int, slack: float) -> tuple[Group, ...]:
    known = found.entropy[np.isfinite(found.entropy)]
    if not known.size:
        return ()
    edges = np.quantile(known, np.linspace(0.0, 1.0, bins + 1))
    belongs = np.searchsorted(edges[1:-1], found.entropy, side="right")
    belongs[~np.isfinite(found.entropy)] = -1
    ends = edges.round(DECIMALS)
    return _groups(_sums(found, belongs, bins), ends[:-1], ends[1:], slack)


def document_draws(documents: int, root: int) -> Floats:
    """[`RESAMPLES`, D] the counts of each of D `documents` in resamples with replacement."""
    drawn = np.random.default_rng(root).integers(documents, size=(RESAMPLES, documents))
    drawn += documents * np.arange(RESAMPLES)[:, None]  # each resample has counts of its own
    drawn = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return drawn.astype(np.float64)  # once, for the products


def outer_quantiles(draws: Floats, low: Any, high: Any, below: Any) -> Interval:
    """Outer quantiles of a ratio of sums [D] over documents: `low` and `high` bound the numerator."""
    base, tail = draws @ below, (1 - CONFIDENCE) / 2
    least, most = np.quantile((draws @ low) / base, tail), np.quantile((draws @ high) / base, 1 - tail)
    return float(least), float(most)


def _intervals(sums: Floats, draws: Floats, layout: Layout, slack: float) -> dict[str, Interval]:
    """Bootstrap intervals of ratios of sums over documents."""
    contexts, tested, accepted, begins, low, high, *tokens = sums
    low, high = outer_quantiles(draws, low, high, contexts)
    intervals = {"alpha_context": (max(0.0, low - slack), min(1.0, high + slack))}
    if layout.flags:
        intervals["alpha_verified"] = outer_quantiles(draws, accepted, accepted, tested)
        intervals["alpha_drafted"] = outer_quantiles(draws, accepted, accepted, begins * layout.gamma)
        intervals["tokens_per_step"] = outer_quantiles(draws, accepted + begins, accepted + begins, begins)
    elif layout.gamma:
        low, high = outer_quantiles(draws, tokens[0], tokens[1], begins)
        intervals["expected_tokens"] = (low - layout.gamma * slack, high + layout.gamma * slack)
    return intervals


def _correlations(found: _Contexts, layout: Layout) -> dict[str, list[tuple[float, int]]]:
    series: dict[str, Floats] = {}
    if layout.flags:
        series["acceptance"] = np.where(found.accepted >= 0, found.accepted, np.nan)
    if layout.top is None and (layout.flags or layout.gamma == 0):
        series["β"] = np.where(found.beta[0] == found.beta[1], found.beta[0], np.nan)
    return {name: grouped_autocorrelation(values, found.document, LAGS) for name, values in series.items()}


def grouped_autocorrelation(
    series: ArrayLike, groups: ArrayLike, lags: Iterable[int]
) -> list[tuple[float, int]]:
    """Autocorrelation of several series, joined in `series` [N] and labelled by `groups` [N]; NaN is unknown.
    For each lag: the mean of x_t x_{t+k} over the pairs within a group, relative to the mean of x_t² (0
    without pairs), and the number of pairs."""
    x, belongs = np.asarray(series, dtype=np.float64), np.asarray(groups)
    known = np.isfinite(x)
    x = np.where(known, x - (x[known].mean() if known.any() else 0.0), 0.0)
    sums = [_sum_pairs(x, known, belongs, lag) for lag in (0, *lags)]
    scale, *means = (total / max(1, pairs) for total, pairs in sums)
    return [(mean / (scale or 1.0), pairs) for mean, (_, pairs) in zip(means, sums[1:], strict=True)]


@summary_kernel
def _sum_pairs(x, known, belongs, lag):  # type: ignore[no-untyped-def]
    total = 0.0
    pairs = 0
    later, known_later, belongs_later = x[lag:], known[lag:], belongs[lag:]
    for t in range(later.size):  # without a branch, to be vectorised
        both = known[t] & known_later[t] & (belongs[t] == belongs_later[t])
        total += x[t] * later[t] if both else 0.0
        pairs += both
    return total, pairs


# The entropy of rows in nats, at about the speed at which they are read. Of a number x = 2^e·m, m from √½ to
# √2, ln x is e ln 2 + ln m, and ln m is t = m - 1 times a polynomial of t, off by 1e-7 times itself at most.
# Pieces of rows are summed in float32. So entropies are off by about 1e-7 times themselves, far less than by
# what storing a row in float16 changes.

ROOT_HALF = np.float32(0.5**0.5).view(np.uint32)
EXPONENT = np.uint32(0xFF800000)  #: the bits of the exponent
UNIT_LN2 = np.float32(np.log(2.0) / 2**23)
#: The polynomial's coefficients, from t^0 on.
SERIES = tuple(
    Chebyshev.interpolate(lambda t: np.log1p(t) / t, 8, [0.5**0.5 - 1, 2**0.5 - 1])
    .convert(kind=Polynomial)
    .coef.astype(np.float32)
)


def entropies(columns: AnyColumns, of: str, chosen: Ints) -> Floats:
    """The entropy of the rows `chosen` of p or of q; a truncated row's tail counts as one token."""
    rows = columns.p if of == "p" else columns.q
    if not isinstance(columns, Columns):
        listed = decode(rows[chosen]).astype(np.float64)
        found = scipy.special.entr(listed).sum(axis=1)
        return np.asarray(found + scipy.special.entr(np.maximum(0.0, 1.0 - listed.sum(axis=1))))
    found = np.empty(chosen.size)
    with np.errstate(over="ignore"):  # kernels in plain Python warn of modular arithmetic
        _ENTROPIES[rows.dtype.name](bits_of(rows), chosen, found)
    return np.maximum(found, 0.0)


@inner_summary_kernel
def _logarithm(x):  # type: ignore[no-untyped-def]
    # zero, and a subnormal number, get some finite logarithm: their share is below 1e-36
    word = np.float32(x).view(np.uint32)
    exponent = np.uint32(np.uint32(word - ROOT_HALF) & EXPONENT)
    t = np.uint32(word - exponent).view(np.float32) - np.float32(1)
    a, b, c, d, e, f, g, h, i = SERIES
    series = a + t * (b + t * (c + t * (d + t * (e + t * (f + t * (g + t * (h + t * i)))))))
    return np.float32(exponent.view(np.int32)) * UNIT_LN2 + t * series


def _make_entropies(value: Kernel) -> Kernel:
    def sum_piece(words):  # type: ignore[no-untyped-def]
        total = np.float32(0)
        for i in range(words.size):
            x = value(words[i])
            total -= x * _logarithm(x)
        return np.float64(total)

    piece = inner_summary_kernel(sum_piece)

    def sum_rows(words, places, found):  # type: ignore[no-untyped-def]
        for k in range(places.size):
            row, total = words[places[k]], 0.0
            for first in range(0, row.size, PIECE):
                part = row[first : first + PIECE]
                for i in range(0, part.size, LINE):
                    fetch(part, AHEAD + i)
                total += piece(part)
            found[k] = total

    return summary_kernel(sum_rows)


_ENTROPIES = {name: _make_entropies(value) for name, value in VALUES.items()}


# Expected tokens per step of a rule along a log, from the drafted tokens' own probabilities alone.
# docs/importing-logs.md has the method under "Other rules, and policies". `TraceBounds` has β in place of the
# standard rule's last R: it does not vary with the drafted token, but its bounds widen with the tail.


@dataclass(frozen=True, eq=False)
class ExpectedTokens(Shown):
    """The result of `expect_tokens`. Row g - 1 of an array with γ rows is for steps with g drafted tokens."""

    rule: str
    vocab_size: int
    gamma: int
    dtype: str
    top: int | None  #: the k of truncated rows
    steps: int
    documents: int
    expected_tokens: Floats  #: [γ, 2] bounds on the mean over the log's steps, without sampling error
    intervals: Floats | None  #: [γ, 2] 95 % confidence, around both bounds; None for fewer than two documents
    root: int  #: the seed of the resampling
    confidence: ClassVar[float] = CONFIDENCE
    derived = ("confidence",)

    def parts(self) -> Iterator[Piece]:
        kept = "" if self.top is None else f", the top {self.top}"
        yield f"rule {self.rule}: {self.steps:,} steps, V = {self.vocab_size:,}{kept}, stored {self.dtype}"
        columns, note = {"tokens per step": self.expected_tokens}, ALONE
        if self.intervals is not None:
            columns[f"{CONFIDENCE:.0%} interval"] = self.intervals
            note = f"{CONFIDENCE:.0%} intervals: {self.documents:,} documents resampled (seed {self.root})"
        shown = ([span(ends, "{:.5f}".format) for ends in column] for column in columns.values())
        yield Table(("γ", *columns), [(i, *row) for i, row in enumerate(zip(*shown, strict=True), 1)])
        yield note

    def records(self) -> list[dict[str, Any]]:
        """A row for each γ."""
        bounds = enumerate(self.expected_tokens.tolist(), 1)
        return [{"gamma": gamma, "low": low, "high": high} for gamma, (low, high) in bounds]


@checked
@shows_progress("bounds", " rows")
def expect_tokens(
    trace: Trace, rule: str | Rule = "standard", *, rng: RandomSource = None, progress: ShowProgress = None
) -> ExpectedTokens:
    """Bound the tokens per step of a rule along a trace, with 1, 2, … γ drafted tokens, in one pass.

    Parameters
    ----------
    trace : Trace
        With truncated rows, or whole ones, for which the bounds differ by rounding alone.
    rule : str or Rule
        A rule for chains with a `survival` function.
    rng : int, Generator or None
        The seed of the bootstrap over documents.
    progress : bool or callable, optional
        As in `specsim.simulate`, in rows.

    Returns
    -------
    ExpectedTokens

    Raises
    ------
    ValueError
        For a rule without a `survival`, a trace without drafts or steps, or a damaged row.

    Examples
    --------
    >>> from specsim.traces import default_trace
    >>> expect_tokens(default_trace(), "block").expected_tokens.round(2)
    array([[1.34, 1.34], [1.51, 1.51], [1.6 , 1.6 ], [1.66, 1.66]])
    """
    chosen = rules.get(rule)
    chosen.check(chain(1))
    if chosen.survival is None:
        able = ", ".join(name for name in rules.names() if rules.get(name).survival)
        raise ValueError(f"rule: {chosen.name} needs whole rows of p and q; give one of {able}")
    if not (trace.gamma and trace.num_steps):
        raise ValueError(f"{trace.path}: no step has a draft; give a trace with drafted tokens")
    parts = [_by_document(columns, trace.layout, chosen) for columns, _ in trace.scan(told(progress))]
    found, steps, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    names, document = np.unique(found, return_inverse=True)
    steps, sums = _sum_by_group(steps, document, len(names)), _sum_by_group(sums, document, len(names))
    root = root_of(rng)
    intervals = None
    if len(names) > 1:
        draws = document_draws(len(names), root)
        by_gamma = sums.transpose(2, 1, 0)
        intervals = np.array([outer_quantiles(draws, low, high, steps) for low, high in by_gamma])
    return ExpectedTokens(
        rule=str(chosen),
        vocab_size=trace.vocab_size,
        gamma=trace.gamma,
        dtype=trace.dtype,
        top=trace.top,
        steps=trace.num_steps,
        documents=len(names),
        expected_tokens=(sums.sum(axis=0) / trace.num_steps).T,
        intervals=intervals,
        root=root,
    )


def _by_document(columns: AnyColumns, layout: Layout, rule: Rule) -> tuple[Ints, Ints, Floats]:
    """Documents [D], their numbers of steps, and sums [D, 2, γ] of bounds on the tokens emitted."""
    assert rule.survival is not None
    p, q = (ends.clip(max=1.0) for ends in drafted_probabilities(columns, layout))
    reached = [rule.survival(p[0], q[1], **rule.values), rule.survival(p[1], q[0], **rule.values)]
    tokens = 1.0 + np.cumsum(np.stack(reached, axis=1), axis=2)
    documents = columns.context[:: layout.rows_per_step]
    names, document, steps = np.unique(documents, return_inverse=True, return_counts=True)
    return names, steps, _sum_by_group(tokens, document, len(names))


def _sum_by_group(values: Any, belongs: Ints, size: int) -> Any:
    """The sums of the values [N, …] that belong to 0 … size - 1."""
    sums = np.zeros((size, *values.shape[1:]), values.dtype)
    np.add.at(sums, belongs, values)
    return sums
