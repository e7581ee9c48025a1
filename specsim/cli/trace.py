"""`specsim trace`: record, info, alpha."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import specsim
from specsim.cli.app import trace_app
from specsim.cli.options import Gamma, Json, Rule, Seed, whole
from specsim.cli.pairs import models_of
from specsim.cli.terminal import number, progress_bar


@trace_app.command(name="record")
def trace_record(
    path: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    *,
    models: Annotated[
        str, Parameter(help="'ngram' (the shipped pair), or an .npz file of models.")
    ] = "ngram",
    steps: Annotated[int, Parameter(converter=whole, help="Speculative steps to log.")] = 1000,
    gamma: Gamma = 5,
    rule: Rule = "standard",
    dtype: Annotated[str, Parameter(help="How rows are stored: float32, float16 or bfloat16.")] = "float32",
    seed: Seed = None,
) -> None:
    """Decode speculatively, and log the drafted tokens with their p and q rows."""
    from specsim.recording import record

    target, draft = models_of(models)
    with progress_bar("record") as progress:
        trace = record(
            path, target, draft, gamma=gamma, steps=steps, rule=rule, dtype=dtype, rng=seed, progress=progress
        )
    print(
        f"wrote {trace.num_steps:,} steps, {trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB to {path} "
        f"(seed {trace.provenance['root']})"
    )


@trace_app.command(name="info")
def trace_info(path: Annotated[Path, Parameter(help="Folder of the trace.")]) -> int:
    """What a trace holds, and whether every row is as it was written. Exit code 2 if one is not."""
    trace = specsim.open_trace(path)
    print(
        f"{path}: {trace.num_steps:,} steps of γ = {trace.gamma}, V = {trace.vocab_size:,}, {trace.dtype} rows"
    )
    print(
        f"{trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB" + ("" if trace.complete else ", cut short")
    )
    for name, value in trace.provenance.items():
        print(f"  {name}: {value}")
    with progress_bar("check", " rows") as progress:
        shards = trace.verify(progress)
    for shard in shards:
        print(f"{shard.name}  {shard.num_rows:,} rows  {'ok' if shard.ok else shard.damage}")
    return 0 if all(shard.ok for shard in shards) else 2


@trace_app.command(name="alpha")
def trace_alpha(
    path: Annotated[Path, Parameter(help="Folder of the trace.")],
    *,
    skip_damaged: Annotated[
        bool, Parameter(negative="", help="Leave damaged shards out, and say so.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The three α of a trace, along its own path, in one streaming pass."""
    from specsim.theory import expected_tokens
    from specsim.traces import summarise

    trace = specsim.open_trace(path)
    with progress_bar("alpha", " rows") as progress:
        found = summarise(trace, progress=progress, skip_damaged=skip_damaged)
    for damage in found.skipped:
        print(f"left out: {damage}", file=sys.stderr)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return
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
