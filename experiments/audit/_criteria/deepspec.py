"""DeepSpec: a chi-square at every position, with a stated false-alarm rate and a stated power.

Source: deepseek-ai/DeepSpec#48, by its description: 20 000 rounds, every token that is emitted against the
target, some 1e-9 of false failures per assertion, and a negative control whose non-centrality is computed
again in the test.
"""

import numpy as np
from scipy.stats import chi2, ncx2

from experiments.audit._criteria.base import chi_square_below, criterion, reached, rounds
from specsim.adapters import Verifier

ROUNDS, GAMMA, FALSE_FAILURE = 20_000, 3, 1e-9
TARGET = np.array([0.30, 0.20, 0.15, 0.10, 0.10, 0.05, 0.05, 0.05])
DRAFT = TARGET[::-1]
#: What the control's tokens are drawn from, while DRAFT is declared.
UNDECLARED = np.full(8, 1 / 8)


@criterion
def exactness_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Vocabulary, γ and pair are not in the description, they are ours. The negative control (drafts from
    another distribution than the one declared) is a check of the test, not of the verifier: it would fail one
    that ignores its drafts and is exact for all that. Here the power that it guards is computed from the
    standard rule's distribution alone. Two of the tests, of what the engine hands to its verifier, have no
    counterpart.
    """
    if power() < 1 - FALSE_FAILURE:
        raise AssertionError(f"this test has lost its power: {power():.9f}; take another pair or more rounds")
    tokens = rounds(verifier, np.tile(TARGET, (GAMMA + 1, 1)), np.tile(DRAFT, (GAMMA, 1)), ROUNDS, rng)
    return len(reached(tokens, 0)) == ROUNDS and all(
        chi_square_below(reached(tokens, i), TARGET, lambda df: float(chi2.isf(FALSE_FAILURE, df)))
        for i in range(GAMMA + 1)
    )


def power() -> float:
    """The probability that the first position alone rejects the standard rule on undeclared drafts."""
    accepted, excess = UNDECLARED * np.minimum(1.0, TARGET / DRAFT), np.maximum(TARGET - DRAFT, 0.0)
    df, law = len(TARGET) - 1, accepted + (1.0 - accepted.sum()) * excess / excess.sum()
    noncentrality = ROUNDS * ((law - TARGET) ** 2 / TARGET).sum()
    return float(ncx2.sf(chi2.isf(FALSE_FAILURE, df), df, noncentrality))
