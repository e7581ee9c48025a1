"""The distribution of a later token given the context alone, whatever tokens come in between.

The heads of Medusa (Cai et al., arXiv 2401.10774) are trained to predict it: head i predicts the token i
places further on without seeing those before it."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._kernels import kernel
from specsim.core._types import Floats, check_count, checked
from specsim.core.distributions import copy_row
from specsim.models._base import Model

#: As many tokens as a draft may have.
MOST_AHEAD = 1024


@checked
def rows_ahead(model: Model, histories: ArrayLike, ahead: int) -> Floats:
    """The distribution [B, V] of the token `ahead` places after the next one, after each of histories [B, T].
    The model is of order 0 or 1 if `ahead` > 0, so that its state is its last token; else ValueError."""
    ahead = check_count("ahead", ahead, 0, MOST_AHEAD)
    rows = model.rows(histories)
    if ahead and (table := table_of(model)) is not None:
        move_ahead(rows, table, ahead)
    return rows


def table_of(model: Model) -> Floats | None:
    """The rows [V, V] of a model of order 1 after each token; None for order 0, else ValueError."""
    if model.order > 1:
        raise ValueError(f"draft: independent heads need a draft of order 0 or 1, not {model.order}")
    return model.rows(np.arange(model.vocab_size)[:, None]) if model.order == 1 else None


@kernel
def move_ahead(rows, table, ahead):  # type: ignore[no-untyped-def]
    """Turn rows r [B, V] into r·table^ahead, normalised, with additions in one order on every machine."""
    product = np.empty(rows.shape[1])
    for b in range(rows.shape[0]):
        for _ in range(ahead):
            product[:] = 0.0
            for x in range(product.size):
                weight = rows[b, x]
                if weight > 0.0:
                    for y in range(product.size):
                        product[y] += weight * table[x, y]
            copy_row(product, rows[b])
        total = 0.0
        for y in range(product.size):
            total += rows[b, y]
        for y in range(product.size):
            rows[b, y] /= total


@checked
def row_ahead(model: Model, context: Sequence[int], ahead: int) -> Sequence[Any] | Floats:
    """`rows_ahead` after one context, by enumeration, of any order; in Fractions if `ahead` > 0."""
    if check_count("ahead", ahead, 0, MOST_AHEAD) == 0:
        return model.row(context)
    total = [Fraction(0)] * model.vocab_size
    for token, chance in enumerate(model.row(context)):
        if chance:
            row = row_ahead(model, (*context, token), ahead - 1)
            total = [mass + Fraction(chance) * Fraction(b) for mass, b in zip(total, row, strict=True)]
    return total
