"""Policies that are fitted on a part of the log before they are simulated on another part.

The papers train small networks on the hidden states of the draft. Here q of the drafted token, the entropy
and the largest entry of its row replace the hidden states, and logistic or linear regression the network. The
results compare the rules that turn a prediction into a length, not larger predictors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specsim.core._checks import check_between, check_count
from specsim.core._types import Floats
from specsim.planning.costs import StepCost
from specsim.planning.policies._fitting import examples, least_squares, logistic, select_tested
from specsim.planning.policies._log import DraftLog, Features
from specsim.planning.policies._policy import Drafted, Policy


def _inputs(features: Features) -> Floats:
    """[n, 3]: log q(token), entropy, log of the largest entry."""
    return np.column_stack([np.log(features.confidence), features.entropy, np.log(features.top)])


def _probability(coefficients: tuple[float, ...], step: Drafted, *others: float) -> float:
    """The logistic model of the last token drafted."""
    a, b, c, d, *rest = coefficients
    z = a + b * math.log(step.confidence[-1]) + c * step.entropy[-1] + d * math.log(step.top[-1])
    z += sum(slope * other for slope, other in zip(rest, others, strict=True))
    return 1.0 / (1.0 + math.exp(-z)) if z > -700.0 else 0.0


@dataclass
class SpecDecPP(Policy):
    """Stop once the predicted probability 1 - Π P̂(accepted) of a rejected token exceeds `threshold`.

    Huang, Guo & Wang, arXiv 2405.19715: with a draft's pass of c1 and a target's of c2, stopping is optimal
    once the probability reaches (c2 + Δ)/(c1 + c2 + Δ) with some Δ ≥ 0. Here P̂ is a logistic model of the
    token's features, `coefficients` from `fit`. Defaults as in the authors' example
    (Kaffaljidhmah2/SpecDec_pp): threshold 0.3, 2 to 20 tokens, rejections weighted 6 times."""

    coefficients: tuple[float, ...]
    threshold: float = 0.3
    least: int = 2
    most: int = 20

    counts, probabilities = ("least",), ("threshold",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("most", self.most, self.least)

    def __str__(self) -> str:
        return f"SpecDec++ {self.threshold:g}"

    @classmethod
    def fit(
        cls, train: DraftLog, threshold: float = 0.3, least: int = 2, most: int = 20, weight: float = 6.0
    ) -> SpecDecPP:
        """Fit on every tested position of `train`, rejected ones with weight `weight` > 0."""
        check_between("weight", weight, 1e-6, 1e6, "weight of a rejected token")
        features, accepted = select_tested(train)
        coefficients = logistic(_inputs(features), accepted, np.where(accepted, 1.0, weight))
        return cls(coefficients, threshold, least, most)

    def more(self, step: Drafted) -> bool:
        if step.size == 0:
            self._survives = 1.0
            return True
        self._survives *= _probability(self.coefficients, step)
        if step.size < self.least:
            return True
        return step.size < self.most and 1.0 - self._survives <= self.threshold


@dataclass
class Disco(Policy):
    """Stop after the first token whose predicted probability of acceptance is below `threshold`.

    DISCO (Mamou et al., arXiv 2405.04304) applies a classifier after each drafted token to the draft's
    probabilities, its entropy and the position in the step; tokens after a rejected one count as rejected.
    The classifier there has two layers; here it is a logistic model with log(position) as a further input.
    The default threshold is specsim's."""

    coefficients: tuple[float, ...]
    threshold: float = 0.5
    most: int = 16

    counts, probabilities = ("most",), ("threshold",)

    def __str__(self) -> str:
        return f"DISCO {self.threshold:g}"

    @classmethod
    def fit(cls, train: DraftLog, threshold: float = 0.5, most: int = 16) -> Disco:
        """Fit on drafts of `most` tokens at every position of `train`, rejected tokens included."""
        check_count("most", most)
        found = examples(train, most)
        position = np.broadcast_to(np.arange(most), found.features.top.shape)
        inputs = _inputs(Features(*(column.ravel() for column in found.features)))
        accepted = (position < found.accepted[:, None]).ravel()
        coefficients = logistic(np.column_stack([inputs, np.log1p(position.ravel())]), accepted)
        return cls(coefficients, threshold, most)

    def more(self, step: Drafted) -> bool:
        if step.size == 0:
            return True
        likely = _probability(self.coefficients, step, math.log(step.size)) >= self.threshold
        return likely and step.size < self.most


@dataclass
class AdaEagle(Policy):
    """Predict the accepted length at the beginning of the step, and draft that many tokens, 1 to `most`.

    AdaEAGLE (arXiv 2412.18910) predicts it from the hidden state before drafting with a network of three
    layers. Here the draft's first row and token replace that state, so that one token is always drafted, and
    the prediction is linear in their features, the squares of these, and the accepted length of the last
    step. The overhead counts once per step."""

    coefficients: tuple[float, ...]
    most: int = 16

    counts = ("most",)

    def __str__(self) -> str:
        return "AdaEAGLE"

    @classmethod
    def fit(cls, train: DraftLog, most: int = 16) -> AdaEagle:
        """Fit on consecutive steps of `most` drafted tokens along `train`."""
        check_count("most", most)
        found = examples(train, most)
        starts, start, before = [], 0, [0]
        while start < len(found.accepted):
            starts.append(start)
            before.append(int(found.accepted[start]))
            start += before[-1] + 1
        first = Features(*(column[starts, 0] for column in found.features))
        x = _inputs(first)
        inputs = np.column_stack([x, x * x, before[:-1]])
        return cls(least_squares(inputs, found.accepted[starts].astype(np.float64)), most)

    def reset(self, cost: StepCost) -> None:
        self._before = 0
        self._length = 1

    def more(self, step: Drafted) -> bool:
        if step.size == 0:
            return True
        if step.size == 1:
            x = (math.log(step.confidence[0]), step.entropy[0], math.log(step.top[0]))
            terms = (*x, *(value * value for value in x), self._before)
            intercept, *slopes = self.coefficients
            length = intercept + sum(slope * term for slope, term in zip(slopes, terms, strict=True))
            self._length = min(max(round(length), 1), self.most)
        return step.size < self._length

    def learn(self, step: Drafted, accepted: int) -> None:
        self._before = accepted

    def decision_time(self, drafted: int) -> float:
        return self.overhead
