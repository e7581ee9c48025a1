"""Audits in parts: cases that are counted here and there, and judged together.

A part (`specsim.simulation._checkpoints`) of an audit counts cases where that of a simulation counts steps, and has the counts of all cases
side by side, zero for those that are not its own. What else a result needs is kept as numbers too: examples of impossible
tokens, and in words why somebody's verifier could not be counted to the end. What it promises is checked as a last case.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Executor
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from specsim import rules
from specsim.auditing._checks.contract_checks import PROMISES, promises_result
from specsim.auditing._checks.counts import Impossible
from specsim.auditing._checks.findings import NAMED
from specsim.auditing._checks.proof import prove_on_generated_models
from specsim.auditing._checks.subjects import RuleSubject, Subject, VerifierSubject
from specsim.auditing._checks.trial import Trial, case_key, judge_trial, offset
from specsim.auditing._execution.execution import Place, placed, planned_subject
from specsim.auditing._results import BUDGET, Audit, CaseResult, Finding
from specsim.auditing._runner import CaseJob, case_results, check_limits, check_promises_at
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.contract import Declared
from specsim.auditing._verifier.loading import digest_of
from specsim.core._kernels import available_threads
from specsim.core._provenance import Provenance, this_code
from specsim.core._streams import RandomSource, root_of
from specsim.core.distributions import Ints
from specsim.rules import Rule
from specsim.simulation._checkpoints import Checkpoint, Part, check_shard, missing
from specsim.simulation._counting import Counts, Progress, no_counts
from specsim.simulation._executors import workers_of

__all__ = ["audit_shard", "merged_audit"]

#: Bytes kept of what a case failed of before it could be judged.
FAILURE_BYTES = 4096


def audit_shard(
    verifier: str | Rule,
    path: str | os.PathLike[str],
    shard: tuple[int, int],
    level: str = "quick",
    rng: RandomSource = None,
    *,
    seconds: float | None = None,
    timeout: float = TIMEOUT,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Count the cases i, i + n, … of an audit of `verifier`, shard (i, n), into the file `path`; their names.

    `verifier` is a rule of the registry or the name of a function, `seconds` the time for this shard, all else as in
    `specsim.audit`. `merged_audit` judges all shards together, as that would have, but for the diagnosis. If the file is
    there already, what it lacks is run. Raises ValueError for a rule that is not in the registry, a function that is not
    given by name, an unknown level, a shard that does not exist, no `rng`, which all shards must share, and a file that is
    damaged or of another audit.
    """
    check_limits(level, seconds, timeout)
    if rng is None:
        raise ValueError("rng (--seed): missing; all shards of an audit need the same seed")
    if not isinstance(verifier, str | Rule):
        raise ValueError("verifier: all shards must find it, so give its name, package.module:function")
    root, (i, n) = root_of(rng), check_shard(shard)
    threads = available_threads(threads)
    with (
        workers_of(executor, threads) as workers,
        placed(verifier, threads, timeout, workers) as place,
    ):
        trials = _trials(place.subject, level)
        names = _names(place.subject, trials)
        mine = {index: trials[index] for index in range(i, len(trials), n)}
        if n > len(trials):
            raise ValueError(f"shard: {len(trials)} cases cannot be cut into {n} parts")
        # the promises come with the first shard
        of_this = {*mine, *(range(len(trials), len(names)) if i == 0 else ())}
        part = _begun(place, trials, level, root, path)
        todo = {k for first, end in missing(part.intervals, 0, len(names)) for k in range(first, end)}
        if len(todo | of_this) < len(names):
            raise ValueError(
                f"{path}: has cases that are not of this shard; give every shard a file of its own"
            )
        alarm = BUDGET / sum(trial.tests for trial in trials)
        share = None if seconds is None else seconds / len(mine)
        left = {k: trial for k, trial in mine.items() if k in todo}
        jobs = [CaseJob(k, level, case_key(root, trial.case), alarm, share) for k, trial in left.items()]
        total, to_come = (sum(trial.steps for trial in some.values()) for some in (mine, left))
        told = offset(progress, total - to_come, total)
        with Checkpoint(part, path) as kept:
            for k in (of_this - {*mine}) & todo:
                promises = check_promises_at(place, case_key(root, PROMISES))
                kept.add(k, 1, _no_counts(trials) | _case_counts(k, promises))
            for k, found in case_results(place, left, jobs, told):
                if found.interrupted:
                    raise KeyboardInterrupt
                kept.add(k, 1, _no_counts(trials) | _case_counts(k, found))
    return [trial.case for trial in mine.values()]


def merged_audit(part: Part) -> Audit:
    """The audit whose parts were added up to `part`. Raises ValueError for cases that are missing, naming them."""
    run = part.run
    promise = None if run["declared"] is None else Declared(**run["declared"])
    subject = planned_subject(run["audit of"], promise, part.about["threads"])
    trials = _trials(subject, run["level"])
    names = _names(subject, trials)
    lost = [names[k] for first, end in missing(part.intervals, 0, len(names)) for k in range(first, end)]
    if lost:
        raise ValueError(f"of {len(names)} cases {len(lost)} are missing: {', '.join(lost)}")
    tests = sum(trial.tests for trial in trials)
    cases = [_judged(k, trial, part.counts, BUDGET / tests) for k, trial in enumerate(trials)]
    if isinstance(subject, VerifierSubject):
        failure = _unpacked(part.counts[f"{len(trials)}: failure"]) or {"findings": [], "broken": False}
        cases.insert(0, promises_result(_findings(failure), failure["broken"]))
    return Audit(
        verifier=subject.name,
        level=run["level"],
        cases=tuple(cases),
        proof=prove_on_generated_models(subject.rule) if isinstance(subject, RuleSubject) else None,
        budget=BUDGET,
        tests=tests,
        interrupted=False,
        provenance=Provenance.record(run["seed"], subject.threads, part.about["seconds"]),
    )


def _begun(place: Place, trials: list[Trial], level: str, root: int, path: str | os.PathLike[str]) -> Part:
    """What the file `path` has of this audit, nothing yet if it is not there."""
    subject = place.subject
    name, promise, code = subject.name, None, None
    if isinstance(subject, RuleSubject):
        name = rules.registered_spec(subject.rule)
    else:
        promise, code = asdict(subject.declared), place.run(_digest, subject.name)
    run = {
        "audit of": name,
        "declared": promise,
        "verifier's code": code,
        "level": level,
        "cases": len(trials),
        "seed": root,
        **this_code(),
    }
    part = Part(run, {"seconds": 0.0, "threads": subject.threads}, _no_counts(trials))
    return part.or_from(path, (0, len(_names(subject, trials))))


def _digest(subject: Subject, name: str, progress: Progress | None = None) -> str | None:
    return digest_of(name)


def _trials(subject: Subject, level: str) -> list[Trial]:
    return [subject.trial(index, level) for index in range(len(subject.cases))]


def _names(subject: Subject, trials: list[Trial]) -> list[str]:
    """What is counted, by number: the cases, and the promises of somebody's verifier."""
    return [*(trial.case for trial in trials), *([PROMISES] if isinstance(subject, VerifierSubject) else [])]


# --- results as counts -----------------------------------------------------------------------------------


def _no_counts(trials: list[Trial]) -> Counts:
    """Zeros for all that is kept of every case, and of the promises."""
    zeros: Counts = {}
    for index, trial in enumerate(trials):
        zeros |= {f"{index} {name}": array for name, array in no_counts(trial.tally).items()}
        zeros[f"{index}: steps, ms, examples"] = np.zeros(3, dtype=np.int64)
        zeros[f"{index}: examples"] = np.zeros((NAMED, 3), dtype=np.int64)
        zeros[f"{index}: failure"] = _packed(None)
    zeros[f"{len(trials)}: failure"] = _packed(None)
    return zeros


def _case_counts(index: int, found: CaseResult) -> Counts:
    told = {"findings": [asdict(one) for one in found.findings], "broken": found.broken}
    # what was found in tables is found again where they are judged
    failure = _packed(told if found.findings and not found.tables else None)
    if found.case == PROMISES:
        return {f"{index}: failure": failure}
    examples = np.zeros((NAMED, 3), dtype=np.int64)
    for row, one in zip(examples, found.examples, strict=False):
        row[:] = one.step, one.position, one.token
    return {f"{index} {name}": array for name, array in found.counts.items()} | {
        f"{index}: steps, ms, examples": np.array(
            [found.steps, int(1000 * found.seconds), len(found.examples)]
        ),
        f"{index}: examples": examples,
        f"{index}: failure": failure,
    }


def _judged(index: int, trial: Trial, counts: Counts, alarm: float) -> CaseResult:
    steps, milliseconds, known = counts[f"{index}: steps, ms, examples"].tolist()
    trial.examples.extend(Impossible(*row) for row in counts[f"{index}: examples"][:known].tolist())
    own = {name: counts[f"{index} {name}"] for name in no_counts(trial.tally)}
    failure = _unpacked(counts[f"{index}: failure"])
    if failure is None:
        return judge_trial(trial, own, steps, alarm, milliseconds / 1000)
    return replace(
        judge_trial(trial, own, 0, alarm, milliseconds / 1000),
        steps=steps,
        findings=tuple(_findings(failure)),
        broken=failure["broken"],
        measures=trial.measure(own) if steps else None,
    )


def _findings(failure: dict[str, Any]) -> list[Finding]:
    return [Finding(**one) for one in failure["findings"]]


def _packed(failure: dict[str, Any] | None) -> Ints:
    """A failure as JSON in integers, zeros for none; the longest text is cut until it fits."""
    told = b"" if failure is None else json.dumps(failure, ensure_ascii=False).encode()
    while failure is not None and len(told) > FAILURE_BYTES:
        longest = max(failure["findings"], key=lambda one: len(one["text"]))
        longest["text"] = longest["text"][: len(longest["text"]) * 3 // 4] + " …"
        told = json.dumps(failure, ensure_ascii=False).encode()
    return np.frombuffer(told.ljust(FAILURE_BYTES, b"\0"), dtype="<i8").astype(np.int64)


def _unpacked(numbers: Ints) -> dict[str, Any] | None:
    told = numbers.astype("<i8").tobytes().rstrip(b"\0")
    return json.loads(told) if told else None
