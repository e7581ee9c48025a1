"""Steps on an NVIDIA GPU, with the same counts as on the CPU."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING

from specsim import rules
from specsim.simulation._counting import StepTally
from specsim.simulation._sources import FixedPairSource, RowSource

if TYPE_CHECKING:
    from specsim.simulation._cuda.counting import DeviceCounter
    from specsim.simulation._cuda.rows import DeviceRowCounter


def gpu_of(
    device: str | None,
    source: FixedPairSource | RowSource,
    rule: str | rules.Rule,
    tally: StepTally,
    threads: int | None,
    executor: Executor | str | None,
) -> DeviceCounter | DeviceRowCounter | None:
    """The counter of `device`, None for the CPU. Raises ValueError if the device cannot count these steps."""
    if device in (None, "cpu"):
        return None
    if device != "cuda":
        raise ValueError(f"device: {device!r} is neither 'cpu' nor 'cuda'")
    if executor is not None:
        raise ValueError("executor: one GPU counts all steps; for more, give each a shard=(i, n) of the run")
    if threads is not None:
        raise ValueError("threads: has no effect with device='cuda'; leave it out")
    try:
        from specsim.simulation._cuda.counting import DeviceCounter
        from specsim.simulation._cuda.rows import DeviceRowCounter
    except ImportError as error:
        raise ValueError(
            "device: 'cuda' needs numba-cuda, which is not installed: pip install 'specsim-decoding[cuda]'"
        ) from error
    if isinstance(source, FixedPairSource):
        return DeviceCounter(source)
    return DeviceRowCounter(source, rules.get(rule), tally)
