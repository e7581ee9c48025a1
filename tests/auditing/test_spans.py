"""Workers count spans of a verifier's cases: the same calls and counts as one process, and few idle workers."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
import verifiers
from audits import check_same

from benchmarks._virtual import VirtualExecutor
from specsim import audit
from specsim.auditing import _side_by_side
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.subjects import open_subject
from specsim.auditing._runner import CaseRun
from specsim.auditing._schedule import Schedule
from specsim.auditing._side_by_side import OnWorkers
from specsim.simulation import _executors as executors
from specsim.simulation._executors import Workers

#: Batches of a chunk: one, many in several chunks and in one, a round of calls of changing shape, rows that differ.
FEW_CASES = {"two-point", "irregular", "Zipf 1 000", "shapes, few ids", "own rows"}


@pytest.fixture(scope="module", autouse=True)
def _few_cases(few_cases_in_module):
    level = replace(LEVELS["smoke"], verifier=3 * 2**14, verifier_bytes=2**28)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEVELS, "smoke", level)
        patch.setattr(executors, "SPAN_SECONDS", 0.02)  # so that there are many
        yield


def audited(name, **options):
    return audit(name, "smoke", rng=3, diagnose=False, **options)


def elsewhere(name, workers=2, **options):
    with ThreadPoolExecutor(workers) as pool:
        return audited(name, executor=pool, **options)


@pytest.fixture
def tasks(monkeypatch):
    """The spans that were counted, as (case, first step, steps)."""
    found = []

    def noted(subject, asked, *more, counting=_side_by_side.try_span):
        found.append((asked.case, asked.first, asked.steps))
        return counting(subject, asked, *more)

    monkeypatch.setattr(_side_by_side, "try_span", noted)
    return found


def test_workers_make_the_calls_of_one_process(tmp_path, monkeypatch, tasks):
    """The same calls with the same generators; those of a span one after the other, in one process."""
    calls = {}
    for kind, audit_it in (("here", audited), ("there", elsewhere)):
        folder = tmp_path / kind
        folder.mkdir()
        monkeypatch.setenv("NOTES", str(folder))
        calls[kind] = (
            audit_it("verifiers:notes_its_calls"),
            {path.name: path.read_text().splitlines() for path in folder.iterdir()},
        )
    (here, noted), (there, noted_there) = calls["here"], calls["there"]
    check_same(there, here)
    (whole,) = noted.values()
    parts = list(noted_there.values())
    assert len(parts) == 3  # the parent's process checks the promises
    assert Counter(whole) == Counter(call for part in parts for call in part)
    follows = set(pairwise(whole))
    broken = sum(pair not in follows for part in parts for pair in pairwise(part))
    assert broken <= len(tasks)  # only where a span begins
    spans = Counter(case for case, *_ in tasks)
    assert spans["Zipf 1 000"] > 20
    assert all(spans[name] > 3 for name in FEW_CASES)


@pytest.mark.parametrize("name", ["lenient", "breaks_at_some_steps"])
def test_findings_are_those_of_one_process(name):
    """Also where spans beyond the look at which a case ends were counted ahead, or broke the contract first."""
    here = audited(f"verifiers:{name}")
    assert any(case.findings and 0 < case.steps < case.planned for case in here.cases)
    assert any(case.broken for case in here.cases) == (name != "lenient")
    check_same(elsewhere(f"verifiers:{name}"), here)


def test_texts_of_a_decoder_are_those_of_one_process(tasks, smaller_audits):
    patch = pytest.MonkeyPatch()
    patch.setitem(LEVELS, "smoke", replace(LEVELS["smoke"], decoder=2**6))
    try:
        check_same(elsewhere("verifiers:samples"), audited("verifiers:samples"))
    finally:
        patch.undo()
    assert max(Counter(case for case, *_ in tasks).values()) > 1


def test_workers_may_end_before_a_time_limit():
    found = elsewhere("verifiers:right", seconds=600.0)
    assert all(case.steps >= case.planned for case in found.cases)
    assert not found.out_of_time


@pytest.mark.slow
def test_a_time_limit_is_that_of_all_workers(tasks):
    for _ in range(2):  # the first one compiles, in its limit
        found = elsewhere("verifiers:naps", seconds=6.0, wanted_tv=0.12)
    assert sum(case.seconds for case in found.cases) < 8.0
    assert found.provenance.seconds < 30.0
    assert found.out_of_time
    assert found.powerful
    assert found.powerful + len(found.out_of_time) == found.planned


# --- scheduling ------------------------------------------------------------------------------------------


def efficiency(workers, names, steps, pace, split=None):
    """The share of the workers' time that is work, of cases of so many steps."""
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
    for workers in (1, 16, 200):
        steps = int(workers * share / pace / 2) // 8 * 8
        assert efficiency(workers, {"two-point", "own rows"}, steps, pace) > 0.9


def test_a_case_is_no_longer_than_its_share(monkeypatch):
    """Whole cases would keep two workers busy, and so would spans that are whole looks, or nearly."""
    pace, steps = 5e-5, 2**23
    assert efficiency(16, {"two-point", "own rows"}, steps, pace) > 0.9
    monkeypatch.setattr(OnWorkers, "cut", lambda *_: (executors.Spans((), steps), None))
    assert efficiency(16, {"two-point", "own rows"}, steps, pace) < 0.5


def test_steps_ahead_of_a_look_keep_workers_busy(monkeypatch):
    pace, steps, names = 5e-3, 2**18, {"two-point", "own rows"}
    with_them = efficiency(8, names, steps, pace)
    monkeypatch.setattr(CaseRun, "ahead", lambda self: iter(()))
    assert efficiency(8, names, steps, pace) < with_them - 0.1


def test_a_case_without_steps_left_is_at_its_end_at_once():
    with open_subject(verifiers.right, 1, 60.0) as subject:
        run = CaseRun(subject.plan(0, "smoke"), 1, 1e-9)
        run.ended = True
        there = replace(subject, workers=Workers("none", None))
        assert list(Schedule(there, [run]).in_turn()) == []
