"""What independence gets wrong: tokens per step of the n-gram pair, and the i.i.d. formula fed with each of three α.

(1 - α^{γ+1})/(1 - α) (Leviathan et al., arXiv 2211.17192, Eq. 1) takes acceptances for independent and alike. On text
they are neither. Here a text is drawn from the 5-gram target with what its 2-gram draft proposes at each position
(`specsim.lookahead.log` says why steps cut from it have the law of standard sampling); it is walked with γ = 1 … 16 tokens
a step, and the measured tokens per step stand beside the formula at

- alpha_context, the mean of Σ min(p, q) over the text, which is the α of the papers and does not know γ;
- alpha_verified, accepted / tested, at that γ;
- alpha_drafted, accepted / drafted, which engines report, at that γ.

RESULT_SENTENCE

Beside them the autocorrelation of acceptance (a bit for each position of the text) and of β = Σ min(p, q) along the
text, with the standard error 1/√N that independent values would have; and the γ with the largest improvement in wall time
tokens/(γc + 1) (Thm 3.8), as it is measured and as the formula has it from each α, with the share of the best measured
improvement that the formula's γ loses. An engine knows alpha_verified and alpha_drafted at the γ that it runs: `RUN`.
"""

from __future__ import annotations

import numpy as np

from specsim.costs import DraftCost
from specsim.distributions import Floats
from specsim.engine import Progress
from specsim.experiments import Row
from specsim.lookahead import Constant, DraftLog, draft_log, walk
from specsim.models import default_pair
from specsim.theory import expected_tokens, optimal_gamma
