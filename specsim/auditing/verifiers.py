"""Somebody's verifier, behind a contract that is checked at every call.

    verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1]

Each row of the result holds the accepted tokens and one more, padded with -1; `rng` is a NumPy Generator. A
verifier that raises, changes its inputs, or returns anything else is *broken*; one whose tokens before the last
are not the drafted ones is *biased* without further statistics.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.readers import Rows
from specsim.sources import RowVerifier, Tokens
from specsim.streams import Key

__all__ = ["BrokenVerifier", "NotADraftPath", "Verifier", "contract", "load"]

Verifier = Callable[..., Any]


class BrokenVerifier(Exception):
    """The verifier broke its contract; the message says how, and in which step."""


class NotADraftPath(Exception):
    """A step emitted, before its last token, something else than the drafted tokens."""


def load(reference: str) -> Verifier:
    """Import "package.module:function". Raises ValueError saying which part is missing."""
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise ValueError(f"verifier {reference!r}: expected a rule's name or package.module:function")
    if os.getcwd() not in sys.path:  # as `python -m` would find it
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the module does on import is its own affair
        raise ValueError(
            f"verifier {reference!r}: cannot import {module_name} ({type(error).__name__}: {error})"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"verifier {reference!r}: {module_name} has no function {function_name}")
    return function


def contract(verifier: Verifier) -> RowVerifier:
    """Wrap `verifier` so that the engine can run it and every breach of its contract is raised."""

    def verify(rows: Rows, key: Key, first: int) -> tuple[Tokens, np.ndarray]:
        rng = np.random.default_rng([*key, first])
        handed = (rows.draft_tokens, rows.p, rows.q)
        given = [array.copy() for array in handed]
        try:
            output = verifier(*given, rng)
        except (Exception, SystemExit) as error:
            raise BrokenVerifier(f"raised {type(error).__name__}: {error}") from error
        for name, before, after in zip(("draft_tokens", "p", "q"), handed, given, strict=True):
            if not np.array_equal(before, after):
                raise BrokenVerifier(f"altered its input {name}")
        return _checked(output, rows, first)

    return verify


def _checked(output: Any, rows: Rows, first: int) -> tuple[Tokens, np.ndarray]:
    try:
        tokens = np.asarray(output)
    except Exception as error:
        raise BrokenVerifier(f"returned no array [B, γ+1] ({error})") from error
    steps, gamma = rows.draft_tokens.shape
    if tokens.shape != (steps, gamma + 1):
        raise BrokenVerifier(f"returned shape {tokens.shape}, expected [B, γ+1] = {(steps, gamma + 1)}")
    if tokens.dtype.kind not in "iu":
        raise BrokenVerifier(f"returned {tokens.dtype}, expected integer tokens")
    vocab_size = rows.p.shape[2]
    if (bad := (tokens < -1) | (tokens >= vocab_size)).any():
        step, position = np.argwhere(bad)[0]
        raise BrokenVerifier(
            f"step {first + step}, position {position + 1}: token {tokens[step, position]} is outside [0, {vocab_size})"
        )
    emitted = (tokens >= 0).sum(axis=1)
    padded = np.arange(gamma + 1) >= emitted[:, None]
    if (emitted == 0).any():
        raise BrokenVerifier(f"step {first + int((emitted == 0).argmax())}: emitted no token")
    if (bad := padded != (tokens < 0)).any():
        raise BrokenVerifier(f"step {first + int(bad.any(axis=1).argmax())}: a token follows the padding")
    accepted = (emitted - 1).astype(np.int64)
    differs = (tokens[:, :gamma] != rows.draft_tokens) & (np.arange(gamma) < accepted[:, None])
    if differs.any():
        step, position = np.argwhere(differs)[0]
        raise NotADraftPath(
            f"step {first + step}, position {position + 1}: emitted token {tokens[step, position]} before the last, "
            f"where {rows.draft_tokens[step, position]} was drafted"
        )
    return np.ascontiguousarray(tokens.T, dtype=np.int32), accepted
