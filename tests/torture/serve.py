"""`specsim serve` and hostile clients: it refuses what they send, or answers rightly, and always answers others."""

import http.client
import json
import random
import resource
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from blocks import TRACEBACK, WRONG, in_blocks
from forged import HOSTILE, change
from letters import decoded

import specsim
from specsim.engines._server import http as serving
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.protocol import IGNORED, READ, read_call, write_answer

GOOD = {"prompt": [0, 1], "max_tokens": 4, "seed": 7, "n": 2, "logprobs": 2, "return_token_ids": True}
GOOD |= {"temperature": 0.8, "top_p": 0.9, "top_k": 3, "min_p": 0.01, "stop": ["\n"], "stream": False}
LONG = GOOD | {"n": 4096, "max_tokens": 85}  # which no client here waits for
VALUES = [*HOSTILE, 2**63, 64, 4096, 1.0, [0, 99], [[0], [1, 1]], ["", ""], [None], {"a": 1}]
BODIES = [
    b"", b"\0", b"[]", b"3", b"null", b'"x"', b"{", b"{}{}", b"{'prompt': 1}", b'{"prompt": NaN}', b'{"seed": 1e999}',
    b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"[" * 10**5, b'{"a":' * 10**5,
    b'{"prompt": [0], "prompt": "x", "n": 1, "n": -1}', b'{"prompt": [' + b"0," * 10**6 + b"0]}", b'{"seed": ' + b"9" * 10**5 + b"}",
    b'{"prompt": [' + b"[0]," * 10**5 + b"[0]]}", b'{"prompt": "' + b"a" * 10**6 + b'"}', b'{"stop": [' + b'"a",' * 10**5 + b'"b"]}',
]  # fmt: skip
#: Parts of raw requests; {} is the length of the body.
METHODS = [*b"POST POST POST GET HEAD PUT post \0 \x16\x03\x01".split(b" "), b"", b"P" * 70_000]
PATHS = [b"", b"/v1/completions", *b"/v1/completions/ /metrics /health /v1/models * http://x/ /%00".split()]
PATHS += [
    b"/v1/completions",
    b"/v1/chat/completions",
    b"/../../etc/passwd",
    b"//\x1b[31m<b>",
    b"/?" + b"a" * 60_000,
    b"/ /",
]
VERSIONS = [*b" HTTP/1.1; HTTP/1.1; HTTP/1.0; HTTP/0.9; HTTP/2; HTTP/9.9; HTTP/1.x; x;".split(b";")]
LENGTHS = [b"", b"9" * 30, b"9" * 5000, *b"{} {} {} -1 +5 x 1e3 5,5 \xb2 0x5 0 1 4194305".split()]
HEADERS = [b"Content-Length: " + length for length in LENGTHS] + [b"", b"no colon", b": x", b" folded: x"]
HEADERS += [b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close", b"Host: \x1b[31m\0"]
HEADERS += [b"A: " + b"a" * 10**5, b"\r\n".join([b"A: b"] * 200)]
#: How many of 129 requests are of each way.
WAYS = {"parameters": 30, "values": 20, "bytes": 20, "bodies": 8, "raw": 30, "half": 8, "gone": 8}
WAYS |= {"together": 5}
#: Seconds that a client waits, and in which the server wants a whole request.
WAITS, serving.PATIENCE = 2.0, 3.0


class Noticing(serving.Server):
    """A server that keeps what its connections raise."""

    def handle_error(self, request, client_address):
        self.raised.append(f"a connection: {sys.exception()!r}")


def run_serve(number, seed):
    """A tally of `number` requests."""
    tasks, here = [f"{seed} {i}" for i in range(number)], []

    def prepare():
        pair = specsim.plant("pair", order=1, vocab_size=4, context=128, rng=1)
        server = Noticing(Decoder(pair, seed=1), port=0)
        server.raised = []
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        here[:] = [server, lru_cache(99)(lambda body: _choices(server, body))]

    def act(task):
        rng, (server, choices) = random.Random(task), here
        way = rng.choices([*WAYS], [*WAYS.values()])[0]
        before, good = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, json.dumps(GOOD).encode()
        honest = partial(_ask, server, _post(good), waits=20.0)
        with ThreadPoolExecutor(16) as pool:
            others = [pool.submit(honest) for _ in range(15 if way == "together" else 1)]
            faults = [_try(way, rng, server, choices), *server.raised]
        for status, content in [*(one.result() for one in others), honest()]:
            if status != 200 or json.loads(content)["choices"] != choices(good):
                faults.append(f"another client's answer: {status} {content[:300]}")
        if (grown := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) > 2**20:
            faults.append(f"{grown} kB more memory")
        server.raised.clear()
        what = next(filter(None, faults), None)
        return way, what and (TRACEBACK if "status 5" in what else WRONG, f"{way}: {what}")

    return in_blocks("serve", tasks, act, str, prepare)


def _try(way, rng, server, choices):
    """What is wrong with the answer to a request of this `way`."""
    given = json.loads(json.dumps(LONG if way == "gone" else GOOD))
    if way in ("parameters", "together"):
        names = rng.choices([*sorted(READ | IGNORED.keys()), "x"], k=rng.choice((1, 1, 2)))
        given |= {name: rng.choice(VALUES) for name in names}
    body = json.dumps(change(given, rng) if way == "values" else given).encode()
    for _ in range(rng.choice((1, 1, 4)) if way == "bytes" else 0):
        place, more = rng.randrange(len(body) + 1), rng.choice([b"", b"9", b'"', b"e", rng.randbytes(1)])
        body = body[:place] + more + body[place + rng.randrange(3) :]
    if way == "bodies":
        body = rng.choice(BODIES)
    if way == "raw":
        lines = [rng.choice(METHODS) + b" " + rng.choice(PATHS) + rng.choice(VERSIONS)]
        lines += rng.choices(HEADERS, k=rng.randrange(4))
        head = b"\r\n".join(lines).replace(b"{}", b"%d" % len(body)) + rng.choice([b"\r\n\r\n", b"\n\n", b""])
        return _fault(_ask(server, head + body, ends=True))
    content = _post(body)
    if way == "half":
        return _fault(_ask(server, content[: rng.randrange(len(content))], ends=True))
    if way == "gone":
        return _fault(_ask(server, content, waits=rng.choice([0.001, 0.1, 0.5])))
    return _fault(_ask(server, content), body, choices)


def _post(body):
    return b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def _ask(server, content, waits=WAITS, ends=False):
    """The status and the content of the answer; without an answer None, and how the connection ended."""
    try:
        with socket.create_connection(server.server_address, waits) as connection:
            connection.sendall(content)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return None, repr(error).encode()


def _fault(answer, body=None, choices=None):
    """What is wrong with an answer, to a `body` whose `choices` are known; None if there is no answer."""
    status, content = answer
    if status is not None and status >= 500 and status not in (501, 505):
        return f"status {status}: {content[:300]}"
    if status is None or body is None:
        return None
    try:
        found = json.loads(content, parse_constant=int)  # NaN and infinity raise
        if status == 200:
            right = choices(body) in (None, found["choices"])
        else:
            right = found["error"]["message"].isprintable()
    except (ValueError, KeyError):
        right = content.startswith(b"data: {")
    return None if right else f"{status} {content[:300]}"


def _choices(server, body):
    """What a decoder of its own answers; None to streams, long work, and without a seed."""
    pair = server.batching.decoder.pair
    call = read_call(body, pair, server.model)
    long = sum(one.n * one.max_tokens for one in call.requests) > 20_000
    if call.stream or long or call.requests[0].seed is None:
        return None
    answer = write_answer(call, decoded(pair, call.requests), pair, server.model, "")
    return json.loads(json.dumps(answer["choices"]))
