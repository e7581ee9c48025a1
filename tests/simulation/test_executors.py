"""Executors: the same counts from threads, processes and a cluster, whatever dies on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
import verifiers
from audits import check_same
from interrupting import interruptible, writes_half_a_result
from sent import Failing, HeldJob, NotingJob, Sending
from test_parts import P, Q, counts_of, steps_in

from specsim import audit, compare, default_pair, rules, simulate, sweep
from specsim.auditing._checks.subjects import open_subject
from specsim.auditing._schedule import CaseRun, Schedule
from specsim.core._streams import key_of
from specsim.models import DynamicTree, Mixture, NGramModel, PromptLookup, TableModel, branching
from specsim.simulation import _executors as executors
from specsim.simulation._counting import EXAMPLES, StepTally, add_up, count_chunks
from specsim.simulation._executors import LostWorkers, Workers, count_spans, workers_of

pytestmark = pytest.mark.usefixtures("few_cases_in_module")
FEW_CASES = {"two-point", "asymmetric", "disjoint", "near-equal", "n-gram pair"}

STEPS = 4_000_017


@pytest.fixture(scope="module")
def pool(full):
    """One process or two, as a user would hand them over."""
    with ProcessPoolExecutor(2 if full else 1, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def sent(full, request):
    """The pool, or threads that are sent what it would be: they have loaded what a process loads again."""
    if full:
        yield request.getfixturevalue("pool")
    else:
        with Sending(2) as executor:
            yield executor


@pytest.fixture(scope="module")
def whole():
    return counts_of(simulate(P, Q, gamma=4, steps=STEPS, rng=3, threads=1))


# --- the same counts -------------------------------------------------------------------------------------


def test_threads_and_processes_count_the_same(whole, pool, full):
    run = simulate(P, Q, gamma=4, steps=STEPS, rng=3, threads=2)
    assert counts_of(run) == whole
    told = []

    def progress(*now):
        told.append(now)

    for executor in (pool, "processes")[: 2 if full else 1]:  # the tests of what dies start processes too
        told.clear()
        run = simulate(P, Q, gamma=4, steps=STEPS, rng=3, threads=2, executor=executor, progress=progress)
        assert counts_of(run) == whole
        assert [done for done, _ in told] == sorted({done for done, _ in told})
        assert told[-1] == (STEPS, STEPS)
    assert counts_of(simulate(P, Q, gamma=4, steps=STEPS, rng=4, threads=2, executor=pool)) != whole


def kinds(small_trace):
    rng = np.random.default_rng(1)
    target, draft = (TableModel(rng.dirichlet(np.ones(3), 3)) for _ in range(2))
    ngram = NGramModel.train([b"to be or not to be, that is the question: to be is to do" * 3], n=3)
    text = np.array(list(b"to be or not to be, that is the question: to be is to do; to do is to be. " * 8))
    return {
        "lists": (([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), {"rule": "lenience:lenience=0.5", "gamma": 3}),
        "float32": ((P.astype(np.float32), Q.astype(np.float32)), {"gamma": 3}),
        "tree": (([0.5, 0.5], [0.25, 0.75]), {"rule": "k_seq", "gamma": branching(2, 2)}),
        "tables": ((target, Mixture(draft, target, 0.25)), {"rule": "block", "gamma": 3}),
        "n-grams": ((ngram, ngram), {"rule": "deterministic_children", "gamma": DynamicTree(2, 2, 3)}),
        "lookup": ((default_pair()[1], PromptLookup(text)), {"rule": "one_hot", "gamma": 3}),
        "trace": ((small_trace,), {"gamma": 2}),
    }


@pytest.mark.parametrize("kind", ["lists", "float32", "tree", "tables", "n-grams", "lookup", "trace"])
def test_whatever_is_simulated_can_be_sent(small_trace, sent, kind):
    pair, options = kinds(small_trace)[kind]
    steps = 20_003 if kind in ("lists", "float32", "tree", "tables") else 601
    here = simulate(*pair, **options, steps=steps, rng=2, threads=1)
    there = simulate(*pair, **options, steps=steps, rng=2, executor=sent)
    assert counts_of(there) == counts_of(here)
    assert there.alpha_context == here.alpha_context


@pytest.mark.parametrize("chunks", [1, 3, 1000])
def test_spans_are_whole_chunks_of_all_steps_once(chunks):
    spans = executors.Spans([(0, 255), (400, 611)], chunk=10)
    spans.learn(10 * chunks, seconds=1.0)
    found = list(iter(spans.next, None))
    steps = [step for first, n in found for step in range(first, first + n)]
    assert steps == [*range(255), *range(400, 611)]
    assert all(n % 10 == 0 or first + n in (255, 611) for first, n in found)
    assert found[0][1] == min(10 * chunks, 110), "a quarter of what is left, at most"
    assert found[-1][1] <= 10, "short ones at the end, so that workers end together"


def test_comparisons_and_sweeps_count_elsewhere_too(sent):
    options = {"steps": "3k", "rng": 2, "threads": 1}
    there, here = (compare(P, Q, rules=["standard"], **options, executor=one) for one in (sent, None))
    assert there.entries == here.entries
    there, here = (sweep(P, Q, over={"gamma": [1, 2]}, **options, executor=one) for one in (sent, None))
    assert [counts_of(run) for run in there.runs] == [counts_of(run) for run in here.runs]


def test_spans_grow_to_a_second_and_not_at_once():
    spans = executors.Spans([(0, 10**12)], chunk=10)
    lengths = []
    for _ in range(12):
        lengths.append(spans.next()[1])
        spans.learn(lengths[-1], seconds=lengths[-1] / 10_000)
    assert lengths[:4] == [10, 40, 160, 640]
    assert lengths[-1] == 10_000
    spans.learn(lengths[-1], seconds=100.0)
    assert spans.next()[1] == 100


class Counting(Executor):
    """Runs on a pool of threads, and notes how much was under way at a time."""

    def __init__(self, threads):
        self.pool, self.now, self.most, self.lock = ThreadPoolExecutor(threads), 0, 0, threading.Lock()

    def submit(self, function, *arguments):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        future = self.pool.submit(function, *arguments)
        future.add_done_callback(self.done)
        return future

    def done(self, future):
        with self.lock:
            self.now -= 1

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.pool.shutdown(wait, cancel_futures=cancel_futures)


def test_few_tasks_are_under_way_however_many_there_are():
    executor = Counting(4)
    tasks = iter([executors.Task(time.sleep, (0.005,)) for _ in range(400)])
    assert len(list(Workers("test", executor).results(lambda: next(tasks, None)))) == 400
    assert 4 <= executor.most <= 20  # enough for all four threads
    executor.shutdown()


# --- audits ----------------------------------------------------------------------------------------------


def test_an_audit_counts_and_finds_the_same(sent):
    here, there = (
        audit("one_coin_real_q", level="smoke", rng=0, threads=2, executor=executor, cases=["asymmetric"])
        for executor in (None, sent)
    )
    assert here.verdict == "biased"
    check_same(there, here)


def test_examples_come_back_with_the_counts(sent):
    (source, tally), steps = NotingJob()(), 5 * 2**19 + 1
    chunks = list(count_chunks(source, tally, key_of(1), [(0, steps)], threads=2))
    spans = list(count_spans(Workers("test", sent), NotingJob(), key_of(1), [(0, steps)], source.chunk))
    here, there = (add_up(parts, tally, steps).examples for parts in (chunks, spans))
    assert here == there
    assert len(here) == EXAMPLES
    batch = here[1].step
    assert [one.step for one in here] == [batch * k for k in range(EXAMPLES)]  # the first of them
    assert any(one.examples[0].step for one in spans)  # though others came with them


WRONG = "verifiers:wrong_and_dies_of_wide_rows"


@pytest.fixture(scope="module")
def found_here():
    return audit(WRONG, level="smoke", rng=0, diagnose=False)


def test_cases_of_a_users_verifier_run_elsewhere_and_cost_no_worker(pool, found_here, full):
    """What kills it kills a child of the worker; and, with --all, another verifier comes after it."""
    assert {case.broken for case in found_here.cases} == {True, False}
    assert any(case.verdict == "biased" for case in found_here.cases)
    told = []
    there = audit(
        WRONG, level="smoke", rng=0, diagnose=False, executor=pool, progress=lambda *parts: told.append(parts)
    )
    check_same(there, found_here)
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert len(told) > len(there.cases)  # after each look
    if full:
        assert audit("verifiers:right", level="smoke", rng=0, executor=pool).verdict == "consistent"


@pytest.mark.slow
def test_the_first_case_that_fails_is_the_last_one_in_workers_too(pool, found_here):
    there = audit(WRONG, "smoke", rng=0, fail_fast=True, diagnose=False, executor=pool)
    number = [bool(case.findings) for case in found_here.cases].index(True) + 1
    assert number > 2
    check_same(there, replace(found_here, cases=found_here.cases[:number]))


@pytest.mark.slow
def test_an_interrupted_audit_has_the_cases_so_far_and_waits_for_no_other():
    def interrupt(done, total):
        if done > total / 100:  # a worker is at a case that takes its time
            raise KeyboardInterrupt

    started = time.monotonic()
    name = "verifiers:sleeps_over_32_tokens"
    found = audit(name, "smoke", rng=0, timeout=200.0, executor="processes", threads=2, progress=interrupt)
    assert found.interrupted
    assert any(case.interrupted and 0 < case.steps < case.planned for case in found.cases)
    assert "near-equal" not in [case.case for case in found.cases]  # its first call sleeps
    assert time.monotonic() - started < 90


def audit_elsewhere(reference, executor):
    """Count a case of a right verifier by workers that load `reference`."""
    with open_subject(verifiers.right, 1, 60.0) as subject:
        run = CaseRun(subject.plan(0, "smoke"), 1, 1e-9)
        there = replace(subject, name=reference, workers=Workers("test", executor))
        Schedule(there, [run]).to_the_end()


def test_a_verifier_that_workers_cannot_load_is_named(sent):
    with pytest.raises(ValueError, match="a function cannot go to workers; give its name"):
        audit(lambda draft_tokens, p, q, rng: None, level="smoke", rng=0, executor=sent)
    with pytest.raises(ValueError, match=r"a worker cannot load the verifier: .* has no function nobody"):
        audit_elsewhere("verifiers:nobody", sent)


# --- what dies -------------------------------------------------------------------------------------------


def begun(folder):
    """{first step of a chunk: the processes that began it}."""
    found = {}
    for path in folder.iterdir():
        first, _, process = path.name.partition(".")
        found.setdefault(int(first), set()).add(int(process))
    return found


def total(parts):
    found = {}
    for part in parts:
        for name, array in part.counts.items():
            found[name] = found.get(name, 0) + array
    return {name: array.tolist() for name, array in found.items()}


@pytest.mark.slow
def test_a_worker_killed_in_a_span_costs_only_what_was_under_way(tmp_path):
    check_that_a_killed_worker_costs_little(tmp_path / "notes", "processes", 2)


def check_that_a_killed_worker_costs_little(notes, *executor):
    """Only what was under way."""
    notes.mkdir()
    job, key, steps = HeldJob(notes), key_of(1), 7 * 2**19
    source, _ = job()
    expected = total(count_chunks(source, StepTally(2, 2), key, [(0, steps)], threads=1))
    with workers_of(*executor) as workers, ThreadPoolExecutor(1) as killer:
        killed = killer.submit(kill_one_at_work, notes)
        spans = list(count_spans(workers, job, key, [(0, steps)], source.chunk))
    assert killed.result()
    assert total(spans) == expected
    assert len({one.intervals for one in spans}) == len(spans)
    again = [first for first, processes in begun(notes).items() if len(processes) > 1]
    assert 1 <= len(again) <= 4  # those that two processes had, and the queue
    assert total(spans[1:]) != expected  # a span that is dropped would be seen


def kill_one_at_work(folder):
    """Kill a worker that holds a chunk, and release the others."""
    until(lambda: any(first > 2**19 for first in begun(folder)))
    process = next(iter(begun(folder)[max(begun(folder))]))
    assert psutil.Process(process).ppid() == os.getpid()
    os.kill(process, signal.SIGKILL)
    folder.with_name("released").touch()
    return process


def test_work_that_kills_its_worker_several_times_is_given_up(monkeypatch, full):
    assert executors.TRIES == 3
    tries = 3 if full else 2  # each starts a process
    monkeypatch.setattr(executors, "TRIES", tries)
    tasks = iter([executors.Task(os._exit, (9,))])
    with (
        pytest.raises(LostWorkers, match=f"processes: {tries} times a worker died of one task"),
        workers_of("processes", 1) as workers,
    ):
        list(workers.results(lambda: next(tasks, None)))


def test_an_executor_of_the_users_that_breaks_is_an_error_that_names_the_checkpoint(tmp_path):
    path = tmp_path / "run.part"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        assert executor.submit(os._exit, 9).exception() is not None
        with pytest.raises(
            LostWorkers,
            match=r"lost in the middle of the run \(BrokenProcessPool.*run\.part has the counts so far",
        ):
            simulate(P, Q, steps=STEPS, rng=3, executor=executor, checkpoint=path)
    assert steps_in(path) == 0
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(LostWorkers, match=r"takes no work \(RuntimeError: cannot schedule new futures"):
        simulate(P, Q, steps=STEPS, rng=3, executor=closed)


@pytest.mark.slow
def test_processes_do_not_outlive_the_one_that_started_them():
    code = (
        "import time\n"
        "from specsim.simulation._executors import Task, workers_of\n"
        "if __name__ == '__main__':\n"
        "    import os\n"
        "    with workers_of('processes', 2) as workers:\n"
        "        tasks = iter([Task(os.getpid, ()), Task(os.getpid, ())])\n"
        "        for _, _, found in workers.results(lambda: next(tasks, None)):\n"
        "            print(found, flush=True)\n"
        "        print('all', flush=True)\n"
        "        time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        workers = [psutil.Process(int(line)) for line in iter(child.stdout.readline, "all\n")]
        child.kill()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


# --- errors and interrupts -------------------------------------------------------------------------------


def test_an_exception_of_a_span_is_raised_here(pool):
    with pytest.raises(ZeroDivisionError, match="in the model"):
        simulate(Failing(), TableModel([0.5, 0.5]), gamma=2, steps=1000, rng=0, executor=pool)
    assert simulate([0.5, 0.5], [0.5, 0.5], gamma=2, steps=1000, rng=0, executor=pool).steps == 1000


def test_an_interrupt_cancels_what_is_pending_and_keeps_the_checkpoint(tmp_path, whole):
    path = tmp_path / "run.part"

    def interrupt(done, total):
        raise KeyboardInterrupt

    with Counting(1) as executor:
        options = {"gamma": 4, "steps": STEPS, "rng": 3, "executor": executor, "checkpoint": path}
        part = simulate(P, Q, **options, progress=interrupt)
        assert executor.now <= 1  # no more than was being run
        assert part.interrupted
        assert 0 < part.steps == steps_in(path) < STEPS
        run = simulate(P, Q, gamma=4, steps=STEPS, rng=3, executor=executor, checkpoint=path)
    assert counts_of(run) == whole


@pytest.mark.slow
def test_ctrl_c_at_the_command_line_ends_all_processes_and_says_where_to_go_on(tmp_path):
    path = tmp_path / "run.part"
    options = "simulate zipf --steps 1000000000000 --seed 1 --executor processes --threads 2 --checkpoint-seconds 0 --checkpoint"
    command = [sys.executable, "-m", "specsim", *options.split(), path]
    with interruptible(command, stderr=subprocess.PIPE) as run:

        def workers():
            found = psutil.Process(run.pid).children()
            return [one for one in found if "spawn_main" in " ".join(one.cmdline())]

        until(lambda: path.exists() and steps_in(path))
        imported = psutil.Process(run.pid).cpu_times().user  # more than what a worker imports
        until(lambda: len(workers()) == 2 and all(one.cpu_times().user > imported for one in workers()))
        processes = workers()
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does, to all of them
        _, complaint = run.communicate(timeout=60)
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
    assert run.returncode == 3
    assert f"{path} has the counts; the same command continues from there" in complaint
    assert "Traceback" not in complaint
    assert "leaked" not in complaint
    assert steps_in(path) > 0


def test_what_cannot_be_sent_is_refused_with_a_remedy(pool):
    class Local(TableModel):
        pass

    with pytest.raises(TypeError, match=r"cannot be pickled .*as classes of a module"):
        simulate(Local([0.5, 0.5]), TableModel([0.5, 0.5]), steps=10, rng=0, executor=pool)
    own = replace(rules.get("standard"), name="mine")
    with pytest.raises(ValueError, match=r"'mine' is not in the registry.*specsim/rules"):
        simulate(P, Q, rule=own, steps=10, rng=0, executor=pool)
    assert simulate(P, Q, rule=own, steps=10, rng=0).steps == 10


def test_a_worker_with_other_sources_is_refused(pool, monkeypatch):
    monkeypatch.setattr(executors, "sources_digest", lambda: "another")
    with pytest.raises(ValueError, match="a worker has another version of specsim"):
        simulate(P, Q, steps=10, rng=0, executor=pool)


# --- Dask ------------------------------------------------------------------------------------------------


class Cluster:
    """A scheduler and two workers, each a process of its own on loopback, as on a LAN."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        file = folder / "scheduler.json"
        self.scheduler = self.start(
            "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", file
        )
        until(file.exists)
        self.file = file
        for _ in range(2):
            self.work()

    def work(self):
        self.start(
            "distributed.cli.dask_worker", "--scheduler-file", self.file, "--nthreads", "1", "--no-nanny", "--no-dashboard"
        )  # fmt: skip

    def start(self, module, *arguments):
        command = [sys.executable, "-m", module, "--host", "127.0.0.1", *map(str, arguments)]
        with (self.folder / f"{len(self.processes)}.log").open("w") as log:
            here = Path(__file__).parent  # a worker imports what it is sent
            path = map(str, (here, here.parent / "helpers", os.environ.get("PYTHONPATH") or here))
            env = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=env)
        self.processes.append(process)
        return process

    @property
    def address(self):
        return json.loads(self.file.read_text())["address"]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def until(condition, seconds=60):
    for _ in range(seconds * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.fixture
def cluster(tmp_path):
    pytest.importorskip("distributed")
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.stop()


def test_a_cluster_runs_cases_of_a_users_verifier(cluster, found_here):
    check_same(audit(WRONG, level="smoke", rng=0, diagnose=False, executor=cluster.address), found_here)


def test_a_cluster_counts_the_same_and_runs_again_what_a_worker_had(cluster, tmp_path, whole):
    assert counts_of(simulate(P, Q, gamma=4, steps=STEPS, rng=3, executor=cluster.address)) == whole
    check_that_a_killed_worker_costs_little(tmp_path / "notes", cluster.address)


def test_the_death_of_the_scheduler_is_an_error_and_leaves_a_checkpoint(cluster, tmp_path, whole):
    path = tmp_path / "run.part"

    def kill(done, total):
        cluster.scheduler.send_signal(signal.SIGKILL)

    started = time.monotonic()
    with pytest.raises(LostWorkers, match=r"Dask \(tcp:.*run.part has the counts so far"):
        simulate(P, Q, gamma=4, steps=STEPS, rng=3, executor=cluster.address, checkpoint=path, progress=kill)
    assert time.monotonic() - started < 90
    assert 0 < steps_in(path) < STEPS
    assert counts_of(simulate(P, Q, gamma=4, steps=STEPS, rng=3, threads=1, checkpoint=path)) == whole


def test_a_process_that_is_ended_in_the_middle_of_a_result_leaves_nobody_waiting(tmp_path):
    marker = tmp_path / "begun"

    def interrupted():
        with executors._process_workers(1) as workers:
            workers.executor.submit(writes_half_a_result, marker)
            while not marker.exists():
                time.sleep(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.slow  # importing Dask takes seconds
def test_no_scheduler_is_a_plain_message(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "CONNECT", 0.2)
    with pytest.raises(LostWorkers, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        simulate(P, Q, steps=10, rng=0, executor="tcp://127.0.0.1:9")


def test_no_dask_is_a_plain_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match="'dask' needs Dask, which is missing; pip install"):
        simulate(P, Q, steps=10, rng=0, executor="dask")
