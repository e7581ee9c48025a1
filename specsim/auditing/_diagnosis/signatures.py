"""Which steps depend on each other: the signature of shared random numbers.

In many pairs of small calls, how often do two first tokens agree that should be independent, in a call, or in
two? One case has a random recovered token, one a random acceptance, and in one every row has its own labels,
so that a token copied from another row is not one drawn with its random numbers."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.battery import BITS, Case, battery, fixed_case
from specsim.auditing._diagnosis.likelihood import Prediction
from specsim.auditing._verifier.calls import TIMEOUT, VerifierSource
from specsim.auditing._verifier.local import Local
from specsim.auditing._verifier.requests import Callee
from specsim.core._files import read_text
from specsim.mistakes import Mistake, catalogue

CASES = ("disjoint", "one-hot draft")
#: Rows of a small call, and pairs of rows of two: neighbours, further apart, same place in the other call.
ROWS = 4
PAIRS = ((0, 1), (0, 2), (0, ROWS))
ROUNDS, KEY = 600, (0x5EED, 0x5A1E)
#: Calls of a known mistake have this many times the rows. Every four rows give a signature of their own.
#: Where all calls have the same random numbers, agreement within a call depends on which numbers they are.
#: Calls of as few rows are seen too, for a mistake that depends on the rows of a call.
VERSIONS = 4

#: By case and pair: how many pairs agree, and how many do not.
Signature = dict[tuple[str, tuple[int, int]], tuple[int, int]]
#: The numbers of pairs that agree in the signatures of the known mistakes without a law.
KEPT = Path(__file__).parents[2] / "data/signatures.json"


@cache
def signatures_of(mistake: Mistake) -> list[Signature]:
    """Those of a known mistake, kept or computed."""
    if (kept := json.loads(read_text(KEPT)).get(str(mistake))) is None:
        return computed(mistake)
    names = [(case.name, pair) for case in _cases(Declared()) for pair in PAIRS]
    return [{name: (n, ROUNDS - n) for name, n in zip(names, one, strict=True)} for one in kept]


def computed(mistake: Mistake) -> list[Signature]:
    callee = Local(mistake.function, Declared())
    return [*signatures(callee, TIMEOUT, VERSIONS), *signatures(callee, TIMEOUT)]


def keep() -> None:
    """Compute and write what `signatures_of` reads."""
    without_law = [one for one in catalogue() if one.verify is not None and one.law is None]
    found = {str(one): [[n for n, _ in each.values()] for each in computed(one)] for one in without_law}
    KEPT.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


def signatures(callee: Callee, timeout: float, versions: int = 1) -> list[Signature]:
    """How often tokens of pairs agree in `ROUNDS` pairs of calls, for each four rows; none if it breaks."""
    found: list[Signature] = [{} for _ in range(versions)]
    size = versions * ROWS
    for case in _cases(callee.declared):
        calls = VerifierSource(callee, case, timeout)
        rows = calls.reader.rows(KEY, 0, ROUNDS * 2 * size)
        try:
            first = calls.verify(rows, KEY, 0, size)[0][0].reshape(ROUNDS, 2, versions, ROWS)
        except (BrokenVerifier, NotADraftPath):
            return []
        for version, signature in enumerate(found):
            both = first[:, :, version].reshape(ROUNDS, 2 * ROWS)
            for i, j in PAIRS:
                agree = int((both[:, i] == both[:, j]).sum())
                signature[case.name, (i, j)] = agree, ROUNDS - agree
    return [signature for signature in found if signature]


def independent(declared: Declared) -> Prediction:
    """The law of agreement of exact and independent steps, in the order of `signatures`."""
    chances = [
        1.0 / case.target.vocab_size if case.rotated else float((np.asarray(case.target.row(())) ** 2).sum())
        for case in _cases(declared)
    ]
    return Prediction(np.array([[chance, 1.0 - chance] for chance in chances for _ in PAIRS]))


def _cases(declared: Declared) -> list[Case]:
    cases, dtype = [case for case in battery(declared) if case.name in CASES], declared.dtypes[0]
    own = replace(fixed_case("own disjoint rows", BITS[dtype]), dtype=dtype)
    return cases if declared.vocab_size and declared.vocab_size < own.vocab_size else [*cases, own]
