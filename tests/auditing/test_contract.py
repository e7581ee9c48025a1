"""The contract of a verifier: what it is handed, what it may promise, and that each way of breaking it is
caught."""

from __future__ import annotations

import ctypes
import signal
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import verifiers

from specsim import audit, mistakes, rules
from specsim.adapters._contract import Declared, declared, declares
from specsim.auditing._cases.battery import battery
from specsim.auditing._cases.rows import rows_of
from specsim.auditing._checks.contract_checks import check_promises, promises_result
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._report.text import unseen_lines
from specsim.auditing._results.audit import BUDGET, Verdict
from specsim.auditing._schedule import CaseRun, run_case
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.local import Local

#: The false-alarm probability of one table: as in an audit, which makes fewer than a thousand tests.
ALARM = BUDGET / 1000.0

slow = partial(pytest.param, marks=pytest.mark.slow)


def on_case(function, name, level="smoke", timeout=60.0, **limits):
    """The result of one case of the battery that `function` declares."""
    subject = VerifierSubject("verifier", Local(function, declared(function)), timeout)
    plan = subject.plan([case.name for case in subject.cases].index(name), level)
    return run_case(subject, CaseRun(plan, 1, ALARM, timeout=timeout, **limits)).result()


def promises(function, timeout=60.0):
    return promises_result(check_promises(Local(function, declared(function)), 1, timeout))


def kinds(result):
    return {finding.kind for finding in result.findings}


def text(result):
    return "; ".join(finding.text for finding in result.findings)


def is_consistent(function, *names):
    """Whether all promises are kept, and the cases `names` show nothing."""
    results = [promises(function), *(on_case(function, name) for name in names)]
    for result in results:
        assert text(result) == ""
        assert result.verdict is Verdict.CONSISTENT


# --- what may be declared --------------------------------------------------------------------------------


def test_a_dict_declares_without_an_import():
    assert declared(verifiers.right) == Declared()

    def verify(draft_tokens, p, q, rng): ...

    verify.declared = {"batch": 2, "dtypes": "float32"}
    assert declared(verify) == Declared(batch=2, dtypes=("float32",))
    assert declared(declares(batch=2, dtypes=["float32", "float32"])(verify)) == declared(verify)
    with pytest.raises(TypeError, match="expected a dict of promises, got list"):
        declared(type("Verifier", (), {"declared": ["batch"]}))


# --- what is handed over ---------------------------------------------------------------------------------


def handed(**promise):
    """A right verifier that declares `promise`, and the list of what it was called with."""
    calls = []

    @declares(**promise)
    def verify(draft_tokens, p, q, rng, **more):
        calls.append((draft_tokens, p, q, rng, more))
        return given(draft_tokens, p, q, rng, lengths=more.get("lengths"))

    return verify, calls


@pytest.mark.parametrize("dtype", ["bfloat16", *map(slow, ("float64", "float32", "float16"))])
def test_rows_come_in_the_declared_dtype_and_cannot_be_written_to(dtype):
    verify, calls = handed(dtypes=dtype)
    for name in ("two-point", "own rows", "Markov chain"):
        calls.clear()
        on_case(verify, name)
        assert calls
        for draft_tokens, p, q, rng, more in calls:
            assert (p.dtype.name, q.dtype.name, draft_tokens.dtype.name) == (dtype, dtype, "int64")
            assert not any(array.flags.writeable for array in (p, q, draft_tokens))
            assert isinstance(rng, np.random.Generator)
            assert not more
            assert len(p) == len(q) == len(draft_tokens)
            gamma, size = draft_tokens.shape[1], p.shape[2]
            assert (p.shape[1:], q.shape[1:]) == ((gamma + 1, size), (gamma, size))
            assert (p.astype(np.float64).sum(axis=2) == 1).all()
            assert (q.astype(np.float64).sum(axis=2) == 1).all()
            assert (np.take_along_axis(q, draft_tokens[..., None], axis=2) > 0).all()


def test_limits_are_respected(smaller_audits, full):
    verify, calls = handed(batch=5, gamma=2, vocab_size=8)
    assert promises(verify).verdict is Verdict.CONSISTENT
    for case in battery(declared(verify)):
        assert case.gamma <= 2
        assert case.target.vocab_size <= 8
        if full or case.name in ("asymmetric", "Markov chain"):
            assert on_case(verify, case.name).verdict is Verdict.CONSISTENT
    assert max(len(p) for _, p, *_ in calls) == 5
    assert max(draft_tokens.shape[1] for draft_tokens, *_ in calls) == 2
    assert max(p.shape[2] for _, p, *_ in calls) == 8


@pytest.mark.parametrize(
    "promise", [{"vocab_size": 2}, {"vocab_size": 4, "uniforms": True}, {"vocab_size": 7}]
)
def test_the_promises_can_be_tried_in_a_small_vocabulary(promise):
    is_consistent(declares(**promise)(given), "two-point")


def test_a_call_has_the_keywords_that_are_declared_and_no_others():
    verify, calls = handed(lengths=True, seeds=True, uniforms=True)
    on_case(verify, "uneven lengths")
    seen = set()
    for draft_tokens, _, _, _, more in calls:
        steps, gamma = draft_tokens.shape
        assert set(more) == {"lengths", "seeds", "uniforms"}
        assert more["lengths"].shape == (steps,)
        seen |= set(more["lengths"].tolist())
        assert more["uniforms"].shape == (steps, gamma + 1)
        assert more["uniforms"].dtype == np.float64
        assert ((more["uniforms"] >= 0) & (more["uniforms"] < 1)).all()
        assert len(more["seeds"]) == steps
        assert {type(seed) for seed in more["seeds"]} == {int, type(None)}
    assert seen == {0, 1, 2, 3}
    calls.clear()
    on_case(verify, "asymmetric")
    assert all((more["lengths"] == draft_tokens.shape[1]).all() for draft_tokens, *_, more in calls)


def test_q_is_withheld_in_one_case_only():
    verify, calls = handed(one_hot=True)
    for case in battery(declared(verify)):
        if case.name in ("no q", "asymmetric", "own rows"):
            calls.clear()
            on_case(verify, case.name)
            assert {q is None for _, _, q, *_ in calls} == {case.name == "no q"}


def test_every_call_of_a_batch_continues_one_generator():
    verify, calls = handed()
    case = battery(Declared())[0]
    VerifierSource(Local(verify), case).verify(rows_of(case).rows((1, 2), 0, 10), (1, 2), 0)
    (*_, one, _), (*_, other, _) = calls
    assert one is other
    assert [len(p) for _, p, *_ in calls] == [5, 5]


# --- right verifiers -------------------------------------------------------------------------------------


def given(draft_tokens, p, q, rng, uniforms=None, lengths=None, **how):
    """Right, unless `how` spoils it; without q the drafts were certain."""
    u = rng.random((len(p), p.shape[1])) if uniforms is None else uniforms
    p = p.astype(np.float64)
    q = np.eye(p.shape[2])[draft_tokens] if q is None else q.astype(np.float64)
    return verifiers.verified(draft_tokens, p, q, u, lengths, **how)


def seeded(draft_tokens, p, q, rng, seeds, stream=lambda row, seed: seed, default=None):
    """A generator of its own for each row with a seed, `stream(row, seed)`; `default` is a seed for the
    others."""
    u = rng.random((len(p), p.shape[1]))
    for row, seed in enumerate(seeds):
        if seed is not None:
            u[row] = np.random.default_rng(stream(row, seed)).random(p.shape[1])
        elif default is not None:
            u[row] = np.random.default_rng(default).random(p.shape[1])
    return given(draft_tokens, p, q, rng, u)


@pytest.mark.parametrize(
    ("promise", "names"),
    [
        slow({"lengths": True}, ("uneven lengths", "asymmetric")),
        ({"uniforms": True}, ("disjoint", "own rows")),
        slow({"one_hot": True}, ("no q", "asymmetric")),
        ({"seeds": True}, ("disjoint",)),
        slow({"batch": 1}, ("zeros",)),
        ({"batch": 16}, ("zeros",)),
        ({"dtypes": ("float32", "float16", "bfloat16")}, ("two-point, float16", "zeros, bfloat16", "Markov chain")),
        slow({"dtypes": "float16", "lengths": True}, ("uneven lengths", "irregular")),
        slow({"dtypes": "bfloat16"}, ("own rows", "Zipf 1 000")),
    ],
)  # fmt: skip
def test_a_right_verifier_keeps_what_it_declares(promise, names):
    is_consistent(declares(**promise)(seeded if "seeds" in promise else given), *names)


def test_everything_at_once_is_consistent(smaller_audits):
    verify = declares(lengths=True, uniforms=True, one_hot=True, batch=700, dtypes=("float32", "bfloat16"))(
        given
    )
    cases = ["uneven lengths", "no q", "asymmetric", "asymmetric, bfloat16", "own rows", "Markov chain"]
    result = audit(verify, "smoke", rng=1, cases=cases, diagnose=False)
    assert [(case.case, text(case)) for case in result.cases if case.findings] == []
    assert result.verdict is Verdict.CONSISTENT
    assert {"uneven lengths", "no q", "asymmetric, bfloat16"} <= {case.case for case in result.cases}
    assert not result.wasteful
    for case in result.cases:  # without q its drafts were certain, and that is what it is measured against
        if case.efficiency:
            assert case.efficiency.lower <= 1.0 <= case.efficiency.upper


def test_an_output_buffer_may_be_used_again():
    buffers = {}

    def verify(draft_tokens, p, q, rng):
        found = verifiers.right(draft_tokens, p, q, rng)
        buffer = buffers.setdefault(found.shape, found)
        buffer[:] = found
        return buffer

    is_consistent(verify, "asymmetric")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.uint64])
def test_tokens_may_be_of_any_integer_type(dtype):
    result = on_case(lambda *given: verifiers.right(*given).astype(dtype), "asymmetric")
    assert result.broken == (dtype is np.uint16)  # where -1 is 65535, a token


# --- wrong verifiers -------------------------------------------------------------------------------------


def test_lengths_that_are_ignored_are_broken():
    verify = declares(lengths=True)(lambda d, p, q, rng, lengths: given(d, p, q, rng))
    result = on_case(verify, "uneven lengths")
    assert result.verdict is Verdict.BROKEN
    assert "tokens where only" in text(result)


def test_a_bonus_of_the_longest_draft_is_biased_where_lengths_differ():
    @declares(lengths=True)
    def verify(draft_tokens, p, q, rng, lengths):
        return given(draft_tokens, p, q, rng, None, lengths, bonus=p.shape[1] - 1)

    assert kinds(on_case(verify, "uneven lengths")) == {"deviation"}
    assert on_case(verify, "asymmetric").verdict is Verdict.CONSISTENT


def of_each_seed(draft_tokens, p, q, rng, seeds):
    """One generator for all rows of a call with the same seed."""
    u, made = rng.random((len(p), p.shape[1])), {}
    for row, seed in enumerate(seeds):
        if seed is not None:
            u[row] = made.setdefault(seed, np.random.default_rng(seed)).random(p.shape[1])
    return given(draft_tokens, p, q, rng, u)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda draft_tokens, p, q, rng, seeds: given(draft_tokens, p, q, rng),
        partial(seeded, stream=lambda row, seed: seed + row),
        partial(of_each_seed),
    ],
    ids=["ignored", "mixed with the row", "one generator for copies"],
)
@pytest.mark.parametrize("batch", [None, 1])
def test_a_seed_must_fix_the_tokens_of_its_row(wrong, batch):
    result = promises(declares(seeds=True, batch=batch)(lambda *given, **more: wrong(*given, **more)))
    if batch == 1 and isinstance(wrong, partial):  # a row is the first and only one of its call
        assert result.verdict is Verdict.CONSISTENT
    else:
        assert result.verdict is Verdict.BROKEN
        assert "the same seed gave other tokens in another batch or order, or where the row" in text(result)


def test_rows_without_a_seed_must_not_share_one():
    constant = declares(seeds=True)(lambda *given, **more: seeded(*given, default=0, **more))
    assert "rows without a seed gave the same tokens with another rng" in text(promises(constant))
    assert on_case(constant, "disjoint").verdict is Verdict.BIASED

    @declares(seeds=True, batch=4)
    def of_the_call(draft_tokens, p, q, rng, seeds):
        return seeded(draft_tokens, p, q, rng, seeds, default=int(rng.integers(2**40)))

    result = on_case(of_the_call, "disjoint")
    assert "the first tokens of rows of a call depend on each other" in text(result)


@pytest.mark.slow
def test_seeds_with_places_added_meet_those_of_others():
    """The numbers of a place of one seed are those of the place before of the next seed."""

    @declares(seeds=True)
    def verify(draft_tokens, p, q, rng, seeds):
        u = rng.random((len(p), p.shape[1]))
        for row, seed in enumerate(seeds):
            if seed is not None:
                u[row] = [np.random.default_rng(seed + place).random() for place in range(p.shape[1])]
        return given(draft_tokens, p, q, rng, u)

    result = on_case(verify, "shapes, few ids", "quick")
    # the second token of a row and the first one of the next have one number
    assert "token 2 of a row and the first token of the next row of the call" in text(result)


def test_uniforms_that_are_ignored_break_the_promise():
    result = promises(declares(uniforms=True)(lambda d, p, q, rng, uniforms: given(d, p, q, rng)))
    assert result.broken
    assert "the same uniforms gave other tokens" in text(result)


def test_a_uniform_of_zero_must_not_pass_an_impossible_token():
    def verify(draft_tokens, p, q, rng, uniforms):
        return given(draft_tokens, p, q, rng, uniforms, passes=np.less_equal)

    result = promises(declares(uniforms=True)(verify))
    assert result.verdict is Verdict.BIASED
    assert kinds(result) == {"support"}
    assert "case zeros, a uniform of 0.0: token" in text(result)
    # a draw never shows it
    assert on_case(declares(uniforms=True)(verify), "zeros").verdict is Verdict.CONSISTENT


def test_a_last_uniform_that_rounds_to_1_is_out_of_range():
    def verify(draft_tokens, p, q, rng, uniforms):
        return given(draft_tokens, p, q, rng, uniforms.astype(np.float32).astype(np.float64))

    result = promises(declares(uniforms=True)(verify))
    assert result.verdict is Verdict.BROKEN
    assert "is outside [0, 6); case zeros, a uniform of 0.9999999" in text(result)


@pytest.mark.parametrize("name", ["last_id_if_degenerate", "first_id_if_degenerate", "residual_epsilon"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_replaces_a_draft_that_hardly_ever_comes_must_be_possible(name, dtype):
    result = promises(declares(dtypes=(dtype,))(partial(mistakes.get(name).function)))
    assert result.verdict is Verdict.BIASED
    assert kinds(result) == {"support"}
    assert "a drafted token of p = 0, q = 6e-08" in text(result)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_an_exact_verifier_replaces_a_draft_that_hardly_ever_comes(dtype):
    controls = [control.function for control in mistakes.exact_controls() if control.decode is None]
    for function in (verifiers.right, *controls):
        assert text(promises(declares(dtypes=(dtype,))(partial(function)))) == ""


def test_other_randomness_than_the_generators_is_not_reproducible():
    own = np.random.default_rng(5)

    def verify(draft_tokens, p, q, rng):
        return verifiers.right(draft_tokens, p, q, own)

    @declares(tree=True)
    def on_trees(parents, tokens, p, q, rng):
        return recursive_rejection(parents, tokens, p, q, own)

    for result in map(promises, (verify, on_trees)):
        assert result.broken
        assert "the same rng gave other tokens the second time" in text(result)
    assert promises(declares(reproducible=False)(verify)).verdict is Verdict.CONSISTENT


def test_q_that_is_needed_where_there_is_none_is_broken():
    result = on_case(declares(one_hot=True)(lambda d, p, q, rng: verifiers.right(d, p, q, rng)), "no q")
    assert result.broken
    assert "raised " in text(result)
    assert kinds(result) == {"contract"}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda d, p, q, rng: verifiers.right(d, p, np.roll(q, 1, axis=0), rng),
        lambda d, p, q, rng: verifiers.right(d, np.roll(p, 1, axis=0), q, rng),
        lambda d, p, q, rng: verifiers.right(d, p[:, [0, *range(p.shape[1] - 1)]], q, rng),
    ],
    ids=["q of the row before", "p of the row before", "p of the position before"],
)
def test_rows_of_somebody_else_show_where_every_row_is_its_own(wrong):
    assert on_case(wrong, "own rows").verdict is Verdict.BIASED
    assert on_case(wrong, "asymmetric").verdict is Verdict.CONSISTENT


def test_one_row_with_a_seed_at_each_call_is_biased():
    @declares(batch=1)
    def verify(draft_tokens, p, q, rng):
        return verifiers.right(draft_tokens, p, q, np.random.default_rng(7))

    assert on_case(verify, "disjoint").verdict is Verdict.BIASED  # it always gives the same token


def test_a_wrong_law_of_first_tokens_is_no_dependence():
    assert kinds(on_case(verifiers.resamples_from_target, "opposite")) == {"deviation"}

    def in_pairs(draft_tokens, p, q, rng):
        u = np.repeat(rng.random(p.shape[:2]), 2, axis=0)[: len(p)]
        return verifiers.verified(draft_tokens, p, q, u, residual="target")

    assert "dependent" in kinds(on_case(in_pairs, "opposite"))


def test_a_last_token_that_never_comes_is_found():
    def verify(draft_tokens, p, q, rng):
        found = verifiers.right(draft_tokens, p, q, rng)
        return np.where(found == p.shape[2] - 1, p.shape[2] - 2, found)

    def recovers_without_it(draft_tokens, p, q, rng):
        found = verifiers.right(draft_tokens, p, q, rng)
        each, last = np.arange(len(found)), (found >= 0).sum(axis=1) - 1
        found[each, last] = np.minimum(found[each, last], p.shape[2] - 2)
        return found

    assert kinds(on_case(recovers_without_it, "last token")) >= {"support"}
    assert on_case(verify, "last token").verdict is Verdict.BIASED


def test_a_tail_that_is_never_drawn_is_found():
    def from_the_head(draft_tokens, p, q, rng):
        output = np.full((len(p), p.shape[1]), -1)
        output[:, 0] = rng.choice(3, size=len(p), p=p[0, 0, :3] / p[0, 0, :3].sum())
        return output

    result = on_case(from_the_head, "flat tail 131 072", "quick")
    assert kinds(result) == {"deviation"}
    assert "on the bins of rare tokens" in text(result)


# --- trees -----------------------------------------------------------------------------------------------


on_tree = declares(tree=True)
recursive_rejection = verifiers.down_a_tree(rules.get("standard").law)


@pytest.mark.parametrize(
    "name", ["Markov chain", "zeros, branches", *map(slow, ("asymmetric, two chains", "irregular, branches"))]
)
def test_a_right_verifier_of_trees_is_consistent(name, smaller_audits):
    is_consistent(on_tree(recursive_rejection), name)


def test_a_verifier_of_trees_that_takes_one_token_is_given_chains(smaller_audits, full):
    verify = declares(tree=True, gamma=1)(recursive_rejection)
    assert {case.gamma for case in battery(declared(verify))} == {1}
    is_consistent(verify, *["asymmetric, branches"] * full)


def test_a_second_sibling_judged_as_the_first_is_biased():
    verify = verifiers.down_a_tree(mistakes.get("resamples_target").law)
    assert kinds(on_case(verify, "asymmetric, two chains")) == {"deviation"}


@pytest.mark.parametrize(
    ("spoil", "verdict", "said"),
    [
        (lambda path, token, n: (path[::-1], token), Verdict.BIASED, "is not a child of node 0 before it"),
        (lambda path, token, n: (path[1:], token), Verdict.BIASED, "is not a child of node 0"),
        (lambda path, token, n: ([i - 1 for i in path], token), Verdict.BROKEN, "node 0 of the path is outside [1,"),
        (lambda path, token, n: ([*path, n + 1], token), Verdict.BROKEN, "of the path is outside [1, "),
        (lambda path, token, n: (path, -1), Verdict.BROKEN, "token -1 is outside [0, 8)"),
        (lambda path, token, n: (path, 0.5), Verdict.BROKEN, "path and token are not integers"),
        (lambda path, token, n: (path, [1, 2]), Verdict.BROKEN, "path and token are not integers"),
        (lambda path, token, n: token, Verdict.BROKEN, "did not return a pair (path, token)"),
    ],
)  # fmt: skip
def test_paths_that_are_none(spoil, verdict, said):
    @on_tree
    def verify(parents, tokens, p, q, rng):
        return spoil(*recursive_rejection(parents, tokens, p, q, rng), len(parents))

    result = on_case(verify, "asymmetric, branches")
    assert result.verdict is verdict
    assert said in text(result)


# --- what goes wrong inside ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["draft_tokens", "p", "q"])
def test_inputs_that_are_altered_behind_numpys_back_are_noticed(name):
    """As a tensor does that shares the memory of a read-only array."""

    def verify(draft_tokens, p, q, rng):
        array = {"draft_tokens": draft_tokens, "p": p, "q": q}[name]
        found = verifiers.right(draft_tokens, p, q, rng)
        ctypes.memset(array.ctypes.data, 1, 4)
        return found

    result = on_case(verify, "own rows")
    assert result.broken
    assert f"altered its input {name}" in text(result)


class Panic(BaseException):
    """As pyo3 raises where Rust panics."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no"), SystemExit(0), Panic("no"), MemoryError("no"), GeneratorExit(),
        ValueError("buffer source array is read-only"),  # as Cython says, where nothing was written
    ],
)  # fmt: skip
def test_whatever_is_raised_is_broken_with_the_smallest_batch(error):
    def verify(draft_tokens, p, q, rng):
        if len(p) >= 3:
            raise error
        return verifiers.right(draft_tokens, p, q, rng)

    result = on_case(verify, "asymmetric")
    assert result.broken
    assert f"raised {type(error).__name__}" in text(result)
    assert "a call of 4 rows shows it" in text(result)
    assert "in a call of 3 rows" in text(promises(verify))


@pytest.mark.parametrize("caught", [ZeroDivisionError, Exception])
def test_a_call_that_hangs_is_given_up(caught):
    def verify(draft_tokens, p, q, rng):
        for _ in range(100):
            with suppress(caught):
                time.sleep(10)
        return verifiers.right(draft_tokens, p, q, rng)

    started = time.monotonic()
    result = on_case(verify, "asymmetric", timeout=0.2)
    assert time.monotonic() - started < 5
    assert "hung: a call took longer than 0.2 s" in text(result)
    assert "a call of 1 row shows it" in text(result)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms here")
def test_an_alarm_of_the_callers_is_kept():
    started = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 600)
    try:
        on_case(verifiers.right, "asymmetric")
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left < 600.1 - (time.monotonic() - started)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_slow_verifier_does_not_hang_where_its_calls_grow():
    most = 0

    def verify(draft_tokens, p, q, rng):
        nonlocal most
        most = max(most, len(p))
        time.sleep(0.008 * len(p))
        return verifiers.right(draft_tokens, p, q, rng)

    assert not on_case(verify, "asymmetric", timeout=0.2, seconds=0.8).findings
    assert most * 0.008 > 0.2

    def hangs_later(draft_tokens, p, q, rng):
        if len(p) > 8:
            time.sleep(60)
        return verify(draft_tokens, p, q, rng)

    assert "hung: " in text(on_case(hangs_later, "asymmetric", timeout=0.2, seconds=0.4))


def test_a_right_verifier_that_draws_until_the_residual_keeps_a_token_is_not_accused():
    """A step of a total variation of 6e-8 takes it millions of draws; one that hangs elsewhere hangs."""

    def verify(draft_tokens, p, q, rng, least=1e-6):
        for p_row, q_row in zip(p[:, 0], q[:, 0], strict=True):
            if np.maximum(p_row - q_row, 0.0).sum() < least:
                time.sleep(60.0)
        return verifiers.right(draft_tokens, p, q, rng)

    found = promises(verify, timeout=0.2)
    assert (found.verdict, found.findings) == (Verdict.CONSISTENT, ())
    assert "; no answer: 64 rows, a drafted token of p = 0, q = 6e-08, p and q differ" in found.purpose
    result = audit(verify, "smoke", rng=1, timeout=0.2, cases=["two-point"], diagnose=False)
    assert "No answer within the time-out: 64 rows, a drafted token of p = 0" in " ".join(
        unseen_lines(result)
    )
    assert "hung: " in text(promises(partial(verify, least=2.0), timeout=0.2))


def test_after_a_failure_the_other_cases_are_still_run(smaller_audits):
    def verify(draft_tokens, p, q, rng):
        if p.shape[2] == 96:
            time.sleep(10)
        return verifiers.right(draft_tokens, p, q, rng)

    verify = declares(vocab_size=96)(verify)
    names = ["two-point", "disjoint", "opposite"]
    result = audit(verify, "smoke", rng=1, cases=names, timeout=0.7, diagnose=False)
    assert result.verdict is Verdict.BROKEN
    assert [case.case for case in result.cases] == ["promises", *names]
    assert {case.case for case in result.cases if case.findings} == {"disjoint"}
    assert {case.case for case in result.cases if not case.steps} == {"promises", "disjoint"}


def test_fail_fast_ends_at_the_first_failure(smaller_audits):
    found = audit(verifiers.one_hot_residual, "smoke", rng=1, fail_fast=True, diagnose=False)
    assert [bool(case.findings) for case in found.cases] == [False] * (len(found.cases) - 1) + [True]
    assert len(found.cases) < len(battery(Declared()))
    # the promises
    assert len(audit(verifiers.raises, "smoke", rng=1, fail_fast=True, diagnose=False).cases) == 1


# --- limits ----------------------------------------------------------------------------------------------


def test_a_slow_verifier_is_given_fewer_steps():
    @declares(batch=1)
    def slow(draft_tokens, p, q, rng):
        time.sleep(0.002)
        return verifiers.right(draft_tokens, p, q, rng)

    started = time.monotonic()
    result = on_case(slow, "asymmetric", "deep", seconds=0.5)
    assert time.monotonic() - started < 5
    assert 16 <= result.steps < result.planned // 1000
    assert result.verdict is Verdict.CONSISTENT
    assert not result.interrupted
    assert 0 < result.first_token.detectable_tv <= 1
    quick = on_case(verifiers.right, "asymmetric")
    assert quick.steps == quick.planned
    assert quick.first_token.detectable_tv < result.first_token.detectable_tv


def test_ctrl_c_keeps_what_was_drawn(smaller_audits):
    def progress(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    cases = ["two-point", "asymmetric", "zeros", "disjoint", "identical", "irregular"]
    result = audit(verifiers.right, "smoke", rng=1, cases=cases, progress=progress, diagnose=False)
    assert result.interrupted
    assert result.exit_code == 3
    assert result.verdict is Verdict.INCONCLUSIVE
    begun = result.cases[1:]
    assert len(begun) == len(cases)
    assert all(case.steps < case.planned for case in begun)  # all cases go on together
    assert all(case.interrupted for case in begun)
    wrong = audit(verifiers.lenient, "smoke", rng=1, cases=cases[:2], progress=progress, diagnose=False)
    assert (wrong.interrupted, wrong.exit_code) == (True, 1)


def test_ctrl_c_inside_a_verifier_is_no_fault_of_its_own():
    calls = []

    def verify(draft_tokens, p, q, rng):
        calls.append(len(p))
        if len(calls) > 40:
            raise KeyboardInterrupt
        return verifiers.right(draft_tokens, p, q, rng)

    result = audit(verify, "smoke", rng=1, cases=["two-point", "zeros"], diagnose=False)
    assert (result.interrupted, result.verdict) == (True, Verdict.INCONCLUSIVE)
