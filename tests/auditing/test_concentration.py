"""A verifier that is too slow for all cases gets few cases with power, and the report says which."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
import verifiers

from specsim import audit
from specsim.adapters import declares
from specsim.auditing import _runner, _schedule
from specsim.auditing._checks import concentration
from specsim.auditing._checks.concentration import (
    FIRST_OF_KIND,
    Candidate,
    choose,
    kind_of,
    steps_needed,
    too_slow,
)
from specsim.auditing._checks.findings import detectable_in_table
from specsim.auditing._checks.subjects import VerifierSubject, open_subject
from specsim.auditing._report import text as words
from specsim.auditing._results.audit import Verdict, first_token_of
from specsim.auditing._schedule import Here
from specsim.core._report import json_of, junit_of, page_of

FEW_CASES = [
    *("two-point", "asymmetric", "identical", "irregular", "last token"),
    *("own rows", "Markov chain", "shapes, few ids"),
]
PAIR, ROWS, SHAPES = "one p and q, several drafted tokens", "rows that differ", "calls of changing shape"
KINDS = {
    **dict.fromkeys(("two-point", "asymmetric", "irregular", "last token"), PAIR),
    **dict.fromkeys(("own rows", "Markov chain"), ROWS),
    "identical": "",
    "shapes, few ids": SHAPES,
}
WANTED = 0.2
#: Seconds of a row, and of an audit that a tenth of the time suffices for.
PACE, LONG = 0.01, 1000.0
#: Seconds that a call of a new shape takes besides.
COMPILING = 10.0


@pytest.fixture(autouse=True)
def _few_cases(few_cases_in_module):
    pass


class Clock:
    """A time that only verifiers let pass."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def slowly(verifier, seconds, pace=PACE, **options):
    """Its audit within that time, at `pace` seconds a row, or at those that a function of the vocabulary gives."""
    clock = Clock()

    def slow(draft_tokens, p, q, rng):
        clock.now += len(p) * (pace(p.shape[2]) if callable(pace) else pace)
        return verifier(draft_tokens, p, q, rng)

    options = {"wanted_tv": WANTED, "diagnose": False} | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", clock)
        return audit(slow, "smoke", rng=1, seconds=seconds, **options)


@pytest.fixture(scope="module")
def plans(few_cases_in_module):
    with open_subject(verifiers.right, 1, 60.0) as subject:
        return {plan.case.name: plan for plan in subject.plans("smoke")}


def powerful(found):
    return {
        case.case for case in found.cases if case.first_token and case.first_token.detectable_tv <= WANTED
    }


def seconds_for(plans, names):
    """The time limit within which these cases reach the wanted power, at `PACE`."""
    alarm = _runner.BUDGET / sum(plan.tests for plan in plans.values())
    return sum(steps_needed(plans[name], WANTED, alarm) for name in names) * PACE


@pytest.fixture(scope="module")
def limit(plans):
    """Too little time for all cases."""
    return 1.5 * seconds_for(plans, ["two-point", "Markov chain"])


@pytest.fixture(scope="module")
def found(limit):
    """A right verifier, in that time."""
    return slowly(verifiers.right, limit)


def test_few_cases_have_power_where_equal_shares_leave_all_without(monkeypatch, limit, found):
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.exit_code == 3
    assert found.planned == len(FEW_CASES)
    assert 2 <= len(powerful(found)) < found.planned / 2
    assert set(found.out_of_time) == set(FEW_CASES) - powerful(found)
    assert found.provenance.seconds <= 1.02 * limit
    monkeypatch.setattr(_schedule, "too_slow", lambda *_: False)
    equal = slowly(verifiers.right, limit)
    assert not powerful(equal)
    assert not equal.out_of_time


def test_the_report_says_which_cases_ran_and_what_was_found_there(found, monkeypatch):
    monkeypatch.setattr("specsim.auditing._report.audit._svg", lambda *_: "")
    lines = words.time_lines(found)
    assert f"{len(found.out_of_time)} of 8 were left out for time" in lines[0]
    assert f"steps: {', '.join(found.out_of_time)}." in lines[0]
    for case in found.cases:
        if case.case in powerful(found):
            assert f"{case.case} ({case.first_token.detectable_tv:.3f})" in lines[1]
    shown = {row["case"]: row["verdict"] for row in words.evidence(found)}
    assert {name for name, verdict in shown.items() if verdict == "left out"} == set(found.out_of_time)
    junit = junit_of(found)
    for text in ("\n".join(map(str, found.parts())), page_of(found), junit):
        assert "were left out for time, after at most" in text
    assert junit.count("left out for time after") == len(found.out_of_time)
    assert json.loads(json_of(found))["out_of_time"] == list(found.out_of_time)
    assert f"detectable in {found.powerful} of 8 cases" in words.wanted_line(found)
    assert "left out " in str(found)


def test_a_wrong_verifier_that_equal_shares_miss_is_found(monkeypatch, limit):
    """And with the time of equal shares it is missed."""
    found = slowly(verifiers.lenient, limit)
    assert found.verdict is Verdict.BIASED
    assert any(case.findings for case in found.cases if case.case not in found.out_of_time)
    monkeypatch.setattr(_schedule, "too_slow", lambda *_: False)
    assert slowly(verifiers.lenient, limit).verdict is Verdict.INCONCLUSIVE


def test_the_choice_is_that_of_the_paces(limit, found):
    other = slowly(verifiers.right, limit)
    assert found.out_of_time == other.out_of_time
    for case, again in zip(found.cases, other.cases, strict=True):
        assert (case.counts["lengths"] == again.counts["lengths"]).all()
    # rows of eight tokens are fast: their cases go first
    fast = slowly(verifiers.right, limit, lambda size: PACE / 20 if size == 8 else PACE)
    assert {"asymmetric", "own rows"} <= powerful(fast)


def test_what_is_left_goes_to_cases_that_looked_slower(plans):
    """A verifier that compiles the first call of each shape."""
    seen = set()

    def compiles(draft_tokens, p, q, rng):
        if p.shape not in seen:
            seen.add(p.shape)
            time.perf_counter.now += COMPILING
        return verifiers.right(draft_tokens, p, q, rng)

    found = slowly(compiles, 10.0 * COMPILING * len(plans), COMPILING / 10_000)
    assert found.verdict is Verdict.CONSISTENT
    assert powerful(found) == set(FEW_CASES)
    assert not found.out_of_time


def test_a_case_that_one_of_several_processes_counts_has_no_more_than_the_time_limit(monkeypatch):
    class Three(Here):
        slots = 3

        def __init__(self, subject, children):
            super().__init__(subject)

    monkeypatch.setattr(VerifierSubject, "children", SimpleNamespace(most=3))
    monkeypatch.setattr(_schedule, "Processes", Three)
    for limit in (20, 50):
        found = slowly(verifiers.right, float(limit), cases=["two-point"], wanted_tv=0.9)
        assert 0.6 * limit < found.provenance.seconds <= 1.05 * limit


def test_if_no_case_can_have_the_power_one_has_all_of_the_time(plans):
    limit = 0.6 * seconds_for(plans, ["two-point"])
    found = slowly(verifiers.right, limit)
    assert not powerful(found)
    (one,) = set(FEW_CASES) - set(found.out_of_time)
    (case,) = (case for case in found.cases if case.case == one)
    assert case.steps > 5 * max(other.steps for other in found.cases if other.case != one)
    assert "No deviation was found where the time was spent" in words.time_lines(found)[1]


def test_no_case_is_left_out_where_all_have_the_power(full):
    found = slowly(verifiers.right, LONG)
    assert powerful(found) == set(FEW_CASES)
    assert found.out_of_time == ()
    assert words.time_lines(found) == []
    # nor where more time would give no more power: the level has too few steps
    assert not full or slowly(verifiers.right, 40.0, wanted_tv=0.001).out_of_time == ()


@pytest.mark.slow
def test_cases_that_have_ended_with_the_power_count():
    """Most cases are fast and have all of their steps before the choice; that of 32 tokens is slow."""
    found = slowly(verifiers.right, 5.0, lambda size: PACE if size == 32 else PACE / 10_000)
    assert powerful(found) == set(FEW_CASES) - {"irregular"}
    assert found.verdict is Verdict.CONSISTENT
    assert found.out_of_time == ()


def test_all_cases_are_run_where_one_has_raised_an_alarm(limit):
    """The verdict is known, and the diagnosis compares all cases."""
    found = slowly(verifiers.accepts_everything, limit)
    assert found.verdict is Verdict.BIASED
    assert found.out_of_time == ()


def test_a_case_that_breaks_is_no_case_left_out_for_time(limit):
    def breaks(draft_tokens, p, q, rng):
        return verifiers.right(draft_tokens, p, q, rng) if p.shape[2] != 32 else None

    found = slowly(breaks, limit)
    assert found.verdict is Verdict.BROKEN
    assert "irregular" not in found.out_of_time
    assert found.out_of_time


def case(name, cost, kind="", *, done=0, planned=10_000, needed=1000):
    """A candidate whose `needed` steps take `cost` seconds."""
    return Candidate(name, kind, needed, planned, done, cost / (needed - done))


def names(chosen):
    return [one.name for one in chosen]


def test_the_cheapest_cases_go_first():
    cases = [case("a", 5.0), case("b", 3.0), case("c", 4.0), case("d", 9.0)]
    assert names(choose(cases, (), 12.5)) == ["b", "c", "a"]
    assert names(choose(cases, (), 11.5)) == ["b", "c"]
    assert names(choose([case(name, 1.0) for name in "xyz"], (), 2.5)) == ["x", "y"]  # ties in their order
    assert choose(cases, (), 1.0) == []
    assert names(choose(cases, (), 30.0, 4.5)) == ["b", "c"]  # of several processes that have so long


def test_the_first_case_of_a_kind_goes_before_a_cheaper_one():
    few = [case("a", 1.0, PAIR), case("b", 1.1, PAIR), case("c", 2.0, ROWS), case("d", 2.5, SHAPES)]
    assert names(choose(few, (), 10.0)) == ["a", "c", "d", "b"]
    assert names(choose(few, (ROWS,), 10.0)) == ["a", "d", "b", "c"]
    far = [case("a", 1.0, PAIR), case("b", 1.0, PAIR), case("d", 1.01 * FIRST_OF_KIND, SHAPES)]
    assert names(choose(far, (), 10.0)) == ["a", "b", "d"]


def test_the_nearest_cases_are_those_with_most_of_their_steps():
    cases = [case("a", 50.0), case("b", 30.0), case("c", 1.0, needed=20_000), case("d", 60.0, done=800)]
    assert choose(cases, (), 10.0) == []
    assert names(choose(cases, (), 10.0, least=1)) == ["d"]  # 83 %
    assert names(choose(cases, (), 10.0, least=2)) == ["d", "b"]  # 33 %
    assert names(choose(cases, (), 40.0, least=2)) == ["b", "d"]


def test_equal_shares_are_too_short_if_they_leave_half_of_the_cases_without_power():
    cases = [case("a", 1.0), case("b", 1.0), case("c", 10.0), case("d", 10.0)]
    assert not too_slow(cases, 4.0, asked=4)  # two of four
    assert not too_slow(cases, 3.9, asked=4, ended=2)  # two others have it already
    assert too_slow(cases, 3.9, asked=4)
    assert too_slow(cases, 4.0, asked=5)  # one more was left out for what is declared
    beyond = [case(name, 1.0, needed=20_000) for name in "abcd"]
    assert not too_slow(beyond, 0.1, asked=4)  # more time gives no more power
    assert not too_slow([], 1.0, asked=4)


@pytest.mark.parametrize("name", FEW_CASES)
def test_the_steps_that_are_needed_give_the_wanted_power_and_no_fewer_do(name, plans):
    plan, level = plans[name], 1e-9
    table, needed = first_token_of(plan.tables), steps_needed(plan, WANTED, level)
    assert detectable_in_table(table, needed, level) <= WANTED
    assert detectable_in_table(table, needed - 1, level) > WANTED
    assert kind_of(plan) == KINDS[name]


def test_a_decoder_needs_as_many_texts_for_each_prompt():
    with open_subject(declares(decoder=True)(lambda *_: None), 1, 60.0) as subject:
        plans = subject.plans("smoke")
    assert {len(plan.case.prompts) for plan in plans} > {1}
    for plan in plans:
        table, prompts = first_token_of(plan.tables), len(plan.case.prompts)
        needed = steps_needed(plan, WANTED, 1e-9)
        assert needed % prompts == 0
        assert detectable_in_table(table, needed // prompts, 1e-9) <= WANTED
        assert kind_of(plan) == ""


def test_a_table_that_no_steps_fill_is_out_of_reach(plans, monkeypatch):
    monkeypatch.setattr(concentration, "first_token_of", lambda _: None)
    assert steps_needed(plans["two-point"], WANTED, 1e-9) == concentration.MOST_STEPS
