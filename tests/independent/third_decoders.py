"""Decoders, twelve wrong and three right: (target, draft, prompt, max_new_tokens, eos, rng) -> new tokens.

A decoder stops after max_new_tokens tokens, or after eos, which is then the last token. eos may be None.
"""

import numpy as np

ENTRIES = []
RIGHT = []
GAMMA = 3


def wrong(mechanism, shape):
    """List a decoder with what is wrong in it and where that shows."""

    def listed(function):
        ENTRIES.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        function.declared = {"decoder": True}
        return function

    return listed


def right(function):
    """List an exact decoder."""
    RIGHT.append({"name": function.__name__, "mechanism": function.__doc__.strip(), "shape": "", "tv": None})
    function.declared = {"decoder": True}
    return function


def _row(model, text):
    return np.asarray(getattr(model, "row", model)(tuple(int(t) for t in text)), dtype=np.float64)


def _pick(weights, rng):
    sums = np.cumsum(weights)
    token = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return token if token < len(sums) and weights[token] > 0 else int(np.flatnonzero(weights)[-1])


def _recover(target_row, draft_row, rng):
    residual = np.maximum(target_row - draft_row, 0.0)
    return _pick(residual if residual.sum() > 0 else target_row, rng)


def _draft(model, text, size, rng):
    """Drafted tokens and the rows they were drawn from."""
    tokens, rows = [], []
    for _ in range(size):
        rows.append(_row(model, text + tokens))
        tokens.append(_pick(rows[-1], rng))
    return tokens, rows


def _target_rows(model, text, drafts):
    return [_row(model, text + drafts[:k]) for k in range(len(drafts) + 1)]


def _verify(drafts, target_rows, draft_rows, rng):
    """The standard rule: accepted tokens and one more."""
    for k, token in enumerate(drafts):
        if rng.random() * draft_rows[k][token] >= target_rows[k][token]:
            return drafts[:k] + [_recover(target_rows[k], draft_rows[k], rng)]
    return drafts + [_pick(target_rows[len(drafts)], rng)]


def _append(new, tokens, limit, eos):
    """Append tokens up to the limit or eos; True if the text has ended."""
    for token in tokens:
        if len(new) >= limit:
            break
        new.append(int(token))
        if eos is not None and token == eos:
            return True
    return len(new) >= limit


def _standard_step(target, draft, text, rng, size=GAMMA):
    drafts, rows = _draft(draft, text, size, rng)
    return _verify(drafts, _target_rows(target, text, drafts), rows, rng)


def _loop(step, prompt, limit, eos):
    new, text = [], [int(t) for t in prompt]
    ended = limit <= 0
    while not ended:
        ended = _append(new, step(text + new, new), limit, eos)
    return new


@wrong(
    "Rejected tokens stay in the draft's cache and the recovered one is missing, so that tokens are drawn "
    "from rows of a wrong text, while verification recomputes the draft's rows from the right one.",
    "any text after the first rejection",
)
def draft_cache_keeps_rejected(target, draft, prompt, max_new_tokens, eos, rng):
    cache = [int(t) for t in prompt]

    def step(text, new):
        drafts, _ = _draft(draft, cache, GAMMA, rng)
        rows = [_row(draft, text + drafts[:k]) for k in range(GAMMA)]
        tokens = _verify(drafts, _target_rows(target, text, drafts), rows, rng)
        cache.extend(drafts)
        if len(tokens) > GAMMA:
            cache.append(tokens[-1])
        return tokens

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "The target's next row is carried over from the last step; after a rejection it is the row that follows "
    "the rejected token, not the recovered one.",
    "the first token after a rejection",
)
def carried_row_after_rejected_token(target, draft, prompt, max_new_tokens, eos, rng):
    carried = []

    def step(text, new):
        drafts, rows = _draft(draft, text, GAMMA, rng)
        target_rows = _target_rows(target, text, drafts)
        if carried:
            target_rows[0] = carried.pop()
        tokens = _verify(drafts, target_rows, rows, rng)
        if len(tokens) <= GAMMA:
            carried.append(target_rows[len(tokens)])
        return tokens

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "The target's cache is a ring of 8 tokens, and older ones, the prompt's among them, are overwritten.",
    "texts longer than 8 tokens, targets that depend on more than the last 8 tokens",
)
def ring_of_eight_tokens(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        drafts, rows = _draft(draft, text, GAMMA, rng)
        target_rows = [_row(target, (text + drafts[:k])[-8:]) for k in range(GAMMA + 1)]
        return _verify(drafts, target_rows, rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "When only one more token is wanted the draft's token is returned at once, since there is no room for "
    "the target's.",
    "the last token that max_new_tokens allows",
)
def last_token_not_verified(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        if max_new_tokens - len(new) == 1:
            return _draft(draft, text, 1, rng)[0]
        return _standard_step(target, draft, text, rng, min(GAMMA, max_new_tokens - len(new) - 1))

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "The prefill stops one token early: the first token after the prompt is judged by the target's row "
    "before the prompt's last token.",
    "the first new token, prompts of 2 or more tokens",
)
def prefill_one_token_short(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        drafts, rows = _draft(draft, text, GAMMA, rng)
        target_rows = _target_rows(target, text, drafts)
        if not new and len(text) > 1:
            target_rows[0] = _row(target, text[:-1])
        return _verify(drafts, target_rows, rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "A generator for each request is created anew from the request's seed in every step, so that all steps "
    "of a text use the same random numbers.",
    "the tokens of the second step, given those of the first",
)
def seeded_in_every_step(target, draft, prompt, max_new_tokens, eos, rng):
    seed = int(rng.integers(2**62))

    def step(text, new):
        return _standard_step(target, draft, text, np.random.default_rng(seed))

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "The target's rows are cached during a request under the last token only, not under the whole text.",
    "texts in which a token occurs twice, targets that depend on more than the last token",
)
def rows_cached_by_last_token(target, draft, prompt, max_new_tokens, eos, rng):
    cache = {}

    def step(text, new):
        drafts, rows = _draft(draft, text, GAMMA, rng)
        target_rows = []
        for k in range(GAMMA + 1):
            context = text + drafts[:k]
            key = context[-1] if context else None
            if key not in cache:
                cache[key] = _row(target, context)
            target_rows.append(cache[key])
        return _verify(drafts, target_rows, rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "Tokens copied from an earlier place of the text, where the same token was followed by them, are "
    "verified with the draft model's rows, as if they had been drawn from these.",
    "texts whose last token occurred before",
)
def copied_tokens_with_model_rows(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        places = [i for i in range(len(text) - 1) if text[i] == text[-1]]
        if not places:
            return _standard_step(target, draft, text, rng)
        drafts = text[places[-1] + 1 : places[-1] + 1 + GAMMA]
        rows = [_row(draft, text + drafts[:k]) for k in range(len(drafts))]
        return _verify(drafts, _target_rows(target, text, drafts), rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "Two drafts are verified independently, and the one of which more tokens were accepted is kept.",
    "all tokens, from the first on",
)
def better_of_two_drafts(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        return max((_standard_step(target, draft, text, rng) for _ in range(2)), key=len)

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "A step whose first drafted token is rejected is undone and run once more with a new draft.",
    "the first token of each step",
)
def second_try_after_rejection(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        tokens = _standard_step(target, draft, text, rng)
        return tokens if len(tokens) > 1 else _standard_step(target, draft, text, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@wrong(
    "The end of the text is looked for among the drafted tokens, not among the accepted ones: a text ends "
    "after a step in which eos was drafted and rejected.",
    "texts with an eos that is drafted now and then",
)
def drafted_eos_ends_text(target, draft, prompt, max_new_tokens, eos, rng):
    new, text = [], [int(t) for t in prompt]
    ended = max_new_tokens <= 0
    while not ended:
        drafts, rows = _draft(draft, text + new, GAMMA, rng)
        tokens = _verify(drafts, _target_rows(target, text + new, drafts), rows, rng)
        ended = _append(new, tokens, max_new_tokens, eos) or (eos is not None and eos in drafts)
    return new


@wrong(
    "Logits of eos are masked while a draft is under way, and the mask is still set for the bonus token.",
    "texts with an eos: the bonus token",
)
def bonus_never_eos(target, draft, prompt, max_new_tokens, eos, rng):
    def step(text, new):
        drafts, rows = _draft(draft, text, GAMMA, rng)
        target_rows = _target_rows(target, text, drafts)
        last = target_rows[-1].copy()
        if eos is not None and 0 <= eos < len(last):
            last[eos] = 0.0
        target_rows[-1] = last if last.sum() > 0 else target_rows[-1]
        return _verify(drafts, target_rows, rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@right
def stale_draft_cache_with_its_own_rows(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft reads a wrong text after rejections, but each token is verified with the row that it was
    drawn from: whatever the draft's rows are, the standard rule gives the target's law."""
    cache = [int(t) for t in prompt]

    def step(text, new):
        drafts, rows = _draft(draft, cache, GAMMA, rng)
        cache.extend(drafts)
        return _verify(drafts, _target_rows(target, text, drafts), rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@right
def draft_ends_with_an_unlikely_token(target, draft, prompt, max_new_tokens, eos, rng):
    """The draft ends after the first token of small probability, which is still verified: whether a token is
    tested depends only on the tokens before it."""

    def step(text, new):
        drafts, rows = [], []
        while len(drafts) < 6 and (not drafts or rows[-1][drafts[-1]] >= 0.25):
            rows.append(_row(draft, text + drafts))
            drafts.append(_pick(rows[-1], rng))
        return _verify(drafts, _target_rows(target, text, drafts), rows, rng)

    return _loop(step, prompt, max_new_tokens, eos)


@right
def untested_tokens_drafted_again(target, draft, prompt, max_new_tokens, eos, rng):
    """Drafted tokens behind a rejection are the next step's draft, with the rows they were drawn from. They
    were not looked at, so that given the text they still have the law of these rows, though those belong to
    another text; the standard rule needs no more. The rest of the draft is drawn anew after them."""
    kept = []

    def step(text, new):
        drafts = [token for token, _ in kept]
        rows = [row for _, row in kept]
        kept.clear()
        more, more_rows = _draft(draft, text + drafts, GAMMA - len(drafts), rng)
        drafts, rows = drafts + more, rows + more_rows
        tokens = _verify(drafts, _target_rows(target, text, drafts), rows, rng)
        kept.extend(zip(drafts[len(tokens) :], rows[len(tokens) :], strict=True))
        return tokens

    return _loop(step, prompt, max_new_tokens, eos)
