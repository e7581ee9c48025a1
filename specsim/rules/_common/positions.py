"""Rules that decide token by token, also along the rows of two models from tables.

Only the steps that come to a position need its row, and there are fewer rows than steps: those after a
context are kept, with sums of them to draw from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Floats, TokenArray
from specsim.core.distributions import copy_row, cumulative_draw, is_zero
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Positions, Rule
from specsim.rules._common.tokenwise import no_bonus

#: Weights that are searched at once.
BLOCK = 16


class RowTables(NamedTuple):
    """Rows of p and q after contexts, numbered from 1 on: after a they are p[p_of[a]] and q[q_of[a]];
    q_sums[q_of[a]] has the sums of q, and recovered[a] those of the weights of the recovered token, see
    `sum_up`. follow[a, x] is the context a and then x, 0 where that is not known."""

    p: Floats
    q: Floats
    q_sums: Floats
    p_of: TokenArray
    q_of: TokenArray
    recovered: Floats
    follow: TokenArray


def rule(
    name: str,
    law: tokenwise.Decisions,
    kernels: tokenwise.Kernels,
    shares: Callable[..., tuple[Floats, Floats, Floats]],
    **claims: Any,
) -> Rule:
    """The rule with this law and these kernels, see `tokenwise.rule`, and `shares`, see
    `tokenwise.fixed_pair`; `claims` are other parts of a `Rule`, of one without `words` its citation too."""
    pair = tokenwise.fixed_pair(shares)
    return tokenwise.rule(name, law, kernels, pair, positions=positions(*kernels), **claims)


def positions(accept: Kernel, recover: Kernel, bonus: Kernel = no_bonus) -> Positions:
    """Build the kernels for rows from tables, of a rule whose recovered token ignores the rejected one."""

    def test(going, context, tables, drawn, u, values, passed):
        p, q, _, p_of, q_of, _, _ = tables
        for j in range(going.size):
            a = context[going[j]]
            passed[j] = accept(p[p_of[a]], q[q_of[a]], drawn[j], u[going[j]], values)

    # the references to rows are counted unless both are inner
    test_drafts = inner_kernel(test) if accept.inner else kernel(test)

    def verify_steps(
        going, place, context, tables, known, draft_uniforms, verify_uniforms, values, tokens, accepted
    ):
        p, q, q_sums, p_of, q_of, recovered, follow = tables
        gamma, size = tokens.shape[0] - 1, going.size
        last = verify_uniforms[gamma]
        alive, ended = np.empty(size, np.int64), np.empty(size, np.int64)
        drawn, passed = np.empty(size, np.int64), np.empty(size, np.int64)
        count, begun, apart = 0, 0, 0  # how many are alive, have begun, and were set apart
        for i in range(gamma + 1):
            while begun < size and place[going[begun]] == i:
                alive[count] = going[begun]
                count += 1
                begun += 1
            if i == gamma:
                break
            draw_drafts(alive[:count], context, q_sums, q_of, draft_uniforms[i], drawn)
            test_drafts(alive[:count], context, tables, drawn, verify_uniforms[i], values, passed)
            n, m = 0, 0
            for j in range(count):  # without a branch, which would be mispredicted
                s = alive[j]
                alive[n], ended[m] = s, s
                drawn[n] = drawn[j]
                n += passed[j]
                m += 1 - passed[j]
            draw_recovered(ended[:m], context, recovered, last, tokens[i])
            for j in range(m):
                accepted[ended[j]] = i
            count = 0
            for j in range(n):
                s, x = alive[j], drawn[j]
                tokens[i, s] = x
                after = follow[context[s], x]
                if 0 < after < known:
                    context[s] = after
                    alive[count] = s
                    count += 1
                else:
                    context[s] = -context[s]
                    place[s] = i + 1
                    going[apart] = s
                    apart += 1
        weights = np.empty(p.shape[1])
        for j in range(count):
            s = alive[j]
            bonus(p[p_of[context[s]]], q[q_of[context[s]]], values, weights)
            tokens[gamma, s] = cumulative_draw(weights, last[s])
            accepted[s] = gamma
        return apart

    def sum_recovered(tables, first, end, values):
        p, q, _, p_of, q_of, recovered, _ = tables
        weights = np.empty(p.shape[1])
        for a in range(first, end):
            recover(p[p_of[a]], q[q_of[a]], 0, values, weights)
            if is_zero(weights):  # only by rounding
                copy_row(p[p_of[a]], weights)
            sum_up(weights, recovered[a])

    return Positions(kernel(verify_steps), kernel(sum_recovered))


@inner_kernel
def draw_drafts(going, context, q_sums, q_of, u, drawn):
    for j in range(going.size):
        drawn[j] = drawn_token(q_sums[q_of[context[going[j]]]], u[going[j]])


@inner_kernel
def draw_recovered(ended, context, recovered, u, tokens):
    for j in range(ended.size):
        tokens[ended[j]] = drawn_token(recovered[context[ended[j]]], u[ended[j]])


def sums_size(vocab_size: int) -> int:
    """The number of sums of V weights, see `sum_up`."""
    return -(-vocab_size // BLOCK) * (BLOCK + 1)


@inner_kernel
def sum_up(weights, sums):
    """Fill `sums` with the running sums at the ends of blocks of weights[V], then with all of them, padded
    with ∞: to find a place among them takes one search in the first part and one in a block."""
    blocks = sums.size // (BLOCK + 1)
    total = 0.0
    for y in range(weights.size):
        total += weights[y]
        sums[blocks + y] = total
    for k in range(blocks - 1):
        sums[k] = sums[blocks + BLOCK * k + BLOCK - 1]
    sums[blocks - 1] = total
    sums[blocks + weights.size :] = np.inf


@inner_kernel
def drawn_token(sums, u):
    """The token that `cumulative_draw` draws with u < 1 - 2^-50 from the weights that `sum_up` added."""
    blocks = sums.size // (BLOCK + 1)
    goal = u * sums[blocks - 1]
    block, inside = np.int64(0), np.int64(0)
    for k in range(blocks):  # faster than a search that branches, as it is mispredicted
        block += np.int64(sums[k] <= goal)
    first = blocks + BLOCK * block
    for k in range(BLOCK):
        inside += np.int64(sums[first + k] <= goal)
    return BLOCK * block + inside


@kernel
def sum_rows(rows, sums):
    for a in range(rows.shape[0]):
        sum_up(rows[a], sums[a])
