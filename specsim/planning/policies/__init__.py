"""Policies that choose γ, the number of tokens to draft, simulated on one log with the same random numbers.

`draft_log` draws a text of the target and what the draft proposes along it (`log.py` says why steps cut from it follow
the law of speculative sampling, whatever the policy); `log_from_trace` takes one from a recorded trace. A `Policy` is
asked after each drafted token whether to draft one more. `simulate_policies` walks the log with each, counts, and adds up
times.

The policies: `Constant`, `Heuristic`, `ConfidenceThreshold` (both of Hugging Face transformers), `SVIP`, `SpecDecPP`,
`Disco`, `AdaEagle` (fitted on a part of the log), `Goodput` (SmartSpec), `Cascade`, and the `Oracle`, which knows what
will be accepted and bounds them all. `every_policy` makes one of each.

>>> from specsim.models import default_pair
>>> log = draft_log(*default_pair(), length=4000, rng=1)
>>> train, test = log.split(0.5)
>>> runs = simulate_policies(test, every_policy(train, test), draft_cost=0.05)
>>> max(runs, key=lambda run: run.speedup).policy
'oracle'
"""

from __future__ import annotations

from specsim.planning.policies._goodput import Cascade, Goodput
from specsim.planning.policies._learned import AdaEagle, Disco, SpecDecPP
from specsim.planning.policies._log import ACCEPTED, REJECTED, UNKNOWN, DraftLog, Features
from specsim.planning.policies._log_from_models import draft_log
from specsim.planning.policies._log_from_trace import log_from_trace
from specsim.planning.policies._oracle import Oracle
from specsim.planning.policies._policy import Drafted, Policy
from specsim.planning.policies._simulate import PolicyRun, PolicyRuns, Step, simulate_policies, walk
from specsim.planning.policies._static import Constant, Heuristic
from specsim.planning.policies._stopping import SVIP, ConfidenceThreshold

__all__ = [
    "ACCEPTED",
    "REJECTED",
    "SVIP",
    "UNKNOWN",
    "AdaEagle",
    "Cascade",
    "ConfidenceThreshold",
    "Constant",
    "Disco",
    "DraftLog",
    "Drafted",
    "Features",
    "Goodput",
    "Heuristic",
    "Oracle",
    "Policy",
    "PolicyRun",
    "PolicyRuns",
    "SpecDecPP",
    "Step",
    "draft_log",
    "every_policy",
    "log_from_trace",
    "simulate_policies",
    "walk",
]


def every_policy(train: DraftLog, log: DraftLog) -> tuple[Policy, ...]:
    """One policy of each kind, with its source's parameters, to be simulated on `log`; the learned ones fitted on `train`.

    Those that look at tokens draft at most one more than the logs have behind a rejected one, so that none goes beyond.
    """
    most = min(train.ahead, log.ahead) + 1
    return (
        Constant(5),
        Heuristic(),
        ConfidenceThreshold(most=min(20, most)),
        ConfidenceThreshold(most=min(20, most), refit=True),
        SVIP(most=min(40, most)),
        SpecDecPP.fit(train, least=min(2, most), most=min(20, most)),
        Disco.fit(train, most=min(16, most)),
        AdaEagle.fit(train, most=min(16, most)),
        Goodput(),
        Cascade(),
        Oracle(log),
    )
