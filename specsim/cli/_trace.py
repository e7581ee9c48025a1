"""`specsim trace record`, `import`, `info` and `upgrade`: traces come to be, and are looked over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import trace_app
from specsim.cli._options import Dtype, Folder, Gamma, Rule, Seed, whole
from specsim.cli._pairs import models_of, trace_of
from specsim.cli._terminal import progress_bar


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
    dtype: Dtype = "float32",
    top: Annotated[
        int | None,
        Parameter(converter=whole, help="Log only this number of most probable tokens per row."),
    ] = None,
    seed: Seed = None,
) -> None:
    """Decode speculatively, and log the drafted tokens with their p and q rows."""
    from specsim.recording import record

    target, draft = models_of(models)
    with progress_bar("record") as progress:
        trace = record(
            path,
            target,
            draft,
            gamma=gamma,
            steps=steps,
            rule=rule,
            dtype=dtype,
            top=top,
            rng=seed,
            progress=progress,
        )
    print(
        f"wrote {trace.num_steps:,} steps, {trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB to {path} "
        f"(seed {trace.provenance['root']})"
    )


@trace_app.command(name="import")
def trace_import(
    source: Annotated[
        Path, Parameter(help="The log: .npz (or a folder of .npy), .safetensors, .parquet or .jsonl.")
    ],
    *,
    out: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    draft: Annotated[
        Path | None,
        Parameter(help="The draft's .jsonl, with the same texts as the target's, line by line."),
    ] = None,
    format: Annotated[
        str | None, Parameter(help="jsonl, npz, parquet or safetensors; default: by the file's ending.")
    ] = None,
    vocab_size: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="V, if a log of truncated rows does not say; default: the largest id + 1.",
        ),
    ] = None,
    dtype: Dtype = "float32",
) -> None:
    """Convert a log of p and q to a trace; docs/importing-logs.md says what each format must contain."""
    from specsim.traces._importing import import_trace

    with progress_bar("import") as progress:
        trace = import_trace(
            source, out, draft=draft, format=format, vocab_size=vocab_size, dtype=dtype, progress=progress
        )
    print(
        f"wrote {trace.num_steps:,} steps, {trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB to {out}"
    )


@trace_app.command(name="info")
def trace_info(path: Folder = None) -> int:
    """Describe a trace, and verify the checksum of every row. Exit code 2 if a row is damaged."""
    trace = trace_of(path)
    _describe(trace)
    with progress_bar("check", " rows") as progress:
        shards = trace.verify(progress)
    for shard in shards:
        print(f"{shard.name}  {shard.num_rows:,} rows  {'ok' if shard.ok else shard.damage}")
    return 0 if all(shard.ok for shard in shards) else 2


@trace_app.command(name="upgrade")
def trace_upgrade(
    path: Annotated[Path, Parameter(help="Folder of a trace of version 1 of the format.")],
) -> None:
    """Add the SHA-256 of the manifest to an older trace, after its rows have been verified; rows do not change."""
    from specsim.traces import upgrade_trace

    with progress_bar("check", " rows") as progress:
        trace = upgrade_trace(path, progress)
    _describe(trace)
    print(
        "every row is as it was written; whether the above is, version 1 cannot tell: compare it with what was recorded"
    )


def _describe(trace: Any) -> None:
    """What the manifest says."""
    layout = trace.layout
    rows = f"{trace.dtype} rows" if trace.top is None else f"{trace.dtype} rows of the top {trace.top}"
    lacks = [
        what
        for what, there in (("accept flags", layout.flags), ("q at the bonus", layout.bonus))
        if not there
    ]
    steps = (
        f"{trace.num_steps:,} steps of γ = {trace.gamma}"
        if trace.gamma
        else f"{trace.num_rows:,} places of a text"
    )
    print(f"{trace.path}: {steps}, V = {trace.vocab_size:,}, {rows}")
    print(
        f"{trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB"
        + ("" if trace.complete else ", cut short")
        + (f"; without {' and '.join(lacks)}" if lacks and trace.gamma else "")
    )
    for name, value in trace.provenance.items():
        print(f"  {name}: {value}")
