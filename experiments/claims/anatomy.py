"""What a claim is made of, and the few ways in which its verdict is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = [
    "CONDITIONAL",
    "FALSE",
    "HOLDS",
    "ROUNDING",
    "UNCHECKED",
    "VERDICTS",
    "Claim",
    "Outcome",
    "Setting",
    "decide",
    "only_if",
    "printed_as",
    "within",
]

HOLDS, ROUNDING, FALSE = "holds", "holds within rounding", "false"
CONDITIONAL, UNCHECKED = "true only if …", "not checkable here"
VERDICTS = (HOLDS, ROUNDING, FALSE, CONDITIONAL, UNCHECKED)


class Outcome(NamedTuple):
    """A verdict, and a sentence made of what was computed; it names the condition where there is one."""

    verdict: str
    found: str


class Setting(NamedTuple):
    """What a measurement may use: so many `contexts` of the n-gram pair, and the seed `root`."""

    contexts: int
    root: int


@dataclass(frozen=True)
class Claim:
    """Something that a document says, and how it is checked.

    `quote` is the number or formula as printed, `where` the place, `asks` the claim in our words. Exactly one of three
    says how: `check()` computes the outcome, `measure(setting)` takes it from a pair of models, and `needs` names what is
    lacking for a claim that cannot be checked here. The numbers that a document prints are the defaults of its checks'
    arguments, so that a check can be asked about others.
    """

    id: str
    source: str
    where: str
    quote: str
    asks: str
    check: Callable[[], Outcome] | None = None
    measure: Callable[[Setting], Outcome] | None = None
    needs: str = ""

    def __post_init__(self) -> None:
        if (self.check is not None) + (self.measure is not None) + bool(self.needs) != 1:
            raise ValueError(f"claim {self.id}: give one of check, measure and needs")

    def outcome(self, setting: Setting) -> Outcome:
        """The verdict and what was found."""
        if self.check is not None:
            return self.check()
        return (
            self.measure(setting) if self.measure is not None else Outcome(UNCHECKED, f"needs {self.needs}")
        )


# --- verdicts --------------------------------------------------------------------------------------------


def decide(holds: bool | np.bool_, found: str) -> Outcome:
    """A claim that holds or does not."""
    return Outcome(HOLDS if holds else FALSE, found)


def only_if(there: bool | np.bool_, elsewhere: bool | np.bool_, found: str) -> Outcome:
    """A claim that holds under a condition (`there`), and without it (`elsewhere`) or not."""
    if there and elsewhere:
        return Outcome(HOLDS, found)
    return Outcome(CONDITIONAL if there else FALSE, found)


def printed_as(printed: str, value: float, found: str) -> Outcome:
    """A printed number: whether `value` is that number, or rounds to it, or neither.

    >>> printed_as("2.37", 3.316 / 1.4, "2.3686").verdict
    'holds within rounding'
    """
    if abs(value - float(printed)) <= 1e-12 * abs(value):
        return Outcome(HOLDS, found)
    return Outcome(ROUNDING if within(value, printed) else FALSE, found)


def within(value: float, printed: str) -> bool:
    """Whether `value` lies within half a unit of the last digit of `printed`."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return abs(value - float(printed)) <= half * (1.0 + 1e-9)
