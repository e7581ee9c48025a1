"""Old against new: quiet on two of one law, loud on any change, with the power that is printed."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
import verifiers
from conftest import FALSE_ALARM
from refused import refuses
from scipy.stats import binom

from specsim.adapters._contract import Declared, declares
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._checks.two_samples import block_ends
from specsim.auditing._results.audit import BUDGET
from specsim.auditing._two_sample import BLOCKS, LEAST, _detectable, audit_against
from specsim.auditing._verifier.local import Local
from specsim.core.stats import POWER, log_pooled_two_sample_e

#: Cases of verifiers of so few tokens.
CASES = ["two-point", "zeros", "identical", "nearly certain", "Markov chain", "crossed rows"]


def plain(function, vocab_size=6):
    """`function` as a verifier for small vocabularies, so that few cases are run."""
    return declares(vocab_size=vocab_size)(lambda *given: function(*given))


right = plain(verifiers.right)


def compare(new, old, level="smoke", rng=1, **more):
    return audit_against(new, old, level, rng=rng, **more)


def by_case(found):
    return {case.case: case for case in found.cases}


def in_blocks(rng, one, other, n):
    """Multinomial counts of two laws, `n` draws of each, in the blocks of a comparison."""
    sizes = np.diff(block_ends(n, BLOCKS, LEAST), prepend=0)
    return [(rng.multinomial(size, one), rng.multinomial(size, other)) for size in sizes if size]


@pytest.mark.parametrize(
    ("cells", "n"),
    [(2, 64), (8, 64)]
    + [
        pytest.param(*one, marks=pytest.mark.slow)
        for one in ((3, 64), (32, 64), *((k, 1024) for k in (2, 3, 8, 32)))
    ],
)
def test_the_expected_e_value_of_two_samples_of_one_law_is_at_most_1(cells, n):
    """A mean of e-values, cut at 100 so that it has a variance: cutting can only lower it."""
    rng = np.random.default_rng(cells)
    found = []
    for _ in range(1000):
        law = rng.dirichlet(np.ones(cells))
        found.append(min(100.0, math.exp(log_pooled_two_sample_e([in_blocks(rng, law, law, n)]))))
    assert np.mean(found) <= 1.0 + 6.0 * np.std(found) / math.sqrt(len(found))
    assert np.mean(np.array(found) >= 10.0) <= 0.1 + 6.0 * math.sqrt(0.09 / len(found))  # Markov


def test_exactly_the_expected_e_value_of_small_samples_is_at_most_1():
    """Every outcome of two blocks of coins, as many a side or not: no noise, for laws near and far from
    even."""
    for m, n in ((3, 3), (6, 1)):
        for heads in (0.5, 0.3, 0.05):
            one, other = (binom.pmf(np.arange(k + 1), k, heads) for k in (m, n))
            mean = 0.0
            for a, b, c, d in np.ndindex(m + 1, n + 1, m + 1, n + 1):
                blocks = [([a, m - a], [b, n - b]), ([c, m - c], [d, n - d])]
                weight = one[a] * other[b] * one[c] * other[d]
                mean += weight * math.exp(log_pooled_two_sample_e([blocks]))
            assert mean <= 1.0 + 1e-12


def test_the_first_block_only_teaches():
    assert log_pooled_two_sample_e([[]]) == 0.0
    assert log_pooled_two_sample_e([[([900, 100], [100, 900])]]) == 0.0
    assert log_pooled_two_sample_e([[([0, 0], [0, 0]), ([900, 100], [100, 900])]]) == 0.0
    assert log_pooled_two_sample_e([[([9, 1], [1, 9])] * 2]) > 0.0


@pytest.mark.parametrize(
    ("cells", "n"),
    [(2, 2**14), (16, 2**19), (64, 2**14)]
    + [pytest.param(*one, marks=pytest.mark.slow) for one in ((8, 2**14), (64, 2**19))],
)
def test_what_is_called_detectable_is_detected(cells, n):
    """At a deviation of just the size that a comparison prints; a third of it is mostly missed."""
    alarm = BUDGET / 500.0
    table = type("Table", (), {"position": 0, "law": np.full(cells, 1.0 / cells)})
    tv = _detectable(type("Plan", (), {"tables": [table]}), n, alarm)
    rng = np.random.default_rng(cells)
    sign = np.where(np.arange(cells) % 2, 1.0, -1.0)

    def found(tv, times):
        one, other = table.law, table.law + sign * 2.0 * tv / cells
        return sum(
            log_pooled_two_sample_e([in_blocks(rng, one, other, n)]) >= -math.log(alarm) for _ in range(times)
        )

    times = found(tv, 200)
    assert binom.cdf(times, 200, POWER) > FALSE_ALARM
    assert times >= 197
    assert found(tv / 3.0, 50) <= 10


def test_a_verifier_is_the_same_as_itself_token_by_token():
    seen = []
    found = compare(right, right, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)
    assert found.verdict == "same"
    assert found.identical
    assert found.exit_code == 0
    assert list(by_case(found)) == CASES
    subject = VerifierSubject("right", Local(right, Declared(vocab_size=6)))
    for i, case in enumerate(found.cases):
        assert case.steps == subject.plan(i, "smoke").steps
        assert 0 < case.detectable_tv < 0.12
        assert case.tokens_per_step[0] == pytest.approx(case.tokens_per_step[1], rel=0.05)
    assert found.to_dict()["verdict"] == "same"


def test_two_of_one_law_are_the_same_but_not_identical(full):
    def backwards(draft_tokens, p, q, rng):
        """Standard verification that spends its random numbers on the rows in another order."""
        return verifiers.right(draft_tokens[::-1], p[::-1], q[::-1], rng)[::-1]

    for seed in range(2 if full else 1):
        found = compare(plain(backwards, 2), "standard", rng=seed)
        assert found.verdict == "same"
        assert not found.identical
    assert found.old == "standard"


def test_two_that_are_wrong_in_the_same_way_are_the_same():
    found = compare("lenience:lenience=0.8", plain(verifiers.lenient, 2))
    assert found.verdict == "same"
    assert not found.identical


@pytest.mark.parametrize(
    ("new", "case", "said"),
    [
        (verifiers.resamples_from_target, "two-point", "position 1: token "),
        pytest.param(verifiers.reuses_one_uniform, "two-point", "", marks=pytest.mark.slow),
        (verifiers.ignores_drafts, "identical", "the numbers of accepted tokens differ"),
        pytest.param(verifiers.always_argmax, "two-point", "", marks=pytest.mark.slow),
    ],
)
def test_a_change_is_found_and_placed(new, case, said):
    new = plain(new, 2 if case == "two-point" else 4)
    found = compare(new, right)
    assert found.verdict == "changed"
    assert found.exit_code == 1
    assert by_case(found)[case].changed
    assert '"changed": true' in json.dumps(found.to_dict(), allow_nan=False)
    assert said in by_case(found)[case].text
    turned = compare(right, new)
    assert by_case(turned)[case].changed


def test_an_exact_rule_that_is_faster_is_changed_by_its_lengths():
    found = compare("block", plain(verifiers.right, 2))
    assert found.verdict == "changed"
    assert {case.text for case in found.cases if case.changed} == {"the numbers of accepted tokens differ"}
    faster = next(case for case in found.cases if case.changed)
    assert faster.tokens_per_step[0] > faster.tokens_per_step[1]


def test_impossible_tokens_alone_are_a_change():
    """They are in no table; the law of the others is as it was, and so are the lengths."""

    def verify(draft_tokens, p, q, rng):
        found = verifiers.right(draft_tokens, p, q, rng)
        each, last = np.arange(len(found)), (found >= 0).sum(axis=1) - 1
        impossible = (p[each, last] == 0).any(axis=1) & (rng.random(len(found)) < 0.05)
        found[each[impossible], last[impossible]] = (p[each, last] == 0)[impossible].argmax(axis=1)
        return found

    found = compare(plain(verify), right)
    assert by_case(found)["zeros"].changed
    assert "tokens of probability 0 under the target" in by_case(found)["zeros"].text
    assert by_case(found)["zeros"].text.endswith(" 0.0000 old")
    assert not by_case(found)["two-point"].changed


@pytest.mark.parametrize("side", ["new", "old"])
def test_a_side_that_cannot_be_run_is_named(side):
    verifiers_of = {"new": right, "old": right} | {side: plain(verifiers.raises)}
    found = compare(verifiers_of["new"], verifiers_of["old"])
    assert found.verdict == "broken"
    assert found.exit_code == 1
    assert {case.text for case in found.cases} == {f"{side}: raised RuntimeError: out of cheese"}
    assert all(case.broken and not case.steps for case in found.cases)
    assert all(case.tokens_per_step == (0.0, 0.0) for case in found.cases)


def test_tokens_that_leave_the_path_are_broken_too():
    def verify(draft_tokens, p, q, rng):
        found = verifiers.right(draft_tokens, p, q, rng)
        accepted = (found >= 0).sum(axis=1) - 1
        found[:, 0] = np.where(accepted > 0, (found[:, 0] + 1) % p.shape[2], found[:, 0])
        return found

    found = compare(plain(verify), right)
    assert found.verdict == "broken"
    assert "new: step" in by_case(found)["identical"].text


def test_the_cases_are_those_that_both_take():
    one = declares(vocab_size=6, lengths=True)(lambda d, p, q, rng, lengths: verifiers.raises(d, p, q, rng))
    assert list(by_case(compare(one, right))) == CASES
    in_float32 = declares(vocab_size=2, dtypes="float32")(
        lambda d, p, q, rng: verifiers.right(d, p.astype(np.float64), q.astype(np.float64), rng)
    )
    found = compare(in_float32, right)
    assert [case.case for case in found.cases] == [
        "two-point",
        "identical",
        "nearly certain",
        "Markov chain",
        "crossed rows",
    ][: len(found.cases)]
    assert found.identical


@pytest.mark.parametrize(
    "promise", [{"dtypes": "bfloat16"}, {"gamma": 1}, {"tree": True}, {"decoder": True}], ids=str
)
def test_two_that_share_no_case_are_refused(promise):
    other = declares(**{"vocab_size": 4} | promise)(lambda *given: verifiers.right(*given))
    refuses("the verifiers share no case", compare, other, right)


def test_ctrl_c_keeps_the_cases_that_were_compared():
    def stop(done, total, at=0.5):
        if done > at * total:
            raise KeyboardInterrupt

    found = compare(right, right, progress=stop)
    assert found.interrupted
    assert found.verdict == "inconclusive"
    assert found.exit_code == 3
    assert 1 <= len(found.cases) < len(CASES)
    changed = compare(plain(verifiers.lenient), right, progress=stop)
    assert (changed.interrupted, changed.exit_code) == (True, 1)
    at_once = compare(right, right, progress=partial(stop, at=-1.0))
    assert (len(at_once.cases), at_once.interrupted, at_once.exit_code) == (1, True, 3)
    assert 0 < at_once.cases[0].steps < found.cases[0].steps  # the blocks so far
