"""Converts a recorded trace to a log of drafts.

A step of a trace has one row for each of its γ + 1 positions, of which the first τ drafted tokens were
accepted. Its positions 0 … τ are positions of the text; step after step they become the log's. A trace lacks

- the draft's tokens after a rejected one, so there are no tails (`ahead` is 0);
- the outcome of a draft at the bonus position, which was not tested: it is `UNKNOWN`.

A policy that drafts on ends its step there, and `PolicyRun.truncated` counts such steps: in the first case
their time is too small, in the second also their tokens per step. Policies that fix γ beforehand lose nothing
in the first case. With few truncated steps the log is as good as a drawn one, since the recorded tests are
those of the target's own text. Consecutive steps are assumed to continue each other, as `specsim trace
record` writes them within a text; no step of a policy crosses the end of a recorded one.
"""

import numpy as np

from specsim.planning._policies._log import ACCEPTED, UNKNOWN, DraftLog, Features, read_rows
from specsim.traces._reader import Trace

#: Rows of p and q that are read at a time.
CHUNK_ROWS = 4096


def log_from_trace(trace: Trace) -> DraftLog:
    """Convert a recorded trace to a log of drafts, without tails and `UNKNOWN` at bonus positions.

    Parameters
    ----------
    trace : Trace
        With whole rows, accept flags, and q at the bonus position.

    Returns
    -------
    DraftLog

    Raises
    ------
    ValueError, TypeError
        For anything but such a trace, no step, or a damaged row.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import open_trace
    >>> from specsim.traces import writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writer(folder, vocab_size=2, gamma=1) as steps:
    ...         steps.append(context=0, tokens=[0], accepted=1, p=[[0.5, 0.5]] * 2, q=[[0.75, 0.25]] * 2)
    ...     log = log_from_trace(open_trace(folder))
    >>> len(log), log.drafted.tolist()
    (2, [0, -1])
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace: expected what open_trace returns, got {type(trace).__name__}")
    if trace.num_steps == 0:
        raise ValueError(f"{trace.path}: the trace holds no step; record some first")
    if trace.top is not None:
        raise ValueError(
            f"{trace.path}: rows are cut to their {trace.top} most probable tokens, so that confidence, "
            "entropy and β are intervals; record the trace with whole rows"
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
        # up to the first token that was not accepted, included
        kept = np.cumprod(
            np.pad(accepted[:, :-1] == ACCEPTED, [(0, 0), (1, 0)], constant_values=True), axis=1
        )
        p, q, accepted = (column[kept > 0] for column in (p, q, accepted))
        drafted = np.pad(drafted, [(0, 0), (0, 1)], constant_values=-1)[kept > 0]
        features = read_rows(q, drafted)
        features.confidence[accepted == UNKNOWN] = 0.0  # nothing was drafted, and the value is not used
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
