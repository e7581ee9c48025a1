"""From a ranking to a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.auditing._diagnosis.ranking import FIT, Scored, alike
from specsim.auditing._results import Candidate, Diagnosis
from specsim.auditing.mutants import Mutant

__all__ = ["conclusion"]


def conclusion(ranking: Sequence[Scored], exact: Mutant, steps: int, evidence: str, place: str) -> Diagnosis:
    """The diagnosis that a ranking amounts to: unknown where nothing fits, or where `exact` does as well."""
    named = alike(ranking)
    if any(one.mutant.name == exact.name for one in named):
        named = []
    best = ranking[0].log_likelihood
    candidates = [
        _candidate(one, float(best - one.log_likelihood)) for one in ranking if one.mutant.name != exact.name
    ]
    if not named:
        evidence = place = ""
    return Diagnosis(tuple(candidates[: len(named)]), tuple(candidates[:5]), steps, evidence, place)


def _candidate(one: Scored, behind: float) -> Candidate:
    mutant = one.mutant
    return Candidate(str(mutant), mutant.family, mutant.mechanism, mutant.threads, behind, one.fit >= FIT)
