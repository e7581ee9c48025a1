"""Plans from what was measured or printed: passes of the target over 1, 2, … tokens, speeds, traces; and
acceptance as engines print it, as rates of tested tokens, the α of plans and servers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._files import PathLike, read_cells
from specsim.core._numbers import real, whole
from specsim.core._plotting import Axes, axes_or_new
from specsim.core._tables import CONFIDENCE, NONE, Line, Piece, Shown, Table
from specsim.core._types import Floats, check_between, check_count, checked, said_of
from specsim.planning._costs import MOST_GAMMA
from specsim.planning._plan import Candidate, Ranked, Ranking, name_best, tokens_to
from specsim.served._feasible import Value, read
from specsim.served._meanings import independent_alpha
from specsim.theory import walltime_improvement
from specsim.traces._analysis import document_draws
from specsim.traces._format import reached_rows
from specsim.traces._reader import SECONDS, Trace

#: Numbers are [value, least, most]; of one that divides or is subtracted, the ends change places.
OTHER = [0, 2, 1]


def printed(name: str, value: Value) -> Floats:
    """A number as printed, whose last digit is rounded; a rate also as accepted/drafted, such as "3.20/7"."""
    above, slash, below = str(value).partition("/")
    if not (slash and name == "acceptance_rate"):
        low, high = read(name, value)
        return np.array([real(str(value)), low, high])
    drafted = real(below)
    found = printed("tokens_per_step", above) / drafted if drafted > 0.0 else np.full(3, 2.0)
    if found[0] > 1.0:
        raise ValueError(f"{name}: {value} is outside [0, 1]; give accepted/drafted")
    return found


class Alpha(NamedTuple):
    """Accepted / tested tokens: one rate of independent tokens, or a rate for each position."""

    rates: float | tuple[float, ...]
    meaning: str  #: what was given, and what it says of α


@checked
def alpha_of(
    *,
    by_position: str | Sequence[Value] | None = None,
    acceptance_rate: Value | None = None,
    tokens_per_step: Value | None = None,
    gamma: int | None = None,
) -> Alpha:
    """Convert printed acceptance to α, accepted / tested tokens. Give one of the first three.

    A rate or a mean has the α of independent acceptances of one probability. `meaning` adds the least and the
    most that accepted / tested can be, whatever accepted lengths the steps have.

    Parameters
    ----------
    by_position : sequence or str
        For each position the share of all steps that accepted it, as numbers or as "0.8, 0.6".
    acceptance_rate : number or str
        Accepted / drafted, such as "51%", in steps of `gamma` drafted tokens.
    tokens_per_step : number or str
        Accepted tokens of a step and one more.
    gamma : int
        Drafted tokens per step, for a rate or a mean.

    Returns
    -------
    Alpha

    Raises
    ------
    ValueError
        For numbers that no steps have, and for none or several of the three.

    Examples
    --------
    >>> alpha_of(acceptance_rate="51%", gamma=3).meaning
    'acceptance rate 51% of γ 3: 2.53 tokens per step, α 0.6992 of tested tokens if independent
     (0.6024 to 0.7611 in any case)'
    >>> [round(alpha, 4) for alpha in alpha_of(by_position="0.766, 0.545").rates]
    [0.766, 0.7115]
    """
    if sum(one is not None for one in (by_position, acceptance_rate, tokens_per_step)) != 1:
        raise ValueError("by_position, acceptance_rate, tokens_per_step: give exactly one of them")
    if by_position is not None:
        shares = shares_of(by_position)
        alphas = tuple(later / earlier if earlier else 0.0 for earlier, later in pairwise((1.0, *shares)))
        first, last = (", ".join(f"{one:.4g}" for one in ones) for ones in (shares, alphas))
        said = f"accepted by position in {first} of all steps: {1 + sum(shares):.4g} tokens per step"
        return Alpha(alphas, f"{said}, α {last} of tested tokens")
    rate = tokens_per_step is None
    name, value = ("acceptance_rate", acceptance_rate) if rate else ("tokens_per_step", tokens_per_step)
    if value is None or gamma is None:
        raise ValueError(f"{name}: {value} has no α without the drafted tokens per step; give gamma")
    check_count("gamma", gamma, most=MOST_GAMMA)
    mean, low, high = printed(name, value) * gamma if rate else printed(name, value) - 1.0
    if not 0.0 <= mean <= gamma:
        raise ValueError(f"{name}: {value} is outside [1, {gamma + 1}] for gamma {gamma}; correct it")
    low, high = max(low, 0.0), min(high, gamma)
    least = low / (low + 1.0 - max(0.0, low - gamma + 1.0))  # as few drafts as possible are accepted whole
    most = high / (high + 1.0 - high / gamma)  # as many as possible
    alpha = independent_alpha(1.0 + mean, gamma)
    said = f"{name.replace('_', ' ')} {value} of γ {gamma}: {1 + mean:.4g} tokens per step"
    independent = f"α {alpha:.4f} of tested tokens if independent"
    return Alpha(alpha, f"{said}, {independent} ({least:.4g} to {most:.4g} in any case)")


def shares_of(by_position: str | Sequence[Value]) -> list[float]:
    """The printed shares of all steps that accepted each position. Raises ValueError for shares that rise."""
    texts = by_position.split(",") if isinstance(by_position, str) else by_position
    shares = [printed("by_position", text) for text in texts]
    for earlier, later in pairwise(shares):
        if later[0] > earlier[0]:
            rise = f"rises from {earlier[0]:g} to {later[0]:g}, which shares of all steps cannot"
            raise ValueError(f"by_position: {rise}; give rates of tested tokens as conditional")
    return [float(share[0]) for share in shares]


@checked
@dataclass(frozen=True)
class MeasuredStep:
    """Steps from measured passes of the target: the `times` of passes over `tokens` of a sequence.

    A pass over one token must be among them. Times are numbers or texts as printed, in one unit with `draft`,
    the time of a pass of the draft. Passes over as many tokens are averaged; between measured ones a pass
    lies on the straight line, and wider ones are refused. Not modelled: other batches and contexts."""

    tokens: Sequence[int]
    times: Sequence[Value]
    draft: float

    def __post_init__(self) -> None:
        check_between("draft", self.draft, 0.0, float("inf"), "time")
        if len(self.tokens) != len(self.times):
            raise ValueError(f"times: {len(self.times)} for {len(self.tokens)} tokens; give one for each")
        if 1 not in self.passes or self.longest < 1:
            raise ValueError("tokens: no pass over 1 token, or none over more; measure both")

    @classmethod
    def read(cls, path: PathLike, draft: float, batch: int = 1) -> "MeasuredStep":
        """Read the passes of one batch from a CSV file with the columns batch, tokens (of all) and ms."""
        found = read_cells(path, ("batch", "tokens", "ms"))
        with said_of(path):
            rows = [(whole(row["batch"]), whole(row["tokens"]), row["ms"]) for _, row in found]
            sizes = ", ".join(map(str, sorted({size for size, *_ in rows})))
            rows = [row for row in rows if row[0] == batch]
            if not rows or any(tokens % batch for _, tokens, _ in rows):
                raise ValueError(f"batch: no passes of {batch} with equal sequences; it has those of {sizes}")
            return cls([tokens // batch for _, tokens, _ in rows], [ms for *_, ms in rows], draft)

    @cached_property
    def passes(self) -> dict[int, Floats]:
        """The time of a pass by its tokens: its mean, the least and the most."""
        found: dict[int, list[Floats]] = {}
        for tokens, time in zip(self.tokens, self.times, strict=True):
            found.setdefault(check_count("tokens", tokens), []).append(printed("target_time", time))
        return {tokens: _together(found[tokens]) for tokens in sorted(found)}

    @property
    def longest(self) -> int:
        """The largest γ whose verification was measured."""
        return max(self.passes) - 1

    def verification(self, gamma: int) -> Floats:
        """The time of verifying γ tokens, in passes over one token, with the least and the most."""
        tokens = check_count("gamma", gamma, 0, self.longest) + 1
        around = [max(w for w in self.passes if w <= tokens), min(w for w in self.passes if w >= tokens)]
        middle, low, high = np.transpose([self.passes[width] for width in around])
        return np.array([np.interp(tokens, around, middle), low.min(), high.max()]) / self.passes[1][OTHER]

    def step(self, gamma: int) -> float:
        return float(self.verification(gamma)[0] + gamma * self.draft / self.passes[1][0])


def _together(rows: Sequence[Floats]) -> Floats:
    """The mean of repeated rows, from the least of them to the most."""
    middle, low, high = np.transpose(rows)
    return np.array([middle.mean(), low.min(), high.max()])


class MeasuredChoice(NamedTuple):
    """A γ; `cost` is the time of a step over that of a token without drafts. Numbers as in `printed`."""

    gamma: int
    cost: Floats
    tokens_per_step: Floats | None = None
    alpha: Floats | None = None  #: accepted / tested at position γ
    speedup: Floats | None = None
    verification: float | None = None  #: the part of `cost` that is not drafting, where it was measured
    unknown: str = ""  #: what was not measured

    @property
    def break_even(self) -> Floats:
        """The share of drafted tokens to accept for a speed-up of 1; above 1 it has none."""
        return (self.cost - 1.0) / self.gamma

    @property
    def free(self) -> float | None:
        """The speed-up if drafts took no time; at most, where the time of verification is not known."""
        emitted = self.tokens_per_step
        return None if emitted is None else float(emitted[0]) / (self.verification or 1.0)

    @property
    def gain(self) -> float:
        """The speed-up; 0 if it is not known."""
        return 0.0 if self.speedup is None else float(self.speedup[0])


@dataclass(frozen=True, eq=False)
class MeasuredPlan(Shown):
    """A plan from what was measured: γ, the smallest first."""

    choices: tuple[MeasuredChoice, ...]
    meaning: str = ""  #: what α comes from
    brackets: str = "what digits and repeated rows leave open"
    formula: tuple[float, ...] = ()  #: the speed-ups of Theorem 3.8, where α and c were measured

    @property
    def best(self) -> MeasuredChoice | None:
        """The measured γ with the largest speed-up; None where none is above 1."""
        gaining = [one for one in self.choices if not one.unknown and one.gain > 1.0]
        return max(gaining, key=lambda one: one.gain, default=None)

    def to_dict(self) -> dict[str, Any]:
        best = self.best
        return {"best": best and best.gamma, "meaning": self.meaning, "choices": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """A row for each γ, with the ends of intervals."""
        rows = []
        for one in self.choices:
            row = one._asdict() | {"break_even": one.break_even, "free": one.free}
            for name in [name for name, value in row.items() if isinstance(value, np.ndarray)]:
                row[name], row[f"{name}_low"], row[f"{name}_high"] = row[name].tolist()
            rows.append(row)
        return rows

    def parts(self) -> Iterator[Piece]:
        best, lines, rows = self.best, [self.meaning] * bool(self.meaning), []
        for one in self.choices:
            even, low, high = one.break_even
            cells = [NONE if x is None else f"{x[0]:.4g}" for x in (one.tokens_per_step, one.alpha)]
            cells += [NONE if x is None else shown(x) for x in (one.cost, one.speedup)]
            cells.append(f"{'' if one.verification else '≤'}{one.free:.4g}" if one.free else NONE)
            cells.append("never" if even > 1.0 else f"{even:.2%}")
            rows.append((one.gamma, *cells, "best" if one is best else one.unknown and "not measured"))
            if one.speedup is None and even > 1.0:
                most = f"a step takes {shown(one.cost)} passes, and emits at most {one.gamma + 1} tokens"
                lines.append(f"γ = {one.gamma} never pays: {most}")
            elif one.speedup is None:
                alpha = f"α {independent_alpha(max(one.cost[0], 1.0), one.gamma):.4f} of tested tokens"
                rates = f"{even:.2%} ({low:.2%} – {high:.2%}) accepted / drafted"
                lines.append(f"γ = {one.gamma} breaks even at {rates}, {alpha} if independent")
            elif one.unknown and one.gain > max(1.0, best.gain if best else 0.0):
                faster = f"γ = {one.gamma} may be faster, {shown(one.speedup)}"
                lines.append(f"{faster}: {one.unknown} not measured")
        names = ("γ", "tokens/step", "α at γ", "step cost", "speed-up", "free draft", "breaks even at", "")
        if best and best.speedup is not None:
            last = "; larger γ were not measured" if best is self.choices[-1] else ""
            verdict = f"γ = {best.gamma}: {shown(best.speedup)} times as fast as without drafts{last}"
            yield Line(verdict, "bold")
        elif self.choices[0].speedup is not None:
            yield Line("Do not speculate: no measured γ gains.", "bold")
        else:
            yield Line(lines.pop(), "bold")
        yield Table(names, rows, bold=[i for i, one in enumerate(self.choices) if one is best])
        yield "step cost: over a token without drafts; free draft: the speed-up if drafts took no time;"
        yield f"breaks even at: accepted / drafted; in brackets: {self.brackets}"
        yield from lines

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the speed-up against γ with its interval, that of Theorem 3.8, and the best γ by name."""
        ax, best, known = axes_or_new(ax), self.best, [one for one in self.choices if one.speedup is not None]
        gammas = [0, *(one.gamma for one in known)]
        middle, low, high = np.transpose([np.ones(3), *(one.speedup for one in known)])
        ax.errorbar(gammas, middle, [middle - low, high - middle], fmt="o", capsize=3, label="measured")
        if self.formula:
            ax.plot(gammas, [1.0, *self.formula], "s--", label="Theorem 3.8 with the measured α and c")
        ax.set(xticks=gammas)
        return name_best(ax, *((best.gamma, best.gain) if best else (0, 1.0)))


def shown(number: Floats) -> str:
    return "{:.4g} ({:.4g} – {:.4g})".format(*number)


def plan_passes(alpha: ArrayLike, cost: MeasuredStep) -> MeasuredPlan:
    """The plan by measured passes, with accepted / tested tokens as for `specsim.plan`."""
    known, choices = np.size(alpha) if np.ndim(alpha) else cost.longest, []
    for gamma, emitted in enumerate(tokens_to(alpha, cost.longest), 1):
        verified = cost.verification(gamma)
        step, tokens = verified + gamma * cost.draft / cost.passes[1][0], np.full(3, emitted)
        unmeasured = "" if gamma + 1 in cost.passes else "its pass was"
        unknown, verifying = "its acceptance was" if gamma > known else unmeasured, float(verified[0])
        choices.append(MeasuredChoice(gamma, step, tokens, None, tokens / step[OTHER], verifying, unknown))
    return MeasuredPlan(tuple(choices))


def plan_step(alpha: Any, gamma: int | None, target: Value | None, step: Value) -> MeasuredPlan:
    """The plan of one measured step and pass, where it breaks even; and its speed-up if α is known."""
    if gamma is None or target is None:
        raise ValueError(
            "step_time: needs its drafted tokens and the time of a pass; give gamma, target_time"
        )
    check_count("gamma", gamma, most=MOST_GAMMA)
    cost = printed("step_time", step) / printed("target_time", target)[OTHER]
    if alpha is None:
        return MeasuredPlan((MeasuredChoice(gamma, cost),))
    tokens = np.full(3, tokens_to(alpha, gamma)[-1])
    return MeasuredPlan((MeasuredChoice(gamma, cost, tokens, None, tokens / cost[OTHER]),))


def plan_speeds(rows: Iterable[tuple[int, str, Value, Value]]) -> MeasuredPlan:
    """The plan of runs: their γ, 0 too, "acceptance_rate" or "tokens_per_step", that number, their speed."""
    runs: dict[int, list[tuple[Floats, Floats]]] = {}
    for gamma, kind, text, speed in rows:
        check_count("gamma", gamma, 0, MOST_GAMMA)
        tokens, found, share = np.ones(3), printed("speed", speed), str(text)
        is_number = kind == "acceptance_rate" and share.replace(".", "", 1).isdecimal()
        if gamma and is_number and float(share) > 1.0:
            ways = f"{share}% for a percentage, {float(share) - 1.0:.4g}/{gamma} for tokens per step"
            raise ValueError(f"acceptance_rate: {share} is outside [0, 1]; give {ways}")
        if gamma:
            tokens = printed(kind, text) if kind == "tokens_per_step" else 1.0 + gamma * printed(kind, text)
        if not found[0] > 0.0:
            raise ValueError(f"speed: {speed} with gamma {gamma} is not above 0; correct it")
        if not 1.0 <= tokens[0] <= gamma + 1:
            raise ValueError(f"{kind}: {text} is outside [1, {gamma + 1}] for gamma {gamma}; correct it")
        runs.setdefault(gamma, []).append((tokens, found))
    if not runs.keys() > {0}:
        raise ValueError("speeds: with drafts, or without, is missing; give a row of gamma 0, and others")
    choices, emitted, shares = [], {-1: np.zeros(3)}, dict[int, Floats]()  # of all steps, by position
    for gamma in sorted(runs):
        tokens, fast = (_together(column) for column in zip(*runs[gamma], strict=True))
        emitted[gamma], alpha = tokens, None
        if gamma - 1 in emitted:
            shares[gamma] = np.maximum(tokens - emitted[gamma - 1][OTHER], 0.0)
        if gamma - 1 in shares and gamma in shares and shares[gamma - 1].all():
            alpha = np.minimum(shares[gamma] / shares[gamma - 1][OTHER], 1.0)
        gain = fast / _together([found for _, found in runs[0]])[OTHER]
        choices.append(MeasuredChoice(gamma, tokens / gain[OTHER], tokens, alpha, gain))
    return MeasuredPlan(tuple(choices[1:]))


# Plans from recorded traces. The steps of a text are alike, so intervals resample whole texts.

#: A recorded text: its steps and those that accepted 1, 2, … γ tokens; the seconds of passes of the draft,
#: and of the target over 1, 2, … γ + 1 tokens.
Text = tuple[Floats, list[Floats]]


def read_texts(trace: Trace) -> dict[int, Text]:
    """The texts of a trace with passes of all kinds, by number."""
    file, stride = trace.path / SECONDS, trace.gamma + 1
    if not file.is_file():
        raise ValueError(f"{trace.path} has no seconds; record it again with specsim trace record --target")
    kinds = [("draft", 1), *(("target", tokens) for tokens in range(1, stride + 1))]
    seconds, counts = defaultdict[Any, list[float]](list), defaultdict[int, Floats](lambda: np.zeros(stride))
    for line, row in read_cells(file, ("text", "model", "tokens", "seconds")):
        with said_of(f"{file}:{line}"):
            time, kind = real(row["seconds"]), (row["model"], whole(row["tokens"]))
            check_between("seconds", time, 0.0, float("inf"), "time", "()")
            seconds[whole(row["text"]), kind].append(time)
    for columns, _ in trace.scan():
        reached = reached_rows(columns.accepted, stride)
        for text, step in zip(columns.context[::stride].tolist(), reached, strict=True):
            counts[text] += step
    each = {text: [np.array(seconds[text, kind]) for kind in kinds] for text in counts}
    return {text: (counts[text], times) for text, times in each.items() if all(map(len, times))}


def medians(seconds: Sequence[Floats], draws: Floats) -> Floats:
    """[1 + R] the median of the `seconds` of texts, each as often as one of the `draws` has its text."""
    times, text = np.concatenate(seconds), np.repeat(np.arange(len(seconds)), [*map(len, seconds)])
    order = np.argsort(times)
    sums = (np.cumsum(draw[text[order]]) for draw in draws)
    return np.array([times[order[np.searchsorted(one, one[-1] / 2)]] for one in sums])


class Resampled(NamedTuple):
    """What texts say, in row 0 all of them, and in R more rows resamples of them."""

    seconds: Floats  #: [2 + γ, 1 + R] median times of passes, as in `Text`
    alpha: Floats  #: [1 + R] accepted / tested
    alphas: Floats  #: [1 + R, γ] by position
    tokens: Floats  #: [1 + R, γ] tokens per step with 1, 2, … γ drafted ones

    @classmethod
    def of(cls, texts: Sequence[Text], root: int) -> "Resampled":
        size = len(texts)
        if size < 2:
            raise ValueError(f"texts: {size} of more than one step; record at least 2 to have intervals")
        draws = np.concatenate([np.ones((1, size)), document_draws(size, root)])
        counts, seconds = zip(*texts, strict=True)
        reached = draws @ np.array(counts)
        accepted, tested = reached[:, 1:], reached[:, :-1]
        return cls(
            np.array([medians(kind, draws) for kind in zip(*seconds, strict=True)]),
            accepted.sum(axis=1) / tested.sum(axis=1),
            accepted / np.maximum(tested, 1),
            1.0 + np.cumsum(accepted, axis=1) / reached[:, :1],
        )

    @property
    def c(self) -> Floats:
        """[1 + R] the time of a pass of the draft, in passes of the target over one token."""
        return self.seconds[0] / self.seconds[1]

    @property
    def cost(self) -> Floats:
        """[1 + R, γ] the time of a step of 1, 2, … γ drafted tokens, likewise."""
        return (self.seconds[2:] / self.seconds[1]).T + self.c[:, None] * np.arange(1, len(self.seconds) - 1)

    @property
    def gains(self) -> Floats:
        """[1 + R, γ] the speed-up."""
        return self.tokens / self.cost


def ends_of(values: Floats) -> Floats:
    """The first of `values`, and an interval from the others, with it inside."""
    low, high = np.quantile(values[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return np.array([values[0], min(low, values[0]), max(high, values[0])])


def plan_recorded(trace: Trace, root: int = 0) -> MeasuredPlan:
    """The plan of a trace whose passes were measured, with intervals over its texts."""
    texts = [*read_texts(trace).values()]
    found = Resampled.of(texts, root)
    verification = found.seconds[2:, 0] / found.seconds[1, 0]
    columns = [[*map(ends_of, one.T)] for one in (found.cost, found.tokens, found.alphas, found.gains)]
    each = enumerate(zip(*columns, verification.tolist(), strict=True), 1)
    draft, *target = (f"{1e3 * time:.3g}" for time in found.seconds[:, 0])
    said = (
        f"c {shown(ends_of(found.c))}, α {shown(ends_of(found.alpha))} of tested tokens; median passes: "
        f"draft {draft} ms, target over 1, 2, … tokens {', '.join(target)} ms"
    )
    how = f"{CONFIDENCE:.0%} intervals, {len(texts)} texts resampled (seed {root})"
    choices = tuple(MeasuredChoice(gamma, *values) for gamma, values in each)
    alpha, c = float(found.alpha[0]), float(found.c[0])
    formula = np.asarray(walltime_improvement(alpha, np.arange(1, trace.gamma + 1), c))
    return MeasuredPlan(choices, said, how, tuple(formula.tolist()))


def choose_draft(traces: Mapping[str, Trace], root: int = 0) -> Ranking:
    """Rank drafts by traces of the same prompts and target; pairs of texts decide what is surely worse."""
    each = {name: read_texts(trace) for name, trace in traces.items()}
    both = sorted(set.intersection(*map(set, each.values())))
    speeds, ranked = dict[str, Floats](), list[Ranked]()
    for name, texts in each.items():
        found = Resampled.of([texts[text] for text in both], root)
        gamma = int(found.gains[0].argmax())
        speeds[name] = found.gains[:, gamma]
        alpha, low, high = ends_of(found.alpha).tolist()
        candidate = Candidate(name, alpha, float(found.c[0]), low, high)
        gain, low, high = ends_of(speeds[name]).tolist()
        ranked.append(Ranked(candidate, gamma + 1, gain, low, high, False))
    ranked.sort(key=lambda one: -one.improvement)
    fastest = speeds[ranked[0].candidate.name]
    ends = [ends_of(speeds[one.candidate.name] / fastest) for one in ranked]
    return Ranking(replace(one, surely_worse=bool(x[2] < 1.0)) for one, x in zip(ranked, ends, strict=True))
