"""The result of comparing two verifiers: what differs case by case, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specsim.core._provenance import Provenance
from specsim.core._tables import Shown, as_dict, plain

#: The total variation between the laws of the first token that must be detectable at half of the cases, else
#: there is no verdict; both laws are unknown.
WANTED_TV_OF_TWO = 0.1


@dataclass(frozen=True)
class Difference:
    """The comparison of one case: steps of each side, tokens per step, and the most significant table.

    `changed`: a table rejects that both have the same law; `text` says where, or which error made the case
    `broken`. `twins` is the share of steps with identical tokens for the same rng. A total variation of
    `detectable_tv` between the laws of the first token is found with probability .999."""

    case: str
    purpose: str
    steps: int
    log10_e: float
    changed: bool
    broken: bool
    text: str
    twins: float
    tokens_per_step: tuple[float, float]
    detectable_tv: float
    interrupted: bool = False


@dataclass(frozen=True, eq=False)
class TwoSampleAudit(Shown):
    """The result of `audit_against`. `budget` is the total false-alarm probability, split over `tests`.

    `planned` is the number of cases that both take, `wanted_tv` the total variation between the laws of the
    first token that had to be detectable at half of them."""

    new: str
    old: str
    level: str
    cases: tuple[Difference, ...]
    budget: float
    tests: int
    interrupted: bool
    provenance: Provenance
    planned: int = 0
    wanted_tv: float = WANTED_TV_OF_TWO

    @property
    def verdict(self) -> str:
        """same (no difference found), changed, broken (one of the two could not be run), or inconclusive (no
        difference found, and too little could have been, or interrupted)."""
        if any(case.broken for case in self.cases):
            return "broken"
        if any(case.changed for case in self.cases):
            return "changed"
        powerful = sum(self.has_power(case) for case in self.cases)
        return "inconclusive" if self.interrupted or 2 * powerful < self.planned else "same"

    def has_power(self, case: Difference) -> bool:
        """Whether a total variation of `wanted_tv` was detectable in a case."""
        return case.detectable_tv <= self.wanted_tv

    @property
    def identical(self) -> bool:
        """Whether both returned the same tokens for the same rng."""
        return bool(self.cases) and all(case.twins == 1.0 for case in self.cases)

    @property
    def exit_code(self) -> int:
        """0 same, 1 changed or broken, 3 inconclusive."""
        return {"same": 0, "inconclusive": 3}.get(self.verdict, 1)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self, "verdict", "identical", "exit_code")

    def records(self) -> list[dict[str, Any]]:
        """A row for each case."""
        return [
            {k: v for k, v in plain(case).items() if k != "tokens_per_step"}
            | dict(zip(("new_tokens_per_step", "old_tokens_per_step"), case.tokens_per_step, strict=True))
            for case in self.cases
        ]
