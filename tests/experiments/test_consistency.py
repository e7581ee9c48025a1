"""Interval propagation over printed tables: a consistent table has no contradiction, an inconsistent one has."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.literature.published import values as papers
from experiments.literature.published.bounds import ERRORS, findings
from experiments.literature.published.consistency import Cell, allowed, judge, narrowed
from specsim.theory import walltime_improvement

GAMMAS = (3, 5, 7)


def rounded(name, row, value, digits, unknowns, *function):
    printed, half = round(value, digits), 0.5 * 10.0**-digits
    return Cell(name, row, (printed - half, printed + half), unknowns, *function)


def table(seed):
    """Rows of α and of the speed that Theorem 3.8 has at it, of one draft, printed with few digits."""
    rng = np.random.default_rng(seed)
    c, cells = rng.uniform(0.01, 0.15), []
    for gamma in GAMMAS:
        alpha, name = rng.uniform(0.4, 0.95), f"α, γ = {gamma}"

        def speed(alpha, c, gamma=gamma):
            return float(walltime_improvement(alpha, gamma, c))

        row = f"γ = {gamma}"
        cells.append(rounded(name, row, alpha, 3, (name,)))
        cells.append(rounded(f"speed, {row}", row, speed(alpha, c), 2, (name, "c"), speed))
    truth = {"c": c}
    box = {"c": (0.0, 1.0)} | {f"α, γ = {gamma}": (0.0, 1.0) for gamma in GAMMAS}
    return cells, box, truth


def judged(cells, box):
    return [judge(cell, [other for other in cells if other is not cell], box) for cell in cells]


@pytest.mark.parametrize("seed", range(4))
def test_a_consistent_table_has_no_contradiction(seed):
    cells, box, truth = table(seed)
    left = narrowed(cells, box)
    assert left["c"][0] <= truth["c"] <= left["c"][1]
    assert left["c"][1] - left["c"][0] < 0.1
    for finding in judged(cells, box):
        assert finding.disjoint == {}
        low, high = finding.cell.interval
        assert finding.allowed[0] <= high
        assert low <= finding.allowed[1]


@pytest.mark.parametrize("place", range(2 * len(GAMMAS)))
@pytest.mark.parametrize("up", [True, False])
def test_a_number_that_cannot_be_is_found(place, up):
    """The number is moved beyond what the others allow it."""
    cells, box, _ = table(1)
    others = [cell for cell in cells if cell is not cells[place]]
    low, high = allowed(cells[place], others, box)
    width = cells[place].interval[1] - cells[place].interval[0]
    moved = (high + width, high + 2 * width) if up else (low - 2 * width, low - width)
    cells[place] = replace(cells[place], interval=moved)
    assert narrowed(cells, box) is None
    finding = judged(cells, box)[place]
    assert finding.disjoint
    for interval in finding.disjoint.values():
        assert interval[1] < moved[0] if up else interval[0] > moved[1]


def test_numbers_just_at_the_edge_are_consistent():
    cells = [Cell("a", "1", (1.0, 2.0), ("x",)), Cell("b", "2", (2.0, 3.0), ("x",))]
    assert narrowed(cells, {"x": (0.0, 9.0)})["x"] == pytest.approx((2.0, 2.0), abs=1e-8)
    assert judge(cells[0], cells[1:], {"x": (0.0, 9.0)}).disjoint == {}


def test_falling_and_rising_forms_narrow_to_the_same_as_their_inverses():
    ratio = Cell("a / b", "1", (2.0, 3.0), ("a", "b"), lambda a, b: a / b)
    left = narrowed([ratio, Cell("a", "1", (6.0, 7.0), ("a",))], {"a": (1.0, 100.0), "b": (0.1, 100.0)})
    assert left["b"] == pytest.approx((6 / 3, 7 / 2), abs=1e-8)
    assert left["a"] == pytest.approx((6, 7), abs=1e-8)


def test_rows_that_contradict_a_number_only_together_are_found():
    box = dict.fromkeys("xy", (0.0, 10.0))
    others = [Cell("x", "1", (1.0, 2.0), ("x",)), Cell("y", "2", (1.0, 2.0), ("y",))]
    total = Cell("x + y", "3", (5.0, 6.0), ("x", "y"), lambda x, y: x + y)
    assert judge(total, others[:1], box).disjoint == {}
    assert list(judge(total, others, box).disjoint) == ["the other rows together"]
    assert judge(total, others, box).allowed == pytest.approx((2, 4), abs=1e-8)


def test_what_no_unknown_connects_does_not_count():
    cell = Cell("x", "1", (1.0, 2.0), ("x",))
    wrong = [Cell("y", "2", (1.0, 2.0), ("y",)), Cell("y again", "2", (3.0, 4.0), ("y",))]
    found = judge(
        cell, [*wrong, Cell("x again", "3", (1.5, 3.0), ("x",))], {"x": (0.0, 9.0), "y": (0.0, 9.0)}
    )
    assert found.disjoint == {}
    assert found.allowed == pytest.approx((1.5, 3.0), abs=1e-8)


def test_a_row_that_contradicts_itself_without_the_number_is_named():
    row = [Cell(name, "1", ends, ("x",)) for name, ends in (("a", (1, 2)), ("b", (3, 4)), ("c", (5, 6)))]
    with pytest.raises(ValueError, match="row 1 contradicts itself without a"):
        judge(row[0], row[1:], {"x": (0.0, 9.0)})


# --- printed tables --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return {(figure.where, figure.quantity, place): finding for figure, place, finding, _ in findings()}


def ends(figure, place):
    value, half = papers.numbers(figure)[place], papers.half_unit(figure)
    return value - half, value + half


def test_every_number_is_judged_once_and_its_interval_has_it(found):
    assert len(found) == len(findings())
    for finding in found.values():
        figure, place = finding.cell.name
        low, high = finding.cell.interval
        assert low <= papers.numbers(figure)[place] <= high
        assert finding.allowed[0] <= finding.allowed[1]
        for least, most in finding.disjoint.values():
            assert most < low or high < least


def test_alpha_of_table_3_from_the_speeds_of_table_4(found):
    """The ends invert Theorem 3.8: at each, a c that rounds to the printed one gives an end of the speed."""
    for pair, t, gamma, alpha, c, speed, _ in papers.SPEEDS_ROWS:
        finding = found[papers.ALPHAS, f"α, T5-XXL, {pair}, t = {t}", 0]
        assert finding.disjoint == {}
        assert finding.allowed[0] < float(alpha) < finding.allowed[1]
        slowest, fastest = (
            walltime_improvement(end, int(gamma), float(c) + sign * 0.005)
            for end, sign in zip(finding.allowed, (-1, 1), strict=True)
        )
        # c is narrowed by the rows of the same draft, so that the speeds can be within the printed interval
        assert float(speed) - 0.05 <= slowest + 1e-6
        assert fastest <= float(speed) + 0.05 + 1e-6


def test_steps_of_block_verification_take_unequal_times(found):
    """Token by token, LM1B and GSM8K leave different times of a step."""
    steps = {}
    for task in ("LM1B", "GSM8K"):
        figure = papers.figure_at(papers.TASKS, task)
        (low, high), (slow, fast) = ends(figure, 0), ends(figure, 2)
        steps[task] = low / fast, high / slow
        assert set(found[papers.TASKS, task, 0].disjoint) & {"LM1B", "GSM8K"} == {"LM1B", "GSM8K"} - {task}
        cells = [found[papers.TASKS, task, place].cell for place in (0, 2)]
        box = {unknown: (1.0, 50.0) for cell in cells for unknown in cell.unknowns}
        assert narrowed(cells, box)["step"] == pytest.approx(steps[task], abs=1e-8)
    assert steps["LM1B"][1] < steps["GSM8K"][0]
    assert not set(found[papers.TASKS, "LM1B", 0].disjoint) & {"WMT", "XSum"}


def test_a_pass_of_the_draft_of_spectr(found):
    passes = {}
    for shape, gamma in (
        ("1 draft of 4", 4),
        ("1 draft of 8", 8),
        ("8 drafts of 4", 4),
        ("8 drafts of 8", 8),
    ):
        (low, high), (slow, fast) = (
            ends(papers.figure_at(papers.LM1B, f"{name}, {shape}"), 0) for name in ("tokens a step", "speed")
        )
        passes[shape] = (low / fast - 1) / gamma, (high / slow - 1) / gamma
    assert passes["1 draft of 4"][0] < passes["1 draft of 8"][1]
    assert passes["1 draft of 8"][0] < passes["1 draft of 4"][1]
    assert passes["8 drafts of 8"][1] < passes["8 drafts of 4"][0]
    for name in ("tokens a step", "speed"):
        assert found[papers.LM1B, f"{name}, 1 draft of 4", 0].disjoint == {}
        assert set(found[papers.LM1B, f"{name}, 8 drafts of 4", 0].disjoint) == {"8 drafts of 8"}


def test_the_scores_of_chinchilla_on_human_eval_are_apart(found):
    (samples,) = [row[1] for row in papers.CHINCHILLA_ROWS if row[0] == "HumanEval"]
    alone, speculative = (
        papers.figure_at(papers.CHINCHILLA, f"%, {name}, HumanEval")
        for name in ("target alone", "speculative")
    )
    above = ends(alone, 0)[1]
    error = np.sqrt(2 * above * (100 - above) / samples)
    finding = found[papers.CHINCHILLA, speculative.quantity, 0]
    assert finding.allowed[1] == pytest.approx(above + ERRORS * error, abs=1e-6)
    assert finding.allowed[1] < ends(speculative, 0)[0] < above + (ERRORS + 1) * error


def test_one_speed_up_of_eagle_s_tables_is_above_its_tokens_a_step(found):
    tables = {papers.EAGLE_TABLE: [row[0] for row in papers.EAGLE_ROWS]}
    tables |= {table: [row[0] for row in rows] for _, table, rows in papers.EAGLE_TABLES}
    above = set()
    for table_of, systems in tables.items():
        for system in systems:
            values = papers.numbers(papers.figure_at(table_of, system))
            for place in range(0, len(values), 2):
                faster = values[place] > values[place + 1]
                assert bool(found[table_of, system, place].disjoint) == faster
                above |= {system} if faster else set()
    assert above == {"R1-Distill-LLaMA 8B, temperature 0, EAGLE-2"}
