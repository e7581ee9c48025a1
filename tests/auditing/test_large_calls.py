"""A known mistake that is made in large calls alone is named from the small cases in calls of that shape."""

from types import SimpleNamespace

import numpy as np
import pytest
import verifiers

from specsim import mistakes
from specsim.adapters._contract import Declared
from specsim.auditing._checks.outcomes import OutcomeTally, diagnostic_cases
from specsim.auditing._checks.subjects import open_subject
from specsim.auditing._diagnosis import large
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.auditing._diagnosis.reproduction import count_steps
from specsim.auditing._results.audit import CALLS
from specsim.auditing._schedule import CaseRun, run_case
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.local import Local

LARGE = [case for case in diagnostic_cases(Declared()) if case.name in large.CASES]


def in_large_calls(mistake):
    """`mistake` in calls of ten rows over a thousand ids, or more of both, and right in smaller ones."""
    function = mistakes.get(mistake).function
    return lambda *given: (
        function if len(given[1]) >= 10 and given[1].shape[2] >= 1000 else verifiers.right
    )(*given)


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


def test_an_id_without_mass_is_no_outcome():
    case = diagnostic_cases(Declared())[0]
    wrong = Local(lambda draft_tokens, p, q, rng: np.where(np.arange(p.shape[1]) == 0, 1, -1), Declared())
    subject = SimpleNamespace(declared=Declared(), callee=wrong, timeout=60.0)
    audited = SimpleNamespace(subject=subject, in_time=lambda: None)
    assert case.name in large.CASES
    assert large.outcomes_of(audited, [case], 16, 1000) == []


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
