"""`specsim simulate-batch`."""

from pathlib import Path
from typing import Annotated, Any

import specsim
from specsim.cli._app import app, command
from specsim.cli._options import REAL, WHOLE, Executor, Seed, Several, Threads, given, refuse, settings_of
from specsim.cli._terminal import TEXT_OR_PICTURE, PictureForm, print_result
from specsim.core._numbers import real
from specsim.core._numbers import whole as whole_of

PRESET = "llama-8b"


@command(
    app,
    "simulate-batch --rate 20 --alpha 70% --policy goodput --seed 1",
    "simulate-batch --over rate=1,10,20,40 --seed 1 -o speedup.png",
    "simulate-batch --preset llama-8b-sparse --over max_batch=1,4,16",
    "simulate-batch --measured passes.csv,2 --log requests.csv --json",
    name="simulate-batch",
)
def simulate_batch(
    *,
    preset: str | None = None,
    measured: str | None = None,
    policy: str = "constant:gamma=4",
    alpha: str | None = None,
    lengths: str | None = None,
    rate: Annotated[float | None, REAL] = None,
    log: Path | None = None,
    prompt: str | None = None,
    output: str | None = None,
    max_batch: Annotated[int | None, WHOLE] = None,
    prefill: bool = True,
    requests: Annotated[int | None, WHOLE] = None,
    replications: Annotated[int, WHOLE] = 8,
    over: Several = None,
    seed: Seed = None,
    threads: Threads = None,
    executor: Executor = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Simulate a server that decodes many requests at once: latency, goodput and capacity.

    Args:
        preset: Networks and hardware: llama-8b (default), llama-8b-sparse, llama-70b or mixtral-8x7b.
        measured: In place of a preset: FILE,MS. FILE is a CSV file of measured passes of the target, with the
            columns batch, tokens (of all sequences) and ms; a pass of the draft takes MS milliseconds.
        policy: How draft lengths are chosen: none, constant, goodput, budget, blocks, bands, heuristic,
            classifier or oracle, with parameters if any: budget:tokens=256,max_gamma=8.
        alpha: Acceptance rate of the draft's tokens; or one for each position: 0.8,0.7; or Beta-distributed
            between requests, with mean and standard deviation: beta:0.7,0.2. Default: 0.8.
        lengths: Steps that accepted 0, 1, …, γ tokens, such as 620,210,90,80, or the file of a log that
            'specsim check-metrics' reads, in place of --alpha.
        rate: Arrival rate in requests per second. Default: all requests arrive at time 0.
        log: CSV file of requests, with the columns arrival (in seconds), prompt and output.
        prompt: Tokens of a prompt: 512 (default), or geometric:512 with that mean.
        output: Tokens of an output: 128 (default), or geometric:128 with that mean.
        max_batch: Maximum number of requests decoded at once. Default: 32.
        prefill: Compute prompts in the iteration in which a request joins.
        requests: Requests of each replication. Default: 2,000.
        replications: Independent replications, for the intervals.
        over: A setting and its values: rate, max_batch, prompt, output or alpha, as in rate=1,10; may be
            repeated. Each is compared with a server that does not speculate."""
    from specsim.planning import RequestLog, sweep_batch
    from specsim.planning import simulate_batch as simulate
    from specsim.planning._batch._policies import policy_named

    values = locals()
    if log is not None:
        why = "has no effect on --log, which has the requests"
        refuse(simulate_batch, values, why, "prompt", "output", "requests")
    settings: dict[str, Any] = {
        "rate": rate,
        "log": None if log is None else RequestLog.read(log),
        "alpha": _acceptance(alpha, lengths),
        "prompt": None if prompt is None else _length("prompt", prompt),
        "output": None if output is None else _length("output", output),
        "max_batch": max_batch,
        "requests": requests,
        "replications": replications,
    }
    work: dict[str, Any] = {"prefill": prefill, "rng": seed, "threads": threads} | given(settings)
    cost, chosen = _cost(preset, measured), policy_named(policy)
    if over is None:
        why = "has no effect without --over, whose settings it runs in parallel"
        refuse(simulate_batch, values, why, "executor")
        if rate is None and log is None:
            form.check_no_picture("a full server, whose latency has no limit (see --rate and --over)")
        return print_result(simulate(cost, chosen, **work), form)
    swept = settings_of(over, _values, "rate=1,10")
    return print_result(sweep_batch(cost, chosen, over=swept, executor=executor, **work), form)


def _cost(name: str | None, measured: str | None) -> Any:
    from specsim.planning import BatchCost, PassTime, preset

    if measured is None:
        return preset(PRESET if name is None else name)
    if name is not None:
        raise ValueError("--preset and --measured: give only one")
    file, comma, text = measured.rpartition(",")
    if not comma:
        raise ValueError(f"--measured: the draft's milliseconds are missing; add them, as in {measured},2")
    draft_ms = _number("measured", text, real)
    if not 0.0 <= draft_ms < float("inf"):
        raise ValueError(f"--measured: {draft_ms:g} is not a time in ms, finite and at least 0")
    return BatchCost(PassTime.read(Path(file)), PassTime(fixed=draft_ms / 1e3))


def _acceptance(alpha: str | None, lengths: str | None) -> Any:
    """What --alpha and --lengths say of acceptance; None where nothing is said."""
    from specsim.planning import Beta, LoggedLengths

    if lengths is not None:
        if alpha is not None:
            raise ValueError("--alpha has no effect with --lengths, which has the acceptance; leave it out")
        if Path(lengths).is_file():
            found = specsim.read_acceptance(lengths)
            if not found.lengths:
                raise ValueError(f"{lengths}: no histogram of accepted lengths; give a log that has one")
            if found.contradictions:
                raise ValueError(found.contradictions[0])
            return LoggedLengths(found.lengths)
        return LoggedLengths([_number("lengths", one, whole_of) for one in lengths.split(",")])
    if alpha is None:
        return None
    beta = alpha.startswith("beta:")
    rates = [_number("alpha", one, real) for one in alpha.removeprefix("beta:").split(",")]
    if not beta:
        return rates[0] if len(rates) == 1 else rates
    if len(rates) != 2:
        raise ValueError(f"--alpha: {alpha!r} is not of the form beta:MEAN,DEVIATION")
    if not 0.0 <= rates[0] <= 1.0:
        raise ValueError(f"--alpha: {rates[0]} is outside [0, 1]; give a probability")
    return Beta(*rates)


def _number(option: str, text: str, read: Any) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"--{option}: {error}") from None


def _length(name: str, text: str) -> Any:
    """A number of tokens, or a distribution of them."""
    from specsim.planning import Geometric

    kind, colon, mean = text.partition(":")
    if colon and kind != "geometric":
        raise ValueError(f"--{name}: {text!r} is neither a number of tokens nor geometric:MEAN")
    return _number(name, mean, lambda one: Geometric(real(one))) if colon else _number(name, text, whole_of)


def _values(name: str, values: list[str]) -> list[Any]:
    if name in ("prompt", "output"):
        return [_length("over", one) for one in values]
    return [_number("over", one, whole_of if name == "max_batch" else real) for one in values]
