"""Recorded traces are real trajectories, reproducible, and read back to what was simulated."""

from __future__ import annotations

import numpy as np
import pytest

from specsim import default_pair, simulate
from specsim.models import TableModel
from specsim.recording import STEPS_PER_TEXT, record
from specsim.traces import open_trace, summarise


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record(tmp_path_factory.mktemp("traces") / "trace", *default_pair(), steps=500, rng=3)


def test_steps_go_on_where_the_last_one_ended(recorded):
    """The first p row of a step is the target's row after all that came before it."""
    target, _ = default_pair()
    tokens, p, _ = recorded.steps(np.arange(STEPS_PER_TEXT))
    accepted = recorded.shards[0].columns.accepted.reshape(-1, recorded.gamma + 1)[:STEPS_PER_TEXT]
    for step in range(STEPS_PER_TEXT - 1):
        n = int((accepted[step] == 1).sum())
        # what followed the accepted tokens is not logged, but only one token leads to the next step's row
        behind = [int(x) for x in tokens[step, :n]]
        if len(behind) >= target.order - 1:
            candidates = np.array([[*behind[-(target.order - 1) :], last] for last in range(256)])
            assert np.abs(target.rows(candidates) - p[step + 1, 0]).sum(axis=1).min() < 1e-5


def test_the_same_seed_records_the_same_bytes(recorded, tmp_path):
    again = record(tmp_path / "again", *default_pair(), steps=500, rng=3)
    for one, other in zip(recorded.shards, again.shards, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()


def test_summary_and_frozen_simulation_agree(recorded):
    summary = summarise(recorded)
    run = simulate(recorded, gamma=5, steps=100_000, rng=1)
    assert run.source == "trace, frozen rows"
    assert run.alpha_context == summary.alpha_context
    error = summary.standard_errors["tokens_per_step"]
    assert abs(run.tokens_per_step - summary.tokens_per_step) < 6 * (error + run.tokens_per_step_error)


def test_a_trace_of_tables_in_half_precision(tmp_path):
    rng = np.random.default_rng(0)
    target, draft = (TableModel(rng.dirichlet(np.ones(4), size=4)) for _ in range(2))
    trace = record(tmp_path / "trace", target, draft, gamma=2, steps=50, dtype="bfloat16", rng=1)
    assert (trace.num_steps, trace.gamma, trace.dtype, trace.complete) == (50, 2, "bfloat16", True)


def test_stopping_early_leaves_a_readable_trace(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "trace", *default_pair(), steps=500, rng=3, progress=interrupt)
    trace = open_trace(tmp_path / "trace")
    assert trace.num_steps == STEPS_PER_TEXT
    assert not trace.complete
    assert all(shard.ok for shard in trace.verify())
    assert not [path for path in (tmp_path / "trace").iterdir() if "tmp" in path.name]


def test_bad_arguments(tmp_path, recorded):
    with pytest.raises(ValueError, match="steps"):
        record(tmp_path / "a", *default_pair(), steps=0)
    with pytest.raises(ValueError, match="gamma"):
        record(tmp_path / "a", *default_pair(), gamma=0)
    with pytest.raises(FileExistsError):
        record(recorded.path, *default_pair(), steps=5)
    with pytest.raises(ValueError, match="the trace logged 5 drafted tokens"):
        simulate(recorded, gamma=6)
    with pytest.raises(TypeError, match="brings its own q"):
        simulate(recorded, [0.5, 0.5])
