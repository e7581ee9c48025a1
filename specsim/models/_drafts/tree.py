"""The shape of a draft: a tree of token positions below the prefix so far.

Node 0 is the prefix; drafted token number j (from 0) is at node j + 1, below node parents[j]. Parents come
before their children, and siblings are in the order in which they are sampled. A chain of γ tokens has
parents (0, 1, …, γ-1), K drafts of one token (0, …, 0). The rows of a tree are p after every node, n + 1 of
them, and q after every node up to the last that has children, `num_rows` of them, so that a chain has γ.
Arguments out of range raise ValueError or TypeError."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from specsim.core._types import Tokens, check_choice, check_count, checked
from specsim.models._drafts.sampling import DISTINCT, SAMPLING_METHODS, sibling_laws

#: Engines draft at most 128 tokens a step (vLLM's MAX_SPEC_LEN). The limit guards against mistyped sizes.
MAX_NODES = 1024
#: Trees with more tokens are described by their size.
SHOWN = 32


@dataclass(frozen=True)
class Tree:
    """A drafted tree.

    Parameters
    ----------
    parents : sequence of int
        The parent of each drafted token, see the module.
    draft_sampling : str
        How siblings are sampled, one of `SAMPLING_METHODS`.
    block : int
        1 for autoregressive drafting, where a token depends on all tokens before it. With b > 1 tokens are
        drafted b at a time, each from a distribution that depends only on the context and the earlier blocks,
        as by semi-autoregressive drafters; `block` ≥ depth means independent heads, as in Medusa.

    Examples
    --------
    >>> tree = Tree((0, 0, 1, 1))
    >>> tree.depth, tree.children(1), tree.num_rows
    (2, (3, 4), 2)
    """

    parents: tuple[int, ...]
    draft_sampling: str = "sampled"
    block: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "parents", check_parents(self.parents))
        if not isinstance(self.draft_sampling, str):
            raise TypeError(f"draft_sampling: expected a str, got {type(self.draft_sampling).__name__}")
        check_choice("draft_sampling", self.draft_sampling, SAMPLING_METHODS)
        object.__setattr__(self, "block", check_count("block", self.block))

    def __str__(self) -> str:
        heads = "" if self.block == 1 else f", {self.block} at a time"
        if self.is_chain:
            shape = f"chain of {self.size}"
        elif self.size > SHOWN:
            shape = f"tree of {self.size} tokens, at most {self.depth} deep"
        else:
            shape = f"tree with parents {self.parents}"
        return f"{self.draft_sampling} {shape}{heads}"

    @property
    def size(self) -> int:
        """Number n of drafted tokens."""
        return len(self.parents)

    @property
    def num_rows(self) -> int:
        """Number of rows of q: after every node up to the last that has children."""
        return self.parents[-1] + 1 if self.is_chain else max(self.parents) + 1

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(self.size))

    @property
    def distinct(self) -> bool:
        """Whether siblings never have the same token."""
        return self.draft_sampling in DISTINCT or len(set(self.parents)) == self.size

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The number of drafted tokens on the path to each node, node 0 first."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """The largest number of tokens that a step can accept."""
        return max(self.depths)

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        children: list[list[int]] = [[] for _ in range(self.size + 1)]
        for j, parent in enumerate(self.parents):
            children[parent].append(j + 1)
        return tuple(tuple(nodes) for nodes in children)

    def check_siblings(self, vocab_size: int) -> None:
        """Raise ValueError if siblings must have different tokens, and are more than `vocab_size`."""
        most = max(map(len, self._children))
        if self.draft_sampling in DISTINCT and most > vocab_size:
            raise ValueError(
                f"gamma: a tree in which {most} siblings have different tokens needs as many, and the "
                f"vocabulary has {vocab_size}; draft fewer children of a node"
            )

    def children(self, node: int) -> tuple[int, ...]:
        """The nodes below `node`, in the order in which they are sampled."""
        return self._children[node]

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the first drafted token down to `node`."""
        return () if node == 0 else (*self.path(self.parents[node - 1]), node)

    def seen(self, depth: int) -> int:
        """How many of the `depth` tokens above it the draft's row at that depth depends on."""
        return depth - depth % self.block

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {"parents": list(self.parents), "draft_sampling": self.draft_sampling, "block": self.block}

    def drafts(self, row: Callable[[Tokens, int], Sequence[Any]]) -> Iterator[tuple[Tokens, Any]]:
        """Yield every draft of positive probability, with that probability.

        row(seen, ahead) is q after the drafted tokens `seen`, `ahead` tokens further on."""
        inner = [node for node in range(self.size + 1) if self.children(node)]
        columns = [[child - 1 for child in self.children(node)] for node in inner]
        above = [[parent - 1 for parent in self.path(node)] for node in inner]
        tokens = [0] * self.size

        @cache
        def siblings(place: int, drafted: Tokens) -> list[tuple[Tokens, Any]]:
            """The laws of the children of a node after the tokens above it, made once."""
            seen = self.seen(len(drafted))
            q = row(drafted[:seen], len(drafted) - seen)
            return list(sibling_laws(self.draft_sampling, q, len(columns[place])))

        def extend(place: int, probability: Any) -> Iterator[tuple[Tokens, Any]]:
            last = place == len(inner) - 1
            for drawn, chance in siblings(place, tuple([tokens[column] for column in above[place]])):
                for column, token in zip(columns[place], drawn, strict=True):
                    tokens[column] = token
                if last:
                    yield tuple(tokens), probability * chance
                else:
                    yield from extend(place + 1, probability * chance)

        yield from extend(0, 1)


@checked
def chain(gamma: int, draft_sampling: str = "sampled", block: int = 1) -> Tree:
    """Make a chain of γ drafted tokens.

    Parameters
    ----------
    gamma : int
        γ, from 1 to `MAX_NODES`.
    draft_sampling : str
        How each token is sampled, one of `SAMPLING_METHODS`.
    block : int
        Tokens that are drafted at a time, ≥ 1, see `Tree`.

    Returns
    -------
    Tree

    Examples
    --------
    >>> chain(3).parents
    (0, 1, 2)
    """
    return Tree(tuple(range(check_count("gamma", gamma, 1, MAX_NODES))), draft_sampling, block)


@checked
def chains(count: int, gamma: int, draft_sampling: str = "sampled") -> Tree:
    """Make K = `count` chains of γ = `gamma` tokens side by side.

    Sun et al., "SpecTr", arXiv 2310.15141.

    Parameters
    ----------
    count, gamma : int
        At least 1, with K·γ ≤ `MAX_NODES`.
    draft_sampling : str
        How the first tokens are sampled, one of `SAMPLING_METHODS`.

    Returns
    -------
    Tree

    Examples
    --------
    >>> chains(2, 2).parents
    (0, 0, 1, 2)
    """
    check_count("count", count, 1, MAX_NODES)
    check_count("gamma", gamma, 1, MAX_NODES)
    return Tree((*[0] * count, *range(1, count * (gamma - 1) + 1)), draft_sampling)


@checked
def branching(*widths: int, draft_sampling: str = "sampled", block: int = 1) -> Tree:
    """Make a tree whose nodes at depth i all have widths[i] children, such as SpecInfer's (2, 2, 1).

    Miao et al., "SpecInfer", arXiv 2305.09781.

    Parameters
    ----------
    *widths : int
        At least 1 each, with at most 1024 tokens in all.
    draft_sampling : str
        How siblings are sampled, one of `SAMPLING_METHODS`.
    block : int
        Tokens of a path that are drafted at a time, ≥ 1, see `Tree`.

    Returns
    -------
    Tree

    Examples
    --------
    >>> branching(2, 2).parents
    (0, 0, 1, 1, 2, 2)
    """
    level, parents, size = [0], [], 0
    for width in widths:
        check_count("width", width, 1, MAX_NODES)
        parents += [node for node in level for _ in range(width)]
        level = list(range(size + 1, len(parents) + 1))
        size = len(parents)
        if size > MAX_NODES:
            break
    return Tree(tuple(parents), draft_sampling, block)


@checked
def as_tree(gamma: int | Tree) -> Tree:
    """The chain of `gamma` tokens, or `gamma` itself if it is a tree."""
    return gamma if isinstance(gamma, Tree) else chain(gamma)


def check_parents(parents: Sequence[int]) -> tuple[int, ...]:
    """`parents` as a tuple of ints. Raises ValueError naming a node with a cycle or without a parent."""
    try:
        checked, parents = [], list(type(parents).__iter__(parents))  # by its items it may have no end
    except Exception:  # also those of its own methods
        given = type(parents).__name__
        raise TypeError(f"parents: expected one for each drafted token, got {given}") from None
    for j, parent in enumerate(parents):
        if isinstance(parent, bool | np.bool_) or not isinstance(parent, int | np.integer):
            raise TypeError(f"parents[{j}]: expected an int, got {type(parent).__name__}")
        if not 0 <= int(parent) <= len(parents):
            nodes = f"nodes 0 (the prefix) to {len(parents)}"
            raise ValueError(f"parents[{j}] = {int(parent)}: an orphan; there are {nodes}")
        if int(parent) > j:
            above = "itself" if int(parent) == j + 1 else f"the later node {int(parent)}"
            raise ValueError(
                f"parents[{j}] = {int(parent)}: node {j + 1} would be below {above}, a cycle or wrong order; "
                "put a parent before its children"
            )
        checked.append(int(parent))
    if not checked:
        raise ValueError("parents: no token was drafted; give one for each drafted token")
    if len(checked) > MAX_NODES:
        raise ValueError(f"parents: {len(checked)} drafted tokens are more than {MAX_NODES}; draft fewer")
    return tuple(checked)
