"""The connection to OpenAI-compatible servers: right answers are read, and hostile ones are failures; what an
engine's own program converts."""

import json
import re
import threading
import time
from pathlib import Path

import pytest
from cases import cases
from letters import Letters, decoded
from listening import answering, listening
from refused import refuses

from specsim.engines._clients import http
from specsim.engines._clients.answers import read_counters
from specsim.engines._clients.opening import ENGINES, open_engine
from specsim.engines._clients.running import convert
from specsim.engines._planted.requests import FAILURES, PENALTIES, Completion, Failure, Request, Sampling
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.http import Server

PAIR = Letters()
ONE = (Request(0, (0, 1), 3),)


def answers(url, requests=ONE, **options):
    """What the engine gives; every request has its completions or one failure, and within seconds."""
    options = {"timeout": 5.0, "retries": 0} | options
    engine = open_engine(url, PAIR, **options)
    started = time.monotonic()
    found = list(engine.complete(requests))
    engine.close()
    assert time.monotonic() - started < 8
    for request in requests:
        mine = [one for one in found if one.number == request.number]
        if isinstance(mine[0], Failure):
            assert len(mine) == 1
            assert mine[0].kind in FAILURES
        else:
            assert sorted(one.index for one in mine) == list(range(request.n))
    return found


def answered(answer, **options):
    """The one answer to a request, from a server that gives `answer`, or what answer(…) gives."""
    with answering(answer if callable(answer) else lambda *_: answer) as url:
        (one,) = answers(url, **options)
    return one


def listed(logprobs):
    """A request for lists of log-probabilities."""
    return [Request(0, (0, 1), 3, sampling=Sampling(logprobs=logprobs))]


def choice(**more):
    return {"choices": [{"index": 0, "text": "abc", "finish_reason": "length"} | more]}


@pytest.mark.parametrize("path", ["", "/v1/chat/completions"])
@pytest.mark.parametrize("options", [{}, {"speculative": False}], ids=str)
def test_our_server_gives_what_its_decoder_gives(options, path):
    requests = [
        Request(i, (0, i % 5), 8, i, n=1 + i % 3, sampling=Sampling(logprobs=i % 3)) for i in range(12)
    ]
    with listening(Server(Decoder(PAIR, **options), port=0)) as url:
        engine = open_engine(url + path, PAIR, connections=4)
        found = sorted(engine.complete(requests), key=lambda one: (one.number, one.index))
        described, counters = engine.describe(), engine.counters()
        engine.close()
    expected = decoded(PAIR, requests, **options)
    for one, other in zip(found, expected, strict=True):
        assert (one.tokens, one.logprobs, one.top) == (other.tokens, other.logprobs, other.top)
    drafted = sum(one.drafted or 0 for one in expected)
    assert sum(one.drafted or 0 for one in found) == drafted == counters["drafted"]
    assert described["engine"] == "specsim"
    assert described["model"] == "specsim-01234567"
    assert described["prompts"].startswith("chat" if path else "token ids")
    json.dumps(described)


@pytest.mark.parametrize(*cases(__file__, "names"))
def test_the_name_of_a_server(header, owner, name, monkeypatch):
    """Its own, not that of the library that serves HTTP for it."""

    def sent(self, *_):
        self._header = header
        return 200, json.dumps({"data": [{"id": "model", "owned_by": owner}]}).encode()

    monkeypatch.setattr(http.HttpServer, "_send", sent)
    assert open_engine("http://host", PAIR).name == name


def test_penalties_that_change_nothing_are_sent_where_they_are_asked_for():
    sent = []

    def answer(payload, *_):
        sent.append({name: value for name, value in payload.items() if name.endswith("penalty")})
        return choice()

    with answering(answer) as url:
        for penalties in (PENALTIES, {}):
            answers(url, [Request(0, (0, 1), 3, sampling=Sampling(**penalties))])
    none = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
    assert sent == [none, {}]


def test_bans_of_pairs_are_a_grammar_for_llama_cpp_and_a_grammar_is_sent_to_each_as_it_takes_it():
    def fields(*words, software="llama.cpp", **more):
        sampling = Sampling(allowed_token_ids=(0, 1, 3), bad_words=words, **more)
        asked = Request(0, (0,), 1, sampling=sampling)
        return http.fields_of(asked, [0], None, http.DIALECTS[1], software, PAIR)

    rules = 'root ::= "a" s1 | "b" root', 's1 ::= "a" s1'
    assert fields((0, 1), (3,))["grammar"].splitlines() == [*rules]
    refuses("bad_words: a grammar has at most 64 words here", fields, (0, 1, 0), error=http.FailedError)
    given = {"grammar": (((0, 0), (2, 0), (1, 1)), ((0, 0), (5, 1)))}
    both = 'root ::= "a" s1 | "b" s2', 's1 ::= "a" s1', 's2 ::= "a" s1 | ""'
    assert fields((0, 1), **given)["grammar"].splitlines() == [*both]
    alone = 'root ::= "a" root | "c" root | "b" s1\ns1 ::= "a" root | ""'
    assert fields(software="vllm", **given)["structured_outputs"] == {"grammar": alone}
    assert fields(software="sglang", **given)["ebnf"] == alone


def test_no_server():
    with answering(lambda *_: b"") as url:
        pass
    (one,) = answers(url, retries=2)
    assert one.kind == "connection"


NESTED, LONG = b"[" * 10**5, b'{"choices": [{"index": ' + b"1" * 10**4 + b', "text": "abc"}]}'


@pytest.mark.parametrize(
    *cases(__file__, "garbage", [NESTED], [LONG], [b"\xff\xfe"]), ids=lambda content: str(content)[:60]
)
def test_answers_that_are_garbage(content):
    one = answered(content.encode() if isinstance(content, str) else content)
    assert (type(one), one.kind) == (Failure, "garbage")
    assert len(one.text) < 500


def listing(entries):
    """Log-probabilities of three tokens, with a list at each."""
    top = [{"id": i % 5, "logprob": -1.0} for i in range(entries)]
    return {"content": [{"id": i, "logprob": -1.0, "top_logprobs": top} for i in range(3)]}


def without_end(number):
    """As a whole number of 401 digits, that no float can hold."""
    return json.dumps(choice(logprobs=number)).replace("7777", "-1" + "0" * 400).encode()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (without_end({"token_logprobs": [-1.0, 7777, -1.0]}), "-10+...0+ is not a finite number"),
        (without_end({"content": [{"id": 0, "logprob": 7777}] * 3}), "is not a finite number"),
        (without_end({"token_logprobs": [-1.0] * 3, "top_logprobs": [{"a": 7777}] * 3}), "is not a finite number"),
        (choice(logprobs={"content": [{"id": 0, "logprob": -1, "top_logprobs": [{"id": 2**64, "logprob": -1}]}] * 3}), "18446744073709551616 is too large"),
        (choice(finish_reason="stop" * 20), "finish_reason is .*, 80 characters"),
        (choice(finish_reason="stop" * 10**5), "finish_reason is .*, 400,000 characters"),
        (choice(logprobs=listing(22)), "22 entries in a list; expected at most 21, as asked for"),
        (choice(logprobs={"token_logprobs": [-1.0] * 5}, finish_reason="stop"), "5 tokens; expected at most 4, as asked for"),
        (choice(filler="x" * 2**21), r"an answer of more than 1,0\d\d,\d+ bytes"),
    ],
    ids=range(9),
)  # fmt: skip
def test_answers_that_no_audit_can_keep(content, what):
    """Each is the failure of its request, and ends no audit."""
    one = answered(content, requests=listed(2))
    assert (type(one), one.kind) == (Failure, "garbage")
    assert re.search(what, one.text)
    assert len(one.text) < 300


def test_as_many_entries_as_were_asked_for():
    content = choice(logprobs=listing(41), token_ids=[0, 1, 2])
    one, other = (answered(content, requests=listed(entries)) for entries in (40, 39))
    assert (one.tokens, len(one.top)) == ((0, 1, 2), 3)
    assert other.kind == "garbage"


def test_the_body_of_an_error_is_read_as_far_as_it_is_told():
    """A long one is no JSON to parse, whose objects would take many times its memory."""
    one = answered((500, {"error": {"message": "not today", "x": [{}] * 2**19}}))
    assert one.text.startswith('status 500: {"error": {"message": "not today"')
    assert len(one.text) < 300


@pytest.mark.parametrize(*cases(__file__, "unmappable"))
def test_texts_that_do_not_map_back(more):
    assert answered(choice(**more)).kind == "unmappable"


@pytest.mark.parametrize(
    ("content", "logprobs", "top"),
    [
        (choice(), None, None),
        (choice(text="?", token_ids=[0, 1, 2]), None, None),
        (choice(text="?", tokens=[0, 1, 2]), None, None),
        (choice(logprobs=None), None, None),
        (choice(logprobs={"token_logprobs": [None, -1, -2.5]}), (None, -1.0, -2.5), None),
        (
            choice(text="?", logprobs={"tokens": [f"token_id:{i}" for i in range(3)], "token_logprobs": [-1.0] * 3}),
            (-1.0,) * 3,
            None,
        ),
        (
            choice(text="?", logprobs={"content": [
                {"id": i, "logprob": -1.0, "top_logprobs": [{"id": 4, "logprob": -0.5}, {"token": "a", "logprob": -2}]}
                for i in range(3)
            ]}),
            (-1.0,) * 3,
            ({4: -0.5, 0: -2.0},) * 3,
        ),
    ],
)  # fmt: skip
def test_answers_in_the_forms_of_engines(content, logprobs, top):
    one = answered(content, requests=listed(2))
    assert (one.tokens, one.logprobs, one.top, one.finish) == ((0, 1, 2), logprobs, top, "length")


@pytest.mark.parametrize(*cases(__file__, "drafts"))
def test_drafts_that_are_reported(more, counted):
    one = answered(choice() | more)
    assert [one.drafted, one.accepted, one.steps] == counted


@pytest.mark.parametrize("status", [301, 400, 401, 404, 418, 422, 500])
def test_statuses(status):
    one = answered((status, {"error": {"message": "not \x1b[31mtoday"}}), retries=3)
    assert one.kind == {400: "refused", 422: "refused", 500: "crash"}.get(status, "http")
    assert one.text == rf"status {status}: not \x1b[31mtoday"


def test_a_server_that_refuses_ids_is_given_texts():
    def answer(payload, *_):
        good = set(payload) <= {"model", "prompt", "max_tokens", "temperature", "top_p", "logprobs"}
        return choice() if good and payload["prompt"] == "ab" else (400, {"error": "no"})

    with answering(answer) as url:
        found = answers(url, [Request(i, (0, 1), 3) for i in range(5)], connections=1)
    assert [one.tokens for one in found] == [(0, 1, 2)] * 5


@pytest.mark.parametrize("status", [429, 503])
def test_busy_servers_are_asked_again(status, monkeypatch):
    monkeypatch.setattr(http, "PAUSE", 0.01)
    with answering(lambda payload, call, _: choice() if call % 3 == 2 else (status, {})) as url:
        found = answers(url, [Request(i, (0, 1), 3) for i in range(4)], retries=2, connections=1)
        (one,) = answers(url, retries=1)
    assert [one.tokens for one in found] == [(0, 1, 2)] * 4
    assert one.text.startswith(f"status {status}")


def test_a_server_that_closes_in_the_middle(monkeypatch):
    monkeypatch.setattr(http, "PAUSE", 0.01)

    def answer(payload, call, handler):
        if call % 2:
            return choice()
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"choi')
        handler.close_connection = True
        return None

    with answering(answer) as url:
        (one,) = answers(url)
        assert one.kind == "connection"
        found = answers(url, [Request(i, (0, 1), 3) for i in range(4)], retries=4, connections=2)
    assert all(isinstance(one, Completion) for one in found)


def test_what_is_no_http():
    def answer(payload, call, handler):
        handler.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        handler.close_connection = True

    assert answered(answer).kind == "garbage"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b""], ids=["body", "head"]
)
def test_a_slow_server(head):
    ended = threading.Event()

    def answer(payload, call, handler):
        handler.wfile.write(head)
        while not ended.wait(0.05):  # every byte is in time
            handler.wfile.write(b" ")

    with answering(answer) as url:
        (one,) = answers(url, timeout=0.3, retries=3)
        ended.set()
    assert one.kind == "timeout"


def test_an_endless_answer(monkeypatch):
    monkeypatch.setattr(http.answers, "most_bytes", lambda request: 1000)
    one = answered(choice(filler="x" * 2000))
    assert (one.kind, one.text) == ("garbage", "an answer of more than 1,000 bytes")


def test_a_model_that_changes():
    with answering(lambda payload, call, _: choice() | {"model": "first" if call < 2 else "second"}) as url:
        found = answers(url, [Request(i, (0, 1), 3) for i in range(4)], connections=1)
    assert [isinstance(one, Failure) and one.kind for one in found] == [False, False, "changed", "changed"]


def test_who_stops_reading_waits_for_nothing():
    with answering(lambda payload, call, _: choice() if call == 0 else time.sleep(1) or choice()) as url:
        engine = open_engine(url, PAIR, connections=2)
        reading = engine.complete([Request(i, (0, 1), 3) for i in range(100)])
        started = time.monotonic()
        next(reading)
        reading.close()
        engine.close()
    assert time.monotonic() - started < 3


def test_the_first_request_alone_waits_for_a_server_that_is_not_there(monkeypatch):
    sent, send = [], http.HttpServer._send
    monkeypatch.setattr(http, "PAUSE", 0.001)
    monkeypatch.setattr(http.HttpServer, "_send", lambda *given: sent.append(given[1]) or send(*given))
    found = answers("http://127.0.0.1:9", [Request(i, (0,), 1) for i in range(9)], connections=1, retries=3)
    assert {one.kind for one in found} == {"connection"}
    assert sent.count("POST") == 4 + 8


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/completions", "/completions"])
def test_addresses_with_what_is_asked_for(path):
    with answering(lambda *_: choice()) as url:
        assert answers(f"{url}{path}")[0].tokens == (0, 1, 2)


def test_a_program_that_converts_checkpoints_and_fails_is_named_with_its_last_line():
    convert("this", (), "zen")
    refuses(r"json.tool /nowhere: .*No such file", convert, "json.tool", ("/nowhere",), "zen")
    refuses("run: pip install some-package", convert, "no_such_module", (), "some-package", error=ImportError)


def test_counters_of_prometheus():
    text = (Path(__file__).parent / "counters.txt").read_text(encoding="utf-8") + "\0"
    assert read_counters(text) == {"steps": 3, "drafted": 16, "accepted": 5}
    assert read_counters("up 1") is None


def test_a_timestamp_behind_a_counter_is_not_its_value():
    lines = "vllm:spec_decode_num_draft_tokens_total 7 1700000000000\nvllm:spec_decode_num_accepted_tokens_total 7 1"
    assert read_counters(lines) == {"drafted": 7, "accepted": 7}


def test_engines_by_name():
    engine = open_engine("specsim", PAIR, speculative=False, seed=1)
    assert engine.describe()["speculative"] is False
    assert engine.counters() is None
    found = list(engine.complete([Request(0, (0, 1), 4), Request(1, (9,), 4)]))
    assert [type(one) for one in found] == [Failure, Completion]
    stopped = engine.complete([Request(i, (0, 1), 4) for i in range(9)])
    next(stopped)
    stopped.close()
    assert [one.number for one in engine.complete([Request(20, (0, 1), 4)])] == [20]
    engine.close()
    assert {"hf", "hf-lookup", "llama.cpp", "mlx-lm", "specsim"} <= set(ENGINES)
