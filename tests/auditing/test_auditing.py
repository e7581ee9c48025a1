"""The audit: quiet on exact verifiers, loud on wrong ones, and clear about both."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from functools import partial

import numpy as np
import pytest
import verifiers

from specsim import audit, mistakes, rules
from specsim.adapters import declares
from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import LEVELS, battery
from specsim.auditing._checks import subjects
from specsim.auditing._checks.claimed_law import Claim, rows_on_path
from specsim.auditing._checks.counts import AuditTally
from specsim.auditing._checks.findings import judge_case, judge_table
from specsim.auditing._checks.subjects import Span, count_span, verifier_steps
from specsim.auditing._checks.tables import plan_tables, table_of
from specsim.auditing._report.text import limits_line, waste_lines
from specsim.auditing._results.audit import BUDGET, ProofSummary, Verdict
from specsim.auditing._runner import prove_on_generated_models
from specsim.auditing._verifier.local import Local
from specsim.core._report import json_of
from specsim.core._streams import key_of
from specsim.core.stats import MIN_EXPECTED, detectable_tv, log_e_value
from specsim.models import TableModel, Tree, chain, chains
from specsim.rules import get
from specsim.simulation._counting import EXAMPLES, no_counts
from specsim.simulation._rows import model_rows, start_of
from specsim.simulation._sources import FixedPairSource, RowSource, rule_verifier

#: Of the pairs whose p and q never change, and of rows that do.
FEW_CASES = ["two-point", "asymmetric", "zeros", "disjoint", "identical", "one-hot draft", "near-equal"]
FEW_CASES += ["Zipf 1 000", "Markov chain", "n-gram pair"]


@pytest.fixture(scope="module", autouse=True)
def _smaller_audits_unless_full(request, full):
    if not full:
        request.getfixturevalue("few_cases_in_module")


@pytest.fixture(scope="module")
def standard(bank):
    return bank("standard", lambda: audit("standard", level="smoke", rng=1))


@pytest.fixture(scope="module")
def lenient(bank):
    return bank("lenient", lambda: audit("lenience:lenience=0.5", level="smoke", rng=1, cases=FEW_CASES[:-1]))


@pytest.fixture(scope="module")
def on_trees(bank, full):
    cases = None if full else [*FEW_CASES[:4], *FEW_CASES[-2:]]
    return bank("on-trees", lambda: audit("without_replacement", "smoke", rng=1, cases=cases))


@pytest.fixture(scope="module")
def from_target(bank):
    wrong, some = verifiers.resamples_from_target, ["two-point", "asymmetric", "disjoint", "identical"]
    return bank("from-target", lambda: audited(wrong, *some))


def audited(verifier, *cases):
    return audit(verifier, "smoke", rng=1, cases=cases or None, diagnose=False)


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


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_right_verifier_is_consistent(seed):
    result = audit(verifiers.right, level="smoke", rng=seed, diagnose=False)
    assert findings(result) == []
    assert result.proof is None


def test_an_exact_verifier_that_wastes_drafts_is_consistent_and_wasteful():
    result = audited(verifiers.ignores_drafts, "two-point", "disjoint", "Markov chain")
    assert result.verdict is Verdict.CONSISTENT
    assert result.wasteful
    wasteful = {case.case: case.efficiency.wasteful for case in result.cases if case.efficiency}
    assert wasteful["disjoint"] is False
    assert list(waste_lines(result)) == [
        "two-point: 1.0000 tokens per step, 0.271 of the standard rule's (at most 0.271).",
        "No step emits more tokens than are drafted: the bonus token is missing, or the last drafted token is not used.",
    ]


def test_a_known_way_of_accepting_less_is_named():
    result = audited(mistakes.get("one_hot_draft").function, "two-point", "asymmetric")
    (_, named) = waste_lines(result)
    assert named.startswith("It accepts as often as one_hot_draft, sampler_match, block_one_hot: ")


def test_what_a_verifier_that_is_not_reproducible_is_not_asked_is_said():
    result = audited(declares(reproducible=False)(partial(verifiers.right)), "two-point")
    assert limits_line(result).startswith("The verifier declares reproducible=False; ")
    assert limits_line(result).endswith(" It was not tested whether the same rng gives the same tokens.")


def test_the_same_seed_gives_the_same_audit_on_any_number_of_threads():
    told = []
    how = {"rng": 1, "cases": ["two-point", "Markov chain"], "progress": lambda *both: told.append(both)}
    first, again = (audit("standard", "smoke", threads=threads, **how).to_dict() for threads in (3, 1))
    assert again.pop("provenance")["root"] == first.pop("provenance")["root"] == 1
    assert again == first
    of_first = told[: told.index(told[-1]) + 1]
    assert told[-1][0] == told[-1][1]
    assert of_first == sorted(of_first)


# --- rules for trees -------------------------------------------------------------------------------------


def test_a_rule_for_trees_is_audited_on_pairs_of_chains(on_trees):
    assert on_trees.verdict is Verdict.CONSISTENT
    assert findings(on_trees) == []
    assert on_trees.proof.as_claimed
    chains_of_standard = {case.name: case.tree.size for case in battery(get("standard"))}
    for case in on_trees.cases:
        assert case.tree == chains(2, chains_of_standard[case.case], "without replacement")
        assert case.gamma == chains_of_standard[case.case] == len(case.lengths) - 1
        assert case.alphas.drafted == pytest.approx((case.tokens_per_step - 1) / (2 * case.gamma))
    assert all(case.efficiency.upper >= 1 for case in on_trees.cases if case.iid)
    assert max(case.efficiency.lower for case in on_trees.cases if case.iid) > 1
    document = json.loads(json_of(on_trees))["cases"][0]
    assert (document["draft_sampling"], document["parents"][:2]) == ("without replacement", [0, 0])


# --- lossy rules -----------------------------------------------------------------------------------------


def test_a_lossy_rule_that_keeps_its_word_is_lossy_and_no_failure(lenient):
    assert lenient.verdict is Verdict.LOSSY
    assert lenient.exit_code == 0
    assert lenient.verifier == "lenience:lenience=0.5"
    assert findings(lenient) == []
    assert lenient.proof.as_claimed
    assert not lenient.proof.lossless


def test_the_total_variation_of_a_lossy_rule_is_said(lenient):
    """Lenience l costs α(l) - α(1), see `specsim/rules/_lossy/lenience.py`."""
    cases = [case for case in subjects.battery(get("lenience")) if case.name in FEW_CASES[:-1]]
    for case, of_battery in zip(lenient.cases, cases, strict=True):
        contexts = of_battery.contexts[:256]
        p, q = of_battery.target.rows(contexts), of_battery.draft.rows(contexts)
        cost = (np.minimum(p / 0.5, q) - np.minimum(p, q)).sum(axis=1).mean()
        assert case.declared_tv == pytest.approx(cost, abs=1e-9)
        assert case.verdict is (Verdict.LOSSY if cost > 1e-9 else Verdict.CONSISTENT)
    unharmed = {case.case for case in lenient.cases if case.verdict is Verdict.CONSISTENT}
    # there p/q is 0, or at least 1/2, wherever q drafts
    assert unharmed == {"zeros", "disjoint", "identical"}
    assert lenient.declared_tv == max(case.declared_tv for case in lenient.cases) > 0.2
    assert {case.case: case.declared_tv for case in lenient.cases}["one-hot draft"] == pytest.approx(
        0.3, abs=1e-6
    )


def test_a_lossy_rule_is_faster_than_the_standard_rule(lenient, standard):
    assert not lenient.wasteful
    faster = {case.case: case.tokens_per_step for case in lenient.cases}
    slower = {case.case: case.tokens_per_step for case in standard.cases}
    for case in ("two-point", "asymmetric", "near-equal", "Zipf 1 000", "Markov chain"):
        assert faster[case] > slower[case]


# --- wrong on purpose ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("block_tokenwise_residual", False),  # a chain, and the first token is perfect
        pytest.param("sorted_siblings", True, marks=pytest.mark.slow),  # siblings that may be alike
        ("one_coin_real_q", True),  # siblings that differ
    ],
)
def test_a_control_is_biased_by_its_draws_alone(name, first, monkeypatch, full):
    if not (full and first):  # steps of a control are slow in a large vocabulary
        names = "two-point", "asymmetric", "zeros", "irregular", "Markov chain"
        monkeypatch.setattr(
            subjects, "battery", lambda rule: [case for case in battery(rule) if case.name in names]
        )
        monkeypatch.setitem(LEVELS, "smoke", dataclasses.replace(LEVELS["smoke"], rule=2**16))
    result = audit(name, level="smoke", rng=1)
    assert result.verdict is Verdict.BIASED
    assert result.exit_code == 1
    assert not result.proof.as_claimed
    assert {kind for _, kind, _ in findings(result)} == {"deviation"}
    assert any(text.startswith("position 1") for _, _, text in findings(result)) == first
    assert any(case.verdict is Verdict.BIASED for case in result.cases if case.iid)
    assert any(case.verdict is Verdict.BIASED for case in result.cases if not case.iid)
    assert dataclasses.replace(result, proof=None).verdict is Verdict.BIASED


@pytest.mark.parametrize(
    "name", [*rules.names("controls"), "block", "gumbel", "k_seq", "traversal", "lenience:lenience=0.3"]
)
def test_the_proof_part_refutes_every_control_and_finds_other_rules_as_they_claim(name):
    proof = prove_on_generated_models(get(name))
    control = name in rules.names("controls")
    assert proof.as_claimed != control
    assert (proof.largest_tv > 0.05) if control else (proof.largest_tv == 0)
    assert proof.lossless == (not name.startswith("lenience"))


def test_a_refuted_rule_is_biased_whatever_the_draws_say(standard, lenient):
    for result in (standard, lenient):
        refuted = dataclasses.replace(result, proof=ProofSummary(30, 0.01, result.proof.lossless))
        assert refuted.verdict is Verdict.BIASED
        assert refuted.exit_code == 1
        assert "NOT " in refuted._repr_html_()


# --- wrong verifiers -------------------------------------------------------------------------------------


def test_always_the_most_probable_token_is_biased():
    """`test_excess` has the laws of known mistakes."""
    result = audited(verifiers.always_argmax, "one-hot draft", "near-equal", "Markov chain")
    assert result.verdict is Verdict.BIASED
    assert result.exit_code == 1
    assert any(kind in ("deviation", "support") for _, kind, _ in findings(result))


def test_resampling_from_the_target_is_biased_with_place_token_and_size(from_target):
    assert from_target.verdict is Verdict.BIASED
    text = next(text for case, _, text in findings(from_target) if case == "asymmetric")
    assert re.match(r"position 1: TV 0\.\d+ \[0\.\d+, 0\.\d+\] on the tokens; token", text)
    assert "token 0 too often" in text
    unharmed = {case.case for case in from_target.cases if not case.findings}
    assert {"disjoint", "identical"} <= unharmed  # there the residual is p, or is never drawn from


def test_a_reused_uniform_is_found_at_the_second_position_only():
    cases = ["two-point", "asymmetric"]  # a smoke audit may end before that position shows
    result = audit(verifiers.reuses_one_uniform, "quick", rng=1, cases=cases, diagnose=False)
    assert result.verdict is Verdict.BIASED
    assert not any(text.startswith("position 1") for _, _, text in findings(result))
    assert any(text.startswith("position 2") for _, _, text in findings(result))


def test_impossible_tokens_end_the_matter():
    result = audited(verifiers.accepts_everything, "zeros")
    support = [text for case, kind, text in findings(result) if (case, kind) == ("zeros", "support")]
    assert "have probability 0 under the target" in support[0]
    assert "token 3" in support[0] or "token 4" in support[0]
    zeros = next(case for case in result.cases if case.case == "zeros")
    assert zeros.steps < zeros.planned  # it stopped early


def test_draws_that_are_too_even_are_called_dependent():
    result = audited(verifiers.too_even, "two-point", "disjoint", "Markov chain")
    assert result.verdict is Verdict.BIASED
    assert {(case, kind) for case, kind, _ in findings(result)} == {("disjoint", "dependent")}


def test_a_law_that_is_off_is_not_called_dependent(from_target):
    assert {kind for _, kind, _ in findings(from_target)} == {"deviation"}
    # in steps after the alarm pairs are improbable too, since each of them is
    subject = subjects.function_subject(Local(verifiers.resamples_from_target, Declared()), "")
    (plan,) = subject.plans("smoke", ["asymmetric"])
    steps = Span("asymmetric", key_of(1), 0, 4 * plan.steps)
    result = judge_case(plan, count_span(subject, steps), BUDGET / plan.tests)
    assert any(table.rejected for table in result.tables if table.kind == "neighbours")
    assert {finding.kind for finding in result.findings} == {"deviation"}


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("batch_shares_uniforms", "rows of a call"),
        ("pairs_share_uniforms", "rows of a call"),
        ("reseeded", "successive calls"),
    ],
)
def test_shared_randomness_is_called_dependent(name, steps):
    result = audited(mistakes.get(name).function, "asymmetric", "disjoint")
    said = [text for case, kind, text in findings(result) if (case, kind) == ("disjoint", "dependent")]
    assert any(f"the first tokens of {steps} depend on each other" in one for one in said)


def test_tokens_of_another_row_are_caught_without_statistics():
    result = audited(verifiers.neighbours_tokens, "n-gram pair")
    assert result.verdict is Verdict.BIASED
    kind, text = next((kind, text) for case, kind, text in findings(result) if case == "n-gram pair")
    assert kind == "path"
    assert "was drafted" in text


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (verifiers.raises, "raised RuntimeError: out of cheese"),
        (verifiers.ragged, "returned no array"),
        (verifiers.masked, "returned no array [B, γ+1] (ValueError: output: "),
        (verifiers.returns_floats, "returned float64, expected integer tokens"),
        (verifiers.wrong_shape, "returned shape"),
        (verifiers.out_of_range, "step 3, position 1: token 2 is outside [0, 2)"),
        (verifiers.empty_step, "step 5: emitted no token"),
        (verifiers.hole_in_padding, "step 0: a token follows the padding"),
        (verifiers.alters_p, "altered its input: p *= 0.5 (verifiers.py, line "),
    ],
)
def test_breaches_of_the_contract_are_broken(broken, said):
    result = audited(broken, "two-point", "zeros")
    assert result.verdict is Verdict.BROKEN
    assert result.exit_code == 1
    assert any(said in text for _, _, text in findings(result))
    json.loads(json_of(result))
    result._repr_html_()


# --- claims ----------------------------------------------------------------------------------------------


def test_the_claimed_row_is_the_target_or_what_the_rule_declares():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.1, 0.7])
    for rule in (None, get("standard"), get("block_first_failure")):
        claim = Claim(rule, chain(2))
        assert claim.lossless
        assert claim.row(p, q, 0) is p
        assert claim.row(p, None, 2) is p
    lenience, alpha, lenient_alpha = 0.25, 0.5, 1.0
    claim = Claim(get(f"lenience:lenience={lenience}"), chain(2))
    expected = np.minimum(p / lenience, q) + np.maximum(p - q, 0) * (1 - lenient_alpha) / (1 - alpha)
    assert not claim.lossless
    for position in (0, 1):
        np.testing.assert_allclose(claim.row(p, q, position), expected, rtol=1e-14)
    assert claim.row(p, q, 2).tolist() == p.tolist()  # the bonus
    at_leaves = Claim(get("cascade_token:alpha=1"), chain(2))
    # the draft decides, after its last token too
    np.testing.assert_allclose(at_leaves.row(p, q, 2), q, rtol=1e-14)


def test_claimed_rows_are_those_of_each_step():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(3), (20, 3)), rng.dirichlet(np.ones(3), (20, 2))
    for name in ("lenience:lenience=0.3", "greedy_match", "typical"):
        rows = Claim(get(name), chain(2)).rows(p, q)
        np.testing.assert_allclose(rows.sum(axis=2), 1, rtol=1e-12)
        for step, position in np.ndindex(20, 3):
            q_row = q[step, position] if position < 2 else None
            fresh = Claim(get(name), chain(2)).row(p[step, position], q_row, position)
            assert rows[step, position].tolist() == fresh.tolist()
    assert Claim(None, chain(2)).rows(p, q) is p


def deep_tables(size=3):
    """A target of order 2 and a draft of order 1: rows that differ along a path."""
    rng = np.random.default_rng(5)
    return TableModel(rng.dirichlet(np.ones(size), (size, size))), TableModel(
        rng.dirichlet(np.ones(size), size)
    )


@pytest.mark.parametrize(
    "parents", [(0, 0, 1, 2), (0, 1, 0, 3), (0, 0, 1, 1, 2, 2), (0, 0, 0, 2, 1, 4), (0, 1, 2)]
)
def test_rows_on_the_path_are_those_after_the_emitted_tokens(parents):
    target, draft = deep_tables()
    tree = Tree(parents)
    reader = model_rows(target, draft, tree)
    rows = reader.rows(key_of(1), 0, 300)
    tokens, accepted = rule_verifier(get("traversal"), tree)(rows, key_of(1), 0)
    path = rows_on_path(rows, tokens)
    assert path.p_of.shape == (tree.depth + 1, 300)
    inner = set(parents)
    for s in range(300):
        history = reader.contexts[start_of(key_of(1), s, len(reader.contexts))].tolist()
        alike = {0}
        for i in range(accepted[s] + 1):
            assert path.p[path.p_of[i, s]].tolist() == target.row(history).tolist()
            if alike & inner:
                assert path.q[path.q_of[i, s]].tolist() == draft.row(history).tolist()
            x = int(tokens[i, s])
            history.append(x)
            alike = {
                j + 1 for j, above in enumerate(parents) if above in alike and rows.draft_tokens[s, j] == x
            }
    assert set(accepted.tolist()) == set(range(tree.depth + 1))


@pytest.mark.parametrize("case_name", ["asymmetric", "Markov chain"])
def test_tokens_outside_the_claimed_law_are_counted_and_named(case_name):
    """Steps of the standard rule, judged by what greedy match claims: all but the argmax is impossible."""
    claimed = get("greedy_match")
    case = next(case for case in battery(claimed) if case.name == case_name)
    p, q = (model.rows(case.contexts[:1])[0] for model in (case.target, case.draft))
    reader = model_rows(case.target, case.draft, case.tree)
    source = (
        FixedPairSource(get("standard"), p, q, case.tree)
        if case.is_pair
        else RowSource(reader, rule_verifier(get("standard"), case.tree))
    )
    tally = AuditTally(case, Claim(claimed, case.tree))
    counts, found, named = no_counts(tally).counts, [], []
    impossible, visits = [0] * (case.gamma + 1), [0] * (case.gamma + 1)
    for batch in source.batches(key_of(3), 0, 500):
        found += tally.count(counts, batch, key_of(3))
        for s in range(len(batch.accepted)):
            history = case.contexts[0].tolist()
            for i in range(batch.accepted[s] + 1):
                x = int(batch.tokens[i, s])
                visits[i] += 1
                if x != np.argmax(case.target.row(history)):
                    impossible[i] += 1
                    named.append((batch.first + s, i, x))
                history.append(x)
    assert counts["impossible"].tolist() == impossible
    assert counts["pit"].sum(axis=1).tolist() == [
        n - lost for n, lost in zip(visits, impossible, strict=True)
    ]
    assert [tuple(one) for one in found[:EXAMPLES]] == named[:EXAMPLES]
    assert len(named) > 100


# --- plan, budget, report --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["standard", "lenience:lenience=0.5", "k_seq", "cascade_token", None])
def test_tables_are_laws_over_cells_that_are_worth_testing(name):
    rule = None if name is None else get(name)
    for case in battery(rule or Declared()):
        steps = case.rule_steps("smoke", rule) if rule else verifier_steps(case, "smoke")
        assert steps % 8 == 0
        for table in plan_tables(case, Claim(rule, case.tree), steps):
            assert table.law.sum() == pytest.approx(1.0, abs=1e-12)
            assert (table.law > 0).all()
            assert table.law.min() * steps >= MIN_EXPECTED or table.kind in ("tail", "ids")
            assert table.cells.max() == len(table.law) - 1


def test_the_battery_fits_the_rule():
    by_name = {case.name: case for case in battery(get("standard"))}
    assert len(by_name) == len(battery(get("standard"))) == 12
    assert all(case.tree == chain(case.gamma) for case in by_name.values())
    for name, drawing in (("k_seq", "sampled"), ("deterministic_children", "top")):
        for case in battery(get(name)):
            assert case.tree == chains(2, by_name[case.name].gamma, drawing)
            assert case.gamma == by_name[case.name].gamma
    # what a lossy rule declares of a token is for chains
    assert all(
        case.tree == chain(case.gamma, case.tree.draft_sampling) for case in battery(get("two_thresholds"))
    )
    left_out = {name: set(by_name) - {case.name for case in battery(rule)} for name, rule in SUBJECTS.items()}
    assert left_out == {"verifier": {"Zipf 32 000"}, "lossy": {"Zipf 32 000"}, "tree": set()}


SUBJECTS = {"verifier": Declared(), "lossy": get("lenience"), "tree": get("traversal")}


def test_a_level_gives_every_case_its_steps():
    level = LEVELS["smoke"]
    for subject, rule in SUBJECTS.items():
        for case in battery(rule):
            steps = verifier_steps(case, "smoke") if subject == "verifier" else case.rule_steps("smoke", rule)
            assert steps % 8 == 0
            if subject == "verifier":
                most = case.weight * level.verifier_bytes
                assert steps == level.verifier or steps * case.step_bytes <= most
            elif case.is_pair:
                assert steps == level.rule
            else:
                assert level.rule // 128 <= steps <= level.rule // 2
    zeros = next(case for case in battery(Declared()) if case.name == "zeros")
    assert [verifier_steps(zeros, level) for level in ("smoke", "quick")] == [
        LEVELS["smoke"].verifier,
        LEVELS["quick"].verifier // 2,
    ]
    ngrams = next(case for case in battery(get("lenience")) if case.name == "n-gram pair")
    assert ngrams.rule_steps("quick", get("lenience")) == ngrams.rule_steps("smoke", get("lenience")) == 1024
    assert ngrams.rule_steps("quick", get("standard")) == 2**20


def test_the_budget_is_split_over_all_tests(standard):
    assert standard.tests > sum(len(case.tables) for case in standard.cases)
    assert standard.budget == BUDGET
    for case in standard.cases:
        for table in case.tables:
            assert table.rejected == (table.log10_e >= math.log10(standard.tests / standard.budget))
            cells, split = (2, 40 * table.cells) if table.kind == "ids" else (table.cells, 1)
            assert table.detectable_tv == detectable_tv(cells, table.n, BUDGET / standard.tests / split)


def test_a_table_is_rejected_from_its_alarm_on():
    level, n = 1e-6, 1000
    table = table_of("prefix", 0, (), "prefixes", 0, np.array([0.5, 0.5]), n)
    alarm, evidence = -math.log(level), []
    for heads in range(500, 620, 5):
        counts = {"prefixes": np.array([heads, n - heads])}
        evidence.append(log_e_value(counts["prefixes"], table.law))
        assert judge_table(table, table.log_e(counts["prefixes"]), counts, level).rejected == (
            evidence[-1] >= alarm
        )
    for low, high in ((0.5 * alarm, alarm), (alarm, 1.5 * alarm)):  # both sides are tried, and near
        assert any(low < one < high for one in evidence)
