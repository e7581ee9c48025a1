"""Writes docs/claims.md: what five documents on speculative decoding say, and what is found of it.

Usage: python docs/claims.py, or make docs.
"""

from pathlib import Path

from experiments.claims import as_markdown, run

PAGE = Path(__file__).with_name("claims.md")

INTRODUCTION = """# What is said of speculative decoding, and what is found

Every claim of five documents that a program can check, checked by `experiments.claims`: by enumeration in
fractions where it is about a law, by the closed forms where it is about speed, on the n-gram pair where it takes models.
The documents are a problem page, the documentation of a package, notes, an article and a long guide. p is the target and q
the draft, except in what the article prints, where the letters are swapped; TV is the total variation between the law of
what comes out and the one that should. *holds within rounding*: a printed number is the rounded one, or a law is right to
1e-9; *true only if …*: the condition stands in what was found.

"""


def page(rows):
    """The page made of the rows that `run` gives."""
    return INTRODUCTION + as_markdown(rows)


def told(done, total):
    print(f"\r{done}/{total}", end="" if done < total else "\n", flush=True)


if __name__ == "__main__":
    PAGE.write_text(page(run(progress=told)), encoding="utf-8")
