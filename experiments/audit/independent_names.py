"""What a diagnosis says of the mistakes of authors who have not seen the catalogue.

`first_names.json` of `tests/independent`, and one such file for each other set, has the names of the
catalogue that are right for each wrong subject, by readers who had seen no diagnosis. Each of them is audited
as the code is now, and diagnosed. `diagnosed_first.json` has what was named of 104 of the first set before
anybody had read these diagnoses; `diagnosed_third.json` the same of the third set, with the diagnosis that
the first set had led to, `diagnosed_second.json` of the second one, after the third, and
`diagnosed_fourth.json` of the fourth. `fitting.json` has which of the names that these files give to decoders
fit the texts of an audit, as a name must since; `fitting` computes a row. `diagnosed_fifth.json` is of the
fifth set, with this rule, and `diagnosed_sixth.json` of the sixth, at level quick."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from experiments import Row
from experiments.audit._independent import FOLDER, FOUND, SETS, module_of, subjects
from specsim import mistakes
from specsim.auditing import Audit, audit
from specsim.auditing._checks.contract_checks import PROMISES
from specsim.auditing._checks.subjects import DecoderSubject
from specsim.auditing._diagnosis.decoders import audited_texts, refuted
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.auditing._execution import open_execution
from specsim.auditing._results.audit import Diagnosis
from specsim.mistakes._decoding import in_a_loop

TITLE = "Names given to mistakes of authors who have not seen the catalogue"
MINUTES = 400

#: The time of an audit; where it finds nothing, level quick is run to its end.
SECONDS, LEVEL = 20.0, "quick"
FAST_SUBJECTS = ("first:lenience_090",)

#: What `first_names.json` calls mistakes that the catalogue had no entry for when it was written.
ENTRIES = {
    "new: path that depends on place or shape of the call": {"unverified_rest"},
    "new: random numbers reused across steps": {"steps_share_uniforms", "tests_share_uniform"},
    "new: accept uniforms of few bits": {"coarse_test"},
    "new: ids through half precision": {"rounded_ids"},
    "new: text that differs from its cache": {"text_overwritten"},
    "new: greedy drafts judged as samples": {"greedy_draws"},
    "new: product of uniforms with the block residual": {"block_product_block_residual"},
}


@cache
def allowed_names() -> dict[str, set[str]]:
    """The names of the catalogue that are right for each subject, as "set:name", by readers who had seen no
    diagnosis.

    The word *dependent* stands for steps that depend on each other in a pattern of no known mistake."""
    found = {}
    for each in SETS:
        names = json.loads((FOLDER / f"{each}_names.json").read_text(encoding="utf-8"))["names"]
        for name, right in names.items():
            found[f"{each}:{name}"] = set().union(*(ENTRIES.get(one, {one}) for one in right))
    return found


def cells(*, fast: bool) -> list[tuple[str]]:
    """(subject,), as "set:name"."""
    return [(name,) for name in allowed_names() if not fast or name in FAST_SUBJECTS]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """The verdict on a subject, and the likeliest name of its mistake, empty where the answer is *unknown*.

    `named` and `outcome` are None where nothing was diagnosed."""
    (name,) = cell
    about = subjects()[name]
    reference = f"{module_of(about['set'], about['kind'])}:{about['name']}"
    found = _audited(reference, fast, rng + 1)
    diagnosis = _diagnosed(reference, found, rng + 1)
    return {
        "subject": name,
        "kind": about["kind"],
        "verdict": str(found.verdict),
        "case": next((case.case for case in found.cases if case.findings), None),
        "named": None if diagnosis is None else diagnosis.named[0].name if diagnosis.named else "",
        "outcome": outcome(name, diagnosis),
    }


def _audited(reference: str, fast: bool, rng: int) -> Audit:
    found: Audit = audit(reference, LEVEL, rng, seconds=SECONDS, diagnose=False)
    if str(found.verdict) in FOUND or fast:
        return found
    return audit(reference, LEVEL, rng, diagnose=False)


def _diagnosed(reference: str, found: Audit, rng: int) -> Diagnosis | None:
    """The diagnosis, without a time limit, so that names do not depend on the machine."""
    results = [case for case in found.cases if not case.broken and case.case != PROMISES]
    if not any(case.findings for case in results):
        return None
    with open_execution(reference, 1, 60.0) as execution:
        return diagnose_failed(execution.subject, results, LEVEL, rng)


def fitting(subject: str, names: Sequence[str], *, rng: int = 0) -> Row:
    """Which `names`, of mistakes with their parameters, fit all texts of a decoder of the sets."""
    about = subjects()[subject]
    reference = f"{module_of(about['set'], about['kind'])}:{about['name']}"
    found = _audited(reference, False, rng + 1)
    results = [case for case in found.cases if not case.broken and case.case != PROMISES]
    with open_execution(reference, 1, 60.0) as execution:
        assert isinstance(execution.subject, DecoderSubject)
        texts = [one for case in results for one in audited_texts(execution.subject, case, rng + 1, always)]
    fit = [name for name in names if not refuted(in_a_loop(mistakes.get(name)), texts, always)]
    return {"subject": subject, "names": list(names), "fit": fit}


def always(*_: object) -> None:
    """No limit of time."""


def outcome(name: str, diagnosis: Diagnosis | None) -> str | None:
    """What a diagnosis is worth: "right", "wrong", "missing", or "rightly unknown"."""
    right = allowed_names().get(name)
    if diagnosis is None or right is None:
        return None
    if diagnosis.named:
        return "right" if diagnosis.named[0].name.partition(":")[0] in right else "wrong"
    dependent = "dependent" in right and "depend on each other" in diagnosis.reason
    return "rightly unknown" if dependent or not right - {"dependent"} else "missing"
