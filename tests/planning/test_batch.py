"""The simulated server: closed forms, queues whose law is known, a plain twin, and bad input."""

import math
import os
import pickle
import re
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from cases import cases
from interrupting import interrupts
from naive_batch import requests_of, serve
from scipy import integrate, stats
from sent import Sending
from test_costs import GPU, LARGE, SMALL

from specsim.core._saving import equal, load
from specsim.core._streams import key_of
from specsim.planning import (
    Bands,
    BatchCost,
    Beta,
    Blocks,
    Budget,
    Classifier,
    Constant,
    Experts,
    Geometric,
    Goodput,
    Hardware,
    Heuristic,
    LoggedLengths,
    Network,
    Oracle,
    PassTime,
    RequestLog,
    Roofline,
    best_gamma,
    critical_context,
    improvement,
    preset,
    presets,
    simulate_batch,
    sweep_batch,
)
from specsim.planning._batch._kernel import Setup
from specsim.planning._batch._policies import for_kernel, policy_named, spec_of
from specsim.planning._batch._requests import Workload
from specsim.planning._batch._simulate import _serve
from specsim.theory import expected_tokens, expected_tokens_by_position

SECOND = BatchCost(PassTime(fixed=1.0), PassTime())  #: each pass takes a second
POLICIES = [
    Constant(0), Constant(3), Goodput(6, 5), Budget(5, 20), Blocks(5, 20), Bands(5, 0.5),
    Classifier(7, 0.4, 0.2), Heuristic(3, 9), Oracle(7),
]  # fmt: skip


def cost_of(target=LARGE, draft=SMALL, hardware=GPU, seen=None):
    return BatchCost(PassTime.of(target, hardware), PassTime.of(draft, hardware), seen)


def errors_from(run, quantity, expected):
    """By how many standard errors a quantity differs from what is expected of it."""
    values = run.values[quantity]
    return abs(values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values)))


# --- closed forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_a_full_server_has_the_step_of_the_roofline(gamma, batch):
    """Without caches, whose size changes along a text, the seconds of an iteration are those of `Roofline`."""
    target, draft = (replace(one, cache_bytes_per_token=0.0) for one in (LARGE, SMALL))
    roofline = Roofline(target, draft, GPU, batch=batch)
    how = {"alpha": 0.7, "max_batch": batch, "prefill": False, "output": 5000, "requests": 40 * batch}
    run = simulate_batch(cost_of(target, draft), Constant(gamma), **how, rng=1)
    assert run.estimate("tokens_per_pass").mean == pytest.approx(expected_tokens(0.7, gamma), rel=2e-3)
    seconds = batch * run.values["tokens_per_pass"] / run.values["goodput"]
    assert seconds == pytest.approx(roofline.step(gamma) * target.seconds(GPU, batch, 1, 0.0), rel=1e-9)
    assert run.values["mean_batch"] == pytest.approx(batch, rel=1e-9)
    assert run.values["utilisation"] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("experts", [None, Experts(8, 2, 1e9), Experts(4, 4, 1e9)])
def test_a_pass_takes_the_time_of_the_network(experts):
    network = Network(2e9, 2.0, 1e5, experts)
    for batch, tokens, context in ((1, 1, 0.0), (3, 7, 1000.0), (256, 5, 10.0)):
        found = PassTime.of(network, GPU).seconds(batch, batch * tokens, batch * context)
        assert found == pytest.approx(network.seconds(GPU, batch, tokens, context), rel=1e-12)
    ragged = cost_of(network, SMALL, seen=500.0).iteration([3, 0, 1], [100, 2000, 3000])
    drafts = PassTime.of(SMALL, GPU)
    expected = drafts.seconds(2, 2, 600.0) + 2 * drafts.seconds(1, 1, 100.0)
    assert ragged == pytest.approx(expected + PassTime.of(network, GPU).seconds(3, 7, 5100.0), rel=1e-12)


def waits(server_seconds, rate, policy=Constant(0), **more):  # noqa: B008 - it is frozen
    """A run of a server that needs so many seconds for a token, one request at a time."""
    cost = BatchCost(PassTime(fixed=server_seconds), PassTime())
    options = {"rate": rate, "max_batch": 1, "prompt": 1, "output": 1, "requests": 20_000, "rng": 3}
    return simulate_batch(cost, policy, **(options | more))


def test_a_queue_with_constant_service_is_m_d_1():
    """Mean wait ρ/(2μ(1 - ρ)); a server of twice the time, and the formula of M/M/1, are refuted."""
    rho, mu = 0.4, 1.0
    expected = rho / (2 * mu * (1 - rho))
    run = waits(1.0, rho)
    assert errors_from(run, "wait", expected) < 5
    assert errors_from(run, "utilisation", rho) < 5
    assert run.load == "steady"
    assert errors_from(waits(2.0, rho), "wait", expected) > 50
    assert errors_from(run, "wait", rho / (mu * (1 - rho))) > 50


def test_a_queue_with_geometric_service_is_m_g_1():
    """The formula of Pollaczek and Khinchine, with E[S] = m and E[S²] = 2m² - m."""
    mean, rate = 4.0, 0.15
    expected = rate * (2 * mean**2 - mean) / (2 * (1 - rate * mean))
    run = waits(1.0, rate, output=Geometric(mean))
    assert errors_from(run, "wait", expected) < 5
    assert errors_from(run, "wait", rate * mean**2 / (2 * (1 - rate * mean))) > 10  # constant service


def test_speculation_shortens_the_service():
    """One request at a time, γ = 1 and α = 1: two tokens a second, so M/D/1 with half the service time."""
    run, drafting = (waits(1.0, 0.4, Constant(k), output=2, prefill=False, alpha=1.0) for k in (0, 1))
    assert run.estimate("wait").mean > 1
    assert errors_from(drafting, "wait", 0.4 / (2 * 0.6)) < 5


# --- acceptance ---------------------------------------------------------------------------------------------


def tokens_per_pass(alpha, policy=Constant(4)):  # noqa: B008 - it is frozen
    options = {"max_batch": 4, "prefill": False, "output": 1000, "requests": 400, "rng": 2}
    return simulate_batch(SECOND, policy, alpha=alpha, **options)


def test_acceptance_may_differ_by_position_and_come_from_a_log():
    rates = [0.9, 0.5, 0.8]
    run, expected = tokens_per_pass(rates), float(expected_tokens_by_position([*rates, 0.8]))
    assert run.estimate("tokens_per_pass").mean == pytest.approx(expected, rel=5e-3)
    lengths = [400, 100, 50, 0, 450]
    run = tokens_per_pass(LoggedLengths(lengths))
    assert run.estimate("tokens_per_pass").mean == pytest.approx(1 + np.arange(5) @ lengths / 1000, rel=5e-3)
    assert LoggedLengths(lengths).survival == pytest.approx([0.6, 0.5, 0.45, 0.45])


def test_acceptance_may_differ_between_requests():
    """All outputs are of one length, so that tokens per pass are a harmonic mean over requests."""
    law, mean, deviation = Beta(0.7, 0.15), 0.7, 0.15
    size = mean * (1 - mean) / deviation**2 - 1
    density = stats.beta(mean * size, (1 - mean) * size).pdf
    passes = integrate.quad(lambda a: density(a) / expected_tokens(a, 4), 0, 1)[0]
    run = tokens_per_pass(law)
    assert run.estimate("tokens_per_pass").mean == pytest.approx(1 / passes, rel=1e-2)
    assert run.estimate("tokens_per_pass").mean < 0.99 * expected_tokens(0.7, 4)


# --- the twin -----------------------------------------------------------------------------------------------


def served(cost, policy, max_batch, prefill, survival, drawn, key, edge):
    passes = cost.target.coefficients(), cost.draft.coefficients(), cost.seen
    setup = Setup(survival, *passes, max_batch, prefill, *for_kernel(policy))
    return _serve(drawn, setup, key, np.zeros(1, np.int64), edge, until_counted=False)


@pytest.mark.parametrize("policy", POLICIES, ids=spec_of)
@pytest.mark.parametrize(
    ("rate", "max_batch", "prefill", "alpha"),
    [(None, 5, True, 0.7), (40.0, 3, True, Beta(0.6, 0.2)), (15.0, 4, False, [0.8, 0.4])],
)
def test_the_plain_twin_has_the_same_numbers(policy, rate, max_batch, prefill, alpha):
    mixture = Network(2e9, cache_bytes_per_token=2e5, experts=Experts(8, 2, 6e8))
    cost = cost_of(mixture, SMALL, Hardware(2e12, 2e13), seen=70.0)
    work = Workload(rate, None, Geometric(80.0), Geometric(60.0), alpha, 40)
    key = key_of(5, (0,))
    survival = work.survival(int(for_kernel(policy)[1][0]), spec_of(policy))
    times, totals = served(cost, policy, max_batch, prefill, survival, work.draw(key), key, -1)
    requests = requests_of(work.draw(key), survival.tolist() or None, key)
    passes, drafted, accepted = serve(requests, cost, policy, max_batch, prefill)
    for name, found in zip(("started", "first", "finished"), times, strict=True):
        assert found == pytest.approx([getattr(one, name) for one in requests], rel=1e-9)
    # no request has the numbers -1 and 40, so the totals are those of the whole run
    assert (totals["request_steps"], totals["drafted"], totals["accepted"]) == (passes, drafted, accepted)
    assert (totals["finished"], totals["tokens"]) == (40, sum(one.output for one in requests))
    assert totals["seconds"] == pytest.approx(max(one.finished for one in requests), rel=1e-9)


def test_totals_are_those_of_the_twin():
    """The last request is long enough to be the last one admitted, and the rest of it is not counted."""
    key, count = key_of(6), 12
    drawn = Workload(None, None, 10, 30, 0.6, count).draw(key)
    drawn.outputs[-1] = 1
    _, totals = served(SECOND, Constant(3), 1, False, np.empty(0), drawn, key, 0)
    passes, drafted, accepted = serve(requests_of(drawn, None, key), SECOND, Constant(3), 1, False)
    assert totals["request_steps"] == totals["iterations"] == passes - 1
    assert (totals["drafted"], totals["seconds"]) == (drafted - 3, passes - 1)
    assert accepted - 3 <= totals["accepted"] <= accepted
    assert (totals["tokens"], totals["finished"]) == (30 * (count - 1), count - 1)


def test_threads_make_no_difference():
    options = {"rate": 30.0, "alpha": Beta(0.7, 0.2), "output": Geometric(50.0), "requests": 400, "rng": 4}
    one, two = (simulate_batch(preset("llama-8b"), Goodput(), **options, threads=n) for n in (1, 2))
    assert one == two
    assert one != simulate_batch(preset("llama-8b"), Goodput(), **(options | {"rng": 5}))


# --- policies -----------------------------------------------------------------------------------------------


def drafted_per_pass(run):
    return (run.estimate("tokens_per_pass").mean - 1) / run.estimate("alpha_drafted").mean


def test_goodput_drafts_what_the_cost_model_calls_best():
    """A small batch speculates as `best_gamma` says; a large one, bound by arithmetic, does not."""
    target, draft = (replace(one, cache_bytes_per_token=0.0) for one in (LARGE, SMALL))
    policy = Goodput(max_gamma=16, window=4096, alpha=0.7)
    options = {"alpha": 0.7, "prefill": False, "output": 500}
    run = simulate_batch(cost_of(target, draft), policy, max_batch=1, requests=80, rng=1, **options)
    best = best_gamma(Roofline(target, draft, GPU), 0.7, max_gamma=16)
    assert drafted_per_pass(run) == pytest.approx(best, abs=1.0)
    options |= {"max_batch": 600, "requests": 6000, "replications": 2, "rng": 1}
    run = simulate_batch(cost_of(target, draft), policy, **options)
    assert run.estimate("tokens_per_pass").mean == pytest.approx(1.0, abs=0.05)


def test_the_oracle_drafts_nothing_in_vain_and_a_budget_is_kept():
    found = tokens_per_pass(0.7, Oracle(10))
    assert found.values["alpha_drafted"] == pytest.approx(1.0, rel=1e-12)
    assert found.estimate("tokens_per_pass").mean == pytest.approx(expected_tokens(0.7, 10), rel=5e-3)
    found = tokens_per_pass(0.7, Budget(8, 12))  # of 4 at once
    assert drafted_per_pass(found) == pytest.approx(2.0, rel=5e-3)
    assert math.isnan(tokens_per_pass(0.7, Budget(8, 4)).estimate("alpha_drafted").mean)


def test_a_classifier_errs_as_often_as_it_says():
    """Of one token after another: P(more than k drafted) by hand, for α = 1/2 and up to three tokens."""
    missed, false_alarm = 0.4, 0.2
    more = [1.0]
    for accepted in range(4):  # with probability 1/2, 1/4, 1/8, 1/8
        chance = 0.5 ** min(accepted + 1, 3)
        for k in (1, 2):
            on = math.prod([1 - false_alarm] * min(accepted, k) + [missed] * max(0, k - accepted))
            more.append(chance * on)
    found = tokens_per_pass(0.5, Classifier(3, missed, false_alarm))
    assert drafted_per_pass(found) == pytest.approx(sum(more), rel=5e-3)


def test_a_budget_is_better_spent_on_requests_that_accept_more():
    mixed = Beta(0.6, 0.25)
    shared, fixed = (tokens_per_pass(mixed, one) for one in (Budget(8, 20), Constant(4)))
    assert drafted_per_pass(shared) == pytest.approx(drafted_per_pass(fixed), rel=2e-2)
    assert shared.estimate("tokens_per_pass").low > fixed.estimate("tokens_per_pass").high


@pytest.mark.parametrize("policy", POLICIES, ids=spec_of)
def test_a_policy_is_named_as_it_is_read(policy):
    assert policy_named(spec_of(policy)) == policy


# --- load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Constant(0), Constant(4), Goodput()], ids=spec_of)
def test_arrivals_beyond_the_capacity_have_no_latency(policy):
    cost, options = preset("llama-8b"), {"alpha": 0.7, "requests": 600, "max_batch": 8, "rng": 1}
    capacity = simulate_batch(cost, policy, **options).estimate("capacity").mean
    under, over = (simulate_batch(cost, policy, rate=x * capacity, **options) for x in (0.8, 1.25))
    assert (under.load, over.load) == ("steady", "overloaded")
    assert under.estimate("latency_p99").mean > under.estimate("latency_p50").mean > 0
    assert all(np.isnan(over.values[name]).all() for name in ("latency", "wait", "latency_p99"))
    assert "the queue grows without bound" in str(over)
    assert "latency, p50" not in str(over)
    assert over.estimate("utilisation").mean == pytest.approx(1.0, abs=0.01)
    exactly = simulate_batch(cost, policy, rate=capacity, **options)
    assert exactly.load == ("critical" if policy != Constant(0) else exactly.load)


def test_a_run_that_is_too_short_says_so():
    """Near the capacity the queue takes thousands of requests to fill."""
    run = waits(1.0, 0.995, requests=400, replications=64)
    assert run.load == "steady"
    assert not run.settled
    assert "latency still grows along the run" in str(run)
    assert waits(1.0, 0.4, requests=2000).settled


# --- batches and contexts -----------------------------------------------------------------------------------


def test_a_sparse_draft_gains_with_the_batch_beyond_the_critical_context():
    """MagicDec (arXiv 2408.11049): below it, larger batches gain less. Both have the same steps."""
    roofline = Roofline(LARGE, SMALL, GPU, batch=16, draft_context=512)
    critical = critical_context(roofline, 0.8, 4)
    for context, rises in ((critical / 2, False), (critical * 3, True)):
        how = {"alpha": 0.8, "prompt": round(context), "output": 64, "prefill": False, "requests": 2000}
        found = sweep_batch(cost_of(seen=512.0), Constant(4), over={"max_batch": [16, 32]}, **how, rng=1)
        pairs = zip(found.runs, found.plain, strict=True)
        here, twice = (run.values["capacity"] / plain.values["capacity"] for run, plain in pairs)
        errors = (twice - here).mean() / ((twice - here).std(ddof=1) / math.sqrt(len(here)))
        assert errors > 5 if rises else errors < -5
        step = replace(roofline, context=context + 32)
        assert here.mean() == pytest.approx(improvement(step, 0.8, 4), rel=0.03)


def test_the_speedup_falls_with_the_load_until_speculation_is_slower():
    """A small draft and many requests: verification is bound by arithmetic."""
    options = {"alpha": 0.5, "prompt": 64, "output": 64, "requests": 2560, "rng": 1}
    found = sweep_batch(preset("llama-8b"), Constant(4), over={"max_batch": [1, 64, 256]}, **options)
    gains = [found.capacity_gain(i).mean for i in range(3)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.1
    assert gains[-1] < 0.9
    assert found.records()[0]["plain_load"] == "full"
    assert found.plot(y="capacity_gain").get_xlabel() == "max_batch"
    with pytest.raises(ValueError, match="unknown column 'nosuch'"):
        found.plot(y="nosuch")


def test_a_full_server_keeps_the_law_of_little():
    """With as many requests at all times, the gain in capacity is the gain of each request."""
    how = {"output": Geometric(60), "requests": 1000, "rng": 1}
    for policy in (Constant(3), Heuristic(), Budget(tokens=100)):
        found = sweep_batch(preset("llama-8b"), policy, over={"prompt": [1, 2000]}, **how)
        for i in range(2):
            assert found.capacity_gain(i).mean == pytest.approx(found.speedup(i).mean, rel=0.03)


def test_a_sweep_has_the_runs_of_its_settings():
    options = {"requests": 200, "max_batch": 4, "rng": 1}
    found = sweep_batch(
        preset("llama-70b"), Constant(2), over={"rate": [0.5, 50.0], "alpha": [0.5, 0.9]}, **options
    )
    assert found.settings == ((0.5, 0.5), (0.5, 0.9), (50.0, 0.5), (50.0, 0.9))
    assert found.runs[1] == simulate_batch(preset("llama-70b"), Constant(2), rate=0.5, alpha=0.9, **options)
    assert found.plain[1] == simulate_batch(preset("llama-70b"), Constant(0), rate=0.5, alpha=0.9, **options)
    assert equal(found.plain[0].values, found.plain[1].values)
    ratio = found.plain[1].values["time_per_token"] / found.runs[1].values["time_per_token"]
    assert found.speedup(1).mean == pytest.approx(ratio.mean())
    assert math.isnan(found.speedup(2).mean)
    assert "the queue grows without bound" in str(found)
    assert len(found.plot().containers) == 2


# --- measured costs, logs -----------------------------------------------------------------------------------


def test_executors_make_no_difference_to_a_sweep(full):
    options = {"over": {"rate": [5.0, 20.0]}, "alpha": 0.6, "requests": 400, "rng": 3}
    here = sweep_batch(preset("llama-8b"), Constant(2), **options)
    with Sending(2) as pool:
        for executor in (pool, "processes") if full else (pool,):
            assert sweep_batch(preset("llama-8b"), Constant(2), executor=executor, **options) == here


def test_a_pass_is_fitted_to_what_was_measured(tmp_path):
    rng = np.random.default_rng(1)
    batch = rng.integers(1, 65, 200)
    tokens = batch * rng.integers(1, 9, 200)
    ms = 8.0 + 0.05 * batch + 0.02 * tokens
    found = PassTime.fit(batch, tokens, ms * rng.normal(1, 0.01, 200))
    assert found.fixed == pytest.approx(8e-3, rel=0.03)
    assert found.seconds(32, 160) == pytest.approx((8.0 + 1.6 + 3.2) / 1e3, rel=0.02)
    rows = "\n".join(f"{m},{b},{t}" for b, t, m in zip(batch, tokens, ms, strict=True))
    (tmp_path / "passes.csv").write_text(f"ms,batch,tokens\n{rows}\n")
    read = PassTime.read(tmp_path / "passes.csv")
    assert (read.fixed, read.per_sequence, read.per_token) == pytest.approx((8e-3, 5e-5, 2e-5))
    assert PassTime.fit(batch, tokens, 8.0 - 0.01 * tokens + 0.1 * batch).per_token == 0.0  # never negative


def test_requests_of_a_log_are_served(tmp_path):
    """Eight requests a second for a server that completes one: the queue grows; and all at once."""
    lines = [f"{i / 8},{3 + i % 2},{2}" for i in range(40)]
    (tmp_path / "log.csv").write_text("arrival,prompt,output\n" + "\n".join(lines))
    run = simulate_batch(SECOND, Constant(0), log=RequestLog.read(tmp_path / "log.csv"), max_batch=2, rng=1)
    assert (run.rate, run.requests, run.load) == (pytest.approx(8.0), 40, "overloaded")
    at_once = RequestLog([0.0] * 40, [3] * 40, [2] * 40)
    assert simulate_batch(SECOND, Constant(0), log=at_once, max_batch=2, rng=1).load == "full"
    slow = RequestLog(np.arange(40) * 10.0, [3] * 40, [2] * 40)
    run = simulate_batch(SECOND, Constant(0), log=slow, max_batch=2, rng=1)
    assert run.estimate("latency_p99").mean == 2.0
    assert run.estimate("first_token").mean == 1.0
    assert run.estimate("wait").mean == 0.0


# --- results ------------------------------------------------------------------------------------------------


def test_a_result_is_saved_shown_and_drawn(tmp_path):
    run = simulate_batch(preset("llama-8b"), Constant(2), rate=5.0, requests=400, rng=1)
    over = {"output": [8, Geometric(9)]}
    found = sweep_batch(preset("llama-8b"), Constant(2), over=over, requests=400, rng=1)
    assert [row["output"] for row in found.records()] == ["8", "geometric:9"]
    assert found.to_arrow().column("output").to_pylist() == ["8", "geometric:9"]
    for one in (run, found):
        one.save(tmp_path / "run.json")
        assert load(tmp_path / "run.json") == one == pickle.loads(pickle.dumps(one))
        assert one.to_dict()
    assert {row["quantity"] for row in run.records()} >= {"goodput", "latency_p99", "capacity"}
    estimate = run.estimate("goodput")
    assert estimate.low < estimate.mean < estimate.high
    assert run.to_dict()["estimates"]["goodput"]["mean"] == estimate.mean
    assert run.plot().get_ylabel() == "latency (s)"
    assert "geometric:9" in str(found)


def test_an_interrupt_keeps_the_runs_of_a_sweep():
    def after(runs):
        def progress(done, total):
            if done == runs:
                raise KeyboardInterrupt

        return progress

    over, options = {"rate": [1.0, 2.0, 3.0]}, {"requests": 400, "rng": 1}
    found = sweep_batch(preset("llama-8b"), over=over, progress=after(2), **options)
    whole = sweep_batch(preset("llama-8b"), over=over, **options)
    assert (found.interrupted, whole.interrupted) == (True, False)
    assert found.runs == whole.runs[:2]
    assert "interrupted after 2 of 3 runs" in str(found)


def test_an_interrupt_ends_the_threads():
    """The whole run would take many minutes."""
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    began = time.perf_counter()
    timer.start()
    with interrupts(), pytest.raises(KeyboardInterrupt):
        simulate_batch(SECOND, output=1_000_000, requests=100_000, replications=2, threads=2, rng=1)
    assert time.perf_counter() - began < 30


def test_intervals_are_those_of_replications():
    """Of 40 intervals of M/D/1's mean wait, 95 % each, no fewer than 31 have it (a chance of 10^-4)."""
    hits = 0
    for seed in range(40):
        _, low, high = waits(1.0, 0.3, requests=1000, rng=seed).estimate("wait")
        hits += low <= 0.3 / 1.4 <= high
    assert hits >= 31


def test_every_preset_speculates_faster_alone():
    how = {"prompt": 8000, "prefill": False, "requests": 20, "rng": 1}
    for name in presets():
        gain = sweep_batch(preset(name), Constant(3), over={"max_batch": [1]}, **how)
        assert (gain.capacity_gain(0).mean > 1) is (name != "llama-8b-sparse"), name


# --- what goes wrong ----------------------------------------------------------------------------------------

ONE = PassTime(fixed=1.0)


@pytest.mark.parametrize(*cases(__file__, "damaged measurements"))
def test_a_damaged_file_of_measurements_is_named(tmp_path, text, message):
    path = tmp_path / "passes.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as found:
        PassTime.read(path)
    assert str(found.value).startswith(str(path))
