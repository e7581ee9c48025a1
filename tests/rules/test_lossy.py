"""The lossy rules: examples by hand, their limits, and what acceptance costs them.

That every rule follows the law that it declares is proved in `test_rules`; here the laws are held to what is
known of them otherwise. `first_token` computes a law from acceptance and recovery alone, without the declared
one."""

import math
from fractions import Fraction as F
from functools import partial

import numpy as np
import pytest
from conftest import PAIR_FLAVOURS, rational_pair, rational_rows
from enumerated import first_token

import specsim
from specsim import rules
from specsim.models import TableModel, Tree, chain
from specsim.rules._lossy import mentored, two_thresholds
from specsim.theory._enumeration import prove

HALVES = ([F(1, 2), F(1, 2), F(0)], [F(1, 2), F(0), F(1, 2)])


def tv(p, q):
    return sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2


def overlap(p, q, lenience=1):
    """α(l) = Σ min(p/l, q)."""
    return sum(min(a / lenience, b) for a, b in zip(p, q, strict=True))


def kl(p, q):
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return math.inf
    return sum(float(a) * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


pairs = partial(rational_rows, 0, sizes=(2, 3, 4, 5, 6))
#: Between p and q they choose one of the two.
CASCADES = ("cascade_chow", "cascade_diff", "cascade_opt", "fuzzy")


@pytest.mark.parametrize(
    "rule",
    [
        "lenience:lenience=1", "scaled_lenience:lenience=1", "ensemble:weight=1", "judge:overrule=0",
        "ears:tolerance=0", "mentored:divergence=0", "cactus:delta=0", "fuzzy:threshold=0",
        "cascade_diff:alpha=-1", "cascade_opt:alpha=-10",
    ],
)  # fmt: skip
def test_one_end_of_the_range_is_the_standard_rule(rule):
    for p, q in pairs(50):
        assert first_token(rule, p, q) == first_token("standard", p, q) == (p, tv(p, q))


@pytest.mark.parametrize(
    "rule",
    [
        "ensemble:weight=0", "judge:overrule=1", "fuzzy:threshold=1", "cascade_chow:alpha=1",
        "cascade_diff:alpha=1", "cascade_opt:alpha=1", "cascade_token:alpha=1", "blockwise:min_block=1",
        "blockwise:top_k=6",
    ],
)  # fmt: skip
def test_the_other_end_follows_the_draft(rule):
    for p, q in pairs(50):
        assert first_token(rule, p, q) == (q, 0)


@pytest.mark.parametrize("lenience", [0.1, 0.3, 0.5, 0.9])
def test_lenience_gains_as_much_acceptance_as_it_loses_total_variation(lenience):
    """And no token gains more than 1/l, as Leviathan et al., arXiv 2211.17192, Appendix A.5, say."""
    share = F(lenience)
    for p, q in pairs(50):
        law, rejected = first_token(f"lenience:lenience={lenience}", p, q)
        scaled, rejected_too = first_token(f"scaled_lenience:lenience={lenience}", p, q)
        assert rejected == rejected_too == 1 - overlap(p, q, share)
        assert tv(law, p) == overlap(p, q, share) - overlap(p, q)
        assert tv(scaled, p) >= tv(law, p)
        for lenient in (law, scaled):
            assert all(b <= a / share for a, b in zip(p, lenient, strict=True))


def test_the_scaled_residual_costs_up_to_a_quarter_more():
    p, q = HALVES
    assert first_token("lenience", p, q) == (p, F(1, 2))
    assert first_token("scaled_lenience", p, q) == ([F(2, 3), F(1, 3), F(0)], F(1, 2))
    for share in (F(1, 2), F(1, 8), F(1, 1024)):
        law, _ = first_token(rules.get("scaled_lenience").with_parameters(lenience=share), p, q)
        assert tv(law, p) == (1 - share) / (4 - 2 * share) < F(1, 4)


@pytest.mark.parametrize(
    "rule",
    [
        "lenience:lenience=0.25", "ensemble:weight=0.3", "judge:overrule=0.2", "ears:tolerance=0.3",
        "ears:tolerance=1", "mentored:divergence=0.01", "mentored:divergence=0.3", *CASCADES,
    ],
)  # fmt: skip
def test_rejections_and_total_variation_add_up_to_the_least_possible(rule):
    """The Pareto front is the line between (0, TV) and (TV, 0): Yin et al., arXiv 2411.00841."""
    for p, q in pairs(50):
        law, rejected = first_token(rule, p, q)
        assert rule not in CASCADES or law in (p, q)
        assert rejected + tv(law, p) == tv(p, q)


def test_ears_relaxes_the_test_where_the_target_is_uncertain():
    p, q = [F(1, 2), F(1, 2), F(0)], [F(1, 4), F(1, 4), F(1, 2)]
    assert first_token("ears:tolerance=0.5", p, q) == ([F(7, 16), F(7, 16), F(1, 8)], F(3, 8))  # t = 1/4
    for p, q in pairs(50):
        certain = [F(x == p.index(max(p))) for x in range(len(p))]
        assert first_token("ears:tolerance=1", certain, q) == (certain, tv(certain, q))
        assert first_token("ears:tolerance=1", p, q)[1] <= first_token("ears", p, q)[1] <= tv(p, q)


@pytest.mark.parametrize("divergence", [0.001, 0.1, 1.0])
def test_mentored_spends_its_divergence_and_no_more(divergence):
    rule = rules.get("mentored").with_parameters(divergence=divergence)
    spent = 0
    for p, q in pairs(200):
        law, rejected = first_token(rule, p, q)
        assert kl(p, law) <= divergence + 1e-12
        if kl(p, q) <= divergence:
            assert (law, rejected) == (q, 0)
        elif all(a > 0 for a, b in zip(p, q, strict=True) if b > 0):
            assert kl(p, law) == pytest.approx(divergence, abs=1e-9)
            spent += 1
    assert spent > 10


def test_mentored_diverges_less_than_lenience_that_accepts_as_much():
    closer = 0
    for p, q in pairs(200):
        alpha = mentored.alpha_of(p, q, 0.1)
        if alpha:
            law, rejected = first_token("mentored", p, q)
            lenient = rules.get("lenience").declared(p, q, 0, lenience=alpha)
            assert rejected == 1 - overlap(p, q, alpha)
            assert tv(law, p) == tv(lenient, p)
            assert kl(p, law) <= kl(p, lenient) + 1e-12
            closer += kl(p, law) < kl(p, lenient) - 1e-6
    assert closer > 20


def test_mentored_by_hand():
    p, q = [F(6, 10), F(3, 10), F(1, 10)], [F(2, 10), F(3, 10), F(5, 10)]
    alpha = mentored.alpha_of(p, q, 0.1)
    law, rejected = first_token("mentored", p, q)
    assert law[2] == p[2] / alpha
    assert law[1] == q[1] == F(3, 10)
    assert p[0] > law[0] > q[0]
    assert rejected == q[2] - p[2] / alpha
    p, q = [F(1, 2), F(1, 2), F(0)], [F(1, 4), F(1, 4), F(1, 2)]
    for divergence in (0.01, 0.3, 0.69):
        assert first_token(f"mentored:divergence={divergence}", p, q) == (p, F(1, 2))
    assert first_token("mentored:divergence=0.7", p, q) == (q, 0)  # log 2 = .693…


def test_mentored_accepts_most_of_all_rules_that_diverge_no_more():
    """Against a search over π on a grid: acceptance is at most Σ min(q, π)."""
    p, q = [F(6, 10), F(3, 10), F(1, 10)], [F(2, 10), F(3, 10), F(5, 10)]
    steps = 200
    best = 0.0
    for i in range(1, steps):
        for j in range(1, steps - i):
            law = [i / steps, j / steps, (steps - i - j) / steps]
            if kl(p, law) <= 0.1:
                best = max(best, sum(min(float(b), c) for b, c in zip(q, law, strict=True)))
    _, rejected = first_token("mentored", p, q)
    assert best <= 1 - rejected <= best + 0.01


def test_greedy_lenience_of_1_matches_the_argmax_and_its_ties():
    for p, q in pairs(50):
        if p.count(max(p)) == 1:
            assert first_token("greedy_lenience:lenience=1", p, q) == first_token("greedy_match", p, q)
    p, q = [F(2, 5), F(2, 5), F(1, 5)], [F(1, 4), F(1, 4), F(1, 2)]
    assert first_token("greedy_lenience:lenience=1", p, q) == ([F(3, 4), F(1, 4), F(0)], F(1, 2))
    assert first_token("greedy_lenience:lenience=0.5", p, q) == (q, 0)


def test_the_threshold_of_typical_acceptance():
    q, just = [F(1, 4), F(3, 4)], F(1, 10**6)
    assert first_token("typical", [F(91, 100) + just, F(9, 100) - just], q) == (
        [F(1), F(0)],
        F(3, 4),
    )  # below ε
    assert first_token("typical", [F(91, 100) - just, F(9, 100) + just], q) == (q, 0)
    uniform = [F(1, 100)] * 100
    assert first_token("typical", uniform, uniform) == (uniform, 0)  # far below ε, but above .3·exp(-H)
    lopsided = [F(497, 1000), F(497, 1000), F(6, 1000)]
    assert first_token("typical", lopsided, [F(1, 3)] * 3) == ([F(2, 3), F(1, 3), F(0)], F(1, 3))


def test_the_other_default_of_medusa_leaves_epsilon_without_effect():
    for p, q in pairs(50):
        laws = [first_token(f"typical:delta=0.09,epsilon={epsilon}", p, q) for epsilon in (0.3, 1.0)]
        assert laws[0] == laws[1]


def test_mars_keeps_a_runner_up_whose_logit_is_near():
    p, q = [F(5, 10), F(3, 10), F(2, 10)], [F(1, 5), F(2, 5), F(2, 5)]
    assert first_token("mars", p, q) == ([F(3, 5), F(2, 5), F(0)], F(2, 5))
    # the same probabilities, another shift of the logits: 1 + log .3 < 0, -1 + log .5 < 0
    for shift in (1, -1):
        assert first_token(f"mars:log_partition={shift}", p, q) == ([F(1), F(0), F(0)], F(4, 5))
    ratio = (20 + math.log(0.3)) / (20 + math.log(0.5))
    assert first_token(f"mars:theta={ratio - 1e-9}", p, q)[1] == F(2, 5)
    assert first_token(f"mars:theta={ratio + 1e-9}", p, q)[1] == F(4, 5)
    third, q = [F(1, 3)] * 3, [F(1, 2), F(1, 4), F(1, 4)]
    assert first_token("mars", third, q) == ([F(3, 4), F(1, 4), F(0)], F(1, 4))  # token 1 is the runner-up
    assert first_token("mars:theta=1", third, q) == (
        [F(1), F(0), F(0)],
        F(1, 2),
    )  # a ratio of 1 is not above 1
    assert first_token("mars:theta=0", [F(0), F(0), F(1)], q) == ([F(0), F(0), F(1)], F(3, 4))


def test_fly_keeps_a_mismatch_where_the_target_is_uncertain_and_the_next_drafts_agree():
    open_row, closed = [F(4, 10), F(3, 10), F(3, 10)], [F(98, 100), F(1, 100), F(1, 100)]
    law = rules.get("fly").law

    def accepted(tokens, rows, window=2):
        stop, follow = law(tuple(range(len(tokens))), tokens, rows, rows, threshold=0.3, window=window)
        assert follow == [[1, 0, 0]] * len(rows)
        return stop.index(1)

    assert accepted((1, 0, 0, 1), [open_row] * 5) == 3  # the last has no window
    assert accepted((1, 0, 1, 0), [open_row] * 5) == 0
    assert accepted((1, 0, 1, 0), [open_row] * 5, window=1) == 4
    assert accepted((0, 1, 0, 0), [open_row, closed, open_row, open_row, closed]) == 1
    assert accepted((0, 1, 0, 0), [closed, open_row, closed, closed, closed]) == 4
    assert accepted((1, 0), [open_row] * 3) == 0  # a window of two is not drafted


@pytest.mark.parametrize("window", [1, 2])
def test_fly_by_hand(window):
    """One mismatch in a draft of window + 1 tokens can be kept, the first."""
    p, q = TableModel([F(6, 10), F(4, 10)]), TableModel([F(1, 4), F(3, 4)])
    rule = rules.get(f"fly:window={window}")
    proof = prove(p, q, rule=rule, gamma=window + 1)
    assert proof.as_claimed
    first = rule.declared(
        (), lambda path: p.row(()), lambda path: q.row(()), chain(window + 1), **rule.values
    )
    assert first[1] == F(3, 4) * F(1, 4) ** window
    greedy = prove(p, q, rule="greedy_match", gamma=window + 1).mean_tokens
    assert proof.mean_tokens == greedy + first[1] * (window + 1)


def test_a_law_of_rows_ahead_has_no_tv_to_show():
    table = specsim.compare([0.6, 0.4], [0.3, 0.7], rules=["fly"], steps=100, rng=1)
    assert table.entries[0].tv is None
    assert "dependent on rows ahead" in str(table)


def test_blockwise_relaxes_exact_match_and_accepts_a_minimum_block_unseen():
    p, q = [F(1, 10), F(4, 10), F(2, 10), F(2, 10), F(1, 10)], [F(1, 5)] * 5
    kept = {
        "blockwise": {1},
        "blockwise:top_k=2": {1, 2},  # of the tie between 2 and 3 the lower
        "blockwise:top_k=4": {0, 1, 2, 3},
        "blockwise:distance=1": {0, 1, 2},
        "blockwise:top_k=3,distance=1": {0, 1, 2, 3},
    }
    for rule, tokens in kept.items():
        law = [F(1, 5) * (x in tokens) for x in range(5)]
        law[1] += 1 - sum(law)
        assert first_token(rule, p, q) == (law, 1 - F(len(tokens), 5))
    p = [[F(1), F(0)]] * 4
    stop, follow = rules.get("blockwise").law((0, 1, 2), (1, 1, 1), p, p, top_k=1, distance=0, min_block=2)
    assert stop == [0, 0, 1, 0]
    assert follow[2] == [1, 0]
    tables = rules.get("blockwise:min_block=2").fixed_pair.tables(
        np.array([1.0, 0.0]), np.array([0.5, 0.5]), chain(2), top_k=1.0, distance=0.0, min_block=2.0
    )
    assert tables[3].tolist() == [[[0, 0], [2**62, 2**62]]] * 2  # as many rows as there are positions


def test_who_decides_in_a_cascade():
    p, q = [F(7, 10), F(2, 10), F(1, 10)], [F(5, 10), F(5, 10), F(0)]
    follows_target = {
        "cascade_chow:alpha=0.49": True,  # max q = .5 < 1 - α
        "cascade_chow:alpha=0.5": False,
        "cascade_diff:alpha=0.19": True,  # max p - max q = .2
        "cascade_diff:alpha=0.21": False,
        "cascade_opt:alpha=0.66": True,  # .2 = α·TV at α = 2/3
        "cascade_opt:alpha=0.67": False,
        "fuzzy:threshold=0.076": True,  # JSD = 0.07624
        "fuzzy:threshold=0.077": False,
    }
    for rule, target in follows_target.items():
        assert first_token(rule, p, q)[0] == (p if target else q), rule
    p, q = [F(6, 10), F(4, 10)], [F(1, 2), F(1, 2)]
    assert first_token("cascade_token:alpha=0", p, q) == ([F(8, 10), F(2, 10)], F(3, 10))  # not strict
    assert first_token("cascade_token:alpha=0.5", p, q) == (q, 0)
    p, q = [F(5, 10), F(4, 10), F(1, 10)], [F(2, 10), F(3, 10), F(5, 10)]
    assert first_token("cascade_token:alpha=0.5", p, q)[0] == [F(45, 100), F(50, 100), F(5, 100)]


@pytest.mark.parametrize("rule", ["cascade_chow", "cascade_diff", "cascade_opt", "cascade_token", "fuzzy"])
def test_the_bonus_follows_the_same_law_as_drafted_tokens(rule):
    rule = rules.get(rule)
    assert rule.leaf_rows
    values = {name: F(value) for name, value in rule.values.items()}
    for p, q in pairs(50):
        _, follow = rule.law((0,), (q.index(max(q)),), [p, p], [q, q], **values)
        assert follow[1] == first_token(rule, p, q)[0]


def test_cactus_by_hand():
    p = [F(1, 2), F(1, 2)]
    assert first_token("cactus:delta=0.125", p, [F(1), F(0)]) == (
        [F(3, 4), F(1, 4)],
        F(1, 4),
    )  # h = 1/2 + 1/4
    assert first_token("cactus:delta=0.5", p, [F(1), F(0)]) == ([F(1), F(0)], 0)  # h = 1
    certain = [F(1), F(0)]
    assert first_token("cactus", certain, p) == (certain, F(1, 2))  # p(n) = 1 keeps p, and p(n) = 0 too
    rule = rules.get("cactus:delta=0.125")
    p, q = [F(1, 2), F(1, 4), F(1, 4), F(0)], [F(0), F(1, 8), F(3, 8), F(1, 2)]
    rejected = [rule.law((0,), (x,), [p, p], [q, q], delta=F(1, 8))[1][0] for x in (2, 3)]
    assert rejected[1] == [F(4, 5), F(1, 5), 0, 0]  # p(3) = 0 leaves p as it is
    assert rejected[0] != rejected[1]


def test_cactus_exceeds_its_budget():
    delta = 0.1
    h = [1 / (1 + 2 * delta), 1 - 1 / (1 + 2 * delta)]
    assert h[0] + math.sqrt(2 * delta * h[0] * h[1]) == pytest.approx(1.0)  # so that h is certain of token 0
    assert kl([1.0, 0.0], h) == pytest.approx(math.log(1 + 2 * delta))  # 1.82 times δ
    p, q = [F(3, 10), F(4, 10), F(3, 10)], [F(1, 2), F(0), F(1, 2)]
    assert first_token("cactus", p, q) == (q, 0)
    assert kl(q, p) == pytest.approx(math.log(5 / 3))  # 5.1 times δ


def test_one_coin_is_cut_by_the_siblings():
    p = [F(5, 10), F(3, 10), F(2, 10)]
    law = two_thresholds.node_law
    assert law(p, None, (1, 2), 1, F(8, 10)) == ([F(3, 8), F(2, 8)], [1, 0, 0])
    assert law(p, None, (1, 2), F(3, 10), 1) == ([1, 0], [1, 0, 0])
    assert law(p, None, (2, 1), F(3, 10), 1) == ([F(2, 10), F(8, 10)], [1, 0, 0])
    assert law(p, None, (0, 1), 1, F(4, 10)) == ([1, 0], [0, 0, 1])


@pytest.mark.parametrize("drawing", ["top", "without replacement", "top and sample"])
@pytest.mark.parametrize("parents", [(0,), (0, 0), (0, 0, 0), (0, 0, 1, 1), (0, 0, 1, 2), (0, 1, 1)])
def test_thresholds_of_1_are_lossless_for_distinct_siblings(parents, drawing):
    rng = np.random.default_rng(0)
    rule = rules.get("two_thresholds:threshold_single=1,threshold_acc=1")
    for flavour in PAIR_FLAVOURS:
        target, draft = rational_pair(rng, 3, 1, 1, flavour)
        assert prove(target, draft, rule=rule, gamma=Tree(parents, drawing), context=(0,)).exact


def test_siblings_with_the_same_token_count_twice():
    rule = "two_thresholds:threshold_single=1,threshold_acc=1"
    target, draft = TableModel([F(1, 4), F(3, 4)]), TableModel([F(3, 4), F(1, 4)])
    assert prove(target, draft, rule=rule, gamma=Tree((0, 0), "sampled")).tv == F(1, 8)


def test_lower_thresholds_accept_more_and_follow_another_law():
    target = TableModel([F(1, 8), F(5, 8), F(2, 8)])
    draft = TableModel([F(1, 2), F(1, 4), F(1, 4)])
    lossless = prove(target, draft, rule="two_thresholds:threshold_single=1,threshold_acc=1")
    for rule in ("two_thresholds", "two_thresholds:threshold_single=1", "two_thresholds:threshold_acc=1"):
        proof = prove(target, draft, rule=rule)
        assert proof.as_claimed
        assert proof.tv > 0
        assert proof.mean_tokens > lossless.mean_tokens


def test_a_typical_tree_takes_the_longest_path_and_of_equals_the_likeliest():
    """Two children of the root: below the second there is one more typical token; then there is not."""
    rule = rules.get("typical_tree")
    even, sure = [F(1, 2), F(1, 2), F(0)], [F(0), F(0), F(1)]
    parents, tokens = (0, 0, 1, 2), (0, 1, 0, 2)
    rows = [even, *[sure] * 4]  # after the first child token 0 is not typical, after the second 2 is
    stop, follow = rule.law(parents, tokens, rows, rows, **rule.values)
    assert (stop, follow[4]) == ([0, 0, 0, 0, 1], [0, 0, 1])
    stop, _ = rule.law(parents, (0, 1, 0, 0), rows, rows, **rule.values)
    assert stop == [0, 1, 0, 0, 0]
    rows[0] = [F(1, 3), F(2, 3), F(0)]  # of equally long ones the likeliest
    stop, _ = rule.law(parents, (0, 1, 0, 0), rows, rows, **rule.values)
    assert stop == [0, 0, 1, 0, 0]
