"""Diagnose a verifier of chains: which known mistake it makes.

Steps of the diagnostic cases are drawn until one mistake is far likelier than all others, or a limit is
reached. Mistakes that are alike there, because they show only in a precision, in a tail, or between the rows
of a call, are separated by the rejected tables of the audit: each mistake is run on the same case. A mistake
that does not reproduce all cases of the audit is not named."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from specsim.adapters._contract import Declared, NotADraftPath
from specsim.auditing._cases.battery import Case, case_key
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks.counts import diagnostic_cases, path_of
from specsim.auditing._checks.findings import OF_STEPS, calls_differ, dependent
from specsim.auditing._checks.subjects import Span, VerifierSubject, count_span
from specsim.auditing._checks.tables import Table
from specsim.auditing._diagnosis import families, large
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.likelihood import Prediction, fit, log_likelihood, log_mean_exp, log_near
from specsim.auditing._diagnosis.parameters import Values, as_likely
from specsim.auditing._diagnosis.reproduction import ROUNDING, STEP_BYTES, Audited, flat, predict
from specsim.auditing._diagnosis.signatures import PAIRS, ROWS, independent, signatures, signatures_of
from specsim.auditing._results.audit import CALLS, ODDS, Diagnosis, TableResult
from specsim.core._files import read_table
from specsim.core._types import Ints
from specsim.mistakes import Mistake, exact_controls
from specsim.mistakes import _acceptance as acceptance
from specsim.mistakes import _randomness as randomness
from specsim.rules import Parameter, get

#: Steps of each diagnostic case after which the mistakes are ranked.
SEGMENTS = [2**13, 2**15, 2**17]
#: Steps that are searched for an outcome.
SEARCHED_STEPS = 2**13
#: The most steps of a known mistake that is run on a case that failed, and bytes of the rows of all these.
COMPARED_STEPS, COMPARED_BYTES = 2**17, 2**34
#: Nats by which an outcome that is quoted favours the mistake.
CLEAR = 5.0
#: Exact verifiers: the two rules in use, and those that accept less.
EXACT = (
    odds.STANDARD,
    Mistake(name="block", family="exact", mechanism="", verify=acceptance.block_verify, law=get("block").law),
    *(one for one in exact_controls() if one.verify is not None),
)
#: Diagnostic cases that are looked at first, and the nats behind the likeliest from which on a mistake is
#: then dropped: more than later, since its parameter may fall between two values.
FIRST, FAR_AT_FIRST = 2, 150.0
#: Other values of a parameter, at most, with which a mistake may reproduce the audit where none does.
OTHERS = 8
#: The diagnostic cases, with the counts of their outcomes.
Outcomes = Sequence[tuple[Case, Ints]]
#: A mistake, and perhaps others with other values of its parameters, in the order in which they are tried.
Versions = Callable[[Mistake], Iterable[Mistake]]
#: Why there is no name.
OFF_THE_PATH, DEPENDENT, TOO_FEW, FEW_ROWS = read_table("diagnosis")["reasons"].values()
#: What the most significant outcome says.
EVIDENCE: str = read_table("diagnosis")["evidence"]
#: The most outcomes of a case of the audit that is taken for a diagnostic one.
OUTCOMES = 2**12
#: Impossible outcomes from which on they may show a mistake by themselves.
ENOUGH = 20


def diagnose_chain(audited: Audited, known: Sequence[Mistake]) -> Diagnosis | None:
    mistakes = [one for one in known if one.verify is not None]
    between: Diagnosis | None = None
    if tied := [one for one in audited.failed if dependent(one.tables) or calls_differ(one.counts)]:
        between = _between_steps(mistakes, audited, sum(one.steps for one in audited.failed), DEPENDENT)
        # where all calls are alike steps are independent, so their law may be that of a known mistake
        of_shapes = all(isinstance(audited.subject.case(one.case), ShapesCase) for one in tied)
        if between.named or not of_shapes:
            return between
    try:
        found = _by_law(mistakes, audited, between is None)
    except odds.OutOfTime:
        if between is None:
            raise
        return between
    return found if found.named or between is None else between


def _by_law(mistakes: Sequence[Mistake], audited: Audited, or_between: bool) -> Diagnosis:
    """Rank the mistakes by the law of their steps, or by dependence where that is an exact verifier's."""
    subject, root, in_time = audited.subject, audited.root, audited.in_time
    cases, outcomes = diagnostic_cases(subject.declared), list[Ints]()
    further = [case for case in diagnostic_cases(subject.declared, further=True) if not case.certain]
    # where the mistake is between steps alone, steps are not independent
    between_steps = mistakes
    mistakes = of_law = [one for one in mistakes if one.law is not None or one.family != randomness.FAMILY]
    number, done = len(mistakes), 0
    # a slow verifier is not called for much longer than the tests were to take
    planned = sum(one.planned for one in audited.results) // len(cases)

    def drawn(case: Case, steps: int) -> Ints:
        """Outcomes [V^γ, (γ+1)·V] of the steps from the segment before `steps` on."""
        first = max((one for one in SEGMENTS if one < steps), default=0)
        span = Span(case.name, case_key(root, case.name), first, steps - first)
        return flat(count_span(subject, span, in_time).counts["outcomes"])

    for steps in SEGMENTS if planned >= SEGMENTS[-1] else SEGMENTS[:-1]:
        try:
            new = [drawn(case, steps) for case in cases]
        except NotADraftPath:
            return odds.conclude(None, 0, OFF_THE_PATH)
        outcomes = [a + b for a, b in zip(outcomes, new, strict=True)] if outcomes else new
        done, seen = steps, list(zip(cases, outcomes, strict=True))
        scored, exact = _by_outcomes(mistakes, seen, in_time)
        mistakes = [one.mistake for one in scored]
        found = odds.posterior(scored, exact, number)
        if found.settled or (found.named and _same_law([one.mistake for one, _ in found.named], cases)):
            break
    if exact_there := found.exact > 0.5:
        seen += [(case, np.sum([drawn(case, n) for n in SEGMENTS if n <= done], axis=0)) for case in further]
        scored, exact = _by_outcomes(mistakes, seen, in_time)
        exact_there = odds.posterior(scored, exact, number).exact > 0.5
    if or_between and exact_there:
        between = _between_steps(between_steps, audited, done * len(cases), FEW_ROWS.format(ROWS))
        if between.named or (between.steps and between.exact < families.WRONG):
            return between

    for versions in (_alone, partial(_as_likely, seen=seen)):
        compared = _with_tables(scored, exact, audited, versions)
        found = odds.reproducing(*compared, number, partial(_reproduced, audited=audited, versions=versions))
        if found.named:
            break
    if not found.named:
        if elsewhere := _elsewhere(of_law, audited, seen, exact_there):
            return elsewhere
        family = families.of_steps(seen, EXACT)
        if family == families.NOTHING and exact_there:
            family = families.of_cases(audited)
        reason = odds.ELSEWHERE if exact_there else odds.OTHERWISE
        return odds.conclude(found, done * len(cases), reason, family)
    if (few := _too_few(found.named[0][0].mistake, seen)) is not None:
        reason = TOO_FEW if few else odds.ELSEWHERE
        return _in_large_rows(of_law, audited) or odds.conclude(None, done * len(cases), reason)
    return odds.conclude(found, done * len(cases), shown=_evidence(found.named[0][0], seen, subject, root))


def _elsewhere(
    mistakes: Sequence[Mistake], audited: Audited, small: Outcomes, exact_there: bool
) -> Diagnosis | None:
    """The mistakes that explain other steps: where those of `small` cases are exact, or by seeds of rows."""
    declared, places = audited.subject.declared, list[tuple[Any, ...]]()
    cases: Sequence[Case] = [case for case, _ in small]
    if exact_there:
        without_q = [case for case in diagnostic_cases(declared, further=True) if case.certain]
        places.append(("where q is None; with q its steps are exact", mistakes, without_q))
        if declared.lengths and not declared.uniforms and declared.batch not in (1, 2):
            where = "in calls whose rows differ in their number of drafts; in others its steps are exact"
            room = [case for case in cases if case.gamma < (declared.gamma or math.inf)]
            for own, pair in ((False, True), (False, False), (True, True)):
                some = [case for case in room if (case.rotated, case.is_pair) == (own, pair)]
                # rows of their own show which row a token is of, and not its law
                among = _independent(mistakes) if own else mistakes
                places.append((where, among, some, large.Uneven, large.UNEVEN_STEPS))
        for one in filter(_enumerable, (audited.subject.case(one.case) for one in audited.failed)):
            where = f"in case {one.name!r}; in other small cases its steps are exact"
            places.append((where, mistakes, [one]))
        if (shape := large.shape_that_failed(audited)) is not None:
            rows, ids = shape
            where = f"in calls of {rows} rows over {ids:,} ids; in small calls its steps are exact"
            few_ids = [one for one in cases if one.name in large.CASES and one.vocab_size <= ids]
            steps = max(rows, min(large.STEPS, large.IDS // ids))
            places.append((where, mistakes, few_ids, partial(large.LargeCalls, rows=rows, ids=ids), steps))
    elif declared.seeds:
        for of in ("with", "without"):
            source = partial(large.Seeded, seeded=of == "with")
            places.append((f"in rows {of} a seed", mistakes, cases, source, large.SEEDED_STEPS))
    for where, among, there, *how in places:
        if not (seen := large.outcomes_of(audited, there, *how)):
            continue
        found = odds.posterior(*_by_outcomes(among, seen, audited.in_time), len(mistakes))
        if exact_there and len(found.named) > 1:  # those that explain the other small cases too, if any does
            both = _by_outcomes([one.mistake for one, _ in found.named], [*small, *seen], audited.in_time)
            found = max(odds.posterior(*both, len(mistakes)), found, key=lambda one: bool(one.named))
        if found.named:
            shown = f"It does so {where}.", ""
            result = odds.conclude(found, sum(int(counts.sum()) for _, counts in seen), shown=shown)
            # what it does in some calls alone cannot be declared
            return replace(result, named=tuple(replace(one, lossy=False) for one in result.named))
    return _in_large_rows(mistakes, audited) if exact_there else None


def _independent(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """The mistakes without a law whose recovered tokens are independent in the rows of a call."""
    right = Prediction(independent(Declared()).law[: len(PAIRS)])  # of the case in which no draft passes

    def rows_are(mistake: Mistake) -> bool:
        agree = (np.array([*one.values()])[: len(PAIRS)] for one in signatures_of(mistake))
        return any(fit([(right, counts)]) > families.RIGHT for counts in agree)

    return [one for one in mistakes if one.law is None and rows_are(one)]


def _enumerable(case: Case | ShapesCase) -> bool:
    """Whether a case is one of a pair whose outcomes are few."""
    if isinstance(case, ShapesCase) or not case.is_pair or case.uneven:
        return False
    return case.positions * case.vocab_size**case.positions <= OUTCOMES


def _in_large_rows(mistakes: Sequence[Mistake], audited: Audited) -> Diagnosis | None:
    """The mistakes that explain the tokens of a case of many ids, where small cases show nothing."""
    if (seen := large.seen_in(audited)) is None:
        return None
    of_ids = [one for one in mistakes if one.name in large.PARTS]
    _ = seen.banks  # made once, for all threads
    with ThreadPoolExecutor(audited.subject.threads) as pool:
        known = list(pool.map(partial(large.score, seen=seen), of_ids))
    reproduced = partial(_reproduced, audited=audited, versions=_alone)
    found = odds.reproducing(known, [odds.score(EXACT[0], seen.right, large.TOLD)], len(mistakes), reproduced)
    if not found.named:
        return None
    shown = f"It shows over many ids: in {seen.name!r}, not in small cases.", ""
    return odds.conclude(found, int(seen.counts.sum()), shown=shown)


def _too_few(mistake: Mistake, seen: Outcomes) -> int | None:
    """How many impossible outcomes, too few, alone tell a mistake from an exact verifier; else None."""
    for right in EXACT:
        impossible, gain = 0, 0.0
        for case, counts in seen:
            one, other = predict(mistake, case), predict(right, case)
            if one is None or other is None:
                return None
            possible = counts * (other.law > 0.0)
            impossible += int((counts - possible).sum())
            gain += log_likelihood(one, possible) - log_likelihood(other, possible)
        if impossible < ENOUGH and gain < math.log(ODDS):
            return impossible
    return None


def _same_law(mistakes: Sequence[Mistake], cases: Sequence[Case]) -> bool:
    """Whether these have one law of outcomes, and no amount of steps tells them apart."""
    first, *others = mistakes
    laws = ((predict(first, case), predict(other, case)) for case in cases for other in others)
    return all(one and other and np.allclose(one.law, other.law, atol=ROUNDING) for one, other in laws)


def _by_outcomes(mistakes: Sequence[Mistake], seen: Outcomes, in_time: odds.Limits) -> odds.Ranked:
    """The mistakes near the likeliest, and the exact verifiers; those far behind at first are not scored."""
    plain = [one for one in seen if not one[0].rotated]
    parts = (plain[:FIRST], FAR_AT_FIRST), (plain, odds.FAR)
    stages = [(partial(_score, seen=part), far) for part, far in parts]
    rotated, whole = [one for one in seen if one[0].rotated], []
    for one in odds.narrow([*mistakes, *EXACT], stages, in_time):
        in_time()
        if len(more := _predictions(one.mistake, rotated)) == len(rotated):
            whole.append(one.plus(odds.score(one.mistake, more)))
    known, exact = odds.ranked(whole)
    # an unknown mistake may be near an exact law in the diagnostic cases, or not show there at all
    exact = [replace(one, near=log_mean_exp([one.near, one.log_likelihood])) for one in exact]
    return odds.drop_far(known), exact


def _score(mistake: Mistake, seen: Outcomes) -> odds.Scored | None:
    """`mistake` with its likeliest parameters; None if it breaks the contract."""
    if mistake.law is None and len(_predictions(mistake, seen)) < len(seen):
        return None
    return odds.fitted(mistake, _free(mistake), partial(_predictions, seen=seen))


def _reproduced(one: odds.Scored, audited: Audited, versions: Versions) -> Mistake | None:
    return next((each for each in versions(one.mistake) if not audited.refutes(each)), None)


def _alone(mistake: Mistake) -> Iterable[Mistake]:
    return [mistake]


def _as_likely(mistake: Mistake, seen: Outcomes) -> Iterator[Mistake]:
    """`mistake`, then with other values of a parameter that are about as likely in the diagnostic cases."""
    yield mistake

    def likelihood(values: Values) -> float:
        return sum(log_likelihood(*one) for one in _predictions(mistake.with_parameters(**values), seen))

    for values in as_likely(_free(mistake), likelihood, dict(mistake.values), OTHERS):
        yield mistake.with_parameters(**values)


def _free(mistake: Mistake) -> tuple[Parameter, ...]:
    return mistake.parameters if mistake.law is not None else ()


def _predictions(mistake: Mistake, seen: Outcomes) -> odds.Seen:
    """What was seen where `mistake` keeps the contract."""
    return [(law, counts) for case, counts in seen if (law := predict(mistake, case)) is not None]


def _with_tables(
    known: Sequence[odds.Scored], exact: Sequence[odds.Scored], audited: Audited, versions: Versions
) -> odds.Ranked:
    """The same with the rejected tables of the two worst cases: `versions` of each mistake, run on them."""
    small = [one for one in audited.failed if audited.subject.case(one.case).step_bytes <= STEP_BYTES]
    number = sum(1 if versions is _alone or not _free(one.mistake) else 1 + OTHERS for one in known)
    # in calls of changing shape p and q differ from run to run: only where there is nothing else
    for result in sorted(small, key=lambda result: (result.kernel == CALLS, -result.largest_log10_e))[:2]:
        if not (tables := _rejected(audited.tables(result))):
            continue
        most = COMPARED_BYTES // audited.subject.case(result.case).step_bytes // max(number, 1)
        most = min(2 * result.steps, COMPARED_STEPS, most)
        laws = [(Prediction(table.law[None]), table.counts(result.counts)[None]) for table in tables]
        exact = [one.plus(odds.score(one.mistake, laws)) for one in exact]
        again = []
        for one in known:
            tried: list[odds.Scored] = []
            for mistake in versions(one.mistake):
                audited.in_time()
                if (counts := audited.run(mistake, result, most)) is None:
                    break
                runs = [Prediction.simulated(table.counts(counts)[None]) for table in tables]
                more = odds.score(mistake, [(run, seen) for run, (_, seen) in zip(runs, laws, strict=True)])
                tried.append(one.plus(more))
                if more.log_likelihood >= more.near:
                    break
            again += [odds.likeliest_of(tried)] if tried else []
        known = again
    return list(known), list(exact)


def _rejected(pairs: Sequence[tuple[Table, TableResult]]) -> list[Table]:
    """Tables that count no token twice: the rejected ones of prefixes, or the worst of all."""
    prefixes = [table for table, judged in pairs if judged.kind == "prefix" and judged.rejected]
    others = [pair for pair in pairs if pair[1].kind not in OF_STEPS]
    return prefixes or [table for table, _ in sorted(others, key=lambda pair: -pair[1].log10_e)[:1]]


def _between_steps(mistakes: Sequence[Mistake], audited: Audited, steps: int, reason: str) -> Diagnosis:
    """Rank the mistakes by which steps depend on each other; without a name, for `reason`."""
    if not (seen := signatures(audited.subject.callee, audited.subject.timeout)):
        return odds.conclude(None, 0, reason)
    counts = np.array(list(seen[0].values()))
    among = [mistake for mistake in mistakes if mistake.law is None]
    anything = log_near(Prediction(np.full(counts.shape, 0.5)), counts, [0.5])  # any rate is as likely
    known = []
    for mistake in among:
        versions = [np.array([one[key] for key in seen[0]]) for one in signatures_of(mistake)]
        likely = log_mean_exp([log_likelihood(Prediction.simulated(one), counts) for one in versions])
        known.append(odds.Scored(mistake, likely, anything))
    right = independent(audited.subject.declared)
    exact = odds.Scored(EXACT[0], log_likelihood(right, counts), log_near(right, counts))
    reproduced = partial(_reproduced, audited=audited, versions=_alone)
    found = odds.reproducing(known, [exact], max(len(among), 1), reproduced)
    return odds.conclude(found, steps, reason, families.of_pairs(audited))


def _evidence(best: odds.Scored, seen: Outcomes, subject: VerifierSubject, root: int) -> tuple[str, str]:
    """The outcome that best separates the mistake from an exact verifier, and one step with it."""
    gains = []
    for i, (case, counts) in enumerate(seen):
        here, exact = predict(best.mistake, case), predict(EXACT[0], case)
        if here is None or exact is None or case.rotated:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(counts > 0, counts * np.log(here.law / np.maximum(exact.law, 1e-6)), 0.0)
        cell = np.unravel_index(int(np.nanargmax(gain)), counts.shape)
        gains.append((float(gain[cell]), i, cell, float(here.law[cell]), float(exact.law[cell])))
    most, i, (code, inside), predicted, right = max(gains)
    if most < CLEAR:
        return "", ""
    case, counts = seen[i]
    accepted, token = divmod(int(inside), case.target.vocab_size)
    path = list(path_of(int(code), case.target.vocab_size, case.gamma))
    share = counts[code, inside] / counts[code].sum()
    shares = (f"{100 * one:.4g}" for one in (share, predicted, right))
    text = EVIDENCE.format(case.name, path, accepted or "none", token, *shares)
    source, tally = subject.counter(case.name)
    key, outcome = case_key(root, case.name), (int(code), accepted, token)
    batches = source.batches(key, 0, SEARCHED_STEPS)
    alike = ((batch.first, (tally.cells(batch) == outcome).all(axis=1)) for batch in batches)
    step = next((first + int(here.argmax()) for first, here in alike if here.any()), None)
    if step is None:
        return text, ""
    replay = f"specsim replay {shlex.quote(subject.name)} --case {case.name!r} --step {step} --seed {root}"
    if subject.device != "cpu":
        replay += f" --device {subject.device}"
    return text, f"One such step: {replay}"
