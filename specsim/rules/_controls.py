"""Rules that are wrong on purpose, for proofs and tests to detect: each makes a mistake found in practice.

Each is a rule of the registry with a part replaced; the file of that rule explains it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Floats, Row, Rows, StepLaw
from specsim.core.distributions import capped_ratio, copy_row, cumulative_draw
from specsim.rules._chain import block, hierarchical, standard, token_level_intersection
from specsim.rules._chain.block import excess, scales
from specsim.rules._common import nodewise, tokenwise
from specsim.rules._common.base import FixedPair, Rule, end_step, words
from specsim.rules._common.fixed_pairs import fixed_pair_from_rows, index_of
from specsim.rules._common.sorting import stable_order
from specsim.rules._lossy import two_thresholds
from specsim.rules._tree import greedy_multi_path_block, k_seq, recursive_rejection, traversal
from specsim.rules._tree.k_seq import rho_star, sequential, sequential_pick


def wrong(name: str, rule: Rule, law: Any, rows: Kernel, pair: FixedPair | None = None, **parts: Any) -> Rule:
    """`rule` with another law and row kernel, for fixed pairs too without a `pair`; it claims nothing."""
    claims: dict[str, Any] = {"survival": None, "positions": None, "declared": None, "declares": ""}
    own = words(name) | {"law": law, "rows": rows, "values": {}}
    pair = pair or fixed_pair_from_rows(rows)
    return replace(rule, **claims | own | parts, fixed_pair=pair, control=True)


def wrong_at_nodes(
    name: str, rule: Rule, node_law: Callable[..., StepLaw], choose: Kernel, *pair: Any, **parts: Any
) -> Rule:
    """The same of a rule that decides node by node; `pair` is as `nodewise.fixed_pair` takes it, if any."""
    fixed = nodewise.fixed_pair(*pair) if pair else None
    return wrong(name, rule, nodewise.law(node_law), nodewise.rows(choose), fixed, **parts)


# --- block verification that stops at the first failed test ----------------------------------------------
# A failed test only says that the block is not cut *there*; later tests may still keep more tokens. A
# reviewer once demanded this change in a correct kernel; in the measured example it costs TV .13.


def law_of_first_failure(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """The chances h of block, used in the order of the tokens."""
    tokenwise.require_chain("block_first_failure", parents)
    b, h = block.scales_and_cuts(tokens, p, q)
    return tokenwise.stop_law(h[1:]), block.next_tokens(b, p, q)


@kernel
def rows_of_first_failure(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    gamma = draft_tokens.shape[1]
    weights, b = np.empty(p.shape[2]), np.empty(gamma + 1)
    for s in range(draft_tokens.shape[0]):
        scales(draft_tokens[s], p[s], q[s], b)
        n = 0
        while n < gamma:
            mass = excess(b[n + 1], p[s, n + 1], q[s, n + 1], weights) if n + 1 < gamma else b[gamma]
            whole = mass + 1.0 - b[n + 1]
            if not (uniforms[n, s] * whole < mass or whole == 0.0):
                break
            n += 1
        if n == gamma or excess(b[n], p[s, n], q[s, n], weights) == 0.0:
            copy_row(p[s, n], weights)
        for i in range(n):
            tokens[i, s] = draft_tokens[s, i]
        end_step(tokens, accepted, s, n, cumulative_draw(weights, uniforms[gamma, s]))


BLOCK_FIRST_FAILURE = wrong("block_first_failure", block.RULE, law_of_first_failure, rows_of_first_failure)


# --- block verification followed by a token from the standard residual -----------------------------------
# Two kernels are combined, each of them right. The first token is perfect, as b_0 = 1; later ones deviate a
# little, so that a test of the first token's marginal cannot detect the bug.

block_rows = block.verify_rows


def law_of_tokenwise_residual(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """As block, but for what follows."""
    stop, follow = block.law(parents, tokens, p, q)
    residuals = [tokenwise.positive_part(a, b) for a, b in zip(p, q, strict=False)]
    return stop, [*residuals, follow[-1]]


@kernel
def rows_of_tokenwise_residual(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    block_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted)
    weights = np.empty(p.shape[2])
    gamma = draft_tokens.shape[1]
    for s in range(draft_tokens.shape[0]):
        n = accepted[s]
        if n < gamma:
            if excess(1.0, p[s, n], q[s, n], weights) == 0.0:
                copy_row(p[s, n], weights)
            tokens[n, s] = cumulative_draw(weights, uniforms[gamma, s])


BLOCK_TOKENWISE_RESIDUAL = wrong(
    "block_tokenwise_residual", block.RULE, law_of_tokenwise_residual, rows_of_tokenwise_residual
)


# --- the greatest of K paths, verified as if it had been the only one ------------------------------------
# Block verification with q in place of r, the law of the path that was chosen: the choice prefers tokens that
# are more probable under p, so they come up too often. TV up to .4, depending on the model. On a chain
# nothing is chosen, and the rule is right.


def law_as_drafted(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """As greedy multi-path block verification, but for the law of the chosen path."""
    nodes, chosen, _, drafts = greedy_multi_path_block.greatest_path(parents, tokens, p, q)
    return greedy_multi_path_block.verified_alone(nodes, chosen, p, drafts)


@inner_kernel
def one_child(edges, low, mass, depth, degrees, counts, law):
    """One child, whatever was drafted, so that r is q."""
    law[0, :], law[1, :] = 0.0, 1.0
    return 1


GREEDY_PATH_AS_DRAFTED = wrong(
    "greedy_path_as_drafted",
    greedy_multi_path_block.RULE,
    law_as_drafted,
    greedy_multi_path_block.rows(one_child),
    greedy_multi_path_block.fixed_pair(one_child),
)


# --- hierarchical speculative decoding without the cap ---------------------------------------------------
# The joint ratio J_i = Π p/q is not capped: accept the whole draft with probability min(1, J_γ), step back by
# comparing J_i·p with q. A prefix that is more probable under the target then transfers its surplus to
# unlikely continuations. TV up to .25. (The public code caps all but the last ratio, which accepts as much as
# the min-joint bound for γ ≤ 2 and is biased too.)

#: A joint ratio beyond this is as good as infinite.
LARGEST = 1e100


def uncapped_law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """As hierarchical, with J in place of the capped ratio before the last."""
    tokenwise.require_chain("hierarchical_uncapped", parents)
    joint = hierarchical.joint_ratios(tokens, p, q)
    return hierarchical.backward_law([*joint[:-1], min(joint[-1], 1)], p, q)


@inner_kernel
def uncapped(ratio):
    return min(ratio, LARGEST)


HIERARCHICAL_UNCAPPED = wrong(
    "hierarchical_uncapped", hierarchical.RULE, uncapped_law, hierarchical.rows(uncapped)
)


# --- a draft restricted to the shared tokens, whose row is not renormalised ------------------------------
# Given that a drafted token is shared it is a sample of q' = q·1_S/q(S), but is compared with q·1_S, which is
# smaller: more drafts are accepted than p allows, and the residual (p - q·1_S)₊ gives back too little to
# tokens that the draft lacks.


def unnormalised_acceptance(p: Row, q: Row, x: int, shared: Any) -> Any:
    return min(1, p[x] / q[x]) if token_level_intersection.is_shared(x, len(q), shared) else 0


def unnormalised_recovered(p: Row, q: Row, x: int, shared: Any) -> list[Any]:
    is_shared = token_level_intersection.is_shared
    kept = [b * is_shared(y, len(q), shared) for y, b in enumerate(q)]
    return tokenwise.positive_part(p, kept) if is_shared(x, len(q), shared) else list(p)


@inner_kernel
def accept_unnormalised(p, q, x, u, values):
    return x < values[0] * q.size and u * q[x] < p[x]


@inner_kernel
def recover_unnormalised(p, q, x, values, weights):
    copy_row(p, weights)
    if x < values[0] * q.size:
        for y in range(weights.size):
            if y < values[0] * q.size:
                weights[y] = max(p[y] - q[y], 0.0)


INTERSECTION_UNNORMALISED = wrong(
    "intersection_unnormalised",
    token_level_intersection.RULE,
    tokenwise.law("intersection_unnormalised", unnormalised_acceptance, unnormalised_recovered),
    tokenwise.rows(accept_unnormalised, recover_unnormalised),
)


# --- K-SEQ with ρ = 1, below ρ* --------------------------------------------------------------------------
# A smaller ρ accepts more; but then more of some tokens is accepted than the target has of them, and no
# residual can make up for it: cut off at 0 it leaves the output biased.


@kernel
def choose_with_small_rho(p, q, children, u, values, weights):
    return sequential(p, q, children, u, 1.0, children.size, weights)


K_SEQ_SMALL_RHO = wrong_at_nodes(
    "k_seq_small_rho",
    k_seq.RULE,
    lambda p, q, children: k_seq.with_rho(p, q, children, len(children), 1),
    choose_with_small_rho,
    k_seq.pick,
    lambda p, q, drafts: k_seq.tables_with(p, q, drafts, lambda _: 1.0),
)


# --- K-SEQ that counts siblings with the same token once -------------------------------------------------
# ρ and the residual are computed for the number of *distinct* tokens, while every sibling is tried: the
# residual then does not fit what was accepted. The same happens to code that merges duplicates but forgets a
# trial, or that keeps the K of the root at every depth.


def wrong_k_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    drafts = len(set(children))
    return k_seq.with_rho(p, q, children, drafts, k_seq.least_rho(tuple(p), tuple(q), drafts))


@kernel
def distinct(children):
    count = 0
    for k in range(children.size):
        count += int(index_of(children[:k], children[k]) < 0)
    return count


@kernel
def choose_with_wrong_k(p, q, children, u, values, weights):
    drafts = distinct(children)
    return sequential(p, q, children, u, rho_star(p, q, drafts), drafts, weights)


@kernel
def pick_with_wrong_k(pair, table, children, u, last):
    return sequential_pick(table, children, u, last, distinct(children))


K_SEQ_WRONG_K = wrong_at_nodes(
    "k_seq_wrong_k", k_seq.RULE, wrong_k_law, choose_with_wrong_k, pick_with_wrong_k, k_seq.table
)


# --- one coin for all siblings, with the draft's real probabilities in the residual ----------------------
# SGLang's tree kernel walks the siblings with a single coin, accepting the first x with coin < p(x_1) + … +
# p(x): an inverse CDF, exact with one-hot residuals. To that end its array of draft probabilities must come
# in as zeros; the kernel writes p into it at every tried child and recovers from (p - that)₊. Handed the
# draft's real q instead, it takes off, at tokens never tried, mass that no test has used. The coin is the
# uniform of the first child.


def one_coin_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """Each child with its probability under p; recovery from (p - q)₊ without the children."""
    taken = [a if x in children else b for x, (a, b) in enumerate(zip(p, q, strict=True))]
    return [p[x] for x in children], tokenwise.positive_part(p, taken)


@kernel
def choose_with_one_coin(p, q, children, u, values, weights):
    reached = 0.0
    for k in range(children.size):
        reached += p[children[k]]
        if u[0] < reached:
            return k
    for y in range(weights.size):
        weights[y] = max(p[y] - q[y], 0.0)
    for x in children:
        weights[x] = 0.0
    return -1


ONE_COIN_REAL_Q = wrong_at_nodes(
    "one_coin_real_q", two_thresholds.RULE, one_coin_law, choose_with_one_coin, reads_draft=True
)


# --- acceptance-rejection with an envelope that differs from token to token ------------------------------
# With c(x) ≥ max(1, p(x)/q(x)) in place of the one number M of `_chain/von_neumann.py`, a proposal x ~ q
# passes with probability p(x)/(c(x)·q(x)), and proposals go on until one does. What comes out is ∝ p/c.
# Lecture notes call this a variant whose correctness is unchanged; it is not. Here c = max(1, p/q), the
# tightest: a proposal passes with min(1, p/q), as in the standard rule, and since rejected ones are proposed
# anew from q, not drawn from the residual, the output is ∝ min(p, q).


def next_passing(p: Row, q: Row, x: int) -> list[Any]:
    """The first later proposal that passes."""
    passing = [min(a, b) for a, b in zip(p, q, strict=True)]
    return tokenwise.normalise(passing) if any(passing) else list(p)


@kernel
def recover_passing(p, q, x, values, weights):
    for y in range(weights.size):
        weights[y] = min(p[y], q[y])


POINTWISE_ENVELOPE = wrong(
    "pointwise_envelope",
    standard.RULE,
    tokenwise.law("pointwise_envelope", standard.acceptance, next_passing),
    tokenwise.rows(standard.accept, recover_passing),
    tokenwise.fixed_pair(lambda p, q: (capped_ratio(p, q), np.minimum(p, q), p)),
)


# --- sampled children of low draft probability, pruned before verification -------------------------------
# Discarding a drafted token that the draft itself finds unlikely saves work in engines that verify by an
# exact match, and costs nothing there. With samples and the accept test p/q it biases the output: a child
# that is left is a sample of q *given* that it was not pruned, and a pruned one is neither accepted nor put
# into the residual. On a chain it is confidence-scheduled verification with a confidence that has seen the
# drafted token: the draft is cut at x where q(x) is low, and the next token drawn from p. llama.cpp drops the
# last drafted token below `p_min`.

choose_in_order, pick_in_order = recursive_rejection.choose, recursive_rejection.pick


def in_order(p: Row, q: Row, children: Sequence[int], order: Sequence[int]) -> StepLaw:
    """Recursive rejection of some children, in another order."""
    accept, left = recursive_rejection.node_law(p, q, [children[k] for k in order])
    chances = dict(zip(order, accept, strict=True))
    return [chances.get(k, 0 * p[0]) for k in range(len(children))], left


def pruned_law(p: Row, q: Row, children: Sequence[int], threshold: Any) -> StepLaw:
    return in_order(p, q, children, [k for k, x in enumerate(children) if q[x] >= threshold])


@kernel
def unpruned(q, children, threshold):
    """The indices of the children with q ≥ threshold."""
    kept, count = np.empty(children.size, np.int64), 0
    for k in range(children.size):
        if q[children[k]] >= threshold:
            kept[count] = k
            count += 1
    return kept[:count]


@kernel
def choose_unpruned(p, q, children, u, values, weights):
    kept = unpruned(q, children, values[0])
    k = choose_in_order(p, q, children[kept], u[kept], values, weights)
    return kept[k] if k >= 0 else -1


def pruned_table(p: Floats, q: Floats, drafts: int, threshold: float) -> Floats:
    """The residuals of recursive rejection; the last row holds the threshold."""
    return np.vstack([recursive_rejection.residuals(p, q, drafts), [threshold, 0.0]])


@kernel
def pick_unpruned(pair, table, children, u, last):
    kept = unpruned(pair.q, children, table[-1, 0])
    k, token = pick_in_order(pair, table, children[kept], u[kept], last)
    return kept[k] if k >= 0 else -1, token


PRUNED_CHILDREN = wrong_at_nodes(
    "pruned_children",
    recursive_rejection.RULE,
    pruned_law,
    choose_unpruned,
    pick_unpruned,
    pruned_table,
    many_drafts=False,
)


# --- recursive rejection of sampled siblings in the order of their draft probability ---------------------
# To try the likeliest candidate first seems harmless. But the first of the sorted siblings is not a sample of
# q, it is the likeliest of K, and the test against q is then made against the wrong law. TV up to .4 (without
# replacement .7). The k-th child to be tried takes the k-th uniform.


def sorted_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    return in_order(p, q, children, sorted(range(len(children)), key=lambda k: -q[children[k]]))


@kernel
def choose_sorted(p, q, children, u, values, weights):
    order = stable_order(-q[children])
    k = choose_in_order(p, q, children[order], u, values, weights)
    return order[k] if k >= 0 else -1


@kernel
def pick_sorted(pair, table, children, u, last):
    order = stable_order(-pair.q[children])
    k, token = pick_in_order(pair, table, children[order], u, last)
    return order[k] if k >= 0 else -1, token


SORTED_SIBLINGS = wrong_at_nodes(
    "sorted_siblings",
    recursive_rejection.RULE,
    sorted_law,
    choose_sorted,
    pick_sorted,
    recursive_rejection.residuals,
)


# --- traversal verification with the update S/(1 - q(c)) in place of S/(S + 1 - w) ------------------------
# A public implementation weighs a node like that after giving up its child c, as if the mass of the draft
# that is left were what counts. TV up to .1, depending on the model. Where 1 - q(c) is 0 or the quotient
# exceeds 1 it is taken as 0 and 1.


def wrong_weight(w: Any, mass: Any, draft: Any) -> Any:
    return min(mass / (1 - draft), 1) if draft < 1 else 0 * mass


def wrong_update_law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """As traversal, but for the update; the root is accepted in any case."""
    stop, follow = traversal.traverse(parents, tokens, p, q, replaced=True, update=wrong_weight)
    stop[0] = 1 - sum(stop[1:])
    return stop, follow


@kernel
def wrong_weight_of_floats(w, mass, draft):
    return min(mass / (1.0 - draft), 1.0) if draft < 1.0 else 0.0


TRAVERSAL_WRONG_UPDATE = wrong(
    "traversal_wrong_update",
    traversal.RULE,
    wrong_update_law,
    traversal.rows(True, wrong_weight_of_floats),
    traversal.fixed_pair(True, wrong_weight_of_floats),
)


#: By name, sorted as this file is.
RULES = {rule.name: rule for rule in [*globals().values()] if isinstance(rule, Rule)}
