"""Checks of a user's decoder, the whole loop.

Whole sequences are counted: how often each token followed each prefix. That covers drafting, the state and
the end of the text. A lossless decoder draws every token from the target's row after prompt and prefix, or
from the processed row if it declares a temperature, top-k or top-p."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import DecoderCase
from specsim.auditing._checks import counts as counting
from specsim.auditing._checks.tables import Table, alternatives, even_table, prefix_tables
from specsim.auditing._verifier.arrays import as_sequence
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.requests import Callee, SequencesAsked, answer
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, TokenArray, Tokens
from specsim.models._processed import Processing
from specsim.simulation._counting import EXAMPLES, Example
from specsim.simulation._sources import Batch


@dataclass(frozen=True)
class DecoderSource:
    """Sequences of `case` from the decoder `callee`; a *step* is one call with its own generator."""

    case: DecoderCase
    callee: Callee
    timeout: float = TIMEOUT
    chunk = 2**10

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        case, seed = self.case, (int(key[0]), int(key[1]))
        answers = answer(self.callee, SequencesAsked(case, seed, int(first), int(steps), self.timeout))
        for i in sorted(np.unique(answers, axis=0, return_index=True)[1]):  # most texts are alike
            row = answers[i]
            as_sequence(row[: row.size - int((row[::-1] != -1).argmax())], case, first + i)
        tokens = np.ascontiguousarray(answers.T, dtype=np.int32)
        yield Batch(first, tokens, (tokens >= 0).sum(axis=0) - 1)


@dataclass(frozen=True)
class DecoderTally:
    """Counts of one case, named as those of `AuditTally`: `prefixes` has a row for each prompt, `pairs` are
    of first tokens of sequences that follow each other; `tail` has no row, as vocabularies are small."""

    case: DecoderCase
    processing: Processing

    def zeros(self) -> dict[str, NDArray[Any]]:
        length, prompts = self.case.max_new_tokens, len(self.case.prompts)
        return {
            "lengths": np.zeros(length, dtype=np.int64),
            "prefixes": np.zeros((prompts, counting.prefix_cells(self.case)), dtype=np.int64),
            "pairs": np.zeros(counting.QUARTERS**2, dtype=np.int64),
            "tail": np.zeros((0, len(counting.TAIL_EDGES)), dtype=np.int64),
            "impossible": np.zeros(length, dtype=np.int64),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> list[Example]:
        """Count a batch; the first of its impossible tokens."""
        case, sequences = self.case, batch.tokens.shape[1]
        counts["lengths"] += np.bincount(batch.accepted, minlength=case.max_new_tokens)
        impossible, first = np.zeros(batch.tokens.shape, dtype=bool), np.empty(sequences)
        v = uniforms(key, int(Purpose.COUNT), batch.first, sequences, 1)[0]
        for k, table in enumerate(counts["prefixes"]):
            own = np.flatnonzero((batch.first + np.arange(sequences)) % len(case.prompts) == k)
            tokens = np.ascontiguousarray(batch.tokens[:, own])
            code, start = 0, 0
            for i in range(counting.table_positions(case)):  # for each in turn, V^i prefixes of V counts each
                code, end = code * case.vocab_size + tokens[i], start + case.vocab_size ** (i + 1)
                table[start:end] += np.bincount(code[tokens[i] >= 0], minlength=end - start)
                start = end
            impossible[:, own], first[own] = self._impossible(tokens, case.prompts[k], v[own])
        counts["impossible"] += impossible.sum(axis=1)
        even = sequences // 2 * 2
        counts["pairs"] += counting.pairs_of_quarters(first[0:even:2], first[1:even:2])
        places = np.argwhere(impossible.T)[:EXAMPLES]
        return [Example(batch.first + int(s), int(i), int(batch.tokens[i, s])) for s, i in places]

    def _impossible(self, tokens: TokenArray, prompt: Tokens, v: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Which tokens [L, B] after `prompt` have probability 0; the images of the first tokens, by id."""
        target, (length, sequences) = self.case.target, tokens.shape
        start = np.tile(np.array(prompt, dtype=np.int32), (sequences, 1))
        text = np.hstack([start, np.maximum(tokens.T, 0)])
        found, first, each = np.zeros(tokens.shape, dtype=bool), v, np.arange(sequences)
        for i in range(length):
            so_far, token = text[:, : start.shape[1] + i], text[:, start.shape[1] + i]
            law = self.processing.after(so_far, target.rows(so_far), len(prompt), self.case.eos)
            mass = law[each, token]
            found[i] = (tokens[i] >= 0) & (mass == 0.0)
            if i == 0:
                first = law.cumsum(axis=1)[each, token] - mass * (1.0 - v)
        return found, first


def plan_decoder_tables(case: DecoderCase, processing: Processing, steps: int) -> list[Table]:
    """A table of `steps` sequences for each prompt and prefix of enough counts, and that of pairs."""

    def laws(prefixes: Sequence[Tokens], prompt: Tokens) -> tuple[Floats, Floats, Floats | None]:
        texts = np.array([(*prompt, *prefix) for prefix in prefixes], dtype=np.int32)
        law, drafted = (
            processing.after(texts, model.rows(texts), len(prompt), case.eos)
            for model in (case.target, case.draft)
        )
        onward = law if case.eos is None else np.where(np.arange(law.shape[1]) == case.eos, 0.0, law)
        others = alternatives(law, drafted, None), alternatives(law, None, drafted)
        return law, onward, np.concatenate(others, axis=1)

    tables: list[Table] = []
    for k, prompt in enumerate(case.prompts):
        where = f"after prompt {k + 1}" if len(case.prompts) > 1 else ""
        for table in prefix_tables(case, steps // len(case.prompts), partial(laws, prompt=prompt)):
            if len(table.law) > 1 or (table.cells >= 0).sum() == 1:
                start = table.start + k * counting.prefix_cells(case)
                tables.append(replace(table, start=start, where=where))
    where = "the first tokens of texts that follow each other"
    return [*tables, even_table("pairs", (), "pairs", 0, counting.QUARTERS**2, where)]
