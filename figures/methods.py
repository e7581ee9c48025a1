"""Speed of the drafting systems, for one sequence and for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._palette import COLORS, figure_style, heading
from specsim.planning._methods import kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Speed of drafting systems on the n-gram pair"
TABLES = ("methods",)

#: The kinds of systems, with the titles of their panels.
KINDS = {
    "lossless": "lossless",
    "assumed": "lossless, with a draft that is assumed to be better",
    "lossy": "lossy",
}


def draw(table: pa.Table) -> Figure:
    """Two bars for each system, tokens per step divided by cost, the fastest for one sequence on top of its
    panel; a panel for each kind of systems."""
    from matplotlib.figure import Figure

    rows = sorted(table.to_pylist(), key=lambda row: row["speed_1"])
    batches = [name.removeprefix("speed_") for name in table.column_names if name.startswith("speed_")]
    panels = {kind: [row for row in rows if kind_of(row["spec"], row["tv"]) == kind] for kind in KINDS}
    panels = {kind: members for kind, members in panels.items() if members}
    with figure_style():
        figure = Figure(figsize=(6.3, 1.1 + 0.3 * len(rows) + 0.3 * len(panels)))
        heights = [len(members) for members in panels.values()]
        axes = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        for ax, (kind, members) in zip(axes, panels.items(), strict=True):
            for k, batch in enumerate(batches):
                places = [i + 0.2 - 0.4 * k for i in range(len(members))]
                speeds = [row[f"speed_{batch}"] for row in members]
                ax.barh(
                    places,
                    speeds,
                    0.38,
                    color=COLORS[k],
                    hatch="//" * k,
                    edgecolor="white",
                    label=f"batch {batch}",
                )
            ax.axvline(1.0, color="0.4", linewidth=0.8, zorder=0)
            ax.set_yticks(range(len(members)), [row["method"] for row in members])
            ax.set_ylim(-0.6, len(members) - 0.4)
            ax.set_title(KINDS[kind])
        axes[-1].set(xlabel="speed: tokens per step / cost of a step")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(batches))
        heading(figure, TITLE)
    return figure
