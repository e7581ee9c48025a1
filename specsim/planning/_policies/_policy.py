"""The interface of draft-length policies."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from specsim.core._checks import check_between, check_count
from specsim.planning._costs import StepCost


@dataclass(slots=True)
class Drafted:
    """The tokens drafted in the current step, and their features, which a `planned` policy does not get."""

    start: int  #: where the step began in the log; for the oracle
    size: int = 0
    confidence: list[float] = field(default_factory=list)  #: q(drafted token)
    entropy: list[float] = field(default_factory=list)  #: H(q) in nats
    top: list[float] = field(default_factory=list)  #: the largest probability in q

    def add(self, confidence: float, entropy: float, top: float) -> None:
        self.size += 1
        self.confidence.append(confidence)
        self.entropy.append(entropy)
        self.top.append(top)


#: The longest draft, and the largest of the other counts.
MOST, LARGEST = 256, 2**20
#: The weight of a prior acceptance rate, in tested tokens.
PRIOR_TESTS = 8


@dataclass
class AnyPolicy:
    """Base class of policies: the parameters are fields, and checked."""

    #: Names of the fields that are counts, with `least` where that is not 1, and of those in [0, 1].
    counts: ClassVar[tuple[str, ...]] = ()
    probabilities: ClassVar[tuple[str, ...]] = ()
    least: ClassVar[dict[str, int]] = {}

    def __post_init__(self) -> None:
        for name in self.counts:
            limit = MOST if name in ("gamma", "max_gamma") else LARGEST
            check_count(name, getattr(self, name), self.least.get(name, 1), limit)
        for name in self.probabilities:
            check_between(name, getattr(self, name), 0.0, 1.0, "probability")


@dataclass
class Policy(AnyPolicy):
    """Base class of draft-length policies. Subclasses define `more`; `reset` creates the state."""

    #: The time of a decision in passes of the target, ≥ 0: of a `planned` policy per step, else per token.
    overhead: float = field(default=0.0, kw_only=True)

    #: Whether `more` depends only on the number of drafted tokens and on earlier steps.
    planned = False
    #: What is shown, with fields in braces; by default the name of the class.
    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("overhead", self.overhead, 0.0, math.inf, "time in passes of the target")
        begin, most = (getattr(self, name, 0) for name in ("gamma", "max_gamma"))
        if {"gamma", "max_gamma"} <= {*self.counts} and begin > most:
            raise ValueError(f"gamma: {begin} is more than max_gamma = {most}; begin lower")

    def __str__(self) -> str:
        return self.title.format_map(vars(self)) or type(self).__name__

    def reset(self, cost: StepCost) -> None:
        """Begin a new text, in which a step of g drafted tokens takes `cost.step(g)`."""

    def more(self, step: Drafted) -> bool:
        """Whether to draft another token in `step`."""
        raise NotImplementedError

    def learn(self, step: Drafted, accepted: int) -> None:
        """Update the state after a step whose first `accepted` tokens were accepted."""

    def decision_time(self, drafted: int) -> float:
        """The time of the decisions in a step of `drafted` tokens."""
        return self.overhead if self.planned else self.overhead * drafted


@dataclass
class PlannedPolicy(Policy):
    """A policy that fixes the length `_gamma` before each step."""

    planned = True
    _gamma = 0

    def more(self, step: Drafted) -> bool:
        return step.size < self._gamma
