"""Seventy wrong verifiers of speculative decoding. Each has one mistake; the rest of it is right.

verifier(draft_tokens int64[B, g], p float64[B, g+1, V], q float64[B, g, V], rng) -> int64[B, g+1]
"""

import numpy as np

ENTRIES = []
MEMORY = {}


def reset():
    """Forget what was kept between calls."""
    MEMORY.clear()


def wrong(mechanism, shape):
    def keep(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return function

    return keep


# Shared helpers. These are right.


def leading(ok):
    """How many places pass before the first that fails."""
    return np.logical_and.accumulate(ok, axis=1).sum(axis=1)


def at(rows, n):
    """Row n[b] of step b."""
    return rows[np.arange(len(n)), n]


def q_at(q, n):
    """The draft's row n[b], or zeros where n[b] is the place of the bonus token."""
    g = q.shape[1]
    return at(q, np.minimum(n, g - 1)) * (n < g)[:, None]


def or_else(w, spare):
    """w, or spare where w has no mass."""
    return np.where((w.sum(axis=1) > 0)[:, None], w, spare)


def chances(drafts, p, q):
    """p and q of the drafted tokens."""
    index, g = drafts[..., None], drafts.shape[1]
    return np.take_along_axis(p[:, :g], index, 2)[..., 0], np.take_along_axis(q, index, 2)[..., 0]


def last_positive(w):
    return w.shape[1] - 1 - np.argmax(w[:, ::-1] > 0, axis=1)


def draw(w, u):
    """One token a row by inverse CDF; w need not sum to 1."""
    cdf = np.cumsum(w, axis=1)
    token = (cdf <= (u * cdf[:, -1])[:, None]).sum(axis=1)
    return np.minimum(token, last_positive(w))


def emit(drafts, n, last):
    """The first n[b] drafted tokens, then last[b], then -1."""
    batch, g = drafts.shape
    out = np.full((batch, g + 1), -1, dtype=np.int64)
    keep = np.arange(g) < n[:, None]
    out[:, :g][keep] = drafts[keep]
    out[np.arange(batch), n] = last
    return out


def residual(p, q, n):
    return or_else(np.maximum(at(p, n) - q_at(q, n), 0), at(p, n))


def passed(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    return rng.random(drafts.shape) * qx < px


def count(drafts, p, q, rng):
    """The right number of accepted tokens."""
    return leading(passed(drafts, p, q, rng))


def close(drafts, n, w, rng):
    """Emit with a last token drawn from w."""
    return emit(drafts, n, draw(w, rng.random(len(n))))


def finish(drafts, p, q, n, rng):
    """Emit with the right last token."""
    return close(drafts, n, residual(p, q, n), rng)


def rejected(n, q):
    return (n < q.shape[1])[:, None]


def unit(w):
    total = w.sum(axis=-1, keepdims=True)
    return w / np.where(total > 0, total, 1)


def largest(w, k):
    """w with all but its k largest entries set to 0."""
    if k >= w.shape[-1]:
        return w
    return np.where(w >= -np.partition(-w, k - 1, axis=-1)[..., k - 1 : k], w, 0)


# The residual.


@wrong("After a rejection the token is drawn from p_i itself, not from max(p_i - q_i, 0).", "any; p unlike q")
def target_after_rejection(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    return close(drafts, n, at(p, n), rng)


@wrong(
    "After a rejection only the rejected token is removed from p_i (as for a draft of one certain "
    "token), though the test used q_i(x).",
    "any; p unlike q",
)
def only_rejected_token_removed(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = at(p, n).copy()
    row = np.flatnonzero(n < q.shape[1])
    w[row, drafts[row, n[row]]] = 0
    return close(drafts, n, or_else(w, at(p, n)), rng)


@wrong(
    "The residual after a rejection at place i is max(p_{i+1} - q_i, 0): the target row is one too late.",
    "rows of p that differ between places",
)
def residual_target_row_late(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    row = at(p, np.minimum(n + 1, g))
    return close(drafts, n, or_else(np.maximum(row - q_at(q, n), 0), row), rng)


@wrong(
    "The residual subtracts the one number q_i(x) of the rejected token from all of p_i, as the "
    "gathered q is broadcast over the vocabulary.",
    "any; p unlike q",
)
def residual_of_gathered_q(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    _, qx = chances(drafts, p, q)
    level = at(qx, np.minimum(n, g - 1)) * (n < g)
    return close(drafts, n, or_else(np.maximum(at(p, n) - level[:, None], 0), at(p, n)), rng)


@wrong(
    "The residual is not normalised before the inverse CDF: all numbers above its sum go to the last "
    "id with weight.",
    "any; p unlike q",
)
def residual_not_normalised(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    token = (np.cumsum(w, axis=1) <= rng.random(len(n))[:, None]).sum(axis=1)
    return emit(drafts, n, np.minimum(token, last_positive(w)))


@wrong(
    "The residual keeps only tokens with q_i > 0 (the draft's own smaller vocabulary), so that tokens "
    "the draft cannot propose are never drawn after a rejection.",
    "q_i = 0 for some tokens with p_i > 0",
)
def residual_in_draft_vocabulary(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    known = np.where(rejected(n, q), q_at(q, n) > 0, True)
    return close(drafts, n, or_else(w * known, w), rng)


@wrong(
    "A residual whose sum is below 0.1 is taken for rounding noise, and the argmax of p_i is given in "
    "its place.",
    "p near q (TV of the rows .05 to .1)",
)
def small_residual_is_noise(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    last = draw(w, rng.random(len(n)))
    return emit(drafts, n, np.where(w.sum(axis=1) < 0.1, at(p, n).argmax(axis=1), last))


@wrong(
    "The residual is max(p_i - u q_i, 0) with the number u that rejected, not max(p_i - q_i, 0).",
    "any; p unlike q",
)
def residual_scaled_by_test_number(drafts, p, q, rng):
    u, g = rng.random(drafts.shape), q.shape[1]
    px, qx = chances(drafts, p, q)
    n = leading(u * qx < px)
    scale = at(u, np.minimum(n, g - 1))[:, None]
    return close(drafts, n, or_else(np.maximum(at(p, n) - scale * q_at(q, n), 0), at(p, n)), rng)


@wrong(
    "The residual is floored at 0.01 for every token with p_i > 0 before it is normalised.",
    "any; stronger with more tokens",
)
def residual_with_floor(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    floored = np.where(at(p, n) > 0, np.maximum(w, 0.01), 0)
    return close(drafts, n, np.where(rejected(n, q), floored, w), rng)


# The accept test.


@wrong("The test is u < p_i(x) (as for a certain draft), while the residual uses q_i.", "any")
def draft_missing_in_test(drafts, p, q, rng):
    px, _ = chances(drafts, p, q)
    return finish(drafts, p, q, leading(rng.random(drafts.shape) < px), rng)


@wrong("No random number in the test: x is accepted if p_i(x) >= q_i(x) and rejected if not.", "any")
def test_without_chance(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    return finish(drafts, p, q, leading(px >= qx), rng)


@wrong("Lenient test: the ratio is multiplied by 1.25 before it is compared with u.", "any; p unlike q")
def ratio_times_five_quarters(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    return finish(drafts, p, q, leading(rng.random(drafts.shape) * qx < 1.25 * px), rng)


@wrong(
    "The test in log space takes log10(u) but natural logarithms of p and q: the ratio is raised to "
    "the power 2.3.",
    "any; p unlike q",
)
def logarithms_of_two_bases(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    ratio = np.log(np.maximum(px, 1e-300)) - np.log(qx)
    u = np.maximum(rng.random(drafts.shape), 1e-300)
    return finish(drafts, p, q, leading(np.log10(u) < ratio), rng)


@wrong(
    "The test at place i reads p_{i+1}(x): the logits are not shifted by one for the test (the last "
    "token is drawn from the right row).",
    "rows of p that differ between places",
)
def test_reads_next_target_row(drafts, p, q, rng):
    px, qx = chances(drafts, p[:, 1:], q)
    return finish(drafts, p, q, leading(rng.random(drafts.shape) * qx < px), rng)


@wrong(
    "q of the drafted tokens is gathered with the drafted tokens of row 0 for all rows of the call.",
    "two rows or more",
)
def gathered_with_tokens_of_row_0(drafts, p, q, rng):
    px, _ = chances(drafts, p, q)
    _, qx = chances(np.broadcast_to(drafts[:1], drafts.shape), p, q)
    return finish(drafts, p, q, leading(rng.random(drafts.shape) * qx < px), rng)


@wrong("The ratio p/q is clamped to at least 0.2 wherever p_i(x) > 0.", "p small where q is large")
def ratio_clamped_below(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    ratio = np.where(px > 0, np.maximum(px / qx, 0.2), 0)
    return finish(drafts, p, q, leading(rng.random(drafts.shape) < ratio), rng)


@wrong(
    "q_i(x) is clamped to at least 0.02 in the test against division by 0.", "many tokens with q below .02"
)
def draft_clamped_in_test(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    return finish(drafts, p, q, leading(rng.random(drafts.shape) * np.maximum(qx, 0.02) < px), rng)


@wrong(
    "Typical acceptance in place of the test: x is accepted if p_i(x) > min(0.09, 0.3 exp(-H(p_i))).", "any"
)
def typical_acceptance(drafts, p, q, rng):
    head = p[:, :-1]
    entropy = -(head * np.log(np.maximum(head, 1e-300))).sum(axis=2)
    px, _ = chances(drafts, p, q)
    return finish(drafts, p, q, leading(px > np.minimum(0.09, 0.3 * np.exp(-entropy))), rng)


@wrong(
    "Where the TV of p_i and q_i is below 0.15 the drafted token is accepted without a test.",
    "p near q (TV of the rows .1)",
)
def close_rows_not_tested(drafts, p, q, rng):
    near = np.abs(p[:, :-1] - q).sum(axis=2) / 2 < 0.15
    return finish(drafts, p, q, leading(passed(drafts, p, q, rng) | near), rng)


@wrong(
    "An accepted token with p_i(x) < 0.1 is taken back as unsure, and the step ends there with a draw "
    "from the residual.",
    "tokens with p below .1",
)
def unsure_token_taken_back(drafts, p, q, rng):
    px, _ = chances(drafts, p, q)
    return finish(drafts, p, q, leading(passed(drafts, p, q, rng) & (px >= 0.1)), rng)


# Where the first rejection is.


@wrong(
    "The number of accepted tokens is the sum of all tests that passed, not the length of the passing "
    "prefix.",
    "two drafted tokens or more",
)
def all_passes_counted(drafts, p, q, rng):
    return finish(drafts, p, q, passed(drafts, p, q, rng).sum(axis=1), rng)


@wrong("The rejected token is kept, and the step ends one place later with a draw from p_{i+1}.", "any")
def rejection_one_place_late(drafts, p, q, rng):
    n = np.minimum(count(drafts, p, q, rng) + 1, q.shape[1])
    return close(drafts, n, at(p, n), rng)


@wrong(
    "After a rejection at place i > 0 the accepted token before it is dropped as well, and the token "
    "is drawn from the residual of place i - 1.",
    "two drafted tokens or more",
)
def rejection_one_place_early(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    n = np.where(n < q.shape[1], np.maximum(n - 1, 0), n)
    return finish(drafts, p, q, n, rng)


@wrong(
    "The first rejection is argmin of the passed tests, which is 0 when all passed: a fully accepted "
    "row ends at place 0 with a draw from the residual there.",
    "p near q, so that rows are fully accepted",
)
def argmin_of_all_true(drafts, p, q, rng):
    return finish(drafts, p, q, np.argmin(passed(drafts, p, q, rng), axis=1), rng)


@wrong(
    "The branch for a rejection is `n < g - 1`: a rejection at the last drafted place draws from p "
    "there, not from the residual.",
    "any; strongest with one drafted token",
)
def last_rejection_from_target(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    w = np.where((n < g - 1)[:, None], residual(p, q, n), at(p, n))
    return close(drafts, n, w, rng)


@wrong(
    "Tokens are tested in pairs by the product of their two ratios; a pair that fails ends the step at "
    "its first place with the one-token residual.",
    "two drafted tokens or more",
)
def tested_in_pairs(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    u, g = rng.random(drafts.shape), drafts.shape[1]
    ok = u * qx < px
    for i in range(0, g - 1, 2):
        ok[:, i] = ok[:, i + 1] = u[:, i] * qx[:, i] * qx[:, i + 1] < px[:, i] * px[:, i + 1]
    return finish(drafts, p, q, leading(ok), rng)


# The bonus token.


@wrong(
    "The bonus token is drawn from p_{g-1}, the row of the last drafted token, not from p_g.",
    "full acceptance; p_g unlike p_{g-1}",
)
def bonus_row_before(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    w = np.where(rejected(n, q), residual(p, q, n), p[:, g - 1])
    return close(drafts, n, w, rng)


@wrong("The bonus token is the argmax of p_g.", "full acceptance")
def bonus_argmax(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    last = draw(residual(p, q, n), rng.random(len(n)))
    return emit(drafts, n, np.where(n < g, last, p[:, g].argmax(axis=1)))


@wrong(
    "The bonus token is drawn from max(p_g - q_{g-1}, 0): the index of q is clipped, not masked.",
    "full acceptance",
)
def bonus_minus_last_draft_row(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    w = np.maximum(at(p, n) - at(q, np.minimum(n, g - 1)), 0)
    return close(drafts, n, or_else(w, at(p, n)), rng)


@wrong(
    "The row p_g, already probabilities, goes through softmax again before the bonus token is drawn.",
    "full acceptance; p_g not flat",
)
def bonus_softmax_twice(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    row = residual(p, q, n)
    return close(drafts, n, np.where(rejected(n, q), row, np.exp(row)), rng)


@wrong(
    "A bonus token equal to the last drafted token is taken for a repetition and drawn once more.",
    "full acceptance; p_g gives weight to the last drafted token",
)
def bonus_repetition_redrawn(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    w = residual(p, q, n)
    last, again = draw(w, rng.random(len(n))), draw(w, rng.random(len(n)))
    return emit(drafts, n, np.where((n == g) & (last == drafts[:, -1]), again, last))


# Temperature and filters on one side.


@wrong("Temperature 0.8 is applied to p in the test only; the residual and the bonus use p as given.", "any")
def target_cooled_in_test(drafts, p, q, rng):
    return finish(drafts, p, q, count(drafts, unit(p**1.25), q, rng), rng)


@wrong("A default top_k = 50 is applied to the target rows once more.", "more than 50 tokens with weight")
def default_top_fifty(drafts, p, q, rng):
    p = unit(largest(p, 50))
    return finish(drafts, p, q, count(drafts, p, q, rng), rng)


@wrong(
    "Top-p 0.9 is applied to the rows of q in the verifier (test and residual), while drafts come from "
    "all of q.",
    "any",
)
def nucleus_of_draft_only(drafts, p, q, rng):
    order = np.argsort(-q, axis=2)
    ranked = np.take_along_axis(q, order, 2)
    cut = np.where(np.cumsum(ranked, axis=2) - ranked < 0.9, ranked, 0)
    kept = np.zeros_like(q)
    np.put_along_axis(kept, order, cut, 2)
    kept = unit(kept)
    return finish(drafts, p, kept, count(drafts, p, kept, rng), rng)


@wrong(
    "Min-p 0.1 is applied where the last token is drawn (residual and bonus), not in the test.",
    "p with tokens below a tenth of its maximum",
)
def min_p_on_last_token(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w, row = residual(p, q, n), at(p, n)
    return close(drafts, n, or_else(w * (row >= 0.1 * row.max(axis=1, keepdims=True)), w), rng)


@wrong(
    "The grammar mask (p_i > 0) is applied to q_i, which is normalised again for test and residual, "
    "though drafts were made without the mask.",
    "p_i = 0 for tokens with q_i > 0",
)
def grammar_mask_on_draft(drafts, p, q, rng):
    q = unit(q * (p[:, :-1] > 0))
    n = leading(passed(drafts, p, q, rng) & (chances(drafts, p, q)[0] > 0))
    return finish(drafts, p, q, n, rng)


@wrong(
    "A repetition penalty inside the step: tokens drafted at earlier places have p halved (then "
    "normalised) at later places.",
    "two drafted tokens or more, or the bonus token",
)
def drafted_tokens_penalised(drafts, p, q, rng):
    seen = np.zeros(p.shape, dtype=bool)
    for i in range(1, p.shape[1]):
        seen[:, i] = seen[:, i - 1]
        np.put_along_axis(seen[:, i], drafts[:, i - 1 : i], True, 1)
    p = unit(np.where(seen, p / 2, p))
    return finish(drafts, p, q, count(drafts, p, q, rng), rng)


@wrong(
    "Only the 20 largest q_i are sent to the verifier; q of all other tokens is taken as 0, so that "
    "they are always accepted.",
    "more than 20 tokens with weight in q",
)
def draft_top_twenty_known(drafts, p, q, rng):
    q = largest(q, 20)
    return finish(drafts, p, q, count(drafts, p, q, rng), rng)


# Random numbers.


@wrong("One random number a row is used in the tests of all places.", "two drafted tokens or more")
def one_number_for_all_places(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    n = leading(rng.random((len(drafts), 1)) * qx < px)
    return finish(drafts, p, q, n, rng)


@wrong(
    "The test numbers are drawn once for each place and shared by all rows of the call.",
    "two rows or more; pairs of rows",
)
def rows_share_test_numbers(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    n = leading(rng.random((1, drafts.shape[1])) * qx < px)
    return finish(drafts, p, q, n, rng)


@wrong(
    "The number of the test that failed is used again, as it is, to draw from the residual.",
    "any; p unlike q",
)
def failed_number_draws(drafts, p, q, rng):
    batch, g = drafts.shape
    u = rng.random((batch, g + 1))
    px, qx = chances(drafts, p, q)
    n = leading(u[:, :g] * qx < px)
    return emit(drafts, n, draw(residual(p, q, n), at(u, n)))


@wrong(
    "The last token is drawn with the number of the test before (index n - 1), which is known to have "
    "passed.",
    "two drafted tokens or more, or the bonus token",
)
def passed_number_draws(drafts, p, q, rng):
    batch, g = drafts.shape
    u = rng.random((batch, g + 1))
    px, qx = chances(drafts, p, q)
    n = leading(u[:, :g] * qx < px)
    return emit(drafts, n, draw(residual(p, q, n), at(u, n - 1)))


@wrong(
    "The generator is made anew from seed 0 in every call, so that all calls use the same numbers.",
    "two calls or more; pairs of calls",
)
def reseeded_in_every_call(drafts, p, q, rng):
    rng = np.random.default_rng(0)
    return finish(drafts, p, q, count(drafts, p, q, rng), rng)


@wrong(
    "The counter of the random stream moves on by B after a call that used B (g + 1) numbers: the next "
    "call uses the numbers of places 1 to g again, one place earlier.",
    "two calls or more of one B",
)
def stream_offset_too_short(drafts, p, q, rng):
    batch, g = drafts.shape
    pool = MEMORY.get("stream", np.empty(0))
    pool = np.concatenate([pool, rng.random(max(batch * (g + 1) - len(pool), 0))])
    MEMORY["stream"] = pool[batch:]
    u = pool[: batch * (g + 1)].reshape(g + 1, batch).T
    px, qx = chances(drafts, p, q)
    n = leading(u[:, :g] * qx < px)
    return emit(drafts, n, draw(residual(p, q, n), u[:, g]))


@wrong(
    "Tests and last tokens use two generators of one seed: draw number b equals test number b of the "
    "flattened array.",
    "any; strongest with one drafted token or one row",
)
def two_generators_of_one_seed(drafts, p, q, rng):
    seed = int(rng.integers(2**62))
    tests, draws = np.random.default_rng(seed), np.random.default_rng(seed)
    return finish(drafts, p, q, count(drafts, p, q, tests), draws)


@wrong(
    "The test number is a hash of the drafted token and its place, so that a token is always accepted "
    "or always rejected by given rows.",
    "any; p unlike q",
)
def test_number_is_hash_of_token(drafts, p, q, rng):
    place = np.arange(drafts.shape[1])
    mixed = drafts.astype(np.uint64) * np.uint64(2654435761) + place.astype(np.uint64) * np.uint64(40503)
    mixed = (mixed ^ (mixed >> np.uint64(13))) * np.uint64(0x9E3779B97F4A7C15)
    u = (mixed >> np.uint64(11)) / 2.0**53
    px, qx = chances(drafts, p, q)
    return finish(drafts, p, q, leading(u * qx < px), rng)


@wrong(
    "Test numbers are stratified over the rows of a call (one in each interval of width 1/B, in random "
    "order), so that rows of a call are not independent.",
    "two to eight rows; pairs of rows",
)
def rows_stratified(drafts, p, q, rng):
    batch = len(drafts)
    strata = rng.permuted(np.tile(np.arange(batch)[:, None], drafts.shape[1]), axis=0)
    px, qx = chances(drafts, p, q)
    n = leading((strata + rng.random(drafts.shape)) / batch * qx < px)
    return finish(drafts, p, q, n, rng)


@wrong(
    "One number is recycled through the tests, but as u / (p/q) without min(1, p/q): after a token "
    "with p > q it is too small.",
    "two drafted tokens or more, or the bonus token",
)
def recycled_without_clip(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    batch, g = drafts.shape
    u, n, alive = rng.random(batch), np.zeros(batch, dtype=np.int64), np.ones(batch, dtype=bool)
    for i in range(g):
        r = px[:, i] / qx[:, i]
        ok = u < r
        left = np.where(ok, u / np.where(r > 0, r, 1), (u - r) / np.where(r < 1, 1 - r, 1))
        u = np.where(alive, left, u)
        alive &= ok
        n += alive
    return emit(drafts, n, draw(residual(p, q, n), u))


@wrong(
    "The number that draws the last token is rounded to half precision: at most some thousand "
    "different values, which reach only part of a large vocabulary.",
    "some thousand tokens of like weight",
)
def half_precision_number(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    u = np.minimum(rng.random(len(n)).astype(np.float16), np.float16(0.9995)).astype(np.float64)
    return emit(drafts, n, draw(residual(p, q, n), u))


@wrong(
    "The buffer of random numbers has 1024 rows; rows b and b + 1024 of a call use the same numbers.",
    "more than 1024 rows; pairs of rows",
)
def number_buffer_of_1024_rows(drafts, p, q, rng):
    batch, g = drafts.shape
    u = rng.random((min(batch, 1024), g + 1))[np.arange(batch) % 1024]
    px, qx = chances(drafts, p, q)
    n = leading(u[:, :g] * qx < px)
    return emit(drafts, n, draw(residual(p, q, n), u[:, g]))


@wrong(
    "The last token is argmax(log w + noise) with Gumbel noise made for 128 tokens and repeated in "
    "every block of 128: the block offset is missing.",
    "more than 128 tokens",
)
def gumbel_noise_repeats_by_block(drafts, p, q, rng):
    n, size = count(drafts, p, q, rng), p.shape[2]
    noise = rng.gumbel(size=(len(n), 128))[:, np.arange(size) % 128]
    w = residual(p, q, n)
    score = np.where(w > 0, np.log(np.maximum(w, 1e-300)) + noise, -np.inf)
    return emit(drafts, n, score.argmax(axis=1))


@wrong(
    "The last token is argmax(log w - log u) : one logarithm of the Gumbel noise -log(-log u) is missing.",
    "any",
)
def gumbel_with_one_logarithm(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    score = np.where(w > 0, np.log(np.maximum(w, 1e-300)) + rng.standard_exponential(w.shape), -np.inf)
    return emit(drafts, n, score.argmax(axis=1))


@wrong(
    "The drafted token is accepted if it equals argmax(log p_i + noise), else that argmax is given; "
    "the noise is the same at all places of a row.",
    "two drafted tokens or more; pairs of places",
)
def coupling_noise_shared_by_places(drafts, p, q, rng):
    noise = rng.gumbel(size=(len(p), 1, p.shape[2]))
    own = np.where(p > 0, np.log(np.maximum(p, 1e-300)) + noise, -np.inf).argmax(axis=2)
    n = leading(own[:, :-1] == drafts)
    return emit(drafts, n, at(own, n))


# Precision and ids.


@wrong(
    "The cumulative sum of the last token's weights is taken in float16, where small weights are lost.",
    "some thousand tokens or more",
)
def half_precision_cumsum(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = unit(residual(p, q, n))
    cdf = np.cumsum(w.astype(np.float16), axis=1, dtype=np.float16)
    token = (cdf <= rng.random(len(n))[:, None]).sum(axis=1)
    return emit(drafts, n, np.minimum(token, last_positive(w)))


@wrong(
    "p and q are sent as bytes: rounded to multiples of 1/255 before tests and draws.",
    "many tokens with p near 1/500 or below",
)
def probabilities_in_bytes(drafts, p, q, rng):
    coarse_p, coarse_q = np.rint(p * 255) / 255, np.rint(q * 255) / 255
    n = count(drafts, coarse_p, coarse_q, rng)
    w = np.maximum(at(coarse_p, n) - q_at(coarse_q, n), 0)
    return close(drafts, n, or_else(w, at(p, n)), rng)


@wrong(
    "The id of the last token is stored in 16 bits: ids above 65535 wrap around.", "more than 65536 tokens"
)
def last_id_in_sixteen_bits(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    last = draw(residual(p, q, n), rng.random(len(n)))
    return emit(drafts, n, last & 0xFFFF)


@wrong(
    "Residual weights are sorted before the draw, and the rank is returned as the token: the map back "
    "to ids is missing for rejected rows.",
    "any",
)
def rank_returned_for_id(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    ranked = np.where(rejected(n, q), -np.sort(-w, axis=1), w)
    return close(drafts, n, ranked, rng)


@wrong(
    "The residual is read in blocks of 128 tokens by V // 128 steps: the tokens of the last, partial "
    "block are never drawn after a rejection.",
    "more than 128 tokens, not a multiple of 128",
)
def vocabulary_tail_lost(drafts, p, q, rng):
    n, size = count(drafts, p, q, rng), p.shape[2]
    w = residual(p, q, n)
    if size > 128:
        cut = np.where(np.arange(size) < size // 128 * 128, w, 0)
        w = np.where(rejected(n, q), or_else(cut, w), w)
    return close(drafts, n, w, rng)


# Batches.


@wrong(
    "All rows of a call are cut to the shortest accepted prefix of the call, and all draw from the "
    "residual there, also rows whose token there was accepted.",
    "two rows or more",
)
def shortest_row_rules(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    return finish(drafts, p, q, np.full_like(n, n.min()), rng)


@wrong(
    "The flattened target rows are read with stride g, not g + 1: from row 1 on the rows of p are "
    "those of other places and rows of the call.",
    "two rows or more; p differs between places or rows",
)
def target_stride_too_short(drafts, p, q, rng):
    batch, g = drafts.shape
    index = np.arange(batch)[:, None] * g + np.arange(g + 1)
    p = p.reshape(-1, p.shape[2])[index]
    return finish(drafts, p, q, count(drafts, p, q, rng), rng)


@wrong(
    "Rejected rows are drawn first, fully accepted rows after them, and the joined tokens are given to "
    "the rows in order of the call: the permutation is not undone.",
    "rows that reject and rows that do not",
)
def compacted_rows_not_scattered(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    last = draw(residual(p, q, n), rng.random(len(n)))
    return emit(drafts, n, np.concatenate([last[n < g], last[n == g]]))


@wrong(
    "If any row of the call is greedy (all its rows of p are one-hot) the whole call takes the greedy "
    "path: argmax of p at every place.",
    "a greedy row beside sampled rows",
)
def one_greedy_row_makes_all_greedy(drafts, p, q, rng):
    if not (p.max(axis=2) >= 1 - 1e-9).all(axis=1).any():
        return finish(drafts, p, q, count(drafts, p, q, rng), rng)
    best = p.argmax(axis=2)
    n = leading(best[:, :-1] == drafts)
    return emit(drafts, n, at(best, n))


@wrong(
    "A row whose q is one-hot at all places is taken for greedy decoding: argmax of p at every place.",
    "one-hot q (n-gram drafts), p not one-hot",
)
def certain_draft_means_greedy(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    last = draw(residual(p, q, n), rng.random(len(n)))
    greedy, best = (q.max(axis=2) >= 1 - 1e-9).all(axis=1), p.argmax(axis=2)
    m = leading(best[:, :-1] == drafts)
    return emit(drafts, np.where(greedy, m, n), np.where(greedy, at(best, m), last))


@wrong(
    "Where max p_i > 0.8 the argmax is taken without chance (accepted if drafted, else given).",
    "p_i with a maximum of .8 to .95",
)
def confident_rows_are_greedy(drafts, p, q, rng):
    sure = p.max(axis=2, keepdims=True) > 0.8
    p = np.where(sure, np.arange(p.shape[2]) == p.argmax(axis=2)[..., None], p).astype(np.float64)
    return finish(drafts, p, q, count(drafts, p, q, rng), rng)


# Block verification.


def block(drafts, p, q, most=1):
    """The clipped products P_0..P_g and the thresholds h_1..h_g of block verification (right for most=1)."""
    px, qx = chances(drafts, p, q)
    batch, g = drafts.shape
    product, h = np.ones((batch, g + 1)), np.ones((batch, g))
    for i in range(1, g + 1):
        product[:, i] = np.minimum(product[:, i - 1] * px[:, i - 1] / qx[:, i - 1], most)
    for i in range(1, g):
        mass = np.maximum(product[:, i, None] * p[:, i] - q[:, i], 0).sum(axis=1)
        total = mass + 1 - product[:, i]
        h[:, i - 1] = np.where(total > 0, mass / np.where(total > 0, total, 1), 1)
    h[:, g - 1] = product[:, g]
    return product, h


def last_true(ok):
    return np.where(ok.any(axis=1), ok.shape[1] - np.argmax(ok[:, ::-1], axis=1), 0)


def block_residual(p, q, product, n):
    return or_else(np.maximum(at(product, n)[:, None] * at(p, n) - q_at(q, n), 0), at(p, n))


@wrong(
    "Block verification uses the products P_i themselves as thresholds at all places, not only at the "
    "last: h_i = P_i.",
    "two drafted tokens or more",
)
def block_thresholds_are_products(drafts, p, q, rng):
    product, _ = block(drafts, p, q)
    n = last_true(rng.random(drafts.shape) < product[:, 1:])
    return close(drafts, n, block_residual(p, q, product, n), rng)


@wrong(
    "Block verification multiplies the ratios without the clip at 1 after each place: an early token "
    "with p > q pays for later tokens with p < q.",
    "two drafted tokens or more",
)
def block_products_not_clipped(drafts, p, q, rng):
    product, h = block(drafts, p, q, most=np.inf)
    n = last_true(rng.random(drafts.shape) < h)
    return close(drafts, n, block_residual(p, q, product, n), rng)


# State and retries.


@wrong(
    "The residual reads the rows of q of the call before (a buffer not yet refreshed) when its shape "
    "is the same.",
    "two calls of one shape with different q",
)
def residual_of_last_calls_q(drafts, p, q, rng):
    n = count(drafts, p, q, rng)
    old = MEMORY.get("rows", q)
    MEMORY["rows"] = q.copy()
    return finish(drafts, p, old if old.shape == q.shape else q, n, rng)


@wrong(
    "The ratio is multiplied by up to 2 when the running acceptance rate (kept between calls) is below "
    "0.8, to hold the speed-up.",
    "calls with a low acceptance rate, from the second call on",
)
def lenient_when_acceptance_falls(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    factor = np.clip(0.8 / MEMORY.get("rate", 0.8), 1, 2)
    n = leading(rng.random(drafts.shape) * qx < factor * px)
    MEMORY["rate"] = 0.7 * MEMORY.get("rate", 0.8) + 0.3 * max(n.mean() / drafts.shape[1], 0.01)
    return finish(drafts, p, q, n, rng)


@wrong(
    "The row of the bonus token is cached by the last drafted token and kept between calls: other "
    "contexts with the same last token get the first context's row.",
    "full acceptance; p_g differs between rows",
)
def bonus_row_cached_by_token(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    w, cache = residual(p, q, n), MEMORY.setdefault("bonus", {})
    for token in np.unique(drafts[n == g, -1])[:256]:
        rows = np.flatnonzero((n == g) & (drafts[:, -1] == token))
        w[rows] = cache.setdefault((p.shape[2], int(token)), p[rows[0], g].copy())
    return close(drafts, n, w, rng)


@wrong(
    "After a rejection a second candidate is drawn from q_i and tested against p_i again, not against "
    "the residual; only if it fails the residual is drawn from.",
    "any; p unlike q",
)
def second_candidate_against_target(drafts, p, q, rng):
    n, g = count(drafts, p, q, rng), q.shape[1]
    row = np.minimum(n, g - 1)
    second = draw(at(q, row), rng.random(len(n)))
    b = np.arange(len(n))
    ok = (rng.random(len(n)) * q[b, row, second] < p[b, row, second]) & (n < g)
    return emit(drafts, n, np.where(ok, second, draw(residual(p, q, n), rng.random(len(n)))))
