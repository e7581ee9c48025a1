"""The command line: what it prints, its exit codes, and that nothing a user does ends in a traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import run, says
from interrupting import interruptible

import specsim
from specsim.cli._simulate import simulate as simulate_command
from specsim.core._json import seal_of
from specsim.core._tables import Line, Table, to_text

FEW_CASES = {"two-point", "zeros"}
HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture
def trace(tmp_path):
    options = ("--steps", "60", "--gamma", "3", "--seed", "1")
    says("60 steps, 240 rows", "trace", "record", tmp_path / "trace", *options)
    return tmp_path / "trace"


def test_audit_prints_a_verdict_and_writes_its_files(tmp_path, few_cases_in_module):
    options = ("--level", "smoke", "--seed", "1", "--out", tmp_path / "audit")
    assert "α drafted" not in says("standard: consistent", "audit", "standard", *options)
    assert "α drafted" in says("standard: consistent", "audit", "standard", *options, "--verbose")
    line = says("standard: consistent: No deviation", "audit", "standard", *options[:4], "-q")
    assert line.count("\n") == 1
    written = sorted(path.name for path in (tmp_path / "audit").iterdir())
    assert written == ["audit.html", "audit.json", "audit.png", "audit.saved", "audit.svg", "audit.xml"]
    assert "standard: consistent" in (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["verdict"] == "consistent"


def test_the_files_of_a_report_are_written_where_there_is_no_picture(theirs, tmp_path):
    options = ("--level", "smoke", "--case", "two-point", "-o", tmp_path / "x.png")
    code, out, err = run("audit", f"{theirs}:raises", *options, "--out", tmp_path / "out")
    assert f"{theirs}:raises: broken" in out
    assert "out of cheese" in out
    assert (code, "x.png: not written: no case has a table to plot" in err) == (1, True)
    assert (tmp_path / "out" / "audit.json").exists()
    assert not (tmp_path / "x.png").exists()


def test_rules_are_compared(tmp_path, monkeypatch):
    few = partial(specsim.acceptance_by_drafts, max_drafts=3, steps=2**10)
    monkeypatch.setattr(specsim, "acceptance_by_drafts", few)
    monkeypatch.setattr("specsim.core._plotting.save_figure", lambda figure, path: path.touch())
    rule = "lenience:lenience=0.5"
    options = ("--rule", "standard", "--rule", rule, "--steps", "2000", "--seed", "1")
    says(rule, "compare", "zipf", "--vocab-size", "50", *options, "--out", tmp_path / "there")
    names = {path.name for path in (tmp_path / "there").iterdir()}
    assert names == {"comparison.json", "pareto.png", "pareto.svg", "drafts.png", "drafts.svg"}
    assert len(json.loads((tmp_path / "there/comparison.json").read_text())["entries"]) == 2


def test_an_altered_shard_is_named_with_its_row(trace):
    shard = trace / "shard-00000.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-3000] ^= 1
    shard.write_bytes(raw)
    code, out, _ = run("trace", "info", trace)
    assert code == 2
    assert "shard-00000.safetensors" in out
    assert "row 2" in out
    says("shard-00000.safetensors, row 2", "trace", "alpha", trace, code=2)


def test_ctrl_c_exits_with_3_and_leaves_nothing_half_written(tmp_path, request):
    """A real interrupt, to a real process, in the middle of a recording; also where the tests ignore it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    words = f"-m specsim trace record {tmp_path / 'trace'} --steps 100000000"
    with interruptible([sys.executable, *words.split()], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "trace" / "manifest.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.strip() == "specsim: interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert all(shard.ok for shard in specsim.open_trace(tmp_path / "trace").verify())
    assert not [path for path in (tmp_path / "trace").iterdir() if path.suffix == ".tmp"]


def test_an_interrupt_within_the_compiler_is_not_lost():
    """It calls Python through ctypes, which ignores what is raised there."""
    code = """
import ctypes, signal, time
import specsim.__main__, specsim.cli
back = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))
specsim.cli.main = lambda: (back(), time.sleep(50))
specsim.__main__.main()"""
    with interruptible([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert process.communicate(timeout=30)[1].strip() == "specsim: interrupted"
    assert process.returncode == 3


def test_a_trace_of_one_step_has_no_standard_errors(tmp_path):
    run("trace", "record", tmp_path / "trace", "--steps", "1", "--seed", "1")
    assert "nan" not in says("α context", "trace", "alpha", tmp_path / "trace")


def test_a_damaged_manifest_is_refused(trace):
    """Also where damaged shards are left out: it says which shards there are."""
    commands = ("trace info", "trace alpha", "trace alpha --skip-damaged", "trace audit", "plan --c 0.1")
    assert [run(*command.split(), trace).code for command in commands] == [0] * 5
    manifest = trace / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"vocab_size": 256', '"vocab_size": 257'))
    for command in commands:
        code, out, err = run(*command.split(), trace)
        assert (code, out) == (2, "")
        assert err.startswith(f"specsim: {manifest}: damaged or edited")
        assert "restore the file" in err


def test_an_empty_trace_is_refused(tmp_path):
    with specsim.traces.writer(tmp_path / "trace", vocab_size=2, gamma=1) as log:
        pass
    with pytest.raises(ValueError, match="closed"):
        log.append(0, [0], 1, [[0.5, 0.5]] * 2, [[0.5, 0.5]] * 2)
    for command in (["simulate"], ["replay", "--step", "3", "--seed", "1"]):
        says("no step", command[0], tmp_path / "trace", "--gamma", "1", *command[1:], code=2)


def test_generate_prints_text_and_numbers_beside_the_target_alone():
    options = ("--max-new-tokens", "30", "--gamma", "3", "--seed", "1")
    out = says("target alone", "generate", "--prompt", "def ", *options)
    assert out.startswith("def ")
    assert "tokens per iteration" in out


#: Verifiers of two tokens, for whom one case is enough.
OF_TWO_TOKENS = """
import time
import verifiers

def right(*given): return verifiers.right(*given)
def wrong(*given): return verifiers.resamples_from_target(*given)
def raises(*given): return verifiers.raises(*given)
def hangs(*given): time.sleep(60)

right.declared = wrong.declared = raises.declared = hangs.declared = {"vocab_size": 2}
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    (tmp_path / "of_two_tokens.py").write_text(OF_TWO_TOKENS)
    monkeypatch.syspath_prepend(tmp_path)
    return "of_two_tokens"


def test_a_call_that_hangs_is_given_up_after_the_timeout(theirs):
    options = ("--level", "smoke", "--timeout", "0.3")
    out = says("hangs: broken", "audit", f"{theirs}:hangs", *options, code=1)
    assert "hung: a call took longer than 0.3 s" in out


def test_old_is_compared_with_new(theirs, tmp_path):
    options = ("--level", "smoke", "--seed", "1")
    says("right against standard: same", "audit", f"{theirs}:right", "--against", "standard", *options)
    changed = ("audit", f"{theirs}:wrong", "--against", "standard", *options, "--out", tmp_path / "there")
    says("wrong against standard: changed", *changed, code=1)
    document = json.loads((tmp_path / "there" / "against.json").read_text())
    assert (document["verdict"], document["exit_code"]) == ("changed", 1)
    assert document["cases"][0]["changed"]


def test_cases_are_exported_and_tokens_scored(tmp_path, monkeypatch, full):
    from safetensors.numpy import load_file, save_file

    from specsim.auditing import _offline

    if not full:
        battery = _offline.battery
        few = lambda declared: [case for case in battery(declared) if case.name == "zeros"]  # noqa: E731
        monkeypatch.setattr(_offline, "battery", few)
    says("ANSWERS", "audit", "offline", tmp_path / "cases", "--seed", "1", "--dtype", "float16")
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    for file in (tmp_path / "cases").glob("*.safetensors"):  # every draft is taken, whatever p says
        drafted = load_file(file)["draft_tokens"]
        save_file(
            {"tokens": np.column_stack([drafted, np.zeros(len(drafted), np.int64)])}, tokens / file.name
        )
    # test_audit_prints_a_verdict_and_writes_its_files draws them
    monkeypatch.setattr("specsim.auditing._report.audit._svg", lambda *_: "")
    monkeypatch.setattr("specsim.core._plotting.save_figure", lambda figure, path: path.touch())
    score = ("audit", "offline", tmp_path / "cases", tokens, "--name", "engine", "--out", tmp_path / "report")
    assert "have probability 0 under the target" in says("engine: biased", *score, code=1)
    assert json.loads((tmp_path / "report" / "audit.json").read_text())["verdict"] == "biased"
    offline = "audit", "offline", tmp_path / "cases"
    says("there is no such folder", *offline, tmp_path / "nowhere", code=2)
    (tmp_path / "empty").mkdir()
    assert "cannot be read" in says("tokens: broken", *offline, tmp_path / "empty", code=1)


def test_shards_are_merged_to_what_simulate_prints(nowhere, tmp_path):
    common = ("zipf", "--vocab-size", "50", "--steps", "300000", "--seed", "1", "--json")
    _, whole, _ = run("simulate", *common)
    files = [tmp_path / f"{i}.part" for i in range(3)]
    for i, file in enumerate(files):
        assert run("simulate", *common, "--shard", f"{i}/3", "--out", file)[0] == 0
    whole, merged = json.loads(whole), json.loads(says("{", "merge", *reversed(files), "--json"))
    assert whole["provenance"].pop("seconds") != merged["provenance"].pop("seconds")
    assert whole["provenance"].pop("date") <= merged["provenance"].pop("date")
    assert merged == whole
    says("are missing (0 to", "merge", *files[1:], code=2)
    assert "steps, seed 1" in run("merge", *files)[1]
    said = "--out has no effect on parts of a simulation"
    says(said, "merge", *files, "--out", nowhere, code=2)
    said = "the parts are of a simulation, which has no verifier"
    says(said, "merge", *files, "--diagnose", "mine:verify", code=2)
    named = files[0].rename(tmp_path / "0.json")
    said = f"{named}: this command names the file twice"
    says(said, "merge", named, *files[1:], "-o", named, code=2)


def test_an_interrupted_run_says_where_its_checkpoint_is(capsys, tmp_path, monkeypatch):
    path = tmp_path / "run.part"

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(specsim, "simulate", partial(specsim.simulate, progress=interrupt))
    assert simulate_command("zipf", steps=10_000_000, checkpoint=path) == 3
    printed = capsys.readouterr()
    assert f"{path} has the counts; the same command continues from there" in printed.err
    assert "of 10,000,000 steps" in printed.out


def test_words_from_elsewhere_do_not_reach_the_terminal(trace):
    """Escape sequences in the names of files, and in manifests; warnings come without the code that gave them."""
    assert r"\x1b[31m: there is no such file" in run("trace", "info", "\x1b[31m").err
    manifest = json.loads((trace / "manifest.json").read_text())
    manifest["provenance"]["text"] = "\x1b[31m"
    (trace / "manifest.json").write_text(json.dumps(manifest | {"sha256": seal_of(manifest)}))
    for command in ("info", "alpha"):
        ran = run("trace", command, trace)
        assert (ran.code, r"\x1b[31m" in ran.out, "\x1b" in ran.out) == (0, True, False)
    cells = Table(("a",), [("\x1b[31m",)]), Line("\x07", "bold"), "\x1b"
    assert to_text(cells).split() == ["a", r"\x1b[31m", r"\x07", r"\x1b"]
    assert warnings.formatwarning("first\nTraceback", UserWarning, "a.py", 1) == "specsim: first\n"
