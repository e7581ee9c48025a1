"""The front page: short, with numbers that the data has and links that lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.audit._criteria.__init__ import FOUND
from experiments.audit.independent_set import _verifiers, subjects
from experiments.audit.kill_matrix import AUDIT, LEVEL, kept_matrix
from specsim import rules

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_in_order():
    assert len(README.encode()) <= 8_000
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Install", "Is my verifier exact?", "Is my engine lossless?", "In Python", "At the command line",
        "What is guaranteed", "Where to go", "Citing",
    ]  # fmt: skip
    assert README.index("<picture>") < README.index("## Install")


def test_the_kill_matrix_is_quoted_rightly():
    matrix = kept_matrix()
    wrong, decoders = ({*matrix.wrong(decoders=decoders)} for decoders in (False, True))
    missed = {column.name: wrong & {*matrix.missed(column.name)} for column in matrix.columns}
    audit = missed.pop(AUDIT)
    engines = sorted(map(len, missed.values()))
    unseen, _ = _verifiers([*subjects().values()])
    _, *rows = re.search(r"^\| bugs \|.*?\n\n", README, re.DOTALL | re.MULTILINE)[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:] if row]
    assert [missed for *_, missed in cells] == [
        str(len(audit)),
        f"{engines[0]} to {engines[-1]}",
        str(len(set.intersection(*missed.values()))),
        str(len(decoders & {*matrix.missed(AUDIT)})),
        str(sum(row["verdict"] not in FOUND for row in unseen)),
    ]
    assert [int(first.split()[0]) for first, *_ in cells if first] == [len(wrong), len(decoders), len(unseen)]
    assert LEVEL == "quick"


@pytest.mark.slow
def test_the_audit_prints_what_is_shown(tmp_path):
    code, shown = re.search(r"```python\n(.*?)```\s*```text\n\$ (.*?)```", README, re.DOTALL).groups()
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    command, *lines = shown.splitlines()
    program, *arguments = command.split()
    ran = subprocess.run(
        [sys.executable, "-m", program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    printed = " ".join((ran.stdout + ran.stderr).split())
    for line in filter(None, (line.removesuffix("…").strip() for line in lines)):
        assert line in printed


def test_the_rules_are_counted_rightly():
    assert "more than forty rules of the literature and twelve negative controls" in " ".join(README.split())
    assert len(rules.names("chain", "tree", "lossy")) > 40
    assert len(rules.names("controls")) == 12


def test_links_lead_to_files():
    links = re.findall(r'\]\(([^)#]+)[^)]*\)|(?:src|srcset)="([^"]+)"', README)
    local = {link or source for link, source in links if not (link or source).startswith("https://")}
    assert len(local) > 20
    assert not [link for link in local if not (ROOT / link).is_file()]
