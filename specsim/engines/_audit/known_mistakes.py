"""Known mistakes of engines around the kernel: the rows that tokens are drawn from where each happens.

A mistake is a function of the rows of target and draft, or it reads other tokens than those of the text. It
may happen at a share of the places only, so one on a path, such as that of the bonus, needs no own entry."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import add, attrgetter, methodcaller
from typing import Any

import numpy as np

from specsim import mistakes
from specsim.core._files import read_table
from specsim.core._parameters import written
from specsim.core._types import Floats, Ints
from specsim.core.distributions import normalise
from specsim.engines._audit.places import ENTRIES, Answered, Given, Places, distinct_contexts
from specsim.engines._planted.law import Law
from specsim.engines._planted.processing import PARTS, possible_orders
from specsim.engines._planted.requests import Completion, Sampling
from specsim.engines._server.decoding import Decoder, LocalEngine
from specsim.engines._server.mistakes import WHERE, one_long
from specsim.engines._server.step import Step
from specsim.mistakes._rows import LAWS, Pair, ratio, residual
from specsim.models._drafts.sampling import draw_siblings

#: Which are tried.
TRIED: dict[str, Any] = read_table("diagnosis")["engines"]
#: Mistakes that show whatever is asked for.
ALWAYS = {*TRIED["always"], *TRIED["values"], *TRIED["of_rows"]}
ALWAYS |= {name for named in TRIED["of_rows"].values() for part in named.values() for name in part}
#: Largest vocabulary for which rows are summed over a token, one that is read wrongly or rejected.
MOST_WORDS = 64
#: Combinations of words over which rows are averaged, where some tokens that are read may be any.
MOST_AVERAGED = 256
#: The share of places that is nearly all, and how far above its largest value the share of bonuses is fitted.
NEARLY_ALL, MARGIN = 0.75, 1.25
#: How often the texts are followed: what a state keeps depends on drafts that nobody saw, but for a head's.
FOLLOWED = 8

FromRows = Callable[[Given], Floats]


@dataclass(frozen=True)
class Known:
    """Mistakes of `specsim.mistakes` with one distribution, and the rows [N, V] where one of them happens.

    Where `contexts` [n, k] are read in place of those of the text, they are the target's rows there, or with
    [n, m·k] the mean of m rows; None reads the text. The names are those of mistakes that happen at most of
    the places (`often`), at half of them at most, as in a bonus (`seldom`), or at the `first` or `last` token
    of texts. Rows of another processing have a name at nearly all places, or at no more than bonuses can be:
    `between` are the shares without one. `detail` says what happens where the mistake's sentence does not."""

    often: tuple[str, ...]
    rows: FromRows
    seldom: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    detail: str = ""
    contexts: Ints | None = None
    between: tuple[float, float] = (0.5, 0.5)
    again: Callable[[], Places] | None = None  #: the same requests, decoded with the mistake by our server

    def names(self, where: int, share: float) -> tuple[str, ...]:
        """The mistakes that happen at a share of the places everywhere (0), or of the first or last ones."""
        anywhere = self.often if share > 0.5 else self.seldom or self.often
        return (anywhere, self.first or anywhere, self.last or anywhere)[where]

    def may_have(self, where: int, share: float) -> bool:
        """Whether it can be at so few places: what has no name of its own there happens at most of them."""
        few, many = self.between
        named = self.contexts is not None or bool((self.seldom, self.first, self.last)[where])
        return share > many or (share <= few and named)

    def mechanism(self, name: str) -> str:
        return self.detail or mistakes.get(name).mechanism

    def chosen(self, places: slice) -> "Known":
        return self if self.contexts is None else replace(self, contexts=self.contexts[places])


def known_mistakes(
    answered: Answered, places: Places, sampling: Sampling, order: str, gamma: int
) -> Iterator[Known]:
    """The mistakes; those of a state need `gamma`, the drafted tokens of a step, or 0 without drafts."""
    law = answered.planted.target
    if gamma and answered.texts and not sampling.reads_texts:
        yield from _of_state(answered, places, gamma)
    if gamma:
        yield from _of_verification(law.words, sampling)
    for known in _of_processing(sampling, order):
        # without drafts there is no bonus, and with them one of gamma + 1 tokens
        yield replace(known, seldom=known.seldom * bool(gamma), between=(MARGIN / (gamma + 1), NEARLY_ALL))
    if not sampling.reads_texts:  # every place has rows of its own, so that means of them take long
        yield from _unknown_tokens(law)
    reads = {"penalties": sampling.penalised, "bad_words": sampling.has_phrases, "grammar": sampling.grammar}
    for name in [name for name, given in reads.items() if given][:1]:
        # which miss the last tokens of a text, as those drafted in the same step
        every = [places.contexts.copy() for _ in TRIED["missed"]]
        for contexts, lag in zip(every, TRIED["missed"], strict=True):
            contexts[:, -1] -= np.minimum(lag, places.place)
        yield Known((f"{name}_miss_drafts",), attrgetter("p"), contexts=np.hstack(every))
    yield from _misread(answered, places)


def _of_state(answered: Answered, places: Places, gamma: int) -> Iterator[Known]:
    """Mistakes of what is carried from token to token, as our server makes them."""
    planted, asked, law = answered.planted, [*answered.requests.values()], answered.planted.target
    whole = answered.places(every=True).contexts

    def again(name: str) -> Places:
        engine = LocalEngine(planted, gamma=gamma, mistake=name, seed=0)
        found = [one for one in engine.complete(asked) if isinstance(one, Completion)]
        return answered._replace(texts=found).places()

    there = {"state": law.memory, "expert": law.experts}
    for name, where in WHERE.items():
        if there.get(where) or (name == "window_off_by_one" and planted.architecture == "sliding-window"):
            times = FOLLOWED if where == "state" and not planted.heads else 1
            read = contexts_read(answered, name, gamma, whole, times)[:, places.index]
            every = np.concatenate([*read], axis=1)
            yield Known((name,), attrgetter("p"), contexts=every, again=partial(again, name))


def _law(name: str, **values: float) -> FromRows:
    return lambda g: LAWS[name](g.rows, **values)


def _of_verification(words: int, sampling: Sampling) -> Iterator[Known]:
    for name, named in TRIED["of_rows"].items():
        seldom, first, last = (tuple(named.get(part, ())) for part in ("seldom", "first", "last"))
        yield Known((name,), _law(name), seldom, first, last)
    only = next(iter(sampling.acting)) if len(sampling.acting) == 1 else ""
    untested = {"temperature": "draft_temperature", "top_k": "draft_top_k"}.get(only, "raw_q_in_test")
    undrawn = {"temperature": "handed_temperature"}.get(only, "raw_drafts")
    yield Known((untested,), lambda g: Pair(g.p, g.raw.q).emitted(g.q))
    yield Known((undrawn,), lambda g: g.rows.emitted(g.raw.q))
    yield Known(("raw_p_in_test",), lambda g: g.rows.emitted(accepted=ratio(g.raw.p, g.q)))
    yield Known(("draft_numbers_in_check",), _law("draft_numbers_in_check"))
    if words <= MOST_WORDS:
        yield Known(("test_uniform_draws",), _law("test_uniform_draws"))
    for name, values in TRIED["values"].items():
        for one in ({parameter: value} for parameter, tried in values.items() for value in tried):
            yield Known((written(name, one),), _law(name, **one))


#: The mistakes of the rows without a parameter: in the residual, and in the test and the residual.
RESIDUAL = {"temperature": "residual_temperature"}
TESTED = {"temperature": ("verified_at_temperature",), "min_p": ("bonus_min_p",)}


def _of_processing(sampling: Sampling, order: str) -> Iterator[Known]:
    for name, values in PARTS.items():
        if values.keys() & sampling.acting:
            yield from _without(name, methodcaller("changed", **values))
    frequency, presence = sampling.frequency_penalty or 0.0, sampling.presence_penalty or 0.0
    if frequency or presence:  # planted logits are negative
        added = methodcaller("changed", frequency_penalty=-frequency, presence_penalty=-presence)
        yield Known(("penalties_added",), added)
    if frequency:
        once = methodcaller("changed", frequency_penalty=0.0, presence_penalty=presence + frequency)
        yield Known(("frequency_once",), once)
    if presence:
        often = methodcaller("changed", frequency_penalty=frequency + presence, presence_penalty=0.0)
        yield Known(("presence_each_time",), often)
    if (penalty := sampling.repetition_penalty or 1.0) != 1.0:
        yield Known(("repetition_divides",), methodcaller("changed", repetition_penalty=1.0 / penalty))
    for later in TRIED["late"] if "min_tokens" in sampling.acting else ():
        rows = methodcaller("changed", min_tokens=sampling.min_tokens + later)
        yield Known(("min_tokens_late",), rows, seldom=("min_tokens_late",))
    for k in {max(1, sampling.top_k - 1), sampling.top_k + 1} if sampling.top_k else ():
        yield Known((written("other_top_k", {"k": k}),), methodcaller("changed", top_k=k))
    if sampling.temperature not in (0.0, 1.0):
        yield Known(("temperature_twice",), methodcaller("changed", temperature=sampling.temperature**2))
    elif sampling.temperature == 1.0:
        for t in TRIED["temperatures"]:
            name = written("other_temperature", {"temperature": t})
            yield Known((name,), methodcaller("changed", temperature=t))
    for other in possible_orders(sampling):
        if other != order:
            named = (name for part, name in TRIED["orders"].items() if part in other and part not in order)
            detail = f"Rows are processed in the order {other}."
            yield Known((next(named, "other_order"),), methodcaller("changed", other), detail=detail)


def _without(name: str, changed: FromRows) -> Iterator[Known]:
    """A parameter is left out everywhere, in the residual, and in the test."""
    bonus = "bonus_temperature" if name == "temperature" else f"{name}_not_in_bonus"
    yield Known((*TESTED.get(name, ()), f"{name}_ignored"), changed, seldom=(bonus,))
    recovered = RESIDUAL.get(name, f"{name}_not_in_recovered")
    yield Known((recovered,), lambda g: g.rows.emitted(recovered=residual(changed(g), g.q)))
    yield Known((f"{name}_not_in_test",), lambda g: g.rows.emitted(accepted=ratio(changed(g), g.q)))


def _unknown_tokens(law: Law) -> Iterator[Known]:
    """Tokens at some distances are not those of the text: the rows are averaged over what may be read."""
    if law.words > MOST_WORDS:
        return
    for size in range(1, len(law.offsets) + 1):
        for wrong in combinations(range(len(law.offsets)), size):
            far = " and ".join(str(law.offsets[column]) for column in wrong)
            detail = f"The token at distance {far} is not that of the text, as after a wrong rollback."
            yield Known(tuple(TRIED["misread"]), partial(_averaged, wrong), detail=detail)


def _averaged(wrong: Sequence[int], g: Given) -> Floats:
    """Rows averaged over at most `MOST_AVERAGED` combinations of words in the columns `wrong`."""
    law, rng = g.planted.target, np.random.default_rng(0)
    count = law.words ** len(wrong)
    every = np.stack(np.unravel_index(np.arange(count), (law.words,) * len(wrong)), axis=1)
    some = every if count <= MOST_AVERAGED else rng.permutation(every)[:MOST_AVERAGED]
    known = g.contexts.copy()
    known[:, list(wrong)] = 0
    distinct, which = distinct_contexts(known)
    found = np.zeros((len(distinct), law.vocab_size))
    at_once = max(1, ENTRIES // found.size)
    for start in range(0, len(some), at_once):
        words = some[start : start + at_once]
        read = np.repeat(distinct, len(words), axis=0)
        read[:, list(wrong)] = np.tile(words, (len(distinct), 1))
        found += replace(g, contexts=read).p.reshape(len(distinct), len(words), -1).sum(axis=1)
    return found[which] / len(some)


def _misread(answered: Answered, places: Places) -> Iterator[Known]:
    """What is read [n, k] where a cache, a page or another request's rows are mixed up."""
    law = answered.planted.target
    if not answered.texts or not (law.offsets or law.openers):
        return
    whole, prompts = answered.padded()
    at = prompts[places.text] + places.place
    if law.offsets:
        stale = whole.copy()
        one_long(stale, prompts)
        read = _read(law, stale, places, places.text, at, partial(add, 0))
        yield Known(("prefix_one_long",), attrgetter("p"), contexts=read)
        for name, seldom, detail, move in _moves():
            read = _read(law, whole, places, places.text, at, move)
            first = ("prompt_end_twice",) if name == "bonus_cached_twice" else ()
            yield Known((name,), attrgetter("p"), seldom, first, detail=detail, contexts=read)
        for name, step in (("next", 1), ("previous", -1), ("second next", 2)):
            # not around: no text may be read by itself by way of others
            other = np.clip(places.text + step, 0, len(whole) - 1)
            detail = f"Rows are those of the {name} request at the same place."
            read = _read(law, whole, places, other, prompts[other] + places.place, partial(add, 0))
            names = "rows_of_next", "prompt_of_next"
            yield Known(names, attrgetter("p"), seldom=names[::-1], detail=detail, contexts=read)
    if len(law.openers) > 1:
        for step in (1, -1):
            contexts = places.contexts.copy()
            contexts[:, len(law.sizes) - 1] = whole[(places.text + step) % len(whole), 0]
            yield Known(("first_token_of_next",), attrgetter("p"), contexts=contexts)


#: From the indices of the tokens that are to be read to those that are read instead.
Move = Callable[[Ints], Ints]


def _moves() -> Iterator[tuple[str, tuple[str, ...], str, Move]]:
    yield "newest_token_unread", ("bonus_row_before",), "", partial(add, -1)
    yield "bonus_cached_twice", (), "", partial(add, 1)
    for page in TRIED["pages"]:
        yield "page_offset", (), f"Tokens are read {page} places too early.", partial(add, -page)
        for first in (0, 1):
            detail = f"Every second page of {page} tokens is read from the page before."
            yield "wrong_page", (), detail, partial(_page_before, page, first)


def _page_before(page: int, first: int, index: Ints) -> Ints:
    return np.where(index // page % 2 == first, index - page, index)


def _read(law: Law, whole: Ints, places: Places, text: Ints, at: Ints, move: Move) -> Ints:
    """The contexts read in `text` where indices are moved."""
    contexts = places.contexts.copy()
    for column, offset in enumerate(law.offsets):
        index = move(at - offset)
        legal = (index >= bool(law.openers)) & (index < np.minimum(at, whole.shape[1]))
        tokens = whole[text, np.clip(index, 0, whole.shape[1] - 1)]
        legal &= (tokens >= 0) & (tokens < law.words)
        contexts[:, column] = np.where(legal, tokens, contexts[:, column])
    return contexts


# What a wrong engine would have read while it wrote given texts: our server decodes them again. A token was
# an accepted draft with probability min(p, q) / p, which is drawn; drafts after a rejection are drawn from q.


def contexts_read(answered: Answered, mistake: str, gamma: int, right: Ints, times: int) -> Ints:
    """The contexts [times, n, k] that the target reads for each token of the texts, in their order, under a
    mistake, each time with other drafts. They are `right` [n, k] in texts with tokens that never come."""
    planted, requests, texts = answered
    follower = _Follower(planted, gamma=gamma, mistake=mistake, seed=0)
    lengths = np.tile([len(one.tokens) for one in texts], times)
    follower.read, follower.starts = np.tile(right, (times, 1)), np.cumsum(lengths) - lengths
    tokens = np.concatenate([np.array(one.tokens, dtype=np.int64) for one in texts])
    follower.tokens, follower.rng = np.tile(tokens, times), np.random.default_rng(0)
    for which in range(times):
        for i, one in enumerate(texts):
            if one.tokens and max(one.tokens) < planted.target.words and min(one.tokens) >= 0:
                asked, number = requests[one.number], which * len(texts) + i
                sampling = replace(asked.sampling, stop=(), logprobs=None)
                most = len(one.tokens)
                follower.add(replace(asked, number=number, n=1, max_tokens=most, sampling=sampling))
    while follower.busy:
        follower.step()
    return follower.read.reshape(times, *right.shape)


class _Follower(Decoder):
    """Decodes the texts with the numbers of their requests, and keeps what is read."""

    read: Ints
    starts: Ints
    tokens: Ints
    rng: np.random.Generator

    def _draft(self, step: Step) -> None:
        run, target = step.run, self.pair.target
        at = self.starts[[text.request.number for text in run.texts]] + run.count
        most = np.array([text.request.max_tokens for text in run.texts]) - run.count
        going, step.accepted[:], step.tokens[:] = np.ones(step.size, dtype=bool), 0, -1
        for i in range(step.gamma + 1):
            contexts = self._contexts(target, run, i, 1)[:, 0]
            here = np.flatnonzero(going & (i < most))
            token = np.zeros(step.size, dtype=np.int64)
            token[here] = self.tokens[at[here] + i]
            self.read[at[here] + i] = contexts[here]
            step.tokens[i, here] = token[here]
            if i == step.gamma:
                break
            p = step.process(target.scores(contexts)[:, None], first=i)[:, 0]
            q = self._q(step, step.draft_rows(i, 1), i)
            excess = np.maximum(q - p, 0.0)
            own_p, own_q = p[step.every, token], q[step.every, token]
            u = self.rng.random((2, step.size))
            some = np.asarray(excess.any(axis=1))
            accepted = (u[0] * own_p < own_q) | ~some
            rows = np.where((going & ~accepted)[:, None], normalise(excess + ~some[:, None]), q)
            going &= accepted & (i < most)
            drawn = draw_siblings("sampled", np.ascontiguousarray(rows), u[1:])[0]
            step.drafted[:, i] = np.where(going, token, drawn)
            run.seen[step.every, run.length + i] = step.drafted[:, i]
            step.accepted += going

    def _verify_and_emit(self, step: Step) -> None:
        step.raw_p, step.counted_accepted[:] = np.empty((step.size, 0)), step.accepted
        self._settle(step)
