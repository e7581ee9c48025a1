"""EAGLE-2's dynamic tree: the draft's own confidence decides which tokens are drafted, and below which.

The worth of a candidate is the product of the draft's probabilities along its path. *Expand*: the `width`
candidates of highest worth in a level get their `width` most probable children each, which form the next
level; the root has `width` children, and there are `depth` levels. *Rerank*: of all candidates the `nodes` of
highest worth are drafted. Worth never rises along a path, and among equals the shallower comes first, so the
result is a connected tree.

Li et al., "EAGLE-2", arXiv 2406.16858 (expansion and reranking phase). Their code leaves ties to `topk`, and
its `depth` counts the levels below the first; here it is the depth of the tree.

The tree is a function of q alone. A rule that is lossless for any draft, such as `deterministic_children` or
`naive_matching`, verifies it without bias; a rule that assumes siblings sampled from q does not.

Cost: `depth` calls of the draft, on at most `width` paths each; O(width² · depth) candidates to sort."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._types import Floats, Ints, check_counts, checked
from specsim.models import Model
from specsim.models._drafts.sampling import draw_siblings
from specsim.models._drafts.tree import Tree


@checked
@dataclass(frozen=True)
class DynamicTree:
    """Drafts chosen anew in every step, by EAGLE-2's expansion and reranking.

    Parameters
    ----------
    width, depth, nodes : int
        At least 1: children of a node that is expanded, levels, and drafted tokens.

    Examples
    --------
    >>> DynamicTree(width=2, depth=3, nodes=4).size
    4
    """

    width: int
    depth: int
    nodes: int
    draft_sampling = "top"
    is_chain = False
    distinct = True

    def __post_init__(self) -> None:
        check_counts(width=self.width, depth=self.depth, nodes=self.nodes)

    def __str__(self) -> str:
        return f"dynamic tree of {self.nodes} tokens, {self.width} wide and at most {self.depth} deep"

    @property
    def size(self) -> int:
        """Number n of drafted tokens."""
        return self.nodes

    @property
    def num_rows(self) -> int:
        """Number of rows of q: after every node, since any of them may have children in some step."""
        return self.nodes + 1

    def up_to(self, depth: int, vocab_size: int) -> "DynamicTree":
        """The same with at most `depth` levels, and no more tokens than they have candidates."""
        if depth >= self.depth:
            return self
        return DynamicTree(self.width, depth, min(self.nodes, self._candidates(depth, vocab_size)))

    def check_candidates(self, vocab_size: int) -> None:
        """Raise ValueError if there are fewer candidates than `nodes`."""
        if (candidates := self._candidates(self.depth, vocab_size)) < self.nodes:
            raise ValueError(f"nodes: {self.nodes} exceed {candidates} candidates; raise width or depth")

    def _candidates(self, depth: int, vocab_size: int) -> int:
        children = min(self.width, vocab_size)
        level, found = 1, 0
        for _ in range(depth):
            level = min(self.width, level) * children
            found += level
        return found

    def draft(self, model: Model, histories: ArrayLike) -> tuple[Ints, Ints]:
        """Parents and tokens, int64 [B, n], after each of `histories` [B, T].

        Nodes are numbered level by level, siblings by falling probability, the lower token first among ties.
        Raises ValueError if there are fewer candidates than `nodes`."""
        self.check_candidates(model.vocab_size)
        seen = np.asarray(histories)[:, None]  # [B, candidates of a level, tokens]
        steps, children = len(seen), min(self.width, model.vocab_size)
        node, value = np.zeros((steps, 1), dtype=np.int64), np.ones((steps, 1))
        levels: list[tuple[Ints, Ints, Floats]] = []
        size = 0
        for _ in range(self.depth):
            best = _highest(value, self.width)
            node, value = np.take_along_axis(node, best, 1), np.take_along_axis(value, best, 1)
            seen = np.take_along_axis(seen, best[..., None], 1)
            q = model.rows(seen.reshape(best.size, seen.shape[2]))
            token = draw_siblings("top", q, np.zeros((children, len(q)))).T
            weight, token = np.take_along_axis(q, token, 1).reshape(steps, -1), token.reshape(steps, -1)
            value = np.repeat(value, children, axis=1) * weight
            levels.append((np.repeat(node, children, axis=1), token, value))
            seen = np.concatenate([np.repeat(seen, children, axis=1), token[..., None]], axis=2)
            node = np.broadcast_to(np.arange(size + 1, size + 1 + token.shape[1]), token.shape)
            size += token.shape[1]
        parents, tokens, worth = (np.concatenate(part, axis=1) for part in zip(*levels, strict=True))
        kept = _highest(worth, self.nodes)
        number = np.zeros((steps, size + 1), dtype=np.int64)
        np.put_along_axis(number, kept + 1, np.broadcast_to(np.arange(1, self.nodes + 1), kept.shape), 1)
        parents = np.take_along_axis(number, np.take_along_axis(parents, kept, 1), 1)
        return parents, np.take_along_axis(tokens, kept, 1)

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {**vars(self), "draft_sampling": self.draft_sampling}


#: The draft of a step: the same tree every time, or one that the draft model chooses.
Draft = Tree | DynamicTree


def _highest(values: Floats, count: int) -> NDArray[np.int64]:
    """Columns of the `count` highest of each row of `values` [B, C], in order; the first among equals."""
    return np.sort(np.argsort(-values, axis=1, kind="stable")[:, :count], axis=1)
