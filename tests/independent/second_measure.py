"""Measures every entry by simulation and writes second_measured.json.

A deviation is measured without upward bias: half of the draws choose the set of cells (key, token) that come too
often, the other half say how much too often they come. The keys are what the token's law is conditioned on: the
kind of row, the token before it in the step or, for dependence, the other token. So the number is the mean over
keys of a total variation, from below. Large vocabularies are pooled into bins first, also from below.
"""

import json
import sys
import time

import numpy as np

import second_decoders
import second_right
import second_verifiers

rng = np.random.default_rng(20)


# ---- rows ----


def dirichlet(*shape, a=1.0, seed=1):
    x = np.random.default_rng(seed).gamma(a, size=shape) + 1e-12
    return x / x.sum(axis=-1, keepdims=True)


def plain(g, V, mix=0.4, a=1.0, seed=1):
    p = dirichlet(g + 1, V, a=a, seed=seed)
    q = mix * p[:g] + (1 - mix) * dirichlet(g, V, a=a, seed=seed + 100)
    return p, q


def given(p, q):
    p, q = np.atleast_2d(np.array(p, float)), np.atleast_2d(np.array(q, float))
    if len(p) == len(q):
        p = np.concatenate([p, dirichlet(1, p.shape[1], seed=3)])
    return p, q


def same_but(g, V, places, seed=1, mix=0.2):
    """q = p but at these places."""
    p, q = plain(g, V, mix, seed=seed)
    for i in range(g):
        if i not in places:
            q[i] = p[i]
    return p, q


def heavy(V, ids, mass, seed=5, a=1.0):
    """Two rows of V, of which the first has this mass on these ids."""
    w = dirichlet(V, a=a, seed=seed)
    inside = np.zeros(V, bool)
    inside[ids] = True
    w[inside] *= mass / w[inside].sum()
    w[~inside] *= (1 - mass) / w[~inside].sum()
    return w


def call(pair, B, kinds=None):
    """(p, q, kinds): pair is one pair of rows, or a list of pairs of which kinds says whose is whose."""
    pairs = pair if isinstance(pair, list) else [pair]
    kinds = np.zeros(B, int) if kinds is None else np.asarray(kinds)
    return np.stack([x[0] for x in pairs])[kinds], np.stack([x[1] for x in pairs])[kinds], kinds


def drafts(q, kinds, rng):
    B, g = q.shape[:2]
    d = np.empty((B, g), dtype=np.int64)
    for k in np.unique(kinds):
        rows = np.flatnonzero(kinds == k)
        c = np.cumsum(q[rows[0]], axis=1)
        for i in range(g):
            last = np.flatnonzero(q[rows[0], i])[-1]
            d[rows, i] = np.minimum(
                np.searchsorted(c[i], rng.random(len(rows)) * c[i, -1], side="right"), last
            )
    return d


# ---- cells ----


class Cells:
    def __init__(self, bins=None):
        self.tables, self.counts, self.bins = {}, {}, bins

    def add(self, half, key, tokens, table):
        if self.bins is not None:
            tokens = self.bins[tokens]
            table = np.bincount(self.bins, weights=table)
        if key not in self.counts:
            self.counts[key] = np.zeros((2, len(table)))
            self.tables[key] = table
        self.counts[key][half] += np.bincount(tokens, minlength=len(table))

    def result(self):
        """(TV, z), each half in turn choosing the set."""
        tv, z = [], []
        for a in (0, 1):
            over = variance = total = 0
            for key, n in self.counts.items():
                t = self.tables[key]
                chosen = n[a] > n[a].sum() * t
                m = n[1 - a].sum()
                pa = min(t[chosen].sum(), 1)
                over += n[1 - a][chosen].sum() - m * pa
                variance += m * pa * (1 - pa)
                total += m
            tv.append(over / total)
            z.append(over / np.sqrt(variance) if variance > 0 else (np.inf if over > 0.5 else 0))
        return float(np.mean(tv)), float(np.mean(z))


def pooled(p, how):
    V = len(p)
    if how is None and V <= 64:
        return None
    if how is None:
        how = 32
    if how == "top":  # the 16 heaviest ids alone, 16 stretches for the rest
        bins = 16 + np.arange(V) * 16 // V
        bins[np.argsort(-p)[:16]] = np.arange(16)
        return bins
    if isinstance(how, int):
        return np.arange(V) * how // V
    return np.asarray(how(p)).astype(int)


def simulate(fn, calls, n, place=0, focus=None, pair=None, phase=None, prev=False, bins=None, counted=None):
    """n calls, taken in turn from `calls`. pair = ("row" or "call", distance): place 0 of two rows or calls."""
    second_verifiers.reset()
    cells = Cells(pooled(calls[0][0][0, place], bins))
    before = []
    for c in range(n):
        p, q, kinds = calls[c % len(calls)]
        out = fn(drafts(q, kinds, rng), p, q, rng)
        half = int(c >= n // 2)
        B = len(out)
        rows = np.arange(B)[focus] if focus is not None else np.arange(B)
        if pair is None:
            if counted is not None and c % len(calls) not in counted:
                continue
            rows = rows[out[rows, place] >= 0]
            for k in np.unique(kinds[rows]):
                r = rows[kinds[rows] == k]
                for x in np.unique(out[r, place - 1]) if prev else [None]:
                    s = r if x is None else r[out[r, place - 1] == x]
                    cells.add(half, (c % len(calls), int(k), x), out[s, place], p[r[0], place])
        else:
            kind, distance = pair
            if kind == "row":
                first, second = out[rows, 0], out[rows + distance, 0]
            else:
                before.append(out[:, 0])
                if len(before) <= distance:
                    continue
                if len(before) > distance + 1:
                    before.pop(0)
                if phase is not None and not phase(c - distance):
                    continue
                first, second = before[0][rows], out[rows, 0]
            for x in np.unique(first):
                cells.add(half, int(x), second[first == x], p[0, 0])
    return cells.result()


# ---- the shape in which each shows ----

P8 = plain(3, 8)
fp8_row = dirichlet(1000, seed=11)
WIDE = given(dirichlet(8, seed=21), dirichlet(8, seed=22))  # low overlap
COIN = given([0.5, 0.5], [0.9, 0.1])
SHY = given([0.2, 0.3, 0.5], [0.8, 0.1, 0.1])  # the recovered token is 1 or 2
T3 = given([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])
TWO = [plain(1, 8, seed=31), plain(1, 8, mix=0.1, seed=32)]
FOUR = [plain(1, 8, mix=0.1, seed=s) for s in (41, 42, 43, 44)]
BONUS = (dirichlet(2, 4, seed=51), dirichlet(2, 4, seed=51)[:1])


def zipf(V, s=1.0):
    w = 1 / np.arange(1, V + 1) ** s
    return w / w.sum()


def sparse_pair():
    p, q = np.zeros(64), np.zeros(64)
    p[[3, 7, 9, 20, 31, 40, 41, 50, 63]] = dirichlet(9, seed=61)
    q[[3, 8, 9, 21, 31, 42, 41, 50, 60]] = dirichlet(9, seed=62)
    return given(p, q)


def flat_pair(V, seed=71):
    return given(
        dirichlet(V, a=4, seed=seed),
        dirichlet(V, a=4, seed=seed + 1) ** 2 / (dirichlet(V, a=4, seed=seed + 1) ** 2).sum(),
    )


def one_hot(V, i):
    w = np.zeros(V)
    w[i] = 1
    return w


def law(pair, B=512, n=200, **more):
    return dict(calls=[call(pair, B)], n=n, **more)


def rows_apart(pair, B, n, distance, **more):
    return dict(calls=[call(pair, B)], n=n, pair=("row", distance), **more)


def calls_apart(pair, B, n, distance, **more):
    return dict(calls=[call(pair, B)], n=n, pair=("call", distance), **more)


LAST_HEAVY_200 = given(heavy(200, range(128, 200), 0.7), heavy(200, range(128, 200), 0.1, seed=6))
HEAVY_70K = given(heavy(70000, range(65536, 70000), 0.6), heavy(70000, range(65536, 70000), 0.1, seed=6))
HEAVY_33K = given(heavy(33000, range(32000, 33000), 0.25), heavy(33000, range(32000, 33000), 0.7, seed=6))
HEAVY_2000 = given(heavy(2000, [1500, 1100, 1999], 0.6), heavy(2000, [5, 9], 0.3, seed=6))
GUMBEL = given(heavy(8000, list(range(100, 116)), 0.1), heavy(8000, [7], 0.5, seed=6))

SHAPES = {
    "mask_only_rejected_id": law(P8),
    "absolute_residual": law(P8),
    "lenience_left_on": law(P8),
    "test_replayed": law(P8),
    "uniform_used_twice": law(P8),
    "race_with_uniforms": law(P8),
    "atomic_max_of_two": law(P8),
    "residual_not_normalised": law(P8),
    "residual_tempered_again": law(WIDE, n=400),
    "unlikely_drafts_discarded": law(P8),
    "uniform_in_eighths": law(P8, n=400),
    "seed_of_eight_bits": law(plain(1, 8), B=1, n=30000),
    "target_in_fp8": law(given(fp8_row, dirichlet(1000, seed=12)), B=128, n=150, bins=lambda p: p < 2.0**-10),
    "epsilon_in_ratio": law(given(dirichlet(32, seed=13), dirichlet(32, seed=14)), n=400),
    "draft_tempered_twice": law(P8),
    "test_in_bfloat16": law(given([0.5038, 0.4962], [0.75, 0.25]), B=4096, n=800),
    "bonus_penalised_again": law(BONUS, n=400, place=1, prev=True),
    "favourite_accepted": law(given([0.5, 0.2, 0.2, 0.1], [0.8, 0.1, 0.05, 0.05])),
    "residual_in_four_tries": law(given([0.6, 0.2, 0.2], [0.8, 0.1, 0.1]), n=400),
    "eight_uniforms": law(same_but(9, 4, (0, 8)), n=600, place=8),
    "flags_in_a_byte": law(same_but(9, 4, (8,)), n=200, place=8),
    "threshold_for_one": law(plain(1, 8)),
    "q_of_five_places": law(same_but(6, 8, (5,)), place=5),
    "count_of_four_bits": law(plain(16, 8, mix=0.95)),
    "residual_one_ahead": law(P8),
    "whole_draft_first": law(P8),
    "block_with_token_residual": law(given(np.tile(COIN[0][:1], (3, 1)), np.tile(COIN[1], (2, 1))), n=400),
    "overlapping_bits": law(
        given([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.9, 0.1]]), n=600, place=1, prev=True
    ),
    "repeats_pass": law(
        given([[0.5, 0.3, 0.2], [0.3, 0.3, 0.4], [0.5, 0.3, 0.2]], [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]),
        n=300,
        place=1,
        prev=True,
    ),
    "trust_after_three": law(same_but(5, 8, (3,)), place=3),
    "tail_rows_accept": law(P8, B=40, n=2000, focus=slice(32, None)),
    "row_number_in_a_byte": dict(
        calls=[call([TWO[0], TWO[1]], 512, np.arange(512) // 256)], n=300, focus=slice(256, None)
    ),
    "row_zero_is_padding": law(WIDE, B=8, n=20000, focus=slice(0, 1)),
    "sum_of_the_even_row": law(P8, B=256, n=400, focus=slice(1, None, 2)),
    "argmax_for_one_row": law(P8, B=1, n=20000),
    "offset_missing": dict(
        calls=[call([TWO[0], TWO[1]], 2560, np.arange(2560) // 2048)], n=80, focus=slice(2048, None)
    ),
    "sorted_and_not_put_back": law(P8, B=64, n=1000),
    "padding_overwrites_last_row": law(P8, B=6, n=20000, focus=slice(5, None)),
    "lane_31_reads_early": law(P8, B=64, n=8000, focus=slice(31, None, 32)),
    "flat_offset_of_16_bits": law(
        given(zipf(1000), dirichlet(1000, seed=9)), B=128, n=150, focus=slice(66, None)
    ),
    "partial_tile_skipped": law(LAST_HEAVY_200, n=100),
    "last_id_summed_again": law(plain(1, 24)),
    "ids_of_16_bits": law(HEAVY_70K, B=32, n=60),
    "padded_shard_offset": law(HEAVY_2000, B=128, n=100, bins="top"),
    "tile_and_id_by_one_uniform": law(flat_pair(4096), B=64, n=150),
    "tile_winners_by_weight": law(given(zipf(4096, 0.7), dirichlet(4096, seed=9)), B=64, n=150, bins="top"),
    "last_q_of_odd_vocabulary": law(given([0.2, 0.2, 0.2, 0.15, 0.25], [0.15, 0.1, 0.1, 0.15, 0.5])),
    "halving_search": law(given([0.1, 0.1, 0.1, 0.2, 0.5], [0.4, 0.3, 0.1, 0.1, 0.1])),
    "carry_one_tile_late": law(flat_pair(1000), B=256, n=60),
    "cdf_in_float16": law(flat_pair(32000), B=32, n=60),
    "gumbel_clipped": law(GUMBEL, B=64, n=80, bins="top"),
    "draft_vocabulary_of_32000": law(HEAVY_33K, B=64, n=60, bins=lambda p: np.arange(len(p)) >= 32000),
    "peaked_bonus_is_greedy": law(
        given([[0.5, 0.5, 0], [0.03, 0.92, 0.05]], [[0.5, 0.5, 0]]), n=400, place=1
    ),
    "one_hot_by_argmax": law(given([0.4, 0.3, 0.2, 0.1], one_hot(4, 0))),
    "sparse_rows_misaligned": law(sparse_pair()),
    "small_residual_ignored": law(given([0.91, 0.09], [0.99, 0.01]), n=800),
    "log_ratio_clamped": law(given([0.5, 0.5, 0.0], one_hot(3, 2)), n=300),
    "saturates_at_one_half": law(given([0.8, 0.1, 0.1], [0.4, 0.55, 0.05]), n=300),
    "top_k_drops_minimum": law(given([[0.5, 0.3, 0.2], [0.45, 0.35, 0.2]], [[0.5, 0.3, 0.2]]), place=1),
    "q_over_top_eight": law(given(dirichlet(40, seed=15), dirichlet(40, seed=16)), n=300),
    "block_shares_uniforms": rows_apart(WIDE, 64, 1500, 1, focus=slice(0, None, 8)),
    "antithetic_halves": rows_apart(WIDE, 64, 1000, 32, focus=slice(0, 32)),
    "stratified_over_rows": rows_apart(WIDE, 2, 30000, 1, focus=slice(0, 1)),
    "weyl_over_rows": rows_apart(WIDE, 64, 1000, 1, focus=slice(0, None, 2)),
    "seeded_by_draft": rows_apart(
        given([0.2, 0.5, 0.3], [0.7, 0.2, 0.1]), 64, 1000, 1, focus=slice(0, None, 2)
    ),
    "counter_stride_too_short": rows_apart(SHY, 64, 1000, 1, focus=slice(0, None, 2)),
    "shuffle_mask_16": rows_apart(WIDE, 32, 2000, 16, focus=slice(0, 16)),
    "groups_of_three": rows_apart(WIDE, 60, 1000, 3, focus=np.flatnonzero(np.arange(60) // 3 % 2 == 0)),
    "compacted_q": dict(calls=[call(FOUR, 4, np.arange(4))], n=20000),
    "target_cached_by_draft": dict(
        calls=[call([plain(1, 4, seed=33), plain(1, 4, seed=34)], 16, np.arange(16) // 8)],
        n=4000,
        focus=slice(8, None),
    ),
    "cut_to_smallest_count": law(P8, B=8, n=8000),
    "buffers_swapped_too_late": calls_apart(WIDE, 32, 2000, 1, phase=lambda c: c % 2 == 0),
    "stream_advanced_by_tokens": calls_apart(SHY, 32, 4000, 1),
    "adaptive_lenience": law(WIDE, B=4, n=20000),
    "call_offset_too_small": calls_apart(SHY, 1, 40000, 1),
    "sample_cached_by_checksum": calls_apart(WIDE, 32, 2000, 1, phase=lambda c: c % 2 == 0),
    "q_of_the_call_before": dict(
        calls=[call(plain(1, 8, seed=35), 64), call((plain(1, 8, seed=35)[0], plain(1, 8, seed=36)[1]), 64)],
        n=1500,
    ),
    "penalty_outlives_request": calls_apart(
        given([0.1, 0.3, 0.3, 0.3], [0.91, 0.03, 0.03, 0.03]), 1, 40000, 1
    ),
    "zeros_after_reshape": dict(calls=[call(P8, 32), call(P8, 16)], n=4000),
    "ring_of_three": calls_apart(WIDE, 32, 3000, 3, phase=lambda c: c // 3 % 2 == 0),
}


# ---- decoders ----


class Markov:
    """Rows that depend on the last two tokens of the text and on how many there are (parity)."""

    def __init__(self, V, seed, mix_with=None):
        x = np.random.default_rng(seed).gamma(0.7, size=(V + 1, V + 1, 2, V)) + 1e-3
        x[..., 0] *= 0.5
        self.rows = x / x.sum(axis=-1, keepdims=True)
        if mix_with is not None:
            self.rows = 0.5 * self.rows + 0.5 * mix_with.rows
        self.V = V

    def __call__(self, text):
        return self.rows[text[-1] if text else -1, text[-2] if len(text) > 1 else -1, len(text) % 2]


TARGET = Markov(4, 1)
DRAFT = Markov(4, 2, TARGET)
LENGTH, EOS = 5, 0
PROMPTS = {1: [2, 1, 3], "batch": [[2, 1, 3], [1, 2], [3], [1, 1, 2, 3]]}


def measure_decoder(fn, texts):
    """The largest mean TV of a token's law given all the text before it, over places; for batches also over rows.
    The first text's first token is a key for the second's: dependence between texts."""
    second_decoders.reset()
    change = (
        (lambda w: second_decoders.tempered(w, fn.declared["temperature"]))
        if "temperature" in fn.declared
        else (lambda w: w)
    )
    batch = fn.declared.get("batch")
    prompts = PROMPTS["batch"] if batch else [PROMPTS[1]]
    cells, tables = {}, {}
    last_first = {}
    for k in range(texts):
        half = int(k >= texts // 2)
        out = fn(TARGET, DRAFT, prompts if batch else prompts[0], LENGTH, EOS, rng)
        for b, new in enumerate(out if batch else [out]):
            assert 0 < len(new) <= LENGTH and EOS not in new[:-1] and all(0 <= x < 4 for x in new), new
            assert len(new) == LENGTH or new[-1] == EOS, new
            for i, x in enumerate(new):
                before = tuple(prompts[b]) + tuple(new[:i])
                if before not in tables:
                    tables[before] = change(TARGET(before))
                cells.setdefault((b, i), Cells()).add(half, before, [x], tables[before])
            if b in last_first and k % 2:
                cells.setdefault((b, "between"), Cells()).add(
                    half, last_first[b], [new[0]], tables[tuple(prompts[b])]
                )
            last_first[b] = new[0]
    results = {key: c.result() for key, c in cells.items()}
    best = max(results, key=lambda key: results[key][1])
    return *results[best], best


# ---- right verifiers: chi-square ----


def chi_square(fn):
    """The largest z of a chi-square over several shapes and places, given the token before, and of pairs of rows."""
    worst = 0
    shapes = [
        (P8, 256, 400),
        (plain(1, 3, seed=81), 1, 20000),
        (plain(5, 5, mix=0.9, seed=82), 100, 800),
        (T3, 64, 1000),
        (given(np.tile(COIN[0][:1], (3, 1)), np.tile(COIN[1], (2, 1))), 33, 1500),
        (sparse_pair(), 200, 200),
        (given([0.95, 0.05, 0], one_hot(3, 0)), 64, 500),
        (given([0.5, 0.5, 0.0], one_hot(3, 2)), 64, 300),
        (given([0.5, 0.5], [0.5, 0.5]), 64, 300),
        (plain(9, 4, mix=0.8, seed=83), 128, 400),
    ]
    for pair, B, n in shapes:
        p, q, kinds = call(pair, B)
        g = q.shape[1]
        counts, joint = {}, np.zeros((p.shape[2],) * 2)
        for _ in range(n):
            out = fn(drafts(q, kinds, rng), p, q, rng)
            for i in range(g + 1):
                rows = out[out[:, i] >= 0]
                code = rows[:, i - 1] if i else np.zeros(len(rows), int)
                for x in np.unique(code):
                    c = counts.setdefault((i, int(x)), np.zeros(p.shape[2]))
                    c += np.bincount(rows[code == x, i], minlength=len(c))
            if B > 1:
                np.add.at(joint, (out[0 : B - 1 : 2, 0], out[1:B:2, 0]), 1)
        tests_ = [(c, p[0, i]) for (i, _), c in counts.items()] + [
            (joint.ravel(), np.outer(p[0, 0], p[0, 0]).ravel())
        ]
        for c, t in tests_:
            e = c.sum() * t
            assert c[t == 0].sum() == 0
            big = e >= 5
            if big.sum() < 2:
                continue
            e2, c2 = np.append(e[big], e[~big].sum()), np.append(c[big], c[~big].sum())
            keep = e2 > 0.5
            x2 = ((c2 - e2)[keep] ** 2 / e2[keep]).sum()
            df = keep.sum() - 1
            # Wilson-Hilferty: about a normal deviate
            worst = max(worst, ((x2 / df) ** (1 / 3) - 1 + 2 / (9 * df)) / np.sqrt(2 / (9 * df)))
    # a large vocabulary, in bins
    V = 4096
    pair = given(dirichlet(V, a=0.3, seed=91), dirichlet(V, a=0.3, seed=92))
    tv, z = simulate(fn, [call(pair, 64)], 40, bins="top")
    return worst, z


def check_contract(fn, decoder=False):
    """Shapes, ids, unchanged inputs; and how long 4,096 rows and 32,000 ids take."""
    for g, V, B in [
        (1, 2, 1),
        (3, 2, 5),
        (16, 7, 33),
        (9, 129, 65),
        (2, 32001, 3),
        (1, 65537, 2),
        (4, 3, 4096),
        (5, 1025, 257),
        (3, 2, 2),
    ]:
        for kind in range(3):
            r = np.random.default_rng(V + kind)
            p = r.gamma(0.3, size=(B, g + 1, V)) + 1e-9
            q = r.gamma(0.3, size=(B, g, V)) + 1e-9
            if kind == 1:  # zeros and peaks
                p *= r.random(p.shape) < 0.3
                p[..., -1] += 1e-3
                q = p[:, :g].copy()
            p /= p.sum(axis=2, keepdims=True)
            if kind == 2:
                q = (
                    np.eye(V)[r.integers(V, size=(B, g))]
                    if V < 2000
                    else (np.arange(V) == r.integers(V, size=(B, g, 1))) * 1.0
                )
            q /= q.sum(axis=2, keepdims=True)
            d = np.minimum((np.cumsum(q, axis=2) <= r.random((B, g, 1))).sum(axis=2), V - 1)
            d = np.where(q[np.arange(B)[:, None], np.arange(g), d] > 0, d, q.argmax(axis=2))
            for a in (d, p, q):
                a.setflags(write=False)
            out = fn(d, p, q, np.random.default_rng(1))
            assert out.shape == (B, g + 1) and out.dtype.kind == "i", fn.__name__
            m = (out >= 0).cumprod(axis=1).sum(axis=1)
            assert (
                (m >= 1).all() and ((out >= 0).sum(axis=1) == m).all() and out.max() < V and out.min() >= -1
            ), fn.__name__
            same = (out[:, :g] == d) | (np.arange(g) >= (m - 1)[:, None])
            assert same.all(), fn.__name__


def check_deterministic(fn):
    """The same calls with the same seed and fresh state give the same tokens; and float32 rows do not crash."""
    runs = []
    for _ in range(2):
        second_verifiers.reset()
        r, own = np.random.default_rng(3), np.random.default_rng(4)
        answers = []
        for B in (5, 5, 40, 40, 1, 3, 5):
            p, q, kinds = call(plain(3, 9), B)
            d = drafts(q, kinds, own)
            answers.append(fn(d, p, q, r))
            fn(d, p.astype(np.float32), q.astype(np.float32), r)
        runs.append(np.concatenate(answers))
    assert (runs[0] == runs[1]).all(), fn.__name__


def seconds(fn, g, V, B):
    p, q = plain(g, V)
    p, q, kinds = call((p, q), B)
    d = drafts(q, kinds, rng)
    t = time.time()
    fn(d, p, q, rng)
    return time.time() - t


def measured(name):
    s = SHAPES[name]
    p = s["calls"][0][0]
    B = " and ".join(dict.fromkeys(str(len(c[0])) for c in s["calls"]))
    what = (
        f"tokens at place 0 of two {s['pair'][0]}s {s['pair'][1]} apart"
        if "pair" in s
        else f"token at place {s.get('place', 0)}"
    )
    return f"B = {B}, gamma = {p.shape[1] - 1}, V = {p.shape[2]}; {what}"


def main():
    rows, bad = [], []
    only = sys.argv[1:]

    def wanted(e):
        return not only or any(o in e["name"] for o in only)

    for e in filter(wanted, second_verifiers.ENTRIES):
        fn = getattr(second_verifiers, e["name"])
        t = time.time()
        second_verifiers.reset()
        check_contract(fn)
        check_deterministic(fn)
        second_verifiers.reset()
        slow = seconds(fn, 4, 8, 4096), seconds(fn, 4, 32000, 4)
        t1 = time.time()
        tv, z = simulate(fn, **SHAPES[e["name"]])
        e["tv"] = round(tv, 4)
        rows.append(
            {
                "name": e["name"],
                "kind": "wrong verifier",
                "tv": e["tv"],
                "mechanism": e["mechanism"],
                "shape": e["shape"],
                "z": round(z, 1),
                "measured": measured(e["name"]),
            }
        )
        if not z > 6:
            bad.append((e["name"], tv, z))
        print(
            f"{e['name']:32s} tv {tv:.4f} z {z:7.1f}  {1e3 * slow[0]:.0f} ms, {1e3 * slow[1]:.0f} ms; {t1 - t:.1f} + {time.time() - t1:.1f} s",
            flush=True,
        )
    for entries, kind in (
        (second_decoders.ENTRIES, "wrong decoder"),
        (second_decoders.RIGHT, "right decoder"),
    ):
        for e in filter(wanted, entries):
            tv, z, where = measure_decoder(
                getattr(second_decoders, e["name"]),
                {"first_draft_row_stale": 100000}.get(e["name"], 24000 if kind == "wrong decoder" else 40000),
            )
            right = kind.startswith("right")
            e["tv"] = None if right else round(tv, 4)
            rows.append(
                {
                    "name": e["name"],
                    "kind": kind,
                    "tv": e["tv"],
                    "mechanism": e["mechanism"],
                    "shape": e["shape"],
                }
            )
            if (z > 4.5) if right else (z < 6):
                bad.append((e["name"], tv, z))
            print(f"{e['name']:32s} {kind} tv {tv:.4f} z {z:.1f} at {where}", flush=True)
    for e in filter(wanted, second_right.ENTRIES):
        fn = getattr(second_right, e["name"])
        check_contract(fn)
        z, z2 = chi_square(fn)
        rows.append(
            {
                "name": e["name"],
                "kind": "right verifier",
                "tv": None,
                "mechanism": e["mechanism"],
                "shape": e["shape"],
            }
        )
        if max(z, z2) > 4.5:
            bad.append((e["name"], z, z2))
        print(
            f"{e['name']:32s} right, largest z of chi-square {z:.1f}, large vocabulary {z2:.1f}", flush=True
        )
    if not only:
        with open("second_measured.json", "w") as f:
            json.dump({"rows": rows}, f, indent=1)
    for kind in ("wrong verifier", "wrong decoder", "right verifier", "right decoder"):
        r = [x for x in rows if x["kind"] == kind]
        print(kind, len(r), "of which TV >= .02:", sum(x["tv"] is not None and x["tv"] >= 0.02 for x in r))
    print("to look at:", bad)


if __name__ == "__main__":
    main()
