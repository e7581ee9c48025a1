"""`specsim list`, and the options that take drafting systems."""

import json

from commands import run, says

from specsim.simulation import methods


def test_the_list_has_every_system_and_what_is_left_out():
    shown = says("\n", "list", "methods")
    rows = json.loads(run("list", "methods", "--json").out)
    assert [row["method"] for row in rows] == methods.names()
    for row in rows:
        assert f"{row['method']}: " in shown
        assert row["modelled"].endswith(".")
        assert row["not_modelled"].endswith(".")
        assert {one["name"] for one in row["parameters"]} >= {"size"}


def test_a_system_is_simulated():
    options = ("--steps", "200", "--seed", "1", "--json")
    found = json.loads(run("simulate", "zipf:vocab_size=20", "--method", "spectr:drafts=3", *options).out)
    assert found["method"] == "spectr:drafts=3,gamma=4,size=0.0101"
    assert found["rule"] == "k_seq"


def test_systems_are_compared(tmp_path):
    picture, of_methods = tmp_path / "methods.png", ("--method", "autoregressive", "--method", "spectr")
    options = ("--steps", "200", "--seed", "1", "--batch", "8", "--context", "0", "-o", str(picture))
    says("spectr", "compare", "zipf:vocab_size=20", *of_methods, *options)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_system_decodes():
    options = ("--max-new-tokens", "40", "--seed", "1", "--json")
    found = json.loads(run("generate", "--method", "lookahead:window=4", *options).out)["speculative"]
    assert found["method"] == "lookahead:window=4,ngram=5,candidates=15,size=0"
    assert found["rule"] == "naive_matching"
    assert len(found["tokens"]) == 40


def test_a_dynamic_tree_decodes_and_ends():
    how = ("--tree", "dynamic:width=3,depth=4,nodes=9", "--rule", "deterministic_children")
    options = ("--max-new-tokens", "300", "--eos", "10", "--seed", "2", "--json")
    found = json.loads(run("generate", *how, *options).out)
    assert found["speculative"]["draft"] == {"width": 3, "depth": 4, "nodes": 9, "draft_sampling": "top"}
    for one in found.values():
        assert one["tokens"].index(10) == len(one["tokens"]) - 1


def test_a_dynamic_tree_is_simulated_and_replayed():
    how = ("ngram", "--tree", "dynamic:nodes=4", "--rule", "naive_matching", "--seed", "1")
    found = json.loads(run("simulate", *how, "--steps", "100", "--json").out)
    assert found["draft"] == {"width": 10, "depth": 6, "nodes": 4, "draft_sampling": "top"}
    assert run("replay", *how, "--step", "3").code == 0


def test_tokenizers_are_compared(tmp_path):
    for name, letters in {"a": "abc", "b": "abc", "c": "acb"}.items():
        (tmp_path / name).mkdir()
        model = {"vocab": {letter: number for number, letter in enumerate(letters)}}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": model}))
    command = "list", "tokens", tmp_path / "a"
    says("the same: p and q can be compared by number", *command, tmp_path / "b")
    says("good drafts are rejected", *command, tmp_path / "c", code=1)
    says("nothing", *command, tmp_path / "nothing", code=2)
