"""vLLM's server for CPUs with vllm-project/vllm#55005 repaired, and with top-k in a step without drafts."""

import runpy
from typing import Any

import torch
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.ops import topk_topp_sampler

cut = topk_topp_sampler.apply_top_k_only


def expanded(each: Any, ends: Any, count: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    """The value of each request once for each of its drafted tokens, with one value replaced."""
    times = torch.diff(ends, prepend=ends.new_zeros(1))
    return torch.where(each == replace_from, replace_to, each).repeat_interleave(times, output_size=count)


# in the processes that vLLM starts too, which import this module
rejection_sampler.expand_batch_to_tokens = expanded
topk_topp_sampler.apply_top_k_only = lambda logits, k: cut(logits, k) if len(k) else logits

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
