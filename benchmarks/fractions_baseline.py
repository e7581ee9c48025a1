"""The proof that a good user would write in Python's fractions, pinned: what `specsim.prove` is measured
against.

It enumerates the drafts of the standard rule on one pair of pmfs, and compares the law of each token, given
those before it, with p.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import product


def is_exact(p: Sequence[float], q: Sequence[float], gamma: int) -> bool:
    """Whether each token of a step has the law p, whatever came before it."""
    target, draft = ([Fraction(mass) for mass in row] for row in (p, q))
    reached: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)  # a token follows these
    emitted: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for drafted in product(range(len(draft)), repeat=gamma):
        left = Fraction(1)
        for x in drafted:
            left *= draft[x]
        for i, x in enumerate(drafted):
            reached[drafted[:i]] += left
            passed = min(Fraction(1), target[x] / draft[x]) if draft[x] else Fraction(0)
            emitted[*drafted[:i], x] += left * passed
            if passed < 1:
                excess = [max(a - b, Fraction(0)) for a, b in zip(target, draft, strict=True)]
                for y, weight in enumerate(excess):
                    emitted[*drafted[:i], y] += left * (1 - passed) * weight / sum(excess)
            left *= passed
        reached[drafted] += left
        for y, weight in enumerate(target):
            emitted[*drafted, y] += left * weight
    return all(
        emitted[*tokens, y] == mass * weight
        for tokens, mass in reached.items()
        for y, weight in enumerate(target)
    )
