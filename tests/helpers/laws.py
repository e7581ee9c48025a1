"""How the rules are tested: which drafts, generated pairs of models, and counts of whole steps against their
law."""

import numpy as np
from conftest import PAIR_FLAVOURS, rational_pair

from specsim import rules
from specsim.core.stats import log_e_value
from specsim.models import Tree
from specsim.models._drafts.sampling import draw_siblings
from specsim.simulation._counting import run
from specsim.theory._enumeration import MAX_DRAFTS

#: (V, parents): chains, K drafts of one token, K chains, trees of depth 2 and 3.
CHAINS = [
    (size, tuple(range(gamma))) for size in (2, 3, 4, 5) for gamma in (1, 2, 3, 4) if size**gamma <= 256
]
TREES = [
    (2, (0, 0)), (3, (0, 0)), (5, (0, 0, 0)), (4, (0, 0, 0)), (3, (0, 0, 1, 2)), (4, (0, 0, 1, 2)),
    (3, (0, 0, 1, 1)), (2, (0, 0, 1, 1, 2, 2)), (2, (0, 0, 1, 2, 3, 4)), (3, (0, 1, 0, 1)), (3, (0, 1, 1)),
    (2, (0, 0, 0, 1, 2, 3)), (3, (0, 0, 0, 1)),
]  # fmt: skip


def drafts_of(rule, drawing, shapes=None):
    """(V, tree) of every shape, or of those given, that the rule verifies with drafts drawn so."""
    for size, parents in shapes or (TREES + CHAINS if rule.claimed_on_trees else CHAINS):
        tree = Tree(parents, drawing)
        widest = max(len(tree.children(node)) for node in range(tree.size + 1))
        if (rule.many_drafts and tree.is_chain) or (tree.distinct and widest > size):
            continue
        assert shapes or size**tree.size <= MAX_DRAFTS
        yield size, tree


def generated(rule, count, seed):
    """`count` pairs of rational models with a tree and a context, over shapes, ways of drawing and flavours
    in turn."""
    rng = np.random.default_rng(seed)
    shapes = [shape for drawing in rule.draft_sampling for shape in drafts_of(rule, drawing)]
    for i in range(count):
        size, tree = shapes[i % len(shapes)]
        flavour = (
            PAIR_FLAVOURS[i // len(shapes) % len(PAIR_FLAVOURS)] if i >= len(shapes) else PAIR_FLAVOURS[i % 5]
        )
        order = 1 if rng.random() < 0.7 else int(rng.integers(3))
        draft_order = order if flavour == "equal" else int(rng.integers(2))
        target, draft = rational_pair(rng, size, order, draft_order, flavour)
        yield target, draft, tree, tuple(rng.integers(size, size=2).tolist())


def drawn_down(rng, tree, q):
    """Tokens [steps, n] drawn from the rows q [steps, n + 1, V], or from those of inner nodes."""
    tokens = np.empty((len(q), tree.size), dtype=np.int64)
    for node in range(tree.size + 1):
        if children := tree.children(node):
            columns = [child - 1 for child in children]
            row = np.ascontiguousarray(q[:, node])
            tokens[:, columns] = draw_siblings(tree.draft_sampling, row, rng.random((len(columns), len(q)))).T
    return tokens


def check_step(rule, tree, emitted, accepted, drafted, p):
    """Accepted tokens are a path of the draft, then one token, then padding; nothing impossible."""
    assert (emitted[: accepted + 1] >= 0).all()
    assert (emitted[accepted + 1 :] == -1).all()
    alike = {0}
    for i in range(accepted + 1):
        if rule.lossless:
            assert p[min(alike), emitted[i]] > 0
        if i < accepted:
            alike = {
                j + 1 for j, parent in enumerate(tree.parents) if parent in alike and drafted[j] == emitted[i]
            }
            assert alike


class Outcomes:
    """Tally of whole steps: the emitted sequence as a number in base V + 1, the padding as 0."""

    def __init__(self, size, tree):
        self.base, self.length = size + 1, tree.depth + 1

    def zeros(self):
        return {"outcomes": np.zeros(self.base**self.length, dtype=np.int64)}

    def count(self, counts, batch, key):
        codes = np.zeros(len(batch.accepted), dtype=np.int64)
        for row in batch.tokens:
            codes = codes * self.base + row + 1
        counts["outcomes"] += np.bincount(codes, minlength=len(counts["outcomes"]))

    def law(self, step_law):
        """The probabilities of all outcomes, from {emitted tokens: probability}."""
        law = np.zeros(self.base**self.length)
        for emitted, mass in step_law.items():
            code = 0
            for token in (*emitted, *[-1] * (self.length - len(emitted))):
                code = code * self.base + token + 1
            law[code] = mass
        return law


def evidence(source, step_law, steps, key):
    """(log e-value against `step_law`, outcomes that it makes impossible) of `steps` steps."""
    tally = Outcomes(source.vocab_size, source.tree)
    counts = run(source, tally, key, 0, steps, threads=2).counts["outcomes"]
    law = tally.law(step_law)
    possible = law > 0
    return log_e_value(counts[possible], law[possible] / law.sum()), int(counts[~possible].sum())


def every(*groups):
    """[(rule, way of drawing)] of all rules in `groups`, as far as their claims go."""
    return [(name, drawing) for name in rules.names(*groups) for drawing in rules.get(name).draft_sampling]
