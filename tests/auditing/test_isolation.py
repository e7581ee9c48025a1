"""Verifiers given by name, in a process of their own: they may hang, crash, print, and be interrupted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from interrupting import ends, interruptible
from refused import refused, refuses

from specsim import audit
from specsim.adapters._contract import BrokenVerifier, LostVerifier
from specsim.auditing._results.audit import Verdict
from specsim.auditing._verifier import child as isolation
from specsim.auditing._verifier.child import Child, load, serve
from specsim.auditing._verifier.local import Local
from specsim.auditing._verifier.requests import RowsAsked, answer
from specsim.core._processes import calling

pytestmark = pytest.mark.usefixtures("smaller_audits")

ROOT = Path(__file__).parents[2]
slow = partial(pytest.param, marks=pytest.mark.slow)

MODULE = '''
import contextlib, itertools, os, signal, time
import numpy as np
import verifiers

print("hello from the module")

# two-point and identical are the only cases
few = dict(vocab_size=4, dtypes="float32")

def plain(function):
    function.declared = few
    return function

def on_four_tokens(act):
    """Right, but where the vocabulary has four tokens."""
    def verify(draft_tokens, p, q, rng):
        if p.shape[2] == 4:
            act()
        return verifiers.right(draft_tokens, p.astype(float), q.astype(float), rng)
    return plain(verify)

def swallows():
    for _ in range(600):
        with contextlib.suppress(BaseException):
            time.sleep(0.1)

right = on_four_tokens(lambda: None)
crashes = on_four_tokens(lambda: os.kill(os.getpid(), signal.SIGSEGV))
exits = on_four_tokens(lambda: os._exit(7))
deaf = on_four_tokens(swallows)
in_c = on_four_tokens(lambda: sum(itertools.repeat(0, 10**12)))  # no signal is heard before the end
prints = on_four_tokens(lambda: print("hello from a call"))
raises = on_four_tokens(lambda: 1 / 0)

def sleeping(seconds):
    def verify(draft_tokens, p, q, rng):
        with open(__file__ + ".calls", "a") as calls:
            calls.write(".")
        time.sleep(seconds)
        return verifiers.right(draft_tokens, p.astype(float), q.astype(float), rng)
    verify.declared = dict(few, batch=1)
    return verify

slow, slower = sleeping(0.002), sleeping(0.005)

not_callable = 3
'''

#: That cannot be loaded.
MODULES = {
    "no_syntax": "def verify(:",
    "needs": "import nosuch",
    "fails": "raise RuntimeError('out of cheese')",
    "dies": "import os; os._exit(4)",
    "leaves": "raise SystemExit(0)",
    "interrupts": "raise KeyboardInterrupt",
    "nonsense": "def verify(*_): ...\nverify.declared = {'batch': float('nan')}",
    "an_object": "def verify(*_): ...\nverify.declared = object()",
    "refuses": (
        "class Verify:\n"
        "    def __call__(self, *_): ...\n"
        "    @property\n"
        "    def declared(self): raise SystemExit(0)\n"
        "verify = Verify()"
    ),
}

CASES = ["promises", "two-point", "identical", "nearly certain", "Markov chain"]
HIT = ["identical", "Markov chain"]  # of four tokens


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(MODULE)
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for name, seconds in (("GRACE", 0.5), ("GRACE_AGAIN", 0.5), ("LOOK_EVERY", 0.05)):
        monkeypatch.setattr(isolation, name, seconds)
    return tmp_path


def of(name, **more):
    return audit(f"theirs:{name}", "smoke", rng=1, diagnose=False, **more)


def failed(result):
    return [case.case for case in result.cases if case.findings]


def text(result):
    return "; ".join(finding.text for case in result.cases for finding in case.findings)


def test_a_verifier_by_name_gives_the_counts_that_it_gives_here_whatever_it_prints(capfd):
    there = of("prints")
    out, err = capfd.readouterr()
    assert not out  # that has the result of the command
    assert "hello from the module" in err
    assert "hello from a call" in err

    import theirs

    here = audit(theirs.right, "smoke", rng=1, diagnose=False)
    assert there.verdict is Verdict.INCONCLUSIVE  # few cases
    assert there.verifier == "theirs:prints"
    assert [case.case for case in there.cases] == CASES
    for one, other in zip(there.cases, here.cases, strict=True):
        assert one.to_dict() == other.to_dict()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crashes", "ended its process (SIGSEGV)"),
        slow("exits", "ended its process (exit code 7)"),
        slow("raises", "raised ZeroDivisionError: division by zero; a call of 1 row shows it"),
    ],
)
def test_after_a_crash_the_other_cases_are_still_run(name, said):
    result = of(name)
    assert result.verdict is Verdict.BROKEN
    assert said in text(result)
    assert failed(result) == HIT
    fine = {case.case: case for case in result.cases}["two-point"]
    assert fine.steps == fine.planned


@pytest.mark.parametrize("name", ["deaf", pytest.param("in_c", marks=pytest.mark.slow)])
def test_a_call_that_hears_nothing_is_ended_from_outside(name, full):
    started = time.monotonic()
    cases = HIT if full and name == "deaf" else HIT[:1]
    result = of(name, timeout=0.5, cases=cases)
    assert time.monotonic() - started < 40
    assert result.verdict is Verdict.BROKEN
    assert failed(result) == cases
    assert "hung" in text(result)


@refused(
    ("no_syntax:verify", "cannot import no_syntax \\(SyntaxError"),
    ("fails:verify", "cannot import fails \\(RuntimeError: out of cheese\\)"),
    ("dies:verify", "the import ended its process \\(exit code 4\\)"),
    ("theirs:nothing", "theirs has no function nothing"),
    ("theirs:not_callable", "theirs has no function not_callable"),
    ("nowhere:verify", "cannot import nowhere .*'nowhere'\\); it is not in /.*; change to the folder"),
    ("needs:verify", "cannot import needs \\(ModuleNotFoundError: No module named 'nosuch'\\)$"),
    ("vllm2:blocks", "cannot import vllm2 .*; the names of that engine are vllm2, vllm2:block$"),
)
def test_what_cannot_be_loaded_is_named(reference, full):
    by = audit if full or reference == "dies:verify" else load
    by(reference)


@pytest.mark.parametrize("name", ["interrupts", "leaves", *map(slow, ("refuses", "nonsense", "an_object"))])
def test_a_module_that_does_not_want_to_be_loaded(name):
    refuses(name, Child, f"{name}:verify", error=(ValueError, TypeError))


def rows(steps=4, vocab_size=2, **more):
    p = np.full((steps, 2, vocab_size), 1 / vocab_size)
    arrays = {"draft_tokens": np.zeros((steps, 1), dtype=np.int64), "p": p, "q": p[:, :1]}
    return RowsAsked(arrays | more.pop("arrays", {}), None, 2, 2, (0,), 0, 1.0, **more)


def test_a_slow_verifier_is_not_taken_for_one_that_hangs(module):
    """All calls of a question take longer than silence is allowed to, and it is not silent for long."""
    (module / "theirs.py").write_text(
        f"{MODULE}\nfrom specsim.auditing._verifier import child\nchild.SEND_EVERY = 0.02\n"
    )
    with closing(Child("theirs:slower")) as child:
        started = time.monotonic()
        answer(child, replace(rows(450), timeout=0.5))
        assert time.monotonic() - started > 0.5 + isolation.GRACE


def test_a_child_has_one_thread_and_keeps_memory_unless_the_user_says_how(module, monkeypatch):
    """As torch reads it, which uses all cores otherwise, and glibc."""
    names = ("OMP_NUM_THREADS", "MALLOC_MMAP_MAX_")
    code = f"import os\ndef verify(draft_tokens, p, q, rng):\n    raise KeyError(*map(os.environ.get, {names}))\n"
    (module / "theirs.py").write_text(code)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for seen in (r"\('1', '0'\)", r"\('3', '3'\)"):
        with (
            closing(Child("theirs:verify")) as child,
            pytest.raises(BrokenVerifier, match=f"KeyError: {seen}"),
        ):
            answer(child, rows())
        for name in names:
            monkeypatch.setenv(name, "3")


@pytest.fixture
def child():
    child = Child("theirs:right")
    yield child
    child.close()


def test_a_child_answers_as_the_function_does_here_whatever_the_arrays(child):
    import theirs

    here = Local(theirs.right)
    asked = rows(steps=8)
    assert np.array_equal(answer(child, asked), answer(here, asked))
    assert child._sent["p"] is asked.arrays["p"]
    for other in (asked, rows(5), replace(asked, rng=(1,)), rows(2), rows(3, arrays={"q": None})):
        if other.arrays["q"] is None:
            refuses("raised AttributeError", answer, child, other, error=BrokenVerifier)
        else:
            assert np.array_equal(answer(child, other), answer(here, other))
    process = child._process
    assert np.array_equal(answer(child, asked), answer(here, asked))
    assert child._process is process


def test_a_child_whose_answer_is_not_read_to_its_end_or_that_died_between_questions_is_replaced(child):
    before = answer(child, rows())
    process = child._process
    child.ask(rows(100))
    assert np.array_equal(answer(child, rows()), before)
    assert child._process is not process
    os.kill(child._process.pid, signal.SIGKILL)
    child._process.wait()
    with pytest.raises(LostVerifier, match=r"ended its process \(SIGKILL\)"):
        answer(child, rows())
    assert np.array_equal(answer(child, rows()), before)


def test_a_child_that_can_no_longer_be_loaded_is_broken(child, module):
    (module / "theirs.py").write_text("raise RuntimeError('gone')")
    os.kill(child._process.pid, signal.SIGKILL)
    for said in ("SIGKILL", "gone", "gone"):
        with pytest.raises(LostVerifier, match=said):
            answer(child, rows())


def test_an_interrupted_start_leaves_no_process(monkeypatch):
    started = []

    def receive_nothing(self, *_):
        started.append(self._process)
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "_receive", receive_nothing)
    with pytest.raises(KeyboardInterrupt):
        Child("theirs:right")
    assert started[0].returncode is not None


def test_a_child_that_ended_by_itself_ends_with_the_processes_that_it_started(module):
    (module / "theirs.py").write_text(
        "import os, time\n"
        "def verify(*_):\n"
        "    if (other := os.fork()) == 0:\n"
        "        time.sleep(60)\n"
        f"    open({str(module / 'other')!r}, 'w').write(str(other))\n"
        "    os._exit(5)\n"
    )
    with closing(Child("theirs:verify")) as leaving, pytest.raises(LostVerifier, match="exit code 5"):
        answer(leaving, rows())
    assert ends(int((module / "other").read_text()))


def test_a_child_whose_parent_has_ended_ends_silently(module):
    """Also where it has an answer that nobody takes."""
    (module / "theirs.py").write_text("import time\ntime.sleep(0.2)\ndef verify(*_):\n    time.sleep(60)\n")
    ours, theirs = socket.socketpair()
    with subprocess.Popen(
        calling(serve, str(theirs.fileno()), bytes(16).hex(), "theirs:verify", ""),
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
    ) as process:
        ours.close()
        theirs.close()
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("calls", [0, 400], ids=["at once", "in a case"])
def test_ctrl_c_prints_the_verdict_so_far_and_exits_with_3(module, calls):
    """A real interrupt, of parent and child alike as a terminal sends it."""
    command = [sys.executable, "-m", "specsim", "audit", "theirs:slow", "--level", "smoke", "--seed", "1"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers"), str(module)])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with interruptible(command, env={**os.environ, "PYTHONPATH": path}, **pipes) as process:
        assert process.stderr.readline() == "hello from the module\n"
        seen = module / "theirs.py.calls"
        while calls and (not seen.exists() or seen.stat().st_size < calls):  # the promises take fewer
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "Traceback" not in out + err
    if calls:
        assert "theirs:slow: inconclusive" in out
        assert "interrupted: the results so far" in out
