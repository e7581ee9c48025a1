"""A correct verifier of arrays in NumPy whose parts can be replaced.

A test takes u float[B, γ], the drafted tokens x int[B, γ], and p and q float[B, γ, V] at the drafted
positions. A recovered token or a bonus is drawn from p, q float[R, V], with the rejected tokens x int[R];
weights need not be normalised, and a row of zeros is replaced by p. All parts get the mistake's values."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from specsim.core._types import Floats, Ints
from specsim.mistakes._base import Mistake, named
from specsim.mistakes._laws import Row, Rows, StepLaw, as_given, chain_law, ratios
from specsim.mistakes._rows import Parts, drawn_from, excess, ratio, target
from specsim.rules._common.tokenwise import kept_by_rows


def independent(rng: np.random.Generator, steps: int, count: int, **values: float) -> Floats:
    return rng.random((steps, count))


def tests_then_last(rng: np.random.Generator, steps: int, count: int) -> Floats:
    """The uniforms of all tests drawn before those of the last tokens."""
    return np.column_stack([rng.random((steps, count - 1)), rng.random(steps)])


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


def last_success(passed: Any) -> Ints:
    """The number of the last test [B, γ] that passes, from 1; 0 if none does."""
    return (passed * np.arange(1, passed.shape[1] + 1)).max(axis=1)


def mask_drafted(p: Floats, q: Floats, x: Ints, **values: float) -> Floats:
    """p without the drafted tokens."""
    return np.where(np.arange(p.shape[1]) == x[:, None], 0.0, p)


def own_rows(x: Ints, p: Floats, q: Floats, **values: float) -> tuple[Floats, Floats]:
    return p, q


def last_weights(
    draft_tokens: Ints,
    p: Floats,
    q: Floats,
    accepted: Ints,
    recover: Callable[..., Floats] = excess,
    bonus: Callable[..., Floats] = target,
    **values: float,
) -> Floats:
    """What the token after `accepted` [B] ones is drawn from [B, V]: a residual, or the law of the bonus."""
    gamma = draft_tokens.shape[1]
    weights = p[np.arange(len(p)), accepted]
    rejected, whole = np.flatnonzero(accepted < gamma), accepted == gamma
    where = accepted[rejected]
    p_row, q_row, x = weights[rejected], q[rejected, where], draft_tokens[rejected, where]
    left = recover(p_row, q_row, x, **values)
    weights[rejected] = np.where(left.any(axis=1, keepdims=True), left, p_row)
    weights[whole] = bonus(weights[whole], q[whole, gamma - 1], **values)
    return weights


def last_token(
    draft_tokens: Ints, p: Floats, q: Floats, accepted: Ints, u: Floats, *parts: Any, **values: Any
) -> Ints:
    """The token after `accepted` [B] drafted ones, drawn with u [B]."""
    return draw(last_weights(draft_tokens, p, q, accepted, *parts, **values), u)


def draw(weights: Floats, u: Floats) -> Ints:
    """Draw a token from each row of weights [..., V], by inverse CDF."""
    cdf = weights.cumsum(axis=-1)
    return (cdf <= u[..., None] * cdf[..., -1:]).sum(axis=-1)


def race(weights: Floats, noise: Floats) -> Ints:
    """Draw a token from each row of weights [B, V]: the first to arrive, exponential noise over weight."""
    arrival = np.full(weights.shape, np.inf)
    np.divide(noise, weights, out=arrival, where=weights > 0.0)
    return arrival.argmin(axis=1)


def pack_output(draft_tokens: Ints, accepted: Ints, last: Ints) -> Ints:
    """The output [B, γ+1]: the accepted tokens and the last one."""
    steps, gamma = draft_tokens.shape
    output = np.full((steps, gamma + 1), -1)
    output[:, :gamma] = np.where(np.arange(gamma) < accepted[:, None], draft_tokens, -1)
    output[np.arange(steps), accepted] = last
    return output


def verify(
    draft_tokens: Ints,
    p: Floats,
    q: Floats,
    rng: np.random.Generator,
    *,
    uniforms: Callable[..., Floats] = independent,
    passes: Callable[..., Any] = ratio_test,
    count: Callable[[Any], Ints] = first_failure,
    rows: Callable[..., tuple[Floats, Floats]] = own_rows,
    recover: Callable[..., Floats] = excess,
    bonus: Callable[..., Floats] = target,
    pack: Callable[..., Ints] = pack_output,
    **values: float,
) -> Ints:
    """Standard verification, each of its parts replaceable: int[B, γ+1], padded with -1.

    `passes` tests all positions, and `count` says how many tokens that accepts; `rows` gives the rows that
    the last token is drawn from, by `recover` or `bonus`."""
    gamma = draft_tokens.shape[1]
    u = uniforms(rng, len(p), gamma + 1, **values)
    accepted = count(passes(u[:, :gamma], draft_tokens, p[:, :gamma], q, **values))
    p_last, q_last = rows(draft_tokens, p, q, **values)
    last = last_token(draft_tokens, p_last, q_last, accepted, u[:, gamma], recover, bonus, **values)
    return pack(draft_tokens, accepted, last)


STANDARD = verify


def law_of_last_token(
    rows: Callable[..., Any] = own_rows,
    recover: Callable[..., Floats] = excess,
    bonus: Callable[..., Floats] = target,
    chances: Callable[..., Any] = ratios,
) -> Callable[..., StepLaw]:
    """The law of standard tests, and a last token drawn as `verify` draws it with these parts."""

    def after(accepted: Ints, tokens: Sequence[int], p: Rows, q: Rows, **values: float) -> list[Row]:
        """The laws of the token after each of these numbers of accepted ones."""
        x, *given = (np.array([some] * len(accepted)) for some in (tokens, p, q))
        p_last, q_last = rows(x, *(one.astype(float) for one in given), **values)
        numbers = {name: float(value) for name, value in values.items()}
        weights = last_weights(x, p_last, q_last, accepted, recover, bonus, **numbers)
        return [as_given(each, p[n]) for each, n in zip(weights, accepted, strict=True)]

    @kept_by_rows
    def after_one(p: Row, q: Row, x: int, accepted: int, **values: float) -> Row:
        return after(np.array([accepted]), (x,), (p, p), (q,), **values)[0]

    def follow(tokens: Sequence[int], p: Rows, q: Rows, **values: float) -> list[Row]:
        if rows is not own_rows:
            return after(np.arange(len(tokens) + 1), tokens, p, q, **values)
        rejected = [after_one(*one, 0, **values) for one in zip(p, q, tokens, strict=False)]
        return [*rejected, after_one(p[len(tokens)], q[len(tokens) - 1], tokens[-1], 1, **values)]

    law = chain_law(chances, follow)
    law.by_token = rows is own_rows  # type: ignore[attr-defined]  # as in `tokenwise.law`
    return law


def accept_standard(
    draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """The number of tokens [B] that pass the standard test, and a uniform [B] for the token after them."""
    u = rng.random((len(p), draft_tokens.shape[1] + 1))
    return first_failure(ratio_test(u[:, :-1], draft_tokens, p[:, :-1], q)), u[:, -1]


def mistake(
    name: str,
    verify: Callable[..., Any] = verify,
    law: Callable[..., StepLaw] | None = None,
    **parts: Callable[..., Any],
) -> Mistake:
    """Make a mistake of `verify` with these parts replaced; those of the last token alone give its law."""
    if law is None and verify is STANDARD and parts.keys() <= {"rows", "recover", "bonus"}:
        law = law_of_last_token(**parts)
    return named(name, verify=partial(verify, **parts), law=law)


def drawing(parts: Parts) -> dict[str, Any]:
    """The parts of `verify` that draw the last token, and its test if that is not the standard one."""
    found: dict[str, Any] = {
        "recover": lambda p, q, x, **values: parts.recovered(p, q, **values),
        "bonus": lambda p, q, **values: parts.bonus(p, **values),
    }
    if parts.accepted is not ratio:
        found["passes"] = lambda u, x, p, q, **values: u < at(parts.accepted(p, q, **values), x)
    return found


def of_last(name: str, weights: Callable[..., Floats]) -> Mistake:
    """A mistake that draws the last token from weights(rows, **values), those of a residual or a bonus."""
    return mistake(name, **drawing(drawn_from(weights)[0]))
