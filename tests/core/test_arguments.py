"""Arguments of other types are named, and calls that succeed are as they were."""

from collections.abc import Sequence
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import ArrayLike
from refused import refused, refuses

import specsim
from specsim import decoding, engines, planning
from specsim.core import distributions
from specsim.core._types import check_count, checked
from specsim.models import TableModel
from specsim.models._base import rows_ahead


@checked
def example(
    rows: ArrayLike, count: int = 2, share: float = 0.5, names: Sequence[str] = (), path: str | None = None
):
    """Fails in words that are not ours."""
    if path is not None:
        raise LookupError("somewhere inside")
    return np.asarray(rows, dtype=float)[:count].sum() * share, [name.upper() for name in names]


class Awkward:
    def __array__(self, *_, **__):
        raise RuntimeError("no array")


@refused(
    ({"rows": [[1], [1, 2]]}, "rows: rows differ in length"),
    ({"rows": Awkward()}, TypeError, "rows: expected an array, got Awkward"),
    ({"rows": "x"}, TypeError, "rows: expected an array of numbers, got str"),
    ({"rows": [1], "count": "x"}, TypeError, "count: expected an int, got str"),
    ({"rows": [1], "count": 1.5}, TypeError, "count: expected an int, got float"),
    ({"rows": [1], "share": [1]}, TypeError, "share: expected a number, got list"),
    ({"rows": [10**5000]}, "rows: an integer of more than 308 digits"),
    ({"rows": [1], "names": 3}, TypeError, "names: expected a sequence, each item a str, got int"),
    ({"rows": [1], "names": [3]}, TypeError, "names: expected a sequence, each item a str, got list"),
    ({"rows": [1], "names": range(10**12)}, TypeError, "names: expected a sequence, each item a str"),
    ({"rows": [1], "names": (x for x in [3])}, TypeError, "each item a str, got generator"),
    ({"rows": [1], "wrong": 3}, TypeError, "example: got an unexpected keyword argument 'wrong'"),
    ({"rows": [1], "path": "fine"}, LookupError, "somewhere inside"),
)
def test_what_made_a_call_fail_is_named(given):
    example(**given)


def test_counts_are_read_as_people_write_them(tmp_path):
    pair = [0.5, 0.5], [0.2, 0.8]
    runs = [specsim.simulate(*pair, steps=steps, rng=1) for steps in ("2e3", "2k", "2000", 2000)]
    assert {run.steps for run in runs} == {2000}
    cost = planning.preset("llama-8b")
    for call in (
        lambda text: specsim.simulate(*pair, steps=text),
        lambda text: specsim.compare(*pair, rules=["standard"], steps=text),
        lambda text: specsim.sweep(*pair, over={"gamma": [1]}, steps=text),
        lambda text: planning.compare_methods(*pair, steps=text),
        lambda text: specsim.acceptance_by_drafts(*pair, 2, steps=text),
        lambda text: decoding.record(tmp_path, *specsim.default_pair(), steps=text),
        lambda text: specsim.draft_log(*specsim.default_pair(), text),
        lambda text: planning.simulate_batch(cost, requests=text),
        lambda text: specsim.audit_engine("specsim", None, tokens=text),
        lambda text: engines.audit_matrix("specsim", None, tokens=text),
        lambda text: engines.compare_servers("one", "other", ["text"], tokens=text),
    ):
        refuses(r"^(steps|tokens|requests): 'many' is not a whole number; write", call, "many")
        refuses(r"^(steps|tokens|requests): 0 is not at least 1", call, "0")


def test_calls_that_succeed_are_not_looked_at():
    assert example([Fraction(1, 2), 1], np.int64(1), share=True) == (0.5, [])


def test_masked_entries_are_not_used_and_an_array_without_one_is_an_array():
    masked = np.ma.masked_array([0.5, 0.3, 0.2], [0, 0, 1])
    refuses("rows: 1 of 3 entries are masked; give a plain array", example, masked)
    refuses("rows: 1 of 3 entries are masked; give a plain array", example, rows=masked)
    assert distributions.check_rows(np.ma.masked_array([0.5, 0.5])).tolist() == [0.5, 0.5]
    assert example(np.ma.masked_array([1.0, 2.0], [0, 0]), 2) == (1.5, [])


def test_functions_context_managers_and_constructors_are_looked_at():
    @checked
    def of_rows(rows: ArrayLike):
        raise ValueError("rows: 3 is wrong")

    refuses("rows: 3 is wrong", of_rows, "x")

    @checked
    @contextmanager
    def manager(count: int):
        yield count

    with manager(3) as found:
        assert found == 3
    refuses("count: expected an int, got str", manager, "3", error=TypeError)

    @checked
    class Made:
        def __init__(self, count: int):
            self.count = count + 1

    assert Made(1).count == 2
    refuses("count: expected an int, got str", Made, "x", error=TypeError)


def test_a_count_is_an_integer_in_whatever_type():
    for given in (3, np.int8(3), np.array(3)):
        found = check_count("n", given)
        assert (found, type(found)) == (3, int)
    raising = type("Odd", (), {"__index__": lambda self: {}["odd"]})()
    for given in (True, np.True_, 3.0, np.array(3.0), np.array([3]), [3], "3", int, raising):
        refuses("n: expected an int, got", check_count, "n", given, error=TypeError)
    assert rows_ahead(TableModel([[0.0, 1.0], [0.5, 0.5]]), [[0]], ahead=np.array(1)).tolist() == [[0.5, 0.5]]


class Raises:
    """Whatever it is asked for."""

    def __getattr__(self, name):
        raise KeyError(name)

    def __index__(self):
        raise KeyError

    __fspath__ = __len__ = __float__ = __array__ = __iter__ = __index__


class Nowhere:
    def __fspath__(self, *_):
        return 3

    __getitem__ = __fspath__  # a sequence without an end


@pytest.mark.parametrize("call", [
    lambda value: specsim.simulate([0.5, 0.5], [0.8, 0.2], steps=value),
    lambda value: specsim.simulate(value, [0.8, 0.2]),
    lambda value: specsim.load(value),
    lambda value: specsim.merge([value]),
    lambda value: specsim.traces.truncate([0.5, 0.5], k=value),
    lambda value: specsim.models.NGramModel.train(value, 2),
    lambda value: specsim.models.Tree(value),
    lambda value: specsim.sample(specsim.models.TableModel([0.5, 0.5]), value, max_new_tokens=1),
])  # fmt: skip
def test_arguments_whose_methods_raise_are_named(call):
    for value in (Raises(), Nowhere()):
        refuses(r"^(steps|target|path|paths|k|texts|parents|prompt): ", call, value, error=TypeError)


def test_integers_of_numpy_do_not_overflow():
    few = {"requests": 400, "rng": 1}
    cost, lookup = planning.preset("llama-8b"), specsim.models.PromptLookup([0, 1, 0, 1], np.uint8(200))
    assert planning.simulate_batch(cost, max_batch=np.uint8(4), **few) == planning.simulate_batch(
        cost, max_batch=4, **few
    )
    assert type(lookup.max_ngram) is int
    assert type(planning.PassTime(per_token=Fraction(1, 2)).per_token) is float
