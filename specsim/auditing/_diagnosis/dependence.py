"""Which steps of a verifier depend on each other: the signature of shared random numbers.

In many pairs of small calls of four rows, how often do two first tokens agree that should be independent:
neighbours in a call, rows further apart, and rows at the same place of two calls? One case has a random
recovered token, the other a random acceptance."""

import numpy as np

from specsim.auditing._cases.battery import battery
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath
from specsim.auditing._verifier.requests import Callee

CASES = ("disjoint", "one-hot draft")
#: Rows of two calls of four: neighbours, further apart, same place in the other call.
PAIRS = ((0, 1), (0, 2), (0, 4))
ROUNDS, ROWS, KEY = 400, 8, (0x5EED, 0x5A1E)
#: Standard errors of a significant excess.
CLEAR = 7.0

#: By case and pair.
Signature = dict[tuple[str, tuple[int, int]], bool]


def signature(callee: Callee, timeout: float) -> Signature | None:
    """For each case and pair, whether they agree more often than two independent draws.

    None for a broken contract, and where the verifier's vocabulary is too small for all of these cases."""
    found: Signature = {}
    for case in (case for case in battery(callee.declared) if case.name in CASES):
        calls = VerifierSource(callee, case, timeout)
        firsts = []
        try:
            for k in range(ROUNDS):
                rows = calls.reader.rows(KEY, ROWS * k, ROWS)
                firsts.append(calls.verify(rows, KEY, ROWS * k)[0][0])
        except (BrokenVerifier, NotADraftPath):
            return None
        tokens = np.array(firsts)
        law = np.bincount(tokens.ravel(), minlength=case.target.vocab_size) / tokens.size
        chance = float((law**2).sum())
        error = np.sqrt(max(chance * (1.0 - chance), 1e-12) / ROUNDS)
        for i, j in PAIRS:
            agree = (tokens[:, i] == tokens[:, j]).mean()
            found[case.name, (i, j)] = bool(agree > chance + CLEAR * error)
    return found or None
