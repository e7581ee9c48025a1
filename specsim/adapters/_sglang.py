"""SGLang: drafts of trees, from the target's probabilities only, and of chains, in three places.

docs/engines/sglang.md has their signatures, and known issues. The kernel for trees needs a GPU; Triton's are
interpreted without one."""

from contextlib import suppress
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters import _triton as triton
from specsim.adapters._contract import Verifier, declares
from specsim.models import Tree

with suppress(ImportError):  # whoever has the engine has it
    import torch

INSTALL = "pip install --no-deps sglang, and torch, triton, on Linux"
OPS = "sglang.kernels.ops.speculative"
DSPARK = f"{OPS}.dspark.blockwise_rejection"
#: The most tokens of UNO's supports.
UNO_TOP_K = 128


def adapt(tree_speculative_sampling: engines.Function, device: str = "cpu") -> Verifier:

    @declares(arrays="torch", device=device, dtypes=("float32",), tree=True, draft_sampling="top")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        tree = Tree(tuple(int(parent) for parent in parents))
        nodes = [0, *map(int, tokens)], *_links(tree)
        candidates, *links = (torch.as_tensor(one, dtype=torch.int64, device=p.device)[None] for one in nodes)
        rows = p[None].contiguous(), torch.zeros_like(p)[None]
        predicts, places, accepted = _run(
            tree_speculative_sampling, candidates, links, rows, rng, tree.depth + 1
        )
        path = places[0, : int(accepted[0]) + 1].tolist()
        return path[1:], int(predicts[path[-1]])

    return verify


def _run(
    function: engines.Function, candidates: Any, links: Any, rows: Any, rng: Any, width: int, **more: Any
) -> tuple[Any, Any, Any]:
    """What the function writes for `candidates` [B, nodes]: tokens, accepted places [B, width], how many."""
    (steps, nodes), device = candidates.shape, candidates.device
    predicts = torch.full((steps * nodes,), -1, dtype=torch.int32, device=device)
    places = torch.full((steps, width), -1, dtype=torch.int32, device=device)
    accepted = torch.zeros(steps, dtype=torch.int32, device=device)
    with engines.seeded_torch(rng):
        coins, final_coins = torch.rand((steps, nodes), device=device), torch.rand(steps, device=device)
    function(
        predicts=predicts,
        accept_index=places,
        accept_token_num=accepted,
        candidates=candidates,
        retrive_index=torch.arange(steps * nodes, device=device).view(steps, nodes),
        retrive_next_token=links[0],
        retrive_next_sibling=links[1],
        uniform_samples=coins,
        uniform_samples_for_final_sampling=final_coins,
        target_probs=rows[0],
        draft_probs=rows[1],
        threshold_single=1.0,
        threshold_acc=1.0,
        deterministic=True,
        **more,
    )
    return predicts, places, accepted


verifier = engines.installed(
    adapt, "sgl_kernel:tree_speculative_sampling_target_only", install="pip install sgl-kernel", device="cuda"
)


def _links(tree: Tree) -> tuple[list[int], list[int]]:
    """The first child and the next sibling of every node, or -1."""
    children = [tree.children(node) for node in range(tree.size + 1)]
    siblings = dict(pair for some in children for pair in pairwise(some))
    return [next(iter(some), -1) for some in children], [siblings.get(i, -1) for i in range(len(children))]


def adapt_chain(function: engines.Function, device: str = "cpu", block: bool = False) -> Verifier:
    """Make a verifier of any function with the signature of `chain_speculative_sampling_triton`."""

    @declares(arrays="torch", device=device, dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        candidates, rows = _after_a_token(draft_tokens), (p.contiguous(), q.contiguous())
        width, more = candidates.shape[1], {"block_verification": block}
        predicts, places, _ = _run(function, candidates, (None, None), rows, rng, width, **more)
        return torch.where(places < 0, -1, predicts[places.clamp(min=0).long()])

    return verify


def adapt_uno(function: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature of `_sparse_rejection_from_support`."""

    @declares(arrays="torch", dtypes=("float32",), vocab_size=UNO_TOP_K)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
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


def _own_chain(block: bool) -> Verifier:
    """SGLang's own kernel, on a GPU or interpreted, token-wise or with block verification."""
    folder = stubs.installed_folder("sglang", INSTALL)
    triton.language()  # before the kernels are defined
    function = stubs.part(folder, f"{OPS}.reject_sampling").chain_speculative_sampling_triton
    return adapt_chain(function, triton.device(), block)


chain, block = partial(_own_chain, False), partial(_own_chain, True)


def uno() -> Verifier:
    """Adapt SGLang's own UNO in PyTorch. Raises EngineMissing."""
    folder = stubs.installed_folder("sglang", INSTALL)
    import torch

    compiled = torch.compile
    torch.compile = lambda *_, **__: lambda function: function  # a compiler is not needed
    try:
        module = stubs.part(folder, "sglang.srt.speculative.uno_utils", absent=["flashinfer"])
    finally:
        torch.compile = compiled
    return adapt_uno(module._sparse_rejection_from_support)


def dspark() -> Verifier:
    """Adapt SGLang's own DSpark in PyTorch. Raises EngineMissing."""
    module = stubs.part(stubs.installed_folder("sglang", INSTALL), DSPARK, absent=["msgspec", "triton"])
    return adapt_dspark(module.blockwise_rejection_torch)


def dspark_triton() -> Verifier:
    """Adapt SGLang's own DSpark in Triton, on a GPU or interpreted. Raises EngineMissing."""
    folder = stubs.installed_folder("sglang", INSTALL)
    names = triton.language()
    module = stubs.part(folder, DSPARK, absent=["msgspec"])
    module.libdevice = names["tldevice"]  # type: ignore[attr-defined]
    return adapt_dspark(module.blockwise_rejection_triton, triton.device())


def _after_a_token(draft_tokens: Any) -> Any:
    return torch.nn.functional.pad(draft_tokens, (1, 0))


def _emitted(draft_tokens: Any, accepted: Any, last: Any) -> Any:
    """The first `accepted` [B] of the drafted tokens, `last` [B], then -1."""
    width = draft_tokens.shape[1] + 1
    places, drafted = torch.arange(width, device=last.device), torch.nn.functional.pad(draft_tokens, (0, 1))
    kept = torch.where(places < accepted[:, None], drafted, -1)
    return torch.where(places == accepted[:, None], last[:, None], kept)
