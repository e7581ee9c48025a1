"""Records a trace of two models along a real speculative trajectory: each step goes on where the last one ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from specsim import rules
from specsim.core._kernels import interpreted
from specsim.core._streams import Purpose, RandomSource, key_of, root_of, uniforms
from specsim.drafts import chain
from specsim.models import Model
from specsim.recording._log import new_log
from specsim.simulation._counting import Progress
from specsim.simulation._engine import check_steps, model_rows
from specsim.simulation._rows import ModelRows, start_of
from specsim.traces import Trace, open_trace

#: Steps that one text goes on for, before the next held-out context begins another.
STEPS_PER_TEXT = 32


def record(
    path: str | Path,
    target: Model,
    draft: Model,
    *,
    gamma: int = 5,
    steps: int = 1000,
    rule: str | rules.Rule = "standard",
    dtype: str = "float32",
    top: int | None = None,
    rng: RandomSource = None,
    progress: Progress | None = None,
) -> Trace:
    """Write `steps` speculative steps of two models to a new trace in the folder `path`, and open it.

    Every text begins at a context drawn from the target's pool and goes on for `STEPS_PER_TEXT` steps, each from
    what the one before emitted; so the contexts met are those of the target's own text. `dtype` is float32,
    float16 or bfloat16. A step logs its drafted tokens, how many were accepted, and the p and q rows of all γ+1
    positions, the bonus included; with `top` = k of each row the k most probable tokens, or k - 1 and the drafted one.
    Stopping it early leaves a readable trace of the steps so far.

    Raises ValueError for bad arguments, FileExistsError if `path` already holds something.
    """
    steps = check_steps(steps)
    reader, chosen = model_rows(target, draft, chain(gamma), leaf_rows=True), rules.get(rule)
    chosen.check(reader.tree)
    root = root_of(rng)
    with new_log(
        path,
        vocab_size=target.vocab_size,
        gamma=gamma,
        dtype=dtype,
        top=top,
        root=root,
        facts={"rule": str(chosen), "steps": steps},
    ) as add:
        for done, step in enumerate(_trajectory(reader, chosen, root, steps), 1):
            add(*step)
            if progress is not None and (done % STEPS_PER_TEXT == 0 or done == steps):
                progress(done, steps)
    return open_trace(path)


def _trajectory(
    reader: ModelRows, rule: rules.Rule, root: int, steps: int
) -> Iterator[tuple[int, list[int], int, np.ndarray, np.ndarray]]:
    """(text, drafted tokens, accepted, p rows [γ+1, V], q rows [γ+1, V]) of each step."""
    key, tree = key_of(root), reader.tree
    tokens, accepted = np.empty((tree.depth + 1, 1), dtype=np.int32), np.empty(1, dtype=np.int64)
    for first in range(0, steps, STEPS_PER_TEXT):
        n = min(STEPS_PER_TEXT, steps - first)
        u = uniforms(key, Purpose.DRAFT, first, n, tree.size)
        v = uniforms(key, Purpose.VERIFY, first, n, rule.uniforms(tree, reader.vocab_size))
        history = reader.contexts[start_of(key, first, len(reader.contexts))]
        for s in range(n):
            rows = reader.rows_after(history[None], u[:, s : s + 1])
            q = np.ascontiguousarray(rows.q[:, : rule.num_rows(tree)])
            with interpreted():  # one step at a time is not worth compiling for
                rule.rows(
                    rows.parents,
                    rows.draft_tokens,
                    rows.p,
                    q,
                    v[:, s : s + 1],
                    rule.array(),
                    tokens,
                    accepted,
                )
            yield (
                first // STEPS_PER_TEXT,
                rows.draft_tokens[0].tolist(),
                int(accepted[0]),
                rows.p[0],
                rows.q[0],
            )
            history = np.append(history, tokens[: accepted[0] + 1, 0])
