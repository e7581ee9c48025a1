"""One step of an audit again: the rows that a verifier was handed, and what it made of them.

A step is drawn in the batch in which the audit drew it, so that the verifier's generator is in the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specsim.auditing._checks.subjects import RuleSubject, Subject, VerifierSubject
from specsim.auditing._checks.trial import case_key, looks
from specsim.auditing._diagnosis.outcomes import diagnostic_cases
from specsim.auditing._diagnosis.verifiers import segments
from specsim.auditing._execution.execution import placed
from specsim.auditing._runner import check_limits
from specsim.auditing._verifier.calls import TIMEOUT, verified
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.core._streams import Key
from specsim.simulation._counting import Progress
from specsim.simulation._sources import Batch, Batches

__all__ = ["replay_step"]


def replay_step(
    verifier: str | Verifier,
    case: str,
    step: int,
    seed: int,
    level: str = "quick",
    *,
    timeout: float = TIMEOUT,
) -> str:
    """Step number `step` ≥ 0 of `case`, of the audit or of its diagnosis, with that seed and level, in words.

    An audit that was given limited time looked at other places, so its steps cannot be found again. Raises ValueError
    for a case or a step that the audit does not have, and for a built-in rule: `specsim.replay` shows those.
    """
    check_limits(level, None, timeout)
    with placed(verifier, 1, timeout) as place:
        if isinstance(place.subject, RuleSubject):
            raise ValueError(f"{verifier}: the steps of a built-in rule are shown by specsim replay")
        try:
            text: str = place.run(_replay, case, step, seed, level)
        except (BrokenVerifier, NotADraftPath) as error:
            text = f"  the batch with this step broke the contract: {error}"
    return f"Step {step} of case {case!r}, level {level}, seed {seed}\n{text}"


# --- a job, which a child process may be given -----------------------------------------------------------


def _replay(
    subject: Subject, name: str, step: int, seed: int, level: str, progress: Progress | None = None
) -> str:
    source, ends = _source(subject, name, level)
    if not 0 <= step < ends[-1]:
        raise ValueError(
            f"step: {step} is outside [0, {ends[-1]:,}), the steps of case {name!r} at this level"
        )
    batch = _batch(source, case_key(seed, name), ends, step)
    return "\n".join(
        _steps(batch, step - batch.first, source) if batch.rows is not None else _sequence(batch, step)
    )


def _source(subject: Subject, name: str, level: str) -> tuple[Batches, list[int]]:
    """Where the steps of that case come from, and the ends of the pieces in which they are drawn."""
    if isinstance(subject, VerifierSubject):
        for case in diagnostic_cases(subject.declared):
            if case.name == name:
                return verified(subject.function, subject.declared, case, subject.timeout), segments()
    names = [case.name for case in subject.cases]
    if name not in names:
        raise ValueError(f"case: {name!r} is none of the audit's: {', '.join(names)}")
    trial = subject.trial(names.index(name), level)
    return trial.source, looks(trial.steps)


def _batch(source: Batches, key: Key, ends: list[int], step: int) -> Batch:
    end = next(end for end in ends if step < end)
    start = max((other for other in ends if other <= step), default=0)
    first = start + (step - start) // source.chunk * source.chunk
    for batch in source.batches(key, first, min(source.chunk, end - first)):
        if step < batch.first + len(batch.accepted):
            return batch
    raise AssertionError("the step lies in one of the batches")


def _steps(batch: Batch, s: int, source: Any) -> Iterator[str]:
    """A step of a verifier: what was drafted, and what came out."""
    rows: Any = batch.rows
    withheld = source.verify.case.certain
    drafts = len(rows.draft_tokens[s]) if getattr(rows, "lengths", None) is None else int(rows.lengths[s])
    emitted = [int(x) for x in batch.tokens[:, s] if x >= 0]
    parents, drafted = rows.parents[s].tolist(), rows.draft_tokens[s].tolist()
    for j, (parent, x) in enumerate(zip(parents[:drafts], drafted, strict=False)):
        if withheld:
            yield f"  node {j + 1}: drafted token {x}: p = {float(rows.p[s, parent, x]):.6g}, q was withheld"
            continue
        p, q = float(rows.p[s, parent, x]), float(rows.q[s, parent, x])
        ratio = f", p/q = {p / q:.6g}" if q > 0 else ""
        yield f"  node {j + 1}, after node {parent}: drafted token {x}: p = {p:.6g}, q = {q:.6g}{ratio}"
    yield f"  emitted {emitted}: {len(emitted) - 1} accepted, then token {emitted[-1]}"
    at = len(emitted) - 1
    if parents == list(range(len(parents))):
        yield f"  the last token has p = {float(rows.p[s, at, emitted[-1]]):.6g}" + (
            " (the bonus)"
            if at == drafts
            else ", q was withheld"
            if withheld
            else f", q = {float(rows.q[s, at, emitted[-1]]):.6g}"
        )


def _sequence(batch: Batch, step: int) -> Iterator[str]:
    tokens = [int(x) for x in batch.tokens[:, step - batch.first] if x >= 0]
    yield f"  emitted {tokens}"
