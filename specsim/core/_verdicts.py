"""What every result with a verdict shares: false alarms, wanted power, findings, exit code and report."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar

from specsim.core._files import read_table
from specsim.core._json import printable
from specsim.core._tables import COLORS, MORE, Line, Piece, Shown, Table

#: Probability that all tests of an audit together raise any alarm where nothing is wrong.
BUDGET = 1e-6
#: The total variation that must be detectable for a verdict without a finding: from a claimed distribution,
#: between two verifiers, between two servers. Both distributions of a comparison are unknown.
WANTED_TV, WANTED_TV_OF_VERIFIERS, WANTED_TV_OF_SERVERS = 0.05, 0.1, 0.15
#: The most characters of a finding.
LONGEST, LONGEST_DETAILS = 1500, 6000
#: What `brief` has at most: findings, rows of a table, characters of what a verdict means and of a line.
FINDINGS, ROWS, MEANING, LINE = 2, 6, 440, 235
#: What to do, by kind of result and verdict.
REMEDIES: dict[str, dict[str, str]] = read_table("meanings")["remedies"]
#: The exit code without a verdict.
UNDECIDED = 3


class Verdict(StrEnum):
    """The verdict of an audit, of a case of it, or of a comparison.

    `consistent`: no deviation from the target's distribution was found. `lossy`: none from the distribution
    that the rule declares instead. `biased`: a deviation from the claimed distribution. `broken`: the
    contract is broken. `inconclusive`: nothing was found, and too little could have been, or it was
    interrupted. `no power`, of a case only: nothing was found, and the wanted total variation could not be.

    `same` and `changed`: no difference, or one, between the two distributions of a comparison. `texts
    differ`, at temperature 0: some do, which rounding explains. `deviates`: a file contradicts itself."""

    CONSISTENT = "consistent"
    LOSSY = "lossy"
    BIASED = "biased"
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"
    NO_POWER = "no power"
    SAME = "same"
    CHANGED = "changed"
    TEXTS_DIFFER = "texts differ"
    DEVIATES = "deviates"

    @property
    def exit_code(self) -> int:
        """0 as claimed; 1 biased, broken, changed or deviating; 3 without a verdict."""
        if self in (Verdict.CONSISTENT, Verdict.LOSSY, Verdict.SAME):
            return 0
        return 1 if self in (Verdict.BIASED, Verdict.BROKEN, Verdict.CHANGED, Verdict.DEVIATES) else UNDECIDED


@dataclass(frozen=True)
class Finding:
    """One reason for a verdict; `kind` is deviation, support, dependent, path, or contract.

    `details` is the traceback of an exception in the verifier. `text` and `details` may hold its words, so
    they are escaped and cut.

    Where a table deviates, `position` counts from 0, `prefix` is the emitted prefix of a table of tokens,
    `cell` names the most significant token or bin, `token` is its id if it is one token, `observed` and
    `expected` are its shares of the draws, and `log10_e` is the evidence. `emitted_as` is the kind of token
    with most of the excess: "accepted", "recovered" (after a rejection), "bonus" or "recovered or bonus"."""

    kind: str
    text: str
    details: str = field(default="", compare=False)
    position: int | None = None
    prefix: tuple[int, ...] | None = None
    cell: str | None = None
    token: int | None = None
    observed: float | None = None
    expected: float | None = None
    log10_e: float | None = None
    emitted_as: str | None = None

    def __post_init__(self) -> None:
        for name, longest in (("text", LONGEST), ("details", LONGEST_DETAILS)):
            object.__setattr__(self, name, printable(getattr(self, name), longest, "\n"))

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"

    @property
    def alike(self) -> tuple[str, str]:
        """Equal for findings that differ in numbers of a broken contract only, such as sizes."""
        return self.kind, re.sub(r"\d+", "#", self.text) if self.kind == "contract" else self.text


@dataclass(frozen=True)
class Check:
    """A test case of continuous integration: `outcome` is "failure", "error", "skipped", or "" if passed."""

    name: str
    outcome: str = ""
    message: str = ""
    text: str | None = None
    seconds: float | None = None


class Judged(Shown):
    """A result with a verdict: its exit code, and what all forms of a report say."""

    __slots__ = ()

    #: What was done, for the title of the page.
    made: ClassVar[str] = "Audit"
    long = ROWS
    #: Its kind in the table of remedies.
    remedies: ClassVar[str] = ""
    #: The kinds of findings that it can have; each is a check.
    kinds: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:  # no attributes, which would be defaults of the fields of dataclasses

        @property
        def findings(self) -> Sequence[Finding]: ...

    @property
    def verdict(self) -> Verdict:
        raise NotImplementedError

    @property
    def exit_code(self) -> int:
        """That of the verdict; 3 where an interrupt came before anything was found."""
        return self.verdict.exit_code or (UNDECIDED if getattr(self, "interrupted", False) else 0)

    @property
    def subject(self) -> str:
        """What was judged."""
        raise NotImplementedError

    def headline(self) -> str:
        """The verdict in a line."""
        return f"{self.subject}: {self.verdict}"

    def warnings(self) -> Sequence[str]:
        """What an interrupt left out."""
        return ()

    def evidence(self) -> Iterable[Piece]:
        """Tables, and lines between them."""
        return ()

    def finding_lines(self) -> Sequence[str]:
        """What was found, the clearest first."""
        return [str(finding) for finding in self.findings]

    def explanation(self) -> Sequence[str]:
        """The nearest known mistakes."""
        return ()

    def summary(self) -> Iterable[Piece]:
        """The first rows of the first table of the evidence."""
        return next((one.cut(ROWS) for one in self.evidence() if isinstance(one, Table)), ())

    def legend(self) -> dict[str, str]:
        """What the columns of the tables mean."""
        return {}

    def remarks(self) -> Iterable[Piece]:
        """What is no part of the verdict."""
        return ()

    def size(self) -> str:
        """How much was tested, and the false-alarm rate."""
        return ""

    def meaning(self) -> str:
        return ""

    def remedy(self) -> str:
        """What to do."""
        stopped = getattr(self, "interrupted", False) and self.exit_code == UNDECIDED
        return REMEDIES.get(self.remedies, {}).get("interrupted" if stopped else self.verdict, "")

    def again(self) -> str:
        """How to run it again: a command where there is one."""
        provenance = getattr(self, "provenance", None)
        return "" if provenance is None else f"the same command, with --seed {provenance.root}"

    def template(self) -> tuple[Path, dict[str, Any]] | None:
        """The template of its page and more values for it, if it is not that of all results."""
        return None

    def facts(self) -> dict[str, Any]:
        """What was judged, and how."""
        return {}

    def properties(self) -> dict[str, Any]:
        """What programs get with verdict and seed."""
        return {}

    def outcomes(self) -> Iterable[Check]:
        """What may fail by itself: each kind of finding, and whether there is a verdict."""
        for kind in self.kinds:
            here = [finding for finding in self.findings if finding.kind == kind]
            outcome = "error" if kind == "contract" else "failure"
            yield Check(kind, outcome, here[0].text, "\n".join(map(str, here))) if here else Check(kind)
        yield self.decided()

    def decided(self) -> Check:
        """The check of whether there is a verdict."""
        if self.exit_code != UNDECIDED:
            return Check("verdict")
        return Check("verdict", "error", self.headline(), self.meaning())

    def in_a_line(self) -> str:
        """The verdict, and what decides it."""
        decides = next(iter(self.finding_lines()), self.meaning())
        return " ".join(f"{self.headline()}: {decides}".removesuffix(": ").split())

    def _beginning(self) -> Iterator[Line]:
        yield Line(self.headline(), f"bold {COLORS.get(self.verdict, 'yellow')}")
        yield from (Line(line, "bold yellow") for line in self.warnings())

    def _ending(self) -> Iterator[str]:
        for name, text in {"": self.size(), "To do: ": self.remedy(), "Again: ": self.again()}.items():
            yield name + text if text else ""

    def brief(self) -> Iterator[Piece]:
        """The verdict, and what decides it, in at most 25 lines of 80 columns."""
        yield from self._beginning()
        if meaning := self.meaning():
            yield shorten(meaning, MEANING, placeholder=" …")
        yield from self.summary()
        found = self.finding_lines()
        for one in found[:FINDINGS]:
            end = "".join(re.findall(r" \(and \d+ more findings?\)$", one))
            yield Line(shorten(one, LINE, placeholder=f" …{end}"), "red")
        if len(found) > FINDINGS:
            yield f"{len(found) - FINDINGS} more finding{'s' * (len(found) > FINDINGS + 1)}{MORE}"
        known = self.explanation()
        told = *known[:2], *known[2:][-1:], *self._ending()
        yield from (shorten(line, LINE, placeholder=" …") for line in told)

    def parts(self) -> Iterator[Piece]:
        yield from self._beginning()
        yield self.meaning()
        yield from (Line(line, "red") for line in self.finding_lines())
        yield from self.explanation()
        yield from self.evidence()
        named = {name for one in self.evidence() if isinstance(one, Table) for name in one.columns}
        said = (f"{name}: {text}." for name, text in self.legend().items() if name in named)
        yield Line(" ".join(said), "dim")
        yield from self.remarks()
        yield from self._ending()
