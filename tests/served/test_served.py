"""Logs of served responses: right ones pass in every format, wrong ones are found, hostile ones named."""

import itertools
import json
import math
import os
from itertools import pairwise

import numpy as np
import pytest
from cases import cases
from commands import run, says
from conftest import FALSE_ALARM
from hypothesis import given
from hypothesis import strategies as st
from served import FORMATS, Served, choose, completion, log_lines, target_rows, write_log

import specsim
from specsim.core import _json
from specsim.core._verdicts import Finding
from specsim.core.stats import chi_square, log_e_value
from specsim.models import TableModel
from specsim.served._logs.counting import _level, _name
from specsim.served._logs.result import BINS, LEVEL, POSITIONS, RARE

UNIFORM = np.full(BINS, 1 / BINS)
NAMES = [f"t{i}" for i in range(40)]


def audit(tmp_path, lines, **options):
    return specsim.audit_served(write_log(tmp_path / "served.jsonl", lines), **{"rng": 0} | options)


def answer(tokens, rows, *, k=12, request=None, finish="length", **more):
    """A line with one completion of `tokens` from `rows` [n, V]."""
    own = [float(np.log(row[x])) for x, row in zip(tokens, rows, strict=True)]
    logprobs = completion([int(x) for x in tokens], own, np.log(rows), k)
    choice = {"logprobs": logprobs, "finish_reason": finish, "index": 0}
    asked = {"temperature": 1, "logprobs": k} if request is None else request
    return {"request": asked, "choices": [choice], **more}


def drawn(count, seed=0, **more):
    """The same, drawn from random rows."""
    rng = np.random.default_rng(seed)
    rows = target_rows(rng, count)
    return answer(choose(rows, rng), rows, **more)


# --- right logs, and wrong ones -----------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_right_logs_pass_in_every_format_with_lists_of_any_length(format, full, tmp_path):
    """The bins of all logs together are uniform, and no log alone is called wrong."""
    counts = np.zeros(BINS, dtype=np.int64)
    for seed, k in itertools.product(range(3 if full else 1), (3, 5, 40) if full else (3, 40)):
        found = audit(tmp_path, log_lines(Served(seed=100 + seed, texts=10, length=30), format, k), rng=seed)
        assert (found.verdict, found.findings, found.places) == ("inconclusive", (), 300)
        assert not found.untested
        counts += np.array(found.tables[0].counts)
    assert chi_square(counts, UNIFORM).p_value > FALSE_ALARM


def test_formats_with_the_same_lists_give_the_same_counts(tmp_path):
    served, names = Served(texts=2), ("completions", "vllm ids", "sglang", "llama.cpp")
    found = [audit(tmp_path, log_lines(served, name)) for name in names]
    assert all(one.tables == found[0].tables and one.rare == found[0].rare for one in found)
    chats = [audit(tmp_path, log_lines(served, name)) for name in ("chat", "vllm chat")]
    assert chats[0].tables == chats[1].tables


def test_formats_may_be_mixed_line_by_line(tmp_path):
    served = Served(texts=len(FORMATS), length=20)
    mixed = [FORMATS[name](*text, 12) for name, text in zip(FORMATS, served, strict=True)]
    assert audit(tmp_path, mixed).places == 20 * len(FORMATS)
    batch = [{"meta_info": line["meta_info"], "temperature": 1} for line in log_lines(served, "sglang")]
    assert audit(tmp_path, [batch]).texts == len(FORMATS)


#: What is served, places that reject it, and the kind of the finding.
WRONG = [
    ("draft", 3000, "deviation"),
    pytest.param("cold", 15000, "deviation", marks=pytest.mark.slow),
    ("greedy bonus", 3000, "deviation"),
    ("shifted", 1500, "deviation"),
    ("zeros", 300, "log-probabilities"),
]


@pytest.mark.parametrize(("how", "places", "kind"), WRONG)
def test_wrong_logs_are_rejected(how, places, kind, full, tmp_path):
    """With lists of 5 tokens; in all of 5 logs at full scale."""
    for seed in range(5 if full else 1):
        found = audit(tmp_path, log_lines(Served(texts=places // 60, seed=seed, how=how), "sglang", 5))
        assert found.verdict == ("broken" if kind == "log-probabilities" else "biased")
        assert {one.kind for one in found.findings} == {kind}
        assert found.exit_code == 1


@pytest.mark.parametrize(("off", "every", "sticky"), [("before", 99, 0), ("before", 4, 0), ("after", 99, 0), ("", 1, 0.5)])  # fmt: skip
def test_rows_of_the_place_beside_are_named(off, every, sticky, tmp_path):
    """At all places, or three of four; but not in texts that repeat themselves, served at another temperature:
    there the row of the next place always has the token that came."""
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.full(12, 0.5), size=12) * (1 - sticky) + sticky * np.eye(12)
    served, tokens = p ** (1.25 if sticky else 1), [0]
    served /= served.sum(axis=1, keepdims=True)
    while len(tokens) < 4001:
        tokens.append(int(rng.choice(12, p=served[tokens[-1]])))
    at = np.arange(4000) + {"before": 1, "after": -1, "": 0}[off] * (np.arange(4000) % every != every - 1)
    found = audit(tmp_path, [answer(tokens[1:], p[np.array(tokens)[np.maximum(at, 0)]], k=5)])
    assert (found.verdict, f"the place {off} it" in found.remedy()) == ("biased", bool(off))


def speculated(rule, count, seed):
    """A response of speculative decoding; as in vLLM its first token comes from the prompt's pass."""
    rng = np.random.default_rng(seed)
    p, q = (rng.dirichlet(np.ones(8), size=8) for _ in range(2))
    first = int(rng.choice(8, p=p[0]))
    how = {"max_new_tokens": count, "gamma": 3, "rule": rule, "rng": seed}
    text = specsim.generate(TableModel(p), TableModel(q), [0, first], **how)
    tokens = [first, *text.tokens]
    steps = {"per_step_accepted": [step.accepted for step in text.steps]}
    return answer(tokens, p[[0, *tokens[:-1]]], k=8, metrics={"speculative_decoding": steps})


def test_decoding_by_the_standard_rule_passes_and_lenience_does_not(tmp_path):
    right = audit(tmp_path, [speculated("standard", 1500, seed=1)])
    assert not right.findings
    assert [one.name for one in right.tables if "step" in one.name] == [
        f"position in the step {i}" for i in (1, 2, 3, 4)
    ]
    assert audit(tmp_path, [speculated("lenience:lenience=0.3", 1500, seed=1)]).verdict == "biased"


@pytest.mark.slow
def test_a_right_log_of_that_size_is_consistent(tmp_path):
    found = audit(tmp_path, log_lines(Served(texts=250), "sglang", 5))
    assert (found.verdict, found.exit_code) == ("consistent", 0)
    assert found.detectable_tv < 0.05


def test_a_deviation_called_detectable_is_detected(tmp_path):
    """Rows of 16 equal tokens, of which half come a little too often, by as much as 1 500 places detect."""
    n, rng = 1500, np.random.default_rng(1)
    rows = np.full((n, BINS), 1 / BINS) * np.linspace(1.001, 0.999, BINS)
    table = audit(tmp_path, [answer([0] * n, rows, k=BINS)]).tables[0]
    wrong = 1 / BINS + table.detectable_tv / 8 * np.where(np.arange(BINS) < 8, 1, -1)
    assert (wrong > 0).all()
    assert audit(tmp_path, [answer(rng.choice(BINS, p=wrong, size=n), rows, k=BINS)]).tables[0].rejected
    assert not audit(tmp_path, [answer(rng.choice(BINS, size=n), rows, k=BINS)]).tables[0].rejected


def test_tokens_of_equal_probability_may_be_listed_in_any_order(tmp_path):
    """vLLM lists the emitted token first, so that it would always be first of its equals."""
    rng = np.random.default_rng(2)
    rows = np.exp(np.floor(2 * np.log(target_rows(rng, 2000))) / 2)
    rows /= rows.sum(axis=1, keepdims=True)
    counts = np.array(audit(tmp_path, [answer(choose(rows, rng), rows, k=10)]).tables[0].counts)
    assert chi_square(counts, UNIFORM).p_value > FALSE_ALARM


def test_texts_of_one_token_without_the_length_of_the_lists(tmp_path):
    """Completions list k tokens, or k + 1: which, is learnt from other lines."""
    found = audit(tmp_path, [drawn(1, seed=seed, k=3, request={"temperature": 1}) for seed in range(800)])
    assert found.places == 800
    assert chi_square(found.tables[0].counts, UNIFORM).p_value > FALSE_ALARM


def test_rare_tokens_are_counted_exactly(tmp_path):
    """A token of probability 1e-5 that comes 5 times in 3 000."""
    rows = np.tile([0.7, 0.3 - 1e-5, 1e-5], (3000, 1))
    tokens = np.random.default_rng(3).choice(2, p=[0.7, 0.3], size=3000)
    right = audit(tmp_path, [answer(tokens, rows, k=3)])
    assert [one.probability for one in right.rare] == [*RARE]
    assert not right.findings
    tokens[:8] = 2
    found = audit(tmp_path, [answer(tokens, rows, k=3)])
    assert [one.emitted for one in found.rare][2] == 8
    assert found.rare[2].p_value < LEVEL
    assert found.verdict == "biased"


# --- ends of texts, steps, temperature 0 --------------------------------------------------------------------


def ended_texts(count, rng):
    """Texts that a token of probability 0.2 ends, which is not logged; some are empty."""
    for _ in range(count):
        rows = target_rows(rng, 60)
        rows[:, 0] = 0.0
        rows = 0.8 * rows / rows.sum(axis=1, keepdims=True)
        rows[:, 0] = 0.2
        tokens = choose(rows, rng)
        length = int(np.argmax(tokens == 0))
        yield tokens[:length], rows[:length]


def test_the_token_that_ends_a_text_need_not_be_logged(tmp_path):
    texts = [*ended_texts(500, np.random.default_rng(4))]
    ended = audit(tmp_path, [answer(*text, finish="stop") for text in texts])
    assert not ended.findings
    assert ended.tables[0].unseen == len(texts)
    cut = audit(tmp_path, [answer(*text, finish="length") for text in texts])  # as if no token were missing
    assert cut.verdict == "biased"


@given(st.lists(st.integers(0, 50), min_size=BINS, max_size=BINS), st.integers(1, 60), st.integers(0, 2**32 - 1))  # fmt: skip
def test_missing_tokens_are_put_where_the_evidence_is_least(counts, unseen, seed):
    filled = _level(np.array(counts), unseen)
    assert filled.sum() == sum(counts) + unseen
    assert (filled >= np.sort(counts)).all()
    rng = np.random.default_rng(seed)
    anywhere = np.array(counts) + rng.multinomial(unseen, rng.dirichlet(np.ones(BINS)))
    assert log_e_value(filled, UNIFORM) <= log_e_value(anywhere, UNIFORM) + 1e-9


def test_what_ends_a_text_may_be_logged(tmp_path):
    for token, more, unseen in (
        ("</s>", {}, 0), ("", {}, 0), ("t1", {}, 1), ("t1", {"stop_reason": "###"}, 3), ("token_id:7", {"stop_reason": 7}, 0),
    ):  # fmt: skip
        line = drawn(3, finish="stop")
        choice = line["choices"][0]
        choice.update(more)
        choice["logprobs"]["tokens"][2] = token
        choice["logprobs"]["top_logprobs"][2] |= {token: choice["logprobs"]["token_logprobs"][2]}
        assert audit(tmp_path, [line], tolerance=0.1).tables[0].unseen == unseen, token
    line = drawn(3, finish="stop", request={"temperature": 1, "stop": ["\n\n", "Question:"]})
    assert audit(tmp_path, [line]).tables[0].unseen == len("Question:")


def test_positions_in_the_step_are_tested_where_steps_are_logged(tmp_path):
    """The bonus, the fourth token of a step, is the most probable one: the table of that position says so."""
    rng, lines = np.random.default_rng(5), []
    for _ in range(40):
        accepted = rng.integers(0, 4, 30)
        rows = target_rows(rng, 1 + int((accepted + 1).sum()))
        tokens = choose(rows, rng)
        bonus = np.cumsum(accepted + 1)[accepted == 3]
        tokens[bonus] = rows[bonus].argmax(axis=1)
        metrics = {"speculative_decoding": {"per_step_accepted": accepted.tolist()}}
        lines.append(answer(tokens, rows, metrics=metrics))
    steps = {one.name: one for one in audit(tmp_path, lines).tables if "step" in one.name}
    assert [*steps] == [f"position in the step {i}" for i in range(1, 5)]
    assert sum(steps["position in the step 1"].counts) == 40 * 30
    assert [one.rejected for one in steps.values()] == [False, False, False, True]
    lines[0]["metrics"]["speculative_decoding"]["per_step_accepted"].pop()  # steps without a draft: not known
    fewer = {one.name: one for one in audit(tmp_path, lines).tables}
    assert sum(fewer["position in the step 1"].counts) == 39 * 30


def test_at_temperature_0_the_most_probable_token_comes(tmp_path):
    asked = {"generation_settings": {"temperature": 0.0, "top_k": 40}}
    served, wrong = Served(texts=2, how="greedy"), Served(texts=2)
    found = audit(tmp_path, [line | asked for line in log_lines(served, "llama.cpp")])
    assert (found.verdict, found.greedy, found.not_greedy, found.places) == ("consistent", 120, 0, 0)
    found = audit(tmp_path, [line | asked for line in log_lines(wrong, "llama.cpp")])
    assert (found.verdict, found.findings[0].kind) == ("biased", "greedy")


# --- what cannot be tested ----------------------------------------------------------------------------------


@pytest.mark.parametrize(*cases(__file__, "untestable"))
def test_a_text_that_cannot_be_tested_is_named_with_the_reason(more, why, tmp_path):
    found = audit(tmp_path, [drawn(8, **more)])
    assert found.untested == {why: (1, 8)}
    assert (found.places, found.verdict, found.exit_code) == (0, "inconclusive", 3)


@pytest.mark.parametrize(
    "neutral",
    [{"top_k": -1, "top_p": 1.0}, {"response_format": {"type": "text"}}, {"n": 2, "best_of": 2}, {"stop": None}],
)  # fmt: skip
def test_parameters_that_change_nothing_are_no_objection(neutral, tmp_path):
    assert audit(tmp_path, [drawn(8, request={"temperature": 1.0, **neutral})]).places == 8


def test_the_temperature_may_be_given_and_processed_log_probabilities_need_none(tmp_path):
    assert audit(tmp_path, [drawn(8, request={})], temperature=1).places == 8
    asked = {"temperature": 0.7, "top_p": 0.9}
    assert audit(tmp_path, [drawn(8, request=asked)], logprobs="processed").places == 8


def test_texts_without_lists_or_log_probabilities(tmp_path):
    bare = drawn(8)
    bare["choices"][0]["logprobs"] = None
    own, some = drawn(8), drawn(8)
    own["choices"][0]["logprobs"]["top_logprobs"] = None
    some["choices"][0]["logprobs"]["top_logprobs"][3] = None
    assert audit(tmp_path, [bare, own, some, drawn(8, k=1)]).untested == {
        "no log-probabilities": (1, 0),
        "no lists of the most probable tokens": (1, 8),
        "lists at some places only": (1, 8),
        "lists too short, or with tokens that read alike": (0, 8),
    }


def test_texts_that_are_not_independent_count_once(tmp_path):
    """Of a seed, and of a response that was logged twice."""
    seeded = [drawn(8, seed=i, request={"temperature": 1, "seed": 7}) for i in range(3)]
    random = [drawn(8, seed=i, request={"temperature": 1, "seed": -1}) for i in range(3)]
    twice = [drawn(8, seed=9, id="cmpl-1"), drawn(8, seed=9, id="cmpl-1")]
    found = audit(tmp_path, seeded + random + twice)
    assert found.places == 8 * (1 + 3 + 1)
    assert sum(texts for texts, _ in found.untested.values()) == 3
    copied = [drawn(60, seed=10)] * 2 + [drawn(1, seed=11)] * 2  # a short text may well be drawn twice
    assert audit(tmp_path, copied).places == 60 + 1 + 1
    two = drawn(8, request={"temperature": 1, "seed": 8})
    two["choices"] *= 2
    assert audit(tmp_path, [two]).places == 16


@pytest.mark.parametrize("declared", [True, False])
def test_completions_whose_tokens_read_alike_are_left_out_from_there_on(declared, tmp_path):
    """As the keys of an object, tokens with one string have taken each other's place."""
    request = {"temperature": 1, "logprobs": 12} if declared else {"temperature": 1}
    lines = [drawn(8, seed=i, request=request) for i in range(3)]
    logprobs = lines[1]["choices"][0]["logprobs"]
    place = next(i for i, top in enumerate(logprobs["top_logprobs"]) if len(top) == 12)
    own = logprobs["tokens"][place]
    del logprobs["top_logprobs"][place][next(x for x in logprobs["top_logprobs"][place] if x != own)]
    found = audit(tmp_path, lines)
    assert (found.places, [*found.untested.values()]) == (8, [(2, 16)])
    assert not found.wrong


def test_tokens_that_read_alike_are_told_apart_by_their_log_probabilities(tmp_path):
    rng, p = np.random.default_rng(6), [0.5, 0.2, 0.15, 0.1, 0.05]
    names = ["a", "b", "a", "c", "a"]
    top = [{"token": name, "logprob": math.log(value)} for name, value in zip(names, p, strict=True)]
    content = [{**top[x], "top_logprobs": top[:4]} for x in rng.choice(5, p=p, size=2000)]
    line = {"temperature": 1, "choices": [{"logprobs": {"content": content}, "finish_reason": "length"}]}
    found = audit(tmp_path, [line])
    assert (found.places, found.findings) == (2000, ())
    assert chi_square(found.tables[0].counts, UNIFORM).p_value > FALSE_ALARM


def test_strings_alone_are_left_out_where_they_may_be_those_of_several_tokens(tmp_path):
    probs = [{"tok_str": name, "prob": p} for name, p in (("\ufffd", 0.5), ("b", 0.3), ("c", 0.2))]
    lists = probs, [*probs[1:], probs[0] | {"prob": 0.1}]
    entries = [{"content": "b", "probs": listed} for listed in lists]
    line = {"completion_probabilities": entries, "stop_type": "limit", "generation_settings": {"temperature": 1}}  # fmt: skip
    found = audit(tmp_path, [line])
    assert (found.places, [*found.untested.values()]) == (1, [(0, 1)])


# --- log-probabilities that contradict themselves -------------------------------------------------------------


def changed(change, count=20):
    line = drawn(count)
    change(line["choices"][0]["logprobs"])
    return line


def put(name, place, value):
    return lambda logprobs: logprobs[name].__setitem__(place, value)


def bare_zeros(logprobs):
    logprobs["top_logprobs"] = None
    logprobs["token_logprobs"] = [0.0] * len(logprobs["tokens"])


def zeros_in_lists(logprobs):
    logprobs["token_logprobs"] = [0.0] * 20
    logprobs["top_logprobs"] = [{token: 0.0} for token in logprobs["tokens"]]


def zeros_of_accepted(logprobs):
    for i in range(1, 20, 2):
        logprobs["top_logprobs"][i], logprobs["token_logprobs"][i] = {}, 0.0


@pytest.mark.parametrize("always", [False, True])
def test_lists_of_sglang_may_have_the_emitted_token_appended(always, tmp_path):
    lines = log_lines(Served(texts=150), "sglang", 2)
    for info in (line["meta_info"] for line in lines):
        for own, top in zip(info["output_token_logprobs"], info["output_top_logprobs"], strict=True):
            if always or own[1] not in [token for _, token, *_ in top]:
                top.append([*own])
    assert audit(tmp_path, lines).verdict == "inconclusive"  # and not biased


@pytest.mark.parametrize(
    ("change", "what", "places"),
    [
        (put("token_logprobs", 3, math.nan), "not a number", 1),
        (put("token_logprobs", 3, 0.5), "positive", 1),
        (put("token_logprobs", 3, math.inf), "positive", 1),
        (put("token_logprobs", 3, -0.001), "a list with more mass than 1", 1),
        (put("top_logprobs", 3, {"a": -0.1, "b": -0.2}), "a list with more mass than 1", 1),
        (put("top_logprobs", 3, {"a": -2.0, "b": -9.0}), "above those of the list, which lacks the token", 1),
        (bare_zeros, "0.0 at every place of a text", 20),
        (zeros_in_lists, "0.0 at every place of a text", 20),
        (zeros_of_accepted, "0.0, and no list, where other places have one", 10),
    ],
)
def test_contradictions_are_findings(change, what, places, tmp_path):
    line = changed(change)
    if what.startswith("above"):
        line["choices"][0]["logprobs"]["token_logprobs"][3] = -4.0
    found = audit(tmp_path, [line])
    assert [(one.what, one.places) for one in found.wrong] == [(what, places)]
    assert (found.verdict, found.exit_code) == ("broken", 1)
    assert found.wrong[0].first.endswith("served.jsonl:1")


def test_the_same_contradictions_are_within_a_tolerance(tmp_path):
    """Log-probabilities of two decimals."""
    line = drawn(300)
    logprobs = line["choices"][0]["logprobs"]
    logprobs["top_logprobs"] = [{x: round(y, 2) for x, y in top.items()} for top in logprobs["top_logprobs"]]
    logprobs["token_logprobs"] = [round(y, 2) for y in logprobs["token_logprobs"]]
    logprobs["top_logprobs"][0] = {"a": -0.69, "b": -0.69, "c": -5.0}
    logprobs["tokens"][0], logprobs["token_logprobs"][0] = "a", -0.69
    assert audit(tmp_path, [line]).verdict == "broken"
    assert not audit(tmp_path, [line], tolerance=0.02).findings


def test_an_id_that_the_list_has_with_another_log_probability(tmp_path):
    line = log_lines(Served(texts=1), "sglang")[0]
    line["meta_info"]["output_token_logprobs"][3][0] -= 0.01
    (wrong,) = audit(tmp_path, [line]).wrong
    assert wrong.what == "another one than the list has for the token"


@pytest.mark.parametrize("never", [-9999.0, -math.inf])
def test_an_impossible_token_is_a_finding(never, tmp_path):
    line = drawn(20)
    logprobs = line["choices"][0]["logprobs"]
    logprobs["tokens"][3], logprobs["token_logprobs"][3] = "never", never
    logprobs["top_logprobs"][3]["never"] = never
    found = audit(tmp_path, [line])
    assert found.findings[0] == Finding("support", "1 emitted tokens have probability 0")
    assert found.verdict == "biased"


# --- hostile input --------------------------------------------------------------------------------------------

GOOD = json.dumps(drawn(4))


def one_place(**logprobs):
    found = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0, "b": -1.0}]} | logprobs
    return json.dumps({"choices": [{"logprobs": found, "finish_reason": "length"}], "temperature": 1})


HOSTILE = [
    (GOOD[: len(GOOD) // 2], "not JSON"),
    ("[" * 100_000, "nested too deeply"),
    ('{"temperature": 1, "choices": [], "temperature": 0}', "the key 'temperature' is in an object twice"),
    ('{"response": ' * 5000 + "1" + "}" * 5000, ""),
    ('{"x": "\udcff"}', "not UTF-8"),
    ('{"choices": ' + "9" * 5000 + "}", "too many digits"),
    (one_place(token_logprobs=[10**400]), "too many digits"),
    (one_place(token_logprobs=["-1.0"]), "not a number"),
    (one_place(token_logprobs=[True]), "not a number"),
    (one_place(token_logprobs=[]), "1 tokens, 0 token_logprobs"),
    (one_place(top_logprobs=[{"a": None}]), "is None, not a number"),
    (one_place(top_logprobs=[["a"]]), "field of another kind"),
    (one_place(tokens=[7]), "not a string"),
    (one_place(tokens="a"), ""),
    ('{"choices": 7}', "field of another kind"),
    ('{"choices": [7]}', "field of another kind"),
    ('{"choices": [{"finish_reason": ["stop"]}]}', "not a string"),
    ('{"choices": [{"logprobs": {"content": [{"token": "a", "bytes": 1000000000000}]}}]}', "lacks the field 'logprob'"),
    ('{"meta_info": {"output_token_logprobs": [[-1, "a"]]}}', "not an integer"),
    ('{"meta_info": {"output_token_logprobs": [[-1]]}}', "field of another kind"),
    ('{"completion_probabilities": [{"token": "a", "prob": "0.5"}]}', "not a number"),
    ('{"temperature": "hot", "choices": [{}]}', "temperature"),
    ('{"temperature": NaN, "choices": [{}]}', "temperature"),
    ('"text"', ""), ("7", ""), ("null", ""), ("[]", None), ("{}", "has none of the fields"),
    ('{"error": {"message": "\\u001b[2J<script>"}}', "has none of the fields"),
    ('{"choices": [{"logprobs": {"tokens": ["\\ud800"], "token_logprobs": ["\\ud800"]}}]}', "not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "why"), HOSTILE)
def test_a_line_that_cannot_be_read_is_named_and_the_rest_is_tested(line, why, tmp_path):
    path = tmp_path / "served.jsonl"
    path.write_bytes(b"\n" + line.encode("utf-8", "surrogateescape") + b"\n" + GOOD.encode())
    found = specsim.audit_served(path, rng=0)
    if found.unreadable:
        assert found.named[0].startswith(f"{path}:2: ")
        assert (why or "") in found.named[0]
        assert found.named[0].isprintable()
    else:
        assert why in ("", None)
    assert found.places >= 4


def test_the_command_reads_on_after_lines_that_cannot_be_read(tmp_path):
    path = tmp_path / "served.jsonl"
    lines = [*(line for line, _ in HOSTILE), GOOD]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    ran = run("trace", "audit", path)
    assert (ran.code, ran.err) == (3, "")


#: What a field may have instead of what belongs there.
STRANGE = [
    None, True, [], {}, "", "\ud800", -1, 1e308, math.nan, math.inf, 10**400, 10**20, [[]], "token_id:x",
    ["a"],
]  # fmt: skip


def places_of(value, path=()):
    """The path of every value inside a document."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from places_of(inner, (*path, key))


def test_whatever_stands_in_a_field_the_line_is_read_or_named(full, tmp_path):
    rng, text = np.random.default_rng(8), next(iter(Served(texts=1, length=3)))
    for format in FORMATS:
        lines = []
        for _ in range(400 if full else 40):
            line = json.loads(json.dumps(FORMATS[format](*text, 4)))
            line["metrics"] = {"speculative_decoding": {"per_step_accepted": [1, 0]}}
            *path, last = list(places_of(line))[rng.integers(1, len(list(places_of(line))))]
            inside = line
            for key in path:
                inside = inside[key]
            inside[last] = STRANGE[rng.integers(len(STRANGE))]
            lines.append(line)
        found = audit(tmp_path, lines)
        assert json.dumps(found.to_dict(), allow_nan=False)
        assert all(name.isprintable() for name in found.named)


def test_only_some_unreadable_lines_are_named(tmp_path):
    path = tmp_path / "served.jsonl"
    path.write_text("{\n" * 100 + GOOD)
    found = specsim.audit_served(path, rng=0)
    assert (found.unreadable, len(found.named)) == (100, 5)


def test_a_line_that_is_too_long_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(_json, "LONGEST", 1000)
    path = tmp_path / "served.jsonl"
    path.write_text(f"{json.dumps('x' * 5000)}\n{one_place()}\n{json.dumps('x' * 5000)}")
    found = specsim.audit_served(path, rng=0)
    assert (found.unreadable, found.places) == (2, 1)
    assert found.named[0] == f"{path}:1: longer than 0 MiB"
    path.write_bytes(bytes(5000))
    with pytest.raises(ValueError, match=r"served\.jsonl: bytes 0 and no end of a line; give a text file"):
        specsim.audit_served(path, rng=0)


@pytest.mark.parametrize("text", ["", "\n\n", "{}\n", "\x1f\x8b"])
def test_a_file_without_a_response_is_refused(text, tmp_path):
    path = tmp_path / "served.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="is a response"):
        specsim.audit_served(path, rng=0)
    assert says("is a response", "trace", "audit", path, code=2).count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_only_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path, "/dev/zero"):
        with pytest.raises(ValueError, match="not a regular file"):
            specsim.audit_served(path, rng=0)
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        specsim.audit_served(tmp_path / "none.jsonl", rng=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no file in it"):
        specsim.audit_served(tmp_path / "empty", rng=0)


@pytest.mark.parametrize(
    "options", [{"logprobs": "cooked"}, {"tolerance": -1}, {"tolerance": 1}, {"temperature": math.nan}]
)
def test_arguments_out_of_range(options, tmp_path):
    with pytest.raises(ValueError, match=next(iter(options))):
        audit(tmp_path, [drawn(4)], **options)


# --- the command, and the result ------------------------------------------------------------------------------


def test_the_command_reads_a_file_and_a_folder(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for i in range(2):
        write_log(folder / f"{i}.jsonl", [drawn(20, seed=i)])
    ran = run("trace", "audit", folder, "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"], found["places"], found["texts"]) == (3, "inconclusive", 40, 2)
    wrong = write_log(tmp_path / "wrong.jsonl", [changed(put("token_logprobs", 3, 0.5))])
    said = says("log-probabilities: positive, at 1 places", "trace", "audit", wrong, code=1)
    assert said.splitlines()[0].endswith("broken")


def test_options_of_the_other_kind_of_log_are_refused(tmp_path):
    path = write_log(tmp_path / "served.jsonl", [drawn(4)])
    for arguments, name in (((path, "--lenience", "0.5"), "lenience"), (("--logprobs", "raw"), "logprobs")):
        says(f"--{name}", "trace", "audit", *arguments, code=2)


def test_progress_is_told_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(_json, "STRIDE", 1000)
    path, told = write_log(tmp_path / "served.jsonl", [drawn(4, seed=i) for i in range(5)]), []
    specsim.audit_served(path, progress=lambda *done: told.append(done), rng=0)
    assert all(one < other for (one, _), (other, _) in pairwise(told[:-1]))
    assert told[-1] == (path.stat().st_size,) * 2


def test_the_result_depends_on_the_seed_alone(tmp_path):
    path = write_log(tmp_path / "served.jsonl", [drawn(40)])
    one, same, other = (specsim.audit_served(path, rng=seed) for seed in (1, 1, 2))
    assert one.to_dict() == same.to_dict() != other.to_dict()
    assert one.to_arrow().num_rows == len(one.tables)
    assert "inconclusive" in one._repr_html_()


def test_the_names_of_the_classes():
    assert _name("place", 3, 4) == "place 3 – 4"
    assert _name("position in the step", POSITIONS, None) == f"position in the step {POSITIONS} and on"
