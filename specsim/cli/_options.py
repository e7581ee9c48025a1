"""Options that several commands share."""

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

#: What may stand behind a number.
SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9}


def exact(text: str) -> Fraction:
    """The number that `text` is, such as 12, 1e6, 10M or 80%. Raises ValueError for another text."""
    digits, factor = text.strip(), Fraction(1)
    if digits.endswith("%"):
        digits, factor = digits[:-1], Fraction(1, 100)
    elif digits[-1:] in SUFFIXES:
        digits, factor = digits[:-1], Fraction(SUFFIXES[digits[-1]])
    if re.search(r"e[+-]?\d{4,}$", digits, re.IGNORECASE):
        raise ValueError(f"{text!r} is out of range")
    try:
        return Fraction(digits if "/" not in digits else "") * factor
    except ValueError:
        raise ValueError(f"{text!r} is not a number such as 12, 1e6, 10M or 80%") from None


def whole(kind: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """Convert an integer, such as 1e6 or 10M; 1.5 is an error, not rounded."""
    try:
        number = exact(tokens[0].value)
    except ValueError as error:
        said = str(error) if "out of range" in str(error) else f"{tokens[0].value!r} is not a whole number"
        raise ValueError(said) from None
    if number.denominator != 1:
        raise ValueError(f"{tokens[0].value!r} is not a whole number")
    return int(number)


def real(kind: Any, tokens: Sequence[cyclopts.Token]) -> float:
    """Convert a number, such as 0.8 or 80%."""
    text = tokens[0].value
    if text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)  # the library says what is wrong with it
    try:
        return float(exact(text))
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


#: Of options that are real numbers.
REAL = Parameter(converter=real)


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
    float | None,
    REAL,
    Parameter(help="With --checkpoint: store the counts that often, in seconds. Default: 60."),
]
Shard = Annotated[
    str | None,
    Parameter(
        help="i/n: count only part i of n (from 0) into the file --out; 'specsim merge' adds the parts."
    ),
]
PairName = Annotated[
    str,
    Parameter(
        help="The pair of p and q: 'ngram' (the bundled models); a synthetic kind (zipf, geometric, "
        "dirichlet, two-point, one-hot, near-equal, asymmetric); a file with p and q (.npz, .npy, "
        ".safetensors, .csv) or with models (.npz); two files p.npy,q.npy; logits:TARGET,DRAFT; the folder "
        "of a trace; or hf:TARGET,DRAFT@PROMPTS, two Hugging Face models. Options behind a colon: "
        "zipf:seed=3, ngram:temperature=0.7,top_p=0.9."
    ),
]
Models = Annotated[str, Parameter(help="'ngram' (the bundled pair), or an .npz file of models.")]
VocabSize = Annotated[
    int | None, Parameter(converter=whole, help="Vocabulary size of a synthetic pair. Default: 1000.")
]
Overlap = Annotated[
    float | None, REAL, Parameter(help="Σ min(p, q) of a synthetic pair, 0 to 1. Default: 0.8.")
]
Level = Annotated[str, Parameter(help="Number of steps: smoke, quick, standard or deep.")]
Gamma = Annotated[int, Parameter(converter=whole, help="Drafted tokens per step.")]
GammaOrTree = Annotated[
    int | None, Parameter(converter=whole, help="Drafted tokens per step of a chain. Default: 5.")
]
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
Folder = Annotated[Path | None, Parameter(help="Folder of the trace; default: the bundled one.")]
Dtype = Annotated[str, Parameter(help="dtype of stored rows: float32, float16 or bfloat16.")]
#: The option c, which is required in some commands.
RATIO = Parameter(
    name="--c", converter=real, help="Ratio of the times of a draft's and a target's forward pass."
)
CHat = Annotated[
    float | None,
    Parameter(name="--c-hat", converter=real, help="The same ratio for arithmetic operations; default: c."),
]
Most = Annotated[int, Parameter(converter=whole, help="Largest γ to consider.")]
