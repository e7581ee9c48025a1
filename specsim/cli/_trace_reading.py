"""`specsim trace alpha`, `audit`, `simulate`, `plan` and `policies`: analyses of a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from specsim.cli._app import trace_app
from specsim.cli._options import RATIO, CHat, Folder, Json, Most, Rule, Seed, Threads, whole
from specsim.cli._pairs import draft_of, trace_of
from specsim.cli._plan import print_trace_plan
from specsim.cli._simulate import simulate_and_print
from specsim.cli._terminal import print_result, progress_bar


@trace_app.command(name="alpha")
def trace_alpha(
    path: Folder = None,
    *,
    skip_damaged: Annotated[
        bool, Parameter(negative="", help="Skip damaged shards, with a warning.")
    ] = False,
    entropy_of: Annotated[str, Parameter(help="Group contexts by the entropy of q, or of p.")] = "q",
    bins: Annotated[int, Parameter(converter=whole, help="Number of groups of equal size.")] = 8,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the bootstrap over documents.")] = 0,
    as_json: Json = False,
) -> None:
    """The three α of a trace by position, entropy and document, with confidence intervals."""
    from specsim.traces import summarise
    from specsim.traces._analysis import read_alpha

    trace = trace_of(path)
    with progress_bar("alpha", " rows") as progress:
        found = summarise(trace, progress=progress, skip_damaged=skip_damaged)
    if found.skipped:
        sound = [status.ok for status in trace.verify()]
        trace = replace(trace, shards=tuple(s for s, ok in zip(trace.shards, sound, strict=True) if ok))
    with progress_bar("groups", " rows") as progress:
        reading = read_alpha(trace, entropy_of=entropy_of, bins=bins, rng=seed, progress=progress)
    if as_json:
        print(json.dumps(found.to_dict() | {"reading": reading.to_dict()}, allow_nan=False))
        return
    if "text" in trace.provenance:
        print(f"the text is {trace.provenance['text']}")
    print_result(found)
    print()
    print_result(reading)


@trace_app.command(name="audit")
def trace_audit(
    path: Folder = None,
    *,
    lenience: Annotated[float, Parameter(help="Lenience of the decoding, in (0, 1].")] = 1.0,
    seed: Annotated[
        int, Parameter(converter=whole, help="Seed of the map of drafted tokens to uniforms.")
    ] = 0,
    as_json: Json = False,
) -> int:
    """Check the accept flags and drafted tokens of a trace against its rows. Exit code 1 if they disagree.

    For the standard rule, or lenience. A log cannot show whether the output has the target's law.
    """
    from specsim.traces._consistency import audit_log

    with progress_bar("audit", " rows") as progress:
        found = audit_log(trace_of(path), lenience=lenience, rng=seed, progress=progress)
    print_result(found, as_json)
    return found.exit_code


@trace_app.command(name="simulate")
def trace_simulate(
    path: Folder = None,
    *,
    rule: Rule = "standard",
    gamma: Annotated[
        int | None, Parameter(converter=whole, help="Drafted tokens per step; default: as logged.")
    ] = None,
    steps: Annotated[int, Parameter(converter=whole, help="Steps to draw.")] = 100_000,
    seed: Seed = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Simulate another rule, or fewer drafted tokens, on the logged rows (frozen: drafts are redrawn).

    For truncated rows: bounds of the expected tokens per step along the logged drafts.
    """
    trace = trace_of(path)
    shape = draft_of(rule, max(1, trace.gamma) if gamma is None else gamma, None, None)
    simulate_and_print(trace, None, rule, shape, steps, seed, threads, as_json)


@trace_app.command(name="plan")
def trace_plan(
    path: Folder = None,
    *,
    c: Annotated[float, RATIO],
    c_hat: CHat = None,
    most: Most = 64,
    as_json: Json = False,
) -> None:
    """Find the best γ from a trace's rates by position, as 'specsim plan --trace'."""
    print_trace_plan(trace_of(path), c, c_hat, most, as_json)


@trace_app.command(name="policies")
def trace_policies(path: Folder = None, *, c: Annotated[float, RATIO], as_json: Json = False) -> None:
    """Compare policies that choose γ step by step along a trace: drafted tokens and speedup.

    Learned policies are not included: a log has no rows of the draft after a rejected token.
    """
    from specsim.planning import policies as lookahead

    trace = trace_of(path)
    log, most = lookahead.log_from_trace(trace), trace.gamma
    policies = (
        lookahead.Constant(most),
        lookahead.Heuristic(),
        lookahead.ConfidenceThreshold(most=most),
        lookahead.SVIP(most=most),
        lookahead.Goodput(),
        lookahead.Cascade(),
        lookahead.Oracle(log),
    )
    runs = lookahead.simulate_policies(log, policies, draft_cost=c)
    if not as_json:
        runs = type(runs)(sorted(runs, key=lambda run: -run.speedup))
    print_result(runs, as_json)
