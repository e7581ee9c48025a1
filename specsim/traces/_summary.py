"""The definitions of α, each by its own name, measured over a trace in one streaming pass.

If rows are truncated, or q is unknown at the bonus position, β is an interval at each row, and so is its
mean; without accept flags so are the tokens that the standard rule would emit (`TraceBounds`)."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import available_threads, kernel
from specsim.core._plotting import Axes, axes_or_new
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._tables import NONE, Piece, Shown, Table, as_dict, bars, plain, span
from specsim.core._types import Floats, Ints, checked
from specsim.core.stats import accepted_error
from specsim.theory._acceptance import rates, with_error
from specsim.traces._format import AnyColumns, Layout, rounding
from specsim.traces._reader import Shard, Trace
from specsim.traces._truncated import acceptance_chances

Interval = tuple[float, float]

COUNTED = ("tested", "accepted", "alpha")
#: What `to_dict` adds to the fields where accept flags were logged.
DERIVED = ("drafted", "tested", "accepted", "alpha_verified", "alpha_drafted", "tokens_per_step")


@dataclass(frozen=True, eq=False)
class Accepted(Shown):
    """Statistics that follow from the accepted lengths, with standard errors for independent steps."""

    vocab_size: int
    gamma: int
    dtype: str
    accepted_lengths: Ints  #: [γ+1] how many steps accepted 0, 1, … γ tokens

    @property
    def num_steps(self) -> int:
        return int(self.accepted_lengths.sum())

    @property
    def drafted(self) -> int:
        return self.num_steps * self.gamma

    @property
    def tested(self) -> int:
        """Drafted tokens that were tested: those up to the first rejection, included."""
        return int(self.tested_by_position.sum())

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted."""
        return int(self.accepted_by_position.sum())

    @property
    def reached_by_position(self) -> Ints:
        """[γ+1] steps that reached each position, having accepted all tokens before it."""
        return np.cumsum(self.accepted_lengths[::-1])[::-1]

    @property
    def tested_by_position(self) -> Ints:
        """[γ] steps that tested the token drafted at each position."""
        return self.reached_by_position[:-1]

    @property
    def accepted_by_position(self) -> Ints:
        """[γ] steps that accepted the token drafted at each position."""
        return self.reached_by_position[1:]

    @property
    def alpha_by_position(self) -> Floats:
        """[γ] accepted / tested at each position; NaN where none was tested."""
        return _ratios(self.accepted_by_position, self.tested_by_position)

    @property
    def alpha_verified(self) -> float:
        """Accepted / tested."""
        return self.accepted / self.tested

    @property
    def alpha_drafted(self) -> float:
        """Accepted / drafted."""
        return self.accepted / self.drafted

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a step emits, the accepted ones and one more."""
        return self.accepted / self.num_steps + 1

    @property
    def beta_by_position(self) -> Floats:
        """The mean β at each position, the bonus last, or bounds on it."""
        raise NotImplementedError

    @property
    def standard_errors(self) -> dict[str, float]:
        """The standard errors over steps, by name; NaN for a single step."""
        lengths = np.arange(self.gamma + 1)
        per_step = {
            "alpha_verified": np.minimum(lengths + 1, self.gamma),
            "alpha_drafted": np.full_like(lengths, self.gamma),
            "tokens_per_step": np.ones_like(lengths),
        }
        return {name: accepted_error(self.accepted_lengths, n) for name, n in per_step.items()}

    def records(self) -> list[dict[str, Any]]:
        """A row for each position, the bonus last: tested, accepted, α, and β or bounds on it.

        A log without accept flags gives β alone."""
        beta = np.atleast_2d(self.beta_by_position.T)
        names = ("beta",) if len(beta) == 1 else ("beta_low", "beta_high")
        columns: dict[str, Any] = {"position": np.arange(1, self.gamma + 2)}
        if getattr(self, "flags", True):
            counts = self.tested_by_position, self.accepted_by_position, self.alpha_by_position
            columns |= {n: [*plain(c), None] for n, c in zip(COUNTED, counts, strict=True)}
        columns |= zip(names, beta, strict=True)
        values = zip(*map(plain, columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Accepted / tested by position, with the mean β beside it."""
        ax = axes_or_new(ax)
        positions = np.arange(1, self.gamma + 1)
        ax.plot(positions, self.alpha_by_position, "o-", label="α: accepted / tested")
        beta = np.atleast_2d(self.beta_by_position.T)[:, :-1]
        ax.fill_between(positions, beta[0], beta[-1], alpha=0.3)
        ax.plot(positions, beta.mean(axis=0), "s--", label="mean β")
        ax.set(xlabel="position", ylabel="acceptance rate", xticks=positions)
        ax.legend()
        return ax

    def _positions(self) -> Table:
        rows, beta = self.records(), np.atleast_2d(self.beta_by_position.T)
        counted = [name for name in COUNTED if name in rows[0]]
        cells = [
            (row["position"], *(_cell(row[name]) for name in counted), span(ends[[0, -1]]), bar)
            for row, ends, bar in zip(rows, beta.T, bars(beta.mean(axis=0).tolist()), strict=True)
        ]
        return Table(("position", *(name.replace("alpha", "α") for name in counted), "mean β", ""), cells)


@dataclass(frozen=True, eq=False)
class TraceSummary(Accepted):
    """The result of `summarise` for a trace with whole rows, flags and bonus rows. β is Σ min(p, q) at a row.

    Stored rows sum to 1 up to rounding, so β may be slightly above 1: means are clipped at 1."""

    beta_sums: Floats  #: [γ+1] Σ β by position, over the steps that reached it
    reached_moments: tuple[float, float]  #: Σ x² and Σ x·n over steps; x = Σ β over the n positions reached
    tested_moments: tuple[float, float]  #: the same over the positions tested: without the bonus
    rounding: float  #: bound on the error of any β, hence of their mean, from storing rows in `dtype`
    skipped: tuple[str, ...]  #: the damaged shards that were skipped

    @property
    def beta_by_position(self) -> Floats:
        """[γ+1] mean β of the steps that reached each position, the bonus last; NaN where none did."""
        return np.minimum(_ratios(self.beta_sums, self.reached_by_position), 1.0)

    @property
    def alpha_context(self) -> float:
        """Mean β over the contexts of the target's own text: positions 0 … τ, the bonus included."""
        return min(1.0, float(self.beta_sums.sum() / self.reached_by_position.sum()))

    @property
    def expected_verified(self) -> float:
        """Mean β over the tested positions, which token-wise verification attains as `alpha_verified`."""
        return min(1.0, float(self.beta_sums[:-1].sum() / self.tested))

    @property
    def standard_errors(self) -> dict[str, float]:
        reached = np.arange(1, self.gamma + 2)
        tested = np.minimum(reached, self.gamma)
        return {
            "alpha_context": self._ratio_error(self.alpha_context, *self.reached_moments, reached),
            **super().standard_errors,
            "expected_verified": self._ratio_error(self.expected_verified, *self.tested_moments, tested),
        }

    def _ratio_error(self, ratio: float, x2: float, xn: float, n: Ints) -> float:
        """As `accepted_error` for another x than the accepted tokens, from Σx² and Σxn over steps."""
        steps, lengths = self.num_steps, self.accepted_lengths
        if steps < 2:
            return float("nan")
        residual = x2 - 2 * ratio * xn + ratio**2 * int(lengths @ (n * n))
        return float(np.sqrt(max(residual, 0.0) * steps / (steps - 1)) / int(lengths @ n))

    def to_dict(self) -> dict[str, Any]:
        """Counts, derived values and standard errors for JSON; a missing value is None."""
        derived = (*DERIVED, "alpha_context", "expected_verified", "standard_errors")
        without = ("beta_sums", "reached_moments", "tested_moments")
        places = ("alpha_by_position", "beta_by_position")
        return as_dict(self, *derived, *places, without=without, steps=self.num_steps)

    def parts(self) -> Iterator[Piece]:
        errors, stored = self.standard_errors, f"V = {self.vocab_size:,}, stored {self.dtype}"
        yield f"{self.num_steps:,} steps, γ = {self.gamma}; {stored}: each β within {self.rounding:.1g}"
        yield rates(self, self.gamma, errors)
        expected = with_error(self.expected_verified, errors["expected_verified"])
        yield f"α verified, expected from β: {expected}"
        yield self._positions()
        yield from (f"left out: {damage}" for damage in self.skipped)


@dataclass(frozen=True, eq=False)
class TraceBounds(Accepted):
    """The result of `summarise` for an incomplete trace: (low, high) over all completions of its rows.

    They leave out sampling errors. Without flags counts raise ValueError, `alpha_context` is the mean β of
    the contexts where steps begin (in a text, γ = 0: of all), and `beta_by_position` that of all rows at each
    position."""

    top: int | None  #: the k of truncated rows
    flags: bool  #: whether accepted drafts were logged
    steps: int
    beta_sums: Floats  #: [2, γ+1] bounds on Σ β by position, over `rows_by_position` rows
    rows_by_position: Ints  #: [γ+1]
    token_sums: Floats  #: [2, γ] Σ over steps of P(the standard rule accepts at least 1, 2, … γ tokens)
    rounding: float  #: bound on the error of any β from storing rows in `dtype`; widens the means of β
    skipped: tuple[str, ...]  #: the damaged shards that were skipped

    @property
    def num_steps(self) -> int:
        return self.steps

    @property
    def reached_by_position(self) -> Ints:
        if not self.flags:
            raise ValueError("trace: has no accept flags, so nothing counts as accepted; log the flags")
        return super().reached_by_position

    @property
    def beta_by_position(self) -> Floats:
        """[γ+1, 2] bounds on the mean β at each position, the bonus last; NaN without a row."""
        return self._widened([_ratios(sums, self.rows_by_position) for sums in self.beta_sums]).T

    @property
    def alpha_context(self) -> Interval:
        """Bounds on the mean β over the contexts of the target's own text: positions 0 … τ, or see above."""
        last = self.gamma + 1 if self.flags else 1
        return self._mean(self.beta_sums[:, :last], int(self.rows_by_position[:last].sum()))

    @property
    def expected_verified(self) -> Interval:
        """Bounds on the mean β over the tested positions."""
        return self._mean(self.beta_sums[:, :-1], self.tested)

    @property
    def expected_tokens(self) -> Floats:
        """[γ, 2] bounds on the mean tokens per step of the standard rule with 1, 2, … γ drafted tokens:
        1 + Σ_j β_j Π_{i<j} min(1, p/q)(drafted i), which rises with every factor."""
        return np.asarray(1.0 + np.cumsum(self._widened(self.token_sums / self.steps), axis=1).T)

    @property
    def one_token(self) -> Interval:
        """Bounds on the mean tokens per step for γ = 1, over the contexts of `alpha_context`."""
        low, high = self.alpha_context
        return 1.0 + low, 1.0 + high

    def to_dict(self) -> dict[str, Any]:
        """Counts and intervals for JSON; a missing value is None."""
        derived = ("alpha_context", "expected_tokens", "one_token", "beta_by_position")
        without = ("accepted_lengths", "flags", "beta_sums", "rows_by_position", "token_sums")
        counted = (*DERIVED, "expected_verified") if self.flags else ()
        return as_dict(self, *counted, *derived, without=without)

    def parts(self) -> Iterator[Piece]:
        kept = "" if self.top is None else f", the top {self.top}"
        steps = f"steps, γ = {self.gamma}" if self.gamma else "places"
        yield f"{self.steps:,} {steps}; V = {self.vocab_size:,}{kept}, stored {self.dtype}"
        if self.flags:
            yield rates(self, None, self.standard_errors)
        else:
            rows = [("α context", span(self.alpha_context))]
            for gamma, ends in enumerate([self.one_token, *self.expected_tokens[1:]], 1):
                rows.append((f"standard rule, γ = {gamma}", f"{span(ends)} tokens per step"))
            yield "no accept flags were logged: what follows are bounds"
            yield Table((), rows)
        if self.gamma:
            yield self._positions()
        yield from (f"left out: {damage}" for damage in self.skipped)

    def _widened(self, bounds: Any) -> Floats:
        """`bounds` [2, n] on means in [0, 1], with the rounding of the stored rows."""
        return np.clip(bounds + np.array([[-self.rounding], [self.rounding]]), 0.0, 1.0)

    def _mean(self, sums: Floats, count: int) -> Interval:
        low, high = self._widened(sums.sum(axis=1)[:, None] / count)[:, 0].tolist()
        return low, high


@checked
@shows_progress("summarise", " rows")
def summarise(
    trace: Trace, *, progress: ShowProgress = None, skip_damaged: bool = False
) -> TraceSummary | TraceBounds:
    """Measure α over a trace in one pass over p and q, in threads over shards; every row is checked.

    Parameters
    ----------
    trace : Trace
        Of `open_trace`.
    progress : bool or callable, optional
        As in `specsim.simulate`, in rows.
    skip_damaged : bool
        Skip damaged shards and name them in the result, instead of raising.

    Returns
    -------
    TraceSummary or TraceBounds
        Bounds for truncated rows, or without accept flags or q at the bonus position.

    Raises
    ------
    ValueError
        For a damaged shard, with the file and the row, or if no step is left.

    References
    ----------
    Leviathan, Kalman & Matias, arXiv 2211.17192, Corollary 3.6: α = E[Σ min(p, q)].

    Examples
    --------
    >>> from specsim.traces import default_trace
    >>> found = summarise(default_trace())
    >>> round(found.alpha_verified, 3), [round(end, 3) for end in found.alpha_context]
    (0.4, [0.362, 0.408])
    """
    return summarise_with(trace, None, skip_damaged, told(progress))[0]


#: Is called with each chunk of a trace, its columns and β, as `Shard.scan` yields them.
OfChunk = Callable[[AnyColumns, Floats], Any]


def summarise_with(
    trace: Trace, of_chunk: OfChunk | None, skip_damaged: bool, tell: Progress
) -> tuple[TraceSummary | TraceBounds, list[Any]]:
    """`summarise`, and what `of_chunk` returns for each chunk of the sound shards, in order."""
    tallies, of_chunks, skipped, done = list[Any](), list[Any](), list[str](), 0
    with ThreadPoolExecutor(available_threads()) as pool:
        futures = [pool.submit(_tally_shard, shard, of_chunk) for shard in trace.shards]
        try:
            for shard, future in zip(trace.shards, futures, strict=True):
                try:
                    tally, found = future.result()
                    tallies.append(tally)
                    of_chunks += found
                except ValueError as error:
                    if not skip_damaged:
                        raise
                    skipped.append(str(error))
                done += shard.num_rows
                tell(done, trace.num_rows)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    layout = trace.layout
    if not tallies:
        raise ValueError(f"{trace.path}: no step to summarise; record some, or give another trace")
    steps, lengths, beta_sums, moments, token_sums = (sum(column) for column in zip(*tallies, strict=True))
    counted = layout.vocab_size, layout.gamma, layout.dtype, lengths
    shared: dict[str, Any] = {"rounding": rounding(layout), "skipped": tuple(skipped)}
    if is_whole(layout):
        reached, tested = moments.reshape(2, 2).tolist()
        return TraceSummary(*counted, beta_sums[0], tuple(reached), tuple(tested), **shared), of_chunks
    rows = np.cumsum(lengths[::-1])[::-1] if layout.flags else np.full(trace.gamma + 1, steps)
    logged = layout.top, layout.flags, steps
    return TraceBounds(*counted, *logged, beta_sums, rows, token_sums, **shared), of_chunks


def is_whole(layout: Layout) -> bool:
    """Whether β is known at every row: whole rows, accept flags, and q at the bonus position."""
    return layout.top is None and layout.flags and layout.bonus


def _tally_shard(shard: Shard, of_chunk: OfChunk | None) -> tuple[tuple[Any, ...], list[Any]]:
    """The sums over one shard: steps, lengths [γ+1], β [2, γ+1], moments of dense rows, and tokens [2, γ] of
    others. A damaged one raises ValueError, and so adds nothing."""
    layout, found, moments = shard.layout, [], np.zeros(4)
    lengths, beta_sums = np.zeros(layout.gamma + 1, np.int64), np.zeros((2, layout.gamma + 1))
    token_sums = np.zeros((2, layout.gamma))
    for columns, beta in shard.scan():
        if layout.flags:
            _add_steps(columns.accepted, beta[0], lengths, beta_sums[0], moments)
        if not is_whole(layout):
            ends = beta.reshape(2, -1, layout.rows_per_step)
            token_sums += bound_reach(acceptance_chances(columns, layout), ends).sum(axis=1)
            if layout.flags:
                _add_steps(columns.accepted, beta[1], np.zeros_like(lengths), beta_sums[1], np.zeros(4))
            else:
                beta_sums += ends.sum(axis=1)
        if of_chunk is not None:
            found.append(of_chunk(columns, beta))
    return (shard.num_steps, lengths, beta_sums, moments, token_sums), found


def bound_reach(chances: Floats, beta: Floats) -> Floats:
    """[2, S, γ] bounds on P(the standard rule accepts ≥ 1, 2, … γ tokens), from those of drafts and β."""
    before = np.cumprod(np.pad(chances, [(0, 0), (0, 0), (1, 0)], constant_values=1.0), axis=2)
    return np.asarray(before[..., :-1] * beta[..., :-1])


@kernel
def _add_steps(accepted, beta, lengths, beta_sums, moments):  # type: ignore[no-untyped-def]
    """Add steps to a tally: accepted int8 [R] and beta [R], R a multiple of lengths.size = γ + 1."""
    stride = lengths.size
    for first in range(0, beta.size, stride):
        length = 0
        reached = 0.0  # Σ β over positions 0 … τ
        tested = 0.0  # the same without the bonus
        for j in range(stride):
            reached += beta[first + j]
            beta_sums[j] += beta[first + j]
            if accepted[first + j] >= 0:
                tested = reached
            if accepted[first + j] != 1:
                break
            length += 1
        lengths[length] += 1
        moments[0] += reached * reached
        moments[1] += reached * (length + 1)
        moments[2] += tested * tested
        moments[3] += tested * min(length + 1, stride - 1)


def _ratios(sums: NDArray[Any], counts: Ints) -> Floats:
    return np.divide(sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def _cell(value: int | float | None) -> str:
    return NONE if value is None else f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
