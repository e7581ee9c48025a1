"""How often one of K drafted tokens is accepted, rule by rule, and the most that any rule could accept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specsim import rules, theory
from specsim.core._streams import RandomSource, root_of
from specsim.core.distributions import Floats
from specsim.drafts import Tree
from specsim.simulation._engine import simulate

#: Rules at a node, with the closed form of their acceptance where there is one.
RULES: dict[str, Callable[[Floats, Floats, int], float] | None] = {
    "naive_matching": theory.naive_matching_acceptance,
    "token_tree": None,
    "k_seq": theory.k_seq_acceptance,
    "recursive_rejection": theory.recursive_rejection_acceptance,
    "without_replacement": None,
    "greedy_multi_draft": theory.greedy_multi_draft_acceptance,
    "deterministic_children": None,
}
#: The ways of drawing that have a bound of their own.
BOUNDS = ("sampled", "without replacement", "top and sample", "top")


@dataclass(frozen=True)
class Acceptance:
    """One rule, or bound, at one number of drafts. `error` is the standard error of what was simulated.

    `simulated` is None for a bound, `theory` None where no closed form is used.
    """

    name: str
    drawing: str
    drafts: int
    theory: float | None
    simulated: float | None
    error: float | None


def acceptance_by_drafts(
    p: Floats,
    q: Floats,
    most: int = 8,
    *,
    steps: int = 2**18,
    rng: RandomSource = None,
    threads: int | None = None,
) -> list[Acceptance]:
    """The acceptance of K = 1 … `most` drafts of one token, for one pair of pmfs [V]: every rule, every bound.

    At K = 1 rules that need several drafts are left out: they are the standard rule.
    """
    root, found = root_of(rng), []
    for drafts in range(1, most + 1):
        for drawing in BOUNDS:
            bound = theory.optimal_acceptance(p, q, drafts, drawing)
            found.append(Acceptance("bound", drawing, drafts, float(bound), None, None))
        for name, closed in RULES.items() if drafts > 1 else ():
            drawing = rules.get(name).draft_sampling[0]
            tree = Tree((0,) * drafts, drawing)
            run = simulate(p, q, rule=name, gamma=tree, steps=steps, rng=root, threads=threads)
            rate = float(run.lengths[1] / run.steps)
            error = float(np.sqrt(rate * (1.0 - rate) / run.steps))
            value = None if closed is None else float(closed(p, q, drafts))
            found.append(Acceptance(name, drawing, drafts, value, rate, error))
    return found
