"""Adapters without their engines: what is missing is named; and those that need none."""

import importlib.util
import sys

import numpy as np
import pytest
from conftest import FALSE_ALARM
from engine_laws import decoder_p_value, markov_pair, p_value, rows_of

from specsim import adapters
from specsim.adapters import EngineMissing
from specsim.adapters import _one_token as one_token
from specsim.adapters._contract import declared
from specsim.adapters._engines import engine_function, last_rows
from specsim.models import chain

#: What each adapter imports; None where it reads a clone, whose folder it has to be told.
PACKAGES = {
    "deepspec": None,
    "dflash": "dflash",
    "eagle": "eagle",
    "eagle-harness": "eagle_harness",
    "eagle2": "eagle",
    "eagle:batched": None,
    "feifeibear": None,
    "feifeibear:seeded": None,
    "feifeibear:unshifted": None,
    "feifeibear:v2": None,
    "flashinfer": "flashinfer",
    "flashspec": "flashspec",
    "gpt-fast": None,
    "gpt-fast:bfloat16": None,
    "hf": "transformers",
    "hf:generate": "transformers",
    "hsd": "seqspecdecod",
    "hsd:capped": "seqspecdecod",
    "hsd:naive": "seqspecdecod",
    "jaymody": None,
    "layerskip": None,
    "lmdeploy": "lmdeploy",
    "lookahead": None,
    "lucidrains": "speculative_decoding",
    "medusa": "medusa",
    "mlx-lm": "mlx_lm",
    "naive-speculate": "naive_speculate",
    "romsto": None,
    "romsto:cached": None,
    "romsto:greedy": None,
    "romsto:unadjusted": None,
    "sequoia": None,
    "sglang": "sgl_kernel",
    "sglang:block": "sglang",
    "sglang:chain": "sglang",
    "sglang:dspark": "sglang",
    "sglang:dspark-triton": "sglang",
    "sglang:uno": "sglang",
    "shreyansh": None,
    "tensorrt-llm": "tensorrt_llm",
    "tensorrt-llm:tree": "tensorrt_llm",
    "tpu-inference": "tpu_inference",
    "triforce": None,
    "vllm": "vllm",
    "vllm-ascend": "vllm_ascend",
    "vllm-ascend:block": None,
    "vllm-ascend:triton": None,
    "vllm-ascend:triton-block": None,
    "vllm-ascend:v2": None,
    "vllm-ascend:whole": None,
    "vllm-cpu": "vllm",
    "vllm2": "vllm",
    "vllm2:block": "vllm",
}


def test_every_adapter_is_listed_with_what_it_is():
    assert adapters.names() == sorted(adapters.names()) == list(PACKAGES)
    assert all(description for _, description in adapters.ENGINES.values())


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_engine_is_named_with_the_way_to_get_it(name):
    if PACKAGES[name] and importlib.util.find_spec(PACKAGES[name]):
        pytest.skip("installed")
    with pytest.raises(EngineMissing, match=r"(?s)is not there \(.*\); .*install"):
        adapters.get(name)


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    """gpt-fast's adapter imports PyTorch before it reads the clone."""
    (tmp_path / "generate.py").touch()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineMissing, match=r"^gpt-fast is not there \(.*torch.*\); pip install torch"):
        adapters.get(f"gpt-fast,source={tmp_path}")


def test_a_function_that_moved_is_named_with_the_version():
    with pytest.raises(EngineMissing, match=r"^numpy.random:verify is not there in version \d"):
        engine_function("numpy.random:verify", "pip install numpy")


def test_unknown_names_and_parameters():
    with pytest.raises(ValueError, match="unknown engine 'hff'; did you mean 'hf'"):
        adapters.get("hff")
    with pytest.raises(ValueError, match="hf: no parameter 'temperature'; it has none"):
        adapters.get("hf,temperature=1")
    with pytest.raises(
        ValueError, match="hf:generate: no parameter 'beams'; it has temperature, top_k, top_p"
    ):
        adapters.get("hf:generate,beams=2")
    with pytest.raises(ValueError, match="hf:generate: 'top_k=many' is not top_k=number"):
        adapters.get("hf:generate,top_k=many")


def test_rows_of_what_a_cache_holds():
    target, _ = markov_pair(order=2)
    rows = last_rows(target, [0, 1, 2, 3], 3)
    assert np.array_equal(rows, target.rows([[0, 1], [1, 2], [2, 3]]))
    assert np.array_equal(last_rows(target, [3, 1], 2), [np.full(4, 0.25), target.row([3, 1])])
    assert np.array_equal(last_rows(target, [3], 1), [np.full(4, 0.25)])


# --- functions of one token ------------------------------------------------------------------------------


def accept_or_recover(p, q, drafted, rng, wrong=False):
    if rng.random() * q[drafted] < p[drafted]:
        return drafted
    weights = p if wrong else np.maximum(p - q, 0.0)
    return rng.choice(len(p), p=weights / weights.sum())


def draft_and_verify(p, q, rng, wrong=False):
    return accept_or_recover(p, q, rng.choice(len(q), p=q), rng, wrong)


@pytest.mark.parametrize("wrong", [False, True])
def test_functions_of_one_token(wrong):
    verifier = one_token.adapt(lambda p, q, drafted, rng: accept_or_recover(p, q, drafted, rng, wrong))
    assert declared(verifier).gamma == 1
    target, draft = markov_pair()
    rows = rows_of(target, draft, chain(1), 4000)
    output = verifier(rows.draft_tokens, rows.p, rows.q, np.random.default_rng(0))
    assert output.shape == (4000, 2)
    assert (p_value([[int(row[0])] for row in output], target, (0,)) < FALSE_ALARM) == wrong

    decode = one_token.adapt_decoder(lambda p, q, rng: draft_and_verify(p, q, rng, wrong))
    assert declared(decode).decoder
    assert (decoder_p_value(decode, 1500) < FALSE_ALARM) == wrong


def test_a_decoder_of_one_token_at_a_time_stops_at_eos():
    target, draft = markov_pair()
    decode = one_token.adapt_decoder(draft_and_verify)
    texts = [decode(target, draft, [0], 6, 1, np.random.default_rng(seed)) for seed in range(30)]
    assert all(1 not in text[:-1] and (text[-1] == 1 or len(text) == 6) for text in texts)
