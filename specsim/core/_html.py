"""HTML tables and small bar charts, which results show in Jupyter in the colours of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite

#: Pixels of a small plot: the height of a line, and where names end and bars do.
LINE, NAMES, BARS = 18, 150, 360


def html_list(values: Mapping[str, object]) -> str:
    """A line for each of `values`: its name, and the value.

    >>> html_list({"γ": 5, "source": "a < b"})
    '<table><tr><th>γ</th><td>5</td></tr><tr><th>source</th><td>a &lt; b</td></tr></table>'
    """
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in values.items()
    )
    return f"<table>{lines}</table>"


def html_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], emphasised: Iterable[int] = ()
) -> str:
    """`rows` under the names of `columns`; those whose numbers, from 0, are `emphasised` in bold.

    >>> html_table(["γ", "tokens"], [[1, "1.8"]], emphasised=[0])
    '<table><tr><th>γ</th><th>tokens</th></tr><tr
    style="font-weight:bold"><td>1</td><td>1.8</td></tr></table>'
    """
    bold = set(emphasised)
    lines = ["".join(f"<th>{escape(name)}</th>" for name in columns)]
    lines += ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    marks = ['<tr style="font-weight:bold">' if i - 1 in bold else "<tr>" for i in range(len(lines))]
    return f"<table>{''.join(mark + line + '</tr>' for mark, line in zip(marks, lines, strict=True))}</table>"


def html_bars(title: str, values: Mapping[str, float]) -> str:
    """Horizontal bars for `values` ≥ 0 under `title`, as SVG; values that are not finite are dashes.

    >>> html_bars("α", {"1": 0.5, "2": 0.25}).count("<rect")
    2
    """
    most = max((value for value in values.values() if isfinite(value)), default=0.0) or 1.0
    lines = [f'<text x="{NAMES}" y="{LINE - 5}" font-weight="bold">{escape(title)}</text>']
    for i, (name, value) in enumerate(values.items(), start=1):
        text = f'y="{(i + 1) * LINE - 5}"'
        length = (BARS - NAMES) * value / most if isfinite(value) else 0.0
        number = f"{value:.4g}" if isfinite(value) else "–"
        lines.append(f'<text x="{NAMES - 6}" {text} text-anchor="end">{escape(name)}</text>')
        lines.append(
            f'<rect x="{NAMES}" y="{i * LINE + 3}" width="{length:.1f}" height="{LINE - 6}" fill="#4477aa"/>'
        )
        lines.append(f'<text x="{NAMES + length + 6:.1f}" {text}>{number}</text>')
    return (
        f'<svg role="img" aria-label="{escape(title)}" '
        f'width="{BARS + 80}" height="{(len(values) + 1) * LINE}" '
        f'font-size="12" font-family="sans-serif" fill="currentColor">{"".join(lines)}</svg>'
    )
