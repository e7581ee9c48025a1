"""Logs: α of a trace beside a plain read of its rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks._report import Report, in_turn
from specsim.core.distributions import synthetic_pair
from specsim.traces import open_trace, summarise, writer

GAMMA = 5


def measure(report: Report) -> None:
    for size in (256, 32_000):
        for dtype in ("float32", "float16", "bfloat16"):
            alpha(report, size, dtype)


def alpha(report: Report, size: int, dtype: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = open_trace(_write_trace(Path(folder) / "trace", size, dtype, 2**28))
        arrays = [array for shard in trace.shards for array in (shard.columns.p, shard.columns.q)]
        words = [array.reshape(-1).view(np.uint64) for array in arrays]
        plain, read = in_turn(lambda: [w.sum() for w in words], lambda: summarise(trace))
        total = sum(w.nbytes for w in words)
        report.add(
            f"bytes/s: trace alpha / plain read, V = {size:,}, {dtype}",
            plain / read,
            "≥ 0.9" if dtype == "float32" else "≥ 0.85",
            f"{total / np.median(read) / 1e9:.1f} GB/s of {total / np.median(plain) / 1e9:.1f}",
        )


def _write_trace(path: Path, vocab_size: int, dtype: str, size: int) -> Path:
    """A trace of about `size` bytes."""
    p, q = synthetic_pair("zipf", vocab_size, 0.8)
    p_rows, q_rows = np.tile(p, (GAMMA + 1, 1)), np.tile(q, (GAMMA + 1, 1))
    steps = size // ((8 if dtype == "float32" else 4) * vocab_size * (GAMMA + 1))
    with writer(path, vocab_size=vocab_size, gamma=GAMMA, dtype=dtype) as log:
        for step in range(steps):
            log.append(step, [0] * GAMMA, 2, p_rows, q_rows)
    return path
