"""A replayed step, in plain Python, is the step that the engine counted."""

from __future__ import annotations

import numpy as np
import pytest

from specsim import default_pair, replay
from specsim.distributions import synthetic_pair
from specsim.engine import make_source
from specsim.models import TableModel
from specsim.recording import record
from specsim.streams import key_of


def engine_steps(target, draft, gamma, steps, root):
    """What the engine emits in each of the first steps, padding removed."""
    source = make_source(target, draft, rule="standard", gamma=gamma)
    emitted = []
    for batch in source.batches(key_of(root), 0, steps):
        emitted += [[int(x) for x in column if x >= 0] for column in batch.tokens.T]
    return emitted


@pytest.mark.parametrize(("kind", "vocab_size"), [("zipf", 1000), ("one-hot", 5), ("two-point", 2)])
def test_fixed_pair(kind, vocab_size):
    p, q = synthetic_pair(kind, vocab_size, 0.7)
    for step, tokens in enumerate(engine_steps(p, q, 4, 60, root=9)):
        assert replay(p, q, step=step, gamma=4, rng=9).walk.tokens == tokens


def test_ngram_pair():
    target, draft = default_pair()
    for step, tokens in enumerate(engine_steps(target, draft, 5, 60, root=9)):
        assert replay(target, draft, step=step, rng=9).walk.tokens == tokens


def test_tables_of_different_orders():
    rng = np.random.default_rng(0)
    target, draft = TableModel(rng.dirichlet(np.ones(3), size=(3, 3))), TableModel(rng.dirichlet(np.ones(3)))
    for step, tokens in enumerate(engine_steps(target, draft, 2, 60, root=9)):
        assert replay(target, draft, step=step, gamma=2, rng=9).walk.tokens == tokens


def test_trace(tmp_path):
    trace = record(tmp_path / "trace", *default_pair(), gamma=3, steps=40, rng=4)
    for step, tokens in enumerate(engine_steps(trace, None, 3, 60, root=9)):
        assert replay(trace, step=step, gamma=3, rng=9).walk.tokens == tokens


def test_a_replay_prints_every_number():
    told = str(replay([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], step=7, gamma=2, rng=1))
    for words in ("seed 1", "Philox4x32-10", "draft   1: u = 0.", "test    1: u = 0.", "p/q = ", "emitted ["):
        assert words in told


def test_the_recorded_root_of_a_run_replays_it():
    from specsim import simulate

    run = simulate([0.5, 0.5], [0.9, 0.1], gamma=1, steps=1, rng=None)
    again = replay([0.5, 0.5], [0.9, 0.1], step=0, gamma=1, rng=run.provenance.root)
    assert run.lengths[again.walk.num_accepted] == 1


@pytest.mark.parametrize("step", [-1, 1.5, True, "3"])
def test_bad_steps(step):
    with pytest.raises(ValueError, match="step"):
        replay([0.5, 0.5], [0.9, 0.1], step=step, rng=1)
