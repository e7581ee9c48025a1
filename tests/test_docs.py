"""The pages: their Python runs, their commands and options exist, what a command is shown to print is what it
prints.

Python blocks of a page run in one namespace, in an empty folder. An HTML comment on the line before a block
says otherwise:

    <!-- file: mine.py -->         it is written to that file, and imported; the tests in a test_*.py are called
    <!-- not run: needs a GPU -->  it is only compiled, and the names that it imports from specsim must exist

A block that begins with `# mine.py` is such a file too. Indented lines that begin with `specsim` or `make`,
and the same between backquotes, are parsed and not run; the commands of ```console blocks are run, and must
print what follows them."""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cyclopts
import pytest
from commands import forget, parse, run
from laws import generated

from experiments.audit import independent_set
from experiments.audit._criteria import FOUND
from experiments.audit.independent_set import first_verdicts, subjects
from specsim import open_trace, rules
from specsim.adapters._contract import Declared
from specsim.auditing._cases.shapes import shape_cases
from specsim.auditing._results.audit import HINT
from specsim.core._kernels import _folder
from specsim.engines._planted.plant import guide
from specsim.planning._measured import plan_recorded
from specsim.theory._enumeration import prove

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/engines").glob("*.md")),
    )
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

FEW_CASES = {"two-point", "asymmetric", "zeros", "Markov chain"}
#: Commands that take a second: where a page gives one in full, it runs.
CHEAP = {"check-metrics", "generate", "list", "plan", "replay", "simulate-batch"}

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    """A fenced block: its language, its text and its first line's number; the file that it is, why it does
    not run."""

    language: str
    code: str
    line: int
    file: str | None
    not_run: str | None


def blocks(page):
    """The fenced blocks of a page. Raises ValueError for a mark that is none."""
    for found in FENCE.finditer(page):
        mark, code = found["mark"] or "", found["code"]
        kind, _, rest = mark.partition(": ")
        if mark and (kind not in ("file", "not run") or not rest):
            raise ValueError(f"{mark!r} before a block: expected 'file: NAME' or 'not run: REASON'")
        named = re.match(r"# (\S+\.py)\n", code)
        file = rest if kind == "file" else named[1] if named else None
        line = page.count("\n", 0, found.start("code")) + 1
        yield Block(found["language"], code, line, file, rest if kind == "not run" else None)


def commands(page):
    """(line as it is written, whether it is given in full) for each `specsim …` of a page, but those of
    console blocks."""
    page = FENCE.sub(lambda found: "" if found["language"] else found[0], page)
    for line in re.findall(r"^    (?:\$ )?(specsim(?: (?:[^\\\n]|\\\n)*)?)$", page, re.M):
        yield re.sub(r"\\\n\s*", "", line).partition("  #")[0].partition(" # ")[0].strip(), True
    for span in re.findall(r"`(specsim\s[^`]+)`", page):
        yield " ".join(span.split()), False


@cache
def check_command(line, in_full=True):
    """Raise CycloptsError for a command or an option that does not exist, or a value that does not convert.

    Unless it is given `in_full`, arguments may be missing."""
    _, *words = shlex.split(re.sub(r"\[[^]]*\]|…", "", line))
    try:
        parse(words)
    except cyclopts.MissingArgumentError:
        if in_full:
            raise


def make_targets(page):
    """What a page has `make` do, between backquotes or at the beginning of an indented line."""
    return re.findall(r"`make ([^`\s]+)[^`]*`", page) + re.findall(r"^    make (\S+)", page, re.M)


def run_python(page, folder):
    """Run the Python of a page in `folder`. What fails raises, and says in which line of the page."""
    known, path = {*sys.modules}, [*sys.path]
    namespace = {"__name__": "page"}
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        with chdir(folder):
            for block in blocks(page):
                if block.language == "python":
                    _run_block(block, namespace, Path(folder))
    finally:
        sys.path[:] = path
        forget(known, folder)


def _run_block(block, namespace, folder):
    lines = "\n" * (block.line - 1)  # so that a traceback names the line of the page
    if block.not_run is not None:
        check_imports(lines + block.code)
    elif block.file is None:
        exec(compile(lines + block.code, "page", "exec"), namespace)
    elif "/" not in block.file:
        (folder / block.file).write_text(lines + block.code, encoding="utf-8")
        importlib.invalidate_caches()
        module = importlib.import_module(block.file.removesuffix(".py"))
        if block.file.startswith("test_"):
            for name in [name for name in vars(module) if name.startswith("test_")]:
                getattr(module, name)()


def check_imports(code):
    """Compile a block, and import what it imports from specsim. Raises SyntaxError, ImportError or
    AttributeError."""
    for node in ast.walk(ast.parse(code.replace("…", "..."))):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "specsim":
            exec(ast.unparse(node), {})
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] == "specsim":
                    importlib.import_module(name.name)


def check_console(block, folder):
    """Run the commands of a console block, each `$ specsim …`, and compare what they print with what
    follows."""
    for part in re.split(r"^\$ ", block.code, flags=re.M)[1:]:
        line, _, shown = part.partition("\n")
        _, *words = shlex.split(line)
        assert [text.rstrip() for text in run(*words, cwd=folder).out.splitlines()] == [
            text.rstrip() for text in shown.rstrip("\n").splitlines()
        ], line


# --- the pages -------------------------------------------------------------------------------------------


def test_links_say_what_they_lead_to():
    results = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/results").glob("*.md")}
    for name, page in (PAGES | results).items():
        assert not re.findall(r"\[`?[\w/-]+\.(?:md|svg)`?\]\(", page), name


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if "```python" in page])
def test_python_runs(name, tmp_path, few_cases_in_module):
    run_python(PAGES[name], tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name != "docs/checking-metrics.md"))
        for name, page in PAGES.items()
        if "```console" in page
    ],
)
def test_a_console_shows_what_is_printed(name, tmp_path):
    for block in blocks(PAGES[name]):
        if block.language == "console":
            check_console(block, tmp_path)


def test_the_first_page_shows_what_a_report_says():
    page, report = PAGES["docs/index.md"], " ".join(PAGES["docs/reading-a-report.md"].split())
    (shown,) = re.findall(r"```text\n\$ specsim audit .*?\n(.*?)```", page, re.S)
    parts = [" ".join(part.split()) for part in shown.split("…")]
    assert sum(map(len, parts)) > 80
    assert all(part in report for part in parts)


def test_the_pages_say_which_calls_an_audit_makes():
    cases = shape_cases(Declared())
    rows, gamma, ids = (
        max(map(most, cases))
        for most in (lambda case: max(case.sizes)[0], lambda case: case.gamma, lambda case: case.vocab_size)
    )
    spaced = f"calls of 1 to {rows:,} rows with 1 to {gamma} drafted tokens over 2 to {ids:,} ids"
    assert spaced.replace(",", " ") in " ".join(PAGES["docs/auditing-your-engine.md"].split())
    changes = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    assert f"Calls have up to {rows:,} rows, {gamma} drafted tokens and {ids:,} ids." in changes


def test_the_page_on_planning_has_the_numbers_of_its_recording():
    found = plan_recorded(open_trace(ROOT / "experiments/kept/recording"))
    c, longer = re.search(r"^c (\S+)", found.meaning)[1], found.choices[-1].verification
    said = (
        f"c is {float(c):.2f}, and no γ gains",
        f"over six tokens takes {longer:.1f} times as long as over one",
    )
    assert (found.best, found.choices[-1].gamma) == (None, 5)
    assert not [sentence for sentence in said if sentence not in " ".join(PAGES["docs/planning.md"].split())]


def test_the_page_on_performance_has_every_rule_and_adds_up():
    page, number = " ".join(PAGES["docs/performance.md"].split()), r"([\d.,]+)"
    rows = re.findall(rf"\| ([^|]+) \| {number} \| {number} – {number} \|", page)
    assert [name for name, *three in rows if sorted(three, key=float)[1] != three[0]] == []
    named = [name.split(" / ")[0] for name, *_ in rows if name.endswith(" / standard, per drafted token")]
    assert {*named} == {*rules.names("chain", "tree", "lossy")}
    ids, sent, read = (
        float(re.search(how.replace("N", number), page)[1].replace(",", ""))
        for how in ("over V = N ids with one drafted token", r"\(N GB/s on data", "the N TB/s of an H100")
    )
    step = 3 * 4 * ids  # bytes of two rows of p and one of q
    assert f"{step / 2**20:g} MiB in float32, and a call of 4,096 rows {4096 * step / 2**30:g} GiB" in page
    assert f"at least {1e6 * step / sent / 1e9:.0f} s" in page
    assert f"{1e6 * step / 1e12:.1f} TB for 10⁶ steps" in page
    assert round(1e6 * step / read / 1e12, 1) == 0.5


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_targets_exist(name):
    for line, in_full in commands(PAGES[name]):
        try:
            check_command(line, in_full)
        except cyclopts.CycloptsError as error:
            pytest.fail(f"{name}: {line}: {error}")
    assert {*make_targets(PAGES[name])} <= TARGETS


def cheap():
    for name, page in PAGES.items():
        for line, _ in commands(page):
            words, files = shlex.split(line), "FOLDER|FILE|last-night|--from|--prompts|\\.log"
            if words[1:2] and words[1] in CHEAP and not re.search(f"[…\\[]|{files}", line):
                yield pytest.param(words[1:], id=f"{name}: {line}")


@pytest.mark.slow
@pytest.mark.parametrize("words", [*cheap()])
def test_a_cheap_command_runs(words, tmp_path):
    try:
        check_command(shlex.join(["specsim", *words]))
    except cyclopts.MissingArgumentError:
        pytest.skip("not given in full")
    found = run(*words, cwd=tmp_path)
    assert found.code in (0, 1), found.err
    assert found.out
    assert not found.err


def test_there_are_commands_of_every_kind():
    """So that none of the tests above looks at nothing."""
    found = [line for page in PAGES.values() for line, _ in commands(page)]
    assert len(found) > 60
    for start in ("audit mine:verify", "trace alpha", "merge", "trace record", "compare", "simulate zipf"):
        assert any(line.startswith(f"specsim {start}") for line in found), start
    assert {"audit", "test", "docs", "bench", "check-gpu"} <= {
        t for page in PAGES.values() for t in make_targets(page)
    }
    assert len([*cheap()]) > 5


def test_the_pages_about_engines_have_the_commands_of_a_planted_folder():
    commands = re.findall(r"(?:^    .*\n)+", guide(2048, 8, ("hf", "gguf")), re.M)
    assert len(commands) == 10
    pages = "".join(
        PAGES[name] for name in PAGES if name.startswith(("docs/auditing-engines", "docs/engines/"))
    )
    assert not [command for command in commands if command not in pages]


def example_rule(page):
    """The file that the page about rules writes."""
    (block,) = (block for block in blocks(page) if block.file and block.file.startswith("specsim/"))
    return block


def test_the_example_rule_has_the_law_of_the_target():
    """By proof; with --all `test_rules` holds its kernels to the law, see below."""
    namespace = {"__name__": "half_hearted"}
    exec(example_rule(PAGES["docs/adding-a-rule.md"]).code, namespace)
    rule = namespace["RULE"]
    for target, draft, shape, context in generated(rule, 30, seed=1):
        assert prove(target, draft, rule=rule, gamma=shape, context=context).exact


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if any(b.file for b in blocks(page))])
def test_files_of_a_page_pass_the_linter(name):
    for block in blocks(PAGES[name]):
        if block.file:
            for words in (["check"], ["format", "--check"]):
                ended = linted(words, block.file, block.code)
                assert ended.returncode == 0, ended.stdout + ended.stderr


def test_what_the_linter_does_not_pass_is_seen():
    assert linted(["check"], "specsim/bad.py", "import os\n").returncode == 1
    assert linted(["format", "--check"], "specsim/bad.py", "x=1\n").returncode == 1


def linted(words, file, code):
    command = [Path(sys.executable).with_name("ruff"), *words, "--stdin-filename", file, "-"]
    return subprocess.run(command, cwd=ROOT, input=code, capture_output=True, text=True)


@pytest.mark.slow
def test_the_example_rule_is_a_rule(tmp_path):
    """With the one file that the page writes, the tests of rules and of bounds ask all of it."""
    block = example_rule(PAGES["docs/adding-a-rule.md"])
    for folder, _, files in os.walk(ROOT / "specsim"):
        below = tmp_path / Path(folder).relative_to(ROOT)
        below.mkdir()
        for name in files:
            if not folder.endswith("__pycache__"):
                (below / name).symlink_to(Path(folder, name))
    for name in ("tests", "docs", "experiments", "README.md", "CHANGELOG.md", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    added = tmp_path / block.file
    assert not added.exists()
    assert added.parent.is_dir()
    added.write_text(block.code, encoding="utf-8")
    tests = ["tests/rules/test_rules.py", "tests/traces/test_expected.py", "tests/test_readme.py"]
    tests += ["-k", f"{added.stem} or counted", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(_folder().parent)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    for words, said in (
        (["pytest", *tests], r"\d+ passed"),
        (["specsim", "audit", added.stem, "--level", "smoke", "--seed", "1"], "consistent, wasteful"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert re.search(said, ended.stdout)


# --- what goes wrong is seen -----------------------------------------------------------------------------


def page_of(code, mark=""):
    return f"Text.\n\n{mark}```python\n{code}\n```\n"


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (page_of("1 / 0"), ZeroDivisionError),
        (page_of("x = 1") + page_of("assert x == 2"), AssertionError),
        (page_of("from specsim.rules import no_such"), ImportError),
        (page_of("# other.py\n1 / 0"), ZeroDivisionError),
        (page_of("1 / 0", "<!-- file: other.py -->\n"), ZeroDivisionError),
        (page_of("# test_it.py\ndef test_it():\n    assert 1 == 2"), AssertionError),
        (page_of("x = (", "<!-- not run: why -->\n"), SyntaxError),
        (page_of("from specsim.rules import no_such", "<!-- not run: why -->\n"), ImportError),
        (page_of("import specsim.no_such", "<!-- not run: why -->\n"), ImportError),
        (page_of("x = 1", "<!-- not run -->\n"), ValueError),
        (page_of("x = 1", "<!-- ignore: why -->\n"), ValueError),
    ],
)
def test_a_broken_block_fails(page, error, tmp_path):
    before = {*sys.modules}, [*sys.path]
    with pytest.raises(error):
        run_python(page, tmp_path)
    assert "other" not in sys.modules
    assert sys.path == before[1]


def test_blocks_share_a_namespace_and_files_are_imported(tmp_path):
    page = (
        page_of("x = 1", "<!-- file: mine.py -->\n") + page_of("import mine") + page_of("assert mine.x == 1")
    )
    run_python(page, tmp_path)
    run_python(page_of("import no_such_engine\n1 / 0", "<!-- not run: needs an engine -->\n\n"), tmp_path)
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    "line",
    [
        "specsim simulat", "specsim simulate --colour", "specsim simulate --gamma x",
        "specsim audit exprot --dtype float32", "specsim trace alpa", "specsim replay --step 5 --sead 1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_full", [True, False])
def test_a_wrong_command_fails(line, in_full):
    page = f"Text.\n\n    $ {line}  # why\n" if in_full else f"Text `{line}` text.\n"
    assert [*commands(page)] == [(line, in_full)]
    with pytest.raises(cyclopts.CycloptsError):
        check_command(line, in_full)


def test_a_missing_argument_is_wrong_in_a_block_only():
    check_command("specsim replay", in_full=False)
    with pytest.raises(cyclopts.MissingArgumentError):
        check_command("specsim replay")


def test_a_console_that_shows_something_else_fails(tmp_path):
    line = "specsim check-metrics --gamma 4 --accepted 5 --steps 7"
    said = run(*shlex.split(line)[1:]).out
    (right,) = blocks(f"```console\n$ {line}\n{said}```\n")
    check_console(right, tmp_path)
    (wrong,) = blocks(f"```console\n$ {line}\n{said.replace('5', '6')}```\n")
    with pytest.raises(AssertionError):
        check_console(wrong, tmp_path)


def test_commands_over_several_lines_are_one():
    page = (
        "    specsim trace record trace/ --target A \\\n        --gamma 5\n    specsim trace alpha trace/\n"
    )
    assert [*commands(page)] == [
        ("specsim trace record trace/ --target A --gamma 5", True),
        ("specsim trace alpha trace/", True),
    ]


def test_targets_are_found():
    page = "`make docs` and\n\n    make audit    # quick\n\nto make up, `make -C x`"
    assert make_targets(page) == ["docs", "-C", "audit"]


def found_of(each, kind, low=0.0, high=1.01):
    """(found, all) of the audited subjects of a set and a kind with a total variation in [low, high)."""
    some = [row for row in first_verdicts(each) if row["kind"] == kind and row["verdict"] is not None]
    some = [row for row in some if row["tv"] is None or low <= row["tv"] < high]
    return sum(row["verdict"] in FOUND for row in some), len(some)


def outcomes_of(file):
    """How many diagnoses of an independent set came out so, of how many, and the outcomes of those with a name."""
    rows = json.loads((ROOT / f"tests/independent/{file}.json").read_text())["rows"]
    return (
        Counter(row["outcome"] for row in rows),
        len(rows),
        [row["outcome"] for row in rows if row["named"]],
    )


def test_the_page_of_batteries_has_the_numbers_of_engines_by_independent_authors():
    rows = json.loads((ROOT / "tests/independent/servers.json").read_text())["rows"]
    wrong_ones = [row for row in rows if row["kind"] == "wrong"]
    sets = [
        [row for row in wrong_ones if row["set"] == each] for each in ("first", "second", "third", "fourth")
    ]
    small, any_, given, right = (
        "{}, {}, {} and {}".format(*(sum(map(held, wrong)) for wrong in sets))
        for held in (
            lambda row: row["found"] == "small",
            lambda row: row["found"] is not None,
            lambda row: row["outcome"] != "none",
            lambda row: row["outcome"] == "right",
        )
    )
    assert [row["found"] for row in rows if row["kind"] == "right"] == [None] * 35 + ["small"] * 5
    assert [len(wrong) for wrong in sets] == [30, 30, 30, 30]
    page = " ".join((ROOT / "docs/batteries.md").read_text(encoding="utf-8").split())
    assert f"*small* found {small} of the 30 wrong ones of each, *mid* {any_}" in page
    assert "none of the 30 right ones of the first three, and 5 of the 10 of the fourth" in page
    assert f"Of {given} names that they gave {right} were right" in page


def test_the_page_on_statistics_has_the_numbers_of_the_independent_sets():
    kinds = ("wrong verifier", "wrong decoder", "right verifier", "right decoder")
    (caught, large), (accused, right) = found_of("first", kinds[0], 0.02), found_of("first", kinds[2])
    bands = ((0.3, 1.01, ".3 on"), (0.1, 0.3, ".1"), (0.05, 0.1, ".05"), (0.02, 0.05, ".02"))
    counts = [(*found_of("first", kinds[0], low, high), name) for low, high, name in bands]
    said = [
        f"the {large} wrong verifiers",
        f"found {caught}, that is {100 * caught / large:.0f} %",
        ", ".join(f"{some} of {each} from {low}" for some, each, low in counts),
        f"none of the {right} right verifiers",
        "Of the {1} wrong decoders they found {0}.".format(*found_of("first", kinds[1])),
    ]
    assert accused == 0
    for each in ("second", "third", "fourth", "sixth"):
        (caught, large), (decoders, texts) = (found_of(each, kind, 0.02) for kind in kinds[:2])
        (accused, right), (other, rest) = (found_of(each, kind) for kind in kinds[2:])
        assert accused == 0
        said.append(
            f"of its {large} wrong verifiers with a total variation of at least .02 audits at level quick found {caught}, "
            f"that is {100 * caught / large:.0f} %, and {decoders} of {texts} wrong decoders; none of the {right} right verifiers"
            + (f" was accused. Of the {rest} right decoders {other} was called broken" if other else f" and {rest} right decoders")
        )  # fmt: skip
    (caught, large), (accused, right) = found_of("seventh", kinds[0], 0.02), found_of("seventh", kinds[2])
    said.append(
        f"audits at level quick found {caught} of {large}. Of the {right} right ones that were audited {accused} was called broken"
    )
    (caught, large), (decoders, texts) = (found_of("eighth", kind, 0.02) for kind in kinds[:2])
    (accused, right), (other, rest) = (found_of("eighth", kind) for kind in kinds[2:])
    said.append(
        f"audits at level quick found {caught} of {large}, and {decoders} of {texts} wrong decoders. None of the "
        f"{right + rest} right ones was accused."
    )
    assert accused == other == 0
    (caught, large), (more, others) = (found_of(each, kinds[0], 0.02) for each in ("ninth", "tenth"))
    (accused, right), (other, rest) = (found_of(each, kinds[2]) for each in ("ninth", "tenth"))
    said.append(
        f"audits at level quick found {caught} of {large}, of those of the tenth {more} of {others}. None of the "
        f"{right + rest} right ones was accused."
    )
    assert accused == other == 0
    for each, missed in (
        ("eleventh", 2),
        ("twelfth", 0),
        ("fourteenth", 1),
        ("fifteenth", 1),
        ("seventeenth", 2),
    ):
        (caught, large), (accused, right) = found_of(each, kinds[0], 0.02), found_of(each, kinds[2])
        said.append(f"found {caught} of {large}. None of the {right} right ones was accused.")
        assert (accused, large - caught) == (0, missed)
    (found, wrong), (accused, right) = (found_of("fifth", kind, 0.02) for kind in (kinds[1], kinds[3]))
    said.append(f"found {found} of {wrong} wrong decoders; none of the {right} right decoders was accused")
    assert accused == 0
    (caught, large), (accused, right) = (
        found_of("thirteenth", kind, tv) for kind, tv in ((kinds[0], 0.02), (kinds[2], 0))
    )
    said.append(f"found {caught} of {large}. **Of the {right} right ones {accused} were called biased.**")
    (caught, large) = found_of("sixteenth", kinds[0], 0.02)
    said.append(f"quick found {caught} of {large}.")
    later = ("ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth")
    for each in later:
        found, rows, _ = outcomes_of(f"diagnosed_{each}")
        said.append(
            f"{rows - found[None]} could be diagnosed, {found['right'] + found['wrong']} were given a name, and {found['right']} "
            f"of these names were right; {found['missing']} were called unknown although a name would have been right."
        )
    (found, first, _), (after, again, _) = outcomes_of("diagnosed_first"), outcomes_of("diagnosed")
    said += [
        f"The first {first} of them were audited at level quick: {first - found[None]} could be diagnosed, "
        f"{found['right'] + found['wrong']} were given a name, and {found['right']} of these names were right; "
        f"{found['missing']} were called unknown although a name would have been right, and {found['rightly unknown']} rightly.",
        f"all {again} were diagnosed again, after audits of {independent_set.SECONDS:.0f} seconds: "
        f"{again - after[None]} could be diagnosed, {after['right'] + after['wrong']} were given a name, and {after['right']} of "
        f"these names were right; {after['missing']} were called unknown although a name would have been right, ",
        f"in one shape of calls only, and {after['rightly unknown']} rightly.",
    ]  # fmt: skip
    given = []
    for each in ("third", "second", "fourth", "fifth", "sixth", "seventh", "eighth"):
        held_out, number, names = outcomes_of(f"diagnosed_{each}")
        given += names
        verb = "was" if held_out["right"] == 1 else "were"
        said.append(
            f"Of its {number} wrong subjects {number - held_out[None]} could be diagnosed, {len(names)} were given a name, "
            f"and {held_out['right']} of these names {verb} right; {held_out['missing']} were called unknown although a name "
            f"would have been right, and {held_out['rightly unknown']} rightly."
        )  # fmt: skip
        if each == "fourth":
            said.append(f"{given.count('right')} of {len(given)} names were right as they were given")
    said.append(f"In the seven sets together {given.count('right')} of {len(given)} names were right as they")
    for kind, sets in (
        ("verifier", ("second", "fourth")), ("decoder", ("second", "fourth")),
        ("verifier", ("second", "fourth", "sixth", "seventh", "eighth")), ("decoder", ("fifth", "sixth")),
    ):  # fmt: skip
        names = [
            row["outcome"]
            for each in sets
            for row in json.loads((ROOT / f"tests/independent/diagnosed_{each}.json").read_text())["rows"]
            if row["named"] and subjects()[f"{each}:{row['name']}"]["kind"] == f"wrong {kind}"
        ]
        said.append(f"{names.count('right')} of {len(names)} names of {kind}s")
    kept = {True: [], False: []}
    for row in json.loads((ROOT / "tests/independent/fitting.json").read_text())["rows"]:
        right = row["names"][0].partition(":")[0] in independent_set.allowed_names()[row["subject"]]
        kept[right].append(bool(row["fit"]))
    _, renamed, names = outcomes_of("renamed")
    assert {*names} == {"right"}
    said += [
        f"Of {len(kept[True])} decoders whose name was right, {sum(kept[True])} keep it, and of {len(kept[False])} whose "
        f"name was wrong {sum(kept[False]) or 'none'} does; the others were not tested again",
        f"of the {renamed}, {len(names)} are named again, all rightly, and {renamed - len(names)} are unknown.",
    ]
    text = " ".join((ROOT / "docs/statistics.md").read_text(encoding="utf-8").split())
    assert not [sentence for sentence in said if sentence not in text]
    sets = (Path(path).stem for path in sorted((ROOT / "tests/independent").glob("diagnosed_*.json")))
    names = [outcome for each in sets for outcome in outcomes_of(each)[2]]
    assert (
        f"of {len(names)} names of mistakes by independent authors {names.count('right')} were right" in HINT
    )
