"""vLLM on Ascend: vLLM's rejection sampler, in PyTorch for devices without Triton, and in Triton.

docs/engines/vllm.md has their signatures, and known issues.

`adapt` takes two functions, and does what `rejection_sample` does around them: it draws uniforms in float64,
the exponentials, and the bonus tokens. `expand_pytorch`, which spreads temperatures over a request's tokens,
has nothing to do at temperature 1. `whole` and `block` call `rejection_sample` itself; `triton` and
`triton_block` do so with Triton's kernels, interpreted; `model_runner_2` calls that of V2. Newer versions use
pinned memory, which needs an accelerator: the request is dropped here."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters import _vllm as vllm
from specsim.adapters._contract import Verifier, declares
from specsim.adapters._triton import get_element, interpreted

MODULE = "vllm_ascend.sample.rejection_sampler"
KERNELS = "vllm_ascend.ops.triton.reject_sample"
V2 = "vllm_ascend.worker.v2.spec_decode.rejection_sampler_utils"
#: Programs that share the rows of a call, as on an Ascend 910B.
VECTOR_CORES = 40
INSTALL = (
    "pip install vllm-ascend, or clone vllm-project/vllm-ascend: specsim audit vllm-ascend:source=FOLDER"
)


def adapt(rejection_random_sample: engines.Function, sample_recovered_tokens: engines.Function) -> Verifier:

    @declares(arrays="torch", dtypes=("float32",), lengths=True, one_hot=True)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None) -> Any:
        import torch

        steps, gamma = draft_tokens.shape
        vocab_size = p.shape[2]
        counts = [gamma] * steps if lengths is None else [int(length) for length in lengths]
        ends = torch.tensor(counts).cumsum(0)
        flat = vllm.flatten(draft_tokens, counts)
        rows = (None if q is None else vllm.flatten(q, counts), vllm.flatten(p, counts))
        output = torch.full((steps, gamma + 1), -1, dtype=torch.int32)
        recovered = torch.empty_like(flat)
        with engines.seeded_torch(rng):
            bonus = torch.multinomial(p[range(steps), counts], 1)
            if not any(counts):  # the engine then samples without them
                return torch.nn.functional.pad(bonus, (0, gamma), value=-1)
            uniforms = torch.rand(len(flat), dtype=torch.float64)
            exponentials = torch.empty((steps, vocab_size)).exponential_()
        sample_recovered_tokens(recovered, ends, flat, *rows, exponentials, vocab_size, IS_NGRAM=q is None)
        rejection_random_sample(
            output,
            ends,
            flat,
            *rows,
            bonus,
            recovered,
            uniforms,
            torch.zeros(steps, dtype=torch.bool),
            max(counts),
            vocab_size,
            IS_NGRAM=q is None,
        )
        return output

    return verify


def verifier(source: str = "") -> Verifier:
    """Adapt the two functions, installed or in `source`, a clone. Raises EngineMissing."""
    if not source:
        names = ("rejection_random_sample_pytorch", "sample_recovered_tokens_pytorch")
        return adapt(*(engines.engine_function(f"{MODULE}:{name}", INSTALL) for name in names))
    module = _module(source, "vllm-ascend")
    return adapt(module.rejection_random_sample_pytorch, module.sample_recovered_tokens_pytorch)


def model_runner_2(source: str = "") -> Verifier:
    """Adapt `rejection_sample` of the model runner V2 in `source`, a clone. Raises EngineMissing."""
    folder = stubs.clone_folder(source, "vllm-ascend:v2", "vllm-project/vllm-ascend", V2)
    given = {"vllm.triton_utils": interpreted(), vllm.MODULE_V2: vars(vllm.sampler_v2())}
    return vllm.adapt_v2(stubs.part(folder, V2, given=given).rejection_sample)


def _kernels() -> stubs.Given:
    """Triton, interpreted, and what of the processor its kernels ask for."""
    names = interpreted()
    return {
        "vllm.triton_utils": {**names, "HAS_TRITON": True},
        "vllm.utils.math_utils": {"next_power_of_2": names["triton"].next_power_of_2},
        "vllm_ascend.ops.triton.triton_utils": {
            "get_element": get_element,
            "get_vectorcore_num": lambda: VECTOR_CORES,
        },
    }


def _own(engine: str, kernels: bool, block_verify: bool, source: str = "") -> Verifier:
    """Adapt `rejection_sample`, which calls them, in `source`, a clone. Raises EngineMissing."""
    module = _module(source, engine, kernels)
    enabled = {"enable_block_verify": block_verify, "enable_entropy_verify": False}
    sampler = SimpleNamespace(posterior_threshold=0.95, posterior_alpha=0.4, **enabled)
    config = SimpleNamespace(enable_reduce_sample=False, rejection_sampler_config=sampler)
    module.get_ascend_config = lambda: config
    # by the name of its parameter `adapt` sees that it takes logits
    return vllm.adapt(lambda *arguments, target_logits=None: module.rejection_sample(*arguments))


whole = partial(_own, "vllm-ascend:whole", False, False)
block = partial(_own, "vllm-ascend:block", False, True)
triton = partial(_own, "vllm-ascend:triton", True, False)
triton_block = partial(_own, "vllm-ascend:triton-block", True, True)


def _module(source: str, engine: str, kernels: bool = False) -> Any:
    """The module in a clone, with vLLM's sampler, whose names it imports, from the installed wheel."""
    folder = stubs.clone_folder(source, engine, "vllm-project/vllm-ascend", MODULE)
    of_vllm = vllm.sampler_without_kernels()
    names = ("PLACEHOLDER_TOKEN_ID", "GREEDY_TEMPERATURE", "MAX_SPEC_LEN", "generate_uniform_probs")
    given: stubs.Given = {vllm.SAMPLER: {name: getattr(of_vllm, name) for name in names}}
    of_triton = _kernels() if kernels else {"vllm.triton_utils": {"HAS_TRITON": False}}
    module = stubs.part(folder, MODULE, *[KERNELS] * kernels, given={**given, **of_triton})
    module.torch = stubs.Unpinned()  # type: ignore[attr-defined]
    return module
