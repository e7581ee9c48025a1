"""vLLM: the ratio test of its V1 sampler, two chi-squares of its V2 sampler, and a bound on total variation.

Sources: vllm-project/vllm, tests/v1/sample/test_rejection_sampler.py and tests/v1/spec_decode/
test_rejection_sampler_utils.py (its narrow test by vllm-project/vllm#54282); vllm-project/vllm#47386. All of
them verify one pair of p and q, the same at every position of every request. Here it is float64, the
originals float32 (V2 also with bfloat16 logits of the draft, left out here), on CUDA.
"""

import numpy as np
from scipy.special import softmax

from experiments import Floats
from experiments.audit._criteria.base import chi_square_below, criterion, reached, rounds, tally
from specsim.adapters import Verifier


@criterion
def ratio_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Distances are L2; p, q and the random pmfs are softmaxes of uniforms. The original draws the bonus
    itself."""
    q, p, references = (softmax(rng.random(shape), axis=-1) for shape in (10, 10, (100, 10)))
    to_target, to_references = [], []
    for requests in (10, 100, 1_000, 10_000, 100_000):
        tokens = rounds(verifier, np.tile(p, (3, 1)), np.tile(q, (2, 1)), requests, rng)[:, :-1]
        frequencies = np.bincount(tokens[(tokens >= 0) & (tokens < 10)], minlength=10).astype(float)
        frequencies /= frequencies.sum()
        to_target.append(np.linalg.norm(p - frequencies))
        to_references.append(np.linalg.norm(references - frequencies) / len(references))
    return bool(to_target[0] / to_target[-1] > 20 * to_references[0] / to_references[-1])


@criterion
def wide_chi_square(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Logits are standard normal, temperatures .6 and 1. The original is four tests, with one seed for all
    time."""
    for gamma in (1, 3):
        for t in (0.6, 1.0):
            p, q = softmax(rng.standard_normal((2, 4096)) / t, axis=1)
            if not every_position_fits(verifier, p, q, gamma, 40_960, rng):
                return False
    return True


@criterion
def narrow_chi_square(verifier: Verifier, rng: np.random.Generator) -> bool:
    """The original also draws its drafts from the random stream of the kernel, to see whether the residual's
    draws share it; a verifier is handed tokens here, and that fault is not its own."""
    for gamma in (1, 3):
        logits = rng.standard_normal(16)
        if not every_position_fits(verifier, softmax(logits), softmax(-logits), gamma, 200_000, rng):
            return False
    return True


def every_position_fits(
    verifier: Verifier, p: Floats, q: Floats, gamma: int, n: int, rng: np.random.Generator
) -> bool:
    """Chi-square at each position below df + 10·√(2 df), some ten sigma; every round emits something."""
    tokens = rounds(verifier, np.tile(p, (gamma + 1, 1)), np.tile(q, (gamma, 1)), n, rng)
    return len(reached(tokens, 0)) == n and all(
        chi_square_below(reached(tokens, i), p, lambda df: df + 10 * np.sqrt(2 * df))
        for i in range(gamma + 1)
    )


@criterion
def total_variation(verifier: Verifier, rng: np.random.Generator) -> bool:
    """The original draws its drafts from the random stream of the kernel, as in the narrow test."""
    p = np.array([0.30, 0.20, 0.15, 0.10, 0.10, 0.05, 0.05, 0.05])
    tokens = rounds(verifier, np.tile(p, (2, 1)), p[None, ::-1], 65_536, rng)
    frequencies = tally(tokens[:, 0], len(p)) / len(tokens)
    return bool(np.abs(frequencies - p).sum() / 2 < 0.008)
