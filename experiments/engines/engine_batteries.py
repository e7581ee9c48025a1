"""Serving engines that are installed here under the settings of a battery, for each architecture of planted
checkpoints, and right engines many times.

A row is either one `audit_matrix`, with speculation and without, or `runs` audits of specsim's engine with
different seeds, which must find nothing. Subjects are in engine_batteries.toml.
"""

import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from experiments import Row
from experiments._pages import audited_on, markdown_table, written
from experiments.engines._serving import installed, served, version_of
from specsim import audit_engine, plant
from specsim.engines import audit_matrix

TITLE = "Serving engines under a battery of settings, for each planted architecture"
MINUTES = 180
BATTERY = "mid"


class Asked(NamedTuple):
    """How a subject is asked: the engine as in `engines.Subject`, or the class of one that has no drafts, the
    names of planted checkpoints, the tokens of each setting or audit, the `runs` of an audit where no battery
    is asked, the `commands` of a server with drafts and of one without, and the options of the engine."""

    engine: str
    package: str
    module: str
    plants: Sequence[str]
    tokens: int
    runs: int = 0
    commands: Sequence[str] = ()
    options: Mapping[str, Any] = {}


TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SUBJECTS = {name: Asked(**row) for name, row in TABLES["subjects"].items()}


def kept_cells() -> list[tuple[str, str]]:
    """(subject, planted checkpoints): the cells of the page, installed here or not."""
    return [(name, one) for name, subject in SUBJECTS.items() for one in subject.plants]


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """Those of what is installed."""
    here = [cell for cell in kept_cells() if installed(SUBJECTS[cell[0]].module)]
    return [(name, one) for name, one in here if not fast or one == SUBJECTS[name].plants[0]]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """The audits of one subject with one plant."""
    name, planted = cell
    subject, started = SUBJECTS[name], time.perf_counter()
    with TemporaryDirectory() as folder:
        formats = ("hf", "gguf") if subject.package == "xllamacpp" else ("hf",)
        pair = plant(Path(folder) / "pair", formats=formats, rng=1, **TABLES["plants"][planted])
        if subject.runs:
            runs = range(2 if fast else subject.runs)
            audits = [audit_engine(subject.engine, pair, tokens=subject.tokens, rng=seed) for seed in runs]
            asked = f"{len(runs)} seeds"
        else:
            tokens = 60 if fast else subject.tokens
            with ExitStack() as stack:
                both: Any = [stack.enter_context(served(one, "pair", folder)) for one in subject.commands]
                engine, without = both or (subject.engine, None)
                if not both and ":" in engine:
                    engine = resolve_name(engine)(pair, speculative=False)
                how = {"without": without, **subject.options}
                found = audit_matrix(engine, pair, battery=BATTERY, tokens=tokens, rng=rng, **how)
            audits = [one for cell in found.cells for one in (cell.speculative, cell.plain) if one]
            asked = f"{BATTERY} {found.version}, {found.tokens:,} tokens"
    kinds = Counter(kind for one in audits for kind in dict.fromkeys(each.kind for each in one.findings))
    return {
        "subject": name,
        "planted": planted,
        "package": subject.package,
        "version": version_of(subject.package),
        "asked": asked,
        "audits": len(audits),
        "refused": sum(one.refused for one in audits),
        "findings": ", ".join(f"{kind} in {count}" for kind, count in kinds.items()),
        "accused": sum(bool(one.findings) for one in audits),
        "tokens": sum(one.tokens for one in audits),
        "seconds": round(time.perf_counter() - started, 1),
        "date": date.today().isoformat(),
    }


# --- the page --------------------------------------------------------------------------------------------

COLUMNS = (
    *("subject", "planted", "version", "asked for", "findings", "audits with findings"),
    *("audits", "refused", "tokens", "minutes"),
)


def page(rows: Sequence[Row]) -> str:
    """docs/results/engine-batteries.md."""
    lines = [
        [
            *(row["subject"], row["planted"], f"{row['package']} {row['version']}", row["asked"]),
            *(row["findings"] or "none", f"{row['accused']}", f"{row['audits']}", f"{row['refused']}"),
            *(f"{row['tokens']:,}", f"{row['seconds'] / 60:.1f}"),
        ]
        for row in rows
    ]
    table = markdown_table(COLUMNS, lines, numbers=5)
    return written("engine_batteries", {"audited": audited_on(rows), "table": table})
