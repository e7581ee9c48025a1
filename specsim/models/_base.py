"""The protocol of models, and the checks on histories and contexts that they share."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._kernels import kernel
from specsim.core._types import Floats, TokenArray, array_of, check_count, check_unmasked, checked
from specsim.core.distributions import check_tokens, copy_row, cumulative_draw, total_of


@runtime_checkable
class Model(Protocol):
    """A distribution of the next token given the last `order` tokens.

    Attributes
    ----------
    vocab_size : int
        V ≥ 1.
    order : int
        Number of tokens read, at least 0.
    contexts : ndarray of int32, shape [N, order]
        Where a step may begin, N ≥ 1; see `specsim.models`.
    reads_all : bool, optional
        Whether the rows depend on the whole text; `order` is then its least length.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def order(self) -> int: ...

    @property
    def contexts(self) -> TokenArray: ...

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of many histories. Threads may call it at once, each with its own `out`.

        Parameters
        ----------
        histories : array_like of int, shape [B, T]
            T ≥ order.
        out : ndarray of float64, shape [B, V], optional
                Where to write the rows; it need not be contiguous.

        Raises ValueError or TypeError for histories that are too short or not tokens."""

    def row(self, context: Sequence[int]) -> Sequence[Any] | Floats:
        """The row after one `context` of at least `order` tokens, in plain Python and NumPy.

        Equal to that of `rows` bit for bit, or exact if the model is."""


class OfTarget:
    """Has the vocabulary of its `target`."""

    target: Model

    @property
    def vocab_size(self) -> int:
        return self.target.vocab_size


@checked
def check_pair(target: Any, draft: Any) -> None:
    """Raise TypeError unless target and draft are two models, ValueError unless they have one vocabulary."""
    try:
        models = isinstance(target, Model) and isinstance(draft, Model)
    except Exception as error:  # attributes may raise anything
        raise TypeError(f"target, draft: their attributes raise {error!r}; give two models") from error
    if not models:
        raise TypeError("target and draft differ in kind; give two models, such as TableModel([1/2, 1/2])")
    if target.vocab_size != draft.vocab_size:
        sizes = f"{target.vocab_size} and {draft.vocab_size}"
        raise ValueError(f"target, draft: {sizes} tokens; give models over one vocabulary")


@checked
def shared_contexts(target: Model, draft: Model) -> TokenArray:
    """The contexts of the model with the higher order, of the target if both are equal."""
    return (target if target.order >= draft.order else draft).contexts


def drawn_text(model: Model, context: TokenArray, u: Floats) -> TokenArray:
    """`context`, and a token for each of `u`, drawn from the row after as many tokens as `context` has."""
    text = np.append(context, np.zeros(len(u))).astype(np.int32)
    for t in range(len(u)):
        text[t + len(context)] = cumulative_draw(model.rows(text[None, t : t + len(context)])[0], u[t])
    return text


def read_by(model: Model, text: Sequence[int]) -> Sequence[int]:
    """The end of `text` that `model` reads: its last `order` tokens, or all of it if it `reads_all`."""
    return text if getattr(model, "reads_all", False) else text[len(text) - model.order :]


def recent_tokens(histories: ArrayLike, order: int, vocab_size: int) -> TokenArray:
    """The last `order` columns of `histories` ([B, T]), checked, as a contiguous int32 array [B, order]."""
    check_unmasked("histories", histories)
    array = np.asarray(histories)
    if array.ndim != 2 or array.shape[1] < order:
        raise ValueError(f"histories: shape {array.shape}; give [B, T], T ≥ {order} as the model reads")
    recent = array[:, array.shape[1] - order :]
    if recent.size and (array.dtype.kind not in "iu" or recent.min() < 0 or recent.max() >= vocab_size):
        check_tokens(recent, vocab_size, "histories")  # raises, naming the place
    return np.ascontiguousarray(recent, dtype=np.int32)


def last_tokens(context: Sequence[int], order: int, vocab_size: int) -> list[int]:
    """The last `order` tokens of one `context`, checked."""
    tokens = list(context)
    if not all(type(token) is int and 0 <= token < vocab_size for token in tokens):
        tokens = check_tokens(tokens, vocab_size, "context").tolist()  # raises, naming the place
    if len(tokens) < order:
        raise ValueError(f"context: {len(tokens)} tokens; give at least {order}, which the model reads")
    return tokens[len(tokens) - order :]


def check_contexts(contexts: ArrayLike, order: int, vocab_size: int) -> TokenArray:
    """`contexts` as a read-only int32 array [N, order] with N ≥ 1."""
    array = array_of("contexts", contexts)
    if array.ndim != 2 or array.shape[1] != order or len(array) == 0:
        raise ValueError(f"contexts: shape {array.shape}; give [N, {order}] with N ≥ 1")
    checked = check_tokens(array, vocab_size, "contexts").astype(np.int32)
    checked.flags.writeable = False
    return checked


def check_out(out: Floats | None, size: int, vocab_size: int) -> Floats:
    """`out` if it is a float64 array [size, vocab_size], a new one if it is None."""
    if out is None:
        return np.empty((size, vocab_size))
    if out.shape != (size, vocab_size) or out.dtype != np.float64:
        raise ValueError(f"out: {out.dtype} of shape {out.shape}; give float64 [{size}, {vocab_size}]")
    return out


# The distribution of a later token given the context alone, whatever tokens come in between. The heads of
# Medusa (Cai et al., arXiv 2401.10774) are trained to predict it: head i predicts the token i places further
# on without seeing those before it.

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
        total = total_of(rows[b])
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
