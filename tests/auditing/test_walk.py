"""The way from the command to the verdict is the one that docs/architecture.md shows, and not a long one."""

import json
import re
from pathlib import Path

import pytest
import walk

from specsim import audit, simulate
from specsim.cli import _audit as command

PAGE = Path(__file__).parents[2] / "docs/architecture.md"
LISTED = ("adapters/", "auditing/", "cli/", "simulation/")


@pytest.fixture(scope="module")
def section():
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index("## From command to verdict") : text.index("## A result")]


@pytest.fixture(scope="module")
def calls(tmp_path_factory, smaller_audits_in_module):
    """The calls between files of an audit from the command line, in the parent and in the child."""
    out = tmp_path_factory.mktemp("walk") / "calls.json"
    # kernels are compiled and modules are imported before anything is noted
    assert not any(case.findings for case in audit(walk.verify, "smoke", rng=1, diagnose=False).cases)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(walk.OUT, str(out))
        with walk.Calls() as parent:
            assert command.audit("walk:verify", level="smoke", seed=1, threads=1) == 3  # few cases
    child = {tuple(pair) for pair in json.loads(out.read_text())}
    return {pair for pair in parent.between | child if pair[1].startswith(LISTED)}


def test_the_page_lists_the_files_that_pass_the_work_on(section, calls):
    shown = re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.MULTILINE)
    callers = {caller for caller, _ in calls if caller and caller.startswith(LISTED)}
    assert set(shown) == callers
    assert len(shown) == len(set(shown)) <= 12


def test_the_page_lists_the_files_that_answer(section, calls):
    shown = re.findall(r"^- `([\w/]+\.py)`", section, re.MULTILINE)
    callers, called = {caller for caller, _ in calls}, {callee for _, callee in calls}
    assert set(shown) == called - callers
    assert len(shown) == len(set(shown)) <= 13


def test_only_the_child_calls_the_verifier_and_only_the_parent_judges(calls):
    """The two halves of the way meet in messages alone."""
    assert ("auditing/_verifier/calls.py", "auditing/_verifier/child.py") in calls
    assert ("auditing/_verifier/child.py", "auditing/_verifier/local.py") in calls
    assert ("auditing/_schedule.py", "auditing/_checks/findings.py") in calls
    judges = {caller for caller, callee in calls if callee == "auditing/_checks/findings.py"}
    assert judges == {"auditing/_schedule.py"}


def test_a_call_from_one_file_to_another_is_noted():
    with walk.Calls() as calls:
        simulate([0.5, 0.5], [0.25, 0.75], gamma=1, steps=10, rng=0, threads=1)
    assert ("simulation/_simulate.py", "simulation/_counting.py") in calls.between
    assert ("simulation/_counting.py", "simulation/_sources.py") in calls.between
    assert not any(callee.startswith("auditing/") for _, callee in calls.between)
