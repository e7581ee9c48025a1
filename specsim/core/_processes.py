"""The command of a Python process that calls a function of the package.

Not multiprocessing's start, which would run the caller's script again."""

import json
import sys
from collections.abc import Callable

#: Only the process that starts it handles Ctrl-C.
CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "getattr(importlib.import_module(sys.argv[2]), sys.argv[3])(*sys.argv[4:])"
)


def calling(function: Callable[..., None], *arguments: str) -> list[str]:
    """The command of a process that imports what this one does, and calls `function` with these texts."""
    name = function.__module__, function.__qualname__
    return [sys.executable, "-c", CODE, json.dumps(sys.path), *name, *arguments]
