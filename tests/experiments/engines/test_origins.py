"""Adapters of the code of research, without that code: what is missing is named."""

import sys

import pytest
from refused import refuses

import experiments
from experiments.engines import _origins, engine_code, gpt_fast
from specsim import audit
from specsim.adapters import EngineMissing, is_engine
from specsim.auditing._verifier.child import load

RESEARCH = [one for one in engine_code.SUBJECTS[:-2] if not is_engine(one.engine)]


def test_modules_without_a_title_are_no_experiments():
    assert {"engine_code", "engines", "kill_matrix"} <= set(experiments.names())
    assert not {"sequoia", "eagle", "_origins", "_models"} & set(experiments.names())


@pytest.mark.parametrize("subject", RESEARCH, ids=lambda one: one.engine)
def test_what_is_missing_is_named_with_the_way_to_get_it(subject, monkeypatch, tmp_path):
    monkeypatch.setattr(_origins, "CLONES", tmp_path)
    if subject.origin.is_here:
        pytest.skip("installed")
    with pytest.raises(EngineMissing, match=r"(?s) is not there \(.*\); .*(install|clone)") as raised:
        load(subject.engine)
    if isinstance(subject.origin, _origins.Clone):
        assert f"git clone https://github.com/{subject.origin[0]} {tmp_path}" in str(raised.value)


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    """gpt-fast's adapter imports PyTorch before it reads the clone."""
    clone = tmp_path / gpt_fast.ORIGIN.repository
    clone.mkdir(parents=True)
    (clone / "generate.py").touch()
    monkeypatch.setattr(_origins, "CLONES", tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineMissing, match=r"gpt_fast:verify is not there \(.*torch.*\); pip install torch"):
        gpt_fast.verify  # noqa: B018
    with pytest.raises(AttributeError, match="gpt_fast' has no attribute 'nothing'"):
        gpt_fast.nothing  # noqa: B018


def test_an_audit_by_name_ends_with_what_is_missing():
    if _origins.Clone("Infini-AI-Lab/Sequoia").is_here:
        pytest.skip("there is a clone")
    refuses("Infini-AI-Lab/Sequoia is not there", audit, "experiments.engines.sequoia:verify", "smoke", rng=1)


def test_a_clone_says_of_which_commit_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(_origins, "CLONES", tmp_path)
    clone = _origins.Clone("some/repository")
    assert not clone.is_here
    (tmp_path / "some/repository").mkdir(parents=True)
    (tmp_path / "some/repository/COMMIT").write_text("0123456789abcdef")
    assert clone.is_here
    assert clone.version == "0123456"
    refuses(r"has no src/x\.py", clone.folder, "src/x.py", error=EngineMissing)
