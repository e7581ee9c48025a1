"""Steps on an NVIDIA GPU, with the same counts as on the CPU."""

from concurrent.futures import Executor
from typing import Any

from specsim import rules
from specsim.core._tables import installing
from specsim.simulation._counting import StepTally
from specsim.simulation._sources import FixedPairSource, RowSource


def gpu_of(
    device: str | None,
    source: FixedPairSource | RowSource,
    rule: str | rules.Rule,
    tally: StepTally,
    threads: int | None,
    executor: Executor | str | None,
) -> Any:
    """The counter of `device`, with a `name` and `count(key, intervals)`; None for the CPU, or ValueError."""
    if device in (None, "cpu"):
        return None
    if device != "cuda":
        raise ValueError(f"device: {device!r} is unknown; give 'cpu' or 'cuda'")
    if executor is not None:
        raise ValueError("executor: one GPU counts all steps; leave it out, or give each GPU a shard=(i, n)")
    if threads is not None:
        raise ValueError("threads: has no effect with device='cuda'; leave it out")
    try:
        from specsim.simulation._cuda.counting import DeviceCounter
        from specsim.simulation._cuda.rows import DeviceRowCounter
    except ImportError as error:
        raise ValueError(
            f"device: 'cuda' needs numba-cuda, which is missing; {installing('cuda')}"
        ) from error
    if isinstance(source, FixedPairSource):
        return DeviceCounter(source)
    return DeviceRowCounter(source, rules.get(rule), tally)
