"""Audit the verifiers and decoders of this folder at level quick: python tests/independent [NAME ...]

Their author had seen neither the battery nor the catalogue of known mistakes, only the contract in
docs/auditing-your-engine.md. `first.json` has the verdicts of the audits that were run before anybody who works
on the battery had read them, with the total variation of each mistake, as its author measured it in the shape
that it shows in. This program prints a line for each as the code is now; it takes an hour or two."""

import importlib
import json
import sys
import time
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
BANDS = (0.0, 0.02, 0.05, 0.1, 0.3, 1.01)
FOUND = ("biased", "broken")


def first():
    """The kept verdicts: name, kind, tv (None for a right one), verdict, case."""
    return json.loads((HERE / "first.json").read_text())["rows"]


def found(rows, kind, low=0.0, high=1.01):
    """(found, all) of the rows of a kind with a total variation in [low, high)."""
    some = [row for row in rows if row["kind"] == kind and (row["tv"] is None or low <= row["tv"] < high)]
    return sum(row["verdict"] in FOUND for row in some), len(some)


def table(rows):
    """How many of each kind were found, by total variation."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        bands = pairwise(BANDS)
        parts = [(low, high, *found(rows, kind, low, high)) for low, high in bands]
        if kind.startswith("right"):
            yield f"{kind}: {found(rows, kind)[0]} of {found(rows, kind)[1]} accused"
        else:
            yield f"{kind}: " + ", ".join(
                f"{a} of {n} in [{low:g}, {high:g})" for low, high, a, n in parts if n
            )


def module_of(kind):
    return {"wrong verifier": "wrong_verifiers", "right verifier": "right_verifiers"}.get(
        kind, "wrong_decoders"
    )


def main(names):
    from specsim import audit

    sys.path.insert(0, str(HERE))
    rows = []
    for row in first():
        if names and row["name"] not in names:
            continue
        importlib.import_module(module_of(row["kind"]))
        started = time.perf_counter()
        reference = f"{module_of(row['kind'])}:{row['name']}"
        right = row["kind"].startswith("right")
        result = audit(reference, "quick", rng=1, fail_fast=not right, diagnose=False)
        case = next((case.case for case in result.cases if case.findings), None)
        rows.append(row | {"verdict": str(result.verdict), "case": case})
        print(
            f"{row['name']:<44} {result.verdict:<12} {time.perf_counter() - started:6.1f} s  {case or ''}",
            flush=True,
        )
    print(*table(rows), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
