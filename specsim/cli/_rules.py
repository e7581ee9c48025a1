"""`specsim rules` and `compare`."""

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import app
from specsim.cli._options import Overlap, Seed, SourceName, Threads, VocabSize, whole
from specsim.cli._pairs import pair_of
from specsim.cli._terminal import print_result, progress_bar, show
from specsim.core._files import make_folder, write_text


@app.command
def rules() -> None:
    """List the verification rules: paper, claim, and results on the n-gram pair."""
    from specsim.core._tables import NONE, Table
    from specsim.rules import GROUPS, get, names
    from specsim.simulation import load_bundled
    from specsim.simulation._comparison import show_tv

    comparison = load_bundled()
    found = {entry.name: entry for entry in comparison}
    for group, claim in GROUPS.items():
        rows = []
        for name in names(group):
            rule, entry = get(name), found.get(name)  # a rule just added has no entry before make docs
            numbers = (NONE, NONE) if entry is None else (f"{entry.tokens_per_step:.3f}", show_tv(entry.tv))
            rows.append((name, rule.claim, *numbers, rule.citation))
        columns = ("rule", "lossless for, or law", "tokens/step", "TV", "paper")
        show(claim, Table(columns, rows).to_rich(), "")
    print(
        f"tokens/step and TV: n-gram pair, {comparison.gamma} drafted tokens, or two chains of them for "
        f"trees; {comparison.steps:,} steps, seed {comparison.provenance.root}. Parameters: a rule's name, "
        "then name=value, as in lenience:lenience=0.5."
    )
    for name in names():
        for one in get(name).parameters:
            print(f"  {name}: {one.name} in {one.range}, {one.default:g}: {one.meaning}")


@app.command
def compare(
    source: SourceName = "ngram",
    *,
    names: Annotated[
        list[str] | None,
        Parameter(
            name="--rule", negative="", help="A rule, with parameters if any; may be repeated. Default: all."
        ),
    ] = None,
    vocab_size: VocabSize = 1000,
    overlap: Overlap = 0.8,
    gamma: Annotated[int, Parameter(converter=whole, help="Drafted tokens of a chain.")] = 5,
    drafts: Annotated[int, Parameter(converter=whole, help="Chains for rules that take several drafts.")] = 2,
    steps: Annotated[int, Parameter(converter=whole, help="Steps of each rule.")] = 2**16,
    sweep: Annotated[
        bool, Parameter(negative="", help="Simulate lossy rules at several parameter values.")
    ] = False,
    seed: Seed = None,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        Parameter(help="Folder for comparison.json and the figures pareto and drafts, as .png and .svg."),
    ] = None,
) -> None:
    """Compare rules on one pair: tokens per step and total variation."""
    from specsim.simulation import compare as compare_rules

    if out is not None:
        make_folder(out)
    target, draft = pair_of(source, vocab_size, overlap)
    with progress_bar("compare", " rules") as progress:
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
    print_result(found)
    if out is not None:
        _write_comparison(out, found, vocab_size, overlap, seed)


def _write_comparison(out: Path, found: Any, vocab_size: int, overlap: float, seed: int | None) -> None:
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
        for ending in (".png", ".svg"):
            save_figure(figure, out / f"{name}{ending}")
    print(f"wrote comparison.json, pareto and drafts (.png, .svg) to {out}")
