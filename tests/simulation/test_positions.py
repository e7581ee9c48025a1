"""Rows of the positions of a text: simulated as the frozen rows of a trace that has them."""

import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from commands import run, says
from conftest import FALSE_ALARM
from fixed_pair_steps import FIRST, awkward_words, emitted, numbers_of
from fixed_pair_steps import KEY as GIVEN
from refused import refuses
from scipy.stats import chi2_contingency
from sent import Sending

import specsim
from specsim.auditing._cases.battery import Case
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally
from specsim.core._kernels import interpreted
from specsim.core._streams import key_of
from specsim.core.distributions import dyadic
from specsim.models import NGramModel, TableModel, Tree, chain
from specsim.rules._common.integers import draw_steps, take_step
from specsim.simulation import _row_tables
from specsim.simulation._counting import StepTally
from specsim.simulation._counting import run as run_steps
from specsim.simulation._rows import model_rows
from specsim.simulation._sources import FewContextsSource, ModelSource, RowSource, make_source, model_source
from specsim.traces import writer

GAMMA = 3
#: Exact in float32, as a trace stores them.
P, Q = dyadic(np.random.default_rng(3).dirichlet(np.ones(5), size=(2, 11)))


@pytest.fixture
def trace(tmp_path):
    """A step from each position of which GAMMA others follow."""
    with writer(tmp_path / "trace", vocab_size=5, gamma=GAMMA) as log:
        for start in range(len(P) - GAMMA):
            rows = slice(start, start + GAMMA + 1)
            log.append(0, Q[rows][:GAMMA].argmax(axis=1), 0, P[rows], Q[rows])
    return specsim.open_trace(tmp_path / "trace")


@pytest.mark.parametrize("rule", ["standard", "block", "lenience", "fuzzy"])
def test_positions_are_simulated_as_a_trace_of_them(trace, rule):
    options = {"rule": rule, "gamma": GAMMA, "steps": 3000, "rng": 1}
    found, logged = specsim.simulate(P, Q, **options), specsim.simulate(trace, **options)
    assert found.lengths.tolist() == logged.lengths.tolist()
    assert found.tokens.tolist() == logged.tokens.tolist()
    backwards = specsim.simulate(P[::-1], Q[::-1], **options)
    assert backwards.lengths.tolist() != found.lengths.tolist(), "the test sees the order of positions"


def test_one_drafted_token_is_accepted_as_often_as_rows_overlap():
    found = specsim.simulate(P, Q, gamma=1, steps=200_000, rng=1)
    overlaps = np.minimum(P, Q).sum(axis=1)
    assert found.alpha_context == pytest.approx(overlaps.mean())
    assert abs(found.alpha_verified - overlaps[:-1].mean()) < 6 * found.alpha_verified_error
    assert abs(found.alpha_verified - overlaps.max()) > 6 * found.alpha_verified_error


def test_runs_on_workers_replays_and_reruns_are_the_same():
    options = {"gamma": 2, "rng": 1}
    run_of = specsim.simulate(P, Q, steps=40_000, **options)
    with Sending(2) as pool:
        assert specsim.simulate(P, Q, steps=40_000, executor=pool, **options) == run_of
    assert specsim.rerun(run_of) == run_of
    steps = [specsim.replay(P, Q, step=step, **options) for step in range(20)]
    assert [step.start for step in steps[8:10]] == ["position 8, rows frozen", "position 0, rows frozen"]
    few = specsim.simulate(P, Q, steps=20, **options)
    assert np.bincount([step.num_accepted for step in steps], minlength=3).tolist() == few.lengths.tolist()


def test_rules_are_compared_on_positions_and_on_a_trace(trace):
    for pair in ((P, Q), (trace,)):
        found = specsim.compare(*pair, gamma=GAMMA, steps=300, rng=1)
        assert [entry.name for entry in found] == [
            name for name in specsim.rules.names() if not specsim.rules.get(name).claimed_on_trees
        ]
        laws = {entry.name: entry.tv for entry in found}
        assert laws["standard"] == 0.0
        starts = slice(None) if pair[0] is P else slice(len(P) - GAMMA)
        declared = specsim.rules.get("lenience").declared
        law = [
            declared(*rows, 0, lenience=0.5)
            for rows in zip(P[starts].tolist(), Q[starts].tolist(), strict=True)
        ]
        assert laws["lenience"] == pytest.approx(np.abs(np.array(law) - P[starts]).sum(axis=1).mean() / 2)
        refuses("along one", specsim.compare, *pair, rules=["standard", "k_seq"], gamma=GAMMA, steps=300)


def test_files_of_logits_are_taken_by_commands(tmp_path):
    """One row for each position, as two models write them."""
    for name, rows in (("target", P), ("draft", Q)):
        np.save(tmp_path / f"{name}.npy", np.log(rows).astype(np.float32))
    pair = "logits:target.npy,draft.npy"
    for command in (
        "simulate {} --steps 1k", "compare {} --steps 100 --rule standard", "simulate {} --over gamma=1,2 --steps 1k",
        "simulate {} --over temperature=.5,1 --steps 1k", "plan {} --c .1", "replay {} --step 1 --seed 1",
    ):  # fmt: skip
        says("\n", *command.format(pair).split(), cwd=tmp_path)
    planned = json.loads(run("plan", pair, "--c", ".1", "--json", cwd=tmp_path).out)
    starts = len(P) - len(P) // 2
    assert planned["alphas"][0] == pytest.approx(np.minimum(P, Q).sum(axis=1)[:starts].mean(), abs=0.01)
    for command in (f"prove {pair}", f"audit --pair {pair} --level smoke"):
        says("pmfs", *command.split(), cwd=tmp_path, code=2)


KEY, STEPS = key_of(3), 3001
TEXT = b"the rows of a model after a context are kept, and others are not; " * 3
WITH_TABLES = [name for name in specsim.rules.names() if specsim.rules.get(name).positions]


def tables(seed, size, *orders):
    """Models with zeros in their rows."""
    rng = np.random.default_rng(seed)
    for order in orders:
        weights = rng.gamma(0.5, size=(size,) * (order + 1)) * (rng.random((size,) * (order + 1)) < 0.8)
        weights[..., 0] += 0.01
        yield TableModel(weights / weights.sum(axis=-1, keepdims=True))


PAIRS = {
    "orders 1 and 1": lambda: tables(1, 20, 1, 1),
    "orders 0 and 2": lambda: tables(2, 5, 0, 2),
    "orders 2 and 0": lambda: tables(3, 17, 2, 0),
    "one token": lambda: tables(4, 1, 1, 0),
    "bytes": lambda: (NGramModel.train([TEXT], 4), NGramModel.train([TEXT], 2)),
}


def steps_of(source):
    """Tokens and lengths of a source, and what an audit counts of both and of the rows along the tokens."""
    batches, rule = list(source.batches(KEY, 5, STEPS)), specsim.rules.get("standard")
    tally = AuditTally(
        Case("", "", source.reader.target, source.reader.draft, source.tree), Claim(rule, source.tree)
    )
    counts = tally.zeros()
    for batch in batches:
        tally.count(counts, batch, KEY)
    both = [[getattr(one, name) for one in batches] for name in ("tokens", "accepted")]
    return [*(np.concatenate(arrays, axis=-1) for arrays in both), *counts.values()]


def from_tables(pair, rule="standard", gamma=4):
    rule = specsim.rules.get(rule)
    return model_source(rule, model_rows(*PAIRS[pair](), chain(gamma), rule.leaf_rows), with_rows=True)


def same_as_rows(source):
    assert isinstance(source, ModelSource)
    expected = steps_of(RowSource(source.reader, source.verify))
    return all(np.array_equal(a, b) for a, b in zip(steps_of(source), expected, strict=True))


@pytest.mark.parametrize("pair", PAIRS)
def test_tables_change_no_token(pair):
    source = from_tables(pair)
    assert same_as_rows(source)
    assert same_as_rows(source), "from tables that are full of what the first time came to"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (i > 2)) for i, name in enumerate(WITH_TABLES)]
)
def test_every_rule_is_the_same_from_tables(name):
    assert same_as_rows(from_tables("orders 1 and 1", name, 3))


@pytest.mark.parametrize("contexts", [0, 1, 10])
def test_what_does_not_fit_is_verified_from_rows_of_its_own(monkeypatch, contexts):
    monkeypatch.setattr(_row_tables, "TABLE_BYTES", 32 * 20 * contexts)
    source = from_tables("orders 1 and 1")
    assert same_as_rows(source)
    assert source.tables.known == contexts + 1


def test_threads_share_tables():
    source = from_tables("bytes")
    expected = steps_of(from_tables("bytes"))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(steps_of, [source] * 4):
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_rows_that_another_thread_is_making_are_not_read():
    source = from_tables("orders 1 and 1")
    source.tables._making.append(slice(1, 4))
    steps_of(source)
    source.tables.tables.p_of[1:4] = 4
    assert source.tables.known == 1
    assert same_as_rows(source)


def test_a_wrong_table_changes_the_tokens():
    source = from_tables("orders 1 and 1")
    steps_of(source)
    source.tables.tables.p[:] *= 0.9
    assert not same_as_rows(source)


@pytest.mark.parametrize("pair", ["orders 1 and 1", "orders 0 and 2", "one token"])
def test_many_steps_after_few_contexts_are_the_single_steps(pair):
    source, rng, steps = make_source(*PAIRS[pair](), rule="lenience", gamma=4), np.random.default_rng(0), 400
    *tables, starts = source.tables
    begun, words = starts[rng.integers(starts.size, size=steps)], awkward_words(rng, tables, 4, steps)
    out, tokens = np.empty((5, steps), np.int32), np.empty(5, np.int64)
    draw_steps((*tables, begun), GIVEN, FIRST, out, words)
    for s in range(steps):
        rests = [number % 2**30 * 4 for number in numbers_of(words[:, s], FIRST + s)]
        with interpreted():
            n = take_step(*tables[2:], begun[s], words[:, s], rests, tokens)
        assert emitted(out[:, s]) == tokens[: n + 1].tolist()


def p_values(source, expected):
    """Of lengths and tokens, against those of another source."""
    tally = StepTally(source.tree.size, source.vocab_size)
    runs = [run_steps(one, tally, key_of(i), 0, 2**18, threads=2) for i, one in enumerate((source, expected))]
    lengths, tokens = ([run.counts[name] for run in runs] for name in ("lengths", "tokens"))
    tokens = [one.sum(axis=0)[1:] for one in tokens]  # without the padding
    return [chi2_contingency(pair).pvalue for pair in (lengths, tokens)]


def test_steps_after_few_contexts_have_the_law_of_rows():
    models = tuple(PAIRS["orders 0 and 2"]())
    few, lenient = (make_source(*models, rule=rule, gamma=3) for rule in ("standard", "lenience:lenience=.9"))
    rows = from_tables("orders 0 and 2", gamma=3)
    assert type(few) is FewContextsSource
    assert min(p_values(few, rows)) > FALSE_ALARM > p_values(lenient, rows)[0]
    few.tables[4][:] = few.tables[4][::-1]
    assert min(p_values(few, rows)) < FALSE_ALARM


def test_a_step_after_few_contexts_is_replayed():
    models, how = tuple(PAIRS["orders 0 and 2"]()), {"gamma": 3, "rng": 1}
    steps = [specsim.replay(*models, step=step, **how) for step in range(100)]
    run = specsim.simulate(*models, steps=100, **how)
    assert np.bincount([step.num_accepted for step in steps], minlength=4).tolist() == run.lengths.tolist()
    assert np.bincount(sum((step.tokens for step in steps), ()), minlength=5).tolist() == run.tokens.tolist()
    context, (node, *_) = json.loads(steps[0].start.removeprefix("context ")), steps[0].nodes
    assert (node.p, node.q) == tuple(model.rows([context])[0, node.token] for model in models)


def test_models_are_asked_for_the_rows_of_contexts_that_steps_come_to(monkeypatch):
    one, right = TableModel([[1.0, 0.0], [0.5, 0.5]], contexts=[[0]]), TableModel.rows

    def nowhere(self, texts, out=None):
        return right(self, texts, out) + np.where(np.asarray(texts) > 0, np.nan, 0.0)

    monkeypatch.setattr(TableModel, "rows", nowhere)
    assert specsim.simulate(one, one, gamma=2, steps=100, rng=1).tokens.tolist() == [300, 0]
    assert np.isnan(one.rows([[1]])).all()


@pytest.mark.parametrize("size", [2, 27, 100, 256, 512])
def test_codes_of_contexts_in_tables_are_those_of_their_texts(size):
    def fits(order):
        return _row_tables.fits(*[SimpleNamespace(vocab_size=size, order=order)] * 2)

    order = max(filter(fits, range(1, 64)))
    numbers = _row_tables.Numbers(size, order, 1)
    texts = np.random.default_rng(size).integers(size, size=(100, order + 1))
    texts[0] = size - 1
    after = numbers.codes_after(numbers.codes_of(texts[:, :-1]), texts[:, -1])
    assert after.tolist() == [sum(x * size**i for i, x in enumerate(text[:0:-1])) for text in texts.tolist()]


def test_which_steps_have_tables():
    one, other = PAIRS["orders 1 and 1"]()
    for options in (
        {"rule": "block", "gamma": 2},
        {"rule": "one_hot", "gamma": 2},  # its recovered token depends on the rejected one
        {"rule": "greedy_match", "gamma": Tree((0, 1), "top")},
        {"rule": "standard", "gamma": chain(2, block=2)},
    ):
        assert type(make_source(one, other, **options)) is RowSource
    large = TableModel(np.full(_row_tables.LARGEST + 1, 1 / (_row_tables.LARGEST + 1)))
    assert type(make_source(large, large, rule="standard", gamma=2)) is RowSource
