"""Sequoia: trees of siblings without replacement, drafted, verified and put into a KV cache by slots.

`Tree/SpecTree.py`, read at 0ff3ff7:

    SpecTree(draft_model_engine, target_model_engine, prefix, temperature, top_p, max_length, …, grow_map,
             attn_mask, position_ids, residual_graph, sampling_callables, sample_gather_indices)
    .construct_grow_map(), .verify() -> (tokens, …, terminal)

One object decodes a whole text, as in `tests/testbed.py`; the adapter calls it in the same way, on engines
whose caches hold the token of each slot. Tokens 0 and 2 end a text there: all ids are raised by 3, and
end-of-text is token 2. Everything is float16, as in the engine.

Known issues: the token after the accepted ones is written before these are moved to their place, so that it
may overwrite one of them (`SpecTree.py:222`); the random numbers of a whole text are drawn once (`:60`,
`:84`); the coins are float16, and 0 with probability 2^-11.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from experiments.engines._models import Shifted, log_rows
from experiments.engines._origins import Clone, engines, made_by, stubs
from specsim.adapters import Verifier
from specsim.models import Tree

ORIGIN = Clone("Infini-AI-Lab/Sequoia")
TREE = Tree((0, 0, 1, 2), "without replacement")
#: The ids below are the engine's own; END ends a text.
FIRST, END = 3, 2


def adapt(spec_tree: engines.Function, utilities: Any) -> Verifier:
    """Make a decoder of any class with the interface of `SpecTree`; `utilities` is its module `utils`."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        target, draft = (Shifted(model, FIRST, request.eos, END) for model in (request.target, request.draft))
        start = len(request.prompt)
        size = start + request.max_new_tokens + 3 * (TREE.size + 1)
        with engines.seeded_torch(request.rng):
            tree = spec_tree(
                _SlotEngine(draft, size),
                _SlotEngine(target, size),
                torch.tensor([target.up(token) for token in request.prompt]),
                temperature=1.0,
                top_p=1.0,
                max_length=size,
                max_target_seq=size,
                vocab_size=draft.vocab_size,
                attn_mask=torch.full((size, size), torch.finfo(torch.float16).min, dtype=torch.float16),
                position_ids=torch.zeros(size, dtype=torch.long),
                residual_graph=utilities.get_residual,
                **_growth(utilities.sampling_without_replacement),
            )
            tokens, ended = [0] * start, False
            while len(tokens) - start < request.max_new_tokens and not ended:
                tree.construct_grow_map()
                emitted, _, _, ended = tree.verify()
                tokens = emitted.tolist()
                ended = ended or tokens[-1] in (0, END)
        return [target.down(token) for token in tokens[start : start + request.max_new_tokens]]

    return decode


def _verify() -> Verifier:
    """Adapt the code of the clone. Raises EngineMissing without it."""
    folder = ORIGIN.folder("Tree/SpecTree.py")
    names = ("Tree.SpecTree", "Tree.Tree", "utils")
    with stubs.parts(folder, *names, given={"Engine.Engine": {}}) as (module, _, utilities):
        return adapt(module.SpecTree, utilities)


class _SlotEngine:
    """A model whose cache has a token in every slot; it reads those that the attention mask lets through."""

    dtype: Any = None

    def __init__(self, model: Shifted, size: int):
        import torch

        self.model, self.slots, self.dtype = model, torch.zeros(size, dtype=torch.long), torch.float16
        self.engine = SimpleNamespace(max_length=size, kv_cache=self)

    def inference(self, input_ids: Any, storage_ids: Any, position_ids: Any, attn_mask: Any) -> Any:
        """Logits float16 [1, T, V] after each of `input_ids` [1, T], which are stored."""
        import torch

        self.slots[storage_ids] = input_ids[0]
        seen = (mask.eq(0).nonzero()[:, 0] for mask in attn_mask[0, 0])
        rows = [log_rows(self.model, self.slots[places].numpy(), 1)[0] for places in seen]
        return torch.stack(rows).to(self.dtype)[None]

    graph_inference = inference

    def gather_kv_incremental(self, indices: list[int], offset: int) -> None:
        """Move the slots `indices` to those from `offset` on."""
        self.slots[offset : offset + len(indices)] = self.slots[indices]


def _growth(sampling: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that say which tree grows, and how its siblings are drawn."""
    import torch

    nodes = range(TREE.size + 1)
    levels = [[node for node in nodes if TREE.depths[node] == depth] for depth in range(TREE.depth + 1)]
    branches = [[len(TREE.children(node)) for node in level] for level in levels]
    mask = torch.zeros(len(nodes), len(nodes))
    for node in nodes:
        mask[node, [0, *TREE.path(node)]] = 1
    samplers, places = {}, {}
    for depth, counts in enumerate(branches[:-1]):
        most = max(counts)
        samplers[depth] = lambda logits, noise, most=most: sampling(logits, noise, most, 1.0)
        drawn = [row * most + child for row, count in enumerate(counts) for child in range(count)]
        places[depth] = torch.tensor(drawn)
    return {
        "grow_map": {
            "roots": levels,
            "branches": branches,
            "Successors": [list(TREE.children(node)) for node in nodes],
            "size": len(nodes),
            "depth": torch.tensor(TREE.depths),
            "mask": mask,
        },
        "sampling_callables": samplers,
        "sample_gather_indices": places,
    }


__getattr__ = made_by(__name__, verify=_verify)
