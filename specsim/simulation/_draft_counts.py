"""The acceptance of one of K drafted tokens by each rule, and its upper bounds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specsim import rules, theory
from specsim.core._arguments import checked
from specsim.core._checks import check_count
from specsim.core._streams import RandomSource, root_of
from specsim.core.distributions import Floats, check_rows
from specsim.drafts import Tree
from specsim.simulation._engine import simulate

#: Rules for K children of a node, with the closed form of their acceptance if there is one.
RULES: dict[str, Callable[[Floats, Floats, int], float] | None] = {
    "naive_matching": theory.naive_matching_acceptance,
    "token_tree": None,
    "k_seq": theory.k_seq_acceptance,
    "recursive_rejection": theory.recursive_rejection_acceptance,
    "without_replacement": None,
    "greedy_multi_draft": theory.greedy_multi_draft_acceptance,
    "deterministic_children": None,
}
#: Sampling methods with an optimal acceptance.
BOUNDS = ("sampled", "without replacement", "top and sample", "top")


@dataclass(frozen=True)
class Acceptance:
    """The acceptance of a rule or bound at one number of drafts, with the standard `error`.

    `simulated` is None for a bound, `theory` None without a closed form."""

    name: str
    drawing: str
    drafts: int
    theory: float | None
    simulated: float | None
    error: float | None


@checked
def acceptance_by_drafts(
    p: Floats,
    q: Floats,
    most: int = 8,
    *,
    steps: int = 2**18,
    rng: RandomSource = None,
    threads: int | None = None,
) -> list[Acceptance]:
    """Simulate the probability that one of K drafted tokens is accepted, for every rule and bound.

    Parameters
    ----------
    p, q : ndarray, [V]
        pmfs of target and draft.
    most : int
        Largest number of drafts K; at K = 1 only the bounds are returned.
    steps, rng, threads
        Of each rule, as in `simulate`.

    Returns
    -------
    list of Acceptance

    Raises
    ------
    ValueError, TypeError
        As in `simulate`.

    Examples
    --------
    >>> found = acceptance_by_drafts(np.array([0.5, 0.5]), np.array([0.8, 0.2]), most=1)
    >>> found[0].name, found[0].drawing, round(found[0].theory, 12)
    ('bound', 'sampled', 0.7)
    """
    p, q = check_rows(p, "p"), check_rows(q, "q")
    check_count("most", most, 1, p.shape[-1])
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
