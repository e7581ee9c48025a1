"""The results of an audit: verdicts, findings, tables, and their form as JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from specsim.auditing._verifier.origin import Origin
from specsim.core._files import read_table
from specsim.core._provenance import Provenance
from specsim.core._tables import as_dict, plain
from specsim.core._types import Ints
from specsim.core._verdicts import BUDGET as BUDGET
from specsim.core._verdicts import WANTED_TV, Finding, Judged, Verdict
from specsim.core.stats import ChiSquare, detectable_tv, mean_tokens
from specsim.models import Tree
from specsim.simulation._counting import Example
from specsim.theory import expected_tokens

#: Total variation below which two laws differ only by rounding.
LEAST_TV = 1e-9
#: The version of the JSON of an audit. A key or value that is added changes the number after the dot, one
#: that is gone or has another meaning the one before it.
SCHEMA = "specsim-audit 1.5"


#: The `kernel` of a case of calls of changing shape, and its axis of rows and γ together.
CALLS, ROWS_AND_GAMMA = "calls", "rows and γ"
#: The kind of a very rare call without an answer in time, which is no failure.
UNANSWERED = "no answer"
#: The limit of a verifier that may give other tokens for the same rng.
IRREPRODUCIBLE = "reproducible=False"


@dataclass(frozen=True)
class TableResult:
    """A tested table of `n` draws over `cells` cells.

    `where` says what a table of a case of changing shape is about.

    `log10_e` decides; `chi_square` is descriptive. `detectable_tv` is the total variation that is rejected
    with probability .999; `certified_tv` an upper bound of it, for prefix tables of at most 64 cells. Tables
    of at most 64 cells have `labels` and the `observed` and `expected` counts; of cases of changing shape
    only those that reject."""

    kind: str
    position: int
    prefix: tuple[int, ...]
    n: int
    cells: int
    chi_square: ChiSquare
    log10_e: float
    detectable_tv: float
    certified_tv: float | None
    rejected: bool
    labels: tuple[str, ...] = ()
    observed: tuple[int, ...] = ()
    expected: tuple[float, ...] = ()
    where: str = ""


@dataclass(frozen=True)
class Alphas:
    """The three measured definitions of α, and the tokens per step of the i.i.d. formula for each."""

    context: float
    verified: float
    drafted: float
    gamma: int

    def formula(self) -> dict[str, float]:
        """(1 - α^{γ+1})/(1 - α) from each α, by the name of its definition."""
        named = {"context": self.context, "verified": self.verified, "drafted": self.drafted}
        return {name: float(expected_tokens(alpha, self.gamma)) for name, alpha in named.items()}


@dataclass(frozen=True)
class Efficiency:
    """Tokens per step relative to the standard rule on one chain, or the most that certain drafts allow."""

    ratio: float
    lower: float
    upper: float

    @property
    def wasteful(self) -> bool:
        """Whether the ratio is certainly below 1."""
        return self.upper < 1.0


@dataclass(frozen=True)
class CaseResult:
    """The result of one case of the battery.

    `tree` is the shape of the draft (None for a decoder), `positions` the most tokens of a step, `counts` the
    integer counts, `examples` the first impossible tokens, `planned` the steps of the level, `seconds` the
    time of the case; `pooled_log10_e` is the e-value of its tables together; `alphas` and `efficiency` are
    measured where they are defined. `wanted_tv` is that of the audit."""

    case: str
    purpose: str
    kernel: str = "rows"
    vocab_size: int = 0
    tree: Tree | None = None
    iid: bool = True
    positions: int = 1
    steps: int = 0
    planned: int = 0
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    tables: tuple[TableResult, ...] = field(default=(), repr=False)
    counts: dict[str, Ints] = field(
        default_factory=lambda: {"lengths": np.zeros(1, dtype=np.int64)}, repr=False
    )
    declared_tv: float = 0.0
    pooled_log10_e: float = 0.0
    alphas: Alphas | None = None
    efficiency: Efficiency | None = None
    examples: tuple[Example, ...] = field(default=(), repr=False)
    seconds: float = field(default=0.0, compare=False)
    wanted_tv: float = field(default=1.0, repr=False)

    @property
    def gamma(self) -> int:
        """The most tokens that a step can accept."""
        return self.positions - 1

    @property
    def broken(self) -> bool:
        """Whether the verifier broke its contract."""
        return any(finding.kind == "contract" for finding in self.findings)

    @property
    def lengths(self) -> Ints:
        """How many steps accepted k tokens, k from 0 to γ."""
        return self.counts["lengths"]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, tables included."""
        alphas, efficiency = self.alphas, self.efficiency
        without = ("tree", "iid", "positions", "counts", "examples", "seconds", "alphas", "efficiency")
        return as_dict(
            self,
            *("gamma", "verdict", "lengths", "tokens_per_step"),
            without=(*without, "wanted_tv"),
            parents=self.tree and self.tree.parents,
            draft_sampling=self.tree and self.tree.draft_sampling,
            alpha_context=alphas and alphas.context,
            alpha_verified=alphas and alphas.verified,
            alpha_drafted=alphas and alphas.drafted,
            iid_tokens_per_step=alphas and alphas.formula(),
            efficiency=efficiency and as_dict(efficiency, "wasteful"),
        )

    @property
    def verdict(self) -> Verdict:
        if self.broken:
            return Verdict.BROKEN
        if self.findings:
            return Verdict.BIASED
        if self.planned and not self.powerful:
            return Verdict.NO_POWER
        return Verdict.LOSSY if self.declared_tv > LEAST_TV else Verdict.CONSISTENT

    @property
    def powerful(self) -> bool:
        """Whether a total variation of `wanted_tv` was detectable at the first token."""
        return self.first_token is not None and self.first_token.detectable_tv <= self.wanted_tv

    @property
    def tokens_per_step(self) -> float:
        """Mean number of emitted tokens; 0 without steps."""
        return mean_tokens(self.lengths)[0] if self.lengths.any() else 0.0

    @property
    def smallest_p(self) -> float:
        """The smallest chi-square p-value of the tables (1 without tables)."""
        return min((table.chi_square.p_value for table in self.tables), default=1.0)

    @property
    def largest_log10_e(self) -> float:
        return max((self.pooled_log10_e, *(table.log10_e for table in self.tables))) if self.tables else 0.0

    @property
    def first_token(self) -> TableResult | None:
        """The table of the first position: all its tokens if there is one, else its PIT bins."""
        return first_token_of(self.tables)

    @property
    def last_position(self) -> TableResult | None:
        """The PIT bins of the last position that is tested; without bins, its first table."""
        pit = [table for table in self.tables if table.kind == "PIT"] or list(self.tables)
        return max(pit, key=lambda table: table.position, default=None)


def first_token_of(tables: Iterable[Any]) -> Any:
    """The table, planned or tested, of the first position: its full law, that of all tokens, or its bins."""
    here = {table.kind: table for table in reversed(list(tables)) if table.position == 0}
    return next((here[kind] for kind in ("prefix", "all", "PIT") if kind in here), None)


@dataclass(frozen=True)
class ProofSummary:
    """The largest deviation from the target's distribution, or the declared one; 0 if it is proved."""

    models: int
    largest_tv: float
    lossless: bool

    @property
    def as_claimed(self) -> bool:
        return self.largest_tv == 0.0


@dataclass(frozen=True, eq=False)
class Audit(Judged):
    """The result of `specsim.audit`. `budget` is the total false-alarm probability, split over `tests`.

    If `interrupted` by Ctrl-C, cases are missing or have fewer steps than planned. `planned` is the number of
    cases with tests, run or not; `limits` are those that the verifier declares, such as "vocab_size=2", and
    `left_out` the cases that it is not asked for this reason. `out_of_time` are the cases that got a few
    steps only, since a time limit is too short for all of them. `wanted_tv` is the total variation that had
    to be detectable. `origin` is that of a user's function, and `device` where its arrays were."""

    verifier: str
    level: str
    cases: tuple[CaseResult, ...]
    proof: ProofSummary | None
    budget: float
    tests: int
    interrupted: bool
    provenance: Provenance
    diagnosis: "Diagnosis | None" = None
    planned: int = 0
    limits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    out_of_time: tuple[str, ...] = ()
    wanted_tv: float = WANTED_TV
    origin: Origin | None = field(default=None, repr=False)
    device: str = "cpu"

    def __post_init__(self) -> None:
        cases = tuple(replace(case, wanted_tv=self.wanted_tv) for case in self.cases)
        object.__setattr__(self, "cases", cases)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the cases; a rule that the proof refutes is biased whatever the draws say.

        Where nothing was found it is inconclusive after an interrupt, if the wanted total variation was not
        detectable in more than half of the cases, those left out included, and if time or an error cut the
        power of calls of some shape that the level has."""
        found = {case.verdict for case in self.cases}
        if Verdict.BROKEN in found:
            return Verdict.BROKEN
        refuted = self.proof is not None and not self.proof.as_claimed
        if refuted or Verdict.BIASED in found:
            return Verdict.BIASED
        few = 2 * self.powerful < self.planned + len(self.left_out)
        if self.interrupted or few or any(self._cut_short(case) for case in self.unseen):
            return Verdict.INCONCLUSIVE
        return Verdict.LOSSY if self.declared_tv > LEAST_TV else Verdict.CONSISTENT

    @property
    def powerful(self) -> int:
        """In how many cases a total variation of `wanted_tv` was detectable at the first token."""
        return sum(case.powerful for case in self.cases)

    @property
    def unseen(self) -> list[CaseResult]:
        """The cases of calls of changing shape in which `wanted_tv` was not detectable."""
        return [case for case in self.cases if case.kernel == CALLS and not case.powerful]

    def _cut_short(self, case: CaseResult) -> bool:
        """Whether all the steps that the level has would have made `wanted_tv` detectable."""
        if case.first_token is None or not case.steps:
            return True
        tokens = case.first_token.n * case.planned / case.steps
        return detectable_tv(case.first_token.cells, tokens, self.budget / self.tests) <= self.wanted_tv

    @property
    def declared_tv(self) -> float:
        """The largest total variation of a first token's claimed distribution from the target's."""
        return max((case.declared_tv for case in self.cases), default=0.0)

    @property
    def dependent(self) -> bool:
        """Whether nothing was found but steps that depend on each other, or change between calls."""
        kinds = {finding.kind for case in self.cases for finding in case.findings}
        return self.verdict is Verdict.BIASED and kinds == {"dependent"}

    @property
    def edge_case(self) -> bool:
        """Whether nothing was found but impossible tokens: after a rare draft, or of an extreme uniform."""
        found = [case for case in self.cases if case.findings]
        kinds = {(case.planned, finding.kind) for case in found for finding in case.findings}
        return self.verdict is Verdict.BIASED and kinds == {(0, "support")}

    @property
    def strongest(self) -> tuple[float, str]:
        """The largest log10 e-value of all tables, and its case."""
        return max(((case.largest_log10_e, case.case) for case in self.cases), default=(0.0, ""))

    @property
    def needed_log10_e(self) -> float:
        """The log10 e-value from which a table rejects."""
        return float(np.log10(self.tests / self.budget))

    @property
    def wasteful(self) -> bool:
        """Whether a case certainly emits fewer tokens per step than the standard rule."""
        return any(case.efficiency is not None and case.efficiency.wasteful for case in self.cases)

    def records(self) -> list[dict[str, Any]]:
        """A row for each case, without its tables."""
        nested = ("parents", "findings", "lengths", "iid_tokens_per_step", "efficiency", "tables")
        return [
            {k: v for k, v in case.to_dict().items() if k not in nested}
            | {
                "findings": len(case.findings),
                "p_value": case.smallest_p,
                "log10_e": case.largest_log10_e,
                "detectable_tv": case.first_token and case.first_token.detectable_tv,
                "efficiency": case.efficiency and case.efficiency.ratio,
            }
            for case in self.cases
        ]

    @cached_property
    def steps(self) -> int:
        return sum(case.steps for case in self.cases)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON; their schema is data/audit.schema.json of the package.

        `findings` has those of all cases, each with the name of its case."""
        return as_dict(
            self,
            *("verdict", "exit_code", "declared_tv", "dependent", "edge_case", "wasteful", "steps"),
            *("powerful", "needed_log10_e"),
            schema=SCHEMA,
            proof=self.proof and as_dict(self.proof, "as_claimed"),
            findings=[{"case": case.case} | plain(one) for case in self.cases for one in case.findings],
        )


# The result of a diagnosis: the known mistakes that explain what was seen, and their odds.

#: Why there is no name where a time limit came first.
STOPPED = "The time limit stopped the diagnosis."
#: The posterior odds from which on a diagnosis gives a name.
ODDS = 20.0
#: The exponent of the largest odds that are printed.
MOST_ODDS = 12


@dataclass(frozen=True)
class Candidate:
    """A known mistake with its likeliest parameters, and its posterior probability.

    `lossy`: it is a built-in rule that is lossy by design, which the verifier does not declare."""

    name: str
    family: str
    mechanism: str
    threads: tuple[str, ...]
    probability: float
    lossy: bool = False

    def __str__(self) -> str:
        return f"lossy ({self.name})" if self.lossy else f"{self.name} ({self.family})"


@dataclass(frozen=True)
class Diagnosis:
    """Which known mistakes explain what was seen; `named` is empty where the answer is *unknown*.

    Together the named mistakes are at least `ODDS` times as probable as each alternative: an unknown mistake
    (`none`), or exact steps (`exact`). Each is within `ODDS` of the likeliest. `considered` are the likeliest
    mistakes, named or not. `reason` says why the answer is unknown, `evidence` is the most significant
    outcome, `place` one step with it; of an unknown one what the tests show, and where to look."""

    named: tuple[Candidate, ...] = ()
    considered: tuple[Candidate, ...] = ()
    none: float = 1.0
    exact: float = 0.0
    steps: int = 0
    reason: str = ""
    evidence: str = ""
    place: str = ""

    @property
    def known(self) -> bool:
        return bool(self.named)

    def lines(self) -> list[str]:
        """The diagnosis in words."""
        if not self.known:
            return [f"Diagnosis: unknown. {self.reason}", *filter(None, (self.evidence, self.place))]
        first, *others = self.named
        text = [f"Diagnosis: {first}. {first.mechanism}"]
        if first.lossy:
            text.append(read_table("meanings")["verifier"]["by design"].format(name=first.name))
        if first.threads:
            text.append(f"Reported in {', '.join(first.threads)}.")
        if others:
            rest = ", ".join(f"{one.name} ({one.probability:.2g})" for one in others)
            text.append(f"It may as well be {rest}; {first.name} has probability {first.probability:.2g}.")
        together = sum(one.probability for one in self.named)
        said = [f"{_odds(together, self.none)} against an unknown bug"]
        said.append(f"{_odds(together, self.exact)} against exact steps")
        for other in self.considered[len(self.named) :][:1]:
            if other.probability > 10.0**-MOST_ODDS:
                said.append(f"{_odds(together, other.probability)} against the next known bug, {other.name}")
        return [*text, f"Odds: {'; '.join(said)}. {HINT}", *filter(None, (self.evidence, self.place))]


#: What is measured of names, on mistakes by authors who had not seen the catalogue.
HINT = "A name is a hint: of 179 names of mistakes by independent authors 163 were right."


def _odds(one: float, other: float) -> str:
    """Posterior odds: a number, or from 1,000 on a power of ten."""
    if one >= other * 10.0**MOST_ODDS:
        return f"over 10^{MOST_ODDS} : 1"
    odds = one / other
    return f"{odds:.0f} : 1" if odds < 1000.0 else f"10^{np.log10(odds):.0f} : 1"
