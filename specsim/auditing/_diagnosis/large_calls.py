"""The diagnostic cases in large calls, for a verifier that goes wrong there alone.

The tokens of a case become ids that are spread over a large vocabulary, whose other ids have no mass: the law
of a step is that of the small case, and the call has the shape of those that failed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case
from specsim.auditing._checks.outcomes import OutcomeTally
from specsim.auditing._diagnosis.reproduction import Audited, count_steps, flat
from specsim.auditing._results.audit import CALLS
from specsim.auditing._verifier.arrays import read_tokens
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.requests import RowsAsked
from specsim.core._types import Ints, TokenArray

#: The cases, and the most steps of each, and ids in one row of all its steps; those of cases in small calls.
CASES, STEPS, IDS, FURTHER_STEPS = ("diagnosis, zeros", "diagnosis, moving rows"), 2**12, 2**27, 2**17
#: The most numbers in p and q of a call, as in the cases of a server, and those of a step for each id.
NUMBERS, OF_A_STEP = 10**8, 7
#: The key of their random numbers.
KEY = (0x5EED, 0x1A46)


@dataclass(frozen=True)
class LargeCalls(VerifierSource):
    """The steps of a small case of chains, in calls of `rows` rows over `ids` ids."""

    rows: int = 1
    ids: int = 0

    @cached_property
    def places(self) -> Ints:
        """The id of each token of the case."""
        size = self.case.vocab_size
        return np.arange(size) * (self.ids // size) + self.ids // (2 * size)

    def rows_of_a_call(self, steps: int) -> int:
        return min(self.rows, self.declared.batch or self.rows, steps)

    def _asked(self, rows: Any, *given: Any) -> RowsAsked:
        asked = super()._asked(rows, *given)
        asked.arrays["draft_tokens"] = self.places[rows.draft_tokens]
        return asked

    def _bank(self, name: str, p: NDArray[Any] | None, q: NDArray[Any]) -> dict[str, NDArray[Any]]:
        if name not in self.banks:
            small = super()._bank(name, p, q)
            large = {of: np.zeros((len(array), self.ids), array.dtype) for of, array in small.items()}
            for of, array in small.items():
                large[of][:, self.places] = array
            self.banks[name] = large
        return self.banks[name]

    def _read(self, asked: RowsAsked, rows: Any) -> tuple[TokenArray, Ints]:
        tokens = np.full(self.ids + 1, self.case.vocab_size)  # an id without mass is no token
        tokens[self.places], tokens[-1] = np.arange(self.case.vocab_size), -1
        answers = [tokens[answer.clip(-1, self.ids - 1)] for answer in self.callee.read(asked)]
        lengths = asked.arrays.get("lengths")
        return read_tokens(answers, rows.draft_tokens, lengths, self.case.vocab_size, asked.first)


def shape_that_failed(audited: Audited) -> tuple[int, int] | None:
    """(rows of a call, ids) where the tests are clearest, as many rows as fit; None without any."""
    failed = [one for one in audited.failed if one.kernel == CALLS]
    for axis in ("calls", "rows of a call"):
        found = [
            (table.log10_e, [int(number.replace(",", "")) for number in numbers], one.vocab_size)
            for one in failed
            for table in one.tables
            if table.where.startswith(f"{axis}: ")
            and (numbers := re.findall(r"\d[\d,]*", table.where.partition(";")[0]))
        ]
        if found:
            _, numbers, ids = max(found)
            rows, ids = (numbers[0], numbers[1]) if axis == "calls" else (numbers[-1], ids)
            return max(1, min(rows, NUMBERS // (OF_A_STEP * ids))), ids
    return None


def outcomes_of(
    audited: Audited, cases: Sequence[Case], rows: int = 0, ids: int = 0
) -> list[tuple[Case, Ints]]:
    """The cases with the counts of their outcomes, in calls of that shape if one is given.

    Empty if the verifier breaks the contract in one."""
    subject, seen = audited.subject, list[tuple[Case, Ints]]()
    for case in cases:
        audited.in_time()
        source, steps = VerifierSource(subject.callee, case, subject.timeout), FURTHER_STEPS
        if ids:
            source = LargeCalls(subject.callee, case, subject.timeout, rows=rows, ids=ids)
            steps = max(rows, min(STEPS, IDS // ids))
        if (counts := count_steps(source, OutcomeTally(case), KEY, steps)) is None:
            return []
        seen.append((case, flat(counts["outcomes"])))
    return seen
