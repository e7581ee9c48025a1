"""What several commands take, described once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter


def whole(kind: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """An integer as it was typed: 1.5 is refused, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


def shard_of(text: str) -> tuple[int, int]:
    """A part of several: "2/8" is (2, 8)."""
    i, slash, n = text.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal()):
        raise ValueError(f"shard: {text!r} is not of the form i/n, such as 0/8")
    return int(i), int(n)


Seed = Annotated[
    int | None,
    Parameter(converter=whole, help="Seed; the same gives the same counts. Default: fresh entropy."),
]
Threads = Annotated[
    int | None, Parameter(converter=whole, help="Threads; default: all cores. They never change a result.")
]
Executor = Annotated[
    str | None,
    Parameter(
        help="Who counts: threads (the default), processes, dask (processes on this machine, as many as --threads), or the "
        "address of a Dask scheduler, tcp://host:8786. It never changes a result."
    ),
]
Checkpoint = Annotated[
    Path | None,
    Parameter(
        name=["--checkpoint", "--out"],
        help="File to keep what was counted in, every minute and at the end; if it is there already, go on from it.",
    ),
]
Shard = Annotated[
    str | None,
    Parameter(
        help="i/n: count part i of n alone, from 0 to n - 1, into the file --out; 'specsim merge' adds the parts up."
    ),
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
#: Of c, which some commands need and others may do without.
RATIO = Parameter(name="--c", help="Time of a draft's pass over that of the target's.")
CHat = Annotated[
    float | None, Parameter(name="--c-hat", help="The same for arithmetic operations; default: c.")
]
Most = Annotated[int, Parameter(converter=whole, help="Largest γ to consider.")]
