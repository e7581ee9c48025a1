"""Readers draw the drafts of steps, with their rows of p and q: of two models, a trace, positions or a text.

Random numbers are functions of (key, purpose, step), so the rows do not depend on how a run is split."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from specsim.core._streams import Key, Purpose, uniform, uniforms
from specsim.core._types import TokenArray
from specsim.core.distributions import Floats, Ints
from specsim.models import DynamicTree, LookaheadDecoding, Model, PromptLookup, Tree
from specsim.models._base import OfTarget, check_pair, move_ahead, shared_contexts, table_of
from specsim.models._drafts.dynamic import Draft
from specsim.models._drafts.sampling import draw_siblings
from specsim.traces import summarise
from specsim.traces._reader import Trace
from specsim.traces._summary import TraceSummary

#: Bytes of p and q rows in a batch: large enough that threads seldom wait for Python, small for a cache.
ROW_BATCH_BYTES = 2**23


@dataclass(frozen=True)
class Rows:
    """Drafted tokens with their rows."""

    draft_tokens: Ints  #: [B, n]
    p: Floats  #: [B, n+1, V]
    q: Floats  #: [B, m, V]; a chain has m = n = γ
    parents: Ints  #: [B, n] the tree of each step, see `specsim.models._drafts.tree`
    #: [B] the depth and the tokens of each draft, where some are padded; 0 is a step without a draft.
    depths: Ints | None = field(default=None, kw_only=True)
    sizes: Ints | None = field(default=None, kw_only=True)

    @property
    def vocab_size(self) -> int:
        return int(self.p.shape[2])

    def end(self, tokens: NDArray[np.int32], accepted: Ints) -> None:
        """End steps a token after their drafts, in tokens [depth+1, B] and accepted [B] of padded ones. A
        lossless rule gives that token the target's distribution, whether it was padding or not."""
        if self.depths is not None:
            np.minimum(accepted, self.depths, out=accepted)
            tokens[np.arange(len(tokens))[:, None] > accepted] = -1


class PathRows(NamedTuple):
    """Rows along the tokens that steps emit: at place i of step s it is p[p_of[i, s]], or where that is
    negative more_p[~p_of[i, s]]; q likewise, without a row for a bonus of a chain."""

    p: Floats  #: [N, V]
    q: Floats
    more_p: Floats
    more_q: Floats
    p_of: TokenArray  #: [γ+1, B]
    q_of: TokenArray

    @classmethod
    def of(cls, p: Floats, q: Floats) -> "PathRows":
        """Of rows p [B, γ+1, V] and q [B, m, V]."""
        size, none = p.shape[2], np.empty((0, p.shape[2]))
        p_of, q_of = (np.arange(n * m, dtype=np.int32).reshape(n, m).T for n, m, _ in (p.shape, q.shape))
        return cls(p.reshape(-1, size), q.reshape(-1, size), none, none, p_of.copy(), q_of.copy())

    def mass(self, step: int, place: int, token: int) -> float:
        row = self.p_of[place, step]
        return float(self.p[row, token] if row >= 0 else self.more_p[~row, token])


class RowReader(Protocol):
    """Draws the drafts of steps, with their rows; `kind` names it in results."""

    @property
    def kind(self) -> str: ...
    @property
    def tree(self) -> Draft: ...
    @property
    def vocab_size(self) -> int: ...

    def alpha_context(self) -> float:
        """The mean of β = Σ min(p, q) over the contexts where steps begin."""

    def rows(self, key: Key, first: int, steps: int) -> Rows: ...


@dataclass(frozen=True)
class _PairRows(OfTarget):
    """Steps of two models, each from a context drawn uniformly from `contexts` (int32 [N, order])."""

    target: Model
    draft: Model
    tree: Any
    contexts: NDArray[np.int32]

    def alpha_context(self) -> float:
        total = 0.0
        for start, n in pieces(0, len(self.contexts), max(1, ROW_BATCH_BYTES // (16 * self.vocab_size))):
            some = self.contexts[start : start + n]
            total += float(np.minimum(self.target.rows(some), self.draft.rows(some)).sum())
        return total / len(self.contexts)

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        start = self.contexts[sample_starts(key, first, steps, len(self.contexts))]
        return self.rows_after(start, uniforms(key, int(Purpose.DRAFT), first, steps, self.tree.size))

    def replayed(self, key: Key, step: int, u: Floats) -> tuple[str, Rows]:
        """Where one step starts, in words, and its rows; `u` [n, 1] draws what models draft."""
        context = self.contexts[start_of(key, step, len(self.contexts))]
        return f"context {context.tolist()}" if context.size else "", self.rows_after(context[None], u)

    def rows_after(self, start: NDArray[np.int32], u: Floats) -> Rows:
        """Drafts after each of the contexts `start` [B, order]; u[j], of u [n, B], draws node j + 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class ModelRows(_PairRows):
    """Positions depend on the tokens drafted before; with `leaf_rows` all nodes have rows of q."""

    tree: Tree
    leaf_rows: bool = False
    kind = "models"

    @cached_property
    def table(self) -> Floats | None:
        """Of the draft, for tokens that it drafts without sight of those before them."""
        return table_of(self.draft)

    def rows_after(self, start: NDArray[np.int32], u: Floats) -> Rows:
        tree, (steps, order) = self.tree, start.shape
        num_q = tree.size + 1 if self.leaf_rows else tree.num_rows
        ahead = [depth - tree.seen(depth) for depth in tree.depths]
        # the last tokens before each node; the zeros in front are never read
        seen = np.zeros((steps, tree.size + 1, max(1, order + max(ahead))), dtype=np.int32)
        seen[:, 0, seen.shape[2] - order :] = start
        q = np.empty((steps, num_q, self.vocab_size))
        tokens = np.empty((steps, tree.size), dtype=np.int64)
        for node in range(num_q):
            histories = seen[:, node, : seen.shape[2] - ahead[node]]
            self.draft.rows(histories, out=q[:, node])
            if ahead[node] and self.table is not None:
                move_ahead(q[:, node], self.table, ahead[node])
            if children := tree.children(node):
                columns = [child - 1 for child in children]
                tokens[:, columns] = draw_siblings(tree.draft_sampling, q[:, node], u[columns]).T
                for child in children:
                    seen[:, child, :-1] = seen[:, node, 1:]
                    seen[:, child, -1] = tokens[:, child - 1]
        p = np.empty((steps, tree.size + 1, self.vocab_size))
        self.target.rows(seen.reshape(-1, seen.shape[2]), out=p.reshape(-1, self.vocab_size))
        return Rows(tokens, p, q, tile_parents(tree, steps))


def model_rows(target: Any, draft: Any, tree: Tree, leaf_rows: bool = False) -> ModelRows:
    check_pair(target, draft)
    return ModelRows(target, draft, tree, shared_contexts(target, draft), leaf_rows)


@dataclass(frozen=True)
class TraceRows:
    """Steps over the logged rows of a trace, *frozen*: step s redraws the drafts of logged step s mod N. The
    log has p along its own path alone: counts test a rule on these rows, and do not estimate the target."""

    trace: Trace
    tree: Tree
    leaf_rows: bool = False
    kind = "trace, frozen rows"

    @property
    def vocab_size(self) -> int:
        return self.trace.vocab_size

    def alpha_context(self) -> float:
        """Over the target's own text, or where steps begin if flags or q at the bonus were not logged."""
        found = summarise(self.trace)
        if isinstance(found, TraceSummary):
            return found.alpha_context
        low, high = found.beta_by_position[0]  # they differ only by rounding
        return float(low + high) / 2

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        gamma = self.tree.size
        _, p, q = self.trace.steps(np.arange(first, first + steps) % self.trace.num_steps)
        p, q = np.ascontiguousarray(p[:, : gamma + 1]), np.ascontiguousarray(q[:, : gamma + self.leaf_rows])
        return _redrawn(self.tree, p, q, key, first)

    def replayed(self, key: Key, step: int, u: Floats) -> tuple[str, Rows]:
        return f"logged step {step % self.trace.num_steps}, rows frozen", self.rows(key, step, 1)


@dataclass(frozen=True)
class PositionRows:
    """Steps over the rows p and q [N, V] of N positions of a text, *frozen* as those of a trace: step s
    begins at position s mod (N - γ), and its later tokens have the rows of the next positions."""

    p: Floats
    q: Floats
    tree: Tree
    leaf_rows: bool = False
    kind = "positions of a text, frozen rows"

    @property
    def vocab_size(self) -> int:
        return self.p.shape[1]

    @property
    def starts(self) -> int:
        """The number of positions where a step may begin."""
        return len(self.p) - self.tree.size

    def alpha_context(self) -> float:
        return float(np.minimum(self.p, self.q).sum() / len(self.p))

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        gamma = self.tree.size
        places = (np.arange(first, first + steps) % self.starts)[:, None] + np.arange(gamma + 1)
        return _redrawn(self.tree, self.p[places], self.q[places[:, : gamma + self.leaf_rows]], key, first)

    def replayed(self, key: Key, step: int, u: Floats) -> tuple[str, Rows]:
        return f"position {step % self.starts}, rows frozen", self.rows(key, step, 1)


def _redrawn(tree: Tree, p: Floats, q: Floats, key: Key, first: int) -> Rows:
    """Steps from `first` on with these rows, and drafts drawn from q."""
    steps, gamma = len(p), tree.size
    u = uniforms(key, int(Purpose.DRAFT), first, steps, gamma)
    tokens = np.empty((steps, gamma), dtype=np.int64)
    for i in range(gamma):
        tokens[:, i] = draw_siblings(tree.draft_sampling, q[:, i], u[i : i + 1])[0]
    return Rows(tokens, p, q, tile_parents(tree, steps))


@dataclass(frozen=True)
class DynamicRows(_PairRows):
    """As `ModelRows`, with a tree for each step from the draft's probabilities; drafts are deterministic."""

    tree: DynamicTree
    kind = "models, dynamic tree"

    def rows_after(self, start: NDArray[np.int32], u: Floats) -> Rows:
        parents, tokens = self.tree.draft(self.draft, start)
        p = np.empty((len(start), self.tree.size + 1, self.vocab_size))
        q = np.empty_like(p)
        for node, seen in enumerate(_before_nodes(start, parents, tokens)):
            p[:, node], q[:, node] = self.target.rows(seen), self.draft.rows(seen)
        return Rows(tokens, p, q, parents)


@dataclass(frozen=True)
class _TextRows(OfTarget):
    """Steps of a text decoded from its beginning, drawn uniformly. Drafts, if any, are functions of the text;
    as in naive matching of a sample of the target, a draft is accepted up to its first other token."""

    target: Model
    draft: Any
    tree: Tree

    @cached_property
    def all_drafts(self) -> tuple[Ints, ...]:
        """Places [S] of the text where steps begin; parents and tokens [S, n], depth and size of drafts."""
        raise NotImplementedError

    def alpha_context(self) -> float:
        """The mean probability that p gives to the first drafted tokens, 0 for a step without a draft."""
        places, parents, tokens, depths, _ = self.all_drafts
        total = 0.0
        for start, n in pieces(0, len(places), max(1, ROW_BATCH_BYTES // (8 * self.vocab_size))):
            p = self.target.rows(self._seen(places[start : start + n]))
            first = np.zeros(p.shape, dtype=bool)
            for j in range(tokens.shape[1]):
                drafted = depths[start : start + n] > 0
                below = np.flatnonzero(drafted & (parents[start : start + n, j] == 0))
                first[below, tokens[start + below, j]] = True
            total += float(p[first].sum())
        return total / len(places)

    def _seen(self, places: Ints) -> NDArray[np.int32]:
        """The tokens before each of `places`."""
        text: NDArray[np.int32] = self.draft.text
        return text[places[:, None] + np.arange(-self.target.order, 0)]

    def replayed(self, key: Key, step: int, u: Floats) -> tuple[str, Rows]:
        places = self.all_drafts[0]
        seen = self._seen(places[[start_of(key, step, len(places))]])[0]
        return f"context {seen.tolist()}", self.rows(key, step, 1)

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        chosen = sample_starts(key, first, steps, len(self.all_drafts[0]))
        places, parents, tokens, depths, sizes = (part[chosen] for part in self.all_drafts)
        p = np.empty((steps, self.tree.size + 1, self.vocab_size))
        for node, seen in enumerate(_before_nodes(self._seen(places), parents, tokens)):
            p[:, node] = self.target.rows(seen)
        q = np.zeros((steps, self.tree.size, self.vocab_size))
        q[np.arange(steps)[:, None], parents, tokens] = 1.0
        return Rows(tokens, p, q, parents, depths=depths, sizes=sizes)


@dataclass(frozen=True)
class LookupRows(_TextRows):
    """Drafts by prompt lookup, padded with token 0 where fewer than γ tokens are found."""

    draft: PromptLookup
    kind = "text, prompt lookup"

    @cached_property
    def all_drafts(self) -> tuple[Ints, ...]:
        found = list(self.draft.decode(self.target.order, self.tree.size))
        places, tokens = np.array([place for place, _ in found]), np.array([drafted for _, drafted in found])
        depths = (tokens >= 0).sum(axis=1)
        return places, tile_parents(self.tree, len(places)), tokens.clip(0), depths, depths


@dataclass(frozen=True)
class LookaheadRows(_TextRows):
    """Drafts of lookahead decoding, padded with a first token again, which naive matching never reaches."""

    draft: LookaheadDecoding
    kind = "text, lookahead decoding"

    @cached_property
    def all_drafts(self) -> tuple[Ints, ...]:
        found = list(self.draft.decode(self.target, self.tree.depth))
        parents = np.zeros((len(found), self.tree.size), dtype=np.int64)
        tokens, (depths, sizes) = np.zeros_like(parents), np.zeros((2, len(found)), dtype=np.int64)
        for i, (_, drafted) in enumerate(found):
            if drafted is not None:
                tree, tokens[i, : tree.size] = drafted
                parents[i, : tree.size], depths[i], sizes[i] = tree.parents, tree.depth, tree.size
                tokens[i, tree.size :] = tokens[i, 0]
        return np.array([place for place, _ in found]), parents, tokens, depths, sizes


def _before_nodes(start: NDArray[np.int32], parents: Ints, tokens: Ints) -> Iterator[NDArray[np.int32]]:
    """The last tokens [B, order] before each node of drafts [B, n] after `start` [B, order], node 0 first."""
    order, every = start.shape[1], np.arange(len(start))
    seen = np.empty((parents.shape[1] + 1, *start.shape), dtype=np.int32)
    seen[0] = start
    yield start
    for node in range(1, len(seen)):
        above = seen[parents[:, node - 1], every]
        seen[node] = np.column_stack([above, tokens[:, node - 1]])[:, 1 : order + 1]
        yield seen[node]


def sample_starts(key: Key, first: int, steps: int, choices: int) -> Ints:
    """Draw uniformly where each step starts: int64 [steps] in [0, choices)."""
    return (uniforms(key, int(Purpose.CONTEXT), first, steps, 1)[0] * choices).astype(np.int64)


def start_of(key: Key, step: int, choices: int) -> int:
    """`sample_starts` for one step, from Philox in Python integers."""
    return int(uniform(key, Purpose.CONTEXT, step, 0) * choices)


def tile_parents(tree: Tree, steps: int) -> Ints:
    """The parents of `steps` drafts of one shape, int64 [steps, n], always in the same layout."""
    return np.tile(np.array(tree.parents), (steps, 1))


def pieces(first: int, steps: int, size: int) -> Iterator[tuple[int, int]]:
    """Split [first, first + steps) into pieces (start, length) of at most `size`."""
    for start in range(first, first + steps, size):
        yield start, min(size, first + steps - start)
