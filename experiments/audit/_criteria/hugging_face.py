"""Hugging Face transformers: one example with a known answer, and one where likelier tokens must come more
often.

Sources: huggingface/transformers, tests/generation/test_utils.py,
UtilsFunctionsTest.test_speculative_sampling; huggingface/transformers#34553,
test_speculative_sampling_target_distribution.
"""

import numpy as np
from scipy.special import softmax

from experiments import Floats, Ints
from experiments.audit._criteria.base import criterion, tally
from specsim.adapters import Verifier

VOCAB_SIZE, DRAFTED, ROUNDS = 10, (1, 4, 5), 10_000


@criterion
def unit_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """The draft is sure of 1, 4, 5, the target of 1, 4, 8: two tokens are accepted, one recovered, nothing
    left to chance but for e^-20."""
    emitted = _rounds(verifier, {8: 0.0}, 1, rng)
    return np.array_equal(emitted, [[1, 4, 8, -1]])


@criterion
def ordinal_test(verifier: Verifier, rng: np.random.Generator) -> bool:
    """Logits 2 (tokens 1 and 8), 1 (3) and 0 (7): other tokens never, 1 and 8 more often than 3, 3 than 7,
    7 at all. These logits are ours; the original calls its sampler round by round."""
    emitted = _rounds(verifier, {1: 2.0, 3: 1.0, 7: 0.0, 8: 2.0}, ROUNDS, rng)
    if not ((emitted[:, :2] == DRAFTED[:2]).all() and (emitted[:, 3] == -1).all()):
        return False
    counts = tally(emitted[:, 2], VOCAB_SIZE)
    only = counts[[1, 3, 7, 8]].sum() == ROUNDS
    return bool(only and min(counts[1], counts[8]) > counts[3] > counts[7] > 0)


def _rounds(verifier: Verifier, third: dict[int, float], n: int, rng: np.random.Generator) -> Ints:
    """`n` rounds with the draft sure of DRAFTED, the target of its first two, and `third` the logits of its
    third row."""
    q = _logits({1: 10.0}, {4: 10.0}, {5: 10.0}, others=-10.0)
    p = np.concatenate([q[:2], _logits(third, others=-np.inf), np.full((1, VOCAB_SIZE), 1 / VOCAB_SIZE)])
    drafted, target, draft = (np.repeat(rows[None], n, axis=0) for rows in (np.array(DRAFTED), p, q))
    return np.asarray(verifier(drafted, target, draft, rng))


def _logits(*rows: dict[int, float], others: float) -> Floats:
    logits = np.full((len(rows), VOCAB_SIZE), others)
    for i, row in enumerate(rows):
        for token, logit in row.items():
            logits[i, token] = logit
    probabilities: Floats = softmax(logits, axis=1)
    return probabilities
