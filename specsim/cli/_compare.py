"""`specsim compare`."""

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli import _options as option
from specsim.cli._app import app, command
from specsim.cli._options import NOT_SAVE, gamma_for, given, pair_of, refuse
from specsim.cli._terminal import TEXT_OR_PICTURE, PictureForm, print_result
from specsim.core._files import write_text

#: The files that --out writes.
WRITTEN = ("comparison.json", "pareto.png", "pareto.svg", "drafts.png", "drafts.svg")


@command(
    app,
    "compare --rule standard --rule block --seed 1",
    "compare zipf --overlap 0.9 --csv",
    "compare ngram --methods all -o methods.png",
)
def compare(
    pair: option.WholePairName = "ngram",
    *,
    rule: option.Several = None,
    vocab_size: option.VocabSize = None,
    overlap: option.Overlap = None,
    gamma: option.GammaOfPair = None,
    drafts: Annotated[int | None, option.WHOLE] = None,
    steps: Annotated[int | None, option.WHOLE] = None,
    sweep: option.Flag = False,
    method: Annotated[list[str] | None, Parameter(name=("--method", "--methods"), negative="")] = None,
    batch: Annotated[int | None, option.WHOLE] = None,
    context: Annotated[int | None, option.WHOLE] = None,
    seed: option.Seed = None,
    threads: option.Threads = None,
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder for comparison.json and the figures pareto and drafts, as .png and .svg" + NOT_SAVE
        ),
    ] = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Compare rules on one pair, by tokens per step and total variation; or drafting systems, by speed.

    Args:
        rule: A rule, with parameters if any; may be repeated. Default: all, or for rows along a text (of a
            trace) those for chains.
        drafts: Chains for rules that take several drafts. Default: 2.
        steps: Steps of each rule (65536) or method (4096).
        sweep: Simulate lossy rules at several parameter values.
        method: Compare drafting systems instead of rules: one of 'specsim list methods', with parameters if
            any; may be repeated; or all.
        batch: With --method: sequences decoded together. Default: 1.
        context: With --method: tokens before the step. Default: 1024."""
    values = locals()
    if method is None:
        refuse(compare, values, "has no effect without --method", "batch", "context")
    else:
        refuse(compare, values, "has no effect with --method", "rule", "gamma", "drafts", "sweep", "out")
    form.make_folder(out, *WRITTEN)
    both = pair_of(pair, vocab_size, overlap)
    work: dict[str, Any] = {"steps": steps, "rng": seed, "threads": threads}
    found: Any
    if method is None:
        from specsim import compare as compare_rules

        shape = {"gamma": gamma_for(both, gamma), "drafts": drafts}
        found = compare_rules(both, rules=rule, sweep=sweep, **given(shape | work))
    else:
        from specsim.planning import compare_methods

        work |= {"batch": batch, "context": context}
        found = compare_methods(both, methods=None if method == ["all"] else method, **given(work))
    code = print_result(found, form)
    if out is not None:
        _write_comparison(out, found, vocab_size or 1000, 0.8 if overlap is None else overlap)
        if form.is_text:
            print(f"wrote comparison.json, pareto and drafts (.png, .svg) to {out}")
    return code


def _write_comparison(out: Path, found: Any, vocab_size: int, overlap: float) -> None:
    """comparison.json, and the two pictures; drafts are compared on a pair of pmfs, whatever the source."""
    from specsim import acceptance_by_drafts
    from specsim.core._plotting import save_figure
    from specsim.core.distributions import synthetic_pair
    from specsim.simulation._comparison_figures import drafts_figure, pareto_figure

    write_text(out / "comparison.json", json.dumps(found.to_dict(), allow_nan=False))
    acceptance = acceptance_by_drafts(
        *synthetic_pair("zipf", vocab_size, overlap, rng=0), rng=found.provenance.root
    )
    figures = {
        "pareto": pareto_figure(found),
        "drafts": drafts_figure(acceptance, f"Zipf pair, V = {vocab_size:,}, Σ min(p, q) = {overlap:g}"),
    }
    for name, figure in figures.items():
        for suffix in (".png", ".svg"):
            save_figure(figure, out / f"{name}{suffix}")
