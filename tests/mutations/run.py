"""Which mutations of the library the tests notice.

`mutations.toml` lists mutations, each a few lines of the package, what replaces them, and the tests that are
expected to fail. Every mutation is applied to a copy of the working tree in a temporary folder. The copy
without a mutation is tested first: it must pass.

    python tests/mutations/run.py                       all mutations, each with the tests that the table names
    python tests/mutations/run.py --only NAME NAME      some of them
    python tests/mutations/run.py --all                 each with the whole suite
    python tests/mutations/run.py --out result.json     keep the result; those of mutations that are not run stay in the file

The exit status is 0 if every mutation was killed."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PACKAGE = "specsim"
TABLE = Path(__file__).with_name("mutations.toml")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
PASSED, FAILED = 0, 1


class Mutation(NamedTuple):
    """`code` in `file` becomes `becomes`; pytest's `-k keyword` of `tests` is expected to fail."""

    name: str
    file: str
    code: str
    becomes: str
    tests: str
    keyword: str = ""

    @property
    def selection(self) -> list[str]:
        return [*self.tests.split(), *(("-k", self.keyword) if self.keyword else ())]


class Outcome(NamedTuple):
    """`by` is the first test that failed, `because` its message."""

    name: str
    file: str
    outcome: str
    seconds: float
    by: str = ""
    because: str = ""


def read_table() -> list[Mutation]:
    """Raises ValueError where two mutations have one name, and where the code is not found once."""
    table = [Mutation(**entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"]]
    names = [mutation.name for mutation in table]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{TABLE}: several mutations are named {', '.join(twice)}")
    return [mutation._replace(file=place_of(mutation)) for mutation in table]


def place_of(mutation: Mutation) -> str:
    """The file that has the code; where it was moved, the file of the package that does, of the same name if
    several."""
    stated = ROOT / mutation.file
    moved = not stated.is_file()
    candidates = sorted((ROOT / PACKAGE).rglob("*.py")) if moved else [stated]
    counts = {path: path.read_text(encoding="utf-8").count(mutation.code) for path in candidates}
    found = [path for path, count in counts.items() for _ in range(count)]
    if moved and len(found) > 1:
        found = [path for path in found if path.name == stated.name]
    if len(found) != 1:
        where = f"{PACKAGE} ({mutation.file} does not exist)" if moved else mutation.file
        raise ValueError(f"{mutation.name}: its code occurs {len(found)} times in {where}; once is needed")
    return str(found[0].relative_to(ROOT))


def copy_tree(folder: Path) -> None:
    """The tracked files and those that git does not ignore, in place of what `folder` has."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def mutate(mutation: Mutation, folder: Path) -> None:
    path = folder / mutation.file
    path.write_text(
        path.read_text(encoding="utf-8").replace(mutation.code, mutation.becomes), encoding="utf-8"
    )


def run_tests(folder: Path, arguments: list[str], cache: Path, timeout: float) -> tuple[int | None, str, str]:
    """Pytest's exit status, None where it ran out of time; the first test that failed, and its message."""
    report = folder.with_suffix(".xml")
    report.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",  # stale bytecode of another mutation would be taken for this one's
    }
    process = subprocess.Popen(
        [*PYTEST, f"--junitxml={report}", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, "", f"no result after {timeout:g} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode not in (PASSED, FAILED) or not report.exists():  # a test that hangs ends pytest
        return process.returncode, "", printed[-2000:]
    return process.returncode, *first_failure(report)


def first_failure(report: Path) -> tuple[str, str]:
    for case in ElementTree.parse(report).iter("testcase"):
        for fault in (*case.iterfind("failure"), *case.iterfind("error")):
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            message = (fault.get("message") or "").partition("\n")[0]
            return name, re.sub(r"/\S*pytest-of-\w+/", "", message)[:200]  # temporary folders differ
    return "", ""


def check_unmutated(table: list[Mutation], whole: bool, scratch: Path, options: argparse.Namespace) -> None:
    """Raises RuntimeError if the tests fail without a mutation."""
    folder, cache = scratch / "copy-0", scratch / "kernels"
    copy_tree(folder)
    keywords: dict[str, list[str]] = {}
    for mutation in table:
        keywords.setdefault("" if whole else mutation.tests, []).append("" if whole else mutation.keyword)
    for tests, chosen in keywords.items():
        selection = tests.split()
        if all(chosen):
            selection += ["-k", " or ".join(f"({keyword})" for keyword in dict.fromkeys(chosen))]
        status, by, because = run_tests(folder, [*selection, *options.options], cache, options.timeout * 4)
        print(f"without a mutation: {shlex.join(selection) or 'whole suite'}", flush=True)
        if status != PASSED:
            raise RuntimeError(f"without a mutation, {shlex.join(selection)} fails: {by} {because}")


def outcome_of(
    mutation: Mutation, whole: bool, slots: SimpleQueue[int], scratch: Path, options: argparse.Namespace
) -> Outcome:
    slot = slots.get()
    try:
        folder = scratch / f"copy-{slot}"
        copy_tree(folder)
        mutate(mutation, folder)
        arguments = [*([] if whole else mutation.selection), *options.options]
        started = time.monotonic()
        status, by, because = run_tests(folder, arguments, scratch / "kernels", options.timeout)
        seconds = round(time.monotonic() - started, 1)
    finally:
        slots.put(slot)
    word = {PASSED: "survived", FAILED: "killed", None: "timeout"}.get(status, "error")
    return Outcome(mutation.name, mutation.file, word, seconds, by, because)


def digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def keep(one: Outcome, path: Path, names: list[str], sources: str, how: str) -> None:
    """Put an outcome into the file, beside those of the other mutations `names` of the same sources, tested
    so."""
    result: dict[str, Any] = {"sources": sources, "options": how, "killed": 0, "of": 0, "mutations": []}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        result = kept if (kept["sources"], kept["options"]) == (sources, how) else result
    outcomes = {entry["name"]: entry for entry in result["mutations"]} | {one.name: one._asdict()}
    outcomes = {name: outcomes[name] for name in names if name in outcomes}
    result["mutations"] = list(outcomes.values())
    result["killed"] = sum(entry["outcome"] == "killed" for entry in outcomes.values())
    result["of"] = len(outcomes)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which mutations of the library the tests notice.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutations alone")
    parser.add_argument("--all", action="store_true", help="run the whole suite for each mutation")
    parser.add_argument("--unchecked", action="store_true", help="do not test the unmutated copy first")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one mutation")
    parser.add_argument(
        "--options", type=shlex.split, default=[], help="further options of pytest, in one word"
    )
    parser.add_argument("--out", type=Path, help="file for the result, as JSON")
    return parser.parse_args(arguments)


def main() -> int:
    options = parsed()
    table = read_table()
    names = [mutation.name for mutation in table]
    if options.only:
        if unknown := sorted({*options.only} - {*names}):
            raise ValueError(f"--only: {TABLE.name} has no mutation named {', '.join(unknown)}")
        table = [mutation for mutation in table if mutation.name in options.only]
    sources, how = digest_of_sources(), shlex.join([*(["--all"] if options.all else ()), *options.options])
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(options.jobs):
        slots.put(slot)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        if not options.unchecked:
            check_unmutated(table, options.all, Path(scratch), options)
        killed = 0
        for one in pool.map(lambda m: outcome_of(m, options.all, slots, Path(scratch), options), table):
            killed += one.outcome == "killed"
            print(f"{one.outcome:9}{one.seconds:7.1f} s  {one.name:44} {one.by or one.because}", flush=True)
            if options.out is not None:
                keep(one, options.out, names, sources, how)
    print(f"{killed} of {len(table)} mutations killed")
    return int(killed < len(table))


if __name__ == "__main__":
    sys.exit(main())
