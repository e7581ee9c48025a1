"""What is wrong where no known mistake fits, as far as the tests show it, and where in the code to look.

In the diagnostic cases each part of a step is compared with that of the exact verifier that has most of them,
and nothing is said unless each is clearly wrong or right. What is right there shows in the cases, and the
shapes of calls, that failed."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from specsim.auditing._cases.battery import Case
from specsim.auditing._diagnosis.likelihood import Prediction, fit
from specsim.auditing._diagnosis.reproduction import Audited, predict
from specsim.auditing._results.audit import CALLS, TableResult
from specsim.core._files import read_table
from specsim.core._types import Ints
from specsim.mistakes import Mistake

#: p-values below which a part is wrong, and above which it is right, and the fewest counts of it.
WRONG, RIGHT, ENOUGH = 1e-9, 1e-3, 1000
#: A sentence, and where to look; both empty where nothing is shown.
Family = tuple[str, str]
NOTHING: Family = ("", "")
TESTS, RECOVERED, BONUS = PARTS = ("the tests of drafted tokens", "the token after a rejection", "the bonus")
#: Where to look by the axis of the shapes of calls, and by the parts that are wrong.
OF_AXES, OF_PARTS = (read_table("diagnosis")[name] for name in ("axes", "parts"))
#: Where steps are right if p and q are the same, by whether only rows of a call that differ are wrong; and
#: where the tests are right, and the last token depends on drafted ones; of lengths; of rows so far apart.
*OF_ROWS, SHARED, OF_LENGTHS, OF_PAIRS = map(tuple, read_table("diagnosis")["families"])
#: The table of a pair of rows, and the log10 e-value from which on it is clear.
PAIRED, CLEAR = re.compile("the (?:first tokens|bonuses) of (rows .*?)( in a call)?( with .*)?, ordered"), 4.0


def of_steps(seen: Sequence[tuple[Case, Ints]], exact: Sequence[Mistake]) -> Family:
    """What is wrong in the diagnostic cases, from the outcomes that were counted there."""
    pairs = [one for one in seen if one[0].is_pair and not one[0].rotated]
    found = [(_parts(pairs, one), one) for one in exact]
    not_right = [[part for part, p in parts.items() if not p > RIGHT] for parts, _ in found]
    nearest = [i for i, some in enumerate(not_right) if len(some) == min(map(len, not_right))]
    (parts, best), wrong = found[nearest[0]], not_right[nearest[0]]
    if any(not parts[part] < WRONG for part in wrong) or any(not_right[i] != wrong for i in nearest):
        return NOTHING
    if wrong == [RECOVERED, BONUS] and all(_depends(pairs, bonus) for bonus in (False, True)):
        return SHARED
    if where := OF_PARTS.get(" and ".join(wrong)):
        than = "" if best is exact[0] else f" Compared with {best.name}."
        right = " and ".join(part for part in PARTS if part not in wrong)
        return f"Wrong in small cases: {' and '.join(wrong)}. Right there: {right}.{than}", where
    for rotated in (False, True) if not wrong else ():
        parts = _parts([one for one in seen if one not in pairs and one[0].rotated is rotated], best)
        if any(p < WRONG for p in parts.values()):
            return OF_ROWS[rotated]
    return NOTHING


def _parts(cases: Sequence[tuple[Case, Ints]], exact: Mistake) -> dict[str, float]:
    """The p-value of each part of a step under an exact verifier, nan where it has few counts."""
    tables: dict[str, list[tuple[Prediction, Ints]]] = {part: [] for part in PARTS}
    for case, counts in cases:
        prediction: Any = predict(exact, case)
        both = [one.reshape(len(one), -1, case.vocab_size) for one in (prediction.law, counts)]
        for part, *pair in zip(PARTS, *((one.sum(2), one[:, :-1], one[:, -1]) for one in both), strict=True):
            law, here = (each.reshape(-1, each.shape[-1]) for each in pair)
            some = (law.sum(axis=1) > 0.0) & (here.sum(axis=1) > 0)
            tables[part].append((Prediction(law[some] / law[some].sum(axis=1, keepdims=True)), here[some]))
    count = {part: sum(int(counts.sum()) for _, counts in some) for part, some in tables.items()}
    return {part: fit(some) if count[part] >= ENOUGH else np.nan for part, some in tables.items()}


def _depends(cases: Sequence[tuple[Case, Ints]], bonus: bool) -> bool:
    """Whether the bonus depends on the token before it, or else a recovered one on that first rejected."""
    for case, counts in cases:
        size = case.vocab_size
        first, last = (counts.reshape(*some, case.gamma + 1, size) for some in ((size, -1), (-1, size)))
        table = last[:, :, -1].sum(axis=0) if bonus else first[:, :, 0].sum(axis=1)
        table = table[table.sum(axis=1) >= ENOUGH][:, table.sum(axis=0) >= ENOUGH]
        if min(table.shape) > 1 and scipy.stats.chi2_contingency(table).pvalue < WRONG:
            return True
    return False


def of_cases(audited: Audited) -> Family:
    """For which cases or shapes of calls steps are wrong that are right in the diagnostic cases."""
    failed = sorted(audited.failed, key=lambda one: -one.largest_log10_e)
    passed = [one.vocab_size for one in audited.results if not one.findings and one.powerful]
    if all(getattr(audited.subject.case(one.case), "uneven", False) for one in failed):
        return OF_LENGTHS
    if passed and (least := min(one.vocab_size for one in failed)) > max(passed):
        return f"Steps are wrong from {least:,} ids on, right up to {max(passed):,}.", OF_AXES["vocabulary"]
    families = (_of_axes(one.tables) for one in failed if one.kernel == CALLS)
    return next((one for one in families if one != NOTHING), NOTHING)


def of_pairs(audited: Audited) -> Family:
    """How far apart in calls of changing shape those rows are that depend on each other most clearly."""
    tables = [table for one in audited.failed for table in one.tables]
    pairs = [(one.log10_e, found[1]) for one in tables if (found := PAIRED.match(one.where))]
    clear = [where for log10_e, where in pairs if log10_e > max(CLEAR, max(pairs)[0] / 2.0)]
    said, where = OF_PAIRS
    return (said.format(" and ".join(dict.fromkeys(clear))), where) if clear else NOTHING


def _of_axes(tables: Sequence[TableResult]) -> Family:
    """The axis with values that are wrong, and others that would have shown a deviation as large."""
    found: dict[str, dict[str, list[TableResult]]] = {axis: defaultdict(list) for axis in OF_AXES}
    for table in tables:
        axis, _, value = table.where.partition("; tokens")[0].partition(": ")
        found.get(axis, defaultdict(list))[value].append(table)
    for axis, values in found.items():
        wrong = {value: max(gaps) for value, some in values.items() if (gaps := _rejected(some))}
        right = [one.detectable_tv for value, some in values.items() if value not in wrong for one in some]
        if wrong and right and max(right) < min(wrong.values()):
            return f"Of '{axis}' steps are wrong for these alone: {', '.join(wrong)}.", OF_AXES[axis]
    return NOTHING


def _rejected(tables: Sequence[TableResult]) -> list[float]:
    gaps = (np.abs(np.subtract(one.observed, one.expected)).sum() / one.n for one in tables if one.rejected)
    return [float(gap) / 2.0 for gap in gaps]
