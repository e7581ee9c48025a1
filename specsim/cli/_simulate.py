"""`specsim simulate`, `compare`, `replay` and `generate`."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli import _options as option
from specsim.cli._app import app, command, refuse
from specsim.cli._options import draft_of, gamma_for, given, models_of, pair_of
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, print_result, show
from specsim.core._files import write_text
from specsim.core._numbers import exact
from specsim.core._tables import NONE, Listing, Table, span
from specsim.core._types import said_of

#: The files that --out writes.
WRITTEN = ("comparison.json", "pareto.png", "pareto.svg", "drafts.png", "drafts.svg")


@command(app)
def simulate(
    pair: str = "ngram",
    *,
    vocab_size: option.Whole = None,
    overlap: option.Real = None,
    rule: str = "standard",
    gamma: option.Whole = None,
    tree: str | None = None,
    draft_sampling: str | None = None,
    method: str | None = None,
    over: option.Several = None,
    steps: option.Whole = None,
    seed: option.Whole = None,
    threads: option.Whole = None,
    executor: str | None = None,
    checkpoint: Annotated[Path | None, Parameter(name=["--checkpoint", "--out"])] = None,
    checkpoint_seconds: option.Real = None,
    shard: str | None = None,
    device: str | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Draw speculative steps, and print α, tokens per step and the closed form.

    Rows of a trace are frozen: drafts are drawn again, rows stay. If they are truncated, bounds of the
    expected tokens per step along the logged drafts are computed instead."""
    values = locals()
    if pair.endswith(".json"):
        from specsim.simulation._result import Simulation

        refuse(simulate, values, "again")
        saved = specsim.load(pair)
        if not isinstance(saved, Simulation):
            raise ValueError(f"{pair}: a {type(saved).__name__}; only a Simulation can be simulated again")
        return print_result(specsim.rerun(saved, threads=threads, device=device), form)
    if over is not None:
        refuse(simulate, values, "over")
        both = pair_of(pair, vocab_size, overlap)
        asked: dict[str, Any] = {"over": option.settings_of(over, _values, "lenience=0.5,1"), "rule": rule}
        asked |= {"gamma": gamma_for(both, gamma), "steps": option.STEPS if steps is None else steps}
        return print_result(specsim.sweep(both, **asked, rng=seed, threads=threads), form)
    if checkpoint is None:
        refuse(simulate, values, "no_checkpoint")
    if method is not None:
        refuse(simulate, values, "method")
    both = pair_of(pair, vocab_size, overlap)
    shape: dict[str, Any] = {}
    if method is None:
        shape = {"rule": rule, "gamma": draft_of(both, rule, gamma, tree, draft_sampling)}
    own = ("steps", "threads", "executor", "checkpoint", "checkpoint_seconds", "device")
    work: dict[str, Any] = {name: values[name] for name in own}
    work["shard"] = None if shard is None else option.shard_of(shard)
    from specsim.traces._reader import Trace

    bounded = isinstance(both.target, Trace) and (both.target.top is not None or both.target.gamma == 0)
    if method is None and bounded:
        refuse(simulate, values, "bounds")
        form.check_no_picture("bounds")
        return print_bounds(both.target, rule, shape["gamma"], seed, form)
    work["steps"] = option.STEPS if steps is None else steps
    run = specsim.simulate(both, **shape, method=method, rng=seed, **given(work))
    code = print_result(run, form)
    if run.interrupted and checkpoint is not None:
        print(f"{checkpoint} has the counts; the same command continues from there", file=sys.stderr)
    return code


def _values(name: str, values: list[str]) -> list[Any]:
    """The values of a setting, which are numbers but for rules."""
    if name == "rule":
        return values
    with said_of(f"--over: {name}"):
        numbers = [exact(value) for value in values]
    wholes = name in ("gamma", "top_k")
    return [int(one) if wholes and one.denominator == 1 else float(one) for one in numbers]


def print_bounds(trace: Any, rule: str, shape: Any, seed: int | None, form: Form) -> int:
    """Bounds for a rule on truncated rows along the log, for each number of drafted tokens up to `shape`."""
    from specsim.traces._analysis import expect_tokens

    if not shape.is_chain:
        raise ValueError(f"{trace.path}: a trace logs the rows of chains, not of trees; leave out --tree")
    most = max(1, trace.gamma)
    if shape.size > most:
        raise ValueError(f"gamma: the log allows {most} drafted tokens a step, {shape.size} were asked for")
    if trace.gamma == 0:
        _check_no_seed(trace, seed, "nothing was drafted")
        return _print_one_token(trace, rule, form)
    found = expect_tokens(trace, rule, rng=seed)
    if found.intervals is None:
        _check_no_seed(trace, seed, "its single document cannot be resampled")
    low, high = found.expected_tokens[shape.size - 1].tolist()
    if form.is_text:
        kept = f"the {trace.top} most probable tokens of each row"
        print(f"{trace.path}: bounds along the log's own path, from {kept}")
    intervals = found.intervals if found.intervals is None else found.intervals[: shape.size]
    asked = replace(found, expected_tokens=found.expected_tokens[: shape.size], intervals=intervals)
    return print_result(asked, form, found.to_dict() | {"gamma": shape.size, "tokens_per_step": [low, high]})


def _check_no_seed(trace: Any, seed: int | None, why: str) -> None:
    if seed is not None:
        raise ValueError(f"--seed has no effect on {trace.path}: {why}")


def _print_one_token(trace: Any, rule: str, form: Form) -> int:
    """Where nothing was drafted β is all that is known, and so the standard rule with one drafted token."""
    from specsim.traces._summary import TraceBounds

    if str(specsim.rules.get(rule)) != "standard":
        raise ValueError(
            f"{trace.path}: nothing was drafted, so only the standard rule can be bounded; {rule} needs "
            "drafted tokens"
        )
    found = specsim.traces.summarise(trace)
    assert isinstance(found, TraceBounds)
    low, high = found.one_token
    bounds = {"α context": found.alpha_context, "tokens per step, γ = 1": found.one_token}
    parts: list[Any] = [
        f"{trace.path}: nothing was drafted; bounds for the standard rule along the log's own path",
        Table((), [(name, span(ends, "{:.5f}".format)) for name, ends in bounds.items()]),
    ]
    row = {"rule": "standard", "gamma": 1, "tokens_per_step": [low, high]}
    return print_result(Listing(parts, [row]), form, row)


@command(app)
def replay(
    pair: str = "ngram",
    *,
    step: Annotated[int, option.WHOLE],
    seed: Annotated[int, option.WHOLE],
    vocab_size: option.Whole = None,
    overlap: option.Real = None,
    rule: str = "standard",
    gamma: option.Whole = None,
    tree: str | None = None,
    draft_sampling: str | None = None,
    case: str | None = None,
    level: str = "quick",
    device: str | None = None,
    form: Form = TEXT,
) -> int:
    """Replay one step of 'simulate' or 'audit' in plain Python, and print its numbers."""
    if case is not None:
        from specsim.auditing._runner import replay_step

        print(replay_step(pair, case, step, level, rng=seed, device=device))
        return 0
    both = pair_of(pair, vocab_size, overlap)
    shape = draft_of(both, rule, gamma, tree, draft_sampling)
    return print_result(specsim.replay(*both, step=step, rule=rule, gamma=shape, rng=seed), form)


@command(app)
def generate(
    pair: str = "ngram",
    *,
    prompt: str = "import ",
    max_new_tokens: Annotated[int, option.WHOLE] = 200,
    rule: str = "standard",
    gamma: option.Whole = None,
    tree: str | None = None,
    draft_sampling: str | None = None,
    drafting: str = "sample",
    method: str | None = None,
    eos: option.Whole = None,
    seed: option.Whole = None,
    form: Form = TEXT,
) -> int:
    """Decode speculatively, and print the text and its statistics beside those of plain decoding."""
    target, draft = models_of(pair)
    models = specsim.models.Pair(target, draft)
    options: dict[str, Any] = {"eos": eos}
    if method is not None:
        options["method"] = method
    else:
        shape: Any = gamma_for(models, gamma)
        if tree is not None or draft_sampling is not None:
            shape = draft_of(models, rule, gamma, tree, draft_sampling)
        options |= {"gamma": shape, "rule": rule, "drafting": drafting}

    def both(length: int, seed: int | None) -> tuple[Any, Any]:
        text = os.fsencode(prompt)  # as it was typed, whatever bytes these are
        found = specsim.generate(target, draft, text, max_new_tokens=length, rng=seed, **options)
        length = len(found.tokens) if found.interrupted else length
        return found, specsim.sample(target, text, max_new_tokens=length, eos=eos, rng=found.provenance.root)

    both(2, 0)  # compiles, so that the seconds below are those of decoding
    speculative, plain = both(max_new_tokens, seed)
    if not form.is_text:  # of both as JSON, else the steps of the first
        both_of = {"speculative": speculative.to_dict(), "plain": plain.to_dict()}
        return print_result(speculative, form, both_of)
    print(prompt + bytes(speculative.tokens).decode(errors="replace"))
    beside = plain.table()
    rows = [(name, value, beside.get(name, NONE)) for name, value in speculative.table().items()]
    show(f"seed {speculative.provenance.root}", Table(("", "speculative", "target alone"), rows).to_rich())
    if speculative.interrupted:
        show("interrupted: the text so far")
    return 3 if speculative.interrupted else 0


@command(app)
def compare(
    pair: str = "ngram",
    *,
    rule: option.Several = None,
    vocab_size: option.Whole = None,
    overlap: option.Real = None,
    gamma: option.Whole = None,
    drafts: option.Whole = None,
    steps: option.Whole = None,
    sweep: option.Flag = False,
    method: Annotated[list[str] | None, Parameter(name=("--method", "--methods"), negative="")] = None,
    batch: option.Whole = None,
    context: option.Whole = None,
    seed: option.Whole = None,
    threads: option.Whole = None,
    out: Path | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Compare rules on one pair, by tokens per step and total variation; or drafting systems, by speed."""
    form.make_folder(out, *WRITTEN)
    both = pair_of(pair, vocab_size, overlap)
    work: dict[str, Any] = {"steps": steps, "rng": seed, "threads": threads}
    found: Any
    if method is None:
        shape = {"gamma": gamma_for(both, gamma), "drafts": drafts}
        shown = "lines" if sweep else None
        found = specsim.compare(both, rules=rule, sweep=sweep, progress=shown, **given(shape | work))
    else:
        work |= {"batch": batch, "context": context, "methods": None if method == ["all"] else method}
        found = specsim.planning.compare_methods(both, **given(work))
    code = print_result(found, form)
    if out is not None:
        _write_comparison(out, found, vocab_size or 1000, 0.8 if overlap is None else overlap)
        if form.is_text:
            print(f"wrote comparison.json, pareto and drafts (.png, .svg) to {out}")
    return code


@command(app)
def warm(*, threads: option.Whole = None) -> int:
    """Compile the kernels of rules and audits now, on all cores, and keep them for later commands."""
    from specsim.simulation._grid import KINDS, compile_rules

    for kind in KINDS:
        compile_rules(kind, threads)
    specsim.audit("standard", "smoke", rng=0)
    print("compiled; other commands start at once")
    return 0


def _write_comparison(out: Path, found: Any, vocab_size: int, overlap: float) -> None:
    """comparison.json, and the two pictures; drafts are compared on a pair of pmfs, whatever the source."""
    from specsim.core._plotting import save_figure
    from specsim.core.distributions import synthetic_pair
    from specsim.simulation._comparison import drafts_figure, pareto_figure

    write_text(out / "comparison.json", json.dumps(found.to_dict(), allow_nan=False))
    pair = synthetic_pair("zipf", vocab_size, overlap, rng=0)
    acceptance = specsim.acceptance_by_drafts(*pair, rng=found.provenance.root)
    figures = {
        "pareto": pareto_figure(found),
        "drafts": drafts_figure(acceptance, f"Zipf pair, V = {vocab_size:,}, Σ min(p, q) = {overlap:g}"),
    }
    for name, figure in figures.items():
        for suffix in (".png", ".svg"):
            save_figure(figure, out / f"{name}{suffix}")
