"""Where the article's numbers come from: tables of experiments, and what the package ships."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments._kept import kept, kept_provenance
from experiments._tables import read_table
from experiments.audit import audit_calibration, audit_power, diagnosis
from experiments.audit.kill_matrix import KillMatrix, kept_matrix
from experiments.literature.published.recomputed import Row, published

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Sources:
    """The folder of the figures, whose tables are in it, and whether these are the fast ones."""

    figures: Path
    fast: bool

    def rows(self, name: str, **values: Any) -> Rows:
        """Rows of an experiment's table that have these values. Raises MissingTable or ValueError, as
        `read_table`."""
        found = read_table(name, self.figures / "tables", fast=self.fast).to_pylist()
        return [row for row in found if all(row[column] == value for column, value in values.items())]

    @cached_property
    def matrix(self) -> KillMatrix:
        return kept_matrix()

    @cached_property
    def version(self) -> str:
        return str(kept_provenance("kill_matrix")["specsim"])

    @cached_property
    def power(self) -> dict[str, Any]:
        """The rows of `audit_power` and `audit_calibration`, with the columns of the best case and of the run
        apart."""
        mistakes = []
        for row in kept("audit_power"):
            found = {"name": row["mistake"], "family": row["family"], "first_level": row["first_level"]}
            best = {name: row[name] for name in ("tv", "needed")} if row["case"] else None
            run = {"level": row["run_level"], "steps": row["run_steps"], "runs": row["runs"]}
            ran = {"run": run | {"rejected": row["rejected"]}} if row["runs"] else {}
            mistakes.append(found | {"best": best} | ran)
        calibration = kept("audit_calibration")
        for row in calibration:
            row["bins"] = [row[f"bin_{k}"] for k in range(audit_calibration.BINS)]
        return {
            "claimed": audit_power.CLAIMED,
            "mistakes": mistakes,
            "calibration_budget": audit_calibration.BUDGET,
            "calibration": [row for row in calibration if row["kind"] != "whole audits"],
            "whole": [row for row in calibration if row["kind"] == "whole audits"],
        }

    @cached_property
    def diagnoses(self) -> dict[str, Any]:
        """The rows of `diagnosis`, without the columns that are None where nothing was diagnosed."""
        rows = [
            {name: value for name, value in row.items() if value is not None} for row in kept("diagnosis")
        ]
        return {"level": diagnosis.LEVEL, "rows": rows}

    @cached_property
    def rules(self) -> dict[str, Any]:
        return _shipped("rules")

    @cached_property
    def published(self) -> list[Row]:
        return published()


def _shipped(name: str) -> dict[str, Any]:
    return json.loads(files("specsim").joinpath(f"data/{name}.json").read_text(encoding="utf-8"))


def the(rows: Rows, where: Callable[[dict[str, Any]], bool] = lambda row: True) -> dict[str, Any]:
    """The one row that `where` accepts. Raises ValueError without a row, or with several."""
    (row,) = filter(where, rows)
    return row


def hold(sentence: str, condition: bool) -> None:
    """Refuse to fill in numbers where they would make a sentence of the article false."""
    if not condition:
        raise ValueError(
            f"the article says: {sentence}; its tables do not. Change paper.tex, and what checks it"
        )
