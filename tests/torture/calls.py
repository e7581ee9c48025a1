"""Calls of public functions, each with one or two arguments replaced by hostile values."""

import decimal
import fractions
import inspect
import itertools
import json
import math
import os
import random
import re
import shutil
import socket
from pathlib import Path

import numpy as np
from blocks import TRACEBACK, WRONG, in_blocks
from judging import answer_of

import specsim
from specsim import auditing, distributions, models, planning, rules, stats, theory, traces
from specsim.adapters import _contract
from specsim.core._kernels import Kernel
from specsim.models import _base, _trained_pairs
from specsim.models._drafts import prompt_lookup, sampling, tree
from specsim.theory._many_drafts import k_seq_rho

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
ROWS_P, ROWS_Q = np.tile(P, (2, 3, 1)), np.tile(Q, (2, 2, 1))
TARGET, DRAFT = models.TableModel([[0.5, 0.3, 0.2]] * 3), models.TableModel(Q)
TREE = models.branching(2, 1)
LAW = theory.accepted_law(0.8, 3)
TRACE = traces.default_trace()
COST = planning.ConstantRatio(0.05)
SERVER = planning.BatchCost(planning.PassTime(0.02), planning.PassTime(0.002))
LOG = specsim.draft_log(TARGET, DRAFT, tokens=200, ahead=4, rng=1)


def _call(function, /, *some, **given):
    """A function with its arguments: those in the mappings `some`, and those `given`."""
    return function, {name: value for one in (*some, given) for name, value in one.items()}


def _calls():
    """(function, its arguments) of valid calls."""
    pair = {"target": P, "draft": Q}
    two = {"target": TARGET, "draft": DRAFT}
    few = {"steps": 100, "rng": 1, "threads": 1}
    yield _call(specsim.simulate, pair, few, gamma=2, rule="standard", checkpoint=None, shard=None)
    yield _call(specsim.simulate, two, few, gamma=2, rule="standard", executor=None, progress=None)
    yield _call(specsim.simulate, pair, few, gamma=2, checkpoint="new.part", checkpoint_seconds=1.0)
    yield _call(specsim.replay, pair, step=3, gamma=2, rule="standard", rng=1)
    yield _call(specsim.prove, two, rule="standard", gamma=2)
    yield _call(specsim.generate, two, prompt=[0], max_new_tokens=5, gamma=2, rule="standard", rng=1)
    yield _call(specsim.sweep, pair, few, over={"gamma": [1, 2]}, rule="standard", gamma=2, progress=False)
    yield _call(specsim.read_pair, name="zipf:vocab_size=20,overlap=0.5")
    yield _call(specsim.load, path="run.json")
    yield _call(specsim.rerun, run="run.json", target=None, draft=None, threads=1, progress=None)
    yield _call(models.Processed, model=TARGET, temperature=0.5, top_k=2, top_p=0.9, min_p=0.1)
    yield _call(specsim.sample, target=TARGET, prompt=[0], max_new_tokens=5, rng=1)
    yield _call(specsim.verify, draft_tokens=[[0, 1], [2, 2]], p=ROWS_P, q=ROWS_Q, rule="standard", rng=1)
    yield _call(specsim.speculative_accept, draft_tokens=[0, 1], p=ROWS_P[0], q=ROWS_P[0], r=[0.5, 0.5, 0.5])
    yield _call(specsim.merge, paths=["run.part"])
    yield _call(specsim.plan, alpha=0.8, c=0.05, c_hat=0.05, max_gamma=8)
    yield _call(specsim.rank_drafts, candidates=[planning.Candidate.of_rate("a", 0.8, 0.05)], max_gamma=8)
    yield _call(planning.alpha_of, acceptance_rate="51%", gamma=3)
    yield _call(planning.MeasuredStep, tokens=[1, 2], times=["8.5", 13.5], draft=0.5)
    yield _call(planning.Candidate.of_rate, name="a", alpha=0.8, c=0.05)
    yield _call(planning.Candidate.of_counts, name="a", accepted=8, tested=10, c=0.05)
    yield _call(specsim.check_metrics, gamma=5, accepted=20, emitted=27, steps=7, engine="plain")
    rates = {"acceptance_rate": "0.8", "tokens_per_step": "3.8", "by_position": [0.8, 0.5], "speedup": 2.0}
    yield _call(specsim.check_metrics, rates)
    yield _call(specsim.read_acceptance, path="responses.jsonl")
    yield _call(specsim.open_trace, path="trace")
    yield _call(traces.summarise, trace=TRACE, skip_damaged=False)
    yield _call(traces.read_alpha, trace=TRACE, entropy_of="q", bins=4, rng=1)
    yield _call(traces.audit_log, trace=TRACE, lenience=1.0, rng=1)
    yield _call(traces.expect_tokens, trace=TRACE, rule="standard", rng=1)
    yield _call(specsim.audit_served, path="served.jsonl", rng=1)
    yield _call(traces.import_trace, path="log.npz", out="imported", vocab_size=None, dtype="float32")
    yield _call(traces.truncate, row=P, k=2, keep=None)
    yield _call(_written, out="written", vocab_size=3, gamma=2, dtype="float32", top=None, flags=True, bonus=True, rows_per_shard=None, provenance=None)  # fmt: skip
    yield _call(_appended, context=0, tokens=[0, 1], accepted=1, p=ROWS_P[0], q=ROWS_P[0])
    yield _call(specsim.decoding.record, two, out="recorded", gamma=2, steps=4, rule="standard", dtype="float32", top=None, rng=1)  # fmt: skip
    yield _call(models.TableModel, table=[[0.5, 0.5], [0.25, 0.75]])
    yield _call(models.Mixture, target=TARGET, draft=DRAFT, weight=0.5)
    yield _call(_trained_pairs.load_pair, path="models.npz")
    orders = {"n_target": 2, "n_draft": 1}
    yield _call(models.build_pair, orders, path="texts", out="built.npz", pattern="*.txt", exclude=())
    yield _call(models.NGramModel.train, texts=[b"abcabc" * 20], n=2, contexts=np.zeros((1, 1), np.uint8))
    yield _call(_base.check_pair, two)
    yield _call(_base.shared_contexts, two)
    yield _call(models.Tree, parents=(0, 0, 1), draft_sampling="sampled", block=1)
    yield _call(models.DynamicTree, width=2, depth=2, nodes=3)
    yield _call(_branching, width=2, draft_sampling="sampled", block=1)
    yield _call(models.chain, gamma=2, draft_sampling="sampled")
    yield _call(models.chains, count=2, gamma=2)
    yield _call(tree.as_tree, gamma=3)
    yield _call(models.best_tree, rank_acceptance=[0.6, 0.2], nodes=4, depth=2)
    yield _call(models.PromptLookup, text=[0, 1, 2, 0, 1], max_ngram=2)
    yield _call(prompt_lookup.prompt_lookup, history=[0, 1, 2, 0, 1], gamma=2, max_ngram=2)
    yield _call(prompt_lookup.lookup_drafts, text=[0, 1, 2, 0, 1], positions=[4, 5], gamma=2, max_ngram=2)
    yield _call(models.LookaheadDecoding, window=3, candidates=2, text=[0, 1, 2, 0, 1])
    yield _call(models.tree_of_heads, accuracies=[[0.6, 0.2], [0.5, 0.1]], nodes=3)
    yield _call(specsim.generate, target=TARGET, prompt=[0, 1], max_new_tokens=8, rng=1, eos=None, draft=models.LookaheadDecoding(3, 2), gamma=2, rule="naive_matching")  # fmt: skip
    eagle = {"method": "eagle2:width=2,depth=2,nodes=3"}
    yield _call(specsim.generate, two, eagle, prompt=[0, 1], max_new_tokens=8, rng=1)
    yield _call(specsim.simulate, pair, few, method="spectr:drafts=2")
    served = {"batch": 2, "context": 10.0}
    yield _call(planning.compare_methods, pair, few, served, methods=["autoregressive"], progress=None)
    yield _call(models.compare_vocabularies, target="tokens", draft="tokens")
    yield _call(theory.projected_law, target=TARGET, allowed=_first_two, length=2, context=(0,))
    yield _call(theory.conditioned_law, target=TARGET, allowed=_first_two, length=2, context=(0,))
    server = {"rate": 5.0, "alpha": 0.7, "prompt": 20, "output": 10, "max_batch": 2, "prefill": True}
    server |= {"requests": 60, "replications": 2, "rng": 1, "threads": 1}
    yield _call(_served, server, cost=SERVER, policy=planning.Constant(2))
    yield _call(planning.sweep_batch, cost=SERVER, policy=planning.Bands(), over={"max_batch": [1, 2]}, executor=None, alpha=0.7, output=10, requests=60, rng=1, threads=1)  # fmt: skip
    yield _call(planning.Budget, max_gamma=8, tokens=128, alpha=0.7)
    yield _call(planning.Classifier, max_gamma=8, missed=0.3, false_alarm=0.1)
    yield _call(planning.PassTime, fixed=0.01, per_sequence=0.0, per_token=1e-5)
    yield _call(planning.LoggedLengths, lengths=[5, 3, 2])
    yield _call(sampling.sibling_laws, q=Q, count=2, way="sampled")
    yield _call(theory.acceptance_rate, p=P, q=Q)
    yield _call(theory.divergence, p=P, q=Q)
    yield _call(theory.accepted_law, alpha=0.8, gamma=3)
    yield _call(theory.expected_tokens, alpha=0.8, gamma=3)
    yield _call(theory.walltime_improvement, alpha=0.8, gamma=3, c=0.05)
    yield _call(theory.optimal_gamma, alpha=0.8, c=0.05)
    yield _call(theory.break_even, alpha=0.8, c=0.05)
    yield _call(theory.operations_factor, alpha=0.8, gamma=3, c_hat=0.05)
    yield _call(theory.memory_access_factor, alpha=0.8, gamma=3)
    yield _call(theory.oracle_improvement, alpha=0.8, c=0.05)
    yield _call(theory.non_iterative_acceptance, p=P, q=Q)
    yield _call(theory.beam_acceptance, p=P, q=Q, width=2, drafted=2)
    yield _call(theory.expected_tokens_by_position, alphas=[0.8, 0.5])
    yield _call(theory.markov_steps, p=[[0.5, 0.5], [0.25, 0.75]], q=[[0.6, 0.4], [0.5, 0.5]], gamma=2)
    yield _call(theory.step_law, two, rule=rules.get("standard"), tree=models.chain(2), context=(0,))
    yield _call(theory.target_law, target=TARGET, length=2, context=(0,))
    yield _call(theory.block_range, alpha=0.8, gamma=2)
    yield _call(theory.accepted_tokens, p=P, q=Q, gamma=2)
    yield _call(theory.optimal_acceptance, p=P, q=Q, drafts=2)
    yield _call(theory.k_seq_acceptance, p=P, q=Q, drafts=2)
    yield _call(k_seq_rho, p=P, q=Q, drafts=2)
    yield _call(theory.recursive_rejection_acceptance, p=P, q=Q, drafts=2)
    yield _call(theory.without_replacement_acceptance, p=P, q=Q, drafts=2)
    yield _call(theory.naive_matching_acceptance, p=P, q=Q, drafts=2)
    yield _call(theory.greedy_multi_draft_acceptance, p=P, q=Q, drafts=2)
    yield _call(theory.gumbel_agreement, p=P, q=Q)
    yield _call(specsim.compare, pair, few, rules=["standard"], gamma=2, drafts=2, steps=64, sweep=False)
    yield _call(specsim.acceptance_by_drafts, p=P, q=Q, max_drafts=2, steps=64, rng=1, threads=1)
    yield _call(rules.get, name="lenience:lenience=0.5")
    yield _call(planning.ConstantRatio, c=0.05, overhead=0.0)
    yield _call(planning.improvement, cost=COST, alpha=0.8, gamma=3)
    yield _call(planning.best_gamma, cost=COST, alpha=0.8, max_gamma=8)
    yield _call(specsim.draft_log, two, tokens=20, ahead=2, rng=1)
    few_blocks = {"draft_cost": 0.05, "blocks": 4}
    yield _call(specsim.simulate_policies, few_blocks, log=LOG, policies=(planning.Constant(2),))
    yield _call(planning.Constant, gamma=2)
    yield _call(planning.SVIP, h=0.3, c=0.15, max_gamma=40)
    yield _call(planning.Heuristic, gamma=5, call=None)
    yield _call(planning.ConfidenceThreshold, threshold=0.4, max_gamma=20, call=512)
    yield _call(planning.Goodput, max_gamma=16, window=64, alpha=0.7)
    yield _call(planning.Cascade, gamma=3, max_gamma=16, trial=32, trials=4, settle=256)
    yield _call(_base.row_ahead, model=TARGET, context=(0,), ahead=2)
    yield _call(_base.rows_ahead, model=TARGET, histories=[[0], [1]], ahead=2)
    yield _call(specsim.plant, out="planted", order=1, offsets=None, openers=0, vocab_size=4, kind="zipf", overlap=0.6, context=64, formats=("hf",), rng=1)  # fmt: skip
    yield _call(specsim.open_planted, path="pair")
    yield _call(specsim.engines.Sampling, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0, stop=())
    yield _call(_contract.Declared, arrays="numpy", dtypes=("float32",), batch=8, gamma=4, vocab_size=100)
    yield _call(specsim.adapters.declares, arrays="numpy", dtypes=("float32",), batch=8)
    yield _call(auditing.replay_step, verifier="mine:verify", case="two-point", step=3, level="smoke", rng=1)
    yield _call(distributions.synthetic_pair, kind="zipf", vocab_size=10, overlap=0.8, rng=1)
    for name in dict.fromkeys([*distributions.__all__, *stats.__all__]):
        home = distributions if name in distributions.__all__ else stats
        function = getattr(home, name)
        if (
            not isinstance(function, Kernel)
            and callable(function)
            and name not in UNCHECKED
            and (given := _guessed(function)) is not None
        ):
            yield function, given


#: Parts of kernels and of an audit's loop, of which arguments are not checked, and a record.
UNCHECKED = {"ChiSquare", "inverse_cdf", "log_e_values", "log_pooled_e_values", "log_shared"}
#: Valid values of parameters by name, for functions that are called as they stand.
USUAL = {
    "p": P, "q": Q, "row": P, "rows": P, "pmf": P, "pmfs": P, "weights": P, "probabilities": P, "delta": 0.01, "cells": 10, "statistic": 3.0, "df": 2, "p_value": 0.5,
    "hits": 3, "probability": 0.3, "distance": 0.1, "visits": 100.0, "fraction": 0.1, "mass": 0.9, "t": 1.0,
    "tables": [[([10, 20], [12, 18])]], "law": P,
    "counts": [10, 20, 30], "observed": [10, 20, 30], "logits": [0.0, 1.0, 2.0], "u": 0.5, "uniforms": [0.5],
    "rng": 1, "size": 3, "n": 10, "k": 2, "temperature": 1.0, "top_k": 2, "top_p": 0.9, "min_p": 0.1,
    "alpha": 0.05, "level": 0.05, "power": 0.9, "tv": 0.1, "draws": 1000, "bits": 8, "vocab_size": 5,
    "overlap": 0.8, "kind": "zipf", "name": "p", "tokens": [0, 1], "successes": 3, "trials": 10,
    "blocks": [([10, 20], [12, 18])], "values": [0.1, 0.2], "tolerance": 1e-6, "dtype": "float32",
}  # fmt: skip


def _guessed(function):
    """Arguments by the names of parameters; None where a name is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    given = {}
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name in USUAL:
            given[one.name] = USUAL[one.name]
        elif one.default is one.empty:
            return None
    return given


def _written(**options):
    with traces.writer(**options) as log:
        if (
            type(options["gamma"]) is int and options["gamma"] == 2 and options["vocab_size"] == 3
        ):  # else `append` speaks, rightly
            log.append(0, [0, 1], 1, ROWS_P[0], ROWS_P[0])


def _served(**settings):
    return planning.simulate_batch(**settings).load  # numbers that a short run does not have are NaN


def _first_two(seen):
    return (0, 1)


def _branching(width, draft_sampling, block):
    return models.branching(width, 1, draft_sampling=draft_sampling, block=block)


def _appended(**step):
    with traces.writer("appended", vocab_size=3, gamma=2) as log:
        log.append(**step)
    return traces.summarise(specsim.open_trace("appended")).alpha_context


class Awkward:
    """An object whose conversions fail."""

    def __repr__(self):
        return "Awkward()"

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __len__(self):
        return -1


#: Values that no argument has, or that some have, by a name to print.
HOSTILE = {
    "None": None, "True": True, "-1": -1, "0": 0, "1": 1, "2": 2, "-2^63": -(2**63), "2^31": 2**31, "2^32": 2**32,
    "2^63": 2**63, "2^64": 2**64, "10^400": 10**400, "10^5000": 10**5000, "-10^5000": -(10**5000), "0.0": 0.0, "-0.5": -0.5,
    "0.5": 0.5, "1.5": 1.5, "1e300": 1e300, "5e-324": 5e-324, "nan": math.nan, "inf": math.inf, "-inf": -math.inf,
    "1j": 1j, "''": "", "'x'": "x", "NUL": "a\0b", "surrogate": "\ud800", "newline": "a\nb", "long": "x" * 10_000,
    "b'x'": b"x", "1/3": fractions.Fraction(1, 3), "Decimal(NaN)": decimal.Decimal("NaN"),
    "Decimal": decimal.Decimal("1e999999"), "'1e999999999'": "1e999999999", "[]": [], "[[]]": [[]], "{}": {}, "()": (), "[None]": [None],
    "['a']": ["a"], "[nan]": [math.nan], "[inf, 0]": [math.inf, 0.0], "[-0.1, 1.1]": [-0.1, 1.1], "[0.5, 0.6]": [0.5, 0.6],
    "[0, 0, 0]": [0.0, 0.0, 0.0], "ragged": [[0.5, 0.5], [1.0]], "deep": [[[[[0.5]]]]], "[2^70]": [2**70], "[-1]": [-1], "[99]": [99],
    "{1}": {1}, "dict": {"a": 1}, "range": range(10**12), "generator": "generator", "lambda": lambda *_: None,
    "object": object(), "Awkward": Awkward(), "type": int, "module": math,
    "empty": np.array([]), "0x3": np.zeros((0, 3)), "3x0": np.zeros((3, 0)), "strings": np.array(["a", "b", "c"]),
    "complex": np.array([0.5 + 1j, 0.5, 0.0]), "objects": np.array([object()] * 3), "bools": np.array([True, False, False]),
    "ones": np.ones(3), "float16": np.array([0.5, 0.3, 0.2], np.float16), "subnormal": np.array([5e-324, 1.0, 0.0]),
    "0d": np.array(0.5), "uint64": np.array([2**64 - 1], np.uint64), "dates": np.array(["2020-01-01"], "M8[D]"),
    "big": np.full(3, 1e308), "read-only": np.broadcast_to(np.float64(0.25), (2, 4)), "np.int64": np.int64(3), "np.uint8": np.uint8(3), "np.float16": np.float16(0.5),
    "np.float32": np.float32(0.5), "np.bool": np.bool_(True), "model": TARGET, "tree": TREE, "trace": TRACE,
    "folder": ".", "missing": "no/such/file", "fifo": "fifo", "socket": "socket", "device": "/dev/zero", "full": "/dev/full", "loop": "loop",
    "Path": Path("fifo"), "text file": "texts/a.txt", "rule:": "lenience:lenience=nan", "rule": "block", "rules": ["block", "block"],
}  # fmt: skip
#: Folders that calls make.
MADE = ("written", "appended", "recorded", "planted", "imported")
#: Work that would take as long as it is asked for.
LONG = {"2^31", "2^32", "1e300", "Decimal", "range"}
WORK = {"steps", "max_new_tokens", "length", "ahead", "n"}


#: Verifiers by name.
MINE = """
import os, time
import numpy as np


def verify(draft_tokens, p, q, rng):
    from specsim import verify
    return np.asarray(verify(draft_tokens, p, q, rng=rng).tokens)


def hangs(*_):
    time.sleep(1000)


def dies(*_):
    os._exit(9)


none = None
"""


def make_things():
    """The files that calls name, in this folder."""
    from specsim import plant

    run = specsim.simulate(P, Q, gamma=2, steps=100, rng=1, threads=1, checkpoint="run.part")
    run.save("run.json")
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
    Path("loop").symlink_to("loop")
    Path("mine.py").write_text(MINE)
    Path("texts").mkdir()
    for name in "abc":
        Path("texts", f"{name}.txt").write_text("some text of a few words, again and again " * 5)
    models.build_pair("texts", "models.npz", n_target=2, n_draft=1, pattern="*.txt")
    np.savez("log.npz", draft_tokens=[[0, 1]] * 4, p=np.tile(P, (4, 3, 1)), q=np.tile(Q, (4, 3, 1)))
    Path("tokens").mkdir()
    Path("tokens", "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 1}}}')
    Path("responses.jsonl").write_text('{"metrics": {"acceptance_histogram": [3, 2, 1]}}\n' * 3)
    logged = {"tokens": ["a", "b"], "token_logprobs": [-0.5, -1.0]}
    logged["top_logprobs"] = [{"a": -0.5, "b": -1.0}] * 2
    Path("served.jsonl").write_text(json.dumps({"choices": [{"logprobs": logged}]}) + "\n")
    with traces.writer("trace", vocab_size=3, gamma=2) as log:
        for step in range(60):
            log.append(step // 10, [0, 1], step % 3, ROWS_P[0], ROWS_P[0])
    plant("pair", order=1, vocab_size=4, context=64, rng=1)


def _odd(seed):
    """An object whose methods raise, or return what they must not; or one of a type made of Python's own."""
    rng = random.Random(seed)
    result = rng.choice([RuntimeError("odd"), KeyError("odd"), -1, None, "x", 2**70, math.nan, b"x", ()])

    def does(*_, **__):
        if isinstance(result, Exception):
            raise result
        return result

    methods = {f"__{name}__": does for name in rng.sample(ODD, rng.choice((1, 1, 2, 4)))}
    kind = rng.choice([object] * 9 + [int, float, str, dict, list])
    return type("Odd", (kind,), methods if kind is object else {})()


#: Methods by which an object passes for another.
ODD = re.findall(r"\w+", "index float int len iter array fspath getattr eq hash bool str repr call getitem")
HOSTILE |= {f"odd {seed}": _odd(seed) for seed in range(99)}


def run_calls(number, seed):
    """Tallies of `number` calls with a hostile value in place of an argument, and of others with an odd type."""
    rng = random.Random(seed)
    # the kernels of all rules: to compile them takes longer than a call may
    specsim.compare(P, Q, gamma=2, steps=64, rng=1)
    calls = [*_calls()]
    tasks = [
        (i, {name: value})
        for i, (_, given) in enumerate(calls)
        for name in given
        for value in HOSTILE
        if not (name in WORK and value in LONG)
    ]
    rng.shuffle(tasks)
    several = [(i, one | other) for (i, one), (j, other) in itertools.pairwise(tasks) if i == j]
    tasks = rng.sample(tasks + several, len(tasks))

    def describe(task):
        i, replaced = task
        function = calls[i][0]
        return f"{function.__qualname__}({', '.join(f'{name}={value}' for name, value in replaced.items())})"

    def act(task):
        i, replaced = task
        function, given = calls[i]
        for name in MADE:
            shutil.rmtree(name, ignore_errors=True)
        for name in ("built.npz", "new.part"):
            Path(name).unlink(missing_ok=True)
        values = {name: _value(HOSTILE[value]) for name, value in replaced.items()}
        try:
            found = function(**given | values)
        except Exception as error:
            if fault := answer_of(error):
                return "accident", (TRACEBACK, fault)
            if not _names(error, function, given, replaced):
                what = f"does not name the argument: {type(error).__name__}: {error}"[:300]
                return "accident", (TRACEBACK, what)
            return "refused", None
        if (name := _not_a_number(found)) is not None:
            return "returned", (WRONG, f"{name} is NaN")
        return "returned", None

    for name, most in (("calls", number), ("odd types", number * 21 // 50)):
        chosen = [task for task in tasks if ("odd " in str(task[1])) == (name == "odd types")]
        yield in_blocks(name, chosen[:most], act, describe, make_things)


def _value(value):
    return (x for x in [0.5, 0.5]) if type(value) is str and value == "generator" else value


def _names(error, function, given, replaced):
    """Whether the message names one of the arguments, or the value of one that is a path."""
    text = str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.filename is not None):
        return True
    words = {name.removesuffix("s") for name in given | replaced}
    words |= {"that were given", "the pair", function.__name__, str(given.get("name", function.__name__))}
    for value in replaced.values():
        if isinstance(HOSTILE[value], str | Path) and value != "''" and "odd" not in value:
            words |= {str(HOSTILE[value])[:20], ascii(str(HOSTILE[value])[:20])[1:-1].partition(":")[0]}
        if HOSTILE[value] is TRACE:
            words.add(str(TRACE.path))
    return any(re.search(rf"(?<!\w){re.escape(word)}", text) for word in words)


def _not_a_number(found, name="the result", depth=0):
    """The name of a number in a result that is NaN."""
    if depth > 3 or found is None:
        return None
    if isinstance(found, float | np.floating):
        return name if math.isnan(found) else None
    if isinstance(found, np.ndarray):
        return name if found.dtype.kind == "f" and np.isnan(found).any() else None
    if hasattr(type(found), "__dataclass_fields__"):
        found = {one: getattr(found, one) for one in found.__dataclass_fields__}
    if isinstance(found, dict):
        items = found.items()
    elif isinstance(found, list | tuple):
        items = enumerate(found[:100])
    else:
        return None
    for key, value in items:
        if (bad := _not_a_number(value, f"{name}, {key}", depth + 1)) is not None:
            return bad
    return None
