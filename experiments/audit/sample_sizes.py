"""The steps that an audit needs for each known mistake, beside those of the most powerful test.

The most powerful test (Neyman and Pearson) knows the mistake, and rejects for a large likelihood ratio of its
distribution to the claimed one. For each mistake of known distribution that needs statistics at all, its
number of steps is computed from the prefix tables of an audit, at the whole error budget, in the case where
the Kullback-Leibler divergence of a step's tokens from the claim is largest: likelihood ratios L are drawn
from the distribution of the mistake, the test rejects above the quantile that gives the power, and its
false-alarm probability is the mean of 1/L above that quantile. Then counts of those tables are drawn from the
same distribution: the audit needs the steps with which the logarithm of its largest e-value, of a table or of
the tables together, is above the alarm with the same power, by its mean and standard deviation.

In the shapes of a server a step is the first token where one is drafted, from a row of any kind; the parts of
the verifier give its distribution. An audit has the table of images in which the divergence is largest.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from experiments import Floats, Row
from experiments._pages import markdown_table, shown, written
from experiments.audit._step_laws import Known, alarm, known_law, subject_of
from specsim import mistakes
from specsim.auditing._cases.shapes import SERVER_CASES
from specsim.auditing._checks.counts import PIT_BINS
from specsim.auditing._checks.subjects import Subject
from specsim.auditing._checks.tables import Joined, bins_of, even_table, interim_looks
from specsim.auditing._results.audit import BUDGET
from specsim.core.stats import POWER
from specsim.mistakes import _reference as ref
from specsim.mistakes._rows import LAWS, Pair, normalised

TITLE = "The steps that an audit needs for each known mistake, beside those of the most powerful test"
MINUTES = 8

#: Draws of the counts at each number of steps, and the precision of the ratio of both numbers.
DRAWS, FAST_DRAWS, PRECISION = 200, 40, 1.03
#: Draws of the likelihood ratio; one of a thousand is below the quantile.
RATIOS, FAST_RATIOS = 100_000, 20_000
#: The largest ratio that is looked for.
MOST = 100.0
#: Probability of a step that rejects at once from which on no statistics are needed.
FATAL = 1e-6
#: Divergence of rounding, not of a distribution.
LEAST_DIVERGENCE = 1e-12
COLUMNS = ("case", "divergence", "kept", "most_powerful", "audit", "ratio", "first_look")
FAST_MISTAKES = ("resamples_target", "bonus_argmax")
#: The ratio that is aimed at.
GOAL = 2.5
#: Least total variation of first tokens in a kind of row; outcomes in a root of their divergence.
LEAST_TV, NEAR = 0.02, 3.0


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """The mistakes of verifiers whose distribution is known, and the name of a server's case or nothing."""
    names = FAST_MISTAKES if fast else mistakes.names("verifier")
    return [(name, server) for server in ("", *SERVER_CASES) for name in names if mistakes.get(name).law]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """The case, the divergence per step, the part of it that the tables have, and both numbers of steps.

    All but the cell are None where a step rejects at once in some case, or the distribution shows in no
    table. `first_look` is the number of steps at which an audit at level quick first looks at that case."""
    mistake, server = mistakes.get(cell[0]), cell[1]
    subject = subject_of(mistake)
    level = alarm(subject, "quick")
    found = (_shown(mistake, subject, i) for i in range(len(subject.cases)))
    shown = _first_tokens(mistake, subject, server) if server else [one for one in found if one is not None]
    fatal = any(one.known.law[one.known.fatal].sum() > FATAL for one in shown)
    best = None if fatal else max(shown, key=lambda one: one.divergence, default=None)
    about = {"mistake": mistake.name, "server": server}
    if best is None or best.divergence < LEAST_DIVERGENCE:
        return about | dict.fromkeys(COLUMNS)
    generator = np.random.default_rng(rng)
    law, log_ratios = best.tokens or (best.known.law, best.log_ratios)
    least = _least(law, log_ratios, FAST_RATIOS if fast else RATIOS, generator)
    needed = _needed(best, level, least, FAST_DRAWS if fast else DRAWS, generator)
    if math.isinf(needed):  # its tokens lie in one bin of that table
        return about | dict.fromkeys(COLUMNS)
    divergence = float(law @ log_ratios)
    numbers = divergence, best.divergence / divergence, least, needed, needed / least, best.first_look
    return about | dict(zip(COLUMNS, (best.known.case, *numbers), strict=True))


@dataclass(frozen=True)
class _Shown:
    """A case in which the distribution of the mistake is known, with the tables that it shows in; `tokens`
    are the probabilities and log ratios of a step's tokens where the tables have bins of them."""

    known: Known
    tables: Joined
    first_look: int
    tokens: tuple[Any, Any] | None = None

    @property
    def divergence(self) -> float:
        """Of the tokens of one step, in the cells of the tables, each given the tokens before it."""
        rates = self.known.prefixes(self.known.law[:, None])[:, 0]
        total = 0.0
        for table in self.tables.tables:
            visits = table.merged(rates)
            if visits.any():
                total += float(scipy.special.rel_entr(visits, visits.sum() * table.law).sum())
        return total

    @property
    def log_ratios(self) -> Floats:
        """[sequences], log of the probability of its tokens under the mistake over that of the claim."""
        rates = self.merged(self.known.law[:, None])[0]
        sums = np.add.reduceat(rates, self.tables.starts)
        sizes = np.diff([*self.tables.starts, len(rates)])
        claimed = np.repeat(sums, sizes) * self.tables.law
        each = np.log(np.divide(rates, claimed, out=np.ones_like(rates), where=(rates > 0) & (claimed > 0)))
        found: Floats = self.merged(np.eye(len(self.known.law))) @ each
        return found

    def merged(self, outcomes: NDArray[Any]) -> Any:
        """[n, cells], of n columns of probabilities or counts of the sequences."""
        return self.tables.merged({"prefixes": self.known.prefixes(outcomes)})


def _shown(mistake: mistakes.Mistake, subject: Subject, index: int) -> _Shown | None:
    known, plan = known_law(mistake, subject.cases[index]), subject.plan(index, "quick")
    tables = [table for table in plan.pooled.tables if table.kind == "prefix"] if known else []
    return _Shown(known, Joined(tables), interim_looks(plan.steps)[0]) if known and tables else None


def _first_tokens(mistake: mistakes.Mistake, subject: Subject, name: str) -> list[_Shown]:
    """What each table of images shows of first tokens; nothing where these deviate too little."""
    case: Any = subject.case(name)
    bank, plan = case.bank(case.vocab_sizes[0]), subject.plan(subject.cases.index(case), "quick")
    p, q = bank.p[:-1], bank.q[:-1]  # the last kind is hardly ever drawn
    kinds = "all rows", *case.kinds[:-1]
    laws = np.array([_first_law(mistake, *rows) for rows in zip(p, q, strict=True)])
    if np.abs(laws - p).sum(axis=1).max() / 2.0 < LEAST_TV:
        return []
    laws = normalised(np.where(p > 0.0, laws, 0.0), p)
    law, ratios = laws[laws > 0.0] / len(laws), np.log(laws[laws > 0.0] / p[laws > 0.0])
    group = np.unique((ratios / math.sqrt(law @ ratios) * NEAR).round(), return_inverse=True)[1]
    tokens = np.bincount(group, law), np.bincount(group, law * ratios) / np.bincount(group, law)
    table = Joined([even_table("prefix", (), "prefixes", 0, PIT_BINS, "")])
    cells, found = (*((i,) for i in range(PIT_BINS)), ()), []
    for order, below in zip(case.orders, bank.below[:, :-1], strict=True):
        rows = zip(laws[:, None], p, p / (1.0 + below), strict=True)  # the ratio gives the order
        images = np.concatenate([bins_of(*row, PIT_BINS) for row in rows]) / len(laws)
        for kind, bins in zip(kinds, (images.sum(axis=0), *images), strict=True):
            law = np.append(bins, max(1.0 - bins.sum(), 0.0))
            known = Known(f"{laws.shape[1]:,} ids: {kind}, by {order}", PIT_BINS, 1, 1, cells, law, law < 0.0)
            found.append(_Shown(known, table, interim_looks(plan.steps)[0], tokens))
    return found


def _first_law(mistake: mistakes.Mistake, p: Floats, q: Floats) -> Floats:
    """The law [V] of a first token where one is drafted, from the parts of its verifier; p without these."""
    verifier: Any = mistake.verify
    pair, parts = Pair(p[None], q[None]), verifier.keywords
    if verifier.func is not ref.STANDARD or "rows" in parts:
        return LAWS.get(mistake.name, lambda pair: pair.p)(pair)[0]
    passes, count = parts.get("passes", ref.ratio_test), parts.get("count", ref.first_failure)
    given, chance = (np.arange(len(p))[:, None], pair.p[None], pair.q[None]), np.zeros((len(p), 1))
    for bit in range(1, 54):
        chance += 0.5**bit * (count(passes(chance + 0.5**bit, *given, **mistake.values))[:, None] > 0)
    recover, rows = parts.get("recover", ref.excess), (np.array([p, p]), np.array([q, q]))
    left = recover(*rows, p.argsort()[-2:], **mistake.values)
    if (left[0] != left[1]).any():
        return pair.without_drafted(chance.T)[0]
    return pair.emitted(accepted=chance.T, recovered=normalised(left[:1], pair.p))[0]


def _least(law: Floats, log_ratios: Floats, draws: int, rng: np.random.Generator) -> float:
    """The steps of the most powerful test at the whole budget."""
    values, which = np.unique(log_ratios.round(12), return_inverse=True)
    mass = np.bincount(which, weights=law)

    def rejects(steps: float) -> bool:
        ratios = rng.multinomial(int(steps), mass, size=draws) @ values
        above = ratios[ratios >= np.quantile(ratios, 1.0 - POWER, method="lower")]
        return bool(np.exp(-above).sum() / draws <= BUDGET)

    # where the logarithm of the ratio is nearly normal
    normal = (scipy.special.ndtri(1.0 - BUDGET) + scipy.special.ndtri(POWER)) ** 2 / (2.0 * law @ log_ratios)
    return _fewest(rejects, normal)


def _needed(shown: _Shown, level: float, least: float, draws: int, rng: np.random.Generator) -> float:
    """The steps of an audit, at false-alarm probability `level` of each test; infinite beyond `MOST`."""

    def rejects(steps: float) -> bool:
        observed = shown.merged(rng.multinomial(int(steps), shown.known.law, size=draws).T)
        each = shown.tables.log_e(observed).max(axis=1)
        largest = np.maximum(each, shown.tables.log_pooled_e(observed))
        return bool(largest.mean() - scipy.special.ndtri(POWER) * largest.std() >= -math.log(level))

    return _fewest(rejects, least)


def _fewest(rejects: Callable[[float], bool], about: float) -> float:
    """The number of steps from which on `rejects` is true, in units of `about` up to `MOST`."""
    low, high = 0.2, 1.0
    while not rejects(high * about):
        low, high = high, 1.5 * high
        if high > MOST:
            return math.inf
    while high / low > PRECISION and math.ceil(low * about) < math.floor(high * about):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rejects(middle * about) else (middle, high)
    return float(math.ceil(high * about))


# --- the page --------------------------------------------------------------------------------------------


def page(rows: Sequence[Row]) -> str:
    """docs/results/sample-sizes.md."""
    head = ("mistake", "case", "divergence", "most powerful test", "audit", "ratio")
    values = {"BUDGET": BUDGET, "POWER": POWER, "GOAL": GOAL, "LEAST_TV": LEAST_TV}
    for group in ("", "server_"):
        known = [row for row in rows if row["case"] and bool(row["server"]) is bool(group)]
        beyond = [_beyond(row) for row in known if row["ratio"] > GOAL]
        lines = [
            (
                *(f"`{row['mistake']}`", row["case"], f"{row['divergence']:.3g}"),
                *(shown(row["most_powerful"]), shown(row["audit"]), f"{row['ratio']:.2f}"),
            )
            for row in known
        ]
        found = {
            "total": len(known),
            "within": len(known) - len(beyond),
            "median": np.median([row["ratio"] for row in known]),
            "kept": np.median([row["kept"] for row in known]),
            "beyond": f"Above it are {', '.join(beyond)}." if beyond else "No mistake needs more.",
            "early": sum(row["most_powerful"] < row["first_look"] for row in known),
            "table": markdown_table(head, lines, numbers=4),
        }
        values |= {group + name: value for name, value in found.items()}
    return written("sample-sizes", values)


def _beyond(row: Row) -> str:
    return f"`{row['mistake']}` ({row['ratio']:.2f}, of {shown(row['most_powerful'])} steps)"
