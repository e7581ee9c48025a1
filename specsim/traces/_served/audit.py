"""Tests whether the tokens of served responses follow the log-probabilities that were logged with them.

At every place, given the text before it, the emitted token must follow the logged row, whatever speculation
did. `places.py` maps it to a uniform, which is counted in equal bins: for the whole text, by place in the
text, and, where the log has the accepted tokens of each step, by position in the step. (Not by whether a
token was accepted: accepted tokens alone follow another law than p.) Rare tokens are counted besides, with
exact binomial tests.

**Tolerance.** Logged log-probabilities are rounded, by up to τ. The law of a bin is then within exp(±17 τ) of
uniform: a listed cell is within exp(±τ), and the cell of all other tokens has the rest, which is off by at
most τ, or 16 τ of a bin. `specsim.core.stats.log_e_value` with that tolerance allows for all such laws.

**Unseen tokens.** Many servers do not log the token that ends a text. The tokens that are logged are then
those that did not end it, which follow another law. As nobody knows the missing token's bin, it is put into
the bin with the fewest: that makes the evidence at most what it would be with the true bin.

The errors of all tests add up to at most `FALSE_ALARM`.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from specsim.core._lines import log_files, read_lines
from specsim.core._streams import Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core._tables import NONE, Piece, Shown, Table, as_dict
from specsim.core._types import Ints
from specsim.core.stats import chi_square, detectable_tv, log_e_value
from specsim.traces._reader import Progress
from specsim.traces._served.conditions import Conditions, unseen_tokens
from specsim.traces._served.formats import Text, read_texts
from specsim.traces._served.places import (
    Lists,
    Row,
    batches,
    contradictions,
    images,
    is_argmax,
    is_impossible,
)

#: The false-alarm probability of an audit.
FALSE_ALARM = 1e-6
BINS = 16
#: Classes of places in a text (1, 2, 3 to 4, 5 to 8, …), and of positions in a step, the last open.
PLACES, POSITIONS = 16, 16
#: Probabilities of the rarest tokens that are counted.
RARE = (2.0**-8, 1e-3, 1e-5)
LEVEL = FALSE_ALARM / (1 + PLACES + POSITIONS + len(RARE))
#: Detectable total variation above which finding nothing is no verdict.
MOST_DETECTABLE = 0.05
#: Unreadable lines that are named.
NAMED = 5
WRONG_INPUT = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


class ServedTable(NamedTuple):
    """Counts of a table in `BINS` equal bins, from probable tokens to rare ones.

    `unseen` tokens of the places were not logged. `log10_e` decides, `chi_square_p` is for information."""

    name: str
    counts: tuple[int, ...]
    unseen: int
    log10_e: float
    chi_square_p: float
    detectable_tv: float

    @property
    def rejected(self) -> bool:
        return self.log10_e >= -math.log10(LEVEL)


class RareTokens(NamedTuple):
    """How many emitted tokens are among the rarest of their row, which have `probability` together."""

    probability: float
    emitted: int
    places: int
    p_value: float

    @property
    def rejected(self) -> bool:
        return self.p_value <= LEVEL


class Contradiction(NamedTuple):
    """Log-probabilities that cannot be true: how, at how many places, and the first text with one."""

    what: str
    places: int
    first: str


@dataclass(frozen=True, eq=False)
class ServedAudit(Shown):
    """The result of `audit_served`.

    Parameters
    ----------
    texts, places : int
        What was tested against logged rows.
    logprobs, tolerance
        As given.
    tables : tuple of ServedTable
        The whole text first.
    rare : tuple of RareTokens
    impossible : int
        Emitted tokens of probability 0.
    greedy, not_greedy : int
        Places of texts at temperature 0, and those whose token is not the most probable one.
    wrong : tuple of Contradiction
        Contradictions between log-probabilities.
    untested : dict
        By reason (texts, places); a single place counts as no text.
    unreadable : int
    named : tuple of str
        The first unreadable lines, each with the reason.
    root : int
        The seed.
    """

    texts: int
    places: int
    logprobs: str
    tolerance: float
    tables: tuple[ServedTable, ...] = field(repr=False)
    rare: tuple[RareTokens, ...] = field(repr=False)
    impossible: int
    greedy: int
    not_greedy: int
    wrong: tuple[Contradiction, ...]
    untested: dict[str, tuple[int, int]] = field(repr=False)
    unreadable: int
    named: tuple[str, ...] = field(repr=False)
    root: int

    @property
    def detectable_tv(self) -> float:
        """The total variation on the bins, over the whole text, that is found with probability .999."""
        return self.tables[0].detectable_tv if self.tables else 1.0

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """What is wrong, as (kind, text): "log-probabilities", "support", "greedy", "deviation"."""
        return tuple(self._findings())

    @property
    def verdict(self) -> str:
        """ "broken": the log-probabilities contradict themselves. "biased": the tokens do not follow them.
        "inconclusive": a deviation of .05 could not have been found. Else "consistent"."""
        kinds = {kind for kind, _ in self.findings}
        if "log-probabilities" in kinds:
            return "broken"
        if kinds:
            return "biased"
        small = self.places > 0 and self.detectable_tv > MOST_DETECTABLE
        return "inconclusive" if small or not (self.places or self.greedy) else "consistent"

    @property
    def exit_code(self) -> int:
        """0 consistent, 1 biased or broken, 3 inconclusive."""
        return {"consistent": 0, "inconclusive": 3}.get(self.verdict, 1)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        tables = [one._asdict() | {"rejected": one.rejected} for one in self.tables]
        rare = [one._asdict() | {"rejected": one.rejected} for one in self.rare]
        names = ("verdict", "findings", "detectable_tv")
        return as_dict(self, *names, tables=tables, rare=rare, false_alarm=FALSE_ALARM, level=LEVEL)

    def records(self) -> list[dict[str, Any]]:
        """The tables."""
        return [one._asdict() | {"rejected": one.rejected} for one in self.tables]

    def parts(self) -> Iterator[Piece]:
        if self.tables:
            columns = ("places", "tested", "unseen", "e", "chi-square p", "detectable TV")
            yield Table(columns, [_cells(one) for one in self.tables], bold=_rejected(self.tables))
            rows = []
            for one in self.rare:
                numbers = f"{one.emitted:,}", f"{one.places * one.probability:,.1f}", f"{one.p_value:.2g}"
                rows.append((f"{one.probability:.2g}", *numbers))
            yield Table(("rarest tokens", "emitted", "expected", "p"), rows, bold=_rejected(self.rare))
            yield f"rejected from e = 10^{-math.log10(LEVEL):.1f}, or p = {LEVEL:.1e}"
        if self.greedy:
            wrong = f"{self.not_greedy:,} without the most probable token"
            yield f"temperature 0: {self.greedy:,} places, {wrong}"
        if self.untested:
            left = [(why, f"{texts:,}", f"{places:,}") for why, (texts, places) in self.untested.items()]
            yield Table(("not tested", "texts", "places"), left)
        if self.unreadable:
            yield f"{self.unreadable:,} lines could not be read; the first:"
            yield from (f"  {line}" for line in self.named)
        yield from (f"{kind}: {text}" for kind, text in self.findings)
        tested = f"{self.places:,} places of {self.texts:,} texts, {self.logprobs} log-probabilities"
        yield f"{tested}: {self.verdict}"

    def _findings(self) -> Iterator[tuple[str, str]]:
        for one in self.wrong:
            yield "log-probabilities", f"{one.what}, at {one.places:,} places; the first in {one.first}"
        if self.impossible:
            yield "support", f"{self.impossible:,} emitted tokens have probability 0"
        if self.not_greedy:
            yield "greedy", f"{self.not_greedy:,} of {self.greedy:,} tokens are not the most probable ones"
        for table in self.tables:
            if table.rejected:
                yield "deviation", f"{table.name}: e = 10^{table.log10_e:.1f}; {_describe(table.counts)}"
        for rare in self.rare:
            if rare.rejected:
                expected = f"{rare.places * rare.probability:.1f} expected"
                text = f"{rare.emitted:,} of the rarest tokens, with probability {rare.probability:.2g}"
                yield "deviation", f"{text}, {expected}; p = {rare.p_value:.1e}"


def _cells(table: ServedTable) -> tuple[str, ...]:
    numbers = f"{sum(table.counts):,}", f"{table.unseen:,}" if table.unseen else NONE
    return (
        table.name,
        *numbers,
        f"10^{table.log10_e:.1f}",
        f"{table.chi_square_p:.2g}",
        f"{table.detectable_tv:.4f}",
    )


def _rejected(tests: Any) -> list[int]:
    return [i for i, one in enumerate(tests) if one.rejected]


def _describe(counts: tuple[int, ...]) -> str:
    """The deviation in words: its size, and its direction."""
    shares = np.array(counts) / sum(counts)
    tv = np.abs(shares - 1 / BINS).sum() / 2
    mean = (shares @ np.arange(BINS)) / (BINS - 1)
    direction = "probable tokens too often" if mean < 0.5 else "improbable tokens too often"
    return f"TV {tv:.4f} on the bins, {direction}"


# --- counting -----------------------------------------------------------------------------------------------


def audit_served(
    path: str | Path,
    *,
    logprobs: str = "raw",
    temperature: float | None = None,
    tolerance: float = 1e-5,
    rng: RandomSource = 0,
    progress: Progress | None = None,
) -> ServedAudit:
    """Test the tokens of logged responses of a server against their own logged log-probabilities.

    A log of JSON Lines is read in one pass, whatever its size: responses of the OpenAI interface, vLLM,
    SGLang or llama.cpp, with lists of the most probable tokens. Tokens that follow their rows are called
    biased with probability at most 1e-6, if texts are drawn independently.

    Parameters
    ----------
    path : path
        A file, or a folder with files that end in .jsonl or .ndjson.
    logprobs : {"raw", "processed"}
        Whether log-probabilities are those before or after temperature, truncation and penalties. Raw ones
        are tested where the request changes nothing: at temperature 1, or 0.
    temperature : float, optional
        The temperature of requests that do not have one in the log.
    tolerance : float
        By how much logged log-probabilities may be off, in nats, from 0 to 0.1.
    rng : int, Generator or None
        The seed of the places of tokens within their cells.
    progress : callable, optional
        Called with the bytes read and their total.

    Returns
    -------
    ServedAudit

    Raises
    ------
    ValueError
        For arguments out of range, a path that is no log, or a log without any response.

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
    >>> found.places, found.verdict
    (1, 'inconclusive')
    """
    if logprobs not in ("raw", "processed"):
        raise ValueError(f"logprobs: {logprobs!r} is neither 'raw' nor 'processed'")
    if not 0 <= tolerance <= 0.1:
        raise ValueError(f"tolerance: {tolerance} is outside [0, 0.1]")
    if temperature is not None and not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature: {temperature} is not a number ≥ 0")
    root = root_of(rng)
    counts = _Counts(Conditions(logprobs == "processed", temperature), tolerance, root)
    for line in read_lines(log_files(Path(path)), progress):
        counts.read(line.place, line.record, line.problem)
    if not counts.responses:
        first = f"; the first: {counts.named[0]}" if counts.named else ""
        raise ValueError(f"{path}: none of its {counts.unreadable:,} lines is a response with choices{first}")
    return ServedAudit(
        texts=counts.texts,
        places=int(counts.bins.sum()),
        logprobs=logprobs,
        tolerance=tolerance,
        tables=tuple(counts.tables()),
        rare=tuple(counts.rare_tokens()),
        impossible=counts.impossible,
        greedy=counts.greedy,
        not_greedy=counts.not_greedy,
        wrong=tuple(Contradiction(what, *found) for what, found in counts.wrong.items()),
        untested={why: (counts.left_out[why], counts.left_places[why]) for why in counts.left_places},
        unreadable=counts.unreadable,
        named=tuple(counts.named),
        root=root,
    )


class _Counts:
    """What is counted of the lines read so far."""

    def __init__(self, conditions: Conditions, tolerance: float, root: int) -> None:
        self.conditions, self.tolerance, self.key = conditions, tolerance, key_of(root)
        self.lists = Lists(tolerance)
        self.bins = np.zeros((PLACES, BINS), dtype=np.int64)
        self.steps = np.zeros((POSITIONS, BINS), dtype=np.int64)
        self.rare = np.zeros(len(RARE), dtype=np.int64)
        self.unseen, self.unseen_steps = np.zeros(PLACES, dtype=np.int64), 0
        self.all_unseen = self.drawn = self.responses = self.texts = 0
        self.impossible = self.greedy = self.not_greedy = self.unreadable = 0
        self.wrong: dict[str, tuple[int, str]] = {}
        self.left_out, self.left_places = Counter[str](), Counter[str]()
        self.named: list[str] = []

    def read(self, place: str, record: Any, problem: str) -> None:
        """Add a line; one that is no response counts as unreadable, whatever of it could be read."""
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
        for what, number in contradictions(text, self.tolerance, greedy):
            places, first = self.wrong.get(what, (0, place))
            self.wrong[what] = places + number, first
        why = self.conditions.objection(text, place)
        if why:
            self._leave_out(why, text)
            return
        assert text.places is not None
        if greedy:
            self.greedy += len(text.places)
            self.not_greedy += sum(not is_argmax(one, self.tolerance) for one in text.places)
            return
        rows = self.lists.rows(text)
        if rows is None:
            self._leave_out("lists of strings that are those of several tokens; log the ids", text)
        else:
            self._count(text, rows)

    def _leave_out(self, why: str, text: Text) -> None:
        self.left_out[why] += 1
        self.left_places[why] += len(text.places or ())

    def _count(self, text: Text, rows: list[Row]) -> None:
        assert text.places is not None
        self.texts += 1
        self.impossible += sum(map(is_impossible, text.places))
        number = np.arange(len(text.places))
        places = np.minimum(_bit_lengths(number), PLACES - 1)
        positions = _positions(text, len(number))
        for part, batch in batches(rows):
            u = uniforms(self.key, int(Purpose.COUNT), self.drawn, len(batch.p), 1)[0]
            self.drawn += len(batch.p)
            image, testable = images(batch, u)
            bins = np.minimum((image * BINS).astype(np.int64), BINS - 1)
            np.add.at(self.bins, (places[part][testable], bins[testable]), 1)
            known = testable & (positions[part] >= 0)
            np.add.at(self.steps, (positions[part][known], bins[known]), 1)
            for i, probability in enumerate(RARE):
                self.rare[i] += int((image[testable] >= 1 - probability).sum())
            if not testable.all():
                self.left_places["lists too short, or with tokens that read alike"] += int((~testable).sum())
        self._add_unseen(unseen_tokens(text), len(number), bool((positions >= 0).any()))

    def _add_unseen(self, unseen: int, length: int, steps: bool) -> None:
        if unseen:
            ends = _bit_lengths(np.array([length, length + unseen - 1]))
            self.unseen[np.unique(np.minimum(ends, PLACES - 1))] += unseen
            self.all_unseen += unseen
            self.unseen_steps += unseen * steps

    def tables(self) -> Iterator[ServedTable]:
        """The tables that have counts."""
        whole = self.bins.sum(axis=0)
        if whole.any():
            yield self._table("all", whole, self.all_unseen)
        for i, counts in enumerate(self.bins):
            if counts.any():
                yield self._table(_name("place", *_ends(i)), counts, int(self.unseen[i]))
        for i, counts in enumerate(self.steps):
            if counts.any():
                last = None if i == POSITIONS - 1 else i + 1
                yield self._table(_name("position in the step", i + 1, last), counts, self.unseen_steps)

    def _table(self, name: str, counts: Ints, unseen: int) -> ServedTable:
        law, tolerance = np.full(BINS, 1 / BINS), (BINS + 1) * self.tolerance
        n = int(counts.sum())
        log_e = log_e_value(_level(counts, unseen), law, tolerance) / math.log(10)
        detectable = detectable_tv(BINS, n, LEVEL) + math.tanh(tolerance / 2) + unseen / n
        p_value = chi_square(counts, law).p_value
        return ServedTable(name, tuple(counts.tolist()), unseen, log_e, p_value, min(1.0, detectable))

    def rare_tokens(self) -> Iterator[RareTokens]:
        """The exact binomial tests; an unseen token may or may not have been rare."""
        n = int(self.bins.sum())
        if n:
            for probability, emitted in zip(RARE, self.rare.tolist(), strict=True):
                yield RareTokens(probability, emitted, n, self._rare_p_value(probability, emitted, n))

    def _rare_p_value(self, probability: float, emitted: int, n: int) -> float:
        most = min(1.0, probability * math.exp(self.tolerance) + self.tolerance)
        least = max(0.0, probability * math.exp(-self.tolerance) - self.tolerance)
        total = n + self.all_unseen
        upper = scipy.stats.binom.sf(emitted - 1, total, most)
        lower = scipy.stats.binom.cdf(emitted + self.all_unseen, total, least)
        return float(min(1.0, 2 * min(upper, lower)))


def _reason(error: Exception) -> str:
    """Why a line is no response, without what the line says at length."""
    if isinstance(error, KeyError):
        return f"no field {ascii(error.args[0])[:80]}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, ValueError):
        return ascii(str(error))[1:-1][:200]
    return "a field is not of the kind that servers write"


def _level(counts: Ints, unseen: int) -> Ints:
    """`counts` with `unseen` more, which make them as equal as possible."""
    filled = np.sort(counts)
    sizes = np.arange(1, len(filled) + 1)
    need = sizes * filled - np.cumsum(filled)  # to fill the lowest up to each
    many = int(np.searchsorted(need, unseen, side="right"))
    total = int(filled[:many].sum()) + unseen
    share, rest = divmod(total, many)
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
    found = np.concatenate([[-1], *(np.arange(number) for number in emitted)])[:length]
    return np.minimum(found, POSITIONS - 1)


def _bit_lengths(numbers: Ints) -> Ints:
    """The number of binary digits of integers ≥ 0."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _ends(i: int) -> tuple[int, int | None]:
    """The first and the last place of class i; None for the open end."""
    first = 1 if i == 0 else 2 ** (i - 1) + 1
    return first, None if i == PLACES - 1 else 2**i


def _name(kind: str, first: int, last: int | None) -> str:
    if last is None:
        return f"{kind} {first:,} and on"
    return f"{kind} {first:,}" if first == last else f"{kind} {first:,} – {last:,}"
