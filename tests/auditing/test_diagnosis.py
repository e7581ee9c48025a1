"""The diagnosis: a known mistake is named, also with another parameter; an unknown one is called unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import verifiers

from experiments import diagnosis
from experiments._kept import kept
from specsim import generate
from specsim.auditing import audit, declares, mutants
from specsim.auditing._diagnosis import verifiers as chains
from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.dependence import signature
from specsim.auditing._diagnosis.outcomes import diagnostic_cases
from specsim.auditing._diagnosis.predictions import predict
from specsim.auditing._diagnosis.ranking import FIT, Scored, alike, sort_ranking
from specsim.auditing._diagnosis.verifiers import diagnose_chain
from specsim.auditing._execution import open_execution
from specsim.auditing._replay import replay_step
from specsim.auditing._runner import PROMISES, CaseRun, run_case
from specsim.auditing._verifier.contract import Declared
from specsim.auditing._verifier.local import Local

SEED = 3
#: An audit's alarm level for one test, roughly.
ALARM = 1e-9


def failures(function, names, level="smoke"):
    """The results of the audit's cases of these names."""
    with open_execution(function, 1, 60) as place:
        cases = [case.name for case in place.subject.cases]
        plans = [place.subject.plan(cases.index(name), level) for name in names]
        found = [run_case(place.subject, CaseRun(plan, SEED, ALARM)).result() for plan in plans]
    assert any(result.findings for result in found)
    return [result for result in found if result.findings]


def diagnosed(function, names=("asymmetric", "own rows"), known=None, level="smoke"):
    failed = failures(function, names, level)
    with open_execution(function, 1, 60) as place:
        return diagnose_chain(place.subject, failed, level, SEED, known)


def first(diagnosis):
    return diagnosis.named[0].name.partition(":")[0] if diagnosis.named else "unknown"


# --- predictions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mutants.names("verifier"))
def test_a_prediction_is_a_law_for_each_drafted_path(name):
    mutant = mutants.get(name)
    if mutant.law is None:
        return
    for case in diagnostic_cases(Declared()):
        if case.rotated:
            continue
        law = predict(mutant, case).law
        sums = law.sum(axis=(1, 2))
        assert (law >= 0).all()
        assert np.allclose(sums[sums > 0], 1.0, atol=1e-9)
        drafted = [case.draft.row(case.contexts[0])] if case.target.order else [case.draft.row(())]
        assert (sums > 0).sum() == np.count_nonzero(drafted[0]) ** case.gamma


@pytest.mark.parametrize("name", ["resamples_target", "shared_gumbel", "block_tokenwise_residual"])
def test_a_mutant_that_is_run_does_what_its_law_says(name):
    mutant = mutants.get(name)
    for case in diagnostic_cases(Declared())[:3]:
        exact, run = predict(mutant, case), predict(replace(mutant, law=None), case)
        seen = run.draws > 500
        gap = np.abs(exact.law - run.law)[seen]
        error = np.sqrt(exact.law * (1 - exact.law) / np.maximum(run.draws, 1)[:, None, None])[seen]
        assert (gap <= 7 * error + 1e-9).all()
        assert run.draws.sum() > 10_000


# --- verifiers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "case"),
    [("resamples_target", "asymmetric"), ("one_uniform", "own rows"), ("shared_gumbel", "opposite")],
)
def test_a_known_mistake_is_named(spelled, case):
    found = diagnosed(mutants.get(spelled).function, (case,), level="quick")
    assert first(found) == spelled
    assert found.named[0].threads == mutants.get(spelled).threads
    assert found.named[0].mechanism in " ".join(found.lines())


@pytest.mark.parametrize(
    ("name", "value"), [("lenience", 0.55), pytest.param("ensemble", 0.7, marks=pytest.mark.slow)]
)
def test_so_it_is_with_a_parameter_that_is_not_the_catalogues(name, value):
    mutant = mutants.get(name)
    parameter = mutant.parameters[0].name
    found = diagnosed(mutant.with_parameters(**{parameter: value}).function)
    assert first(found) == name
    assert float(found.named[0].name.partition("=")[2]) == pytest.approx(value, abs=0.05)


def test_a_users_own_code_is_recognised():
    found = diagnosed(verifiers.resamples_from_target)
    assert first(found) == "resamples_target"
    assert "accepted none" in found.evidence


def test_the_step_that_is_named_shows_the_mistake():
    found = diagnosed(verifiers.resamples_from_target)
    words = found.place.split("--case ")[1]
    case, rest = words.split(" --step ")
    step, seed = rest.split(" --seed ")
    text = replay_step(verifiers.resamples_from_target, case.strip("'"), int(step), int(seed), "smoke")
    assert "0 accepted" in text
    assert text.startswith(f"Step {step} of case {case}, level smoke, seed {seed}")


def test_a_step_that_breaks_is_told():
    def breaks(draft_tokens, p, q, rng):
        raise ZeroDivisionError("so")

    text = replay_step(breaks, "two-point", 1, SEED, "smoke")
    assert text.startswith("Step 1 of case 'two-point', level smoke, seed 3")
    assert "broke the contract: raised ZeroDivisionError: so" in text


def test_a_diagnosis_that_fails_does_not_cost_the_verdict(monkeypatch):
    def fails(*_, **more):
        raise IndexError("ours")

    monkeypatch.setattr("specsim.auditing._runner.diagnose_chain", fails)
    with pytest.warns(RuntimeWarning, match=r"diagnosis failed \(IndexError\('ours'\)\); the verdict stands"):
        found = audit(verifiers.resamples_from_target, "smoke", SEED, fail_fast=True)
    assert (found.verdict, found.diagnosis) == ("biased", None)


def small_residual(draft_tokens, p, q, rng):
    """A little is added to the residual everywhere: as biased as the catalogue's mistakes, and as
    independent.
    """
    steps, gamma = draft_tokens.shape
    row, place = np.arange(steps), np.arange(gamma)
    at = (row[:, None], place, draft_tokens)
    accepted = np.cumprod(rng.random((steps, gamma)) * q[at] < p[at], axis=1).sum(axis=1)
    weights = np.maximum(p[row, accepted] - np.pad(q, ((0, 0), (0, 1), (0, 0)))[row, accepted], 0.0) + 1e-3
    cdf = weights.cumsum(axis=1)
    output = np.full((steps, gamma + 1), -1)
    output[:, :gamma] = np.where(place < accepted[:, None], draft_tokens, -1)
    output[row, accepted] = (cdf <= rng.random((steps, 1)) * cdf[:, -1:]).sum(axis=1)
    return output


@pytest.mark.slow
def test_independent_steps_are_no_reused_randomness():
    """Mistakes that show between steps alone explain no law that is off step by step, however roughly theirs
    is known.
    """
    known = [one for one in mutants.catalogue() if one.name != "residual_epsilon"]
    found = diagnosed(small_residual, ("zeros", "own rows"), known)
    assert first(found) == "unknown"
    assert first(diagnosed(small_residual, ("zeros", "own rows"))) in ("residual_epsilon", "unknown")


def test_a_mistake_that_does_not_fit_comes_behind_those_that_do_and_is_not_named():
    fits, likelier = (
        Scored(mutants.get("lenience"), -10.0, 2 * FIT),
        Scored(mutants.get("resamples_target"), -1.0, FIT / 2),
    )
    assert sort_ranking([likelier, fits]) == [fits, likelier]
    assert alike([likelier, fits]) == []
    assert alike([fits, likelier]) == [fits]


def late_bias(draft_tokens, p, q, rng):
    output = verifiers.right(draft_tokens, p, q, rng)
    if p.shape[2] == 8:
        row, last = np.arange(len(p)), (output >= 0).sum(axis=1) - 1
        often = rng.random(len(p)) < 0.1
        output[row[often], last[often]] = rng.integers(8, size=often.sum())
    return output


def test_tables_of_any_number_of_steps_can_be_compared():
    """At deeper levels more of them are worth testing than a known mistake is drawn for."""
    names = ("asymmetric", "own rows")
    failed = failures(late_bias, names, "quick")
    with open_execution(late_bias, 1, 60) as place:
        ranking = [Scored(mutants.get(name), 0.0, 1.0) for name in ("lenience", "resamples_target")]
        told = chains._separate_by_tables(
            [*ranking, Scored(chains.EXACT, 0.0, 1.0)], place.subject, failed, "quick", lambda: None
        )
    assert len(told) == 3
    assert all(np.isfinite(one.log_likelihood) for one in told)
    steps = {result.case: len(result.tables) for result in failed}
    planned = place.subject.plan(place.subject.index(failed[0].case), "quick")
    assert len(planned.tables) == steps[failed[0].case]


@pytest.mark.parametrize("name", [pytest.param("resamples_target", marks=pytest.mark.slow), "lenience"])
def test_without_its_family_the_answer_is_unknown(name):
    known = [mutant for mutant in mutants.catalogue() if mutant.name not in (name, "residual_floor")]
    found = diagnosed(mutants.get(name).function, known=known)
    assert not found.known
    assert found.nearest
    assert "No known bug fits" in found.lines()[0]


def mixture(draft_tokens, p, q, rng):
    """Two mistakes at once, which nobody has catalogued: every third step resamples, every other is
    lenient.
    """
    one = mutants.get("resamples_target").function(draft_tokens, p, q, rng)
    two = mutants.get("lenience").function(draft_tokens, p, q, rng)
    return np.where((np.arange(len(p)) % 3 == 0)[:, None], one, two)


def test_a_new_mistake_is_unknown():
    assert not diagnosed(mixture).known


@pytest.mark.parametrize("name", ["neighbours_token"])
def test_wrong_rows_are_named_from_the_relabelled_case(name):
    assert first(diagnosed(mutants.get(name).function, ("own rows", "Markov chain"))) == name


#: Some mistakes without a law of single steps; the signatures of all of them take longer.
KIN = [
    mutants.get(name)
    for name in ("neighbours_token", "pairs_share_uniforms", "batch_shares_uniforms", "reseeded")
]


@pytest.mark.parametrize("name", ["pairs_share_uniforms", "batch_shares_uniforms", "reseeded"])
def test_shared_randomness_is_named_by_who_shares_it(name, full):
    assert first(diagnosed(mutants.get(name).function, ("disjoint",), None if full else KIN)) == name


def test_a_right_verifier_has_no_kin():
    assert list(signature(Local(verifiers.right, Declared()), 60).values()) == [False] * 6
    assert list(signature(Local(verifiers.right, Declared(vocab_size=32)), 60).values()) == [False] * 3
    assert signature(Local(verifiers.right, Declared(vocab_size=4)), 60) is None


def test_kinship_needs_no_large_vocabulary(full):
    reseeded = declares(vocab_size=32)(mutants.get("reseeded").function)
    assert first(diagnosed(reseeded, ("one-hot draft",), None if full else KIN)) == "reseeded"


@pytest.mark.parametrize(
    "name", ["accepts_everything", pytest.param("swapped_residual", marks=pytest.mark.slow)]
)
def test_impossible_tokens_do_not_make_steps_depend_on_each_other(name):
    function = declares()(mutants.get(name).function)
    assert first(diagnosed(function, ("disjoint",))) == name


@pytest.mark.parametrize(
    "spelled", ["lenience:lenience=0.27", pytest.param("two_thresholds:single=0.5", marks=pytest.mark.slow)]
)
def test_a_parameter_that_shows_in_few_rows_is_found(spelled):
    assert (
        first(diagnosed(mutants.get(spelled).function, ("zeros", "own rows", "opposite")))
        == spelled.partition(":")[0]
    )


@pytest.mark.slow
def test_what_small_vocabularies_do_not_show_is_not_put_down_to_rounding():
    assert not diagnosed(mutants.get("misaligned_residual:k=7").function, ("opposite", "rounded rows")).known


def test_an_audit_carries_its_diagnosis():
    result = audit(verifiers.resamples_from_target, "smoke", SEED, fail_fast=True)
    assert first(result.diagnosis) == "resamples_target"
    assert result.to_dict()["diagnosis"]["named"][0]["name"] == "resamples_target"
    assert PROMISES in {case.case for case in result.cases}


# --- decoders --------------------------------------------------------------------------------------------


def diagnosed_decoder(function, names=("second order", "peaked"), known=None):
    decoder = declares(decoder=True)(function)
    failed = failures(decoder, names)
    with open_execution(decoder, 1, 60) as place:
        return diagnose_decoder(place.subject, failed, SEED, known)


def test_a_decoders_mistake_is_named(full):
    mistake = mutants.get("draft_temperature:temperature=0.4")
    # the fit of a parameter takes longest
    known = [one for one in mutants.catalogue() if full or not one.parameters or one.name == mistake.name]
    found = diagnosed_decoder(mistake.function, ("peaked",), known)
    assert first(found) == "draft_temperature"
    assert "sequences" in found.evidence


@pytest.mark.slow
def test_a_decoder_that_drafts_more_tokens_is_recognised():
    greedy = replace(mutants.get("greedy_draft").decode, gamma=3)
    known = [one for one in mutants.catalogue() if not one.parameters]
    assert first(diagnosed_decoder(lambda *given: greedy(*given), ("second order",), known)) == "greedy_draft"


def test_a_right_decoder_does_not_fail_at_all():
    @declares(decoder=True)
    def ours(target, draft, prompt, max_new_tokens, eos, rng):
        text = generate(target, draft, prompt, max_new_tokens=max_new_tokens, eos=eos, rng=rng, gamma=2)
        return list(text.tokens)

    with open_execution(ours, 1, 60) as place:
        result = run_case(place.subject, CaseRun(place.subject.plan(0, "smoke"), SEED, ALARM)).result()
    assert not result.findings


# --- measured --------------------------------------------------------------------------------------------


def measured():
    return [row for row in kept("diagnosis") if row["named"] is not None]


def test_the_page_is_that_of_the_kept_rows():
    rows = kept("diagnosis")
    page = (Path(__file__).parents[2] / "docs/results/diagnosis.md").read_text(encoding="utf-8")
    assert diagnosis.page(rows) == page, "run make results-pages"
    assert [(row["mistake"], row["variant"]) for row in rows] == diagnosis.cells(fast=False), (
        "run make diagnosis"
    )


def test_a_kept_row_can_be_computed_again(smaller_audits):
    cell = ("resamples_target", "resamples_target")
    stored = next(row for row in kept("diagnosis") if row["variant"] == cell[1])
    assert diagnosis.run_cell(cell, fast=True, rng=0) == stored


def test_the_right_mistake_is_named_where_it_is_known_and_none_where_it_is_not():
    caught = measured()
    off = [row for row in caught if row["off_catalogue"]]
    assert len(off) > 30
    assert np.mean([row["right"] for row in off]) >= 0.9
    assert np.mean([row["right"] for row in caught]) >= 0.9
    assert np.mean([not row["without"] for row in caught]) >= 0.8
