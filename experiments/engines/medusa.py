"""Medusa: typical acceptance over draft trees, lossy by design.

`medusa/model/utils.py`, read at medusa-llm 0.1 and in Spec-Bench's copy:

    evaluate_posterior(logits[L, D, V], candidates[L, D], temperature, posterior_threshold=0.3,
    posterior_alpha=0.09, …)
        -> (best_candidate, accept_length)

The L rows are the paths from the root to a leaf, D = depth + 1, padded with token 0. A drafted token passes
where p(x) > min(threshold, alpha·exp(-entropy)); the longest path wins, then the likeliest. The token after
it is chosen outside, in `generate_candidates`, whose default (`fast`, and all of 0.1) is the most probable
one of p: the adapter does that. In sampling 'nucleus' of later versions each path draws target tokens of its
own.
"""

from typing import Any

import numpy as np

from experiments.engines._origins import Clone, engines, made_by
from specsim.adapters import Verifier, declares
from specsim.models import Tree

ORIGIN = Clone("FasterDecoding/Medusa")
#: The defaults of the paper's code.
THRESHOLD, ALPHA = 0.3, 0.09


def adapt(evaluate_posterior: engines.Function) -> Verifier:
    """Make a tree verifier of any function with the signature above, at temperature 1."""

    @declares(arrays="torch", dtypes=("float32",), tree=True, draft_sampling="top")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        import torch

        tree = Tree(tuple(int(parent) for parent in parents))
        paths = engines.leaf_paths(tree)
        drafted = [0, *(int(token) for token in tokens), 0]  # -1, the padding, is the last: token 0
        candidates = torch.tensor([[drafted[node] for node in path] for path in paths])
        with engines.seeded_torch(rng):
            best, length = evaluate_posterior(p.log()[torch.tensor(paths)], candidates, 1.0, THRESHOLD, ALPHA)
            nodes = paths[int(best)][: int(length) + 1]
            return nodes[1:], int(p[nodes[-1]].argmax())

    return verify


__getattr__ = made_by(__name__, verify=lambda: adapt(ORIGIN.part("medusa.model.utils").evaluate_posterior))
