"""JSON Lines that other processes parse: the traces and the errors are those of one process."""

import json
import signal
from concurrent.futures import Future

import numpy as np
import psutil
import pytest

from specsim.traces import import_trace
from specsim.traces._jsonl import parsers

#: Lines of a file, and positions in a line.
TEXTS, PLACES = 60, 5


def place(rng, name, token):
    """A position of a chat: its token, and four others."""
    others = rng.choice(np.arange(100, 300), 4, replace=False).tolist()
    values = np.log(rng.dirichlet(np.ones(5))).tolist()
    own, *top = ({"token": name(x), "logprob": v} for x, v in zip([token, *others], values, strict=True))
    return own | {"top_logprobs": top}


def write_logs(folder, name="token_id:{}".format, **lines):
    """The logs of a target and of a draft, with other `lines` in the draft's, by their numbers."""
    text, rng = np.random.default_rng(1).integers(100, size=(TEXTS, PLACES)), np.random.default_rng(2)
    files = folder / "target.jsonl", folder / "draft.jsonl"
    for file in files:
        records = ([place(rng, name, token) for token in tokens] for tokens in text.tolist())
        written = [json.dumps({"choices": [{"logprobs": {"content": content}}]}) for content in records]
        if file is files[1]:
            for number, line in lines.items():
                written[int(number[1:]) - 1] = line
        file.write_text("\n".join(written) + "\n", encoding="utf-8")
    return files


@pytest.fixture
def started(monkeypatch):
    """Two processes parse small files too, in many blocks; a list of those that were started."""
    monkeypatch.setattr("specsim.traces._importing.jsonl.LARGE", 1)
    monkeypatch.setattr("specsim.traces._importing.jsonl.available_threads", lambda: 2)
    monkeypatch.setattr("specsim.traces._jsonl.parsers.BLOCK", 5000)
    started = []

    class Popen(parsers.subprocess.Popen):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            started.append(self)

    monkeypatch.setattr(parsers.subprocess, "Popen", Popen)
    yield started
    assert all(process.returncode is not None for process in started)  # none is left, alive or as a zombie


@pytest.fixture
def waiting(monkeypatch):
    """Blocks are never parsed here because no process has begun with them; how many were parsed there."""
    monkeypatch.setattr(Future, "cancel", lambda _: False)
    counted = []
    numbered = parsers._Parsed.numbered
    monkeypatch.setattr(parsers._Parsed, "numbered", lambda *a: counted.append(a) or numbered(*a))
    return counted


def files_of(trace):
    return {path.name: path.read_bytes() for path in trace.path.iterdir()}


def alone(files, out, **how):
    """The trace of one process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("specsim.traces._importing.jsonl.available_threads", lambda: 1)
        return import_trace(files[0], out, draft=files[1], **how)


def same(folder, files, **how):
    """The trace of these files; one process writes the same."""
    trace = import_trace(files[0], folder / "a", draft=files[1], **how)
    assert files_of(trace) == files_of(alone(files, folder / "b"))
    return trace


@pytest.mark.parametrize("name", ["token_id:{}".format, "word {}".format], ids=["ids", "strings"])
def test_processes_write_the_same_trace(tmp_path, started, waiting, name):
    target, draft = write_logs(tmp_path, name)
    told = []
    trace = same(tmp_path, (target, draft), progress=lambda *two: told.append(two))
    assert trace.num_steps == TEXTS * PLACES
    size = target.stat().st_size + draft.stat().st_size
    assert len(waiting) > size / 10_000
    assert (size, size) in told
    assert told[-1] == (trace.num_steps, trace.num_steps)
    assert len(started) == (4 if "vocabulary" in trace.provenance else 2)  # started again without ids


def test_blocks_that_no_process_has_begun_are_parsed_here(tmp_path, started):
    """Which ones they are is a matter of time; the trace is the same."""
    same(tmp_path, write_logs(tmp_path))
    assert len(started) == 2


NO_TOKEN = '{"choices": [{"logprobs": {"content": [{"logprob": -1}]}}]}'
WRONG = [
    {"name": "word {}".format, "_55": "{"},
    {"_40": "{"},
    {"_40": '{"choices": []}', "_41": "[1]"},
    {"_33": NO_TOKEN},
    {"_60": json.dumps({"choices": [{"logprobs": {"content": [{"token": "token_id:1", "logprob": 2}]}}]})},
    {"_58": json.dumps({"token": "token_id:3000000000", "logprob": -1})},
    {"_17": "", "_44": "{"},
    {"_20": '{"token": "word", "logprob": -1}', "_50": "{"},
    {"_20": '{"token": "token_id:5", "logprob": NaN}', "_21": NO_TOKEN},
]


@pytest.mark.parametrize(
    "lines",
    [pytest.param(lines, id=str(i), marks=[pytest.mark.slow] * (i > 0)) for i, lines in enumerate(WRONG)],
)
def test_an_error_is_that_of_one_process(tmp_path, lines, started, waiting):
    files = write_logs(tmp_path, **lines)
    with pytest.raises(ValueError, match=r"\.jsonl") as here:
        alone(files, tmp_path / "a")
    with pytest.raises(ValueError, match=r"line \d\d|ends after") as there:
        import_trace(files[0], tmp_path / "b", draft=files[1])
    assert str(there.value) == str(here.value)
    assert type(there.value) is type(here.value)
    assert not (tmp_path / "b").exists()
    if lines is WRONG[0]:  # in a later block, read again with strings
        assert "draft.jsonl, line 55: not JSON at character 3" in str(there.value)
        assert waiting
        assert started


@pytest.mark.parametrize(
    "code",
    ["import os; os._exit(3)", pytest.param("print('hello')", marks=pytest.mark.slow), "import time; time.sleep(600)"],
)  # fmt: skip
def test_processes_that_cannot_parse(tmp_path, started, monkeypatch, code):
    monkeypatch.setattr("specsim.core._processes.CODE", code)
    same(tmp_path, write_logs(tmp_path))
    assert len(started) == 2


@pytest.fixture
def told_early(monkeypatch):
    """Progress is told before a file is read to its end."""
    monkeypatch.setattr("specsim.traces._importing.jsonl.TOLD_AT", 20_000)


@pytest.mark.usefixtures("told_early")
def test_processes_that_die_while_they_parse(tmp_path, started, waiting):
    def kill(done, total):
        for process in started:
            process.send_signal(signal.SIGKILL)

    same(tmp_path, write_logs(tmp_path), progress=kill)
    assert waiting


@pytest.mark.usefixtures("told_early", "waiting")
def test_processes_end_with_an_interrupt(tmp_path, started):
    """The fixture looks at the processes; the trace is not begun."""
    files = write_logs(tmp_path)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_trace(files[0], tmp_path / "a", draft=files[1], progress=interrupt)
    assert len(started) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"target.jsonl", "draft.jsonl"}


def test_a_system_that_starts_no_process(tmp_path, started, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(parsers.subprocess, "Popen", refuse)
    same(tmp_path, write_logs(tmp_path))
    assert not started


def test_small_files_start_no_process(tmp_path, monkeypatch):
    files = write_logs(tmp_path)
    monkeypatch.setattr("specsim.traces._importing.jsonl.available_threads", lambda: 2)
    monkeypatch.setattr(parsers.subprocess, "Popen", None)
    assert import_trace(files[0], tmp_path / "a", draft=files[1]).num_steps == TEXTS * PLACES


def test_a_process_ends_when_nobody_asks_any_more():
    process = parsers.start(strings=False)
    try:
        assert parsers.parse(process, parsers.Block("log", 1, [])) is not None
        process.stdin.close()
        assert psutil.Process(process.pid).wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
