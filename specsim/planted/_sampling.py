"""How the rows of a model are processed before a token is drawn."""

from specsim.core._types import Floats
from specsim.core.distributions import min_p, temperature, top_k, top_p
from specsim.planted._engines._requests import Sampling


def processed(rows: Floats, sampling: Sampling) -> Floats:
    """`rows` [..., V] after temperature, top-k, top-p and min-p, in this order, as in transformers.

    Each of them works on what the one before left, renormalised."""
    if sampling.temperature != 1.0:
        rows = temperature(rows, sampling.temperature)
    return truncated(rows, sampling)


def truncated(rows: Floats, sampling: Sampling) -> Floats:
    """`rows` [..., V] after top-k, top-p and min-p."""
    if sampling.top_k is not None:
        rows = top_k(rows, sampling.top_k)
    if sampling.top_p != 1.0:
        rows = top_p(rows, sampling.top_p)
    if sampling.min_p != 0.0:
        rows = min_p(rows, sampling.min_p)
    return rows


def check_sampling(sampling: Sampling) -> None:
    """Raise ValueError, naming the parameter and its range, for a value that has no meaning."""
    top = sampling.top_k
    for name, value, good, wanted in (
        ("temperature", sampling.temperature, 0.0 <= sampling.temperature <= 1e6, "in [0, 1000000]"),
        ("top_k", top, top is None or top >= 1, "at least 1, or None"),
        ("top_p", sampling.top_p, 0.0 < sampling.top_p <= 1.0, "in (0, 1]"),
        ("min_p", sampling.min_p, 0.0 <= sampling.min_p <= 1.0, "in [0, 1]"),
        ("stop", sampling.stop, all(sampling.stop), "strings that are not empty"),
        ("logprobs", sampling.logprobs, (sampling.logprobs or 0) >= 0, "at least 0, or None"),
    ):
        if not good:
            raise ValueError(f"{name}: {value!r} is not {wanted}")
