"""What can be computed without drawing anything: acceptance, tokens per step, and bounds on both.

`acceptance.py` has one draft and acceptances that are independent; `speed.py` what follows for wall time and operations,
and the best γ; `positions.py` acceptances that depend on position and context; `many_drafts.py` K drafts of one token, the
best that any verifier can do with them and what known ones do; `block.py` accepted lengths of block verification;
`published.py` sets the printed numbers of `printed.py` beside recomputed ones; both are imported by their full names.
"""

from specsim.theory.acceptance import (
    acceptance_rate,
    accepted_law,
    beam_acceptance,
    divergence,
    expected_tokens,
    non_iterative_acceptance,
)
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
from specsim.theory.positions import MarkovSteps, expected_tokens_by_position, markov_steps
from specsim.theory.speed import (
    BreakEven,
    break_even,
    memory_access_factor,
    operations_factor,
    optimal_gamma,
    oracle_improvement,
    walltime_improvement,
)

__all__ = [
    "AcceptedTokens",
    "BlockRange",
    "BreakEven",
    "MarkovSteps",
    "acceptance_rate",
    "accepted_law",
    "accepted_tokens",
    "beam_acceptance",
    "block_range",
    "break_even",
    "divergence",
    "expected_tokens",
    "expected_tokens_by_position",
    "greedy_multi_draft_acceptance",
    "gumbel_agreement",
    "k_seq_acceptance",
    "k_seq_rho",
    "markov_steps",
    "memory_access_factor",
    "naive_matching_acceptance",
    "non_iterative_acceptance",
    "operations_factor",
    "optimal_acceptance",
    "optimal_gamma",
    "oracle_improvement",
    "recursive_rejection_acceptance",
    "walltime_improvement",
    "without_replacement_acceptance",
]
