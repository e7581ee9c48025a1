"""Fifteen right verifiers that look unusual. Each docstring says why it is exact."""

import numpy as np

ENTRIES = []


def reset():
    """Nothing is kept between calls."""


def right(function):
    text = " ".join(function.__doc__.split())
    ENTRIES.append({"name": function.__name__, "mechanism": text, "shape": "any", "tv": None})
    return function


def leading(ok):
    return np.logical_and.accumulate(ok, axis=1).sum(axis=1)


def at(rows, n):
    return rows[np.arange(len(n)), n]


def q_at(q, n):
    g = q.shape[1]
    return at(q, np.minimum(n, g - 1)) * (n < g)[:, None]


def or_else(w, spare):
    return np.where((w.sum(axis=1) > 0)[:, None], w, spare)


def chances(drafts, p, q):
    index, g = drafts[..., None], drafts.shape[1]
    return np.take_along_axis(p[:, :g], index, 2)[..., 0], np.take_along_axis(q, index, 2)[..., 0]


def draw(w, u):
    cdf = np.cumsum(w, axis=1)
    token = (cdf <= (u * cdf[:, -1])[:, None]).sum(axis=1)
    return np.minimum(token, w.shape[1] - 1 - np.argmax(w[:, ::-1] > 0, axis=1))


def emit(drafts, n, last):
    batch, g = drafts.shape
    out = np.full((batch, g + 1), -1, dtype=np.int64)
    keep = np.arange(g) < n[:, None]
    out[:, :g][keep] = drafts[keep]
    out[np.arange(batch), n] = last
    return out


def residual(p, q, n):
    return or_else(np.maximum(at(p, n) - q_at(q, n), 0), at(p, n))


def count(drafts, p, q, rng):
    px, qx = chances(drafts, p, q)
    return leading(rng.random(drafts.shape) * qx < px)


def log0(w):
    return np.log(w, out=np.full(w.shape, -np.inf), where=w > 0)


@right
def sample_and_match(drafts, p, q, rng):
    """A token y_i is drawn from every row p_i by argmax(log p_i + Gumbel noise), independent of the
    drafts; drafts are accepted while x_i = y_i, and the step ends with y_n. Every emitted token is y_i,
    so the law is p; q is not used."""
    own = (log0(p) + rng.gumbel(size=p.shape)).argmax(axis=2)
    n = leading(own[:, :-1] == drafts)
    return emit(drafts, n, at(own, n))


@right
def maximal_coupling_by_inverse_cdf(drafts, p, q, rng):
    """One number a place: h = u q(x) is a height inside the bar of x. Below p(x) x is accepted. Else the
    point lies in the part of q above p; its position in that part is uniform over all rejected points (x
    included) and is mapped through the CDF of the residual. The replacement depends on x given a
    rejection, but its law over drafts is the residual."""
    px, qx = chances(drafts, p, q)
    batch, g = drafts.shape
    height = rng.random(drafts.shape) * qx
    n = leading(height < px)
    place = np.minimum(n, g - 1)
    token = at(drafts, place)
    over = np.maximum(q_at(q, place) - at(p, place), 0)
    below = np.cumsum(over, axis=1)[np.arange(batch), token] - over[np.arange(batch), token]
    total = over.sum(axis=1)
    position = (below + at(height, place) - at(px, place)) / np.where(total > 0, total, 1)
    u = np.where(n < g, np.clip(position, 0, 1 - 2**-53), rng.random(batch))
    return emit(drafts, n, draw(residual(p, q, n), u))


@right
def residual_by_resampling_loop(drafts, p, q, rng):
    """After a rejection tokens y are drawn from p until one is kept with chance 1 - min(1, q(y)/p(y)):
    the kept one has weight p - min(p, q), the residual. Rows still open after 50 rounds draw from the
    residual directly, which is the law of what the loop would give them."""
    n, batch = count(drafts, p, q, rng), len(drafts)
    row, less = at(p, n), q_at(q, n)
    last, live = draw(residual(p, q, n), rng.random(batch)), np.arange(batch)
    for _ in range(50):
        if not len(live):
            break
        y = draw(row[live], rng.random(len(live)))
        kept = rng.random(len(live)) * row[live, y] >= less[live, y]
        last[live[kept]] = y[kept]
        live = live[~kept]
    return emit(drafts, n, last)


@right
def block_verification(drafts, p, q, rng):
    """Block verification of Sun et al.: P_i = min(P_{i-1} p/q, 1), h_i = S_i / (S_i + 1 - P_i) with S_i =
    sum max(P_i p_i - q_i, 0), h_g = P_g; the longest i with u_i < h_i is accepted, and the last token is
    drawn from max(P_i p_i - q_i, 0), or p_g. Proved exact in their paper."""
    px, qx = chances(drafts, p, q)
    batch, g = drafts.shape
    product, n, u = np.ones((batch, g + 1)), np.zeros(batch, dtype=np.int64), rng.random(drafts.shape)
    for i in range(1, g + 1):
        product[:, i] = np.minimum(product[:, i - 1] * px[:, i - 1] / qx[:, i - 1], 1)
        h = product[:, i]
        if i < g:
            mass = np.maximum(product[:, i, None] * p[:, i] - q[:, i], 0).sum(axis=1)
            total = mass + 1 - h
            h = np.where(total > 0, mass / np.where(total > 0, total, 1), 1)
        n = np.where(u[:, i - 1] < h, i, n)
    w = np.maximum(at(product, n)[:, None] * at(p, n) - q_at(q, n), 0)
    return emit(drafts, n, draw(or_else(w, at(p, n)), rng.random(batch)))


@right
def all_in_logarithms(drafts, p, q, rng):
    """The test is -E < log p - log q with an exponential number E, as -E is log u. The residual is kept
    as log p + log(1 - exp(log q - log p)) and drawn from by Gumbel noise. The same quantities in
    logarithms."""
    px, qx = chances(drafts, p, q)
    n = leading(-rng.standard_exponential(drafts.shape) < log0(px) - np.log(qx))
    lp, lq = log0(residual(p, q * 0, n)), log0(q_at(q, n))
    gap = np.where(np.isfinite(lp), np.minimum(lq - np.where(np.isfinite(lp), lp, 0), 0), 0)
    share = -np.expm1(gap)
    lw = np.where((share > 0) & np.isfinite(lp), lp + log0(share), -np.inf)
    lw = np.where(np.isfinite(lw).any(axis=1)[:, None], lw, lp)
    return emit(drafts, n, (lw + rng.gumbel(size=lw.shape)).argmax(axis=1))


@right
def residual_sorted_before_draw(drafts, p, q, rng):
    """The residual is sorted from large to small, drawn from by inverse CDF, and the rank is mapped back
    to the id. The order of the bars of an inverse CDF does not change the law."""
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    order = np.argsort(-w, axis=1, kind="stable")
    rank = draw(np.take_along_axis(w, order, 1), rng.random(len(n)))
    return emit(drafts, n, at(order, rank))


@right
def one_number_recycled(drafts, p, q, rng):
    """One number a row. Given u < a with a = min(1, p/q), u / a is uniform again; given u >= a, (u - a) /
    (1 - a) is. The next test or the draw uses that number, so all are independent (up to 53 bits)."""
    px, qx = chances(drafts, p, q)
    batch, g = drafts.shape
    u, n, alive = rng.random(batch), np.zeros(batch, dtype=np.int64), np.ones(batch, dtype=bool)
    for i in range(g):
        a = np.minimum(px[:, i] / qx[:, i], 1)
        ok = u < a
        fresh = np.where(ok, u / np.where(a > 0, a, 1), (u - a) / np.where(a < 1, 1 - a, 1))
        u = np.where(alive, fresh, u)
        alive &= ok
        n += alive
    return emit(drafts, n, draw(residual(p, q, n), u))


@right
def number_of_untried_test_draws(drafts, p, q, rng):
    """The last token is drawn with the number of the test after the one that failed. No decision used it,
    as the step ended before it, so it is uniform and independent."""
    batch, g = drafts.shape
    u = rng.random((batch, g + 1))
    px, qx = chances(drafts, p, q)
    n = leading(u[:, :g] * qx < px)
    return emit(drafts, n, draw(residual(p, q, n), at(u, np.minimum(n + 1, g))))


@right
def no_bonus_token(drafts, p, q, rng):
    """A fully accepted row ends with its last drafted token and has no bonus token: g tokens, the last of
    them drafted. The tokens that are emitted have the law of p, the next step goes on after them."""
    n, g = count(drafts, p, q, rng), q.shape[1]
    m = np.minimum(n, g - 1)
    last = draw(residual(p, q, n), rng.random(len(n)))
    return emit(drafts, m, np.where(n < g, last, drafts[:, -1]))


@right
def random_budget(drafts, p, q, rng):
    """Each row gets a random budget k of 0 to g drafted tokens, drawn without looking at the tokens. If the
    first k are accepted, the step ends with a draw from p_k: verification of k drafted tokens."""
    batch, g = drafts.shape
    k, n = rng.integers(0, g + 1, size=batch), count(drafts, p, q, rng)
    m = np.minimum(n, k)
    w = np.where((n < k)[:, None], residual(p, q, m), at(p, m))
    return emit(drafts, m, draw(w, rng.random(batch)))


@right
def second_candidate_against_residual(drafts, p, q, rng):
    """After a rejection a second candidate y is drawn from q and tested against the normalised residual r:
    accepted with min(1, r(y)/q(y)), else the token is drawn from max(r - q, 0). That is one more exact step
    whose target is r."""
    n, (batch, g) = count(drafts, p, q, rng), drafts.shape
    r = residual(p, q, n)
    r = r / r.sum(axis=1, keepdims=True)
    less = np.where((n < g)[:, None], q_at(q, n), r)
    y = draw(less, rng.random(batch))
    ok = rng.random(batch) * at(less, y) < at(r, y)
    third = draw(or_else(np.maximum(r - less, 0), r), rng.random(batch))
    return emit(drafts, n, np.where(ok, y, third))


@right
def barker_acceptance(drafts, p, q, rng):
    """x is accepted with p/(p + q), not min(1, p/q). Accepted mass is pq/(p + q), so the residual must be
    p - pq/(p + q) = p p/(p + q), and is. Fewer tokens are accepted, the law is the same."""
    px, qx = chances(drafts, p, q)
    n = leading(rng.random(drafts.shape) * (px + qx) < px)
    row, less = at(p, n), q_at(q, n)
    total = row + less
    w = row * np.divide(row, total, out=np.zeros_like(total), where=total > 0)
    return emit(drafts, n, draw(w, rng.random(len(n))))


@right
def far_rows_not_tested(drafts, p, q, rng):
    """Where the TV of p_i and q_i is above 1/2 the drafted token is dropped without a test and the step
    ends with a draw from p_i. Whether it ends there depends on the rows only, not on the drafted
    token."""
    far = np.abs(p[:, :-1] - q).sum(axis=2) > 1
    px, qx = chances(drafts, p, q)
    n = leading((rng.random(drafts.shape) * qx < px) & ~far)
    ended = np.concatenate([far, np.ones((len(p), 1), dtype=bool)], axis=1)
    w = np.where(at(ended, n)[:, None], at(p, n), residual(p, q, n))
    return emit(drafts, n, draw(w, rng.random(len(n))))


@right
def two_level_draw(drafts, p, q, rng):
    """The last token is drawn in two steps, a block of 16 ids by the blocks' sums and an id inside it. One
    number serves both, rescaled to its position inside the block's interval, which is uniform."""
    n, (batch, size) = count(drafts, p, q, rng), (len(drafts), p.shape[2])
    w = np.pad(residual(p, q, n), ((0, 0), (0, -size % 16))).reshape(batch, -1, 16)
    sums = w.sum(axis=2)
    target = rng.random(batch) * sums.sum(axis=1)
    cdf = np.cumsum(sums, axis=1)
    last_block = sums.shape[1] - 1 - np.argmax(sums[:, ::-1] > 0, axis=1)
    part = np.minimum((cdf <= target[:, None]).sum(axis=1), last_block)
    inside = (target - at(cdf, part) + at(sums, part)) / at(sums, part)
    return emit(drafts, n, part * 16 + draw(at(w, part), np.clip(inside, 0, 1 - 2**-53)))


@right
def exponential_race(drafts, p, q, rng):
    """The last token is the argmin of E / w with independent exponential numbers E: a race of Poisson
    clocks of rates w, which token y wins with w(y) / sum w. No sum and no normalisation is needed."""
    n = count(drafts, p, q, rng)
    w = residual(p, q, n)
    clock = np.divide(rng.standard_exponential(w.shape), w, out=np.full(w.shape, np.inf), where=w > 0)
    return emit(drafts, n, clock.argmin(axis=1))
