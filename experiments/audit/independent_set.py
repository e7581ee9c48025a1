"""Mistakes of authors who have not seen the battery: what audits find of them, and what engines' tests find.

The verdicts of audits are those of the first run on each set, at level quick, before anybody who works on the
battery had read it. Here each verifier is run through the criteria of engines (see `kill_matrix`)."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from experiments import Row
from experiments.audit._criteria import Criterion, criteria
from experiments.audit._independent import FOUND, module_of, subjects

TITLE = "Mistakes of authors who have not seen the battery, found by audits and by engines' tests"
MINUTES = 15

#: Total variations between which subjects are counted together.
BANDS = (0.0, 0.02, 0.05, 0.1, 0.3, 1.01)
#: The criteria that are run: the other one takes minutes for a verifier.
CRITERIA = tuple(one for one in criteria() if one.name != "vLLM V2 wide")
FAST_SUBJECTS = ("first:lenience_090", "first:right_onehot_target_shortcut")


def cells(*, fast: bool) -> list[tuple[str]]:
    """(subject,)."""
    return [(name,) for name in subjects() if not fast or name in FAST_SUBJECTS]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """The first verdict on a subject, and which criteria pass it (None for a decoder)."""
    (subject,) = cell
    about = subjects()[subject]
    decoder, checks = about["kind"].endswith("decoder"), dict.fromkeys(one.name for one in CRITERIA)
    if not decoder:
        function = getattr(importlib.import_module(module_of(about["set"], about["kind"])), about["name"])
        checks = {one.name: _passes(one, function, rng) for one in CRITERIA}
    row = {"subject": subject, "set": about["set"], "kind": about["kind"], "tv": about["tv"]}
    return row | {"verdict": about["verdict"]} | checks


def _passes(criterion: Criterion, function: Any, rng: int) -> bool:
    try:
        return criterion.passes(function, np.random.default_rng([crc32(criterion.name.encode()), rng]))
    except Exception:  # of whatever kind: a test that raises is a test that fails
        return False


def page(rows: Sequence[Row]) -> str:
    """docs/results/independent-set.md."""
    text = (
        "Authors who had seen neither the battery nor the catalogue of known mistakes wrote wrong verifiers "
        "and decoders, and right ones, from the contract alone (`tests/independent`). TV is the total "
        "variation of a mistake in the shape that it shows in, as its author measured it. The verdicts are "
        "those of the first audits, at level quick, before anybody who works on the battery had read a set: "
        "they measure power on unseen mistakes. What was missed has been read since, and cases were added "
        "for it, so that the code as it is finds more of the first two sets."
    )
    lines = ["# Mistakes of independent authors", "", *textwrap.wrap(text, 118), ""]
    lines += ["`make independent` computes this table again; its rows are in `experiments/kept`.", ""]
    lines += ["| set | kind | TV | audited | found |", "|---|---|---|---|---|"]
    for each, kind in dict.fromkeys((row["set"], row["kind"]) for row in rows):
        some = [row for row in rows if (row["set"], row["kind"]) == (each, kind) and row["verdict"]]
        for low, high in pairwise(BANDS) if kind.startswith("wrong") else [(0.0, 1.01)]:
            here = [row for row in some if low <= (row["tv"] or 0.0) < high]
            if here:
                band = f"{low:g} to {min(high, 1.0):g}" if kind.startswith("wrong") else "0"
                lines.append(f"| {each} | {kind} | {band} | {len(here)} | {len(_found(here))} |")
    lines += ["", *textwrap.wrap(_summary(rows), 118), ""]
    text = (
        "Each criterion that engines keep (see [kill-matrix.md](kill-matrix.md)), run once on each verifier, "
        f"misses so many of the wrong ones with a TV of at least {BANDS[1]:g}, and fails so many right ones. "
        "*All together* misses what each of them misses:"
    )
    lines += [*textwrap.wrap(text, 118), "", "| test | misses | of | fails | of |", "|---|---|---|---|---|"]
    wrong, right = _verifiers(rows)
    names = [one.name for one in CRITERIA]
    missed = {name: (sum(row[name] for row in wrong), sum(not row[name] for row in right)) for name in names}
    passes = (
        [[row[name] for name in names] for row in wrong],
        [[row[name] for name in names] for row in right],
    )
    missed["all together"] = sum(map(all, passes[0])), sum(not all(one) for one in passes[1])
    missed["specsim audit, first run"] = len(wrong) - len(_found(wrong)), len(_found(right))
    lines += [
        f"| {name} | {misses} | {len(wrong)} | {fails} | {len(right)} |"
        for name, (misses, fails) in missed.items()
    ]
    return "\n".join(lines) + "\n"


def _found(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] in FOUND]


def _verifiers(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The wrong verifiers of a total variation that counts, and the right ones, if they were audited."""
    audited = [row for row in rows if row["verdict"]]
    return (
        [row for row in audited if row["kind"] == "wrong verifier" and row["tv"] >= BANDS[1]],
        [row for row in audited if row["kind"] == "right verifier"],
    )


def _summary(rows: Sequence[Row]) -> str:
    """Of each set, how many of the mistakes that count were found, and of the right ones."""
    said = []
    for each in dict.fromkeys(row["set"] for row in rows):
        some = [row for row in rows if row["set"] == each and row["verdict"]]
        parts = []
        for kind in ("verifiers", "decoders"):
            wrong = [row for row in some if row["kind"] == f"wrong {kind[:-1]}" and row["tv"] >= BANDS[1]]
            if wrong:
                share = len(_found(wrong)) / len(wrong)
                parts.append(f"{len(_found(wrong))} of {len(wrong)} wrong {kind} ({share:.1%})")
        right = [row for row in some if row["kind"].startswith("right")]
        said.append(
            f"the {each} set: {' and '.join(parts)}, and {len(_found(right))} of {len(right)} right ones"
        )
    return f"Found of those with a TV of at least {BANDS[1]:g}, by the first audits: of {'; of '.join(said)}."
