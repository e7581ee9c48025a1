"""What other printed numbers of the same paper allow published values that need the models.

Each table is a system for `experiments.literature.published.consistency`: its unknowns are acceptance rates,
tokens a
step and times, which closed forms tie to the printed numbers. What a system assumes beyond definitions is in
the note of each value: that acceptances are independent, or that a step takes the same time in several rows.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import sqrt
from operator import truediv

from experiments.literature.published import values as at
from experiments.literature.published.consistency import Box, Cell, Finding, Interval, judge, narrowed, same
from experiments.literature.published.values import FIGURES, Figure, figure_at, numbers, rounded
from specsim.theory import block_range, expected_tokens, walltime_improvement

#: What a step may take, in passes of the target: verification is at least one.
STEP = (1.0, 50.0)
#: The range of tokens a step, where the drafted tokens do not limit it.
TOKENS = (1.0, 100.0)
RATE = (0.0, 1.0)
#: Standard errors that two measurements of one quantity may be apart.
ERRORS = 3.0

#: A value, the place of the number in it, what the other numbers allow that, and notes.
Bound = tuple[Figure, int, Finding, tuple[str, ...]]


def bounds() -> dict[tuple[str, str], tuple[str, str]]:
    """The verdict on each bounded value, by its (where, quantity), and a note with the intervals.

    >>> bounds()["Figure 2a", "rejections in T = 50 tokens"]
    ('within bounds', '16.41: [16.4050, 16.4150], the others allow [16.3666, 16.4204]')
    """
    grouped: dict[tuple[str, str], list[Bound]] = {}
    for bound in findings():
        grouped.setdefault((bound[0].where, bound[0].quantity), []).append(bound)
    return {key: _verdict(found) for key, found in grouped.items()}


@cache
def findings() -> tuple[Bound, ...]:
    """What the others allow each number of the values that can be bounded; it takes about five seconds."""
    return (
        *_alphas(),
        *_measured_speeds(),
        *_lenient_alphas(),
        *_chinchilla(),
        *_human_eval(),
        *_rejections(),
        *_block_ranges(),
        *_block_tasks(),
        *_spectr(),
        *_sequoia(),
        *_staged(),
        *_hierarchical(),
        *_blockwise(),
        *_medusa(),
        *_eagle_trees(),
        *_eagle_data(),
        *_speed_and_tokens(),
    )


def _verdict(found: Sequence[Bound]) -> tuple[str, str]:
    """The notes have the intervals of what contradicts others, or of everything if there is little."""
    wrong = [bound for bound in found if bound[2].disjoint]
    notes = [_intervals(bound) for bound in wrong or (found if len(found) <= 4 else ())]
    notes += dict.fromkeys(note for *_, more in found for note in more if note)
    return "disjoint" if wrong else "within bounds", "; ".join(notes)


def _intervals(bound: Bound) -> str:
    figure, place, finding, _ = bound
    printed = f"{figure.printed.split()[place]}: {_shown(finding.cell.interval)}"
    if not finding.disjoint:
        return f"{printed}, the others allow {_shown(finding.allowed)}"
    middle = sum(finding.cell.interval) / 2
    names = sorted(finding.disjoint, key=lambda row: -abs(sum(finding.disjoint[row]) / 2 - middle))
    rows = ["the rest of its row" if row == finding.cell.row else row for row in names]
    others = f"; also with {', '.join(rows[1:])}" if rows[1:] else ""
    return f"{printed}, disjoint with {rows[0]} {_shown(finding.disjoint[names[0]])}{others}"


def _shown(interval: Interval) -> str:
    return f"[{interval[0]:.4f}, {interval[1]:.4f}]"


# --- cells -----------------------------------------------------------------------------------------------


def _interval(word: str) -> Interval:
    value, half = rounded(word)
    return value - half, value + half


def _cell(
    figure: Figure, place: int, row: str, unknowns: Sequence[str], function: Callable[..., float] = same
) -> Cell:
    interval = _interval(figure.printed.split()[place])
    return Cell((figure, place), row, interval, tuple(unknowns), function)


def _judged(
    cells: Sequence[Cell],
    box: Box,
    assumed: str = "",
    others: Sequence[Cell] = (),
    shared: Sequence[str] = (),
) -> Iterable[Bound]:
    """What the rest of `cells`, and `others`, allow each of `cells`; the note has what the cell's row alone
    allows the `shared` unknowns."""
    for cell in cells:
        figure, place = cell.name
        rest = [other for other in (*cells, *others) if other is not cell]
        row = [other for other in cells if other.row == cell.row]
        own = narrowed(row, box) if shared else None
        known = {unknown for other in row for unknown in other.unknowns}
        notes = [f"{unknown} {_shown(own[unknown])}" for unknown in shared if own and unknown in known]
        yield figure, place, judge(cell, rest, box), (*notes, assumed)


def _speed(gamma: int) -> Callable[[float, float], float]:
    return lambda alpha, c: float(walltime_improvement(alpha, gamma, c))


# --- Leviathan et al., Chen et al. -----------------------------------------------------------------------


def _speed_cells(column: int) -> list[tuple[Figure, Cell, Cell, Cell]]:
    """The figure of α in Table 3, and the cells of α, of c and of a speed, for each row of Tables 2 and 4."""
    found = []
    for pair, t, gamma, alpha, c, *_ in at.SPEEDS_ROWS:
        row, rate, cost = f"{pair}, t = {t}", f"α {pair} {t}", f"c {pair.split()[-1]}"
        figure = figure_at(at.ALPHAS, f"α, T5-XXL, {pair}, t = {t}")
        name = ("expected", "measured")[column]
        speed = figure_at(at.SPEEDS, f"{name} speed-up, {pair}, t = {t}, γ = {gamma}, α = {alpha}, c = {c}")
        found.append(
            (
                figure,
                _cell(figure, 0, row, [rate]),
                Cell(cost, f"c = {c}", _interval(c), (cost,)),
                _cell(speed, 0, row, [rate, cost], _speed(int(gamma))),
            )
        )
    return found


def _alphas() -> Iterable[Bound]:
    """α of Table 3 from the expected speeds of Table 4, whose c is the same for all rows of one draft."""
    rows = _speed_cells(0)
    for figure, alpha, cost, _ in rows:
        tied = [row for row in rows if row[2].name == cost.name]
        others = [cell for row in tied for cell in (row[1], row[3]) if cell is not alpha]
        box = {unknown: RATE for cell in (*others, cost) for unknown in cell.unknowns}
        yield figure, 0, judge(alpha, [cost, *others], box), ("Theorem 3.8, from Table 4",)


def _measured_speeds() -> Iterable[Bound]:
    for _, alpha, cost, speed in _speed_cells(1):
        box = dict.fromkeys(speed.unknowns, RATE)
        inputs = [Cell(cell.name, "Theorem 3.8", cell.interval, cell.unknowns) for cell in (alpha, cost)]
        yield speed.name[0], 0, judge(speed, inputs, box), ()


def _lenient_alphas() -> Iterable[Bound]:
    """α of Table 3 is α(1) of Table 5; α(l) is concave in 1/l and 0 at 1/l = 0, so that its slopes fall.

    Each slope is a share of the one before, and α(1) is the first.
    """
    for draft in ("unigram", "bigram"):
        figure = figure_at(at.ALPHAS, f"α, T5-XXL, EnDe, {draft}, t = 1")
        row = figure_at(at.LENIENCE, f"α(l), {draft}")
        unknowns = ["α", *(f"share {place}" for place in range(1, len(at.LENIENCES)))]
        places = [1 / float(lenience) for lenience in at.LENIENCES]

        def value(alpha: float, *shares: float, places: Sequence[float] = places) -> float:
            slope, total = alpha, alpha
            for place, share in enumerate(shares, start=1):
                slope *= share
                total += slope * (places[place] - places[place - 1])
            return total

        others = [
            _cell(row, place, f"Table 5, l = {lenience}", unknowns[: place + 1], value)
            for place, lenience in enumerate(at.LENIENCES)
        ]
        finding = judge(_cell(figure, 0, "Table 3", ["α"]), others, dict.fromkeys(unknowns, RATE))
        yield figure, 0, finding, ("from Table 5, which has it again at l = 1",)
    figure = figure_at(at.ALPHAS, "α, T5-XXL, EnDe, bigram, t = 0")
    speed = _cell(
        figure_at(at.ALPHAS_TEXT, at.BIGRAM_SPEED), 0, "text", ["α"], lambda alpha: _speed(3)(alpha, 0.0)
    )
    finding = judge(_cell(figure, 0, "Table 3", ["α"]), [speed], {"α": RATE})
    yield figure, 0, finding, ("from the text on Table 3",)


def _chinchilla() -> Iterable[Bound]:
    """Times from printed speed-ups; the draft's from 1 to K + 1 tokens a step at K = 4."""
    times, gains, steps = [], [], []
    box: dict[str, Interval] = {"alone": (1.0, 100.0), "draft": (0.0, 100.0)}
    for task, *_ in at.CHINCHILLA_ROWS:
        alone, ms = (
            figure_at(at.CHINCHILLA, f"ms a token, {name}, {task}")
            for name in ("target alone", "speculative")
        )
        gain = figure_at(at.CHINCHILLA, f"speed-up, {task}")
        box |= {f"ms {task}": (1.0, 100.0), f"tokens {task}": (1.0, 5.0)}
        times += [_cell(alone, 0, task, ["alone"]), _cell(ms, 0, task, [f"ms {task}"])]
        gains.append(_cell(gain, 0, task, ["alone", f"ms {task}"], truediv))
        steps.append(
            _cell(
                ms,
                0,
                task,
                ["alone", "draft", f"tokens {task}"],
                lambda alone, draft, tokens: (alone + 4 * draft) / tokens,
            )
        )
    yield from _judged(times, box, "from the speed-ups", gains)
    draft = _cell(figure_at(at.CHINCHILLA_TEXT, at.DRAFT_MS), 0, "draft", ["draft"])
    assumed = "from 1 to 5 tokens a step of 4 drafted and one target pass"
    yield from _judged([draft], box, assumed, [*steps, *times[::2]])


def _human_eval() -> Iterable[Bound]:
    """Two counts of the same number of samples, of one probability if speculation keeps the distribution."""
    (samples,) = [samples for task, samples, *_ in at.CHINCHILLA_ROWS if task == "HumanEval"]

    def other(percent: float, errors: float) -> float:
        return percent + errors * sqrt(2 * percent * (100 - percent) / samples)

    figures = [figure_at(at.CHINCHILLA, f"%, {name}, HumanEval") for name in ("target alone", "speculative")]
    box = {"%": (1.0, 99.0), "errors": (-ERRORS, ERRORS)}
    assumed = f"a difference of at most {ERRORS:.0f} standard errors of independent samples"
    for figure, source in (figures, figures[::-1]):
        cell = _cell(figure, 0, figure.quantity, ["%", "errors"], other)
        finding = judge(cell, [_cell(source, 0, source.quantity, ["%"])], box)
        yield figure, 0, finding, (assumed,)


# --- the others ------------------------------------------------------------------------------------------


def _rejections() -> Iterable[Bound]:
    rejections, gain = (
        figure_at(at.YIN_FIGURE, name)
        for name in ("rejections in T = 50 tokens", "acceleration T / rejections")
    )
    ratio = _cell(gain, 0, "acceleration", ["rejections"], lambda rejections: 50 / rejections)
    yield from _judged(
        [_cell(rejections, 0, "rejections", ["rejections"])], {"rejections": (1.0, 50.0)}, "", [ratio]
    )


_range = cache(block_range)


def _block_ranges() -> Iterable[Bound]:
    """Block verification from token by token: each value in the range has some i.i.d. pair."""
    for gamma in (4, 6, 8):

        def tokens(alpha: float, share: float, gamma: int = gamma) -> float:
            found = _range(alpha, gamma)
            return 1 + found.low + share * (found.high - found.low)

        token, block = (
            figure_at(at.BY_GAMMA, f"tokens a step, {name}, γ = {gamma}")
            for name in ("token by token", "block verification")
        )
        given = _cell(
            token, 0, "token by token", ["α"], lambda alpha, gamma=gamma: float(expected_tokens(alpha, gamma))
        )
        cell = _cell(block, 0, "block verification", ["α", "share"], tokens)
        yield block, 0, judge(cell, [given], {"α": RATE, "share": RATE}), ()


def _block_tasks() -> Iterable[Bound]:
    tasks = [figure for figure in FIGURES if figure.where == at.TASKS and " " in figure.printed]
    cells, box = [], {"step": STEP, "step by block": STEP}
    for figure in tasks:
        task = figure.quantity
        for place, name, step in ((0, "tokens", "step"), (1, "block tokens", "step by block")):
            unknown = f"{name} {task}"
            box[unknown] = (1.0, 9.0)
            cells.append(_cell(figure, place, task, [unknown]))
            cells.append(_cell(figure, place + 2, task, [unknown, step], truediv))
    assumed = "a step of each rule takes as long in every task"
    yield from _judged(cells, box, assumed, shared=("step", "step by block"))


def _spectr() -> Iterable[Bound]:
    cells: list[Cell] = []
    box: dict[str, Interval] = {}
    for drafts, gamma in ((1, 4), (1, 8), (8, 4), (8, 8)):
        shape = f"{drafts} draft{'s' * (drafts > 1)} of {gamma}"
        tokens, cost = f"tokens {shape}", f"pass of the draft, {drafts} at once"
        box |= {tokens: (1.0, gamma + 1.0), cost: RATE}
        cells += [
            _cell(figure_at(at.LM1B, f"tokens a step, {shape}"), 0, shape, [tokens]),
            _cell(
                figure_at(at.LM1B, f"speed, {shape}"),
                0,
                shape,
                [tokens, cost],
                lambda tokens, cost, gamma=gamma: tokens / (1 + gamma * cost),
            ),
        ]
    assumed = "a pass of the draft takes as long for 4 tokens as for 8"
    yield from _judged(cells, box, assumed, shared=[unknown for unknown in box if unknown.startswith("pass")])


def _sequoia() -> Iterable[Bound]:
    figures = [figure for figure in FIGURES if figure.where == at.SEQUOIA_TABLE]
    for temperature in ("temperature 0", "temperature .6"):
        cells, box = [], {"SpecInfer step": STEP}
        for figure in (figure for figure in figures if figure.quantity.endswith(temperature)):
            task = figure.quantity
            for place, step in ((0, f"step {task}"), (2, "SpecInfer step")):
                tokens = f"tokens {place} {task}"
                box |= {tokens: TOKENS, step: STEP}
                cells.append(_cell(figure, place, task, [tokens, step], truediv))
                cells.append(_cell(figure, place + 1, task, [tokens]))
        yield from _judged(
            cells, box, "a step of SpecInfer's takes as long in every task", shared=["SpecInfer step"]
        )


def _staged() -> Iterable[Bound]:
    box = dict.fromkeys((at.PLAIN, "greedy", "top-k 50"), (1.0, 1e4))
    cells = [_cell(figure_at(at.GPT2, at.PLAIN), 0, "autoregressive", [at.PLAIN])]
    gains = []
    for name in ("greedy", "top-k 50"):
        cells.append(_cell(figure_at(at.GPT2, f"tokens a second, staged, {name}"), 0, name, [name]))
        gains.append(_cell(figure_at(at.GPT2, f"gain of staged, {name}"), 0, name, [name, at.PLAIN], truediv))
    yield from _judged(cells, box, "from the gains", gains)


def _hierarchical() -> Iterable[Bound]:
    for place, model in enumerate(at.HSD_MODELS):
        cells, seconds = [], f"seconds a step, {model}"
        box = {seconds: (1e-3, 1.0)}
        for rule in ("token by token", "block verification", "hierarchical"):
            box[rule] = TOKENS
            speed = figure_at(at.HSD_TABLE, f"tokens a second, {rule}")
            cells.append(_cell(figure_at(at.HSD_TABLE, f"tokens a step, {rule}"), place, rule, [rule]))
            cells.append(_cell(speed, place, rule, [rule, seconds], truediv))
        yield from _judged(cells, box, "a step takes as long with every rule", shared=[seconds])


def _blockwise() -> Iterable[Bound]:
    """At most k tokens a step; a speed of at most the tokens a step, of the columns "both"."""
    speeds = figure_at(at.STERN_SPEED, f"speed, k = {', '.join(at.BLOCK_SIZES)}")
    single = figure_at(at.STERN_TEXT, "speed, both, super-resolution, k = 6")
    fastest = {(at.STERN_ROWS[3][0], k): (speeds, place) for place, k in enumerate(at.BLOCK_SIZES)}
    fastest[at.STERN_ROWS[-1][0], "6"] = single, 0
    for table, _ in at.STERN_ROWS:
        figure = figure_at(table, at.STERN_TOKENS)
        for place, k in enumerate(at.BLOCK_SIZES):
            box = {"tokens": (1.0, float(k)), "step": STEP}
            tokens, others = _cell(figure, place, table, ["tokens"]), []
            if (table, k) in fastest:
                speed = _cell(*fastest[table, k], "speed", ["tokens", "step"], truediv)
                yield from _judged([speed], box, "at most the tokens a step, development set", [tokens])
                others = [speed]
            yield from _judged([tokens], box, "from 1 to k tokens", others)


def _medusa() -> Iterable[Bound]:
    for target, *_ in at.MEDUSA_ROWS:
        tokens, step, speed = (
            figure_at(at.MEDUSA_TABLE, f"{name}, {target}")
            for name in ("tokens a step", "time of a step", "speed-up")
        )
        cells = [_cell(tokens, 0, target, ["tokens"]), _cell(step, 0, target, ["step"])]
        ratio = _cell(speed, 0, target, ["tokens", "step"], truediv)
        yield from _judged(cells, {"tokens": TOKENS, "step": STEP}, "speed-up = tokens / time", [ratio])


def _eagle_trees() -> Iterable[Bound]:
    """The chain, the tree and the printed gain."""
    for target, *_ in at.EAGLE_TREE_ROWS:
        chain, tree, gain = (
            figure_at(at.EAGLE_TREE, f"{name}, {target}") for name in ("chain", "tree", "gain of the tree")
        )
        cells = [_cell(chain, 0, target, ["chain"]), _cell(tree, 0, target, ["tree"])]
        difference = _cell(gain, 0, target, ["chain", "tree"], lambda chain, tree: tree - chain)
        yield from _judged(cells, {"chain": TOKENS, "tree": TOKENS}, "from the gain", [difference])


def _eagle_data() -> Iterable[Bound]:
    cells, box = [], {"step": STEP}
    for data, _ in at.EAGLE_DATA_ROWS:
        box[data] = TOKENS
        figure = figure_at(at.EAGLE_DATA, data)
        cells += [_cell(figure, 0, data, [data, "step"], truediv), _cell(figure, 1, data, [data])]
    yield from _judged(cells, box, "a step takes as long with both drafts")


def _speed_and_tokens() -> Iterable[Bound]:
    """Tables of pairs: a speed-up is at most the tokens a step, since a step has a pass of the target."""
    figures = [
        figure_at(at.SEQUOIA_OFFLOADED, "speed, tokens a step, temperature 0"),
        figure_at(at.EAGLE_MIXTRAL, "speed, tokens a step"),
        *(figure_at(at.EAGLE_TABLE, system) for system, _ in at.EAGLE_ROWS),
        *(figure_at(table, system) for _, table, rows in at.EAGLE_TABLES for system, *_ in rows),
    ]
    for figure in figures:
        values = numbers(figure)
        steps = [tokens / speed for speed, tokens in zip(values[::2], values[1::2], strict=True)]
        assumed = f"a step takes {STEP[0]:.0f} to {STEP[1]:.0f} passes of the target; {_range_of(steps)} here"
        for place in range(0, len(values), 2):
            cells = [
                _cell(figure, place, figure.quantity, ["tokens", "step"], truediv),
                _cell(figure, place + 1, figure.quantity, ["tokens"]),
            ]
            yield from _judged(cells, {"tokens": TOKENS, "step": STEP}, assumed)


def _range_of(steps: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{step:.2f}" for step in (min(steps), max(steps)))
    return " to ".join(ends)
