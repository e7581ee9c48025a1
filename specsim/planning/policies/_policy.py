"""What a policy is: asked after every drafted token whether to draft one more, told afterwards how many were accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from specsim.planning.costs import StepCost


class Drafted:
    """What has been drafted in the step so far: its length, and the features of each token.

    A `planned` policy is shown the length alone, and the lists stay empty.
    """

    __slots__ = ("confidence", "entropy", "size", "start", "top")

    def __init__(self, start: int):
        self.start = start  #: where the step began in the log; for an oracle alone
        self.size = 0
        self.confidence: list[float] = []  #: q(drafted token)
        self.entropy: list[float] = []  #: H(q) in nats
        self.top: list[float] = []  #: the largest probability in q

    def add(self, confidence: float, entropy: float, top: float) -> None:
        """One more token."""
        self.size += 1
        self.confidence.append(confidence)
        self.entropy.append(entropy)
        self.top.append(top)


@dataclass
class Policy:
    """How many tokens to draft. Subclasses answer `more`; their parameters are fields, their memory is made by `reset`.

    `overhead` ≥ 0 is the time, in passes of the target, that deciding takes: in each step where the number is `planned`
    when the step begins, else for each drafted token, since that is what such a policy looks at.
    """

    overhead: float = field(default=0.0, kw_only=True)

    #: Whether `more` depends on nothing but the number drafted so far and what was learned from earlier steps.
    planned = False

    def __post_init__(self) -> None:
        check_between("overhead", self.overhead, 0.0, math.inf, "time in passes of the target")

    def __str__(self) -> str:
        return type(self).__name__

    def reset(self, cost: StepCost) -> None:
        """Forget everything: a new text begins, in which a step of g drafted tokens takes `cost.step(g)`."""

    def more(self, step: Drafted) -> bool:
        """Whether to draft another token in `step`, which is empty at first."""
        raise NotImplementedError

    def learn(self, step: Drafted, accepted: int) -> None:
        """The step is over, and the first `accepted` of its tokens were accepted."""

    def spent(self, drafted: int) -> float:
        """The time that deciding took in a step of so many drafted tokens."""
        return self.overhead if self.planned else self.overhead * drafted


def check_between(name: str, value: float, low: float, high: float, what: str) -> None:
    """Raise ValueError unless `low` ≤ value ≤ `high` (below it, where that is infinite)."""
    if not (low <= value <= high and math.isfinite(value)):
        allowed = f"[{low:g}, {high:g}]" if math.isfinite(high) else f"[{low:g}, ∞)"
        raise ValueError(f"{name}: {value} is outside {allowed}; give a {what}")


def check_count(name: str, value: int, least: int = 1) -> None:
    """Raise ValueError unless `value` is a whole number and at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ValueError(f"{name}: {value!r} is not a whole number ≥ {least}")
