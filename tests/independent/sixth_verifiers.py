"""Fifty wrong verifiers, each with one mistake. The helpers are right."""

import numpy as np

ENTRIES = []
_state = {}


def reset():
    """Forget all that verifiers keep between calls."""
    _state.clear()


def entry(mechanism, shape="any"):
    def add(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return function

    return add


# ---- right helpers


def at(rows, tokens):
    """The entry of each drafted token in the row of its place."""
    return np.take_along_axis(rows[:, : tokens.shape[1]], tokens[:, :, None], 2)[:, :, 0]


def leading(ok):
    """How many trues each row starts with."""
    return np.cumprod(ok, 1).sum(1)


def place(rows, n):
    return rows[np.arange(len(n)), n]


def draw(weights, rng, u=None):
    """One token for each row of weights (need not sum to 1), by the inverse of the distribution function."""
    cdf = np.cumsum(weights, 1)
    u = rng.random(len(cdf)) if u is None else u
    return np.minimum((cdf <= (u * cdf[:, -1])[:, None]).sum(1), weights.shape[1] - 1)


def draft_at(q, n):
    """The draft's row at place n; zeros after the last draft."""
    return place(q, np.minimum(n, q.shape[1] - 1)) * (n < q.shape[1])[:, None]


def positive(weights, instead):
    """The positive part; rows without any become `instead`."""
    w = np.maximum(weights, 0.0)
    return np.where(w.sum(1, keepdims=True) > 0, w, instead)


def rest(p, q, n):
    """Weights of the last token: the residual after a rejection, the target's row after none."""
    pn = place(p, n)
    return positive(pn - draft_at(q, n), pn)


def pack(d, n, last):
    out = np.full((d.shape[0], d.shape[1] + 1), -1, np.int64)
    keep = np.arange(d.shape[1]) < n[:, None]
    out[:, :-1][keep] = d[keep]
    out[np.arange(len(n)), n] = last
    return out


def tests(d, p, q, rng):
    """The right tests of all places."""
    return rng.random(d.shape) * at(q, d) < at(p, d)


def right(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    return pack(d, n, draw(rest(p, q, n), rng))


def finish(d, n, p, q, rng):
    return pack(d, n, draw(rest(p, q, n), rng))


# ---- mistakes in the test


@entry("The ratio of the accept test is upside down: accepts with probability min(1, q/p).")
def upside_down(d, p, q, rng):
    ok = rng.random(d.shape) * at(p, d) < at(q, d)
    return finish(d, leading(ok), p, q, rng)


@entry("The accept test has no random number: accepts exactly when p(x) >= q(x).")
def no_lottery(d, p, q, rng):
    return finish(d, leading(at(p, d) >= at(q, d)), p, q, rng)


@entry(
    "The accept test compares the random number with p(x) and forgets to divide by q(x); the residual is still max(p - q, 0)."
)
def undivided(d, p, q, rng):
    return finish(d, leading(rng.random(d.shape) < at(p, d)), p, q, rng)


@entry(
    "The accept test is lenient: accepts with probability min(1, p / (0.7 q)); the residual is not changed to fit."
)
def lenient(d, p, q, rng):
    ok = 0.7 * rng.random(d.shape) * at(q, d) < at(p, d)
    return finish(d, leading(ok), p, q, rng)


@entry(
    "The accept test of place i reads the target's row of place i + 1 (q is at the right place); the residual uses the right rows."
)
def target_row_late(d, p, q, rng):
    ok = rng.random(d.shape) * at(q, d) < at(p[:, 1:], d)
    return finish(d, leading(ok), p, q, rng)


@entry(
    "The running product of the ratios p/q of all places up to i stands in the accept test of place i, each with a fresh "
    "random number and not clamped; the residual is the plain one of the place.",
    "two or more drafted tokens",
)
def running_product(d, p, q, rng):
    ratio = np.cumprod(at(p, d) / np.maximum(at(q, d), 1e-300), 1)
    return finish(d, leading(rng.random(d.shape) < ratio), p, q, rng)


@entry(
    "One accept test for the whole draft: all tokens are accepted with probability min(1, product of p/q), otherwise none "
    "is and the residual of place 0 is drawn.",
    "two or more drafted tokens",
)
def all_or_none(d, p, q, rng):
    whole = rng.random(len(d)) * at(q, d).prod(1) < at(p, d).prod(1)
    return finish(d, np.where(whole, d.shape[1], 0), p, q, rng)


@entry(
    "Typical acceptance: a token is accepted when p(x) exceeds min(0.1, 0.3 exp(-entropy of p)), without p/q and without "
    "a random number."
)
def typical(d, p, q, rng):
    rows = p[:, : d.shape[1]]
    entropy = -(rows * np.log(np.maximum(rows, 1e-300))).sum(2)
    ok = at(p, d) > np.minimum(0.1, 0.3 * np.exp(-entropy))
    return finish(d, leading(ok), p, q, rng)


@entry(
    "The accept test sharpens the target with temperature 0.6 and leaves the draft as it is; residual and bonus use the plain p."
)
def cold_test(d, p, q, rng):
    cold = p ** (1 / 0.6)
    cold /= cold.sum(2, keepdims=True)
    return finish(d, leading(rng.random(d.shape) * at(q, d) < at(cold, d)), p, q, rng)


@entry("The last drafted token is not tested: it is accepted whenever all before it are.")
def last_free(d, p, q, rng):
    ok = tests(d, p, q, rng)
    ok[:, -1] = True
    return finish(d, leading(ok), p, q, rng)


# ---- mistakes in counting


@entry(
    "The number of accepted tokens is the count of all passed tests, also of those after a failed one; that many leading "
    "draft tokens are kept and the residual of the next place is drawn.",
    "two or more drafted tokens",
)
def count_all(d, p, q, rng):
    return finish(d, tests(d, p, q, rng).sum(1), p, q, rng)


@entry(
    "The first failed test is found with argmin, which gives 0 when no test failed: fully accepted rows are treated as "
    "rejected at place 0 and get the residual of place 0."
)
def argmin_zero(d, p, q, rng):
    return finish(d, np.argmin(tests(d, p, q, rng), 1), p, q, rng)


@entry(
    "All rows are cut to the smallest accepted length in the batch and the residual of that place is drawn for every row, "
    "also for rows whose draft was accepted there.",
    "two or more rows in a call",
)
def shortest_of_batch(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    return finish(d, np.full_like(n, n.min()), p, q, rng)


# ---- mistakes after a rejection


@entry("After a rejection the token is drawn from the target's row p itself and not from the residual.")
def plain_redraw(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    return pack(d, n, draw(place(p, n), rng))


@entry(
    "After a rejection the token is drawn from p with only the rejected token taken out; q is not subtracted."
)
def without_rejected(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = place(p, n).copy()
    hit = np.flatnonzero(n < d.shape[1])
    w[hit, d[hit, n[hit]]] = 0
    return pack(d, n, draw(positive(w, place(p, n)), rng))


@entry("The residual is the absolute difference |p - q| and not its positive part.")
def distance_residual(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = np.where((n < d.shape[1])[:, None], np.abs(place(p, n) - draft_at(q, n)), place(p, n))
    return pack(d, n, draw(np.where(w.sum(1, keepdims=True) > 0, w, place(p, n)), rng))


@entry(
    "The residual is not normalised before the inverse of its distribution function is taken with a number of [0, 1): the "
    "mass that lacks goes to the last token of the vocabulary."
)
def lacking_mass(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    cdf = np.cumsum(rest(p, q, n), 1)
    return pack(d, n, np.minimum((cdf <= rng.random(len(d))[:, None]).sum(1), p.shape[2] - 1))


@entry(
    "The residual subtracts the draft's row of the place before (n - 1) from the target's row of the rejected place; at "
    "place 0 it is right.",
    "two or more drafted tokens",
)
def draft_row_early(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    early = draft_at(q, np.maximum(n - 1, 0)) * (n < d.shape[1])[:, None]
    return pack(d, n, draw(positive(place(p, n) - early, place(p, n)), rng))


@entry(
    "After a rejection the likeliest token of the residual is taken and not drawn; the bonus token is drawn."
)
def greedy_correction(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = rest(p, q, n)
    return pack(d, n, np.where(n < d.shape[1], w.argmax(1), draw(w, rng)))


@entry(
    "For the token after a rejection and for the bonus token only, the target is cut to its nucleus of mass 0.7; the accept "
    "test and q use the full rows."
)
def nucleus_late(d, p, q, rng):
    order = np.argsort(-p, 2)
    ranked = np.take_along_axis(p, order, 2)
    ranked = np.where(np.cumsum(ranked, 2) - ranked < 0.7, ranked, 0)
    cut = np.empty_like(p)
    np.put_along_axis(cut, order, ranked, 2)
    cut /= cut.sum(2, keepdims=True)
    n = leading(tests(d, p, q, rng))
    return pack(d, n, draw(rest(cut, q, n), rng))


@entry(
    "The last token's weights are normalised over the batch axis (sum(0)) and not over the vocabulary, then drawn in "
    "proportion in each row: each token's weight is divided by its sum over the rows of the call."
)
def batch_axis(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = rest(p, q, n)
    return pack(d, n, draw(w / np.maximum(w.sum(0), 1e-300), rng))


@entry(
    "The flattened target rows are indexed with stride gamma and not gamma + 1 when the last token's weights are made: row b "
    "reads the flat row b * gamma + n.",
    "two or more rows in a call",
)
def short_stride(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    pn = p.reshape(-1, p.shape[2])[np.arange(len(d)) * d.shape[1] + n]
    return pack(d, n, draw(positive(pn - draft_at(q, n), pn), rng))


# ---- mistakes with the bonus token


@entry(
    "The bonus token is drawn from the target's row of the last draft's place (gamma - 1) and not from the row after it."
)
def old_bonus(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = np.where((n == d.shape[1])[:, None], p[:, -2], rest(p, q, n))
    return pack(d, n, draw(w, rng))


@entry("The bonus token is the likeliest of its row and not drawn.")
def greedy_bonus(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    return pack(d, n, np.where(n == d.shape[1], p[:, -1].argmax(1), draw(rest(p, q, n), rng)))


@entry(
    "The index of the draft's row is clamped to gamma - 1, so that the bonus token is drawn from max(p_gamma - q_(gamma-1), 0) "
    "and not from p_gamma."
)
def bonus_residual(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    qn = place(q, np.minimum(n, d.shape[1] - 1))
    return pack(d, n, draw(positive(place(p, n) - qn, place(p, n)), rng))


# ---- mistakes with random numbers


@entry(
    "One uniform number for each row stands in the accept tests of all its places.",
    "two or more drafted tokens",
)
def one_number(d, p, q, rng):
    ok = rng.random((len(d), 1)) * at(q, d) < at(p, d)
    return finish(d, leading(ok), p, q, rng)


@entry(
    "One uniform number for each place is shared by all rows of the call in the accept test; the law of each row alone is "
    "right but the rows depend on each other.",
    "two or more rows in a call (dependence between rows)",
)
def one_number_for_batch(d, p, q, rng):
    ok = rng.random((1, d.shape[1])) * at(q, d) < at(p, d)
    return finish(d, leading(ok), p, q, rng)


@entry(
    "The uniform number that failed the accept test draws the token from the residual as it is (not scaled back to [0, 1)); "
    "as it is larger than p/q, high token ids are too likely."
)
def worn_number(d, p, q, rng):
    u = rng.random(d.shape)
    n = leading(u * at(q, d) < at(p, d))
    failed = place(u, np.minimum(n, d.shape[1] - 1))
    return pack(d, n, draw(rest(p, q, n), rng, np.where(n < d.shape[1], failed, rng.random(len(d)))))


# ---- state kept between calls


@entry(
    "The accept tests' uniform numbers are drawn once for each shape of the drafts and kept for all later calls of that shape.",
    "two or more calls of the same shape (dependence between calls; with small batches the law over calls, too)",
)
def kept_numbers(d, p, q, rng):
    if ("numbers", d.shape) not in _state:
        _state["numbers", d.shape] = rng.random(d.shape)
    ok = _state["numbers", d.shape] * at(q, d) < at(p, d)
    return finish(d, leading(ok), p, q, rng)


@entry(
    "The target's rows for the bonus token are kept from the first call with the same shape and used in later calls, whose "
    "rows are other ones.",
    "later calls with other rows of the same shape (or rows that depend on the drafts)",
)
def kept_bonus_rows(d, p, q, rng):
    bonus = _state.setdefault(("bonus", p.shape), p[:, -1].copy())
    n = leading(tests(d, p, q, rng))
    w = np.where((n == d.shape[1])[:, None], bonus, rest(p, q, n))
    return pack(d, n, draw(w, rng))


# ---- unusual ones


@entry(
    "The second half of the batch takes the mirrored numbers 1 - u of the first half in the accept tests: each row is right "
    "alone, but row b and row b + half depend on each other.",
    "two or more rows in a call (dependence between rows)",
)
def mirrored_rows(d, p, q, rng):
    u = rng.random(((len(d) + 1) // 2, d.shape[1]))
    u = np.concatenate([u, 1 - u])[: len(d)]
    return finish(d, leading(u * at(q, d) < at(p, d)), p, q, rng)


@entry(
    "The accepted length is found by bisection over the tests as if they were sorted (passes first); tests that the bisection "
    "does not look at may have failed.",
    "two or more drafted tokens",
)
def bisection(d, p, q, rng):
    ok = tests(d, p, q, rng)
    low, high = np.zeros(len(d), int), np.full(len(d), d.shape[1])
    while (low < high).any():
        middle = (low + high + 1) // 2
        passed = place(ok, np.maximum(middle - 1, 0)) | (middle == 0)
        low, high = np.where(passed, middle, low), np.where(passed, high, middle - 1)
    return finish(d, low, p, q, rng)


@entry(
    "The residual is drawn in two shards of the vocabulary: the shard is chosen by the target's mass in it and not by the "
    "residual's mass; inside the shard the residual is right (where it is empty, p)."
)
def shard_by_target(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w, pn = rest(p, q, n), place(p, n)
    half = (p.shape[2] + 1) // 2
    parts = []
    for cut in slice(None, half), slice(half, None):
        inside = positive(w[:, cut], pn[:, cut])
        parts.append(
            inside / np.maximum(inside.sum(1, keepdims=True), 1e-300) * pn[:, cut].sum(1, keepdims=True)
        )
    return pack(d, n, draw(np.concatenate(parts, 1), rng))


@entry(
    "The residual is sampled by rejection (draw y from p, keep it with probability max(0, 1 - q(y)/p(y))), but only "
    "the first y is tested: the second is kept anyway."
)
def two_tries(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    pn, qn = place(p, n), draft_at(q, n)
    y = draw(pn, rng)
    fail = rng.random(len(d)) * place(pn, y) >= place(pn, y) - place(qn, y)
    return pack(d, n, np.where(fail, draw(pn, rng), y))


@entry(
    "After a rejection the rejected token is taken out of the draft's row and that row is normalised again before it is "
    "subtracted: the residual is max(p - q', 0), in which the rejected token keeps its whole p."
)
def thinned_draft(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    qn = draft_at(q, n)
    hit = np.flatnonzero(n < d.shape[1])
    qn[hit, d[hit, n[hit]]] = 0
    qn /= np.maximum(qn.sum(1, keepdims=True), 1e-300)
    return pack(d, n, draw(positive(place(p, n) - qn, place(p, n)), rng))


@entry(
    "After a rejection at n the next drafted token is tried as a second candidate for place n against the residual (a right "
    "idea), but its test and the second residual use the draft's row n and not row n + 1, from which the token was drawn.",
    "two or more drafted tokens",
)
def second_candidate_row(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = rest(p, q, n)
    w = w / w.sum(1, keepdims=True)
    qn, y = draft_at(q, n), place(d, np.minimum(n + 1, d.shape[1] - 1))
    again = n + 1 < d.shape[1]
    took = again & (rng.random(len(d)) * place(qn, y) < place(w, y))
    w = np.where(again[:, None], positive(w - qn, w), w)
    return pack(d, n, np.where(took, y, draw(w, rng)))


@entry(
    "Coupling by exponential clocks: given that x won the draft's race at time T, the clocks of the other tokens must be "
    "q(i) T plus fresh ones; here q(i) T is not added, so others win the target's race too often."
)
def clocks_restarted(d, p, q, rng):
    clocks = rng.exponential(size=q.shape)
    won = at(q, d) * rng.exponential(size=d.shape)
    np.put_along_axis(clocks, d[:, :, None], won[:, :, None], 2)
    y = (clocks / np.maximum(p[:, :-1], 1e-300)).argmin(2)
    n = leading(y == d)
    last = place(y, np.minimum(n, d.shape[1] - 1))
    return pack(d, n, np.where(n < d.shape[1], last, draw(p[:, -1], rng)))


def block(d, p, q, rng, clamp=True, stop=False):
    """Block verification: the longest prefix whose own test passes."""
    size, gamma = d.shape
    joint, n, kept = np.ones(size), np.zeros(size, int), np.ones(size)
    ratio = at(p, d) / np.maximum(at(q, d), 1e-300)
    for i in range(1, gamma + 1):
        joint = joint * ratio[:, i - 1]
        joint = np.minimum(joint, 1) if clamp else joint
        over = np.maximum(joint[:, None] * p[:, i] - q[:, i], 0).sum(1) if i < gamma else joint
        under = over + 1 - joint
        passed = rng.random(size) * under < over
        passed &= (n == i - 1) if stop else True
        n, kept = np.where(passed, i, n), np.where(passed, joint, kept)
    return pack(d, n, draw(positive(kept[:, None] * place(p, n) - draft_at(q, n), place(p, n)), rng))


@entry(
    "Block verification, where the running product of the ratios is not clamped to 1 after each place.",
    "two or more drafted tokens",
)
def block_unclamped(d, p, q, rng):
    return block(d, p, q, rng, clamp=False)


@entry(
    "Block verification with the right tests and residuals, but it stops at the first prefix that fails; the longest prefix "
    "that passes must be kept, also past failed ones.",
    "two or more drafted tokens",
)
def block_stops(d, p, q, rng):
    return block(d, p, q, rng, stop=True)


@entry(
    "A moving average of the acceptance rate is kept between calls; when it is below 0.9 the ratio p/q is multiplied by "
    "1 + (0.9 - average) to hold the rate. The first call is right.",
    "second and later calls",
)
def held_rate(d, p, q, rng):
    boost = 1 + max(0.0, 0.9 - _state.get("rate", 1.0))
    n = leading(rng.random(d.shape) * at(q, d) < boost * at(p, d))
    _state["rate"] = 0.5 * _state.get("rate", 1.0) + 0.5 * n.mean() / d.shape[1]
    return finish(d, n, p, q, rng)


@entry(
    "The last token is the argmax of weight / noise, where the noise is uniform and not exponential: heavy tokens win too often."
)
def uniform_race(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = rest(p, q, n)
    return pack(d, n, (w / (1 - rng.random(w.shape))).argmax(1))


@entry(
    "The accept number is a number of the place, shared by the whole call, turned by a hash of the drafted token id: rows that "
    "drafted the same token at the same place get the same number. Each row is right alone.",
    "two or more rows in a call, small vocabulary (dependence between rows)",
)
def number_by_token(d, p, q, rng):
    u = (rng.random((1, d.shape[1])) + d * 0.6180339887498949) % 1
    return finish(d, leading(u * at(q, d) < at(p, d)), p, q, rng)


@entry(
    "Rows that accept more than half the draft (rounded up) are cut at that length and the next token is drawn from p, though "
    "its draft was looked at and accepted; rows rejected there draw the residual, so the place's law is a mixture.",
    "two or more drafted tokens",
)
def budget(d, p, q, rng):
    limit = (d.shape[1] + 1) // 2
    n = leading(tests(d, p, q, rng))
    w = rest(p, q, np.minimum(n, limit))
    w = np.where((n > limit)[:, None], p[:, limit], w)
    return pack(d, np.minimum(n, limit), draw(w, rng))


@entry(
    "Each accept number is the mean of two uniform numbers (as if of two ranks brought together by an all-reduce mean), so it "
    "has a triangular law."
)
def mean_of_ranks(d, p, q, rng):
    u = (rng.random(d.shape) + rng.random(d.shape)) / 2
    return finish(d, leading(u * at(q, d) < at(p, d)), p, q, rng)


@entry(
    "The residual is written as p times a rejection factor, but the factor is max(0, 1 - p/q) and not max(0, 1 - q/p): only "
    "tokens with p < q get weight p (q - p) / q."
)
def wrong_factor(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    pn, qn = place(p, n), draft_at(q, n)
    w = pn * np.maximum(0, 1 - pn / np.maximum(qn, 1e-300))
    w = np.where((n < d.shape[1])[:, None], w, pn)
    return pack(d, n, draw(positive(w, pn), rng))


@entry(
    "The verdict of a token id is remembered inside a row: when the same id is drafted again at a later place it takes the "
    "first verdict and is not tested.",
    "two or more drafted tokens, small vocabulary",
)
def remembered_verdict(d, p, q, rng):
    ok = tests(d, p, q, rng)
    for i in range(1, d.shape[1]):
        for j in range(i - 1, -1, -1):
            ok[:, i] = np.where(d[:, i] == d[:, j], ok[:, j], ok[:, i])
    return finish(d, leading(ok), p, q, rng)


@entry(
    "Drafted tokens are tested in pairs: both are accepted with probability min(1, product of their ratios), otherwise both "
    "are dropped and the plain residual of the pair's first place is drawn.",
    "two or more drafted tokens",
)
def pairs(d, p, q, rng):
    px, qx, u, n = at(p, d), at(q, d), rng.random(d.shape), np.zeros(len(d), int)
    alive = np.ones(len(d), bool)
    for i in range(0, d.shape[1], 2):
        alive &= u[:, i] * qx[:, i : i + 2].prod(1) < px[:, i : i + 2].prod(1)
        n += alive * px[:, i : i + 2].shape[1]
    return finish(d, n, p, q, rng)


@entry(
    "The last token's distribution function is summed in chunks of 16 tokens and the sum of the chunks before is not carried "
    "over: the first chunk-local sum above the number wins, and if there is none the last token.",
    "more than 16 tokens",
)
def chunks_without_carry(d, p, q, rng):
    n = leading(tests(d, p, q, rng))
    w = rest(p, q, n)
    w = w / w.sum(1, keepdims=True)
    local = np.concatenate([np.cumsum(w[:, i : i + 16], 1) for i in range(0, w.shape[1], 16)], 1)
    above = local > rng.random(len(d))[:, None]
    return pack(d, n, np.where(above.any(1), above.argmax(1), w.shape[1] - 1))


@entry(
    "The batch is worked off in blocks of 32 rows and each block makes a generator from the same seed (drawn once from rng): "
    "rows b and b + 32 get the same numbers. Each row is right alone.",
    "more than 32 rows in a call (dependence between rows)",
)
def same_seed_blocks(d, p, q, rng):
    seed = int(rng.integers(2**62))
    cuts = [slice(i, i + 32) for i in range(0, len(d), 32)]
    return np.concatenate([right(d[c], p[c], q[c], np.random.default_rng(seed)) for c in cuts])


@entry(
    "Two generators, one for the accept tests and one for the last tokens, are made from the same seed (drawn from rng): the "
    "number that draws row b's last token is the b-th number of the flat array of accept numbers.",
    "law of the first row (of all rows with one drafted token); else dependence between rows",
)
def twin_generators(d, p, q, rng):
    seed = int(rng.integers(2**62))
    n = leading(tests(d, p, q, np.random.default_rng(seed)))
    return pack(d, n, draw(rest(p, q, n), np.random.default_rng(seed)))


# measured by the author
MEASURED = {
    "upside_down": 0.768,
    "no_lottery": 0.594,
    "undivided": 0.352,
    "lenient": 0.222,
    "target_row_late": 0.471,
    "running_product": 0.115,
    "all_or_none": 0.291,
    "typical": 0.510,
    "cold_test": 0.180,
    "last_free": 0.364,
    "count_all": 0.515,
    "argmin_zero": 0.395,
    "shortest_of_batch": 0.594,
    "plain_redraw": 0.242,
    "without_rejected": 0.174,
    "distance_residual": 0.336,
    "lacking_mass": 0.284,
    "draft_row_early": 0.295,
    "greedy_correction": 0.470,
    "nucleus_late": 0.102,
    "batch_axis": 0.234,
    "short_stride": 0.385,
    "old_bonus": 0.245,
    "greedy_bonus": 0.210,
    "bonus_residual": 0.426,
    "one_number": 0.097,
    "one_number_for_batch": 0.231,
    "worn_number": 0.087,
    "kept_numbers": 0.456,
    "kept_bonus_rows": 0.076,
    "mirrored_rows": 0.216,
    "bisection": 0.379,
    "shard_by_target": 0.196,
    "two_tries": 0.142,
    "thinned_draft": 0.367,
    "second_candidate_row": 0.105,
    "clocks_restarted": 0.108,
    "block_unclamped": 0.076,
    "block_stops": 0.302,
    "held_rate": 0.241,
    "uniform_race": 0.052,
    "number_by_token": 0.153,
    "budget": 0.108,
    "mean_of_ranks": 0.107,
    "wrong_factor": 0.642,
    "remembered_verdict": 0.198,
    "pairs": 0.272,
    "chunks_without_carry": 0.400,
    "same_seed_blocks": 0.288,
    "twin_generators": 0.119,
}
for _entry in ENTRIES:
    _entry["tv"] = MEASURED[_entry["name"]]
