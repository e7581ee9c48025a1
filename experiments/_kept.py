"""What the repository keeps of the experiments: the rows of those that take hours, and a page for each table
in docs/results.

Kept rows are in kept/NAME.json, with their provenance. They are not run again with each change to the code,
so the tests compare parts of them with the current code.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import experiments
from experiments import ROOT, Row, ShowProgress, atomic_write, shows_progress, told
from experiments._tables import provenance, table

#: The experiments whose rows are kept.
KEPT = (
    "audit_calibration", "audit_power", "diagnosis", "engine_batteries", "engine_code", "engines",
    "independent_set", "kill_matrix", "methods", "sample_sizes",
)  # fmt: skip
#: The page of each experiment that has one, in docs/results.
PAGES = {
    name: f"{name.removeprefix('audit_').replace('_', '-')}.md"
    for name in sorted((*KEPT, "claims", "published", "rules", "run_times"))
}
FOLDER = ROOT / "experiments" / "kept"
RESULTS = ROOT / "docs" / "results"


def kept(name: str) -> list[Row]:
    """The rows of an experiment that takes hours, as they were last computed at full size."""
    rows: list[Row] = _kept(name)["rows"]
    return rows


def lacking(cells: Iterable[tuple[str, ...]], rows: Sequence[Row], column: str) -> str:
    """The sentence that a page needs where entries have been added since its rows were computed, else
    nothing; `column` has the first value of a cell."""
    here = {row[column] for row in rows}
    added = [name for name in dict.fromkeys(cell[0] for cell in cells) if name not in here]
    return f"Added since, and not in this table: {', '.join(f'`{name}`' for name in added)}." if added else ""


def kept_provenance(name: str) -> dict[str, Any]:
    """The seed, versions and machine of the kept rows."""
    found: dict[str, Any] = _kept(name)["provenance"]
    return found


def _kept(name: str) -> dict[str, Any]:
    experiments.get(name)
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def keep(name: str, rows: Sequence[Row], rng: int) -> Path:
    """Write the rows of an experiment to the repository, one on a line. Returns the file."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    text = f'{{"provenance": {json.dumps(provenance(rng))},\n"rows": [\n{lines}\n]}}\n'
    return _write(FOLDER / f"{name}.json", text)


@shows_progress("renew", " cells")
def renewed(name: str, only: Iterable[str], *, rng: int, progress: ShowProgress = None) -> list[Row]:
    """The kept rows, with those cells run again whose first value begins with one of `only`, and those that
    were not there.

    The first columns of a row are the values of its cell. An experiment in which not all cells can be run
    everywhere has `kept_cells`, whose rows are kept. Raises ValueError where no cell begins with one of
    `only`.
    """
    tell = told(progress)
    module, chosen = experiments.get(name), tuple(sorted(only))
    cells = module.cells(fast=False)
    if unknown := [one for one in chosen if not any(cell[0].startswith(one) for cell in cells)]:
        raise ValueError(f"{name}: no cell begins with {', '.join(unknown)}")
    before = {tuple(row.values())[: len(cells[0])]: row for row in kept(name)}
    listed = module.kept_cells() if hasattr(module, "kept_cells") else cells
    listed = [cell for cell in listed if cell in cells or tuple(cell) in before]
    rows = []
    for done, cell in enumerate(listed, 1):
        known = not cell[0].startswith(chosen) and tuple(cell) in before
        rows.append(before[tuple(cell)] if known else module.run_cell(cell, fast=False, rng=rng))
        if tell is not None:
            tell(done, len(listed))
    return rows


def page_of(name: str, tables: Path) -> str:
    """The page of an experiment: from its kept rows, or else from its table in the folder `tables`, run if
    need be."""
    rows = kept(name) if name in KEPT else table(name, tables).to_pylist()
    page: str = experiments.get(name).page(rows)
    return page


def write_page(name: str, page: str) -> Path:
    """Write the page of an experiment to docs/results. Returns the file."""
    return _write(RESULTS / PAGES[name], page)


def _write(place: Path, text: str) -> Path:
    with atomic_write(place) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return place
