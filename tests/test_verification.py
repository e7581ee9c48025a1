"""One step on given arrays: the accept test, the whole step, and every way of handing over something else."""

import numpy as np
import pytest

from specsim import rules
from specsim.streams import Purpose, key_of, uniform
from specsim.verification import speculative_accept, verify


def rows(size, vocab_size, entries, fill=0.1):
    """Rows that hold `fill` everywhere but at `entries` {(row, token): value}; they need not sum to 1."""
    array = np.full((size, vocab_size), fill)
    for place, value in entries.items():
        array[place] = value
    return array


# --- speculative_accept ----------------------------------------------------------------------------------

HALVES = np.array([0.5, 0.5, 0.5])


def test_reference_example_second_token_rejected():
    p = rows(3, 8, {(0, 5): 0.6, (1, 2): 0.1})
    q = rows(3, 8, {(0, 5): 0.3, (1, 2): 0.5})
    assert speculative_accept([5, 2, 7], p, q, HALVES) == [5]


def test_all_tokens_accepted_when_target_dominates_draft():
    p = rows(3, 8, {(0, 5): 0.6, (1, 2): 0.7, (2, 7): 0.8})
    q = rows(3, 8, {(0, 5): 0.3, (1, 2): 0.2, (2, 7): 0.8})
    assert speculative_accept([5, 2, 7], p, q, np.array([0.99, 0.5, 0.999])) == [5, 2, 7]


def test_first_token_rejected_gives_empty_prefix():
    p, q = rows(3, 8, {(0, 5): 0.1}), rows(3, 8, {(0, 5): 0.9})
    assert speculative_accept([5, 2, 7], p, q, HALVES) == []


def test_ratio_capped_at_one():
    p, q = rows(2, 4, {(0, 1): 0.9, (1, 2): 0.3}), rows(2, 4, {(0, 1): 0.1, (1, 2): 0.3})
    assert speculative_accept([1, 2], p, q, np.array([1.0, 1.0])) == [1, 2]


def test_acceptance_halts_at_the_first_rejection_mid_sequence():
    p = rows(4, 8, {(1, 2): 0.01})
    q = rows(4, 8, {(1, 2): 0.9})
    assert speculative_accept([5, 2, 7, 1], p, q, np.array([0.5, 0.5, 0.0, 0.0])) == [5]


def test_a_uniform_equal_to_the_ratio_accepts():
    p, q = [[0.25, 0.75]], [[0.5, 0.5]]
    assert speculative_accept([0], p, q, [0.5]) == [0]
    assert speculative_accept([0], p, q, [np.nextafter(0.5, 1)]) == []


def test_the_accept_test_lets_an_impossible_token_through_at_r_zero_and_verify_cannot():
    p, q = [[1.0, 0.0]], [[0.5, 0.5]]
    assert speculative_accept([1], p, q, [0.0]) == [1]
    assert speculative_accept([1], p, q, [2.0**-1074]) == []
    walk = rules.get("standard").walk([1], [[1.0, 0.0]] * 2, q, [0.0, 0.0])
    assert walk.tokens == [0]
    assert walk.num_accepted == 0


def test_a_ratio_too_large_for_a_float_accepts():
    assert speculative_accept([0], [[1.0]], [[5e-324]], [0.5]) == [0]


def test_no_drafted_tokens_are_accepted_whole():
    assert speculative_accept([], np.empty((0, 4)), np.empty((0, 4)), []) == []


def test_it_returns_plain_integers():
    accepted = speculative_accept(np.array([0]), np.array([[1.0]]), np.array([[1.0]]), np.array([0.5]))
    assert type(accepted) is list
    assert type(accepted[0]) is int


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [[0.5, -0.5], [0.5, 0.5]]}, r"p, row 0, token 1: -0\.5 is not a probability"),
        ({"p": [[0.5, 0.5], [np.nan, 0.5]]}, "p, row 1, token 0: nan is not a probability"),
        ({"q": [[0.5, 0.5], [0.5, np.inf]]}, "q, row 1, token 1: inf is not a probability"),
        ({"q": [[0.5, 0.5]]}, r"p \(2, 2\) and q \(1, 2\) must share one shape \[L, V\]"),
        ({"p": [0.5, 0.5], "q": [0.5, 0.5]}, r"p \(2,\) and q \(2,\) must share"),
        ({"draft_tokens": [0, 2]}, r"draft_tokens, position 1: token 2 is outside the vocabulary \[0, 2\)"),
        ({"draft_tokens": [-1, 0]}, "draft_tokens, position 0: token -1 is outside"),
        (
            {"draft_tokens": [0]},
            r"draft_tokens \(1,\) and r \(2,\) must hold one entry for each of the 2 rows",
        ),
        ({"r": [0.5]}, r"draft_tokens \(2,\) and r \(1,\)"),
        ({"r": [0.5, 1.5]}, r"r, position 1: 1\.5 is not a uniform"),
        ({"r": [-0.1, 0.5]}, r"r, position 0: -0\.1 is not a uniform"),
        ({"r": [0.5, np.nan]}, "r, position 1: nan is not a uniform"),
        ({"q": [[0.5, 0.5], [0.0, 1.0]]}, "draft_tokens, position 1: token 0 has q = 0"),
    ],
)
def test_speculative_accept_names_what_is_wrong(change, message):
    arguments = {"draft_tokens": [0, 0], "p": [[0.5, 0.5]] * 2, "q": [[0.5, 0.5]] * 2, "r": [0.5, 0.5]}
    with pytest.raises(ValueError, match=message):
        speculative_accept(**arguments | change)


def test_q_zero_after_a_rejection_is_never_looked_at():
    p, q = [[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
    assert speculative_accept([0, 0], p, q, [0.5, 0.5]) == []


def test_speculative_accept_wants_integer_tokens():
    with pytest.raises(TypeError, match="expected integer token ids"):
        speculative_accept([0.0], [[1.0]], [[1.0]], [0.5])


# --- verify ----------------------------------------------------------------------------------------------


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


def test_a_batch_is_the_same_padded_with_minus_one():
    tokens, p, q = random_batch(200, 3, 5)
    batch = verify(tokens, p, q, rng=4)
    assert batch.tokens.dtype == batch.num_accepted.dtype == np.int64
    assert batch.tokens.shape == (200, 4)
    assert set(batch.num_accepted.tolist()) == {0, 1, 2, 3}
    for b, n in enumerate(batch.num_accepted.tolist()):
        assert batch.tokens[b, :n].tolist() == tokens[b, :n].tolist()
        assert 0 <= batch.tokens[b, n] < 5
        assert (batch.tokens[b, n + 1 :] == -1).all()


def test_row_b_of_a_batch_is_step_b_of_its_stream():
    tokens, p, q = random_batch(100, 3, 5, seed=1)
    batch, standard = verify(tokens, p, q, rng=9), rules.get("standard")
    for b in range(len(tokens)):
        u = [uniform(key_of(9), Purpose.VERIFY, b, i) for i in range(standard.uniforms(3))]
        walk = standard.walk(tokens[b].tolist(), p[b].tolist(), q[b].tolist(), u)
        assert batch.tokens[b, : walk.num_accepted + 1].tolist() == walk.tokens
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


def test_one_token_in_the_vocabulary_is_accepted():
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


HALF = [0.5, 0.5]
OFF = np.array([[0.5, 0.4902], HALF], dtype=np.float16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [HALF]}, r"p: shape \(1, 2\), expected \(2, 2\) .* \(p has one row more"),
        ({"p": [HALF] * 3}, r"p: shape \(3, 2\), expected \(2, 2\)"),
        ({"q": [HALF] * 2}, r"q: shape \(2, 2\), expected \(1, 2\) for draft_tokens of shape \(1,\)"),
        ({"q": [[0.5, 0.25, 0.25]]}, r"q: shape \(1, 3\), expected \(1, 2\)"),
        ({"draft_tokens": [[0]]}, r"p: shape \(2, 2\), expected \(1, 2, 2\)"),
        ({"draft_tokens": 0}, r"draft_tokens: shape \(\) is neither \[γ\] nor \[B, γ\]"),
        ({"draft_tokens": [[[0]]]}, r"draft_tokens: shape \(1, 1, 1\) is neither"),
        ({"p": [HALF, [1.5, -0.5]]}, r"p, row 1, token 1: -0\.5 is not a probability"),
        ({"q": [[np.nan, 1.0]]}, "q, row 0, token 0: nan is not a probability"),
        ({"p": [[1.0, np.inf], HALF]}, "p, row 0, token 1: inf is not a probability"),
        ({"p": [HALF, [0.5, 0.4]]}, r"p, row 1: sums to 0\.9, off by -0\.1 .*pass normalise\(p\)"),
        ({"q": [[2.0, 6.0]]}, r"q, row 0: sums to 8, off by 7"),
        ({"p": OFF}, r"p, row 0: sums to 0\.990\d*, off by -0\.0\d+ \(float16 rounding allows 0\.002\)"),
        ({"draft_tokens": [2]}, r"draft_tokens, position 0: token 2 is outside the vocabulary \[0, 2\)"),
        ({"draft_tokens": [-1]}, "draft_tokens, position 0: token -1 is outside"),
        ({"q": [[0.0, 1.0]]}, "draft_tokens, position 0: token 0 has q = 0, so it was not drawn from q"),
        ({"draft_tokens": [], "p": [HALF], "q": np.empty((0, 2))}, r"no token was drafted \(γ = 0\)"),
        ({"rule": "standrad"}, "unknown rule 'standrad'; did you mean 'standard'"),
        ({"rule": ""}, "unknown rule ''; did you mean"),
        ({"rng": -1}, "rng: a seed must be at least 0, got -1"),
    ],
)
def test_verify_names_what_is_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        verify(**{"draft_tokens": [0], "p": [HALF, HALF], "q": [HALF]} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"p": [[[0.5, 0.5], [0.5, 1.0]]] * 3},
            r"p, row \(0, 1\): sums to 1\.5, off by 0\.5",
        ),
        ({"draft_tokens": [[0], [0], [7]]}, r"draft_tokens, position \(2, 0\): token 7 is outside"),
        ({"draft_tokens": [[0], [1], [0]]}, r"draft_tokens, position \(1, 0\): token 1 has q = 0"),
        ({"p": np.full((2, 2, 2), 0.5)}, r"p: shape \(2, 2, 2\), expected \(3, 2, 2\)"),
        (
            {"draft_tokens": np.empty((0, 1), int), "p": np.empty((0, 2, 2)), "q": np.empty((0, 1, 2))},
            r"draft_tokens: shape \(0, 1\) is an empty batch",
        ),
        (
            {"draft_tokens": np.empty((3, 0), int), "p": np.full((3, 1, 2), 0.5), "q": np.empty((3, 0, 2))},
            r"no token was drafted \(γ = 0\)",
        ),
    ],
)
def test_verify_names_the_place_in_a_batch(change, message):
    q = [[[0.5, 0.5]], [[1.0, 0.0]], [[0.5, 0.5]]]
    arguments = {"draft_tokens": [[0]] * 3, "p": np.full((3, 2, 2), 0.5), "q": q}
    with pytest.raises(ValueError, match=message):
        verify(**arguments | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draft_tokens": [0.0]}, "draft_tokens: expected integer token ids, got float64"),
        ({"p": [["a", "b"]] * 2}, "p: expected real probabilities"),
        ({"rule": None}, "rule: expected a name such as 'standard', got NoneType"),
        ({"rng": 1.5}, "rng: expected an int, .* got float"),
    ],
)
def test_verify_refuses_wrong_types(change, message):
    with pytest.raises(TypeError, match=message):
        verify(**{"draft_tokens": [0], "p": [HALF, HALF], "q": [HALF]} | change)


def test_float16_rows_that_sum_to_one_up_to_their_rounding_are_taken():
    q = np.random.default_rng(1).dirichlet(np.ones(300)).astype(np.float16)
    assert 0 < abs(q.astype(np.float64).sum() - 1) < 2e-3
    token = int(q.argmax())
    assert verify([token], np.array([q, q]), q[None], rng=0).num_accepted == 1
