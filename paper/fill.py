"""Fills in the article: writes build/numbers.tex, every number of its text as a macro, and its tables beside
it.

Usage: python -m paper.fill [--fast], after make figures; with --fast, after make figures-fast.
"""

import argparse
import os
from pathlib import Path

from experiments import atomic_write
from paper.macros import macros
from paper.sources import Sources
from paper.tabulars import tabulars

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="from results/figures-fast")
    fast = parser.parse_args().fast
    figures = HERE.parent / "results" / ("figures-fast" if fast else "figures")
    (HERE / "build").mkdir(exist_ok=True)
    for name, content in filled(Sources(figures, fast)).items():
        with atomic_write(HERE / "build" / f"{name}.tex") as temporary:
            temporary.write_text(content, encoding="utf-8")


def filled(sources: Sources) -> dict[str, str]:
    """{name: content} of the files to write."""
    defined = [rf"\newcommand{{\{name}}}{{{value}}}" for name, value in macros(sources).items()]
    pictures = rf"\graphicspath{{{{{Path(os.path.relpath(sources.figures, HERE)).as_posix()}/}}}}"
    return {"numbers": "\n".join([pictures, *defined]) + "\n", **tabulars(sources)}


if __name__ == "__main__":
    main()
