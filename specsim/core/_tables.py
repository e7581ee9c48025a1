"""Results: shown alike by the terminal, Jupyter and `print`, compared, saved, and read as Arrow or pandas."""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from html import escape
from importlib import import_module
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from specsim.core._files import PathLike, read_table, write_text
from specsim.core._json import printable
from specsim.core._saving import equal, save

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

#: Cells that are a verdict, and their colours in the terminal.
COLORS: dict[str, str] = read_table("kinds")["colors"]
NONE = "–"
#: Two-sided confidence of intervals.
CONFIDENCE = 0.95
#: Where the terminal prints what `brief` leaves out; `print` and Jupyter name a place of theirs.
MORE = ": --verbose"
#: A number, an interval, or what is measured with its error.
_NUMBER = re.compile(r"[-+≤]?\d\S*( ([±–] ?\S+|wasteful))?")
#: How LaTeX writes signs that it reads otherwise, or not at all.
SIGNS: dict[str, str] = read_table("latex")
_POWER_OR_SIGN = re.compile(rf"10\^(-?\d+(?:\.\d+)?)|[{re.escape(''.join(SIGNS))}]")
#: What Markdown reads as more than a sign.
_MARKS = re.compile(r"[\\`*_\[\]<>|~$]|^[-+#]")


def in_markdown(value: object) -> str:
    """A value within a line of Markdown, with its signs escaped."""
    return _MARKS.sub(r"\\\g<0>", _one_line(value))


def in_latex(value: object) -> str:
    r"""A value within a line of LaTeX.

    >>> in_latex("γ ≤ 5 % of 10^-6")
    '$\\gamma$ $\\le$ 5 \\% of $10^{-6}$'
    """
    line = _one_line(value)
    return _POWER_OR_SIGN.sub(lambda found: f"$10^{{{found[1]}}}$" if found[1] else SIGNS[found[0]], line)


def _one_line(value: object) -> str:
    return " ".join(printable(str(value), sys.maxsize, "\n").split())


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of columns. Without `columns` each row is a name and its values.

    The rows whose numbers, from 0, are in `bold` are emphasised; `gap` is the space between columns. A table
    of the style "dim" is left out where lines are few."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    bold: Sequence[int] = ()
    gap: int = 2
    style: str = ""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, object]], **more: Any) -> "Table":
        """Rows that have their columns as keys."""
        return cls(tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows], **more)

    def cut(self, most: int) -> "list[Table | Line]":
        """The rows in bold and the first others, `most` in all, in their order, and how many are left out."""
        others = [i for i in range(len(self.rows)) if i not in self.bold]
        kept = sorted([*self.bold, *others][:most])
        bold = [new for new, old in enumerate(kept) if old in self.bold]
        more = len(self.rows) - most
        left = [Line(f"{more} more row{'s' * (more > 1)}{MORE}", "")] * (more > 0)
        return [replace(self, rows=[self.rows[i] for i in kept], bold=bold), *left]

    def to_html(self) -> str:
        """The table, with texts to the left, which Jupyter puts to the right as numbers."""
        tags = ["td" if numbers else 'td style="text-align:left"' for numbers in self.numeric]
        heads = [tag.replace("td", "th") for tag in tags]
        lines = [_html_row(heads, self.columns)] if self.columns else []
        tags[:1] = tags[:1] if self.columns else heads[:1]
        for i, row in enumerate(self.rows):
            lines.append(_html_row(tags, row, ' style="font-weight:bold"' * (i in self.bold)))
        return f"<table>{''.join(lines)}</table>"

    def to_markdown(self) -> str:
        """The table, as GitHub reads Markdown."""
        rows = [[in_markdown(cell) for cell in row] for row in self.rows]
        for i in self.bold:
            rows[i] = [f"**{cell}**" if cell else "" for cell in rows[i]]
        marks = ["---:" if numbers else ":---" for numbers in self.numeric]
        heads = [in_markdown(name) for name in self.columns or [""] * len(marks)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (heads, marks, *rows))

    def to_latex(self) -> str:
        """The table as a tabular of booktabs, without columns of bars."""
        shown = [any(set(str(row[i])) - {"█"} for row in self.rows) for i in range(len(self.numeric))]
        rows = [[in_latex(cell) for cell in row] for row in self.rows]
        for i in self.bold:
            rows[i] = [rf"\textbf{{{cell}}}" for cell in rows[i]]
        heads = [[in_latex(name) for name in self.columns]] if self.columns else []
        lines = [" & ".join(compress(row, shown)) + r" \\" for row in (*heads, *rows)]
        lines[len(heads) : len(heads)] = [r"\midrule"] * len(heads)
        style = "".join("r" if numbers else "l" for numbers in compress(self.numeric, shown))
        begin = rf"\begin{{tabular}}{{{style}}}", r"\toprule"
        return "\n".join((*begin, *lines, r"\bottomrule", r"\end{tabular}"))

    @property
    def numeric(self) -> list[bool]:
        """Which columns have numbers, and nothing else."""
        return [
            bool(self.columns)
            and all(cell in ("", NONE) or _NUMBER.fullmatch(cell) for cell in cells)
            and any(map(_NUMBER.fullmatch, cells))
            for cells in zip(*([str(cell) for cell in row] for row in self.rows), strict=True)
        ]

    def to_rich(self) -> "RenderableType":
        """Columns of numbers to the right; only columns that have spaces in them wrap, verdicts never."""
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=None, pad_edge=False, padding=(0, self.gap, 0, 0), show_header=bool(self.columns)
        )
        texts = [[printable(str(cell), sys.maxsize, "\n") for cell in row] for row in self.rows]
        for i, (cells, numbers) in enumerate(zip(zip(*texts, strict=True), self.numeric, strict=True)):
            table.add_column(
                self.columns[i] if self.columns else "",
                justify="right" if numbers else "left",
                no_wrap=numbers or not any(" " in cell and cell not in COLORS for cell in cells),
            )
        for i, row in enumerate(texts):
            style = "bold" if i in self.bold else ""
            table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in row), style=style)
        return table


def _html_row(tags: Sequence[str], cells: Sequence[object], style: str = "") -> str:
    found = (f"<{tag}>{escape(str(cell))}</{tag[:2]}>" for tag, cell in zip(tags, cells, strict=True))
    return f"<tr{style}>{''.join(found)}</tr>"


class Line(NamedTuple):
    """A line with a style of rich, such as "bold red"; in Jupyter "bold" is all that is seen of it."""

    text: str
    style: str

    def to_html(self) -> str:
        text = escape(self.text)
        return f"<p><strong>{text}</strong></p>" if "bold" in self.style else f"<p>{text}</p>"

    def to_markdown(self) -> str:
        text = in_markdown(self.text)
        return f"**{text}**" if "bold" in self.style else text

    def to_latex(self) -> str:
        return f"% {_one_line(self.text)}"


Piece = Table | Line | str


class Shown:
    """A result that the terminal and Jupyter show by `parts`, with `records` as a table for programs.

    `print` shows what matters of it in a few lines. Two results are equal if all but times and machines is.
    Dataclasses need `eq=False` to inherit the comparison."""

    __slots__ = ()

    #: The first columns of `records`, for results that may have no row.
    columns: ClassVar[tuple[str, ...]] = ()
    #: What `to_dict` adds to the fields.
    derived: ClassVar[tuple[str, ...]] = ()
    #: The field whose items are the rows of `records`.
    listed: ClassVar[str] = ""
    #: The most rows of all tables in `brief`, which terminals show unless asked for `parts`; 0: no `brief`.
    long: ClassVar[int] = 0

    def parts(self) -> Iterable[Piece]:
        """What is shown: tables, and lines between them."""
        raise NotImplementedError

    def brief(self) -> Iterable[Piece]:
        """What `print` shows: by default all parts that are not dim, and the first rows of long tables."""
        parts = [part for part in self.parts() if getattr(part, "style", "") != "dim"]
        rows = self.long // max(1, sum(isinstance(part, Table) for part in parts)) or sys.maxsize
        return [one for part in parts for one in (part.cut(rows) if isinstance(part, Table) else [part])]

    def in_a_line(self) -> str:
        """The result in a line: the first one that `print` shows."""
        return next((part.text for part in pieces(self.brief()) if isinstance(part, Line)), "")

    def said(self) -> Iterator[str]:
        """The result in lines, without tables and what their columns mean."""
        lines = (one for one in pieces(self.parts()) if isinstance(one, Line))
        return (line.text for line in lines if line.style != "dim")

    def __str__(self) -> str:
        return to_text(self.brief()).replace(MORE, ": to_markdown()")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and equal(self, other)

    def save(self, path: PathLike) -> None:
        """Write the result with its provenance to a file, which `specsim.load` reads."""
        save(self, path)

    def to_dict(self) -> Any:
        """Everything as plain Python values, for JSON."""
        return plain([*self]) if isinstance(self, tuple) else as_dict(self, *self.derived)

    def records(self) -> list[dict[str, Any]]:
        """The rows of the result, each {column: value}, with numbers as numbers."""
        return [row_of(one) for one in getattr(self, self.listed)]

    def to_arrow(self) -> "pa.Table":
        """The rows of the result as a PyArrow table. Raises ModuleNotFoundError without pyarrow."""
        return needed("pyarrow", "to_arrow", "arrow").Table.from_pylist(self.records())

    def to_pandas(self) -> Any:
        """The rows of the result as a pandas data frame. Raises ModuleNotFoundError without pandas."""
        return needed("pandas", "to_pandas", "pandas").DataFrame.from_records(self.records())

    def to_csv(self, path: PathLike | None = None) -> str | None:
        """The rows of the result as CSV with a line of names: as text, or written to the file `path`.

        Numbers are written in full, None as nothing, lists as JSON, and control characters as Python does."""
        rows = [plain(row) for row in self.records()]
        text = io.StringIO()
        names = list(dict.fromkeys([*self.columns, *(name for row in rows for name in row)]))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            nested = {k: json.dumps(v) for k, v in row.items() if isinstance(v, list | dict)}
            texts = {k: printable(v, sys.maxsize, "\n\t") for k, v in row.items() if isinstance(v, str)}
            writer.writerow(row | nested | texts)
        if path is None:
            return text.getvalue()
        write_text(path, text.getvalue())
        return None

    def to_markdown(self) -> str:
        """All that is shown, as Markdown: tables, and lines as paragraphs."""
        return "\n\n".join(part.to_markdown() for part in self._all())

    def to_latex(self) -> str:
        """All that is shown, as LaTeX: tables as tabulars of booktabs, and lines as comments."""
        return "\n".join(part.to_latex() for part in self._all())

    def _all(self) -> "list[Table | Line]":
        return [*pieces(self.parts())] or [Table.of(self.records())]

    def _repr_html_(self) -> str:
        forms = self.brief(), self.parts()
        short, whole = ("".join(part.to_html() for part in pieces(parts)) for parts in forms)
        short = short.replace(MORE, ": see All tables")
        return f"{short}<details><summary>All tables</summary>{whole}</details>" if self.long else whole


def row_of(item: Any) -> dict[str, Any]:
    """The fields of a named tuple or of a dataclass; last those that are intervals, each as its two ends."""
    row = dict(item._asdict()) if hasattr(item, "_asdict") else asdict(item)
    for name in [name for name, value in row.items() if isinstance(value, tuple)]:
        row[f"{name}_low"], row[f"{name}_high"] = row.pop(name)
    return row


def pieces(parts: Iterable[Piece]) -> "Iterator[Table | Line]":
    """The parts that have something in them, texts as lines."""
    for part in parts:
        one = Line(part, "") if isinstance(part, str) else part
        if one.rows if isinstance(one, Table) else one.text:
            yield one


@dataclass(frozen=True, eq=False)
class Listing(Shown):
    """A list that is no result of a computation: what is shown of it, and its rows."""

    shown: Sequence[Piece]
    rows: Sequence[dict[str, Any]]

    def parts(self) -> Sequence[Piece]:
        return self.shown

    def records(self) -> list[dict[str, Any]]:
        return [*self.rows]

    def to_dict(self) -> list[dict[str, Any]]:
        return self.records()


def to_rich(parts: Iterable[Piece]) -> "list[RenderableType]":
    """The parts of a result for a rich console, with an empty line after each table except at the end; what a
    terminal would obey, in names and words from elsewhere, is escaped."""
    from rich.text import Text

    found: list[RenderableType] = []
    for part in pieces(parts):
        if isinstance(part, Table):
            found += [part.to_rich(), ""]
        else:
            found.append(Text(printable(part.text, sys.maxsize, "\n"), style=part.style))
    return found[:-1] if found and found[-1] == "" else found


def to_text(parts: Iterable[Piece]) -> str:
    """The parts of a result as plain text of up to 120 columns; lines of text are not wrapped."""
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(width=120, file=io.StringIO(), color_system=None, markup=False, force_jupyter=False)
    with console.capture() as printed:
        for one in to_rich(parts):
            console.print(one, soft_wrap=not isinstance(one, RichTable))
    return "\n".join(line.rstrip() for line in printed.get().splitlines())


def short(count: int) -> str:
    """A count in at most five characters.

    >>> short(999), short(1024), short(131_072), short(2**25), short(2**30)
    ('999', '1.02k', '131k', '33.6M', '1.07G')
    """
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def bars(values: Sequence[float], width: int = 24) -> list[str]:
    """A bar for each of `values` ≥ 0, relative to the largest; an empty one for what is not finite."""
    most = max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
    return ["█" * round(width * value / most) if math.isfinite(value) else "" for value in values]


def span(ends: Iterable[float], show: Callable[[float], str] = "{:.4f}".format) -> str:
    """An interval, or one number where its ends are shown alike; a dash for NaN."""
    low, high = (NONE if math.isnan(end) else show(end) for end in ends)
    return low if low == high else f"{low} – {high}"


def needed(module: str, name: str, extra: str) -> Any:
    """A library of an extra that `name` needs. Raises ModuleNotFoundError, with the remedy, if missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        what = f"{name} needs {module}, which is not installed: {installing(extra)}"
        raise ModuleNotFoundError(what, name=module) from error


def installing(extra: str) -> str:
    """How to install an extra, from the index and in a clone."""
    return f"pip install 'specsim-decoding[{extra}]', in a clone '.[{extra}]'"


def as_dict(result: Any, *derived: str, without: Sequence[str] = (), **more: object) -> dict[str, Any]:
    """The fields of a dataclass but those in `without`, its `derived` properties, and `more`, all `plain`."""
    names = [field.name for field in fields(result) if field.name not in without]
    found = {name: getattr(result, name) for name in (*names, *derived)}
    return {name: plain(value) for name, value in (found | more).items()}


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays and tuples as lists, numbers that are not finite as None."""
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return as_dict(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value
