"""A call of a user's function as Python code that can be pasted, where its arrays are small."""

from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Declared

#: The most numbers in the arrays of a call that is shown.
MOST_NUMBERS = 100
#: An array of each library, from the code of a NumPy array.
_OF_LIBRARY = {"numpy": "{}", "torch": "torch.from_numpy({})", "jax": "jax.numpy.asarray({})"}


def call_as_code(
    function: Any, declared: Declared, seed: tuple[int, ...], inputs: list[Any], extras: dict[str, Any]
) -> list[str]:
    """The lines of a call with NumPy arrays `inputs`, a generator of that seed, and keyword arguments.

    No lines for a call that is too large, for arrays on other devices, and for bfloat16, of which NumPy has
    no arrays of its own."""
    name = getattr(function, "__qualname__", "")
    arrays = [value for value in (*inputs, *extras.values()) if isinstance(value, np.ndarray)]
    numbers = sum(array.size for array in arrays)
    named = name.replace(".", "_").isidentifier() and "<" not in name
    if not named or numbers > MOST_NUMBERS or any(array.dtype.kind not in "iuf" for array in arrays):
        return []
    if declared.device != "cpu":
        return []
    library = _OF_LIBRARY[declared.arrays]
    shown = [_value(value, library) for value in inputs] + [f"np.random.default_rng({list(seed)})"]
    shown += [f"{key}={_value(value, library)}" for key, value in extras.items()]
    lines = ["import numpy as np"]
    if declared.arrays != "numpy":
        lines.append(f"import {library.partition('.')[0]}" + ".numpy" * (declared.arrays == "jax"))
    if function.__module__ != "__main__":
        lines.append(f"from {function.__module__} import {name.partition('.')[0]}")
    return [*lines, f"{name}(", *(f"    {one}," for one in shown), ")"]


def _value(value: Any, library: str) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    numbers = np.array2string(value, separator=", ", floatmode="unique", threshold=MOST_NUMBERS + 1)
    return library.format(
        f"np.array({' '.join(numbers.split()).replace(' ,', ',')}, dtype={value.dtype.name!r})"
    )
