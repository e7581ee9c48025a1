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
from experiments.audit._criteria import FOUND
from experiments.audit.independent_set import BANDS
from experiments.audit.kill_matrix import KillMatrix, kept_matrix
from experiments.engines.engine_code import ON_A_GPU
from experiments.literature.published.recomputed import Row, published

Rows = list[dict[str, Any]]
#: The distribution package of what is specsim's own.
OWN = "specsim-decoding"


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
    def unseen(self) -> dict[str, Rows]:
        """The subjects of independent authors that were audited, by kind, with `found`; wrong ones of a total
        variation that counts."""
        by_kind: dict[str, Rows] = {}
        for row in kept("independent_set"):
            if row["verdict"] and (row["tv"] is None or row["tv"] >= BANDS[1]):
                by_kind.setdefault(row["kind"], []).append(row | {"found": row["verdict"] in FOUND})
        return by_kind

    @cached_property
    def code(self) -> Rows:
        """The rows of `engine_code` without its controls, which are specsim's own."""
        return [row for row in kept("engine_code") if row["origin"] != OWN]

    @cached_property
    def on_a_gpu(self) -> dict[str, Any]:
        return json.loads(ON_A_GPU.read_text(encoding="utf-8"))

    @cached_property
    def served(self) -> dict[str, Rows]:
        """The rows of `engines` by subject, without specsim's own server."""
        subjects: dict[str, Rows] = {}
        for row in kept("engines"):
            if row["package"] != OWN:
                subjects.setdefault(row["subject"], []).append(row)
        return subjects

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
