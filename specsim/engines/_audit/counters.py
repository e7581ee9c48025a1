"""Compare the drafted and accepted tokens that engines report with those of the standard rule or a head."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim import mistakes
from specsim.core._types import Floats, Ints
from specsim.core._verdicts import Finding
from specsim.engines._audit.places import Masses, Places
from specsim.engines._audit.results import MEANINGS, EngineEfficiency, KnownMistake
from specsim.engines._audit.store import LONG
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.law import Law
from specsim.engines._planted.requests import Completion, Request

#: More tokens than any engine drafts in a step, all nodes of a tree included.
WIDEST = 1_024


@dataclass(frozen=True)
class Drafts:
    """The drafts of texts with `emitted` tokens; `steps` is None where it is not reported."""

    number: int
    drafted: int
    accepted: int
    steps: int | None
    emitted: int
    texts: int


def reported(texts: Sequence[Completion]) -> list[Drafts]:
    """What an engine reports of each request: of each text, or of all with the first."""
    requests: dict[int, list[Completion]] = defaultdict(list)
    for one in texts:
        requests[one.number].append(one)
    found = []
    for number, group in requests.items():
        if told := [one for one in group if one.drafted is not None and one.accepted is not None]:
            found.append(_sum(told, _tokens(group), len(group), number))
    return found


def _sum(drafts: Sequence[Any], emitted: int, texts: int, number: int = -1) -> Drafts:
    """The sums of counts; without one of steps where one of `drafts` has none."""
    steps = [one.steps for one in drafts if one.steps is not None]
    drafted, accepted = (sum(getattr(one, name) for one in drafts) for name in ("drafted", "accepted"))
    counted = sum(steps) if len(steps) == len(drafts) else None
    return Drafts(number, drafted, accepted, counted, emitted, texts)


def _total(drafts: Sequence[Drafts]) -> Drafts | None:
    emitted, texts = (sum(getattr(one, name) for one in drafts) for name in ("emitted", "texts"))
    return _sum(drafts, emitted, texts) if drafts else None


def _tokens(texts: Sequence[Completion]) -> int:
    return sum(len(one.tokens) for one in texts)


def _of_server(texts: Sequence[Completion], server: Mapping[str, int] | None) -> Drafts | None:
    """The differences of server-wide counters; None without them."""
    if not server or "drafted" not in server or "accepted" not in server:
        return None
    steps = server.get("steps") or None
    return Drafts(-1, server["drafted"], server["accepted"], steps, _tokens(texts), len(texts))


def total(texts: Sequence[Completion], server: Mapping[str, int] | None) -> Drafts | None:
    return _total(reported(texts)) or _of_server(texts, server)


def usable(
    texts: Sequence[Completion], server: Mapping[str, int] | None, gamma: int | None
) -> tuple[Mapping[str, int] | None, str]:
    """The differences of server-wide counters if they can be those of `texts`, and a sentence about them.

    None where the requests' own counters say as much. Wrong differences are not the engine's fault: the
    server may have been restarted, or have other users."""
    own = _total(reported(texts))
    whole = _of_server(texts, server)
    if server is None or whole is None or (own and (own.steps or gamma)):
        return None, ""
    length = float(gamma) if gamma else whole.steps and _mean(whole.drafted, whole.steps)
    reason = ""
    if min(server.values()) < 0:
        reason = "they fell, as after a restart"
    elif own and (whole.drafted, whole.accepted) != (own.drafted, own.accepted):
        reason = f"they count {whole.accepted:,} accepted of {whole.drafted:,} drafted tokens, the requests "
        reason += f"{own.accepted:,} of {own.drafted:,}"
    elif own and (whole.steps or 0) > whole.emitted + whole.texts:
        reason = f"they count {whole.steps:,} steps, the texts have {whole.emitted:,} tokens"
    elif not own and (text := _surplus(whole, length) or _fault(whole, _most_cut(length))):
        reason = f"they are wrong, or count other requests too: {text}"
    if reason:
        return None, f"The server's counters are not used: {reason}."
    most = whole.accepted + (whole.steps or 0) + whole.texts  # the first token of a text needs no step
    if not whole.steps or most >= whole.emitted:
        return server, ""
    return server, MEANINGS["covered"].format(most=most, emitted=whole.emitted)


def draft_length(
    texts: Sequence[Completion], server: Mapping[str, int] | None, gamma: int | None
) -> float | None:
    """Drafted tokens per step: `gamma` where it is known, else the mean by the counters. Steps that are not
    counted are those of the requests' own counters: each emits its accepted tokens and one more."""
    if gamma:
        return float(gamma)
    own = _total(reported(texts))
    for one in (own, _of_server(texts, server)):
        if one and one.steps:
            return _mean(one.drafted, one.steps)
    return _mean(own.drafted, own.emitted - own.accepted) if own else None


def _mean(drafted: int, steps: int) -> float | None:
    """The mean length of drafts; None if there can be no such steps."""
    return drafted / steps if steps > 0 and drafted <= WIDEST * steps else None


def efficiency(
    texts: Sequence[Completion],
    server: Mapping[str, int] | None,
    places: Places,
    masses: Masses,
    length: float | None,
) -> EngineEfficiency | None:
    """What speculation gained; None if the engine reports no drafted tokens. `length` is that of drafts."""
    if (counted := total(texts, server)) is None or counted.drafted <= 0 or not len(places):
        return None
    expected = _tokens_per_step(places, masses, length) if length else None
    return EngineEfficiency(
        drafted=counted.drafted,
        accepted=counted.accepted,
        alpha=float(masses.overlap.mean()),
        gamma=length,
        accepted_share=counted.accepted / counted.drafted,
        expected_share=(expected - 1.0) / length if expected and length else None,
        tokens_per_step=1.0 + counted.accepted * length / counted.drafted if length else None,
        expected_tokens_per_step=expected,
    )


def _tokens_per_step(places: Places, masses: Masses, length: float) -> float:
    """The tokens per step that the standard rule is expected to have had on these texts.

    Given its text, each drafted token that the rule tested was accepted with probability min(p, q) / p of the
    emitted one, independently of the others, so a step's end is a function of these alone. After the end of
    a text it is the mean of Σ min(p, q). A mean length between two whole ones is interpolated."""
    most = int(np.ceil(length))
    kept = np.full((int(places.text.max()) + 1, int(places.place.max()) + 1 + most), masses.overlap.mean())
    kept[places.text, places.place] = masses.accepted
    ends = np.zeros(len(kept), dtype=np.int64)
    np.maximum.at(ends, places.text, places.place + 1)
    low, share = int(length), length - int(length)
    shorter = _mean_step(kept, ends, low) if share < 1.0 else 0.0
    return shorter if share == 0.0 else (1.0 - share) * shorter + share * _mean_step(kept, ends, most)


def _mean_step(kept: Floats, ends: Ints, gamma: int) -> float:
    """Expected tokens over expected steps, with γ drafted tokens, from the beginning of a text; `kept` [N, n
    + γ] has the probability of acceptance at each place, `ends` [N] the length of each text."""
    begins = np.zeros((len(kept), kept.shape[1] + 1))
    begins[ends > 0, 0] = 1.0  # the probability that a step begins at the place
    steps = tokens = 0.0
    for place in range(int(ends.max())):
        alive = np.where(place < ends, begins[:, place], 0.0)
        steps += alive.sum()
        for drafted in range(gamma):
            tokens += alive.sum()
            passed = alive * kept[:, place + drafted]
            begins[:, place + drafted + 1] += alive - passed
            alive = passed
        tokens += alive.sum()
        begins[:, place + gamma + 1] += alive
    return float(tokens / steps)


def impossible(texts: Sequence[Completion], length: float | None) -> Finding | None:
    """Counters that no run can have.

    Each step emits its accepted tokens and one more; only the last step of a text may emit fewer. Where steps
    are not counted, there are at least drafted / γ. A mean `length` that is not whole leaves γ open; then
    a text may lose as many tokens at its end as the longest text has, since no engine drafts more at once."""
    told = reported(texts)
    cut = max(LONG - 1, _most_cut(length))
    for one in told:
        if text := _fault(one, cut):
            return Finding("counters", f"request {one.number} reports {text}")
    every = _total(told)
    text = _surplus(every, length) if every else ""
    return Finding("counters", text) if text else None


def _most_cut(length: float | None) -> int:
    """The tokens of a step, which may all be cut off at the end of a text; 0 if the length is not known."""
    return int(np.ceil(length)) + 1 if length else 0


def _fault(one: Drafts, cut: int) -> str:
    """What is impossible of counters where each text lost at most `cut` counted tokens; else ""."""
    steps = one.steps or 0
    for name, count in (("drafted tokens", one.drafted), ("accepted tokens", one.accepted), ("steps", steps)):
        if count < 0:
            return f"{count:,} {name}"
    if one.accepted > one.drafted:
        return f"{one.accepted:,} accepted of {one.drafted:,} drafted tokens"
    if one.accepted + steps > one.emitted + cut * one.texts:
        more = f" in {steps:,} steps" if steps else ""
        return f"{one.accepted:,} accepted tokens{more}, and {one.emitted:,} of text"
    if one.drafted > WIDEST * (steps or one.emitted + one.texts):
        return f"{one.drafted:,} drafted tokens, more than {WIDEST:,} in a step"
    return ""


def _surplus(total: Drafts, length: float | None) -> str:
    if not length or not length.is_integer():
        return ""
    gamma = int(length)
    steps = total.drafted // gamma if total.steps is None else total.steps
    least = total.accepted + steps - (gamma + 1) * total.texts
    if least <= total.emitted:
        return ""
    return MEANINGS["too many accepted"].format(total=total, gamma=gamma, least=least)


# A head drafts the target's most probable token after what it reads: see `Law.contexts_of_head`. A draft was
# accepted if the text has that token, whatever the rule. So a text has its counts, but for what engines
# differ in: whether its first token has a draft, and how many tokens are drafted where it ends.


def accepted_at(heads: str, law: Law, text: Ints, gamma: int, stale: int = 0, late: int = 0) -> Ints:
    """How many of γ drafts at each place of a text [T] are the tokens that it has there, up to the first
    that is not, [T]; of a head whose hidden states are `stale` positions behind, and its tokens `late`."""
    at, last = np.arange(len(text)), len(text) - 1
    places = at[:, None] + np.arange(gamma)
    words = law.memory.along(text)[None, (at - 1 - stale).clip(0).repeat(gamma)] if law.memory else None
    step = np.tile(np.arange(gamma), len(text))
    contexts = law.contexts_of_head(heads, text[None], places.reshape(1, -1), step, words, stale, late)
    drafts = law.scores(contexts).argmax(axis=1).reshape(places.shape)
    same = (places <= last) & (drafts == text[places.clip(0, last)])
    return np.logical_and.accumulate(same, axis=1).sum(axis=1)


#: By how many positions the hidden state and the token that a head is given are behind, and the mistake.
BEHIND = {"": (0, 0), "head_stale": (1, 0), "head_without_token": (0, 1)}
#: Nats by which a mistake is likelier for each text with its counts: by chance few have them.
NATS = float(np.log(2.0))


@dataclass(frozen=True)
class HeadCounts:
    """How many `texts` have the counts of a right head or of each mistake; `example` is of another."""

    texts: int
    right: int
    wrong: dict[str, int]
    example: str

    @property
    def note(self) -> str:
        return f"{self.right:,} of {self.texts:,} texts report the drafts that the head must have made."

    @property
    def finding(self) -> Finding | None:
        if self.right == self.texts:
            return None
        other = f"{self.texts - self.right:,} of {self.texts:,} texts report other drafts than the head must"
        return Finding("counters", f"{other} have made: {self.example}")

    @property
    def diagnosis(self) -> list[KnownMistake]:
        """The mistake whose counts most texts have, if more than have those of a right head."""
        name = max(self.wrong, key=lambda one: self.wrong[one])
        if (more := self.wrong[name] - self.right) <= 0:
            return []
        share, says = self.wrong[name] / self.texts, mistakes.get(name).mechanism
        return [KnownMistake(name, (), says, "everywhere", share, NATS * more, 0.0, share == 1.0)]


def compare_heads(
    planted: Planted, asked: Mapping[int, Request], texts: Sequence[Completion], length: float | None
) -> HeadCounts | None:
    """None without a head, without the counts of a text, or if drafts have no known `length`. Texts of a
    request for several are left out, since some engines report one of them or all together."""
    if not planted.heads or not length or not length.is_integer():
        return None
    law, gamma, told = planted.target, int(length), list[tuple[Completion, int, Ints]]()
    for one in texts:
        request = asked[one.number]
        whole = np.array([*request.prompt, *one.tokens], dtype=np.int64)
        words = whole.min() >= 0 and whole[bool(law.openers) :].max() < law.words
        if request.n == 1 and len(one.tokens) == request.max_tokens and words and one.drafted is not None:
            told.append((one, len(request.prompt), whole))
    if not told:
        return None
    agree, example = dict.fromkeys(BEHIND, 0), ""
    for name, behind in BEHIND.items():
        kept = [accepted_at(planted.heads, law, text, gamma, *behind) for _, _, text in told]
        for first in (0, 1):  # the first token that has a draft
            made = [_counts(k, start + first, gamma) for k, (_, start, _) in zip(kept, told, strict=True)]
            same = [_agree(one, counts) for (one, _, _), counts in zip(told, made, strict=True)]
            if not name and sum(same) >= agree[name] and not all(same):
                at = same.index(False)
                one, (least, accepted, most, _) = told[at][0], made[at]
                example = MEANINGS["other counts"].format(one=one, accepted=accepted, least=least, most=most)
            agree[name] = max(agree[name], sum(same))
    return HeadCounts(len(told), agree.pop(""), agree, example)


def _counts(accepted: Ints, place: int, gamma: int) -> list[int]:
    """Drafted and accepted tokens of the steps from `place` on, at least and then at most: drafts may end
    before the last token of the text, or have γ tokens, those behind the text accepted where they can be.

    `accepted` [T] says how many drafts of a step at each place are tokens of the text."""
    found = np.zeros(4, dtype=np.int64)
    while place < len(accepted):
        room, kept = len(accepted) - place - 1, int(accepted[place])
        found += [min(gamma, room), min(kept, room), gamma, gamma if kept > room else kept]
        place += kept + 1
    return [int(count) for count in found]


def _agree(told: Completion, made: Sequence[int]) -> bool:
    return told.drafted in (made[0], made[2]) and made[1] <= (told.accepted or 0) <= made[3]
