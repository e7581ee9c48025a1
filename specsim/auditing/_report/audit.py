"""The result of an audit, shown, drawn, and read by continuous integration."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from specsim.auditing._report import text as words
from specsim.auditing._report.figures import draw_deviation, worst_tables
from specsim.auditing._report.html import template
from specsim.auditing._results import audit as _results
from specsim.auditing._results.audit import CaseResult
from specsim.auditing._verifier.origin import Origin
from specsim.core._plotting import Axes, axes_or_new
from specsim.core._verdicts import Check, Verdict


class Audit(_results.Audit):
    """The result of `specsim.audit`, shown and drawn."""

    remedies = "verifier"

    @property
    def subject(self) -> str:
        return self.verifier

    headline = words.headline
    warnings = words.progress_lines
    finding_lines = words.finding_lines
    explanation = words.explanation
    summary = words.summary
    evidence = words.tables
    legend = words.legend
    remarks = words.remarks
    size = words.test_line
    meaning = words.meaning
    again = words.replay
    template = template

    def facts(self) -> dict[str, Any]:
        origin = self.origin or Origin()
        libraries = ", ".join(f"{name} {version}" for name, version in origin.libraries.items())
        told = {
            "verifier": self.verifier,
            "its file": origin.file and f"{origin.file}, line {origin.line}",
            "SHA-256": origin.digest,
            "loaded with it": libraries,
            "level": self.level,
            "false alarms": f"probability at most {self.budget:g} in the whole audit, split over "
            f"{self.tests:,} tests",
        }
        return {name: fact for name, fact in told.items() if fact}

    def properties(self) -> dict[str, Any]:
        flags = {"dependent": self.dependent, "edge case": self.edge_case, "wasteful": self.wasteful}
        return {"level": self.level} | {name: str(flag).lower() for name, flag in flags.items()}

    def outcomes(self) -> Iterator[Check]:
        """Each case, the proof and the power; a case without power, or not run to its end, is skipped."""
        yield from (self._check(case) for case in self.cases)
        if self.proof is not None:
            line = str(words.proof_line(self))
            yield Check("proof") if self.proof.as_claimed else Check("proof", "failure", line, line)
        if self.verdict is Verdict.INCONCLUSIVE:
            yield Check("power", "error", self.headline(), words.wanted_line(self))
        else:
            yield Check("power")

    def _check(self, case: CaseResult) -> Check:
        checked = partial(Check, case.case, seconds=case.seconds)
        if case.findings:
            outcome = "error" if case.verdict is Verdict.BROKEN else "failure"
            texts = (f"{one}\n{one.details}" if one.details else str(one) for one in case.findings)
            return checked(outcome, words.finding_line(case), "\n".join([*texts, f"again: {self.again()}"]))
        if case.interrupted:
            return checked("skipped", f"interrupted after {case.steps:,} of {case.planned:,} steps")
        if words.verdict_of(self, case) == words.LEFT_OUT:
            return checked("skipped", f"left out for time after {case.steps:,} steps")
        if case.verdict is Verdict.NO_POWER:
            least = case.first_token.detectable_tv if case.first_token else 1.0
            said = f"a total variation of {least:.4f} of the first token was detectable"
            return checked("skipped", f"{case.verdict}: {said}, {case.wanted_tv:g} wanted")
        return checked()

    def plot(self, ax: Axes | None = None) -> Axes:
        """The table with the largest e-value: observed over expected counts in its cells."""
        worst = worst_tables(self)
        if not worst:
            raise ValueError("no table can be plotted: no case has a table of at most 64 cells")
        axes = draw_deviation(axes_or_new(ax), worst[0])
        axes.set_title(worst[0].title(self))
        return axes
