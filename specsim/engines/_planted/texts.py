"""Texts drawn from a distribution, and the mean acceptance of a draft over them."""

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.engines._planted.law import Law, TableLogits

#: Limits of what is drawn at once: entries of rows, and texts.
MOST_ENTRIES, MOST_TEXTS = 2**20, 1024
#: Tokens of each text in the mean over texts, at least as many as the distribution reaches back.
LEAST_TOKENS = 16


def random_prompts(law: Law, n: int, length: int, rng: np.random.Generator) -> Ints:
    """Prompts [n, length]: an opener where the distribution has some, random words as far as it reads, then
    its text, or random words if it has many, whose rows need not be computed."""
    opening = rng.integers(law.words, size=(n, max(1, law.start)))
    if law.openers:
        opening[:, 0] = rng.choice(law.openers, size=n)
    rest = length - opening.shape[1]
    if isinstance(law.logits, TableLogits):
        return continued(law, opening, rest, rng)
    return np.concatenate([opening, rng.integers(law.words, size=(n, rest))], axis=1)


def continued(law: Law, texts: Ints, count: int, rng: np.random.Generator) -> Ints:
    """`texts` [n, T], T ≥ `law.start`, each with `count` more tokens of the distribution."""
    n, length = texts.shape
    found = np.concatenate([texts, np.empty((n, count), dtype=np.int64)], axis=1)
    for place in range(length, length + count):
        sums = law.rows(law.contexts_at(found, place)).cumsum(axis=1)
        found[:, place] = (sums > rng.random((n, 1)) * sums[:, -1:]).argmax(axis=1)
    return found


def mean_overlap(target: Law, draft: Law, rng: np.random.Generator) -> tuple[float, str]:
    """The mean of Σ min(p, q) over contexts of the target's text, and which mean it is: of the stationary
    distribution where all contexts of the last tokens fit into a table, else of sampled texts."""
    last = target.offsets == tuple(range(1, target.order + 1)) and not (target.memory or target.experts)
    if isinstance(target.logits, TableLogits) and last:
        return _stationary_mean(target, draft), "the stationary distribution of contexts"
    n = max(8, min(MOST_TEXTS, MOST_ENTRIES // target.words))
    tokens = max(LEAST_TOKENS, target.order)
    texts = continued(target, random_prompts(target, n, max(1, target.start), rng), 2 * tokens, rng)
    found = [overlaps(target, draft, target.contexts_at(texts, -place)) for place in range(1, tokens + 1)]
    return min(1.0, float(np.mean(found))), f"{n * tokens:,} contexts of sampled texts"


def overlaps(target: Law, draft: Law, contexts: Ints) -> Floats:
    """Σ min(p, q) [N] in each of the contexts [N, k]."""
    return np.minimum(target.rows(contexts), draft.rows(contexts)).sum(axis=1)


def _stationary_mean(target: Law, draft: Law) -> float:
    """The mean over the stationary distribution of the contexts after each opener, all openers alike.

    A lazy chain has the same stationary distribution, and converges although the target may be periodic."""
    order, openers = target.order, np.array(target.openers, dtype=np.int64)
    sizes = (target.words,) * order + (len(openers),) * bool(len(openers))
    contexts = np.indices(sizes).reshape(len(sizes), int(np.prod(sizes))).T
    if len(openers):
        contexts[:, -1] = openers[contexts[:, -1]]
    rows = target.rows(contexts)[:, : target.words].reshape(*sizes, target.words)
    weights = np.full(sizes, 1 / len(contexts))
    for _ in range(10_000 if order else 0):
        after = np.moveaxis((weights[..., None] * rows).sum(axis=order - 1), -1, 0)
        change = np.abs(after - weights).max()
        weights = (weights + after) / 2
        if change < 1e-15:
            break
    # rows of equal distributions add up to 1 but for rounding
    return min(1.0, float(weights.ravel() @ overlaps(target, draft, contexts)))
