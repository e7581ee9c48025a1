"""The probability of counts under the law that a hypothesis predicts, and under laws that are near to it.

Counts come in groups, each drawn from a law of its own: the outcomes of one drafted path, the tokens after
one prefix. A law that was simulated, or is only near another one, has a Dirichlet distribution, and the
counts of it the Dirichlet-multinomial. Multinomial coefficients are the same for all, and left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from specsim.core._types import Floats, Ints

#: Total variations at which laws are near another one.
NEAR = (0.01, 0.03, 0.1, 0.3)
#: The probability that a group differs, where another mistake shows in a few of so many groups at least that
#: have so many counts: in rarer ones nothing would show.
SPARSE, MANY, OFTEN = 0.1, 20, 100
#: The share of its distance that a law near another one may have anywhere, where the other has nothing too.
ANYWHERE = 0.1
#: The expected count below which cells of a group are merged before a prediction is tested.
MERGED = 20.0
#: The probability that stands for 0, so that rounding, or one count more, does not end everything.
LEAST = 1e-20


@dataclass(frozen=True)
class Prediction:
    """The law [groups, cells] of counts; `draws` [groups] are those that it was simulated with, if it was."""

    law: Floats
    draws: Ints | None = None

    @classmethod
    def simulated(cls, counts: Ints) -> "Prediction":
        """From counts [groups, cells]; the cells share what was not seen (Good and Turing's estimate)."""
        unseen = 1 + (counts == 1).sum(axis=1)
        draws = counts.sum(axis=1) + unseen
        return cls((counts + unseen[:, None] / counts.shape[1]) / draws[:, None], draws)


def log_likelihood(prediction: Prediction, counts: Ints) -> float:
    """log P(counts | prediction): multinomial for a law that is known, else Dirichlet-multinomial."""
    return float(_of_groups(prediction, counts).sum())


def _of_groups(prediction: Prediction, counts: Ints) -> Floats:
    law = np.maximum(prediction.law, LEAST)
    if prediction.draws is None:
        return scipy.special.xlogy(counts, law).sum(axis=1)
    return _dirichlet_multinomial(law, prediction.draws.astype(np.float64), counts)


def log_near(prediction: Prediction, counts: Ints, distances: Sequence[float] = NEAR) -> float:
    """log P(counts | the laws are near those of the prediction), the mean over the distances.

    A Dirichlet distribution of concentration k/4ε² has a mean total variation of about ε from its own mean, k
    the exponential of the entropy. Laws nearer to a simulated one than its noise are left out. In many
    groups, all may differ, or each one does with probability `SPARSE`, and one at least."""
    near = []
    for distance in distances:
        law = prediction.law + ANYWHERE * distance * (1.0 / counts.shape[1] - prediction.law)
        cells = np.exp(-scipy.special.xlogy(law, law).sum(axis=1))
        near.append((law, cells / (4.0 * distance**2)))
    noise = np.zeros(len(counts))
    if prediction.draws is not None:
        noise = 1.0 / prediction.draws
        near = [one for one in near if (one[1] < prediction.draws).mean() > 0.5] or near[-1:]
    others = [_dirichlet_multinomial(law, 1.0 / (1.0 / one + noise), counts) for law, one in near]
    found = [float(other.sum()) for other in others]
    often = counts.sum(axis=1) >= OFTEN
    if often.sum() >= MANY:
        own = _of_groups(prediction, counts)
        same = np.log(1.0 - SPARSE) + own[often]
        each = [np.logaddexp(same, np.log(SPARSE) + other[often]).sum() for other in others]
        with np.errstate(divide="ignore"):  # where none differs it is the law itself
            some = [one + np.log(-np.expm1(same.sum() - one)) for one in each]
        found += [float(one + own[~often].sum()) for one in some]
    return log_mean_exp(found)


def fit(tables: Sequence[tuple[Prediction, Ints]]) -> float:
    """The p-value of counts under their predictions: Pearson's test of all groups, and of the rare cells."""
    statistic, freedom, rare, expected_rare = 0.0, 0, 0, 0.0
    for prediction, counts in tables:
        n = counts.sum(axis=1)
        noise = np.ones(len(n)) if prediction.draws is None else 1.0 + n / prediction.draws
        for observed, expected, scale in zip(counts, n[:, None] * prediction.law, noise, strict=True):
            often = expected >= MERGED
            rare += int(observed[~often].sum())
            expected_rare += float(expected[~often].sum())
            if often.sum() < 2:
                continue
            cells = np.column_stack([observed[often], expected[often]])
            cells[cells[:, 1].argmin()] += observed[~often].sum(), expected[~often].sum()
            statistic += float(((cells[:, 0] - cells[:, 1]) ** 2 / cells[:, 1]).sum()) / scale
            freedom += len(cells) - 1
    large = float(scipy.stats.chi2.sf(statistic, freedom)) if freedom else 1.0
    return min(1.0, 2.0 * min(large, float(scipy.stats.poisson.sf(rare - 1, expected_rare))))


def log_mean_exp(logarithms: list[float], weights: Floats | None = None) -> float:
    """log of the mean of exp(logarithms), by default with equal weights; -inf of none."""
    if not logarithms:
        return -np.inf
    shares = np.full(len(logarithms), 1.0 / len(logarithms)) if weights is None else weights
    return float(scipy.special.logsumexp(logarithms, b=shares))


def _dirichlet_multinomial(mean: Floats, concentration: Floats, counts: Ints) -> Floats:
    gamma = scipy.special.gammaln
    n, weights = counts.sum(axis=1), mean * concentration[:, None]
    cells: Floats = (gamma(weights + counts) - gamma(weights)).sum(axis=1)
    return cells + gamma(concentration) - gamma(concentration + n)
