"""The tests of a comparison of two servers, of all prompts together and of each."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy

from specsim.auditing._checks.two_samples import LEAST as LEAST_LOG
from specsim.auditing._checks.two_samples import detectable, totals
from specsim.core._types import Ints
from specsim.core.distributions import normalise
from specsim.core.stats import SHRINKAGES, log_pooled_two_sample_e
from specsim.engines._audit.results import TestResult
from specsim.engines._clients.http import Pieces

# The tables in which the texts of two servers are compared: the first block of texts says of what.

#: The most outcomes that have a cell of their own, and the least times that each is in the first block.
OUTCOMES, LEAST = 15, 4
#: Bins in which whole texts are counted.
BINS = 16
#: Characters of an outcome that are shown.
LONGEST = 80

#: What is counted of a text; None if the text does not belong to the table.
Outcome = tuple[Any, ...] | None


class Text(NamedTuple):
    pieces: Pieces
    finish: str | None


@dataclass(frozen=True)
class Table:
    """Counts of the outcomes `cells`, in this order, and of all others."""

    name: str
    outcome: Callable[[Text], Outcome]
    says: Callable[[Outcome], str]
    cells: tuple[Outcome, ...]

    def counts(self, texts: Sequence[Text]) -> Ints:
        place = {cell: i for i, cell in enumerate(self.cells)}
        found = [place.get(it, len(place)) for one in texts if (it := self.outcome(one)) is not None]
        return np.bincount(np.array(found, dtype=np.int64), minlength=len(place) + 1)

    def name_of(self, cell: int) -> str:
        return "all others" if cell == len(self.cells) else self.says(self.cells[cell])


def token_at(place: int) -> Callable[[Text], Outcome]:
    """The outcome of a place: its token, or () after the end of a text."""
    return lambda text: text.pieces[place : place + 1]


def _token_after(beginning: Pieces, text: Text) -> Outcome:
    place = len(beginning)
    return text.pieces[place : place + 1] if text.pieces[:place] == beginning else None


def _end_in_words(outcome: Outcome) -> str:
    count, finish = outcome or (0, None)
    return f"{count} tokens, end {finish!r}"[:LONGEST]


def tables(first: Sequence[Text], length: int) -> list[Table]:
    """The tables of a prompt, given the first block of texts; their number and names depend on `length`."""
    asked: list[tuple[str, Callable[[Text], Outcome], Callable[[Outcome], str]]] = [
        (f"token {place + 1}", token_at(place), word_of) for place in range(length)
    ]
    for place in range(1, length):
        beginnings = Counter(one.pieces[:place] for one in first if len(one.pieces) >= place)
        begun = beginnings.most_common(1)[0][0] if beginnings else (-1,)  # of no text
        name = f"token {place + 1} after the commonest beginning"
        asked.append((name, partial(_token_after, begun), word_of))
    asked += [
        (
            "whole texts, in bins",
            lambda text: (crc32(repr(text.pieces).encode()) % BINS,),
            lambda _: "texts of a bin",
        ),
        ("number of tokens, and end", lambda text: (len(text.pieces), text.finish), _end_in_words),
    ]
    return [Table(*one, commonest(one[1], first)) for one in asked]


def commonest(outcome: Callable[[Text], Outcome], texts: Sequence[Text]) -> tuple[Outcome, ...]:
    found = Counter(one for text in texts if (one := outcome(text)) is not None)
    return tuple(one for one, times in found.most_common(OUTCOMES) if times >= LEAST)


def word_of(outcome: Outcome) -> str:
    """A token in words, without characters that cannot be printed."""
    return repr(outcome[0])[:LONGEST] if outcome else "no token"


#: The least standard error of a difference of shares.
LEAST_ERROR = 1e-12


class PromptTexts:
    """What is counted of the texts of one prompt: tables, block by block, and chains."""

    def __init__(self, first: Sequence[Text], length: int):
        self.tables, self.chains = tables(first, length), Chains(first, length)
        self.blocks: list[list[tuple[Ints, Ints]]] = [[] for _ in self.tables]

    def add(self, one: Sequence[Text], other: Sequence[Text]) -> None:
        for table, blocks in zip(self.tables, self.blocks, strict=True):
            blocks.append((table.counts(one), table.counts(other)))
        self.chains.add(one, other)


def all_tests(prompts: Sequence[PromptTexts], budget: float) -> list[TestResult]:
    """Tests of the tables and chains, of all prompts together and of each, which share `budget`."""
    numbered = list(enumerate(prompts, 1))
    groups = [(f"prompt {i}", [(i, one)]) for i, one in numbered]
    if len(prompts) > 1:
        groups = [("all prompts", numbered), *groups]
    names = [table.name for table in prompts[0].tables]
    level = budget / (len(groups) * (len(names) + 1))
    found = []
    for group, members in groups:
        found += [_table_test(f"{group}, {name}", members, i, level) for i, name in enumerate(names)]
        found.append(_chains_test(f"{group}, chains of tokens", members, level))
    return found


Numbered = Sequence[tuple[int, PromptTexts]]


def _table_test(name: str, prompts: Numbered, i: int, level: float) -> TestResult:
    log_e = log_pooled_two_sample_e([one.blocks[i] for _, one in prompts])
    sums = [
        (int(one.sum()), int(other.sum())) for one, other in (totals(each.blocks[i]) for _, each in prompts)
    ]
    cells = 1 + sum(len(one.tables[i].cells) for _, one in prompts)
    found = TestResult.of(name, sum(a + b for a, b in sums), cells, max(log_e, LEAST_LOG), level)
    words = _table_words(prompts, i) if found.rejected else ""
    return replace(found, detectable_tv=detectable(cells, sums, level), text=words)


def _chains_test(name: str, prompts: Numbered, level: float) -> TestResult:
    logs = np.sum([one.chains.log_es for _, one in prompts], axis=0)
    texts = sum(int(one.chains.counts[:, 0].sum()) for _, one in prompts)
    log_e = max(float(scipy.special.logsumexp(logs) - np.log(len(logs))), LEAST_LOG)
    found = TestResult.of(name, texts, STATES, log_e, level)
    return replace(found, text=_chain_words(prompts)) if found.rejected else found


def _table_words(prompts: Numbered, i: int) -> str:
    """The outcome of table `i` whose shares differ most, in standard errors."""
    found = [(*_largest(*totals(prompt.blocks[i])), number, prompt.tables[i]) for number, prompt in prompts]
    _, cell, shares, number, table = max(found, key=itemgetter(0))
    return f"prompt {number}: {table.name_of(cell)} {shares}"


def _chain_words(prompts: Numbered) -> str:
    """The token after a token whose shares differ most, in standard errors."""
    found = [
        (*_largest(*prompt.chains.counts[:, place, before]), number, prompt.chains, place, before)
        for number, prompt in prompts
        for place, before in np.ndindex(prompt.chains.counts.shape[1:3])
    ]
    _, state, shares, number, chains, place, before = max(found, key=itemgetter(0))
    after = f" after {chains.name_of(place - 1, before)}" if place else ""
    return f"prompt {number}, token {place + 1}{after}: {chains.name_of(place, state)} {shares}"


def _largest(one: Ints, other: Ints) -> tuple[float, int, str]:
    """The cell whose shares differ most: by how many standard errors, which one, and the shares in words."""
    n, m = max(1, one.sum()), max(1, other.sum())
    pooled = (one + other) / (n + m)
    error = np.sqrt(np.maximum(pooled * (1.0 - pooled), 0.0) * (1.0 / n + 1.0 / m))
    scores = np.abs(one / n - other / m) / np.maximum(error, LEAST_ERROR)
    cell = int(scores.argmax())
    shares = f"{one[cell] / n:.4f} at the first server, {other[cell] / m:.4f} at the second"
    return float(scores[cell]), cell, shares


# Whole texts of two servers, compared through the Markov chains that earlier texts of each suggest.

#: States at each place: the commonest outcomes, and all others.
STATES = OUTCOMES + 1


class Chains:
    """The texts of one prompt as states at each place. `counts` [2, length, STATES, STATES] of both servers
    have place, state before, and state; 0 is that of rare outcomes, and before the first token."""

    def __init__(self, first: Sequence[Text], length: int):
        self.outcomes = [commonest(token_at(place), first) for place in range(length)]
        self.states = [{one: i for i, one in enumerate(found, 1)} for found in self.outcomes]
        self.counts = np.zeros((2, length, STATES, STATES), dtype=np.int64)
        self.log_es = np.zeros(len(SHRINKAGES))

    def add(self, one: Sequence[Text], other: Sequence[Text]) -> None:
        """Judge a block by the blocks before it, then count it."""
        paths = [self._paths(texts) for texts in (one, other)]
        if all(map(len, paths)) and self.counts[0].any() and self.counts[1].any():
            self.log_es += [self._log_e(paths, STATES * weight) for weight in SHRINKAGES]
        for side, path in enumerate(paths):
            np.add.at(self.counts[side], _transitions(path), 1)

    def name_of(self, place: int, state: int) -> str:
        return word_of(self.outcomes[place][state - 1]) if state else "another"

    def _paths(self, texts: Sequence[Text]) -> Ints:
        """The states [n, length] of texts."""
        found = [
            [state.get(one.pieces[place : place + 1], 0) for place, state in enumerate(self.states)]
            for one in texts
        ]
        return np.array(found, dtype=np.int64).reshape(len(texts), len(self.states))

    def _log_e(self, paths: Sequence[Ints], weight: float) -> float:
        """The log e-value of a block, with the chains shrunk towards each other by `weight` texts."""
        shared = normalise(self.counts.sum(axis=0) + 0.5)
        logs = [np.log(normalise(seen + weight * shared)) for seen in self.counts]
        sizes = np.array([len(path) for path in paths])
        shares = np.log(sizes / sizes.sum())
        total = 0.0
        for side, path in enumerate(paths):
            own = [log[_transitions(path)].sum(axis=1) for log in logs]
            total += float((own[side] - np.logaddexp(own[0] + shares[0], own[1] + shares[1])).sum())
        return total


def _transitions(path: Ints) -> tuple[Ints, Ints, Ints]:
    before = np.pad(path[:, :-1], ((0, 0), (1, 0)))
    return np.broadcast_to(np.arange(path.shape[1]), path.shape), before, path
