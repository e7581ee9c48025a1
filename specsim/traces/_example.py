"""The bundled example trace: steps of the n-gram pair that comes with specsim, recorded by `make bundled-data`."""

from __future__ import annotations

from pathlib import Path

from specsim.traces._reader import Trace, open_trace

SHIPPED = Path(__file__).parents[1] / "data" / "ngram-trace"


def default_trace() -> Trace:
    """768 steps of γ = 4 of the n-gram pair under the standard rule, along 24 texts; the 16 most probable tokens of each row.

    >>> trace = default_trace()
    >>> trace.num_steps, trace.gamma, trace.top
    (768, 4, 16)
    """
    return open_trace(SHIPPED)
