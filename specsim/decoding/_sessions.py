"""The state of the draft and of the target between steps: a session, and the tokens still to be consumed.

A step leaves a session in one of three states. After a chain of γ drafted tokens with τ accepted, the target
has consumed all γ, the draft all but the last, since no row was asked for after that one.

- τ = 0: both forget every drafted token, and next consume the recovered token.
- 0 < τ < γ: both forget the tokens after the τ accepted ones, and next consume the recovered token.
- τ = γ: nothing is forgotten, but the draft lacks one token: it next consumes the last drafted token and
  the bonus, the target the bonus alone. (A rule that reads the draft's row after the last drafted token feeds
  it that one.)

The branches of a tree are not kept: a session next consumes all that the step emitted.

The target's rows determine what is emitted, so a wrong state of the target biases the text. A wrong state of
the draft only lowers acceptance, because drafts are verified against the rows that they were drawn from."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._types import Floats, Ints
from specsim.core.distributions import check_tokens
from specsim.models import Model, Tree
from specsim.models._base import read_by
from specsim.models._multi_token import rows_ahead


class Session:
    """`model` after it has consumed `tokens`, the prompt, for which no rows are computed.

    Its rows depend only on the tokens that it consumed, as those of an engine's forward pass with a cache."""

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


class Side:
    """A session after `text`, whose last token is still to be consumed."""

    def __init__(self, model: Model, text: Sequence[int]):
        self.session = Session(model, text[:-1])
        self.unseen = [text[-1]]
        self.start = 0  # tokens consumed before the drafted ones of this step

    def feed(self, drafted: Sequence[int] = ()) -> Floats:
        """Consume the pending tokens and `drafted`: the rows after the text and after each drafted token."""
        rows = self.session.advance([*self.unseen, *drafted])
        self.start = self.session.length - len(drafted)
        return rows[len(self.unseen) - 1 :]

    def settle(self, accepted: Sequence[int], last: int) -> None:
        """Roll back to what the step emitted: the `accepted` drafted tokens and `last`."""
        kept = min(len(accepted), self.session.length - self.start)
        self.session.rollback(self.start + kept)
        self.unseen = [*accepted[kept:], last]

    def rows(self, tree: Tree, tokens: Ints) -> Floats:
        """The rows [n+1, V] at the nodes of `tree` with the drafted `tokens` [n], in one pass."""
        return self.feed(tokens.tolist()) if tree.is_chain else self.rows_after(self.feed(), tree, tokens)

    def rows_after(self, fed: Floats, tree: Tree, tokens: Ints) -> Floats:
        """The same of a tree once the text is fed, the last of whose rows is that of the root."""
        rows = np.empty((tree.size + 1, self.session.model.vocab_size))
        rows[0] = fed[-1]
        for nodes, paths in levels(tree, tokens):
            rows[nodes] = self.session.after(paths)
        return rows


def levels(tree: Tree, tokens: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield, depth by depth from 1 on, the nodes [B] and the drafted tokens on the path to each [B, depth].

    `tokens` [n] may still be filled in below the level that was yielded last."""
    for depth in range(1, tree.depth + 1):
        nodes = np.flatnonzero(np.array(tree.depths) == depth)
        yield nodes, tokens[np.array([tree.path(node) for node in nodes.tolist()]) - 1]
