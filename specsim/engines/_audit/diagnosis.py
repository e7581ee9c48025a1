"""Known mistakes as alternatives: a test against them, and the nearest one.

Where a mistake with rows r happens at a share w of the places, the tokens follow (1 - w)·p + w·r there. The
likelihood ratio to p, averaged over mistakes, shares and where in a text they happen, is an e-value: each of
them has expectation 1 if the tokens follow p. It needs far fewer tokens than a table that looks in all
directions, and is one more test beside those tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from specsim.core._types import Floats, Ints
from specsim.engines._audit.known_mistakes import Known
from specsim.engines._audit.places import Given, Places, by_context, distinct_contexts, mass_under, masses_of
from specsim.engines._audit.results import KnownMistake, TestResult
from specsim.engines._audit.text_tests import Cells
from specsim.mistakes._rows import Pair

#: Shares of places that are tried, 1 for everywhere.
SHARES = np.array([*np.geomspace(0.005, 0.9, 16), 1.0])
#: Nats by which a mistake must be likelier than the distribution to be reported.
GAINED = 15.0
#: Probability of a token that neither the distribution nor a mistake gives.
FLOOR = 1e-12
#: Level of the test whether a mistake fits.
FITS = 1e-4
#: Places on which that is tested.
MOST_PLACES = 50_000
#: Bins in which tokens are compared with those of texts that have a mistake.
BINS = np.linspace(0.0, 1.0, 33)
#: How many are reported.
NEAREST = 3
#: Places whose gains are computed at once.
BLOCK = 2**16
#: Where in a text a mistake may happen.
WHERE = ("everywhere", "at the first token of a text", "at the last token of a text")

#: From contexts [N, k] to the rows there.
From = Callable[[Ints], Given]


@dataclass(frozen=True)
class Fitted:
    """The gains of log likelihood of a mistake [where, share], in nats."""

    known: Known
    gains: Floats

    @property
    def best(self) -> tuple[int, int]:
        return divmod(int(self.gains.argmax()), len(SHARES))

    @property
    def names(self) -> tuple[str, ...]:
        """The mistakes that the distribution may be of, the likeliest first."""
        where, share = self.best
        return self.known.names(where, float(SHARES[share]))


def fit(places: Places, mass: Floats, known: Iterable[Known], given: From, width: int) -> list[Fitted]:
    """The gains of each mistake over the distribution, which gives the tokens the probabilities `mass`."""
    mistakes = list(known)
    gains = np.zeros((len(mistakes), len(WHERE), len(SHARES)))
    for start in range(0, len(places), BLOCK):
        block = slice(start, start + BLOCK)
        here = [one.chosen(block) for one in mistakes]
        gains += _gains(places.chosen(block), mass[block], here, given, width)
    return [Fitted(one, its) for one, its in zip(mistakes, gains, strict=True)]


def _gains(places: Places, mass: Floats, known: Sequence[Known], given: From, width: int) -> Floats:
    """The gains [mistake, where, share] at some places. All mistakes share the rows, which are made once."""
    found = np.zeros((len(known), len(WHERE), len(SHARES)))
    text = _Alike.of(places, places.contexts, mass)
    of_text = [i for i, one in enumerate(known) if one.contexts is None]
    masses = np.zeros((len(of_text), len(text.mass)))
    for contexts, at, row in by_context(text.contexts, width):
        here = given(contexts)
        for own, i in zip(masses, of_text, strict=True):
            own[at] = known[i].rows(here)[row, text.tokens[at]]
    found[of_text] = [text.gains(own) for own in masses]
    if misread := [i for i, one in enumerate(known) if one.contexts is not None]:
        others = [_Alike.of(places, one.contexts, mass) for one in known if one.contexts is not None]
        read = [one.contexts.reshape(-1, places.contexts.shape[1]) for one in others]
        tokens = [one.tokens.repeat(len(r) // len(one.tokens)) for one, r in zip(others, read, strict=True)]
        every = mass_under(
            np.concatenate(read), np.concatenate(tokens), lambda contexts: given(contexts).p, width
        )
        parts = np.split(every, np.cumsum([len(one) for one in read])[:-1])
        found[misread] = [
            one.gains(part.reshape(len(one.tokens), -1).mean(axis=1))
            for one, part in zip(others, parts, strict=True)
        ]
    return found


@dataclass(frozen=True)
class _Alike:
    """One place for all of one context that read the same and have the same token; `counts` [where, m] says
    how many. `contexts` is what they read, `mass` the probability of their token under the distribution."""

    contexts: Ints
    tokens: Ints
    mass: Floats
    counts: Ints

    @classmethod
    def of(cls, places: Places, read: Ints, mass: Floats) -> "_Alike":
        columns = [places.contexts, places.tokens[:, None], *([] if read is places.contexts else [read])]
        distinct, which = distinct_contexts(np.hstack(columns))
        first = np.zeros(len(distinct), dtype=np.int64)
        first[which[::-1]] = np.arange(len(which))[::-1]
        counts = [np.bincount(which[at], minlength=len(first)) for at in _where(places)]
        return cls(read[first], places.tokens[first], mass[first], np.array(counts))

    def gains(self, other: Floats) -> Floats:
        """The gain [where, share] of tokens with probabilities `other`."""
        with np.errstate(divide="ignore"):
            logs = np.log1p(SHARES[:, None] * (other / np.maximum(self.mass, FLOOR) - 1.0))
        return np.matmul(self.counts.astype(np.float64), np.maximum(logs, np.log(FLOOR)).T)


def _where(places: Places) -> list[NDArray[np.bool_]]:
    """The places that `WHERE` names, known before their tokens: an end at a stop string does not count."""
    return [np.ones(len(places), dtype=bool), places.place == 0, places.last]


def mistakes_test(fitted: list[Fitted], n: int, level: float, tolerance: float) -> TestResult:
    """The e-value of all mistakes together; within `tolerance` a factor expects at most exp(tolerance)."""
    gains = np.concatenate([one.gains.ravel() for one in fitted]) if fitted else np.zeros(1)
    log_e = float(np.logaddexp.reduce(gains) - np.log(len(gains)) - n * tolerance)
    found = TestResult.of("known mistakes", n, len(gains), log_e, level)
    if not (found.rejected and fitted):
        return found
    nearest = max(fitted, key=lambda one: one.gains.max()).names[0]
    return replace(found, text=f"{nearest} is likelier than the claimed distribution")


def diagnose(places: Places, fitted: list[Fitted], given: From) -> tuple[KnownMistake, ...]:
    """The likeliest mistakes, the likeliest first; none if they are hardly likelier than the distribution."""
    ranked = sorted(fitted, key=lambda one: -one.gains.max())[:NEAREST]
    most, found = float(ranked[0].gains.max()) if ranked else 0.0, []
    for one in ranked:
        where, share = one.best[0], float(SHARES[one.best[1]])
        gained, (name, *alike) = float(one.gains.max()), one.names
        if gained >= GAINED:
            how = one.known.mechanism(name), WHERE[where], share, gained, most - gained
            fits = one.known.may_have(where, share) and _fits(places, one.known, where, share, given)
            found.append(KnownMistake(name, tuple(alike), *how, fits))
    return tuple(found)


def _fits(places: Places, known: Known, where: int, share: float, given: From) -> bool:
    """Whether at most `MOST_PLACES` places agree with the mistake's rows, or with texts that have it."""
    if known.again is not None:
        seen, made = (
            masses_of(one, lambda contexts: given(contexts).rows, np.random.default_rng(0)).u
            for one in (places.chosen(slice(MOST_PLACES)), known.again())
        )
        tables = [np.array([np.histogram(u[order], BINS)[0] for u in (seen, made)]) for order in seen]
        return all(
            scipy.stats.chi2_contingency(table[:, table.any(axis=0)]).pvalue >= FITS / len(tables)
            for table in tables
        )
    width = places.contexts.shape[1]
    read = places.contexts if known.contexts is None else known.contexts
    both = replace(places, contexts=np.hstack([places.contexts, read]))
    here = np.flatnonzero(_where(places)[where])[:MOST_PLACES]

    def rows(contexts: Ints) -> Pair:
        right, *wrong = (given(part) for part in np.split(contexts, contexts.shape[1] // width, axis=1))
        other = np.mean([known.rows(one) for one in wrong], axis=0)
        return Pair((1.0 - share) * right.p + share * other, right.q)

    masses = masses_of(both.chosen(here), rows, np.random.default_rng(0))
    tests = [Cells.uniform(order, u).test(FITS / len(masses.u), 0.0) for order, u in masses.u.items()]
    return not any(test.rejected for test in tests)
