"""`specsim simulate`, `replay` and `generate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import app
from specsim.cli._options import (
    Checkpoint,
    Drawing,
    Executor,
    Gamma,
    Json,
    Overlap,
    Rule,
    Seed,
    Shard,
    SourceName,
    Threads,
    VocabSize,
    Widths,
    shard_of,
    whole,
)
from specsim.cli._pairs import draft_of, models_of, pair_of
from specsim.cli._terminal import progress_bar, show

Counts = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON, counts included.")]


@app.command
def simulate(
    source: SourceName = "ngram",
    *,
    vocab_size: VocabSize = 1000,
    overlap: Overlap = 0.8,
    rule: Rule = "standard",
    gamma: Gamma = 5,
    tree: Widths = None,
    drawing: Drawing = None,
    steps: Annotated[int, Parameter(converter=whole, help="Steps to draw.")] = 1_000_000,
    seed: Seed = None,
    threads: Threads = None,
    executor: Executor = None,
    checkpoint: Checkpoint = None,
    shard: Shard = None,
    as_json: Counts = False,
) -> None:
    """Draw speculative steps, and print α, tokens per step and the closed form."""
    if shard is not None and checkpoint is None:
        raise ValueError("--shard counts a part of a run: give the file for it with --out")
    target, draft = pair_of(source, vocab_size, overlap)
    shape = draft_of(rule, gamma, tree, drawing)
    simulate_and_print(target, draft, rule, shape, steps, seed, threads, as_json, executor, checkpoint, shard)


def simulate_and_print(
    target: Any,
    draft: Any,
    rule: str,
    shape: Any,
    steps: int,
    seed: int | None,
    threads: int | None,
    as_json: bool,
    executor: str | None = None,
    checkpoint: Path | None = None,
    shard: str | None = None,
) -> None:
    """What `specsim simulate` prints, and `specsim trace simulate`; of truncated rows what they allow."""
    from specsim.traces import Trace

    if isinstance(target, Trace) and (target.top is not None or target.gamma == 0):
        print_bounds(target, rule, shape, seed, as_json)
        return
    try:
        with progress_bar("simulate") as progress:
            run = specsim.simulate(
                target,
                draft,
                rule=rule,
                gamma=shape,
                steps=steps,
                rng=seed,
                threads=threads,
                executor=executor,
                checkpoint=checkpoint,
                shard=None if shard is None else shard_of(shard),
                progress=progress,
            )
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            print(f"{checkpoint} has what was counted; the same command goes on from it", file=sys.stderr)
        raise
    show_run(run, as_json)


def show_run(run: specsim.Simulation, as_json: bool) -> None:
    """Print a simulation."""
    if as_json:
        print(json.dumps(run.to_dict(), allow_nan=False))
        return
    from specsim.theory import expected_tokens

    print(f"{run.source}, rule {run.rule}, {run.tree}: {run.steps:,} steps, seed {run.provenance.root}")
    print(f"tokens per step  {run.tokens_per_step:.5f} ± {run.tokens_per_step_error:.5f}")
    for name in ("context", "verified", "drafted"):
        alpha = getattr(run, f"alpha_{name}")
        print(
            f"α {name:<9}      {alpha:.5f}"
            + (
                f"   i.i.d. formula {expected_tokens(alpha, run.gamma):.5f} tokens per step"
                if run.tree.is_chain
                else ""
            )
        )
    print("accepted         " + "  ".join(f"{k}: {n / run.steps:.4f}" for k, n in enumerate(run.lengths)))


def print_bounds(trace: Any, rule: str, shape: Any, seed: int | None, as_json: bool) -> None:
    """What rows that are not whole say of a rule along the log: bounds, for each number of drafted tokens up
    to `shape`.
    """
    from specsim.traces._analysis import CONFIDENCE
    from specsim.traces._expected import expect_tokens

    if not shape.is_chain:
        raise ValueError(
            f"{trace.path}: a trace logs the rows along one path, so it cannot answer for a tree"
        )
    most = max(1, trace.gamma)
    if shape.size > most:
        raise ValueError(f"gamma: the log allows {most} drafted tokens a step, {shape.size} were asked for")
    if trace.gamma == 0:
        _print_one_token(trace, rule, as_json)
        return
    with progress_bar("simulate", " rows") as progress:
        found = expect_tokens(trace, rule, rng=seed, progress=progress)
    low, high = found.expected_tokens[shape.size - 1].tolist()
    if as_json:
        asked = {"gamma": shape.size, "tokens_per_step": [low, high]}
        print(json.dumps(found.to_dict() | asked, allow_nan=False))
        return
    print(
        f"{trace.path}: the {trace.top} most probable tokens of each row, so that what follows are bounds, along the log's "
        "own path, and no simulation"
    )
    for gamma, (low, high) in enumerate(found.expected_tokens[: shape.size].tolist(), 1):
        sure = ""
        if found.intervals is not None:
            sure = f"; {CONFIDENCE:.0%}: {found.intervals[gamma - 1, 0]:.5f} – {found.intervals[gamma - 1, 1]:.5f}"
        print(f"tokens per step  {low:.5f} – {high:.5f}, rule {found.rule}, γ = {gamma}{sure}")
    print(
        "one document: no interval; it takes two or more, since tokens of one are alike"
        if found.intervals is None
        else f"{CONFIDENCE:.0%} intervals: {found.documents:,} documents drawn again (seed {found.root})"
    )


def _print_one_token(trace: Any, rule: str, as_json: bool) -> None:
    """Where nothing was drafted β is all that is known, and so the standard rule with one drafted token."""
    from specsim.rules import get
    from specsim.traces import TraceBounds, summarise

    if str(get(rule)) != "standard":
        raise ValueError(
            f"{trace.path}: nothing was drafted; of such a log only the standard rule can be bounded, {rule} takes the "
            "drafted tokens"
        )
    found = summarise(trace)
    assert isinstance(found, TraceBounds)
    low, high = found.one_token
    if as_json:
        print(json.dumps({"rule": "standard", "gamma": 1, "tokens_per_step": [low, high]}))
        return
    print(
        f"{trace.path}: no drafts, so that what follows are bounds, along the log's own path, and no simulation"
    )
    print(f"α context        {found.alpha_context[0]:.5f} – {found.alpha_context[1]:.5f}")
    print(f"tokens per step  {low:.5f} – {high:.5f}, rule standard, γ = 1")


@app.command
def replay(
    source: SourceName = "ngram",
    *,
    step: Annotated[int, Parameter(converter=whole, help="Number of the step, from 0.")],
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the run, as in its output.")],
    vocab_size: VocabSize = 1000,
    overlap: Overlap = 0.8,
    rule: Rule = "standard",
    gamma: Gamma = 5,
    tree: Widths = None,
    drawing: Drawing = None,
) -> None:
    """Replay one step of 'simulate' in plain Python, and print its numbers."""
    target, draft = pair_of(source, vocab_size, overlap)
    shape = draft_of(rule, gamma, tree, drawing)
    print(specsim.replay(target, draft, step=step, rule=rule, gamma=shape, rng=seed))


@app.command
def generate(
    source: Annotated[
        str, Parameter(help="'ngram' (the bundled pair), or an .npz file of models.")
    ] = "ngram",
    *,
    prompt: Annotated[str, Parameter(help="Text to continue; tokens are its bytes.")] = "import ",
    max_new_tokens: Annotated[int, Parameter(converter=whole, help="Tokens to generate.")] = 200,
    rule: Rule = "standard",
    gamma: Gamma = 5,
    tree: Widths = None,
    drawing: Drawing = None,
    drafting: Annotated[str, Parameter(help="How a chain is drafted: sample or greedy.")] = "sample",
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Decode speculatively, and print the text and its statistics beside those of plain decoding."""
    target, draft = models_of(source)
    shape = gamma if tree is None and drawing is None else draft_of(rule, gamma, tree, drawing)

    def both(length: int, seed: int | None) -> tuple[Any, Any]:
        found = specsim.generate(
            target,
            draft,
            prompt.encode(),
            max_new_tokens=length,
            gamma=shape,
            rule=rule,
            drafting=drafting,
            rng=seed,
        )
        return found, specsim.sample(
            target, prompt.encode(), max_new_tokens=length, rng=found.provenance.root
        )

    both(2, 0)  # compiles, so that the seconds below are those of decoding
    speculative, plain = both(max_new_tokens, seed)
    if as_json:
        print(json.dumps({"speculative": speculative.to_dict(), "plain": plain.to_dict()}, allow_nan=False))
        return
    from rich.table import Table

    print(prompt + bytes(speculative.tokens).decode(errors="replace"))
    table = Table(box=None, pad_edge=False, title=f"seed {speculative.provenance.root}", title_justify="left")
    for column in ("", "speculative", "target alone"):
        table.add_column(column)
    beside = plain.table()
    for name, value in speculative.table().items():
        table.add_row(name, value, beside.get(name, "–"))
    show("", table)
