"""`specsim check-metrics`."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import specsim
from specsim.cli._app import app
from specsim.cli._options import Json
from specsim.cli._terminal import print_result


@app.command(name="check-metrics")
def check_metrics(
    file: Annotated[
        Path | None,
        Parameter(
            help="What an engine logged: JSON Lines of responses or of AIPerf with histograms of accepted "
            "lengths, or the text of a server's /metrics. Numbers that are given besides replace its own."
        ),
    ] = None,
    *,
    engine: Annotated[
        str | None,
        Parameter(
            help="Definitions of the numbers: plain (default), vllm, hf, sglang, llama.cpp or flashinfer."
        ),
    ] = None,
    gamma: Annotated[str | None, Parameter(help="Most drafted tokens of a step.")] = None,
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
    as_json: Json = False,
) -> int:
    """Check whether reported numbers can all be true. Exit code 0 if they can, 1 if not.

    Give numbers as printed: their digits determine the precision. Of a log, α by position is printed too."""
    options = {name: value for name, value in locals().items() if value is not None}
    path, _ = options.pop("file", None), options.pop("as_json")
    if path is None:
        found = specsim.check_metrics(**options)
        print_result(found, as_json)
        return found.exit_code
    logged = specsim.metrics.read_acceptance(path)
    numbers = {"engine": logged.engine} | logged.numbers | options
    check = specsim.check_metrics(**numbers) if logged.numbers else None
    if as_json:
        document = {"acceptance": logged.to_dict(), "check": check.to_dict() if check else None}
        print(json.dumps(document, allow_nan=False))
    else:
        print_result(logged)
        if check is not None:
            print()
            print_result(check)
    return max(logged.exit_code, check.exit_code if check else 0)
