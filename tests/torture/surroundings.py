"""Commands in surroundings that are not those of a user's terminal, and writers that are killed or run twice."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path

from blocks import TRACEBACK, WRONG, in_blocks
from command_lines import make_files
from core.test_jit import OPENED

#: Commands that write; {} is a name not yet used.
ENGINE = "audit engine specsim --planted pair --tokens 300 --seed 1 --out {}"
JOBS = [
    ENGINE, "audit standard --level smoke --case two-point --seed 1 --out {}",
    "trace record {} --steps 200 --gamma 2 --seed 1", "plant {} --order 1 --vocab-size 4 --context 64 --seed 1",
    "simulate zipf --over gamma=1,2 --vocab-size 20 --steps 64 --seed 1 -o {}.csv",
    "simulate zipf --vocab-size 20 --steps 1000 --seed 1 -o {}.json",
]  # fmt: skip
LINES = [
    *JOBS, "audit standard --level smoke --seed 1 --shard 0/8 --out {}.part", "audit offline {} --seed 1",
    "trace import log.npz --out {}", "compare zipf --rule standard --vocab-size 20 --steps 64 --seed 1 --out {}",
    "simulate zipf --vocab-size 20 --steps 1000 --seed 1 --checkpoint {}.part", "plan --alpha 0.8 --c 0.05",
]  # fmt: skip


def _removed_folder():
    os.mkdir("removed")
    os.chdir("removed")
    os.rmdir("../removed")


def _shadows():
    os.makedirs("shadows", exist_ok=True)
    for name in ("cli", "core", "rules", "models", "stats", "traces", "engines", "testing"):
        Path("shadows", f"{name}.py").write_text("raise SystemExit(9)")


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
    "an unknown place": (lambda: None, {"TZ": "x/y", "LANG": "xx_XX.bad", "LC_ALL": "xx_XX.bad"}),
    "modules of the same names": (_shadows, {"PYTHONPATH": f"shadows:{os.environ.get('PYTHONPATH', '')}"}),
    "no temporary folder": (lambda: None, {"TMPDIR": "/dev/null/tmp"}),
    "odd settings of numba": (lambda: None, {"NUMBA_NUM_THREADS": "x", "NUMBA_CACHE_DIR": "/dev/null/x"}),
    "no docstrings, colours": (lambda: None, {"PYTHONOPTIMIZE": "2", "FORCE_COLOR": "1", "COLUMNS": "1"}),
    "no PATH, no terminal": (lambda: None, {"PATH": None, "TERM": "unknown", "COLUMNS": "-3"}),
}
#: Where a command has to write the same: all but times.
ELSEWHERE = [
    {"NUMBA_NUM_THREADS": "1"}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": "-avx2,-fma,-avx512f"},
    {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"}, {"PYTHONHASHSEED": "7"}, {"TZ": "Asia/Tokyo", "LC_ALL": "C"},
]  # fmt: skip
TIMES, TIMED = {"seconds", "judging", "provenance", "date", "sha256"}, {".html", ".xml", ".jsonl", ".part"}
TESTS = Path(__file__).resolve().parents[1] / "core/test_jit.py"
#: Seconds within which a writer is killed.
WITHIN = 1.5


def run_surroundings(number, seed):
    """Tallies of `number` commands, and of caches of kernels that another user may have written."""
    rng = random.Random(seed)
    tasks = [(line, where) for line in LINES for where in SURROUNDINGS]
    rng.shuffle(tasks)

    def act(task):
        line, where = task
        name = f"new-{rng.randrange(10**9)}"
        change, environment = SURROUNDINGS[where]
        return _cleared(name, _judged(*_run(line, name, change, environment)))

    yield in_blocks("surroundings", tasks[:number], act, lambda task: f"{task[1]}: {task[0]}", make_files)
    yield in_blocks("kernel caches", [*OPENED], _opened, str)


def _opened(way):
    """A cache of kernels in which others can have written `way`: the test of it, in a process of its own."""
    test = f"{TESTS}::test_code_that_others_can_have_written_is_not_run[{way}]"
    ended = subprocess.call(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test], cwd=TESTS.parents[2]
    )
    return f"code {ended}", None if ended == 0 else (WRONG, "a cache of others is run")


def run_writers(number, seed):
    """Tallies of commands that are killed, of pairs of them at once, and of the same ones elsewhere."""
    rng = random.Random(seed)
    killed = [(ENGINE, rng.randrange(2, 6)) for _ in range(3 * number // 8)]
    killed += [(rng.choice(LINES), 1) for _ in range(number - len(killed))]
    twice = [(ENGINE, ENGINE.replace("seed 1", f"seed {rng.choice((1, 2))}")) for _ in range(number // 5)]
    there = [(line, where) for line in JOBS for where in ELSEWHERE][: number // 2]

    @cache
    def whole(line):
        """What a command writes that nobody disturbs."""
        _run(line, "whole")
        return _cleared("whole", _written("whole"))

    def act(task):
        line, how = task
        name = f"new-{rng.randrange(10**9)}"
        for _ in range(how if isinstance(how, int) else 0):
            _run(line, name, seconds=WITHIN * rng.random())
            _written(name)
        beside = [_started(how, name)] if isinstance(how, str) else []
        code, said = _run(line, name, environment=how if isinstance(how, dict) else {})
        ended, fault = _judged(code, said)
        for process in beside:
            fault = fault or _judged(*_ended(process))[1]
        allowed = [whole(line), *(whole(how) for _ in beside)]
        if not fault and (code != 2 or line == ENGINE) and _written(name) not in allowed:
            fault = WRONG, f"not what it writes undisturbed: {said[-300:]}"
        return _cleared(name, (ended, fault))

    def prepare(lines):
        make_files()
        for line in lines:
            whole(line)

    for kind, tasks in (("killed writers", killed), ("two at once", twice), ("elsewhere", there)):
        yield in_blocks(kind, tasks, act, str, partial(prepare, {line for line, _ in tasks}))


def _cleared(name, found):
    """`found`, after the files of this name are removed."""
    for left in Path().glob(f"{name}*"):
        shutil.rmtree(left, ignore_errors=True)
        left.unlink(missing_ok=True)
    return found


def _written(name):
    """The files of this name, JSON without times. Raises ValueError for half a file of JSON."""
    found = {}
    for path in Path().rglob("*"):
        if str(path).startswith(name) and path.is_file() and path.suffix not in TIMED:
            content = path.read_bytes()
            if path.suffix in (".json", ".saved"):
                content = json.loads(content, object_pairs_hook=lambda pairs: [one for one in pairs if one[0] not in TIMES])  # fmt: skip
            found[str(path)[len(name) :]] = content
    return found


def _started(line, name, change=lambda: None, environment=None):
    """A process of `specsim` with the words of a line."""
    here = {name: value for name, value in (os.environ | (environment or {})).items() if value is not None}
    return subprocess.Popen(
        [sys.executable, "-m", "specsim", *line.replace("{}", name).split()],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=here, preexec_fn=change,
    )  # fmt: skip


def _run(line, name, change=lambda: None, environment=None, seconds=None):
    """The exit code of a command, killed after some seconds, and what it printed as errors."""
    process = _started(line, name, change, environment)
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    return _ended(process)


def _ended(process):
    _, said = process.communicate()
    return process.returncode, said.decode(errors="replace")


def _judged(code, said):
    told = "Traceback" in said or "report it as a bug" in said or (code == 2 and not said)
    if told or code not in (0, 1, 2, 3):
        return "accident", (TRACEBACK, f"exit code {code}: {said[-500:]}")
    return f"code {code}", None
