"""The rows that a user's verifier gets, generated fast: those of one pair, relabelled row by row, or taken
from tables of models that read one token."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import BITS, Case, battery
from specsim.core._kernels import kernel
from specsim.core._streams import Key, Purpose, fill_uniforms, uniforms
from specsim.core._types import Floats, Ints, dtype_of
from specsim.core.distributions import check_rows, dyadic
from specsim.models import Model, Pair, TableModel, Tree, chain
from specsim.rules import Rule
from specsim.simulation._rows import ModelRows, RowReader, Rows, model_rows, sample_starts, tile_parents
from specsim.theory import acceptance_rate

#: The largest vocabulary of a model that is a table of rows by the last token.
TABLE_VOCABULARY = 512
#: Bounds on the parts of [0, 1) for which a search in a cumulative sum has its first guess.
LEAST_PARTS, MOST_PARTS = 2**8, 2**16
#: Steps that are drawn with one buffer of uniforms, which stays in the cache.
BLOCK = 1024


@dataclass(frozen=True)
class CaseRows(Rows):
    """Rows of a case. `shifts` int64 [B, γ+1]: token x is (x - shift) mod V of the pair. `last` int32 [B,
    γ+1]: the last token before each place, where p and q are `tables` at it. `places` [B, γ+1]: the number of
    the row at each place in the reader's `bank`, where it has one for p, q or both."""

    shifts: Ints | None = None
    lengths: Ints | None = None
    last: NDArray[np.int32] | None = None
    places: Ints | NDArray[np.int32] | None = None


def rows_of(case: Case) -> RowReader:
    """The reader of `case`: rows of a pair are copies, rows of models come from tables or are computed."""
    if case.is_pair and case.tree.is_chain:
        return PairRows(case)
    if case.tree == chain(case.gamma) and rows_by_token(case.draft) is not None:
        return TableRows(case.target, case.draft, case.tree, case.contexts)
    return model_rows(case.target, case.draft, case.tree)


def rows_by_token(model: Model) -> Floats | None:
    """The rows of `model` after each token, [V, V], or its only row [1, V]; None if it reads more."""
    if model.order > 1 or model.vocab_size > TABLE_VOCABULARY or getattr(model, "reads_all", False):
        return None
    return model.rows(np.arange(model.vocab_size if model.order else 1, dtype=np.int32)[:, None])


def tables_of(case: Case) -> tuple[Floats, Floats]:
    """p and q [C, V] of a pair, C = 1, or of a case whose rows are `CaseRows.last`."""
    if case.is_pair:
        p, q = case.pmfs
        return p[None], q[None]
    return _of_one_shape(*(np.asarray(rows_by_token(model)) for model in (case.target, case.draft)))


def _of_one_shape(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Tables with a row for each token, or with the only row [1, V], as two with as many rows."""
    p, q = np.broadcast_arrays(p, q)
    return np.ascontiguousarray(p), np.ascontiguousarray(q)


class InverseCDF:
    """Draws tokens from rows of pmfs [C, V], as `searchsorted` does, from the first that may be meant."""

    def __init__(self, rows: Floats):
        self.cdf = rows.cumsum(axis=1)
        parts = max(LEAST_PARTS, min(1 << (2 * rows.shape[1] - 1).bit_length(), MOST_PARTS))
        edges = np.arange(parts) / parts
        self.begin = np.array(
            [cdf.searchsorted(edges * cdf[-1], side="right") for cdf in self.cdf], dtype=np.int32
        )

    def chains(
        self, stream: tuple[int, ...], steps: int, gamma: int, start: NDArray[np.int32]
    ) -> tuple[Ints, NDArray[np.int32]]:
        """Drafted tokens [B, γ] and the last token before each place [B, γ+1], none if `start` [B], the first
        ones, is empty. A token is drawn from the row of the last one, or the only row, with the uniforms of
        `stream`, (key, purpose, first step)."""
        tokens = np.empty((steps, gamma), dtype=np.int64)
        last = np.empty((len(start), gamma + 1), dtype=np.int32)
        _draw_chains(self.cdf, self.begin, stream, start, tokens, last)
        return tokens, last


@kernel
def _draw_chains(cdf, begin, stream, start, tokens, last):  # type: ignore[no-untyped-def]
    """Fill tokens and last; the uniforms of a block of steps stay in the cache."""
    one_row, followed, gamma = cdf.shape[0] == 1, last.size > 0, tokens.shape[1]
    for done in range(0, tokens.shape[0], BLOCK):
        steps = min(BLOCK, tokens.shape[0] - done)
        u = np.empty((-(-gamma // 3) * 3, steps))
        fill_uniforms(stream[0], stream[1], stream[2], stream[3] + done, u)
        for k in range(steps):
            s = done + k
            x = np.int64(start[s] if followed else 0)
            if followed:
                last[s, 0] = x
            for i in range(gamma):
                row = np.uint64(0 if one_row else x)
                goal = u[i, k] * cdf[row, -1]
                x = np.int64(begin[row, np.uint64(u[i, k] * begin.shape[1])])
                while cdf[row, np.uint64(x)] <= goal:
                    x += 1
                tokens[s, i] = x
                if followed:
                    last[s, i + 1] = x


@dataclass(frozen=True)
class TableRows(ModelRows):
    """As `ModelRows`, where target and draft read at most one token: their rows are those of a table."""

    @cached_property
    def bank(self) -> tuple[Floats | None, Floats]:
        """p and q [C, V] after each token; None for p if it is no table."""
        p, q = rows_by_token(self.target), rows_by_token(self.draft)
        assert q is not None
        return (None, q) if p is None else _of_one_shape(p, q)

    @cached_property
    def inverse(self) -> InverseCDF:
        return InverseCDF(self.bank[1])

    def rows(self, key: Key, first: int, steps: int) -> CaseRows:
        (p_table, q_table), gamma, size = self.bank, self.tree.size, self.vocab_size
        start = self.contexts[sample_starts(key, first, steps, len(self.contexts))]
        before = start[:, -1] if start.size else np.zeros(steps, dtype=np.int32)
        tokens, last = self.inverse.chains((*key, int(Purpose.DRAFT), first), steps, gamma, before)
        at = last if len(q_table) > 1 else np.zeros_like(last)
        q = q_table.take(at[:, :-1], axis=0)
        if p_table is not None:
            p = p_table.take(at, axis=0)
        else:
            p = np.empty((steps, gamma + 1, size))
            text = np.concatenate([start, last[:, 1:]], axis=1)
            histories = np.lib.stride_tricks.sliding_window_view(text, start.shape[1], axis=1)
            self.target.rows(histories.reshape(-1, start.shape[1]), out=p.reshape(-1, size))
        both = None if p_table is None else last
        return CaseRows(tokens, p, q, tile_parents(self.tree, steps), last=both, places=last)


@dataclass(frozen=True)
class PairRows:
    """Chains of one pair, in the dtype of the case. Without rotation all calls share their arrays."""

    case: Case
    made: list[tuple[NDArray[Any], ...]] = field(default_factory=list, repr=False)
    kind = "pair"

    @property
    def tree(self) -> Tree:
        return self.case.tree

    @property
    def vocab_size(self) -> int:
        return self.case.target.vocab_size

    @cached_property
    def bank(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """p and q [K, V] in the dtype of the case: the only row, or one for each shift."""
        dtype, shifts = dtype_of(self.case.dtype), range(self.vocab_size if self._shifted else 1)
        p, q = (np.stack([np.roll(row.astype(dtype), r) for r in shifts]) for row in self.case.pmfs)
        return p, q

    @property
    def _shifted(self) -> bool:
        return self.case.rotated or self.case.uneven

    @cached_property
    def inverse(self) -> InverseCDF:
        return InverseCDF(self.case.pmfs[1][None])

    def alpha_context(self) -> float:
        """β of the pair; Σ q·p if q is None."""
        p, q = self.case.pmfs
        return float(p @ q) if self.case.certain else float(acceptance_rate(p, q))

    def rows(self, key: Key, first: int, steps: int) -> CaseRows:
        case, gamma, size = self.case, self.tree.size, self.vocab_size
        before = np.empty(0, dtype=np.int32)  # no row depends on the tokens before a step
        tokens, _ = self.inverse.chains((*key, int(Purpose.DRAFT), first), steps, gamma, before)
        if not self.made or len(self.made[0][0]) < steps:  # of any steps without rotation
            p = np.tile(self.bank[0][0], (steps, gamma + 1, 1))
            q = np.tile(self.bank[1][0], (steps, gamma, 1))
            places = np.zeros((steps, gamma + 1), dtype=np.int32)
            self.made[:] = [(p, q, tile_parents(self.tree, steps), places)]
        p, q, parents, places = (one if len(one) == steps else one[:steps] for one in self.made[0])
        lengths = shifts = None
        if self._shifted:
            where = uniforms(key, int(Purpose.CONTEXT), first, steps, gamma + 2)
            lengths = (where[-1] * (gamma + 1)).astype(np.int64) if case.uneven else None
            shifts = places = np.ascontiguousarray((where[:-1] * size).astype(np.int64).T)
            tokens += shifts[:, :gamma]
            tokens[tokens >= size] -= size
            p, q = self.bank[0].take(shifts, axis=0), self.bank[1].take(shifts[:, :gamma], axis=0)
        return CaseRows(tokens, p, q, parents, shifts, lengths, places=places)


# The case of a user's own pair.

#: How the name of the case begins.
PREFIX = "pair"


def case_of_pair(pair: Pair, subject: Rule | Declared) -> Case:
    """A case with the rows of `pair`, rounded to the verifier's dtype, and the first case's draft."""
    dtype = subject.dtypes[0] if isinstance(subject, Declared) else "float64"
    name = f"{PREFIX} {pair.name}" if pair.name else PREFIX
    target, draft = pair
    if draft is None:
        raise ValueError("pair: a pair without a draft, as a trace is; give two pmfs [V] or two models")
    if isinstance(target, Model) and isinstance(draft, Model):
        if BITS[dtype] < BITS["float32"]:
            raise ValueError(f"pair: models have float64 rows, the verifier takes {dtype}; give pmfs p and q")
    else:
        target, draft = _as_table(target, dtype), _as_table(draft, dtype)
    size = target.vocab_size
    if draft.vocab_size != size:
        raise ValueError(f"pair: target has {size} tokens, draft {draft.vocab_size}; share one vocabulary")
    if isinstance(subject, Declared) and subject.vocab_size is not None and size > subject.vocab_size:
        raise ValueError(f"pair: {size} tokens, and the verifier declares vocab_size={subject.vocab_size}")
    first, *_ = battery(subject)
    return Case(name, "a pair of the user's", target, draft, first.tree, dtype=dtype)


def _as_table(row: object, dtype: str) -> TableModel:
    try:
        pmf = check_rows(np.asarray(row, dtype=np.float64), "pair")
    except TypeError:
        raise ValueError(f"pair: expected two pmfs or two models, got {type(row).__name__}") from None
    if pmf.ndim != 1:
        raise ValueError(f"pair: shape {pmf.shape}; expected pmfs of shape [V]")
    return TableModel(dyadic(pmf, BITS[dtype]))
