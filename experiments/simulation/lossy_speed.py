"""What lossy rules gain, and what they give up, over the range of their parameters; and what lossless rules
gain without giving anything up.

On the n-gram pair, `specsim.compare` sweeps lenience with both residuals (Leviathan et al., arXiv
2211.17192, A.5), greedy lenience (the same section), Medusa's typical acceptance (arXiv 2401.10774) and the
cascade that defers where it pays (arXiv 2405.19261), and simulates the standard rule beside them; `group` is
"lossy". Rules of `group` "lossless" for several drafts have two chains of γ tokens, drawn in the first way
that each rule names. Steps begin at contexts of held-out text. The total variation is that between a token's
declared distribution and the target's row, a mean over contexts: each rule's own claim, which its audit
tests. Improvement in wall time is tokens per step/(γc + 1) at c = `C` (Thm 3.8). Greedy lenience and typical
acceptance aim at the argmax: none of their settings is near the target.
"""

from experiments import Progress, Row
from specsim import compare, default_pair

TITLE = "Lossy and lossless rules on the n-gram pair: speed against total variation"

LOSSY = ("standard", "lenience", "scaled_lenience", "greedy_lenience", "typical", "cascade_opt")
LOSSLESS = ("standard", "block", "one_hot", "without_replacement", "k_seq")
GAMMA, C = 5, 0.05
STEPS, FAST_STEPS = {"lossy": 2**14, "lossless": 2**16}, 2**9


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each setting of a rule, in the order of the swept parameter; errors are standard errors."""
    return [
        {
            "group": group,
            "line": entry.line,
            "rule": entry.rule,
            "chains": 2 if entry.group == "tree" else 1,
            "gamma": GAMMA,
            "c": C,
            "steps": FAST_STEPS if fast else STEPS[group],
            "tokens": entry.tokens_per_step,
            "error": entry.error,
            "improvement": entry.tokens_per_step / (GAMMA * C + 1.0),
            "tv": entry.tv,
        }
        for group, names in (("lossy", LOSSY), ("lossless", LOSSLESS))
        for entry in compare(
            *default_pair(),
            rules=names,
            gamma=GAMMA,
            steps=FAST_STEPS if fast else STEPS[group],
            sweep=group == "lossy",
            rng=rng,
            progress=progress if group == "lossy" else None,  # most of the work
        )
    ]
