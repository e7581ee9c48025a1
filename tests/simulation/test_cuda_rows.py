"""Rows verified on the device: the same tokens and counts as on the CPU, in numba's simulator or on a GPU.

The simulator runs each thread as one of Python, so that runs are small."""

import dataclasses
import math

import numpy as np
import pytest

import specsim
from specsim import rules, simulate
from specsim.models import DynamicTree, NGramModel, PromptLookup, TableModel, branching

pytest.importorskip("numba_cuda", reason="needs the extra cuda")

from specsim.core import _cuda, _elementary
from specsim.core._kernels import kernel
from specsim.core._streams import key_of
from specsim.simulation._counting import StepTally
from specsim.simulation._cuda import rows
from specsim.simulation._sources import make_source, rule_verifier

KEY = key_of(3)
RNG = np.random.default_rng(4)
TEXT = np.array(list(b"to be or not to be, that is the question: to be is to do; to do is to be. " * 2))
MARKOV = tuple(TableModel(RNG.dirichlet(np.ones(4), 4)) for _ in range(2))
NGRAM = NGramModel.train([TEXT.astype(np.uint8).tobytes()], n=3)
POSITIONS = tuple(RNG.dirichlet(np.ones(7), 9) for _ in range(2))


@pytest.fixture(autouse=True)
def few_threads(monkeypatch):
    monkeypatch.setattr(rows, "THREADS", 6)
    monkeypatch.setattr(rows, "BLOCK", 3)


def both(pair, rule="standard", gamma=3, steps=50):
    return [simulate(*pair, rule=rule, gamma=gamma, steps=steps, rng=5, device=on) for on in ("cpu", "cuda")]


def assert_same(on_cpu, on_device):
    assert on_cpu.lengths.sum() == on_device.lengths.sum() > 0
    np.testing.assert_array_equal(on_device.lengths, on_cpu.lengths)
    np.testing.assert_array_equal(on_device.tokens, on_cpu.tokens)
    assert on_device == on_cpu


def runs(trace):
    return {
        "Markov": ((*MARKOV,), {}),
        "Markov, block": ((*MARKOV,), {"rule": "block"}),
        "n-gram": ((NGRAM, NGRAM), {"rule": "lenience:lenience=0.5", "steps": 12}),
        "tree": ((*MARKOV,), {"rule": "recursive_rejection", "gamma": branching(2, 2)}),
        "dynamic tree": ((*MARKOV,), {"rule": "deterministic_children", "gamma": DynamicTree(2, 2, 3)}),
        "lookup": ((NGRAM, PromptLookup(TEXT)), {"rule": "one_hot", "steps": 12}),
        "trace": ((trace,), {"gamma": 2}),
        "positions": (POSITIONS, {"rule": "cascade_token"}),
    }


@pytest.mark.parametrize("kind", list(runs(None)))
def test_the_counts_of_all_kinds_of_rows_are_those_of_the_cpu(small_trace, kind):
    pair, how = runs(small_trace)[kind]
    assert_same(*both(pair, **how))


def tokens_of(rule, gamma=3, steps=24, first=2**32 - 9):
    """The tokens and lengths of a batch, on the CPU and on the device; the high word of the step changes."""
    source = make_source(*POSITIONS, rule=rule, gamma=gamma)
    counter = rows.DeviceRowCounter(source, rules.get(rule), StepTally(gamma, source.vocab_size))
    given = source.reader.rows(KEY, first, steps), KEY, first
    return rule_verifier(rules.get(rule), source.tree)(*given), counter.verify(*given)


def assert_same_tokens(on_cpu, on_device):
    for cpu, device in zip(on_cpu, on_device, strict=True):
        np.testing.assert_array_equal(device, cpu)


@pytest.mark.parametrize("rule", ["standard", "block", "hierarchical", "traversal", "von_neumann", "univer"])
def test_the_tokens_of_rules(rule):
    assert_same_tokens(*tokens_of(rule))


def test_no_rule_computes_what_a_gpu_rounds_otherwise():
    assert {name for name in rules.names() if _cuda.inexact(rules.get(name).rows) is not None} == set()


@pytest.mark.slow
def test_the_tokens_of_every_rule_for_chains():
    of_chains = [name for name in rules.names() if not rules.get(name).many_drafts]
    assert len(of_chains) > 40
    for name in of_chains:
        assert_same_tokens(*tokens_of(name))


@pytest.mark.slow
def test_the_tokens_of_every_rule_for_trees():
    of_trees = [rules.get(name) for name in rules.names() if rules.get(name).on_trees]
    assert len(of_trees) > 15
    for rule in of_trees:
        sampling = rule.draft_sampling[0] if rule.draft_sampling else "sampled"
        assert_same(*both(MARKOV, rule.name, branching(2, 2, draft_sampling=sampling), steps=40))


def test_a_run_of_both(tmp_path):
    how = {"gamma": 2, "steps": 40, "rng": 5}
    for i, device in enumerate(("cpu", "cuda")):
        simulate(*MARKOV, **how, device=device, shard=(i, 2), checkpoint=tmp_path / f"{i}.part")
    assert specsim.merge([tmp_path / "0.part", tmp_path / "1.part"]) == simulate(*MARKOV, **how)


@pytest.mark.parametrize("name", ["VERIFY", "fill_uniforms"])
def test_a_mistake_in_device_code_changes_the_tokens(monkeypatch, simulated, name):
    def next_step(k0, k1, purpose, step, out):
        right(k0, k1, purpose, step + 1, out)

    right = rows.fill_uniforms
    monkeypatch.setattr(rows, name, rows.VERIFY - 1 if name == "VERIFY" else next_step)
    with pytest.raises(AssertionError, match="Mismatched"):
        assert_same_tokens(*tokens_of("standard"))


@kernel
def powers(x, n):
    return x**n


@kernel
def calls_powers(x):
    return powers(x, 2) + 2.0**-31


@kernel
def only_products(x):
    return x * x + 2.0**-31


def test_what_differs_is_found_in_called_kernels_too():
    assert _cuda.inexact(calls_powers) == "powers"
    assert _cuda.inexact(only_products) is None


@kernel
def calls_logarithms(x):
    return _elementary.log(x) + math.log(x)


def test_the_kernel_of_logarithms_is_exact():
    assert _cuda.inexact(_elementary.log) is None
    assert _cuda.inexact(calls_logarithms) == "logarithms"


def test_a_rule_that_a_gpu_rounds_otherwise_is_refused(monkeypatch):
    wrong = dataclasses.replace(rules.get("standard"), rows=calls_logarithms)
    with pytest.raises(ValueError, match=r"the rule standard needs logarithms.*leave device out"):
        simulate(*POSITIONS, rule=wrong, gamma=2, steps=10, rng=1, device="cuda")


def test_too_little_memory_is_noticed_beforehand(monkeypatch):
    monkeypatch.setattr(rows, "current_device", lambda: ("small GPU", 1, 2**9))
    with pytest.raises(ValueError, match=r"MiB of rows for V = 7, 2 .* small GPU has 0 MiB free.*leave dev"):
        simulate(*POSITIONS, gamma=2, steps=10, rng=1, device="cuda")
    monkeypatch.setattr(rows, "heap", lambda wanted: 2**10)
    with pytest.raises(ValueError, match=r"device: a step has .*leave device out"):
        simulate(*POSITIONS, gamma=2, steps=10, rng=1, device="cuda")


def test_a_kernel_that_ends_early_is_noticed(monkeypatch, simulated):
    """As where the device cannot allocate what a rule asks for: numba ends that thread."""
    monkeypatch.setattr(rows, "device_function", lambda kernel: lambda *arguments: None)
    rows.verifying_kernel.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"rule standard ran out of memory on the .*leave device out"):
            simulate(*POSITIONS, gamma=2, steps=10, rng=1, device="cuda")
    finally:
        rows.verifying_kernel.cache_clear()


def test_batches_are_cut_to_the_memory(monkeypatch):
    asked = []
    right = rows.DeviceRowCounter.verify

    def verify(self, given, key, first):
        asked.append(len(given.p))
        return right(self, given, key, first)

    monkeypatch.setattr(rows.DeviceRowCounter, "verify", verify)
    monkeypatch.setattr(rows, "BATCH_BYTES", 8 * 7 * 5 * 7)  # seven steps
    assert_same(*both(POSITIONS, gamma=2, steps=20))
    assert asked == [1, 7, 7, 6]
