"""Adapters of engines that cannot be installed here, tried on stand-ins: the right one passes, the wrong one
does not."""

from functools import partial

import numpy as np
import pytest
from conftest import FALSE_ALARM
from engine_laws import chain_p_value, markov_pair, p_value, rows_of, tree_p_value

torch = pytest.importorskip("torch")

import standins  # noqa: E402

from experiments.engines import deepspec, dflash, eagle, eagle_harness, flashspec, naive_speculate, shreyansh  # noqa: E402
from specsim.adapters import _flashinfer as flashinfer  # noqa: E402
from specsim.adapters import _lmdeploy as lmdeploy  # noqa: E402
from specsim.adapters import _sglang as sglang  # noqa: E402
from specsim.adapters import _tensorrt_llm as tensorrt_llm  # noqa: E402
from specsim.adapters import _vllm as vllm  # noqa: E402
from specsim.adapters import _vllm_ascend as vllm_ascend  # noqa: E402
from specsim.adapters._contract import declared  # noqa: E402
from specsim.models import Tree, chain  # noqa: E402

STEPS = 2500
#: An adapter, and the stand-in for its engine.
CHAINS = {
    "vllm": (vllm.adapt, standins.vllm), "vllm2": (vllm.adapt_v2, standins.vllm2),
    "flashinfer": (flashinfer.adapt, standins.flashinfer), "lmdeploy": (lmdeploy.adapt, standins.lmdeploy),
    "sglang:chain": (sglang.adapt_chain, standins.sglang_chain), "sglang:uno": (sglang.adapt_uno, standins.uno),
    "sglang:dspark": (sglang.adapt_dspark, standins.dspark),
    "tensorrt-llm": (tensorrt_llm.adapt, standins.TrtHandler),
    "deepspec": (deepspec.adapt, standins.deepspec), "dflash": (dflash.adapt, standins.dflash),
    "flashspec": (flashspec.adapt, standins.flashspec), "shreyansh": (shreyansh.adapt, standins.shreyansh),
    "naive_speculate": (naive_speculate.adapt, standins.naive_speculate),
}  # fmt: skip
TREES = {
    "sglang": (sglang.adapt, standins.sglang, "top"),
    "tensorrt-llm:tree": (tensorrt_llm.adapt_tree, standins.TrtHandler, "top"),
    "eagle_harness": (eagle_harness.adapt, standins.reject_children, "without replacement"),
    "eagle:verify_2": (eagle.adapt_2, standins.eagle2, "top"),
}


def right(name):
    adapt, function, *_ = (CHAINS | TREES)[name]
    return adapt(function)


def wrong(name):
    adapt, function, *_ = (CHAINS | TREES)[name]
    return adapt(partial(function, wrong=True))


@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_targets_law_and_a_wrong_verifier_has_not(name):
    assert chain_p_value(right(name), STEPS) > FALSE_ALARM
    assert chain_p_value(wrong(name), STEPS) < FALSE_ALARM


@pytest.mark.parametrize("name", TREES)
def test_trees_have_the_targets_law_and_a_wrong_verifier_has_not(name):
    tree = Tree((0, 0, 1, 1, 2), TREES[name][2])
    assert tree_p_value(right(name), 1500, tree) > FALSE_ALARM
    assert tree_p_value(wrong(name), 1500, tree) < FALSE_ALARM


ASCEND = vllm_ascend.adapt(standins.ascend_sample, standins.ascend_recovered)
ASCEND_WRONG = vllm_ascend.adapt(standins.ascend_sample, partial(standins.ascend_recovered, wrong=True))


def test_ascend_has_the_targets_law():
    assert chain_p_value(ASCEND, STEPS) > FALSE_ALARM


def uneven(verifier, one_hot=False, steps=STEPS):
    """`p_value` of drafts of 0 to 3 tokens in one batch, noise behind them; all of the same tokens if
    `one_hot`."""
    target, draft = markov_pair()
    rows = rows_of(target, draft, chain(3), steps)
    tokens, p, q = rows.draft_tokens.copy(), rows.p.copy(), rows.q.copy()
    if one_hot:
        for s, i in np.ndindex(
            tokens.shape
        ):  # two likely tokens in turn: no matter how they came to be drafted
            seen = 0 if i == 0 else tokens[s, i - 1]
            tokens[s, i] = np.argsort(target.row([seen]))[-1 - s % 2]
            p[s, i + 1] = target.row([tokens[s, i]])
    lengths = np.arange(steps) % 4
    for s, length in enumerate(lengths):
        tokens[s, length:], p[s, length + 1 :], q[s, length:] = 0, np.nan, np.nan
    output = verifier(
        torch.from_numpy(tokens),
        torch.from_numpy(p).float(),
        None if one_hot else torch.from_numpy(q).float(),
        np.random.default_rng(0),
        lengths=lengths,
    )
    emitted = [row[row >= 0].tolist() for row in np.asarray(output)]
    assert all(len(row) <= length + 1 for row, length in zip(emitted, lengths, strict=True))
    return p_value(emitted, target, (0,))


@pytest.mark.parametrize("name", ["vllm", "vllm2", "ascend"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_drafts_of_different_lengths_and_certain_drafts(name, one_hot):
    assert uneven(ASCEND if name == "ascend" else right(name), one_hot) > FALSE_ALARM


@pytest.mark.parametrize("name", ["vllm", "vllm2", "ascend"])
def test_a_call_without_any_draft_samples_the_target(name):
    verifier = ASCEND if name == "ascend" else right(name)
    p, q = torch.tensor([[0.0, 1.0]]).repeat(2, 3, 1), torch.full((2, 2, 2), 0.5)
    output = verifier(
        torch.zeros(2, 2, dtype=torch.int64), p, q, np.random.default_rng(0), lengths=np.zeros(2, int)
    )
    assert np.asarray(output).tolist() == [[1, -1, -1]] * 2


def test_a_wrong_verifier_of_uneven_or_certain_drafts_is_seen():
    assert uneven(wrong("vllm")) < FALSE_ALARM
    assert uneven(ASCEND_WRONG, one_hot=True) < FALSE_ALARM


@pytest.mark.parametrize("name", ["vllm", "vllm2"])
def test_a_seeded_request_draws_the_same_tokens_in_whatever_batch(name):
    target, draft = markov_pair()
    rows = rows_of(target, draft, chain(3), 20)
    arrays = [
        torch.from_numpy(array) for array in (rows.draft_tokens, rows.p.astype("f4"), rows.q.astype("f4"))
    ]
    verifier = right(name)
    assert declared(verifier).seeds
    seeds = [100 + step if step % 2 else None for step in range(20)]
    batch = verifier(*arrays, np.random.default_rng(0), seeds=seeds)
    other = verifier(*arrays, np.random.default_rng(1), seeds=seeds)
    for step in range(1, 20, 2):
        alone = verifier(
            *(array[step : step + 1] for array in arrays), np.random.default_rng(2), seeds=[100 + step]
        )
        assert torch.equal(batch[step], alone[0])
    assert torch.equal(batch[1::2], other[1::2])
    assert not torch.equal(batch[::2], other[::2])


def test_a_newer_vllm_is_handed_logits():
    def newer(
        draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_logits,
        bonus_token_ids, sampling_metadata,
    ):  # fmt: skip
        return standins.vllm(
            draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs,
            target_logits.softmax(-1), bonus_token_ids, sampling_metadata,
        )  # fmt: skip

    assert chain_p_value(vllm.adapt(newer), 1000) > FALSE_ALARM
