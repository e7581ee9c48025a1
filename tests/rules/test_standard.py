"""The standard rule: proved against a second implementation, its kernels against steps by hand and against
its law.

The second implementation, `algorithm_1`, is written from Leviathan, Kalman & Matias, arXiv 2211.17192,
Algorithm 1, and from nothing else; `conftest` has the steps by hand."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from conftest import (
    LAST_UNIFORM,
    PAIR_FLAVOURS,
    TINY,
    awkward_pairs,
    rational_pair,
    standard_step,
    standard_steps_of_a_pair,
)
from enumerated import conditional_laws
from fixed_pair_steps import FIRST, KEY, awkward_words, emitted, numbers_of
from laws import generated

from specsim import mistakes, rules
from specsim.models import TableModel, chain
from specsim.rules._common.integers import draw_steps
from specsim.simulation._rows import tile_parents
from specsim.theory._enumeration import prove, step_law, target_law

RULE = rules.get("standard")
HALF = Fraction(1, 2)


def algorithm_1(target, draft, gamma, context):
    """The law of a step, from the probabilities that a prefix is kept, without enumerating drafts."""
    law = defaultdict(Fraction)

    def reach(prefix, chance):
        if chance == 0:
            return
        p = target.row(context + prefix)
        if len(prefix) == gamma:
            for x, px in enumerate(p):
                law[(*prefix, x)] += chance * px
            return
        q = draft.row(context + prefix)
        adjusted = [max(Fraction(0), px - qx) for px, qx in zip(p, q, strict=True)]
        rejected = sum((max(Fraction(0), qx - px) for px, qx in zip(p, q, strict=True)), Fraction(0))
        for x, (px, qx) in enumerate(zip(p, q, strict=True)):
            if qx > 0:
                reach((*prefix, x), chance * qx * min(Fraction(1), px / qx))
            if rejected > 0:
                law[(*prefix, x)] += chance * rejected * adjusted[x] / sum(adjusted)

    reach((), Fraction(1))
    return {emitted: mass for emitted, mass in law.items() if mass}


def test_the_law_is_that_of_algorithm_1():
    for target, draft, tree, context in generated(RULE, 85, seed=1):
        assert step_law(RULE, target, draft, tree, context) == algorithm_1(target, draft, tree.size, context)


def test_the_law_of_one_draft_node_by_node_and_in_floats():
    p = [
        [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)],
        [Fraction(1), Fraction(0), Fraction(0)],
        [HALF, HALF, 0],
    ]
    q = [[Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)], [Fraction(1, 3)] * 3]
    stop, follow = RULE.law((0, 1), (1, 2), p, q)
    assert list(stop) == [HALF, HALF, 0]  # 1 passes with 1/2, 2 is impossible, the bonus is never reached
    assert list(follow[0]) == [1, 0, 0]
    assert list(follow[1]) == [1, 0, 0]
    stop, follow = RULE.law((0, 1), (0, 0), p, q)
    assert list(stop) == [0, 0, 1]
    assert list(follow[2]) == p[2]
    p, q = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3)).tolist()
    exact_p, exact_q = ([[Fraction(x) for x in row] for row in rows] for rows in (p, q))
    stop, follow = RULE.law((0, 1), (2, 0), p, q[:2])
    exact_stop, exact_follow = RULE.law((0, 1), (2, 0), exact_p, exact_q[:2])
    assert np.allclose(stop, [float(x) for x in exact_stop])
    for row, exact_row in zip(follow, exact_follow, strict=True):
        assert np.allclose(row, [float(x) for x in exact_row])


def test_the_rule_is_proved_exact_with_a_single_token_and_from_every_context():
    assert prove(TableModel([Fraction(1)]), TableModel([Fraction(1)]), gamma=4).exact
    target, draft = rational_pair(np.random.default_rng(3), 3, 2, 1, "zeros")
    assert all(
        prove(target, draft, gamma=2, context=tuple(context)).exact for context in target.contexts.tolist()
    )


def test_the_proof_counts_drafts_and_emitted_tokens():
    for target, draft, tree, context in generated(RULE, 40, seed=8):
        proof = prove(target, draft, gamma=tree.size, context=context)
        law = algorithm_1(target, draft, tree.size, context)
        assert proof.mean_tokens == sum(len(emitted) * mass for emitted, mass in law.items())
        assert proof.drafts == len(target_law(draft, tree.size, context))
        assert (proof.rule, proof.tree, proof.vocab_size) == ("standard", tree, target.vocab_size)


@pytest.mark.parametrize("block", [2, 3])
def test_the_rule_is_proved_exact_for_tokens_drafted_several_at_a_time(block):
    """As by heads that do not see each other's tokens; a chain drafted so is another one."""
    lengths = set()
    for seed in range(20):
        target, draft = rational_pair(np.random.default_rng(seed), 3, 1, 1, PAIR_FLAVOURS[seed % 5])
        tree = chain(3, block=block)
        proof = prove(target, draft, gamma=tree, context=(0,))
        assert proof.exact
        assert proof.tree == tree
        lengths.add(proof.mean_tokens - prove(target, draft, gamma=3, context=(0,)).mean_tokens)
    assert len(lengths) > 10


def bonus_from_q(parents, tokens, p, q):
    stop, follow = RULE.law(parents, tokens, p, q)
    return stop, [*follow[:-1], q[-1]]


def wrong(mistake, **values):
    """A rule with the law of a known mistake."""
    return replace(RULE, name=mistake, law=partial(mistakes.get(mistake).law, **values))


def differs_after(token):
    """Order 1, three tokens: p and q agree on (1/2, 1/4, 1/4), but after `token` they differ by TV 1/4."""
    common = [HALF, Fraction(1, 4), Fraction(1, 4)]
    p, q = [common] * 3, [common] * 3
    p[token], q[token] = [Fraction(1, 4), HALF, Fraction(1, 4)], common
    return TableModel(p), TableModel(q)


@pytest.mark.parametrize("token", [0, 1, 2])
@pytest.mark.parametrize(
    ("rule", "worst_tv"),
    [
        # 1/4 rejected; p has 1/2 of it on the missing token
        (wrong("resamples_target"), Fraction(1, 4) - Fraction(1, 8)),
        # token 0 accepted with 5/8, so only 3/16 is rejected
        (wrong("lenience", lenience=Fraction(4, 5)), Fraction(1, 4) - Fraction(3, 16)),
        # of 1/4 rejected, 2/3 go to the missing token
        (wrong("one_hot_residual"), Fraction(1, 4) - Fraction(1, 6)),
    ],
)
def test_a_wrong_rule_is_rejected_after_the_prefix_where_the_pair_differs(rule, worst_tv, token):
    """The context is another token, so that the step begins where p = q and every part is harmless."""
    target, draft = differs_after(token)
    proof = prove(target, draft, rule=rule, gamma=2, context=((token + 1) % 3,))
    assert not proof.exact
    assert (proof.worst_prefix, proof.worst_tv) == ((token,), worst_tv)
    assert proof.tv == worst_tv * target.row([(token + 1) % 3])[token]


def test_a_bonus_from_q_is_rejected_after_a_whole_accepted_draft():
    target, draft = (
        TableModel([[HALF, HALF], [HALF, HALF]]),
        TableModel([[HALF, HALF], [Fraction(1, 4), Fraction(3, 4)]]),
    )
    proof = prove(target, draft, rule=replace(RULE, law=bonus_from_q), gamma=2, context=(0,))
    # the bonus is drawn from q after the first token, which is wrong where that was 1
    assert (len(proof.worst_prefix), proof.worst_prefix[0], proof.worst_tv) == (2, 1, Fraction(1, 4))
    assert proof.tv == Fraction(1, 4) * sum(
        mass
        for emitted, mass in algorithm_1(target, draft, 2, (0,)).items()
        if emitted[0] == 1 and len(emitted) == 3
    )


def test_a_reused_uniform_is_perfect_at_the_first_position_and_rejected_after_it():
    p, q = [Fraction(1, 3), Fraction(2, 3)], [Fraction(2, 3), Fraction(1, 3)]
    target, draft = TableModel(p), TableModel(q)
    rule = wrong("one_uniform")
    assert dict(conditional_laws(step_law(rule, target, draft, chain(2))))[()] == target_law(target, 1)
    proof = prove(target, draft, rule=rule, gamma=2)
    # after an accepted 0 the uniform lies below 1/2: a second 0 always passes, so q is emitted, TV 1/3
    assert (proof.worst_prefix, proof.worst_tv) == ((0,), Fraction(1, 3) * Fraction(1, 1))
    assert not proof.exact


def test_the_least_deviation_is_no_proof():
    least = Fraction(1, 10**30)
    proof = prove(*differs_after(0), rule=wrong("lenience", lenience=1 + least), gamma=2, context=(0,))
    assert not proof.exact
    assert 0 < proof.tv < 10 * least
    assert 0 < proof.worst_tv < 10 * least


def test_a_lossy_rule_is_held_to_what_it_declares():
    p, q = [HALF, HALF], [Fraction(3, 4), Fraction(1, 4)]
    proof = prove(TableModel(p), TableModel(q), rule="lenience:lenience=0.5", gamma=1)
    assert (proof.as_claimed, proof.worst_prefix, proof.worst_tv) == (True, None, 0)
    assert not proof.exact
    assert proof.tv == Fraction(1, 4)  # α(1/2) - α(1): everything passes, where 3/4 should
    assert proof.rule == "lenience:lenience=0.5"
    standard = prove(TableModel(p), TableModel(q), rule="lenience:lenience=1", gamma=1)
    assert (standard.as_claimed, standard.exact) == (True, True)


def test_a_lossy_rule_that_declares_the_wrong_law_is_refuted():
    p, q = [HALF, HALF], [Fraction(3, 4), Fraction(1, 4)]
    lenient = rules.get("lenience:lenience=0.5")
    modest = replace(lenient, declared=lambda p, q, position, lenience: lenient.declared(p, q, position, 1))
    silent = replace(lenient, declared=None)
    for rule in (modest, silent):
        proof = prove(TableModel(p), TableModel(q), rule=rule, gamma=2)
        assert not proof.as_claimed
        assert not proof.exact
        assert proof.worst_tv == Fraction(1, 4)


def awkward_uniforms(rng, shape, ratios=None):
    """Uniforms with the ends of the interval among them, and `ratios`, where an accept test is a tie."""
    u = rng.random(shape)
    ends = rng.choice([0.0, TINY, 2.0**-53, 0.5, LAST_UNIFORM], size=shape)
    u = np.where(rng.random(shape) < 0.2, ends, u)
    return u if ratios is None else np.where(rng.random(shape) < 0.2, ratios, u)


def drawable_tokens(rng, q):
    """One token of positive probability from each row of q [..., V], whatever that probability."""
    return np.argmax((q > 0) * rng.random(q.shape), axis=-1)


def verify_rows(tokens, p, q, u):
    """Tokens [γ+1, B] and accepted [B] of the row kernel."""
    steps, gamma = tokens.shape
    emitted, accepted = np.empty((gamma + 1, steps), dtype=np.int32), np.empty(steps, dtype=np.int64)
    parents = tile_parents(chain(gamma), steps)
    RULE.rows(parents, tokens, p, q, u, RULE.array(), emitted, accepted)
    return emitted, accepted


def test_a_step_needs_one_uniform_for_each_token_that_it_can_emit():
    for gamma in (1, 2, 5):
        assert RULE.uniforms(chain(gamma), 1000) == gamma + 1
    assert RULE.array().shape == (0,)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_the_row_kernel_is_the_step_by_hand_bit_for_bit(size, gamma):
    rng, steps = np.random.default_rng([size, gamma]), 1000
    p, q = (rows.reshape(steps, gamma + 1, size) for rows in awkward_pairs(rng, steps * (gamma + 1), size))
    q = np.ascontiguousarray(q[:, :gamma])
    tokens = drawable_tokens(rng, q)
    drafted = tokens[..., None]
    with np.errstate(over="ignore"):
        ratios = np.take_along_axis(p[:, :gamma], drafted, -1) / np.take_along_axis(q, drafted, -1)
    last = rng.random((1, steps))
    u = awkward_uniforms(rng, (gamma + 1, steps), np.vstack([ratios[..., 0].clip(max=LAST_UNIFORM).T, last]))
    emitted, accepted = verify_rows(tokens, p, q, u)
    for s in range(steps):
        step = standard_step(tokens[s].tolist(), p[s].tolist(), q[s].tolist(), u[:, s].tolist())
        n = len(step) - 1
        assert emitted[:, s].tolist() == step + [-1] * (gamma - n)
        assert accepted[s] == n
        assert step[:n] == tokens[s, :n].tolist()
        assert p[s, n, step[n]] > 0
    assert len(set(accepted.tolist())) == (gamma + 1 if size > 1 else 1)


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_the_fixed_pair_kernel_is_the_step_by_hand_bit_for_bit(full, size, gamma):
    rng, steps = np.random.default_rng([size, gamma]), 60
    seen = set()
    for p, q in zip(*awkward_pairs(rng, 60 if full else 16, size), strict=True):
        tables = RULE.fixed_pair.tables(p, q, chain(gamma))
        words, out = awkward_words(rng, tables, gamma, steps), np.empty((gamma + 1, steps), dtype=np.int32)
        draw_steps(tables, KEY, FIRST, out, words)
        by_hand = standard_steps_of_a_pair(p, q)
        for s in range(steps):
            drafted, _, step = by_hand(*numbers_of(words[:, s], FIRST + s)[: gamma + 1])
            n = len(step) - 1
            assert emitted(out[:, s]) == step
            assert step[:n] == drafted[:n]
            assert len(drafted) == gamma
            assert (q[drafted] > 0).all()
            assert (p[step] > 0).all()
            seen.add(n)
    assert seen == (set(range(gamma + 1)) if size > 1 else {gamma})


def test_a_rejection_without_residual_draws_from_p():
    """Rows apart by rounding only: p nowhere exceeds q, and yet the test at u just below 1 fails."""
    p, q = [0.5 - 2**-54, 0.5], [0.5, 0.5]
    for last, token in ((0.25, 0), (0.75, 1)):
        u = [LAST_UNIFORM, last]
        assert standard_step([0], [p, p], [q], u) == [token]
        rows = np.array([[p, p]]), np.array([[q]])
        emitted, accepted = verify_rows(np.array([[0]]), *rows, np.array(u)[:, None])
        assert emitted[:, 0].tolist() == [token, -1]
        assert accepted.tolist() == [0]
