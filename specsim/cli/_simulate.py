"""`specsim simulate`, `rerun`, `replay` and `generate`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli import _options as option
from specsim.cli._app import app, ending
from specsim.cli._pair_options import draft_of, gamma_for, models_of, pair_of
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, listing, print_result, show

#: Why options of rule and draft have no effect.
OWN_RULE = "with --method, which has its own rule and draft"


@app.command(
    help_epilogue=ending(
        "simulate zipf --overlap 80% --steps 10M --seed 1",
        "simulate ngram --rule block --gamma 4 -o lengths.png",
        "simulate mine.npz --tree 4,2,1 --rule traversal --json",
        "simulate ngram --method eagle2:nodes=30 --steps 10k",
    )
)
def simulate(
    pair: option.PairName = "ngram",
    *,
    vocab_size: option.VocabSize = None,
    overlap: option.Overlap = None,
    rule: option.Rule = "standard",
    gamma: option.GammaOfPair = None,
    tree: option.Widths = None,
    drawing: option.Drawing = None,
    method: option.Method = None,
    steps: option.Steps = None,
    seed: option.Seed = None,
    threads: option.Threads = None,
    executor: option.Executor = None,
    checkpoint: option.Checkpoint = None,
    checkpoint_seconds: option.CheckpointSeconds = None,
    shard: option.Shard = None,
    device: option.Device = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Draw speculative steps, and print α, tokens per step and the closed form."""
    if shard is not None and checkpoint is None:
        raise ValueError("--shard counts a part of a run: give the file for it with --out")
    if checkpoint_seconds is not None and checkpoint is None:
        raise ValueError("--checkpoint-seconds has no effect without --checkpoint")
    found = pair_of(pair, vocab_size, overlap)
    if method is not None:
        given = {"rule": rule != "standard", "gamma": gamma, "tree": tree, "drawing": drawing}
        option.refuse(given, OWN_RULE)
        how: dict[str, Any] = {"method": method}
    else:
        how = {"rule": rule, "gamma": draft_of(found, rule, gamma, tree, drawing)}
    work: dict[str, Any] = {"threads": threads, "executor": executor, "checkpoint": checkpoint}
    if checkpoint_seconds is not None:
        work["checkpoint_seconds"] = checkpoint_seconds
    if device is not None:
        work["device"] = device
    part = None if shard is None else option.shard_of(shard)
    return simulate_and_print(found, form, **how, steps=steps, rng=seed, shard=part, **work)


def simulate_and_print(pair: Any, form: Form, checkpoint: Path | None = None, **options: Any) -> int:
    """What `specsim simulate` prints, and `specsim trace simulate`; of truncated rows what they allow.

    Returns the exit code: 3 if the run was interrupted."""
    from specsim.traces import Trace

    trace = pair.target
    if "method" not in options and isinstance(trace, Trace) and (trace.top is not None or trace.gamma == 0):
        for name, value in ({"checkpoint": checkpoint} | options).items():
            if name not in ("rule", "gamma", "rng") and value is not None:
                raise ValueError(
                    f"--{name.replace('_', '-')} has no effect on {trace.path}: its rows are not whole, so "
                    "that expected tokens are computed, and no step is drawn"
                )
        form.check_no_picture("bounds")
        print_bounds(trace, options["rule"], options["gamma"], options["rng"], form)
        return 0
    if options["steps"] is None:
        options["steps"] = option.STEPS
    run = specsim.simulate(pair, checkpoint=checkpoint, **options)
    print_result(run, form)
    if run.interrupted and checkpoint is not None:
        print(f"{checkpoint} has what was counted; the same command goes on from it", file=sys.stderr)
    return 3 if run.interrupted else 0


def print_bounds(trace: Any, rule: str, shape: Any, seed: int | None, form: Form) -> None:
    """Bounds for a rule on truncated rows along the log, for each number of drafted tokens up to `shape`."""
    from specsim.traces._expected import expect_tokens

    if not shape.is_chain:
        raise ValueError(f"{trace.path}: a trace logs the rows along one path, not those of a tree")
    most = max(1, trace.gamma)
    if shape.size > most:
        raise ValueError(f"gamma: the log allows {most} drafted tokens a step, {shape.size} were asked for")
    if trace.gamma == 0:
        _check_no_seed(trace, seed, "nothing was drafted")
        _print_one_token(trace, rule, form)
        return
    found = expect_tokens(trace, rule, rng=seed)
    if found.intervals is None:
        _check_no_seed(trace, seed, "of its one document nothing can be resampled")
    low, high = found.expected_tokens[shape.size - 1].tolist()
    if form.is_text:
        kept = f"the {trace.top} most probable tokens of each row"
        print(f"{trace.path}: bounds along the log's own path, from {kept}")
    intervals = found.intervals if found.intervals is None else found.intervals[: shape.size]
    asked = replace(found, expected_tokens=found.expected_tokens[: shape.size], intervals=intervals)
    numbers = {"gamma": shape.size, "tokens_per_step": [low, high]}
    print_result(asked, form, found.to_dict() | numbers)


def _check_no_seed(trace: Any, seed: int | None, why: str) -> None:
    if seed is not None:
        raise ValueError(f"--seed has no effect on {trace.path}: {why}")


def _print_one_token(trace: Any, rule: str, form: Form) -> None:
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
    bounds = {"α context": found.alpha_context, "tokens per step, γ = 1": found.one_token}
    parts = [
        f"{trace.path}: nothing was drafted; bounds for the standard rule along the log's own path",
        Table((), [(name, span(ends, "{:.5f}".format)) for name, ends in bounds.items()]),
    ]
    row = {"rule": "standard", "gamma": 1, "tokens_per_step": [low, high]}
    print_result(listing(parts, [row]), form, row)


@app.command(help_epilogue=ending("simulate zipf --steps 1M -o run.json", "rerun run.json"))
def rerun(
    file: Annotated[Path, Parameter(help="What 'specsim simulate -o run.json' or Simulation.save wrote.")],
    /,
    *,
    threads: option.Threads = None,
    device: option.Device = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Simulate again what a file has the result of: the same pair, rule, steps and seed."""
    again = specsim.rerun(file, threads=threads, device=device or "cpu")
    print_result(again, form)
    return 3 if again.interrupted else 0


@app.command(help_epilogue=ending("replay zipf --step 5 --seed 1", codes="0 done, 2 usage or bad input"))
def replay(
    pair: option.WholePairName = "ngram",
    *,
    step: Annotated[int, Parameter(converter=option.whole, help="Number of the step, from 0.")],
    seed: Annotated[int, Parameter(converter=option.whole, help="Seed of the run, as in its output.")],
    vocab_size: option.VocabSize = None,
    overlap: option.Overlap = None,
    rule: option.Rule = "standard",
    gamma: option.GammaOfPair = None,
    tree: option.Widths = None,
    drawing: option.Drawing = None,
    form: Form = TEXT,
) -> None:
    """Replay one step of 'simulate' in plain Python, and print its numbers."""
    found = pair_of(pair, vocab_size, overlap)
    shape = draft_of(found, rule, gamma, tree, drawing)
    print_result(specsim.replay(*found, step=step, rule=rule, gamma=shape, rng=seed), form)


@app.command(
    help_epilogue=ending(
        "generate --prompt 'def ' --rule block --seed 1",
        "generate --method lookahead --max-new-tokens 500",
        "generate --tree dynamic:nodes=30 --rule naive_matching --eos 10",
    )
)
def generate(
    pair: option.Models = "ngram",
    *,
    prompt: Annotated[str, Parameter(help="Text to continue; tokens are its bytes.")] = "import ",
    max_new_tokens: Annotated[int, Parameter(converter=option.whole, help="Tokens to generate.")] = 200,
    rule: option.Rule = "standard",
    gamma: option.GammaOrTree = None,
    tree: option.Widths = None,
    drawing: option.Drawing = None,
    drafting: Annotated[str, Parameter(help="How a chain is drafted: sample or greedy.")] = "sample",
    method: option.Method = None,
    eos: Annotated[
        int | None,
        Parameter(converter=option.whole, help="Token that ends the text, such as 10, a new line."),
    ] = None,
    seed: option.Seed = None,
    form: Form = TEXT,
) -> int:
    """Decode speculatively, and print the text and its statistics beside those of plain decoding."""
    target, draft = models_of(pair)
    models = specsim.models.Pair(target, draft)
    options: dict[str, Any] = {"eos": eos}
    if method is not None:
        given = {"rule": rule != "standard", "gamma": gamma, "tree": tree, "drawing": drawing}
        option.refuse(given | {"drafting": drafting != "sample"}, OWN_RULE)
        options["method"] = method
    else:
        plain_chain = tree is None and drawing is None
        shape = gamma_for(models, gamma) if plain_chain else draft_of(models, rule, gamma, tree, drawing)
        options |= {"gamma": shape, "rule": rule, "drafting": drafting}

    def both(length: int, seed: int | None) -> tuple[Any, Any]:
        text = prompt.encode()
        found = specsim.generate(target, draft, text, max_new_tokens=length, rng=seed, **options)
        length = len(found.tokens) if found.interrupted else length
        alone = specsim.sample(target, text, max_new_tokens=length, eos=eos, rng=found.provenance.root)
        return found, alone

    both(2, 0)  # compiles, so that the seconds below are those of decoding
    speculative, plain = both(max_new_tokens, seed)
    if not form.is_text:  # of both as JSON, else the steps of the first
        both_of = {"speculative": speculative.to_dict(), "plain": plain.to_dict()}
        print_result(speculative, form, both_of)
        return 3 if speculative.interrupted else 0
    from specsim.core._tables import NONE, Table

    print(prompt + bytes(speculative.tokens).decode(errors="replace"))
    beside = plain.table()
    rows = [(name, value, beside.get(name, NONE)) for name, value in speculative.table().items()]
    title = f"seed {speculative.provenance.root}"
    show(title, Table(("", "speculative", "target alone"), rows).to_rich())
    if speculative.interrupted:
        show("interrupted: the text so far")
    return 3 if speculative.interrupted else 0
