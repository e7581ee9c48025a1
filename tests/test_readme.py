"""The front page: short, with numbers that the data has and links that lead somewhere."""

import re
from pathlib import Path

from experiments.audit.kill_matrix import AUDIT, LEVEL, kept_matrix
from specsim import rules

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_in_order():
    assert len(README.encode()) <= 8_000
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Install",
        "Is my verifier exact?",
        "Is my engine lossless?",
        "In Python",
        "At the command line",
        "What is guaranteed",
        "Where to go",
        "Citing",
    ]
    assert README.index("<picture>") < README.index("## Install")


def test_the_kill_matrix_is_quoted_rightly():
    matrix = kept_matrix()
    wrong, decoders = ({*matrix.wrong(decoders=decoders)} for decoders in (False, True))
    missed = {column.name: wrong & {*matrix.missed(column.name)} for column in matrix.columns}
    audit = missed.pop(AUDIT)
    engines = sorted(map(len, missed.values()))
    text = " ".join(README.split())
    assert f"of {len(wrong)} bugs of verifiers that were reported or are likely" in text
    assert f"each test that engines keep misses {engines[0]} to {engines[-1]}," in text
    assert f"all of them together {len(set.intersection(*missed.values()))};" in text
    assert f"specsim's quick audit misses {len(audit)}," in text
    assert f"Of {len(decoders)} bugs of decoders" in text
    assert f"it misses {len(decoders & {*matrix.missed(AUDIT)})}." in text
    assert LEVEL == "quick"


def test_the_rules_are_counted_rightly():
    assert "more than forty rules of the literature and twelve negative controls" in " ".join(README.split())
    assert len(rules.names("chain", "tree", "lossy")) > 40
    assert len(rules.names("controls")) == 12


def test_links_lead_to_files():
    links = re.findall(r'\]\(([^)#]+)[^)]*\)|(?:src|srcset)="([^"]+)"', README)
    local = {link or source for link, source in links if not (link or source).startswith("https://")}
    assert len(local) > 20
    assert not [link for link in local if not (ROOT / link).is_file()]
