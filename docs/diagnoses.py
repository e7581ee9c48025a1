"""Writes docs/diagnosis.md and specsim/data/diagnoses.json: how often a failing verifier's mistake is named.

Every known mistake, with the catalogue's parameters and with others; each once with the whole catalogue, and once with its
own entry, and what cannot be told apart from it, left out: then the answer must be *unknown*.

Usage: python docs/diagnoses.py [--workers 1] [--level smoke] [--only MISTAKE ...], or make diagnoses (an hour). With --only
and some mistakes these are run again, and the rest of what was found is kept.
"""

import argparse
import json
import multiprocessing
import textwrap
from functools import partial
from pathlib import Path

import numpy as np

from specsim.auditing import audit, declares, mutants
from specsim.auditing._checks.contract_checks import PROMISES
from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.outcomes import diagnostic_cases
from specsim.auditing._diagnosis.predictions import predict
from specsim.auditing._diagnosis.verifiers import diagnose_chain
from specsim.auditing._execution import placed
from specsim.auditing._verifier.contract import Declared

ROOT = Path(__file__).parents[1]
#: Values that are drawn for a parameter, beside the catalogue's.
OTHERS = 2
#: Nats behind the likeliest, its parameters' price included, up to which a mistake that fits is the same one.
SAME = 12.0
SEED = 11


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--level", default="smoke", help="of the audits that must catch the mistake first")
    parser.add_argument("--only", nargs="+", metavar="MISTAKE", help="run these alone again")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants.catalogue() if not options.only or mutant.name in options.only]
    spelled = [str(one) for mutant in chosen for one in variants(mutant)]
    rows = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for row in pool.imap(partial(judged, level=options.level), spelled):
            rows.append(row)
            print(f"{len(rows)}/{len(spelled)} {json.dumps(row)}", flush=True)
    data = ROOT / "specsim/data/diagnoses.json"
    if options.only:
        again = {row["mistake"]: row for row in rows}
        before = json.loads(data.read_text(encoding="utf-8"))
        rows = [again.get(row["mistake"], row) for row in before["rows"]]
    found = {"level": options.level, "seed": SEED, "rows": rows}
    data.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (ROOT / "docs/diagnosis.md").write_text(page(found), encoding="utf-8")


def variants(mutant):
    """The mutant itself, and with `OTHERS` values of its first parameter that the catalogue does not have."""
    if not mutant.parameters:
        return [mutant]
    parameter = mutant.parameters[0]
    rng = np.random.default_rng([SEED, len(mutant.name), ord(mutant.name[0])])
    high = min(parameter.high, max(4.0 * parameter.default, 4.0))
    values = rng.uniform(parameter.low, high, OTHERS)
    if parameter.whole:
        values = np.unique(np.clip(np.round(values), max(parameter.low, 1), high))
    values = [float(value) for value in values if value != parameter.default]
    return [mutant, *(mutant.with_parameters(**{parameter.name: value}) for value in values)]


def judged(spelled, level):
    """Whether the mistake is caught, what it is called, and what without its own entry."""
    mutant = mutants.get(spelled)
    function = declares(decoder=mutant.decode is not None)(mutant.function)
    result = audit(function, level, SEED, diagnose=False)
    failed = [case for case in result.cases if case.findings and not case.broken and case.case != PROMISES]
    row = {
        "mistake": spelled,
        "family": mutant.family,
        "off_catalogue": spelled != str(mutants.get(mutant.name)),
        "verdict": str(result.verdict),
    }
    if not failed:
        return row
    with placed(function, 1, 60.0) as place:

        def diagnosis(known):
            if mutant.decode is not None:
                return diagnose_decoder(place, failed, SEED, known)
            return diagnose_chain(place, failed, level, SEED, known)

        found = diagnosis(mutants.catalogue())
        # another mistake that, with the right parameter, is the same one: a draft from the likeliest token alone is greedy
        same = {kind(one.name) for one in found.nearest if one.fits and one.behind < SAME} | {mutant.name}
        left = diagnosis([one for one in mutants.catalogue() if one.name not in same])
    return row | {
        "named": [one.name for one in found.named],
        "right": bool(found.named) and is_same(mutant, mutants.get(found.named[0].name)),
        "without": [kind(one.name) for one in left.named],
    }


def is_same(mutant, named):
    """Whether it is the same mistake, or another one that has the same law with these parameters."""
    if mutant.name == named.name:
        return True
    if mutant.law is None or named.law is None:
        return False
    cases = [case for case in diagnostic_cases(Declared()) if not case.rotated]
    laws = ([predict(one, case).law for case in cases] for one in (mutant, named))
    return all(np.allclose(one, other, atol=1e-9) for one, other in zip(*laws, strict=True))


def kind(spelled):
    return spelled.partition(":")[0]


def page(found):
    """docs/diagnosis.md."""
    caught = [row for row in found["rows"] if "named" in row]
    first = [row for row in caught if row["right"]]
    among = [row for row in caught if row["right"] or kind(row["mistake"]) in map(kind, row["named"])]
    off = [row for row in caught if row["off_catalogue"]]
    off_first = [row for row in off if row in first]
    off_among = [row for row in off if row in among]
    unknown = [row for row in caught if not row["without"]]
    text = (
        f"{len(found['rows'])} known mistakes and variants of them, audited at level {found['level']}, seed "
        f"{found['seed']}; {len(caught)} are caught there and can be diagnosed. Of these {len(first)} "
        f"({share(first, caught)}) are named first, themselves or by another one of the same law; {len(among)} ({share(among, caught)}) first or among those that are "
        f"not told apart; of the {len(off)} with parameters that the catalogue does not have, {len(off_first)} "
        f"({share(off_first, off)}) and {len(off_among)} ({share(off_among, off)}). With its own entry left out, and those "
        f"not told apart from it, the answer is *unknown* for {len(unknown)} ({share(unknown, caught)})."
    )
    lines = [
        "# Diagnoses, measured",
        "",
        *textwrap.wrap(text, 118),
        "",
        "`make diagnoses` computes this page again.",
        "",
    ]
    lines += ["| mistake | verdict | named | named without its entry |", "|---|---|---|---|"]
    for row in found["rows"]:
        named, without = (
            ", ".join(row[key]) or "unknown" if key in row else "–" for key in ("named", "without")
        )
        lines.append(f"| `{row['mistake']}` | {row['verdict']} | {named} | {without} |")
    return "\n".join(lines) + "\n"


def share(some, of):
    return f"{len(some) / len(of):.0%}" if of else "–"


if __name__ == "__main__":
    main()
