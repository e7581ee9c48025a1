"""Simulation of draft-length policies on one log."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.core._tables import NONE, Piece, Shown, Table, as_dict, bars
from specsim.core._types import Floats, Ints, check_between, check_count, checked
from specsim.core.stats import accepted_tokens
from specsim.planning._costs import ConstantRatio, StepCost
from specsim.planning._policies import _kinds as kinds
from specsim.planning._policies._log import UNKNOWN, DraftLog
from specsim.simulation._grid import most_of

DRAFT_COST = 0.05


class Step(NamedTuple):
    """A step from position `start` on; `truncated`: the log ended before the policy stopped drafting."""

    start: int
    drafted: int
    accepted: int
    truncated: bool


def simulate_steps(log: DraftLog, policy: kinds.Policy, cost: StepCost) -> Iterator[Step]:
    """Yield the steps of a policy along a log; the last ones draft less, not to pass the end of the text."""
    policy.reset(cost)
    if isinstance(policy, kinds.Oracle):
        policy.foresee(log, cost)
    start, end = 0, len(log)
    while start < end:
        step = kinds.Drafted(start)
        accepted, truncated = _draft(log, policy, step, end - start - 1)
        policy.learn(step, accepted)
        yield Step(start, step.size, accepted, truncated)
        start += accepted + 1


def _draft(log: DraftLog, policy: kinds.Policy, step: kinds.Drafted, room: int) -> tuple[int, bool]:
    """Draft up to `room` tokens: how many were accepted, and whether the log truncated the step."""
    outcomes, runs, features, tail, tails = log.lists
    start, run = step.start, runs[step.start]
    if policy.planned:  # the drafted tokens make no difference
        while step.size < room and policy.more(step):
            step.size += 1
        if step.size > run and outcomes[start + run] == UNKNOWN:
            step.size = run
            return run, True
        return min(run, step.size), False
    while step.size < room and policy.more(step):
        behind = step.size - run - 1  # tokens after the first rejected one
        if behind < 0:
            if outcomes[start + step.size] == UNKNOWN:
                return run, True
            values = [column[start + step.size] for column in features]
        elif behind < log.ahead:
            values = [column[tail[start + run]][behind] for column in tails]
        else:
            return run, True
        step.add(*values)
    return min(run, step.size), False


@dataclass(frozen=True, eq=False)
class PolicyRun:
    """The result of one policy on a log; times are in passes of the target over one token."""

    policy: str
    counts: Ints = field(repr=False)  #: [g, a] steps with g drafted and a accepted tokens
    time: float
    plain_time: float  #: of one token without drafts
    best_constant: int  #: the γ of the fastest constant policy, in hindsight, which favours it slightly
    difference: float  #: the time per token less that of the best constant
    error: float  #: its standard error over blocks of the text, the same for all policies
    truncated: int  #: steps that the log truncated: their times are too small

    @property
    def steps(self) -> int:
        return int(self.counts.sum())

    @property
    def drafted_histogram(self) -> Ints:
        """[G+1] steps by their number of drafted tokens."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def accepted_histogram(self) -> Ints:
        """[G+1] steps by their number of accepted tokens."""
        return np.asarray(self.counts.sum(axis=0))

    @property
    def drafted(self) -> int:
        """Tokens drafted in all."""
        return accepted_tokens(self.drafted_histogram)

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted in all."""
        return accepted_tokens(self.accepted_histogram)

    @property
    def tokens(self) -> int:
        """Tokens emitted, one per step and the accepted ones: the whole text."""
        return self.accepted + self.steps

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps

    @property
    def time_per_token(self) -> float:
        return self.time / self.tokens

    @property
    def speedup(self) -> float:
        """Relative to the target alone, one pass per token."""
        return self.plain_time / self.time_per_token

    @property
    def alpha_drafted(self) -> float | None:
        """Accepted / drafted, which engines report; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    def to_dict(self) -> dict[str, Any]:
        """Counts, derived values and the comparison, for JSON."""
        derived = ("steps", "tokens", "drafted", "accepted", "tokens_per_step", "time_per_token", "speedup")
        without = ("plain_time", "truncated")
        return as_dict(self, *derived, "alpha_drafted", without=without, beyond=self.truncated)


class PolicyRuns(Shown, tuple[PolicyRun, ...]):
    """Runs of several policies on one log, side by side."""

    __slots__ = ()

    def parts(self) -> list[Piece]:
        names = "policy", "drafted/step", "tokens/step", "speed-up", "time/token - best constant's", "cut", ""
        rows = []
        for run, bar in zip(self, bars([run.speedup for run in self]), strict=True):
            drafted, rates = f"{run.drafted / run.steps:.2f}", (run.tokens_per_step, run.speedup)
            difference = f"{run.difference:+.4f} ± {run.error:.4f}"
            cut = f"{run.truncated / run.steps:.0%}" if run.truncated else NONE
            rows.append((run.policy, drafted, *map("{:.4f}".format, rates), difference, cut, bar))
        known = {run.policy: run.speedup for run in self if run.policy != kinds.Oracle.title}
        return [
            most_of("policies that can be followed", "times as fast", known),
            Table(names, rows, bold=[max(range(len(self)), key=lambda i: self[i].speedup)]),
            f"best constant: γ = {self[0].best_constant}, chosen in hindsight",
            "cut: share of steps that the policy would have continued after the end of the log; their time "
            "is too small",
        ]

    def records(self) -> list[dict[str, Any]]:
        """A row for each policy, without its counts."""
        return [{k: v for k, v in run.to_dict().items() if k != "counts"} for run in self]


@checked
def simulate_policies(
    log: DraftLog,
    policies: Iterable[kinds.Policy],
    *,
    draft_cost: float = DRAFT_COST,
    cost: StepCost | None = None,
    constants: Sequence[int] = range(1, 17),
    blocks: int = 50,
) -> PolicyRuns:
    """Simulate draft-length policies on one log, all with the same drafts and tests; nothing is random.

    Parameters
    ----------
    log : DraftLog
        Of `draft_log` or `log_from_trace`.
    policies : iterable of Policy
        At least one.
    draft_cost : float
        The time of one drafted token in passes of the target, ≥ 0; all are verified in one pass.
    cost : StepCost, optional
        In place of it, times of steps that do not fall with γ. Policies add their overhead.
    constants : sequence of int
        The γ ≥ 1 whose fastest is compared with each policy.
    blocks : int
        Blocks of the text for standard errors, from 2 to the number of positions.

    Returns
    -------
    PolicyRuns
        One `PolicyRun` for each policy.

    Raises
    ------
    ValueError, TypeError
        For no policy, anything but policies, or arguments out of range.

    References
    ----------
    Leviathan, Kalman & Matias, arXiv 2211.17192, Algorithm 1; docs/proofs.md has the proof that steps cut
    from one log follow its law.

    Examples
    --------
    >>> from specsim import draft_log
    >>> from specsim.models import TableModel
    >>> from specsim.planning import SVIP
    >>> log = draft_log(TableModel([0.5, 0.3, 0.2]), TableModel([0.3, 0.3, 0.4]), 5000, rng=1)
    >>> (run,) = simulate_policies(log, [SVIP(h=0.5)])
    >>> run.tokens, run.steps + run.accepted
    (5000, 5000)
    """
    chosen = list[kinds.Policy]()
    for policy in policies:  # of anything else there may be no end
        if not isinstance(policy, kinds.Policy):
            raise TypeError(f"policies: {policy!r} is not a policy; give such as Constant(5)")
        chosen.append(policy)
    if not chosen:
        raise ValueError("policies: none given; give at least one, such as [Constant(5)]")
    if not 2 <= blocks <= len(log):
        raise ValueError(f"blocks: {blocks} is outside [2, {len(log)}]; give fewer, or a longer log")
    if len(constants) == 0:
        raise ValueError("constants: none to compare with; give at least one γ ≥ 1")
    for gamma in constants:
        check_count("constants", gamma)
    if cost is None:
        check_between("draft_cost", draft_cost, 0.0, math.inf, "time in passes of the target")
    elif draft_cost != DRAFT_COST:
        raise ValueError("cost: has the times of drafts and verification; leave draft_cost out")
    times = _StepTimes((cost or ConstantRatio(draft_cost)).step)
    baselines = {gamma: _tally(log, kinds.Constant(gamma), times, blocks)[1] for gamma in constants}
    best = min(baselines, key=lambda gamma: float(baselines[gamma].sum()))
    runs = []
    for policy in chosen:
        counts, by_block, truncated = _tally(log, policy, times, blocks)
        difference = by_block - baselines[best]
        run = PolicyRun(
            policy=str(policy),
            counts=counts,
            time=float(by_block.sum()),
            plain_time=times.step(0),
            best_constant=best,
            difference=float(difference.sum()) / len(log),
            error=float(difference.std(ddof=1)) * math.sqrt(blocks) / len(log),
            truncated=truncated,
        )
        runs.append(run)
    return PolicyRuns(runs)


def _tally(log: DraftLog, policy: kinds.Policy, times: "_StepTimes", blocks: int) -> tuple[Ints, Floats, int]:
    """[G+1, G+1] steps by drafted and accepted tokens; [blocks] times by where they began; those cut."""
    steps = np.array([tuple(step) for step in simulate_steps(log, policy, times)], dtype=np.int64)
    start, drafted, accepted, truncated = steps.T
    size = int(drafted.max()) + 1
    counts = np.bincount(drafted * size + accepted, minlength=size * size).reshape(size, size)
    time = np.array([times.step(g) + policy.decision_time(g) for g in range(size)])
    by_block = np.zeros(blocks)
    np.add.at(by_block, start * blocks // len(log), time[drafted])
    return counts, by_block, int(truncated.sum())


class _StepTimes:
    """The checked times of steps, each computed once."""

    def __init__(self, time: Callable[[int], float]):
        self._time = time
        self._times: list[float] = []

    def step(self, gamma: int) -> float:
        while (g := len(self._times)) <= gamma:
            time, step = self._time(g), f"cost: a step of {g} drafted tokens takes"
            if not (math.isfinite(time) and time > 0):
                raise ValueError(f"{step} {time}; give finite times > 0")
            if g and time < self._times[-1]:
                fewer = f"less than the {self._times[-1]:.6g} of one token fewer"
                raise ValueError(f"{step} {time:.6g}, {fewer}; give times that never fall")
            self._times.append(time)
        return self._times[gamma]


def every_policy(train: DraftLog, log: DraftLog) -> tuple[kinds.Policy, ...]:
    """One policy of each kind, with its authors' parameters.

    Policies that look at tokens draft at most `ahead` + 1, so that the logs never truncate their steps.

    Parameters
    ----------
    train : DraftLog
        On which `Disco` is fitted.
    log : DraftLog
        On which the policies are to be simulated.

    Returns
    -------
    tuple of Policy

    Examples
    --------
    >>> from specsim.models import TableModel
    >>> from specsim import draft_log
    >>> pair = TableModel([0.5, 0.5]), TableModel([0.8, 0.2])
    >>> train, log = (draft_log(*pair, 1000, rng=rng) for rng in (1, 2))
    >>> print(every_policy(train, log)[0])
    constant 5
    """
    max_gamma = min(train.ahead, log.ahead) + 1
    return (
        kinds.Constant(5),
        kinds.Heuristic(),
        kinds.ConfidenceThreshold(max_gamma=min(20, max_gamma)),
        kinds.ConfidenceThreshold(max_gamma=min(20, max_gamma), refit=True),
        kinds.SVIP(max_gamma=min(40, max_gamma)),
        kinds.Disco.fit(train, max_gamma=min(16, max_gamma)),
        kinds.Goodput(),
        kinds.Cascade(),
        kinds.Oracle(),
    )
