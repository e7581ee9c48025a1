"""Audits with a case of the user's own pair."""

import numpy as np
import pytest
import verifiers

import specsim
from specsim.adapters import declares
from specsim.auditing._report import text as words
from specsim.models import Pair, TableModel

pytestmark = pytest.mark.usefixtures("smaller_audits")
P, Q = np.random.default_rng(1).dirichlet(np.ones(11), size=2)


@declares(vocab_size=11)
def wrong_for_eleven_tokens(draft_tokens, p, q, rng):
    """No case of the battery has eleven."""
    verify = verifiers.resamples_from_target if p.shape[2] == 11 else verifiers.right
    return verify(draft_tokens, p, q, rng)


def test_a_mistake_that_only_the_own_rows_show_is_found():
    found = specsim.audit(
        wrong_for_eleven_tokens, "smoke", rng=1, pair=(P, Q), cases=["asymmetric", "pair"], diagnose=False
    )
    assert [case.case for case in found.cases if case.findings] == ["pair"]
    own = found.cases[-1]
    assert own.vocab_size == 11
    assert own.alphas.context == pytest.approx(np.minimum(P, Q).sum(), abs=1e-5)
    without = specsim.audit(wrong_for_eleven_tokens, "smoke", rng=1, cases=["asymmetric"], diagnose=False)
    assert not any(case.findings for case in without.cases)


@pytest.mark.parametrize("pair", [Pair(P, Q), specsim.read_pair("zipf:vocab_size=30"), "models"])
def test_a_right_rule_is_consistent_on_it(pair):
    if pair == "models":
        rows = np.random.default_rng(2).dirichlet(np.ones(3), size=(2, 3))
        pair = Pair(TableModel(rows[0]), TableModel(rows[1]), "mine")
    name = f"pair {pair.name}" if pair.name else "pair"
    found = specsim.audit("standard", "smoke", rng=1, pair=pair, cases=[name])
    assert [(case.case, len(case.findings)) for case in found.cases] == [(name, 0)]
    assert ("--pair" in words.replay(found)) == bool(pair.name)


@pytest.mark.parametrize("rule", ["without_replacement", "lenience"])
def test_rules_of_other_shapes_and_laws_take_it(rule):
    found = specsim.audit(rule, "smoke", rng=1, pair=(P, Q), cases=["pair"])
    assert not any(case.findings for case in found.cases)
