"""Probability rows, pmfs over a vocabulary: checks, reshaping, rounding, sampling and synthetic pairs.

The rows of a user must sum to 1 up to the rounding of their own dtype (`TOLERANCE`) and are then taken as
float64. A larger deviation is an error that states its size; rows are never renormalised silently. Rows that
are no pmfs, and numbers out of range, raise ValueError."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from specsim.core import _types
from specsim.core._files import read_table
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Ints, array_of, check_between, check_count, checked, dtype_of

#: What numbers that are no probabilities may be.
LOGITS = "; if these are logits, give their softmax"
#: How far from 1 a row's sum may be, by dtype. Rounding each entry of a normalised row moves its sum by at
#: most half an ulp of 1; the rest is room for a softmax that was itself computed in that dtype.
TOLERANCE: dict[np.dtype[Any], float] = {dtype_of(k): v for k, v in read_table("kinds")["tolerances"].items()}


def check_rows(rows: ArrayLike, name: str = "p") -> Floats:
    """Check probability rows, and return them as float64 rows that sum to 1.

    Each row [..., V] is divided by its sum, which must be within `TOLERANCE` of 1 for the dtype of `rows`;
    integers and Python floats count as float64. Raises TypeError unless they are real numbers, and
    ValueError, naming the rows `name`, the row, the token and the value."""
    array = _as_real(rows, name)
    values = check_probabilities(array, name)
    with np.errstate(over="ignore"):
        totals = values.sum(axis=-1)
    tolerance = TOLERANCE[array.dtype]
    off = np.abs(totals - 1.0) > tolerance
    if off.any():
        row = _first(off)
        total, logits = totals[row], LOGITS if values.max() > 1 + tolerance else ""
        raise ValueError(
            f"{name}{row_place(row)}: sums to {total:.12g}, off by {total - 1.0:.2g} ({array.dtype.name} "
            f"rounding allows {tolerance:.2g}); if the weights are meant, pass normalise({name}){logits}"
        )
    return values / totals[..., None]


def check_probabilities(rows: ArrayLike, name: str = "p") -> Floats:
    """As `check_rows`, for numbers [..., V] of any sum, which is not touched."""
    array = _as_real(rows, name)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"{name}: shape {array.shape} has no vocabulary axis; expected [..., V] with V ≥ 1")
    values = array.astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0.0))
    if bad.any():
        *row, token = _first(bad)
        place = f"{name}{row_place(row)}, token {token}"
        what = f"{values[(*row, token)]} is not a probability; give finite numbers ≥ 0"
        raise ValueError(f"{place}: {what}{LOGITS if np.isfinite(values).all() else ''}")
    return values


def check_tokens(tokens: ArrayLike, vocab_size: int, name: str = "draft_tokens") -> Ints:
    """`tokens` as int64 ids in [0, vocab_size). Raises TypeError or ValueError, naming the place."""
    check_count("vocab_size", vocab_size)
    array = array_of(name, tokens, "lists", "a rectangular array")
    if array.size == 0:
        return array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name}: expected integer token ids, got {array.dtype}")
    bad = (array < 0) | (array >= vocab_size)
    if bad.any():
        place = _first(bad)
        token = f"{name}, position {_index(place)}: token {array[place]}"
        raise ValueError(f"{token} is outside the vocabulary [0, {vocab_size}); give ids in it")
    return array.astype(np.int64)


def _as_real(rows: ArrayLike, name: str) -> NDArray[Any]:
    array = array_of(name, rows, wanted="a rectangular array")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype not in TOLERANCE:
        raise TypeError(f"{name}: expected real probabilities, got an array of {array.dtype}")
    return array


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _index(place: tuple[int, ...]) -> str:
    return str(place[0]) if len(place) == 1 else str(place)


def row_place(row: Sequence[int]) -> str:
    """Where a row is, in an error: nothing if it is the only one."""
    return f", row {_index(tuple(row))}" if row else ""


@checked
def normalise(weights: ArrayLike) -> Floats:
    """Divide weights by their sums.

    Parameters
    ----------
    weights : array_like, shape [..., V]
        Finite numbers ≥ 0.

    Returns
    -------
    ndarray of float64, shape [..., V]

    Raises
    ------
    ValueError
        If a number is negative or not finite, or a row has no mass.

    Examples
    --------
    >>> normalise([3, 1])
    array([0.75, 0.25])
    """
    values = check_probabilities(weights, "weights")
    largest = values.max(axis=-1, keepdims=True)
    if (largest == 0.0).any():
        row = row_place(_first(largest[..., 0] == 0.0))
        raise ValueError(f"weights{row}: no mass to normalise; give a number above 0")
    values = values / largest  # so that no sum overflows
    return values / values.sum(axis=-1, keepdims=True)


@checked
def temperature(p: ArrayLike, t: float) -> Floats:
    """Give rows at another temperature: ∝ p^(1/t), the softmax(logits / t) of the logits of p.

    Parameters
    ----------
    p : array_like, shape [..., V]
        Rows at temperature 1.
    t : float
        Temperature ≥ 0; 0 gives the argmax, the lowest token among ties.

    Returns
    -------
    ndarray of float64, shape [..., V]

    Examples
    --------
    >>> temperature([0.8, 0.2], 0.5).round(4)
    array([0.9412, 0.0588])
    """
    rows = check_rows(p)
    check_between("temperature", t, 0, math.inf, "finite number")
    if t == 0:
        return (rows.argmax(axis=-1, keepdims=True) == np.arange(rows.shape[-1])).astype(np.float64)
    # relative to the largest entry, so that a low temperature underflows to 0 and never to 0/0
    return normalise((rows / rows.max(axis=-1, keepdims=True)) ** (1.0 / t))


@checked
def top_k(p: ArrayLike, k: int) -> Floats:
    """Keep the k most probable tokens of each row, and ties with the k-th; renormalise.

    Parameters
    ----------
    p : array_like, shape [..., V]
        Rows.
    k : int
        At least 1.

    Returns
    -------
    ndarray of float64, shape [..., V]

    Examples
    --------
    >>> top_k([0.5, 0.3, 0.2], 2)
    array([0.625, 0.375, 0.   ])
    """
    rows = check_rows(p)
    check_count("k", k)
    kth = np.sort(rows, axis=-1)[..., -min(k, rows.shape[-1])]
    return normalise(np.where(rows >= kth[..., None], rows, 0.0))


@checked
def top_p(p: ArrayLike, mass: float) -> Floats:
    """Keep each row's smallest set of most probable tokens whose mass reaches `mass`; renormalise.

    Holtzman et al., "The curious case of neural text degeneration", arXiv 1904.09751 (nucleus sampling).

    Parameters
    ----------
    p : array_like, shape [..., V]
        Rows.
    mass : float
        In (0, 1]. The token that crosses `mass` is kept; 1 keeps all.

    Returns
    -------
    ndarray of float64, shape [..., V]

    Examples
    --------
    >>> top_p([0.5, 0.3, 0.2], 0.6)
    array([0.625, 0.375, 0.   ])
    """
    rows = check_rows(p)
    check_between("top_p", mass, 0, 1, "share of the mass", "(]")
    if mass == 1:  # the sums below would lose the rarest tokens to rounding
        return rows
    order = np.argsort(-rows, axis=-1, kind="stable")
    ranked = np.take_along_axis(rows, order, axis=-1)
    kept = np.empty(rows.shape, dtype=bool)
    np.put_along_axis(kept, order, np.cumsum(ranked, axis=-1) - ranked < mass, axis=-1)
    return normalise(np.where(kept, rows, 0.0))


@checked
def min_p(p: ArrayLike, fraction: float) -> Floats:
    """Keep the tokens with at least `fraction` of the row's largest probability; renormalise.

    Nguyen et al., "Min-p sampling", arXiv 2407.01082.

    Parameters
    ----------
    p : array_like, shape [..., V]
        Rows.
    fraction : float
        In [0, 1].

    Returns
    -------
    ndarray of float64, shape [..., V]

    Examples
    --------
    >>> min_p([0.5, 0.3, 0.2], 0.5)
    array([0.625, 0.375, 0.   ])
    """
    rows = check_rows(p)
    check_between("min_p", fraction, 0, 1, "share of the largest probability")
    return normalise(np.where(rows >= fraction * rows.max(axis=-1, keepdims=True), rows, 0.0))


@checked
def round_to(p: ArrayLike, dtype: DTypeLike) -> Floats:
    """Round each entry of the rows `p` to float64, float32, float16 or bfloat16, without renormalising."""
    try:
        wanted = dtype_of(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except Exception:  # of an object NumPy asks for whatever it has
        wanted = None
    if wanted not in TOLERANCE:
        known = ", ".join(one.name for one in TOLERANCE)
        raise ValueError(f"dtype: {dtype} is unknown; give one of {known}")
    return check_rows(p).astype(wanted).astype(np.float64)


@checked
def dyadic(p: ArrayLike, bits: int = 24) -> Floats:
    """Find the nearest rows of multiples of 2^-bits that sum to exactly 1, in any order of summation.

    With bits = 24 such rows are exact in float32 too, so that a verifier is judged without rounding in its
    input. Largest remainders are rounded up, as in an apportionment.

    Parameters
    ----------
    p : array_like, shape [..., V]
        Rows.
    bits : int
        In [1, 52].

    Returns
    -------
    ndarray of float64, shape [..., V]

    Examples
    --------
    >>> dyadic([1 / 3, 2 / 3], bits=2)
    array([0.25, 0.75])
    """
    rows = check_rows(p)
    check_count("bits", bits, 1, 52)
    scaled = rows * 2.0**bits
    floors = np.floor(scaled)
    missing = (2.0**bits - floors.sum(axis=-1)).astype(np.int64)
    order = np.argsort(-(scaled - floors), axis=-1, kind="stable")
    raised = np.empty(order.shape, dtype=bool)
    np.put_along_axis(raised, order, np.arange(order.shape[-1]) < missing[..., None], axis=-1)
    return (floors + raised) / 2.0**bits


@checked
def capped_ratio(p: Floats, q: Floats | float) -> Floats:
    """min(1, p/q) of numbers ≥ 0, and 1 where q = 0; q is one number, or one for each of p."""
    if np.ndim(q) and np.shape(p) != np.shape(q):
        raise ValueError(f"q: shape {np.shape(q)}, and p has {np.shape(p)}; give one number, or one for each")
    if np.ndim(q) == 0 and np.asarray(p).dtype != object:  # of Fractions the ratio is one
        q = float(q)
    return np.divide(p, q, out=np.ones_like(p), where=q > p)


@inner_kernel
def copy_row(row, into):
    """Fill into[V] with row[V], which `into[:] = row` does too; for that numba compiles an error message."""
    for x in range(into.size):
        into[x] = row[x]


@inner_kernel
def is_zero(weights):
    """Whether no weight is positive; numba compiles this faster than `weights.max()`."""
    for x in range(weights.size):  # noqa: SIM110
        if weights[x] > 0.0:
            return False
    return True


@inner_kernel
def total_of(weights):
    """The sum of weights[V], in their order on every machine; inner kernels cannot call `weights.sum()`."""
    total = 0.0
    for x in range(weights.size):
        total += weights[x]
    return total


@inner_kernel
def cumulative_draw(weights, u):
    """Inverse CDF: the first token whose cumulative weight exceeds u · (sum of weights), with u in [0, 1).

    The weights ≥ 0 [V] have positive mass. A token of weight 0 is never drawn, also where rounding makes the
    running sum end below u · total."""
    goal = u * total_of(weights)
    running = 0.0
    last = 0
    for x in range(weights.size):
        if weights[x] > 0.0:
            running += weights[x]
            last = x
            if running > goal:
                break
    return last


def inverse_cdf(weights: Sequence[float], u: float) -> int:
    """`cumulative_draw` in plain Python, of floats or Fractions."""
    sums = list(accumulate(weights))
    goal, possible = u * sums[-1], [x for x, weight in enumerate(weights) if weight > 0]
    return next((x for x in possible if sums[x] > goal), max(possible, default=-1))


def alias_table(weights: ArrayLike) -> Ints:
    """Walker's alias table of weights ≥ 0 [V] of positive mass, to sample from at constant cost.

    A uniform picks a column and a coin; below the column's threshold the draw is the column itself, else its
    alias. The int64 words [V] are threshold (31 bits) · 2^32 + alias, so that a look-up is one load.
    Thresholds of 31 bits move the distribution by at most 2^-31 in total variation, uniforms of 42 bits by at
    most V·2^-42 more. A token of weight 0 is never drawn."""
    shares = normalise(weights)
    if shares.ndim != 1:
        raise ValueError(f"weights: shape {shares.shape}; expected one number for each token, [V]")
    thresholds, aliases = alias_columns(shares * shares.size, 1.0)
    return np.floor(thresholds.clip(max=1.0 - 2.0**-31) * 2.0**31).astype(np.int64) << 32 | aliases


def alias_columns(shares: NDArray[Any], full: Any) -> tuple[NDArray[Any], Ints]:
    """Thresholds and aliases of the columns of an alias table, from shares of mean `full`.

    Light columns take what they lack from the heavy ones in order, and a heavy column that has given too much
    takes it from the next, in one sweep that is written with prefix sums; of integers without rounding. A
    full column is its own alias. Hübschle-Schneider & Sanders, "Parallel weighted random sampling", 2022,
    section 4."""
    light, heavy = np.flatnonzero(shares < full), np.flatnonzero(shares >= full)
    thresholds, aliases = np.minimum(shares, full), np.arange(shares.size)
    if heavy.size == 0:  # all equal but for rounding
        return np.full_like(shares, full), aliases
    lacking, spare = np.cumsum(full - thresholds[light]), np.cumsum(shares[heavy] - full)
    before = np.append(np.zeros_like(lacking[:1]), lacking[:-1])
    taken = np.diff(np.searchsorted(before, spare), prepend=0, append=before.size)  # columns from each
    aliases[light] = heavy[np.repeat(np.arange(heavy.size + 1), taken).clip(max=heavy.size - 1)]
    # the light column that overdraws each heavy one, unless it began with the next
    taker = np.searchsorted(lacking, spare[:-1], side="right")
    over = np.flatnonzero(np.append(before, spare[-1:])[taker] < spare[:-1])
    thresholds[heavy[over]] = (full - (lacking[taker[over]] - spare[over])).clip(min=0)
    aliases[heavy[over]] = heavy[over + 1]
    itself = thresholds >= full
    aliases[itself] = np.flatnonzero(itself)
    return thresholds, aliases


@kernel
def alias_draws(table, u, drawn):
    """Fill `drawn` [S] (int32) with draws from an alias table, with uniforms u[S] in [0, 1).

    Arithmetic and look-ups are separate loops, so that the compiler vectorises the first: it is in 32 bits,
    to which vector instructions convert floats. Neither has a branch, which would be mispredicted: the index
    is unsigned, so that it cannot count from the end, and the choice of the alias is a conditional move."""
    coin = np.empty(u.size, np.int32)
    for s in range(u.size):
        scaled = u[s] * table.size
        column = np.int32(scaled)
        drawn[s] = column
        coin[s] = np.int32((scaled - column) * 2147483648.0)
    for s in range(u.size):
        word = table[np.uint64(drawn[s])]
        drawn[s] = drawn[s] if coin[s] < word >> 32 else np.int32(word & 0xFFFFFFFF)


#: The shapes of `synthetic_pair`, each with the case that it covers.
PAIR_KINDS: dict[str, str] = read_table("kinds")["pairs"]


@checked
def synthetic_pair(
    kind: str = "zipf",
    vocab_size: int = 1000,
    overlap: float = 0.8,
    *,
    rng: int | np.random.Generator | None = None,
) -> tuple[Floats, Floats]:
    """Make a target p and a draft q with a given overlap Σ min(p, q).

    p ∝ f·σ(κz) and q ∝ f·σ(-κz), where f is the shape of `kind`, σ the logistic function, z a random score
    for each token, and κ ≥ 0 is solved for. So the ratio p/q takes many values, both rows keep the shape f,
    and for κ = ∞ the sign of z splits the vocabulary.

    Parameters
    ----------
    kind : str
        One of `PAIR_KINDS`.
    vocab_size : int
        V ≥ 2.
    overlap : float
        From 1 (identical) to 0 (disjoint).
    rng : int, Generator or None
        Draws the scores, and f where `kind` says so.

    Returns
    -------
    p, q : ndarray of float64, shape [V]

    Raises
    ------
    ValueError
        For an unknown `kind`, and numbers out of range.

    Examples
    --------
    >>> p, q = synthetic_pair("geometric", vocab_size=8, overlap=0.6)
    >>> round(float(np.minimum(p, q).sum()), 9)
    0.6
    """
    if kind not in PAIR_KINDS:
        raise ValueError(f"kind: unknown kind {kind!r}; one of {', '.join(PAIR_KINDS)}")
    check_between("overlap", overlap, 0, 1, "sum of min(p, q)")
    check_count("vocab_size", vocab_size, 2, _types.MOST_TOKENS)
    if kind == "one-hot":
        q = np.zeros(vocab_size)
        q[0] = 1.0
        others = (1.0 - overlap) * normalise(0.75 ** np.arange(vocab_size - 1.0))
        return normalise(np.concatenate([[overlap], others])), q
    if not isinstance(rng, int | np.integer | np.random.Generator | None):
        raise TypeError(f"rng: expected an int, a Generator or None, got {type(rng).__name__}")
    if isinstance(rng, int | np.integer) and rng < 0:
        raise ValueError("rng: a negative seed; give an integer of at least 0")
    generator = np.random.default_rng(rng)
    f = _shape(kind, vocab_size, generator)
    z = _scores(kind, vocab_size, generator)
    if overlap == 1:
        return f, f.copy()
    if overlap == 0:
        return normalise(f * (z > 0)), normalise(f * (z < 0))
    return _tilted(f, z, _solve_tilt(f, z, overlap))


def _shape(kind: str, vocab_size: int, rng: np.random.Generator) -> Floats:
    if kind == "geometric":
        return normalise(0.75 ** np.arange(float(vocab_size)))
    if kind == "dirichlet":
        return normalise(rng.gamma(0.5, size=vocab_size))
    if kind == "two-point":
        return np.concatenate([[2 / 3, 1 / 3], np.zeros(vocab_size - 2)])
    return normalise(np.arange(1.0, vocab_size + 1.0) ** -1.1)


def _scores(kind: str, vocab_size: int, rng: np.random.Generator) -> Floats:
    """Scores in (-1, 1) without 0. The first two differ in sign, so that both halves of a split have mass."""
    scores = rng.uniform(0.05, 1.0, vocab_size)
    if kind == "asymmetric":
        scores *= 0.2
        scores[0] = -1.0
        return scores
    if kind == "near-equal":
        scores[:] = 0.5
    scores *= rng.choice([-1.0, 1.0], vocab_size)
    scores[:2] = np.abs(scores[:2]) * [1.0, -1.0]
    return scores


def _tilted(f: Floats, z: Floats, kappa: float) -> tuple[Floats, Floats]:
    small = np.exp(-kappa * np.abs(z))  # without overflow
    more = f / (1.0 + small)
    less = small * more
    return normalise(np.where(z > 0, more, less)), normalise(np.where(z > 0, less, more))


def _solve_tilt(f: Floats, z: Floats, overlap: float) -> float:
    def lack(kappa: float) -> float:
        return overlap - float(np.minimum(*_tilted(f, z, kappa)).sum())

    upper, parts = 1.0, 2**52
    while lack(upper) < 0.0:
        upper *= 2.0
    # by halving: scipy's solvers take longer to load
    return upper * bisect_left(range(parts), 0.0, key=lambda n: lack(upper * n / parts)) / parts
