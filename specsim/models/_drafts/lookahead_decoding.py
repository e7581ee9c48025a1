"""Lookahead decoding: n-grams guessed by the target are kept in a pool, and drafted when they fit.

*Lookahead branch.* A window has W columns of guessed futures, column i beginning i tokens after the end of
the text, and N - 1 levels. Each decoding step makes one Jacobi step: for each column, the target's most
probable token after the text, the first level up to that column, and the column's own later levels. Column
and new token form an N-gram that the target might emit. Then the window moves on by a token: the first level
is dropped, and the new tokens become the last level.

*Pool.* For each first token, at most G of the tails of N - 1 tokens seen after it; the least recently seen
leaves first.

*Verification branch.* The tails of the last token of the text are drafted, as a tree in which tails share the
tokens with which they begin alike. They are a function of the past alone, so `naive_matching` and
`deterministic_children` verify them without bias: the window's guesses decide how many tokens a step emits,
not their law.

Fu, Bailis, Stoica & Zhang, "Break the sequential dependency of LLM inference using lookahead decoding", arXiv
2402.02057. As in the authors' code the first level starts as random tokens of the text, the others are filled
one a step, and the window moves by one token even where a step emits more.

Cost: W rows of the target a step and those of the drafts; in a real engine all are one pass."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._streams import RandomSource
from specsim.core._types import check_count, check_counts, checked
from specsim.models import Model
from specsim.models._drafts.prompt_lookup import as_text
from specsim.models._drafts.tree import Tree, chains


@checked
@dataclass(frozen=True)
class LookaheadDecoding:
    """Drafts by lookahead decoding, which `generate` and `simulate` take in place of a draft model.

    The number of drafted tokens γ is that of a tail, N - 1. Fu et al., arXiv 2402.02057, take W = G = 15 and
    N = 5 for 7 billion parameters.

    Parameters
    ----------
    window : int
        W ≥ 1 columns.
    candidates : int
        G ≥ 1 tails kept for a token.
    text : array_like of int, shape [T]
        The text, a sample of the target, along which `simulate` decodes; `generate` does not read it.

    Examples
    --------
    >>> LookaheadDecoding(window=5, candidates=3).tree(2).size
    6
    """

    window: int = 15
    candidates: int = 15
    text: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32), repr=False)

    def __post_init__(self) -> None:
        check_counts(window=self.window, candidates=self.candidates)
        object.__setattr__(self, "text", as_text(self.text, "text").astype(np.int32))

    def tree(self, gamma: int | Tree) -> Tree:
        """The largest draft: `candidates` tails of `gamma` tokens. A Tree must be just that."""
        if not isinstance(gamma, Tree):
            return chains(self.candidates, gamma, "top")
        if gamma.parents != chains(self.candidates, gamma.depth).parents:
            raise ValueError(
                "gamma: lookahead decoding drafts tails of one length side by side; give the tokens of a tail"
            )
        return gamma

    def check_rule(self, rule: Any) -> None:
        """Raise ValueError for a rule that reads rows of q, which these drafts do not have."""
        if rule.reads_draft:
            raise ValueError(
                f"rule: {rule.name} reads q, and tokens from a pool have none; use naive_matching or "
                "deterministic_children"
            )

    def start(self, target: Model, gamma: int, *, rng: RandomSource = None) -> "Lookahead":
        """The window and pool of one text."""
        return Lookahead(target, self.window, gamma + 1, self.candidates, rng=rng)

    def decode(self, target: Model, gamma: int) -> "Iterator[tuple[int, Draft | None]]":
        """Decode along `text`, and yield where each step begins, and its draft or None.

        The text is a sample of the target, so naive matching accepts what a draft shares with it."""
        text, lookahead = self.text.tolist(), self.start(target, gamma, rng=0)
        place = max(1, target.order)
        while place < len(text):
            history = text[:place]
            yield place, (found := lookahead.draft(history))
            lookahead.update(history)
            place += 1 + (0 if found is None else _shared(*found, text[place:]))


#: A tree and its tokens.
Draft = tuple[Tree, tuple[int, ...]]


def _shared(tree: Tree, tokens: Sequence[int], text: Sequence[int]) -> int:
    """The tokens of `text` that a path of the tree begins with."""
    node, depth = 0, 0
    while depth < min(tree.depth, len(text)):
        fits = [child for child in tree.children(node) if tokens[child - 1] == text[depth]]
        if not fits:
            break
        node, depth = fits[0], depth + 1
    return depth


class Lookahead:
    """The drafts of lookahead decoding for one text: W ≥ 1 columns, N ≥ 2 tokens, G ≥ 1 tails for a token.

    In each step, `draft` gives the tokens to verify after the text so far, and `update` does the lookahead of
    the same pass; then the step's tokens are added to the text. `rng` draws the window's first level."""

    def __init__(self, target: Model, window: int, ngram: int, candidates: int, *, rng: RandomSource = None):
        self.target, self.window = target, check_count("window", window)
        self.ngram, self.candidates = check_count("ngram", ngram, 2), check_count("candidates", candidates)
        self._rng = np.random.default_rng(rng)
        self._levels: NDArray[np.int64] | None = None  # [levels, columns]
        self._pool: dict[int, list[tuple[int, ...]]] = defaultdict(list)  # by first token, latest first

    def draft(self, history: Sequence[int]) -> Draft | None:
        """Tails of N - 1 tokens that may follow `history`, latest seen first, merged to a tree, or None."""
        if not (tails := self._pool.get(int(history[-1]))):
            return None
        parents: list[int] = []
        tokens: list[int] = []
        above = [0] * len(tails)  # the node that each tail has reached
        for level in zip(*tails, strict=True):
            known: dict[tuple[int, int], int] = {}
            for i, token in enumerate(level):
                key = above[i], token
                if key not in known:
                    parents.append(above[i])
                    tokens.append(token)
                    known[key] = len(tokens)
                above[i] = known[key]
        return Tree(tuple(parents), "top"), tuple(tokens)

    def update(self, history: Sequence[int]) -> None:
        """Advance the window by one step after `history`, and add its n-grams to the pool."""
        if self._levels is None:  # each new level costs a column
            self._levels = self._rng.choice(np.array(list(history)), size=(1, self.window + self.ngram - 2))
        self._levels[0, 0] = history[-1]
        # the target's most probable token at the end of each column, the lowest among ties
        order, old = self.target.order, self._levels
        futures = [[*history[-1 - order : -1], *old[0, : i + 1], *old[1:, i]] for i in range(old.shape[1])]
        recent = np.array([future[len(future) - order :] for future in futures], dtype=np.int64)
        levels = np.vstack([self._levels, self.target.rows(recent).argmax(axis=1)])
        if len(levels) < self.ngram:
            self._levels = levels[:, 1:]
            return
        for first, *tail in levels.T.tolist():
            self._remember(first, tuple(tail))
        self._levels = levels[1:]

    def _remember(self, first: int, tail: tuple[int, ...]) -> None:
        self._pool[first] = [tail, *(one for one in self._pool[first] if one != tail)][: self.candidates]
