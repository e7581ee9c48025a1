"""Pages and code use plain words: turns that readers stumble over are in none of them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("[0-9]*.py")), ROOT / "paper/paper.tex",
]  # fmt: skip
TURNS = [
    "is told", "are told", "besides", "is none", "are none", "no bool", "no number", "no pair", "stands? beside",
    "stands? in", "stands? for", "of which", "so many", "goes on", "go on", "as it is", "as they are",
]  # fmt: skip


def found(page):
    """The turns in a page, with the words around them; not those in blocks and spans of code."""
    page = re.sub(r"(?ms:^```.*?^```$)|(?m:^    .*$)|`[^`]*`", " ", page)
    text = " ".join(re.sub(r"\]\([^)]*\)", "]", page).split())
    turns = rf"\b(?:{'|'.join(f'(?i:{turn[0]}){turn[1:]}' for turn in TURNS)})\b"
    return [text[max(0, turn.start() - 40) : turn.end() + 40] for turn in re.finditer(turns, text)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_plain_words(path):
    assert not found(path.read_text(encoding="utf-8"))


def texts(path):
    """The texts in a file of code, docstrings, errors and messages, without indents, which are no blocks."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return ["\n".join(line.strip() for line in text.splitlines()) for text in texts]


@pytest.mark.parametrize("package", ["specsim", "experiments", "figures"])
def test_code_uses_plain_words(package):
    paths = sorted((ROOT / package).rglob("*.py"))
    turns = [(path.name, turn) for path in paths for text in texts(path) for turn in found(text)]
    assert paths
    assert not turns


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_is_found(turn):
    sentence = f"The server {turn.replace('?', '')} here."
    assert found(f"# A page\n\nText.\n{sentence.replace(' ', chr(10))}\n")
    assert found(sentence.removeprefix("The server ").capitalize())
    assert not found(f"A page.\n\n```text\n{sentence}\n```\n\n    {sentence}\n\n`{sentence}` is None\n")
