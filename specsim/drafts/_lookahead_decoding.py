"""Lookahead decoding: n-grams guessed by the target are kept in a pool, and drafted when they fit.

*Lookahead branch.* A window has W columns of guessed futures, column i beginning i tokens after the end of
the text, and N - 1 levels. Each decoding step makes one Jacobi step: for each column, the target's most
probable token after the text, the first level up to that column, and the column's own later levels. Column
and new token form an N-gram that the target might emit. Then the window moves on by a token: the first level
is dropped, and the new tokens become the last level.

*Pool.* For each first token, at most G of the tails of N - 1 tokens seen after it; the least recently seen
leaves first.

*Verification branch.* The tails that begin with the last token of the text are drafted, as chains side by
side. They are a function of the past alone, so `naive_matching` and `deterministic_children` verify them
without bias: the window's guesses decide how many tokens a step emits, not their law.

Fu, Bailis, Stoica & Zhang, "Break the sequential dependency of LLM inference using lookahead decoding", arXiv
2402.02057. As in the authors' code the first level starts as random tokens of the text, the others are filled
one a step, and the window moves by one token even where a step emits more.

Cost: W rows of the target a step besides those of the drafts; in a real engine all are one pass.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specsim.core._checks import check_count
from specsim.drafts._tree import Tree, chains
from specsim.models import Model


class Lookahead:
    """The drafts of lookahead decoding for one text.

    In each step, `draft` gives the tokens to verify after the text so far, and `update` does the lookahead
    that the same pass of the target would do; then the step's tokens are added to the text.

    Parameters
    ----------
    target : Model
    window : int
        W ≥ 1 columns.
    ngram : int
        N ≥ 2 tokens.
    candidates : int
        G ≥ 1 tails kept for a token.
    rng : Generator
        Draws the first level of the window.

    Raises
    ------
    ValueError
        For sizes out of range, and for texts shorter than the target reads.

    Examples
    --------
    >>> from specsim.models import TableModel
    >>> cycle = TableModel(np.roll(np.eye(3), 1, axis=1))  # 0 1 2 0 1 2 …
    >>> lookahead = Lookahead(cycle, window=3, ngram=3, candidates=1, rng=np.random.default_rng(1))
    >>> for end in range(1, 8):
    ...     lookahead.update([0, 1, 2, 0, 1, 2, 0, 1][:end])
    >>> lookahead.draft([0, 1, 2, 0, 1, 2, 0, 1])
    (Tree(parents=(0, 1), sampling='sampled', block=1), (2, 0))
    """

    def __init__(self, target: Model, window: int, ngram: int, candidates: int, rng: np.random.Generator):
        self.target, self.window = target, check_count("window", window)
        self.ngram, self.candidates = check_count("ngram", ngram, 2), check_count("candidates", candidates)
        self._rng = rng
        self._levels: NDArray[np.int64] | None = None  # [levels, columns]
        # by first token, the tails as the keys of a dict, which keeps their order: the latest seen last
        self._pool: dict[int, dict[tuple[int, ...], None]] = defaultdict(dict)

    def draft(self, history: Sequence[int]) -> tuple[Tree, tuple[int, ...]] | None:
        """Chains of N - 1 tokens that may follow `history`, latest seen first, and their tokens, or None."""
        tails = list(self._pool.get(int(history[-1]), ()))[::-1]
        if not tails:
            return None
        return chains(len(tails), self.ngram - 1), tuple(
            token for level in zip(*tails, strict=True) for token in level
        )

    def update(self, history: Sequence[int]) -> None:
        """Advance the window by one step after `history`, and add its n-grams to the pool."""
        if self._levels is None:  # each new level costs a column
            columns = self.window + self.ngram - 2
            self._levels = self._rng.choice(np.array(list(history)), size=(1, columns))
        self._levels[0, 0] = history[-1]
        levels = np.vstack([self._levels, self._guesses(history, self._levels)])
        if len(levels) < self.ngram:
            self._levels = levels[:, 1:]
            return
        for first, *tail in levels.T.tolist():
            self._remember(first, tuple(tail))
        self._levels = levels[1:]

    def _guesses(self, history: Sequence[int], levels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The target's most probable token at the end of each column, the lowest among ties."""
        before = history[-1 - self.target.order : -1]
        futures = [
            [*before, *levels[0, : column + 1], *levels[1:, column]] for column in range(levels.shape[1])
        ]
        recent = np.array([future[len(future) - self.target.order :] for future in futures], dtype=np.int64)
        guesses: NDArray[np.int64] = self.target.rows(recent).argmax(axis=1)
        return guesses

    def _remember(self, first: int, tail: tuple[int, ...]) -> None:
        tails = self._pool[first]
        tails.pop(tail, None)
        tails[tail] = None
        if len(tails) > self.candidates:
            del tails[next(iter(tails))]
