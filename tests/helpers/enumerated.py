"""Drafts and laws by enumeration, in plain Python: what the library computes in another way."""

from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np

from specsim import rules
from specsim.core.stats import chi_square, merge_cells
from specsim.models import Tree
from specsim.models._drafts.sampling import rank_tokens
from specsim.theory import target_law


def expand(row, width, depth, nodes):
    """The dynamic tree and its tokens after one context, where row(path) is q after the tokens `path`."""
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
    # candidates are in order of level, so that a stable sort puts the shallower first among equals
    kept = sorted(sorted(range(1, len(found)), key=lambda node: -worth[node])[:nodes])
    number = {node: new for new, node in enumerate([0, *kept])}
    return Tree(tuple(number[above[node]] for node in kept), "top"), tuple(found[node][-1] for node in kept)


def looked_up(history, gamma, max_ngram):
    """What prompt lookup drafts, by going through the text from the left."""
    for n in range(max_ngram, 0, -1):
        for start in range(n, len(history)):
            if history[start - n : start] == history[len(history) - n :]:
                return tuple(history[start : start + gamma])
    return ()


def first_token(rule, p, q, drawn=None):
    """The law of the first token where one is drafted from q, or from `drawn`, and how often it is rejected."""
    rule = rules.get(rule) if isinstance(rule, str) else rule
    values = {name: Fraction(value) for name, value in rule.values.items()}
    law, rejected = [Fraction(0)] * len(p), Fraction(0)
    for x, chance in enumerate(drawn or q):
        if chance:
            stop, follow = rule.law((0,), (x,), [p, p], [q, q], **values)
            rejected += chance * stop[0]
            law[x] += chance * stop[1]
            law = [mass + chance * stop[0] * weight for mass, weight in zip(law, follow[0], strict=True)]
    return law, rejected


def paths(tree, tokens):
    """The drafted tokens up to every node, node 0 first: the places where the law of a rule needs p and q."""
    return [tuple(tokens[above - 1] for above in tree.path(node)) for node in range(tree.size + 1)]


def expected_tokens_of_tree(tree, accept):
    """Sequoia's F of a tree with siblings in order of rank; a Fraction if the P_k are."""
    reached = [1]
    for j, parent in enumerate(tree.parents):
        reached.append(reached[parent] * accept[tree.children(parent).index(j + 1)])
    return sum(reached)


def continued_law(law, target, length, context=()):
    """`law`, each of its sequences continued by the target to `length` tokens."""
    found = defaultdict(int)
    for emitted, mass in law.items():
        for more, chance in target_law(target, length - len(emitted), (*context, *emitted)).items():
            found[*emitted, *more] += mass * chance
    return found


def tv(one, other):
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys()) / 2


def conditional_laws(law):
    """Each prefix at which a step of `step_law` may continue, and {(token,): probability} after it."""
    masses = defaultdict(lambda: defaultdict(int))
    for emitted, mass in law.items():
        for i, token in enumerate(emitted):
            masses[emitted[:i]][token,] += mass
    for prefix, nexts in masses.items():
        yield prefix, {token: mass / sum(nexts.values()) for token, mass in nexts.items()}


def text_law(target, prompt, length, eos):
    """The target's law of what is generated after `prompt`: {tokens: probability}."""
    finished, open_ = {}, {(): 1}
    for _ in range(length):
        longer = {}
        for text, mass in open_.items():
            for token, weight in enumerate(target.row((*prompt, *text))):
                if weight > 0:
                    (finished if token == eos else longer)[(*text, token)] = mass * weight
        open_ = longer
    return finished | open_


def p_value(outcomes, law):
    """Chi-square of tuples, or of a Counter of them, under {tuple: probability}; 0 if one was impossible."""
    outcomes = Counter(outcomes)
    if any(not law.get(outcome) for outcome in outcomes):
        return 0.0
    weights = np.array([float(mass) for mass in law.values()])
    counts = np.array([outcomes[outcome] for outcome in law])
    cells = merge_cells(weights / weights.sum(), counts.sum())
    merged, expected = np.bincount(cells, counts).astype(int), np.bincount(cells, weights)
    return chi_square(merged, expected / expected.sum()).p_value
