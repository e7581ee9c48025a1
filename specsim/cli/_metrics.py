"""`specsim check-metrics`."""

import sys
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import app, command
from specsim.cli._terminal import TEXT, Form, print_result, show
from specsim.core._files import read_table

#: The most series that are checked one by one.
MOST = 32
HELP = {name: Parameter(help=text) for name, text in read_table("numbers").items()}


@command(app, name="check-metrics")
def check_metrics(
    files: Annotated[
        list[str] | None, Parameter(name="FILE", negative="", allow_leading_hyphen=True), HELP["files"]
    ] = None,
    /,
    *,
    engine: Annotated[str | None, HELP["engine"]] = None,
    gamma: Annotated[str | None, HELP["gamma"]] = None,
    acceptance_rate: Annotated[str | None, HELP["acceptance_rate"]] = None,
    tokens_per_step: Annotated[str | None, HELP["tokens_per_step"]] = None,
    accepted: Annotated[str | None, HELP["accepted"]] = None,
    drafted: Annotated[str | None, HELP["drafted"]] = None,
    emitted: Annotated[str | None, HELP["emitted"]] = None,
    steps: Annotated[str | None, HELP["steps"]] = None,
    bonus: Annotated[str | None, HELP["bonus"]] = None,
    by_position: Annotated[str | None, HELP["by_position"]] = None,
    draft_time: Annotated[str | None, HELP["draft_time"]] = None,
    target_time: Annotated[str | None, HELP["target_time"]] = None,
    step_time: Annotated[str | None, HELP["step_time"]] = None,
    speedup: Annotated[str | None, HELP["speedup"]] = None,
    requests: Annotated[str | None, HELP["requests"]] = None,
    itl: Annotated[str | None, HELP["itl"]] = None,
    tpot: Annotated[str | None, HELP["tpot"]] = None,
    throughput: Annotated[str | None, HELP["throughput"]] = None,
    batch: Annotated[str | None, HELP["batch"]] = None,
    form: Form = TEXT,
) -> int:
    """Check whether reported numbers can all be true, and say what they mean.

    Give numbers as printed: their digits determine the precision. A log gives α by position too. Impossible
    numbers are tried with the other meanings that engines give them."""
    options = {name: value for name, value in locals().items() if value is not None}
    sources, _ = options.pop("files", None), options.pop("form")
    if not sources and (options or sys.stdin is None or sys.stdin.isatty()):
        return print_result(specsim.check_metrics(**options), form)
    logged = specsim.read_acceptance(*(sources or ["-"]))
    # a histogram that does not contradict itself is possible
    parts = [
        (one, _check(one, options)) for one in logged.series[:MOST] if one.contradicting or not one.lengths
    ]
    check = _check(logged, options)
    told = {"acceptance": logged.to_dict(), "check": check and check.to_dict()}
    told["series"] = {one.name: part.to_dict() for one, part in parts if part}
    if check is not None and (form.in_words or form.quiet):  # the verdict first
        print_result(check, replace(form, file=None))
    if check is not None and form.quiet:
        form.write(logged)
    else:
        show(*[""] * (check is not None and form.in_words))
        print_result(logged, form, told)
    if form.in_words:
        show(*(f"{one.name}: {part.verdict}" for one, part in parts if part))
    return max(one.exit_code for one in (logged, check, *(part for _, part in parts)) if one is not None)


def _check(logged: Any, options: dict[str, str]) -> Any:
    """The check of what was logged, of the first record that contradicts itself if any does; None without."""
    numbers = logged.numbers or logged.suspect
    return specsim.check_metrics(**{"engine": logged.engine} | numbers | options) if numbers else None
