"""The result of a comparison of two servers, and how it is shown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specsim.core._provenance import Provenance
from specsim.core._tables import Piece, Table, as_dict
from specsim.core._verdicts import BUDGET, WANTED_TV_OF_SERVERS, Finding, Judged, Verdict
from specsim.core.stats import POWER
from specsim.engines._audit.results import SHOWN, TestResult, table_of_tests


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
    """The texts of one prompt at temperature 0.

    `place` is the first token, from 1, at which the servers differ, None if they do not. `repeated` says of
    each server whether its second text equals its first one."""

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

    made = "Comparison"
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
        kinds = {finding.kind for finding in self.findings}
        if kinds:
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
        return ["interrupted: the verdict so far"] if self.interrupted else []

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

    def remarks(self) -> tuple[str, str]:
        return self.one.sentence(), self.other.sentence()

    def size(self) -> str:
        text = (
            f"{len(self.prompts):,} prompts, up to {self.planned:,} texts of {self.length} tokens each from "
            f"both servers, compared by {self.form}. Seed {self.provenance.root}."
        )
        if self.tests:
            text += (
                f" {len(self.tests):,} tests; the probability of a false alarm is at most {self.budget:g}."
            )
        return text

    def meaning(self) -> str:
        points = 100.0 * self.detectable_tv
        equal = sum(one.place is None for one in self.greedy)
        if self.verdict is Verdict.BROKEN:
            return "A server's answers violate the protocol; see the findings."
        if self.verdict is Verdict.CHANGED:
            return "The two servers do not draw from the same distribution."
        if self.greedy:
            text = f"At temperature 0 the texts of {equal:,} of {len(self.greedy):,} prompts are equal."
            if equal < len(self.greedy):
                text += (
                    " Texts may differ by rounding alone; a temperature above 0 compares the distributions."
                )
            return text
        if self.detectable_tv >= 1.0:
            return "There are too few texts to find anything. Ask for more tokens."
        could = (
            f"A change that moves {points:.1f} percentage points of the first token's probability to other "
            f"tokens, on every prompt, would have been found with probability {POWER:g}"
        )
        if self.verdict is Verdict.SAME:
            return f"No difference was found. {could}."
        return f"Nothing was found. {could} (wanted: {100 * WANTED_TV_OF_SERVERS:g}). Ask for more tokens."

    def facts(self) -> dict[str, Any]:
        names = (f"{side.url}, {side.engine} {side.version}" for side in (self.one, self.other))
        return dict(zip(("first server", "second server"), names, strict=True)) | {"compared": self.form}
