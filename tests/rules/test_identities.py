"""Identities between rules, and between rules and closed forms, in fractions, each with its source."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from cases import cases
from conftest import rational_rows
from laws import CHAINS, generated

from specsim import rules, theory
from specsim.models import TableModel, Tree, chain
from specsim.theory._enumeration import prove, step_law

RULE = {name: rules.get(name) for name in rules.names()}


def acceptance(rule, p, q, drafts, drawing=None):
    """The probability, in fractions, that one of K drafts of one token is accepted."""
    tree = Tree((0,) * drafts, drawing or RULE[rule].draft_sampling[0])
    return prove(TableModel(p), TableModel(q), rule=RULE[rule], gamma=tree, context=()).mean_tokens - 1


@pytest.mark.parametrize(*cases(__file__, "equal on chains"))
def test_two_rules_have_one_law_on_chains(full, one, other):
    assert laws_on_chains(one, (1 + full) * len(CHAINS)) == laws_on_chains(other, (1 + full) * len(CHAINS))


@cache
def laws_on_chains(rule, count):
    return [step_law(rules.get(rule), *given) for given in generated(RULE["standard"], count, seed=21)]


def test_naive_matching_and_deterministic_children_have_one_law_on_trees(models):
    for target, draft, tree, context in generated(RULE["naive_matching"], min(models, 120), seed=22):
        laws = [
            step_law(RULE[name], target, draft, tree, context)
            for name in ("naive_matching", "deterministic_children")
        ]
        assert laws[0] == laws[1]


def test_at_temperature_zero_block_verification_is_the_standard_rule():
    """Sun et al., arXiv 2403.10444: b is 0 or 1."""
    rng = np.random.default_rng(23)
    for _ in range(40):
        size = int(rng.integers(2, 5))
        hot = np.eye(size, dtype=int).tolist()
        p, q = ([hot[int(x)] for x in rng.integers(size, size=size)] for _ in range(2))
        pair = [TableModel([[Fraction(w) for w in row] for row in rows]) for rows in (p, q)]
        assert step_law(RULE["block"], *pair, chain(3), (0,)) == step_law(
            RULE["standard"], *pair, chain(3), (0,)
        )


def test_at_temperature_zero_the_standard_rule_is_greedy_match():
    hot = [[Fraction(int(x == y)) for x in range(3)] for y in (1, 2, 0)]
    target = TableModel(hot)
    for draft in (target, TableModel([hot[1], hot[1], hot[2]])):
        for name in ("standard", "sampler_match", "block"):
            assert step_law(RULE[name], target, draft, chain(3), (0,)) == step_law(
                RULE["greedy_match"], target, draft, chain(3), (0,)
            )


def test_gumbel_agreement():
    """Daliri, Musco & Suresh, arXiv 2408.07978: Σ 1/Σ max(p_y/p_x, q_y/q_x), from (1-TV)/(1+TV) to 1-TV."""
    for p, q in rational_rows(27, 100, (2, 3, 4, 5)):
        rate = acceptance("gumbel", p, q, 1)
        both = [x for x in range(len(p)) if p[x] and q[x]]
        direct = sum(
            (1 / sum(max(p[y] / p[x], q[y] / q[x]) for y in range(len(p))) for x in both), Fraction(0)
        )
        tv = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
        assert rate == direct
        assert (1 - tv) / (1 + tv) <= rate <= 1 - tv
        assert float(rate) == pytest.approx(theory.gumbel_agreement([*map(float, p)], [*map(float, q)]))


@pytest.mark.parametrize("drafts", [1, 2, 3])
def test_the_lower_bound_of_list_matching(drafts, full):
    """As the list matching lemma of Rowan, Phan & Khisti, arXiv 2506.05632: exact for K = 1 and for p = q."""
    above = 0
    for p, q in rational_rows(34, 40 if full else 24, (2, 3, 4)):
        size = len(p)
        bound = sum(
            drafts / (sum(max(p[y] / p[x], q[y] / q[x]) for y in range(size)) + Fraction(drafts - 1) / p[x])
            for x in range(size)
            if p[x] and q[x]
        )
        rate = acceptance("gumbel_list", p, q, drafts)
        assert rate >= bound
        assert drafts > 1 or rate == bound == acceptance("gumbel", p, q, 1)
        assert acceptance("gumbel_list", p, p, drafts) == 1
        above += rate > bound
    assert (above > 10) == (drafts > 1)


def test_traversal_against_going_down_from_the_root(full):
    """Never less without replacement; with independent siblings see `test_tree_rules_compared`."""
    above = 0
    for target, draft, tree, context in generated(RULE["without_replacement"], 150 if full else 60, seed=32):
        up, down = lengths(
            target, draft, tree, context, "traversal_without_replacement", "without_replacement"
        )
        assert up >= down
        above += up > down
    assert above > 10


def lengths(target, draft, tree, context, *names):
    return [prove(target, draft, rule=RULE[name], gamma=tree, context=context).mean_tokens for name in names]
