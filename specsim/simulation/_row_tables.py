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
from specsim.simulation._rows import PathRows

#: The largest vocabulary size of tables, and the most memory that they take.
LARGEST, TABLE_BYTES = 512, 2**28
MOST_CONTEXTS = 2**62  #: a context is one integer


def fits(target: Model, draft: Model) -> bool:
    """Whether tables may keep the rows of both models: few tokens, rows that depend on the last ones."""
    order = max(target.order, draft.order)
    forgets = not (getattr(target, "reads_all", False) or getattr(draft, "reads_all", False))
    return forgets and target.vocab_size <= LARGEST and target.vocab_size**order < MOST_CONTEXTS


class GrowingTables:
    """`RowTables` of two models, which grow by the contexts that steps come to, until they are full. Entries
    are written once, and steps read those below a number that they know, so threads may read while one
    writes. Memory is taken when it is filled."""

    def __init__(self, target: Model, draft: Model, rule: Rule):
        assert rule.positions is not None
        self._positions, self._values = rule.positions, rule.array()
        order, vocab_size = max(target.order, draft.order), target.vocab_size
        # where a model reads fewer tokens, its rows are too few to count
        numbers = 8 + 8 * (target.order == order) + 16 * (draft.order == order)
        size = min(TABLE_BYTES // (numbers * vocab_size), vocab_size**order) + 1
        self._p, self._q = _ModelRows(target, size), _ModelRows(draft, size)
        self._contexts = Numbers(vocab_size, order, size)
        places = np.zeros((2, size), dtype=np.int32)
        self.tables = RowTables(
            p=self._p.rows,
            q=self._q.rows,
            q_sums=np.empty((len(self._q.rows), sums_size(vocab_size))),
            p_of=places[0],
            q_of=places[1],
            recovered=np.empty((size, sums_size(vocab_size))),
            codes=self._contexts.codes,
            slots=self._contexts.slots,
            end=self._contexts.end,
        )
        self._start_codes = self._contexts.codes_of(shared_contexts(target, draft))
        self._starts = np.zeros(len(self._start_codes), dtype=np.int32)
        self._lock = Lock()

    @property
    def known(self) -> int:
        """Contexts with lower numbers are complete."""
        with self._lock:
            return self._contexts.count

    def starts(self, places: Ints) -> tuple[Ints, TokenArray]:
        """Codes and numbers of the contexts at `places` where steps begin; a number is 0 without room."""
        found = self._starts[places]
        if (new := places[found == 0]).size:
            self._starts[new] = self._add(self._start_codes[new])
            found = self._starts[places]
        return self._start_codes[places], found

    def after(self, contexts: TokenArray, tokens: TokenArray) -> tuple[Ints, TokenArray]:
        """The same for these contexts with one token [B] more."""
        return self.follow(self._contexts.codes[contexts], tokens)

    def follow(self, codes: Ints, tokens: TokenArray) -> tuple[Ints, TokenArray]:
        """The same for the contexts of these codes with one token [B] more."""
        codes = self._contexts.codes_after(codes, tokens)
        return codes, self._add(codes)

    def on_path(self, places: Ints, tokens: TokenArray, q_rows: int) -> PathRows:
        """The rows along tokens[γ+1, B] of steps from `places` on, `q_rows` of q in a step; those that had no
        room are made again."""
        tables, texts = self.tables, self._contexts.tokens(self._start_codes[places])
        windows = sliding_window_view(np.vstack([texts.T, tokens[:-1]]), texts.shape[1], axis=0)
        found = self._contexts.find(self._contexts.codes_of(windows.reshape(-1, texts.shape[1])), self.known)
        contexts = found.reshape(tokens.shape)
        lost = (contexts == 0) & (tokens >= 0)
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
        with self._lock:
            found, new = self._contexts.add(codes)
            if new.start < new.stop:
                tables, tokens = self.tables, self._contexts.tokens(self._contexts.codes[new])
                tables.p_of[new], _ = self._p.add(tokens)
                tables.q_of[new], drafts = self._q.add(tokens)
                sum_rows(tables.q[drafts], tables.q_sums[drafts])
                self._positions.recovered(tables, new.start, new.stop, self._values)
        return found


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

    def find(self, codes: Ints, known: int) -> TokenArray:
        """The numbers of these codes, 0 where it is not below `known`."""
        found = np.empty(len(codes), dtype=np.int32)
        _find_codes(codes, known, self.codes, self.slots, found)
        return found

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


@kernel
def _find_codes(codes, known, kept, slots, found):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        number = slots[find_slot(codes[i], kept, slots, known)]
        found[i] = number if number < known else 0


class _ModelRows:
    """The rows of one model, each kept once."""

    def __init__(self, model: Model, size: int):
        size = min(size, model.vocab_size**model.order + 1)
        self.model, self._numbers = model, Numbers(model.vocab_size, model.order, size)
        self.rows = np.empty((size, model.vocab_size))

    def add(self, tokens: TokenArray) -> tuple[TokenArray, slice]:
        """Where in `rows` those after `tokens` [B, T] are, and which of them are new."""
        found, new = self._numbers.add(self._numbers.codes_of(tokens))
        if new.start < new.stop:
            self.model.rows(self._numbers.tokens(self._numbers.codes[new]), out=self.rows[new])
        return found, new
