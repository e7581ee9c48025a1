"""Draft-length policies, which choose the number of tokens to draft, simulated on one log of drafts.

`draft_log` draws a text from the target and the tokens that the draft proposes along it; `log_from_trace`
converts a recorded trace. A `Policy` decides after each drafted token whether to draft another one.
`simulate_policies` runs every policy on the same log, hence with the same random numbers, counts tokens, and
adds up times.

The policies: `Constant`, `Heuristic` and `ConfidenceThreshold` (Hugging Face transformers), `SVIP`,
`SpecDecPP`, `Disco` and `AdaEagle` (fitted on a part of the log), `Goodput` (SmartSpec), `Cascade`, and the
`Oracle`, which knows what will be accepted and bounds all others. `every_policy` returns one of each.

Examples
--------
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
from specsim.planning.policies._simulate import PolicyRun, PolicyRuns, Step, simulate_policies, simulate_steps
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
    "simulate_steps",
]


def every_policy(train: DraftLog, log: DraftLog) -> tuple[Policy, ...]:
    """One policy of each kind with its authors' parameters, to be simulated on `log`; learned ones are fitted
    on `train`.

    Policies that look at tokens draft at most `ahead` + 1 tokens, so that the logs never truncate their
    steps.
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
