"""The front page: short, with numbers that the data has and links that lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import run

import specsim
from experiments._kept import kept
from experiments.audit._criteria.__init__ import FOUND
from experiments.audit.independent_set import subjects
from experiments.audit.kill_matrix import AUDIT, LEVEL, kept_matrix
from specsim import plant, rules, verify
from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._verifier.local import Local
from specsim.core._tables import to_text
from specsim.simulation import methods

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
    first = [
        row for row in subjects().values() if row["verdict"] and (row["tv"] is None or row["tv"] >= 0.02)
    ]
    unseen, texts, *right = (
        [row["verdict"] in FOUND for row in first if row["kind"] == f"{truth} {kind}"]
        for truth in ("wrong", "right")
        for kind in ("verifier", "decoder")
    )
    _, *rows = re.search(r"^\| bugs \|.*?\n\n", README, re.DOTALL | re.MULTILINE)[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:] if row]
    assert [missed for *_, missed in cells] == [
        str(len(audit)),
        f"{engines[0]} to {engines[-1]}",
        str(len(set.intersection(*missed.values()))),
        str(len(decoders & {*matrix.missed(AUDIT)})),
        str(unseen.count(False)),
        str(texts.count(False)),
    ]
    totals = [len(wrong), len(decoders), len(unseen), len(texts)]
    assert [int(first.split()[0]) for first, *_ in cells if first] == totals
    accused = [sum(some) for some in right]
    assert (
        f"Of {sum(map(len, right))} right ones by these authors the first audits called {sum(accused)} wrong: "
        f"{accused[0]} verifiers and {accused[1]} decoders."
    ) in " ".join(README.split())
    assert LEVEL == "quick"


def test_the_page_for_continuous_integration_has_the_numbers_of_the_experiments():
    matrix, steps = kept_matrix(), LEVELS["smoke"].verifier
    wrong = {*matrix.wrong(decoders=False)}
    power = {row["mistake"]: row for row in kept("audit_power") if row["mistake"] in wrong}
    sure = [one for one in power.values() if one["promise"] or one["first_level"] == "smoke"]
    others = [one for one in power.values() if one not in sure and one["needed"] is None and one["runs"]]
    likely = [one for one in others if one["rejected"] == 20 and one["median_steps"] <= steps]
    missed = {one: len(wrong & {*matrix.missed(one.name)}) for one in matrix.columns}
    total = sum(plan.steps for plan in VerifierSubject("own", Local(verify, Declared())).plans("smoke"))
    found = len(sure) + len(likely)
    said = [
        *(f"| {one.name} | {one.about.replace('|', chr(92) + '|')} | {n} |" for one, n in missed.items()
          if one.name.startswith(("vLLM", "TensorRT", "FlashInfer", "HF"))),
        f"| all cases, at most {steps:,} steps each and {total:,} in all: no test rejects | {len(wrong) - found} |",
        f"Of the {len(wrong)} wrong verifiers", f"draws at most {steps:,} steps in a case and {total:,} in all",
        f"For {len(sure)} of the {found} that the audit finds,", f"the other {len(likely)} have none that is",
    ]  # fmt: skip
    page = " ".join((ROOT / "docs/specsim-in-your-ci.md").read_text(encoding="utf-8").split())
    assert len(said) == 14
    assert not [one for one in said if one not in page]


@pytest.mark.parametrize(
    ("subject", "planted", "code", "verdict"),
    [
        ("standard", "", 0, "standard: consistent"),
        ("mine:raises", "", 1, "mine:raises: broken"),
        pytest.param("specsim", "pair", 0, "specsim: consistent (texts consistent, ", marks=pytest.mark.slow),
        ("http://127.0.0.1:9", "pair", 3, "http: inconclusive (texts inconclusive, "),
        ("no_such:verify", "", 2, "no verdict: the log of this step says why"),
    ],
)
def test_the_action_audits_and_fails_as_the_audit_does(subject, planted, code, verdict, tmp_path):
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    inputs = {name: one.get("default", subject) for name, one in action["inputs"].items()}
    _, audit = action["runs"]["steps"]
    given = {name: inputs[at.removeprefix("${{ inputs.")[:-3]] for name, at in audit["env"].items()}
    given |= {
        "SUBJECT": subject,
        "PLANTED": planted,
        "GITHUB_OUTPUT": "output",
        "GITHUB_STEP_SUMMARY": "summary",
        "PYTHONPATH": str(ROOT),
    }
    given["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (tmp_path / "mine.py").write_text("def raises(*_):\n    1 / 0\n")
    plant(tmp_path / "pair", rng=1)
    command = ["bash", "-eo", "pipefail", "-c", audit["run"]]
    ran = subprocess.run(command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    assert (tmp_path / "output").read_text().startswith(f"verdict={verdict}")
    assert (tmp_path / "summary").read_text().removeprefix("**").startswith(verdict)
    assert ("Connection refused" in (tmp_path / "specsim-report.txt").read_text()) == (code == 3)
    assert [*(tmp_path / "specsim-report").glob("*.xml")] or code == 2


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
    for line in filter(None, (" ".join(line.removesuffix("…").split()) for line in lines)):
        assert line in printed


def test_the_rules_are_counted_rightly():
    literature, controls = rules.names("chain", "tree", "lossy"), rules.names("controls")
    assert len(literature) > 40
    assert len(controls) == 12
    changes = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    for page in (" ".join(README.split()), changes):
        assert "more than forty rules of the literature and twelve negative controls" in page
    assert f"{len(methods.names())} drafting systems by name" in changes


def test_links_lead_to_files():
    links = re.findall(r'\]\(([^)#]+)[^)]*\)|(?:src|srcset)="([^"]+)"', README)
    local = {link or source for link, source in links if not (link or source).startswith("https://")}
    assert len(local) > 20
    assert not [link for link in local if not (ROOT / link).is_file()]


@pytest.mark.slow
def test_the_report_that_is_read_is_the_one_that_is_printed(tmp_path):
    page = (ROOT / "docs/reading-a-report.md").read_text(encoding="utf-8")
    first = r"`specsim (audit [^`]+)`.*?```text\n(.*?)```.*?```text\n(.*?)```"
    command, short, tables = re.search(first, page, re.S).groups()
    found = run(*command.split(), "--out", tmp_path / "report", cwd=tmp_path)
    whole = to_text(specsim.load(tmp_path / "report" / "audit.saved").parts())
    assert " ".join(short.split()) in " ".join(found.out.split())
    assert " ".join(tables.split()) in " ".join(whole.split())
    assert re.search(r"(\d+) tests;", short)[1] == re.search(r"among\s+(\d+)\s+tests", page)[1]
