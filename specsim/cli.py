"""The command line. Each command parses, calls the library, prints; nothing is computed here.

Exit codes: 0 fine (or consistent), 1 biased or broken, 2 usage or bad input, 3 interrupted.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import App, Parameter

import specsim

if TYPE_CHECKING:
    from specsim.engine import Progress

app = App(
    name="specsim",
    help="Prove, test and measure the verification core of speculative decoding.",
    version=lambda: specsim.__version__,
    suppress_keyboard_interrupt=False,  # an interrupt exits with 3, in main
)
trace_app = App(name="trace", help="Logged p and q: record them, read them back.")
models_app = App(name="models", help="The n-gram pair that stands for real text.")
audit_app = App(name="audit", help="Is a verifier exact? Verdict, evidence, and what would have been found.")
app.command(audit_app)
app.command(trace_app)
app.command(models_app)


def whole(kind: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """An integer as it was typed: 1.5 is refused, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


Seed = Annotated[
    int | None,
    Parameter(converter=whole, help="Seed; the same gives the same counts. Default: fresh entropy."),
]
Threads = Annotated[
    int | None, Parameter(converter=whole, help="Threads; default: all cores. They never change a result.")
]
SourceName = Annotated[
    str,
    Parameter(
        help="Where p and q come from: 'ngram' (the shipped pair), a synthetic kind (zipf, geometric, dirichlet, "
        "two-point, one-hot, near-equal, asymmetric), an .npz file of models, or the folder of a trace."
    ),
]
VocabSize = Annotated[int, Parameter(converter=whole, help="Vocabulary size of a synthetic pair.")]
Overlap = Annotated[float, Parameter(help="Σ min(p, q) of a synthetic pair, from 0 to 1.")]
Level = Annotated[str, Parameter(help="How many steps: smoke, quick, standard or deep.")]
Gamma = Annotated[int, Parameter(converter=whole, help="Drafted tokens per step.")]
Rule = Annotated[
    str,
    Parameter(help="Verification rule, with parameters if any: lenience:lenience=0.5; see 'specsim rules'."),
]
Widths = Annotated[
    str | None,
    Parameter(
        name="--tree",
        help="Draft a tree: children of every node at each depth, as in 4,2,1. Default: a chain.",
    ),
]
Drawing = Annotated[
    str | None,
    Parameter(
        help="How siblings are drawn: sampled, 'without replacement', top or 'top and sample'. Default: the first "
        "way that the rule names."
    ),
]


# --- commands --------------------------------------------------------------------------------------------


@audit_app.default
def audit(
    verifier: Annotated[
        str,
        Parameter(help="A built-in rule, package.module:function, or an engine, see 'specsim engines'."),
    ] = "standard",
    *,
    against: Annotated[
        str | None,
        Parameter(help="Another verifier: ask only whether the two follow one law, whatever it is."),
    ] = None,
    level: Level = "quick",
    seconds: Annotated[
        float | None,
        Parameter(name="--time", help="About so many seconds in all, for a slow verifier; fewer steps."),
    ] = None,
    fail_fast: Annotated[bool, Parameter(negative="", help="Stop after the first case that fails.")] = False,
    timeout: Annotated[float, Parameter(help="Seconds after which one call counts as hanging.")] = 60.0,
    seed: Seed = None,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder for audit.html, .json, .xml (JUnit), .png and .svg; with --against for against.json."
        ),
    ] = None,
) -> int:
    """Is a verifier exact? Verdict, evidence, and what would have been found. Exit code 0 if consistent, else 1."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # before the work, in case it cannot be
    if against is not None:
        return _audit_against(verifier, against, level, timeout, seed, out)
    with _progress("audit") as progress:
        result = specsim.audit(
            verifier,
            level,
            seed,
            seconds=seconds,
            timeout=timeout,
            threads=threads,
            fail_fast=fail_fast,
            progress=progress,
        )
    return _report(result, out)


@audit_app.command(name="export")
def audit_export(
    folder: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    *,
    level: Level = "smoke",
    dtype: Annotated[str, Parameter(help="float64, float32 or float16.")] = "float32",
    lengths: Annotated[
        bool, Parameter(negative="", help="With a case whose steps differ in length.")
    ] = False,
    seed: Seed = None,
) -> None:
    """Write the cases as safetensors, for an engine that is not written in Python."""
    from specsim.auditing.exporting import export

    manifest = export(folder, level, seed, dtype=dtype, lengths=lengths)
    print(f"wrote {manifest}; put each case's tokens into a folder of their own, then: specsim audit score")


@audit_app.command(name="score")
def audit_score(
    folder: Annotated[Path, Parameter(help="What export wrote.")],
    tokens: Annotated[Path, Parameter(help="The engine's tokens: a file for each case, of the same name.")],
    *,
    name: Annotated[str, Parameter(help="What to call the engine in the report.")] = "tokens",
    out: Annotated[Path | None, Parameter(help="Folder for the report's files.")] = None,
) -> int:
    """Judge the tokens that an engine gave for exported cases. Exit codes as audit."""
    from specsim.auditing.exporting import score

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with _progress("score", " cases") as progress:
        result = score(folder, tokens, name=name, progress=progress)
    return _report(result, out)


@audit_app.command(name="replay")
def audit_replay(
    verifier: Annotated[str, Parameter(help="The verifier that was audited.")],
    *,
    case: Annotated[str, Parameter(help="The case, as the report names it.")],
    step: Annotated[int, Parameter(converter=whole, help="Number of the step, from 0.")],
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the audit, as its report printed it.")],
    level: Level = "quick",
) -> None:
    """Print one step of an audit again: what was drafted, with p and q, and what the verifier made of it."""
    from specsim.auditing.replaying import replay_step

    print(replay_step(verifier, case, step, seed, level))


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
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="Print JSON, counts included.")
    ] = False,
) -> None:
    """Draw speculative steps, and print α and tokens per step beside the closed form."""
    target, draft = _pair(source, vocab_size, overlap)
    with _progress("simulate") as progress:
        run = specsim.simulate(
            target,
            draft,
            rule=rule,
            gamma=_draft(rule, gamma, tree, drawing),
            steps=steps,
            rng=seed,
            threads=threads,
            progress=progress,
        )
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


@app.command
def generate(
    source: Annotated[
        str, Parameter(help="'ngram' (the shipped pair), or an .npz file of models.")
    ] = "ngram",
    *,
    prompt: Annotated[str, Parameter(help="Text to go on from; tokens are its bytes.")] = "import ",
    max_new_tokens: Annotated[int, Parameter(converter=whole, help="Tokens to generate.")] = 200,
    rule: Rule = "standard",
    gamma: Gamma = 5,
    tree: Widths = None,
    drawing: Drawing = None,
    drafting: Annotated[str, Parameter(help="Tokens of a chain: sample, or greedy.")] = "sample",
    seed: Seed = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False,
) -> None:
    """Decode speculatively, and print the text, what its steps did, and the target sampled alone beside it."""
    target, draft = _models(source)
    shape = gamma if tree is None and drawing is None else _draft(rule, gamma, tree, drawing)

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
    _print("", table)


@app.command
def replay(
    source: SourceName = "ngram",
    *,
    step: Annotated[int, Parameter(converter=whole, help="Number of the step, from 0.")],
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the run, as its result printed it.")],
    vocab_size: VocabSize = 1000,
    overlap: Overlap = 0.8,
    rule: Rule = "standard",
    gamma: Gamma = 5,
    tree: Widths = None,
    drawing: Drawing = None,
) -> None:
    """Print one step of 'simulate' again, number by number, from pure Python."""
    target, draft = _pair(source, vocab_size, overlap)
    shape = _draft(rule, gamma, tree, drawing)
    print(specsim.replay(target, draft, step=step, rule=rule, gamma=shape, rng=seed))


@app.command
def engines() -> None:
    """List the engines whose verifiers and decoders are known by name to audit."""
    from rich.table import Table

    from specsim.auditing.adapters import ENGINES

    table = Table(box=None, pad_edge=False)
    for column in ("engine", "what is audited"):
        table.add_column(column)
    for name, (_, description) in ENGINES.items():
        table.add_row(name, description)
    _print(table)


@app.command
def plan(
    *,
    alpha: Annotated[
        float | None, Parameter(help="Acceptance rate of the draft's tokens, from 0 to 1.")
    ] = None,
    trace: Annotated[Path | None, Parameter(help="Folder of a trace: its rates by position instead.")] = None,
    drafts: Annotated[
        list[str] | None,
        Parameter(
            name="--draft",
            negative="",
            help="Instead, one of several drafts: name=alpha,c, where alpha may be accepted/tested, or a trace's folder; "
            "repeat it.",
        ),
    ] = None,
    c: Annotated[
        float | None, Parameter(name="--c", help="Time of a draft's pass over that of the target's.")
    ] = None,
    c_hat: Annotated[
        float | None, Parameter(name="--c-hat", help="The same for arithmetic operations; default: c.")
    ] = None,
    most: Annotated[int, Parameter(converter=whole, help="Largest γ to consider.")] = 64,
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False,
) -> None:
    """The γ that gains most, what it gains, what that depends on; or which of several drafts to take."""
    if sum(given is not None for given in (alpha, trace, drafts)) != 1:
        raise ValueError("give one of --alpha, --trace and --draft")
    if drafts is not None:
        return _rank_drafts(drafts, most, as_json)
    if c is None:
        raise ValueError("--c is missing: the time of a draft's pass over that of the target's")
    from rich.table import Table

    from specsim.planning import plan as make_plan
    from specsim.traces import summarise

    rates: Any = alpha
    if trace is not None:
        found = summarise(specsim.open_trace(trace))
        rates = found.alpha_by_position[found.tested_by_position > 0]
    made = make_plan(rates, c, c_hat, most=most)
    if as_json:
        print(json.dumps(made.to_dict(), allow_nan=False))
        return None
    table = Table(box=None, pad_edge=False)
    for column in ("γ", "tokens/step", "improvement", "operations", ""):
        table.add_column(column, justify="right" if column else "left")
    for choice in made.choices[: made.best.gamma + 4]:
        notes = ["best"] if choice == made.best else []
        notes += ["beyond the log"] if choice.gamma > made.measured else []
        numbers = (choice.tokens_per_step, choice.improvement, choice.operations)
        table.add_row(str(choice.gamma), *(f"{number:.4f}" for number in numbers), ", ".join(notes))
    _print(table, "")
    for shift in made.sensitivity:
        print(
            f"{shift.what:<8} best γ {shift.gamma}: {shift.improvement:.4f}; γ {made.best.gamma}: {shift.kept:.4f}"
        )
    if not made.best.gamma:
        print("Do not speculate: no γ gains, since α does not exceed c.")
        return None
    print(
        f"γ = {made.best.gamma}: {made.best.improvement:.4f} times as fast as the target alone, with "
        f"{made.best.operations:.4f} times its operations"
    )
    return None


def _rank_drafts(drafts: Sequence[str], most: int, as_json: bool) -> None:
    from dataclasses import asdict

    from rich.table import Table

    from specsim.planning import rank_drafts

    ranked = rank_drafts([_candidate(text) for text in drafts], most=most)
    if as_json:
        print(json.dumps([asdict(one) for one in ranked], allow_nan=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("draft", "α", "c", "γ", "improvement", "interval", ""):
        table.add_column(column, justify="left" if column in ("draft", "") else "right")
    for one in ranked:
        draft = one.candidate
        table.add_row(
            draft.name,
            f"{draft.alpha:.4f}",
            f"{draft.c:g}",
            str(one.gamma),
            f"{one.improvement:.4f}",
            f"{one.low:.4f} – {one.high:.4f}" if draft.low < draft.high else "–",
            "surely worse" if one.surely_worse and draft.low < draft.high else "",
        )
    _print(table)


def _candidate(text: str) -> Any:
    """name=alpha,c with a rate, accepted/tested, or the folder of a trace."""
    from specsim.planning import Candidate
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


@app.command
def rules() -> None:
    """List the verification rules: paper, claim, and what each does on the n-gram pair."""
    from rich.table import Table

    from specsim.comparing import shipped
    from specsim.comparing.table import show_tv
    from specsim.rules import GROUPS, get, names

    comparison = shipped()
    found = {entry.name: entry for entry in comparison}
    for group, claim in GROUPS.items():
        table = Table(box=None, pad_edge=False, title=claim, title_justify="left")
        for column in ("rule", "lossless for, or law", "tokens/step", "TV", "paper"):
            table.add_column(column, justify="right" if column in ("tokens/step", "TV") else "left")
        for name in names(group):
            rule, entry = get(name), found.get(name)  # a rule just added has no entry before make docs
            numbers = ("–", "–") if entry is None else (f"{entry.tokens_per_step:.3f}", show_tv(entry.tv))
            table.add_row(name, rule.claim, *numbers, rule.citation)
        _print(table, "")
    print(
        f"tokens/step and TV: n-gram pair, {comparison.gamma} drafted tokens, or two chains of them for trees; "
        f"{comparison.steps:,} steps, seed {comparison.provenance.root}. Parameters: a rule's name, then "
        "name=value, as in lenience:lenience=0.5."
    )
    for name in names():
        for parameter in get(name).parameters:
            print(
                f"  {name}: {parameter.name} in {parameter.range}, {parameter.default:g}: {parameter.meaning}"
            )


@app.command
def compare(
    source: SourceName = "ngram",
    *,
    names: Annotated[
        list[str] | None,
        Parameter(
            name="--rule", negative="", help="A rule, with parameters or not; repeat it. Default: all."
        ),
    ] = None,
    vocab_size: VocabSize = 1000,
    overlap: Overlap = 0.8,
    gamma: Annotated[int, Parameter(converter=whole, help="Drafted tokens of a chain.")] = 5,
    drafts: Annotated[int, Parameter(converter=whole, help="Chains for rules that take several drafts.")] = 2,
    steps: Annotated[int, Parameter(converter=whole, help="Steps of each rule.")] = 2**16,
    sweep: Annotated[bool, Parameter(negative="", help="Lossy rules over their parameters' ranges.")] = False,
    seed: Seed = None,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        Parameter(help="Folder for comparison.json and the pictures pareto and drafts, as .png and .svg."),
    ] = None,
) -> None:
    """Rules side by side on one pair: tokens per step against total variation."""
    from rich.table import Table

    from specsim.comparing import compare as compare_rules
    from specsim.comparing.table import show_tv

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    target, draft = _pair(source, vocab_size, overlap)
    with _progress("compare", " rules") as progress:
        found = compare_rules(
            target,
            draft,
            names=names,
            gamma=gamma,
            drafts=drafts,
            steps=steps,
            sweep=sweep,
            rng=seed,
            threads=threads,
            progress=progress,
        )
    table = Table(box=None, pad_edge=False)
    for column in ("rule", "drafts", "tokens/step", "±", "TV"):
        table.add_column(column, justify="left" if column in ("rule", "drafts") else "right")
    for entry in sorted(found, key=lambda entry: -entry.tokens_per_step):
        table.add_row(
            entry.rule, entry.drafts, f"{entry.tokens_per_step:.4f}", f"{entry.error:.4f}", show_tv(entry.tv)
        )
    _print(table)
    print(f"{found.source}, {steps:,} steps a rule, seed {found.provenance.root}; TV –: wrong on purpose")
    if out is not None:
        _write_comparison(out, found, vocab_size, overlap, seed)


@app.command
def figures(
    *names: Annotated[str, Parameter(help="Figures to make; default: all.")],
    fast: Annotated[bool, Parameter(negative="", help="Simulate less.")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="Folder; default: results/figures, with --fast results/figures-fast."),
    ] = None,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of what is simulated.")] = 0,
    listed: Annotated[
        bool, Parameter(name="--list", negative="", help="Print the figures there are, and make none.")
    ] = False,
) -> None:
    """Make the literature's figures again: tables first, then pictures as .svg, .png and .pdf."""
    from specsim.figures import get
    from specsim.figures import names as known

    if listed:
        width = max(map(len, known()))
        for name in names or known():
            print(f"{name:<{width}}  {get(name).TITLE}")
        return
    from specsim.figures.making import make_figures

    folder = out or Path("results/figures-fast" if fast else "results/figures")
    with _progress("figures", " cells") as progress:
        made = make_figures(names, folder, fast=fast, rng=seed, progress=progress)
    for figure in made:
        print(f"{folder / figure.name} (.svg, .png, .pdf): {'drawn' if figure.drawn else 'unchanged'}")


@app.command(name="check-metrics")
def check_metrics(
    *,
    engine: Annotated[
        str,
        Parameter(help="What the numbers mean: plain, vllm, hf, sglang, llama.cpp or flashinfer."),
    ] = "plain",
    gamma: Annotated[str | None, Parameter(help="Most drafted tokens of a step.")] = None,
    acceptance_rate: Annotated[str | None, Parameter(help="As printed: 0.80 or 80.0%.")] = None,
    tokens_per_step: Annotated[
        str | None, Parameter(help="As printed; engines call it mean acceptance length.")
    ] = None,
    accepted: Annotated[str | None, Parameter(help="Drafted tokens accepted.")] = None,
    drafted: Annotated[str | None, Parameter(help="Drafted tokens.")] = None,
    emitted: Annotated[str | None, Parameter(help="Tokens generated.")] = None,
    steps: Annotated[str | None, Parameter(help="Rounds of draft and verify.")] = None,
    bonus: Annotated[str | None, Parameter(help="Steps that accepted their whole draft.")] = None,
    by_position: Annotated[
        str | None, Parameter(help="Share of the steps that accepted each position: 0.81,0.63,0.48.")
    ] = None,
    draft_time: Annotated[str | None, Parameter(help="Time of one drafted token, in any unit.")] = None,
    target_time: Annotated[str | None, Parameter(help="Time of one pass of the target, same unit.")] = None,
    step_time: Annotated[str | None, Parameter(help="Time of one step, same unit.")] = None,
    speedup: Annotated[str | None, Parameter(help="Over one pass of the target per token.")] = None,
    requests: Annotated[
        str | None,
        Parameter(help="Texts, each of which may have ended within its last step. Default: none did."),
    ] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False,
) -> int:
    """Can these reported numbers all be true? Exit code 0 if they can, 1 if not.

    Give numbers as they were printed: the digits say how exact they are.
    """
    found = specsim.check_metrics(
        engine=engine,
        gamma=gamma,
        acceptance_rate=acceptance_rate,
        tokens_per_step=tokens_per_step,
        accepted=accepted,
        drafted=drafted,
        emitted=emitted,
        steps=steps,
        bonus=bonus,
        by_position=by_position,
        draft_time=draft_time,
        target_time=target_time,
        step_time=step_time,
        speedup=speedup,
        requests=requests,
    )
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return found.exit_code
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in (
        "statement",
        "",
        "left, for each step" if found.per_step else "left",
        "right",
        "slack",
        "",
    ):
        table.add_column(column, justify="right" if column == "slack" else "left")
    for check in found.checks:
        verdict = "holds" if check.holds else "fails"
        table.add_row(check.statement, verdict, str(check.left), str(check.right), f"{check.slack:.4g}")
    implied = Table(box=None, pad_edge=False)
    for column in ("it follows", "", ""):
        implied.add_column(column)
    for item in found.implied:
        implied.add_row(item.name, str(item.value), item.note)
    for part in (table, implied):
        if part.row_count:
            _print(part, "")
    for check in found.checks:
        if check.note:
            print(f"{check.name}: {check.note}")
    for remark in found.remarks:
        print(f"remark: {remark}")
    print(found.verdict)
    return found.exit_code


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

    target, draft = _models(models)
    with _progress("record") as progress:
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
    with _progress("check", " rows") as progress:
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
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False,
) -> None:
    """The three α of a trace, along its own path, in one streaming pass."""
    from specsim.theory import expected_tokens
    from specsim.traces import summarise

    trace = specsim.open_trace(path)
    with _progress("alpha", " rows") as progress:
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
    print(f"tokens per step  {found.tokens_per_step:.4f} ± {_number(errors['tokens_per_step'])}")
    for name in ("context", "verified", "drafted"):
        alpha = getattr(found, f"alpha_{name}")
        print(
            f"α {name:<9}      {alpha:.4f} ± {_number(errors[f'alpha_{name}'])}   "
            f"i.i.d. formula {expected_tokens(alpha, found.gamma):.4f} tokens per step"
        )
    print("position         tested   accepted   mean β")
    for i in range(found.gamma):
        tested = int(found.tested_by_position[i])
        rates = (
            f"{found.alpha_by_position[i]:.4f}   {found.beta_by_position[i]:.4f}" if tested else "–        –"
        )
        print(f"{i + 1:<12} {tested:>10,}     {rates}")


@models_app.command
def build(
    folder: Annotated[Path, Parameter(help="Folder of text, searched recursively.")],
    *,
    out: Annotated[Path, Parameter(help="File to write, .npz.")],
    pattern: Annotated[str, Parameter(help="Which files to read.")] = "*.py",
) -> None:
    """Train the n-gram pair (5-gram target, 2-gram draft) on any folder of text."""
    from specsim.models import build_pair

    target, draft = build_pair(folder, out, pattern=pattern)
    for name, value in target.provenance.items():
        print(f"{name:<24} {value}")
    print(
        f"wrote {out}: vocabulary {target.vocab_size}, {len(target.contexts):,} held-out contexts, draft order {draft.order}"
    )


# --- helpers ---------------------------------------------------------------------------------------------


def _report(result: specsim.Audit, out: Path | None) -> int:
    """Print an audit, and write it to `out` in every form."""
    from specsim.auditing import report

    _print(*report.audit_to_terminal(result))
    if out is not None:
        from specsim.files import replacing
        from specsim.plotting import save_figure

        forms = {"json": report.audit_to_json, "html": report.audit_page, "xml": report.audit_to_junit}
        for ending, tell in forms.items():
            with replacing(out / f"audit.{ending}") as temporary:
                temporary.write_text(tell(result), encoding="utf-8")
        figure = report.audit_figure(result)
        for ending in ("png", "svg"):
            save_figure(figure, out / f"audit.{ending}")
        print(f"wrote audit.html, .json, .xml (JUnit), .png and .svg to {out}")
    return result.exit_code


def _audit_against(new: str, old: str, level: str, timeout: float, seed: int | None, out: Path | None) -> int:
    from specsim.auditing.against import audit_against
    from specsim.auditing.report import comparison_to_terminal

    with _progress("audit") as progress:
        found = audit_against(new, old, level, seed, timeout=timeout, progress=progress)
    _print(*comparison_to_terminal(found))
    if out is not None:
        from specsim.files import replacing

        with replacing(out / "against.json") as temporary:
            temporary.write_text(json.dumps(found.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
        print(f"wrote against.json to {out}")
    return found.exit_code


def _draft(rule: str, gamma: int, widths: str | None, drawing: str | None) -> Any:
    """What to draft: a chain of `gamma`, or the tree with these widths."""
    from specsim.drafts import branching, chain
    from specsim.rules import get

    drawn = drawing or get(rule).drawings[0]
    if widths is None:
        return chain(gamma, drawn)
    try:
        numbers = [int(width) for width in widths.split(",")]
    except ValueError:
        raise ValueError(f"tree: {widths!r} is not a list of whole numbers such as 4,2,1") from None
    return branching(*numbers, drawing=drawn)


def _write_comparison(out: Path, found: Any, vocab_size: int, overlap: float, seed: int | None) -> None:
    """comparison.json, and the two pictures; drafts are compared on a pair of pmfs, whatever the source."""
    from specsim.comparing import acceptance_by_drafts
    from specsim.comparing.figures import drafts_figure, pareto_figure
    from specsim.distributions import synthetic_pair
    from specsim.files import replacing
    from specsim.plotting import save_figure

    with replacing(out / "comparison.json") as temporary:
        temporary.write_text(json.dumps(found.to_dict(), allow_nan=False), encoding="utf-8")
    acceptance = acceptance_by_drafts(*synthetic_pair("zipf", vocab_size, overlap), rng=found.provenance.root)
    figures = {
        "pareto": pareto_figure(found),
        "drafts": drafts_figure(acceptance, f"Zipf pair, V = {vocab_size:,}, Σ min(p, q) = {overlap:g}"),
    }
    for name, figure in figures.items():
        for ending in (".png", ".svg"):
            save_figure(figure, out / f"{name}{ending}")
    print(f"wrote comparison.json, pareto and drafts (.png, .svg) to {out}")


def _pair(source: str, vocab_size: int, overlap: float) -> tuple[Any, Any]:
    """The target and the draft that `source` names."""
    from specsim.distributions import PAIR_KINDS, synthetic_pair

    if source in PAIR_KINDS:
        return synthetic_pair(source, vocab_size, overlap)
    if Path(source).is_dir():
        return specsim.open_trace(source), None
    if source == "ngram" or Path(source).is_file():
        return _models(source)
    raise ValueError(
        f"source {source!r}: neither 'ngram', nor a synthetic kind ({', '.join(PAIR_KINDS)}), nor a file or folder"
    )


def _models(source: str) -> tuple[Any, Any]:
    """The shipped pair, or the one in a file."""
    if source == "ngram":
        return specsim.default_pair()
    from specsim.models import load_pair

    return load_pair(Path(source))


def _number(value: float) -> str:
    """Four decimals; a dash where there is no value, as for the standard error of a single step."""
    return "–" if math.isnan(value) else f"{value:.4f}"


@contextmanager
def _progress(label: str, unit: str = " steps") -> Iterator[Progress | None]:
    """A progress bar on the terminal's error stream; none where that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=label, unit=unit, unit_scale=True, leave=False) as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


def _print(*renderables: Any) -> None:
    from rich.console import Console

    # off a terminal there is no width to fit, so let no cell be cut
    Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False).print(
        *renderables, sep="\n"
    )


def main() -> None:
    """Run the command line, and turn what users get wrong into one line and exit code 2."""
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        sys.exit(_complain(str(error)))
    except BrokenPipeError:  # whoever was reading has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except (ValueError, TypeError, OSError) as error:
        sys.exit(_complain(str(error)))
    except MemoryError as error:
        sys.exit(_complain(f"not enough memory for this ({error})"))
    except Exception as error:
        sys.exit(_complain(f"unexpected {type(error).__name__}: {error}; please report it"))
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    print(f"specsim: {message}", file=sys.stderr)
    return 2
