"""How results show themselves in Jupyter: as plain tables, which take the colours of whatever page they stand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["html_list", "html_table"]


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
    '<table><tr><th>γ</th><th>tokens</th></tr><tr style="font-weight:bold"><td>1</td><td>1.8</td></tr></table>'
    """
    bold = set(emphasised)
    lines = ["".join(f"<th>{escape(name)}</th>" for name in columns)]
    lines += ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    marks = ['<tr style="font-weight:bold">' if i - 1 in bold else "<tr>" for i in range(len(lines))]
    return f"<table>{''.join(mark + line + '</tr>' for mark, line in zip(marks, lines, strict=True))}</table>"
