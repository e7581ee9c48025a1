"""The shape of a draft: how it is drawn, what its law is, and how it is enumerated.

A draft is a tree given by `parents`: node 0 is the prefix so far, and drafted token number j (from 0) sits at
node j + 1, below node parents[j]. A chain of γ tokens has parents (0, 1, …, γ-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim.distributions import cumulative_draw
from specsim.jit import kernel

__all__ = ["Chain", "draw_tokens", "require_chain"]


#: Engines draft at most 128 tokens a step (vLLM's MAX_SPEC_LEN); a slip of the keyboard should not cost all memory.
MAX_GAMMA = 1024


@dataclass(frozen=True)
class Chain:
    """γ = `gamma` tokens, from 1 to `MAX_GAMMA`, each sampled from the draft's row after the ones before it.

    >>> Chain(3).parents
    (0, 1, 2)
    """

    gamma: int

    def __post_init__(self) -> None:
        if not isinstance(self.gamma, int | np.integer) or isinstance(self.gamma, bool):
            raise TypeError(f"gamma: expected an int, got {type(self.gamma).__name__}")
        object.__setattr__(self, "gamma", int(self.gamma))
        if self.gamma < 1:
            raise ValueError(
                f"gamma: {self.gamma} drafted tokens leave nothing to verify; it must be at least 1"
            )
        if self.gamma > MAX_GAMMA:
            raise ValueError(f"gamma: {self.gamma} drafted tokens a step are too many; at most {MAX_GAMMA}")

    @property
    def parents(self) -> tuple[int, ...]:
        return tuple(range(self.gamma))

    def paths(self, row: Callable[[tuple[int, ...]], Sequence[Any]]) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Every draft of positive probability, with that probability; row(drafted) is q after `drafted`."""

        def extend(drafted: tuple[int, ...], probability: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
            if len(drafted) == self.gamma:
                yield drafted, probability
                return
            for token, q in enumerate(row(drafted)):
                if q > 0:
                    yield from extend((*drafted, token), probability * q)

        yield from extend((), 1)


def require_chain(parents: Sequence[int], rule: str) -> None:
    """Raise ValueError unless `parents` is a chain, the only shape that `rule` verifies."""
    if tuple(parents) != tuple(range(len(parents))):
        raise ValueError(
            f"{rule} verifies a chain of drafted tokens, not a tree with parents {tuple(parents)}"
        )


@kernel
def draw_tokens(rows, u, tokens):  # type: ignore[no-untyped-def]
    """One token from each of rows[B, V], by inverse CDF with u[B], into int64 tokens[B]."""
    for b in range(rows.shape[0]):
        tokens[b] = cumulative_draw(rows[b], u[b])
