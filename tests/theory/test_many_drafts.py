"""The multi-draft bound against linear programs and all subsets, and verifiers against rules and bound."""

from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from conftest import awkward_pairs, rational_rows
from scipy.optimize import linprog

from specsim.models import TableModel, Tree
from specsim.models._drafts.sampling import sibling_laws
from specsim.theory import (
    acceptance_rate,
    greedy_multi_draft_acceptance,
    gumbel_agreement,
    k_seq_acceptance,
    naive_matching_acceptance,
    optimal_acceptance,
    recursive_rejection_acceptance,
    without_replacement_acceptance,
)
from specsim.theory._enumeration import prove
from specsim.theory._many_drafts import draws_inside, k_seq_rho

SAMPLING_METHODS = ("sampled", "without replacement", "top", "top and sample")


def floats(row):
    return [float(weight) for weight in row]


def best_coupling(p, q, drafts, drawing):
    """max P(output ∈ drafts) over joint laws of the drafts and an output of law p, as a linear program."""
    tuples = dict(sibling_laws(drawing, q, drafts))
    size = len(p)
    inside = np.array([[x in drafted for x in range(size)] for drafted in tuples], dtype=float)
    marginals = np.vstack(
        [np.kron(np.eye(len(tuples)), np.ones(size)), np.kron(np.ones(len(tuples)), np.eye(size))]
    )
    found = linprog(
        -inside.ravel(),
        A_eq=marginals,
        b_eq=np.array([*map(float, tuples.values()), *map(float, p)]),
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0
    return -found.fun


def subsets(size):
    return chain.from_iterable(combinations(range(size), count) for count in range(size + 1))


@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
def test_the_bound_is_the_value_of_the_linear_program(full, drawing):
    for p, q in rational_rows(1, 45 if full else 9):
        for drafts in (1, 2, 3):
            value = optimal_acceptance(floats(p), floats(q), drafts, drawing)
            assert value == pytest.approx(best_coupling(p, q, drafts, drawing), abs=1e-9)


@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
def test_no_set_of_tokens_is_better_than_a_prefix(full, drawing):
    for p, q in rational_rows(2, 60 if full else 12, sizes=(2, 3, 4, 5)):
        for drafts in range(1, min(len(p), 4) + 1):
            laws = list(sibling_laws(drawing, q, drafts))
            exact = min(
                sum((p[x] for x in tokens), Fraction(0))
                - sum((chance for drawn, chance in laws if set(drawn) <= set(tokens)), Fraction(0))
                for tokens in subsets(len(p))
            )
            value = optimal_acceptance(floats(p), floats(q), drafts, drawing)
            assert value == pytest.approx(float(1 + exact), abs=1e-12)


def test_draws_without_replacement_inside_a_prefix():
    for _, q in rational_rows(3, 15, sizes=(2, 4, 6)):
        for drafts in range(1, min(len(q), 4) + 1):
            exact = [
                sum(
                    chance
                    for drawn, chance in sibling_laws("without replacement", q, drafts)
                    if max(drawn) < i
                )
                for i in range(len(q) + 1)
            ]
            assert draws_inside(np.array(floats(q)), drafts) == pytest.approx(floats(exact), abs=1e-12)
    # where the tokens that fill up the draft have probabilities of 1e-3 to 1e-300
    for tiny in (1e-3, 1e-12, 1e-100, 1e-300):
        q = np.array([tiny, 1.0, 2 * tiny, 5 * tiny])
        weights = [Fraction(weight) for weight in q]
        weights = [weight / sum(weights) for weight in weights]
        for drafts in (1, 2, 3):
            laws = list(sibling_laws("without replacement", weights, drafts))
            exact = [float(sum(chance for drawn, chance in laws if max(drawn) < i)) for i in range(5)]
            assert draws_inside(q, drafts) == pytest.approx(exact, abs=1e-12)
    # of V alike tokens K fall among the first i with probability C(i, K) / C(V, K)
    size, drafts = 1000, 6
    i, k = np.arange(size + 1)[:, None], np.arange(drafts)
    exact = np.prod((i - k).clip(min=0) / (size - k), axis=1)
    assert draws_inside(np.full(size, 1 / size), drafts) == pytest.approx(exact, abs=1e-12)


def test_one_draft_reaches_the_overlap_however_it_is_sampled():
    for p, q in rational_rows(4, 60):
        p, q = floats(p), floats(q)
        overlap = pytest.approx(acceptance_rate(p, q), abs=1e-12)
        for drawing in ("sampled", "without replacement", "top and sample"):
            assert optimal_acceptance(p, q, 1, drawing) == overlap
        assert recursive_rejection_acceptance(p, q, 1) == overlap
        assert k_seq_acceptance(p, q, 1) == overlap
        assert without_replacement_acceptance(p, q, 1) == overlap


def test_any_number_of_drafts_takes_a_few_rounds():
    """A residual that stays is not computed again."""
    for p, q, rejected in (([1, 0], [0.25, 0.75], 0.75), ([1, 0], [0, 1], 1.0), ([0.5, 0.5], [1, 0], 0.5)):
        for drafts in (1, 5, 2**40):
            rounds = drafts if rejected != 0.5 else 1  # the second residual is (0, 1), which q does not have
            assert recursive_rejection_acceptance(p, q, drafts) == pytest.approx(1 - rejected**rounds)


def test_more_drafts_never_hurt_the_best_verifier():
    for p, q in zip(*awkward_pairs(np.random.default_rng(5), 50, 6), strict=True):
        for drawing in SAMPLING_METHODS:
            values = [optimal_acceptance(p, q, drafts, drawing) for drafts in range(1, 7)]
            assert (np.diff(values) > -1e-12).all()
            assert 0 <= values[0] <= values[-1] + 1e-12 <= 1 + 2e-12
        assert optimal_acceptance(p, q, 6, "top") == pytest.approx(1)


#: The rule that each formula is of, and the drawing it is for.
RULES = [
    ("naive_matching", "sampled", naive_matching_acceptance),
    ("recursive_rejection", "sampled", recursive_rejection_acceptance),
    ("k_seq", "sampled", k_seq_acceptance),
    ("without_replacement", "without replacement", without_replacement_acceptance),
    ("greedy_multi_draft", "top and sample", greedy_multi_draft_acceptance),
    ("univer", "top and sample", greedy_multi_draft_acceptance),
]


@pytest.mark.parametrize(("rule", "drawing", "formula"), RULES, ids=[rule for rule, *_ in RULES])
def test_a_verifier_accepts_as_often_as_its_rule_and_no_more_than_the_bound(rule, drawing, formula):
    for p, q in rational_rows(6, 15, sizes=(2, 3, 4)):
        for drafts in range(1, min(len(p), 3) + 1):
            value = formula(floats(p), floats(q), drafts)
            proof = prove(TableModel(p), TableModel(q), rule=rule, gamma=Tree((0,) * drafts, drawing))
            assert value == pytest.approx(float(proof.mean_tokens - 1), abs=1e-11)
            assert value <= optimal_acceptance(floats(p), floats(q), drafts, drawing) + 1e-12


def test_greedy_multi_draft_reaches_the_bound():
    for p, q in zip(*awkward_pairs(np.random.default_rng(7), 100, 5), strict=True):
        for drafts in range(1, 6):
            best = optimal_acceptance(p, q, drafts, "top and sample")
            assert greedy_multi_draft_acceptance(p, q, drafts) == pytest.approx(best, abs=1e-12)


def test_k_seq_is_within_its_factor_of_the_bound():
    rng = np.random.default_rng(8)
    for size in (2, 3, 6, 50):
        for p, q in zip(*awkward_pairs(rng, 40, size), strict=True):
            for drafts in (2, 3, 4, 8):
                best = optimal_acceptance(p, q, drafts)
                value = k_seq_acceptance(p, q, drafts)
                assert value >= (1 - (1 - 1 / drafts) ** drafts) * best - 1e-12
                assert value <= best + 1e-12


def test_rho_solves_its_equation_from_the_valid_side():
    for p, q in zip(*awkward_pairs(np.random.default_rng(9), 100, 5), strict=True):
        for drafts in (2, 3, 5):
            rho = k_seq_rho(p, q, drafts)
            assert 1 <= rho <= drafts
            b = np.minimum(q, p / rho).sum()
            if b > 1e-12:
                factor = float((1 - (1 - Fraction(b)) ** drafts) / Fraction(b))  # b may be tiny
                assert rho >= factor * (1 - 1e-9)
                assert rho == pytest.approx(factor, rel=1e-9) or rho == 1
                assert (p - np.minimum(q, p / rho) * factor).min() >= -1e-9
    assert k_seq_rho([1, 0], [0, 1], 3) == 3
    assert k_seq_rho([0.5, 0.5], [0.5, 0.5], 3) == 1


def test_a_larger_rho_accepts_less():
    p, q = [0.7, 0.2, 0.1], [0.2, 0.2, 0.6]
    values = [k_seq_acceptance(p, q, 4, rho) for rho in np.linspace(k_seq_rho(p, q, 4), 4, 9)]
    assert (np.diff(values) <= 0).all()
    assert values[0] == k_seq_acceptance(p, q, 4)


def test_the_cover_property():
    """K distinct drafts leave nothing to chance once they hold all of q, if q holds all of p."""
    rng = np.random.default_rng(10)
    for trial in range(100):
        q = rng.integers(0, 5, 5) * 1.0
        q[trial % 5] = 1
        p = q * rng.integers(0, 5, 5)
        p[trial % 5] = 1
        p, q = p / p.sum(), q / q.sum()
        assert without_replacement_acceptance(p, q, int((q > 0).sum())) == pytest.approx(1, abs=1e-12)
    # as many drafts as p has tokens are not enough; and drafts with replacement never are
    p, q = [1, 0], [0.5, 0.5]
    assert without_replacement_acceptance(p, q, 1) == 0.5
    assert without_replacement_acceptance(p, q, 2) == 1
    assert recursive_rejection_acceptance(p, q, 2) == 0.75
    assert k_seq_acceptance(p, q, 2) == pytest.approx(0.75, abs=1e-15)
    assert optimal_acceptance(p, q, 2) == 0.75


def test_gumbel_agreement_of_awkward_rows():
    for p, q in zip(*awkward_pairs(np.random.default_rng(12), 300, 7), strict=True):
        overlap = acceptance_rate(p, q)
        assert overlap / (2 - overlap) - 1e-12 <= gumbel_agreement(p, q) <= overlap + 1e-12
