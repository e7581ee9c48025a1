"""Acceptance against temperature, top-k, top-p and lenience: α is not a property of two models alone.

α_context is the mean over contexts of Σ min(p, q) (Leviathan et al., arXiv 2211.17192, Thm 3.5 and Cor 3.6),
with p and q reshaped as they would be before sampling: by a temperature on both sides or on the target alone,
or by top-k or top-p on both sides; or of Σ min(p/l, q), with lenience l. Each quantity is an exact sum over a
fixed sample of contexts; nothing is drawn.

The n-gram pair has contexts from held-out text, evenly spaced over its pool; a synthetic pair has one context
for each of `PAIRS` seeds, with Σ min(p, q) = `OVERLAP` before anything is reshaped. At temperature 0, or k =
1, α is how often both sides have the same likeliest token; at a high temperature all tokens become alike, and
α goes to 1. Where the target alone is made certain, α is the draft's mean probability of its likeliest token.
"""

from collections.abc import Callable, Iterator

import numpy as np

from experiments import Floats, Progress, Row
from specsim import default_pair
from specsim.distributions import synthetic_pair, temperature, top_k, top_p
from specsim.models._base import shared_contexts
from specsim.theory import acceptance_rate

TITLE = "Acceptance against temperature, top-k, top-p and lenience"

CONTEXTS, FAST_CONTEXTS = 4096, 256
#: Synthetic pairs of each kind, their vocabulary and their overlap as they come.
KINDS = ("zipf", "dirichlet")
PAIRS, FAST_PAIRS = 64, 16
VOCAB_SIZE = 256
OVERLAP = 0.7

TEMPERATURES = tuple(k / 10 for k in range(21))
KS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MASSES = LENIENCES = tuple(k / 20 for k in range(1, 21))

BOTH, TARGET = "both", "target"
#: What is varied, on which sides, its values, and how; temperature 1, k = 256 and mass 1 leave rows as they
#: are.
SETTINGS: tuple[tuple[str, str, tuple[float, ...], Callable[..., Floats]], ...] = (
    ("temperature", BOTH, TEMPERATURES, temperature),
    ("temperature", TARGET, TEMPERATURES, temperature),
    ("top-k", BOTH, KS, top_k),
    ("top-p", BOTH, MASSES, top_p),
    ("lenience", BOTH, LENIENCES, lambda rows, lenience: rows),
)


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each pair, setting and value; `error` is the standard error that contexts drawn at random
    would have."""
    rows: list[Row] = []
    for name, p, q in _pairs(fast):
        for quantity, sides, values, reshape in SETTINGS:
            for value in values:
                reshaped = reshape(p, value), reshape(q, value) if sides == BOTH else q
                lenience = value if quantity == "lenience" else 1.0
                betas = np.asarray(acceptance_rate(*reshaped, lenience=lenience))
                rows.append(
                    {
                        "pair": name,
                        "quantity": quantity,
                        "sides": sides,
                        "value": float(value),
                        "alpha": float(betas.mean()),
                        "error": float(betas.std(ddof=1)) / len(betas) ** 0.5,
                        "contexts": len(betas),
                    }
                )
    return rows


def _pairs(fast: bool) -> Iterator[tuple[str, Floats, Floats]]:
    """Names, and rows [contexts, V] of both sides."""
    target, draft = default_pair()
    contexts = shared_contexts(target, draft)
    some = contexts[:: len(contexts) // (FAST_CONTEXTS if fast else CONTEXTS)]
    yield "n-gram", target.rows(some), draft.rows(some)
    for kind in KINDS:
        pairs = [
            synthetic_pair(kind, VOCAB_SIZE, OVERLAP, rng=seed)
            for seed in range(FAST_PAIRS if fast else PAIRS)
        ]
        p, q = (np.array(side) for side in zip(*pairs, strict=True))
        yield kind, p, q
