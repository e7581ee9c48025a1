"""The table of audited engines: its page, and what every finding on it needs."""

import pytest
from test_docs import check_imports

from experiments._kept import kept
from experiments.engines import _serving, engines
from specsim import plant


def test_every_engine_was_audited_with_every_pair():
    rows = kept("engines")
    assert {(row["subject"], row["pair"]) for row in rows} == set(engines.kept_cells())
    for row in rows:
        if "contract: " not in row["findings"]:  # requests that fail, and texts that end early
            assert row["tokens"] >= engines.SUBJECTS[row["subject"]].tokens
        assert row["verdict"] != "inconclusive"
        assert (row["verdict"] == "consistent") == (row["findings"] == "")


def test_the_controls_are_told_apart():
    for row in kept("engines"):
        if engines.SUBJECTS[row["subject"]].engine == "specsim serve":
            assert row["verdict"] == ("biased" if "--mistake" in row["serve"] else "consistent")


def test_a_finding_needs_a_program_that_shows_it():
    for known in engines.REPRODUCTIONS.values():
        check_imports(known.program)
        assert known.program.count("\n") < 20
    found = {**kept("engines")[0], "findings": "dependence: two texts are equal"}
    with pytest.raises(KeyError):
        engines.page([found])


def test_a_server_is_audited(tmp_path):
    cell = ("specsim serve", "order-2")
    assert cell in engines.cells(fast=True)
    row = engines.run_cell(cell, fast=True, rng=1)
    stored = next(one for one in kept("engines") if (one["subject"], one["pair"]) == cell)
    assert row.keys() == stored.keys()
    assert (row["findings"], row["command"]) == ("", stored["command"])
    assert row["efficiency"] == pytest.approx(stored["efficiency"], abs=0.1)


def test_a_server_that_does_not_start(tmp_path):
    with (
        pytest.raises(RuntimeError, match=r"PAIR: it does not answer\n.*not a folder of planted"),
        _serving.served("specsim serve PAIR", "order-2", str(tmp_path)),
    ):
        pass


def test_pairs_are_those_of_their_commands(tmp_path):
    for name, (_, options) in engines.PAIRS.items():
        read = options.get("offsets", (1,) if "architecture" in options else (1, 2))
        assert plant(tmp_path / name, formats=("hf",), rng=1, **options).target.offsets == read
