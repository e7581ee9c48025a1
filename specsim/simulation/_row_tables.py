"""Tables of the rows of two models after the contexts that simulated steps come to."""

from threading import Lock

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from specsim.core._kernels import kernel
from specsim.core._types import Ints, TokenArray
from specsim.models import Model
from specsim.models._base import shared_contexts
from specsim.rules import Rule
from specsim.rules._common.positions import RowTables, find_slot, sum_rows, sums_size
from specsim.simulation._rows import PathRows, pieces

#: The largest vocabulary size of tables, and the most memory that they take.
LARGEST, TABLE_BYTES = 512, 2**28
MOST_CONTEXTS = 2**62  #: a context with one token more is one integer
PIECE = 2**11  #: contexts that a thread completes at once, while others may complete more


def fits(target: Model, draft: Model) -> bool:
    """Whether tables may keep the rows of both models: few tokens, rows that depend on the last ones."""
    order = max(target.order, draft.order)
    forgets = not (getattr(target, "reads_all", False) or getattr(draft, "reads_all", False))
    return forgets and target.vocab_size <= LARGEST and target.vocab_size ** (order + 1) < MOST_CONTEXTS


class GrowingTables:
    """`RowTables` of two models, which grow by the contexts that steps come to, until they are full. A thread
    numbers new contexts and completes them, while others complete their own, and read what is complete.
    Memory is taken when it is filled."""

    def __init__(self, target: Model, draft: Model, rule: Rule):
        assert rule.positions is not None
        self._positions, self._values = rule.positions, rule.array()
        order, vocab_size = max(target.order, draft.order), target.vocab_size
        # where a model reads fewer tokens, its rows are too few to count
        numbers = 8 + 8 * (target.order == order) + 16 * (draft.order == order)
        size = min(TABLE_BYTES // (numbers * vocab_size), vocab_size**order) + 1
        self._p = _ModelRows(target, size, own=target.order == order, summed=False)
        self._q = _ModelRows(draft, size, own=draft.order == order, summed=True)
        known = self._contexts = Numbers(vocab_size, order, size)
        rows, sums = (self._p.rows, self._q.rows, self._q.sums), np.empty((size, sums_size(vocab_size)))
        p_of, q_of = np.zeros((2, size), dtype=np.int32)
        self.tables = RowTables(*rows, p_of, q_of, sums, known.codes, known.slots, known.end)
        self._start_codes = self._contexts.codes_of(shared_contexts(target, draft))
        self._starts = np.zeros(len(self._start_codes), dtype=np.int32)
        self._lock, self._making = Lock(), list[slice]()  # contexts that are not complete

    @property
    def known(self) -> int:
        """Contexts with lower numbers are complete."""
        with self._lock:
            return min((new.start for new in self._making), default=self._contexts.count)

    def starts(self, places: Ints) -> tuple[Ints, TokenArray]:
        """Codes and numbers, see `_add`, of the contexts at `places` where steps begin."""
        found = self._starts[places]
        if (new := places[found == 0]).size:
            self._starts[new] = self._add(self._start_codes[new])
            found = self._starts[places]
        return self._start_codes[places], found

    def after(self, codes: Ints, tokens: TokenArray) -> tuple[Ints, TokenArray]:
        """The same for the contexts of these codes with one token [B] more."""
        codes = self._contexts.codes_after(codes, tokens)
        return codes, self._add(codes)

    def on_path(self, places: Ints, tokens: TokenArray, q_rows: int) -> PathRows:
        """The rows along tokens[γ+1, B] of steps from `places` on, `q_rows` of q in a step; those that are
        not in the tables are made again."""
        texts, contexts = self._contexts.tokens(self._start_codes[places]), np.zeros_like(tokens)
        windows = sliding_window_view(np.vstack([texts.T, tokens[:-1]]), texts.shape[1], axis=0)
        emitted, tables = tokens >= 0, self.tables
        codes = self._contexts.codes_of(windows[emitted])
        with self._lock:
            contexts[emitted], _ = self._contexts.add(codes)  # none is new
        lost = (self._complete(contexts) == 0) & emitted
        p, q = (rows.model.rows(windows[lost]) for rows in (self._p, self._q))
        p_of, q_of = tables.p_of[contexts], tables.q_of[contexts]
        p_of[lost] = q_of[lost] = ~np.arange(len(p))
        return PathRows(tables.p, tables.q, p, q, p_of, q_of[:q_rows])

    def alone(self, codes: Ints) -> RowTables:
        """Tables of the contexts of these codes, numbered from 1 on in this order."""
        size, texts = len(codes) + 1, self._contexts.tokens(codes)
        vocab_size, numbers = self.tables.p.shape[1], np.arange(size, dtype=np.int32)
        sums = np.empty((2, size, sums_size(vocab_size)))
        p, q = np.empty((2, size, vocab_size))
        self._p.model.rows(texts, out=p[1:])
        self._q.model.rows(texts, out=q[1:])
        known, slots, end = np.append(0, codes), np.zeros(1, dtype=np.int32), self._contexts.end
        found = RowTables(p, q, sums[0], numbers, numbers, sums[1], known, slots, end)
        sum_rows(q[1:], found.q_sums[1:])
        self._positions.recovered(found, 1, size, self._values)
        return found

    def _add(self, codes: Ints) -> TokenArray:
        """The numbers of these contexts, 0 for those without room, or not yet completed by another thread."""
        found = np.empty(len(codes), dtype=np.int32)
        for start, n in pieces(0, len(codes), PIECE):
            found[start : start + n] = self._add_piece(codes[start : start + n])
        return self._complete(found)

    def _add_piece(self, codes: Ints) -> TokenArray:
        tables, both = self.tables, (self._p, self._q)
        with self._lock:
            found, new = self._contexts.add(codes)
            if new.start == new.stop:
                return found
            self._making.append(new)
            tokens = self._contexts.tokens(tables.codes[new])
            tables.p_of[new], tables.q_of[new] = (rows.places(tokens, new) for rows in both)
        for rows in both:
            if rows.own:
                rows.make(tokens, new)
        self._positions.recovered(tables, new.start, new.stop, self._values)
        with self._lock:
            self._making.remove(new)
        return found

    def _complete(self, contexts: TokenArray) -> TokenArray:
        """`contexts`, those that are not complete replaced by 0."""
        with self._lock:
            for new in self._making:
                contexts[(new.start <= contexts) & (contexts < new.stop)] = 0
        return contexts


class Numbers:
    """Texts of `order` tokens, the digits of a code; numbered from 1 as they come, below `size`."""

    def __init__(self, vocab_size: int, order: int, size: int):
        self._vocab_size, self._order, self.count, self.end = vocab_size, order, 1, vocab_size**order
        self.codes = np.zeros(size, dtype=np.int64)
        self.slots = np.zeros(1 << (2 * size).bit_length(), dtype=np.int32)

    def codes_of(self, tokens: TokenArray) -> Ints:
        """The codes of the ends of `tokens` [B, T]."""
        codes = np.zeros(len(tokens), dtype=np.int64)
        for column in tokens.T[tokens.shape[1] - self._order :]:
            codes = codes * self._vocab_size + column
        return codes

    def codes_after(self, codes: Ints, tokens: TokenArray) -> Ints:
        """The codes of these texts without their first token and with one more."""
        return (codes * self._vocab_size + tokens) % self.end

    def tokens(self, codes: Ints) -> TokenArray:
        """The inverse of `codes_of`, int32 [B, order]."""
        powers = self._vocab_size ** np.arange(self._order - 1, -1, -1)
        return (codes[:, None] // powers % self._vocab_size).astype(np.int32)

    def add(self, codes: Ints) -> tuple[TokenArray, slice]:
        """Their numbers, 0 if there is no room, and which of them are new."""
        first, found = self.count, np.empty(len(codes), dtype=np.int32)
        self.count = _add_codes(codes, first, self.codes, self.slots, found)
        return found, slice(first, self.count)


@kernel
def _add_codes(codes, count, kept, slots, found):  # type: ignore[no-untyped-def]
    """Fill found[B] with the indices of codes[B] in `kept`, adding new ones; `slots` is a hash table."""
    for i in range(codes.size):
        slot = find_slot(codes[i], kept, slots, count)
        if slots[slot] == 0 and count < kept.size:
            kept[count] = codes[i]
            slots[slot] = count
            count += 1
        found[i] = slots[slot]
    return count


class _ModelRows:
    """The rows of one model, and their sums if `summed`: `own` ones of each context, or each kept once."""

    def __init__(self, model: Model, size: int, own: bool, summed: bool):
        size = size if own else min(size, model.vocab_size**model.order + 1)
        self.model, self.own, self._numbers = model, own, Numbers(model.vocab_size, model.order, size)
        self.rows = np.empty((size, model.vocab_size))
        self.sums = np.empty((size if summed else 0, sums_size(model.vocab_size)))

    def places(self, tokens: TokenArray, contexts: slice) -> TokenArray:
        """Where the rows of new contexts are, after `tokens` [B, T]; those that are not `own` are made."""
        if self.own:
            return np.arange(contexts.start, contexts.stop, dtype=np.int32)
        found, new = self._numbers.add(self._numbers.codes_of(tokens))
        self.make(self._numbers.tokens(self._numbers.codes[new]), new)
        return found

    def make(self, tokens: TokenArray, places: slice) -> None:
        self.model.rows(tokens, out=self.rows[places])
        sum_rows(self.rows[places], self.sums[places])
