"""Judge the texts of an engine: tests, findings, and what speculation gained."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from specsim import mistakes
from specsim.core._json import printable
from specsim.core._provenance import Provenance
from specsim.core._types import Floats, Ints
from specsim.core._verdicts import BUDGET, WANTED_TV, Finding
from specsim.engines._audit import counters, logprobs, results, text_tests
from specsim.engines._audit.diagnosis import Fitted, diagnose, fit, mistakes_test
from specsim.engines._audit.known_mistakes import TRIED, known_mistakes
from specsim.engines._audit.places import Answered, Given, Masses, Places, by_context, mass_under, masses_of
from specsim.engines._audit.store import REPEATED
from specsim.engines._audit.timings import about_times
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.grammar import follow
from specsim.engines._planted.processing import CUTS, possible_orders, resolved
from specsim.engines._planted.requests import NEUTRAL, Completion, Failure, Request

#: Evidence in nats above which pairs of tokens are dependent.
DEPENDENT = 14.0
#: The drafted tokens of a step where an engine does not say.
LIKELY_DRAFTS = 4
#: Nats by which the texts without speculation must be less likely in an order that the engine does not use.
UNLIKELY = 30.0
#: Entries of rows for which known mistakes are tried: with a large vocabulary, at some of the places.
MOST_ENTRIES = 2**25
#: Tolerance of log p in float32: at least so much, and so much for each token that softmax sums over.
LEAST_TOLERANCE, TOKEN_TOLERANCE = 1e-5, 1e-8
Of = Callable[[Given], Floats]
#: The rows whose log-probabilities an engine may return.
ROWS: dict[str, Of] = {
    "processed": lambda given: given.p,
    "raw": lambda given: given.raw.p,
    "penalised": lambda given: given.changed(**{name: NEUTRAL[name] for name in CUTS}),
}
#: Those which it returns by mistake at some places.
MISTAKEN: dict[str, Sequence[Of]] = {
    "logprobs_of_draft": (lambda given: given.raw.q, lambda given: given.q),
    "logprobs_of_residual": (lambda given: given.raw.residual, lambda given: given.rows.residual),
    "logprobs_mixed": (*ROWS.values(),),
}


@dataclass(frozen=True)
class Run:
    """What was asked of an engine, what came back, the differences of its counters, and the seconds."""

    engine: str
    version: str
    described: Mapping[str, Any]
    planted: Planted
    requests: Sequence[Request]
    texts: Sequence[Completion]
    failures: Sequence[Failure]
    root: int
    counters: Mapping[str, int] | None = None
    interrupted: bool = False
    seconds: float = 0.0


def judge(
    run: Run,
    *,
    orders: Sequence[str] = (),
    tolerance: float | None = None,
    budget: float = BUDGET,
    wanted_tv: float = WANTED_TV,
) -> results.EngineAudit:
    """Judge a run, for every distribution within `tolerance` of the planted one in log p, by default
    float32's. The order of processing is the likeliest, of `orders` if given. Requests share one
    `Sampling`."""
    started = time.perf_counter()
    texts = _Texts(run, orders, tolerance, budget)
    tests, (logs, kind) = texts.tests(), texts.log_probabilities()
    impossible = counters.impossible(texts.every, texts.length)
    of_head = counters.compare_heads(run.planted, texts.asked, texts.every, texts.length)
    told = of_head.finding if of_head and impossible is None else impossible
    support = text_tests.support_finding(texts.places, texts.masses, texts.fresh, len(texts.law.sizes))
    wrong_logs = logprobs.finding(logs, texts.tolerance_of_logs)
    found = [*texts.contract(), support, *_deviations(tests), wrong_logs, told]
    findings = tuple(one for one in found if one is not None)
    nearest = of_head.diagnosis if of_head else []
    if any(finding.kind in ("deviation", "support") for finding in findings):
        nearest = [*diagnose(*texts.tried, texts.given), *nearest]
    length = None if run.planted.heads else texts.length
    of_texts = texts.every, texts.server, texts.places, texts.masses, length
    return results.EngineAudit(
        engine=printable(run.engine),
        version=printable(run.version),
        described={k: printable(v) if isinstance(v, str) else v for k, v in run.described.items()},
        planted=run.planted.digest,
        texts=len(texts.fresh),
        tokens=sum(len(one.tokens) for one in texts.fresh),
        planned=texts.planned,
        tests=tuple(tests),
        findings=findings,
        logprobs=logs,
        efficiency=None if impossible else counters.efficiency(*of_texts),
        notes=(*([of_head.note] if of_head else []), *texts.notes(kind)),
        diagnosis=_ranked(tests, nearest, run.requests[0].n > 1),
        tolerance=texts.tolerance,
        order=texts.named,
        failures=dict(Counter(failure.kind for failure in run.failures)),
        interrupted=run.interrupted,
        seconds=run.seconds,
        judging=time.perf_counter() - started,
        provenance=Provenance.record(run.root, 1, run.seconds),
        budget=budget,
        wanted_tv=wanted_tv,
        repeated=texts.repeated,
    )


class _Texts:
    """The texts of a run; tests are of the `fresh` ones, without the requests repeated at the end."""

    def __init__(self, run: Run, orders: Sequence[str], tolerance: float | None, budget: float):
        self.run, self.law, self.sampling = run, run.planted.target, run.requests[0].sampling
        usual = max(LEAST_TOLERANCE, TOKEN_TOLERANCE * self.law.vocab_size)
        self.tolerance = usual if tolerance is None else tolerance
        self.tolerance_of_logs = max(self.tolerance, LEAST_TOLERANCE)
        self.asked = asked = {request.number: request for request in run.requests}
        new = asked if len(asked) <= REPEATED else {n: asked[n] for n in sorted(asked)[:-REPEATED]}
        self.planned = sum(one.max_tokens * one.n for one in new.values())
        self.every = [_with_stop(run.planted, one, asked[one.number]) for one in run.texts]
        self.fresh = [one for one in self.every if one.number in new]
        gamma = run.described.get("gamma")
        self.server, self.about_server = counters.usable(self.every, run.counters, gamma)
        self.length = counters.draft_length(self.every, self.server, gamma)
        self.answered = Answered(run.planted, asked, self.fresh)
        self.padded, every = self.answered.padded(), self.answered.places()
        self.places = self._decided(every)
        self.undecided = len(every) - len(self.places)
        likelihoods = self._order_logs()
        # where the likeliest of several laws is tested, each has its share of the budget
        logs = {one: likelihoods.get(one, 0.0) for one in orders or likelihoods}
        self.budget = budget / len(logs)
        self.likely = [one for one, log in logs.items() if log > max(logs.values()) - UNLIKELY]
        # right log-probabilities tell orders apart that tokens do not; the first of equals
        self.order = self.likely[0]
        if len(self.likely) > 1:
            self.order = min(self.likely, key=lambda one: (self._wrong_logs(one), -logs[one]))
        self.named = self.order
        self.sampling, self.order = resolved(self.sampling, self.order)
        self._rng = np.random.default_rng(np.random.SeedSequence(run.root, spawn_key=(1,)))

    @cached_property
    def masses(self) -> Masses:
        return masses_of(self.places, lambda contexts: self.given(contexts).rows, self._rng)

    @cached_property
    def tried(self) -> tuple[Places, list[Fitted]]:
        """Where known mistakes are tried, and how they fit: at all places, or at a share of MOST_ENTRIES /
        entries asked for. The share is drawn: every k-th place might always be the same one of a page."""
        mass, size = self.masses.mass, self.law.vocab_size
        entries = sum(self.asked[one.number].max_tokens for one in self.fresh) * size
        some = self._rng.random(len(self.places)) * entries < MOST_ENTRIES
        few, speculates = self.places.chosen(some), self.run.described.get("speculative", True)
        drafts = round(self.length or LIKELY_DRAFTS) if speculates else 0
        known = known_mistakes(self.answered, few, self.sampling, self.order, drafts)
        return few, fit(few, mass[some], known, self.given, size)

    def given(self, contexts: Ints) -> Given:
        return Given(self.run.planted, self.sampling, self.order, contexts, self.padded)

    def _decided(self, places: Places) -> Places:
        """The places where no order cuts between tied tokens, to the tolerance: engines may keep either."""
        kept, sampling, orders = np.ones(len(places), bool), self.sampling, possible_orders(self.sampling)
        cuts = sampling.filled.acting & {*CUTS} - {"temperature"} or sampling.temperature == 0.0
        for contexts, at, row in by_context(places.contexts, self.law.vocab_size) if cuts else ():
            here = Given(self.run.planted, sampling, orders[0], contexts, self.padded)
            for order in orders:
                up, down = (here.nudged(order, by) > 0.0 for by in (self.tolerance, -self.tolerance))
                kept[at] &= (up == down).all(axis=1)[row]
        return places.chosen(kept, places.outside)

    def _order_logs(self) -> dict[str, float]:
        """The log-likelihood of the tokens under each order; 0 where there is only one."""
        orders, places = possible_orders(self.sampling), self.places
        logs = dict.fromkeys(orders, 0.0)
        for contexts, at, row in by_context(places.contexts, self.law.vocab_size) if len(orders) > 1 else ():
            here = Given(self.run.planted, self.sampling, orders[0], contexts, self.padded)
            for order in orders:
                mass = here.changed(order)[row, places.tokens[at]]
                logs[order] += float(np.log(np.maximum(mass, 1e-300)).sum())
        return {order: round(log, 6) for order, log in logs.items()}

    def tests(self) -> list[results.TestResult]:
        law, masses, (few, fitted) = self.law, self.masses, self.tried
        same, chains, next_to = _partners(self.asked, self.fresh)
        partners = [("same prompt, same place", same), ("neighbouring requests", next_to)]
        cells = list(text_tests.tables(self.places, masses, partners, self.sampling.stops))
        level = self.budget / (len(cells) + 4)
        each = None
        if not self.sampling.reads_texts:  # else a context comes once
            contexts = int(np.prod(law.sizes, dtype=float))
            each = text_tests.context_test(
                self.places, lambda read: self.given(read).p, contexts, level, self.tolerance
            )
        logs = np.zeros(len(self.fresh))
        with np.errstate(divide="ignore"):
            np.add.at(logs, self.places.text, np.log(masses.mass))
        return [
            *(one.test(level, self.tolerance) for one in cells),
            *([each] if each else []),
            mistakes_test(fitted, len(few), level, self.tolerance),
            text_tests.equal_texts_test(self.fresh, logs, same, level),
            text_tests.equal_tokens_test(self.places, masses, chains, level, self.tolerance),
        ]

    def log_probabilities(self) -> tuple[results.LogProbabilities | None, str]:
        """The comparison with processed, penalised or raw rows, whichever match best."""
        kinds = [*ROWS] if self.sampling.acting else ["processed"]
        found = {kind: one for kind in kinds if (one := self._compared(ROWS[kind]))}
        if not found:
            return None, ""
        kind = min(found, key=lambda one: _wrong(found[one]))
        best = self._compared(ROWS[kind], MISTAKEN) if found[kind].wrong else found[kind]
        return best, kind if len({*map(_wrong, found.values())}) > 1 else ""

    def _compared(self, of: Of, mistaken: Mapping[str, Sequence[Of]] = {}) -> results.LogProbabilities | None:
        def logs(rows: Of) -> Floats:
            with np.errstate(divide="ignore"):
                return np.log(mass_under(*asked, lambda contexts: rows(self.given(contexts)), width))

        asked, width = (self.places.contexts, self.places.tokens), self.law.vocab_size
        others = [(name, logs(one)) for name, rows in mistaken.items() for one in rows]
        more = lambda contexts: of(self.given(contexts)), self.tolerance_of_logs, others
        return logprobs.compare(self.places, self.fresh, logs(of), *more)

    def _wrong_logs(self, order: str) -> int:
        """How many log-probabilities are wrong if they are those of rows in this order, or of raw ones."""
        self.order = order
        return min((_wrong(one) for rows in ROWS.values() if (one := self._compared(rows))), default=0)

    def contract(self) -> Iterator[Finding]:
        """What violates the protocol: failures at fault, wrong lengths and ends, ids that do not exist."""
        yield from results.faults(self.run.failures)
        if outside := self.places.outside:
            yield Finding("contract", f"{outside:,} emitted tokens are not in the vocabulary")
        planted, own = self.run.planted, self.sampling
        asked = own.stop_ids, *map(planted.encode, own.stop), [planted.eos] if own.grammar else []
        ends, odd = {token for stop in asked for token in stop}, defaultdict(list)
        for one in self.fresh:
            length, most = len(one.tokens), self.asked[one.number].max_tokens
            said = f"request {one.number}: {length} of {most} tokens, {one.finish}"
            if length > most or (length < most and not ends):
                odd["have another number of tokens than max_tokens"].append(said)
            elif {*one.tokens[:-1]} & ends:
                odd["have tokens after what stops them"].append(said)
            elif one.finish == ("length" if length < most else "stop" if one.tokens[-1] not in ends else ""):
                odd["say that they ended otherwise"].append(said)
        for what, texts in odd.items():
            yield Finding("contract", f"{len(texts):,} texts {what}, the first of {texts[0]}")

    @property
    def repeated(self) -> tuple[int, int]:
        """How many of the requests that were made again with their seed have the same text, of how many."""
        at, numbers = {(one.number, one.index): one.tokens for one in self.run.texts}, sorted(self.asked)
        if len(numbers) <= REPEATED or self.asked[numbers[0]].seed is None:
            return 0, 0
        both = zip(numbers, numbers[-REPEATED:], strict=False)
        same = [at[one, 0] == at[two, 0] for one, two in both if {(one, 0), (two, 0)} <= at.keys()]
        return sum(same), len(same)

    def notes(self, kind: str) -> Iterator[str]:
        """Facts that are no part of the verdict."""
        asked = self.run.requests[0].sampling
        if len(possible_orders(asked)) > 1:
            yield f"Rows are processed in the order {self.named}."
        if asked.left_out:
            kinds = "neutral values, not the checkpoint's", "the checkpoint's values"
            values = ", ".join(f"{name} {value:g}" for name, value in asked.left_out.items())
            yield f"What requests leave out fits {kinds[self.sampling != asked]}: {values}."
        if kind:
            yield f"The returned log-probabilities are those of the {kind} rows."
        same, count = self.repeated
        if count:
            yield f"The same seed gave the same text in {same} of {count} repeated requests."
        if self.undecided:
            yield results.MEANINGS["undecided"].format(self.undecided)
        if self.about_server:
            yield self.about_server
        yield from about_times(self.every, self.run.counters)
        if failures := self.run.failures:
            last = failures[-1]
            yield f"{len(failures):,} requests have no text, the last one: {last.kind}, {last.text}"


def _with_stop(planted: Planted, text: Completion, request: Request) -> Completion:
    """`text` with the stop string or id, or the end of a grammar, that ended it, which most engines leave
    out: it was drawn."""
    asked, end = request.sampling, [planted.eos]
    stops = [*map(planted.encode, asked.stop), *([one] for one in asked.stop_ids)]
    whole = any(text.tokens[-len(stop) :] == tuple(stop) for stop in [*stops, end])
    if asked.grammar and (not stops or follow(asked.grammar, text.tokens) == end):
        stops = [end]
    if whole or len(stops) != 1 or len(text.tokens) >= request.max_tokens:
        return text
    (stop,) = stops
    logprobs = None if text.logprobs is None else (*text.logprobs, *(None for _ in stop))
    return replace(text, tokens=(*text.tokens, *stop), logprobs=logprobs)


def likely_orders(run: Run, tolerance: float | None = None) -> list[str]:
    """The orders of temperature and truncation that the texts of a run leave possible. The likelihood of any
    order over that of the engine's own is an e-value, so each of the others leaves that one out with
    probability at most e^-`UNLIKELY`."""
    return _Texts(run, (), tolerance, BUDGET).likely


def _partners(asked: Mapping[int, Request], texts: Sequence[Completion]) -> tuple[Ints, Ints, Ints]:
    """Pairs of texts: of one prompt, no text in two; each with its prompt's next; of successive requests."""
    alike = defaultdict(list)
    for i, one in enumerate(texts):
        alike[asked[one.number].prompt].append(i)
    same = [pair for some in alike.values() for pair in zip(some[::2], some[1::2], strict=False)]
    chains = [pair for some in alike.values() for pair in itertools.pairwise(some)]
    first = {one.number: i for i, one in enumerate(texts) if one.index == 0}
    next_to = [(i, first[n + 1]) for n, i in first.items() if n % 2 == 0 and n + 1 in first]
    kinds = [np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in (same, chains, next_to)]
    return kinds[0], kinds[1], kinds[2]


def _wrong(found: results.LogProbabilities) -> int:
    return found.wrong + found.listed_wrong


def _deviations(tests: Sequence[results.TestResult]) -> list[Finding]:
    """The most significant rejected test of the distribution, and of independence, by its own margins."""
    rejected = [test for test in tests if test.rejected]
    dependent = [test for test in rejected if test.dependence_nats > DEPENDENT]
    deviating = [test for test in rejected if test not in dependent]
    kinds = {"deviation": deviating, "dependence": dependent}
    return [one for kind, some in kinds.items() for one in results.most_significant(kind, some)]


def _ranked(
    tests: Sequence[results.TestResult], of_law: Sequence[results.KnownMistake], copies: bool
) -> tuple[results.KnownMistake, ...]:
    """The most significant dependence among the mistakes of the distribution; `copies`: of several texts."""
    found = list(of_law)
    if dependent := [test for test in tests if test.rejected and test.dependence_nats > DEPENDENT]:
        worst = max(dependent, key=lambda test: test.dependence_nats)
        name, *alike = next(names for start, names in TRIED["shared"].items() if worst.name.startswith(start))
        if name == "one_seed" and copies:
            name, *alike = "copies_alike", name
        says, gained = mistakes.get(name).mechanism, worst.dependence_nats
        found.append(results.KnownMistake(name, tuple(alike), says, "everywhere", 1.0, gained, 0.0, True))
    found.sort(key=lambda one: -one.gained)
    return tuple(replace(one, behind=found[0].gained - one.gained) for one in found)
