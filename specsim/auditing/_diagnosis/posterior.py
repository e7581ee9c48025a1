"""From likelihoods to a diagnosis: the posterior odds of the known mistakes, of an exact law, and of neither.

A verifier that was rejected makes a known mistake, or another one, or its single steps are exact and what was
rejected shows elsewhere. A mistake is named only if the odds against both alternatives are at least `ODDS`;
all mistakes within `ODDS` of the likeliest are named with it."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from specsim.auditing._diagnosis.likelihood import NEAR, Prediction, log_likelihood, log_mean_exp, log_near
from specsim.auditing._diagnosis.parameters import Values, marginalise
from specsim.auditing._results.audit import ODDS, STOPPED, Candidate, Diagnosis
from specsim.core._parameters import Parameter
from specsim.core._types import Ints
from specsim.mistakes import Mistake
from specsim.mistakes import _reference as pieces
from specsim.rules import get, names

#: The standard rule, one of the exact verifiers that mistakes are compared with.
STANDARD = Mistake(
    name="standard", family="exact", mechanism="", verify=pieces.verify, law=get("standard").law
)
#: Prior probabilities: one of the known mistakes, each as probable as the others; none of these; exact. Where
#: nothing shows, a quarter of *none* is left beside *exact*, which then must be the likelier.
KNOWN, NONE, EXACT = 0.5, 0.35, 0.15
#: Nats behind the likeliest from which on a mistake is dropped before the evidence is complete.
FAR = 30.0
#: How many names are looked for: after so many that do not reproduce the audit there is none.
TRIED = 3
#: The most laws of steps that a diagnosis computes.
WORK = 2**23
#: The most mistakes that are named together: more are no answer.
MOST_NAMED = 3
#: The most mistakes that are listed in a result.
LISTED = 5
#: Why there is no name: the cases of the diagnosis show nothing, or they show what no known mistake does.
ELSEWHERE = "In the small cases of the diagnosis its steps are exact: it goes wrong elsewhere."
OTHERWISE = "No known mistake explains these steps."
SPENT = "The limit of work stopped the diagnosis."


class OutOfTime(Exception):
    """A diagnosis has reached its deadline or has spent its work, and why it has no name."""


@dataclass
class Limits:
    """Called while a diagnosis works; raises OutOfTime after `deadline`, or without `work` left.

    Work is the number of laws of steps. Those that were kept count too, so that no memory decides."""

    deadline: float = math.inf
    work: int = WORK

    def __call__(self, *_: int) -> None:
        if time.monotonic() > self.deadline:
            raise OutOfTime(STOPPED)

    def spend(self, laws: int) -> None:
        """Count the computation of that many laws of steps."""
        self.work -= laws
        if self.work < 0:
            raise OutOfTime(SPENT)
        self()


@dataclass(frozen=True)
class Scored:
    """A mistake with its likeliest parameters, its log-likelihood, and that of the laws `near` its own."""

    mistake: Mistake
    log_likelihood: float
    near: float

    def plus(self, more: "Scored") -> "Scored":
        return Scored(more.mistake, self.log_likelihood + more.log_likelihood, self.near + more.near)


#: What was seen: counts, and their prediction.
Seen = Sequence[tuple[Prediction, Ints]]
#: Known mistakes, and exact verifiers or decoders.
Ranked = tuple[list[Scored], list[Scored]]


def score(mistake: Mistake, seen: Seen, distances: Sequence[float] = NEAR) -> Scored:
    """`mistake` by its predictions of what was seen; laws near by are at `distances`."""
    near = sum(log_near(*one, distances) for one in seen)
    return Scored(mistake, sum(log_likelihood(*one) for one in seen), near)


def fitted(
    mistake: Mistake,
    parameters: Sequence[Parameter],
    predictions: Callable[[Mistake], Seen],
    points: int | None = None,
    distances: Sequence[float] = NEAR,
) -> Scored:
    """`mistake` with its likeliest parameters; what is unknown of them is so for the laws near by too."""

    def likelihood(values: Values) -> float:
        return sum(log_likelihood(*one) for one in predictions(mistake.with_parameters(**values)))

    mean, values = marginalise(parameters, likelihood, points)
    best = mistake.with_parameters(**values)
    one = score(best, predictions(best), distances)
    return Scored(best, mean, one.near + mean - one.log_likelihood)


def narrow(
    mistakes: Sequence[Mistake],
    stages: Sequence[tuple[Callable[[Mistake], Scored | None], float]],
    in_time: Limits,
) -> list[Scored]:
    """The mistakes that come near the likeliest.

    Each of the stages (score, nats) scores, of what the stage before has left, all mistakes that keep the
    contract, and drops those that are further behind the likeliest."""
    left, scored = list(mistakes), list[Scored]()
    for of_stage, far in stages:
        found = []
        for mistake in left:
            in_time()
            found.append(of_stage(mistake))
        scored = drop_far([one for one in found if one is not None], far)
        left = [one.mistake for one in scored]
    return scored


@dataclass(frozen=True)
class Posterior:
    """Posterior probabilities: of each mistake, the likeliest first, of `none` of them, and of `exact`."""

    known: tuple[tuple[Scored, float], ...]
    none: float
    exact: float

    @property
    def named(self) -> tuple[tuple[Scored, float], ...]:
        """The mistakes within `ODDS` of the likeliest, if together they beat both alternatives by that."""
        if not self.known or self.known[0][1] == 0.0:
            return ()
        some = tuple(one for one in self.known if ODDS * one[1] >= self.known[0][1])
        together = sum(probability for _, probability in some)
        return some if together >= ODDS * max(self.none, self.exact) else ()

    @property
    def settled(self) -> bool:
        """Whether more evidence of the same kind is not needed: a mistake, or an alternative, is certain."""
        return len(self.named) == 1 or max(self.none, self.exact) >= ODDS / (ODDS + 1.0)


def posterior(known: Sequence[Scored], exact: Sequence[Scored], catalogue: int) -> Posterior:
    """The posterior probabilities of `known` mistakes, of `catalogue` that were looked at, and of exact laws.

    *None of these* is a mixture over laws near those of the exact verifiers and of the mistakes. The
    likelihood of a mistake counts only where it is `ODDS` times that of each exact verifier."""
    best_exact = max((one.log_likelihood for one in exact), default=-np.inf)
    possible = [one for one in known if one.log_likelihood > best_exact + np.log(ODDS)]
    near_known = log_mean_exp([one.near for one in known]) + np.log(max(len(known), 1) / catalogue)
    none = log_mean_exp([log_mean_exp([one.near for one in exact]), near_known])
    logs = [np.log(KNOWN / catalogue) + one.log_likelihood for one in possible]
    logs += [np.log(NONE) + none, np.log(EXACT) + log_mean_exp([one.log_likelihood for one in exact])]
    if max(logs) == -np.inf:  # nothing is left to compare with
        return Posterior((), 1.0, 0.0)
    *each, of_none, of_exact = np.exp(np.array(logs) - scipy.special.logsumexp(logs)).tolist()
    ordered = sorted(zip(possible, each, strict=True), key=lambda one: -one[1])
    return Posterior(tuple(ordered), of_none, of_exact)


def reproducing(
    scored: Sequence[Scored],
    exact: Sequence[Scored],
    number: int,
    reproduced: Callable[[Scored], Mistake | None],
) -> Posterior:
    """The posterior in which all named mistakes are `reproduced`, if within `TRIED` trials, else of none."""
    right: list[Scored] = []
    for _ in range(TRIED):
        named = [one for one, _ in posterior(scored, exact, number).named if one not in right]
        tried = [reproduced(one) for one in named]
        better = [
            replace(one, log_likelihood=-np.inf) if mistake is None else replace(one, mistake=mistake)
            for one, mistake in zip(named, tried, strict=True)
        ]
        right += [one for one, mistake in zip(better, tried, strict=True) if mistake is not None]
        scored = [better[named.index(one)] if one in named else one for one in scored]
        if None not in tried:
            return posterior(scored, exact, number)
    return posterior((), exact, number)


def ranked(scored: Sequence[Scored]) -> Ranked:
    """Known mistakes apart from what is exact."""
    exact = [one for one in scored if one.mistake.family.startswith("exact")]
    return [one for one in scored if not one.mistake.family.startswith("exact")], exact


def likeliest_of(some: Iterable[Scored]) -> Scored:
    return max(some, key=lambda one: one.log_likelihood)


def drop_far(known: Sequence[Scored], far: float = FAR) -> list[Scored]:
    """The mistakes within `far` nats of the likeliest."""
    best = max((one.log_likelihood for one in known), default=0.0)
    return [one for one in known if best - one.log_likelihood <= far]


def conclude(
    found: Posterior | None, steps: int, reason: str = "", shown: tuple[str, str] = ("", "")
) -> Diagnosis:
    """The diagnosis: the named mistakes, or unknown for a reason, by default that of `found`.

    `shown` is its evidence and its place."""
    if found is None:
        return Diagnosis(steps=steps, reason=reason)
    listed = tuple(_candidate(one, probability) for one, probability in found.known[:LISTED])
    named = tuple(_candidate(one, probability) for one, probability in found.named)
    plain = tuple(one for one in named if ":" not in one.name)  # without a parameter that was fitted
    if 0 < len(plain) <= MOST_NAMED < len(named):
        named = plain
    if len(named) > MOST_NAMED:
        named, reason, shown = (), f"{len(named)} known mistakes explain these steps alike.", ("", "")
    unknown = "" if named else reason or (ELSEWHERE if found.exact > 0.5 else OTHERWISE)
    return Diagnosis(named, listed, found.none, found.exact, steps, unknown, *shown)


def _candidate(one: Scored, probability: float) -> Candidate:
    m = one.mistake
    lossy = m.name in names() and get(m.name).declared is not None
    return Candidate(str(m), m.family, m.mechanism, m.threads, probability, lossy)
