"""Progress: who sees a bar, and that inner work shows none."""

import contextlib
import io
import os
import pty
import subprocess
import sys
import time

import pytest
import tqdm.auto as tqdm_of

import specsim
from specsim.core import _progress
from specsim.core._progress import shows_progress, silent, told, working
from specsim.traces import default_trace, summarise


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Bars appear without delay."""
    monkeypatch.setattr(_progress, "DELAY", 0.0)


def in_terminal(work, file=None):
    """What `work` shows where standard error is a terminal."""
    with contextlib.redirect_stderr(Terminal() if file is None else file) as terminal:
        work()
    return terminal.getvalue()


def report(progress, label="simulate"):
    with working(progress, label) as work:
        if work.report is not None:
            work.report(250, 1000)
            time.sleep(0.15)  # bars are drawn ten times a second
            work.report(1000, 1000)


def test_a_terminal_shows_the_label_and_how_much_is_done():
    shown = in_terminal(lambda: report(None))
    assert "simulate:" in shown
    assert "1.00k/1.00k" in shown


def test_work_that_ends_early_ends_its_bar_and_work_that_fails_does_not(monkeypatch):
    """A bar that ends below its total is red in notebooks."""
    bars, tqdm = [], tqdm_of.tqdm
    monkeypatch.setattr(tqdm_of, "tqdm", lambda **how: bars.append(tqdm(**how)) or bars[-1])
    for error in (None, ZeroDivisionError):
        with pytest.raises(error) if error else contextlib.nullcontext(), working(True, "audit") as work:
            work.report(1, 4)
            assert not error or 1 / 0
    assert [(bar.n, bar.total) for bar in bars] == [(1, 1), (1, 4)]


def test_nothing_is_shown_where_nobody_looks_or_it_is_switched_off():
    assert in_terminal(lambda: report(False)) == ""
    assert in_terminal(lambda: report(None), io.StringIO()) == ""
    assert "simulate" in in_terminal(lambda: report(True), io.StringIO())
    with contextlib.redirect_stderr(None):  # as under pythonw
        report(None)


@pytest.mark.parametrize("kind", ["std", "notebook"])
def test_tqdm_can_be_silenced_by_its_variable(kind):
    environment = os.environ | {"TQDM_DISABLE": "1"}
    program = "import sys\nfrom specsim.core._progress import working\nsys.stderr.isatty = lambda: True\n"
    program += f"import tqdm.auto, tqdm.{kind}\ntqdm.auto.tqdm = tqdm.{kind}.tqdm\n"
    program += "with working(True, 'simulate') as work: work.report(1, 2)"
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_work_inside_other_work_shows_nothing():
    told_inside = []

    def nested():
        with working(None, "outer") as outer, working(None, "inner") as inner:
            assert outer.outermost
            assert (inner.report, inner.outermost) == (silent, False)
            with working(lambda *at: told_inside.append(at), "asked for") as asked:
                asked.report(1, 2)
        with working(None, "after") as after:
            assert after.outermost

    assert "inner" not in in_terminal(nested)
    assert told_inside == [(1, 2)]


def test_the_state_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), working(None, "fails"):
        raise ZeroDivisionError
    with working(None, "next") as work:
        assert work.outermost


def test_a_function_is_told_and_its_other_arguments_are_left_alone():
    @shows_progress("count")
    def count(to, *, progress=None):
        tell = told(progress)
        if tell is not None:
            tell(to, to)
        return to

    seen = []
    assert count(3, progress=lambda *at: seen.append(at)) == 3
    assert count(4) == count(4, progress=False) == 4
    assert seen == [(3, 3)]


@pytest.mark.parametrize(
    ("label", "work"),
    [
        ("simulate", lambda: specsim.simulate([0.5, 0.5], [0.2, 0.8], steps=1000, rng=1)),
        ("compare", lambda: specsim.compare([0.5, 0.5], [0.2, 0.8], rules=["standard"], steps=10, rng=1)),
        ("sweep", lambda: specsim.sweep([0.5, 0.5], [0.2, 0.8], over={"gamma": [1]}, steps=10, rng=1)),
        ("generate", lambda: specsim.generate(*specsim.default_pair(), b"import ", max_new_tokens=9, rng=1)),
        ("audit", lambda: specsim.audit("standard", "smoke", rng=1, cases=["two-point"])),
        (
            "prove",
            lambda: specsim.prove(
                specsim.models.TableModel([0.5, 0.5]), specsim.models.TableModel([0.25, 0.75])
            ),
        ),
        ("summarise", lambda: summarise(default_trace())),
    ],
)
def test_long_work_shows_itself_once(label, work):
    labels = {line.split(":")[0] for line in in_terminal(work).split("\r") if ":" in line}
    assert labels == {label}


@pytest.mark.slow
def test_commands_show_progress_in_a_terminal():
    ours, theirs = pty.openpty()
    try:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        program = "from specsim.core import _progress\n_progress.DELAY = 0\n"
        program += "from specsim.__main__ import main\nmain()"
        command = [sys.executable, "-c", program, "simulate", "zipf", "--steps", "300000", "--seed", "1"]
        environment = {k: v for k, v in os.environ.items() if k != "TQDM_DISABLE"}
        subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, check=True, env=environment)
        assert "simulate:" in os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
