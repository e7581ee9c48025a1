"""`python -m benchmarks [NAME ...]`: run the benchmarks, all by default, and write results/bench.json."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks._page import PAGE, write_page
from benchmarks._report import Report

#: In the order in which they are run.
NAMES = ["engine", "fixed_pairs", "models", "proofs", "logs", "audits", "executors", "cuda"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("results/bench.json"))
    parser.add_argument("--keep", action="store_true", help=f"write what was measured to {PAGE} too")
    given = parser.parse_args()
    names = given.names or NAMES
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    report = Report()
    print(report.header(), flush=True)
    for name in names:
        print(f"\n{name}", flush=True)
        report.part = name
        import_module(f"benchmarks.{name}").measure(report)
        report.save(given.out)
    print(f"\n{given.out}")
    if given.keep:
        write_page(report.to_dict())


if __name__ == "__main__":
    main()
