"""The results of an audit of an engine and of a comparison of two servers, and how they are shown."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specsim.auditing._checks.two_samples import rejects
from specsim.core._files import read_table
from specsim.core._provenance import Provenance
from specsim.core._tables import NONE, Piece, Table, as_dict
from specsim.core._verdicts import BUDGET, ROWS, WANTED_TV, WANTED_TV_OF_SERVERS, Finding, Judged, Verdict
from specsim.core.stats import POWER, ChiSquare
from specsim.engines._planted.requests import Failure

#: Placeholder where no chi-square is computed.
NOT_TAKEN = ChiSquare(0.0, 0, 1.0)
#: Rows of a long table that are shown.
SHOWN = 60


@dataclass(frozen=True)
class TestResult:
    """One test of the texts: `n` tokens, or pairs of them, over `cells` cells.

    `log10_e` decides; `chi_square` is descriptive. `detectable_tv` is the total variation from the
    distribution, on these cells, that would have been found with probability .999. A test of `dependence` is
    of tokens that must be independent; `dependence_nats` is the evidence against it, given margins."""

    name: str
    n: int
    cells: int
    log10_e: float
    rejected: bool
    chi_square: ChiSquare = NOT_TAKEN
    detectable_tv: float = 1.0
    text: str = ""
    dependence: bool = False
    dependence_nats: float = 0.0

    @classmethod
    def of(cls, name: str, n: int, cells: int, log_e: float, level: float, **more: Any) -> "TestResult":
        """The result of an e-value, which rejects at a false-alarm probability of `level`."""
        return cls(name, n, cells, float(log_e / np.log(10.0)), rejects(log_e, level), **more)


def most_significant(kind: str, tests: Sequence[TestResult], more: str = "more") -> list[Finding]:
    """A finding of the rejected test with the most evidence, if there is one."""
    if not tests:
        return []
    worst = max(tests, key=lambda test: test.log10_e)
    others = f"; {len(tests) - 1:,} {more} reject" if len(tests) > 1 else ""
    return [Finding(kind, f"{worst.name}: {worst.text}, e = 10^{worst.log10_e:.0f}{others}")]


#: What verdicts mean.
MEANINGS: dict[str, str] = read_table("meanings")["engine"]
#: Failures that are the engine's fault whatever the network does.
AT_FAULT = {"garbage", "unmappable", "changed", "crash"}


def faults(failures: Sequence[Failure], requests: str = "requests") -> Iterator[Finding]:
    """A finding for each kind of failure that is the engine's fault."""
    for kind in sorted({one.kind for one in failures} & AT_FAULT):
        texts = [one.text for one in failures if one.kind == kind]
        yield Finding("contract", f"{len(texts):,} {requests} failed ({kind}), first {texts[0]}")


@dataclass(frozen=True)
class LogProbabilities:
    """The log-probabilities that an engine returned, compared with the distribution.

    `returned` of the emitted tokens have one and `wrong` of these differ by more than the tolerance;
    `largest` is the largest difference of a finite one, `zeros` how many are exactly 0 where the
    distribution's are not. `listed` and `listed_wrong` count the entries of lists of most probable tokens.
    `named` is the known mistake that gives the wrong ones."""

    returned: int
    wrong: int
    zeros: int
    largest: float
    listed: int
    listed_wrong: int
    example: str = ""
    named: str = ""


@dataclass(frozen=True)
class EngineEfficiency:
    """What speculation gained by the engine's counters, compared with the standard rule on sampled drafts.

    `alpha` is the mean of Σ min(p, q) over the places of the texts; `gamma` drafted tokens per step.
    `accepted_share` is accepted / drafted, `expected_share` what is expected of the standard rule on these
    texts with sampled drafts of that length; `ratio` compares the tokens per step."""

    drafted: int
    accepted: int
    alpha: float
    gamma: float | None
    accepted_share: float
    expected_share: float | None
    tokens_per_step: float | None
    expected_tokens_per_step: float | None

    @property
    def ratio(self) -> float | None:
        """Tokens per step, relative to the standard rule on sampled drafts; None where it is unknown."""
        if self.tokens_per_step is None or not self.expected_tokens_per_step:
            return None
        return self.tokens_per_step / self.expected_tokens_per_step

    def sentence(self) -> str:
        text = MEANINGS["speculation"].format(found=self)
        if self.expected_share is not None and self.gamma is not None:
            text += MEANINGS["expected"].format(found=self)
        if self.ratio is not None:
            text += f", efficiency {self.ratio:.2f}"
        return text + "."


#: Mistakes whose likelihoods differ by fewer nats cannot be distinguished.
CLOSE = 3.0


@dataclass(frozen=True)
class KnownMistake:
    """A mistake of `specsim.mistakes` that explains the texts better than the distribution.

    `alike` are mistakes that the texts cannot distinguish from it. `where` in a text and at which `share` of
    the places there it happens is fitted. `behind` is the distance in nats to the likeliest mistake,
    `gained` that of its likelihood to the distribution's. `fits` says whether a test at level 1e-4 accepts
    what it predicts."""

    name: str
    alike: tuple[str, ...]
    mechanism: str
    where: str
    share: float
    gained: float
    behind: float
    fits: bool

    @property
    def said(self) -> str:
        return f"{self.name} ({self.mechanism.removesuffix('.')})"


#: The part of an engine's answers that a finding is on, where it has another name.
PARTS = {"support": "texts", "deviation": "texts", "dependence": "texts", "contract": "protocol"}


@dataclass(frozen=True, eq=False)
class EngineAudit(Judged):
    """The result of `specsim.audit_engine`."""

    engine: str  #: the name of the engine, or the address of the server
    version: str
    described: dict[str, Any]  #: what the engine says of its model and settings
    planted: str  #: the digest of the planted checkpoint
    texts: int  #: that were judged
    tokens: int  #: emitted ones that were judged
    planned: int  #: tokens that were planned
    tests: tuple[TestResult, ...] = field(repr=False)
    findings: tuple[Finding, ...]  #: reasons for the verdict
    logprobs: LogProbabilities | None  #: None if the engine returned none
    efficiency: EngineEfficiency | None  #: None if the engine reports no counters
    notes: tuple[str, ...]  #: facts that are no part of the verdict
    diagnosis: tuple[KnownMistake, ...]  #: the likeliest known mistake first, where texts or drafts deviate
    tolerance: float  #: the largest allowed difference of log p
    order: str  #: the order of temperature and truncation that the texts are tested against
    failures: dict[str, int]  #: requests without a text, by kind of failure
    interrupted: bool
    seconds: float = field(compare=False)  #: the time of serving
    judging: float = field(compare=False)  #: the time of the tests
    provenance: Provenance
    budget: float = BUDGET  #: the probability of a false alarm, split over the tests
    wanted_tv: float = WANTED_TV  #: a deviation that has to be detectable for a verdict
    repeated: tuple[int, int] = (0, 0)  #: requests with a seed that gave the same text again, of how many

    remedies = "engine"
    kinds = ("contract", "support", "deviation", "dependence", "log-probabilities", "counters")
    derived = ("verdict", "verdicts", "exit_code", "detectable_tv")

    @property
    def detectable_tv(self) -> float:
        """The total variation, over all places, that would have been found with probability .999."""
        return next((test.detectable_tv for test in self.tests), 1.0)

    @property
    def verdict(self) -> Verdict:
        """biased if the texts or log-probabilities deviate, broken if answers violate the protocol,
        inconclusive if nothing was found and too little could have been, else consistent."""
        worst = Verdict.BROKEN, Verdict.BIASED, Verdict.INCONCLUSIVE, Verdict.CONSISTENT
        return next(one for one in worst if one in self.verdicts.values())

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdicts on texts, log-probabilities, counters and protocol, without what the engine lacks."""
        wrong = {PARTS.get(finding.kind, finding.kind) for finding in self.findings}
        given = {"texts": 1, "log-probabilities": self.logprobs, "counters": self.efficiency, "protocol": 1}
        bad = {"protocol": Verdict.BROKEN}
        good = {"texts": Verdict.INCONCLUSIVE} if self.detectable_tv > self.wanted_tv else {}
        return {
            part: bad.get(part, Verdict.BIASED) if part in wrong else good.get(part, Verdict.CONSISTENT)
            for part, there in given.items()
            if there is not None or part in wrong
        }

    @property
    def refused(self) -> bool:
        """Whether the engine does not support what was asked for: it refused all requests."""
        return not self.texts and set(self.failures) == {"refused"}

    def records(self) -> list[dict[str, Any]]:
        return [
            as_dict(test, without=("chi_square",)) | {"p_value": test.chi_square.p_value}
            for test in self.tests
        ]

    @property
    def subject(self) -> str:
        return self.engine

    def headline(self) -> str:
        each = ", ".join(f"{part} {verdict}" for part, verdict in self.verdicts.items())
        return f"{super().headline()} ({each}{'; interrupted: the verdict so far' * self.interrupted})"

    def warnings(self) -> Sequence[str]:
        """What the last request without a text was told."""
        return self.notes[-1:] if self.failures else ()

    def meaning(self) -> str:
        if not self.tokens and not self.findings:
            return "No text was received, so nothing was tested."
        wrong = " and ".join(part for part, verdict in self.verdicts.items() if verdict == Verdict.BIASED)
        right = "" if "texts" in wrong else "; its texts show no deviation from it"
        numbers = {"tv": self.detectable_tv, "wanted": self.wanted_tv, "power": POWER}
        return MEANINGS[self.verdict].format(wrong=wrong, right=right, **numbers)

    def evidence(self) -> Iterator[Piece]:
        tests = [*self.tests[:1], *(test for test in self.tests[1:] if test.n)]
        yield table_of_tests(tests, "tokens", p_values=True)

    def summary(self) -> Iterable[Piece]:
        """The tests that reject, if something was found."""
        found = table_of_tests([test for test in self.tests if test.rejected], "tokens", p_values=True)
        return found.cut(ROWS) if self.findings else super().summary()

    def legend(self) -> dict[str, str]:
        return legend_of_tests(self.tests, self.budget)

    def explanation(self) -> list[str]:
        speed = [] if self.efficiency is None else [self.efficiency.sentence()]
        return [*_diagnosis_lines(self), *speed]

    def remarks(self) -> Iterator[str]:
        logs = self.logprobs
        if logs is not None and not (logs.wrong or logs.listed_wrong):
            yield MEANINGS["log-probabilities"].format(logs=logs)
        yield from self.notes[: -1 if self.failures else None]

    def size(self) -> str:
        speed = f", {self.tokens / self.seconds:,.0f} tokens/s" if self.seconds > 0 else ""
        return MEANINGS["size"].format(audit=self, speed=speed, tests=len(self.tests))

    def facts(self) -> dict[str, Any]:
        told = {name: value for name, value in self.described.items() if value is not None}
        more = {"tolerance in log p": f"{self.tolerance:g}", "order of processing": self.order}
        return told | {"engine": self.engine, "version": self.version, "planted": self.planted} | more


def table_of_tests(tests: Sequence[TestResult], counted: str, *, p_values: bool) -> Table:
    """The first test, and those with the largest e-values."""
    rows = []
    for test in [*tests[:1], *sorted(tests[1:], key=lambda test: -test.log10_e)[: SHOWN - 1]]:
        value = f"{test.chi_square.p_value:.3g}" if test.chi_square.df else NONE
        tv = f"{test.detectable_tv:.4f}" if test.detectable_tv < 1.0 else NONE
        e = f"{round(test.log10_e, 1) + 0.0:.1f}"
        rows.append((test.name, f"{test.n:,}", test.cells, *[value] * p_values, e, tv))
    return Table(("test", counted, "cells", *["p"] * p_values, "log10 e", "detectable TV"), rows)


def legend_of_tests(tests: Sequence[TestResult], budget: float) -> dict[str, str]:
    """What the columns of `table_of_tests` mean."""
    values = {"power": POWER, "alarm": np.log10(max(len(tests), 1) / budget)}
    return {name: text.format(**values) for name, text in read_table("columns")["tests"].items()}


def _diagnosis_lines(audit: EngineAudit) -> Iterator[str]:
    logs, none = audit.logprobs, "No known mistake fits"
    if logs is None or logs.wrong - logs.zeros > logs.returned / 2:  # else they are mostly right
        none += "; the engine may serve other weights than this pair's"
    if not audit.diagnosis:
        if any(finding.kind == "deviation" for finding in audit.findings):
            yield f"{none}."
        return
    first, *others = audit.diagnosis
    share = "" if first.share == 1.0 else f", in a share of about {first.share:.2g}"
    said = f"{first.said}, {first.where}{share}."
    yield f"Closest known mistake: {said}" if first.fits else f"{none}. Nearest: {said}"
    close = [one.name for one in others if one.behind < CLOSE]
    if alike := [name for name in dict.fromkeys([*first.alike, *close]) if name != first.name]:
        yield f"It cannot be distinguished from {', '.join(alike)}."
    elif others:
        odds = others[0].behind / np.log(10.0)
        yield f"The next one, {others[0].name}, is less likely by a factor of 10^{odds:.0f}."


@dataclass(frozen=True)
class ServerSide:
    """One of two servers that are compared.

    `drafted` and `accepted` tokens are as the server reports them, None if it does not. `failures` counts the
    requests without a text by kind, and `failure` is what the last one said. `seconds` is of serving."""

    url: str
    engine: str
    version: str
    texts: int
    tokens: int
    drafted: int | None
    accepted: int | None
    failures: dict[str, int]
    failure: str
    seconds: float = field(compare=False)

    def sentence(self) -> str:
        text = f"{self.url} ({self.engine} {self.version}): {self.texts:,} texts, {self.tokens:,} tokens"
        if self.seconds > 0:
            text += f", {self.tokens / self.seconds:,.0f} tokens/s"
        if self.drafted and self.accepted is not None:
            share = self.accepted / self.drafted
            text += f"; {self.accepted:,} of {self.drafted:,} drafted tokens accepted ({share:.3f})"
        if self.failures:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.failures.items())
            text += f"; requests without a text: {kinds}, the last one: {self.failure}"
        return text + "."


@dataclass(frozen=True)
class GreedyTexts:
    """The texts of one prompt at temperature 0: `place` is the first token, from 1, at which the servers
    differ, if they do, and `repeated` says of each server whether its second text equals its first one."""

    prompt: int
    place: int | None
    repeated: tuple[bool, bool]


@dataclass(frozen=True, eq=False)
class ServerComparison(Judged):
    """The result of `compare_servers`."""

    one: ServerSide
    other: ServerSide
    prompts: tuple[str, ...]
    form: str  #: "token ids", "token strings" or "words of the text": the first that both servers return
    length: int  #: the most tokens of a text
    planned: int  #: texts of each prompt that each server was to be asked for
    #: Of the tables of all prompts together, then of each prompt; empty at temperature 0.
    tests: tuple[TestResult, ...] = field(repr=False)
    greedy: tuple[GreedyTexts, ...]  #: at temperature 0, an entry for each prompt
    findings: tuple[Finding, ...]  #: reasons for the verdict
    interrupted: bool
    provenance: Provenance
    budget: float = BUDGET  #: the probability of a false alarm, split over the tests

    made, remedies = "Comparison", "pair"
    kinds = ("contract", "deviation")
    derived = ("verdict", "exit_code", "detectable_tv")

    @property
    def detectable_tv(self) -> float:
        """The total variation between the two distributions of the first token, on every prompt, that would
        have been found with probability .999."""
        return self.tests[0].detectable_tv if self.tests else 1.0

    @property
    def verdict(self) -> Verdict:
        """broken if a server's answers violate the protocol, changed if the distributions differ,
        inconclusive if nothing was found and too little could have been, else same. At temperature 0 "texts
        differ" if any do."""
        if kinds := {finding.kind for finding in self.findings}:
            return Verdict.BROKEN if "contract" in kinds else Verdict.CHANGED
        if self.greedy:
            return Verdict.TEXTS_DIFFER if any(one.place for one in self.greedy) else Verdict.SAME
        return Verdict.INCONCLUSIVE if self.detectable_tv > WANTED_TV_OF_SERVERS else Verdict.SAME

    def records(self) -> list[dict[str, Any]]:
        if self.greedy:
            return [as_dict(one) for one in self.greedy]
        return [as_dict(test, without=("chi_square", "dependence", "dependence_nats")) for test in self.tests]

    @property
    def subject(self) -> str:
        return f"{self.one.url} against {self.other.url}"

    def warnings(self) -> list[str]:
        silent = [f"{one.url}, no text: {one.failure}" for one in (self.one, self.other) if one.failures]
        return ["interrupted: the verdict so far"] * self.interrupted + silent

    def evidence(self) -> Iterator[Piece]:
        if self.greedy:
            rows = [
                (one.prompt, one.place or "equal", *("yes" if same else "no" for same in one.repeated))
                for one in self.greedy
                if one.place or not all(one.repeated)
            ]
            yield Table(("prompt", "first different token", "first repeats", "second repeats"), rows[:SHOWN])
        elif self.tests:
            yield table_of_tests(self.tests, "texts", p_values=False)

    def legend(self) -> dict[str, str]:
        return legend_of_tests(self.tests, self.budget)

    def remarks(self) -> tuple[str, str]:
        return self.one.sentence(), self.other.sentence()

    def size(self) -> str:
        said = read_table("meanings")["servers"]
        tests = said["tests"].format(tests=len(self.tests), budget=self.budget) if self.tests else ""
        return said["size"].format(found=self, prompts=len(self.prompts)) + tests

    def meaning(self) -> str:
        said, equal = str(self.verdict), sum(one.place is None for one in self.greedy)
        if self.greedy and said == Verdict.SAME:
            said = "all equal"
        elif said == Verdict.INCONCLUSIVE and self.detectable_tv >= 1.0:
            said = "too few"
        numbers = {"points": 100.0 * self.detectable_tv, "wanted": 100 * WANTED_TV_OF_SERVERS, "power": POWER}
        return read_table("meanings")["servers"][said].format(equal=equal, of=len(self.greedy), **numbers)

    def facts(self) -> dict[str, Any]:
        names = (f"{side.url}, {side.engine} {side.version}" for side in (self.one, self.other))
        return dict(zip(("first server", "second server"), names, strict=True)) | {"compared": self.form}
