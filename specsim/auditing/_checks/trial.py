"""One case of the battery, made ready for one subject, and run: draw, count, look, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from specsim.auditing._checks.counts import Impossible
from specsim.auditing._checks.findings import NAMED, find, judge_table, rejects_early
from specsim.auditing._checks.tables import LOOKS, Table
from specsim.auditing._results import CaseResult, Finding, Measures
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath
from specsim.core._streams import Key, key_of
from specsim.drafts import Tree
from specsim.simulation._counting import Counts, Progress, Tally, add_up, no_counts, run
from specsim.simulation._executors import Job, Workers, count_spans
from specsim.simulation._sources import Batches

__all__ = ["Trial", "case_key", "judge_trial", "looks", "offset", "run_trial"]

#: Where the first pieces of a case end whose time is limited: compiled after one, its pace known after the other.
PACE_STEPS = (8, 16)


@dataclass(frozen=True)
class Trial:
    """Where the steps of a case come from, what is counted, which tables are tested.

    `positions` is the number of tokens that a step can emit, `singles` the number of its positions at which rare tokens
    are tested one by one. `workers` count spans of `job`, the same steps, in place of `threads`. `measure(counts)` gives what is not a test, `smallest(key)` the fewest rows of a call that
    break the verifier, once it is broken.
    """

    case: str
    purpose: str
    kernel: str
    vocab_size: int
    tree: Tree | None
    iid: bool
    positions: int
    source: Batches
    tally: Tally
    examples: list[Impossible]
    tables: Sequence[Table]
    singles: int
    steps: int
    threads: int
    declared_tv: float
    measure: Callable[[Counts], Measures]
    smallest: Callable[[Key], int | None] = lambda key: None
    workers: Workers | None = None
    job: Job | None = None

    @property
    def tests(self) -> int:
        """Tables, exact binomials, and one test for dependence."""
        return len(self.tables) + self.singles + 1

    def run(self, key: Key, first: int, steps: int, progress: Progress | None) -> Counts:
        """The counts of steps [first, first + steps)."""
        if self.workers is None or self.job is None:
            return run(self.source, self.tally, key, first, steps, threads=self.threads, progress=progress)
        spans = count_spans(self.workers, self.job, key, [(first, first + steps)], self.source.chunk)
        return add_up(spans, self.tally, steps, progress)


def case_key(root: int, case: str) -> Key:
    """The random numbers of one case."""
    return key_of(root, (crc32(b"audit"), crc32(case.encode())))


def looks(steps: int) -> list[int]:
    """After how many of `steps` a trial is looked at."""
    return sorted({max(8, int(steps * share)) for share in LOOKS})


def run_trial(
    trial: Trial,
    key: Key,
    level: float,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
    failure: Exception | None = None,
) -> CaseResult:
    """Run `trial`, each test at false-alarm probability `level`, for at most about `seconds`.

    With a limit a few steps are drawn first to learn the pace; the very first, which may compile, are not timed. It is
    looked at eight times, and ends early only to reject. After Ctrl-C the steps up to the last look count, and the
    result says that it was interrupted. With a `failure` known beforehand nothing is run.
    """
    counts, done, interrupted = no_counts(trial.tally), 0, False
    known = failure is not None
    ends = [*(PACE_STEPS if seconds else ()), *looks(trial.steps)]
    started = time.perf_counter()
    try:
        for end in () if known else ends:
            until = min(trial.steps, _affordable(end, done, time.perf_counter() - started, seconds))
            if until <= done:
                continue
            part = trial.run(key, done, until - done, offset(progress, done, trial.steps))
            counts, done = {name: counts[name] + part[name] for name in counts}, until
            if seconds and done == PACE_STEPS[0]:
                started = time.perf_counter()
            if end not in PACE_STEPS and done < trial.steps and rejects_early(trial.tables, counts, level):
                break
    except (BrokenVerifier, NotADraftPath) as error:
        failure = error
    except KeyboardInterrupt:
        interrupted = True
    if failure is None:
        found = judge_trial(trial, counts, done, level, time.perf_counter() - started)
        return replace(found, interrupted=interrupted)
    return replace(
        judge_trial(trial, counts, 0, level, time.perf_counter() - started),
        steps=done,
        findings=(_finding(failure, None if known else trial.smallest(key)),),
        broken=isinstance(failure, BrokenVerifier),
        measures=trial.measure(counts) if done else None,
    )


def judge_trial(trial: Trial, counts: Counts, steps: int, level: float, seconds: float) -> CaseResult:
    """What `counts` of the first `steps` say of `trial`, each test at false-alarm probability `level`."""
    results = [judge_table(table, counts, level) for table in trial.tables] if steps else []
    findings = find(trial.tables, results, counts, trial.examples, level) if steps else []
    return CaseResult(
        case=trial.case,
        purpose=trial.purpose,
        kernel=trial.kernel,
        vocab_size=trial.vocab_size,
        tree=trial.tree,
        iid=trial.iid,
        positions=trial.positions,
        steps=steps,
        planned=trial.steps,
        findings=tuple(findings),
        broken=False,
        interrupted=False,
        tables=tuple(results),
        counts=counts,
        measures=trial.measure(counts) if steps else None,
        declared_tv=trial.declared_tv,
        examples=tuple(sorted(trial.examples)[:NAMED]),
        seconds=seconds,
    )


def offset(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The callback of a part, given what came before it."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def _affordable(until: int, done: int, elapsed: float, seconds: float | None) -> int:
    """`until`, or as many steps as fit into `seconds` at the pace since the first ones; a multiple of 8."""
    first = PACE_STEPS[0]
    if seconds is None or done <= first:
        return until
    return min(until, first + int((done - first) * seconds / elapsed) // 8 * 8)


def _finding(failure: Exception, rows: int | None) -> Finding:
    if isinstance(failure, NotADraftPath):
        return Finding("path", str(failure))
    shown = "" if rows is None else f"; a call of {rows} row{'s' if rows > 1 else ''} shows it"
    return Finding("contract", f"{failure}{shown}")
