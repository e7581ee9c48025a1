"""Command lines, made from the options of every command, with hostile values and with paths to hostile files."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import stat
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
from blocks import TRACEBACK, WRONG, in_blocks
from calls import make_things
from commands import every_command
from judging import answer_of

from specsim import acceptance_by_drafts, cli
from specsim.__main__ import main
from specsim.auditing._cases import battery
from specsim.auditing._checks import subjects
from specsim.cli._app import app
from specsim.engines._server.http import Server

#: Lines that a command can carry out quickly, to be changed in one to three places; {} is a name not yet used.
LINES = (Path(__file__).parent / "lines.txt").read_text().splitlines()

NUMBERS = [
    "0", "-1", "1", "2", "3", "7", "-0", "+5", "1.5", "1e3", "1e-320", "0.5", "0.999999999999", "1e308",
    "1e309", "-1e309", "nan", "inf", "-inf", "NaN", "0x10", "1_000", "١٢", "²", "1/2", "½",
    "9223372036854775808", "18446744073709551616", "4294967296", "-9223372036854775809",
    "99999999999999999999999999999",
    "", " ", "9" * 5000, "1e999999999", "0." + "0" * 5000 + "1", "-1e-999999999", "1,000", "80%", "2.47x",
]  # fmt: skip
WORDS = [
    "", " ", "x", "-", "--", "standard", "block", "lenience:lenience=nan", "lenience:lenience=-1",
    "lenience:lenience", ":", "a:b", "json:loads", "os:getcwd", "mine:none", "mine:hangs", "mine:dies",
    "cascade_diff:alpha=1e400", "standard:x=1", "typical", "zipf", "one-hot", "ngram", "float16", "bfloat16",
    "float8", "vllm", "sglang", "top", "without replacement", "greedy", "list", "quick", "deep", "0/2", "2/2",
    "-1/2", "0/0", "99999999999999999999/999999999999999999999", "1,1", "4,2,1", "0,0", "-1,2", ",", "9" * 50,
    "a=b,c", "a=0.5,0.1", "=,", "a=1/0,0.1", "a=2/1,nan", "nul\0"[:3], "\x1b[31m", "\udcff", "ü", "x" * 5000,
    "a\nb", "{}", "%s", "http://127.0.0.1:9", "http://[", "tcp://127.0.0.1:9", "gguf", "hf", "processed",
    "raw", "p", "q", "*", "/abs*", "**/..", "[", "--json", "--help",
]  # fmt: skip
PATHS = ["", ".", "..", "fifo", "socket", "loop", "dangling", "null", "/dev/zero", "/dev/full", "/proc/self/mem", "missing/below", "run.part/below", "link.part", "run.part", "models.npz", "trace", "cut-trace", "pair", "texts", "log.npz", "served.jsonl", "responses.jsonl", "prompts.txt", "latin.txt", "deep.json", "deep.jsonl", "deep.safetensors", "deep", "empty", "empty-folder", "read-only", "cases", "answers", "x" * 300, "\udcff", "\x1b[31m", "a\nb", "-", "wrong.npz", "wrong.parquet", "wrong.safetensors", "pickled.npz"]  # fmt: skip
#: Numbers that would be so much work.
LONG = re.compile(r"[+]?(1e308|4294967296)$")


def _options():
    """{words of a command: its options, (name, kind)}."""
    found = {}
    for path in every_command():
        command = app
        for word in path:
            command = command[word]
        if command.default_command is not None:
            arguments = command.assemble_argument_collection()
            named = [one for one in arguments if one.names[0].startswith("--")]
            found[path] = [(one.names[0], str(one.hint)) for one in named]
    return found


def run_commands(number, seed):
    """A tally of `number` command lines."""
    rng, options = random.Random(seed), _options()
    smaller_audits()
    tasks = [line.split() for line in LINES]
    while len(tasks) < number:
        tasks.append(_changed(rng.choice(LINES).split(), rng, options))

    def act(line):
        words = [word.replace("{}", f"new-{number}") for number, word in enumerate(line)]
        ended = _ran(words)
        for word in words:
            if word.startswith("new-"):
                shutil.rmtree(word, ignore_errors=True)
                Path(word).unlink(missing_ok=True)
        _check_devices()
        return ended

    return in_blocks(
        "command lines", tasks[:number], act, lambda line: " ".join(map(_short, line)), make_files
    )


def _short(word):
    return ascii(word)[1:-1] if len(word) < 60 else f"{ascii(word[:20])[1:-1]}… ({len(word)} letters)"


def _changed(line, rng, options):
    """A line with one to three options added or given another value."""
    path = max((path for path in options if tuple(line[: len(path)]) == path), key=len)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.15:  # an argument without a name
            place = rng.randrange(len(path), len(line) + 1)
            line[place : place + rng.randrange(2)] = [_value("Path | str", rng)]
            continue
        if not options[path]:
            line.append(rng.choice(WORDS))
            continue
        name, kind = rng.choice(options[path])
        if name in line:
            at = line.index(name)
            del line[at : at + (1 if "bool" in kind else 2)]
        value = _value(kind, rng)
        if name in ("--steps", "--tokens", "--max-new-tokens", "--connections") and LONG.match(value):
            value = "-1"
        line += [name] if "bool" in kind else [f"{name}={value}"] if rng.random() < 0.7 else [name, value]
    return line


def _value(kind, rng):
    pool = WORDS + NUMBERS[:8] + PATHS
    if "int" in kind or "float" in kind:
        pool = NUMBERS if rng.random() < 0.9 else WORDS
    elif "Path" in kind and rng.random() < 0.85:
        pool = PATHS
    elif rng.random() < 0.3:
        pool = NUMBERS
    return rng.choice(pool).replace("\0", "")


def _ran(words):
    """How `specsim *words` ended."""
    out, err, seen = io.StringIO(), io.StringIO(), []
    complain = cli._complain

    def noticed(message):
        seen.append(sys.exception())
        return complain(message)

    with (
        patch.object(sys, "argv", ["specsim", *words]),
        patch.object(cli, "_complain", noticed),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
    if code not in (0, 1, 2, 3):
        return "accident", (TRACEBACK, f"exit code {code}")
    said = err.getvalue()
    if "Traceback" in said or "report it as a bug" in said:
        return "accident", (TRACEBACK, said[-500:])
    if seen and type(seen[0]).__module__.split(".")[0] != "cyclopts" and (fault := answer_of(seen[0])):
        return "accident", (TRACEBACK, fault)
    if code == 2 and not said and words[:2] != ["trace", "info"]:
        return "accident", (TRACEBACK, "exit code 2 without a message")
    told = code == 0 and "--json" in words and "--help" not in words
    if told and (wrong := _wrong_numbers(out.getvalue())):
        return "done", (WRONG, wrong)
    return f"code {code}", None


def _wrong_numbers(printed):
    """What is wrong with printed JSON: it has NaN or infinity, or counts that do not add up."""
    try:
        found = json.loads(printed, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    except ValueError as error:
        return f"no JSON: {error}"
    if isinstance(found, dict) and "lengths" in found and "steps" in found:
        if sum(found["lengths"]) != found["steps"]:
            return "lengths do not add up to the steps"
        emitted = sum((k + 1) * n for k, n in enumerate(found["lengths"]))
        if sum(found.get("tokens", [emitted])) != emitted:
            return "tokens do not add up to the lengths"
        if not 0 <= found["alpha_context"] <= 1 + 1e-9:
            return "alpha_context is outside [0, 1]"
    return None


def smaller_audits():
    """Audits and comparisons of few steps, without the largest vocabularies; a server that ends at once."""
    few = battery.Level(2**9, 2**8, 2**24, 2**5)
    for name in battery.LEVELS:
        battery.LEVELS[name] = few
    whole = subjects.battery
    subjects.battery = lambda subject: [case for case in whole(subject) if case.name in CASES]
    acceptance_by_drafts.__wrapped__.__kwdefaults__["steps"] = 64
    Server.serve_forever = lambda self, *_: None


CASES = {"two-point", "asymmetric", "disjoint", "decoder, short", "Markov"}


def make_files():
    """Sound and hostile files in this folder."""
    make_things()
    Path("dangling").symlink_to("nowhere/at/all")
    Path("link.part").symlink_to("linked.part")
    with contextlib.suppress(OSError):  # where no device can be made
        os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    Path("prompts.txt").write_text("a b\nb a\n")
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    deep = b"[" * 200_000
    for name in ("deep.json", "deep.jsonl"):
        Path(name).write_bytes(deep)
    Path("deep.safetensors").write_bytes(len(deep).to_bytes(8, "little") + deep)
    for name in ("deep", "empty-folder", "read-only"):
        Path(name).mkdir()
    for name in ("manifest.json", "planted.json"):
        Path("deep", name).write_bytes(deep)
    Path("read-only").chmod(0o555)
    Path("empty").touch()
    for name in ("wrong.npz", "wrong.parquet", "wrong.safetensors"):
        Path(name).write_bytes(b"\x00\xff" * 500)
    np.savez("pickled.npz", p=np.array([{"a": 1}], dtype=object))
    shutil.copytree("trace", "cut-trace")
    for file in Path("cut-trace").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-5])
    make_cases()


def make_cases():
    """Exported cases, and the tokens of an engine for them."""
    from safetensors.numpy import load_file, save_file

    import specsim
    from specsim.auditing._offline import export

    export("cases", rng=1)
    Path("answers").mkdir()
    for file in Path("cases").glob("*.safetensors"):
        arrays = load_file(file)
        drafts, p, q = arrays["draft_tokens"], arrays["p"], arrays["q"]
        p, q = (
            rows if rows.ndim == 3 else np.broadcast_to(rows, (len(drafts), *rows.shape)) for rows in (p, q)
        )
        found = specsim.verify(drafts, p, q, rng=1)
        save_file({"tokens": np.ascontiguousarray(found.tokens)}, Path("answers", file.name))


def _check_devices():
    """Raise if a command replaced what is not a file."""
    for name in ("fifo", "null", "socket"):
        if os.path.lexists(name) and stat.S_ISREG(os.stat(name).st_mode):
            raise RuntimeError(f"{name} was replaced by a file")
