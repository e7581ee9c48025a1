"""`specsim prove`, and pairs of pmfs in `specsim.prove`."""

import json

import numpy as np
import pytest
from commands import run

import specsim
from specsim.models import Pair, TableModel


def test_a_rule_is_proved_or_refuted(tmp_path):
    proved = run("prove", "zipf:vocab_size=4", "--rule", "block", "--gamma", "2", "--json")
    assert proved.code == 0
    assert json.loads(proved.out)["exact"] is True
    assert json.loads(proved.out)["tv"] == "0"
    wrong = run("prove", "zipf:vocab_size=4", "--rule", "pointwise_envelope", "--json")
    assert wrong.code == 1
    assert json.loads(wrong.out)["as_claimed"] is False
    lossy = run("prove", "zipf:vocab_size=4", "--rule", "lenience:lenience=0.5", "--json")
    assert (lossy.code, json.loads(lossy.out)["exact"]) == (0, False)
    np.savez(tmp_path / "mine.npz", p=[0.5, 0.3, 0.2], q=[0.2, 0.3, 0.5])
    assert "0, exactly" in run("prove", "mine.npz", "--tree", "2,1", "--rule", "traversal", cwd=tmp_path).out
    assert "too many to enumerate" in run("prove", "ngram", "--gamma", "2").err


def test_a_pair_of_pmfs_is_rounded_to_rows_that_sum_to_one():
    p, q = [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]
    assert specsim.prove(Pair(np.array(p), np.array(q)), gamma=2).exact
    assert specsim.prove(Pair(p, q), gamma=1).exact
    with pytest.raises(ValueError, match="not exactly 1"):
        specsim.prove(TableModel(p), TableModel(q), gamma=1)
    with pytest.raises(TypeError, match="draft: a pair as target brings its own draft"):
        specsim.prove(Pair(p, q), TableModel(q))
    with pytest.raises(TypeError, match="differ in kind"):
        specsim.prove(TableModel(p))
