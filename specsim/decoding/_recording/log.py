"""Writes a recorded trace: its provenance, and steps whose rows may be truncated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specsim.core._checks import check_count
from specsim.core._provenance import Provenance
from specsim.core._types import Floats
from specsim.traces import truncate, writer

#: Called as add(text, drafted tokens [γ], how many of them passed, p [γ+1, V], q [γ+1, V]).
AddStep = Callable[[int, Sequence[int], int, Floats, Floats], None]


@contextmanager
def new_log(
    path: str | Path,
    *,
    vocab_size: int,
    gamma: int,
    dtype: str,
    top: int | None,
    root: int,
    facts: Mapping[str, Any],
) -> Iterator[AddStep]:
    """Begin a trace in the folder `path` whose provenance has `facts` and `root`; yields a function that adds
    a step.

    With `top` = k of each row the k most probable tokens are kept, or k - 1 and the drafted one. Raises as
    `specsim.traces.writer`."""
    provenance = {**facts, **Provenance.record(root, 1, 0.0).to_dict()}
    del provenance["seconds"]  # not known before the end, and the manifest is written first
    if top is not None:
        top = min(check_count("top", top), vocab_size)
    layout: dict[str, Any] = {"vocab_size": vocab_size, "gamma": gamma, "dtype": dtype, "top": top}
    with writer(path, provenance=provenance, **layout) as trace:

        def add(text: int, drafted: Sequence[int], accepted: int, *rows: Floats) -> None:
            logged: Any = rows
            if top is not None:
                kept = [*drafted, None]
                logged = ([truncate(r, top, x) for r, x in zip(one, kept, strict=True)] for one in rows)
            trace.append(text, drafted, accepted, *logged)

        yield add
