"""Writes what is generated: specsim/data/rules.json, the table of rules in README.md, pictures and a table in docs/, and
the trace in specsim/data/ngram-trace.

Usage: python docs/regenerate.py, or make docs. The numbers are those of `specsim compare ngram --seed 1`; a test
computes them again, and records the beginning of the trace.
"""

import json
import shutil
from pathlib import Path

from experiments.published.recomputed import published
from specsim import default_pair
from specsim.core._plotting import save_figure
from specsim.core.distributions import synthetic_pair
from specsim.recording import record
from specsim.simulation import acceptance_by_drafts, as_markdown, compare, shipped
from specsim.simulation._comparison_figures import drafts_figure, pareto_figure
from specsim.traces._example import SHIPPED

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"


def told(done: int, total: int) -> None:
    print(f"\r{done}/{total}", end="" if done < total else "\n", flush=True)


def with_table(readme: str) -> str:
    """`readme` with the table of rules between its two marks as it should be."""
    before, _, rest = readme.partition(BEGIN)
    return before + BEGIN + "\n" + as_markdown(shipped()) + "\n" + END + rest.partition(END)[2]


def printed_numbers() -> str:
    """docs/published.md: every printed number beside what can be recomputed of it."""
    lines = [
        "# Printed numbers, and what can be recomputed of them",
        "",
        "Numbers of papers on verification, as printed, beside what follows from other printed numbers or from an example",
        "that needs no model (`experiments.published.recomputed`). *reproduced*: the recomputed value rounds to the printed one;",
        "*within rounding*: it does for some inputs that round to the printed inputs, or the numbers satisfy, up to",
        "rounding, what any such numbers must; *not reproducible*: for none; *inputs unavailable*: it takes the models.",
        "",
        "| arXiv | where | quantity | printed | recomputed | difference | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in published():
        shown = ["–" if value is None else f"{value:.4f}" for value in (row.recomputed, row.difference)]
        verdict = f"{row.verdict}{f' ({row.note})' if row.note else ''}"
        cells = [row.paper, row.where, row.quantity, row.published, *shown, verdict]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    (ROOT / "docs/published.md").write_text(printed_numbers(), encoding="utf-8")
    pair = default_pair()
    shutil.rmtree(SHIPPED, ignore_errors=True)
    record(SHIPPED, *pair, gamma=4, steps=768, dtype="float16", top=16, rng=1, progress=told)
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
