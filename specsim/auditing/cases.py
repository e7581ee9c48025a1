"""The battery: pairs of a target and a draft, each made to expose one way of going wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.distributions import dyadic, normalise, synthetic_pair
from specsim.models import Model, TableModel, default_pair, shared_contexts

__all__ = ["LEVELS", "Case", "battery"]

#: Steps of each case, by level: (a built-in rule, somebody's verifier).
LEVELS = {"smoke": (2**17, 2**14), "quick": (2**21, 2**18)}

#: A verifier is handed whole rows; a case with longer ones gets fewer steps, so that it sees no more bytes.
ROW_BYTES = 2**31
#: Rows with more bytes than this per step are left to the fixed-pair kernel.
MAX_STEP_BYTES = 2**20


@dataclass(frozen=True)
class Case:
    """A target and a draft, γ drafted tokens a step, and why. Steps start at a context of the models' pool."""

    name: str
    purpose: str
    target: Model
    draft: Model
    gamma: int

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
        return 8 * self.target.vocab_size * (2 * self.gamma + 1)

    def steps(self, level: str, built_in: bool) -> int:
        """How many steps `level` gives this case; a multiple of 8."""
        rule_steps, verifier_steps = LEVELS[level]
        if built_in:
            return rule_steps if self.is_pair else rule_steps // 2
        return max(8, min(verifier_steps, ROW_BYTES // self.step_bytes) // 8 * 8)


def battery(built_in: bool) -> list[Case]:
    """All cases, for a built-in rule or for somebody's verifier (without the largest vocabulary)."""
    cases = [make() for make in _CASES]
    return [case for case in cases if built_in or case.step_bytes <= MAX_STEP_BYTES]


def _pair(name: str, purpose: str, p: NDArray[np.float64], q: NDArray[np.float64], gamma: int) -> Case:
    """Rows of 24-bit dyadic fractions: they sum to 1 exactly, in float32 too."""
    return Case(name, purpose, TableModel(dyadic(p)), TableModel(dyadic(q)), gamma)


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
        "Markov chain", "rows that change with every token", TableModel(p, start), TableModel(q, start), 3
    )


def _ngrams() -> Case:
    target, draft = default_pair()
    return Case("n-gram pair", "bytes of real text, 5-gram target, 2-gram draft", target, draft, 5)


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
