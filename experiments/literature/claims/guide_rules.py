"""The guide's rules of thumb: tables of speeds, bands of K, sizes of drafts, batches."""

from __future__ import annotations

from collections.abc import Callable

from experiments.literature.claims.claim import Finding, decide, only_if
from experiments.literature.claims.guide import DOCUMENT, six_to_eight, table_row
from experiments.literature.claims.speed import accepted_share, speed
from specsim.planning.costs import Hardware, Network, Roofline, improvement

TABLE = "8, Empirical Performance Data"

#: The rows of the guide's table: its name here, quote, r, acceptance rates, K, printed speeds.
ROWS = (
    ("speed.table_distil", "DistilGPT-2 → GPT-2 Large … r 0.08 … 0.65 to 0.75 … 2.5x to 3.0x … K: 4 to 6",
     "0.08", (0.65, 0.75), (4, 6), (2.5, 3.0)),
    ("speed.table_medium", "GPT-2 Medium → GPT-2 Large … r 0.45 … 0.80 to 0.90 … 1.6x to 2.0x … K: 3 to 4",
     "0.45", (0.80, 0.90), (3, 4), (1.6, 2.0)),
    ("speed.table_llama", "Llama-2-7B → Llama-2-70B … r 0.10 … 0.75 to 0.85 … 2.8x to 3.5x … K: 5 to 7",
     "0.10", (0.75, 0.85), (5, 7), (2.8, 3.5)),
)  # fmt: skip


def _row(
    name: str,
    quote: str,
    r: str,
    alphas: tuple[float, float],
    ks: tuple[int, int],
    printed: tuple[float, float],
) -> Callable[..., Finding]:
    @DOCUMENT.claim(
        name,
        where=TABLE,
        quote=quote,
        correct="The printed speed fits the printed rates in neither reading of the acceptance rate.",
    )
    def check(printed: tuple[float, float] = printed) -> Finding:
        return table_row(r, alphas, ks, printed)

    return check


TABLE_ROWS = {row[0]: _row(*row) for row in ROWS}

#: Bands of acceptance rates, and the K that the guide recommends for them.
BANDS = (
    ("speed.k_4_6", "between sixty and eighty percent, use K = 4 to 6", (0.6, 0.8), (4, 6)),
    ("speed.k_3_4", "between forty and sixty percent, use K = 3 to 4", (0.4, 0.6), (3, 4)),
    ("speed.k_2_3", "below forty percent, use K = 2 to 3", (0.2, 0.4), (2, 3)),
)


def _band(name: str, quote: str, alphas: tuple[float, float], ks: tuple[int, int]) -> Callable[..., Finding]:
    @DOCUMENT.claim(
        name,
        where="8, Optimal K Selection",
        quote=quote,
        correct="Only for one range of r. The best K depends on the draft's cost as much as on the "
        "acceptance rate.",
    )
    def check(ks: tuple[int, int] = ks, share: float = 0.95) -> Finding:
        return six_to_eight(*alphas, ks, share)

    return check


BAND_CHECKS = {band[0]: _band(*band) for band in BANDS}


@DOCUMENT.claim(
    "speed.step_five",
    where="8, Decision Framework",
    quote="Use the formula: Speedup ≈ (α × K) / (K × r + 1)",
    correct="It leaves out the token that every step emits besides the accepted ones.",
)
def step_five(extra: float = 0.0, k: int = 4, r: float = 0.1) -> Finding:
    """(αK + extra)/(Kr + 1), α being the share of drafted tokens that are accepted."""
    shares = {alpha: accepted_share(alpha, k) for alpha in (0.5, 0.75, 0.9)}
    found = {a: ((s * k + extra) / (k * r + 1), speed(a, k, r)) for a, s in shares.items()}
    shown = ", ".join(f"{one:.2f} in place of {right:.2f} at α = {a}" for a, (one, right) in found.items())
    return decide(
        all(abs(one / right - 1) < 0.05 for one, right in found.values()),
        f"With K = {k}, r = {r} and α read as accepted / drafted it gives {shown}.",
    )


#: A GPU of the kind that the guide's models run on, as its data sheet has it (A100, 40 GB).
A100 = Hardware(1.555e12, 312e12)
#: Llama 2 with 70 and with 7 billion parameters.
LLAMA = (
    Network(70e9, cache_bytes_per_token=2 * 80 * 8 * 128 * 2),
    Network(7e9, cache_bytes_per_token=2 * 32 * 32 * 128 * 2),
)


@DOCUMENT.claim(
    "speed.smaller",
    where="3; 11, Second requirement",
    quote="at least five to ten times smaller … ten times smaller, making it ten times faster",
    correct="Only where passes are bound by reading weights: with long contexts or large batches a pass "
    "also reads caches and computes, and its time is no share of the parameters.",
)
def smaller_is_faster(
    within: float = 0.1, contexts: tuple[int, int] = (128, 8192), batch: int = 32
) -> Finding:
    """r for Llama 2 7B beside 70B at one request, and at `batch` requests, by a roofline."""
    large, small = LLAMA
    share = small.parameters / large.parameters
    one, many = (
        Roofline(large, small, A100, size, context).step_of((1,), 0) - 1.0
        for size, context in ((1, contexts[0]), (batch, contexts[1]))
    )
    return only_if(
        abs(one / share - 1) < within,
        abs(many / share - 1) < within,
        f"A draft with {share:.0%} of the parameters takes {one:.0%} of the time at batch 1 and "
        f"{contexts[0]} tokens of context, {many:.0%} at batch {batch} and {contexts[1]:,} (70 and 7 "
        "billion, one roofline).",
    )


@DOCUMENT.claim(
    "speed.batch",
    where="8, Scenario six",
    quote="Speculative decoding works best with batch size one",
    correct="Only for short contexts. Where caches are what a pass reads, and the draft attends to a part "
    "of the context, the gain grows with the batch (MagicDec, arXiv 2408.11049).",
)
def batch_one(
    contexts: tuple[int, int] = (512, 32_768),
    batches: tuple[int, ...] = (1, 8, 32, 128),
    alpha: float = 0.8,
    k: int = 4,
) -> Finding:
    """The improvement by a roofline, for a target of 8 billion parameters and a draft with a sparse cache."""
    target = Network(8e9, cache_bytes_per_token=2 * 32 * 8 * 128 * 2)
    draft = Network(1.2e9, cache_bytes_per_token=2 * 16 * 8 * 64 * 2)
    gains = {
        context: [
            improvement(Roofline(target, draft, A100, batch, context, draft_context=512), alpha, k)
            for batch in batches
        ]
        for context in contexts
    }
    best = {context: batches[found.index(max(found))] for context, found in gains.items()}
    shown = "; ".join(
        f"{', '.join(f'{gain:.2f}' for gain in found)} at {context:,} tokens of context"
        for context, found in gains.items()
    )
    return only_if(
        best[contexts[0]] == 1,
        best[contexts[1]] == 1,
        f"At batches of {', '.join(map(str, batches))} (α = {alpha}, K = {k}) the speed is {shown}.",
    )


__all__ = ["BAND_CHECKS", "TABLE_ROWS", "batch_one", "smaller_is_faster", "step_five"]
