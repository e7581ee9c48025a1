"""Writes docs/teeth.md and specsim/data/teeth.json: what the battery must see of known mistakes, whether it does, and
whether exact verifiers are left in peace.

Usage: python docs/teeth.py [--seeds 20] [--audits 1000] [--whole 50] [--workers 1], or make teeth (an hour). With --only
and some mistakes these are run again, and the rest of what was found is kept.
"""

import argparse
import json
import math
import multiprocessing
import statistics
import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from experiments.audit_power.calibration import calibrate, exact_cases
from experiments.audit_power.power import deviation, known_decoder, known_steps, rejections, tables_of
from specsim import rules
from specsim.auditing import BUDGET, mutants
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.contract_checks import PROMISES, check_promises
from specsim.auditing._checks.subjects import RuleSubject, function_subject
from specsim.auditing._checks.trial import case_key
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.contract import Declared
from specsim.auditing.mutants import _reference as pieces

ROOT = Path(__file__).parents[1]
#: Levels that are run, and how many of the seeds at most.
RUN = {"quick": 20, "standard": 20}
#: The deviation that each must see, in total variation of a step.
CLAIMED = {"quick": 0.01, "standard": 0.002}
#: The case that a mistake shows in, where that has too many drafts to enumerate.
TOO_LARGE = {"floored_race": ("flat tail 131 072", "standard")}
PILOT = 10_000  # a seed of its own
CALIBRATION_BUDGET = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each mistake")
    parser.add_argument("--audits", type=int, default=1000, help="drawn audits of each exact rule")
    parser.add_argument("--whole", type=int, default=50, help="whole audits of exact verifiers")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", nargs="+", metavar="MISTAKE", help="run these alone again")
    options = parser.parse_args()
    exact = [("rule", name) for name in rules.names("chain", "tree")]
    exact += [("innocent", name) for name in mutants.names("exact control")]
    data = ROOT / "specsim/data/teeth.json"
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        rows = told(pool.imap(partial(mistake, seeds=options.seeds), options.only or mutants.names()))
        if options.only:
            found = json.loads(data.read_text(encoding="utf-8"))
            again = {row["name"]: row for row in rows}
            found["mistakes"] = [again.get(row["name"], row) for row in found["mistakes"]]
        else:
            found = {
                "level": BUDGET,
                "claimed": CLAIMED,
                "mistakes": rows,
                "calibration_budget": CALIBRATION_BUDGET,
                "calibration": told(pool.imap(partial(calibration, audits=options.audits), exact)),
                "whole": told(pool.imap(partial(whole_audits, seeds=options.whole), ["array", "rule"])),
            }
    data.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (ROOT / "docs/teeth.md").write_text(page(found), encoding="utf-8")


def told(rows):
    found = []
    for row in rows:
        found.append(row)
        print(json.dumps(row)[:240], flush=True)
    return found


# --- mistakes --------------------------------------------------------------------------------------------


def mistake(name, seeds):
    """What is predicted of a mistake, and what came of running it."""
    mutant = mutants.get(name)
    subject = function_subject(mutant.function, name, Declared(decoder=mutant.decode is not None))
    laws = [law_in(mutant, case) for case in subject.cases]
    row = {"name": name, "family": mutant.family, "decoder": mutant.decode is not None, "best": None}
    where = None
    if any(laws):
        best, row["best"] = shown_best(subject, laws)
        row["needed"] = {level: prediction(subject, laws, best, level).needed for level in LEVELS}
        must = [level for level in LEVELS if row["needed"][level] <= subject.trial(best, level).steps]
        row["first_level"] = must[0] if must else None
        row["needed"] = {level: finite(steps) for level, steps in row["needed"].items()}
        level = next((level for level in RUN if level in must), None)
        where = (best, level) if level else None
    row["predicted"] = where is not None
    row["promise"] = mutant.decode is None and breaks_a_promise(mutant)
    if name in TOO_LARGE:
        case, level = TOO_LARGE[name]
        where = [one.name for one in subject.cases].index(case), level
    where = where or pilot(subject)
    if where is not None:
        row["run"] = run_of(subject, *where, seeds)
    return row


def breaks_a_promise(mutant):
    """Whether it is seen before a step is drawn."""
    checked = check_promises(mutant.function, Declared(), case_key(PILOT, PROMISES), TIMEOUT)
    return bool(checked.findings)


def law_in(mutant, case):
    if isinstance(case, DecoderCase):
        return known_decoder(mutant, case)
    return known_steps(mutant, case, Claim(None, case.tree))


def shown_best(subject, laws):
    """The case in which a quick audit needs the fewest steps: (index, its deviation)."""
    found = {i: prediction(subject, laws, i, "quick") for i, law in enumerate(laws) if law}
    best = min(found, key=lambda i: (found[i].needed, -found[i].distance))
    return best, {**asdict(found[best]), "needed": finite(found[best].needed)}


def prediction(subject, laws, index, level):
    case = subject.cases[index]
    claim = None if isinstance(case, DecoderCase) else Claim(None, case.tree)
    tables = tables_of(case, claim, subject.trial(index, level).steps)
    return deviation(laws[index], tables, alarm(subject, level))


def alarm(subject, level, budget=BUDGET):
    """The false-alarm probability of each test of a whole audit."""
    return budget / sum(subject.trial(i, level).tests for i in range(len(subject.cases)))


def pilot(subject):
    """(index, level) of the case that a smoke audit rejects soonest; None if it rejects none."""
    level = alarm(subject, "smoke")
    steps = {i: rejections(subject, i, "smoke", level, [PILOT])[0] for i in range(len(subject.cases))}
    seen = {i: n for i, n in steps.items() if n is not None}
    return (min(seen, key=seen.get), "quick") if seen else None


def run_of(subject, index, level, seeds):
    runs = min(seeds, RUN[level])
    steps = rejections(subject, index, level, alarm(subject, level), range(runs))
    seen = [n for n in steps if n is not None]
    return {
        "case": subject.cases[index].name,
        "level": level,
        "steps": subject.trial(index, level).steps,
        "runs": runs,
        "rejected": len(seen),
        "median_steps": statistics.median(seen) if seen else None,
    }


def finite(number):
    return number if math.isfinite(number) else None


# --- calibration -----------------------------------------------------------------------------------------


def calibration(which, audits):
    """Drawn audits of an exact rule or an innocent."""
    kind, name = which
    cases = exact_cases(rules.get(name) if kind == "rule" else mutants.get(name))
    rng = np.random.default_rng([*kind.encode(), *name.encode()])
    found = calibrate(cases, CALIBRATION_BUDGET, audits, rng)
    bins = np.histogram(found.p_values, 20, (0.0, 1.0))[0]
    return {
        "kind": kind,
        "name": name,
        "cases": [known.case for known, _, _ in cases],
        "tables": sum(len(tables) for _, tables, _ in cases),
        "audits": audits,
        "alarms": found.alarms,
        "interval": found.alarm_rate(),
        "uniformity": found.uniformity,
        "bins": bins.tolist(),
    }


def whole_audits(kind, seeds):
    """Smoke audits of an exact verifier, each with the whole calibration budget."""
    subject = (
        function_subject(pieces.verify, "NumPy", Declared())
        if kind == "array"
        else RuleSubject(rules.get("standard"), 1)
    )
    level = alarm(subject, "smoke", CALIBRATION_BUDGET)
    alarmed = set()
    for i in range(len(subject.cases)):
        steps = rejections(subject, i, "smoke", level, range(seeds))
        alarmed |= {seed for seed, n in enumerate(steps) if n is not None}
    interval = stats.binomtest(len(alarmed), seeds).proportion_ci()
    return {
        "name": {"array": "a verifier of arrays in NumPy", "rule": "the built-in standard rule"}[kind],
        "audits": seeds,
        "alarms": len(alarmed),
        "interval": [float(interval.low), float(interval.high)],
    }


# --- the page --------------------------------------------------------------------------------------------


def page(found):
    paragraphs = [*teeth_text(found), teeth_table(found), *calibration_text(found), calibration_table(found)]
    return "\n\n".join(text if text.startswith("|") else filled(text) for text in paragraphs) + "\n"


def filled(text):
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def failures(found):
    """Mistakes that a level should see, as claimed or as predicted, and did not see in every run."""
    return [row["name"] for row in found["mistakes"] if due(row) and not seen(row)]


def due(row):
    """The level that must see a mistake by its TV; that of the run where it was only predicted."""
    tv = row["best"]["tv"] if row["best"] else 0.0
    claimed = next((level for level, least in CLAIMED.items() if tv >= least), None)
    return claimed or (row["run"]["level"] if row["predicted"] else None)


def seen(row):
    run, levels = row.get("run"), list(LEVELS)
    if run is None:
        return False
    return run["rejected"] == run["runs"] and levels.index(run["level"]) <= levels.index(due(row))


def teeth_text(found):
    rows = found["mistakes"]
    known = [row for row in rows if row["best"]]
    large = [row for row in known if row["best"]["tv"] >= CLAIMED["quick"]]
    middle = [row for row in known if CLAIMED["standard"] <= row["best"]["tv"] < CLAIMED["quick"]]
    tight = min(large, key=lambda row: row["run"]["steps"] / row["best"]["needed"])
    not_run = [row for row in rows if "run" not in row]
    missed, unseen = failures(found), [row["name"] for row in not_run if not row["promise"]]
    yield "# Teeth and calibration of the battery"
    yield (
        "Written by `make teeth`; the numbers are in `specsim/data/teeth.json`. For every known mistake whose law is known, the "
        "law of a step was enumerated in each case of the battery that has few enough drafts, and held to every table that "
        "the audit tests. *TV* is the largest total variation of a table times the probability that a step visits it, *χ²* "
        "the largest chi-square distance per step, *fatal* the probability that a step emits something impossible or breaks "
        "the contract. From these follow the *steps needed* to be rejected with probability .999 by an audit with a "
        f"false-alarm budget of {found['level']:g}, in the case where they are fewest, and the first level that has as many. "
        "(For a decoder a step is a whole sequence.) Then that case was run."
    )
    yield (
        f"Of {len(rows)} mistakes {len(known)} have a law. {len(large)} of them deviate by a TV of {CLAIMED['quick']:g} or "
        f"more in their best case: `quick` must reject these; {len(middle)} more by {CLAIMED['standard']:g} or more: "
        f"`standard` must. "
        + (f"Not rejected in every run: {listed(missed)}." if missed else "All of these were, in every run.")
        + f" The least to spare has `{tight['name']}`, which needs {shown(tight['best']['needed'])} of the "
        f"{shown(tight['run']['steps'])} steps of its case."
    )
    yield (
        "Where there is no law, or none that these levels would see, the case that was run is the one that a smoke audit "
        f"rejected soonest; {listed(TOO_LARGE)} is run in the case made for it, which has too many drafts to enumerate. An audit "
        "looks first after 1/128 of its steps. Not run, because they are seen before any step is drawn, by the call in which "
        f"the residual is all but empty: {listed(row['name'] for row in not_run if row['promise'])}. Not run, because nothing "
        f"but a longer audit would see them, or none at all: {listed(unseen)}."
    )


def listed(names):
    return ", ".join(f"`{name}`" for name in names)


def teeth_table(found):
    lines = [
        "| mistake | best case | table | TV | χ² | fatal | steps needed | first level | run | rejected | median steps |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["mistakes"]:
        best, run = row["best"], row.get("run")
        cells = [f"`{row['name']}`"]
        if best and (best["kind"] or best["fatal"]):
            table = f"{best['kind']} {best['position'] + 1}" if best["kind"] else "–"
            if best["prefix"]:
                table += f" after {' '.join(map(str, best['prefix']))}"
            cells += [best["case"], table, shown(best["tv"]), shown(best["distance"]), shown(best["fatal"])]
            cells += [shown(best["needed"]), row["first_level"] or "beyond deep"]
        else:
            cells += ["–"] * 7
        if run:
            cells += [
                f"{run['case']}, {run['level']}",
                f"{run['rejected']} of {run['runs']}",
                shown(run["median_steps"]),
            ]
        else:
            cells += ["–"] * 3
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def calibration_text(found):
    rows = found["calibration"]
    audits, alarms = (sum(row[name] for row in rows) for name in ("audits", "alarms"))
    bins = np.sum([row["bins"] for row in rows], axis=0)
    uniformities = [row["uniformity"] for row in rows if row["uniformity"] is not None]
    yield "## Calibration"
    yield (
        "For every exact rule and innocent, the counts of whole audits were drawn from the law of its steps in the cases that "
        "can be enumerated (several drafts: two of two tokens), as many steps as in a smoke audit, with a false-alarm budget "
        f"of {found['calibration_budget']:g}. Together {alarms} of {audits:,} audits alarmed: an e-value promises at most the "
        "budget, and spends much less."
    )
    yield (
        "Chi-squares do not decide, but people read them: the p-values of each case's summed prefix tables should be uniform. "
        f"The least of the {len(uniformities)} p-values of Kolmogorov and Smirnov is {min(uniformities):.2g}; "
        f"all {int(bins.sum()):,} p-values in {len(bins)} bins have a chi-square p-value of {stats.chisquare(bins).pvalue:.2g}, "
        f"the fullest bin holding {bins.max() / bins.mean() - 1:+.1%} and the emptiest {bins.min() / bins.mean() - 1:+.1%} of "
        "the mean. (Single tables of few cells are coarser: their p-values take few values.)"
    )
    yield (
        "Whole smoke audits of exact verifiers, with that budget: "
        + "; ".join(
            f"{row['name']}, {row['alarms']} of {row['audits']} alarmed (95 % interval up to {row['interval'][1]:.3f})"
            for row in found["whole"]
        )
        + "."
    )


def calibration_table(found):
    lines = [
        "| exact | cases | tables | alarms | 95 % interval of the rate | uniformity |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["calibration"]:
        low, high = row["interval"]
        lines.append(
            f"| {row['kind']} `{row['name']}` | {len(row['cases'])} | {row['tables']} | {row['alarms']} of {row['audits']} | "
            f"{low:.4f} to {high:.4f} | {shown(row['uniformity'])} |"
        )
    return "\n".join(lines)


def shown(number):
    """Three digits; powers of ten where there are many."""
    if number is None:
        return "–"
    if number == 0:
        return "0"
    return f"{number:,.0f}" if 100 <= number < 1e7 else f"{number:.3g}"


if __name__ == "__main__":
    main()
