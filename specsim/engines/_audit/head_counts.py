"""Compare the drafts that an engine reports of each text with those that a head must have made.

What a head drafts is a function of the text (`heads.py`), and a draft was accepted if the text has that
token, whatever the rule. So a text has its counts, but for two things in which engines differ: whether its
first token has a draft, and how many tokens are drafted where it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specsim import mistakes
from specsim.core._types import Ints
from specsim.core._verdicts import Finding
from specsim.engines._audit.results import KnownMistake
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.heads import accepted_at
from specsim.engines._planted.requests import Completion, Request

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
        """The mistake whose counts most texts have, if they are more than those with the counts of a right
        head."""
        name = max(self.wrong, key=lambda one: self.wrong[one])
        if (more := self.wrong[name] - self.right) <= 0:
            return []
        share, says = self.wrong[name] / self.texts, mistakes.get(name).mechanism
        return [KnownMistake(name, (), says, "everywhere", share, NATS * more, 0.0, share == 1.0)]


def compare(
    planted: Planted, asked: Mapping[int, Request], texts: Sequence[Completion], length: float | None
) -> HeadCounts | None:
    """None without a head, without the counts of a text, or if drafts have no known `length`.

    Texts of a request for several are left out, since some engines report one of them or all together."""
    if not planted.heads or not length or not length.is_integer():
        return None
    law, gamma, told = planted.target, int(length), list[tuple[Completion, int, Ints]]()
    for one in texts:
        request = asked[one.number]
        whole = np.array([*request.prompt, *one.tokens], dtype=np.int64)
        words = whole.min() >= 0 and whole.max() < law.words
        if request.n == 1 and len(one.tokens) == request.max_tokens and words and one.drafted is not None:
            told.append((one, len(request.prompt), whole))
    if not told:
        return None
    agree, example = dict.fromkeys(BEHIND, 0), ""
    for name, behind in BEHIND.items():
        kept = [accepted_at(law, text, gamma, *behind) for _, _, text in told]
        for first in (0, 1):  # the first token that has a draft
            made = [_counts(k, start + first, gamma) for k, (_, start, _) in zip(kept, told, strict=True)]
            same = [_agree(one, counts) for (one, _, _), counts in zip(told, made, strict=True)]
            if not name and sum(same) >= agree[name] and not all(same):
                at = same.index(False)
                one, (least, accepted, most, _) = told[at][0], made[at]
                example = (
                    f"request {one.number} reports {one.accepted} accepted of {one.drafted} drafted tokens, "
                    f"for {accepted} of {least} to {most}"
                )
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
