"""`specsim check-metrics`."""

from pathlib import Path

import specsim
from specsim.cli._app import app, command
from specsim.cli._terminal import TEXT, Form, print_result


@command(app, name="check-metrics")
def check_metrics(
    file: Path | None = None,
    *,
    engine: str | None = None,
    gamma: str | None = None,
    acceptance_rate: str | None = None,
    tokens_per_step: str | None = None,
    accepted: str | None = None,
    drafted: str | None = None,
    emitted: str | None = None,
    steps: str | None = None,
    bonus: str | None = None,
    by_position: str | None = None,
    draft_time: str | None = None,
    target_time: str | None = None,
    step_time: str | None = None,
    speedup: str | None = None,
    requests: str | None = None,
    form: Form = TEXT,
) -> int:
    """Check whether reported numbers can all be true.

    Give numbers as printed: their digits determine the precision. For a log, α by position is printed too.

    Args:
        file: What an engine logged: JSON Lines of responses or of AIPerf with histograms of accepted lengths,
            or the text of a server's /metrics. Options override numbers in the file.
        engine: Definitions of the numbers: plain (default), vllm, hf, sglang, llama.cpp or flashinfer.
        gamma: Maximum number of drafted tokens per step.
        acceptance_rate: As printed: 0.80 or 80.0%.
        tokens_per_step: As printed; engines call it mean acceptance length.
        accepted: Drafted tokens accepted.
        drafted: Drafted tokens.
        emitted: Tokens generated.
        steps: Rounds of draft and verify.
        bonus: Steps that accepted their whole draft.
        by_position: Share of the steps that accepted each position: 0.81,0.63,0.48.
        draft_time: Time of one drafted token, in any unit.
        target_time: Time of one pass of the target, same unit.
        step_time: Time of one step, same unit.
        speedup: Over one pass of the target per token.
        requests: Number of texts that may have ended within their last step. Default: 0."""
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
