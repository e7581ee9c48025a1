"""Engines of other packages, found through entry points: listed, and imported only when they are named."""

import importlib
import sys

import pytest
from commands import run
from refused import refused, refuses

from specsim import adapters, audit, rules
from specsim.auditing._shards import is_installed

THEIRS = """\
import numpy as np


def verifier(wrong=0):
    def verify(draft_tokens, p, q, rng):
        output = np.full((len(p), p.shape[1]), -1)
        for b, drafted in enumerate(draft_tokens):
            n = 0
            while n < len(drafted) and rng.random() * q[b, n, drafted[n]] < p[b, n, drafted[n]]:
                output[b, n] = drafted[n]
                n += 1
            weights = p[b, n] if wrong or n == len(drafted) else np.maximum(p[b, n] - q[b, n], 0.0)
            output[b, n] = rng.choice(len(weights), p=weights / weights.sum())
        return output

    return verify


def verify(draft_tokens, p, q, rng): ...


def nothing():
    return None


def failing():
    raise RuntimeError("no accelerator")
"""
CASES = ["two-point"]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install("a-package", "an-engine = module:function"), of version 1.0; its modules are THEIRS."""

    def add(package, *entries):
        folder = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("\n".join(["[specsim.engines]", *entries]))
        importlib.invalidate_caches()
        adapters._of_others.cache_clear()

    (tmp_path / "their_audits.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    yield add
    sys.modules.pop("their_audits", None)
    adapters._of_others.cache_clear()


def test_an_engine_of_another_package_is_listed_and_not_imported(install):
    install("their-package", "their-engine = their_audits:verifier")
    assert adapters.is_engine("their-engine:wrong=1")
    assert adapters.names() == sorted([*adapters.ENGINES, "their-engine"])
    out = run("list", "engines").out
    assert "their-engine" in out
    assert "their_audits:verifier, of their-package 1.0" in out
    refuses("did you mean 'their-engine'", adapters.get, "their-engin")
    assert "their_audits" not in sys.modules


def test_it_is_audited_with_its_parameters(install):
    install("their-package", "their-engine = their_audits:verifier")
    right = audit("their-engine", "smoke", rng=1, cases=CASES)
    wrong = audit("their-engine:wrong=1", "smoke", rng=1, cases=CASES, diagnose=False)
    assert not any(case.findings for case in right.cases)
    assert str(wrong.verdict) == "biased"
    assert right.origin.file.endswith("their_audits.py")
    assert "their_audits" not in sys.modules  # a child has imported it


def test_a_part_that_names_it_does_not_have_it_imported(install):
    install("their-package", "their-engine = their_audits:verifier")
    assert not is_installed("their-engine")
    assert is_installed("hf")
    assert not is_installed("vllm-ascend:source=folder")


def test_two_packages_with_one_name(install):
    install("one-package", "their-engine = their_audits:verifier")
    install("other-package", "their-engine = their_audits:verifier", "hf = their_audits:verifier")
    with pytest.raises(
        ValueError, match=r"2 packages have this name: .*one-package 1.0.*uninstall one of them"
    ):
        adapters.get("their-engine")
    refuses(r"hf: 2 packages have this name: specsim-decoding, other-package 1.0", adapters.get, "hf")
    assert "one-package 1.0" in adapters.catalogue()["their-engine"]
    assert "other-package 1.0" in run("list", "engines").out
    assert run("audit", "their-engine").code == 2
    assert "their_audits" not in sys.modules


@pytest.mark.parametrize("name", ["standard", "mine:verify", "theirs,wrong", "mine.py:verify"])
def test_names_that_are_taken_otherwise(install, name):
    """A rule stays the rule, and a function of a module that function; the list says what was left out."""
    install("their-package", f"{name} = their_audits:verifier")
    assert not adapters.is_engine(name)
    assert name not in adapters.names()
    assert "their-package 1.0" in adapters.catalogue()[name]
    assert ("2 packages" in adapters.catalogue()[name]) == (name in rules.names())


@refused(
    ("no_such_module:verifier", adapters.EngineMissing, "No module named 'no_such_module'.*install their-package 1.0"),
    ("their_audits:no_such", adapters.EngineMissing, "their_audits:no_such is not there in version"),
    ("their_audits", adapters.EngineMissing, "their_audits is not there in version"),
    ("their_audits:verify", "the parameter draft_tokens needs a number or a text as its default"),
    ("their_audits:nothing", "its entry point made None, not a verifier; let it name a function that makes one"),
    ("their_audits:failing", "its adapter raised RuntimeError: no accelerator"),
)  # fmt: skip
def test_an_entry_point_that_makes_no_verifier(entry, install):
    install("their-package", f"their-engine = {entry}")
    adapters.get("their-engine")


def test_unknown_parameters(install):
    install("their-package", "their-engine = their_audits:verifier[extra]")
    refuses("their-engine: no parameter 'rong'; it has wrong", adapters.get, "their-engine:rong=1")
    refuses("wrong: 'very' is not a", adapters.get, "their-engine:wrong=very")
