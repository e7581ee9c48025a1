"""Tests whether the tokens of served responses follow the log-probabilities that were logged with them.

docs/statistics.md has the method under "Served responses": bins, tolerance, and tokens that were not logged.
There is no table of accepted tokens, since these alone follow another distribution than p.

A row is known by its most probable tokens. Those that are surely listed, whatever token was emitted, are
cells, but for the least probable of them; all other tokens are one cell. So the row alone fixes the cells.
Ordered by probability they divide [0, 1), and the emitted token's cell is mapped to a random point of its
share: if the token was drawn from the row, that is uniform on [0, 1). Tokens of equal probability share a
cell, since their order could depend on what was emitted."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from specsim.core._json import log_files, read_lines
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._streams import Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core._types import Floats, Ints, check_between, check_choice, checked
from specsim.core.stats import chi_square, detectable_tv, log_e_value
from specsim.served._logs import result
from specsim.served._logs.texts import Conditions, Place, Text, Token, read_texts, unseen_tokens

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
        p = np.full((len(part), max(len(row.logprobs) for row in part)), -np.inf)
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


def is_argmax(place: Place, tolerance: float) -> bool:
    """Whether no listed token is more probable than the emitted one."""
    top = place.top or []
    own = place.logprob if place.logprob is not None else dict(top).get(place.token, -math.inf)
    return all(logprob <= own + tolerance for _, logprob in top)


#: Unreadable lines that are named.
NAMED = 5
WRONG_INPUT = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


@checked
@shows_progress("audit", "B")
def audit_served(
    path: str | Path,
    *,
    logprobs: str = "raw",
    temperature: float | None = None,
    tolerance: float = 1e-5,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> result.ServedAudit:
    """Test the tokens of logged responses of a server against their own logged log-probabilities.

    One pass reads JSON Lines of responses of the OpenAI interface, vLLM, SGLang or llama.cpp, with lists of
    the most probable tokens. The false-alarm probability is at most 1e-6, if texts are drawn independently.

    Parameters
    ----------
    path : path
        A file, or a folder with files that end in .jsonl or .ndjson.
    logprobs : {"raw", "processed"}
        Log-probabilities before or after temperature, truncation and penalties. Raw ones are tested where the
        request changes nothing: at temperature 1, or 0.
    temperature : float, optional
        The temperature of requests that do not have one in the log.
    tolerance : float
        The largest error of logged log-probabilities, in nats, from 0 to 0.1.
    rng : int, Generator or None
        The seed of the places of tokens within their cells.
    progress : bool or callable, optional
        As in `specsim.simulate`, in bytes.

    Returns
    -------
    ServedAudit

    Raises
    ------
    ValueError
        For arguments out of range, or a log without any response.
    OSError
        If the file is missing or cannot be read.

    Examples
    --------
    >>> import json, tempfile
    >>> top = {"a": -0.6931472, "b": -0.6931472}
    >>> logprobs = {"tokens": ["a"], "token_logprobs": [-0.6931472], "top_logprobs": [top]}
    >>> choice = {"logprobs": logprobs, "finish_reason": "length"}
    >>> line = json.dumps({"request": {"temperature": 1, "logprobs": 2}, "choices": [choice]})
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     print(line, file=file, flush=True)
    ...     found = audit_served(file.name)
    >>> found.places, str(found.verdict)
    (1, 'inconclusive')
    """
    check_choice("logprobs", logprobs, ("raw", "processed"))
    check_between("tolerance", tolerance, 0.0, 0.1, "number of nats")
    if temperature is not None:
        check_between("temperature", temperature, 0.0, math.inf, "number")
    root = root_of(rng)
    counts = Counts(Conditions(logprobs == "processed", temperature), tolerance, root)
    for line in read_lines(log_files(Path(path)), told(progress)):
        counts.read(line.place, line.record, line.problem)
    if not counts.responses:
        first = f"; the first: {counts.named[0]}" if counts.named else ""
        raise ValueError(f"{path}: none of {counts.unreadable:,} lines is a response; log them whole{first}")
    return result.ServedAudit(
        texts=counts.texts,
        places=int(counts.bins.sum()),
        logprobs=logprobs,
        tolerance=tolerance,
        tables=tuple(counts.tables()),
        rare=tuple(counts.rare_tokens()),
        impossible=counts.impossible,
        greedy=counts.greedy,
        not_greedy=counts.not_greedy,
        wrong=tuple(result.Contradiction(what, *found) for what, found in counts.wrong.items()),
        untested={why: (counts.left_out[why], counts.left_places[why]) for why in counts.left_places},
        unreadable=counts.unreadable,
        named=tuple(counts.named),
        root=root,
        nearby=counts.lists.averages(),
    )


class Counts:
    def __init__(self, conditions: Conditions, tolerance: float, root: int) -> None:
        self.conditions, self.tolerance, self.key = conditions, tolerance, key_of(root)
        self.lists = Lists(tolerance)
        self.bins = np.zeros((result.PLACES, result.BINS), dtype=np.int64)
        self.steps = np.zeros((result.POSITIONS, result.BINS), dtype=np.int64)
        self.rare = np.zeros(len(result.RARE), dtype=np.int64)
        self.unseen, self.unseen_steps = np.zeros(result.PLACES, dtype=np.int64), 0
        self.all_unseen = self.drawn = self.responses = self.texts = 0
        self.impossible = self.greedy = self.not_greedy = self.unreadable = 0
        self.wrong: dict[str, tuple[int, str]] = {}
        self.left_out, self.left_places = Counter[str](), Counter[str]()
        self.named: list[str] = []

    def read(self, place: str, record: Any, problem: str) -> None:
        """Add a line. One without a response counts as unreadable, whatever of it could be read."""
        if not problem:
            try:
                texts = list(read_texts(record))
                greedy = [self.conditions.greedy(text) for text in texts]
            except WRONG_INPUT as error:
                problem = _reason(error)
        if problem:
            self.unreadable += 1
            self.named += [f"{place}: {problem}"] * (len(self.named) < NAMED)
            return
        self.responses += 1
        for text, cold in zip(texts, greedy, strict=True):
            self._add(text, cold, place)

    def _add(self, text: Text, greedy: bool, place: str) -> None:
        why = self.conditions.objection(text, place)
        for what, number in contradictions(text, self.tolerance, greedy):
            places, first = self.wrong.get(what, (0, place))
            self.wrong[what] = places + number, first
            why = "log-probabilities that contradict themselves"
        if why:
            self._leave_out(why, text)
            return
        assert text.places is not None
        if greedy:
            self.greedy += len(text.places)
            self.not_greedy += sum(not is_argmax(one, self.tolerance) for one in text.places)
            return
        if (rows := self.lists.rows(text)) is None:
            self._leave_out("lists of strings that are those of several tokens; log the ids", text)
        else:
            self._count(text, rows)

    def _leave_out(self, why: str, text: Text) -> None:
        self.left_out[why] += 1
        self.left_places[why] += len(text.places or ())

    def _count(self, text: Text, rows: list[Row]) -> None:
        assert text.places is not None
        self.texts += 1
        self.impossible += sum(one.logprob is not None and one.logprob < NEVER for one in text.places)
        self.lists.compare(text.places)
        number = np.arange(len(text.places))
        places = np.minimum(_bit_lengths(number), result.PLACES - 1)
        positions = _positions(text, len(number))
        for part, batch in batches(rows):
            u = uniforms(self.key, int(Purpose.COUNT), self.drawn, len(batch.p), 1)[0]
            self.drawn += len(batch.p)
            image, testable = images(batch, u)
            bins = np.minimum((image * result.BINS).astype(np.int64), result.BINS - 1)
            np.add.at(self.bins, (places[part][testable], bins[testable]), 1)
            known = testable & (positions[part] >= 0)
            np.add.at(self.steps, (positions[part][known], bins[known]), 1)
            for i, probability in enumerate(result.RARE):
                self.rare[i] += int((image[testable] >= 1 - probability).sum())
            if not testable.all():
                self.left_places["lists too short, or with tokens that read alike"] += int((~testable).sum())
        if unseen := unseen_tokens(text):
            ends = _bit_lengths(np.array([len(number), len(number) + unseen - 1]))
            self.unseen[np.unique(np.minimum(ends, result.PLACES - 1))] += unseen
            self.all_unseen += unseen
            self.unseen_steps += unseen * bool((positions >= 0).any())

    def tables(self) -> Iterator[result.ServedTable]:
        yield from self._table("all", self.bins.sum(axis=0), self.all_unseen)
        for i, counts in enumerate(self.bins):
            first, end = 1 if i == 0 else 2 ** (i - 1) + 1, None if i == result.PLACES - 1 else 2**i
            yield from self._table(_name("place", first, end), counts, int(self.unseen[i]))
        for i, counts in enumerate(self.steps):
            last = None if i == result.POSITIONS - 1 else i + 1
            yield from self._table(_name("position in the step", i + 1, last), counts, self.unseen_steps)

    def _table(self, name: str, counts: Ints, unseen: int) -> Iterator[result.ServedTable]:
        if not (n := int(counts.sum())):
            return
        law, filled = np.full(result.BINS, 1 / result.BINS), _level(counts, unseen)
        tolerance = (result.BINS + 1) * self.tolerance
        log_e = log_e_value(filled, law, tolerance) / math.log(10)
        detectable = detectable_tv(result.BINS, n, result.LEVEL) + math.tanh(tolerance / 2) + unseen / n
        p_value = chi_square(filled, law).p_value
        yield result.ServedTable(name, tuple(counts.tolist()), unseen, log_e, p_value, min(1.0, detectable))

    def rare_tokens(self) -> Iterator[result.RareTokens]:
        """The exact binomial tests; an unseen token may or may not have been rare."""
        n = int(self.bins.sum())
        for probability, emitted in zip(result.RARE, self.rare.tolist(), strict=True) if n else ():
            most = min(1.0, probability * math.exp(self.tolerance) + self.tolerance)
            least = max(0.0, probability * math.exp(-self.tolerance) - self.tolerance)
            upper = scipy.stats.binom.sf(emitted - 1, n + self.all_unseen, most)
            lower = scipy.stats.binom.cdf(emitted + self.all_unseen, n + self.all_unseen, least)
            yield result.RareTokens(probability, emitted, n, float(min(1.0, 2 * min(upper, lower))))


def _reason(error: Exception) -> str:
    """Why a line is not a response, without the line's own words at length."""
    if isinstance(error, KeyError):
        return f"lacks the field {ascii(error.args[0])[:80]}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, ValueError):
        return ascii(str(error))[1:-1][:200]
    return "has a field of another kind than servers write"


def _level(counts: Ints, unseen: int) -> Ints:
    """`counts` with `unseen` more, which make them as equal as possible."""
    filled = np.sort(counts)
    sizes = np.arange(1, len(filled) + 1)
    need = sizes * filled - np.cumsum(filled)  # to fill the lowest up to each
    many = int(np.searchsorted(need, unseen, side="right"))
    share, rest = divmod(int(filled[:many].sum()) + unseen, many)
    filled[:many] = share
    filled[:rest] += 1
    return filled


def _positions(text: Text, length: int) -> Ints:
    """The position of each token in its step, from 0; -1 where it is not known."""
    unknown = np.full(length, -1, dtype=np.int64)
    if not text.accepted:
        return unknown
    emitted = [accepted + 1 for accepted in text.accepted]
    if not 1 <= length - 1 - sum(emitted[:-1]) <= emitted[-1]:  # some tokens come from no counted step
        return unknown
    found = np.concatenate([[-1], *(np.arange(min(number, length)) for number in emitted)])[:length]
    return np.minimum(found, result.POSITIONS - 1)


def _bit_lengths(numbers: Ints) -> Ints:
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _name(kind: str, first: int, last: int | None) -> str:
    if last is None:
        return f"{kind} {first:,} and on"
    return f"{kind} {first:,}" if first == last else f"{kind} {first:,} – {last:,}"
