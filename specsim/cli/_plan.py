"""`specsim plan`: the best γ, or the best of several drafts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import app, ending
from specsim.cli._options import RATIO, REAL, CHat, Most, Seed, refuse, whole
from specsim.cli._pair_options import pair_of, trace_of
from specsim.cli._terminal import TEXT, Form, listing, print_result
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
    from specsim.planning.policies import PolicyRuns
    from specsim.traces import Trace


@app.command(
    help_epilogue=ending(
        "plan --alpha 80% --c 0.05",
        "plan ngram --c 0.05",
        "plan ngram --c 0.05 --policies",
        "plan --draft small=0.75,0.02 --draft large=90/100,0.2",
        codes="0 done, 2 usage or bad input",
    )
)
def plan(
    pair: Annotated[
        str | None,
        Parameter(
            help="A pair of p and q, as 'specsim simulate' reads it, whose rates by position are used."
        ),
    ] = None,
    *,
    alpha: Annotated[
        float | None, REAL, Parameter(help="Acceptance rate of the draft's tokens, from 0 to 1.")
    ] = None,
    trace: Annotated[
        Path | None, Parameter(help="Folder of a trace, whose rates by position are used.")
    ] = None,
    drafts: Annotated[
        list[str] | None,
        Parameter(
            name="--draft",
            negative="",
            help="One of several drafts: name=alpha,c, where alpha may be accepted/tested or the folder of a "
            "trace; may be repeated.",
        ),
    ] = None,
    c: Annotated[float | None, RATIO] = None,
    c_hat: CHat = None,
    most: Most = MOST,
    policies: Annotated[
        bool,
        Parameter(
            negative="",
            help="Compare policies that choose γ in every step, on a text of two models.",
        ),
    ] = False,
    length: Annotated[
        int | None,
        Parameter(converter=whole, help="With --policies: tokens of the text. Default: 20,000."),
    ] = None,
    seed: Seed = None,
    form: Form = TEXT,
) -> None:
    """Find the best γ, its speedup and sensitivity, the best of several drafts, or of several policies."""
    if not policies:
        refuse({"length": length, "seed": seed}, "without --policies")
    if sum(given is not None for given in (pair, alpha, trace, drafts)) != 1:
        raise ValueError("give one of PAIR, --alpha, --trace and --draft")
    if drafts is not None:
        from specsim.planning import rank_drafts

        refuse({"policies": policies}, "with --draft: policies are compared on a pair of models")
        if c is not None or c_hat is not None:
            raise ValueError("--c has no effect on --draft, which has a ratio of its own: name=alpha,c")
        return print_result(rank_drafts([_candidate(text) for text in drafts], most=most), form)
    if c is None:
        raise ValueError("--c is missing: the time of a draft's pass over that of the target's")
    if policies:
        others = {"alpha": alpha, "trace": trace, "c-hat": c_hat, "most": most != MOST}
        refuse(others, "with --policies, which takes a pair of models")
        assert pair is not None
        return print_policies(pair_of(pair), c, length, seed, form)
    if trace is not None:
        return print_trace_plan(trace_of(trace), c, c_hat, most, form)
    if pair is not None:
        found = pair_of(pair)
        if found.draft is None:
            return print_trace_plan(found.target, c, c_hat, most, form)
        alpha = _rates(found)
    made = specsim.plan(alpha, c, c_hat, most=most)  # type: ignore[arg-type]  # one of the four is given
    return print_result(made, form)


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


def print_trace_plan(trace: Trace, c: float, c_hat: float | None, most: int, form: Form) -> None:
    """The plan for a trace: of `specsim plan --trace` and `specsim trace plan`."""
    from specsim.planning._plan import plan_from_trace
    from specsim.traces import summarise

    made = plan_from_trace(summarise(trace), c, c_hat, most=most)
    if len(made) == 1:
        return print_result(made[0], form)
    if not form.is_text:
        rows = [{"alpha": one.alphas[0]} | row for one in made for row in one.records()]
        return print_result(listing([], rows), form, [one.to_dict() for one in made])
    for which, one in zip(("at least", "at most"), made, strict=False):
        alpha = f"α context {which} {one.alphas[0]:.4f}"
        print(f"no accept flags were logged; with {alpha}, at every position:")
        print_result(one)
    return None


def print_policies(pair: Pair, c: float, length: int | None, seed: int | None, form: Form) -> None:
    """Policies that choose γ on one text, DISCO fitted to its first part."""
    from specsim.planning.policies import draft_log, every_policy, simulate_policies

    if not isinstance(pair.target, specsim.models.Model):
        raise ValueError(
            "--policies: a text is drawn from two models, such as ngram; for a trace there is 'specsim trace "
            "policies'"
        )
    log = draft_log(pair.target, pair.draft, LENGTH if length is None else length, rng=seed)
    train, test = log.split(TRAINED)
    runs = simulate_policies(test, every_policy(train, test), draft_cost=c)
    print_result(sorted_runs(runs) if form.is_text else runs, form)


def sorted_runs(runs: PolicyRuns) -> PolicyRuns:
    """The fastest first."""
    return type(runs)(sorted(runs, key=lambda run: -run.speedup))


def _candidate(text: str) -> Any:
    """name=alpha,c with a rate, accepted/tested, or the folder of a trace."""
    from specsim.planning._plan import Candidate
    from specsim.traces import summarise

    name, _, rest = text.partition("=")
    rate, _, ratio = rest.rpartition(",")
    try:
        if not name:
            raise ValueError("it has no name")
        c = real(ratio)
        if Path(rate).is_dir():
            return Candidate.of_trace(name, summarise(specsim.open_trace(Path(rate))), c)
        if "/" in rate:
            accepted, tested = map(whole_of, rate.split("/", 1))
            return Candidate.of_counts(name, accepted, tested, c)
        return Candidate.of_rate(name, real(rate), c)
    except ValueError as error:
        raise ValueError(f"draft {text!r}: expected name=alpha,c such as small=0.75,0.02 ({error})") from None
