"""The first of the three jobs of the documentation, whose verifier needs PyTorch."""

import importlib.util

import pytest
from commands import run
from test_docs import PAGES, blocks

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
PAGE = "docs/three-jobs.md"


@pytest.fixture(scope="module")
def page():
    return [*blocks(PAGES[PAGE])]


def test_the_audit_says_what_the_page_shows(page, tmp_path, monkeypatch):
    code = next(block.code for block in page if block.file == "mine.py")
    shown = next(block.code for block in page if block.language == "text")
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.setenv("COLUMNS", "300")
    found = run("audit", "mine:verify", "--level", "smoke", "--seed", "1", "--out", "report", cwd=tmp_path)
    assert found.code == 1
    for line in shown.splitlines():
        assert line in found.out
    assert (tmp_path / "report/audit.html").exists()


def test_the_mended_verifier_is_not_accused(page, tmp_path):
    code = next(block.code for block in page if block.file == "mine.py")
    wrong, right = "torch.rand(steps, 1)", "torch.rand(steps, gamma)"
    assert wrong in code
    (tmp_path / "mended.py").write_text(code.replace(wrong, right))
    found = run("audit", "mended:verify", "--level", "smoke", "--seed", "1", cwd=tmp_path)
    assert "mended:verify: consistent" in found.out
