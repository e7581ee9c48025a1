"""The bundled example trace, recorded from the bundled n-gram pair by `make bundled-data`."""

from __future__ import annotations

from pathlib import Path

from specsim.traces._reader import Trace, open_trace


def default_trace() -> Trace:
    """Open the bundled trace: 768 steps, γ = 4, standard rule, 24 texts, rows truncated to 16 tokens.

    Examples
    --------
    >>> trace = default_trace()
    >>> trace.num_steps, trace.gamma, trace.top
    (768, 4, 16)
    """
    return open_trace(Path(__file__).parents[1] / "data" / "ngram-trace")
