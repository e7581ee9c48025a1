"""The HTTP server: OpenAI's completions, health, models, and counters with vLLM's names."""

import json
import queue
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from specsim.core._provenance import specsim_version
from specsim.engines._planted.requests import CHATS, COMPLETIONS, Completion, Request
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.protocol import ApiError, read_call, write_answer, write_events
from specsim.served._prometheus import COUNTERS

#: Seconds in which calls are collected before the first step.
COLLECT = 0.003
#: What a call ends with that is not decoded to its end.
ENDING, GONE = ApiError(503, "the server ends"), ConnectionError("the client has gone")


@dataclass
class _Pending:
    """A call: its requests, the number of the first in the decoder, what was found and what waits for it."""

    requests: Sequence[Request]
    first: int = 0
    found: list[Completion] = field(default_factory=list)
    answer: "Future[list[Completion]]" = field(default_factory=Future)
    dropped: bool = False

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.requests))


class Batching:
    """Decodes in a thread of its own; `complete` may be called by any number of threads."""

    def __init__(self, decoder: Decoder):
        self.decoder = decoder
        self._calls: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._open: dict[int, _Pending] = {}
        self._dropped: queue.SimpleQueue[_Pending] = queue.SimpleQueue()
        self._numbers, self._ending = 0, False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def begin(self, requests: Sequence[Request]) -> _Pending:
        """Decode `requests`, which are checked; the `answer` has their completions when all are finished."""
        if self._ending:
            raise ENDING
        pending = _Pending(requests)
        self._calls.put(pending)
        return pending

    def drop(self, pending: _Pending) -> None:
        """Decode a call no further: nobody waits for it."""
        pending.dropped = True
        self._dropped.put(pending)

    def close(self) -> None:
        """End the thread after the step that it is decoding; no open call is answered."""
        self._ending = True
        self._calls.put(None)
        self._thread.join()
        for pending in self._forget():
            pending.answer.set_exception(ENDING)

    def _work(self) -> None:
        while (pending := self._calls.get()) is not None:
            try:
                self._add(pending)
                time.sleep(COLLECT)
                self._decode()
            except Exception:
                self._decode_one_by_one()

    def _decode_one_by_one(self) -> None:
        """Decode each open call from its beginning, alone, so that a call fails only if it raises itself."""
        for pending in self._forget():
            try:
                self._add(pending)
                self._decode(more=False)
            except Exception as error:
                self._forget()
                pending.answer.set_exception(error)

    def _forget(self) -> list[_Pending]:
        """The open calls, as if they had not begun: the decoder's state was lost."""
        calls = list({id(pending): pending for pending in self._open.values()}.values())
        for pending in calls:
            pending.found.clear()
        self._open.clear()
        self.decoder.clear()
        return calls

    def _decode(self, more: bool = True) -> None:
        """Decode until nothing is left, and begin with what comes meanwhile, if there may be `more`."""
        while self._open and not self._ending:
            while not self._dropped.empty():
                self._leave(self._dropped.get())
            while more and not self._calls.empty():
                if (pending := self._calls.get()) is None:
                    self._calls.put(None)  # the end is that of `_work`
                    break
                self._add(pending)
            for completion in self.decoder.step():
                pending = self._open[completion.number]
                pending.found.append(replace(completion, number=completion.number - pending.first))
                if len(pending.found) == sum(request.n for request in pending.requests):
                    pending.answer.set_result(pending.found)
                    for number in pending.numbers:
                        del self._open[number]

    def _leave(self, pending: _Pending) -> None:
        if self._open.get(pending.first) is pending:
            self.decoder.drop(pending.numbers)
            for number in pending.numbers:
                del self._open[number]
            pending.answer.set_exception(GONE)

    def _add(self, pending: _Pending) -> None:
        if pending.dropped:
            pending.answer.set_exception(GONE)
            return
        pending.first = self._numbers
        for request in pending.requests:
            self._open[self._numbers] = pending
            self.decoder.add(replace(request, number=self._numbers))
            self._numbers += 1


#: The most bytes of a request's body, the digits of its length, and the seconds for a whole request.
MOST_BYTES, MOST_DIGITS, PATIENCE = 2**22, 20, 60.0

#: vLLM's names of the counters, with what they count.
METRICS = {f"vllm:{name}": counted for name, counted in COUNTERS.items()}


class Server(ThreadingHTTPServer):
    """Serves a decoder at `host` and `port`, or at a free port for 0: `serve_forever` does until `shutdown`
    is called from another thread, and `server_close` frees the port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, decoder: Decoder, host: str = "127.0.0.1", port: int = 8000):
        self.batching = Batching(decoder)  # first, as a server that cannot listen is closed at once
        try:
            super().__init__((host, port), Handler)
        except (OSError, UnicodeError, OverflowError) as error:
            self.batching.close()
            raise OSError(f"host: cannot listen at {host}, port {port} ({error})") from None
        self.model = f"specsim-{decoder.pair.digest[:8]}"
        #: when the request of a connection has to be there, and the call that is decoded for it
        self.coming: dict[socket.socket, float] = {}
        self.waiting: dict[socket.socket, _Pending] = {}

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def service_actions(self) -> None:
        """Hang up on requests that do not come, and drop those whose client has gone: twice a second."""
        for connection, end in [*self.coming.items()]:
            if time.monotonic() > end:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        with selectors.DefaultSelector() as silent:
            for connection, pending in [*self.waiting.items()]:
                with suppress(OSError, ValueError):  # it has been closed meanwhile
                    silent.register(connection, selectors.EVENT_READ, pending)
            for key, _ in silent.select(0):
                with suppress(OSError):
                    if key.fileobj.recv(1, socket.MSG_PEEK):  # type: ignore[union-attr]  # a socket
                        continue
                self.batching.drop(key.data)

    def server_close(self) -> None:
        super().server_close()
        self.batching.close()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    server_version = f"specsim/{specsim_version()}"
    sys_version = ""

    def handle_one_request(self) -> None:
        self.server.coming[self.connection] = time.monotonic() + PATIENCE
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):  # the client has gone
            self.close_connection = True
        finally:
            self.server.coming.pop(self.connection, None)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, b"")
        elif self.path == "/v1/models":
            model = {"id": self.server.model, "object": "model", "owned_by": "specsim"}
            self._send_json(200, {"object": "list", "data": [model]})
        elif self.path == "/version":
            self._send_json(200, {"version": specsim_version()})
        elif self.path == "/metrics":
            self._send(200, self._metrics().encode(), "text/plain; version=0.0.4")
        else:
            self._send_error(ApiError(404, f"there is no {self.path}; POST to {COMPLETIONS}"))

    def do_POST(self) -> None:
        try:
            body = self._body()
            if self.path not in (COMPLETIONS, CHATS):
                raise ApiError(404, f"there is no {self.path}; POST to {COMPLETIONS} or {CHATS}")
            self._complete(body, self.path == CHATS)
        except ApiError as error:
            self._send_error(error)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self._send_error(ApiError(500, f"{type(error).__name__}: {error}"))

    def _body(self) -> bytes:
        if not (length := self.headers.get("Content-Length", "")).isdecimal():
            self.close_connection = True
            raise ApiError(411, "the header Content-Length is missing")
        if len(length) > MOST_DIGITS or int(length) > MOST_BYTES:
            self.close_connection = True
            raise ApiError(413, f"a body of {length[:MOST_DIGITS]} bytes; at most {MOST_BYTES} are read")
        body = self.rfile.read(int(length))
        self.server.coming.pop(self.connection, None)
        return body

    def _complete(self, body: bytes, chat: bool) -> None:
        batching, model = self.server.batching, self.server.model
        pair = batching.decoder.pair
        call = read_call(body, pair, model, chat)
        self.server.waiting[self.connection] = pending = batching.begin(call.requests)
        try:
            answers = pending.answer.result()
        finally:
            del self.server.waiting[self.connection]
        name = f"{'chat' * chat}cmpl-{secrets.token_hex(8)}"
        if not call.stream:
            self._send_json(200, write_answer(call, answers, pair, model, name))
            return
        lines = [f"data: {json.dumps(event)}\n\n" for event in write_events(call, answers, pair, model, name)]
        self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

    def _metrics(self) -> str:
        totals, label = self.server.batching.decoder.totals, f'{{model_name="{self.server.model}"}}'
        return "".join(
            f"# TYPE {name.removesuffix('_total')} counter\n{name}{label} {totals[counted]}\n"
            for name, counted in METRICS.items()
        )

    def _send_json(self, status: int, content: Any) -> None:
        self._send(status, json.dumps(content).encode(), "application/json")

    def _send_error(self, error: ApiError) -> None:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        about = {"message": str(error), "type": kind, "param": error.parameter, "code": error.status}
        self._send_json(error.status, {"error": about})

    def _send(self, status: int, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
