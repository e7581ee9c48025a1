"""The verification code of engines, as wheels and clones hold it, audited on a CPU.

Each row is what `specsim audit ENGINE` says of one function, loop or kernel, with the version of the wheel or
the commit of the clone, and how long that took. specsim adapts engines in production; the modules beside this
one adapt the code of research, which is audited as `experiments.engines.MODULE:verify`. Wheels are installed
without what they depend on (`make test-engines`); clones are expected in results/clones/OWNER/NAME. The last
subjects are the controls: built-in rules, one of them wrong on purpose. `--keep --only` runs those that are
installed again, and keeps the rows of the others.
"""

import csv
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import NamedTuple

from experiments import ROOT, Row
from experiments._pages import audited_on, explained, joined, known_findings, markdown_table, written
from experiments.engines._origins import CLONES, Clone, Wheel
from specsim import audit
from specsim.adapters import is_engine
from specsim.auditing._report.audit import Audit

TITLE = "The verification code of engines, in wheels and clones, audited on a CPU"
MINUTES = 180

#: Findings of an audit that a row keeps.
FINDINGS = 3


class Subject(NamedTuple):
    """What is audited: the name of an engine, function or rule, where its code comes from, and the seconds
    that it gets; without any it runs to the end of level quick. A slow one gets few `cases`, with more power
    each."""

    engine: str
    origin: Wheel | Clone
    seconds: float | None = None
    cases: tuple[str, ...] | None = None


def _subjects() -> Iterator[Subject]:
    """The table beside this file. Slow kernels, trees and loops have one case, whose p and q differ
    everywhere, or that has few tokens, so that the same power takes fewer steps."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for engine, origin, module, seconds, case in list(csv.reader(file))[1:]:
            code = Wheel(origin, module) if module else Clone(origin)
            yield Subject(engine, code, float(seconds) if seconds else None, (case,) if case else None)


SUBJECTS = [*_subjects()]
BY_ENGINE = {subject.engine: subject for subject in SUBJECTS}


def cells(*, fast: bool) -> list[tuple[str]]:
    """The engines whose code is here; the controls alone where `fast`."""
    wanted = SUBJECTS[-2:] if fast else SUBJECTS
    return [(subject.engine,) for subject in wanted if subject.origin.is_here]


def kept_cells() -> list[tuple[str]]:
    """The cells of the page, here or not."""
    return [(subject.engine,) for subject in SUBJECTS]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """The audit of one engine's code."""
    subject = BY_ENGINE[cell[0]]
    started = time.perf_counter()
    seconds = 5.0 if fast else subject.seconds
    found = audit(_reference(subject, CLONES), seconds=seconds, cases=subject.cases, rng=rng)
    return {
        "engine": subject.engine,
        "origin": subject.origin[0],
        "version": subject.origin.version,
        "command": _command(subject, rng),
        "verdict": str(found.verdict),
        "findings": "\n".join(_findings(found)),
        "diagnosis": ", ".join(one.name for one in found.diagnosis.named) if found.diagnosis else "",
        "detectable_tv": _detectable(found),
        "powerful": found.powerful,
        "cases": found.planned + len(found.left_out),
        "steps": sum(case.steps for case in found.cases),
        "seconds": time.perf_counter() - started,
        "date": date.today().isoformat(),
    }


def _reference(subject: Subject, clones: Path) -> str:
    """The engine's name; of one that specsim adapts, with the folder of its clone."""
    if is_engine(subject.engine) and isinstance(subject.origin, Clone):
        return f"{subject.engine}:source={clones / subject.origin.repository}"
    return subject.engine


def _command(subject: Subject, seed: int) -> str:
    limit = "" if subject.seconds is None else f" --time {subject.seconds:g}"
    cases = "".join(f" --case {shlex.quote(case)}" for case in subject.cases or ())
    return f"specsim audit {_reference(subject, Path())}{limit}{cases} --seed {seed}"


def _findings(found: Audit) -> Iterator[str]:
    """The first finding of each of the first `FINDINGS` failing cases."""
    failing = [case for case in found.cases if case.findings]
    for case in failing[:FINDINGS]:
        yield f"{case.case}: {' '.join(case.findings[0].text.split())}"


def _detectable(found: Audit) -> float | None:
    """The median, over cases, of the total variation that was detectable at the first token."""
    first = [case.first_token for case in found.cases]
    known = [table.detectable_tv for table in first if table is not None]
    return median(known) if known else None


# --- the page --------------------------------------------------------------------------------------------

#: What was found, by engine: exactly the engines that are biased or broken.
KNOWN = known_findings(__file__)
FAILED = ("biased", "broken")


#: Rows of audits on a GPU, from reports that were written there.
ON_A_GPU = ROOT / "experiments/kept/engine_code_gpu.json"


def page(rows: Sequence[Row]) -> str:
    """docs/results/engine-code.md."""
    there = json.loads(ON_A_GPU.read_text(encoding="utf-8"))
    values = {
        "audited": audited_on(rows),
        "table": _table(rows),
        "device": there["device"],
        "command": there["command"],
        "on_a_gpu": _table(there["rows"]),
        "commands": "\n".join(f"    {row['command']}" for row in rows),
        "findings": joined(_explained(rows)),
    }
    return written("engine-code", values)


COLUMNS = ("engine", "code", "verdict", "nearest known bug", "power", "detectable TV", "steps", "seconds")


def _table(rows: Sequence[Row]) -> str:
    lines = [
        (
            f"`{row['engine']}`",
            f"{row['origin']} {row['version']}",
            row["verdict"],
            _names(row["diagnosis"]) or "–",
            f"{row['powerful']} of {row['cases']}",
            "–" if row["detectable_tv"] is None else f"{row['detectable_tv']:.3f}",
            f"{row['steps']:,}",
            f"{row['seconds']:,.0f}",
        )
        for row in rows
    ]
    return markdown_table(COLUMNS, lines, numbers=4)


def _names(diagnosis: str) -> str:
    """The names of the known mistakes, without the parameters that fit."""
    return ", ".join(dict.fromkeys(name.partition(":")[0] for name in diagnosis.split(", ")))


def _explained(rows: Sequence[Row]) -> Iterator[str]:
    """What was found, and where it comes from."""
    for row in rows:
        if row["verdict"] in FAILED:
            if row["engine"] not in KNOWN:
                raise ValueError(f"{row['engine']} is {row['verdict']}: describe it in engine_code.toml")
            where = f"{row['origin']} {row['version']}"
            yield from explained(KNOWN[row["engine"]], row["origin"], where, row["findings"])
