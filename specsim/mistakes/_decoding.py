"""A correct decoder in plain Python whose parts can be replaced, and the distribution of its sequences.

A step drafts γ tokens (fewer near the end of the text), verifies them with the standard rule, and emits the
accepted tokens and one more. Draft and target each keep a state: the tokens that they have processed."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from specsim.core._types import Row, Tokens
from specsim.core.distributions import inverse_cdf
from specsim.mistakes._base import Mistake, named
from specsim.mistakes._laws import Rows, StepLaw, ratios, residual, stop_law
from specsim.models import Model
from specsim.models._base import read_by


def unchanged(row: Row, **values: Any) -> Row:
    return row


def accepted_and_last(drafted: Tokens, accepted: int, last: int) -> Tokens:
    return (*drafted[:accepted], last)


def at_eos(tokens: Tokens, eos: int | None) -> tuple[Tokens, bool]:
    """Of the tokens of a step those up to the first end-of-sequence token, and whether there was one."""
    return (tokens[: tokens.index(eos) + 1], True) if eos in tokens else (tokens, False)


@dataclass(frozen=True)
class Decoder:
    """Speculative decoding of one sequence; the defaults are correct.

    Four functions map rows (lists in any arithmetic) with the mistake's values: `drafting` gives the pmf of a
    drafted token and `verified_q` the q of verification, both from the draft's row; `verified_p` gives the p
    of verification from the target's row, `bonus` the pmf of the bonus. `cut(drafted, eos)` drafted tokens
    are verified. From (drafted, number accepted, last token) `emits` gives the tokens of the step,
    `draft_keeps` and `target_keeps` the tokens added to each state. With `rescored` q is read after the text
    instead of the draft's state. `ends(tokens of a step, eos)` gives the output, and whether to stop. With
    `late` a rejected token is kept, and the next token drawn from p at the position after it. `verification`,
    the law of a step, replaces the standard rule's; its rows are those of the models before any processing
    unless `processed`. With `repeated` every step of a text has the random numbers of the first one, with
    `one_test` one uniform tests all its tokens: then steps depend on each other, and the law of a text is not
    enumerated. A step drafts `gamma` tokens, near the end of a text fewer, unless it `overshoots`: then the
    text is cut. A step is drafted and verified `tries` times, a function of the mistake's values; the first
    of those with the most accepted tokens is kept. With `bonus_of_draft` the bonus is drawn from the draft's
    row after its tokens."""

    drafting: Callable[..., Row] = unchanged
    verified_q: Callable[..., Row] = unchanged
    verified_p: Callable[..., Row] = unchanged
    bonus: Callable[..., Row] = unchanged
    cut: Callable[[Tokens, int | None], int] = lambda drafted, eos: len(drafted)
    emits: Callable[[Tokens, int, int], Tokens] = accepted_and_last
    draft_keeps: Callable[[Tokens, int, int], Tokens] = accepted_and_last
    target_keeps: Callable[[Tokens, int, int], Tokens] = accepted_and_last
    ends: Callable[[Tokens, int | None], tuple[Tokens, bool]] = at_eos
    rescored: bool = False
    late: bool = False
    verification: Callable[..., StepLaw] | None = None
    processed: bool = True
    repeated: bool = False
    one_test: bool = False
    tries: Callable[..., int] = lambda **values: 1
    bonus_of_draft: bool = False
    gamma: int = 2
    overshoots: bool = False

    @property
    def enumerable(self) -> bool:
        return not (self.repeated or self.one_test)

    def __call__(
        self,
        target: Model,
        draft: Model,
        prompt: Sequence[int],
        max_new_tokens: int,
        eos: int | None,
        rng: np.random.Generator,
        **values: float,
    ) -> list[int]:
        """New tokens after `prompt`: `max_new_tokens`, or fewer if the last one is `eos`."""
        text = draft_seen = target_seen = tuple(map(int, prompt))
        most, ended = len(text) + max_new_tokens, False
        seed = int(rng.integers(2**63)) if self.repeated else 0
        coin = rng.random() if self.one_test else None
        while not ended and len(text) < most:
            rng = np.random.default_rng(seed) if self.repeated else rng
            length = self.length(most - len(text))
            tries: list[tuple[Tokens, int, int]] = []
            for _ in range(self.tries(**values)):
                drafted, q = self._draft(draft, draft_seen, text, length, rng, **values)
                drafted = drafted[: self.cut(drafted, eos)]
                tries.append((drafted, *self._verify(target, target_seen, drafted, q, rng, coin, **values)))
            drafted, accepted, last = max(tries, key=lambda one: one[1])
            tokens, ended = self.ends(self.emits(drafted, accepted, last), eos)
            text += tokens
            draft_seen += self.draft_keeps(drafted, accepted, last)
            target_seen += self.target_keeps(drafted, accepted, last)
        return list(text[len(prompt) : most])

    def length(self, room: int) -> int:
        """How many tokens are drafted where the text has room for `room`."""
        return self.gamma if self.overshoots else min(self.gamma, room - 1)

    def _draft(
        self, draft: Model, seen: Tokens, text: Tokens, length: int, rng: np.random.Generator, **values: float
    ) -> tuple[Tokens, list[Row]]:
        """The drafted tokens, and the rows of q that verification is given."""
        drafted: Tokens = ()
        q: list[Row] = []
        while len(drafted) < length:
            row = _floats(draft, seen + drafted)
            given = _floats(draft, text + drafted) if self.rescored else row
            q.append(self.verified_q(given, **values))
            drafted += (inverse_cdf(self.drafting(row, **values), rng.random()),)
        return drafted, [*q, _floats(draft, seen + drafted)] if self.bonus_of_draft else q

    def _verify(
        self,
        target: Model,
        seen: Tokens,
        drafted: Tokens,
        q: Rows,
        rng: np.random.Generator,
        coin: float | None,
        **values: float,
    ) -> tuple[int, int]:
        """The number of accepted tokens, and the token after them."""
        if self.verification is not None:
            p_rows = [_floats(target, seen + drafted[:i]) for i in range(len(drafted) + 1)]
            stop, follow = self.law(range(len(drafted)), drafted, p_rows, q, **values)
            accepted = inverse_cdf(stop, rng.random())
            return accepted, inverse_cdf(follow[accepted], rng.random())
        for i, x in enumerate(drafted):
            p = self.verified_p(_floats(target, seen + drafted[:i]), **values)
            if not (rng.random() if coin is None else coin) * q[i][x] < p[x]:
                if self.late:
                    return i + 1, inverse_cdf(_floats(target, seen + drafted[: i + 1]), rng.random())
                weights = [max(a - b, 0.0) for a, b in zip(p, q[i], strict=True)]
                return i, inverse_cdf(weights if any(weights) else p, rng.random())
        row = q[len(drafted)] if self.bonus_of_draft and drafted else _floats(target, seen + drafted)
        return len(drafted), inverse_cdf(self.bonus(row, **values), rng.random())

    def law(self, parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, **values: Any) -> StepLaw:
        """The law of verification, on the models' rows."""
        if self.verification is not None and len(tokens):  # without a draft p is sampled
            return self.verification(parents, tokens, p, q, **values)
        against = [self.verified_p(row, **values) for row in p[: len(tokens)]]
        verified_q = [self.verified_q(row, **values) for row in q]
        stop = stop_law(ratios(tokens, against, verified_q))
        follow = [residual(*rows) for rows in zip(against, verified_q, strict=False)]
        if self.late and tokens:
            *before, rejected, whole = stop
            stop, follow = [0 * whole, *before, rejected + whole], [list(row) for row in p[: len(tokens)]]
        row = q[len(tokens)] if self.bonus_of_draft and tokens else p[len(tokens)]
        return stop, [*follow[: len(tokens)], list(self.bonus(row, **values))]


def decoder(name: str, decode: Decoder) -> Mistake:
    """Make a mistake of `decode`; it has no law of a step where only its states or its output are wrong."""
    places = ("drafting", "verified_q", "verified_p", "bonus", "late", "verification", "bonus_of_draft")
    replaced = any(getattr(decode, place) is not getattr(Decoder(), place) for place in places)
    return named(name, decode=decode, law=decode.law if replaced else None, drafting=decode.drafting)


def in_a_loop(mistake: Mistake) -> Mistake:
    """The decoder that verifies as `mistake` does, if that has a law; a decoder itself."""
    if mistake.decode is not None or mistake.law is None:
        return mistake
    return replace(mistake, verify=None, decode=Decoder(verification=mistake.law))


def sequence_law(
    mistake: Mistake,
    target: "Model | RowsOf",
    draft: "Model | RowsOf",
    prompt: Sequence[int],
    max_new_tokens: int,
    eos: int | None,
    length: int | None = None,
    laws: Callable[[int], object] = lambda _: None,
) -> dict[Tokens, Any]:
    """Enumerate {new tokens: probability} of a decoder mistake, draft by draft and step by step.

    The output has `max_new_tokens` tokens unless it ends with `eos`; with `length` the first ones alone are
    enumerated. Probabilities are Fractions if the models' rows are. `laws` gets the numbers of laws of steps
    that are computed. Raises ValueError unless `mistake` is made of a `Decoder`."""
    if not isinstance(mistake.decode, Decoder) or not mistake.decode.enumerable:
        raise ValueError(f"{mistake.name}: its texts cannot be enumerated; give a decoder of the catalogue")
    decode, values = mistake.decode, mistake.values
    prompt = tuple(map(int, prompt))
    p_rows, q_rows = (one if isinstance(one, RowsOf) else RowsOf(one) for one in (target, draft))
    traceless = {decode.emits, decode.draft_keeps, decode.target_keeps} == {accepted_and_last}
    # then of what is drafted beyond the end only the first token matters, for its rows
    in_order = traceless and (decode.cut, decode.tries) == (Decoder.cut, Decoder.tries)
    in_order &= decode.verification is None or getattr(decode.verification, "in_order", False)

    @cache
    def moves(gamma: int, given: Tokens, draft_seen: Tokens, target_seen: Tokens) -> dict[_Move, Any]:
        """The law of a step with γ drafts after `draft_seen`, verified with the rows of q after `given`."""
        outcomes: dict[_Outcome, Any] = defaultdict(int)
        drafts: dict[Tokens, Any] = {(): 1}
        for _ in range(gamma):
            drafts = {
                (*drafted, x): mass * weight
                for drafted, mass in drafts.items()
                for x, weight in enumerate(decode.drafting(q_rows.after(draft_seen + drafted), **values))
                if weight
            }
        laws(len(drafts))
        for whole, mass in drafts.items():
            drafted = whole[: decode.cut(whole, eos)]
            p = [p_rows.after(target_seen + drafted[:i]) for i in range(len(drafted) + 1)]
            q = [q_rows.after(given + drafted[:i]) for i in range(len(drafted) + decode.bonus_of_draft)]
            stop, follow = decode.law(range(len(drafted)), drafted, p, q, **values)
            for accepted, (stopped, row) in enumerate(zip(stop, follow, strict=True)):
                # where rejected tokens leave no trace, drafts with the same accepted ones are one
                kept = drafted[:accepted] if traceless else drafted
                for last, weight in enumerate(row):
                    if stopped and weight:
                        outcomes[kept, accepted, last] += mass * stopped * weight
        if (tries := decode.tries(**values)) > 1:
            outcomes = _of_longest(outcomes, tries)
        found: dict[_Move, Any] = defaultdict(int)
        for (drafted, accepted, last), chance in outcomes.items():
            tokens, ended = decode.ends(decode.emits(drafted, accepted, last), eos)
            after_q = q_rows.context(draft_seen + decode.draft_keeps(drafted, accepted, last))
            after_p = p_rows.context(target_seen + decode.target_keeps(drafted, accepted, last))
            found[tokens, ended, after_q, after_p] += chance
        return found

    end = len(prompt) + min(max_new_tokens, length or max_new_tokens)
    law: dict[Tokens, Any] = defaultdict(int)
    states: dict[_State, Any] = {(prompt, q_rows.context(prompt), p_rows.context(prompt)): 1}
    while states:
        following: dict[_State, Any] = defaultdict(int)
        for (text, draft_seen, target_seen), mass in states.items():
            room = len(prompt) + max_new_tokens - len(text)
            given = q_rows.context(text) if decode.rescored else draft_seen
            gamma = min(decode.length(room), end - len(text) + 1 if in_order else room + decode.gamma)
            next_moves = moves(gamma, given, draft_seen, target_seen)
            for (tokens, ended, drafts, targets), chance in next_moves.items():
                after = text + tokens
                if ended or len(after) >= end:
                    law[after[len(prompt) : end]] += mass * chance
                else:
                    following[after, drafts, targets] += mass * chance
        states = following
    return dict(law)


#: The drafted tokens that leave a trace, the number of accepted ones, and the last token.
_Outcome = tuple[Tokens, int, int]
#: Tokens of a step, whether the text ends with them, and the contexts of draft and target after it.
_Move = tuple[Tokens, bool, Tokens, Tokens]
#: The text, and the contexts of draft and target.
_State = tuple[Tokens, Tokens, Tokens]


def _of_longest(outcomes: Mapping[_Outcome, Any], tries: int) -> dict[_Outcome, Any]:
    """The law of the outcome with the most accepted tokens, of `tries` independent ones with law `outcomes`:
    P(n accepted at most) is raised to their number; given n, the outcome has its law."""
    lengths: dict[int, Any] = defaultdict(int)
    for (_, accepted, _), chance in outcomes.items():
        lengths[accepted] += chance
    weights, below = {}, 0
    for accepted in sorted(lengths):
        up_to = below + lengths[accepted]
        weights[accepted] = (up_to**tries - below**tries) / lengths[accepted]
        below = up_to
    return {outcome: chance * weights[outcome[1]] for outcome, chance in outcomes.items()}


class RowsOf(dict[Tokens, tuple[Any, ...]]):
    """The rows of a model by context, each made once; laws keep what they compute by the object."""

    def __init__(self, model: Model):
        self.model = model
        self.order = None if getattr(model, "reads_all", False) else model.order
        self.read_of = getattr(model, "context", partial(read_by, model))

    def __missing__(self, context: Tokens) -> tuple[Any, ...]:
        row = self.model.row(context)
        self[context] = tuple(row.tolist() if isinstance(row, np.ndarray) else row)
        return self[context]

    def context(self, text: Tokens) -> Tokens:
        """All that the model reads of `text`."""
        if self.order is None or len(text) < self.order:
            return tuple(self.read_of(text))
        return text[len(text) - self.order :]

    def after(self, text: Tokens) -> tuple[Any, ...]:
        return self[self.context(text)]


def _floats(model: Model, text: Tokens) -> list[float]:
    row = model.row(read_by(model, text))
    return row.tolist() if isinstance(row, np.ndarray) else [float(a) for a in row]
