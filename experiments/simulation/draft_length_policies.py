"""Policies that choose γ, on one log: the n-gram pair, and its draft moved towards the target as by
distillation.

Every policy meets the same drafts and the same tests (`specsim.planning`), with the parameters of
its source and none tuned to these pairs; DISCO is fitted to the first quarter of the log, and all are
compared on the rest. A step of g drafts takes g·c + 1 passes of the target. Beside each stands the best
constant γ, chosen in hindsight, and the oracle, which knows what will be accepted.
"""

from experiments import Progress, Row
from specsim import default_pair, draft_log, simulate_policies
from specsim.models import Mixture
from specsim.planning import every_policy

TITLE = "Policies that choose γ, on the same drafts"

#: How far the draft is moved towards the target, and what a draft's pass costs.
WEIGHTS, COSTS = (0.0, 0.6), (0.05, 0.2)
LENGTH, FAST_LENGTH = 100_000, 8_000
TRAINED = 0.25
#: What a row has of a policy.
COLUMNS = (
    "policy", "steps", "tokens", "drafted", "tokens_per_step", "speedup", "time_per_token", "best_constant",
    "difference",
)  # fmt: skip


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each pair, cost and policy: its speed, and its time per token less that of the best
    constant.
    """
    target, draft = default_pair()
    rows: list[Row] = []
    done = 0
    for weight in WEIGHTS:
        log = draft_log(target, Mixture(draft, target, weight), FAST_LENGTH if fast else LENGTH, rng=rng)
        train, test = log.split(TRAINED)
        for c in COSTS:
            for one in simulate_policies(test, every_policy(train, test), draft_cost=c):
                pair = "n-gram pair" if weight == 0 else f"draft moved by {weight:g}"
                known = {"pair": pair, "alpha_context": test.alpha_context, "c": c}
                counted = {name: getattr(one, name) for name in COLUMNS}
                rows.append(known | counted | {"difference_error": one.error})
            done += 1
            if progress is not None:
                progress(done, len(WEIGHTS) * len(COSTS))
    return rows
