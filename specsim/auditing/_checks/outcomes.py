"""The outcomes of a diagnosis: whole steps, drafts included, of a few small pairs.

An audit tests only emitted tokens. The drafted tokens separate mistakes better: for example, whether a
recovered token can equal the rejected one. An outcome is the drafted path, the number of accepted tokens, and
the last token."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import BITS, Case, pair_case
from specsim.core._files import read_table
from specsim.core._streams import Key
from specsim.core._types import Ints
from specsim.simulation._sources import Batch


@cache  # the same objects for equal declarations: predictions are cached by case
def diagnostic_cases(declared: Declared, further: bool = False) -> tuple[Case, ...]:
    """Small pairs that separate the known mistakes; the `further` ones, those that do not show there."""
    dtype = declared.dtypes[0]
    cases = []
    for name, given in read_table("diagnosis")["further" if further else "first"].items():
        gamma, rows = given.pop("gamma"), [given.pop(of) for of in "pq"]
        gamma = min(gamma, declared.gamma or gamma)
        cases.append(pair_case(f"diagnosis, {name}", name, rows, gamma, BITS[dtype], dtype=dtype, **given))
    return tuple(case for case in cases if declared.one_hot or not case.certain)


@dataclass(frozen=True)
class OutcomeTally:
    """Counts int64 [V^γ, γ+1, V] of (path, accepted, last token) in a case, in the labels of its pair."""

    case: Case

    def zeros(self) -> dict[str, NDArray[Any]]:
        size, gamma = self.case.target.vocab_size, self.case.gamma
        return {"outcomes": np.zeros((size**gamma, gamma + 1, size), dtype=np.int64)}

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> None:
        table = counts["outcomes"]
        index = np.ravel_multi_index(tuple(self.cells(batch).T), table.shape)
        table += np.bincount(index, minlength=table.size).reshape(table.shape)

    def cells(self, batch: Batch) -> Ints:
        """(path, accepted, last token) of every step of `batch`: int64 [B, 3]."""
        assert batch.rows is not None
        size, gamma, accepted = self.case.target.vocab_size, self.case.gamma, batch.accepted
        shifts: Any = getattr(batch.rows, "shifts", None)
        each = np.arange(len(accepted))
        drafted = batch.rows.draft_tokens
        last = batch.tokens[accepted, each].astype(np.int64)
        if shifts is not None:
            drafted = (drafted - shifts[:, :gamma]) % size
            last = (last - shifts[each, accepted]) % size
        return np.column_stack([drafted @ size ** np.arange(gamma - 1, -1, -1), accepted, last])


@cache
def path_of(code: int, size: int, gamma: int) -> tuple[int, ...]:
    """The drafted tokens behind the first index of "outcomes"."""
    return tuple(int(x) for x in np.unravel_index(code, (size,) * gamma))
