"""The sentences and the cells of tables that every form of a report shares."""

from __future__ import annotations

import numpy as np

from specsim.auditing._results import Audit, CaseResult, Efficiency, Verdict
from specsim.auditing.adapters import is_engine
from specsim.core.stats import POWER
from specsim.theory import expected_tokens

__all__ = [
    "COLUMNS",
    "alarm",
    "diagnosis",
    "evidence",
    "finding_lines",
    "headline",
    "iid_lines",
    "legend",
    "meaning",
    "power_line",
    "progress_lines",
    "proof_line",
    "remedy",
    "replay",
    "run_line",
    "short",
    "speed",
    "test_line",
    "waste",
]

NONE = "–"

#: What the columns of the two tables mean.
COLUMNS = {
    "V": "size of the vocabulary",
    "γ": "drafted tokens of a step, or the depth of its tree",
    "steps": "rounds of draft and verify that were drawn, of a decoder whole texts; fewer than planned where a deviation was found early",
    "min p": "smallest chi-square p-value of the case's tables, for reading",
    "max e": "largest e-value; it decides",
    "detectable TV": f"deviation that would have been found with probability {POWER:g}, as total variation, at the "
    "first–last position tested",
    "certified": "bound on the TV of the first token",
    "Σ min(p,q)": "its mean over the contexts where steps begin",
    "α verified": "accepted / tested tokens",
    "α drafted": "accepted / drafted tokens",
    "tokens/step": "mean number of tokens that a step emits",
    "theory": "the closed form for the standard rule on one chain, where p and q are the same at every position",
    "efficiency": "tokens per step, relative to the standard rule on one chain; no part of the verdict",
}


# --- sentences -------------------------------------------------------------------------------------------


def headline(audit: Audit) -> str:
    """The verdict in a line."""
    if not audit.cases and audit.verdict is not Verdict.BIASED:
        return f"{audit.verifier}: no verdict, nothing was run"
    lossy = f" as declared, TV up to {audit.declared_tv:.3f}" if audit.verdict is Verdict.LOSSY else ""
    waste = ", wasteful" if audit.wasteful else ""
    so_far = " (interrupted: the verdict so far)" if audit.interrupted else ""
    return f"{audit.verifier}: {audit.verdict}{lossy}{waste}{so_far}"


def meaning(audit: Audit) -> str:
    """What the verdict means, for somebody who was not there."""
    if not audit.cases and audit.verdict is not Verdict.BIASED:
        return "The audit was interrupted before its first case ended. Nothing can be said."
    waste = " It accepts fewer drafted tokens than it could: that costs speed, not correctness."
    return {
        Verdict.CONSISTENT: "No deviation from the target model's law was found. " + power_line(audit),
        Verdict.LOSSY: "Its tokens do not follow the target model's law; it declares that, and no deviation from the law "
        f"that it declares was found. That law differs from the target's by a total variation of up to {audit.declared_tv:.3f}.",
        Verdict.BIASED: "Its tokens do not follow the law that it claims: text made with it is not the target model's text.",
        Verdict.BROKEN: "It broke its contract, as the findings say, so that of its law little or nothing could be tested.",
    }[audit.verdict] + (waste if audit.wasteful else "")


def remedy(audit: Audit) -> str:
    """What to do about it."""
    if audit.interrupted and audit.exit_code == 3:
        return "Run it again to the end; what was not reached was not tested."
    return {
        Verdict.CONSISTENT: "Nothing. A deeper level finds smaller deviations.",
        Verdict.LOSSY: "Decide whether that much is wanted; nothing is wrong with the code.",
        Verdict.BIASED: "Begin with the finding on the smallest vocabulary and the first position. The same seed draws the "
        "same steps again, so that a repair can be tried on them.",
        Verdict.BROKEN: "Repair this first: each finding names the call, the step and the place. The same seed makes the same "
        "calls again.",
    }[audit.verdict]


def diagnosis(audit: Audit) -> list[str]:
    """Which known mistake it looks like, if the audit looked."""
    return [] if audit.diagnosis is None else audit.diagnosis.lines()


def progress_lines(audit: Audit) -> list[str]:
    """What was left out: by an interrupt, by a limit of time."""
    lines = []
    if audit.interrupted:
        ended = f"{len(audit.cases)} cases were begun, the others not" if audit.cases else "no case was begun"
        lines.append(f"interrupted: the verdict so far; {ended}.")
    slow = [case for case in audit.cases if case.steps < case.planned and not case.findings]
    if slow:
        done, planned = sum(case.steps for case in slow), sum(case.planned for case in slow)
        why = "interrupted" if audit.interrupted else "the time was up"
        lines.append(
            f"{done:,} of {planned:,} planned steps in {_counted(len(slow), 'case')} ({why}), see detectable TV."
        )
    return lines


def finding_lines(audit: Audit) -> list[str]:
    """The first finding of each case; cases that share it share a line."""
    cases: dict[str, list[str]] = {}
    for case in audit.cases:
        if case.findings:
            hidden = len(case.findings) - 1
            more = f" (and {_counted(hidden, 'more finding')})" if hidden else ""
            cases.setdefault(f"{case.findings[0].text}{more}", []).append(case.case)
    return [f"{_and_more(names)}: {text}" for text, names in cases.items()]


def proof_line(audit: Audit) -> str | None:
    """What enumeration proved, if the verifier is a built-in rule."""
    if audit.proof is None:
        return None
    claim = "exact" if audit.proof.lossless else "the declared one"
    said = (
        claim
        if audit.proof.as_claimed
        else f"NOT {claim}, total variation up to {audit.proof.largest_tv:.3g}"
    )
    return (
        f"Proof: on {audit.proof.models} generated models, every draft enumerated in fractions, the law of a step "
        f"is {said}."
    )


def test_line(audit: Audit) -> str:
    """What was drawn, and how often an exact verifier would be accused."""
    made = f"Test: {audit.steps:,} steps, {audit.tests} tests"
    if not audit.steps:
        return f"{made}: {'nothing was run' if audit.interrupted else 'the verifier could not be run'}."
    return (
        f"{made}; a verifier that keeps its claim is called biased with probability at most {audit.budget:g}. A deviation "
        f"of the size under 'detectable TV' would have been found with probability {POWER:g}."
    )


def power_line(audit: Audit) -> str:
    """How small a deviation would have been found at the first token, from the sharpest case to the bluntest."""
    found = [case.first_token.detectable_tv for case in audit.cases if case.first_token is not None]
    if not found:
        return ""
    return (
        f"Of a step's first token, a deviation in total variation of {min(found):.4f} in the sharpest case, of "
        f"{max(found):.4f} in the bluntest, would have been found with probability {POWER:g}."
    )


def run_line(audit: Audit) -> str:
    """How it was run."""
    run = audit.provenance
    threads = _counted(run.threads, "thread")
    return f"Level {audit.level}, seed {run.root}, {run.seconds:.1f} s on {threads}, specsim {run.specsim}."


def replay(audit: Audit) -> str:
    """How to draw the same steps again: a command where there is one."""
    root = audit.provenance.root
    module, _, function = audit.verifier.partition(":")
    importable = bool(function) and "<" not in function and module != "__main__"
    if audit.proof is not None or is_engine(audit.verifier) or importable:
        return f"specsim audit {audit.verifier} --level {audit.level} --seed {root}"
    return f'the same function or tokens, with level "{audit.level}" and rng={root}'


def iid_lines(case: CaseResult) -> list[str]:
    """On rows that change with the context: what the i.i.d. formula makes of each α, beside what was measured."""
    if case.alphas is None:
        return []
    lines = [f"{case.case}: {case.tokens_per_step:.4f} tokens per step measured, γ = {case.gamma}."]
    named = {"context": case.alphas.context, "verified": case.alphas.verified, "drafted": case.alphas.drafted}
    for name, predicted in case.alphas.formula().items():
        off = predicted / case.tokens_per_step - 1.0
        lines.append(
            f"  α {name:<8} = {named[name]:.4f}: (1-α^(γ+1))/(1-α) = {predicted:.4f}, "
            f"{abs(off):.1%} {'above' if off > 0 else 'below'} the truth"
        )
    return lines


def alarm(audit: Audit) -> str:
    """From where on an e-value decides."""
    return f"with an alarm from 10^{np.log10(audit.tests / audit.budget):.1f}"


def legend(audit: Audit) -> str:
    """The columns that need it, in one paragraph."""
    said = COLUMNS | {"max e": f"{COLUMNS['max e']}, {alarm(audit)}"}
    named = ["min p", "max e", "detectable TV", "certified"]
    named += ["Σ min(p,q)", "theory", "efficiency"] if speed(audit) else []
    return " ".join(f"{name}: {said[name]}." for name in named)


# --- rows of the tables ----------------------------------------------------------------------------------


def evidence(audit: Audit) -> list[dict[str, str]]:
    """The first table: is it exact?  It fits into 80 columns."""
    return [_evidence(case) for case in audit.cases]


def speed(audit: Audit) -> list[dict[str, str]]:
    """The second table: how fast would it be?  Cases where that means nothing are left out."""
    return [_speed(case) for case in audit.cases if case.lengths.any() and (case.alphas or case.efficiency)]


def _evidence(case: CaseResult) -> dict[str, str]:
    first, last = case.first_token, case.last_position
    compared = any(table.chi_square.df for table in case.tables)
    return {
        "case": case.case,
        "V": short(case.vocab_size) if case.vocab_size else NONE,
        "γ": str(case.gamma) if case.tree is not None else NONE,
        "steps": short(case.steps) if case.planned else NONE,
        "min p": f"{case.smallest_p:.1g}" if compared else NONE,
        "max e": f"10^{round(case.largest_log10_e, 1) + 0.0:.1f}" if case.tables else NONE,
        "detectable TV": f"{first.detectable_tv:.4f}–{last.detectable_tv:.4f}" if first and last else NONE,
        "certified": f"≤{first.certified_tv:.4f}" if first and first.certified_tv is not None else NONE,
        "verdict": str(case.verdict),
    }


def _speed(case: CaseResult) -> dict[str, str]:
    alpha = case.alphas
    return {
        "case": case.case,
        "Σ min(p,q)": f"{alpha.context:.4f}" if alpha else NONE,
        "α verified": f"{alpha.verified:.4f}" if alpha else NONE,
        "α drafted": f"{alpha.drafted:.4f}" if alpha else NONE,
        "tokens/step": f"{case.tokens_per_step:.4f}",
        "theory": f"{expected_tokens(alpha.context, case.gamma):.4f}" if alpha and case.iid else NONE,
        "efficiency": _efficiency(case.efficiency) if case.efficiency else NONE,
    }


def _efficiency(efficiency: Efficiency) -> str:
    if efficiency.wasteful:
        return f"{efficiency.ratio:.4f} wasteful"
    return f"{efficiency.ratio:.4f} ±{(efficiency.upper - efficiency.lower) / 2.0:.4f}"


def waste(case: CaseResult) -> str:
    """How much less than the standard rule a wasteful case emits."""
    assert case.efficiency is not None
    return (
        f"{case.tokens_per_step:.4f} tokens per step, {case.efficiency.ratio:.3f} of the standard rule's "
        f"(at most {case.efficiency.upper:.3f})"
    )


def short(count: int) -> str:
    """A count in at most five characters.

    >>> short(999), short(1024), short(131_072), short(2**25), short(2**30)
    ('999', '1.02k', '131k', '33.6M', '1.07G')
    """
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _and_more(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {_counted(len(names) - 1, 'more case')}"
