"""The sets of subjects of independent authors, in `tests/independent`.

The authors had seen neither the battery nor the catalogue of known mistakes, only the contract in
docs/auditing-your-engine.md. They wrote wrong verifiers and decoders, and right ones, and measured the total
variation of each mistake in the shape that it shows in. The verdicts that were found before anybody who works
on the battery had read a set are kept with it (`first.json` and so on): only they measure power on unseen
mistakes."""

from __future__ import annotations

import json
import sys
from functools import cache

from experiments import ROOT, Row

__all__ = ["FOLDER", "FOUND", "SETS", "first_verdicts", "module_of", "subjects"]

FOLDER = ROOT / "tests" / "independent"
#: The sets: the file of their first verdicts, and the module of each kind of subject.
SETS = {
    "first": {
        "wrong verifier": "wrong_verifiers",
        "right verifier": "right_verifiers",
        "wrong decoder": "wrong_decoders",
        "right decoder": "wrong_decoders",
    },
    "second": {
        "wrong verifier": "second_verifiers",
        "right verifier": "second_right",
        "wrong decoder": "second_decoders",
        "right decoder": "second_decoders",
    },
    "third": {
        "wrong verifier": "third_verifiers",
        "right verifier": "third_right",
        "wrong decoder": "third_decoders",
        "right decoder": "third_decoders",
    },
    "fourth": {
        "wrong verifier": "fourth_verifiers",
        "right verifier": "fourth_right",
        "wrong decoder": "fourth_decoders",
        "right decoder": "fourth_decoders",
    },
    "fifth": {
        "wrong decoder": "fifth_decoders",
        "right decoder": "fifth_decoders",
    },
    "sixth": {
        "wrong verifier": "sixth_verifiers",
        "right verifier": "sixth_right",
        "wrong decoder": "sixth_decoders",
        "right decoder": "sixth_decoders",
    },
}
#: Verdicts that find a mistake.
FOUND = ("biased", "broken")


@cache
def subjects() -> dict[str, Row]:
    """All subjects by set and name, as "set:name": their set, name, kind, total variation (None for a right
    one), and first verdict."""
    return {f"{each}:{row['name']}": {"set": each} | row for each in SETS for row in first_verdicts(each)}


def module_of(each: str, kind: str) -> str:
    """The module of a set's subjects of a kind, which can be imported from now on."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return SETS[each][kind]


def first_verdicts(each: str) -> list[Row]:
    """The kept verdicts of a set: name, kind, tv, verdict, case."""
    rows: list[Row] = json.loads((FOLDER / f"{each}.json").read_text(encoding="utf-8"))["rows"]
    return rows
