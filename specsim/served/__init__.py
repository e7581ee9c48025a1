"""Read numbers of speculative decoding from what engines log, and check whether they can all be true.

Identities of counts, and an engine's definitions of its rate and mean length, are linear constraints, and a
number printed with two decimals is an interval. `check_metrics` adds one constraint after the other to a
linear program, and tests each time whether it remains feasible."""
