"""Somebody's function, found by its name."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys

from specsim.auditing import adapters
from specsim.auditing._verifier.contract import Verifier

__all__ = ["digest_of", "load"]


def load(reference: str) -> Verifier:
    """Import "package.module:function", or an engine's own by the name of its adapter, such as "hf:generate,top_k=3".

    Raises ValueError saying which part is missing.
    """
    if adapters.is_engine(reference):
        return adapters.get(reference)
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise ValueError(
            f"verifier {reference!r}: expected a rule's name, an engine's, or package.module:function"
        )
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


def digest_of(reference: str) -> str | None:
    """Of the file that holds the function `reference`, which was loaded before: SHA-256, None where there is no file."""
    module = sys.modules.get(reference.partition(":")[0])
    file = getattr(module, "__file__", None)
    if file is None or adapters.is_engine(reference):
        return None
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
