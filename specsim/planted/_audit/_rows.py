"""The rows of a target and its draft in the contexts of a text."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.planted._engines._requests import Sampling
from specsim.planted._folder import Planted
from specsim.planted._sampling import processed


@dataclass(frozen=True)
class Given:
    """The rows [N, V] of target and draft in some contexts [N, k], before processing and after it in `order`.

    Each is made when it is first asked for, and then shared by all that ask."""

    planted: Planted
    sampling: Sampling
    order: str
    contexts: Ints

    @cached_property
    def raw_p(self) -> Floats:
        return self.planted.target.rows(self.contexts)

    @cached_property
    def raw_q(self) -> Floats:
        return self.planted.draft.rows(self.contexts)

    @cached_property
    def p(self) -> Floats:
        return processed(self.raw_p, self.sampling, self.order)

    @cached_property
    def q(self) -> Floats:
        return processed(self.raw_q, self.sampling, self.order)

    @property
    def pair(self) -> tuple[Floats, Floats]:
        """p and q."""
        return self.p, self.q

    @cached_property
    def residual(self) -> Floats:
        return residual(self.p, self.q)

    def changed(self, **parameters: float | None) -> Floats:
        """The target's rows with other parameters of processing."""
        return processed(self.raw_p, replace(self.sampling, **parameters), self.order)  # type: ignore[arg-type]

    def in_order(self, order: str) -> Floats:
        """The target's rows, processed in another order."""
        return processed(self.raw_p, self.sampling, order)

    def reading(self, contexts: Ints) -> "Given":
        """The same where other contexts are read."""
        return replace(self, contexts=contexts)


def residual(p: Floats, q: Floats) -> Floats:
    """(p - q)₊ normalised; p where that is 0."""
    weights = np.maximum(p - q, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), p)
