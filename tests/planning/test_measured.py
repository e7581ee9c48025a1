"""Plans from what people have: speeds, measured passes, times, and acceptance as engines print it."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from commands import run, says
from served import write_log

from specsim import default_pair
from specsim.decoding import record
from specsim.planning import MeasuredStep, alpha_of, best_gamma
from specsim.planning._measured import choose_draft, plan_passes, plan_recorded, plan_speeds
from specsim.theory import expected_tokens_by_position, walltime_improvement
from specsim.traces import summarise
from specsim.traces._analysis import document_draws

#: LostRuins/koboldcpp#2262: γ, accepted / drafted, tokens per second; 36.0 without drafts.
SPEEDS = [(1, ".47", "47.8"), (2, ".30", "45.5"), (3, ".23", "44.4"), (4, ".20", "41.9"), (8, ".11", "30.9")]
#: waybarrios/vllm-mlx#763: milliseconds of a pass by width; 3.20 of 7 drafted tokens were accepted.
PASSES = {1: 8.47, 2: 13.49, 3: 15.64, 5: 20.67, 8: 28.13}


MEAN = "tokens_per_step"
#: Tables of these speeds and passes.
FILES = Path(__file__).parent / "measured"


def test_the_best_gamma_of_measured_speeds():
    rows = [word for gamma, rate, speed in SPEEDS for word in ("--speeds", f"{gamma}={rate},{speed}")]
    rows += ["--speeds", "0=36.0"]
    by_option, by_file = (run("plan", *one, "--json", cwd=FILES) for one in (rows, ["--speeds", "all.csv"]))
    more = run("plan", "--speeds", "speeds.csv", "--speeds", "0=36.0", "--json", cwd=FILES)
    assert by_option.out == by_file.out == more.out
    found = json.loads(by_file.out)
    assert (found["best"], [one["gamma"] for one in found["choices"]]) == (1, [1, 2, 3, 4, 8])
    first, second, third, *_, last = found["choices"]
    assert [first["cost"], last["cost"]] == pytest.approx([1.11, 2.19], abs=0.005)
    assert first["cost_low"] < 1.47 * 36.0 / 47.8 < first["cost_high"]
    assert [one["alpha"] for one in (first, second, third)] == pytest.approx([0.47, 0.28, 0.7], abs=0.01)
    assert third["alpha_low"] < 0.5 < 1.0 == third["alpha_high"]
    assert (last["alpha"], first["free"], last["free"]) == (None, pytest.approx(1.47), pytest.approx(1.88))


def test_repeated_runs_widen_the_interval():
    rows = [(0, "", "", "20"), (2, MEAN, "2.0", "40"), (2, "acceptance_rate", "0.60", "44")]
    one = plan_speeds(rows).choices[0]
    assert (one.gain, one.tokens_per_step[1]) == (pytest.approx(2.1), pytest.approx(1.95))
    assert one.speedup[2] > 2.2 > 1.95 > one.speedup[1]


def test_measured_passes_are_taken_as_they_are():
    """A straight line through them would be 16 % off at width 1."""
    words = ("plan", "--alpha", "acceptance-rate:3.20/7,gamma=7")
    twice = run(*words, "--measured", "two.csv,1", "--batch", "2", "--json", cwd=FILES)
    once = json.loads(run(*words, "--measured", "two.csv,0.5", "--json", cwd=FILES).out)
    assert [a["cost"] for a in json.loads(twice.out)["choices"]] == [
        pytest.approx(b["cost"]) for b in once["choices"]
    ]
    assert once["choices"][3]["free"] == pytest.approx(3.383 * 8.47 / 20.67, abs=1e-3)
    cost = MeasuredStep([*PASSES], [*PASSES.values()], 0.5)
    assert cost.step(3) == pytest.approx(((15.64 + 20.67) / 2 + 1.5) / 8.47)
    assert best_gamma(cost, 0.8032, max_gamma=7) == 3


def test_acceptance_beyond_what_was_measured_is_never_called_the_best():
    found = plan_passes([0.5, 0.9], MeasuredStep([1, 2, 3, 4], [1.0, 1.01, 1.02, 1.03], 0.0))
    assert (found.best.gamma, found.choices[2].unknown) == (2, "its acceptance was")
    assert "γ = 3 may be faster" in str(found)
    assert plan_passes(0.01, MeasuredStep([1, 2], [1, 2], 0.0)).best is None


def clock(trace, draft, target):
    """Write seconds beside a trace: of each text two passes of each kind, with these milliseconds."""
    lines = ["text,model,tokens,seconds"]
    for text in np.unique(np.concatenate([shard.columns.context for shard in trace.shards])).tolist():
        lines += [f"{text},draft,1,{draft(text) / 1e3:.6g}"] * 2 + [f"{text},draft,40,9"]
        for tokens in range(1, trace.gamma + 2):
            lines += [f"{text},target,{tokens},{target(text, tokens) / 1e3:.6g}"] * 2
    (trace.path / "seconds.csv").write_text("\n".join(lines) + "\n")
    return trace


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "trace"
    return record(folder, *default_pair(), gamma=3, steps=7 * 32, rng=1)


def test_a_recording_plans_from_its_own_rates_and_seconds(recorded):
    clock(recorded, lambda text: 0.5, lambda text, tokens: 10 + tokens)
    found, summary = plan_recorded(recorded), summarise(recorded)
    same = plan_passes(summary.alpha_by_position, MeasuredStep([1, 2, 3, 4], [11, 12, 13, 14], 0.5))
    for one, other in zip(found.choices, same.choices, strict=True):
        assert one.cost == pytest.approx([other.cost[0]] * 3)  # texts have the same times
        assert one.speedup[0] == pytest.approx(other.gain)
        assert one.speedup[1] < one.speedup[0] < one.speedup[2]
    assert found.best.gamma == same.best.gamma
    assert found.formula[1] == pytest.approx(walltime_improvement(summary.alpha_verified, 2, 0.5 / 11))


def test_the_intervals_of_a_recording_resample_its_texts(recorded):
    """Again in plain Python, a resample at a time."""
    clock(recorded, lambda text: 1 + text, lambda text, tokens: 20 + tokens - text)
    accepted = np.concatenate([shard.columns.accepted for shard in recorded.shards]).reshape(-1, 4)[:, :3]
    lengths = (accepted == 1).sum(axis=1).reshape(7, 32)
    speeds = []
    for counts in document_draws(7, 0).astype(int):
        texts = np.repeat(np.arange(7), counts)
        draft, one, four = (np.median(row) for row in (1 + texts, 21 - texts, 24 - texts))
        speeds.append((1 + lengths[texts].mean()) / ((four + 3 * draft) / one))
    ends = np.quantile(speeds, [0.025, 0.975])
    assert plan_recorded(recorded).choices[2].speedup[1:] == pytest.approx(ends)


def test_a_draft_is_chosen_where_its_prompts_tell(recorded, tmp_path):
    other = record(tmp_path / "other", *default_pair(), gamma=2, steps=7 * 32, rng=2)
    clock(recorded, lambda text: 0.1, lambda text, tokens: 10.0)
    traces = {"fast": recorded, "slow": clock(other, lambda text: 4.0, lambda text, tokens: 10.0)}
    ranking = choose_draft(traces)
    assert [(one.candidate.name, one.surely_worse) for one in ranking] == [("fast", False), ("slow", True)]
    assert ranking[0].low < ranking[0].improvement < ranking[0].high
    assert ranking.verdict.startswith("fast, with γ = 3: ")
    assert ranking.verdict.endswith("every other draft is slower")
    clock(other, lambda text: 0.1, lambda text, tokens: 10.0)
    alike = choose_draft(traces)
    assert not any(one.surely_worse for one in alike)
    assert "the data do not tell it from" in alike.verdict
    for trace in traces.values():
        clock(trace, lambda text: 9.0, lambda text, tokens: 10.0)
    assert choose_draft(traces).verdict == "Do not speculate: no draft is faster than none."


def test_the_command_plans_from_a_recording_and_draws_it(recorded, tmp_path):
    clock(recorded, lambda text: 0.5, lambda text, tokens: 10 + tokens)
    said = run("plan", "--from", recorded.path, "-o", tmp_path / "speed.png").out
    assert "95% intervals, 7 texts resampled (seed 0)" in said
    assert "draft 0.5 ms, target over 1, 2, … tokens 11, 12, 13, 14 ms" in said
    assert (tmp_path / "speed.png").stat().st_size > 1000
    path = recorded.path / "seconds.csv"
    path.write_text("text,model,tokens,seconds\n0,draft,1,-3\n")
    says("seconds.csv:2: seconds: -3.0 is outside (0, ∞)", "plan", "--from", recorded.path, code=2)
    path.write_text("text,model,tokens,seconds\n0,draft,1,3\n")
    says("--from: texts: 0 of more than one step; record at least 2", "plan", "--from", recorded.path, code=2)


#: What a command says, a line each.
SAYS = (Path(__file__).parent / "meanings.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", SAYS)
def test_a_plan_says_what_it_made_of_what_was_given(line):
    command, said = line.removeprefix("refused: ").split(" => ")
    says(said, *command.split(), code=2 if line.startswith("refused: ") else 0, cwd=FILES)


def test_shares_by_position_are_lengths_of_a_log(tmp_path):
    small = ("--requests", "400", "--replications", "2", "--seed", "1")
    histograms = ({"acceptance_histogram": one} for one in ([34, 21, 45], [200, 200, 500]))
    write_log(tmp_path / "log.jsonl", [*histograms])
    words = (("--alpha", "by-position:.766,.545"), ("--lengths", "234,221,545"), ("--lengths", "log.jsonl"))
    rows = [run("simulate-batch", *one, *small, "--json", cwd=tmp_path).out for one in words]
    first, *others = (json.loads(row)["values"] for row in rows)
    assert others == [first, first]


def test_the_gamma_that_a_policy_chooses_is_printed_for_each_batch():
    words = "simulate-batch --policy goodput --alpha 0.6 --prompt 128 --no-prefill --requests 2560 --seed 1"
    over = ("--over", "max_batch=1,256", "--replications", "2", "--csv")
    few, many = csv.DictReader(io.StringIO(run(*words.split(), *over).out))
    assert int(few["gamma_mode"]) > int(many["gamma_mode"]) > 0
    assert abs(float(few["gamma_mean"]) - int(few["gamma_mode"])) < 1
    assert "γ, mean / most often" in run(*words.split(), *over[:-1]).out


def test_converted_rates_are_those_of_the_steps_that_were_counted():
    rng = np.random.default_rng(3)
    for _ in range(200):
        gamma = int(rng.integers(1, 7))
        law = rng.dirichlet(np.full(gamma + 1, 0.4))
        reached = law[::-1].cumsum()[::-1]
        accepted = float(reached[1:].sum())
        tested = accepted + 1.0 - law[-1]
        alphas = alpha_of(by_position=reached[1:].tolist()).rates
        assert expected_tokens_by_position(alphas) == pytest.approx(1 + accepted)
        for given in ({"acceptance_rate": accepted / gamma}, {"tokens_per_step": 1 + accepted}):
            alpha, said = alpha_of(**given, gamma=gamma)
            assert expected_tokens_by_position([alpha] * gamma) == pytest.approx(1 + accepted)
            low, high = (float(one) for one in said.split("(")[1].split(" in ")[0].split(" to "))
            assert low - 1e-4 <= accepted / tested <= high + 1e-4
            assert low - 1e-4 <= alpha <= high + 1e-4
