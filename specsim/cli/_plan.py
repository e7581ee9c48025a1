"""`specsim plan` and `simulate-batch`: the best γ, or the best of several drafts; a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli import _options as option
from specsim.cli._app import app, command
from specsim.cli._options import ANY_PAIR, REAL, WHOLE, Seed, Several, given, pair_of, refuse
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, print_result
from specsim.core._numbers import real
from specsim.core._numbers import whole as whole_of
from specsim.models import Pair

#: The networks and the hardware of a server, where none are named.
PRESET = "llama-8b"
#: The largest γ to consider.
MOST = 64
#: For policies: tokens of a text, and the share of it that DISCO is fitted to.
LENGTH, TRAINED = 20_000, 0.25
#: For a pair of models: how far rates by position are simulated, and how many steps must get there.
POSITIONS, STEPS, LEAST = 16, 50_000, 1000

if TYPE_CHECKING:
    from specsim.traces._reader import Trace


@command(app)
def plan(
    pair: Annotated[str | None, Parameter(help=f"{ANY_PAIR} Uses its acceptance rates by position.")] = None,
    *,
    alpha: Annotated[float | None, REAL] = None,
    draft: Several = None,
    c: Annotated[float | None, REAL] = None,
    c_hat: Annotated[float | None, REAL] = None,
    max_gamma: Annotated[int, WHOLE] = MOST,
    policies: option.Flag = False,
    tokens: Annotated[int | None, WHOLE] = None,
    seed: Seed = None,
    form: Form = TEXT,
) -> int:
    """Find the best γ, its speedup and sensitivity, the best of several drafts, or of several policies.

    Args:
        alpha: Acceptance rate of the draft's tokens, from 0 to 1.
        draft: One of several drafts: name=alpha,c, where alpha may be accepted/tested or the folder of a
            trace; may be repeated.
        c: Ratio of the times of a draft's and a target's forward pass.
        c_hat: The same ratio for arithmetic operations; default: c.
        max_gamma: Largest γ to consider.
        policies: Compare policies that choose γ at every step, on a text of two models or along a trace.
        tokens: With --policies, of two models: length of the text in tokens. Default: 20,000."""
    values = locals()
    if sum(given is not None for given in (pair, alpha, draft)) != 1:
        raise ValueError("PAIR, --alpha, --draft: give exactly one of them")
    if policies:
        refuse(plan, values, "has no effect with --policies", "alpha", "draft", "c_hat", "max_gamma")
    else:
        refuse(plan, values, "has no effect without --policies", "tokens", "seed")
    if draft is not None:
        from specsim import rank_drafts

        refuse(plan, values, "has no effect with --draft, where each has its own: name=alpha,c", "c", "c_hat")
        return print_result(rank_drafts([_candidate(text) for text in draft], max_gamma=max_gamma), form)
    if c is None:
        raise ValueError("--c: missing; give the time of a draft's pass over that of a target's")
    rates: Any = alpha
    if pair is not None:
        both = pair_of(pair)
        if policies and both.draft is None:
            refuse(plan, values, f"has no effect on {pair}, whose text is logged", "tokens", "seed")
        if policies:
            return _print_policies(both, c, tokens, seed, form)
        if both.draft is None:
            return _print_trace_plan(both.target, c, c_hat, max_gamma, form)
        rates = _rates(both)
    return print_result(specsim.plan(rates, c, c_hat, max_gamma=max_gamma), form)


def _rates(pair: Any) -> Any:
    """The acceptance rates by position: of two pmfs their overlap, of models and positions as simulated."""
    import numpy as np

    positions = POSITIONS
    if not isinstance(pair.target, specsim.models.Model):
        if pair.target.ndim == 1:
            return specsim.theory.acceptance_rate(pair.target, pair.draft)
        positions = min(POSITIONS, len(pair.target) // 2)  # half of them begin a step
    lengths = specsim.simulate(pair, gamma=positions, steps=STEPS, rng=0).lengths
    reached = np.cumsum(lengths[::-1])[::-1]
    return (reached[1:] / reached[:-1])[reached[:-1] >= LEAST]


def _print_trace_plan(trace: "Trace", c: float, c_hat: float | None, max_gamma: int, form: Form) -> int:
    """The plan for a trace; two of them where only bounds of α are known."""
    from specsim.core._tables import Listing
    from specsim.traces import summarise
    from specsim.traces._summary import TraceBounds

    found = summarise(trace)
    bounded = isinstance(found, TraceBounds) and not found.flags
    rates: Any = found.alpha_context if bounded else [found.alpha_by_position[found.tested_by_position > 0]]
    made = [specsim.plan(alpha, c, c_hat, max_gamma=max_gamma) for alpha in rates]
    if not bounded:
        return print_result(made[0], form)
    if not form.is_text:
        rows = [{"alpha": one.alphas[0]} | row for one in made for row in one.records()]
        return print_result(Listing([], rows), form, [one.to_dict() for one in made])
    for which, one in zip(("at least", "at most"), made, strict=True):
        alpha = f"α context {which} {one.alphas[0]:.4f}"
        print(f"no accept flags were logged; with {alpha}, at every position:")
        print_result(one)
    return 0


def _print_policies(pair: Pair, c: float, tokens: int | None, seed: int | None, form: Form) -> int:
    """Policies that choose γ along a trace, or on one text, DISCO fitted to its first part."""
    from specsim import planning as known

    if pair.draft is None:
        log, gamma = known.log_from_trace(pair.target), pair.target.gamma
        compared: tuple[known.Policy, ...] = (
            known.Constant(gamma),
            known.Heuristic(),
            known.ConfidenceThreshold(max_gamma=gamma),
            known.SVIP(max_gamma=gamma),
            known.Goodput(),
            known.Cascade(),
            known.Oracle(),
        )
    elif isinstance(pair.target, specsim.models.Model):
        text = specsim.draft_log(pair.target, pair.draft, LENGTH if tokens is None else tokens, rng=seed)
        train, log = text.split(TRAINED)
        compared = known.every_policy(train, log)
    else:
        raise ValueError("--policies: give two models, such as ngram, or a trace")
    runs = specsim.simulate_policies(log, compared, draft_cost=c)
    by_speed = type(runs)(sorted(runs, key=lambda run: -run.speedup))
    return print_result(by_speed if form.is_text else runs, form)


def _candidate(text: str) -> Any:
    """name=alpha,c with a rate, accepted/tested, or the folder of a trace."""
    from specsim.planning._plan import Candidate
    from specsim.traces import summarise

    name, _, rest = text.partition("=")
    rate, _, ratio = rest.rpartition(",")
    try:
        if not name:
            raise ValueError("the name is missing")
        c = real(ratio)
        if Path(rate).is_dir():
            return Candidate.of_trace(name, summarise(specsim.open_trace(Path(rate))), c)
        if "/" in rate:
            accepted, tested = map(whole_of, rate.split("/", 1))
            return Candidate.of_counts(name, accepted, tested, c)
        return Candidate.of_rate(name, real(rate), c)
    except ValueError as error:
        raise ValueError(f"draft {text!r}: expected name=alpha,c such as small=0.75,0.02 ({error})") from None


@command(app, name="simulate-batch")
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
    threads: option.Threads = None,
    executor: option.Executor = None,
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
    swept = option.settings_of(over, _values, "rate=1,10")
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
