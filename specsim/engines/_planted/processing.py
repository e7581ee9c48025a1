"""How rows are processed before a token is drawn: bias, penalties, temperature, truncation, in a named order.

Bias and penalties change logits, and penalties are a function of the text so far. Engines differ in the
order, and in what penalties count; an order names both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import scipy
from numpy.typing import NDArray

from specsim.core._files import read_table
from specsim.core._types import Floats, Ints
from specsim.core.distributions import normalise
from specsim.engines._planted.grammar import table
from specsim.engines._planted.law import log_softmax
from specsim.engines._planted.requests import BANS, NEUTRAL, PENALTIES, Sampling
from specsim.models._processed import SAMPLING, process

#: The orders of temperature and truncation, what few engines have, what penalties count, where words begin.
ORDERS, LATE, COUNTED, WORDS = read_table("processing").values()
FIRST_ORDER: str = ORDERS[0]
#: So an order begins in which the parameters that requests leave out have the checkpoint's values.
DEFAULTS = "defaults of the checkpoint, "
#: So an order begins in which a token is drawn without bans, and again with them where it is banned.
AGAIN = "banned tokens drawn again, "
#: What of the processing can be left out: the parameters of each part, with values that change nothing.
PARTS = {name: {name: value} for name, value in NEUTRAL.items() if name not in PENALTIES}
PARTS |= {"penalties": PENALTIES}
#: The parameters of temperature and truncation; the others change logits.
CUTS = (*SAMPLING, *LATE.values())
#: A bias of so little bans a token, as in OpenAI's protocol.
BANNED = -100.0


@dataclass(frozen=True)
class Seen:
    """Texts before rows: row i follows `tokens[text[i], : length[i]]`; the first `prompt` are its prompt."""

    tokens: Ints
    prompt: Ints
    text: Ints
    length: Ints

    def times(self, size: int, prompt: bool, last: int | None) -> Ints:
        """How often each of `size` tokens came, [N, size], in the `last` ones, without or with the prompt."""
        first = np.zeros_like(self.length) if prompt else self.prompt[self.text]
        if last is not None:
            first = np.maximum(first, self.length - last)
        at = np.arange(self.tokens.shape[1])
        row, column = np.nonzero((at >= first[:, None]) & (at < self.length[:, None]))
        pairs = row * size + self.tokens[self.text[row], column]
        return np.bincount(pairs, minlength=len(first) * size).reshape(-1, size)

    def ends(self, tokens: Sequence[int], prompt: bool) -> NDArray[np.bool_]:
        """Whether each row follows `tokens`, perhaps those of the prompt, [N]."""
        at = self.length[:, None] - np.arange(len(tokens), 0, -1)
        there = at >= (0 if prompt else self.prompt[self.text, None])
        return (there & (self.tokens[self.text[:, None], at.clip(0)] == tokens)).all(axis=1)

    def states(self, after: Ints) -> Ints:
        """The state of an automaton with the states `after` [states, V] tokens, for each row, [N]. A token
        that cannot come does not change it."""
        found, at = np.zeros_like(self.length), self.prompt[self.text]
        while (going := at < self.length).any():
            then = after[found, self.tokens[self.text, np.where(going, at, 0)]]
            found, at = np.where(going & (then >= 0), then, found), at + 1
        return found

    def repeated(self, size: int, last: int | None) -> Ints:
        """Of each of `size` tokens, how many at the end of a row's text came before it already, [N, size]."""
        at = self.length[:, None] - np.arange(1, self.tokens.shape[1] + 1)
        first = 0 if last is None else (self.length[:, None] - last).clip(0)
        newest = np.where(at >= first, self.tokens[self.text[:, None], at.clip(0)], -1)
        newest = np.pad(newest, ((0, 0), (0, 1)), constant_values=-1)
        found, n = np.zeros((len(newest), size), dtype=np.int64), 1
        row, back = np.nonzero((newest[:, 1:] == newest[:, :1]) & (newest[:, 1:] >= 0))
        while row.size:
            found[row, newest[row, back]] = n  # those that are still there have longer repetitions
            before = newest[row, back + 1 + n]
            same = (before >= 0) & (before == newest[row, n])
            row, back, n = row[same], back[same], n + 1
        return found


def processed(
    scores: Floats, sampling: Sampling, order: str = FIRST_ORDER, seen: Seen | None = None
) -> Floats:
    """The rows [N, V] of logits `scores` after the steps of an `order` of `possible_orders`; bad words, bias
    and penalties come first if it does not name them. Where they read texts, `seen` is needed."""
    sampling, order = resolved(sampling, order)
    if order.startswith(AGAIN):
        free, strict = replace(sampling, **BANS), order.removeprefix(AGAIN)
        first, again = processed(scores, free, strict, seen), processed(scores, sampling, strict, seen)
        bans = replace(Sampling(), **{name: getattr(sampling, name) for name in BANS})
        kept = first * (processed(np.zeros_like(scores), bans, strict, seen) > 0.0)
        return kept + (1.0 - kept.sum(axis=1, keepdims=True)) * again
    steps = order.split(", ")
    if sampling.acting - {*CUTS}:
        steps = [one for one in ("bad words", "bias", "penalties") if one not in order] + steps
        last = max(i for i, one in enumerate(steps) if one in ("bias", *WORDS, *COUNTED))
        given, scores = scores, _all_changed(scores, sampling, steps[: last + 1], seen)
        if (empty := np.isneginf(scores).all(axis=1)).any():  # to a checkpoint what never comes is alike
            alike = _all_changed(np.zeros_like(given), sampling, steps[: last + 1], seen)
            alike[np.isneginf(alike).all(axis=1)] = 0.0
            scores[empty] = alike[empty]
        steps = steps[last + 1 :]
    return _cut(np.exp(log_softmax(scores)), _with_late(steps), sampling)


def resolved(sampling: Sampling, order: str) -> tuple[Sampling, str]:
    """What the parameters are in an order, and the order without the defaults that it names."""
    return (sampling.filled if order.startswith(DEFAULTS) else sampling), order.removeprefix(DEFAULTS)


def _with_late(steps: Sequence[str]) -> list[str]:
    return [*steps, *(one for one in LATE if one not in steps)]


def _cut(rows: Floats, steps: Sequence[str], sampling: Sampling) -> Floats:
    """The rows after temperature and truncations; a mixture where top choices are excluded by chance."""
    values = {name: getattr(sampling, name) for name in SAMPLING}
    for i, step in enumerate(steps):
        name = "joint" if " with " in step else step.replace("-", "_")
        if name in TRUNCATIONS and name in sampling.acting:
            rows = normalise(rows * TRUNCATIONS[name](rows, getattr(sampling, name)))
        elif name == "xtc" and (share := sampling.xtc_probability):
            # without the choices of at least the threshold, but for the least probable one of these
            top = rows >= sampling.xtc_threshold
            kept = ~top | (rows <= np.where(top, rows, np.inf).min(axis=1, keepdims=True))
            whole, cut = (_cut(some, steps[i + 1 :], sampling) for some in (rows, normalise(rows * kept)))
            return (1.0 - share) * whole + share * cut
        elif name == "joint" or name in SAMPLING:
            rows = process(rows, [name], **values)
    return np.asarray(rows)


def _typical(rows: Floats, mass: float) -> NDArray[np.bool_]:
    """The fewest tokens with `mass` whose surprise is nearest to the entropy (Meister et al. 2023, eq. 5)."""
    with np.errstate(divide="ignore"):
        far = np.abs(-np.log(rows) - scipy.special.entr(rows).sum(axis=1, keepdims=True))
    order = far.argsort(axis=1, kind="stable")
    before = (np.take_along_axis(rows, order, axis=1).cumsum(axis=1) < mass).sum(axis=1, keepdims=True)
    last = np.take_along_axis(order, np.minimum(before, rows.shape[1] - 1), axis=1)
    return far <= np.take_along_axis(far, last, axis=1)


def _near_the_top(rows: Floats, deviations: float) -> NDArray[np.bool_]:
    """The tokens at most a number of standard deviations of all logits below the largest."""
    logs = np.log(rows, where=rows > 0.0, out=np.full_like(rows, np.nan))
    return logs >= (np.nanmax(logs, axis=1) - deviations * np.nanstd(logs, axis=1))[:, None]


TRUNCATIONS: dict[str, Callable[[Floats, float], NDArray[np.bool_]]] = {
    "typical_p": _typical,
    "top_n_sigma": _near_the_top,
}


def _all_changed(scores: Floats, sampling: Sampling, steps: Sequence[str], seen: Seen | None) -> Floats:
    for step in steps:
        scores = _changed(scores, sampling, step, seen)
    return scores


def _changed(scores: Floats, sampling: Sampling, step: str, seen: Seen | None) -> Floats:
    """Logits after a step that is no truncation."""
    if step == "temperature":
        return scores / sampling.temperature
    found = scores.copy()
    if step in WORDS:
        for *before, token in sampling.bad_words:
            found[seen.ends(before, WORDS[step]) if seen and before else slice(None), token] = -np.inf
        return found
    if step == "bias":
        if kept := [*sampling.allowed_token_ids]:
            found = np.full_like(scores, -np.inf)
            found[:, kept] = scores[:, kept]
        if sampling.grammar:
            assert seen is not None
            after = table(sampling.grammar, scores.shape[1])
            found = np.where(after[seen.states(after)] >= 0, found, -np.inf)
        for token, bias in sampling.logit_bias:
            found[:, token : token + 1] += bias if bias > BANNED else -np.inf
        if "min_tokens" in sampling.acting:
            assert seen is not None
            early = np.flatnonzero(seen.length - seen.prompt[seen.text] < sampling.min_tokens)
            found[early[:, None], np.array(sampling.stop_ids)] = -np.inf
        return found
    if not sampling.penalised:
        return found
    assert seen is not None
    *counts, last = COUNTED[step]
    often, new = (seen.times(scores.shape[1], prompt, sampling.penalty_last_n) for prompt in counts)
    less = (sampling.frequency_penalty or 0.0) * new + (sampling.presence_penalty or 0.0) * (new > 0)
    found, factor = found - less * last, sampling.repetition_penalty or 1.0
    found = np.where(often > 0, np.where(found > 0, found / factor, found * factor), found)
    if sampling.dry_multiplier:
        more = seen.repeated(scores.shape[1], sampling.dry_penalty_last_n) - sampling.dry_allowed_length
        found -= np.where(more >= 0, sampling.dry_multiplier * sampling.dry_base**more, 0.0)
    return found - less * (not last)


def possible_orders(sampling: Sampling) -> list[str]:
    """The orders that can give different rows, the first one alone if at most one step does anything."""
    if sampling.left_out:
        plain = possible_orders(replace(sampling, defaults=()))
        return plain + [DEFAULTS + one for one in possible_orders(sampling.filled)]
    acting = sampling.acting
    tempered = "temperature" in acting and sampling.temperature > 0.0
    several, factor = len(acting & {*CUTS}) > 1, "repetition_penalty" in acting
    others = bool(acting & {"frequency_penalty", "presence_penalty"})
    counted: dict[tuple[bool, ...], str] = {}
    for name, (often, new, last) in COUNTED.items():
        acts = often and factor, new and others, last and factor and others
        counted.setdefault(acts, name * sampling.penalised)
    found = []
    silent = {step for step, name in LATE.items() if name not in acting}
    every = [_with_late(order.split(", ")) for order in ORDERS]
    tails = [", ".join(one for one in steps if one not in silent) for steps in every]
    for tail in tails if several else tails[:1]:
        for penalties in counted.values():
            heads = [name for name in ("bias" * ("logit_bias" in acting), penalties) if name]
            for head in permutations(heads) if factor else [tuple(heads)]:
                found.append(", ".join([*head, tail]))
                if head and tempered and tail.startswith("temperature"):
                    late = tail.removeprefix("temperature")
                    found.append(", ".join([*head[:-1], "temperature", head[-1]]) + late)
    named = [f"{words}, {one}" for words in WORDS for one in found] if sampling.has_phrases else found
    again = [AGAIN + one for one in named if not one.startswith("bad words,")]
    return named + again * bool(acting & {*BANS} and acting & {*CUTS} - {"temperature"})
