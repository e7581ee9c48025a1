"""What the adapters share: an engine's function by its name, and randomness for code that draws from PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class EngineMissing(ValueError):
    """The engine, or the function of it that an adapter calls, is not there; the message says how to get it."""


def engine_function(reference: str, install: str) -> Callable[..., Any]:
    """The engine's "package.module:function".

    Raises EngineMissing naming the function, what went wrong on import, and `install`, the command that helps.

    >>> engine_function("no_such_engine.sampling:verify", "pip install no-such-engine")
    Traceback (most recent call last):
    ...
    specsim.auditing.adapters._engines.EngineMissing: no_such_engine.sampling:verify is not there \
(ModuleNotFoundError: No module named 'no_such_engine'); pip install no-such-engine
    """
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # an engine without its accelerator fails in ways of its own
        why = f"{type(error).__name__}: {error}"
        raise EngineMissing(f"{reference} is not there ({why}); {install}") from error
    if not callable(function := getattr(module, name, None)):
        version = getattr(importlib.import_module(module_name.partition(".")[0]), "__version__", "?")
        raise EngineMissing(f"{reference} is not there in version {version}; {install}")
    return function


def seed_of(rng: np.random.Generator) -> int:
    """A seed for an engine's own generator, drawn from `rng`."""
    return int(rng.integers(2**63))


@contextmanager
def seeded_torch(rng: np.random.Generator) -> Iterator[None]:
    """PyTorch's global generators seeded from `rng`, and put back afterwards: many engines draw from them."""
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
