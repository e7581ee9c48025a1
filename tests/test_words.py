"""Pages and code use plain words: turns that readers stumble over are in none of them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "specsim/data").glob("*.toml")),
    *sorted((ROOT / "notebooks").glob("[0-9]*.py")), ROOT / "paper/paper.tex",
]  # fmt: skip
TURNS = [
    "is told", "are told", "besides", "is none", "are none", "no bool", "no number", "no pair", "stands? beside",
    "stands? in", "stands? for", "of which", "so many", "goes on", "go on", "as it is", "as they are",
]  # fmt: skip
ANY_TURN = re.compile(rf"\b(?:{'|'.join(f'(?i:{turn[0]}){turn[1:]}' for turn in TURNS)})\b")


def found(page):
    """The turns in a page, with the words around them; not those in blocks and spans of code."""
    page = re.sub(r"(?ms:^```.*?^```$)|(?m:^    .*$)|`[^`]*`", " ", page)
    text = " ".join(re.sub(r"\]\([^)]*\)", "]", page).split())
    return [text[max(0, turn.start() - 40) : turn.end() + 40] for turn in ANY_TURN.finditer(text)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_plain_words(path):
    assert not found(path.read_text(encoding="utf-8"))


def texts(code):
    """The texts in code, docstrings, errors and messages, without indents, which are no blocks; none without
    parsing code that has no turn, where texts in parts are joined and escaped ends of lines are spaces."""
    joined = re.sub(r"""["']\s+f?["']""", "", code.replace("\\n", " "))
    nodes = ast.walk(ast.parse(code)) if ANY_TURN.search(" ".join(joined.split())) else ()
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return ["\n".join(line.strip() for line in text.splitlines()) for text in texts]


@pytest.mark.parametrize("package", ["specsim", "experiments", "figures"])
def test_code_uses_plain_words(package):
    codes = {path: path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py")}
    assert codes
    assert not [(path, turn) for path, code in codes.items() for text in texts(code) for turn in found(text)]


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_is_found(turn):
    sentence = f"The server {turn.replace('?', '')} here."
    assert found(f"# A page\n\nText.\n{sentence.replace(' ', chr(10))}\n")
    assert found(sentence.removeprefix("The server ").capitalize())
    parts = [" ".join(part) for part in (sentence.split()[:-2], sentence.split()[-2:])]
    for code in (
        f'"{sentence}"',
        f'f"{parts[0]} "\n  f"{parts[1]}"',
        f'"{sentence.replace(" ", chr(92) + "n")}"',
    ):
        assert [turn for text in texts(f"def f():\n  raise ValueError({code})\n") for turn in found(text)]
    assert not found(f"A page.\n\n```text\n{sentence}\n```\n\n    {sentence}\n\n`{sentence}` is None\n")
