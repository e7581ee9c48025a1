"""The audit: quiet on exact verifiers, loud on wrong ones, and clear about both."""

from __future__ import annotations

import io
import json
import math
import re

import numpy as np
import pytest
import verifiers

from specsim.auditing import BUDGET, audit
from specsim.auditing.cases import LEVELS, battery
from specsim.auditing.claims import Claim, rows_on_path
from specsim.auditing.plan import plan_tables
from specsim.auditing.proof import prove_on_generated_models
from specsim.auditing.report import audit_figure, audit_to_html, audit_to_json, audit_to_terminal
from specsim.auditing.results import Verdict
from specsim.auditing.verifiers import contract
from specsim.plotting import save_figure
from specsim.rules import get
from specsim.stats import MIN_EXPECTED


@pytest.fixture(scope="module")
def standard():
    return audit("standard", level="smoke", rng=1)


@pytest.fixture(scope="module")
def from_target():
    return audit(verifiers.resamples_from_target, level="smoke", rng=1)


def findings(result):
    return [(case.case, finding.kind, finding.text) for case in result.cases for finding in case.findings]


# --- exact verifiers -------------------------------------------------------------------------------------


def test_the_standard_rule_is_consistent_and_proved(standard):
    assert standard.verdict is Verdict.CONSISTENT
    assert standard.exit_code == 0
    assert standard.proof is not None
    assert standard.proof.as_claimed
    assert standard.proof.lossless
    assert standard.proof.largest_tv == 0
    assert findings(standard) == []
    assert not standard.wasteful


def test_measured_acceptance_agrees_with_theory_on_every_pair(standard):
    for case in standard.cases:
        if case.iid:
            assert case.efficiency.lower <= 1.0 <= case.efficiency.upper
            assert case.alphas.verified == pytest.approx(case.alphas.context, abs=0.02)


def test_a_right_verifier_is_consistent_for_many_seeds():
    for seed in range(5):
        result = audit(verifiers.right, level="smoke", rng=seed)
        assert findings(result) == []
        assert result.proof is None


def test_an_exact_verifier_that_wastes_drafts_is_consistent_and_wasteful():
    result = audit(verifiers.ignores_drafts, level="smoke", rng=1)
    assert result.verdict is Verdict.CONSISTENT
    assert result.wasteful
    assert {case.case: case.efficiency.wasteful for case in result.cases}["disjoint"] is False


def test_the_same_seed_gives_the_same_audit_on_any_number_of_threads(standard):
    again = audit("standard", level="smoke", rng=1, threads=1).to_dict()
    first = standard.to_dict()
    assert again.pop("provenance")["root"] == first.pop("provenance")["root"] == 1
    assert again == first


# --- wrong verifiers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        verifiers.one_hot_residual,
        verifiers.lenient,
        verifiers.accepts_everything,
        verifiers.always_argmax,
    ],
)
def test_wrong_laws_are_biased(wrong):
    result = audit(wrong, level="smoke", rng=1)
    assert result.verdict is Verdict.BIASED
    assert result.exit_code == 1
    assert any(kind in ("deviation", "support") for _, kind, _ in findings(result))


def test_resampling_from_the_target_is_biased_with_place_token_and_size(from_target):
    assert from_target.verdict is Verdict.BIASED
    text = next(text for case, _, text in findings(from_target) if case == "asymmetric")
    assert re.match(r"position 1: TV 0\.\d+ \[0\.\d+, 0\.\d+\] on the tokens, e = 10\^\d+", text)
    assert "token 0 too often" in text
    unharmed = {case.case for case in from_target.cases if case.verdict is Verdict.CONSISTENT}
    assert {"disjoint", "identical"} <= unharmed  # there the residual is p, or is never drawn from


def test_a_reused_uniform_is_found_at_the_second_position_only():
    result = audit(verifiers.reuses_one_uniform, level="smoke", rng=1)
    assert result.verdict is Verdict.BIASED
    assert not any(text.startswith("position 1") for _, _, text in findings(result))
    assert any(text.startswith("position 2") for _, _, text in findings(result))


def test_impossible_tokens_end_the_matter():
    result = audit(verifiers.accepts_everything, level="smoke", rng=1)
    support = [text for case, kind, text in findings(result) if (case, kind) == ("zeros", "support")]
    assert "have probability 0 under the target" in support[0]
    assert "token 3" in support[0] or "token 4" in support[0]
    zeros = next(case for case in result.cases if case.case == "zeros")
    assert zeros.steps < 2**14  # it stopped early


def test_draws_that_are_too_even_are_called_dependent():
    result = audit(verifiers.too_even, level="smoke", rng=1)
    assert result.verdict is Verdict.BIASED
    assert {(case, kind) for case, kind, _ in findings(result)} == {("disjoint", "dependence")}


def test_tokens_of_another_row_are_caught_without_statistics():
    result = audit(verifiers.neighbours_tokens, level="smoke", rng=1)
    assert result.verdict is Verdict.BIASED
    kind, text = next((kind, text) for case, kind, text in findings(result) if case == "n-gram pair")
    assert kind == "path"
    assert "was drafted" in text


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (verifiers.raises, "raised RuntimeError: out of cheese"),
        (verifiers.exits, "raised SystemExit"),
        (verifiers.ragged, "returned no array"),
        (verifiers.returns_floats, "returned float64, expected integer tokens"),
        (verifiers.returns_nan, "returned float64"),
        (verifiers.wrong_shape, "returned shape"),
        (verifiers.out_of_range, "step 3, position 1: token 2 is outside [0, 2)"),
        (verifiers.empty_step, "step 5: emitted no token"),
        (verifiers.hole_in_padding, "step 0: a token follows the padding"),
        (verifiers.alters_p, "altered its input p"),
    ],
)
def test_breaches_of_the_contract_are_broken(broken, said):
    result = audit(broken, level="smoke", rng=1)
    assert result.verdict is Verdict.BROKEN
    assert result.exit_code == 1
    assert said in findings(result)[0][2]
    json.loads(audit_to_json(result))
    audit_to_html(result)
    audit_figure(result)


def test_a_lossy_law_is_refuted_by_the_proof():
    import dataclasses

    rule = get("standard")

    def lenient_law(parents, tokens, p, q):
        scaled = [[weight * type(weight)(4) / 5 for weight in row] for row in q]
        stop, _ = rule.law(parents, tokens, p, scaled)
        _, follow = rule.law(parents, tokens, p, q)
        return stop, follow

    assert prove_on_generated_models(rule).as_claimed
    assert not prove_on_generated_models(dataclasses.replace(rule, law=lenient_law)).as_claimed


# --- plan, budget, report --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["standard", "lenience:lenience=0.5", "k_seq", "cascade_token", None])
def test_tables_are_laws_over_cells_that_are_worth_testing(name):
    rule = None if name is None else get(name)
    for case in battery(rule):
        steps = case.steps("smoke", rule)
        assert steps % 8 == 0
        for table in plan_tables(case, Claim(rule, case.tree), steps):
            assert table.law.sum() == pytest.approx(1.0, abs=1e-12)
            assert (table.law > 0).all()
            assert table.law.min() * steps >= MIN_EXPECTED
            assert table.cells.max() == len(table.law) - 1


def test_the_budget_is_split_over_all_tests(standard):
    tables = sum(len(case.tables) for case in standard.cases)
    assert standard.tests > tables
    assert standard.budget == BUDGET
    for case in standard.cases:
        for table in case.tables:
            assert table.rejected == (table.log10_e >= math.log10(standard.tests / standard.budget))


def test_printed_power_is_real(from_target):
    """Every deviation found is larger than what the report says it could find, and smaller ones exist."""
    for case in from_target.cases:
        for table in case.tables:
            if table.certified_tv is not None and not table.rejected:
                assert table.detectable_tv > 0.0
    found = [table for case in from_target.cases for table in case.tables if table.rejected]
    assert found


def test_reports_say_the_same_in_every_form(standard, tmp_path):
    from rich.console import Console

    document = json.loads(audit_to_json(standard))
    assert document["verdict"] == "consistent"
    assert document["provenance"]["root"] == 1
    assert sum(document["cases"][0]["lengths"]) == document["cases"][0]["steps"]
    console = Console(width=120, file=io.StringIO())
    console.print(*audit_to_terminal(standard))
    text = console.file.getvalue()
    for words in ("standard: consistent", "exact", "n-gram pair", "α drafted", "1e-06"):
        assert words in text
    assert "<table>" in standard._repr_html_()
    figure = audit_figure(standard)
    for name in ("audit.png", "audit.svg"):
        save_figure(figure, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.png", "audit.svg"]
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf"):
        save_figure(figure, tmp_path / "audit.bmp")


def test_progress_reaches_the_total():
    seen = []
    audit("standard", level="smoke", rng=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="did you mean 'standard'"):
        audit("standart")
    with pytest.raises(ValueError, match="one of smoke, quick"):
        audit("standard", level="forever")
    with pytest.raises(ValueError, match="cannot import no_such_module"):
        audit("no_such_module:verify")
    with pytest.raises(ValueError, match="verifiers has no function nothing"):
        audit("verifiers:nothing")
    with pytest.raises(ValueError, match=r"expected a rule's name or package\.module:function"):
        audit(":verify")
    with pytest.raises(TypeError, match="expected a rule's name or a function"):
        audit(3)


def test_the_contract_hands_over_copies_that_a_verifier_may_read_freely():
    from specsim.sources import Rows

    chain_of_two = np.array([[0, 1]])
    rows = Rows(np.array([[0, 1]]), np.full((1, 3, 2), 0.5), np.full((1, 2, 2), 0.5), chain_of_two)
    tokens, accepted = contract(verifiers.right)(rows, (1, 2), 0)
    assert tokens.shape == (3, 1)
    assert accepted.tolist() == [2]
