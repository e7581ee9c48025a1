"""FlashInfer: is the output valid? And, of its samplers, are frequencies nearly parallel to probabilities?

Source: flashinfer-ai/flashinfer, tests of sampling, test_chain_speculative_sampling; "a very simple test that
only checks whether output is valid or not". Its samplers without drafts are held to test_sampling_freq.
"""

from itertools import product

import numpy as np
from scipy.special import softmax

from experiments import Floats, Ints
from experiments.audit._criteria.base import criterion, rounds, tally
from specsim.adapters import Verifier
from specsim.distributions import normalise

BATCH_SIZES, VOCAB_SIZES, GAMMAS, TRIALS = (1, 19, 99, 989), (111, 500, 32_000, 128_256), (1, 3, 5, 7), 10
#: Larger batches of rows than this many entries of p are left out.
MAX_ENTRIES = 2**20


@criterion
def validity(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Tokens are drafted uniformly, not from q. After the first emitted token that differs from the draft,
    everything must be -1. Left out: batches of more than `MAX_ENTRIES` entries, and the numbers of accepted
    and of emitted tokens that the kernel reports beside them.
    """
    for batch_size, vocab_size, gamma, one_hot in product(BATCH_SIZES, VOCAB_SIZES, GAMMAS, (False, True)):
        if batch_size * vocab_size * (gamma + 1) > MAX_ENTRIES:
            continue
        drafted = rng.integers(vocab_size, size=(batch_size, gamma))
        q = normalise(rng.random((batch_size, gamma, vocab_size)))
        if one_hot:
            tokens = np.append(drafted, rng.integers(vocab_size, size=(batch_size, 1)), axis=1)
            p = _one_hot(tokens, vocab_size)
        else:
            p = normalise(rng.random((batch_size, gamma + 1, vocab_size)))
        for _ in range(TRIALS):
            emitted = np.asarray(verifier(drafted.copy(), p.copy(), q.copy(), rng))
            if one_hot and not np.array_equal(emitted, tokens):
                return False
            if not one_hot and not _valid(emitted, drafted, vocab_size):
                return False
    return True


def _one_hot(tokens: Ints, vocab_size: int) -> Floats:
    rows = np.zeros((*tokens.shape, vocab_size))
    np.put_along_axis(rows, tokens[..., None], 1.0, axis=-1)
    return rows


def _valid(emitted: Ints, drafted: Ints, vocab_size: int) -> bool:
    batch_size, gamma = drafted.shape
    if emitted.shape != (batch_size, gamma + 1) or emitted.max() >= vocab_size:
        return False
    differs = np.cumsum(emitted[:, :-1] != drafted, axis=1) > 0
    return bool((emitted[:, 1:][differs] == -1).all())


@criterion
def cosine(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Logits have deviation 1 or 5.

    The original draws 5,000,000 tokens from a sampler without drafts, also with V = 32,000 and 128,256."""
    for deviation in (1.0, 5.0):
        logits = deviation * rng.standard_normal((2, 111))
        impossible = rng.permutation(111)[:55]
        logits[0, impossible] = -np.inf
        p, q = softmax(logits, axis=1)
        counts = tally(rounds(verifier, np.tile(p, (2, 1)), q[None], 50_000, rng)[:, 0], 111)
        if counts[impossible].any() or p @ counts <= 0.99 * np.linalg.norm(p) * np.linalg.norm(counts):
            return False
    return True
