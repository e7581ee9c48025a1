"""A log made of a recorded trace.

A step of a trace recorded one row for each of its γ + 1 positions, of which the first τ drafted tokens were accepted. Its
positions 0 … τ are positions of the text, and they become the log's, step after step. Two things a trace does not know:

- what the draft would have gone on with behind a rejected token, so there are no tails (`ahead` is 0);
- what would have become of a draft at the bonus position, which was never tested: it is `UNKNOWN`.

A policy that asks for more ends its step there, and `PolicyRun.beyond` counts such steps: in the first case its time comes
out too small, in the second both its time and its tokens per step. Policies that fix γ beforehand lose nothing in the
first case. With few steps beyond the log, the rest is as good as a log that was drawn: the recorded tests are those of the
target's own text. That the trace goes on from step to step is taken for granted (`specsim trace record` does so, and
starts anew in another text now and then); no step of a policy crosses the end of a recorded one.
"""

from __future__ import annotations

import numpy as np

from specsim.planning.policies._log import ACCEPTED, UNKNOWN, DraftLog, Features, read_rows
from specsim.traces import Trace

#: Rows of p and q that are read at a time.
CHUNK_ROWS = 4096


def log_from_trace(trace: Trace) -> DraftLog:
    """The recorded positions of `trace` as a log: no tails, `UNKNOWN` at bonus positions. See the module's text.

    Raises ValueError for a trace without a step, a damaged row (naming it), and rows that are not whole: of a row cut
    to its most probable tokens confidence, entropy and β are intervals; and without flags or q at the bonus. TypeError for anything but a trace.
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace: expected what open_trace returns, got {type(trace).__name__}")
    if trace.num_steps == 0:
        raise ValueError(f"{trace.path}: the trace holds no step; record some first")
    if trace.top is not None:
        raise ValueError(
            f"{trace.path}: rows are cut to their {trace.top} most probable tokens, so that confidence, entropy and "
            "β are intervals; record the trace with whole rows"
        )
    if not (trace.layout.flags and trace.layout.bonus):
        missing = "q at the bonus position" if trace.layout.flags else "which drafted tokens were accepted"
        raise ValueError(f"{trace.path}: the log does not say {missing}, which a policy's step needs")
    outcomes = np.concatenate([shard.columns.accepted for shard in trace.shards])
    per_chunk = max(1, CHUNK_ROWS // (trace.gamma + 1))
    parts = []
    for first in range(0, trace.num_steps, per_chunk):
        steps = np.arange(first, min(first + per_chunk, trace.num_steps))
        drafted, p, q = trace.steps(steps)
        accepted = outcomes.reshape(-1, trace.gamma + 1)[steps]
        # up to the first that was not accepted, and that one
        kept = np.cumprod(
            np.pad(accepted[:, :-1] == ACCEPTED, [(0, 0), (1, 0)], constant_values=True), axis=1
        )
        p, q, accepted = (column[kept > 0] for column in (p, q, accepted))
        drafted = np.pad(drafted, [(0, 0), (0, 1)], constant_values=-1)[kept > 0]
        features = read_rows(q, drafted)
        features.confidence[accepted == UNKNOWN] = 0.0  # nothing was drafted, and nobody will ask
        beta = np.minimum(p, q).sum(axis=1).clip(max=1.0)
        tokens = np.where(accepted == ACCEPTED, drafted, -1).astype(np.int32)
        parts.append((tokens, drafted, accepted, beta, *features))
    tokens, drafted, accepted, beta, *columns = (np.concatenate(c) for c in zip(*parts, strict=True))
    none = np.empty((0, 0))
    return DraftLog(
        tokens=tokens,
        drafted=drafted,
        accepted=accepted,
        features=Features(*columns),
        beta=beta,
        tail=np.full(len(accepted), -1),
        tails=Features(none, none, none),
        source=f"trace {trace.path.name}, {trace.num_steps:,} steps of γ = {trace.gamma}",
    )
