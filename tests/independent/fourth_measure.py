"""Measures the wrong entries and checks the right ones; writes fourth.json.

TV of a statistic: the cells where the entry gives too much are chosen on the first half of the calls, and
their excess is estimated on the second half, which is not biased upwards. Places that a row did not reach
are filled with draws from p, so that all places of a right verifier have the law of p.
"""

import itertools
import json
import os
import sys
import time

import numpy as np

import fourth_decoders as decoders
import fourth_right as rights
import fourth_verifiers as wrongs

SEED = 20261124


# Shapes. A case is a dict: settings (list of (p, q), taken in turn by calls), calls, text.


def unit(w):
    return w / w.sum(axis=-1, keepdims=True)


def rows(rng, count, size, alpha=1.0):
    return unit(rng.dirichlet(np.full(size, alpha), count))


def case(text, calls, *settings, groups=None, gaps=(1,)):
    """groups: a number for each row of the call, rows of one number are alike; None: all are."""
    return dict(text=text, calls=calls, settings=settings, groups=groups, gaps=gaps)


def same(batch, p, q):
    return np.repeat(p[None], batch, 0), np.repeat(q[None], batch, 0)


def plain(batch, g, size, calls, alpha=1.0, seed=1):
    rng = np.random.default_rng(seed)
    p, q = rows(rng, g + 1, size, alpha), rows(rng, g, size, alpha)
    text = f"random rows (Dirichlet {alpha:g}), the same in all rows of a call"
    return case(text, calls, same(batch, p, q))


def near(batch, g, size, calls, share, seed=1):
    rng = np.random.default_rng(seed)
    p = rows(rng, g + 1, size)
    q = unit((1 - share) * p[:g] + share * rows(rng, g, size))
    return case(f"q = {1 - share:g} p + {share:g} random", calls, same(batch, p, q))


def at_distance(batch, g, size, calls, tv, seed=1):
    rng = np.random.default_rng(seed)
    p, other = rows(rng, g + 1, size), rows(rng, g, size)
    share = tv / (np.abs(p[:g] - other).sum(axis=1, keepdims=True) / 2)
    q = (1 - share) * p[:g] + share * other
    return case(f"random p, q at a TV of {tv:g} from p", calls, same(batch, p, q))


def sharp_draft(batch, g, size, calls, tv, seed=1):
    """q is p at a lower temperature, chosen for a TV of tv."""
    p, q = rows(np.random.default_rng(seed), g + 1, size), np.empty((g, size))
    for i in range(g):
        powers = np.linspace(1, 3, 400)
        options = unit(p[i] ** powers[:, None])
        q[i] = options[np.argmin(np.abs(np.abs(options - p[i]).sum(axis=1) / 2 - tv))]
    return case(f"q is p at a lower temperature, TV {tv:g} from p", calls, same(batch, p, q))


def masked(batch, g, size, calls, side, seed=1):
    rng = np.random.default_rng(seed)
    p, q = rows(rng, g + 1, size), rows(rng, g, size)
    zero = np.arange(size) % 3 == 1
    p, q = (p, unit(np.where(zero, 0, q))) if side == "q" else (unit(np.where(zero, 0, p)), q)
    return case(f"a third of the tokens has {side} = 0", calls, same(batch, p, q))


def one_hot_q(batch, g, size, calls, seed=1):
    rng = np.random.default_rng(seed)
    p = rows(rng, g + 1, size)
    q = np.eye(size)[p[:g].argmax(axis=1)]
    return case("one-hot q at the argmax of p", calls, same(batch, p, q))


def greedy_beside(batch, g, size, calls, seed=1):
    rng = np.random.default_rng(seed)
    p, q = same(batch, rows(rng, g + 1, size), rows(rng, g, size))
    p[-1] = np.eye(size)[p[-1].argmax(axis=1)]
    groups = np.zeros(batch, dtype=int)
    groups[-1] = 1
    return case("random rows, the last row of the call with one-hot p", calls, (p, q), groups=groups)


def confident(batch, g, size, calls, seed=1):
    rng = np.random.default_rng(seed)
    p = 0.83 * np.eye(size)[rng.integers(0, size, g + 1)] + 0.17 * rows(rng, g + 1, size)
    q = 0.7 * p[:g] + 0.3 * rows(rng, g, size)
    return case("p with a maximum near .85, q = .7 p + .3 random", calls, same(batch, unit(p), unit(q)))


def differing(batch, g, size, calls, seed=1, share=1.0):
    rng = np.random.default_rng(seed)
    p = rows(rng, batch * (g + 1), size).reshape(batch, g + 1, size)
    q = unit((1 - share) * p[:, :g] + share * rows(rng, batch * g, size).reshape(batch, g, size))
    return case("random rows, others in each row of the call", calls, (p, q), groups=np.arange(batch))


def two_settings(batch, g, size, calls, share=1.0, seed=1):
    rng = np.random.default_rng(seed)
    settings = []
    for _ in range(2):
        p = rows(rng, g + 1, size)
        q = unit((1 - share) * p[:g] + share * rows(rng, g, size))
        settings.append(same(batch, p, q))
    return case("random rows of two kinds, in turn by calls", calls, *settings)


def opposed(batch, g, size, calls, low=0.5, seed=1):
    """p and q whose overlap is about low, in blocks, so that acceptance is a strong event."""
    rng = np.random.default_rng(seed)
    half = size // 2
    p = np.concatenate([low * rows(rng, g + 1, half), (1 - low) * rows(rng, g + 1, size - half)], axis=1)
    q = np.concatenate([rows(rng, g, half), np.full((g, size - half), 1e-12)], axis=1)
    text = f"q on the first half of the ids, p has {low:g} of its mass there"
    return case(text, calls, same(batch, p, unit(q)))


CASES = {
    "plain": lambda: plain(2048, 3, 8, 80),
    "short": lambda: plain(2048, 1, 8, 80, seed=2),
    "peaked": lambda: plain(2048, 3, 16, 80, alpha=0.3, seed=3),
    "v64": lambda: plain(512, 2, 64, 160, seed=4),
    "v200": lambda: plain(256, 1, 200, 300, seed=5),
    "v1000": lambda: plain(64, 1, 1000, 500, seed=6),
    "v4096": lambda: plain(32, 1, 4096, 500, alpha=50.0, seed=7),
    "v131072": lambda: plain(4, 1, 131072, 150, seed=8),
    "near": lambda: near(2048, 3, 8, 80, 0.25),
    "sharp": lambda: sharp_draft(2048, 1, 8, 80, 0.085, seed=9),
    "near .14": lambda: at_distance(2048, 2, 8, 80, 0.14, seed=9),
    "p0": lambda: masked(2048, 2, 8, 80, "p"),
    "q0": lambda: masked(2048, 2, 9, 80, "q"),
    "one hot": lambda: one_hot_q(2048, 2, 8, 80),
    "greedy": lambda: greedy_beside(8, 2, 8, 8000),
    "confident": lambda: confident(2048, 2, 8, 80),
    "differing": lambda: differing(8, 2, 6, 8000),
    "differing near": lambda: differing(8, 1, 4, 8000, share=0.3),
    "pairs": lambda: opposed(2, 1, 4, 30000),
    "one row": lambda: opposed(1, 1, 4, 30000),
    "one row long": lambda: near(1, 2, 4, 30000, 0.5),
    "wide call": lambda: {**opposed(2048, 1, 4, 60), "gaps": (1024,)},
    "two": lambda: two_settings(512, 2, 6, 200),
    "two near": lambda: two_settings(512, 1, 4, 200, share=0.3),
    "long": lambda: near(1024, 6, 6, 80, 0.5, seed=10),
}

SHAPES = {
    "residual_in_draft_vocabulary": ["q0"],
    "small_residual_is_noise": ["sharp"],
    "residual_with_floor": ["plain", "v64"],
    "gathered_with_tokens_of_row_0": ["plain", "differing"],
    "draft_clamped_in_test": ["v64"],
    "close_rows_not_tested": ["near .14"],
    "last_rejection_from_target": ["short"],
    "argmin_of_all_true": ["near", "plain"],
    "default_top_fifty": ["v200"],
    "min_p_on_last_token": ["plain", "peaked"],
    "grammar_mask_on_draft": ["p0"],
    "draft_top_twenty_known": ["v64"],
    "rows_share_test_numbers": ["pairs"],
    "reseeded_in_every_call": ["one row", "one row long"],
    "stream_offset_too_short": ["one row", "one row long"],
    "two_generators_of_one_seed": ["one row", "pairs"],
    "rows_stratified": ["pairs"],
    "half_precision_number": ["v4096"],
    "number_buffer_of_1024_rows": ["wide call"],
    "gumbel_noise_repeats_by_block": ["v200"],
    "half_precision_cumsum": ["v4096"],
    "probabilities_in_bytes": ["v200", "v1000"],
    "last_id_in_sixteen_bits": ["v131072"],
    "vocabulary_tail_lost": ["v200"],
    "shortest_row_rules": ["differing near", "pairs"],
    "target_stride_too_short": ["differing", "pairs"],
    "compacted_rows_not_scattered": ["differing near", "differing"],
    "one_greedy_row_makes_all_greedy": ["greedy"],
    "certain_draft_means_greedy": ["one hot"],
    "confident_rows_are_greedy": ["confident"],
    "residual_of_last_calls_q": ["two"],
    "lenient_when_acceptance_falls": ["plain", "short"],
    "bonus_row_cached_by_token": ["two near"],
    "test_number_is_hash_of_token": ["near", "short"],
    "typical_acceptance": ["peaked"],
    "unsure_token_taken_back": ["short"],
    "block_products_not_clipped": ["plain", "near"],
    "block_thresholds_are_products": ["plain", "near"],
}
DEFAULT = ["plain", "near", "peaked"]


# Draws.


def sampler(w):
    """u[..., rows] -> tokens from the rows of w."""
    cdf = np.cumsum(w, axis=-1)
    cdf /= cdf[..., -1:]
    return lambda u: np.minimum((cdf <= u[..., None]).sum(axis=-1), w.shape[-1] - 1)


def check_form(drafts, out, size):
    g = drafts.shape[1]
    n = (out >= 0).sum(axis=1) - 1
    assert out.shape == (len(drafts), g + 1) and (n >= 0).all() and out.max() < size and out.min() >= -1
    inside = np.arange(g + 1) <= n[:, None]
    assert ((out >= 0) == inside).all(), "gap in a row"
    early = np.arange(g) < n[:, None]
    assert (out[:, :g][early] == drafts[early]).all(), "a token before the last is not the drafted one"


def simulate(function, shape, reset, seed):
    """For each setting (raw, filled): int[calls, B, g+1]."""
    reset()
    own, rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    kinds = [(p, q, sampler(p), sampler(q)) for p, q in shape["settings"]]
    result = [([], []) for _ in kinds]
    for call in range(shape["calls"]):
        p, q, from_p, from_q = kinds[call % len(kinds)]
        drafts = from_q(own.random(q.shape[:2]))
        out = np.asarray(function(drafts, p, q, rng))
        if call < 4:
            check_form(drafts, out, p.shape[2])
        filled = out if (out >= 0).all() else np.where(out < 0, from_p(own.random(out.shape)), out)
        result[call % len(kinds)][0].append(out)
        result[call % len(kinds)][1].append(filled)
    return [(np.array(raw), np.array(filled)) for raw, filled in result]


# Statistics: (level, text, values first half, values second half, expected pmf).
# Levels: 0 one token, 1 tokens of one row, 2 tokens of several rows or calls.


def buckets(x, pmf, limit):
    """Ids joined to at most limit runs of ids."""
    size = len(pmf)
    if size <= limit:
        return x, pmf
    index = np.arange(size) * limit // size
    return index[x], np.bincount(index, pmf, limit)


def pair(x, y, px, py, limit=16):
    (x, px), (y, py) = buckets(x, px, limit), buckets(y, py, limit)
    return x * len(py) + y, np.outer(px, py).ravel()


def halves(x):
    cut = len(x) // 2
    return x[:cut].ravel(), x[cut:].ravel()


def statistics(shape, result):
    for s, ((p, q), (raw, filled)) in enumerate(zip(shape["settings"], result)):
        g, size = q.shape[1], q.shape[2]
        groups = shape["groups"] if shape["groups"] is not None else np.zeros(len(p), dtype=int)
        kind = f"setting {s}, " if len(result) > 1 else ""
        for group in np.unique(groups):
            at = np.flatnonzero(groups == group)
            row, mine = p[at[0]], filled[:, at]
            name = kind + (f"row {at[0]}, " if shape["groups"] is not None else "")
            for i in range(g + 1):
                yield 0, f"{name}token {i}", *halves(mine[..., i]), row[i]
                if size > 32:
                    x, e = buckets(mine[..., i], row[i], 32)
                    yield 0, f"{name}token {i} in 32 runs of ids", *halves(x), e
            full = [
                half[half[..., g] >= 0][:, g] for half in (raw[: len(raw) // 2, at], raw[len(raw) // 2 :, at])
            ]
            if min(map(len, full)) > 500:
                yield 0, f"{name}bonus token", *full, row[g]
            for i, j in itertools.combinations(range(min(g + 1, 4)), 2):
                x, e = pair(mine[..., i], mine[..., j], row[i], row[j])
                yield 1, f"{name}tokens {i} and {j}", *halves(x), e
        if shape["groups"] is None:
            yield from across(shape, p[0], filled, kind)


def across(shape, row, filled, kind):
    """Pairs of rows of a call, and of calls."""
    batch, places = filled.shape[1], range(min(filled.shape[2], 3))
    for gap in shape["gaps"]:
        first = np.arange(batch - gap)
        first = first[first // gap % 2 == 0]
        for i, j in itertools.product(places, places) if len(first) else ():
            x, e = pair(filled[:, first, i], filled[:, first + gap, j], row[i], row[j])
            yield 2, f"{kind}token {i} of a row and token {j} of row +{gap}", *halves(x), e
    if len(shape["settings"]) == 1 and len(filled) >= 200:
        for i, j in itertools.product(places, places):
            x, e = pair(filled[0:-1:2, :, i], filled[1::2, :, j], row[i], row[j])
            yield 2, f"token {i} of a call and token {j} of the next call", *halves(x), e


def excess(first, second, expected):
    """(rough TV on the first half less its noise, TV on the second half for the cells of the first)."""
    f1 = np.bincount(first, minlength=len(expected)) / len(first)
    f2 = np.bincount(second, minlength=len(expected)) / len(second)
    cells = f1 > expected
    noise = np.sqrt(expected * (1 - expected) / len(first)).sum() / 2
    return (f1 - expected)[cells].sum() - noise, (f2 - expected)[cells].sum()


def measured(items, where):
    """[(level, rough TV, TV, text, where)] of all statistics."""
    return [(level, *excess(*values), text, where) for level, text, *values in items]


def strongest(results):
    """The largest of the lowest level that has a rough TV of 0.03 or more; the largest of all if none
    has."""
    for level in range(3):
        best = max((r for r in results if r[0] <= level), key=lambda r: r[1])
        if best[1] >= 0.03:
            break
    return best


def chi_square(first, second, expected):
    """A z value by Wilson and Hilferty; cells below 8 expected are joined."""
    x = np.concatenate([first, second])
    counts, e = np.bincount(x, minlength=len(expected)), expected * len(x)
    small = e < 8
    counts, e = np.append(counts[~small], counts[small].sum()), np.append(e[~small], e[small].sum())
    if (counts[e == 0] > 0).any():
        return np.inf
    counts, e = counts[e > 0], e[e > 0]
    freedom = max(len(e) - 1, 1)
    chi = ((counts - e) ** 2 / e).sum()
    return ((chi / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / np.sqrt(2 / (9 * freedom))


def wrong_verifiers(cases, names):
    for entry in wrongs.ENTRIES:
        if names and entry["name"] not in names:
            continue
        function, results = getattr(wrongs, entry["name"]), []
        for name in SHAPES.get(entry["name"], DEFAULT):
            shape = cases[name]
            results += measured(statistics(shape, simulate(function, shape, wrongs.reset, SEED)), name)
        _, _, tv, text, name = strongest(results)
        shape, q = cases[name], cases[name]["settings"][0][1]
        entry["tv"] = round(float(tv), 4)
        entry["measured"] = (
            f"B={q.shape[0]}, gamma={q.shape[1]}, V={q.shape[2]}, {shape['text']}; {text}; "
            f"{shape['calls']} calls"
        )
        print(f"{entry['tv']:.4f} {entry['name']:36} {name}: {text}", flush=True)


RIGHT_CASES = (
    "plain",
    "short",
    "peaked",
    "near",
    "p0",
    "q0",
    "one hot",
    "differing",
    "pairs",
    "one row",
    "confident",
    "long",
    "two near",
    "v200",
    "v4096",
)


def right_verifiers(cases, names):
    for entry in rights.ENTRIES:
        if names and entry["name"] not in names:
            continue
        function, worst, tested = getattr(rights, entry["name"]), (-9, ""), 0
        for name in RIGHT_CASES:
            shape = cases[name]
            for _, text, *values in statistics(shape, simulate(function, shape, rights.reset, SEED + 1)):
                worst, tested = max(worst, (chi_square(*values), f"{name}: {text}")), tested + 1
        entry["tv"] = 0
        entry["measured"] = (
            f"{tested} chi-square tests in {len(RIGHT_CASES)} shapes, largest z {worst[0]:.2f}"
        )
        print(f"z {worst[0]:5.2f} {entry['name']:36} {worst[1]} ({tested} tests)", flush=True)


# Decoders.


class Model:
    """Rows that depend on the whole text; the draft is a mixture of the target and other rows."""

    def __init__(self, size, seed, base=None, share=0.6, alpha=0.7):
        self.size, self.seed, self.base, self.share, self.alpha = size, seed, base, share, alpha
        self.known = {}

    def row(self, text):
        text = tuple(text)
        if text not in self.known:
            key = [self.seed, len(text), *text]
            w = np.random.default_rng(key).dirichlet(np.full(self.size, self.alpha)) + 1e-3
            w = w / w.sum()
            if self.base is not None:
                w = (1 - self.share) * self.base.row(text) + self.share * w
            self.known[text] = w
        return self.known[text]


class Sharp:
    """The target at temperature 2/3: a draft that is too sure."""

    def __init__(self, base):
        self.base, self.size, self.known = base, base.size, {}

    def row(self, text):
        text = tuple(text)
        if text not in self.known:
            self.known[text] = unit(self.base.row(text) ** 1.5)
        return self.known[text]


def law(target, prompt, limit, eos):
    """Exact law of the new tokens: array[(V+1)^limit]; V stands for 'ended'."""
    size = target.size
    out = np.zeros((size + 1,) * limit)

    def walk(new, mass):
        if len(new) == limit or (eos is not None and eos in new):
            out[tuple(new) + (size,) * (limit - len(new))] += mass
            return
        for x, chance in enumerate(target.row(tuple(prompt) + new)):
            walk(new + (x,), mass * chance)

    walk((), 1.0)
    return out


def decoder_statistics(tokens, exact):
    limit, base = exact.ndim, exact.shape[0]
    for k in (1, 2, 3):
        for places in itertools.combinations(range(limit), k):
            others = tuple(i for i in range(limit) if i not in places)
            index = np.zeros(len(tokens), dtype=int)
            for i in places:
                index = index * base + tokens[:, i]
            pmf = exact.sum(axis=others).ravel()
            yield k - 1, "tokens " + " ".join(map(str, places)), *halves(index), pmf


def generate(function, target, draft, prompt, limit, eos, runs):
    rng, out = np.random.default_rng(SEED), np.full((runs, limit), target.size)
    for r in range(runs):
        new = function(target, draft, list(prompt), limit, eos, rng)
        assert 0 < len(new) <= limit
        out[r, : len(new)] = new
    return out


def decoder_entries(runs):
    target = Model(3, 5)
    drafts = {"mixed": Model(3, 6, base=target), "sharp": Sharp(target)}
    settings = [("mixed", (0, 1), 5, None), ("mixed", (0, 1), 5, 2), ("sharp", (0, 1), 5, None)]
    laws = [law(target, *s[1:]) for s in settings]
    for entry, kind in [(e, "wrong") for e in decoders.ENTRIES] + [(e, "right") for e in decoders.RIGHT]:
        function, results, z = getattr(decoders, entry["name"]), [], -9
        tested = 0
        for (name, prompt, limit, eos), exact in zip(settings, laws):
            tokens = generate(function, target, drafts[name], prompt, limit, eos, runs)
            items = list(decoder_statistics(tokens, exact))
            results += measured(items, f"draft {name}, {limit} new tokens, eos {eos}")
            z, tested = max(z, max(chi_square(*values) for _, _, *values in items)), tested + len(items)
        _, _, tv, text, where = strongest(results)
        entry["tv"] = round(float(tv), 4) if kind == "wrong" else 0
        what = f"{where}; {text}" if kind == "wrong" else f"{tested} chi-square tests, largest z {z:.2f}"
        entry["measured"] = f"V=3, rows of the whole text, prompt of 2, {what}; {runs} generations"
        print(f"{entry['tv']:.4f} z {z:5.1f} {kind} {entry['name']:34} {what}", flush=True)


KINDS = (
    ("wrong verifier", wrongs.ENTRIES),
    ("wrong decoder", decoders.ENTRIES),
    ("right verifier", rights.ENTRIES),
    ("right decoder", decoders.RIGHT),
)


def recall(path):
    """Fill in what an earlier run measured, so that parts can be measured alone."""
    if not os.path.exists(path):
        return
    with open(path) as file:
        known = {row["name"]: row for row in json.load(file)["rows"]}
    for _, entries in KINDS:
        for e in entries:
            if e["name"] in known:
                e["tv"], e["measured"] = known[e["name"]]["tv"], known[e["name"]]["measured"]


def write(path):
    rows_out = []
    for kind, entries in KINDS:
        for e in entries:
            rows_out.append(
                json.dumps(
                    {
                        "name": e["name"],
                        "kind": kind,
                        "tv": e["tv"],
                        "verdict": None,
                        "case": None,
                        "mechanism": e["mechanism"],
                        "measured": e.get("measured"),
                    }
                )
            )
    with open(path, "w") as file:
        file.write('{"rows": [\n' + ",\n".join(rows_out) + "\n]}\n")


def main():
    """fourth_measure.py [part] [names...]: a part is wrong, right or decoders; without it all are
    measured."""
    start, path = time.process_time(), os.path.join(os.path.dirname(os.path.abspath(__file__)), "fourth.json")
    parts, names = sys.argv[1:2] or ["wrong", "right", "decoders"], sys.argv[2:]
    cases = {name: make() for name, make in CASES.items()}
    recall(path)
    if "wrong" in parts:
        wrong_verifiers(cases, names)
    if "right" in parts:
        right_verifiers(cases, names)
    if "decoders" in parts:
        decoder_entries(12000)
    write(path)
    print(f"{time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
