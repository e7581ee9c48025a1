"""The result of a diagnosis: the known mistakes that explain what was seen, and their odds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: The posterior odds from which on a diagnosis gives a name.
ODDS = 20.0
#: The exponent of the largest odds that are printed.
MOST_ODDS = 12


@dataclass(frozen=True)
class Candidate:
    """A known mistake with its likeliest parameters, and its posterior probability.

    `lossy`: it is a built-in rule that is lossy by design, which the verifier does not declare."""

    name: str
    family: str
    mechanism: str
    threads: tuple[str, ...]
    probability: float
    lossy: bool = False

    def __str__(self) -> str:
        return f"lossy ({self.name})" if self.lossy else f"{self.name} ({self.family})"


@dataclass(frozen=True)
class Diagnosis:
    """Which known mistakes explain what was seen; `named` is empty where the answer is *unknown*.

    Together the named mistakes are at least `ODDS` times as probable as each alternative: that it is none of
    the known ones (`none`), or that the single steps are exact (`exact`); each of them is within `ODDS` of
    the likeliest. `considered` are the likeliest mistakes, named or not. `reason` says why the answer is
    unknown, `evidence` is the most significant outcome, `place` one step with it."""

    named: tuple[Candidate, ...] = ()
    considered: tuple[Candidate, ...] = ()
    none: float = 1.0
    exact: float = 0.0
    steps: int = 0
    reason: str = ""
    evidence: str = ""
    place: str = ""

    @property
    def known(self) -> bool:
        return bool(self.named)

    def lines(self) -> list[str]:
        """The diagnosis in words."""
        if not self.known:
            return [f"Diagnosis: unknown. {self.reason}"]
        first, *others = self.named
        text = [f"Diagnosis: {first}. {first.mechanism}"]
        if first.lossy:
            text.append(
                f"It does what the built-in rule {first.name} does, which is lossy by design. If that is "
                f'intended, a verifier of chains declares it: declares(rule="{first.name}").'
            )
        if first.threads:
            text.append(f"Reported in {', '.join(first.threads)}.")
        if others:
            rest = ", ".join(f"{one.name} ({_share(one.probability)})" for one in others)
            share = _share(first.probability)
            text.append(f"It may as well be {rest}; {first.name} has probability {share}.")
        return [*text, self._odds(), *(line for line in (self.evidence, self.place) if line)]

    def _odds(self) -> str:
        """What the names stand against, with the posterior odds."""
        together = sum(one.probability for one in self.named)
        said = [f"{_odds(together, self.none)} against none of the known bugs"]
        said.append(f"{_odds(together, self.exact)} against exact steps")
        others = self.considered[len(self.named) :]
        if others and others[0].probability > 10.0**-MOST_ODDS:
            said.append(
                f"{_odds(together, others[0].probability)} against the next known bug, {others[0].name}"
            )
        return f"Odds: {'; '.join(said)}. {HINT}"


#: What is measured of names, on mistakes outside the catalogue.
HINT = "A name is a hint: how often names are right is in docs/statistics.md."


def _share(probability: float) -> str:
    return f"{probability:.2g}"


def _odds(one: float, other: float) -> str:
    """Posterior odds: a number, or from 1,000 on a power of ten."""
    if one >= other * 10.0**MOST_ODDS:
        return f"over 10^{MOST_ODDS} : 1"
    odds = one / other
    return f"{odds:.0f} : 1" if odds < 1000.0 else f"10^{np.log10(odds):.0f} : 1"
