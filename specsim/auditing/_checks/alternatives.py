"""Alternatives of a case's pooled e-value: what a token's law would be under known kinds of mistakes.

A kind of mistake is a function of the rows of target and draft where the token is drawn, and happens at some
share of the tokens. That covers small values of its parameter too: for example the law of a lenience of .95
is close to a mixture of the target's law and that of a lenience of .5. Against these a test needs about twice
the sample size of the most powerful one, whatever the number of cells; a Dirichlet mixture, which has all
alternatives, needs more with each cell."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from specsim.core._types import Floats
from specsim.core.distributions import bfloat16, round_to, temperature

#: Temperatures on one side only, and the lenience of the alternatives.
TEMPERATURES, LENIENCE = (0.7, 1.4), 0.5
#: Probabilities, relative to the largest, below which the alternatives cut a bonus.
BONUS_CUTS = (0.1, 0.3)
#: Probability of the draft below which they discard its last token, and tokens that they cut both rows to.
UNLIKELY, LIKELIEST = 0.3, 2


def alternatives_of_draft(p: Floats, q: Floats, least: Floats, last: bool) -> Iterator[Floats]:
    """The laws [n, V] of a token after rows p and q [n, V], for each kind of mistake in drafting or
    verification.

    `least` [n, 1] is the least ratio of p to q of the drafted tokens before it, at most 1; `last` says that
    no drafted token follows."""
    chance, left = _ratio(p, q), _residual(p, q)
    for value in TEMPERATURES:  # of the rows that are drawn from, not of those that are handed over
        yield _emitted(temperature(q, value), chance, left)
    yield _emitted(_argmax(q), chance, left)
    tested = (q * chance).sum(axis=1, keepdims=True)
    for recovered in (
        p,
        _argmax(left),
        _within(left, tested, 1.0),
        _within(left, 0.0, 1.0 - tested),
        _difference_of_likeliest(p, q),
    ):
        yield _emitted(q, chance, recovered)
    yield _emitted(q, np.minimum(chance, least) / least, left)  # one uniform tests all tokens of the step
    for dtype in (np.float16, bfloat16):
        yield _emitted(q, _rounded_ratio(p, q, dtype), left)
    for passed in (chance, np.zeros_like(p)):
        yield _without_drafted(p, q, passed)
    kept = q * (q >= UNLIKELY)
    yield _emitted(kept, chance, left) + (q - kept).sum(axis=1, keepdims=True) * (p - left) if last else p
    accepted = _ratio(p, LENIENCE * q)
    for recovered in (left, _residual(p, LENIENCE * q)):
        yield _emitted(q, accepted, recovered)
    yield _emitted(q, _argmax(p), left)
    yield _emitted(q, (p > _largest(p) / 10.0).astype(np.float64), left)
    yield q


def alternatives_of_bonus(p: Floats, q: Floats | None) -> Iterator[Floats]:
    """The laws [n, V] of a bonus, of rows p; q are the rows before it, None if there are none."""
    yield _argmax(p)
    yield _normalised(np.where(np.arange(p.shape[1]) < p.shape[1] - 1, p, 0.0), p)  # never the last token
    yield _within(p, 0.0, 0.5)
    for fraction in BONUS_CUTS:
        yield _normalised(np.where(p >= fraction * _largest(p), p, 0.0), p)
    for value in TEMPERATURES:
        yield temperature(p, value)
    yield p if q is None else q
    yield p if q is None else _residual(p, q)


def alternatives(
    p: Floats, q: Floats | None, before: Floats | None, least: Floats | None = None, last: bool = False
) -> Floats:
    """The laws [n, M, V] of a token after each of the rows p [n, V] under each kind of mistake; p itself
    where it does not apply.

    q are the draft's rows, None at the bonus, which the rows `before` precede. `least` [n], 1 by default, and
    `last` are as in `alternatives_of_draft`."""
    everywhere = [temperature(p, value) for value in TEMPERATURES]
    ratio = np.ones((len(p), 1)) if least is None else least[:, None]
    of_draft = [p] * DRAFT if q is None else list(alternatives_of_draft(p, q, ratio, last))
    of_bonus = [p] * BONUS if q is not None else list(alternatives_of_bonus(p, before))
    return np.stack([*everywhere, *of_draft, *of_bonus], axis=1)


def _largest(rows: Floats) -> Floats:
    largest: Floats = rows.max(axis=1, keepdims=True)
    return largest


def _argmax(rows: Floats) -> Floats:
    found = np.zeros_like(rows)
    np.put_along_axis(found, rows.argmax(axis=1, keepdims=True), 1.0, axis=1)
    return found


def _normalised(weights: Floats, otherwise: Floats) -> Floats:
    """`weights`, normalised; `otherwise` where they are nothing."""
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=otherwise.copy(), where=total > 0.0)


def _within(rows: Floats, low: Floats | float, high: Floats | float) -> Floats:
    """The law of an inverse-CDF draw from `rows` with a uniform in [low, high), tested before."""
    ends = rows.cumsum(axis=1)
    return _normalised(np.maximum(np.minimum(ends, high) - np.maximum(ends - rows, low), 0.0), rows)


def _difference_of_likeliest(p: Floats, q: Floats) -> Floats:
    """The residual of rows that are each cut to their likeliest tokens, entry by entry although ids
    differ."""
    ids, drafted = (
        np.sort(np.argsort(-rows, axis=1, kind="stable")[:, :LIKELIEST], axis=1) for rows in (p, q)
    )
    left = np.take_along_axis(p, ids, axis=1) - np.take_along_axis(q, drafted, axis=1)
    weights = np.zeros_like(p)
    np.put_along_axis(weights, ids, np.maximum(left, 0.0), axis=1)
    return _normalised(weights, p)


def _residual(p: Floats, q: Floats) -> Floats:
    return _normalised(np.maximum(p - q, 0.0), p)


def _ratio(p: Floats, q: Floats) -> Floats:
    return np.divide(p, q, out=(p > 0.0).astype(np.float64), where=p < q)


def _rounded_ratio(p: Floats, q: Floats, dtype: DTypeLike) -> Floats:
    """The ratio of rounded probabilities; where q underflows every token passes."""
    rounded, drafted = round_to(p, dtype), round_to(q, dtype)
    return np.divide(rounded, drafted, out=np.ones_like(p), where=rounded < drafted)


def _emitted(drafted: Floats, accepted: Floats, recovered: Floats) -> Floats:
    """The law of a token that is `drafted`, `accepted` with these probabilities, else `recovered`."""
    kept = drafted * accepted
    found: Floats = kept + (1.0 - kept.sum(axis=1, keepdims=True)) * recovered
    return found


def _without_drafted(p: Floats, q: Floats, accepted: Floats) -> Floats:
    """The same, recovered from p without the token that was drafted."""
    rejected = np.divide(q * (1.0 - accepted), 1.0 - p, out=np.zeros_like(p), where=p < 1.0)
    found = q * accepted + p * (rejected.sum(axis=1, keepdims=True) - rejected)
    return _normalised(found, p)  # where p is certain there is nothing else


_EXAMPLE = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
#: How many kinds of mistakes there are on the way to a token, and at the bonus.
DRAFT = len(list(alternatives_of_draft(*_EXAMPLE, np.ones((1, 1)), True)))
BONUS = len(list(alternatives_of_bonus(*_EXAMPLE)))


def bins_of(laws: Floats, p: Floats, q: Floats | None, bins: int) -> Floats:
    """The PIT bins [M, bins] of tokens with `laws` [M, V], where tokens of p are ordered by p/q, or by p."""
    possible = np.flatnonzero(p > 0.0)
    with np.errstate(divide="ignore"):
        score = p[possible] if q is None else p[possible] / q[possible]
    order = possible[np.argsort(score, kind="stable")]
    ends, reached = _from_zero(p[order]), _from_zero(laws[:, order])
    edges = np.linspace(0.0, 1.0, bins + 1)
    before = np.clip(np.searchsorted(ends, edges, side="right") - 1, 0, len(order) - 1)
    part = np.clip((edges - ends[before]) / p[order][before], 0.0, 1.0)
    return np.diff(reached[:, before] + part * laws[:, order[before]], axis=1)


def _from_zero(masses: Floats) -> Floats:
    return np.concatenate([np.zeros((*masses.shape[:-1], 1)), masses.cumsum(axis=-1)], axis=-1)
