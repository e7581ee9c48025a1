"""A correct verifier of arrays in NumPy whose parts can be replaced, and its law with the same parts.

A test takes u float[B, γ], the drafted tokens int[B, γ], and p and q float[B, γ, V] at the drafted positions.
A recovered token or a bonus is drawn from p, q float[R, V], with the rejected tokens x int[R]; weights need
not be normalised, and a row of zeros is replaced by p. The parts of the law are those of
`specsim.rules._common.tokenwise.law`, with rows as sequences of Fractions or floats. All parts get the
mutant's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from specsim.core._types import Row
from specsim.core.distributions import Floats, Ints
from specsim.rules._common import tokenwise
from specsim.rules._common.tokenwise import normalise, positive_part

#: The probability of stopping at each node, and the pmf of the token after it.
StepLaw = tuple[list[Any], list[Any]]


def verify(
    draft_tokens: Ints,
    p: Floats,
    q: Floats,
    rng: np.random.Generator,
    *,
    uniforms: Callable[..., Floats] | None = None,
    passes: Callable[..., Any] | None = None,
    recover: Callable[..., Floats] | None = None,
    bonus: Callable[..., Floats] | None = None,
    **values: float,
) -> Ints:
    """Standard verification, each of its parts replaceable: int[B, γ+1], padded with -1."""
    gamma = draft_tokens.shape[1]
    u = (uniforms or independent)(rng, len(p), gamma + 1)
    passed = (passes or ratio_test)(u[:, :gamma], draft_tokens, p[:, :gamma], q, **values)
    accepted = first_failure(passed)
    last = last_token(draft_tokens, p, q, accepted, u[:, gamma], recover, bonus, **values)
    return pack_output(draft_tokens, accepted, last)


def independent(rng: np.random.Generator, steps: int, count: int) -> Floats:
    return rng.random((steps, count))


def round_to(weights: ArrayLike, dtype: DTypeLike) -> Floats:
    """`weights` as a dtype of low precision holds them."""
    return np.asarray(weights, dtype=np.float64).astype(dtype).astype(np.float64)


def at(rows: Floats, tokens: Ints) -> Floats:
    """The entries of rows [B, γ, V] at tokens [B, γ]."""
    return np.take_along_axis(rows, tokens[..., None], axis=2)[..., 0]


def ratio_test(u: Floats, tokens: Ints, p: Floats, q: Floats, **values: float) -> Any:
    """Accept with min(1, p/q)."""
    return u * at(q, tokens) < at(p, tokens)


def first_failure(passed: Any) -> Ints:
    """How many tests [B, γ] pass before the first that does not: int[B]."""
    return np.logical_and.accumulate(passed, axis=1).sum(axis=1)


def excess(p: Floats, q: Floats, x: Ints | None = None, **values: float) -> Floats:
    """The residual (p - q)₊."""
    return np.maximum(p - q, 0.0)


def last_token(
    draft_tokens: Ints, p: Floats, q: Floats, accepted: Ints, u: Floats, *hooks: Any, **values: Any
) -> Ints:
    """The token after `accepted` [B] drafted ones, drawn with u [B]."""
    return draw(last_weights(draft_tokens, p, q, accepted, *hooks, **values), u)


def last_weights(
    draft_tokens: Ints,
    p: Floats,
    q: Floats,
    accepted: Ints,
    recover: Callable[..., Floats] | None = None,
    bonus: Callable[..., Floats] | None = None,
    **values: float,
) -> Floats:
    """What it is drawn from [B, V]: the weights of a recovered token, or of the bonus."""
    gamma = draft_tokens.shape[1]
    weights = p[np.arange(len(p)), accepted]
    rejected = np.flatnonzero(accepted < gamma)
    where = accepted[rejected]
    p_row, q_row, x = weights[rejected], q[rejected, where], draft_tokens[rejected, where]
    left = (recover or excess)(p_row, q_row, x, **values)
    weights[rejected] = np.where(left.any(axis=1, keepdims=True), left, p_row)
    if bonus:
        whole = accepted == gamma
        weights[whole] = bonus(weights[whole], q[whole, gamma - 1], **values)
    return weights


def accept_standard(
    draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """The number of tokens [B] that pass the standard test, and a uniform [B] for the token after them."""
    u = rng.random((len(p), draft_tokens.shape[1] + 1))
    return first_failure(ratio_test(u[:, :-1], draft_tokens, p[:, :-1], q)), u[:, -1]


def draw(weights: Floats, u: Floats) -> Ints:
    """Draw a token from each row of weights [B, V], by inverse CDF."""
    cdf = weights.cumsum(axis=1)
    return (cdf <= u[:, None] * cdf[:, -1:]).sum(axis=1)


def pack_output(draft_tokens: Ints, accepted: Ints, last: Ints) -> Ints:
    """The output [B, γ+1]: the accepted tokens and the last one."""
    steps, gamma = draft_tokens.shape
    output = np.full((steps, gamma + 1), -1)
    output[:, :gamma] = np.where(np.arange(gamma) < accepted[:, None], draft_tokens, -1)
    output[np.arange(steps), accepted] = last
    return output


def minimum_ratio(p: Row, q: Row, x: int, **values: Any) -> Any:
    """The chance of accepting x: min(1, p/q); with q = 0 any token with p > 0 passes."""
    return min(1, p[x] / q[x]) if q[x] else int(p[x] > 0)


def residual(p: Row, q: Row, x: int | None = None, **values: Any) -> list[Any]:
    """(p - q)₊, normalised; p where that is nothing."""
    return positive_part(p, q)


def law(
    accept: Callable[..., Any] = minimum_ratio,
    recovered: Callable[..., Row] = residual,
    bonus: Callable[..., Row] | None = None,
) -> Callable[..., StepLaw]:
    """The law of a verifier that decides each position from its own rows."""
    return tokenwise.law("a mutant", accept, recovered, bonus)


def chain_law(chances: Callable[..., list[Any]], follow: Callable[..., list[Any]]) -> Callable[..., StepLaw]:
    """The law of one that looks at other positions too.

    chances(tokens, p, q, **values) gives the γ probabilities of passing, each given that the ones before
    passed; follow(tokens, p, q, **values) the γ + 1 pmfs of the token after each number of accepted ones."""

    def of_a_step(
        parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row], **values: Any
    ) -> StepLaw:
        tokenwise.require_chain("a mutant", parents)
        return stop_law(chances(tokens, p, q, **values)), follow(tokens, p, q, **values)

    return of_a_step


def normalise_or(weights: Row, otherwise: Row) -> list[Any]:
    """`weights`, normalised; `otherwise` where they are nothing."""
    return normalise(weights) if any(weights) else list(otherwise)


def stop_law(chances: Sequence[Any]) -> list[Any]:
    """The probability of stopping at the first failure, from those of passing."""
    stop, reached = [], 1
    for chance in chances:
        stop.append(reached * (1 - chance))
        reached = reached * chance
    return [*stop, reached]


def within(row: Row, low: Any, high: Any) -> list[Any]:
    """The law of an inverse-CDF draw from `row` with a uniform in [low, high); `row` itself if that is empty."""
    if not low < high:
        return list(row)
    ends = [sum(row[: y + 1]) for y in range(len(row))]
    starts = [0, *ends[:-1]]
    overlap = [max(min(end, high) - max(start, low), 0) for start, end in zip(starts, ends, strict=True)]
    return normalise(overlap)


def one_hot(size: int, token: int) -> list[int]:
    return [int(y == token) for y in range(size)]


def as_given(weights: Iterable[float], like: Row) -> list[Any]:
    """Floats computed with exp, log or rounding, as numbers of the kind of `like`, normalised."""
    return normalise([Fraction(w) if isinstance(like[0], Rational) else w for w in map(float, weights)])


def apply_temperature(row: Row, temperature: Any) -> list[Any]:
    """`row` at a temperature: ∝ row^(1/temperature)."""
    largest = float(max(row))
    return as_given([(float(a) / largest) ** (1.0 / float(temperature)) for a in row], row)
