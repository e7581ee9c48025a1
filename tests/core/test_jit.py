"""Compiled code on disk: found by what goes into it, by any process, and never trusted when damaged."""

import errno
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest

from specsim import rules
from specsim.core import _kernels
from specsim.core._kernels import (
    DIGEST_BYTES,
    PACKAGE,
    UNUSED,
    Kernel,
    Pointer,
    _folder,
    _tell_of,
    fetch,
    inner_kernel,
    interpreted,
    kernel,
    summary_kernel,
)
from specsim.traces import _checksums as trace_rows
from specsim.traces import _pieces as trace_pieces

#: Functions that make kernels, which pass for the package's own, so they are kept.
MAKERS = """
from specsim.core._kernels import kernel

def scaling(factor):
    def scaled(x):
        return x * factor
    scaled.__module__ = "specsim.rules"
    return kernel(scaled)

def adding(first, second):
    def added(x):
        return first(x) + second(x)
    added.__module__ = "specsim.rules"
    return kernel(added)
"""

#: A process that makes kernels while the disk is slow.
CHILD = f"""
import os, random, sys, time
replace = os.replace
os.replace = lambda *paths: (time.sleep(random.uniform(0, 0.2)), replace(*paths))
{MAKERS}
for factor in sys.argv[1:]:
    made = scaling(float(factor))
    print(made(10.0), sum(made.compiled.stats.cache_hits.values()))
"""


@pytest.fixture
def makers(tmp_path, monkeypatch):
    """The functions of `MAKERS` in this process, with the folder of the children."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    known = {}
    exec(MAKERS, known)
    return known["scaling"], known["adding"]


def called(made):
    return made(10.0), sum(made.compiled.stats.cache_hits.values())


def started(folder, *arguments, code=CHILD, **settings):
    places = {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | places | settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def printed(child):
    out, err = child.communicate()
    assert child.returncode == 0, err
    return out.splitlines()


def test_cold_processes_may_share_a_folder_and_their_closures_meet_in_one_kernel(tmp_path, makers):
    """numba counts functions from 1 in each process, and tells symbols apart by that count: each process
    compiles first what no other compiles."""
    shared = ["3", "4"]
    children = {first: started(tmp_path, first, *shared) for first in ("1", "2")}
    for first, child in children.items():
        lines = printed(child)
        assert lines[0] == f"{first}0.0 0"
        assert [line.split()[0] for line in lines[1:]] == [f"{factor}0.0" for factor in shared]
    scaling, adding = makers
    assert [called(scaling(float(factor))) for factor in range(1, 5)] == [(10.0 * n, 1) for n in range(1, 5)]
    assert len(list((tmp_path / "kernels").iterdir())) == 4
    assert called(adding(scaling(1.0), scaling(2.0))) == (30.0, 0)


OFFSET = 3.0


@kernel
def shifted(x):
    return x + OFFSET


@kernel
def other(x):
    return x - 1.0


def doubled(x):
    return 2.0 * shifted(x)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, for this file's kernels too, as though they were of the package."""
    shifted(1.0)  # compiled before, whichever test comes first: it is no entry of the folder
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for each in (shifted.plain, other.plain, doubled):
        monkeypatch.setattr(each, "__module__", "specsim.rules")
    return tmp_path / "kernels"


def again(function=doubled, **replaced):
    """The kernel as a new process would make it, where globals are `replaced`."""
    known = function.__globals__ | replaced
    copy = FunctionType(function.__code__, known, closure=function.__closure__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return kernel(copy)


def hits(made):
    assert made(1.0) == made.plain(1.0)
    return sum(made.compiled.stats.cache_hits.values())


def test_a_kernel_is_found_again(folder):
    assert [hits(again()), hits(again())] == [0, 1]


def entry(folder, made):
    """The file of the one signature of a kernel that was just compiled."""
    before = set(folder.glob("*.kernel"))
    assert hits(made) == 0
    (path,) = set(folder.glob("*.kernel")) - before
    return path


def flipped(content):
    middle = len(content) - 1000
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def unreadable(content):
    """The right key and the right digest of what is no pickle."""
    rest = content[DIGEST_BYTES : content.index(b"\0", DIGEST_BYTES) + 1] + b"no pickle"
    return hashlib.sha256(rest).digest() + rest


DAMAGES = {
    "flipped": flipped,
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "unreadable": unreadable,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_compiled_again(folder, damage):
    path = entry(folder, again(other.plain))
    sound = path.read_bytes()
    path.write_bytes(DAMAGES[damage](sound))
    assert path.read_bytes() != sound
    assert [hits(again(other.plain)), hits(again(other.plain))] == [0, 1]


class Harmful:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


def give(path):
    """Make `path` another user's, in the eyes of this process."""
    if not hasattr(os, "getuid") or os.getuid():
        pytest.skip("only root can give files away")
    os.chown(path, 65534, -1)


def linked(folder):
    folder.symlink_to(folder.rename(folder.with_name("elsewhere")))


#: What lets others write code of the cache: done to its folder, or to a file in it.
OPENED = {
    "all write the folder": lambda folder, _: folder.chmod(0o777),
    "a group writes the folder": lambda folder, _: folder.chmod(0o770),
    "all write the folder above": lambda folder, _: folder.parent.chmod(0o777),
    "the folder is another user's": lambda folder, _: give(folder),
    "the folder above is another user's": lambda folder, _: give(folder.parent),
    "the folder is a link": lambda folder, _: linked(folder),
    "a group writes the file": lambda _, path: path.chmod(0o660),
    "the file is another user's": lambda _, path: give(path),
    "the file is a link": lambda _, path: linked(path),
}


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no modes")
@pytest.mark.parametrize("opened", OPENED)
def test_code_that_others_can_have_written_is_not_run(folder, opened, tmp_path):
    path, harm = entry(folder, again(other.plain)), tmp_path / "harm"
    content = path.read_bytes()
    rest = content[DIGEST_BYTES : content.index(b"\0", DIGEST_BYTES) + 1] + pickle.dumps(Harmful(harm))
    path.write_bytes(hashlib.sha256(rest).digest() + rest)
    OPENED[opened](folder, path)
    _tell_of.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert hits(again(other.plain)) == 0
    assert not harm.exists()
    said = [str(one.message) for one in told]
    if "the file" in opened:  # another takes its place
        assert (said, path.stat().st_mode & 0o777) == ([], 0o600)
        assert hits(again(other.plain)) == 1
    else:
        assert len(said) == 1
        assert said[0].startswith(
            "NUMBA_CACHE_DIR: kernels are compiled without a cache, since other users can"
        )


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no modes")
def test_the_cache_is_this_user_s_alone_whatever_the_umask(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "new/cache"))
    before = os.umask(0)
    try:
        path = entry(tmp_path / "new/cache/kernels", again())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert {place.stat().st_mode & 0o777 for place in path.parents[:3]} == {0o700}
    tmp_path.chmod(0o1777)  # as /tmp
    assert hits(again()) == 1


def test_another_kernel_s_entry_is_not_taken(folder):
    mine, its = (entry(folder, again(each.plain)) for each in (shifted, other))
    mine.write_bytes(its.read_bytes())
    assert [hits(again(shifted.plain)), hits(again(shifted.plain))] == [0, 1]


def test_what_goes_into_a_kernel_decides():
    def made(source, of=kernel):
        known = {"np": np, "kernel": kernel, "__name__": "specsim.rules"}
        exec(source, known)
        return of(known["outer"]).contents

    source = "K = 1.5\n@kernel\ndef inner(x): return x + K\ndef outer(x): return inner(x) * 2.0\n"
    contents = made(source)
    assert contents is not None
    assert made(f"# a word\nUNUSED = 1\n\n{source}def another(x): return x\n") == contents
    for old, new in [("1.5", "1.25"), ("x + K", "x - K"), ("2.0", "3.0"), ("2.0", "2"), ("@kernel", "")]:
        assert made(source.replace(old, new)) != contents
    assert made(source.replace("1.5", "np.float32(1.5)")) != made(source.replace("1.5", "np.float64(1.5)"))
    assert made(source.replace("1.5", "np.ones(2)")) != made(source.replace("1.5", "np.ones(3)"))
    assert made(source, summary_kernel) != contents
    assert made(source.replace("K = 1.5", "K = object()")) is None, "cannot be told from another"


def test_a_changed_callee_is_seen(folder):
    assert hits(again()) == 0
    assert hits(again(shifted=again(shifted.plain, OFFSET=4.0))) == 0
    assert hits(again(shifted=again(shifted.plain, OFFSET=3.0))) == 1


def test_a_folder_that_cannot_be_written_is_done_without(folder, monkeypatch):
    folder.write_text("a file in the folder's place")
    assert [hits(again()), hits(again())] == [0, 0]
    folder.unlink()

    def full(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert [hits(again()), hits(again())] == [0, 0]
    assert list(folder.iterdir()) == []


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A package that cannot be written, and no home; the temporary folder."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(os, "access", lambda path, mode: path != PACKAGE)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    return tmp_path


def test_an_installation_that_cannot_be_written_uses_the_home(read_only, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: read_only / "home")
    assert _folder() == read_only / "home/.cache/specsim/kernels"
    (read_only / "file").touch()
    monkeypatch.setattr(Path, "home", lambda: read_only / "file")
    assert _folder().parent.parent == read_only


@pytest.mark.parametrize("whose", ["the package", "its cache"])
def test_a_package_of_another_user_is_run_with_a_cache_elsewhere(read_only, monkeypatch, whose):
    package = read_only / "package"
    cache = package / "__pycache__/kernels"
    cache.mkdir(parents=True)
    monkeypatch.setattr(_kernels, "PACKAGE", package)
    monkeypatch.setattr(Path, "home", lambda: read_only / "home")
    assert _folder() == cache
    give(package if whose == "the package" else cache)
    assert _folder() == read_only / "home/.cache/specsim/kernels"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the temporary folder is the user's own")
def test_without_a_home_a_temporary_folder_is_used_that_nobody_else_can_write(read_only):
    own = read_only / f"specsim-{os.getuid()}"
    assert _folder() == own / "kernels"
    own.chmod(0o777)
    assert _folder() is None
    shutil.rmtree(own)
    (read_only / "elsewhere").mkdir()
    own.symlink_to(read_only / "elsewhere")
    assert _folder() is None


def test_entries_that_are_not_used_are_removed(folder):
    used, unused = (entry(folder, again(each.plain)) for each in (shifted, other))
    left = folder / f"{used.name}-0"  # by a process that was killed
    left.touch()
    for path in (used, unused, left):
        os.utime(path, (time.time() - 2 * UNUSED,) * 2)
    assert hits(again(shifted.plain)) == 1
    _kernels._remove_unused.cache_clear()  # as a new process, which looks once
    assert hits(again()) == 0
    assert [path.exists() for path in (used, unused, left)] == [True, False, False]


def sum_of(x):
    total = 0.0
    for i in range(x.size):
        total += x[i]
    return total


def test_an_inner_kernel_calls_inner_kernels_only_and_allocates_nothing(folder):
    """What another one allocates would never be freed."""
    inner, outer = inner_kernel(sum_of), kernel(sum_of)
    x = np.arange(4.0)
    assert inner_kernel(lambda x: inner(x) + 1.0)(x) == 7.0
    assert kernel(lambda x: inner(x) + outer(x))(x) == 12.0
    with pytest.raises(TypeError, match="calls sum_of, which is not inner"):
        inner_kernel(lambda x: inner(x) + outer(x))(x)
    with pytest.raises(Exception, match="Only accept returning of array passed into the function"):
        inner_kernel(lambda n: np.empty(n)[0])(3)


def test_a_constant_of_its_caller_compiles_no_kernel_again():
    @kernel
    def called(x):
        return 2 * x

    @kernel
    def caller(count):
        total = called(1)
        for k in range(count):
            total += called(k)
        return total

    assert caller(3) == 8
    assert len(called.compiled.signatures) == 1


def test_vectors_are_wide_and_words_are_fetched_ahead():
    def fetching(x):
        total = 0.0
        for i in range(x.size):
            fetch(x, i + 10**6)  # far behind the end
            total += x[i]
        return total

    made, x = kernel(fetching), np.arange(4.0)
    assert made(x) == made.plain(x) == 6.0
    (found,) = made.compiled.inspect_llvm().values()
    assert '"prefer-vector-width"="512"' in found
    assert "call void @llvm.prefetch" in found
    assert fetch.contents not in (None, inner_kernel(fetch.plain).contents), "what it is made of decides"


def test_a_loop_is_compiled_once_for_all_that_it_calls(folder):
    def added(part, x):
        return part(x[0]) + part(x[1])

    added.__module__ = "specsim.rules"
    compiled, added = kernel(added), kernel(added)
    assert compiled(Pointer(shifted, "float64(float64)"), np.ones(2)) == 8.0

    def made(part):
        def call(x):
            return added(part, x)

        return added.bound(call, Pointer(part, "float64(float64)"))

    twice, minus = made(kernel(lambda x: 2 * x)), made(inner_kernel(lambda x: -x))
    for x in np.array([3.0, 4.0]), np.array([0.5, 0.25]):
        assert (twice(x), minus(x)) == (2 * x.sum(), -x.sum())
        with interpreted():
            assert (twice(x), minus(x)) == (2 * x.sum(), -x.sum())
        assert kernel(lambda x: twice(x))(x) == 2 * x.sum()
    assert [str(args[0]) for args in added.compiled.signatures][:1] == ["PointerType[float64(float64)]"]
    assert sum(added.compiled.stats.cache_hits.values()) == 1  # what is on disk is loaded once


def test_every_kernel_of_the_package_is_kept():
    found = [rules.get(name) for name in rules.names()]
    made = {one for rule in found for one in (rule.rows, rule.fixed_pair.kernel) if isinstance(one, Kernel)}
    modules = [module for name, module in sys.modules.items() if name.startswith("specsim.")]
    made |= {value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}
    tables = trace_pieces._DECODE, trace_rows._MEASURE_DENSE, trace_rows._MEASURE_PAIRS
    made |= {kernel for table in tables for kernel in table.values()}
    assert [each.plain.__qualname__ for each in made if each.contents is None] == []
    assert len(made) > 150
