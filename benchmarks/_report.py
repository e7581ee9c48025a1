"""Timing of rivals in turn, and the list of what was measured."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba.core.registry import cpu_target

from specsim.core._provenance import installed_version, specsim_version

Work = Callable[[], object]
ROUNDS = 7
LIBRARIES = ("numpy", "numba", "jax", "gmpy2", "msgspec", "orjson", "pyarrow", "distributed")


@dataclass(frozen=True)
class Ratio:
    """The median of pairwise ratios with their range, what is wanted of it, and the rates behind it."""

    part: str
    name: str
    median: float
    low: float
    high: float
    wanted: str
    detail: str


@dataclass
class Report:
    """What was measured on this machine; `part` is the benchmark that is being run."""

    part: str = ""
    found: list[Ratio] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def machine(self) -> dict[str, Any]:
        """NUMBA_CPU_NAME and NUMBA_CPU_FEATURES may have kernels compiled for an older processor."""
        _, taken, features = cpu_target.target_context.codegen().magic_tuple()
        known, cores = {"+avx512f": "AVX-512", "+avx2": "AVX2"}, len(os.sched_getaffinity(0))
        vectors = next((known[one] for one in known if one in features.split(",")), platform.machine())
        processor = _processor() + (f", kernels for {taken}" if taken != get_host_cpu_name() else "")
        return {"processor": processor, "vectors": vectors, "cores": cores, "system": platform.system()}

    @property
    def versions(self) -> dict[str, str]:
        """Of specsim, Python and the rivals that are installed."""
        found = {name: installed_version(name, "") for name in LIBRARIES}
        own = {"specsim": specsim_version(), "python": platform.python_version()}
        return own | {name: number for name, number in found.items() if number}

    def header(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        processor, vectors, cores, _ = self.machine.values()
        return f"{processor}, {vectors}, {cores} cores; {versions}; medians of {ROUNDS} or more"

    def add(self, name: str, values: np.ndarray | float, wanted: str = "", detail: str = "") -> None:
        """Print and keep one row; `values` are the pairwise ratios."""
        values = np.atleast_1d(values)
        low, middle, high = float(values.min()), float(np.median(values)), float(values.max())
        self.found.append(Ratio(self.part, name, middle, low, high, wanted, detail))
        spread = f"({low:.2f} – {high:.2f})" if values.size > 1 else ""
        goal = f"wanted {wanted}" if wanted else ""
        print(f"  {name:<58}{middle:8.2f}  {spread:<18}{goal:<14}{detail}", flush=True)

    def to_dict(self) -> dict[str, Any]:
        rows = [asdict(one) for one in self.found]
        return {"machine": self.machine, "versions": self.versions, "date": self.date, "ratios": rows}

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def seconds(work: Work, clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


def in_turn(
    one: Work, other: Work, rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of two rivals that are timed A B A B …, after a warm-up, so that a machine that is shared, or
    slows down, does both of them the same harm; with `process_time` seconds of this process."""
    one(), other()
    pairs = np.array([(seconds(one, clock), seconds(other, clock)) for _ in range(rounds)])
    return pairs[:, 0], pairs[:, 1]


def _processor() -> str:
    """Its name, as Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
