"""What a command refuses, before it has done or written anything: one line, and exit code 2."""

from pathlib import Path

import pytest
from commands import run

from specsim import plant


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    (folder / "r").mkdir()
    plant(folder / "planted", vocab_size=6, context=160, rng=1)
    (folder / "log.csv").write_text("arrival,prompt,output\n0,5,9\n1,4,3\n")
    (folder / "ab.txt").write_text("ab\n")
    (folder / "blank.txt").write_text("\n")
    return folder, sorted(folder.rglob("*"))


#: What is refused, a line each: the command, and what of the complaint is searched for.
LINES = (Path(__file__).parent / "refusals.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("command", "message"),
    # and a byte that is no text
    [*(line.split(" => ") for line in LINES), ("generate --prompt \udcff", "prompt: 1 tokens are too few")],
)
def test_what_is_refused_is_said_in_one_line(command, message, folder):
    folder, files = folder
    found = run(*command.split(), cwd=folder)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("specsim: ")
    assert found.err.count("\n") == 1
    assert message in found.err
    assert "Errno" not in found.err or "manifest.json" in found.err or command.startswith("serve --host")
    assert sorted(folder.rglob("*")) == files
