"""The counts of an audit: prefix tables, PIT and tail bins, ids and neighbours, as in docs/statistics.md.

Prefix tables, PIT and tail bins are counted a second time of the tokens that *end* a step: all others are
accepted ones. *Impossible* tokens, P(x) = 0, are kept one by one. *Calls* are sums over calls of the first
token's counts by bin, and of their squares. Where a case relabels the vocabulary row by row, tokens are read
in the labels of its pair."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import BITS, Case, DecoderCase, pair_case
from specsim.auditing._cases.rows import tables_of
from specsim.auditing._checks.claimed_law import Claim, rows_on_path
from specsim.core._files import read_table
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._streams import Key, Purpose, fill_uniforms
from specsim.core._types import Floats, Ints
from specsim.simulation._counting import EXAMPLES, Example
from specsim.simulation._rows import PathRows
from specsim.simulation._sources import Batch, RowVerifier

MAX_PREFIX_CELLS = 512
PIT_BINS = 16
#: Upper edges of the tail bins, in mass of the rarest tokens.
TAIL_EDGES = np.array([1e-5, 1e-3, 2.0**-7, 1.0])
#: Which steps are compared with each other: neighbours of a call, and steps of successive calls.
NEIGHBOURS = ("rows of a call", "successive calls")
CALLS = NEIGHBOURS.index("successive calls")
QUARTERS = 4
#: Begins the name of counts of the tokens that end a step: recovered ones and bonuses.
ENDS = "ends of "
#: The names of arrays that are counted a second time of the tokens that end a step.
BY_POSITION = ("prefixes", "pit", "tail")
#: Steps that are counted place by place, so that what is known of them stays in the cache.
BLOCK = 1024


def table_positions(case: Case | DecoderCase) -> int:
    """The number of positions with prefix tables: none if steps start from more than one context."""
    if isinstance(case, Case) and len(case.contexts) > 1:
        return 0
    return sum(case.target.vocab_size ** (i + 1) <= MAX_PREFIX_CELLS for i in range(case.positions))


def counts_ids(case: Case) -> bool:
    """Whether each token is counted: of a pair with more tokens than prefix tables keep apart."""
    return case.is_pair and case.target.vocab_size > MAX_PREFIX_CELLS


def prefix_cells(case: Case | DecoderCase) -> int:
    return sum(case.target.vocab_size ** (i + 1) for i in range(table_positions(case)))


@dataclass(frozen=True)
class AuditTally:
    """Counts of one case and its claimed law; `reference` verifies the same rows, to measure efficiency."""

    case: Case
    claim: Claim
    reference: RowVerifier | None = None

    def zeros(self) -> dict[str, NDArray[Any]]:
        positions = self.case.positions
        by_position = (prefix_cells(self.case),), (positions, PIT_BINS), (positions, len(TAIL_EDGES))
        shapes: dict[str, Any] = {"lengths": positions, "reference": positions}
        for of in ("", ENDS):
            shapes |= {of + name: shape for name, shape in zip(BY_POSITION, by_position, strict=True)}
        shapes["ids"] = self.case.vocab_size if counts_ids(self.case) else 0
        shapes |= {"impossible": positions, "neighbours": (len(NEIGHBOURS), QUARTERS**2)}
        shapes["calls"] = 2, PIT_BINS + 1
        return {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> list[Example]:
        """Count a batch; the first of its impossible tokens."""
        steps, rows = len(batch.accepted), batch.rows
        counts["lengths"] += np.bincount(batch.accepted, minlength=self.case.gamma + 1)
        first, before = np.empty(steps), counts["impossible"].sum()
        emitted = batch.tokens, batch.accepted, (*key, int(Purpose.COUNT), batch.first)
        tables: Any = tuple(tuple(counts[of + name] for name in BY_POSITION) for of in ("", ENDS))
        tables = (table_positions(self.case), *tables, TAIL_EDGES, counts["impossible"], counts["ids"])
        laws, last, shifts = batch.path, getattr(rows, "last", None), getattr(rows, "shifts", None)
        last = np.empty((0, 0), dtype=np.int32) if last is None else last
        shifts = np.empty((0, 0), dtype=np.int64) if shifts is None else shifts
        if self.case.is_pair or (self.claim.lossless and last.size):
            count_by_table(*emitted, shifts, last, *self.cdfs, tables, first)
        else:
            if rows is not None and self.claim.lossless:
                laws = rows_on_path(rows, batch.tokens)
            elif rows is not None:
                laws = PathRows.of(self.claim.rows(rows.p, rows.q), rows.q)
            if laws is not None:
                count_by_rows(*emitted, laws, tables, first)
        if self.claim.rule is None:
            count_dependence(first, counts["neighbours"], counts["calls"])
        if self.reference is not None and rows is not None:
            _, accepted = self.reference(rows, key, batch.first)
            counts["reference"] += np.bincount(accepted, minlength=self.case.gamma + 1)

        def mass(s: int, i: int, token: int) -> float:
            if laws is not None:
                return laws.mass(s, i, token)
            row = self.cdfs[0][i, last[s, i] if last.size else 0]
            return float(row[(token - (shifts[s, i] if shifts.size else 0)) % len(row)])

        return first_impossible(batch, mass) if counts["impossible"].sum() > before else []

    @cached_property
    def cdfs(self) -> tuple[Floats, Floats, Floats]:
        """By position and token before: laws, mass below each token by p/q and by mass [depth+1, C, V]."""
        p, q = tables_of(self.case)
        positions = range(self.case.gamma + 1)
        laws = np.array([[self.claim.row(*pair, i) for pair in zip(p, q, strict=True)] for i in positions])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(laws > 0, laws / q, 0.0)
        if not self.case.is_pair:  # q at the bonus is not known to the verifier
            ratios[-1] = laws[-1]
        return laws, _mass_below(laws, ratios), _mass_below(laws, laws)


def first_impossible(batch: Batch, mass: Callable[[int, int, int], float]) -> list[Example]:
    """The first tokens of a batch whose `mass(step of the batch, position, token)` is 0."""
    tokens = ((s, i, int(batch.tokens[i, s])) for s, i in np.argwhere(batch.tokens.T >= 0).tolist())
    found = (Example(batch.first + s, i, x) for s, i, x in tokens if mass(s, i, x) == 0.0)
    return list(islice(found, EXAMPLES))


def pairs_of_quarters(one: Floats, other: Floats) -> Ints:
    """How often each pair of quarters occurs, int64 [16], in pairs of numbers in [0, 1]."""
    left, right = (np.minimum((side * QUARTERS).astype(np.int64), QUARTERS - 1) for side in (one, other))
    return np.bincount(left * QUARTERS + right, minlength=QUARTERS**2)


def _mass_below(laws: Floats, scores: Floats) -> Floats:
    """For each token of laws [..., V], the mass of the tokens before it in order of score, ties by token."""
    order: Ints = np.argsort(scores, kind="stable")
    ranked = np.take_along_axis(laws, order, axis=-1)
    below = np.empty_like(laws)
    np.put_along_axis(below, order, np.cumsum(ranked, axis=-1) - ranked, axis=-1)
    return below


# `tables` of a kernel are (positions of prefix tables, (prefixes, PIT, tail) of all tokens, the same of those
# that end a step, edges of the tail bins, impossible, ids)


@kernel
def count_by_table(tokens, accepted, stream, shifts, last, laws, by_ratio, by_p, tables, first):  # type: ignore[no-untyped-def]
    """Count tokens[γ+1, B] of laws[γ+1, C, V]: at place i row last[B, γ+1] of laws[i], or the only one.

    `by_ratio` and `by_p` are the mass below each token; first[B] is filled with the images of first tokens.
    `stream` is (key, purpose, first step) of the uniforms; `shifts` [B, γ+1] may be empty."""
    one_row, size = laws.shape[1] == 1, laws.shape[2]
    order, labels, texts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    images, ends = np.empty((3, BLOCK)), np.empty(tokens.shape[0] + 1, np.int64)
    for begin in range(0, tokens.shape[1], BLOCK):
        steps = min(BLOCK, tokens.shape[1] - begin)
        v = np.empty((-(-tokens.shape[0] // 3) * 3, steps))
        fill_uniforms(stream[0], stream[1], stream[2], stream[3] + begin, v)
        _sort_by_length(accepted[begin : begin + steps], order, ends)
        for i in range(tokens.shape[0]):
            law, of_ratio, of_p, v_here = laws[i], by_ratio[i], by_p[i], v[i]
            for k in range(ends[i], steps):
                labels[k] = tokens[i, begin + order[k]]
            if shifts.size > 0:
                for k in range(ends[i], steps):
                    x = labels[k] - shifts[begin + order[k], i]
                    labels[k] = x + size if x < 0 else x
            for k in range(ends[i], steps):
                row = np.uint64(0 if one_row else last[begin + order[k], i])
                x = np.uint64(labels[k])
                mass = law[row, x]
                inside = v_here[np.uint64(order[k])] * mass
                images[0, k] = mass
                images[1, k] = of_ratio[row, x] + inside
                images[2, k] = of_p[row, x] + inside
            _count_place(i, size, order[:steps], ends, labels, images, texts, first[begin:], tables)


@kernel
def count_by_rows(tokens, accepted, stream, rows, tables, first):  # type: ignore[no-untyped-def]
    """The same for `PathRows`; at a place without q tokens are ordered by p alone."""
    size = rows.p.shape[1]
    order, labels, texts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    images, ends = np.empty((3, BLOCK)), np.empty(tokens.shape[0] + 1, np.int64)
    ratio, some = np.empty(size), np.empty(size)
    for begin in range(0, tokens.shape[1], BLOCK):
        steps = min(BLOCK, tokens.shape[1] - begin)
        v = np.empty((-(-tokens.shape[0] // 3) * 3, steps))
        fill_uniforms(stream[0], stream[1], stream[2], stream[3] + begin, v)
        _sort_by_length(accepted[begin : begin + steps], order, ends)
        for i in range(tokens.shape[0]):
            for k in range(ends[i], steps):
                s = begin + order[k]
                x, a = np.int64(tokens[i, s]), rows.p_of[i, s]
                row = rows.p[a] if a >= 0 else rows.more_p[~a]
                inside = v[i, order[k]] * row[x]
                by_p = _mass_before(row, row, x, some)
                by_ratio = by_p
                if i < len(rows.q_of):
                    a = rows.q_of[i, s]
                    q = rows.q[a] if a >= 0 else rows.more_q[~a]
                    for y in range(size):
                        mass = row[y]
                        ratio[y] = mass / q[y] if mass > 0.0 else 0.0
                    by_ratio = _mass_before(row, ratio, x, some)
                labels[k] = x
                images[0, k], images[1, k], images[2, k] = row[x], by_ratio + inside, by_p + inside
            _count_place(i, size, order[:steps], ends, labels, images, texts, first[begin:], tables)


@inner_kernel
def _sort_by_length(accepted, order, ends):  # type: ignore[no-untyped-def]
    """Fill `order` with the steps by length; order[ends[i] : ends[i+1]] have i accepted tokens."""
    ends[:] = 0
    for s in range(accepted.size):
        ends[accepted[s] + 1] += 1
    for i in range(1, ends.size):
        ends[i] += ends[i - 1]
    for s in range(accepted.size):
        order[np.uint64(ends[accepted[s]])] = s
        ends[accepted[s]] += 1
    for i in range(ends.size - 1, 0, -1):
        ends[i] = ends[i - 1]
    ends[0] = 0


@inner_kernel
def _count_place(i, size, order, ends, labels, images, texts, first, tables):  # type: ignore[no-untyped-def]
    """Count the tokens at place i of the steps from order[ends[i]] on; those before ends[i+1] end there.

    `labels` are the tokens, `images` their masses and their images by p/q and by p. texts[s] is the number
    whose digits are the tokens of step s before, and then this one too. first[s] gets its image by p/q."""
    positions, (prefixes, pit, tail), of_ends, edges, impossible, ids = tables
    prefixes_of_ends, pit_of_ends, tail_of_ends = of_ends
    begin, end, steps, last = ends[i], ends[i + 1], order.size, edges.size - 1
    if i == 0:
        for k in range(steps):
            first[order[k]] = images[1, k]
    bins, edge, here, here_of_ends = pit.shape[1], edges[last - 1], pit[i], pit_of_ends[i]
    for k in range(begin, steps):
        b = pit_bin(images[1, k], bins)
        here[np.uint64(b)] += 1
        if k < end:
            here_of_ends[np.uint64(b)] += 1
    tail[i, last] += steps - begin
    tail_of_ends[i, last] += end - begin
    for k in range(begin, steps):
        if (images[2, k] < edge) | (images[0, k] == 0.0):  # seldom
            of_end, b = 1 if k < end else 0, pit_bin(images[1, k], bins)
            tail[i, last] -= 1
            tail_of_ends[i, last] -= of_end
            if images[0, k] == 0.0:
                impossible[i] += 1
                here[b] -= 1
                here_of_ends[b] -= of_end
            else:
                t = np.searchsorted(edges[:last], images[2, k], side="right")
                tail[i, t] += 1
                tail_of_ends[i, t] += of_end
    if ids.size > 0:
        for k in range(begin, steps):
            ids[labels[k]] += 1 if images[0, k] > 0.0 else 0
    if i < positions:
        shorter = 0
        for _ in range(i):
            shorter = (shorter + 1) * size
        for k in range(begin, steps):
            s = np.uint64(order[k])
            text = (texts[s] * size if i > 0 else 0) + labels[k]
            texts[s] = text
            prefixes[np.uint64(shorter + text)] += 1
            if k < end:
                prefixes_of_ends[np.uint64(shorter + text)] += 1


def count_dependence(first: Floats, neighbours: Ints, calls: Ints) -> None:
    """Count the images first[B] of the first tokens of a batch verified in two calls, one for each half:
    calls[2, bins + 1] gets counts by bin and their squares, last the number of calls and squared sizes."""
    half, even, bins = (first.size + 1) // 2, first.size // 2 * 2, calls.shape[1] - 1
    neighbours[0] += pairs_of_quarters(first[0:even:2], first[1:even:2])
    neighbours[1] += pairs_of_quarters(first[: first.size - half], first[half:])
    for call in filter(len, (first[:half], first[half:])):
        found = np.bincount(np.minimum((call * bins).astype(np.int64), bins - 1), minlength=bins)
        calls += [[*found, 1], [*found**2, call.size**2]]


@inner_kernel
def _mass_before(p, score, x, some):  # type: ignore[no-untyped-def]
    """The mass of the tokens before x by `score`, ties by token, as eight independent sums."""
    goal, whole = score[x], p.size // 8 * 8
    for y in range(x):
        mass = p[y]
        some[y] = mass if score[y] <= goal else 0.0
    for y in range(x, p.size):
        mass = p[y]
        some[y] = mass if score[y] < goal else 0.0
    for y in range(8, whole, 8):
        for k in range(8):
            some[k] += some[y + k]
    for y in range(max(whole, 1), p.size):
        some[0] += some[y]
    if whole == 0:
        return some[0]
    return ((some[0] + some[1]) + (some[2] + some[3])) + ((some[4] + some[5]) + (some[6] + some[7]))


@inner_kernel
def pit_bin(rank, bins):  # type: ignore[no-untyped-def]
    """The bin of a number in [0, 1], which rounding may lead up to 1."""
    return min(np.int64(rank * bins), bins - 1)


# The outcomes of a diagnosis: whole steps, drafts included, of a few small pairs. An audit tests only emitted
# tokens. The drafted tokens separate mistakes better: for example, whether a recovered token can equal the
# rejected one. An outcome is the drafted path, the number of accepted tokens, and the last token.


@cache  # the same objects for equal declarations: predictions are cached by case
def diagnostic_cases(declared: Declared, further: bool = False) -> tuple[Case, ...]:
    """Small pairs that separate the known mistakes; the `further` ones, those that do not show there."""
    dtype = declared.dtypes[0]
    cases = []
    for name, given in read_table("diagnosis")["further" if further else "first"].items():
        gamma, rows = given.pop("gamma"), [given.pop(of) for of in "pq"]
        gamma = min(gamma, declared.gamma or gamma)
        cases.append(pair_case(f"diagnosis, {name}", name, rows, gamma, BITS[dtype], dtype=dtype, **given))
    return tuple(case for case in cases if declared.one_hot or not case.certain)


@dataclass(frozen=True)
class OutcomeTally:
    """Counts int64 [V^γ, γ+1, V] of (path, accepted, last token) in a case, in the labels of its pair."""

    case: Case

    def zeros(self) -> dict[str, NDArray[Any]]:
        size, gamma = self.case.target.vocab_size, self.case.gamma
        return {"outcomes": np.zeros((size**gamma, gamma + 1, size), dtype=np.int64)}

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> None:
        table = counts["outcomes"]
        index = np.ravel_multi_index(tuple(self.cells(batch).T), table.shape)
        table += np.bincount(index, minlength=table.size).reshape(table.shape)

    def cells(self, batch: Batch) -> Ints:
        """(path, accepted, last token) of every step of `batch`: int64 [B, 3]."""
        assert batch.rows is not None
        size, gamma, accepted = self.case.target.vocab_size, self.case.gamma, batch.accepted
        shifts: Any = getattr(batch.rows, "shifts", None)
        each = np.arange(len(accepted))
        drafted = batch.rows.draft_tokens
        last = batch.tokens[accepted, each].astype(np.int64)
        if shifts is not None:
            drafted = (drafted - shifts[:, :gamma]) % size
            last = (last - shifts[each, accepted]) % size
        return np.column_stack([drafted @ size ** np.arange(gamma - 1, -1, -1), accepted, last])


@cache
def path_of(code: int, size: int, gamma: int) -> tuple[int, ...]:
    """The drafted tokens behind the first index of "outcomes"."""
    return tuple(int(x) for x in np.unravel_index(code, (size,) * gamma))
