"""`check_metrics`: tests the statements one after the other, and derives what follows if all can hold."""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

from specsim.core._tables import Line, Piece, Shown, Table, as_dict
from specsim.core._types import check_known, checked
from specsim.core._verdicts import Check as Outcome
from specsim.served import _statements
from specsim.served._feasible import CLOSE, COUNTS, LATENCIES, Program, Range, Value, number, plus, read
from specsim.served._meanings import SENTENCES, Numbers, answers, meanings
from specsim.served._statements import ACCEPTED, DEFINITIONS, DRAFTED, STEPS, Definition, reported, statements
from specsim.theory import expected_tokens

#: The order in which numbers are dropped in the search for a conflict, after the rates by position.
ORDER = (
    *("batch", "throughput", *LATENCIES),
    *("speedup", "step_time", "draft_time", "target_time", "acceptance_rate", "tokens_per_step"),
    *("gamma", "bonus", "drafted", "accepted", "emitted", "steps", "requests"),
)


@dataclass(frozen=True)
class Check:
    """One statement, and the ranges of its sides under the reported numbers and the statements before it."""

    name: str
    statement: str
    holds: bool
    left: Range
    right: Range
    slack: float  #: the room between the sides, in their unit; if negative, how far apart they are
    note: str = ""


class Implied(NamedTuple):
    """The range of a number that follows from the reported ones."""

    name: str
    value: Range
    note: str = ""


@dataclass(frozen=True, eq=False)
class MetricsCheck(Shown):
    """The result of `check_metrics`."""

    engine: str  #: a key of `DEFINITIONS`
    reported: Mapping[str, str]  #: the given numbers as text
    per_step: bool  #: whether the sides of `checks` are per step; else they are of the whole run
    checks: tuple[Check, ...]  #: the statements about the given numbers
    conflict: tuple[str, ...]  #: a minimal set of numbers that contradict each other
    implied: tuple[Implied, ...]  #: ranges of other numbers; empty if impossible
    remarks: tuple[str, ...]  #: assumptions, and numbers that were not checked; they exclude nothing
    fits: tuple[str, ...] = ()  #: if impossible, other meanings of a number with which every statement holds
    then: tuple[Implied, ...] = ()  #: what follows of the first of them
    answers: tuple[str, ...] = ()  #: what limits, where speculation breaks even, and the best γ, or of `then`

    long, listed = 7, "checks"

    @property
    def possible(self) -> bool:
        """Whether every statement can hold."""
        return all(check.holds for check in self.checks)

    @property
    def exit_code(self) -> int:
        """0 if possible, else 1."""
        return 0 if self.possible else 1

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        if self.possible:
            count = len(self.checks)
            found = f"{count} statement{'s hold' if count > 1 else ' holds'}"
            return f"possible: {found if count else 'nothing to compare'}"
        wrong = next(check for check in self.checks if not check.holds)
        sides = f", {wrong.left} against {wrong.right}" * (wrong.left != (0, math.inf))
        conflict = ", ".join(self.conflict)
        return f"impossible: {wrong.statement} fails{sides}; not all of these can be true: {conflict}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON; a missing bound is None."""
        return as_dict(
            self,
            "possible",
            "verdict",
            definition=DEFINITIONS[self.engine],
            checks=[vars(one) | {"left": list(one.left), "right": list(one.right)} for one in self.checks],
            implied=[item._asdict() | {"value": list(item.value)} for item in self.implied],
            then=[item._asdict() | {"value": list(item.value)} for item in self.then],
        )

    def parts(self) -> Iterator[Piece]:
        yield Line(self.verdict, f"bold {'green' if self.possible else 'red'}")
        yield from (f"all statements hold if {meaning}" for meaning in self.fits[:1])
        yield from (f"they also hold if {meaning}" for meaning in self.fits[1:])
        yield from self.answers * self.possible
        rows = [
            (c.statement, "holds" if c.holds else "fails", c.left, c.right, number(float(f"{c.slack:.4g}")))
            for c in self.checks
        ]
        wrong = [i for i, check in enumerate(self.checks) if not check.holds]
        unit = ", for each step" if self.per_step else ""
        if rows:
            yield Table(("statement", "", f"left{unit}", "right", "slack"), rows, bold=wrong, style="dim")
        if self.implied:
            yield Table(("it follows", "", ""), self.implied)
        if self.then:
            yield Table(("if the first is meant", "", ""), self.then)
        yield from self.answers * (not self.possible)
        yield from (Line(f"{check.name}: {check.note}", "dim") for check in self.checks if check.note)
        yield from (Line(f"remark: {remark}", "dim") for remark in self.remarks)

    def brief(self) -> list[Piece]:
        count = len(self.checks)
        return [*super().brief(), f"{count} statement{'s' * (count != 1)}, and remarks: --verbose"]

    def outcomes(self) -> Iterator[Outcome]:
        """A test case for each statement."""
        for one in self.checks:
            failed = "" if one.holds else f"{one.left} against {one.right}"
            yield Outcome(one.statement, "failure" * bool(failed), failed, one.note)


@checked
def check_metrics(
    *,
    engine: str = "plain",
    gamma: Value | None = None,
    acceptance_rate: Value | None = None,
    tokens_per_step: Value | None = None,
    accepted: Value | None = None,
    drafted: Value | None = None,
    emitted: Value | None = None,
    steps: Value | None = None,
    bonus: Value | None = None,
    by_position: str | Sequence[Value] | None = None,
    draft_time: Value | None = None,
    target_time: Value | None = None,
    step_time: Value | None = None,
    speedup: Value | None = None,
    requests: Value | None = None,
    itl: Value | None = None,
    tpot: Value | None = None,
    ttft: Value | None = None,
    latency: Value | None = None,
    throughput: Value | None = None,
    batch: Value | None = None,
    rounding: float = 0.5,
) -> MetricsCheck:
    """Check whether the numbers reported of one run of speculative decoding on chains can all be true.

    Numbers are impossible only if no run has them. The reverse nearly holds: counts need not be whole above
    10 million, and differences below 1e-10 of the largest count are missed. A number given as text means the
    values that round to it; an int is exact, a float exact up to 1e-9.

    Parameters
    ----------
    engine : str
        How the numbers are defined, a key of `DEFINITIONS`.
    gamma : int
        Drafted tokens per step.
    acceptance_rate, tokens_per_step, speedup : number or str
        As the engine defines them; the speed-up is relative to one target pass per token.
    accepted, drafted, emitted, steps, bonus : int
        Counts of the run; `bonus` is the number of steps that accepted their whole draft.
    by_position : sequence or str
        For each of the γ positions the share of all steps that accepted it, as numbers or as "0.8, 0.6".
    draft_time, target_time, step_time : number or str
        Of one drafted token, one pass of the target, and one step, in one unit.
    requests : int
        Texts, which may end within their last step; without it no emitted token was dropped.
    itl, tpot : number or str
        Milliseconds between two answers of a text, hence of one step, and milliseconds per token.
    ttft, latency : number or str
        Milliseconds to the first token of a text and to its last, on average; with `requests` and `emitted`.
    throughput, batch : number or str
        Tokens per second of all requests, and how many are served at a time.
    rounding : float
        The error of a printed number in units of its last digit, in (0, 1]; 1 for truncated digits.

    Returns
    -------
    MetricsCheck

    Raises
    ------
    ValueError
        For an unknown engine, no numbers, or a value that is not a number of its kind.

    Examples
    --------
    >>> found = check_metrics(emitted=30, accepted=20, steps=7)
    >>> found.possible, found.verdict
    (False, 'impossible: emitted = accepted + steps fails, 30 against 27;
     not all of these can be true: accepted 20, emitted 30, steps 7')
    >>> check_metrics(engine="vllm", accepted=20, steps=7, tokens_per_step="3.86").possible
    True
    """
    numbers = locals()
    check_known("engine", engine, [*DEFINITIONS])
    if not 0 < rounding <= 1:
        raise ValueError(f"rounding: {rounding} is outside (0, 1]; give units of the last digit")
    texts = _texts(numbers)
    given = {
        name: read("by_position" if name.startswith("position") else name, value, rounding)
        for name, value in texts.items()
    }
    if positions := sum(name.startswith("position") for name in given):
        length = given.setdefault("gamma", Range(positions, positions))
        if length.low != positions:
            raise ValueError(f"by_position: {positions} rates for gamma {length}; give one a position")
    for name in ("draft_time", "step_time"):
        if name in given and "target_time" not in given:
            raise ValueError(f"{name}: means nothing alone; give target_time too, since their ratio counts")

    definition = DEFINITIONS[engine]
    checks, program = _test_statements(given, definition)
    possible = all(check.holds for check in checks)
    conflict = [] if possible else _conflict(given, definition)
    others = [] if possible else meanings(given, definition, {one.split()[0] for one in conflict}, _feasible)
    meant = (given, definition) if possible else others[0][1:] if others else None
    follows = _implied(*meant, program if possible else _test_statements(*meant)[1]) if meant else ()
    values = {item.name: item.value for item in follows}
    return MetricsCheck(
        engine=engine,
        reported={name: str(value) for name, value in texts.items()},
        per_step="steps" in program.unit,
        checks=checks,
        conflict=tuple(f"{name.replace('_', ' ')} {texts.get(name, given[name])}" for name in conflict),
        implied=follows * possible,
        remarks=tuple(_remarks(given, definition, values if possible else {})),
        fits=tuple(text for text, *_ in others),
        then=follows * (not possible),
        answers=tuple(answers(*meant, values)) if meant else (),
    )


def _texts(numbers: Mapping[str, Any]) -> dict[str, Value]:
    """The given numbers by name, with one entry for each position."""
    rates = () if numbers["by_position"] is None else numbers["by_position"]
    rates = rates.split(",") if isinstance(rates, str) else list(rates)
    if not all(isinstance(rate, str | Real | Range) for rate in rates):
        raise TypeError("by_position: has values of another kind; give numbers, as printed, one a position")
    found: dict[str, Value] = {f"position {i}": rate for i, rate in enumerate(rates, 1)}
    found |= {name: numbers[name] for name in ORDER if numbers[name] is not None}
    if not found.keys() - {"gamma", "requests"}:
        raise ValueError("numbers: nothing to check; give at least one that is reported, such as accepted=20")
    return found


def _test_statements(given: Mapping[str, Range], definition: Definition) -> tuple[tuple[Check, ...], Program]:
    """Test every statement: the checks, and the program with the statements that can hold."""
    program = _program(given, definition)
    checks: dict[str, Check] = {}
    for statement in statements(given, definition):
        fine = all(check.holds for check in checks.values())
        if statement.where and not fine:
            continue  # what defines its unknowns may fail for the same reason
        program.keep(*statement.where)
        earlier = copy(program)
        program.keep(*statement.bounds, unless=statement.unless)
        holds = program.feasible()
        # a later failure may follow from the first one; it is reported only if it is about a given number
        if (fine and not holds) or any(name in given for name in statement.about):
            check = _check(statement, earlier, holds)
            shown = checks.get(statement.name)
            if check is not None and (shown is None or check.slack < shown.slack):
                checks[statement.name] = check
        program = program if holds else earlier
    broken = _broken_length(given, definition, program)
    if broken and all(check.holds for check in checks.values()):
        whole, note = Range(math.floor(broken.low), math.ceil(broken.high)), "every draft has γ tokens"
        text, gap = "drafted per step = γ, a whole number", broken.low - whole.high
        checks["draft length"] = Check("draft length", text, False, broken, whole, gap, note)
    return tuple(checks.values()), program


def _broken_length(given: Mapping[str, Range], definition: Definition, program: Program) -> Range | None:
    """The drafted tokens per step where every draft has as many, and no whole number is possible."""
    if not definition.constant or "gamma" in given or "requests" in given or not program.feasible():
        return None
    length = program.range(DRAFTED, STEPS)
    whole = length.high == math.inf or math.floor(length.high + CLOSE) >= length.low - CLOSE
    return None if whole else length


def _program(given: Mapping[str, Range], definition: Definition) -> Program:
    program = Program(max((given[name].low for name in (*COUNTS, "requests") if name in given), default=0.0))
    program.keep(*reported(given, definition))
    return program


def _check(statement: _statements.Statement, program: Program, holds: bool) -> Check | None:
    """The ranges of the two sides; None if no reported number could have made the statement fail."""
    over = statement.over
    left = program.range(statement.left, over)
    floor = -math.inf if statement.low is None else program.least(statement.low, over)
    ceiling = math.inf if statement.high is None else program.most(statement.high, over)
    if holds and not (left.low > 0 and ceiling < math.inf) and not (floor > 0 and left.high < math.inf):
        return None
    if statement.low is None and statement.high is not None:
        floor = program.least(statement.high, over)
    rooms = [
        [0.0 - program.least(one, over) for one in forms] for forms in (statement.bounds, statement.unless)
    ]
    slack = max(min(room) for room in rooms if room)
    slack = min(slack, 0.0) if not holds or abs(slack) <= 2 * program.error else slack
    note = statement.note if holds or slack < 0 else "no whole counts are between"
    return Check(statement.name, statement.text, holds, left, Range(floor, ceiling), slack, note)


def _conflict(given: Mapping[str, Range], definition: Definition) -> list[str]:
    """Names of a minimal set of numbers that cannot all be true."""
    kept = dict(given)
    for name in given:
        fewer = {other: value for other, value in kept.items() if other != name}
        if name != "requests" and not _feasible(fewer, definition):
            kept = fewer
    return [name for name in kept if name != "requests"]


def _feasible(given: Mapping[str, Range], definition: Definition) -> bool:
    """Whether the statements can hold together."""
    program = _program(given, definition)
    for statement in statements(given, definition):
        program.keep(*statement.where, *statement.bounds, unless=statement.unless)
    return program.feasible() and not _broken_length(given, definition, program)


def _implied(given: Mapping[str, Range], definition: Definition, program: Program) -> tuple[Implied, ...]:
    """The ranges of numbers that were not reported, where they are bounded."""
    found, steps = [], program.range(STEPS)
    free = "gamma" not in given and steps.low <= 1 < steps.high  # all tokens may be of one step
    for name, form, over, note in (
        ("α drafted", ACCEPTED, DRAFTED, "accepted before a rejection / drafted"),
        ("α verified", ACCEPTED, _statements.TESTED, "the same / (that + rejecting steps)"),
        ("tokens per step", plus(ACCEPTED, STEPS), STEPS, "1 + the same / steps"),
        ("drafted per step", DRAFTED, STEPS, ""),
    ):
        value = program.range(form, over) if program.feasible(over) else Range(0, math.inf)
        trivial = value == (0, 1) if name[0] == "α" else free
        if value.high < math.inf and not trivial:
            found.append(Implied(name, value, note))
    if "one" in program.unit:
        for name in COUNTS:
            value = program.range(_statements.count_of(name, definition))
            if name not in given and all(map(math.isfinite, value)):
                low, high = math.ceil(value.low - program.error), math.floor(value.high + program.error)
                found.append(Implied(name, Range(low, high)))
    tokens = program.range(plus(ACCEPTED, STEPS), STEPS)
    if "itl" in given and "tpot" not in given and tokens.high < math.inf:
        each = Range(given["itl"].low / tokens.high, given["itl"].high / tokens.low)
        found.append(Implied("TPOT", each, "ITL / tokens per step"))
    if {"tpot", "throughput"} <= given.keys() and "batch" not in given:
        least = given["tpot"].low * given["throughput"].low / 1e3
        found.append(Implied("batch", Range(least, math.inf), "throughput × TPOT / 1000"))
    cost, text, _ = _statements.least_cost(given)
    fastest = program.most(plus(ACCEPTED, STEPS), cost)
    if fastest < math.inf and not free:
        found.append(Implied("speed-up, at most", Range(fastest, fastest), text))
    return tuple(found)


def _remarks(given: Numbers, definition: Definition, values: Numbers) -> Iterator[str]:
    """What was not checked, and where the i.i.d. formula gives other tokens per step than were reported."""
    if "acceptance_rate" in given and definition.acceptance_rate == _statements.NOT_KNOWN:
        yield "acceptance rate: was not compared, since the engine's definition is not known"
    few = {"emitted", "accepted"} <= given.keys() and given["emitted"].high < given["accepted"].low
    if few and not definition.independent:
        yield "emitted: fewer than accepted; does accepted count tests behind a rejection (--engine vllm-v0)?"
    if "emitted" in given and definition.outside != "none" and "requests" not in given:
        yield "emitted: was not compared, since it has tokens of uncounted steps; give requests"
    if "gamma" not in given or "tokens per step" not in values:
        return
    gamma, tokens = int(given["gamma"].low), values["tokens per step"]
    for name, why in SENTENCES["formula"].items():
        alpha = values.get(name, Range(0, 1))
        low, high = (float(expected_tokens(min(max(end, 0.0), 1.0), gamma)) for end in alpha)
        known = name != "α drafted" or "acceptance_rate" in given
        if known and (high < tokens.low - 1e-6 or low > tokens.high + 1e-6):
            instead = f"{Range(low, high)} tokens per step, not {tokens}"
            yield f"i.i.d. formula: with {name} {alpha} it gives {instead}; no contradiction: {why}"
