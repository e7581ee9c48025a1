"""Runs every criterion on every verifier."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from experiments.kill_matrix.criteria import Criterion
from experiments.kill_matrix.table import Cell, Column, KillMatrix, Row
from specsim.auditing._results import Verdict
from specsim.auditing._runner import audit
from specsim.auditing._verifier.contract import Verifier, declares
from specsim.core._provenance import Provenance
from specsim.drafts import chain
from specsim.models import TableModel
from specsim.simulation._counting import Progress
from specsim.theory._enumeration import conditional_laws, step_law, target_law

__all__ = ["AUDIT", "audit_criterion", "exact_tv", "kill_matrix"]

#: The name of specsim's own column.
AUDIT = "specsim audit"
#: p of the pair whose exact deviation stands beside each verifier; q is the same reversed.
PAIR = tuple(Fraction(weight, 100) for weight in (30, 20, 15, 10, 10, 5, 5, 5))


class Mutant(Protocol):
    """What is asked of a known-wrong verifier: where `verify` is None it is a decoder, and has `decode`."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def threads(self) -> tuple[str, ...]: ...
    @property
    def verify(self) -> Verifier | None: ...
    @property
    def values(self) -> Mapping[str, float]: ...


def kill_matrix(
    mutants: Sequence[Mutant],
    criteria: Sequence[Criterion],
    *,
    exact: Sequence[Mutant] = (),
    level: str = "quick",
    seeds: Sequence[int] = range(20),
    decoder_audit: Criterion | None = None,
    tv: Callable[[Any], float | None] | None = None,
    progress: Progress | None = None,
) -> KillMatrix:
    """Run every criterion, and specsim's audit at `level`, on every verifier.

    `exact` are verifiers that must pass, and come first. Each pair is run with the first `criterion.repeats` of
    `seeds`; a run's random numbers depend on criterion and seed alone, so that all verifiers meet the same p and q, and
    adding one changes no other. An exception in a run is a failure. `decoder_audit` is run on the `decode` of each
    mutant that has no `verify`, declared to be a decoder. `tv` computes what stands beside each row, by default
    `exact_tv`.

    Raises ValueError where two rows share a name, or there are no seeds.
    """
    subjects = [*exact, *mutants]
    names = [subject.name for subject in subjects]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"mutants: {', '.join(sorted(doubled))} more than once; each row needs a name of its own"
        )
    if not seeds:
        raise ValueError("seeds: none given, so there would be no runs")
    started = time.perf_counter()
    own = audit_criterion(level)
    cells: list[Cell] = []
    for done, subject in enumerate(subjects, 1):
        if subject.verify is not None:
            verifier = partial(subject.verify, **subject.values)
            cells += [_cell(subject.name, verifier, one, seeds) for one in (*criteria, own)]
        elif decoder_audit is not None:
            decoder = declares(decoder=True)(partial(subject.decode, **subject.values))  # type: ignore[attr-defined]
            cells.append(_cell(subject.name, decoder, decoder_audit, seeds))
        if progress is not None:
            progress(done, len(subjects))
    return KillMatrix(
        rows=tuple(_row(subject, i < len(exact), tv or exact_tv) for i, subject in enumerate(subjects)),
        columns=tuple(Column(one.name, one.source, one.about) for one in (*criteria, own)),
        cells=tuple(cells),
        level=level,
        provenance=Provenance.record(seeds[0], 1, time.perf_counter() - started),
    )


def audit_criterion(level: str = "quick") -> Criterion:
    """specsim's audit as a criterion: it passes unless the verdict is biased or broken."""

    def passes(verifier: Verifier, rng: np.random.Generator) -> bool:
        return audit(verifier, level, rng, fail_fast=True, diagnose=False).verdict not in (
            Verdict.BIASED,
            Verdict.BROKEN,
        )

    about = f"all cases at level {level}, every position and prefix: verdict neither biased nor broken"
    return Criterion(AUDIT, "specsim.audit", about, passes, 1)


def exact_tv(mutant: Any) -> float | None:
    """The largest total variation between the law of a next token and the target's, at any position of two drafts.

    Enumerated in fractions where p is `PAIR` and q the same reversed, from the mutant's own `law`; None without one.
    """
    if getattr(mutant, "law", None) is None or mutant.verify is None:
        return None
    target, draft = TableModel(PAIR), TableModel(PAIR[::-1])
    law = step_law(mutant, target, draft, chain(2))
    p = target_law(target, 1)
    gaps = [
        sum(abs(nexts.get((x,), Fraction(0)) - p[x,]) for x in range(len(PAIR)))
        for _, nexts in conditional_laws(law)
    ]
    return float(max(gaps)) / 2.0


def _row(subject: Mutant, exact: bool, tv: Callable[[Any], float | None]) -> Row:
    return Row(
        name=subject.name,
        family=subject.family,
        mechanism=subject.mechanism,
        threads=tuple(subject.threads),
        exact=exact,
        decoder=subject.verify is None,
        tv=tv(subject),
    )


def _cell(row: str, function: Verifier, criterion: Criterion, seeds: Sequence[int]) -> Cell:
    stream = crc32(criterion.name.encode())
    runs = seeds[: criterion.repeats]
    passed = sum(_passes(criterion, function, np.random.default_rng([stream, seed])) for seed in runs)
    return Cell(row, criterion.name, passed, len(runs))


def _passes(criterion: Criterion, verifier: Verifier, rng: np.random.Generator) -> bool:
    try:
        return bool(criterion.passes(verifier, rng))
    except MemoryError:  # this machine's, not the verifier's
        raise
    except Exception:  # the verifier's own, or that of a comparison with what it returned: the test is red
        return False
