"""SGLang: chains of drafts with a draft's probabilities, in three places.

Read at 0.5.23, `sglang/kernels/ops/speculative/reject_sampling.py`, token-wise or block verification:

    chain_speculative_sampling_triton(predicts[N], accept_index[B, γ+1], accept_token_num[B],
        candidates[B, γ+1], retrive_index[B, γ+1], retrive_next_token, retrive_next_sibling,
        uniform_samples[B, γ+1], uniform_samples_for_final_sampling[B], target_probs[B, γ+1, V],
        draft_probs[B, γ, V], threshold_single, threshold_acc, deterministic, *, block_verification=False)

which writes to its first three arguments, as the function for trees does (`_sglang.py`), and whose first
candidate is the token before the drafts; `sglang/srt/speculative/uno_utils.py`, on the most probable tokens:

    _sparse_rejection_from_support(candidates[B, γ+1], target_ids[B, γ+1, S], target_probs[B, γ+1, S],
        draft_ids[B, γ, S], draft_probs[B, γ, S], accept_uniforms[B, γ+1], final_uniforms[B])
        -> (accepted[B], token[B])

and `sglang/kernels/ops/speculative/dspark/blockwise_rejection.py`, in PyTorch and in Triton:

    blockwise_rejection_torch(*, candidates[B, γ+1], target_logits[B·(γ+1), V], draft_logits[B, γ, V] | None,
        target_temperatures[B], draft_temperatures[B], noise, cutoff_verify_lens=None)
        -> (accepted[B], token[B], cut off[B])

Triton's kernels are interpreted without a GPU, at 10 to 30 ms a row. Known issues: where rounding
leaves no residual, the first emits token V - 1.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters._contract import Verifier, declares
from specsim.adapters._triton import device as kernels_device
from specsim.adapters._triton import language

INSTALL = "pip install --no-deps sglang, and torch, triton, on Linux"
OPS = "sglang.kernels.ops.speculative"
DSPARK = f"{OPS}.dspark.blockwise_rejection"
#: The most tokens of UNO's supports.
UNO_TOP_K = 128


def adapt_chain(function: engines.Function, device: str = "cpu", block: bool = False) -> Verifier:
    """Make a verifier of any function with the signature of `chain_speculative_sampling_triton`."""

    @declares(arrays="torch", device=device, dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        steps, gamma = draft_tokens.shape
        width, device = gamma + 1, p.device
        predicts = torch.full((steps * width,), -1, dtype=torch.int32, device=device)
        places = torch.full((steps, width), -1, dtype=torch.int32, device=device)
        accepted = torch.zeros(steps, dtype=torch.int32, device=device)
        with engines.seeded_torch(rng):
            coins, final_coins = torch.rand((steps, width), device=device), torch.rand(steps, device=device)
        function(
            predicts=predicts,
            accept_index=places,
            accept_token_num=accepted,
            candidates=_after_a_token(draft_tokens),
            retrive_index=torch.arange(steps * width, device=device).view(steps, width),
            retrive_next_token=None,
            retrive_next_sibling=None,
            uniform_samples=coins,
            uniform_samples_for_final_sampling=final_coins,
            target_probs=p.contiguous(),
            draft_probs=q.contiguous(),
            threshold_single=1.0,
            threshold_acc=1.0,
            deterministic=True,
            block_verification=block,
        )
        return torch.where(places < 0, -1, predicts[places.clamp(min=0).long()])

    return verify


def adapt_uno(function: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature of `_sparse_rejection_from_support`."""

    @declares(arrays="torch", dtypes=("float32",), vocab_size=UNO_TOP_K)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        steps, gamma = draft_tokens.shape
        target_probs, target_ids = p.sort(descending=True)
        draft_probs, draft_ids = q.sort(descending=True)
        with engines.seeded_torch(rng):
            coins, final_coins = torch.rand(steps, gamma + 1), torch.rand(steps)
        accepted, last = function(
            _after_a_token(draft_tokens), target_ids, target_probs, draft_ids, draft_probs, coins, final_coins
        )
        return _emitted(draft_tokens, accepted, last)

    return verify


def adapt_dspark(function: engines.Function, device: str = "cpu") -> Verifier:
    """Make a verifier of any function with the signature of `blockwise_rejection_torch`."""

    @declares(arrays="torch", device=device, dtypes=("float32",), one_hot=True)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        temperatures = torch.ones(len(p), device=p.device)
        counter = torch.zeros(1, dtype=torch.int64, device=p.device)
        accepted, last, _ = function(
            candidates=_after_a_token(draft_tokens),
            target_logits=p.log().flatten(0, 1),
            draft_logits=None if q is None else q.log(),
            target_temperatures=temperatures,
            draft_temperatures=temperatures,
            noise=SimpleNamespace(key=engines.seed_of(rng), counter=counter),
        )
        return _emitted(draft_tokens, accepted, last)

    return verify


def chain() -> Verifier:
    """Adapt SGLang's own kernel, on a GPU or interpreted. Raises EngineMissing."""
    return _own_chain(block=False)


def block() -> Verifier:
    """The same with block verification."""
    return _own_chain(block=True)


def uno() -> Verifier:
    """Adapt SGLang's own UNO in PyTorch. Raises EngineMissing."""
    folder = stubs.installed_folder("sglang", INSTALL)
    import torch

    compiled = torch.compile
    torch.compile = _not_compiled
    try:
        module = stubs.part(folder, "sglang.srt.speculative.uno_utils", absent=["flashinfer"])
    finally:
        torch.compile = compiled
    return adapt_uno(module._sparse_rejection_from_support)


def dspark() -> Verifier:
    """Adapt SGLang's own DSpark in PyTorch. Raises EngineMissing."""
    folder = stubs.installed_folder("sglang", INSTALL)
    module = stubs.part(folder, DSPARK, absent=["msgspec", "triton"])
    return adapt_dspark(module.blockwise_rejection_torch)


def dspark_triton() -> Verifier:
    """Adapt SGLang's own DSpark in Triton, on a GPU or interpreted. Raises EngineMissing."""
    folder = stubs.installed_folder("sglang", INSTALL)
    names = language()
    module = stubs.part(folder, DSPARK, absent=["msgspec"])
    module.libdevice = names["tldevice"]  # type: ignore[attr-defined]
    return adapt_dspark(module.blockwise_rejection_triton, kernels_device())


def _own_chain(block: bool) -> Verifier:
    folder = stubs.installed_folder("sglang", INSTALL)
    language()  # before the kernels are defined
    function = stubs.part(folder, f"{OPS}.reject_sampling").chain_speculative_sampling_triton
    return adapt_chain(function, kernels_device(), block)


def _not_compiled(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """Replaces torch.compile(…), which needs a compiler, by the unchanged function."""
    return lambda function: function


def _after_a_token(draft_tokens: Any) -> Any:
    import torch

    return torch.nn.functional.pad(draft_tokens, (1, 0))


def _emitted(draft_tokens: Any, accepted: Any, last: Any) -> Any:
    """The first `accepted` [B] of the drafted tokens, `last` [B], then -1."""
    import torch

    width = draft_tokens.shape[1] + 1
    places, drafted = torch.arange(width, device=last.device), torch.nn.functional.pad(draft_tokens, (0, 1))
    kept = torch.where(places < accepted[:, None], drafted, -1)
    return torch.where(places == accepted[:, None], last[:, None], kept)
