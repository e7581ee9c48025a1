"""`specsim plan`: the best γ, or the best of several drafts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import DONE, app, command
from specsim.cli._options import ANY_PAIR, REAL, WHOLE, Flag, Seed, Several, pair_of, refuse
from specsim.cli._terminal import TEXT, Form, print_result
from specsim.core._numbers import real
from specsim.core._numbers import whole as whole_of
from specsim.models import Pair

#: The largest γ to consider.
MOST = 64
#: For policies: tokens of a text, and the share of it that DISCO is fitted to.
LENGTH, TRAINED = 20_000, 0.25
#: For a pair of models: how far rates by position are simulated, and how many steps must get there.
POSITIONS, STEPS, LEAST = 16, 50_000, 1000

if TYPE_CHECKING:
    from specsim.traces._reader import Trace


@command(
    app,
    "plan --alpha 80% --c 0.05",
    "plan ngram --c 0.05",
    "plan ours --c 0.05",
    "plan ngram --c 0.05 --policies",
    "plan --draft small=0.75,0.02 --draft large=90/100,0.2",
    codes=DONE,
)
def plan(
    pair: Annotated[str | None, Parameter(help=f"{ANY_PAIR} Uses its acceptance rates by position.")] = None,
    *,
    alpha: Annotated[float | None, REAL] = None,
    draft: Several = None,
    c: Annotated[float | None, REAL] = None,
    c_hat: Annotated[float | None, REAL] = None,
    max_gamma: Annotated[int, WHOLE] = MOST,
    policies: Flag = False,
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
    from specsim.planning._plan import plan_from_trace
    from specsim.traces import summarise

    made = plan_from_trace(summarise(trace), c, c_hat, max_gamma=max_gamma)
    if len(made) == 1:
        return print_result(made[0], form)
    if not form.is_text:
        rows = [{"alpha": one.alphas[0]} | row for one in made for row in one.records()]
        return print_result(Listing([], rows), form, [one.to_dict() for one in made])
    for which, one in zip(("at least", "at most"), made, strict=False):
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
