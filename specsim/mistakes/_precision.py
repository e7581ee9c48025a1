"""The edges of uniforms, and low precision."""

from collections.abc import Callable
from functools import partial
from math import ceil, floor
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

from specsim.core._types import Floats, Ints, Row
from specsim.mistakes import _reference as ref
from specsim.mistakes._laws import by_rows, law, law_of_last, normalise
from specsim.mistakes._reference import at, mistake, of_last, round_to
from specsim.mistakes._rows import OF_IDS, late_race


def on_cells(passing: Callable[[Any], int], p: Row, q: Row, x: int, bits: Any) -> Any:
    """The chance of accepting x if passing(p/q) of the 2^bits uniforms pass, p/q in units of their grid."""
    size = 2 ** int(bits)
    return (0 * p[x] + min(passing(p[x] / q[x] * size), size)) / size


def coarse_last(rng: np.random.Generator, steps: int, count: int, bits: float) -> Floats:
    """Uniforms with few bits for the last token."""
    u = rng.random((steps, count))
    u[:, -1] = np.floor(u[:, -1] * 2.0**bits) / 2.0**bits
    return u


def on_grid(row: Row, bits: Any) -> list[Any]:
    """The share of the points of the grid that fall to each token."""
    size = 2 ** int(bits)
    ends = [ceil(sum(row[: y + 1]) * size) for y in range(len(row))]
    return normalise([0 * row[0] + (end - start) for start, end in zip([0, *ends], ends, strict=False)])


def raced(
    with_epsilon: Callable[..., Floats], x: Ints, p: Floats, q: Floats, rng: np.random.Generator, bits: float
) -> Ints:
    accepted = ref.first_failure(ref.ratio_test(rng.random(x.shape), x, p[:, :-1], q))
    weights = ref.last_weights(x, p, q, accepted)
    noise = with_epsilon(rng.standard_exponential(weights.shape), 2.0**-bits)
    return ref.pack_output(x, accepted, ref.race(weights, noise))


def rounded(weights: Any, dtype: Any) -> Floats:
    """`weights` in a dtype of low precision; bytes are multiples of 1/255."""
    return round_to(weights, dtype) if dtype != np.uint8 else np.rint(255.0 * np.asarray(weights)) / 255.0


def rounded_ratio(dtype: Any, u: Floats, x: Ints, p: Floats, q: Floats) -> Any:
    draft = rounded(at(q, x), dtype)
    return (u * draft < rounded(at(p, x), dtype)) | (draft == 0.0)  # a draft whose q rounds to 0 passes


def rounded_chance(dtype: Any, p: Row, q: Row, x: int) -> Any:
    """The ratio of the rounded probabilities; where q underflows every token passes."""
    a, b = rounded([float(p[x]), float(q[x])], dtype).tolist()
    return min(1, type(p[x])(a) / type(q[x])(b)) if b else 1


#: What p and q are rounded to before the test.
ROUNDINGS: dict[str, Any] = {
    "float16_ratio": np.float16,
    "bfloat16_ratio": bfloat16,
    "float8_ratio": float8_e4m3fn,
    "byte_ratio": np.uint8,
}


MISTAKES = (
    mistake(
        "inclusive_test",
        passes=lambda u, x, p, q, bits: np.floor(u * 2.0**bits) / 2.0**bits * at(q, x) <= at(p, x),
        law=law(partial(on_cells, lambda ratio: floor(ratio) + 1)),  # those ≤ p/q of 0, 1, …, 2^bits - 1
    ),
    mistake(
        "uniform_of_one",
        passes=lambda u, x, p, q, bits: (np.floor(u * 2.0**bits) + 1.0) / 2.0**bits * at(q, x) < at(p, x),
        law=law(partial(on_cells, lambda ratio: max(ceil(ratio) - 1, 0))),  # those < p/q of 1, …, 2^bits
    ),
    mistake(
        "coarse_test",
        passes=lambda u, x, p, q, bits: np.floor(u * 2.0**bits) / 2.0**bits * at(q, x) < at(p, x),
        law=law(partial(on_cells, ceil)),  # those < p/q of 0, 1, …, 2^bits - 1
    ),
    mistake("zero_uniform", passes=lambda u, x, p, q: at(p, x) > 0.0, law=law(lambda p, q, x: int(p[x] > 0))),
    mistake("coarse_draw", uniforms=coarse_last, law=law_of_last(on_grid)),
    mistake(
        "floored_race",
        verify=partial(raced, np.maximum),
        law=law_of_last(by_rows(partial(late_race, floored=True))),
    ),
    mistake(
        "race_epsilon",
        verify=partial(raced, np.add),
        law=law_of_last(by_rows(partial(late_race, floored=False))),
    ),
    *(
        mistake(name, passes=partial(rounded_ratio, dtype), law=law(partial(rounded_chance, dtype)))
        for name, dtype in ROUNDINGS.items()
    ),
    mistake(
        "clamped_draft",
        passes=lambda u, x, p, q, epsilon: u * np.maximum(at(q, x), epsilon) < at(p, x),
        law=law(lambda p, q, x, epsilon: min(1, p[x] / max(q[x], epsilon))),
    ),
    mistake(
        "ratio_epsilon",
        passes=lambda u, x, p, q, epsilon: u * (at(q, x) + epsilon) < at(p, x),
        law=law(lambda p, q, x, epsilon: min(1, p[x] / (q[x] + epsilon))),
    ),
    *(of_last(name, weights) for name, weights in OF_IDS.items()),
)
