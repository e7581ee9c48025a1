"""The counts of an audit.

*Prefix tables*: how often each token followed each emitted prefix, for the first positions of a step, while
V^position ≤ 512. *PIT bins*, at every position: the emitted token is mapped through the target's CDF to a
number that is uniform under exactness, F(x-) + v·P(x), v a fresh uniform (the randomised probability integral
transform). Tokens are ordered by p/q, along which verification errors move mass, and counted in 16 bins;
ordered by p itself, the same gives bins for the *tail* of rare tokens. *Ids*: of a pair with many tokens,
which has one law at all positions, how often each token was emitted. *Impossible* tokens, P(x) = 0, are
kept one by one. Prefix tables, PIT and tail bins are counted a second time of the tokens that *end* a step:
all others are accepted ones. *Neighbours*: the quarters of the PIT that the first tokens of two steps fall
into, for steps side by side in one call and for steps at the same place of two calls; each pair of quarters
is equally likely if steps are independent. *Calls*: sums over calls of the first token's counts by bin, and
of their squares, which tell how much calls differ.

Where a case relabels the vocabulary row by row, tokens are read in the labels of its pair before they are
counted."""

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case
from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._checks.claimed_law import Claim, rows_on_path
from specsim.core._kernels import kernel
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints, TokenArray
from specsim.simulation._counting import EXAMPLES, Example
from specsim.simulation._rows import Rows
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


def table_positions(case: Case | DecoderCase) -> int:
    """The number of positions with prefix tables: none if steps start from more than one context."""
    if isinstance(case, Case) and len(case.contexts) > 1:
        return 0
    return sum(case.target.vocab_size ** (i + 1) <= MAX_PREFIX_CELLS for i in range(case.positions))


def counts_ids(case: Case) -> bool:
    """Whether each token is counted: of a pair with more tokens than prefix tables keep apart."""
    return case.is_pair and case.target.vocab_size > MAX_PREFIX_CELLS


def prefix_cells(case: Case | DecoderCase) -> int:
    """The number of cells of all prefix tables."""
    return sum(case.target.vocab_size ** (i + 1) for i in range(table_positions(case)))


@dataclass(frozen=True)
class AuditTally:
    """Counts of one case and its claimed law; `reference` verifies the same rows, to measure efficiency."""

    case: Case
    claim: Claim
    reference: RowVerifier | None = None

    def zeros(self) -> dict[str, NDArray[Any]]:
        positions = self.case.positions
        shapes = {
            "prefixes": (prefix_cells(self.case),),
            "pit": (positions, PIT_BINS),
            "tail": (positions, len(TAIL_EDGES)),
        }
        return {
            "lengths": np.zeros(positions, dtype=np.int64),
            "reference": np.zeros(positions, dtype=np.int64),
            **{name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()},
            **{ENDS + name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()},
            "ids": np.zeros(self.case.target.vocab_size if counts_ids(self.case) else 0, dtype=np.int64),
            "impossible": np.zeros(positions, dtype=np.int64),
            "neighbours": np.zeros((len(NEIGHBOURS), QUARTERS**2), dtype=np.int64),
            "calls": np.zeros((2, PIT_BINS + 1), dtype=np.int64),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> list[Example]:
        """Count a batch; the first of its impossible tokens."""
        steps = len(batch.accepted)
        tokens = _in_labels_of_pair(batch.tokens, batch.rows, self.case.target.vocab_size)
        counts["lengths"] += np.bincount(batch.accepted, minlength=self.case.gamma + 1)
        tables = (counts["prefixes"], counts[ENDS + "prefixes"])
        count_prefixes(tokens, self.case.target.vocab_size, table_positions(self.case), *tables)
        v = uniforms(key, int(Purpose.COUNT), batch.first, steps, self.case.gamma + 1)
        both = (counts["pit"], counts["tail"]), (counts[ENDS + "pit"], counts[ENDS + "tail"])
        bins = (*both, TAIL_EDGES, counts["impossible"])
        first, ids = np.empty(steps), counts["ids"]
        before = counts["impossible"].sum()
        rows = None
        if self.case.is_pair:
            count_pit_of_pair(tokens, v, *self.pair_cdfs, *bins, ids, first)
        elif batch.rows is not None:
            p, q = rows_on_path(batch.rows, tokens)
            rows = self.claim.rows(p, q)
            count_pit_of_rows(tokens, v, rows, q, *bins, first)
        if self.claim.rule is None:
            _count_neighbours(first, counts["neighbours"])
            _count_calls(first, counts["calls"])
        if self.reference is not None and batch.rows is not None:
            _, accepted = self.reference(batch.rows, key, batch.first)
            counts["reference"] += np.bincount(accepted, minlength=self.case.gamma + 1)
        return self._impossible(batch, tokens, rows) if counts["impossible"].sum() > before else []

    @cached_property
    def pair_cdfs(self) -> tuple[Floats, Floats, Floats]:
        """Of a pair: the claimed law [depth+1, V], and the mass below each token by p/q and by mass."""
        p, q = (np.asarray(model.row(()), dtype=np.float64) for model in (self.case.target, self.case.draft))
        laws = np.array([self.claim.row(p, q, position) for position in range(self.case.gamma + 1)])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(laws > 0, laws / q, 0.0)
        by_ratio = [_mass_below(law, ratio) for law, ratio in zip(laws, ratios, strict=True)]
        return laws, np.array(by_ratio), np.array([_mass_below(law, law) for law in laws])

    def _impossible(self, batch: Batch, tokens: TokenArray, rows: Floats | None) -> list[Example]:
        found = (
            Example(batch.first + s, position, int(batch.tokens[position, s]))
            for s, position in np.argwhere(tokens.T >= 0).tolist()
            if not (self.pair_cdfs[0][position] if rows is None else rows[s, position])[tokens[position, s]]
        )
        return list(islice(found, EXAMPLES))


def _in_labels_of_pair(tokens: TokenArray, rows: Rows | None, vocab_size: int) -> TokenArray:
    shifts = getattr(rows, "shifts", None)
    if shifts is None:
        return tokens
    return np.where(tokens < 0, tokens, (tokens - shifts.T) % vocab_size).astype(np.int32)


def _count_calls(first: Floats, table: Ints) -> None:
    """Add to `table` [2, bins + 1] the counts by bin of the two calls that verify a batch, and their squares;
    last the number of calls, and the squares of their sizes."""
    half = (len(first) + 1) // 2
    for call in (first[:half], first[half:]):
        if len(call):
            bins = np.minimum((call * PIT_BINS).astype(np.int64), PIT_BINS - 1)
            found = np.bincount(bins, minlength=PIT_BINS)
            table += [[*found, 1], [*found**2, len(call) ** 2]]


def _count_neighbours(first: Floats, table: Ints) -> None:
    """Add pairs of quarters to `table` [2, 16]; a batch is verified in two calls, one for each half."""
    half, even = (len(first) + 1) // 2, len(first) // 2 * 2
    pairs = ((first[0:even:2], first[1:even:2]), (first[: len(first) - half], first[half:]))
    for row, (one, other) in zip(table, pairs, strict=True):
        row += pairs_of_quarters(one, other)


def pairs_of_quarters(one: Floats, other: Floats) -> Ints:
    """How often each pair of quarters occurs, int64 [16], in pairs of numbers in [0, 1]."""
    left, right = (np.minimum((side * QUARTERS).astype(np.int64), QUARTERS - 1) for side in (one, other))
    return np.bincount(left * QUARTERS + right, minlength=QUARTERS**2)


def _mass_below(p: Floats, score: Floats) -> Floats:
    """For each token, the mass of the tokens before it in order of `score`, ties by token."""
    order: Ints = np.argsort(score, kind="stable")
    ranked = p[order]
    below = np.empty_like(p)
    below[order] = np.cumsum(ranked) - ranked
    return below


@kernel
def count_prefixes(tokens, vocab_size, positions, table, ends):  # type: ignore[no-untyped-def]
    """Count tokens[γ+1, B] into table: for each position i in turn, V^i prefixes of V counts each.

    The last tokens are counted into `ends` as well."""
    for s in range(tokens.shape[1]):
        start, prefix, size = 0, 0, vocab_size
        for i in range(positions):
            token = tokens[i, s]
            if token < 0:
                break
            prefix = prefix * vocab_size + token
            table[start + prefix] += 1
            if is_last(tokens, i, s):
                ends[start + prefix] += 1
            start += size
            size *= vocab_size


@kernel
def count_pit_of_pair(tokens, v, p, below_by_ratio, below_by_p, bins, ends, edges, impossible, ids, first):  # type: ignore[no-untyped-def]
    """PIT and tail bins of tokens[γ+1, B] for pmfs p[i, V] by position; first[B] is the first token's PIT.

    `bins` are the arrays of both, `ends` those of the last tokens. Without ids, `ids` is empty."""
    for i in range(tokens.shape[0]):
        for s in range(tokens.shape[1]):
            x = tokens[i, s]
            if x < 0:
                continue
            inside = v[i, s] * p[i, x]
            rank = below_by_ratio[i, x] + inside
            if i == 0:
                first[s] = rank
            if p[i, x] == 0.0:
                impossible[i] += 1
                continue
            if ids.size > 0:
                ids[x] += 1
            add_to_bins(i, rank, below_by_p[i, x] + inside, bins, edges)
            if is_last(tokens, i, s):
                add_to_bins(i, rank, below_by_p[i, x] + inside, ends, edges)


@kernel
def count_pit_of_rows(tokens, v, p, q, bins, ends, edges, impossible, first):  # type: ignore[no-untyped-def]
    """The same for rows p[B, γ+1, V], q[B, γ, V]; at the bonus, ordered by p alone."""
    vocab_size = p.shape[2]
    ratio = np.empty(vocab_size)
    for s in range(tokens.shape[1]):
        for i in range(tokens.shape[0]):
            x = tokens[i, s]
            if x < 0:
                break
            bonus = i == q.shape[1]
            for y in range(vocab_size):
                mass = p[s, i, y]
                ratio[y] = mass / (1.0 if bonus else q[s, i, y]) if mass > 0.0 else 0.0
            own, goal, by_ratio, by_p = p[s, i, x], ratio[x], 0.0, 0.0
            for y in range(x):  # ties: the lower token comes first
                mass = p[s, i, y]
                by_ratio += mass if ratio[y] <= goal else 0.0
                by_p += mass if mass <= own else 0.0
            for y in range(x + 1, vocab_size):
                mass = p[s, i, y]
                by_ratio += mass if ratio[y] < goal else 0.0
                by_p += mass if mass < own else 0.0
            inside = v[i, s] * own
            if i == 0:
                first[s] = by_ratio + inside
            if own == 0.0:
                impossible[i] += 1
                continue
            add_to_bins(i, by_ratio + inside, by_p + inside, bins, edges)
            if is_last(tokens, i, s):
                add_to_bins(i, by_ratio + inside, by_p + inside, ends, edges)


@kernel
def is_last(tokens, i, s):  # type: ignore[no-untyped-def]
    """Whether token i of step s ends it."""
    return i + 1 == tokens.shape[0] or tokens[i + 1, s] < 0


@kernel
def add_to_bins(i, by_ratio, by_p, bins, edges):  # type: ignore[no-untyped-def]
    """Count a token at position i in PIT bins and in tail bins."""
    pit, tail = bins
    pit[i, pit_bin(by_ratio, pit.shape[1])] += 1
    tail[i, tail_bin(by_p, edges)] += 1


@kernel
def pit_bin(rank, bins):  # type: ignore[no-untyped-def]
    """The bin of a number in [0, 1], which rounding may lead up to 1."""
    return min(np.int64(rank * bins), bins - 1)


@kernel
def tail_bin(rank, edges):  # type: ignore[no-untyped-def]
    """The first of the bins with these upper edges that holds `rank`; most are in the last."""
    b = edges.size - 1
    while b > 0 and rank < edges[b - 1]:
        b -= 1
    return b
