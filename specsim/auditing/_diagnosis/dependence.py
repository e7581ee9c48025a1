"""Which steps of a verifier depend on each other: the signature of shared random numbers.

In many pairs of small calls, how often do two first tokens agree that should be independent: in a call, or in
two? One case has a random recovered token, one a random acceptance, and in one every row has its own labels,
so that a token copied from another row is not one drawn with its random numbers."""

import numpy as np

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.battery import BITS, Case, battery
from specsim.auditing._diagnosis.likelihood import Prediction
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.requests import Callee
from specsim.core.distributions import dyadic
from specsim.models import TableModel, chain

CASES = ("disjoint", "one-hot draft")
#: p of the rows with labels of their own; q has the same probabilities at other tokens.
OWN = (0.4, 0.3, 0.2, 0.1)
#: Rows of a call, and pairs of rows of two calls: neighbours, further apart, same place in the other call.
ROWS = 4
PAIRS = ((0, 1), (0, 2), (0, ROWS))
ROUNDS, KEY = 600, (0x5EED, 0x5A1E)
#: Calls of a known mistake have so many times the rows. Each four of them give a signature: where random
#: numbers are the same in every call, agreement within a call depends on which numbers they are.
VERSIONS = 4

#: By case and pair: how many pairs agree, and how many do not.
Signature = dict[tuple[str, tuple[int, int]], tuple[int, int]]


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
            one, other = first[:, 0, version], first[:, 1, version]
            both = np.concatenate([one, other], axis=1)
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
    cases = [case for case in battery(declared) if case.name in CASES]
    if declared.vocab_size and declared.vocab_size < 2 * len(OWN):
        return cases
    dtype, none = declared.dtypes[0], [0.0] * len(OWN)
    target, draft = (TableModel(dyadic(row, BITS[dtype])) for row in ([*OWN, *none], [*none, *OWN]))
    purpose = "each row of a call has its own p and q"
    return [*cases, Case("own disjoint rows", purpose, target, draft, chain(1), rotated=True, dtype=dtype)]
