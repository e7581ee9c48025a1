"""Every rule on the n-gram pair that comes with specsim: tokens per step, and total variation.

`specsim.compare` with its defaults: γ = 5, and two chains of 5 tokens for rules that take several drafts. The
total variation is between the distribution of a token that a rule claims and the target's, on average over
contexts: 0 for a lossless rule, None for a rule that is wrong on purpose.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

from experiments import Progress, Row
from specsim import compare, default_pair
from specsim.simulation._comparison import Entry, as_markdown, load_bundled

TITLE = "Tokens per step and total variation of every rule on the n-gram pair"
MINUTES = 2

STEPS, FAST_STEPS = 2**16, 2**9
#: The seed where `rng` is 0: that of the table that comes with specsim.
SEED = 1


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each rule."""
    steps = FAST_STEPS if fast else STEPS
    return [
        asdict(entry) for entry in compare(*default_pair(), steps=steps, rng=SEED + rng, progress=progress)
    ]


def page(rows: Sequence[Row]) -> str:
    """docs/results/rules.md."""
    entries = tuple(Entry(**row) for row in rows)
    return f"""# Rules

All rules of `specsim list rules`, on the n-gram pair that comes with specsim, with {STEPS:,} steps each:
tokens per step at γ = 5 (two chains of 5 for rules that take several drafts), and the total variation (TV)
between the distribution of a token and the target's, on average over contexts.
`specsim compare ngram --seed {SEED}` computes the numbers again.

{as_markdown(replace(load_bundled(), entries=entries))}"""
