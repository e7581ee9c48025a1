import numpy as np
import pytest

from specsim.rules._common.sorting import stable_order


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("values", [1, 3, 10**6])
def test_a_stable_order(size, values):
    keys = np.random.default_rng(size).integers(values, size=size).astype(np.float64)
    np.testing.assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))
