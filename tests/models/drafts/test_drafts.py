"""Drafts: ways of drawing siblings, trees, heads that look ahead, mixtures, EAGLE-2's and Sequoia's trees."""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction as F

import numpy as np
import pytest
from conftest import FALSE_ALARM, LAST_UNIFORM, PAIR_FLAVOURS, rational_pair
from enumerated import continued_law, expand, expected_tokens_of_tree, paths
from refused import refuses

from specsim import default_pair, rules
from specsim.core._kernels import interpreted
from specsim.core.distributions import cumulative_draw, normalise
from specsim.core.stats import chi_square
from specsim.models import DynamicTree, Model, TableModel, Tree, branching, chain, chains
from specsim.models._base import row_ahead, rows_ahead
from specsim.models._drafts.sampling import (
    DISTINCT,
    SAMPLING_METHODS,
    draw_siblings,
    rank_tokens,
    sibling_laws,
)
from specsim.models._drafts.sequoia import best_tree
from specsim.models._drafts.tree import MAX_NODES, as_tree
from specsim.models._table import Mixture
from specsim.simulation._rows import ModelRows
from specsim.theory._enumeration import prove, target_law

#: Rows that are awkward to draw from: plain, zeros, ties, fewer tokens than siblings, nearly nothing left.
ROWS = {
    "plain": [F(1, 10), F(2, 10), F(3, 10), F(4, 10)],
    "zeros": [F(0), F(2, 5), F(0), F(3, 5)],
    "ties": [F(1, 6), F(1, 3), F(1, 3), F(1, 6)],
    "one token": [F(0), F(0), F(1), F(0)],
    "uniform": [F(1, 4)] * 4,
    "dominated": [F(1, 100), F(97, 100), F(1, 100), F(1, 100)],
}


# --- siblings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
def test_the_laws_of_siblings_are_laws(drawing):
    for q, count in itertools.product(ROWS.values(), [1, 2, 3, 4]):
        laws = list(sibling_laws(drawing, q, count))
        assert sum(chance for _, chance in laws) == 1
        assert all(chance > 0 for _, chance in laws)
        assert len({drawn for drawn, _ in laws}) == len(laws)
        assert all(len(drawn) == count for drawn, _ in laws)
        if drawing in DISTINCT:
            assert all(len(set(drawn)) == count for drawn, _ in laws)


def test_siblings_by_hand():
    q = [F(1, 2), F(1, 3), F(1, 6)]
    for x, y in itertools.product(range(3), repeat=2):
        assert dict(sibling_laws("sampled", q, 2))[x, y] == q[x] * q[y]
        without = dict(sibling_laws("without replacement", q, 2))
        assert without.get((x, y), 0) == (q[x] * q[y] / (1 - q[x]) if x != y else 0)
    assert dict(sibling_laws("top and sample", q, 2)) == {(0, 1): F(2, 3), (0, 2): F(1, 3)}
    for drawing in ("sampled", "without replacement", "top and sample"):
        assert dict(sibling_laws(drawing, q, 1)) == {(x,): q[x] for x in range(3)}
    q = [F(0), F(1), F(0)]
    for drawing in ("without replacement", "top and sample"):
        assert dict(sibling_laws(drawing, q, 2)) == {(1, 0): F(1, 2), (1, 2): F(1, 2)}
    assert dict(sibling_laws("top", q, 2)) == {(1, 0): 1}


def test_distinct_siblings_of_ties_and_of_too_few_tokens():
    q = [F(1, 6), F(1, 3), F(1, 6), F(1, 3)]
    assert rank_tokens(q) == [1, 3, 0, 2]
    assert dict(sibling_laws("top", q, 3)) == {(1, 3, 0): 1}
    assert draw_siblings("top", as_floats([q]), np.zeros((3, 1)))[:, 0].tolist() == [1, 3, 0]
    many = np.random.default_rng(1).integers(1, 4, size=300) / 600
    assert draw_siblings("top", many[None], np.zeros((300, 1)))[:, 0].tolist() == rank_tokens(many.tolist())
    for drawing in DISTINCT:
        with pytest.raises(ValueError, match="4 distinct siblings cannot be drawn from 3 tokens"):
            list(sibling_laws(drawing, [F(1, 3)] * 3, 4))


def as_floats(rows):
    return np.array([[float(weight) for weight in row] for row in rows])


def counts_of(drawing, q, u):
    """Counts of ordered draws in the order of `sibling_laws`, and the law; no draw is outside it."""
    laws = dict(sibling_laws(drawing, q, len(u)))
    digits = len(q) ** np.arange(len(u))
    tokens = draw_siblings(drawing, np.tile(as_floats([q]), (u.shape[1], 1)), u)
    counts = np.bincount(digits @ tokens, minlength=len(q) ** len(u))[[digits @ drawn for drawn in laws]]
    assert counts.sum() == u.shape[1]
    return counts, [float(chance) for chance in laws.values()]


@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
@pytest.mark.parametrize("q", ROWS.values(), ids=ROWS)
def test_siblings_follow_their_law(full, drawing, q):
    u = np.random.default_rng(7).random((3, 1_000_000 if full else 100_000))
    assert chi_square(*counts_of(drawing, q, u)).p_value > FALSE_ALARM


@pytest.mark.parametrize("drawing", ["sampled", "without replacement", "top and sample"])
def test_wrong_siblings_are_noticed(full, drawing):
    """Negative controls: uneven uniforms, one uniform for all siblings, siblings in another order."""
    u = np.random.default_rng(7).random((2, 1_000_000 if full else 500_000))
    for name, uniforms in {"uneven": u**1.02, "shared": np.stack([u[0], u[0]])}.items():
        if (drawing, name) != ("top and sample", "shared"):  # it reads the last uniform only
            assert chi_square(*counts_of(drawing, ROWS["plain"], uniforms)).p_value < FALSE_ALARM
    if drawing == "without replacement":
        laws = dict(sibling_laws(drawing, ROWS["plain"], 2))
        table, _ = counts_of(drawing, ROWS["plain"], u)
        reversed_law = [float(laws[drawn[::-1]]) for drawn in laws]
        assert chi_square(table, reversed_law).p_value < FALSE_ALARM


@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
def test_siblings_are_drawn_alike_compiled_and_interpreted(drawing, size):
    rng = np.random.default_rng(3)
    q, u = rng.random((199, size)) * (rng.random((199, size)) < 0.6), rng.random((3, 199))
    q = normalise(q + 1e-300 * np.eye(size)[0])
    u[:, :2] = [[0.0, LAST_UNIFORM]] * 3
    with interpreted():
        expected = draw_siblings(drawing, q, u)
    assert (draw_siblings(drawing, q, u) == expected).all()
    if drawing == "sampled":
        assert expected.tolist() == [[*map(cumulative_draw, q, some)] for some in u]


@pytest.mark.parametrize("drawing", ["sampled", "without replacement"])
def test_a_uniform_equal_to_a_sum_draws_the_token_behind_it(drawing):
    """With u = 0 too, before which a token of weight 0 may stand."""
    u = np.array([[0.0, 0.125, 0.25, 0.75]])
    q = np.tile([0.0, 0.25, 0.0, 0.5, 0.25], (4, 1))
    assert draw_siblings(drawing, q, u).tolist() == [[1, 1, 3, 4]]


# --- trees -----------------------------------------------------------------------------------------------


def test_shapes_of_trees():
    tree = Tree((0, 0, 1, 1, 3))
    assert (tree.size, tree.depth, tree.num_rows, tree.is_chain) == (5, 3, 4, False)
    assert tree.depths == (0, 1, 1, 2, 2, 3)
    assert [tree.children(node) for node in range(6)] == [(1, 2), (3, 4), (), (5,), (), ()]
    assert [tree.path(node) for node in (0, 2, 5)] == [(), (2,), (1, 3, 5)]
    assert str(tree) == "sampled tree with parents (0, 0, 1, 1, 3)"
    assert chain(4) == Tree((0, 1, 2, 3))
    assert (chain(4).depth, chain(4).num_rows, chain(4).is_chain) == (4, 4, True)
    assert chain(3, block=3) == Tree((0, 1, 2), block=3)
    assert chains(1, 3) == chain(3) == branching(1, 1, 1) == as_tree(3)
    assert chains(3, 1) == branching(3) == Tree((0, 0, 0))
    three = chains(3, 2)
    assert three.parents == (0, 0, 0, 1, 2, 3)
    assert [three.path(node) for node in (4, 5, 6)] == [(1, 4), (2, 5), (3, 6)]
    tree = branching(2, 1, 3, draft_sampling="top", block=2)
    assert tree.parents == (0, 0, 1, 2, 3, 3, 3, 4, 4, 4)
    assert [len(tree.children(node)) for node in range(5)] == [2, 1, 1, 3, 3]
    assert (tree.draft_sampling, tree.block, as_tree(tree)) == ("top", 2, tree)
    assert not branching(2).distinct
    assert chain(3).distinct
    assert all(
        branching(2, draft_sampling=drawing).distinct == (drawing != "sampled")
        for drawing in SAMPLING_METHODS
    )
    tree = Tree(np.array([0, 0, 1]))
    assert tree == Tree((0, 0, 1))
    assert all(type(parent) is int for parent in tree.parents)


@pytest.mark.parametrize(
    "make", [chain, branching, lambda size: chains(2, size), lambda size: chains(size, 2)]
)
def test_bad_sizes(make):
    refuses("is not at least 1", make, 0)
    refuses("is not at most 1,024", make, MAX_NODES + 1)
    for size in (1.0, True, "3", None):
        refuses("expected an int", make, size, error=TypeError)
    assert chain(MAX_NODES).size == MAX_NODES


# --- drafts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
@pytest.mark.parametrize("parents", [(0, 1), (0, 0), (0, 0, 1, 1), (0, 0, 1, 2, 3)])
def test_the_drafts_of_a_tree_are_a_law(drawing, parents):
    for block, flavour in itertools.product([1, 2, 3], PAIR_FLAVOURS):
        tree = Tree(parents, drawing, block)
        _, draft = rational_pair(np.random.default_rng(2), 3, 1, 1, flavour)
        drafts = list(tree.drafts(lambda seen, ahead, draft=draft: row_ahead(draft, (1, *seen), ahead)))
        assert sum(chance for _, chance in drafts) == 1
        assert all(chance > 0 and len(tokens) == tree.size for tokens, chance in drafts)
        assert len(dict(drafts)) == len(drafts)


@pytest.mark.parametrize(("block", "seen"), [(1, [0, 1, 2, 3, 4]), (2, [0, 0, 2, 2, 4]), (9, [0] * 5)])
def test_what_a_drafted_token_has_seen(block, seen):
    assert [chain(4, block=block).seen(depth) for depth in range(5)] == seen


@pytest.mark.parametrize(
    "tree", [branching(2, 1, 2, block=3), branching(2, 1, 2, block=2), branching(2, 1, 2)]
)
def test_rows_of_blocks_are_those_of_the_enumeration(full, tree):
    """Independent heads see the context, blocks the blocks before too, autoregressive drafts all tokens."""
    target, draft = rational_pair(np.random.default_rng(4), 3, 1, 1, "plain")
    each = 100 if full else 20
    u = np.random.default_rng(5).random((tree.size, 3 * each))
    start = np.repeat(draft.contexts, each, axis=0)
    rows = ModelRows(target, draft, tree, draft.contexts, leaf_rows=True).rows_after(start, u)
    for b in range(3 * each):
        for node, path in enumerate(paths(tree, rows.draft_tokens[b].tolist())):
            seen = tree.seen(len(path))
            expected = row_ahead(draft, (*start[b], *path[:seen]), len(path) - seen)
            np.testing.assert_allclose(rows.q[b, node], as_floats([expected])[0], rtol=1e-14)
            np.testing.assert_array_equal(rows.p[b, node], target.rows([[*start[b], *path]])[0])
    of_first = rows.q[:each]
    alike = [bool((of_first[:, node] == of_first[0, node]).all()) for node in range(tree.size + 1)]
    assert alike == [tree.seen(depth) == 0 for depth in tree.depths]


@pytest.mark.parametrize("drawing", SAMPLING_METHODS)
@pytest.mark.parametrize("block", [1, 2])
def test_simulated_drafts_follow_the_enumerated_law(full, drawing, block):
    tree = Tree((0, 0, 1), drawing, block)
    target, draft = rational_pair(np.random.default_rng(6), 3, 1, 1, "zeros")
    n = 200_000 if full else 50_000
    rows = ModelRows(target, draft, tree, draft.contexts).rows_after(
        np.full((n, 1), 2, dtype=np.int32), np.random.default_rng(8).random((tree.size, n))
    )
    law = dict(tree.drafts(lambda seen, ahead: row_ahead(draft, (2, *seen), ahead)))
    drafts, counts = np.unique(rows.draft_tokens, axis=0, return_counts=True)
    found = dict(zip(map(tuple, drafts.tolist()), counts.tolist(), strict=True))
    assert set(found) <= set(law)
    pmf = [float(chance) for chance in law.values()]
    assert chi_square([found.get(tokens, 0) for tokens in law], pmf).p_value > FALSE_ALARM


# --- rows ahead ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1])
def test_rows_ahead_are_powers_of_the_table(order):
    _, model = rational_pair(np.random.default_rng(1), 3, order, order, "plain")
    for ahead in range(4):
        for context in model.contexts.tolist():
            exact = row_ahead(model, context, ahead)
            assert sum(exact) == 1
            np.testing.assert_allclose(
                rows_ahead(model, [context], ahead)[0], as_floats([exact])[0], rtol=1e-14
            )
    assert row_ahead(model, model.contexts[0].tolist(), 0) == model.row(model.contexts[0].tolist())


def test_row_ahead_by_enumeration_of_what_comes_between():
    model, _ = rational_pair(np.random.default_rng(1), 3, 2, 0, "zeros")
    total = [F(0)] * 3
    for x, y in itertools.product(range(3), repeat=2):
        chance = model.row((0, 1))[x] * model.row((1, x))[y]
        total = [sum_ + chance * weight for sum_, weight in zip(total, model.row((x, y)), strict=True)]
    assert row_ahead(model, (0, 1), 2) == total
    refuses("independent heads need a draft of order 0 or 1, not 2", rows_ahead, model, [[0, 1]], 1)
    assert (rows_ahead(model, [[0, 1]], 0) == model.rows([[0, 1]])).all()


# --- mixtures --------------------------------------------------------------------------------------------


def overlap(p, q):
    return sum(map(min, p, q))


@pytest.mark.parametrize("flavour", PAIR_FLAVOURS)
@pytest.mark.parametrize("weight", [F(0), F(1, 7), F(1, 2), F(1)])
def test_a_mixture_takes_away_its_share_of_the_rejections(flavour, weight):
    """β(w) = w + (1 - w)·β, in fractions, in every context."""
    target, draft = rational_pair(np.random.default_rng(3), 4, 1, 1, flavour)
    mixture = Mixture(draft, target, weight)
    for context in target.contexts.tolist():
        p, q, mixed = target.row(context), draft.row(context), mixture.row(context)
        assert overlap(p, mixed) == weight + (1 - weight) * overlap(p, q)
        assert sum(mixed) == 1
        assert mixed == {0: q, 1: p}.get(weight, mixed)


def test_a_mixture_is_a_model():
    target, draft = default_pair()
    mixture = Mixture(draft, target, 0.3)
    assert isinstance(mixture, Model)
    assert (mixture.vocab_size, mixture.order) == (256, 4)
    assert mixture.contexts is target.contexts
    histories = target.contexts[:50]
    rows = mixture.rows(histories)
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert all(
        (mixture.row(history.tolist()) == row).all() for history, row in zip(histories, rows, strict=True)
    )
    p, q = target.rows(histories), draft.rows(histories)
    np.testing.assert_allclose(
        np.minimum(p, rows).sum(axis=1), 0.3 + 0.7 * np.minimum(p, q).sum(axis=1), rtol=1e-13
    )
    out = np.full((2, 50, 256), np.nan)
    assert np.shares_memory(mixture.rows(histories, out[1]), out)
    assert (out[1] == rows).all()
    assert np.isnan(out[0]).all()


def test_a_mixture_of_a_short_and_a_long_memory():
    short, long = rational_pair(np.random.default_rng(3), 3, 1, 2, "plain")
    for mixture in (Mixture(short, long, F(1, 3)), Mixture(long, short, F(1, 3))):
        assert mixture.order == 2
        assert mixture.contexts is long.contexts
    exact = Mixture(short, long, F(1, 3)).row((0, 1, 2))
    assert exact == tuple(
        F(2, 3) * a + F(1, 3) * b for a, b in zip(short.row([2]), long.row([1, 2]), strict=True)
    )
    np.testing.assert_allclose(
        Mixture(short, long, F(1, 3)).rows([[1, 2]])[0], as_floats([exact])[0], rtol=1e-15
    )
    floats = TableModel(short.rows(short.contexts))
    assert isinstance(Mixture(floats, long, 0.5).row([0, 1]), np.ndarray)
    assert prove(short, Mixture(long, short, F(1, 3)), gamma=2).exact


# --- the dynamic tree ------------------------------------------------------------------------------------


def rows_after(model, context):
    """The row function that `expand` asks for."""
    return lambda path: model.row((*context, *path))


def law_of_draft(rule, target, tree, tokens, context=(), draft=None):
    """The law of a step of `rule` for a given draft; q is uniform without a draft model."""
    above = paths(tree, tokens)
    p = [target.row((*context, *path)) for path in above]
    size = target.vocab_size
    q = [draft.row((*context, *path)) if draft else [F(1, size)] * size for path in above]
    stop, follow = rule.law(tree.parents, tokens, p, q)
    law = defaultdict(F)
    for node, path in enumerate(above):
        if stop[node]:
            for token, weight in enumerate(follow[node]):
                law[(*path, token)] += stop[node] * weight
    return {emitted: mass for emitted, mass in law.items() if mass}


def is_lossless(law, target, tree, context):
    length = tree.depth + 1
    return continued_law(law, target, length, context) == target_law(target, length, context)


SHAPES = [(1, 3, 3), (2, 2, 3), (2, 3, 5), (3, 2, 6), (3, 3, 4)]  # width, depth, nodes


@pytest.mark.parametrize("name", ["deterministic_children", "naive_matching"])
@pytest.mark.parametrize("flavour", PAIR_FLAVOURS)
def test_the_dynamic_tree_is_verified_without_bias(name, flavour):
    rng = np.random.default_rng(11)
    for trial in range(10):
        order = int(rng.integers(2))
        target, draft = rational_pair(rng, 3, order, order if flavour == "equal" else 1, flavour)
        tree, tokens = expand(rows_after(draft, (0, 2)), *SHAPES[trial % len(SHAPES)])
        law = law_of_draft(rules.get(name), target, tree, tokens, (0, 2), draft)
        assert sum(law.values()) == 1
        assert is_lossless(law, target, tree, (0, 2))


def test_taking_the_dynamic_tree_for_a_sample_of_q_is_noticed():
    """Negative control: rules for sampled siblings are not lossless on it."""
    target, draft = rational_pair(np.random.default_rng(11), 3, 1, 1, "plain")
    tree, tokens = expand(rows_after(draft, (0,)), 2, 2, 3)
    for name in ("without_replacement", "recursive_rejection"):
        law = law_of_draft(rules.get(name), target, tree, tokens, (0,), draft)
        assert sum(law.values()) == 1
        assert not is_lossless(law, target, tree, (0,))


@pytest.mark.parametrize("flavour", PAIR_FLAVOURS)
def test_the_dynamic_tree_keeps_the_worthiest_paths(flavour):
    """With width V nothing is cut on the way: no other set of n paths is worth more."""
    rng = np.random.default_rng(12)
    for nodes in range(1, 13):
        _, draft = rational_pair(rng, 3, 1, 1, flavour)
        tree, tokens = expand(rows_after(draft, (1,)), 3, 2, nodes)
        worth = {(): F(1)}
        for length in (1, 2):
            for path in itertools.product(range(3), repeat=length):
                worth[path] = worth[path[:-1]] * draft.row((1, *path[:-1]))[path[-1]]
        kept = paths(tree, tokens)
        assert len(set(kept)) == nodes + 1
        assert [len(path) for path in kept] == sorted(len(path) for path in kept)
        assert list(tree.parents) == sorted(tree.parents)
        best = sorted((worth[path] for path in worth if path), reverse=True)[:nodes]
        assert sorted((worth[path] for path in kept if path), reverse=True) == best
        for node, path in enumerate(kept):
            siblings = [tokens[child - 1] for child in tree.children(node)]
            assert siblings == rank_tokens(draft.row((1, *path)))[: len(siblings)]
    assert tree.draft_sampling == "top"


def test_a_narrow_tree_expands_the_best_of_a_level_only():
    """Width 2: of four nodes at depth 2 the two best get children; with width 1 it is the greedy chain."""
    asked = []

    def row(path):
        asked.append(path)
        return [F(1, 10), F(6, 10), F(3, 10)]

    tree, tokens = expand(row, width=2, depth=3, nodes=10)
    assert asked == [(), (1,), (2,), (1, 1), (1, 2)]  # (2, 1) is worth as much as (1, 2), and comes later
    assert (tree.parents, tokens) == ((0, 0, 1, 1, 2, 2, 3, 3, 4, 4), (1, 2) * 5)
    assert expand(row, width=1, depth=3, nodes=3) == (Tree((0, 1, 2), "top"), (1, 1, 1))
    tree, tokens = expand(lambda path: [F(0), F(1)], width=2, depth=3, nodes=5)
    assert (tree.parents, tokens) == ((0, 0, 1, 1, 3), (1, 0, 1, 0, 1))


@pytest.mark.parametrize("shape", [*SHAPES, (9, 2, 12), (1, 1, 1)])
def test_dynamic_drafts_of_a_batch_are_those_of_each(shape):
    rng = np.random.default_rng(13)
    for flavour in PAIR_FLAVOURS:
        _, exact = rational_pair(rng, 3, 1, 1, flavour)
        draft = TableModel(exact.rows(exact.contexts))  # floats, as the batch has them
        histories = rng.integers(3, size=(40, 4))
        parents, tokens = DynamicTree(*shape).draft(draft, histories)
        assert parents.dtype == tokens.dtype == np.int64
        for history, above, drafted in zip(histories.tolist(), parents, tokens, strict=True):
            tree, expected = expand(rows_after(draft, history), *shape)
            assert (tree.parents, expected) == (tuple(above), tuple(drafted))


def test_dynamic_drafts_on_real_text():
    target, draft = default_pair()
    parents, tokens = DynamicTree(width=4, depth=5, nodes=12).draft(draft, target.contexts[:64])
    for context, above, drafted in zip(target.contexts[:64].tolist(), parents, tokens, strict=True):
        tree, expected = expand(rows_after(draft, context), width=4, depth=5, nodes=12)
        assert (tree.parents, expected) == (tuple(above), tuple(drafted))
    assert len(set(map(tuple, parents.tolist()))) > 10  # the shape depends on the context


# --- the best fixed tree ---------------------------------------------------------------------------------

ACCEPTANCES = [
    [F(1, 2), F(1, 4), F(1, 8)],
    [F(9, 10), F(1, 20)],
    [F(1, 3), F(1, 3), F(1, 3)],
    [F(1, 10), F(6, 10), F(3, 10)],  # ranks need not fall
    [F(1), F(0)],
    [F(0), F(0)],
    [F(3, 5)],
    [F(2, 7), F(1, 7), F(1, 7), F(1, 7), F(1, 7), F(1, 14)],
]


def all_trees(nodes, ranks):
    """Every tree of `nodes` tokens with at most `ranks` children a node; ordered ones several times."""
    for parents in itertools.product(*(range(j + 1) for j in range(nodes))):
        if max(Counter(parents).values()) <= ranks:
            yield Tree(parents)


@pytest.mark.parametrize("accept", ACCEPTANCES)
def test_no_tree_of_that_size_is_better(accept):
    for nodes in range(1, 7):
        best = defaultdict(F)  # by depth
        for tree in all_trees(nodes, len(accept)):
            best[tree.depth] = max(best[tree.depth], expected_tokens_of_tree(tree, accept))
        found = best_tree(accept, nodes)
        assert found.size == nodes
        assert found.draft_sampling == "without replacement"
        assert expected_tokens_of_tree(found, accept) == max(best.values())
        for depth in range(1, 8):
            if depth < min(best):
                refuses(f"{nodes} nodes do not fit into {depth} levels", best_tree, accept, nodes, depth)
                continue
            limited = best_tree(accept, nodes, depth)
            assert limited.depth <= depth
            assert limited.size == nodes
            assert expected_tokens_of_tree(limited, accept) == max(best[d] for d in best if d <= depth)


def acceptance_by_rank(p, q, count):
    """P_1 … P_count of siblings drawn without replacement, over all draws of them."""
    accept = [F(0)] * count
    for drawn, chance in sibling_laws("without replacement", q, count):
        stop, _ = rules.get("without_replacement").law((0,) * count, drawn, [p] * (count + 1), [q])
        accept = [sum_ + chance * stop[k + 1] for k, sum_ in enumerate(accept)]
    return accept


@pytest.mark.parametrize("flavour", PAIR_FLAVOURS)
def test_expected_tokens_are_those_of_the_proof(flavour):
    """On models without memory every node is alike, and F of the tree is what enumeration finds."""
    rng = np.random.default_rng(15)
    for parents in [(0, 0), (0, 0, 1), (0, 0, 1, 2), (0, 0, 0, 1, 1)]:
        target, draft = rational_pair(rng, 3, 0, 0, flavour)
        tree = Tree(parents, "without replacement")
        accept = acceptance_by_rank(target.row([]), draft.row([]), 3)
        proof = prove(target, draft, rule="without_replacement", gamma=tree)
        assert proof.mean_tokens == expected_tokens_of_tree(tree, accept)
