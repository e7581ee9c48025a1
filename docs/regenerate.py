"""Writes what is generated: specsim/data/rules.json, the table of rules in README.md, and the pictures in docs/.

Usage: python docs/regenerate.py, or make docs. The numbers are those of `specsim compare ngram --seed 1`; a test
computes them again.
"""

import json
from pathlib import Path

from specsim import default_pair
from specsim.comparing import acceptance_by_drafts, as_markdown, compare, shipped
from specsim.comparing.figures import drafts_figure, pareto_figure
from specsim.distributions import synthetic_pair
from specsim.plotting import save_figure

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"


def told(done: int, total: int) -> None:
    print(f"\r{done}/{total}", end="" if done < total else "\n", flush=True)


def with_table(readme: str) -> str:
    """`readme` with the table of rules between its two marks as it should be."""
    before, _, rest = readme.partition(BEGIN)
    return before + BEGIN + "\n" + as_markdown(shipped()) + "\n" + END + rest.partition(END)[2]


def main() -> None:
    pair = default_pair()
    found = compare(*pair, rng=1, progress=told).to_dict()
    found["provenance"]["seconds"] = 0.0  # so that nothing but the counts can change the file
    (ROOT / "specsim/data/rules.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
    swept = compare(*pair, sweep=True, steps=2**14, rng=1, progress=told)
    save_figure(pareto_figure(swept), ROOT / "docs/pareto.svg")
    p, q = synthetic_pair("zipf", 1000, 0.7)
    acceptance = acceptance_by_drafts(p, q, rng=1)
    save_figure(
        drafts_figure(acceptance, "Zipf pair, V = 1,000, Σ min(p, q) = 0.7"), ROOT / "docs/drafts.svg"
    )


if __name__ == "__main__":
    main()
