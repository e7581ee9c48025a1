"""Choose γ and the draft: costs of a step, policies that choose γ step by step, servers of many requests.

`specsim.plan` chooses γ, `specsim.rank_drafts` a draft. Every α is accepted / tested tokens: `alpha_of`
converts what engines print. `compare_methods` compares drafting systems of the literature: `method_names`
lists them, `get_method` describes one.

**Costs.** `ConstantRatio`, `Roofline` (of a `Network` on `Hardware`) and `MeasuredStep` give a step's time;
`improvement`, `best_gamma` and `critical_context` take any of them.

**Policies** choose the draft length as they draft: `Constant`, `Heuristic`, `ConfidenceThreshold`, `SVIP`,
`Disco`, `Goodput` and `Cascade`. The `Oracle` bounds them all. `specsim.simulate_policies` runs each on one
log, which `specsim.draft_log` draws or `log_from_trace` converts.

**Servers.** `simulate_batch` simulates one that decodes many requests at once, `sweep_batch` compares it with
one that does not speculate. A `preset`, or `BatchCost` of two `PassTime`, has its costs. `Budget`, `Blocks`,
`Bands` and `Classifier` are policies for servers alone."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
