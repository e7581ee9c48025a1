"""`specsim check-metrics`."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, make_dataclass, replace
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import app, command
from specsim.cli._options import given
from specsim.cli._terminal import TEXT_OR_JUNIT, JUnitForm, print_result
from specsim.core._files import PathLike, read_table
from specsim.core._tables import Line, Piece, Shown
from specsim.core._types import check_known
from specsim.core._verdicts import Check

#: The most series that are checked one by one, and those that a short report names.
MOST, SHOWN = 32, 3
#: The numbers that may be reported, as options.
OPTIONS = read_table("numbers").items()
FIELDS = [(name, Annotated[str | None, Parameter(help=text)], None) for name, text in OPTIONS]
Numbers: Any = make_dataclass("Numbers", FIELDS, namespace={"__module__": __name__})


@command(app, name="check-metrics")
def check_metrics(
    files: Annotated[list[str] | None, Parameter(name="FILE", negative="", allow_leading_hyphen=True)] = None,
    /,
    *,
    numbers: Annotated[Numbers, Parameter(name="*")] = None,
    form: JUnitForm = TEXT_OR_JUNIT,
) -> int:
    """Check whether reported numbers can all be true, and say what they mean.

    Give numbers as printed: their digits determine the precision. A log gives α by position too. Impossible
    numbers are tried with the other meanings that engines give them."""
    options = given(vars(numbers)) if numbers else {}
    for name in files or ():
        if name.startswith("-") and name != "-" and " " not in name:
            check_known("option", name, [f"--{one.replace('_', '-')}" for one, _ in OPTIONS])
    if not files and (options or sys.stdin is None or sys.stdin.isatty()):
        return print_result(ReportedNumbers({"": specsim.check_metrics(**options)}), form)
    logged = specsim.read_acceptance(*(files or ["-"]))
    checks = {}
    for name, one in {"": logged, **{one.name: one for one in logged.series[:MOST]}}.items():
        log = one.numbers or one.suspect  # of the first record that contradicts itself if any does
        # a histogram that does not contradict itself is possible
        if log and (not name or one.contradicting or not one.lengths):
            checks[name] = specsim.check_metrics(**{"engine": one.engine} | log | options)
    if "" in checks and not checks[""].possible:  # the positions may mean something else
        logged = replace(logged, positions=())
    return print_result(ReportedNumbers(checks, logged), form)


@dataclass(frozen=True, eq=False)
class ReportedNumbers(Shown):
    """The checks of all numbers, under no name, and of each series, and the log that has them, if any."""

    checks: dict[str, Any]
    logged: Any = None
    subject, made, long = "reported numbers", "check-metrics", True

    @property
    def whole(self) -> list[Any]:
        """The check of all numbers, and the log: what there is of both."""
        return [one for one in (self.checks.get(""), self.logged) if one]

    @property
    def exit_code(self) -> int:
        return max(one.exit_code for one in (*self.whole, *self.checks.values()))

    @property
    def verdict(self) -> str:
        return "impossible" if self.exit_code else "possible"

    def properties(self) -> dict[str, str]:
        return self.checks[""].reported if "" in self.checks else {}

    def outcomes(self) -> Iterator[Check]:
        for name, check in self.checks.items():
            for one in check.outcomes():
                yield replace(one, name=f"{name}: {one.name}".removeprefix(": "))
        if self.logged:
            yield Check("requests", "failure" * self.logged.exit_code, "; ".join(self.logged.contradictions))

    def parts(self) -> Iterator[Piece]:
        return self._pieces("parts", self.checks)

    def brief(self) -> Iterator[Piece]:
        return self._pieces("brief", [name for name, one in self.checks.items() if one.exit_code][:SHOWN])

    def _pieces(self, form: str, names: Iterable[str]) -> Iterator[Piece]:
        """What cannot be true first; then not what is possible of its sum."""
        lines = [(f"{one}: {self.checks[one].verdict}", self.checks[one].exit_code) for one in names if one]
        yield from (Line(line, "bold red") for line, wrong in lines if wrong)
        yield "possible: nothing to compare" * (not self.exit_code and "" not in self.checks)
        for one in self.whole:
            if one is self.logged or one.exit_code or not self.exit_code:
                yield from getattr(one, form)()
        yield from (line for line, wrong in lines if not wrong)

    def records(self) -> list[dict[str, Any]]:
        return self.whole[-1].records()

    def save(self, path: PathLike) -> None:
        self.whole[-1].save(path)

    def to_dict(self) -> dict[str, Any]:
        told = {name: check.to_dict() for name, check in self.checks.items()}
        check = told.pop("", None)
        return {"acceptance": self.logged.to_dict(), "check": check, "series": told} if self.logged else check
