"""The pictures of an audit: the cells that deviate most, what more steps would find."""

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.tables import LOOKS
from specsim.auditing._report.text import headline
from specsim.auditing._results.audit import Audit, CaseResult, TableResult
from specsim.core._plotting import COLORS, Axes, Figure, curve, figure_style, points
from specsim.core.stats import detectable_tv, tv_interval

#: What is expected, and the steps of the levels.
BAND = "#c9d3dc"
#: Tables, and cells of a table, that a reader is shown: the most telling.
MOST_TABLES, MOST_CELLS = 8, 12


@dataclass(frozen=True)
class Tested:
    case: CaseResult
    table: TableResult

    @property
    def name(self) -> str:
        table = self.table
        of = {"PIT": ", PIT bins", "tail": ", bins of rare tokens", "neighbours": ", pairs of steps"}
        what = of.get(table.kind) or (f" after {list(table.prefix)}" if table.prefix else "")
        if table.where:
            return f"{self.case.case}, {table.where}"
        return f"{self.case.case}, position {table.position + 1}{what}"

    def title(self, audit: Audit) -> str:
        """The name and, where steps are independent, the total variation with its interval."""
        table = self.table
        if any(finding.kind == "dependent" for finding in self.case.findings):
            return self.name
        observed, law = np.array(table.observed), np.array(table.expected) / table.n
        estimate, low, high = tv_interval(observed, law, audit.budget / audit.tests / len(LOOKS))
        return f"{self.name}\nTV {estimate:.3f} [{low:.3f}, {high:.3f}]"

    def detectable(self, audit: Audit, steps: float) -> float:
        """The deviation that this table would find if the case had this number of steps."""
        visits = self.table.n / self.case.steps
        return detectable_tv(self.table.cells, steps * visits, audit.budget / audit.tests)


def worst_tables(audit: Audit) -> list[Tested]:
    """The worst table of each case with a finding, worst first; without any, the table nearest to one."""
    drawn = ([Tested(case, one) for one in case.tables if one.observed and one.n] for case in audit.cases)
    worst = [max(tables, key=lambda tested: tested.table.log10_e) for tables in drawn if tables]
    worst.sort(key=lambda tested: tested.table.log10_e, reverse=True)
    if any(case.findings for case in audit.cases):
        alarm = audit.needed_log10_e
        return [one for one in worst if one.table.rejected or one.case.pooled_log10_e >= alarm][:MOST_TABLES]
    return worst[:1]


def main_tables(audit: Audit) -> list[Tested]:
    """Tables for the power: the most and the least sensitive of first tokens, the least of last positions."""
    ran = [case for case in audit.cases if case.steps]
    first = [Tested(case, case.first_token) for case in ran if case.first_token and case.first_token.n]
    last = [Tested(case, case.last_position) for case in ran if case.last_position and case.last_position.n]
    if not first:
        return []
    detectable = attrgetter("table.detectable_tv")
    chosen = [min(first, key=detectable), max(first, key=detectable), max(last, key=detectable)]
    return list({tested.name: tested for tested in chosen}.values())


def level_steps(audit: Audit) -> dict[str, int]:
    """The steps that each level gives a case whose rows are short."""
    drafted = [case for case in audit.cases if case.tree is not None]
    kind = "rule" if audit.proof is not None else "verifier" if drafted else "decoder"
    return {level: getattr(steps, kind) for level, steps in LEVELS.items()}


def deviation_figure(tested: Tested) -> Figure:
    """`draw_deviation` as a figure as high as its cells need."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 0.75 + 0.23 * min(len(tested.table.observed), MOST_CELLS)))
    draw_deviation(figure.subplots(), tested)
    return figure


def draw_deviation(axis: Axes, tested: Tested) -> Axes:
    """Observed over expected counts, in the cells that deviate most; expected is 1, ± 2 standard errors."""
    observed, expected = np.array(tested.table.observed), np.array(tested.table.expected)
    error = np.sqrt(expected * (1.0 - expected / tested.table.n))
    worst = np.sort(np.argsort(-np.abs(observed - expected) / error)[:MOST_CELLS])
    places = range(len(worst))
    band = (error / expected)[worst]
    axis.barh(places, 4.0 * band, left=1.0 - 2.0 * band, height=0.6, color=BAND)
    axis.axvline(1.0, color=COLORS[0], linewidth=0.8)
    axis.plot((observed / expected)[worst], places, "o", color=COLORS[1])
    axis.set_yticks(places, [tested.table.labels[cell] for cell in worst])
    axis.set_xlim(left=max(0.0, axis.get_xlim()[0]))
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    right = axis.secondary_yaxis("right")
    right.set_yticks(places, [f"{observed[cell]:,} ({expected[cell]:,.0f} expected)" for cell in worst])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    axis.set_xlabel("observed / expected; the band is ± 2 standard errors")
    return axis


def power_figure(audit: Audit) -> Figure:
    """Detectable TV against the number of steps, the points that were reached, and the levels' steps."""
    from matplotlib.figure import Figure

    levels, shown = level_steps(audit), main_tables(audit)
    fewest = min([*levels.values(), *(tested.case.steps for tested in shown)])
    steps = np.geomspace(fewest / 2, max(levels.values()), 24)
    figure = Figure(figsize=(6.4, 3.0))
    axis = figure.subplots()
    for number, tested in enumerate(shown):
        axis.plot(steps, [tested.detectable(audit, n) for n in steps], **curve(number), label=tested.name)
        axis.plot(tested.case.steps, tested.table.detectable_tv, **points(number))
    for level, n in levels.items():
        axis.axvline(n, color=BAND, linewidth=0.8, zorder=0)
        axis.text(n, 1.02, level, transform=axis.get_xaxis_transform(), ha="center", fontsize=8)
    axis.set(
        xscale="log", yscale="log", xlabel="steps of the case; points: this audit", ylabel="detectable TV"
    )
    if shown:
        axis.legend(loc="lower left")
    return figure


def audit_figure(audit: Audit) -> Figure:
    """Under the verdict the worst table if any deviates, else what more steps would find."""
    worst = worst_tables(audit)
    with figure_style():
        found = worst and any(case.findings for case in audit.cases)
        figure = deviation_figure(worst[0]) if found else power_figure(audit)
        title = f"{headline(audit)}\n{worst[0].title(audit)}" if found else headline(audit)
        title = title.encode(errors="backslashreplace").decode()  # no font has a lone surrogate
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
        return figure
