"""What a diagnosis says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.auditing.diagnosis.ranking import FIT, Scored, alike
from specsim.auditing.mutants import Mutant

__all__ = ["Candidate", "Diagnosis", "conclusion"]


@dataclass(frozen=True)
class Candidate:
    """A known mistake, with its parameters at their likeliest. `behind` is how many nats less likely than the first one.

    `fits` says whether the outcomes are what it predicts, by a chi-square at level 1e-4.
    """

    name: str
    family: str
    mechanism: str
    threads: tuple[str, ...]
    behind: float
    fits: bool

    @classmethod
    def of(cls, mutant: Mutant, behind: float, fits: bool) -> Candidate:
        """`mutant`, in words."""
        return cls(str(mutant), mutant.family, mutant.mechanism, mutant.threads, behind, fits)


@dataclass(frozen=True)
class Diagnosis:
    """The nearest known mistakes, the likeliest first; those that could not be told apart stand in `named`.

    `named` is empty for an unknown bug. `evidence` is the outcome that gave it away, `place` one step where it happened.
    """

    named: tuple[Candidate, ...]
    nearest: tuple[Candidate, ...]
    steps: int
    evidence: str
    place: str

    @property
    def known(self) -> bool:
        return bool(self.named)

    def lines(self) -> list[str]:
        """The diagnosis in words."""
        if self.known:
            first, *others = self.named
            text = [f"It looks like {first.name} ({first.family}): {first.mechanism}"]
            if first.threads:
                text.append(f"Reported in {', '.join(first.threads)}.")
            if others:
                text.append(f"Not told apart from {', '.join(one.name for one in others)}.")
        else:
            text = ["It is none of the known mistakes."]
            if self.nearest:
                one = self.nearest[0]
                text.append(f"The nearest is {one.name}, which does not fit: {one.mechanism}")
        return [*text, *(line for line in (self.evidence, self.place) if line)]


def conclusion(ranking: Sequence[Scored], exact: Mutant, steps: int, evidence: str, place: str) -> Diagnosis:
    """The diagnosis that a ranking amounts to: unknown where nothing fits, or where `exact` does as well."""
    named = alike(ranking)
    if any(one.mutant.name == exact.name for one in named):
        named = []
    best = ranking[0].log_likelihood
    candidates = [
        Candidate.of(one.mutant, float(best - one.log_likelihood), one.fit >= FIT)
        for one in ranking
        if one.mutant.name != exact.name
    ]
    if not named:
        evidence = place = ""
    return Diagnosis(tuple(candidates[: len(named)]), tuple(candidates[:5]), steps, evidence, place)
