"""α over a trace, in one streaming pass: the three meanings of it, each by its own name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.jit import available_threads, kernel
from specsim.showing import html_bars, html_list
from specsim.traces.format import rounding
from specsim.traces.reader import Progress, Shard, Trace


@dataclass(frozen=True, eq=False)
class TraceSummary:
    """What `summarise` counted, and what follows from it. β is Σ min(p, q) at a row.

    Standard errors treat steps as independent, and positions within a step as not.
    """

    vocab_size: int
    gamma: int
    dtype: str
    accepted_lengths: NDArray[np.int64]  #: [γ+1] how many steps accepted 0, 1, … γ tokens
    beta_sums: NDArray[np.float64]  #: [γ+1] Σ β by position, over the steps that reached it
    reached_moments: tuple[float, float]  #: Σ x² and Σ x·n over steps; x = Σ β over the n positions reached
    tested_moments: tuple[float, float]  #: the same over the positions tested: without the bonus
    rounding: float  #: bound on the error of any β, hence of their mean, from storing rows in `dtype`
    skipped: tuple[str, ...]  #: the damaged shards left out, where that was asked for

    @property
    def num_steps(self) -> int:
        return int(self.accepted_lengths.sum())

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return self.num_steps * self.gamma

    @property
    def tested(self) -> int:
        """Drafted tokens that were tested: all up to the first rejection."""
        return int(self.tested_by_position.sum())

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted."""
        return int(self.accepted_by_position.sum())

    @property
    def reached_by_position(self) -> NDArray[np.int64]:
        """[γ+1] steps that reached each position: that accepted all drafted tokens before it."""
        return np.cumsum(self.accepted_lengths[::-1])[::-1]

    @property
    def tested_by_position(self) -> NDArray[np.int64]:
        """[γ] steps that tested the token drafted at each position."""
        return self.reached_by_position[:-1]

    @property
    def accepted_by_position(self) -> NDArray[np.int64]:
        """[γ] steps that accepted the token drafted at each position."""
        return self.reached_by_position[1:]

    @property
    def beta_by_position(self) -> NDArray[np.float64]:
        """[γ+1] mean β of the steps that reached each position, the bonus last; NaN where none did."""
        return _ratios(self.beta_sums, self.reached_by_position)

    @property
    def alpha_by_position(self) -> NDArray[np.float64]:
        """[γ] accepted / tested at each position; NaN where none was tested. Compare `beta_by_position`."""
        return _ratios(self.accepted_by_position, self.tested_by_position)

    @property
    def alpha_context(self) -> float:
        """Mean β over the contexts of the target's own text: positions 0 … τ, the bonus included."""
        return float(self.beta_sums.sum() / self.reached_by_position.sum())

    @property
    def alpha_verified(self) -> float:
        """Accepted / tested."""
        return self.accepted / self.tested

    @property
    def alpha_drafted(self) -> float:
        """Accepted / drafted."""
        return self.accepted / self.drafted

    @property
    def expected_verified(self) -> float:
        """Mean β over the tested positions: what `alpha_verified` should be under token-wise verification."""
        return float(self.beta_sums[:-1].sum() / self.tested)

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a step emits: accepted ones and one more."""
        return self.accepted / self.num_steps + 1

    @property
    def standard_errors(self) -> dict[str, float]:
        """The standard error of each mean and ratio, by its name, over steps; NaN for a single step."""
        lengths = np.arange(self.gamma + 1)
        reached, tested = lengths + 1, np.minimum(lengths + 1, self.gamma)
        x2, xn = self._length_moment(lengths * lengths), self._length_moment(lengths * tested)
        n = self.num_steps
        return {
            "alpha_context": self._ratio_error(self.alpha_context, *self.reached_moments, reached),
            "alpha_verified": self._ratio_error(self.alpha_verified, x2, xn, tested),
            "alpha_drafted": self._ratio_error(
                self.alpha_drafted, x2, self.accepted * self.gamma, np.full_like(lengths, self.gamma)
            ),
            "expected_verified": self._ratio_error(self.expected_verified, *self.tested_moments, tested),
            "tokens_per_step": self._ratio_error(self.accepted / n, x2, self.accepted, np.ones_like(lengths)),
        }

    def to_dict(self) -> dict[str, Any]:
        """Counts, derived values and standard errors, as JSON can hold them: None where there is no value."""
        derived = (
            "alpha_context", "alpha_verified", "alpha_drafted", "expected_verified", "tokens_per_step",
        )  # fmt: skip
        return {
            "vocab_size": self.vocab_size,
            "gamma": self.gamma,
            "dtype": self.dtype,
            "steps": self.num_steps,
            "drafted": self.drafted,
            "tested": self.tested,
            "accepted": self.accepted,
            "accepted_lengths": self.accepted_lengths.tolist(),
            **{name: getattr(self, name) for name in derived},
            "standard_errors": {name: _or_none(error) for name, error in self.standard_errors.items()},
            "alpha_by_position": [_or_none(value) for value in self.alpha_by_position],
            "beta_by_position": [_or_none(value) for value in self.beta_by_position],
            "rounding": self.rounding,
            "skipped": list(self.skipped),
        }

    def _repr_html_(self) -> str:
        errors = self.standard_errors
        shown = {
            "α context": "alpha_context",
            "α verified": "alpha_verified",
            "α verified, expected": "expected_verified",
            "α drafted": "alpha_drafted",
            "tokens per step": "tokens_per_step",
        }
        rows = {
            "steps": f"{self.num_steps:,} of γ = {self.gamma}",
            "vocabulary": f"{self.vocab_size:,}, {self.dtype}",
        }
        rows |= {word: f"{getattr(self, name):.5f} ± {errors[name]:.5f}" for word, name in shown.items()}
        if self.skipped:
            rows["left out"] = "; ".join(self.skipped)
        plots = [
            html_bars(f"{word} by position", {str(i): float(rate) for i, rate in enumerate(rates, start=1)})
            for word, rates in (("α", self.alpha_by_position), ("β", self.beta_by_position))
        ]
        return html_list(rows) + "".join(plots)

    def _length_moment(self, values: NDArray[np.int64]) -> int:
        """Σ over steps of a value that depends on the accepted length only."""
        return int(self.accepted_lengths @ values)

    def _ratio_error(self, ratio: float, x2: float, xn: float, n: NDArray[np.int64]) -> float:
        """The standard error of Σx / Σn over steps, from Σx², Σxn and n by accepted length (delta method)."""
        steps = self.num_steps
        if steps < 2:
            return float("nan")
        residual = x2 - 2 * ratio * xn + ratio**2 * self._length_moment(n * n)
        return float(np.sqrt(max(residual, 0.0) * steps / (steps - 1)) / self._length_moment(n))


def summarise(trace: Trace, *, progress: Progress | None = None, skip_damaged: bool = False) -> TraceSummary:
    """Measure α over `trace`: one pass over p and q, each row checked as it is read, shards side by side.

    `progress(rows, of_rows)` is called after every shard. A damaged shard raises ValueError, naming the file and
    the row, unless `skip_damaged`; it is then left out as a whole and named in the result. Raises ValueError
    too if there is no step to summarise.
    """
    total = _Tally.empty(trace.gamma)
    skipped = []
    done = 0
    with ThreadPoolExecutor(available_threads()) as pool:
        futures = [pool.submit(_tally_shard, shard) for shard in trace.shards]
        try:
            for shard, future in zip(trace.shards, futures, strict=True):
                try:
                    total = total.plus(future.result())
                except ValueError as error:
                    if not skip_damaged:
                        raise
                    skipped.append(str(error))
                done += shard.num_rows
                if progress:
                    progress(done, trace.num_rows)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    if not total.lengths.any():
        raise ValueError(f"{trace.path}: no step to summarise")
    return TraceSummary(
        vocab_size=trace.vocab_size,
        gamma=trace.gamma,
        dtype=trace.dtype,
        accepted_lengths=total.lengths,
        beta_sums=total.beta_sums,
        reached_moments=(float(total.moments[0]), float(total.moments[1])),
        tested_moments=(float(total.moments[2]), float(total.moments[3])),
        rounding=rounding(trace.layout),
        skipped=tuple(skipped),
    )


class _Tally(NamedTuple):
    lengths: NDArray[np.int64]
    beta_sums: NDArray[np.float64]
    moments: NDArray[np.float64]

    @classmethod
    def empty(cls, gamma: int) -> _Tally:
        return cls(np.zeros(gamma + 1, np.int64), np.zeros(gamma + 1), np.zeros(4))

    def plus(self, other: _Tally) -> _Tally:
        return _Tally(
            self.lengths + other.lengths, self.beta_sums + other.beta_sums, self.moments + other.moments
        )


def _tally_shard(shard: Shard) -> _Tally:
    """The sums over one shard, all of it or none: so that a damaged one leaves no trace in the total."""
    tally = _Tally.empty(shard.layout.gamma)
    for columns, beta in shard.scan():
        _add_steps(columns.accepted, beta, *tally)
    return tally


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


def _ratios(sums: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
