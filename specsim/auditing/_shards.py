"""Audits that are over, saved or in shards: cases that are counted separately, judged and diagnosed together.

A part (`specsim.simulation._checkpoints`) of an audit holds the counts of whole cases. The promises of a
user's verifier are one more case. A diagnosis draws more steps of the verifier, so it must be here, and the
one that was audited."""

import os
import shlex
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict, replace

from specsim import adapters
from specsim.adapters._contract import Declared, Verifier
from specsim.auditing._checks import subjects
from specsim.auditing._checks.contract_checks import PROMISES, check_promises, promises_result
from specsim.auditing._checks.findings import judge_case
from specsim.auditing._diagnosis.diagnose import diagnosis_of
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.audit import BUDGET, Diagnosis
from specsim.auditing._runner import check_limits, result_of
from specsim.auditing._schedule import CaseRun, Schedule
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.origin import Origin, digest_of, source_of
from specsim.core._kernels import available_threads
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance, this_code
from specsim.core._streams import RandomSource, root_of
from specsim.core._types import checked
from specsim.rules import Rule, names
from specsim.simulation._checkpoints import Checkpoint, Part, check_shard
from specsim.simulation._counting import offset
from specsim.simulation._executors import workers_of


@checked
def diagnose(result: Audit, verifier: str | Verifier | None = None) -> Audit:
    """Diagnose the failures of an audit that is over, without a time limit.

    Parameters
    ----------
    result : Audit
        Such as `specsim.load` reads it.
    verifier : str or callable, optional
        What was audited, as in `specsim.audit`. By default an engine that `specsim list engines` lists: a
        result may be somebody else's, and nothing that it alone names is imported.

    Returns
    -------
    Audit
        The result with its diagnosis, which says why if none was made.

    Raises
    ------
    ValueError
        Without `verifier`, where it is no such engine, and for one of another name.

    Examples
    --------
    >>> import specsim
    >>> diagnose(specsim.audit("standard", "smoke", rng=1)).diagnosis is None
    True
    """
    name = result.verifier
    if not any(case.findings for case in result.cases) or name.partition(":")[0] in names():
        return result
    if verifier is None:
        if not is_installed(name):
            raise ValueError(f"verifier: not given, and it would be imported; name {name!r} if you trust it")
        verifier = name
    if isinstance(verifier, str) and verifier != name:
        raise ValueError(f"verifier: {verifier!r} is not the audited one; name {name!r}")
    return replace(result, diagnosis=diagnosed(result, verifier))


def is_installed(name: str) -> bool:
    """Whether specsim adapts the engine `name`, and its code is an installed package, not a folder in it."""
    return adapters.name_of(name) in adapters.ENGINES and "source=" not in name


def diagnosed(result: Audit, verifier: str | Verifier, *, whole: bool = False) -> Diagnosis | None:
    """The diagnosis of a verifier's audit, or why it has none. A file is compared before it is imported."""
    audited = result.origin and result.origin.digest
    another = Diagnosis(reason="It was not made: the verifier's file is not the one that was audited.")
    if isinstance(verifier, str) and audited and not adapters.is_engine(verifier):
        here = digest_of(source_of(verifier.partition(":")[0]))
        if here is not None and here != audited:
            return another
    with ExitStack() as stack:
        try:
            subject = stack.enter_context(subjects.open_subject(verifier, 1, TIMEOUT))
        except (ValueError, TypeError) as error:
            return Diagnosis(reason=f"It was not made: the verifier cannot be opened here: {error}.")
        if subject.origin is None or (subject.origin.digest or None) != audited:
            return another
        had, has = {case.case for case in result.cases} - {PROMISES}, {case.name for case in subject.cases}
        if not (had == has if whole else had <= has):
            return Diagnosis(reason="It was not made: the verifier declares something else here.")
        return diagnosis_of(subject, result)


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
            runs = [CaseRun(plan, root, alarm, seconds=share, timeout=subject.timeout) for plan in left]
            for run in Schedule(subject, runs, offset(told(progress), total - to_come, total)).in_turn():
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
