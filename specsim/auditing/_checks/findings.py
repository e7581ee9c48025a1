"""Judge the counts of a case: which tables are rejected, and the findings in words."""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from specsim.auditing._cases.battery import Case
from specsim.auditing._checks.counts import NEIGHBOURS, QUARTERS
from specsim.auditing._checks.tables import LOOKS, Plan, Table, interim_looks
from specsim.auditing._results import BUDGET, Alphas, CaseResult, Efficiency, Finding, TableResult
from specsim.core._accepted_lengths import alpha_drafted, alpha_verified, mean_tokens
from specsim.core._types import Ints
from specsim.core.stats import (
    MIN_EXPECTED,
    POWER,
    SPIKES,
    ChiSquare,
    certified_tv,
    chi_square,
    detectable_tv,
    log_alternatives_e_value,
    log_e_value,
    log_e_values,
    log_pooled_e_value,
    lower_tail_p_value,
    tv_interval,
)
from specsim.models import row_ahead
from specsim.simulation._counting import Counts, Example, Partial
from specsim.theory import expected_tokens

#: Largest number of cells with a certified bound, and of cells that are reported one by one.
MAX_CERTIFIED_CELLS = 64
#: Impossible tokens that a finding names.
NAMED = 3
#: The cells of each kind of table, in words.
BINS = {"prefix": "tokens", "PIT": "PIT bins", "tail": "bins of rare tokens"}
#: The kinds of tables that count pairs of steps.
OF_PAIRS = ("neighbours", "pairs")
#: p-value of independence below which pairs of steps are dependent, if their first tokens deviate too.
DEPENDENT = 1e-6
#: Least degrees of freedom for the lower-tail test of a sum of chi-squares.
MIN_TOO_GOOD_DF = 30


def judge_case(plan: Plan, found: Partial, level: float, interrupted: bool = False) -> CaseResult:
    """Judge a case, each test at false-alarm probability `level`; a case with failures is not tested."""
    case, counts, tested = plan.case, found.counts, bool(found.steps and not found.failures)
    planned = found.steps in interim_looks(plan.steps)
    results = [judge_table(table, counts, level, planned) for table in plan.tables] if tested else []
    pooled = pooled_log_e(plan, counts) if tested else 0.0
    findings = [Finding(*failure) for failure in found.failures]
    return CaseResult(
        case=case.name,
        purpose=case.purpose,
        kernel=plan.kernel,
        vocab_size=case.vocab_size,
        tree=case.tree,
        iid=case.is_pair,
        positions=case.positions,
        steps=found.steps,
        planned=plan.steps,
        findings=tuple(find(plan, results, pooled, found, level) if tested else findings),
        pooled_log10_e=pooled / np.log(10.0),
        interrupted=interrupted,
        tables=tuple(results),
        counts=counts,
        declared_tv=plan.declared_tv,
        alphas=_alphas(plan, counts) if found.steps else None,
        efficiency=_efficiency(plan, counts) if found.steps else None,
        examples=found.examples[:NAMED],
        seconds=found.seconds,
    )


def judge_table(table: Table, counts: Counts, level: float, planned: bool = True) -> TableResult:
    """Test one table at false-alarm probability `level`.

    The certified bound holds at every interim look; where the steps were not `planned`, there is none."""
    observed = table.counts(counts)
    n = int(observed.sum())
    log_e = table.log_e(observed)
    rejected = log_e >= -np.log(level)
    few = len(table.law) <= MAX_CERTIFIED_CELLS
    small = table.kind == "prefix" and few
    # a case of changing shape has hundreds of tables, of which only those that reject are shown cell by cell
    shown = few and (rejected or table.kind not in ("shape", "pairs"))
    return TableResult(
        kind=table.kind,
        position=table.position,
        prefix=table.prefix,
        where=table.where,
        n=n,
        cells=len(table.law),
        chi_square=_shown_chi_square(observed, table),
        log10_e=log_e / np.log(10.0),
        detectable_tv=_detectable_tv(table, n, level),
        certified_tv=certified_tv(observed, table.law, level / len(LOOKS)) if small and planned else None,
        rejected=rejected,
        labels=tuple(table.label(cell) for cell in range(len(table.law))) if shown else (),
        observed=tuple(observed.tolist()) if shown else (),
        expected=tuple((n * table.law).tolist()) if shown else (),
    )


def _detectable_tv(table: Table, n: int, level: float) -> float:
    """As `stats.detectable_tv`; where one outcome is certain, any other is impossible, and one is enough.

    Of single tokens it is the share of draws that go to the most probable one in addition."""
    if table.kind == "ids":
        return detectable_tv(2, n, level / (2 * len(SPIKES) * len(table.law)))
    if len(table.law) == 1:
        return 1.0 - (1.0 - POWER) ** (1.0 / n) if n else 1.0
    return detectable_tv(len(table.law), n, level)


def evidence(plan: Plan, counts: Counts, level: float) -> tuple[float, float]:
    """The logarithm of the largest e-value, as a share of what rejects at `level`: of all, and of the tables
    one by one; inf if a token was impossible."""
    if counts["impossible"].any():
        return float("inf"), float("inf")
    by_law: dict[int, list[Table]] = {}  # those of one law together, which is faster
    for table in plan.tables:
        by_law.setdefault(id(table) if table.kind == "ids" else id(table.law), []).append(table)
    largest, alarm = 0.0, -float(np.log(level))
    for tables in by_law.values():
        if tables[0].kind == "ids":
            largest = max(largest, tables[0].log_e(tables[0].counts(counts)))
            continue
        observed = np.array([table.counts(counts) for table in tables])
        largest = max(largest, float(log_e_values(observed, tables[0].law).max()))
    return max(largest, pooled_log_e(plan, counts)) / alarm, largest / alarm


def pooled_log_e(plan: Plan, counts: Counts) -> float:
    """The logarithm of the e-value of the pooled tables of a case."""
    return pooled_log_e_of(plan.pooled, [table.counts(counts) for table in plan.pooled])


def pooled_log_e_of(tables: Sequence[Table], observed: Sequence[Ints]) -> float:
    """The same of the counts `observed` in each table: the mean of the e-values against all laws, and against
    the alternatives that the tables have."""
    against_all = log_pooled_e_value([(n, table.law) for n, table in zip(observed, tables, strict=True)])
    known = [(n, table.ratios) for n, table in zip(observed, tables, strict=True) if table.ratios is not None]
    if not known:
        return against_all
    return float(np.logaddexp(against_all, log_alternatives_e_value(known)) - np.log(2.0))


def find(
    plan: Plan, results: Sequence[TableResult], pooled: float, found: Partial, level: float
) -> list[Finding]:
    """All findings of a case, the most direct first."""
    tables, counts = plan.tables, found.counts
    planned = found.steps in interim_looks(plan.steps)
    findings = [
        *_support(counts, found.examples),
        *_shapes(tables, results, counts, level),
        *_deviations(tables, results, counts, level),
        *_shared_noise(results, counts),
        *(_dependence(results, level) if planned else ()),
    ]
    if not findings and pooled >= -np.log(level):
        findings.append(_pooled(plan, counts, pooled, level))
    return findings


def _pooled(plan: Plan, counts: Counts, log_e: float, level: float) -> Finding:
    """Tables reject together, and none alone: the one that deviates most, and the e-value of all."""
    worst = max(plan.pooled, key=lambda table: log_e_value(table.counts(counts), table.law))
    together = f"all {len(plan.pooled)} tables of tokens together: e = 10^{log_e / np.log(10.0):.0f}"
    return Finding("deviation", f"{together}; most in {_deviation(worst, worst.counts(counts), level)}")


def _support(counts: Counts, examples: Sequence[Example]) -> Iterator[Finding]:
    total = int(counts["impossible"].sum())
    named = "; ".join(f"step {s}, position {i + 1}: token {x}" for s, i, x in sorted(examples)[:NAMED])
    if total:
        yield Finding("support", f"{total:,} emitted tokens have probability 0 under the target ({named})")


def _shapes(
    tables: Sequence[Table], results: Sequence[TableResult], counts: Counts, level: float
) -> Iterator[Finding]:
    """Which calls deviate: the most significant table of all axes."""
    pairs = [
        pair for pair in zip(tables, results, strict=True) if pair[1].rejected and pair[1].kind == "shape"
    ]
    if pairs:
        table, _ = max(pairs, key=lambda pair: pair[1].log10_e)
        yield Finding("deviation", _deviation(table, table.counts(counts), level))


def _deviations(
    tables: Sequence[Table], results: Sequence[TableResult], counts: Counts, level: float
) -> Iterator[Finding]:
    """One finding for each position: its most significant table, prefix tables before bins."""
    pairs = [pair for pair in zip(tables, results, strict=True) if pair[1].rejected]
    pairs = [pair for pair in pairs if pair[0].kind not in ("shape", *OF_PAIRS)]
    for position in sorted({table.position for table, _ in pairs}):
        here = [pair for pair in pairs if pair[0].position == position]
        full = [pair for pair in here if pair[0].kind == "prefix"]
        table, _ = max(full or here, key=lambda pair: pair[1].log10_e)
        yield Finding("deviation", _deviation(table, table.counts(counts), level))


def _deviation(table: Table, observed: Ints, level: float) -> str:
    """Where a table deviates, by how much, and at which tokens."""
    log10_e = table.log_e(observed) / np.log(10.0)
    if table.kind == "ids":  # so many cells are never all full, so that no total variation can be estimated
        return f"{table.where}, e = 10^{log10_e:.0f}: {_extremes(table, observed)}"
    estimate, lower, upper = tv_interval(observed, table.law, level / len(LOOKS))
    after = f" after {list(table.prefix)}" if table.kind == "prefix" and table.prefix else ""
    place = f"position {table.position + 1}{after}"
    where = f"{table.where}, {place}" if table.where and table.kind == "prefix" else table.where or place
    cells = BINS.get(table.kind, f"{len(table.law)} bins")
    return (
        f"{where}: TV {estimate:.4f} [{lower:.4f}, {upper:.4f}] on the {cells}, e = 10^{log10_e:.0f}; "
        f"{_extremes(table, observed)}"
    )


def dependent(results: Sequence[TableResult], counts: Counts) -> list[TableResult]:
    """The tables of pairs of steps that show dependence.

    If the law of the first token deviates, pairs of independent steps deviate too; the pairs must then also
    contradict the product of their margins."""
    off = bool(counts["impossible"][0]) or any(
        result.rejected and result.position == 0 and result.kind not in OF_PAIRS for result in results
    )
    pairs = [result for result in results if result.rejected and result.kind in OF_PAIRS]
    return [result for result in pairs if not off or _independence(result) < DEPENDENT]


def _independence(result: TableResult) -> float:
    """A conservative p-value of independence, with too many degrees of freedom; it selects labels only."""
    observed = np.array(result.observed).reshape(QUARTERS, QUARTERS)
    law = np.outer(observed.sum(axis=1), observed.sum(axis=0)).ravel() / float(observed.sum()) ** 2
    return chi_square(observed.ravel()[law > 0], law[law > 0]).p_value


def _shared_noise(results: Sequence[TableResult], counts: Counts) -> Iterator[Finding]:
    """Dependent steps: random numbers shared by the rows of a call, or by successive calls."""
    for result in dependent(results, counts):
        pair = int(np.subtract(result.observed, result.expected).argmax())
        which = NEIGHBOURS[result.prefix[0]] if result.kind == "neighbours" else result.where
        yield Finding(
            "dependent",
            f"the first tokens of {which} depend on each other, e = "
            f"10^{result.log10_e:.0f}: {result.labels[pair]} of the law occur together in "
            f"{result.observed[pair] / result.n:.4f} of the pairs, expected "
            f"{result.expected[pair] / result.n:.4f}",
        )


def _dependence(results: Sequence[TableResult], level: float) -> Iterator[Finding]:
    """Counts that agree with the law better than independent draws can."""
    for kind in ("prefix", "PIT"):
        chosen = [result.chi_square for result in results if result.kind == kind]
        statistic, df = sum(one.statistic for one in chosen), sum(one.df for one in chosen)
        if df >= MIN_TOO_GOOD_DF:
            break
    if df >= MIN_TOO_GOOD_DF and lower_tail_p_value(statistic, df) < level:
        yield Finding(
            "dependent",
            f"counts agree with the law too well (χ² = {statistic:.1f} on {df} degrees of freedom): draws "
            "are not independent",
        )


def _shown_chi_square(observed: Ints, table: Table) -> ChiSquare:
    """The chi-square of a table; p = 1 if the expected counts are too small for it."""
    if observed.sum() * table.law.min() < MIN_EXPECTED / 2:
        return ChiSquare(0.0, 0, 1.0)
    return chi_square(observed, table.law)


def _extremes(table: Table, observed: Ints) -> str:
    """The tokens, or bins, that are most significantly too frequent and too rare, by their residuals."""
    gap = (observed / observed.sum() - table.law) / np.sqrt(table.law * (1.0 - table.law))
    parts = []
    for cell, word in ((int(gap.argmax()), "too often"), (int(gap.argmin()), "too rarely")):
        share = observed[cell] / observed.sum()
        parts.append(f"{table.label(cell)} {word} ({_share(share)} for {_share(table.law[cell])})")
    return ", ".join(parts)


def _share(probability: float) -> str:
    return f"{probability:.4f}" if probability >= 1e-3 or probability == 0.0 else f"{probability:.2g}"


def _alphas(plan: Plan, counts: Counts) -> Alphas | None:
    case, alpha, lengths = plan.case, plan.alpha_context, counts["lengths"]
    if alpha is None or not isinstance(case, Case) or case.uneven:
        return None
    return Alphas(alpha, alpha_verified(lengths), alpha_drafted(lengths, case.tree.size), case.tree.depth)


def _efficiency(plan: Plan, counts: Counts) -> Efficiency | None:
    """Relative to the standard rule on one chain: closed form for a pair, else its run on the same drafts.

    Where siblings are the draft's most probable tokens it is relative to the most that a rule can accept."""
    case, alpha = plan.case, plan.alpha_context
    if alpha is None or not isinstance(case, Case):
        return None
    mean, error = mean_tokens(counts["lengths"])
    if case.tree.sampling == "top" and len(case.contexts) == 1:
        reference = most_of_certain_drafts(case)
    elif case.is_pair:
        drafted = range(case.gamma + 1) if case.uneven else [case.gamma]
        reference = float(np.mean([expected_tokens(alpha, gamma) if gamma else 1.0 for gamma in drafted]))
    elif counts["reference"].any():
        reference, reference_error = mean_tokens(counts["reference"])
        error += reference_error
    else:
        return None
    z = -float(scipy.special.ndtri(BUDGET / 2.0))
    return Efficiency(mean / reference, (mean - z * error) / reference, (mean + z * error) / reference)


def most_of_certain_drafts(case: Case) -> float:
    """The most tokens per step that a lossless rule can emit where nothing of the draft is random.

    The tokens of a node are emitted with at most their probability under the target: 1 + Σ p(path)."""
    context, tree = tuple(case.contexts[0].tolist()), case.tree
    (tokens, _), *_ = tree.drafts(
        lambda seen, ahead: [float(weight) for weight in row_ahead(case.draft, context + seen, ahead)]
    )
    paths = {tuple(tokens[above - 1] for above in tree.path(node)) for node in range(1, tree.size + 1)}
    chances = (
        np.prod([float(case.target.row(context + path[:i])[x]) for i, x in enumerate(path)]) for path in paths
    )
    return 1.0 + float(sum(chances))
