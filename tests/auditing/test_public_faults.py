"""Verifiers and loops whose faults were reported in public threads: they are found, and right twins pass.

The archive beside this file has their sources, re-created from the laws that the reports describe."""

import importlib
from pathlib import Path

import pytest
from cases import cases

from specsim import audit


@pytest.mark.slow
@pytest.mark.parametrize(*cases(__file__, "twins"))
def test_a_fault_is_found_and_a_right_twin_is_not_accused(source, subject, verdict, says, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).with_suffix(".zip"))
    module, name = subject.split(":")
    function = getattr(importlib.import_module(f"public_{module}"), name)
    found = audit(function, "smoke", rng=1, fail_fast=True, diagnose=False)
    assert (found.headline().partition(": ")[2], says in str(found)) == (verdict, True), source
