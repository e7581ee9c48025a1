"""The battery of decoders: small models whose sequences can be counted, each to expose one defect.

Rows are 24-bit dyadic fractions, which sum to exactly 1. V^max_new_tokens is at most 512, so that the next
token is counted after every prefix; sequences are long enough for several steps of two or three drafted
tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._files import read_table
from specsim.core._types import Floats
from specsim.core.distributions import dyadic, normalise
from specsim.models import Mixture, Model, TableModel
from specsim.models._base import OfTarget, last_tokens, recent_tokens

#: How far back the models read that read the whole text.
BACK = 17


@dataclass(frozen=True)
class DecoderCase(OfTarget):
    """Requests to a decoder, the `prompts` in turn: emit `max_new_tokens` tokens, or up to and with `eos`."""

    name: str
    purpose: str
    target: Model
    draft: Model
    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    eos: int | None = None
    tree = None
    is_pair = False

    def prompt_of(self, number: int) -> tuple[int, ...]:
        return self.prompts[number % len(self.prompts)]

    @property
    def reads_all(self) -> bool:
        """Whether a row depends on more of the text than its last tokens."""
        return getattr(self.target, "reads_all", False)

    @property
    def positions(self) -> int:
        """The most tokens of a sequence."""
        return self.max_new_tokens


def decoder_battery() -> list[DecoderCase]:
    return [_case(**case) for case in _CASES]


def _case(*, models: list[Any], prompts: list[list[int]], mixed: float = 0.0, **more: Any) -> DecoderCase:
    rows = _made(models) if isinstance(models[0], str) else map(_made, models)
    target, draft = (one if isinstance(one, WholeText) else ContextTable(dyadic(one)) for one in rows)
    if mixed:
        given = Mixture(draft, target, mixed).rows(target.contexts)
        draft = ContextTable(dyadic(given.reshape((target.vocab_size,) * (target.order + 1))))
    return DecoderCase(target=target, draft=draft, prompts=tuple(map(tuple, prompts)), **more)


def _made(given: list[Any]) -> Any:
    """Rows that a function here makes, or that are given."""
    return globals()[f"_{given[0]}"](*given[1:]) if isinstance(given[0], str) else np.array(given)


@dataclass(frozen=True, eq=False)
class WholeText:
    """A model of a whole text: `table` [2, V, V, V, V] by the parity of its length, its first token, the
    one 17 back, the last (0 if missing)."""

    table: Floats
    order = 1
    reads_all = True

    @property
    def vocab_size(self) -> int:
        return self.table.shape[-1]

    @property
    def contexts(self) -> NDArray[np.int32]:
        return np.zeros((1, 1), dtype=np.int32)

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        length = np.asarray(histories).shape[1]
        texts = recent_tokens(histories, length, self.vocab_size)
        if length == 0:
            texts = np.zeros((len(texts), 1), dtype=np.int32)
        back = texts[:, -BACK] if length >= BACK else np.zeros_like(texts[:, 0])
        return np.positive(self.table[length % 2, texts[:, 0], back, texts[:, -1]], out=out)

    def row(self, context: Sequence[int]) -> Floats:
        text = last_tokens(context, len(context), self.vocab_size)
        first, last = (text[0], text[-1]) if text else (0, 0)
        row: Floats = self.table[len(text) % 2, first, text[-BACK] if len(text) >= BACK else 0, last]
        return row.copy()


class ContextTable(TableModel):
    """A table whose row for a text shorter than it reads is the mean over the tokens that are missing."""

    def __init__(self, table: Floats):
        super().__init__(table)
        #: For 0, 1, … tokens n the rows [V]*n + [V].
        self.shorter = [dyadic(table.mean(axis=tuple(range(self.order - n)))) for n in range(self.order)]
        for rows in self.shorter:
            rows.flags.writeable = False

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        length = np.asarray(histories).shape[1]
        if length >= self.order:
            return super().rows(histories, out)
        texts = recent_tokens(histories, length, self.vocab_size)
        rows = self.shorter[length][tuple(texts.T)]
        return np.positive(np.broadcast_to(rows, (len(texts), self.vocab_size)), out=out)

    def row(self, context: Sequence[int]) -> Any:
        if len(context) >= self.order:
            return super().row(context)
        text = last_tokens(context, len(context), self.vocab_size)
        return self.shorter[len(text)][tuple(text)]


def _whole_text() -> tuple[WholeText, WholeText]:
    target, other = (_irregular(seed, 3, 3)[None] for seed in (12, 13))
    p = np.concatenate([target, target[..., ::-1]])
    q = 0.6 * p + 0.4 * np.concatenate([other, other])
    return WholeText(dyadic(p)), WholeText(dyadic(q))


def _irregular(seed: int, vocab_size: int, order: int, zeros: float = 0.0) -> Floats:
    """Rows [V, …, V] that differ in every context; a share `zeros` of the entries is 0."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.5, size=(vocab_size,) * (order + 1)) + 0.1
    weights[rng.uniform(size=weights.shape) < zeros] = 0.0
    weights[..., -1] += weights.sum(axis=-1) == 0.0
    return normalise(weights)


def _peaked(vocab_size: int, order: int, *masses: float) -> Floats:
    """Rows [V, …, V], each a rotation of `masses` [V] that depends on all tokens of the context."""
    turns = np.indices((vocab_size,) * order).sum(axis=0)
    return np.array(masses)[(np.arange(vocab_size) - turns[..., None]) % vocab_size]


def _end(vocab_size: int, *seeds: int) -> tuple[Floats, Floats]:
    """Target and draft of a text that token 0 ends; the draft draws it more often."""
    p, q = (_irregular(seed, vocab_size, order) for seed, order in zip(seeds, (2, 1), strict=True))
    p[..., 0], q[..., 0] = 0.25 * p[..., 1:].sum(axis=-1), 0.6 * q[..., 1:].sum(axis=-1)
    return normalise(p), normalise(q)


def _far() -> tuple[Floats, Floats]:
    """The target favours two tokens that the draft seldom proposes, chosen by both tokens before."""
    p, q = np.full((4, 4, 4), 0.02), _irregular(10, 4, 1)
    for a, b in np.ndindex(4, 4):
        p[a, b, (a + b) % 2], p[a, b, (a + b + 1) % 2] = 0.72, 0.24
    q[:, :2] *= 0.05
    return p, normalise(q)


_CASES = read_table("decoder_cases")["case"]
