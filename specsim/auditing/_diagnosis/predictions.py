"""The prediction of each known mistake for the outcomes of a diagnostic case, given the drafted path.

The prediction is exact from the mistake's law; where it has none, it is run."""

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.battery import Case
from specsim.auditing._checks.outcomes import OutcomeTally, path_of
from specsim.auditing._diagnosis.likelihood import Prediction
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.local import Local
from specsim.core._types import Floats, Ints, Tokens
from specsim.mistakes import Mistake
from specsim.simulation._counting import run

#: Steps and key of a mistake that is run.
SIMULATED_STEPS, SIMULATION_KEY = 2**16, (0x5EED, 0xD1A6)
#: Largest difference of two laws that are the same.
ROUNDING = 1e-9

Rows = list[list[float]]


@lru_cache(maxsize=2**14)  # each round of a diagnosis fits the parameters on the same grids
def predict(mistake: Mistake, case: Case) -> Prediction | None:
    """The prediction of `mistake` for `case`; None if it breaks the contract."""
    if mistake.law is None:
        source: Any = VerifierSource(Local(mistake.function, Declared()), case)
        try:
            found = run(source, OutcomeTally(case), SIMULATION_KEY, 0, SIMULATED_STEPS, threads=1)
        except (BrokenVerifier, NotADraftPath):
            return None
        return Prediction.simulated(flat(found.counts["outcomes"]))
    if case.rotated and _reads_labels(mistake, case):
        shifts = list(product(range(case.target.vocab_size), repeat=case.gamma + 1))
        return Prediction(np.mean([_law(mistake, case, shift) for shift in shifts], axis=0))
    return Prediction(_law(mistake, case))


def flat(outcomes: Ints) -> Ints:
    """Outcomes [V^γ, γ+1, V] as groups, one for each drafted path, of cells."""
    return outcomes.reshape(len(outcomes), -1)


def _law(mistake: Mistake, case: Case, shift: Tokens | None = None) -> Floats:
    """The law [V^γ, (γ+1)·V] of outcomes given the path, where row i is relabelled by shift[i]."""
    assert mistake.law is not None
    size, gamma = case.target.vocab_size, case.gamma
    law = np.zeros((size**gamma, gamma + 1, size))
    for code, path, p, q in _draft_paths(case):
        given = (path, p, q) if shift is None else _relabelled(path, p, q, shift)
        stop, follow = mistake.law(case.tree.parents, *given, **mistake.values)
        rows = np.array(follow, dtype=np.float64)
        if shift is not None:
            rows = np.array([np.roll(row, -turn) for row, turn in zip(rows, shift, strict=True)])
        law[code] = np.array(stop, dtype=np.float64)[:, None] * rows
    return np.clip(law, 0.0, None).reshape(len(law), -1)


def _relabelled(path: Tokens, p: Rows, q: Rows, shift: Tokens) -> tuple[Tokens, Rows, Rows]:
    """Token x of row i is called x + shift[i]."""
    size = len(p[0])
    p, q = ([np.roll(row, turn).tolist() for row, turn in zip(rows, shift, strict=False)] for rows in (p, q))
    return tuple((x + turn) % size for x, turn in zip(path, shift, strict=False)), p, q


@lru_cache(maxsize=2**9)
def _reads_labels(mistake: Mistake, case: Case) -> bool:
    """Whether the law changes, but for names, if the tokens are renamed."""
    plain, size = _law(mistake, case), case.target.vocab_size
    turns = (tuple((k * (i + 1)) % size for i in range(case.gamma + 1)) for k in (1, size - 1))
    return any(not np.allclose(plain, _law(mistake, case, turn), atol=ROUNDING) for turn in turns)


@lru_cache(maxsize=16)
def _draft_paths(case: Case) -> list[tuple[int, Tokens, Rows, Rows]]:
    """Every path that the draft can draw: its code, its tokens, and the rows of p and q along it."""
    size, gamma = case.target.vocab_size, case.gamma
    start, found = tuple(case.contexts[0].tolist()), []
    for code in range(size**gamma):
        path = path_of(code, size, gamma)
        p, q = (
            [[float(weight) for weight in model.row(start + path[:i])] for i in range(count)]
            for model, count in ((case.target, gamma + 1), (case.draft, gamma))
        )
        if all(row[x] > 0 for row, x in zip(q, path, strict=True)):
            found.append((code, path, p, q))
    return found
