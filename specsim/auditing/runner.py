"""Runs the battery: plans every case, sets the error budget, draws, judges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from scipy.stats import norm

from specsim import rules
from specsim.auditing.cases import LEVELS, Case, battery
from specsim.auditing.claims import Claim
from specsim.auditing.judge import SINGLE_CELLS, find, judge_table, rejects_early
from specsim.auditing.plan import LOOKS, Table, plan_tables
from specsim.auditing.proof import prove_on_generated_models
from specsim.auditing.results import Alphas, Audit, CaseResult, Efficiency, Finding
from specsim.auditing.tallies import AuditTally
from specsim.auditing.verifiers import BrokenVerifier, NotADraftPath, Verifier, contract, load
from specsim.distributions import Ints
from specsim.drafts import Tree
from specsim.engine import Counts, Progress, model_rows, no_counts, run
from specsim.jit import available_threads
from specsim.lengths import alpha_drafted, alpha_verified, mean_tokens
from specsim.provenance import Provenance
from specsim.rules import Rule
from specsim.sources import FixedPairSource, RowSource, Source, rule_verifier
from specsim.streams import Key, RandomSource, key_of, root_of
from specsim.theory import expected_tokens

__all__ = ["BUDGET", "audit"]

#: Probability that an audit of an exact verifier raises any alarm at all.
BUDGET = 1e-6


def audit(
    verifier: str | Verifier = "standard",
    level: str = "quick",
    rng: RandomSource = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Test whether `verifier` emits the law that it claims, with a stated false-alarm rate and a stated power.

    `verifier` is the name of a built-in rule, "package.module:function", or a function

        verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1]

    whose rows are the accepted tokens and one more, padded with -1. Rules for several drafts are given pairs of
    chains. A lossy rule is held to the law that it declares. `level` is one of `LEVELS`, each a fixed
    number of steps. A built-in rule is also proved, by enumeration in fractions. The probability that an exact
    verifier is called biased is at most `BUDGET`. The same `rng` seed gives the same counts.

    Raises ValueError for an unknown rule, level or module. What goes wrong inside the verifier is not raised:
    it is the verdict `broken`.

    >>> result = audit("standard", level="smoke", rng=0)
    >>> str(result.verdict)
    'consistent'
    """
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; one of {', '.join(LEVELS)}")
    subject = _subject(verifier, available_threads(threads))
    root = root_of(rng)
    started = time.perf_counter()
    cases = battery(subject.rule)
    steps = [case.steps(level, subject.rule) for case in cases]
    plans = [plan_tables(case, subject.claim(case), n) for case, n in zip(cases, steps, strict=True)]
    tests = sum(len(tables) + _other_tests(case) for case, tables in zip(cases, plans, strict=True))
    results = []
    for i, (case, n, tables) in enumerate(zip(cases, steps, plans, strict=True)):
        report = _offset(progress, sum(steps[:i]), sum(steps))
        key = key_of(root, (crc32(b"audit"), crc32(case.name.encode())))
        results.append(_run_case(case, subject, tables, n, key, BUDGET / tests, report))
    return Audit(
        verifier=subject.name,
        level=level,
        cases=tuple(results),
        proof=prove_on_generated_models(subject.rule) if subject.rule else None,
        budget=BUDGET,
        tests=tests,
        provenance=Provenance.record(root, subject.threads, time.perf_counter() - started),
    )


@dataclass(frozen=True)
class _Subject:
    """What is audited: a built-in rule, or somebody's function."""

    name: str
    rule: Rule | None
    function: Verifier | None
    threads: int

    def claim(self, case: Case) -> Claim:
        return Claim(self.rule, case.tree)

    def source(self, case: Case) -> Source:
        if self.rule is None:
            assert self.function is not None
            return RowSource(model_rows(case.target, case.draft, case.tree), contract(self.function))
        if case.is_pair:
            p, q = (np.asarray(model.row(()), dtype=np.float64) for model in (case.target, case.draft))
            return FixedPairSource(self.rule, p, q, case.tree)
        rows = model_rows(case.target, case.draft, case.tree, self.rule.leaf_rows)
        return RowSource(rows, rule_verifier(self.rule, case.tree))


def _subject(verifier: str | Verifier, threads: int) -> _Subject:
    if isinstance(verifier, str) and (":" not in verifier or verifier.partition(":")[0] in rules.names()):
        rule = rules.get(verifier)
        return _Subject(str(rule), rule, None, threads)
    if isinstance(verifier, str):
        return _Subject(verifier, None, load(verifier), 1)  # nobody promised that it is thread-safe
    if not callable(verifier):
        raise TypeError(f"verifier: expected a rule's name or a function, got {type(verifier).__name__}")
    name = f"{getattr(verifier, '__module__', '?')}:{getattr(verifier, '__qualname__', repr(verifier))}"
    return _Subject(name, None, verifier, 1)


def _other_tests(case: Case) -> int:
    """Tests of a case beside its tables: the exact binomials, and the one for dependence."""
    return SINGLE_CELLS * (case.gamma + 1) + 1


def _run_case(
    case: Case,
    subject: _Subject,
    tables: Sequence[Table],
    steps: int,
    key: Key,
    level: float,
    progress: Progress | None,
) -> CaseResult:
    source, claim = subject.source(case), subject.claim(case)
    compared = subject.rule is None and not case.is_pair
    reference = rule_verifier(rules.get("standard"), case.tree) if compared else None
    tally = AuditTally(case, claim, reference)
    counts, done, failure = no_counts(tally), 0, None
    try:
        for share in LOOKS:
            until = int(steps * share)
            part = run(
                source,
                tally,
                key,
                done,
                until - done,
                threads=subject.threads,
                progress=_offset(progress, done, steps),
            )
            counts, done = {name: counts[name] + part[name] for name in counts}, until
            if done < steps and rejects_early(tables, counts, level):
                break
    except (BrokenVerifier, NotADraftPath) as error:
        failure = error
    results = [judge_table(table, counts, level) for table in tables] if failure is None else []
    return CaseResult(
        case=case.name,
        purpose=case.purpose,
        kernel="fixed pair" if isinstance(source, FixedPairSource) else "rows",
        vocab_size=case.target.vocab_size,
        tree=case.tree,
        iid=case.is_pair,
        steps=done,
        findings=tuple(_findings(failure, tables, results, counts, tally, level)),
        broken=isinstance(failure, BrokenVerifier),
        tables=tuple(results),
        lengths=counts["lengths"],
        alphas=_alphas(source.alpha_context(), counts["lengths"], case.tree) if done else None,
        efficiency=_efficiency(case, source, counts) if done else None,
        declared_tv=_declared_tv(case, claim),
    )


def _findings(
    failure: Exception | None,
    tables: Sequence[Table],
    results: Sequence,
    counts: Counts,
    tally: AuditTally,
    level: float,
) -> list[Finding]:
    if failure is not None:
        return [Finding("contract" if isinstance(failure, BrokenVerifier) else "path", str(failure))]
    return find(tables, results, counts, tally.examples, level)


def _alphas(context: float, lengths: Ints, tree: Tree) -> Alphas:
    return Alphas(context, alpha_verified(lengths), alpha_drafted(lengths, tree.size), tree.depth)


def _declared_tv(case: Case, claim: Claim) -> float:
    """The total variation between the claimed law of a step's first token and the target's, over a few contexts."""
    contexts = case.contexts[:256]
    p, q = case.target.rows(contexts), case.draft.rows(contexts)
    claimed = claim.rows(p[:, None], q[:, None])[:, 0]
    return float(np.abs(claimed - p).sum(axis=1).mean() / 2.0)


def _efficiency(case: Case, source: Source, counts: Counts) -> Efficiency | None:
    """Against the standard rule on one chain: the closed form where p and q are fixed, else its run on the same drafts."""
    mean, error = mean_tokens(counts["lengths"])
    if case.is_pair:
        reference = float(expected_tokens(source.alpha_context(), case.gamma))
    elif counts["reference"].any():
        reference, reference_error = mean_tokens(counts["reference"])
        error += reference_error
    else:
        return None
    z = float(norm.isf(BUDGET / 2.0))
    return Efficiency(mean / reference, (mean - z * error) / reference, (mean + z * error) / reference)


def _offset(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The callback of a part, given what came before it."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
