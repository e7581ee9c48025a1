"""Models whose ids are raised, for loops that give the lowest ids a meaning of their own."""

import numpy as np
from engine_laws import markov_pair

from experiments.engines._models import Shifted
from specsim.adapters._engines import last_rows


def test_ids_that_are_raised():
    model, _ = markov_pair()
    shifted = Shifted(model, 3)
    row = np.asarray(model.row([1]))
    assert np.array_equal(shifted.rows([[4]]), [[0, 0, 0, *row]])
    assert [shifted.down(shifted.up(token)) for token in range(4)] == list(range(4))

    ending = Shifted(model, 3, eos=2, eos_id=1)
    assert np.array_equal(ending.rows([[4]]), [[0, row[2], 0, row[0], row[1], 0, row[3]]])
    assert np.array_equal(ending.rows([[1]])[0, [3, 4, 1, 6]], model.row([2]))
    assert [ending.up(token) for token in range(4)] == [3, 4, 1, 6]
    assert [ending.down(ending.up(token)) for token in range(4)] == list(range(4))
    assert np.array_equal(last_rows(ending, [3, 1], 1), ending.rows([[1]]))
