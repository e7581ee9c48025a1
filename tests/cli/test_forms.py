"""What all commands share: numbers as people write them, --json, --csv and -o, help, pipes and encodings."""

import csv
import io
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from commands import every_command, help_of, run

import specsim
from specsim.cli._options import exact
from specsim.cli._terminal import in_ascii

FEW_CASES = {"two-point"}

#: Commands that print a table, with what makes them quick.
TABLES = [
    "simulate zipf --steps 1k --seed 1",
    "compare zipf --rule standard --steps 1k --seed 1",
    "sweep zipf --over gamma=1,2 --steps 1k --seed 1",
    "plan --alpha 80% --c 0.05",
    "plan --draft small=0.75,0.02 --draft large=90/100,0.2",
    "check-metrics --gamma 4 --accepted 20 --emitted 27 --steps 7",
    "generate --prompt abcd --max-new-tokens 5 --seed 1",
    "rules",
    "engines",
    "trace alpha",
    "trace audit",
    "trace simulate",
    "trace plan --c 0.05",
    "audit standard --level smoke --seed 1",
]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), ("1e6", 10**6), ("10M", 10**7), ("2k", 2000), ("1.5G", 1_500_000_000), ("80%", Fraction(4, 5)),
        ("12.5%", Fraction(1, 8)), ("-3", -3), ("0.1", Fraction(1, 10)), ("1_000", 1000), (" 7 ", 7),
    ],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(text, number):
    assert exact(text) == number


@pytest.mark.parametrize(
    "text", ["", "x", "M", "%", "1/2", "1e", "10 M x", "0x10", "1e99999", "nan", "1m", "10KB"]
)
def test_other_texts_are_no_numbers(text):
    with pytest.raises(ValueError, match=r"is not a number such as 12, 1e6, 10M or 80%|is out of range"):
        exact(text)


def test_options_take_such_numbers():
    found = run(
        "simulate",
        "zipf",
        "--overlap",
        "80%",
        "--steps",
        "1e3",
        "--vocab-size",
        ".1k",
        "--seed",
        "1",
        "--json",
    )
    document = json.loads(found.out)
    assert document["pair"]["name"] == "zipf:vocab_size=100,overlap=0.8"
    assert document["steps"] == 1000
    assert "is not a whole number" in run("simulate", "zipf", "--steps", "1.5").err
    assert "outside [0, 1]" in run("simulate", "zipf", "--overlap", "80").err
    assert run("simulate", "zipf", "--steps", "1e400").code == 2


@pytest.mark.parametrize("command", TABLES)
def test_a_table_is_printed_as_json_and_as_csv(command, few_cases_in_module, tmp_path):
    words = command.split()
    as_json, as_csv = run(*words, "--json", cwd=tmp_path), run(*words, "--csv", cwd=tmp_path)
    assert as_json.code == as_csv.code == run(*words, cwd=tmp_path).code
    json.loads(as_json.out)
    head, *rows = csv.reader(io.StringIO(as_csv.out))
    assert rows
    assert all(len(row) == len(head) for row in rows)
    assert len(set(head)) == len(head)
    both = run(*words, "--json", "--csv", cwd=tmp_path)
    assert (both.code, both.err) == (2, "specsim: --json and --csv: give one of the two\n")


def test_csv_has_the_numbers_in_full(tmp_path):
    command = "sweep zipf --rule lenience --over lenience=0.5,1 --steps 1k --seed 1"
    rows = list(csv.DictReader(io.StringIO(run(*command.split(), "--csv").out)))
    pair = specsim.read_pair("zipf")
    found = specsim.sweep(pair, rule="lenience", over={"lenience": [0.5, 1.0]}, steps=1000, rng=1).records()
    assert [{name: float(value) for name, value in row.items()} for row in rows] == found


def test_a_result_is_written_to_a_file_besides(tmp_path):
    command = ["simulate", "zipf", "--steps", "2k", "--seed", "1"]
    for name, begins in (
        ("a.json", b"{"),
        ("a.csv", b"accepted"),
        ("a.png", b"\x89PNG"),
        ("a.svg", b"<?xml"),
        ("a.pdf", b"%PDF"),
    ):
        found = run(*command, "-o", name, cwd=tmp_path)
        assert (found.code, found.err) == (0, f"wrote {name}\n")
        assert (tmp_path / name).read_bytes().startswith(begins)
    saved = specsim.load(tmp_path / "a.json")
    assert saved == specsim.simulate(specsim.read_pair("zipf"), steps=2000, rng=1)
    again = run("rerun", "a.json", "--json", cwd=tmp_path)
    assert json.loads(again.out)["lengths"] == saved.lengths.tolist()
    for command, message in (
        ("simulate zipf -o a.txt", "a.txt: expected a file that ends in .json, .csv"),
        ("simulate zipf -o no/a.csv", "there is no such folder"),
        ("check-metrics --accepted 20 --emitted 27 --steps 7 -o a.png", "a MetricsCheck has no picture"),
        ("rerun a.csv", "a.csv: not a saved result"),
    ):
        found = run(*command.split(), cwd=tmp_path)
        assert (found.code, message in found.err) == (2, True), found.err


def test_every_help_has_examples_and_exit_codes():
    for path in every_command():
        shown = " ".join(help_of(path).split())
        assert "Examples:" in shown, path
        assert "Exit codes: 0 " in shown, path


def test_the_examples_of_every_help_exist():
    import cyclopts
    from commands import parse

    for path in every_command():
        lines = help_of(path).partition("Examples:")[2].partition("Exit codes:")[0].splitlines()
        examples = [line.split()[1:] for line in lines if line.strip().startswith("specsim ")]
        assert examples, path
        for words in examples:
            try:
                parse([word.strip("'") for word in words if word != "'"])
            except cyclopts.UnusedCliTokensError:
                assert "--prompt" in words, words  # quoted words


def test_completion_can_be_installed():
    assert "--install-completion" in help_of(())
    found = run("--install-completion", "--shell", "bash", "--output", os.devnull)
    assert found.code in (0, 2)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("simulate ngram --overlap 0.5", "--overlap has no effect on 'ngram': it belongs to synthetic pairs"),
        ("simulate ngram --vocab-size 5", "--vocab-size has no effect on 'ngram'"),
        ("compare ngram --overlap 0.5", "--overlap has no effect on 'ngram'"),
        ("simulate zipf --tree 2,1 --gamma 3", "--gamma has no effect on a tree"),
        ("simulate zipf --checkpoint-seconds 3", "--checkpoint-seconds has no effect without --checkpoint"),
        ("plan --draft a=0.5,0.1 --c 0.1", "--c has no effect on --draft"),
        ("plan zipf --alpha 0.8 --c 0.1", "give one of PAIR, --alpha, --trace and --draft"),
        (
            "models build . --out x.npz --suffix txt --pattern *.md",
            "--suffix and --pattern: give one of the two",
        ),
        ("sweep zipf --over gamma", "'gamma' is not of the form setting=value,value"),
        ("sweep zipf --over gamma=1 --over gamma=2", "give each setting once"),
        ("sweep zipf --over gama=1", "unknown setting of standard 'gama'; did you mean 'gamma'"),
        ("generate zipf", "not a pair of models"),
        ("audit ours.right", "a function is written with a colon, as ours:right"),
        ("audit vlm-cpu", "did you mean 'vllm-cpu'"),
        ("audit standrd", "did you mean 'standard'"),
    ],
)
def test_what_has_no_effect_or_is_misspelt_is_refused(command, message, tmp_path):
    found = run(*command.split(), cwd=tmp_path)
    assert (found.code, message in found.err) == (2, True), found.err
    assert not found.out


def test_a_pair_of_ones_own_is_taken_by_all(tmp_path):
    p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    np.savez(tmp_path / "mine.npz", p=p, q=q)
    for command in (
        "simulate mine.npz --steps 1k", "compare mine.npz --rule standard --steps 1k", "plan mine.npz --c 0.1",
        "sweep mine.npz --over temperature=0.5,1 --steps 1k", "replay mine.npz --step 1 --seed 1",
    ):  # fmt: skip
        assert run(*command.split(), cwd=tmp_path).code == 0, command
    planned = json.loads(run("plan", "mine.npz", "--c", "0.1", "--json", cwd=tmp_path).out)
    assert planned["alphas"] == pytest.approx([0.7])


def test_the_plan_of_a_pair_of_models_has_its_rates_by_position():
    found = json.loads(run("plan", "ngram", "--c", "0.05", "--json").out)
    run_of = specsim.simulate(specsim.read_pair("ngram"), gamma=16, steps=50_000, rng=0)
    assert found["alphas"][0] == pytest.approx(1 - run_of.lengths[0] / run_of.steps)
    assert found["alphas"][0] < found["alphas"][2], "tokens after accepted ones are accepted more often"


def test_any_suffix_of_text_can_be_learnt_from(tmp_path):
    for name in "ab":
        Path(tmp_path, f"{name}.md").write_text("some text, some other text\n" * 20)
    for suffix in (".md", "md"):
        assert run("models", "build", ".", "--suffix", suffix, "--out", "m.npz", cwd=tmp_path).code == 0
    assert run("simulate", "m.npz", "--steps", "100", cwd=tmp_path).code == 0


def shell(line, **environment):
    """What a line of a shell gives, with the exit codes of all commands in its pipe."""
    full = os.environ | {"S": f"{sys.executable} -m specsim"} | environment
    return subprocess.run(
        ["bash", "-c", line + '; echo "${PIPESTATUS[@]}" >&2'], env=full, capture_output=True
    )


def test_a_closed_pipe_is_no_error_and_hides_no_verdict():
    """More than a pipe holds is printed, and its reader ends at once."""
    for command, code in (("rules", 0), ("check-metrics --accepted 20 --emitted 30 --steps 7", 1)):
        found = shell(f"$S {command} | true", PYTHONUNBUFFERED="1")
        assert found.stderr.decode().split() == [str(code), "0"]
    assert shell("$S rules --json | head -c 10").stderr.decode().split() == ["0", "0"]


def test_without_utf_8_signs_are_written_in_ascii():
    found = shell("$S simulate zipf --steps 100 --seed 1", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    text = found.stdout.decode("ascii")
    assert "alpha verified" in text
    assert "+-" in text
    assert "\\" not in text
    assert (
        "α verified"
        in shell("$S simulate zipf --steps 100 --seed 1", PYTHONIOENCODING="utf-8").stdout.decode()
    )


def test_every_sign_that_commands_print_has_an_ascii_form():
    goldens = Path(__file__).parents[1] / "goldens"
    text = "".join(path.read_text(encoding="utf-8") for path in goldens.glob("*.txt"))
    signs = {sign for sign in text if ord(sign) > 127}
    assert signs
    assert not {sign for sign in signs if "\\" in in_ascii(sign) or not in_ascii(sign).isascii()}
