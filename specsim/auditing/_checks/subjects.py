"""What is audited: a built-in rule, somebody's verifier, or a whole decoder, each with its battery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.stats import norm

from specsim import rules
from specsim.auditing._cases.battery import LEVELS, Case, battery
from specsim.auditing._cases.decoder_battery import DecoderCase, decoder_battery
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import TAIL_EDGES, AuditTally
from specsim.auditing._checks.decoder import DecoderSource, DecoderTally, Processing, plan_decoder_tables
from specsim.auditing._checks.tables import plan_tables
from specsim.auditing._checks.trial import Trial
from specsim.auditing._results import BUDGET, Alphas, Efficiency, Measures
from specsim.auditing._verifier.calls import TIMEOUT, Calls, verified
from specsim.auditing._verifier.contract import BrokenVerifier, Declared, NotADraftPath, Verifier
from specsim.core._accepted_lengths import alpha_drafted, alpha_verified, mean_tokens
from specsim.core._streams import Key
from specsim.core.distributions import Floats, Ints
from specsim.drafts import Tree, chain
from specsim.rules import Rule
from specsim.simulation._counting import Counts
from specsim.simulation._engine import model_rows
from specsim.simulation._executors import Workers
from specsim.simulation._sources import Batches, FixedPairSource, RowSource, Source, rule_verifier
from specsim.theory import expected_tokens

__all__ = [
    "DecoderSubject",
    "RuleSubject",
    "Subject",
    "VerifierSubject",
    "function_subject",
    "make_trial",
    "rule_function",
]


@dataclass(frozen=True)
class RuleSubject:
    """A built-in rule, through its fixed-pair kernel where p and q never change, else its row kernel.

    With `workers` they count, for which the rule must be in the registry.
    """

    rule: Rule
    threads: int
    workers: Workers | None = None

    @property
    def name(self) -> str:
        return str(self.rule)

    @cached_property
    def cases(self) -> list[Case]:
        return battery(self.rule)

    def trial(self, index: int, level: str) -> Trial:
        case = self.cases[index]
        trial = make_trial(
            case, self.source(case), self.tally(case), case.rule_steps(level, self.rule), self.threads
        )
        if self.workers is None:
            return trial
        return replace(trial, workers=self.workers, job=_CaseJob(rules.registered_spec(self.rule), index))

    def tally(self, case: Case) -> AuditTally:
        """What is counted of `case`."""
        return AuditTally(case, Claim(self.rule, case.tree))

    def source(self, case: Case) -> Source:
        """Where the steps of `case` come from."""
        if case.is_pair:
            p, q = (np.asarray(model.row(()), dtype=np.float64) for model in (case.target, case.draft))
            return FixedPairSource(self.rule, p, q, case.tree)
        rows = model_rows(case.target, case.draft, case.tree, self.rule.leaf_rows)
        return RowSource(rows, rule_verifier(self.rule, case.tree))


@dataclass(frozen=True)
class _CaseJob:
    """A case of a built-in rule as a worker gets it, a `specsim.simulation._executors.Job`."""

    rule: str
    index: int

    @cached_property
    def subject(self) -> RuleSubject:
        return RuleSubject(rules.get(self.rule), 1)

    def source(self) -> Source:
        return self.subject.source(self.subject.cases[self.index])

    def tally(self, source: Batches) -> AuditTally:
        return self.subject.tally(self.subject.cases[self.index])


@dataclass(frozen=True)
class VerifierSubject:
    """Somebody's function. Nobody promised that it is thread-safe, so it runs on one thread."""

    name: str
    function: Verifier
    declared: Declared
    timeout: float = TIMEOUT
    threads = 1

    @cached_property
    def cases(self) -> list[Case]:
        return battery(self.declared)

    def trial(self, index: int, level: str) -> Trial:
        case = self.cases[index]
        reference = None if case.is_pair else rule_verifier(rules.get("standard"), case.tree)
        if self.declared.tree:
            reference = None
        source = verified(self.function, self.declared, case, self.timeout)
        tally = AuditTally(case, Claim(None, case.tree), reference)
        return make_trial(case, source, tally, case.verifier_steps(level), 1, partial(_smallest, source))


@dataclass(frozen=True)
class DecoderSubject:
    """Somebody's whole loop, drafting included."""

    name: str
    function: Verifier
    declared: Declared
    timeout: float = TIMEOUT
    threads = 1

    @cached_property
    def cases(self) -> list[DecoderCase]:
        return decoder_battery()

    def trial(self, index: int, level: str) -> Trial:
        case, processing = self.cases[index], Processing.of(self.declared)
        steps = LEVELS[level].decoder
        tally = DecoderTally(case, processing)
        return Trial(
            case=case.name,
            purpose=case.purpose,
            kernel="sequences",
            vocab_size=case.target.vocab_size,
            tree=None,
            iid=False,
            positions=case.max_new_tokens,
            source=DecoderSource(case, self.function, self.timeout),
            tally=tally,
            examples=tally.examples,
            tables=plan_decoder_tables(case, processing, steps),
            singles=0,
            steps=steps,
            threads=1,
            declared_tv=0.0,
            measure=lambda counts: Measures(),
        )


Subject = RuleSubject | VerifierSubject | DecoderSubject


def rule_function(rule: Rule) -> Verifier:
    """A built-in rule for chains as a function of the plain contract. Raises ValueError for other rules."""
    if rule.claimed_on_trees or rule.leaf_rows:
        raise ValueError(f"{rule.name}: as a verifier of arrays only rules for chains can be called")

    def verify(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
        steps, gamma = draft_tokens.shape
        tokens, accepted = np.empty((gamma + 1, steps), dtype=np.int32), np.empty(steps, dtype=np.int64)
        u = rng.random((rule.uniforms(chain(gamma), p.shape[2]), steps))
        parents = np.broadcast_to(np.arange(gamma), (steps, gamma))
        rows = [np.ascontiguousarray(row) if row.flags.writeable else row.copy() for row in (p, q)]
        rule.rows(parents, draft_tokens.copy(), *rows, u, rule.array(), tokens, accepted)
        return tokens.T.astype(np.int64)

    verify.__qualname__ = str(rule)
    return verify


def function_subject(
    function: Verifier, name: str, promise: Declared, timeout: float = TIMEOUT
) -> VerifierSubject | DecoderSubject:
    """`function`, a verifier or a decoder as it declares."""
    kind = DecoderSubject if promise.decoder else VerifierSubject
    return kind(name, function, promise, timeout)


def make_trial(
    case: Case,
    source: Source,
    tally: AuditTally,
    steps: int,
    threads: int,
    smallest: Callable[[Key], int | None] = lambda key: None,
) -> Trial:
    return Trial(
        case=case.name,
        purpose=case.purpose,
        kernel="fixed pair" if isinstance(source, FixedPairSource) else "rows",
        vocab_size=case.target.vocab_size,
        tree=case.tree,
        iid=case.is_pair,
        positions=case.gamma + 1,
        source=source,
        tally=tally,
        examples=tally.examples,
        tables=plan_tables(case, tally.claim, steps),
        singles=(len(TAIL_EDGES) - 1) * (case.gamma + 1),
        steps=steps,
        threads=threads,
        declared_tv=_declared_tv(case, tally.claim),
        measure=partial(_measure, case, source.alpha_context()),
        smallest=smallest,
    )


def _smallest(source: RowSource, key: Key) -> int | None:
    """The fewest rows of a call, of some powers of two, that break the verifier from the first step on.

    None for a verifier of trees, which is called step by step, and where 4,096 do not.
    """
    assert isinstance(source.verify, Calls)
    declared = source.verify.declared
    if declared.tree:
        return None
    for steps in (2**k for k in range(13)):
        try:
            for _ in source.batches(key, 0, steps):
                pass
        except (BrokenVerifier, NotADraftPath):
            return source.verify.rows_of_a_call(steps)
    return None


# --- what is measured beside the tests -------------------------------------------------------------------


def _measure(case: Case, alpha_context: float, counts: Counts) -> Measures:
    alphas = None if case.uneven else _alphas(alpha_context, counts["lengths"], case.tree)
    return Measures(alphas, _efficiency(case, alpha_context, counts))


def _alphas(context: float, lengths: Ints, tree: Tree) -> Alphas:
    return Alphas(context, alpha_verified(lengths), alpha_drafted(lengths, tree.size), tree.depth)


def _efficiency(case: Case, alpha_context: float, counts: Counts) -> Efficiency | None:
    """Against the standard rule on one chain: the closed form where p and q are fixed, else its run on the same drafts."""
    mean, error = mean_tokens(counts["lengths"])
    if case.is_pair:
        drafted = range(case.gamma + 1) if case.uneven else [case.gamma]
        reference = float(
            np.mean([expected_tokens(alpha_context, gamma) if gamma else 1.0 for gamma in drafted])
        )
    elif counts["reference"].any():
        reference, reference_error = mean_tokens(counts["reference"])
        error += reference_error
    else:
        return None
    z = float(norm.isf(BUDGET / 2.0))
    return Efficiency(mean / reference, (mean - z * error) / reference, (mean + z * error) / reference)


def _declared_tv(case: Case, claim: Claim) -> float:
    """The total variation between the claimed law of a step's first token and the target's, over a few contexts."""
    if claim.lossless:
        return 0.0
    contexts = case.contexts[:256]
    p, q = case.target.rows(contexts), case.draft.rows(contexts)
    claimed = claim.rows(p[:, None], q[:, None])[:, 0]
    return float(np.abs(claimed - p).sum(axis=1).mean() / 2.0)
