"""Wrong decoders (WRONG) and right ones (RIGHT): f(target, draft, prompt, max_new_tokens, eos, rng) -> list of new tokens.

Right: tokens of the target until max_new_tokens are there or eos came (eos is kept as the last token); eos may be None.
"""

import numpy as np

WRONG, RIGHT = [], []


def wrong(mechanism, **shape):
    def register(f):
        f.declared = {"decoder": True}
        WRONG.append({"name": f.__name__, "mechanism": mechanism, "shape": shape, "tv": None})
        return f

    return register


def right(how):
    def register(f):
        f.declared = {"decoder": True}
        RIGHT.append({"name": f.__name__, "how": how})
        return f

    return register


def _text(prompt):
    return tuple(int(t) for t in prompt)


def _draw(w, x):
    c = np.cumsum(w)
    i = int(np.searchsorted(c, x * c[-1], side="right"))
    return min(i, len(c) - 1)


def _propose(draft, text, k, rng):
    text, d, q = tuple(text), [], []
    for _ in range(k):
        row = draft.row(text)
        t = _draw(row, rng.random())
        d.append(t)
        q.append(row)
        text += (t,)
    return d, q


def _target_rows(target, text, d):
    text = tuple(text)
    return [target.row(text + tuple(d[:i])) for i in range(len(d) + 1)]


def _judge(d, p, q, rng):
    """-> (number of accepted drafts, last token)"""
    for i, t in enumerate(d):
        if rng.random() * q[i][t] >= p[i][t]:
            w = np.maximum(p[i] - q[i], 0.0)
            return i, _draw(w if w.any() else p[i], rng.random())
    return len(d), _draw(p[len(d)], rng.random())


def _cut(new, limit, eos):
    new = list(new)
    if eos is not None and eos in new:
        new = new[: new.index(eos) + 1]
    return [int(t) for t in new[:limit]]


def _done(new, limit, eos):
    return len(new) >= limit or (eos is not None and eos in new)


# ------------------------------------------------------------------------------------------------------------- right


@right("the plain loop, four drafts a step")
def right_plain_loop(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@right("never drafts beyond the limit; the number of drafts follows the last step's acceptance")
def right_adaptive_loop(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt, k = [], _text(prompt), 3
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        m = min(k, max_new_tokens - len(new) - 1)
        d, q = _propose(draft, text, m, rng)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        k = min(k + 2, 8) if n == m else max(k - 1, 1)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@right("greedy drafts judged as certain")
def right_greedy_draft(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d = []
        for _ in range(5):
            d.append(int(np.argmax(draft.row(text + tuple(d)))))
        for i in range(6):
            t = _draw(target.row(text + tuple(d[:i])), rng.random())
            new.append(t)
            if i == 5 or t != d[i]:
                break
    return _cut(new, max_new_tokens, eos)


@right("drafting stops where the draft's row is flat, before the token is drawn")
def right_confidence_stop(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = [], []
        while len(d) < 6:
            row = draft.row(text + tuple(d))
            if row.max() < 0.45:
                break
            d.append(_draw(row, rng.random()))
            q.append(row)
            if d[-1] == eos:
                break
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


# ------------------------------------------------------------------------------------------------------------- wrong


@wrong(
    "After a full acceptance the bonus token is not written to the target's cache: it stays missing from what the target reads.",
    prompt=3,
    new=6,
    eos=None,
)
def decoder_bonus_missing_in_target_cache(target, draft, prompt, max_new_tokens, eos, rng):
    new, seen, prompt = [], _text(prompt), _text(prompt)
    while not _done(new, max_new_tokens, eos):
        d, q = _propose(draft, prompt + tuple(new), 3, rng)
        n, t = _judge(d, _target_rows(target, seen, d), q, rng)
        new += [*d[:n], t]
        seen += tuple(d[:n]) + (() if n == len(d) else (t,))
    return _cut(new, max_new_tokens, eos)


@wrong(
    "The draft's cache misses the last draft after a full acceptance, but the q for the verifier are recomputed on the whole text.",
    prompt=3,
    new=6,
    eos=None,
)
def decoder_draft_cache_stale_q_recomputed(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt, seen = [], _text(prompt), _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, _ = _propose(draft, seen, 2, rng)
        q = [draft.row(text + tuple(d[:i])) for i in range(len(d))]
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
        seen += (*tuple(d[: n - 1] if n == len(d) else d[:n]), t)
    return _cut(new, max_new_tokens, eos)


@wrong(
    "After a full acceptance the target's positions start one early in the next step: its rows come from the text without its last token.",
    prompt=3,
    new=5,
    eos=None,
)
def decoder_position_off_after_full_acceptance(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt, off = [], _text(prompt), 0
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 2, rng)
        p = _target_rows(target, text[: len(text) - off], d)
        n, t = _judge(d, p, q, rng)
        off = int(n == len(d))
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "After a rejection the target's cache is not rolled back: it keeps the rejected draft in the place of the recovered token.",
    prompt=3,
    new=4,
    eos=None,
)
def decoder_no_rollback(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt, seen = [], _text(prompt), _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        n, t = _judge(d, _target_rows(target, seen, d), q, rng)
        new += [*d[:n], t]
        seen += tuple(d[:n]) + ((t,) if n == len(d) else (d[n],))
    return _cut(new, max_new_tokens, eos)


@wrong("The target reads a window of the last 16 tokens only.", prompt=20, new=3, eos=None)
def decoder_window_of_16(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        p = [target.row((text + tuple(d[:i]))[-16:]) for i in range(len(d) + 1)]
        n, t = _judge(d, p, q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "The prompt's first token (BOS) is dropped for the target, not for the draft.", prompt=4, new=3, eos=None
)
def decoder_bos_dropped(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 3, rng)
        n, t = _judge(d, _target_rows(target, text[1:] if len(prompt) > 1 else text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong("A drafted eos ends the text at the end of the step even if it was rejected.", prompt=3, new=5, eos=2)
def decoder_rejected_eos_ends(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
        if eos is not None and eos in d:
            break
    return _cut(new, max_new_tokens, eos)


@wrong(
    "Only the last token of a step is compared with eos: an accepted eos inside a step is passed over.",
    prompt=3,
    new=5,
    eos=2,
)
def decoder_eos_inside_step(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while len(new) < max_new_tokens and not (new and eos is not None and new[-1] == eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return [int(t) for t in new[:max_new_tokens]]


@wrong(
    "The draft never proposes eos (its row is masked and renormalised for the draw), the verifier is given the unmasked q.",
    prompt=3,
    new=4,
    eos=2,
)
def decoder_draft_masks_eos(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = [], []
        for _ in range(4):
            row = draft.row(text + tuple(d))
            w = np.array(row)
            if eos is not None:
                w[eos] = 0
            d.append(_draw(w if w.any() else row, rng.random()))
            q.append(row)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "Close to the limit (no room for a bonus) the last draft is taken over without a test.",
    prompt=3,
    new=2,
    eos=None,
)
def decoder_last_draft_untested(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        room = max_new_tokens - len(new)
        d, q = _propose(draft, text, min(4, room), rng)
        p = _target_rows(target, text, d)
        if room <= 4:
            n, t = _judge(d[:-1], p, q, rng)
            new += [*d[:n], d[-1] if n == len(d) - 1 else t]
        else:
            n, t = _judge(d, p, q, rng)
            new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong("A limit of one token takes the prefill's greedy token.", prompt=3, new=1, eos=None)
def decoder_limit_one_is_greedy(target, draft, prompt, max_new_tokens, eos, rng):
    if max_new_tokens == 1:
        return [int(np.argmax(target.row(_text(prompt))))]
    return right_plain_loop(target, draft, prompt, max_new_tokens, eos, rng)


@wrong(
    "The verifier's coins are drawn once a request and used again at every step.",
    prompt=3,
    new=6,
    eos=None,
    weak=True,
)
def decoder_coins_once_a_request(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    coins = rng.random(8)

    class Again:
        def __init__(self):
            self.i = -1

        def random(self):
            self.i += 1
            return coins[self.i]

    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 3, rng)
        n, t = _judge(d, _target_rows(target, text, d), q, Again())
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "Draft and verifier are seeded alike in every step: the draft's draws and the accept coins are the same numbers.",
    prompt=3,
    new=3,
    eos=None,
)
def decoder_draft_and_verifier_seeded_alike(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        seed = int(rng.integers(2**62))
        d, q = _propose(draft, text, 3, np.random.Generator(np.random.PCG64(seed)))
        n, t = _judge(d, _target_rows(target, text, d), q, np.random.Generator(np.random.PCG64(seed)))
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "The draft proposes its most probable token, and the verifier judges it as a sample of its row.",
    prompt=3,
    new=3,
    eos=None,
)
def decoder_greedy_draft_as_sample(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = [], []
        for _ in range(3):
            q.append(draft.row(text + tuple(d)))
            d.append(int(np.argmax(q[-1])))
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


_prefix_cache = {"length": None, "row": None}


@wrong(
    "The target's row behind the prompt is cached on the prompt's length: the next request of equal length gets the old one.",
    prompt=3,
    new=2,
    eos=None,
    other_first=True,
)
def decoder_prefix_cache_by_length(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 3, rng)
        p = _target_rows(target, text, d)
        if not new:
            c = _prefix_cache
            if c["length"] == len(prompt) and len(c["row"]) == len(p[0]):
                p[0] = c["row"]
                c["length"] = None
            else:
                c.update(length=len(prompt), row=np.array(p[0]))
        n, t = _judge(d, p, q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


_last_request = {"tail": ()}


@wrong(
    "The draft's cache is not cleared between requests and its q are computed behind the last request's tail; the draws come from a clean cache.",
    prompt=2,
    new=2,
    eos=None,
    other_first=True,
)
def decoder_draft_cache_of_last_request(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt, tail = [], _text(prompt), _last_request["tail"]
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, _ = _propose(draft, text, 3, rng)
        q = [draft.row(tail + text + tuple(d[:i])) for i in range(len(d))]
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    _last_request["tail"] = (prompt + tuple(new))[-3:]
    return _cut(new, max_new_tokens, eos)


_rest = {"coins": None}


@wrong(
    "Every second request uses the coins that the request before was given (the buffer is recycled, not refilled).",
    prompt=3,
    new=1,
    eos=None,
    pairs=True,
)
def decoder_coins_of_last_request(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    coins, _rest["coins"] = _rest["coins"], None
    if coins is None:
        coins = _rest["coins"] = rng.random(64)
    at = {"i": 0}

    class Buffer:
        def random(self):
            at["i"] += 1
            return coins[at["i"] - 1] if at["i"] <= 64 else rng.random()

    b = Buffer()
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 3, b)
        n, t = _judge(d, _target_rows(target, text, d), q, b)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "The draft draws at temperature .7 and hands the verifier its rows at temperature one.",
    prompt=3,
    new=3,
    eos=None,
)
def decoder_draft_temperature(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = [], []
        for _ in range(4):
            row = draft.row(text + tuple(d))
            d.append(_draw(np.asarray(row) ** (1 / 0.7), rng.random()))
            q.append(row)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "The bonus after a full acceptance is drawn from the target at temperature .8.", prompt=3, new=4, eos=None
)
def decoder_bonus_temperature(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 2, rng)
        p = _target_rows(target, text, d)
        x = np.asarray(p[-1]) ** 1.25
        p[-1] = x / x.sum()
        n, t = _judge(d, p, q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "Texts longer than 32 tokens: the target's position ids are clamped, it reads the first 31 tokens and the last one.",
    prompt=36,
    new=3,
    eos=None,
)
def decoder_positions_clamped_at_32(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)

    def clamp(x):
        return x if len(x) <= 32 else x[:31] + x[-1:]

    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        p = [target.row(clamp(text + tuple(d[:i]))) for i in range(len(d) + 1)]
        n, t = _judge(d, p, q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "Drafting stops when the token just drawn has a low q, and that token is thrown away: kept drafts are judged as if nothing had been selected.",
    prompt=3,
    new=3,
    eos=None,
)
def decoder_drops_unlikely_drafts(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = [], []
        for _ in range(4):
            row = draft.row(text + tuple(d))
            t = _draw(row, rng.random())
            if row[t] < 0.3:
                break
            d.append(t)
            q.append(row)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "A rejected first draft is redrawn once before the residual is used.",
    prompt=3,
    new=2,
    eos=None,
    weak=True,
    seed=5,
)
def decoder_second_try(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        for _attempt in range(2):
            d, q = _propose(draft, text, 3, rng)
            p = _target_rows(target, text, d)
            n, t = _judge(d, p, q, rng)
            if n:
                break
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "The request's first token comes from the draft model's prefill.",
    prompt=3,
    new=1,
    eos=None,
    weak=True,
    seed=5,
)
def decoder_first_token_of_draft(target, draft, prompt, max_new_tokens, eos, rng):
    prompt = _text(prompt)
    new = [_draw(draft.row(prompt), rng.random())]
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 4, rng)
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "In steps that start behind five or more new tokens the pipeline is one place ahead: the draft's rows for the verifier are those of the place before.",
    prompt=3,
    new=10,
    eos=None,
    last=2,
)
def decoder_late_q_one_place_before(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 3, rng)
        if len(new) >= 5:
            q = [q[0], *q[:-1]]
        n, t = _judge(d, _target_rows(target, text, d), q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


@wrong(
    "eos is suppressed in the bonus token (its row is masked): a text ends by drafted or recovered tokens only.",
    prompt=3,
    new=4,
    eos=2,
)
def decoder_bonus_without_eos(target, draft, prompt, max_new_tokens, eos, rng):
    new, prompt = [], _text(prompt)
    while not _done(new, max_new_tokens, eos):
        text = prompt + tuple(new)
        d, q = _propose(draft, text, 2, rng)
        p = _target_rows(target, text, d)
        if eos is not None:
            x = np.array(p[-1])
            x[eos] = 0
            if x.any():
                p[-1] = x / x.sum()
        n, t = _judge(d, p, q, rng)
        new += [*d[:n], t]
    return _cut(new, max_new_tokens, eos)


# total variation in the entry's shape, as simulated by its author
_TV = {
    "decoder_bonus_missing_in_target_cache": 0.27,
    "decoder_draft_cache_stale_q_recomputed": 0.1592,
    "decoder_position_off_after_full_acceptance": 0.3537,
    "decoder_no_rollback": 0.2375,
    "decoder_window_of_16": 0.7629,
    "decoder_bos_dropped": 0.662,
    "decoder_rejected_eos_ends": 0.0804,
    "decoder_eos_inside_step": 0.7515,
    "decoder_draft_masks_eos": 0.4547,
    "decoder_last_draft_untested": 0.3228,
    "decoder_limit_one_is_greedy": 0.529,
    "decoder_draft_and_verifier_seeded_alike": 0.1268,
    "decoder_greedy_draft_as_sample": 0.6263,
    "decoder_prefix_cache_by_length": 0.1786,
    "decoder_draft_cache_of_last_request": 0.0415,
    "decoder_coins_of_last_request": 0.63,
    "decoder_draft_temperature": 0.0868,
    "decoder_bonus_temperature": 0.0291,
    "decoder_positions_clamped_at_32": 0.547,
    "decoder_drops_unlikely_drafts": 0.2413,
    "decoder_late_q_one_place_before": 0.0325,
    "decoder_bonus_without_eos": 0.0704,
    "decoder_coins_once_a_request": 0.0834,
    "decoder_second_try": 0.1324,
    "decoder_first_token_of_draft": 0.3933,
}
for _e in WRONG:
    _e["tv"] = _TV[_e["name"]]
