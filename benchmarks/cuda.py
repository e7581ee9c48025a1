"""Steps of a fixed pair on a GPU, beside all cores of the CPU, and beside the random numbers and the look-ups
of a step alone, which bound what it can cost. Left out where there is no GPU."""

from __future__ import annotations

import numpy as np

from benchmarks._report import Report

VOCAB_SIZE, STEPS, ROUNDS = 1000, 2**31, 5


def measure(report: Report) -> None:
    try:
        from specsim.core._cuda import SIMULATED, DeviceError, current_device

        name, multiprocessors, _ = current_device()
    except ImportError:
        print("  left out: pip install '.[cuda]'")
        return
    except DeviceError as error:
        print(f"  left out: {error}")
        return
    if SIMULATED:
        print("  left out: NUMBA_ENABLE_CUDASIM is set")
        return
    from benchmarks._cuda_parts import speeds_of

    for rule in ("standard", "block"):
        speeds = speeds_of(rule, VOCAB_SIZE, STEPS, multiprocessors, ROUNDS)
        own = speeds.pop("in all")
        rate = f"{np.median(own):.2e} steps a second on the {name}"
        report.add(f"{rule}: GPU / CPU, steps a second", own / speeds.pop("CPU"), "", rate)
        for part, speed in speeds.items():
            rate = f"{np.median(speed):.2e} steps a second"
            report.add(f"{rule}: {part} / a step, steps a second", speed / own, "≥ 1", rate)
