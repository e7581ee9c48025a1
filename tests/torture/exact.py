"""Closed forms and rules compared with fractions."""

import random
from fractions import Fraction

from blocks import WRONG, in_blocks

from specsim import prove, simulate, stats, theory
from specsim.models import TableModel


def run_exact(number, seed):
    """A tally of `number` comparisons."""
    return in_blocks("numbers", [f"{seed} {i}" for i in range(number)], _act, str)


def _act(task):
    rng = random.Random(task)
    size, gamma = rng.randrange(2, 6), rng.randrange(1, 9)
    p, q = _pmf(rng, size), _pmf(rng, size)
    alpha, power = sum(map(min, p, q)), rng.choice([0, 1, 30, 300])
    small = Fraction(float(alpha)) * Fraction(2) ** -power
    counts = [rng.randrange(2 ** rng.choice([3, 20, 34])) + 1 for _ in p]
    proof = prove(TableModel(p), TableModel(q), rule="standard", gamma=2)
    found = {
        "alpha_context": (simulate([*map(float, p)], [*map(float, q)], gamma=gamma, steps=1, rng=1).alpha_context, alpha),
        "expected_tokens": (theory.expected_tokens(float(small), gamma), sum(small**k for k in range(gamma + 1))),
        "accepted_law": (theory.accepted_law(float(small), gamma)[gamma], small**gamma),
        "tv of a rule": (proof.tv, Fraction(0)), "tokens of a rule": (proof.mean_tokens, 1 + alpha + alpha**2),
        "chi_square": (
            stats.chi_square(counts, [*map(float, p)]).statistic,
            sum((n - sum(counts) * x) ** 2 / x / sum(counts) for n, x in zip(counts, p, strict=True)),
        ),
    }  # fmt: skip
    wrong = {name: f"{got!r}, not {right}" for name, (got, right) in found.items() if not _near(got, right)}
    return "compared", (WRONG, str(wrong)) if wrong else None


def _pmf(rng, size):
    weights = [rng.choice([1, 2, 3, 5, 10**6]) for _ in range(size)]
    return [Fraction(weight, sum(weights)) for weight in weights]


def _near(found, right):
    return abs(Fraction(found) - right) <= max(Fraction(1e-11) * abs(right), Fraction(1, 10**300))
