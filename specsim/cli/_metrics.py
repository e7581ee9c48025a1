"""`specsim check-metrics`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import specsim
from specsim.cli._app import app, command
from specsim.cli._terminal import TEXT, Form, print_result
from specsim.core._files import read_table

HELP = {name: Parameter(help=text) for name, text in read_table("numbers").items()}


@command(app, name="check-metrics")
def check_metrics(
    file: Annotated[Path | None, HELP["file"]] = None,
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

    Give numbers as printed: their digits determine the precision. For a log, α by position is printed too.
    Impossible numbers are tried with the other meanings that engines give them."""
    options = {name: value for name, value in locals().items() if value is not None}
    path, _ = options.pop("file", None), options.pop("form")
    if path is None:
        return print_result(specsim.check_metrics(**options), form)
    logged = specsim.read_acceptance(path)
    numbers = {"engine": logged.engine} | logged.numbers | options
    check = specsim.check_metrics(**numbers) if logged.numbers else None
    both = {"acceptance": logged.to_dict(), "check": check and check.to_dict()}
    code = print_result(logged, form, both)
    if check is not None and not (form.as_json or form.as_csv):
        print()
        print_result(check)
    return max(code, check.exit_code if check else 0)
