"""The pages use plain words: twelve turns that readers stumble over are in none of them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES.remove(ROOT / "docs/architecture.md")  # to be written again

#: Patterns, and a sentence that each must find.
PATTERNS = {
    r"\b(is|are) told\b": "The user is told what to do.",
    r"\bbesides\b": "Besides, numbers may be given.",
    r"\b(is|are) (?-i:none)\b": "A finding at such a tie is none.",
    r"\bno bool\b": "It is an integer and no bool.",
    r"\bno number\b": "NaN is no number of JSON.",
    r"\bno pair\b": "A trace is no pair.",
    r"\b(stands?|stood|standing) beside\b": "The interval stands beside it.",
    r"\b(stands?|stood|standing) (in|for)\b": "The second stands for your engine.",
    r"\bof which\b": "There are ten, of which two fail.",
    r"\bso many\b": "Each row has so many tokens.",
    r"\b(goes|go|going|went|gone) on\b": "The next step goes on from there.",
    r"\bas (it is|they are)\b": "The rows stay as they are.",
}


def prose(page):
    """The page without code blocks, code spans and links' addresses, one space between words."""
    page = re.sub(r"(?ms:^```.*?^```$)|(?m:^    .*$)|`[^`]*`", " ", page)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", page).split())


def found(page):
    """The words of the page that a pattern finds, with what is around them."""
    text = prose(page)
    return [
        text[max(0, at.start() - 40) : at.end() + 40]
        for one in PATTERNS
        for at in re.finditer(one, text, re.I)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_plain_words(path):
    assert not found(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_turn_is_found(pattern):
    sentence = PATTERNS[pattern]
    assert re.search(pattern, sentence, re.I)
    assert found(f"# A page\n\nText\n{sentence.replace(' ', chr(10), 2)}\n")
    assert not found(f"A page.\n\n```text\n{sentence}\n```\n\n    {sentence}\n\n`{sentence}`\n")
