"""The proof part of an audit: a rule's law checked in fractions on generated models."""

from fractions import Fraction

import numpy as np

from specsim.auditing._results.audit import ProofSummary
from specsim.models import TableModel, Tree
from specsim.rules import Rule
from specsim.theory._enumeration import prove

MODELS = 30
#: (V, parents): chains, and for rules that take them trees.
CHAINS = ((2, (0, 1, 2, 3)), (3, (0, 1, 2)), (4, (0, 1)))
TREES = ((2, (0, 0, 1, 1, 2)), (3, (0, 0, 1, 2)), (3, (0, 0, 0)))


def prove_on_generated_models(rule: Rule) -> ProofSummary:
    """Enumerate `rule` on `MODELS` fixed pairs of Markov tables with zeros, ties and equal rows."""
    rng = np.random.default_rng(0)
    largest = Fraction(0)
    shapes = TREES if rule.claimed_on_trees else CHAINS
    for i in range(MODELS):
        vocab_size, parents = shapes[i % len(shapes)]
        drawing = rule.draft_sampling[i // len(shapes) % len(rule.draft_sampling)]
        target, draft = generated_pair(rng, vocab_size)
        proof = prove(target, draft, rule=rule, gamma=Tree(parents, drawing))
        largest = max(largest, proof.worst_tv, proof.tv if rule.declared is None else Fraction(0))
    return ProofSummary(MODELS, float(largest), rule.declared is None)


def generated_pair(rng: np.random.Generator, vocab_size: int) -> tuple[TableModel, TableModel]:
    """A target and a draft of order 1 with rows of small fractions, some zero entries and some equal rows."""
    weights = rng.integers(0, 5, size=(2, vocab_size, vocab_size))
    weights[np.arange(2)[:, None], np.arange(vocab_size), rng.integers(vocab_size, size=(2, vocab_size))] += 1
    if rng.random() < 0.3:
        same = int(rng.integers(vocab_size))
        weights[1, same] = weights[0, same]
    rows = [[[Fraction(int(w), int(row.sum())) for w in row] for row in table] for table in weights]
    return TableModel(rows[0]), TableModel(rows[1])
