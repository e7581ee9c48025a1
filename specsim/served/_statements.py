"""The statements that reported numbers must satisfy, in the order in which they are tested.

docs/checking-metrics.md has each of them under "What is checked"."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from specsim.core._files import read_table
from specsim.served._feasible import COUNTS, Form, Range, minus, plus, times

ONE: Form = {"one": 1}
STEPS: Form = {"steps": 1}
DRAFTED: Form = {"drafted": 1}
ACCEPTED: Form = {"accepted": 1}  # up to the first rejection
BONUS: Form = {"bonus": 1}
TESTED = minus(plus(ACCEPTED, STEPS), BONUS)
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Definition:
    """An engine's definitions of its numbers: formulas in words, or "not known", which are not checked."""

    acceptance_rate: str
    tokens_per_step: str
    emitted: str
    source: str  #: where the formulas are documented
    #: What the steps divide to give tokens per step; "either" if the engine has one name for both, "bare" for
    #: accepted / steps, "extra" for 2 + accepted / steps, and "any" for a mean of requests' means.
    mean: Literal["emitted", "accepted", "either", "bare", "extra", "any"] = "emitted"
    #: What the rate is of: drafted tokens, those that were tested, or all that were verified, with the
    #: last of each step, which is then accepted; "any" for a mean of requests' rates.
    rate: Literal["drafted", "tested", "verified", "any"] = "drafted"
    #: Tokens of uncounted steps: the first of each request, from the prompt's pass, or any number.
    outside: Literal["none", "first", "any"] = "none"
    constant: bool = False  #: whether every draft but a request's last has exactly γ tokens, else at most γ
    independent: bool = False  #: whether `accepted` includes tests passed after a rejection
    bare: bool = False  #: whether `emitted` has drafted tokens alone
    more: str = ""  #: which count includes the last token of each step: "accepted", "drafted" or none
    conditional: bool = False  #: whether rates by position are of the steps that tested it, not of all
    tree: bool = False  #: whether drafts are trees of any number of tokens, γ deep


#: By name; "plain" takes the words literally.
DEFINITIONS = {name: Definition(**one) for name, one in read_table("definitions").items()}


@dataclass(frozen=True)
class Statement:
    """`low` ≤ `left` ≤ `high`, linear forms; one of the bounds may be None."""

    name: str
    text: str
    about: tuple[str, ...]  #: numbers; a report needs one of them
    left: Form
    low: Form | None
    high: Form | None
    note: str = ""
    over: Form | None = None  #: what the reported sides are divided by
    unless: tuple[Form, ...] = ()  #: the bounds need not hold where each of these is ≤ 0
    where: tuple[Form, ...] = ()  #: what defines further unknowns, as forms ≤ 0

    @property
    def bounds(self) -> tuple[Form, ...]:
        """The statement as forms ≤ 0."""
        below = () if self.low is None else (minus(self.low, self.left),)
        above = () if self.high is None else (minus(self.left, self.high),)
        return below + above


def count_of(name: str, definition: Definition) -> Form:
    """What the engine reports as the count `name`."""
    if name == "accepted" and definition.independent:
        return {"agreeing": 1}
    form = ACCEPTED if name == "emitted" and definition.bare else {name: 1.0}
    return plus(form, STEPS) if name == definition.more else form


def reported(given: Mapping[str, Range], definition: Definition) -> list[Form]:
    """The given counts, as forms ≤ 0; they never contradict each other."""
    forms = [minus(ONE, STEPS)]
    for name in COUNTS:
        if name in given:
            count, (least, most) = count_of(name, definition), (times(end, ONE) for end in given[name])
            forms += [minus(least, count), minus(count, most)]
    return forms


def statements(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    """The statements that must hold of `given`; all are needed, even those about other numbers."""
    yield from _drafts(given, definition)
    yield from _positions(given, definition)
    yield from _emission(given, definition)
    yield from _bonus(given, definition)
    yield from _whole_drafts(given, definition)
    yield from _speed(given)
    yield from _latency(given, definition)


def _drafts(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    if "acceptance_rate" in given and definition.acceptance_rate != NOT_KNOWN and definition.rate != "any":
        counted: Form = {"agreeing": 1} if definition.independent else ACCEPTED
        left, of = {
            "drafted": (counted, DRAFTED),
            "tested": (counted, TESTED),
            "verified": (plus(counted, STEPS), plus(DRAFTED, STEPS)),
        }[definition.rate]
        low, high = (times(rate, of) for rate in given["acceptance_rate"])
        text = f"accepted = acceptance rate × {definition.rate}"
        yield Statement("acceptance rate", text, ("acceptance_rate",), left, low, high)
    if "gamma" in given and not definition.tree:
        gamma, requests = given["gamma"].low, _requests(given)
        most = times(gamma, STEPS)
        least = minus(most, times(gamma * requests, ONE)) if definition.constant else None
        text = f"drafted {'=' if definition.constant else '≤'} γ × steps"
        note = "the last draft of a request may be shorter" if definition.constant and requests else ""
        yield Statement("draft length", text, ("drafted",), DRAFTED, least, most, note)
    elif "gamma" in given:
        deep = times(given["gamma"].low, STEPS)
        yield Statement("draft length", "accepted ≤ γ × steps", ("accepted",), ACCEPTED, None, deep)
    accepted = _word(definition)
    yield Statement("accepted", f"{accepted} ≤ drafted", (accepted,), ACCEPTED, None, DRAFTED)


def _positions(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    names = [name for name in given if name.startswith("position")]
    if not names:
        return
    forms: list[Form] = [{name: 1} for name in names]
    for name, form, earlier in zip(names, forms, [STEPS, *forms], strict=False):
        low, high = (times(rate, earlier if definition.conditional else STEPS) for rate in given[name])
        yield Statement("position", f"accepted at {name} = its rate × steps", (name,), form, low, high)
    for earlier, later in zip([STEPS, *forms], forms, strict=False):
        text = "no position is accepted more often than the one before"
        yield Statement("positions fall", text, (*names,), later, None, earlier)
    total = plus(*forms)
    complete = "gamma" in given and len(names) == given["gamma"].low
    text = "accepted = steps × the sum of the positions' rates"
    yield Statement("positions add up", text, (*names,), ACCEPTED, total, total if complete else None)


def _emission(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    requests = times(_requests(given), ONE)
    whole = plus(ACCEPTED, STEPS)
    if "tokens_per_step" in given and definition.mean != "any":
        least, most = (times(mean, STEPS) for mean in given["tokens_per_step"])
        word, emitted = _word(definition), {"emitted": 1.0}
        left, words = {
            "bare": (ACCEPTED, word),
            "extra": (plus(whole, STEPS), f"{word} + 2 × steps"),
            "emitted": (emitted, "emitted"),
        }.get(definition.mean, (whole, f"{word} + steps"))
        text, note, unless = f"{words} = tokens per step × steps", "", tuple[Form, ...]()
        if definition.mean == "either" and _requests(given) > 0:
            unless = (minus(least, emitted), minus(emitted, most))
            note = "or emitted, where it is the mean of a request"
        yield Statement("tokens per step", text, ("tokens_per_step",), left, least, most, note, unless=unless)
    if definition.bare or (definition.outside != "none" and "requests" not in given):
        return  # emitted is another number, or it is not known how many tokens come from no step
    above = {"none": whole, "first": plus(whole, requests), "any": None}[definition.outside]
    first, some = "the first of each request comes from no counted step", "some come from no counted step"
    ends = ["up to γ + 1 may be dropped at the end of each request"] * (_requests(given) > 0)
    notes = {"none": ends, "first": [first, *ends], "any": [some, *ends]}[definition.outside]
    text, about = f"emitted {'=' if above else '≥'} accepted + steps", ("emitted", "tokens_per_step")
    gamma = given["gamma"].low if "gamma" in given else None if _requests(given) else 0.0
    below = None if gamma is None else minus(whole, times((gamma + 1) * _requests(given), ONE))
    yield Statement("emitted", text, about, {"emitted": 1}, below, above, "; ".join(notes))


def _bonus(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    accepted, requests = _word(definition), times(_requests(given), ONE)
    rejecting = minus(STEPS, BONUS)
    yield Statement("bonus", "bonus ≤ steps", ("bonus",), BONUS, None, STEPS)
    text, most = f"steps − bonus ≤ drafted − {accepted}", None
    if "gamma" in given and not definition.tree:
        text, most = f"{text} ≤ γ × (steps − bonus)", times(given["gamma"].low, rejecting)
    note = "a step without a bonus rejects 1 to γ tokens"
    note += ", but for the last of a request" if _requests(given) else ""
    left, least = minus(DRAFTED, ACCEPTED), minus(rejecting, requests)
    yield Statement("rejected", text, ("bonus",), left, least, most, note)
    if definition.independent:
        text = f"{_word(definition)} ≤ accepted ≤ drafted − (steps − bonus)"
        note, most = "accepted also counts tests passed after a rejection", minus(DRAFTED, least)
        name = "accepted after a rejection"
        yield Statement(name, text, ("accepted",), {"agreeing": 1}, ACCEPTED, most, note)
    if "gamma" not in given:
        text, unless = f"drafted = {accepted}, or bonus < steps", (plus(ONE, minus(BONUS, STEPS)),)
        yield Statement("no rejection", text, ("bonus",), DRAFTED, None, ACCEPTED, unless=unless)


def _whole_drafts(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    """Each bonus is a draft accepted whole, and drafts that are shorter than γ lack tokens."""
    gamma, requests = int(given["gamma"].low) if "gamma" in given else 0, times(_requests(given), ONE)
    if definition.tree:
        return
    ends = definition.constant and _requests(given) > 0
    if f"position {gamma}" not in given and not (ends and 0 < gamma <= 64):
        return  # other statements say as much; but for `ends`, where more unknowns would take too long
    reached = [STEPS, *({f"position {k}": 1.0} for k in range(1, gamma + 1))]
    short: list[Form] = [{f"short {k}": 1} for k in range(gamma)]  # drafts of k < γ tokens, accepted whole
    cut: list[Form] = [{f"cut {k}": 1} if ends else {} for k in range(gamma)]  # last drafts, not whole
    whole, lacked = plus(reached[-1], *short), minus(times(gamma, STEPS), DRAFTED)
    lacking = plus(*(times(gamma - k, one) for k, one in enumerate(short)))
    room = plus(*(times(gamma - 1 - k, one) for k, one in enumerate(cut)))  # what `cut` may lack
    rejected = minus(STEPS, whole)
    where = [minus(plus(short[k], cut[k], later), one) for k, (one, later) in enumerate(pairwise(reached))]
    where += [minus(lacking, lacked), minus(plus(ACCEPTED, rejected), DRAFTED)]
    where += [minus(plus(*reached[1:]), ACCEPTED), minus(ACCEPTED, plus(*reached[1:]))]
    if ends:
        where += [minus(plus(*short, *cut), requests), minus(minus(lacked, lacking), room)]
    if definition.independent:
        where.append(minus(plus({"agreeing": 1}, rejected), DRAFTED))
    text = "bonus = steps × the last position's rate"
    text += "" if definition.constant and not ends else " + short drafts accepted whole"
    least = minus(plus(whole, *cut), requests)
    yield Statement("last position", text, ("bonus",), BONUS, least, whole, where=tuple(where))


def _speed(given: Mapping[str, Range]) -> Iterator[Statement]:
    if {"draft_time", "target_time", "step_time"} <= given.keys():
        draft, target = (given[name].low / given["step_time"].high for name in ("draft_time", "target_time"))
        text = "draft time × drafted + target time × steps ≤ step time × steps"
        left = plus(times(draft, DRAFTED), times(target, STEPS))
        note = "in step times; drafting and verifying one after the other"
        yield Statement("step time", text, ("step_time",), left, None, STEPS, note)
    if "speedup" in given:
        cost, text, note = least_cost(given)
        left, most = times(given["speedup"].low, cost), plus(ACCEPTED, STEPS)
        yield Statement("speed-up", f"speed-up ≤ {text}", ("speedup",), left, None, most, note, over=cost)


#: How far the mean of requests' means may be from that of all tokens, as benchmarks average latencies.
UNEVEN = 0.1


def _latency(given: Mapping[str, Range], definition: Definition) -> Iterator[Statement]:
    """A step takes ITL, the time between two answers, and a token TPOT; of all requests they are means."""
    tokens, note = plus(ACCEPTED, STEPS), f"to {UNEVEN:.0%}, since benchmarks average requests"
    if {"itl", "tpot"} <= given.keys():
        least = times((1 - UNEVEN) * given["itl"].low / given["tpot"].high, STEPS)
        most = times((1 + UNEVEN) * given["itl"].high / given["tpot"].low, STEPS)
        some = definition.outside == "any"  # there may be steps without a draft
        text = f"tokens per step {'≥' if some else '='} ITL / TPOT"
        yield Statement("latency", text, ("tpot",), tokens, least, None if some else most, note)
    if {"ttft", "tpot", "latency", "emitted", "requests"} <= given.keys() and not definition.bare:
        requests, (first, last, each) = given["requests"].low, (given[n] for n in ("ttft", "latency", "tpot"))
        least = times((1 - UNEVEN) * requests * (last.low - first.high) / each.high, ONE)
        most = times((1 + UNEVEN) * requests * (last.high - first.low) / each.low, ONE)
        later = minus({"emitted": 1.0}, times(requests, ONE))
        text = "emitted − requests = requests × (latency − TTFT) / TPOT"
        yield Statement("time of a text", text, ("latency",), later, least, most, note)
    name = "tpot" if "tpot" in given else "itl"
    if {"batch", "throughput", name} <= given.keys():
        text = f"throughput ≤ batch × 1000 / {'TPOT' if name == 'tpot' else 'ITL × tokens per step'}"
        left = times(given["throughput"].low * given[name].low / 1e3 * (1 - UNEVEN), STEPS)
        most = times(given["batch"].high, STEPS if name == "tpot" else tokens)
        yield Statement("throughput", text, ("throughput",), left, None, most, f"times in ms; {note}")


def least_cost(given: Mapping[str, Range]) -> tuple[Form, str, str]:
    """The least cost of all steps in passes of the target; the bound on the speed-up, and its assumption."""
    if {"step_time", "target_time"} <= given.keys():
        least = given["step_time"].low / given["target_time"].high
        return times(least, STEPS), "tokens per step × target time / step time", ""
    if {"draft_time", "target_time"} <= given.keys():
        least = given["draft_time"].low / given["target_time"].high
        text = "tokens per step / (1 + drafted per step × draft time / target time)"
        return plus(STEPS, times(least, DRAFTED)), text, "drafting and verifying one after the other"
    return STEPS, "tokens per step", "a step takes at least one pass of the target"


def _word(definition: Definition) -> str:
    """The engine's name for the drafted tokens before the first rejection."""
    return "emitted" if definition.bare else "emitted − steps" if definition.independent else "accepted"


def _requests(given: Mapping[str, Range]) -> float:
    return given["requests"].low if "requests" in given else 0.0
