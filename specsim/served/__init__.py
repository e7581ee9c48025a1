"""Check whether reported numbers of speculative decoding can all be true.

A run of S steps drafts D tokens, accepts A of them, and emits E = A + S, since each step emits its accepted
tokens and one more. At most γ tokens are drafted in a step; B steps accept the whole draft and emit a bonus,
and each of the others rejects from 1 to γ drafted tokens. These identities, and an engine's definitions of
its acceptance rate and mean length, are linear constraints on integer counts, and a number printed with two
decimals is an interval. `check_metrics` adds one constraint after the other to a linear program, and tests
each time whether it remains feasible. `read_acceptance` reads such counts, and α by position, from what
engines log.

`DEFINITIONS` has the definitions of the engines, with sources."""
