"""Audits in shards: cases that are counted separately, and judged together.

A part (`specsim.simulation._checkpoints`) of an audit holds the counts of whole cases. The promises of a
user's verifier are one more case."""

import os
import shlex
from concurrent.futures import Executor
from dataclasses import asdict, replace

from specsim.adapters._contract import Declared, Verifier
from specsim.auditing._afterwards import diagnosed, is_installed
from specsim.auditing._checks import subjects
from specsim.auditing._checks.contract_checks import PROMISES, check_promises, promises_result
from specsim.auditing._checks.findings import judge_case
from specsim.auditing._results.audit import BUDGET, Diagnosis
from specsim.auditing._runner import Audit, check_limits, result_of
from specsim.auditing._schedule import CaseRun, Schedule
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.origin import Origin
from specsim.core._kernels import available_threads
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance, this_code
from specsim.core._streams import RandomSource, root_of
from specsim.rules import Rule
from specsim.simulation._checkpoints import Checkpoint, Part, check_shard
from specsim.simulation._counting import offset
from specsim.simulation._executors import workers_of


@shows_progress("audit")
def audit_shard(
    verifier: str | Rule,
    out: str | os.PathLike[str],
    shard: tuple[int, int],
    level: str = "quick",
    *,
    rng: RandomSource = None,
    seconds: float | None = None,
    timeout: float = TIMEOUT,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> list[str]:
    """Count one shard of the cases of an audit into a file.

    `specsim.merge` judges and diagnoses all shards together, with the result of `specsim.audit`.

    Parameters
    ----------
    verifier : str or Rule
        A rule of the registry, or "package.module:function".
    out : path
        The file to write. If it exists, only its missing cases are counted.
    shard : tuple of int
        (i, n): count the cases i, i + n, …
    level, rng, timeout, threads, executor, progress
        As in `specsim.audit`; all shards need the same `level` and `rng`.
    seconds : float, optional
        Time limit of this shard, divided equally among its cases.

    Returns
    -------
    list of str
        The names of the cases.

    Raises
    ------
    ValueError
        If the rule is not in the registry, the verifier is not given by name, the level or shard does not
        exist, `rng` is None, or the file is damaged or of another audit.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     audit_shard("standard", f"{folder}/4", (4, 12), level="smoke", rng=1)
    ['identical']
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
        subjects.open_subject(verifier, threads, timeout, workers) as subject,
    ):
        plans = subject.plans(level)
        mine = plans[i::n]
        if n > len(plans):
            raise ValueError(f"shard: {len(plans)} cases cannot make {n} parts; use {len(plans)} at most")
        promise, code = None, None
        if not isinstance(subject, subjects.RuleSubject):
            promise, code = asdict(subject.declared), subject.origin.digest or None
        which = {
            "audit of": subject.reference,
            "declared": promise,
            "verifier's code": code,
            "level": level,
            "cases": len(subject.cases),
            "seed": root,
        }
        kept = Checkpoint(out, which | this_code(), {"threads": subject.threads})
        names = [plan.case.name for plan in mine]
        # the first shard checks the promises
        promises = [PROMISES] if i == 0 and isinstance(subject, subjects.VerifierSubject) else []
        if not {*kept.part.found} <= {*names, *promises}:
            raise ValueError(f"{out}: has cases of another shard; give every shard a file of its own")
        alarm = BUDGET / sum(plan.tests for plan in plans)
        share = None if seconds is None else seconds / len(mine)
        left = [plan for plan in mine if plan.case.name not in kept.part.found]
        total, to_come = (sum(plan.steps for plan in some) for some in (mine, left))
        with kept:
            if isinstance(subject, subjects.VerifierSubject) and PROMISES in {*promises} - {*kept.part.found}:
                kept.keep(PROMISES, check_promises(subject.callee, root, subject.timeout))
            report = offset(told(progress), total - to_come, total)
            runs = [CaseRun(plan, root, alarm, seconds=share, timeout=subject.timeout) for plan in left]
            for run in Schedule(subject, runs, report).in_turn():
                kept.keep(run.plan.case.name, run.total)
    return names


def merge_audit(part: Part, diagnose: bool | str | Verifier = True) -> Audit:
    """Judge the audit of all parts, and `diagnose` what failed. Raises ValueError for missing cases."""
    run, found = part.run, part.found
    promise = None if run["declared"] is None else Declared(**run["declared"])
    subject = subjects.planned_subject(run["audit of"], promise, part.about["threads"])
    plans = subject.plans(run["level"])
    promises = [PROMISES] if isinstance(subject, subjects.VerifierSubject) else []
    names = [*(plan.case.name for plan in plans), *promises]
    if lost := [name for name in names if name not in found]:
        raise ValueError(
            f"{len(lost)} of {len(names)} cases are missing: {', '.join(lost)}; give the parts that have them"
        )
    tests = sum(plan.tests for plan in plans)
    cases = [judge_case(plan, found[plan.case.name], BUDGET / tests) for plan in plans]
    merged = result_of(
        subject,
        plans,
        run["level"],
        (*(promises_result(found[name]) for name in promises), *cases),
        interrupted=False,
        provenance=Provenance.record(run["seed"], part.about["threads"], part.seconds),
        origin=Origin(digest=run["verifier's code"]) if run["verifier's code"] else None,
    )
    if not diagnose or promise is None or not any(case.findings for case in merged.cases):
        return merged
    if diagnose is True and not is_installed(subject.name):
        why = f"specsim merge imports only what you name: --diagnose {shlex.quote(subject.name)}"
        return replace(merged, diagnosis=Diagnosis(reason=f"It was not made: {why}."))
    verifier = subject.name if diagnose is True else diagnose
    return replace(merged, diagnosis=diagnosed(merged, verifier, whole=True))
