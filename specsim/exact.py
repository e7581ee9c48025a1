"""The proof: output laws by enumeration, in fractions.

A rule whose steps are independent given the prefix is exact iff the first γ+1 tokens — the step's own, continued
by the target where the step emitted fewer — have the target's joint law. Equivalently, at every position, given
the emitted prefix and given that the step got that far, the next token has the target's law. Both are checked
here with zero tolerance, over every draft of positive probability.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from specsim import rules
from specsim.drafts import Chain
from specsim.models import Model, check_pair, shared_contexts
from specsim.rules import Rule

__all__ = ["MAX_DRAFTS", "Proof", "conditional_laws", "continued_law", "prove", "step_law", "target_law"]

#: More drafts than this are not enumerated: V^γ.
MAX_DRAFTS = 4096

Tokens = tuple[int, ...]
Law = dict[Tokens, Fraction]


def step_law(rule: Rule, target: Model, draft: Model, gamma: int, context: Tokens = ()) -> Law:
    """The law of what one step emits after `context`: {emitted tokens: probability}, impossible ones left out."""
    law: Law = defaultdict(Fraction)
    chain = Chain(gamma)
    for drafted, probability in chain.paths(lambda seen: _row(draft, context + seen)):
        p = [_row(target, context + drafted[:i]) for i in range(gamma + 1)]
        q = [_row(draft, context + drafted[:i]) for i in range(gamma)]
        stop, follow = rule.law(chain.parents, drafted, p, q)
        for n in range(gamma + 1):
            for token, weight in enumerate(follow[n]):
                law[(*drafted[:n], token)] += probability * stop[n] * weight
    return {emitted: mass for emitted, mass in law.items() if mass}


def target_law(target: Model, length: int, context: Tokens = ()) -> Law:
    """The target's joint law of `length` tokens after `context`."""
    return dict(Chain(length).paths(lambda seen: _row(target, context + seen)))


def continued_law(law: Law, target: Model, length: int, context: Tokens = ()) -> Law:
    """`law`, its sequences continued by the target to `length` tokens."""
    continued: Law = defaultdict(Fraction)
    for emitted, mass in law.items():
        if len(emitted) == length:
            continued[emitted] += mass
            continue
        for rest, probability in target_law(target, length - len(emitted), context + emitted).items():
            continued[emitted + rest] += mass * probability
    return dict(continued)


def conditional_laws(law: Law) -> Iterator[tuple[Tokens, Law]]:
    """For every prefix after which the step goes on: (prefix, law of the next token given that it does)."""
    following: dict[Tokens, Law] = defaultdict(lambda: defaultdict(Fraction))
    for emitted, mass in law.items():
        for i in range(len(emitted)):
            following[emitted[:i]][emitted[i : i + 1]] += mass
    for prefix, nexts in following.items():
        total = sum(nexts.values(), Fraction(0))
        yield prefix, {token: mass / total for token, mass in nexts.items()}


@dataclass(frozen=True)
class Proof:
    """What enumeration found. `tv` is the total variation between the continued law and the target's, exactly.

    `worst_prefix` is the emitted prefix after which the next token deviates most, by `worst_tv`; None if it
    never does. `drafts` counts the drafts enumerated.
    """

    rule: str
    gamma: int
    vocab_size: int
    drafts: int
    tv: Fraction
    worst_prefix: Tokens | None
    worst_tv: Fraction

    @property
    def exact(self) -> bool:
        """True iff the rule is lossless on this pair: both criteria hold, with zero tolerance."""
        return self.tv == 0 and self.worst_prefix is None


def prove(
    target: Model,
    draft: Model,
    *,
    rule: str | Rule = "standard",
    gamma: int = 2,
    context: Tokens | None = None,
) -> Proof:
    """Enumerate one step of `rule` on a pair of small models, and compare its law with the target's.

    `context` is the tokens before the step, by default the target's first. Rows of `TableModel`s given as
    fractions are used as they are; floats are taken as the rationals that they are, so their rows must then
    sum to 1 exactly. Raises ValueError if V^γ exceeds `MAX_DRAFTS`.

    >>> from fractions import Fraction as F
    >>> from specsim.models import TableModel
    >>> p, q = [F(1, 2), F(1, 3), F(1, 6)], [F(1, 6), F(1, 3), F(1, 2)]
    >>> prove(TableModel(p), TableModel(q), gamma=2).exact
    True
    """
    chosen = rule if isinstance(rule, Rule) else rules.get(rule)
    check_pair(target, draft)
    gamma = Chain(gamma).gamma
    size = target.vocab_size
    if size**gamma > MAX_DRAFTS:
        raise ValueError(
            f"{size}^{gamma} drafts are too many to enumerate (at most {MAX_DRAFTS}): lower V or γ"
        )
    context = tuple(shared_contexts(target, draft)[0].tolist() if context is None else context)
    law = step_law(chosen, target, draft, gamma, context)
    wanted = target_law(target, gamma + 1, context)
    worst_prefix, worst_tv = None, Fraction(0)
    for prefix, nexts in conditional_laws(law):
        tv = _total_variation(nexts, target_law(target, 1, context + prefix))
        if tv > worst_tv:
            worst_prefix, worst_tv = prefix, tv
    return Proof(
        rule=chosen.name,
        gamma=gamma,
        vocab_size=size,
        drafts=sum(1 for _ in Chain(gamma).paths(lambda seen: _row(draft, context + seen))),
        tv=_total_variation(continued_law(law, target, gamma + 1, context), wanted),
        worst_prefix=worst_prefix,
        worst_tv=worst_tv,
    )


def _row(model: Model, history: Tokens) -> list[Fraction]:
    row = [Fraction(weight) for weight in model.row(history[len(history) - model.order :])]
    if sum(row) != 1:
        raise ValueError(
            f"the row after {history} sums to {float(sum(row))!r}, not exactly 1: give fractions, or dyadic() rows"
        )
    return row


def _total_variation(one: Law, other: Law) -> Fraction:
    gaps: Any = (
        abs(one.get(key, Fraction(0)) - other.get(key, Fraction(0))) for key in one.keys() | other.keys()
    )
    return sum(gaps, Fraction(0)) / 2
