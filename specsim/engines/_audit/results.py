"""The records of an audit of an engine."""

from dataclasses import dataclass, field
from typing import Any

from specsim.core._provenance import Provenance
from specsim.core._tables import as_dict
from specsim.core._verdicts import BUDGET, WANTED_TV, Finding, Judged, Verdict
from specsim.core.stats import ChiSquare

#: The chi-square of a test that is none.
NOT_TAKEN = ChiSquare(0.0, 0, 1.0)


@dataclass(frozen=True)
class TestResult:
    """One test of the texts: `n` tokens, or pairs of them, over `cells` cells.

    `log10_e` decides; `chi_square` is descriptive. `detectable_tv` is the total variation from the law, on
    these cells, that would have been found with probability .999. A test of `dependence` is of tokens that
    must be independent; `dependence_nats` is the evidence against that, given their margins."""

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


@dataclass(frozen=True)
class LogProbabilities:
    """The log-probabilities that an engine returned, compared with the law.

    `returned` of the emitted tokens have one and `wrong` of these differ by more than the tolerance;
    `largest` is the largest difference of a finite one, `zeros` how many are exactly 0 where the law's are
    not. `listed` and `listed_wrong` count the entries of lists of most probable tokens."""

    returned: int
    wrong: int
    zeros: int
    largest: float
    listed: int
    listed_wrong: int
    example: str = ""


@dataclass(frozen=True)
class EngineEfficiency:
    """What speculation gained, as the engine's counters tell, beside the standard rule on sampled drafts.

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


@dataclass(frozen=True)
class KnownMistake:
    """A known mistake around the kernel that explains the texts better than the law.

    `where` in a text and at which `share` of the places there it happens is fitted. `behind` is the
    distance in nats to the likeliest mistake, `gained` that of its likelihood to the law's. `fits` says
    whether a test at level 1e-4 accepts what it predicts."""

    name: str
    mechanism: str
    where: str
    share: float
    gained: float
    behind: float
    fits: bool


@dataclass(frozen=True, eq=False)
class EngineAudit(Judged):
    """The result of `specsim.audit_engine`.

    Attributes
    ----------
    engine : str
        Name of the engine, or address of the server.
    version : str
    described : dict
        What the engine says of its model and settings.
    planted : str
        Digest of the planted checkpoint.
    texts, tokens : int
        Texts and emitted tokens that were judged.
    planned : int
        Tokens that were planned.
    tests : tuple of TestResult
    findings : tuple of Finding
        Reasons for the verdict.
    logprobs : LogProbabilities or None
        None if the engine returned none.
    efficiency : EngineEfficiency or None
        None if the engine reports no counters.
    notes : tuple of str
        Facts that are no part of the verdict.
    diagnosis : tuple of KnownMistake
        The nearest known mistakes, the likeliest first; empty unless the texts deviate.
    tolerance : float
        Largest difference of log p of the engine's arithmetic that is allowed.
    order : str
        The order of temperature and truncation that the texts are tested against.
    budget : float
        Probability that a right engine is called biased, split over the tests.
    failures : dict
        Requests without a text, by kind of failure.
    interrupted : bool
    seconds : float
        Time of serving; `judging` is that of the tests.
    provenance : Provenance
    """

    engine: str
    version: str
    described: dict[str, Any]
    planted: str
    texts: int
    tokens: int
    planned: int
    tests: tuple[TestResult, ...] = field(repr=False)
    findings: tuple[Finding, ...]
    logprobs: LogProbabilities | None
    efficiency: EngineEfficiency | None
    notes: tuple[str, ...]
    diagnosis: tuple[KnownMistake, ...]
    tolerance: float
    order: str
    failures: dict[str, int]
    interrupted: bool
    seconds: float = field(compare=False)
    judging: float = field(compare=False)
    provenance: Provenance
    budget: float = BUDGET

    @property
    def detectable_tv(self) -> float:
        """The total variation, over all places, that would have been found with probability .999."""
        return next((test.detectable_tv for test in self.tests), 1.0)

    @property
    def verdict(self) -> Verdict:
        """biased if the texts or log-probabilities deviate, broken if answers violate the protocol,
        inconclusive if nothing was found and too little could have been, else consistent."""
        kinds = {finding.kind for finding in self.findings}
        if "contract" in kinds:
            return Verdict.BROKEN
        if kinds:
            return Verdict.BIASED
        return Verdict.INCONCLUSIVE if self.detectable_tv > WANTED_TV else Verdict.CONSISTENT

    @property
    def refused(self) -> bool:
        """Whether the engine does not support what was asked for: it refused all requests."""
        return not self.texts and set(self.failures) == {"refused"}

    def records(self) -> list[dict[str, Any]]:
        """A row for each test."""
        return [
            as_dict(test, without=("chi_square",)) | {"p_value": test.chi_square.p_value}
            for test in self.tests
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self, "verdict", "exit_code", "detectable_tv")
