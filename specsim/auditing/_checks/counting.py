"""Kernels that count emitted tokens, in one pass over the steps.

`tables` of a kernel are (positions of prefix tables, (prefixes, PIT, tail) of all tokens, the same of those
that end a step, edges of the tail bins, impossible, ids); see `counts.py`."""

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._streams import fill_uniforms

#: Steps that are counted place by place, so that what is known of them stays in the cache.
BLOCK = 1024


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
def count_by_table(tokens, accepted, stream, shifts, last, laws, by_ratio, by_p, tables, first):  # type: ignore[no-untyped-def]
    """Count tokens[γ+1, B] of laws[γ+1, C, V]: at place i row last[B, γ+1] of laws[i], or the only one.

    `by_ratio` and `by_p` are the mass below each token; first[B] is filled with the images of first tokens.
    `stream` is (key, purpose, first step) of the uniforms. Unless `shifts` [B, γ+1] is empty, tokens are read
    in the labels of the pair."""
    one_row, size = laws.shape[1] == 1, laws.shape[2]
    order, labels, texts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    images, ends = np.empty((3, BLOCK)), np.empty(tokens.shape[0] + 1, np.int64)
    for begin in range(0, tokens.shape[1], BLOCK):
        steps = min(BLOCK, tokens.shape[1] - begin)
        v = np.empty((-(-tokens.shape[0] // 3) * 3, steps))
        fill_uniforms(stream[0], stream[1], stream[2], stream[3] + begin, v)
        _sort_by_length(accepted[begin : begin + steps], order, ends)
        for i in range(tokens.shape[0]):
            law, of_ratio, of_p, v_here = laws[i], by_ratio[i], by_p[i], v[i]
            for k in range(ends[i], steps):
                labels[k] = tokens[i, begin + order[k]]
            if shifts.size > 0:
                for k in range(ends[i], steps):
                    x = labels[k] - shifts[begin + order[k], i]
                    labels[k] = x + size if x < 0 else x
            for k in range(ends[i], steps):
                row = np.uint64(0 if one_row else last[begin + order[k], i])
                x = np.uint64(labels[k])
                mass = law[row, x]
                inside = v_here[np.uint64(order[k])] * mass
                images[0, k] = mass
                images[1, k] = of_ratio[row, x] + inside
                images[2, k] = of_p[row, x] + inside
            if i == 0:
                for k in range(steps):
                    first[begin + order[k]] = images[1, k]
            _count_place(i, size, order[:steps], ends, labels, images, texts, tables)


@kernel
def count_by_rows(tokens, accepted, stream, p, q, tables, first):  # type: ignore[no-untyped-def]
    """The same for rows p[B, γ+1, V], q[B, γ, V]; at the bonus tokens are ordered by p alone."""
    size = p.shape[2]
    order, labels, texts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    images, ends = np.empty((3, BLOCK)), np.empty(tokens.shape[0] + 1, np.int64)
    ratio, some = np.empty(size), np.empty(size)
    for begin in range(0, tokens.shape[1], BLOCK):
        steps = min(BLOCK, tokens.shape[1] - begin)
        v = np.empty((-(-tokens.shape[0] // 3) * 3, steps))
        fill_uniforms(stream[0], stream[1], stream[2], stream[3] + begin, v)
        _sort_by_length(accepted[begin : begin + steps], order, ends)
        for i in range(tokens.shape[0]):
            for k in range(ends[i], steps):
                s = begin + order[k]
                x, row = np.int64(tokens[i, s]), p[s, i]
                inside = v[i, order[k]] * row[x]
                by_p = _mass_below(row, row, x, some)
                by_ratio = by_p
                if i < q.shape[1]:
                    for y in range(size):
                        mass = row[y]
                        ratio[y] = mass / q[s, i, y] if mass > 0.0 else 0.0
                    by_ratio = _mass_below(row, ratio, x, some)
                labels[k] = x
                images[0, k], images[1, k], images[2, k] = row[x], by_ratio + inside, by_p + inside
            if i == 0:
                for k in range(steps):
                    first[begin + order[k]] = images[1, k]
            _count_place(i, size, order[:steps], ends, labels, images, texts, tables)


@inner_kernel
def _sort_by_length(accepted, order, ends):  # type: ignore[no-untyped-def]
    """Fill `order` with the steps by length; order[ends[i] : ends[i+1]] have i accepted tokens."""
    ends[:] = 0
    for s in range(accepted.size):
        ends[accepted[s] + 1] += 1
    for i in range(1, ends.size):
        ends[i] += ends[i - 1]
    for s in range(accepted.size):
        order[np.uint64(ends[accepted[s]])] = s
        ends[accepted[s]] += 1
    for i in range(ends.size - 1, 0, -1):
        ends[i] = ends[i - 1]
    ends[0] = 0


@inner_kernel
def _count_place(i, size, order, ends, labels, images, texts, tables):  # type: ignore[no-untyped-def]
    """Count the tokens at place i of the steps from order[ends[i]] on; those before ends[i+1] end there.

    `labels` are the tokens, `images` their masses and their images by p/q and by p. texts[s] is the number
    whose digits are the tokens of step s before, and then this one too."""
    (
        positions,
        (prefixes, pit, tail),
        (prefixes_of_ends, pit_of_ends, tail_of_ends),
        edges,
        impossible,
        ids,
    ) = tables
    begin, end, steps, last = ends[i], ends[i + 1], order.size, edges.size - 1
    bins, edge, here, here_of_ends = pit.shape[1], edges[last - 1], pit[i], pit_of_ends[i]
    for k in range(begin, steps):
        b = pit_bin(images[1, k], bins)
        here[np.uint64(b)] += 1
        if k < end:
            here_of_ends[np.uint64(b)] += 1
    tail[i, last] += steps - begin
    tail_of_ends[i, last] += end - begin
    for k in range(begin, steps):
        if (images[2, k] < edge) | (images[0, k] == 0.0):  # seldom
            of_end, b = 1 if k < end else 0, pit_bin(images[1, k], bins)
            tail[i, last] -= 1
            tail_of_ends[i, last] -= of_end
            if images[0, k] == 0.0:
                impossible[i] += 1
                here[b] -= 1
                here_of_ends[b] -= of_end
            else:
                t = _tail_bin(images[2, k], edges)
                tail[i, t] += 1
                tail_of_ends[i, t] += of_end
    if ids.size > 0:
        for k in range(begin, steps):
            ids[labels[k]] += 1 if images[0, k] > 0.0 else 0
    if i < positions:
        shorter = 0
        for _ in range(i):
            shorter = (shorter + 1) * size
        for k in range(begin, steps):
            s = np.uint64(order[k])
            text = (texts[s] * size if i > 0 else 0) + labels[k]
            texts[s] = text
            prefixes[np.uint64(shorter + text)] += 1
            if k < end:
                prefixes_of_ends[np.uint64(shorter + text)] += 1


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
def pit_bin(rank, bins):  # type: ignore[no-untyped-def]
    """The bin of a number in [0, 1], which rounding may lead up to 1."""
    return min(np.int64(rank * bins), bins - 1)


@inner_kernel
def _tail_bin(rank, edges):  # type: ignore[no-untyped-def]
    """The first of the bins with these upper edges that holds `rank`."""
    b = 0
    while b < edges.size - 1 and rank >= edges[b]:
        b += 1
    return b
