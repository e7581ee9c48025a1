"""Decoding under token masks: the distribution that masks give, and the one that a grammar asks for.

A grammar says which tokens may follow a text. Engines set all others to zero at each position, and
renormalise: the *projected* distribution. The target's, given that the whole text is in the language, is

    P(x | language) = Π_i p(x_i | x_<i)·Φ(x_≤i)/Φ(x_<i),

with Φ(x) the probability that the target, left to itself, ends x in the language. Masks take Φ to be one
number for all allowed tokens. The two may be as far apart as distributions can be (Nie et al., "Future
validity is the missing statistic", arXiv 2605.07698).

Speculative decoding does not change that. With both rows masked and renormalised, the standard rule is
lossless for the projected distribution. With only the target's row masked it is too, and wastes the drafts
that the mask forbids. With rows masked and not renormalised it is biased for either."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from specsim.core._numbers import as_fraction, rational
from specsim.core._types import Tokens, check_count, checked
from specsim.models import Model
from specsim.models._drafts.tree import MAX_NODES
from specsim.theory._enumeration import Exact, Law, _rows_of

#: More texts of one length than this are not enumerated.
MAX_TEXTS = 65_536


@checked
def projected_law(
    target: Model, allowed: Callable[[Tokens], Iterable[int]], length: int, context: Tokens = ()
) -> Law:
    """Enumerate the distribution of the next tokens where each row is masked and renormalised.

    `conditioned_law` is the distribution given that all tokens are allowed. Raises ValueError as that, and
    where the target has no allowed token after a text.

    Parameters
    ----------
    target : Model
        A model with exact rows.
    allowed : callable
        `allowed(text)` gives the tokens that may follow `text`, the tokens after `context`.
    length : int
        The number of tokens, at least 0.
    context : tuple of int
        The tokens before.

    Returns
    -------
    dict
        {tokens: probability}, without impossible ones.

    Examples
    --------
    Of 14 brackets that must balance, all 429 texts are equally likely given that they do. Masks let a target
    that mostly opens do so as long as it may:

    >>> from fractions import Fraction as F
    >>> from specsim.models import TableModel
    >>> def brackets(text):
    ...     depth = text.count(0) - text.count(1)
    ...     return [0] * (depth < 14 - len(text)) + [1] * (depth > 0)
    >>> target = TableModel([F(9999, 10000), F(1, 10000)])
    >>> projected, conditioned = (law(target, brackets, 14) for law in (projected_law, conditioned_law))
    >>> len(projected), len(set(conditioned.values()))
    (429, 1)
    >>> round(float(sum(abs(projected[x] - conditioned[x]) for x in projected) / 2), 3)
    0.997
    """
    law = _law(target, allowed, length, tuple(context), renormalised=True)
    return {text: as_fraction(mass) for text, mass in law.items()}


@checked
def conditioned_law(
    target: Model, allowed: Callable[[Tokens], Iterable[int]], length: int, context: Tokens = ()
) -> Law:
    """Enumerate the target's distribution of the next tokens, given that all of them are allowed.

    Parameters
    ----------
    target, allowed, length, context
        As for `projected_law`.

    Returns
    -------
    dict
        {tokens: probability}, without impossible ones.

    Raises
    ------
    ValueError
        If no allowed text is possible, an allowed token is outside the vocabulary, there are more than 65536
        texts, or a row does not sum to exactly 1.

    Examples
    --------
    After token 1 only token 1 is allowed:

    >>> from fractions import Fraction as F
    >>> from specsim.models import TableModel
    >>> coin, after_1 = TableModel([F(1, 2), F(1, 2)]), lambda text: [1] if 1 in text else [0, 1]
    >>> {x: str(mass) for x, mass in conditioned_law(coin, after_1, 2).items()}
    {(0, 0): '1/3', (0, 1): '1/3', (1, 1): '1/3'}
    >>> {x: str(mass) for x, mass in projected_law(coin, after_1, 2).items()}
    {(0, 0): '1/4', (0, 1): '1/4', (1, 1): '1/2'}
    """
    law = _law(target, allowed, length, tuple(context), renormalised=False)
    if not (total := sum(law.values())):
        raise ValueError(f"allowed: the target has no text of {length} allowed tokens; allow other ones")
    return {text: as_fraction(mass / total) for text, mass in law.items()}


def _law(target: Model, allowed: Any, length: int, context: Tokens, renormalised: bool) -> Exact:
    check_count("length", length, 0, MAX_NODES)
    rows = _rows_of(target)
    law: Exact = {(): rational(1)}
    for _ in range(length):
        longer: Exact = defaultdict(rational)
        for text, mass in law.items():
            row = rows(context + text)
            kept = {x: row[x] for x in _tokens(allowed(text), target.vocab_size, text) if row[x]}
            total: Any = sum(kept.values()) if renormalised else 1
            if renormalised and not kept:
                raise ValueError(f"allowed: the target has no allowed token after {text}; allow others")
            for x, weight in kept.items():
                longer[*text, x] = mass * weight / total
        if len(longer) > MAX_TEXTS:
            raise ValueError(f"length: more than {MAX_TEXTS} allowed texts; give a smaller length")
        law = longer
    return law


def _tokens(given: Iterable[int], size: int, text: Tokens) -> set[int]:
    if not isinstance(given, Iterable):
        raise TypeError(f"allowed: gives a {type(given).__name__} after {text}; return the allowed tokens")
    tokens = set(given)
    for x in tokens:
        if not isinstance(x, int | np.integer) or not 0 <= x < size:
            raise ValueError(f"allowed: token {x!r} after {text} is outside [0, {size}); return others")
    return tokens
