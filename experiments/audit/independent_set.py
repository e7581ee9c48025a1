"""Mistakes of authors who have not seen the battery: what audits find of them, what engines' tests find, and
what a diagnosis names.

The authors of the subjects in `tests/independent` had seen neither the battery nor the catalogue of known
mistakes, only the contract in docs/auditing-your-engine.md. They wrote wrong verifiers
and decoders, and right ones, and measured the total variation of each mistake in the shape that it shows in.
The verdicts of audits are those of the first run on each set, at level quick, before anybody who works on the
battery had read it (`first.json` and so on): only they measure power on unseen mistakes. Each verifier is run
through the criteria of engines (see `kill_matrix`).

`first_names.json`, and one such file for each other set, has the names of the catalogue that are right for
each wrong subject, by readers who had seen no diagnosis. `diagnosed` audits a subject as the code is now, and
diagnoses it. `diagnosed_first.json` has what was named of 104 of the first set before anybody had read these
diagnoses; `diagnosed_third.json` the same of the third set, with the diagnosis that the first set had led to,
`diagnosed_second.json` of the second one, after the third, and `diagnosed_fourth.json` of the fourth.
`fitting.json` has which of the names that these files give to decoders fit the texts of an audit, as a name
must since. `diagnosed_fifth.json` is of the fifth set, with this rule, and
`diagnosed_sixth.json` of the sixth, at level quick. Those of later sets are
of their first audits; the subjects of these sets have a module each.
"""

import hashlib
import importlib
import json
import sys
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from experiments import ROOT, Row
from experiments._pages import filled, markdown_table, written
from experiments.audit._criteria import FOUND, criteria
from specsim import audit
from specsim.adapters._contract import declared
from specsim.auditing._checks.contract_checks import PROMISES
from specsim.auditing._checks.subjects import open_subject
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.audit import Diagnosis

TITLE = "Mistakes of authors who have not seen the battery, found by audits and by engines' tests"
MINUTES = 15

#: Total variations between which subjects are counted together.
BANDS = (0.0, 0.02, 0.05, 0.1, 0.3, 1.01)
#: The criteria that are run: the other one takes minutes for a verifier.
CRITERIA = tuple(one for one in criteria() if one.name not in ("vLLM V2 wide", "FlashInfer cosine"))
FAST_SUBJECTS = ("first:lenience_090", "first:right_onehot_target_shortcut")


# --- the sets --------------------------------------------------------------------------------------------

FOLDER = ROOT / "tests" / "independent"
#: The SHA-256 of each archive of sources, which nobody edits.
ARCHIVES = {
    name: digest
    for digest, name in map(str.split, (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
}
SETS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
)  # fmt: skip


@cache
def subjects() -> dict[str, Row]:
    """All subjects by set and name, as "set:name": their set, name, kind, total variation (None for a right
    one), and first verdict."""
    return {f"{each}:{row['name']}": {"set": each} | row for each in SETS for row in first_verdicts(each)}


def first_verdicts(each: str) -> list[Row]:
    """The kept verdicts of a set: name, kind, tv, verdict, case."""
    rows: list[Row] = json.loads((FOLDER / f"{each}.json").read_text(encoding="utf-8"))["rows"]
    return rows


def place_of(each: str, kind: str, name: str) -> tuple[str, str]:
    """The module and the function of a subject, which can be imported from now on.

    Raises ValueError where the archive is another one."""
    archive = FOLDER / (f"{each}.zip" if f"{each}.zip" in ARCHIVES else "subjects.zip")
    if str(archive) not in sys.path:
        if (digest := hashlib.sha256(archive.read_bytes()).hexdigest()) != ARCHIVES[archive.name]:
            raise ValueError(f"{archive}: not the authors' sources (SHA-256 {digest}); check it out again")
        sys.path.insert(0, str(archive))
    right, what = kind.startswith("right"), kind.rpartition(" ")[2] + "s"
    if each in SETS[6:]:
        return f"{each}_{name}", "verify" if what == "verifiers" else "decode"
    if each == "first":
        return ("right_verifiers" if right and what == "verifiers" else f"wrong_{what}"), name
    return (f"{each}_right" if right and what == "verifiers" else f"{each}_{what}"), name


# --- verdicts, and the criteria of engines -----------------------------------------------------------------


def cells(*, fast: bool) -> list[tuple[str]]:
    """(subject,)."""
    return [(name,) for name in subjects() if not fast or name in FAST_SUBJECTS]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """The first verdict on a subject, and which criteria pass it (None for a decoder)."""
    (subject,) = cell
    about = subjects()[subject]
    decoder, checks = about["kind"].endswith("decoder"), dict.fromkeys(one.name for one in CRITERIA)
    if not decoder:
        module, name = place_of(about["set"], about["kind"], about["name"])
        function = getattr(importlib.import_module(module), name)
        function = partial(_called_by_criteria, function)
        checks = {one.name: one.holds(function, rng) for one in CRITERIA}
    row = {"subject": subject, "set": about["set"], "kind": about["kind"], "tv": about["tv"]}
    return row | {"verdict": about["verdict"]} | checks


def _called_by_criteria(function: Any, draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """A call with drafts of one length, and with the keyword arguments that a subject declares."""
    (rows, gamma), asked, given = draft_tokens.shape, declared(function), dict[str, Any]()
    if asked.lengths:
        given["lengths"] = np.full(rows, gamma)
    if asked.uniforms:
        given["uniforms"] = rng.random((rows, gamma + 1))
    if asked.seeds:
        given["seeds"] = [None] * rows
    return function(draft_tokens, p, q, rng, **given)


def page(rows: Sequence[Row]) -> str:
    """docs/results/independent-set.md."""
    bands = []
    for each, kind in dict.fromkeys((row["set"], row["kind"]) for row in rows):
        some = [row for row in rows if (row["set"], row["kind"]) == (each, kind) and row["verdict"]]
        for low, high in pairwise(BANDS) if kind.startswith("wrong") else [(0.0, 1.01)]:
            here = [row for row in some if low <= (row["tv"] or 0.0) < high]
            band = f"{low:g} to {min(high, 1.0):g}" if kind.startswith("wrong") else "0"
            if here:
                bands.append((each, kind, band, str(len(here)), str(len(_found(here)))))
    wrong, right = _verifiers(rows)
    names = [one.name for one in CRITERIA]
    counts = {name: (sum(row[name] for row in wrong), sum(not row[name] for row in right)) for name in names}
    passes = [[all(row[name] for name in names) for row in some] for some in (wrong, right)]
    counts["all together"] = sum(passes[0]), len(right) - sum(passes[1])
    counts["specsim audit, first run"] = len(wrong) - len(_found(wrong)), len(_found(right))
    lines = [
        (name, str(misses), str(len(wrong)), str(fails), str(len(right)))
        for name, (misses, fails) in counts.items()
    ]
    values = {
        "bands": markdown_table(("set", "kind", "TV", "audited", "found"), bands),
        "summary": filled(_summary(rows)),
        "least": BANDS[1],
        "names": markdown_table(NAMES_HEAD, map(_names_of, SETS)),
        "table": markdown_table(("test", "misses", "of", "fails", "of"), lines),
    }
    return written("independent-set", values)


NAMES_HEAD = (
    *("set", "wrong ones", "could be diagnosed", "named", "rightly"),
    *("unknown, though the catalogue has a name", "rightly unknown", "of these stopped"),
)


def _names_of(each: str) -> tuple[str, ...]:
    """What the first diagnoses of a set came to."""
    rows = json.loads((FOLDER / f"diagnosed_{each}.json").read_text(encoding="utf-8"))["rows"]
    some = [row for row in rows if row["outcome"]]
    numbers = [len(rows), len(some), sum(bool(row["named"]) for row in some)]
    numbers += [sum(row["outcome"] == one for row in some) for one in ("right", "missing", "rightly unknown")]
    return (each, *map(str, [*numbers, sum("stopped" in row["reason"] for row in some)]))


def _found(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] in FOUND]


def _verifiers(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The wrong verifiers of a total variation that counts, and the right ones, if they were audited."""
    audited = [row for row in rows if row["verdict"]]
    wrong = [row for row in audited if row["kind"] == "wrong verifier" and row["tv"] >= BANDS[1]]
    return wrong, [row for row in audited if row["kind"] == "right verifier"]


def _summary(rows: Sequence[Row]) -> str:
    """Of each set, how many of the mistakes that count were found, and of the right ones."""
    said = []
    for each in dict.fromkeys(row["set"] for row in rows):
        some = [row for row in rows if row["set"] == each and row["verdict"]]
        parts = []
        for kind in ("verifiers", "decoders"):
            wrong = [row for row in some if row["kind"] == f"wrong {kind[:-1]}" and row["tv"] >= BANDS[1]]
            if wrong:
                share = len(_found(wrong)) / len(wrong)
                parts.append(f"{len(_found(wrong))} of {len(wrong)} wrong {kind} ({share:.1%})")
        right = [row for row in some if row["kind"].startswith("right")]
        accused = f"{len(_found(right))} of {len(right)} right ones"
        said.append(f"the {each} set: {' and '.join(parts)}, and {accused}")
    return f"Found of those with a TV of at least {BANDS[1]:g}, by the first audits: of {'; of '.join(said)}."


# --- names -----------------------------------------------------------------------------------------------

#: The time of an audit; where it finds nothing, level quick is run to its end.
SECONDS, LEVEL = 20.0, "quick"


@cache
def allowed_names() -> dict[str, set[str]]:
    """The names of the catalogue that are right for each subject, as "set:name", by readers who had seen no
    diagnosis.

    The word *dependent* means steps that depend on each other in a pattern of no known mistake."""
    files = {each: json.loads((FOLDER / f"{each}_names.json").read_text(encoding="utf-8")) for each in SETS}
    entries = files["first"]["entries"]  # of what the catalogue had no entry for when its names were written
    return {
        f"{each}:{name}": set().union(*(entries.get(one, [one]) for one in right))
        for each, file in files.items()
        for name, right in file["names"].items()
    }


def diagnosed(name: str, *, rng: int = 0) -> Row:
    """The verdict on the subject "set:name", and the likeliest name of its mistake, empty where the answer is
    *unknown*.

    `named` and `outcome` are None where nothing was diagnosed."""
    about = subjects()[name]
    reference = ":".join(place_of(about["set"], about["kind"], about["name"]))
    found = _audited(reference, rng + 1)
    diagnosis = _diagnosed(reference, found, rng + 1)
    return {
        "subject": name,
        "kind": about["kind"],
        "verdict": str(found.verdict),
        "case": next((case.case for case in found.cases if case.findings), None),
        "named": None if diagnosis is None else diagnosis.named[0].name if diagnosis.named else "",
        "outcome": outcome(name, diagnosis),
    }


def _audited(reference: str, rng: int) -> Audit:
    found: Audit = audit(reference, LEVEL, rng=rng, seconds=SECONDS, diagnose=False)
    return found if str(found.verdict) in FOUND else audit(reference, LEVEL, rng=rng, diagnose=False)


def _diagnosed(reference: str, found: Audit, rng: int) -> Diagnosis | None:
    """The diagnosis, without a time limit, so that names do not depend on the machine."""
    results = [case for case in found.cases if not case.broken and case.case != PROMISES]
    if not any(case.findings for case in results):
        return None
    with open_subject(reference, 1, 60.0) as subject:
        return diagnose_failed(subject, results, LEVEL, rng)


def outcome(name: str, diagnosis: Diagnosis | None) -> str | None:
    """What a diagnosis is worth: "right", "wrong", "missing", or "rightly unknown"."""
    right = allowed_names().get(name)
    if diagnosis is None or right is None:
        return None
    if diagnosis.named:
        return "right" if diagnosis.named[0].name.partition(":")[0] in right else "wrong"
    dependent = "dependent" in right and "depend on each other" in diagnosis.reason
    return "rightly unknown" if dependent or not right - {"dependent"} else "missing"
