"""No verifier in a child process gets a good verdict for anything but its tokens, and none hangs the audit."""

from __future__ import annotations

import time

import hostile
import pytest

from specsim import audit
from specsim.auditing._results.audit import Verdict
from specsim.auditing._verifier import child
from specsim.cli import _audit as command

#: One for each way, but for an exit and deafness, which `test_isolation` has; the others are tried with all tests.
ALWAYS = {
    *("forks_and_both_answer", "closes_everything", "sends_rows_without_end"),
    *("answers_another_question", "forges_the_answer", "patches_the_judge"),
}
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in hostile.VERDICTS]

pytestmark = pytest.mark.usefixtures("smaller_audits")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name, seconds in (("GRACE", 0.5), ("GRACE_AGAIN", 0.5), ("END", 0.5), ("LOOK_EVERY", 0.05)):
        monkeypatch.setattr(child, name, seconds)


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_verifier_gets_no_good_verdict(name, capfd):
    started = time.monotonic()
    # a busy machine takes time for an import in a call
    timeout = 0.5 if "broken" in hostile.VERDICTS[name] else 5.0
    found = audit(f"hostile:{name}", "smoke", rng=1, timeout=timeout, diagnose=False, fail_fast=True)
    assert time.monotonic() - started < 30
    assert str(found.verdict) in hostile.VERDICTS[name]
    assert found.exit_code == 1
    assert capfd.readouterr().out == ""


def test_a_function_here_that_leaves_or_lies_is_broken():
    """Without a child, what a call raises, and what its result does when it is read."""
    for attempt in ("raises_system_exit", "raises_what_cannot_be_printed", "returns_what_leaves"):
        found = audit(getattr(hostile, attempt), "smoke", rng=1, diagnose=False, fail_fast=True)
        assert found.verdict is Verdict.BROKEN


def test_a_verifier_that_declares_something_else_when_it_is_loaded_again(tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text(
        "import os, pathlib\n"
        "seen = pathlib.Path(__file__ + '.seen')\n"
        "def verify(*_): os._exit(0)\n"
        "verify.declared = {'vocab_size': 2, 'batch': 1 + seen.exists()}\n"
        "seen.touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = audit("changes:verify", "smoke", rng=1, diagnose=False)
    assert found.verdict is Verdict.BROKEN
    assert "declares something else" in str(found.to_dict())


def test_what_a_verifier_prints_is_not_the_output_of_the_command(capfd, monkeypatch):
    monkeypatch.setattr("specsim.auditing._diagnosis.diagnose.diagnose_failed", lambda *_, **__: None)
    assert command.audit("hostile:writes_a_report", level="smoke", seed=1) == 1
    out, err = capfd.readouterr()
    assert "hostile:writes_a_report: biased" in out
    assert "report: consistent" not in out
    assert "hostile:writes_a_report: consistent" in err
