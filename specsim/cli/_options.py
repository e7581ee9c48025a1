"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter


def whole(kind: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """Convert an integer; 1.5 is an error, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


def shard_of(text: str) -> tuple[int, int]:
    """Parse a shard: "2/8" is (2, 8)."""
    i, slash, n = text.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal()):
        raise ValueError(f"shard: {text!r} is not of the form i/n, such as 0/8")
    return int(i), int(n)


Seed = Annotated[
    int | None, Parameter(converter=whole, help="Seed; the same seed gives the same counts. Default: random.")
]
Threads = Annotated[
    int | None, Parameter(converter=whole, help="Threads; default: all cores. Results do not depend on it.")
]
Executor = Annotated[
    str | None,
    Parameter(
        help="Executor: threads (default), processes, dask (local processes, as many as --threads), or the "
        "address of a Dask scheduler, tcp://host:8786. Results do not depend on it."
    ),
]
Checkpoint = Annotated[
    Path | None,
    Parameter(
        name=["--checkpoint", "--out"],
        help="File that stores the counts every minute and at the end; if it exists, continue from it.",
    ),
]
CheckpointSeconds = Annotated[
    float, Parameter(help="With --checkpoint: store the counts that often, in seconds.")
]
Shard = Annotated[
    str | None,
    Parameter(
        help="i/n: count only part i of n (from 0) into the file --out; 'specsim merge' adds the parts."
    ),
]
SourceName = Annotated[
    str,
    Parameter(
        help="Source of p and q: 'ngram' (the bundled pair), a synthetic kind (zipf, geometric, dirichlet, "
        "two-point, one-hot, near-equal, asymmetric), an .npz file of models, or the folder of a trace."
    ),
]
Models = Annotated[str, Parameter(help="'ngram' (the bundled pair), or an .npz file of models.")]
VocabSize = Annotated[int, Parameter(converter=whole, help="Vocabulary size of a synthetic pair.")]
Overlap = Annotated[float, Parameter(help="Σ min(p, q) of a synthetic pair, from 0 to 1.")]
Level = Annotated[str, Parameter(help="Number of steps: smoke, quick, standard or deep.")]
Gamma = Annotated[int, Parameter(converter=whole, help="Drafted tokens per step.")]
Rule = Annotated[
    str,
    Parameter(help="Verification rule, with parameters if any: lenience:lenience=0.5; see 'specsim rules'."),
]
Widths = Annotated[
    str | None,
    Parameter(
        name="--tree", help="Draft a tree: number of children at each depth, such as 4,2,1. Default: a chain."
    ),
]
Drawing = Annotated[
    str | None,
    Parameter(
        help="How siblings are drawn: sampled, 'without replacement', top or 'top and sample'. Default: the "
        "first method of the rule."
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Folder = Annotated[Path | None, Parameter(help="Folder of the trace; default: the bundled one.")]
Dtype = Annotated[str, Parameter(help="dtype of stored rows: float32, float16 or bfloat16.")]
#: The option c, which is required in some commands.
RATIO = Parameter(name="--c", help="Ratio of the times of a draft's and a target's forward pass.")
CHat = Annotated[
    float | None, Parameter(name="--c-hat", help="The same ratio for arithmetic operations; default: c.")
]
Most = Annotated[int, Parameter(converter=whole, help="Largest γ to consider.")]
