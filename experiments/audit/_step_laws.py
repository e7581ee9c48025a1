"""The distribution of a step in the cases of an audit, its deviation from the claim in each table, and the
steps that detect it.

Where all drafts of a case can be enumerated, the distribution of what a step emits is known exactly, and with
it the distribution of every table that the audit tests. The *distance* of a table is the chi-square distance
Σ(π - P)²/P of its cells, π their distribution given that the table is visited and P the claimed one, times
the probability of a visit: non-centrality per step. From it follows how many steps reject with probability
.999 at the audit's level (`specsim.stats.needed_draws`). A step that emits an impossible token, or breaks the
contract, is *fatal*: the audit rejects at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import Floats
from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import Case, DecoderCase
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import PIT_BINS, TAIL_EDGES, AuditTally, table_positions
from specsim.auditing._checks.decoder import Processing, plan_decoder_tables
from specsim.auditing._checks.subjects import Subject, function_subject
from specsim.auditing._checks.tables import Table, interim_looks, plan_tables
from specsim.auditing._results.audit import BUDGET
from specsim.auditing._schedule import CaseRun, run_case
from specsim.auditing._verifier.local import Local
from specsim.core.stats import POWER
from specsim.mistakes import Mistake
from specsim.mistakes._decoding import Decoder, sequence_law
from specsim.models import Model
from specsim.rules import Rule
from specsim.stats import needed_draws
from specsim.theory import step_law
from specsim.theory._enumeration import MAX_DRAFTS

Tokens = tuple[int, ...]
#: Distances of rounding, not of a distribution.
LEAST_DISTANCE = 1e-24


# --- distributions ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A case of the battery in which the distribution of a step is known: it emits emitted[k] with
    probability law[k].

    `fatal[k]` says that the audit then rejects at once: an impossible token, or a breach of the contract. Of
    the first `counted` positions every prefix is counted. `bins` holds, where they are known, the expected
    counts of the tables "pit" and "tail" in one step.
    """

    case: str
    vocab_size: int
    positions: int
    counted: int
    emitted: tuple[Tokens, ...]
    law: Floats
    fatal: NDArray[np.bool_]
    bins: Mapping[str, Floats] = field(default_factory=dict)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each outcome has."""
        return np.array([len(tokens) for tokens in self.emitted])

    def prefixes(self, weights: NDArray[Any]) -> NDArray[Any]:
        """The array "prefixes" of a tally [cells, m], each outcome k counted weights[k] [m] times."""
        size = sum(self.vocab_size ** (i + 1) for i in range(self.counted))
        counts = np.zeros((size, weights.shape[1]), dtype=weights.dtype)
        for longer, cells in self._cells:
            np.add.at(counts, cells, weights[longer])
        return counts

    @cached_property
    def _cells(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each counted position the outcomes that get there, and where their prefixes stand."""
        found, start = [], 0
        for i in range(self.counted):
            longer = np.flatnonzero(self.lengths > i)
            prefixes = np.array([self.emitted[k][: i + 1] for k in longer], dtype=np.int64).reshape(-1, i + 1)
            found.append((longer, start + prefixes @ self.vocab_size ** np.arange(i, -1, -1)))
            start += self.vocab_size ** (i + 1)
        return found


def known_steps(owner: Rule | Mistake, case: Case, claim: Claim) -> Known | None:
    """The steps of a rule or a mistake in `case`, held to `claim`; None where there are too many drafts to
    enumerate."""
    rotated = case.rotated or case.uneven or case.certain
    if owner.law is None or rotated or len(case.contexts) > 1 or _drafts(case) > MAX_DRAFTS:
        return None
    context = tuple(int(token) for token in case.contexts[0])
    found: dict[Tokens, Fraction] = step_law(owner, case.target, case.draft, case.tree, context)  # type: ignore[arg-type]
    size, law = case.target.vocab_size, _as_law(found)
    rows = {
        prefix: claim.row(
            _row(case.target, context + prefix), _row(case.draft, context + prefix), len(prefix)
        )
        for prefix in {tokens[:i] for tokens in found for i in range(len(tokens))}
    }
    fatal = [any(rows[tokens[:i]][x] == 0.0 for i, x in enumerate(tokens)) for tokens in found]
    bins = _expected_bins(AuditTally(case, claim), found, law) if case.is_pair else {}
    emitted = tuple(found)
    return Known(case.name, size, case.gamma + 1, table_positions(case), emitted, law, np.array(fatal), bins)


def known_decoder(mistake: Mistake, case: DecoderCase) -> Known:
    """Whole sequences of a decoder of the catalogue."""
    found = sequence_law(mistake, case.target, case.draft, case.prompts[0], case.max_new_tokens, case.eos)
    fatal = [_breaks_contract(tokens, case) or _impossible(tokens, case) for tokens in found]
    kept, length, size = tuple(found), case.max_new_tokens, case.target.vocab_size
    return Known(case.name, size, length, table_positions(case), kept, _as_law(found), np.array(fatal))


def known_law(mistake: Mistake, case: Any) -> Known | None:
    """The distribution of a mistake in a case of any kind; None where it is not enumerated."""
    if isinstance(case, DecoderCase):
        one = mistake.decode
        enumerable = isinstance(one, Decoder) and one.enumerable and len(case.prompts) == 1
        return known_decoder(mistake, case) if enumerable else None
    return known_steps(mistake, case, Claim(None, case.tree)) if isinstance(case, Case) else None


def subject_of(mistake: Mistake) -> Subject:
    """A mistake as the audit takes it."""
    return function_subject(
        Local(mistake.function, Declared(decoder=mistake.decode is not None)), mistake.name
    )


def tables_of(case: Case | DecoderCase, claim: Claim | None, steps: int) -> list[Table]:
    """What the audit tests in `steps` steps; `claim` is None for a decoder, which claims to be lossless."""
    if isinstance(case, DecoderCase):
        return plan_decoder_tables(case, Processing(), steps)
    assert claim is not None
    return plan_tables(case, claim, steps)


def _as_law(found: Mapping[Tokens, Any]) -> Floats:
    law = np.array([float(mass) for mass in found.values()]).clip(0.0)
    return law / law.sum()


def _drafts(case: Case) -> float:
    """How many drafts have a positive probability, at most."""
    possible = int((case.draft.rows(case.contexts) > 0).sum()) if case.is_pair else case.target.vocab_size
    return float(possible) ** case.tree.size


def _row(model: Model, history: Tokens) -> Floats:
    return np.asarray(model.row(history[len(history) - model.order :]), dtype=np.float64)


def _breaks_contract(tokens: Tokens, case: DecoderCase) -> bool:
    ended = case.eos is not None and tokens[-1] == case.eos
    too_short = len(tokens) < case.max_new_tokens and not ended
    return too_short or len(tokens) > case.max_new_tokens or case.eos in tokens[:-1]


def _impossible(tokens: Tokens, case: DecoderCase) -> bool:
    return any(float(_row(case.target, case.prompts[0] + tokens[:i])[x]) == 0.0 for i, x in enumerate(tokens))


def _expected_bins(tally: AuditTally, emitted: Iterable[Tokens], law: Floats) -> dict[str, Floats]:
    """The expected counts of a pair's PIT and tail bins in one step."""
    rows, by_ratio, by_p = (part[:, 0] for part in tally.cdfs)
    visits = np.zeros_like(rows)
    for tokens, mass in zip(emitted, law, strict=True):
        visits[np.arange(len(tokens)), tokens] += mass
    density = np.divide(visits, rows, out=np.zeros_like(rows), where=rows > 0)
    edges = {"pit": np.linspace(0.0, 1.0, PIT_BINS + 1), "tail": np.concatenate([[0.0], TAIL_EDGES])}
    starts = {"pit": by_ratio, "tail": by_p}
    return {
        name: np.array(
            [
                weight @ _overlaps(start, start + row, edges[name])
                for weight, start, row in zip(density, starts[name], rows, strict=True)
            ]
        )
        for name in edges
    }


def _overlaps(start: Floats, end: Floats, edges: Floats) -> Floats:
    """The length [V, bins] that each interval [start, end) has in common with each bin."""
    low, high = edges[:-1], edges[1:]
    return np.maximum(np.minimum(end[:, None], high) - np.maximum(start[:, None], low), 0.0)


# --- distances -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deviation:
    """How far a case is from what is claimed, and where most.

    `kind`, `position` and `prefix` name the table of the largest `distance`, chi-square per step; `total` is
    the sum over all tables (bins count tokens a second time). `tv` is the largest total variation of a table,
    impossible tokens included, times the probability of a visit. `fatal` is the probability of a fatal step.
    `needed` steps reject with probability `specsim.core.stats.POWER`; infinite if none do.
    """

    case: str
    kind: str
    position: int
    prefix: Tokens
    tv: float
    distance: float
    total: float
    fatal: float
    needed: float


def deviation(known: Known, tables: Sequence[Table], level: float) -> Deviation:
    """What the `tables` of a case would show, each tested at false-alarm probability `level`."""
    rates = {"prefixes": known.prefixes(known.law[:, None]), **known.bins}
    shown = [_shown(table, rates[table.source].reshape(-1)) for table in tables if table.source in rates]
    best = max(shown, key=lambda one: one.distance, default=None)
    fatal = float(known.law[known.fatal].sum())
    named = best is not None and best.distance > 0.0
    return Deviation(
        case=known.case,
        kind=best.table.kind if best and named else "",
        position=best.table.position if best and named else 0,
        prefix=best.table.prefix if best and named else (),
        tv=max((one.tv for one in shown), default=0.0),
        distance=best.distance if best else 0.0,
        total=sum(one.distance for one in shown),
        fatal=fatal,
        needed=min(_until_rejected(best, level), _until_once(fatal)),
    )


@dataclass(frozen=True)
class _Shown:
    """What one table shows of a distribution: visits in a step, distance and total variation times those."""

    table: Table
    reach: float
    distance: float
    tv: float


def _shown(table: Table, flat: Floats) -> _Shown:
    """Of the expected counts `flat` in one step, the array of a tally."""
    visits = table.merged(flat)
    reach = float(visits.sum())
    impossible = float(flat[table.start : table.start + len(table.cells)][table.cells < 0].sum())
    tv = (float(np.abs(visits - (reach + impossible) * table.law).sum()) + impossible) / 2.0
    distance = reach * float(((visits / reach - table.law) ** 2 / table.law).sum()) if reach else 0.0
    if distance < LEAST_DISTANCE:
        return _Shown(table, reach, 0.0, impossible)
    return _Shown(table, reach, distance, tv)


def _until_rejected(best: _Shown | None, level: float) -> float:
    if best is None or best.distance == 0.0:
        return np.inf
    return needed_draws(best.distance / best.reach, len(best.table.law), level) / best.reach


def _until_once(probability: float) -> float:
    """Steps in which something of that probability happens at least once, with probability `POWER`."""
    if probability <= 0.0:
        return np.inf
    if probability >= 1.0:
        return 1.0
    return float(np.log1p(-POWER) / np.log1p(-probability))


# --- runs ------------------------------------------------------------------------------------------------


def alarm(subject: Subject, level: str, budget: float = BUDGET) -> float:
    """The false-alarm probability of each test of a whole audit."""
    return budget / sum(subject.plan(i, level).tests for i in range(len(subject.cases)))


def rejections(
    subject: Subject, index: int, level: str, alarm: float, seeds: Iterable[int]
) -> list[int | None]:
    """For each seed, after how many steps of case `index` an audit at `level` rejected; None where it did
    not.

    `alarm` is the false-alarm probability of each test.
    """
    found: list[int | None] = []
    plan = subject.plan(index, level)
    for seed in seeds:
        result = run_case(subject, CaseRun(plan, seed, alarm)).result()
        ended = next((end for end in interim_looks(plan.steps) if end > result.steps), plan.steps)
        steps = result.steps if result.tables else ended  # one that broke off was not looked at
        found.append(steps if result.findings else None)
    return found
