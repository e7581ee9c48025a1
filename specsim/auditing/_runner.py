"""Run the battery: plan every case, set the error budget, count steps, test the counts, judge.

Everything runs here but the verifier, which may be in a child process (`_verifier/child.py`)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from specsim.adapters._contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.auditing._cases.battery import LEVELS, Case, case_key
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks import subjects
from specsim.auditing._checks.contract_checks import check_promises, promises_result
from specsim.auditing._checks.tables import Plan, interim_looks
from specsim.auditing._diagnosis.diagnose import diagnosis_of
from specsim.auditing._diagnosis.verifiers import SEGMENTS
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.audit import BUDGET, WANTED_TV, CaseResult, ProofSummary
from specsim.auditing._schedule import CaseRun, Schedule
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.core._kernels import available_threads
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import Key, RandomSource, root_of
from specsim.core._types import check_between, check_choice, check_seconds, checked
from specsim.models import TableModel, Tree
from specsim.rules import Rule
from specsim.simulation._executors import workers_of
from specsim.simulation._rows import Rows
from specsim.simulation._sources import Batch
from specsim.theory._enumeration import prove

#: Share of a time limit for the tests; the rest is for the diagnosis of what they find.
TESTING = 0.8
#: Share of a device's free memory that the rows of a call may take; verifiers make copies of them.
FOR_ROWS = 0.25
#: The models of a proof.
MODELS = 30
#: (V, parents): chains, and for rules that take them trees.
CHAINS = ((2, (0, 1, 2, 3)), (3, (0, 1, 2)), (4, (0, 1)))
TREES = ((2, (0, 0, 1, 1, 2)), (3, (0, 0, 1, 2)), (3, (0, 0, 0)))


@shows_progress("audit")
def audit(
    verifier: str | Rule | Verifier = "standard",
    level: str = "quick",
    *,
    rng: RandomSource = None,
    pair: Any = None,
    seconds: float | None = None,
    cases: Sequence[str] | None = None,
    wanted_tv: float = WANTED_TV,
    timeout: float = TIMEOUT,
    threads: int | None = None,
    executor: Executor | str | None = None,
    device: str | None = None,
    fail_fast: bool = False,
    diagnose: bool = True,
    progress: ShowProgress = None,
) -> Audit:
    """Test whether the output of `verifier` has the claimed distribution.

    An exact verifier is called biased with probability at most `BUDGET`, whenever the audit stops. A built-in
    rule is also proved, by enumeration in fractions. Ctrl-C ends the audit with the verdict so far.

    Parameters
    ----------
    verifier : str, Rule or callable
        A built-in rule; "package.module:function", which runs in a child process; or a function
        verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1],
        whose rows are the accepted tokens and one more, padded with -1. `declares` changes these arguments. A
        lossy rule is tested against the distribution that it declares.
    level : {"smoke", "quick", "standard", "deep"}
        The number of steps of each case, see `LEVELS`.
    rng : int, Generator, SeedSequence or None
        The same seed gives the same counts.
    pair : Pair or (target, draft), optional
        Add a case with your own p and q, from `specsim.read_pair`: pmfs [V], or models. Not for decoders, and
        not with an executor.
    seconds : float, optional
        Time limit, the diagnosis included. The cases share it equally; what some leave goes to the case
        nearest to an alarm. If that gives less than half of the cases the wanted power, the cases that can
        reach it get all of the time. With an executor it is the time of all workers together.
    cases : sequence of str, optional
        The names of the cases to run, for a slow verifier; all by default.
    wanted_tv : float
        The total variation of the first token, in (0, 1], that half of the cases must be able to detect;
        otherwise the verdict is `inconclusive` unless something is found.
    timeout : float
        Seconds after which one call hangs; more for large calls of a verifier that is slow.
    threads : int, optional
        Threads of a built-in rule, or processes (at most four) of a verifier given by name, which count the
        cases of a long audit side by side; all cores by default.
    executor : Executor or str, optional
        Counts the steps of a built-in rule or of a verifier given by name, as in `specsim.simulate`.
    device : str, optional
        Device of the input arrays (torch, JAX, CuPy), such as "cuda:1", in place of the declared one. A GPU
        adds a case of calls of 4,096 rows over 131,072 tokens. Not with an executor.
    fail_fast : bool
        Stop after the first case that fails.
    diagnose : bool
        Draw more steps of a biased verifier or decoder, and compare them with `specsim.mistakes`.
    progress : bool or callable, optional
        A bar by default, as in `specsim.simulate`. A function is called as progress(steps done, all steps).

    Returns
    -------
    Audit
        Verdict, findings and measurements. An error inside the verifier gives the verdict `broken`.

    Raises
    ------
    ValueError
        If the rule, level, module, case or executor is unknown, workers cannot have the function, the
        verifier does not take the pair, or the device is missing, unknown to the library, or too small.

    Examples
    --------
    >>> result = audit("standard", level="smoke", rng=0)
    >>> str(result.verdict)
    'consistent'
    """
    check_limits(level, seconds, timeout, wanted_tv)
    threads, started = available_threads(threads), time.perf_counter()
    with (
        workers_of(executor, threads) as workers,
        subjects.open_subject(verifier, threads, timeout, workers, device) as subject,
    ):
        if pair is not None:
            subject = subjects.with_pair(subject, pair)
        plans = subject.plans(level, cases)
        if subject.accelerator is not None:
            check_room(subject.accelerator, [plan.case for plan in plans])
        tested = seconds and (seconds * TESTING if diagnose else seconds)
        limit = None if tested is None else (started + tested, tested)
        found = _audit(subject, plans, level, root_of(rng), limit, wanted_tv, fail_fast, told(progress))
        if diagnose and not found.interrupted and any(case.findings for case in found.cases):
            left = None if seconds is None else seconds - (time.perf_counter() - started)
            found = replace(found, diagnosis=diagnosis_of(subject, found, left))
        return replace(found, provenance=replace(found.provenance, seconds=time.perf_counter() - started))


def check_room(device: Device, cases: Sequence[Any]) -> None:
    """Raise ValueError if a part of the free memory of `device` is too small for the rows of a call."""
    shaped = [case for case in cases if isinstance(case, ShapesCase)]
    if device.free is None or not shaped:
        return
    largest = max(shaped, key=lambda case: case.largest_call)
    if largest.largest_call > device.free * FOR_ROWS:
        rows, free = (size / 2**30 for size in (largest.largest_call, device.free))
        raise ValueError(
            f"device: a call of the case {largest.name!r} has {rows:.1f} GiB of rows, more than a quarter of "
            f"the {free:.1f} GiB free on the {device.name}; declare a smaller batch, name other cases "
            "(--case), or leave device out, to audit on the CPU"
        )


def check_limits(
    level: str, seconds: float | None = None, timeout: float = TIMEOUT, wanted_tv: float = WANTED_TV
) -> None:
    """Raise ValueError for an unknown level, times that are not positive, and a TV outside (0, 1]."""
    check_choice("level", level, LEVELS)
    for name, limit in (("seconds", seconds), ("timeout", timeout)):
        if limit is not None:
            check_seconds(name, limit)
    check_between("wanted_tv", wanted_tv, 0, 1, "total variation", "(]")


def _audit(
    subject: subjects.Subject,
    plans: Sequence[Plan],
    level: str,
    root: int,
    limit: tuple[float, float] | None,
    wanted_tv: float,
    fail_fast: bool,
    progress: Progress,
) -> Audit:
    tests = sum(plan.tests for plan in plans)
    share = None if limit is None else limit[1] / len(plans)
    runs = [CaseRun(plan, root, BUDGET / tests, seconds=share, timeout=subject.timeout) for plan in plans]
    schedule = Schedule(subject, runs, progress, alone=fail_fast)
    promises: list[CaseResult] = []
    found: dict[str, CaseResult] = {}
    interrupted = False
    try:
        if isinstance(subject, subjects.VerifierSubject):
            promises.append(promises_result(check_promises(subject.callee, root, subject.timeout)))
        broken = [finding.text for result in promises for finding in result.findings]
        if any("hung: " in text for text in broken):
            schedule.hung()
        if fail_fast:
            for run in schedule.in_turn() if not broken else ():
                found[run.plan.case.name] = run.result()
                if _first_failing(plans, found) is not None:
                    break
        elif limit is None:
            schedule.to_the_end()
        else:
            schedule.in_time(*limit, wanted_tv)
    except KeyboardInterrupt:
        interrupted = True
        for run in runs:
            run.interrupted = not run.ended and run.total.steps < run.plan.steps
    begun = {run.plan.case.name: run for run in schedule.begun}
    found |= {name: run.result() for name, run in begun.items() if name not in found}
    last = _first_failing(plans, found) if fail_fast else None
    names = [plan.case.name for plan in plans[: None if last is None else last + 1]]
    origin = subject.origin
    if origin is not None and not (interrupted or isinstance(subject, subjects.RuleSubject)):
        origin = replace(origin, unseen=tuple(sorted(set[int]().union(*subject.callee.left().values()))))
    return result_of(
        subject,
        plans,
        level,
        (*promises, *(found[name] for name in names if name in begun)),
        interrupted=interrupted,
        provenance=Provenance.record(root, subject.threads, 0.0, getattr(subject.accelerator, "name", None)),
        out_of_time=tuple(name for name, run in begun.items() if run.left_out),
        wanted_tv=wanted_tv,
        origin=origin,
    )


def result_of(
    subject: subjects.Subject, plans: Sequence[Plan], level: str, cases: tuple[CaseResult, ...], **more: Any
) -> Audit:
    """The audit with these results of its cases, and the proof of a built-in rule."""
    return Audit(
        verifier=subject.name,
        level=level,
        cases=cases,
        proof=prove_on_generated_models(subject.rule) if isinstance(subject, subjects.RuleSubject) else None,
        budget=BUDGET,
        tests=sum(plan.tests for plan in plans),
        planned=len(plans),
        limits=subject.limits,
        left_out=subject.left_out,
        device=subject.device,
        **more,
    )


def prove_on_generated_models(rule: Rule) -> ProofSummary:
    """Enumerate `rule` on `MODELS` fixed pairs of Markov tables with zeros, ties and equal rows."""
    rng = np.random.default_rng(0)
    largest = Fraction(0)
    shapes = TREES if rule.claimed_on_trees else CHAINS
    for i in range(MODELS):
        vocab_size, parents = shapes[i % len(shapes)]
        drawing = rule.draft_sampling[i // len(shapes) % len(rule.draft_sampling)]
        target, draft = generated_pair(rng, vocab_size)
        proof = prove(target, draft, rule=rule, gamma=Tree(parents, drawing))
        largest = max(largest, proof.worst_tv, proof.tv if rule.declared is None else Fraction(0))
    return ProofSummary(MODELS, float(largest), rule.declared is None)


def generated_pair(rng: np.random.Generator, vocab_size: int) -> tuple[TableModel, TableModel]:
    """A target and a draft of order 1 with rows of small fractions, some zero entries and some equal rows."""
    weights = rng.integers(0, 5, size=(2, vocab_size, vocab_size))
    weights[np.arange(2)[:, None], np.arange(vocab_size), rng.integers(vocab_size, size=(2, vocab_size))] += 1
    if rng.random() < 0.3:
        same = int(rng.integers(vocab_size))
        weights[1, same] = weights[0, same]
    rows = [[[Fraction(int(w), int(row.sum())) for w in row] for row in table] for table in weights]
    return TableModel(rows[0]), TableModel(rows[1])


def _first_failing(plans: Sequence[Plan], found: Mapping[str, CaseResult]) -> int | None:
    """The first case that fails, if all before it are known."""
    for i, plan in enumerate(plans):
        if plan.case.name not in found:
            return None
        if found[plan.case.name].findings:
            return i
    return None


# Replay one step of an audit: the rows that the verifier got, and the tokens that it returned. The step is
# drawn in the same batch as in the audit, so that the verifier's generator has the same state.


@checked
def replay_step(
    verifier: str | Verifier,
    case: str,
    step: int,
    level: str = "quick",
    *,
    rng: RandomSource = None,
    timeout: float = TIMEOUT,
    device: str | None = None,
) -> str:
    """Describe one step of an audit: its rows, and the tokens that the verifier emitted.

    The steps of an audit with a time limit cannot be replayed.

    Parameters
    ----------
    verifier : str or callable
        As in `specsim.audit`.
    case : str
        The name of a case of the audit or of its diagnosis.
    step : int
        The number of the step, from 0.
    level : str
        That of the audit, a key of `LEVELS`.
    rng : int
        The seed of the audit.
    timeout : float
        Seconds that a call of the verifier may take.
    device : str, optional
        That of the audit.

    Returns
    -------
    str
        A few lines.

    Raises
    ------
    ValueError, TypeError
        For an unknown case or level, no `rng`, a step out of range, and a built-in rule, for which there is
        `specsim.replay`.

    Examples
    --------
    >>> import numpy as np
    >>> def verify(draft_tokens, p, q, rng):
    ...     output = np.full((len(p), p.shape[1]), -1)
    ...     output[:, 0] = [rng.choice(p.shape[2], p=row) for row in p[:, 0]]
    ...     return output
    >>> shown = replay_step(verify, "two-point", step=3, level="smoke", rng=1)
    >>> print(shown.splitlines()[-2].strip())
    emitted [1]: 0 accepted, then token 1
    """
    check_limits(level, timeout=timeout)
    if rng is None:
        raise ValueError("rng (--seed): missing; give the seed of the audit")
    root = root_of(rng)
    with subjects.open_subject(verifier, 1, timeout, device=device) as subject:
        if isinstance(subject, subjects.RuleSubject):
            raise ValueError(f"{verifier}: the steps of a built-in rule are shown by specsim replay")
        found, ends = _case(subject, case, level)
        if not 0 <= step < ends[-1]:
            raise ValueError(f"step: {step} is not in [0, {ends[-1]:,}), the steps of {case!r} at this level")
        try:
            text = "\n".join(_step(_batch_of(subject, case, case_key(root, case), ends, step), found))
        except (BrokenVerifier, NotADraftPath) as error:
            text = f"  the batch with this step broke the contract: {error}"
    return f"Step {step} of case {case!r}, level {level}, seed {root}\n{text}"


def _case(subject: subjects.Subject, name: str, level: str) -> tuple[Any, list[int]]:
    """The case of that name, and the ends of the pieces in which its steps are drawn."""
    if isinstance(subject, subjects.VerifierSubject):
        for case in subject.diagnostic_cases:
            if case.name == name:
                return case, SEGMENTS
    names = [case.name for case in subject.cases]
    if name not in names:
        raise ValueError(f"case: {name!r} is not a case of the audit; choose from {', '.join(names)}")
    plan = subject.plan(names.index(name), level)
    return plan.case, interim_looks(plan.steps)


def _batch_of(subject: subjects.Subject, case: str, key: Key, ends: list[int], step: int) -> Batch:
    """A batch of that step only, drawn with the audit's rng, in pieces that end at `ends`."""
    source, _ = subject.counter(case)
    end = next(end for end in ends if step < end)
    start = max((other for other in ends if other <= step), default=0)
    first = start + (step - start) // source.chunk * source.chunk
    batches = source.batches(key, first, min(source.chunk, end - first))
    batch = next(one for one in batches if step < one.first + len(one.accepted))
    one = slice(step - batch.first, step - batch.first + 1)
    rows: Any = batch.rows
    if isinstance(rows, Rows):
        rows = replace(rows, **{name: array[one] for name, array in vars(rows).items() if array is not None})
    return Batch(step, batch.tokens[:, one], batch.accepted[one], rows)


def _step(batch: Batch, case: Any) -> Iterator[str]:
    """What came out of a step, and of a verifier's step on fixed rows what was drafted."""
    rows: Any = batch.rows
    emitted = [int(x) for x in batch.tokens[:, 0] if x >= 0]
    if not isinstance(case, Case):
        yield f"  emitted {emitted}"
        return
    drafts = len(rows.draft_tokens[0]) if getattr(rows, "lengths", None) is None else int(rows.lengths[0])
    parents, drafted = rows.parents[0].tolist(), rows.draft_tokens[0].tolist()
    for j, (parent, x) in enumerate(zip(parents[:drafts], drafted, strict=False)):
        if case.certain:
            yield f"  node {j + 1}: drafted token {x}: p = {float(rows.p[0, parent, x]):.6g}, q was withheld"
            continue
        p, q = float(rows.p[0, parent, x]), float(rows.q[0, parent, x])
        ratio = f", p/q = {p / q:.6g}" if q > 0 else ""
        yield f"  node {j + 1}, after node {parent}: drafted token {x}: p = {p:.6g}, q = {q:.6g}{ratio}"
    yield f"  emitted {emitted}: {len(emitted) - 1} accepted, then token {emitted[-1]}"
    at, last = len(emitted) - 1, emitted[-1]
    if parents == list(range(len(parents))):
        beside = " (the bonus)" if at == drafts else ", q was withheld" if case.certain else ""
        beside = beside or f", q = {float(rows.q[0, at, last]):.6g}"
        yield f"  the last token has p = {float(rows.p[0, at, last]):.6g}{beside}"
