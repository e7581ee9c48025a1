"""The bundled trace of two small transformers: whole, honest about its α, and true to the standard rule."""

import numpy as np
import pytest
from commands import run
from refused import refuses

import specsim
from specsim.traces import audit_log, default_trace, expect_tokens, summarise


@pytest.fixture(scope="module")
def trace():
    return default_trace("transformers")


@pytest.fixture(scope="module")
def columns(trace):
    """All columns, [steps, γ+1, …]."""
    (found,) = [part for part, _ in trace.scan()]
    return type(found)(*(part.reshape(-1, trace.gamma + 1, *part.shape[1:]) for part in found))


def test_it_is_whole(trace):
    assert trace.complete
    assert all(shard.ok for shard in trace.verify())
    assert trace.num_bytes < 3_000_000
    facts = trace.provenance
    assert (facts["rule"], facts["steps"]) == ("standard", trace.num_steps)
    target, draft = facts["models"]["target"], facts["models"]["draft"]
    assert target["held_out_nats_per_token"] < draft["held_out_nats_per_token"] < np.log(trace.vocab_size)


def test_texts_are_those_that_the_manifest_counts(trace, columns):
    assert np.unique(columns.context[:, 0]).tolist() == list(range(trace.provenance["texts"]))


def test_alpha_is_that_of_the_whole_rows(trace):
    """Rows list all tokens that are sampled from, and the drafted one: what is left is rounding."""
    low, high = summarise(trace).alpha_context
    assert low <= trace.provenance["alpha_context"] <= high
    assert high - low < 0.01
    assert trace.top == trace.provenance["top_k"] + 1


def test_rows_list_all_that_is_sampled_from(columns):
    for row in (columns.p, columns.q):
        np.testing.assert_allclose(row.astype(float).sum(axis=2), 1.0, atol=5e-3)


def test_flags_and_drafts_follow_from_the_rows(trace):
    assert audit_log(trace, rng=0).verdict == "consistent"
    assert audit_log(trace, lenience=0.7, rng=0).verdict != "consistent"


def test_tokens_per_step_are_between_the_bounds_of_the_rule(trace, columns):
    emitted = (columns.accepted == 1).sum(axis=1) + 1
    error = emitted.std() / np.sqrt(len(emitted))
    low, high = expect_tokens(trace, "standard", rng=0).expected_tokens[-1]
    assert low - 4 * error < emitted.mean() < high + 4 * error
    assert expect_tokens(trace, "lenience:lenience=0.3").expected_tokens[-1][0] > emitted.mean() + 4 * error


def test_it_is_read_by_its_name(trace):
    pair = specsim.read_pair("transformers")
    assert (pair.target, pair.draft, pair.name) == (trace, None, "transformers")
    refuses("unknown bundled trace 'transformer'; did you mean 'transformers'", default_trace, "transformer")
    refuses("did you mean 'transformers'", specsim.read_pair, "transformer")
    refuses("cannot be sampled at another temperature", specsim.read_pair, "transformers:temperature=0.5")


@pytest.mark.parametrize(
    "words",
    [
        "trace info transformers", "trace alpha transformers", "trace audit transformers",
        "simulate transformers --rule block --seed 1", "plan transformers --c 0.05",
        "simulate transformers --gamma 4 --seed 1",
    ],
)  # fmt: skip
def test_commands_read_it(words):
    ran = run(*words.split())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out
