"""What can be computed without drawing anything: acceptance, tokens per step, and bounds on both.

`acceptance.py` has one draft and acceptances that are independent; `many_drafts.py` K drafts of one token, the best
that any verifier can do with them and what known ones do; `block.py` accepted lengths of block verification;
`published.py` sets printed numbers beside recomputed ones, and is imported by its full name.
"""

from specsim.theory.acceptance import acceptance_rate, accepted_law, expected_tokens
from specsim.theory.block import AcceptedTokens, BlockRange, accepted_tokens, block_range
from specsim.theory.many_drafts import (
    greedy_multi_draft_acceptance,
    gumbel_agreement,
    k_seq_acceptance,
    k_seq_rho,
    naive_matching_acceptance,
    optimal_acceptance,
    recursive_rejection_acceptance,
    without_replacement_acceptance,
)

__all__ = [
    "AcceptedTokens",
    "BlockRange",
    "acceptance_rate",
    "accepted_law",
    "accepted_tokens",
    "block_range",
    "expected_tokens",
    "greedy_multi_draft_acceptance",
    "gumbel_agreement",
    "k_seq_acceptance",
    "k_seq_rho",
    "naive_matching_acceptance",
    "optimal_acceptance",
    "recursive_rejection_acceptance",
    "without_replacement_acceptance",
]
