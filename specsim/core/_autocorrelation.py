"""Autocorrelation of series along a text."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._types import Floats


def autocorrelation(series: ArrayLike, lags: Iterable[int]) -> list[float]:
    """Σ x_t x_{t+k} / Σ x_t² of the centred `series` [N] at each lag k; 0 if it is constant."""
    x: Floats = np.asarray(series, dtype=np.float64)
    x = x - x.mean()
    total = float(x @ x) or 1.0
    return [float(x[:-lag] @ x[lag:]) / total for lag in lags]


def grouped_autocorrelation(
    series: ArrayLike, groups: ArrayLike, lags: Iterable[int]
) -> list[tuple[float, int]]:
    """Autocorrelation of several series, concatenated in `series` [N] and labelled by `groups` [N].

    NaN marks unknown values. For each lag: the mean of x_t x_{t+k} over the pairs within a group, relative to
    the mean of x_t² (0 without pairs), and the number of pairs."""
    x, belongs = np.asarray(series, dtype=np.float64), np.asarray(groups)
    known = np.isfinite(x)
    x = np.where(known, x - (x[known].mean() if known.any() else 0.0), 0.0)
    scale = float(x @ x) / max(1, int(known.sum())) or 1.0
    found = []
    for lag in lags:
        pairs = int((known[:-lag] & known[lag:] & (belongs[:-lag] == belongs[lag:])).sum())
        total = float(x[:-lag] @ np.where(belongs[:-lag] == belongs[lag:], x[lag:], 0.0))
        found.append((total / max(1, pairs) / scale, pairs))
    return found
