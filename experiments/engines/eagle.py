"""EAGLE: verification of draft trees, in the form of EAGLE-1 and in that of EAGLE-2 and 3.

`eagle/model/utils.py`, read at eagle-llm 1.2.1 and at 8009b6d:

    evaluate_posterior(logits[L, D, V], candidates[L, D], logits_processor, cart_candidates_prob[L, D], op,
                       p_indices, tree_candidates[1, n+1], b_indices)                            (EAGLE-1)
    evaluate_posterior(logits[L, D, V], candidates[L, D], logits_processor)                      (EAGLE-2, 3)
        -> (best_candidate, accept_length, sample_p[V])

The L rows are the paths from the root to a leaf, D = depth + 1, padded with -1. EAGLE-1's siblings are drawn
without replacement: `cart_candidates_prob` is the renormalised probability of each, `op[i][k]` the draft's
row at depth i of the k-th node drafted from, `p_indices` that k, `b_indices` the earlier siblings. EAGLE-2's
are the draft's most probable tokens, for which q counts as 1. The last token is drawn outside, from
`sample_p`: the adapter does that.

Known issues: Python's `random` for the coins; EAGLE-1 draws the bonus without the logits processor
(temperature ignored); no guard where the residual is zero. The batched function of `eagle/modeling_eagle.py`,
read at cb7e084, compares the accepted length with the number of paths where the depth is meant (`:1447`).
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.engines._origins import Clone, Wheel, engines, made_by, seeded_random
from specsim.adapters import Verifier, declares
from specsim.models import Tree

ORIGIN, WHEEL = Clone("SafeAILab/EAGLE"), Wheel("eagle-llm", "eagle")


def _verify() -> Verifier:
    """Adapt EAGLE-1's own function, of the wheel. Raises EngineMissing if it is not installed."""
    install = "pip install --no-deps eagle-llm, and torch, transformers"
    function = engines.engine_function("eagle.model.utils:evaluate_posterior", install)
    if "cart_candidates_prob" not in inspect.signature(function).parameters:
        raise engines.EngineMissing(f"eagle.model.utils is that of EAGLE-2 and 3; {install}")
    return adapt_1(function)


def _verify_2() -> Verifier:
    """Adapt the function of EAGLE-2 and 3 of the clone. Raises EngineMissing without it."""
    return adapt_2(ORIGIN.part("eagle.model.utils", absent=["transformers"]).evaluate_posterior)


def _batched() -> Verifier:
    """Adapt the clone's function for batches of EAGLE-1, with a single row. Raises EngineMissing."""
    missing = ["transformers", "huggingface_hub"]
    batched = ORIGIN.part("eagle.modeling_eagle", absent=missing).evaluate_posterior

    def alone(logits: Any, candidates: Any, processor: Any, chances: Any, op: Any, *rest: Any) -> Any:
        rows = [level[None] for level in op]
        found = batched(logits[None], candidates[None], processor, chances[None], rows, *rest, [False])
        best, length, sample_p = (values[0] for values in found)
        return best, length, sample_p

    return adapt_1(alone)


def adapt_1(evaluate_posterior: engines.Function) -> Verifier:
    """Make a tree verifier of a function with EAGLE-1's signature, for siblings drawn without replacement."""

    @declares(arrays="torch", dtypes=("float32",), tree=True, draft_sampling="without replacement")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        import torch

        tree, drafted = Tree(tuple(int(parent) for parent in parents)), [int(token) for token in tokens]
        paths = engines.leaf_paths(tree)
        levels = [
            [node for node in range(tree.size + 1) if tree.depths[node] == i and tree.children(node)]
            for i in range(tree.depth)
        ]
        op = [torch.stack([q[node] for node in level]) for level in levels]

        def earlier(node: int) -> list[int]:
            siblings = tree.children(tree.parents[node - 1])
            return list(siblings[: siblings.index(node)])

        def chance(node: int) -> float:
            row, x = q[tree.parents[node - 1]], drafted[node - 1]
            return float(row[x] / (1.0 - sum(row[drafted[other - 1]] for other in earlier(node))))

        def table(at: Callable[[int], Any], root: Any) -> list[list[Any]]:
            return [[root if node <= 0 else at(node) for node in path] for path in paths]

        chances, tree_candidates = torch.tensor(table(chance, 1.0)), torch.tensor([[0, *drafted]])
        p_indices = table(lambda node: levels[tree.depths[node] - 1].index(tree.parents[node - 1]), 0)
        b_indices = table(lambda node: torch.tensor(earlier(node), dtype=torch.long), [])
        rest = chances, op, p_indices, tree_candidates, b_indices
        return _evaluate(evaluate_posterior, paths, drafted, p, rng, *rest)

    return verify


def adapt_2(evaluate_posterior: engines.Function) -> Verifier:
    """Make a tree verifier of a function of EAGLE-2's signature, for the draft's most probable tokens."""

    @declares(arrays="torch", dtypes=("float32",), tree=True, draft_sampling="top")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        tree = Tree(tuple(int(parent) for parent in parents))
        drafted = [int(token) for token in tokens]
        return _evaluate(evaluate_posterior, engines.leaf_paths(tree), drafted, p, rng)

    return verify


def _evaluate(
    evaluate_posterior: engines.Function,
    paths: list[list[int]],
    drafted: list[int],
    p: Any,
    rng: np.random.Generator,
    *rest: Any,
) -> tuple[list[int], int]:
    """The accepted nodes and the token after them."""
    import torch

    candidates = torch.tensor([[-1 if node < 0 else [0, *drafted][node] for node in path] for path in paths])
    with engines.seeded_torch(rng), seeded_random(rng):
        logits = p.log()[torch.tensor(paths)]
        best, length, sample_p = evaluate_posterior(logits, candidates, _identity, *rest)
        token = torch.multinomial(sample_p, 1)
    return paths[int(best)][1 : int(length) + 1], int(token)


def _identity(_: Any, logits: Any) -> Any:
    """A logits processor that changes nothing."""
    return logits


__getattr__ = made_by(__name__, verify=_verify, verify_2=_verify_2, batched=_batched)
