"""The mutations of tests/mutations belong to the code as it is: each is found once, where its tests look."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_code_of_each_mutation_is_found(monkeypatch):
    spec = importlib.util.spec_from_file_location("mutations_run", ROOT / "tests/mutations/run.py")
    program = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutations_run", program)
    spec.loader.exec_module(program)
    table = program.read_table()
    assert len(table) >= 80
    assert all(Path(ROOT / test).exists() for mutation in table for test in mutation.tests.split())
