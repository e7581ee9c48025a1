"""DISCO, a policy that is fitted on a part of the log before it is simulated on another part."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.core._checks import check_count
from specsim.core._types import Floats, Ints
from specsim.planning._policies._log import UNKNOWN, DraftLog, Features
from specsim.planning._policies._policy import Drafted, Policy

#: Keeps coefficients finite if the classes are separable, or there is only one.
RIDGE = 1e-3


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
    from scipy.optimize import minimize
    from scipy.special import expit

    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-12)
    design = np.column_stack([np.ones(len(inputs)), (inputs - mean) / scale])
    share = np.full(len(inputs), 1.0 / len(inputs))

    def loss(w: Floats) -> tuple[float, Floats]:
        z = design @ w
        # log(1 + e^z) - label·z, without overflow
        value = share @ (np.logaddexp(0.0, z) - labels * z) + RIDGE * (w @ w) / 2
        return float(value), design.T @ (share * (expit(z) - labels)) + RIDGE * w

    w = minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x
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
