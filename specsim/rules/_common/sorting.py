"""Sorting in row kernels, on a CPU and on a GPU, for which numba has none."""

import numpy as np

from specsim.core._kernels import kernel


@kernel
def stable_order(keys):
    """The numbers of `keys` [n] by rising key, those of equal keys in their order: merged bottom up."""
    size, width = keys.size, 1
    order, merged = np.empty(size, np.int64), np.empty(size, np.int64)
    for k in range(size):
        order[k] = k
    while width < size:
        for begin in range(0, size, 2 * width):
            middle, end = min(begin + width, size), min(begin + 2 * width, size)
            i, j = begin, middle
            for k in range(begin, end):
                if i < middle and (j == end or keys[order[i]] <= keys[order[j]]):
                    merged[k] = order[i]
                    i += 1
                else:
                    merged[k] = order[j]
                    j += 1
        order, merged = merged, order
        width *= 2
    return order
