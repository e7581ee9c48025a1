"""An audit as one HTML file by itself: verdict, findings, evidence, figures, how to run it again."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.auditing._report import figures
from specsim.auditing._report import text as words
from specsim.auditing._results.audit import Audit
from specsim.core import _plotting
from specsim.core._tables import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colours of figures, and the page's names for them, so that figures follow the reader's light or dark.
INK, GRID = "#1d2329", "#dde3e8"
COLORS = {
    INK: "--ink",
    GRID: "--line",
    **dict(zip(_plotting.COLORS, ("--blue", "--orange", "--green"), strict=False)),
    figures.BAND: "--band",
}
STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "grid.color": GRID,
}


def audit_page(audit: Audit) -> str:
    """The page, from page.html.j2 and page.css beside this file."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["linked"] = _linked
    template = environment.get_template("page.html.j2")
    name, verdict = audit.verifier, words.headline(audit).removeprefix(f"{audit.verifier}: ")
    worst, shown = figures.worst_tables(audit), figures.main_tables(audit)
    captions = [f"{one.name}: {one.table.n:,} tokens, e = 10^{one.table.log10_e:.1f}" for one in worst]
    return template.render(
        audit=audit,
        words=words,
        name=name,
        verdict=verdict,
        tone="none" if audit.exit_code == 3 else str(audit.verdict),
        findings=words.grouped(audit),
        worst=worst,
        deviations=[
            (text, _svg(partial(figures.deviation_figure, one), f"d{i}", text))
            for i, (one, text) in enumerate(zip(worst, captions, strict=True))
        ],
        purposes={case.case: case.purpose for case in audit.cases},
        power=_svg(partial(figures.power_figure, audit), "p", "Detectable TV against the number of steps")
        if shown
        else "",
        detectable=[_detectable(audit, one) for one in shown],
    )


def _linked(text: str) -> Any:
    """`text` with links to the threads that it names, such as owner/name#12."""
    from markupsafe import Markup, escape

    thread = r"\b([\w.-]+/[\w.-]+)#(\d+)\b"
    link = r'<a href="https://github.com/\1/issues/\2">\g<0></a>'
    return Markup(re.sub(thread, link, str(escape(text))))


def _detectable(audit: Audit, tested: figures.Tested) -> dict[str, str]:
    levels = {
        f"{level}, {short(steps)}": f"{tested.detectable(audit, steps):.4f}"
        for level, steps in figures.level_steps(audit).items()
    }
    return {"detectable TV": tested.name, "this audit": f"{tested.table.detectable_tv:.4f}", **levels}


def _svg(draw: Callable[[], Figure], prefix: str, label: str) -> Any:
    """A figure for a page: no header, no metadata, ids of its own, colours by the page's names."""
    import matplotlib
    from markupsafe import Markup, escape

    buffer = io.StringIO()
    with _plotting.figure_style(), matplotlib.rc_context(STYLE):
        draw().savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    drawn = buffer.getvalue()
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", drawn[drawn.index("<svg") :])
    for color, name in COLORS.items():
        drawn = drawn.replace(color, f"var({name})")
    return Markup(drawn.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))
