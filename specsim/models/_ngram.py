"""Byte-level n-grams with interpolated Kneser–Ney smoothing.

For a context h of k-1 bytes, with h' the context without its first byte,

    p_k(x | h) = (max(c(h x) − D_k, 0) + D_k N1+(h •) p_{k−1}(x | h')) / Σ_y c(h y),      p_0 = 1/256,

and p_k(x | h) = p_{k−1}(x | h') where h was never seen. N1+(h •) is the number of distinct bytes seen after
h. At the highest level c counts occurrences; below it, c(h x) is the number of distinct bytes seen in front
of h x. The discount of each level is D = n1 / (n1 + 2 n2), n_r the number of its k-grams with count r. The
uniform distribution at the bottom leaves every byte with a positive probability.

Sources: Ney, Essen & Kneser, *On structuring probabilistic dependences in stochastic language modelling*
(Computer Speech and Language 8, 1994), for D; Kneser & Ney, *Improved backing-off for m-gram language
modeling* (ICASSP 1995), for the counts below the highest; Chen & Goodman, *An empirical study of smoothing
techniques for language modeling* (Harvard TR-10-98, 1998), section 2.7, for the interpolated form.

A text contributes its windows of n bytes and nothing else, so no context reaches across two texts, and the
distinct windows with their counts *are* the model: every lower level follows from them. They are all that a
file stores. In memory the contexts of 2 bytes and more are a hash table, that of 0 or 1 byte a dense array,
so that a row costs one scaled copy and a few sparse updates. Each level is a pmf by its formula, so a row
sums to 1 within a few units of rounding, without a pass to normalise it."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._files import check_file
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._tensors import UNREADABLE, read_arrays, write_arrays
from specsim.core._types import Floats, checked
from specsim.models._base import check_contexts, check_out, last_tokens, recent_tokens
from specsim.models._processed import Processable

VOCAB = 256
#: A window is packed into 64 bits.
LONGEST = 8
#: The discount where counts of counts give none (n1 = 0): any value in (0, 1) keeps every byte possible.
FALLBACK_DISCOUNT = 0.5

Keys = NDArray[np.uint64]
Provenance = Mapping[str, str | int | float]


class NGramModel(Processable):
    """An n-gram over bytes (V = 256) with interpolated Kneser–Ney smoothing.

    `n` is the n-gram order, and `order` = n - 1 the number of bytes read.

    Parameters
    ----------
    ngrams : ndarray of uint8, shape [N, n]
        The windows seen, distinct and in lexicographic order, n from 1 to 8.
    counts : array_like of int, shape [N]
        How often each was seen, from 1 to 2³¹ - 1.
    contexts : array_like of int, shape [M, n - 1], optional
        Where a step may begin; by default each context seen, once.
    provenance : mapping, optional
        What the model was trained on, in short strings and numbers.

    Examples
    --------
    >>> model = NGramModel.train([b"abracadabra"], n=3)
    >>> row = model.row(b"ab")
    >>> chr(row.argmax()), round(float(row[ord("r")]), 4)
    ('r', 0.723)
    """

    vocab_size = VOCAB

    @checked
    def __init__(
        self,
        ngrams: NDArray[np.uint8],
        counts: ArrayLike,
        contexts: ArrayLike | None = None,
        provenance: Provenance | None = None,
    ):
        self.ngrams, self.counts = _check_counts(np.asarray(ngrams), np.asarray(counts))
        self.n: int = self.ngrams.shape[1]
        self.order: int = self.n - 1
        if contexts is None:
            contexts = _unpack(np.unique(_pack(self.ngrams[:, :-1])), self.n - 1)
        self.contexts = check_contexts(contexts, self.order, VOCAB)
        self.provenance: Provenance = dict(provenance or {})

        # (k-grams, c) for k = 1..n: counts of occurrences at n, of distinct preceding bytes below it
        keys = _pack(self.ngrams)
        levels: list[tuple[Keys, NDArray[Any]]] = [(keys, self.counts)]
        for k in range(self.n - 1, 0, -1):
            keys, c = np.unique(keys & np.uint64((1 << 8 * k) - 1), return_counts=True)
            levels.insert(0, (keys, c))
        #: D_k at index k, the n-gram level; index 0 is not used.
        self.discounts = np.array([0.0] + [_discount(count) for _, count in levels])
        self._dense = _dense_rows(levels[:2], self.discounts)
        self._records, self._successors, self._successor_counts = _sparse_levels(levels[2:])

    @classmethod
    @checked
    def train(cls, texts: Iterable[bytes], n: int, contexts: ArrayLike | None = None) -> "NGramModel":
        """Count the windows of `n` bytes (1 to 8) in each of `texts`.

        Raises ValueError if n is out of range, or if no text is as long as n bytes."""
        if not 1 <= n <= LONGEST:
            raise ValueError(f"n: {n} is outside [1, {LONGEST}]; give a number of bytes")
        windows = [_windows(text, n) for text in texts]
        keys, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *windows]), return_counts=True)
        if keys.size == 0:
            raise ValueError(f"texts: none is as long as n = {n} bytes; give more text, or a smaller n")
        return cls(_unpack(keys, n), counts, contexts)

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of `histories`, as `Model.rows`; fastest where `out` is contiguous."""
        recent = recent_tokens(histories, self.order, VOCAB)
        if not recent.flags.writeable:  # numba compiles the kernel for each of both
            recent = recent.copy()
        out = check_out(out, len(recent), VOCAB)
        _fill_rows(recent, self._dense, *self._hashed, self.discounts, out)
        return out

    def row(self, context: Sequence[int]) -> Floats:
        """The row after one `context` (n − 1 bytes or more; `bytes` will do), float64 [256]; no numba."""
        recent = last_tokens(context, self.order, VOCAB)
        seen: list[tuple[int, list[int]]] = []  # the record of each ending that training saw, by its length
        for length in range(2, len(recent) + 1):
            key = int.from_bytes(b"\1" + bytes(recent[-length:]))
            index = int(np.searchsorted(self._records[:, 0], key))
            if index == len(self._records) or self._records[index, 0] != key:
                break
            seen.append((length, self._records[index].tolist()))
        scale, weights = 1.0, []
        for length, (_, _, kinds, total) in reversed(seen):
            weights.append(scale / total)
            scale *= self.discounts[length + 1] * kinds / total
        row = scale * self._dense[recent[-1] if recent else 0]
        for (length, (_, start, kinds, _)), weight in zip(seen, reversed(weights), strict=True):
            span = slice(start, start + kinds)
            counts = self._successor_counts[span]
            row[self._successors[span]] += weight * (counts - self.discounts[length + 1])
        return row

    @cached_property
    def _hashed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A hash table [2^k, 4] of the records, key 0 where empty; of each successor count · 256 + byte."""
        table = np.zeros((1 << (2 * len(self._records)).bit_length(), 4), dtype=np.int64)
        _fill_table(self._records, table)
        return table, self._successor_counts.astype(np.int64) << 8 | self._successors

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one `.npz` file, atomically."""
        write_arrays(path, self.to_arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "NGramModel":
        """Read a model that `save` wrote. Raises ValueError for a file that is damaged or of another kind."""
        return read_models(path, [""])[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arrays of a file, a quarter of the size of the tables made from them."""
        return type(self).from_arrays, (self.to_arrays(),)

    def to_arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """The arrays that make up a file, laid out to compress well: by column, counts by their bytes."""
        planes = self.counts.astype("<u4").view(np.uint8).reshape(-1, 4)
        return {
            f"{prefix}ngrams": np.ascontiguousarray(self.ngrams.T),
            f"{prefix}counts": np.ascontiguousarray(planes.T),
            f"{prefix}contexts": self.contexts.astype(np.uint8),
            f"{prefix}provenance": np.array(json.dumps(self.provenance)),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> "NGramModel":
        """The inverse of `to_arrays`. Raises KeyError, TypeError or ValueError for other arrays."""
        return cls(
            np.ascontiguousarray(arrays[f"{prefix}ngrams"].T),
            np.ascontiguousarray(arrays[f"{prefix}counts"].T).view("<u4")[:, 0],
            arrays[f"{prefix}contexts"],
            json.loads(str(arrays[f"{prefix}provenance"])),
        )


def bits_per_byte(model: NGramModel, texts: Iterable[bytes]) -> float:
    """Cross-entropy of a model on texts: the mean of -log2 p(byte | the `order` bytes before it), in bits;
    ValueError if no byte has as many before it."""
    bits, n_bytes = 0.0, 0
    for text in texts:
        windows = _unpack(_windows(text, model.n), model.n)
        for start in range(0, len(windows), 1024):
            block = windows[start : start + 1024]
            p = model.rows(block[:, :-1])
            bits -= float(np.log2(p[np.arange(len(block)), block[:, -1]]).sum())
            n_bytes += len(block)
    if n_bytes == 0:
        raise ValueError(f"texts: no byte has {model.order} bytes before it; give more text")
    return bits / n_bytes


def _windows(text: bytes, n: int) -> Keys:
    """Every window of `n` bytes, packed big-endian, so that keys sort as the bytes do."""
    symbols = np.frombuffer(text, dtype=np.uint8)
    if len(symbols) < n:
        return np.empty(0, dtype=np.uint64)
    return _pack(np.lib.stride_tricks.sliding_window_view(symbols, n))


def _pack(ngrams: NDArray[np.uint8]) -> Keys:
    keys = np.zeros(len(ngrams), dtype=np.uint64)
    for column in ngrams.T:
        keys = keys << 8 | column
    return keys


def _unpack(keys: Keys, n: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(keys.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - n :])


def _check_counts(ngrams: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    if ngrams.dtype != np.uint8 or counts.dtype.kind not in "iu":
        raise TypeError(f"ngrams, counts: expected uint8 and integers, got {ngrams.dtype} and {counts.dtype}")
    if ngrams.ndim != 2 or not 1 <= ngrams.shape[1] <= LONGEST or len(ngrams) == 0:
        raise ValueError(f"ngrams: shape {ngrams.shape}; give [N, n], N ≥ 1 and n from 1 to {LONGEST}")
    if counts.shape != (len(ngrams),):
        raise ValueError(f"counts: shape {counts.shape}; give [{len(ngrams)}], one for each n-gram")
    if counts.min() < 1 or counts.max() >= 2**31:
        raise ValueError("counts: some are outside [1, 2**31 - 1]; give the n-grams that were seen")
    keys = _pack(ngrams)
    if (keys[1:] <= keys[:-1]).any():
        place = int(np.argmax(keys[1:] <= keys[:-1])) + 1
        raise ValueError(f"ngrams, row {place}: out of order or repeated; give distinct, sorted rows")
    return ngrams, counts.astype(np.int32)


def _discount(counts: NDArray[Any]) -> float:
    """D = n1 / (n1 + 2 n2), in (0, 1]."""
    n1, n2 = int((counts == 1).sum()), int((counts == 2).sum())
    return n1 / (n1 + 2 * n2) if n1 else FALLBACK_DISCOUNT


def _dense_rows(levels: list[tuple[Keys, NDArray[Any]]], discounts: Floats) -> Floats:
    """The rows after each context of min(n − 1, 1) bytes: float64 [1, 256] or [256, 256]."""
    rows = np.full((1, VOCAB), 1 / VOCAB)
    for k, (keys, counts) in enumerate(levels, start=1):
        table = np.zeros(VOCAB**k)
        table[keys] = counts
        c = table.reshape(-1, VOCAB)
        total, kinds = c.sum(axis=1, keepdims=True), (c > 0).sum(axis=1, keepdims=True)
        smoothed = (np.maximum(c - discounts[k], 0) + discounts[k] * kinds * rows) / np.maximum(total, 1)
        rows = np.where(total > 0, smoothed, rows)
    return rows


def _sparse_levels(
    levels: list[tuple[Keys, NDArray[Any]]],
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int32]]:
    """All contexts of 2 bytes and more: `records` int64 [contexts, 4] of key, where successors start, how
    many, and the sum of their counts, by key; then all `successors` and their counts."""
    records = [np.empty((0, 4), dtype=np.int64)]
    offset = 0
    for length, (keys, counts) in enumerate(levels, start=2):
        # a leading 1 tells contexts of different lengths apart
        contexts = (keys >> 8).astype(np.int64) | 1 << 8 * length
        starts = np.flatnonzero(np.diff(contexts, prepend=-1))
        kinds = np.diff(starts, append=len(keys))
        totals = np.add.reduceat(counts, starts, dtype=np.int64)
        records.append(np.stack([contexts[starts], starts + offset, kinds, totals], axis=1))
        offset += len(keys)
    successors = [np.empty(0, np.uint8), *(keys.astype(np.uint8) for keys, _ in levels)]
    counts_ = [np.empty(0, np.int32), *(counts.astype(np.int32) for _, counts in levels)]
    return np.concatenate(records), np.concatenate(successors), np.concatenate(counts_)


@inner_kernel
def slot_of(key, n_slots):
    """Where in a hash table of 2^k slots to look for `key` ≥ 0 first; products stay below 2⁶³."""
    return ((key & 0xFFFFFFFF) * 0x2C1B3C6D + (key >> 32) * 0x297A2D39 >> 20) & (n_slots - 1)


@kernel
def _fill_table(records, table):
    for index in range(len(records)):
        slot = _find(int(records[index, 0]), table)
        for column in range(records.shape[1]):  # a row at once takes numba seconds to compile
            table[slot, column] = records[index, column]


@kernel
def _find(key, table):
    """The place of the record of `key` in `table`, an empty one if it has none."""
    slot = slot_of(key, len(table))
    while table[slot, 0] > 0 and table[slot, 0] != key:
        slot = (slot + 1) & (len(table) - 1)
    return slot


@kernel
def _fill_rows(recent, dense, table, successors, discounts, out):
    size, order = recent.shape
    seen = np.empty(order + 1, np.int64)
    weights = np.empty(order + 1)
    for b in range(size):
        last = int(recent[b, order - 1]) if order > 0 else 0
        packed, longest = last, 1
        for length in range(2, order + 1):
            packed |= int(recent[b, order - length]) << 8 * (length - 1)
            slot = _find(packed | 1 << 8 * length, table)
            if table[slot, 0] == 0:
                break
            seen[length] = slot
            longest = length

        # p = weight_n · (c_n - D_n) + … + weight_3 · (c_3 - D_3) + scale · p_2
        scale = 1.0
        for length in range(longest, 1, -1):
            kinds, total = table[seen[length], 2], table[seen[length], 3]
            weights[length] = scale / total
            scale *= discounts[length + 1] * kinds / total
        for x in range(out.shape[1]):
            out[b, x] = scale * dense[last, x]
        for length in range(2, longest + 1):
            start, kinds = table[seen[length], 1], table[seen[length], 2]
            weight, discount = weights[length], discounts[length + 1]
            for e in range(start, start + kinds):
                out[b, successors[e] & 255] += weight * ((successors[e] >> 8) - discount)


def read_models(path: str | os.PathLike[str], prefixes: Sequence[str]) -> list[NGramModel]:
    """The models stored in `path` under each of `prefixes`; ValueError if the file does not hold them."""
    check_file(path)
    try:
        arrays = read_arrays(path)
        return [NGramModel.from_arrays(arrays, prefix) for prefix in prefixes]
    except UNREADABLE as error:
        raise ValueError(
            f"{os.fspath(path)}: damaged, or not a file of n-gram models ({error}); build it again"
        ) from error
