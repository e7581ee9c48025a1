"""Audits of built-in rules in parts: cases that are counted here and there, and judged together.

A part (`specsim.parts`) of an audit counts cases where that of a simulation counts steps, and has the counts of all cases
side by side, zero for those that are not its own. Examples of impossible tokens are kept as numbers too.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import Any

import numpy as np

from specsim import rules
from specsim.auditing.proof import prove_on_generated_models
from specsim.auditing.results import BUDGET, Audit, CaseResult
from specsim.auditing.runner import check_limits
from specsim.auditing.subjects import RuleSubject
from specsim.auditing.tallies import Impossible
from specsim.auditing.trials import Trial, case_key, judge_trial, offset, run_trial
from specsim.engine import Counts, Progress, no_counts
from specsim.executors import workers_of
from specsim.jit import available_threads, sources_digest
from specsim.parts import Checkpoint, Part, check_shard, missing
from specsim.provenance import Provenance
from specsim.rules import Rule
from specsim.streams import RandomSource, root_of

__all__ = ["audit_shard", "merged_audit"]

#: Impossible tokens kept of a case: as many as a finding names.
EXAMPLES = 3


def audit_shard(
    rule: str | Rule,
    path: str | os.PathLike[str],
    shard: tuple[int, int],
    level: str = "quick",
    rng: RandomSource = None,
    *,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Count the cases i, i + n, … of an audit of the built-in `rule`, shard (i, n), into the file `path`; their names.

    `merged_audit` judges all shards together, as `specsim.audit` would have. If the file is there already, what it lacks is
    run. Raises ValueError for a rule that is not in the registry, an unknown level, a shard that does not exist, no `rng`,
    which all shards must share, and a file that is damaged or of another audit.
    """
    check_limits(level, None, 1.0)
    if rng is None:
        raise ValueError("rng (--seed): missing; all shards of an audit need the same seed")
    root, (i, n) = root_of(rng), check_shard(shard)
    with workers_of(executor, threads) as workers:
        subject = RuleSubject(rules.get(rule), available_threads(threads), workers)
        trials = [subject.trial(index, level) for index in range(len(subject.cases))]
        mine = trials[i::n]
        if n > len(trials):
            raise ValueError(f"shard: {len(trials)} cases cannot be cut into {n} parts")
        run = {
            "audit of": rules.registered(rule),
            "level": level,
            "cases": len(trials),
            "seed": root,
            "specsim": Provenance.record(root, 1, 0.0).specsim,
            "code": sources_digest(),
        }
        part = Part(run, {"seconds": 0.0, "threads": subject.threads}, _no_counts(trials)).or_from(
            path, (0, len(trials))
        )
        if any(not missing(part.intervals, k, k + 1) and k % n != i for k in range(len(trials))):
            raise ValueError(
                f"{path}: has cases that are not of this shard; give every shard a file of its own"
            )
        alarm, done = BUDGET / sum(trial.tests for trial in trials), 0
        total = sum(trial.steps for trial in mine)
        with Checkpoint(part, path) as kept:
            for index, trial in list(enumerate(trials))[i::n]:
                if missing(part.intervals, index, index + 1):
                    key = case_key(root, trial.case)
                    found = run_trial(trial, key, alarm, progress=offset(progress, done, total))
                    if found.interrupted:
                        raise KeyboardInterrupt
                    kept.add(index, 1, _no_counts(trials) | _case_counts(index, trial, found))
                done += trial.steps
    return [trial.case for trial in mine]


def merged_audit(part: Part) -> Audit:
    """The audit whose parts were added up to `part`. Raises ValueError for cases that are missing, naming them."""
    run = part.run
    subject = RuleSubject(rules.get(run["audit of"]), part.about["threads"])
    trials = [subject.trial(index, run["level"]) for index in range(run["cases"])]
    lost = [
        trials[k].case for first, end in missing(part.intervals, 0, len(trials)) for k in range(first, end)
    ]
    if lost:
        raise ValueError(f"of {len(trials)} cases {len(lost)} are missing: {', '.join(lost)}")
    tests = sum(trial.tests for trial in trials)
    return Audit(
        verifier=subject.name,
        level=run["level"],
        cases=tuple(_judged(k, trial, part.counts, BUDGET / tests) for k, trial in enumerate(trials)),
        proof=prove_on_generated_models(subject.rule),
        budget=BUDGET,
        tests=tests,
        interrupted=False,
        provenance=Provenance.record(run["seed"], subject.threads, part.about["seconds"]),
    )


def _no_counts(trials: list[Trial]) -> Counts:
    """Zeros for all that is kept of every case."""
    zeros: Counts = {}
    for index, trial in enumerate(trials):
        zeros |= {f"{index} {name}": array for name, array in no_counts(trial.tally).items()}
        zeros[f"{index}: steps, ms, examples"] = np.zeros(3, dtype=np.int64)
        zeros[f"{index}: examples"] = np.zeros((EXAMPLES, 3), dtype=np.int64)
    return zeros


def _case_counts(index: int, trial: Trial, found: CaseResult) -> Counts:
    examples: list[Any] = sorted(trial.examples)[:EXAMPLES]
    kept = np.zeros((EXAMPLES, 3), dtype=np.int64)
    for row, one in zip(kept, examples, strict=False):
        row[:] = one.step, one.position, one.token
    return {f"{index} {name}": array for name, array in found.counts.items()} | {
        f"{index}: steps, ms, examples": np.array([found.steps, int(1000 * found.seconds), len(examples)]),
        f"{index}: examples": kept,
    }


def _judged(index: int, trial: Trial, counts: Counts, alarm: float) -> CaseResult:
    steps, milliseconds, known = counts[f"{index}: steps, ms, examples"].tolist()
    trial.examples.extend(Impossible(*row) for row in counts[f"{index}: examples"][:known].tolist())
    own = {name: counts[f"{index} {name}"] for name in no_counts(trial.tally)}
    return judge_trial(trial, own, steps, alarm, milliseconds / 1000)
