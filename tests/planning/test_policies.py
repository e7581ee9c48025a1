"""Draft-length policies: steps cut from a log have the law of speculative sampling, policies their rules."""

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from conftest import FALSE_ALARM
from hand_made import hand_made
from scipy.stats import chi2, norm

import specsim
from specsim.core.distributions import synthetic_pair, temperature
from specsim.core.stats import chi_square
from specsim.decoding import record
from specsim.models import TableModel, chain
from specsim.planning import (
    SVIP,
    Cascade,
    ConfidenceThreshold,
    Constant,
    ConstantRatio,
    Disco,
    Goodput,
    Heuristic,
    MeasuredStep,
    Oracle,
    Policy,
    every_policy,
    log_from_trace,
)
from specsim.planning._policies._kinds import Drafted, examples, logistic, roc_threshold
from specsim.planning._policies._log import UNKNOWN, Features
from specsim.planning._policies._simulate import _StepTimes, simulate_steps
from specsim.theory import expected_tokens, markov_steps, oracle_improvement, step_law, walltime_improvement

COST = ConstantRatio(0.05)
#: Rows after each of three tokens. No two entries of a row of q are alike: its confidence tells a token.
P = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]])
Q = np.array([[0.2, 0.35, 0.45], [0.3, 0.6, 0.1], [0.55, 0.15, 0.3]])
PAIR = TableModel(P), TableModel(Q)
EXACT = [TableModel([[Fraction(str(x)) for x in row] for row in rows.tolist()]) for rows in (P, Q)]


@pytest.fixture(scope="module")
def log():
    return specsim.draft_log(*PAIR, tokens=25_000, rng=5, ahead=3)


@pytest.fixture(scope="module")
def text():
    """A log of the pair that is bundled, in two parts: to fit on, and to simulate."""
    return specsim.draft_log(*specsim.default_pair(), tokens=10_000, rng=3).split(0.5)


def lengths(policy, log, cost=COST):
    """(drafted, accepted) of each step."""
    return [(step.drafted, step.accepted) for step in simulate_steps(log, policy, cost)]


# --- the law of the log ----------------------------------------------------------------------------------


def least_p_value(log, gamma=2):
    """The least p-value of the joint law of accepted length and tokens of steps, by the token before them."""
    seen = {context: {} for context in range(3)}
    for step in simulate_steps(log, Constant(gamma), COST):
        if 0 < step.start < len(log) - gamma - 1:
            emitted = tuple(log.tokens[step.start : step.start + step.accepted + 1].tolist())
            cells = seen[int(log.tokens[step.start - 1])]
            assert len(emitted) == step.accepted + 1
            cells[emitted] = cells.get(emitted, 0) + 1
    found = []
    for context, cells in seen.items():
        law = step_law(specsim.rules.get("standard"), *EXACT, chain(gamma), (context,))
        if any(law.get(cell, 0.0) == 0 for cell in cells):
            return 0.0
        possible = [cell for cell, chance in law.items() if chance > 0]
        pmf = np.array([float(law[cell]) for cell in possible])
        found.append(chi_square([cells.get(cell, 0) for cell in possible], pmf / pmf.sum()).p_value)
    return min(found)


def with_bits(log, rate, rng=0):
    """The log with its drafts accepted at the given rate at each position, whatever the right one is."""
    accepted = np.random.default_rng(rng).random(len(log)) < rate
    return replace(log, accepted=accepted.astype(np.int8), tail=np.where(accepted, -1, 0))


def rows_along(log):
    """p and q of each token of the text, given the one before it (token 0 in front of the first)."""
    before = np.concatenate([[0], log.tokens[:-1]])
    return P[before, log.tokens], Q[before, log.tokens]


def test_steps_have_the_joint_law_of_speculative_sampling(log):
    assert least_p_value(log, 1) > FALSE_ALARM
    assert least_p_value(log, 2) > FALSE_ALARM


def test_a_log_that_accepts_upside_down_is_seen(log):
    p, q = rows_along(log)
    assert least_p_value(with_bits(log, np.minimum(1, p / q))) < FALSE_ALARM


def test_a_log_that_ignores_its_text_is_seen_though_its_rate_is_right(log):
    before = np.concatenate([[0], log.tokens[:-1]])
    blind = with_bits(log, np.minimum(P, Q).sum(axis=1)[before])
    assert blind.accepted.mean() == pytest.approx(log.accepted.mean(), abs=0.01)
    assert least_p_value(blind) < FALSE_ALARM


def tokens_per_step(log, gamma, blocks=200):
    """Mean and standard error, from blocks of steps."""
    tokens = np.array([step.accepted + 1 for step in simulate_steps(log, Constant(gamma), COST)][:-1])
    means = tokens[: len(tokens) // blocks * blocks].reshape(blocks, -1).mean(axis=1)
    return means.mean(), means.std(ddof=1) / math.sqrt(blocks)


@pytest.mark.parametrize("gamma", [1, 3, 6])
def test_tokens_per_step_are_those_of_the_markov_chain(log, gamma):
    mean, error = tokens_per_step(log, gamma)
    exact = markov_steps(P, Q, gamma).tokens_per_step
    z = norm.isf(FALSE_ALARM / 2)
    assert mean == pytest.approx(exact, abs=z * error)
    p, q = rows_along(log)
    wrong, error = tokens_per_step(with_bits(log, np.minimum(1, p / q)), gamma)
    assert abs(wrong - exact) > z * error


def test_independent_drafts_agree_with_the_closed_forms():
    p, q = synthetic_pair("geometric", 12, 0.8, rng=0)
    log = specsim.draft_log(TableModel(p), TableModel(q), tokens=20_000, rng=3, ahead=0)
    three, oracle = specsim.simulate_policies(log, [Constant(3), Oracle()], draft_cost=0.1, constants=[8])
    seen = log.accepted.mean()
    z = norm.isf(FALSE_ALARM / 2)
    assert seen == pytest.approx(0.8, abs=z * math.sqrt(0.8 * 0.2 / len(log)))
    # a step of the oracle ends with a rejected position each time, so that only the end of the text is left
    # over
    assert oracle.speedup == pytest.approx(oracle_improvement(seen, 0.1), rel=1e-3)
    mean, error = tokens_per_step(log, 3)
    assert three.speedup == pytest.approx(walltime_improvement(0.8, 3, 0.1), rel=z * error / mean)


def law_under_a_threshold(context, threshold, most):
    """{(drafted, accepted)} where drafting ends behind a token with q below the threshold: by enumeration."""
    law = {}

    def draft(path, chance, accepted, lost):
        if path and (len(path) == most or Q[[context, *path][-2], path[-1]] < threshold):
            law[len(path), accepted] = law.get((len(path), accepted), 0.0) + chance
            return
        row = path[-1] if path else context
        for x in range(3):
            both = min(P[row, x], Q[row, x])
            if lost:
                draft([*path, x], chance * Q[row, x], accepted, True)
            else:
                draft([*path, x], chance * both, accepted + 1, False)
                draft([*path, x], chance * (Q[row, x] - both), accepted, True)

    draft([], 1.0, 0, False)
    return law


def least_p_value_under_a_threshold(log, threshold=0.3, most=4):
    policy = ConfidenceThreshold(threshold, most)
    seen = np.zeros((3, most + 1, most + 1), dtype=int)
    for step in simulate_steps(log, policy, COST):
        assert not step.truncated
        if 0 < step.start < len(log) - most - 1:
            seen[log.tokens[step.start - 1], step.drafted, step.accepted] += 1
    found = []
    for context in range(3):
        law = np.zeros((most + 1, most + 1))
        for place, chance in law_under_a_threshold(context, threshold, most).items():
            law[place] = chance
        assert law.sum() == pytest.approx(1)
        assert not seen[context][law == 0].any()
        found.append(chi_square(seen[context][law > 0], law[law > 0] / law.sum()).p_value)
    return min(found)


def test_a_policy_that_looks_at_tokens_drafts_on_behind_a_rejected_one_without_knowing(log):
    assert least_p_value_under_a_threshold(log) > FALSE_ALARM


def test_a_step_that_leaves_the_tails_is_counted_unless_it_was_planned(log):
    steps = list(simulate_steps(log, ConfidenceThreshold(0.0, max_gamma=9), COST))
    assert any(step.truncated for step in steps)
    for step in steps:
        assert step.drafted <= step.accepted + 1 + log.ahead
        assert step.truncated == (step.accepted < step.drafted < min(9, len(log) - step.start - 1))
    assert not any(step.truncated for step in simulate_steps(log, Constant(9), COST))


def test_a_log_whose_tails_follow_the_text_is_seen(log):
    """Behind a rejected token, what the draft says after the right one: as if it knew."""
    lost = np.flatnonzero(log.accepted == 0)
    on = np.minimum(lost[:, None] + 1 + np.arange(log.ahead), len(log) - 1)
    told = replace(log, tails=Features(*(column[on] for column in log.features)))
    assert least_p_value_under_a_threshold(told) < FALSE_ALARM


def test_features_are_those_of_the_drafted_token(log):
    before = np.concatenate([[0], log.tokens[:-1]])[1:]
    q, p = Q[before], P[before]
    found = log.features.part(slice(1, None))
    assert found.confidence == pytest.approx(q[np.arange(len(q)), log.drafted[1:]])
    assert found.entropy == pytest.approx(-(q * np.log(q)).sum(axis=1))
    assert found.top == pytest.approx(q.max(axis=1))
    assert log.beta[1:] == pytest.approx(np.minimum(p, q).sum(axis=1))
    rejected = log.accepted == 0
    assert (log.drafted[~rejected] == log.tokens[~rejected]).all()
    # the first token behind a rejected one comes from the row after it
    assert log.tails.top[log.tail[rejected], 0] == pytest.approx(Q[log.drafted[rejected]].max(axis=1))


def test_features_of_longer_contexts_and_other_temperatures():
    """A draft that reads four bytes, for a target that reads one."""
    target, draft = reversed(specsim.default_pair())
    log = specsim.draft_log(target, draft, tokens=400, rng=1, ahead=2, temperature=0.5)
    for t in range(4, 400):
        before = log.tokens[t - 4 : t].tolist()
        p, q = (temperature(model.row(before), 0.5) for model in (target, draft))
        assert log.beta[t] == pytest.approx(np.minimum(p, q).sum())
        assert log.features.confidence[t] == pytest.approx(q[log.drafted[t]])
        assert log.features.top[t] == pytest.approx(q.max())
        if not log.accepted[t]:
            assert q[log.drafted[t]] > p[log.drafted[t]]
            row = temperature(draft.row([*before, int(log.drafted[t])]), 0.5)
            assert log.tails.top[log.tail[t], 0] == pytest.approx(row.max())
            assert np.isclose(log.tails.confidence[log.tail[t], 0], row).any()


def test_the_same_seed_gives_the_same_log_and_a_longer_one_begins_alike(log):
    again = specsim.draft_log(*PAIR, tokens=3000, rng=5, ahead=2)
    assert again.root == 5
    for name in ("tokens", "drafted", "accepted", "beta", "tail"):
        assert (getattr(again, name) == getattr(log, name)[:3000]).all()
    assert (again.tails.confidence == log.tails.confidence[: len(again.tails.confidence), :2]).all()
    assert (specsim.draft_log(*PAIR, tokens=3000, rng=6, ahead=2).tokens != again.tokens).any()


def test_at_temperature_zero_everything_is_certain():
    log = specsim.draft_log(*PAIR, tokens=50, rng=1, ahead=1, temperature=0)
    assert set(log.beta) <= {0.0, 1.0}
    assert (log.accepted == log.beta).all()
    assert (log.features.confidence == 1).all()


# --- from a trace ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded") / "trace", *PAIR, gamma=3, steps=300, rng=4)


def test_a_trace_says_what_was_recorded(trace):
    log = log_from_trace(trace)
    told = np.array([step.accepted for step in simulate_steps(log, Constant(3), COST)])
    accepted = np.concatenate([shard.columns.accepted for shard in trace.shards]).reshape(-1, 4)
    assert (told == (accepted == 1).sum(axis=1)).all()  # the same policy takes the same steps
    assert not any(step.truncated for step in simulate_steps(log, Constant(3), COST))
    assert log.ahead == 0
    assert (log.accepted == UNKNOWN).sum() == (told == 3).sum()
    assert (log.drafted[log.accepted == 1] >= 0).all()


def test_a_step_that_asks_for_more_than_the_trace_knows_is_counted(trace):
    log = log_from_trace(trace)
    full = sum(step.accepted == 3 for step in simulate_steps(log, Constant(3), COST))
    longer = list(simulate_steps(log, Constant(4), COST))
    # the last step has no room for a fourth token, wherever it ends
    assert full - 1 <= sum(step.truncated for step in longer) <= full
    assert {step.drafted for step in longer if not step.truncated} >= {4}  # a constant needs no features
    unsure = list(simulate_steps(log, ConfidenceThreshold(0.0, max_gamma=3), COST))
    assert sum(step.truncated for step in unsure) > full
    rejected = (step for step in unsure if step.truncated and step.drafted > step.accepted)
    assert all(step.drafted == step.accepted + 1 for step in rejected)
    (run,) = specsim.simulate_policies(log, [Constant(4)])
    assert run.truncated == sum(step.truncated for step in longer)


def test_no_log_from_rows_that_are_cut_or_from_none(trace):
    for change, what in (
        ({"top": 2}, r"lists 2 tokens a row.*whole rows"),
        ({"flags": False}, "lacks the accept flags"),
        ({"bonus": False}, "q at the bonus position"),
    ):
        with pytest.raises(ValueError, match=what):
            log_from_trace(replace(trace, layout=trace.layout._replace(**change)))
    with pytest.raises(TypeError, match="trace: expected what open_trace returns"):
        log_from_trace("trace")
    with pytest.raises(ValueError, match="no step"):
        log_from_trace(replace(trace, shards=()))


# --- policies --------------------------------------------------------------------------------------------


def test_a_constant_drafts_so_many_and_less_at_the_end():
    assert lengths(Constant(2), hand_made([1, 1, 1, 0, 1, 1])) == [(2, 2), (2, 0), (1, 1)]


def test_the_heuristic_goes_up_by_two_and_down_by_one():
    log = hand_made([1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    drafted = [step.drafted for step in simulate_steps(log, Heuristic(gamma=2), COST)]
    # 2 accepted of 2; 0 of 4; 3 of 3; 1 of 5; then rejections down to 1; and at the end there is no room
    assert drafted == [2, 4, 3, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 0]


def test_the_transient_heuristic_begins_each_call_anew():
    log = hand_made([0] * 12)
    drafted = [step.drafted for step in simulate_steps(log, Heuristic(gamma=3, call=2), COST)]
    assert drafted == [3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 1, 0]


def test_the_threshold_ends_behind_the_first_unsure_token():
    log = hand_made([1] * 8, confidence=[0.9, 0.4, 0.39, 0.9, 0.1, 0.9, 0.9, 0.9])
    assert lengths(ConfidenceThreshold(0.4), log)[:2] == [(3, 3), (1, 1)]
    assert lengths(ConfidenceThreshold(0.4, max_gamma=2), log)[0] == (2, 2)


def test_the_threshold_looks_at_the_tail_behind_a_rejected_token():
    log = hand_made([0, 1, 1, 1, 1, 1], confidence=0.9, tails=[(0.8, 1, 0.8), (0.3, 1, 0.3), (0.9, 1, 0.9)])
    assert lengths(ConfidenceThreshold(0.4), log)[0] == (3, 0)


def brute_force_threshold(scores, outcomes):
    """The same, from the definition."""
    s, y = np.array(scores), np.array(outcomes)
    best = None
    for t in sorted(set(scores), reverse=True):
        cost = (s[~y] >= t).mean() + 3 * (s[y] < t).mean()
        if best is None or cost < best[0] - 1e-12:
            best = cost, t
    return best[1]


def test_the_refit_minimises_false_positives_and_three_times_false_negatives():
    # (fpr, fnr) at .9: (0, 2/3), at .8: (0, 1/3), at .7: (1/3, 1/3), at .6: (1/3, 0): costs 2, 1, 4/3, 1/3
    scores, outcomes = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [True, True, False, True, False, False]
    assert roc_threshold(scores, outcomes) == 0.6
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.integers(1, 10, 12) / 10
        outcomes = rng.random(12) < 0.6
        outcomes[:2] = True, False
        assert roc_threshold(scores.tolist(), outcomes.tolist()) == brute_force_threshold(scores, outcomes)


def test_the_threshold_is_refitted_from_six_tokens_on_with_both_outcomes():
    policy = ConfidenceThreshold(0.4, refit=True, call=100)
    policy.reset(COST)

    def tell(confidences, accepted):
        step = Drafted(0)
        for confidence in confidences:
            step.add(confidence, 1.0, 0.9)
        policy.learn(step, accepted)
        return policy._threshold

    assert tell([0.9, 0.8], 2) == 0.4
    assert tell([0.9, 0.8, 0.7], 3) == 0.4  # five, and all accepted
    assert tell([0.9], 1) == 0.4  # six
    assert tell([0.95, 0.6, 0.2], 1) == 0.7  # the third was not tested: accepted down to .7, rejected at .6
    policy._emitted = 100
    policy._forget()
    assert tell([0.1], 0) == 0.7  # the next call keeps the threshold, and has one outcome so far


def test_svip_stops_exactly_where_the_bound_is_passed():
    h, c = 0.3, 0.15
    edge = h * h / c
    entropy = [edge * (1 - 1e-9), edge * (1 + 1e-9), 0.0, 0.0, 5.0, 0.0, 0.0]
    log = hand_made([1] * 7, entropy=entropy)
    assert math.sqrt(c * entropy[0]) <= h < math.sqrt(c * entropy[1])
    assert lengths(SVIP(h, c), log)[:2] == [(2, 2), (2, 2)]
    assert lengths(SVIP(h, c, max_gamma=1), log)[0] == (1, 1)


def test_disco_stops_below_its_threshold():
    log = hand_made([1] * 30, confidence=[0.9, 0.8, 0.5] * 10)
    logit = (0.0, 10.0, 0.0, 0.0, 0.0)  # 10·log q: .9 → .26, .8 → .10
    assert lengths(Disco(logit, 0.2), log)[:2] == [(2, 2), (2, 2)]
    assert lengths(Disco(logit, 0.05), log)[0] == (3, 3)
    position = (2.0, 0.0, 0.0, 0.0, -2.0)  # 2 - 2·log(position): ≥ 0 up to e
    assert lengths(Disco(position, 0.5), log)[0] == (3, 3)


def test_goodput_takes_the_best_length_for_its_rate():
    policy = Goodput(max_gamma=20)
    policy.reset(ConstantRatio(0.1))
    for alpha in (0.0, 0.3, 0.6, 0.9):
        rates = [expected_tokens(alpha, k) / (1 + 0.1 * k) for k in range(21)]
        assert policy.best(alpha) == int(np.argmax(rates))
    good, bad = hand_made([1] * 300), hand_made([0] * 300)
    drafted = [step.drafted for step in simulate_steps(good, Goodput(max_gamma=8), COST)]
    assert drafted[:-1].count(8) > 0.9 * len(drafted) - 1
    drafted = np.array([step.drafted for step in simulate_steps(bad, Goodput(window=64), ConstantRatio(0.3))])
    assert 0 < drafted.sum() < 60  # it gives up
    assert drafted[100:-1].any()  # and tries again


def test_cascade_turns_itself_off_where_drafting_does_not_pay_and_on_where_it_does():
    log = hand_made((np.random.default_rng(0).random(8000) < 0.5).astype(int))
    (dear,) = specsim.simulate_policies(log, [Cascade()], draft_cost=0.9)
    (cheap,) = specsim.simulate_policies(log, [Cascade()], draft_cost=0.01)
    always = specsim.simulate_policies(log, [Constant(3)], draft_cost=0.9)[0].speedup
    assert dear.drafted_histogram[0] > 0.9 * dear.steps
    assert always < 0.6 < 0.95 < dear.speedup < 1
    assert cheap.drafted_histogram[0] < 0.01 * cheap.steps
    assert cheap.speedup > 1.5


def test_cascade_climbs_step_by_step():
    """Everything is accepted: utility rises with K, so each test phase goes up."""
    policy = Cascade(gamma=2, trial=2, trials=3, settle=4)
    drafted = [step.drafted for step in simulate_steps(hand_made([1] * 200), policy, COST)]
    # 2, then the smaller neighbour, then the larger; settled at 3; then 2, 4, 5
    assert drafted[:12] == [2, 2, 1, 1, 3, 3, 3, 3, 3, 3, 2, 2]
    assert drafted[12:20] == [4, 4, 5, 5, 5, 5, 5, 5]


def test_the_oracle_drafts_what_will_be_accepted_where_that_pays():
    log = hand_made([1, 1, 0, 0, 1, 1, 1, 1])
    assert lengths(Oracle(), log) == [(2, 2), (0, 0), (3, 3)]
    assert lengths(Oracle(), log, ConstantRatio(1.5)) == [(0, 0)] * 8
    # where verification costs as much as a pass of its own per token, a draft is never worth its price
    free_never = MeasuredStep([1, 80], [1.0, 80.0], draft=0.01)
    assert lengths(Oracle(), log, free_never) == [(0, 0)] * 8


@dataclass
class Fixed(Policy):
    """So many tokens in each step, whatever happens."""

    plan: tuple

    planned = True

    def reset(self, cost):
        self.left = list(self.plan)

    def more(self, step):
        return step.size < self.left[0]

    def learn(self, step, accepted):
        self.left.pop(0)


@pytest.mark.parametrize("cost", [ConstantRatio(0.3), MeasuredStep([1, 4], [1.4, 2.6], 0.2)])
def test_the_oracle_is_the_best_of_all_plans(cost):
    rng = np.random.default_rng(1)
    for _ in range(5):
        log = hand_made((rng.random(6) < 0.6).astype(int))

        def total(policy, log=log):
            return sum(cost.step(drafted) for drafted, _ in lengths(policy, log, cost))

        best = min(total(Fixed(plan)) for plan in itertools.product(range(4), repeat=6))
        assert total(Oracle(max_gamma=3)) == pytest.approx(best)


def test_nobody_beats_the_oracle_and_everybody_emits_the_same_text(text, full):
    train, log = text if full else [half.part(0, 400) for half in text]
    policies = every_policy(train, log)
    dear = MeasuredStep([1, 301], [1.0, 31.0], draft=0.05)
    for costs in ({"draft_cost": 0.02}, {"draft_cost": 0.3}, {"cost": dear}):
        runs = specsim.simulate_policies(log, policies, **costs)
        *others, oracle = runs
        assert oracle.policy == "oracle"
        assert all(run.time >= oracle.time * (1 - 1e-12) for run in others)
        assert all(run.tokens == len(log) for run in runs)
        assert all(run.truncated == 0 for run in runs)
        assert len({run.policy for run in runs}) == 9


# --- what is learned -------------------------------------------------------------------------------------


def test_logistic_regression_finds_the_coefficients():
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, (20_000, 2))
    chance = 1 / (1 + np.exp(-(0.5 + x @ [0.4, -0.3])))
    labels = rng.random(len(x)) < chance
    assert logistic(x, labels) == pytest.approx((0.5, 0.4, -0.3), abs=0.06)
    assert np.isfinite(logistic(x, np.ones(len(x), dtype=bool))).all()


def test_examples_are_what_a_step_would_have_seen(text):
    train, _ = text
    features, runs = examples(train.part(0, 500), 6)

    @dataclass
    class Recorder(Policy):
        def more(self, step):
            return step.size < 6

        def learn(self, step, accepted):
            seen.append((step, accepted))

    seen = []
    list(simulate_steps(train.part(0, 500), Recorder(), COST))
    for step, accepted in seen:
        if step.size == 6 and step.start < len(runs):
            assert runs[step.start] == accepted
            assert features.confidence[step.start].tolist() == step.confidence
            assert features.entropy[step.start].tolist() == step.entropy


def test_what_was_learned_is_calibrated(text):
    """Predictions of Disco mean what they say, on text that it was not fitted on."""
    train, log = text
    f, runs = examples(log, 4)
    disco = Disco.fit(train, max_gamma=4).coefficients
    z = np.log(f.confidence), f.entropy, np.log(f.top)
    for k in range(4):
        inputs = [1.0, *(column[:, k] for column in z)]
        in_the_end = sum(c * x for c, x in zip(disco, [*inputs, math.log1p(k)], strict=True))
        assert np.mean(1 / (1 + np.exp(-in_the_end))) == pytest.approx((runs > k).mean(), abs=0.05)
    # and they tell tokens apart
    first = sum(c * x for c, x in zip(disco, [1.0, *(column[:, 0] for column in z)], strict=False))
    accepted = runs > 0
    assert np.median(first[accepted]) > np.median(first[~accepted]) + 0.5


# --- runs ------------------------------------------------------------------------------------------------


def test_time_is_what_drafts_verification_and_deciding_take():
    log = hand_made([1, 1, 0, 0, 1, 1, 1, 1])
    policies = [Constant(2, overhead=0.5), SVIP(h=9.0, max_gamma=2, overhead=0.5)]
    cost = MeasuredStep([1, 3], [1.01, 1.03], draft=0.1)
    first, second = specsim.simulate_policies(log, policies, cost=cost, blocks=2, constants=[2])
    # (2, 2), (2, 0), (2, 2), (0, 0): the last step has no room
    assert first.counts.tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 2]]
    assert (first.counts == second.counts).all()
    plain = (3 * (0.2 + 1.03) + 1.01) / 1.01
    assert first.time == pytest.approx(plain + 4 * 0.5)
    assert second.time == pytest.approx(plain + 6 * 0.5)
    assert first.difference == pytest.approx(4 * 0.5 / 8)
    assert first.speedup == pytest.approx(8 / first.time)
    assert (first.steps, first.tokens, first.drafted, first.accepted) == (4, 8, 6, 4)
    assert first.tokens_per_step == 2
    assert first.alpha_drafted == pytest.approx(4 / 6)
    assert first.drafted_histogram.tolist() == [1, 0, 3]
    assert first.accepted_histogram.tolist() == [2, 0, 2]
    assert first.to_dict()["counts"] == first.counts.tolist()


def test_each_policy_is_compared_with_the_best_constant(text):
    _, log = text
    constants = [Constant(gamma) for gamma in (1, 2, 3, 8)]
    runs = specsim.simulate_policies(log, constants, constants=(1, 2, 3, 8))
    best = min(runs, key=lambda run: run.time)
    assert {run.best_constant for run in runs} == {int(best.policy.split()[1])}
    assert best.difference == best.error == 0
    for run in runs:
        assert run.difference == pytest.approx(run.time_per_token - best.time_per_token)
    assert runs[-1].difference > 10 * runs[-1].error > 0


def test_the_error_of_a_difference_is_what_differences_scatter_by(full):
    """Over 150 logs, or 80: squares of deviations over those reported, by chi-square; and that pairing helps."""
    number, length = (150, 2000) if full else (80, 1000)
    logs = (specsim.draft_log(*PAIR, tokens=length, rng=seed, ahead=0) for seed in range(number))
    runs = [specsim.simulate_policies(log, [Constant(2)], constants=[5])[0] for log in logs]
    differences = np.array([run.difference for run in runs])
    errors = np.array([run.error for run in runs])
    statistic = float((((differences - differences.mean()) / errors) ** 2).sum())
    assert chi2.sf(statistic, number - 1) > FALSE_ALARM
    assert chi2.cdf(statistic, number - 1) > FALSE_ALARM
    assert chi2.sf(4 * statistic, number - 1) < FALSE_ALARM  # errors half as large would be seen
    assert chi2.cdf(statistic / 4, number - 1) < FALSE_ALARM  # and twice as large
    one = np.array([run.time_per_token for run in runs])
    other = one - differences
    assert differences.var() < one.var() + other.var()


# --- bad input -------------------------------------------------------------------------------------------


def test_steps_of_any_length_have_times():
    times = _StepTimes(lambda gamma: 1.0 + gamma)
    assert (times.step(20_000), times.step(3)) == (20_001.0, 4.0)
    with pytest.raises(ValueError, match="give times that never fall"):
        _StepTimes(lambda gamma: 2.0 - gamma / 4).step(1)
