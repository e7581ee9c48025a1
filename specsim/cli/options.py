"""What several commands take, described once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

__all__ = [
    "Drawing",
    "Dtype",
    "Folder",
    "Gamma",
    "Json",
    "Level",
    "Overlap",
    "Rule",
    "Seed",
    "SourceName",
    "Threads",
    "VocabSize",
    "Widths",
    "whole",
]


def whole(kind: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """An integer as it was typed: 1.5 is refused, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


Seed = Annotated[
    int | None,
    Parameter(converter=whole, help="Seed; the same gives the same counts. Default: fresh entropy."),
]
Threads = Annotated[
    int | None, Parameter(converter=whole, help="Threads; default: all cores. They never change a result.")
]
SourceName = Annotated[
    str,
    Parameter(
        help="Where p and q come from: 'ngram' (the shipped pair), a synthetic kind (zipf, geometric, dirichlet, "
        "two-point, one-hot, near-equal, asymmetric), an .npz file of models, or the folder of a trace."
    ),
]
VocabSize = Annotated[int, Parameter(converter=whole, help="Vocabulary size of a synthetic pair.")]
Overlap = Annotated[float, Parameter(help="Σ min(p, q) of a synthetic pair, from 0 to 1.")]
Level = Annotated[str, Parameter(help="How many steps: smoke, quick, standard or deep.")]
Gamma = Annotated[int, Parameter(converter=whole, help="Drafted tokens per step.")]
Rule = Annotated[
    str,
    Parameter(help="Verification rule, with parameters if any: lenience:lenience=0.5; see 'specsim rules'."),
]
Widths = Annotated[
    str | None,
    Parameter(
        name="--tree",
        help="Draft a tree: children of every node at each depth, as in 4,2,1. Default: a chain.",
    ),
]
Drawing = Annotated[
    str | None,
    Parameter(
        help="How siblings are drawn: sampled, 'without replacement', top or 'top and sample'. Default: the first "
        "way that the rule names."
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Folder = Annotated[Path | None, Parameter(help="Folder of the trace; default: the shipped one.")]
Dtype = Annotated[str, Parameter(help="How rows are stored: float32, float16 or bfloat16.")]
