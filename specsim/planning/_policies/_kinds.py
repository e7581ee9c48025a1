"""Draft-length policies and their interface: schedules, thresholds, goodput, a fitted one, the oracle."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from specsim.core._types import Floats, Ints, check_between, check_count, checked
from specsim.planning._costs import StepCost
from specsim.planning._policies._log import UNKNOWN, DraftLog, Features

#: The longest pause of `Cascade`, in multiples of the first one.
LONGEST_PAUSE = 64
#: Of `Disco`: keeps coefficients finite if the classes are separable, or there is only one.
RIDGE = 1e-3


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


@checked
@dataclass
class Constant(Policy):
    """γ = `gamma` tokens in every step (Leviathan et al., arXiv 2211.17192); 0 is the target alone."""

    gamma: int = 5

    planned = True
    counts, least = ("gamma",), {"gamma": 0}
    title = "constant {gamma}"

    def more(self, step: Drafted) -> bool:
        return step.size < self.gamma


@checked
@dataclass
class Heuristic(PlannedPolicy):
    """γ + 2 after a step whose drafts were all accepted, else γ - 1, from 1 to `max_gamma`.

    The schedule "heuristic" of Hugging Face transformers (`update_candidate_strategy` in
    generation/candidate_generator.py), which has no upper limit, and keeps γ between calls of `generate`. For
    "heuristic_transient", which resets γ to `gamma` in each call, set `call`, the tokens per call. The
    default `gamma` there was 5, later 20. On a server each request has a γ of its own, and is one call."""

    gamma: int = 5
    max_gamma: int = MOST
    call: int | None = None

    counts = ("gamma", "max_gamma")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.call is not None:
            check_count("call", self.call)

    def __str__(self) -> str:
        return "HF heuristic" if self.call is None else f"HF heuristic, transient in calls of {self.call}"

    def reset(self, cost: StepCost) -> None:
        self._gamma, self._emitted = self.gamma, 0

    def learn(self, step: Drafted, accepted: int) -> None:
        grown = self._gamma + 2 if accepted == step.size else self._gamma - 1
        self._gamma = min(max(1, grown), self.max_gamma)
        self._emitted += accepted + 1
        if self.call is not None and self._emitted >= self.call:
            self._gamma, self._emitted = self.gamma, 0


@checked
@dataclass
class ConfidenceThreshold(Policy):
    """Stop after the first token drafted with q < `threshold`, at the latest after `max_gamma`.

    Hugging Face's `assistant_confidence_threshold` (`ConfidenceCriteria` in generation/stopping_criteria.py;
    0.4 and 20 tokens by default). With `refit` the threshold follows the outcomes, as in
    `update_candidate_strategy` there: once more than 5 tokens were tested in the call, with both outcomes, it
    minimises FPR + 3·FNR over them. A call of `generate` is assumed to emit `call` tokens; the next one
    forgets the outcomes and keeps the threshold. Departure: in some versions the new threshold takes effect
    in the next call; here in the next step."""

    threshold: float = 0.4
    max_gamma: int = 20
    refit: bool = False
    call: int = 512

    counts, probabilities = ("max_gamma", "call"), ("threshold",)

    def __str__(self) -> str:
        return "HF threshold, refitted" if self.refit else f"HF threshold {self.threshold:g}"

    def reset(self, cost: StepCost) -> None:
        self._threshold = self.threshold
        self._forget()

    def more(self, step: Drafted) -> bool:
        return not step.size or (step.size < self.max_gamma and step.confidence[-1] >= self._threshold)

    def learn(self, step: Drafted, accepted: int) -> None:
        if not self.refit:
            return
        tested = min(accepted + 1, step.size)
        self._scores += step.confidence[:tested]
        self._outcomes += [True] * accepted + [False] * (tested - accepted)
        if len(self._scores) > 5 and True in self._outcomes and False in self._outcomes:
            self._threshold = roc_threshold(self._scores, self._outcomes)
        self._emitted += accepted + 1
        if self._emitted >= self.call:
            self._forget()

    def _forget(self) -> None:
        self._scores: list[float] = []
        self._outcomes: list[bool] = []
        self._emitted = 0


def roc_threshold(scores: Sequence[float], outcomes: Sequence[bool]) -> float:
    """The largest score s with the least FPR + 3·FNR, as Hugging Face's refit by scikit-learn has it."""
    values, labels = np.asarray(scores), np.asarray(outcomes, dtype=np.int64)
    order = np.argsort(-values, kind="stable")
    values, labels = values[order], labels[order]
    hits = np.cumsum(labels)
    misses = np.arange(1, len(labels) + 1) - hits
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of each run of equal scores
    costs = misses[last] / misses[-1] + 3.0 * (1 - hits[last] / hits[-1])
    return float(values[last[np.argmin(costs)]])


@checked
@dataclass
class SVIP(Policy):
    """Stop after the first token whose row has √(c·H(q)) > h, at the latest after `max_gamma`.

    Zhang et al., arXiv 2411.18462, with β ≥ 1 - √(c·H) as a bound on acceptance. c = 0.15, h = 0.3, at most
    40 tokens and the order (draft, then test the row it came from) are those of the authors' code,
    Geralt-Targaryen/SVIP, vanilla-sd."""

    h: float = 0.3
    c: float = 0.15
    max_gamma: int = 40

    counts, title = ("max_gamma",), "SVIP {h:g}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("h", self.h, 0.0, math.inf, "threshold on √(c·H)")
        check_between("c", self.c, 0.0, math.inf, "factor on the entropy in nats")

    def more(self, step: Drafted) -> bool:
        longer = step.size < self.max_gamma
        return not step.size or (longer and math.sqrt(self.c * step.entropy[-1]) <= self.h)


@checked
@dataclass
class Goodput(PlannedPolicy):
    """In each step the k ≤ `max_gamma` with the largest goodput E[tokens]/T(k), E = (1 - α^{k+1})/(1 - α).

    SmartSpec (Liu et al., arXiv 2406.14066). T is the time of a step, which the engine there fits to
    measurements and the simulation here provides; α is the acceptance rate of the tokens tested in the last
    `window` steps, with `alpha` as a prior of `PRIOR_TESTS` tests. Steps without drafts count in the window,
    so that the policy resumes drafting. Window and prior are choices of specsim.

    A server has one k and one α for all requests: a step is its iteration, and T has the joining prompts."""

    max_gamma: int = 16
    window: int = 64
    alpha: float = 0.7

    counts, probabilities = ("max_gamma", "window"), ("alpha",)
    title = "SmartSpec goodput"

    def reset(self, cost: StepCost) -> None:
        self._times = [cost.step(k) for k in range(self.max_gamma + 1)]
        self._recent: deque[tuple[int, int]] = deque(maxlen=self.window)
        self._gamma = self.best(self.alpha)

    def best(self, alpha: float) -> int:
        """The smallest k with the largest goodput at `alpha`."""
        tokens = power = 1.0
        best, highest = 0, 1.0 / self._times[0]
        for k in range(1, self.max_gamma + 1):
            power *= alpha
            tokens += power
            if tokens / self._times[k] > highest:
                best, highest = k, tokens / self._times[k]
        return best

    def learn(self, step: Drafted, accepted: int) -> None:
        self._recent.append((accepted, min(accepted + 1, step.size)))
        accepted, tested = (sum(column) for column in zip(*self._recent, strict=True))
        self._gamma = self.best((accepted + PRIOR_TESTS * self.alpha) / (tested + PRIOR_TESTS))


@checked
@dataclass
class Cascade(PlannedPolicy):
    """Search the K with the largest utility in test phases, each before a long phase with it or no drafts.

    Saxena et al., arXiv 2506.20675. Utility = (tokens per step) / (time per step over that without drafts);
    below 1 drafting slows down. A test phase begins with the last K, `gamma` at first, and tries neighbours
    of the best K so far, the smaller first, until both are known or `trials` were tried, for `trial` steps
    each. If the best utility is below 1, drafting pauses for `settle` steps, doubled each time in a row (up
    to `LONGEST_PAUSE` times); else the best K has `settle` steps, which measure its utility again. The
    lengths of the phases and the order of the search are choices of specsim."""

    gamma: int = 3
    max_gamma: int = 16
    trial: int = 32
    trials: int = 4
    settle: int = 256

    counts = ("gamma", "max_gamma", "trial", "trials", "settle")
    title = "Cascade utility"

    def reset(self, cost: StepCost) -> None:
        self._cost, self._plain = cost, cost.step(0)
        self._pause = 1
        self._last = self.gamma
        self._begin_test({})

    def learn(self, step: Drafted, accepted: int) -> None:
        self._left -= 1
        self._tokens += accepted + 1
        self._time += self._cost.step(step.size)
        if self._left:
            return
        utility = self._tokens * self._plain / self._time
        if self._testing:
            self._utilities[self._gamma] = utility
            self._next_trial()
        else:
            self._begin_test({self._gamma: utility} if self._gamma else {})

    def _begin_test(self, known: dict[int, float]) -> None:
        self._testing, self._trials = True, 0
        self._utilities = known
        self._next_trial()

    def _next_trial(self) -> None:
        """Try the next K, or end the phase without one."""
        best = max(self._utilities, key=self._utilities.__getitem__) if self._utilities else None
        candidates = [self._last] if best is None else [best - 1, best + 1]
        untried = [k for k in candidates if 1 <= k <= self.max_gamma and k not in self._utilities]
        if untried and self._trials < self.trials:
            self._trials += 1
            self._begin(untried[0], self.trial)
        elif best is not None:
            self._testing, self._last = False, best
            if self._utilities[best] < 1.0:
                self._begin(0, self.settle * self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
            else:
                self._begin(best, self.settle)
                self._pause = 1

    def _begin(self, gamma: int, steps: int) -> None:
        self._gamma, self._left = gamma, steps
        self._tokens, self._time = 0, 0.0


@dataclass
class Disco(Policy):
    """Stop after the first token whose predicted probability of acceptance is below `threshold`.

    DISCO (Mamou et al., arXiv 2405.04304) applies a classifier after each drafted token to the draft's
    probabilities, its entropy and the position in the step; tokens after a rejected one count as rejected.
    The classifier there has two layers; here it is a logistic model with log(position) as a further input.
    The default threshold is specsim's."""

    coefficients: tuple[float, ...]
    threshold: float = 0.5
    max_gamma: int = 16

    counts, probabilities = ("max_gamma",), ("threshold",)
    title = "DISCO {threshold:g}"

    @classmethod
    def fit(cls, train: DraftLog, threshold: float = 0.5, max_gamma: int = 16) -> "Disco":
        """Fit on drafts of `max_gamma` tokens at every position of `train`, rejected tokens included."""
        check_count("max_gamma", max_gamma)
        features, accepted = examples(train, max_gamma)
        position = np.broadcast_to(np.arange(max_gamma), features.top.shape)
        confidence, entropy, top = (column.ravel() for column in features)
        inputs = [np.log(confidence), entropy, np.log(top), np.log1p(position.ravel())]
        labels = (position < accepted[:, None]).ravel()
        return cls(logistic(np.column_stack(inputs), labels), threshold, max_gamma)

    def more(self, step: Drafted) -> bool:
        if step.size == 0:
            return True
        a, b, c, d, e = self.coefficients
        z = a + b * math.log(step.confidence[-1]) + c * step.entropy[-1] + d * math.log(step.top[-1])
        z += e * math.log(step.size)
        likely = 1.0 / (1.0 + math.exp(-z)) if z > -700.0 else 0.0
        return likely >= self.threshold and step.size < self.max_gamma


def logistic(inputs: Floats, labels: NDArray[np.bool_]) -> tuple[float, ...]:
    """(intercept, coefficients) of P(label) = 1/(1 + exp(-z)), z linear in `inputs` [n, k]; with a ridge."""
    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-12)
    design = np.column_stack([np.ones(len(inputs)), (inputs - mean) / scale])
    share = np.full(len(inputs), 1.0 / len(inputs))

    def loss(w: Floats) -> tuple[float, Floats]:
        z = design @ w
        # log(1 + e^z) - label·z, without overflow
        value = share @ (np.logaddexp(0.0, z) - labels * z) + RIDGE * (w @ w) / 2
        return float(value), design.T @ (share * (scipy.special.expit(z) - labels)) + RIDGE * w

    w = scipy.optimize.minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x
    slopes = w[1:] / scale
    return float(w[0] - slopes @ mean), *slopes.tolist()


def examples(train: DraftLog, length: int) -> tuple[Features, Ints]:
    """Steps of `length` drafted tokens at each of the S positions where one fits: the features [S, length] of
    all tokens, rejected ones included, and how many were accepted [S]. Raises ValueError for a short log."""
    if (train.accepted == UNKNOWN).any():
        raise ValueError("train: a log made from a trace lacks tails; draw one with draft_log")
    if train.ahead + 1 < length:
        raise ValueError(
            f"train: {train.ahead} tokens after a rejected one are too few to draft {length}; draw it with "
            f"ahead={length - 1}"
        )
    starts = np.arange(len(train) - length + 1)
    if starts.size == 0:
        raise ValueError(f"train: {len(train)} positions are too few; draw at least {length}")
    accepted = np.minimum(train.runs[starts], length)
    steps = np.arange(length)
    # the last place is that of the rejected token
    place = starts[:, None] + np.minimum(steps, accepted[:, None])
    behind = steps - accepted[:, None] - 1
    row = train.tail[place[:, -1]]
    features = []
    for on_path, tail in zip(train.features, train.tails, strict=True):
        column = on_path[place]
        lost = behind >= 0
        column[lost] = tail[np.broadcast_to(row[:, None], lost.shape)[lost], behind[lost]]
        features.append(column)
    return Features(*features), accepted


@checked
@dataclass
class Oracle(Policy):
    """The lengths with the least total time on a log, by dynamic programming.

    It never drafts a token that will be rejected: with `runs` r_t of tokens that would be accepted from t on,
    the least time V from t to the end is min over g ≤ r_t of step(g) + V(t + g + 1). It bounds every policy
    that has at most `max_gamma` tokens accepted in one step.

    On a server it drafts as many tokens as will be accepted, of each request, up to `max_gamma`. That is no
    bound on goodput where drafting itself does not pay."""

    max_gamma: int = 64

    planned = True
    counts, title = ("max_gamma",), "oracle"

    def foresee(self, log: DraftLog, cost: StepCost) -> None:
        """Plan the steps on `log`, which it knows."""
        n = len(log)
        # the last token of the text is left to the target, as in every step
        runs = np.minimum(np.minimum(log.runs, np.arange(n)[::-1]), self.max_gamma)
        times = np.array([cost.step(g) for g in range(int(runs.max()) + 1)])
        least, self._plan = np.zeros(n + 1), [0] * n
        for t in range(n - 1, -1, -1):
            r = runs[t]
            totals = times[: r + 1] + least[t + 1 : t + r + 2]
            self._plan[t] = g = int(totals.argmin())
            least[t] = totals[g]

    def more(self, step: Drafted) -> bool:
        return step.size < self._plan[step.start]
