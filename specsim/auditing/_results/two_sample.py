"""The result of comparing two verifiers: what differs case by case, and the verdict."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim.core._files import read_table
from specsim.core._provenance import Provenance
from specsim.core._tables import NONE, Piece, Table, as_dict, plain, short
from specsim.core._verdicts import WANTED_TV_OF_VERIFIERS, Check, Finding, Judged, Verdict
from specsim.core.stats import POWER

#: What verdicts mean, and how much was tested.
MEANINGS: dict[str, str] = read_table("meanings")["pair"]


@dataclass(frozen=True)
class Difference:
    """The comparison of one case: steps of each side, tokens per step, and the most significant table.

    `changed`: a table rejects that both are alike; `text` says where, or which error made the case
    `broken`. `twins` is the share of steps with identical tokens for the same rng. A total variation of
    `detectable_tv` between the first tokens is found with probability .999."""

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

    @property
    def finding(self) -> Finding | None:
        """What differs or broke, with the case."""
        kind = "contract" if self.broken else "deviation"
        return Finding(kind, f"{self.case}: {self.text}") if self.text else None


@dataclass(frozen=True, eq=False)
class TwoSampleAudit(Judged):
    """The result of `audit_against`. `budget` is the total false-alarm probability, split over `tests`.

    `planned` is the number of cases that both take, `wanted_tv` the total variation between the first tokens
    that half of them had to be able to detect."""

    new: str
    old: str
    level: str
    cases: tuple[Difference, ...]
    budget: float
    tests: int
    interrupted: bool
    provenance: Provenance
    planned: int = 0
    wanted_tv: float = WANTED_TV_OF_VERIFIERS

    made, remedies = "Comparison", "pair"

    @property
    def verdict(self) -> Verdict:
        """Same, changed, broken (one could not be run), or inconclusive (too few steps to find enough)."""
        if any(case.broken for case in self.cases):
            return Verdict.BROKEN
        if any(case.changed for case in self.cases):
            return Verdict.CHANGED
        inconclusive = self.interrupted or 2 * self.powerful < self.planned
        return Verdict.INCONCLUSIVE if inconclusive else Verdict.SAME

    @property
    def powerful(self) -> int:
        """In how many cases a total variation of `wanted_tv` was detectable."""
        return sum(case.detectable_tv <= self.wanted_tv for case in self.cases)

    def verdict_of(self, case: Difference) -> Verdict:
        if case.broken or case.changed:
            return Verdict.BROKEN if case.broken else Verdict.CHANGED
        return Verdict.SAME if case.detectable_tv <= self.wanted_tv else Verdict.NO_POWER

    @property
    def identical(self) -> bool:
        """Whether both returned the same tokens for the same rng."""
        return bool(self.cases) and all(case.twins == 1.0 for case in self.cases)

    def to_dict(self) -> dict[str, Any]:
        cases = [plain(case) | {"verdict": str(self.verdict_of(case))} for case in self.cases]
        return as_dict(self, "verdict", "identical", "exit_code", cases=cases)

    def records(self) -> list[dict[str, Any]]:
        """A row for each case."""
        return [
            {k: v for k, v in plain(case).items() if k != "tokens_per_step"}
            | dict(zip(("new_tokens_per_step", "old_tokens_per_step"), case.tokens_per_step, strict=True))
            | {"verdict": str(self.verdict_of(case))}
            for case in self.cases
        ]

    @property
    def subject(self) -> str:
        return f"{self.new} against {self.old}"

    @property
    def findings(self) -> list[Finding]:
        """What differs or broke, each with its case."""
        return [found for case in self.cases if (found := case.finding)]

    def headline(self) -> str:
        same = self.identical and self.verdict is Verdict.SAME
        return super().headline() + (", token by token under the same rng" if same else "")

    def warnings(self) -> list[str]:
        return ["interrupted: the results so far"] if self.interrupted else []

    def evidence(self) -> Iterator[Piece]:
        if self.cases:
            found = [i for i, case in enumerate(self.cases) if case.finding]
            yield Table.of([_row(self, case) for case in self.cases], gap=1, bold=found)

    def finding_lines(self) -> list[str]:
        return [finding.text for finding in self.findings]

    def meaning(self) -> str:
        return MEANINGS["found" if self.exit_code == 1 else "power"].format(audit=self)

    def legend(self) -> dict[str, str]:
        alarm = np.log10(max(self.tests, 1) / self.budget)
        values = {"power": POWER, "alarm": alarm, "wanted": self.wanted_tv}
        return {name: text.format(**values) for name, text in read_table("columns")["against"].items()}

    def size(self) -> str:
        return MEANINGS["size"].format(audit=self)

    def remarks(self) -> Iterator[Piece]:
        run = self.provenance
        yield f"Level {self.level}, seed {run.root}, {run.seconds:.1f} s, specsim {run.specsim}."

    def again(self) -> str:
        names = f"{shlex.quote(self.new)} --against {shlex.quote(self.old)}"
        return f"specsim audit {names} --level {self.level} --seed {self.provenance.root}"

    def outcomes(self) -> Iterator[Check]:
        """Each case, and whether there is a verdict."""
        for case in self.cases:
            if found := case.finding:
                text = f"{found}\nagain: {self.again()}"
                yield Check(case.case, "error" if case.broken else "failure", case.text, text)
            elif case.interrupted or self.verdict_of(case) is Verdict.NO_POWER:
                why = f"interrupted after {case.steps:,} steps" if case.interrupted else Verdict.NO_POWER
                yield Check(case.case, "skipped", why)
            else:
                yield Check(case.case)
        yield self.decided()


def _row(found: TwoSampleAudit, case: Difference) -> dict[str, str]:
    new, old = case.tokens_per_step
    return {
        "case": case.case,
        "steps": short(case.steps),
        "e": f"10^{case.log10_e:.1f}" if case.steps else NONE,
        "identical steps": f"{case.twins:.3f}",
        "new": f"{new:.4f}",
        "old": f"{old:.4f}",
        "detectable TV": f"{case.detectable_tv:.4f}",
        "verdict": str(found.verdict_of(case)),
    }
