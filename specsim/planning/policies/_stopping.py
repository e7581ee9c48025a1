"""Policies that stop at low confidence: thresholds on q of the drafted token, or on the entropy of q."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specsim.planning.costs import StepCost
from specsim.planning.policies._fitting import roc_threshold
from specsim.planning.policies._policy import Drafted, Policy, check_between


@dataclass
class ConfidenceThreshold(Policy):
    """Stop after the first token drafted with q < `threshold`, or at `most` tokens; at least one is drafted.

    Hugging Face's `assistant_confidence_threshold` (`ConfidenceCriteria` in generation/stopping_criteria.py;
    0.4 and 20 tokens by default). With `refit` the threshold follows the outcomes, as in
    `update_candidate_strategy` there: once more than 5 tokens were tested in the call, with both outcomes, it
    minimises FPR + 3·FNR over them. A call of `generate` is assumed to emit `call` tokens; the next one
    forgets the outcomes and keeps the threshold. Departure: in some versions the new threshold takes effect
    in the next call; here in the next step.
    """

    threshold: float = 0.4
    most: int = 20
    refit: bool = False
    call: int = 512

    counts, probabilities = ("most", "call"), ("threshold",)

    def __str__(self) -> str:
        return "HF threshold, refitted" if self.refit else f"HF threshold {self.threshold:g}"

    def reset(self, cost: StepCost) -> None:
        self._threshold = self.threshold
        self._forget()

    def more(self, step: Drafted) -> bool:
        if step.size == 0:
            return True
        return step.size < self.most and step.confidence[-1] >= self._threshold

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


@dataclass
class SVIP(Policy):
    """Stop after the first token whose row has √(c·H(q)) > h, or at `most` tokens; at least one is drafted.

    Zhang et al., arXiv 2411.18462, with β ≥ 1 - √(c·H) as a bound on acceptance. c = 0.15, h = 0.3, at most
    40 tokens and the order (draft, then test the row it came from) are those of the authors' code,
    Geralt-Targaryen/SVIP, vanilla-sd.
    """

    h: float = 0.3
    c: float = 0.15
    most: int = 40

    counts = ("most",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("h", self.h, 0.0, math.inf, "threshold on √(c·H)")
        check_between("c", self.c, 0.0, math.inf, "factor on the entropy in nats")

    def __str__(self) -> str:
        return f"SVIP {self.h:g}"

    def more(self, step: Drafted) -> bool:
        if step.size == 0:
            return True
        return step.size < self.most and math.sqrt(self.c * step.entropy[-1]) <= self.h
