"""Without power there is no good verdict, whatever was left out, and why."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import verifiers

from specsim import audit
from specsim.adapters import declares
from specsim.auditing import audit_against
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._report import text as words
from specsim.auditing._results.audit import WANTED_TV, Verdict
from specsim.core._tables import Table

FEW = {"vocab_size": 2, "gamma": 1, "batch": 1}


@pytest.fixture(scope="module")
def few():
    """An audit of a verifier that declares nearly everything away, with fewer steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEVELS, "smoke", replace(LEVELS["smoke"], verifier=2**11))
        return audit(declares(**FEW)(lambda *rows: verifiers.right(*rows)), "smoke", rng=1, wanted_tv=0.2)


def test_a_verifier_that_declares_nearly_everything_away_gets_no_verdict(few):
    assert few.verdict is Verdict.INCONCLUSIVE
    assert few.exit_code == 3
    assert [case.case for case in few.cases] == ["promises", "two-point", "shapes, few ids"]
    assert (few.planned, few.powerful, len(few.left_out)) == (2, 2, 22)
    said = words.limits_line(few)
    assert "vocab_size=2, gamma=1, batch=1; 22 of 24 cases were left out: asymmetric, zeros" in said
    assert said in list(few.parts())
    assert "detectable in 2 of 24 cases" in words.wanted_line(few)


def test_the_evidence_is_set_beside_what_is_needed(few):
    most = max(table.log10_e for case in few.cases for table in case.tables)
    assert f"10^{max(most, 0):.1f} of 10^{few.needed_log10_e:.1f} needed" in words.wanted_line(few)
    assert few.needed_log10_e == pytest.approx(6 + len(str(few.tests)) - 1, abs=1)


@pytest.mark.parametrize(
    ("rule", "good"), [("standard", Verdict.CONSISTENT), ("lenience:lenience=0.5", Verdict.LOSSY)]
)
def test_power_is_counted_at_the_first_token_of_half_of_the_cases(rule, good, smaller_audits):
    cases = ["two-point", "asymmetric", "zeros", "Markov chain"]
    whole = audit(rule, "smoke", rng=1, wanted_tv=WANTED_TV, cases=cases)
    assert (whole.verdict, whole.planned) == (good, 4)
    tvs = sorted(case.first_token.detectable_tv for case in whole.cases)
    half = tvs[len(tvs) // 2 - 1]
    assert replace(whole, wanted_tv=half).verdict is good
    assert replace(whole, wanted_tv=half * 0.999).verdict is Verdict.INCONCLUSIVE
    assert replace(whole, left_out=("one",)).verdict is good
    assert replace(whole, left_out=("a",) * 5).verdict is Verdict.INCONCLUSIVE
    assert replace(whole, cases=whole.cases[:1]).verdict is Verdict.INCONCLUSIVE
    assert replace(whole, interrupted=True).verdict is Verdict.INCONCLUSIVE
    assert replace(whole, cases=()).exit_code == 3
    document = json.loads(json.dumps(replace(whole, cases=()).to_dict()))
    assert (document["verdict"], document["exit_code"], document["powerful"]) == ("inconclusive", 3, 0)


def test_two_verifiers_are_not_the_same_without_power(smaller_audits):
    right = declares(vocab_size=2)(lambda *rows: verifiers.right(*rows))
    found = audit_against(right, right, "smoke", rng=1)
    assert (found.verdict, found.exit_code) == ("same", 0)
    few = replace(found, wanted_tv=1e-3)
    assert (few.verdict, few.exit_code, few.identical) == ("inconclusive", 3, True)
    for result, said in ((found, "same"), (few, "no power")):
        (table,) = (part for part in result.parts() if isinstance(part, Table))
        assert {row[-1] for row in table.rows} == {said}
