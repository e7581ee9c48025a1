"""Subjects of an audit: a built-in rule, a user's verifier, or a decoder, each with its battery of cases.

A subject plans a case from its models alone, and counts its steps with the verifier."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from specsim import rules
from specsim.adapters._contract import Declared, Verifier, check_local
from specsim.auditing._cases.battery import DECLARED_VOCABULARY, LEVELS, Case, battery
from specsim.auditing._cases.decoder_battery import DecoderCase, decoder_battery
from specsim.auditing._cases.rows import case_of_pair, rows_of
from specsim.auditing._cases.shapes import ShapesCase, shape_cases
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally
from specsim.auditing._checks.decoder import DecoderSource, DecoderTally, Processing, plan_decoder_tables
from specsim.auditing._checks.outcomes import OutcomeTally, diagnostic_cases
from specsim.auditing._checks.shapes import ShapesTally, plan_shapes
from specsim.auditing._checks.tables import Plan, plan_case
from specsim.auditing._verifier.calls import TIMEOUT, ShapesSource, VerifierSource
from specsim.auditing._verifier.requests import Callee
from specsim.core._types import Floats, Ints
from specsim.models import Pair, chain
from specsim.rules import Rule
from specsim.simulation._counting import Tally, no_counts
from specsim.simulation._executors import Workers
from specsim.simulation._rows import model_rows, tile_parents
from specsim.simulation._sources import FixedPairSource, RowSource, Source, rule_verifier


class _Counted:
    """A subject with its cases. As many sources and tallies are cached: a case is counted in pieces."""

    cases: Any
    plan: Callable[[int, str], Plan]
    #: The limits that a verifier declares, and the names of the cases that it is not asked for this reason.
    limits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    _counter: Callable[..., tuple[Any, Any]]

    def plans(self, level: str) -> list[Plan]:
        """The plans of all cases."""
        return [self.plan(index, level) for index in range(len(self.cases))]

    def index(self, name: str) -> int:
        """The number of the case of that name. Raises ValueError for an unknown one."""
        return [case.name for case in self.cases].index(name)

    @cached_property
    def counter(self) -> Callable[..., tuple[Any, Any]]:
        """counter(name of a case, patience) -> (source of its steps, their tally)."""
        return lru_cache(maxsize=len(self.cases))(self._counter)

    def _case(self, name: str) -> Any:
        return next((case for case in self.cases if case.name == name), None)


@dataclass(frozen=True)
class RuleSubject(_Counted):
    """A built-in rule, through its fixed-pair kernel where p and q never change, else its row kernel.

    With a `pair` there is a case of it too. If `workers` are given they count the steps; the rule must then
    be in the registry."""

    rule: Rule
    threads: int
    workers: Workers | None = None
    pair: Pair | None = None
    timeout, device = TIMEOUT, "cpu"

    def __post_init__(self) -> None:
        check_local(self.rule)

    @property
    def name(self) -> str:
        return str(self.rule)

    @cached_property
    def cases(self) -> list[Case]:
        return battery(self.rule) + ([case_of_pair(self.pair, self.rule)] if self.pair is not None else [])

    def plan(self, index: int, level: str) -> Plan:
        case = self.cases[index]
        source, tally = self.counter(case.name)
        kernel = "fixed pair" if isinstance(source, FixedPairSource) else "rows"
        return plan_case(tally, kernel, case.rule_steps(level, self.rule), source.alpha_context())

    def _counter(self, name: str, patience: float = 1.0) -> tuple[Source, AuditTally]:
        case = self._case(name)
        tally = AuditTally(case, Claim(self.rule, case.tree))
        if case.is_pair:
            p, q = (np.asarray(model.row(()), dtype=np.float64) for model in (case.target, case.draft))
            return FixedPairSource(self.rule, p, q, case.tree), tally
        rows = model_rows(case.target, case.draft, case.tree, self.rule.leaf_rows)
        return RowSource(rows, rule_verifier(self.rule, case.tree)), tally


@dataclass(frozen=True)
class _FunctionSubject(_Counted):
    """A user's function. It runs on one thread, since it need not be thread-safe."""

    name: str
    callee: Callee
    timeout: float = TIMEOUT
    pair: Pair | None = None
    threads = 1

    @property
    def declared(self) -> Declared:
        return self.callee.declared

    @property
    def device(self) -> str:
        """Where the function's arrays are."""
        return self.declared.device


def verifier_steps(case: Case | ShapesCase, level: str) -> int:
    """How many steps `level` gives a case of a user's verifier, which gets whole rows; a multiple of 8.

    A case with longer rows has fewer steps, so that cases take about the same time."""
    allowed = int(case.weight * LEVELS[level].verifier_bytes) // case.step_bytes
    return max(8, min(LEVELS[level].verifier, allowed) // 8 * 8)


def _all_cases(declared: Declared) -> list[Case | ShapesCase]:
    if declared.rule:  # its law is computed row by row
        return [case for case in battery(declared) if case.is_pair and case.vocab_size <= DECLARED_VOCABULARY]
    return [*battery(declared), *shape_cases(declared)]


class VerifierSubject(_FunctionSubject):
    """A user's verifier; with a `pair` there is a case of it too."""

    @cached_property
    def cases(self) -> list[Case | ShapesCase]:
        own = [] if self.pair is None else [case_of_pair(self.pair, self.declared)]
        return [*_all_cases(self.declared), *own]

    @cached_property
    def rule(self) -> Rule | None:
        """The lossy rule that the verifier declares."""
        return rules.get(self.declared.rule) if self.declared.rule else None

    @cached_property
    def limits(self) -> tuple[str, ...]:  # type: ignore[override]
        asked = ((name, getattr(self.declared, name)) for name in ("vocab_size", "gamma", "batch"))
        return tuple(f"{name}={most}" for name, most in asked if most is not None)

    @cached_property
    def left_out(self) -> tuple[str, ...]:  # type: ignore[override]
        here = {case.name for case in self.cases}
        whole = _all_cases(replace(self.declared, vocab_size=None))
        return tuple(case.name for case in whole if case.name not in here)

    def plan(self, index: int, level: str) -> Plan:
        case = self.cases[index]
        steps = verifier_steps(case, level)
        if isinstance(case, ShapesCase):
            return plan_shapes(ShapesTally(case), steps)
        tally = AuditTally(case, Claim(self.rule, case.tree))
        return plan_case(tally, "rows", steps, rows_of(case).alpha_context())

    def _counter(self, name: str, patience: float = 1.0) -> tuple[VerifierSource, Tally]:
        case = self._case(name)
        if isinstance(case, ShapesCase):
            return ShapesSource(self.callee, case, self.timeout * patience), ShapesTally(case)
        diagnostic = case is None
        if diagnostic:
            case = next(case for case in diagnostic_cases(self.declared) if case.name == name)
        source = VerifierSource(self.callee, case, self.timeout * patience)
        if diagnostic:
            return source, OutcomeTally(case)
        plain = case.is_pair or self.declared.tree
        reference = None if plain else rule_verifier(rules.get("standard"), case.tree)
        return source, AuditTally(case, Claim(self.rule, case.tree), reference)


class DecoderSubject(_FunctionSubject):
    """A user's decoder: the whole loop, drafting included."""

    @cached_property
    def cases(self) -> list[DecoderCase]:
        return decoder_battery()

    def plan(self, index: int, level: str) -> Plan:
        case, processing = self.cases[index], Processing.of(self.declared)
        steps, tally = LEVELS[level].decoder, DecoderTally(case, processing)
        tables = plan_decoder_tables(case, processing, steps)
        return Plan(case, "sequences", steps, tables, no_counts(tally))

    def _counter(self, name: str, patience: float = 1.0) -> tuple[DecoderSource, DecoderTally]:
        case = self._case(name)
        source = DecoderSource(case, self.callee, self.timeout * patience)
        return source, DecoderTally(case, Processing.of(self.declared))


Subject = RuleSubject | VerifierSubject | DecoderSubject


def rule_function(rule: Rule) -> Verifier:
    """Make a verifier function of a built-in rule for chains. Raises ValueError for other rules."""
    if rule.claimed_on_trees or rule.leaf_rows:
        raise ValueError(f"{rule.name}: as a verifier of arrays only rules for chains can be called")

    def verify(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
        steps, gamma = draft_tokens.shape
        tokens, accepted = np.empty((gamma + 1, steps), dtype=np.int32), np.empty(steps, dtype=np.int64)
        u = rng.random((rule.uniforms(chain(gamma), p.shape[2]), steps))
        parents = tile_parents(chain(gamma), steps)
        rows = [np.ascontiguousarray(row) if row.flags.writeable else row.copy() for row in (p, q)]
        rule.rows(parents, draft_tokens.copy(), *rows, u, rule.array(), tokens, accepted)
        return tokens.T.astype(np.int64)

    verify.__qualname__ = str(rule)
    return verify


def function_subject(callee: Callee, name: str, timeout: float = TIMEOUT) -> VerifierSubject | DecoderSubject:
    """The subject of a user's function, a verifier or a decoder as it declares."""
    kind = DecoderSubject if callee.declared.decoder else VerifierSubject
    return kind(name, callee, timeout)
