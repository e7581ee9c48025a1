"""Values published in papers, each with its place there: values.csv, where alone such numbers are typed.

`experiments.literature.published.recomputed` compares them with what can be recomputed.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A number, or numbers, as `printed` in a paper, given by its arXiv number, with the place there."""

    paper: str
    where: str
    quantity: str
    printed: str


def read_csv(name: str) -> list[dict[str, str]]:
    """The rows of a table in this folder."""
    with Path(__file__).with_name(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FIGURES = tuple(Figure(**row) for row in read_csv("values"))


def rows_at(where: str, *forms: str) -> tuple[tuple[str, ...], ...]:
    """The rows of a table: what is in the braces of the quantities of these forms, and the printed values.

    >>> rows_at("Table 1, Medusa-2", "tokens a step, {}", "speed-up, {}")[0]
    ('Vicuna-7B', '3.47', '2.83')
    """
    found: dict[str, list[str]] = {}
    forms = tuple(re.escape(form).replace(r"\{\}", "(.+)") for form in forms)
    for figure in (figure for figure in FIGURES if figure.where == where):
        match = next(filter(None, (re.fullmatch(form, figure.quantity) for form in forms)), None)
        if match:
            found.setdefault(match[1], []).append(figure.printed)
    return tuple((row, *printed) for row, printed in found.items())


def split(rows: tuple[tuple[str, ...], ...], form: str) -> tuple[tuple[str, ...], ...]:
    """`rows` with the values in their first column apart."""
    return tuple((*re.fullmatch(form, first).groups(), *printed) for first, *printed in rows)  # type: ignore[union-attr]


LEVIATHAN, CHEN, MEDUSA = "2211.17192", "2302.01318", "2401.10774"
EAGLE, EAGLE_2, EAGLE_3 = "2401.15077", "2406.16858", "2503.01840"

# --- places, and rows of tables whose columns depend on one another ----------------------------------------

OPERATIONS, SPEEDS, ALPHAS = "Table 1, c = ĉ = 0", "Tables 2 and 4, T5-XXL", "Table 3"
#: α, γ, operations, speed.
OPERATIONS_ROWS = split(rows_at(OPERATIONS, "operations, {}", "speed-up, {}"), "α = (.+), γ = (.+)")
#: Task and draft, temperature, γ, α, c, expected speed (Table 4), measured speed (both).
SPEEDS_ROWS = split(
    rows_at(SPEEDS, "expected speed-up, {}", "measured speed-up, {}"),
    "(.+), t = (.+), γ = (.+), α = (.+), c = (.+)",
)
ALPHAS_TEXT, BIGRAM_SPEED = "text on Table 3", "speed-up, EnDe, bigram, γ = 3, c = 0"
LENIENCES = ("1", ".5", ".3", ".1")
LENIENCE, LENIENCE_TEXT = f"Table 5, EnDe, T5-XXL, l = {', '.join(LENIENCES)}", "text on Table 5"
CHINCHILLA, CHINCHILLA_TEXT = "Table 1, Chinchilla 70B, K = 4", "text on Figure 1"
#: Task, samples, unit of the score; score, ms a token of the target alone; the same speculative; speed-up.
CHINCHILLA_ROWS = tuple(
    (task, samples, unit, alone, alone_ms, score, ms, gain)
    for task, samples, unit in (
        ("XSum, nucleus", 11305, "ROUGE-2"),
        ("XSum, greedy", 11305, "ROUGE-2"),
        ("HumanEval", 16400, "%"),
    )
    for alone, score, alone_ms, ms, gain in [
        [one.printed for one in FIGURES if one.where == CHINCHILLA and one.quantity.endswith(task)]
    ]
)
FASTEST_K, DRAFT_MS = "K with the shortest time, XSum", "ms a token, draft"
BY_GAMMA = "PaLM-2-S/XXS, average over tasks, by γ"
TASKS = "PaLM-2-S/XXS, γ = 8; tokens a step token by token, by block; speed of each"
EXAMPLE = "introductory example, target (1/3, 2/3), draft (2/3, 1/3), γ = 2"
LM1B, YIN_FIGURE = "LM1B, PaLM-2", "Figure 2a"
GPT2, PLAIN = "RTX 4090, GPT2-L", "tokens a second, autoregressive"
COVER = "cover property, Q = (.5, .5), P = (1, 0), K = 2"
SEQUOIA_TABLE = "Table 1, A100, Llama2-7B; speed, tokens a step, then SpecInfer's"
SEQUOIA_OFFLOADED = "L40, offloading, Llama3-70B"
HSD_MODELS = ("14B", "32B", "72B")
HSD_TABLE = f"GSM8K, Qwen2.5 {', '.join(HSD_MODELS)}"
BLOCK_SIZES = ("2", "4", "6", "8", "10")
STERN_TOKENS = f"tokens a step, k = {', '.join(BLOCK_SIZES)}"
STERN_SPEED, STERN_BLEU = "Table 4, English-German, test set", "Table 1, English-German, BLEU"
STERN_TEXT = "text on Tables 1 and 2"
#: Table and column, tokens a step for each k.
STERN_ROWS = tuple((one.where, one.printed) for one in FIGURES if one.quantity == STERN_TOKENS)
MEDUSA_TABLE = "Table 1, Medusa-2"
#: Target, tokens a step, time of a step in target passes, speed-up.
MEDUSA_ROWS = rows_at(MEDUSA_TABLE, "tokens a step, {}", "time of a step, {}", "speed-up, {}")
EAGLE_TABLE = "Table 1; speed, tokens a step on HumanEval, GSM8K, Alpaca"
EAGLE_ROWS = rows_at(EAGLE_TABLE, "{}")
EAGLE_MIXTRAL, EAGLE_TREE = (
    "Table 3, Mixtral 8x7B, MT-bench, temperature 0",
    "Table 5, MT-bench, temperature 0",
)
#: Target; tokens a step of a chain, of a tree, and the printed gain.
EAGLE_TREE_ROWS = rows_at(EAGLE_TREE, "chain, {}", "tree, {}", "gain of the tree, {}")
EAGLE_DATA = "Table 6, LLaMA2-Chat 7B; speed, tokens a step"
EAGLE_DATA_ROWS = rows_at(EAGLE_DATA, "{}")
#: Of EAGLE-2 and EAGLE-3: paper, table, and rows of target and method; speed and tokens a step of each task;
#: the printed means of both.
EAGLE_TABLES = tuple(
    (paper, where, rows_at(where, "{}, mean speed", "{}, mean tokens a step", "{}"))
    for paper, where in dict.fromkeys(
        (one.paper, one.where)
        for one in FIGURES
        if one.paper in (EAGLE_2, EAGLE_3) and "mean" in one.quantity
    )
)
EAGLE_2_ROWS = EAGLE_TABLES[0][2]


# --- rows of the table, and the reading of printed numbers ------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A published value, the recomputed one or None, recomputed - published, and the
    verdict."""

    paper: str
    where: str
    quantity: str
    published: str
    recomputed: float | None
    difference: float | None
    verdict: str
    note: str = ""

    @property
    def units(self) -> float | None:
        """The difference in units of the last published digit; None without a difference or a unit."""
        words = self.published.split()
        if self.difference is None or len(words) > 1 or "/" in words[0]:
            return None
        return self.difference / (2.0 * rounded(words[0])[1])

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain Python values."""
        return {**asdict(self), "units": self.units}


def figure_at(where: str, quantity: str) -> Figure:
    """The one of `FIGURES` at this place.

    >>> figure_at("Figure 2a", "rejections in T = 50 tokens").printed
    '16.41'
    """
    return next(figure for figure in FIGURES if (figure.where, figure.quantity) == (where, quantity))


def numbers(figure: Figure) -> list[float]:
    """All that is printed.

    >>> numbers(Figure("", "", "", "1/4 .5"))
    [0.25, 0.5]
    """
    return [float(Fraction(word)) for word in figure.printed.split()]


def half_unit(figure: Figure) -> float:
    """Half a unit of the last digit printed; 0 for a fraction."""
    return rounded(figure.printed.split()[0])[1]


def first_number(figure: Figure) -> tuple[float, float]:
    """The first number printed, and half a unit of its last digit.

    >>> first_number(Figure("", "", "", "1.5 2.5"))
    (1.5, 0.05)
    """
    return rounded(figure.printed.split()[0])


def rounded(word: str) -> tuple[float, float]:
    """What is printed, and half a unit of its last digit; 0 for a fraction."""
    return float(Fraction(word)), 0.0 if "/" in word else 0.5 * 10.0 ** -len(word.partition(".")[2])


def compare(
    figure: Figure, function: Callable[..., float], *inputs: tuple[float, float], note: str = ""
) -> Row:
    """`function` of inputs (value, half a unit), at the values and at the corners of their rounding
    intervals.

    It must be monotone in each input, so that the corners have the extremes.
    """
    published, half = first_number(figure)
    value = function(*(centre for centre, _ in inputs))
    corners = [
        function(*corner) for corner in product(*((centre - unit, centre + unit) for centre, unit in inputs))
    ]
    slack = half + 1e-12
    if abs(value - published) <= slack:
        verdict = "reproduced"
    elif min(corners) - slack <= published <= max(corners) + slack:
        verdict = "within rounding"
    else:
        verdict = "not reproducible"
    return row_of(figure, value, value - published, verdict, note)


def row_of(
    figure: Figure,
    recomputed: float | None = None,
    difference: float | None = None,
    verdict: str = "inputs unavailable",
    note: str = "",
) -> Row:
    """The row of a figure, which without more has no value and the verdict "inputs unavailable"."""
    return Row(
        figure.paper, figure.where, figure.quantity, figure.printed, recomputed, difference, verdict, note
    )
