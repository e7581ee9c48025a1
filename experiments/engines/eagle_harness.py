"""EAGLE-Harness: recursive rejection of siblings that are drawn without replacement, in PyTorch.

`eagle_harness/core/sampled_tree.py`, read at 0.1.3:

    reject_children(target_probs[R, V], proposals, uniforms[R, K], final_uniforms[R])
        -> (tokens[R], accepted_position[R])

`proposals` has the parent's row `probs` over `token_ids`, and the children's `positions` in it and `tokens`,
in the order in which they were drawn. It verifies the children of one node: the adapter goes down the tree.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.engines._origins import Wheel, engines, made_by
from specsim.adapters import Verifier, declares
from specsim.models import Tree

ORIGIN = Wheel("eagle-harness", "eagle_harness")


def adapt(reject_children: engines.Function) -> Verifier:
    """Make a tree verifier of any function with the signature above."""

    @declares(arrays="torch", dtypes=("float32",), tree=True, draft_sampling="without replacement")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        import torch

        tree, node = Tree(tuple(int(parent) for parent in parents)), 0
        path: list[int] = []
        ids = torch.arange(p.shape[1])[None]
        with engines.seeded_torch(rng):
            while children := tree.children(node):
                drawn = torch.tensor([[int(tokens[child - 1]) for child in children]])
                proposals = SimpleNamespace(
                    probs=q[node][None], token_ids=ids, positions=drawn, tokens=drawn, scores=None
                )
                coins, final_coin = torch.rand(1, len(children)), torch.rand(1)
                token, accepted = reject_children(p[node][None], proposals, coins, final_coin)
                if int(accepted) < 0:
                    return path, int(token)
                node = children[int(accepted)]
                path.append(node)
            return path, int(torch.multinomial(p[node], 1))

    return verify


__getattr__ = made_by(
    __name__, verify=lambda: adapt(ORIGIN.part("eagle_harness.core.sampled_tree").reject_children)
)
