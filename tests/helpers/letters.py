"""A small pair of laws whose tokens are letters, and the law of what a decoder makes of them."""

import numpy as np
from scipy.stats import chi2

from specsim.core.distributions import normalise
from specsim.core.stats import log_pooled_e_values
from specsim.engines._planted.law import Law, TableLogits
from specsim.engines._planted.processing import Seen, processed
from specsim.engines._planted.requests import Sampling
from specsim.engines._server.decoding import Decoder

WORDS = 5
PLAIN = Sampling()


class Letters:
    """A target and a draft over `WORDS` words, a, b, …; openers are A, B. Id `WORDS` never comes."""

    eos, context, digest, heads = WORDS, 256, "0123456789abcdef", None

    def __init__(self, offsets=(1, 2), openers=0, seed=0, memory=None, experts=0):
        self.defaults = {}
        rng = np.random.default_rng(seed)
        sizes = (WORDS,) * len(offsets) + (WORDS + 1,) * bool(memory) + (experts,) * bool(experts)
        sizes += (openers,) * bool(openers)
        table = rng.integers(-40, 1, size=(*sizes, WORDS)) / 16
        other = table + rng.integers(-16, 17, size=table.shape) / 16
        ids = tuple(range(WORDS + 1, WORDS + 1 + openers))
        self.target, self.draft = (
            Law(WORDS + 1 + openers, offsets, ids, TableLogits(logits), memory, experts)
            for logits in (table, other)
        )
        self.letters = [*"abcde", "|", *"ABCDEF"[:openers]]

    def encode(self, text):
        for place, letter in enumerate(text):
            if letter not in self.letters:
                raise ValueError(f"text, character {place}: {letter!r} is no token")
        return [self.letters.index(letter) for letter in text]

    def decode(self, tokens):
        return "".join(self.letters[token] for token in tokens)

    def prompts(self, count, length, rng):
        """Random prompts, of which every second is longer by 3 tokens."""
        found = rng.integers(WORDS, size=(count, length + 3))
        if self.target.openers:
            found[:, 0] = rng.choice(self.target.openers, size=count)
        return [tuple(row[: length + 3 * (i % 2)].tolist()) for i, row in enumerate(found)]


def decoded(pair, requests, **options):
    """The completions of `requests`, in their order."""
    decoder, found = Decoder(pair, **options), []
    for request in requests:
        decoder.add(request)
    while decoder.busy:
        found += decoder.step()
    return sorted(found, key=lambda one: (one.number, one.index))


def tables_of(pair, requests, completions, sampling):
    """The law, and the counts, of the tokens after each context that the target reads."""
    prompts = {request.number: request.prompt for request in requests}
    rows, tokens = [], []
    for one in completions:
        text = np.array(prompts[one.number] + one.tokens)
        start = len(prompts[one.number])
        places = np.arange(start, len(text))
        seen = Seen(text[None], np.array([start]), np.zeros_like(places), places)
        scores = pair.target.scores(pair.target.contexts(text, start))
        rows.append(processed(scores, sampling, seen=seen))
        tokens.append(text[start:])
    # rounded, so that rows of one distribution are counted together
    distinct, which = np.unique(np.concatenate(rows).round(12), axis=0, return_inverse=True)
    counts = np.zeros(distinct.shape, dtype=np.int64)
    np.add.at(counts, (which.ravel(), np.concatenate(tokens)), 1)
    return normalise(distinct), counts


def log_pooled_e_value(tables):
    """The log e-value against several tables (counts, pmf)."""
    counts, laws = ([np.asarray(part) for part in parts] for parts in zip(*tables, strict=True))
    starts = np.cumsum([0, *map(len, laws[:-1])])
    return float(log_pooled_e_values(np.concatenate(counts)[None], np.concatenate(laws), starts)[0])


def log_e(pair, requests, completions, sampling=PLAIN):
    """The log e-value of the tokens against the target's law: of a right engine, whatever numbers it draws, it
    reaches log(1/a) with probability a at most."""
    rows, counts = tables_of(pair, requests, completions, sampling)
    if counts[rows == 0].any():
        return np.inf
    return log_pooled_e_value(
        [(seen[row > 0], row[row > 0]) for row, seen in zip(rows, counts, strict=True) if (row > 0).sum() > 1]
    )


def p_value(pair, requests, completions, sampling=PLAIN):
    """The chi-square p-value of the tokens given what the target reads; 0 for an impossible token."""
    rows, counts = tables_of(pair, requests, completions, sampling)
    if counts[rows == 0].any():
        return 0.0
    expected = rows * counts.sum(axis=1, keepdims=True)
    kept = (expected >= 5).all(axis=1, where=rows > 0) & ((rows > 0).sum(axis=1) > 1)
    statistic = ((counts - expected) ** 2)[kept] / np.where(rows > 0, expected, 1.0)[kept]
    return float(chi2.sf(statistic.sum(), (rows[kept] > 0).sum() - kept.sum()))
