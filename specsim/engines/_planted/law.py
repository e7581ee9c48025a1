"""The distribution of a planted checkpoint: the row of the next token, given the tokens that it reads."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._tensors import UNREADABLE, read_arrays
from specsim.core._types import Floats, Ints
from specsim.core.distributions import check_tokens, synthetic_pair

# What a recurrent state remembers of a text, however long ago it was.

#: Each kind of memory, with what is read.
MEMORIES = {
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
        return states[np.arange(len(states)), newest % self.slots]

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


@dataclass(frozen=True, eq=False)
class TableLogits:
    """A row of logits for each context, `table` [*sizes, words]; -inf for a word that never comes."""

    table: Floats

    @property
    def words(self) -> int:
        return int(self.table.shape[-1])

    def at(self, read: Ints) -> Floats:
        """Logits [N, words] given the numbers of what is read [N, k]; -1 is a memory without a word."""
        return self.table[tuple(read.T)] if read.shape[1] else np.tile(self.table, (len(read), 1))

    @property
    def comes(self) -> NDArray[np.bool_]:
        """Which words may come, [contexts, words], in one row if that is the same in all contexts."""
        return np.isfinite(self.table.reshape(-1, self.words))


@dataclass(frozen=True, eq=False)
class AdditiveLogits:
    """Logits `base` [words] plus `weights` [words, k, bits] times the sign codes of the k tokens read:
    multiples of 1/16, so that sums are exact in any order."""

    base: Floats
    weights: Floats

    @property
    def words(self) -> int:
        return len(self.base)

    @property
    def bits(self) -> int:
        return int(self.weights.shape[2])

    def at(self, read: Ints) -> Floats:
        """As `TableLogits.at`."""
        codes = sign_codes(read, self.bits).reshape(len(read), -1)
        return codes @ self.weights.reshape(self.words, -1).T + self.base

    @property
    def comes(self) -> NDArray[np.bool_]:
        """As `TableLogits.comes`."""
        return np.isfinite(self.base[None])


Logits = TableLogits | AdditiveLogits


def log_softmax(logits: Floats) -> Floats:
    """Natural logarithms of the softmax along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def most_probable(logs: Floats, count: int) -> dict[int, float]:
    """The log-probabilities of the `count` most probable tokens of a row, the possible ones among them."""
    return {int(x): float(logs[x]) for x in np.argsort(-logs, kind="stable")[:count] if logs[x] > -np.inf}


def sign_codes(numbers: Ints, bits: int) -> Floats:
    """The binary digits of `numbers`, the lowest first, as ±1 along a new last axis; 0 for -1."""
    signs = np.where((numbers[..., None] >> np.arange(bits)) & 1, 1.0, -1.0)
    return np.where(numbers[..., None] < 0, 0.0, signs)


@dataclass(frozen=True, eq=False)
class Law:
    """The distribution of the next token of a target or of a draft. The first ids are the words, which may
    come; end-of-text and openers never do."""

    vocab_size: int  #: V, all ids of the checkpoint
    offsets: tuple[int, ...]  #: ascending distances of the tokens that are read: (1, 2) the last two, () none
    openers: tuple[int, ...]  #: ids, one of which begins a prompt where the first token is read; else ()
    logits: Logits  #: of the words
    memory: Memory | None = None  #: what the distribution reads of a recurrent state
    experts: int = 0  #: each with a distribution; the newest token, modulo this number, chooses one

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column of a context has."""
        of_state = (self.words + 1,) * bool(self.memory) + (self.experts,) * bool(self.experts)
        return (self.words,) * len(self.offsets) + of_state + (len(self.openers),) * bool(self.openers)

    @property
    def words(self) -> int:
        """How many ids, from 0, are words: those that may come."""
        return self.logits.words

    @property
    def order(self) -> int:
        """The largest offset, 0 if no token is read."""
        return max(self.offsets, default=0)

    @property
    def start(self) -> int:
        """The first place of a text that has a distribution: there all offsets reach words."""
        return self.order + bool(self.openers)

    def contexts(self, text: ArrayLike, start: int) -> Ints:
        """What the distribution of each token of a text [T] reads, from place `start` on: [T - start, k].

        There is a column for each offset, then the word in memory (`words` for none), the expert, and the
        first token, as far as the distribution reads them. Raises ValueError if `start` is a place without a
        distribution, or if the opener is missing."""
        tokens = check_tokens(text, self.vocab_size, "text")
        if tokens.ndim != 1:
            raise ValueError(f"text: shape {tokens.shape}; expected one text, of shape [T]")
        if start < self.start:
            raise ValueError(
                f"start: place {start} has no distribution, since a token that it reads is not a word of the "
                f"text; begin at place {self.start} or later"
            )
        if self.openers and (len(tokens) == 0 or tokens[0] not in self.openers):
            given = tokens[0] if len(tokens) else None
            raise ValueError(
                f"first token: {given} begins no text of this distribution; give one of {self.openers[0]} … "
                f"{self.openers[-1]}"
            )
        read = tokens[np.arange(start, len(tokens))[:, None] - np.array(self.offsets, dtype=np.int64)]
        remembered = self.memory.along(tokens)[start:-1] if self.memory else None
        return self._joined(read, remembered, tokens[:1])

    def contexts_at(self, texts: Ints, place: int) -> Ints:
        """What the distribution of the tokens at one place of many texts [N, T] reads, [N, k]."""
        seen = texts[:, : place % texts.shape[1] if place < 0 else place]
        remembered = self.memory.after(seen) if self.memory else None
        return self._joined(texts[:, [place - offset for offset in self.offsets]], remembered, texts[:, 0])

    def contexts_of_head(
        self, heads: str, seen: Ints, places: Ints, drafts: Ints, words: Ints | None, stale: int, late: int
    ) -> Ints:
        """What a head reads to draft the tokens at `places` [B, n] of texts [B, T], [B · n, k].

        They are the tokens `drafts` [n] after the first draft of their step. The head's hidden state is
        `stale` positions behind, and the tokens that it is given are `late`. A head is given the newest token
        and the target's hidden state of the token before, as the target has not read the newest. That state
        has what the distribution reads of tokens before it, and the one of `words` [B, n] that the target's
        state remembers there. Each further draft is given the draft before it, and the head's own hidden
        state, which has the tokens that it was given, and what it read. Of a head that drafts a block,
        further drafts read no word, and those of dflash are given the newest token too."""
        offsets = np.array(self.offsets, dtype=np.int64)
        first = places - drafts if heads == "dflash" else places
        read = first[..., None] - offsets - np.where(offsets - 1 <= drafts[..., None], late, stale)
        rows, last = np.arange(len(seen))[:, None, None], seen.shape[1] - 1
        tokens = seen[rows, read.clip(bool(self.openers), last)].reshape(places.size, -1)
        if words is not None:
            none = (drafts > 0) & (heads in BLOCKS)
            words = np.where(none, self.words, np.broadcast_to(words, places.shape)).ravel()
        return self._joined(tokens, words, seen[:, 0].repeat(places.shape[1]))

    def _joined(self, read: Ints, remembered: Ints | None, first: Ints) -> Ints:
        """The columns of contexts [N, k]: the tokens that are read, and those that follow from texts."""
        columns = [read]
        if remembered is not None:
            columns.append(remembered[:, None])
        if self.experts:
            columns.append(read[:, :1] % self.experts)
        if self.openers:
            columns.append(np.broadcast_to(first[:, None], (len(read), 1)))
        return np.concatenate(columns, axis=1)

    def scores(self, contexts: ArrayLike) -> Floats:
        """Logits [N, V] in `contexts` [N, k], -inf for ids that never come. Raises ValueError."""
        found = self.logits.at(self._read(contexts))
        scores = np.full((len(found), self.vocab_size), -np.inf)
        scores[:, : self.words] = found
        return scores

    def log_rows(self, contexts: ArrayLike) -> Floats:
        """Natural logarithms of the rows [N, V]. Raises as `scores`."""
        return log_softmax(self.scores(contexts))

    def rows(self, contexts: ArrayLike) -> Floats:
        """The rows, float64 [N, V], which sum to 1. Raises as `scores`."""
        return np.exp(self.log_rows(contexts))

    def _read(self, contexts: ArrayLike) -> Ints:
        """Contexts as numbers: openers count from 0, and an empty memory is -1. Raises as `scores`."""
        read = check_tokens(contexts, max(self.vocab_size, self.experts), "contexts")
        if read.ndim != 2 or read.shape[1] != len(self.sizes):
            raise ValueError(f"contexts: shape {read.shape}; expected [N, {len(self.sizes)}]")
        read = read.copy()
        if self.openers:
            read[:, -1] -= self.openers[0]
        if (outside := (read < 0) | (read >= np.array(self.sizes, dtype=np.int64))).any():
            row, column = np.argwhere(outside)[0]
            token = np.asarray(contexts)[row, column]
            raise ValueError(f"contexts, row {row}: no distribution after token {token} in column {column}")
        if self.memory:
            remembered = read[:, len(self.offsets)]
            remembered[remembered == self.words] = -1
        return read


# `law.npz`: the distributions of a target and its draft on disk, and the digest of distributions and weights.

MODELS = ("target", "draft")
#: Heads that draft all tokens of a step at once.
BLOCKS = ("dflash", "dspark")


def models_of(heads: str | None) -> tuple[str, ...]:
    """The checkpoints of a pair: that of a head of multi-token prediction is the target's."""
    return MODELS if heads in (None, "mtp") else (*MODELS, "head")


Arrays = dict[str, NDArray[Any]]


def law_arrays(laws: tuple[Law, Law]) -> Arrays:
    """The arrays of both distributions. Logits are multiples of 1/16 below 2^13, which float32 holds."""
    shared = laws[0]
    arrays: Arrays = {
        "vocab_size": np.array(shared.vocab_size),
        "offsets": np.array(shared.offsets, dtype=np.int64),
        "openers": np.array(shared.openers, dtype=np.int64),
    }
    if shared.memory:
        arrays["memory"] = np.array([*MEMORIES].index(shared.memory.kind))
    if shared.experts:
        arrays["experts"] = np.array(shared.experts)
    for name, law in zip(MODELS, laws, strict=True):
        for part, values in vars(law.logits).items():
            arrays[f"{name}_{part}"] = values.astype(np.float32)
    return arrays


def read_laws(path: Path) -> tuple[Law, Law]:
    """The distributions in `path`. Raises ValueError if it holds none."""
    try:
        arrays = read_arrays(path)
        target, draft = (_law(arrays, name) for name in MODELS)
        for law in (target, draft):
            _check(law)
    except UNREADABLE as error:
        raise ValueError(f"{path}: damaged, or without distributions ({error}); plant it again") from error
    return target, draft


def _law(arrays: Arrays, name: str) -> Law:
    offsets, openers = (tuple(int(value) for value in arrays[part]) for part in ("offsets", "openers"))
    kind: Any = TableLogits if f"{name}_table" in arrays else AdditiveLogits
    logits = kind(*(arrays[f"{name}_{part.name}"].astype(np.float64) for part in fields(kind)))
    memory = Memory([*MEMORIES][int(arrays["memory"])], logits.words) if "memory" in arrays else None
    return Law(int(arrays["vocab_size"]), offsets, openers, logits, memory, int(arrays.get("experts", 0)))


def _check(law: Law) -> None:
    """Raise ValueError, or one of `UNREADABLE`, unless a planted pair can have this distribution."""
    end, ids = law.words + 1, len(law.openers)
    if law.vocab_size != end + ids or law.openers != tuple(range(end, end + ids)):
        raise ValueError(f"{law.words} words, the end of text and {law.openers} are not {law.vocab_size} ids")
    if not all(0 < a < b for a, b in pairwise((*law.offsets, law.order + 1))):
        raise ValueError(f"offsets {law.offsets} do not rise from 1")
    if law.experts < 0 or (law.experts and law.offsets[:1] != (1,)):
        raise ValueError(f"{law.experts} experts without the newest token, which chooses one")
    last = [law.words - 1] * (len(law.offsets) + bool(law.memory))
    last += [law.experts - 1] * bool(law.experts) + [law.vocab_size - 1] * bool(ids)
    if not np.isfinite(law.rows(np.array([last], dtype=np.int64))).all():
        raise ValueError("a row has entries that are no numbers")


def digest_of(laws: tuple[Law, Law], weights: Iterable[Mapping[str, NDArray[Any]]]) -> str:
    """The SHA-256 of names, types, shapes and values of all arrays of the distributions and weights."""
    found = hashlib.sha256()
    for part in chain([law_arrays(laws)], weights):
        for name, array in sorted(part.items()):
            found.update(f"{name} {array.dtype.str} {array.shape};".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


# Both distributions drawn at random, on a grid that half precision holds exactly: logits are multiples of
# 1/16 in [-16, 16], which bfloat16 represents without rounding. A word that never comes has -inf. Words of a
# table's row have different logits where the range allows it: which of equally probable words top-k and top-p
# keep is each engine's own choice.

GRID = 16
#: The largest tables: contexts, and numbers. Larger distributions are additive.
MOST_ROWS = 1024
MOST_ENTRIES = 2**20
#: Range of an additive distribution's logits: the base from -11 to 0, and what is read from -5 to 5.
BASE, READ = 11.0, 5.0

#: Contexts over which the overlap of an additive pair is measured.
TRIED = 64

LogitsPair = tuple[Logits, Logits]


def draw_pair(
    words: int,
    offsets: tuple[int, ...],
    openers: int,
    kind: str,
    overlap: float,
    rng: np.random.Generator,
    memory: Memory | None = None,
    experts: int = 0,
) -> tuple[Law, Law]:
    """A target and a draft that read the same tokens, with Σ min(p, q) near `overlap` in each context. After
    the words come the id of end-of-text and those of the openers."""
    sizes = (words,) * len(offsets) + (words + 1,) * bool(memory) + (experts,) * bool(experts)
    sizes += (openers,) * (openers > 0)
    contexts = np.prod(sizes, dtype=float)
    shared = words + 1 + openers, offsets, tuple(range(words + 1, words + 1 + openers))
    logits: Iterable[Logits]
    if contexts <= MOST_ROWS and contexts * words <= MOST_ENTRIES:
        pairs = np.array([_shuffled_pair(words, kind, overlap, rng, 16.0) for _ in range(int(contexts))])
        logits = (TableLogits(_apart(pairs[:, i], 16.0).reshape(*sizes, words)) for i in (0, 1))
    else:
        logits = _additive(sizes, len(offsets) if memory else None, words, kind, overlap, rng)
    target, draft = (Law(*shared, one, memory, experts) for one in logits)
    return target, draft


def _additive(
    sizes: tuple[int, ...], empty: int | None, words: int, kind: str, overlap: float, rng: np.random.Generator
) -> LogitsPair:
    """Both read the tokens alike, with the bases that give the mean overlap asked for. In the column `empty`
    the largest number is an empty memory."""
    bits = code_bits(max(size - (column == empty) for column, size in enumerate(sizes)))
    largest = max(1, int(READ * GRID) // (len(sizes) * bits))
    weights = rng.integers(-largest, largest + 1, size=(words, len(sizes), bits)) / GRID
    seed, contexts = int(rng.integers(2**32)), rng.integers(sizes, size=(TRIED, len(sizes)))
    if empty is not None:
        contexts[contexts[:, empty] == words, empty] = -1

    def made(overlap_of_bases: float) -> LogitsPair:
        bases = _shuffled_pair(words, kind, overlap_of_bases, np.random.default_rng(seed), BASE)
        target, draft = (AdditiveLogits(base, weights) for base in bases)
        return target, draft

    def excess(overlap_of_bases: float) -> float:
        p, q = (np.exp(log_softmax(logits.at(contexts))) for logits in made(overlap_of_bases))
        return float(np.minimum(p, q).sum(axis=1).mean()) - overlap

    if overlap in (0, 1):
        return made(overlap)
    from scipy.optimize import brentq  # imported here: reading a distribution should not load scipy

    return made(brentq(excess, 0.0, 1.0, xtol=2e-3))


def code_bits(numbers: int) -> int:
    """The bits that tell `numbers` numbers apart, at least 1."""
    return max(1, (numbers - 1).bit_length())


def _shuffled_pair(
    words: int, kind: str, overlap: float, rng: np.random.Generator, depth: float
) -> tuple[Floats, Floats]:
    """Logits on the grid of a synthetic pair, its words in random order."""
    order = rng.permutation(words)
    p, q = synthetic_pair(kind, words, overlap, rng=rng)
    return _on_grid(p[order], depth), _on_grid(q[order], depth)


def _on_grid(row: Floats, depth: float) -> Floats:
    """Logarithms of a row relative to its largest entry, on the grid, from -depth on; -inf for 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(row / row.max())
    return np.where(row > 0, np.round(np.maximum(logs, -depth) * GRID) / GRID, -np.inf)


def _apart(logits: Floats, depth: float) -> Floats:
    """Rows without equal logits: of two words the second moves down a step, if it stays above -depth."""
    order = np.argsort(-logits, axis=1, kind="stable")
    steps = np.arange(logits.shape[1]) / GRID
    ranked = np.minimum.accumulate(np.take_along_axis(logits, order, 1) + steps, axis=1) - steps
    moved = np.empty_like(logits)
    np.put_along_axis(moved, order, ranked, 1)
    lowest = np.where(np.isfinite(moved), moved, 0.0).min(axis=1, keepdims=True)
    return np.where(lowest >= -depth, moved, logits)
