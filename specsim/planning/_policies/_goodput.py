"""Policies that weigh tokens against time: SmartSpec's goodput, and Cascade's utility."""

from collections import deque
from dataclasses import dataclass

from specsim.core._arguments import checked
from specsim.planning._costs import StepCost
from specsim.planning._policies._policy import PRIOR_TESTS, Drafted, PlannedPolicy

#: The longest pause of `Cascade`, in multiples of the first one.
LONGEST_PAUSE = 64


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
        self._recent: deque[tuple[int, int]] = deque()
        self._accepted = self._tested = 0
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
        tested = min(accepted + 1, step.size)
        self._recent.append((accepted, tested))
        self._accepted += accepted
        self._tested += tested
        if len(self._recent) > self.window:
            accepted, tested = self._recent.popleft()
            self._accepted -= accepted
            self._tested -= tested
        prior = PRIOR_TESTS * self.alpha
        self._gamma = self.best((self._accepted + prior) / (self._tested + PRIOR_TESTS))


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
