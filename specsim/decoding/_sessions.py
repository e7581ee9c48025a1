"""What the draft and the target each remember from step to step: a session, and the tokens that it has not seen yet.

A step leaves a session in one of three states. On a chain of γ drafted tokens, of which τ were accepted, the target has
consumed all γ, the draft all but the last, since no row was asked for after that one.

- τ = 0: both forget every drafted token, and next see the recovered token.
- 0 < τ < γ: both forget the tokens after the τ accepted ones, and next see the recovered token.
- τ = γ: nothing is forgotten, but the draft is one token behind: it next sees the last drafted token and the bonus,
  the target the bonus alone. (A rule that reads the draft's row after the last drafted token feeds it that one, too.)

The branches of a tree are not kept at all: next time a session sees all that the step emitted.

A mistake here is not equally bad on both sides. The target's rows say what is emitted, so a wrong state biases the
text. The draft's rows say what is proposed, and what is verified is drawn from them, whatever they are: a wrong state
costs acceptance alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.core.distributions import temperature
from specsim.drafts import Tree, draw_siblings
from specsim.models import Model, Session


class Side:
    """A session behind `text`, whose last token is still to be fed to it."""

    def __init__(self, model: Model, text: Sequence[int]):
        self.session = Session(model, text[:-1])
        self.unseen = [text[-1]]
        self.start = 0  # tokens consumed before the drafted ones of this step

    def feed(self, drafted: Sequence[int] = ()) -> Floats:
        """Consume what was not seen yet, and `drafted`: the rows after the text and after each drafted token."""
        rows = self.session.advance([*self.unseen, *drafted])
        self.start = self.session.length - len(drafted)
        return rows[len(self.unseen) - 1 :]

    def settle(self, accepted: Sequence[int], last: int) -> None:
        """The step emitted the `accepted` drafted tokens and `last`: keep of the consumed ones those that hold."""
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
        for nodes, paths in _levels(tree, tokens):
            p[nodes] = self.session.after(paths)
        return p


class DraftSide(Side):
    """The draft, which draws a token, or the children of a node, at a time; `greedy` makes its rows certain of the argmax."""

    def __init__(self, model: Model, text: Sequence[int], greedy: bool, leaf_rows: bool):
        super().__init__(model, text)
        self.greedy = greedy
        self.leaf_rows = leaf_rows

    def draft(self, tree: Tree, u: Floats) -> tuple[Ints, Floats]:
        """Tokens [n] drawn at the nodes of `tree` with uniforms u [n, 1], and the rows q [m, V] they were drawn from."""
        tokens = np.empty(tree.size, dtype=np.int64)
        q = np.empty((tree.size + 1 if self.leaf_rows else tree.num_rows, self.session.model.vocab_size))
        q[0] = self._drawn_from(self.feed())[-1]
        if tree.is_chain and tree.block == 1:
            for i in range(tree.size):
                tokens[i] = draw_siblings(tree.sampling, q[i : i + 1], u[i : i + 1])[0, 0]
                if i + 1 < len(q):
                    q[i + 1] = self._drawn_from(self.session.advance([int(tokens[i])]))[0]
            return tokens, q
        self._draw_children(tree, 0, q, u, tokens)
        for nodes, paths in _levels(tree, tokens):
            depth = paths.shape[1]
            seen = tree.seen(depth)
            wanted = nodes < len(q)
            q[nodes[wanted]] = self._drawn_from(self.session.after(paths[wanted, :seen], depth - seen))
            for node in nodes.tolist():
                self._draw_children(tree, node, q, u, tokens)
        return tokens, q

    def _draw_children(self, tree: Tree, node: int, q: Floats, u: Floats, tokens: Ints) -> None:
        columns = [child - 1 for child in tree.children(node)]
        if columns:
            tokens[columns] = draw_siblings(tree.sampling, q[node : node + 1], u[columns])[:, 0]

    def _drawn_from(self, rows: Floats) -> Floats:
        return temperature(rows, 0.0) if self.greedy else rows


def _levels(tree: Tree, tokens: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Depth by depth from 1 on: the nodes there [B], and the drafted tokens on the path to each [B, depth].

    `tokens` [n] may still be filled in below the level that was yielded last.
    """
    for depth in range(1, tree.depth + 1):
        nodes = np.flatnonzero(np.array(tree.depths) == depth)
        yield nodes, tokens[np.array([tree.path(node) for node in nodes.tolist()]) - 1]
