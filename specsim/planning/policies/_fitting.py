"""Fitting of learned policies: ROC thresholds, logistic regression, least squares, and training examples."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Floats, Ints
from specsim.planning.policies._log import UNKNOWN, DraftLog, Features

#: Keeps coefficients finite if the classes are separable, or there is only one.
RIDGE = 1e-3


def roc_threshold(scores: Sequence[float], outcomes: Sequence[bool]) -> float:
    """The largest score s with the least FPR + 3·FNR, if scores ≥ s are predicted to be accepted.

    `outcomes` must have both values. Equals `argmin(fpr + 3 * fnr)` over `sklearn.metrics.roc_curve` in
    Hugging Face's refit.

    >>> roc_threshold([0.9, 0.8, 0.7, 0.2], [True, True, False, False])
    0.8
    """
    values, labels = np.asarray(scores), np.asarray(outcomes, dtype=np.int64)
    order = np.argsort(-values, kind="stable")
    values, labels = values[order], labels[order]
    hits = np.cumsum(labels)
    misses = np.arange(1, len(labels) + 1) - hits
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of each run of equal scores
    costs = misses[last] / misses[-1] + 3.0 * (1 - hits[last] / hits[-1])
    return float(values[last[np.argmin(costs)]])


def logistic(inputs: Floats, labels: NDArray[np.bool_], weights: Floats | None = None) -> tuple[float, ...]:
    """(intercept, coefficients) of P(label) = 1/(1 + exp(-z)), z linear in `inputs` [n, k]; with a ridge."""
    from scipy.optimize import minimize
    from scipy.special import expit

    design, unscale = _standardise(inputs)
    share = np.ones(len(inputs)) if weights is None else weights
    share = share / share.sum()

    def loss(w: Floats) -> tuple[float, Floats]:
        z = design @ w
        # log(1 + e^z) - label·z, without overflow
        value = share @ (np.logaddexp(0.0, z) - labels * z) + RIDGE * (w @ w) / 2
        return float(value), design.T @ (share * (expit(z) - labels)) + RIDGE * w

    return unscale(minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x)


def least_squares(inputs: Floats, values: Floats) -> tuple[float, ...]:
    """(intercept, coefficients) of the linear function of `inputs` [n, k] closest to `values` [n]."""
    design, unscale = _standardise(inputs)
    return unscale(np.linalg.lstsq(design, values, rcond=1e-9)[0])


def _standardise(inputs: Floats) -> tuple[Floats, Callable[[Any], tuple[float, ...]]]:
    """Ones and the standardised inputs, and the map of their coefficients to those of `inputs`."""
    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-12)

    def unscale(w: Floats) -> tuple[float, ...]:
        slopes = w[1:] / scale
        return float(w[0] - slopes @ mean), *slopes.tolist()

    return np.column_stack([np.ones(len(inputs)), (inputs - mean) / scale]), unscale


class Examples(NamedTuple):
    """Drafts of one length from S positions of a log, rejected tokens included."""

    features: Features  #: [S, length]
    accepted: Ints  #: [S] how many were


def examples(train: DraftLog, length: int) -> Examples:
    """The features and accepted lengths of steps of `length` drafted tokens at each position where one fits.

    Raises ValueError for a log that is too short, or whose tails are."""
    if (train.accepted == UNKNOWN).any():
        raise ValueError("train: a log made from a trace lacks tails; draw one with draft_log")
    if train.ahead + 1 < length:
        raise ValueError(
            f"train: the log has {train.ahead} tokens after a rejected one, {length} drafted tokens may need "
            f"{length - 1}; draw it with ahead={length - 1}"
        )
    starts = np.arange(len(train) - length + 1)
    if starts.size == 0:
        raise ValueError(f"train: {len(train)} positions; {length} drafted tokens need as many at least")
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
    return Examples(Features(*features), accepted)


def select_tested(train: DraftLog) -> tuple[Features, NDArray[np.bool_]]:
    """The features of the tested positions, and whether each was accepted. ValueError without any."""
    known = train.accepted != UNKNOWN
    if not known.any():
        raise ValueError("train: no position of the log was tested; give a longer one")
    return Features(*(column[known] for column in train.features)), train.accepted[known] == 1
