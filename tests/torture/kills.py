"""Kill `simulate` at random moments, and let it go on: the counts must be those of an undisturbed run."""

import os
import random
import signal
import tempfile
import time
from pathlib import Path

from blocks import TRACEBACK, WRONG, Tally

from specsim import simulate
from specsim.core.distributions import synthetic_pair

P, Q = synthetic_pair("zipf", 300, 0.8, rng=0)
STEPS = 20_000_000
RUN = {"gamma": 4, "steps": STEPS, "rng": 3, "threads": 1}
#: Kills of one run before it may end.
IN_A_ROW = 20


def run_kills(number, seed):
    """A tally of `number` kills."""
    tally, rng, started = Tally("kills"), random.Random(seed), time.perf_counter()
    whole = _counts(simulate(P, Q, **RUN))
    usual = time.perf_counter()
    simulate(P, Q, **RUN)
    usual = time.perf_counter() - usual
    while tally.tried < number:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.part")
            if rng.random() < 0.5:  # through a symlink
                path.symlink_to(Path(folder, "elsewhere.part"))
            for _ in range(min(IN_A_ROW, number - tally.tried)):
                _kill_one(path, rng.random() * 2 * usual / IN_A_ROW)
                tally.tried += 1
            try:
                found = _counts(simulate(P, Q, **RUN, checkpoint=path))
            except Exception as error:
                tally.fault(TRACEBACK, f"after {tally.tried} kills: {error!r}")
                continue
            tally.outcomes["runs ended"] += 1
            if found != whole:
                tally.fault(WRONG, f"after {tally.tried} kills the counts differ")
            if left := sorted(one for one in os.listdir(folder) if one.startswith(".")):
                tally.fault(WRONG, f"{len(left)} temporary files are left, such as {left[0]}")
    tally.seconds = time.perf_counter() - started
    return tally


def _counts(run):
    return run.lengths.tobytes() + run.tokens.tobytes()


def _kill_one(path, seconds):
    child = os.fork()
    if child == 0:
        try:
            simulate(P, Q, **RUN, checkpoint=path, checkpoint_seconds=0.0)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
