"""Writes docs/claims.md: the claims of five documents on speculative decoding, and the verdict of a check of each.

Usage: python docs/claims.py, or make docs.
"""

from pathlib import Path

from experiments.claims import run
from experiments.claims.page import page

PAGE = Path(__file__).with_name("claims.md")


if __name__ == "__main__":
    PAGE.write_text(page(run()), encoding="utf-8")
