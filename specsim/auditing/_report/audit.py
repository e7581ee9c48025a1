"""The result of an audit, shown, drawn, and read by continuous integration."""

import io
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from specsim.auditing._report import figures
from specsim.auditing._report import text as words
from specsim.auditing._results import audit as _results
from specsim.auditing._verifier.origin import Origin
from specsim.core import _plotting
from specsim.core._tables import Table, short
from specsim.core._verdicts import Check, Verdict

#: Colours of figures, and the page's names for them, so that figures follow the reader's light or dark.
INK, GRID = "#1d2329", "#dde3e8"
COLORS = {
    INK: "--ink",
    GRID: "--line",
    **dict(zip(_plotting.COLORS, ("--blue", "--orange", "--green"), strict=False)),
    figures.BAND: "--band",
}
STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "grid.color": GRID,
}


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

    def template(self) -> tuple[Path, dict[str, Any]]:
        """audit.html.j2 beside this file, which builds on the template of all results, and its values."""
        worst, shown, steps = figures.worst_tables(self), figures.main_tables(self), figures.level_steps(self)
        power = partial(figures.power_figure, self)
        captions = [f"{one.name}: {one.table.n:,} tokens" for one in worst]
        return Path(__file__).with_name("audit.html.j2"), {
            "words": words,
            "findings": words.grouped(self),
            "worst": worst,
            "deviations": [
                (text, _svg(partial(figures.deviation_figure, one), f"d{i}", text))
                for i, (one, text) in enumerate(zip(worst, captions, strict=True))
            ],
            "purposes": {case.case: case.purpose for case in self.cases},
            "power": _svg(power, "p", "Detectable TV against the number of steps") if shown else "",
            "detectable": Table.of(
                [
                    {"table": one.name, "this audit": f"{one.table.detectable_tv:.4f}"}
                    | {f"{level}, {short(n)}": f"{one.detectable(self, n):.4f}" for level, n in steps.items()}
                    for one in shown
                ]
            ),
            **dict(zip(("evidence", "speed", "by_shape", "by_axis"), words.tables(self), strict=True)),
        }

    def facts(self) -> dict[str, Any]:
        origin = self.origin or Origin()
        told = {
            "verifier": self.verifier,
            "its file": origin.file and f"{origin.file}, line {origin.line}",
            "SHA-256": origin.digest,
            "loaded with it": ", ".join(f"{name} {version}" for name, version in origin.libraries.items()),
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

    def _check(self, case: _results.CaseResult) -> Check:
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

    def plot(self, ax: _plotting.Axes | None = None) -> _plotting.Axes:
        """The table with the largest e-value: observed over expected counts in its cells."""
        if not (worst := figures.worst_tables(self)):
            raise ValueError("no table can be plotted: no case has a table of at most 64 cells")
        axes = figures.draw_deviation(_plotting.axes_or_new(ax), worst[0])
        axes.set_title(worst[0].title(self))
        return axes


def _svg(draw: Callable[[], _plotting.Figure], prefix: str, label: str) -> Any:
    """A figure for a page: no header, no metadata, ids of its own, colours by the page's names."""
    import matplotlib
    from markupsafe import Markup, escape

    buffer = io.StringIO()
    with _plotting.figure_style(), matplotlib.rc_context(STYLE):
        draw().savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    drawn = buffer.getvalue()
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", drawn[drawn.index("<svg") :])
    for color, name in COLORS.items():
        drawn = drawn.replace(color, f"var({name})")
    return Markup(drawn.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))
