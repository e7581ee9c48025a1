"""Lines of the most usual forms, decoded by msgspec as these types; what is another form raises ValueError.

Fields that no type has are skipped, so that no object is made of them."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from msgspec.json import Decoder, decode

from specsim.core._types import MOST_TOKENS, Floats
from specsim.traces import _responses
from specsim.traces._responses import Column, Logged

#: What names the id of a token, if a trace can have it.
Key = Annotated[int, Meta(ge=0, lt=MOST_TOKENS)]


class Scored(Struct, gc=False):
    """What a prompt lists under an id."""

    logprob: float


class Named(Scored, gc=False):
    """The same with the token's string."""

    decoded_token: str | None = None


class Listed(Struct, gc=False):
    """A token of a chat; llama.cpp also writes probabilities, which are read elsewhere."""

    token: str
    logprob: float
    id: Any = None
    probs: None = None
    top_probs: None = None
    top_logprobs: "list[Listed] | None" = None


class Given(Struct):
    """Log-probabilities of a chat, or of a completion."""

    content: list[Listed] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class Record(Struct):
    """A choice, or what has it."""

    choices: "Sequence[Record]" = []
    prompt_logprobs: Sequence[Mapping[Key, Scored] | None] | None = None
    prompt_token_ids: Any = None
    logprobs: Given | None = None
    document: Any = None

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


class NamedRecord(Record):
    choices: "Sequence[NamedRecord]" = []
    prompt_logprobs: Sequence[Mapping[Key, Named] | None] | None = None


def read_logprobs(choice: Record) -> Logged | None:
    """As `_responses.read_logprobs`, and None for a completion whose lists differ in length."""
    given = choice.logprobs
    if given is None:
        return None
    if given.content is not None:
        lists = [one.top_logprobs or () for one in given.content]
        listed = _column([*chain.from_iterable(lists)])
        return Logged(_column(given.content), [0, *accumulate(map(len, lists))], listed)
    own, names = given.token_logprobs, given.tokens
    tops = [one or {} for one in given.top_logprobs or [None] * len(own or ())]
    if own is None or names is None or not len(own) == len(names) == len(tops):
        return None
    strings = [*chain.from_iterable(tops)]
    values = np.fromiter(chain.from_iterable(map(dict.values, tops)), np.float64, len(strings))
    column = Column(strings, None, values)
    return Logged(Column(names, None, own), [0, *accumulate(map(len, tops))], column, True)


def logprobs(entries: Sequence[Scored | Listed]) -> Floats:
    return np.array([one.logprob for one in entries], np.float64)


def _column(entries: Sequence[Listed]) -> Column:
    ids = [one.id for one in entries]
    names = [one.token for one in entries]
    return Column(names, None if ids.count(None) == len(ids) else ids, logprobs(entries))


#: What decodes a line and what reads its choices, of these types and of any JSON, with and without strings.
FORMS = {
    strings: ((Decoder(kind).decode, read_logprobs), (decode, _responses.read_logprobs))
    for strings, kind in ((False, Record), (True, NamedRecord))
}
