"""Two logs of accepted lengths: alarms are as rare as stated, and a fall that could be shown is shown."""

import io
import json
import re

import numpy as np
import pytest
from commands import run, says
from conftest import FALSE_ALARM
from scipy import stats
from served import write_log

from specsim import compare_acceptance
from specsim.served import _comparing

LEVEL, GAMMA = 0.1, 3


def log(folder, name, rng, prompts, alpha, ids=None):
    """A log of prompts, each with an α of its own and 5 to 200 steps; the tokens of all steps."""
    lengths = [
        np.minimum(rng.geometric(1 - np.clip(alpha + one, 0.02, 0.98), 5 + int(1e6 * one) % 195) - 1, GAMMA)
        for one in prompts
    ]
    records = [{"acceptance_histogram": np.bincount(one, minlength=GAMMA + 1).tolist()} for one in lengths]
    for one, record in zip(ids or [], records, strict=False):
        record["id"] = one
    write_log(folder / name, records)
    return np.concatenate(lengths) + 1


@pytest.mark.parametrize("new", [24, 21])
def test_alarms_are_as_rare_as_stated_where_steps_alone_would_alarm_often(new, tmp_path, monkeypatch):
    monkeypatch.setattr(_comparing, "EXCHANGES", 399)
    rng, runs, alarms, by_steps = np.random.default_rng(1), 200, 0, 0
    for _ in range(runs):
        steps = [
            log(tmp_path, name, rng, rng.normal(0, 0.15, n), 0.6) for name, n in (("old", 24), ("new", new))
        ]
        found = compare_acceptance(tmp_path / "old", tmp_path / "new", false_alarm=LEVEL)
        assert found.paired == ("by order" if new == 24 else "")
        alarms += found.verdict != "no change"
        by_steps += stats.ttest_ind(*steps).pvalue <= LEVEL
    assert stats.binom.sf(alarms - 1, runs, LEVEL) > FALSE_ALARM
    assert stats.binom.sf(by_steps - 1, runs, LEVEL) < FALSE_ALARM  # steps of a prompt are alike


def test_intervals_of_tokens_per_step_cover():
    rng, covered, by_steps, runs = np.random.default_rng(2), 0, 0, 300
    for _ in range(runs):
        prompts, steps = rng.uniform(1.0, 3.0, 40), rng.integers(5, 200, 40).astype(float)
        found = _comparing._summed("log", steps * prompts, steps)
        covered += found.low <= 2.0 <= found.high
        by_steps += abs(found.tokens_per_step - 2.0) < 1.96 * prompts.std() / steps.sum() ** 0.5
    assert stats.binom.cdf(covered, runs, 0.95) > FALSE_ALARM
    assert stats.binom.cdf(by_steps, runs, 0.95) < FALSE_ALARM  # as if the steps of a prompt were not alike


def test_a_fall_that_could_be_shown_is_shown_and_more_so_in_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(_comparing, "EXCHANGES", 399)
    rng, shown, detectable = np.random.default_rng(3), {"by id": 0, "": 0}, {"by id": 0.0, "": 0.0}
    for _ in range(40):
        prompts, order = rng.normal(0, 0.15, 40), rng.permutation(40)
        log(tmp_path, "old", rng, prompts, 0.65, [*range(40)])
        log(tmp_path, "new", rng, prompts[order], 0.58, order.tolist())
        log(tmp_path, "fewer", rng, prompts[:39], 0.58)
        for name in ("new", "fewer"):
            found = compare_acceptance(tmp_path / "old", tmp_path / name, false_alarm=0.05)
            shown[found.paired] += found.verdict == "fall"
            detectable[found.paired] += found.detectable / 40
    assert shown["by id"] >= 36 > 25 > shown[""]
    assert detectable["by id"] < 0.2 < detectable[""]


def test_the_command_says_what_changed_and_what_could_have(tmp_path):
    rng = np.random.default_rng(4)
    prompts = rng.normal(0, 0.1, 80)
    for name, alpha, count in (("old", 0.7, 80), ("same", 0.7, 80), ("worse", 0.6, 80), ("few", 0.6, 3)):
        log(tmp_path, name, rng, prompts[:count], alpha)
    text = says("no change is shown", "compare-acceptance", "old", "same", cwd=tmp_path)
    said = r"requests paired by order; a change of 0\.\d+ is shown with probability 0.9, at a false-alarm rate of 0.01"
    assert re.search(said, text)
    says("a fall is shown: -0.", "compare-acceptance", "old", "worse", code=1, cwd=tmp_path)
    says("a rise is shown: +0.", "compare-acceptance", "worse", "old", cwd=tmp_path)
    says("inconclusive: too few", "compare-acceptance", "few", "few", code=3, cwd=tmp_path)
    alone = json.loads(run("compare-acceptance", "old", "--json", cwd=tmp_path).out)
    (one,) = alone["logs"]
    assert one["low"] < one["tokens_per_step"] < one["high"]
    assert (alone["verdict"], alone["change"]) == ("", None)
    (tmp_path / "metrics").write_text("vllm:spec_decode_num_drafts_total 9\n")
    says("has the counters of a server", "compare-acceptance", "old", "metrics", code=2, cwd=tmp_path)
    write_log(tmp_path / "wrong", [{"acceptance_histogram": [5, 5], "num_spec_steps": 9}])
    says("9 steps, and 10 in the histogram", "compare-acceptance", "old", "wrong", code=2, cwd=tmp_path)


def test_counts_of_requests_do_where_there_is_no_histogram(tmp_path):
    for name, more in (("old", 30), ("new", 10)):
        rows = [{"spec_verify_ct": 20 + i, "spec_accept_token_num": more + i} for i in range(40)]
        write_log(tmp_path / name, [{"meta_info": row} for row in rows])
    found = compare_acceptance(tmp_path / "old", tmp_path / "new")
    assert (found.verdict, found.logs[0].steps) == ("fall", sum(range(20, 60)))
    assert found.logs[0].tokens_per_step == pytest.approx(sum(range(50, 130, 2)) / sum(range(20, 60)))
    write_log(tmp_path / "lacks", [{"meta_info": {"spec_verify_ct": 5, "spec_accept_length": 2.5}}])
    lacks = "neither a histogram of accepted lengths nor counts of steps and accepted tokens"
    says(lacks, "compare-acceptance", "lacks", code=2, cwd=tmp_path)


def test_standard_input_is_read_once(monkeypatch):
    lines = b'{"acceptance_histogram": [1, 2, 3]}\n' * 3
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    (log,) = compare_acceptance("-").logs
    assert (log.requests, log.steps, log.tokens_per_step) == (3, 18, pytest.approx(14 / 6))
