"""Any server with OpenAI's completions: vLLM, SGLang, llama.cpp, TensorRT-LLM, MLX-LM, specsim."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

from specsim.core._types import check_count, check_seconds
from specsim.engines._clients import answers
from specsim.engines._clients.running import Answers
from specsim.engines._clients.writing import DIALECTS, TEXT_DIALECTS, Dialect, fields_of
from specsim.engines._planted.requests import CHATS, COMPLETIONS, Completion, FailedError, Failure, Request
from specsim.engines._planted.served_pair import Pair
from specsim.simulation._counting import side_by_side
from specsim.traces._responses import id_in, token_ids

#: Seconds for an answer that is no text, such as the list of models, and for a text after the deadline.
GET_SECONDS, LEAST_SECONDS = 5.0, 0.5
#: Where servers give their version: vLLM and specsim, SGLang, llama.cpp.
VERSIONS = (("/version", "version"), ("/get_server_info", "version"), ("/props", "build_info"))
#: What serves HTTP in vLLM and SGLang; they give their own names as the owner of the model.
WEB_SERVERS = {"", "uvicorn"}
#: Statuses after which a request is sent again, and the first of the growing pauses, in seconds.
BUSY, PAUSE = {429, 502, 503, 504}, 0.2
#: Statuses of a server that refuses how a request is written; kinds of failure that a status tells.
REFUSED, KINDS = {400, 404, 415, 422}, {400: "refused", 422: "refused", 500: "crash"}


class _StatusError(FailedError):
    def __init__(self, status: int, text: str):
        super().__init__(KINDS.get(status, "http"), f"status {status}: {text}")
        self.status = status


class HttpServer:
    """A server at an address; subclasses say how requests are written and answers are read.

    Of `url` a path before /v1 is kept; with /v1/chat/completions at its end requests are chats. `model` is by
    default the first that the server lists; `connections` requests are under way at once. `timeout` is for a
    whole answer, in seconds; `retries` is how often a request is sent again that did not reach the server, or
    that a busy server refused. Raises ValueError or TypeError for an address that is not one of HTTP, or
    numbers out of range.

    `deadline` is a time of `time.perf_counter`: a request that is under way then may still take twice as long
    as the slowest answer before."""

    deadline: float | None = None
    #: Ways to write requests, the best one first.
    _dialects: tuple[Dialect, ...]

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        connections: int = 8,
        timeout: float = 60.0,
        retries: int = 4,
    ):
        place = urlsplit(url)
        port = place.port  # raises ValueError for a wrong number
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"url: {url!r} is not an address such as http://localhost:8000")
        check_seconds("timeout", timeout)
        # a part of the address before /v1 is kept, and what is asked for may be at its end
        path = place.path.rstrip("/")
        if path.endswith(CHATS):
            self._dialects = tuple(one for one in self._dialects if one.chat)
        self._base = path.removesuffix(CHATS).removesuffix("/completions").removesuffix("/v1")
        self._place, self._port = place, port
        self._model = model
        self._connections = check_count("connections", connections)
        self._timeout, self._retries = float(timeout), check_count("retries", retries, 0)
        self.url = f"{place.scheme}://{place.netloc}{self._base}"
        self._own = threading.local()
        self._open: list[http.client.HTTPConnection] = []
        self._stopping = threading.Event()
        self._lock, self._naming = threading.Lock(), threading.Lock()
        self._dialect: Dialect | None = None
        self._named: str | None = None
        self._header, self._owner, self._reached, self._absent = "", "", False, False
        self._slowest, self._silent = 0.0, False

    def _fields(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        raise NotImplementedError

    def _read(self, answer: dict[str, Any], request: Request, seconds: float) -> Sequence[Completion]:
        """The completions in an answer. Raises GarbageError."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The server's software, as far as it says."""
        self._probe()
        return self._software

    @property
    def _software(self) -> str:
        software = self._header.partition("/")[0]
        return (self._owner if software in WEB_SERVERS else "") or software or "http"

    @property
    def version(self) -> str:
        for path, key in VERSIONS:
            with suppress(FailedError):
                if isinstance(found := self._get_json(path).get(key), str):
                    return found
        return self._header or "unknown"

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "version": self.version,
            "url": self.url,
            "model": self._model or self._probe(),
            "prompts": self._dialect and self._dialect.name,
            "logprobs": None,  # the protocol does not say whether they are those of processed rows
        }

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        executor = ThreadPoolExecutor(self._connections)
        try:
            found = side_by_side(self._answer, requests, executor, 2 * self._connections)
            yield from chain.from_iterable(found)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            self._stopping.set()  # whoever reads this may have stopped reading
            for connection in [*self._open]:
                _hang_up(connection)
            executor.shutdown()
            self.close()
            self._stopping.clear()

    def counters(self) -> dict[str, int] | None:
        try:
            return answers.read_counters(self._send("GET", "/metrics")[1].decode("utf-8", "replace"))
        except FailedError:
            return None

    def close(self) -> None:
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()
            self._own = threading.local()

    def _probe(self) -> str | None:
        """The name of the first model that the server lists; None if it lists none. Notes its owner."""
        try:
            listed = self._get_json("/v1/models").get("data")
        except FailedError:
            return None
        first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
        model, owner = first.get("id"), first.get("owned_by")
        self._owner = owner[:80] if isinstance(owner, str) else ""
        return model if isinstance(model, str) else None

    def _answer(self, request: Request) -> Answers:
        """What the server answers, or the failure of one request."""
        started = time.perf_counter()
        try:
            answer = answers.read_json(self._post(request))
            self._check_model(answer)
            seconds = time.perf_counter() - started
            self._slowest = max(self._slowest, seconds)
            return [*self._read(answer, request, seconds)]
        except FailedError as error:
            return [Failure(request.number, error.kind, str(error))]

    def _check_model(self, answer: dict[str, Any]) -> None:
        """Note the model of the first answer; raise FailedError if another one answers."""
        if not isinstance(model := answer.get("model"), str):
            return
        with self._lock:
            if self._named is None:
                self._named = model
            if model != self._named:
                raise FailedError("changed", f"model {model[:80]!r}; the first answer was {self._named!r}")

    def _post(self, request: Request) -> bytes:
        """The body of the answer, in the first dialect that the server accepts."""
        with self._naming:  # the first requests wait until it is known how to name the model
            if not self._reached:
                self._model = self._model or self._probe()
        known = self._dialect
        refusal: _StatusError | None = None
        for dialect in self._dialects if known is None else (known,):
            payload = json.dumps(self._fields(request, dialect)).encode()
            try:
                path = CHATS if dialect.chat else COMPLETIONS
                body = self._send_again(path, payload, answers.most_bytes(request))
            except _StatusError as error:
                if known is not None or error.status not in REFUSED:
                    raise
                refusal = refusal or error
                continue
            self._dialect = dialect
            return body
        assert refusal is not None  # every dialect was refused
        raise refusal

    def _get_json(self, path: str) -> dict[str, Any]:
        return answers.read_json(self._send("GET", path)[1])

    def _send_again(self, path: str, payload: bytes, most: int) -> bytes:
        """POST until there is an answer; only what brought none is sent again."""
        # where one request has not found a server in all its tries, the others do not wait for it
        retries = 0 if self._absent and not self._reached else self._retries
        for left in range(retries, -1, -1):
            if self._stopping.is_set():
                raise FailedError("connection", "the engine was closed")
            try:
                status, body = self._send("POST", path, payload, most)
            except FailedError as error:
                if error.kind != "connection" or not left:
                    self._absent = error.kind == "connection"
                    raise
            else:
                if status == 200:
                    return body
                if status not in BUSY or not left:
                    raise _StatusError(status, answers.error_message(body))
            self._stopping.wait(PAUSE * 2 ** (retries - left))
        raise AssertionError("the last try returns or raises")

    def _patience(self, payload: bytes | None) -> float:
        """The seconds that a request may take; 0 for one that is not text, after one without answer."""
        if payload is None:
            return 0.0 if self._silent else min(self._timeout, GET_SECONDS)
        if self.deadline is None:
            return self._timeout
        left = max(0.0, self.deadline - time.perf_counter())
        return min(self._timeout, left + max(LEAST_SECONDS, 2 * self._slowest))

    def _send(
        self, method: str, path: str, payload: bytes | None = None, most: int = answers.MOST_BYTES
    ) -> tuple[int, bytes]:
        """Exchange once, in `_patience` seconds: the status, and at most `most` bytes of the body."""
        connection, patience = self._connection(), self._patience(payload)
        late = threading.Event()
        clock = threading.Timer(patience, _hang_up, (connection, late))
        clock.daemon = True
        try:
            if not patience:
                raise TimeoutError
            if connection.sock is None:
                connection.timeout = patience
                connection.connect()
            clock.start()
            headers = {"Content-Type": "application/json"} if payload else {}
            connection.request(method, self._base + path, payload, headers)
            response = connection.getresponse()
            body = response.read(most + 1)
            if late.is_set():
                raise TimeoutError
            self._header, self._reached = response.getheader("Server", "")[:80] or self._header, True
            self._silent = False
            if response.length and len(body) <= most:
                raise http.client.IncompleteRead(body, response.length)
            if len(body) > most and response.status == 200:
                raise answers.GarbageError(f"an answer of more than {most:,} bytes")
            if response.will_close or len(body) > most:
                connection.close()
            return response.status, body
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            if late.is_set() or isinstance(error, TimeoutError):
                self._silent = True
                message = f"no whole answer from {self.url} in {patience:.3g} seconds"
                raise FailedError("timeout", message) from None
            garbage = isinstance(error, http.client.BadStatusLine | ValueError)
            kind = "garbage" if garbage and not isinstance(error, ConnectionError) else "connection"
            raise FailedError(kind, f"{self.url}: {type(error).__name__}: {error}") from None
        except FailedError:
            connection.close()
            raise
        finally:
            clock.cancel()

    def _connection(self) -> http.client.HTTPConnection:
        if not hasattr(self._own, "connection"):
            secure = self._place.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._own.connection = kind(self._place.hostname or "", self._port, timeout=self._timeout)
            with self._lock:
                self._open.append(self._own.connection)
        return self._own.connection


class HttpEngine(HttpServer):
    """A server that holds a planted checkpoint of `pair`. Whether it is `speculative`, and with drafts of
    `gamma` tokens, is only noted; the other options are those of `HttpServer`."""

    _dialects = DIALECTS

    def __init__(
        self,
        url: str,
        pair: Pair,
        *,
        speculative: bool = True,
        gamma: int | None = None,
        model: str | None = None,
        connections: int = 8,
        timeout: float = 60.0,
        retries: int = 4,
    ):
        super().__init__(url, model=model, connections=connections, timeout=timeout, retries=retries)
        self._pair, self._speculative = pair, speculative
        self._gamma = None if gamma is None else check_count("gamma", gamma)

    def describe(self) -> dict[str, Any]:
        gamma = {} if self._gamma is None else {"gamma": self._gamma}
        return super().describe() | {"speculative": self._speculative} | gamma

    def _fields(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        prompt = list(request.prompt) if dialect.token_ids else self._pair.decode(request.prompt)
        return fields_of(request, prompt, self._model, dialect, self._software, self._pair)

    def _read(self, answer: dict[str, Any], request: Request, seconds: float) -> Sequence[Completion]:
        return answers.read_completions(answer, request, self._pair, seconds)


# Servers whose tokens are not known beforehand: prompts are texts, and answers are read in all their forms.

#: Forms of a text, the most telling one first.
FORMS = ("token ids", "token strings", "words of the text")
#: A word or a character with the space before it: what a token of a text may be.
WORD = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
#: Characters of a token that are kept.
LONGEST = 64

Pieces = tuple[int | str, ...]


@dataclass(frozen=True)
class TextRequest(Request):
    """A request whose prompt is `text`; it has no ids here."""

    text: str = ""


@dataclass(frozen=True)
class TextCompletion(Completion):
    """A completion whose tokens are given in some of `FORMS`; `tokens` stays empty."""

    forms: Mapping[str, Pieces] = field(default_factory=dict)


class TextServer(HttpServer):
    """A server that is asked by text. It answers each `TextRequest` by a `TextCompletion`."""

    _dialects = TEXT_DIALECTS

    def _fields(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        assert isinstance(request, TextRequest)
        return fields_of(request, request.text, self._model, dialect, self._software)

    def _read(self, answer: dict[str, Any], request: Request, seconds: float) -> Sequence[Completion]:
        return [
            TextCompletion(tokens=(), forms=_forms(choice, request, f"choice {about['index']}"), **about)
            for about, choice in answers.read_choices(answer, request, seconds)
        ]


def _forms(choice: dict[str, Any], request: Request, where: str) -> dict[str, Pieces]:
    """The text of a choice in the forms that are given. Raises GarbageError."""
    if not isinstance(text := choice.get("text"), str):
        raise answers.GarbageError(f"{where}: the text is {type(text).__name__}, not a string")
    words = islice(WORD.finditer(text), request.max_tokens)
    forms: dict[str, Pieces] = {FORMS[2]: tuple(found[0][:LONGEST] for found in words)}
    ids = token_ids(choice)
    if (strings := _strings(choice.get("logprobs"))) is not None:
        forms[FORMS[1]] = tuple(name[:LONGEST] for name in strings)
        named = [i for name in strings if (i := id_in(name)) is not None and i < 2**31]
        ids = named if ids is None and 0 < len(named) == len(strings) else ids
    if ids is not None:
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 2**31 for i in ids):
            raise answers.GarbageError(f"{where}: token ids are not a list of ids")
        forms[FORMS[0]] = tuple(ids)
    for name in forms.keys() & FORMS[:2]:
        if len(forms[name]) > request.max_tokens + 1:  # the end of a text may be among them
            raise answers.GarbageError(f"{where}: {len(forms[name])} {name}, max_tokens {request.max_tokens}")
    return forms


def _strings(logprobs: Any) -> tuple[str, ...] | None:
    """The tokens that are named in log-probabilities; None without them."""
    if not isinstance(logprobs, dict):
        return None
    names = logprobs.get("tokens")
    if isinstance(content := logprobs.get("content"), list):
        names = [entry.get("token") if isinstance(entry, dict) else None for entry in content]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)


def common_form(texts: Sequence[TextCompletion]) -> str:
    """The most telling form that all `texts` have."""
    return next(form for form in FORMS if all(form in one.forms for one in texts))


def _hang_up(connection: http.client.HTTPConnection, late: threading.Event | None = None) -> None:
    """End whatever waits for the connection, after noting in `late` that it took too long."""
    if late is not None:
        late.set()
    with suppress(OSError, AttributeError):  # it is not connected, or not any more
        connection.sock.shutdown(socket.SHUT_RDWR)
