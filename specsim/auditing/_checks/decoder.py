"""Checks of a user's decoder, the whole loop; its contract is checked at every call.

    decode(target, draft, prompt, max_new_tokens, eos, rng) -> tokens

`target` and `draft` are models (`specsim.models.Model`), `prompt` is a list of tokens, `eos` a token or None,
`rng` a NumPy Generator. The result holds the new tokens only: `max_new_tokens` of them, or fewer if the last
one is `eos`, which is kept. A decoder that raises or returns anything else is *broken*.

Whole sequences are counted: how often each token followed each prefix. That covers drafting, the state and
the end of the text. A lossless decoder draws every token from the target's row after prompt and prefix, or
from the processed row if it declares a temperature, top-k or top-p."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._checks.counts import TAIL_EDGES, count_prefixes, prefix_cells, table_positions
from specsim.auditing._checks.tables import Table, prefix_tables
from specsim.auditing._verifier.arrays import as_sequence
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.contract import Declared
from specsim.auditing._verifier.requests import Callee, SequencesAsked, answer
from specsim.core._streams import Key
from specsim.core._types import Floats, TokenArray, Tokens
from specsim.core.distributions import temperature, top_k, top_p
from specsim.simulation._counting import EXAMPLES, Example
from specsim.simulation._sources import Batch


@dataclass(frozen=True)
class Processing:
    """What a decoder does to the target's rows before it draws: temperature, then top-k, then top-p.

    Raises ValueError or TypeError for values out of range, see `specsim.core.distributions`.

    >>> Processing(top_k=2).rows(np.array([0.5, 0.3, 0.2]))
    array([0.625, 0.375, 0.   ])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        self.rows(np.ones(1))

    @classmethod
    def of(cls, declared: Declared) -> Self:
        """What a decoder declares."""
        return cls(declared.temperature, declared.top_k or None, declared.top_p)

    def rows(self, p: Floats) -> Floats:
        """The processed rows, of the shape [..., V] of `p`."""
        if self.temperature != 1.0:
            p = temperature(p, self.temperature)
        if self.top_k is not None:
            p = top_k(p, self.top_k)
        return top_p(p, self.top_p)


@dataclass(frozen=True)
class DecoderSource:
    """Sequences of `case` from the decoder `callee`; a *step* is one call with its own generator."""

    case: DecoderCase
    callee: Callee
    timeout: float = TIMEOUT
    chunk = 2**10

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        case, seed = self.case, (int(key[0]), int(key[1]))
        asked = SequencesAsked(case, seed, int(first), int(steps), self.timeout)
        answers = answer(self.callee, asked)
        tokens = np.full((self.case.max_new_tokens, steps), -1, dtype=np.int32)
        for i, row in enumerate(answers):
            end = row.size - int((row[::-1] != -1).argmax())
            found = as_sequence(row[:end], self.case, first + i)
            tokens[: len(found), i] = found
        yield Batch(first, tokens, (tokens >= 0).sum(axis=0) - 1)


@dataclass(frozen=True)
class DecoderTally:
    """Counts of one case: lengths, the tokens after each prefix, and impossible tokens.

    `lengths[n]` is the number of sequences of n + 1 tokens. The arrays have the names and layout of those of
    `AuditTally`; `tail` has no row, since the vocabularies are small."""

    case: DecoderCase
    processing: Processing = Processing()

    def zeros(self) -> dict[str, NDArray[Any]]:
        length = self.case.max_new_tokens
        return {
            "lengths": np.zeros(length, dtype=np.int64),
            "prefixes": np.zeros(prefix_cells(self.case), dtype=np.int64),
            "tail": np.zeros((0, len(TAIL_EDGES)), dtype=np.int64),
            "impossible": np.zeros(length, dtype=np.int64),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> list[Example]:
        """Count a batch; the first of its impossible tokens."""
        size, length = self.case.target.vocab_size, self.case.max_new_tokens
        counts["lengths"] += np.bincount(batch.accepted, minlength=length)
        count_prefixes(batch.tokens, size, table_positions(self.case), counts["prefixes"])
        impossible = self._impossible(batch.tokens)
        counts["impossible"] += impossible.sum(axis=1)
        places = np.argwhere(impossible.T)[:EXAMPLES]
        return [Example(batch.first + int(s), int(i), int(batch.tokens[i, s])) for s, i in places]

    def _impossible(self, tokens: TokenArray) -> NDArray[np.bool_]:
        """Which of the emitted tokens [L, B] have probability 0 after their prefix under the claimed law."""
        target, (length, sequences) = self.case.target, tokens.shape
        prompt = np.tile(np.array(self.case.prompt, dtype=np.int32), (sequences, 1))
        text = np.hstack([prompt, np.maximum(tokens.T, 0)])
        found = np.zeros(tokens.shape, dtype=bool)
        for i in range(length):
            law = self.processing.rows(target.rows(text[:, : prompt.shape[1] + i]))
            mass = law[np.arange(sequences), text[:, prompt.shape[1] + i]]
            found[i] = (tokens[i] >= 0) & (mass == 0.0)
        return found


def plan_decoder_tables(case: DecoderCase, processing: Processing, steps: int) -> list[Table]:
    """The tables of `steps` sequences with at least two cells of expected count ≥ 10.

    There is one table for each prefix without the end of the text; its expected count is exact."""

    def laws(prefix: Tokens) -> tuple[Floats, Floats]:
        law = processing.rows(np.asarray(case.target.row((*case.prompt, *prefix)), dtype=np.float64))
        return law, law if case.eos is None else np.where(np.arange(law.size) == case.eos, 0.0, law)

    return [table for table in prefix_tables(case, steps, laws) if len(table.law) > 1]
