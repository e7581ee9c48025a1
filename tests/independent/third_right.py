"""Right verifiers that look unusual: each is exact, and its docstring says why.

(draft_tokens [B, g], p [B, g+1, V], q [B, g, V], rng) -> tokens [B, g+1].
"""

import numpy as np

ENTRIES = []
MEMORY = {}


def reset():
    """Forget what earlier calls left."""
    MEMORY.clear()


def right(function):
    """List an exact verifier."""
    ENTRIES.append({"name": function.__name__, "mechanism": " ".join(function.__doc__.split()), "tv": None})
    return function


def _at(rows, n):
    return rows[np.arange(len(rows)), n]


def _of_drafts(rows, drafts):
    steps, g = drafts.shape
    return rows[np.arange(steps)[:, None], np.arange(g), drafts]


def _prefix(ok):
    return np.logical_and.accumulate(ok, axis=1).sum(axis=1)


def _sound(weights, otherwise):
    empty = weights.sum(axis=1) <= 0
    return np.where(empty[:, None], otherwise, weights) if empty.any() else weights


def _weights(p, q, n):
    g = q.shape[1]
    target = _at(p, n)
    weights = np.maximum(target - _at(q, np.minimum(n, g - 1)), 0.0)
    weights[n == g] = target[n == g]
    return _sound(weights, target)


def _legal(tokens, weights):
    size = weights.shape[1]
    bad = (tokens >= size) | (weights[np.arange(len(weights)), np.minimum(tokens, size - 1)] <= 0)
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


@right
def one_uniform_for_the_step(drafts, p, q, rng):
    """One uniform serves a whole step. Given that a test with threshold r passed, u / r is uniform again, and
    given that it failed (u - r) / (1 - r) is; this is what the next decision uses. Of what is left the
    leading 20 bits are kept and fresh ones are put behind them, so that it does not run out of bits."""
    steps, g = drafts.shape
    drafted = _of_drafts(q, drafts)
    ratio = np.minimum(
        np.divide(_of_drafts(p, drafts), drafted, out=np.ones_like(drafted), where=drafted > 0), 1.0
    )
    u = rng.random(steps)
    n = np.zeros(steps, dtype=np.int64)
    alive = np.ones(steps, dtype=bool)
    for k in range(g):
        r = ratio[:, k]
        ok = u < r
        inside = np.where(ok, u / np.where(r > 0, r, 1.0), (u - r) / np.where(r < 1, 1.0 - r, 1.0))
        inside = np.minimum(inside, 1.0 - 2.0**-53)
        u = np.where(alive, inside, u)
        n += alive & ok
        alive &= ok
        u = (np.floor(u * 2**20) + rng.random(steps)) / 2**20
    return _emit(drafts, n, _pick(_weights(p, q, n), u))


@right
def rows_stop_together_keeping_tokens(drafts, p, q, rng):
    """All rows stop where the first row of the call is rejected. A row that had accepted its token there
    keeps it as its last one. Whether a row goes on depends only on tokens that are already settled, so that
    each further token of each row has the target's law given all tokens of all rows before."""
    ok = rng.random(drafts.shape) * _of_drafts(q, drafts) < _of_drafts(p, drafts)
    n = _prefix(ok)
    stop = np.full_like(n, n.min())
    last = _pick(_weights(p, q, stop), rng.random(len(drafts)))
    if stop[0] < drafts.shape[1]:
        last = np.where(n > stop, drafts[:, stop[0]], last)
    return _emit(drafts, stop, last)


@right
def one_noise_table_for_test_and_race(drafts, p, q, rng):
    """The accept test of a position and the race for the recovered token share one table of exponential
    noise, e[x]: accepted if 1 - exp(-e[draft]) < p / q, recovered as the argmin of e / residual. After a
    rejection the residual of the drafted token is 0, so that the race never looks at the number that the test
    used."""
    steps, g = drafts.shape
    size = p.shape[2]
    rows = np.arange(steps)
    drafted, target = _of_drafts(q, drafts), _of_drafts(p, drafts)
    tested = rng.standard_exponential((steps, g))
    n = _prefix(-np.expm1(-tested) * drafted < target)
    noise = rng.standard_exponential((steps, size))
    below = np.minimum(n, g - 1)
    cut = n < g
    noise[rows[cut], drafts[rows, below][cut]] = tested[rows, below][cut]
    return _emit(drafts, n, np.argmax(_weights(p, q, n) / np.maximum(noise, 1e-300), axis=1))


@right
def block_rule(drafts, p, q, rng):
    """Block verification (Sun et al., arXiv 2403.10444): the tests look at the whole draft, a later token may
    rescue an earlier one, and the residual is (w p - q)+ with the running weight w of the prefix. The law of
    the text is the target's; that of a single position, given how far the step came, is not."""
    steps, g = drafts.shape
    target, drafted = _of_drafts(p, drafts), _of_drafts(q, drafts)
    weight = np.ones((steps, g + 1))
    for k in range(g):
        ratio = np.divide(target[:, k], drafted[:, k], out=np.ones(steps), where=drafted[:, k] > 0)
        weight[:, k + 1] = np.minimum(1.0, weight[:, k] * ratio)
    n = np.zeros(steps, dtype=np.int64)
    uniforms = rng.random((steps, g))
    for k in range(1, g + 1):
        if k == g:
            chance = weight[:, g]
        else:
            left = np.maximum(weight[:, k, None] * p[:, k] - q[:, k], 0.0).sum(axis=1)
            below = left + 1.0 - weight[:, k]
            chance = np.divide(left, below, out=np.ones(steps), where=below > 0)
        n[uniforms[:, k - 1] < chance] = k
    heavy = weight[np.arange(steps), n]
    residual = np.maximum(heavy[:, None] * _at(p, n) - _at(q, np.minimum(n, g - 1)), 0.0)
    residual[n == g] = _at(p, n)[n == g]
    return _emit(drafts, n, _pick(_sound(residual, _at(p, n)), rng.random(steps)))


@right
def quantile_coupling(drafts, p, q, rng):
    """There is no accept test: a drafted token is turned into a uniform in its interval of q's distribution
    function, and that is looked up in p's. The uniform is uniform given the past, so that the token found has
    the target's law; if it is the drafted one the step goes on, otherwise it is the last."""
    steps, g = drafts.shape
    rows = np.arange(steps)
    n = np.zeros(steps, dtype=np.int64)
    last = np.zeros(steps, dtype=np.int64)
    alive = rows
    for k in range(g):
        token = drafts[alive, k]
        below = np.cumsum(q[alive, k], axis=1)
        top = below[np.arange(len(alive)), token]
        u = np.clip((top - rng.random(len(alive)) * q[alive, k, token]) / below[:, -1], 0.0, 1.0 - 2.0**-53)
        found = _pick(p[alive, k], u)
        last[alive] = found
        alive = alive[found == token]
        n[alive] += 1
        if not len(alive):
            break
    if len(alive):
        last[alive] = _pick(p[alive, g], rng.random(len(alive)))
    return _emit(drafts, n, last)


@right
def proposals_from_the_target(drafts, p, q, rng):
    """The residual is never computed: tokens are proposed from p and kept with probability (1 - q / p)+,
    which gives (p - q)+ normalised. After 32 proposals that were not kept it is sampled directly, which is
    the same law, since proposals are independent of each other."""
    steps, g = drafts.shape
    n = _prefix(rng.random((steps, g)) * _of_drafts(q, drafts) < _of_drafts(p, drafts))
    target, drafted = _at(p, n), _at(q, np.minimum(n, g - 1))
    drafted[n == g] = 0.0
    sums = np.cumsum(target, axis=1)
    last = np.zeros(steps, dtype=np.int64)
    waiting = np.arange(steps)
    for _ in range(32):
        u = rng.random(len(waiting)) * sums[waiting, -1]
        token = _legal((sums[waiting] <= u[:, None]).sum(axis=1), target[waiting])
        kept = rng.random(len(waiting)) * target[waiting, token] >= drafted[waiting, token]
        last[waiting[kept]] = token[kept]
        waiting = waiting[~kept]
        if not len(waiting):
            break
    if len(waiting):
        last[waiting] = _pick(_weights(p, q, n)[waiting], rng.random(len(waiting)))
    return _emit(drafts, n, last)


@right
def accepts_half(drafts, p, q, rng):
    """A token is accepted with probability min(1, p / q) / 2, and the residual is p - min(p, q) / 2: the two
    add up to p. Even where p is q half of the tokens are rejected, and may be recovered as the same token."""
    steps, g = drafts.shape
    drafted = _of_drafts(q, drafts)
    n = _prefix(2.0 * rng.random((steps, g)) * drafted < np.minimum(_of_drafts(p, drafts), drafted))
    target = _at(p, n)
    weights = target - np.minimum(target, _at(q, np.minimum(n, g - 1))) / 2.0
    weights[n == g] = target[n == g]
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@right
def walk_around_from_rejected_token(drafts, p, q, rng):
    """The walk through the cumulated residual starts at the rejected token and goes around the vocabulary:
    the order of the ids does not matter, and the uniform is fresh. The batch is also worked off in random
    order."""
    steps, g = drafts.shape
    size = p.shape[2]
    order = rng.permutation(steps)
    ok = np.empty((steps, g), dtype=bool)
    ok[order] = rng.random((steps, g)) * _of_drafts(q, drafts)[order] < _of_drafts(p, drafts)[order]
    n = _prefix(ok)
    start = _at(drafts, np.minimum(n, g - 1))
    turned = np.take_along_axis(_weights(p, q, n), (start[:, None] + np.arange(size)) % size, axis=1)
    return _emit(drafts, n, (_pick(turned, rng.random(steps)) + start) % size)


@right
def stops_after_unlikely_token(drafts, p, q, rng):
    """A step stops testing after an accepted token to which p gave less than 0.2, and samples from p there.
    What is cut off depends only on tokens that are settled, not on the draft behind them. So its bonus tokens
    are mostly sampled before the end of the draft."""
    steps, g = drafts.shape
    target = _of_drafts(p, drafts)
    ok = rng.random((steps, g)) * _of_drafts(q, drafts) < target
    tested = np.ones((steps, g), dtype=bool)
    tested[:, 1:] = np.logical_and.accumulate(target[:, :-1] >= 0.2, axis=1)
    n = _prefix(ok & tested)
    stopped = (n < g) & ~_at(tested, np.minimum(n, g - 1))
    weights = _weights(p, q, n)
    weights[stopped] = _at(p, n)[stopped]
    return _emit(drafts, n, _pick(weights, rng.random(steps)))


@right
def every_second_call_ignores_the_draft(drafts, p, q, rng):
    """Calls take turns: one verifies, the next ignores its drafts and samples one token of p for each row,
    with a generator of its own that is seeded from rng. Both are exact, and whose turn it is depends on the
    number of calls only; acceptance jumps from call to call, the law of the tokens does not."""
    steps, g = drafts.shape
    MEMORY["calls"] = MEMORY.get("calls", 0) + 1
    own = np.random.default_rng(int(rng.integers(2**62)))
    if MEMORY["calls"] % 2 == 0:
        return _emit(drafts, np.zeros(steps, dtype=np.int64), _pick(p[:, 0], own.random(steps)))
    uniforms = own.random((g + 1, steps)).T
    n = _prefix(uniforms[:, :g] * _of_drafts(q, drafts) < _of_drafts(p, drafts))
    return _emit(drafts, n, _pick(_weights(p, q, n), uniforms[:, g]))
