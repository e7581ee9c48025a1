"""Steps of a fixed pair on a GPU, beside all cores of the CPU, and beside the random numbers and the look-ups
of a step alone, which bound what it can cost. Left out where there is no GPU."""

from __future__ import annotations

import numpy as np

import specsim
from benchmarks._report import Report, Work, in_turn
from specsim.distributions import synthetic_pair

GAMMA, VOCAB_SIZE, ROUNDS = 5, 1000, 5
ON_DEVICE, ON_CPU = 2**31, 2**26


def measure(report: Report) -> None:
    try:
        from specsim.core._cuda import SIMULATED, DeviceError, current_device

        name, multiprocessors, _ = current_device()
    except ImportError:
        print("  left out: pip install 'specsim-decoding[cuda]'")
        return
    except DeviceError as error:
        print(f"  left out: {error}")
        return
    if SIMULATED:
        print("  left out: NUMBA_ENABLE_CUDASIM is set")
        return
    p, q = synthetic_pair("zipf", VOCAB_SIZE, 0.8, rng=0)
    from benchmarks._cuda_parts import parts_of_a_step

    parts = parts_of_a_step(p, GAMMA, ON_DEVICE, multiprocessors)
    for rule in ("standard", "block"):

        def run(steps: int, device: str, rule: str = rule) -> Work:
            return lambda: specsim.simulate(p, q, rule=rule, gamma=GAMMA, steps=steps, rng=1, device=device)

        one, other = in_turn(run(ON_CPU, "cpu"), run(ON_DEVICE, "cuda"), ROUNDS)
        rate = f"{np.median(ON_DEVICE / other):.2e} steps a second on the {name}"
        report.add(f"{rule}: CPU / GPU, per step", one / other * ON_DEVICE / ON_CPU, "", rate)
        for part, work in parts.items():
            one, other = in_turn(run(ON_DEVICE, "cuda"), work, ROUNDS)
            rate = f"{np.median(ON_DEVICE / other):.2e} steps a second"
            report.add(f"{rule}: a step / {part} of a step", one / other, "≥ 1", rate)
