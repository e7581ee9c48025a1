"""Reported numbers of speculative decoding: can they all be true?

A run of S steps drafts D tokens, accepts A of them, and emits E. Each step emits its accepted tokens and one more, so
E = A + S; at most γ are drafted in a step; of the steps, B accept the whole draft and emit a bonus, and each of the
others rejects from 1 to γ drafted tokens. That, and what an engine means by its acceptance rate and by its mean
length, are linear statements about a few whole numbers, and a number printed with two decimals is an interval. So
whether numbers can be true together is a question of linear programming: `check_metrics` adds one statement after the
other, and asks each time whether anything is left.

`DEFINITIONS` says what engines mean by their numbers, with sources. Files: `printed` (a number as printed is an
interval), `definitions`, `statements` (the identities), `feasible` (the linear program), `checking`.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
