"""TensorRT-LLM: the verification of drafts by its PyTorch sampler, where drafter and target are two engines.

docs/engines/tensorrt-llm.md has its signature, and known issues.

What samples, stops and keeps the text is not in its file: the adapter gives the names that are imported for
it. Drafted tokens go through pinned memory, which needs a GPU: it is switched off. Where one engine drafts
and verifies, FlashInfer's kernel is called, which `_flashinfer.py` adapts."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters._contract import Verifier, declares
from specsim.models import Tree

SAMPLER = "tensorrt_llm._torch.pyexecutor.sampler"
MODULE = f"{SAMPLER}.two_model_spec_dec"
INSTALL = "pip install tensorrt-llm, or clone NVIDIA/TensorRT-LLM: specsim audit tensorrt-llm:source=FOLDER"

#: `TwoModelSpecDecHandler`.
Handler = Callable[[Any], Any]


def adapt(handler: Handler) -> Verifier:
    """Make a verifier of chains of any class with the methods of `TwoModelSpecDecHandler`."""

    @declares(arrays="torch", dtypes=("float32",), one_hot=True)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        sampled, sampler = _sampled(p.flatten(0, 1), rng)
        verifies = handler(sampler)

        def step(index: int) -> list[int]:
            request = _Request(draft_tokens[index].tolist(), None if q is None else q[index].log(), p[index])
            return _emitted(verifies, request, sampled.view(p.shape[:2])[index])

        return engines.padded(map(step, range(len(p))), p.shape[1])

    return verify


def adapt_tree(handler: Handler) -> Verifier:
    """Make a verifier of trees of any class with the methods of `TwoModelSpecDecHandler`."""

    @declares(arrays="torch", dtypes=("float32",), tree=True, draft_sampling="top")
    def verify(parents: Any, tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> tuple[list[int], int]:
        import torch

        tree = Tree(tuple(int(parent) for parent in parents))
        sampled, sampler = _sampled(p, rng)
        paths = torch.tensor(engines.leaf_paths(tree))
        sampler.get_spec_tree_manager = lambda resources: SimpleNamespace(
            get_eagle_paths=lambda slot: paths, max_total_draft_tokens=tree.size
        )
        request = _Request([int(token) for token in tokens], None, p)
        *_, last = _emitted(handler(sampler), request, sampled)
        return [node + 1 for node in request.py_num_accepted_draft_tokens_indices], last

    return verify


class _Request:
    """A request as the handler sees it, in slot 0, and the tokens that it was given."""

    def __init__(self, drafted: list[int], draft_logits: Any, target_probs: Any):
        self.py_draft_tokens, self.py_draft_logits, self.py_target_probs = drafted, draft_logits, target_probs
        self.py_seq_slot = self.seq_slot = 0
        self.py_num_accepted_draft_tokens_indices: list[int] = []
        self.tokens: list[int] = []

    def add_new_token(self, token: int, beam: int) -> None:
        self.tokens.append(token)


def _sampled(rows: Any, rng: np.random.Generator) -> tuple[Any, SimpleNamespace]:
    """A token of each of `rows` [n, V], and the sampler that the handler belongs to."""
    import torch

    generator = torch.Generator().manual_seed(engines.seed_of(rng))
    sampler = SimpleNamespace(
        get_generator=lambda device: generator,
        get_spec_tree_manager=lambda resources: None,
        finish_if_reason=lambda *_, **__: False,
        max_seq_len=None,
        _force_num_accepted_tokens=0,
    )
    return torch.multinomial(rows, 1, generator=generator)[:, 0], sampler


def _emitted(handler: Any, request: _Request, sampled: Any) -> list[int]:
    tokens = sampled[:, None, None].clone()
    accepted = handler.process_draft_tokens(request, tokens, tokens.tolist(), None)
    assert len(request.tokens) == accepted + 1, f"{accepted} accepted, {len(request.tokens)} tokens added"
    return request.tokens


def _own(make: Callable[[Handler], Verifier], engine: str, source: str = "") -> Verifier:
    """Adapt TensorRT-LLM's own class, installed or of `source`, a clone. Raises EngineMissing."""
    if source:
        folder = stubs.clone_folder(source, engine, "NVIDIA/TensorRT-LLM", MODULE)
    else:
        folder = stubs.installed_folder("tensorrt_llm", INSTALL)
    return make(stubs.part(folder, MODULE, given=_given()).TwoModelSpecDecHandler)


verifier = partial(_own, adapt, "tensorrt-llm")
tree_verifier = partial(_own, adapt_tree, "tensorrt-llm:tree")


def _given() -> stubs.Given:
    """What the module imports and what does not verify: of requests that sample at temperature 1."""

    def add_token(request: _Request, new_tokens: Any, *, beam_idx: int, step: int = 0) -> int:
        token: int = new_tokens[step][request.py_seq_slot][beam_idx]
        request.add_new_token(token, beam_idx)
        return token

    return {
        "tensorrt_llm._utils": {"prefer_pinned": lambda: False},
        "tensorrt_llm._torch.pyexecutor.llm_request": {
            "get_draft_token_length": lambda request: len(request.py_draft_tokens)
        },
        f"{SAMPLER}.sampler_common": {"DEFAULT_BEAM_IDX": 0, "add_token": add_token},
        f"{SAMPLER}.sampler_features": {"handle_stop_criteria": lambda *_, **__: False},
        f"{SAMPLER}.sampler_strategy": {
            "GREEDY": "greedy",
            "_request_strategy": lambda request, *, vocab_size: "temperature",
            "sample": lambda strategy, logits, *, generator: (None, logits.softmax(-1), None),
        },
    }
