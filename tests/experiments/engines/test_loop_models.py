"""Models in the form of Hugging Face's: with a cache and without, the same rows; a wrong cache is seen. Models
whose ids are raised, for loops that give the lowest ids a meaning of their own."""

import numpy as np
import pytest
from engine_laws import markov_pair

from experiments.engines._models import NoProgress, Shifted, Stateless, TupleCached, log_rows
from specsim.adapters._engines import last_rows

torch = pytest.importorskip("torch")

TEXT = torch.tensor([[0, 1, 3, 2, 1]])


@pytest.fixture
def model():
    return markov_pair(order=2)[0]


def rows_of(model):
    with np.errstate(divide="ignore"):
        return np.log(model.rows([[0, 1], [1, 3], [3, 2], [2, 1]])).astype(np.float32)


def test_rows_without_a_cache(model):
    answer = Stateless(model)(TEXT, use_cache=False)
    assert answer.logits.dtype == torch.float32
    assert np.allclose(answer.logits[0, 1:].numpy(), rows_of(model))
    assert answer.past_key_values is None
    assert torch.equal(log_rows(model, [0, 1, 3], 2), answer.logits[0, 1:3])


def test_rows_with_a_cache(model):
    cached, whole = TupleCached(model), Stateless(model)(TEXT).logits
    first = cached(TEXT[:, :3])
    rest = cached(TEXT[:, 3:], past_key_values=first.past_key_values, use_cache=True)
    assert torch.equal(torch.cat([first.logits, rest.logits], dim=1), whole)
    assert rest.past_key_values[0][0].shape == (1, 1, 5, 1)


def test_a_text_that_is_handed_over_twice_is_seen(model):
    cached = TupleCached(model)
    again = cached(TEXT, past_key_values=cached(TEXT).past_key_values)
    assert not torch.equal(again.logits[0, 0], Stateless(model)(TEXT).logits[0, 0])


def test_a_progress_bar_that_shows_nothing(capsys):
    with NoProgress(total=3, desc="text") as bar:
        bar.update(2 - bar.n)
    assert capsys.readouterr() == ("", "")


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
