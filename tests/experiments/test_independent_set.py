"""The sets of independent authors: every subject is there, what is found, and what a diagnosis is worth."""

import importlib
from contextlib import closing
from pathlib import Path

import pytest

from experiments.audit import independent_set
from specsim import mistakes
from specsim.auditing._results.audit import Candidate, Diagnosis
from specsim.auditing._verifier.child import Child


def named(*names):
    """A diagnosis with these names."""
    return Diagnosis(tuple(Candidate(name, "", "", (), 1.0) for name in names))


@pytest.mark.parametrize("each", independent_set.SETS)
def test_every_subject_is_in_its_module(each):
    rows = independent_set.first_verdicts(each)
    assert {f"{each}:{row['name']}" for row in rows} <= {*independent_set.subjects()}
    for row in rows:
        module, function = independent_set.place_of(each, row["kind"], row["name"])
        assert callable(getattr(importlib.import_module(module), function))
        assert (row["tv"] is None) == row["kind"].startswith("right")


@pytest.mark.parametrize(("each", "archive"), [("first", "subjects.zip"), ("eighth", "eighth.zip")])
def test_the_sources_are_those_that_the_authors_left(each, archive, tmp_path, monkeypatch):
    changed = bytearray((independent_set.FOLDER / archive).read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / archive).write_bytes(changed)
    monkeypatch.setattr(independent_set, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match="not the authors' sources"):
        independent_set.place_of(each, "wrong verifier", "")


def test_a_process_of_its_own_imports_subjects_from_the_archive():
    last = independent_set.first_verdicts("second")[-1]["name"]
    module, name = independent_set.place_of("second", "right verifier", last)
    with closing(Child(f"{module}:{name}", None)) as child:
        origin = child.origin
    assert Path(origin.file) == independent_set.FOLDER / "subjects.zip" / f"{module}.py"
    assert (origin.line > 1, origin.digest) == (True, independent_set.ARCHIVES["subjects.zip"])


def test_a_diagnosis_is_right_wrong_missing_or_rightly_unknown(monkeypatch):
    right = {"lenient": {"lenience"}, "tied": {"dependent"}, "new": set()}
    monkeypatch.setattr(independent_set, "allowed_names", lambda: right)
    unknown, tied = Diagnosis(), Diagnosis(reason="The steps depend on each other, somehow.")
    cases = [
        ("lenient", named("lenience:lenience=0.5", "ensemble"), "right"),
        ("lenient", named("ensemble", "lenience"), "wrong"), ("lenient", unknown, "missing"),
        ("tied", tied, "rightly unknown"), ("tied", named("reseeded"), "wrong"),
        ("new", unknown, "rightly unknown"), ("not read", unknown, None), ("lenient", None, None),
    ]  # fmt: skip
    for name, diagnosis, expected in cases:
        assert independent_set.outcome(name, diagnosis) == expected


def test_the_right_names_are_of_wrong_subjects_and_in_the_catalogue():
    wrong = {name for name, row in independent_set.subjects().items() if row["kind"].startswith("wrong")}
    right = independent_set.allowed_names()
    assert {*right} <= wrong
    assert {name for name in wrong if not name.startswith("first:")} <= {*right}
    for name, names in right.items():
        if not name.startswith("first:"):
            assert names <= {*mistakes.names(), "dependent"}


def test_the_page_counts_what_is_found():
    """Of three wrong ones with a TV of .02 at least, two are found; one was not audited."""
    criteria = {one.name: one.name == "DeepSpec" for one in independent_set.CRITERIA}
    rows = [
        {"set": "first", "kind": "wrong verifier", "tv": tv, "verdict": verdict} | criteria
        for tv, verdict in (
            (0.01, "consistent"), (0.02, "consistent"), (0.05, "broken"), (0.4, "biased"), (0.4, None),
        )
    ]  # fmt: skip
    rows.append(rows[0] | {"kind": "right verifier", "tv": None, "DeepSpec": False})
    rows.append(rows[0] | {"kind": "wrong decoder", "tv": 0.1} | dict.fromkeys(criteria))
    page = independent_set.page(rows)
    assert "| first | wrong verifier | 0.02 to 0.05 | 1 | 0 |" in page
    assert "| first | wrong verifier | 0.3 to 1 | 1 | 1 |" in page
    assert "| first | right verifier | 0 | 1 | 0 |" in page
    assert "| DeepSpec | 3 | 3 | 1 | 1 |" in page
    assert "| HF unit | 0 | 3 | 1 | 1 |" in page
    assert "| all together | 0 | 3 | 1 | 1 |" in page
    assert "| specsim audit, first run | 1 | 3 | 0 | 1 |" in page
    said = "the first set: 2 of 3 wrong verifiers (66.7%) and 0 of 1 wrong decoders (0.0%), and 0 of 1 right ones."
    assert said in " ".join(page.split())
