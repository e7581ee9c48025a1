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

from specsim.auditing._verifier.contract import Verifier
from specsim.auditing.adapters._engines import EngineMissing
from specsim.core._registry import nearest

__all__ = ["ENGINES", "EngineMissing", "get", "is_engine", "names"]

#: Where each engine's own verifier or decoder is made, and what it is.
ENGINES: dict[str, tuple[str, str]] = {
    "eagle": ("eagle:verifier_1", "EAGLE-1's evaluate_posterior: trees of siblings without replacement"),
    "eagle2": ("eagle:verifier_2", "evaluate_posterior of EAGLE-2 and 3: trees of the most probable tokens"),
    "flashinfer": ("flashinfer:verifier", "FlashInfer's chain_speculative_sampling"),
    "hf": ("hf:kernel", "Hugging Face transformers' _speculative_sampling"),
    "hf:generate": ("hf:generate", "transformers' generate(assistant_model=…), the whole loop"),
    "lucidrains": ("lucidrains:decoder", "lucidrains/speculative-decoding, the whole loop"),
    "medusa": ("medusa:verifier", "Medusa's evaluate_posterior: typical acceptance over trees, lossy"),
    "mlx-lm": ("mlx_lm:decoder", "MLX-LM's speculative_generate_step, the whole loop"),
    "naive-speculate": ("naive_speculate:verifier", "naive-speculate's speculative_sampling"),
    "sglang": ("sglang:verifier", "SGLang's tree_speculative_sampling_target_only"),
    "tensorrt-llm": ("tensorrt_llm:verifier", "TensorRT-LLM's get_rejected_indices and sample_rejected"),
    "vllm": ("vllm:verifier", "vLLM V1's rejection_sample"),
    "vllm-ascend": ("vllm_ascend:verifier", "vllm-ascend's rejection sampler in PyTorch"),
}


def names() -> list[str]:
    """Return the names of the engines that have an adapter; `ENGINES` describes each.

    >>> names()[:2]
    ['eagle', 'eagle2']
    """
    return list(ENGINES)


def is_engine(reference: str) -> bool:
    """Return whether `reference` names an engine, with or without parameters, and not a function of a module.

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
    """
    name, *given = name.split(",")
    if name not in ENGINES:
        near = nearest(name, ENGINES)
        raise ValueError(f"unknown engine {name!r}; did you mean {near!r}? Engines: {', '.join(ENGINES)}")
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
    verifier: Verifier = make(**values)
    return verifier
