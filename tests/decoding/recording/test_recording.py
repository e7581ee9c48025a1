"""Recorded traces are real trajectories, reproducible, and read back to what was simulated."""

from __future__ import annotations

import gzip
import sys
from fractions import Fraction

import numpy as np
import pytest
from refused import refuses

from specsim import default_pair, open_trace, replay, simulate
from specsim.decoding import record, record_hf
from specsim.decoding._recording.huggingface import read_prompts
from specsim.decoding._recording.models import STEPS_PER_TEXT
from specsim.models import TableModel, branching
from specsim.traces import summarise, writer


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


def test_the_first_step_of_a_text_is_that_of_a_simulation(recorded):
    """It starts at the context of that step, with its uniforms."""
    starts = np.arange(0, 500, STEPS_PER_TEXT)
    tokens, p, q = recorded.steps(starts)
    accepted = recorded.shards[0].columns.accepted.reshape(-1, recorded.gamma + 1)[starts]
    for i, step in enumerate(starts):
        told = replay(*default_pair(), step=int(step), rng=3)
        assert [node.token for node in told.nodes] == tokens[i].tolist()
        assert (accepted[i] == 1).sum() == told.num_accepted
        for j, node in enumerate(told.nodes):
            assert (p[i, j, node.token], q[i, j, node.token]) == pytest.approx((node.p, node.q), rel=1e-6)


def test_the_same_seed_records_the_same_bytes(recorded, tmp_path):
    again = record(tmp_path / "again", *default_pair(), steps=500, rng=3)
    for one, other in zip(recorded.shards, again.shards, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()


def test_summary_and_frozen_simulation_agree(recorded):
    summary = summarise(recorded)
    run = simulate(recorded, gamma=5, steps=20_000, rng=1)
    assert run.source == "trace, frozen rows"
    assert run.alpha_context == summary.alpha_context
    error = summary.standard_errors["tokens_per_step"]
    assert abs(run.tokens_per_step - summary.tokens_per_step) < 6 * (error + run.tokens_per_step_error)


def test_a_trace_of_tables_in_half_precision(tmp_path):
    rng = np.random.default_rng(0)
    target, draft = (TableModel(rng.dirichlet(np.ones(4), size=4)) for _ in range(2))
    trace = record(tmp_path / "trace", target, draft, gamma=2, steps=50, dtype="bfloat16", rng=1)
    assert (trace.num_steps, trace.gamma, trace.dtype, trace.complete) == (50, 2, "bfloat16", True)


@pytest.mark.parametrize(
    "rule",
    [
        "lenience:lenience=0.2",
        "cascade_token:alpha=0.5",  # reads q at the bonus position
        pytest.param("gumbel", marks=pytest.mark.slow),
        pytest.param("one_hot", marks=pytest.mark.slow),
    ],
)
def test_a_trace_of_another_rule(rule, recorded, tmp_path):
    target, draft = default_pair()
    trace = record(tmp_path / "trace", target, draft, steps=200, rule=rule, rng=3)
    assert (trace.num_steps, trace.gamma, trace.complete) == (200, 5, True)
    assert trace.provenance["rule"] == rule
    first, of_standard = (found.steps(np.arange(1)) for found in (trace, recorded))
    for one, other in zip(first, of_standard, strict=True):  # the same draft, until a step ends otherwise
        assert np.array_equal(one, other)
    assert not np.array_equal(trace.steps(np.arange(200))[0], recorded.steps(np.arange(200))[0])
    tokens_per_step = summarise(trace).tokens_per_step
    run = simulate(target, draft, rule=rule, steps=2000, rng=1)
    assert abs(tokens_per_step - run.tokens_per_step) < 1  # not the same contexts
    if rule.startswith("lenience"):
        assert tokens_per_step > summarise(recorded).tokens_per_step


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


def test_numbers_of_numpy_are_numbers(tmp_path):
    counts = {"gamma": np.int64(2), "steps": np.int32(5), "top": np.int64(3)}
    found = record(tmp_path / "a", *default_pair(), rng=1, **counts)
    same = record(tmp_path / "b", *default_pair(), rng=1, **{name: int(n) for name, n in counts.items()})
    assert summarise(found).to_dict() == summarise(same).to_dict()
    with writer(tmp_path / "c", vocab_size=2, gamma=1, provenance={"temperature": np.float32(0.5)}):
        pass
    with (
        pytest.raises(TypeError, match="provenance: JSON cannot hold a Fraction"),
        writer(tmp_path / "d", vocab_size=2, gamma=1, provenance={"temperature": Fraction(1, 2)}),
    ):
        pass


def test_bad_arguments(tmp_path, recorded):
    for error, what, given in (
        (ValueError, "steps", {"steps": 0}),
        (ValueError, "gamma", {"gamma": 0}),
        (TypeError, "gamma: expected an int, got Tree", {"gamma": branching(2), "rule": "k_seq"}),
        (ValueError, "k_seq chooses between several drafts, and a chain is a single", {"rule": "k_seq"}),
        (ValueError, r"lenience = 3\.0 is outside \(0, 1\]", {"rule": "lenience:lenience=3"}),
        (ValueError, "unknown rule 'k_sec'; did you mean 'k_seq'", {"rule": "k_sec"}),
        (TypeError, "top: expected an int, got str", {"steps": 5, "top": "2"}),
    ):
        with pytest.raises(error, match=what):
            record(tmp_path / "a", *default_pair(), **given)
    assert not (tmp_path / "a").exists()
    with pytest.raises(FileExistsError):
        record(recorded.path, *default_pair(), steps=5)
    refuses("exceeds the 5 drafted tokens of a logged step", simulate, recorded, gamma=6)
    refuses("has its own q", simulate, recorded, [0.5, 0.5], error=TypeError)


def test_without_torch_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"big: torch or .* is missing .*; pip install both"):
        record_hf(tmp_path / "trace", "big", "small", ["import"])
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["prompts.txt", "prompts.jsonl"])
@pytest.mark.parametrize("encoding", ["gzip", "utf-16", "latin-1"])
def test_prompts_that_are_not_utf_8_are_named(name, encoding, tmp_path):
    text, path = '{"prompt": "déjà vu"}\n', tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding))
    refuses(rf"{name}(:1)?: (not (text in )?UTF-8,? at byte \d+; convert|compressed)", read_prompts, path)
    path.write_bytes(text.encode())
    assert read_prompts(path) == ["déjà vu" if name.endswith(".jsonl") else text.strip()]
