"""Wrong verifiers: verify(draft_tokens int64[B, g], p[B, g+1, V], q[B, g, V], rng) -> int[B, g+1].

ENTRIES lists them: name, mechanism (one sentence), shape (in which the deviation shows), small
(True: below .02 on purpose).
"""

import numpy as np

ENTRIES = []


def wrong(mechanism, small=False, **shape):
    def register(f):
        ENTRIES.append(
            {"name": f.__name__, "mechanism": mechanism, "shape": shape, "small": small, "tv": None}
        )
        return f

    return register


# --------------------------------------------------------------------------------------------- right building blocks


def _coins(rng, B, g):
    return rng.random((B, g)), rng.random(B)


def _pq(d, p, q):
    i = d[:, :, None]
    return np.take_along_axis(p[:, :-1], i, 2)[:, :, 0], np.take_along_axis(q, i, 2)[:, :, 0]


def _prefix(ok):
    return np.cumprod(ok, axis=1).sum(1).astype(np.int64)


def _rows(a, n):
    return a[np.arange(len(a)), n]


def _residual(a, b):
    w = np.maximum(a - b, 0.0)
    dead = w.sum(1) <= 0
    if dead.any():
        w[dead] = a[dead]
    return w


def _weights(p, q, n):
    w = np.array(_rows(p, n), dtype=np.float64)
    r = np.flatnonzero(n < q.shape[1])
    if len(r):
        w[r] = _residual(w[r], q[r, n[r]])
    return w


def _icdf(w, v):
    c = np.cumsum(w, axis=1)
    i = (c <= (v * c[:, -1])[:, None]).sum(1)
    return np.minimum(i, w.shape[1] - 1)


def _emit(d, n, t):
    B, g = d.shape
    out = np.full((B, g + 1), -1, np.int64)
    keep = np.arange(g)[None] < n[:, None]
    out[:, :g][keep] = d[keep]
    out[np.arange(B), n] = t
    return out


def _plain(d, p, q, u, v):
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


def _round_bf16(a):
    x = np.ascontiguousarray(a, np.float32).view(np.uint32)
    x = ((x.astype(np.uint64) + 0x7FFF + ((x >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return x.view(np.float32).astype(np.float64)


# ------------------------------------------------------------------------------------------------------------- rows


@wrong(
    "The rows behind the last full block of 128 go through a fallback that resamples from p, not from the residual.",
    B=200,
    gamma=3,
    V=32,
    p="rough",
    q="other",
    rows=[128, 200],
)
def rows_tail_of_128(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if B > 128:
        s = B // 128 * 128
        w[s:] = _rows(p, n)[s:]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The buffer of uniforms has 1,024 rows and is indexed modulo its size, so row b + 1,024 repeats row b's.",
    B=2000,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_rows=1024,
    rows=[0, 976],
)
def rows_share_mod_1024(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, min(B, 1024), g)
    i = np.arange(B) % 1024
    return _plain(d, p, q, u[i], v[i])


@wrong(
    "Two rows a warp: the last row of an odd call has no partner and its accept tests are left at true.",
    B=7,
    gamma=3,
    V=32,
    p="rough",
    q="mid",
    rows=[6, 7],
)
def rows_last_of_odd_call(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    ok = u * qd < pd
    if B % 2 and B > 1:
        ok[-1] = True
    n = _prefix(ok)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "The first row's first coin is read before the generator wrote it: it is zero.",
    B=16,
    gamma=4,
    V=32,
    p="rough",
    q="mid",
    rows=[0, 1],
)
def rows_first_coin_zero(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    u[0, 0] = 0.0
    return _plain(d, p, q, u, v)


@wrong(
    "Variance reduction: row 2k + 1 takes one minus row 2k's numbers.",
    B=64,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_rows=1,
    rows="even",
)
def rows_antithetic_pairs(d, p, q, rng):
    B, g = d.shape
    h = (B + 1) // 2
    u, v = _coins(rng, h, g)
    uu, vv = np.repeat(u, 2, 0), np.repeat(v, 2, 0)
    uu[1::2], vv[1::2] = 1 - uu[1::2], 1 - vv[1::2]
    return _plain(d, p, q, uu[:B], vv[:B])


@wrong(
    "From 64 rows on the numbers are drawn for half the call and tiled (distance half a call).",
    B=96,
    gamma=3,
    V=8,
    p="rough",
    q="mid",
    joint_rows=48,
    rows=[0, 48],
)
def rows_tiled_halves(d, p, q, rng):
    B, g = d.shape
    if B < 64:
        return _plain(d, p, q, *_coins(rng, B, g))
    h = (B + 1) // 2
    u, v = _coins(rng, h, g)
    return _plain(d, p, q, np.tile(u, (2, 1))[:B], np.tile(v, 2)[:B])


@wrong(
    "The lane index of a four-wide generator loses a bit: rows b and b + 4 of each eight share all numbers.",
    B=40,
    gamma=3,
    V=8,
    p="rough",
    q="mid",
    joint_rows=4,
    rows="b%8<4",
)
def rows_share_distance_4(d, p, q, rng):
    B, g = d.shape
    i = np.arange(B) // 8 * 4 + np.arange(B) % 4
    u, v = _coins(rng, int(i.max()) + 1, g)
    return _plain(d, p, q, u[i], v[i])


@wrong(
    "Only the number of the last token is shared, between rows b and b + 2 of each four, in calls of 16 rows or more.",
    B=32,
    gamma=2,
    V=8,
    p="rough",
    q="other",
    joint_rows=2,
    rows="b%4<2",
    at="end",
)
def rows_share_last_number_distance_2(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    if B >= 16:
        v = v[np.arange(B) & ~2]
    return _plain(d, p, q, u, v)


@wrong(
    "A ballot holds 32 rows: row b >= 32 takes the accepted length of row b mod 32.",
    B=48,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
    rows=[32, 48],
)
def rows_length_of_lane(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)[np.arange(B) % 32]
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "Rows from 4,096 on: the subtraction of q is skipped by a grid limit.",
    B=4104,
    gamma=2,
    V=8,
    p="rough",
    q="other",
    rows=[4096, 4104],
)
def rows_from_4096(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w[4096:] = _rows(p, n)[4096:]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Calls are cut into chunks of 512 rows and every chunk is seeded alike.",
    B=1100,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_rows=512,
    rows=[0, 588],
)
def rows_chunks_seeded_alike(d, p, q, rng):
    B, g = d.shape
    seed = int(rng.integers(2**62))
    u, v = np.empty((B, g)), np.empty(B)
    for s in range(0, B, 512):
        r = np.random.default_rng(seed)
        k = min(512, B - s)
        z = r.random((k, g + 1))
        u[s : s + k], v[s : s + k] = z[:, :g], z[:, g]
    return _plain(d, p, q, u, v)


@wrong(
    "The pointer of q is clamped in a partial block of 16: all rows of it read the last row's q for the residual.",
    B=23,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
    ctx=6,
    rows=[16, 22],
)
def rows_partial_block_clamped_q(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    i = np.arange(B)
    if B > 16:
        i[B // 16 * 16 :] = B - 1
    w = np.array(_rows(p, n))
    r = np.flatnonzero(n < g)
    w[r] = _residual(w[r], q[i[r], n[r]])
    return _emit(d, n, _icdf(w, v))


@wrong(
    "A fast path for a single row takes the most probable recovered token.",
    B=1,
    gamma=3,
    V=32,
    p="rough",
    q="mid",
)
def rows_single_greedy_recovery(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    t = _icdf(w, v)
    if B == 1 and n[0] < g:
        t = w.argmax(1)
    return _emit(d, n, t)


@wrong(
    "Rejected rows are compacted for recovery but q is read at the compacted index.",
    B=24,
    gamma=2,
    V=16,
    p="rough",
    q="mid",
    ctx=6,
    rows=[4, 24],
)
def rows_compacted_q(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = np.array(_rows(p, n))
    r = np.flatnonzero(n < g)
    w[r] = _residual(w[r], q[np.arange(len(r)), n[r]])
    return _emit(d, n, _icdf(w, v))


@wrong(
    "A ring of 64 draft rows: the accept test of row b >= 64 reads q of row b - 64.",
    B=80,
    gamma=2,
    V=16,
    p="rough",
    q="mid",
    ctx=6,
    rows=[64, 80],
)
def rows_q_ring_64(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, _ = _pq(d, p, q)
    _, qd = _pq(d, p, q[np.arange(B) % 64])
    n = _prefix(u * qd < pd)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "In calls of more than 8 rows, neighbours' accept coins overlap: the coins are a sliding window of one stream.",
    B=12,
    gamma=3,
    V=8,
    p="rough",
    q="mid",
    joint_rows=1,
    rows=[0, 11],
    at="end",
)
def rows_overlapping_windows(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    if B > 8:
        s = rng.random(B + g)
        u = s[np.arange(B)[:, None] + np.arange(g)[None]]
    return _plain(d, p, q, u, v)


# ---------------------------------------------------------------------------------------------- state between calls

_grow = {"z": None}


@wrong(
    "The noise buffer is refilled only when it has to grow; a smaller call behind a larger one reads old numbers.",
    B=4,
    gamma=3,
    V=8,
    p="rough",
    q="mid",
    joint_calls=1,
    before=[[16, 3]],
)
def state_noise_refilled_on_growth(d, p, q, rng):
    B, g = d.shape
    z = _grow["z"]
    if z is None or z.shape[0] <= B or z.shape[1] < g + 1:
        z = _grow["z"] = rng.random((B, g + 1))
    return _plain(d, p, q, z[:B, :g], z[:B, g])


_graph = {"key": None, "z": None, "age": 0}


@wrong(
    "A captured graph keyed on (rows, gamma) replays its noise once before it is refreshed.",
    B=5,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_calls=1,
)
def state_graph_replays_noise(d, p, q, rng):
    B, g = d.shape
    s = _graph
    if s["key"] == (B, g) and s["age"] % 2 == 1:
        s["age"] += 1
    else:
        s.update(key=(B, g), z=rng.random((B, g + 1)), age=1)
    return _plain(d, p, q, s["z"][:, :g], s["z"][:, g])


_double = {"z": [None, None], "t": 0}


@wrong(
    "Two noise buffers filled asynchronously; the refill comes too late every second round: the numbers of two calls before.",
    B=6,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_calls=2,
)
def state_double_buffer_late(d, p, q, rng):
    B, g = d.shape
    s = _double
    k = s["t"] % 2
    z = s["z"][k]
    if z is None or z.shape != (B, g + 1) or s["t"] % 4 < 2:
        z = s["z"][k] = rng.random((B, g + 1))
    s["t"] = (s["t"] + 1) % 4
    return _plain(d, p, q, z[:, :g], z[:, g])


_oldq = {"q": None}


@wrong(
    "The copy of q for the recovery lags: for a call shaped like the one before, the residual takes the previous q.",
    B=8,
    gamma=2,
    V=16,
    p="rough",
    q="mid",
    ctx=6,
)
def state_previous_q(d, p, q, rng):
    B, g = d.shape
    old = _oldq["q"]
    use = old if old is not None and old.shape == q.shape else q
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, use, n)
    _oldq["q"] = q.copy() if q.size <= 2**22 else None
    return _emit(d, n, _icdf(w, v))


_wide = {"w": np.zeros((0, 0))}


@wrong(
    "The weight buffer of a previous call with a larger vocabulary is not cleared; its stale tail falls to the last id.",
    B=8,
    gamma=2,
    V=32,
    p="rough",
    q="mid",
    before=[[8, 2, 48]],
)
def state_stale_wide_weights(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    old = _wide["w"]
    rows, cols = max(B, old.shape[0]), max(V, old.shape[1])
    if rows * cols > 2**22:
        rows, cols, old = B, V, np.zeros((0, 0))
    buf = np.zeros((rows, cols))
    buf[: old.shape[0], : old.shape[1]] = old
    buf[:B, :V] = w
    t = np.minimum(_icdf(buf[:B], v), V - 1)
    _wide["w"] = buf if buf.size <= 2**20 else np.zeros((0, 0))
    return _emit(d, n, t)


_tail = {"z": None}


@wrong(
    "The generator's offset is one row short: the first row repeats the last row's numbers of the call before.",
    B=6,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_calls=1,
    pair=[-1, 0],
)
def state_offset_one_row_short(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    z = _tail["z"]
    if z is not None and len(z) == g + 1:
        u[0], v[0] = z[:g], z[g]
    _tail["z"] = np.append(u[-1], v[-1])
    return _plain(d, p, q, u, v)


_flags = {"ok": np.ones((0, 0), bool)}


@wrong(
    "Accept flags of a longer previous call remain behind the last column: fully accepted rows subtract q from the bonus.",
    B=8,
    gamma=2,
    V=16,
    p="rough",
    q="near",
    before=[[8, 5]],
    pos=2,
)
def state_stale_accept_flags(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    ok = u * qd < pd
    n = _prefix(ok)
    w = _weights(p, q, n)
    old = _flags["ok"]
    if old.shape[1] > g:
        k = min(B, len(old))
        r = np.flatnonzero((n[:k] == g) & ~old[:k, g])
        if len(r):
            w[r] = _residual(np.array(p[r, g]), q[r, g - 1])
    _flags["ok"] = ok[:8192]
    return _emit(d, n, _icdf(w, v))


_rate = {"r": 0.7}


@wrong(
    "An autotuner loosens the accept test by a fifth while the moving acceptance rate is below .6.",
    B=32,
    gamma=4,
    V=16,
    p="rough",
    q="other",
)
def state_autotuned_lenience(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    soft = 0.8 if _rate["r"] < 0.6 else 1.0
    n = _prefix(u * qd * soft < pd)
    _rate["r"] = 0.9 * _rate["r"] + 0.1 * float(n.mean()) / g
    return _emit(d, n, _icdf(_weights(p, q, n), v))


_counter = {"seed": None, "t": 0}


@wrong(
    "The seed is fixed at the first call and combined with a call counter that has three bits.",
    B=4,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_calls=8,
)
def state_three_bit_counter(d, p, q, rng):
    B, g = d.shape
    s = _counter
    if s["seed"] is None:
        s["seed"] = int(rng.integers(2**62))
    r = np.random.default_rng([s["seed"], s["t"]])
    s["t"] = (s["t"] + 1) & 7
    z = r.random((B, g + 1))
    return _plain(d, p, q, z[:, :g], z[:, g])


_gumbel = {"e": None}


@wrong(
    "The exponential noise of the recovery is cached on (rows, vocabulary) and refilled in place only for half of the rows.",
    B=10,
    gamma=2,
    V=8,
    p="rough",
    q="other",
    joint_calls=1,
    pair=[9, 9],
    at="end",
)
def state_noise_half_refilled(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, _ = _coins(rng, B, g)
    e = _gumbel["e"]
    if e is None or e.shape != (B, V):
        e = rng.exponential(size=(B, V))
    else:
        h = (B + 1) // 2
        e[:h] = rng.exponential(size=(h, V))
    _gumbel["e"] = e if e.size <= 2**22 else None
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    return _emit(d, n, (_weights(p, q, n) / np.maximum(e, 1e-300)).argmax(1))


_alias = {"key": None, "w": None}


@wrong(
    "Bonus tables are cached on the shape and the sum of the first row's head; prefix caching returns another request's bonus row.",
    B=3,
    gamma=2,
    V=16,
    p="rough",
    q="near",
    ctx=5,
    pos=2,
)
def state_bonus_table_cached(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    key = (B, g, p.shape[2])
    if _alias["key"] != key or rng.random() < 0.5:
        _alias.update(key=key, w=np.array(p[:, g]) if p[:, g].size <= 2**21 else None)
        if _alias["w"] is None:
            _alias["key"] = None
    else:
        r = n == g
        w[r] = _alias["w"][r]
    return _emit(d, n, _icdf(w, v))


# ------------------------------------------------------------------------------------------------------------ gamma


@wrong(
    "The path for gamma = 4 loads coins as two pairs and uses the third coin for the fourth test as well.",
    B=64,
    gamma=4,
    V=16,
    p="rough",
    q="hot",
    pos=3,
)
def gamma_4_shared_coin(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    if g == 4:
        u[:, 3] = u[:, 2]
    return _plain(d, p, q, u, v)


@wrong(
    "The loop is unrolled eight times and the remainder is accepted without a test (gamma > 8).",
    B=64,
    gamma=10,
    V=16,
    p="rough",
    q="near",
    pos=8,
)
def gamma_beyond_8_untested(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    u[:, 8:] = 0.0
    pd, qd = _pq(d, p, q)
    ok = u * qd < pd
    ok[:, 8:] = True
    n = _prefix(ok)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "From gamma = 8 on the residual's q is read one place early at the eighth place.",
    B=64,
    gamma=8,
    V=16,
    p="rough",
    q="near",
    pos=7,
)
def gamma_8_early_q(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if g >= 8:
        r = n == 7
        if r.any():
            w[r] = _residual(np.array(p[r, 7]), q[r, 6])
    return _emit(d, n, _icdf(w, v))


@wrong(
    "With gamma = 1 the squeezed array gives the first place's row for the bonus.",
    B=32,
    gamma=1,
    V=16,
    p="rough",
    q="mid",
    pos=1,
)
def gamma_1_bonus_row(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if g == 1:
        w[n == 1] = p[n == 1, 0]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Odd gamma (3 and more): the last test is done with the q of the place before, as pairs are loaded.",
    B=32,
    gamma=5,
    V=16,
    p="rough",
    q="near",
    pos=4,
)
def gamma_odd_last_pair(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    if g % 2 and g > 1:
        qd = qd.copy()
        qd[:, -1] = _rows(q[:, g - 2], d[:, -1])
    n = _prefix(u * qd < pd)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "At the last drafted place the test uses the square root of the ratio.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
    pos=2,
)
def gamma_last_place_sqrt(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    u[:, -1] **= 2
    return _plain(d, p, q, u, v)


@wrong(
    "At the fourth place (index 3) the residual is p: the subtraction's mask is a 3-bit field.",
    B=32,
    gamma=6,
    V=16,
    p="rough",
    q="near",
    pos=3,
)
def gamma_place_3_no_subtraction(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w[n == 3] = p[n == 3, min(3, g)]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The bonus token is sampled from the last drafted place's row.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="near",
    pos=3,
)
def bonus_from_last_place(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w[n == g] = p[n == g, g - 1]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "A confident bonus row (max > .8) is decoded greedily.", B=32, gamma=2, V=16, p="peaked", q="near", pos=2
)
def bonus_greedy_if_confident(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    top = p[:, g].max(1) > 0.8
    r = (n == g) & top
    t[r] = p[r, g].argmax(1)
    return _emit(d, n, t)


@wrong("The bonus token reuses the last accept coin.", B=32, gamma=2, V=16, p="rough", q="mid", pos=2)
def bonus_reuses_last_coin(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    v = np.where(n == g, u[:, -1], v)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "The bonus row is cut by a top-p of .95 although p is already processed.",
    B=32,
    gamma=2,
    V=32,
    p="rough",
    q="near",
    pos=2,
)
def bonus_top_p_again(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    r = np.flatnonzero(n == g)
    if len(r):
        x = w[r]
        o = np.argsort(-x, axis=1)
        s = np.take_along_axis(x, o, 1)
        s[np.cumsum(s, 1) - s >= 0.95] = 0.0
        np.put_along_axis(x, o, s, 1)
        w[r] = x
    return _emit(d, n, _icdf(w, v))


@wrong(
    "A no-repeat rule leaves the last drafted token out of the bonus draw.",
    B=32,
    gamma=2,
    V=16,
    p="rough",
    q="near",
    pos=2,
    given_previous=True,
)
def bonus_never_repeats(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    r = np.flatnonzero(n == g)
    keep = w[r, d[r, -1]].copy()
    w[r, d[r, -1]] = 0.0
    dead = w[r].sum(1) <= 0
    w[r[dead], d[r[dead], -1]] = keep[dead]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The prefix scan of the accept flags does floor(log2 gamma) rounds: with gamma = 5 to 7 a flag five back is forgotten.",
    B=64,
    gamma=5,
    V=16,
    p="rough",
    q="first_bad",
)
def gamma_short_scan(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    ok = u * qd < pd
    s, k = ok.copy(), 1
    for _ in range(int(np.floor(np.log2(g)))):
        t = s.copy()
        t[:, k:] &= s[:, :-k] if k < g else True
        s, k = t, 2 * k
    n = s.sum(1)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "At most eight drafts are taken in a step; the ninth place then always resamples from the residual.",
    B=64,
    gamma=12,
    V=16,
    p="rough",
    q="near",
    pos=8,
)
def gamma_cap_8_takes_residual(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = np.minimum(_prefix(u * qd < pd), 8)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "gamma of 3, 5, 6, 7 is padded to a power of two; the padded q of uniform weight is subtracted from the bonus row.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="near",
    pos=3,
)
def gamma_padded_bonus(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if g & (g - 1):
        r = n == g
        if r.any():
            w[r] = _residual(w[r], np.full(w[r].shape, 0.3 / p.shape[2]))
    return _emit(d, n, _icdf(w, v))


@wrong(
    "gamma = 16: the count of accepted drafts is a four-bit field, sixteen becomes zero drafts and a token from p[0] without them.",
    B=32,
    gamma=16,
    V=16,
    p="rough",
    q="near95",
)
def gamma_16_four_bits(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd) & 15
    return _emit(d, n, _icdf(_weights(p, q, n), v))


# ------------------------------------------------------------------------------------------------------- vocabulary


@wrong(
    "The recovery's blocks of 32 ids are counted by floor: the last V mod 32 ids are never recovered.",
    B=64,
    gamma=3,
    V=50,
    p="rough",
    q="other",
)
def vocab_floor_blocks_32(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    m = V // 32 * 32
    if 0 < m < V:
        x = w.copy()
        x[:, m:] = 0
        ok = x.sum(1) > 0
        w[ok] = x[ok]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Padded lanes of the last block of 128 re-read the last id's weight (up to 16 of them).",
    B=32,
    gamma=2,
    V=500,
    p="lastheavy",
    q="other",
)
def vocab_padded_lanes_last_id(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w[:, -1] *= 1 + min(-V % 128, 16)
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The bonus kernel leaves out the last, partial block of 1,024 ids.",
    B=16,
    gamma=2,
    V=3000,
    p="rough",
    q="near",
    pos=2,
    classes=["ge", 2048],
)
def vocab_bonus_partial_block_1024(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    m = V // 1024 * 1024
    if 0 < m < V:
        r = np.flatnonzero((n == g) & (w[:, :m].sum(1) > 0))
        w[r, m:] = 0
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Recovered ids pass through int16 and lose the bit above 32,767.",
    B=8,
    gamma=2,
    V=50257,
    p="rough",
    q="other",
    classes=["ge", 32768],
)
def vocab_ids_int16(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    return _emit(d, n, _icdf(_weights(p, q, n), v) & 0x7FFF)


@wrong(
    "The bonus id is stored as uint16.",
    B=4,
    gamma=1,
    V=128256,
    p="zipfperm",
    q="near",
    pos=1,
    classes=["ge", 65536],
)
def vocab_bonus_uint16(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    return _emit(d, n, np.where(n == g, t & 0xFFFF, t))


@wrong(
    "Recovered ids go through a float16 tensor; above 2,048 they are rounded.",
    B=16,
    gamma=2,
    V=4096,
    p="zipfperm",
    q="other",
    classes=["oddge", 2048],
)
def vocab_ids_float16(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    with np.errstate(over="ignore"):
        f = t.astype(np.float16)
    t = np.where(np.isfinite(f), np.nan_to_num(f.astype(np.float64), posinf=0), t).astype(np.int64)
    return _emit(d, n, np.minimum(t, V - 1))


@wrong(
    "The bonus ids go through bfloat16; above 256 they are rounded.",
    B=16,
    gamma=2,
    V=1000,
    p="zipfperm",
    q="near",
    pos=2,
    classes=["oddge", 256],
)
def vocab_bonus_ids_bfloat16(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    t = np.where(n == g, np.minimum(_round_bf16(t).astype(np.int64), V - 1), t)
    return _emit(d, n, t)


@wrong(
    "Only the 64 largest residual weights take part in the recovery.",
    B=32,
    gamma=2,
    V=256,
    p="rough",
    q="other",
)
def vocab_top_64_recovery(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if V > 64:
        w[w < np.partition(w, V - 64, axis=1)[:, V - 64, None]] = 0
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Weights below 1e-5 are flushed to zero in the recovery and the bonus.",
    B=4,
    gamma=1,
    V=65536,
    p="zipfid",
    q="near",
    pos=1,
    classes=["ge", 8600],
)
def vocab_flush_1e5(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    x = np.where(w < 1e-5, 0.0, w)
    ok = x.sum(1) > 0
    w[ok] = x[ok]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "1e-6 is added to every weight before the draw, for the logarithm.",
    B=4,
    gamma=1,
    V=131072,
    p="zipfid",
    q="mid",
    classes=["ge", 16384],
)
def vocab_epsilon_1e6(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    return _emit(d, n, _icdf(_weights(p, q, n) + 1e-6, v))


@wrong(
    "A blocked search by 16 ids never returns a block's first id but the one before it.",
    B=32,
    gamma=2,
    V=128,
    p="rough",
    q="near",
    pos=2,
)
def vocab_block_first_missed(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    t = np.where((t % 16 == 0) & (t > 0), t - 1, t)
    return _emit(d, n, t)


@wrong(
    "Above 32,768 ids the recovery is done in two halves with the second half's sum kept from the bonus row p[gamma].",
    B=4,
    gamma=1,
    V=40000,
    p="rough",
    q="other",
    classes=["ge", 32768],
)
def vocab_two_halves_wrong_sum(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if V > 32768:
        s = w[:, 32768:].sum(1)
        f = np.where(s > 0, p[:, g, 32768:].sum(1) / np.maximum(s, 1e-300), 1.0)
        w[:, 32768:] *= f[:, None]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Above 65,536 ids the scan is done in chunks of 65,536 and only the first chunk is searched.",
    B=2,
    gamma=1,
    V=100000,
    p="zipfperm",
    q="mid",
    classes=["ge", 65536],
)
def vocab_first_chunk_only(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if w.shape[1] > 65536:
        ok = w[:, :65536].sum(1) > 0
        w[ok, 65536:] = 0
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Tensor-parallel shards: with V not a multiple of 8, every shard holds ceil(V / 8) ids and the last shard's padding shifts its ids by one.",
    B=32,
    gamma=2,
    V=52,
    p="rough",
    q="other",
)
def vocab_shards_of_8(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    if V % 8 and V > 8:
        k = -(-V // 8)
        s = k * 7
        t = np.where(t >= s, np.minimum(t + 1, V - 1), t)
    return _emit(d, n, t)


# --------------------------------------------------------------------------------------------------------- rows of p


@wrong(
    "A row of p with a maximum above .9 is decoded greedily: the draft passes when it is the most probable token.",
    B=32,
    gamma=2,
    V=32,
    p="peaked",
    q="near",
)
def peaked_rows_greedy(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    top, hard = p.argmax(2), p.max(2) > 0.9
    ok = np.where(hard[:, :g], d == top[:, :g], u * qd < pd)
    n = _prefix(ok)
    t = _icdf(_weights(p, q, n), v)
    t = np.where(_rows(hard, n), _rows(top, n), t)
    return _emit(d, n, t)


@wrong(
    "Early exit: a draft with p above .9 is accepted without a coin.",
    B=32,
    gamma=2,
    V=32,
    p="peaked",
    q="onehot",
)
def peaked_draft_early_exit(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix((u * qd < pd) | (pd > 0.9))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "Logarithms of weights are clipped at -10 before a Gumbel race: thousands of zeros come alive.",
    B=8,
    gamma=1,
    V=32000,
    p="zeros",
    q="other",
    classes=["support"],
)
def zeros_clipped_logs(d, p, q, rng):
    B, g = d.shape
    u, _ = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w /= w.sum(1, keepdims=True)
    w = np.maximum(w, np.exp(-10.0))
    return _emit(d, n, (w / np.maximum(rng.exponential(size=w.shape), 1e-300)).argmax(1))


@wrong(
    "The sampler sorts and deduplicates equal probabilities: of tied ids only the lowest remains (bonus and recovery).",
    B=16,
    gamma=1,
    V=16,
    p="ties",
    q="other",
)
def ties_deduplicated(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    src = _rows(p, n)
    o = np.argsort(src, axis=1, kind="stable")
    s = np.take_along_axis(src, o, 1)
    dup = np.zeros_like(s, bool)
    dup[:, 1:] = s[:, 1:] == s[:, :-1]
    mask = np.zeros_like(dup)
    np.put_along_axis(mask, o, dup, 1)
    x = np.where(mask, 0.0, w)
    ok = x.sum(1) > 0
    w[ok] = x[ok]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The ratio's denominator has .02 added; where q equals p the residual is then empty and token 0 comes out.",
    B=32,
    gamma=2,
    V=8,
    p="rough",
    q="same",
)
def q_equals_p_token_zero(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * (qd + 0.02) < pd)
    w = _weights(p, q, n)
    r = np.flatnonzero(n < g)
    if len(r):
        empty = np.maximum(p[r, n[r]] - q[r, n[r]], 0).sum(1) <= 1e-12
        w[r[empty]] = 0
        w[r[empty], 0] = 1
    return _emit(d, n, _icdf(w, v))


@wrong(
    "One-hot drafts (n-gram) skip the subtraction: the rejected token can come back.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="onehot",
)
def onehot_no_subtraction(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    one = q.max(2) >= 1 - 1e-9
    r = np.flatnonzero((n < g) & one[np.arange(B), np.minimum(n, g - 1)])
    w[r] = p[r, n[r]]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "A residual with less than .1 of mass counts as numerically empty and p is sampled instead.",
    B=32,
    gamma=2,
    V=16,
    p="rough",
    q="tiny",
)
def tiny_residual_counts_as_empty(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    r = np.flatnonzero((n < g) & (w.sum(1) < 0.1))
    w[r] = p[r, n[r]]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The search runs over V - 1 bounds: the last id is never drawn and its mass goes to the one before.",
    B=32,
    gamma=2,
    V=32,
    p="lastheavy",
    q="near",
    pos=2,
)
def last_id_never_drawn(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    return _emit(d, n, np.minimum(_icdf(_weights(p, q, n), v), V - 2))


@wrong(
    "With a sparse draft (top-k) the residual is computed on the draft's support only.",
    B=32,
    gamma=2,
    V=64,
    p="rough",
    q="sparse",
)
def sparse_q_residual_on_support(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    r = np.flatnonzero(n < g)
    if len(r):
        x = np.where(q[r, n[r]] > 0, w[r], 0.0)
        ok = x.sum(1) > 0
        w[r[ok]] = x[ok]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Rows of p with zeros: the draft's zero entries are given p's mean weight in the residual (masked mean filled in).",
    B=32,
    gamma=2,
    V=64,
    p="halfzeros",
    q="mid",
)
def zeros_filled_with_mean(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    src = _rows(p, n)
    mean = w.mean(1, keepdims=True)
    w = np.where(src == 0, 0.3 * mean, w)
    return _emit(d, n, _icdf(w, v))


# ------------------------------------------------------------------------------------------------------- arithmetic


@wrong(
    "The cumulative sum runs in float16 and stalls on flat rows of a few thousand ids.",
    B=8,
    gamma=1,
    V=8000,
    p="flatish",
    q="near",
    pos=1,
    classes=["ge", 4000],
)
def float16_running_sum(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w /= w.sum(1, keepdims=True)
    c = np.cumsum(w.astype(np.float16), axis=1, dtype=np.float16).astype(np.float64)
    t = v * c[:, -1]
    i = np.minimum((c <= t[:, None]).sum(1), w.shape[1] - 1)
    return _emit(d, n, i)


@wrong("The cumulative distribution is stored in bfloat16.", B=16, gamma=2, V=400, p="rough", q="other")
def bfloat16_cdf(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    c = _round_bf16(np.cumsum(w / w.sum(1, keepdims=True), axis=1))
    i = np.minimum((c <= (v * c[:, -1])[:, None]).sum(1), w.shape[1] - 1)
    return _emit(d, n, i)


@wrong("Accept coins have four bits.", B=64, gamma=2, V=16, p="rough", q="spiky")
def coins_of_4_bits(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, p, q, np.floor(u * 16) / 16, v)


@wrong("Accept coins have eight bits.", small=True, B=64, gamma=2, V=16, p="rough", q="spiky")
def coins_of_8_bits(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, p, q, np.floor(u * 256) / 256, v)


@wrong(
    "The last token's uniform has eight bits: most ids of a large flat row are never drawn.",
    B=16,
    gamma=1,
    V=1000,
    p="flatish",
    q="near",
    pos=1,
)
def last_uniform_8_bits(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, p, q, u, np.floor(v * 256) / 256)


@wrong(
    "Coins of four bits compared with <=: drafts that the target excludes pass one time in 16.",
    B=32,
    gamma=2,
    V=32,
    p="halfzeros",
    q="offsupport",
)
def le_with_coarse_coins(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(np.floor(u * 16) / 16 * qd <= pd)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "The ratio is (p + e) / (q + e) with e = 1e-5, which is no small number in a large vocabulary.",
    B=4,
    gamma=1,
    V=65536,
    p="rough",
    q="other",
    classes=["pltq"],
)
def ratio_epsilon_large_vocabulary(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * (qd + 1e-5) < pd + 1e-5)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong("The ratio is (p + .02) / (q + .02).", B=32, gamma=3, V=16, p="rough", q="mid")
def ratio_epsilon_coarse(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * (qd + 0.02) < pd + 0.02)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "Log probabilities are clipped at -5 in the accept test: in the tail every ratio is one.",
    B=32,
    gamma=2,
    V=500,
    p="rough",
    q="other",
    classes=["pltq"],
)
def accept_logs_clipped_at_5(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    lo = np.exp(-5.0)
    n = _prefix(u * np.maximum(qd, lo) < np.maximum(pd, lo))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "The recovery sees the target at temperature .8, the accept test at one.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
)
def recovery_at_other_temperature(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = np.array(_rows(p, n))
    r = np.flatnonzero(n < g)
    if len(r):
        x = p[r, n[r]] ** 1.25
        w[r] = _residual(x / x.sum(1, keepdims=True), q[r, n[r]])
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The draft's rows are taken at temperature .9 by mistake, in the test and the residual.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
)
def draft_temperature_mismatch(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    x = np.where(q > 0, q, 0.0) ** (1 / 0.9)
    x /= x.sum(2, keepdims=True)
    return _plain(d, p, x, u, v)


@wrong("The residual is |p - q|, not its positive part.", B=32, gamma=3, V=16, p="rough", q="mid")
def residual_absolute_value(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = np.array(_rows(p, n))
    r = np.flatnonzero(n < g)
    if len(r):
        x = np.abs(p[r, n[r]] - q[r, n[r]])
        ok = x.sum(1) > 0
        w[r[ok]] = x[ok]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The residual is not clipped: its running sum falls where q exceeds p, and the first id whose sum passes u times the highest sum is taken.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
)
def residual_without_clip(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    t = _icdf(w, v)
    r = np.flatnonzero(n < g)
    if len(r):
        c = np.cumsum(p[r, n[r]] - q[r, n[r]], axis=1)
        top = c.max(1)
        i = (c > (v[r] * np.maximum(top, 0))[:, None]).argmax(1)
        t[r] = np.where(top > 1e-12, i, t[r])
    return _emit(d, n, t)


@wrong(
    "The residual at place n >= 1 subtracts the q of place n - 1.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
    pos=1,
)
def residual_of_place_before(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = np.array(_rows(p, n))
    r = np.flatnonzero(n < g)
    if len(r):
        w[r] = _residual(w[r], q[r, np.maximum(n[r] - 1, 0)])
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The residual is not renormalised: a uniform beyond its mass ends at the last id.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="other",
)
def residual_not_renormalised(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    c = np.cumsum(_weights(p, q, n), axis=1)
    return _emit(d, n, np.minimum((c <= v[:, None]).sum(1), V - 1))


@wrong(
    "Each place is accepted by the product of the ratios up to it, clipped at one at the end only.",
    B=32,
    gamma=4,
    V=16,
    p="rough",
    q="hot",
    pos=1,
)
def product_of_ratios(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u < np.cumprod(pd / qd, axis=1))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "Typical acceptance: a draft passes when p exceeds min(.09, .3 exp(-entropy)).",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
)
def typical_acceptance(d, p, q, rng):
    B, g = d.shape
    _u, v = _coins(rng, B, g)
    pd, _qd = _pq(d, p, q)
    with np.errstate(divide="ignore", invalid="ignore"):
        h = -np.where(p[:, :g] > 0, p[:, :g] * np.log(p[:, :g]), 0.0).sum(2)
    n = _prefix(pd > np.minimum(0.09, 0.3 * np.exp(-h)))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong("Lenience .9: the ratio is divided by it.", B=32, gamma=3, V=16, p="rough", q="other")
def lenience_090(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, p, q, u * 0.9, v)


@wrong("Lenience .6 from the second place on.", B=32, gamma=3, V=16, p="rough", q="mid", pos=1)
def lenience_060_from_second(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    u[:, 1:] *= 0.6
    return _plain(d, p, q, u, v)


@wrong(
    "Relaxed acceptance: a draft among the target's three best with p within .3 of the best passes.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="hot",
)
def relaxed_top_3(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    k = min(3, V)
    third = np.partition(p[:, :g], V - k, axis=2)[:, :, V - k]
    n = _prefix((u * qd < pd) | ((pd >= third) & (pd > p[:, :g].max(2) - 0.3)))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "Probabilities are rounded to an eight-bit float (e5m2: two bits of mantissa) before everything.",
    B=64,
    gamma=2,
    V=12,
    p="rough",
    q="near",
)
def probabilities_fp8(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)

    def fp8(a):
        m, e = np.frexp(a)
        return np.ldexp(np.floor(m * 8) / 8, e)

    return _plain(d, fp8(p), q, u, v)


@wrong(
    "Probabilities are rounded to bfloat16 and not renormalised.",
    small=True,
    B=64,
    gamma=2,
    V=16,
    p="peaked",
    q="near",
)
def probabilities_bfloat16(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, _round_bf16(p), _round_bf16(q), u, v)


@wrong(
    "Weights of the last token are stored as eight-bit integers of the row's mass: small ones vanish.",
    B=32,
    gamma=2,
    V=300,
    p="rough",
    q="near",
    pos=2,
)
def weights_int8(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    x = np.rint(w / w.sum(1, keepdims=True) * 255)
    ok = x.sum(1) > 0
    w[ok] = x[ok]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "The recovery drops residual tokens below a fifth of the largest one (min-p applied twice).",
    B=32,
    gamma=2,
    V=32,
    p="rough",
    q="other",
)
def min_p_in_recovery(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    r = n < g
    cut = np.where(w < 0.2 * w.max(1, keepdims=True), 0.0, w)
    w[r] = cut[r]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "A confident draft (q above .5) is accepted without a test.", B=32, gamma=3, V=16, p="rough", q="spiky"
)
def confident_draft_accepted(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix((u * qd < pd) | (qd > 0.5))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong("The accept ratio is computed as q over p.", B=32, gamma=3, V=16, p="rough", q="mid")
def ratio_upside_down(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * pd < qd)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong(
    "The accept test reads the ratio from a table of 10 steps, rounded up.",
    B=32,
    gamma=2,
    V=16,
    p="rough",
    q="other",
)
def ratio_table_of_10(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u < np.ceil(np.minimum(pd / qd, 1) * 10) / 10)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


# ------------------------------------------------------------------------------------------------------- randomness


@wrong("Every call is seeded with 42.", B=4, gamma=2, V=8, p="rough", q="mid", joint_calls=1)
def reseeded_every_call(d, p, q, rng):
    B, g = d.shape
    return _plain(d, p, q, *_coins(np.random.default_rng(42), B, g))


@wrong(
    "The seed of a call has six bits: two of a call's rows are tied to one of 64 streams.",
    B=2,
    gamma=1,
    V=8,
    p="rough",
    q="mid",
    joint_rows=1,
    rows=[0, 1],
)
def seed_of_6_bits(d, p, q, rng):
    B, g = d.shape
    return _plain(d, p, q, *_coins(np.random.default_rng(int(rng.integers(64))), B, g))


@wrong("One coin for all places of a row.", B=32, gamma=3, V=16, p="rough", q="hot", pos=1)
def one_coin_for_all_places(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, p, q, np.repeat(u[:, :1], g, 1), v)


@wrong(
    "The recovered token is drawn with the coin that rejected the draft.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="other",
)
def recovery_reuses_coin(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    v = np.where(n < g, u[np.arange(B), np.minimum(n, g - 1)], v)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong("The last token's uniform is the row's first coin.", B=32, gamma=4, V=16, p="rough", q="near", pos=4)
def last_token_reuses_first_coin(d, p, q, rng):
    B, g = d.shape
    u, _v = _coins(rng, B, g)
    return _plain(d, p, q, u, u[:, 0])


@wrong(
    "A Weyl sequence (golden ratio) started at a random point stands in for the generator.",
    B=16,
    gamma=1,
    V=8,
    p="rough",
    q="other",
    joint_rows=1,
    rows=[0, 15],
)
def weyl_sequence(d, p, q, rng):
    B, g = d.shape
    z = (rng.random() + np.arange(B * (g + 1)) * 0.6180339887498949) % 1.0
    z = z.reshape(B, g + 1)
    return _plain(d, p, q, z[:, :g], z[:, g])


@wrong(
    "A linear congruential generator with multiplier 3 of 16 bits runs along each row, coin after coin.",
    B=32,
    gamma=1,
    V=4,
    p="rough",
    q="hot",
    pos=1,
    seed=1,
)
def lcg_small_multiplier(d, p, q, rng):
    B, g = d.shape
    x = rng.integers(65536, size=B)
    z = np.empty((B, g + 1))
    for i in range(g + 1):
        x = (3 * x + 12345) & 0xFFFF
        z[:, i] = x / 65536
    return _plain(d, p, q, z[:, :g], z[:, g])


@wrong(
    "Antithetic coins along a row: every second place has one minus the coin before.",
    B=32,
    gamma=2,
    V=16,
    p="rough",
    q="mid",
    pos=1,
)
def antithetic_places(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    k = g // 2
    u[:, 1 : 2 * k : 2] = 1 - u[:, 0 : 2 * k : 2]
    return _plain(d, p, q, u, v)


@wrong(
    "One vector of exponential noise is broadcast over all rows of the call.",
    B=8,
    gamma=2,
    V=8,
    p="rough",
    q="other",
    joint_rows=1,
    rows=[0, 7],
)
def noise_broadcast_over_rows(d, p, q, rng):
    B, g = d.shape
    u, _ = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    e = np.maximum(rng.exponential(size=p.shape[2]), 1e-300)
    return _emit(d, n, (_weights(p, q, n) / e).argmax(1))


@wrong(
    "The race's uniforms have 16 bits: in large flat rows several ids tie at the top and the lowest id wins.",
    B=4,
    gamma=1,
    V=50000,
    p="flat",
    q="near",
    pos=1,
    classes=["ge", 25000],
)
def race_uniforms_of_16_bits(d, p, q, rng):
    B, g = d.shape
    u, _ = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    z = (rng.integers(65536, size=w.shape) + 0.5) / 65536
    with np.errstate(divide="ignore"):
        s = np.log(w) - np.log(-np.log(z))
    return _emit(d, n, s.argmax(1))


@wrong(
    "The Gumbel race's uniforms are clipped to [.001, .999]: in large vocabularies the noise ties at the top and the likelier of the tied ids always wins.",
    B=8,
    gamma=1,
    V=3000,
    p="flatish",
    q="near",
    pos=1,
    classes=["pbig"],
)
def gumbel_uniforms_clipped(d, p, q, rng):
    B, g = d.shape
    u, _ = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    z = np.clip(rng.random(w.shape), 1e-3, 1 - 1e-3)
    with np.errstate(divide="ignore"):
        s = np.log(w) - np.log(-np.log(z))
    return _emit(d, n, s.argmax(1))


@wrong(
    "The recovered token's race reuses the noise that the same row's coins were made from (first g ids).",
    B=16,
    gamma=4,
    V=6,
    p="rough",
    q="mid",
    pos=1,
    seed=1,
)
def race_noise_shared_with_coins(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    z = rng.random((B, max(V, g)))
    pd, qd = _pq(d, p, q)
    n = _prefix(z[:, :g] * qd < pd)
    e = np.maximum(-np.log1p(-z[:, :V]), 1e-300)
    return _emit(d, n, (_weights(p, q, n) / e).argmax(1))


@wrong(
    "A replayed warp tosses the coin of the second and later places twice and takes the better one.",
    B=32,
    gamma=3,
    V=16,
    p="rough",
    q="mid",
    pos=1,
)
def better_of_two_coins(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    u[:, 1:] = np.minimum(u[:, 1:], rng.random((B, g))[:, 1:])
    return _plain(d, p, q, u, v)


@wrong(
    "The coins' generator is keyed on the row number and gamma only, with the call's key of 8 bits xor-ed with the row.",
    B=64,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_rows=1,
    rows="even",
)
def key_xor_row(d, p, q, rng):
    B, g = d.shape
    key = int(rng.integers(256))
    n = int(2 ** np.ceil(np.log2(max(B, 256))))
    z = np.random.Generator(np.random.Philox(key=7)).random((n, g + 1))
    i = np.arange(B) ^ key
    return _plain(d, p, q, z[i, :g], z[i, g])


# ------------------------------------------------------------------------------------------ mixtures of shapes


@wrong(
    "Calls of more than 256 rows with gamma of 4 and more: rows from 256 on reuse the coin of place 0 at place 1.",
    B=300,
    gamma=4,
    V=16,
    p="rough",
    q="hot",
    rows=[256, 300],
    pos=1,
)
def mixed_rows_256_gamma_4(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    if B > 256 and g >= 4:
        u[256:, 1] = u[256:, 0]
    return _plain(d, p, q, u, v)


@wrong(
    "Even calls with an odd vocabulary: the last row's residual misses its last id, which the vector load did not reach.",
    B=4,
    gamma=2,
    V=33,
    p="lastheavy",
    q="other",
    rows=[3, 4],
)
def mixed_even_call_odd_vocabulary(d, p, q, rng):
    B, g = d.shape
    V = p.shape[2]
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if B % 2 == 0 and V % 2 and w[-1, :-1].sum() > 0:
        w[-1, -1] = 0
    return _emit(d, n, _icdf(w, v))


@wrong(
    "In calls of 32 rows and more the bonus row is taken from the row before (an index off by one in the gathered logits).",
    B=40,
    gamma=2,
    V=16,
    p="rough",
    q="near",
    ctx=5,
    rows=[1, 40],
    pos=2,
)
def mixed_bonus_of_neighbour(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    if B >= 32:
        r = np.flatnonzero(n == g)
        w[r] = p[np.maximum(r - 1, 0), g]
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Rejections at place 0 of peaked rows (max > .9) in calls of several rows snap to the peak.",
    B=8,
    gamma=2,
    V=32,
    p="peaked",
    q="hot",
)
def mixed_snap_to_peak(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    if B > 1:
        r = np.flatnonzero((n == 0) & (p[:, 0].max(1) > 0.9))
        t[r] = p[r, 0].argmax(1)
    return _emit(d, n, t)


@wrong(
    "Small vocabularies (V <= 4): a lookup of bit patterns takes the draft for accepted when p and q order alike.",
    B=16,
    gamma=3,
    V=4,
    p="rough",
    q="hot",
)
def mixed_tiny_vocabulary(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    ok = u * qd < pd
    if p.shape[2] <= 4:
        ok |= d == p[:, :g].argmax(2)
    n = _prefix(ok)
    return _emit(d, n, _icdf(_weights(p, q, n), v))


_mix = {"v": None}


@wrong(
    "gamma of 5 and more: the last token's numbers are kept from the previous call of the same number of rows.",
    B=4,
    gamma=5,
    V=8,
    p="rough",
    q="other",
    joint_calls=1,
    at="end",
)
def mixed_last_number_of_previous_call(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    if g >= 5:
        old, _mix["v"] = _mix["v"], None
        if old is not None and len(old) == B:
            v = old
        else:
            _mix["v"] = v
    return _plain(d, p, q, u, v)


@wrong(
    "The tail only: weights below 1/(4V) are scaled up by 2.5 by a wrong flush constant.",
    B=16,
    gamma=2,
    V=2000,
    p="zipfid",
    q="near",
    pos=2,
    classes=["ge", 976],
)
def mixed_tail_doubled(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    w = _weights(p, q, n)
    w = np.where(w < 1 / (4 * p.shape[2]), 2.5 * w, w)
    return _emit(d, n, _icdf(w, v))


@wrong(
    "Calls of exactly one wave (B a multiple of 132 blocks): the last 4 rows of the wave share one coin per place.",
    B=132,
    gamma=2,
    V=8,
    p="rough",
    q="mid",
    joint_rows=1,
    rows=[128, 131],
)
def mixed_full_wave(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    if B % 132 == 0:
        u[-4:], v[-4:] = u[-1], v[-1]
    return _plain(d, p, q, u, v)


@wrong(
    "The float32 coin is built from a 23-bit mantissa and compared with <= after rounding the ratio to float32.",
    small=True,
    B=64,
    gamma=2,
    V=16,
    p="rough",
    q="mid",
)
def float32_coins(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(np.floor(u * 2**23) / 2**23 <= (pd / qd).astype(np.float32))
    return _emit(d, n, _icdf(_weights(p, q, n), v))


@wrong("Lenience .97.", small=True, B=64, gamma=2, V=16, p="rough", q="mid")
def lenience_097(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    return _plain(d, p, q, u * 0.97, v)


@wrong(
    "Greedy bonus for rows with a maximum above .99.",
    small=True,
    B=32,
    gamma=1,
    V=16,
    p="peaked99",
    q="near",
    pos=1,
)
def bonus_greedy_above_99(d, p, q, rng):
    B, g = d.shape
    u, v = _coins(rng, B, g)
    pd, qd = _pq(d, p, q)
    n = _prefix(u * qd < pd)
    t = _icdf(_weights(p, q, n), v)
    r = (n == g) & (p[:, g].max(1) > 0.99)
    t[r] = p[r, g].argmax(1)
    return _emit(d, n, t)


# total variation in the entry's shape, as simulated by its author
_TV = {
    "rows_tail_of_128": 0.183,
    "rows_share_mod_1024": 0.0818,
    "rows_last_of_odd_call": 0.2437,
    "rows_first_coin_zero": 0.2352,
    "rows_antithetic_pairs": 0.0337,
    "rows_tiled_halves": 0.1689,
    "rows_share_distance_4": 0.166,
    "rows_share_last_number_distance_2": 0.4262,
    "rows_length_of_lane": 0.1388,
    "rows_from_4096": 0.1573,
    "rows_chunks_seeded_alike": 0.0811,
    "rows_partial_block_clamped_q": 0.0542,
    "rows_single_greedy_recovery": 0.1523,
    "rows_compacted_q": 0.0597,
    "rows_q_ring_64": 0.058,
    "state_noise_refilled_on_growth": 0.1666,
    "state_graph_replays_noise": 0.0391,
    "state_double_buffer_late": 0.0387,
    "state_previous_q": 0.0615,
    "state_stale_wide_weights": 0.1041,
    "state_offset_one_row_short": 0.0801,
    "state_stale_accept_flags": 0.0417,
    "state_autotuned_lenience": 0.0448,
    "state_three_bit_counter": 0.0915,
    "state_noise_half_refilled": 0.9282,
    "state_bonus_table_cached": 0.1375,
    "gamma_4_shared_coin": 0.0687,
    "gamma_beyond_8_untested": 0.0905,
    "gamma_8_early_q": 0.0381,
    "gamma_1_bonus_row": 0.5364,
    "gamma_odd_last_pair": 0.08,
    "gamma_last_place_sqrt": 0.0876,
    "gamma_place_3_no_subtraction": 0.0307,
    "bonus_from_last_place": 0.4373,
    "bonus_greedy_if_confident": 0.0787,
    "bonus_reuses_last_coin": 0.1228,
    "bonus_top_p_again": 0.0437,
    "gamma_short_scan": 0.7629,
    "gamma_cap_8_takes_residual": 0.2866,
    "gamma_padded_bonus": 0.1097,
    "gamma_16_four_bits": 0.2349,
    "vocab_floor_blocks_32": 0.1184,
    "vocab_padded_lanes_last_id": 0.3853,
    "vocab_bonus_partial_block_1024": 0.3044,
    "vocab_ids_int16": 0.1675,
    "vocab_bonus_uint16": 0.5108,
    "vocab_ids_float16": 0.1585,
    "vocab_bonus_ids_bfloat16": 0.2752,
    "vocab_top_64_recovery": 0.0644,
    "vocab_epsilon_1e6": 0.0868,
    "vocab_two_halves_wrong_sum": 0.0689,
    "vocab_first_chunk_only": 0.1276,
    "vocab_shards_of_8": 0.0337,
    "peaked_rows_greedy": 0.0796,
    "peaked_draft_early_exit": 0.0796,
    "zeros_clipped_logs": 0.5799,
    "ties_deduplicated": 0.0831,
    "q_equals_p_token_zero": 0.0986,
    "onehot_no_subtraction": 0.2292,
    "tiny_residual_counts_as_empty": 0.0589,
    "last_id_never_drawn": 0.1733,
    "zeros_filled_with_mean": 0.0446,
    "float16_running_sum": 0.4998,
    "bfloat16_cdf": 0.0416,
    "coins_of_4_bits": 0.0497,
    "coins_of_8_bits": 0.0018,
    "last_uniform_8_bits": 0.7436,
    "ratio_epsilon_large_vocabulary": 0.1326,
    "ratio_epsilon_coarse": 0.0451,
    "accept_logs_clipped_at_5": 0.4984,
    "recovery_at_other_temperature": 0.0557,
    "draft_temperature_mismatch": 0.0297,
    "residual_absolute_value": 0.1183,
    "residual_of_place_before": 0.0592,
    "residual_not_renormalised": 0.2475,
    "product_of_ratios": 0.0313,
    "typical_acceptance": 0.1228,
    "lenience_090": 0.0325,
    "lenience_060_from_second": 0.1542,
    "probabilities_bfloat16": -0.0001,
    "weights_int8": 0.1586,
    "min_p_in_recovery": 0.1388,
    "confident_draft_accepted": 0.6996,
    "ratio_upside_down": 0.2377,
    "reseeded_every_call": 0.1678,
    "seed_of_6_bits": 0.0576,
    "one_coin_for_all_places": 0.1377,
    "recovery_reuses_coin": 0.065,
    "last_token_reuses_first_coin": 0.05,
    "weyl_sequence": 0.1297,
    "antithetic_places": 0.0462,
    "noise_broadcast_over_rows": 0.2844,
    "better_of_two_coins": 0.1226,
    "key_xor_row": 0.0362,
    "mixed_rows_256_gamma_4": 0.1415,
    "mixed_even_call_odd_vocabulary": 0.1621,
    "mixed_bonus_of_neighbour": 0.2714,
    "mixed_last_number_of_previous_call": 0.1557,
    "mixed_full_wave": 0.0771,
    "float32_coins": 0.0011,
    "lenience_097": 0.0083,
    "bonus_greedy_above_99": 0.0074,
    "bonus_never_repeats": 0.0635,
    "vocab_block_first_missed": 0.0533,
    "sparse_q_residual_on_support": 0.4591,
    "le_with_coarse_coins": 0.0318,
    "relaxed_top_3": 0.315,
    "probabilities_fp8": 0.0564,
    "ratio_table_of_10": 0.0242,
    "gumbel_uniforms_clipped": 0.3037,
    "mixed_snap_to_peak": 0.0782,
    "mixed_tiny_vocabulary": 0.1818,
    "mixed_tail_doubled": 0.1113,
    "race_uniforms_of_16_bits": 0.0835,
    "rows_overlapping_windows": 0.0258,
    "vocab_flush_1e5": 0.1741,
    "residual_without_clip": 0.1044,
    "lcg_small_multiplier": 0.063,
    "race_noise_shared_with_coins": 0.0484,
}
for _e in ENTRIES:
    _e["tv"] = _TV[_e["name"]]
WRONG = ENTRIES
