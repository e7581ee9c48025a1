"""The plan of a case, fixed before the first draw: its steps, and its tables, which share the budget."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case, DecoderCase
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks import counts as counting
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import NEIGHBOURS, PIT_BINS, QUARTERS, TAIL_EDGES, AuditTally
from specsim.core import stats
from specsim.core._types import Floats, Ints, Tokens
from specsim.core.distributions import temperature
from specsim.mistakes._rows import LAWS, Pair, argmax, largest, within
from specsim.simulation._counting import Counts, Partial, no_counts

# Alternatives of a case's pooled e-value: the law of a token under known kinds of mistakes, each a function
# of the rows where the token is drawn, at some share of the tokens. That covers small values of its parameter
# too: a lenience of .95 is close to a mixture with one of .5. A test against these needs about twice the
# least sample size, whatever the number of cells.

#: Temperatures on one side only, and the lenience of the alternatives.
TEMPERATURES, LENIENCE = (0.7, 1.4), 0.5
#: Probabilities, relative to the largest, below which the alternatives cut a bonus.
BONUS_CUTS = (0.1, 0.3)
#: Probability of the draft below which they discard its last token.
UNLIKELY = 0.3


def alternatives_of_draft(p: Floats, q: Floats, least: Floats, last: bool) -> Iterator[Floats]:
    """The laws [n, V] of a token after rows p and q [n, V] for each kind of mistake on the way to it; `least`
    [n, 1] is the least ratio of p to q of the tokens drafted before, `last`: none follows."""
    pair = Pair(p, q)
    for value in TEMPERATURES:  # of the rows that are drawn from, not of those that are handed over
        yield LAWS["draft_temperature"](pair, temperature=value)
    yield LAWS["greedy_draft"](pair)
    yield LAWS["resamples_target"](pair)
    yield LAWS["greedy_residual"](pair)
    tested = (q * pair.chance).sum(axis=1, keepdims=True)
    for between in ((tested, 1.0), (0.0, 1.0 - tested)):  # close to the law of a uniform that has tested
        yield pair.emitted(recovered=within(pair.residual, *between))
    yield LAWS["misaligned_residual"](pair, k=2)
    yield pair.emitted(accepted=np.minimum(pair.chance, least) / least)  # one uniform tests the whole step
    for name in ("float16_ratio", "bfloat16_ratio", "one_hot_residual", "zeroed_in_place"):
        yield LAWS[name](pair)
    kept = q * (q >= UNLIKELY)
    cut = (q - kept).sum(axis=1, keepdims=True)
    yield pair.emitted(kept) + cut * (p - pair.residual) if last else p
    yield from (LAWS[name](pair, lenience=LENIENCE) for name in ("lenience", "scaled_lenience"))
    for accepted in (argmax(p), (p > largest(p) / 10.0).astype(np.float64)):
        yield pair.emitted(accepted=accepted)
    yield LAWS["accepts_everything"](pair)


def alternatives_of_bonus(p: Floats, q: Floats | None) -> Iterator[Floats]:
    """The laws [n, V] of a bonus, of rows p; q are the rows before it, or None."""
    pair = Pair(p, p if q is None else q)
    yield LAWS["bonus_argmax"](pair)
    yield LAWS["last_id_never"](pair)
    yield within(p, 0.0, 0.5)
    yield from (LAWS["bonus_min_p"](pair, fraction=fraction) for fraction in BONUS_CUTS)
    yield from (LAWS["bonus_temperature"](pair, temperature=value) for value in TEMPERATURES)
    yield LAWS["bonus_from_draft"](pair)
    yield LAWS["bonus_from_residual"](pair)


def alternatives(
    p: Floats, q: Floats | None, before: Floats | None, least: Floats | None = None, last: bool = False
) -> Floats:
    """The laws [n, M, V] of a token after each of the rows p [n, V] under each kind of mistake, p itself
    where it does not apply. q are the draft's rows, None at the bonus, which the rows `before` precede;
    `least` [n], by default 1, and `last` are as in `alternatives_of_draft`."""
    ratio = np.ones((len(p), 1)) if least is None else least[:, None]
    of_draft = [p] * DRAFT if q is None else list(alternatives_of_draft(p, q, ratio, last))
    of_bonus = [p] * BONUS if q is not None else list(alternatives_of_bonus(p, before))
    return np.stack([*(temperature(p, value) for value in TEMPERATURES), *of_draft, *of_bonus], axis=1)


_EXAMPLE = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
#: How many kinds of mistakes there are on the way to a token, and at the bonus.
DRAFT = len(list(alternatives_of_draft(*_EXAMPLE, np.ones((1, 1)), True)))
BONUS = len(list(alternatives_of_bonus(*_EXAMPLE)))


class Bins:
    """The bins of images of the tokens of a row p [V], in the order of their scores [V]."""

    def __init__(self, p: Floats, scores: Floats, bins: int):
        possible = np.flatnonzero(p > 0.0)
        self.order = possible[np.argsort(scores[possible], kind="stable")]
        ends, edges = _from_zero(p[self.order]), np.linspace(0.0, 1.0, bins + 1)
        self.before = np.clip(np.searchsorted(ends, edges, side="right") - 1, 0, len(self.order) - 1)
        self.part = np.clip((edges - ends[self.before]) / p[self.order][self.before], 0.0, 1.0)

    def of(self, laws: Floats) -> Floats:
        """The mass [..., bins] of each bin under other laws [..., V] of the tokens."""
        ordered = laws[..., self.order]
        return np.diff(_from_zero(ordered)[..., self.before] + self.part * ordered[..., self.before], axis=-1)


def bins_of(laws: Floats, p: Floats, q: Floats | None, bins: int) -> Floats:
    """The PIT bins [M, bins] of tokens with `laws` [M, V], where tokens of p are ordered by p/q, or by p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = p if q is None else p / q
    return Bins(p, scores, bins).of(laws)


def _from_zero(masses: Floats) -> Floats:
    return np.concatenate([np.zeros((*masses.shape[:-1], 1)), masses.cumsum(axis=-1)], axis=-1)


#: Fractions of a case's steps at which interim looks are taken; a case ends early only if one rejects. A case
#: goes on to the last one only if its evidence is near an alarm.
LOOKS = (*(2.0**-k for k in range(7, -1, -1)), 4.0)
#: Contexts over which the bins of alternatives are averaged.
ALTERNATIVE_CONTEXTS = 64


@dataclass(frozen=True)
class Table:
    """A test of the counts of cells against their law.

    `kind` is "prefix", "PIT", "tail", "ids", "neighbours", "all", "shape", "pairs", "given" or "halves";
    `prefix` is the emitted prefix of a prefix table; `where` says what a table of other steps is about.

    The counts are `[start : start + len(cells)]` of the flattened array `source`; `cells[x]` is the cell of
    outcome x, -1 if impossible; `law` is the law of the cells, `ratios` [M, k] the likelihood ratios to it of
    the alternatives that a pooled e-value has."""

    kind: str
    position: int
    prefix: tuple[int, ...]
    source: str
    start: int
    cells: Ints
    law: Floats
    where: str = ""
    ratios: Floats | None = None

    def counts(self, counts: Counts) -> Ints:
        """The table's counts by cell, from the counts of an `AuditTally`."""
        return self.merged(counts[self.source].reshape(-1))

    def log_e(self, observed: Ints) -> float:
        """The logarithm of the e-value of these counts: against single tokens where each token is a cell."""
        test = stats.log_single_cell_e_value if self.kind == "ids" else stats.log_e_value
        return test(observed, self.law)

    def merged(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Sum by cell the flattened array [n] of a tally, or m of them [n, m]: [k] or [k, m]."""
        here, possible = flat[self.start : self.start + len(self.cells)], self.cells >= 0
        cells = np.zeros((len(self.law), *flat.shape[1:]), dtype=flat.dtype)
        np.add.at(cells, self.cells[possible], here[possible])
        return cells

    def label(self, cell: int) -> str:
        """The name of a cell: a token, a bin, or a number of them together."""
        members = np.flatnonzero(self.cells == cell)
        if self.kind in ("neighbours", "pairs"):
            return f"quarters {cell // QUARTERS + 1} and {cell % QUARTERS + 1}"
        if self.kind == "given":
            return f"quarter {cell + 1}"
        what = "token" if self.kind in ("prefix", "ids") else "bin"
        return f"{what} {members[0]}" if len(members) == 1 else f"{len(members)} rare {what}s together"


@dataclass(frozen=True)
class Plan:
    """The `steps` and tests of a case; `nothing` has the counts of none, `kernel` says how steps are made,
    `declared_tv` how far the claimed law is from the target's; `alpha_context` is the mean β or None."""

    case: Case | ShapesCase | DecoderCase
    kernel: str
    steps: int
    tables: Sequence[Table]
    nothing: Partial
    declared_tv: float = 0.0
    alpha_context: float | None = None

    @property
    def tests(self) -> int:
        """Tables, one test of them pooled, and one for dependence at each of the two last looks."""
        return len(self.tables) + 3

    def log_e(self, counts: Counts) -> Floats:
        of_bins = iter(self.by_bins.log_e(self.by_bins.counts(counts))[0])
        return np.array(
            [one.log_e(one.counts(counts)) if one.kind == "ids" else next(of_bins) for one in self.tables]
        )

    @cached_property
    def by_bins(self) -> "Joined":
        """The tables but those of single ids, which have another test."""
        return Joined([table for table in self.tables if table.kind != "ids"])

    @cached_property
    def pooled(self) -> "Joined":
        return Joined(pooled_tables(self.tables))


class Joined:
    """Tables whose cells stand one after the other, so that they are tested at once."""

    def __init__(self, tables: Sequence[Table]):
        self.tables = tables
        self.law = np.concatenate([np.zeros(0), *(table.law for table in tables)])
        self.starts = np.cumsum([0, *(len(table.law) for table in tables)])[:-1]

    @cached_property
    def log_ratios(self) -> Floats | None:
        """The logarithms [7M, k] of the alternatives' likelihood ratios; of tables without any they are 0."""
        kinds = max((len(table.ratios) for table in self.tables if table.ratios is not None), default=0)
        if not kinds:
            return None
        ratios = [
            np.ones((kinds, len(table.law))) if table.ratios is None else table.ratios
            for table in self.tables
        ]
        return stats.log_shared(np.concatenate(ratios, axis=1))

    def counts(self, counts: Counts) -> Ints:
        """The counts [1, k] of all cells, from the counts of an `AuditTally`."""
        found = [one.counts(counts) for one in self.tables]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])[None]

    def merged(self, flat: Mapping[str, Ints]) -> Ints:
        """The counts [n, k] of n experiments, from the flattened arrays [cells, n] of a tally by name."""
        if not self.tables:
            return np.zeros((len(next(iter(flat.values()))[0]), 0), dtype=np.int64)
        return np.concatenate([table.merged(flat[table.source]) for table in self.tables]).T

    def log_e(self, observed: Ints) -> Floats:
        """The logarithm [n, T] of the e-value of each table, of counts [n, k]."""
        return stats.log_e_values(observed, self.law, self.starts)

    def log_pooled_e(self, observed: Ints) -> Floats:
        """The log e-values [n] of all tables together, against all laws and against their alternatives."""
        return stats.log_pooled_e_values(observed, self.law, self.starts, self.log_ratios)


def pooled_tables(tables: Sequence[Table]) -> list[Table]:
    """Prefix tables, and PIT bins of positions without: each token once, with its law given those before."""
    full = {table.position for table in tables if table.kind == "prefix"}
    return [
        table
        for table in tables
        if table.kind == "prefix" or (table.kind == "PIT" and table.position not in full)
    ]


def interim_looks(steps: int) -> list[int]:
    return sorted({max(8, int(steps * share)) for share in LOOKS})


def plan_case(tally: AuditTally, kernel: str, steps: int, alpha_context: float) -> Plan:
    case, claim, declared_tv = tally.case, tally.claim, 0.0
    tables = plan_tables(case, claim, steps)
    if not claim.lossless:  # the mean over a few contexts, of the first token
        p, q = (model.rows(case.contexts[:256]) for model in (case.target, case.draft))
        claimed = claim.rows(p[:, None], q[:, None])[:, 0]
        declared_tv = float(np.abs(claimed - p).sum(axis=1).mean() / 2.0)
    return Plan(case, kernel, steps, tables, no_counts(tally), declared_tv, alpha_context)


def plan_tables(case: Case, claim: Claim, steps: int) -> list[Table]:
    """The tables of `case` that have enough counts in `steps` steps, estimated of the standard rule."""

    least: dict[Tokens, float] = {(): 1.0}  # of the ratios of p to q of a prefix's tokens

    def laws(prefixes: Sequence[Tokens]) -> tuple[Floats, Floats, Floats | None]:
        drafted = len(prefixes[0])
        texts = np.array([(*case.start, *prefix) for prefix in prefixes], dtype=np.int32)
        p, q = (model.rows(texts) for model in (case.target, case.draft))
        law = np.array([claim.row(*rows, drafted) for rows in zip(p, q, strict=True)])
        whole = drafted == case.gamma
        before = case.draft.rows(texts[:, :-1]) if whole and drafted else None
        if not claim.lossless:
            return law, np.minimum(law, q), None
        before_it = np.array([least[prefix] for prefix in prefixes])
        others = alternatives(p, None if whole else q, before, before_it, drafted == case.gamma - 1)
        for prefix, bound, target, drafts in zip(prefixes, before_it, p, q, strict=True):
            for x in np.flatnonzero(np.minimum(target, drafts)):
                least[(*prefix, int(x))] = min(bound, target[x] / drafts[x])
        return law, np.minimum(law, q), others

    tables = [*prefix_tables(case, steps, laws), *_bin_tables(case, steps, claim)]
    if claim.lossless and counting.counts_ids(case):
        p, _ = case.pmfs
        cells = np.where(p > 0.0, np.cumsum(p > 0.0) - 1, -1)
        law = p[p > 0.0]
        tables.append(Table("ids", 0, (), "ids", 0, cells, law / law.sum(), "tokens at all positions"))
    if claim.rule is None:  # pairs of steps, which a user's verifier may draw with shared random numbers
        even = np.full(QUARTERS**2, 1.0 / QUARTERS**2)
        for i in range(len(NEIGHBOURS)):
            tables.append(table_of("neighbours", 0, (i,), "neighbours", i * len(even), even, steps // 2))
    return [table for table in tables if len(table.law) > 1]


def prefix_tables(
    case: Case | DecoderCase,
    steps: int,
    laws: Callable[[Sequence[Tokens]], tuple[Floats, Floats, Floats | None]],
) -> Iterator[Table]:
    """A table for each prefix; `laws` of n prefixes of one length are the laws [n, V] after them, how likely
    each token is followed, and the laws [n, M, V] under each alternative."""
    size, start = case.target.vocab_size, 0
    reached: dict[Tokens, float] = {(): float(steps)}
    for position in range(counting.table_positions(case)):
        following: dict[Tokens, float] = {}
        if not reached:
            break
        law, onward, others = laws(list(reached))
        for i, (prefix, visits) in enumerate(reached.items()):
            code = int(np.ravel_multi_index(prefix, (size,) * position)) if prefix else 0
            first, known = start + code * size, None if others is None else others[i]
            yield table_of("prefix", position, prefix, "prefixes", first, law[i], visits, known)
            chances = enumerate(onward[i].tolist())
            following |= {(*prefix, x): visits * mass for x, mass in chances if mass > 0.0}
        start += size ** (position + 1)
        reached = following


def _bin_tables(case: Case, steps: int, claim: Claim) -> Iterator[Table]:
    pit = np.full(PIT_BINS, 1.0 / PIT_BINS)
    tail = np.diff(TAIL_EDGES, prepend=0.0)
    contexts = case.contexts[:256]
    overlap = float(np.minimum(case.target.rows(contexts), case.draft.rows(contexts)).sum(axis=1).mean())
    drafted, bonus = _bin_alternatives(case) if claim.lossless else (None, None)
    for position in range(case.gamma + 1):
        visits, others = steps * overlap**position, bonus if position == case.gamma else drafted
        yield table_of("PIT", position, (), "pit", position * PIT_BINS, pit, visits, others)
        # not merged, however rare: only the chi-square, which does not decide, needs expected counts
        yield Table("tail", position, (), "tail", position * len(tail), np.arange(len(tail)), tail)


def _bin_alternatives(case: Case) -> tuple[Floats, Floats]:
    """The PIT bins [M, 16] under each alternative, at drafted tokens and at the bonus, as means."""
    contexts = case.contexts[:ALTERNATIVE_CONTEXTS]
    p_rows, q_rows = (model.rows(contexts) for model in (case.target, case.draft))
    drafted, bonus = alternatives(p_rows, q_rows, None), alternatives(p_rows, None, q_rows)
    found = [
        (bins_of(one, p, q, PIT_BINS), bins_of(other, p, q if case.is_pair else None, PIT_BINS))
        for one, other, p, q in zip(drafted, bonus, p_rows, q_rows, strict=True)
    ]
    of_draft, of_bonus = np.mean(found, axis=0)
    return of_draft, of_bonus


def even_table(
    kind: str, prefix: tuple[int, ...], source: str, number: int, cells: int, where: str, position: int = 0
) -> Table:
    """The table of that number in an array of tables, whose `cells` are equally likely."""
    law = np.full(cells, 1.0 / cells)
    return Table(kind, position, prefix, source, number * cells, np.arange(cells), law, where)


def table_of(
    kind: str,
    position: int,
    prefix: tuple[int, ...],
    source: str,
    start: int,
    pmf: Floats,
    visits: float,
    alternatives: Floats | None = None,
) -> Table:
    """The table of one law; cells of small expected counts are merged, those of `alternatives` [M, V] too."""
    cells = stats.merge_cells(pmf, visits)
    law = np.bincount(cells[cells >= 0], weights=pmf[cells >= 0])
    table = Table(kind, position, prefix, source, start, cells, law / law.sum())
    if alternatives is None or len(law) == 1:
        return table
    masses = np.zeros((len(law), len(alternatives)))
    np.add.at(masses, cells[cells >= 0], alternatives.T[cells >= 0])
    return replace(table, ratios=masses.T / table.law)
