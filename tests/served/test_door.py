"""What people have: lines, responses and counters of engines, each answered by one command."""

import io
import json
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from cases import data
from commands import lacking, on_screen, run

from specsim import check_metrics, read_acceptance

TEN = "0.600, 0.385, 0.215, 0.108, 0.062" + ", 0.000" * 10
VLLM = (
    "SpecDecoding metrics: Mean acceptance length: 2.37, Accepted throughput: 8.90 tokens/s, Drafted throughput: "
    "97.50 tokens/s, Accepted: 89 tokens, Drafted: 975 tokens, Per-position acceptance rate: "
    f"{TEN}, Avg Draft acceptance rate: 9.1%"
)
SHORT = (
    "SpecDecoding metrics: Mean acceptance length: 2.77, Accepted: 626 tokens, Drafted: 1062 tokens, "
    "Per-position acceptance rate: 0.802, 0.551, 0.415, Avg Draft acceptance rate: 58.9%"
)
V0 = (
    "Speculative metrics: Draft acceptance rate: {}, System efficiency: 0.598, Number of speculative tokens: 3, "
    "Number of accepted tokens: {}, Number of draft tokens: {}, Number of emitted tokens: {}."
)
LLAMA = "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)\n"
SUMS = """statistics ngram_simple: #calls = 15, #gen drafts = 5, #acc drafts = 5, #gen tokens = {}, #acc tokens = 73
statistics draft: #calls = 10, #gen drafts = 10, #acc drafts = 10, #gen tokens = 110, #acc tokens = 98, dur(b,g,a) = 0.1 ms
"""
NEW = "draft acceptance = 0.66237 (  257 accepted /   388 generated), mean {} =  3.65{}"
RATES = ", acceptance rate per position = (0.804, 0.701, 0.629, 0.515)"
LMS = {
    "totalDraftTokensCount": 100, "acceptedDraftTokensCount": 60, "rejectedDraftTokensCount": 25,
    "ignoredDraftTokensCount": 15,
}  # fmt: skip
SHIFTED = {"completion_tokens": 111, "spec_verify_ct": 30, "spec_correct_drafts_histogram": [2, 4, 24, 0]}
TRT = {
    "numDraftTokens": 24,
    "numAcceptedTokens": 12,
    "numRequestsWithDraftTokens": 8,
    "acceptanceLength": 2.5,
}
IDLE = dict.fromkeys(TRT, 0)
AIPERF = {
    "spec_decode_acceptance_length": {"unit": "ratio", "avg": 3.1}, "total_spec_decode_steps": {"avg": 16},
    "total_accepted_draft_tokens": {"avg": 36}, "total_draft_tokens": {"avg": 64},
}  # fmt: skip
TGI = [(0, 40), (1, 60), (2, 75), (3, 90), ("+Inf", 90)]
PROMETHEUS = "".join(
    f'vllm:spec_decode_num_{name}_total{{engine="{i}",model_name="m"}} {count}.0\n'
    for i, counts in enumerate([(100, 400, 200), (300, 1200, 900)])
    for name, count in zip(("drafts", "draft_tokens", "accepted_tokens"), counts, strict=True)
)
PASSED = "".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{i}",model_name="m",position="{k}"}} {count}.0\n'
    for i, counts in enumerate([(80, 60, 40, 20), (280, 240, 200, 180)])
    for k, count in enumerate(counts)
)
#: A text: what is printed of it, and whether it is possible.
TEXTS = {
    "vllm": (VLLM, ["65 steps", "10 of 15 positions never accept", "α drafted is 0.091", "in 0.600 of"], 0),
    "vllm, broken": (SHORT.replace(", A", ",\r\nA"), ["354 steps of a server", "bonus", "147"], 0),
    "vllm, two": (f"host vllm[1]: \x1b[36m{VLLM}\x1b[0m\n{SHORT}\r\n", ["419 steps", "fewer than 5 lines are too few for an interval"], 0),
    "vllm, wrong": (SHORT.replace("2.77", "1.77"), ["accepted / steps, without the last token"], 1),
    "docker": (json.dumps({"log": SHORT + "\n"}), ["354 steps"], 0),
    "v0": (V0.format("0.642", 854, 1331, 1061) + "\n" + V0.format("0.642", 8547, 13311, 10616), ["4,437", "vllm-v0"], 0),
    "llama.cpp, old": (LLAMA + SUMS.format(187), ["12.4", "α drafted 0.575758"], 0),
    "llama.cpp, example": ("n_drafted = 260\nn_accept  = 150\naccept    = 57.692%\n", ["drafted 0.576923"], 0),
    "llama.cpp, since the start": (LLAMA + SUMS.format(960), ["llama.cpp statistics", "1,070"], 0),
    "llama.cpp, new": ("[54447] 4.27 I slot | " + NEW.format("acceptance length", RATES), ["97 steps", "50"], 0),
    "llama.cpp, newest": (NEW.format("len", ""), ["steps 97", "3.64948"], 0),
    "sglang's log of two": (
        "accept len: 1.20, accept rate: 0.05\naccept len: 3.40, accept rate: 0.60\naccept len: 0.00, x",
        ["the mean of 2 lines is 2.3 tokens per step, from 1.2 to 3.4; 95% interval –"],
        0,
    ),
    "sglang, oldest": ('[{"meta_info": {"completion_tokens": 128, "spec_verify_ct": 41}}]', ["step: 3.122 = emitted"], 0),
    "sglang's log": ("[2026-10-10 17:18] Decode batch, accept len: 3.05, accept rate: 0.68, x", ["3.045 to"], 0),
    "shifted": (json.dumps({"meta_info": SHIFTED}), ["too low by one", "111 against 78 to 83", "speed-up 3.25", "no: tested"], 1),
    "shifted, counted": (json.dumps({"meta_info": SHIFTED | {"spec_accept_token_num": 82}}), ["too low by one"], 1),
    "conditional": (NEW.format("len", RATES).replace("0.701, 0.629, 0.515", "0.872, 0.897, 0.820"), ["tested the position", "what limits"], 1),
    "lm studio": (json.dumps({"stats": LMS}), ["= 60 accepted + 25 rejected + 15 ignored", "0.7059"], 0),
    "lm studio, wrong": (json.dumps(LMS | {"ignoredDraftTokensCount": 10}), ["100 drafted, and 95"], 1),
    "tensorrt-llm": (json.dumps([{"specDecodingStats": one} for one in (TRT, IDLE)]), ["2.5", "tensorrt-llm"], 0),
    "aiperf": (json.dumps(AIPERF), ["a mean of requests' means", "definitions of other"], 1),
    "means": (
        "".join(f'{{"mean_acceptance_length": 2.{i}}}\n' for i in range(1, 6)),
        ["the mean of 5 requests is 2.3 tokens per step, from 2.1 to 2.5; 95% interval 2.1037 – 2.4963"],
        0,
    ),
    "per token": ('{"avg_decoded_tokens_per_iter": 2.5}', ["tensorrt-llm", "2.45 to 2.55"], 0),
    "turns": (
        '{"choices": [{"decoding_steps": [2, 1], "new_tokens": [4, 4], "accept_lengths": [3, 1, 4]}]}',
        ["3 steps of 1 request", "2.66667"],
        0,
    ),
    "turns, last steps": ('{"idxs": [20, 9], "new_tokens": [50, 25]}', ["tokens per step: 2.419 = emitted"], 0),
    "evaluation": ('{"doc_id": 0, "accept_lengths": [3, 1, 4]}\n' * 2, ["6 steps of 2 requests", "2.66667"], 0),
    "engines": (PROMETHEUS, ['engine="0"', 'engine="1"', "3.75"], 0),
    "engines, by position": (PROMETHEUS + PASSED, ["2 more rows: --verbose"], 0),
    "engines, one wrong": (
        PROMETHEUS.replace("200.0", "450.0"),
        ['engine="0": impossible: accepted ≤ drafted fails, 450 against 400'],
        1,
    ),
    "engines, one falling": (
        PROMETHEUS + PASSED.replace("60.0", "90.0"), ['impossible: engine="0": ', "a position is accepted"], 1
    ),
    "ranks": ("".join(f'sglang:spec_accept_length{{dp_rank="{i}"}} {i}.4\n' for i in (2, 3)), ["3.4"], 0),
    "tgi": (
        "tgi_request_skipped_tokens_count 90\n"
        + "".join(f'tgi_request_skipped_tokens_bucket{{le="{k}"}} {n}\n' for k, n in TGI),
        ["90 steps", "0.5556"],
        0,
    ),
    "trtllm": (
        "".join(f'trtllm_spec_decode_drafted_tokens_total{{token_position="{i}"}} 30\n' for i in (0, 1))
        + 'trtllm_spec_decode_accepted_tokens_total{token_position="0"} 12\n',
        ["30 steps", "definitions of tensorrt-llm"],
        0,
    ),
}  # fmt: skip
#: Numbers: what is printed of them, and whether they are possible.
NUMBERS = data(__file__)["numbers"]


@pytest.mark.parametrize(("tpot", "code"), [(10, 0), (30, 1)])
def test_the_times_of_texts_are_compared(tpot, code):
    found = check_metrics(requests=10, emitted=650, ttft=20, latency=660, tpot=tpot)
    assert found.exit_code == code
    assert ("(latency − TTFT) / TPOT fails" in str(found)) == (code == 1)


@pytest.mark.parametrize("name", TEXTS)
def test_what_engines_write_is_read_and_answered(name, monkeypatch):
    text, said, code = TEXTS[name]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))
    ran = run("check-metrics", *([] if name == "vllm" else ["-"]))
    assert (ran.code, lacking(said, ran.out)) == (code, []), ran
    assert ("impossible: " if code else "possible: ") in ran.out.partition("\n")[0], ran
    assert on_screen(ran.out) <= 25, ran.out


@pytest.mark.parametrize("name", ["engines", "shifted", "vllm, wrong", "lm studio, wrong"])
def test_continuous_integration_gets_a_case_a_statement(name, tmp_path):
    text, _, code = TEXTS[name]
    (tmp_path / "log").write_text(text)
    assert run("check-metrics", tmp_path / "log", "-o", tmp_path / "metrics.xml").code == code
    suite = ElementTree.parse(tmp_path / "metrics.xml").getroot()
    told = json.loads(run("check-metrics", tmp_path / "log", "--json").out)
    checks = [one for check in (told["check"], *told["series"].values()) for one in check["checks"]]
    names = [one.get("name").split(": ")[-1] for one in suite.iter("testcase")]
    assert names == [*(one["statement"] for one in checks), "requests"]
    failed = sum(not one["holds"] for one in checks) + bool(told["acceptance"]["contradicting"])
    assert (int(suite.get("failures")), failed > 0) == (failed, code == 1)


@pytest.mark.parametrize("line", NUMBERS)
def test_numbers_are_answered(line):
    said, code = NUMBERS[line]
    ran = run("check-metrics", *line.split(), "-v")
    assert (ran.code, lacking(said, ran.out)) == (code, []), ran


def test_files_and_lines_are_added_up(tmp_path):
    (tmp_path / "a.log").write_bytes(SHORT.encode("utf-16"))  # as PowerShell writes
    found = read_acceptance(tmp_path / "a.log", VLLM)
    assert [one.numbers["accepted"] for one in found.series] == [626, 89]
    assert (found.numbers["accepted"], found.numbers["steps"], found.numbers["gamma"]) == (715, 419, 15)


def test_a_line_of_many_steps_leaves_a_range():
    line = SHORT.replace("626", "626000").replace("1062", "1062000")
    found = read_acceptance(line + "\n" + line)
    assert found.numbers["steps"].low == 708_000 < found.numbers["steps"].high
    assert (sum(found.lengths), found.likely) == (708_000, True)
    assert check_metrics(engine="vllm", **found.numbers).possible


@pytest.mark.parametrize(
    "text", ["SpecDecoding metrics: Mean acceptance length: 9", VLLM.replace("89", "9" * 30)]
)
def test_hostile_lines_are_named(text, tmp_path):
    (tmp_path / "log").write_text("x" * 10**6 + "\n" + text + " 1" * 10**5)
    assert run("check-metrics", tmp_path / "log").code in (0, 2)
