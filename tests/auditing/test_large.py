"""Known mistakes that show over many ids, or in large calls, alone."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import FALSE_ALARM
from test_server_shapes import SERVER, in_calls_of_a_server, judged
from verifiers import right, verified

from specsim import mistakes
from specsim.adapters._contract import Declared
from specsim.auditing._cases.shapes import KINDS, ShapesCase
from specsim.auditing._checks.counts import OutcomeTally, diagnostic_cases
from specsim.auditing._checks.subjects import VerifierSubject, open_subject
from specsim.auditing._diagnosis import large, verifiers
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.auditing._diagnosis.likelihood import fit
from specsim.auditing._diagnosis.posterior import Limits, score
from specsim.auditing._diagnosis.reproduction import Audited, count_steps
from specsim.auditing._results.audit import CALLS
from specsim.auditing._schedule import CaseRun, run_case
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.local import Local
from specsim.mistakes._rows import PARTS
from specsim.simulation._counting import run

LARGE = [case for case in diagnostic_cases(Declared()) if case.name in large.CASES]


def in_large_calls(mistake):
    """`mistake` in calls of ten rows over a thousand ids, or more of both, and right in smaller ones."""
    function = mistakes.get(mistake).function
    return lambda *given: (function if len(given[1]) >= 10 and given[1].shape[2] >= 1000 else right)(*given)


@pytest.mark.parametrize("case", LARGE)
def test_a_large_call_has_the_outcomes_of_a_small_one(case):
    """The verifier reads rows of the shape, whose mass is that of the case, and its tokens are read back."""
    shapes = set()

    def verify(draft_tokens, p, q, rng):
        shapes.add(p.shape)
        assert np.allclose(p.sum(axis=2), 1.0)
        assert (np.count_nonzero(p, axis=2) <= case.vocab_size).all()
        assert (np.take_along_axis(q, draft_tokens[..., None], axis=2) > 0).all()
        return np.where(np.arange(p.shape[1]) == 0, p.argmax(axis=2), -1)

    small, found = (
        count_steps(source(Local(verify, Declared()), case, 60.0, **more), OutcomeTally(case), (1, 2), 64)
        for source, more in ((VerifierSource, {}), (large.LargeCalls, {"rows": 16, "ids": 1000}))
    )
    assert (small["outcomes"] == found["outcomes"]).all()
    assert (16, case.gamma + 1, 1000) in shapes


def of_lengths(draft_tokens, p, q, rng, *, lengths, unsorted=False):
    """Right; or else the last tokens of rows sorted by length come back in the order of the sort."""
    tokens = verified(draft_tokens, p, q, rng.random(p.shape[:2]), lengths)
    if unsorted:
        ends = np.arange(len(p)), (tokens >= 0).sum(axis=1) - 1
        order = np.argsort(lengths, kind="stable")
        tokens[ends] = tokens[ends][order][order]
    return tokens


@pytest.mark.parametrize("unsorted", [False, True])
@pytest.mark.parametrize("case", diagnostic_cases(Declared())[1::3], ids=lambda one: one.name)
def test_calls_of_drafts_of_several_lengths_show_what_is_wrong_there_alone(case, unsorted):
    """`diagnosis, own rows` shows that the token is of another row."""
    source = large.Uneven(Local(partial(of_lengths, unsorted=unsorted), Declared(lengths=True)), case, 60.0)
    counts = verifiers.flat(count_steps(source, OutcomeTally(case), (1, 2), 2**12)["outcomes"])
    exact, moved = (
        fit([(verifiers.predict(one, case), counts)])
        for one in (verifiers.EXACT[0], mistakes.get("neighbours_token"))
    )
    assert (exact < FALSE_ALARM) if unsorted else (exact > 1e-3)
    if case.rotated:
        assert (moved > 1e-3) if unsorted else (moved < FALSE_ALARM)


def test_rows_between_are_of_calls_of_at_most_the_declared_rows():
    seen = set()

    def verify(draft_tokens, p, q, rng, *, lengths):
        seen.add((len(p), *sorted(set(lengths.tolist()))))
        return of_lengths(draft_tokens, p, q, rng, lengths=lengths)

    case = diagnostic_cases(Declared())[0]
    source = large.Uneven(Local(verify, Declared(lengths=True, batch=8)), case, 60.0)
    count_steps(source, OutcomeTally(case), (1, 2), 64)
    assert (6, 0, 2, 3) in seen
    assert max(seen)[0] == 6


def test_an_id_without_mass_is_no_outcome():
    case = diagnostic_cases(Declared())[0]
    wrong = Local(lambda draft_tokens, p, q, rng: np.where(np.arange(p.shape[1]) == 0, 1, -1), Declared())
    subject = SimpleNamespace(declared=Declared(), callee=wrong, timeout=60.0)
    audited = SimpleNamespace(subject=subject, in_time=lambda: None)
    assert case.name in large.CASES
    assert large.outcomes_of(audited, [case], partial(large.LargeCalls, rows=16, ids=1000)) == []


def test_the_shape_is_that_of_the_clearest_table():
    def failed(ids, *tables):
        return SimpleNamespace(
            kernel=CALLS,
            vocab_size=ids,
            tables=[SimpleNamespace(log10_e=e, where=where) for e, where in tables],
        )

    of_rows = failed(
        50, (9.0, "rows of a call: 65 to 512; tokens ordered by id"), (5.0, "rows of a call: odd; t")
    )
    together = failed(
        7, (2.0, "calls: 64 rows, 32,000 ids, γ 5; t"), (4.0, "calls: 256 rows, 128,256 ids, γ 1; t")
    )
    server = failed(7, (2.0, "calls: 256 rows, 32,000 ids, γ 1; t"))
    for cases, shape in (
        ([], None),
        ([of_rows], (512, 50)),
        ([of_rows, together], (111, 128_256)),
        ([server], (256, 32_000)),
    ):
        assert large.shape_that_failed(SimpleNamespace(failed=cases)) == shape
    assert all(2 * case.gamma + 1 <= large.OF_A_STEP for case in LARGE)


@pytest.mark.slow
def test_a_mistake_of_large_calls_is_named():
    verify = in_large_calls("resamples_target")
    known = [mistakes.get(one) for one in ("one_hot_residual", "lenience", "resamples_target")]
    with open_subject(verify, 1, 60) as subject:
        number = [case.name for case in subject.cases].index("shapes, 1 000 ids")
        result = run_case(subject, CaseRun(subject.plan(number, "smoke"), 3, 1e-9)).result()
        found = diagnose_failed(subject, [result], "smoke", 3, known)
    assert [one.name for one in found.named] == ["resamples_target"]
    assert found.evidence.startswith("It does so in calls of 512 rows over 4,096 ids")


#: Values with which a mistake shows over a hundred ids.
VISIBLE = {
    "ratio_epsilon": "epsilon=0.02", "clamped_draft": "epsilon=0.02", "residual_epsilon": "epsilon=0.01",
    "coarse_test": "bits=1", "coarse_draw": "bits=4", "floored_race": "bits=2.5", "race_epsilon": "bits=2.5",
    "rounded_ids": "bits=2", "wrapped_ids": "bits=5", "last_tile_never": "size=64",
    "tiles_share_noise": "size=32", "likeliest_only": "k=8",     "tile_number_again": "size=16", "drops_small_weights": "least=0.01",
    "close_rows_accepted": "tolerance=0.02",
}  # fmt: skip
#: Too near the right law for so few ids.
FAINT = "float16_ratio", "bfloat16_ratio", "last_id_never", "half_sums"
CASE = ShapesCase("many", "", (100,), (1, 3), ((4, 150), (8, 75)))


def seen_of(function, steps=8 * CASE.round_steps):
    subject = VerifierSubject("own", Local(function))
    subject.cases = [CASE]  # a cached property
    source, tally = subject.counter(CASE.name)
    key = large.case_key(1, CASE.name)
    counts = run(source, tally, key, 0, steps, threads=1).counts
    begin = tally.axes.first("kind of row")
    images = counts["images"][begin : begin + len(KINDS)]
    drawn, impossible = list(large._steps(CASE, key, steps)), int(counts["impossible"].sum())
    return [
        large.Seen(CASE.name, CASE, order, images[:, order], drawn, impossible)
        for order in range(len(CASE.orders))
    ]


@pytest.mark.parametrize(("name", "version"), [(name, i) for name in PARTS for i in range(len(PARTS[name]))])
def test_tokens_have_the_law_of_the_mistakes_parts_and_no_other(name, version):
    mistake = mistakes.get(":".join([name, VISIBLE[name]]) if name in VISIBLE else name)
    mistake, parts = large.versions(mistake)[version]
    seen = seen_of(mistake.function)
    assert min(fit(one.under(mistake, parts)) for one in seen) > FALSE_ALARM
    # over a hundred ids a residual that knows many entries of q is right
    assert name in FAINT or version > 3 or min(fit(one.right) for one in seen) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", ["likeliest_only:k=1024", "last_tile_never:size=4096", "ratio_epsilon:epsilon=1e-5"]
)
def test_a_mistake_of_many_ids_is_named(variant):
    name, _, value = variant.partition(":")
    wrong = in_calls_of_a_server(name, **{key: float(number) for key, number in [value.split("=")]})
    result = judged(wrong, SERVER, 4)
    subject = VerifierSubject("own", Local(wrong))
    audited = Audited(subject, [replace(result, planned=2 * result.steps)], "quick", 1, Limits())
    found = verifiers._in_large_rows(mistakes.catalogue(), audited)
    assert found is not None
    assert found.named[0].name.partition(":")[0] == name


def test_a_right_verifier_fits_no_mistake_of_many_ids():
    def right(draft_tokens, p, q, rng):
        return mistakes._reference.verify(draft_tokens, p, q, rng)

    seen = seen_of(right)[0]
    exact = score(verifiers.EXACT[0], seen.right, large.TOLD)
    for name in PARTS:
        assert large.score(mistakes.get(name), seen).log_likelihood < exact.log_likelihood + np.log(20)


def test_impossible_tokens_alone_show_no_mistake_of_many_ids():
    seen = replace(seen_of(right)[0], impossible=30)
    assert {large.score(mistakes.get(name), seen).log_likelihood for name in PARTS} == {-np.inf}
