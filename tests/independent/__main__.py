"""Audit the verifiers and decoders of this folder at level quick: python tests/independent [--names] [NAME ...]

Their author had seen neither the battery nor the catalogue of known mistakes, only the contract in
docs/auditing-your-engine.md. `first.json` has the verdicts of the audits that were run before anybody who works
on the battery had read them, with the total variation of each mistake, as its author measured it in the shape
that it shows in. This program prints a line for each as the code is now; it takes an hour or two.

With `--names` the wrong ones are diagnosed too, and what was named is written to `diagnosed.json`. `names.json`
has the names of the catalogue that would be right for each, written before any of them was diagnosed.
`diagnosed_first.json` has the diagnoses before those who work on them had read the set, but for three that an
aborted run had shown; it and `diagnosed.json` are not complete."""

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


#: What `names.json` calls mistakes that the catalogue had no entry for when it was written.
ENTRIES = {
    "new: path that depends on place or shape of the call": {"unverified_rest"},
    "new: random numbers reused across steps": {"steps_share_uniforms", "tests_share_uniform"},
    "new: accept uniforms of few bits": {"coarse_test"},
    "new: ids through half precision": {"rounded_ids"},
    "new: text that differs from its cache": {"text_overwritten"},
    "new: greedy drafts judged as samples": {"greedy_draws"},
    "new: product of uniforms with the block residual": {"block_product_block_residual"},
}


def diagnosed(file="diagnosed.json"):
    """The kept diagnoses: name, verdict, kinds of findings, named (with probabilities), why unknown."""
    return json.loads((HERE / file).read_text())["rows"]


def scored(rows):
    """How many diagnoses there were, and how many names were right, wrong, missing, or rightly not given.

    A diagnosis is right if the first name is one of `names.json`; its word *dependent* stands for an unknown
    pattern of dependence."""
    allowed = json.loads((HERE / "names.json").read_text())["names"]
    counts = dict.fromkeys(("diagnosed", "named", "right", "wrong", "missing", "rightly unknown"), 0)
    for row in rows:
        if row["none"] is None:
            continue
        right = set().union(*(ENTRIES.get(name, {name}) for name in allowed[row["name"]]))
        first = row["named"][0][0].partition(":")[0] if row["named"] else None
        if first is None:
            dependent = "dependent" in right and "depend on each other" in row["reason"]
            outcome = "rightly unknown" if dependent or not right - {"dependent"} else "missing"
        else:
            counts["named"] += 1
            outcome = "right" if first in right else "wrong"
        counts["diagnosed"] += 1
        counts[outcome] += 1
    return counts


def chosen(names):
    """The rows of `first` of these names, by default all; their modules can be imported."""
    sys.path.insert(0, str(HERE))
    for row in first():
        if not names or row["name"] in names:
            importlib.import_module(module_of(row["kind"]))
            yield row


def diagnose(names, place):
    """Audit and diagnose the wrong ones, and write what was named to the file `place`, one by one.

    Only the case that showed it in `first.json` is audited, where that still fails. The diagnosis has no time
    limit, so that the names do not depend on the machine."""
    from specsim import audit
    from specsim.auditing._checks.contract_checks import PROMISES
    from specsim.auditing._diagnosis.diagnose import diagnose_failed
    from specsim.auditing._execution import open_execution

    rows = []
    for row in chosen(names):
        if row["kind"].startswith("right"):
            continue
        started = time.perf_counter()
        reference, found = f"{module_of(row['kind'])}:{row['name']}", None
        cases = [row["case"]] if row["case"] not in (None, PROMISES) else None
        result = audit(reference, "quick", rng=1, cases=cases, fail_fast=True, diagnose=False)
        if cases and not any(case.findings for case in result.cases):
            result = audit(reference, "quick", rng=1, fail_fast=True, diagnose=False)
        failed = [
            case for case in result.cases if case.findings and not case.broken and case.case != PROMISES
        ]
        if failed:
            with open_execution(reference, 1, 60.0) as execution:
                found = diagnose_failed(execution.subject, failed, "quick", 1)
        kinds = {finding.kind for case in result.cases for finding in case.findings}
        rows.append(
            {"name": row["name"], "verdict": str(result.verdict), "kinds": sorted(kinds)}
            | {"named": [], "none": None, "exact": None, "reason": ""}
        )
        if found is not None:
            named = [[one.name, float(f"{one.probability:.3g}")] for one in found.named]
            none, exact = (float(f"{value:.3g}") for value in (found.none, found.exact))
            rows[-1] |= {"named": named, "none": none, "exact": exact, "reason": found.reason}
        seconds = time.perf_counter() - started
        print(f"{row['name']:<44} {result.verdict:<12} {seconds:6.1f} s  {rows[-1]['named']}", flush=True)
        lines = ",\n".join(json.dumps(one) for one in rows)
        place.write_text(f'{{"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def main(names):
    from specsim import audit

    rows = []
    for row in chosen(names):
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
    if sys.argv[1:2] == ["--names"]:
        diagnose(sys.argv[2:], HERE / "diagnosed.json")
    else:
        main(sys.argv[1:])
