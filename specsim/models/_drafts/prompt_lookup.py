"""Prompt lookup: draft the tokens that followed the last few tokens earlier in the same text.

Of the n-grams that end the text the longest is tried first, from `max_ngram` tokens down to 1. Up to γ tokens
after its first earlier occurrence are drafted. No model is asked. The draft is a function of the text alone,
so `one_hot` verifies it without bias.

Saxena, "Prompt lookup decoding" (github.com/apoorvumang/prompt-lookup-decoding, 2023). A continuation may end
with the text, as in Hugging Face's transformers; Saxena's published snippet requires γ tokens after the
occurrence.

Cost: O(T) for one history of T tokens; `lookup_drafts` sorts the n-grams of a text once, for any number of
positions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._types import Ints, array_of, check_counts, checked
from specsim.models._drafts.tree import Tree, as_tree

ONE_CHAIN = "gamma: prompt lookup drafts one chain, without a row q after it; give a number of tokens"


@checked
@dataclass(frozen=True)
class PromptLookup:
    """Drafts by prompt lookup in one text, which `generate` and `simulate` take in place of a draft model.

    Parameters
    ----------
    text : array_like of int, shape [T]
        `simulate` decodes along it, from its beginning; `generate` searches it in front of the prompt, and it
        may be empty there.
    max_ngram : int
        The most tokens that are matched.
    """

    text: NDArray[np.int32] = field(repr=False)
    max_ngram: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", as_text(self.text, "text").astype(np.int32))
        check_counts(max_ngram=self.max_ngram)

    def tree(self, gamma: int | Tree) -> Tree:
        """The longest draft, a chain. Raises ValueError for another tree."""
        tree = as_tree(gamma)
        if not tree.is_chain:
            raise ValueError(ONE_CHAIN)
        return tree

    def check_rule(self, rule: Any) -> None:
        """Raise ValueError for a rule that reads q after the last drafted token."""
        if rule.leaf_rows:
            raise ValueError(ONE_CHAIN)

    def decode(self, first: int, gamma: int) -> Iterator[tuple[int, Ints]]:
        """Decode along `text` from position `first` on, and yield where each step begins, and its draft as
        `lookup_drafts` pads it. A step accepts what its draft shares with the text."""
        places = np.arange(first, self.text.size)
        drafts = lookup_drafts(self.text, places, gamma, self.max_ngram)
        ahead = np.append(self.text, np.full(gamma, -2))[places[:, None] + np.arange(gamma)]
        shared = np.cumprod(drafts == ahead, axis=1).sum(axis=1)
        place = 0
        while place < places.size:
            yield first + place, drafts[place]
            place += 1 + int(shared[place])


@checked
def prompt_lookup(history: ArrayLike, gamma: int, max_ngram: int = 3) -> tuple[int, ...]:
    """Draft at most `gamma` tokens that followed the last ones of `history`, at most `max_ngram`, earlier."""
    text = as_text(history, "history")
    check_counts(gamma=gamma, max_ngram=max_ngram)
    if text.size < 2:
        return ()
    ends = np.flatnonzero(text[:-1] == text[-1])  # where the last token stands further up
    for n in range(2, min(max_ngram, text.size - 1) + 1):
        longer = ends[ends >= n - 1]
        longer = longer[text[longer - (n - 1)] == text[-n]]
        if not longer.size:
            break
        ends = longer
    return tuple(text[ends[0] + 1 : ends[0] + 1 + gamma].tolist()) if ends.size else ()


@checked
def lookup_drafts(text: ArrayLike, positions: ArrayLike, gamma: int, max_ngram: int = 3) -> Ints:
    """`prompt_lookup` at many positions of one text, in [0, T]: int64 [B, gamma], padded with -1."""
    tokens, places = as_text(text, "text"), as_text(positions, "positions")
    check_counts(gamma=gamma, max_ngram=max_ngram)
    if places.size and not 0 <= places.min() <= places.max() <= tokens.size:
        ends = f"{places.min()} to {places.max()}"
        raise ValueError(f"positions: {ends} are outside [0, {tokens.size}]; give places in the text")
    drafts = np.full((places.size, gamma), -1, dtype=np.int64)
    for n in range(1, min(max_ngram, tokens.size) + 1):
        windows = np.lib.stride_tricks.sliding_window_view(tokens, n)
        _, first, kind = np.unique(windows, axis=0, return_index=True, return_inverse=True)
        long_enough = np.flatnonzero(places > n)
        position = places[long_enough]
        start = first[kind][position - n] + n  # after the first occurrence of the last n tokens
        taken = start < position
        rows, position, start = long_enough[taken], position[taken], start[taken]
        columns = start[:, None] + np.arange(gamma)
        known = tokens[np.minimum(columns, tokens.size - 1)]
        # longer n-grams overwrite shorter ones
        drafts[rows] = np.where(columns < position[:, None], known, -1)
    return drafts


def as_text(values: ArrayLike, name: str) -> Ints:
    """`values` as a row of tokens. Raises ValueError for another shape, TypeError for no integers."""
    array = array_of(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name}: shape {array.shape}; give a single row of integers")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    return array.astype(np.int64)
