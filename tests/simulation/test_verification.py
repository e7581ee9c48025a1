"""One step on given arrays: the accept test, the whole step, and every way of handing over something else."""

import numpy as np
import pytest
from conftest import standard_step
from laws import check_step, drawn_down

from specsim import rules
from specsim.core._streams import Purpose, key_of, uniform
from specsim.core.distributions import normalise
from specsim.models import Tree, branching, chain
from specsim.simulation._verification import speculative_accept, verify


def rows(size, vocab_size, entries, fill=0.1):
    """Rows that hold `fill` everywhere but at `entries` {(row, token): value}; they need not sum to 1."""
    array = np.full((size, vocab_size), fill)
    for place, value in entries.items():
        array[place] = value
    return array


@pytest.mark.parametrize(
    ("tokens", "p", "q", "r", "accepted"),
    [
        ([5, 2, 7], {(0, 5): 0.6, (1, 2): 0.1}, {(0, 5): 0.3, (1, 2): 0.5}, [0.5] * 3, [5]),
        ([5, 2, 7], {(0, 5): 0.6, (1, 2): 0.7, (2, 7): 0.8}, {(0, 5): 0.3, (1, 2): 0.2, (2, 7): 0.8}, [0.99, 0.5, 0.999], [5, 2, 7]),
        ([5, 2, 7], {(0, 5): 0.1}, {(0, 5): 0.9}, [0.5] * 3, []),
        ([1, 2], {(0, 1): 0.9, (1, 2): 0.3}, {(0, 1): 0.1, (1, 2): 0.3}, [1.0, 1.0], [1, 2]),
        ([5, 2, 7, 1], {(1, 2): 0.01}, {(1, 2): 0.9}, [0.5, 0.5, 0.0, 0.0], [5]),
    ],
    ids=["second rejected", "all accepted", "first rejected", "ratio capped at one", "halts at the first rejection"],
)  # fmt: skip
def test_reference_examples(tokens, p, q, r, accepted):
    p, q = (rows(len(tokens), 8, entries) for entries in (p, q))
    assert speculative_accept(tokens, p, q, np.array(r)) == accepted


def test_the_accept_test_at_its_ends():
    p, q = [[0.25, 0.75]], [[0.5, 0.5]]
    assert speculative_accept([0], p, q, [0.5]) == [0]
    assert speculative_accept([0], p, q, [np.nextafter(0.5, 1)]) == []
    assert speculative_accept([0], [[1.0]], [[5e-324]], [0.5]) == [0]
    assert speculative_accept([], np.empty((0, 4)), np.empty((0, 4)), []) == []
    p, q = [[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
    assert speculative_accept([0, 0], p, q, [0.5, 0.5]) == []


def test_the_accept_test_lets_an_impossible_token_through_at_r_zero_and_verify_cannot():
    p, q = [[1.0, 0.0]], [[0.5, 0.5]]
    assert speculative_accept([1], p, q, [0.0]) == [1]
    assert speculative_accept([1], p, q, [2.0**-1074]) == []
    emitted, accepted = np.empty((2, 1), dtype=np.int32), np.empty(1, dtype=np.int64)
    drafted = np.array([[0]]), np.array([[1]])
    rules.get("standard").rows(
        *drafted, np.array([p * 2]), np.array([q]), np.zeros((2, 1)), np.empty(0), emitted, accepted
    )
    assert emitted[:, 0].tolist() == [0, -1]
    assert accepted.tolist() == [0]
    assert standard_step([1], p * 2, q, [0.0, 0.0]) == [0]


def random_batch(size, gamma, vocab_size, seed=0):
    """Drafted tokens [B, γ] with their p [B, γ+1, V] and q [B, γ, V]."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(vocab_size), (size, gamma + 1))
    q = rng.dirichlet(np.ones(vocab_size), (size, gamma))
    return rng.integers(vocab_size, size=(size, gamma)), p, q


def test_a_step_is_the_accepted_prefix_and_one_token_more():
    tokens, p, q = random_batch(200, 3, 5)
    seen = set()
    for b in range(len(tokens)):
        step = verify(tokens[b], p[b], q[b], rng=b)
        assert type(step.tokens) is list
        assert {type(token) for token in step.tokens} == {int}
        assert type(step.num_accepted) is int
        assert len(step.tokens) == step.num_accepted + 1
        assert step.tokens[:-1] == tokens[b, : step.num_accepted].tolist()
        assert (step.rule, step.root) == ("standard", b)
        seen.add(step.num_accepted)
    assert seen == {0, 1, 2, 3}


def test_row_b_of_a_batch_is_step_b_of_its_stream():
    tokens, p, q = random_batch(100, 3, 5, seed=1)
    batch, standard = verify(tokens, p, q, rng=9), rules.get("standard")
    assert batch.tokens.dtype == batch.num_accepted.dtype == np.int64
    for b in range(len(tokens)):
        u = [uniform(key_of(9), Purpose.VERIFY, b, i) for i in range(standard.uniforms(chain(3), 5))]
        step = standard_step(tokens[b].tolist(), p[b].tolist(), q[b].tolist(), u)
        assert batch.num_accepted[b] == len(step) - 1
        assert batch.tokens[b].tolist() == step + [-1] * (4 - len(step))
    assert (
        batch.tokens[0, : batch.num_accepted[0] + 1].tolist() == verify(tokens[0], p[0], q[0], rng=9).tokens
    )


@pytest.mark.parametrize("rng", [None, np.random.default_rng(3), np.random.SeedSequence(3), np.int64(3)])
def test_the_root_gives_the_same_again(rng):
    tokens, p, q = random_batch(50, 2, 4)
    first = verify(tokens, p, q, rng=rng)
    assert type(first.root) is int
    again, other = verify(tokens, p, q, rng=first.root), verify(tokens, p, q, rng=first.root + 1)
    assert np.array_equal(again.tokens, first.tokens)
    assert np.array_equal(again.num_accepted, first.num_accepted)
    assert not np.array_equal(other.tokens, first.tokens)


def test_inputs_are_not_altered():
    arguments = random_batch(20, 2, 4)
    before = [array.copy() for array in arguments]
    verify(*arguments, rng=0)
    assert all(np.array_equal(a, b) for a, b in zip(arguments, before, strict=True))


def test_extremes():
    impossible = verify([0], [[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0]], rng=0)
    assert (impossible.tokens, impossible.num_accepted) == ([1], 0)
    certain = verify([1, 0], [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]], rng=0)
    assert (certain.tokens, certain.num_accepted) == ([1, 0, 1], 2)
    step = verify([0], [[1.0], [1.0]], [[1.0]], rng=0)
    assert (step.tokens, step.num_accepted) == ([0, 0], 1)
    batch = verify([[0], [0]], [[[1.0], [1.0]]] * 2, [[[1.0]]] * 2, rng=0)
    assert batch.tokens.tolist() == [[0, 0], [0, 0]]


def test_rows_of_any_float_dtype_and_lists_are_taken():
    tokens, p, q = [1], np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([[0.5, 0.5]])
    expected = verify(tokens, p, q, rng=1).tokens
    for dtype in (np.float16, np.float32):
        assert verify(tokens, p.astype(dtype), q.astype(dtype), rng=1).tokens == expected
    assert verify(np.array(tokens, dtype=np.uint8), p.tolist(), q.tolist(), rng=1).tokens == expected
    assert verify(tokens, p[::-1][::-1], np.asfortranarray(q), rng=1).tokens == expected
    q = np.random.default_rng(1).dirichlet(np.ones(300)).astype(np.float16)
    assert 0 < abs(q.astype(np.float64).sum() - 1) < 2e-3
    assert verify([int(q.argmax())], np.array([q, q]), q[None], rng=0).num_accepted == 1


HALF = [0.5, 0.5]


def random_tree_batch(rule, tree, size=60, vocab_size=4, seed=0):
    """Drafted tokens [B, n], drawn as `tree` says, with the rows p [B, n+1, V] and q that `rule` reads."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(vocab_size), (size, tree.size + 1))
    q = rng.dirichlet(np.ones(vocab_size), (size, rule.num_rows(tree)))
    return drawn_down(rng, tree, q), p, q


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("lenience:lenience=0.3", chain(3)), ("cascade_chow", chain(3)), ("gumbel", chain(3)),
        ("k_seq", branching(2, 2)), ("k_seq", Tree((0, 1, 0, 1, 2))),
        ("without_replacement", branching(2, 2, draft_sampling="without replacement")),
        ("traversal", branching(2, 2)), ("deterministic_children", branching(3, 1, draft_sampling="top")),
    ],
)  # fmt: skip
def test_a_step_of_a_tree_goes_down_a_path_and_is_that_of_the_batch(name, tree):
    """The first step of a batch is verified with the uniforms that a single step gets."""
    rule = rules.get(name)
    tokens, p, q = random_tree_batch(rule, tree)
    batch = verify(tokens, p, q, name, rng=3, parents=tree.parents)
    assert batch.tokens.shape == (60, tree.depth + 1)
    assert batch.rule == str(rule)
    seen = set()
    for b in range(60):
        n = int(batch.num_accepted[b])
        check_step(rule, tree, batch.tokens[b], n, tokens[b], p[b])
        seen.add(n)
        single = verify(tokens[b], p[b], q[b], name, rng=b, parents=tree.parents)
        first = verify(tokens[b:][:1], p[b:][:1], q[b:][:1], name, rng=b, parents=list(tree.parents))
        assert single.tokens == first.tokens[0, : len(single.tokens)].tolist()
        assert (single.num_accepted, single.rule) == (first.num_accepted[0], str(rule))
        assert len(single.tokens) == single.num_accepted + 1
    assert seen == set(range(tree.depth + 1))


def test_parents_of_a_chain_may_be_left_out_and_lossy_rules_accept_more():
    tokens, p, q = random_batch(50, 3, 5)
    told, left_out = (verify(tokens, p, q, rng=4, parents=parents) for parents in (np.arange(3), None))
    assert np.array_equal(told.tokens, left_out.tokens)
    tokens, p, q = random_batch(500, 3, 5)
    lenient, strict = (verify(tokens, p, q, f"lenience:lenience={value}", rng=1) for value in (0.2, 1))
    assert (lenient.rule, strict.rule) == ("lenience:lenience=0.2", "lenience:lenience=1")
    assert np.array_equal(strict.tokens, verify(tokens, p, q, rng=1).tokens)
    assert (lenient.num_accepted >= strict.num_accepted).all()
    assert lenient.num_accepted.sum() > strict.num_accepted.sum()


@pytest.mark.parametrize("name", ["one_hot", "sampler_match", "greedy_match"])
def test_a_rule_that_never_reads_q_takes_none_and_any(name):
    tokens, p, q = random_batch(50, 3, 5)
    without = verify(tokens, p, None, name, rng=2)
    elsewhere = np.zeros_like(q)  # q = 0 at drafted tokens is no matter either
    elsewhere[..., 0] = 1.0
    for rows_of_q in (q, elsewhere):
        assert np.array_equal(verify(tokens, p, rows_of_q, name, rng=2).tokens, without.tokens)
    single = verify(tokens[0], p[0], None, name, rng=2)
    assert single.tokens == without.tokens[0, : single.num_accepted + 1].tolist()


def test_a_tree_rule_that_never_reads_q_takes_none():
    p = np.random.default_rng(0).dirichlet(np.ones(4), 6)
    step = verify([0, 1, 2, 3, 3], p, None, "naive_matching", rng=0, parents=(0, 0, 0, 1, 2))
    assert len(step.tokens) == step.num_accepted + 1 <= 3
    with pytest.raises(ValueError, match=r"q: shape \(1, 4\) .*; give \(3, 4\)"):
        verify([0, 1, 2, 3, 3], p, p[:1], "naive_matching", rng=0, parents=(0, 0, 0, 1, 2))


def test_siblings_with_the_same_token_are_trials_of_their_own():
    """Where siblings are sampled independently; nothing of token 0 is left for a second trial here."""
    steps, p, q = 4000, [[[0.25, 0.75]] * 3] * 4000, [[HALF]] * 4000
    twice = verify([[0, 0]] * steps, p, q, "recursive_rejection", rng=0, parents=(0, 0))
    once = verify([[0]] * steps, np.array(p)[:, :2], q, rng=0)
    assert np.array_equal(
        twice.num_accepted, once.num_accepted
    )  # what is left after one rejection is token 1
    assert 0.45 < once.num_accepted.mean() < 0.55
    assert verify([0, 0], p[0], q[0], "k_seq", rng=0, parents=(0, 0)).num_accepted in (0, 1)


def test_q_zero_is_looked_for_at_the_parent_of_each_drafted_token():
    q = normalise([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    p, parents = np.full((5, 3), 1 / 3), (0, 0, 1, 2)
    assert verify([0, 1, 2, 0], p, q, "k_seq", rng=0, parents=parents).num_accepted <= 2
    with pytest.raises(ValueError, match="draft_tokens, position 3: token 1 has q = 0"):
        verify([0, 1, 2, 1], p, q, "k_seq", rng=0, parents=parents)
    with pytest.raises(ValueError, match="draft_tokens, position 2: token 0 has q = 0"):
        verify([0, 1, 0, 0], p, q, "k_seq", rng=0, parents=parents)
