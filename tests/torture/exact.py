"""Closed forms and rules compared with fractions."""

import random
from fractions import Fraction
from functools import partial

from blocks import WRONG, in_blocks

from specsim import prove, simulate, stats, theory
from specsim.models import TableModel


def run_exact(number, seed):
    """A tally of `number` comparisons, six of each pair."""
    return in_blocks("numbers", [(f"{seed} {i // 6}", i % 6) for i in range(number)], _act, str)


def _act(task):
    rng = random.Random(task[0])
    size, gamma = rng.randrange(2, 6), rng.randrange(1, 9)
    p, q = _pmf(rng, size), _pmf(rng, size)
    alpha, power = sum(map(min, p, q)), rng.choice([0, 1, 30, 300])
    small = Fraction(float(alpha)) * Fraction(2) ** -power
    counts = [rng.randrange(2 ** rng.choice([3, 20, 34])) + 1 for _ in p]
    floats, others = [*map(float, p)], [*map(float, q)]
    proof = partial(prove, TableModel(p), TableModel(q), gamma=2)
    ways = [
        (lambda: simulate(floats, others, gamma=gamma, steps=1, rng=1).alpha_context, alpha),
        (lambda: theory.expected_tokens(float(small), gamma), sum(small**k for k in range(gamma + 1))),
        (lambda: theory.accepted_law(float(small), gamma)[gamma], small**gamma),
        (lambda: proof(rule="block").tv, Fraction(0)),
        (lambda: proof(rule="standard").mean_tokens, 1 + alpha + alpha**2),
        (lambda: stats.chi_square(counts, floats).statistic, sum(n * n / x for n, x in zip(counts, p, strict=True)) / sum(counts) - sum(counts)),
    ]  # fmt: skip
    compute, right = ways[task[1]]
    found = compute()
    near = abs(Fraction(found) - right) <= max(Fraction(1e-11) * abs(right), Fraction(1, 10**300))
    return "compared", None if near else (WRONG, f"{found!r}, not {right}")


def _pmf(rng, size):
    weights = [rng.choice([1, 2, 3, 5, 10**6]) for _ in range(size)]
    return [Fraction(weight, sum(weights)) for weight in weights]
