"""Judge the texts of an engine: tests, findings, and what speculation gained."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim import mistakes
from specsim.core._provenance import Provenance
from specsim.core._tables import printable
from specsim.core._types import Floats, Ints
from specsim.core._verdicts import BUDGET, Finding
from specsim.engines._audit import counters, logprobs
from specsim.engines._audit.diagnosis import Fitted, diagnose, fit, mistakes_test
from specsim.engines._audit.known_mistakes import known_mistakes
from specsim.engines._audit.places import (
    Given,
    Masses,
    Places,
    Rows,
    by_context,
    masses_of,
    masses_under,
    places_of,
)
from specsim.engines._audit.results import EngineAudit, KnownMistake, LogProbabilities, TestResult
from specsim.engines._audit.store import REPEATED
from specsim.engines._audit.text_tests import (
    context_test,
    equal_texts_test,
    support_finding,
    tables,
)
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.law import Law
from specsim.engines._planted.requests import Completion, Failure, Request, Sampling
from specsim.engines._planted.sampling import possible_orders

#: Failures that are the engine's fault whatever the network does.
AT_FAULT = {"garbage", "unmappable", "changed", "crash"}
#: Evidence in nats above which pairs of tokens are dependent.
DEPENDENT = 14.0
#: Nats by which the texts without speculation must be less likely in an order that the engine does not use.
UNLIKELY = 20.0
#: Entries of rows for which known mistakes are tried: with a large vocabulary, at some of the places.
MOST_ENTRIES = 2**25
#: Tolerance of log p in float32: at least so much, and so much for each token of the vocabulary, since
#: softmax sums over it.
LEAST_TOLERANCE, TOKEN_TOLERANCE = 1e-5, 1e-8


@dataclass(frozen=True)
class Run:
    """What was asked of an engine and what came back; `seconds` is the time of serving.

    `counters` has the differences of the engine's own counters, `gamma` the length of drafts where known."""

    engine: str
    version: str
    described: Mapping[str, Any]
    planted: Planted
    requests: Sequence[Request]
    texts: Sequence[Completion]
    failures: Sequence[Failure] = ()
    counters: Mapping[str, int] | None = None
    gamma: int | None = None
    root: int = 0
    interrupted: bool = False
    seconds: float = 0.0


def judge(run: Run, *, orders: Sequence[str] = (), tolerance: float | None = None) -> EngineAudit:
    """Judge a run, for every law within `tolerance` of the planted one in log p; by default that of float32.

    The order of temperature and truncation is the likeliest one, of `orders` if some are given. All requests
    must share one `Sampling`."""
    started = time.perf_counter()
    asked = {request.number: request for request in run.requests}
    fresh = asked if len(asked) <= REPEATED else {n: asked[n] for n in sorted(asked)[:-REPEATED]}
    law, sampling = run.planted.target, run.requests[0].sampling
    every = [_with_stop(run.planted, one, asked[one.number]) for one in run.texts]
    texts = [one for one in every if one.number in fresh]
    server, about_server = counters.usable(every, run.counters, run.gamma)
    length = counters.draft_length(every, server, run.gamma)
    places = places_of(law, asked, texts)
    if tolerance is None:
        tolerance = max(LEAST_TOLERANCE, TOKEN_TOLERANCE * law.vocab_size)
    likelihoods = _order_logs(run.planted, places, sampling)
    order = max(orders or likelihoods, key=lambda one: likelihoods.get(one, 0.0))  # the first of equals
    given = partial(Given, run.planted, sampling, order)

    def rows(contexts: Ints) -> Floats:
        return given(contexts).p

    rng = np.random.default_rng(np.random.SeedSequence(run.root, spawn_key=(1,)))
    masses = masses_of(places, lambda contexts: given(contexts).pair, rng)
    some = _some(len(places), sum(asked[one.number].max_tokens for one in texts) * law.vocab_size, rng)
    few = places.chosen(some)
    known = known_mistakes(run.planted, asked, texts, few, sampling, order)
    fitted = fit(few, masses.mass[some], known, given, law.vocab_size)
    tests = _tests(run.planted, places, masses, asked, texts, rows, fitted, len(few), tolerance)
    logs, kind = _log_probabilities(law, places, texts, masses, rows, sampling, tolerance)
    impossible = counters.impossible(every, length)
    findings = [
        *_contract(run, texts, asked, places),
        *(one for one in [support_finding(places, masses, lambda i: f"request {texts[i].number}")] if one),
        *_deviations(tests),
        *(one for one in [logprobs.finding(logs, max(tolerance, LEAST_TOLERANCE))] if one),
        *([impossible] if impossible else []),
    ]
    deviates = any(finding.kind in ("deviation", "support") for finding in findings)
    efficiency = None if impossible else counters.efficiency(every, server, places, masses, length)
    return EngineAudit(
        engine=printable(run.engine),
        version=printable(run.version),
        described={name: _printable(value) for name, value in run.described.items()},
        planted=run.planted.digest,
        texts=len(texts),
        tokens=sum(len(one.tokens) for one in texts),
        planned=sum(one.max_tokens * one.n for one in fresh.values()),
        tests=tuple(tests),
        findings=tuple(findings),
        logprobs=logs,
        efficiency=efficiency,
        notes=tuple(_notes(run, kind, order, asked, about_server)),
        diagnosis=_ranked(tests, diagnose(few, fitted, given) if deviates else (), run.requests[0].n > 1),
        tolerance=tolerance,
        order=order,
        failures=dict(Counter(failure.kind for failure in run.failures)),
        interrupted=run.interrupted,
        seconds=run.seconds,
        judging=time.perf_counter() - started,
        provenance=Provenance.record(run.root, 1, run.seconds),
    )


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def _some(n: int, entries: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The places at which known mistakes are tried: all, or a share of `MOST_ENTRIES` / `entries`.

    They are drawn, since every k-th one might always be the same place of a page, and `entries` is that of
    the tokens that were asked for: which ones are tried must not depend on their tokens."""
    return rng.random(n) * entries < MOST_ENTRIES


def _with_stop(planted: Planted, text: Completion, request: Request) -> Completion:
    """`text` with the stop string that ended it, which most engines leave out: its last token was drawn."""
    stops = request.sampling.stop
    if len(stops) != 1 or len(text.tokens) >= request.max_tokens:
        return text
    stop = planted.encode(stops[0])
    if text.tokens[-len(stop) :] == tuple(stop):
        return text
    logprobs = None if text.logprobs is None else (*text.logprobs, *(None for _ in stop))
    return replace(text, tokens=(*text.tokens, *stop), logprobs=logprobs)


def likely_orders(run: Run) -> list[str]:
    """The orders of temperature and truncation that the texts of a run leave possible.

    The likelihood of any order relative to that of the engine's own is an e-value, so the latter is left out
    with probability at most e^-`UNLIKELY` for each of the others."""
    asked = {request.number: request for request in run.requests}
    texts = [_with_stop(run.planted, one, asked[one.number]) for one in run.texts]
    found = _order_logs(run.planted, places_of(run.planted.target, asked, texts), run.requests[0].sampling)
    most = max(found.values())
    return [order for order, log in found.items() if log > most - UNLIKELY]


def _order_logs(planted: Planted, places: Places, sampling: Sampling) -> dict[str, float]:
    """The log-likelihood of the tokens under each order; 0 where there is only one."""
    orders = possible_orders(sampling)
    logs = dict.fromkeys(orders, 0.0)
    if len(orders) > 1:
        for contexts, at, row in by_context(places.contexts, planted.target.vocab_size):
            here = Given(planted, sampling, orders[0], contexts)
            for order in orders:
                mass = here.in_order(order)[row, places.tokens[at]]
                logs[order] += float(np.log(np.maximum(mass, 1e-300)).sum())
    return {order: round(log, 6) for order, log in logs.items()}


def _tests(
    planted: Planted,
    places: Places,
    masses: Masses,
    asked: Mapping[int, Request],
    texts: Sequence[Completion],
    rows: Rows,
    fitted: list[Fitted],
    fitted_places: int,
    tolerance: float,
) -> list[TestResult]:
    """All tests, which share the budget."""
    law = planted.target
    same, next_to = _partners(asked, texts)
    partners = [("same prompt, same place", same), ("neighbouring requests", next_to)]
    stops = bool(next(iter(asked.values())).sampling.stop)
    cells = list(tables(places, masses, partners, stops))
    level = BUDGET / (len(cells) + 3)
    contexts = law.words ** len(law.offsets) * max(1, len(law.openers))
    each = context_test(places, rows, contexts, level, tolerance)
    logs = np.zeros(len(texts))
    with np.errstate(divide="ignore"):
        np.add.at(logs, places.text, np.log(masses.mass))
    return [
        *(one.test(level, tolerance) for one in cells),
        *([each] if each else []),
        mistakes_test(fitted, fitted_places, level, tolerance),
        equal_texts_test(texts, logs, same, level),
    ]


def _partners(asked: Mapping[int, Request], texts: Sequence[Completion]) -> tuple[Ints, Ints]:
    """Pairs of texts of one prompt, and of requests that follow each other; no text is in two of a kind."""
    waiting: dict[Any, int] = {}
    same = []
    for i, one in enumerate(texts):
        prompt = asked[one.number].prompt
        if prompt in waiting:
            same.append((waiting.pop(prompt), i))
        else:
            waiting[prompt] = i
    first = {one.number: i for i, one in enumerate(texts) if one.index == 0}
    next_to = [
        (i, first[number + 1]) for number, i in first.items() if number % 2 == 0 and number + 1 in first
    ]
    return _pairs(same), _pairs(next_to)


def _pairs(found: Sequence[tuple[int, int]]) -> Ints:
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _log_probabilities(
    law: Law,
    places: Places,
    texts: Sequence[Completion],
    masses: Masses,
    rows: Rows,
    sampling: Sampling,
    tolerance: float,
) -> tuple[LogProbabilities | None, str]:
    """The log-probabilities against those of the processed rows or of the raw ones, whichever they fit."""

    def compared(own: Rows, mass: Floats) -> LogProbabilities | None:
        with np.errstate(divide="ignore"):
            return logprobs.compare(places, texts, np.log(mass), own, max(tolerance, LEAST_TOLERANCE))

    found = compared(rows, masses.mass)
    unprocessed = replace(sampling, stop=(), logprobs=0, penalties=False) == Sampling()
    if found is None or unprocessed:
        return found, ""
    raw = compared(law.rows, masses_under(places.contexts, places.tokens, law.rows, law.vocab_size))
    if raw is None or _wrong(raw) == _wrong(found):
        return found, ""
    return (found, "processed") if _wrong(found) < _wrong(raw) else (raw, "raw")


def _wrong(found: LogProbabilities) -> int:
    return found.wrong + found.listed_wrong


def _contract(
    run: Run, texts: Sequence[Completion], asked: Mapping[int, Request], places: Places
) -> list[Finding]:
    """What violates the protocol: failures at fault, texts of another length, ids that do not exist."""
    found = []
    for kind in sorted({failure.kind for failure in run.failures} & AT_FAULT):
        here = [failure for failure in run.failures if failure.kind == kind]
        found.append(Finding("contract", f"{len(here):,} requests failed ({kind}), first {here[0].text}"))
    if places.outside:
        found.append(Finding("contract", f"{places.outside:,} emitted tokens are not in the vocabulary"))
    wrong = [
        one
        for one in texts
        if len(one.tokens) > asked[one.number].max_tokens
        or (len(one.tokens) < asked[one.number].max_tokens and not asked[one.number].sampling.stop)
    ]
    if wrong:
        first = wrong[0]
        found.append(
            Finding(
                "contract",
                f"{len(wrong):,} texts have another number of tokens than max_tokens, first request "
                f"{first.number}: {len(first.tokens)} for {asked[first.number].max_tokens}",
            )
        )
    return found


def _deviations(tests: Sequence[TestResult]) -> list[Finding]:
    """The most significant rejected test of the law, and that of independence.

    Pairs of tokens that deviate from the law deviate too; they are dependent if they contradict their own
    margins."""
    found = []
    rejected = [test for test in tests if test.rejected]
    dependent = [test for test in rejected if test.dependence_nats > DEPENDENT]
    deviating = [test for test in rejected if test not in dependent]
    for kind, chosen in (("deviation", deviating), ("dependence", dependent)):
        if chosen:
            worst = max(chosen, key=lambda test: test.log10_e)
            more = f"; {len(chosen) - 1} more reject" if len(chosen) > 1 else ""
            found.append(Finding(kind, f"{worst.name}: {worst.text}, e = 10^{worst.log10_e:.0f}{more}"))
    return found


#: The mistakes that tests of dependence show, by the beginning of the names of these tests.
SHARED = {
    "equal texts": ("one_seed",),
    "same prompt": ("pairs_share_uniforms", "batch_shares_uniforms"),
    "neighbouring": ("pairs_share_uniforms", "batch_shares_uniforms"),
    "tokens": ("steps_share_uniforms",),
}


def _ranked(
    tests: Sequence[TestResult], of_law: Sequence[KnownMistake], copies: bool
) -> tuple[KnownMistake, ...]:
    """The most significant dependence among the nearest mistakes of the law, the likeliest first.

    `copies` says whether requests ask for several texts."""
    found = list(of_law)
    dependent = [test for test in tests if test.rejected and test.dependence_nats > DEPENDENT]
    if dependent:
        worst = max(dependent, key=lambda test: test.dependence_nats)
        name, *alike = next(names for start, names in SHARED.items() if worst.name.startswith(start))
        if name == "one_seed" and copies:
            name, *alike = "copies_alike", name
        says, gained = mistakes.get(name).mechanism, worst.dependence_nats
        found.append(KnownMistake(name, tuple(alike), says, "everywhere", 1.0, gained, 0.0, True))
    found.sort(key=lambda one: -one.gained)
    return tuple(replace(one, behind=found[0].gained - one.gained) for one in found)


def _notes(run: Run, kind: str, order: str, asked: Mapping[int, Request], about_server: str) -> list[str]:
    """Facts that are no part of the verdict."""
    notes = []
    sampling = run.requests[0].sampling
    if len(possible_orders(sampling)) > 1:
        notes.append(f"Rows are processed in the order {order}.")
    if kind:
        notes.append(f"The returned log-probabilities are those of the {kind} rows.")
    at = {(one.number, one.index): one.tokens for one in run.texts}
    numbers = sorted(asked)
    pairs = [
        (at[first, 0], at[again, 0])
        for first, again in zip(numbers, numbers[-REPEATED:], strict=False)
        if (first, 0) in at and (again, 0) in at and len(asked) > REPEATED
    ]
    if pairs and asked[numbers[0]].seed is not None:
        same = sum(first == again for first, again in pairs)
        notes.append(f"The same seed gave the same text in {same} of {len(pairs)} repeated requests.")
    if about_server:
        notes.append(about_server)
    if run.failures:
        last = run.failures[-1]
        notes.append(f"{len(run.failures):,} requests have no text, the last one: {last.kind}, {last.text}")
    return notes
