"""Whole texts of two servers, compared through the Markov chains that earlier texts of each suggest.

As in `log_two_sample_e`, the likelihood of two laws is divided by that of their mixture. Here an outcome is a
whole text, and its laws are chains with probabilities for each place: what happens at several places, after
some tokens only, adds up."""

from collections.abc import Sequence

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.core.stats import SHRINKAGES
from specsim.planted._audit._against_tables import OUTCOMES, Text, commonest, token_at, word_of

#: States at each place: the commonest outcomes, and all others.
STATES = OUTCOMES + 1


class Chains:
    """The texts of one prompt as states at each place, and the counts of both servers' transitions.

    `counts` [2, length, STATES, STATES] has the place, the state before, and the state. State 0 is that of
    all outcomes without one of their own, and the one before the first token."""

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
        """The outcome of a state in words."""
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
        shared = _rows(self.counts.sum(axis=0) + 0.5)
        logs = [np.log(_rows(seen + weight * shared)) for seen in self.counts]
        sizes = np.array([len(path) for path in paths])
        shares = np.log(sizes / sizes.sum())
        total = 0.0
        for side, path in enumerate(paths):
            own = [log[_transitions(path)].sum(axis=1) for log in logs]
            total += float((own[side] - np.logaddexp(own[0] + shares[0], own[1] + shares[1])).sum())
        return total


def _transitions(path: Ints) -> tuple[Ints, Ints, Ints]:
    """Indices of `counts` for each place of each text."""
    before = np.pad(path[:, :-1], ((0, 0), (1, 0)))
    return np.broadcast_to(np.arange(path.shape[1]), path.shape), before, path


def _rows(counts: Floats) -> Floats:
    return counts / counts.sum(axis=-1, keepdims=True)
