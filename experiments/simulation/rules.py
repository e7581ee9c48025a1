"""Every rule on the n-gram pair that comes with specsim: tokens per step, and total variation.

`specsim.compare` with its defaults: γ = 5, and two chains of 5 tokens for rules that take several drafts. The
total variation is between the distribution of a token that a rule claims and the target's, on average over
contexts: 0 for a lossless rule, None for a rule that is wrong on purpose.
"""

from collections.abc import Sequence
from dataclasses import asdict

from experiments import Progress, Row
from experiments._pages import joined, markdown_table, written
from specsim import compare, default_pair
from specsim.rules import GROUPS, get
from specsim.simulation._comparison import Entry
from specsim.simulation._grid import show_tv

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
    head = ("rule", "lossless for, or distribution", "tokens/step", "TV", "source")
    parts = []
    for group, claim in GROUPS.items():
        lines = []
        for entry in (Entry(**row) for row in rows if row["group"] == group):
            rule = get(entry.name)
            numbers = f"{entry.tokens_per_step:.3f}", show_tv(entry.tv)
            lines.append((f"`{rule.name}`", rule.claim, *numbers, rule.citation))
        parts += [f"**{claim.capitalize()}**", markdown_table(head, lines)]
    return written("rules", {"steps": f"{STEPS:,}", "seed": SEED, "table": joined(parts)})
