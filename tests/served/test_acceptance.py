"""Accepted lengths as engines log them: counts come out, intervals cover, and what cannot be is named."""

import json
import math

import numpy as np
import pytest
from cases import cases
from commands import run, says
from served import write_log

from specsim import check_metrics, read_acceptance
from specsim.served._acceptance import _interval

#: vllm-project/vllm#48915 and sgl-project/sglang#33518, as they were posted.
VLLM = {
    "mean_acceptance_length": 1.2325581395348837, "draft_acceptance_rate": 0.07751937984496124,
    "acceptance_histogram": [39, 1, 0, 3], "num_spec_steps": 43, "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129, "num_spec_tokens": 3,
}  # fmt: skip
SGLANG = {
    "spec_accept_rate": 0.2930232558139535, "spec_accept_length": 2.4651162790697674,
    "spec_num_correct_drafts": 63, "spec_num_proposed_drafts": 215, "spec_verify_ct": 43,
    "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3], "completion_tokens": 106,
}  # fmt: skip
AIPERF = VLLM | {"engine": "vllm", "acceptance_histogram": {"0": 39, "1": 1, "3": 3}, "completion_tokens": 54}
METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 3.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 129.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 3.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
"""
GAUGES = 'sglang:spec_accept_length{tp_rank="0"} 2.47\nsglang:spec_accept_rate{tp_rank="0"} 0.293\n'


def counts(found):
    return [(one.tested, one.accepted) for one in found.positions]


@pytest.mark.parametrize(
    ("record", "engine", "emitted"),
    [
        ({"choices": [], "metrics": {"speculative_decoding": VLLM}}, "vllm", None),
        ({"metadata": {}, "spec_decode_acceptance": AIPERF}, "vllm", 54),
        ([{"choices": [{"speculative_decoding": VLLM | {"engine": []}}]}], "vllm", None),
        ({"text": "", "meta_info": SGLANG | {"spec_accept_histogram": [11, 14, 11, 4, 0, 3]}}, "sglang", 106),
        ({"choices": [{"sglext": {"spec": SGLANG}}]}, "sglang", 106),
    ],
)
def test_histograms_of_requests(record, engine, emitted, tmp_path):
    found = read_acceptance(write_log(tmp_path / "log.jsonl", [record] * 2))
    assert (found.engine, found.requests, found.exit_code) == (engine, 2, 0)
    if engine == "vllm":
        assert counts(found) == [(86, 8), (8, 6), (6, 6)]
        assert (found.gamma, found.numbers["drafted"]) == (3, 258)
    else:
        assert counts(found)[0] == (86, 64)
        assert (found.gamma, found.numbers["drafted"]) == (5, 430)
    assert found.numbers.get("emitted") == (None if emitted is None else 2 * emitted)
    assert check_metrics(engine=engine, **found.numbers).possible


def test_a_document_and_a_folder(tmp_path):
    document = tmp_path / "run.json"
    document.write_text(json.dumps({"requests": [{"metrics": VLLM}] * 3}, indent=2))
    assert read_acceptance(document).requests == 3
    for i in range(2):
        write_log(tmp_path / f"{i}.jsonl", [{"metrics": VLLM}])
    assert read_acceptance(tmp_path).requests == 2


def test_counters_of_a_server(tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(METRICS)
    found = read_acceptance(path)
    assert (found.engine, found.requests, found.gamma) == ("vllm", 0, 3)
    assert found.lengths == (39, 1, 0, 3)
    assert check_metrics(engine="vllm", **found.numbers).possible
    path.write_text(GAUGES)
    found = read_acceptance(path)
    assert (found.engine, found.positions) == ("sglang", ())
    assert found.numbers == {"tokens_per_step": "2.47", "acceptance_rate": "0.293"}
    path.write_text(GAUGES + 'sglang:spec_accept_rate{tp_rank="1"} 0.5\n')
    assert read_acceptance(path).numbers == {"tokens_per_step": "2.47"}
    path.write_text(METRICS.split("vllm:spec_decode_num_accepted_tokens_per_pos")[0])
    assert read_acceptance(path).numbers == {"steps": 43, "drafted": 129, "accepted": 10}


def test_lines_of_prometheus_with_timestamps_and_odd_labels(tmp_path):
    path = tmp_path / "metrics.txt"
    stamped = METRICS.replace(".0\n", ".0 1700000000000\n").replace('"m"', '"a} 9,position=\\"7\\""')
    path.write_text("\ufeff# a comment\n" + stamped + "up{ 1\n")
    assert read_acceptance(path).lengths == (39, 1, 0, 3)


NO_SERIES = ["{ 1", '{a="1} 1', " ", " one", " 1 1e400x", " 1 " + "9" * 400, f'{{a="{"x" * 20_000}"}} 1']
NO_COUNT = [" -1", " 0.5", " nan", " 1e400", " " + "9" * 4000]


@pytest.mark.parametrize("line", NO_SERIES + NO_COUNT)
def test_a_line_that_is_not_of_prometheus_or_no_count_is_named(line, tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(METRICS + f"vllm:spec_decode_num_drafts_total{line}\n")
    said = "'vllm:spec_d.* is not a series of Prometheus" if line in NO_SERIES else ".* is not a count"
    with pytest.raises(ValueError, match=rf"metrics\.txt:11: {said}"):
        read_acceptance(path)


def test_intervals_cover_where_requests_differ():
    """Requests of 20 steps, with an α of their own; the exact interval of all steps alone is too narrow."""
    rng, covered, runs = np.random.default_rng(1), [0, 0], 400
    for _ in range(runs):
        tested = np.full(60, 20.0)
        accepted = rng.binomial(20, rng.beta(3, 1, 60)).astype(float)
        apart = tested, accepted
        for i, parts in enumerate((apart, [counts.sum(keepdims=True) for counts in apart])):
            low, high = _interval(*parts)
            covered[i] += low <= 0.75 <= high
    assert covered[0] > 0.91 * runs > 0.85 * runs > covered[1]


def test_intervals_of_few_and_of_all():
    assert _interval(np.array([10.0]), np.array([10.0])) == pytest.approx((0.025 ** (1 / 10), 1.0))
    assert _interval(np.array([10.0]), np.array([0.0])) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))


@pytest.mark.parametrize(*cases(__file__, "contradictions"))
def test_a_request_that_contradicts_itself_is_named(change, why, tmp_path):
    path = write_log(tmp_path / "log.jsonl", [VLLM, VLLM | change])
    found = read_acceptance(path)
    assert (found.contradicting, found.exit_code, found.positions, found.numbers) == (1, 1, (), {})
    assert found.contradictions[0].startswith(f"{path}:2: ")
    assert why in found.contradictions[0]
    ran = run("check-metrics", path)
    assert ran.code == 1
    assert ran.out.startswith("impossible: ")
    assert "(such requests: 1 of 2)" in ran.out


def test_counters_that_cannot_be_true(tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(METRICS.replace('position="2"} 3.0', 'position="2"} 4.0'))
    assert "more often than the one before" in read_acceptance(path).contradictions[0]


@pytest.mark.parametrize(
    "record",
    [
        VLLM | {"acceptance_histogram": "many"}, VLLM | {"acceptance_histogram": [1, -1]},
        VLLM | {"acceptance_histogram": [1, 0.5]}, VLLM | {"acceptance_histogram": [1, True]},
        VLLM | {"acceptance_histogram": {"first": 1}}, VLLM | {"acceptance_histogram": {"9999": 1}},
        VLLM | {"acceptance_histogram": [1] * 1000}, VLLM | {"num_spec_steps": 10**30},
        VLLM | {"draft_acceptance_rate": math.nan}, VLLM | {"mean_acceptance_length": "\x1b[2J"},
    ],
)  # fmt: skip
def test_lines_that_cannot_be_read_are_named(record, tmp_path):
    path = write_log(tmp_path / "log.jsonl", [record, VLLM])
    found = read_acceptance(path)
    assert (found.requests, len(found.unreadable)) == (1, 1)
    assert found.unreadable[0].isprintable()
    assert f"{path}:1: " in found.unreadable[0]


def test_the_command_leaves_out_lines_that_cannot_be_read(tmp_path):
    path = write_log(tmp_path / "log.jsonl", [VLLM | {"acceptance_histogram": "many"}, VLLM])
    assert run("check-metrics", path).code == 0


@pytest.mark.parametrize(
    "text", ["", "{}\n", "[" * 5000, "no metrics\n", "{\n", METRICS.replace("40.0", "-1")]
)
def test_files_without_accepted_lengths_are_refused(text, tmp_path):
    for name in ("log.jsonl", "log.json", "metrics.txt"):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ValueError, match=str(path)):
            read_acceptance(path)
    ran = run("check-metrics", path)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none")):
        read_acceptance(tmp_path / "none")


def test_the_command_prints_positions_and_statements(tmp_path):
    path = write_log(tmp_path / "log.jsonl", [VLLM, VLLM])
    said = says("86 steps of 2 requests, γ 3, definitions of vllm", "check-metrics", path)
    assert "possible: " in said
    document = json.loads(run("check-metrics", path, "--json").out)
    assert document["acceptance"]["lengths"] == [78, 2, 0, 6]
    assert document["check"]["possible"]
    said = says("emitted", "check-metrics", path, "--emitted", "50", code=1)  # a number that is given besides
    assert "impossible: emitted" in said


def test_the_result_as_a_table(tmp_path):
    found = read_acceptance(write_log(tmp_path / "log.jsonl", [VLLM]))
    assert found.to_arrow().column("tested").to_pylist() == [43, 4, 3]
    assert all(one.interval[0] <= one.alpha <= one.interval[1] for one in found.positions)
