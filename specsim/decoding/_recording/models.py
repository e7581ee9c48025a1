"""Record a trace of two specsim models along a speculative trajectory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim import rules
from specsim.core._kernels import interpreted
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core._types import Floats, check_count, checked, count_of
from specsim.models import Model, chain
from specsim.simulation._rows import model_rows, start_of
from specsim.simulation._sources import rule_verifier
from specsim.traces import truncate, writer
from specsim.traces._reader import Trace, open_trace

#: Steps of each text; then the next held-out context begins another one.
STEPS_PER_TEXT = 32


#: Called as add(text, drafted tokens [γ], how many of them passed, p [γ+1, V], q [γ+1, V]).
AddStep = Callable[[int, Sequence[int], int, Floats, Floats], None]


@contextmanager
def new_log(
    path: str | Path, *, top: int | None, root: int, facts: Mapping[str, Any], **layout: Any
) -> Iterator[AddStep]:
    """Begin a trace with `facts` and `root`, and `top` as in `record`; yields what adds a step."""
    provenance = {**facts, **vars(Provenance.record(root, 1, 0.0))}
    del provenance["seconds"]  # not known before the end, and the manifest is written first
    if top is not None:
        top = min(check_count("top", top), layout["vocab_size"])
    with writer(path, provenance=provenance, top=top, **layout) as trace:

        def add(text: int, drafted: Sequence[int], accepted: int, *rows: Floats) -> None:
            logged: Any = rows
            if top is not None:
                kept = [*drafted, None]
                logged = ([truncate(r, top, x) for r, x in zip(one, kept, strict=True)] for one in rows)
            trace.append(text, drafted, accepted, *logged)

        yield add


@checked
@shows_progress("record")
def record(
    out: str | Path,
    target: Model,
    draft: Model,
    *,
    gamma: int = 5,
    steps: int | str = 1000,
    rule: str | rules.Rule = "standard",
    dtype: str = "float32",
    top: int | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> Trace:
    """Write `steps` speculative steps of two models to a new trace, and open it.

    Every text begins at a context drawn from the target's pool and continues for `STEPS_PER_TEXT` steps. A
    step logs its drafted tokens, how many were accepted, and the rows of p and q at all γ + 1 positions.
    Ctrl-C leaves a readable trace of the steps so far.

    Parameters
    ----------
    out : path
        A new or empty folder.
    target, draft : Model
        Two models over one vocabulary.
    gamma : int
        Drafted tokens per step, ≥ 1.
    steps : int or str
        At least 1.
    rule : str or Rule
        Verifies the drafts.
    dtype : {"float32", "float16", "bfloat16"}
        How rows are stored.
    top : int, optional
        k: each row keeps its k most probable tokens, or k - 1 and the drafted one. By default rows are whole.
    rng : int, Generator or None
        The seed.
    progress : bool or callable, optional
        As in `specsim.simulate`, in steps.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        For arguments out of range.
    FileExistsError
        If `out` is not empty.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import default_pair
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record(folder, *default_pair(), gamma=2, steps=10, rng=1).num_rows
    30
    """
    tell = told(progress)
    steps = count_of("steps", steps)
    reader, chosen = model_rows(target, draft, chain(gamma), leaf_rows=True), rules.get(rule)
    chosen.check(reader.tree)
    root, tree = root_of(rng), reader.tree
    layout: dict[str, Any] = {"vocab_size": target.vocab_size, "gamma": gamma, "dtype": dtype, "top": top}
    with new_log(out, **layout, root=root, facts={"rule": str(chosen), "steps": steps}) as add:
        key, verify, history = key_of(root), rule_verifier(chosen, tree), reader.contexts[0]
        for step in range(steps):
            if step % STEPS_PER_TEXT == 0:
                history = reader.contexts[start_of(key, step, len(reader.contexts))]
            rows = reader.rows_after(history[None], uniforms(key, Purpose.DRAFT, step, 1, tree.size))
            read = np.ascontiguousarray(rows.q[:, : chosen.num_rows(tree)])
            with interpreted():  # compiling does not pay off for one step at a time
                tokens, (accepted,) = verify(replace(rows, q=read), key, step)
            add(step // STEPS_PER_TEXT, rows.draft_tokens[0].tolist(), int(accepted), rows.p[0], rows.q[0])
            history = np.append(history, tokens[: accepted + 1, 0])
            if (step + 1) % STEPS_PER_TEXT == 0 or step + 1 == steps:
                tell(step + 1, steps)
    return open_trace(out)
