"""The prediction of each known mistake for the outcomes of a diagnostic case, given the drafted path.

The prediction is exact from the mutant's law, or simulated if the law depends on other rows or on token
labels."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from specsim.auditing._cases.battery import Case
from specsim.auditing._diagnosis.outcomes import OutcomeTally, path_of
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._verifier.local import Local
from specsim.auditing.mutants import Mutant
from specsim.core._types import Floats, Ints
from specsim.models import Model
from specsim.simulation._counting import run

#: Steps and key of a mutant that is simulated.
SIMULATED_STEPS, SIMULATION_KEY = 2**16, (0x5EED, 0xD1A6)


@dataclass(frozen=True)
class Prediction:
    """The law [V^γ, γ+1, V] of outcomes given the path; `draws` [V^γ]: steps of each path, if simulated."""

    law: Floats
    draws: Ints | None = None


@lru_cache(maxsize=2**13)  # each round of a diagnosis fits the parameters on the same grids
def predict(mutant: Mutant, case: Case) -> Prediction | None:
    """The prediction of `mutant` for `case`; None if it breaks the contract."""
    if mutant.law is None or case.rotated:
        try:
            counts = _outcomes(mutant, case, SIMULATED_STEPS)
        except (BrokenVerifier, NotADraftPath):
            return None
        draws = counts.sum(axis=(1, 2))
        return Prediction(counts / np.maximum(draws, 1)[:, None, None], draws)
    size, gamma = case.target.vocab_size, case.gamma
    law = np.zeros((size**gamma, gamma + 1, size))
    for code, path, p, q in _draft_paths(case):
        stop, follow = mutant.law(case.tree.parents, path, p, q, **mutant.values)
        law[code] = np.array(stop, dtype=np.float64)[:, None] * np.array(follow, dtype=np.float64)
    return Prediction(np.clip(law, 0.0, None))


def leaves_the_path(mutant: Mutant, case: Case) -> bool:
    """Whether `mutant` emits tokens that were not drafted, before the last."""
    try:
        _outcomes(mutant, case, 2**10)
    except NotADraftPath:
        return True
    except BrokenVerifier:
        pass
    return False


@lru_cache(maxsize=16)
def _draft_paths(case: Case) -> list[tuple[int, tuple[int, ...], list[list[float]], list[list[float]]]]:
    """Every path that the draft can draw: its code, its tokens, and the rows of p and q along it."""
    size, gamma = case.target.vocab_size, case.gamma
    start, found = tuple(case.contexts[0].tolist()), []
    for code in range(size**gamma):
        path = path_of(code, size, gamma)
        p, q = (
            [_row(model, start + path[:i]) for i in range(count)]
            for model, count in ((case.target, gamma + 1), (case.draft, gamma))
        )
        if all(row[x] > 0 for row, x in zip(q, path, strict=True)):
            found.append((code, path, p, q))
    return found


def _row(model: Model, history: tuple[int, ...]) -> list[float]:
    return [float(weight) for weight in model.row(history[len(history) - model.order :])]


def _outcomes(mutant: Mutant, case: Case, steps: int) -> Ints:
    source = VerifierSource(Local(mutant.function, Declared()), case)
    return run(source, OutcomeTally(case), SIMULATION_KEY, 0, steps, threads=1).counts["outcomes"]
