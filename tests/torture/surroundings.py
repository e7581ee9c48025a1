"""Commands in surroundings that are not those of a user's terminal, and writers that are killed."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from blocks import TRACEBACK, WRONG, in_blocks
from command_lines import make_files

#: Commands that write; {} is a name not yet used.
LINES = [
    "",
    "audit standard --level smoke --case two-point --seed 1 --out {}",
    "audit standard --level smoke --case two-point --seed 1 --shard 0/1 --out {}.part",
    "audit engine specsim --planted pair --tokens 300 --seed 1 --out {}",
    "audit offline {} --case two-point --seed 1",
    "trace record {} --steps 200 --gamma 2 --seed 1",
    "trace import log.npz --out {}",
    "plant {} --order 1 --vocab-size 4 --context 64 --seed 1",
    "compare zipf --rule standard --vocab-size 20 --steps 64 --seed 1 --out {}",
    "simulate zipf --vocab-size 20 --steps 1000 --seed 1 -o {}.json",
    "simulate zipf --vocab-size 20 --steps 1000 --seed 1 --checkpoint {}.part",
    "simulate zipf --over gamma=1,2 --vocab-size 20 --steps 64 --seed 1 -o {}.csv",
    "plan --alpha 0.8 --c 0.05",
    "",
][1:-1]


def _removed_folder():
    os.mkdir("removed")
    os.chdir("removed")
    os.rmdir("../removed")


def _limit(name, most):
    return lambda: resource.setrlimit(getattr(resource, name), (most, most))


#: What is done in the process before the command, and what is taken from or put into its environment.
SURROUNDINGS = {
    "umask 000": (lambda: os.umask(0), {}),
    "SIGINT ignored": (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), {}),
    "no home": (lambda: None, dict.fromkeys(("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME"))),
    "a home that cannot be": (lambda: None, {"HOME": "/dev/null/home", "XDG_CACHE_HOME": "/dev/null/cache"}),
    "the folder is removed": (_removed_folder, {}),
    "no room for files": (_limit("RLIMIT_FSIZE", 0), {}),
    "little room for files": (_limit("RLIMIT_FSIZE", 3000), {}),
    "few open files": (_limit("RLIMIT_NOFILE", 24), {}),
    "standard output is full": (lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1), {}),
    "standard output is closed": (lambda: os.close(1), {}),
    "standard input is closed": (lambda: os.close(0), {}),
    "ASCII": (lambda: None, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
    "no PATH, no terminal": (lambda: None, {"PATH": None, "TERM": "unknown", "COLUMNS": "-3"}),
}
#: Seconds within which a writer is killed.
KILLED, WITHIN = "killed", 4.0


def run_surroundings(number, seed):
    """A tally of `number` commands, a third of them killed."""
    rng = random.Random(seed)
    tasks = [(line, where) for line in LINES for where in SURROUNDINGS]
    rng.shuffle(tasks)
    tasks = tasks[: max(1, 2 * number // 3)]
    tasks += [(rng.choice(LINES), KILLED) for _ in range(number - len(tasks))]

    def act(task):
        line, where = task
        name = f"new-{rng.randrange(10**9)}"
        words = line.replace("{}", name).split()
        if where != KILLED:
            change, environment = SURROUNDINGS[where]
            ended = _judged(*_run(words, change, environment))
        else:
            _run(words, lambda: None, {}, WITHIN * rng.random())
            ended = _half_written(name) or _judged(*_run(words, lambda: None, {}))
        for left in Path().glob(f"{name}*"):
            shutil.rmtree(left, ignore_errors=True)
            left.unlink(missing_ok=True)
        return ended

    return in_blocks("surroundings", tasks, act, lambda task: f"{task[1]}: {task[0]}", make_files)


def _run(words, change, environment, seconds=None):
    """The exit code of `specsim *words`, killed after some seconds, and what it printed as errors."""
    here = {name: value for name, value in (os.environ | environment).items() if value is not None}
    process = subprocess.Popen(
        [sys.executable, "-m", "specsim", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=here, preexec_fn=change,
    )  # fmt: skip
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    _, said = process.communicate()
    return process.returncode, said.decode(errors="replace")


def _judged(code, said):
    if code not in (0, 1, 2, 3):
        return "accident", (TRACEBACK, f"exit code {code}: {said[-300:]}")
    if "Traceback" in said or "report it as a bug" in said:
        return "accident", (TRACEBACK, said[-500:])
    if code == 2 and not said:
        return "accident", (TRACEBACK, "exit code 2 without a message")
    return f"code {code}", None


def _half_written(name):
    """A fault if a file in JSON that a killed command left is not whole."""
    for path in [*Path().glob(f"{name}*.json"), *Path().glob(f"{name}/*.json")]:
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            return "half a file", (WRONG, f"{path.name} was left half written: {error}")
    return None
