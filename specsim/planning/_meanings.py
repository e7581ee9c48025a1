"""Acceptance as engines print it, as rates of tested tokens, the α of plans and servers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from specsim.core._arguments import checked
from specsim.core._checks import check_count
from specsim.core._numbers import real
from specsim.core._types import Floats
from specsim.planning._costs import MOST_GAMMA
from specsim.served._feasible import Value, read
from specsim.served._meanings import independent_alpha

#: Numbers are [value, least, most]; of one that divides or is subtracted, the ends change places.
OTHER = [0, 2, 1]


def printed(name: str, value: Value) -> Floats:
    """A number as printed, whose last digit is rounded; a rate also as accepted/drafted, such as "3.20/7"."""
    above, slash, below = str(value).partition("/")
    if not (slash and name == "acceptance_rate"):
        low, high = read(name, value)
        return np.array([real(str(value)), low, high])
    drafted = real(below)
    found = printed("tokens_per_step", above) / drafted if drafted > 0.0 else np.full(3, 2.0)
    if found[0] > 1.0:
        raise ValueError(f"{name}: {value} is outside [0, 1]; give accepted/drafted")
    return found


class Alpha(NamedTuple):
    """Accepted / tested tokens: one rate of independent tokens, or a rate for each position."""

    rates: float | tuple[float, ...]
    meaning: str  #: what was given, and what it says of α


@checked
def alpha_of(
    *,
    by_position: str | Sequence[Value] | None = None,
    acceptance_rate: Value | None = None,
    tokens_per_step: Value | None = None,
    gamma: int | None = None,
) -> Alpha:
    """Convert printed acceptance to α, accepted / tested tokens. Give one of the first three.

    A rate or a mean has the α of independent acceptances of one probability. `meaning` adds the least and the
    most that accepted / tested can be, whatever accepted lengths the steps have.

    Parameters
    ----------
    by_position : sequence or str
        For each position the share of all steps that accepted it, as numbers or as "0.8, 0.6".
    acceptance_rate : number or str
        Accepted / drafted, such as "51%", in steps of `gamma` drafted tokens.
    tokens_per_step : number or str
        Accepted tokens of a step and one more.
    gamma : int
        Drafted tokens per step, for a rate or a mean.

    Returns
    -------
    Alpha

    Raises
    ------
    ValueError
        For numbers that no steps have, and for none or several of the three.

    Examples
    --------
    >>> alpha_of(acceptance_rate="51%", gamma=3).meaning
    'acceptance rate 51% of γ 3: 2.53 tokens per step, α 0.6992 of tested tokens if independent
     (0.6024 to 0.7611 in any case)'
    >>> [round(alpha, 4) for alpha in alpha_of(by_position="0.766, 0.545").rates]
    [0.766, 0.7115]
    """
    if sum(one is not None for one in (by_position, acceptance_rate, tokens_per_step)) != 1:
        raise ValueError("by_position, acceptance_rate, tokens_per_step: give exactly one of them")
    if by_position is not None:
        shares = shares_of(by_position)
        alphas = tuple(later / earlier if earlier else 0.0 for earlier, later in pairwise((1.0, *shares)))
        first, last = (", ".join(f"{one:.4g}" for one in ones) for ones in (shares, alphas))
        said = f"accepted by position in {first} of all steps: {1 + sum(shares):.4g} tokens per step"
        return Alpha(alphas, f"{said}, α {last} of tested tokens")
    rate = tokens_per_step is None
    name, value = ("acceptance_rate", acceptance_rate) if rate else ("tokens_per_step", tokens_per_step)
    if value is None or gamma is None:
        raise ValueError(f"{name}: {value} has no α without the drafted tokens per step; give gamma")
    check_count("gamma", gamma, most=MOST_GAMMA)
    mean, low, high = printed(name, value) * gamma if rate else printed(name, value) - 1.0
    if not 0.0 <= mean <= gamma:
        raise ValueError(f"{name}: {value} is outside [1, {gamma + 1}] for gamma {gamma}; correct it")
    low, high = max(low, 0.0), min(high, gamma)
    least = low / (low + 1.0 - max(0.0, low - gamma + 1.0))  # as few drafts as possible are accepted whole
    most = high / (high + 1.0 - high / gamma)  # as many as possible
    alpha = independent_alpha(1.0 + mean, gamma)
    said = f"{name.replace('_', ' ')} {value} of γ {gamma}: {1 + mean:.4g} tokens per step"
    independent = f"α {alpha:.4f} of tested tokens if independent"
    return Alpha(alpha, f"{said}, {independent} ({least:.4g} to {most:.4g} in any case)")


def shares_of(by_position: str | Sequence[Value]) -> list[float]:
    """The printed shares of all steps that accepted each position. Raises ValueError for shares that rise."""
    texts = by_position.split(",") if isinstance(by_position, str) else by_position
    shares = [printed("by_position", text) for text in texts]
    for earlier, later in pairwise(shares):
        if later[0] > earlier[0]:
            rise = f"rises from {earlier[0]:g} to {later[0]:g}, which shares of all steps cannot"
            raise ValueError(f"by_position: {rise}; give rates of tested tokens as conditional")
    return [float(share[0]) for share in shares]
