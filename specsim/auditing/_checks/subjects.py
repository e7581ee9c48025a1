"""Subjects of an audit: a built-in rule, a user's verifier, or a decoder, each with its battery of cases.

A subject plans a case from its models alone, and counts spans of its steps with the verifier. A function
given by name may hang or crash, so it runs in a child process."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from specsim import adapters, rules
from specsim.adapters import _contract as contract
from specsim.auditing._cases.battery import (
    DECLARED_VOCABULARY,
    LEVELS,
    Case,
    DecoderCase,
    battery,
    decoder_battery,
)
from specsim.auditing._cases.rows import case_of_pair, rows_of
from specsim.auditing._cases.shapes import ShapesCase, shape_cases
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally, OutcomeTally, diagnostic_cases
from specsim.auditing._checks.decoder import DecoderSource, DecoderTally, Processing, plan_decoder_tables
from specsim.auditing._checks.shapes import ShapesTally, plan_shapes
from specsim.auditing._checks.tables import Plan, plan_case
from specsim.auditing._results.audit import IRREPRODUCIBLE
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.calls import TIMEOUT, ShapesSource, VerifierSource
from specsim.auditing._verifier.child import Child, Children
from specsim.auditing._verifier.local import Local
from specsim.auditing._verifier.origin import Origin
from specsim.auditing._verifier.requests import Callee
from specsim.core._progress import Progress, silent
from specsim.core._streams import Key
from specsim.core._types import Floats, Ints, suggestion
from specsim.models import Pair, chain
from specsim.simulation import _counting as counting
from specsim.simulation._executors import Workers
from specsim.simulation._rows import model_rows, tile_parents
from specsim.simulation._sources import FixedPairSource, RowSource, model_source, rule_verifier

#: Processes of a verifier at most: each has a copy of all that it imports, and what draws and counts for them
#: keeps few more busy.
MOST_PROCESSES = 4


class _Counted:
    """A subject with its cases; as many sources and tallies are cached, since a case is counted in pieces.
    The `accelerator` is that of a user's arrays, if any; `children` if several processes may count."""

    cases: Any
    plan: Callable[[int, str], Plan]
    reference: str
    #: The limits that a verifier declares, and the names of the cases that it is not asked for this reason.
    limits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    origin: Origin | None = None
    accelerator: Device | None = None
    children: Children | None = None
    _counter: Callable[..., tuple[Any, Any]]

    def plans(self, level: str, cases: Sequence[str] | None = None) -> list[Plan]:
        """The plans of the cases of these names, by default all for which the level has enough steps."""
        if isinstance(cases, str):
            raise TypeError(f"cases: expected a sequence of names, got the text {cases!r}")
        names = [case.name for case in self.cases]
        shaped = [one for one in self.cases if isinstance(one, ShapesCase) and one.together]
        # they have too few steps for each of the shapes of a server
        few = [one.name for one in shaped if verifier_steps(one, level) < one.round_steps]
        chosen = [name for name in names if name not in few] if cases is None else list(cases)
        unknown = [name for name in chosen if name not in names]
        if unknown or not chosen:
            said = f"{unknown[0]!r} is not a case of the audit" if unknown else "empty"
            raise ValueError(f"cases (--case): {said}; choose from {', '.join(map(repr, names))}")
        return [self.plan(index, level) for index, name in enumerate(names) if name in chosen]

    @cached_property
    def counter(self) -> Callable[..., tuple[Any, Any]]:
        """counter(name of a case, patience) -> (source of its steps, their tally)."""
        return lru_cache(maxsize=len(self.cases))(self._counter)

    def case(self, name: str) -> Any:
        return next((case for case in self.cases if case.name == name), None)


@dataclass(frozen=True)
class RuleSubject(_Counted):
    """A built-in rule, by its fixed-pair kernel where p and q never change; `workers` may count its steps."""

    rule: rules.Rule
    threads: int
    workers: Workers | None = None
    pair: Pair | None = None
    timeout, device = TIMEOUT, "cpu"

    def __post_init__(self) -> None:
        contract.check_local(self.rule)

    @property
    def name(self) -> str:
        return str(self.rule)

    @cached_property
    def reference(self) -> str:  # type: ignore[override]
        return rules.registered_spec(self.rule)

    @cached_property
    def cases(self) -> list[Case]:
        return battery(self.rule) + ([case_of_pair(self.pair, self.rule)] if self.pair is not None else [])

    def plan(self, index: int, level: str) -> Plan:
        case = self.cases[index]
        source, tally = self.counter(case.name)
        kernel = "fixed pair" if isinstance(source, FixedPairSource) else "rows"
        return plan_case(tally, kernel, case.rule_steps(level, self.rule), source.alpha_context())

    def _counter(self, name: str, patience: float = 1.0) -> tuple[FixedPairSource | RowSource, AuditTally]:
        case = self.case(name)
        tally = AuditTally(case, Claim(self.rule, case.tree))
        if case.is_pair:
            p, q = case.pmfs
            return FixedPairSource(self.rule, p, q, case.tree), tally
        rows = model_rows(case.target, case.draft, case.tree, self.rule.leaf_rows)
        if tally.claim.lossless:
            return model_source(self.rule, rows, with_rows=True), tally
        return RowSource(rows, rule_verifier(self.rule, case.tree)), tally


@dataclass(frozen=True)
class _FunctionSubject(_Counted):
    """A user's function. It runs on one thread of a process, since it need not be thread-safe."""

    name: str
    callee: Callee
    timeout: float = TIMEOUT
    pair: Pair | None = None
    workers: Workers | None = None

    @property
    def declared(self) -> contract.Declared:
        return self.callee.declared

    @property
    def reference(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def origin(self) -> Origin:  # type: ignore[override]
        return self.callee.origin

    @property
    def device(self) -> str:
        """Where the function's arrays are, as it declares."""
        return self.declared.device

    @property
    def accelerator(self) -> Device | None:  # type: ignore[override]
        return None if self.device == "cpu" else self.callee.device

    @property
    def children(self) -> Children | None:  # type: ignore[override]
        # on a device there is one, which has the device to itself
        return self.callee if isinstance(self.callee, Children) and self.device == "cpu" else None

    @property
    def threads(self) -> int:
        """The processes that may count at a time."""
        return 1 if self.children is None else self.children.most


def verifier_steps(case: Case | ShapesCase, level: str) -> int:
    """The steps, a multiple of 8, that `level` gives a case of a user's verifier: fewer of longer rows."""
    allowed = int(case.weight * LEVELS[level].verifier_bytes) // case.step_bytes
    most = max(int(min(case.weight, 1.0) * LEVELS[level].verifier), LEVELS["smoke"].verifier)
    return max(8, min(most, allowed) // 8 * 8)


def _all_cases(promise: contract.Declared) -> list[Case | ShapesCase]:
    if promise.rule:  # its law is computed row by row
        return [case for case in battery(promise) if case.is_pair and case.vocab_size <= DECLARED_VOCABULARY]
    return [*battery(promise), *shape_cases(promise)]


class VerifierSubject(_FunctionSubject):
    """A user's verifier; with a `pair` there is a case of it too."""

    @cached_property
    def cases(self) -> list[Case | ShapesCase]:
        own = [] if self.pair is None else [case_of_pair(self.pair, self.declared)]
        return [*_all_cases(self.declared), *own]

    @cached_property
    def diagnostic_cases(self) -> list[Case]:
        return [case for further in (False, True) for case in diagnostic_cases(self.declared, further)]

    @cached_property
    def rule(self) -> rules.Rule | None:
        return rules.get(self.declared.rule) if self.declared.rule else None

    @cached_property
    def limits(self) -> tuple[str, ...]:  # type: ignore[override]
        asked = ((name, getattr(self.declared, name)) for name in ("vocab_size", "gamma", "batch"))
        limits = tuple(f"{name}={most}" for name, most in asked if most is not None)
        return limits if self.declared.reproducible else (*limits, IRREPRODUCIBLE)

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

    def _counter(self, name: str, patience: float = 1.0) -> tuple[VerifierSource, counting.Tally]:
        case = self.case(name)
        if isinstance(case, ShapesCase):
            return ShapesSource(self.callee, case, self.timeout * patience), ShapesTally(case)
        if case is None:
            case = next(case for case in self.diagnostic_cases if case.name == name)
            return VerifierSource(self.callee, case, self.timeout * patience), OutcomeTally(case)
        plain = case.is_pair or self.declared.tree
        reference = None if plain else rule_verifier(rules.get("standard"), case.tree)
        tally = AuditTally(case, Claim(self.rule, case.tree), reference)
        return VerifierSource(self.callee, case, self.timeout * patience), tally


class DecoderSubject(_FunctionSubject):
    """A user's decoder: the whole loop, drafting included."""

    @cached_property
    def cases(self) -> list[DecoderCase]:
        return decoder_battery()

    def plan(self, index: int, level: str) -> Plan:
        case, processing = self.cases[index], Processing.of(self.declared)
        steps, tally = LEVELS[level].decoder, DecoderTally(case, processing)
        tables = plan_decoder_tables(case, processing, steps)
        return Plan(case, "sequences", steps, tables, counting.no_counts(tally))

    def _counter(self, name: str, patience: float = 1.0) -> tuple[DecoderSource, DecoderTally]:
        case = self.case(name)
        source = DecoderSource(case, self.callee, self.timeout * patience)
        return source, DecoderTally(case, Processing.of(self.declared))


Subject = RuleSubject | VerifierSubject | DecoderSubject


def rule_function(rule: rules.Rule) -> contract.Verifier:
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


def function_subject(
    callee: Callee, name: str, timeout: float = TIMEOUT, workers: Workers | None = None
) -> VerifierSubject | DecoderSubject:
    kind = DecoderSubject if callee.declared.decoder else VerifierSubject
    return kind(name, callee, timeout, workers=workers)


@contextmanager
def open_subject(
    verifier: str | rules.Rule | contract.Verifier,
    threads: int,
    timeout: float,
    workers: Workers | None = None,
    device: str | None = None,
) -> Iterator[Subject]:
    """Open `verifier`: a rule or its name, package.module:function, or a function; else TypeError. ValueError
    for an unknown name, a missing device, and a function or a device together with workers."""
    if verifier == "":
        raise ValueError("verifier: empty; give a rule's name, or package.module:function")
    by_rule = isinstance(verifier, rules.Rule) or (isinstance(verifier, str) and is_rule(verifier))
    if device is not None and workers is not None:
        raise ValueError(
            "device: workers put arrays where the verifier declares; declare device=… there, or leave "
            "executor out"
        )
    if isinstance(verifier, str) and not by_rule:
        most = 1 if workers else min(threads, MOST_PROCESSES)
        with closing(Child(verifier, device) if most == 1 else Children(verifier, device, most)) as child:
            yield function_subject(child, verifier, timeout, workers)
    elif isinstance(verifier, str | rules.Rule):
        if device not in (None, "cpu"):
            raise ValueError(
                f"device: {device!r} for a built-in rule, which is counted on the CPU here; specsim.simulate "
                "counts its steps on a GPU"
            )
        subject = RuleSubject(rules.get(verifier), threads, workers)
        if workers is not None:
            _ = subject.reference  # raises for a rule that workers do not have
        yield subject
    elif not callable(verifier):
        raise TypeError(f"verifier: expected a rule's name or a function, got {type(verifier).__name__}")
    elif workers is not None:
        raise ValueError("executor: a function cannot go to workers; give its name, package.module:function")
    else:
        name = f"{getattr(verifier, '__module__', '?')}:{getattr(verifier, '__qualname__', repr(verifier))}"
        local = Local(verifier, contract.on_device(contract.declared(verifier), device))
        _ = local.origin  # of the file that is audited, whatever becomes of it
        yield function_subject(local, name, timeout)


def with_pair(subject: Subject, pair: Any) -> Subject:
    """The subject with a case of `pair` too. Raises ValueError where it cannot have one."""
    if isinstance(subject, DecoderSubject):
        raise ValueError("pair: a decoder is audited with the models of its cases; leave pair out")
    if subject.workers is not None:
        raise ValueError("pair: cannot be combined with an executor; leave one of them out")
    try:
        given = pair if isinstance(pair, Pair) else Pair(*pair)
    except TypeError:
        raise ValueError("pair: expected a Pair, or a target and a draft") from None
    found = replace(subject, pair=given)
    _ = found.cases  # raises unless it is a pair
    return found


def planned_subject(name: str, promise: contract.Declared | None, threads: int = 1) -> Subject:
    """The subject of a name, for planning and judging only: a rule, or a function that is not loaded."""
    if promise is None:
        return RuleSubject(rules.get(name), threads)
    not_loaded: Any = None
    return function_subject(Local(not_loaded, promise), name)


# Count spans of its steps.


@dataclass(frozen=True)
class Span:
    """Steps [first, first + steps) of a case; `patience` multiplies the time-out, and changes no count."""

    case: str
    key: Key
    first: int
    steps: int
    patience: float = field(default=1.0, compare=False)


def count_span(subject: Subject, asked: Span, progress: Progress = silent) -> counting.Partial:
    """Count the steps of a span. Raises BrokenVerifier or NotADraftPath if one breaks the contract."""
    source, tally = subject.counter(asked.case, asked.patience)
    if isinstance(subject, VerifierSubject):
        parts = counting.count_in_turn(source, tally, asked.key, asked.first, asked.steps)
    else:
        threads = subject.threads if isinstance(subject, RuleSubject) else 1
        interval = asked.first, asked.first + asked.steps
        parts = counting.count_chunks(source, tally, asked.key, [interval], threads=threads)
    return counting.add_up(parts, tally, asked.steps, progress)


def try_span(subject: Subject, asked: Span, progress: Progress = silent) -> counting.Partial:
    """Count and time the steps of a span; a broken contract is a failure of the result."""
    started = time.perf_counter()
    try:
        found = count_span(subject, asked, progress)
    except contract.NotADraftPath as error:
        found = counting.Partial({}, failures=(counting.Failure("path", str(error)),))
    except contract.BrokenVerifier as error:
        where, details = "", error.details
        if not isinstance(error, contract.LostVerifier):
            where, details = _smallest_call(subject, asked, details)
        found = counting.Partial({}, failures=(counting.Failure("contract", f"{error}{where}", details),))
    return replace(found, seconds=time.perf_counter() - started)


def _smallest_call(subject: Subject, asked: Span, details: str) -> tuple[str, str]:
    """A sentence with the fewest rows of a call, a power of two, that break it, and the traceback there."""
    source: Any = subject.counter(asked.case, asked.patience)[0]
    if not isinstance(subject, VerifierSubject) or subject.declared.tree:
        return "", details
    for steps in (2**k for k in range(13)):
        try:
            for _ in source.batches(asked.key, 0, steps):
                pass
        except (contract.BrokenVerifier, contract.NotADraftPath) as error:
            rows = source.rows_of_a_call(steps)
            said = f"; a call of {rows} row{'s' if rows > 1 else ''} shows it"
            return said, getattr(error, "details", "") or details
    return "", details


# Names of what is audited.


def is_rule(verifier: str) -> bool:
    """Whether this is the name of a rule, else of an engine or function. Raises ValueError for others."""
    name, colon, function = verifier.partition(":")
    if function.startswith("//"):
        raise ValueError(f"verifier: {verifier} is a server; give planted, or use specsim audit engine")
    if name.endswith(".py"):
        raise ValueError(
            f"verifier: {verifier!r} names a file; give its module and the function, as "
            f"{Path(name).stem}:{function or 'verify'}, in the folder of the file"
        )
    if adapters.is_engine(verifier):
        return False
    if colon or name in rules.names():
        return name in rules.names()
    module, dot, function = name.rpartition(".")
    if dot:
        raise ValueError(
            f"verifier: {name!r} is a module, or a function of one; a function is written with a colon, as "
            f"{module}:{function}"
        )
    meant = suggestion(name, [*rules.names(), *adapters.names()])
    raise ValueError(
        f"unknown rule or engine {name!r}{meant} See 'specsim list rules' and 'specsim list engines'; "
        f"a function of {name}.py is written {name}:FUNCTION"
    )
