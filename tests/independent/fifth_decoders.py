"""Decoders for testing an auditor of speculative decoding: 28 wrong ones (ENTRIES) and 6 right ones (RIGHT).

Each is a function decoder(target, draft, prompt, max_new_tokens, eos, rng) -> list of new token ids. The first 14
wrong ones are mistakes of the textbook kind, the other 14 are unusual; "looks like" in a docstring names the textbook
mistake (or the sound method) that it could be taken for. The tv of an entry is what its author measured for the
first three new tokens on its own random models; other models give other figures. reset() forgets all that decoders
keep between calls.
"""

from functools import wraps

import numpy as np

ENTRIES = []
RIGHT = []
MEMORY = {}


def reset():
    """Forgets all that decoders keep between calls."""
    MEMORY.clear()


def register(function, entries, tv):
    """Declares the function a decoder and lists it."""

    @wraps(function)
    def decoder(target, draft, prompt, max_new_tokens, eos, rng):
        return function(rows_of(target), rows_of(draft), prompt, max_new_tokens, eos, rng)

    decoder.declared = {"decoder": True}
    mechanism = " ".join(function.__doc__.split())
    entries.append({"name": function.__name__, "mechanism": mechanism, "shape": "decoder", "tv": tv})
    return decoder


def rows_of(model):
    """text -> row of the model, which is such a function or has one."""
    row = getattr(model, "row", model)
    return lambda text: np.asarray(row(tuple(text)), dtype=np.float64)


def wrong(tv):
    """Lists a wrong decoder with its measured total variation."""
    return lambda function: register(function, ENTRIES, tv)


def right(function):
    """Lists a right decoder."""
    return register(function, RIGHT, 0.0)


# Helpers


def draw(row, rng, u=None):
    """One token of a row, which need not sum to one; u takes the place of a fresh uniform number."""
    sums = np.cumsum(row)
    place = (rng.random() if u is None else u) * sums[-1]
    return min(int(np.searchsorted(sums, place, side="right")), len(sums) - 1)


def residual(p, q):
    """The part of p above q, not normalised; p itself where nothing is above."""
    rest = np.maximum(p - q, 0.0)
    return rest if rest.sum() > 1e-12 else p


def heated(row, temperature):
    """The row at another temperature."""
    powers = np.asarray(row) ** (1.0 / temperature)
    return powers / powers.sum()


def propose(draft, text, count, rng):
    """Count draft tokens after the text, and the rows they were drawn from."""
    tokens, rows = [], []
    for _ in range(count):
        rows.append(draft(text + tokens))
        tokens.append(draw(rows[-1], rng))
    return tokens, rows


def score(target, text, tokens):
    """The target's rows at each token's place and at the place after the last."""
    return [target(text + tokens[:i]) for i in range(len(tokens) + 1)]


def verify(tokens, q_rows, p_rows, rng, coin=None, correct=None, bonus=None):
    """The standard test: (new tokens, how many were accepted). Other coins, corrections and bonus may be given."""
    for i, token in enumerate(tokens):
        u = coin(i) if coin else rng.random()
        if u * q_rows[i][token] >= p_rows[i][token]:
            last = correct(i, u) if correct else draw(residual(p_rows[i], q_rows[i]), rng)
            return tokens[:i] + [last], i
    last = bonus() if bonus else draw(p_rows[-1], rng)
    return tokens + [last], len(tokens)


def ended(tokens, eos):
    """Whether eos is among the tokens."""
    return eos is not None and eos in tokens


def cut(tokens, limit, eos):
    """The tokens up to the limit and up to the first eos."""
    tokens = tokens[:limit]
    return tokens[: tokens.index(eos) + 1] if ended(tokens, eos) else tokens


def loop(prompt, limit, eos, step):
    """Adds the tokens of step(text) until the answer is complete."""
    out = []
    while len(out) < limit and not ended(out, eos):
        out += step(list(prompt) + out)
    return cut(out, limit, eos)


# Wrong decoders: mistakes of the textbook kind


@wrong(tv=0.124)
def correction_from_target(target, draft, prompt, max_new_tokens, eos, rng):
    """After a rejection the new token is drawn from the whole target row, not from the residual."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)
        return verify(tokens, q_rows, p_rows, rng, correct=lambda i, u: draw(p_rows[i], rng))[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.297)
def last_slot_filled_by_draft(target, draft, prompt, max_new_tokens, eos, rng):
    """When only one more token fits, a draft token is emitted and the target is not asked."""

    def step(text):
        if len(text) - len(prompt) == max_new_tokens - 1:
            return propose(draft, text, 1, rng)[0]
        tokens, q_rows = propose(draft, text, 1, rng)
        new = verify(tokens, q_rows, score(target, text, tokens), rng)[0]
        return new[: max(1, max_new_tokens - 1 - (len(text) - len(prompt)))]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.659)
def target_rows_one_late(target, draft, prompt, max_new_tokens, eos, rng):
    """Each draft token is tested, and corrected, with the target row of the place after it (off by one)."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        return verify(tokens, q_rows, score(target, text, tokens)[1:], rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.288)
def bonus_from_draft(target, draft, prompt, max_new_tokens, eos, rng):
    """When all draft tokens are accepted, the extra token is drawn from the draft's row instead of the target's."""

    def step(text):
        tokens, q_rows = propose(draft, text, 1, rng)
        p_rows = score(target, text, tokens)
        return verify(tokens, q_rows, p_rows, rng, bonus=lambda: draw(draft(text + tokens), rng))[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.273)
def target_cache_keeps_rejected(target, draft, prompt, max_new_tokens, eos, rng):
    """The target's cache is not rolled back: a rejected token stays in front of its correction in all later rows."""
    cached = list(prompt)

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        new, accepted = verify(tokens, q_rows, score(target, cached, tokens), rng)
        cached.extend(tokens[: accepted + 1] + new[-1:])
        return new

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.149)
def draft_temperature_missing_in_ratio(target, draft, prompt, max_new_tokens, eos, rng):
    """Draft tokens are drawn at temperature 0.6, but test and residual use the draft's row at temperature 1."""

    def step(text):
        tokens, _ = propose(lambda words: heated(draft(words), 0.6), text, 2, rng)
        q_rows = [draft(text + tokens[:i]) for i in range(2)]
        return verify(tokens, q_rows, score(target, text, tokens), rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.174)
def cut_draft_row_not_renormalised(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft row is cut to its top 2 and drawn from as a whole, but the test takes the cut row's raw numbers."""

    def top(words):
        row = draft(words)
        return np.where(row >= np.sort(row)[-2], row, 0.0)

    def step(text):
        tokens, q_rows = propose(top, text, 2, rng)
        return verify(tokens, q_rows, score(target, text, tokens), rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.542)
def greedy_draft_tested_as_sampled(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft proposes its likeliest token each time, and the test treats it as a sample of the draft's row."""

    def step(text):
        tokens, q_rows = [], []
        for _ in range(2):
            q_rows.append(draft(text + tokens))
            tokens.append(int(np.argmax(q_rows[-1])))
        return verify(tokens, q_rows, score(target, text, tokens), rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.096)
def one_coin_per_step(target, draft, prompt, max_new_tokens, eos, rng):
    """One uniform number serves for all acceptance tests of a step."""

    def step(text):
        tokens, q_rows = propose(draft, text, 3, rng)
        u = rng.random()
        return verify(tokens, q_rows, score(target, text, tokens), rng, coin=lambda i: u)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.075)
def coin_reused_for_correction(target, draft, prompt, max_new_tokens, eos, rng):
    """The uniform number that led to a rejection is used again to draw the correction from the residual."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)

        def correct(i, u):
            return draw(residual(p_rows[i], q_rows[i]), rng, u)

        return verify(tokens, q_rows, p_rows, rng, correct=correct)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.104)
def redraft_after_rejection(target, draft, prompt, max_new_tokens, eos, rng):
    """When the first draft token is rejected, a new draft is tried by the same test, up to three drafts in all."""

    def step(text):
        for _ in range(3):
            tokens, q_rows = propose(draft, text, 2, rng)
            new, accepted = verify(tokens, q_rows, score(target, text, tokens), rng)
            if accepted:
                break
        return new

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.275)
def tokens_kept_after_eos(target, draft, prompt, max_new_tokens, eos, rng):
    """Only the last token of each step is compared with eos, so the answer goes on after an accepted eos."""
    out = []
    while len(out) < max_new_tokens and not (out and out[-1] == eos):
        text = list(prompt) + out
        tokens, q_rows = propose(draft, text, 2, rng)
        out += verify(tokens, q_rows, score(target, text, tokens), rng)[0]
    return out[:max_new_tokens]


@wrong(tv=0.112)
def tree_second_child_tested_against_target(target, draft, prompt, max_new_tokens, eos, rng):
    """Two candidates are drawn for each place; after the first is rejected the second is tested with the target row,
    not with the residual that the first one left."""

    def step(text):
        p, q = target(text), draft(text)
        for _ in range(2):
            token = draw(q, rng)
            if rng.random() * q[token] < p[token]:
                return [token, draw(target(text + [token]), rng)]
        return [draw(residual(p, q), rng)]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.139)
def greedy_correction(target, draft, prompt, max_new_tokens, eos, rng):
    """After a rejection the likeliest token of the residual is taken, not a sample of it."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)

        def correct(i, u):
            return int(np.argmax(residual(p_rows[i], q_rows[i])))

        return verify(tokens, q_rows, p_rows, rng, correct=correct)[0]

    return loop(prompt, max_new_tokens, eos, step)


# Wrong decoders: unusual mistakes


@wrong(tv=0.086)
def block_product_one_coin(target, draft, prompt, max_new_tokens, eos, rng):
    """Keeps the longest prefix whose product of ratios p/q is above a single coin, and corrects by the ordinary
    residual of the next place. Looks like block verification, or like one coin for all tests."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)
        u, product, kept = rng.random(), 1.0, 0
        for i, token in enumerate(tokens):
            product *= p_rows[i][token] / q_rows[i][token]
            kept = i + 1 if u < product else kept
        last = p_rows[-1] if kept == len(tokens) else residual(p_rows[kept], q_rows[kept])
        return tokens[:kept] + [draw(last, rng)]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.121)
def bonus_tested_again(target, draft, prompt, max_new_tokens, eos, rng):
    """The extra token drawn from the target is held over as the next step's first draft token and tested there as if
    the draft had drawn it. Looks like an extra token drawn from the wrong row."""
    held = []

    def step(text):
        tokens, q_rows = (list(held), [draft(text)]) if held else propose(draft, text, 1, rng)
        held.clear()
        new, accepted = verify(tokens, q_rows, score(target, text, tokens), rng)
        if accepted:
            held.append(new.pop())
        return new

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.072)
def coin_carried_to_next_step(target, draft, prompt, max_new_tokens, eos, rng):
    """The first test of a step uses the coin that decided the last test of the step before, so a rejection is likely
    to be followed by another. Looks like one coin for all tests, but within a step the coins are fresh."""
    carried = []

    def coin(i):
        u = carried.pop() if carried and i == 0 else rng.random()
        carried[:] = [u]
        return u

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        return verify(tokens, q_rows, score(target, text, tokens), rng, coin=coin)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.096)
def correction_without_earlier_rejects(target, draft, prompt, max_new_tokens, eos, rng):
    """A correction is drawn from the target row without all tokens rejected since the request began. Looks like a
    correction from the whole target row."""
    banned = set()

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)

        def correct(i, u):
            banned.add(tokens[i])
            row = np.array([0.0 if token in banned else chance for token, chance in enumerate(p_rows[i])])
            return draw(row if row.sum() > 0 else p_rows[i], rng)

        return verify(tokens, q_rows, p_rows, rng, correct=correct)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.167)
def residual_with_neighbour_draft_row(target, draft, prompt, max_new_tokens, eos, rng):
    """The test is right, but the residual subtracts the draft's row of the other place in the step. Looks like rows
    off by one, or like a correction from the target row."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)

        def correct(i, u):
            return draw(residual(p_rows[i], q_rows[1 - i]), rng)

        return verify(tokens, q_rows, p_rows, rng, correct=correct)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.329)
def bonus_missing_from_cache(target, draft, prompt, max_new_tokens, eos, rng):
    """After a fully accepted step the extra token never enters the target's cache, so later rows do not see it. Looks
    like a cache that is not rolled back, but what is rejected is dropped as it should be."""
    cached = list(prompt)

    def step(text):
        tokens, q_rows = propose(draft, text, 1, rng)
        new, accepted = verify(tokens, q_rows, score(target, cached, tokens), rng)
        cached.extend(tokens if accepted else new)
        return new

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.102)
def sharper_target_after_rejection(target, draft, prompt, max_new_tokens, eos, rng):
    """In the step after a rejection the target's rows are taken at temperature 0.5, in test, residual and extra token
    alike. Looks like a temperature on one side only, but the first step is right."""
    rejected = []

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)
        if rejected and rejected[-1]:
            p_rows = [heated(row, 0.5) for row in p_rows]
        new, accepted = verify(tokens, q_rows, p_rows, rng)
        rejected.append(accepted < len(tokens))
        return new

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.198)
def draft_cut_before_eos(target, draft, prompt, max_new_tokens, eos, rng):
    """A drafted eos is dropped with all after it, and if the rest is accepted the target row of its place gives the
    extra token. Looks like sound handling of eos, but makes eos rarer; with no eos it is right."""

    def step(text):
        tokens, q_rows = propose(draft, text, 3, rng)
        tokens = tokens[: tokens.index(eos)] if ended(tokens, eos) else tokens
        return verify(tokens, q_rows, score(target, text, tokens), rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.097)
def batch_cut_resamples(target, draft, prompt, max_new_tokens, eos, rng):
    """Three neighbours in the batch have the same text, all are cut to the shortest accepted length, and a request that
    had accepted more draws its next token afresh from the target row, dropping the accepted one."""

    def step(text):
        shortest = 2
        for _ in range(3):
            others, q_rows = propose(draft, text, 2, rng)
            shortest = min(shortest, verify(others, q_rows, score(target, text, others), rng)[1])
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)
        new, accepted = verify(tokens, q_rows, p_rows, rng)
        return new if accepted <= shortest else tokens[:shortest] + [draw(p_rows[shortest], rng)]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.406)
def row_cache_by_length_and_last_token(target, draft, prompt, max_new_tokens, eos, rng):
    """Target rows are kept between requests under a key of length and last token only, so a row first computed for
    another text is served; which rows are frozen depends on what came first."""
    cache = MEMORY.setdefault("rows", {"owner": target})
    if cache["owner"] is not target:
        cache.clear()
        cache["owner"] = target

    def cached(words):
        key = (len(words), words[-1] if words else None)
        if key not in cache:
            cache[key] = target(words)
        return cache[key]

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        return verify(tokens, q_rows, score(cached, text, tokens), rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.177)
def lenience_from_past_requests(target, draft, prompt, max_new_tokens, eos, rng):
    """A running acceptance rate is kept between requests; while it is below 0.85, coins are multiplied by 0.5 so that
    more is accepted."""
    rate = MEMORY.setdefault("lenience", [0.5])

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        factor = 0.5 if rate[0] < 0.85 else 1.0
        new, accepted = verify(
            tokens, q_rows, score(target, text, tokens), rng, coin=lambda i: factor * rng.random()
        )
        rate[0] += 0.1 * (accepted / len(tokens) - rate[0])
        return new

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.115)
def redo_after_poor_acceptance(target, draft, prompt, max_new_tokens, eos, rng):
    """An answer in which fewer than 60 per cent of the draft tokens were accepted counts as failed and the whole
    request is run again, up to four times; each run by itself is right."""
    for _ in range(4):
        counts = []

        def step(text):
            tokens, q_rows = propose(draft, text, 2, rng)
            new, accepted = verify(tokens, q_rows, score(target, text, tokens), rng)
            counts.append(accepted)
            return new

        out = loop(prompt, max_new_tokens, eos, step)
        if sum(counts) >= 0.6 * 2 * len(counts):
            break
    return out


@wrong(tv=0.171)
def penalty_from_drafted_tokens(target, draft, prompt, max_new_tokens, eos, rng):
    """The target's rows inside a step carry a repetition penalty (a third of the chance) for tokens drafted earlier in
    that same step, and for no others."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = []
        for i, row in enumerate(score(target, text, tokens)):
            row = np.array(row)
            row[sorted(set(tokens[:i]))] /= 3.0
            p_rows.append(row / row.sum())
        return verify(tokens, q_rows, p_rows, rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@wrong(tv=0.159)
def ratio_of_quantised_chances(target, draft, prompt, max_new_tokens, eos, rng):
    """The test compares chances rounded to sixths, while draft tokens, residual and extra token use the exact rows."""

    def step(text):
        tokens, q_rows = propose(draft, text, 2, rng)
        p_rows = score(target, text, tokens)
        for i, token in enumerate(tokens):
            if rng.random() * np.round(6 * q_rows[i][token]) > np.round(6 * p_rows[i][token]):
                return tokens[:i] + [draw(residual(p_rows[i], q_rows[i]), rng)]
        return tokens + [draw(p_rows[-1], rng)]

    return loop(prompt, max_new_tokens, eos, step)


# Right decoders


@right
def random_length_and_stale_draft(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft has a random length from 0 to 4 and its cache still holds rejected tokens, but test and residual use
    the rows it was really drawn from, so only speed suffers."""
    stale = list(prompt)

    def step(text):
        tokens, q_rows = propose(draft, stale, int(rng.integers(5)), rng)
        new, accepted = verify(tokens, q_rows, score(target, text, tokens), rng)
        stale.extend(tokens[: accepted + 1] + new[-1:])
        return new

    return loop(prompt, max_new_tokens, eos, step)


@right
def length_from_past_acceptance(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft length goes up by one after a fully accepted step and down by one after any other, within 1 to 5, and
    is kept between requests."""
    length = MEMORY.setdefault("length", [2])

    def step(text):
        tokens, q_rows = propose(draft, text, length[0], rng)
        new, accepted = verify(tokens, q_rows, score(target, text, tokens), rng)
        length[0] = min(length[0] + 1, 5) if accepted == len(tokens) else max(length[0] - 1, 1)
        return new

    return loop(prompt, max_new_tokens, eos, step)


@right
def draft_from_ngrams_of_text(target, draft, prompt, max_new_tokens, eos, rng):
    """Up to three tokens that followed the last earlier place of the text's last token are proposed with certainty
    (one-hot rows); the draft model is not used."""

    def step(text):
        places = [i for i in range(len(text) - 1) if text[i] == text[-1]]
        tokens = text[places[-1] + 1 : places[-1] + 4] if places else []
        p_rows = score(target, text, tokens)
        q_rows = [np.eye(len(p_rows[0]))[token] for token in tokens]
        return verify(tokens, q_rows, p_rows, rng)[0]

    return loop(prompt, max_new_tokens, eos, step)


@right
def tree_with_recursive_rejection(target, draft, prompt, max_new_tokens, eos, rng):
    """A tree of two different first tokens, the second drawn from the draft row without the first; the second is tested
    with the residual that the first one left, and a token accepted is followed by one drafted and tested as usual."""

    def step(text):
        p, q = target(text), draft(text)
        for _ in range(2):
            token = draw(q, rng)
            if rng.random() * q[token] < p[token]:
                text = text + [token]
                tokens, q_rows = propose(draft, text, 1, rng)
                return [token] + verify(tokens, q_rows, score(target, text, tokens), rng)[0]
            p = residual(p, q)
            p = p / p.sum()
            q = np.where(np.arange(len(q)) == token, 0.0, q)
            if q.sum() < 1e-12:
                break
            q = q / q.sum()
        return [draw(p, rng)]

    return loop(prompt, max_new_tokens, eos, step)


@right
def block_verification(target, draft, prompt, max_new_tokens, eos, rng):
    """Three draft tokens are tested together by block verification (Sun et al. 2024): the longest prefix whose own coin
    says yes is kept, and the residual is that of the capped product of ratios."""

    def step(text):
        tokens, q_rows = propose(draft, text, 3, rng)
        p_rows = score(target, text, tokens)
        weight, kept, rest = 1.0, 0, residual(p_rows[0], q_rows[0])
        for i, token in enumerate(tokens, 1):
            weight = min(1.0, weight * p_rows[i - 1][token] / q_rows[i - 1][token])
            if i == len(tokens):
                chance, row = weight, p_rows[i]
            else:
                row = np.maximum(weight * p_rows[i] - q_rows[i], 0.0)
                mass = row.sum()
                chance = mass / (mass + 1.0 - weight) if mass > 0 else 0.0
            if rng.random() < chance:
                kept, rest = i, row
        return tokens[:kept] + [draw(rest, rng)]

    return loop(prompt, max_new_tokens, eos, step)


@right
def draft_sometimes_the_target(target, draft, prompt, max_new_tokens, eos, rng):
    """Each draft token comes, by a coin of its own, from the target (then surely accepted) or from the draft at
    temperature 1.5, and is tested with the row it was drawn from."""

    def mixed(words):
        return target(words) if rng.random() < 1 / 3 else heated(draft(words), 1.5)

    def step(text):
        tokens, q_rows = propose(mixed, text, 2, rng)
        return verify(tokens, q_rows, score(target, text, tokens), rng)[0]

    return loop(prompt, max_new_tokens, eos, step)
