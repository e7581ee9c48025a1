"""What somebody's function promises: the contract of a verifier, and what it may declare beyond it.

    verifier(draft_tokens int64[B, γ], p float[B, γ+1, V], q float[B, γ, V], rng) -> int[B, γ+1]

Each row of the result holds the accepted tokens and one more, padded with -1; `rng` is a NumPy Generator, the only
source of randomness. `declares` says what else a verifier takes, and it is then tested for it:

    lengths    keyword lengths=int64[B]: row s has only lengths[s] ≤ γ drafted tokens; what stands behind is noise
    seeds      keyword seeds=list[int | None]: a row with a seed gives the same tokens in whatever batch it stands
    uniforms   keyword uniforms=float64[B, γ+1]: γ accept tests and the last token, all its randomness
    one_hot    q may be None: the drafted tokens were certain under the draft
    tree       (parents int64[n], tokens int64[n], p[n+1, V], q[m, V], rng) -> (path, token): one step over a draft
               tree; parents[j] is the node that token j hangs on, 0 the root and j + 1 token j; row k of p and of q is
               about the token after node k, so token j was drawn from q[parents[j]] and is judged by p[parents[j]]; q
               has rows up to the last node with children; path lists the accepted nodes from below the root on
    decoder    (target, draft, prompt, max_new_tokens, eos, rng) -> the new tokens: a whole loop, drafting included

The first four are for verifiers of chains alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from specsim.drafts._sampling import SAMPLING_METHODS

Verifier = Callable[..., Any]
F = TypeVar("F", bound=Verifier)

ARRAYS = ("numpy", "torch", "jax")
DTYPES = ("float64", "float32", "float16", "bfloat16")
_OF_CHAINS = ("lengths", "seeds", "uniforms", "one_hot")


class BrokenVerifier(Exception):
    """The verifier broke its contract; the message says how, and in which step."""


class NotADraftPath(Exception):
    """A step emitted, before its last token, something else than the drafted tokens."""


@dataclass(frozen=True)
class Declared:
    """What a verifier takes beyond the plain contract, see the module.

    `arrays` is numpy, torch or jax, on `device`; rows come in the first of `dtypes`, and some cases in each of the
    others. NumPy arrays are read-only. `batch` is the most rows of a call, `gamma` the most drafted tokens of a row, `vocab_size` the largest
    vocabulary (None: any). `reproducible` says that the same rng gives the same tokens. `sampling` is how siblings
    must be drawn for a verifier of trees, see `specsim.drafts`. A decoder that processes
    the models' rows says so with `temperature`, `top_k` (0: all) and `top_p`, applied in this order.
    """

    arrays: str = "numpy"
    device: str = "cpu"
    dtypes: tuple[str, ...] = ("float64",)
    batch: int | None = None
    gamma: int | None = None
    vocab_size: int | None = None
    lengths: bool = False
    seeds: bool = False
    uniforms: bool = False
    one_hot: bool = False
    reproducible: bool = True
    tree: bool = False
    sampling: str = "sampled"
    decoder: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        dtypes = (self.dtypes,) if isinstance(self.dtypes, str) else tuple(dict.fromkeys(self.dtypes))
        object.__setattr__(self, "dtypes", dtypes)
        if self.arrays not in ARRAYS:
            raise ValueError(f"arrays: {self.arrays!r} is not one of {', '.join(ARRAYS)}")
        if not dtypes or not set(dtypes) <= set(DTYPES):
            raise ValueError(f"dtypes: {dtypes} must be some of {', '.join(DTYPES)}")
        for name, least in (("batch", 1), ("gamma", 1), ("vocab_size", 2)):
            size = getattr(self, name)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < least):
                raise ValueError(f"{name}: {size!r} is not an integer of at least {least}")
        for name in (*_OF_CHAINS, "reproducible", "tree", "decoder"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}: {getattr(self, name)!r} is neither True nor False")
        if self.tree and self.decoder:
            raise ValueError("a function is a verifier of trees or a decoder, not both")
        if (self.tree or self.decoder) and (more := [name for name in _OF_CHAINS if getattr(self, name)]):
            raise ValueError(f"{', '.join(more)}: only a verifier of chains is handed this")
        if self.sampling not in SAMPLING_METHODS:
            raise ValueError(f"sampling: {self.sampling!r} is not one of {', '.join(SAMPLING_METHODS)}")
        numbers = (self.temperature, self.top_k, self.top_p)
        if not all(isinstance(number, int | float) for number in numbers) or not (
            0 < self.temperature < math.inf and self.top_k >= 0 and 0 < self.top_p <= 1
        ):
            raise ValueError(
                f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}: expected a positive "
                "temperature, top_k ≥ 0 and top_p in (0, 1]"
            )


def declares(**promises: Any) -> Callable[[F], F]:
    """Say what a verifier takes beyond the plain contract; the fields of `Declared` are the names.

    Raises TypeError for a name that is none of them, ValueError for a value out of range.

    >>> @declares(batch=1, dtypes=("float32",))
    ... def verify(draft_tokens, p, q, rng): ...
    >>> declared(verify).batch
    1
    """
    promise = _promise(promises)

    def attach(function: F) -> F:
        function.declared = promise  # type: ignore[attr-defined]
        return function

    return attach


def declared(function: Verifier) -> Declared:
    """What `function` declares; the plain contract if nothing. A dict will do as well, without importing specsim.

    Raises as `declares`, and TypeError for an attribute that is neither.
    """
    found = getattr(function, "declared", None)
    if found is None:
        return Declared()
    if not isinstance(found, Declared | Mapping):
        raise TypeError(f"declared: expected a dict of promises, got {type(found).__name__}")
    return found if isinstance(found, Declared) else _promise(found)


def _promise(promises: Mapping[str, Any]) -> Declared:
    known = {field.name for field in fields(Declared)}
    unknown = set(promises) - known
    if unknown:
        raise TypeError(f"declared: no such promise {sorted(unknown)}; known are {', '.join(sorted(known))}")
    return Declared(**promises)
