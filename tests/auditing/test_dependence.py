"""Steps that depend on each other, or on earlier ones: what says so, and intervals that hold all the same."""

import numpy as np
import pytest
import verifiers

from specsim import audit
from specsim.auditing._checks.counts import PIT_BINS, count_dependence
from specsim.auditing._checks.findings import calls_differ, design_effect
from specsim.core.stats import tv_interval
from specsim.mistakes import get

LAW = np.full(PIT_BINS, 1.0 / PIT_BINS)
#: Steps of a call, and how many of them share one random number.
ROWS, SHARED = 512, 16


def counted(seed, calls, shared):
    """Counts of the first tokens of `calls` calls, in which `shared` steps after each other are equal."""
    rng = np.random.default_rng([seed, calls, shared])
    table, pit = np.zeros((2, PIT_BINS + 1), dtype=np.int64), np.zeros((1, PIT_BINS), dtype=np.int64)
    for _ in range(calls // 2):
        first = np.repeat(rng.random(2 * ROWS // shared), shared)
        count_dependence(first, np.zeros((2, 16), dtype=np.int64), table)
        pit[0] += np.bincount((first * PIT_BINS).astype(int), minlength=PIT_BINS)
    return {"calls": table, "pit": pit}


def covered(shared, widened):
    """How often the interval of a total variation that is 0 contains 0, of 200 with eight calls each."""
    inside = 0
    for seed in range(200):
        counts = counted(seed, 8, shared)
        spread = design_effect([], counts) if widened else 1.0
        inside += tv_interval(counts["pit"][0], LAW, 0.05, spread)[1] == 0.0
    return inside


def test_calls_of_independent_steps_differ_by_chance_alone():
    assert not any(calls_differ(counted(seed, calls, 1)) for seed in range(200) for calls in (2, 8, 64))


@pytest.mark.parametrize("calls", [2, 8, 64])
def test_steps_that_share_random_numbers_make_calls_differ(calls):
    ratios = [calls_differ(counted(seed, calls, SHARED)) for seed in range(20)]
    assert sum(ratio is not None for ratio in ratios) >= 18
    assert np.median([ratio for ratio in ratios if ratio]) == pytest.approx(SHARED, rel=0.3)


def test_one_call_says_nothing_of_thedesign_effect():
    table = np.zeros((2, PIT_BINS + 1), dtype=np.int64)
    count_dependence(np.full(1, 0.5), np.zeros((2, 16), dtype=np.int64), table)
    assert calls_differ({"calls": table}) is None


def test_intervals_hold_where_steps_depend_on_each_other():
    assert covered(1, widened=True) >= 190
    assert covered(SHARED, widened=True) >= 190
    assert covered(SHARED, widened=False) < 20, "independence is not what makes the intervals hold"


def test_the_finding_of_a_call_that_shares_its_random_numbers_says_so():
    found = audit(get("batch_shares_uniforms").function, rng=2, cases=["asymmetric"], diagnose=False)
    findings = [finding for case in found.cases for finding in case.findings]
    assert any(finding.kind == "dependent" for finding in findings)
    deviations = [finding.text for finding in findings if finding.kind == "deviation"]
    assert deviations
    assert all("[0.0000, 1.0000]" in text for text in deviations), "each token has the target's law"
    assert found.cases[-1].efficiency is None, "its error is unknown"


def test_intervals_between_calls_that_depend_on_each_other_are_not_given():
    assert design_effect([], counted(0, 8, 1)) == 1.0
    reseeded = audit(get("reseeded").function, rng=2, cases=["asymmetric"], diagnose=False)
    (case,) = (case for case in reseeded.cases if case.findings)
    assert design_effect(case.tables, case.counts) is None


def test_what_is_kept_under_p_alone_shows_where_a_p_has_two_q():
    kept = {}

    def keeps_the_first_q(draft_tokens, p, q, rng):
        rows = zip(p[:, :-1].reshape(-1, p.shape[2]), q.reshape(-1, p.shape[2]), strict=True)
        first = [kept.setdefault(p_row.tobytes(), q_row) for p_row, q_row in rows]
        return verifiers.right(draft_tokens, p, np.reshape(first, q.shape), rng)

    result = audit(
        keeps_the_first_q, "smoke", rng=1, cases=["own rows", "Markov chain", "crossed rows"], diagnose=False
    )
    assert {case.case for case in result.cases if case.findings} == {"crossed rows"}
