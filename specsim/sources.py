"""Where simulated steps come from: a fixed pair of pmfs, two models, or the frozen rows of a trace.

A source draws batches of steps. Every number it draws is a function of (key, purpose, step), so a batch is the
same whoever asks for it, and in whatever pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specsim.distributions import Floats, Ints
from specsim.drafts import Tree, draw_siblings
from specsim.models import Model, rows_ahead
from specsim.rules import Rule
from specsim.streams import Key, Purpose, fill_uniforms, uniform, uniforms, uniforms_buffer
from specsim.theory import acceptance_rate
from specsim.traces import Trace, summarise

__all__ = [
    "Batch",
    "FixedPairSource",
    "ModelRows",
    "RowSource",
    "Rows",
    "Source",
    "TraceRows",
    "rule_verifier",
]


Tokens = NDArray[np.int32]

#: Steps of a fixed pair handled at a time: enough to hide the cost of a call, little enough to stay in cache.
FIXED_PAIR_BATCH = 8192
#: Bytes of p and q rows made at a time, for the same reason.
ROW_BATCH_BYTES = 2**21


@dataclass(frozen=True)
class Rows:
    """Drafted tokens with their rows: draft_tokens int64 [B, n], p float64 [B, n+1, V], q float64 [B, m, V].

    `parents` int64 [B, n] is the tree of each step, see `specsim.drafts.tree`; a chain has m = n = γ.
    """

    draft_tokens: Ints
    p: Floats
    q: Floats
    parents: Ints


@dataclass(frozen=True)
class Batch:
    """Consecutive steps from `first` on: emitted int32 tokens [depth+1, B], padded with -1, and int64 accepted [B].

    `rows` is what was verified, where rows were made at all.
    """

    first: int
    tokens: Tokens
    accepted: Ints
    rows: Rows | None = None


class Described(Protocol):
    """What sources and row readers say of themselves; `kind` names them in results."""

    @property
    def kind(self) -> str: ...
    @property
    def tree(self) -> Tree: ...
    @property
    def vocab_size(self) -> int: ...

    def alpha_context(self) -> float:
        """The mean of β = Σ min(p, q) over the contexts where steps begin."""


class Source(Described, Protocol):
    """What the engine asks of a source: batches of steps, `chunk` steps to a chunk."""

    @property
    def chunk(self) -> int: ...

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]: ...


# --- a fixed pair ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FixedPairSource:
    """One pair of pmfs p, q of shape [V], the same at every position, through the rule's fixed-pair kernel."""

    rule: Rule
    p: Floats
    q: Floats
    tree: Tree
    kind = "fixed pair"

    @property
    def chunk(self) -> int:
        """Enough steps to outweigh adding up the counts, which are as long as the vocabulary."""
        return max(2**17, 2 * self.vocab_size)

    @property
    def vocab_size(self) -> int:
        return self.p.size

    @cached_property
    def tables(self) -> tuple[NDArray[np.generic], ...]:
        return self.rule.fixed_pair.tables(self.p, self.q, self.tree, **self.rule.values)

    def alpha_context(self) -> float:
        return float(acceptance_rate(self.p, self.q))

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        pair, size = self.rule.fixed_pair, 0
        for start, n in _pieces(first, steps, FIXED_PAIR_BATCH):
            if n != size:  # at the first batch, and at a shorter last one
                size = n
                draft = uniforms_buffer(self.tree.size, n)
                verify = uniforms_buffer(pair.uniforms(self.tree), n)
                tokens = np.empty((self.tree.depth + 1, n), dtype=np.int32)
                accepted = np.empty(n, dtype=np.int64)
            fill_uniforms(*key, int(Purpose.DRAFT), start, draft)
            fill_uniforms(*key, int(Purpose.VERIFY), start, verify)
            pair.kernel(*self.tables, draft, verify, tokens, accepted)
            yield Batch(start, tokens, accepted)


# --- rows ------------------------------------------------------------------------------------------------

#: Verifies rows: (rows, key, first step) -> (tokens int32 [depth+1, B], accepted int64 [B]).
RowVerifier = Callable[[Rows, Key, int], tuple[Tokens, Ints]]


class RowReader(Described, Protocol):
    """Makes the rows of steps, drafts included."""

    def rows(self, key: Key, first: int, steps: int) -> Rows: ...


@dataclass(frozen=True)
class RowSource:
    """Steps whose rows come from `reader` and are verified, as arrays, by `verify`."""

    reader: RowReader
    verify: RowVerifier
    chunk = 2**14

    @property
    def kind(self) -> str:
        return self.reader.kind

    @property
    def tree(self) -> Tree:
        return self.reader.tree

    @property
    def vocab_size(self) -> int:
        return self.reader.vocab_size

    def alpha_context(self) -> float:
        return self.reader.alpha_context()

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        row_bytes = 8 * self.vocab_size * (2 * self.tree.size + 1)
        for start, n in _pieces(first, steps, max(1, ROW_BATCH_BYTES // row_bytes)):
            rows = self.reader.rows(key, start, n)
            tokens, accepted = self.verify(rows, key, start)
            yield Batch(start, tokens, accepted, rows)


def rule_verifier(rule: Rule, tree: Tree) -> RowVerifier:
    """The row kernel of `rule` on drafts shaped like `tree`, fed from the verify stream."""
    values = rule.array()

    def verify(rows: Rows, key: Key, first: int) -> tuple[Tokens, Ints]:
        steps, vocab_size = len(rows.p), rows.p.shape[2]
        tokens = np.empty((tree.depth + 1, steps), dtype=np.int32)
        accepted = np.empty(steps, dtype=np.int64)
        u = uniforms(key, int(Purpose.VERIFY), first, steps, rule.uniforms(tree, vocab_size))
        rule.rows(rows.parents, rows.draft_tokens, rows.p, rows.q, u, values, tokens, accepted)
        return tokens, accepted

    return verify


@dataclass(frozen=True)
class ModelRows:
    """Steps of two models, each from a context drawn uniformly from `contexts` (int32 [N, order]).

    Positions in a step depend on the tokens drafted before them, as in real decoding; steps are independent.
    `leaf_rows` makes rows of q at all nodes, for rules that read them there.
    """

    target: Model
    draft: Model
    tree: Tree
    contexts: NDArray[np.int32]
    leaf_rows: bool = False
    kind = "models"

    @property
    def vocab_size(self) -> int:
        return self.target.vocab_size

    def alpha_context(self) -> float:
        """The mean of β over all of `contexts`."""
        total = 0.0
        for start, n in _pieces(0, len(self.contexts), max(1, ROW_BATCH_BYTES // (16 * self.vocab_size))):
            histories = self.contexts[start : start + n]
            p, q = self.target.rows(histories), self.draft.rows(histories)
            total += float(np.minimum(p, q).sum())
        return total / len(self.contexts)

    def context(self, key: Key, step: int) -> NDArray[np.int32]:
        """The context that step `step` starts from."""
        return self.contexts[int(uniform(key, Purpose.CONTEXT, step, 0) * len(self.contexts))]

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        u = uniforms(key, int(Purpose.CONTEXT), first, steps, 1)[0]
        start = self.contexts[(u * len(self.contexts)).astype(np.int64)]
        return self.rows_after(start, uniforms(key, int(Purpose.DRAFT), first, steps, self.tree.size))

    def rows_after(self, start: NDArray[np.int32], u: Floats) -> Rows:
        """Drafts after each of the contexts `start` [B, order], node j + 1 drawn with u[j], u of shape [n, B]."""
        tree, steps = self.tree, len(start)
        num_q = tree.size + 1 if self.leaf_rows else tree.num_rows
        p = np.empty((steps, tree.size + 1, self.vocab_size))
        q = np.empty((steps, num_q, self.vocab_size))
        tokens = np.empty((steps, tree.size), dtype=np.int64)
        histories = {0: start}
        for node in range(tree.size + 1):
            seen, children = histories.pop(node), tree.children(node)
            p[:, node] = self.target.rows(seen)
            if node < num_q:
                ahead = tree.depths[node] - tree.seen(tree.depths[node])
                q[:, node] = rows_ahead(self.draft, seen[:, : seen.shape[1] - ahead], ahead)
            if children:
                columns = [child - 1 for child in children]
                tokens[:, columns] = draw_siblings(tree.drawing, q[:, node], u[columns]).T
                for child in children:
                    histories[child] = np.column_stack([seen, tokens[:, child - 1].astype(np.int32)])
        return Rows(tokens, p, q, _repeated(tree, steps))


@dataclass(frozen=True)
class TraceRows:
    """Steps over the logged rows of a trace, *frozen*: step s redraws the drafts of logged step s mod N.

    The log knows P only along its own path, so a redrawn token does not change the rows after it. That answers
    whether a rule follows its conditional law on these rows; it is not a statement about P.
    """

    trace: Trace
    tree: Tree
    leaf_rows: bool = False
    kind = "trace, frozen rows"

    @property
    def vocab_size(self) -> int:
        return self.trace.vocab_size

    def alpha_context(self) -> float:
        return summarise(self.trace).alpha_context

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        gamma = self.tree.size
        _, p, q = self.trace.steps(np.arange(first, first + steps) % self.trace.num_steps)
        p, q = np.ascontiguousarray(p[:, : gamma + 1]), np.ascontiguousarray(q[:, : gamma + self.leaf_rows])
        u = uniforms(key, int(Purpose.DRAFT), first, steps, gamma)
        tokens = np.empty((steps, gamma), dtype=np.int64)
        for i in range(gamma):
            tokens[:, i] = draw_siblings(self.tree.drawing, q[:, i], u[i : i + 1])[0]
        return Rows(tokens, p, q, _repeated(self.tree, steps))


def _repeated(tree: Tree, steps: int) -> Ints:
    """The parents of `steps` drafts of one shape, int64 [steps, n], without copies."""
    return np.broadcast_to(np.array(tree.parents), (steps, tree.size))


def _pieces(first: int, steps: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut [first, first + steps) into pieces (start, length) of at most `size`."""
    for start in range(first, first + steps, size):
        yield start, min(size, first + steps - start)
