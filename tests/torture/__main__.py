"""What specsim does when it is killed, called wrongly, and given damaged files.

    python tests/torture                          all kinds, about 25 minutes on two cores
    python tests/torture --only kills flips       some of them
    python tests/torture --share 0.05             a twentieth of each

The kinds: `simulate` killed at random moments, commands in other surroundings (full disks, odd environments),
writers killed, run twice at once and elsewhere, command lines and calls with hostile values and odd types, files
with one bit flipped, files with forged values and those of others, hostile servers, hostile clients of `serve`,
and numbers that are known exactly. For each it prints how many were tried, and how many gave wrong numbers, a traceback (an exception that is no answer in specsim's words), or
no end within 30 seconds. The exit status is 0 if none did."""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # forks want a process with one thread
    os.environ.setdefault(name, "1")
for folder in (".", "helpers"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

#: How many of each kind are tried; of `flips` and `forged`, for each kind of file. The longest begin first.
NUMBERS = {"commands": 5000, "servers": 260, "calls": 5000, "kills": 1000, "flips": 200, "forged": 560}
NUMBERS |= {"exact": 8000, "surroundings": 220, "writers": 80, "serve": 5600}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*NUMBERS], default=[*NUMBERS])
    parser.add_argument("--share", type=float, default=1.0, help="of the numbers that are tried")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    tallies = []
    from blocks import run_kind

    # a process for each kind: some kinds shrink specsim's own functions
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:
        numbers = [max(1, round(asked.share * NUMBERS[kind])) for kind in asked.only]
        for found in pool.map(run_kind, asked.only, numbers, [asked.seed] * len(numbers)):
            tallies += found
    print("\n".join(tally.line() for tally in tallies))
    faults = sum(sum(tally.faults.values()) for tally in tallies)
    print(f"{sum(tally.tried for tally in tallies):,} tried, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
