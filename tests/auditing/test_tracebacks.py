"""A verifier that raises: its traceback, the arrays of the line, and when the other cases are not run."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from specsim import audit
from specsim.adapters import declares
from specsim.adapters._contract import SHOWN_BY, BrokenVerifier
from specsim.auditing._report import text as words
from specsim.auditing._verifier.child import Child
from specsim.auditing._verifier.local import FRAMES, Local
from specsim.auditing._verifier.requests import RowsAsked, answer
from specsim.core._report import json_of, junit_of, page_of

ROWS = {
    "draft_tokens": np.zeros((3, 2), dtype=np.int64),
    "p": np.full((3, 3, 4), 0.25),
    "q": np.full((3, 2, 4), 0.25),
}
ASKED = RowsAsked(ROWS, None, 3, 3, (1,), 0, 10.0)


def looks_too_far(draft_tokens, p, q, rng):
    def token(rows):
        most = rows.shape[2]
        return rows[:, 0, most]

    return token(p)


def goes_deep(*arguments):
    return goes_deep(*arguments)


class Silent(Exception):
    def __str__(self):
        raise ValueError("no")


def raising(error):
    def verify(*arguments):
        raise error

    return verify


def details(function, asked=ASKED):
    with pytest.raises(BrokenVerifier) as found:
        answer(Local(function), asked)
    return str(found.value), found.value.details.splitlines()


def test_the_last_frame_has_its_arrays():
    text, lines = details(looks_too_far)
    line = looks_too_far.__code__.co_firstlineno
    assert lines[: lines.index(SHOWN_BY)] == [
        f"{__file__}:{line + 5}: in looks_too_far",
        "    return token(p)",
        f"{__file__}:{line + 3}: in token",
        "    return rows[:, 0, most]",
        "      rows: float64[3, 3, 4]",
        "      most: 4",
        "IndexError: index 4 is out of bounds for axis 2 with size 4",
    ]
    assert text == f"raised {lines[lines.index(SHOWN_BY) - 1]}"


def test_frames_of_installed_packages_and_of_compiled_modules_have_no_arrays():
    def broadcasts(draft_tokens, p, q, rng):
        return np.broadcast_to(p, (2, 2))

    def draws(draft_tokens, p, q, rng):
        return rng.choice(4, p=[1.0, 1.0, 0.0, 0.0])

    _, lines = details(broadcasts)
    assert "      p: float64[3, 3, 4]" in lines
    assert [line for line in lines if "site-packages" in line]
    assert lines.index("      p: float64[3, 3, 4]") < max(
        i for i, one in enumerate(lines) if "site-packages" in one
    )
    assert SHOWN_BY not in lines  # a function within a function
    _, lines = details(draws)
    assert "      p: float64[3, 3, 4]" in lines
    assert not [line for line in lines if not line.strip()]


def test_a_short_call_can_be_pasted(tmp_path, monkeypatch):
    source = "def verify(draft_tokens, p, q, rng):\n    return [][int(rng.integers(9)) + len(p)]\n"
    (tmp_path / "pasted.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import pasted

    p = np.random.default_rng(1).dirichlet(np.ones(4), size=(3, 3)).astype(np.float32)
    _, lines = details(pasted.verify, replace(ASKED, arrays=ROWS | {"p": p}))
    code = lines[lines.index(SHOWN_BY) + 1 :]
    seen = {}
    with pytest.raises(IndexError, match="list index") as raised:
        exec("\n".join(code), seen)
    frame, rng = raised.traceback[-1].frame, np.random.default_rng(ASKED.rng)
    rng.integers(9)  # the function's own
    assert np.array_equal(frame.f_locals["p"], p)
    assert frame.f_locals["p"].dtype == np.float32
    assert frame.f_locals["rng"].integers(99) == rng.integers(99)


@pytest.mark.parametrize(
    "arrays", [{"p": np.full((3, 3, 64), 1 / 64)}, {"p": np.zeros((3, 3, 4), dtype=ml_dtypes.bfloat16)}]
)
def test_a_call_that_cannot_be_pasted_is_left_out(arrays):
    assert SHOWN_BY not in details(looks_too_far, replace(ASKED, arrays=ROWS | arrays))[1]


def test_a_deep_recursion_is_cut():
    text, lines = details(goes_deep)
    assert "RecursionError" in text
    assert sum(": in goes_deep" in line for line in lines) <= FRAMES


@pytest.mark.parametrize(
    ("error", "said"), [(RuntimeError, "RuntimeError"), (Silent, "an exception that cannot be printed")]
)
def test_exceptions_without_a_message(error, said):
    text, lines = details(raising(error))
    assert (text, lines[-1]) == (f"raised {said}", said)


def test_a_child_sends_it(tmp_path, monkeypatch):
    (tmp_path / "far.py").write_text("def verify(draft_tokens, p, q, rng):\n    return p[99]\n")
    monkeypatch.syspath_prepend(tmp_path)
    with closing(Child("far:verify")) as child, pytest.raises(BrokenVerifier) as found:
        answer(child, ASKED)
    assert str(found.value).startswith("raised IndexError: index 99")
    assert found.value.details.splitlines()[0] == f"{tmp_path / 'far.py'}:2: in verify"
    assert "      p: float64[3, 3, 4]" in found.value.details.splitlines()


@pytest.fixture(scope="module")
def broken():
    return audit(looks_too_far, level="smoke", rng=1)


def test_after_three_cases_that_fail_alike_the_others_are_not_run(broken):
    run = [case for case in broken.cases if case.planned]
    assert len(run) == 3 < broken.planned
    assert f"{broken.planned - 3} cases of {broken.planned} not run" in words.progress_lines(broken)[0]


def test_cases_that_fail_otherwise_are_all_run():
    @declares(vocab_size=32)
    def by_size(draft_tokens, p, q, rng):
        raise (TypeError, KeyError, ValueError, OSError)[p.shape[2] % 4](chr(ord("a") + p.shape[1]))

    found = audit(by_size, level="smoke", rng=1)
    kinds = {case.findings[0].alike for case in found.cases if case.planned}
    assert len(kinds) > 1
    assert (
        max(sum(case.findings[0].alike == kind for case in found.cases if case.planned) for kind in kinds)
        == 3
    )


def test_all_forms_of_a_report_have_it_once(broken):
    line = f"{__file__}:{looks_too_far.__code__.co_firstlineno + 3}: in token"
    assert words.traceback(broken).count(line) == 1
    assert len(words.finding_lines(broken)) <= 2  # the promises, and the cases together
    assert page_of(broken).count(": in token") == 1
    assert line in junit_of(broken)
    found = json.loads(json_of(broken))["cases"][1]["findings"][0]
    assert line in found["details"]
    assert re.search(r"a call of 1 row shows it", found["text"])
    assert "rows: float64[1, " in found["details"]  # of the smallest call
