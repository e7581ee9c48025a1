"""The smell test of Approximately Aligned Decoding: 26 small cases, a chi-square each.

Source: amazon-science/Approximately-Aligned-Decoding, generator_probability_smell_test/tester.py. Its author found
huggingface/transformers#32867 with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax
from scipy.stats import chi2

from specsim.auditing.criteria.anatomy import Criterion, rounds, tally
from specsim.auditing.verifiers import Verifier
from specsim.distributions import Floats, normalise

__all__ = ["CRITERIA"]

ROUNDS, FAILURE, RANDOM_CASES = 1000, 1e-7, 20
#: Added to each probability, so that an impossible cell can be divided by.
SLACK = 1e-50

#: Weights of target and draft: equal, disjoint, equal, a token that the draft lacks, and two found by fuzzing (three digits).
FIXED = (
    ([1] * 10, [1] * 10),
    ([1] * 5 + [0] * 5, [0] * 5 + [1] * 5),
    ([1, 9], [1, 9]),
    ([1, 8, 1], [4, 6, 0]),
    ([0.00472, 0.930, 0.726, 0.829, 0.768], [0.0600, 0.145, 0.292, 0.529, 0.147]),
    ([0.657, 0.00214, 0.413, 0.232, 0.423], [0.560, 0.826, 0.885, 0.394, 0.536]),
)


def smell_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """1000 first tokens of each pair against the target: no p-value below 1e-7; cells are not merged.

    Six fixed pairs, and 20 of 1 to 10 tokens, softmaxes of three times uniforms. One token is drafted. The original asks a
    whole generator for one token, a new seed each time, and has 20 random pairs for all time.
    """
    for p, q in _pairs(rng):
        counts = tally(rounds(verifier, np.stack([p, p]), q[None], ROUNDS, rng)[:, 0], len(p))
        expected = (p + SLACK) / (p + SLACK).sum() * ROUNDS
        statistic = ((counts - expected) ** 2 / expected).sum()
        if len(p) > 1 and chi2.sf(statistic, len(p) - 1) < FAILURE:
            return False
    return True


def _pairs(rng: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
    for p, q in FIXED:
        yield normalise(p), normalise(q)
    for _ in range(RANDOM_CASES):
        vocab_size = int(rng.integers(1, 11))
        yield softmax(3 * rng.random(vocab_size)), softmax(3 * rng.random(vocab_size))


CRITERIA = (
    Criterion(
        "smell test",
        "amazon-science/Approximately-Aligned-Decoding, generator_probability_smell_test",
        "6 fixed and 20 random pairs of at most 10 tokens, one draft, 1,000 rounds each: no chi-square p-value below 1e-7",
        smell_test,
        20,
    ),
)
