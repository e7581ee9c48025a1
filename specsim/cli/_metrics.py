"""`specsim check-metrics`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import specsim
from specsim.cli._app import app, command
from specsim.cli._terminal import TEXT, Form, print_result


@command(
    app,
    "check-metrics --gamma 5 --accepted 20 --emitted 30 --steps 7",
    "check-metrics metrics.txt --engine vllm",
    name="check-metrics",
    codes="0 the numbers can all be true, 1 they cannot, 2 usage or bad input",
)
def check_metrics(
    file: Annotated[
        Path | None,
        Parameter(
            help="What an engine logged: JSON Lines of responses or of AIPerf with histograms of accepted "
            "lengths, or the text of a server's /metrics. Options override numbers in the file."
        ),
    ] = None,
    *,
    engine: Annotated[
        str | None,
        Parameter(
            help="Definitions of the numbers: plain (default), vllm, hf, sglang, llama.cpp or flashinfer."
        ),
    ] = None,
    gamma: Annotated[str | None, Parameter(help="Maximum number of drafted tokens per step.")] = None,
    acceptance_rate: Annotated[str | None, Parameter(help="As printed: 0.80 or 80.0%.")] = None,
    tokens_per_step: Annotated[
        str | None, Parameter(help="As printed; engines call it mean acceptance length.")
    ] = None,
    accepted: Annotated[str | None, Parameter(help="Drafted tokens accepted.")] = None,
    drafted: Annotated[str | None, Parameter(help="Drafted tokens.")] = None,
    emitted: Annotated[str | None, Parameter(help="Tokens generated.")] = None,
    steps: Annotated[str | None, Parameter(help="Rounds of draft and verify.")] = None,
    bonus: Annotated[str | None, Parameter(help="Steps that accepted their whole draft.")] = None,
    by_position: Annotated[
        str | None, Parameter(help="Share of the steps that accepted each position: 0.81,0.63,0.48.")
    ] = None,
    draft_time: Annotated[str | None, Parameter(help="Time of one drafted token, in any unit.")] = None,
    target_time: Annotated[str | None, Parameter(help="Time of one pass of the target, same unit.")] = None,
    step_time: Annotated[str | None, Parameter(help="Time of one step, same unit.")] = None,
    speedup: Annotated[str | None, Parameter(help="Over one pass of the target per token.")] = None,
    requests: Annotated[
        str | None, Parameter(help="Number of texts that may have ended within their last step. Default: 0.")
    ] = None,
    form: Form = TEXT,
) -> int:
    """Check whether reported numbers can all be true.

    Give numbers as printed: their digits determine the precision. For a log, α by position is printed too."""
    options = {name: value for name, value in locals().items() if value is not None}
    path, _ = options.pop("file", None), options.pop("form")
    if path is None:
        found = specsim.check_metrics(**options)
        print_result(found, form)
        return found.exit_code
    logged = specsim.served.read_acceptance(path)
    numbers = {"engine": logged.engine} | logged.numbers | options
    check = specsim.check_metrics(**numbers) if logged.numbers else None
    print_result(logged, form, {"acceptance": logged.to_dict(), "check": check.to_dict() if check else None})
    if check is not None and not (form.as_json or form.as_csv):
        print()
        print_result(check)
    return max(logged.exit_code, check.exit_code if check else 0)
