"""The pictures of a comparison: every rule is in them."""

import numpy as np

from specsim import acceptance_by_drafts, compare, rules
from specsim.simulation._comparison import drafts_figure, pareto_figure

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])


def name_of(panel):
    """The rule of a panel, and its parameters, where it has several."""
    legend = panel.get_legend()
    if legend is None:
        return panel.get_title(loc="left"), []
    return legend.get_title().get_text(), [text.get_text() for text in legend.get_texts()]


def test_the_pictures_show_every_rule():
    exact = rules.names("chain", "tree")
    table = compare(P, Q, rules=[*exact, "lenience", "typical"], sweep=True, steps=50, rng=1)
    left, *panels = pareto_figure(table).axes
    assert {text.get_text() for text in left.texts} == {name for name in exact if rules.get(name).lossless}
    shown = [name_of(panel) for panel in panels]
    assert shown == [("typical", ["epsilon", "delta"]), ("greedy_match", []), ("lenience", [])]
    (line,) = panels[-1].get_lines()[1:]
    here = sorted((entry.tv, entry.tokens_per_step) for entry in table if entry.name == "lenience")
    assert list(zip(*line.get_data(), strict=True)) == here
    labels = drafts_figure(acceptance_by_drafts(P, Q, 3, steps=50, rng=1), "a pair").axes[0]
    assert {"α*, sampled", "k_seq"} <= set(labels.get_legend_handles_labels()[1])
