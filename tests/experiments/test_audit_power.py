"""The power of an audit against sums done by hand, its predictions against runs, and its calibration."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from conftest import FALSE_ALARM

from experiments._kept import kept
from experiments.audit import audit_calibration, audit_power, sample_sizes
from experiments.audit._step_laws import deviation, known_law, rejections, subject_of, tables_of
from experiments.audit.audit_calibration import calibrate, exact_cases
from specsim import audit, mistakes, rules
from specsim.auditing import Verdict
from specsim.auditing._cases.battery import Case, DecoderCase
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._results.audit import BUDGET
from specsim.auditing._schedule import CaseRun, run_case
from specsim.core.stats import POWER, detectable_tv, log_e_value, log_e_values, needed_draws
from specsim.mistakes._reference import verify
from specsim.models import TableModel, chain
from specsim.theory import step_law

STEPS, LEVEL = 2**19, 1e-9
SERVER = "server shapes, 32 000 ids"


def quarters(*weights):
    return TableModel([Fraction(weight, 4) for weight in weights])


def deviation_of(name, target, draft, gamma):
    """Of a mistake on one pair."""
    case = Case("by hand", "", target, draft, chain(gamma))
    claim = Claim(None, case.tree)
    return deviation(known_law(mistakes.get(name), case), tables_of(case, claim, STEPS), LEVEL)


# --- by hand ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "p", "q", "wanted"),
    [
        # half of the drafts pass, the first token is 0 with 1/4 + 1/2·3/4 = 5/8
        ("resamples_target", (3, 1), (1, 3), {"position": 0, "prefix": (), "fatal": 0, "tv": 1 / 8, "distance": 1 / 64 / (3 / 4) + 1 / 64 / (1 / 4)}),
        # where the first draft passed, half of the time, the second passes for certain
        ("one_uniform", (2, 2), (4, 0), {"position": 1, "prefix": (0,), "kind": "prefix", "tv": 1 / 4, "distance": 1 / 2}),
        # half of the first tokens are impossible; ten steps are enough
        ("accepts_everything", (2, 2, 0), (1, 1, 2), {"fatal": 1 / 2, "tv": 1 / 2, "needed": np.log2(1 / (1 - POWER))}),
    ],
)  # fmt: skip
def test_what_a_known_mistake_deviates_by(name, p, q, wanted):
    found = deviation_of(name, quarters(*p), quarters(*q), 2 if name == "one_uniform" else 1)
    for key, value in wanted.items():
        assert getattr(found, key) == (value if isinstance(value, str | tuple) else pytest.approx(value))


@pytest.mark.parametrize(("name", "tv"), [("resamples_target", 1 / 8), ("lenience:lenience=1", 0)])
def test_the_bins_of_a_pair_show_the_same(name, tv):
    """p/q takes two values, at the edges of bins, so that the PIT loses nothing of a deviation at the first
    position."""
    case = Case("by hand", "", quarters(3, 1), quarters(1, 3), chain(1))
    tables = [one for one in tables_of(case, Claim(None, case.tree), STEPS) if one.kind == "PIT"]
    found = deviation(known_law(mistakes.get(name), case), tables, LEVEL)
    assert found.tv == pytest.approx(tv, abs=1e-12)
    assert found.distance == pytest.approx(16 / 3 * tv**2, abs=1e-12)
    assert np.isfinite(found.needed) == (tv > 0)


def test_a_greedy_draft():
    """p = (1/2, 1/2), q = (3/4, 1/4): 0 is drafted always and passes with 2/3, else comes 1."""
    case = DecoderCase("by hand", "", quarters(2, 2), quarters(3, 1), ((0,),), 2)
    law = known_law(mistakes.get("greedy_draft"), case)
    found = deviation(law, tables_of(case, None, STEPS), LEVEL)
    assert (found.position, found.prefix) == (0, ())
    assert found.tv == pytest.approx(1 / 6)
    assert found.distance == pytest.approx(1 / 9)


def test_sequences_that_break_the_contract_are_fatal():
    case = DecoderCase("by hand", "", quarters(2, 2), quarters(2, 2), ((0,),), 3, eos=1)
    law = known_law(mistakes.get("token_after_eos"), case)
    assert law.law[law.fatal].sum() > 0.2
    for tokens, fatal in zip(law.emitted, law.fatal, strict=True):
        assert fatal == (1 in tokens[:-1])


def test_cases_with_too_many_drafts_are_left_out():
    mistake = mistakes.get("one_uniform")
    cases = {case.name: case for case in subject_of(mistake).cases}
    for name in ("two-point", "irregular", "own rows", "n-gram pair"):
        assert (known_law(mistake, cases[name]) is None) == (name != "two-point")


# --- predictions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("shared_gumbel", "zeros"),
        pytest.param("block_tokenwise_residual", "Markov chain", marks=pytest.mark.slow),
        pytest.param("draft_top_k", "second order", marks=pytest.mark.slow),
    ],
)
def test_as_many_steps_as_predicted_reject_and_a_quarter_mostly_does_not(name, case, full):
    mistake, runs = mistakes.get(name), 20 if full else 8
    subject = subject_of(mistake)
    index = [one.name for one in subject.cases].index(case)
    plan, where = subject.plan(index, "quick"), subject.cases[index]
    found = deviation(known_law(mistake, where), plan.tables, LEVEL)
    assert found.needed < plan.steps
    (best,) = (
        one
        for one in plan.tables
        if (one.kind, one.position, one.prefix) == (found.kind, found.position, found.prefix)
    )

    def rejected(steps):
        some = replace(plan, tables=[best], steps=int(steps) // 8 * 8 + 8)
        found = (
            run_case(subject, CaseRun(some, seed, LEVEL, extends=False)).result() for seed in range(runs)
        )
        return sum(bool(one.findings) for one in found)

    assert rejected(found.needed) == runs
    assert rejected(found.needed / 4) <= runs / 2


def test_a_verifier_that_breaks_off_is_rejected_at_the_next_look():
    subject = subject_of(mistakes.get("neighbours_draft"))
    assert rejections(subject, 0, "smoke", 1e-9, [0, 1]) == [2**7, 2**7]


def test_needed_draws_are_those_of_the_detectable_deviation():
    for cells, n in ((2, 500), (16, 10_000), (300, 10**7)):
        least = 4 * detectable_tv(cells, n, LEVEL) ** 2
        assert needed_draws(least, cells, LEVEL) == pytest.approx(n, rel=1e-4)
        assert needed_draws(2 * least, cells, LEVEL) < n < needed_draws(least / 2, cells, LEVEL)


def test_e_values_of_many_tables_are_those_of_each():
    law = np.array([0.1, 0.2, 0.7])
    counts = np.random.default_rng(0).multinomial(1000, [0.2, 0.2, 0.6], size=5)
    each = [log_e_value(one, law) for one in counts]
    assert log_e_values(counts, law) == pytest.approx(each, rel=1e-12)
    assert log_e_values(counts[:, :1], np.ones(1)) == pytest.approx(np.zeros(5))


# --- calibration -----------------------------------------------------------------------------------------

ALARM_BUDGET = 1e-3


@pytest.fixture
def audits(full):
    """How many audits a calibration has."""
    return 100 if full else 25


class TooEven(np.random.Generator):
    """Draws whose deviations from what is expected are a tenth of what they should be."""

    def multinomial(self, n, pvals, size=None):
        drawn = super().multinomial(n, pvals, size=size)
        expected = np.asarray(n)[..., None] * np.asarray(pvals)
        return np.rint(expected + 0.1 * (drawn - expected)).astype(np.int64)


@cache
def cases_of(name):
    return exact_cases(rules.get(name) if name in rules.names("chain", "tree") else mistakes.get(name))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("block", marks=pytest.mark.slow),
        "traversal",
        pytest.param("one_hot_draft", marks=pytest.mark.slow),
        pytest.param("draft_one_short", marks=pytest.mark.slow),
    ],
)
def test_exact_verifiers_raise_no_alarms_and_their_p_values_are_uniform(name, audits):
    cases = cases_of(name)
    assert sum(len(tables) for _, tables, _ in cases) > 50
    found = calibrate(cases, ALARM_BUDGET, audits, np.random.default_rng(1))
    low, high = found.alarm_rate(1 - FALSE_ALARM)
    assert low <= ALARM_BUDGET <= high
    assert found.uniformity > FALSE_ALARM


@pytest.mark.parametrize("name", [pytest.param("lenience", marks=pytest.mark.slow), "draft_temperature"])
def test_calibration_of_a_wrong_sampler_fails(name, audits):
    found = calibrate(cases_of(name), ALARM_BUDGET, audits, np.random.default_rng(1))
    assert found.alarm_rate(1 - FALSE_ALARM)[0] > ALARM_BUDGET
    assert found.uniformity < FALSE_ALARM


def test_calibration_of_draws_that_are_too_even_fails(audits):
    found = calibrate(cases_of("traversal"), ALARM_BUDGET, audits, TooEven(np.random.PCG64(1)))
    assert found.alarms == audits
    assert found.uniformity < FALSE_ALARM
    assert found.p_values.mean() > 0.9


def test_a_law_without_chance_has_no_p_values():
    found = calibrate(cases_of("greedy_match"), ALARM_BUDGET, 10, np.random.default_rng(1))
    assert (found.alarms, found.uniformity) == (0, None)


# --- the experiments -------------------------------------------------------------------------------------


def test_what_must_be_detected_was_rejected_in_every_run():
    rows = kept("audit_power")
    assert audit_power.failures(rows) == []
    here = {row["mistake"] for row in rows}
    assert [row["mistake"] for row in rows] == [name for name in mistakes.names() if name in here]
    spoiled = [{**rows[0], "rejected": rows[0]["rejected"] - 1}, *rows[1:]]
    assert audit_power.failures(spoiled) == [rows[0]["mistake"]]
    assert f"Not rejected in every run: `{rows[0]['mistake']}`" in " ".join(audit_power.page(spoiled).split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resamples_target", "draft_top_k"])
def test_a_kept_row_can_be_computed_again(name):
    stored = next(row for row in kept("audit_power") if row["mistake"] == name)
    found = audit_power.run_cell((name,), fast=True, rng=0)
    assert found.keys() == stored.keys()
    for name in ("tv", "distance", "total", "needed"):
        assert found.pop(name) == pytest.approx(stored[name])
    assert (found.pop("runs"), found.pop("rejected")) == (2, 2)
    assert found.pop("median_steps") > 0
    assert found == {name: stored[name] for name in found}


def test_the_kept_calibration_is_of_every_exact_rule_and_control_and_stays_within_the_budget():
    rows = kept("audit_calibration")
    assert [(row["kind"], row["verifier"]) for row in rows] == audit_calibration.cells(fast=False)
    for row in rows:
        assert row["low"] <= audit_calibration.BUDGET  # e-values raise fewer alarms than their budget
        if row["kind"] != "whole audits":
            assert row["audits"] == audit_calibration.AUDITS
        if row["uniformity"] is not None:
            assert row["uniformity"] > FALSE_ALARM


@pytest.mark.slow
def test_a_calibration_with_fewer_audits_is_of_the_same_cases_and_tables():
    stored = {row["verifier"]: row for row in kept("audit_calibration") if row["kind"] == "exact control"}
    cell = ("exact control", "draft_one_short")
    found = audit_calibration.run_cell(cell, fast=True, rng=0)
    assert found.keys() == stored["draft_one_short"].keys()
    assert found["audits"] == audit_calibration.FAST_AUDITS
    bins = [found[f"bin_{k}"] for k in range(audit_calibration.BINS)]
    assert sum(bins) == found["audits"] * found["cases"]
    for name in ("cases", "tables"):
        assert found[name] == stored["draft_one_short"][name]
    assert audit_calibration.run_cell(cell, fast=True, rng=1) != found


def test_a_sample_size_can_be_computed_again():
    stored = {(row["mistake"], row["server"]): row for row in kept("sample_sizes")}
    assert list(stored) == sample_sizes.cells(fast=False)
    for cell in (("resamples_target", ""), ("resamples_target", SERVER)):
        found, row = sample_sizes.run_cell(cell, fast=True, rng=1), stored[cell]
        assert found["case"] == row["case"]
        assert found["most_powerful"] == pytest.approx(row["most_powerful"], rel=0.1)
        assert found["ratio"] == pytest.approx(row["ratio"], rel=0.3)


#: Whose first tokens there have a total variation of .05 or more on average, since D ≥ 2·TV².
IN_A_SERVER = [
    row["mistake"]
    for row in kept("sample_sizes")
    if row["server"] == SERVER and (row["divergence"] or 0.0) >= 2.0 * 0.05**2
]


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_A_SERVER)
def test_a_known_mistake_in_the_calls_of_a_server_alone_is_found(name):
    wrong, seen = mistakes.get(name).function, []

    def verifier(draft_tokens, p, q, rng):
        seen.append(len(p) >= 16 and p.shape[2] >= 32_000)
        return (wrong if seen[-1] else verify)(draft_tokens, p, q, rng)

    assert audit(verifier, "quick", rng=0, cases=[SERVER], diagnose=False).verdict is Verdict.BIASED
    assert {True, False} == {*seen}


def test_no_test_is_better_than_the_most_powerful_one():
    known = [row for row in kept("sample_sizes") if row["case"]]
    assert len(known) > 60
    assert all(row["ratio"] > 1.0 for row in known)


def test_the_most_powerful_test_of_a_mistake_that_loses_one_token():
    """Nothing of probability .1 is ever emitted: n steps without it have probability .9^n under the claim."""
    law, log_ratios = np.array([0.0, 1.0]), np.array([np.log(1e-9), -np.log(0.9)])
    found = sample_sizes._least(law, log_ratios, 1000, np.random.default_rng(1))
    assert found == pytest.approx(math.log(BUDGET) / math.log(0.9), rel=0.03)


def test_log_likelihood_ratios_have_the_mean_of_the_divergence():
    mistake = mistakes.get("resamples_target")
    subject = subject_of(mistake)
    shown = sample_sizes._shown(mistake, subject, [case.name for case in subject.cases].index("zeros"))
    assert shown.log_ratios @ shown.known.law == pytest.approx(shown.divergence)


def test_the_parts_of_most_verifiers_give_the_law_of_their_first_token():
    rows, apart = ((2, 1, 3, 2), (1, 4, 1, 2)), set()
    models = [TableModel([Fraction(weight, 8) for weight in row]) for row in rows]
    for mistake in map(mistakes.get, {name for name, _ in sample_sizes.cells(fast=False)}):
        law = np.zeros(4)
        for tokens, mass in step_law(mistake, *models, chain(1)).items():
            law[tokens[0]] += mass
        if np.abs(sample_sizes._first_law(mistake, *np.array(rows) / 8) - law).max() > 1e-6:
            apart.add(mistake.name)
    own = {"double_chance", "ranks_disagree", "shared_gumbel", "all_drafted_masked"}
    assert apart == own | {"discards_unlikely_last", "padding_ends_draft", "rejected_penalised"}
