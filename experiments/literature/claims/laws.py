"""Small pairs of models in fractions, and the exact law of a step in which one part differs from the standard
rule.

What a document describes differs from the standard rule in one part at a time: the row that drafted tokens
are drawn from, the row that the test assumes for them, the test, or the token after a rejection. `step`
enumerates all tokens, and compares the result with the target's joint law of γ + 1 tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np

from specsim.models import Model, TableModel, default_pair
from specsim.rules._common.tokenwise import positive_part
from specsim.theory._enumeration import Law, Tokens, continued_law, target_law

__all__ = [
    "DRAFT",
    "TARGET",
    "P",
    "Q",
    "Step",
    "certain",
    "distance",
    "fractions",
    "min_law",
    "ngram_rows",
    "overlap",
    "pairs",
    "row",
    "simplex",
    "standard_test",
    "step",
]

Row = Sequence[Fraction]
#: The row after a context and the tokens drafted since.
Rows = Callable[[Tokens, Tokens], Row]


def row(model: Model, context: Sequence[int]) -> list[Fraction]:
    """The row of an exact model after `context`."""
    return [Fraction(weight) for weight in model.row(context)]


def fractions(*weights: int) -> list[Fraction]:
    """A pmf in proportion to whole numbers."""
    return [Fraction(weight, sum(weights)) for weight in weights]


#: A pair of rows, and a pair of models with a row after each token.
P, Q = fractions(3, 2, 1), fractions(1, 2, 3)
TARGET = TableModel([P, fractions(1, 3, 2), fractions(2, 1, 2)])
DRAFT = TableModel([Q, fractions(2, 1, 1), fractions(1, 2, 2)])


def certain(pmf: Row) -> list[Fraction]:
    """The row with all mass on the most probable token of `pmf`, the first among ties."""
    best = list(pmf).index(max(pmf))
    return [Fraction(x == best) for x in range(len(pmf))]


def simplex(size: int, parts: int) -> list[list[Fraction]]:
    """All pmfs over `size` tokens whose entries are multiples of 1/`parts`."""
    cells = product(range(parts + 1), repeat=size)
    return [[Fraction(cell, parts) for cell in row] for row in cells if sum(row) == parts]


def pairs(size: int = 3, parts: int = 4) -> Iterator[tuple[list[Fraction], list[Fraction]]]:
    """All pairs of such pmfs, with zeros, ties, equal and disjoint ones among them."""
    rows = simplex(size, parts)
    return ((p, q) for p in rows for q in rows)


def overlap(p: Row, q: Row) -> Fraction:
    """Σ min(p, q)."""
    return sum(map(min, p, q), Fraction(0))


def min_law(p: Row, q: Row) -> list[Fraction]:
    """min(p, q), normalised: the law of accepted tokens."""
    return [min(a, b) / overlap(p, q) for a, b in zip(p, q, strict=True)]


def distance(one: Row | Law, other: Row | Law) -> Fraction:
    """Total variation of two rows, or of two laws."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = one.keys() | other.keys()
        gaps = [abs(one.get(key, Fraction(0)) - other.get(key, Fraction(0))) for key in keys]
    else:
        gaps = [abs(a - b) for a, b in zip(one, other, strict=True)]  # type: ignore[operator]
    return sum(gaps, Fraction(0)) / 2


def ngram_rows(contexts: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the n-gram target and draft after so many contexts, the first that the target knows."""
    target, draft = default_pair()
    chosen = target.contexts[:contexts]
    return target.rows(chosen), draft.rows(chosen)


# --- a step ----------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """The largest total variation from the target's law over all contexts, and the mean over them of tokens a
    step.
    """

    tv: Fraction
    tokens: Fraction
    laws: dict[Tokens, Law]


def standard_test(p: Row, q: Row, x: int) -> Fraction:
    """min(1, p/q); 1 if the test assumes that x cannot be drafted."""
    return min(Fraction(1), p[x] / q[x]) if q[x] else Fraction(1)


def step(
    target: Model,
    draft: Model | Rows,
    *,
    gamma: int = 2,
    believed: Model | Rows | None = None,
    accept: Callable[[Row, Row, int], Fraction] = standard_test,
    recovered: Callable[[Row, Row], Row] = positive_part,
) -> Step:
    """A step of `gamma` tokens drawn from `draft` and tested against `believed`, by default the rows they
    were drawn from.

    accept(p, q, x) is the probability of accepting x; recovered(p, q) the law of the token after a rejection.
    The bonus comes from the target.
    """
    drawn, tested = _rows(draft), _rows(draft if believed is None else believed)
    order = max([target.order] + [m.order for m in (draft, believed) if isinstance(m, Model)])
    laws, distances = {}, []
    for context in product(range(target.vocab_size), repeat=order):
        law: Law = defaultdict(Fraction)
        for path in product(range(target.vocab_size), repeat=gamma):
            probability = Fraction(1)
            for i, x in enumerate(path):
                probability *= drawn(context, path[:i])[x]
            if not probability:
                continue
            for i, x in enumerate(path):
                p, q = row(target, (*context, *path[:i])), tested(context, path[:i])
                passed = accept(p, q, x)
                if passed < 1:
                    for token, weight in enumerate(recovered(p, q)):
                        law[(*path[:i], token)] += probability * (1 - passed) * weight
                probability *= passed
            for token, weight in enumerate(row(target, (*context, *path))):
                law[(*path, token)] += probability * weight
        laws[context] = {emitted: mass for emitted, mass in law.items() if mass}
        own = target_law(target, gamma + 1, context)
        distances.append(distance(continued_law(laws[context], target, gamma + 1, context), own))
    total = sum((len(emitted) * mass for law in laws.values() for emitted, mass in law.items()), Fraction(0))
    return Step(max(distances), total / len(laws), laws)


def _rows(source: Model | Rows) -> Rows:
    if isinstance(source, Model):
        model = source
        return lambda context, path: row(model, (*context, *path))
    return source
