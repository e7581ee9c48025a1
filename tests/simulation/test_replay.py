"""A replayed step, in plain Python, is the step that the engine counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import standard_step, standard_steps_of_a_pair

from specsim import default_pair, replay
from specsim.core._kernels import Kernel, interpreted
from specsim.core._streams import Purpose, key_of, uniform, word
from specsim.core.distributions import dyadic, synthetic_pair
from specsim.decoding import record
from specsim.models import DynamicTree, PromptLookup, TableModel, Tree, branching, chain
from specsim.simulation._sources import make_source


def engine_steps(target, draft, gamma, steps, root, rule="standard"):
    """What the engine emits in each of the first steps, padding removed."""
    source = make_source(target, draft, rule=rule, gamma=gamma)
    emitted = []
    for batch in source.batches(key_of(root), 0, steps):
        emitted += [tuple(int(x) for x in column if x >= 0) for column in batch.tokens.T]
    return emitted


def tables():
    """A target of order 2 and a draft of order 0."""
    rng = np.random.default_rng(0)
    return TableModel(rng.dirichlet(np.ones(3), size=(3, 3))), TableModel(rng.dirichlet(np.ones(3)))


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return record(tmp_path_factory.mktemp("traces") / "trace", *default_pair(), gamma=3, steps=40, rng=4)


@pytest.mark.parametrize(
    ("kind", "gamma"),
    [("zipf", 4), ("one-hot", 4), ("two-point", 4), ("ngram", 5), ("tables", 2), ("trace", 3)],
)
def test_the_standard_rule(kind, gamma, trace):
    others = {"ngram": default_pair(), "tables": tables(), "trace": (trace, None)}
    sizes = {"zipf": 1000, "one-hot": 5, "two-point": 2}
    pair = others.get(kind) or synthetic_pair(kind, sizes[kind], 0.7, rng=0)
    for step, tokens in enumerate(engine_steps(*pair, gamma, 15, root=9)):
        assert replay(*pair, step=step, gamma=gamma, rng=9).tokens == tokens


@pytest.mark.parametrize(
    ("rule", "tree"),
    [
        ("lenience:lenience=0.5", chain(3)),
        ("cascade_token:alpha=0.5", chain(3)),
        ("gumbel", chain(2)),
        ("k_seq", branching(2, 2)),
        ("without_replacement", branching(3, 1, draft_sampling="without replacement")),
        ("traversal", Tree((0, 1, 0, 2, 2))),
        ("deterministic_children", branching(2, 1, draft_sampling="top")),
    ],
)
def test_other_rules_and_trees(rule, tree):
    for pair in (synthetic_pair("zipf", 20, 0.7, rng=0), tables(), default_pair()):
        for step, tokens in enumerate(engine_steps(*pair, tree, 10, root=9, rule=rule)):
            told = replay(*pair, step=step, rule=rule, gamma=tree, rng=9)
            assert told.tokens == tokens
            assert told.num_accepted == len(tokens) - 1
            assert told.rule == rule
            assert tuple(node.parent for node in told.nodes) == tree.parents
            assert is_path(told)


def is_path(told):
    """Whether the accepted tokens lie one below the other among the drafted nodes."""
    alike = {0}
    for token in told.tokens[:-1]:
        alike = {j for j, node in enumerate(told.nodes, 1) if node.parent in alike and node.token == token}
    return bool(alike)


def test_every_number_of_a_fixed_pair_is_what_the_step_by_hand_takes():
    p, q = (dyadic(row) for row in synthetic_pair("zipf", 50, 0.7, rng=0))
    by_hand = standard_steps_of_a_pair(p, q)
    for step in range(60):
        told = replay(p, q, step=step, gamma=4, rng=9)
        high, low = (
            [word(key_of(9), purpose, step, i) for i in range(5)] for purpose in (Purpose.STEP, Purpose.REST)
        )
        numbers = [(a << 32 | b) >> 2 for a, b in zip(high, low, strict=True)]
        drafted, places, emitted = by_hand(*numbers)
        # the column, of 64, before the coin
        last, *draws = (((n >> 30) % 64 << 56 | n >> 36 << 30 | n % 2**30) / 2**62 for n in numbers)
        assert [node.u for node in told.nodes] == draws
        assert list(told.verify_uniforms) == [*map(float, places), last]
        assert [node.token for node in told.nodes] == drafted
        assert told.tokens == tuple(emitted)
        for i, node in enumerate(told.nodes):
            assert (node.parent, node.p, node.q) == (i, p[node.token], q[node.token])


def test_every_number_of_two_models_is_what_the_step_by_hand_takes():
    target, draft = default_pair()
    for step in range(30):
        told = replay(target, draft, step=step, gamma=3, rng=9)
        history = [int(token) for token in told.start.removeprefix("context [").rstrip("]").split(",")]
        drafted = [node.token for node in told.nodes]
        p = [target.row([*history, *drafted[:i]]).tolist() for i in range(4)]
        q = [draft.row([*history, *drafted[:i]]).tolist() for i in range(3)]
        for i, node in enumerate(told.nodes):
            assert (node.p, node.q) == (p[i][node.token], q[i][node.token])
            assert sum(q[i][: node.token]) <= node.u * sum(q[i]) + 1e-12  # drawn by inverse CDF
            assert sum(q[i][: node.token + 1]) >= node.u * sum(q[i]) - 1e-12
        assert list(told.verify_uniforms) == [uniform(key_of(9), Purpose.VERIFY, step, i) for i in range(4)]
        assert told.tokens == tuple(standard_step(drafted, p, q, told.verify_uniforms))


@pytest.mark.parametrize("rule", ["standard", "gumbel", "k_seq"])
def test_nothing_compiled_takes_part(monkeypatch, rule):
    tree = branching(2, 2) if rule == "k_seq" else chain(3)
    pairs = [([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), tables(), default_pair()]
    expected = [replay(*pair, step=3, rule=rule, gamma=tree, rng=1) for pair in pairs]
    monkeypatch.setattr(Kernel, "compiled", property(lambda kernel: pytest.fail(f"compiled {kernel}")))
    assert [replay(*pair, step=3, rule=rule, gamma=tree, rng=1) for pair in pairs] == expected


def test_kernels_are_interpreted_in_the_block_and_in_this_thread_only():
    kernel = Kernel(lambda: "plain", fastmath=False)
    kernel.__dict__["compiled"] = lambda: "compiled"
    assert kernel() == "compiled"
    with ThreadPoolExecutor(1) as pool, interpreted():
        assert kernel() == "plain"
        with interpreted():
            assert kernel() == "plain"
        assert kernel() == "plain"
        assert pool.submit(kernel).result() == "compiled"
    assert kernel() == "compiled"
    with pytest.raises(ZeroDivisionError), interpreted():
        raise ZeroDivisionError
    assert kernel() == "compiled"


def test_a_replay_prints_every_number_and_below_which_node_a_token_hangs():
    told = str(replay([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], step=7, gamma=2, rng=1))
    for words in (
        "step 7 of fixed pair, rule standard, seed 1",
        "Philox4x32-10",
        "draft   1: u = 0.",
        "draft   2: u = 0.",
        "verify  1: u = 0.",
        "verify  3: u = 0.",
        "p/q = ",
        "emitted [",
    ):
        assert words in told
    assert "below" not in told
    told = replay([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], step=7, rule="k_seq", gamma=branching(2, 2), rng=1)
    assert [line.partition(": u")[0] for line in told.parts() if line.startswith("draft")] == [
        "draft   1",
        "draft   2 below 0",
        "draft   3 below 1",
        "draft   4 below 1",
        "draft   5 below 2",
        "draft   6 below 2",
    ]
    assert len(told.verify_uniforms) == 7


@pytest.mark.parametrize(
    ("draft", "rule", "tree"),
    [
        (None, "deterministic_children", branching(2, 1, draft_sampling="top")),
        (None, "deterministic_children", DynamicTree(width=2, depth=2, nodes=3)),
        (PromptLookup(np.arange(100) % 7), "one_hot", chain(3)),
    ],
)
def test_drafts_that_are_not_drawn_have_no_uniform(draft, rule, tree):
    target, ngrams = default_pair()
    told = replay(target, draft or ngrams, step=8, rule=rule, gamma=tree, rng=1)
    assert [node.u for node in told.nodes] == [None] * tree.size
    lines = [line for line in told.parts() if line.startswith("draft")]
    assert len(lines) == tree.size
    assert not any("u = " in line for line in lines)
    assert all(f"token {node.token} " in line for node, line in zip(told.nodes, lines, strict=True))
    for node in told.nodes:
        assert node.q > 0


def test_a_replay_prints_no_uniform_where_none_was_drawn_and_not_one_for_every_token():
    pair, tree = ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), branching(2, draft_sampling="top")
    told = replay(*pair, step=7, rule="deterministic_children", gamma=tree, rng=1)
    assert [(node.u, node.token, node.q) for node in told.nodes] == [(None, 2, 0.5), (None, 1, 0.3)]
    told = replay(*default_pair(), step=7, rule="gumbel", gamma=2, rng=1)
    assert len(told.verify_uniforms) == 2 * 256 + 1
    assert str(told).count("verify ") == 64
    assert "… 513 in all" in str(told)


def test_the_recorded_root_of_a_run_replays_it():
    from specsim import simulate

    run = simulate([0.5, 0.5], [0.9, 0.1], gamma=1, steps=1, rng=None)
    again = replay([0.5, 0.5], [0.9, 0.1], step=0, gamma=1, rng=run.provenance.root)
    assert run.lengths[again.num_accepted] == 1
