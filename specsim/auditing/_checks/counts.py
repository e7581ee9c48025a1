"""The counts of an audit.

*Prefix tables*: how often each token followed each emitted prefix, for the first positions of a step, while
V^position ≤ 512. *PIT bins*, at every position: the emitted token is mapped through the target's CDF to a
number that is uniform under exactness, F(x-) + v·P(x), v a fresh uniform (the randomised probability integral
transform). Tokens are ordered by p/q, along which verification errors move mass, and counted in 16 bins;
ordered by p itself, the same gives bins for the *tail* of rare tokens. *Ids*: of a pair with many tokens,
which has one law at all positions, how often each token was emitted. *Impossible* tokens, P(x) = 0, are
kept one by one. Prefix tables, PIT and tail bins are counted a second time of the tokens that *end* a step:
all others are accepted ones. *Neighbours*: the quarters of the PIT that the first tokens of two steps fall
into, for steps side by side in one call and for steps at the same place of two calls; each pair of quarters
is equally likely if steps are independent. *Calls*: sums over calls of the first token's counts by bin, and
of their squares, which tell how much calls differ.

Where a case relabels the vocabulary row by row, tokens are read in the labels of its pair before they are
counted."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case
from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._cases.rows import tables_of
from specsim.auditing._checks.claimed_law import Claim, rows_on_path
from specsim.auditing._checks.counting import count_by_rows, count_by_table, count_dependence
from specsim.core._streams import Key, Purpose
from specsim.core._types import Floats, Ints
from specsim.simulation._counting import EXAMPLES, Example
from specsim.simulation._sources import Batch, RowVerifier

MAX_PREFIX_CELLS = 512
PIT_BINS = 16
#: Upper edges of the tail bins, in mass of the rarest tokens.
TAIL_EDGES = np.array([1e-5, 1e-3, 2.0**-7, 1.0])
#: Which steps are compared with each other: neighbours of a call, and steps of successive calls.
NEIGHBOURS = ("rows of a call", "successive calls")
CALLS = NEIGHBOURS.index("successive calls")
QUARTERS = 4
#: Begins the name of counts of the tokens that end a step: recovered ones and bonuses.
ENDS = "ends of "
#: The names of arrays that are counted a second time of the tokens that end a step.
BY_POSITION = ("prefixes", "pit", "tail")


def table_positions(case: Case | DecoderCase) -> int:
    """The number of positions with prefix tables: none if steps start from more than one context."""
    if isinstance(case, Case) and len(case.contexts) > 1:
        return 0
    return sum(case.target.vocab_size ** (i + 1) <= MAX_PREFIX_CELLS for i in range(case.positions))


def counts_ids(case: Case) -> bool:
    """Whether each token is counted: of a pair with more tokens than prefix tables keep apart."""
    return case.is_pair and case.target.vocab_size > MAX_PREFIX_CELLS


def prefix_cells(case: Case | DecoderCase) -> int:
    """The number of cells of all prefix tables."""
    return sum(case.target.vocab_size ** (i + 1) for i in range(table_positions(case)))


@dataclass(frozen=True)
class AuditTally:
    """Counts of one case and its claimed law; `reference` verifies the same rows, to measure efficiency."""

    case: Case
    claim: Claim
    reference: RowVerifier | None = None

    def zeros(self) -> dict[str, NDArray[Any]]:
        positions = self.case.positions
        shapes = {
            "prefixes": (prefix_cells(self.case),),
            "pit": (positions, PIT_BINS),
            "tail": (positions, len(TAIL_EDGES)),
        }
        return {
            "lengths": np.zeros(positions, dtype=np.int64),
            "reference": np.zeros(positions, dtype=np.int64),
            **{name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()},
            **{ENDS + name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()},
            "ids": np.zeros(self.case.target.vocab_size if counts_ids(self.case) else 0, dtype=np.int64),
            "impossible": np.zeros(positions, dtype=np.int64),
            "neighbours": np.zeros((len(NEIGHBOURS), QUARTERS**2), dtype=np.int64),
            "calls": np.zeros((2, PIT_BINS + 1), dtype=np.int64),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> list[Example]:
        """Count a batch; the first of its impossible tokens."""
        steps, rows = len(batch.accepted), batch.rows
        counts["lengths"] += np.bincount(batch.accepted, minlength=self.case.gamma + 1)
        first, before = np.empty(steps), counts["impossible"].sum()
        emitted = batch.tokens, batch.accepted, (*key, int(Purpose.COUNT), batch.first)
        tables: Any = tuple(tuple(counts[of + name] for name in BY_POSITION) for of in ("", ENDS))
        tables = (table_positions(self.case), *tables, TAIL_EDGES, counts["impossible"], counts["ids"])
        laws, (last, shifts) = None, _last_and_shifts(rows)
        if self.case.is_pair or (self.claim.lossless and last.size):
            count_by_table(*emitted, shifts, last, *self.cdfs, tables, first)
        elif rows is not None:
            p, q = rows_on_path(rows, batch.tokens)
            laws = self.claim.rows(p, q)
            count_by_rows(*emitted, laws, q, tables, first)
        if self.claim.rule is None:
            count_dependence(first, counts["neighbours"], counts["calls"])
        if self.reference is not None and rows is not None:
            _, accepted = self.reference(rows, key, batch.first)
            counts["reference"] += np.bincount(accepted, minlength=self.case.gamma + 1)
        return self._impossible(batch, laws) if counts["impossible"].sum() > before else []

    @cached_property
    def cdfs(self) -> tuple[Floats, Floats, Floats]:
        """For each position, and for each token before it unless they are all alike: the claimed law, and the
        mass below each token by p/q and by mass, each [depth+1, C, V]."""
        p, q = tables_of(self.case)
        positions = range(self.case.gamma + 1)
        laws = np.array([[self.claim.row(*pair, i) for pair in zip(p, q, strict=True)] for i in positions])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(laws > 0, laws / q, 0.0)
        if not self.case.is_pair:  # q at the bonus is not known to the verifier
            ratios[-1] = laws[-1]
        return laws, _mass_below(laws, ratios), _mass_below(laws, laws)

    def _impossible(self, batch: Batch, laws: Floats | None) -> list[Example]:
        """The first impossible tokens, by the `laws` [B, depth+1, V] of the rows, or those of `cdfs`."""
        last, shifts = _last_and_shifts(batch.rows)
        found = []
        for s, i in np.argwhere(batch.tokens.T >= 0).tolist():
            x = token = int(batch.tokens[i, s])
            if shifts.size:
                x = (token - shifts[s, i]) % self.case.target.vocab_size
            if laws is not None:
                mass = laws[s, i, x]
            else:
                mass = self.cdfs[0][i, last[s, i] if last.size else 0, x]
            if mass == 0.0:
                found.append(Example(batch.first + s, i, token))
            if len(found) == EXAMPLES:
                break
        return found


def _last_and_shifts(rows: Any) -> tuple[NDArray[np.int32], Ints]:
    """The last tokens and the shifts [B, γ+1] of `CaseRows`, empty where there are none."""
    last, shifts = getattr(rows, "last", None), getattr(rows, "shifts", None)
    return (
        np.empty((0, 0), dtype=np.int32) if last is None else last,
        np.empty((0, 0), dtype=np.int64) if shifts is None else shifts,
    )


def pairs_of_quarters(one: Floats, other: Floats) -> Ints:
    """How often each pair of quarters occurs, int64 [16], in pairs of numbers in [0, 1]."""
    left, right = (np.minimum((side * QUARTERS).astype(np.int64), QUARTERS - 1) for side in (one, other))
    return np.bincount(left * QUARTERS + right, minlength=QUARTERS**2)


def _mass_below(laws: Floats, scores: Floats) -> Floats:
    """For each token of laws [..., V], the mass of the tokens before it in order of score, ties by token."""
    order: Ints = np.argsort(scores, kind="stable")
    ranked = np.take_along_axis(laws, order, axis=-1)
    below = np.empty_like(laws)
    np.put_along_axis(below, order, np.cumsum(ranked, axis=-1) - ranked, axis=-1)
    return below
