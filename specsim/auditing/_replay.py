"""Replay one step of an audit: the rows that the verifier got, and the tokens that it returned.

The step is drawn in the same batch as in the audit, so that the verifier's generator has the same state."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specsim.adapters._contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.auditing._cases.battery import Case, case_key
from specsim.auditing._checks import subjects
from specsim.auditing._checks.tables import interim_looks
from specsim.auditing._diagnosis.verifiers import SEGMENTS
from specsim.auditing._runner import check_limits
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.core._streams import Key, RandomSource, root_of
from specsim.core._types import checked
from specsim.simulation._rows import Rows
from specsim.simulation._sources import Batch


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
            batch: Batch = _batch_of(subject, case, case_key(root, case), ends, step)
            text = "\n".join(_step(batch, found))
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
    withheld = case.certain
    drafts = len(rows.draft_tokens[0]) if getattr(rows, "lengths", None) is None else int(rows.lengths[0])
    parents, drafted = rows.parents[0].tolist(), rows.draft_tokens[0].tolist()
    for j, (parent, x) in enumerate(zip(parents[:drafts], drafted, strict=False)):
        if withheld:
            yield f"  node {j + 1}: drafted token {x}: p = {float(rows.p[0, parent, x]):.6g}, q was withheld"
            continue
        p, q = float(rows.p[0, parent, x]), float(rows.q[0, parent, x])
        ratio = f", p/q = {p / q:.6g}" if q > 0 else ""
        yield f"  node {j + 1}, after node {parent}: drafted token {x}: p = {p:.6g}, q = {q:.6g}{ratio}"
    yield f"  emitted {emitted}: {len(emitted) - 1} accepted, then token {emitted[-1]}"
    at, last = len(emitted) - 1, emitted[-1]
    if parents == list(range(len(parents))):
        beside = " (the bonus)" if at == drafts else ", q was withheld" if withheld else ""
        beside = beside or f", q = {float(rows.q[0, at, last]):.6g}"
        yield f"  the last token has p = {float(rows.p[0, at, last]):.6g}{beside}"
