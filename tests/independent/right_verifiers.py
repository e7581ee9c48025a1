"""Right verifiers, exact in other ways. ENTRIES lists them.

joint_only: exact for the joint law of a step completed by the target, not place by place given that it was reached.
"""

import numpy as np

ENTRIES = []


def right(how, **more):
    def register(f):
        ENTRIES.append(dict({"name": f.__name__, "how": how}, **more))
        return f

    return register


def _pq(d, p, q):
    i = d[:, :, None]
    return np.take_along_axis(p[:, :-1], i, 2)[:, :, 0], np.take_along_axis(q, i, 2)[:, :, 0]


def _prefix(ok):
    return np.cumprod(ok, axis=1).sum(1).astype(np.int64)


def _weights(p, q, n):
    w = np.array(p[np.arange(len(p)), n], dtype=np.float64)
    r = np.flatnonzero(n < q.shape[1])
    if len(r):
        x = np.maximum(w[r] - q[r, n[r]], 0.0)
        ok = x.sum(1) > 0
        w[r[ok]] = x[ok]
    return w


def _icdf(w, v):
    c = np.cumsum(w, axis=1)
    i = (c <= (v * c[:, -1])[:, None]).sum(1)
    i = np.minimum(i, w.shape[1] - 1)
    bad = np.flatnonzero(w[np.arange(len(w)), i] <= 0)
    if len(bad):
        i[bad] = w[bad].argmax(1)
    return i


def _emit(d, n, t):
    B, g = d.shape
    out = np.full((B, g + 1), -1, np.int64)
    keep = np.arange(g)[None] < n[:, None]
    out[:, :g][keep] = d[keep]
    out[np.arange(B), n] = t
    return out


def _accepted(d, p, q, u):
    pd, qd = _pq(d, p, q)
    return _prefix(u * qd < pd)


@right("row by row with Python loops and rng.choice")
def right_loop_choice(d, p, q, rng):
    B, g = d.shape
    out = np.full((B, g + 1), -1, np.int64)
    for b in range(B):
        n = 0
        while n < g and rng.random() * q[b, n, d[b, n]] < p[b, n, d[b, n]]:
            out[b, n] = d[b, n]
            n += 1
        w = np.array(p[b, n])
        if n < g:
            x = np.maximum(p[b, n] - q[b, n], 0)
            if x.sum() > 0:
                w = x
        out[b, n] = rng.choice(len(w), p=w / w.sum())
    return out


@right("vectorised inverse CDF")
def right_vectorised(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    return _emit(d, n, _icdf(_weights(p, q, n), rng.random(B)))


@right("Gumbel race for the last token, in logarithms")
def right_gumbel_race(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    w = _weights(p, q, n)
    with np.errstate(divide="ignore"):
        s = np.log(w) + rng.gumbel(size=w.shape)
    return _emit(d, n, s.argmax(1))


@right(
    "exponential race in float64 as in torch kernels, accept test by an exponential against -log of the ratio"
)
def right_exponential_race(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    with np.errstate(divide="ignore"):
        n = _prefix(rng.exponential(size=(B, g)) > np.maximum(np.log(qd) - np.log(pd), 0) * (1 - 0.0))
    w = _weights(p, q, n)
    with np.errstate(divide="ignore"):
        s = rng.exponential(size=w.shape) / w
    return _emit(d, n, s.argmin(1))


def _alias(w, rng):
    V = len(w)
    s = w / w.sum() * V
    alias, small, large = np.arange(V), [i for i in range(V) if s[i] < 1], [i for i in range(V) if s[i] >= 1]
    s = s.copy()
    top = int(w.argmax())
    while small and large:
        i, j = small.pop(), large[-1]
        alias[i] = j
        s[j] -= 1 - s[i]
        if s[j] < 1:
            small.append(large.pop())
    for i in large:
        s[i] = 1.0
    for i in small:
        if w[i] <= 0:
            s[i], alias[i] = 0.0, top
        else:
            s[i] = 1.0
    k = int(rng.integers(V))
    return k if rng.random() < s[k] else int(alias[k])


@right("Walker's alias table for the last token")
def right_alias(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    w = _weights(p, q, n)
    return _emit(d, n, np.array([_alias(w[b], rng) for b in range(B)], np.int64))


@right("inverse CDF over ids sorted by falling weight")
def right_sorted_cdf(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    w = _weights(p, q, n)
    o = np.argsort(-w, axis=1, kind="stable")
    k = _icdf(np.take_along_axis(w, o, 1), rng.random(B))
    return _emit(d, n, o[np.arange(B), k])


@right("one uniform a row, stretched after every test: u / r accepted, (u - r) / (1 - r) rejected")
def right_one_stretched_uniform(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    r = np.minimum(pd / qd, 1.0)
    u, n, on = rng.random(B), np.zeros(B, np.int64), np.ones(B, bool)
    for i in range(g):
        ok = u < r[:, i]
        with np.errstate(divide="ignore", invalid="ignore"):
            v = np.where(ok, u / r[:, i], (u - r[:, i]) / (1 - r[:, i]))
        u = np.where(on, v, u)
        on = on & ok
        n += on
    return _emit(d, n, _icdf(_weights(p, q, n), np.clip(u, 0, 1 - 2.0**-53)))


@right(
    "drafts ignored: the target is sampled place by place and the step goes on while the sample equals the draft",
    first_token_joints=True,
)
def right_target_sampled(d, p, q, rng):
    B, g = d.shape
    v = rng.random((B, g + 1))
    t = np.stack([_icdf(np.array(p[:, i]), v[:, i]) for i in range(g + 1)], 1)
    n = _prefix(t[:, :g] == d)
    return _emit(d, n, t[np.arange(B), n])


@right("one-hot q judged by sampling the target; other rows by the ratio")
def right_onehot_path(d, p, q, rng):
    B, g = d.shape
    u, v = rng.random((B, g)), rng.random((B, g + 1))
    t = np.stack([_icdf(np.array(p[:, i]), v[:, i]) for i in range(g + 1)], 1)
    hard = q.max(2) == 1.0
    pd, qd = _pq(d, p, q)
    n = _prefix(np.where(hard, t[:, :g] == d, u * qd < pd))
    last = _icdf(_weights(p, q, n), rng.random(B))
    k = np.minimum(n, g - 1)
    at_hard = (n < g) & hard[np.arange(B), k]
    return _emit(d, n, np.where(at_hard, t[np.arange(B), n], last))


@right("rows judged in a random order")
def right_permuted_rows(d, p, q, rng):
    B, g = d.shape
    o = rng.permutation(B)
    u, v = np.empty((B, g)), np.empty(B)
    u[o], v[o] = rng.random((B, g)), rng.random(B)
    n = _accepted(d, p, q, u)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@right("own Philox keyed by 128 bits of the given generator")
def right_own_philox(d, p, q, rng):
    B, g = d.shape
    key = [int(x) for x in rng.integers(2**63, size=2)]
    z = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64))).random((B, g + 1))
    n = _accepted(d, p, q, z[:, :g])
    return _emit(d, n, _icdf(_weights(p, q, n), z[:, g]))


@right("a Philox stream of its own for every row, seeded from the generator")
def right_stream_per_row(d, p, q, rng):
    B, g = d.shape
    seeds = rng.integers(2**63, size=B)
    z = np.stack([np.random.Generator(np.random.Philox(key=int(s))).random(g + 1) for s in seeds])
    n = _accepted(d, p, q, z[:, 1:])
    return _emit(d, n, _icdf(_weights(p, q, n), z[:, 0]))


@right("block verification (Sun et al. 2024)", joint_only=True)
def right_block_verification(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    eta, v = rng.random((B, g)), rng.random(B)
    mass = np.ones((B, g + 1))
    for i in range(g):
        mass[:, i + 1] = np.minimum(mass[:, i] * pd[:, i] / qd[:, i], 1.0)
    n = np.zeros(B, np.int64)
    for i in range(1, g + 1):
        m = mass[:, i]
        if i == g:
            h = m
        else:
            s = np.maximum(m[:, None] * p[:, i] - q[:, i], 0.0).sum(1)
            den = s + 1 - m
            h = np.where(den > 0, s / np.where(den > 0, den, 1), 1.0)
        n = np.where(eta[:, i - 1] < h, i, n)
    w = np.array(p[np.arange(B), n])
    r = np.flatnonzero(n < g)
    if len(r):
        x = np.maximum(mass[r, n[r]][:, None] * w[r] - q[r, n[r]], 0.0)
        ok = x.sum(1) > 0
        w[r[ok]] = x[ok]
    return _emit(d, n, _icdf(w, v))


@right("the residual by rejection: p is sampled until a coin of (1 - q/p)+ passes")
def right_residual_by_rejection(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    w = np.array(p[np.arange(B), n])
    keep = np.ones_like(w)
    r = np.flatnonzero(n < g)
    if len(r):
        x = np.maximum(w[r] - q[r, n[r]], 0.0)
        ok = x.sum(1) > 1e-3
        with np.errstate(divide="ignore", invalid="ignore"):
            keep[r[ok]] = np.where(w[r[ok]] > 0, x[ok] / w[r[ok]], 0.0)
        w[r[~ok]] = np.where(x[~ok].sum(1, keepdims=True) > 0, x[~ok], w[r[~ok]])
    t, todo = np.zeros(B, np.int64), np.arange(B)
    while len(todo):
        x = _icdf(w[todo], rng.random(len(todo)))
        ok = rng.random(len(todo)) < keep[todo, x]
        t[todo[ok]] = x[ok]
        todo = todo[~ok]
    return _emit(d, n, t)


@right("two-level search: blocks of 16 ids, then inside the block")
def right_two_level(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    w = _weights(p, q, n)
    V = w.shape[1]
    pad = -V % 16
    x = np.pad(w, ((0, 0), (0, pad))).reshape(B, -1, 16)
    k = _icdf(x.sum(2), rng.random(B))
    j = _icdf(x[np.arange(B), k], rng.random(B))
    return _emit(d, n, k * 16 + j)


@right("binary tree of sums, descended with a fresh coin at every level")
def right_tree_descent(d, p, q, rng):
    B, g = d.shape
    n = _accepted(d, p, q, rng.random((B, g)))
    w = _weights(p, q, n)
    size = 1 << int(np.ceil(np.log2(max(w.shape[1], 2))))
    levels = [np.pad(w, ((0, 0), (0, size - w.shape[1])))]
    while levels[-1].shape[1] > 1:
        levels.append(levels[-1][:, ::2] + levels[-1][:, 1::2])
    i, b = np.zeros(B, np.int64), np.arange(B)
    for x in levels[-2::-1]:
        left, right_ = x[b, 2 * i], x[b, 2 * i + 1]
        i = 2 * i + (rng.random(B) * (left + right_) >= left)
    return _emit(d, n, i)


@right("places judged backwards, last first, and the first failure taken")
def right_backwards(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    n = np.full(B, g, np.int64)
    for i in range(g - 1, -1, -1):
        n = np.where(rng.random(B) * qd[:, i] >= pd[:, i], i, n)
    return _emit(d, n, _icdf(_weights(p, q, n), rng.random(B)))


@right("antithetic inside a row: the bonus takes one minus the stretched last coin")
def right_antithetic_stretched(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    u = rng.random((B, g))
    r = np.minimum(pd / qd, 1.0)
    n = _prefix(u < r)
    b, k = np.arange(B), np.minimum(n, g - 1)
    a, ra = u[b, k], r[b, k]
    with np.errstate(divide="ignore", invalid="ignore"):
        v = np.where(n == g, a / ra, (a - ra) / (1 - ra))
    return _emit(d, n, _icdf(_weights(p, q, n), np.clip(1 - v, 0, 1 - 2.0**-53)))


@right("coins are integers of 62 bits compared with the scaled ratio")
def right_integer_coins(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    bound = np.minimum(pd / qd, 1.0) * 2.0**62
    n = _prefix(rng.integers(2**62, size=(B, g)) < bound)
    return _emit(d, n, _icdf(_weights(p, q, n), rng.integers(2**53, size=B) / 2.0**53))


@right("recovered tokens of all places are drawn beforehand, as GPU kernels do")
def right_all_places_drawn(d, p, q, rng):
    B, g = d.shape
    t = np.empty((B, g + 1), np.int64)
    for i in range(g + 1):
        t[:, i] = _icdf(_weights(p, q, np.full(B, i, np.int64)), rng.random(B))
    n = _accepted(d, p, q, rng.random((B, g)))
    return _emit(d, n, t[np.arange(B), n])


@right("multinomial counts of one trial for the last token, in chunks of 7 rows")
def right_multinomial_chunks(d, p, q, rng):
    out = []
    for s in range(0, len(d), 7):
        D, P, Q = d[s : s + 7], p[s : s + 7], q[s : s + 7]
        n = _accepted(D, P, Q, rng.random(D.shape))
        w = _weights(P, Q, n)
        w /= w.sum(1, keepdims=True)
        w[:,] = np.minimum(w, 1.0)
        out.append(_emit(D, n, np.array([_choice(x, rng) for x in w], np.int64)))
    return np.concatenate(out)


def _choice(x, rng):
    live = np.flatnonzero(x)
    y = x[live]
    return int(live[rng.multinomial(1, y / y.sum()).argmax()])


@right("log space: the residual as log p + log1p(-exp(log q - log p))")
def right_log_space(d, p, q, rng):
    B, g = d.shape
    with np.errstate(divide="ignore", invalid="ignore"):
        lp, lq = np.log(p), np.log(q)
        a = np.take_along_axis(lp[:, :-1], d[:, :, None], 2)[:, :, 0]
        c = np.take_along_axis(lq, d[:, :, None], 2)[:, :, 0]
        n = _prefix(np.log1p(-rng.random((B, g))) <= a - c)
        w = np.array(p[np.arange(B), n])
        r = np.flatnonzero(n < g)
        if len(r):
            x, y = lp[r, n[r]], lq[r, n[r]]
            z = np.where(x > y, np.exp(x) * -np.expm1(np.where(x > y, y - x, 0.0)), 0.0)
            ok = z.sum(1) > 0
            w[r[ok]] = z[ok]
    return _emit(d, n, _icdf(w, rng.random(B)))


@right(
    "ids relabelled by a random permutation shared by the rows of the call; coins are one minus the number"
)
def right_ids_relabelled(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    o = rng.permutation(V)
    n = _accepted(d, p, q, 1.0 - rng.random((B, g)) - 2.0**-53)
    w = _weights(p, q, n)[:, o]
    return _emit(d, n, o[_icdf(w, rng.random(B))])


@right("accept coins by comparing bits lazily, 16 bits at a time")
def right_lazy_bits(d, p, q, rng):
    B, g = d.shape
    pd, qd = _pq(d, p, q)
    r = np.minimum(pd / qd, 1.0)
    x = r.copy()
    ok, open_ = np.zeros((B, g), bool), np.ones((B, g), bool)
    for _ in range(5):
        x = x * 65536.0
        k = np.floor(x)
        x = x - k
        c = rng.integers(65536, size=(B, g))
        ok |= open_ & (c < k)
        open_ &= c == k
    n = _prefix(ok)
    return _emit(d, n, _icdf(_weights(p, q, n), rng.random(B)))


@right("a greedy shortcut where p is one-hot: no randomness needed there")
def right_onehot_target_shortcut(d, p, q, rng):
    B, g = d.shape
    hard, top = p.max(2) == 1.0, p.argmax(2)
    pd, qd = _pq(d, p, q)
    n = _prefix(np.where(hard[:, :g], d == top[:, :g], rng.random((B, g)) * qd < pd))
    b = np.arange(B)
    t = _icdf(_weights(p, q, n), rng.random(B))
    return _emit(d, n, np.where(hard[b, n], top[b, n], t))


RIGHT = ENTRIES
