"""`specsim methods`, and the options that take drafting systems."""

import json

import pytest
from commands import run

from specsim.simulation import methods


def test_the_list_has_every_system_and_what_is_left_out():
    found = run("methods")
    assert found.code == 0
    rows = json.loads(run("methods", "--json").out)
    assert [row["method"] for row in rows] == methods.names()
    for row in rows:
        assert f"{row['method']}: " in found.out
        assert row["modelled"].endswith(".")
        assert row["not_modelled"].endswith(".")
        assert {one["name"] for one in row["parameters"]} >= {"size"}


def test_a_system_is_simulated():
    options = ("--steps", "200", "--seed", "1", "--json")
    found = json.loads(run("simulate", "zipf:vocab_size=20", "--method", "spectr:drafts=3", *options).out)
    assert found["method"] == "spectr:drafts=3,gamma=4,size=0.0101"
    assert found["rule"] == "k_seq"


def test_systems_are_compared(tmp_path):
    picture = tmp_path / "methods.png"
    options = ("--steps", "200", "--seed", "1", "--batch", "8", "--context", "0", "-o", str(picture))
    found = run("compare", "zipf:vocab_size=20", "--method", "autoregressive", "--method", "spectr", *options)
    assert found.code == 0, found.err
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("simulate zipf --method medusa --gamma 3", "--gamma has no effect with --method"),
        ("simulate zipf --method medusa --rule block", "--rule has no effect with --method"),
        ("simulate zipf --method nosuch", "unknown method 'nosuch'"),
        ("compare zipf --methods all --rule block", "--rule has no effect with --method"),
        ("compare zipf --methods all --sweep", "--sweep has no effect with --method"),
        ("compare zipf --batch 4", "--batch has no effect without --method"),
        ("compare zipf --method medusa --batch 0", "batch: 0 is not at least 1"),
    ],
)
def test_what_is_refused(command, said):
    found = run(*command.split())
    assert found.code == 2
    assert said in found.err
