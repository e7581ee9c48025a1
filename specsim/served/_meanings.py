"""What else impossible numbers could mean, and what possible ones say of the speed: what limits it, where
speculation breaks even, and the best γ."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from operator import mul

import scipy

from specsim.core._files import read_table
from specsim.served._feasible import CLOSE, Range
from specsim.served._statements import Definition
from specsim.theory import expected_tokens

#: Other meanings, in words; those that are `weak` hold of almost any number. The most that are named.
READINGS, SENTENCES, MOST = read_table("readings"), read_table("answers"), 5
#: A printed rate of 0 may be as large; how far below the first a rate is, if it is to be remarked.
NEVER, BELOW = 0.005, 0.1
#: Costs of a drafted token in passes of the target, where none is known.
COSTS = (0.05, 0.1, 0.2)
Numbers = Mapping[str, Range]
Meaning = tuple[str, Numbers, Definition]  # in words, and what it amounts to


def meanings(
    given: Numbers,
    definition: Definition,
    conflict: Collection[str],
    feasible: Callable[[Numbers, Definition], bool],
) -> list[Meaning]:
    """Other meanings of a number of the conflict with which all statements hold, the likely ones first."""
    found = [(text, moved, definition) for text, moved in _shifted(given) if feasible(moved, definition)]
    for text, entry in READINGS.items() if "speedup" not in conflict else ():
        known = entry["about"] in conflict and entry.get("needs") in (None, *given)
        for change in entry["changes"] if known and not (found and "weak" in entry) else ():
            other = replace(definition, **change)
            numbers = {"requests": Range(0, 0)} | dict(given) if "outside" in change else given
            if other != definition and feasible(numbers, other):
                found.append((text, numbers, other))
                break
    return found[:MOST]


def _shifted(given: Numbers) -> Iterator[tuple[str, Numbers]]:
    """The numbers of a histogram whose entries are one accepted token further up or down."""
    names = [name for name in given if name.startswith("position")]
    rates, rest = [given[name] for name in names], {k: one for k, one in given.items() if k not in names}
    if not names or not {"accepted", "steps"} <= given.keys():
        return
    text = "the histogram is too {} by one: its entry k counts the steps that accepted k {} 1"
    up = [Range(1, 1), *(rates[:-1] if rates[-1].high <= NEVER else rates)]
    for sign, words, moved in ((1, ("low", "+"), up), (-1, ("high", "−"), rates[1:])):
        counted = Range(*(a + sign * n for a, n in zip(given["accepted"], given["steps"], strict=True)))
        # a logged count may be right beside the histogram
        for accepted in (counted, given["accepted"]) if sign > 0 or rates[0].high == 1 else ():
            if moved and accepted.low >= 0:
                positions = {f"position {i}": one for i, one in enumerate(moved, 1)}
                gamma = Range(len(moved), len(moved))
                yield text.format(*words), rest | positions | {"accepted": accepted, "gamma": gamma}


def answers(given: Numbers, definition: Definition, values: Numbers) -> Iterator[str]:
    """What is derived from `given`, and `values` that follow from it, in sentences."""
    rates = [_middle(one) for name, one in given.items() if name.startswith("position")]
    rates = [*accumulate(rates, mul)] if definition.conditional else rates
    rate, tokens = given.get("acceptance_rate"), given.get("tokens_per_step")
    if rate and rate.low and tokens and not {"gamma", "drafted", "steps", "accepted"} & given.keys():
        drafted = Range((tokens.low - 1) / rate.high - CLOSE, (tokens.high - 1) / rate.low + CLOSE)
        if tokens.low * (1 - rate.high) > 1 and math.floor(drafted.high) < drafted.low:  # no whole γ
            printed = f"1 / (1 − {_middle(rate):.6g}) = {1 / (1 - _middle(rate)):.4g}"
            yield SENTENCES["no chain"].format(printed)
    emitted, accepted = (given[name].low if name in given else 0 for name in ("emitted", "accepted"))
    if 0 < accepted < emitted and "steps" not in {*given, *values} and not definition.independent:
        yield SENTENCES["per pass"].format(emitted / (emitted - accepted))
    if emitted and "steps" in given and "tokens per step" not in values:
        yield f"tokens per step: {emitted / given['steps'].low:.4g} = emitted / steps"
    if len(rates) > 1:
        yield from _limits(given, rates, values.get("α drafted", rate))
    if cost := _cost(given, values):
        yield from _break_even(given, cost, values.get("tokens per step"))
    elif len(rates) < 2 and (mean := values.get("tokens per step")):
        missing = "--step-time" if "target_time" in given else "--target-time and --step-time"
        yield f"break-even: where a step costs {mean} times a pass of the target; give {missing}"
    if not definition.tree:
        yield from _best_gamma(given, rates, cost, values)


def _limits(given: Numbers, rates: list[float], drafted: Range | None) -> Iterator[str]:
    never = [i for i in range(1, len(rates) + 1) if given[f"position {i}"].high <= NEVER]
    first, every = f"{rates[0]:.3f}", [later / one for one, later in pairwise([1.0, *rates]) if one > NEVER]
    if drafted and rates[0] - _middle(drafted) >= BELOW:
        behind = f"; {len(never)} of {len(rates)} positions never accept" if never else ""
        yield SENTENCES["drafted"].format(_middle(drafted), first) + behind
    passed = [*every[: never[0] - 1], 0.0] if never else every
    worst = min(range(len(passed)), key=passed.__getitem__)
    if rates[0] < 0.5:
        yield f"what limits: the draft, whose first token is accepted in {first} of the steps"
    elif passed[worst] < rates[0] - BELOW:
        yield f"what limits: later positions; α is {first} at position 1, {passed[worst]:.3f} at {worst + 1}"
    else:
        yield f"what limits: no single position; α is {min(passed):.3f} to {max(passed):.3f} at each"


def _cost(given: Numbers, values: Numbers) -> Range | None:
    """The cost of a step in passes of the target; None where no time is known."""
    target, step, draft = (given.get(name) for name in ("target_time", "step_time", "draft_time"))
    drafted = values.get("drafted per step", given.get("gamma"))
    if target and step:
        return Range(step.low / target.high, step.high / target.low)
    if target and draft and drafted:
        return Range(1 + drafted.low * draft.low / target.high, 1 + drafted.high * draft.high / target.low)
    return None


def _break_even(given: Numbers, cost: Range, tokens: Range | None) -> Iterator[str]:
    middle, gamma = _middle(cost), int(given["gamma"].low) if "gamma" in given else 0
    passes = f"a step costs {middle:.4g} passes of the target"
    if gamma and cost.low > gamma + 1:
        yield f"break-even: never; {passes}, and emits at most γ + 1 = {gamma + 1} tokens"
        return
    text = f"break-even: {middle:.4g} tokens per step, as {passes}"
    if gamma and middle > 1:
        rate, low, high = (min(1.0, max(0.0, (end - 1) / gamma)) for end in (middle, *cost))
        alpha = independent_alpha(min(middle, gamma + 1), gamma)
        text += f"; α drafted {rate:.2%} ({low:.1%} to {high:.1%}) of γ = {gamma}, i.i.d. α {alpha:.3f}"
    yield text
    if tokens:
        gain = Range(tokens.low / cost.high, tokens.high / cost.low)
        word = "gains" if gain.low >= 1 else "may gain or lose" if gain.high > 1 else "loses"
        limit = "" if gain.high > 1 else "; the cost of verification limits"
        yield f"speculation {word}: speed-up {gain}{limit}"


def independent_alpha(tokens: float, gamma: int) -> float:
    """The α of independent acceptances with which steps of `gamma` emit `tokens` on average, 1 to γ + 1."""
    return float(scipy.optimize.brentq(lambda alpha: expected_tokens(alpha, gamma) - tokens, 0.0, 1.0))


def _best_gamma(given: Numbers, rates: list[float], cost: Range | None, values: Numbers) -> Iterator[str]:
    """The γ of the most tokens for the cost, of those up to the measured one."""
    alpha, gamma = values.get("α verified"), given.get("gamma")
    if len(rates) < 2 and alpha and gamma and alpha.high - alpha.low <= BELOW:
        rates = [_middle(alpha) ** k for k in range(1, min(int(gamma.low), 64) + 1)]
    if len(rates) < 2:
        return
    tokens = [*accumulate(rates, initial=1.0)]
    drafted = _middle(values.get("drafted per step", Range(len(rates), len(rates))))
    costs = [max(0.0, (_middle(cost) - 1) / (drafted or 1))] if cost else COSTS
    found = []
    for c in costs:
        best = max(range(len(tokens)), key=lambda k: tokens[k] / (1 + c * k))
        found.append(f"{best} at {c:.3g} (speed-up {tokens[best] / (1 + c * best):.3g})")
    yield f"best γ of up to {len(rates)}, by the cost of a drafted token in passes: {', '.join(found)}"


def _middle(value: Range) -> float:
    return (value.low + value.high) / 2
