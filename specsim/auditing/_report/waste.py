"""What a wasteful verifier wastes: the known way of accepting less that its tokens per step fit."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from specsim import mistakes
from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import Case, battery
from specsim.auditing._results.audit import Audit
from specsim.mistakes import Mistake
from specsim.theory import expected_tokens
from specsim.theory._enumeration import step_law

#: The most drafts of a case that are enumerated.
MOST_DRAFTS = 1024


def lines(audit: Audit) -> Iterator[str]:
    """The case that wastes most and, if some fit all cases, the exact controls, with reports of the first."""
    wasteful = [case for case in audit.cases if case.efficiency is not None and case.efficiency.wasteful]
    worst: Any = min(wasteful, key=lambda case: case.efficiency.ratio)  # type: ignore[union-attr]
    yield (
        f"{worst.case}: {worst.tokens_per_step:.4f} tokens per step, {worst.efficiency.ratio:.3f} of the "
        f"standard rule's (at most {worst.efficiency.upper:.3f})."
    )
    alike = [one for one in mistakes.exact_controls() if one.law is not None and _fits(audit, one)]
    if alike:
        names, reports = (", ".join(some) for some in ([one.name for one in alike], alike[0].threads))
        yield f"It accepts as often as {names}: {alike[0].mechanism} Reported in {reports}."


def _fits(audit: Audit, control: Mistake) -> bool:
    """Whether the efficiency of `control` lies in the interval of every case that can be enumerated."""
    found = {case.case: case for case in audit.cases if case.efficiency is not None}
    compared = 0
    for case in battery(Declared()):
        result = found.get(case.name)
        few = case.is_pair and case.vocab_size**case.gamma <= MOST_DRAFTS
        if result is None or not few or result.tree != case.tree:
            continue
        if not result.efficiency.lower <= _efficiency(case, control) <= result.efficiency.upper:  # type: ignore[union-attr]
            return False
        compared += 1
    return compared > 1


def _efficiency(case: Case, control: Mistake) -> float:
    """The mean tokens of a step relative to the standard rule's, every draft enumerated."""
    law = step_law(control, case.target, case.draft, case.tree)  # type: ignore[arg-type]  # it has a law
    mean = sum(len(emitted) * float(mass) for emitted, mass in law.items())
    return mean / float(expected_tokens(np.minimum(*case.pmfs).sum(), case.gamma))
