"""Measure the wrong verifiers and decoders, each in a shape that shows its mistake; check the right ones.

The first half of the draws chooses the cells that come too often, the second half says by how much: the
estimate is not biased upwards. Cells are (what the law depends on, token), or pairs of tokens for dependence.
"""

import json
import sys
import time

import numpy as np

import third_decoders
import third_right
import third_verifiers


def styled(style, g, size, gen):
    """Rows p [g+1, V] and q [g, V] of one kind."""
    p = (
        gen.dirichlet(np.ones(min(size, 64)), size=g + 1)
        if size <= 64
        else gen.uniform(0.5, 1.5, (g + 1, size))
    )
    q = gen.dirichlet(np.ones(min(size, 64)), size=g) if size <= 64 else gen.uniform(0.5, 1.5, (g, size))
    if style == "apart":
        slope = np.linspace(0.05, 1.95, size)
        p, q = p * slope, q * slope[::-1]
    elif style == "tilted":
        slope = np.linspace(0.5, 1.5, size)
        p, q = p * slope, q * slope[::-1]
    elif style == "wild":
        p, q = p * gen.exponential(size=p.shape) ** 2, q * gen.exponential(size=q.shape) ** 2
    elif style == "near":
        q = np.maximum(p[:g] * np.where(np.arange(size) % 2, 1.18, 0.82), 0.0)
    elif style == "peaked":
        heavy = gen.integers(size, size=g + 1)
        p *= 0.08 / p.sum(axis=1, keepdims=True)
        p[np.arange(g + 1), heavy] += 0.92
    elif style == "sparse":
        p[:, np.arange(size) % 4 > 0] = 0.0
        p *= np.linspace(0.2, 1.8, size)
    elif style == "heavy end":
        p[:, -max(1, size // 50) :] *= 40.0
        p[:, -1] *= 4.0
    elif style == "last in both":
        p[:, -1] = p.sum(axis=1)
        q[:, -1] = q.sum(axis=1)
    elif style == "zero in both":
        p[:, 0] = p.sum(axis=1)
        q[:, 0] = q.sum(axis=1)
    elif style == "heavy zero":
        p[:, 0] = 0.6 * p.sum(axis=1)
    elif style == "certain":
        q = np.zeros_like(q)
        q[np.arange(g), np.argmax(p[:g], axis=1)] = 1.0
    elif style == "tied":
        p = gen.integers(1, 4, (g + 1, size)).astype(float)
        q = np.ones((g, size))
    elif style == "equal first":
        q[:-1] = p[: g - 1]
    elif style == "spikes":
        p *= 1e-3
        q *= 1e-3
        for rows in (p, q):
            for row in rows:
                row[gen.choice(size, 300, replace=False)] = gen.uniform(5.0, 15.0, 300)
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


def excess(first, second, expected):
    """Total variation of counts [contexts, cells] from the law [contexts, cells], not biased upwards."""
    chosen = first > first.sum(axis=1, keepdims=True) * expected
    surplus = second - second.sum(axis=1, keepdims=True) * expected
    return float(surplus[chosen].sum() / max(second.sum(), 1))


def null_deviation(counts, expected):
    """Chi-square in standard deviations, of cells that expect at least 5."""
    mean = counts.sum(axis=1, keepdims=True) * expected
    used = mean >= 5
    chi = ((counts - mean)[used] ** 2 / mean[used]).sum()
    degrees = max(1, int(used.sum() - (used.sum(axis=1) > 0).sum()))
    return float((chi - degrees) / np.sqrt(2 * degrees))


def calls_of(function, scene, seed):
    """Outputs [calls, B, g+1], the kinds of the rows [calls, B], and rows p of the kinds."""
    steps, g, size = scene["B"], scene["g"], scene["V"]
    gen = np.random.default_rng(seed)
    kinds = [styled(style, g, size, gen) for style in scene["styles"]]
    p = np.stack([kind[0] for kind in kinds])
    q = np.stack([kind[1] for kind in kinds])
    sums = np.cumsum(q, axis=2)
    sums /= sums[:, :, -1:]
    sets = len(kinds) if scene.get("turn") else 1
    kind_of = [(np.arange(steps) + turn) % len(kinds) for turn in range(sets)]
    if sets > 1 and scene["turn"] == "calls":
        kind_of = [np.full(steps, turn) for turn in range(sets)]
    inputs = [(np.ascontiguousarray(p[kind]), np.ascontiguousarray(q[kind])) for kind in kind_of]
    rng = np.random.default_rng(seed + 1)
    outputs, orders = [], []
    for _ in range(scene["calls"]):
        # A random order of the sets, since a fixed one would fit caches that take turns.
        turn = int(gen.integers(sets))
        drafts = np.empty((steps, g), dtype=np.int64)
        uniform = gen.random((steps, g))
        for index in np.unique(kind_of[turn]):
            rows = kind_of[turn] == index
            for k in range(g):
                drafts[rows, k] = np.searchsorted(sums[index, k], uniform[rows, k], side="right")
        outputs.append(np.asarray(function(drafts, *inputs[turn], rng)))
        orders.append(kind_of[turn])
    return np.array(outputs), np.array(orders), p


def bins_of(size, scene, p):
    """A cell for each token: all tokens up to 4096 ids, else the heavy tokens and bins of ids."""
    if scene.get("bins"):
        return np.arange(size) * scene["bins"] // size
    if size <= 4096:
        return np.arange(size)
    bins = np.arange(size) * 64 // size
    heavy = np.unique(np.argsort(-p.max(axis=(0, 1)))[:1500])
    bins[heavy] = 64 + np.arange(len(heavy))
    return bins


def binned(p, bins):
    """The law of the bins, for rows [..., V]."""
    flat = p.reshape(-1, p.shape[-1])
    return np.array([np.bincount(bins, row, bins.max() + 1) for row in flat]).reshape(*p.shape[:-1], -1)


def marginal(outputs, orders, p, scene):
    """Counts of both halves and the law, by kind of row and token before, of the token at position k."""
    k, size = scene.get("k", 0), scene["V"]
    bins = bins_of(size, scene, p)
    law = binned(p[:, k], bins)
    contexts = len(p) * (size if k and scene.get("before", True) else 1)
    halves = []
    for half in np.array_split(np.arange(len(outputs)), 2):
        rows = scene.get("rows", slice(None))
        tokens, kind = outputs[half][:, rows], orders[half][:, rows]
        reached = tokens[:, :, k] >= 0
        context = kind
        if contexts > len(p):
            context = kind * size + tokens[:, :, k - 1]
        flat = context[reached] * law.shape[1] + bins[tokens[:, :, k][reached]]
        halves.append(np.bincount(flat, minlength=contexts * law.shape[1]).reshape(contexts, -1))
    return halves[0], halves[1], np.repeat(law, contexts // len(p), axis=0)


def paired(outputs, orders, p, scene):
    """Counts of both halves and the law of pairs of tokens: rows of a call, or of consecutive calls."""
    ka, kb, lag = scene.get("ka", 0), scene.get("kb", 0), scene.get("lag", 0)
    bins = bins_of(scene["V"], scene, p)
    if lag:
        a, b = outputs[:-lag].reshape(-1, outputs.shape[2]), outputs[lag:].reshape(-1, outputs.shape[2])
    else:
        pairs = scene["pairs"]
        left, right = np.array(list(pairs)).T
        a, b = outputs[:, left].reshape(-1, outputs.shape[2]), outputs[:, right].reshape(-1, outputs.shape[2])
    both = (a[:, ka] >= 0) & (b[:, kb] >= 0)
    cells = bins.max() + 1
    flat = bins[a[both, ka]] * cells + bins[b[both, kb]]
    law = np.outer(binned(p[0, ka], bins), binned(p[0, kb], bins)).reshape(1, -1)
    halves = [np.bincount(part, minlength=cells**2)[None] for part in np.array_split(flat, 2)]
    return halves[0], halves[1], law


def scene(B, g, V, calls, *styles, **more):
    return {"B": B, "g": g, "V": V, "calls": 2 * calls, "styles": styles or ("plain",), **more}


def pairs(count, distance, step=1, start=0):
    return [(b, b + distance) for b in range(start, count - distance, step)]


SCENES = {
    "stream_stride_one_short": scene(64, 1, 6, 500, "apart", pairs=pairs(64, 1)),
    "generator_copied": scene(64, 2, 6, 2000, pairs=[(b, b // 2) for b in range(2, 64, 2)], seed=21),
    "first_lane_for_four_rows": scene(64, 1, 6, 500, pairs=pairs(64, 1, 4)),
    "guide_table_without_walk": scene(64, 1, 4096, 400, "apart"),
    "mirrored_rows": scene(64, 1, 6, 800, pairs=[(b, 63 - b) for b in range(32)]),
    "prefetched_twice": scene(64, 1, 6, 600, lag=1),
    "stratified_over_rows": scene(4, 1, 6, 8000, pairs=[(a, b) for a in range(4) for b in range(a)]),
    "weyl_sequence_rows": scene(64, 1, 6, 600, pairs=pairs(64, 2)),
    "position_stride_fixed_at_256": scene(512, 2, 6, 150, "near", ka=1, kb=0, pairs=pairs(512, 256)),
    "group_of_96_not_in_seed": scene(200, 2, 6, 200, pairs=pairs(200, 96)),
    "seed_of_one_byte": scene(1, 1, 2048, 30000, "apart"),
    "bonus_with_first_uniform": scene(64, 2, 6, 600, k=2),
    "race_noise_of_the_call": scene(16, 1, 6, 2000, pairs=pairs(16, 1, 2)),
    "race_noise_of_the_tile": scene(16, 1, 4096, 800, "wild"),
    "antithetic_positions": scene(64, 2, 6, 600, k=1),
    "equal_drafts_share_uniforms": scene(32, 1, 4, 1500, pairs=pairs(32, 1)),
    "uniform_of_the_token": scene(64, 2, 4, 800, k=1),
    "uniform_left_for_next_call": scene(64, 1, 6, 800, lag=1),
    "permutation_not_inverted": scene(16, 2, 8, 1500, "plain", "apart", "near"),
    "residual_of_previous_draft_row": scene(64, 2, 8, 600, k=1),
    "bonus_row_by_draft_stride": scene(16, 2, 8, 1500, "plain", "apart", "near", k=2),
    "row_index_of_16_bits": scene(4104, 8, 4, 24, "plain", "apart", "wild", rows=slice(3700, 4104)),
    "gathered_transposed": scene(16, 3, 8, 1500),
    "padded_stride_of_draft_rows": scene(16, 1, 100, 3000, "wild", rows=slice(1, 16)),
    "single_row_squeezed": scene(1, 2, 6, 40000, k=1),
    "second_of_two_positions": scene(64, 2, 6, 600, k=1),
    "flags_in_one_byte": scene(64, 9, 6, 300, "equal first", k=8),
    "last_chunk_overlaps": scene(300, 2, 8, 120, rows=slice(44, 256)),
    "equal_drafts_share_rows": scene(12, 1, 4, 3000, "plain", "apart", "wild"),
    "rank_for_id": scene(64, 1, 32, 600, "heavy zero"),
    "lost_rejection_flag": scene(64, 1, 8, 600, rows=slice(0, 64, 2)),
    "accepted_set_of_the_call": scene(16, 1, 8, 1500),
    "last_tile_dropped": scene(32, 1, 1000, 600, "heavy end"),
    "overlapping_blocks": scene(32, 1, 64, 1500, "apart"),
    "search_of_16_steps": scene(4, 1, 131072, 1000, "spikes"),
    "token_in_half_precision": scene(32, 1, 4096, 600, "apart"),
    "half_precision_sums": scene(8, 1, 32768, 300, "apart", bins=64),
    "tree_padded_with_last_weight": scene(32, 1, 5, 1000, "apart"),
    "parts_normalised_alone": scene(32, 1, 64, 1500, "apart"),
    "alias_table_compares_whole_uniform": scene(64, 1, 12, 800, "apart"),
    "sorted_each_by_itself": scene(64, 1, 12, 600),
    "ties_collapse": scene(64, 1, 32, 600, "tied"),
    "walk_from_rejected_token": scene(64, 1, 24, 1000),
    "one_sum_through_the_call": scene(4104, 1, 1000, 36, "apart", rows=slice(2048, 4096)),
    "sparse_path_renormalises_draft": scene(32, 1, 2048, 400, "sparse", bins=64),
    "one_candidate_for_each_thread": scene(32, 1, 1000, 600, "tilted"),
    "peaked_rows_are_greedy": scene(64, 1, 12, 800, "peaked", k=1, before=False),
    "equal_within_a_thousandth": scene(32, 1, 2048, 400, "tilted", bins=64),
    "certain_draft_not_subtracted": scene(64, 1, 8, 400, "certain"),
    "small_residual_is_noise": scene(64, 1, 8, 4000, "near"),
    "logprobs_of_8_bits": scene(64, 1, 48, 1500),
    "thousandth_added_to_both": scene(32, 1, 1024, 500, "tilted", bins=64),
    "last_id_is_padding": scene(64, 1, 8, 600, "last in both"),
    "accepted_counted_as_nonzero": scene(64, 2, 8, 600, "zero in both"),
    "argmin_without_a_failure": scene(16, 1, 8, 1500),
    "rows_stop_together": scene(8, 2, 8, 3000),
    "bonus_row_cached_by_last_token": scene(16, 1, 6, 1500, "plain", "apart", "wild", turn="calls", k=1),
    "residual_with_rows_of_last_call": scene(16, 1, 8, 2000, "plain", "apart", "wild", turn="calls"),
    "trusted_after_success": scene(16, 1, 8, 2000),
    "normalised_by_mean_of_call": scene(12, 1, 8, 2500, "near", "plain", "apart"),
    "product_of_ratios": scene(64, 3, 6, 600),
    "bonus_never_repeats": scene(64, 1, 6, 800, k=1),
    "four_proposals_at_most": scene(64, 1, 8, 2000, "near"),
    "cut_before_unlikely_token": scene(64, 1, 8, 600),
}


def described(scene):
    k = scene.get("k", 0)
    text = f"B={scene['B']}, gamma={scene['g']}, V={scene['V']}"
    text += f", rows {' / '.join(scene['styles'])}"
    if "pairs" in scene:
        left, right = scene["pairs"][0]
        text += f": token {scene.get('ka', 0)} of a row with token {scene.get('kb', 0)} of another"
        text += f" (rows such as {left} and {right})"
    elif "lag" in scene:
        text += ": token 0 of a row with token 0 of the same row of the next call"
    else:
        text += f": token {k}"
        text += (
            ", given kind of row and token before"
            if k and scene.get("before", True)
            else ", given kind of row"
        )
        if "rows" in scene:
            rows = scene["rows"]
            text += f", rows {rows.start} to {rows.stop - 1}" + (f" step {rows.step}" if rows.step else "")
    if scene.get("bins") or scene["V"] > 4096:
        text += f", tokens in bins of {scene['V'] // scene.get('bins', 64)} ids"
        text += "" if scene.get("bins") else " and 300 heavy ids a row"
    return text + f"; {scene['calls']} calls"


def checked(outputs, scene):
    """The form of the contract."""
    g = scene["g"]
    ends = (outputs >= 0).sum(axis=2)
    assert outputs.shape[1:] == (scene["B"], g + 1)
    assert ends.min() >= 1 and outputs.max() < scene["V"]
    assert (np.where(np.arange(g + 1) < ends[..., None], outputs, -1) == outputs).all()


def measured(module, name, scene, seed=None):
    seed = scene.get("seed", 20) if seed is None else seed
    module.reset()
    outputs, orders, p = calls_of(getattr(module, name), scene, seed)
    module.reset()
    checked(outputs, scene)
    count = paired if "pairs" in scene or "lag" in scene else marginal
    first, second, law = count(outputs, orders, p, scene)
    return excess(first, second, law), null_deviation(first + second, law)


# Texts


class Model:
    """The row depends on the last token and on the sum of all tokens modulo 3."""

    def __init__(self, size, seed, other=None):
        gen = np.random.default_rng(seed)
        self.rows = gen.dirichlet(np.ones(size), size=(size, 3))
        if other is not None:
            self.rows = 0.5 * self.rows + 0.5 * other.rows

    def row(self, text):
        return self.rows[text[-1], sum(text) % 3]


SIZE, EOS, LIMIT = 6, 5, 6
PROMPT = (1, 3, 0, 2, 4, 0, 3)


def texts_counted(function, texts, seed):
    """Counts of (position, state, token) of each quarter and the law; an early stop counts as a token."""
    target = Model(SIZE, 1)
    draft = Model(SIZE, 2, target)
    rng = np.random.default_rng(seed)
    counts = np.zeros((4, LIMIT, SIZE, 3, SIZE + 1))
    for number in range(texts):
        new = function(target, draft, list(PROMPT), LIMIT, EOS, rng)
        assert len(new) <= LIMIT and EOS not in new[:-1]
        text = list(PROMPT)
        stopped = [SIZE] if len(new) < LIMIT and EOS not in new else []
        for position, token in enumerate(list(new) + stopped):
            counts[number * 4 // texts, position, text[-1], sum(text) % 3, token] += 1
            text.append(token)
    law = np.zeros((LIMIT, SIZE, 3, SIZE + 1))
    law[..., :SIZE] = target.rows
    return counts.reshape(4, LIMIT, -1, SIZE + 1), law.reshape(LIMIT, -1, SIZE + 1)


def text_row(module, entry, texts=12000):
    """The first half of the texts chooses the position and the cells, the second half measures."""
    counts, law = texts_counted(getattr(module, entry["name"]), texts, 7)
    k = int(np.argmax([excess(counts[0, j], counts[1, j], law[j]) for j in range(LIMIT)]))
    tv = excess(counts[0, k] + counts[1, k], counts[2, k] + counts[3, k], law[k])
    both = counts.sum(axis=0).reshape(-1, SIZE + 1)
    return tv, k, null_deviation(both, law.reshape(-1, SIZE + 1))


# The right verifiers


def null_of_right(name, steps=16, g=3, size=3, calls=4000, seed=5):
    """Deviation of completed texts, of pairs of rows and of pairs of calls, in standard deviations.

    Each step's rows follow its drafted tokens; what a step leaves open is drawn from the target.
    """
    gen = np.random.default_rng(seed)
    p_of = gen.dirichlet(np.ones(size), size=(g + 1, size))
    q_of = gen.dirichlet(np.ones(size), size=(g, size))
    rng = np.random.default_rng(seed + 1)
    third_right.reset()
    whole = np.empty((calls, steps, g + 1), dtype=np.int64)
    for call in range(calls):
        drafts = np.zeros((steps, g), dtype=np.int64)
        p, q = np.empty((steps, g + 1, size)), np.empty((steps, g, size))
        before = np.zeros(steps, dtype=np.int64)
        for k in range(g):
            p[:, k], q[:, k] = p_of[k, before], q_of[k, before]
            drafts[:, k] = before = (
                (np.cumsum(q[:, k], axis=1) < gen.random((steps, 1))).sum(axis=1).clip(max=size - 1)
            )
        p[:, g] = p_of[g, before]
        output = getattr(third_right, name)(drafts, p, q, rng)
        before = np.zeros(steps, dtype=np.int64)
        for k in range(g + 1):
            fresh = (
                (np.cumsum(p_of[k, before], axis=1) < gen.random((steps, 1))).sum(axis=1).clip(max=size - 1)
            )
            whole[call, :, k] = before = np.where(output[:, k] >= 0, output[:, k], fresh)
    law = np.ones(1)
    before = np.zeros(1, dtype=np.int64)
    for k in range(g + 1):
        law = (law[:, None] * p_of[k, before]).reshape(-1)
        before = np.tile(np.arange(size), len(before))
    code = whole @ size ** np.arange(g, -1, -1)
    alone = null_deviation(np.bincount(code.reshape(-1), minlength=len(law))[None], law[None])
    pair = np.outer(law, law).reshape(1, -1)
    near = (code[:, :-1:2] * len(law) + code[:, 1::2]).reshape(-1)
    late = (code[:-1:2] * len(law) + code[1::2]).reshape(-1)
    return (
        alone,
        null_deviation(np.bincount(near, minlength=pair.size)[None], pair),
        null_deviation(np.bincount(late, minlength=pair.size)[None], pair),
    )


def main():
    only = set(sys.argv[1:])
    rows, started = [], time.process_time()
    for entry in third_verifiers.ENTRIES:
        name = entry["name"]
        if only and name not in only:
            continue
        began = time.process_time()
        entry["tv"], deviation = measured(third_verifiers, name, SCENES[name])
        spent = time.process_time() - began
        print(f"{entry['tv']:.4f} {deviation:9.1f} sd {spent:5.1f} s {name}", flush=True)
        rows.append({**entry, "tv": round(entry["tv"], 4), "kind": "wrong verifier"})
        rows[-1]["measured"] = described(SCENES[name])
    for entry in third_decoders.ENTRIES:
        if only and entry["name"] not in only:
            continue
        entry["tv"], k, deviation = text_row(third_decoders, entry)
        print(f"{entry['tv']:.4f} {deviation:9.1f} sd {entry['name']}", flush=True)
        line = f"B=1, gamma={third_decoders.GAMMA}, V={SIZE}, rows of the last token and the sum modulo 3,"
        line += f" prompt of {len(PROMPT)} tokens: new token {k} of at most {LIMIT},"
        line += " given last token and sum; 12000 texts"
        rows.append({**entry, "tv": round(entry["tv"], 4), "kind": "wrong decoder", "measured": line})
    for entry in third_right.ENTRIES:
        if only and entry["name"] not in only:
            continue
        alone, near, late = null_of_right(entry["name"])
        print(f"right {alone:6.2f} {near:6.2f} {late:6.2f} sd {entry['name']}", flush=True)
        line = (
            f"B=16, gamma=3, V=3, rows of the token before: completed texts {alone:.1f} standard deviations"
        )
        line += f" of chi-square, with the next row {near:.1f}, with the next call {late:.1f}; 4000 calls"
        rows.append({**entry, "tv": None, "kind": "right verifier", "shape": "", "measured": line})
    for entry in third_decoders.RIGHT:
        if only and entry["name"] not in only:
            continue
        _, _, deviation = text_row(third_decoders, entry)
        print(f"right {deviation:6.2f} sd {entry['name']}", flush=True)
        line = f"B=1, gamma={third_decoders.GAMMA}, V={SIZE}: all tokens given position, last token and sum,"
        line += f" {deviation:.1f} standard deviations of chi-square; 12000 texts"
        mechanism = " ".join(entry["mechanism"].split())
        rows.append({**entry, "mechanism": mechanism, "tv": None, "kind": "right decoder", "measured": line})
    print(f"{time.process_time() - started:.0f} s")
    if not only:
        order = ("name", "kind", "tv", "mechanism", "shape", "measured")
        with open("third.json", "w") as file:
            json.dump({"rows": [{key: row[key] for key in order} for row in rows]}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
