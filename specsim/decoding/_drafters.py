"""What drafts the tokens of a step, and the state of draft and target between steps.

A session has consumed tokens; others are still to be. After a chain of γ drafted tokens with τ accepted, the
target has consumed all γ, the draft all but the last, since no row was asked for after that one.

- τ = 0: both forget every drafted token, and next consume the recovered token.
- 0 < τ < γ: both forget the tokens after the τ accepted ones, and next consume the recovered token.
- τ = γ: nothing is forgotten, but the draft lacks one token: it next consumes the last drafted token and
  the bonus, the target the bonus alone. (A rule that reads the draft's row after the last drafted token feeds
  it that one.)

The branches of a tree are not kept: a session next consumes all that the step emitted.

The target's rows determine what is emitted, so a wrong state of the target biases the text. A wrong state of
the draft only lowers acceptance, because drafts are verified against the rows that they were drawn from."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints
from specsim.core.distributions import check_tokens, temperature
from specsim.models import DynamicTree, LookaheadDecoding, Model, PromptLookup, Tree
from specsim.models._base import read_by, rows_ahead
from specsim.models._drafts.dynamic import Draft
from specsim.models._drafts.prompt_lookup import prompt_lookup
from specsim.models._drafts.sampling import draw_siblings
from specsim.rules import Rule


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
        """Consume `tokens` [T] at once: the rows float64 [T, V] after each; ValueError if one reads more."""
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
        """The rows float64 [B, V] after the consumed tokens and each of `paths` [B, d], as by tree attention,
        consuming nothing; with `ahead` > 0 those of a token that many places further on, see `rows_ahead`."""
        order, branches = self.model.order, np.asarray(paths, dtype=np.int64).tolist()
        whole = getattr(self.model, "reads_all", False)
        recent = self._consumed[0 if whole else max(0, len(self._consumed) - order) :]
        histories = [read_by(self.model, [*recent, *path]) for path in branches]
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
    """Yield, depth by depth from 1 on, the nodes [B] and the drafted tokens on the path to each [B, depth];
    `tokens` [n] may still be filled in below the level that was yielded last."""
    for depth in range(1, tree.depth + 1):
        nodes = np.flatnonzero(np.array(tree.depths) == depth)
        yield nodes, tokens[np.array([tree.path(node) for node in nodes.tolist()]) - 1]


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

    def __init__(self, model: Model, text: Sequence[int], tree: Any, greedy: bool, leaf_rows: bool):
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
        if columns := [child - 1 for child in tree.children(node)]:
            tokens[columns] = draw_siblings(tree.draft_sampling, q[node : node + 1], u[columns])[:, 0]

    def _sampling_rows(self, rows: Floats) -> Floats:
        return temperature(rows, 0.0) if self.greedy else rows


class DynamicDrafter(TreeDrafter):
    """A draft model whose confidence chooses the tree of each step."""

    def draft(self, room: int, key: Key, step: int) -> Drafted | None:
        model, fed = self.session.model, self.feed()
        shape = self.tree.up_to(room, model.vocab_size)
        parents, tokens = shape.draft(model, [read_by(model, self.session._consumed)])
        tree = Tree(tuple(parents[0].tolist()), "top")
        return Drafted(tree, tokens[0], self.rows_after(fed, tree, tokens[0]))


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
    drafter = DynamicDrafter if isinstance(shape, DynamicTree) else TreeDrafter
    return drafter(draft, text, shape, greedy, rule.leaf_rows)
