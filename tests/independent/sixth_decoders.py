"""Twenty-four wrong decoders, each with one mistake, and four right ones. The helpers are right."""

import numpy as np

ENTRIES, RIGHT = [], []
GAMMA = 2
_state = {}


def reset():
    """Forget all that decoders keep between calls."""
    _state.clear()


def entry(mechanism, shape="any", where=ENTRIES):
    def add(function):
        function.declared = {"decoder": True}
        where.append(
            {
                "name": function.__name__,
                "mechanism": mechanism,
                "shape": shape,
                "tv": None if where is ENTRIES else 0.0,
            }
        )
        return function

    return add


# ---- right helpers


def pick(pmf, rng, u=None):
    cdf = np.cumsum(pmf)
    u = rng.random() if u is None else u
    return min(int(np.searchsorted(cdf, u * cdf[-1], "right")), len(cdf) - 1)


def propose(draft, text, rng, gamma=GAMMA):
    """Drafted tokens and the pmfs that they were drawn from."""
    xs, qs = [], []
    for _ in range(gamma):
        qs.append(draft.row(text + tuple(xs)))
        xs.append(pick(qs[-1], rng))
    return xs, qs


def rows(target, text, xs):
    """The target's pmfs at the drafted places and after them."""
    return [target.row(text + tuple(xs[:i])) for i in range(len(xs) + 1)]


def accepted(ps, qs, xs, rng, sure=(), numbers=None):
    """How many drafted tokens are accepted. Places in `sure` are not tested; `numbers`: uniform numbers to use."""
    for i, x in enumerate(xs):
        u = rng.random() if numbers is None else numbers[i]
        if i not in sure and u * qs[i][x] >= ps[i][x]:
            return i
    return len(xs)


def last(n, ps, qs, rng, u=None):
    """The token after n accepted ones."""
    if n == len(qs):
        return pick(ps[n], rng, u)
    residual = np.maximum(ps[n] - qs[n], 0)
    return pick(residual if residual.sum() > 0 else ps[n], rng, u)


def settle(ps, qs, xs, rng, **how):
    n = accepted(ps, qs, xs, rng, **how)
    return list(xs[:n]) + [last(n, ps, qs, rng)]


def add(new, got, most, eos):
    """Append the tokens; true when the text is at its end."""
    for token in got:
        if len(new) >= most:
            return True
        new.append(token)
        if token == eos:
            return True
    return len(new) >= most


# ---- mistakes of well-known kinds


@entry(
    "The target's rows are cached by the length of the text only and not taken back after a rejection: places after the "
    "rejected one use rows computed with the rejected token in the text."
)
def rows_by_length(target, draft, prompt, most, eos, rng):
    text, new, cache = tuple(prompt), [], {}
    while True:
        xs, qs = propose(draft, text, rng)
        for i in range(len(xs) + 1):
            if len(text) + i not in cache:
                cache[len(text) + i] = target.row(text + tuple(xs[:i]))
        ps = [cache[len(text) + i] for i in range(len(xs) + 1)]
        if add(new, settle(ps, qs, xs, rng), most, eos):
            return new
        text = tuple(prompt) + tuple(new)


@entry(
    "After a rejection the correction is output, but the text that both models go on from holds the rejected token in its place."
)
def rejected_in_text(target, draft, prompt, most, eos, rng):
    text, new = tuple(prompt), []
    while True:
        xs, qs = propose(draft, text, rng)
        got = settle(rows(target, text, xs), qs, xs, rng)
        if add(new, got, most, eos):
            return new
        text += tuple(xs) + (got[-1],) if len(got) > len(xs) else tuple(xs[: len(got)])


@entry(
    "The drafts are drawn from the draft's right rows, but the pmfs q in test and residual are the draft's rows of the text "
    "without its newest token (the draft's scores lag one token)."
)
def lagging_scores(target, draft, prompt, most, eos, rng):
    text, new = tuple(prompt), []
    while True:
        xs, _ = propose(draft, text, rng)
        qs = [draft.row((text + tuple(xs[:i]))[:-1]) for i in range(len(xs))]
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new
        text = tuple(prompt) + tuple(new)


@entry(
    "The last prompt token is fed twice (in the prefill and as first input of the loop): both models see it doubled before "
    "the new tokens.",
    "prompts whose last two tokens differ",
)
def doubled_token(target, draft, prompt, most, eos, rng):
    start, new = tuple(prompt) + tuple(prompt[-1:]), []
    while True:
        text = start + tuple(new)
        xs, qs = propose(draft, text, rng)
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


@entry(
    "The end token is looked for only in the last token of each step: an end token among the accepted drafts does not end "
    "the text, and tokens follow it.",
    "an end token is given",
)
def end_in_drafts(target, draft, prompt, most, eos, rng):
    new = []
    while len(new) < most:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        new += settle(rows(target, text, xs), qs, xs, rng)
        if eos is not None and new[-1] == eos:
            break
    return new[:most]


@entry(
    "A drafted end token is accepted without a test when the drafts before it are accepted.",
    "an end token is given",
)
def end_unverified(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        sure = [i for i, x in enumerate(xs) if x == eos]
        if add(new, settle(rows(target, text, xs), qs, xs, rng, sure=sure), most, eos):
            return new


@entry(
    "When just one token is left to make, a short cut takes the target's likeliest token and does not draw.",
    "the last of the most new tokens is looked at",
)
def greedy_end(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        if len(new) == most - 1:
            return new + [int(np.argmax(target.row(text)))]
        xs, qs = propose(draft, text, rng)
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


@entry("The uniform numbers of the accept tests are drawn once before the loop and used again in each step.")
def numbers_of_first_step(target, draft, prompt, most, eos, rng):
    new, numbers = [], rng.random(GAMMA)
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        if add(new, settle(rows(target, text, xs), qs, xs, rng, numbers=numbers), most, eos):
            return new


@entry(
    "The first new token is drawn from the draft's row after the prompt and output without a test; the loop after it is right."
)
def first_from_draft(target, draft, prompt, most, eos, rng):
    new = []
    if add(new, [pick(draft.row(tuple(prompt)), rng)], most, eos):
        return new
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


@entry(
    "After a fully accepted draft the bonus token is drawn from the draft's row and not from the target's."
)
def bonus_from_draft(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ps = rows(target, text, xs)
        ps[-1] = draft.row(text + tuple(xs))
        if add(new, settle(ps, qs, xs, rng), most, eos):
            return new


@entry(
    "After a fully accepted draft the target's row of the bonus place is kept and used as the first row of the next step, "
    "though the bonus token stands in the text since.",
    "more new tokens than one step makes",
)
def bonus_row_kept(target, draft, prompt, most, eos, rng):
    new, kept = [], None
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ps = rows(target, text, xs)
        ps[0] = ps[0] if kept is None else kept
        got = settle(ps, qs, xs, rng)
        kept = ps[-1] if len(got) > len(xs) else None
        if add(new, got, most, eos):
            return new


@entry("After a rejection both the rejected token and the correction are output, one after the other.")
def both_tokens(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ps = rows(target, text, xs)
        n = accepted(ps, qs, xs, rng)
        if add(new, xs[: n + 1] + [last(n, ps, qs, rng)], most, eos):
            return new


@entry(
    "After a rejection at n the residual uses the target's row n + 1, which is the row after the rejected token, with the "
    "draft's row n; the accept tests and the bonus are right."
)
def row_after_rejected(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ps = rows(target, text, xs)
        n = accepted(ps, qs, xs, rng)
        if add(new, xs[:n] + [last(n, ps if n == len(xs) else ps[:n] + [ps[n + 1]], qs, rng)], most, eos):
            return new


@entry(
    "When the last step makes more tokens than asked for, the result is trimmed at the wrong end: the first tokens are dropped.",
    "the most new tokens are fewer than the steps make",
)
def trimmed_front(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ended = add(new, settle(rows(target, text, xs), qs, xs, rng), most + GAMMA + 1, eos)
        if ended or len(new) >= most:
            return new[len(new) - most :] if len(new) > most else new


# ---- unusual ones


@entry(
    "A drafted token with q(x) under 0.4 is thrown away after it was drawn and drafting stops, so its place is settled as "
    "the bonus place with plain p; the kept drafts no longer have the law q that the test assumes."
)
def unsure_dropped(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        sure = [q[x] >= 0.4 for q, x in zip(qs, xs)] + [False]
        n = sure.index(False)
        xs, qs = xs[:n], qs[:n]
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


@entry(
    "Two drafts are drawn and the one that the draft model finds likelier is kept; it is then verified with q as if it were "
    "a single draw."
)
def better_of_two(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        pair = [propose(draft, text, rng) for _ in range(2)]
        xs, qs = max(pair, key=lambda one: np.prod([q[x] for x, q in zip(*one)]))
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


def looked_up(text):
    """The tokens after the newest earlier place of the last token; the last token again where there are none."""
    for i in range(len(text) - 2, -1, -1):
        if text[i] == text[-1]:
            return (list(text[i + 1 :]) + [text[-1]] * GAMMA)[:GAMMA]
    return list(text[-1:]) * GAMMA


@entry(
    "The drafts are looked up in the text (certain, not drawn), but test and residual use the draft model's pmfs as q and "
    "not one-hot rows."
)
def lookup_with_rows(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs = looked_up(text)
        qs = [draft.row(text + tuple(xs[:i])) for i in range(len(xs))]
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


@entry(
    "When the first drafted token is rejected, the step is done once more with a new draft (to save the target's work) and "
    "only the second result counts."
)
def second_draft(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        for _ in range(2):
            xs, qs = propose(draft, text, rng)
            got = settle(rows(target, text, xs), qs, xs, rng)
            if len(got) > 1:
                break
        if add(new, got, most, eos):
            return new


@entry(
    "Drafts after a rejected one are used again in the next step (allowed), but q is computed anew for the new text and not "
    "the pmf that they were drawn from."
)
def rescored_drafts(target, draft, prompt, most, eos, rng):
    new, left = [], []
    while True:
        text = tuple(prompt) + tuple(new)
        xs = left + propose(draft, text + tuple(left), rng, 3 - len(left))[0]
        qs = [draft.row(text + tuple(xs[:i])) for i in range(len(xs))]
        got = settle(rows(target, text, xs), qs, xs, rng)
        left = xs[len(got) :]
        if add(new, got, most, eos):
            return new


@entry(
    "The uniform number that drew the last token of a step also draws the first drafted token of the next step, so that "
    "this draft is not free given the text.",
    "more new tokens than one step makes",
)
def carried_number(target, draft, prompt, most, eos, rng):
    new, u = [], rng.random()
    while True:
        text = tuple(prompt) + tuple(new)
        q = draft.row(text)
        x = pick(q, rng, u)
        xs, qs = propose(draft, text + (x,), rng, GAMMA - 1)
        xs, qs = [x] + xs, [q] + qs
        ps = rows(target, text, xs)
        n, u = accepted(ps, qs, xs, rng), rng.random()
        if add(new, xs[:n] + [last(n, ps, qs, rng, u)], most, eos):
            return new


@entry("A drafted token whose q(x) is over 0.6 is accepted without a test; the others are tested rightly.")
def sure_of_itself(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        sure = [i for i, x in enumerate(xs) if qs[i][x] > 0.6]
        if add(new, settle(rows(target, text, xs), qs, xs, rng, sure=sure), most, eos):
            return new


@entry(
    "The target's rows are cached in the call under the sum of place times token id, which a token 0 does not change: the "
    "text with a 0 at its end finds the row of the text before it."
)
def zero_blind_key(target, draft, prompt, most, eos, rng):
    new, cache = [], {}

    def row(text):
        key = sum((i + 1) * token for i, token in enumerate(text))
        if key not in cache:
            cache[key] = target.row(text)
        return cache[key]

    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ps = [row(text + tuple(xs[:i])) for i in range(len(xs) + 1)]
        if add(new, settle(ps, qs, xs, rng), most, eos):
            return new


@entry(
    "The target's rows are cached between calls under the text alone: later calls with another target model find the rows "
    "of the first one.",
    "later calls with another target",
)
def rows_of_first_model(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, rng)
        ps = []
        for i in range(len(xs) + 1):
            key = text + tuple(xs[:i])
            if key not in _state:
                _state[key] = target.row(key)
            ps.append(_state[key])
        if add(new, settle(ps, qs, xs, rng), most, eos):
            return new


@entry(
    "The drafts and the verification have generators of their own, made once in the call from the same seed (drawn from rng): "
    "the numbers that draw the drafts come again in accept tests and last tokens."
)
def twins(target, draft, prompt, most, eos, rng):
    seed = int(rng.integers(2**62))
    one, two, new = np.random.default_rng(seed), np.random.default_rng(seed), []
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = propose(draft, text, one)
        if add(new, settle(rows(target, text, xs), qs, xs, two), most, eos):
            return new


# ---- right ones


@entry(
    "Drafts after a rejected one are used again with the pmfs that they were drawn from. Nothing that was decided looked at "
    "them, so given the text they still have those pmfs' law, and the test is right for any q from which x is drawn.",
    where=RIGHT,
)
def kept_drafts(target, draft, prompt, most, eos, rng):
    new, xs, qs = [], [], []
    while True:
        text = tuple(prompt) + tuple(new)
        more, rows_of_more = propose(draft, text + tuple(xs), rng, 3 - len(xs))
        xs, qs = xs + more, qs + rows_of_more
        got = settle(rows(target, text, xs), qs, xs, rng)
        xs, qs = xs[len(got) :], qs[len(got) :]
        if add(new, got, most, eos):
            return new


@entry(
    "While the target would work, the next draft is made after a guess of the bonus token by the draft; it is used only when "
    "the bonus is the guess. Its law given the guess is q, and whether it is used depends on guess and bonus only.",
    where=RIGHT,
)
def ahead(target, draft, prompt, most, eos, rng):
    new, ready = [], None
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = ready or propose(draft, text, rng)
        guess = pick(draft.row(text + tuple(xs)), rng)
        following = propose(draft, text + tuple(xs) + (guess,), rng)
        got = settle(rows(target, text, xs), qs, xs, rng)
        ready = following if got == list(xs) + [guess] else None
        if add(new, got, most, eos):
            return new


@entry(
    "The drafts are looked up in the text and verified with one-hot q: x is accepted with p(x), the residual is p without x, "
    "which together is p for any fixed x.",
    where=RIGHT,
)
def lookup_certain(target, draft, prompt, most, eos, rng):
    new = []
    while True:
        text = tuple(prompt) + tuple(new)
        xs = looked_up(text)
        ps = rows(target, text, xs)
        qs = [np.eye(len(ps[0]))[x] for x in xs]
        if add(new, settle(ps, qs, xs, rng), most, eos):
            return new


@entry(
    "The draft sees only the newest token, and rejected tokens stay in what it sees; drafting stops after (not before) an "
    "unsure token. q is always the pmf that x was drawn from and the length depends only on tokens that are all verified, so "
    "the text has the target's law with a poor draft.",
    where=RIGHT,
)
def poor_draft(target, draft, prompt, most, eos, rng):
    new, seen = [], tuple(prompt)
    while True:
        text = tuple(prompt) + tuple(new)
        xs, qs = [], []
        while len(xs) < 4 and (not xs or qs[-1][xs[-1]] >= 0.4):
            qs.append(draft.row(seen[-1:]))
            xs.append(pick(qs[-1], rng))
            seen += (xs[-1],)
        if add(new, settle(rows(target, text, xs), qs, xs, rng), most, eos):
            return new


# measured by the author
MEASURED = {
    "rows_by_length": 0.336,
    "rejected_in_text": 0.380,
    "lagging_scores": 0.604,
    "doubled_token": 0.655,
    "end_in_drafts": 0.233,
    "end_unverified": 0.066,
    "greedy_end": 0.340,
    "numbers_of_first_step": 0.134,
    "first_from_draft": 0.525,
    "bonus_from_draft": 0.349,
    "bonus_row_kept": 0.173,
    "both_tokens": 0.761,
    "row_after_rejected": 0.429,
    "trimmed_front": 0.315,
    "unsure_dropped": 0.324,
    "better_of_two": 0.214,
    "lookup_with_rows": 0.918,
    "second_draft": 0.246,
    "rescored_drafts": 0.201,
    "carried_number": 0.168,
    "sure_of_itself": 0.678,
    "zero_blind_key": 0.480,
    "rows_of_first_model": 0.701,
    "twins": 0.302,
}
for _entry in ENTRIES:
    _entry["tv"] = MEASURED[_entry["name"]]
