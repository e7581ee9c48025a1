"""Several processes of a verifier count its cases side by side: the same calls and counts as one process."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import verifiers
from audits import check_same

from specsim import audit
from specsim.auditing import _schedule, _side_by_side
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.subjects import VerifierSubject, open_subject
from specsim.auditing._runner import CaseRun
from specsim.auditing._schedule import Here, Schedule
from specsim.auditing._verifier.child import Children
from specsim.simulation._counting import Failure, Partial

FEW_CASES = {"two-point", "Zipf 1 000", "shapes, few ids", "own rows"}


@pytest.fixture(scope="module", autouse=True)
def _few_cases(few_cases_in_module):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEVELS, "smoke", replace(LEVELS["smoke"], verifier=3 * 2**13, decoder=2**6))
        patch.setattr(_side_by_side, "ALONE", 0.0)
        yield


def audited(name, threads, **options):
    return audit(name, "smoke", rng=3, threads=threads, diagnose=False, **options)


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The calls of each process of `notes_its_calls` in an audit on so many threads, and the audit."""

    def of(threads, **options):
        folder = tmp_path / str(threads)
        folder.mkdir()
        monkeypatch.setenv("NOTES", str(folder))
        found = audited("verifiers:notes_its_calls", threads, **options)
        return found, [path.read_text().splitlines() for path in folder.iterdir()]

    return of


def test_processes_make_the_calls_of_one_process(notes):
    alone, (whole,) = notes(1)
    together, parts = notes(2)
    check_same(together, alone)
    assert len(parts) == 2
    assert min(map(len, parts)) > 10
    assert Counter(whole) == Counter(call for part in parts for call in part)


def test_a_time_limit_is_that_of_each_process(notes, monkeypatch):
    """In which all of them count."""
    monkeypatch.setitem(LEVELS, "smoke", replace(LEVELS["smoke"], verifier=2**24))
    found, parts = notes(2, seconds=4.0)
    assert 3.0 < found.provenance.seconds < 8.0
    assert len(parts) == 2
    assert min(map(len, parts)) > 10


def test_a_short_audit_has_one_process(notes, monkeypatch):
    monkeypatch.setattr(_side_by_side, "ALONE", 600.0)
    _, parts = notes(4)
    assert len(parts) == 1


@pytest.mark.parametrize("name", ["lenient", "breaks_at_some_steps", "samples"])
def test_findings_are_those_of_one_process(name):
    check_same(audited(f"verifiers:{name}", 2), audited(f"verifiers:{name}", 1))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (1, 2, 3, 0)])
def test_cases_that_one_process_does_not_begin_are_left_out_whatever_the_order(order):
    """After three have broken alike, while others are being counted."""

    class Four(Here):
        def __init__(self, subject, children):
            super().__init__(subject)

        def results(self, next_span, *_):
            spans = [next_span() for _ in order]
            for i in order:
                yield spans[i], Partial({}, failures=(Failure("contract", f"returned {i} tokens"),))

    with open_subject(verifiers.right, 1, 60.0) as subject, pytest.MonkeyPatch.context() as patch:
        patch.setattr(VerifierSubject, "children", SimpleNamespace(most=4))
        patch.setattr(_schedule, "Processes", Four)
        schedule = Schedule(subject, [CaseRun(plan, 1, 1e-9) for plan in subject.plans("smoke")])
        schedule.to_the_end()
    assert schedule.begun == schedule.runs[:3]


def test_one_process_goes_on_alone_where_no_other_starts(tmp_path, monkeypatch):
    """As where a verifier locks a file or a device."""
    (tmp_path / "locks.py").write_text(
        f"open({str(tmp_path / 'lock')!r}, 'x')\nfrom verifiers import right as verify\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    check_same(audited("locks:verify", 2), audited("verifiers:right", 1))


def test_a_process_that_declares_something_else_is_not_asked(tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text(
        "import os\nfrom verifiers import right\n"
        f"first = not os.path.exists(mark := {str(tmp_path / 'mark')!r})\nopen(mark, 'w')\n"
        "def verify(*arrays):\n    return right(*arrays) if first else None\n"
        "verify.declared = {'gamma': 8 if first else 7}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = audited("changes:verify", 2)
    assert found.verdict == "consistent"


def test_a_process_that_is_being_loaded_at_the_end_is_ended(tmp_path, monkeypatch, capfd):
    """As where it waits for a file that the first has locked."""
    (tmp_path / "waits.py").write_text(
        "import os, time\nfrom verifiers import right\n"
        f"first = not os.path.exists(mark := {str(tmp_path / 'mark')!r})\n"
        "open(mark, 'a').write(f'{os.getpid()}\\n')\n"
        "if not first:\n    time.sleep(60)\n"
        "def verify(draft_tokens, p, q, rng):\n"
        "    while len(p) > 500 and len(open(mark).readlines()) < 2:\n"  # counting, alone so far
        "        time.sleep(0.01)\n"
        "    return right(draft_tokens, p, q, rng)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = audited("waits:verify", 2, cases=["two-point"])
    assert found.verdict == "consistent"
    _, pid = map(int, (tmp_path / "mark").read_text().split())
    for _ in range(100):
        if not running(pid):
            break
        time.sleep(0.05)
    assert not running(pid)
    assert capfd.readouterr().err == ""


def running(pid):
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_progress_grows_to_the_planned_steps():
    told = []
    found = audited("verifiers:right", 2, progress=lambda done, total: told.append((done, total)))
    planned = sum(case.planned for case in found.cases)
    assert told[-1] == (planned, planned)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.fixture
def children(monkeypatch):
    """All processes that were started."""
    found = []
    begin = Children.__init__

    def noted(self, *given):
        begin(self, *given)
        found.append(self)

    monkeypatch.setattr(Children, "__init__", noted)
    return found


def test_ctrl_c_ends_all_processes_at_once(children):
    pids = set()

    def interrupt(done, total):
        pids.update(child._process.pid for child in children[0].started if child._process)
        if len(pids) == 3 and done > total / 50:
            raise KeyboardInterrupt

    started = time.monotonic()
    found = audited("verifiers:naps", 3, progress=interrupt)
    assert time.monotonic() - started < 60
    assert found.interrupted
    assert any(0 < case.steps < case.planned for case in found.cases)
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_error_of_ours_is_raised(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(_side_by_side, "try_span", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        audited("verifiers:right", 2)
