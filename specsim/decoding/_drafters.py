"""What drafts the tokens of a step: a model with a fixed or a dynamic tree, or the text so far."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints
from specsim.core.distributions import temperature
from specsim.decoding._sessions import Side, levels
from specsim.models import DynamicTree, LookaheadDecoding, Model, PromptLookup, Tree
from specsim.models._base import read_by
from specsim.models._drafts.dynamic import Draft
from specsim.models._drafts.prompt_lookup import prompt_lookup
from specsim.models._drafts.sampling import draw_siblings
from specsim.rules import Rule


class Drafted(NamedTuple):
    """The drafted tokens [n] at the nodes of a tree, and the rows q [m, V]."""

    tree: Tree
    tokens: Ints
    q: Floats


class Drafter:
    """Drafts the tokens of each step of one text, which it remembers."""

    def __init__(self, text: Sequence[int]):
        self.text = list(text)

    def draft(self, room: int, key: Key, step: int) -> Drafted | None:
        """The draft of a step, at most `room` ≥ 1 deep; None without one."""
        raise NotImplementedError

    def settle(self, accepted: Sequence[int], last: int) -> None:
        """Continue after the tokens that the step emitted."""
        self.text += [*accepted, last]


class TreeDrafter(Side, Drafter):
    """A draft model that draws one tree node by node; `greedy` puts all mass on the argmax."""

    def __init__(self, model: Model, text: Sequence[int], tree: Tree, greedy: bool, leaf_rows: bool):
        super().__init__(model, text)
        self.tree, self.greedy, self.leaf_rows = tree, greedy, leaf_rows

    def draft(self, room: int, key: Key, step: int) -> Drafted | None:
        tree = truncate(self.tree, room)
        u = uniforms(key, Purpose.DRAFT, step, 1, tree.size)
        tokens = np.empty(tree.size, dtype=np.int64)
        q = np.empty((tree.size + 1 if self.leaf_rows else tree.num_rows, self.session.model.vocab_size))
        q[0] = self._sampling_rows(self.feed())[-1]
        if tree.is_chain and tree.block == 1:
            for i in range(tree.size):
                tokens[i] = draw_siblings(tree.draft_sampling, q[i : i + 1], u[i : i + 1])[0, 0]
                if i + 1 < len(q):
                    q[i + 1] = self._sampling_rows(self.session.advance([int(tokens[i])]))[0]
            return Drafted(tree, tokens, q)
        self._draw_children(tree, 0, q, u, tokens)
        for nodes, paths in levels(tree, tokens):
            depth = paths.shape[1]
            seen = tree.seen(depth)
            wanted = nodes < len(q)
            q[nodes[wanted]] = self._sampling_rows(self.session.after(paths[wanted, :seen], depth - seen))
            for node in nodes.tolist():
                self._draw_children(tree, node, q, u, tokens)
        return Drafted(tree, tokens, q)

    def _draw_children(self, tree: Tree, node: int, q: Floats, u: Floats, tokens: Ints) -> None:
        columns = [child - 1 for child in tree.children(node)]
        if columns:
            tokens[columns] = draw_siblings(tree.draft_sampling, q[node : node + 1], u[columns])[:, 0]

    def _sampling_rows(self, rows: Floats) -> Floats:
        return temperature(rows, 0.0) if self.greedy else rows


class DynamicDrafter(Side, Drafter):
    """A draft model whose confidence chooses the tree of each step."""

    def __init__(self, model: Model, text: Sequence[int], tree: DynamicTree):
        super().__init__(model, text)
        self.text, self.tree = list(text), tree

    def draft(self, room: int, key: Key, step: int) -> Drafted | None:
        model, fed = self.session.model, self.feed()
        shape = self.tree.up_to(room, model.vocab_size)
        parents, tokens = shape.draft(model, [read_by(model, self.text)])
        tree = Tree(tuple(parents[0].tolist()), "top")
        return Drafted(tree, tokens[0], self.rows_after(fed, tree, tokens[0]))

    def settle(self, accepted: Sequence[int], last: int) -> None:
        super().settle(accepted, last)
        self.text += [*accepted, last]


class LookupDrafter(Drafter):
    """Prompt lookup in the text so far, after the lookup's own."""

    def __init__(self, lookup: PromptLookup, text: Sequence[int], gamma: int, vocab_size: int):
        super().__init__([*lookup.text.tolist(), *text])
        self.max_ngram, self.gamma, self.vocab_size = lookup.max_ngram, gamma, vocab_size

    def draft(self, room: int, key: Key, step: int) -> Drafted | None:
        found = prompt_lookup(self.text, min(self.gamma, room), self.max_ngram)
        return _given(Tree(tuple(range(len(found))), "top"), found, self.vocab_size) if found else None


class LookaheadDrafter(Drafter):
    """The window and the pool of lookahead decoding."""

    def __init__(
        self, lookahead: LookaheadDecoding, target: Model, text: Sequence[int], gamma: int, root: int
    ):
        super().__init__(text)
        self.vocab_size = target.vocab_size
        self.lookahead = lookahead.start(target, gamma, rng=root)

    def draft(self, room: int, key: Key, step: int) -> Drafted | None:
        found = self.lookahead.draft(self.text)
        self.lookahead.update(self.text)
        if found is None:
            return None
        tree, tokens = found
        short = truncate(tree, room)  # its nodes are numbered level by level
        return _given(short, tokens[: short.size], self.vocab_size)


def _given(tree: Tree, tokens: Sequence[int], vocab_size: int) -> Drafted:
    """Tokens that no model drew: q is 1 there."""
    q = np.zeros((tree.num_rows, vocab_size))
    q[list(tree.parents), list(tokens)] = 1.0
    return Drafted(tree, np.array(tokens, dtype=np.int64), q)


def truncate(tree: Tree, depth: int) -> Tree:
    """`tree` without the nodes below `depth`, which is at least 1."""
    if tree.depth <= depth:
        return tree
    kept = [node for node in range(tree.size + 1) if tree.depths[node] <= depth]
    number = {node: i for i, node in enumerate(kept)}
    return Tree(tuple(number[tree.parents[node - 1]] for node in kept[1:]), tree.draft_sampling, tree.block)


def make_drafter(
    target: Model, draft: Any, text: Sequence[int], shape: Draft, greedy: bool, rule: Rule, root: int
) -> Drafter:
    if isinstance(draft, PromptLookup):
        return LookupDrafter(draft, text, shape.size, target.vocab_size)
    if isinstance(draft, LookaheadDecoding):
        return LookaheadDrafter(draft, target, text, shape.depth, root)
    if isinstance(shape, DynamicTree):
        return DynamicDrafter(draft, text, shape)
    assert isinstance(shape, Tree)
    return TreeDrafter(draft, text, shape, greedy, rule.leaf_rows)
