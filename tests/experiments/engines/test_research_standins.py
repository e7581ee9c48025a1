"""Adapters of research code, tried on stand-ins: the right one passes, the wrong one does not."""

from functools import partial

import pytest
from conftest import FALSE_ALARM
from engine_laws import chain_p_value, tree_p_value

from experiments.engines import deepspec, dflash, eagle, eagle_harness, flashspec, naive_speculate, shreyansh
from specsim.models import Tree

torch = pytest.importorskip("torch")

import standins  # noqa: E402

STEPS = 2500
CHAINS = {
    "deepspec": (deepspec.adapt, standins.deepspec),
    "dflash": (dflash.adapt, standins.dflash),
    "flashspec": (flashspec.adapt, standins.flashspec),
    "naive_speculate": (naive_speculate.adapt, standins.naive_speculate),
    "shreyansh": (shreyansh.adapt, standins.shreyansh),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_targets_law_and_a_wrong_verifier_has_not(name):
    adapt, function = CHAINS[name]
    assert chain_p_value(adapt(function), STEPS) > FALSE_ALARM
    assert chain_p_value(adapt(partial(function, wrong=True)), STEPS) < FALSE_ALARM


def test_siblings_without_replacement_of_one_node_after_the_other():
    tree = Tree((0, 0, 1, 1, 2), "without replacement")
    right = eagle_harness.adapt(standins.reject_children)
    wrong = eagle_harness.adapt(partial(standins.reject_children, wrong=True))
    assert tree_p_value(right, 1500, tree) > FALSE_ALARM
    assert tree_p_value(wrong, 1500, tree) < FALSE_ALARM


def test_siblings_that_are_the_most_probable_tokens():
    tree = Tree((0, 0, 1, 1, 2), "top")
    assert tree_p_value(eagle.adapt_2(standins.eagle2), 1500, tree) > FALSE_ALARM
    assert tree_p_value(eagle.adapt_2(partial(standins.eagle2, wrong=True)), 1500, tree) < FALSE_ALARM
