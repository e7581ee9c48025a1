"""The smell test of Approximately Aligned Decoding: 26 small cases, a chi-square each.

Source: amazon-science/Approximately-Aligned-Decoding, generator_probability_smell_test/tester.py. Its author
found huggingface/transformers#32867 with it.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax
from scipy.stats import chi2

from experiments import Floats
from experiments.audit._criteria.base import criterion, rounds, tally
from specsim.adapters import Verifier
from specsim.distributions import normalise

ROUNDS, FAILURE, RANDOM_CASES = 1000, 1e-7, 20
#: Added to each probability, so that an impossible cell can be divided by.
SLACK = 1e-50

#: Weights of target and draft: equal, disjoint, equal, a token that the draft lacks, and two found by fuzzing
#: (three digits).
FIXED = (
    ([1] * 10, [1] * 10),
    ([1] * 5 + [0] * 5, [0] * 5 + [1] * 5),
    ([1, 9], [1, 9]),
    ([1, 8, 1], [4, 6, 0]),
    ([0.00472, 0.930, 0.726, 0.829, 0.768], [0.0600, 0.145, 0.292, 0.529, 0.147]),
    ([0.657, 0.00214, 0.413, 0.232, 0.423], [0.560, 0.826, 0.885, 0.394, 0.536]),
)


@criterion
def smell_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Cells are not merged. The original asks a whole generator for one token, a new seed each time."""
    return all(pair_fits(verifier, p, q, rng) for p, q in pairs())


def pair_fits(verifier: Verifier, p: Floats, q: Floats, rng: np.random.Generator) -> bool:
    """One case: whether the chi-square of 1000 first tokens has a p-value of at least 1e-7."""
    counts = tally(rounds(verifier, np.stack([p, p]), q[None], ROUNDS, rng)[:, 0], len(p))
    expected = (p + SLACK) / (p + SLACK).sum() * ROUNDS
    statistic = ((counts - expected) ** 2 / expected).sum()
    return bool(len(p) == 1 or chi2.sf(statistic, len(p) - 1) >= FAILURE)


def pairs() -> Iterator[tuple[Floats, Floats]]:
    """Six fixed pairs, and 20 of 1 to 10 tokens, softmaxes of three times uniforms: those of PyTorch's seeds
    0 to 19.

    PyTorch's generator is MT19937, seeded as NumPy's old RandomState; `rand` is the low 24 bits of each word.
    """
    for p, q in FIXED:
        yield normalise(p), normalise(q)
    for seed in range(RANDOM_CASES):
        state = np.random.RandomState(seed)
        size, *words = state.randint(0, 2**32, size=21, dtype=np.uint32).tolist()
        vocab_size = size % 10 + 1
        u = np.array(words) % 2**24 / 2**24
        yield softmax(3 * u[:vocab_size]), softmax(3 * u[vocab_size : 2 * vocab_size])
