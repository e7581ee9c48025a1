"""Where α of a trace comes from: by entropy, by document, along the text; and how sure it is, documents being alike inside.

Counted are the contexts that `alpha_context` is the mean over: positions 0 … τ of each step; without accept flags those
where steps begin; in a text (γ = 0) all. Intervals resample whole documents (the block bootstrap over the `context`
column): tokens of one document are alike, and so are its steps, and treating them as independent would promise too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from specsim.core._autocorrelation import grouped_autocorrelation
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import NONE, Piece, Shown, Table, as_dict, bars, span
from specsim.core.distributions import Floats, Ints
from specsim.traces._checksums import decode
from specsim.traces._format import AnyColumns, Columns, Layout, rounding
from specsim.traces._reader import Progress, Trace
from specsim.traces._summary import Interval
from specsim.traces._token_probabilities import acceptance_chances

#: Two-sided confidence of the intervals.
CONFIDENCE = 0.95
RESAMPLES = 2000
LAGS = range(1, 21)
#: Lags of the autocorrelation that are shown.
LAGS_SHOWN = (1, 2, 4, 8, 16)


class Group(NamedTuple):
    """Contexts that have something in common: a range of entropies in nats, or a document (`least` is its number)."""

    least: float
    most: float
    contexts: int
    beta: Interval  #: bounds on their mean β
    tested: int  #: those at which a drafted token was tested, and how many of these passed
    accepted: int


@dataclass(frozen=True, eq=False)
class Reading(Shown):
    """What `read_alpha` found.

    `intervals` has, by name, a confidence interval for the mean over documents like these; of what is itself an interval
    the outer ends. It is empty where there are fewer than two documents. `autocorrelation` has for "acceptance" and for
    "β", where they are known, pairs (value, number of pairs) for lags 1, 2, … within documents.
    """

    entropy_of: str
    documents: tuple[Group, ...] = field(repr=False)
    by_entropy: tuple[Group, ...]
    intervals: dict[str, Interval]
    autocorrelation: dict[str, list[tuple[float, int]]] = field(repr=False)
    root: int  #: of the resampling

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self, confidence=CONFIDENCE)

    def parts(self) -> Iterator[Piece]:
        if self.intervals:
            yield f"{CONFIDENCE:.0%} intervals, from {len(self.documents):,} documents resampled (seed {self.root}):"
            yield Table(
                (),
                [
                    (name.replace("_", " ").replace("alpha", "α"), span(ends))
                    for name, ends in self.intervals.items()
                ],
            )
        else:
            yield "one document: no intervals; they need two or more, since the tokens of one document are alike"
        rows = [
            (
                f"{group.least:.2f} – {group.most:.2f}",
                f"{group.contexts:,}",
                span(group.beta),
                f"{group.accepted / group.tested:.4f}" if group.tested else NONE,
                bar,
            )
            for group, bar in zip(
                self.by_entropy, bars([group.beta[0] for group in self.by_entropy]), strict=True
            )
        ]
        yield Table((f"entropy of {self.entropy_of}", "contexts", "mean β", "accepted", ""), rows)
        if (
            len(self.documents) > 1
        ):  # the k-th of the true means lies between the k-th lower and the k-th upper bound
            ranked = list(zip(*map(sorted, zip(*(d.beta for d in self.documents), strict=True)), strict=True))
            least, median, most = (span(ranked[k]) for k in (0, len(ranked) // 2, -1))
            yield f"documents: mean β from {least} to {most}, median {median}"
        for name, values in self.autocorrelation.items():
            shown = [f"{lag}: {values[lag - 1][0]:.3f}" for lag in LAGS_SHOWN if values[lag - 1][1]]
            if shown:
                yield f"autocorrelation of {name:<10}  " + "  ".join(shown)

    def records(self) -> list[dict[str, Any]]:
        """The groups by entropy, then the documents."""
        return [
            {"group": kind, **{k: v for k, v in group._asdict().items() if k != "beta"}}
            | {"beta_low": group.beta[0], "beta_high": group.beta[1]}
            for kind, groups in (("entropy", self.by_entropy), ("document", self.documents))
            for group in groups
        ]


def read_alpha(
    trace: Trace,
    *,
    entropy_of: str = "q",
    bins: int = 8,
    rng: RandomSource = 0,
    progress: Progress | None = None,
) -> Reading:
    """Read α of `trace` by the entropy of "q" or "p" in up to `bins` bins of as many contexts each, by document, and
    along the text, with intervals by a bootstrap over documents drawn with `rng`; one pass over the rows.

    The entropy of a truncated row is that of its listed tokens and of the tail taken as one. Raises ValueError for a
    damaged row, no step, or arguments out of range.
    """
    if entropy_of not in ("p", "q"):
        raise ValueError(f"entropy_of: {entropy_of!r} is neither 'p' nor 'q'")
    if bins < 1:
        raise ValueError(f"bins: {bins} is less than 1")
    if not trace.num_steps:
        raise ValueError(f"{trace.path}: no step to read")
    found = _Contexts(
        *(np.concatenate(parts, axis=-1) for parts in zip(*_parts(trace, entropy_of, progress), strict=True))
    )
    slack = rounding(trace.layout)
    names, document = np.unique(found.document, return_inverse=True)
    root = root_of(rng)
    return Reading(
        entropy_of=entropy_of,
        documents=_groups(found, document, names, names, slack),
        by_entropy=_by_entropy(found, bins, slack),
        intervals=_intervals(found, document, trace.layout, root, slack) if len(names) > 1 else {},
        autocorrelation=_correlations(found, trace.layout),
        root=root,
    )


class _Contexts(NamedTuple):
    """One entry for each context, in order."""

    document: Ints
    beta: Floats  #: [2, N]
    entropy: Floats  #: NaN where q is not known
    passed: Floats  #: 1 accepted, 0 rejected, NaN not tested
    begins: NDArray[np.bool_]  #: whether a step begins here
    tokens: Floats  #: [2, N] where a step begins, bounds on the tokens that the standard rule emits; else 0


def _parts(trace: Trace, entropy_of: str, progress: Progress | None) -> Any:
    layout, done = trace.layout, 0
    for shard in trace.shards:
        for columns, beta in shard.scan():
            yield _contexts(columns, beta, layout, entropy_of)
            done += columns.step.size
            if progress is not None:
                progress(done, trace.num_rows)


def _contexts(columns: AnyColumns, beta: Floats, layout: Layout, entropy_of: str) -> _Contexts:
    stride = layout.rows_per_step
    accepted = columns.accepted.reshape(-1, stride)
    begins = np.zeros(accepted.shape, dtype=bool)
    begins[:, 0] = True
    if layout.flags:  # up to the first that was not accepted, and that one
        passed = np.pad(accepted[:, :-1] == 1, [(0, 0), (1, 0)], constant_values=True)
        reached = np.cumprod(passed, axis=1).astype(bool)
    else:
        reached = begins
    chances = acceptance_chances(columns, layout)
    before = np.cumprod(chances, axis=2)
    before = np.concatenate([np.ones_like(before[..., :1]), before], axis=2)[..., : chances.shape[2]]
    tokens = np.zeros((2, *accepted.shape))
    tokens[..., 0] = 1.0 + (before * beta.reshape(2, -1, stride)[..., :-1]).sum(axis=2)
    entropy = _entropies(columns, entropy_of).reshape(-1, stride)
    if not layout.bonus and entropy_of == "q":
        entropy[:, -1] = np.nan
    return _Contexts(
        document=columns.context.reshape(-1, stride)[reached],
        beta=beta.reshape(2, -1, stride)[:, reached],
        entropy=entropy[reached],
        passed=np.where(accepted >= 0, accepted, np.nan)[reached],
        begins=begins[reached],
        tokens=tokens[:, reached],
    )


def _entropies(columns: AnyColumns, of: str) -> Floats:
    rows = decode(columns.p if of == "p" else columns.q).astype(np.float64)
    entropy = special.entr(rows).sum(axis=1)
    if not isinstance(columns, Columns):
        entropy += special.entr(np.maximum(0.0, 1.0 - rows.sum(axis=1)))
    return np.maximum(entropy, 0.0)


def _groups(found: _Contexts, belongs: Ints, least: Any, most: Any, slack: float) -> tuple[Group, ...]:
    """The groups 0, 1, … that contexts belong to, -1 for none; empty ones are left out."""
    inside = belongs >= 0
    size = len(least)

    def total(values: Any) -> Floats:
        sums: Floats = np.bincount(belongs[inside], np.asarray(values, np.float64)[inside], size).astype(
            np.float64
        )
        return sums

    contexts = total(np.ones(len(belongs)))
    tested, accepted = total(np.isfinite(found.passed)), total(found.passed == 1)
    low, high = (total(end) / np.maximum(contexts, 1) for end in found.beta)
    return tuple(
        Group(
            least[i].item(),
            most[i].item(),
            int(contexts[i]),
            (max(0.0, float(low[i]) - slack), min(1.0, float(high[i]) + slack)),
            int(tested[i]),
            int(accepted[i]),
        )
        for i in np.flatnonzero(contexts)
    )


def _by_entropy(found: _Contexts, bins: int, slack: float) -> tuple[Group, ...]:
    known = found.entropy[np.isfinite(found.entropy)]
    if not known.size:
        return ()
    edges = np.quantile(known, np.linspace(0.0, 1.0, bins + 1))
    belongs = np.searchsorted(edges[1:-1], found.entropy, side="right")
    belongs[~np.isfinite(found.entropy)] = -1
    return _groups(found, belongs, edges[:-1], edges[1:], slack)


def document_draws(documents: int, root: int) -> Ints:
    """[`RESAMPLES`, D] how often each of D `documents` comes when as many are drawn again, with replacement."""
    return np.random.default_rng(root).multinomial(documents, np.full(documents, 1 / documents), RESAMPLES)


def outer_quantiles(draws: Ints, low: Any, high: Any, below: Any) -> Interval:
    """The interval of the ratio above / below, from sums [D] over documents and `document_draws`; `above` is between `low`
    and `high`, and the outer quantiles are taken.
    """
    base, tail = draws @ below, (1 - CONFIDENCE) / 2
    return (
        float(np.quantile((draws @ low) / base, tail)),
        float(np.quantile((draws @ high) / base, 1 - tail)),
    )


def _intervals(
    found: _Contexts, document: Ints, layout: Layout, root: int, slack: float
) -> dict[str, Interval]:
    """Ratios of sums over documents that are drawn again, as many as there are, with replacement."""
    size = int(document.max()) + 1
    draws = document_draws(size, root)

    def ratio(above: Any, below: Any) -> Interval:
        """The outer quantiles of above / below; `above` may have two ends."""
        *ends, base = (np.bincount(document, values, size) for values in (*np.atleast_2d(above), below))
        return outer_quantiles(draws, ends[0], ends[-1], base)

    tested, accepted = np.isfinite(found.passed), found.passed == 1
    low, high = ratio(found.beta, np.ones(document.size))
    intervals = {"alpha_context": (max(0.0, low - slack), min(1.0, high + slack))}
    if layout.flags:
        begins = found.begins.astype(np.float64)
        intervals["alpha_verified"] = ratio(accepted, tested)
        intervals["alpha_drafted"] = ratio(accepted, begins * layout.gamma)
        intervals["tokens_per_step"] = ratio(accepted + begins, begins)
    elif layout.gamma:
        low, high = ratio(found.tokens, found.begins)
        intervals["expected_tokens"] = (low - layout.gamma * slack, high + layout.gamma * slack)
    return intervals


def _correlations(found: _Contexts, layout: Layout) -> dict[str, list[tuple[float, int]]]:
    series: dict[str, Floats] = {}
    if layout.flags:
        series["acceptance"] = found.passed
    if layout.top is None and (layout.flags or layout.gamma == 0):
        width = found.beta[1] - found.beta[0]
        series["β"] = np.where(width == 0, found.beta[0], np.nan)
    return {name: grouped_autocorrelation(values, found.document, LAGS) for name, values in series.items()}
