"""Truncated rows: bounds on β hold the truth and are attained; what is written is read, or named."""

import json
import resource
from dataclasses import replace

import numpy as np
import pytest
from bounds import beta_bounds
from refused import refuses

from specsim import open_trace, simulate
from specsim.core._kernels import interpreted
from specsim.traces import summarise, truncate, writer
from specsim.traces._format import Layout, rounding
from specsim.traces._summary import TraceBounds
from specsim.traces._truncated import Listed, acceptance_chances

DTYPES = ("float32", "float16", "bfloat16")


def random_row(rng, size):
    weights = rng.gamma(rng.choice([0.05, 0.3, 2.0]), size=size) + (rng.random(size) < 0.7) * 1e-9
    weights[rng.integers(size)] += 1e-3
    return weights / weights.sum()


def random_pair(rng, size):
    p, q = random_row(rng, size), random_row(rng, size)
    share = rng.choice([0.0, 0.9, 1.0])
    return p, share * p + (1 - share) * q


def overlap(p, q):
    return float(np.minimum(p, q).sum())


# --- the bounds ------------------------------------------------------------------------------------------


def test_the_true_beta_is_always_inside(full):
    rng = np.random.default_rng(1)
    widths, naive = [], []
    for _ in range(3000 if full else 500):
        size = int(rng.integers(2, 30))
        p, q = random_pair(rng, size)
        token = int(rng.choice(size, p=q)) if rng.random() < 0.5 else -1
        keep = token if token >= 0 else None
        cut_p, cut_q = (truncate(row, int(rng.integers(1, size + 1)), keep) for row in (p, q))
        low, high = beta_bounds(cut_p, cut_q, token)
        assert low - 1e-12 <= overlap(p, q) <= high + 1e-12
        both = np.intersect1d(cut_p.tokens, cut_q.tokens)
        simple = overlap(p[both], q[both]) + min(1 - p[both].sum(), 1 - q[both].sum())
        assert high <= simple + 1e-12
        widths.append(high - low)
        naive.append(simple - low)
    assert np.mean(widths) < 0.9 * np.mean(naive)  # tighter than a bound from the tails alone


def test_a_list_that_is_not_the_top_breaks_the_bound():
    """The control: the bound can fail, where a row hides its most frequent token."""
    row = np.array([0.1, 0.9])
    hidden, top = Listed(np.array([0]), row[:1]), truncate(row, 1)
    assert beta_bounds(hidden, top)[1] < 0.5 < overlap(row, row)
    assert beta_bounds(top, top)[1] == pytest.approx(overlap(row, row))


def completed(p, q, high):
    """Full rows over many more tokens with the listed entries, whose β is the bound."""
    (p_tokens, p_values), (q_tokens, q_values) = p, q
    listed = np.union1d(p_tokens, q_tokens)
    more = 400
    size = listed.max() + 1 + 3 * more
    full_p, full_q = np.zeros(size), np.zeros(size)
    full_p[p_tokens], full_q[q_tokens] = p_values, q_values
    rest = [1 - full_p.sum(), 1 - full_q.sum()]
    shared, own = np.arange(size - more, size), [np.arange(size - 3 * more, size - 2 * more), None]
    own[1] = np.arange(size - 2 * more, size - more)
    if high:  # put each tail first where the other's listed mass waits for it, then on tokens that both have
        for i, (mine, other, cap) in enumerate(
            [(full_p, full_q, p_values.min()), (full_q, full_p, q_values.min())]
        ):
            tokens = np.setdiff1d(*((q_tokens, p_tokens) if i == 0 else (p_tokens, q_tokens)))
            for token in tokens:
                given = min(other[token], cap, rest[i])
                mine[token], rest[i] = given, rest[i] - given
        both = min(rest)
        for row, i in ((full_p, 0), (full_q, 1)):
            row[shared], rest[i] = both / more, rest[i] - both
    for row, i in ((full_p, 0), (full_q, 1)):
        row[own[i]] += rest[i] / more
    return full_p, full_q


def test_both_ends_are_attained():
    rng = np.random.default_rng(2)
    tried = 0
    for _ in range(300):
        size = int(rng.integers(4, 12))
        p, q = random_pair(rng, size)
        cut = [truncate(row, int(rng.integers(1, size))) for row in (p, q)]
        if min(row.probabilities.min() for row in cut) < 3e-3:
            continue  # too little room under the cap for 400 more tokens to take what is left
        for end, high in enumerate((False, True)):
            full = completed(*cut, high)
            assert [row.sum() for row in full] == pytest.approx([1.0, 1.0])
            for row, listed in zip(full, cut, strict=True):  # and the lists are still the top of these rows
                assert np.delete(row, listed.tokens).max() <= listed.probabilities.min() + 1e-12
            assert overlap(*full) == pytest.approx(beta_bounds(*cut)[end], abs=1e-12)
        tried += 1
    assert tried > 50


def test_whole_rows_leave_nothing_open_and_empty_ones_everything():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert beta_bounds(truncate(p, 3), truncate(q, 3)) == pytest.approx((0.7, 0.7))
    nothing = Listed(np.array([], int), np.array([]))
    assert beta_bounds(truncate(p, 2), nothing) == pytest.approx((0.0, 1.0))


def test_truncate_keeps_the_most_probable_and_the_token_asked_for():
    row = np.array([0.1, 0.4, 0.1, 0.3, 0.1])
    assert truncate(row, 3).tokens.tolist() == [0, 1, 3]
    assert truncate(row, 3, keep=4).tokens.tolist() == [1, 3, 4]
    assert truncate(row, 3, keep=1).tokens.tolist() == [0, 1, 3]
    for k in (0, 6):
        refuses("1 ≤ k ≤ V", truncate, row, k)


# --- traces ----------------------------------------------------------------------------------------------

VOCAB, GAMMA, STEPS, TOP = 23, 2, 60, 5


def make_steps(seed=3, bonus=True):
    """(context, tokens drawn from q, accepted by the standard rule, p rows, q rows)."""
    rng = np.random.default_rng(seed)
    steps = []
    for step in range(STEPS):
        p, q = np.stack([random_pair(rng, VOCAB) for _ in range(GAMMA + 1)], axis=1)
        tokens = [int(rng.choice(VOCAB, p=q[i])) for i in range(GAMMA)]
        passed = [rng.random() * q[i, x] < p[i, x] for i, x in enumerate(tokens)]
        accepted = passed.index(False) if False in passed else GAMMA
        steps.append((step // 10, tokens, accepted, p, q if bonus else q[:-1]))
    return steps


def cut(rows, tokens, k=TOP):
    return [truncate(row, k, token) for row, token in zip(rows, [*tokens, None], strict=False)]


def write(path, steps, *, top=None, flags=True, bonus=True, dtype="float32", steps_per_shard=25):
    with writer(
        path, vocab_size=VOCAB, gamma=GAMMA, dtype=dtype, top=top, flags=flags, bonus=bonus,
        rows_per_shard=steps_per_shard * (GAMMA + 1),
    ) as log:  # fmt: skip
        for context, tokens, accepted, p, q in steps:
            if top is not None:
                p, q = cut(p, tokens, top), cut(q, tokens, top)
            log.append(context, tokens, accepted if flags else None, p, q)
    return open_trace(path)


@pytest.mark.parametrize(
    ("dtype", "flags"),
    [("float32", True), ("float16", True), ("bfloat16", True), ("float32", False),
     *(pytest.param(dtype, False, marks=pytest.mark.slow) for dtype in DTYPES[1:])],
)  # fmt: skip
def test_the_truth_lies_between_the_bounds_of_a_truncated_trace(tmp_path, dtype, flags):
    steps = make_steps()
    trace = write(tmp_path / "cut", steps, top=TOP, flags=flags, dtype=dtype)
    assert (trace.top, trace.num_steps, trace.layout.flags, trace.dtype) == (TOP, STEPS, flags, dtype)
    assert all(shard.ok for shard in trace.verify())
    found = summarise(trace)
    assert isinstance(found, TraceBounds)
    betas = np.array([[overlap(*rows) for rows in zip(p, q, strict=True)] for *_, p, q in steps])
    lengths = np.array([accepted for _, _, accepted, _, _ in steps])
    reached = (np.arange(GAMMA + 1) <= lengths[:, None]) if flags else np.ones_like(betas, bool)
    counted = reached if flags else reached & (np.arange(GAMMA + 1) == 0)
    low, high = found.alpha_context
    assert low <= betas[counted].mean() <= high < low + 0.6
    for i, (low, high) in enumerate(found.beta_by_position):
        assert low <= betas[reached[:, i], i].mean() <= high
    chances = np.array([[min(1, p[i, x] / q[i, x]) for i, x in enumerate(t)] for _, t, _, p, q in steps])
    tokens = 1 + betas[:, 0] + chances[:, 0] * betas[:, 1]
    assert found.expected_tokens[1, 0] <= tokens.mean() <= found.expected_tokens[1, 1]
    if not flags:
        assert found.expected_tokens[0] == pytest.approx(1 + np.clip(found.beta_by_position[0], 0, 1))
    json.dumps(found.to_dict(), allow_nan=False)
    assert "top 5" in found._repr_html_()
    if flags:
        assert found.accepted_lengths.tolist() == np.bincount(lengths, minlength=GAMMA + 1).tolist()
        assert found.tokens_per_step == pytest.approx(lengths.mean() + 1)
        assert found.alpha_drafted == pytest.approx(lengths.sum() / STEPS / GAMMA)
        whole = summarise(write(tmp_path / "whole", steps, dtype=dtype))
        assert found.standard_errors["tokens_per_step"] == whole.standard_errors["tokens_per_step"]
    else:
        with pytest.raises(ValueError, match="no accept flags"):
            _ = found.alpha_verified


def test_rows_that_list_all_give_the_dense_value(tmp_path):
    steps = make_steps()
    whole, listed = write(tmp_path / "whole", steps), write(tmp_path / "cut", steps, top=VOCAB)
    low, high = summarise(listed).alpha_context
    assert low <= summarise(whole).alpha_context <= high
    assert high - low <= 4 * rounding(listed.layout)


def test_dense_rows_without_flags_or_without_the_bonus(tmp_path):
    steps = make_steps()
    whole = summarise(write(tmp_path / "whole", steps))
    bare = summarise(write(tmp_path / "bare", steps, flags=False))
    first = np.mean([overlap(p[0], q[0]) for *_, p, q in steps])
    low, high = bare.alpha_context
    assert low <= first <= high <= low + 1e-4
    trace = write(tmp_path / "short", make_steps(bonus=False), bonus=False)
    assert all(shard.ok for shard in trace.verify())
    short = summarise(trace)
    assert short.alpha_context[0] < whole.alpha_context < short.alpha_context[1]
    assert short.beta_by_position[-1].tolist() == [0.0, 1.0]
    assert short.beta_by_position[0] == pytest.approx([whole.beta_by_position[0]] * 2, abs=1e-6)
    # frozen, they begin at position 0: no midpoint of what is not known stands for α
    run = simulate(trace, gamma=2, steps=10, rng=0)
    assert run.alpha_context == pytest.approx(first, abs=1e-6)
    assert abs(run.alpha_context - sum(short.alpha_context) / 2) > 1e-3
    assert short.alpha_verified == whole.alpha_verified
    cut_short = summarise(write(tmp_path / "cut", make_steps(bonus=False), top=TOP, bonus=False))
    assert cut_short.beta_by_position[-1] == pytest.approx([0.0, 1.0], abs=1e-9)


def test_a_text_has_rows_and_no_drafts(tmp_path):
    rng = np.random.default_rng(4)
    pairs = [random_pair(rng, VOCAB) for _ in range(30)]
    with writer(tmp_path / "t", vocab_size=VOCAB, gamma=0, top=4, flags=False) as log:
        for i, (p, q) in enumerate(pairs):
            followed = int(rng.choice(VOCAB, p=p))
            log.append(i // 10, [followed] if i % 2 else [], None, [truncate(p, 4)], [truncate(q, 4)])
    trace = open_trace(tmp_path / "t")
    assert (trace.gamma, trace.num_rows) == (0, 30)
    assert all(shard.ok for shard in trace.verify())
    found = summarise(trace)
    low, high = found.alpha_context
    assert low <= np.mean([overlap(p, q) for p, q in pairs]) <= high
    assert found.one_token == (1 + low, 1 + high)
    assert found.expected_tokens.shape == (0, 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_chances_hold_the_exact_ratio(tmp_path, dtype):
    steps = make_steps()
    exact = np.array([[min(1, p[i, x] / q[i, x]) for i, x in enumerate(t)] for _, t, _, p, q in steps])
    for top in (None, 3):
        trace = write(tmp_path / f"{top}", steps, top=top, dtype=dtype)
        parts = [acceptance_chances(shard.columns, trace.layout) for shard in trace.shards]
        low, high = np.concatenate(parts, axis=1)
        assert (low <= exact).all()
        assert (exact <= high).all()
        if top is None:
            assert (high - low).max() < 0.05


def test_rounding_of_what_is_listed_does_not_make_the_rest_impossible(tmp_path):
    """In bfloat16 the two listed entries of p sum to 1."""
    p, q = [0.6, 0.3985, 0.0015], [0.3, 0.3, 0.4]
    with writer(tmp_path / "t", vocab_size=3, gamma=1, dtype="bfloat16", top=2) as log:
        log.append(0, [2], 0, [truncate(p, 2)] * 2, [truncate(q, 2, 2)] * 2)
    trace = open_trace(tmp_path / "t")
    (shard,) = trace.shards
    assert shard.columns.p[0].astype(float).sum() == 1.0
    low, high = acceptance_chances(shard.columns, trace.layout)[:, 0, 0]
    assert low <= p[2] / q[2] <= high


def test_rounding_bounds_the_error_of_both_ends():
    rng = np.random.default_rng(5)
    for _ in range(300):
        p, q = random_pair(rng, 20)
        whole = [truncate(row, 6) for row in (p, q)]
        stored = [Listed(row.tokens, row.probabilities.astype(np.float16).astype(float)) for row in whole]
        error = np.subtract(beta_bounds(*stored), beta_bounds(*whole))
        assert np.abs(error).max() <= rounding(Layout(20, 1, "float16", 6))


def test_kernels_are_their_plain_twins(tmp_path):
    trace = write(tmp_path / "cut", make_steps(), top=TOP)
    compiled = [beta for shard in trace.shards for _, beta in shard.scan()]
    with interpreted():
        plain = [beta for shard in open_trace(trace.path).shards for _, beta in shard.scan()]
    for mine, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(mine, theirs)


# --- what is refused -------------------------------------------------------------------------------------


def test_rows_that_are_not_whole_are_not_handed_out(tmp_path):
    trace = write(tmp_path / "cut", make_steps(), top=TOP)
    refuses("lists 5 tokens a row", trace.steps, [0])
    refuses("give a trace with whole rows", simulate, trace, gamma=1, steps=10)
    dense = write(tmp_path / "whole", make_steps(), flags=False)
    run = simulate(dense, gamma=1, steps=10, rng=1)
    low, high = summarise(dense).alpha_context
    assert low < run.alpha_context < high
    short = replace(dense, layout=dense.layout._replace(bonus=False))
    with pytest.raises(ValueError, match="q after 2 drafted tokens was not logged"):
        simulate(short, rule="cascade_token", gamma=2, steps=10)


def test_of_two_writers_one_is_told(tmp_path, monkeypatch):
    how = {"vocab_size": 4, "gamma": 1}
    with writer(tmp_path / "t", **how) as first:
        monkeypatch.setattr(type(tmp_path), "iterdir", lambda self: iter(()))  # as seen just before
        with pytest.raises(FileExistsError, match="another writer"), writer(tmp_path / "t", **how):
            pass
        half = np.full((2, 4), 0.25)
        first.append(0, [1], 1, half, half)
    assert open_trace(tmp_path / "t").num_steps == 1


def test_a_full_disk_leaves_what_was_written_and_says_so(tmp_path):
    row, limits = np.full((2, 512), 1 / 512), resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        with writer(tmp_path / "t", vocab_size=512, gamma=1, rows_per_shard=2) as log:
            log.append(0, [1], 1, row, row)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))
            log.append(0, [1], 1, row, row)

    try:
        refuses(r"shard-00001\.safetensors.*1 steps before it can be read", fill, error=OSError)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    trace = open_trace(tmp_path / "t")
    assert (trace.num_steps, trace.complete) == (1, False)
    assert trace.verify()[0].ok


def test_a_shard_of_another_trace_is_named(tmp_path):
    """As whole and sound as the one in whose place it is."""
    for top in (None, TOP):
        mine = write(tmp_path / f"mine-{top}", make_steps(seed=3), top=top)
        other = write(tmp_path / f"other-{top}", make_steps(seed=4), top=top)
        mine.shards[1].path.write_bytes(other.shards[1].path.read_bytes())
        found = open_trace(mine.path).verify()
        assert [status.ok for status in found] == [True, False, True]
        assert "do not match the SHA-256 in the manifest" in found[1].damage
        refuses(r"shard-00001\.safetensors", summarise, open_trace(mine.path))
        with pytest.raises(ValueError, match=r"shard-00001\.safetensors, row 0: the header or the checksums"):
            open_trace(mine.path).shards[1].take(np.arange(1))
