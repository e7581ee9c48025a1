"""Draft-length policies, which choose the number of tokens to draft, simulated on one log of drafts.

`draft_log` draws a text from the target and the tokens that the draft proposes along it; `log_from_trace`
converts a recorded trace. A `Policy` decides after each drafted token whether to draft another one.
`simulate_policies` runs every policy on the same log, hence with the same random numbers, counts tokens, and
adds up times.

The policies: `Constant`, `Heuristic` and `ConfidenceThreshold` (Hugging Face transformers), `SVIP`, `Disco`
(fitted on a part of the log), `Goodput` (SmartSpec), `Cascade`, and the `Oracle`, which knows what will be
accepted and bounds all others. `every_policy` returns one of each. A server of many requests
(`simulate_batch`) takes `Constant`, `Heuristic`, `Goodput` and `Oracle` too.

Examples
--------
>>> from specsim import default_pair
>>> from specsim import draft_log, simulate_policies
>>> from specsim.planning import every_policy
>>> log = draft_log(*default_pair(), tokens=4000, rng=1)
>>> train, test = log.split(0.5)
>>> runs = simulate_policies(test, every_policy(train, test), draft_cost=0.05)
>>> max(runs, key=lambda run: run.speedup).policy
'oracle'
"""
