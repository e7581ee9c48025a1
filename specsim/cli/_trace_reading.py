"""`specsim trace alpha`, `audit`, `simulate`, `plan` and `policies`: analyses of a trace."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import trace_app
from specsim.cli._options import RATIO, CHat, Folder, Json, Most, Rule, Seed, Threads, whole
from specsim.cli._pairs import draft_of, trace_of
from specsim.cli._plan import print_trace_plan
from specsim.cli._simulate import simulate_and_print
from specsim.cli._terminal import number, progress_bar, show

#: Lags of the autocorrelation that are printed; all of them are in the JSON.
LAGS_SHOWN = (1, 2, 4, 8, 16)


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
    from specsim.traces import TraceBounds, summarise
    from specsim.traces._analysis import read_alpha

    trace = trace_of(path)
    with progress_bar("alpha", " rows") as progress:
        found = summarise(trace, progress=progress, skip_damaged=skip_damaged)
    for damage in found.skipped:
        print(f"left out: {damage}", file=sys.stderr)
    if found.skipped:
        sound = [status.ok for status in trace.verify()]
        trace = replace(trace, shards=tuple(s for s, ok in zip(trace.shards, sound, strict=True) if ok))
    with progress_bar("groups", " rows") as progress:
        reading = read_alpha(trace, entropy_of=entropy_of, bins=bins, rng=seed, progress=progress)
    if as_json:
        print(json.dumps(found.to_dict() | {"reading": reading.to_dict()}, allow_nan=False))
        return
    if isinstance(found, TraceBounds):
        _print_bounds(found, trace)
    else:
        _print_summary(found)
    _print_reading(reading)


def _print_summary(found: Any) -> None:
    from specsim.theory import expected_tokens

    errors = found.standard_errors
    print(
        f"{found.num_steps:,} steps, γ = {found.gamma}; stored {found.dtype}: each β within {found.rounding:.1g}"
    )
    print(f"tokens per step  {found.tokens_per_step:.4f} ± {number(errors['tokens_per_step'])}")
    for name in ("context", "verified", "drafted"):
        alpha = getattr(found, f"alpha_{name}")
        print(
            f"α {name:<9}      {alpha:.4f} ± {number(errors[f'alpha_{name}'])}   "
            f"i.i.d. formula {expected_tokens(alpha, found.gamma):.4f} tokens per step"
        )
    print("position         tested   accepted   mean β")
    for i in range(found.gamma):
        tested = int(found.tested_by_position[i])
        rates = (
            f"{found.alpha_by_position[i]:.4f}   {found.beta_by_position[i]:.4f}" if tested else "–        –"
        )
        print(f"{i + 1:<12} {tested:>10,}     {rates}")


def _print_bounds(found: Any, trace: Any) -> None:
    """Intervals come as low – high, counts as numbers."""
    kept = "" if found.top is None else f", the top {found.top} of V = {found.vocab_size:,}"
    print(
        f"{found.num_steps:,} {'steps, γ = ' + str(found.gamma) if found.gamma else 'places'}; {found.dtype}{kept}"
    )
    print(f"α context        {_interval(found.alpha_context)}")
    if found.flags:
        errors = found.standard_errors
        for label, name in (
            ("α verified ", "alpha_verified"),
            ("α drafted  ", "alpha_drafted"),
            ("tokens per step", "tokens_per_step"),
        ):
            print(f"{label:<15}  {getattr(found, name):.4f} ± {number(errors[name])}")
    else:
        text = trace.provenance.get("text")
        print(f"no accept flags were logged{'; the text is ' + text if text else ''}")
        print(f"standard rule    {_interval(found.one_token)} tokens per step, γ = 1")
        for gamma, ends in enumerate(found.expected_tokens[1:], 2):
            print(f"standard rule    {_interval(ends)} tokens per step, γ = {gamma}")
    if not found.gamma:
        return
    print("position" + ("         tested   accepted" if found.flags else "") + "   mean β")
    for i in range(found.gamma):
        flags = ""
        if found.flags:
            tested = int(found.tested_by_position[i])
            flags = f"{tested:>11,}     {number(found.alpha_by_position[i])}"
        print(f"{i + 1:<11}{flags}   {_interval(found.beta_by_position[i])}")


def _print_reading(reading: Any) -> None:
    from rich.table import Table

    from specsim.traces._analysis import CONFIDENCE

    if reading.intervals:
        print(
            f"{CONFIDENCE:.0%} intervals, {len(reading.documents):,} documents drawn again (seed {reading.root}):"
        )
        for name, ends in reading.intervals.items():
            print(f"  {name.replace('_', ' ').replace('alpha', 'α'):<16} {_interval(ends)}")
    else:
        print("one document: no interval; it takes two or more, since tokens of one are alike")
    table = Table(box=None, pad_edge=False)
    for column in (f"entropy of {reading.entropy_of}", "contexts", "mean β", "accepted"):
        table.add_column(column, justify="left" if column.startswith("entropy") else "right")
    for group in reading.by_entropy:
        rate = f"{group.accepted / group.tested:.4f}" if group.tested else "–"
        table.add_row(
            f"{group.least:.2f} – {group.most:.2f}", f"{group.contexts:,}", _interval(group.beta), rate
        )
    show(table)
    if len(reading.documents) > 1:
        # each end in order: so the k-th of the true means is between the k-th of either
        ranked = list(
            zip(
                *(sorted(ends) for ends in zip(*(d.beta for d in reading.documents), strict=True)),
                strict=True,
            )
        )
        least, median, most = (_interval(ranked[k]) for k in (0, len(ranked) // 2, -1))
        print(f"documents: mean β from {least} to {most}, median {median}")
    for name, values in reading.autocorrelation.items():
        shown = [f"{lag}: {values[lag - 1][0]:.3f}" for lag in LAGS_SHOWN if values[lag - 1][1]]
        if shown:
            print(f"autocorrelation of {name:<10}  " + "  ".join(shown))


def _interval(ends: Any) -> str:
    low, high = (number(float(end)) for end in ends)
    return low if low == high else f"{low} – {high}"


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
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return found.exit_code
    from rich.table import Table

    if found.e_flags is not None:
        table = Table(box=None, pad_edge=False)
        for column in ("min(1, p/q)", "tested", "accepted", "expected", "z"):
            table.add_column(column, justify="left" if column.startswith("min") else "right")
        for one in found.flags:
            low, high = (f"{end:.1f}" for end in one.expected)
            expected = low if low == high else f"{low} – {high}"
            table.add_row(
                f"{one.least:.1f} – {one.most:.1f}",
                f"{one.tested:,}",
                f"{one.accepted:,}",
                expected,
                f"{one.z:.1f}",
            )
        show(table)
    for name, e in (("accept flags", found.e_flags), ("drafted tokens", found.e_tokens)):
        print(
            f"{name:<15} "
            + ("not logged" if e is None else f"e = 10^{e:.1f}, alarm from 10^{found.alarm:.1f}")
        )
    if found.contradictions:
        print(f"{found.contradictions:,} flags are impossible: rejected, though sure to be accepted")
    print(
        f"{found.steps:,} steps: {found.verdict}"
        + (f" ({', '.join(found.findings)})" if found.findings else "")
    )
    print("This compares the log with itself, and says nothing of whether the target's law was sampled.")
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
    from rich.table import Table

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
    if as_json:
        print(json.dumps([run.to_dict() for run in runs], allow_nan=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in (
        "policy",
        "drafted/step",
        "tokens/step",
        "speed-up",
        "time/token, less best constant",
        "cut",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for run in sorted(runs, key=lambda run: -run.speedup):
        table.add_row(
            run.policy,
            f"{run.drafted / run.steps:.2f}",
            f"{run.tokens_per_step:.4f}",
            f"{run.speedup:.4f}",
            f"{run.difference:+.4f} ± {run.error:.4f}",
            f"{run.truncated / run.steps:.0%}" if run.truncated else "–",
        )
    show(table)
    print(f"best constant: γ = {runs[0].best_constant}, chosen in hindsight; {log.source}")
    print("cut: steps that would have gone on where the log ends, whose time comes out too small")
