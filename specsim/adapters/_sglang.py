"""SGLang: the sampling of a draft tree, from the target's probabilities only.

`sgl_kernel/speculative.py`, read in 2026:

    tree_speculative_sampling_target_only(predicts[N], accept_index[B, depth+1], accept_token_num[B],
        candidates[B, n+1], retrive_index[B, n+1], retrive_next_token[B, n+1], retrive_next_sibling[B, n+1],
        uniform_samples[B, n+1], uniform_samples_for_final_sampling[B], target_probs[B, n+1, V],
        draft_probs[B, n+1, V], threshold_single=1.0, threshold_acc=1.0, deterministic=True)

The first three are written to, `draft_probs` too (zeros at first: what is proposed does not matter). Node 0
carries the last token of the text. A node's first child is its `next_token`, the next child of the same node
`next_sibling`, or -1. `accept_index` lists the accepted nodes, the root first; `predicts`
holds, at each of them, the token that follows it.

It needs a GPU. Known issues: one coin per node serves all its children, by adding up their probabilities,
which is exact only where siblings are distinct and both thresholds are 1; a lower threshold is lossy.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters._contract import Verifier, declares
from specsim.models import Tree


def adapt(tree_speculative_sampling: engines.Function, device: str = "cpu") -> Verifier:
    """Make a tree verifier of any function with the signature above, on `device`."""

    @declares(arrays="torch", device=device, dtypes=("float32",), tree=True, draft_sampling="top")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        import torch

        tree = Tree(tuple(int(parent) for parent in parents))
        nodes = tree.size + 1
        first_child, next_sibling = _links(tree)

        def index(values: Any) -> Any:
            return torch.as_tensor(values, dtype=torch.int64, device=p.device)[None]

        predicts = torch.full((nodes,), -1, dtype=torch.int32, device=p.device)
        accepted = torch.full((1, tree.depth + 1), -1, dtype=torch.int32, device=p.device)
        number = torch.zeros(1, dtype=torch.int32, device=p.device)
        with engines.seeded_torch(rng):
            coins = torch.rand((1, nodes), device=p.device)
            final_coin = torch.rand(1, device=p.device)
        tree_speculative_sampling(
            predicts=predicts,
            accept_index=accepted,
            accept_token_num=number,
            candidates=index([0, *(int(token) for token in tokens)]),
            retrive_index=index(range(nodes)),
            retrive_next_token=index(first_child),
            retrive_next_sibling=index(next_sibling),
            uniform_samples=coins,
            uniform_samples_for_final_sampling=final_coin,
            target_probs=p[None].contiguous(),
            draft_probs=torch.zeros_like(p)[None],
            threshold_single=1.0,
            threshold_acc=1.0,
            deterministic=True,
        )
        path = accepted[0, : int(number[0]) + 1].tolist()
        return path[1:], int(predicts[path[-1]])

    return verify


verifier = engines.installed(
    adapt, "sgl_kernel:tree_speculative_sampling_target_only", install="pip install sgl-kernel", device="cuda"
)


def _links(tree: Tree) -> tuple[list[int], list[int]]:
    """The first child and the next sibling of every node, or -1."""
    first_child, next_sibling = [-1] * (tree.size + 1), [-1] * (tree.size + 1)
    for node in range(tree.size + 1):
        children = tree.children(node)
        first_child[node] = children[0] if children else -1
        for one, other in pairwise(children):
            next_sibling[one] = other
    return first_child, next_sibling
