"""What a step of speculative decoding costs, in passes of the target over one token a sequence.

The theory of `specsim.theory._speed` takes verification for free. These cost models do not, each in its own way; each
says what it leaves out. They share one question, `step(gamma)`: how long γ drafted tokens and their verification take,
over the time in which the target alone makes one token. `improvement` and `best_gamma` take any of them.

- `ConstantRatio`: γc + 1 (Leviathan et al., arXiv 2211.17192).
- `Roofline`: each pass is bound by memory or by arithmetic, whichever is slower; with batches, long contexts (MagicDec,
  arXiv 2408.11049), drafts on a sparse cache, mixtures of experts (MoESD, arXiv 2505.19645) and trees (Sequoia,
  arXiv 2402.12374).
- `LinearStep`: seconds linear in context and tokens, fitted to measured steps (SmartSpec, arXiv 2406.14066).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from specsim.theory import expected_tokens

__all__ = [
    "ConstantRatio",
    "Experts",
    "Hardware",
    "LinearStep",
    "Network",
    "Roofline",
    "StepCost",
    "best_gamma",
    "critical_context",
    "experts_touched",
    "improvement",
]


class StepCost(Protocol):
    """What a cost model answers."""

    def step(self, gamma: int) -> float:
        """The time of a step of γ ≥ 0 drafted tokens, in passes of the target."""
        ...


def improvement(cost: StepCost, alpha: float, gamma: int) -> float:
    """How many times faster tokens come than from the target alone: E[tokens]/step(γ), acceptances being independent.

    `alpha` in [0, 1], γ ≥ 0. Raises ValueError outside these ranges.

    >>> round(improvement(ConstantRatio(0.05), 0.8, 5), 4)
    2.9514
    """
    return float(expected_tokens(alpha, gamma)) / cost.step(gamma)


def best_gamma(cost: StepCost, alpha: float, most: int = 64) -> int:
    """The γ in 0 … `most` with the largest `improvement`; 0: do not speculate. All are tried: costs may jump.

    >>> best_gamma(ConstantRatio(0.05), 0.8)
    8
    """
    if most < 1:
        raise ValueError(f"most: {most} is not a number of drafted tokens ≥ 1")
    return max(range(most + 1), key=lambda gamma: improvement(cost, alpha, gamma))


@dataclass(frozen=True)
class ConstantRatio:
    """A draft's pass costs `c` ≥ 0 of the target's, and γ+1 tokens are verified in the time of one.

    Leaves out: batches and contexts, in which verification is no longer free, and whatever happens between passes but
    for a constant `overhead` ≥ 0 per step.
    """

    c: float
    overhead: float = 0.0

    def __post_init__(self) -> None:
        _check(self, c=0.0, overhead=0.0)

    def step(self, gamma: int) -> float:
        return _drafted(gamma) * self.c + 1.0 + self.overhead


@dataclass(frozen=True)
class Hardware:
    """Bytes and floating-point operations a second, both > 0, as they are attained rather than printed."""

    bandwidth: float
    flops: float

    def __post_init__(self) -> None:
        _check(self, above=True, bandwidth=0.0, flops=0.0)


@dataclass(frozen=True)
class Experts:
    """A mixture of `count` experts in all, of which each token uses `active`, with `parameters` in each (all layers)."""

    count: int
    active: int
    parameters: float

    def __post_init__(self) -> None:
        _check(self, above=True, parameters=0.0)
        if not 1 <= self.active <= self.count:
            raise ValueError(f"active: {self.active} is not among 1 … {self.count}, the number of experts")


@dataclass(frozen=True)
class Network:
    """A transformer: `parameters` that every token uses, bytes of each, bytes of cache for each token of context.

    `experts`, if any, come on top.
    """

    parameters: float
    bytes_per_parameter: float = 2.0
    cache_bytes_per_token: float = 0.0
    experts: Experts | None = None

    def __post_init__(self) -> None:
        _check(self, above=True, parameters=0.0, bytes_per_parameter=0.0)
        _check(self, cache_bytes_per_token=0.0)

    def seconds(self, hardware: Hardware, batch: int, tokens: int, context: float) -> float:
        """One pass over `tokens` tokens of each of `batch` sequences that have `context` tokens before them.

        The slower of reading weights and caches once, and of two operations for each parameter and token. Attention's
        own operations, activations, and communication are left out.
        """
        read, used = self.parameters, self.parameters
        if self.experts is not None:
            touched = experts_touched(self.experts.count, self.experts.active, batch * tokens)
            read += touched * self.experts.parameters
            used += self.experts.active * self.experts.parameters
        memory = read * self.bytes_per_parameter + batch * context * self.cache_bytes_per_token
        return max(memory / hardware.bandwidth, 2.0 * used * batch * tokens / hardware.flops)


def experts_touched(count: int, active: int, tokens: float) -> float:
    """count·(1 - (1 - active/count)^tokens): distinct experts that `tokens` tokens use, choosing independently.

    Real tokens choose alike, so that fewer are touched: measured 36.1 where this says 46.2 (256 experts, 10 of them
    used, 5 tokens), and 67.6 for 120.7 (16 tokens; arXiv 2505.19645).

    >>> round(experts_touched(256, 10, 5), 1), round(experts_touched(256, 10, 16), 1)
    (46.2, 120.7)
    """
    if not 1 <= active <= count or tokens < 0:
        raise ValueError(f"expected 1 ≤ active ≤ count and tokens ≥ 0, got {active}, {count} and {tokens}")
    return count * -math.expm1(tokens * math.log1p(-active / count)) if active < count else float(count)


@dataclass(frozen=True)
class Roofline:
    """Target and draft on one machine: `batch` sequences with `context` tokens each.

    `draft_context` is how many of these the draft looks at, for one with a sparse cache (MagicDec; a sparse draft of the
    target itself, as in SPiRE, is the target's network with another context); all of them by default. Leaves out: what
    `Network.seconds` does, prefill, and that sequences of a batch accept different numbers of tokens.
    """

    target: Network
    draft: Network
    hardware: Hardware
    batch: int = 1
    context: float = 0.0
    draft_context: float | None = None

    def __post_init__(self) -> None:
        _check(self, batch=1, context=0.0)
        if self.draft_context is not None:
            _check(self, draft_context=0.0)

    def step(self, gamma: int) -> float:
        drafting = _drafted(gamma) * self._draft_pass(1)
        return (drafting + self._target_pass(gamma + 1)) / self._target_pass(1)

    def tree_step(self, widths: Sequence[int]) -> float:
        """The time of a step that drafts a tree with so many nodes at each depth, all of which the target sees at once.

        The draft makes one pass per depth, over the nodes above. Tree attention is taken to cost nothing.
        """
        if not widths or min(widths) < 1:
            raise ValueError(f"widths: {list(widths)} must name at least one node at each depth")
        drafting = sum(self._draft_pass(width) for width in (1, *widths[:-1]))
        return (drafting + self._target_pass(1 + sum(widths))) / self._target_pass(1)

    @property
    def free_tokens(self) -> int:
        """How many tokens of each sequence the target verifies in the time of one (at most 2^20)."""
        one = self._target_pass(1) * (1 + 1e-12)
        low, high = 1, 2**20
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._target_pass(middle) <= one else (low, middle - 1)
        return low

    def _target_pass(self, tokens: int) -> float:
        return self.target.seconds(self.hardware, self.batch, tokens, self.context)

    def _draft_pass(self, tokens: int) -> float:
        seen = self.context if self.draft_context is None else min(self.draft_context, self.context)
        return self.draft.seconds(self.hardware, self.batch, tokens, seen)


def critical_context(cost: Roofline, alpha: float, gamma: int, longest: float = 1e7) -> float | None:
    """The context from which on the improvement no longer falls when the batch is doubled (MagicDec).

    With short contexts large batches are bound by arithmetic, and verification costs; with long ones the caches are what
    is read, and it is free again. None where it falls up to `longest`. `draft_context` stays as it is.
    """

    def falls(context: float) -> bool:
        here, twice = (
            improvement(replace(cost, context=context, batch=batch), alpha, gamma)
            for batch in (cost.batch, 2 * cost.batch)
        )
        return twice < here * (1 - 1e-9)

    if falls(longest):
        return None
    low, high = 0.0, longest
    while high - low > max(1.0, 1e-6 * high):
        middle = (low + high) / 2
        low, high = (middle, high) if falls(middle) else (low, middle)
    return high if falls(low) else low


@dataclass(frozen=True)
class LinearStep:
    """A target's step of `fixed` + `per_context`·context + `per_token`·tokens seconds over the whole batch (SmartSpec).

    `draft_seconds` is one pass of the draft. Leaves out: that time is not linear where memory-bound passes become
    arithmetic-bound ones, for which see `Roofline`.
    """

    fixed: float
    per_context: float
    per_token: float
    draft_seconds: float
    batch: int = 1
    context: float = 0.0

    def __post_init__(self) -> None:
        _check(self, fixed=0.0, per_context=0.0, per_token=0.0, draft_seconds=0.0, batch=1, context=0.0)
        if self._target_pass(1) == 0:
            raise ValueError("fixed, per_context and per_token: a pass of the target takes no time at all")

    @classmethod
    def fit(
        cls,
        context: ArrayLike,
        tokens: ArrayLike,
        seconds: ArrayLike,
        draft_seconds: float,
        batch: int = 1,
        at_context: float = 0.0,
    ) -> LinearStep:
        """The non-negative coefficients of least squares of measured steps: `context` tokens read, `tokens` computed, of
        all sequences together, and `seconds`, each [n].

        Raises ValueError for fewer than three steps, or steps that do not tell the coefficients apart.
        """
        from scipy.optimize import nnls

        columns = [np.asarray(column, dtype=np.float64) for column in (context, tokens, seconds)]
        if columns[0].ndim != 1 or len({column.shape for column in columns}) > 1 or len(columns[0]) < 3:
            raise ValueError("context, tokens and seconds: expected three columns of one length, at least 3")
        if not all(np.isfinite(column).all() for column in columns):
            raise ValueError("context, tokens and seconds: all must be finite")
        design = np.column_stack([np.ones(len(columns[0])), *columns[:2]])
        scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
        if np.linalg.matrix_rank(design / scale) < 3:
            raise ValueError(
                "context and tokens: the steps do not tell their coefficients apart; measure with both of them varied"
            )
        fixed, per_context, per_token = (nnls(design / scale, columns[2])[0] / scale).tolist()
        return cls(fixed, per_context, per_token, draft_seconds, batch, at_context)

    def step(self, gamma: int) -> float:
        return (_drafted(gamma) * self.draft_seconds + self._target_pass(gamma + 1)) / self._target_pass(1)

    def _target_pass(self, tokens: int) -> float:
        return self.fixed + self.batch * (self.per_context * self.context + self.per_token * tokens)


def _drafted(gamma: int) -> int:
    if gamma < 0 or gamma != int(gamma):
        raise ValueError(f"gamma: {gamma} is not a number of drafted tokens ≥ 0")
    return int(gamma)


def _check(model: object, above: bool = False, **least: float) -> None:
    """Raise ValueError for a field that is not finite and at least (or above) so much."""
    for name, low in least.items():
        value = getattr(model, name)
        if not math.isfinite(value) or value < low or (above and value == low):
            raise ValueError(f"{name}: {value} must be {'more than' if above else 'at least'} {low:g}")
