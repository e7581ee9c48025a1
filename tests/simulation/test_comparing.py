"""Rules side by side, and the page of the table that comes with specsim."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from conftest import FALSE_ALARM
from scipy.stats import norm

import experiments.simulation.rules
from specsim import acceptance_by_drafts, compare, rules
from specsim.core.distributions import synthetic_pair
from specsim.simulation._comparison import SWEEP, drafts_figure, load_bundled, pareto_figure, sweep_values
from specsim.theory import expected_tokens

ROOT = Path(__file__).parents[2]
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])


def test_the_page_of_rules_is_that_of_the_table():
    place = ROOT / "docs/results/rules.md"
    rows = [asdict(entry) for entry in load_bundled()]
    assert experiments.simulation.rules.page(rows) == place.read_text(encoding="utf-8"), (
        "run make results-pages"
    )
    assert all(f"| `{entry.name}` |" in experiments.simulation.rules.page(rows) for entry in load_bundled())
    assert experiments.simulation.rules.page(rows[1:]) != experiments.simulation.rules.page(rows)
    assert (load_bundled().steps, load_bundled().provenance.root) == (
        experiments.simulation.rules.STEPS,
        experiments.simulation.rules.SEED,
    )


def test_one_rule_beside_another():
    table = compare(P, Q, rules=["standard", "block", "lenience:lenience=0.5"], gamma=3, steps=2**17, rng=1)
    standard, block, lenience = table
    tolerance = norm.isf(FALSE_ALARM / 2) * standard.error
    assert standard.tokens_per_step == pytest.approx(expected_tokens(0.7, 3), abs=tolerance)
    assert standard.tokens_per_step < block.tokens_per_step < lenience.tokens_per_step
    assert (standard.tv, block.tv) == (0.0, 0.0)
    assert lenience.tv == pytest.approx(np.minimum(P / 0.5, Q).sum() - np.minimum(P, Q).sum())
    assert json.loads(json.dumps(table.to_dict()))["entries"][1]["rule"] == "block"
    assert "lenience:lenience=0.5" in table._repr_html_()


def test_a_rule_of_ones_own_beside_built_in_ones():
    lenience = rules.get("lenience")
    mine = replace(lenience, name="mine")
    found = compare(P, Q, rules=[mine, "lenience", lenience.with_parameters(lenience=0.5)], steps=500, rng=1)
    assert [one.rule for one in found] == [str(mine), str(lenience), "lenience:lenience=0.5"]
    own, built_in, _ = (asdict(one) for one in found)
    assert own | {"rule": built_in["rule"]} == built_in, "the group follows from the rule"
    assert [one.line for one in found] == [str(mine), "lenience", "lenience"]
    swept = compare(P, Q, rules=[mine, lenience.with_parameters(lenience=0.9)], sweep=True, steps=50, rng=1)
    assert len(swept.entries) == SWEEP + 1, "values that are given stay"


def test_a_sweep_goes_over_the_range_of_every_parameter():
    swept = compare(P, Q, rules=["typical", "standard", "lenience"], sweep=True, steps=100, rng=1)
    assert sum(entry.name == "standard" for entry in swept) == 1
    assert sum(entry.name == "typical" for entry in swept) == 18
    tvs = [entry.tv for entry in swept if entry.name == "lenience"]
    assert tvs == sorted(tvs, reverse=True)
    assert tvs[-1] == 0.0
    for name in rules.names("lossy"):
        for parameter in rules.get(name).parameters:
            values = sweep_values(parameter)
            assert len(values) > 3
            assert [parameter.check(name, value) for value in values] == values


def test_a_control_has_no_tv():
    (entry,) = compare(P, Q, rules=["sorted_siblings"], steps=100, rng=1)
    assert entry.tv is None
    assert entry.group == "controls"


def test_acceptance_by_the_number_of_drafts():
    p, q = synthetic_pair("dirichlet", 12, 0.6, rng=0)
    found = acceptance_by_drafts(p, q, 4, steps=2**16, rng=1)
    bounds = {(row.draft_sampling, row.drafts): row.theory for row in found if row.name == "bound"}
    simulated = [row for row in found if row.simulated is not None]
    assert {row.drafts for row in simulated} == {2, 3, 4}
    z = norm.isf(FALSE_ALARM / 2)
    for row in simulated:
        assert row.simulated <= bounds[row.draft_sampling, row.drafts] + z * row.error
        if row.theory is not None:
            assert row.simulated == pytest.approx(row.theory, abs=z * row.error + 1e-9)
    assert sum(row.theory is not None for row in simulated) >= 12


def name_of(panel):
    """The rule of a panel, and its parameters, where it has several."""
    legend = panel.get_legend()
    if legend is None:
        return panel.get_title(loc="left"), []
    return legend.get_title().get_text(), [text.get_text() for text in legend.get_texts()]


def test_the_pictures_show_every_rule():
    exact = rules.names("chain", "tree")
    table = compare(P, Q, rules=[*exact, "lenience", "typical"], sweep=True, steps=50, rng=1)
    left, *panels = pareto_figure(table).axes
    assert {text.get_text() for text in left.texts} == {name for name in exact if rules.get(name).lossless}
    shown = [name_of(panel) for panel in panels]
    assert shown == [("typical", ["epsilon", "delta"]), ("greedy_match", []), ("lenience", [])]
    (line,) = panels[-1].get_lines()[1:]
    here = sorted((entry.tv, entry.tokens_per_step) for entry in table if entry.name == "lenience")
    assert list(zip(*line.get_data(), strict=True)) == here
    labels = drafts_figure(acceptance_by_drafts(P, Q, 3, steps=50, rng=1), "a pair").axes[0]
    assert {"α*, sampled", "k_seq"} <= set(labels.get_legend_handles_labels()[1])
