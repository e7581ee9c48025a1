"""What the package computes, prints and offers is what `tests/goldens` keeps. `python
tests/helpers/write_goldens.py` writes it again."""

import pytest
import write_goldens
from write_goldens import FILES, GOLDENS, RUNS, changed, help_text, public_names, read


def check(file, now):
    lines = changed(file, read(file), now)
    shown = "\n".join(lines[:30] + ["…"] * (len(lines) > 30))
    assert not lines, f"{file} differs; if that is meant, run python tests/helpers/write_goldens.py\n{shown}"


#: They take seconds; what they keep of audits, `audit_standard` keeps of another.
LONG = {"audits", "audit_against", "audit_wrong"}
EACH_RUN = [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in RUNS]


@pytest.mark.parametrize("name", EACH_RUN)
def test_numbers_and_sentences(name):
    numbers, sentences = write_goldens.made(name)
    check(f"{name}.json", numbers)
    check(f"{name}.txt", sentences)


def test_help():
    check("help.txt", help_text())


def test_public_names():
    check("names.json", public_names())


def test_every_golden_has_a_run():
    assert {path.name for path in GOLDENS.iterdir()} == FILES


def test_a_change_is_seen():
    """Numbers, names, sentences and places: none may change unseen, and rounding is no change."""
    kept = {"verdict": "biased", "steps": 3, "tv": 0.25, "cases": [{"case": "zeros"}], "wasteful": False}
    assert changed("x.json", kept, kept | {"tv": 0.25 * (1 + 1e-12)}) == []
    for now in (
        kept | {"verdict": "consistent"}, kept | {"steps": 4}, kept | {"steps": 3.0},
        kept | {"tv": 0.25 * (1 + 1e-8)}, kept | {"cases": []}, kept | {"wasteful": 0},
        kept | {"new": None}, {key: value for key, value in kept.items() if key != "steps"},
    ):  # fmt: skip
        assert len(changed("x.json", kept, now)) == 1, now
    assert changed("x.txt", "one\ntwo\n", "one\ntwo\n") == []
    assert changed("x.txt", "one\ntwo\n", "one\n2\n")
    assert changed("x.json", None, [kept])


def test_long_lists_are_told_apart():
    """What is kept in short still tells one number, one place and one name from another."""
    integers, floats = [*range(20)], [i / 7 for i in range(20)]
    swapped = [1, 0, *range(2, 20)]
    for key, one, other in (
        ("lengths", integers, swapped),
        ("lengths", integers, [*integers, 20]),
        ("expected", floats, [floats[i] for i in swapped]),
        ("expected", floats, [*floats[:-1], 2.8]),
        ("kind", ["prefix"] * 20, ["prefix"] * 19 + ["PIT"]),
        ("observed", [integers] * 20, [integers[:-1], [19, *integers], *[integers] * 18]),
        ("tables", [{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 1}]),
    ):
        kept, now = (write_goldens._numbers({key: value}, {}) for value in (one, other))
        assert changed("x.json", kept, kept) == []
        assert changed("x.json", kept, now), key


def test_sentences_stay_out_of_the_numbers():
    sentences = {}
    numbers = write_goldens._numbers({"verdict": "biased", "text": "too often", "seconds": 1.5}, sentences)
    assert numbers == {"verdict": "biased", "text": "(text)"}
    assert [*sentences] == ["too often"]
