"""Alternatives of a case's pooled e-value: what a token's law would be under known kinds of mistakes.

A kind of mistake is a function of the rows of target and draft where the token is drawn, at some share of the
tokens. That covers small values of its parameter too: a lenience of .95 is close to a mixture with one of .5.
A test against these needs about twice the least sample size, whatever the number of cells."""

from collections.abc import Iterator

import numpy as np

from specsim.core._types import Floats
from specsim.core.distributions import temperature
from specsim.mistakes._rows import LAWS, Pair, argmax, largest, within

#: Temperatures on one side only, and the lenience of the alternatives.
TEMPERATURES, LENIENCE = (0.7, 1.4), 0.5
#: Probabilities, relative to the largest, below which the alternatives cut a bonus.
BONUS_CUTS = (0.1, 0.3)
#: Probability of the draft below which they discard its last token.
UNLIKELY = 0.3


def alternatives_of_draft(p: Floats, q: Floats, least: Floats, last: bool) -> Iterator[Floats]:
    """The laws [n, V] of a token after rows p and q [n, V], for each kind of mistake on the way to it.

    `least` [n, 1] is the least ratio of p to q of the tokens drafted before; `last`: none follows."""
    pair = Pair(p, q)
    for value in TEMPERATURES:  # of the rows that are drawn from, not of those that are handed over
        yield LAWS["draft_temperature"](pair, temperature=value)
    yield LAWS["greedy_draft"](pair)
    yield LAWS["resamples_target"](pair)
    yield LAWS["greedy_residual"](pair)
    tested = (q * pair.chance).sum(axis=1, keepdims=True)
    for between in ((tested, 1.0), (0.0, 1.0 - tested)):  # close to the law of a uniform that has tested
        yield pair.emitted(recovered=within(pair.residual, *between))
    yield LAWS["misaligned_residual"](pair, k=2)
    yield pair.emitted(accepted=np.minimum(pair.chance, least) / least)  # one uniform tests the whole step
    for name in ("float16_ratio", "bfloat16_ratio", "one_hot_residual", "zeroed_in_place"):
        yield LAWS[name](pair)
    kept = q * (q >= UNLIKELY)
    cut = (q - kept).sum(axis=1, keepdims=True)
    yield pair.emitted(kept) + cut * (p - pair.residual) if last else p
    for name in ("lenience", "scaled_lenience"):
        yield LAWS[name](pair, lenience=LENIENCE)
    for accepted in (argmax(p), (p > largest(p) / 10.0).astype(np.float64)):
        yield pair.emitted(accepted=accepted)
    yield LAWS["accepts_everything"](pair)


def alternatives_of_bonus(p: Floats, q: Floats | None) -> Iterator[Floats]:
    """The laws [n, V] of a bonus, of rows p; q are the rows before it, or None."""
    pair = Pair(p, p if q is None else q)
    yield LAWS["bonus_argmax"](pair)
    yield LAWS["last_id_never"](pair)
    yield within(p, 0.0, 0.5)
    for fraction in BONUS_CUTS:
        yield LAWS["bonus_min_p"](pair, fraction=fraction)
    for value in TEMPERATURES:
        yield LAWS["bonus_temperature"](pair, temperature=value)
    yield LAWS["bonus_from_draft"](pair)
    yield LAWS["bonus_from_residual"](pair)


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


_EXAMPLE = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
#: How many kinds of mistakes there are on the way to a token, and at the bonus.
DRAFT = len(list(alternatives_of_draft(*_EXAMPLE, np.ones((1, 1)), True)))
BONUS = len(list(alternatives_of_bonus(*_EXAMPLE)))


class Bins:
    """The bins of images of the tokens of a row p [V], in the order of their scores [V]."""

    def __init__(self, p: Floats, scores: Floats, bins: int):
        possible = np.flatnonzero(p > 0.0)
        self.order = possible[np.argsort(scores[possible], kind="stable")]
        ends, edges = _from_zero(p[self.order]), np.linspace(0.0, 1.0, bins + 1)
        self.before = np.clip(np.searchsorted(ends, edges, side="right") - 1, 0, len(self.order) - 1)
        self.part = np.clip((edges - ends[self.before]) / p[self.order][self.before], 0.0, 1.0)

    def of(self, laws: Floats) -> Floats:
        """The mass [..., bins] of each bin under other laws [..., V] of the tokens."""
        ordered = laws[..., self.order]
        reached: Floats = _from_zero(ordered)[..., self.before] + self.part * ordered[..., self.before]
        return np.diff(reached, axis=-1)


def bins_of(laws: Floats, p: Floats, q: Floats | None, bins: int) -> Floats:
    """The PIT bins [M, bins] of tokens with `laws` [M, V], where tokens of p are ordered by p/q, or by p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = p if q is None else p / q
    return Bins(p, scores, bins).of(laws)


def _from_zero(masses: Floats) -> Floats:
    return np.concatenate([np.zeros((*masses.shape[:-1], 1)), masses.cumsum(axis=-1)], axis=-1)
