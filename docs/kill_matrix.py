"""Writes the kill matrix: specsim/data/kill_matrix.json, docs/kill-matrix.svg, and its table in README.md.

Usage: python docs/kill_matrix.py [--only NAME ...], or make kill-matrix. Every known-wrong verifier meets every published
criterion and specsim's own audit, which takes an hour; with --only some of them do, and the other rows are kept.
"""

import argparse
import json
from pathlib import Path

import specsim
from experiments.kill_matrix import KillMatrix, audit_criterion, kill_matrix, shipped
from experiments.kill_matrix.criteria import criteria
from figures._kill_matrix import matrix_figure
from specsim import rules
from specsim.core._plotting import save_figure

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- kill matrix: begin -->\n", "<!-- kill matrix: end -->\n"
LEVEL = "quick"


def told(done, total):
    print(f"\r{done}/{total}", end="" if done < total else "\n", flush=True)


def standard(draft_tokens, p, q, rng):
    """The built-in standard rule as a verifier."""
    return specsim.verify(draft_tokens, p, q, rng=rng).tokens


def with_table(readme: str, matrix: KillMatrix) -> str:
    """`readme` with the table of `matrix` between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    return before + BEGIN + "\n" + matrix.markdown() + "\n" + END + rest.partition(END)[2]


def write(matrix: KillMatrix, root: Path) -> None:
    """Write JSON, picture and table into the repository at `root`."""
    found = matrix.to_dict()
    found["provenance"]["seconds"] = 0.0  # so that nothing but the counts can change the file
    (root / "specsim/data/kill_matrix.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    save_figure(matrix_figure(matrix), root / "docs/kill-matrix.svg")
    readme = root / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), matrix), encoding="utf-8")


def main() -> None:
    from specsim.auditing import mutants

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these alone again")
    options = parser.parse_args()
    reference = mutants.Mutant(
        name="standard",
        family="Exact",
        mechanism="none: the standard rule of specsim",
        verify=standard,
        law=rules.get("standard").law,
    )
    wrong = [mutant for mutant in mutants.catalogue() if not options.only or mutant.name in options.only]
    matrix = kill_matrix(
        wrong,
        criteria(),
        exact=[] if options.only else [reference, *mutants.exact_controls()],
        level=LEVEL,
        decoder_audit=audit_criterion(LEVEL),
        progress=told,
    )
    write(shipped().with_rows_of(matrix) if options.only else matrix, ROOT)


if __name__ == "__main__":
    main()
