"""Which lines of a verifier an audit names as not run."""

import sys

import pytest

from specsim import audit
from specsim.auditing._report.text import unseen_lines
from specsim.auditing._verifier.local import Lines

BRANCHES = '''
import numpy as np


def never_entered():
    return 1


def verify(draft_tokens, p, q, rng):
    """A right verifier."""
    if p.ndim != 3:
        raise ValueError("p has three axes")
    if len(p) > 10**6:
        p = p * 2
        q = (
            q * 2
        )
    output = np.full((len(p), p.shape[1]), -1)
    for row in range(len(p)):
        try:
            last = one_row(draft_tokens[row], p[row], q[row], rng, output[row])
        except IndexError:
            last = 0
        match last:
            case -5:
                output[row] = 0
    return output


def one_row(drafted, p, q, rng, output):
    for n, token in enumerate(drafted):
        if rng.random() * q[n, token] >= p[n, token]:
            residual = np.maximum(p[n] - q[n], 0)
            output[n] = rng.choice(len(residual), p=residual / residual.sum())
            return n
        output[n] = token
    output[-1] = rng.choice(
        p.shape[1],
        p=p[-1],
    )
    return len(drafted)
'''
#: The lines of the branches that no row reaches.
UNSEEN = {14, 15, 23, 26}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that has these branches."""
    (tmp_path / "branches.py").write_text(BRANCHES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "branches", raising=False)
    return "branches"


def test_lines_that_no_call_ran_are_named(module, smaller_audits):
    """Of the functions that ran, but for what raises an error; in a process of its own, and in this one."""
    named = audit(f"{module}:verify", level="smoke", cases=["two-point"], rng=1)
    assert set(named.origin.unseen) == UNSEEN
    assert "Not run: lines 14 to 15, 23, 26 of branches.py." in "\n".join(unseen_lines(named))
    here = audit(__import__(module).verify, level="smoke", cases=["two-point"], rng=1)
    assert set(here.origin.unseen) == UNSEEN
    assert here.to_dict()["origin"]["unseen"] == sorted(UNSEEN)


def test_another_tracer_is_left_alone(module):
    lines = Lines(f"{module}.py")
    sys.settrace(lambda *_: None)
    try:
        tracer = sys.gettrace()
        with lines.watching("a shape"):
            assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert not lines.left


def test_a_file_that_is_no_python_has_no_lines(tmp_path):
    for text in ("", "this is: not Python", "\0"):
        (tmp_path / "text").write_text(text)
        with Lines(str(tmp_path / "text")).watching("a shape"):
            assert sys.gettrace() is None
    assert not Lines("").left
