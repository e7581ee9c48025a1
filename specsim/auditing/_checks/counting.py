"""Kernels that count emitted tokens, in one pass over the steps.

`tables` of a kernel are (positions of prefix tables, (prefixes, PIT, tail) of all tokens, the same of those
that end a step, edges of the tail bins, impossible, ids); see `counts.py`."""

import numpy as np

from specsim.core._kernels import inner_kernel, kernel


@kernel
def count_prefixes(tokens, vocab_size, positions, table):  # type: ignore[no-untyped-def]
    """Count tokens[L, B] into table: for each position i in turn, V^i prefixes of V counts each."""
    for s in range(tokens.shape[1]):
        start, prefix, size = 0, 0, vocab_size
        for i in range(positions):
            token = tokens[i, s]
            if token < 0:
                break
            prefix = prefix * vocab_size + token
            table[start + prefix] += 1
            start += size
            size *= vocab_size


@kernel
def count_by_table(tokens, accepted, v, shifts, last, laws, by_ratio, by_p, tables, first):  # type: ignore[no-untyped-def]
    """Count tokens[γ+1, B] of laws[γ+1, C, V]: at place i row last[B, γ+1] of laws[i], or the only one.

    `by_ratio` and `by_p` are the mass below each token; first[B] is filled with the images of first tokens.
    Unless `shifts` [B, γ+1] is empty, tokens are read in the labels of the pair."""
    one_row, shifted, size = laws.shape[1] == 1, shifts.size > 0, laws.shape[2]
    for s in range(tokens.shape[1]):
        text, shorter = 0, 0
        for i in range(accepted[s] + 1):
            x = np.int64(tokens[i, s])
            if shifted:
                x -= shifts[s, i]
                x += size if x < 0 else 0
            row = 0 if one_row else last[s, i]
            mass = laws[i, row, x]
            inside = v[i, s] * mass
            rank = by_ratio[i, row, x] + inside
            if i == 0:
                first[s] = rank
            ends = i == accepted[s]
            if i < tables[0]:
                text = text * size + x
                _add_prefix(shorter + text, ends, tables)
                shorter = (shorter + 1) * size
            _add_token(i, x, ends, mass, rank, by_p[i, row, x] + inside, tables)


@kernel
def count_by_rows(tokens, accepted, v, p, q, tables, first):  # type: ignore[no-untyped-def]
    """The same for rows p[B, γ+1, V], q[B, γ, V]; at the bonus tokens are ordered by p alone."""
    size = p.shape[2]
    ratio, some = np.empty(size), np.empty(size)
    for s in range(tokens.shape[1]):
        text, shorter = 0, 0
        for i in range(accepted[s] + 1):
            x = np.int64(tokens[i, s])
            mass, by_p = p[s, i, x], _mass_below(p[s, i], p[s, i], x, some)
            by_ratio = by_p
            if i < q.shape[1]:
                for y in range(size):
                    own = p[s, i, y]
                    ratio[y] = own / q[s, i, y] if own > 0.0 else 0.0
                by_ratio = _mass_below(p[s, i], ratio, x, some)
            inside = v[i, s] * mass
            if i == 0:
                first[s] = by_ratio + inside
            ends = i == accepted[s]
            if i < tables[0]:
                text = text * size + x
                _add_prefix(shorter + text, ends, tables)
                shorter = (shorter + 1) * size
            _add_token(i, x, ends, mass, by_ratio + inside, by_p + inside, tables)


@kernel
def count_dependence(first, neighbours, calls):  # type: ignore[no-untyped-def]
    """Count the images first[B] of the first tokens of a batch, verified in two calls, one for each half.

    neighbours[2, 16] gets the pairs of quarters of steps side by side, and of steps at the same place of both
    calls; calls[2, bins + 1] the counts by bin of each call, and their squares, last the number of calls and
    the squares of their sizes."""
    steps, bins = first.size, calls.shape[1] - 1
    half, quarter = (steps + 1) // 2, bins // 4
    found, quarters = np.zeros((2, bins), np.int64), np.empty(steps, np.int8)
    for s in range(steps):
        b = pit_bin(first[s], bins)
        found[0 if s < half else 1, b] += 1
        quarters[s] = b // quarter
        if s % 2:
            neighbours[0, quarters[s - 1] * 4 + quarters[s]] += 1
    for s in range(half, steps):
        neighbours[1, quarters[s - half] * 4 + quarters[s]] += 1
    for call, size in ((found[0], half), (found[1], steps - half)):
        if size > 0:
            calls[0, bins] += 1
            calls[1, bins] += size**2
            for b in range(bins):
                calls[0, b] += call[b]
                calls[1, b] += call[b] ** 2


@inner_kernel
def _mass_below(p, score, x, some):  # type: ignore[no-untyped-def]
    """The mass of the tokens before x in order of `score`, ties by token; `some` [V] is overwritten.

    It is the sum of eight sums, since the additions of one sum have to wait for each other."""
    goal, whole = score[x], p.size // 8 * 8
    for y in range(x):
        mass = p[y]
        some[y] = mass if score[y] <= goal else 0.0
    for y in range(x, p.size):
        mass = p[y]
        some[y] = mass if score[y] < goal else 0.0
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for y in range(0, whole, 8):
        a += some[y]
        b += some[y + 1]
        c += some[y + 2]
        d += some[y + 3]
        e += some[y + 4]
        f += some[y + 5]
        g += some[y + 6]
        h += some[y + 7]
    for y in range(whole, p.size):
        a += some[y]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@inner_kernel
def _add_prefix(place, ends, tables):  # type: ignore[no-untyped-def]
    """Count the token at this place of the prefix tables."""
    _, (prefixes, _, _), (of_ends, _, _), _, _, _ = tables
    prefixes[place] += 1
    if ends:
        of_ends[place] += 1


@inner_kernel
def _add_token(i, x, ends, mass, by_ratio, by_p, tables):  # type: ignore[no-untyped-def]
    """Count token x at position i in PIT bins, in tail bins, and where ids are counted; or as impossible."""
    _, (_, pit, tail), (_, pit_of_ends, tail_of_ends), edges, impossible, ids = tables
    if mass == 0.0:
        impossible[i] += 1
        return
    if ids.size > 0:
        ids[x] += 1
    of_pit, of_tail = pit_bin(by_ratio, pit.shape[1]), _tail_bin(by_p, edges)
    pit[i, of_pit] += 1
    tail[i, of_tail] += 1
    if ends:
        pit_of_ends[i, of_pit] += 1
        tail_of_ends[i, of_tail] += 1


@inner_kernel
def pit_bin(rank, bins):  # type: ignore[no-untyped-def]
    """The bin of a number in [0, 1], which rounding may lead up to 1."""
    return min(np.int64(rank * bins), bins - 1)


@inner_kernel
def _tail_bin(rank, edges):  # type: ignore[no-untyped-def]
    """The first of the bins with these upper edges that holds `rank`; most are in the last."""
    b = edges.size - 1
    while b > 0 and rank < edges[b - 1]:
        b -= 1
    return b
