"""The page of an audit, with its figures."""

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from specsim.auditing._report import figures
from specsim.auditing._report import text as words
from specsim.auditing._results.audit import Audit
from specsim.core import _plotting
from specsim.core._tables import Table, short

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


def template(audit: Audit) -> tuple[Path, dict[str, Any]]:
    """The template, audit.html.j2 beside this file, which builds on that of all results, and its values."""
    worst, shown, steps = figures.worst_tables(audit), figures.main_tables(audit), figures.level_steps(audit)
    power = partial(figures.power_figure, audit)
    captions = [f"{one.name}: {one.table.n:,} tokens" for one in worst]
    return Path(__file__).with_name("audit.html.j2"), {
        "words": words,
        "findings": words.grouped(audit),
        "worst": worst,
        "deviations": [
            (text, _svg(partial(figures.deviation_figure, one), f"d{i}", text))
            for i, (one, text) in enumerate(zip(worst, captions, strict=True))
        ],
        "purposes": {case.case: case.purpose for case in audit.cases},
        "power": _svg(power, "p", "Detectable TV against the number of steps") if shown else "",
        "detectable": Table.of(
            [
                {"table": one.name, "this audit": f"{one.table.detectable_tv:.4f}"}
                | {f"{level}, {short(n)}": f"{one.detectable(audit, n):.4f}" for level, n in steps.items()}
                for one in shown
            ]
        ),
        **dict(zip(("evidence", "speed", "by_shape", "by_axis"), words.tables(audit), strict=True)),
    }


def _svg(draw: Callable[[], _plotting.Figure], prefix: str, label: str) -> Any:
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
