"""From a text to the places that can be tested, and from these to uniforms.

A row is known by its most probable tokens. Those that are surely listed, whatever token was emitted, are
cells, but for the least probable of them; all other tokens are one cell. So the row alone fixes the cells.
Ordered by probability they divide [0, 1), and the emitted token's cell is mapped to a random point of its
share: if the token was drawn from the row, that is uniform on [0, 1). Tokens of equal probability share a
cell, since their order could depend on what was emitted."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.served._logs.texts import Place, Text, Token

#: Log-probability below which a probability is 0: servers write -9999 for -inf.
NEVER = -745.0
#: Tokens of a text that are all of probability 1 if its log-probabilities are to be doubted.
CERTAIN = 8
#: Mass of a list that is taken for all of its row.
WHOLE = 1 - 1e-4
#: Logged probabilities that are looked at together.
AT_ONCE = 2**20


class Row(NamedTuple):
    """The list of a place."""

    logprobs: list[float]
    own: int  #: which of them is the emitted token's, -1 for none
    known: int  #: how many of the most probable tokens are surely listed
    shared: list[bool]  #: which entries may be those of several tokens


class Lists:
    """Reads lists of texts. Completions list k tokens, k + 1 if the emitted one is not among the top k, and
    fewer where tokens that read alike have taken each other's place."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self._lengths: set[int] = set()
        self._ambiguous = False
        #: Sums of the probabilities of tokens by the lists before, of their place, and after, of the last of
        #: these if tokens follow it, and how many.
        self.nearby, self.compared = np.zeros(4), 0

    def compare(self, places: list[Place]) -> None:
        """Add to `nearby`, without the ends. Of lists that do not depend on the tokens their own have the
        largest sum in expectation, by the inequality of Cauchy and Schwarz."""
        lists = [dict(place.top or ()) for place in places]
        near = zip(places[1:-1], lists, lists[1:], lists[2:], strict=False)
        found = [[one.get(place.token, -math.inf) for one in three] for place, *three in near]
        self.nearby[:3] += np.exp(np.minimum(np.array(found).reshape(-1, 3), 0.0)).sum(axis=0)
        self.nearby[3] += sum(math.exp(2.0 * min(x, 0.0)) for one in lists[2:] for x in one.values())
        self.compared += len(found)

    def averages(self) -> tuple[float, float, float]:
        """Those of `nearby`; 0 for the lists after where they know the token, as in texts that repeat
        themselves: its probability by them is four standard deviations above that if it followed them."""
        before, own, after, likely = (self.nearby / max(1, self.compared)).tolist()
        return before, own, after * (after <= likely + 2.0 / math.sqrt(max(1, self.compared)))

    def rows(self, text: Text) -> list[Row] | None:
        """The rows of a text; None from the first text on in which tokens have taken each other's place:
        leaving out just those texts would favour some tokens."""
        rows = [self._row(place, text.spare) for place in text.places or []]
        if not text.extra or not rows:
            return rows
        declared = text.parameters.get("logprobs")
        if type(declared) is int and declared > 0:
            lengths = {declared}
        else:
            lengths = {row.known for row in rows if not _is_last(row)}
            self._lengths |= lengths
        if any(isinstance(place.token, str) for place in text.places or []):
            most = max(lengths, default=0)
            cut = (row.logprobs for row in rows if row.known < most)
            self._ambiguous |= any(not sum(math.exp(min(x, 0.0)) for x in logs) > WHOLE for logs in cut)
            if self._ambiguous:
                return None
        lengths = lengths or self._lengths  # of lists that are surely of the top k, the others may have k + 1
        extra = (_is_last(row) and row.known not in lengths and row.known - 1 in lengths for row in rows)
        return [row._replace(known=row.known - one) for row, one in zip(rows, extra, strict=True)]

    def _row(self, place: Place, spare: int) -> Row:
        assert place.top is not None  # by `Conditions.objection`
        own = next((i for i, entry in enumerate(place.top) if _is_own(place, *entry, self.tolerance)), -1)
        shared = _shared([token for token, _ in place.top]) if place.logprob is None else []
        return Row([logprob for _, logprob in place.top], own, len(place.top) - spare, shared)


def _is_own(place: Place, token: Token, logprob: float, tolerance: float) -> bool:
    """Whether an entry of the list is the emitted token's. Strings may be those of several tokens."""
    if token != place.token:
        return False
    return not isinstance(token, str) or place.logprob is None or _agree(place.logprob, logprob, tolerance)


def _agree(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance + 1e-9 or max(one, other) < NEVER


def _is_last(row: Row) -> bool:
    return row.own < 0 or row.logprobs[row.own] <= min(row.logprobs)


def _shared(keys: list[Token]) -> list[bool]:
    """Which strings may be those of several tokens: those met twice, pieces of UTF-8, special tokens."""
    times = Counter(keys)
    return [times[key] > 1 or (isinstance(key, str) and (not key or "\ufffd" in key)) for key in keys]


class Batch(NamedTuple):
    """Rows as arrays: probabilities [n, K] with zeros at the end, own [n], known [n], shared [n, K]."""

    p: Floats
    own: Ints
    known: Ints
    shared: Any


def batches(rows: list[Row]) -> Iterator[tuple[slice, Batch]]:
    """A bounded number of rows at a time: their slice, and them as arrays."""
    first = 0
    while first < len(rows):
        part = rows[first : first + max(1, AT_ONCE // max(1, len(rows[first].logprobs)))]
        width = max(len(row.logprobs) for row in part)
        p = np.full((len(part), width), -np.inf)
        shared = np.zeros(p.shape, dtype=bool)
        for i, row in enumerate(part):
            p[i, : len(row.logprobs)] = row.logprobs
            shared[i, : len(row.shared)] = row.shared
        own, known = (np.array([row[j] for row in part], dtype=np.int64) for j in (1, 2))
        yield slice(first, first + len(part)), Batch(np.exp(p), own, known, shared)
        first += len(part)


def images(batch: Batch, u: Floats) -> tuple[Floats, Any]:
    """The images [n] of the emitted tokens under uniforms `u` [n], and whether their places can be tested."""
    p, places = batch.p, np.arange(len(batch.p))
    least = -np.sort(-p, axis=1)[places, np.maximum(batch.known - 1, 0)]
    head = p > least[:, None]
    mass = np.where(head, p, 0.0).sum(axis=1)
    total = np.maximum(mass, 1.0)
    own = np.where(batch.own >= 0, p[places, batch.own], 0.0)[:, None]
    inside = own[:, 0] > least
    above = np.where(inside, np.where(p > own, p, 0.0).sum(axis=1), mass)
    width = np.where(inside, np.where(p == own, p, 0.0).sum(axis=1), total - mass)
    testable = (batch.known >= 2) & ~(batch.shared & head).any(axis=1)
    return np.minimum((above + u * width) / total, 1.0), testable


def contradictions(text: Text, tolerance: float, greedy: bool) -> Iterator[tuple[str, int]]:
    """What is wrong with the log-probabilities of a text, and at how many places."""
    places = text.places or []
    found = Counter(wrong for place in places if (wrong := _contradiction(place, tolerance)))
    doubted = len(places) >= CERTAIN and not (greedy or found)
    bare = [place.logprob == 0.0 for place in places if place.top is None]
    if 0 < len(bare) < len(places) and any(bare):
        found["0.0, and no list, where other places have one"] += sum(bare)
    elif doubted and all({*_logged(place)} == {0.0} for place in places):
        found["0.0 at every place of a text"] += len(places)
    yield from found.items()


def _logged(place: Place) -> list[float]:
    """All log-probabilities of a place: those of its list, then its own."""
    return [*(x for _, x in place.top or []), *([] if place.logprob is None else [place.logprob])]


def _contradiction(place: Place, tolerance: float) -> str:
    values = _logged(place)
    if any(map(math.isnan, values)):
        return "not a number"
    if any(value > tolerance for value in values):
        return "positive"
    named = [logprob for token, logprob in place.top or [] if token == place.token]
    listed = any(_is_own(place, token, logprob, tolerance) for token, logprob in place.top or [])
    own = place.logprob
    mass = sum(map(math.exp, values)) - (math.exp(own) if own is not None and listed else 0.0)
    if mass > math.exp(tolerance) + 1e-9:
        return "a list with more mass than 1"
    if own is None or not values[:-1]:
        return ""
    if named and not isinstance(place.token, str):
        agreeing = any(_agree(own, logprob, tolerance) for logprob in named)
        return "" if agreeing else "another one than the list has for the token"
    above = not named and own > min(values[:-1]) + tolerance
    return "above those of the list, which lacks the token" if above else ""


def is_impossible(place: Place) -> bool:
    """Whether a token was emitted whose probability is 0."""
    return place.logprob is not None and place.logprob < NEVER


def is_argmax(place: Place, tolerance: float) -> bool:
    """Whether no listed token is more probable than the emitted one."""
    top = place.top or []
    own = place.logprob if place.logprob is not None else dict(top).get(place.token, -math.inf)
    return all(logprob <= own + tolerance for _, logprob in top)
