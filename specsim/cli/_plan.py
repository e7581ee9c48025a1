"""`specsim plan`: the best γ, or the best of several drafts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import app
from specsim.cli._options import RATIO, CHat, Json, Most
from specsim.cli._terminal import print_result

if TYPE_CHECKING:
    from specsim.traces import Trace


@app.command
def plan(
    *,
    alpha: Annotated[
        float | None, Parameter(help="Acceptance rate of the draft's tokens, from 0 to 1.")
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
    most: Most = 64,
    as_json: Json = False,
) -> None:
    """Find the best γ, its speedup and sensitivity, or the best of several drafts."""
    if sum(given is not None for given in (alpha, trace, drafts)) != 1:
        raise ValueError("give one of --alpha, --trace and --draft")
    if drafts is not None:
        from specsim.planning import rank_drafts

        return print_result(rank_drafts([_candidate(text) for text in drafts], most=most), as_json)
    if c is None:
        raise ValueError("--c is missing: the time of a draft's pass over that of the target's")
    if trace is not None:
        return print_trace_plan(specsim.open_trace(trace), c, c_hat, most, as_json)
    made = specsim.plan(alpha, c, c_hat, most=most)  # type: ignore[arg-type]  # one of the three is given
    return print_result(made, as_json)


def print_trace_plan(trace: Trace, c: float, c_hat: float | None, most: int, as_json: bool) -> None:
    """The plan for a trace: of `specsim plan --trace` and `specsim trace plan`."""
    from specsim.planning._plan import plan_from_trace
    from specsim.traces import summarise

    made = plan_from_trace(summarise(trace), c, c_hat, most=most)
    if as_json:
        dicts = [one.to_dict() for one in made]
        print(json.dumps(dicts[0] if len(dicts) == 1 else dicts, allow_nan=False))
        return
    for which, one in zip(("at least", "at most"), made, strict=False):
        if len(made) > 1:
            alpha = f"α context {which} {one.alphas[0]:.4f}"
            print(f"no accept flags were logged; with {alpha}, at every position:")
        print_result(one)


def _candidate(text: str) -> Any:
    """name=alpha,c with a rate, accepted/tested, or the folder of a trace."""
    from specsim.planning._plan import Candidate
    from specsim.traces import summarise

    name, _, rest = text.partition("=")
    rate, _, ratio = rest.rpartition(",")
    try:
        c = float(ratio)
        if Path(rate).is_dir():
            return Candidate.of_trace(name, summarise(specsim.open_trace(Path(rate))), c)
        if "/" in rate:
            accepted, tested = map(int, rate.split("/"))
            return Candidate.of_counts(name, accepted, tested, c)
        return Candidate.of_rate(name, float(rate), c)
    except ValueError as error:
        raise ValueError(f"draft {text!r}: expected name=alpha,c such as small=0.75,0.02 ({error})") from None
