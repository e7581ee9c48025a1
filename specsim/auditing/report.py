"""An audit, told: terminal table, JSON, HTML, picture."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.auditing.results import Audit, CaseResult, Efficiency, Verdict
from specsim.theory import accepted_law, expected_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from specsim.auditing.against import Comparison, Difference

__all__ = ["audit_figure", "audit_to_html", "audit_to_json", "audit_to_terminal", "comparison_to_terminal"]

COLORS = {
    "same": "green",
    "changed": "red",
    str(Verdict.CONSISTENT): "green",
    str(Verdict.LOSSY): "yellow",
    str(Verdict.BIASED): "red",
    str(Verdict.BROKEN): "red",
}
INK = "#2a5c8a"


# --- words -----------------------------------------------------------------------------------------------


def headline(audit: Audit) -> str:
    """The verdict in a line."""
    waste = ", wasteful" if audit.wasteful else ""
    lossy = f" as declared, TV up to {audit.declared_tv:.3f}" if audit.verdict is Verdict.LOSSY else ""
    return f"{audit.verifier}: {audit.verdict}{lossy}{waste}"


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
        return f"{made}: the verifier could not be run."
    return (
        f"{made}; a verifier that keeps its claim is called biased with probability at most {audit.budget:g}. A deviation of the size "
        "under 'detectable TV' would have been found with probability .999."
    )


def run_line(audit: Audit) -> str:
    """How to run it again."""
    run = audit.provenance
    threads = "1 thread" if run.threads == 1 else f"{run.threads} threads"
    return f"Level {audit.level}, seed {run.root}, {run.seconds:.1f} s on {threads}, specsim {run.specsim}."


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


def _evidence(case: CaseResult) -> dict[str, str]:
    """A row of the first table: is it exact?  Both tables fit into 80 columns."""
    first, last = case.first_token, case.last_position
    return {
        "case": case.case,
        "V": f"{case.vocab_size:,}",
        "γ": str(case.gamma),
        "steps": f"{case.steps / 1e6:.2f}M",
        "min p": f"{case.smallest_p:.1g}",
        "max e": f"10^{case.largest_log10_e:.1f}",
        "detectable TV": f"{first.detectable_tv:.4f}–{last.detectable_tv:.4f}" if first and last else "–",
        "certified": f"≤{first.certified_tv:.4f}" if first and first.certified_tv is not None else "–",
        "verdict": str(case.verdict),
    }


def _speed(case: CaseResult) -> dict[str, str]:
    """A row of the second table: how fast would it be?"""
    alpha = case.alphas
    return {
        "case": case.case,
        "Σ min(p,q)": f"{alpha.context:.5f}" if alpha else "–",
        "α verified": f"{alpha.verified:.5f}" if alpha else "–",
        "α drafted": f"{alpha.drafted:.5f}" if alpha else "–",
        "tokens/step": f"{case.tokens_per_step:.4f}",
        "theory": f"{expected_tokens(alpha.context, case.gamma):.4f}" if alpha and case.iid else "–",
        "efficiency": _efficiency(case.efficiency) if case.efficiency else "–",
    }


def _efficiency(efficiency: Efficiency) -> str:
    if efficiency.wasteful:
        return f"{efficiency.ratio:.4f} wasteful"
    return f"{efficiency.ratio:.4f} ±{(efficiency.upper - efficiency.lower) / 2.0:.4f}"


def _legend(audit: Audit) -> str:
    alarm = np.log10(audit.tests / audit.budget)
    return (
        "min p: smallest chi-square p-value of the case's tables, for reading. max e: largest e-value; it decides, "
        f"with an alarm from 10^{alarm:.1f}. detectable TV: at the first–last position tested. certified: bound on the "
        "TV of the first token. Σ min(p,q): its mean over the contexts where steps begin. theory: the closed form "
        "for the standard rule on one chain, where p and q are the same at every position; efficiency is against it."
    )


# --- forms -----------------------------------------------------------------------------------------------


def audit_to_terminal(audit: Audit) -> Iterable[RenderableType]:
    """Renderables for a rich console, in the order in which they are printed."""
    from rich.text import Text

    yield _table([_evidence(case) for case in audit.cases])
    yield Text()
    yield _table([_speed(case) for case in audit.cases])
    yield Text()
    for case in audit.cases:
        if case.findings:
            yield Text(f"{case.case}: {case.findings[0].text}{_more(case)}", style="red")
    for case in audit.cases:
        if not case.iid:
            yield from (Text(line) for line in iid_lines(case))
    yield Text(_legend(audit), style="dim")
    if (proof := proof_line(audit)) is not None:
        yield Text(proof)
    yield Text(test_line(audit))
    yield Text(run_line(audit))
    yield Text(headline(audit), style=f"bold {COLORS[audit.verdict]}")


def comparison_to_terminal(found: Comparison) -> Iterable[RenderableType]:
    """Old against new: a table, what differs, and what would have been found."""
    from rich.text import Text

    yield _table([_difference(case) for case in found.cases])
    yield Text()
    for case in found.cases:
        if case.text:
            yield Text(f"{case.case}: {case.text}", style="red")
    alarm = np.log10(found.tests / found.budget)
    yield Text(
        f"e: the largest e-value of a case's tables against 'one law', an alarm from 10^{alarm:.1f}. same tokens: share of "
        "steps with the same tokens from the same drafts and rng. detectable TV: between the laws of the first token.",
        style="dim",
    )
    yield Text(
        f"{found.tests} tests; two verifiers of one law are called changed with probability at most {found.budget:g}."
    )
    run = found.provenance
    yield Text(f"Level {found.level}, seed {run.root}, {run.seconds:.1f} s, specsim {run.specsim}.")
    same = ", token by token under the same rng" if found.identical and found.verdict == "same" else ""
    color = "green" if found.verdict == "same" else "red"
    yield Text(f"{found.new} against {found.old}: {found.verdict}{same}", style=f"bold {color}")


def _difference(case: Difference) -> dict[str, str]:
    new, old = case.tokens_per_step
    return {
        "case": case.case,
        "steps": f"{case.steps / 1e6:.2f}M",
        "e": f"10^{case.log10_e:.1f}",
        "same tokens": f"{case.twins:.3f}",
        "tokens/step new": f"{new:.4f}",
        "old": f"{old:.4f}",
        "detectable TV": f"{case.detectable_tv:.4f}",
        "verdict": "broken" if case.broken else "changed" if case.changed else "same",
    }


def _table(rows: list[dict[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("case", "verdict") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in row.values()))
    return table


def _more(case: CaseResult) -> str:
    hidden = len(case.findings) - 1
    return f" (and {hidden} more finding{'s' if hidden > 1 else ''}, in the JSON)" if hidden else ""


def audit_to_json(audit: Audit) -> str:
    """`Audit.to_dict` as JSON; there is no NaN or infinity in it."""
    return json.dumps(audit.to_dict(), indent=1, allow_nan=False, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def audit_to_html(audit: Audit) -> str:
    """Tables for Jupyter."""
    findings = [f"{case.case}: {finding.text}" for case in audit.cases for finding in case.findings]
    plain = [line for case in audit.cases if not case.iid for line in iid_lines(case)]
    notes = [*findings, *plain, proof_line(audit), test_line(audit), run_line(audit), _legend(audit)]
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in notes if line)
    tables = "".join(_html_table([row(case) for case in audit.cases]) for row in (_evidence, _speed))
    return f"<h4>{html.escape(headline(audit))}</h4>{tables}{paragraphs}"


def _html_table(rows: list[dict[str, str]]) -> str:
    names = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows
    )
    return f"<table><tr>{names}</tr>{body}</table>"


# --- picture ---------------------------------------------------------------------------------------------


def audit_figure(audit: Audit) -> Figure:
    """α against Σ min(p, q), and the law of emitted lengths against theory: one pair, and the n-gram pair."""
    from matplotlib.figure import Figure

    from specsim.plotting import figure_style

    pairs = [case for case in audit.cases if case.iid and case.alphas is not None]
    models = [case for case in audit.cases if not case.iid and case.alphas is not None]
    with figure_style():
        figure = Figure(figsize=(10.5, 3.6))
        axes = figure.subplots(1, 3)
        _draw_alphas(axes[0], pairs)
        for axis, cases in ((axes[1], pairs), (axes[2], models)):
            if cases:
                _draw_lengths(axis, cases[-1])
            else:
                axis.set_axis_off()
        figure.suptitle(headline(audit), x=0.01, ha="left", fontsize=11, fontweight="bold")
        return figure


def _draw_alphas(axis: Axes, cases: list[CaseResult]) -> None:
    """Measured minus theoretical α, with intervals: on the diagonal itself nothing could be seen."""
    labels = []
    for y, case in enumerate(cases):
        assert case.alphas is not None
        alpha = case.alphas.context
        tested = int(case.lengths @ np.minimum(np.arange(case.gamma + 1) + 1, case.gamma))
        error = 2.0 * np.sqrt(alpha * (1.0 - alpha) / tested)
        axis.errorbar(
            1e4 * (case.alphas.verified - alpha), y, xerr=1e4 * error, fmt="o", color=INK, capsize=2
        )
        labels.append(f"{case.case}, {alpha:.4g}")
    axis.axvline(0.0, color="0.3", linewidth=0.8)
    axis.set_yticks(range(len(cases)), labels)
    axis.invert_yaxis()
    axis.set_xlabel("(α measured - Σ min(p, q)) · 10⁴, ± 2 standard errors")
    axis.set_title("Acceptance, by case and Σ min(p, q)")


def _draw_lengths(axis: Axes, case: CaseResult) -> None:
    """The law of the number of emitted tokens: bars measured, markers the capped geometric law of each α."""
    assert case.alphas is not None
    emitted = np.arange(1, case.gamma + 2)
    measured = case.lengths / case.lengths.sum()
    axis.bar(emitted, measured, color="0.85", label=f"measured, mean {case.tokens_per_step:.3f}")
    chosen = (
        {"theory": case.alphas.context}
        if case.iid
        else {
            "i.i.d., α context": case.alphas.context,
            "i.i.d., α verified": case.alphas.verified,
            "i.i.d., α drafted": case.alphas.drafted,
        }
    )
    highest = float(measured.max())
    for marker, (name, alpha) in zip("oDv", chosen.items(), strict=False):
        law = accepted_law(alpha, case.gamma)
        highest = max(highest, float(law.max()))
        axis.plot(emitted, law, marker, label=f"{name}, mean {expected_tokens(alpha, case.gamma):.3f}")
    axis.set_xticks(emitted)
    axis.set_ylim(0.0, 1.45 * highest)  # room for the legend
    axis.set_xlabel("tokens emitted in a step")
    axis.set_ylabel("probability")
    axis.set_title(f"{case.case}: emitted length")
    axis.legend(loc="upper right")
