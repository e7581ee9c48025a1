"""The program behind the bundled trace of two transformers, on little text and for two updates."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from experiments import _transformers_trace as training
from specsim import open_trace
from specsim.models._trained_pairs import Corpus
from specsim.traces import audit_log, summarise


def test_models_are_trained_and_their_trace_is_recorded(tmp_path, monkeypatch):
    text = [f"def f{n}(x):\n    return x + {n}\n\n" * 60 for n in range(12)]
    corpus = Corpus("a test", [one.encode() for one in text[1:]], [text[0].encode()])
    monkeypatch.setattr(training, "standard_library", lambda: corpus)
    monkeypatch.setattr(training, "FOLDER", tmp_path / "work")
    monkeypatch.setitem(training.BUNDLED, "transformers", tmp_path / "trace")
    small = {"layers": 1, "width": 16, "heads": 2, "updates": 2}
    monkeypatch.setattr(training, "MODELS", {"target": small, "draft": small})
    for name, value in {"VOCAB_SIZE": 300, "TEXTS": 3, "NEW_TOKENS": 10, "EVALUATED": 2}.items():
        monkeypatch.setattr(training, name, value)
    training.main()
    trace = open_trace(tmp_path / "trace")
    facts = trace.provenance
    assert (trace.gamma, trace.top, facts["texts"], facts["source"]) == (4, 21, 3, "a test")
    assert facts["models"]["target"]["held_out_nats_per_token"] > 0
    low, high = summarise(trace).alpha_context
    assert low <= facts["alpha_context"] <= high
    assert audit_log(trace, rng=0).verdict != "biased"
    whole = open_trace(tmp_path / "work" / "whole")
    assert (whole.num_steps, whole.top) == (trace.num_steps, None)
    for mine, theirs in zip(trace.scan(), whole.scan(), strict=True):
        for name in ("context", "token", "accepted"):
            assert (getattr(mine[0], name) == getattr(theirs[0], name)).all()
