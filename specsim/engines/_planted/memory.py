"""What a recurrent state remembers of a text, however long ago it was."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Ints

#: Each kind of memory, with what is read.
KINDS = {
    "recall": "the token that followed the last token like the newest one",
    "latch": "the last token with an even number",
}
#: The most words that a state holds: tokens with the same remainder share one.
MOST_SLOTS = 64


@dataclass(frozen=True)
class Memory:
    """A state of `slots` words, or for none their number; each token may replace one, and one is read."""

    kind: str
    words: int

    @property
    def slots(self) -> int:
        return min(self.words, MOST_SLOTS) if self.kind == "recall" else 1

    def written(self, tokens: Ints) -> Ints:
        """The slot that each token of texts [..., T] replaces, -1 for none."""
        if self.kind == "latch":
            return np.where((tokens < self.words) & (tokens % 2 == 0), 0, -1)
        before = np.full_like(tokens, self.words)
        before[..., 1:] = tokens[..., :-1]
        return np.where((before < self.words) & (tokens < self.words), before % self.slots, -1)

    def update(self, states: Ints, before: Ints, tokens: Ints, where: NDArray[np.bool_]) -> None:
        """Let the states [n, slots] `where` [n] see `tokens` [n] after the tokens `before` [n]."""
        slot = self.written(np.stack([before, tokens], axis=1))[:, 1]
        at = np.flatnonzero(where & (slot >= 0))
        states[at, slot[at]] = tokens[at]

    def read(self, states: Ints, newest: Ints) -> Ints:
        """The words [n] that are read in states [n, slots] which have seen the tokens `newest` [n]."""
        found: Ints = states[np.arange(len(states)), newest % self.slots]
        return found

    def along(self, text: Ints) -> Ints:
        """The word that is read after each number of tokens of a text [T], [T + 1]."""
        state, found = [self.words] * self.slots, [self.words]
        read = (text % self.slots).tolist()
        for slot, token, newest in zip(self.written(text).tolist(), text.tolist(), read, strict=True):
            if slot >= 0:
                state[slot] = token
            found.append(state[newest])
        return np.array(found)

    def after(self, texts: Ints) -> Ints:
        """The words [n] that are read after texts [n, T]."""
        here = self.written(texts) == texts[:, -1:] % self.slots
        last = texts.shape[1] - 1 - here[:, ::-1].argmax(axis=1)
        return np.where(here.any(axis=1), texts[np.arange(len(texts)), last], self.words)
