"""The kill matrix: which published criterion lets which known-wrong verifier pass.

Every criterion of `specsim.auditing.criteria`, and the audit itself, is run on every verifier, several times with different
seeds, and the fraction of runs that pass is kept. A criterion that passes a wrong verifier is blind to that mistake; one
that fails an exact verifier raises false alarms. A wrong *decoder* draws its own drafts, or keeps its own state: no test
that hands tokens to a kernel can see it, and only the audit of decoders stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

import numpy as np

from specsim.auditing.criteria import Criterion
from specsim.auditing.results import Verdict
from specsim.auditing.runner import audit
from specsim.auditing.verifiers import Verifier
from specsim.drafts import chain
from specsim.engine import Progress
from specsim.exact import conditional_laws, step_law, target_law
from specsim.models import TableModel
from specsim.plotting import figure_style
from specsim.provenance import Provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AUDIT", "Cell", "Column", "KillMatrix", "Row", "audit_criterion", "exact_tv", "kill_matrix"]

#: The name of specsim's own column.
AUDIT = "specsim audit"
UNSEEN = "not seen: drafts are drawn by the test"
#: p of the pair whose exact deviation stands beside each verifier; q is the same reversed.
PAIR = tuple(Fraction(weight, 100) for weight in (30, 20, 15, 10, 10, 5, 5, 5))


class Mutant(Protocol):
    """What is asked of a known-wrong verifier: where `verify` is None it is a decoder, and has `decode`."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def threads(self) -> tuple[str, ...]: ...
    @property
    def verify(self) -> Verifier | None: ...
    @property
    def values(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Row:
    """A verifier or decoder. `exact` says that it must pass; `tv` is the largest exact deviation, None if not known."""

    name: str
    family: str
    mechanism: str
    threads: tuple[str, ...]
    exact: bool
    decoder: bool
    tv: float | None


@dataclass(frozen=True)
class Column:
    """A criterion, without its function."""

    name: str
    source: str
    about: str


@dataclass(frozen=True)
class Cell:
    """`passed` of `runs` runs of one criterion on one verifier; a criterion that cannot see a row has no cell there."""

    row: str
    column: str
    passed: int
    runs: int

    @property
    def fraction(self) -> float:
        return self.passed / self.runs


@dataclass(frozen=True)
class KillMatrix:
    """Verifiers down, criteria across, specsim's audit (at `level`) last; the cells are tidy, one for each pair run."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    level: str
    provenance: Provenance

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell of a verifier and a criterion, None where the criterion cannot see it."""
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)

    def missed(self, column: str) -> list[str]:
        """The wrong verifiers and decoders that a criterion let pass more often than not, or cannot see."""
        cells = {row.name: self.cell(row.name, column) for row in self.rows if not row.exact}
        return [name for name, cell in cells.items() if cell is None or cell.fraction > 0.5]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return {
            "level": self.level,
            "rows": [{**asdict(row), "threads": list(row.threads)} for row in self.rows],
            "columns": [asdict(column) for column in self.columns],
            "cells": [asdict(cell) for cell in self.cells],
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> KillMatrix:
        """The matrix that `to_dict` wrote."""
        return cls(
            rows=tuple(Row(**{**row, "threads": tuple(row["threads"])}) for row in stored["rows"]),
            columns=tuple(Column(**column) for column in stored["columns"]),
            cells=tuple(Cell(**cell) for cell in stored["cells"]),
            level=stored["level"],
            provenance=Provenance(**stored["provenance"]),
        )

    def markdown(self) -> str:
        """The matrix as a table of fractions of runs that pass, and below it what each criterion draws and asserts."""
        names = [column.name for column in self.columns]
        lines = [f"| | TV | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
        for family, rows in self.by_family():
            lines.append(f"| **{family}** |{' |' * (len(names) + 1)}")
            for row in rows:
                shown = [show_cell(self.cell(row.name, name)) for name in names]
                lines.append(f"| `{row.name}` | {show_tv(row.tv)} | {' | '.join(shown)} |")
        wrong = sum(not row.exact for row in self.rows)
        passed = " | ".join(f"{len(self.missed(name))} of {wrong}" for name in names)
        lines += [f"| **wrong, and not caught** | | {passed} |", ""]
        lines += [f"- *{column.name}*: {column.about} ({column.source})." for column in self.columns]
        if any(row.decoder for row in self.rows):
            lines.append(f"- –: {UNSEEN}.")
        return "\n".join(lines) + "\n"

    def by_family(self) -> list[tuple[str, list[Row]]]:
        """The rows by family, in the order in which families first occur."""
        families: dict[str, list[Row]] = {}
        for row in self.rows:
            families.setdefault(row.family, []).append(row)
        return list(families.items())

    def figure(self) -> Figure:
        """The matrix as a picture: the fraction of runs that pass in each cell, coloured by how wrong that is."""
        return matrix_figure(self)


def kill_matrix(
    mutants: Sequence[Mutant],
    criteria: Sequence[Criterion],
    *,
    exact: Sequence[Mutant] = (),
    level: str = "quick",
    seeds: Sequence[int] = range(20),
    decoder_audit: Criterion | None = None,
    tv: Callable[[Any], float | None] | None = None,
    progress: Progress | None = None,
) -> KillMatrix:
    """Run every criterion, and specsim's audit at `level`, on every verifier.

    `exact` are verifiers that must pass, and come first. Each pair is run with the first `criterion.repeats` of
    `seeds`; a run's random numbers depend on criterion and seed alone, so that all verifiers meet the same p and q, and
    adding one changes no other. An exception in a run is a failure. `decoder_audit.passes` gets the decode function
    of each mutant that has no `verify`. `tv` computes what stands beside each row, by default `exact_tv`.

    Raises ValueError where two rows share a name, or there are no seeds.
    """
    subjects = [*exact, *mutants]
    names = [subject.name for subject in subjects]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"mutants: {', '.join(sorted(doubled))} more than once; each row needs a name of its own"
        )
    if not seeds:
        raise ValueError("seeds: none given, so there would be no runs")
    started = time.perf_counter()
    own = audit_criterion(level)
    cells = []
    for done, subject in enumerate(subjects, 1):
        if subject.verify is not None:
            cells += [_cell(subject, subject.verify, one, seeds) for one in (*criteria, own)]
        elif decoder_audit is not None:
            cells.append(_cell(subject, subject.decode, decoder_audit, seeds))  # type: ignore[attr-defined]
        if progress is not None:
            progress(done, len(subjects))
    return KillMatrix(
        rows=tuple(_row(subject, i < len(exact), tv or exact_tv) for i, subject in enumerate(subjects)),
        columns=tuple(Column(one.name, one.source, one.about) for one in (*criteria, own)),
        cells=tuple(cells),
        level=level,
        provenance=Provenance.record(seeds[0], 1, time.perf_counter() - started),
    )


def audit_criterion(level: str = "quick") -> Criterion:
    """specsim's audit as a criterion: it passes unless the verdict is biased or broken."""

    def passes(verifier: Verifier, rng: np.random.Generator) -> bool:
        return audit(verifier, level, rng).verdict not in (Verdict.BIASED, Verdict.BROKEN)

    about = f"all cases at level {level}, every position and prefix: verdict neither biased nor broken"
    return Criterion(AUDIT, "specsim.audit", about, passes, 1)


def exact_tv(mutant: Any) -> float | None:
    """The largest total variation between the law of a next token and the target's, at any position of two drafts.

    Enumerated in fractions where p is `PAIR` and q the same reversed, from the mutant's own `law`; None without one.
    """
    if getattr(mutant, "law", None) is None or mutant.verify is None:
        return None
    target, draft = TableModel(PAIR), TableModel(PAIR[::-1])
    law = step_law(mutant, target, draft, chain(2))
    p = target_law(target, 1)
    gaps = [
        sum(abs(nexts.get((x,), Fraction(0)) - p[x,]) for x in range(len(PAIR)))
        for _, nexts in conditional_laws(law)
    ]
    return float(max(gaps)) / 2.0


def _row(subject: Mutant, exact: bool, tv: Callable[[Any], float | None]) -> Row:
    decoder = subject.verify is None
    return Row(
        subject.name,
        subject.family,
        subject.mechanism,
        tuple(subject.threads),
        exact,
        decoder,
        tv(subject),
    )


def _cell(subject: Mutant, function: Callable[..., Any], criterion: Criterion, seeds: Sequence[int]) -> Cell:
    verifier = partial(function, **subject.values)
    runs = seeds[: criterion.repeats]
    passed = sum(
        _passes(criterion, verifier, np.random.default_rng([crc32(criterion.name.encode()), seed]))
        for seed in runs
    )
    return Cell(subject.name, criterion.name, passed, len(runs))


def _passes(criterion: Criterion, verifier: Verifier, rng: np.random.Generator) -> bool:
    try:
        return bool(criterion.passes(verifier, rng))
    except Exception:  # the verifier's own, or that of a comparison with what it returned: the test is red
        return False


def show_cell(cell: Cell | None) -> str:
    """The fraction of runs that pass, as it is printed: 0, 1, or two decimals; – where there was none."""
    return (
        "–"
        if cell is None
        else f"{cell.fraction:.2f}"
        if 0 < cell.passed < cell.runs
        else f"{cell.fraction:.0f}"
    )


def show_tv(tv: float | None) -> str:
    """Total variation as it is printed."""
    return "–" if tv is None else f"{tv:.3f}" if tv else "0"


#: Right answers blue, wrong ones orange, a colour-blind safe pair; grey where there is nothing to see.
RIGHT, WRONG, NOTHING = "#9fc5e0", "#e8923f", "#eeeeee"


def matrix_figure(matrix: KillMatrix) -> Figure:
    """The picture of `KillMatrix.figure`."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    families = matrix.by_family()
    rows = [row for _, members in families for row in members]
    shown = [[matrix.cell(row.name, column.name) for column in matrix.columns] for row in rows]
    error = np.array(
        [
            [np.nan if cell is None else 1 - cell.fraction if row.exact else cell.fraction for cell in cells]
            for row, cells in zip(rows, shown, strict=True)
        ]
    )
    with figure_style():
        figure = Figure(figsize=(3.2 + 0.75 * len(matrix.columns), 1.9 + 0.22 * len(rows)))
        axis = figure.subplots()
        colours = LinearSegmentedColormap.from_list("wrong", [RIGHT, "#f6f3ee", WRONG])
        colours.set_bad(NOTHING)
        axis.imshow(np.ma.masked_invalid(error), cmap=colours, vmin=0.0, vmax=1.0, aspect="auto")
        for i, cells in enumerate(shown):
            for j, cell in enumerate(cells):
                axis.text(j, i, show_cell(cell), ha="center", va="center", fontsize=7.5)
        axis.set_xticks(
            range(len(matrix.columns)),
            [column.name for column in matrix.columns],
            rotation=35,
            ha="left",
            rotation_mode="anchor",
        )
        axis.set_yticks(range(len(rows)), [row.name for row in rows])
        axis.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        axis.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axis.set_xticks(np.arange(len(matrix.columns) + 1) - 0.5, minor=True)
        axis.grid(False)
        axis.grid(True, which="minor", color="white", linewidth=1.5)
        axis.tick_params(which="minor", length=0)
        axis.spines[:].set_visible(False)
        starts = np.cumsum([0, *(len(members) for _, members in families)])
        for start, (family, _) in zip(starts, families, strict=False):
            axis.text(len(matrix.columns) - 0.4, start, family, va="center", fontsize=7.5, color="#555555")
            if start:
                axis.axhline(start - 0.5, color="#555555", linewidth=0.8)
        axis.legend(
            handles=[
                Patch(color=RIGHT, label="right answer"),
                Patch(color=WRONG, label="wrong answer"),
                Patch(color=NOTHING, label="– not seen: drafts are drawn by the test"),
            ],
            loc="upper left",
            bbox_to_anchor=(0.0, -0.01),
            ncols=3,
        )
        figure.suptitle(
            "Fraction of runs in which a test lets a verifier pass",
            x=0.01,
            ha="left",
            fontweight="bold",
            fontsize=11,
        )
        return figure
