"""Expected tokens per step of a rule along a log, from the drafted tokens' own probabilities alone.

docs/importing-logs.md has the method under "Other rules, and policies". `TraceBounds` has β in place of the
standard rule's last R: it does not vary with the drafted token, but its bounds widen with the tail."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specsim import rules
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import CONFIDENCE, Piece, Shown, Table, span
from specsim.core._types import Floats, Ints, checked
from specsim.models import chain
from specsim.rules import Rule
from specsim.traces._analysis import ALONE, document_draws, outer_quantiles
from specsim.traces._format import AnyColumns, Layout
from specsim.traces._reader import Trace
from specsim.traces._truncated import drafted_probabilities


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
