"""Whether what an adapter's verifier or decoder emits has the target's law, in one p-value."""

import numpy as np
from scipy.stats import chi2

from specsim.core.distributions import dyadic, normalise
from specsim.core.stats import MIN_EXPECTED
from specsim.models import TableModel, chain
from specsim.simulation._rows import model_rows

VOCABULARY = 4


def markov_pair(seed=5, order=1):
    """A target and a draft whose rows differ in every context; each has an impossible token somewhere."""
    rng = np.random.default_rng(seed)
    shape = (VOCABULARY,) * (order + 1)
    tables = [normalise(rng.gamma(0.8, size=shape) + 0.02) for _ in range(2)]
    for table in tables:
        table[tuple(rng.integers(VOCABULARY, size=order + 1))] = 0.0
    return tuple(TableModel(dyadic(normalise(table))) for table in tables)


def p_value(emitted, target, start, law=lambda row: row):
    """The smallest chi-square p-value over positions, times their number; 0 if an impossible token came out.

    `emitted` are token lists after `start`; every token is compared with law(P(· | what came before it)),
    position by position, the tables of all contexts added up."""
    longest = max(len(tokens) for tokens in emitted)
    p_values = []
    for position in range(longest):
        counts = {}
        for tokens in emitted:
            if len(tokens) > position:
                seen = (*start, *tokens[:position])
                context = tuple(seen[len(seen) - target.order :])
                counts.setdefault(context, np.zeros(target.vocab_size, dtype=np.int64))[tokens[position]] += 1
        statistic, df = 0.0, 0
        for context, observed in counts.items():
            expected = law(np.asarray(target.row(context), dtype=float)) * observed.sum()
            if observed[expected == 0].any():
                return 0.0
            kept = expected >= MIN_EXPECTED
            if kept.sum() < 2:
                continue
            # the rare tokens join the commonest: the partition depends on the law alone
            cells = np.where(kept, np.arange(len(expected)), expected.argmax())
            o, e = (np.bincount(cells, weights, len(expected))[kept] for weights in (observed, expected))
            statistic, df = statistic + float(((o - e) ** 2 / e).sum()), df + len(o) - 1
        if df:
            p_values.append(chi2.sf(statistic, df))
    return min(1.0, min(p_values) * len(p_values))


def chain_p_value(verifier, steps, gamma=3):
    """`p_value` of a torch verifier of chains of γ drafts, over `steps` steps that all start after token
    0."""
    import torch

    target, draft = markov_pair()
    rows = rows_of(target, draft, chain(gamma), steps)
    q = torch.from_numpy(rows.q).float()
    output = verifier(
        torch.from_numpy(rows.draft_tokens), torch.from_numpy(rows.p).float(), q, np.random.default_rng(7)
    )
    return p_value([row[row >= 0].tolist() for row in np.asarray(output)], target, (0,))


def tree_p_value(verifier, steps, tree):
    """`p_value` of a torch verifier of trees; a path must lead from the root down the tree."""
    import torch

    target, draft = markov_pair()
    rows = rows_of(target, draft, tree, steps)
    rng, emitted = np.random.default_rng(7), []
    p, q = torch.from_numpy(rows.p).float(), torch.from_numpy(rows.q).float()
    for step, tokens in enumerate(rows.draft_tokens):
        path, last = verifier(np.array(tree.parents), tokens, p[step], q[step], rng)
        assert tuple(path) == tree.path(path[-1] if path else 0)
        emitted.append([*(int(tokens[node - 1]) for node in path), last])
    return p_value(emitted, target, (0,))


def decoder_p_value(decode, texts, order=1, laws=(lambda row: row,)):
    """`p_value` of a decoder, over `texts` runs of 5 tokens; of several `laws` for the same texts, a list."""
    target, draft = markov_pair(order=order)
    start, rng = (0,) * order, np.random.default_rng(7)
    emitted = [decode(target, draft, list(start), 5, None, rng) for _ in range(texts)]
    assert all(len(tokens) == 5 for tokens in emitted)
    found = [p_value(emitted, target, start, law) for law in laws]
    return found if len(found) > 1 else found[0]


def rows_of(target, draft, tree, steps):
    """Drafts of `steps` steps that start after token 0, with their rows."""
    return model_rows(target, draft, tree).rows_after(
        np.zeros((steps, 1), dtype=np.int32), np.random.default_rng(3).random((tree.size, steps))
    )
