"""The power of an audit: how many steps it needs to reject each mistake of the catalogue, and whether it
does.

For every mistake whose distribution is known, the distribution of a step is enumerated in each case that has
few enough drafts, and compared with every table that the audit tests (`experiments.audit._step_laws`). From
the deviations follow the steps needed to reject with probability .999, in the case where they are fewest, and
the first level that has as many. That case is then run with several seeds. Where no distribution is known, or
these levels have too few steps, the case that is run is the one that a smoke audit rejects soonest.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from experiments import Row
from experiments._kept import lacking
from experiments._pages import filled, markdown_table, shown, written
from experiments.audit._step_laws import (
    Deviation,
    Known,
    alarm,
    deviation,
    known_law,
    rejections,
    subject_of,
    tables_of,
)
from specsim import mistakes
from specsim.auditing import LEVELS
from specsim.auditing._cases.battery import DecoderCase
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.contract_checks import check_promises
from specsim.auditing._checks.subjects import Subject
from specsim.auditing._results.audit import BUDGET
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.local import Local

TITLE = "The power of an audit: the steps that it needs to reject each known mistake"
MINUTES = 40

#: The levels of the runs, and how many seeds each mistake gets.
RUN_LEVELS = ("quick", "standard")
SEEDS, FAST_SEEDS = 20, 2
FAST_MISTAKES = ("resamples_target", "draft_top_k")
#: The deviation that each level must detect, in total variation of a step.
CLAIMED = {"quick": 0.01, "standard": 0.002}
#: The case that shows a mistake, where it has too many drafts to be enumerated.
TOO_LARGE = {"floored_race": ("flat tail 131 072", "standard")}
#: A seed that no run has.
PILOT = 10_000


def cells(*, fast: bool) -> list[tuple[str]]:
    """The mistakes."""
    return [(name,) for name in (FAST_MISTAKES if fast else mistakes.names())]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """What is predicted of a mistake, and the outcome of running it.

    `case`, `table`, `position` and `prefix` name the table of the largest chi-square distance; `tv`,
    `distance`, `total` and `fatal` are those of `Deviation`. `needed` is None where no steps suffice,
    and all of these where no distribution is known. `promise` says that the contract checks detect the
    mistake before a step is drawn.
    """
    (name,) = cell
    mistake = mistakes.get(name)
    subject = subject_of(mistake)
    laws = [known_law(mistake, case) for case in subject.cases]
    predicted, best, must = _predicted(subject, laws)
    where = next(((best, level) for level in RUN_LEVELS if level in must), None)
    promised = mistake.decode is None and check_promises(Local(mistake.function), PILOT, TIMEOUT).failures
    row = {
        "mistake": name,
        "family": mistake.family,
        "decoder": mistake.decode is not None,
        **predicted,
        "predicted": where is not None,
        "promise": bool(promised),
    }
    if name in TOO_LARGE:
        case, level = TOO_LARGE[name]
        where = [one.name for one in subject.cases].index(case), level
    where = where or _pilot(subject, rng)
    return row | _run(subject, where, range(rng, rng + (FAST_SEEDS if fast else SEEDS)))


def _predicted(subject: Subject, laws: Sequence[Known | None]) -> tuple[Row, int, list[str]]:
    """The columns about the case in which a quick audit needs the fewest steps, its index, and the levels
    that must reject."""
    found = {i: _deviation(subject, law, i, "quick") for i, law in enumerate(laws) if law is not None}
    if not found:
        names = "case table position prefix tv distance total fatal needed first_level"
        return dict.fromkeys(names.split()), 0, []
    best = min(found, key=lambda i: (found[i].needed, -found[i].distance))
    law = laws[best]
    assert law is not None
    must = [
        level
        for level in LEVELS
        if _deviation(subject, law, best, level).needed <= subject.plan(best, level).steps
    ]
    columns = {"table" if name == "kind" else name: value for name, value in asdict(found[best]).items()} | {
        "table": found[best].kind or None,
        "prefix": " ".join(map(str, found[best].prefix)),
        "needed": found[best].needed if math.isfinite(found[best].needed) else None,
        "first_level": must[0] if must else None,
    }
    return columns, best, must


def _deviation(subject: Subject, law: Known, index: int, level: str) -> Deviation:
    case: Any = subject.cases[index]
    claim = None if isinstance(case, DecoderCase) else Claim(None, case.tree)
    return deviation(law, tables_of(case, claim, subject.plan(index, level).steps), alarm(subject, level))


def _pilot(subject: Subject, rng: int) -> tuple[int, str] | None:
    """(index, level) of the case that a smoke audit rejects soonest; None if it rejects none."""
    level = alarm(subject, "smoke")
    steps = {i: rejections(subject, i, "smoke", level, [PILOT + rng])[0] for i in range(len(subject.cases))}
    seen = {i: n for i, n in steps.items() if n is not None}
    return (min(seen, key=lambda i: seen[i]), "quick") if seen else None


def _run(subject: Subject, where: tuple[int, str] | None, seeds: Sequence[int]) -> Row:
    """The columns about the runs of one case; None where there were none."""
    if where is None:
        return dict.fromkeys(("run_case", "run_level", "run_steps", "runs", "rejected", "median_steps"))
    index, level = where
    steps = rejections(subject, index, level, alarm(subject, level), seeds)
    seen = [n for n in steps if n is not None]
    return {
        "run_case": subject.cases[index].name,
        "run_level": level,
        "run_steps": subject.plan(index, level).steps,
        "runs": len(seeds),
        "rejected": len(seen),
        "median_steps": statistics.median(seen) if seen else None,
    }


# --- the page --------------------------------------------------------------------------------------------


def page(rows: Sequence[Row]) -> str:
    """docs/results/power.md."""
    defined = [row for row in rows if row["case"]]
    large = [row for row in defined if row["tv"] >= CLAIMED["quick"]]
    tight = min(large, key=lambda row: row["run_steps"] / row["needed"])
    not_run, late = [row for row in rows if row["runs"] is None], failures(rows)
    values = {
        **CLAIMED,
        "BUDGET": BUDGET,
        "total": len(rows),
        "known": len(defined),
        "large": len(large),
        "middle": sum(CLAIMED["standard"] <= row["tv"] < CLAIMED["quick"] for row in defined),
        "missed": f"Not rejected in every run: {_listed(late)}."
        if late
        else "All were rejected in every run.",
        "tight": tight["mistake"],
        "needed": shown(tight["needed"]),
        "steps": shown(tight["run_steps"]),
        "added": filled(lacking(cells(fast=False), rows, "mistake")),
        "too_large": _listed(TOO_LARGE),
        "promised": _listed(row["mistake"] for row in not_run if row["promise"]),
        "undetected": _listed(row["mistake"] for row in not_run if not row["promise"]),
        "table": _table(rows),
    }
    return written("power", values)


def failures(rows: Sequence[Row]) -> list[str]:
    """The mistakes that a level must detect, as claimed or as predicted, and that were not rejected in every
    run."""
    return [row["mistake"] for row in rows if due(row) and not _detected(row)]


def due(row: Row) -> str | None:
    """The level that must detect a mistake by its TV; that of the run where it was only predicted."""
    claimed = next((level for level, least in CLAIMED.items() if (row["tv"] or 0.0) >= least), None)
    return claimed or (row["run_level"] if row["predicted"] else None)


def _detected(row: Row) -> bool:
    levels = list(LEVELS)
    return (
        row["runs"] is not None
        and row["rejected"] == row["runs"]
        and levels.index(row["run_level"]) <= levels.index(due(row) or levels[-1])
    )


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(rows: Sequence[Row]) -> str:
    head = "mistake, best case, table, TV, χ², fatal, steps needed, first level, run, rejected, median steps"
    lines = []
    for row in rows:
        best, run = ["–"] * 7, ["–"] * 3
        if row["table"] or row["fatal"]:
            where = f"{row['table']} {row['position'] + 1}" if row["table"] else "–"
            where += f" after {row['prefix']}" if row["prefix"] else ""
            numbers = [shown(row[name]) for name in ("tv", "distance", "fatal", "needed")]
            best = [row["case"], where, *numbers, row["first_level"] or "beyond deep"]
        if row["runs"] is not None:
            rejected = f"{row['rejected']} of {row['runs']}"
            run = [f"{row['run_case']}, {row['run_level']}", rejected, shown(row["median_steps"])]
        lines.append([f"`{row['mistake']}`", *best, *run])
    return markdown_table(head.split(", "), lines)
