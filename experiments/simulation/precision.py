"""What rounding costs: the distance from the target of what the standard rule emits when its rows come in few
bits.

An engine hands its verifier rows p̃, q̃ in float32, float16 or bfloat16 in place of p and q. Of one token,
drafted from a distribution d, accepted with min(1, p̃/q̃) and else drawn from (p̃ - q̃)₊, the distribution is

    e(x) = d(x)·min(1, p̃(x)/q̃(x)) + (1 - Σ d·min(1, p̃/q̃)) · (p̃ - q̃)₊(x) / Σ(p̃ - q̃)₊,

and its distance is the total variation from p, the target's row in float64; nothing is drawn. Drafts come

- from q̃, divided by its exact sum: the rule then emits p̃, up to how far the sums are from 1, and what
  remains is the rounding of the target;
- from q, before it was rounded: where a draft samples in one precision and hands over another, an everyday
  mistake;
- or no drafts: p̃ divided by its exact sum, which is what sampling without drafts would emit.

The mistake adds less than the rounding of the target does itself. float16 has more bits than bfloat16 and is
better, until a large vocabulary's tail goes below 2^-14, where it loses them one by one. Rows are rounded
entry by entry; to divide them by their sum and round again would change nothing, since sums are off by less
than half a unit in the last place.

Tests are exact, and strict as in u·q̃ < p̃, so that a draft with q̃ = 0 < p̃ passes. Where no token has p̃ >
q̃, a rejected draft is replaced by one from p̃. Pairs have Σ min(p, q) = `OVERLAP` and tails that fall off as
Zipf's law, or flat ones: the same rows at temperature `FLAT`.
"""

from itertools import product

import numpy as np

from experiments import Floats, Progress, Row
from specsim.core.distributions import round_to
from specsim.distributions import synthetic_pair, temperature

TITLE = "Total variation from rounding rows to float32, float16 and bfloat16"

DTYPES = ("float32", "float16", "bfloat16")
SIZES = (32, 256, 1000, 8000, 32_000, 131_072)
TAILS = ("zipf", "flat")
DRAFTS = ("from the rounded q", "from the unrounded q", "none")

OVERLAP, FLAT = 0.8, 4.0
PAIRS, FAST_PAIRS = 16, 4


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each tail, vocabulary size, dtype and origin of drafts; `tv` is the mean over pairs,
    `largest` the largest of them."""
    rows: list[Row] = []
    for tail, size in product(TAILS, SIZES):
        pairs = [_pair(tail, size, seed) for seed in range(FAST_PAIRS if fast else PAIRS)]
        for dtype in DTYPES:
            distances = np.array([_distances(p, q, dtype) for p, q in pairs])
            rows += [
                {
                    "tail": tail,
                    "vocab_size": size,
                    "dtype": dtype,
                    "drafts": drafts,
                    "tv": float(column.mean()),
                    "largest": float(column.max()),
                    "pairs": len(pairs),
                }
                for drafts, column in zip(DRAFTS, distances.T, strict=True)
            ]
    return rows


def _pair(tail: str, size: int, seed: int) -> tuple[Floats, Floats]:
    p, q = synthetic_pair("zipf", size, OVERLAP, rng=seed)
    return (p, q) if tail == "zipf" else (temperature(p, FLAT), temperature(q, FLAT))


def _distances(p: Floats, q: Floats, dtype: str) -> list[float]:
    """The total variation from p [V] for each of `DRAFTS`."""
    rounded_p, rounded_q = round_to(p, dtype), round_to(q, dtype)
    laws = (
        first_token_law(rounded_p, rounded_q, rounded_q / rounded_q.sum()),
        first_token_law(rounded_p, rounded_q, q),
        rounded_p / rounded_p.sum(),
    )
    return [float(np.abs(law - p).sum()) / 2.0 for law in laws]


def first_token_law(p: Floats, q: Floats, drafts: Floats) -> Floats:
    """The distribution of the token that the standard rule emits for one drafted from `drafts`, judged by
    rows `p` and `q`, which need not sum to 1; all [V]."""
    accepted = drafts * np.where(p < q, p / np.where(q > 0, q, 1.0), p > 0)
    residual = np.maximum(p - q, 0.0)
    residual = residual if residual.any() else p
    return accepted + (1.0 - accepted.sum()) * residual / residual.sum()
