"""TensorRT-LLM: a Kullback–Leibler divergence compared with that of direct draws.

Source: NVIDIA/TensorRT-LLM, tests/unittest/_torch/speculative/test_torch_rejection_sampling.py
(NVIDIA/TensorRT-LLM#6542).
"""

import numpy as np
from scipy.special import rel_entr

from experiments import Floats
from experiments.audit._criteria.base import criterion, rounds, tally
from specsim.adapters import Verifier

VOCAB_SIZE, KEPT, ROUNDS = 500, 100, 50_000


@criterion
def kl_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """KL is from p to the frequencies of as many tokens; the bonus is not looked at. The original calls two
    helpers, one for the test and one for the residual, round by round in float32."""
    q, p, bonus = _largest(rng), _largest(rng), rng.random(VOCAB_SIZE)
    tokens = rounds(verifier, np.stack([p, bonus / bonus.sum()]), q[None], ROUNDS, rng)[:, 0]
    verified = tally(tokens, VOCAB_SIZE) / ROUNDS
    direct = rng.multinomial(ROUNDS, p) / ROUNDS
    return bool(abs(rel_entr(p, verified).sum() - rel_entr(p, direct).sum()) < 0.01)


def _largest(rng: np.random.Generator) -> Floats:
    weights = rng.random(VOCAB_SIZE)
    weights[np.argsort(weights)[:-KEPT]] = 0.0
    row: Floats = weights / weights.sum()
    return row
