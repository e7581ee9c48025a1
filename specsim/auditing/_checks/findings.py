"""Judge the counts of a case: which tables are rejected, and the findings in words."""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from specsim.auditing._cases.battery import Case, DecoderCase
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks.counts import CALLS, ENDS, NEIGHBOURS, QUARTERS
from specsim.auditing._checks.tables import LOOKS, Plan, Table, interim_looks
from specsim.auditing._results.audit import BUDGET, Alphas, CaseResult, Efficiency, Finding, TableResult
from specsim.core import stats
from specsim.core._files import read_table
from specsim.core._types import Floats, Ints
from specsim.simulation._counting import Counts, Example, Partial
from specsim.theory import expected_tokens

#: Largest number of cells with a certified bound, and of cells that are reported one by one.
MAX_CERTIFIED_CELLS = 64
#: Impossible tokens that a finding names.
NAMED = 3
#: The cells of each kind of table, in words.
BINS = {"prefix": "tokens", "PIT": "PIT bins", "tail": "bins of rare tokens"}
#: The kinds of tables that are about several steps: pairs of them, a token given that of another, or a call.
OF_PAIRS, GIVEN, OF_CALLS = ("neighbours", "pairs"), "given", "halves"
OF_STEPS = (*OF_PAIRS, GIVEN, OF_CALLS)
#: The kinds of tables of single tokens of calls of changing shape.
OF_SHAPES = ("all", "shape")
#: p-value of independence below which pairs of steps are called dependent.
DEPENDENT = 1e-6
#: The probability with which the design effect that widens an interval is too small.
TOO_NARROW = 0.005
#: What findings say.
MEANINGS: dict[str, str] = read_table("meanings")["findings"]
#: Least degrees of freedom for the lower-tail test of a sum of chi-squares.
MIN_TOO_GOOD_DF = 30


def judge_case(plan: Plan, found: Partial, level: float, interrupted: bool = False) -> CaseResult:
    """Judge a case, each test at false-alarm probability `level`; a case with failures is not tested."""
    case, counts, tested = plan.case, found.counts, bool(found.steps and not found.failures)
    planned = found.steps in interim_looks(plan.steps)
    log_e = plan.log_e(counts) if tested else np.zeros(0)
    results = [judge_table(*one, counts, level, planned) for one in zip(plan.tables, log_e, strict=tested)]
    pooled = pooled_log_e(plan, counts) if tested else 0.0
    findings = [Finding(*failure) for failure in found.failures]
    spread = design_effect(results, counts) if found.steps else None
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
        findings=tuple(find(plan, results, pooled, found, level, spread) if tested else findings),
        pooled_log10_e=pooled / np.log(10.0),
        interrupted=interrupted,
        tables=tuple(results),
        counts=counts,
        declared_tv=plan.declared_tv,
        alphas=_alphas(plan, counts) if found.steps else None,
        # its error is that of independent steps
        efficiency=_efficiency(plan, counts) if spread == 1.0 else None,
        examples=found.examples[:NAMED],
        seconds=found.seconds,
    )


def judge_table(
    table: Table, log_e: float, counts: Counts, level: float, planned: bool = True
) -> TableResult:
    """Test a table, whose e-value is exp(log_e), at `level`; certify only the steps that were `planned`."""
    observed = table.counts(counts)
    n = int(observed.sum())
    rejected = log_e >= -np.log(level)
    full = n * table.law.min() >= stats.MIN_EXPECTED / 2
    few = len(table.law) <= MAX_CERTIFIED_CELLS
    certified = planned and few and table.kind == "prefix"
    # a case of changing shape has hundreds of tables, of which only those that reject are shown cell by cell
    shown = few and (rejected or table.kind not in (*OF_SHAPES, "pairs", GIVEN, OF_CALLS))
    return TableResult(
        kind=table.kind,
        position=table.position,
        prefix=table.prefix,
        where=table.where,
        n=n,
        cells=len(table.law),
        # p = 1 if the expected counts are too small for it
        chi_square=stats.chi_square(observed, table.law) if full else stats.ChiSquare(0.0, 0, 1.0),
        log10_e=log_e / np.log(10.0),
        detectable_tv=detectable_in_table(table, n, level),
        certified_tv=stats.tv_interval(observed, table.law, level / len(LOOKS))[2] if certified else None,
        rejected=rejected,
        labels=tuple(table.label(cell) for cell in range(len(table.law))) if shown else (),
        observed=tuple(observed.tolist()) if shown else (),
        expected=tuple((n * table.law).tolist()) if shown else (),
    )


def detectable_in_table(table: Table, n: int, level: float) -> float:
    """As `stats.detectable_tv` of `n` draws; of single tokens the additional share of the likeliest one."""
    if table.kind == "ids":
        return stats.detectable_tv(2, n, level / (2 * len(stats.SPIKES) * len(table.law)))
    if len(table.law) == 1:
        return 1.0 - (1.0 - stats.POWER) ** (1.0 / n) if n else 1.0
    return stats.detectable_tv(len(table.law), n, level)


def evidence(plan: Plan, counts: Counts, level: float) -> tuple[float, float]:
    """The largest log e-value of all tests and of single tables, as a share of what rejects; or inf."""
    if counts["impossible"].any():
        return float("inf"), float("inf")
    alarm = -float(np.log(level))
    of_tables = max(0.0, *plan.log_e(counts).tolist())
    return max(of_tables, pooled_log_e(plan, counts)) / alarm, of_tables / alarm


def pooled_log_e(plan: Plan, counts: Counts) -> float:
    return float(plan.pooled.log_pooled_e(plan.pooled.counts(counts))[0])


def find(
    plan: Plan,
    results: Sequence[TableResult],
    pooled: float,
    found: Partial,
    level: float,
    spread: float | None,
) -> list[Finding]:
    """All findings of a case, the most direct first; `spread` is the design effect, if it is known."""
    counts, planned = found.counts, found.steps in interim_looks(plan.steps)
    rejected = [pair for pair in zip(plan.tables, results, strict=True) if pair[1].rejected]
    findings = [
        *_support(counts, found.examples),
        *_shared_noise(results, counts),
        *(_deviation(plan, table, counts, level, spread=spread) for table in _most_telling(rejected)),
        *(_dependence(results, level) if planned else ()),
    ]
    if not findings and pooled >= -np.log(level):  # together, and none alone: the one that deviates most
        tables = plan.pooled.tables
        worst = max(tables, key=lambda table: stats.log_e_value(table.counts(counts), table.law))
        together = f"all {len(tables)} tables of tokens together; most in "
        findings.append(_deviation(plan, worst, counts, level, together))
    # where only pairs of steps reject, and do not contradict independence, a law deviates
    return findings or [_deviation(plan, table, counts, level) for table, _ in rejected]


def _most_telling(rejected: Sequence[tuple[Table, TableResult]]) -> Iterator[Table]:
    """The most significant table of each position, or of all axes of calls of changing shape."""
    places: dict[tuple[bool, int], list[tuple[Table, TableResult]]] = {}
    for table, result in rejected:
        if table.kind not in OF_STEPS:
            place = (False, 0) if table.kind in OF_SHAPES else (True, table.position)
            places.setdefault(place, []).append((table, result))
    for place in sorted(places):
        full = [pair for pair in places[place] if pair[0].kind == "prefix"]
        yield max(full or places[place], key=lambda pair: pair[1].log10_e)[0]


def _support(counts: Counts, examples: Sequence[Example]) -> Iterator[Finding]:
    if total := int(counts["impossible"].sum()):
        named = "; ".join(f"step {s}, position {i + 1}: token {x}" for s, i, x in sorted(examples)[:NAMED])
        text = f"{total:,} emitted tokens have probability 0 under the target ({named})"
        _, position, token = min(examples, default=(0, None, None))
        yield Finding("support", text, position=position, token=token, expected=0.0)


def _deviation(
    plan: Plan, table: Table, counts: Counts, level: float, before: str = "", spread: float | None = 1.0
) -> Finding:
    """Where a table deviates, by how much, at which tokens, and its kind; `spread` is the design effect."""
    observed = table.counts(counts)
    kind = excess_kind(table, counts, plan.case)
    cell = int(np.abs(_residuals(table, observed)).argmax())
    members = np.flatnonzero(table.cells == cell)
    return Finding(
        "deviation",
        before + _deviation_text(table, observed, level, spread) + (f"; {in_words(kind)}" if kind else ""),
        position=table.position,
        prefix=table.prefix if table.kind == "prefix" else None,
        cell=table.label(cell),
        token=int(members[0]) if table.kind in ("prefix", "ids") and len(members) == 1 else None,
        observed=float(observed[cell] / observed.sum()),
        expected=float(table.law[cell]),
        log10_e=float(table.log_e(observed) / np.log(10.0)),
        emitted_as=kind,
    )


def _deviation_text(table: Table, observed: Ints, level: float, spread: float | None) -> str:
    if table.kind == "ids":  # so many cells are never all full, so that no total variation can be estimated
        return f"{table.where}: {_extremes(table, observed)}"
    estimate, *ends = stats.tv_interval(observed, table.law, level / len(LOOKS), spread or 1.0)
    interval = "" if spread is None else f" [{ends[0]:.4f}, {ends[1]:.4f}]"
    after = f" after {list(table.prefix)}" if table.kind == "prefix" and table.prefix else ""
    place = f"position {table.position + 1}{after}"
    where = f"{table.where}, {place}" if table.where and table.kind == "prefix" else table.where or place
    cells = BINS.get(table.kind, f"{len(table.law)} bins")
    return f"{where}: TV {estimate:.4f}{interval} on the {cells}; {_extremes(table, observed)}"


def dependent(results: Sequence[TableResult]) -> list[TableResult]:
    """The tables of several steps that show dependence.

    Where the law of the first token deviates, pairs of independent steps do too. So pairs must contradict the
    product of their margins too, and others count only where no table of single tokens is rejected."""
    rejected = [result for result in results if result.rejected]
    single = any(result.kind not in OF_STEPS for result in rejected)
    return [
        result
        for result in rejected
        if (result.kind in OF_PAIRS and independence(np.array(result.observed)) < DEPENDENT)
        or (result.kind in (GIVEN, OF_CALLS) and not single)
    ]


def calls_differ(counts: Counts) -> float | None:
    """How many times the variance between calls is that of independent steps; None if it is no larger."""
    ratio, df = _variance_between_calls(counts)
    return ratio if df and scipy.stats.chi2.sf(ratio * df, df) < DEPENDENT else None


def _variance_between_calls(counts: Counts) -> tuple[float, int]:
    """Pearson's statistic for the homogeneity of calls, by its degrees of freedom: none of less than two."""
    if "calls" not in counts or counts["calls"][0, -1] < 2:
        return 1.0, 0
    (*totals, calls), (*squares, sizes) = counts["calls"].astype(np.float64)
    shares = np.array(totals) / sum(totals)
    some = shares > 0.0
    df = int((some.sum() - 1) * (calls - 1))
    statistic = ((np.array(squares) - shares**2 * sizes)[some] / (sum(totals) / calls * shares[some])).sum()
    return float(statistic) / max(df, 1), df


def design_effect(results: Sequence[TableResult], counts: Counts) -> float | None:
    """The design effect of the first token's counts: 1 if steps are independent, None if it is unknown."""
    pairs = dependent(results)
    if not pairs and calls_differ(counts) is None:
        return 1.0
    if any(result.kind in ("pairs", GIVEN, OF_CALLS) or result.prefix == (CALLS,) for result in pairs):
        return None
    return effect_of_calls(counts)


def effect_of_calls(counts: Counts) -> float | None:
    """An upper bound of the design effect of steps that depend on those of their call, or None."""
    ratio, df = _variance_between_calls(counts)
    return max(1.0, ratio * df / float(scipy.stats.chi2.ppf(TOO_NARROW, df))) if df else None


def independence(pairs: Ints) -> float:
    """A conservative p-value of independence of pairs of quarters [16]; it selects words and names only."""
    observed = pairs.reshape(QUARTERS, QUARTERS)
    law = np.outer(observed.sum(axis=1), observed.sum(axis=0)).ravel() / float(observed.sum()) ** 2
    return stats.chi_square(observed.ravel()[law > 0], law[law > 0]).p_value


def _shared_noise(results: Sequence[TableResult], counts: Counts) -> Iterator[Finding]:
    """Steps that depend on each other, within a call or between calls, or whose law changes between calls."""
    pairs = dependent(results)
    for result in pairs:
        pair = int(np.subtract(result.observed, result.expected).argmax())
        share, expected = result.observed[pair] / result.n, result.expected[pair] / result.n
        which = result.where
        if result.kind == "neighbours":
            which = f"the first tokens of {NEIGHBOURS[result.prefix[0]]}"
        if result.kind == OF_CALLS:
            outer = abs(pair - (len(result.labels) - 1) / 2) > len(result.labels) / 4
            how = MEANINGS["halves"].format(more="more" if outer else "less")
        else:
            cells = result.labels[pair]
            how = f"{cells} of the distribution: {share:.4f} of the pairs, expected {expected:.4f}"
        yield Finding(
            "dependent",
            MEANINGS["steps depend"].format(which=which, how=how),
            position=0,
            cell=result.labels[pair],
            observed=share,
            expected=expected,
            log10_e=result.log10_e,
        )
    ratio = calls_differ(counts)
    if ratio is not None and not pairs and any(result.rejected for result in results):
        yield Finding("dependent", MEANINGS["calls vary"].format(ratio=ratio), position=0)


def _dependence(results: Sequence[TableResult], level: float) -> Iterator[Finding]:
    """Counts that agree with the law better than independent draws can."""
    for kind in ("prefix", "PIT"):
        chosen = [result.chi_square for result in results if result.kind == kind]
        statistic, df = sum(one.statistic for one in chosen), sum(one.df for one in chosen)
        if df >= MIN_TOO_GOOD_DF:
            break
    if df >= MIN_TOO_GOOD_DF and stats.lower_tail_p_value(statistic, df) < level:
        yield Finding("dependent", MEANINGS["too good"].format(statistic=statistic, df=df))


def _extremes(table: Table, observed: Ints) -> str:
    """The tokens, or bins, that are most significantly too frequent and too rare, by their residuals."""
    gap, shares = _residuals(table, observed), observed / observed.sum()
    ends = (int(gap.argmax()), "too often"), (int(gap.argmin()), "too rarely")
    said = (f"{table.label(i)} {word} ({_share(shares[i])} for {_share(table.law[i])})" for i, word in ends)
    return ", ".join(said)


def _residuals(table: Table, observed: Ints) -> Floats:
    """By how much the share of each cell differs from its law, in units of its standard deviation."""
    return (observed / observed.sum() - table.law) / np.sqrt(table.law * (1.0 - table.law))


def _share(probability: float) -> str:
    return f"{probability:.4f}" if probability >= 1e-3 or probability == 0.0 else f"{probability:.2g}"


def _alphas(plan: Plan, counts: Counts) -> Alphas | None:
    case, alpha, lengths = plan.case, plan.alpha_context, counts["lengths"]
    if alpha is None or not isinstance(case, Case) or case.uneven:
        return None
    return Alphas(
        alpha, stats.alpha_verified(lengths), stats.alpha_drafted(lengths, case.tree.size), case.tree.depth
    )


def _efficiency(plan: Plan, counts: Counts) -> Efficiency | None:
    """Relative to the standard rule on one chain or, with a draft that is certain, to the most possible."""
    case, alpha = plan.case, plan.alpha_context
    if alpha is None or not isinstance(case, Case):
        return None
    mean, error = stats.mean_tokens(counts["lengths"])
    if case.tree.draft_sampling == "top" and len(case.contexts) == 1:
        reference = most_of_certain_drafts(case)
    elif case.is_pair:
        drafted = range(case.gamma + 1) if case.uneven else [case.gamma]
        reference = float(np.mean([expected_tokens(alpha, gamma) if gamma else 1.0 for gamma in drafted]))
    elif counts["reference"].any():
        reference, reference_error = stats.mean_tokens(counts["reference"])
        error += reference_error
    else:
        return None
    z = -float(scipy.special.ndtri(BUDGET / 2.0))
    return Efficiency(mean / reference, (mean - z * error) / reference, (mean + z * error) / reference)


def most_of_certain_drafts(case: Case) -> float:
    """1 + Σ p(path), the most tokens per step of a lossless rule where nothing of the draft is random."""
    tree, ((tokens, _), *_) = case.tree, case.drafts()
    paths = {tuple(tokens[above - 1] for above in tree.path(node)) for node in range(1, tree.size + 1)}
    chances = (
        np.prod([float(case.target.row(case.start + path[:i])[x]) for i, x in enumerate(path)])
        for path in paths
    )
    return 1.0 + float(sum(chances))


# Which tokens of a table are too frequent: accepted ones, recovered ones, or the bonus.

ACCEPTED, RECOVERED, BONUS = "accepted", "recovered", "bonus"
#: The share of the evidence from which on it is said to be in tokens of one kind.
MOST = 2 / 3


def excess_kind(table: Table, counts: Counts, case: Case | ShapesCase | DecoderCase) -> str | None:
    """The kind of token that is too frequent in a table; None if its counts do not tell."""
    if not isinstance(case, Case) or ENDS + table.source not in counts:
        return None
    if table.position == case.gamma:
        return BONUS
    here = [node for node, depth in enumerate(case.tree.depths) if depth == table.position]
    short = case.uneven or not all(case.tree.children(node) for node in here)
    kind = f"{RECOVERED} or {BONUS}" if short else RECOVERED  # a bonus where no drafted token follows
    observed, ended = table.counts(counts), table.merged(counts[ENDS + table.source].reshape(-1))
    expected = observed.sum() * table.law
    evidence = _evidence(observed, expected, table.law)
    share = _evidence(observed - ended, expected, table.law) / evidence if evidence > 0.0 else 0.5
    if share >= MOST:
        return ACCEPTED
    # other bins add up tokens that an exact verifier accepts in full and tokens that it does not
    alike = table.kind == "prefix" or (table.kind == "PIT" and case.is_pair)
    return kind if alike and share <= 1.0 - MOST else None


def in_words(kind: str) -> str:
    return "every token there is a bonus" if kind == BONUS else f"most of the excess is in {kind} tokens"


def _evidence(counts: Ints, expected: Floats, law: Floats) -> float:
    """The squared excess of all cells in standard deviations, less what chance adds to it."""
    excess = np.maximum(counts - expected, 0.0) ** 2 / (expected * (1.0 - law))
    return float(excess.sum() - len(law) / 2.0)
