"""The battery: pairs of a target and a draft, each made to expose one way of going wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specsim.distributions import dyadic, normalise, synthetic_pair
from specsim.drafts import Tree, chain, chains
from specsim.models import Model, TableModel, default_pair, shared_contexts
from specsim.rules import Rule

__all__ = ["LEVELS", "Case", "battery"]

#: Steps of each case, by level: (a built-in rule, somebody's verifier).
LEVELS = {"smoke": (2**17, 2**14), "quick": (2**21, 2**18)}

#: A verifier is handed whole rows; a case with longer ones gets fewer steps, so that it sees no more bytes.
ROW_BYTES = 2**31
#: Rows with more bytes than this per step are left to the fixed-pair kernel.
MAX_STEP_BYTES = 2**20
#: A declared law is computed row by row, in plain Python: steps with rows, and tokens of a pair, that allow that.
DECLARED_STEPS, DECLARED_VOCABULARY = 2**10, 1000


@dataclass(frozen=True)
class Case:
    """A target and a draft, what is drafted in a step, and why. Steps start at a context of the models' pool."""

    name: str
    purpose: str
    target: Model
    draft: Model
    tree: Tree

    @property
    def gamma(self) -> int:
        """The most tokens that a step can accept."""
        return self.tree.depth

    @property
    def is_pair(self) -> bool:
        """Whether p and q are the same at every position."""
        return self.target.order == 0 and self.draft.order == 0

    @property
    def contexts(self) -> NDArray[np.int32]:
        return shared_contexts(self.target, self.draft)

    @property
    def step_bytes(self) -> int:
        """Bytes of p and q rows in one step."""
        return 8 * self.target.vocab_size * (2 * self.tree.size + 1)

    def steps(self, level: str, rule: Rule | None) -> int:
        """How many steps `level` gives this case, for a built-in rule or somebody's verifier; a multiple of 8."""
        rule_steps, verifier_steps = LEVELS[level]
        if rule is None:
            return max(8, min(verifier_steps, ROW_BYTES // self.step_bytes) // 8 * 8)
        if self.is_pair:
            return rule_steps
        if rule.declared is not None and len(self.contexts) > 1:
            return min(DECLARED_STEPS, rule_steps // 2)
        return rule_steps // 2 * self.tree.depth // self.tree.size // 8 * 8


def battery(rule: Rule | None) -> list[Case]:
    """All cases, for a built-in rule, or for somebody's verifier of chains (without the largest vocabulary).

    A rule for several drafts gets pairs of chains, drawn in the first of the ways that it names.
    """
    cases = [make() for make in _CASES]
    if rule is None:
        return [case for case in cases if case.step_bytes <= MAX_STEP_BYTES]
    if rule.declared is not None:
        cases = [case for case in cases if case.target.vocab_size <= DECLARED_VOCABULARY]
    return [replace(case, tree=_shape(rule, case.tree)) for case in cases]


def _shape(rule: Rule, tree: Tree) -> Tree:
    return (
        chains(2, tree.size, rule.drawings[0])
        if rule.claimed_on_trees
        else chain(tree.size, rule.drawings[0])
    )


def _pair(name: str, purpose: str, p: NDArray[np.float64], q: NDArray[np.float64], gamma: int) -> Case:
    """Rows of 24-bit dyadic fractions: they sum to 1 exactly, in float32 too."""
    return Case(name, purpose, TableModel(dyadic(p)), TableModel(dyadic(q)), chain(gamma))


def _synthetic(name: str, purpose: str, kind: str, vocab_size: int, overlap: float, gamma: int) -> Case:
    p, q = synthetic_pair(kind, vocab_size, overlap)
    return _pair(name, purpose, p, q, gamma)


def _zeros() -> Case:
    p = np.array([0.5, 0.25, 0.25, 0.0, 0.0, 0.0])
    q = np.array([0.25, 0.0, 0.25, 0.375, 0.125, 0.0])
    return _pair("zeros", "tokens impossible under p, under q, under both", p, q, 3)


def _markov() -> Case:
    """A Markov chain whose rows differ in every context, some entries zero; steps start after token 0."""
    rng = np.random.default_rng(2)
    p, q = (
        dyadic(normalise(rng.gamma(0.7, size=(4, 4)) * (rng.uniform(size=(4, 4)) < 0.85) + np.eye(4) * 0.05))
        for _ in range(2)
    )
    start = np.zeros((1, 1), dtype=np.int32)
    return Case(
        "Markov chain",
        "rows that change with every token",
        TableModel(p, start),
        TableModel(q, start),
        chain(3),
    )


def _ngrams() -> Case:
    target, draft = default_pair()
    return Case("n-gram pair", "bytes of real text, 5-gram target, 2-gram draft", target, draft, chain(5))


_CASES: tuple[Callable[[], Case], ...] = (
    lambda: _synthetic("two-point", "every prefix of six positions is counted", "two-point", 2, 0.8, 5),
    lambda: _synthetic("asymmetric", "one token over-proposed", "asymmetric", 8, 0.6, 3),
    _zeros,
    lambda: _synthetic("disjoint", "no draft passes, all tokens are drawn anew", "dirichlet", 96, 0.0, 2),
    lambda: _synthetic("identical", "every draft must be accepted", "dirichlet", 4, 1.0, 3),
    lambda: _synthetic("one-hot draft", "n-gram and argmax drafts", "one-hot", 8, 0.7, 3),
    lambda: _synthetic("near-equal", "a residual of almost no mass", "near-equal", 32, 0.9999, 5),
    lambda: _synthetic("irregular", "many small entries", "dirichlet", 32, 0.5, 5),
    lambda: _synthetic("Zipf 1 000", "a heavy tail", "zipf", 1000, 0.8, 5),
    lambda: _synthetic("Zipf 32 000", "a vocabulary of real size", "zipf", 32_000, 0.8, 5),
    _markov,
    _ngrams,
)
