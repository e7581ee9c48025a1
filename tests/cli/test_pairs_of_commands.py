"""Which pairs a command takes, and with which numbers where none are given."""

import json

import numpy as np
import pytest
from commands import help_of, run, says

import specsim


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a trace of whole rows, and one of truncated rows of a single text."""
    folder = tmp_path_factory.mktemp("pairs")
    pair = specsim.default_pair()
    specsim.decoding.record(folder / "whole", *pair, gamma=3, steps=40, rng=1)
    specsim.decoding.record(folder / "cut", *pair, gamma=2, steps=20, top=8, rng=1)
    return folder


@pytest.mark.parametrize(
    ("command", "vocab_size", "nodes"),
    [
        ("prove", 8, 2), ("prove zipf", 8, 2), ("prove zipf --vocab-size 4", 4, 2),
        ("prove zipf:vocab_size=5 --gamma 3", 5, 3), ("prove zipf --tree 2,1 --rule traversal", 8, 4),
        ("prove ngram", 256, 1), ("prove zipf:vocab_size=100", 100, 1),
    ],
)  # fmt: skip
def test_prove_enumerates_what_it_can_where_no_numbers_are_given(command, vocab_size, nodes):
    proof = json.loads(says("{", *command.split(), "--json"))
    assert (proof["vocab_size"], len(proof["draft"]["parents"]), proof["exact"]) == (vocab_size, nodes, True)


def test_the_rows_of_models_are_rounded_to_what_sums_to_one():
    assert run("prove", "ngram", "--rule", "pointwise_envelope").code == 1
    assert run("prove", "ngram:top_k=8", "--rule", "greedy_match", "--json").code == 0
    with pytest.raises(ValueError, match="not exactly 1"):
        specsim.prove(*specsim.default_pair(), gamma=1)


def test_prove_says_its_own_numbers():
    shown = " ".join(help_of(("prove",)).replace("│", " ").split())
    assert "Default: 8" in shown
    assert "Default: 2, or 1 if there are more than 64 tokens" in shown
    for other in ("Default: 5", "1000", "trace logged"):
        assert other not in shown


@pytest.mark.parametrize(
    "command", ["simulate whole", "simulate cut", "simulate transformers", "simulate ngram-trace"]
)
def test_as_many_tokens_are_drafted_as_a_trace_logged(command, here):
    logged = {"whole": 3, "cut": 2, "transformers": 4, "ngram-trace": 4}[command.split()[-1]]
    assert json.loads(says("{", *command.split(), "--json", cwd=here))["gamma"] == logged


def test_a_seed_is_taken_where_documents_are_resampled(here):
    one, other = (run("simulate", "transformers", "--seed", seed, "--json").out for seed in "12")
    assert json.loads(one)["intervals"] != json.loads(other)["intervals"]
    assert json.loads(one)["tokens_per_step"] == json.loads(other)["tokens_per_step"]
    documents = specsim.traces.expect_tokens(specsim.open_trace(here / "cut"), rng=0).documents
    assert (run("simulate", "cut", "--seed", "1", cwd=here).code == 0) == (documents > 1)


@pytest.mark.parametrize(
    "command",
    ["compare whole --rule standard --rule block --steps 100", "simulate whole --over gamma=1,2 --steps 100", "replay whole --step 3 --seed 1",
     "simulate whole --over rule=standard,block --steps 100", "plan whole --c 0.1", "plan cut --c 0.1"],
)  # fmt: skip
def test_a_trace_is_a_pair(command, here):
    says("\n", *command.split(), cwd=here)


@pytest.mark.parametrize(
    "command", ["compare {}", "simulate {} --over gamma=1", "replay {} --step 1 --seed 1"]
)
def test_truncated_rows_are_refused_with_what_to_give(command, here):
    for name in ("cut", "transformers"):
        said = says("give a trace with whole rows", *command.format(name).split(), cwd=here, code=2)
        assert "specsim simulate" in said


@pytest.mark.parametrize("command", ["prove {}", "audit standard --pair {} --level smoke"])
@pytest.mark.parametrize("name", ["whole", "transformers", "hf:one,two@prompts.txt"])
def test_where_a_trace_cannot_serve_it_is_said_what_can(command, name, here):
    said = says(f"{name}: rows logged along a text", *command.format(name).split(), cwd=here, code=2)
    assert "takes two pmfs, such as zipf or mine.npz, or two models" in said


def test_functions_say_the_same():
    trace = specsim.models.Pair(specsim.traces.default_trace(), None)
    with pytest.raises(TypeError, match=r"target: a pair without a draft, as a trace is; give two pmfs"):
        specsim.prove(trace)
    with pytest.raises(ValueError, match=r"pair: a pair without a draft, as a trace is; give two pmfs"):
        specsim.audit("standard", "smoke", rng=1, pair=trace)


def test_trees_are_decoded():
    words = "generate --tree 2,1 --rule traversal --seed 1 --max-new-tokens 10 --json"
    assert run(*words.split()).code == 0


def test_few_positions_are_simulated_with_as_many_tokens_as_they_allow(tmp_path):
    np.savez(tmp_path / "few.npz", p=np.eye(4)[:3], q=np.eye(4)[:3])
    found = run("simulate", "few.npz", "--steps", "10", "--json", cwd=tmp_path)
    assert json.loads(found.out)["gamma"] == 2


def test_a_rule_is_proved_or_refuted(tmp_path):
    command = "prove", "zipf:vocab_size=4", "--json", "--rule"
    assert json.loads(says("{", *command, "pointwise_envelope", code=1))["as_claimed"] is False
    assert json.loads(says("{", *command, "lenience:lenience=0.5"))["exact"] is False
    np.savez(tmp_path / "mine.npz", p=[0.5, 0.3, 0.2], q=[0.2, 0.3, 0.5])
    assert "0, exactly" in run("prove", "mine.npz", "--tree", "2,1", "--rule", "traversal", cwd=tmp_path).out


def test_a_pair_of_pmfs_is_rounded_to_rows_that_sum_to_one():
    p, q = [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]
    assert specsim.prove(specsim.models.Pair(np.array(p), np.array(q)), gamma=2).exact
    assert specsim.prove(specsim.models.Pair(p, q), gamma=1).exact
    with pytest.raises(ValueError, match="not exactly 1"):
        specsim.prove(specsim.models.TableModel(p), specsim.models.TableModel(q), gamma=1)
    with pytest.raises(TypeError, match="draft: a pair as target brings its own draft"):
        specsim.prove(specsim.models.Pair(p, q), specsim.models.TableModel(q))
    with pytest.raises(TypeError, match="differ in kind"):
        specsim.prove(specsim.models.TableModel(p))
