"""`specsim plan`, `simulate-batch`, `compare-acceptance`: the best γ or draft, a server, a change."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim import planning
from specsim.cli import _options as option
from specsim.cli._app import COMMANDS, app, command, refuse
from specsim.cli._options import REAL, WHOLE, Real, Several, Whole, given, pair_of, trace_of
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, print_result
from specsim.core._files import read_cells
from specsim.core._numbers import real
from specsim.core._numbers import whole as whole_of
from specsim.core._tables import Listing
from specsim.core._types import check_known, said_of
from specsim.models import Pair

#: The largest γ to consider.
MOST = 64
#: For policies: tokens of a text, and the share of it that DISCO is fitted to.
LENGTH, TRAINED = 20_000, 0.25
#: What --alpha may be, beside one rate of tested tokens and beta:MEAN,DEVIATION.
MEANINGS = ("conditional", "by-position", "acceptance-rate", "tokens-per-step")
#: The options that say what `plan` plans from; the first that is given decides.
PLANS: list[str] = COMMANDS["plan"]["from"]
#: For a pair of models: how far rates by position are simulated, and how many steps must get there.
POSITIONS, STEPS, LEAST = 16, 50_000, 1000

if TYPE_CHECKING:
    from specsim.traces._reader import Trace


@command(app)
def plan(
    pair: str | None = None,
    *,
    alpha: str | None = None,
    draft: Several = None,
    target: str | None = None,
    prompts: Path | None = None,
    temperature: Annotated[float, REAL] = 1.0,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    speeds: Several = None,
    c: Real = None,
    c_hat: Real = None,
    measured: str | None = None,
    batch: Annotated[int, WHOLE] = 1,
    gamma: Whole = None,
    target_time: str | None = None,
    step_time: str | None = None,
    max_gamma: Annotated[int, WHOLE] = MOST,
    policies: option.Flag = False,
    tokens: Whole = None,
    seed: Whole = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Find the best γ, its speedup and sensitivity, the best of several drafts, or of several policies."""
    from specsim.planning._measured import MeasuredStep, plan_passes, plan_recorded, plan_speeds, plan_step

    values = locals()
    kind = next((name for name in PLANS if values[name]), "c")
    sources = sum(values[name] is not None for name in ("pair", "alpha", "draft", "from_", "speeds"))
    if sources > 1 or not (sources or step_time or target):
        raise ValueError("PAIR, --alpha, --draft, --from, --speeds: give exactly one of them")
    refuse(plan, values, kind)
    if from_ is not None:
        from specsim.engines._audit.speeds import plan_audited

        place, root = Path(from_), seed or 0
        with said_of("--from"):
            found = plan_audited(place, root) or plan_recorded(trace_of(place), root)
        if isinstance(found, Listing):
            form.check_no_picture("a single audit, only of a matrix")
        return print_result(found, form)
    if kind not in ("c", "measured", "speeds"):
        form.check_no_picture("this plan, only of one by --from, --c, --measured or --speeds")
    if target is not None:
        limits = given({"gamma": gamma, "max_new_tokens": tokens}) | {"temperature": temperature}
        return _print_drafts(target, draft, prompts, seed, form, limits)
    if speeds is not None:
        return print_result(plan_speeds(_speeds(speeds)), form)
    if draft is not None:
        candidates = [_candidate(text) for text in draft]
        return print_result(specsim.rank_drafts(candidates, max_gamma=max_gamma), form)
    rates, meaning, _ = (None, "", None) if alpha is None else _alpha(alpha)

    def make(alpha: Any) -> Any:
        if step_time is not None:
            return plan_step(alpha, gamma, target_time, step_time)
        if measured is not None:
            return plan_passes(alpha, MeasuredStep.read(*_passes(measured), batch))
        assert c is not None
        return specsim.plan(alpha, c, c_hat, max_gamma=max_gamma)

    if [c, measured, step_time].count(None) == 3:
        raise ValueError(
            "--c: missing; give the time of a draft's pass over that of a target's, --measured or --step-time"
        )
    if pair is not None:
        both = pair_of(pair)
        if both.draft is None:
            refuse(plan, values, "logged")
        if policies:
            assert c is not None
            return _print_policies(both, c, tokens, seed, form)
        if both.draft is None:
            return _print_trace_plan(both.target, make, form)
        rates = _rates(both)
    return print_result(replace(make(rates), meaning=meaning), form)


def _alpha(text: str) -> tuple[Any, str, int | None]:
    """Accepted / tested tokens of --alpha, what they follow from, and the γ that they were measured with."""
    kind, colon, rest = text.partition(":")
    if not colon and "," in text:
        raise ValueError(
            f"--alpha: {text} are several rates; give by-position:{text} if they are shares of all steps, as "
            f"engines print them, or conditional:{text} if they are accepted / tested"
        )
    if not colon:
        said = f"α {text}: accepted / tested tokens; if an engine printed it: acceptance-rate:{text},gamma=…"
        return _number("alpha", text, real), said, None
    check_known("meaning of --alpha", kind, MEANINGS)
    if kind == "conditional":
        return [_number("alpha", one, real) for one in rest.split(",")], "", None
    if kind == "by-position":
        return *planning.alpha_of(by_position=rest), rest.count(",") + 1
    value, _, gamma = rest.partition(",gamma=")
    if not gamma:
        raise ValueError(
            f"--alpha: {text} needs the drafted tokens per step; give {text},gamma=4, or as many"
        )
    drafted = _number("alpha", gamma, whole_of)
    return *planning.alpha_of(**{kind.replace("-", "_"): value}, gamma=drafted), drafted


def _speeds(given: list[str]) -> Iterator[tuple[int, str, str, str]]:
    """The rows of --speeds, files and GAMMA=RATE,SPEED: γ, what its acceptance is, that, and the speed."""
    for text in given:
        gamma, equals, rest = text.partition("=")
        cells = [(0, dict(zip(("acceptance_rate", "speed"), rest.rpartition(",")[::2], strict=True)))]
        if not equals:
            cells = read_cells(text, ("gamma", "speed"), ("tokens_per_step", "acceptance_rate"))
        for line, row in cells:
            kind = "tokens_per_step" if "tokens_per_step" in row else "acceptance_rate"
            drafted, accepted = _number("speeds", row.get("gamma", gamma), whole_of), row.get(kind, "")
            if drafted and not accepted:
                raise ValueError(f"--speeds: {text}:{line}: no {kind}; give it for each gamma")
            yield drafted, kind, accepted, row["speed"]


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


def _print_trace_plan(trace: "Trace", make: Callable[[Any], Any], form: Form) -> int:
    """The plan for a trace; two of them where only bounds of α are known."""
    from specsim.traces._summary import TraceBounds

    found = specsim.traces.summarise(trace)
    bounded = isinstance(found, TraceBounds) and not found.flags
    rates: Any = found.alpha_context if bounded else [found.alpha_by_position[found.tested_by_position > 0]]
    made = [make(alpha) for alpha in rates]
    if not bounded:
        return print_result(made[0], form)
    form.check_no_picture("bounds")
    verdicts, parts, rows = [], list[Any](), list[Any]()
    for which, alpha, one in zip(("at least", "at most"), rates, made, strict=True):
        (verdict, *others), known = one.parts(), f"α context {which} {alpha:.4f}"
        verdicts.append(f"{known}: {verdict.text}")
        parts += [f"no accept flags were logged; with {known}, at every position:", *others]
        rows += [{"alpha": alpha} | row for row in one.records()]
    return print_result(Listing(["; ".join(verdicts), *parts], rows), form, [one.to_dict() for one in made])


def _print_policies(pair: Pair, c: float, tokens: int | None, seed: int | None, form: Form) -> int:
    """Policies that choose γ along a trace, or on one text, DISCO fitted to its first part."""
    if pair.draft is None:
        log, gamma = planning.log_from_trace(pair.target), pair.target.gamma
        looking = (kind(max_gamma=gamma) for kind in (planning.ConfidenceThreshold, planning.SVIP))
        others = planning.Goodput(), planning.Cascade(), planning.Oracle()
        planned = planning.Constant(gamma), planning.Heuristic()
        compared: tuple[planning.Policy, ...] = *planned, *looking, *others
    elif isinstance(pair.target, specsim.models.Model):
        text = specsim.draft_log(pair.target, pair.draft, LENGTH if tokens is None else tokens, rng=seed)
        train, log = text.split(TRAINED)
        compared = planning.every_policy(train, log)
    else:
        raise ValueError("--policies: give two models, such as ngram, or a trace")
    runs = specsim.simulate_policies(log, compared, draft_cost=c)
    by_speed = type(runs)(sorted(runs, key=lambda run: -run.speedup))
    return print_result(by_speed if form.is_text else runs, form)


def _print_drafts(
    target: str, drafts: list[str] | None, prompts: Path | None, seed: int | None, form: Form, limits: Any
) -> int:
    """Record each draft after the prompts, and say which is the fastest."""
    from specsim.core._streams import root_of
    from specsim.decoding import record_hf
    from specsim.decoding._recording.huggingface import read_prompts
    from specsim.planning._measured import choose_draft

    if drafts is None or prompts is None or len({*drafts}) < len(drafts):
        raise ValueError("--target: --draft or --prompts is missing, or repeated; give both, each draft once")
    texts, root = read_prompts(prompts), root_of(seed)
    with TemporaryDirectory() as folder:
        traces = {
            draft: record_hf(f"{folder}/{number}", target, draft, texts, top=1, rng=root, **limits)
            for number, draft in enumerate(drafts)
        }
        found = choose_draft(traces, root)
    return print_result(found, form)


def _candidate(text: str) -> Any:
    """name=alpha,c with a rate, accepted/tested, or the folder of a trace."""
    name, _, rest = text.partition("=")
    rate, _, ratio = rest.rpartition(",")
    try:
        if not name:
            raise ValueError("the name is missing")
        c = real(ratio)
        if Path(rate).is_dir():
            found = specsim.traces.summarise(specsim.open_trace(Path(rate)))
            return planning.Candidate.of_trace(name, found, c)
        if "/" in rate and ":" not in rate:
            accepted, tested = map(whole_of, rate.split("/", 1))
            return planning.Candidate.of_counts(name, accepted, tested, c)
        return planning.Candidate.of_rate(name, _alpha(rate)[0], c)
    except ValueError as error:
        raise ValueError(f"draft {text!r}: expected name=alpha,c such as small=0.75,0.02 ({error})") from None


@command(app, name="simulate-batch")
def simulate_batch(
    *,
    preset: str | None = None,
    measured: str | None = None,
    policy: str | None = None,
    alpha: str | None = None,
    lengths: str | None = None,
    rate: Real = None,
    log: Path | None = None,
    prompt: str | None = None,
    output: str | None = None,
    max_batch: Whole = None,
    prefill: bool = True,
    requests: Whole = None,
    replications: Annotated[int, WHOLE] = 8,
    over: Several = None,
    seed: Whole = None,
    threads: Whole = None,
    executor: str | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Simulate a server that decodes many requests at once: latency, goodput and capacity."""
    from specsim.planning._batch._policies import policy_named

    acceptance, said, measured_with = _acceptance(alpha, lengths)
    settings: dict[str, Any] = {
        "rate": rate,
        "log": None if log is None else planning.RequestLog.read(log),
        "alpha": acceptance,
        "prompt": None if prompt is None else _length("prompt", prompt),
        "output": None if output is None else _length("output", output),
        "max_batch": max_batch,
        "requests": requests,
        "replications": replications,
    }
    work: dict[str, Any] = {"prefill": prefill, "rng": seed, "threads": threads} | given(settings)
    cost = _cost(preset, measured)
    chosen = policy_named(f"constant:gamma={measured_with or 4}" if policy is None else policy)
    if over is None:
        if rate is None and log is None:
            form.check_no_picture("a full server, whose latency has no limit (see --rate and --over)")
        code = print_result(planning.simulate_batch(cost, chosen, **work), form)
    else:
        swept = option.settings_of(over, _values, "rate=1,10")
        code = print_result(planning.sweep_batch(cost, chosen, over=swept, executor=executor, **work), form)
    if said and form.is_text:
        print(said)
    return code


def _cost(name: str | None, measured: str | None) -> Any:
    if measured is None:
        return planning.preset("llama-8b" if name is None else name)
    if name is not None:
        raise ValueError("--preset and --measured: give only one")
    file, draft_ms = _passes(measured)
    return planning.BatchCost(planning.PassTime.read(file), planning.PassTime(fixed=draft_ms / 1e3))


def _passes(measured: str) -> tuple[Path, float]:
    """The file of --measured, and the milliseconds of a pass of the draft."""
    file, comma, text = measured.rpartition(",")
    if not comma:
        raise ValueError(f"--measured: the draft's milliseconds are missing; add them, as in {measured},2")
    draft_ms = _number("measured", text, real)
    if not 0.0 <= draft_ms < float("inf"):
        raise ValueError(f"--measured: {draft_ms:g} is not a time in ms, finite and at least 0")
    return Path(file), draft_ms


def _acceptance(alpha: str | None, lengths: str | None) -> tuple[Any, str, int | None]:
    """What --alpha or --lengths say of acceptance, as `_alpha` does."""
    from specsim.planning._measured import shares_of

    if lengths is not None:
        if alpha is not None:
            raise ValueError("--alpha has no effect with --lengths, which has the acceptance; leave it out")
        if Path(lengths).is_file():
            found = specsim.read_acceptance(lengths)
            if not found.lengths:
                raise ValueError(f"{lengths}: no histogram of accepted lengths; give a log that has one")
            if found.contradictions:
                raise ValueError(found.contradictions[0])
            counts = found.lengths
        else:
            counts = tuple(_number("lengths", one, whole_of) for one in lengths.split(","))
        logged = planning.LoggedLengths(counts)
        return logged, "", len(logged.survival)
    if alpha is None:
        return None, "", None
    kind, _, rest = alpha.partition(":")
    if kind == "by-position":
        return planning.LoggedLengths.of_shares(shares_of(rest)), *_alpha(alpha)[1:]
    if kind != "beta":
        return _alpha(alpha)
    rates = [_number("alpha", one, real) for one in rest.split(",")]
    if len(rates) != 2:
        raise ValueError(f"--alpha: {alpha!r} is not of the form beta:MEAN,DEVIATION")
    return planning.Beta(*rates), "", None


def _number(option: str, text: str, read: Any) -> Any:
    with said_of(f"--{option}"):
        return read(text)


def _length(name: str, text: str) -> Any:
    """A number of tokens, or a distribution of them."""
    kind, colon, mean = text.partition(":")
    if colon and kind != "geometric":
        raise ValueError(f"--{name}: {text!r} is neither a number of tokens nor geometric:MEAN")
    if not colon:
        return _number(name, text, whole_of)
    return _number(name, mean, lambda one: planning.Geometric(real(one)))


def _values(name: str, values: list[str]) -> list[Any]:
    if name in ("prompt", "output"):
        return [_length("over", one) for one in values]
    return [_number("over", one, whole_of if name == "max_batch" else real) for one in values]


@command(app, name="compare-acceptance")
def compare_acceptance(
    old: Path, new: Path | None = None, *, false_alarm: Annotated[float, REAL] = 0.01, form: Form = TEXT
) -> int:
    """Test whether two logs differ in tokens per step, and what change their requests could have shown."""
    return print_result(specsim.compare_acceptance(old, new, false_alarm=false_alarm), form)
