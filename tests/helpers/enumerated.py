"""Drafts and laws by enumeration, in plain Python: what the library computes in another way."""

import itertools
from collections import defaultdict

from specsim.core._checks import check_counts
from specsim.models import Tree
from specsim.models._drafts.dynamic import _check_candidates
from specsim.models._drafts.sampling import rank_tokens
from specsim.models._drafts.sequoia import _check


def expand(row, width, depth, nodes):
    """The dynamic tree and its tokens after one context, where row(path) is q after the tokens `path`.

    Nodes are numbered level by level, siblings by falling probability, the lower token first among ties.

    >>> expand(lambda path: [0.5, 0.4, 0.1], width=2, depth=2, nodes=3)  # the third is 0.5 · 0.5
    (Tree(parents=(0, 0, 1), draft_sampling='top', block=1), (0, 1, 0))
    """
    check_counts(width=width, depth=depth, nodes=nodes)
    found, above, worth, level = [()], [0], [1], [0]
    for _ in range(depth):
        best = sorted(sorted(level, key=lambda node: -worth[node])[:width])
        level = []
        for node in best:
            q = row(found[node])
            for token in rank_tokens(q)[:width]:
                level.append(len(found))
                found.append((*found[node], token))
                above.append(node)
                worth.append(worth[node] * q[token])
    _check_candidates(len(found) - 1, nodes)
    # candidates are in order of level, so that a stable sort puts the shallower first among equals
    kept = sorted(sorted(range(1, len(found)), key=lambda node: -worth[node])[:nodes])
    number = {node: new for new, node in enumerate([0, *kept])}
    return Tree(tuple(number[above[node]] for node in kept), "top"), tuple(found[node][-1] for node in kept)


def paths(tree, tokens):
    """The drafted tokens up to every node, node 0 first: the places where the law of a rule needs p and q.

    >>> paths(Tree((0, 0, 1)), (5, 6, 7))
    [(), (5,), (6,), (5, 7)]
    """
    return [tuple(tokens[above - 1] for above in tree.path(node)) for node in range(tree.size + 1)]


def expected_tokens_of_tree(tree, rank_acceptance):
    """Sequoia's F of a tree with siblings in order of rank; a Fraction if the P_k are.

    >>> expected_tokens_of_tree(Tree((0, 0, 1)), [0.5, 0.25])
    2.0
    """
    accept = _check(rank_acceptance)
    reached = [1]
    for j, parent in enumerate(tree.parents):
        reached.append(reached[parent] * accept[tree.children(parent).index(j + 1)])
    return sum(reached)


def continued_law(law, target, length, context=()):
    """`law`, each of its sequences continued by the target to `length` tokens."""
    by_length = [defaultdict(int) for _ in range(length + 1)]
    for emitted, mass in law.items():
        by_length[len(emitted)][emitted] = mass
    for shorter, longer in itertools.pairwise(by_length):
        for emitted, mass in shorter.items():
            for token, weight in enumerate(target.row((*context, *emitted))):
                if weight:
                    longer[*emitted, token] += mass * weight
    return dict(by_length[length])


def conditional_laws(law):
    """Each prefix at which a step of `step_law` may continue, and {(token,): probability} after it."""
    masses = defaultdict(lambda: defaultdict(int))
    for emitted, mass in law.items():
        for i, token in enumerate(emitted):
            masses[emitted[:i]][token,] += mass
    for prefix, nexts in masses.items():
        total = sum(nexts.values())
        yield prefix, {token: mass / total for token, mass in nexts.items()}
