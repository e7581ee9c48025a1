"""How many tokens a rule would emit along a log, from the drafted tokens' own probabilities: no whole rows are needed.

A rule with a `survival` (see `specsim.rules.Rule`) accepts at least i of the drafted tokens x_1, x_2, … with a probability
R_i that p(x_j) and q(x_j), j ≤ i, tell. So with the first γ of them a step emits 1 + R_1 + … + R_γ tokens, in expectation
over drafts sampled from q; rules that never look at q take any drafts. R rises with p and falls with q: where rows are
truncated and these are known within bounds, the ends of R are those at the lowest p and highest q, and the reverse.

All rules are taken along the same drafts, so that their differences are surer than they are. `TraceBounds` has the
standard rule with β in the place of the last R: that does not vary with which token was drafted, but it takes all of
both rows, and is known the less, the fewer tokens are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim import rules
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Piece, Shown, Table, as_dict, span
from specsim.core.distributions import Floats, Ints
from specsim.drafts import chain
from specsim.rules import Rule
from specsim.traces._analysis import CONFIDENCE, document_draws, outer_quantiles
from specsim.traces._format import AnyColumns, Layout
from specsim.traces._reader import Progress, Trace
from specsim.traces._token_probabilities import drafted_probabilities


@dataclass(frozen=True, eq=False)
class ExpectedTokens(Shown):
    """What `expect_tokens` found. Row γ - 1 of what has γ rows is about steps with γ drafted tokens.

    `expected_tokens` holds the mean over the log's steps for every full row that the logged ones may be part of, and knows
    nothing of sampling; `intervals` is the confidence interval for the mean over documents like these, around both ends.
    """

    rule: str
    vocab_size: int
    gamma: int
    dtype: str
    top: int | None  #: the k of truncated rows
    steps: int
    documents: int
    expected_tokens: Floats  #: [γ, 2]
    intervals: Floats | None  #: [γ, 2]; None where there are fewer than two documents
    root: int  #: of the resampling

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self, confidence=CONFIDENCE)

    def parts(self) -> Iterator[Piece]:
        kept = "" if self.top is None else f", the top {self.top}"
        yield f"rule {self.rule}: {self.steps:,} steps, V = {self.vocab_size:,}{kept}, stored {self.dtype}"
        names = ("γ", "tokens per step") + (
            (f"{CONFIDENCE:.0%} interval",) if self.intervals is not None else ()
        )
        columns = [self.expected_tokens] + ([] if self.intervals is None else [self.intervals])
        yield Table(
            names,
            [
                (i, *(span(ends, "{:.5f}".format) for ends in row))
                for i, row in enumerate(zip(*columns, strict=True), 1)
            ],
        )
        yield (
            "one document: no intervals; they need two or more, since the tokens of one document are alike"
            if self.intervals is None
            else f"{CONFIDENCE:.0%} intervals: {self.documents:,} documents resampled (seed {self.root})"
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for each γ."""
        return [
            {"gamma": gamma, "low": low, "high": high}
            for gamma, (low, high) in enumerate(self.expected_tokens.tolist(), 1)
        ]


def expect_tokens(
    trace: Trace,
    rule: str | Rule = "standard",
    *,
    rng: RandomSource = 0,
    progress: Progress | None = None,
) -> ExpectedTokens:
    """Bound the tokens that a step of `rule` emits along `trace`, with 1, 2, … γ drafted tokens; one pass over the rows.

    Truncated rows or whole ones, which leave no more than rounding open. `rng` draws documents again for the intervals.
    Raises ValueError for a rule of several drafts, or without `survival`, naming those that have one; for a trace in which
    nothing was drafted, or of no step; for a damaged row.

    >>> from specsim.traces import default_trace
    >>> expect_tokens(default_trace(), "block").expected_tokens.round(2)
    array([[1.34, 1.34], [1.51, 1.51], [1.6 , 1.6 ], [1.66, 1.66]])
    """
    chosen = rules.get(rule)
    chosen.check(chain(1))
    if chosen.survival is None:
        able = [name for name in rules.names() if rules.get(name).survival]
        raise ValueError(
            f"rule: {chosen.name} needs whole rows of p and q; the drafted tokens' own probabilities are enough for "
            + ", ".join(able)
        )
    if not trace.gamma:
        raise ValueError(f"{trace.path}: nothing was drafted, so that there is nothing to accept")
    if not trace.num_steps:
        raise ValueError(f"{trace.path}: no step to read")
    parts, done = [], 0
    for shard in trace.shards:
        for columns, _ in shard.scan():
            parts.append(_by_document(columns, trace.layout, chosen))
            done += columns.step.size
            if progress is not None:
                progress(done, trace.num_rows)
    found, steps, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    names, document = np.unique(found, return_inverse=True)
    steps, sums = _summed(steps, document, len(names)), _summed(sums, document, len(names))
    root = root_of(rng)
    intervals = None
    if len(names) > 1:
        draws = document_draws(len(names), root)
        intervals = np.array(
            [outer_quantiles(draws, low, high, steps) for low, high in sums.transpose(2, 1, 0)]
        )
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
    """Documents [D], how many of the steps are theirs, and the sums [D, 2, γ] of bounds on what these emit."""
    assert rule.survival is not None
    p, q = (ends.clip(max=1.0) for ends in drafted_probabilities(columns, layout))
    reached = [rule.survival(p[0], q[1], **rule.values), rule.survival(p[1], q[0], **rule.values)]
    tokens = 1.0 + np.cumsum(np.stack(reached, axis=1), axis=2)
    names, document, steps = np.unique(
        columns.context[:: layout.rows_per_step], return_inverse=True, return_counts=True
    )
    return names, steps, _summed(tokens, document, len(names))


def _summed(values: Any, belongs: Ints, size: int) -> Any:
    """The sums of the values [N, …] that belong to 0 … size - 1."""
    sums = np.zeros((size, *values.shape[1:]), values.dtype)
    np.add.at(sums, belongs, values)
    return sums
