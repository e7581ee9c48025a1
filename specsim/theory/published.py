"""Printed numbers beside what can be recomputed of them without the models they were measured on.

`FIGURES` is the only place where numbers are typed, as they are printed. A figure that depends on other printed
figures is computed from these, and again over their rounding intervals; one that is an example is computed exactly.
Speeds and accepted lengths of particular models cannot be had without them, and say so.

Verdicts: "reproduced", the recomputed value rounds to the printed one; "within rounding", it does for some inputs
that round to the printed inputs, or what the figures must satisfy holds up to rounding; "not reproducible", it does
for none; "inputs unavailable".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from specsim.theory.acceptance import expected_tokens
from specsim.theory.block import accepted_tokens, block_range
from specsim.theory.many_drafts import k_seq_acceptance, recursive_rejection_acceptance

__all__ = ["FIGURES", "Figure", "Row", "implied_alpha", "lenience_misfit", "published"]


@dataclass(frozen=True)
class Figure:
    """A number, or a row of numbers, as printed in a paper, given by its arXiv number and the place there."""

    paper: str
    where: str
    quantity: str
    printed: str


@dataclass(frozen=True)
class Row:
    """A figure, what was recomputed of it (None where nothing could be), recomputed - published, and the verdict."""

    paper: str
    where: str
    quantity: str
    published: str
    recomputed: float | None
    difference: float | None
    verdict: str
    note: str = ""


LEVIATHAN, BLOCK, SPECTR, SEQUOIA = "2211.17192", "2403.10444", "2310.15141", "2402.12374"
YIN, STAGED, SPECINFER, TRAVERSAL, HIERARCHICAL = (
    "2411.00841",
    "2308.04623",
    "2305.09781",
    "2505.12398",
    "2601.05724",
)

LENIENCE = "Table 5, EnDe, T5-XXL, l = 1, .5, .3, .1"
LENIENCE_TEXT = "text on Table 5"
BY_GAMMA = "PaLM-2-S/XXS, average over tasks, by γ"
TASKS = "PaLM-2-S/XXS, γ = 8; tokens a step token by token, by block; speed of each"
EXAMPLE = "introductory example, target (1/3, 2/3), draft (2/3, 1/3), γ = 2"
LM1B = "LM1B, PaLM-2"
YIN_FIGURE = "Figure 2a"
GPT2, PLAIN = "RTX 4090, GPT2-L", "tokens a second, autoregressive"
COVER = "cover property, Q = (.5, .5), P = (1, 0), K = 2"
SEQUOIA_TABLE = "Table 1, A100, Llama2-7B; speed, tokens a step, then SpecInfer's"
HSD_TABLE = "GSM8K, Qwen2.5 14B, 32B, 72B"

FIGURES: tuple[Figure, ...] = (
    Figure(LEVIATHAN, LENIENCE, "α(l), unigram", ".07 .10 .11 .16"),
    Figure(LEVIATHAN, LENIENCE, "α(l), bigram", ".19 .23 .25 .32"),
    Figure(LEVIATHAN, LENIENCE, "α(l), T5-small", ".62 .71 .76 .84"),
    Figure(LEVIATHAN, LENIENCE, "α(l), T5-base", ".68 .80 .83 .90"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = 1, c = .015, T5-small", "2.5"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .5, c = .015, T5-small", "3.1"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .3, c = .015, T5-small", "3.6"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .1, c = .015, T5-small", "5"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "α(l) at l = 1, .5, .3, .1, temperature 0", ".75 .75 .80 .87"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = 1, c = .015, γ = 8, temperature 0", "3.3"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .5, c = .015, γ = 8, temperature 0", "3.3"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .3, c = .015, γ = 8, temperature 0", "3.9"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .1, c = .015, γ = 8, temperature 0", "4.9"),
    Figure(YIN, YIN_FIGURE, "rejections in T = 50 tokens", "16.41"),
    Figure(YIN, YIN_FIGURE, "acceleration T / rejections", "3.05"),
    Figure(BLOCK, EXAMPLE, "accepted tokens, token by token", "10/9"),
    Figure(BLOCK, EXAMPLE, "accepted tokens, block verification", "11/9"),
    Figure(BLOCK, EXAMPLE, "accepted tokens, min-joint bound", "12/9"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, token by token, γ = 4", "2.89"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, token by token, γ = 6", "3.23"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, token by token, γ = 8", "3.41"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, block verification, γ = 4", "2.99"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, block verification, γ = 6", "3.43"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, block verification, γ = 8", "3.70"),
    Figure(BLOCK, TASKS, "LM1B", "3.21 3.49 2.17 2.32"),
    Figure(BLOCK, TASKS, "GPTPrompt", "3.41 3.76 2.30 2.48"),
    Figure(BLOCK, TASKS, "WebQA", "3.44 3.70 2.32 2.45"),
    Figure(BLOCK, TASKS, "PIQA", "3.40 3.68 2.29 2.44"),
    Figure(BLOCK, TASKS, "ShareGPT", "3.34 3.62 2.25 2.40"),
    Figure(BLOCK, TASKS, "XSum", "3.49 3.76 2.35 2.49"),
    Figure(BLOCK, TASKS, "GSM8K", "3.81 4.15 2.55 2.73"),
    Figure(BLOCK, TASKS, "WMT", "3.19 3.41 2.15 2.27"),
    Figure(BLOCK, TASKS, "average tokens a step, token by token", "3.41"),
    Figure(BLOCK, TASKS, "average tokens a step, block verification", "3.70"),
    Figure(BLOCK, TASKS, "average speed, token by token", "2.30"),
    Figure(BLOCK, TASKS, "average speed, block verification", "2.45"),
    Figure(BLOCK, TASKS, "gain in tokens a step, %", "8.30"),
    Figure(BLOCK, TASKS, "gain in speed, %", "6.49"),
    Figure(SPECTR, LM1B, "tokens a step, 1 draft of 4", "2.4"),
    Figure(SPECTR, LM1B, "tokens a step, 1 draft of 8", "2.9"),
    Figure(SPECTR, LM1B, "tokens a step, 8 drafts of 4", "3.1"),
    Figure(SPECTR, LM1B, "tokens a step, 8 drafts of 8", "4.0"),
    Figure(SPECTR, LM1B, "speed, 1 draft of 4", "1.67"),
    Figure(SPECTR, LM1B, "speed, 1 draft of 8", "1.56"),
    Figure(SPECTR, LM1B, "speed, 8 drafts of 4", "2.08"),
    Figure(SPECTR, LM1B, "speed, 8 drafts of 8", "2.13"),
    Figure(SPECTR, LM1B, "gain of 8 drafts of 8 over 1", "1.37"),
    Figure(SEQUOIA, COVER, "SpecInfer rejects", ".25"),
    Figure(SEQUOIA, COVER, "K-SEQ accepts", ".75"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "C4, temperature 0", "4.04 5.08 3.45 3.96"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "C4, temperature .6", "3.18 3.92 2.47 2.97"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "OpenWebText, temperature 0", "3.22 3.86 2.79 3.15"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "OpenWebText, temperature .6", "2.71 3.33 2.10 2.54"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "CNN, temperature 0", "3.41 4.05 2.95 3.27"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "CNN, temperature .6", "2.83 3.45 2.11 2.58"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "MT-Bench, temperature 0", "4.03 4.98 3.84 4.01"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "MT-Bench, temperature .6", "3.18 3.96 2.45 2.97"),
    Figure(SEQUOIA, "L40, offloading, Llama3-70B", "speed, tokens a step, temperature 0", "9.5 11.68"),
    Figure(STAGED, GPT2, PLAIN, "150"),
    Figure(STAGED, GPT2, "tokens a second, staged, greedy", "475"),
    Figure(STAGED, GPT2, "tokens a second, staged, top-k 50", "298"),
    Figure(STAGED, GPT2, "tokens a second, one draft; greedy, top-k 50", "350 219"),
    Figure(STAGED, GPT2, "gain of staged, greedy", "3.16"),
    Figure(STAGED, GPT2, "gain of staged, top-k 50", "1.98"),
    Figure(SPECINFER, "distributed", "speed-up", "1.5-2.8"),
    Figure(SPECINFER, "offloading", "speed-up", "2.6-3.5"),
    Figure(TRAVERSAL, "chains, 68M → 7B", "mean gain in accepted length, %", "5.7"),
    Figure(TRAVERSAL, "chains, 68M → 7B", "accepted length, multi-turn, before and after", "2.05 2.16"),
    Figure(TRAVERSAL, "chains, 68M → 7B", "accepted length, GSM8K, before and after", "2.01 2.15"),
    Figure(TRAVERSAL, "chains, 1B → 8B", "mean gain in accepted length, %", "2.8"),
    Figure(TRAVERSAL, "chains, 1B → 8B", "accepted length, multi-turn, before and after", "3.95 4.09"),
    Figure(TRAVERSAL, "chains, 1B → 8B", "accepted length, GSM8K, before and after", "4.61 4.70"),
    Figure(TRAVERSAL, "temperatures .2, .4, .6, .8, 1", "mean gain, %", "1.0 1.4 1.5 2.2 2.8"),
    Figure(
        "2605.04543", "Vicuna-7B, binary tree of depth 5", "tokens a step, UniVer, and top-down", "3.29 3.06"
    ),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a step, token by token", "5.99 6.14 6.44"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a step, block verification", "6.13 6.26 6.53"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a step, hierarchical", "6.30 6.47 6.65"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a second, token by token", "82.28 53.87 31.49"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a second, block verification", "86.06 54.91 31.79"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a second, hierarchical", "91.05 57.12 32.52"),
    Figure("2411.05289", "SpecHub", "gain in tokens a step", ".05-.27"),
    Figure("2511.15898", "Global Resolution", "acceptance at 100 ms a token, %", "90"),
    Figure("2401.10774", "Medusa-1", "speed-up", "2.2"),
    Figure("2401.10774", "Medusa-2", "speed-up", "2.3-2.8"),
    Figure("2401.10774", "Vicuna 13B, 7B", "speed-up", "2.33 2.83"),
    Figure("2501.19309", "Judge decoding, 8B → 405B", "speed-up over HF, gpt-fast", "9.7 3.9"),
    Figure("2501.19309", "Judge decoding, 8B → 405B", "accepted length", "20"),
)


# --- what is computed ------------------------------------------------------------------------------------


def implied_alpha(tokens: float, gamma: int) -> float:
    """The α at which independent acceptances give `tokens` a step of γ drafted: `expected_tokens`, inverted.

    `tokens` from 1 to γ + 1, γ ≥ 1; raises ValueError otherwise.

    >>> round(implied_alpha(3.6893, 5), 4)
    0.8
    """
    from scipy.optimize import brentq

    if gamma < 1 or not 1 <= tokens <= gamma + 1:
        raise ValueError(f"implied_alpha: {tokens} tokens a step of {gamma} drafted; expected 1 to γ + 1")
    return float(brentq(lambda alpha: expected_tokens(alpha, gamma) - tokens, 0.0, 1.0, xtol=1e-14))


def lenience_misfit(alphas: Sequence[float], leniences: Sequence[float]) -> float:
    """How far `alphas` are from any that Σ min(p/l, q) could have at these `leniences`, in the largest change needed.

    On average over contexts α(l) = E Σ min(p/l, q) is concave and non-decreasing in 1/l, 0 at 1/l = 0 and at most 1;
    so α(1) ≤ α(l) ≤ min(1, α(1)/l). 0 where the values are of that kind. It assumes the same contexts for every l.
    `leniences` in (0, 1], all different; raises ValueError otherwise.

    >>> lenience_misfit([0.5, 0.75], [1, 0.5])
    0.0
    >>> round(lenience_misfit([0.25, 0.75], [1, 0.5]), 12)  # α(l) is at most α(1)/l
    0.083333333333
    """
    from scipy.optimize import linprog

    if not (np.size(leniences) and all(0 < lenience <= 1 for lenience in leniences)):
        raise ValueError(f"lenience_misfit: {list(leniences)} are not in (0, 1]")
    if len(alphas) != len(leniences) or len(set(leniences)) < len(leniences):
        raise ValueError("lenience_misfit: one alpha for each of distinct leniences is meant")
    order = np.argsort(leniences)[::-1]
    place = np.append(0.0, 1.0 / np.asarray(leniences, dtype=float)[order])
    printed = np.asarray(alphas, dtype=float)[order]
    # unknowns: α at each place but the first, where it is 0, and the largest change
    count = len(printed)
    slopes = np.diff(np.eye(count + 1), axis=0)[:, 1:] / np.diff(place)[:, None]
    rising, bending, change = -slopes, np.diff(slopes, axis=0), np.ones((count, 1))
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.block(
            [
                [rising, np.zeros((count, 1))],
                [bending, np.zeros((count - 1, 1))],
                [np.eye(count), -change],
                [-np.eye(count), -change],
            ]
        ),
        b_ub=np.concatenate([np.zeros(2 * count - 1), printed, -printed]),
        bounds=[(0, 1)] * count + [(0, None)],
    )
    return float(round(found.fun, 12)) + 0.0


def published() -> list[Row]:
    """A row for each of `FIGURES`, in their order; it takes about a second.

    >>> [row.verdict for row in published() if row.paper == "2411.00841"]
    ['inputs unavailable', 'reproduced']
    """
    computed = {
        (where, quantity): row
        for rows in (
            _lenience(),
            _ratios(),
            _examples(),
            _block_averages(),
            _block_lengths(),
            _k_seq_lengths(),
        )
        for (where, quantity), row in rows.items()
    }
    return [computed.get((figure.where, figure.quantity), _row(figure)) for figure in FIGURES]


Rows = dict[tuple[str, str], Row]


def _lenience() -> Rows:
    leniences = (1.0, 0.5, 0.3, 0.1)
    rows = {}
    for figure in (figure for figure in FIGURES if figure.where == LENIENCE):
        misfit = lenience_misfit(_values(figure), leniences)
        verdict = "within rounding" if misfit <= _half_unit(figure) else "not reproducible"
        note = "recomputed: the change that makes it concave and non-decreasing in 1/l"
        rows[figure.where, figure.quantity] = _row(figure, misfit, misfit, verdict, note)
    at_zero = _figure(LENIENCE_TEXT, "α(l) at l = 1, .5, .3, .1, temperature 0")
    falls = max(0.0, -np.diff(_values(at_zero)).min())
    note = "recomputed: the largest fall of P(p(x) ≥ l·max p) as l falls; only a fall is impossible"
    verdict = "within rounding" if falls <= 2 * _half_unit(at_zero) else "not reproducible"
    rows[at_zero.where, at_zero.quantity] = _row(at_zero, falls, falls, verdict, note)

    def best(alpha: float, cost: float) -> float:
        return max(_speed(alpha, gamma, cost) for gamma in range(1, 101))

    for source, suffix, speed in (
        (_figure(LENIENCE, "α(l), T5-small"), ", T5-small", best),
        (at_zero, ", γ = 8, temperature 0", lambda alpha, cost: _speed(alpha, 8, cost)),
    ):
        for lenience, alpha in zip(leniences, _values(source), strict=True):
            named = "1" if lenience == 1 else f"{lenience:g}".removeprefix("0")
            figure = _figure(LENIENCE_TEXT, f"speed-up at l = {named}, c = .015{suffix}")
            note = "the best γ" if speed is best else ""
            rows[figure.where, figure.quantity] = _compare(
                figure, speed, (alpha, _half_unit(source)), (0.015, 0.0005), note=note
            )
    return rows


def _ratios() -> Rows:
    accelerated = _figure(YIN_FIGURE, "acceleration T / rejections")
    rejections = _input(_figure(YIN_FIGURE, "rejections in T = 50 tokens"))
    rows = {(YIN_FIGURE, accelerated.quantity): _compare(accelerated, lambda b: 50 / b, rejections)}
    for where, quantity, above, below in (
        (LM1B, "gain of 8 drafts of 8 over 1", "speed, 8 drafts of 8", "speed, 1 draft of 8"),
        (GPT2, "gain of staged, greedy", "tokens a second, staged, greedy", PLAIN),
        (GPT2, "gain of staged, top-k 50", "tokens a second, staged, top-k 50", PLAIN),
    ):
        inputs = [_input(_figure(where, name)) for name in (above, below)]
        rows[where, quantity] = _compare(_figure(where, quantity), lambda a, b: a / b, *inputs)
    return rows


def _examples() -> Rows:
    third = Fraction(1, 3)
    lengths = accepted_tokens([third, 2 * third], [2 * third, third], gamma=2)
    sure, even = [1, 0], [0.5, 0.5]
    values = {
        (EXAMPLE, "accepted tokens, token by token"): lengths.token,
        (EXAMPLE, "accepted tokens, block verification"): lengths.block,
        (EXAMPLE, "accepted tokens, min-joint bound"): lengths.bound,
        (COVER, "SpecInfer rejects"): 1 - recursive_rejection_acceptance(sure, even, 2),
        (COVER, "K-SEQ accepts"): k_seq_acceptance(sure, even, 2),
    }
    return {
        (where, quantity): _compare(_figure(where, quantity), float, (float(value), 0.0))
        for (where, quantity), value in values.items()
    }


def _block_averages() -> Rows:
    """Averages over tasks, and gains between them."""
    tasks = [figure for figure in FIGURES if figure.where == TASKS and " " in figure.printed]
    token, block, token_speed, block_speed = np.transpose([_values(figure) for figure in tasks])
    half = _half_unit(tasks[0])

    def mean(*values: float) -> float:
        return float(np.mean(values))

    rows = {}
    for quantity, column in (
        ("average tokens a step, token by token", token),
        ("average tokens a step, block verification", block),
        ("average speed, token by token", token_speed),
        ("average speed, block verification", block_speed),
    ):
        rows[TASKS, quantity] = _compare(_figure(TASKS, quantity), mean, (float(column.mean()), half))
    for quantity, after, before in (
        ("gain in tokens a step, %", block, token),
        ("gain in speed, %", block_speed, token_speed),
    ):
        inputs = [(float(column.mean()), half) for column in (after, before)]
        figure = _figure(TASKS, quantity)
        rows[TASKS, quantity] = _compare(
            figure, lambda a, b: 100 * (a / b - 1), *inputs, note="the ratio of the averages over tasks"
        )
    for figure in tasks:
        now = _values(figure)[0]
        alpha = implied_alpha(now, 8)
        rows[TASKS, figure.quantity] = _row(figure, note=f"i.i.d. α {alpha:.3f}; {_range_note(alpha, 8)}")
    return rows


def _block_lengths() -> Rows:
    """Token by token, each γ from the mean α of the two others; block verification, the range at its own α."""
    gammas = (4, 6, 8)
    quantity = "tokens a step, {}, γ = {}".format
    token = {gamma: _figure(BY_GAMMA, quantity("token by token", gamma)) for gamma in gammas}
    rows = {}
    for gamma in gammas:
        others = [other for other in gammas if other != gamma]

        def predicted(*tokens: float, gamma: int = gamma, others: Sequence[int] = others) -> float:
            alphas = [implied_alpha(value, other) for value, other in zip(tokens, others, strict=True)]
            return float(expected_tokens(float(np.mean(alphas)), gamma))

        alpha = implied_alpha(_values(token[gamma])[0], gamma)
        rows[BY_GAMMA, token[gamma].quantity] = _compare(
            token[gamma],
            predicted,
            *(_input(token[other]) for other in others),
            note=f"from the other two; its own i.i.d. α {alpha:.4f}",
        )
        block = _figure(BY_GAMMA, quantity("block verification", gamma))
        rows[BY_GAMMA, block.quantity] = _row(block, note=_range_note(alpha, gamma))
    return rows


def _k_seq_lengths() -> Rows:
    """Eight drafted tokens predicted from four, in the baseline of SpecTr's table."""
    figure = _figure(LM1B, "tokens a step, 1 draft of 8")
    source = _figure(LM1B, "tokens a step, 1 draft of 4")
    return {
        (LM1B, figure.quantity): _compare(
            figure,
            lambda tokens: float(expected_tokens(implied_alpha(tokens, 4), 8)),
            _input(source),
            note="from 1 draft of 4; no α of independent acceptances gives both",
        )
    }


# --- shared ----------------------------------------------------------------------------------------------


def _speed(alpha: float, gamma: int, cost: float) -> float:
    """Leviathan et al., Theorem 3.8, with `cost` the time of a draft token in target calls."""
    return float(expected_tokens(alpha, gamma)) / (gamma * cost + 1.0)


def _range_note(alpha: float, gamma: int) -> str:
    found = block_range(alpha, gamma)
    return f"block verification of i.i.d. pairs gives {1 + found.low:.2f} to {1 + found.high:.2f}"


def _figure(where: str, quantity: str) -> Figure:
    return next(figure for figure in FIGURES if (figure.where, figure.quantity) == (where, quantity))


def _values(figure: Figure) -> list[float]:
    return [float(Fraction(word)) for word in figure.printed.split()]


def _half_unit(figure: Figure) -> float:
    """Half a unit of the last digit printed; 0 for a fraction."""
    word = figure.printed.split()[0]
    return 0.0 if "/" in word else 0.5 * 10.0 ** -len(word.partition(".")[2])


def _input(figure: Figure) -> tuple[float, float]:
    return _values(figure)[0], _half_unit(figure)


def _compare(
    figure: Figure, function: Callable[..., float], *inputs: tuple[float, float], note: str = ""
) -> Row:
    """`function` of inputs (value, half a unit), at the values and at the corners of their rounding intervals.

    It must be monotone in each input, so that the corners have the extremes.
    """
    published, half = _input(figure)
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
    return _row(figure, value, value - published, verdict, note)


def _row(
    figure: Figure,
    recomputed: float | None = None,
    difference: float | None = None,
    verdict: str = "inputs unavailable",
    note: str = "",
) -> Row:
    return Row(
        figure.paper, figure.where, figure.quantity, figure.printed, recomputed, difference, verdict, note
    )
