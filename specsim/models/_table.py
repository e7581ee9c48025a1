"""A Markov table, with the row of the next token for each of the V^order contexts, and mixtures of models."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._types import Floats, TokenArray, checked
from specsim.core.distributions import check_rows, row_place
from specsim.models import _base as base
from specsim.models._processed import Processable

#: Up to this many contexts, all of them are the default.
MOST_CONTEXTS = 4096


@checked
class TableModel(Processable):
    """A model given as a table.

    Parameters
    ----------
    table : array_like, shape [V]*order + [V]
        `table[a, b]` is the row after …, a, b; order 0 is one fixed row. A table of `Fraction` and integers
        (an object array or nested lists) is kept exact: `row` returns its Fractions, and `rows` their float64
        conversion.
    contexts : array_like of int, shape [N, order], optional
        Where a step may begin; by default all V^order contexts, if they are at most 4096.

    Examples
    --------
    >>> coin = TableModel([[Fraction(2, 3), Fraction(1, 3)], [0, 1]])
    >>> coin.order, coin.row([0])
    (1, (Fraction(2, 3), Fraction(1, 3)))
    >>> coin.rows([[1, 0], [0, 1]])
    array([[0.66666667, 0.33333333],
           [0.        , 1.        ]])
    """

    def __init__(self, table: ArrayLike | Sequence[Any], contexts: ArrayLike | None = None):
        array = _as_array(table)
        self.vocab_size: int = array.shape[-1]
        self.order: int = array.ndim - 1
        exact = array.dtype == object
        flat: NDArray[Any] = _check_fractions(array) if exact else check_rows(array, "table")
        flat = flat.reshape(-1, self.vocab_size)
        self._exact: list[tuple[Fraction, ...]] | None = [tuple(row) for row in flat] if exact else None
        self._given = array
        self._rows = np.ascontiguousarray(flat, dtype=np.float64)
        self._rows.flags.writeable = False
        self._strides = self.vocab_size ** np.arange(self.order - 1, -1, -1, dtype=np.int64)
        if contexts is None:
            if len(self._rows) > MOST_CONTEXTS:
                raise ValueError(
                    f"contexts: {self.vocab_size}**{self.order} are too many to begin at each; give some, "
                    f"integers of shape [N, {self.order}]"
                )
            contexts = np.indices((self.vocab_size,) * self.order).reshape(self.order, len(self._rows)).T
        self.contexts = base.check_contexts(contexts, self.order, self.vocab_size)

    def saved(self) -> dict[str, Any]:
        """The arguments that make the same model, for files of results."""
        return {"table": self._given, "contexts": self.contexts}

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of `histories`, as `Model.rows`."""
        index = base.recent_tokens(histories, self.order, self.vocab_size) @ self._strides
        out = base.check_out(out, len(index), self.vocab_size)
        # the index is in range; mode="clip" only lets NumPy write to `out` without a buffer
        return self._rows.take(index, axis=0, out=out, mode="clip")

    def row(self, context: Sequence[int]) -> tuple[Fraction, ...] | Floats:
        """The row after one `context`: Fractions if the table was given in them, else float64."""
        index = 0
        for token in base.last_tokens(context, self.order, self.vocab_size):
            index = index * self.vocab_size + token
        return self._rows[index] if self._exact is None else self._exact[index]


def _as_array(table: ArrayLike | Sequence[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise ValueError("table: rows differ in length; give shape [V]*order + [V]") from error
    if array.ndim == 0 or array.shape[-1] == 0 or len(set(array.shape)) != 1:
        raise ValueError(f"table: shape {array.shape}; give [V]*order + [V], the same V ≥ 1 throughout")
    return array


def _check_fractions(table: NDArray[Any]) -> NDArray[Any]:
    """`table` with every entry a Fraction ≥ 0, every row summing to exactly 1."""
    exact = np.empty(table.shape, dtype=object)
    for place, value in np.ndenumerate(table):
        *row, token = place
        if not isinstance(value, Rational):
            raise TypeError(
                f"table{row_place(row)}, token {token}: {value!r} is not a Fraction; give floats alone, or "
                "Fractions and integers"
            )
        if value < 0:
            raise ValueError(f"table{row_place(row)}, token {token}: {value} is not a probability; give ≥ 0")
        exact[place] = Fraction(value)
    for place in np.ndindex(table.shape[:-1]):
        total = sum(exact[place])
        if total != 1:
            raise ValueError(f"table{row_place(place)}: sums to {total}; Fractions must sum to exactly 1")
    return exact


@checked
@dataclass(frozen=True)
class Mixture(base.OfTarget, Processable):
    """A `draft` moved towards its `target`, with rows (1 - w)·q + w·p: the simplest model of distillation.

    It represents training on the target, as in DistillSpec (Zhou et al., arXiv 2310.08461), by one number w.
    Real distillation moves some rows more than others, and needs no p to draft. In every context β(w) = w +
    (1 - w)·β, since min(p, (1 - w)·q + w·p) = w·p + (1 - w)·min(p, q). If both models are exact then so is
    `row`; `rows` agrees with it up to rounding.

    Parameters
    ----------
    draft, target : Model
        Over one vocabulary.
    weight : float or Fraction
        w in [0, 1]: 0 is the draft itself, 1 the target.

    Examples
    --------
    >>> from specsim.models import TableModel
    >>> Mixture(TableModel([Fraction(1), 0]), TableModel([0, Fraction(1)]), 0.25).row([])
    (Fraction(3, 4), Fraction(1, 4))
    """

    draft: base.Model
    target: base.Model
    weight: float | Fraction

    def __post_init__(self) -> None:
        base.check_pair(self.target, self.draft)
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight: {self.weight} is outside [0, 1]; give the target's share")

    @property
    def order(self) -> int:
        return max(self.target.order, self.draft.order)

    @property
    def contexts(self) -> TokenArray:
        return base.shared_contexts(self.target, self.draft)

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of `histories`, as `Model.rows`."""
        p, q = self.target.rows(histories), self.draft.rows(histories)
        out = base.check_out(out, len(p), self.vocab_size)
        weight = float(self.weight)
        return np.add((1 - weight) * q, weight * p, out=out)

    def row(self, context: Sequence[int]) -> Sequence[Any] | Floats:
        """The row after one `context`: Fractions if both models give them, else float64."""
        p, q = self.target.row(context), self.draft.row(context)
        if isinstance(p[0], Rational) and isinstance(q[0], Rational):
            exact = Fraction(self.weight)
            return tuple((1 - exact) * b + exact * a for a, b in zip(p, q, strict=True))
        weight = float(self.weight)
        return (1 - weight) * np.asarray(q, dtype=np.float64) + weight * np.asarray(p, dtype=np.float64)
