"""The closed forms beside simulated rates, against the enumeration of a step."""

import numpy as np
import pytest

from specsim import load, prove, rules, simulate
from specsim.core._tables import to_text
from specsim.core.distributions import dyadic
from specsim.models import TableModel, branching, chain
from specsim.simulation._sources import acceptance_by_position, accepted_law_by_position
from specsim.theory import expected_tokens, expected_tokens_by_position

P, Q = [0.5, 0.25, 0.25], [0.125, 0.25, 0.625]

ALWAYS_KNOWN = [name for name in rules.names(*rules.GROUPS) if rules.get(name).fixed_pair.acceptance]
ON_TREES = {
    "recursive_rejection": branching(3),
    "k_seq": branching(3),
    "naive_matching": branching(3),
    "without_replacement": branching(2, 2, draft_sampling="without replacement"),
    "greedy_multi_draft": branching(2, 2, draft_sampling="top and sample"),
}
SHAPES = [(name, chain(3)) for name in [*ALWAYS_KNOWN, "gumbel", "gumbel_list"]] + list(ON_TREES.items())


def enumerated(rule, tree):
    """The expected tokens of a step, from its law in fractions."""
    return float(prove(TableModel(dyadic(P)), TableModel(dyadic(Q)), rule=rule, gamma=tree).mean_tokens)


def shown(run):
    return to_text(run.parts())


def closed(rule, tree):
    found = acceptance_by_position(rules.get(rule), np.array(P), np.array(Q), tree)
    return None if found is None else expected_tokens_by_position(found)


@pytest.mark.parametrize(("rule", "tree"), SHAPES, ids=lambda one: str(one))
def test_it_is_the_mean_of_the_enumerated_law(rule, tree):
    if rule == "gumbel":  # its steps share random numbers with the draft: there is no law given the draft
        run = simulate(P, Q, rule=rule, gamma=tree, steps=200_000, rng=1)
        assert abs(run.tokens_per_step - closed(rule, tree)) < 5 * run.tokens_per_step_error
    else:
        assert closed(rule, tree) == pytest.approx(enumerated(rule, tree), rel=1e-9)


def test_the_drafting_of_the_most_probable_tokens_is_heeded():
    for rule in ("standard", "sampler_match"):
        tree = chain(2, draft_sampling="top")
        assert closed(rule, tree) == pytest.approx(enumerated(rule, tree), rel=1e-9)


def test_other_rules_and_deeper_trees_have_other_numbers():
    alpha = np.minimum(P, Q).sum()
    assert closed("standard", chain(3)) == pytest.approx(expected_tokens(alpha, 3))
    assert abs(enumerated("lenience:lenience=0.1", chain(3)) - expected_tokens(alpha, 3)) > 0.5
    found = acceptance_by_position(rules.get("recursive_rejection"), np.array(P), np.array(Q), branching(2))
    product = expected_tokens_by_position([*found, *found])
    assert enumerated("recursive_rejection", branching(2, 2)) > product + 1e-3


@pytest.mark.parametrize(
    ("rule", "tree"),
    [
        ("block", chain(3)),
        ("traversal", branching(2, 2)),
        ("recursive_rejection", branching(2, 2)),  # siblings with the same token merge what is below them
        ("token_tree", branching(3)),
    ],
    ids=lambda one: str(one),
)
def test_none_is_given_where_none_is_known(rule, tree):
    run = simulate(P, Q, rule=rule, gamma=tree, steps=100, rng=1)
    assert (run.acceptance, run.expected_tokens) == (None, None)
    assert "formula" not in shown(run)
    assert "closed form" not in shown(run)


def test_what_is_shown(tmp_path):
    run = simulate(P, Q, rule="lenience:lenience=0.1", gamma=3, steps=1000, rng=1)
    assert "closed form" in shown(run)
    assert f"{run.expected_tokens:.5f}" in shown(run)
    assert run.to_dict()["expected_tokens"] == run.expected_tokens
    assert accepted_law_by_position(run.acceptance).sum() == pytest.approx(1.0)
    assert run.plot().get_legend() is not None
    run.save(tmp_path / "run.json")
    assert load(tmp_path / "run.json") == run


def test_models_have_the_formula_of_the_standard_rule_alone():
    tables = TableModel([P, Q, P]), TableModel([Q, P, Q])
    assert "i.i.d. formula" in shown(simulate(*tables, gamma=2, steps=1000, rng=1))
    assert "formula" not in shown(simulate(*tables, rule="lenience", gamma=2, steps=1000, rng=1))
