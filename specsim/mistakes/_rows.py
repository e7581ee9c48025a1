"""Laws of mistakes as functions of rows: arrays [n, V] of target and draft in, laws [n, V] of a token out.

`LAWS` has, by the names of mistakes, the law of the first token of a step. It averages over the drafted
token, which `Mistake.law` is given, and so it serves where only emitted tokens are seen: as alternatives of
tests, and as diagnoses of engines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from specsim.core._types import Floats, Ints, dtype_of
from specsim.core.distributions import temperature as at_temperature


def largest(rows: Floats) -> Floats:
    return rows.max(axis=-1, keepdims=True)


def argmax(rows: Floats, *_: Any, **values: float) -> Floats:
    """All mass on the most probable token of each row."""
    return (rows.argmax(axis=-1, keepdims=True) == np.arange(rows.shape[-1])).astype(rows.dtype)


def normalised(weights: Floats, otherwise: Floats) -> Floats:
    """`weights`, normalised; `otherwise` where they are nothing."""
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=otherwise.copy(), where=total > 0.0)


def excess(p: Floats, q: Floats, *_: Any, **values: float) -> Floats:
    """The residual (p - q)₊."""
    return np.maximum(p - q, 0.0)


def target(p: Floats, *_: Any, **values: float) -> Floats:
    return p


def residual(p: Floats, q: Floats) -> Floats:
    """(p - q)₊, normalised; p where that is nothing."""
    return normalised(excess(p, q), p)


def ratio(p: Floats, q: Floats, **values: float) -> Floats:
    """The chance of accepting: min(1, p/q), which cannot overflow; with q = 0 any token with p > 0 passes."""
    return np.divide(p, q, out=(p > 0.0).astype(np.float64), where=p < q)


def rounded_ratio(p: Floats, q: Floats, dtype: DTypeLike) -> Floats:
    """The ratio of rounded probabilities; where q underflows every token passes."""
    rounded, drafted = (rows.astype(dtype).astype(np.float64) for rows in (p, q))
    return np.divide(rounded, drafted, out=np.ones_like(p), where=rounded < drafted)


def sure_if_close(p: Floats, q: Floats, tolerance: float) -> Floats:
    """The chance of accepting where rows that differ by less than `tolerance` at each id count as equal."""
    return np.where(largest(np.abs(p - q)) < tolerance, 1.0, ratio(p, q))


def above(rows: Floats, fraction: float) -> Floats:
    """min-p: the tokens with at least `fraction` of the largest probability."""
    return np.where(rows >= fraction * largest(rows), rows, 0.0)


def likeliest(rows: Floats, k: float) -> Floats:
    """top-k: the k likeliest tokens of each row, the lowest among ties."""
    return np.where((-rows).argsort(axis=-1, kind="stable").argsort(axis=-1) < k, rows, 0.0)


def in_parts(rows: Floats, parts: float) -> Floats:
    """Normalise the weights of each of `parts` parts of the vocabulary alone."""
    size = rows.shape[-1]
    part = np.arange(size) * int(parts) // size
    sums = rows @ (part[:, None] == np.arange(int(parts)))
    return np.divide(rows, sums[:, part], out=np.zeros_like(rows), where=rows > 0.0)


def with_rounded_ids(rows: Floats, bits: float) -> Floats:
    """The weights of tokens whose ids have `bits` significant bits; the last id is that of all beyond."""
    ids = np.arange(rows.shape[1])
    unit = 2.0 ** np.maximum(np.frexp(ids)[1] - bits, 0)
    return _at_ids(rows, np.minimum(np.rint(ids / unit) * unit, len(ids) - 1).astype(np.int64))


def with_wrapped_ids(rows: Floats, bits: float) -> Floats:
    """The weights of tokens whose ids lose all but their last `bits` bits."""
    return _at_ids(rows, np.arange(rows.shape[1]) % 2 ** int(min(bits, 52)))


def _at_ids(rows: Floats, ids: Ints) -> Floats:
    found = np.zeros_like(rows)
    np.add.at(found.T, ids, rows.T)
    return found


def whole_tiles(rows: Floats, size: float) -> Floats:
    """The weights without those of an incomplete last tile of `size` ids, where anything else is left."""
    kept = np.where(np.arange(rows.shape[1]) < rows.shape[1] // int(size) * size, rows, 0.0)
    return np.where(kept.any(axis=1, keepdims=True), kept, rows)


def in_tiles(rows: Floats, size: float) -> Floats:
    """The rows as tiles [n, tiles, size] of `size` ids, the last one with zeros."""
    (number, ids), size = rows.shape, int(min(size, rows.shape[1]))
    padded = np.pad(rows, ((0, 0), (0, -ids % size)))
    return padded.reshape(number, padded.shape[1] // size, size)


def flat_tiles(tiles: Floats, like: Floats) -> Floats:
    return tiles.reshape(len(like), tiles.shape[1] * tiles.shape[2])[:, : like.shape[1]]


def heaviest_of_tiles(rows: Floats, size: float) -> Floats:
    """What a race draws from whose noise is that of the place in a tile of `size` ids: the heaviest there."""
    tiles = in_tiles(rows, size)
    first = np.arange(tiles.shape[1])[:, None] == tiles.argmax(axis=1)[:, None, :]
    return flat_tiles(np.where(first, tiles, 0.0), rows)


def with_number_of_tile(rows: Floats, size: float) -> Floats:
    """The law of an inverse CDF whose number chooses a tile of `size` ids, and then the id in it."""
    tiles = in_tiles(normalised(rows, rows), size)
    mass = tiles.sum(axis=2, keepdims=True)
    ends = mass.cumsum(axis=1)
    inside = np.divide(tiles, mass, out=np.zeros_like(tiles), where=mass > 0.0)
    below = inside.cumsum(axis=2)
    shared = np.minimum(below, ends) - np.maximum(below - inside, ends - mass)
    return flat_tiles(np.maximum(shared, 0.0), rows)


def in_half_sums(rows: Floats) -> Floats:
    """The weights of tokens in an inverse CDF whose sums are kept in float16, one id after another."""
    sums = rows.astype(np.float16).cumsum(axis=1, dtype=np.float16)
    return np.diff(sums.astype(np.float64), axis=1, prepend=0.0)


def without_small(rows: Floats, least: float) -> Floats:
    """The weights of at least `least`, where there are any."""
    kept = np.where(rows >= least, rows, 0.0)
    return np.where(kept.any(axis=1, keepdims=True), kept, rows)


def on_grid(rows: Floats, bits: float, first: float = 0.0) -> Floats:
    """The share of the points (first + 0, 1, …)·2^-bits that fall to each token in an inverse CDF."""
    return np.diff(np.ceil(normalised(rows, rows).cumsum(axis=1) * 2.0**bits - first), axis=1, prepend=0.0)


def late_race(rows: Floats, bits: float, floored: bool) -> Floats:
    """Who comes first if token y arrives at max(Exp(1), ε)/r(y), ε = 2^-bits, the lowest token among ties.

    It can arrive from ε/r(y) on. At that moment itself it does with probability 1 - e^-ε, and wins if none of
    the likelier ones has come; between two such moments the tokens that can have arrived race as exponentials
    do. Unless `floored` it arrives at (Exp(1) + ε)/r(y), and never at that moment."""
    least, order = 2.0**-bits, np.argsort(-rows, axis=1, kind="stable")
    rates = np.take_along_axis(rows, order, axis=1)
    total, late = rates.cumsum(axis=1), 0.0 if floored else least * np.arange(1, rows.shape[1] + 1)
    with np.errstate(divide="ignore"):
        moments = least / rates
    start = np.exp(late - total * moments)
    end = np.exp(late - total * np.pad(moments[:, 1:], ((0, 0), (0, 1)), constant_values=np.inf))
    won = rates * ((start - end) / total)[:, ::-1].cumsum(axis=1)[:, ::-1]
    if floored:
        won -= np.expm1(-least) * np.exp((rates - total) * moments)
    chances = np.zeros_like(rows)
    np.put_along_axis(chances, order, np.where(rates > 0.0, won, 0.0), axis=1)
    return chances


def without_last_id(rows: Floats) -> Floats:
    """All but the last id, where anything else is left."""
    rows = rows.copy()
    rows[rows[:, :-1].any(axis=1), -1] = 0.0
    return rows


def misaligned(p: Floats, q: Floats, k: float) -> Floats:
    """The difference of p and q, each cut to its k likeliest tokens, entry by entry in the order of ids."""
    count = min(int(k), p.shape[1])
    ids, drafted = (np.sort(np.argsort(-rows, axis=1, kind="stable")[:, :count], axis=1) for rows in (p, q))
    left = np.take_along_axis(p, ids, axis=1) - np.take_along_axis(q, drafted, axis=1)
    weights = np.zeros_like(p)
    np.put_along_axis(weights, ids, np.maximum(left, 0.0), axis=1)
    return weights


def within(rows: Floats, low: Floats | float, high: Floats | float) -> Floats:
    """The law of an inverse-CDF draw from `rows` with a uniform in [low, high); `rows` if that is empty."""
    ends = rows.cumsum(axis=1)
    return normalised(np.maximum(np.minimum(ends, high) - np.maximum(ends - rows, low), 0.0), rows)


@dataclass(frozen=True)
class Pair:
    """The rows of target and draft where a token is drawn."""

    p: Floats
    q: Floats

    @cached_property
    def chance(self) -> Floats:
        return ratio(self.p, self.q)

    @cached_property
    def residual(self) -> Floats:
        return residual(self.p, self.q)

    def emitted(
        self, drafted: Floats | None = None, accepted: Floats | None = None, recovered: Floats | None = None
    ) -> Floats:
        """The law of the first token of a step: `drafted`, `accepted` with these probabilities, else
        `recovered`. What is left out is right."""
        accepted = self.chance if accepted is None else accepted
        kept = (self.q if drafted is None else drafted) * accepted
        left = np.maximum(1.0 - kept.sum(axis=1, keepdims=True), 0.0)
        return kept + left * (self.residual if recovered is None else recovered)

    def without_drafted(self, accepted: Floats) -> Floats:
        """The same, recovered from p without the token that was drafted."""
        p, q = self.p, self.q
        rejected = np.divide(q * (1.0 - accepted), 1.0 - p, out=np.zeros_like(p), where=p < 1.0)
        found = q * accepted + p * (rejected.sum(axis=1, keepdims=True) - rejected)
        return normalised(found, p)  # where p is certain there is nothing else


def draft_numbers_in_check(pair: Pair) -> Floats:
    """The draft is drawn by inverse CDF in the order of ids, and accepted if the same number is below p/q."""
    p, q = pair.p, pair.q
    ends = np.cumsum(q, axis=1)
    kept = np.clip(np.divide(p, q, out=np.zeros_like(p), where=q > 0.0) - (ends - q), 0.0, q)
    return pair.emitted(kept, np.ones_like(p))


def test_uniform_draws(pair: Pair) -> Floats:
    """A draft y is rejected by a number in [p/q, 1), which draws from the residual by inverse CDF."""
    p, q = pair.p, pair.q
    wasted, zero = q > p, np.zeros((len(p), 1))
    low = np.divide(p, q, out=np.full_like(p, np.inf), where=wasted)
    order = np.argsort(low, axis=1)
    drafted, kept = (
        np.hstack([zero, np.cumsum(np.take_along_axis(np.where(wasted, rows, 0.0), order, 1), axis=1)])
        for rows in (q, p)
    )
    ends = np.hstack([zero, np.cumsum(pair.residual, axis=1)])
    below = np.array(
        [np.searchsorted(*row) for row in zip(np.take_along_axis(low, order, 1), ends, strict=True)]
    )
    # the probability that a draft is rejected by a number below an end: the sum of q (end - p/q)₊
    total = ends * np.take_along_axis(drafted, below, 1) - np.take_along_axis(kept, below, 1)
    return np.minimum(p, q) + np.diff(total, axis=1)


def lenient(pair: Pair, lenience: float, recovered: Callable[[Floats, Floats], Floats]) -> Floats:
    """Drafts are accepted with p/(l·q); the residual is recovered(p, l·q)."""
    scaled = lenience * pair.q
    return pair.emitted(accepted=ratio(pair.p, scaled), recovered=recovered(pair.p, scaled))


def cut_at_unlikely(pair: Pair, threshold: float = 0.3) -> Floats:
    """A drafted token of low q is not tested: a token of p comes in its place."""
    kept = np.where(pair.q >= threshold, pair.q, 0.0)
    passed, tested = kept * pair.chance, kept.sum(axis=1, keepdims=True)
    failed = tested - passed.sum(axis=1, keepdims=True)
    return passed + failed * pair.residual + (1.0 - tested) * pair.p


#: law(pair, **values) by the names of mistakes in drafting or verification, and of a bonus.
LAWS: dict[str, Callable[..., Floats]] = {
    "greedy_acceptance": lambda pair: argmax(pair.p),
    "accepts_everything": lambda pair: pair.q,
    "resamples_draft": lambda pair: pair.emitted(recovered=pair.q),
    "resamples_target": lambda pair: pair.emitted(recovered=pair.p),
    "greedy_residual": lambda pair: pair.emitted(recovered=argmax(pair.residual)),
    "greedy_after_nothing": lambda pair: pair.emitted(recovered=argmax(pair.p)),
    "emits_residual": lambda pair: pair.residual,
    "misaligned_residual": lambda pair, k: pair.emitted(
        recovered=normalised(misaligned(pair.p, pair.q, k), pair.p)
    ),
    "one_hot_residual": lambda pair: pair.without_drafted(pair.chance),
    "zeroed_in_place": lambda pair: pair.without_drafted(np.zeros_like(pair.p)),
    "greedy_draft": lambda pair: pair.emitted(argmax(pair.q)),
    "draft_temperature": lambda pair, temperature: pair.emitted(at_temperature(pair.q, temperature)),
    "draft_numbers_in_check": draft_numbers_in_check,
    "test_uniform_draws": test_uniform_draws,
    "float16_ratio": lambda pair: pair.emitted(accepted=rounded_ratio(pair.p, pair.q, np.float16)),
    "bfloat16_ratio": lambda pair: pair.emitted(accepted=rounded_ratio(pair.p, pair.q, dtype_of("bfloat16"))),
    "cuts_at_unlikely": cut_at_unlikely,
    "lenience": lambda pair, lenience: lenient(pair, lenience, lambda *_: pair.residual),
    "scaled_lenience": lambda pair, lenience: lenient(pair, lenience, residual),
    "bonus_argmax": lambda pair: argmax(pair.p),
    "bonus_temperature": lambda pair, temperature: at_temperature(pair.p, temperature),
    "bonus_min_p": lambda pair, fraction: normalised(above(pair.p, fraction), pair.p),
    "bonus_from_draft": lambda pair: pair.q,
    "bonus_from_residual": lambda pair: pair.residual,
    "last_id_never": lambda pair: normalised(without_last_id(pair.p), pair.p),
}


#: How many of the likeliest entries of q a residual knows.
KNOWN = (0, 8, 16, 20, 32, 50, 64, 100, 128, 256, 512, 1000, 1024, 2048, 4096)


@dataclass(frozen=True)
class Parts:
    """What a mistake changes of a step: `accepted(p, q, **values)` gives the chances [n, V] of accepting,
    `recovered(p, q, **values)` and `bonus(p, **values)` weights of its last token; `said` what is special."""

    accepted: Callable[..., Floats] = ratio
    recovered: Callable[..., Floats] = excess
    bonus: Callable[..., Floats] = target
    said: str = ""

    def of_first(self, pair: Pair, **values: float) -> tuple[Floats, Floats]:
        """The law of a step's first token, and the chance of accepting each."""
        chance = pair.chance if self.accepted is ratio else self.accepted(pair.p, pair.q, **values)
        left = pair.residual
        if self.recovered is not excess:
            left = normalised(self.recovered(pair.p, pair.q, **values), left)
        return pair.emitted(accepted=chance, recovered=left), chance

    def of_bonus(self, p: Floats, **values: float) -> Floats:
        return normalised(self.bonus(p, **values), p)


def drawn_from(weights: Callable[..., Floats], said: str = "") -> list[Parts]:
    """The last token is drawn from weights(rows, **values), of (p - q)₊ or of the row of a bonus; then the
    same of recovered tokens alone, and of bonuses alone."""
    both = Parts(recovered=lambda p, q, **values: weights(excess(p, q), **values), bonus=weights, said=said)
    return [
        both,
        replace(both, bonus=target, said=f"{said} Only recovered tokens are wrong."),
        replace(both, recovered=excess, said=f"{said} Only bonuses are wrong."),
    ]


#: Mistakes of some ids: weights(rows, **values) that the last token of a step is drawn from.
OF_IDS: dict[str, Callable[..., Floats]] = {
    "last_id_never": without_last_id,
    "rounded_ids": with_rounded_ids,
    "wrapped_ids": with_wrapped_ids,
    "last_tile_never": whole_tiles,
    "tiles_share_noise": heaviest_of_tiles,
    "likeliest_only": likeliest,
    "tile_number_again": with_number_of_tile,
    "half_sums": in_half_sums,
    "drops_small_weights": without_small,
}
#: Mistakes that many ids show, and few may not: first the catalogue's parts, then those of further versions.
PARTS: dict[str, list[Parts]] = {
    "ratio_epsilon": [
        Parts(lambda p, q, epsilon: ratio(p, q + epsilon)),
        Parts(lambda p, q, epsilon: ratio(p + epsilon, q + epsilon), said=" So it is to p."),
    ],
    "clamped_draft": [Parts(lambda p, q, epsilon: ratio(p, np.maximum(q, epsilon)))],
    "float16_ratio": [Parts(partial(rounded_ratio, dtype=np.float16))],
    "bfloat16_ratio": [Parts(partial(rounded_ratio, dtype=dtype_of("bfloat16")))],
    "coarse_test": [Parts(lambda p, q, bits: np.ceil(ratio(p, q) * 2.0**bits) / 2.0**bits)],
    "coarse_draw": [
        *drawn_from(on_grid),
        *drawn_from(partial(on_grid, first=0.5), " Its values are the middles of cells."),
    ],
    "floored_race": drawn_from(partial(late_race, floored=True)),
    "race_epsilon": drawn_from(partial(late_race, floored=False)),
    "residual_epsilon": [
        Parts(recovered=lambda p, q, epsilon: excess(p, q) + epsilon),
        drawn_from(lambda rows, epsilon: rows + epsilon, " So it is to the rows of bonuses.")[0],
    ],
    "resamples_target": [
        Parts(
            recovered=lambda p, q, k=k: excess(p, likeliest(q, k)),  # the other entries are taken for 0
            said=f" q is known of its {k:,} likeliest ids." * (k > 0),
        )
        for k in KNOWN
    ],
    "accepts_everything": [Parts(lambda p, q: np.ones_like(p))],
    "close_rows_accepted": [Parts(sure_if_close)],
    **{name: drawn_from(weights) for name, weights in OF_IDS.items()},
}
