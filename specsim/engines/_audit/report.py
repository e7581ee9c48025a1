"""The sentences and tables of a report on an engine."""

from collections.abc import Iterator

import numpy as np

from specsim.core._tables import NONE, Line, Piece, Table
from specsim.core._verdicts import WANTED_TV, Verdict
from specsim.core.stats import POWER
from specsim.engines._audit.results import EngineAudit, EngineEfficiency, TestResult

#: Rows of the table of tests that are shown.
SHOWN = 8


def headline(audit: EngineAudit) -> str:
    """The verdict in a line."""
    so_far = " (interrupted: the verdict so far)" if audit.interrupted else ""
    return f"{audit.engine}: {audit.verdict}{so_far}"


def meaning(audit: EngineAudit) -> str:
    """What the verdict means."""
    if not audit.tokens and not audit.findings:
        return "No text was received, so nothing was tested."
    return {
        Verdict.CONSISTENT: "No deviation from the planted law was found. A total variation of "
        f"{audit.detectable_tv:.4f} would have been found with probability {POWER:g}.",
        Verdict.BIASED: "What the engine returns does not follow the law of its weights.",
        Verdict.BROKEN: "The engine's answers violate the protocol, see the findings.",
        Verdict.INCONCLUSIVE: "Nothing was found, but only a total variation above "
        f"{audit.detectable_tv:.3f} would have been (wanted: {WANTED_TV:g}). Ask for more tokens.",
    }[audit.verdict]


def engine_parts(audit: EngineAudit) -> Iterator[Piece]:
    """An audit of an engine for the terminal and for Jupyter, the verdict last."""
    yield Table(
        ("test", "tokens", "cells", "p", "log10 e", "detectable TV"),
        [
            (
                test.name,
                f"{test.n:,}",
                test.cells,
                f"{test.chi_square.p_value:.3g}" if test.chi_square.df else NONE,
                f"{test.log10_e:.1f}",
                f"{test.detectable_tv:.4f}" if test.detectable_tv < 1.0 else NONE,
            )
            for test in _shown(audit)
        ],
    )
    yield from (Line(f"{finding.kind}: {finding.text}", "red") for finding in audit.findings)
    yield from diagnosis_lines(audit)
    if audit.logprobs is not None and not (audit.logprobs.wrong or audit.logprobs.listed_wrong):
        yield (
            f"Log-probabilities: {audit.logprobs.returned:,} of emitted tokens and {audit.logprobs.listed:,} "
            f"entries of lists agree with the law, largest difference {audit.logprobs.largest:.2g}."
        )
    if audit.efficiency is not None:
        yield efficiency_line(audit.efficiency)
    yield from audit.notes
    yield Line(test_line(audit), "dim")
    yield Line(meaning(audit), "")
    yield Line(headline(audit), "bold")


def _shown(audit: EngineAudit) -> list[TestResult]:
    """The first test, and those with the largest e-values."""
    first, rest = audit.tests[:1], [test for test in audit.tests[1:] if test.n]
    return [*first, *sorted(rest, key=lambda test: -test.log10_e)[: SHOWN - 1]]


def diagnosis_lines(audit: EngineAudit) -> Iterator[str]:
    """The nearest known mistakes."""
    if not audit.diagnosis:
        if any(finding.kind == "deviation" for finding in audit.findings):
            yield f"No known mistake fits{_other_weights(audit)}."
        return
    first, *others = audit.diagnosis
    share = "" if first.share == 1.0 else f", in a share of about {first.share:.2g}"
    where = f"{first.where}{share}"
    if first.fits:
        yield f"Closest known mistake: {first.name} ({first.mechanism}), {where}."
    else:
        yield (
            f"No known mistake fits{_other_weights(audit)}. Nearest: {first.name} ({first.mechanism}), "
            f"{where}."
        )
    close = [one for one in others if one.behind < 3.0]
    if close:
        yield f"It cannot be distinguished from {', '.join(one.name for one in close)}."
    elif others:
        odds = others[0].behind / np.log(10.0)
        yield f"The next one, {others[0].name}, is less likely by a factor of 10^{odds:.0f}."


def _other_weights(audit: EngineAudit) -> str:
    """What explains texts and log-probabilities that are both wrong; "" if the latter are mostly right."""
    logs = audit.logprobs
    if logs is not None and logs.wrong - logs.zeros <= logs.returned / 2:
        return ""
    return "; the engine may hold other weights than those of this pair"


def efficiency_line(found: EngineEfficiency) -> str:
    """What speculation gained."""
    text = (
        f"Speculation: {found.accepted:,} of {found.drafted:,} drafted tokens accepted "
        f"({found.accepted_share:.3f})"
    )
    if found.expected_share is not None and found.gamma is not None:
        text += (
            f"; the standard rule on sampled drafts of length {found.gamma:.1f} would accept "
            f"{found.expected_share:.3f} (α = {found.alpha:.3f})"
        )
    if found.ratio is not None:
        text += f", efficiency {found.ratio:.2f}"
    return text + "."


def test_line(audit: EngineAudit) -> str:
    """The size of the run, and the false-alarm rate."""
    speed = f", {audit.tokens / audit.seconds:,.0f} tokens/s" if audit.seconds > 0 else ""
    return (
        f"{audit.texts:,} texts, {audit.tokens:,} of {audit.planned:,} tokens in {audit.seconds:.1f} s"
        f"{speed}; judged in {audit.judging:.1f} s by {len(audit.tests)} tests, tolerance "
        f"{audit.tolerance:g} in log p, seed {audit.provenance.root}. A right engine is called biased with "
        f"probability at most {audit.budget:g}."
    )
