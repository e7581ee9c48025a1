"""Eight verifiers that look unusual and are exact."""

import numpy as np

from sixth_verifiers import at, draft_at, draw, leading, pack, place, positive, rest

ENTRIES = []


def reset():
    """Nothing is kept between calls."""


def entry(mechanism):
    def add(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": "any", "tv": 0.0})
        return function

    return add


def emit(d, y, p, rng):
    """y: a token of the target for each place. Keep while it is the drafted one, emit the first other one, else a bonus."""
    n = leading(y == d)
    last = place(y, np.minimum(n, d.shape[1] - 1))
    return pack(d, n, np.where(n < d.shape[1], last, draw(p[:, -1], rng)))


@entry(
    "Coupling by the inverse distribution function: v is uniform in the interval of x in the draft's distribution function, "
    "and the target's token is the one whose interval holds v."
)
def one_interval(d, p, q, rng):
    """x ~ q and v | x uniform on [Q(x-), Q(x)) make v uniform on [0, 1). So y = P^-1(v) has the law p, given all before.
    y = x is an acceptance; otherwise y is emitted, and later places are not used. Places use numbers of their own."""
    below = at(np.cumsum(q, 2) - q, d)
    v = below + rng.random(d.shape) * at(q, d)
    cdf = np.cumsum(p[:, :-1], 2)
    y = np.minimum((cdf <= (v * cdf[:, :, -1])[:, :, None]).sum(2), p.shape[2] - 1)
    return emit(d, y, p, rng)


@entry(
    "Coupling by exponential clocks (Gumbel coupling): clocks given the draft's winner, the target takes its own winner."
)
def clocks(d, p, q, rng):
    """Let E_i be independent Exp(1) and x = argmin E_i / q_i, so x ~ q. Given x, T = E_x / q_x ~ Exp(1), and by lack of memory
    E_i = q_i T + Exp(1) for the others. So the clocks drawn here have, over x, the free law, and y = argmin E_i / p_i ~ p."""
    time = rng.exponential(size=d.shape)
    e = q * time[:, :, None] + rng.exponential(size=q.shape)
    np.put_along_axis(e, d[:, :, None], (at(q, d) * time)[:, :, None], 2)
    with np.errstate(divide="ignore"):
        y = np.where(p[:, :-1] > 0, e / p[:, :-1], np.inf).argmin(2)
    return emit(d, y, p, rng)


@entry(
    "One number for each place: what is left of a failed number, scaled back to [0, 1), draws the residual; the passed last "
    "number, scaled back, draws the bonus token."
)
def thrifty(d, p, q, rng):
    """Let a = min(1, p(x)/q(x)). Given u >= a, (u - a)/(1 - a) is uniform and independent of x and of the other numbers; given
    u < a, u/a is. So the draws from residual and from p at the end have uniform numbers independent of all that was decided."""
    u = rng.random(d.shape)
    a = np.minimum(1, at(p, d) / np.maximum(at(q, d), 1e-300))
    n = leading(u < a)
    i = np.minimum(n, d.shape[1] - 1)
    u, a = place(u, i), place(a, i)
    left = np.where(n < d.shape[1], (u - a) / np.maximum(1 - a, 1e-300), u / np.maximum(a, 1e-300))
    return pack(d, n, draw(rest(p, q, n), rng, np.clip(left, 0, 1 - 1e-12)))


@entry(
    "The residual is sampled by rejection from p until each row has its token; q is zero at the bonus place."
)
def residual_by_rejection(d, p, q, rng):
    """y ~ p kept with probability max(0, 1 - q(y)/p(y)) has weights p(y) max(0, 1 - q(y)/p(y)) = max(0, p(y) - q(y)), the
    residual's. A rejection has happened only if p(x) < q(x) for some x, so the residual has mass. (Mass under 1e-3: by inverse.)"""
    n = leading(rng.random(d.shape) * at(q, d) < at(p, d))
    pn, qn = place(p, n), draft_at(q, n)
    y = np.full(len(d), -1)
    todo = np.flatnonzero(np.maximum(pn - qn, 0).sum(1) > 1e-3)
    while len(todo):
        new = draw(pn[todo], rng)
        keep = rng.random(len(todo)) * pn[todo, new] < pn[todo, new] - qn[todo, new]
        y[todo[keep]] = new[keep]
        todo = todo[~keep]
    return pack(d, n, np.where(y < 0, draw(rest(p, q, n), rng), y))


@entry(
    "Block verification: the longest prefix that passes its own test, with h clamped and the residual max(h p - q, 0)."
)
def whole_block(d, p, q, rng):
    """h_0 = 1, h_i = min(1, h_(i-1) p(x_i)/q(x_i)); S_i = sum max(h_i p - q, 0). Prefix i passes with S_i / (S_i + 1 - h_i), the
    whole draft with h_gamma; the longest passing prefix t is kept and the next token has weights max(h_t p - q, 0), or p if all.
    Backwards in i, claim: a prefix i is kept or passed over to a longer one with probability h_i. For the last it is so. If it
    holds for i+1, a longer prefix is kept from x_1..x_i with sum q min(1, h_i p/q) = sum min(q, h_i p) = h_i - S_i; adding
    (1 - h_i + S_i) S_i / (S_i + 1 - h_i) = S_i gives h_i. And token y comes at place i+1 after x_1..x_i with min(q, h_i p)(y) +
    S_i max(h_i p - q, 0)(y) / S_i = h_i p(y): the target's law given that the prefix is output. h_0 = 1 starts it."""
    size, gamma = d.shape
    h, n, kept = np.ones(size), np.zeros(size, int), np.ones(size)
    ratio = at(p, d) / np.maximum(at(q, d), 1e-300)
    for i in range(1, gamma + 1):
        h = np.minimum(1, h * ratio[:, i - 1])
        s = np.maximum(h[:, None] * p[:, i] - q[:, i], 0).sum(1) if i < gamma else h
        passed = rng.random(size) * (s + 1 - h) < s
        n, kept = np.where(passed, i, n), np.where(passed, h, kept)
    return pack(d, n, draw(positive(kept[:, None] * place(p, n) - draft_at(q, n), place(p, n)), rng))


@entry(
    "After a rejection at n the next drafted token, which is a draw from the draft's row n + 1 and was not looked at, is tried "
    "as a second candidate for place n against the residual, with its own row."
)
def second_candidate(d, p, q, rng):
    """Given the first n + 1 drafts, y = d[n+1] has the law q[n+1], and neither u nor the residual r depends on it. Accepting y
    with min(1, r(y)/q'(y)) and else drawing max(r - q', 0) gives r for any pmf q' from which y is drawn, the usual proof."""
    gamma = d.shape[1]
    passed = rng.random(d.shape) * at(q, d) < at(p, d)
    n = leading(passed)
    w = rest(p, q, n)
    w = w / w.sum(1, keepdims=True)
    i = np.minimum(n + 1, gamma - 1)
    y, qi, again = place(d, i), place(q, i), n + 1 < gamma
    took = again & (rng.random(len(d)) * place(qi, y) < place(w, y))
    w = np.where(again[:, None], positive(w - qi, w), w)
    return pack(d, n, np.where(took, y, draw(w, rng)))


@entry(
    "Treats the draft as certain: accepts x with probability p(x), else draws from p without x. q is not used at all."
)
def certain_draft(d, p, q, rng):
    """For each fixed x the output is x with p(x), and y != x with (1 - p(x)) p(y) / (1 - p(x)) = p(y). So it is p given x, and
    p whatever the law of x is. (It accepts less than with q.)"""
    n = leading(rng.random(d.shape) < at(p, d))
    w = place(p, n).copy()
    hit = np.flatnonzero(n < d.shape[1])
    w[hit, d[hit, n[hit]]] = 0
    return pack(d, n, draw(positive(w, place(p, n)), rng))


@entry(
    "Works in logarithms, from the last place to the first, with tokens sorted by p/q: the residual's tokens are the sorted "
    "head; its logarithms plus Gumbel noise are maximised and the sorted index is mapped back."
)
def sorted_logs(d, p, q, rng):
    """-Exp(1) = log u, so log u + log q < log p is the usual test. For each place: log(p - q) = log p + log1p(-exp(log q - log p))
    where p > q; argmax of log weight + Gumbel noise is a draw from the weights. A place that fails overwrites what later places
    wrote, so the first failed place decides. All places have numbers of their own."""
    size, gamma = d.shape
    n, last = np.full(size, gamma), draw(p[:, -1], rng)
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in range(gamma - 1, -1, -1):
            order = np.argsort(-(p[:, i] / q[:, i]), 1)
            lp = np.log(np.take_along_axis(p[:, i], order, 1))
            lq = np.log(np.take_along_axis(q[:, i], order, 1))
            weight = np.where(lp > lq, lp + np.log1p(-np.exp(np.minimum(lq - lp, 0))), -np.inf)
            best = (weight + rng.gumbel(size=weight.shape)).argmax(1)
            y = np.take_along_axis(order, best[:, None], 1)[:, 0]
            x = d[:, i]
            fail = -rng.exponential(size=size) + np.log(place(q[:, i], x)) >= np.log(place(p[:, i], x))
            n, last = np.where(fail, i, n), np.where(fail, y, last)
    return pack(d, n, last)
