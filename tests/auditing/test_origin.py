"""Where a user's function comes from."""

import hashlib
import sys
from functools import partial, wraps
from pathlib import Path

import numpy as np
import pytest
import verifiers

from specsim.auditing._verifier.origin import LIBRARIES, LONGEST, Origin, import_places, origin_of

FILE = verifiers.__file__


class Verifier:
    def __call__(self, draft_tokens, p, q, rng): ...


class Strange:
    """Its attributes never end."""

    def __call__(self, draft_tokens, p, q, rng): ...

    def __getattr__(self, name):
        if name == "__wrapped__":
            return Strange()
        raise RuntimeError(name)


@wraps(verifiers.right)
def wrapped(*given):
    return verifiers.right(*given)


@pytest.mark.parametrize("function", [verifiers.right, wrapped, partial(partial(verifiers.right))])
def test_the_line_of_the_function_itself(function):
    found = origin_of(function)
    assert Path(found.file) == Path(FILE)
    lines = Path(FILE).read_text(encoding="utf-8").splitlines()
    assert lines[found.line - 1].startswith("def right(")
    assert found.digest == hashlib.sha256(Path(FILE).read_bytes()).hexdigest()
    assert found.libraries["numpy"] == np.__version__


def test_an_object_is_where_its_class_is():
    assert Path(origin_of(Verifier()).file) == Path(__file__)


@pytest.mark.parametrize("make", [lambda: len, Strange, lambda: eval("lambda *given: None")])
def test_what_has_no_source_is_of_no_line(make):
    found = origin_of(make())
    assert (found.line, found.digest) == (0, "")


GOOD = {"file": "a.py", "line": 3, "digest": "0f", "libraries": {"torch": "2.13.0"}}


def test_what_a_process_says_is_checked():
    assert Origin.told(GOOD) == Origin("a.py", 3, "0f", {"torch": "2.13.0"})
    for bad in (
        None,
        {},
        GOOD | {"file": 1},
        GOOD | {"libraries": {"torch": 2}},
        GOOD | {"file": "a" * (LONGEST + 1)},
        GOOD | {"libraries": {str(i): "1" for i in range(len(LIBRARIES) + 1)}},
        GOOD | {"line": "x"},
    ):
        with pytest.raises((TypeError, ValueError, KeyError)):
            Origin.told(bad)


def test_verifiers_are_found_from_a_working_folder_that_was_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert import_places() == [str(tmp_path), *sys.path]
    tmp_path.rmdir()
    assert import_places() == sys.path
