"""Which cases get the time of a verifier that is too slow for the wanted power at all of them.

A case has a *cost*: the seconds until the wanted total variation of the first token is detectable, at the
measured pace. The cheapest cases are served first, and one of each of three kinds (`kind_of`) before others,
unless it costs more than `FIRST_OF_KIND` times as much. The choice is a function of the paces alone."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from specsim.auditing._cases.battery import DecoderCase
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks.findings import detectable_in_table
from specsim.auditing._checks.tables import Plan
from specsim.auditing._results.audit import first_token_of

#: By how much the first case of a kind may cost more than the cheapest case.
FIRST_OF_KIND = 3.0
#: The least share of drafted tokens that a case of the first kind accepts, and of those that it rejects.
BOTH = 0.1
#: The most steps that are looked at.
MOST_STEPS = 2**32


@dataclass(frozen=True)
class Candidate:
    """A case that was begun: `done` of its `planned` steps, `needed` for power, at `pace` seconds each."""

    name: str
    kind: str
    needed: int
    planned: int
    done: int
    pace: float

    @property
    def reachable(self) -> bool:
        """Whether the level has the needed steps."""
        return self.needed <= self.planned

    @property
    def cost(self) -> float:
        """The seconds to the needed steps."""
        return max(0, self.needed - self.done) * self.pace

    def share(self, seconds: float) -> float:
        """The share of the needed steps after this number of further seconds."""
        more = seconds / self.pace if self.pace > 0.0 else float("inf")
        return min(self.planned, self.done + more) / self.needed


def kind_of(plan: Plan) -> str:
    """The kind of a case, for diversity."""
    case = plan.case
    if isinstance(case, ShapesCase):
        return "calls of changing shape"
    if isinstance(case, DecoderCase):
        return ""
    if not case.is_pair or case.rotated or case.uneven:
        return "rows that differ"
    alpha = plan.alpha_context or 0.0
    both = min(alpha, 1.0 - alpha) >= BOTH
    return "one p and q, several drafted tokens" if case.gamma > 1 and both else ""


def steps_needed(plan: Plan, tv: float, level: float) -> int:
    """The steps, at most `MOST_STEPS`, that show a total variation `tv` of the first token at `level`."""
    if (table := first_token_of(plan.tables)) is None:
        return MOST_STEPS
    # a table of a decoder is about the texts after one prompt
    prompts = len(plan.case.prompts) if isinstance(plan.case, DecoderCase) else 1
    visits = range(1, MOST_STEPS // prompts)
    found = bisect_left(visits, True, key=lambda n: detectable_in_table(table, n, level) <= tv)
    return (1 + found) * prompts


def too_slow(candidates: Sequence[Candidate], seconds: float, asked: int, ended: int = 0) -> bool:
    """Whether equal shares of `seconds` leave most of the `asked` cases without a power in their reach."""
    if not candidates:
        return False
    share = seconds / len(candidates)
    reached = [one.reachable and one.share(share) >= 1.0 for one in candidates]
    some = any(one.reachable and not there for one, there in zip(candidates, reached, strict=True))
    return some and 2 * (sum(reached) + ended) < asked


def choose(
    candidates: Sequence[Candidate],
    served: Sequence[str],
    seconds: float,
    each: float = math.inf,
    *,
    least: int = 0,
) -> list[Candidate]:
    """The cases that reach the wanted power in turn in `seconds`, at most `each` for one; if they are fewer
    than `least`, the nearest ones too. `served` kinds had a case before."""
    waiting, kinds, chosen = [one for one in candidates if one.reachable], {"", *served}, list[Candidate]()
    left = seconds
    while fitting := [one for one in waiting if one.cost <= min(left, each)]:
        first = min(fitting, key=lambda one: one.cost / (1.0 if one.kind in kinds else FIRST_OF_KIND))
        chosen.append(first)
        waiting.remove(first)
        kinds.add(first.kind)
        left -= first.cost
    nearest = sorted(waiting, key=lambda one: -one.share(seconds))
    return chosen + nearest[: max(0, least - len(chosen))]
