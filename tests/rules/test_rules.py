"""Every rule of the registry: its law proved, its kernels held to the law, the wrong ones caught."""

from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
from conftest import FALSE_ALARM, awkward_pairs
from fixed_pair_steps import fill_steps
from laws import Outcomes, check_step, drafts_of, drawn_down, every, evidence, generated
from scipy.stats import qmc

import specsim
from specsim import rules
from specsim.core._kernels import interpreted, kernel
from specsim.core.stats import detectable_tv
from specsim.models import TableModel, Tree, branching, chain
from specsim.models._drafts.sampling import SAMPLING_METHODS
from specsim.rules._chain import standard
from specsim.rules._common import tokenwise
from specsim.simulation._rows import ModelRows, pieces, tile_parents
from specsim.simulation._sources import FixedPairSource, RowSource, rule_verifier
from specsim.theory._enumeration import prove, step_law

#: Counts of 2^n evenly spread steps are this close to the law, as total variation: {n: distance}. With few uniforms
#: a quarter of 2^18 are as close.
NETS = {18: 2e-3, 20: 1e-3}
#: Rules for chains with many uniforms.
MANY_UNIFORMS = {"von_neumann"}
#: In twenty-one dimensions, most of which matter, the net is coarser by this factor; a little where a control is
#: far from what it imitates.
COARSER = {"gumbel_list": 1.8, "k_seq_wrong_k": 1.1}
#: Of the net, unless a step takes more uniforms.
DIMENSIONS = 19
#: After one rejection, and after two, any of two tokens may follow.
WIDE = tuple(TableModel([Fraction(n, 25) for n in row]) for row in ((2, 4, 8, 11), (9, 7, 5, 4)))
#: An exact kernel's e-value reaches 1/FALSE_ALARM with probability at most FALSE_ALARM.
ALARM = -np.log(FALSE_ALARM)

LOSSLESS = [name for name in rules.names("chain", "tree") if rules.get(name).lossless]
DECLARED = [name for name in rules.names() if rules.get(name).declared]
CONTROLS = rules.names("controls")


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_lossless_rule_is_proved_exact(name, models):
    rule = rules.get(name)
    for target, draft, tree, context in generated(rule, models, seed=1):
        proof = prove(target, draft, rule=rule, gamma=tree, context=context)
        assert proof.exact, (tree, target._exact, draft._exact, context)


@pytest.mark.parametrize("name", DECLARED)
def test_a_rule_with_a_declared_law_follows_it(name, models):
    rule = rules.get(name)
    lossy = 0
    for i, values in enumerate(settings_of(rule)):
        for target, draft, tree, context in generated(rule, models // (4 if i else 1), seed=2):
            proof = prove(target, draft, rule=rule.with_parameters(**values), gamma=tree, context=context)
            assert proof.as_claimed, (values, tree, target._exact, draft._exact, context)
            lossy += not proof.exact
    assert lossy > models / 4, "it declares the target's law, so why declare anything?"


def settings_of(rule):
    """The default parameters, and each parameter towards both ends of its range."""
    yield {}
    for parameter in rule.parameters:
        width = min(parameter.high, parameter.default + 4) - parameter.low
        for share in (0.1, 0.7):
            value = parameter.low + share * width
            yield {parameter.name: float(round(value)) if parameter.whole else value}


def test_a_draft_may_be_cut_by_what_is_before_a_token_and_not_by_the_token():
    target = TableModel([Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)])
    draft = TableModel([Fraction(1, 2), Fraction(3, 8), Fraction(1, 8)])
    by_row, by_token = (
        [prove(target, draft, rule=f"{name}:threshold={t}") for t in (0.25, 0.5, 0.75)]
        for name in ("confidence_scheduled", "pruned_children")
    )
    assert all(proof.exact for proof in by_row)
    assert [proof.exact for proof in by_token] == [False, False, True]  # nothing passes 0.75
    assert by_row[0].mean_tokens == by_row[1].mean_tokens > by_row[2].mean_tokens == 1


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_refuted(name, models):
    rule = rules.get(name)
    proofs = [
        prove(target, draft, rule=rule, gamma=tree, context=context)
        for target, draft, tree, context in generated(rule, models // 2, seed=3)
    ]
    refuted = [proof for proof in proofs if not proof.exact]
    assert len(refuted) > models / 20
    assert max(proof.worst_tv for proof in refuted) > Fraction(1, 20)


def drawn_otherwise():
    """(rule, way of drawing) for every way that a lossless rule does not name, but could be handed."""
    for name in LOSSLESS:
        rule = rules.get(name)
        others = set(SAMPLING_METHODS if rule.on_trees else ("sampled", "top")) - set(rule.draft_sampling)
        for drawing in sorted(others - {"sampled"} if rule.distinct else others):
            yield name, drawing


@pytest.mark.parametrize(("name", "drawing"), list(drawn_otherwise()))
def test_a_rule_is_not_lossless_for_drafts_drawn_otherwise(name, drawing):
    """The claim names all the ways of drafting for which it holds, and no others."""
    rule = rules.get(name)
    otherwise = generated(replace(rule, draft_sampling=(drawing,)), 120, seed=4)
    assert not all(
        prove(target, draft, rule=rule, gamma=tree, context=context).exact
        for target, draft, tree, context in otherwise
    )


def test_rules_that_never_read_q_are_lossless_for_every_way_of_drawing():
    blind = [name for name in LOSSLESS if not rules.get(name).reads_draft]
    assert set(blind) >= {"one_hot", "sampler_match", "naive_matching", "deterministic_children"}
    for name in blind:
        rule = rules.get(name)
        assert set(rule.draft_sampling) == (set(SAMPLING_METHODS) if rule.on_trees else {"sampled", "top"})


def test_independent_heads_and_blocks_are_no_matter_to_a_lossless_rule(full):
    """What q depends on is the drafter's affair, as long as the drafts are drawn from it."""
    for name, tree in (
        ("standard", chain(3, block=3)),
        ("block", chain(3, block=2)),
        ("recursive_rejection", branching(2, 2, block=2)),
        ("traversal", branching(2, 1, block=2)),
    ):
        for target, draft, _, context in generated(rules.get(name), 30 if full else 15, seed=5):
            if target.vocab_size**tree.size <= 1024:
                assert prove(target, draft, rule=name, gamma=tree, context=context).exact


#: Of each way of drawing some rules whose row kernels are run on the net too; `test_naive` has them all, step by step.
ROWS_ON_NETS = {"standard", "traversal", "without_replacement", "univer"}


def late(name, kind="fixed pair"):
    """Marks: with --all alone the fixed-pair kernels of controls, but for one, most row kernels on the net, and
    the wide pair for rules of one draft."""
    if kind == "rows":
        return () if name in ROWS_ON_NETS else pytest.mark.slow
    one_draft = kind != "fixed pair" and not rules.get(name).on_trees
    return pytest.mark.slow if one_draft or name in CONTROLS[1:] else ()


def compiled_and_interpreted(kernel, *inputs, shape):
    """What a kernel fills in, both ways."""
    found = []
    for mode in (nullcontext, interpreted):
        tokens, accepted = np.full(shape, -7, dtype=np.int32), np.full(shape[1], -7, dtype=np.int64)
        with mode():
            kernel(*inputs, tokens, accepted)
        found.append((tokens, accepted))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)
    return found[0]


def awkward_uniforms(rng, shape):
    ends = rng.choice([0.0, 2.0**-42, 0.5, 1 - 2.0**-42], size=shape)
    return np.where(rng.random(shape) < 0.2, ends, rng.random(shape))


def awkward_drafts(rng, rule, tree, size, steps):
    """Drafted tokens and rows, zeros, ties, subnormals, equal and disjoint rows among them."""
    nodes = tree.size + 1
    p, q = (rows.reshape(steps, nodes, size) for rows in awkward_pairs(rng, steps * nodes, size))
    q = np.ascontiguousarray(q[:, : rule.num_rows(tree)])
    return drawn_down(rng, tree, q), p, q


def some_drafts_of(rule, drawing):
    """A few shapes: the interpreter is slow."""
    shapes = list(drafts_of(rule, drawing))
    return shapes[:: max(1, len(shapes) // 3)]


@pytest.mark.parametrize(("name", "drawing"), every())
def test_the_row_kernel_is_its_plain_twin_bit_for_bit(name, drawing):
    rule, steps = rules.get(name), 40
    for size, tree in some_drafts_of(rule, drawing):
        rng = np.random.default_rng([crc32(name.encode()), size, tree.size])
        tokens, p, q = awkward_drafts(rng, rule, tree, size, steps)
        u = awkward_uniforms(rng, (rule.uniforms(tree, size), steps))
        parents = tile_parents(tree, steps)
        given, shape = (parents, tokens, p, q, u, rule.array()), (tree.depth + 1, steps)
        emitted, accepted = compiled_and_interpreted(rule.rows, *given, shape=shape)
        for s in range(steps):
            check_step(rule, tree, emitted[:, s], accepted[s], tokens[s], p[s])


@pytest.mark.parametrize(("name", "drawing"), [pytest.param(*one, marks=late(one[0])) for one in every()])
def test_the_fixed_pair_kernel_is_its_plain_twin_bit_for_bit(name, drawing, full):
    rule, steps = rules.get(name), 20
    for size, tree in some_drafts_of(rule, drawing):
        rng = np.random.default_rng([crc32(name.encode()), size, tree.size])
        for p, q in zip(*awkward_pairs(rng, 6 if full else 4, size), strict=True):
            tables = rule.fixed_pair.tables(p, q, tree, **rule.values)
            u = awkward_uniforms(rng, (tree.size, steps))
            v = awkward_uniforms(rng, (rule.fixed_pair.uniforms(tree), steps))
            given, shape = (rule, tables, u, v), (tree.depth + 1, steps)
            tokens, accepted = compiled_and_interpreted(fill_steps, *given, shape=shape)
            assert not rule.lossless or (p[tokens[tokens >= 0]] > 0).all()
            assert ((tokens >= 0).sum(axis=0) == accepted + 1).all()


def some_pair(rng, size, order):
    """A rational target and draft without zeros, so that everything happens; steps begin after token 0."""

    def row():
        weights = rng.integers(1, 12, size)
        return [Fraction(int(weight), int(weights.sum())) for weight in weights]

    if order == 0:
        return TableModel(row()), TableModel(row())
    return tuple(TableModel([row() for _ in range(size)], contexts=[[0]]) for _ in range(2))


def shape_of(rule, drawing):
    return Tree((0, 0, 1, 2) if rule.on_trees else (0, 1), drawing)


def row_reader(rule, tree, target, draft):
    return ModelRows(target, draft, tree, np.zeros((1, 1), dtype=np.int32), rule.leaf_rows)


def row_source(rule, tree, target, draft):
    return RowSource(row_reader(rule, tree, target, draft), rule_verifier(rule, tree))


def pair_source(rule, tree, target, draft):
    return FixedPairSource(rule, *(np.array(model.row(()), dtype=float) for model in (target, draft)), tree)


def row_steps(rule, tree, target, draft, u, tokens, accepted):
    """Fill in the steps after token 0 that the row kernel makes of the uniforms `u`."""
    start = np.zeros((len(accepted), 1), dtype=np.int32)
    rows = row_reader(rule, tree, target, draft).rows_after(start, u[: tree.size])
    given = rows.parents, rows.draft_tokens, rows.p, rows.q, u[tree.size :], rule.array()
    rule.rows(*given, tokens, accepted)


def fixed_uniforms(rule, tree, _):
    return rule.fixed_pair.uniforms(tree)


def pair_steps(rule, tree, target, draft, u, tokens, accepted):
    tables = pair_source(rule, tree, target, draft).tables
    fill_steps(rule, tables, u[: tree.size], u[tree.size :], tokens, accepted)


KINDS = {"rows": (row_source, 1, (0,)), "fixed pair": (pair_source, 0, ())}
#: Random numbers show no smaller mistake than the net; of these rules they show that the streams are apart.
DRAWN = {"standard", "traversal"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "drawing"),
    [pytest.param(*one, marks=() if one[0] in DRAWN else pytest.mark.slow) for one in every()],
)
def test_the_kernels_follow_the_law_of_whole_steps(name, drawing, kind, full):
    """Smaller mistakes than these steps show are seen by `test_naive` and on the net."""
    rule, (make, order, context) = rules.get(name), KINDS[kind]
    tree = shape_of(rule, drawing)
    target, draft = some_pair(np.random.default_rng(14), 4, order)
    law = step_law(rule, target, draft, tree, context)
    steps, distance = (1_000_000, 0.0075) if full else (250_000, 0.015)
    # one outcome: then any other is impossible, and seen at once
    assert len(law) == 1 or detectable_tv(len(law), steps, FALSE_ALARM) < distance
    log_e, impossible = evidence(make(rule, tree, target, draft), law, steps, (crc32(name.encode()), 1))
    assert impossible == 0
    assert log_e < ALARM


@pytest.fixture(scope="session")
def net(full):
    """How many steps there are on the net, as a power of two."""
    return 20 if full else 18


@lru_cache(maxsize=3)
def sobol(net, dimensions):
    """2^net points of a Sobol' sequence."""
    return np.ascontiguousarray(qmc.Sobol(dimensions, seed=1).random_base2(net).T)


#: {pair: (the steps of a kernel, how many uniforms these take, the pair, the context)}. But for `WIDE`, the
#: residual has three tokens: with one token, neither how it is drawn nor the coin of the next test would matter.
ON_NETS = {
    "rows": (
        row_steps,
        lambda rule, *shape: rule.uniforms(*shape),
        some_pair(np.random.default_rng(14), 4, 1),
        (0,),
    ),
    "fixed pair": (pair_steps, fixed_uniforms, some_pair(np.random.default_rng(14), 4, 0), ()),
    "wide fixed pair": (pair_steps, fixed_uniforms, WIDE, ()),
}


def tv_on_a_net(kind, rule, tree, law, net):
    """The total variation from `law` of 2^net steps of a kernel, their uniforms a Sobol' sequence.

    It errs by far less than as many random steps: with 2^20 by less than .001, mostly by .0002, where the
    e-value of ten million random ones needs a deviation of .002."""
    steps, uniforms, (target, draft), _ = ON_NETS[kind]
    needed = tree.size + uniforms(rule, tree, target.vocab_size)
    u = sobol(net, max(needed, DIMENSIONS))[:needed]
    tally = Outcomes(target.vocab_size, tree)
    counts = tally.zeros()
    for first, size in pieces(0, 2**net, 2**15):
        tokens, accepted = np.empty((tree.depth + 1, size), dtype=np.int32), np.empty(size, dtype=np.int64)
        part = np.ascontiguousarray(u[:, first : first + size])
        steps(rule, tree, target, draft, part, tokens, accepted)
        tally.count(counts, SimpleNamespace(tokens=tokens, accepted=accepted), None)
    return np.abs(counts["outcomes"] / 2**net - tally.law(law)).sum() / 2


@pytest.mark.parametrize(
    ("name", "drawing", "kind"),
    [pytest.param(*one, kind, marks=late(one[0], kind)) for one in every() for kind in ON_NETS],
)
def test_the_kernels_follow_the_law_on_a_net(name, drawing, kind, net):
    rule, (*_, pair, context) = rules.get(name), ON_NETS[kind]
    tree = shape_of(rule, drawing)
    bound = NETS[net] * COARSER.get(name, 1)
    if net == 18 and not rule.on_trees and name not in MANY_UNIFORMS:
        net -= 2
    assert tv_on_a_net(kind, rule, tree, step_law(rule, *pair, tree, context), net) < bound


@pytest.mark.parametrize("kind", ON_NETS)
@pytest.mark.parametrize("name", ["standard", "traversal", "lenience"])
def test_a_law_that_is_off_by_a_little_is_told_on_the_net(name, kind, net):
    rule, (*_, (target, draft), context) = rules.get(name), ON_NETS[kind]
    tree = shape_of(rule, rule.draft_sampling[0])
    a, b, *rest = target.row(context)
    little = Fraction(round(1000 * NETS[net]), 1000)
    off = [a + little, b - little, *rest]
    table = [off, *(target.row((token,)) for token in range(1, 4))] if context else off
    other = TableModel(table, contexts=[[0]]) if context else TableModel(table)
    law, right = (step_law(rule, model, draft, tree, context) for model in (other, target))
    distance = sum(abs(law.get(x, 0) - right.get(x, 0)) for x in law | right) / 2
    assert distance < 5 * NETS[net]
    assert tv_on_a_net(kind, rule, tree, law, net) > NETS[net]


#: What each control pretends to be, and the way of drawing that both share.
IMITATED = {
    "block_first_failure": "block",
    "block_tokenwise_residual": "block",
    "greedy_path_as_drafted": "greedy_multi_path_block",
    "hierarchical_uncapped": "hierarchical",
    "intersection_unnormalised": "token_level_intersection",
    "k_seq_small_rho": "k_seq",
    "k_seq_wrong_k": "k_seq",
    "one_coin_real_q": "naive_matching",
    "pointwise_envelope": "von_neumann",
    "pruned_children": "recursive_rejection",
    "sorted_siblings": "recursive_rejection",
    "traversal_wrong_update": "traversal",
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "rows") for name in CONTROLS]
    + [pytest.param(name, "fixed pair", marks=late(name)) for name in CONTROLS],
)
def test_the_kernels_of_a_control_are_told_from_the_rule_that_it_imitates(name, kind, full):
    rule, imitated, (make, order, context) = rules.get(name), rules.get(IMITATED[name]), KINDS[kind]
    tree = shape_of(rule, rule.draft_sampling[0])
    target, draft = next(
        pair
        for pair in (some_pair(np.random.default_rng(seed), 3, order) for seed in range(100))
        if prove(*pair, rule=rule, gamma=tree, context=context).worst_tv > Fraction(1, 50)
    )
    law = step_law(imitated, target, draft, tree, context)
    log_e, impossible = evidence(make(rule, tree, target, draft), law, 2**18 if full else 2**16, (5, 6))
    assert impossible or log_e > ALARM


def test_kernels_that_a_function_makes_are_told_apart_on_disk():
    """The cells of these rules' kernels differ only further in."""
    made = [rules.get(name).rows for name in ("cascade_chow", "cascade_diff", "cascade_opt", "fuzzy")]
    assert len({rows.contents for rows in made} - {None}) == 4


def recover_0(p, q, x, values, weights):
    weights[:] = 0.0
    weights[0] = 1.0


def recover_1(p, q, x, values, weights):
    weights[:] = 0.0
    weights[1] = 1.0


@pytest.mark.slow
def test_a_kernel_written_elsewhere_is_not_taken_for_its_former_self():
    """What is kept on disk is known only of the package's own kernels."""
    rows = np.array([[[0.5, 0.5], [0.5, 0.5]]]), np.array([[[1.0, 0.0]]])
    drafted, u = np.zeros((1, 1), dtype=np.int64), np.array([[0.75], [0.5]])
    for token, function in enumerate((recover_0, recover_1)):
        function.__qualname__ = "recover"  # one cell, run twice
        verify = tokenwise.rows(standard.accept, kernel(function))
        tokens, accepted = np.empty((2, 1), dtype=np.int32), np.empty(1, dtype=np.int64)
        verify(drafted, drafted, *rows, u, np.empty(0), tokens, accepted)
        assert tokens[0, 0] == token
        assert verify.contents is None
    assert rules.get("standard").rows.contents is not None


def test_a_rule_may_be_handed_over_itself():
    lenient = rules.get("lenience:lenience=0.5")
    pair = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    by_name, itself = (
        specsim.simulate(*pair, rule=rule, steps=1000, rng=1) for rule in (str(lenient), lenient)
    )
    assert itself.lengths.tolist() == by_name.lengths.tolist()
    assert itself.rule == by_name.rule == "lenience:lenience=0.5"
    ours, few = replace(rules.get("standard"), name="ours"), ["two-point", "asymmetric"]
    audit = specsim.audit(ours, level="smoke", rng=1, threads=1, cases=few)
    assert (audit.verifier, audit.exit_code, audit.proof.as_claimed) == ("ours", 0, True)


@pytest.mark.parametrize("name", rules.names())
def test_the_entry_fits_its_file(name):
    rule, group = rules.get(name), rules.group_of(name)
    assert (rule.name, rule.control) == (name, group == "controls")
    assert rule.draft_sampling
    assert set(rule.draft_sampling) <= set(SAMPLING_METHODS)
    assert rule.citation
    assert bool(rule.declares) == (rule.declared is not None)
    assert (rule.declared is not None) == (group == "lossy" or name == "greedy_match")
    assert not (rule.many_drafts and not rule.on_trees)
    assert rules.get(str(rule)).values == rule.values
    for parameter in rule.parameters:
        assert parameter.meaning
        for bad in (parameter.low - 1, 2 * parameter.high + 1, float("nan")):
            with pytest.raises(ValueError, match=rf"{name}: parameter {parameter.name} = .* is outside"):
                rule.with_parameters(**{parameter.name: bad})
