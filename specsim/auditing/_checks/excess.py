"""Which tokens of a table are too frequent: accepted ones, recovered ones, or the bonus.

A step of n tokens has n - 1 accepted ones, and one more that ends it. However an exact verifier accepts, it
does not accept a token more often than the law has it emitted, since the tokens that end steps only add to
that. What accepted tokens alone have above the law is their part of the excess, and the rest is that of the
tokens that end steps, if a cell does not mix tokens that may be accepted with others. This describes a table
that deviates, and tests nothing: accepting less is no mistake.
"""

import numpy as np

from specsim.auditing._cases.battery import Case
from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks.counts import ENDS
from specsim.auditing._checks.tables import Table
from specsim.core._types import Floats, Ints
from specsim.simulation._counting import Counts

ACCEPTED, RECOVERED, BONUS = "accepted", "recovered", "bonus"
#: The share of the evidence from which on it is said to be in tokens of one kind.
MOST = 2 / 3


def excess_kind(table: Table, counts: Counts, case: Case | ShapesCase | DecoderCase) -> str | None:
    """The kind of token that is too frequent in a table; None if its counts do not tell."""
    if not isinstance(case, Case) or ENDS + table.source not in counts:
        return None
    kind = _ends_as(case, table.position)
    if kind == BONUS:
        return kind
    observed, ended = table.counts(counts), table.merged(counts[ENDS + table.source].reshape(-1))
    expected = observed.sum() * table.law
    evidence = _evidence(observed, expected, table.law)
    share = _evidence(observed - ended, expected, table.law) / evidence if evidence > 0.0 else 0.5
    if share >= MOST:
        return ACCEPTED
    # other bins add up tokens that an exact verifier accepts in full and tokens that it does not
    alike = table.kind == "prefix" or (table.kind == "PIT" and case.is_pair)
    return kind if alike and share <= 1.0 - MOST else None


def in_words(kind: str) -> str:
    return "every token there is a bonus" if kind == BONUS else f"most of the excess is in {kind} tokens"


def _evidence(counts: Ints, expected: Floats, law: Floats) -> float:
    """The squared excess of all cells in standard deviations, less what chance adds to it."""
    excess = np.maximum(counts - expected, 0.0) ** 2 / (expected * (1.0 - law))
    return float(excess.sum() - len(law) / 2.0)


def _ends_as(case: Case, position: int) -> str:
    """What ends a step at that position: a bonus below a drafted token without others below, else a recovered
    token."""
    if position == case.gamma:
        return BONUS
    tree = case.tree
    here = [node for node, depth in enumerate(tree.depths) if depth == position]
    short = case.uneven or not all(tree.children(node) for node in here)
    return f"{RECOVERED} or {BONUS}" if short else RECOVERED
