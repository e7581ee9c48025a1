"""What a criterion is made of, and what criteria share: rounds of a verifier, counts of what it emitted."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np

from experiments import Floats, Ints
from specsim.adapters import Verifier

#: Entries of p and q in one call of a verifier; more rounds than that allows are several calls.
CALL_ENTRIES = 2**25
#: Expected count below which vLLM merges a cell, and DeepSpec may be taken to.
MIN_EXPECTED = 5.0
_TABLE = tomllib.loads(Path(__file__).with_name("criteria.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Criterion:
    """A test of a verification kernel that an engine keeps, as a statistic to run on any verifier.

    `source` is the file or thread where it stands, `about` one sentence on what it draws and asserts.
    `passes(verifier, rng)` is one run: whether the verifier, called with p, q and tokens drafted with `rng`,
    satisfies every assertion. An exception is a failure too; it is not caught here. `repeats` is how many
    runs, each with its own seed, are worth their time where only a fraction of passes is wanted.
    """

    name: str
    source: str
    about: str
    passes: Callable[[Verifier, np.random.Generator], bool] = field(repr=False)
    repeats: int

    def holds(self, verifier: Verifier, seed: int) -> bool:
        """Whether a run passes; an exception is a failure. Its random numbers depend on criterion and seed
        alone, so that all verifiers get the same p and q."""
        rng = np.random.default_rng([crc32(self.name.encode()), seed])
        try:
            return bool(self.passes(verifier, rng))
        except MemoryError:  # this machine's, not the verifier's
            raise
        except Exception:  # the verifier's own, or that of a comparison with what it returned
            return False


def criterion(passes: Callable[[Verifier, np.random.Generator], bool]) -> Criterion:
    """Make a `Criterion` of the function that is one run of it; the rest is in the table criteria.toml."""
    return Criterion(passes=passes, **_TABLE[passes.__name__])


def rounds(verifier: Verifier, p: Floats, q: Floats, n: int, rng: np.random.Generator) -> Ints:
    """What `n` rounds emit [n, γ+1], each with the same rows p [γ+1, V] and q [γ, V], tokens drafted from q.

    One call of the verifier, unless its rows would have more than `CALL_ENTRIES` entries: then several, so
    that one that draws the same numbers in every call is seen to.
    """
    per_call = max(1, CALL_ENTRIES // (p.size + q.size))
    emitted = []
    for first in range(0, n, per_call):
        size = min(per_call, n - first)
        drafted = np.stack([rng.choice(len(row), size=size, p=row) for row in q], axis=1)
        emitted.append(np.asarray(verifier(drafted, _repeated(p, size), _repeated(q, size), rng)))
    return np.concatenate(emitted)


def _repeated(rows: Floats, size: int) -> Floats:
    return np.broadcast_to(rows, (size, *rows.shape)).copy()


def reached(tokens: Ints, position: int) -> Ints:
    """The tokens at `position`, of the rounds that reach it."""
    here: Ints = tokens[(tokens >= 0).sum(axis=1) > position, position]
    return here


def tally(tokens: Ints, vocab_size: int) -> Ints:
    """How often each token occurs. Raises ValueError for one outside the vocabulary, as an index would on a
    device."""
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab_size:
        raise ValueError(f"token {tokens.min()} or {tokens.max()} is outside [0, {vocab_size})")
    return np.bincount(tokens, minlength=vocab_size)


def chi_square_below(tokens: Ints, law: Floats, threshold: Callable[[int], float]) -> bool:
    """Whether Pearson's statistic of `tokens` against `law` [V] stays below `threshold(degrees of freedom)`.

    Cells of expected count below 5 share one, which is left out if it stays below 5 itself: a token that is
    impossible, or that hardly ever occurs, is then not seen. Fewer than two cells pass.
    """
    observed, expected = tally(tokens, len(law)), law * len(tokens)
    enough = expected >= MIN_EXPECTED
    rest = expected[~enough].sum()
    cells, means = observed[enough], expected[enough]
    if rest >= MIN_EXPECTED:
        cells, means = np.append(cells, observed[~enough].sum()), np.append(means, rest)
    if len(cells) < 2:
        return True
    return bool(((cells - means) ** 2 / means).sum() < threshold(len(cells) - 1))
