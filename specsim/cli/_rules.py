"""`specsim rules`, `compare` and `sweep`."""

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import app, ending
from specsim.cli._options import (
    GammaOfPair,
    Overlap,
    Rule,
    Seed,
    Threads,
    VocabSize,
    WholePairName,
    refuse,
    settings_of,
    whole,
)
from specsim.cli._pair_options import gamma_for, pair_of
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, listing, print_result
from specsim.core._files import write_text
from specsim.core._numbers import exact


@app.command(help_epilogue=ending("rules", "rules --csv", codes="0 done"))
def rules(*, form: Form = TEXT) -> None:
    """List the verification rules: paper, claim, and results on the n-gram pair."""
    from specsim.core._tables import NONE, Table
    from specsim.rules import GROUPS, get, names
    from specsim.simulation import load_bundled
    from specsim.simulation._grid import show_tv

    comparison = load_bundled()
    found = {entry.name: entry for entry in comparison}
    parts: list[Any] = []
    records: list[dict[str, Any]] = []
    for group, claim in GROUPS.items():
        rows = []
        for name in names(group):
            rule, entry = get(name), found.get(name)  # a rule just added has no entry before make docs
            numbers = (NONE, NONE) if entry is None else (f"{entry.tokens_per_step:.3f}", show_tv(entry.tv))
            rows.append((name, rule.claim, *numbers, rule.citation))
            measured = {"tokens_per_step": entry and entry.tokens_per_step, "tv": entry and entry.tv}
            parameters = [{"name": one.name, "default": one.default} for one in rule.parameters]
            about = {"rule": name, "group": group, "claim": rule.claim, "paper": rule.citation}
            records.append(about | measured | {"parameters": parameters})
        columns = ("rule", "lossless for, or law", "tokens/step", "TV", "paper")
        parts += [claim, Table(columns, rows)]
    parts.append(
        f"tokens/step and TV: n-gram pair, {comparison.gamma} drafted tokens, or two chains of them for "
        f"trees; {comparison.steps:,} steps, seed {comparison.provenance.root}. Parameters: a rule's name, "
        "then name=value, as in lenience:lenience=0.5."
    )
    for name in names():
        for one in get(name).parameters:
            parts.append(f"  {name}: {one.described}")
    print_result(listing(parts, records), form)


@app.command(
    help_epilogue=ending(
        "compare --rule standard --rule block --seed 1",
        "compare zipf --overlap 0.9 --csv",
        "compare ngram --methods all -o methods.png",
    )
)
def compare(
    pair: WholePairName = "ngram",
    *,
    rules: Annotated[
        list[str] | None,
        Parameter(
            name="--rule",
            negative="",
            help="A rule, with parameters if any; may be repeated. Default: all, or for rows along a text "
            "(of a trace) those for chains.",
        ),
    ] = None,
    vocab_size: VocabSize = None,
    overlap: Overlap = None,
    gamma: GammaOfPair = None,
    drafts: Annotated[
        int | None, Parameter(converter=whole, help="Chains for rules that take several drafts. Default: 2.")
    ] = None,
    steps: Annotated[
        int | None, Parameter(converter=whole, help="Steps of each rule (65536) or method (4096).")
    ] = None,
    sweep: Annotated[
        bool, Parameter(negative="", help="Simulate lossy rules at several parameter values.")
    ] = False,
    methods: Annotated[
        list[str] | None,
        Parameter(
            name=("--method", "--methods"),
            negative="",
            help="Compare drafting systems instead of rules: one of 'specsim methods', with parameters if "
            "any; may be repeated; or all.",
        ),
    ] = None,
    batch: Annotated[
        int | None, Parameter(converter=whole, help="With --method: sequences decoded together. Default: 1.")
    ] = None,
    context: Annotated[
        int | None, Parameter(converter=whole, help="With --method: tokens before the step. Default: 1024.")
    ] = None,
    seed: Seed = None,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        Parameter(help="Folder for comparison.json and the figures pareto and drafts, as .png and .svg."),
    ] = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Compare rules on one pair, by tokens per step and total variation; or drafting systems, by speed."""
    from specsim.simulation import compare as compare_rules

    work: dict[str, Any] = {"rng": seed, "threads": threads}
    if steps is not None:
        work["steps"] = steps
    if methods is not None:
        of_rules = {"rule": rules, "gamma": gamma, "drafts": drafts, "sweep": sweep, "out": out}
        refuse(of_rules, "with --method")
        both = pair_of(pair, vocab_size, overlap)
        return _compare_methods(both, methods, batch, context, work, form)
    refuse({"batch": batch, "context": context}, "without --method")
    pictures = [f"{name}{ending}" for name in ("pareto", "drafts") for ending in (".png", ".svg")]
    if out is not None:
        form.make_folder(out, "comparison.json", *pictures)
    both = pair_of(pair, vocab_size, overlap)
    found = compare_rules(
        both,
        rules=rules,
        gamma=gamma_for(both, gamma),
        drafts=2 if drafts is None else drafts,
        sweep=sweep,
        **work,
    )
    print_result(found, form)
    if out is not None:
        _write_comparison(out, found, vocab_size or 1000, 0.8 if overlap is None else overlap)
        if form.is_text:
            print(f"wrote comparison.json, pareto and drafts (.png, .svg) to {out}")
    return 3 if found.interrupted else 0


def _compare_methods(
    pair: Any,
    names: list[str],
    batch: int | None,
    context: int | None,
    work: dict[str, Any],
    form: PictureForm,
) -> int:
    from specsim.planning import compare_methods

    machine: dict[str, Any] = {"batch": batch, "context": context}
    machine = {name: value for name, value in machine.items() if value is not None}
    found = compare_methods(pair, methods=None if names == ["all"] else names, **machine, **work)
    print_result(found, form)
    return 3 if found.interrupted else 0


@app.command(help_epilogue=ending("methods", "methods --json", codes="0 done"))
def methods(*, form: Form = TEXT) -> None:
    """List the drafting systems: paper, rule, parameters, what is modelled and what is not."""
    from specsim.core._tables import Table
    from specsim.simulation.methods import get, names

    rows, records = [], []
    parts: list[Any] = []
    for name in names():
        one = get(name)
        rows.append((name, one.title, one.rule, one.citation))
        parameters = [
            {"name": each.name, "default": each.default, "range": each.range, "meaning": each.meaning}
            for each in one.parameters
        ]
        about: dict[str, Any] = {"method": name, "title": one.title, "rule": one.rule, "paper": one.citation}
        records.append(
            about | {"modelled": one.modelled, "not_modelled": one.left_out, "parameters": parameters}
        )
        parts += [f"{name}: {one.modelled}", f"  not modelled: {one.left_out}"]
        parts += [f"  {each.described}" for each in one.parameters]
    print_result(listing([Table(("method", "system", "rule", "paper"), rows), *parts], records), form)


@app.command(
    help_epilogue=ending(
        "sweep ngram --rule lenience --over lenience=0.2,0.4,0.6,0.8,1 --steps 100k -o lenience.png",
        "sweep ngram --over temperature=0.5,0.7,1 --csv",
        "sweep zipf --over gamma=1,2,4,8 --over rule=standard,block",
    )
)
def sweep(
    pair: WholePairName = "ngram",
    *,
    over: Annotated[
        list[str],
        Parameter(
            negative="",
            help="A setting and its values, such as lenience=0.5,0.8,1: a parameter of the rule, gamma, "
            "rule, temperature, top_k, top_p or min_p; may be repeated, for all combinations.",
        ),
    ],
    rule: Rule = "standard",
    gamma: GammaOfPair = None,
    steps: Annotated[int, Parameter(converter=whole, help="Steps of each run.")] = 100_000,
    vocab_size: VocabSize = None,
    overlap: Overlap = None,
    seed: Seed = None,
    threads: Threads = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Simulate over the values of some settings: tokens per step and α with standard errors, and TV."""
    import specsim

    values = settings_of(over, _values, "lenience=0.5,1")
    both = pair_of(pair, vocab_size, overlap)
    found = specsim.sweep(
        both,
        over=values,
        rule=rule,
        gamma=gamma_for(both, gamma),
        steps=steps,
        rng=seed,
        threads=threads,
    )
    print_result(found, form)
    return 3 if found.interrupted else 0


def _values(name: str, values: list[str]) -> list[Any]:
    """The values of a setting, which are numbers but for rules."""
    if name == "rule":
        return values
    try:
        numbers = [exact(value) for value in values]
    except ValueError as error:
        raise ValueError(f"--over: {name}: {error}") from None
    wholes = name in ("gamma", "top_k")
    return [int(one) if wholes and one.denominator == 1 else float(one) for one in numbers]


def _write_comparison(out: Path, found: Any, vocab_size: int, overlap: float) -> None:
    """comparison.json, and the two pictures; drafts are compared on a pair of pmfs, whatever the source."""
    from specsim.core._plotting import save_figure
    from specsim.core.distributions import synthetic_pair
    from specsim.simulation import acceptance_by_drafts
    from specsim.simulation._comparison_figures import drafts_figure, pareto_figure

    write_text(out / "comparison.json", json.dumps(found.to_dict(), allow_nan=False))
    acceptance = acceptance_by_drafts(*synthetic_pair("zipf", vocab_size, overlap), rng=found.provenance.root)
    figures = {
        "pareto": pareto_figure(found),
        "drafts": drafts_figure(acceptance, f"Zipf pair, V = {vocab_size:,}, Σ min(p, q) = {overlap:g}"),
    }
    for name, figure in figures.items():
        for suffix in (".png", ".svg"):
            save_figure(figure, out / f"{name}{suffix}")
