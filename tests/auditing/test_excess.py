"""A finding names the kind of token that is too frequent, and never blames acceptance that is exact."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from cases import cases

from specsim import audit, mistakes
from specsim.adapters import declares
from specsim.auditing._cases.battery import battery
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import ENDS, PIT_BINS, AuditTally
from specsim.auditing._checks.findings import excess_kind, in_words
from specsim.auditing._checks.subjects import RuleSubject, Span, count_span
from specsim.auditing._checks.tables import plan_tables
from specsim.core._streams import key_of
from specsim.models import Tree, chain
from specsim.rules import get

FEW_CASES = ("asymmetric", "zeros", "irregular", "Zipf 1 000", "n-gram pair")
CASES = {case.name: case for case in battery(get("standard"))}

pytestmark = pytest.mark.usefixtures("few_cases_in_module")


def named(verifier, cases=FEW_CASES[:3]):
    """(case, finding) for all deviations."""
    found = audit(verifier, "smoke", rng=1, cases=cases, diagnose=False).cases
    return [(case, finding) for case in found for finding in case.findings if finding.kind == "deviation"]


@pytest.mark.parametrize(*cases(__file__, "kinds"))
def test_the_kind_that_a_mistake_is_in(name, kind):
    found = named(mistakes.get(name).function)
    assert {finding.emitted_as for _, finding in found} - {None} == {kind}
    for case, finding in found:
        assert (finding.emitted_as == "bonus") == (finding.position == case.gamma)
        assert finding.emitted_as is None or finding.text.endswith(in_words(finding.emitted_as))


def half_as_often(draft_tokens, p, q, rng, exact):
    """Accepts with probability min(1, p/q)/2; the residual is that of this acceptance, or p."""
    steps, gamma = draft_tokens.shape
    output = np.full((steps, gamma + 1), -1)
    for s, drafted in enumerate(draft_tokens):
        for i in range(gamma + 1):
            weights = p[s, i]
            if i < gamma:
                x, allowed = drafted[i], np.minimum(p[s, i], q[s, i]) / 2.0
                if rng.random() * q[s, i, x] < allowed[x]:
                    output[s, i] = x
                    continue
                weights = p[s, i] - allowed if exact else p[s, i]
            cdf = weights.cumsum()
            output[s, i] = np.searchsorted(cdf, rng.random() * cdf[-1], side="right")
            break
    return output


def test_another_acceptance_is_no_finding_and_not_blamed():
    exact, wrong = (partial(half_as_often, exact=exact) for exact in (True, False))
    assert named(exact, ["asymmetric"]) == []
    kinds = {finding.emitted_as for _, finding in named(wrong, ["asymmetric"])}
    assert kinds - {None} == {"recovered"}


@pytest.mark.parametrize("rule", ["standard", "block", "sampler_match"])
def test_the_tokens_that_end_steps_are_counted(rule):
    subject = RuleSubject(get(rule), threads=1)
    counts = count_span(subject, Span("asymmetric", key_of(3), 0, 20_000)).counts
    assert counts[ENDS + "pit"].sum(axis=1).tolist() == counts["lengths"].tolist()
    assert counts[ENDS + "tail"].sum(axis=1).tolist() == counts["lengths"].tolist()
    assert (counts[ENDS + "prefixes"] <= counts["prefixes"]).all()
    first = counts[ENDS + "prefixes"][: CASES["asymmetric"].vocab_size]
    assert first.sum() == counts["lengths"][0]


def test_acceptance_is_seldom_blamed_for_chance():
    """The worst case for chance: accepted tokens make up all of p where q is larger, and a recovered token
    that is barely too frequent. Counts of accepted tokens alone must hardly ever be called the excess."""
    case = CASES["Zipf 1 000"]
    table = next(t for t in plan_tables(case, Claim(None, case.tree), 2**20) if t.kind == "PIT")
    rng = np.random.default_rng(5)
    law = table.law.copy()
    law[-1] *= 1.2
    law /= law.sum()
    wrong = 0
    for _ in range(400):
        observed = rng.multinomial(20_000, law)
        ends = np.zeros_like(observed)
        ends[len(ends) // 2 :] = observed[len(ends) // 2 :]
        wrong += kind_of(case, table, observed, ends) == "accepted"
    assert wrong == 0


def kind_of(case, table, observed, ends):
    """`excess_kind` of counts of the cells of one table."""
    found = AuditTally(case, Claim(None, case.tree)).zeros()
    for name, values in ((table.source, observed), (ENDS + table.source, ends)):
        found[name].reshape(-1)[table.start : table.start + len(values)] = values
    return excess_kind(table, found, case)


def test_what_counts_do_not_tell_is_not_said():
    pit = {name: plan_tables(CASES[name], Claim(None, CASES[name].tree), 2**20) for name in FEW_CASES[3:]}
    expected = np.full(PIT_BINS, 1000)
    high = np.where(np.arange(PIT_BINS) < 4, 1400, 1000)
    none, half = np.zeros_like(expected), np.where(np.arange(PIT_BINS) < 2, 400, 0)
    for name, recovered in (("Zipf 1 000", "recovered"), ("n-gram pair", None)):
        first = next(table for table in pit[name] if table.kind == "PIT")
        assert kind_of(CASES[name], first, high, none) == "accepted"
        assert kind_of(CASES[name], first, high, high - expected) == recovered
        assert kind_of(CASES[name], first, high, half) is None
        assert kind_of(CASES[name], first, expected, none) is None


def test_what_ends_a_step_before_the_last_position():
    case = CASES["Zipf 1 000"]
    expected = np.full(PIT_BINS, 1000)
    high = np.where(np.arange(PIT_BINS) < 4, 1400, 1000)
    for changed, kinds in (
        ({}, ["recovered", "recovered", "bonus"]),
        ({"uneven": True}, ["recovered or bonus", "recovered or bonus", "bonus"]),
        ({"tree": Tree((0, 0, 1))}, ["recovered", "recovered or bonus", "bonus"]),
    ):
        one = replace(case, **({"tree": chain(2)} | changed))
        tables = [t for t in plan_tables(one, Claim(None, one.tree), 2**20) if t.kind == "PIT"]
        assert [kind_of(one, table, high, high - expected) for table in tables] == kinds


def test_of_a_decoder_accepted_tokens_are_not_known():
    @declares(decoder=True)
    def decode(target, draft, prompt, max_new_tokens, eos, rng):
        return rng.integers(3, size=max_new_tokens).tolist()

    found = named(decode, ["one token", "second order"])
    assert found
    assert {finding.emitted_as for _, finding in found} == {None}
