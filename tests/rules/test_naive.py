"""The row kernels against `naive.py`: compiled, they emit what the naive rules emit, step by step."""

from zlib import crc32

import numpy as np
import pytest
from conftest import awkward_pairs
from laws import drafts_of, every
from naive import NAIVE
from test_rules import CONTROLS, IMITATED, awkward_uniforms, settings_of

from specsim import rules
from specsim.models import branching, chain
from specsim.models._drafts.sampling import draw_siblings
from specsim.simulation._comparison import load_bundled
from specsim.simulation._rows import tile_parents

#: Steps of every shape, and those of them that have awkward rows; the others have plain ones.
STEPS, AWKWARD = 120, 80
#: Kernels and naive rules calculate in different orders, and may part where a decision is as close as this.
CLOSE = 1e-14

CHAINS = [(2, (0,)), (6, (0,)), (2, (0, 1, 2, 3)), (3, (0, 1, 2)), (4, (0, 1)), (5, (0, 1, 2, 3, 4))]
TREES = [
    (2, (0, 0)), (4, (0, 0, 0)), (6, (0, 0, 0, 0)), (3, (0, 0, 1, 2)), (2, (0, 0, 1, 1, 2, 2)),
    (3, (0, 0, 0, 1, 2, 3, 4, 5)), (3, (0, 1, 0, 1, 2, 2)), (3, (0, 1, 1)), (5, (0, 0, 1, 1, 2, 2, 3)),
]  # fmt: skip


def shapes(rule, drawing):
    """(V, tree) of all that the rule verifies, whatever it claims there."""
    return drafts_of(rule, drawing, CHAINS + TREES if rule.on_trees else CHAINS)


def rows(rng, tree, size):
    """p and q [STEPS, n + 1, V], the first of them with zeros, ties, equal and disjoint rows.

    Without the tiny entries of `awkward_pairs`: products of subnormal numbers keep no digits, and the ratios
    p/q of the naive rules overflow."""
    shape = 2, -1, tree.size + 1, size
    awkward = np.array(awkward_pairs(rng, AWKWARD * (tree.size + 1), size)).reshape(shape)
    awkward[awkward < 1e-12] = 0.0
    plain = rng.random((2, STEPS - AWKWARD, tree.size + 1, size))
    both = np.concatenate([awkward, plain], axis=1)
    return both / both.sum(axis=3, keepdims=True)


def draw(rng, tree, p, q):
    """tokens[steps, n] drawn from q; nodes with the same tokens before them have the same rows."""
    steps, nodes, size = q.shape
    tokens, path = np.empty((steps, tree.size), dtype=np.int64), np.zeros((nodes, steps), dtype=np.int64)
    for node in range(nodes):
        if node > 0:
            path[node] = path[tree.parents[node - 1]] * (size + 1) + tokens[:, node - 1] + 1
        for other in range(node):
            alike = path[node] == path[other]
            p[alike, node], q[alike, node] = p[alike, other], q[alike, other]
        if children := tree.children(node):
            columns = [child - 1 for child in children]
            row = np.ascontiguousarray(q[:, node])
            tokens[:, columns] = draw_siblings(tree.draft_sampling, row, rng.random((len(columns), steps))).T
    return tokens


def nearby(u, values):
    """`u` with one uniform moved by little, and the parameters so."""
    for i, coin in enumerate(u):
        for moved in (max(coin - CLOSE, 0.0), min(coin + CLOSE, 1 - 2.0**-53)):
            yield [*u[:i], moved, *u[i + 1 :]], values
    for factor in (1 - CLOSE, 1 + CLOSE):
        yield u, {name: value * factor for name, value in values.items()}


def differing(rule, naive, values, given):
    """Of the shapes `given`, how many steps were compared, how many differ closely, and which differ."""
    compared, close, wrong = 0, 0, []
    for size, tree in given:
        rng = np.random.default_rng([crc32(rule.name.encode()), size, tree.size])
        p, q = rows(rng, tree, size)
        drafted = draw(rng, tree, p, q)
        q = np.ascontiguousarray(q[:, : rule.num_rows(tree)])
        u = awkward_uniforms(rng, (rule.uniforms(tree, size), STEPS))
        parents = tile_parents(tree, STEPS)
        tokens = np.full((tree.depth + 1, STEPS), -7, dtype=np.int32)
        accepted = np.full(STEPS, -7, dtype=np.int64)
        rule.rows(parents, drafted, p, q, u, rule.array(), tokens, accepted)
        for s in range(STEPS):
            step = tree.parents, drafted[s].tolist(), p[s].tolist(), q[s].tolist()
            coins, emitted = u[:, s].tolist(), tokens[: accepted[s] + 1, s].tolist()
            assert (tokens[accepted[s] + 1 :, s] == -1).all()
            if naive(*step, coins, **values) != emitted:
                if any(naive(*step, moved, **others) == emitted for moved, others in nearby(coins, values)):
                    close += 1
                else:
                    wrong.append((*step, coins, emitted))
        compared += STEPS
    return compared, close, wrong


@pytest.mark.parametrize(("name", "drawing"), [each for each in every() if each[0] in NAIVE])
def test_the_row_kernel_emits_what_the_naive_rule_emits(name, drawing, full):
    compared = close = 0
    for values in settings_of(rules.get(name)):
        rule = rules.get(name).with_parameters(**values)
        given = list(shapes(rule, drawing))[:: 1 if full else 4 if values else 2]
        more, near, wrong = differing(rule, NAIVE[name], rule.values, given)
        assert not wrong, (rule.values, wrong[0])
        compared, close = compared + more, close + near
    assert compared >= 3 * STEPS
    assert close < compared / 500


@pytest.mark.parametrize("name", CONTROLS)
def test_the_row_kernel_of_a_control_does_not_emit_what_the_rule_that_it_imitates_does(name):
    imitated = {**IMITATED, "pointwise_envelope": "standard"}[name]  # von Neumann's uniforms are others
    rule = rules.get(name)
    each = shapes(rule, rule.draft_sampling[0])
    values = rules.get(imitated).values
    assert any(wrong for *_, wrong in (differing(rule, NAIVE[imitated], values, [shape]) for shape in each))


#: Rules that use the same uniforms in the same way. On a chain K = 1, and block verification has other
#: names.
ON_A_CHAIN = [
    {"standard", "recursive_rejection", "without_replacement", "token_tree", "greedy_multi_draft", "k_seq"} | {"sorted_siblings", "k_seq_small_rho", "k_seq_wrong_k"},
    {"block", "hierarchical", "traversal", "traversal_without_replacement"} | {"univer", "greedy_multi_path_block", "greedy_path_as_drafted"},
    {"one_hot", "deterministic_children"}, {"sampler_match", "naive_matching"},
    {"greedy_match", "blockwise"}, {"typical", "typical_tree"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "twins"),
    [
        (chain(3), ON_A_CHAIN),
        (branching(3, 2), []),
        (branching(3, 2, draft_sampling="without replacement"), [{"k_seq", "k_seq_wrong_k"}]),
    ],
)
def test_naive_rules_emit_the_same_only_where_they_are_the_same(tree, twins):
    rng, steps = np.random.default_rng(1), 100
    p, q = rng.dirichlet(np.ones(5), (2, steps, tree.size + 1))
    drafted, u = draw(rng, tree, p, q), rng.random((steps, tree.size + 1))
    steps = [[tree.parents, *(part[s].tolist() for part in (drafted, p, q, u))] for s in range(steps)]
    found = {}
    for name in NAIVE:
        rule = rules.get(name)
        fits = (tree.is_chain or rule.on_trees) and (tree.distinct or not rule.distinct)
        if fits and rule.uniforms(tree, 5) == tree.size + 1:
            emitted = tuple(tuple(NAIVE[name](*step, **rule.values)) for step in steps)
            found.setdefault(emitted, set()).add(name)
    assert len(found) > 5
    assert sorted(map(sorted, twins)) == sorted(sorted(names) for names in found.values() if len(names) > 1)


def test_every_rule_of_the_table_has_a_naive_one():
    tabled = {entry.name for entry in load_bundled()}  # a rule just added comes later
    assert tabled <= {*NAIVE} <= {*rules.names()}
