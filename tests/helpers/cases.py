"""Cases of tests that are plain data, in a file of JSON beside the test."""

import json
from pathlib import Path

import pytest


def data(file):
    """What is in the file of JSON beside a test."""
    return json.loads(Path(file).with_suffix(".json").read_text(encoding="utf-8"))


def cases(file, table, *more):
    """What pytest.mark.parametrize takes: the names in the first row of a table, and the rows below, and `more`.

    What a row has beyond the names is its id."""
    names, *rows = data(file)[table]
    own = [pytest.param(*row[: len(names)], id="".join(row[len(names) :]) or None) for row in rows]
    return names, [*own, *more]
