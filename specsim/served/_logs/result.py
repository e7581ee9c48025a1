"""The result of an audit of served responses, and the tests that it has."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.core._files import read_table
from specsim.core._tables import NONE, Piece, Table, as_dict
from specsim.core._verdicts import BUDGET, WANTED_TV, Finding, Judged, Verdict
from specsim.core.stats import POWER
from specsim.served._logs.texts import UNLOGGED

#: What verdicts mean, and how much was tested.
MEANINGS: dict[str, str] = read_table("meanings")["served"]
BINS = 16
#: Classes of places in a text (1, 2, 3 to 4, 5 to 8, …), and of positions in a step, the last open.
PLACES, POSITIONS = 16, 16
#: Probabilities of the rarest tokens that are counted.
RARE = (2.0**-8, 1e-3, 1e-5)
#: The false-alarm probability of each test: of all places, by place, by position, of rare tokens.
LEVEL = BUDGET / (1 + PLACES + POSITIONS + len(RARE))


class ServedTable(NamedTuple):
    """Counts in `BINS` equal bins, from probable tokens to rare ones.

    `unseen` tokens were not logged; tests put them where the counts are lowest. `log10_e` decides,
    `chi_square_p` is for information."""

    name: str
    counts: tuple[int, ...]
    unseen: int
    log10_e: float
    chi_square_p: float
    detectable_tv: float

    @property
    def rejected(self) -> bool:
        return self.log10_e >= -math.log10(LEVEL)


class RareTokens(NamedTuple):
    """How many emitted tokens are among the rarest of their row, which have `probability` together."""

    probability: float
    emitted: int
    places: int
    p_value: float

    @property
    def expected(self) -> float:
        return self.places * self.probability

    @property
    def rejected(self) -> bool:
        return self.p_value <= LEVEL


class Contradiction(NamedTuple):
    """Log-probabilities that cannot be true: how, at how many places, and the first text with one."""

    what: str
    places: int
    first: str


@dataclass(frozen=True, eq=False)
class ServedAudit(Judged):
    """The result of `audit_served`."""

    texts: int  #: those with places that were tested
    places: int  #: emitted tokens that were tested against logged rows
    logprobs: str  #: as given
    tolerance: float  #: as given
    tables: tuple[ServedTable, ...] = field(repr=False)  #: the whole text first
    rare: tuple[RareTokens, ...] = field(repr=False)
    impossible: int  #: emitted tokens of probability 0
    greedy: int  #: places of texts at temperature 0
    not_greedy: int  #: those of them without the most probable token
    wrong: tuple[Contradiction, ...]  #: contradictions between log-probabilities
    #: {reason: (texts, places)}; a single place counts as no text.
    untested: dict[str, tuple[int, int]] = field(repr=False)
    unreadable: int  #: lines
    named: tuple[str, ...] = field(repr=False)  #: the first unreadable lines, each with the reason
    root: int  #: the seed
    #: The probability of the emitted tokens by the lists of the place before, of their own, and of the next,
    #: which is 0 where it knows the token.
    nearby: tuple[float, float, float] = (0.0, 0.0, 0.0)

    kinds, remedies = ("log-probabilities", "support", "greedy", "deviation"), "served"

    @property
    def detectable_tv(self) -> float:
        """The total variation on the bins, over the whole text, that is detected with probability .999."""
        return self.tables[0].detectable_tv if self.tables else 1.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, of the kinds "log-probabilities", "support", "greedy" and "deviation"."""
        return tuple(Finding(kind, text) for kind, text in self._findings())

    @property
    def verdict(self) -> Verdict:
        """ "broken": the log-probabilities contradict themselves. "biased": the tokens do not follow them.
        "inconclusive": a total variation of .05 could have been missed. Else "consistent"."""
        kinds = {finding.kind for finding in self.findings}
        if "log-probabilities" in kinds:
            return Verdict.BROKEN
        if kinds:
            return Verdict.BIASED
        small = self.places > 0 and self.detectable_tv > WANTED_TV
        return Verdict.INCONCLUSIVE if small or not (self.places or self.greedy) else Verdict.CONSISTENT

    def to_dict(self) -> dict[str, Any]:
        findings = [[finding.kind, finding.text] for finding in self.findings]
        tests: dict[str, Any] = {"tables": self.records(), "rare": _tested(self.rare)}
        more: dict[str, Any] = {"findings": findings, **tests, "false_alarm": BUDGET, "level": LEVEL}
        return as_dict(self, "verdict", "findings", "detectable_tv", **more)

    def records(self) -> list[dict[str, Any]]:
        """The tables."""
        return _tested(self.tables)

    @property
    def subject(self) -> str:
        return f"{self.places:,} places of {self.texts:,} texts, {self.logprobs} log-probabilities"

    def meaning(self) -> str:
        return MEANINGS[self.verdict].format(tv=self.detectable_tv, power=POWER)

    def remedy(self) -> str:
        if self.verdict == Verdict.INCONCLUSIVE and not self.places and UNLOGGED in self.untested:
            return MEANINGS["unlogged"]
        before, own, after = self.nearby
        if self.verdict == Verdict.BIASED and max(before, after) > own:
            where = "before" if before > after else "after"
            return MEANINGS["nearby"].format(where=where, own=own, other=max(before, after))
        return super().remedy()

    def size(self) -> str:
        return MEANINGS["size"].format(alarm=-math.log10(LEVEL), level=LEVEL, budget=BUDGET, root=self.root)

    def evidence(self) -> Iterator[Piece]:
        if self.tables:
            columns = ("places", "tested", "unseen", "e", "chi-square p", "detectable TV")
            yield Table(columns, [_cells(one) for one in self.tables], bold=_rejected(self.tables))
            rows = [
                (f"{one.probability:.2g}", f"{one.emitted:,}", f"{one.expected:,.1f}", f"{one.p_value:.2g}")
                for one in self.rare
            ]
            yield Table(("rarest tokens", "emitted", "expected", "p"), rows, bold=_rejected(self.rare))
        if self.greedy:
            yield f"temperature 0: {self.not_greedy:,} of {self.greedy:,} places lack the most probable token"
        if self.untested:
            left = [(why, f"{texts:,}", f"{places:,}") for why, (texts, places) in self.untested.items()]
            yield Table(("not tested", "texts", "places"), left)
        if self.unreadable:
            yield f"{self.unreadable:,} lines could not be read; the first:"
            yield from (f"  {line}" for line in self.named)

    def _findings(self) -> Iterator[tuple[str, str]]:
        for one in self.wrong:
            yield "log-probabilities", f"{one.what}, at {one.places:,} places; the first in {one.first}"
        if self.impossible:
            yield "support", f"{self.impossible:,} emitted tokens have probability 0"
        if self.not_greedy:
            yield "greedy", f"{self.not_greedy:,} of {self.greedy:,} tokens are not the most probable ones"
        for table in self.tables:
            if table.rejected:
                yield "deviation", f"{table.name}: e = 10^{table.log10_e:.1f}; {_describe(table.counts)}"
        for rare in self.rare:
            if rare.rejected:
                text = f"{rare.emitted:,} of the rarest tokens, with probability {rare.probability:.2g}"
                yield "deviation", f"{text}, {rare.expected:.1f} expected; p = {rare.p_value:.1e}"


def _cells(table: ServedTable) -> tuple[str, ...]:
    counted = f"{sum(table.counts):,}", f"{table.unseen:,}" if table.unseen else NONE
    found = f"10^{table.log10_e:.1f}", f"{table.chi_square_p:.2g}", f"{table.detectable_tv:.4f}"
    return table.name, *counted, *found


def _tested(tests: Any) -> list[dict[str, Any]]:
    return [one._asdict() | {"rejected": one.rejected} for one in tests]


def _rejected(tests: Any) -> list[int]:
    return [i for i, one in enumerate(tests) if one.rejected]


def _describe(counts: tuple[int, ...]) -> str:
    """The deviation in words: its size, and its direction."""
    shares = np.array(counts) / sum(counts)
    tv = np.abs(shares - 1 / BINS).sum() / 2
    mean = (shares @ np.arange(BINS)) / (BINS - 1)
    direction = "probable tokens too often" if mean < 0.5 else "improbable tokens too often"
    return f"TV {tv:.4f} on the bins, {direction}"
