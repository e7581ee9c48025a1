"""The values that the other printed numbers of a table allow each of its numbers.

A printed number is the interval of what rounds to it, and a closed form, monotone in each of a few unknowns,
says what it is. The unknowns that all the numbers allow are found by interval propagation: each number in
turn narrows each of its unknowns, by bisection, to what the others' intervals leave possible. The intervals
can be too wide, where an unknown occurs in several numbers, and are never too narrow; so "disjoint" is
certain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

Interval = tuple[float, float]
#: The interval of each unknown.
Box = Mapping[str, Interval]

#: Narrowing continues while an interval loses more than this part of its length.
GAIN = 1e-3
#: How closely ends of intervals are found.
PRECISION = 1e-10
#: What rounding errors of the closed forms may amount to.
SLACK = 1e-9


def same(value: float) -> float:
    """The closed form of a number that is itself an unknown."""
    return value


@dataclass(frozen=True)
class Cell:
    """A printed number: its `name`, the `row` of the table that it is in, the `interval` of what rounds to
    it, and the closed form, which must be monotone in each of its unknowns."""

    name: Any
    row: str
    interval: Interval
    unknowns: tuple[str, ...]
    function: Callable[..., float] = same


@dataclass(frozen=True)
class Finding:
    """What the others allow a cell, and the rows that contradict it, each with what it allows."""

    cell: Cell
    allowed: Interval
    disjoint: dict[str, Interval]


def narrowed(cells: Sequence[Cell], box: Box) -> dict[str, Interval] | None:
    """`box` without what the cells rule out; None where nothing is left.

    >>> cells = [Cell("tokens", "LM1B", (3.2, 3.3), ("t",)),
    ...          Cell("speed", "LM1B", (2.1, 2.2), ("t", "c"), lambda t, c: t / c)]
    >>> found = narrowed(cells, {"t": (1.0, 9.0), "c": (1.0, 9.0)})
    >>> [round(end, 3) for end in found["c"]]
    [1.455, 1.571]
    """
    left = dict(box)
    changed = True
    while changed:
        changed = False
        for cell in cells:
            for unknown in cell.unknowns:
                low, high = left[unknown]
                found = _fitting(cell, unknown, left)
                if found is None:
                    return None
                changed |= (high - low) - (found[1] - found[0]) > GAIN * (high - low)
                left[unknown] = found
    return left


def allowed(cell: Cell, others: Sequence[Cell], box: Box) -> Interval | None:
    """The values of `cell` that `others` leave possible; None where they contradict each other.

    >>> cells = [Cell("a", "1", (2.0, 3.0), ("x",)), Cell("b", "2", (7.0, 8.0), ("x",), lambda x: 2 * x)]
    >>> [round(end, 6) for end in allowed(cells[1], cells[:1], {"x": (0.0, 10.0)})]
    [4.0, 6.0]
    """
    left = narrowed(others, box)
    return None if left is None else _image(cell, left)


def judge(cell: Cell, others: Sequence[Cell], box: Box) -> Finding:
    """What the other numbers allow a cell, and the rows that contradict it.

    Only numbers count that unknowns connect to the cell. A row contradicts the cell if it rules it out
    together with the cell's own row. Where the others contradict each other, `allowed` is the interval over
    what each of the other rows allows.

    >>> rows = [Cell("a", "1", (2.0, 3.0), ("x",)), Cell("b", "2", (2.5, 4.0), ("x",)),
    ...         Cell("c", "3", (5.0, 6.0), ("x",))]
    >>> list(judge(rows[0], rows[1:], {"x": (0.0, 10.0)}).disjoint)
    ['3']
    >>> judge(rows[0], rows[1:2], {"x": (0.0, 10.0)}).disjoint
    {}
    """
    others = _connected(cell, others)
    alone = {
        row: allowed(cell, [other for other in others if other.row in (cell.row, row)], box)
        for row in dict.fromkeys(other.row for other in others)
    }
    known = {row: found for row, found in alone.items() if found is not None}
    disjoint = {row: found for row, found in known.items() if not _meet(cell.interval, found)}
    if cell.row in disjoint:  # what its own row rules out, each row does that is taken together with it
        disjoint = {cell.row: disjoint[cell.row]}
    together = allowed(cell, others, box)
    if together is None:
        ends = [found for row, found in known.items() if row != cell.row] or list(known.values())
        if not ends:
            raise ValueError(
                f"judge: row {cell.row} contradicts itself without {cell.name}; judge its others"
            )
        together = min(low for low, _ in ends), max(high for _, high in ends)
    elif not (disjoint or _meet(cell.interval, together)):
        disjoint = {"the other rows together": together}
    return Finding(cell, together, disjoint)


def _connected(cell: Cell, others: Sequence[Cell]) -> list[Cell]:
    reached, before = set(cell.unknowns), -1
    found: list[Cell] = []
    while len(found) > before:
        before = len(found)
        found = [other for other in others if reached & set(other.unknowns)]
        reached.update(*(other.unknowns for other in found))
    return found


def _meet(one: Interval, other: Interval) -> bool:
    return one[0] <= other[1] + SLACK and other[0] <= one[1] + SLACK


def _image(cell: Cell, box: Box) -> Interval:
    """All values of the closed form: at corners, since it is monotone."""
    ends = (dict.fromkeys(box[unknown]) for unknown in cell.unknowns)
    values = [cell.function(*corner) for corner in product(*ends)]
    return min(values), max(values)


def _fitting(cell: Cell, unknown: str, box: Box) -> Interval | None:
    """The part of the unknown's interval where, for some of the others, the cell has a value it can have."""
    low, high = box[unknown]

    def at(value: float) -> Interval:
        return _image(cell, {**box, unknown: (value, value)})

    start, end = at(low), at(high)
    if not _meet(cell.interval, (min(start[0], end[0]), max(start[1], end[1]))):
        return None
    # on the side of `low`, values are too small where the form rises in the unknown, else too large
    rises = start[0] + start[1] <= end[0] + end[1]

    def above_low(value: float) -> float:
        return at(value)[1] - cell.interval[0]

    def below_high(value: float) -> float:
        return cell.interval[1] - at(value)[0]

    first, last = (above_low, below_high) if rises else (below_high, above_low)
    return _edge(high, low, first), _edge(low, high, last)


def _edge(inside: float, outside: float, room: Callable[[float], float]) -> float:
    """The end on the side of `outside` of where there is room, around `inside`, rounded outward."""
    from scipy.optimize import brentq  # imported here: scipy.optimize is slow to load

    if room(outside) >= -SLACK:
        return outside
    found = float(brentq(lambda value: room(value) + SLACK, inside, outside, xtol=PRECISION))
    step = 2 * PRECISION + 1e-14 * abs(found)
    return max(found - step, outside) if outside < inside else min(found + step, outside)
