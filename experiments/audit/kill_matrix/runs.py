"""Runs every criterion on every verifier."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from zlib import crc32

import numpy as np

import specsim
from experiments import Row
from experiments.audit._criteria import Criterion, criteria
from specsim import mistakes, rules
from specsim.adapters._contract import Verifier, declares
from specsim.auditing._results.audit import Verdict
from specsim.auditing._runner import audit
from specsim.core.distributions import Floats, Ints
from specsim.models import TableModel, chain
from specsim.theory._enumeration import conditional_laws, step_law, target_law

__all__ = ["AUDIT", "LEVEL", "audit_criterion", "cells", "exact_tv", "measure", "run_cell"]

#: The name of specsim's own criterion, and the level of its audits.
AUDIT, LEVEL = "specsim audit", "quick"
#: Seeds of a pair; a criterion that is repeated less often takes the first ones.
SEEDS = 20
#: What is run with `fast`, with one seed, and audits at level smoke.
FAST_VERIFIERS = ("one_hot_draft", "resamples_target", "greedy_draft")
FAST_CRITERIA = ("TensorRT-LLM KL", AUDIT)
#: p of the pair for which the exact deviation of each verifier is given; q is p reversed.
PAIR = tuple(Fraction(weight, 100) for weight in (30, 20, 15, 10, 10, 5, 5, 5))


def standard(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    return np.asarray(specsim.verify(draft_tokens, p, q, rng=rng).tokens)


STANDARD = mistakes.Mutant(
    name="standard",
    family="exact",
    mechanism="None: the standard rule of specsim.",
    verify=standard,
    law=rules.get("standard").law,
)


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """(verifier, criterion), exact verifiers first."""
    found = []
    for mutant in (STANDARD, *mistakes.exact_controls(), *mistakes.catalogue()):
        applicable = [*(one.name for one in criteria()), AUDIT] if mutant.decode is None else [AUDIT]
        found += [(mutant.name, name) for name in applicable]
    return [cell for cell in found if not fast or (cell[0] in FAST_VERIFIERS and cell[1] in FAST_CRITERIA)]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """How many runs of a criterion pass a verifier, with what is known of the verifier."""
    name, criterion = cell
    mutant = STANDARD if name == STANDARD.name else mistakes.get(name)
    known = {one.name: one for one in (*criteria(), audit_criterion("smoke" if fast else LEVEL))}
    exact = mutant is STANDARD or name in mistakes.names("exact control")
    return measure(mutant, known[criterion], range(rng, rng + (1 if fast else SEEDS)), exact=exact)


def measure(mutant: Any, criterion: Criterion, seeds: Sequence[int], *, exact: bool = False) -> Row:
    """Run `criterion` on `mutant` with the first `criterion.repeats` of `seeds`; an exception in a run is a
    failure.

    A run's random numbers depend on criterion and seed alone, so that all verifiers get the same p and q.
    `exact` says that the verifier must pass.
    """
    function = mutant.function
    if mutant.decode is not None:
        function = declares(decoder=True)(function)
    stream = crc32(criterion.name.encode())
    runs = seeds[: criterion.repeats]
    return {
        "verifier": mutant.name,
        "criterion": criterion.name,
        "family": mutant.family,
        "exact": exact,
        "decoder": mutant.decode is not None,
        "tv": exact_tv(mutant),
        "passed": sum(_passes(criterion, function, np.random.default_rng([stream, seed])) for seed in runs),
        "runs": len(runs),
    }


def audit_criterion(level: str = LEVEL) -> Criterion:
    """specsim's audit as a criterion: it passes unless the verdict is biased or broken."""

    def passes(verifier: Verifier, rng: np.random.Generator) -> bool:
        return audit(verifier, level, rng, fail_fast=True, diagnose=False).verdict not in (
            Verdict.BIASED,
            Verdict.BROKEN,
        )

    about = f"all cases at level {level}, every position and prefix: verdict neither biased nor broken"
    return Criterion(AUDIT, "specsim.audit", about, passes, 1)


def exact_tv(mutant: Any) -> float | None:
    """The largest total variation between the law of a next token and the target's, at any position of two
    drafts.

    Enumerated in fractions where p is `PAIR` and q the same reversed, from the mutant's own `law`; None
    without one.
    """
    if mutant.law is None or mutant.verify is None:
        return None
    target, draft = TableModel(PAIR), TableModel(PAIR[::-1])
    law = step_law(mutant, target, draft, chain(2))
    p = target_law(target, 1)
    gaps = [
        sum(abs(nexts.get((x,), Fraction(0)) - p[x,]) for x in range(len(PAIR)))
        for _, nexts in conditional_laws(law)
    ]
    return float(max(gaps)) / 2.0


def _passes(criterion: Criterion, verifier: Verifier, rng: np.random.Generator) -> bool:
    try:
        return bool(criterion.passes(verifier, rng))
    except MemoryError:  # this machine's, not the verifier's
        raise
    except Exception:  # the verifier's own, or that of a comparison with what it returned: the test fails
        return False
