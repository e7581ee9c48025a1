"""Twelve wrong decoders and three right ones.

decoder(target, draft, prompt, max_new_tokens, eos, rng) -> list of new tokens
"""

import numpy as np

ENTRIES = []
RIGHT = []
WIDTH = 3


def reset():
    """Nothing is kept between calls."""


def keep(entries):
    def add(function):
        text = " ".join(function.__doc__.split())
        entries.append({"name": function.__name__, "mechanism": text, "shape": "decoder", "tv": None})
        function.declared = {"decoder": True}
        return function

    return add


wrong, right = keep(ENTRIES), keep(RIGHT)


# Shared helpers. These are right.


def rows_of(model):
    """text -> float64 row of the model."""
    row = getattr(model, "row", model)
    return lambda text: np.asarray(row(tuple(text)), dtype=np.float64)


def pick(w, u):
    cdf = np.cumsum(w)
    return int(min(np.searchsorted(cdf, u * cdf[-1], side="right"), np.flatnonzero(w)[-1]))


def residual(p, q):
    w = np.maximum(p - q, 0)
    return w if w.sum() > 0 else p


def propose(draft, text, k, rng):
    """k drafted tokens and the rows they were drawn from."""
    tokens, rows = [], []
    for _ in range(k):
        rows.append(draft(text + tokens))
        tokens.append(pick(rows[-1], rng.random()))
    return tokens, rows


def judge(tokens, p_rows, q_rows, rng):
    """The accepted tokens and the last one; p_rows has one row more than tokens."""
    for i, x in enumerate(tokens):
        if rng.random() * q_rows[i][x] >= p_rows[i][x]:
            return tokens[:i] + [pick(residual(p_rows[i], q_rows[i]), rng.random())]
    return tokens + [pick(p_rows[len(tokens)], rng.random())]


def rows_along(target, text, tokens):
    return [target(text + tokens[:i]) for i in range(len(tokens) + 1)]


def step(target, draft, text, k, rng):
    tokens, q_rows = propose(draft, text, k, rng)
    return judge(tokens, rows_along(target, text, tokens), q_rows, rng)


def clip(new, limit, eos):
    """new up to and with eos, at most limit tokens."""
    new = new[:limit]
    return new[: new.index(eos) + 1] if eos is not None and eos in new else new


def done(new, limit, eos):
    return len(new) >= limit or (eos is not None and eos in new)


def run(one_step, prompt, limit, eos):
    """Repeat new tokens = one_step(text, new so far) until the end."""
    new = []
    while not done(new, limit, eos):
        new += one_step(list(prompt) + new, new)
    return clip(new, limit, eos)


@wrong
def rejected_token_stays_in_cache(target, draft, prompt, max_new_tokens, eos, rng):
    """The target's cache is not rolled back after a rejection: its context keeps the rejected drafted token
    where the replacement belongs, while the emitted text and the draft have the replacement."""
    target, draft, shadow = rows_of(target), rows_of(draft), list(prompt)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, WIDTH, rng)
        out = judge(tokens, rows_along(target, shadow, tokens), q_rows, rng)
        shadow.extend(out if len(out) > WIDTH else tokens[: len(out)])
        return out

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def bonus_token_missing_in_cache(target, draft, prompt, max_new_tokens, eos, rng):
    """After full acceptance the bonus token is not added to the target's context, so that later target rows
    belong to a text without it."""
    target, draft, shadow = rows_of(target), rows_of(draft), list(prompt)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, WIDTH, rng)
        out = judge(tokens, rows_along(target, shadow, tokens), q_rows, rng)
        shadow.extend(out[:WIDTH])
        return out

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def eos_never_accepted_from_draft(target, draft, prompt, max_new_tokens, eos, rng):
    """A drafted eos is always treated as rejected (the target shall decide on the end), and the token is
    drawn from the residual, where eos is missing or too small. Without eos it is right."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, WIDTH, rng)
        p_rows = rows_along(target, text, tokens)
        if eos in tokens:
            i = tokens.index(eos)
            p_rows[i] = p_rows[i].copy()
            full, p_rows[i][eos] = p_rows[i].copy(), 0
            out = judge(tokens[: i + 1], p_rows, q_rows, rng)
            if len(out) == i + 1:
                out[i] = pick(residual(full, q_rows[i]), rng.random())
            return out
        return judge(tokens, p_rows, q_rows, rng)

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def last_token_unverified(target, draft, prompt, max_new_tokens, eos, rng):
    """When one token is left to make, the loop drafts it and does not verify it."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        if max_new_tokens - len(new) == 1:
            return propose(draft, text, 1, rng)[0]
        return step(target, draft, text, min(WIDTH, max_new_tokens - len(new) - 1), rng)

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def low_confidence_draft_dropped(target, draft, prompt, max_new_tokens, eos, rng):
    """Drafting stops at a token with q(x) < 0.35 and drops that token: the place is then drawn from p as
    a bonus, though dropping depended on the token."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, WIDTH, rng)
        low = [i for i, x in enumerate(tokens) if q_rows[i][x] < 0.35]
        tokens = tokens[: low[0]] if low else tokens
        return judge(tokens, rows_along(target, text, tokens), q_rows, rng)

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def rejected_tail_drafted_again(target, draft, prompt, max_new_tokens, eos, rng):
    """After a rejection the drafted tokens behind it are used as the next step's draft, with rows of q
    computed anew for the corrected text: they were drawn from other rows."""
    target, draft, tail = rows_of(target), rows_of(draft), []

    def one_step(text, new):
        tokens = list(tail)
        q_rows = [draft(text + tokens[:i]) for i in range(len(tokens))]
        more, more_rows = propose(draft, text + tokens, WIDTH - len(tokens), rng)
        tokens, q_rows = tokens + more, q_rows + more_rows
        possible = all(row[x] > 0 for row, x in zip(q_rows, tokens))
        if not possible:
            tokens, q_rows = propose(draft, text, WIDTH, rng)
        out = judge(tokens, rows_along(target, text, tokens), q_rows, rng)
        tail[:] = tokens[len(out) :]
        return out

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def test_numbers_seeded_by_length(target, draft, prompt, max_new_tokens, eos, rng):
    """The verifier's generator is seeded with the length of the text in every step; drafts use rng. The
    test numbers of a step are the same in all generations."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, WIDTH, rng)
        own = np.random.default_rng(len(text))
        return judge(tokens, rows_along(target, text, tokens), q_rows, own)

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def first_token_from_draft(target, draft, prompt, max_new_tokens, eos, rng):
    """The token that the prefill gives is taken from the draft's row of the prompt and is not verified."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        if not new:
            return propose(draft, text, 1, rng)[0]
        return step(target, draft, text, WIDTH, rng)

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def target_rows_cached_by_position(target, draft, prompt, max_new_tokens, eos, rng):
    """Target rows are cached by position and not dropped after a rejection: later steps read rows that were
    computed behind the rejected token."""
    target, draft, cache = rows_of(target), rows_of(draft), {}

    def cached(text):
        return cache.setdefault(len(text), target(text))

    return run(lambda text, new: step(cached, draft, text, WIDTH, rng), prompt, max_new_tokens, eos)


@wrong
def agreed_argmax_not_verified(target, draft, prompt, max_new_tokens, eos, rng):
    """A drafted token that is the argmax of both models is accepted without a test; all else is verified
    as usual."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, WIDTH, rng)
        for i, x in enumerate(tokens):
            p, q = target(text + tokens[:i]), q_rows[i]
            agreed = x == p.argmax() == q.argmax()
            if not agreed and rng.random() * q[x] >= p[x]:
                return tokens[:i] + [pick(residual(p, q), rng.random())]
        return tokens + [pick(target(text + tokens), rng.random())]

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def greedy_drafts_soft_rows(target, draft, prompt, max_new_tokens, eos, rng):
    """Drafted tokens are the draft's argmax, but test and residual use the draft's full rows as if the
    tokens had been drawn from them."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tokens, q_rows = [], []
        for _ in range(WIDTH):
            q_rows.append(draft(text + tokens))
            tokens.append(int(q_rows[-1].argmax()))
        return judge(tokens, rows_along(target, text, tokens), q_rows, rng)

    return run(one_step, prompt, max_new_tokens, eos)


@wrong
def longer_of_two_tries(target, draft, prompt, max_new_tokens, eos, rng):
    """Every step drafts and verifies twice and keeps the try with more accepted tokens."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tries = [step(target, draft, text, WIDTH, rng) for _ in range(2)]
        return max(tries, key=len)

    return run(one_step, prompt, max_new_tokens, eos)


@right
def draft_text_lags_behind(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft reads the text without its last token (its cache lags). Tokens are drawn from the rows
    that the test and the residual use, so the draft may read any text: exact, only slower."""
    target, draft = rows_of(target), rows_of(draft)

    def lagging(text):
        return draft(text[:-1] if len(text) > 1 else text)

    return run(lambda text, new: step(target, lagging, text, WIDTH, rng), prompt, max_new_tokens, eos)


@right
def stops_drafting_after_unsure_token(target, draft, prompt, max_new_tokens, eos, rng):
    """Drafting stops after a token with q(x) < 0.4, and that token is kept and verified. The length
    depends only on tokens that are verified, so each place is still tested with the row it was drawn
    from: exact."""
    target, draft = rows_of(target), rows_of(draft)

    def one_step(text, new):
        tokens, q_rows = propose(draft, text, 5, rng)
        low = [i for i, x in enumerate(tokens) if q_rows[i][x] < 0.4]
        tokens = tokens[: low[0] + 1] if low else tokens
        return judge(tokens, rows_along(target, text, tokens), q_rows, rng)

    return run(one_step, prompt, max_new_tokens, eos)


@right
def rejected_tail_with_its_own_rows(target, draft, prompt, max_new_tokens, eos, rng):
    """After a rejection the drafted tokens behind it are used again, with the rows of q they were drawn
    from. The test that failed did not look at them, so given the text they are draws from those rows:
    exact."""
    target, draft, tail = rows_of(target), rows_of(draft), []

    def one_step(text, new):
        tokens, q_rows = [x for x, _ in tail], [row for _, row in tail]
        if not tokens:
            tokens, q_rows = propose(draft, text, WIDTH, rng)
        out = judge(tokens, rows_along(target, text, tokens), q_rows, rng)
        tail[:] = list(zip(tokens, q_rows))[len(out) :]
        return out

    return run(one_step, prompt, max_new_tokens, eos)
