"""Policies side by side: each walks through the same log, and pays for its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.core._tables import NONE, Piece, Shown, Table, as_dict, bars
from specsim.core.distributions import Floats, Ints
from specsim.planning.costs import StepCost
from specsim.planning.policies._log import UNKNOWN, DraftLog
from specsim.planning.policies._oracle import Oracle
from specsim.planning.policies._policy import Drafted, Policy, check_between
from specsim.planning.policies._static import Constant

__all__ = ["PolicyRun", "PolicyRuns", "Step", "simulate_policies", "walk"]

DRAFT_COST = 0.05


def one_pass(tokens: int) -> float:
    """Verification that takes one pass of the target, whatever its length."""
    return 1.0


class Step(NamedTuple):
    """A step that began at position `start`; `beyond`: it was cut since the log ends where its policy would have gone."""

    start: int
    drafted: int
    accepted: int
    beyond: bool


def walk(log: DraftLog, policy: Policy, cost: StepCost) -> Iterator[Step]:
    """The steps of `policy` from the beginning of `log` to its end. The last one drafts less where the text is over."""
    if isinstance(policy, Oracle) and policy.log is not log:
        raise ValueError("oracle: made for another log; make one with Oracle(log) for the log that is walked")
    policy.reset(cost)
    start, end = 0, len(log)
    while start < end:
        step = Drafted(start)
        accepted, beyond = _draft(log, policy, step, end - start - 1)
        policy.learn(step, accepted)
        yield Step(start, step.size, accepted, beyond)
        start += accepted + 1


def _draft(log: DraftLog, policy: Policy, step: Drafted, room: int) -> tuple[int, bool]:
    """Draft up to `room` tokens; how many of them were accepted, and whether the log ended before the policy did."""
    columns = log.columns
    outcomes, start, run = columns.accepted, step.start, columns.runs[step.start]
    if policy.planned:  # what is drafted makes no difference
        while step.size < room and policy.more(step):
            step.size += 1
        if step.size > run and outcomes[start + run] == UNKNOWN:
            step.size = run
            return run, True
        return min(run, step.size), False
    while step.size < room and policy.more(step):
        behind = step.size - run - 1  # tokens since the first rejected one
        if behind < 0:
            if outcomes[start + step.size] == UNKNOWN:
                return run, True
            values = [column[start + step.size] for column in columns.features]
        elif behind < log.ahead:
            values = [column[columns.tail[start + run]][behind] for column in columns.tails]
        else:
            return run, True
        step.add(*values)
    return min(run, step.size), False


@dataclass(frozen=True, eq=False)
class PolicyRun:
    """What a policy did on a log, and what it took; times are in passes of the target over one token.

    `counts[g, a]` is the number of steps with g drafted and a accepted tokens. `difference` is the time per token less
    that of the best constant, `best_constant`, on the same log, and `error` its standard error from means over blocks of
    the text, the same blocks for all: neighbouring steps are alike, and both policies gain where the text is easy. The
    best constant is chosen in hindsight, which favours it a little.
    """

    policy: str
    counts: Ints = field(repr=False)
    time: float
    plain_time: float  #: of one token without drafts
    best_constant: int
    difference: float
    error: float
    beyond: (
        int  #: steps cut since the log ends where the policy would have gone: their time comes out too small
    )

    @property
    def steps(self) -> int:
        return int(self.counts.sum())

    @property
    def drafted_histogram(self) -> Ints:
        """[G+1] steps by their number of drafted tokens."""
        found: Ints = self.counts.sum(axis=1)
        return found

    @property
    def accepted_histogram(self) -> Ints:
        """[G+1] steps by their number of accepted tokens."""
        found: Ints = self.counts.sum(axis=0)
        return found

    @property
    def drafted(self) -> int:
        """Tokens drafted in all."""
        return int(self.drafted_histogram @ np.arange(len(self.counts)))

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted in all."""
        return int(self.accepted_histogram @ np.arange(len(self.counts)))

    @property
    def tokens(self) -> int:
        """Tokens emitted: the accepted ones, and one more in each step; the whole text."""
        return self.accepted + self.steps

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps

    @property
    def time_per_token(self) -> float:
        return self.time / self.tokens

    @property
    def speedup(self) -> float:
        """Against the target alone, one pass per token."""
        return self.plain_time / self.time_per_token

    @property
    def alpha_drafted(self) -> float | None:
        """Accepted / drafted, which engines report; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    def to_dict(self) -> dict[str, Any]:
        """Counts, derived values and the comparison, as JSON can hold them."""
        derived = ("steps", "tokens", "drafted", "accepted", "tokens_per_step", "time_per_token", "speedup")
        return as_dict(self, *derived, "alpha_drafted", without=("plain_time",))


class PolicyRuns(tuple[PolicyRun, ...], Shown):
    """Runs of several policies on one log, side by side."""

    __slots__ = ()

    def parts(self) -> list[Piece]:
        names = (
            "policy",
            "drafted/step",
            "tokens/step",
            "speed-up",
            "time/token - best constant's",
            "cut",
            "",
        )
        rows = [
            (
                run.policy,
                f"{run.drafted / run.steps:.2f}",
                f"{run.tokens_per_step:.4f}",
                f"{run.speedup:.4f}",
                f"{run.difference:+.4f} ± {run.error:.4f}",
                f"{run.beyond / run.steps:.0%}" if run.beyond else NONE,
                bar,
            )
            for run, bar in zip(self, bars([run.speedup for run in self]), strict=True)
        ]
        fastest = max(range(len(self)), key=lambda i: self[i].speedup)
        return [
            Table(names, rows, bold=[fastest]),
            f"best constant: γ = {self[0].best_constant}, chosen in hindsight",
            "cut: share of steps that the policy would have continued beyond the end of the log; their time is too small",
        ]

    def records(self) -> list[dict[str, Any]]:
        """A row for each policy, without its counts."""
        return [{k: v for k, v in run.to_dict().items() if k != "counts"} for run in self]

    def to_dict(self) -> list[dict[str, Any]]:
        """Everything as plain Python values, for JSON."""
        return [run.to_dict() for run in self]


def simulate_policies(
    log: DraftLog,
    policies: Iterable[Policy],
    *,
    draft_cost: float = DRAFT_COST,
    verify_cost: Callable[[int], float] = one_pass,
    cost: StepCost | None = None,
    constants: Sequence[int] = range(1, 17),
    blocks: int = 50,
) -> PolicyRuns:
    """Walk `log` with each of `policies`, which all meet the same drafts and tests; see `specsim.planning.policies._log`.

    A step of g drafted tokens takes g·`draft_cost` + `verify_cost(g + 1)`, in passes of the target, or what a cost model
    of `specsim.planning.costs` given as `cost` says instead, and the overhead that the policy declares. Time must not fall with
    g. Each policy is compared with the best of γ in `constants`, over `blocks` ≥ 2 blocks of the text.

    Nothing is random here: the same log gives the same counts. Raises ValueError for no policy, costs that are negative,
    infinite or fall with g, γ < 1, more blocks than positions; TypeError for anything but policies.

    >>> from specsim.planning.policies import SVIP, draft_log
    >>> from specsim.models import TableModel
    >>> log = draft_log(TableModel([0.5, 0.3, 0.2]), TableModel([0.3, 0.3, 0.4]), 5000, rng=1)
    >>> (run,) = simulate_policies(log, [SVIP(h=0.5)])
    >>> run.tokens, run.steps + run.accepted
    (5000, 5000)
    """
    chosen = _check_policies(policies)
    if not 2 <= blocks <= len(log):
        raise ValueError(f"blocks: {blocks} is outside [2, {len(log)}], the positions of the log")
    if len(constants) == 0:
        raise ValueError("constants: none to compare with; give at least one γ ≥ 1")
    if cost is not None and (draft_cost != DRAFT_COST or verify_cost is not one_pass):
        raise ValueError(
            "cost: it says what drafts and verification take; leave out draft_cost and verify_cost"
        )
    if cost is None:
        check_between("draft_cost", draft_cost, 0.0, math.inf, "time in passes of the target")
        cost = _PerToken(draft_cost, verify_cost)
    times = _StepTimes(cost)
    baselines = {gamma: _tally(log, Constant(gamma), times, blocks) for gamma in constants}
    best = min(baselines, key=lambda gamma: float(baselines[gamma].times.sum()))
    runs = []
    for policy in chosen:
        tally = _tally(log, policy, times, blocks)
        difference = tally.times - baselines[best].times
        runs.append(
            PolicyRun(
                policy=str(policy),
                counts=tally.counts,
                time=float(tally.times.sum()),
                plain_time=times.step(0),
                best_constant=best,
                difference=float(difference.sum()) / len(log),
                error=float(difference.std(ddof=1)) * math.sqrt(blocks) / len(log),
                beyond=tally.beyond,
            )
        )
    return PolicyRuns(runs)


class _Tally(NamedTuple):
    counts: Ints  #: [G+1, G+1] steps by drafted and accepted tokens
    times: Floats  #: [blocks] by where the step began
    beyond: int


def _tally(log: DraftLog, policy: Policy, times: _StepTimes, blocks: int) -> _Tally:
    steps = np.array([tuple(step) for step in walk(log, policy, times)], dtype=np.int64)
    start, drafted, accepted, beyond = steps.T
    size = int(drafted.max()) + 1
    counts = np.bincount(drafted * size + accepted, minlength=size * size).reshape(size, size)
    time = np.array([times.step(g) + policy.spent(g) for g in range(size)])
    by_block = np.zeros(blocks)
    np.add.at(by_block, start * blocks // len(log), time[drafted])
    return _Tally(counts, by_block, int(beyond.sum()))


@dataclass(frozen=True)
class _PerToken:
    """g·draft + verify(g + 1)."""

    draft: float
    verify: Callable[[int], float]

    def step(self, gamma: int) -> float:
        return gamma * self.draft + float(self.verify(gamma + 1))


class _StepTimes:
    """The times of a cost model, each asked for once, and checked."""

    def __init__(self, cost: StepCost):
        self._cost = cost
        self._times: list[float] = []

    def step(self, gamma: int) -> float:
        while len(self._times) <= gamma:
            g = len(self._times)
            time = self._cost.step(g)
            if not (math.isfinite(time) and time > 0):
                raise ValueError(
                    f"cost: a step of {g} drafted tokens takes {time}; times must be finite and > 0"
                )
            if g and time < self._times[-1]:
                raise ValueError(
                    f"cost: a step of {g} drafted tokens takes {time:.6g}, less than the {self._times[-1]:.6g} of one "
                    "token fewer; smooth measured times so that they never fall"
                )
            self._times.append(time)
        return self._times[gamma]


def _check_policies(policies: Iterable[Policy]) -> list[Policy]:
    chosen = list(policies)
    if not chosen:
        raise ValueError("policies: none given; pass at least one, such as [Constant(5)]")
    for policy in chosen:
        if not isinstance(policy, Policy):
            raise TypeError(f"policies: {policy!r} is not a policy, such as Constant(5)")
    return chosen
