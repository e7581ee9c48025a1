"""Compare two verifiers on the same cases: do their outputs have the same law?

The law need not be known, so a lossy kernel can be compared with its rewrite. Both draw each case with
independent random numbers, in blocks. After each block all is tested (`_checks/two_samples.py`), a change of
speed too. A few steps with the same drafts and rng show whether the tokens are identical."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from specsim import rules
from specsim.adapters._contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.auditing._cases.battery import BITS, Case, DecoderCase, case_key
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks import subjects
from specsim.auditing._checks.tables import Plan, Table
from specsim.auditing._checks.two_samples import Blocks, block_ends, detectable, rejects, shown, totals
from specsim.auditing._results.two_sample import Difference, TwoSampleAudit
from specsim.auditing._runner import check_limits
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, key_of, root_of
from specsim.core._types import Ints
from specsim.core._verdicts import BUDGET, WANTED_TV_OF_VERIFIERS
from specsim.core.stats import log_pooled_two_sample_e, mean_tokens
from specsim.simulation._counting import Counts, offset

#: The blocks of a case, and the least steps of the first.
BLOCKS, LEAST = 15, 8
#: Steps that both verifiers get with the same rng.
SAME_SEED_STEPS = 512

#: The cells of counts, and what is said of two samples of them.
Test = tuple[Callable[[Counts], Ints], Callable[[Ints, Ints], str]]


@shows_progress("audit")
def audit_against(
    new: str | Verifier,
    old: str | Verifier,
    level: str = "quick",
    *,
    rng: RandomSource = None,
    wanted_tv: float = WANTED_TV_OF_VERIFIERS,
    timeout: float = TIMEOUT,
    progress: ShowProgress = None,
) -> TwoSampleAudit:
    """Test whether the outputs of two verifiers have one distribution, in the cases that both take.

    Neither need be exact. Two verifiers of one distribution are called changed with probability at most
    `BUDGET`.

    Parameters
    ----------
    new, old : str or callable
        Each a function, "package.module:function", or the name of a rule for chains.
    level, rng, timeout, progress
        As in `specsim.audit`.
    wanted_tv : float
        The total variation between the first tokens of both that half of the cases must be able to detect;
        otherwise the verdict is "inconclusive" unless a difference is found.

    Returns
    -------
    TwoSampleAudit
        The verdict ("same", "changed", "broken" or "inconclusive"), and the worst table of each case.

    Raises
    ------
    ValueError
        As in `specsim.audit`, and if the two share no case.

    Examples
    --------
    >>> from specsim import rules
    >>> audit_against("standard", "standard", "smoke", rng=0).verdict
    <Verdict.SAME: 'same'>
    """
    check_limits(level, timeout=timeout, wanted_tv=wanted_tv)
    root, started = root_of(rng), time.perf_counter()
    with (
        subjects.open_subject(_as_function(new), 1, timeout) as one,
        subjects.open_subject(_as_function(old), 1, timeout) as other,
    ):
        plans = [one.plan(i, level) for i in _shared(one, other)]
        tests = sum(len(_tests(plan)) for plan in plans)
        before, total = 0, 2 * sum(plan.steps for plan in plans)
        found, interrupted = [], False
        try:
            for plan in plans:
                report = offset(told(progress), before, total)
                found.append(_compare((one, other), plan, root, BUDGET / tests, report))
                before += 2 * plan.steps
                if interrupted := found[-1].interrupted:
                    break
        except KeyboardInterrupt:
            interrupted = True
    return TwoSampleAudit(
        new=new if isinstance(new, str) else one.name,
        old=old if isinstance(old, str) else other.name,
        level=level,
        cases=tuple(found),
        budget=BUDGET,
        tests=tests,
        interrupted=interrupted,
        provenance=Provenance.record(root, 1, time.perf_counter() - started),
        planned=len(plans),
        wanted_tv=wanted_tv,
    )


def _as_function(verifier: str | Verifier) -> str | Verifier:
    if isinstance(verifier, str) and subjects.is_rule(verifier):
        return subjects.rule_function(rules.get(verifier))
    return verifier


def _shared(one: subjects.Subject, other: subjects.Subject) -> list[int]:
    """The indices, in `one`, of the cases that both have."""
    here, there = ([_identity(case) for case in side.cases] for side in (one, other))
    if not (shared := [i for i, case in enumerate(here) if case is not None and case in there]):
        raise ValueError("the verifiers share no case: they declare other dtypes, draft lengths, or shapes")
    return shared


def _identity(case: Case | ShapesCase | DecoderCase) -> tuple[Any, ...] | None:
    """What two verifiers must have in common; None for calls of changing shape: their law has the seed."""
    if isinstance(case, ShapesCase):
        return None
    if isinstance(case, DecoderCase):
        return (case.name,)
    return case.name, case.tree, BITS[case.dtype], case.rotated, case.uneven, case.certain


def _compare(
    both: tuple[subjects.Subject, subjects.Subject], plan: Plan, root: int, alarm: float, progress: Progress
) -> Difference:
    case, sides = plan.case, list(zip(("new", "old"), both, strict=True))
    words = case_key(0, case.name)
    tests = _tests(plan)
    blocks: list[list[tuple[Ints, Ints]]] = [[] for _ in tests]
    done, twins, failure, telling, interrupted = 0, 0.0, "", (-np.inf, ""), False
    try:
        same = subjects.Span(case.name, key_of(root, (*words, 2)), 0, min(SAME_SEED_STEPS, plan.steps))
        first, second = (_run(name, subject, _tokens, same) for name, subject in sides)
        twins = float((first == second).all(axis=0).mean())
        for until in block_ends(plan.steps, BLOCKS, LEAST):
            asked = (subjects.Span(case.name, key_of(root, (*words, k)), done, until - done) for k in (0, 1))
            a, b = (
                _run(name, subject, subjects.count_span, steps).counts
                for (name, subject), steps in zip(sides, asked, strict=True)
            )
            found = [(cells(a), cells(b)) for cells, _ in tests]
            blocks, done = [[*before, new] for before, new in zip(blocks, found, strict=True)], until
            progress(2 * done, 2 * plan.steps)
            telling = _most_telling(tests, blocks)
            if rejects(telling[0], alarm):
                break
    except BrokenVerifier as error:
        failure = str(error)
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted, telling = True, _most_telling(tests, blocks)
    nothing = np.zeros(case.positions, dtype=np.int64)
    lengths = totals([(nothing, nothing), *blocks[-1]])
    changed = rejects(telling[0], alarm)
    return Difference(
        case=case.name,
        purpose=case.purpose,
        steps=done,
        log10_e=shown(telling[0]),
        changed=changed,
        broken=bool(failure),
        text=failure or (telling[1] if changed else ""),
        twins=twins,
        tokens_per_step=tuple(mean_tokens(side)[0] if side.any() else 0.0 for side in lengths),  # type: ignore[arg-type]
        detectable_tv=_detectable(plan, done, alarm),
        interrupted=interrupted,
    )


def _tokens(subject: subjects.Subject, asked: subjects.Span) -> Ints:
    source, _ = subject.counter(asked.case)
    batches = source.batches(asked.key, asked.first, asked.steps)
    return np.concatenate([batch.tokens for batch in batches], axis=1)


def _run(name: str, subject: subjects.Subject, job: Callable[..., Any], steps: subjects.Span) -> Any:
    """The result of `job` on one side. Raises BrokenVerifier with the name of the side."""
    try:
        return job(subject, steps)
    except (BrokenVerifier, NotADraftPath) as error:
        raise BrokenVerifier(f"{name}: {error}") from error


def _tests(plan: Plan) -> list[Test]:
    """The tests of a case, the lengths last; not of single ids: two samples cannot estimate their law."""
    compared = [table for table in plan.tables if table.kind != "ids"]
    return [
        *((table.counts, partial(_words_for, table)) for table in compared),
        *((partial(_possible, i), partial(_words_for_impossible, i)) for i in range(plan.case.positions)),
        (itemgetter("lengths"), lambda a, b: "the numbers of accepted tokens differ"),
    ]


def _most_telling(tests: Sequence[Test], blocks: Sequence[Blocks]) -> tuple[float, str]:
    """The largest log e-value of all tests of a case, and its description."""
    log_es = [log_pooled_two_sample_e([table]) for table in blocks]
    best = int(np.argmax(log_es))
    return log_es[best], tests[best][1](*totals(blocks[best]))


def _possible(position: int, counts: Counts) -> Ints:
    """The numbers of possible and of impossible tokens at `position`."""
    impossible = counts["impossible"][position]
    return np.array([counts["lengths"][position:].sum() - impossible, impossible])


def _words_for_impossible(position: int, a: Ints, b: Ints) -> str:
    new, old = (side[1] / max(1, side.sum()) for side in (a, b))
    where = f"position {position + 1}: tokens of probability 0 under the target"
    return f"{where} {new:.4f} new, {old:.4f} old"


def _words_for(table: Table, a: Ints, b: Ints) -> str:
    shares = a / max(1, a.sum()), b / max(1, b.sum())
    cell = int(np.abs(shares[0] - shares[1]).argmax())
    after = f" after {list(table.prefix)}" if table.kind == "prefix" and table.prefix else ""
    kind = "" if table.kind == "prefix" else f" ({table.kind})"
    where = f"position {table.position + 1}{after}{kind}: {table.label(cell)}"
    return f"{where} {shares[0][cell]:.4f} new, {shares[1][cell]:.4f} old"


def _detectable(plan: Plan, steps: int, alarm: float) -> float:
    """For the first token."""
    first = next((table for table in plan.tables if table.position == 0), None)
    return 1.0 if first is None else detectable(len(first.law), [(steps, steps)], alarm)
