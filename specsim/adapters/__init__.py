"""Adapters: the verifiers and decoders of inference engines, in the form that `specsim.audit` takes.

There is one file for each engine. It documents the signature that it adapts; `adapt` makes a verifier or a
decoder of any function of that signature, a fork's included, and another function adapts the engine's own.
`get` finds the latter by name, and imports the engine only then.

>>> "hf" in names()
True
"""

from __future__ import annotations

import importlib
import inspect

from specsim.adapters._contract import Declared, Verifier, declares
from specsim.adapters._engines import EngineMissing
from specsim.core._registry import suggestion

__all__ = ["ENGINES", "Declared", "EngineMissing", "declares", "get", "is_engine", "names"]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__


#: Where each engine's own verifier or decoder is made, and what it is.
ENGINES: dict[str, tuple[str, str]] = {
    "deepspec": ("deepspec:verifier", "DeepSpec's verify_draft_tokens"),
    "dflash": ("dflash:verifier", "DFlash's _rejection_sample"),
    "eagle": ("eagle:verifier_1", "EAGLE-1's evaluate_posterior: trees of siblings without replacement"),
    "eagle-harness": ("eagle_harness:verifier", "EAGLE-Harness's reject_children, down a tree"),
    "eagle2": ("eagle:verifier_2", "evaluate_posterior of EAGLE-2 and 3: trees of the most probable tokens"),
    "eagle:batched": ("eagle:verifier_batched", "EAGLE-1's evaluate_posterior for batches, one sequence"),
    "feifeibear": ("feifeibear:cached", "feifeibear/LLMSpeculativeSampling, the loop with a cache"),
    "feifeibear:seeded": ("feifeibear:seeded", "the same with a random seed"),
    "feifeibear:unshifted": ("feifeibear:unshifted", "the same with token 0 among the ids"),
    "feifeibear:v2": ("feifeibear:stateless", "feifeibear/LLMSpeculativeSampling, the loop without a cache"),
    "flashinfer": ("flashinfer:verifier", "FlashInfer's chain_speculative_sampling"),
    "flashspec": ("flashspec:verifier", "flashspec's rejection_sample"),
    "gpt-fast": ("gpt_fast:decoder", "gpt-fast, the whole loop"),
    "gpt-fast:bfloat16": ("gpt_fast:verifier", "gpt-fast's speculative_decode, in bfloat16"),
    "hf": ("hf:kernel", "Hugging Face transformers' _speculative_sampling"),
    "hf:generate": ("hf:generate", "transformers' generate(assistant_model=…), the whole loop"),
    "hsd": ("seqspecdecod:standard", "sequential-speculative-decoding's standard step, in a loop"),
    "hsd:capped": ("seqspecdecod:capped", "its capped hierarchical speculative decoding"),
    "hsd:naive": ("seqspecdecod:naive", "its naive hierarchical speculative decoding"),
    "jaymody": ("jaymody:decoder", "jaymody/speculative-sampling, the whole loop"),
    "layerskip": ("layerskip:decoder", "LayerSkip's self-speculative decoding, the whole loop"),
    "lmdeploy": ("lmdeploy:verifier", "LMDeploy's rejection sampling in PyTorch"),
    "lookahead": ("lookahead:decoder", "Lookahead decoding's jacobi_sample_multilevel, the whole loop"),
    "lucidrains": ("lucidrains:decoder", "lucidrains/speculative-decoding, the whole loop"),
    "medusa": ("medusa:verifier", "Medusa's evaluate_posterior: typical acceptance over trees, lossy"),
    "mlx-lm": ("mlx_lm:decoder", "MLX-LM's speculative_generate_step, the whole loop"),
    "naive-speculate": ("naive_speculate:verifier", "naive-speculate's speculative_sampling"),
    "romsto": ("romsto:decoder", "romsto/Speculative-Decoding, the whole loop"),
    "romsto:cached": ("romsto:cached", "the same with a cache"),
    "romsto:greedy": ("romsto:greedy", "the same with its default, greedy processor"),
    "romsto:unadjusted": ("romsto:unadjusted", "the same with skip_sample_adjustment"),
    "sequoia": ("sequoia:decoder", "Sequoia's SpecTree, the whole loop"),
    "sglang": ("sglang:verifier", "SGLang's tree_speculative_sampling_target_only"),
    "sglang:block": ("sglang_chain:block", "SGLang's Triton kernel for chains, with block verification"),
    "sglang:chain": ("sglang_chain:chain", "SGLang's Triton kernel for chains"),
    "sglang:dspark": ("sglang_chain:dspark", "SGLang's blockwise_rejection of DSpark, in PyTorch"),
    "sglang:dspark-triton": ("sglang_chain:dspark_triton", "the same, its Triton kernels"),
    "sglang:uno": ("sglang_chain:uno", "SGLang's rejection on supports of UNO, in PyTorch"),
    "shreyansh": ("shreyansh:verifier", "shreyansh26/Speculative-Decoding's probabilistic_verify"),
    "tensorrt-llm": ("tensorrt_llm:verifier", "TensorRT-LLM's TwoModelSpecDecHandler, in PyTorch"),
    "tensorrt-llm:tree": ("tensorrt_llm:tree_verifier", "the same for trees"),
    "tpu-inference": ("tpu_inference:verifier", "tpu-inference's rejection_sample, in JAX"),
    "triforce": ("triforce:decoder", "TriForce, the whole loop"),
    "vllm": ("vllm:verifier", "vLLM V1's rejection_sample; its Triton kernels"),
    "vllm-ascend": ("vllm_ascend:verifier", "vllm-ascend's rejection sampler in PyTorch"),
    "vllm-ascend:block": ("vllm_ascend:block", "the same with enable_block_verify"),
    "vllm-ascend:triton": ("vllm_ascend:triton", "vllm-ascend's rejection_sample; its Triton kernels"),
    "vllm-ascend:triton-block": ("vllm_ascend:triton_block", "the same with enable_block_verify"),
    "vllm-ascend:v2": ("vllm_ascend:model_runner_2", "vllm-ascend's rejection_sample of model runner V2"),
    "vllm-ascend:whole": ("vllm_ascend:whole", "vllm-ascend's rejection_sample, in PyTorch"),
    "vllm-cpu": ("vllm:cpu_verifier", "vLLM V1's rejection_sample; its C++ kernels for CPUs"),
    "vllm2": ("vllm2:verifier", "vLLM's rejection_sample of model runner V2; its Triton kernels"),
    "vllm2:block": ("vllm2:block_verifier", "the same with block verification"),
}


def names() -> list[str]:
    """Return the names of the engines that have an adapter; `ENGINES` describes each.

    Returns
    -------
    list of str

    Examples
    --------
    >>> names()[:2]
    ['deepspec', 'dflash']
    """
    return list(ENGINES)


def is_engine(reference: str) -> bool:
    """Return whether a text names an engine, with or without parameters, and not a function of a module.

    Parameters
    ----------
    reference : str
        As for `get`.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_engine("hf:generate,top_k=3"), is_engine("mine:verify")
    (True, False)
    """
    return reference.partition(",")[0] in ENGINES


def get(name: str) -> Verifier:
    """Return an engine's own verifier or decoder.

    Parameters
    ----------
    name : str
        A name of `names`, with parameters after commas: "hf:generate,temperature=0.7".

    Returns
    -------
    callable
        A verifier or decoder of the contract of `specsim.audit`.

    Raises
    ------
    ValueError
        If the name or a parameter is unknown.
    EngineMissing
        A ValueError, if the engine is not installed.

    Examples
    --------
    >>> get("hf:generate,temprature=0.7")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: hf:generate: no parameter 'temprature'; it has temperature, ...
    """
    name, *given = name.split(",")
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}{suggestion(name, ENGINES)} Engines: {', '.join(ENGINES)}")
    module, _, function = ENGINES[name][0].partition(":")
    make = getattr(importlib.import_module(f"{__name__}._{module}"), function)
    known = inspect.signature(make).parameters
    values = {}
    for part in given:
        parameter, _, value = part.partition("=")
        if parameter not in known:
            raise ValueError(
                f"{name}: no parameter {parameter!r}; "
                + (f"it has {', '.join(known)}" if known else "it has none")
            )
        kind = type(known[parameter].default)
        try:
            values[parameter] = kind(value)
        except ValueError:
            raise ValueError(f"{name}: {part!r} is not {parameter}=number") from None
    try:
        verifier: Verifier = make(**values)
    except ImportError as error:  # of a library that the adapter itself needs
        raise EngineMissing(f"{name} is not there ({error}); pip install {error.name}") from error
    return verifier
