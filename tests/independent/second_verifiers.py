"""80 wrong verifiers. Each has one bug that an engine could have. The helpers below are right."""

import numpy as np

ENTRIES = []
MEMORY = {}  # what the stateful ones keep between calls


def reset():
    MEMORY.clear()


def wrong(mechanism, shape):
    def register(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return function

    return register


# ---- right parts ----


def gather(rows, d):
    """The probability of each drafted token, [B, g]."""
    B, g = d.shape
    return np.asarray(rows[np.arange(B)[:, None], np.arange(g)[None, :], d], dtype=np.float64)


def count(ok):
    """How many tokens are accepted before the first rejection."""
    return np.cumprod(ok, axis=1, dtype=np.int64).sum(axis=1)


def tests(d, p, q, u):
    return u * gather(q, d) < gather(p, d)


def residual_of(pr, qr):
    """(p - q)+; p where nothing is left."""
    res = np.maximum(pr - qr, 0.0)
    dead = res.sum(axis=1) <= 0
    if dead.any():
        res[dead] = pr[dead]
    return res


def weights(p, q, n):
    """Rows from which the last token is drawn: residual or bonus."""
    B, g = q.shape[:2]
    w = np.asarray(p[np.arange(B), n], dtype=np.float64).copy()
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(w[r], q[r, n[r]])
    return w


def search(c, t):
    """First id with c > t; the last id if there is none."""
    hit = c > t[:, None]
    k = hit.argmax(axis=1)
    return np.where(hit[np.arange(len(c)), k], k, c.shape[1] - 1)


def pick(w, v):
    c = np.cumsum(w, axis=1)
    total = c[:, -1]
    return search(c, np.minimum(v * total, np.nextafter(total, 0)))


def pack(d, n, last):
    B, g = d.shape
    out = np.full((B, g + 1), -1, dtype=np.int64)
    out[:, :g] = np.where(np.arange(g) < n[:, None], d, -1)
    out[np.arange(B), n] = last
    return out


def finish(d, p, q, n, v):
    return pack(d, n, pick(weights(p, q, n), v))


def race(w, rng):
    """Exponential race: argmax w / E."""
    return np.argmax(w / rng.standard_exponential(w.shape), axis=1)


# ---- wrong everywhere, or nearly ----


@wrong(
    "after a rejection the target row is sampled with only the rejected id masked out",
    "everywhere; p and q that differ in more than one id",
)
def mask_only_rejected_id(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    w[r] = p[r, n[r]]
    whole = w[r].copy()
    w[r, d[r, n[r]]] = 0
    empty = r[w[r].sum(axis=1) <= 0]
    w[empty] = whole[np.isin(r, empty)]
    return pack(d, n, pick(w, rng.random(B)))


@wrong("the residual kernel takes fabs(p - q) instead of the positive part", "everywhere")
def absolute_residual(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    res = np.abs(p[r, n[r]] - q[r, n[r]])
    w[r] = np.where(res.sum(axis=1, keepdims=True) > 0, res, w[r])
    return pack(d, n, pick(w, rng.random(B)))


@wrong("lenience of 0.8 left on from a throughput experiment", "everywhere; ratios below 1")
def lenience_left_on(d, p, q, rng):
    B, g = d.shape
    n = count(0.8 * rng.random((B, g)) * gather(q, d) < gather(p, d))
    return finish(d, p, q, n, rng.random(B))


@wrong(
    "a rejected token is tested a second time because the kernel is replayed", "everywhere; ratios below 1"
)
def test_replayed(d, p, q, rng):
    B, g = d.shape
    u = np.minimum(rng.random((B, g)), rng.random((B, g)))
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong(
    "the uniform that rejected a token is used again to draw the recovered one",
    "everywhere; after rejections",
)
def uniform_used_twice(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g))
    n = count(tests(d, p, q, u))
    v = np.where(n < g, u[np.arange(B), np.minimum(n, g - 1)], rng.random(B))
    return finish(d, p, q, n, v)


@wrong("argmax of w * uniform instead of w / exponential", "everywhere; last token")
def race_with_uniforms(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    return pack(d, n, np.argmax(w * (1 - rng.random(w.shape)), axis=1))


@wrong("two blocks both sample the last token and atomicMax keeps the larger id", "everywhere; last token")
def atomic_max_of_two(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    return pack(d, n, np.maximum(pick(w, rng.random(B)), pick(w, rng.random(B))))


@wrong(
    "the residual is not normalised before the inverse CDF; what is missing falls on the last id",
    "everywhere; after rejections",
)
def residual_not_normalised(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    c = np.cumsum(w, axis=1)
    v = rng.random(B)
    t = np.where(n < g, v, np.minimum(v * c[:, -1], np.nextafter(c[:, -1], 0)))
    return pack(d, n, search(c, t))


@wrong(
    "a temperature of 0.8 is applied to the residual although p and q were tempered already",
    "everywhere; after rejections",
)
def residual_tempered_again(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    w = np.where((n < g)[:, None], w * np.sqrt(np.sqrt(w)), w)
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "a drafted token that is not the draft's favourite is discarded untested and p is sampled",
    "everywhere; drafts with several likely tokens",
)
def unlikely_drafts_discarded(d, p, q, rng):
    B, g = d.shape
    ok = tests(d, p, q, rng.random((B, g)))
    likely = d == np.argmax(q, axis=2)
    n = count(ok & likely)
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    fresh = r[~likely[r, n[r]]]
    w[fresh] = p[fresh, n[fresh]]
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "the accept uniform keeps three bits (floor to eighths)", "everywhere; ratios away from multiples of 1/8"
)
def uniform_in_eighths(d, p, q, rng):
    B, g = d.shape
    u = np.floor(8 * rng.random((B, g))) / 8
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong("the kernel's own generator is seeded with the low 8 bits of the seed", "everywhere; calls repeat")
def seed_of_eight_bits(d, p, q, rng):
    B, g = d.shape
    own = np.random.default_rng(int(rng.integers(2**62)) & 255)
    return finish(d, p, q, count(tests(d, p, q, own.random((B, g)))), own.random(B))


def e4m3(x):
    m, e = np.frexp(np.asarray(x, dtype=np.float64))
    return np.where(x < 2.0**-6, np.round(x * 512) / 512, np.ldexp(np.round(m * 16) / 16, e))


@wrong(
    "the target rows are stored as fp8 (e4m3) and not renormalised",
    "everywhere; all tokens of large vocabularies vanish",
)
def target_in_fp8(d, p, q, rng):
    B, g = d.shape
    n = count(rng.random((B, g)) * gather(q, d) < e4m3(gather(p, d)))
    pr = np.asarray(p[np.arange(B), n], dtype=np.float64)
    w = e4m3(pr)
    r = np.flatnonzero(n < g)
    w[r] = np.maximum(w[r] - q[r, n[r]], 0)
    w = np.where(w.sum(axis=1, keepdims=True) > 0, w, pr)
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "0.01 is added to numerator and denominator of the ratio against division by zero",
    "everywhere; more with small probabilities",
)
def epsilon_in_ratio(d, p, q, rng):
    B, g = d.shape
    ok = rng.random((B, g)) * (gather(q, d) + 0.01) < gather(p, d) + 0.01
    return finish(d, p, q, count(ok), rng.random(B))


@wrong(
    "the test divides by q at temperature 2/3 although the drafts were drawn from q as passed",
    "everywhere; q not flat",
)
def draft_tempered_twice(d, p, q, rng):
    B, g = d.shape
    qx = gather(q, d)
    norm = (q * np.sqrt(q)).sum(axis=2)
    ok = rng.random((B, g)) * (qx * np.sqrt(qx) / norm) < gather(p, d)
    return finish(d, p, q, count(ok), rng.random(B))


@wrong("p and q of the drafted token are truncated to bfloat16 in the test", "everywhere, small on purpose")
def test_in_bfloat16(d, p, q, rng):
    B, g = d.shape

    def bf16(x):
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(np.float64)

    ok = rng.random((B, g)) * bf16(gather(q, d)) < bf16(gather(p, d))
    return finish(d, p, q, count(ok), rng.random(B))


@wrong("a repetition penalty of 1.5 hits the accepted tokens a second time in the bonus row", "bonus token")
def bonus_penalised_again(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n == g)
    if len(r):
        base = w[r]
        base[np.arange(len(r))[:, None], d[r]] /= 1.5  # a repeated id is divided once
        w[r] = base
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "a drafted token that is the target's argmax is accepted without a test",
    "draft overconfident in the target's favourite",
)
def favourite_accepted(d, p, q, rng):
    B, g = d.shape
    ok = tests(d, p, q, rng.random((B, g))) | (d == np.argmax(p[:, :g], axis=2))
    return finish(d, p, q, count(ok), rng.random(B))


@wrong(
    "the residual is sampled by rejection from p with four tries, then the last try is kept",
    "p near q: little residual",
)
def residual_in_four_tries(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    rows = np.arange(B)
    pr = np.asarray(p[rows, n], dtype=np.float64)
    at = np.minimum(n, g - 1)
    c = np.cumsum(pr, axis=1)
    total = c[:, -1]
    last = np.zeros(B, dtype=np.int64)
    open_ = np.ones(B, dtype=bool)
    for _ in range(4):
        y = search(c, np.minimum(rng.random(B) * total, np.nextafter(total, 0)))
        last = np.where(open_, y, last)
        good = (n == g) | (rng.random(B) * pr[rows, y] < pr[rows, y] - q[rows, at, y])
        open_ &= ~good
    return pack(d, n, last)


# ---- a place in the step, a gamma ----


@wrong("the buffer of accept uniforms has eight places; place i reads i mod 8", "places from 8, gamma > 8")
def eight_uniforms(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, 8))[:, np.arange(g) % 8]
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong("accept flags are packed in a byte, so place 8 always counts as rejected", "place 8, gamma > 8")
def flags_in_a_byte(d, p, q, rng):
    B, g = d.shape
    n = np.minimum(count(tests(d, p, q, rng.random((B, g)))), 8)
    return finish(d, p, q, n, rng.random(B))


@wrong("the path for one drafted token compares the ratio with 1/2 instead of a uniform", "gamma = 1")
def threshold_for_one(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g)) if g > 1 else np.full((B, g), 0.5)
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong(
    "draft rows were captured for five places; the residual reads q[min(n, 4)]", "places from 5, gamma > 5"
)
def q_of_five_places(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(np.asarray(p[r, n[r]], dtype=np.float64), q[r, np.minimum(n[r], 4)])
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "the accepted count is a field of four bits: sixteen accepted tokens read as none",
    "gamma = 16, high acceptance",
)
def count_of_four_bits(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g)))) & 15
    return finish(d, p, q, n, rng.random(B))


@wrong(
    "the residual pairs the target row of the next place with q of this one",
    "after rejections; places that differ",
)
def residual_one_ahead(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(np.asarray(p[r, n[r] + 1], dtype=np.float64), q[r, n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@wrong("the whole draft gets a first chance by the product of the ratios, then token by token", "gamma > 1")
def whole_draft_first(d, p, q, rng):
    B, g = d.shape
    px, qx = gather(p, d), gather(q, d)
    ratio = np.minimum(1, px / np.maximum(qx, 1e-300))
    n = count(rng.random((B, g)) < ratio)
    if g > 1:
        n = np.where(rng.random(B) < ratio.prod(axis=1), g, n)
    return finish(d, p, q, n, rng.random(B))


@wrong("block verification's joint ratios with the residual of the token rule", "gamma > 1")
def block_with_token_residual(d, p, q, rng):
    B, g = d.shape
    ratio = gather(p, d) / np.maximum(gather(q, d), 1e-300)
    u = rng.random((B, g))
    joint = np.ones(B)
    n = np.zeros(B, dtype=np.int64)
    for i in range(g):
        joint = np.minimum(1, joint * ratio[:, i])
        n = np.where(u[:, i] < joint, i + 1, n)
    return finish(d, p, q, n, rng.random(B))


@wrong("two uniforms are cut from one 64-bit number with overlapping bits", "odd places, gamma > 1")
def overlapping_bits(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g))
    odd = u[:, 1::2]
    odd[:] = np.modf(4 * u[:, 0::2][:, : odd.shape[1]])[0]
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong(
    "a drafted token equal to the one before is taken as a duplicate and passed on untested",
    "gamma > 1; likely tokens that repeat",
)
def repeats_pass(d, p, q, rng):
    B, g = d.shape
    ok = tests(d, p, q, rng.random((B, g)))
    ok[:, 1:] |= d[:, 1:] == d[:, :-1]
    return finish(d, p, q, count(ok), rng.random(B))


@wrong("after three accepted tokens the rest of the draft is trusted", "places from 3, gamma > 3")
def trust_after_three(d, p, q, rng):
    B, g = d.shape
    ok = tests(d, p, q, rng.random((B, g)))
    ok[:, 3:] = True
    return finish(d, p, q, count(ok), rng.random(B))


# ---- a row of the call, a number of rows ----


@wrong(
    "masked lanes of the tail block read uniforms of zero: its drafts are accepted",
    "rows behind the last full 32, calls of more than 32 rows",
)
def tail_rows_accept(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g))
    if B > 32 and B % 32:
        u[B // 32 * 32 :] = 0
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong("the row number is a byte where the residual reads q", "rows from 256; rows that differ")
def row_number_in_a_byte(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(np.asarray(p[r, n[r]], dtype=np.float64), q[r & 255, n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@wrong("row 0 is taken for the padding row and draws its recovered token from p", "row 0 of a call")
def row_zero_is_padding(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    w[0] = p[0, n[0]]
    return pack(d, n, pick(w, rng.random(B)))


@wrong("rows are handled in pairs, and the odd one uses the sum of the even one", "odd rows after rejections")
def sum_of_the_even_row(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    c = np.cumsum(weights(p, q, n), axis=1)
    total = c[:, -1].copy()
    odd = np.arange(1, B, 2)
    total[odd] = total[odd - 1]
    return pack(d, n, search(c, np.minimum(rng.random(B) * total, np.nextafter(total, 0))))


@wrong("the latency path for a single row takes the argmax of the residual", "calls of one row")
def argmax_for_one_row(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    last = pick(w, rng.random(B))
    if B == 1 and n[0] < g:
        last = np.argmax(w, axis=1)
    return pack(d, n, last)


@wrong(
    "calls are cut at 2,048 rows, and the second piece lacks its offset into p for the last token",
    "rows from 2,048; rows that differ",
)
def offset_missing(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    rows = np.arange(B)
    pr = np.asarray(p[rows % 2048, n], dtype=np.float64)
    w = pr.copy()
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(pr[r], q[r, n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "rows are sorted by accepted count and put back with the permutation instead of its inverse",
    "calls of three rows and more",
)
def sorted_and_not_put_back(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    order = np.argsort(n, kind="stable")
    last = pick(weights(p, q, n)[order], rng.random(B))
    return pack(d, n, last[order])


@wrong(
    "padding rows of the captured graph are clamped to the last row and overwrite its count with 0",
    "last row of a call that is no power of two",
)
def padding_overwrites_last_row(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    if B & (B - 1):
        n[-1] = 0
    return finish(d, p, q, n, rng.random(B))


@wrong(
    "lane 31 of a warp reads the sum before the second half of the vocabulary was added",
    "rows 31, 63, 95, ...",
)
def lane_31_reads_early(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    c = np.cumsum(weights(p, q, n), axis=1)
    total = c[:, -1].copy()
    late = np.arange(31, B, 32)
    half = c[late, (c.shape[1] - 1) // 2]
    total[late] = np.where(half > 0, half, total[late])
    return pack(d, n, search(c, np.minimum(rng.random(B) * total, np.nextafter(total, 0))))


@wrong(
    "the flat offset b * V + id into the gathered rows has 16 bits",
    "rows behind 65,536 / V; rows that differ",
)
def flat_offset_of_16_bits(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    pr = np.asarray(p[np.arange(B), n], dtype=np.float64)
    if B * V > 65536:
        pr = pr.ravel()[np.arange(B * V) & 65535].reshape(B, V)
    w = pr.copy()
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(pr[r], q[r, n[r]])
    w = np.where(w.sum(axis=1, keepdims=True) > 0, w, p[np.arange(B), n])
    return pack(d, n, pick(w, rng.random(B)))


# ---- a vocabulary ----


@wrong(
    "the residual kernel skips the last, partial tile of 128 ids",
    "V > 128 and no multiple of 128; heavy last ids",
)
def partial_tile_skipped(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    if V > 128 and V % 128:
        cut = np.where((n < g)[:, None] & (np.arange(V) >= V // 128 * 128), 0, w)
        w = np.where(cut.sum(axis=1, keepdims=True) > 0, cut, w)
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "lanes behind the vocabulary are clamped to the last id, which is summed again",
    "V no multiple of 32; heavy last id",
)
def last_id_summed_again(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    w[:, -1] *= 1 + -p.shape[2] % 32
    return pack(d, n, pick(w, rng.random(B)))


@wrong("the sampled id passes through uint16", "V > 65,536; heavy ids from 65,536")
def ids_of_16_bits(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    return pack(d, n, pick(weights(p, q, n), rng.random(B)) & 0xFFFF)


@wrong(
    "ids of the second vocabulary shard get the padded shard size as offset",
    "V > 1,024 and no multiple of 128",
)
def padded_shard_offset(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    last = pick(weights(p, q, n), rng.random(B))
    if V > 1024:
        half = (V + 1) // 2
        padded = -(-half // 64) * 64
        last = np.where(last < half, last, np.minimum(last - half + padded, V - 1))
    return pack(d, n, last)


def tiles(w, size):
    B, V = w.shape
    k = -(-V // size)
    padded = np.zeros((B, k * size))
    padded[:, :V] = w
    return padded.reshape(B, k, size)


@wrong("the uniform that chose the tile of 1,024 ids also chooses the id in it, not rescaled", "V > 1,024")
def tile_and_id_by_one_uniform(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    v = rng.random(B)
    if V <= 1024:
        return pack(d, n, pick(w, v))
    t = tiles(w, 1024)
    k = pick(t.sum(axis=2), v)
    return pack(d, n, np.minimum(k * 1024 + pick(t[np.arange(B), k], v), V - 1))


@wrong(
    "the winners of the tiles of 1,024 ids are compared by weight instead of by perturbed score", "V > 1,024"
)
def tile_winners_by_weight(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    t = tiles(w / rng.standard_exponential(w.shape), 1024)
    ids = np.minimum(t.argmax(axis=2) + 1024 * np.arange(t.shape[1]), V - 1)
    best = np.take_along_axis(w, ids, axis=1).argmax(axis=1)
    return pack(d, n, ids[np.arange(B), best])


@wrong(
    "pairs of ids are loaded at once; in an odd vocabulary q of the last id reads as 0",
    "odd V; heavy last id",
)
def last_q_of_odd_vocabulary(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    ok = tests(d, p, q, rng.random((B, g)))
    if V % 2:
        ok |= (d == V - 1) & (gather(p, d) > 0)
    n = count(ok)
    w = weights(p, q, n)
    if V % 2:
        r = np.flatnonzero(n < g)
        w[r, -1] = p[r, n[r], -1]
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "the binary search in the CDF halves its step from V / 2, which reaches all ids only of powers of two",
    "V no power of two; heavy last ids",
)
def halving_search(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    c = np.cumsum(weights(p, q, n), axis=1)
    t = rng.random(B) * c[:, -1]
    t = np.minimum(t, np.nextafter(c[:, -1], 0))
    at = np.zeros(B, dtype=np.int64)
    step = V // 2
    while step:
        at = np.where(c[np.arange(B), at + step - 1] <= t, at + step, at)
        step //= 2
    return pack(d, n, at)


@wrong("the scan over tiles of 128 ids adds the carry of the tile before one tile late", "V > 128")
def carry_one_tile_late(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    t = tiles(w, 128)
    sums = t.sum(axis=2)
    carry = np.cumsum(sums, axis=1) - sums
    carry[:, 1:] -= sums[:, :-1]
    c = (np.cumsum(t, axis=2) + carry[:, :, None]).reshape(B, -1)[:, :V]
    return pack(d, n, search(c, rng.random(B) * w.sum(axis=1)))


@wrong(
    "the CDF is accumulated in float16: small probabilities behind large sums vanish",
    "V from about 1,000; flat rows",
)
def cdf_in_float16(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    c = np.cumsum((w / w.sum(axis=1, keepdims=True)).astype(np.float16), axis=1, dtype=np.float16)
    return pack(d, n, search(c, rng.random(B)))


@wrong(
    "the uniforms of the Gumbel noise are clipped to [1/256, 255/256]",
    "large V; flat rows with a few heavier ids",
)
def gumbel_clipped(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    noise = -np.log(np.clip(rng.random(w.shape), 1 / 256, 255 / 256))
    return pack(d, n, np.argmax(w / noise, axis=1))


@wrong(
    "the draft's vocabulary is taken to end at 32,000: q of later ids reads as 0",
    "V > 32,000; heavy last ids",
)
def draft_vocabulary_of_32000(d, p, q, rng):
    B, g = d.shape
    px = gather(p, d)
    ok = (rng.random((B, g)) * gather(q, d) < px) | ((d >= 32000) & (px > 0))
    n = count(ok)
    w = weights(p, q, n)
    if p.shape[2] > 32000:
        r = np.flatnonzero(n < g)
        w[r, 32000:] = p[r, n[r], 32000:]
    return pack(d, n, pick(w, rng.random(B)))


# ---- a kind of row ----


@wrong(
    "a bonus row with a probability above 0.9 is not sampled but its argmax taken",
    "bonus token of peaked rows",
)
def peaked_bonus_is_greedy(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    last = pick(w, rng.random(B))
    return pack(d, n, np.where((n == g) & (w.max(axis=1) > 0.9), w.argmax(axis=1), last))


@wrong(
    "one-hot drafts take the n-gram path: accepted if and only if they are the target's argmax, else p is sampled",
    "one-hot drafts",
)
def one_hot_by_argmax(d, p, q, rng):
    B, g = d.shape
    ok = tests(d, p, q, rng.random((B, g)))
    sure = gather(q, d) == 1
    if sure.any():
        ok = np.where(sure, d == np.argmax(p[:, :g], axis=2), ok)
    n = count(ok)
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    r = r[sure[r, n[r]]]
    w[r] = p[r, n[r]]
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "sparse rows are compacted, p by its own zeros and q by its own, then subtracted",
    "rows of which more than half are zeros, other zeros in q",
)
def sparse_rows_misaligned(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    pr = np.asarray(p[r, n[r]], dtype=np.float64)
    sparse = (pr == 0).sum(axis=1) * 2 > V
    r, pr = r[sparse], pr[sparse]
    if len(r):
        qr = q[r, n[r]]
        ip = np.argsort(pr == 0, axis=1, kind="stable")
        iq = np.argsort(qr == 0, axis=1, kind="stable")
        res = residual_of(np.take_along_axis(pr, ip, 1), np.take_along_axis(qr, iq, 1))
        full = np.zeros_like(res)
        np.put_along_axis(full, ip, res, 1)
        w[r] = full
    return pack(d, n, pick(w, rng.random(B)))


@wrong("a residual below 0.1 in all is held for rounding noise and p is sampled", "p near q")
def small_residual_ignored(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    w = np.where((w.sum(axis=1) < 0.1)[:, None], p[np.arange(B), n], w)
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "the log ratio is clamped at -3 against -inf, so that any token is accepted one time in twenty",
    "drafts that the target almost excludes",
)
def log_ratio_clamped(d, p, q, rng):
    B, g = d.shape
    ratio = gather(p, d) / np.maximum(gather(q, d), 1e-300)
    n = count(rng.random((B, g)) < np.maximum(ratio, np.exp(-3)))
    return finish(d, p, q, n, rng.random(B))


@wrong(
    "probabilities are fixed-point numbers that saturate at 0.5 in the last row",
    "rows with a probability above 0.5",
)
def saturates_at_one_half(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    pr = np.minimum(p[np.arange(B), n], 0.5)
    w = pr.copy()
    r = np.flatnonzero(n < g)
    res = np.maximum(pr[r] - q[r, n[r]], 0)
    w[r] = np.where(res.sum(axis=1, keepdims=True) > 0, res, p[r, n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "top-k switched off is passed as k = V and compared with >, which drops the least likely ids of the bonus row",
    "bonus token, small V or many ids tied at the minimum",
)
def top_k_drops_minimum(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    cut = np.where((n == g)[:, None] & (w <= w.min(axis=1, keepdims=True)), 0, w)
    w = np.where(cut.sum(axis=1, keepdims=True) > 0, cut, w)
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "the test renormalises q over its eight likeliest ids although the drafts were drawn from all",
    "V > 8; drafts that are not peaked",
)
def q_over_top_eight(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    qx = gather(q, d)
    if V > 8:
        qx = qx / np.partition(q, V - 8, axis=2)[:, :, V - 8 :].sum(axis=2)
    n = count(rng.random((B, g)) * qx < gather(p, d))
    return finish(d, p, q, n, rng.random(B))


# ---- between rows ----


@wrong("the eight rows of a block share their accept uniforms", "rows of the same eight")
def block_shares_uniforms(d, p, q, rng):
    B, g = d.shape
    u = np.repeat(rng.random((-(-B // 8), g)), 8, axis=0)[:B]
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong(
    "the second half of a call uses antithetic uniforms (1 - u) of the first half", "rows half a call apart"
)
def antithetic_halves(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g + 1))
    h = B // 2
    u[B - h :] = np.nextafter(1, 0) - u[:h]  # stays in [0, 1)
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "the uniforms of a place are stratified over the rows of the call to lower the variance",
    "calls of few rows",
)
def stratified_over_rows(d, p, q, rng):
    B, g = d.shape
    strata = rng.permuted(np.tile(np.arange(B)[:, None], (1, g + 1)), axis=0)
    u = np.minimum((strata + rng.random((B, g + 1))) / B, np.nextafter(1, 0))
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "rows take a Weyl sequence: one uniform per place plus the row number times the golden ratio",
    "neighbouring rows",
)
def weyl_over_rows(d, p, q, rng):
    B, g = d.shape
    u = np.modf(rng.random(g + 1) + np.arange(B)[:, None] * 0.6180339887498949)[0]
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "a row's random numbers are seeded from its drafted tokens, so equal drafts get equal numbers",
    "rows of a call with equal drafts",
)
def seeded_by_draft(d, p, q, rng):
    B, g = d.shape
    different, which = np.unique(d, axis=0, return_inverse=True)
    u = rng.random((len(different), g + 1))[which.reshape(-1)]
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "a row's counter advances by gamma, one too few: its last uniform is the next row's first",
    "neighbouring rows",
)
def counter_stride_too_short(d, p, q, rng):
    B, g = d.shape
    stream = rng.random(B * g + 1)
    u = stream[np.arange(B)[:, None] * g + np.arange(g + 1)]
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "a warp shuffle with mask 16 gives lanes 16 apart the same uniform for the last token", "rows 16 apart"
)
def shuffle_mask_16(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    v = rng.random(B)[np.arange(B) & ~16]
    return finish(d, p, q, n, v)


@wrong(
    "groups of three rows share random numbers with the group before (n-best of 3 laid out twice)",
    "rows 3 apart",
)
def groups_of_three(d, p, q, rng):
    B, g = d.shape
    b = np.arange(B)
    u = rng.random((B, g + 1))[np.where(b // 3 % 2 == 1, b - 3, b)]
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "q of the rejected rows is compacted, p is not: row number k of the rejected reads q of row k of the call",
    "calls of two rows and more; rows that differ",
)
def compacted_q(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(np.asarray(p[r, n[r]], dtype=np.float64), q[np.arange(len(r)), n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "target rows are cached by drafted tokens: rows with equal drafts take p of the first of them",
    "rows of a call that differ, with equal drafts",
)
def target_cached_by_draft(d, p, q, rng):
    B, g = d.shape
    _, first, which = np.unique(d, axis=0, return_index=True, return_inverse=True)
    source = first[which.reshape(-1)]
    px = np.asarray(p[source[:, None], np.arange(g), d], dtype=np.float64)
    n = count(rng.random((B, g)) * gather(q, d) < px)
    w = np.asarray(p[source, n], dtype=np.float64)
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = residual_of(w[r], q[r, n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@wrong(
    "all rows are cut to the smallest accepted count of the call and draw from the residual there",
    "calls of two rows and more",
)
def cut_to_smallest_count(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    return finish(d, p, q, np.full(B, n.min()), rng.random(B))


# ---- between calls ----


@wrong(
    "ping-pong buffers are swapped only every other call: a call of the same shape reuses all uniforms",
    "calls one apart, same shape",
)
def buffers_swapped_too_late(d, p, q, rng):
    B, g = d.shape
    u = MEMORY.pop("buffers_swapped_too_late", None)
    if u is None or u.shape != (B, g + 1):
        u = rng.random((B, g + 1))
        MEMORY["buffers_swapped_too_late"] = u
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "a row's stream advances by the tokens it emitted, but its last uniform was read from the end of the block",
    "calls one apart, same shape",
)
def stream_advanced_by_tokens(d, p, q, rng):
    B, g = d.shape
    fresh = rng.random((B, 2 * g + 2))
    old, used = MEMORY.get("stream_advanced_by_tokens", (None, None))
    if old is None or old.shape != (B, g + 1):
        u = fresh[:, : g + 1]
    else:  # what is left of the old block, then new numbers
        both = np.concatenate([old, fresh], axis=1)
        u = both[np.arange(B)[:, None], used[:, None] + np.arange(g + 1)]
    n = count(tests(d, p, q, u[:, :g]))
    MEMORY["stream_advanced_by_tokens"] = (u.copy(), n + 1)
    return finish(d, p, q, n, u[:, g])


@wrong(
    "a controller raises acceptance by 1.25 after a call that accepted less than 60 percent of its tests",
    "calls after calls of low acceptance",
)
def adaptive_lenience(d, p, q, rng):
    B, g = d.shape
    low = MEMORY.get("adaptive_lenience", False)
    u = rng.random((B, g)) * (0.8 if low else 1)
    n = count(tests(d, p, q, u))
    MEMORY["adaptive_lenience"] = n.sum() < 0.6 * np.minimum(n + 1, g).sum()
    return finish(d, p, q, n, rng.random(B))


@wrong(
    "the offset of the call's stream is one too small: the first accept uniform is the last number of the call before",
    "row 0 against the last row of the call before; calls of one row",
)
def call_offset_too_small(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g + 1))
    if "call_offset_too_small" in MEMORY:
        u[0, 0] = MEMORY["call_offset_too_small"]
    MEMORY["call_offset_too_small"] = u[-1, g]
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])


@wrong(
    "the sampled last token is cached by a checksum of its weights, and served once more",
    "calls one apart with equal rows at equal places",
)
def sample_cached_by_checksum(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    last = pick(w, rng.random(B))
    key = w @ np.sqrt(np.arange(1.0, V + 1))
    old = MEMORY.pop("sample_cached_by_checksum", None)
    hit = np.zeros(B, dtype=bool)
    if old is not None and old[0] == (B, V):
        hit = old[1] == key
        last = np.where(hit, old[2], last)
    MEMORY["sample_cached_by_checksum"] = ((B, V), np.where(hit, np.nan, key), last)
    return pack(d, n, last)


@wrong(
    "the copy of q for the residual arrives one call late where the shape is unchanged",
    "sequences of calls of one shape whose q differ",
)
def q_of_the_call_before(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    old = MEMORY.get("q_of_the_call_before")
    MEMORY["q_of_the_call_before"] = np.array(q)
    stale = q if old is None or old.shape != q.shape else old
    return finish(d, p, stale, n, rng.random(B))


@wrong(
    "a presence penalty outlives its request: ids drawn last in the call before are halved",
    "sequences of calls; calls of few rows",
)
def penalty_outlives_request(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    seen = MEMORY.get("penalty_outlives_request")
    if seen is not None:
        w[:, seen[seen < V]] *= 0.5
    last = pick(w, rng.random(B))
    MEMORY["penalty_outlives_request"] = np.unique(last)
    return pack(d, n, last)


@wrong(
    "the first call of another shape than the one before finds its accept uniforms still zero",
    "sequences of calls of changing shape",
)
def zeros_after_reshape(d, p, q, rng):
    B, g = d.shape
    u = rng.random((B, g))
    if MEMORY.get("zeros_after_reshape", d.shape) != d.shape:
        u[:] = 0
    MEMORY["zeros_after_reshape"] = d.shape
    return finish(d, p, q, count(tests(d, p, q, u)), rng.random(B))


@wrong(
    "three pinned buffers of uniforms go round and each is refilled after its second use",
    "calls three apart, same shape",
)
def ring_of_three(d, p, q, rng):
    B, g = d.shape
    ring = MEMORY.setdefault("ring_of_three", {"at": 0, "slots": [None] * 3, "uses": [0] * 3})
    i = ring["at"] % 3
    ring["at"] += 1
    u = ring["slots"][i]
    if u is None or u.shape != (B, g + 1) or ring["uses"][i] == 2:
        u = rng.random((B, g + 1))
        ring["slots"][i], ring["uses"][i] = u, 0
    ring["uses"][i] += 1
    return finish(d, p, q, count(tests(d, p, q, u[:, :g])), u[:, g])
