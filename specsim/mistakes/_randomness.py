"""Random numbers that are used twice."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from specsim.core._types import Floats, Ints, Row
from specsim.mistakes import _laws as laws
from specsim.mistakes import _reference as ref
from specsim.mistakes._acceptance import credited, products
from specsim.mistakes._decoding import Decoder, decoder
from specsim.mistakes._laws import Rows, StepLaw, chain_law, law, of_chain, ratios, stop_law
from specsim.mistakes._reference import mistake
from specsim.mistakes._rows import within

#: The family of these mistakes in data/mistakes.toml.
FAMILY = "reused randomness"
#: The token whose uniform is that of a test, where not each token after the accepted ones is; or of the first
#: test, each of them.
RECOVERED, BONUS, FIRST = 1, 2, 3


def one_test(rng: np.random.Generator, steps: int, count: int) -> Floats:
    """One uniform for all tests of a step."""
    u = rng.random((steps, 2))
    return np.column_stack([np.repeat(u[:, :1], count - 1, axis=1), u[:, 1]])


def test_draws_too(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator, only: float) -> Ints:
    u = rng.random(draft_tokens.shape)
    accepted = ref.first_failure(ref.ratio_test(u, draft_tokens, p[:, :-1], q))
    last = u[np.arange(len(p)), 0 if only == FIRST else np.minimum(accepted, u.shape[1] - 1)]
    if only in (RECOVERED, BONUS):
        last = np.where((accepted == u.shape[1]) == (only == BONUS), last, rng.random(len(p)))
    return ref.pack_output(draft_tokens, accepted, ref.last_token(draft_tokens, p, q, accepted, last))


def stretched_draws(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    """One uniform, divided by p/q after each pass, also where that is above 1."""
    u, running = rng.random((len(p), 1)), products(draft_tokens, p[:, :-1], q)
    accepted = ref.first_failure(u < running)
    before, after = (np.column_stack(some) for some in ((np.ones_like(u), running), (running, 0.0 * u)))
    left, passed = (one[np.arange(len(p)), accepted] for one in (before, after))
    last = (u[:, 0] - passed) / (left - passed)
    return ref.pack_output(draft_tokens, accepted, ref.last_token(draft_tokens, p, q, accepted, last))


@of_chain
def stretched_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """A uniform that has passed lies below the least product of ratios up to there."""
    running = [1, *accumulate((p[i][x] / q[i][x] for i, x in enumerate(tokens)), mul)]
    least, part = list(accumulate(running, min)), laws.by_rows(within)
    rows = zip(laws.follow_rows(tokens, p, q), least, running, [*running[1:], 0], strict=True)
    last = [
        part(row, low=0.0, high=float((high - passed) / (left - passed)) if high > passed else 0.0)
        for row, high, left, passed in rows
    ]
    return stop_law(credited(tokens, p, q)), last


@of_chain
def test_draws_too_law(tokens: Sequence[int], p: Rows, q: Rows, only: float) -> StepLaw:
    """After a rejection the uniform lies above the ratio; after the whole draft, below the last.

    That of the first test lies below its ratio wherever this passes."""
    passed, part = ratios(tokens, p, q), laws.by_rows(within)
    if only == FIRST:
        (first, *follow), ratio = laws.follow_rows(tokens, p, q), float(passed[0])
        others = [part(row, low=0.0, high=ratio) for row in follow]
        return stop_law(passed), [part(first, low=ratio, high=1.0), *others]
    *follow, bonus = laws.follow_rows(tokens, p, q)
    if only != BONUS:
        follow = [part(row, low=float(ratio), high=1.0) for row, ratio in zip(follow, passed, strict=True)]
    if only != RECOVERED:
        bonus = part(bonus, low=0.0, high=float(passed[-1]))
    return stop_law(passed), [*follow, bonus]


def shared_gumbel(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    """The noise of the race that drew the drafted token x from q, given that x won it, runs a second race."""
    accepted, u = ref.accept_standard(draft_tokens, p, q, rng)
    last = ref.draw(p[:, -1], u)
    rejected = np.flatnonzero(accepted < draft_tokens.shape[1])
    where = accepted[rejected]
    p_row, q_row, x = p[rejected, where], q[rejected, where], draft_tokens[rejected, where, None]
    # E_y/q_y is least at x: all others are that much later, and exponential again
    noise = q_row * rng.standard_exponential((len(x), 1)) + np.where(
        np.arange(p.shape[2]) == x, 0.0, rng.standard_exponential(p_row.shape)
    )
    last[rejected] = ref.race(ref.last_weights(draft_tokens, p, q, accepted)[rejected], noise)
    return ref.pack_output(draft_tokens, accepted, last)


def second_race(p: Row, q: Row, x: int) -> list[Any]:
    """Who wins the residual's race, run with the noise of the draft's.

    Given the time T of the draft's winner, T ~ Exp(1), token y has noise q(y)·T + Exp(1), so that in the
    second race it starts at a(y)·T, a = q/r, with rate r(y), r the residual. With t = s·T and g(s) = Σ_{a(z)
    < s} r(z)·(s - a(z)) it wins with probability r(y)·∫_{a(y)}^∞ ds/(1 + g(s))²; between two starts, l and h,
    the integral is (h - l)/((1 + g(l))·(1 + g(h))), and beyond the last it is 1/(1 + g(l))."""
    rates = laws.residual(p, q)
    start = {y: q[y] / rate for y, rate in enumerate(rates) if rate}
    starts = sorted(set(start.values()))
    chances = [0 * rate for rate in rates]
    for low, high in zip(starts, [*starts[1:], None], strict=True):
        running = [y for y in start if start[y] <= low]
        head = 1 + sum(low * rates[y] - q[y] for y in running)
        if high is None:
            share = 1 / head
        else:
            share = (high - low) / (head * (head + (high - low) * sum(rates[y] for y in running)))
        for y in running:
            chances[y] += rates[y] * share
    return chances


def ranks_disagree(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    u = rng.random((2, *draft_tokens.shape))
    mine, others = (ref.first_failure(ref.ratio_test(one, draft_tokens, p[:, :-1], q)) for one in u)
    return ref.pack_output(draft_tokens, mine, ref.last_token(draft_tokens, p, q, others, rng.random(len(p))))


@of_chain
def ranks_disagree_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """Wherever one rank stops, the token is that of where the other did."""
    stop = stop_law(ratios(tokens, p, q))
    rows = laws.follow_rows(tokens, p, q)
    mixed = [sum(share * row[y] for share, row in zip(stop, rows, strict=True)) for y in range(len(p[0]))]
    return stop, [mixed] * len(stop)


MISTAKES = (
    mistake(
        "one_uniform",
        uniforms=one_test,
        law=chain_law(lambda tokens, p, q: laws.under_one_uniform(ratios(tokens, p, q), p)),
    ),
    mistake("test_uniform_draws", verify=test_draws_too, law=test_draws_too_law),
    mistake("stretched_uniform", verify=stretched_draws, law=stretched_law),
    mistake("shared_gumbel", verify=shared_gumbel, law=law(recovered=second_race)),
    mistake("ranks_disagree", verify=ranks_disagree, law=ranks_disagree_law),
    mistake(
        "batch_shares_uniforms",
        uniforms=lambda rng, steps, count: np.repeat(rng.random((1, count)), steps, axis=0),
    ),
    mistake(
        "pairs_share_uniforms",
        uniforms=lambda rng, steps, count: rng.random((-(-steps // 2), count)).repeat(2, axis=0)[:steps],
    ),
    mistake("reseeded", uniforms=lambda rng, steps, count: np.random.default_rng(0).random((steps, count))),
    decoder("steps_share_uniforms", Decoder(repeated=True)),
    decoder("tests_share_uniform", Decoder(one_test=True)),
)
