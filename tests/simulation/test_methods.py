"""Drafting systems by name: their drafts, what their rules claim, and what is refused."""

from functools import cache
from itertools import cycle

import numpy as np
import pytest

import specsim
from specsim import default_pair, load, rerun, rules, simulate
from specsim.models import DynamicTree, Pair, PromptLookup, TableModel
from specsim.simulation import methods
from specsim.theory import expected_tokens

P, Q = [0.4, 0.3, 0.1, 0.1, 0.1], [0.2, 0.2, 0.3, 0.2, 0.1]
ROWS = np.random.default_rng(1).dirichlet(np.ones(8), (2, 8))
MODELS = Pair(TableModel(ROWS[0]), TableModel(ROWS[1]))
#: Of one system with a lossy rule: its text is greedy.
LOSSY = {"blockwise", "medusa_typical"}


@pytest.mark.parametrize(("name", "pair"), list(zip(methods.names(), cycle([Pair(P, Q), MODELS]))))
def test_the_rule_of_a_system_holds_for_what_it_drafts(name, pair):
    method = methods.get(name)
    small = {one.name: 2 for one in method.parameters if one.name in ("width", "nodes")}
    if name in ("eagle2", "eagle3", "hass"):
        method = method.with_parameters(**small)
    drafting, rule = method.drafting(pair), rules.get(method.rule)
    rule.check(drafting.shape)
    assert drafting.shape.draft_sampling in rule.draft_sampling
    assert rule.lossless == (name not in LOSSY)
    assert sum(drafting.passes) <= drafting.shape.size + 1 or isinstance(drafting.shape, DynamicTree)
    run = simulate(pair, method=method, steps=50, rng=1)
    assert (run.method, run.rule, run.tree) == (str(method), str(rule), drafting.shape)
    assert rerun(run) == run


@pytest.mark.parametrize("name", sorted({*methods.names()} - LOSSY))
def test_first_tokens_have_the_law_of_the_target(name):
    """Frequencies within 5 standard errors of p, for small drafts of each system."""
    method = methods.get(name)
    given = {"width": 2, "nodes": 4, "depth": 3, "at": 2, "drafts": 2, "gamma": 2, "heads": 2, "top": 2}
    own = {one.name: given[one.name] for one in method.parameters if one.name in given}
    steps, p = 20_000, np.array(P)
    run = simulate(P, Q, method=method.with_parameters(**own), steps=steps, rng=1)
    share = run.tokens / run.tokens.sum()
    assert np.abs(share - p).max() < 5 / np.sqrt(steps)
    assert np.abs(lossy_share(steps) - p).max() > 5 / np.sqrt(steps)


@cache
def lossy_share(steps):
    wrong = simulate(P, Q, rule="lenience:lenience=0.1", gamma=2, steps=steps, rng=1)
    return wrong.tokens / wrong.tokens.sum()


def test_chains_from_a_model():
    plain = simulate(P, Q, gamma=4, steps=1000, rng=3)
    named = simulate(P, Q, method="autoregressive:gamma=4", steps=1000, rng=3)
    assert np.array_equal(plain.lengths, named.lengths)
    assert np.array_equal(plain.tokens, named.tokens)
    run = simulate(P, Q, method="distillspec:gamma=3,nearer=0.25", steps=100, rng=1)
    alpha = np.minimum(P, Q).sum()
    assert run.expected_tokens == pytest.approx(expected_tokens(alpha + 0.25 * (1 - alpha), 3))


def test_heads_see_no_drafted_token():
    heads = methods.get("medusa").drafting(MODELS)
    assert heads.shape.block == heads.shape.depth
    assert heads.passes == (1,)
    assert methods.get("falcon:gamma=6,block=4").drafting(MODELS).passes == (1, 4)
    assert methods.get("eagle:depth=3,top=4").drafting(MODELS).passes == (1, 4, 8)


def test_prompt_lookup_searches_a_text_of_the_target():
    lookup = methods.get("prompt_lookup").drafting(MODELS).pair.draft
    assert isinstance(lookup, PromptLookup)
    follows = np.zeros((8, 8))
    np.add.at(follows, (lookup.text[:-1], lookup.text[1:]), 1)
    assert np.abs(follows / follows.sum(axis=1, keepdims=True) - ROWS[0]).max() < 0.15


def test_a_result_is_saved_and_merged_with_its_method(tmp_path):
    run = simulate(specsim.read_pair("zipf:vocab_size=20"), method="spectr:drafts=2", steps=500, rng=1)
    run.save(tmp_path / "run.json")
    assert load(tmp_path / "run.json") == run
    assert rerun(tmp_path / "run.json") == run
    assert "spectr:drafts=2" in str(run)
    pair, options = specsim.read_pair("zipf:vocab_size=20"), {"method": "spectr", "steps": 2**18, "rng": 1}
    for i in range(2):
        simulate(pair, **options, shard=(i, 2), checkpoint=tmp_path / f"{i}.part")
    assert specsim.merge([tmp_path / "0.part", tmp_path / "1.part"]) == simulate(pair, **options)


def test_pairs_that_cannot_answer(small_trace):
    with pytest.raises(ValueError, match="medusa: the pair has rows along one text alone"):
        simulate(small_trace, method="medusa", steps=10)
    target, _ = default_pair()
    with pytest.raises(ValueError, match="eagle: the pair has no draft with rows"):
        simulate(target, PromptLookup(np.arange(50)), method="eagle", steps=10)
