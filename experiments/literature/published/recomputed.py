"""Published values beside what can be recomputed of them without the models that they were measured on.

A value that depends on other published values is computed from these, and again over their rounding
intervals; an example is computed exactly. Speeds and accepted lengths of particular models need the models.

Verdicts: "reproduced", the recomputed value rounds to the published one; "within rounding", it does for some
inputs that round to the published inputs, or the values satisfy, up to rounding, what any such values must;
"not reproducible", it does for none; "within bounds" and "disjoint", it cannot be computed, but other printed
numbers bound it (`experiments.literature.published.bounds`); "inputs unavailable".
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from experiments.literature.published import values as at
from experiments.literature.published.bounds import bounds
from experiments.literature.published.values import (
    FIGURES,
    Row,
    compare,
    figure_at,
    first_number,
    half_unit,
    numbers,
    read_csv,
    rounded,
    row_of,
)
from specsim import theory

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
    return float(brentq(lambda alpha: theory.expected_tokens(alpha, gamma) - tokens, 0.0, 1.0, xtol=1e-14))


def lenience_misfit(alphas: Sequence[float], leniences: Sequence[float]) -> float:
    """How far `alphas` are from any that Σ min(p/l, q) could have at these `leniences`, in the largest change
    needed.

    On average over contexts α(l) = E Σ min(p/l, q) is concave and non-decreasing in 1/l, 0 at 1/l = 0 and at
    most 1; so α(1) ≤ α(l) ≤ min(1, α(1)/l). 0 where the values are of that kind. It assumes the same contexts
    for every l. `leniences` in (0, 1], all different; raises ValueError otherwise.

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
    """A row for each of `FIGURES`, in their order; it takes about five seconds.

    >>> [row.verdict for row in published() if row.paper == "2411.00841"]
    ['within bounds', 'reproduced']
    """
    computed = [
        *_operations(),
        *_speeds(),
        *_lenience(),
        *_chinchilla(),
        *_derived(),
        *_examples(),
        *_block_averages(),
        *_block_lengths(),
        *_blockwise_text(),
        *_eagle_means(),
    ]
    known = {(row.where, row.quantity): row for row in computed}
    rows = [known.get((figure.where, figure.quantity), row_of(figure)) for figure in FIGURES]
    bounded = bounds()
    return [
        _bounded(row, *bounded[row.where, row.quantity])
        if row.verdict == "inputs unavailable" and (row.where, row.quantity) in bounded
        else row
        for row in rows
    ]


def _bounded(row: Row, verdict: str, note: str) -> Row:
    return replace(row, verdict=verdict, note="; ".join(filter(None, (row.note, note))))


def _operations() -> list[Row]:
    rows = []
    for alpha, gamma, *_ in at.OPERATIONS_ROWS:
        g = int(gamma)
        for name, value in (
            ("operations", float(theory.operations_factor(float(alpha), g, 0.0))),
            ("speed-up", _speed(float(alpha), g, 0.0)),
        ):
            figure = figure_at(at.OPERATIONS, f"{name}, α = {alpha}, γ = {gamma}")
            rows.append(compare(figure, float, (value, 0.0)))
    return rows


def _speeds() -> list[Row]:
    """Speeds that Theorem 3.8 expects, and how the measured ones stand to them."""
    rows = []
    for pair, t, gamma, alpha, c, printed, measured in at.SPEEDS_ROWS:
        inputs = f"{pair}, t = {t}, γ = {gamma}, α = {alpha}, c = {c}"
        expected, found = (
            figure_at(at.SPEEDS, f"{name} speed-up, {inputs}") for name in ("expected", "measured")
        )

        def value(a: float, ratio: float, *, gamma: int = int(gamma)) -> float:
            return _speed(a, gamma, ratio)

        rows.append(compare(expected, value, rounded(alpha), rounded(c)))
        note = f"{float(measured) / float(printed):.2f} of the expected"
        rows.append(row_of(found, note=note))
    bigram = first_number(figure_at(at.ALPHAS, "α, T5-XXL, EnDe, bigram, t = 0"))
    figure = figure_at(at.ALPHAS_TEXT, at.BIGRAM_SPEED)
    rows.append(compare(figure, lambda a: _speed(a, 3, 0.0), bigram))
    return rows


def _chinchilla() -> list[Row]:
    """Chen et al.: the score, and the K that independent acceptances would choose."""
    rows = []
    for task, samples, unit, alone, _, score, *_ in at.CHINCHILLA_ROWS:
        if unit == "%":
            before, after = float(alone) / 100, float(score) / 100
            error = np.sqrt((before * (1 - before) + after * (1 - after)) / samples)
            figure = figure_at(at.CHINCHILLA, f"{unit}, speculative, {task}")
            errors = f"{(after - before) / error:.1f}"
            note = f"{errors} standard errors above the target alone, were samples independent"
            rows.append(row_of(figure, note=note))

    def fastest(time: float, alone: float, drafting: float) -> float:
        alpha = implied_alpha((alone + 4 * drafting) / time, 4)
        return float(theory.optimal_gamma(alpha, drafting / alone))

    task, _, _, _, alone_ms, _, ms, _ = at.CHINCHILLA_ROWS[0]
    draft = first_number(figure_at(at.CHINCHILLA_TEXT, at.DRAFT_MS))
    figure = figure_at(at.CHINCHILLA_TEXT, at.FASTEST_K)
    note = f"independent acceptances with the speed of {task}, at {draft[0]} ms a drafted token"
    rows.append(compare(figure, fastest, rounded(ms), rounded(alone_ms), draft, note=note))
    return rows


def _lenience() -> list[Row]:
    leniences = [float(lenience) for lenience in at.LENIENCES]
    rows = []
    for figure in (figure for figure in FIGURES if figure.where == at.LENIENCE):
        misfit = lenience_misfit(numbers(figure), leniences)
        verdict = "within rounding" if misfit <= half_unit(figure) else "not reproducible"
        note = "recomputed: the change that makes it concave and non-decreasing in 1/l"
        rows.append(row_of(figure, misfit, misfit, verdict, note))
    at_zero = figure_at(at.LENIENCE_TEXT, "α(l) at l = 1, .5, .3, .1, temperature 0")
    falls = max(0.0, -np.diff(numbers(at_zero)).min())
    note = "recomputed: the largest fall of P(p(x) ≥ l·max p) as l falls; only a fall is impossible"
    verdict = "within rounding" if falls <= 2 * half_unit(at_zero) else "not reproducible"
    rows.append(row_of(at_zero, falls, falls, verdict, note))

    def best(alpha: float, cost: float) -> float:
        return max(_speed(alpha, gamma, cost) for gamma in range(1, 101))

    for source, suffix, speed in (
        (figure_at(at.LENIENCE, "α(l), T5-small"), ", T5-small", best),
        (at_zero, ", γ = 8, temperature 0", lambda alpha, cost: _speed(alpha, 8, cost)),
    ):
        for lenience, alpha in zip(at.LENIENCES, numbers(source), strict=True):
            figure = figure_at(at.LENIENCE_TEXT, f"speed-up at l = {lenience}, c = .015{suffix}")
            note = "the best γ" if speed is best else ""
            rows.append(compare(figure, speed, (alpha, half_unit(source)), (0.015, 0.0005), note=note))
    return rows


#: The closed forms of derived.csv.
FORMS: dict[str, Callable[..., float]] = {
    "a / b": lambda a, b: a / b,
    "a - b": lambda a, b: a - b,
    "50 / a": lambda a: 50 / a,
    "tokens of 8 from 4": lambda a: float(theory.expected_tokens(implied_alpha(a, 4), 8)),
}


def _derived() -> list[Row]:
    """Values that derived.csv has as a form of other printed ones at the same place."""
    rows = []
    for one in read_csv("derived"):
        inputs = [first_number(figure_at(one["where"], name)) for name in one["inputs"].split("|")]
        figure = figure_at(one["where"], one["quantity"])
        rows.append(compare(figure, FORMS[one["form"]], *inputs, note=one["note"]))
    return rows


def _examples() -> list[Row]:
    third = Fraction(1, 3)
    lengths = theory.accepted_tokens([third, 2 * third], [2 * third, third], gamma=2)
    sure, even = [1, 0], [0.5, 0.5]
    values = {
        (at.EXAMPLE, "accepted tokens, token by token"): lengths.token,
        (at.EXAMPLE, "accepted tokens, block verification"): lengths.block,
        (at.EXAMPLE, "accepted tokens, min-joint bound"): lengths.bound,
        (at.COVER, "SpecInfer rejects"): 1 - theory.recursive_rejection_acceptance(sure, even, 2),
        (at.COVER, "K-SEQ accepts"): theory.k_seq_acceptance(sure, even, 2),
    }
    return [
        compare(figure_at(where, quantity), float, (float(value), 0.0))
        for (where, quantity), value in values.items()
    ]


def _block_averages() -> list[Row]:
    """Averages over tasks, and gains between them."""
    tasks = [figure for figure in FIGURES if figure.where == at.TASKS and " " in figure.printed]
    columns = np.transpose([numbers(figure) for figure in tasks])
    token, block, token_speed, block_speed = ((float(one.mean()), half_unit(tasks[0])) for one in columns)
    ratio = "the ratio of the averages over tasks"
    rows = [
        compare(figure_at(at.TASKS, quantity), function, *inputs, note=note)
        for quantity, note, function, *inputs in (
            ("average tokens a step, token by token", "", float, token),
            ("average tokens a step, block verification", "", float, block),
            ("average speed, token by token", "", float, token_speed),
            ("average speed, block verification", "", float, block_speed),
            ("gain in tokens a step, %", ratio, _gain, block, token),
            ("gain in speed, %", ratio, _gain, block_speed, token_speed),
        )
    ]
    for figure in tasks:
        now = numbers(figure)[0]
        alpha = implied_alpha(now, 8)
        rows.append(row_of(figure, note=f"i.i.d. α {alpha:.3f}; {_range_note(alpha, 8)}"))
    return rows


def _block_lengths() -> list[Row]:
    """Token by token, each γ from the mean α of the two others; block verification, the range at its own
    α.
    """
    gammas = (4, 6, 8)
    quantity = "tokens a step, {}, γ = {}".format
    token = {gamma: figure_at(at.BY_GAMMA, quantity("token by token", gamma)) for gamma in gammas}
    rows = []
    for gamma in gammas:
        others = [other for other in gammas if other != gamma]

        def predicted(*tokens: float, gamma: int = gamma, others: Sequence[int] = others) -> float:
            alphas = [implied_alpha(value, other) for value, other in zip(tokens, others, strict=True)]
            return float(theory.expected_tokens(float(np.mean(alphas)), gamma))

        alpha = implied_alpha(numbers(token[gamma])[0], gamma)
        rows.append(
            compare(
                token[gamma],
                predicted,
                *(first_number(token[other]) for other in others),
                note=f"from the other two; its own i.i.d. α {alpha:.4f}",
            )
        )
        block = figure_at(at.BY_GAMMA, quantity("block verification", gamma))
        rows.append(row_of(block, note=_range_note(alpha, gamma)))
    return rows


def _blockwise_text() -> list[Row]:
    rows = []
    for quantity, source, sign in (
        ("gain in BLEU by distillation, k = 8", "k = 8, regular, distillation", 1),
        (
            "loss in BLEU of both, k = 10, from distillation, k = 1",
            "distillation, k = 1; both, k = 10",
            -1,
        ),
    ):
        first, second = (rounded(word) for word in figure_at(at.STERN_BLEU, source).printed.split())
        figure = figure_at(at.STERN_TEXT, quantity)
        rows.append(compare(figure, lambda a, b, sign=sign: sign * (b - a), first, second))
    tokens = figure_at("Table 2, super-resolution, both", at.STERN_TOKENS).printed.split()
    figure = figure_at(at.STERN_TEXT, "tokens a step, both, super-resolution, k = 6")
    return [*rows, compare(figure, float, rounded(tokens[at.BLOCK_SIZES.index("6")]))]


def _eagle_means() -> list[Row]:
    """Means over the tasks of a row, and of speeds and tokens a step apart."""
    rows = []
    for _, table, systems in at.EAGLE_TABLES:
        for system, *_ in systems:
            tasks = figure_at(table, system)
            for start, name in enumerate(("mean speed", "mean tokens a step")):
                mean = float(np.mean(numbers(tasks)[start::2]))
                rows.append(compare(figure_at(table, f"{system}, {name}"), float, (mean, half_unit(tasks))))
    return rows


def _gain(after: float, before: float) -> float:
    """In percent."""
    return 100 * (after / before - 1)


def _speed(alpha: float, gamma: int, cost: float) -> float:
    """Leviathan et al., Theorem 3.8, with `cost` the time of a draft token in target calls."""
    return float(theory.walltime_improvement(alpha, gamma, cost))


def _range_note(alpha: float, gamma: int) -> str:
    found = theory.block_range(alpha, gamma)
    return f"block verification of i.i.d. pairs gives {1 + found.low:.2f} to {1 + found.high:.2f}"
