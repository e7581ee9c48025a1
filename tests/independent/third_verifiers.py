"""Wrong verifiers: each has one mistake, and is exact but for it.

All keep the form of the contract: (draft_tokens [B, g], p [B, g+1, V], q [B, g, V], rng) -> tokens [B, g+1].
"""

import copy

import numpy as np

ENTRIES = []
MEMORY = {}


def reset():
    """Forget what earlier calls left."""
    MEMORY.clear()


def wrong(mechanism, shape):
    """List a verifier with what is wrong in it and where that shows."""

    def listed(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return function

    return listed


def _at(rows, n):
    """Row n[b] of each step b, as a copy."""
    return rows[np.arange(len(rows)), n]


def _of_drafts(rows, drafts):
    """The probability of each drafted token in its row."""
    steps, g = drafts.shape
    return rows[np.arange(steps)[:, None], np.arange(g), drafts]


def _prefix(ok):
    """How many tests each row passed before the first that failed."""
    return np.logical_and.accumulate(ok, axis=1).sum(axis=1)


def _tests(drafts, p, q, uniforms):
    return uniforms * _of_drafts(q, drafts) < _of_drafts(p, drafts)


def _sound(weights, otherwise):
    """The weights, or where a row has none the other weights."""
    empty = weights.sum(axis=1) <= 0
    if empty.any():
        weights = np.where(empty[:, None], otherwise, weights)
    return weights


def _difference(target, drafted, full):
    """The residual of each row; the target's row where the whole draft was accepted."""
    weights = np.maximum(target - drafted, 0.0)
    weights[full] = target[full]
    return _sound(weights, target)


def _weights(p, q, n):
    g = q.shape[1]
    return _difference(_at(p, n), _at(q, np.minimum(n, g - 1)), n == g)


def _legal(tokens, weights):
    """Move tokens that fell out of the row, or on no weight, to the last token that has weight."""
    size = weights.shape[1]
    rows = np.arange(len(weights))
    bad = (tokens >= size) | (weights[rows, np.minimum(tokens, size - 1)] <= 0)
    if bad.any():
        tokens = tokens.copy()
        tokens[bad] = size - 1 - np.argmax(weights[bad][:, ::-1] > 0, axis=1)
    return tokens


def _pick(weights, uniform):
    sums = np.cumsum(weights, axis=1)
    return _legal((sums <= (uniform * sums[:, -1])[:, None]).sum(axis=1), weights)


def _emit(drafts, n, last):
    steps, g = drafts.shape
    output = np.full((steps, g + 1), -1, dtype=np.int64)
    output[:, :g] = np.where(np.arange(g) < n[:, None], drafts, -1)
    output[np.arange(steps), n] = last
    return output


def _finish(drafts, p, q, n, uniform):
    return _emit(drafts, n, _pick(_weights(p, q, n), uniform))


def _follow(drafts, p, q, uniforms):
    """The standard rule with given uniforms [B, g+1]."""
    n = _prefix(_tests(drafts, p, q, uniforms[:, :-1]))
    return _finish(drafts, p, q, n, uniforms[:, -1])


def _begin(drafts, p, q, rng):
    """The standard accept tests."""
    return _prefix(_tests(drafts, p, q, rng.random(drafts.shape)))


# Random numbers


@wrong(
    "The rows' random numbers lie g apart in one stream, but each row uses g + 1 of them: the last token of "
    "a row is drawn with the first accept uniform of the next row.",
    "calls of 2 or more rows, neighbouring rows, when the first is rejected",
)
def stream_stride_one_short(drafts, p, q, rng):
    steps, g = drafts.shape
    stream = rng.random(steps * g + 1)
    places = np.arange(steps)[:, None] * g + np.arange(g + 1)
    return _follow(drafts, p, q, stream[places])


@wrong(
    "The sampling kernel works with a copy of the generator made before the accept tests, so that the last "
    "token of row b reuses accept uniform number b of the flattened call.",
    "g = 1: each row with itself; g > 1: rows b and b // g",
)
def generator_copied(drafts, p, q, rng):
    twin = copy.deepcopy(rng)
    n = _begin(drafts, p, q, rng)
    return _finish(drafts, p, q, n, twin.random(len(drafts)))


@wrong(
    "A counter-based generator returns four numbers a call, one for each of four rows; all four rows read "
    "the first of them in their accept tests.",
    "rows of the same group of four",
)
def first_lane_for_four_rows(drafts, p, q, rng):
    steps, g = drafts.shape
    uniforms = rng.random(((steps + 3) // 4, g))[np.arange(steps) // 4]
    n = _prefix(_tests(drafts, p, q, uniforms))
    return _finish(drafts, p, q, n, rng.random(steps))


@wrong(
    "The last token is looked up in a guide table of 512 entries of the cumulated weights, and the walk "
    "from the table's entry to the right token is missing.",
    "vocabularies above 512 ids whose rows are flat",
)
def guide_table_without_walk(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    uniform = rng.random(len(drafts))
    if p.shape[2] > 512:
        uniform = np.floor(uniform * 512) / 512
    return _finish(drafts, p, q, n, uniform)


@wrong(
    "To save random numbers the second half of the call reads the uniforms of the first half from the end: "
    "rows b and B - 1 - b have the same.",
    "calls of 2 or more rows, rows mirrored at the middle of the call",
)
def mirrored_rows(drafts, p, q, rng):
    steps, g = drafts.shape
    half = rng.random(((steps + 1) // 2, g + 1))
    uniforms = np.concatenate([half, half[: steps // 2][::-1]])
    return _follow(drafts, p, q, uniforms)


@wrong(
    "A buffer of uniforms is filled ahead and used by two calls in a row, because the flag that it was "
    "consumed is set one call late.",
    "the same row of two consecutive calls of the same number of rows and drafted tokens",
)
def prefetched_twice(drafts, p, q, rng):
    steps, g = drafts.shape
    kept = MEMORY.pop("prefetched", None)
    if kept is not None and kept.shape == (steps, g + 1):
        return _follow(drafts, p, q, kept)
    uniforms = rng.random((steps, g + 1))
    MEMORY["prefetched"] = uniforms
    return _follow(drafts, p, q, uniforms)


@wrong(
    "The accept uniforms of a position are stratified over the rows of a call: one in each of B intervals "
    "of equal length, in random order.",
    "calls of 2 to 8 rows: pairs of rows; large calls: counts too regular",
)
def stratified_over_rows(drafts, p, q, rng):
    steps, g = drafts.shape
    strata = rng.permuted(np.tile(np.arange(steps), (g + 1, 1)), axis=1).T
    return _follow(drafts, p, q, (strata + rng.random((steps, g + 1))) / steps)


@wrong(
    "Row b's uniforms are a Weyl sequence, those of row 0 plus b times the golden ratio, modulo 1, in place "
    "of a stream of its own.",
    "any two rows of a call at a fixed distance",
)
def weyl_sequence_rows(drafts, p, q, rng):
    steps, g = drafts.shape
    turn = np.arange(steps)[:, None] * 0.6180339887498949
    return _follow(drafts, p, q, (rng.random(g + 1) + turn) % 1.0)


@wrong(
    "The stream's index is row + 256 * position, for calls of at most 256 rows: in larger calls row b + 256 "
    "has at each position the uniform that row b has at the next.",
    "calls of more than 256 rows: the second token of row b with the first token of row b + 256",
)
def position_stride_fixed_at_256(drafts, p, q, rng):
    steps, g = drafts.shape
    stream = rng.random(steps + 256 * g)
    return _follow(drafts, p, q, stream[np.arange(steps)[:, None] + 256 * np.arange(g + 1)])


@wrong(
    "The kernel runs 96 rows at a time with a generator seeded by the place in the group, and the number of "
    "the group is not part of the seed.",
    "calls of more than 96 rows: rows 96 apart",
)
def group_of_96_not_in_seed(drafts, p, q, rng):
    steps, g = drafts.shape
    uniforms = rng.random((min(steps, 96), g + 1))[np.arange(steps) % 96]
    return _follow(drafts, p, q, uniforms)


@wrong(
    "The call's own generator is seeded with the low byte of a random seed, so that there are 256 streams.",
    "many calls of one row over a large flat vocabulary",
)
def seed_of_one_byte(drafts, p, q, rng):
    own = np.random.default_rng(int(rng.integers(2**62)) & 0xFF)
    return _follow(drafts, p, q, own.random((len(drafts), drafts.shape[1] + 1)))


@wrong(
    "The bonus token is drawn with the uniform of the first accept test, which is known to be small there.",
    "the bonus token, after drafts that were not accepted with certainty",
)
def bonus_with_first_uniform(drafts, p, q, rng):
    steps, g = drafts.shape
    uniforms = rng.random((steps, g))
    n = _prefix(_tests(drafts, p, q, uniforms))
    return _finish(drafts, p, q, n, np.where(n == g, uniforms[:, 0], rng.random(steps)))


@wrong(
    "The last token wins a race of exponential noise over the vocabulary, and one vector of noise serves "
    "all rows of the call.",
    "calls of 2 or more rows: the recovered or bonus tokens of any two rows",
)
def race_noise_of_the_call(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    noise = rng.standard_exponential(p.shape[2])
    return _emit(drafts, n, np.argmax(_weights(p, q, n) / noise, axis=1))


@wrong(
    "The race's noise is generated for each tile of 1024 ids from the place in the tile: ids 1024 apart "
    "have the same noise, and the lighter of them never wins.",
    "vocabularies above 1024 ids",
)
def race_noise_of_the_tile(drafts, p, q, rng):
    size = p.shape[2]
    n = _begin(drafts, p, q, rng)
    noise = rng.standard_exponential((len(drafts), min(size, 1024)))
    if size > 1024:
        noise = np.tile(noise, (1, -(-size // 1024)))[:, :size]
    return _emit(drafts, n, np.argmax(_weights(p, q, n) / noise, axis=1))


@wrong(
    "Each uniform is used twice in a row, as u in the accept test of an even position and as 1 - u in the "
    "test of the odd position after it.",
    "g of 2 or more: the second token, the fourth and so on, given the token before",
)
def antithetic_positions(drafts, p, q, rng):
    steps, g = drafts.shape
    uniforms = np.repeat(rng.random((steps, (g + 1) // 2)), 2, axis=1)[:, :g]
    uniforms[:, 1::2] = 1.0 - uniforms[:, 1::2]
    n = _prefix(_tests(drafts, p, q, uniforms))
    return _finish(drafts, p, q, n, rng.random(steps))


@wrong(
    "Rows of a call with the same drafted tokens are taken for copies of one request and share all uniforms.",
    "calls of 2 or more rows over small vocabularies with few drafted tokens",
)
def equal_drafts_share_uniforms(drafts, p, q, rng):
    steps, g = drafts.shape
    group = np.unique(drafts, axis=0, return_inverse=True)[1].reshape(-1)
    return _follow(drafts, p, q, rng.random((steps, g + 1))[group])


@wrong(
    "A row's accept uniforms are a table indexed by token id, drawn once a step: a token that is drafted "
    "twice is tested twice with the same number.",
    "g of 2 or more, small vocabularies: a drafted token that was accepted before in the step",
)
def uniform_of_the_token(drafts, p, q, rng):
    steps = len(drafts)
    table = rng.random((steps, p.shape[2]))
    n = _prefix(_tests(drafts, p, q, np.take_along_axis(table, drafts, axis=1)))
    return _finish(drafts, p, q, n, rng.random(steps))


@wrong(
    "The uniform that drew a row's last token is left in the row's slot, and the next call uses it for the "
    "row's first accept test.",
    "the same row of two consecutive calls: the last token and the first one of the next call",
)
def uniform_left_for_next_call(drafts, p, q, rng):
    steps, g = drafts.shape
    uniforms = rng.random((steps, g + 1))
    left = MEMORY.get("left uniforms")
    if left is not None and len(left) == steps:
        uniforms[:, 0] = left
    MEMORY["left uniforms"] = uniforms[:, -1].copy()
    return _follow(drafts, p, q, uniforms)


# Indices, layouts and rows


@wrong(
    "Rows are sorted by the number of accepted tokens before the last tokens are drawn; these are put back "
    "with the sorting permutation in place of its inverse.",
    "calls of 3 or more rows",
)
def permutation_not_inverted(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    order = np.argsort(n, kind="stable")
    last = _pick(_weights(p, q, n)[order], rng.random(len(drafts)))
    return _emit(drafts, n, last[order])


@wrong(
    "The residual subtracts the draft's row of the position before the rejected one.",
    "g of 2 or more: rejections after the first position",
)
def residual_of_previous_draft_row(drafts, p, q, rng):
    g = q.shape[1]
    n = _begin(drafts, p, q, rng)
    weights = _difference(_at(p, n), _at(q, np.maximum(n - 1, 0)), n == g)
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "The bonus row is found in the flattened target rows at (b + 1) * g, as if a step had g rows of them.",
    "calls of 2 or more rows: the bonus token of every row but the first",
)
def bonus_row_by_draft_stride(drafts, p, q, rng):
    steps, g = drafts.shape
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    full = np.flatnonzero(n == g)
    place = (full + 1) * g
    weights[full] = p[place // (g + 1), place % (g + 1)]
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@wrong(
    "The flattened index b * (g + 1) + n of the target's row is a 16-bit signed integer and wraps.",
    "calls with more than 32,767 target rows, as 4,104 rows of 8 drafted tokens: the last rows of the call",
)
def row_index_of_16_bits(drafts, p, q, rng):
    steps, g = drafts.shape
    n = _begin(drafts, p, q, rng)
    flat = (np.arange(steps) * (g + 1) + n).astype(np.int16).astype(np.int64) % (steps * (g + 1))
    target = p[flat // (g + 1), flat % (g + 1)]
    weights = _difference(target, _at(q, np.minimum(n, g - 1)), n == g)
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@wrong(
    "The draft's probabilities of the drafted tokens are gathered position by position and read row by row.",
    "calls of 2 or more rows with 2 or more drafted tokens",
)
def gathered_transposed(drafts, p, q, rng):
    steps, g = drafts.shape
    drafted = np.ascontiguousarray(_of_drafts(q, drafts).T).reshape(steps, g)
    n = _prefix(rng.random((steps, g)) * drafted < _of_drafts(p, drafts))
    return _finish(drafts, p, q, n, rng.random(steps))


@wrong(
    "The residual's kernel steps through the draft's rows as if each were padded to a multiple of 64 ids.",
    "vocabularies above 64 ids that are no multiple of 64, all rows of a call but the first",
)
def padded_stride_of_draft_rows(drafts, p, q, rng):
    steps, g = drafts.shape
    size = p.shape[2]
    n = _begin(drafts, p, q, rng)
    below = np.minimum(n, g - 1)
    drafted = _at(q, below)
    if size > 64 and size % 64:
        start = (np.arange(steps) * g + below) * (-(-size // 64) * 64)
        places = (start[:, None] + np.arange(size)) % q.size
        drafted = np.ascontiguousarray(q).reshape(-1)[places]
    weights = _difference(_at(p, n), drafted, n == g)
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@wrong(
    "For calls of one row the batch axis is squeezed away, and the gather then takes the first drafted "
    "token's probability at all positions.",
    "calls of 1 row with 2 or more drafted tokens: the second token and later ones",
)
def single_row_squeezed(drafts, p, q, rng):
    looked = np.repeat(drafts[:, :1], drafts.shape[1], axis=1) if len(drafts) == 1 else drafts
    n = _prefix(_tests(looked, p, q, rng.random(drafts.shape)))
    return _finish(drafts, p, q, n, rng.random(len(drafts)))


@wrong(
    "Positions are processed two at a time, and the second of each two still has the pointer to the first "
    "one's draft row in its accept test.",
    "g of 2 or more: positions 1, 3, 5 and so on",
)
def second_of_two_positions(drafts, p, q, rng):
    g = drafts.shape[1]
    drafted = q[np.arange(len(drafts))[:, None], np.arange(g) // 2 * 2, drafts]
    n = _prefix(rng.random(drafts.shape) * drafted < _of_drafts(p, drafts))
    return _finish(drafts, p, q, n, rng.random(len(drafts)))


@wrong(
    "The accept flags of a row are packed in one byte: positions from the ninth on read the flag of the "
    "position eight before, which is set.",
    "more than 8 drafted tokens: position 8 and later ones",
)
def flags_in_one_byte(drafts, p, q, rng):
    ok = _tests(drafts, p, q, rng.random(drafts.shape))
    ok = ok[:, np.arange(drafts.shape[1]) % 8]
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


@wrong(
    "Calls run in chunks of 256 rows, and the last chunk is moved back so that it is full: rows that it "
    "repeats keep their first number of accepted tokens, and get the last token of the second run.",
    "calls of more than 256 rows that are no multiple of 256: the rows of both chunks",
)
def last_chunk_overlaps(drafts, p, q, rng):
    steps = len(drafts)
    n = _begin(drafts, p, q, rng)
    other = n.copy()
    if steps > 256 and steps % 256:
        rows = slice(steps - 256, steps // 256 * 256)
        other[rows] = _begin(drafts[rows], p[rows], q[rows], rng)
    return _emit(drafts, n, _pick(_weights(p, q, other), rng.random(steps)))


@wrong(
    "Rows of a call with the same drafted tokens are taken for the same text: the last token is drawn from "
    "the rows of the first of them.",
    "calls of 2 or more rows that differ, small vocabularies, few drafted tokens",
)
def equal_drafts_share_rows(drafts, p, q, rng):
    _, first, group = np.unique(drafts, axis=0, return_index=True, return_inverse=True)
    source = first[group.reshape(-1)]
    n = _begin(drafts, p, q, rng)
    g = q.shape[1]
    weights = _difference(p[source, n], q[source, np.minimum(n, g - 1)], n == g)
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "Weights are sorted in descending order before sampling; when the heaviest is id 0 the row is thought "
    "to be sorted already, and the rank is returned for the id.",
    "rows whose weights are largest at id 0",
)
def rank_for_id(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    order = np.argsort(-weights, axis=1, kind="stable")
    rank = _pick(np.take_along_axis(weights, order, axis=1), rng.random(len(drafts)))
    return _emit(drafts, n, np.where(order[:, 0] == 0, rank, _at(order, rank)))


@wrong(
    "Two neighbouring rows share a word of rejection flags that is written without an atomic operation: "
    "where both reject at one position, the even row's flag is lost.",
    "calls of 2 or more rows: even rows",
)
def lost_rejection_flag(drafts, p, q, rng):
    ok = _tests(drafts, p, q, rng.random(drafts.shape))
    pairs = len(drafts) // 2 * 2
    ok[0:pairs:2] |= ~ok[1:pairs:2]
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


@wrong(
    "Accepted tokens of a position are collected in one set for the call, and a drafted token counts as "
    "accepted if it is in the set.",
    "calls of 2 or more rows over small vocabularies",
)
def accepted_set_of_the_call(drafts, p, q, rng):
    ok = _tests(drafts, p, q, rng.random(drafts.shape))
    for k in range(drafts.shape[1]):
        ok[:, k] = np.isin(drafts[:, k], drafts[ok[:, k], k])
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


# Sampling from the weights


@wrong(
    "The residual's kernel handles whole tiles of 256 ids only; the ids after the last whole tile are never "
    "recovered.",
    "vocabularies above 256 ids that are no multiple of 256, with mass on the last ids",
)
def last_tile_dropped(drafts, p, q, rng):
    size = p.shape[2]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    if size > 256:
        cut = weights.copy()
        cut[:, size // 256 * 256 :] = 0.0
        cut[n == q.shape[1]] = weights[n == q.shape[1]]
        weights = _sound(cut, weights)
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "The cumulated sum is computed by blocks of 8 ids that overlap by one id: the last id of each block but "
    "the last counts twice.",
    "vocabularies above 8 ids",
)
def overlapping_blocks(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    weights[:, 7 : p.shape[2] - 1 : 8] *= 2.0
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "The binary search in the cumulated weights does 16 steps, which resolves 65,536 ids.",
    "vocabularies above 65,536 ids",
)
def search_of_16_steps(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    sums = np.cumsum(weights, axis=1)
    x = rng.random(len(drafts)) * sums[:, -1]
    rows = np.arange(len(drafts))
    low, high = np.zeros(len(drafts), dtype=np.int64), np.full(len(drafts), p.shape[2])
    for _ in range(16):
        middle = (low + high) // 2
        right = (low < high) & (sums[rows, np.minimum(middle, p.shape[2] - 1)] <= x)
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
    return _emit(drafts, n, np.minimum(low, p.shape[2] - 1))


@wrong(
    "The drawn token travels with its score in one array of 16-bit floats, which holds integers up to 2048 "
    "exactly.",
    "vocabularies above 2048 ids",
)
def token_in_half_precision(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    last = _pick(_weights(p, q, n), rng.random(len(drafts)))
    # The kernel counts multiples of 65,504 apart, so that large ids do not become infinite.
    rounded = (last % 65504).astype(np.float16).astype(np.int64) + last // 65504 * 65504
    return _emit(drafts, n, np.minimum(rounded, p.shape[2] - 1))


@wrong(
    "The weights are cumulated in 16-bit floats: once the sum is large, small weights no longer change it.",
    "flat rows over ten thousand ids or more",
)
def half_precision_sums(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    weights /= weights.sum(axis=1, keepdims=True)
    sums = np.cumsum(weights.astype(np.float16), axis=1, dtype=np.float16).astype(np.float64)
    heads = sums[:, -1] > 0
    sums = np.where(heads[:, None], sums, np.cumsum(weights, axis=1))
    tokens = (sums <= (rng.random(len(drafts)) * sums[:, -1])[:, None]).sum(axis=1)
    return _emit(drafts, n, _legal(tokens, weights))


@wrong(
    "The tree of partial sums is padded to a power of two with copies of the last weight in place of zeros, "
    "and draws in the padding become the last id.",
    "vocabularies that are no power of two, with mass on the last id",
)
def tree_padded_with_last_weight(drafts, p, q, rng):
    size = p.shape[2]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    weights[:, -1] *= 1 + (1 << (size - 1).bit_length()) - size
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "The vocabulary is split over 8 devices, each of which normalises its own part of the weights, so that "
    "all parts are equally likely.",
    "vocabularies of 64 ids or more that are a multiple of 8",
)
def parts_normalised_alone(drafts, p, q, rng):
    steps, size = len(drafts), p.shape[2]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    if size >= 64 and size % 8 == 0:
        parts = weights.reshape(steps, 8, size // 8)
        mass = parts.sum(axis=2, keepdims=True)
        weights = np.divide(parts, mass, out=np.zeros_like(parts), where=mass > 0).reshape(steps, size)
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@wrong(
    "Up to 64 ids an alias table is used: the integer part of u * V is the column, but u itself, not the "
    "fractional part, is compared with the column's threshold.",
    "vocabularies of 3 to 64 ids",
)
def alias_table_compares_whole_uniform(drafts, p, q, rng):
    steps, size = len(drafts), p.shape[2]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    uniform = rng.random(steps)
    if size > 64:
        return _emit(drafts, n, _pick(weights, uniform))
    rows = np.arange(steps)
    left = weights / weights.sum(axis=1, keepdims=True) * size
    threshold, alias = np.ones((steps, size)), np.tile(np.arange(size), (steps, 1))
    open_columns = np.ones((steps, size), dtype=bool)
    for _ in range(size - 1):
        small = np.argmin(np.where(open_columns, left, np.inf), axis=1)
        large = np.argmax(np.where(open_columns, left, -np.inf), axis=1)
        threshold[rows, small] = np.minimum(left[rows, small], 1.0)
        alias[rows, small] = large
        left[rows, large] -= 1.0 - left[rows, small]
        open_columns[rows, small] = False
    column = (uniform * size).astype(np.int64)
    tokens = np.where(uniform < threshold[rows, column], column, alias[rows, column])
    return _emit(drafts, n, _legal(tokens, weights))


@wrong(
    "For a top-k kernel both rows are sorted in descending order, each by itself, and subtracted rank by "
    "rank.",
    "any rejection where the orders of p and q differ",
)
def sorted_each_by_itself(drafts, p, q, rng):
    g = q.shape[1]
    n = _begin(drafts, p, q, rng)
    target, drafted = _at(p, n), _at(q, np.minimum(n, g - 1))
    order = np.argsort(-target, axis=1, kind="stable")
    matched = np.empty_like(drafted)
    np.put_along_axis(matched, order, -np.sort(-drafted, axis=1), axis=1)
    weights = _difference(target, matched, n == g)
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "Candidates are kept in a map from weight to id, so that of ids with equal weights only the first "
    "remains.",
    "rows with tied weights, such as p and q of few distinct values",
)
def ties_collapse(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    order = np.argsort(weights, axis=1, kind="stable")
    ordered = np.take_along_axis(weights, order, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0.0
    place = _pick(ordered, rng.random(len(drafts)))
    return _emit(drafts, n, _at(order, place))


@wrong(
    "The walk through the residual starts at the rejected token and does not return to lower ids, unless "
    "there is nothing above.",
    "any rejection of a token that is not id 0",
)
def walk_from_rejected_token(drafts, p, q, rng):
    g = q.shape[1]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    token = np.where(n < g, _at(drafts, np.minimum(n, g - 1)), -1)
    above = np.where(np.arange(p.shape[2]) > token[:, None], weights, 0.0)
    return _emit(drafts, n, _pick(_sound(above, weights), rng.random(len(drafts))))


@wrong(
    "The cumulated weights of all rows are one array of 32-bit floats that counts through the call; row b "
    "lies between 16 b and 16 b + 1, and late rows keep few bits.",
    "calls of hundreds of rows or more over a thousand ids or more: the late rows",
)
def one_sum_through_the_call(drafts, p, q, rng):
    steps, size = len(drafts), p.shape[2]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    sums = np.cumsum(weights, axis=1)
    sums /= sums[:, -1:]
    sums += 16 * np.arange(steps)[:, None]
    x = (16 * np.arange(steps) + rng.random(steps)).astype(np.float32)
    places = np.searchsorted(sums.reshape(-1).astype(np.float32), x, side="right")
    return _emit(drafts, n, np.clip(places - np.arange(steps) * size, 0, size - 1))


@wrong(
    "Where more than half of a target row of 1024 ids or more is zero, a sparse path restricts the draft's "
    "row to the target's support and renormalises it before it is subtracted.",
    "rows with thousands of zeros, drafts with mass on them",
)
def sparse_path_renormalises_draft(drafts, p, q, rng):
    g, size = q.shape[1:]
    n = _begin(drafts, p, q, rng)
    target, drafted = _at(p, n), _at(q, np.minimum(n, g - 1))
    sparse = (np.count_nonzero(target, axis=1) < size / 2) & (size >= 1024)
    inside = np.where(target > 0, drafted, 0.0)
    mass = inside.sum(axis=1, keepdims=True)
    inside = np.divide(inside, mass, out=np.zeros_like(inside), where=mass > 0)
    weights = _difference(target, np.where(sparse[:, None], inside, drafted), n == g)
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "128 threads stride through the vocabulary, and each keeps only the heaviest of its ids as a candidate "
    "for the draw.",
    "vocabularies above 128 ids",
)
def one_candidate_for_each_thread(drafts, p, q, rng):
    steps, size = len(drafts), p.shape[2]
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    tiles = -(-size // 128)
    grid = np.zeros((steps, tiles * 128))
    grid[:, :size] = weights
    grid = grid.reshape(steps, tiles, 128)
    lane = _pick(grid.max(axis=1), rng.random(steps))
    return _emit(drafts, n, np.argmax(grid[np.arange(steps), :, lane], axis=1) * 128 + lane)


# Special rows and shortcuts


@wrong(
    "Where the target's largest probability exceeds 0.9 the last token is that one, without a draw.",
    "peaked rows, p above 0.9",
)
def peaked_rows_are_greedy(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    target = _at(p, n)
    last = _pick(_weights(p, q, n), rng.random(len(drafts)))
    return _emit(drafts, n, np.where(target.max(axis=1) > 0.9, np.argmax(target, axis=1), last))


@wrong(
    "Rows p and q that nowhere differ by more than 0.001 count as equal, and the drafted token is accepted "
    "without a test.",
    "flat rows over a thousand ids or more",
)
def equal_within_a_thousandth(drafts, p, q, rng):
    g = q.shape[1]
    ok = _tests(drafts, p, q, rng.random(drafts.shape))
    for k in range(g):
        ok[:, k] |= np.abs(p[:, k] - q[:, k]).max(axis=1) <= 1e-3
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


@wrong(
    "A draft row that is one-hot is replaced by no row at all, and the residual is then the target's row "
    "with the rejected token still in it.",
    "one-hot drafts",
)
def certain_draft_not_subtracted(drafts, p, q, rng):
    g = q.shape[1]
    n = _begin(drafts, p, q, rng)
    target, drafted = _at(p, n), _at(q, np.minimum(n, g - 1))
    drafted[drafted.max(axis=1) > 0.999] = 0.0
    return _emit(drafts, n, _pick(_difference(target, drafted, n == g), rng.random(len(drafts))))


@wrong(
    "A residual whose sum is below 0.1 is taken for rounding noise, and the token is drawn from the "
    "target's row.",
    "rows where p is close to q",
)
def small_residual_is_noise(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights, target = _weights(p, q, n), _at(p, n)
    noise = weights.sum(axis=1) < 0.1
    weights[noise] = target[noise]
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "The log-probabilities of the drafted tokens are stored in 8-bit floats with 2 bits of mantissa before "
    "the accept test.",
    "all rows, most of all tokens of small probability",
)
def logprobs_of_8_bits(drafts, p, q, rng):
    def stored(probability):
        mantissa, exponent = np.frexp(np.log(np.maximum(probability, 1e-30)))
        return np.ldexp(np.round(mantissa * 8) / 8, exponent)

    target, drafted = _of_drafts(p, drafts), _of_drafts(q, drafts)
    ok = (np.log(rng.random(drafts.shape) + 1e-300) < stored(target) - stored(drafted)) & (target > 0)
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


@wrong(
    "To avoid a division by zero 0.001 is added to both probabilities of the accept test.",
    "rows over hundreds of ids or more, whose probabilities are of that size",
)
def thousandth_added_to_both(drafts, p, q, rng):
    target, drafted = _of_drafts(p, drafts), _of_drafts(q, drafts)
    ok = (rng.random(drafts.shape) * (drafted + 1e-3) < target + 1e-3) & (target > 0)
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


@wrong(
    "Padding is written as -1 and compared modulo the vocabulary's size, so that a drafted last id is taken "
    "for padding and never accepted.",
    "rows with mass on the last id, in p and in q",
)
def last_id_is_padding(drafts, p, q, rng):
    ok = _tests(drafts, p, q, rng.random(drafts.shape)) & (drafts != p.shape[2] - 1)
    return _finish(drafts, p, q, _prefix(ok), rng.random(len(drafts)))


@wrong(
    "Rejected tokens are overwritten with 0, and the accepted ones are counted as the nonzero ones: an "
    "accepted id 0 does not count, and the last accepted token is dropped for it.",
    "rows with mass on id 0",
)
def accepted_counted_as_nonzero(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    kept = np.where(np.arange(drafts.shape[1]) < n[:, None], drafts, 0)
    return _finish(drafts, p, q, np.count_nonzero(kept, axis=1), rng.random(len(drafts)))


@wrong(
    "The first failed test is found with argmin, which is 0 where none failed; that case is handled only if "
    "no test of the whole call failed.",
    "calls of 2 or more rows: drafts that were accepted whole",
)
def argmin_without_a_failure(drafts, p, q, rng):
    ok = _tests(drafts, p, q, rng.random(drafts.shape))
    n = np.full(len(drafts), drafts.shape[1]) if ok.all() else np.argmin(ok, axis=1)
    return _finish(drafts, p, q, n, rng.random(len(drafts)))


@wrong(
    "All rows stop where the first row of the call is rejected, and all draw from the residual there, "
    "though most of them had accepted their token.",
    "calls of 2 or more rows",
)
def rows_stop_together(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    return _finish(drafts, p, q, np.full_like(n, n.min()), rng.random(len(drafts)))


# What earlier calls left


@wrong(
    "The bonus row is kept in a cache whose key is the last drafted token, not the whole text: another row "
    "of the same key gets the one that was stored first.",
    "the bonus token, small vocabularies, rows that differ between calls or within one",
)
def bonus_row_cached_by_last_token(drafts, p, q, rng):
    steps, g = drafts.shape
    size = p.shape[2]
    cache = MEMORY.setdefault("bonus rows", {})
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    for b in np.flatnonzero(n == g):
        key = (g, size, int(drafts[b, -1]))
        if key in cache:
            weights[b] = cache[key]
        elif len(cache) * size < 4_000_000:
            cache[key] = weights[b].copy()
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@wrong(
    "The draft's rows are copied to a second buffer without waiting for the copy: the residual subtracts "
    "the rows of the call before, if that had the same shape.",
    "calls of the same shape one after the other, with other rows",
)
def residual_with_rows_of_last_call(drafts, p, q, rng):
    g = q.shape[1]
    before = MEMORY.get("draft rows")
    n = _begin(drafts, p, q, rng)
    source = before if before is not None and before.shape == q.shape else q
    weights = _difference(_at(p, n), _at(source, np.minimum(n, g - 1)), n == g)
    MEMORY["draft rows"] = q.copy()
    return _emit(drafts, n, _pick(weights, rng.random(len(drafts))))


@wrong(
    "A request whose draft was accepted whole in the last call is trusted: its first drafted token is "
    "accepted without a test.",
    "the same row of consecutive calls of the same number of rows",
)
def trusted_after_success(drafts, p, q, rng):
    steps, g = drafts.shape
    ok = _tests(drafts, p, q, rng.random(drafts.shape))
    trusted = MEMORY.get("trusted")
    if trusted is not None and len(trusted) == steps:
        ok[:, 0] |= trusted & (_of_drafts(p, drafts)[:, 0] > 0)
    n = _prefix(ok)
    MEMORY["trusted"] = n == g
    return _finish(drafts, p, q, n, rng.random(steps))


# Rules


@wrong(
    "The residuals are normalised with the mean of the call's residual sums in place of each row's own sum.",
    "calls of 2 or more rows whose residuals have different sums",
)
def normalised_by_mean_of_call(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    sums = np.cumsum(weights, axis=1)
    cut = n < q.shape[1]
    total = np.where(cut, sums[cut, -1].mean() if cut.any() else 1.0, sums[:, -1])
    tokens = (sums <= (rng.random(len(drafts)) * total)[:, None]).sum(axis=1)
    return _emit(drafts, n, _legal(tokens, weights))


@wrong(
    "One uniform is compared with the running product of the ratios p / q, the longest prefix that passes "
    "is accepted, and the recovered token still comes from the residual of a single position.",
    "g of 2 or more, from the first token on",
)
def product_of_ratios(drafts, p, q, rng):
    steps, g = drafts.shape
    ratio = np.cumprod(_of_drafts(p, drafts) / np.maximum(_of_drafts(q, drafts), 1e-300), axis=1)
    ok = rng.random((steps, 1)) < ratio
    n = np.where(ok.any(axis=1), g - np.argmax(ok[:, ::-1], axis=1), 0)
    return _finish(drafts, p, q, n, rng.random(steps))


@wrong(
    "A guard against repetition was left in the bonus step: the bonus token is never the last drafted token.",
    "the bonus token, small vocabularies or models that repeat",
)
def bonus_never_repeats(drafts, p, q, rng):
    n = _begin(drafts, p, q, rng)
    weights = _weights(p, q, n)
    full = np.flatnonzero(n == drafts.shape[1])
    banned = weights.copy()
    banned[full, drafts[full, -1]] = 0.0
    return _emit(drafts, n, _pick(_sound(banned, weights), rng.random(len(drafts))))


@wrong(
    "The recovered token is found by proposing from p and keeping with probability 1 - q / p; after 4 "
    "proposals the last one is taken as it is.",
    "rows where p is close to q, so that few proposals are kept",
)
def four_proposals_at_most(drafts, p, q, rng):
    steps, g = drafts.shape
    n = _begin(drafts, p, q, rng)
    target, drafted = _at(p, n), _at(q, np.minimum(n, g - 1))
    drafted[n == g] = 0.0
    rows = np.arange(steps)
    last = _pick(target, rng.random(steps))
    for _ in range(3):
        again = rng.random(steps) * target[rows, last] < drafted[rows, last]
        if not again.any():
            break
        last[again] = _pick(target[again], rng.random(int(again.sum())))
    return _emit(drafts, n, last)


@wrong(
    "The draft is cut before the first token to which q gives less than a third of its largest probability, "
    "and the target's row is sampled there: the cut depends on the token that is discarded.",
    "all rows, from the first token on",
)
def cut_before_unlikely_token(drafts, p, q, rng):
    steps, g = drafts.shape
    likely = _of_drafts(q, drafts) * 3 >= q.max(axis=2)
    tested = _tests(drafts, p, q, rng.random(drafts.shape))
    n = _prefix(tested & likely)
    cut = (n < g) & ~_at(likely, np.minimum(n, g - 1))
    weights = _weights(p, q, n)
    weights[cut] = _at(p, n)[cut]
    return _emit(drafts, n, _pick(weights, rng.random(steps)))
