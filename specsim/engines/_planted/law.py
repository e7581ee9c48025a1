"""The distribution of a planted checkpoint: the row of the next token, given the tokens that it reads."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._tensors import UNREADABLE, read_arrays
from specsim.core._types import Floats, Ints, TokenArray
from specsim.core.distributions import check_tokens, synthetic_pair
from specsim.models import Model
from specsim.models._base import check_out, last_tokens, recent_tokens

#: The largest number of contexts that a distribution lists as those of its model; of more it draws as many.
MOST_CONTEXTS = 4096


@dataclass(frozen=True, eq=False)
class TableLogits:
    """A row of logits for each context, `table` [*sizes, words]; -inf for a word that never comes."""

    table: Floats

    @property
    def words(self) -> int:
        return int(self.table.shape[-1])

    def at(self, read: Ints) -> Floats:
        """Logits [N, words] given what is read [N, k]: numbers of words, and last that of the opener."""
        return self.table[tuple(read.T)] if read.shape[1] else np.tile(self.table, (len(read), 1))


@dataclass(frozen=True, eq=False)
class AdditiveLogits:
    """Logits `base` [words] plus `weights` [words, k, bits] times the sign codes of the k tokens read.

    All numbers are multiples of 1/16, so that sums are exact in any order."""

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


Logits = TableLogits | AdditiveLogits


def log_softmax(logits: Floats) -> Floats:
    """Natural logarithms of the softmax along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def sign_codes(numbers: Ints, bits: int) -> Floats:
    """The binary digits of `numbers`, the lowest first, as ±1 along a new last axis."""
    return np.where((numbers[..., None] >> np.arange(bits)) & 1, 1.0, -1.0)


@dataclass(frozen=True, eq=False)
class Law:
    """The distribution of the next token of a target or of a draft.

    The first ids are the words, which may come; end-of-text and openers never do."""

    vocab_size: int  #: V, all ids of the checkpoint
    offsets: tuple[int, ...]  #: ascending distances of the tokens that are read: (1, 2) the last two, () none
    openers: tuple[int, ...]  #: ids, one of which begins a prompt where the first token is read; else ()
    logits: Logits  #: of the words

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

        There is a column for each offset, then the first token if the distribution has openers. Raises
        ValueError if `start` is a place without a distribution, or if the opener is missing."""
        tokens = check_tokens(text, self.vocab_size, "text")
        if tokens.ndim != 1:
            raise ValueError(f"text: shape {tokens.shape}; expected one text, of shape [T]")
        if start < self.start:
            raise ValueError(
                f"start: place {start} has no distribution, since a token that it reads is not a word of the "
                f"text; begin at place {self.start} or later"
            )
        found = tokens[np.arange(start, len(tokens))[:, None] - np.array(self.offsets, dtype=np.int64)]
        if self.openers:
            self._check_opener(int(tokens[0]) if len(tokens) else None)
            found = np.column_stack([found, np.full(len(found), tokens[0])])
        return found

    def contexts_at(self, texts: Ints, place: int) -> Ints:
        """What the distribution of the tokens at one place of many texts [N, T] reads, [N, k]."""
        return texts[:, [place - offset for offset in self.offsets] + [0] * bool(self.openers)]

    def log_rows(self, contexts: ArrayLike) -> Floats:
        """Natural logarithms of the rows [N, V] in `contexts` [N, k], -inf for ids that never come.

        Raises ValueError if a context reads a token after which there is no distribution."""
        found = log_softmax(self.logits.at(self._read(contexts)))
        rows = np.full((len(found), self.vocab_size), -np.inf)
        rows[:, : self.words] = found
        return rows

    def rows(self, contexts: ArrayLike) -> Floats:
        """The rows, float64 [N, V], which sum to 1. Raises as `log_rows`."""
        return np.exp(self.log_rows(contexts))

    def given(self, first: int | None = None) -> Model:
        """The distribution as a model of order `self.order`, for texts that begin with the opener `first`.

        Raises ValueError unless `first` is an opener of the distribution, or None where it has none."""
        if self.openers or first is not None:
            self._check_opener(first)
        return LawModel(self, first)

    def _check_opener(self, first: int | None) -> None:
        if first not in self.openers:
            given = f"one of {self.openers[0]} … {self.openers[-1]}" if self.openers else "none"
            raise ValueError(f"first token: {first} begins no text of this distribution; give {given}")

    def _read(self, contexts: ArrayLike) -> Ints:
        """Contexts with the opener's id replaced by its number, checked."""
        read = check_tokens(contexts, self.vocab_size, "contexts")
        width = len(self.offsets) + bool(self.openers)
        if read.ndim != 2 or read.shape[1] != width:
            raise ValueError(f"contexts: shape {read.shape}; expected [N, {width}]")
        read = read.copy()
        limits = np.full(width, self.words)
        if self.openers:
            read[:, -1] -= self.openers[0]
            limits[-1] = len(self.openers)
        outside = (read < 0) | (read >= limits)
        if outside.any():
            row, column = np.argwhere(outside)[0]
            token = np.asarray(contexts)[row, column]
            raise ValueError(f"contexts, row {row}: no distribution after token {token} in column {column}")
        return read


class LawModel:
    """A `Law` as a `specsim.models.Model`, after a given opener or none."""

    def __init__(self, law: Law, first: int | None):
        self.vocab_size = law.vocab_size
        self.order = law.order
        self._law = law
        self._opener = np.array([] if first is None else [first], dtype=np.int32)

    @cached_property
    def contexts(self) -> TokenArray:
        """All contexts of words, or some thousand drawn with a fixed seed."""
        size, count = (self._law.words,) * self.order, float(self._law.words) ** self.order
        if count <= MOST_CONTEXTS:
            return np.indices(size).reshape(self.order, int(count)).T.astype(np.int32)
        drawn = np.random.default_rng(0).integers(self._law.words, size=(MOST_CONTEXTS, self.order))
        return drawn.astype(np.int32)

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of `histories`, as `Model.rows`."""
        recent = recent_tokens(histories, self.order, self.vocab_size)
        texts = np.hstack([np.tile(self._opener, (len(recent), 1)), recent])
        out = check_out(out, len(recent), self.vocab_size)
        out[...] = self._law.rows(self._law.contexts_at(texts, texts.shape[1]))
        return out

    def row(self, context: Sequence[int]) -> Floats:
        """The row after one `context`."""
        recent = last_tokens(context, self.order, self.vocab_size)
        return self.rows(np.array([recent], dtype=np.int32).reshape(1, self.order))[0]


# `law.npz`: the distributions of a target and its draft on disk, and the digest of distributions and weights.

MODELS = ("target", "draft")

Arrays = dict[str, NDArray[Any]]


def law_arrays(laws: tuple[Law, Law]) -> Arrays:
    """The arrays of both distributions. Logits are multiples of 1/16 below 2^13, which float32 holds."""
    shared = laws[0]
    arrays: Arrays = {
        "vocab_size": np.array(shared.vocab_size),
        "offsets": np.array(shared.offsets, dtype=np.int64),
        "openers": np.array(shared.openers, dtype=np.int64),
    }
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
    return Law(int(arrays["vocab_size"]), offsets, openers, logits)


def _check(law: Law) -> None:
    """Raise ValueError, or one of `UNREADABLE`, unless a planted pair can have this distribution."""
    end, ids = law.words + 1, len(law.openers)
    if law.vocab_size != end + ids or law.openers != tuple(range(end, end + ids)):
        raise ValueError(f"{law.words} words, the end of text and {law.openers} are not {law.vocab_size} ids")
    if not all(0 < a < b for a, b in pairwise((*law.offsets, law.order + 1))):
        raise ValueError(f"offsets {law.offsets} do not rise from 1")
    last = [law.words - 1] * len(law.offsets) + [law.vocab_size - 1] * bool(ids)
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
    words: int, offsets: tuple[int, ...], openers: int, kind: str, overlap: float, rng: np.random.Generator
) -> tuple[Law, Law]:
    """A target and a draft that read the same tokens, with Σ min(p, q) near `overlap` in each context.

    After the words come the id of end-of-text and those of the openers."""
    sizes = (words,) * len(offsets) + (openers,) * (openers > 0)
    contexts = np.prod(sizes, dtype=float)
    fits = contexts <= MOST_ROWS and contexts * words <= MOST_ENTRIES
    logits = (_tables if fits else _additive)(sizes, words, kind, overlap, rng)
    ids = tuple(range(words + 1, words + 1 + openers))
    target, draft = (Law(words + 1 + openers, offsets, ids, one) for one in logits)
    return target, draft


def _tables(
    sizes: tuple[int, ...], words: int, kind: str, overlap: float, rng: np.random.Generator
) -> LogitsPair:
    pairs = np.array([_shuffled_pair(words, kind, overlap, rng, 16.0) for _ in range(int(np.prod(sizes)))])
    target, draft = (_apart(pairs[:, i], 16.0).reshape(*sizes, words) for i in (0, 1))
    return TableLogits(target), TableLogits(draft)


def _additive(
    sizes: tuple[int, ...], words: int, kind: str, overlap: float, rng: np.random.Generator
) -> LogitsPair:
    """Both read the tokens alike. Their bases are those for which the mean overlap is the one asked for."""
    bits = code_bits(max(sizes))
    largest = max(1, int(READ * GRID) // (len(sizes) * bits))
    weights = rng.integers(-largest, largest + 1, size=(words, len(sizes), bits)) / GRID
    seed, contexts = int(rng.integers(2**32)), rng.integers(sizes, size=(TRIED, len(sizes)))

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
    rounded: Floats = np.round(np.maximum(logs, -depth) * GRID) / GRID
    return np.where(row > 0, rounded, -np.inf)


def _apart(logits: Floats, depth: float) -> Floats:
    """Rows without equal logits: of two words the second is moved down by a step of the grid. A row does
    not change where it would get a logit below -depth."""
    order = np.argsort(-logits, axis=1, kind="stable")
    steps = np.arange(logits.shape[1]) / GRID
    ranked = np.minimum.accumulate(np.take_along_axis(logits, order, 1) + steps, axis=1) - steps
    moved = np.empty_like(logits)
    np.put_along_axis(moved, order, ranked, 1)
    lowest = np.where(np.isfinite(moved), moved, 0.0).min(axis=1, keepdims=True)
    return np.where(lowest >= -depth, moved, logits)
