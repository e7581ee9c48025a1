"""A draft moved towards its target, with rows (1 - w)·q + w·p: the simplest model of distillation.

It represents the training of a draft on its target, as in DistillSpec (Zhou et al., arXiv 2310.08461), by one
number w. Real distillation moves some rows more than others, and needs no p to draft.

Writing p as w·p + (1 - w)·p gives min(p, (1 - w)·q + w·p) = w·p + (1 - w)·min(p, q) token by token. Hence
β(w) = w + (1 - w)·β for β = Σ min(p, q) in every context: rejections become rarer by the factor 1 - w."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._arguments import checked
from specsim.core._types import Floats, TokenArray
from specsim.models._base import Model, check_out, check_pair, shared_contexts
from specsim.models._processed import Processable


@checked
@dataclass(frozen=True)
class Mixture(Processable):
    """`draft` moved towards `target` by `weight`.

    If both models are exact then so is `row`; `rows` agrees with it up to rounding.

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

    draft: Model
    target: Model
    weight: float | Fraction

    def __post_init__(self) -> None:
        check_pair(self.target, self.draft)
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight: {self.weight} is outside [0, 1]; give the target's share")

    @property
    def vocab_size(self) -> int:
        return self.target.vocab_size

    @property
    def order(self) -> int:
        return max(self.target.order, self.draft.order)

    @property
    def contexts(self) -> TokenArray:
        return shared_contexts(self.target, self.draft)

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of `histories`, as `Model.rows`."""
        p, q = self.target.rows(histories), self.draft.rows(histories)
        out = check_out(out, len(p), self.vocab_size)
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
