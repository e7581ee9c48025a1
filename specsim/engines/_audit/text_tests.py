"""The tests of the texts: tables of counts with their distribution, fixed before the first request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.core._verdicts import Finding
from specsim.core.stats import MIN_EXPECTED, chi_square, detectable_tv, log_e_value, tv_interval
from specsim.engines._audit.places import Masses, Places, Rows, distinct_contexts
from specsim.engines._audit.results import MEANINGS, NOT_TAKEN, TestResult
from specsim.engines._planted.requests import Completion

#: Bins of a probability integral transform, and the coarser ones of pairs.
BINS, QUARTERS = 16, 4
#: First places of the classes that are tested apart: the first ones singly, then doubling.
CLASSES = (0, 1, 2, 3, 4, 8, 16, 32)
#: Distances within a text at which pairs of tokens are tested for independence.
LAGS = (1, 2, 3, 4, 5, 6, 8)
#: Most contexts, and most tokens of the vocabulary, for a table of each context.
MOST_CONTEXTS, MOST_CELLS = 4096, 512
#: Share staked on each pair of requests that their texts are equal.
STAKE = 0.01
#: Shares staked on each pair of texts of one prompt that their first tokens are equal.
SHARES = (0.02, 0.1, 0.3)


@dataclass(frozen=True)
class Cells:
    """Counts [k] under a distribution [k] of equal probabilities; of pairs, a test of `dependence`."""

    name: str
    counts: Ints
    law: Floats
    dependence: bool = False

    @classmethod
    def uniform(cls, name: str, u: Floats) -> "Cells":
        return cls(name, np.bincount((u * BINS).astype(np.int64), minlength=BINS), np.full(BINS, 1.0 / BINS))

    @classmethod
    def pairs(cls, name: str, one: Floats, other: Floats) -> "Cells":
        """Pairs of numbers in [0, 1), in bins of the square."""
        cells = (one * QUARTERS).astype(np.int64) * QUARTERS + (other * QUARTERS).astype(np.int64)
        counts = np.bincount(cells, minlength=QUARTERS**2)
        return cls(name, counts, np.full(QUARTERS**2, 1.0 / QUARTERS**2), dependence=True)

    def test(self, level: float, tolerance: float) -> TestResult:
        """The e-value decides, for every distribution within the tolerance."""
        n = int(self.counts.sum())
        log_e = log_e_value(self.counts, self.law, tolerance=tolerance * (2 if self.dependence else 1))
        shown = n * self.law.min() >= MIN_EXPECTED / 2
        found = TestResult.of(
            self.name,
            n,
            len(self.law),
            log_e,
            level,
            chi_square=chi_square(self.counts, self.law) if shown else NOT_TAKEN,
            detectable_tv=detectable_tv(len(self.law), n, level),
            dependence=self.dependence,
        )
        if not found.rejected:
            return found
        nats = self._dependence_nats() if self.dependence else 0.0
        return replace(found, text=self._words(level), dependence_nats=nats)

    def _dependence_nats(self) -> float:
        """The log likelihood ratio to independence with these margins, less a penalty for its parameters."""
        n = self.counts.sum()
        observed = self.counts.reshape(QUARTERS, QUARTERS)
        product = np.outer(observed.sum(axis=1), observed.sum(axis=0)).ravel() / n
        seen = self.counts > 0
        gain = (self.counts[seen] * np.log(self.counts[seen] / product[seen])).sum()
        return float(gain - 0.5 * (QUARTERS - 1) ** 2 * np.log(n))

    def _words(self, level: float) -> str:
        estimate, lower, upper = tv_interval(self.counts, self.law, level)
        gap = self.counts / self.counts.sum() - self.law
        ends = [
            f"bin {i + 1} of {len(self.law)} too {'often' if gap[i] > 0 else 'rarely'} "
            f"({self.law[i] + gap[i]:.4f} for {self.law[i]:.4f})"
            for i in (int(gap.argmax()), int(gap.argmin()))
        ]
        return f"TV {estimate:.4f} [{lower:.4f}, {upper:.4f}] on {len(self.law)} bins, {', '.join(ends)}"


def tables(
    places: Places, masses: Masses, partners: Sequence[tuple[str, Ints]], stops: bool
) -> Iterator[Cells]:
    """All tables. `partners` has pairs of texts, [m, 2] each, whose tokens must be independent.

    Where a text `stops` at a string, its last token is not followed by another, so the tokens of a pair
    within a text are not independent."""
    yield from (Cells.uniform(f"all places, by {order}", masses.u[order]) for order in ("p/q", "p", "id"))
    for first, last in zip(CLASSES, (*CLASSES[1:], None), strict=True):
        here = (places.place >= first) & (places.place < (np.inf if last is None else last))
        where = f"place {first + 1}" if last == first + 1 else f"places {first + 1} to {last or '…'}"
        for order in ("p/q", "p"):
            yield Cells.uniform(f"{where}, by {order}", masses.u[order][here])
    u = masses.u["p/q"]
    for lag in () if stops else LAGS:
        both = np.flatnonzero(places.text[lag:] == places.text[:-lag])
        yield Cells.pairs(f"tokens {lag} apart", u[both], u[both + lag])
    for name, pairs in partners:
        # the tokens at the same place in both texts of each pair
        starts = np.searchsorted(places.text, np.arange(pairs.max(initial=-1) + 2))
        shared = np.diff(starts)[pairs].min(axis=1)
        at = np.arange(shared.sum()) - np.repeat(np.cumsum(shared) - shared, shared)
        two = [u[np.repeat(starts[texts], shared) + at] for texts in pairs.T]
        yield Cells.pairs(name, *two)
        yield Cells.pairs(f"{name}, first", *(one[at == 0] for one in two))


def context_test(
    places: Places, rows: Rows, contexts: int, level: float, tolerance: float
) -> TestResult | None:
    """One test of the tokens after each context; None where there are too many contexts or tokens.

    The e-value is the mean of two: that of all contexts together, which is their product, since each token is
    drawn given its context; and the mean over the `contexts` that the distribution has."""
    if contexts > MOST_CONTEXTS or not len(places):
        return None
    distinct, which = distinct_contexts(places.contexts)
    law = rows(distinct)
    size = law.shape[1]
    if size > MOST_CELLS:
        return None
    counts = np.bincount(which * size + places.tokens, minlength=len(distinct) * size).reshape(-1, size)
    logs = np.zeros(len(distinct))
    for i, (row, seen) in enumerate(zip(law, counts, strict=True)):
        possible = row > 0
        if seen[possible].any():
            logs[i] = log_e_value(seen[possible], row[possible] / row.sum(), tolerance=tolerance)
    mean = np.logaddexp.reduce(logs) - np.log(max(contexts, len(logs)))
    log_e = np.logaddexp(logs.sum(), mean) - np.log(2.0)
    worst, n = int(logs.argmax()), int(counts.sum())
    could = detectable_tv(size, n / len(distinct), level / max(contexts, 1))
    found = TestResult.of("after each context", n, int((law > 0).sum()), log_e, level, detectable_tv=could)
    if not found.rejected:
        return found
    drawn = int(counts[worst].sum())
    share = counts[worst] / max(1, drawn)
    token = int(np.abs(share - law[worst]).argmax())
    words = f"after {distinct[worst].tolist()} token {token} came with frequency {share[token]:.4f}"
    return replace(found, text=f"{words} for {law[worst, token]:.4f} ({drawn:,} tokens)")


def equal_texts_test(
    texts: Sequence[Completion], log_probability: Floats, pairs: Ints, level: float
) -> TestResult:
    """Whether requests of one prompt and different seeds get the same text more often than by chance.

    For each pair `STAKE` is bet on equality at the odds that the distribution gives: if the texts are equal
    the e-value grows by STAKE / P(text). `log_probability` is that of each text."""
    log_e, equal, first = 0.0, 0, ""
    for a, b in pairs.tolist():
        log_e += np.log1p(-STAKE)
        shared = min(len(texts[a].tokens), len(texts[b].tokens))
        chance = max(log_probability[a], log_probability[b])
        alike = texts[a].tokens[:shared] == texts[b].tokens[:shared]
        if shared and alike and np.isfinite(chance):  # a text that the distribution never gives has no odds
            log_e = np.logaddexp(log_e, log_e - np.log1p(-STAKE) + np.log(STAKE) - chance)
            equal += 1
            first = first or f"requests {texts[a].number} and {texts[b].number}"
    text = MEANINGS["equal texts"].format(equal=equal, pairs=len(pairs), first=first)
    more = {"dependence_nats": float(log_e), "text": text, "dependence": True}
    return TestResult.of("equal texts", len(pairs), 2, log_e, level, **more)


def equal_tokens_test(
    places: Places, masses: Masses, pairs: Ints, level: float, tolerance: float
) -> TestResult:
    """Whether texts of one prompt begin with the same token more often than by chance.

    For each pair, a share of `SHARES` is bet on equality at the odds 1 / P(token). Where first tokens have
    another distribution, that explains as much of the evidence as it has itself."""
    pairs = pairs if len(places) else pairs[:0]
    first = np.searchsorted(places.text, pairs).clip(max=len(places) - 1)
    one, two = first[((places.place[first] == 0) & (places.text[first] == pairs)).all(axis=1)].T
    equal = (places.tokens[one] == places.tokens[two]) & (masses.mass[one] > 0)
    odds = np.divide(np.exp(-2.0 * tolerance), masses.mass[one], out=np.zeros(len(one)), where=equal)
    logs = np.log1p(np.multiply.outer(SHARES, odds - 1.0)).sum(axis=1)
    log_e = float(np.logaddexp.reduce(logs) - np.log(len(SHARES)))
    begun = Cells.uniform("", masses.u["p"][np.unique([one, two])])
    nats = log_e - max(0.0, log_e_value(begun.counts, begun.law, tolerance=tolerance))
    text = MEANINGS["equal tokens"].format(equal=int(equal.sum()), pairs=len(one))
    more = {"dependence_nats": nats, "text": text, "dependence": True}
    return TestResult.of("equal first tokens", len(one), 2, log_e, level, **more)


def support_finding(places: Places, masses: Masses, texts: Sequence[Completion], read: int) -> Finding | None:
    """Tokens that the distribution never gives, which reads the first `read` columns of contexts."""
    impossible = np.flatnonzero(masses.mass == 0.0)
    if not len(impossible):
        return None
    named = "; ".join(
        f"request {texts[places.text[i]].number}, place {places.place[i] + 1}: token {places.tokens[i]} "
        f"after {places.contexts[i, :read].tolist()}"
        for i in impossible[:3]
    )
    return Finding("support", f"{len(impossible):,} emitted tokens have probability 0 ({named})")
