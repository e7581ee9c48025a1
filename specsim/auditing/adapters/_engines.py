"""Helpers of the adapters: importing an engine's function, the form of a decoder, seeding PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.models import Model


class EngineMissing(ValueError):
    """The engine, or its function that the adapter calls, is not installed; the message says how to install
    it.
    """


def engine_function(reference: str, install: str) -> Callable[..., Any]:
    """Import the engine's "package.module:function".

    Raises EngineMissing with the function, the error of the import, and `install`, the command that installs
    it.

    >>> engine_function("no_such_engine.sampling:verify", "pip install no-such-engine")
    Traceback (most recent call last):
    ...
    specsim.auditing.adapters._engines.EngineMissing: no_such_engine.sampling:verify is not there \
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
