"""What all commands share: numbers as people write them, --json, --csv and -o, help, pipes and encodings."""

import csv
import importlib
import io
import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import cyclopts
import numpy as np
import pytest
from cases import data
from commands import every_command, help_of, parse, run, says
from rich.console import Console

import specsim
from specsim.cli._terminal import in_ascii
from specsim.core._numbers import exact

FEW_CASES = {"two-point"}

#: Commands that print a table, with what makes them quick.
TABLES = (Path(__file__).parent / "tables.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), ("1e6", 10**6), ("10M", 10**7), ("2k", 2000), ("1.5G", 1_500_000_000), ("80%", Fraction(4, 5)),
        ("12.5%", Fraction(1, 8)), ("-3", -3), ("0.1", Fraction(1, 10)), ("1_000", 1000), (" 7 ", 7),
    ],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(text, number):
    assert exact(text) == number


QUIET = data(__file__)["quiet"]


@pytest.mark.parametrize("command", QUIET)
def test_the_verdict_comes_first_and_alone_with_quiet(command, tmp_path):
    for name, full in (("old", 30), ("new", 3)):
        (tmp_path / name).write_text(f'{{"acceptance_histogram": [10, 0, {full}]}}\n' * 20)
    for name, tokens in (("one", {"a": 0, "b": 1}), ("other", {"b": 0, "a": 1})):
        (tmp_path / f"{name}.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": tokens}}))
    quiet, whole = (run(*command.split(), *more, cwd=tmp_path).out for more in (["-q"], []))
    assert quiet.startswith(QUIET[command])
    assert quiet.count("\n") == 1
    assert whole.startswith(quiet)


def test_a_sweep_of_rules_tells_a_log_how_far_it_is():
    words = "compare zipf --vocab-size 8 --rule lenience --sweep --steps 50 --seed 1"
    assert re.search(r"^compare: \d+ of \d+ rules$", run(*words.split()).err, re.MULTILINE)


def test_options_take_such_numbers():
    words = "simulate zipf --overlap 80% --steps 1e3 --vocab-size .1k --seed 1 --json"
    document = json.loads(run(*words.split()).out)
    assert document["pair"]["name"] == "zipf:vocab_size=100,overlap=0.8"
    assert document["steps"] == 1000

    # and those of a pair and of a rule
    p, q = specsim.read_pair("zipf:vocab_size=.1k,overlap=80%")
    assert p.shape == (100,)
    assert np.minimum(p, q).sum() == pytest.approx(0.8)
    assert specsim.rules.get("lenience:lenience=50%").values == {"lenience": 0.5}


@pytest.mark.parametrize("command", TABLES)
def test_a_table_is_printed_as_json_and_as_csv(command, few_cases_in_module, tmp_path):
    words = command.split()
    as_json, as_csv = run(*words, "--json", cwd=tmp_path), run(*words, "--csv", cwd=tmp_path)
    assert as_json.code == as_csv.code
    json.loads(as_json.out)
    head, *rows = csv.reader(io.StringIO(as_csv.out))
    assert rows
    assert all(len(row) == len(head) for row in rows)
    assert len(set(head)) == len(head)
    both = run(*words, "--json", "--csv", cwd=tmp_path)
    assert (both.code, both.err) == (2, "specsim: --json and --csv: give only one\n")


def test_a_table_is_printed_and_written_for_pages_and_articles(tmp_path):
    words = "compare", "zipf", "--rule", "standard", "--rule", "block", "--steps", "1k", "--seed", "1"
    said, latex = (run(*words, form).out for form in ("--markdown", "--latex"))
    assert "| rule | drafts | tokens/step | TV |\n| :--- | :--- | ---: | ---: |\n| block | " in said
    assert r"\begin{tabular}{llrr}" in latex
    for name, text in {"a.md": said, "a.tex": latex, "a.html": ""}.items():
        assert run(*words, "-q", "-o", name, cwd=tmp_path).out.startswith("block: ")
        assert text in (tmp_path / name).read_text()
    every = "compare", "zipf", "--vocab-size", "9", "--gamma", "2", "--steps", "9", "--seed", "1"
    assert [run(*every, *form).out.count("\n") > 24 for form in ((), ("-v",))] == [False, True]


def test_csv_has_the_numbers_in_full(tmp_path):
    command = "simulate zipf --rule lenience --over lenience=0.5,1 --steps 1k --seed 1"
    rows = list(csv.DictReader(io.StringIO(run(*command.split(), "--csv").out)))
    pair = specsim.read_pair("zipf")
    found = specsim.sweep(pair, rule="lenience", over={"lenience": [0.5, 1.0]}, steps=1000, rng=1).records()
    assert [{name: float(value) for name, value in row.items()} for row in rows] == found


def test_a_result_is_written_to_a_file_besides(tmp_path, full):
    command = ["simulate", "zipf", "--steps", "2k", "--seed", "1"]
    starts = {"json": b"{", "csv": b"accepted", "svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for name, begins in [(f"a.{ending}", start) for ending, start in starts.items()][: 5 if full else 3]:
        found = run(*command, "-o", name, cwd=tmp_path)
        assert (found.code, found.err) == (0, f"wrote {name}\n")
        assert (tmp_path / name).read_bytes().startswith(begins)
    saved = specsim.load(tmp_path / "a.json")
    assert saved == specsim.simulate(specsim.read_pair("zipf"), steps=2000, rng=1)
    again = run("simulate", "a.json", "--json", cwd=tmp_path)
    assert json.loads(again.out)["lengths"] == saved.lengths.tolist()
    (tmp_path / "b.json").write_text("{}")
    specsim.plan(0.8, 0.05).save(tmp_path / "plan.json")
    for command, message in (
        ("simulate b.json", "b.json: does not say format 'specsim result 1'"),
        ("simulate plan.json", "plan.json: a Plan; only a Simulation can be simulated again"),
        ("simulate a.json --seed 3", "--seed has no effect on a.json, which has all settings"),
    ):
        says(message, *command.split(), cwd=tmp_path, code=2)


#: What `specsim` may offer at most, beside the options of the output.
MAX_COMMANDS, MAX_OPTIONS = 25, 20


def test_there_are_few_commands_with_few_options():
    """A group without a function of its own is not a command."""
    parts = {path: help_of(path).partition("╭─ Output ") for path in every_command()}
    counted = {path: len(OPTION.findall(own)) for path, (own, *_) in parts.items()}
    assert {len(OPTION.findall(output)) for *_, output in parts.values()} == {0, 7}
    assert len([path for path, options in counted.items() if path and options]) <= MAX_COMMANDS
    assert max(counted.values()) <= MAX_OPTIONS, counted
    assert counted["audit", "engine"] > 10, "options are found"


#: A parameter in a help, with its value's name if it can be given without that of the option.
OPTION = re.compile(r"^│ (?:\*? {1,3})?(?:[A-Z-]+ )?(?:--\w|[A-Z]+ +\S)(?!elp|nstall|ersion)", re.M)


def test_help_has_examples_and_exit_codes_in_plain_lines():
    """Examples are not padded, fit on a terminal, and can be parsed; --out and --save are told apart."""
    for path in every_command():
        shown = help_of(path)
        assert "\n\n\n" not in shown, path
        examples = shown.partition("Examples:\n")[2].partition("\n\nExit codes: 0 ")[0].splitlines()
        assert examples, path
        assert all(line.startswith("    specsim ") and len(line) <= 80 for line in examples), path
        assert path not in (("trace",), ("audit",)) or {line.split()[1] for line in examples} == {*path}
        for words in (line.split()[1:] for line in examples):
            try:
                parse([word.strip("'") for word in words if word != "'"])
            except cyclopts.UnusedCliTokensError:
                assert "--prompt" in words, words  # quoted words
        words = " ".join(shown.replace("│", " ").split())
        if "--out " in words and "--save" in words:
            assert "-o FILE saves the result alone" in words, path


@pytest.mark.parametrize("program", ["experiments", "figures"])
def test_the_other_programs_have_examples_and_exit_codes_too(program):
    module = importlib.import_module(f"{program}.__main__")
    text = io.StringIO()
    module.app.help_print([], console=Console(file=text, width=100))
    shown = " ".join(text.getvalue().split())
    assert f"Examples: python -m {program}" in shown
    assert "Exit codes: 0 " in shown
    for line in text.getvalue().partition("Examples:")[2].partition("Exit codes")[0].splitlines():
        if line.strip():
            module.app.parse_args(line.split()[3:], exit_on_error=False, print_error=False)
            assert all(word in module.known() for word in line.split()[3:4] if not word.startswith("-"))


def test_a_result_is_not_taken_for_a_damaged_checkpoint(tmp_path):
    assert run("simulate", "zipf", "--steps", "1k", "-o", "x.json", cwd=tmp_path).code == 0
    for command in ("simulate zipf --steps 1k --seed 1 --out x.json", "merge x.json"):
        what = "x.json: holds a result, not a checkpoint"
        assert "delete" not in says(what, *command.split(), cwd=tmp_path, code=2)
    (tmp_path / "notes.txt").write_text("not a part")
    said = says("not a part of a run", "merge", "notes.txt", cwd=tmp_path, code=2)
    assert "or run its steps again" in said


def test_a_note_on_wrong_rules_stands_below_wrong_rules():
    options = ("--steps", "100", "--seed", "1")
    assert "wrong on purpose" not in run("compare", "zipf", "--rule", "standard", *options).out
    assert "wrong on purpose" in run("compare", "zipf", "--rule", "pointwise_envelope", *options).out


def test_what_a_trace_is_and_a_replay_are_printed_for_programs(tmp_path):
    about = json.loads(run("trace", "info", "--json").out)
    assert (about["gamma"], about["vocab_size"], about["complete"]) == (4, 256, True)
    assert sum(shard["rows"] for shard in about["shards"]) == about["rows"] == about["steps"] * 5
    words = "replay zipf --step 3 --seed 1 --gamma 2"
    found = json.loads(run(*words.split(), "--json").out)
    assert found["tokens"] == list(specsim.replay(*specsim.read_pair("zipf"), step=3, gamma=2, rng=1).tokens)
    assert run(*words.split(), "-o", "step.json", cwd=tmp_path).code == 0
    assert specsim.load(tmp_path / "step.json").tokens == tuple(found["tokens"])


def test_completion_can_be_installed():
    assert run("--install-completion", "--shell", "bash", "--output", os.devnull).code in (0, 2)


def test_the_plan_of_a_pair_of_models_has_its_rates_by_position():
    found = json.loads(run("plan", "ngram", "--c", "0.05", "--json").out)
    run_of = specsim.simulate(specsim.read_pair("ngram"), gamma=16, steps=50_000, rng=0)
    assert found["alphas"][0] == pytest.approx(1 - run_of.lengths[0] / run_of.steps)
    assert found["alphas"][0] < found["alphas"][2], "tokens after accepted ones are accepted more often"


slow = partial(pytest.param, marks=pytest.mark.slow)


def shell(line, **environment):
    """What a line of a shell gives, with the exit codes of all commands in its pipe."""
    full = os.environ | {"S": f"{sys.executable} -m specsim"} | environment
    return subprocess.run(
        ["bash", "-c", line + '; echo "${PIPESTATUS[@]}" >&2'], env=full, capture_output=True
    )


def test_a_closed_pipe_is_no_error_and_hides_no_verdict():
    """Its reader ends at once, or before all is printed."""
    found = shell("$S check-metrics --accepted 20 --emitted 30 --steps 7 | true", PYTHONUNBUFFERED="1")
    assert found.stderr.decode().split() == ["1", "0"]
    assert shell("$S list rules --json | head -c 10").stderr.decode().split() == ["0", "0"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        slow("plan --alpha .8 --c .05 -o p.json 2>&1 | true", 0),
        slow("check-metrics --accepted 20 --emitted 30 --steps 7 -o c.json 2>&1 | true", 1),
        slow("nosuch 2>&1 | true", 2),
        slow("plan --alpha .8 --c .05 --json >&- 2>&-", 0),
        slow("nosuch >&- 2>&-", 2),
        slow("nosuch 2>/dev/full", 2),
        ("plan --alpha .8 --c .05 --json >/dev/full", 2),
    ],
)
def test_no_stream_changes_the_exit_code(line, code, tmp_path):
    """Whether one of the two is a pipe without a reader, closed, or full."""
    found = shell(f"cd {tmp_path}; $S {line}", PYTHONUNBUFFERED="1")
    assert found.stderr.decode().splitlines()[-1].split()[0] == str(code)
    assert "Traceback" not in found.stderr.decode()


def test_without_utf_8_signs_are_written_in_ascii():
    found = shell("$S plan --alpha .8 --c .05", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    text = found.stdout.decode("ascii")
    assert " gamma  tokens/step" in text
    assert "########" in text
    assert "\\" not in text
    assert " γ  tokens/step" in run("plan", "--alpha", ".8", "--c", ".05").out


def test_every_sign_that_commands_print_has_an_ascii_form():
    goldens = Path(__file__).parents[1] / "goldens"
    text = "".join(path.read_text(encoding="utf-8") for path in goldens.glob("*.txt"))
    signs = {sign for sign in text if ord(sign) > 127}
    assert signs
    assert not {sign for sign in signs if "\\" in in_ascii(sign) or not in_ascii(sign).isascii()}
