"""Processes of a verifier, or workers with spans of its cases: the same calls and counts as one process."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import verifiers
from audits import check_same
from interrupting import ends

from benchmarks._virtual import VirtualExecutor
from specsim import audit
from specsim.auditing import _schedule, _side_by_side
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.subjects import Span, VerifierSubject, open_subject
from specsim.auditing._schedule import CaseRun, Here, Schedule, _Segment
from specsim.auditing._side_by_side import OnWorkers
from specsim.auditing._verifier import calls
from specsim.auditing._verifier.child import Child, Children
from specsim.simulation import _executors as executors
from specsim.simulation._counting import Failure, Partial
from specsim.simulation._executors import Workers

#: Batches of a chunk: one, many in several chunks and in one, a round of calls of changing shape, rows that differ.
FEW_CASES = {"two-point", "irregular", "Zipf 1 000", "shapes, few ids", "own rows"}


@pytest.fixture(scope="module", autouse=True)
def _few_cases(few_cases_in_module):
    level = replace(LEVELS["smoke"], verifier=3 * 2**12, verifier_bytes=2**26, decoder=2**5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEVELS, "smoke", level)
        patch.setattr(calls.VerifierSource, "chunk", 2**12)
        patch.setattr(calls, "BATCH_BYTES", 2**21)
        patch.setattr(_side_by_side, "ALONE", 0.0)
        patch.setattr(executors, "SPAN_SECONDS", 0.02)  # so that there are many
        yield


def audited(name, threads, **options):
    return audit(name, "smoke", rng=3, threads=threads, diagnose=False, **options)


def elsewhere(name, workers, **options):
    with ThreadPoolExecutor(workers) as pool:
        return audit(name, "smoke", rng=3, diagnose=False, executor=pool, **options)


@pytest.fixture
def tasks(monkeypatch):
    """The spans that were counted, as (case, first step, steps)."""
    found = []

    def noted(subject, asked, *more, counting=_side_by_side.try_span):
        found.append((asked.case, asked.first, asked.steps))
        return counting(subject, asked, *more)

    monkeypatch.setattr(_side_by_side, "try_span", noted)
    return found


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """of(by, threads): the audit of `notes_its_calls`, and the calls of each of its processes."""

    def of(by, threads, **options):
        folder = tmp_path / f"{by.__name__}, {threads}"
        folder.mkdir()
        monkeypatch.setenv("NOTES", str(folder))
        name = "verifiers:notes_its_calls"
        found = by(verifiers.notes_its_calls if threads == 1 else name, threads, **options)
        return found, [path.read_text().splitlines() for path in folder.iterdir()]

    return of


def test_processes_and_workers_make_the_calls_of_one_process(notes, tasks):
    """The same calls with the same generators; those of a span one after the other, in one process."""
    alone, (whole,) = notes(audited, 1)
    told = []
    together, parts = notes(audited, 2, progress=lambda done, total: told.append((done, total)))
    check_same(together, alone)
    planned = sum(case.planned for case in together.cases)
    assert told[-1] == (planned, planned)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(parts) == 2
    assert min(map(len, parts)) > 0
    assert Counter(whole) == Counter(call for part in parts for call in part)
    tasks.clear()
    of_workers, parts = notes(elsewhere, 2)
    check_same(of_workers, alone)
    assert len(parts) == 3  # the parent's process checks the promises
    assert Counter(whole) == Counter(call for part in parts for call in part)
    follows = set(pairwise(whole))
    broken = sum(pair not in follows for part in parts for pair in pairwise(part))
    assert broken <= len(tasks)  # only where a span begins
    spans = Counter(case for case, *_ in tasks)
    assert spans["Zipf 1 000"] > 20
    assert all(spans[name] > 3 for name in FEW_CASES)


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("lenient", ["irregular", "Zipf 1 000"]),
        ("breaks_at_some_steps", ["two-point", "Zipf 1 000"]),
        ("samples", ["one token", "second order"]),
    ],
)
def test_findings_are_those_of_one_process(name, cases, tasks):
    """Also where spans beyond the look at which a case ends were counted ahead, or broke the contract first."""
    here = audited(getattr(verifiers, name), 1, cases=cases)
    assert any(case.broken for case in here.cases) == (name == "breaks_at_some_steps")
    if name != "samples":
        assert any(case.findings and 0 < case.steps < case.planned for case in here.cases)
        check_same(audited(f"verifiers:{name}", 2, cases=cases), here)
    tasks.clear()
    check_same(elsewhere(f"verifiers:{name}", 2, cases=cases), here)
    assert max(Counter(case for case, *_ in tasks).values()) > 1


@pytest.mark.parametrize("order", [(0, 8, 16), (16, 8, 0), (8, 16, 0)])
def test_findings_of_spans_that_fail_are_those_of_the_earliest(order):
    """In whatever order they come back, as on one process, which goes no further."""
    segment = _Segment(Span("two-point", (1, 2), 0, 24))
    for first in order:
        failures = (Failure("contract", f"step {first}", ""),) if first else ()
        segment.add(
            Span("two-point", (1, 2), first, 8), Partial({}, ((first, first + 8),), failures=failures)
        )
    assert segment.result().failures == (Failure("contract", "step 8", ""),)


@pytest.mark.slow
def test_a_time_limit_is_that_of_each_process(notes, monkeypatch):
    """In which all of them count."""
    monkeypatch.setitem(LEVELS, "smoke", replace(LEVELS["smoke"], verifier=2**24))
    monkeypatch.setenv("NAP", "0.002")
    started = time.monotonic()
    Child("verifiers:right").close()
    seconds = 2.0 + 4.0 * (time.monotonic() - started)  # the second starts late where the machine is busy
    found, parts = notes(audited, 2, seconds=seconds)
    assert 0.75 * seconds < found.provenance.seconds < 2.0 * seconds
    assert len(parts) == 2
    assert min(map(len, parts)) > 0


def test_a_short_audit_has_one_process(notes, monkeypatch):
    monkeypatch.setattr(_side_by_side, "ALONE", 600.0)
    _, parts = notes(audited, 4, cases=["two-point"])
    assert len(parts) == 1


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
    cases = ["two-point", "own rows"]
    check_same(audited("locks:verify", 2, cases=cases), audited(verifiers.right, 1, cases=cases))


def test_a_process_that_declares_something_else_is_not_asked(tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text(
        "import os\nfrom verifiers import right\n"
        f"first = not os.path.exists(mark := {str(tmp_path / 'mark')!r})\nopen(mark, 'w')\n"
        "def verify(*arrays):\n    return right(*arrays) if first else None\n"
        "verify.declared = {'gamma': 8 if first else 7}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert audited("changes:verify", 2, cases=["two-point", "own rows"]).verdict == "consistent"


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
    assert audited("waits:verify", 2, cases=["two-point"]).verdict == "consistent"
    _, pid = map(int, (tmp_path / "mark").read_text().split())
    assert ends(pid)
    assert capfd.readouterr().err == ""


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
        if len(pids) == 2 and done > total / 100:
            raise KeyboardInterrupt

    started = time.monotonic()
    found = audited("verifiers:naps", 2, progress=interrupt)
    assert time.monotonic() - started < 60
    assert found.interrupted
    assert any(0 < case.steps < case.planned for case in found.cases)
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_error_of_ours_is_raised(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(_side_by_side, "try_span", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        audited("verifiers:right", 2, cases=["two-point"])


def test_workers_may_end_before_a_time_limit():
    found = elsewhere("standard", 2, seconds=600.0, cases=["two-point", "irregular"])
    assert all(case.steps >= case.planned for case in found.cases)
    assert not found.out_of_time


@pytest.mark.slow
def test_a_time_limit_is_that_of_all_workers(tasks):
    for _ in range(2):  # the first one compiles, in its limit
        found = elsewhere("verifiers:naps", 2, seconds=6.0, wanted_tv=0.12)
    assert sum(case.seconds for case in found.cases) < 8.0
    assert found.provenance.seconds < 30.0
    assert found.out_of_time
    assert found.powerful
    assert found.powerful + len(found.out_of_time) == found.planned


def efficiency(workers, names, steps, pace, split=None):
    """The share of the workers' time that is work, for cases with these numbers of steps."""
    with open_subject(verifiers.right, 1, 60.0) as subject:
        pass
    plans = [replace(plan, steps=steps) for plan in subject.plans("smoke") if plan.case.name in names]
    executor = VirtualExecutor(workers, lambda asked: asked.steps * pace)
    there = replace(subject, workers=Workers("virtual", executor))
    schedule = Schedule(there, [CaseRun(plan, 1, 1e-12, extends=False) for plan in plans])
    with executor.in_its_time():
        schedule.to_the_end()
    assert [run.total.steps for run in schedule.begun] == [steps] * len(plans)
    assert executor.busy == pytest.approx(steps * pace * len(plans))
    return executor.busy / (workers * executor.now)


def test_few_of_many_workers_are_idle():
    pace, share = 5e-5, 60.0
    for workers in (1, 60):  # the next test has 16
        steps = int(workers * share / pace / 2) // 8 * 8
        assert efficiency(workers, {"two-point", "own rows"}, steps, pace) > 0.9


def test_a_case_is_no_longer_than_its_share(monkeypatch):
    """Whole cases would keep two workers busy, and so would spans that are whole looks, or nearly."""
    pace, steps = 5e-5, 2**23
    assert efficiency(16, {"two-point", "own rows"}, steps, pace) > 0.9
    monkeypatch.setattr(OnWorkers, "cut", lambda *_: (executors.Spans((), steps), None))
    assert efficiency(16, {"two-point", "own rows"}, steps, pace) < 0.5


def test_steps_ahead_of_a_look_keep_workers_busy(monkeypatch):
    pace, steps, names = 2e-2, 2**16, {"two-point", "own rows"}
    with_them = efficiency(8, names, steps, pace)
    monkeypatch.setattr(CaseRun, "ahead", lambda self: iter(()))
    assert efficiency(8, names, steps, pace) < with_them - 0.1


def test_a_case_without_steps_left_is_at_its_end_at_once():
    with open_subject(verifiers.right, 1, 60.0) as subject:
        run = CaseRun(subject.plan(0, "smoke"), 1, 1e-9)
        run.ended = True
        assert list(Schedule(replace(subject, workers=Workers("none", None)), [run]).in_turn()) == []
