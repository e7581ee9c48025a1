"""How often the diagnosis of a rejected verifier names the right mistake.

Every mistake of the catalogue is audited with its default parameters and with others, and diagnosed twice:
with the whole catalogue, and without its own entry and those that the audit cannot distinguish from it. The
second answer should be *unknown*.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import Row
from experiments._kept import lacking
from experiments._pages import markdown_table, written
from specsim import audit, mistakes
from specsim.adapters import declares
from specsim.adapters._contract import Declared
from specsim.auditing._checks.contract_checks import PROMISES
from specsim.auditing._checks.counts import diagnostic_cases
from specsim.auditing._checks.subjects import open_subject
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.auditing._diagnosis.reproduction import predict
from specsim.mistakes import Mistake

TITLE = "How often a rejected verifier's mistake is named"
MINUTES = 60

#: The level of the audits that must reject the mistake first, and their seed where `rng` is 0.
LEVEL, SEED = "smoke", 11
#: Values that are drawn for a parameter, in addition to the default.
OTHERS = 2
#: Nats behind the likeliest, the price of its parameters included, up to which a mistake that fits is not
#: told apart.
SAME = 12.0
FAST_MISTAKES = ("resamples_target", "greedy_draft")
#: Between the names in one cell of the table.
BETWEEN = "; "


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """(mistake, the same with its parameters)."""
    chosen = [mistake for mistake in mistakes.catalogue() if not fast or mistake.name in FAST_MISTAKES]
    return [(mistake.name, str(one)) for mistake in chosen for one in _variants(mistake)]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """Whether a mistake is caught, which ones are named for it, and which without its own entry.

    `named` and `without` are lists with `BETWEEN` between their names, empty where the answer is *unknown*;
    they and `right` are None where the audit found nothing to diagnose.
    """
    name, variant = cell
    mistake, seed = mistakes.get(variant), SEED + rng
    function = declares(decoder=mistake.decode is not None)(mistake.function)
    result = audit(function, LEVEL, rng=seed, diagnose=False)
    results = [case for case in result.cases if not case.broken and case.case != PROMISES]
    row: Row = {
        "mistake": name,
        "variant": variant,
        "family": mistake.family,
        "off_catalogue": variant != str(mistakes.get(name)),
        "verdict": str(result.verdict),
        "named": None,
        "right": None,
        "without": None,
        "none": None,
    }
    if not any(case.findings for case in results):
        return row
    with open_subject(function, 1, 60.0) as subject:

        def diagnosis(known: Sequence[Mistake]) -> Any:
            return diagnose_failed(subject, results, LEVEL, seed, known)

        found = diagnosis(mistakes.catalogue())
        # another mistake may, with the right parameter, be the same one: a draft of the likeliest token alone
        # is greedy
        least = max((one.probability for one in found.considered), default=1.0) * np.exp(-SAME)
        same = {_kind(one.name) for one in found.considered if one.probability >= least} | {name}
        left = diagnosis([one for one in mistakes.catalogue() if one.name not in same])
    return row | {
        "named": BETWEEN.join(one.name for one in found.named),
        "right": bool(found.named) and _is_same(mistake, mistakes.get(found.named[0].name)),
        "without": BETWEEN.join(
            _kind(one.name) for one in left.named if not _is_same(mistake, mistakes.get(one.name))
        ),
        "none": found.none,
    }


def _variants(mistake: Mistake) -> list[Mistake]:
    """The mistake itself, and with `OTHERS` other values of its first parameter."""
    if not mistake.parameters:
        return [mistake]
    parameter = mistake.parameters[0]
    rng = np.random.default_rng([SEED, len(mistake.name), ord(mistake.name[0])])
    high = min(parameter.high, max(4.0 * parameter.default, 4.0))
    values = rng.uniform(parameter.low, high, OTHERS)
    if parameter.whole:
        values = np.unique(np.clip(np.round(values), max(parameter.low, 1), high))
    others = [float(value) for value in values if value != parameter.default]
    return [mistake, *(mistake.with_parameters(**{parameter.name: value}) for value in others)]


def _is_same(mistake: Mistake, named: Mistake) -> bool:
    """Whether it is the same mistake, or another one that has the same distribution with these parameters."""
    if mistake.name == named.name:
        return True
    if mistake.law is None or named.law is None:
        return False
    cases = [case for case in diagnostic_cases(Declared()) if not case.rotated]
    for case in cases:
        one, other = predict(mistake, case), predict(named, case)
        if one is None or other is None or not np.allclose(one.law, other.law, atol=1e-9):
            return False
    return True


def _kind(variant: str) -> str:
    return variant.partition(":")[0]


# --- the page --------------------------------------------------------------------------------------------


def page(rows: Sequence[Row]) -> str:
    """docs/results/diagnosis.md."""
    caught = [row for row in rows if row["named"] is not None]
    off = [row for row in caught if row["off_catalogue"]]
    earlier = [row for row in caught if row["none"] is None]
    first = [row for row in caught if row["right"]]
    among = [row for row in caught if row["right"] or row["mistake"] in map(_kind, _names(row["named"]))]
    counted = {
        "first": (first, caught),
        "among": (among, caught),
        "off_first": ([row for row in off if row in first], off),
        "off_among": ([row for row in off if row in among], off),
        "unknown": ([row for row in caught if not row["without"]], caught),
    }
    lines = []
    for row in rows:
        names = (
            "–" if row[column] is None else ", ".join(_names(row[column])) or "unknown"
            for column in ("named", "without")
        )
        mark = "\\*" if row in earlier else ""
        lines.append((f"`{row['variant']}`{mark}", row["verdict"], *names))
    head = ("mistake", "verdict", "named", "named without its entry")
    values = {
        "LEVEL": LEVEL,
        "SEED": SEED,
        "total": len(rows),
        "caught": len(caught),
        "off": len(off),
        "earlier": EARLIER.format(len(earlier)) if earlier else "",
        "added": lacking(cells(fast=False), rows, "mistake"),
        "table": markdown_table(head, lines),
    }
    for name, (some, of) in counted.items():
        values |= {name: len(some), f"{name}_share": f"{len(some) / len(of):.0%}" if of else "–"}
    return written("diagnosis", values)


EARLIER = (
    "{} of the rows, marked *, are kept from an earlier diagnosis, which compared likelihoods and did not "
    "weigh *none of these*."
)


def _names(named: str) -> list[str]:
    return named.split(BETWEEN) if named else []
