"""Only regular files are opened and replaced, and what goes wrong names the file."""

import errno
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from refused import refuses
from safetensors.numpy import load_file

from specsim.core import _files as files
from specsim.core import _tensors
from specsim.core._json import SEAL, parse_json, seal_of, sealed
from specsim.core._tensors import read_arrays, read_tensors, save_tensors

SPECIAL = ["fifo", "socket", "device", "folder"]


@pytest.fixture(params=SPECIAL)
def special(request, tmp_path):
    """Something that is no regular file."""
    path = tmp_path / request.param
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path


def test_what_is_no_file_is_neither_read_nor_replaced(special):
    kind, before = special.stat().st_mode, os.readlink(special) if special.is_symlink() else None
    refuses(rf"{special.name}: .*(not a regular file|not a file)", files.check_file, special)
    refuses(rf"{special.name}: .*not a regular file, and is not replaced", files.write_text, special, "text")
    refuses("is not replaced", files.probe_file, special)
    assert special.stat().st_mode == kind
    assert before is None or os.readlink(special) == before


def test_a_symlink_is_followed(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to("below/file")
    files.write_text(tmp_path / "link", "one")  # what it leads to does not exist yet
    files.write_text(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "below/file").read_text() == "two"
    assert os.listdir(tmp_path / "below") == ["file"]
    (tmp_path / "loop").symlink_to("loop")
    refuses("loop", files.write_text, tmp_path / "loop", "three", error=OSError)


def test_temporary_files_of_processes_that_have_ended_are_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    start = f".run.part.{files._machine()}"
    left, running = tmp_path / f"{start}-{ended.pid}.tmp", tmp_path / f"{start}-{os.getppid()}.tmp"
    elsewhere, old = tmp_path / ".run.part.00000000-1.tmp", tmp_path / ".run.part.00000000-2.tmp"
    others = tmp_path / f".other.part.{files._machine()}-{ended.pid}.tmp"
    for path in (left, running, elsewhere, old, others):
        path.touch()
    os.utime(old, (0, 0))
    files.write_text(tmp_path / "run.part", "text")
    assert {*tmp_path.iterdir()} == {running, elsewhere, others, tmp_path / "run.part"}


def test_folders_are_probed_before_the_work(tmp_path, monkeypatch):
    assert files.make_folder(tmp_path / "a/b").is_dir()
    assert not os.listdir(tmp_path / "a/b")
    (tmp_path / "file").touch()
    refuses("file: a file, not a folder", files.make_folder, tmp_path / "file", error=FileExistsError)
    refuses("file", files.check_new_folder, tmp_path / "file/below", error=NotADirectoryError)
    refuses("is not empty", files.check_new_folder, tmp_path, error=FileExistsError)
    refuses("nowhere", files.probe_file, tmp_path / "nowhere/file", error=FileNotFoundError)

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    for probe in (files.probe_file, files.check_new_folder, files.make_folder):
        with pytest.raises(OSError, match=r"cannot be written: No space left on device: '.*new'"):
            probe(tmp_path / "new")


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    program = f"""
import resource, signal
import numpy as np
from specsim.core import _files as files
from specsim.core import _tensors
from specsim.core._tensors import save_tensors, write_arrays
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
array = np.random.default_rng(0).random(10_000)
for write, what in ((files.write_text, "x" * 10_000), (save_tensors, dict(x=array)), (write_arrays, dict(x=array))):
    try:
        write({str(tmp_path / "out")!r}, what)
    except OSError as error:
        print(error.filename)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(tmp_path / "out")] * 3
    assert not os.listdir(tmp_path)


def test_text_that_utf_8_cannot_hold_is_written_out(tmp_path):
    files.write_text(tmp_path / "a", "α \udcff")
    assert files.read_text(tmp_path / "a") == "α \\udcff"
    (tmp_path / "a").write_bytes(b"caf\xe9")
    refuses("a: not text in UTF-8, at byte 4", files.read_text, tmp_path / "a")


def test_tensors_are_those_that_the_package_reads(tmp_path):
    arrays = {
        "flat": np.arange(5),
        "deep": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "none": np.zeros((0, 3), np.float32),
        "one": np.array(True),
        "small": np.arange(3, dtype=np.int8),
    }
    save_tensors(tmp_path / "a", arrays, {"who": "us\n"})
    mine, metadata = read_tensors(tmp_path / "a")
    assert metadata == {"who": "us\n"}
    for found in (mine, load_file(tmp_path / "a")):
        assert {*found} == {*arrays}
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
    (tmp_path / "deep").write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000)
    refuses("deep: not a safetensors file, or damaged", read_tensors, tmp_path / "deep")
    header = b'{"p":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}}   '
    with (tmp_path / "vast").open("wb") as file:  # a file of zeros, which takes no space
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**40)
    with pytest.raises(MemoryError, match=r"vast has 1,024\.0 GiB of arrays"):
        read_tensors(tmp_path / "vast")


def test_json_that_is_nested_too_deeply_or_has_a_key_twice_and_its_seal():
    refuses("nested too deeply", parse_json, "[" * 200_000)
    refuses("the key 'p' is in an object twice", parse_json, '[{"q": {"p": 1, "r": 2, "p": 1}}]')
    assert parse_json('{"p": {"p": 1}, "q": [{"p": 1}, {"p": 2}]}')["p"] == {"p": 1}
    one = sealed({"b": (1, 2), "a": {3: 0.1}})
    assert one[SEAL] == seal_of({"a": {"3": 0.1}, "b": [1, 2]})
    assert seal_of(one) == one[SEAL] != seal_of(one | {"a": {}})


@pytest.mark.slow
def test_path_of_a_command_may_be_a_fifo(tmp_path):
    """It says so, and does not wait for a writer."""
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "fifo.json")
    for words in (
        ("merge", "fifo"),
        ("simulate", "zipf", "--steps", "10", "--checkpoint", "fifo"),
        ("simulate", "fifo.json"),
        ("trace", "import", "fifo", "--format", "jsonl", "--draft", "fifo", "--out", "new"),
        ("check-metrics", "fifo"),
    ):
        from commands import says

        says("FIFO, not a regular file", *words, cwd=tmp_path, code=2)
    assert Path(tmp_path, "fifo").is_fifo()


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here that opens and cannot be read")
@pytest.mark.parametrize("count", [-1, 1])
def test_what_cannot_be_read_is_named(count):
    refuses("'/proc/self/mem'", files.read_text, "/proc/self/mem", error=OSError)
    with files.open_file("/proc/self/mem") as file, pytest.raises(OSError, match="'/proc/self/mem'"):
        file.read(count)


def test_an_archive_does_not_unpack_to_more_than_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "pair.npz"
    np.savez_compressed(path, p=np.zeros(2**20), q=np.zeros(2**20))
    assert path.stat().st_size < 2**16
    assert len(read_arrays(path)["q"]) == 2**20
    monkeypatch.setattr(_tensors, "MOST_BYTES", 2**23)
    refuses(r"^0\.0 GiB of arrays, and less memory; give fewer$", read_arrays, path)
