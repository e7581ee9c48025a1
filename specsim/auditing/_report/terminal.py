"""An audit, and a comparison of two verifiers, for a rich console."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from specsim.auditing._report import text as words
from specsim.auditing._results import Audit, Comparison, Difference, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["audit_to_terminal", "comparison_to_terminal"]

COLORS = {
    "same": "green",
    "changed": "red",
    str(Verdict.CONSISTENT): "green",
    str(Verdict.LOSSY): "yellow",
    str(Verdict.BIASED): "red",
    str(Verdict.BROKEN): "red",
}


def audit_to_terminal(audit: Audit) -> Iterable[RenderableType]:
    """Renderables for a rich console, in the order in which they are printed."""
    from rich.text import Text

    yield from (Text(line, style="bold yellow") for line in words.progress_lines(audit))
    for rows in (words.evidence(audit), words.speed(audit)):
        if rows:
            yield _table(rows)
            yield Text()
    yield from (Text(line, style="red") for line in words.finding_lines(audit))
    yield from (Text(line) for line in words.diagnosis(audit))
    for case in audit.cases:
        if not case.iid:
            yield from (Text(line) for line in words.iid_lines(case))
    yield Text(words.legend(audit), style="dim")
    if (proof := words.proof_line(audit)) is not None:
        yield Text(proof)
    yield Text(words.test_line(audit))
    yield Text(words.run_line(audit))
    yield Text(words.headline(audit), style=f"bold {COLORS[audit.verdict]}")


def comparison_to_terminal(found: Comparison) -> Iterable[RenderableType]:
    """Old against new: a table, what differs, and what would have been found."""
    from rich.text import Text

    if found.interrupted:
        yield Text("interrupted: the verdict so far", style="bold yellow")
    if found.cases:
        yield _table([_difference(case) for case in found.cases])
        yield Text()
    for case in found.cases:
        if case.text:
            yield Text(f"{case.case}: {case.text}", style="red")
    alarm = np.log10(found.tests / found.budget)
    yield Text(
        f"e: the largest e-value of a case's tables against 'one law', an alarm from 10^{alarm:.1f}. twins: share of "
        "steps with the same tokens from the same drafts and rng. new, old: tokens per step. detectable TV: between the "
        "laws of the first token.",
        style="dim",
    )
    yield Text(
        f"{found.tests} tests; two verifiers of one law are called changed with probability at most {found.budget:g}."
    )
    run = found.provenance
    yield Text(f"Level {found.level}, seed {run.root}, {run.seconds:.1f} s, specsim {run.specsim}.")
    same = ", token by token under the same rng" if found.identical and found.verdict == "same" else ""
    color = "green" if found.verdict == "same" else "red"
    yield Text(f"{found.new} against {found.old}: {found.verdict}{same}", style=f"bold {color}")


def _difference(case: Difference) -> dict[str, str]:
    new, old = case.tokens_per_step
    return {
        "case": case.case,
        "steps": words.short(case.steps),
        "e": f"10^{case.log10_e:.1f}",
        "twins": f"{case.twins:.3f}",
        "new": f"{new:.4f}",
        "old": f"{old:.4f}",
        "detectable TV": f"{case.detectable_tv:.4f}",
        "verdict": "broken" if case.broken else "changed" if case.changed else "same",
    }


def _table(rows: list[dict[str, str]]) -> RenderableType:
    """One line for each row where the width allows it; only the names of cases wrap."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    for name in rows[0]:
        left = name in ("case", "verdict")
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "case")
    for row in rows:
        table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in row.values()))
    return table
