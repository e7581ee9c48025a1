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
from specsim.drafts import draw_tokens
from specsim.models import Model
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
    """Drafted tokens with their rows: draft_tokens int64 [B, γ], p float64 [B, γ+1, V], q float64 [B, γ, V]."""

    draft_tokens: Ints
    p: Floats
    q: Floats


@dataclass(frozen=True)
class Batch:
    """Consecutive steps from `first` on: emitted int32 tokens [γ+1, B], padded with -1, and int64 accepted [B].

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
    def gamma(self) -> int: ...
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
    gamma: int
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
        return self.rule.fixed_pair.tables(self.p, self.q)

    def alpha_context(self) -> float:
        return float(acceptance_rate(self.p, self.q))

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        size = 0
        for start, n in _pieces(first, steps, FIXED_PAIR_BATCH):
            if n != size:  # at the first batch, and at a shorter last one
                size = n
                draft = uniforms_buffer(self.gamma, n)
                verify = uniforms_buffer(self.rule.uniforms(self.gamma), n)
                tokens = np.empty((self.gamma + 1, n), dtype=np.int32)
                accepted = np.empty(n, dtype=np.int64)
            fill_uniforms(*key, int(Purpose.DRAFT), start, draft)
            fill_uniforms(*key, int(Purpose.VERIFY), start, verify)
            self.rule.fixed_pair.kernel(*self.tables, draft, verify, tokens, accepted)
            yield Batch(start, tokens, accepted)


# --- rows ------------------------------------------------------------------------------------------------

#: Verifies rows: (rows, key, first step) -> (tokens int32 [γ+1, B], accepted int64 [B]).
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
    def gamma(self) -> int:
        return self.reader.gamma

    @property
    def vocab_size(self) -> int:
        return self.reader.vocab_size

    def alpha_context(self) -> float:
        return self.reader.alpha_context()

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        row_bytes = 8 * self.vocab_size * (2 * self.gamma + 1)
        for start, n in _pieces(first, steps, max(1, ROW_BATCH_BYTES // row_bytes)):
            rows = self.reader.rows(key, start, n)
            tokens, accepted = self.verify(rows, key, start)
            yield Batch(start, tokens, accepted, rows)


def rule_verifier(rule: Rule) -> RowVerifier:
    """The row kernel of `rule`, fed from the verify stream."""

    def verify(rows: Rows, key: Key, first: int) -> tuple[Tokens, Ints]:
        steps, gamma = rows.draft_tokens.shape
        tokens = np.empty((gamma + 1, steps), dtype=np.int32)
        accepted = np.empty(steps, dtype=np.int64)
        u = uniforms(key, int(Purpose.VERIFY), first, steps, rule.uniforms(gamma))
        rule.rows(rows.draft_tokens, rows.p, rows.q, u, tokens, accepted)
        return tokens, accepted

    return verify


@dataclass(frozen=True)
class ModelRows:
    """Steps of two models, each from a context drawn uniformly from `contexts` (int32 [N, order]).

    Positions in a step depend on the tokens drafted before them, as in real decoding; steps are independent.
    """

    target: Model
    draft: Model
    gamma: int
    contexts: NDArray[np.int32]
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
        order = start.shape[1]
        histories = np.empty((steps, order + self.gamma), dtype=np.int32)
        histories[:, :order] = start
        p = np.empty((steps, self.gamma + 1, self.vocab_size))
        q = np.empty((steps, self.gamma, self.vocab_size))
        u = uniforms(key, int(Purpose.DRAFT), first, steps, self.gamma)
        tokens = np.empty(steps, dtype=np.int64)
        for i in range(self.gamma):
            seen = np.ascontiguousarray(histories[:, : order + i])
            p[:, i] = self.target.rows(seen)
            q[:, i] = self.draft.rows(seen)
            draw_tokens(q[:, i], u[i], tokens)
            histories[:, order + i] = tokens
        p[:, self.gamma] = self.target.rows(histories)
        return Rows(histories[:, order:].astype(np.int64), p, q)


@dataclass(frozen=True)
class TraceRows:
    """Steps over the logged rows of a trace, *frozen*: step s redraws the drafts of logged step s mod N.

    The log knows P only along its own path, so a redrawn token does not change the rows after it. That answers
    whether a rule follows its conditional law on these rows; it is not a statement about P.
    """

    trace: Trace
    gamma: int
    kind = "trace, frozen rows"

    @property
    def vocab_size(self) -> int:
        return self.trace.vocab_size

    def alpha_context(self) -> float:
        return summarise(self.trace).alpha_context

    def rows(self, key: Key, first: int, steps: int) -> Rows:
        _, p, q = self.trace.steps(np.arange(first, first + steps) % self.trace.num_steps)
        p, q = np.ascontiguousarray(p[:, : self.gamma + 1]), np.ascontiguousarray(q[:, : self.gamma])
        u = uniforms(key, int(Purpose.DRAFT), first, steps, self.gamma)
        tokens = np.empty((steps, self.gamma), dtype=np.int64)
        for i in range(self.gamma):
            draw_tokens(q[:, i], u[i], tokens[:, i])
        return Rows(tokens, p, q)


def _pieces(first: int, steps: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut [first, first + steps) into pieces (start, length) of at most `size`."""
    for start in range(first, first + steps, size):
        yield start, min(size, first + steps - start)
