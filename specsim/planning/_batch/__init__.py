"""Simulation of a server that decodes many requests at once, speculatively: latency, goodput and capacity.

Requests arrive, wait in a queue, and are decoded together, at most `max_batch` of them. In an iteration the
draft proposes tokens for each request, one pass of the target verifies those of all, and every request emits
the accepted ones and one more. Requests that are complete leave, and waiting ones join, between iterations.

`BatchCost` has the time of an iteration: of rooflines (`PassTime` of a `Network` on `Hardware`), fitted to
measured passes (`PassTime.fit`), or one of `presets`. The policies choose draft lengths: `Constant`,
`Goodput`, `Heuristic` and `Oracle` are those of single texts too, and `Budget` (AdaServe),
`Blocks` (DSpark), `Bands` and `Classifier` are for servers alone.
`simulate_batch` simulates one server, `sweep_batch` compares it with one that does not speculate.

Examples
--------
>>> from specsim.planning import preset, simulate_batch
>>> from specsim.planning import Constant
>>> run = simulate_batch(preset("llama-8b"), Constant(4), rate=2.0, alpha=0.7, requests=500, rng=1)
>>> run.load
'steady'
"""
