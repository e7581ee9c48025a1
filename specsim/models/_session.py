"""A model together with the tokens that it has consumed: an engine's forward pass and its key-value cache.

The rows of a session depend only on the tokens that it consumed. A token that is fed twice, left out, or kept
after its rejection therefore shows in the rows, as in a real engine."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._types import Floats
from specsim.core.distributions import check_tokens
from specsim.models._base import Model, read_by
from specsim.models._multi_token import rows_ahead


class Session:
    """`model` after it has consumed `tokens`, the prompt, for which no rows are computed."""

    def __init__(self, model: Model, tokens: Sequence[int] = ()):
        self.model = model
        self._consumed = check_tokens(list(tokens), model.vocab_size, "tokens").tolist()

    @property
    def length(self) -> int:
        """Tokens consumed so far."""
        return len(self._consumed)

    def advance(self, tokens: Sequence[int]) -> Floats:
        """Consume `tokens` [T] in one pass; returns the rows after each of them, float64 [T, V].

        Raises ValueError where a row would need more tokens than were consumed."""
        order, start = self.model.order, len(self._consumed)
        if tokens and start + 1 < order:
            raise ValueError(
                f"tokens: {start + 1} consumed; the model reads {order}, so consume more before the first row"
            )
        self._consumed.extend(tokens)
        ends = range(start + 1, len(self._consumed) + 1)
        if getattr(self.model, "reads_all", False):  # texts of different lengths
            rows = np.array([self.model.row(self._consumed[:end]) for end in ends])
            return rows.reshape(-1, self.model.vocab_size)
        return self.model.rows(_histories([self._consumed[end - order : end] for end in ends], order))

    def after(self, paths: ArrayLike, ahead: int = 0) -> Floats:
        """The rows after the consumed tokens and each of `paths` [B, d], float64 [B, V], consuming nothing.

        That is a pass with tree attention. With `ahead` > 0 the rows of a token that many places further on,
        see `rows_ahead`."""
        order, branches = self.model.order, np.asarray(paths, dtype=np.int64).tolist()
        whole = getattr(self.model, "reads_all", False)
        recent = self._consumed[0 if whole else max(0, len(self._consumed) - order) :]
        joined = [[*recent, *path] for path in branches]
        histories = [read_by(self.model, path) for path in joined]
        width = len(histories[0]) if histories else order
        return rows_ahead(self.model, _histories(histories, width), ahead)

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens. Raises ValueError unless 0 ≤ length ≤ consumed tokens."""
        if not 0 <= length <= len(self._consumed):
            raise ValueError(f"length: {length} is outside [0, {len(self._consumed)}]; keep tokens consumed")
        del self._consumed[length:]


def _histories(recent: Sequence[Sequence[int]], width: int) -> NDArray[np.int32]:
    return np.array(recent, dtype=np.int32).reshape(len(recent), width)
