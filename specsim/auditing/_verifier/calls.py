"""Questions to a user's verifier: rows in, checked tokens out.

Each batch is verified in at least two calls with one generator, so that the counts show random numbers shared
by rows or by calls. Tokens are checked here, wherever the function runs."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import Case
from specsim.auditing._cases.rows import CaseRows, PairRows, TableRows, rows_of
from specsim.auditing._cases.shapes import ShapedRows, ShapesCase
from specsim.auditing._verifier.arrays import as_path, padded, read_tokens
from specsim.auditing._verifier.requests import Callee, RowsAsked
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Ints, TokenArray, dtype_of
from specsim.simulation._rows import RowReader, Rows, pieces
from specsim.simulation._sources import Batch

#: Seconds after which a call counts as hanging.
TIMEOUT = 60.0
#: Inputs are compared with copies in the batches of a case that begin before this step, and in no more
#: batches than this: with long rows a comparison takes as long as a verifier.
COMPARED_STEPS, COMPARED_BATCHES = 512, 16
#: Bytes of rows in a batch of two calls: more than for built-in rules, since calls from Python are slow.
BATCH_BYTES = 2**23
#: Steps, at least, of a batch with rows of a bank where the verifier runs: one costs as much to ask for.
LEAST_FROM_BANK = 8


@dataclass(frozen=True)
class VerifierSource:
    """The steps of `case`, verified by `callee`; it verifies a batch while the one before is counted."""

    callee: Callee
    case: Case
    timeout: float = TIMEOUT
    #: The p and q of banks in the dtype of the case: the same arrays in every question.
    banks: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict, repr=False)
    chunk = 2**14

    @property
    def declared(self) -> Declared:
        return self.callee.declared

    @property
    def batch_steps(self) -> int:
        """The most steps of a question: an even number, so that its two calls are alike, or 1."""
        from_bank = not self.declared.tree and isinstance(self.reader, PairRows)
        return max(LEAST_FROM_BANK if from_bank else 1, BATCH_BYTES // self.case.step_bytes // 2 * 2)

    @cached_property
    def reader(self) -> RowReader:
        return rows_of(self.case)

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        chunks = pieces(first, steps, self.chunk)
        questions = chain.from_iterable(self._questions(key, start, n) for start, n in chunks)
        nothing: list[Any] = [None]
        for before, after in pairwise(chain(nothing, questions, nothing)):
            batch = before and Batch(before[0].first, *self._read(*before), before[1])
            if after is not None:
                self.callee.ask(after[0])
            if batch is not None:
                yield batch

    def _questions(self, key: Key, first: int, steps: int) -> Iterator[tuple[RowsAsked, Any]]:
        for start, n in pieces(first, steps, self.batch_steps):
            rows = self.reader.rows(key, start, n)
            yield self._question(rows, key, start), rows

    def verify(self, rows: Rows, key: Key, first: int, size: int | None = None) -> tuple[TokenArray, Ints]:
        """The tokens [γ+1, B] of `rows` from step `first`, and accepted [B], at most `size` rows a call."""
        asked = self._question(rows, key, first)
        return self._answer(asked if size is None else replace(asked, size=min(size, asked.size)), rows)

    def rows_of_a_call(self, steps: int) -> int:
        """The rows of each call in a batch of `steps`: half of them, or the declared `batch`."""
        return max(1, min(-(-steps // 2), self.declared.batch or steps))

    def once(self, rows: Rows, extras: dict[str, Any], rng: int = 0) -> Ints:
        """The checked tokens [B, γ+1] of one call (or one for each `batch` rows) with the seed `rng`."""
        size = self.declared.batch or len(rows.draft_tokens)
        tokens, _ = self._answer(self._asked(rows, extras, size, (rng,), 0), rows)
        return np.ascontiguousarray(tokens.T, dtype=np.int64)

    def extras(self, key: Key, first: int, rows: Rows | ShapedRows) -> dict[str, Any]:
        """The declared keyword arguments of all rows. Of each 50 steps 38 have a seed, which counts steps, as
        users count seeds: where an engine adds up a seed and a place, it meets another seed."""
        steps, gamma = rows.draft_tokens.shape
        extras: dict[str, Any] = {}
        if self.declared.lengths:
            lengths = rows.lengths if isinstance(rows, CaseRows | ShapedRows) else None
            extras["lengths"] = np.full(steps, gamma) if lengths is None else lengths
        if self.declared.uniforms:
            u = uniforms(key, int(Purpose.VERIFY), first, steps, gamma + 1)
            extras["uniforms"] = np.ascontiguousarray(u.T)
        if self.declared.seeds:
            begin = int(uniforms(key, int(Purpose.VERIFY), 0, 1, 1)[0, 0] * 2**40) + first
            extras["seeds"] = [begin + s if (first + s) % 50 < 38 else None for s in range(steps)]
        return extras

    def _question(self, rows: Rows, key: Key, first: int) -> RowsAsked:
        extras, size = self.extras(key, first, rows), self.rows_of_a_call(len(rows.draft_tokens))
        asked = self._asked(rows, extras, size, (*map(int, key), int(first)), int(first))
        return replace(asked, compared=first < min(COMPARED_STEPS, COMPARED_BATCHES * self.batch_steps))

    def _asked(
        self, rows: Any, extras: dict[str, Any], size: int, rng: tuple[int, ...], first: int
    ) -> RowsAsked:
        arrays: dict[str, Any] = {"draft_tokens": rows.draft_tokens}
        dtype, bank = dtype_of(self.case.dtype), ""
        if getattr(rows, "places", None) is not None and not self.declared.tree:
            bank = str(rows.vocab_size)
            arrays |= {"places": rows.places} | self._bank(bank, *self._bank_of(rows))
        for name in ("p", "q"):
            if f"{name} {bank}" not in arrays:
                arrays[name] = getattr(rows, name).astype(dtype, copy=False)
        if self.case.certain:
            arrays |= {name: None for name in arrays if name[0] == "q"}
        if self.declared.tree:
            arrays["parents"] = rows.parents
        arrays |= {name: extras[name] for name in ("lengths", "uniforms") if name in extras}
        width = (self.case.gamma if self.declared.tree else rows.draft_tokens.shape[1]) + 1
        return RowsAsked(arrays, extras.get("seeds"), size, width, rng, first, self.timeout, bank=bank)

    def _bank_of(self, rows: Any) -> tuple[NDArray[Any] | None, NDArray[Any]]:
        """p and q [K, V] of the rows' places; None for p if it has no bank."""
        assert isinstance(self.reader, PairRows | TableRows)
        return self.reader.bank

    def _bank(self, name: str, p: NDArray[Any] | None, q: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The arrays of a question with the bank p and q, or q alone."""
        if name not in self.banks:
            dtype, given = dtype_of(self.case.dtype), {f"p {name}": p, f"q {name}": q}
            self.banks[name] = {
                of: array.astype(dtype, copy=False) for of, array in given.items() if array is not None
            }
        return self.banks[name]

    def _answer(self, asked: RowsAsked, rows: Rows) -> tuple[TokenArray, Ints]:
        self.callee.ask(asked)
        return self._read(asked, rows)

    def _read(self, asked: RowsAsked, rows: Any) -> tuple[TokenArray, Ints]:
        """The tokens int32 [γ+1, B], checked, and the number of accepted ones [B]."""
        size, answers = rows.vocab_size, list(self.callee.read(asked))
        if not self.declared.tree:
            return read_tokens(answers, rows.draft_tokens, asked.arrays.get("lengths"), size, asked.first)
        together = np.concatenate(answers)
        tokens = np.empty_like(together)
        for s, answer in enumerate(together):
            nodes = answer[:-1][answer[:-1] != -1]
            path, token = as_path((nodes, answer[-1]), rows.parents[s], size, asked.first + s)
            tokens[s] = padded([*(int(rows.draft_tokens[s, node - 1]) for node in path), token], asked.width)
        return np.ascontiguousarray(tokens.T, dtype=np.int32), (tokens >= 0).sum(axis=1) - 1


@dataclass(frozen=True)
class ShapesSource(VerifierSource):
    """The steps of a case of changing shape: a question for each block; each bank is sent once."""

    case: Any  # a ShapesCase

    @property
    def chunk(self) -> int:  # type: ignore[override]
        return self.case.round_steps

    def _questions(self, key: Key, first: int, steps: int) -> Iterator[tuple[RowsAsked, ShapedRows]]:
        case: ShapesCase = self.case
        for block, start, n in case.blocks(key, first, steps):
            rows, rng = case.rows(key, block, start, n), (*map(int, key), int(start))
            yield self._asked(rows, self.extras(key, start, rows), block.rows, rng, int(start)), rows

    def _bank_of(self, rows: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return rows.bank.p, rows.bank.q
