"""Which files of specsim call each other: a profiler of the calls between files, and a verifier whose child
process has one."""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path

import verifiers

import specsim

ROOT = Path(specsim.__file__).parent
#: Where the profiler of a child process writes what it saw.
OUT = "SPECSIM_TEST_WALK"
#: Files whose calls, and all that follows from them, are not noted.
ASIDE = ("auditing/_report/", "auditing/_checks/contract_checks.py")
#: What passes a call on to the function that it decorates.
WRAPS = ("core/_types.py", "core/_progress.py")
#: What prints the verdict; its calls are not noted either.
PRINTS = "print_result"


@cache
def inside(name):
    """The path inside specsim of the file `name`; None for any other file."""
    path = Path(name)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


def file_of(frame):
    return inside(frame.f_code.co_filename)


class Calls:
    """Notes each (file, other file that it called), also through code that is not specsim's; imports are not
    noted."""

    def __init__(self):
        self.between = set()

    def __enter__(self):
        sys.setprofile(self.note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def note(self, frame, event, argument):
        callee = file_of(frame) if event == "call" else None
        if callee is None:
            return
        files, above = [], frame
        while above is not None:
            file = file_of(above)
            if file and (above.f_code.co_name in ("<module>", PRINTS) or file.startswith(ASIDE)):
                return
            files += [file] if file and file not in WRAPS else []
            above = above.f_back
        caller = files[1] if len(files) > 1 else None
        if caller != callee:
            self.between.add((caller, callee))


def verify(draft_tokens, p, q, rng):
    """Right; in a child process it writes down the calls so far."""
    if CALLS is not None:
        Path(os.environ[OUT]).write_text(json.dumps(sorted(map(list, CALLS.between), key=str)))
    return verifiers.right(draft_tokens, p, q, rng)


verify.declared = {"vocab_size": 4}

CALLS = None
if os.environ.get(OUT) and "pytest" not in sys.modules:
    CALLS = Calls().__enter__()
