"""Rules that decide token by token, also along the rows of two models from tables.

Only the steps that come to a position need its row, and there are fewer rows than steps: those after a
context are kept, with sums of them to draw from."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from specsim.core._kernels import Kernel, Pointer, inner_kernel, kernel
from specsim.core._types import Floats, Ints, TokenArray
from specsim.core.distributions import copy_row, cumulative_draw, is_zero
from specsim.models._ngram import slot_of
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Positions, Rule
from specsim.rules._common.tokenwise import no_bonus

#: Weights that are searched at once.
BLOCK = 16
#: Tests after which it pays to compile those of a rule without a pointer.
MANY = 2**19


class RowTables(NamedTuple):
    """Rows of p and q after contexts, numbered from 1 on: after a they are p[p_of[a]] and q[q_of[a]];
    q_sums[q_of[a]] has the sums of q, and recovered[a] those of the weights of the recovered token, see
    `sum_up`. They have `codes` below `end`, see `Numbers`, which `find_slot` finds."""

    p: Floats
    q: Floats
    q_sums: Floats
    p_of: TokenArray
    q_of: TokenArray
    recovered: Floats
    codes: Ints
    slots: TokenArray
    end: int


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
    accepting, recovering, leaving = map(Pointer, (accept, recover, bonus), tokenwise.TYPES)

    def test_alone(going, context, p, q, p_of, q_of, drawn, u, values, passed):
        test_drafts(accept, going, context, p, q, p_of, q_of, drawn, u, values, passed)

    test_some, test_many, tested = partial(test_drafts, accepting), kernel(test_alone), 0

    def verify_steps(
        going, place, context, tables, known, draft_uniforms, verify_uniforms, values, tokens, accepted
    ):  # in Python, so that rules share the kernels that move steps on
        nonlocal tested
        gamma, rows = tokens.shape[0] - 1, (tables.p, tables.q, tables.p_of, tables.q_of)
        alive, drawn, passed = np.empty((3, going.size), np.int64)
        last, count, begun, apart = verify_uniforms[gamma], 0, 0, 0
        for i in range(place[going[0]] if going.size else gamma, gamma):
            count, begun = begin(going, place, i, alive, count, begun)
            some = alive[:count]
            draw_drafts(some, context, tables.q_sums, tables.q_of, draft_uniforms[i], drawn)
            tested += count
            test = test_many if tested > MANY else test_some
            test(some, context, *rows, drawn, verify_uniforms[i], values, passed)
            given = context, place, tables, known, last, i, tokens[i], accepted
            count, apart = move_on(some, drawn, passed, going, apart, *given)
        count, _ = begin(going, place, gamma, alive, count, begun)
        draw_bonuses(leaving, alive[:count], context, *rows, last, values, tokens[gamma])
        accepted[alive[:count]] = gamma
        return apart

    return Positions(verify_steps, partial(sum_recovered, recovering))


@inner_kernel
def test_drafts(accept, going, context, p, q, p_of, q_of, drawn, u, values, passed):
    for j in range(going.size):
        a = context[going[j]]
        passed[j] = accept(p[p_of[a]], q[q_of[a]], drawn[j], u[going[j]], values)


@kernel
def draw_bonuses(bonus, going, context, p, q, p_of, q_of, u, values, tokens):
    weights = np.empty(p.shape[1])
    for j in range(going.size):
        a = context[going[j]]
        bonus(p[p_of[a]], q[q_of[a]], values, weights)
        tokens[going[j]] = cumulative_draw(weights, u[going[j]])


@kernel
def sum_recovered(recover, tables, first, end, values):
    p, q, p_of, q_of, recovered = tables.p, tables.q, tables.p_of, tables.q_of, tables.recovered
    weights = np.empty(p.shape[1])
    for a in range(first, end):
        recover(p[p_of[a]], q[q_of[a]], 0, values, weights)
        if is_zero(weights):  # only by rounding
            copy_row(p[p_of[a]], weights)
        sum_up(weights, recovered[a])


@kernel
def begin(going, place, position, alive, count, begun):
    """Add the steps of `going` that begin at a position to those that are alive."""
    while begun < going.size and place[going[begun]] == position:
        alive[count] = going[begun]
        count += 1
        begun += 1
    return count, begun


@kernel
def draw_drafts(going, context, q_sums, q_of, u, drawn):
    rows, some = np.empty(going.size, np.int64), np.empty(going.size)
    for j in range(going.size):
        rows[j], some[j] = q_of[context[going[j]]], u[going[j]]
    draw_tokens(rows, some, q_sums, drawn[: going.size])


@kernel
def move_on(alive, drawn, passed, going, apart, context, place, tables, known, u, position, tokens, accepted):
    """End the steps whose draft did not pass, and give the others their next context. Returns how many of
    these are alive, which move to the front, and how many were set apart, at the front of `going`."""
    ended = np.empty(alive.size, np.int64)
    n, m = 0, 0
    for j in range(alive.size):  # without a branch, which would be mispredicted
        s = alive[j]
        alive[n], ended[m] = s, s
        drawn[n] = drawn[j]
        n += passed[j]
        m += 1 - passed[j]
    rows, some, last = np.empty(m, np.int64), np.empty(m), np.empty(m, np.int64)
    for j in range(m):
        rows[j], some[j] = context[ended[j]], u[ended[j]]
    draw_tokens(rows, some, tables.recovered, last)
    for j in range(m):
        tokens[ended[j]], accepted[ended[j]] = last[j], position
    count = 0
    for j in range(n):
        s, x = alive[j], drawn[j]
        tokens[s] = x
        code = (tables.codes[context[s]] * tables.p.shape[1] + x) % tables.end
        after = tables.slots[find_slot(code, tables.codes, tables.slots, known)]
        if 0 < after < known:
            context[s] = after
            alive[count] = s
            count += 1
        else:
            context[s] = -context[s]
            place[s] = position + 1
            going[apart] = s
            apart += 1
    return count, apart


@inner_kernel
def find_slot(code, codes, slots, known):
    """Where in the hash table `slots` the index of `code` in codes[:known] is, or would be."""
    slot = slot_of(code, slots.size)
    while 0 < slots[slot] < known and codes[slots[slot]] != code:
        slot = (slot + 1) & (slots.size - 1)
    return slot


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
def draw_tokens(rows, u, sums, drawn):
    """Fill drawn[m] with the tokens that `cumulative_draw` draws with u[m] < 1 - 2^-50 from the weights that
    `sum_up` added in sums[rows[m]]; u[m] changes. Sums are counted, since the branches of a search would be
    mispredicted, and all blocks come first, so that look-ups do not wait."""
    blocks = sums.shape[1] // (BLOCK + 1)
    for j in range(drawn.size):
        found, block = sums[rows[j]], np.int64(0)
        u[j] *= found[blocks - 1]
        for k in range(blocks):
            block += np.int64(found[k] <= u[j])
        drawn[j] = BLOCK * block
    for j in range(drawn.size):
        found, first, inside = sums[rows[j]], blocks + drawn[j], np.int64(0)
        for k in range(BLOCK):
            inside += np.int64(found[first + k] <= u[j])
        drawn[j] += inside


@kernel
def sum_rows(rows, sums):
    for a in range(sums.shape[0]):
        sum_up(rows[a], sums[a])
