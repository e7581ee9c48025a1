"""An audit as HTML: a page of its own for somebody who was not there, and tables for Jupyter."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.auditing._report import text as words
from specsim.auditing._report.figures import (
    Tested,
    deviation_figure,
    level_steps,
    main_tables,
    power_figure,
    worst_tables,
)
from specsim.auditing._results import Audit, CaseResult, Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["audit_page", "audit_to_html"]

PIT = "PIT bins are sixteen equal shares of the claimed law, along p/q, where tokens are too many to be counted one by one."
STYLE = Path(__file__).with_name("page.css")
#: Colours of pictures, and the page's names for them: so that pictures follow the reader's light or dark.
INK, GRID = "#1d2329", "#dde3e8"
COLORS = {
    INK: "--ink",
    GRID: "--line",
    "#2a5c8a": "--blue",
    "#d1793b": "--orange",
    "#4f8f5b": "--green",
    "#c9d3dc": "--band",
}
PICTURE: Any = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def audit_to_html(audit: Audit) -> str:
    """Tables for Jupyter."""
    plain = [line for case in audit.cases if not case.iid for line in words.iid_lines(case)]
    before = [*words.progress_lines(audit), *words.finding_lines(audit), *words.diagnosis(audit)]
    after = [
        *plain,
        words.proof_line(audit),
        words.test_line(audit),
        words.run_line(audit),
        words.legend(audit),
    ]
    tables = "".join(_table(rows) for rows in (words.evidence(audit), words.speed(audit)))
    return f"<h4>{html.escape(words.headline(audit))}</h4>{_paragraphs(before)}{tables}{_paragraphs(after)}"


def audit_page(audit: Audit) -> str:
    """One HTML file that needs nothing else: verdict, findings, evidence, pictures, how to run it again."""
    title = html.escape(words.headline(audit))
    parts = (_verdict, _findings, _deviations, _evidence, _power, _speed, _provenance)
    body = "\n".join(part for make in parts for part in make(audit))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


# --- sections --------------------------------------------------------------------------------------------


def _verdict(audit: Audit) -> Iterator[str]:
    tone = "none" if audit.exit_code == 3 else str(audit.verdict)
    name, _, verdict = words.headline(audit).rpartition(": ")
    if audit.interrupted and audit.cases:
        name, verdict = audit.verifier, words.headline(audit).removeprefix(f"{audit.verifier}: ")
    said = [words.meaning(audit), *words.diagnosis(audit)]
    yield f"<h1>Audit of {html.escape(name)}</h1>"
    yield f'<div class="verdict {tone}">'
    yield "".join(f'<p class="warning">{html.escape(line)}</p>' for line in words.progress_lines(audit))
    yield f'<p><strong class="tone">{html.escape(verdict)}</strong></p>{_paragraphs(said)}'
    yield f"<p><strong>What to do.</strong> {html.escape(words.remedy(audit))}</p></div>"
    yield _paragraphs([words.test_line(audit), words.proof_line(audit)])


def _findings(audit: Audit) -> Iterator[str]:
    accused = [case for case in audit.cases if case.findings]
    if not accused:
        return
    yield "<h2>Findings</h2>"
    yield "<p>One for each position of a case, the plainest first. TV is the total variation between the law that was "
    yield "observed and the one claimed, with an interval; e the evidence, as odds against chance.</p>"
    cases: dict[tuple[Finding, ...], list[CaseResult]] = {}
    for case in accused:
        cases.setdefault(case.findings, []).append(case)
    rows = "".join(_finding_rows(alike, findings) for findings, alike in cases.items())
    names = '<tr><th>case</th><th class="left">kind</th><th class="left">what was found</th></tr>'
    yield f'<div class="wide"><table>{names}{rows}</table></div>'


def _finding_rows(cases: list[CaseResult], findings: tuple[Finding, ...]) -> str:
    """What one case, or several alike, showed: the names once, beside all findings."""
    names = ", ".join(case.case for case in cases)
    under = f"<small>{html.escape(cases[0].purpose)}</small>" if len(cases) == 1 else ""
    first = f'<td class="name" rowspan="{len(findings)}">{html.escape(names)}{under}</td>'
    return "".join(
        f'<tr>{"" if i else first}<td class="left">{html.escape(finding.kind)}</td>'
        f'<td class="text">{html.escape(finding.text)}</td></tr>'
        for i, finding in enumerate(findings)
    )


def _deviations(audit: Audit) -> Iterator[str]:
    shown = worst_tables(audit)
    if not shown:
        return
    accused = shown[0].table.rejected
    yield f"<h2>{'Where it deviates' if accused else 'The most extreme table'}</h2>"
    said = (
        "For the worst table of each case that deviates, at most eight: the cells that are furthest off."
        if accused
        else "No table deviates; this one comes closest to it. Its cells that are furthest off:"
    )
    binned = any(tested.table.kind == "PIT" for tested in shown)
    yield _paragraphs([f"{said} {PIT}" if binned else said])
    alone = " class='alone'" if len(shown) == 1 else ""
    yield '<div class="figures">'
    for i, tested in enumerate(shown):
        caption = f"{tested.name}: {tested.table.n:,} tokens, e = 10^{tested.table.log10_e:.1f}"
        picture = _svg(lambda tested=tested: deviation_figure(tested), f"d{i}", caption)  # type: ignore[misc]
        yield f"<figure{alone}><figcaption>{html.escape(caption)}</figcaption>{picture}</figure>"
    yield "</div>"


def _evidence(audit: Audit) -> Iterator[str]:
    if not audit.cases:
        return
    yield "<h2>Evidence</h2>"
    purposes = {case.case: case.purpose for case in audit.cases}
    rows = words.evidence(audit)
    yield _table(rows, purposes)
    yield _glossary(rows, words.alarm(audit))


def _power(audit: Audit) -> Iterator[str]:
    shown = main_tables(audit)
    if not shown:
        return
    yield "<h2>What would have been found</h2>"
    yield _paragraphs(
        [
            words.power_line(audit),
            "The curves keep today's cells and tests. Cases with long rows get fewer steps than a level's own.",
        ]
    )
    caption = "Detectable TV against the number of steps"
    picture = _svg(lambda: power_figure(audit), "p", caption)
    yield f'<figure class="alone">{picture}</figure>'
    yield _table([_reach(audit, tested) for tested in shown])


def _reach(audit: Audit, tested: Tested) -> dict[str, str]:
    levels = {
        f"{level}, {words.short(steps)}": f"{tested.detectable(audit, steps):.4f}"
        for level, steps in level_steps(audit).items()
    }
    return {"detectable TV": tested.name, "reached": f"{tested.table.detectable_tv:.4f}", **levels}


def _speed(audit: Audit) -> Iterator[str]:
    rows = words.speed(audit)
    if not rows:
        return
    yield "<h2>Speed</h2>"
    yield _paragraphs(
        ["How much is accepted is never part of the verdict: a verifier may be exact and slow."]
    )
    yield _table(rows)
    yield _glossary(rows)
    lines = [line for case in audit.cases if not case.iid for line in words.iid_lines(case)]
    if lines:
        yield "<p>On rows that change with the context, what the textbook formula makes of each α:</p>"
        yield f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def _provenance(audit: Audit) -> Iterator[str]:
    run = audit.provenance
    yield "<h2>Run it again</h2>"
    yield f"<pre>{html.escape(words.replay(audit))}</pre>"
    yield "<p>The same seed draws the same steps, on any machine and any number of threads.</p>"
    libraries = ", ".join(f"{name} {version}" for name, version in run.libraries.items())
    yield _definitions(
        {
            "verifier": audit.verifier,
            "level": audit.level,
            "seed": str(run.root),
            "took": f"{run.seconds:.1f} s on {run.threads} thread{'' if run.threads == 1 else 's'}",
            "specsim": run.specsim,
            "Python": f"{run.python}, {libraries}",
            "machine": run.machine,
            "false alarms": f"probability at most {audit.budget:g} for the whole, split over {audit.tests:,} tests",
        }
    )


# --- pieces ----------------------------------------------------------------------------------------------


def _paragraphs(lines: Sequence[str | None]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)


def _table(rows: list[dict[str, str]], purposes: dict[str, str] | None = None) -> str:
    if not rows:
        return ""
    names = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        f"<tr>{''.join(_cell(*item, purposes or {}) for item in row.items())}</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{names}</tr>{body}</table></div>'


def _cell(column: str, text: str, purposes: dict[str, str]) -> str:
    if column == "verdict":
        return f'<td class="tone {text}">{html.escape(text)}</td>'
    under = f"<small>{html.escape(purposes[text])}</small>" if column == "case" and text in purposes else ""
    return f"<td>{html.escape(text)}{under}</td>"


def _glossary(rows: list[dict[str, str]], alarm: str = "") -> str:
    """A line for each column that needs one; `alarm` says from where on an e-value decides."""
    said = {name: words.COLUMNS[name] for name in rows[0] if name in words.COLUMNS}
    if alarm:
        said["max e"] = f"{said['max e']}, {alarm}"
    return _definitions(said)


def _definitions(said: dict[str, str]) -> str:
    return (
        f"<dl>{''.join(f'<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>' for k, v in said.items())}</dl>"
    )


def _svg(draw: Callable[[], Figure], prefix: str, label: str) -> str:
    """A picture to stand inside a page: no header, no metadata, ids of its own, colours by the page's names."""
    import matplotlib

    from specsim.core._plotting import figure_style

    buffer = io.StringIO()
    with figure_style(), matplotlib.rc_context(PICTURE):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        draw().savefig(buffer, format="svg", metadata=nothing)
    drawn = buffer.getvalue()
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", drawn[drawn.index("<svg") :])
    for color, name in COLORS.items():
        drawn = drawn.replace(color, f"var({name})")
    return drawn.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)
