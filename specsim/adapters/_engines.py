"""Helpers of the adapters: an engine's function, seeds, decoders, rows of a cache, paths of a tree."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specsim.adapters._contract import Verifier, declares
from specsim.core._types import Floats, Ints
from specsim.models import Model, Tree
from specsim.models._base import read_by

Function = Callable[..., Any]


class EngineMissing(ValueError):
    """The engine, or its function that the adapter calls, is missing; the message says how to install it."""


def engine_function(reference: str, install: str) -> Function:
    """Import the engine's "package.module:function". Raises EngineMissing with the error, and `install`.

    >>> engine_function("no_such_engine.sampling:verify", "pip install no-such-engine")
    Traceback (most recent call last):
    ...
    specsim.adapters._engines.EngineMissing: no_such_engine.sampling:verify is not there \
(ModuleNotFoundError: No module named 'no_such_engine'); pip install no-such-engine
    """
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # without its accelerator an engine may raise anything
        why = f"{type(error).__name__}: {error}"
        raise EngineMissing(f"{reference} is not there ({why}); {install}") from error
    if not callable(function := getattr(module, name, None)):
        version = getattr(importlib.import_module(module_name.partition(".")[0]), "__version__", "?")
        raise EngineMissing(f"{reference} is not there in version {version}; {install}")
    return function


def installed(
    adapt: Callable[..., Verifier], *references: str, install: str, **settings: str
) -> Callable[[], Verifier]:
    """A function that calls `adapt` on the engine's own functions. It raises as `engine_function`."""
    return lambda: adapt(*(engine_function(reference, install) for reference in references), **settings)


def made(name: str, make: Callable[..., Verifier], **values: Any) -> Verifier:
    """The verifier that `make` makes of an engine. Raises EngineMissing without a library that it needs."""
    try:
        return make(**values)
    except ImportError as error:
        raise EngineMissing(f"{name} is not there ({error}); pip install {error.name}") from error
    except ValueError:  # EngineMissing among them
        raise
    except Exception as error:
        raise ValueError(f"{name}: its adapter raised {type(error).__name__}: {error}") from error


class Request(NamedTuple):
    """The arguments of a decoder, in the order of the contract."""

    target: Model
    draft: Model
    prompt: Sequence[int]
    max_new_tokens: int
    eos: int | None
    rng: np.random.Generator


def decoder_for(**declared: Any) -> Callable[[Callable[[Request], list[int]]], Verifier]:
    """A decorator that makes a decoder of decode(request) -> tokens; `declared` as for `declares`."""

    def attach(decode: Callable[[Request], list[int]]) -> Verifier:
        return declares(decoder=True, **declared)(lambda *arguments: decode(Request(*arguments)))

    return attach


def seed_of(rng: np.random.Generator) -> int:
    """A seed for an engine's own generator, drawn from `rng`."""
    return int(rng.integers(2**63))


@contextmanager
def seeded_torch(rng: np.random.Generator) -> Iterator[None]:
    """Seed PyTorch's global generators from `rng`, and restore them afterwards."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed_of(rng))
        yield


def until_eos(tokens: Iterable[int], eos: int | None) -> list[int]:
    """`tokens` up to the first `eos`, which is kept.

    >>> until_eos([3, 0, 2, 0], eos=0)
    [3, 0]
    """
    kept = []
    for token in tokens:
        kept.append(token)
        if token == eos:
            break
    return kept


def padded(steps: Iterable[Sequence[int]], width: int) -> Ints:
    """The tokens of each step, padded with -1 to [B, width].

    >>> padded([[3], [1, 2]], 3)
    array([[ 3, -1, -1],
           [ 1,  2, -1]])
    """
    return np.array([[*tokens, *[-1] * (width - len(tokens))] for tokens in steps])


def last_rows(model: Model, held: ArrayLike, count: int) -> Floats:
    """The rows float64 [count, V] after each of the last `count` tokens of `held` (integers [T]), the keys of
    a cache: one in the wrong place, or not cropped, changes the output. The first positions of a prompt, too
    few for the model, get the uniform row."""
    tokens = np.asarray(held, dtype=np.int64)
    rows = np.full((count, model.vocab_size), 1.0 / model.vocab_size)
    shortest = max(model.order, len(tokens) - count + 1)
    text = tokens.tolist()
    histories = [np.array([read_by(model, text[:end])]) for end in range(shortest, len(text) + 1)]
    for place, history in enumerate(histories, start=count - len(histories)):
        model.rows(history, out=rows[place : place + 1])
    return rows


def leaf_paths(tree: Tree) -> list[list[int]]:
    """The nodes from the root to every leaf, leaves in order, padded with -1 to the depth of the tree.

    >>> leaf_paths(Tree((0, 0, 1)))
    [[0, 2, -1], [0, 1, 3]]
    """
    leaves = [node for node in range(tree.size + 1) if not tree.children(node)]
    return [[0, *tree.path(leaf), *[-1] * (tree.depth - tree.depths[leaf])] for leaf in leaves]
