"""The sentences and tables of all forms of a report."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import shorten
from typing import Any

import numpy as np

from specsim.adapters import is_engine
from specsim.adapters._contract import SHOWN_BY, Declared
from specsim.auditing._cases.battery import Case, battery
from specsim.auditing._cases.rows import PREFIX
from specsim.auditing._cases.shapes import SERVER_CASES
from specsim.auditing._results import audit as results
from specsim.auditing._results.audit import Audit, CaseResult, Verdict
from specsim.core._files import read_table
from specsim.core._tables import NONE, Piece, Table, short
from specsim.core.stats import POWER
from specsim.theory import expected_tokens
from specsim.theory._enumeration import step_law

#: What the columns of the two tables mean.
COLUMNS: dict[str, str] = read_table("columns")["verifier"]

#: In place of the verdict of a case that was left out for time.
LEFT_OUT = "left out"
#: The column of the values of an axis, which holds text.
AXIS = "value: detectable TV"
#: The axes that the table of shapes has.
BY_SHAPE = (results.ROWS_AND_GAMMA, "calls", "rows of a call", "γ", "tokens")
#: Kinds of findings of which one step is enough.
CERTAIN = ("contract", "path", "support")
#: The most drafts of a case that are enumerated, to find what a wasteful verifier is like.
MOST_DRAFTS = 1024
#: What verdicts mean, what is wrong where each row by itself is not, and other sentences.
MEANINGS: dict[str, str] = read_table("meanings")["verifier"]
#: Verdicts of cases, as `summary` orders them.
ORDER = *map(str, (Verdict.BROKEN, Verdict.BIASED, Verdict.NO_POWER)), LEFT_OUT, "lossy", "consistent"
#: The most lines of a traceback, and characters of the names of cases, in a summary.
LAST_LINES, NAMES = 6, 34


def headline(audit: Audit) -> str:
    if not audit.steps and audit.verdict is Verdict.INCONCLUSIVE:
        return f"{audit.verifier}: inconclusive, nothing was run"
    lossy = f" as declared, TV up to {audit.declared_tv:.3f}" if audit.verdict is Verdict.LOSSY else ""
    waste = ", wasteful" if audit.wasteful else ""
    so_far = " (interrupted)" if audit.interrupted else ""
    where = " (dependent)" if audit.dependent else " (edge case)" if audit.edge_case else ""
    return f"{audit.verifier}: {audit.verdict}{where}{lossy}{waste}{so_far}"


def meaning(audit: Audit) -> str:
    """What the verdict means, and whether the wanted power was reached."""
    if audit.dependent or audit.edge_case:
        return MEANINGS["dependent" if audit.dependent else "edge case"]
    said = MEANINGS[audit.verdict].format(tv=audit.declared_tv)
    return " ".join(filter(None, [said, wanted_line(audit), MEANINGS["wasteful"] * audit.wasteful]))


def explanation(audit: Audit) -> list[str]:
    """Which known bug it is, what is proved, and what costs speed."""
    return [*diagnosis(audit), *filter(None, [proof_line(audit)]), *waste_lines(audit)]


def diagnosis(audit: Audit) -> list[str]:
    """Which known bug it is, if the audit looked for one."""
    if audit.diagnosis is None:
        return []
    lines = audit.diagnosis.lines()
    if audit.diagnosis.reason == results.STOPPED:  # it can be made without a time limit
        named = f"specsim audit diagnose FOLDER {shlex.quote(audit.verifier)} (FOLDER: that of --out)"
        called = "specsim.auditing.diagnose(this result, the same function)"
        lines.append(f"Continue: {named if replay(audit).startswith('specsim') else called}")
    return lines


def progress_lines(audit: Audit) -> list[str]:
    """What an interrupt or the time limit left out."""
    lines, begun = [], sum(case.planned > 0 for case in audit.cases)
    if audit.interrupted:
        lines.append(MEANINGS["begun"].format(begun=begun, planned=_counted(audit.planned, "case")))
    left = audit.planned - begun
    if left and any(case.broken for case in audit.cases) and not audit.interrupted:
        lines.append(f"{_counted(left, 'case')} of {audit.planned} not run, since the contract is broken.")
    brief = (case for case in audit.cases if case.steps < case.planned and not case.findings)
    if slow := [case for case in brief if case.case not in audit.out_of_time]:
        done, planned = sum(case.steps for case in slow), sum(case.planned for case in slow)
        why = "interrupted" if audit.interrupted else "time limit"
        cases = _counted(len(slow), "case")
        lines.append(MEANINGS["slow"].format(done=done, planned=planned, cases=cases, why=why))
    return lines


def finding_lines(audit: Audit) -> list[str]:
    """The first finding of each case, the clearest first; cases whose findings are alike share a line."""
    lines = []
    for cases in grouped(audit):
        others = len(cases[0].findings) - 1
        more = f" (and {_counted(others, 'more finding')})" if others else ""
        alike = f" and {_counted(len(cases) - 1, 'more case')}" if len(cases) > 1 else ""
        lines.append(f"{cases[0].case}{alike}: {finding_line(cases[0])}{more}")
    return lines


def finding_line(case: CaseResult) -> str:
    """The first finding of a case, after the strongest evidence of the case if it is statistical."""
    first, most = case.findings[0], case.largest_log10_e
    if first.log10_e is None:
        return first.text
    whole = round(most) > round(first.log10_e) and not first.text.startswith("all ")
    return f"e = 10^{most:.0f}{' over all tables' * whole}; {first.text}"


def grouped(audit: Audit) -> list[list[CaseResult]]:
    """The cases with findings, those whose findings are alike together, the clearest first."""
    found: dict[tuple[tuple[str, str], ...], list[CaseResult]] = {}
    for case in audit.cases:
        if case.findings:
            found.setdefault(tuple(finding.alike for finding in case.findings), []).append(case)
    return sorted(found.values(), key=lambda cases: -_clarity(cases[0]))


def _clarity(case: CaseResult) -> float:
    """The largest log10 e-value; infinity where one step is enough."""
    certain = any(finding.kind in CERTAIN for finding in case.findings)
    return float("inf") if certain else case.largest_log10_e


def traceback(audit: Audit) -> str:
    """That of the first finding which has one, if possible with a call; empty without an exception."""
    found = (finding.details for case in audit.cases for finding in case.findings if finding.details)
    return max(found, key=lambda details: SHOWN_BY in details, default="")


def proof_line(audit: Audit) -> str | None:
    """What enumeration proved, if the verifier is a built-in rule."""
    if audit.proof is None:
        return None
    claim = "exact" if audit.proof.lossless else "the declared one"
    wrong = f"NOT {claim}, total variation up to {audit.proof.largest_tv:.3g}"
    return MEANINGS["proof"].format(proof=audit.proof, law=claim if audit.proof.as_claimed else wrong)


def test_line(audit: Audit) -> str:
    """The number of steps and tests, and the false-alarm rate."""
    made = f"Test: {audit.steps:,} steps, {audit.tests} tests"
    if not audit.steps:
        return f"{made}: {'nothing was run' if audit.interrupted else 'the verifier could not be run'}."
    return MEANINGS["test"].format(made=made, audit=audit)


def wanted_line(audit: Audit) -> str:
    """Whether the wanted power was reached, and the evidence; empty where the verdict needs no power."""
    if audit.exit_code == 1:
        return ""
    cases = _counted(audit.planned + len(audit.left_out), "case")
    strongest, case = audit.strongest
    where = f" (case {case})" if strongest > 0 else ""
    return MEANINGS["wanted"].format(audit=audit, cases=cases, strongest=max(strongest, 0.0), where=where)


def unseen_lines(audit: Audit) -> list[str]:
    """What was not tested: lines that no call ran, calls too few to show the wanted size, calls not made."""
    lines, origin = list[str](), audit.origin
    if audit.exit_code == 1:
        return lines
    if origin and origin.file and origin.unseen:
        where = f"{_counted_lines(origin.unseen)} of {os.path.basename(origin.file)}"
        lines.append(f"Not run: {where}. No call that was watched came there.")
    late = [case.purpose.partition(f"; {results.UNANSWERED}: ")[2] for case in audit.cases]
    lines += [f"No answer within the time-out: {one}." for one in late if one]
    if not (made := {case.case for case in audit.cases if case.kernel == results.CALLS}):
        return lines
    if without := [f"{case.case} ({case.purpose})" for case in audit.unseen]:
        of = audit.planned + len(audit.left_out)
        among = " among them" * (len(without) < of - audit.powerful)
        lines.append(f"Without power: {of - audit.powerful} of {of} cases,{among} {'; '.join(without)}.")
    asked = {*made, *audit.left_out}
    if missing := [f"{name} ({purpose})" for name, purpose in SERVER_CASES.items() if name not in asked]:
        lines.append(f"Not made: {'; '.join(missing)}.")
    return [*lines, MEANINGS["not tested"]]


def _counted_lines(lines: Sequence[int]) -> str:
    """Numbers of lines as a reader looks for them, such as "line 3" and "lines 3, 7 to 9"."""
    # of consecutive numbers each is as far from its place as the one before
    runs = [[line for _, line in run] for _, run in groupby(enumerate(lines), lambda one: one[1] - one[0])]
    parts = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"line{'s' * (len(lines) > 1)} {', '.join(parts)}"


def limits_line(audit: Audit) -> str:
    """What the verifier declares, and which cases are therefore left out."""
    number, limits = len(audit.left_out), ", ".join(audit.limits)
    asked, names = audit.planned + number, f": {', '.join(audit.left_out)}" if number else ""
    if not audit.limits:
        return f"{number} of {asked} cases were not exported{names}." if number else ""
    unchecked = " It was not tested whether the same rng gives the same tokens."
    more = unchecked if results.IRREPRODUCIBLE in audit.limits else ""
    return MEANINGS["limits"].format(limits=limits, number=number, asked=asked, names=names, unchecked=more)


def waste_lines(audit: Audit) -> Iterator[str]:
    """The case that wastes most and, if some fit all cases, the exact controls, with reports of the first."""
    wasteful = [case for case in audit.cases if case.efficiency is not None and case.efficiency.wasteful]
    if not wasteful:
        return
    from specsim.mistakes import exact_controls  # loads the known mistakes

    worst = min(wasteful, key=lambda case: case.efficiency.ratio)  # type: ignore[union-attr]
    yield MEANINGS["waste"].format(case=worst)
    if not any(case.lengths[-1] for case in audit.cases if case.tree):
        yield MEANINGS["bonus"]
    if alike := [one for one in exact_controls() if one.law is not None and _fits(audit, one)]:
        names, reports = (", ".join(some) for some in ([one.name for one in alike], alike[0].threads))
        yield f"It accepts as often as {names}: {alike[0].mechanism} Reported in {reports}."


def _fits(audit: Audit, control: Any) -> bool:
    """Whether the efficiency of `control` lies in the interval of every case that can be enumerated."""
    found = {case.case: case for case in audit.cases if case.efficiency is not None}
    compared = 0
    for case in battery(Declared()):
        result = found.get(case.name)
        few = case.is_pair and case.vocab_size**case.gamma <= MOST_DRAFTS
        if result is None or not few or result.tree != case.tree:
            continue
        if not result.efficiency.lower <= _efficiency(case, control) <= result.efficiency.upper:  # type: ignore[union-attr]
            return False
        compared += 1
    return compared > 1


def _efficiency(case: Case, control: Any) -> float:
    """The mean tokens of a step relative to the standard rule's, every draft enumerated."""
    law = step_law(control, case.target, case.draft, case.tree)
    mean = sum(len(emitted) * float(mass) for emitted, mass in law.items())
    return mean / float(expected_tokens(np.minimum(*case.pmfs).sum(), case.gamma))


def time_lines(audit: Audit) -> list[str]:
    """Which cases were left out for time, and what was found to hold at the others."""
    if not audit.out_of_time:
        return []
    here = [case for case in audit.cases if case.first_token is not None]
    ran = [case for case in here if case.case not in audit.out_of_time]
    brief = [case.steps for case in here if case.case in audit.out_of_time]
    steps, names = _counted(max(brief, default=0), "step"), ", ".join(audit.out_of_time)
    lines = [MEANINGS["time"].format(number=len(audit.out_of_time), audit=audit, steps=steps, names=names)]
    if held := [case for case in ran if not case.findings]:
        power = (f"{case.case} ({case.first_token.detectable_tv:.3f})" for case in held if case.first_token)
        lines.append(MEANINGS["held"].format(power=", ".join(power)))
    return lines


def replay(audit: Audit) -> str:
    """How to draw the same steps again: a command where there is one."""
    root = audit.provenance.root
    module, _, function = audit.verifier.partition(":")
    importable = bool(function) and "<" not in function and module != "__main__"
    own = next((case.case for case in audit.cases if case.case.startswith(PREFIX)), "").split(" ", 1)
    if (audit.proof is not None or is_engine(audit.verifier) or importable) and own != [PREFIX]:
        more = f" --pair {shlex.quote(own[1])}" if own[1:] else ""
        more += f" --device {audit.device}" if audit.device != "cpu" else ""
        return f"specsim audit {shlex.quote(audit.verifier)}{more} --level {audit.level} --seed {root}"
    return f'the same function or tokens, with level "{audit.level}" and rng={root}'


def legend(audit: Audit) -> dict[str, str]:
    """What the columns of the tables mean, with the e-value from which this audit rejects."""
    values = {"power": POWER, "alarm": audit.needed_log10_e, "wanted": audit.wanted_tv}
    weak = any(case.verdict is Verdict.NO_POWER for case in audit.cases)
    return {name: text.format(**values) for name, text in COLUMNS.items() if weak or name != "verdict"}


def iid_report(audit: Audit) -> list[str]:
    """What the i.i.d. formula makes of each α, and the measured rate, where rows change with the context; of
    the standard rule, if nothing was found."""
    lines: list[str] = []
    if audit.verifier != "standard" or audit.exit_code == 1:
        return lines
    for case in audit.cases:
        if case.iid or case.alphas is None:
            continue
        lines.append(f"{case.case}: {case.tokens_per_step:.4f} tokens per step measured, γ = {case.gamma}.")
        for name, predicted in case.alphas.formula().items():
            off = predicted / case.tokens_per_step - 1.0
            found = {"off": 100 * abs(off), "direction": "high" if off > 0 else "low"}
            alpha = getattr(case.alphas, name)
            lines.append(MEANINGS["iid"].format(name=name, alpha=alpha, predicted=predicted, **found))
    return lines


def summary(audit: Audit) -> Iterator[Piece]:
    """The cases by verdict, and the end of a traceback."""
    rows = {}
    for verdict in ORDER:
        cases = [case for case in audit.cases if verdict_of(audit, case) == verdict]
        cases.sort(key=lambda case: -case.largest_log10_e)
        tvs = [case.first_token.detectable_tv for case in cases if case.first_token]
        rows[verdict] = {
            "verdict": verdict,
            "cases": str(len(cases)),
            "detectable TV": f"{min(tvs):.4f}–{max(tvs):.4f}" if tvs else NONE,
            "max e": f"10^{cases[0].largest_log10_e + 0.0:.1f}" if tvs else NONE,
            "which": shorten("; ".join(case.case for case in cases), NAMES, placeholder=" …"),
        }
    yield Table.of([row for row in rows.values() if row["which"]])
    where = traceback(audit).partition(SHOWN_BY)[0].splitlines()
    yield from (f"  {line[:76]}" for line in where[-LAST_LINES:])


def tables(audit: Audit) -> Iterator[Table]:
    """The long tables."""
    for rows in (evidence(audit), speed(audit), power_by_shape(audit), power_by_axis(audit)):
        yield Table.of(rows, gap=1)


def remarks(audit: Audit) -> Iterator[str]:
    """What raised, what the i.i.d. formula gives, and what was not tested."""
    yield from (f"  {line}" for line in traceback(audit).splitlines())
    yield from iid_report(audit)
    yield from (*time_lines(audit), *unseen_lines(audit), limits_line(audit))
    run, threads = audit.provenance, _counted(audit.provenance.threads, "thread")
    yield f"Level {audit.level}, seed {run.root}, {run.seconds:.1f} s on {threads}, specsim {run.specsim}."


def evidence(audit: Audit) -> list[dict[str, str]]:
    """The first table: is it exact? It fits into 80 columns."""
    rows = []
    for case in audit.cases:
        first, last = case.first_token, case.last_position
        power = f"{first.detectable_tv:.4f}–{last.detectable_tv:.4f}" if first and last else NONE
        certified = first and first.certified_tv
        rows.append(
            {
                "case": case.case,
                "V": short(case.vocab_size) if case.vocab_size else NONE,
                "γ": str(case.gamma) if case.tree is not None else NONE,
                "steps": short(case.steps) if case.planned else NONE,
                "min p": f"{case.smallest_p:.1g}" if any(one.chi_square.df for one in case.tables) else NONE,
                "max e": f"10^{round(case.largest_log10_e, 1) + 0.0:.1f}" if case.tables else NONE,
                "detectable TV": power,
                "TV ≤": NONE if certified is None else f"{certified:.4f}",
                "verdict": verdict_of(audit, case),
            }
        )
    return rows


def verdict_of(audit: Audit, case: CaseResult) -> str:
    """The verdict of a case; left out if time did not suffice, and nothing was found in its few steps."""
    return LEFT_OUT if case.case in audit.out_of_time and not case.findings else str(case.verdict)


def power_by_shape(audit: Audit) -> list[dict[str, str]]:
    """The third table: what would have been found at calls of each shape; none was made where it has "–"."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for case in audit.cases:
        axes = axes_of([case])
        ids = list(axes.get("vocabulary", ()))
        of_case = " to ".join(dict.fromkeys((ids[0], ids[-1]))) if ids else ""
        for value, tv in axes.get(results.ROWS_AND_GAMMA, {}).items():
            rows, _, gamma = value.partition(" rows, ")
            found.setdefault((of_case, rows), {})[gamma] = f"{tv:.3f}" if tv < 1.0 else NONE
    columns = sorted(set().union(*found.values()), key=lambda name: int(name.split()[1]))
    return [
        {"ids": ids, "rows of a call": rows} | {gamma: row.get(gamma, NONE) for gamma in columns}
        for (ids, rows), row in found.items()
    ]


def power_by_axis(audit: Audit) -> list[dict[str, str]]:
    """The fourth table: what would have been found along other axes of the calls' shapes."""
    return [
        {"axis": axis, AXIS: ", ".join(f"{name}: {values[name]:.3f}" for name in sorted(values, key=_begin))}
        for axis, values in axes_of(audit.cases).items()
        if axis not in BY_SHAPE
    ]


def _begin(value: str) -> int:
    """The number with which a value of an axis begins; of words -1."""
    return int((re.match(r"[\d,]+", value) or ["-1"])[0].replace(",", ""))


def axes_of(cases: Iterable[CaseResult]) -> dict[str, dict[str, float]]:
    """The detectable total variation by axis and value, where it is least."""
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        for table in case.tables:
            axis, colon, value = table.where.partition(";")[0].partition(": ")
            if colon and (table.n or axis == results.ROWS_AND_GAMMA):
                values = found.setdefault(axis, {})
                values[value] = min(values.get(value, 1.0), table.detectable_tv)
    return found


def speed(audit: Audit) -> list[dict[str, str]]:
    """The second table: how fast would it be? Only cases where this has a meaning."""
    return [_speed(case) for case in audit.cases if case.lengths.any() and (case.alphas or case.efficiency)]


def _speed(case: CaseResult) -> dict[str, str]:
    alpha, efficiency, error = case.alphas, case.efficiency, "wasteful"
    if efficiency is not None and not efficiency.wasteful:
        error = f"±{(efficiency.upper - efficiency.lower) / 2.0:.4f}"
    return {
        "case": case.case,
        "Σ min": f"{alpha.context:.4f}" if alpha else NONE,
        "α verified": f"{alpha.verified:.4f}" if alpha else NONE,
        "α drafted": f"{alpha.drafted:.4f}" if alpha else NONE,
        "tokens/step": f"{case.tokens_per_step:.4f}",
        "theory": f"{expected_tokens(alpha.context, case.gamma):.4f}" if alpha and case.iid else NONE,
        "efficiency": NONE if efficiency is None else f"{efficiency.ratio:.4f} {error}",
    }


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
