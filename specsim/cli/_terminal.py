"""How commands print: results as text, JSON or CSV, and the files that -o writes."""

import codecs
import io
import json
import os
import re
import shlex
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TextIO

from cyclopts import Group, Parameter

from specsim.cli._options import HELP, WORDS
from specsim.core._files import make_folder, probe_file, read_table, write_text
from specsim.core._tables import Shown, to_rich
from specsim.core._verdicts import Judged

#: The options of all commands that print a result.
OUTPUT = Group.create_ordered("Output")
SAVE = Parameter(name=["--save", "-o"], group=OUTPUT)
PICTURES = (".png", ".svg", ".pdf")


def _form(name: str, *short: str) -> Parameter:
    """The option that asks for a form."""
    return Parameter(name=[f"--{name}", *short], negative="", group=OUTPUT, help=WORDS[f"as_{name}"])


#: ASCII for signs where a terminal has no UTF-8; Greek letters are written by name.
ASCII: dict[str, str] = read_table("signs")


@Parameter(name="*")
@dataclass(frozen=True)
class Form:
    """How a command prints its result."""

    verbose: Annotated[bool, _form("verbose", "-v")] = False
    quiet: Annotated[bool, _form("quiet", "-q")] = False
    as_json: Annotated[bool, _form("json")] = False
    as_csv: Annotated[bool, _form("csv")] = False
    as_markdown: Annotated[bool, _form("markdown")] = False
    as_latex: Annotated[bool, _form("latex")] = False
    file: Annotated[Path | None, SAVE, HELP["save"]] = None
    endings: ClassVar[tuple[str, ...]] = (".json", ".csv", ".md", ".tex", ".html")

    @property
    def given(self) -> list[str]:
        """The forms that were asked for; a command takes one."""
        return [f"--{name.removeprefix('as_')}" for name, value in vars(self).items() if value is True]

    @property
    def in_words(self) -> bool:
        """Whether the result is printed as text, in full or in short."""
        return not self.given or self.verbose

    @property
    def is_text(self) -> bool:
        """Whether the result is printed as text, and written to no file."""
        return self.file is None and self.in_words

    @property
    def has_picture(self) -> bool:
        """Whether the file is a picture."""
        return self.file is not None and self.file.suffix in PICTURES

    def check_no_picture(self, of: str) -> None:
        """Raise ValueError, before the work, for a picture of a result that has no plot."""
        if self.has_picture:
            raise ValueError(f"{self.file}: there is no picture of {of}; give {', '.join(Form.endings)}")

    def make_folder(self, out: Path | None, *names: str) -> None:
        """Make the folder `out`, if any, before the work. Raises ValueError if a file would be replaced."""
        if out is None:
            return
        make_folder(out)
        written = [os.path.realpath(out / name) for name in names]
        if self.file is not None and os.path.realpath(self.file) in written:
            raise ValueError(f"{self.file}: --out writes a file of this name too; give --save (-o) another")

    def __post_init__(self) -> None:
        """Raises before the work what would fail after it."""
        if len(self.given) > 1:
            raise ValueError(f"{self.given[0]} and {self.given[1]}: give only one")
        if self.file is not None:
            if self.file.suffix not in self.endings:
                self.check_no_picture("this result")
                *most, last = self.endings
                raise ValueError(f"{self.file}: expected a file that ends in {', '.join(most)} or {last}")
            probe_file(self.file)
            words = [part for word in sys.argv[1:] for part in re.split("[=,:]", word) if part]
            if sum(os.path.realpath(word) == os.path.realpath(self.file) for word in words) > 1:
                said = "this command names the file twice; give the result (--save, -o) another"
                raise ValueError(f"{self.file}: {said}")  # which would replace it

    def write(self, result: Shown) -> None:
        """Write `result` to the file that was asked for, if any."""
        if self.file is None:
            return
        if self.file.suffix == ".json":
            result.save(self.file)
        elif self.has_picture:
            from matplotlib.figure import Figure

            from specsim.core._plotting import figure_style, save_figure

            with figure_style():
                figure = Figure()
                result.plot(figure.subplots())  # type: ignore[attr-defined]  # a PictureForm was asked for
                save_figure(figure, self.file)
        else:
            tell = {".csv": "to_csv", ".md": "to_markdown", ".tex": "to_latex"}.get(self.file.suffix)
            text = getattr(result, tell)() if tell else _document(result, self.file.suffix)
            write_text(self.file, text.rstrip("\n") + "\n")
        print(f"wrote {self.file}", file=sys.stderr)


@Parameter(name="*")
@dataclass(frozen=True)
class PictureForm(Form):
    """The same of a command whose result has a picture."""

    file: Annotated[Path | None, SAVE, HELP["save_or_draw"]] = None
    endings = (*Form.endings, *PICTURES)


@Parameter(name="*")
@dataclass(frozen=True)
class JUnitForm(Form):
    """The same of a command whose result has test cases."""

    file: Annotated[Path | None, SAVE, HELP["save_or_junit"]] = None
    endings = (*Form.endings, ".xml")


#: Text, and no file.
TEXT, TEXT_OR_PICTURE, TEXT_OR_JUNIT = Form(), PictureForm(), JUnitForm()


def show(*renderables: Any) -> None:
    """Print on a terminal to its width; elsewhere whole lines, and tables to 120 columns."""
    from rich.console import Console
    from rich.table import Table

    off = not sys.stdout.isatty()
    console = Console(width=120 if off else None, highlight=False, markup=False)
    for one in renderables:
        console.print(one, soft_wrap=off and not isinstance(one, Table))


def print_result(result: Any, form: Form = TEXT, document: Any = None) -> int:
    """Print a result as text, CSV (`records`) or JSON (`to_dict` or `document`). Returns its exit code."""
    if form.as_json:
        print(json.dumps(result.to_dict() if document is None else document, allow_nan=False))
    elif form.as_csv:
        print(result.to_csv(), end="")
    elif form.as_markdown or form.as_latex:
        print(result.to_markdown() if form.as_markdown else result.to_latex())
    else:
        short = result.brief() if result.long and not form.verbose else result.parts()
        show(*to_rich([result.in_a_line()] if form.quiet else short))
    form.write(result)
    return int(getattr(result, "exit_code", 3 if getattr(result, "interrupted", False) else 0))


def _document(result: Shown, ending: str) -> str:
    """A result as JSON, JUnit XML or, with the command that made it, a page."""
    from specsim.core._report import json_of, junit_of, page_of

    if ending == ".html":
        return page_of(result, re.sub(r" --seed[ =]\S+", "", shlex.join(["specsim", *sys.argv[1:]])))
    return {".json": json_of, ".xml": junit_of}[ending](result)


def print_judged(result: Judged, form: Form, out: Path | None, name: str, more: str = "") -> int:
    """Print a result with a verdict, and write its report to the folder `out`; return its exit code."""
    code = print_result(result, form)
    if out is not None:
        for ending in (".json", ".html", ".xml"):
            write_text(out / f"{name}{ending}", _document(result, ending))
        if form.is_text:
            print(f"wrote {name}.html, .json{more} and .xml (JUnit) to {out}")
    return code


class UntilClosed:
    """A standard stream that is silent after `error`, so that `| head` changes no exit code."""

    def __init__(self, stream: TextIO, error: type[OSError] = BrokenPipeError):
        self._stream, self._error = stream, error

    def write(self, text: str) -> int:
        return self._unless_closed(self._stream.write, text) or 0

    def flush(self) -> None:
        self._unless_closed(self._stream.flush)

    def _unless_closed(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._error:
            discard(self._stream)
            return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard(stream: Any) -> None:
    """Let `stream` go to the null device from now on, with what it has not written yet."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def prepare_streams() -> None:
    """Let standard output and error print every sign, in UTF-8 or ASCII, whether or not they are open."""
    codecs.register_error("specsim", _in_ascii)
    for name, error in (("stdout", BrokenPipeError), ("stderr", OSError)):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="specsim")
            setattr(sys, name, UntilClosed(stream, error))


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(in_ascii, error.object[error.start : error.end])), error.end


def in_ascii(sign: str) -> str:
    """A sign in ASCII.

    >>> "".join(map(in_ascii, "γ≤é₊"))
    'gamma<=e+'
    """
    if sign in ASCII:
        return ASCII[sign]
    name = unicodedata.name(sign, "")
    if name.startswith("GREEK"):
        return name.rpartition(" ")[2].lower()
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return plain or sign.encode("ascii", "backslashreplace").decode()
