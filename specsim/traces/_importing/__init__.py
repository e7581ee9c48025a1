"""Importers of logs of other programs, one file for each format: to add a format, add a file.

A format has `SUFFIXES`, by which files are recognised, and `read(source)`, which returns a
`specsim.traces._steps.Logged`: the layout, and an iterator of the steps, which `import_trace` writes."""

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from specsim.core._files import check_file, modules_beside, sha256_of
from specsim.core._progress import Progress, ShowProgress, working
from specsim.core._types import check_known, checked
from specsim.traces._reader import Trace, open_trace
from specsim.traces._steps import Logged, Places, Source, Step, report_wrong_sums
from specsim.traces._writer import TraceWriter, check_new_trace, writer


def formats() -> list[str]:
    """The names of the formats that `import_trace` reads."""
    return modules_beside(__file__)


@checked
def import_trace(
    path: str | Path,
    out: str | Path,
    *,
    draft: str | Path | None = None,
    format: str | None = None,
    vocab_size: int | None = None,
    dtype: str = "float32",
    progress: ShowProgress = None,
) -> Trace:
    """Convert a log to a trace, and open it.

    Parameters
    ----------
    path, draft : path
        The log, and the draft's file if the format has two.
    out : path
        A new or empty folder.
    format : str, optional
        One of `formats()`, by default that of the suffix of `path`; docs/importing-logs.md has them.
    vocab_size : int, optional
        V, for truncated rows; by default the largest id plus one. Whole rows must agree with it.
    dtype : {"float32", "float16", "bfloat16"}
        How rows are stored.
    progress : bool or callable, optional
        As in `specsim.simulate`, in steps; before that, of JSON Lines, in bytes.

    Returns
    -------
    Trace
        Its provenance has the names, sizes and SHA-256 of the files.

    Raises
    ------
    ValueError
        For a log that breaks its format, with file and place; the trace has the steps before it.
    FileExistsError, OSError
        If `out` is not empty, or cannot be written, or the log is missing or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     p, q = np.full((1, 2, 2), 0.5), np.full((1, 1, 2), [0.75, 0.25])
    ...     np.savez(f"{folder}/log.npz", draft_tokens=[[0]], p=p, q=q)
    ...     import_trace(f"{folder}/log.npz", f"{folder}/trace").num_steps
    1
    """
    path, other = Path(path), None if draft is None else Path(draft)
    for file in _files(path, other):
        check_file(file)
    check_new_trace(out)  # before the logs are read, which may take long
    name = format or _detect_format(path)
    check_known("format", name, formats())
    place = Path(out).absolute()
    above = next(one for one in (place, *place.parents) if one.exists())
    with tempfile.TemporaryFile(dir=above) as scratch:
        with working(progress, "read", "B") as work:
            asked = Source(path, other, vocab_size, scratch, work.report)
            logged: Logged = import_module(f"{__name__}.{name}").read(asked)
        with working(progress, "import") as work:
            _write(logged, out, name, dtype, asked, work.report)
    return open_trace(out)


def _write(logged: Logged, out: str | Path, name: str, dtype: str, asked: Source, tell: Progress) -> None:
    source, vocab_size = asked.path, asked.vocab_size
    if logged.top is None and vocab_size not in (None, logged.vocab_size):
        raise ValueError(f"{source}, p: V = {logged.vocab_size}; leave out vocab_size, which is {vocab_size}")
    if vocab_size is not None and vocab_size < logged.vocab_size:
        raise ValueError(f"{source}: V = {logged.vocab_size} exceeds vocab_size, {vocab_size}; raise it")
    files = logged.files or [
        {"file": file.name, "bytes": file.stat().st_size, "sha256": sha256_of(file)}
        for file in _files(asked.path, asked.draft)
    ]
    facts = {"format": name, "files": files, **logged.facts}
    layout: Any = {part: getattr(logged, part) for part in ("vocab_size", "gamma", "top", "flags", "bonus")}
    with writer(out, dtype=dtype, provenance=facts, **layout) as log:
        for part in logged.steps:
            if isinstance(part, Step):
                _append(log, part, logged)
            elif not log.extend(part):
                for step in part.steps:  # one of them is refused
                    _append(log, step, logged)
            if isinstance(part, Places) or log.steps == logged.total or log.steps % 256 == 0:
                tell(log.steps, logged.total)


def _append(log: TraceWriter, step: Step, logged: Logged) -> None:
    place, *arguments = step
    try:
        log.append(*arguments)
    except (ValueError, TypeError) as error:
        whole = logged.top is None and "p" in logged.columns and "sums to" in str(error)
        more = f"; in all, {report_wrong_sums(logged.columns)}" if whole else ""
        raise type(error)(f"{place}: {error}{more}") from None


def _detect_format(path: Path) -> str:
    known = {name: import_module(f"{__name__}.{name}").SUFFIXES for name in formats()}
    for name, suffixes in known.items():
        if path.suffix in suffixes:
            return name
    listing = ", ".join(f"{name} ({' '.join(s or 'a folder' for s in ends)})" for name, ends in known.items())
    raise ValueError(f"{path}: no format has the ending {path.suffix!r}; give format, one of {listing}")


def _files(*paths: Path | None) -> list[Path]:
    """The files of a log: those of a folder of arrays, or the paths themselves."""
    given = [path for path in paths if path is not None]
    return [file for path in given for file in (sorted(path.glob("*.npy")) if path.is_dir() else [path])]
