"""`specsim simulate`, `replay` and `generate`."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli import _options as option
from specsim.cli._app import app
from specsim.cli._pairs import draft_of, models_of, pair_of
from specsim.cli._terminal import print_result, progress_bar, show

Counts = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON, counts included.")]


@app.command
def simulate(
    source: option.SourceName = "ngram",
    *,
    vocab_size: option.VocabSize = 1000,
    overlap: option.Overlap = 0.8,
    rule: option.Rule = "standard",
    gamma: option.Gamma = 5,
    tree: option.Widths = None,
    drawing: option.Drawing = None,
    steps: Annotated[int, Parameter(converter=option.whole, help="Steps to draw.")] = 1_000_000,
    seed: option.Seed = None,
    threads: option.Threads = None,
    executor: option.Executor = None,
    checkpoint: option.Checkpoint = None,
    checkpoint_seconds: option.CheckpointSeconds = 60.0,
    shard: option.Shard = None,
    as_json: Counts = False,
) -> None:
    """Draw speculative steps, and print α, tokens per step and the closed form."""
    if shard is not None and checkpoint is None:
        raise ValueError("--shard counts a part of a run: give the file for it with --out")
    target, draft = pair_of(source, vocab_size, overlap)
    shape = draft_of(rule, gamma, tree, drawing)
    work: dict[str, Any] = {"threads": threads, "executor": executor, "checkpoint": checkpoint}
    work["checkpoint_seconds"] = checkpoint_seconds
    part = None if shard is None else option.shard_of(shard)
    simulate_and_print(
        target, draft, as_json, rule=rule, gamma=shape, steps=steps, rng=seed, shard=part, **work
    )


def simulate_and_print(
    target: Any, draft: Any, as_json: bool, checkpoint: Path | None = None, **options: Any
) -> None:
    """What `specsim simulate` prints, and `specsim trace simulate`; of truncated rows what they allow."""
    from specsim.traces import Trace

    if isinstance(target, Trace) and (target.top is not None or target.gamma == 0):
        print_bounds(target, options["rule"], options["gamma"], options["rng"], as_json)
        return
    try:
        with progress_bar("simulate") as progress:
            run = specsim.simulate(target, draft, checkpoint=checkpoint, progress=progress, **options)
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            print(f"{checkpoint} has what was counted; the same command goes on from it", file=sys.stderr)
        raise
    print_result(run, as_json)


def print_bounds(trace: Any, rule: str, shape: Any, seed: int | None, as_json: bool) -> None:
    """Bounds for a rule on truncated rows along the log, for each number of drafted tokens up to `shape`."""
    from specsim.traces._expected import expect_tokens

    if not shape.is_chain:
        raise ValueError(f"{trace.path}: a trace logs the rows along one path, not those of a tree")
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
    kept = f"the {trace.top} most probable tokens of each row"
    print(f"{trace.path}: bounds along the log's own path, from {kept}")
    intervals = found.intervals if found.intervals is None else found.intervals[: shape.size]
    print_result(replace(found, expected_tokens=found.expected_tokens[: shape.size], intervals=intervals))


def _print_one_token(trace: Any, rule: str, as_json: bool) -> None:
    """Where nothing was drafted β is all that is known, and so the standard rule with one drafted token."""
    from specsim.core._tables import Table, span
    from specsim.rules import get
    from specsim.traces import TraceBounds, summarise

    if str(get(rule)) != "standard":
        raise ValueError(
            f"{trace.path}: nothing was drafted; of such a log only the standard rule can be bounded, {rule} "
            "takes the drafted tokens"
        )
    found = summarise(trace)
    assert isinstance(found, TraceBounds)
    low, high = found.one_token
    if as_json:
        print(json.dumps({"rule": "standard", "gamma": 1, "tokens_per_step": [low, high]}))
        return
    print(f"{trace.path}: nothing was drafted; bounds for the standard rule along the log's own path")
    bounds = {"α context": found.alpha_context, "tokens per step, γ = 1": found.one_token}
    show(Table((), [(name, span(ends, "{:.5f}".format)) for name, ends in bounds.items()]).to_rich())


@app.command
def replay(
    source: option.SourceName = "ngram",
    *,
    step: Annotated[int, Parameter(converter=option.whole, help="Number of the step, from 0.")],
    seed: Annotated[int, Parameter(converter=option.whole, help="Seed of the run, as in its output.")],
    vocab_size: option.VocabSize = 1000,
    overlap: option.Overlap = 0.8,
    rule: option.Rule = "standard",
    gamma: option.Gamma = 5,
    tree: option.Widths = None,
    drawing: option.Drawing = None,
) -> None:
    """Replay one step of 'simulate' in plain Python, and print its numbers."""
    target, draft = pair_of(source, vocab_size, overlap)
    shape = draft_of(rule, gamma, tree, drawing)
    print(specsim.replay(target, draft, step=step, rule=rule, gamma=shape, rng=seed))


@app.command
def generate(
    source: option.Models = "ngram",
    *,
    prompt: Annotated[str, Parameter(help="Text to continue; tokens are its bytes.")] = "import ",
    max_new_tokens: Annotated[int, Parameter(converter=option.whole, help="Tokens to generate.")] = 200,
    rule: option.Rule = "standard",
    gamma: option.Gamma = 5,
    tree: option.Widths = None,
    drawing: option.Drawing = None,
    drafting: Annotated[str, Parameter(help="How a chain is drafted: sample or greedy.")] = "sample",
    seed: option.Seed = None,
    as_json: option.Json = False,
) -> None:
    """Decode speculatively, and print the text and its statistics beside those of plain decoding."""
    target, draft = models_of(source)
    shape = gamma if tree is None and drawing is None else draft_of(rule, gamma, tree, drawing)

    def both(length: int, seed: int | None) -> tuple[Any, Any]:
        text = prompt.encode()
        options: dict[str, Any] = {"gamma": shape, "rule": rule, "drafting": drafting}
        found = specsim.generate(target, draft, text, max_new_tokens=length, rng=seed, **options)
        return found, specsim.sample(target, text, max_new_tokens=length, rng=found.provenance.root)

    both(2, 0)  # compiles, so that the seconds below are those of decoding
    speculative, plain = both(max_new_tokens, seed)
    if as_json:
        print(json.dumps({"speculative": speculative.to_dict(), "plain": plain.to_dict()}, allow_nan=False))
        return
    from specsim.core._tables import NONE, Table

    print(prompt + bytes(speculative.tokens).decode(errors="replace"))
    beside = plain.table()
    rows = [(name, value, beside.get(name, NONE)) for name, value in speculative.table().items()]
    title = f"seed {speculative.provenance.root}"
    show(title, Table(("", "speculative", "target alone"), rows).to_rich())
