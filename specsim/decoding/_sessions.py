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

from specsim.core._types import Floats, Ints
from specsim.core.distributions import temperature
from specsim.models import Model, Tree
from specsim.models._drafts.sampling import draw_siblings
from specsim.models._session import Session


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


class TargetSide(Side):
    """The target, which scores a whole draft in one pass."""

    def rows(self, tree: Tree, tokens: Ints) -> Floats:
        """The rows p [n+1, V] at the nodes of `tree` with the drafted `tokens` [n]."""
        if tree.is_chain:
            return self.feed(tokens.tolist())
        p = np.empty((tree.size + 1, self.session.model.vocab_size))
        p[0] = self.feed()[-1]
        for nodes, paths in levels(tree, tokens):
            p[nodes] = self.session.after(paths)
        return p


class DraftSide(Side):
    """The draft, which draws the children of one node at a time; `greedy` puts all mass on the argmax."""

    def __init__(self, model: Model, text: Sequence[int], greedy: bool, leaf_rows: bool):
        super().__init__(model, text)
        self.greedy = greedy
        self.leaf_rows = leaf_rows

    def draft(self, tree: Tree, u: Floats) -> tuple[Ints, Floats]:
        """Tokens [n] drawn at the nodes of `tree` with uniforms u [n, 1], and their rows q [m, V]."""
        tokens = np.empty(tree.size, dtype=np.int64)
        q = np.empty((tree.size + 1 if self.leaf_rows else tree.num_rows, self.session.model.vocab_size))
        q[0] = self._sampling_rows(self.feed())[-1]
        if tree.is_chain and tree.block == 1:
            for i in range(tree.size):
                tokens[i] = draw_siblings(tree.draft_sampling, q[i : i + 1], u[i : i + 1])[0, 0]
                if i + 1 < len(q):
                    q[i + 1] = self._sampling_rows(self.session.advance([int(tokens[i])]))[0]
            return tokens, q
        self._draw_children(tree, 0, q, u, tokens)
        for nodes, paths in levels(tree, tokens):
            depth = paths.shape[1]
            seen = tree.seen(depth)
            wanted = nodes < len(q)
            q[nodes[wanted]] = self._sampling_rows(self.session.after(paths[wanted, :seen], depth - seen))
            for node in nodes.tolist():
                self._draw_children(tree, node, q, u, tokens)
        return tokens, q

    def _draw_children(self, tree: Tree, node: int, q: Floats, u: Floats, tokens: Ints) -> None:
        columns = [child - 1 for child in tree.children(node)]
        if columns:
            tokens[columns] = draw_siblings(tree.draft_sampling, q[node : node + 1], u[columns])[:, 0]

    def _sampling_rows(self, rows: Floats) -> Floats:
        return temperature(rows, 0.0) if self.greedy else rows


def levels(tree: Tree, tokens: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield, depth by depth from 1 on, the nodes [B] and the drafted tokens on the path to each [B, depth].

    `tokens` [n] may still be filled in below the level that was yielded last."""
    for depth in range(1, tree.depth + 1):
        nodes = np.flatnonzero(np.array(tree.depths) == depth)
        yield nodes, tokens[np.array([tree.path(node) for node in nodes.tolist()]) - 1]
