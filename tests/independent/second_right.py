"""20 right verifiers that look unusual. The docstrings say why each is exact."""

import numpy as np

from second_verifiers import count, gather, pack, pick, residual_of, search, tests, tiles, weights

ENTRIES = []
TINY = 1e-300


def right(mechanism, shape="everywhere"):
    def register(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return function

    return register


def ratios(d, p, q):
    return np.minimum(1, gather(p, d) / np.maximum(gather(q, d), TINY))


@right("block verification (Sun et al.): joint ratios, longest accepted prefix, joint residual")
def block_verification(d, p, q, rng):
    """P_i = min(1, P_{i-1} p/q); prefix i is accepted with S_i / (S_i + 1 - P_i), the last with P_g."""
    B, g = d.shape
    px, qx = gather(p, d), gather(q, d)
    joint = np.ones((B, g + 1))
    n = np.zeros(B, dtype=np.int64)
    for i in range(1, g + 1):
        joint[:, i] = np.minimum(1, joint[:, i - 1] * px[:, i - 1] / np.maximum(qx[:, i - 1], TINY))
        if i < g:
            s = np.maximum(joint[:, i, None] * p[:, i] - q[:, i], 0).sum(axis=1)
            below = s + 1 - joint[:, i]
            h = np.where(below > 0, s / np.maximum(below, TINY), 0)
        else:
            h = joint[:, g]
        n = np.where(rng.random(B) < h, i, n)
    rows = np.arange(B)
    w = np.asarray(p[rows, n], dtype=np.float64).copy()
    r = np.flatnonzero(n < g)
    if len(r):
        res = np.maximum(joint[r, n[r], None] * w[r] - q[r, n[r]], 0)
        w[r] = np.where(res.sum(axis=1, keepdims=True) > 0, res, w[r])
    return pack(d, n, pick(w, rng.random(B)))


@right("one uniform for the whole step: what is left after each test is stretched to [0, 1) again")
def one_uniform_recycled(d, p, q, rng):
    """Given u < r, u / r is uniform; given u >= r, (u - r) / (1 - r) is. Two uniforms a row, for the digits."""
    B, g = d.shape
    r = ratios(d, p, q)
    u = rng.random(B)
    n = np.zeros(B, dtype=np.int64)
    open_ = np.ones(B, dtype=bool)
    for i in range(g):
        yes = open_ & (u < r[:, i])
        no = open_ & ~yes
        n[yes] += 1
        u[yes] /= r[yes, i]
        u[no] = (u[no] - r[no, i]) / np.maximum(1 - r[no, i], TINY)
        open_ = yes
        if i % 4 == 3:  # 4 tests spend at most some bits; fresh digits for those still open
            u[open_] = rng.random(B)[open_]
    return pack(d, n, pick(weights(p, q, n), np.clip(u, 0, np.nextafter(1, 0))))


@right("accept tests and last token by exponential races, of two ids and of all")
def races_everywhere(d, p, q, rng):
    """E / r < E' / (1 - r) has probability r; argmin E_y / w_y draws from w."""
    B, g = d.shape
    r = ratios(d, p, q)
    e = rng.standard_exponential((2, B, g))
    n = count(e[0] * (1 - r) < e[1] * r)
    w = weights(p, q, n)
    return pack(d, n, np.argmax(w / rng.standard_exponential(w.shape), axis=1))


@right("the last token by inverse CDF over ids in descending order of weight, mapped back")
def descending_inverse_cdf(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    order = np.argsort(-w, axis=1, kind="stable")
    k = pick(np.take_along_axis(w, order, axis=1), rng.random(B))
    return pack(d, n, order[np.arange(B), k])


@right("accepts with only 0.7 min(1, p/q); the residual is p - 0.7 min(p, q)")
def accepts_seven_tenths(d, p, q, rng):
    """Any a(x) <= p/q is exact with the residual p - a q."""
    B, g = d.shape
    n = count(rng.random((B, g)) < 0.7 * ratios(d, p, q))
    w = np.asarray(p[np.arange(B), n], dtype=np.float64).copy()
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] -= 0.7 * np.minimum(w[r], q[r, n[r]])
    return pack(d, n, pick(w, rng.random(B)))


@right("never accepts: ignores the draft and samples p[0]")
def never_accepts(d, p, q, rng):
    B = len(d)
    return pack(d, np.zeros(B, dtype=np.int64), pick(np.array(p[:, 0], dtype=np.float64), rng.random(B)))


@right("no bonus: where all are accepted, the last accepted token is the last token")
def no_bonus(d, p, q, rng):
    """A step that ends after an accepted token leaves the next one to the next step."""
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    all_ = n == g
    last = pick(weights(p, q, n), rng.random(B))
    n = np.where(all_, g - 1, n)
    return pack(d, n, np.where(all_, d[:, g - 1], last))


@right("uses only a random number of the drafted tokens, chosen before they are looked at")
def random_length(d, p, q, rng):
    B, g = d.shape
    ok = tests(d, p, q, rng.random((B, g)))
    k = rng.integers(0, g + 1, B)
    n = count(ok)
    cut = n >= k
    n = np.where(cut, k, n)
    w = weights(p, q, n)
    w[cut] = p[cut, n[cut]]
    return pack(d, n, pick(w, rng.random(B)))


@right("stops before the first place whose draft row has its likeliest id below 0.4, and samples p there")
def stops_where_draft_is_unsure(d, p, q, rng):
    """The rule looks at the row, which is known before the token of the place."""
    B, g = d.shape
    sure = q.max(axis=2) >= 0.4
    k = count(sure)
    n = count(tests(d, p, q, rng.random((B, g))))
    cut = n >= k
    n = np.where(cut, k, n)
    w = weights(p, q, n)
    w[cut] = p[cut, n[cut]]
    return pack(d, n, pick(w, rng.random(B)))


@right(
    "draws every place from the mixture r * (drafted id) + (1 - r) * residual, and counts where it hits the draft"
)
def mixture_and_compare(d, p, q, rng):
    """The residual gives the drafted id nothing if r < 1, so a hit is an acceptance."""
    B, g = d.shape
    V = p.shape[2]
    r = ratios(d, p, q)
    out = np.full((B, g + 1), -1, dtype=np.int64)
    rows = np.arange(B)  # those still open
    for i in range(g):
        res = residual_of(np.asarray(p[rows, i], dtype=np.float64), q[rows, i])
        ri = r[rows, i]
        x = d[rows, i]
        m = res * ((1 - ri) / res.sum(axis=1))[:, None]
        m[np.arange(len(rows)), x] += ri
        y = pick(m, rng.random(len(rows)))
        out[rows, i] = y
        rows = rows[y == x]
        if not len(rows):
            return out
    out[rows, g] = pick(np.array(p[rows, g], dtype=np.float64), rng.random(len(rows)))
    return out


def alias_draw(w, rng):
    """Vose's tables, one row after the other."""
    V = w.shape[1]
    out = np.empty(len(w), dtype=np.int64)
    for b, row in enumerate(w):
        prob = row * (V / row.sum())
        alias = np.arange(V)
        small = [i for i in range(V) if prob[i] < 1]
        large = [i for i in range(V) if prob[i] >= 1]
        while small and large:
            s, l = small.pop(), large.pop()
            alias[s] = l
            prob[l] -= 1 - prob[s]
            (small if prob[l] < 1 else large).append(l)
        for i in small + large:
            # left over by rounding: a column of weight 0 must still never be drawn
            prob[i] = 1.0 if row[i] > 0 else 0.0
            if row[i] == 0:
                alias[i] = int(row.argmax())
        k = int(rng.integers(V))
        out[b] = k if rng.random() < prob[k] else alias[k]
    return out


@right(
    "the last token from an alias table (vocabularies up to 64 and calls up to 256 rows; else inverse CDF)"
)
def alias_table(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    w = weights(p, q, n)
    last = alias_draw(w, rng) if w.shape[1] <= 64 and B <= 256 else pick(w, rng.random(B))
    return pack(d, n, last)


@right("the residual by rejection from p with up to 32 tries, then exactly for those still open")
def residual_by_rejection(d, p, q, rng):
    """The tries fail independently of what the exact draw gives."""
    B, g = d.shape
    rows = np.arange(B)
    n = count(tests(d, p, q, rng.random((B, g))))
    pr = np.asarray(p[rows, n], dtype=np.float64)
    c = np.cumsum(pr, axis=1)
    last = np.zeros(B, dtype=np.int64)
    open_ = rows
    for _ in range(32):
        t = np.minimum(rng.random(len(open_)) * c[open_, -1], np.nextafter(c[open_, -1], 0))
        y = search(c[open_], t)
        left = pr[open_, y] - np.where(n[open_] < g, q[open_, np.minimum(n[open_], g - 1), y], 0)
        good = rng.random(len(open_)) * pr[open_, y] < left
        last[open_[good]] = y[good]
        open_ = open_[~good]
        if not len(open_):
            return pack(d, n, last)
    last[open_] = pick(weights(p, q, n)[open_], rng.random(len(open_)))
    return pack(d, n, last)


@right("the CDF runs over a random permutation of the ids, another one in each call")
def permuted_ids(d, p, q, rng):
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    perm = rng.permutation(p.shape[2])
    k = pick(weights(p, q, n)[:, perm], rng.random(B))
    return pack(d, n, perm[k])


@right("rows in chunks of seven, last chunk first, a loop over places inside")
def chunks_of_seven(d, p, q, rng):
    B, g = d.shape
    out = np.full((B, g + 1), -1, dtype=np.int64)
    for lo in reversed(range(0, B, 7)):
        s = slice(lo, lo + 7)
        u = rng.random((g, len(d[s]))).T
        n = count(tests(d[s], p[s], q[s], u))
        out[s] = pack(d[s], n, pick(weights(p[s], q[s], n), 1 - np.nextafter(rng.random(len(n)), 1)))
    return out


@right("every row has a generator of its own, seeded with 62 bits of the call's")
def generator_per_row(d, p, q, rng):
    B, g = d.shape
    u = np.stack(
        [np.random.Generator(np.random.SFC64(int(s))).random(g + 1) for s in rng.integers(2**62, size=B)]
    )
    n = count(tests(d, p, q, u[:, 1:]))
    return pack(d, n, pick(weights(p, q, n), u[:, 0]))


@right("two-level search: tile of 16 ids by one uniform, the id by what is left of it")
def tiles_with_rescaled_uniform(d, p, q, rng):
    """Given the tile, (t - carry) / (sum of the tile) is uniform."""
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    t = tiles(weights(p, q, n), 16)
    rows = np.arange(B)
    sums = t.sum(axis=2)
    c = np.cumsum(sums, axis=1)
    x = rng.random(B) * c[:, -1]
    x = np.minimum(x, np.nextafter(c[:, -1], 0))
    k = search(c, x)
    left = np.clip((x - (c[rows, k] - sums[rows, k])) / sums[rows, k], 0, np.nextafter(1, 0))
    return pack(d, n, np.minimum(16 * k + pick(t[rows, k], left), p.shape[2] - 1))


@right("acceptance is rounded down to sixteenths and the residual is p - a q with the same rounding")
def acceptance_in_sixteenths(d, p, q, rng):
    """Any a(x) <= p/q is exact with the residual p - a q."""
    B, g = d.shape

    def a(pp, qq):
        return np.floor(16 * np.minimum(1, pp / np.maximum(qq, TINY))) / 16

    n = count(rng.integers(0, 16, (B, g)) < 16 * a(gather(p, d), gather(q, d)))
    w = np.asarray(p[np.arange(B), n], dtype=np.float64).copy()
    r = np.flatnonzero(n < g)
    if len(r):
        qr = q[r, n[r]]
        res = np.maximum(w[r] - a(w[r], qr) * qr, 0)
        w[r] = np.where(res.sum(axis=1, keepdims=True) > 0, res, w[r])
    return pack(d, n, pick(w, rng.random(B)))


@right("one uniform against the cumulative products of the ratios gives the accepted count")
def one_uniform_for_the_count(d, p, q, rng):
    """The products decrease, so P(count >= i) = product of the first i ratios."""
    B, g = d.shape
    n = (rng.random(B)[:, None] < np.cumprod(ratios(d, p, q), axis=1)).sum(axis=1)
    return pack(d, n, pick(weights(p, q, n), rng.random(B)))


@right("the rejecting uniform is reused for the recovered token after rescaling, mirrored")
def rejecting_uniform_rescaled(d, p, q, rng):
    """Given u >= r, (1 - u) / (1 - r) is uniform. A fresh one for the bonus."""
    B, g = d.shape
    r = ratios(d, p, q)
    u = rng.random((B, g))
    n = count(u < r)
    rows, at = np.arange(B), np.minimum(n, g - 1)
    v = np.where(n < g, (1 - u[rows, at]) / np.maximum(1 - r[rows, at], TINY), rng.random(B))
    return pack(d, n, pick(weights(p, q, n), np.clip(v, 0, np.nextafter(1, 0))))


@right("stops behind an accepted token divisible by 3, and samples p at the next place")
def stops_behind_some_tokens(d, p, q, rng):
    """Whether place i is tested depends on tokens before i only."""
    B, g = d.shape
    n = count(tests(d, p, q, rng.random((B, g))))
    k = 1 + count(d % 3 != 0)  # tokens up to and including the first divisible by 3
    k = np.minimum(k, g)
    cut = n >= k
    n = np.where(cut, k, n)
    w = weights(p, q, n)
    w[cut] = p[cut, n[cut]]
    return pack(d, n, pick(w, rng.random(B)))
