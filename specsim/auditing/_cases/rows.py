"""The rows that a user's verifier gets, generated fast: those of one pair, or relabelled row by row."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints, dtype_of
from specsim.drafts import Tree
from specsim.simulation._engine import model_rows
from specsim.simulation._rows import RowReader, Rows, tile_parents
from specsim.theory import acceptance_rate


@dataclass(frozen=True)
class CaseRows(Rows):
    """Rows of a case.

    `shifts` int64 [B, γ+1]: token x is (x - shift) mod V of the pair; `lengths` int64 [B]."""

    shifts: Ints | None = None
    lengths: Ints | None = None


def rows_of(case: Case) -> RowReader:
    """The reader of `case`: rows of a pair are copies, rows of models are computed."""
    if case.is_pair and case.tree.is_chain:
        return PairRows(case)
    return model_rows(case.target, case.draft, case.tree)


@dataclass(frozen=True)
class PairRows:
    """Chains of one pair, in the dtype of the case.

    Without rotation all calls of one size share their arrays."""

    case: Case
    made: dict[int, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict, repr=False)
    kind = "pair"

    @property
    def tree(self) -> Tree:
        return self.case.tree

    @property
    def vocab_size(self) -> int:
        return self.case.target.vocab_size

    @cached_property
    def pair(self) -> tuple[Floats, Floats]:
        p, q = (np.asarray(model.row(()), dtype=np.float64) for model in (self.case.target, self.case.draft))
        return p, q

    @cached_property
    def rows_in_dtype(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """p and q [V] in the dtype of the case."""
        dtype = dtype_of(self.case.dtype)
        p, q = (row.astype(dtype) for row in self.pair)
        return p, q

    @cached_property
    def shifted_rows(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """For p and q, [V, V]: row r is the pmf shifted by r."""
        p, q = (np.stack([np.roll(row, r) for r in range(row.size)]) for row in self.rows_in_dtype)
        return p, q

    @cached_property
    def draft_cdf(self) -> Floats:
        return self.pair[1].cumsum()

    def alpha_context(self) -> float:
        """β of the pair; Σ q·p if q is None."""
        p, q = self.pair
        return float(p @ q) if self.case.certain else float(acceptance_rate(p, q))

    def rows(self, key: Key, first: int, steps: int) -> CaseRows:
        case, gamma, size = self.case, self.tree.size, self.vocab_size
        u = uniforms(key, int(Purpose.DRAFT), first, steps, gamma) * self.draft_cdf[-1]
        tokens = self.draft_cdf.searchsorted(u.T, side="right").astype(np.int64)
        lengths = shifts = None
        if case.rotated or case.uneven:
            where = uniforms(key, int(Purpose.CONTEXT), first, steps, gamma + 2)
            lengths = (where[-1] * (gamma + 1)).astype(np.int64) if case.uneven else None
            shifts = np.ascontiguousarray((where[:-1] * size).astype(np.int64).T)
            tokens = (tokens + shifts[:, :gamma]) % size
            p, q = (
                rows.take(shifts[:, :n], axis=0)
                for rows, n in zip(self.shifted_rows, (gamma + 1, gamma), strict=True)
            )
        else:
            p, q = self._same(steps)
        return CaseRows(tokens, p, q, tile_parents(self.tree, steps), shifts, lengths)

    def _same(self, steps: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if steps not in self.made:
            p, q = self.rows_in_dtype
            self.made.clear()
            self.made[steps] = (
                np.tile(p, (steps, self.tree.size + 1, 1)),
                np.tile(q, (steps, self.tree.size, 1)),
            )
        return self.made[steps]
