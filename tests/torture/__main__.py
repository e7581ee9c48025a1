"""What specsim does when it is killed, called wrongly, and given damaged files.

    python tests/torture                          all kinds, about 25 minutes on one core
    python tests/torture --only kills flips       some of them
    python tests/torture --share 0.05             a twentieth of each

Four kinds: `simulate` killed at random moments, command lines and calls of public functions with hostile
values, and files of every kind with one bit flipped. For each it prints how many were tried, and how many
gave wrong numbers, a traceback (an exception that is no answer in specsim's words), or no end within 30
seconds. The exit status is 0 if none did."""

import argparse
import os
import sys
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # forks want a process with one thread
    os.environ.setdefault(name, "1")
for folder in (".", "helpers"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

#: How many of each kind are tried; of `flips`, for each kind of file.
NUMBERS = {"kills": 1000, "commands": 5000, "calls": 5000, "flips": 200}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*NUMBERS], default=[*NUMBERS])
    parser.add_argument("--share", type=float, default=1.0, help="of the numbers that are tried")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    tallies = []
    for kind in asked.only:
        number = max(1, round(asked.share * NUMBERS[kind]))
        for tally in _run(kind, number, asked.seed):
            tallies.append(tally)
            print(tally.line(), flush=True)
    faults = sum(sum(tally.faults.values()) for tally in tallies)
    print(f"{sum(tally.tried for tally in tallies):,} tried, {faults} faults")
    return int(faults > 0)


def _run(kind, number, seed):
    if kind == "kills":
        from kills import run_kills

        return [run_kills(number, seed)]
    if kind == "commands":
        from command_lines import run_commands

        return [run_commands(number, seed)]
    if kind == "calls":
        from calls import run_calls

        return [run_calls(number, seed)]
    from flips import run_flips

    return run_flips(number, seed)


if __name__ == "__main__":
    sys.exit(main())
