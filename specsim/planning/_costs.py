"""Cost models: the time of a step of speculative decoding, in passes of the target over a token per sequence.

A cost model has one method, `step(gamma)`: the time of drafting γ tokens and verifying them, relative to the
time in which the target alone emits one token. `improvement` and `best_gamma` take `ConstantRatio`,
`Roofline`, `MeasuredStep` and any other one."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specsim.core._types import check_count, checked
from specsim.theory import expected_tokens

#: The largest γ that is looked at in the search for the best one.
MOST_GAMMA = 2**16


class StepCost(Protocol):
    """The interface of cost models."""

    def step(self, gamma: int) -> float:
        """The time of a step of γ ≥ 0 drafted tokens, in passes of the target."""


@checked
def improvement(cost: StepCost, alpha: float, gamma: int) -> float:
    """The speed-up over the target alone, E[tokens]/step(γ), for independent acceptances.

    Parameters
    ----------
    cost : StepCost
        The time of a step.
    alpha : float
        Accepted / tested tokens, in [0, 1].
    gamma : int
        Drafted tokens per step, ≥ 0.

    Returns
    -------
    float
        Below 1 where speculation is slower.

    References
    ----------
    Leviathan, Kalman & Matias, arXiv 2211.17192, Theorem 3.8.

    Examples
    --------
    >>> round(improvement(ConstantRatio(0.05), 0.8, 5), 4)
    2.9514
    """
    return float(expected_tokens(alpha, gamma)) / cost.step(gamma)


@checked
def best_gamma(cost: StepCost, alpha: float, max_gamma: int = 64) -> int:
    """The γ in 0 … `max_gamma` with the largest `improvement`; 0: do not speculate.

    All γ are tried, since costs may jump.

    Parameters
    ----------
    cost, alpha
        As in `improvement`.
    max_gamma : int
        The largest γ to consider, from 1 to 65536.

    Returns
    -------
    int

    Examples
    --------
    >>> best_gamma(ConstantRatio(0.05), 0.8)
    8
    """
    check_count("max_gamma", max_gamma, most=MOST_GAMMA)
    return max(range(max_gamma + 1), key=lambda gamma: improvement(cost, alpha, gamma))


@checked
@dataclass(frozen=True)
class ConstantRatio:
    """A pass of the draft takes `c` ≥ 0 of the target's, and γ + 1 tokens are verified in the time of one.

    A step takes γc + 1 + `overhead`, ≥ 0 (Leviathan et al., arXiv 2211.17192). Not modelled: batches and
    contexts, where verification costs."""

    c: float
    overhead: float = 0.0

    def __post_init__(self) -> None:
        _check(self, c=0.0, overhead=0.0)

    def step(self, gamma: int) -> float:
        return check_count("gamma", gamma, 0) * self.c + 1.0 + self.overhead


@dataclass(frozen=True)
class Hardware:
    """Attained bytes and floating-point operations per second, both > 0."""

    bandwidth: float
    flops: float

    def __post_init__(self) -> None:
        _check(self, above=True, bandwidth=0.0, flops=0.0)


@dataclass(frozen=True)
class Experts:
    """A mixture of `count` experts; each token uses `active`; `parameters` of each over all layers."""

    count: int
    active: int
    parameters: float

    def __post_init__(self) -> None:
        _check(self, above=True, parameters=0.0)
        if not 1 <= self.active <= self.count:
            raise ValueError(f"active: {self.active} is outside [1, {self.count}]; give a number of experts")


@dataclass(frozen=True)
class Network:
    """A transformer: `parameters` that every token uses, cache bytes per token of context, and experts."""

    parameters: float
    bytes_per_parameter: float = 2.0
    cache_bytes_per_token: float = 0.0
    experts: Experts | None = None

    def __post_init__(self) -> None:
        _check(self, above=True, parameters=0.0, bytes_per_parameter=0.0)
        _check(self, cache_bytes_per_token=0.0)

    def seconds(self, hardware: Hardware, batch: int, tokens: int, context: float) -> float:
        """One pass over `tokens` tokens of each of `batch` sequences after `context` tokens.

        The larger of the times for reading weights and caches once, and for two operations per parameter and
        token. Not modelled: the operations of attention, activations, and communication."""
        read, used = self.parameters, self.parameters
        if self.experts is not None:
            touched = experts_touched(self.experts.count, self.experts.active, batch * tokens)
            read += touched * self.experts.parameters
            used += self.experts.active * self.experts.parameters
        memory = read * self.bytes_per_parameter + batch * context * self.cache_bytes_per_token
        return max(memory / hardware.bandwidth, 2.0 * used * batch * tokens / hardware.flops)


def experts_touched(count: int, active: int, tokens: float) -> float:
    """count·(1 - (1 - active/count)^tokens): distinct experts that independent tokens use.

    `active` of `count` experts compute a token; `tokens` is ≥ 0 (MoESD, arXiv 2505.19645). Raises ValueError
    otherwise. Real tokens share experts: of 256, with 10 active, that paper measured 36.1 for 5 tokens where
    this gives 46.2, and 67.6 for 16 where this gives 120.7."""
    if not 1 <= active <= count or tokens < 0:
        raise ValueError(f"active: {active} of {count}, {tokens} tokens; give 1 ≤ active ≤ count, tokens ≥ 0")
    return count * -math.expm1(tokens * math.log1p(-active / count)) if active < count else float(count)


@dataclass(frozen=True)
class Roofline:
    """Target and draft on one machine, where each pass is bound by memory or by arithmetic: `batch` sequences
    with `context` tokens each.

    The draft attends to `draft_context` tokens, all by default; fewer for a sparse cache (MagicDec; SPiRE,
    whose draft is the target's network with a smaller context). Not modelled: what `Network.seconds` leaves
    out, prefill, and different accepted lengths within a batch."""

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
        drafting = check_count("gamma", gamma, 0) * self._draft_pass(1)
        return (drafting + self._target_pass(gamma + 1)) / self._target_pass(1)

    def step_of(self, passes: Sequence[int], tokens: int) -> float:
        """The time of a step whose draft computes `passes` tokens of a sequence, pass after pass, and whose
        `tokens` the target verifies in one pass; of a tree, the nodes above each depth (Sequoia, arXiv
        2402.12374)."""
        drafting = sum(self._draft_pass(width) for width in passes)
        return (drafting + self._target_pass(1 + tokens)) / self._target_pass(1)

    @property
    def free_tokens(self) -> int:
        """The most tokens of each sequence that the target verifies in the time of one (up to 2^20)."""
        one = self._target_pass(1) * (1 + 1e-12)
        return bisect_right(range(1, 2**20 + 1), one, key=self._target_pass)

    def _target_pass(self, tokens: int) -> float:
        return self.target.seconds(self.hardware, self.batch, tokens, self.context)

    def _draft_pass(self, tokens: int) -> float:
        seen = self.context if self.draft_context is None else min(self.draft_context, self.context)
        return self.draft.seconds(self.hardware, self.batch, tokens, seen)


def critical_context(cost: Roofline, alpha: float, gamma: int, max_context: float = 1e7) -> float | None:
    """The context above which doubling the batch does not lower the improvement.

    In short contexts large batches are bound by arithmetic, so verification costs time; in long ones reading
    the caches dominates, and verification is free again. `draft_context` stays fixed.

    Parameters
    ----------
    cost : Roofline
        Its batch is doubled; its context is not used.
    alpha, gamma
        As in `improvement`.
    max_context : float
        The longest context to consider, in tokens.

    Returns
    -------
    float or None
        In tokens; None if it is above `max_context`.

    References
    ----------
    MagicDec, arXiv 2408.11049.

    Examples
    --------
    >>> target = Network(70e9, cache_bytes_per_token=3e5)
    >>> draft = Network(7e9, cache_bytes_per_token=1e5)
    >>> cost = Roofline(target, draft, Hardware(3e12, 1e15), batch=64, draft_context=512)
    >>> round(critical_context(cost, alpha=0.8, gamma=4))
    3152
    """

    def falls(context: float) -> bool:
        costs = (replace(cost, context=context, batch=factor * cost.batch) for factor in (1, 2))
        here, twice = (improvement(one, alpha, gamma) for one in costs)
        return twice < here * (1 - 1e-9)

    if falls(max_context):
        return None
    low, high = 0.0, max_context
    while high - low > max(1.0, 1e-6 * high):
        middle = (low + high) / 2
        low, high = (middle, high) if falls(middle) else (low, middle)
    return high if falls(low) else low


def _check(model: object, above: bool = False, **least: float) -> None:
    """Raise ValueError for a field that is not finite and at least (or above) its limit."""
    for name, low in least.items():
        value = getattr(model, name)
        if not math.isfinite(value) or value < low or (above and value == low):
            raise ValueError(
                f"{name}: {value} is out of range; give {'more than' if above else 'at least'} {low:g}"
            )
