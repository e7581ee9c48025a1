"""The table of engines under a battery: its rows, and right engines that are left alone."""

import pytest

from experiments._kept import kept
from experiments.engines import engine_batteries as batteries


def test_every_row_is_of_a_subject():
    rows = kept("engine_batteries")
    assert [(row["subject"], row["planted"]) for row in rows] == batteries.kept_cells()
    for row in rows:
        assert bool(row["accused"]) == bool(row["findings"])
        assert row["refused"] < row["audits"]


def test_right_engines_are_left_alone():
    """Of each architecture that has 200 runs, and under the settings of a battery."""
    rows = [row for row in kept("engine_batteries") if row["package"] == "specsim-decoding"]
    assert {row["audits"] for row in rows if "seeds" in row["asked"]} == {200}
    assert [row["planted"] for row in rows if row["accused"]] == []


def test_a_row_is_made_again():
    cell = ("specsim, draft model", "llama")
    assert cell in batteries.cells(fast=True)
    row = batteries.run_cell(cell, fast=True, rng=1)
    stored = next(one for one in kept("engine_batteries") if (one["subject"], one["planted"]) == cell)
    assert row.keys() == stored.keys()
    assert (row["audits"], row["findings"]) == (stored["audits"], "")


def test_one_audit_for_each_seed(monkeypatch):
    few = batteries.SUBJECTS["specsim, draft model"]._replace(runs=2, tokens=200)
    monkeypatch.setitem(batteries.SUBJECTS, "few", few)
    row = batteries.run_cell(("few", "llama"), fast=True, rng=1)
    assert (row["audits"], row["accused"], row["asked"]) == (2, 0, "2 seeds")


@pytest.mark.slow
def test_a_subject_is_served_by_commands(monkeypatch):
    commands = ["specsim serve PAIR --seed 1", "specsim serve PAIR --seed 2"]
    few = batteries.SUBJECTS["specsim, draft model"]._replace(commands=commands, options={"connections": 4})
    monkeypatch.setitem(batteries.SUBJECTS, "served", few)
    monkeypatch.setattr(batteries, "BATTERY", "small")
    row = batteries.run_cell(("served", "llama"), fast=True, rng=1)
    assert (row["audits"], row["refused"], row["findings"]) == (26, 0, "")
