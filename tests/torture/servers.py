"""Hostile servers, audited: answers of a right server, changed on their way.

Whatever comes, the audit ends within seconds, prints nothing that a terminal would obey, and blames no texts for
what is wrong in counters alone."""

import json
import os
import random
import resource
import threading
import time

from blocks import TRACEBACK, WRONG, in_blocks
from forged import change
from judging import answer_of
from listening import listening

import specsim
from specsim.engines import Sampling, compare_servers
from specsim.engines._clients import http
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.http import Handler, Server

HEAD, ESCAPE = b"HTTP/1.1 200 OK\r\n", b"\x1b[31m\x07"
#: Answers as they are sent: {} is the body of a right one.
RAW = [
    b"", b"SSH-2.0-x\r\n", b"\0" * 10**4, HEAD, HEAD + b"Content-Length: 99999\r\n\r\n{}", HEAD + b"\r\n{}",
    HEAD + b"Content-Length: -1\r\n\r\n{}", HEAD + b"Content-Length: 9" + b"9" * 5000 + b"\r\n\r\n{}",
    *(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n{}" for size in (b"-1", b"x", b"f" * 25, b"0")),
    b"HTTP/1.1 100 Continue\r\n\r\n" * 10**4, HEAD + b"A: " + b"a" * 10**6, HEAD + b"A: b\r\n" * 10**4 + b"\r\n{}",
    HEAD + b"Server: " + ESCAPE + b"\r\n\r\n{}", HEAD + b"Content-Encoding: gzip\r\n\r\n{}",
    *(b"HTTP/1.1 %d " % status + ESCAPE + b"\r\nContent-Length: 9\r\nLocation: file:///etc/passwd\r\n"
      b"Retry-After: 9999\r\n\r\n<b>\x1b[31m" for status in (204, 302, 400, 404, 418, 429, 500, 503, 999)),
    b"HTTP/9.9 200 OK\r\n\r\n{}", HEAD + b"\r\n[" + b"[" * 10**5, HEAD + b"\r\n" + b'{"choices": [' + b"{}," * 2**21,
    HEAD + b"\r\n\xef\xbb\xbf{}", HEAD + b"\r\n{}{}", HEAD + b'\r\n{"choices": NaN}', HEAD + b'\r\n{"error": "\x1b"}',
]  # fmt: skip
http.GET_SECONDS = 0.5
OPTIONS = {"tokens": 600, "rng": 1, "seconds": 1.0, "timeout": 2.0, "retries": 1}
#: Values of counters.
COUNTED = [b"-5", b"1e308", b"nan", b"9223372036854775808", b"0", b"1e6", b"x", b"-1e6"]
WAYS = ["json", "json", "models", "metrics", "drip", "silence", *["raw"] * 3]


class Hostile(Handler):
    """Sends what `server.way` makes of the right answer, from the first or some later one on."""

    def _send(self, status, content, kind="text/plain"):
        way, rng = self.server.way, self.server.rng
        self.server.sent += 1
        if self.server.sent <= self.server.right:
            return super()._send(status, content, kind)
        where = {"/metrics": "metrics", "/v1/models": "models"}.get(self.path, "json")
        if way == where == "metrics":
            lines = [line.rpartition(b" ")[0] for line in content.splitlines()]
            content = b"\n".join(line + b" " + rng.choice(COUNTED) for line in lines)
        elif way == where:
            content = json.dumps(change(json.loads(content), rng)).encode()
        elif way == "raw":
            self.close_connection = True
            return self.wfile.write(self.server.raw.replace(b"{}", content, 1))
        elif way in ("drip", "silence"):
            self.wfile.write(HEAD + b"Content-Length: 99999\r\n\r\n" if way == "drip" else b"")
            while not self.server.ended.wait(0.2):
                self.wfile.write(b" " if way == "drip" else b"")
        return super()._send(status, content, kind)


def run_servers(number, seed):
    """Tallies of audits of `number` servers, and of comparisons of a quarter as many with a right one."""
    pairs = []

    def act(task):
        rng, server = random.Random(task), Server(Decoder(pairs[0]), port=0)
        server.rng, server.way, server.raw, server.sent = rng, rng.choice(WAYS), rng.choice(RAW), 0
        server.right, server.ended = rng.choice([0, 0, 9]), threading.Event()
        server.RequestHandlerClass = Hostile
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        sampling = Sampling(logprobs=rng.choice([None, 2]))
        with listening(server) as url, listening(Server(Decoder(pairs[0]), port=0)) as right:
            try:
                if task.startswith("against"):
                    few = {"tokens": 600, "rng": 1, "seconds": 1.0}
                    found = compare_servers(right, url, [" a b", " c"], sampling=sampling, **few)
                else:
                    found = specsim.audit_engine(url, pairs[0], sampling=sampling, **OPTIONS)
                told = str(found)
            except Exception as error:
                fault = answer_of(error)
                return ("accident", (TRACEBACK, f"{server.way}: {fault}")) if fault else ("refused", None)
            finally:
                server.ended.set()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        what = "an escape sequence is printed" if "\x1b" in told or "\x07" in told else ""
        seconds, busy = time.monotonic() - started, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        what += f"{seconds:.0f} seconds" if seconds > 8 * busy else ""
        what += f"{grown} kB more memory" if grown > 3 * 2**19 else ""
        what += "texts are blamed for counters" if server.way == "metrics" and found.exit_code == 1 else ""
        return str(found.verdict), (WRONG, f"{server.way} {server.raw[:60]}: {what}") if what else None

    def prepare():
        pairs[:] = [specsim.plant("pair", order=1, vocab_size=4, context=128, rng=1)]

    for name, count in (("hostile servers", number), ("against another", number // 4 + 1)):
        yield in_blocks(name, [f"{name} {seed} {i}" for i in range(count)], act, str, prepare)
