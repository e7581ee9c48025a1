"""The engine: the same counts however the work is cut, what the counts mean, and how a run ends early."""

import dataclasses
import itertools
import json
import threading

import numpy as np
import pytest
from conftest import FALSE_ALARM
from refused import refuses
from scipy import stats

from specsim import default_pair
from specsim.core._streams import key_of
from specsim.core.distributions import dyadic, synthetic_pair
from specsim.models import DynamicTree, PromptLookup, TableModel, Tree, branching, chain, chains
from specsim.simulation import _sources as sources
from specsim.simulation._counting import StepTally, add_up, count_chunks, run
from specsim.simulation._simulate import replay, simulate
from specsim.simulation._sources import FixedPairSource, make_source
from specsim.theory import accepted_law, expected_tokens
from specsim.theory._enumeration import prove

P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
KEY = key_of(5)


def table_pair(seed=0, size=3):
    """A target of order 1 and a draft of order 2."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(size), size), rng.dirichlet(np.ones(size), (size, size))
    return TableModel(p), TableModel(q)


@pytest.fixture(scope="module")
def all_sources(small_trace):
    return {
        "fixed pair": make_source(*synthetic_pair("zipf", 50, 0.7, rng=0), rule="standard", gamma=3),
        "models": make_source(*table_pair(), rule="standard", gamma=3),
        "n-grams": make_source(*default_pair(), rule="standard", gamma=3),
        "trace": make_source(small_trace, None, rule="standard", gamma=2),
    }


KINDS = ["fixed pair", "models", "n-grams", "trace"]
STEPS = {"fixed pair": 9001, "models": 9001, "n-grams": 501, "trace": 2001}


def cut_small(source):
    kind = type("Small", (type(source),), {"chunk": 613})
    return kind(**{field.name: getattr(source, field.name) for field in dataclasses.fields(source)})


def in_small_batches(source, monkeypatch):
    monkeypatch.setattr(sources, "FIXED_PAIR_BATCH", 100)
    return source if isinstance(source, FixedPairSource) else dataclasses.replace(source, batch_bytes=20_000)


def count(source, steps, threads=1, first=0, **progress):
    tally = StepTally(source.tree.depth, source.vocab_size)
    parts = count_chunks(source, tally, KEY, [(first, first + steps)], threads=threads)
    return add_up(parts, tally, steps, **progress).counts


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


# --- the same counts -------------------------------------------------------------------------------------


def counted_however_it_is_cut(source, steps):
    """The counts, which are the same on any number of threads, in other chunks and in pieces."""
    whole = count(source, steps)
    assert (whole["lengths"].sum(), len(whole["lengths"])) == (steps, source.tree.depth + 1)
    assert {array.dtype for array in whole.values()} == {np.dtype(np.int64)}
    for threads in (1, 2, 3):
        assert same(count(cut_small(source), steps, threads), whole)
    pieces = [count(source, b - a, first=a) for a, b in itertools.pairwise([0, 1, 7, steps // 3, steps])]
    assert same({name: sum(piece[name] for piece in pieces) for name in whole}, whole)
    return whole


@pytest.mark.parametrize("kind", KINDS)
def test_counts_do_not_depend_on_threads_or_chunks(all_sources, kind, monkeypatch):
    source, steps = all_sources[kind], STEPS[kind]
    whole = counted_however_it_is_cut(source, steps)
    assert same(count(in_small_batches(source, monkeypatch), steps, threads=2), whole)


def test_threads_share_steps_that_are_fewer_than_a_chunk(all_sources):
    source = all_sources["fixed pair"]
    tally = StepTally(source.tree.depth, source.vocab_size)
    parts = count_chunks(source, tally, KEY, [(0, 9001)], threads=3)
    assert sorted(part.steps for part in parts) == [2999, 3001, 3001]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_the_steps_one_by_one(all_sources, kind):
    source, steps = all_sources[kind], 200
    lengths = np.zeros(source.tree.depth + 1, dtype=int)
    tokens = np.zeros(source.vocab_size + 1, dtype=int)  # the padding first
    for batch in source.batches(KEY, 0, steps):
        for s in range(batch.accepted.size):
            lengths[batch.accepted[s]] += 1
            for i, x in enumerate(batch.tokens[:, s].tolist()):
                tokens[x + 1] += 1
                assert (x == -1) == (i > batch.accepted[s])
    found = count(source, steps)
    assert same(found | {"tokens": found["tokens"].sum(axis=0)}, {"lengths": lengths, "tokens": tokens})


# --- what the counts mean --------------------------------------------------------------------------------


def chi_square_p_value(counts, law):
    return stats.chisquare(counts, counts.sum() * np.asarray(law)).pvalue


def test_lengths_of_a_fixed_pair_follow_the_capped_geometric_law():
    result = simulate(P, Q, gamma=4, steps=1_000_000, rng=2)
    assert chi_square_p_value(result.lengths, accepted_law(0.7, 4)) > FALSE_ALARM
    assert chi_square_p_value(result.lengths, accepted_law(0.705, 4)) < FALSE_ALARM
    error = result.tokens_per_step_error
    assert abs(result.tokens_per_step - expected_tokens(0.7, 4)) < 6.2 * error  # two-sided 1e-9
    assert abs(result.tokens_per_step - expected_tokens(0.705, 4)) > 6.2 * error


class FirstTokens:
    """A tally of the first token that a step emits."""

    def zeros(self):
        return {"first": np.zeros(3, dtype=np.int64)}

    def count(self, counts, batch, key):
        counts["first"] += np.bincount(batch.tokens[0], minlength=3)


def hand_counted(lengths, tree=None):
    lengths = np.array(lengths)
    tokens, steps = np.array([lengths @ np.arange(1, len(lengths) + 1)]), int(lengths.sum())
    counts = {"lengths": lengths, "tokens": tokens, "steps": steps, "tree": tree or chain(len(lengths) - 1)}
    return dataclasses.replace(simulate(P, Q, steps=1, rng=0), **counts)


def test_alphas_of_hand_counted_lengths():
    result = hand_counted([5, 3, 0, 2])  # 10 steps, 3 drafted each: 9 accepted, 8 rejected
    assert result.accepted == 9
    assert result.alpha_drafted == 9 / 30
    assert result.alpha_verified == 9 / 17
    assert result.tokens_per_step == 1.9
    emitted = np.repeat([1, 2, 4], [5, 3, 2])
    assert result.tokens_per_step_error == pytest.approx(emitted.std() / np.sqrt(10))
    assert (hand_counted([4, 0]).alpha_verified, hand_counted([0, 4]).alpha_verified) == (0.0, 1.0)
    assert (result.gamma, result.tree) == (3, chain(3))
    result = hand_counted([5, 3, 2], branching(3, 2))  # 10 steps, 9 drafted each: 7 accepted
    assert (result.gamma, result.tree.size) == (2, 9)
    assert result.alpha_drafted == 7 / 90
    assert result.alpha_verified == 7 / 15
    assert result.tokens_per_step == 1.7


def test_alpha_context_is_the_mean_overlap_where_steps_begin(small_trace):
    assert simulate(P, Q, steps=10, rng=0).alpha_context == pytest.approx(0.7, abs=1e-15)
    target, draft = table_pair()
    overlaps = [np.minimum(target.row(c), draft.row(c)).sum() for c in draft.contexts.tolist()]
    assert simulate(target, draft, steps=10, rng=0).alpha_context == pytest.approx(np.mean(overlaps))
    assert 0 < simulate(small_trace, gamma=2, steps=10, rng=0).alpha_context < 1


def test_two_regimes_tell_the_alphas_apart():
    """β is .3 or .95 throughout a step, γ = 5: Eq. 1 gives 2.51 or 3.64, by the α; truth is 3.36."""
    p, q = np.zeros((4, 4)), np.zeros((4, 4))
    p[:2, :2], q[:2, :2] = [1.0, 0.0], [0.3, 0.7]
    p[2:, 2:], q[2:, 2:] = [0.5, 0.5], [0.55, 0.45]
    result = simulate(TableModel(p), TableModel(q), gamma=5, steps=400_000, rng=4)
    truth = (expected_tokens(0.3, 5) + expected_tokens(0.95, 5)) / 2
    assert round(truth, 2) == 3.36
    assert abs(result.tokens_per_step - truth) < 6.2 * result.tokens_per_step_error
    assert result.alpha_context == pytest.approx(0.625)
    assert round(expected_tokens(result.alpha_context, 5), 2) == 2.51
    assert expected_tokens(result.alpha_verified, 5) == pytest.approx(3.64, abs=0.03)
    assert result.alpha_drafted == pytest.approx((truth - 1) / 5, abs=0.01)


def test_a_result_goes_to_json_and_to_html():
    result = simulate(P, Q, gamma=2, steps=1000, rng=6, threads=2)
    told = json.loads(json.dumps(result.to_dict()))
    assert told["lengths"] == result.lengths.tolist()
    assert told["alpha_verified"] == result.alpha_verified
    assert (told["gamma"], told["draft"]) == (2, {"parents": [0, 1], "draft_sampling": "sampled", "block": 1})
    assert (told["provenance"]["root"], told["provenance"]["threads"]) == (6, 2)
    assert ">α verified</td>" in result._repr_html_()
    assert ", sampled chain of 2: 1,000 steps, seed 6<" in result._repr_html_()
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.steps = 1
    result = simulate(P, Q, rule="k_seq", gamma=branching(2, 2), steps=1000, rng=6)
    told = json.loads(json.dumps(result.to_dict()))
    assert (told["rule"], told["gamma"], told["draft"]["parents"]) == ("k_seq", 2, [0, 0, 1, 1, 2, 2])
    assert result.alpha_drafted == result.accepted / 6000
    assert "sampled tree with parents (0, 0, 1, 1, 2, 2)" in result._repr_html_()


# --- other rules, trees ----------------------------------------------------------------------------------

DRAFTS = {
    "standard": chain(3),
    "gumbel": chain(3),
    "lenience:lenience=0.5": chain(3),
    "cascade_token:alpha=0.5": chain(3),
    "k_seq": branching(2, 2),
    "without_replacement": branching(2, 2, draft_sampling="without replacement"),
    "traversal": branching(2, 2),
}
SIZES = {"fixed pair": 5000, "models": 5000, "n-grams": 200}


def tried(rules, slow):
    """Parameters of a test that begin with a rule; those of the `slow` rules only with --all."""
    return [
        pytest.param(*given, marks=pytest.mark.slow) if given[0] in slow else pytest.param(*given)
        for given in rules
    ]


#: For a chain with a parameter, and for a tree of independent drafts, other rules stand.
RULES = tried(zip(DRAFTS), {"lenience:lenience=0.5", "traversal"})


#: Drafts of which nothing is random.
CHOSEN = {
    "dynamic tree": ("deterministic_children", DynamicTree(width=3, depth=3, nodes=5)),
    "prompt lookup": ("one_hot", chain(4)),
}


def chosen_pair(kind):
    target, draft = default_pair()
    text = np.array(list(b"to be or not to be, that is the question: to be is to do; to do is to be. " * 8))
    return target, draft if kind == "dynamic tree" else PromptLookup(text)


def after(model, *context):
    """The model, whose steps begin after this context alone."""
    shape = (3,) * model.order
    histories = np.indices(shape).reshape(model.order, -1).T
    return TableModel(model.rows(histories).reshape(*shape, 3), contexts=[context])


#: Of one context: a draft of order 0, one of order 2, and a text that a lookup always meets in one state.
FROM_ONE_CONTEXT = {
    "order 0": ("standard", chain(2), TableModel(Q)),
    "order 2": ("standard", chain(2), after(table_pair(3)[1], 2, 1)),
    "dynamic tree": (*CHOSEN["dynamic tree"], TableModel(Q)),
    "prompt lookup": (*CHOSEN["prompt lookup"], PromptLookup(np.array([1] * 50))),
}


@pytest.mark.parametrize("kind", FROM_ONE_CONTEXT)
def test_the_first_token_has_the_target_law_given_the_context(kind):
    target, _ = table_pair(3)
    rule, tree, draft = FROM_ONE_CONTEXT[kind]
    source = make_source(after(target, 1), draft, rule=rule, gamma=tree)
    first = run(source, FirstTokens(), KEY, 0, 100_000, threads=2).counts["first"]
    assert chi_square_p_value(first, target.row([1])) > FALSE_ALARM
    assert chi_square_p_value(first, target.row([2])) < FALSE_ALARM


def pair_of(kind):
    return {"fixed pair": (P, Q), "models": table_pair(), "n-grams": default_pair()}[kind]


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("rule", RULES)
def test_counts_of_any_rule_do_not_depend_on_threads_or_chunks(rule, kind, monkeypatch):
    source, steps = make_source(*pair_of(kind), rule=rule, gamma=DRAFTS[rule]), SIZES[kind]
    whole = counted_however_it_is_cut(source, steps)
    assert whole["lengths"].all()
    assert same(count(in_small_batches(source, monkeypatch), steps, threads=2), whole)


@pytest.mark.parametrize("kind", CHOSEN)
def test_counts_of_drafts_that_are_not_drawn(kind):
    (rule, tree), pair = CHOSEN[kind], chosen_pair(kind)
    counted_however_it_is_cut(make_source(*pair, rule=rule, gamma=tree), 300)
    result = simulate(*pair, rule=rule, gamma=tree, steps=40, rng=12)
    told = [replay(*pair, step=step, rule=rule, gamma=tree, rng=12) for step in range(40)]
    assert np.bincount([one.num_accepted for one in told], minlength=tree.depth + 1).tolist() == list(
        result.lengths
    )
    assert np.bincount(np.concatenate([one.tokens for one in told]), minlength=256).tolist() == list(
        result.tokens
    )
    assert 0 < result.alpha_context < 1
    assert (result.tree, result.gamma) == (tree, tree.depth)
    assert result.alpha_drafted == result.accepted / sum(len(one.nodes) for one in told)
    assert json.loads(json.dumps(result.to_dict()))["draft"] == tree.to_dict()


@pytest.mark.parametrize("kind", ["fixed pair", "models"])
@pytest.mark.parametrize(
    ("rule", "tree"),
    [
        *tried(DRAFTS.items(), {"lenience:lenience=0.5", "gumbel", "k_seq", "traversal"}),
        ("standard", chain(3, block=3)),
        pytest.param("k_seq", chains(2, 2), marks=pytest.mark.slow),
        ("k_seq", Tree((0, 0, 1, 2), block=2)),
        ("traversal", Tree((0, 1, 0, 2))),
        ("naive_matching", branching(3, 1, draft_sampling="top")),
    ],
)
def test_measured_tokens_per_step_are_those_of_the_proof(rule, tree, kind):
    rng = np.random.default_rng(8)
    shape = (3,) if kind == "fixed pair" else (3, 3)
    p, q = (dyadic(rng.dirichlet(np.ones(3), shape[:-1]), bits=10) for _ in range(2))
    models = [TableModel(rows, contexts=None if kind == "fixed pair" else [[0]]) for rows in (p, q)]
    proof = prove(*models, rule=rule, gamma=tree)
    pair = (p, q) if kind == "fixed pair" else models
    result = simulate(*pair, rule=rule, gamma=tree, steps=200_000, rng=3)
    error = result.tokens_per_step_error
    assert abs(result.tokens_per_step - float(proof.mean_tokens)) < 6.2 * error  # two-sided 1e-9
    assert result.tree == proof.tree == tree
    assert result.rule == proof.rule


def test_tokens_drafted_ahead_are_drawn_from_the_law_given_the_context_alone():
    """Two independent heads: the draft's second token would be certain given the first."""
    flip = TableModel([[0.5, 0.5], [1.0, 0.0]], contexts=[[0]])
    ahead, seen = (simulate(flip, flip, gamma=chain(2, block=b), steps=50_000, rng=1) for b in (2, 1))
    assert seen.lengths.tolist() == [0, 0, 50_000]
    # the second head has (3/4, 1/4): after 0 it is tested against (1/2, 1/2), after 1 against (1, 0)
    assert chi_square_p_value(ahead.lengths[1:], [0.25, 0.75]) > FALSE_ALARM
    assert ahead.lengths[0] == 0


def test_a_chain_of_a_trace_takes_any_rule_for_chains(small_trace):
    for rule in ("standard", "lenience:lenience=0.5", "gumbel", "cascade_token", "one_hot"):
        result = simulate(small_trace, rule=rule, gamma=2, steps=60, rng=0, threads=2)
        assert result.lengths.sum() == 60
        told = [replay(small_trace, step=step, rule=rule, gamma=2, rng=0).num_accepted for step in range(60)]
        assert np.bincount(told, minlength=3).tolist() == result.lengths.tolist()


# --- progress and early ends -----------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_grows_to_the_total(all_sources, threads):
    calls = []
    count(cut_small(all_sources["fixed pair"]), 9001, threads, progress=lambda *call: calls.append(call))
    done = [steps for steps, _ in calls]
    assert done == sorted(set(done))
    assert len(calls) == 15
    assert calls[-1] == (9001, 9001)
    assert {total for _, total in calls} == {9001}


class Watched:
    """A source that notes the chunks it begins, and fails in the one that begins at `broken`."""

    kind, tree, vocab_size, chunk = "watched", chain(3), 50, 10

    def __init__(self, source, broken=None):
        self.source, self.broken, self.begun = source, broken, []

    def batches(self, key, first, steps):
        self.begun.append(first)
        if first == self.broken:
            raise ZeroDivisionError("in a chunk")
        return self.source.batches(key, first, steps)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_exception_in_the_callback_ends_the_run(all_sources, error):
    source, before = Watched(all_sources["fixed pair"]), threading.active_count()

    def stop_at_second(done, total):
        if done == 20:
            raise error

    with pytest.raises(error):
        count(source, 100_000, threads=2, progress=stop_at_second)
    assert 2 <= len(source.begun) < 20
    assert threading.active_count() == before


def test_an_exception_in_a_chunk_ends_the_run(all_sources):
    source = Watched(all_sources["fixed pair"], broken=30)
    refuses("in a chunk", count, source, 100_000, threads=2, error=ZeroDivisionError)
    assert len(source.begun) < 20


# --- errors ----------------------------------------------------------------------------------------------


def test_a_trace_brings_its_own_draft_and_no_more_than_it_logged(small_trace):
    refuses("the trace has its own q", simulate, small_trace, Q, gamma=2, steps=10, rng=0, error=TypeError)
    with pytest.raises(ValueError, match="3 exceeds the 2 drafted tokens of a logged step"):
        simulate(small_trace, gamma=3, steps=10, rng=0)
    with pytest.raises(ValueError, match="a trace logs rows along one path, so it has none for a tree"):
        simulate(small_trace, rule="k_seq", gamma=branching(2), steps=10, rng=0)
    assert simulate(small_trace, gamma=1, steps=10, rng=0).lengths.sum() == 10


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize(
    ("rule", "sampling"),
    [
        ("without_replacement", "without replacement"),
        ("deterministic_children", "top"),
        ("greedy_multi_draft", "top and sample"),
    ],
)
def test_more_different_siblings_than_tokens_are_refused(rule, sampling, models):
    pair = (TableModel(P), TableModel(Q)) if models else (P, Q)
    said = "gamma: a tree in which 4 siblings have different tokens needs as many, and the vocabulary has 3"
    refuses(said, simulate, *pair, rule=rule, gamma=branching(1, 4, draft_sampling=sampling), steps=10)
    assert (
        simulate(*pair, rule=rule, gamma=branching(3, draft_sampling=sampling), steps=10, rng=1).steps == 10
    )
