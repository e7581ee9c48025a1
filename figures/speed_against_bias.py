"""Tokens per step against total variation, for every rule over the range of its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Speed against bias of every rule"
TABLES = ("rule_sweep",)


def draw(table: pa.Table) -> Figure:
    """The picture of `specsim compare`: lossless rules on the axis, a line for each parameter of a lossy
    one.
    """
    from dataclasses import replace

    from specsim.simulation._comparison import Entry, load_bundled, pareto_figure

    rows = table.to_pylist()
    source, gamma = (rows[0][name] for name in ("source", "gamma"))
    entries = [
        Entry(**{name: value for name, value in row.items() if name not in ("source", "gamma")})
        for row in rows
    ]
    return pareto_figure(replace(load_bundled(), source=source, gamma=gamma, entries=tuple(entries)))
