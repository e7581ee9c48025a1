"""The HTTP server: the protocol, its errors, calls side by side."""

import http.client
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from unittest.mock import ANY

import pytest
from cases import cases
from letters import Letters, decoded
from listening import listening

from specsim.engines._planted.requests import Request, Sampling
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.http import Server

PAIR = Letters(openers=2)


@contextmanager
def serving(**options):
    """A server on a free port, until the end of the block."""
    server = Server(Decoder(PAIR, **options), port=0)
    with listening(server):
        yield server


@pytest.fixture(scope="module")
def server():
    with serving(seed=1) as made:
        yield made


def send(server, path, given=None, body=None, headers=None):
    """Status, and the answer."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    body = json.dumps(given).encode() if given is not None else body
    connection.request("POST" if body is not None else "GET", path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    kind = answer.getheader("Content-Type")
    return answer.status, json.loads(content) if kind == "application/json" else content.decode()


def expected(tokens=6, **more):
    """The texts of the decoder for the same prompt."""
    return decoded(PAIR, [Request(0, tuple(PAIR.encode("Aab")), tokens, **more)])


def texts(choices):
    return [one["text"] if isinstance(one, dict) else PAIR.decode(one.tokens) for one in choices]


def complete(server, **given):
    status, answer = send(server, "/v1/completions", {"prompt": "Aab", "max_tokens": 6} | given)
    assert status == 200, answer
    return answer


def test_health_models_and_version(server):
    assert send(server, "/health") == (200, "")
    assert send(server, "/v1/models")[1]["data"][0]["id"] == "specsim-01234567"
    assert send(server, "/version")[1]["version"]


def test_texts_are_those_of_the_decoder(server):
    (one,) = expected(seed=7)
    answer = complete(server, seed=7, logprobs=0, return_token_ids=True)
    (choice,) = answer["choices"]
    assert choice["text"] == PAIR.decode(one.tokens)
    assert choice["token_ids"] == list(one.tokens)
    assert choice["prompt_token_ids"] == PAIR.encode("Aab")
    assert choice["logprobs"]["token_logprobs"] == list(one.logprobs)
    assert choice["logprobs"]["tokens"] == list(choice["text"])
    assert choice["logprobs"]["text_offset"] == list(range(6))
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 6
    details = answer["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == one.accepted
    assert sum(details.values()) == one.drafted


def test_prompts_in_all_forms(server):
    ids = PAIR.encode("Aab")
    found = [
        texts(complete(server, prompt=prompt, seed=3)["choices"])
        for prompt in ("Aab", ids, ["Aab", "Bba"], [ids, PAIR.encode("Bba")])
    ]
    assert found[0] == found[1] == found[2][:1]
    assert found[2] == found[3]


def test_lists_and_ids_of_tokens(server):
    answer = complete(server, logprobs=2, return_tokens_as_token_ids=True, n=2, top_k=-1)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    for choice in answer["choices"]:
        found = choice["logprobs"]
        assert [PAIR.letters[int(name.removeprefix("token_id:"))] for name in found["tokens"]] == [
            *choice["text"]
        ]
        assert [len(top) for top in found["top_logprobs"]] == [2] * 6


def test_a_stop_string_is_cut_off_but_its_tokens_are_returned(server):
    (choice,) = complete(server, stop="a", max_tokens=100, seed=5, return_token_ids=True)["choices"]
    assert choice["finish_reason"] == "stop"
    assert PAIR.decode(choice["token_ids"]) == choice["text"] + "a"
    assert "a" not in choice["text"]


def test_a_grammar_ends_a_text_with_an_end_that_its_text_does_not_show(server):
    rules = 'root ::= "a" tail', 'tail ::= "b" tail | "c" end', 'end ::= ""'
    given = {"structured_outputs": {"grammar": "\n".join(rules)}, "max_tokens": 100, "n": 9}
    for choice in complete(server, return_token_ids=True, **given)["choices"]:
        assert re.fullmatch("ab*c", choice["text"])
        assert PAIR.decode(choice["token_ids"]) == choice["text"] + "|"
        assert choice["finish_reason"] == "stop"


def test_streams(server):
    status, events = send(
        server, "/v1/completions", {"prompt": "Aab", "max_tokens": 6, "seed": 7, "stream": True}
    )
    *lines, last = [line.removeprefix("data: ") for line in events.strip().split("\n\n")]
    assert status == 200
    assert last == "[DONE]"
    text = "".join(choice["text"] for line in lines for choice in json.loads(line)["choices"])
    assert text == complete(server, seed=7)["choices"][0]["text"]


def test_a_chat_is_the_completion_of_what_its_messages_say(server):
    parts = [{"role": "user", "content": "A"}, {"role": "user", "content": "ab"}]
    more = {"messages": parts, "max_completion_tokens": 6, "seed": 7, "logprobs": True, "top_logprobs": 2}
    status, answer = send(server, "/v1/chat/completions", more)
    (choice,), (plain,) = answer["choices"], complete(server, seed=7, logprobs=2)["choices"]
    entries = choice["logprobs"]["content"]
    assert (status, choice["message"]) == (200, {"role": "assistant", "content": plain["text"]})
    assert [one["logprob"] for one in entries] == plain["logprobs"]["token_logprobs"]
    assert [len(one["top_logprobs"]) for one in entries] == [2] * len(entries)
    events = send(server, "/v1/chat/completions", more | {"stream": True})[1]
    assert (
        json.loads(events.split("\n\n")[0].removeprefix("data: "))["choices"][0]["delta"] == choice["message"]
    )
    for wrong in ("Aab", [], ["Aab"], [{"role": "user"}], [{"content": [1]}]):
        status, answer = send(server, "/v1/chat/completions", {"messages": wrong})
        assert (status, answer["error"]["param"]) == (400, "messages")


def test_calls_side_by_side_are_as_if_alone(server):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda seed: complete(server, seed=seed, n=2), range(24)))
    for seed, answer in enumerate(answers):
        assert texts(answer["choices"]) == texts(expected(seed=seed, n=2))


def test_metrics_are_vllms():
    with serving() as server:
        complete(server)
        metrics = dict(
            line.rsplit(" ", 1) for line in send(server, "/metrics")[1].splitlines() if line[0] != "#"
        )
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    steps, drafted, accepted = (
        int(metrics[f'vllm:spec_decode_{name}_total{{model_name="specsim-01234567"}}']) for name in names
    )
    assert drafted == 4 * steps > 0
    assert accepted + steps >= 6


@pytest.mark.parametrize(
    *cases(__file__, "errors", *(({name: 10**400}, 400, name) for name in ("temperature", "top_p", "min_p")))
)
def test_errors_name_the_parameter(server, given, status, parameter):
    found, answer = send(server, "/v1/completions", {"prompt": "Aab"} | given)
    assert (found, answer["error"]["param"], answer["error"]["code"]) == (status, parameter, status)
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400), (b"[]", 400), (b"[" * 10**5, 400), (b"\xff", 400),
        (b'{"prompt": "Aab", "seed": 1e999}', 400),
    ],
    ids=["cut", "list", "deep", "bytes", "infinity"],
)  # fmt: skip
def test_bodies_that_are_no_request(server, body, status):
    assert send(server, "/v1/completions", body=body)[0] == status


def test_other_errors(server):
    assert send(server, "/v1/embeddings", {})[0] == 404
    assert send(server, "/")[0] == 404
    assert send(server, "/v1/completions", body=b"", headers={"Content-Length": str(10**12)})[0] == 413
    assert send(server, "/v1/completions", body=b"", headers={"Content-Length": "9" * 5000})[0] == 413
    assert send(server, "/v1/completions", body=b"", headers={"Content-Length": "-1"})[0] == 411


def test_an_error_of_the_decoder_is_told_and_the_server_goes_on(monkeypatch):
    with serving() as server:
        decoder = server.batching.decoder
        monkeypatch.setattr(decoder, "step", lambda: 1 / 0)
        status, answer = send(server, "/v1/completions", {"prompt": "Aab"})
        assert (status, answer["error"]["message"]) == (500, "ZeroDivisionError: division by zero")
        monkeypatch.undo()
        assert complete(server)["choices"]


def test_a_call_that_makes_the_decoder_fail_fails_alone(monkeypatch):
    """Also where others are half decoded; their steps count once, and what they did before does not."""
    with serving(seed=1) as server:
        decoder = server.batching.decoder
        emit = decoder._verify_and_emit

        def poisoned(step):
            emit(step)
            counts = zip(step.run.texts, step.run.count, strict=True)
            if any(text.request.seed == 999 and count > 3 for text, count in counts):
                raise ValueError("a bad request")

        monkeypatch.setattr(decoder, "_verify_and_emit", poisoned)
        given = [{"seed": seed, "n": 2, "max_tokens": 40} for seed in (1, 2, 999, 3, 999, 4)]
        with ThreadPoolExecutor(len(given)) as pool:
            answers = list(
                pool.map(lambda one: send(server, "/v1/completions", {"prompt": "Aab"} | one), given)
            )
        for one, (status, answer) in zip(given, answers, strict=True):
            assert status == (500 if one["seed"] == 999 else 200)
            if status == 200:
                assert texts(answer["choices"]) == texts(expected(40, seed=one["seed"], n=2))
        found = [answer["usage"]["completion_tokens_details"] for status, answer in answers if status == 200]
        assert decoder.totals["drafted"] == sum(sum(one.values()) for one in found)
        assert decoder.totals["accepted"] == sum(one["accepted_prediction_tokens"] for one in found)


def test_calls_that_only_fail_together_are_all_answered(monkeypatch):
    with serving() as server:
        decoder, begin = server.batching.decoder, server.batching.decoder._begin

        def scarce():
            if len(decoder._run.texts) > 2:
                raise MemoryError
            return begin()

        monkeypatch.setattr(decoder, "_begin", scarce)
        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(lambda seed: complete(server, seed=seed, n=2), range(6)))


def test_a_plain_server_reports_no_drafts():
    with serving(speculative=False) as server:
        assert "completion_tokens_details" not in complete(server)["usage"]


def test_sampling_reaches_the_decoder(server):
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1)
    answer = complete(server, seed=2, temperature=0.7, top_k=3, top_p=0.9, min_p=0.1)
    assert texts(answer["choices"]) == texts(expected(seed=2, sampling=sampling))


LONG = {"prompt": "Aab", "n": 4096, "max_tokens": 200}


def test_who_hangs_up_is_decoded_no_further():
    with serving() as server:
        decoder = server.batching.decoder
        for _ in range(3):
            connection = http.client.HTTPConnection(*server.server_address[:2])
            connection.request("POST", "/v1/completions", json.dumps(LONG))
            while not decoder.busy:
                time.sleep(0.01)
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
        started = time.monotonic()
        assert complete(server, seed=3) == complete(server, seed=3) | {"id": ANY, "created": ANY}
        assert time.monotonic() - started < 4
        assert not decoder.busy


def test_a_server_ends_while_it_decodes():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send, server, "/v1/completions", LONG)
        while not server.batching.decoder.busy:
            time.sleep(0.01)
        started = time.monotonic()
        server.shutdown()
        server.server_close()
        assert time.monotonic() - started < 2
        assert answer.result()[0] == 503


def test_answers_without_measure_are_refused(server):
    for logprobs in (1, 5):
        status, answer = send(server, "/v1/completions", LONG | {"logprobs": logprobs})
        assert (status, answer["error"]["param"]) == (400, "max_tokens")
    assert send(server, "/v1/completions", body=b"", headers={"Content-Length": str(2**22 + 1)})[0] == 413


def test_a_request_has_to_come_whole(monkeypatch):
    monkeypatch.setattr("specsim.engines._server.http.PATIENCE", 0.5)
    with serving() as server, socket.create_connection(server.server_address[:2]) as slow:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99\r\n\r\n")
        slow.settimeout(0.05)
        ended = time.monotonic() + 5
        with suppress(ConnectionError):
            while time.monotonic() < ended:
                with suppress(TimeoutError):
                    assert slow.recv(1) == b""
                    break
                slow.sendall(b" ")  # every byte is in time
        assert time.monotonic() < ended
