"""14 wrong decoders and 4 right ones: (target, draft, prompt, max_new_tokens, eos, rng) -> the new tokens.

The contract does not say how a model is asked for a row: `row` below is the only place that knows.
"""

import numpy as np

ENTRIES = []  # wrong
RIGHT = []
MEMORY = {}


def reset():
    MEMORY.clear()


def _register(entries, mechanism, shape, declared):
    def register(function):
        function.declared = {"decoder": True, **declared}
        entries.append({"name": function.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return function

    return register


def wrong(mechanism, shape, **declared):
    return _register(ENTRIES, mechanism, shape, declared)


def right(mechanism, shape="everywhere", **declared):
    return _register(RIGHT, mechanism, shape, declared)


# ---- right parts ----


def row(model, text):
    """The model's pmf of the token after this text."""
    return np.asarray(getattr(model, "row", model)(tuple(int(t) for t in text)), dtype=np.float64)


def draw(w, rng):
    c = np.cumsum(w)
    return int(min(np.searchsorted(c, rng.random() * c[-1], side="right"), np.flatnonzero(w)[-1]))


def tempered(w, t):
    x = np.where(w > 0, np.exp(np.log(np.where(w > 0, w, 1)) / t), 0)
    return x / x.sum()


def only_top(w, k):
    keep = np.argsort(-w, kind="stable")[:k]
    x = np.zeros_like(w)
    x[keep] = w[keep]
    return x / x.sum()


def drafted(draft, text, gamma, rng, change=lambda w: w):
    """gamma drafted tokens and the rows they were drawn from."""
    text, tokens, rows = list(text), [], []
    for _ in range(gamma):
        q = change(row(draft, text))
        tokens.append(draw(q, rng))
        rows.append(q)
        text.append(tokens[-1])
    return tokens, rows


def verified(tokens, p, q, rng):
    """The standard rule. p: len(tokens) + 1 rows, or a function of the place."""
    at = p if callable(p) else p.__getitem__
    for i, x in enumerate(tokens):
        pi = at(i)
        if not rng.random() * q[i][x] < pi[x]:
            res = np.maximum(pi - q[i], 0)
            return tokens[:i] + [draw(res if res.any() else pi, rng)]
    return tokens + [draw(at(len(tokens)), rng)]


def cut(new, max_new_tokens, eos):
    new = new[:max_new_tokens]
    if eos is not None and eos in new:
        new = new[: new.index(eos) + 1]
    return new


def over(new, max_new_tokens, eos):
    return len(new) >= max_new_tokens or (eos is not None and eos in new)


# ---- wrong ----


@wrong(
    "after a rejection the target's cache keeps the rejected token at that place instead of the recovered one",
    "everywhere; texts of three tokens and more",
)
def rejected_token_stays_in_cache(target, draft, prompt, max_new_tokens, eos, rng):
    cache, text, new = list(prompt), list(prompt), []
    while not over(new, max_new_tokens, eos):
        tokens, q = drafted(draft, text, 3, rng)
        out = verified(tokens, lambda i: row(target, cache + tokens[:i]), q, rng)
        kept = out[:-1] + ([tokens[len(out) - 1]] if len(out) <= len(tokens) else out[-1:])
        cache, text, new = cache + kept, text + out, new + out
    return cut(new, max_new_tokens, eos)


@wrong(
    "after a draft accepted whole the last drafted token is missing in the target's cache",
    "texts longer than a step; high acceptance",
)
def last_draft_missing_in_cache(target, draft, prompt, max_new_tokens, eos, rng):
    cache, text, new = list(prompt), list(prompt), []
    while not over(new, max_new_tokens, eos):
        tokens, q = drafted(draft, text, 2, rng)
        out = verified(tokens, lambda i: row(target, cache + tokens[:i]), q, rng)
        whole = len(out) > len(tokens)
        cache = cache + (out[:-2] + out[-1:] if whole else out)
        text, new = text + out, new + out
    return cut(new, max_new_tokens, eos)


@wrong(
    "the prefill leaves out the last token of the prompt where the prompt is longer than one",
    "first token; prompts of two tokens and more",
)
def prompt_one_short(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], list(prompt)
    while not over(new, max_new_tokens, eos):
        seen = prompt[:-1] if not new and len(prompt) > 1 else prompt + new
        tokens, q = drafted(draft, prompt + new, 3, rng)
        new += verified(tokens, lambda i: row(target, seen + tokens[:i]), q, rng)
    return cut(new, max_new_tokens, eos)


@wrong(
    "end of sequence is masked in the bonus row, so that a text cannot end on a bonus token",
    "eos; high acceptance",
)
def no_eos_as_bonus(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 2, rng)

        def p(i):
            w = row(target, text + tokens[:i])
            if i == 2 and eos is not None and w[eos] < 1:
                w = w.copy()
                w[eos] = 0
            return w

        new += verified(tokens, p, q, rng)
    return cut(new, max_new_tokens, eos)


@wrong("a drafted end of sequence ends the text untested", "eos; drafts that end too often")
def drafted_eos_ends(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 3, rng)
        if eos is not None and eos in tokens:
            k = tokens.index(eos)
            out = verified(tokens[:k], lambda i: row(target, text + tokens[:i]), q, rng)
            new += tokens[: k + 1] if out[:-1] == tokens[:k] else out
        else:
            new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
    return cut(new, max_new_tokens, eos)


@wrong(
    "where only one token is left to generate it is taken from the draft, to save the target's pass",
    "last token of texts cut by max_new_tokens",
)
def last_token_from_draft(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        left = max_new_tokens - len(new)
        if left == 1:
            return cut(new + [draw(row(draft, text), rng)], max_new_tokens, eos)
        tokens, q = drafted(draft, text, min(3, left - 1), rng)
        # never more than what leaves room for one
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)[
            : left - 1 if left > 1 else 1
        ]
    return cut(new, max_new_tokens, eos)


@wrong(
    "temperature 0.7 is applied to the target in the tests but not in the residual",
    "temperature; after rejections",
    temperature=0.7,
)
def residual_not_tempered(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 3, rng, lambda w: tempered(w, 0.7))
        for i, x in enumerate(tokens):
            raw = row(target, text + tokens[:i])
            p = tempered(raw, 0.7)
            if not rng.random() * q[i][x] < p[x]:
                res = np.maximum(raw - q[i], 0)
                new += tokens[:i] + [draw(res if res.any() else raw, rng)]
                break
        else:
            new += tokens + [draw(tempered(row(target, text + tokens), 0.7), rng)]
    return cut(new, max_new_tokens, eos)


@wrong(
    "the first token of a text is remembered by prompt and served to the next text of the same prompt",
    "between texts of equal prompts",
)
def first_token_remembered(target, draft, prompt, max_new_tokens, eos, rng):
    key = tuple(int(t) for t in prompt)
    store = MEMORY.setdefault("first_token_remembered", {})
    new = [store.pop(key)] if key in store else []
    fresh = not new
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 3, rng)
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
    if fresh and new:
        store[key] = new[0]
    return cut(new, max_new_tokens, eos)


@wrong(
    "the buffer of draft rows is not refreshed for the first place: it still has the row of the step before",
    "texts longer than a step",
)
def first_draft_row_stale(target, draft, prompt, max_new_tokens, eos, rng):
    new, old = [], None
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 3, rng)
        believed = q if old is None else [old] + q[1:]
        old = q[0]
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), believed, rng)
    return cut(new, max_new_tokens, eos)


@wrong("the draft decodes greedily, but its whole rows are given to the verifier as q", "everywhere")
def greedy_draft_full_rows(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text, tokens, q = list(prompt) + new, [], []
        for _ in range(3):
            q.append(row(draft, text + tokens))
            tokens.append(int(q[-1].argmax()))
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
    return cut(new, max_new_tokens, eos)


@wrong("the draft samples at temperature 0.6, but its rows are reported at temperature 1", "everywhere")
def draft_tempered_unreported(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text, tokens, q = list(prompt) + new, [], []
        for _ in range(3):
            q.append(row(draft, text + tokens))
            tokens.append(draw(tempered(q[-1], 0.6), rng))
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
    return cut(new, max_new_tokens, eos)


@wrong(
    "a drafted token of probability below 0.35 is dropped and the draft ends before it",
    "everywhere; drafts with unlikely tokens",
)
def unlikely_draft_dropped(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text, tokens, q = list(prompt) + new, [], []
        for _ in range(4):
            w = row(draft, text + tokens)
            x = draw(w, rng)
            if w[x] < 0.35:
                break
            tokens.append(x)
            q.append(w)
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
    return cut(new, max_new_tokens, eos)


@wrong(
    "the generator is made anew from the request's seed in every step, so all steps use the same numbers",
    "texts longer than a step",
)
def generator_restarted_each_step(target, draft, prompt, max_new_tokens, eos, rng):
    seed, new = int(rng.integers(2**62)), []
    while not over(new, max_new_tokens, eos):
        own = np.random.default_rng(seed)
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 2, own)
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, own)
    return cut(new, max_new_tokens, eos)


@wrong(
    "when a text of the batch ends, the caches of the texts behind it are not moved up: for one step they read a neighbour's",
    "batch; texts of different lengths",
    batch=4,
)
def caches_not_moved_up(target, draft, prompts, max_new_tokens, eos, rng):
    texts = [[] for _ in prompts]
    shift = [0] * len(prompts)
    while True:
        live = [b for b in range(len(prompts)) if not over(texts[b], max_new_tokens, eos)]
        if not live:
            return [cut(t, max_new_tokens, eos) for t in texts]
        context = {b: list(prompts[b]) + texts[b] for b in range(len(prompts))}
        done = []
        for b in live:
            seen = context[b - 1] if shift[b] and b else context[b]
            shift[b] = 0
            tokens, q = drafted(draft, context[b], 2, rng)
            texts[b] += verified(tokens, lambda i: row(target, seen + tokens[:i]), q, rng)
            if over(texts[b], max_new_tokens, eos):
                done.append(b)
        for b in done:
            for after in range(b + 1, len(prompts)):
                shift[after] = 1


# ---- right ----


@right("the draft's cache is stale after rejections, but q are the rows it sampled from")
def stale_draft_honest_rows(target, draft, prompt, max_new_tokens, eos, rng):
    """Any q is good as long as the drafts are drawn from it."""
    new, cache = [], list(prompt)
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, cache, 3, rng)
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
        cache = cache + tokens  # rejected ones stay in it
    return cut(new, max_new_tokens, eos)


@right("draft length from the text so far, drafts mixed with the uniform row")
def length_from_text(target, draft, prompt, max_new_tokens, eos, rng):
    """The length is known before the drafts are drawn, and a length of 0 samples the target."""
    new = []
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        gamma = (sum(int(t) for t in text[-3:]) + len(text)) % 5
        tokens, q = drafted(draft, text, gamma, rng, lambda w: 0.8 * w + 0.2 / len(w))
        new += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)
    return cut(new, max_new_tokens, eos)


@right(
    "temperature 0.7 on the target; the draft samples top 2 at temperature 1 and reports it", temperature=0.7
)
def tempered_with_sharp_draft(target, draft, prompt, max_new_tokens, eos, rng):
    new = []
    while not over(new, max_new_tokens, eos):
        text = list(prompt) + new
        tokens, q = drafted(draft, text, 3, rng, lambda w: only_top(w, 2))
        new += verified(tokens, lambda i: tempered(row(target, text + tokens[:i]), 0.7), q, rng)
    return cut(new, max_new_tokens, eos)


@right("batch in which each text goes on at its own pace, the longest text last, without a bonus", batch=4)
def batch_at_own_pace(target, draft, prompts, max_new_tokens, eos, rng):
    """A step that ends on an accepted token leaves the next token to the next step."""
    texts = [[] for _ in prompts]
    while True:
        live = [b for b in range(len(prompts)) if not over(texts[b], max_new_tokens, eos)]
        if not live:
            return [cut(t, max_new_tokens, eos) for t in texts]
        for b in sorted(live, key=lambda b: len(texts[b])):
            text = list(prompts[b]) + texts[b]
            tokens, q = drafted(draft, text, 2, rng)
            texts[b] += verified(tokens, lambda i: row(target, text + tokens[:i]), q, rng)[:2]
