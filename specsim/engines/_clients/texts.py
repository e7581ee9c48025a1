"""Servers whose tokens are not known beforehand: prompts are texts, and what comes back is read in every form
in which the server gives it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from specsim.engines._clients.answers import GarbageError, read_choices
from specsim.engines._clients.http import HttpServer
from specsim.engines._clients.writing import TEXT_DIALECTS, Dialect, write_request
from specsim.engines._planted.requests import Completion, Request
from specsim.traces._responses import id_in, token_ids

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

    def _write(self, request: Request, dialect: Dialect) -> bytes:
        assert isinstance(request, TextRequest)
        return write_request(request, request.text, self._model, dialect, self._header)

    def _read(self, answer: dict[str, Any], request: Request, seconds: float) -> Sequence[Completion]:
        return [
            TextCompletion(tokens=(), forms=_forms(choice, request, f"choice {about['index']}"), **about)
            for about, choice in read_choices(answer, request, seconds)
        ]


def _forms(choice: dict[str, Any], request: Request, where: str) -> dict[str, Pieces]:
    """The text of a choice in the forms that are given. Raises GarbageError."""
    text = choice.get("text")
    if not isinstance(text, str):
        raise GarbageError(f"{where}: the text is {type(text).__name__}, not a string")
    words = islice(WORD.finditer(text), request.max_tokens)
    forms: dict[str, Pieces] = {FORMS[2]: tuple(found[0][:LONGEST] for found in words)}
    strings = _strings(choice.get("logprobs"))
    ids = token_ids(choice)
    if strings is not None:
        forms[FORMS[1]] = tuple(name[:LONGEST] for name in strings)
        named = [i for name in strings if (i := id_in(name)) is not None and i < 2**31]
        ids = named if ids is None and 0 < len(named) == len(strings) else ids
    if ids is not None:
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 2**31 for i in ids):
            raise GarbageError(f"{where}: token ids are not a list of ids")
        forms[FORMS[0]] = tuple(ids)
    for name in forms.keys() & FORMS[:2]:
        if len(forms[name]) > request.max_tokens + 1:  # the end of a text may be among them
            raise GarbageError(f"{where}: {len(forms[name])} {name} for max_tokens {request.max_tokens}")
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
