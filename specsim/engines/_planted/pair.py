"""The distributions of a target and its draft, drawn at random on a grid that half precision holds exactly.

Logits are multiples of 1/16 in [-16, 16], which bfloat16 represents without rounding. A word that never comes
has -inf. Words of a table's row have different logits where the range allows it: which of equally probable
words top-k and top-p keep is each engine's own choice.
"""

import numpy as np

from specsim.core._types import Floats
from specsim.core.distributions import synthetic_pair
from specsim.engines._planted.law import AdditiveLogits, Law, Logits, TableLogits, log_softmax

GRID = 16
#: The largest tables: contexts, and numbers. Larger distributions are additive.
MOST_ROWS = 1024
MOST_ENTRIES = 2**20
#: Range of an additive distribution's logits: the base from -11 to 0, and what is read from -5 to 5.
BASE, READ = 11.0, 5.0

#: Contexts over which the overlap of an additive pair is measured.
TRIED = 64

LogitsPair = tuple[Logits, Logits]


def draw_pair(
    words: int,
    offsets: tuple[int, ...],
    openers: int,
    kind: str,
    overlap: float,
    rng: np.random.Generator,
) -> tuple[Law, Law]:
    """A target and a draft that read the same tokens, with Σ min(p, q) near `overlap` in each context.

    After the words come the id of end-of-text and those of the openers."""
    sizes = (words,) * len(offsets) + (openers,) * (openers > 0)
    contexts = np.prod(sizes, dtype=float)
    fits = contexts <= MOST_ROWS and contexts * words <= MOST_ENTRIES
    logits = (_tables if fits else _additive)(sizes, words, kind, overlap, rng)
    ids = tuple(range(words + 1, words + 1 + openers))
    target, draft = (Law(words + 1 + openers, offsets, ids, one) for one in logits)
    return target, draft


def _tables(
    sizes: tuple[int, ...], words: int, kind: str, overlap: float, rng: np.random.Generator
) -> LogitsPair:
    pairs = np.array([_shuffled_pair(words, kind, overlap, rng, 16.0) for _ in range(int(np.prod(sizes)))])
    target, draft = (_apart(pairs[:, i], 16.0).reshape(*sizes, words) for i in (0, 1))
    return TableLogits(target), TableLogits(draft)


def _additive(
    sizes: tuple[int, ...], words: int, kind: str, overlap: float, rng: np.random.Generator
) -> LogitsPair:
    """Both read the tokens alike. Their bases are those for which the mean overlap is the one asked for."""
    bits = code_bits(max(sizes))
    largest = max(1, int(READ * GRID) // (len(sizes) * bits))
    weights = rng.integers(-largest, largest + 1, size=(words, len(sizes), bits)) / GRID
    seed, contexts = int(rng.integers(2**32)), rng.integers(sizes, size=(TRIED, len(sizes)))

    def made(overlap_of_bases: float) -> LogitsPair:
        bases = _shuffled_pair(words, kind, overlap_of_bases, np.random.default_rng(seed), BASE)
        target, draft = (AdditiveLogits(base, weights) for base in bases)
        return target, draft

    def excess(overlap_of_bases: float) -> float:
        p, q = (np.exp(log_softmax(logits.at(contexts))) for logits in made(overlap_of_bases))
        return float(np.minimum(p, q).sum(axis=1).mean()) - overlap

    if overlap in (0, 1):
        return made(overlap)
    from scipy.optimize import brentq  # imported here: reading a distribution should not load scipy

    return made(brentq(excess, 0.0, 1.0, xtol=2e-3))


def code_bits(numbers: int) -> int:
    """The bits that tell `numbers` numbers apart, at least 1."""
    return max(1, (numbers - 1).bit_length())


def _shuffled_pair(
    words: int, kind: str, overlap: float, rng: np.random.Generator, depth: float
) -> tuple[Floats, Floats]:
    """Logits on the grid of a synthetic pair, its words in random order."""
    order = rng.permutation(words)
    p, q = synthetic_pair(kind, words, overlap, rng=rng)
    return _logits(p[order], depth), _logits(q[order], depth)


def _logits(row: Floats, depth: float) -> Floats:
    """Logarithms of a row relative to its largest entry, on the grid, from -depth on; -inf for 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(row / row.max())
    rounded: Floats = np.round(np.maximum(logs, -depth) * GRID) / GRID
    return np.where(row > 0, rounded, -np.inf)


def _apart(logits: Floats, depth: float) -> Floats:
    """Rows without equal logits: of two words the second is moved down by a step of the grid. A row does
    not change where it would get a logit below -depth."""
    order = np.argsort(-logits, axis=1, kind="stable")
    steps = np.arange(logits.shape[1]) / GRID
    ranked = np.minimum.accumulate(np.take_along_axis(logits, order, 1) + steps, axis=1) - steps
    moved = np.empty_like(logits)
    np.put_along_axis(moved, order, ranked, 1)
    lowest = np.where(np.isfinite(moved), moved, 0.0).min(axis=1, keepdims=True)
    return np.where(lowest >= -depth, moved, logits)
