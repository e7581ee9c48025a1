"""How the rows of a model are processed before a token is drawn."""

from dataclasses import replace

from specsim.core._types import Floats
from specsim.core.distributions import min_p, normalise, temperature, top_k, top_p
from specsim.engines._planted.requests import Sampling

#: The orders of temperature and truncation that engines are known to use. In the last one top-k and top-p
#: each look at the same row, and what both keep is renormalised.
ORDERS = {
    "temperature, top-k, top-p, min-p": ("temperature", "top_k", "top_p", "min_p"),
    "temperature, min-p, top-k, top-p": ("temperature", "min_p", "top_k", "top_p"),
    "temperature, top-p, top-k, min-p": ("temperature", "top_p", "top_k", "min_p"),
    "top-k, top-p, min-p, temperature": ("top_k", "top_p", "min_p", "temperature"),
    "top-p, min-p, top-k, temperature": ("top_p", "min_p", "top_k", "temperature"),
    "temperature, top-k with top-p, min-p": ("temperature", "joint", "min_p"),
}
#: The order of transformers.
FIRST_ORDER = "temperature, top-k, top-p, min-p"


def processed(rows: Floats, sampling: Sampling, order: str = FIRST_ORDER) -> Floats:
    """`rows` [..., V] after temperature, top-k, top-p and min-p, in an order of `ORDERS`.

    Each of them works on what the one before left, renormalised."""
    for step in ORDERS[order]:
        if step == "temperature" and sampling.temperature != 1.0:
            rows = temperature(rows, sampling.temperature)
        elif step == "top_k" and sampling.top_k is not None:
            rows = top_k(rows, sampling.top_k)
        elif step == "top_p" and sampling.top_p != 1.0:
            rows = top_p(rows, sampling.top_p)
        elif step == "min_p" and sampling.min_p != 0.0:
            rows = min_p(rows, sampling.min_p)
        elif step == "joint":
            rows = _joint(rows, sampling)
    return rows


def _joint(rows: Floats, sampling: Sampling) -> Floats:
    """`rows` with the tokens that top-k and top-p both keep."""
    kept = top_p(rows, sampling.top_p) > 0.0
    if sampling.top_k is not None:
        kept &= top_k(rows, sampling.top_k) > 0.0
    return normalise(rows * kept)


def possible_orders(sampling: Sampling) -> list[str]:
    """The orders that can give different rows, the first one alone if at most one step does anything."""
    truncations = sampling.top_k is not None, sampling.top_p != 1.0, sampling.min_p != 0.0
    several = (sampling.temperature != 1.0) + sum(truncations) > 1
    return list(ORDERS) if several else [FIRST_ORDER]


def truncated(rows: Floats, sampling: Sampling) -> Floats:
    """`rows` [..., V] after top-k, top-p and min-p."""
    return processed(rows, replace(sampling, temperature=1.0))
