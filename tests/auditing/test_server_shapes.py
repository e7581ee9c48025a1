"""Cases in the shapes of a server: many rows over a large vocabulary, and what an audit says of them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from test_shapes import KEY, judged
from verifiers import verify

from specsim import audit, mistakes
from specsim.adapters._contract import Declared
from specsim.auditing import Verdict
from specsim.auditing._cases.shapes import ORDERS, PERIOD, SERVER_KINDS, shape_cases
from specsim.auditing._checks.shapes import CALLS_APART
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._report.text import AXIS, power_by_axis, power_by_shape, unseen_lines
from specsim.auditing._results.audit import CALLS
from specsim.auditing._verifier.local import Local
from specsim.core._types import dtype_of

CASES = {case.name: case for case in shape_cases(Declared())}
FEW, SERVER, LARGEST = "shapes, few ids", "server shapes, 32 000 ids", "server shapes, 128 256 ids"


@pytest.mark.parametrize("name", [SERVER, LARGEST])
def test_calls_have_the_shapes_of_a_server_and_each_fits(name):
    case = CASES[name]
    blocks = case.round(KEY, 0)
    assert len(blocks) == len(case.together)
    assert blocks != case.round(KEY, 1)
    assert {block.rows for block in blocks} == {16, 33, 64, 256}
    assert not case.contested
    for block in blocks:
        assert block.rows * block.vocab_size * (2 * block.gamma + 1) <= 10**8
    assert {block.gamma for block in blocks} == ({1, 5, 16, 32} if name == SERVER else {1, 5, 16})
    if name == LARGEST:
        assert {block.vocab_size for block in blocks} == {128_256, 151_936, 201_088, 262_144}


def test_a_verifier_of_fewer_ids_rows_and_drafted_tokens_gets_smaller_calls():
    cases = {one.name: one for one in shape_cases(Declared(vocab_size=150_000, batch=8, gamma=4))}
    blocks = cases[LARGEST].round(KEY, 0)
    assert {(one.rows, one.vocab_size, one.gamma) for one in blocks} <= {(8, 128_256, 1), (8, 128_256, 4)}
    assert SERVER not in [one.name for one in shape_cases(Declared(vocab_size=31_999))]


def test_rows_of_a_softmax_sum_to_one_to_rounding_and_each_other_dtype_has_the_shapes_of_a_server():
    for dtype in ("float64", "float32"):
        case, place = replace(CASES[SERVER], dtype=dtype), SERVER_KINDS.index("softmax")
        rows = np.array([case.bank(32_000).p[place], case.bank(32_000).q[place]])
        assert np.array_equal(rows, rows.astype(dtype).astype(np.float64))
        least, most = (1e-9, 1e-5) if dtype == "float32" else (0.0, 1e-13)  # float64 may hit 1 by chance
        assert least <= np.abs(rows.sum(axis=1) - 1.0).max() < most
    cases = {case.name: case for case in shape_cases(Declared(dtypes=("float32", "float16", "bfloat16")))}
    assert cases[SERVER].dtype == "float32"
    for dtype in ("float16", "bfloat16"):
        case = cases[f"{SERVER}, {dtype}"]
        assert case.dtype == dtype
        rows = case.bank(32_000).p
        assert np.array_equal(rows.sum(axis=1), np.ones(len(rows)))
        assert np.array_equal(rows, rows.astype(dtype_of(dtype)).astype(np.float64))
    # a sum in float16 loses small addends: rows of the dtype show it
    half = cases[f"{SERVER}, float16"].bank(32_000).p[SERVER_KINDS.index("spread")].astype(np.float16)
    assert abs(half.cumsum(dtype=np.float16)[-1] - 1.0) > 0.5


def resampling(draft_tokens, p, q, rng):
    """Draws from p in place of the residual, in calls of ten rows or more over 30,000 ids or more."""
    large = len(p) >= 10 and p.shape[2] >= 30_000
    return verify(draft_tokens, p, q, rng, residual="target" if large else "excess")


def in_calls_of_a_server(mistake, **values):
    """A known mistake in calls of 16 rows or more over 32,000 ids or more; others are right."""
    wrong = mistakes.get(mistake).with_parameters(**values).function

    def verify_in_shape(draft_tokens, p, q, rng):
        here = len(p) >= 16 and p.shape[2] >= 32_000
        return (wrong if here else verify)(draft_tokens, p, q, rng)

    return verify_in_shape


@pytest.mark.slow
@pytest.mark.parametrize("name", ["product_of_ratios", "residual_next_draft_row"])
def test_mistakes_of_later_places_are_found(name):
    """Such a product errs in both directions, and hardly on average: it shows by p/q of the tokens before."""
    where = [str(finding) for finding in judged(in_calls_of_a_server(name), SERVER, 16).findings]
    wanted = "p/q of the tokens before" if name == "product_of_ratios" else "tokens ordered by p/q"
    assert any(wanted in finding for finding in where)


@pytest.mark.slow
def test_uniforms_of_16_bits_are_found_by_the_ids_that_they_draw_too_often():
    """Which ids these are has nothing to do with p, q or the id; uniforms of 30 bits are fine enough."""
    (finding,) = judged(in_calls_of_a_server("coarse_draw", bits=16), SERVER, 4).findings
    assert "tokens ordered by draws of 16 bits" in str(finding)
    assert not judged(in_calls_of_a_server("coarse_draw", bits=30), SERVER, 4).findings


def test_most_longer_drafts_of_a_server_have_at_most_one_hard_place_and_some_calls_begin_greedy():
    case, greedy, hard = CASES[SERVER], [], []
    for number in range(20):
        for block in case.round(KEY, number):
            places = case.rows(KEY, block, block.first, block.steps).places
            calls = places.reshape(block.calls, block.rows, -1) == SERVER_KINDS.index("greedy")
            assert not calls[:, 1:].any()
            assert not calls[:, 0, 1:].any()
            assert calls[:, 0, 0].all() or not calls[:, 0, 0].any()
            greedy.append(calls[0, 0, 0])
            if block.gamma == 5:
                hard.extend((places[: block.rows, 1:] < SERVER_KINDS.index("close")).sum(axis=1))
    assert 0.7 < np.mean(np.array(hard) <= 1) < 0.9
    assert 0.3 < np.mean(np.array(hard) == 1) < 0.7
    assert 0.1 < np.mean(greedy) < 0.4


def test_in_some_blocks_of_a_server_rows_far_apart_have_the_same_p_and_q():
    case, repeated = CASES[SERVER], []
    for number in range(20):
        for block in case.round(KEY, number):
            if block.rows >= 64:
                places = case.rows(KEY, block, block.first, block.steps).places
                calls = places.reshape(block.calls, block.rows, -1)
                assert (calls == calls[0]).all()
                repeated.append((calls == calls[:, np.arange(block.rows) % PERIOD]).all())
                assert repeated[-1] or (calls[:, PERIOD:] == calls[:, :-PERIOD]).mean() < 0.9
    assert 0.15 < np.mean(repeated) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "shown"), [("of its request", "row of its call: first"), ("of the call", "tokens ordered by p")]
)
def test_rows_taken_for_greedy_as_the_first_row_of_the_call_is_are_found(rows, shown):
    """A call in which one request is greedy: its first row is certain, in a quarter of the blocks."""

    def greedy(draft_tokens, p, q, rng):
        certain = (p[:, 0] if rows == "of its request" else p[:1, 0]).max(axis=1) == 1.0
        likeliest = (p == p.max(axis=2, keepdims=True)).astype(float)
        return verify(draft_tokens, np.where(certain[:, None, None], likeliest, p), q, rng)

    assert any(shown in str(finding) for finding in judged(greedy, SERVER, 16).findings)


@pytest.mark.slow
def test_noise_that_rows_32_apart_share_is_found():
    """As where a workspace holds the noise of 32 rows, and further rows use it again."""

    def of_a_workspace(draft_tokens, p, q, rng, size=32):
        noise = rng.standard_exponential((min(len(p), size), p.shape[2]))
        emitted = verify(draft_tokens, p, q, rng)
        last = (emitted >= 0).sum(axis=1) - 1
        for row, n in enumerate(last):
            left = np.maximum(p[row, n] - (q[row, n] if n < q.shape[1] else 0.0), 0.0)
            weights = left if left.any() else p[row, n]
            emitted[row, n] = (weights / noise[row % size]).argmax()
        return emitted

    findings = judged(of_a_workspace, SERVER, 4).findings
    shown = "the bonuses of rows 32 apart in a call with the same p and q"  # few first tokens have this noise
    assert any(shown in str(finding) for finding in findings)
    assert not judged(partial(of_a_workspace, size=256), SERVER, 4).findings


def test_sums_of_tiles_in_half_precision_show_in_an_order_of_their_own():
    case = next(one for one in shape_cases(Declared()) if one.name == SERVER)
    kind = SERVER_KINDS.index("spread")
    for ids in (32_000, 128_256):
        bank = case.bank(ids)
        drawn = np.maximum(bank.p[kind] - bank.q[kind], 0.0)  # what is left of p
        ends = np.append(0.0, drawn.reshape(-1, 32).sum(axis=1).cumsum()) / drawn.sum()
        shares = np.diff(ends.astype(np.float16).astype(float)) / np.diff(ends)
        law = drawn / drawn.sum() * np.repeat(shares, 32)
        deviation = np.abs(law - drawn / drawn.sum()).sum() / 2
        bins = (bank.below[ORDERS.index("sums of 16 bits"), kind] * 16).astype(int)
        shown = np.abs(np.bincount(bins, law) - np.bincount(bins, drawn / drawn.sum())).sum() / 2
        assert shown > 0.5 * deviation > 0.005


@pytest.mark.slow
def test_a_draft_that_is_always_rejected_at_the_17th_place_is_found():
    """As where its bits of acceptance are packed into 16."""

    def packed(draft_tokens, p, q, rng):
        emitted = verify(draft_tokens, p, q, rng)
        for row in np.flatnonzero((emitted >= 0).sum(axis=1) > 17):
            residual = np.maximum(p[row, 16] - q[row, 16], 0.0)
            emitted[row, 16:] = -1
            emitted[row, 16] = rng.choice(len(residual), p=residual / residual.sum())
        return emitted

    findings = judged(packed, SERVER, 4).findings
    assert any("drafted after the first 16" in str(finding) for finding in findings)


def test_a_mistake_of_many_rows_over_many_ids_is_found_and_placed(full):
    assert any(finding.kind == "deviation" for finding in judged(resampling, SERVER).findings)
    assert not judged(resampling, "shapes, 32 000 ids", 2 if full else 0.5).findings


@pytest.mark.slow
@pytest.mark.parametrize("name", [SERVER, LARGEST])
def test_a_right_verifier_passes(name):
    assert not judged(verify, name).findings


@pytest.mark.parametrize("calls", [distance for distance in CALLS_APART if distance > 2])
def test_random_numbers_of_an_earlier_call_are_found(calls):
    seeds = []

    def ring(draft_tokens, p, q, rng):
        again = len(seeds) // calls % 2
        seeds.append(seeds[-calls] if again else int(rng.integers(2**60)))
        return verify(draft_tokens, p, q, np.random.default_rng(seeds[-1]))

    small = judged(ring, FEW, 8, {"sizes": ((16, 96),), "vocab_sizes": (16,), "gammas": (1,)})
    where = " ".join(finding.text for finding in small.findings)
    assert f"calls {calls} apart" in where


@pytest.fixture(scope="module")
def brief():
    return audit(verify, "smoke", rng=1, cases=["two-point", FEW, SERVER], diagnose=False)


def test_shapes_without_power_are_named_and_power_that_time_cuts_short_leaves_no_verdict(brief):
    assert brief.verdict is Verdict.CONSISTENT
    assert [case.case for case in brief.unseen] == [SERVER]
    assert f"Without power: 1 of 3 cases, {SERVER} (" in unseen_lines(brief)[1]
    more = replace(brief, left_out=("zeros",))
    assert f"Without power: 2 of 4 cases, among them {SERVER} (" in unseen_lines(more)[1]
    rows = power_by_shape(brief)
    assert [row["ids"][:4] for row in rows if row["rows of a call"] == "9 to 64"] == ["2 to", "32,0"]
    assert {"γ 1", "γ 2 to 4", "γ 5 to 8", "γ 9 to 16", "γ 17 or more"} <= set(rows[0])
    assert [case.case for case in brief.cases if case.kernel == CALLS] == [FEW, SERVER]
    cut = [replace(case, planned=10**9) if case.case == SERVER else case for case in brief.cases]
    assert replace(brief, cases=tuple(cut)).verdict is Verdict.INCONCLUSIVE


def test_the_values_of_an_axis_are_in_their_order(brief, monkeypatch):
    values = {"axis": {"9 to 15": 0.5, "1,025 or more": 0.5, "first": 0.5, "4": 0.5}}
    monkeypatch.setattr("specsim.auditing._report.text.axes_of", lambda _: values)
    (row,) = power_by_axis(brief)
    assert row[AXIS] == "first: 0.500, 4: 0.500, 9 to 15: 0.500, 1,025 or more: 0.500"


def test_a_level_with_too_few_steps_leaves_them_out_and_says_so(brief):
    subject = VerifierSubject("own", Local(verify, Declared()))
    assert not {SERVER, LARGEST} & {plan.case.name for plan in subject.plans("smoke")}
    assert {SERVER, LARGEST} <= {plan.case.name for plan in subject.plans("quick")}
    few = replace(brief, cases=tuple(case for case in brief.cases if case.case != SERVER))
    assert [line.split(":")[0] for line in unseen_lines(few)] == ["Not run", "Not made", "Not tested"]
    assert SERVER in unseen_lines(few)[1]
