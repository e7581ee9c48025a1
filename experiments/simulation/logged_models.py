"""Tokens per step of two logs of real models, and by the formula for independent acceptances.

The bundled traces: an n-gram pair, and two small transformers that sampled from their 20 most probable
tokens. For each log, rule and γ the mean over the logged steps of the tokens that a step emits, exact for
these drafts up to what truncation leaves open, with a confidence interval over documents; beside it
(1 - α^{γ+1})/(1 - α) (Leviathan et al., arXiv 2211.17192, Eq. 1) with α the mean probability of accepting a
step's first token.
"""

from experiments import Progress, Row
from specsim.theory import expected_tokens
from specsim.traces import default_trace, expect_tokens

TITLE = "Tokens per step of two logs, measured and by the formula for independent acceptances"

LOGS = ("ngram", "transformers")
RULES = ("standard", "block")


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each log, rule and γ."""
    rows: list[Row] = []
    for log in LOGS:
        trace = default_trace(log)
        found = {rule: expect_tokens(trace, rule, rng=rng, progress=False) for rule in RULES}
        alpha = float(found["standard"].expected_tokens[0].mean()) - 1.0
        for rule, one in found.items():
            assert one.intervals is not None
            for gamma, (bounds, ends) in enumerate(zip(one.expected_tokens, one.intervals, strict=True), 1):
                rows.append(
                    {
                        "log": log,
                        "alpha": alpha,
                        "rule": rule,
                        "gamma": gamma,
                        "tokens_per_step": float(bounds.mean()),
                        "low": float(ends[0]),
                        "high": float(ends[1]),
                        "formula": float(expected_tokens(alpha, gamma)),
                    }
                )
    return rows
