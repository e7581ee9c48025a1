"""A grammar as an automaton over tokens, and in GBNF, which engines read: with a rule for each state."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from specsim.core._types import Ints
from specsim.engines._planted.requests import Sampling
from specsim.engines._planted.served_pair import Pair

#: Of each state pairs of a token and the state after it; a text begins in the first.
Grammar = tuple[tuple[tuple[int, int], ...], ...]
#: A word and the rule after it, or nothing.
PART = re.compile(r'"(.+)" (\w+)|""')


def table(grammar: Grammar, size: int) -> Ints:
    """The state after each of `size` tokens in each state, [states, size], or -1 for one that cannot come."""
    found = np.full((len(grammar), size), -1)
    for row, pairs in zip(found, grammar, strict=True):
        row[[token for token, _ in pairs]] = [state for _, state in pairs]
    return found


def follow(grammar: Grammar, tokens: Iterable[int]) -> list[int]:
    """The tokens that may come after others; those that could not come change nothing."""
    state = 0
    for token in tokens:
        state = dict(grammar[state]).get(token, state)
    return [*dict(grammar[state])]


def with_bans(sampling: Sampling, words: int) -> Grammar:
    """The grammar with the bans of words and of pairs of `words` words, or these alone: where a pair begins
    with the last word there is a state of its own."""
    allowed, bad = {*(sampling.allowed_token_ids or range(words)), words}, sampling.bad_words
    states, found = [(0, -1)], list[tuple[tuple[int, int], ...]]()
    for state, last in states:  # grows
        pairs = []
        for token, then in sampling.grammar[state] if sampling.grammar else ((x, 0) for x in range(words)):
            if token in allowed and (token,) not in bad and (last, token) not in bad:
                after = then, token if any(word[:-1] == (token,) for word in bad) else -1
                if after not in states:
                    states.append(after)
                pairs.append((token, states.index(after)))
        found.append(tuple(pairs))
    return tuple(found)


def written(grammar: Grammar, pair: Pair, lark: bool = False) -> str:
    """The grammar in GBNF, or in Lark with ids; the end of a text is the empty word."""
    first, word, rule = ("start", "<[{}]>", "{}: {}") if lark else ("root", '"{1}"', "{} ::= {}")
    names = [first, *(f"s{i}" for i in range(1, len(grammar)))]

    def part(token: int, state: int) -> str:
        found = f"{word.format(token, pair.decode([token]))} {names[state]}"
        return '""' if token == pair.target.words else found

    rules = zip(names, grammar, strict=True)
    return "\n".join(rule.format(name, " | ".join(part(*one) for one in pairs)) for name, pairs in rules)


def read(given: Any, pair: Pair) -> Grammar:
    """The grammar of `structured_outputs`, in such a GBNF. Raises ValueError for all else."""
    with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
        rules = [line.split(" ::= ", 1) for line in given["grammar"].splitlines()]
        numbers, found = {name: number for number, (name, _) in enumerate(rules)}, []
        for name, rule in rules:
            parts: Any = [PART.fullmatch(part) for part in rule.split(" | ")]
            pairs = [(pair.encode(one[1] or "") or [pair.target.words], one[2] or name) for one in parts]
            found.append(tuple((token, numbers[then]) for (token,), then in pairs))
        if [*given] == ["grammar"] and rules[0][0] == "root":
            return tuple(found)
    raise ValueError(
        "structured_outputs: expected a grammar alone, of rules of words, each with the rule after it, as in "
        'root ::= " a" root | ""'
    )
