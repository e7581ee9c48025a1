"""Which exceptions are answers to a wrong argument, and which are accidents."""

import dis
import traceback
from pathlib import Path

import specsim

PACKAGE = str(Path(specsim.__file__).parent)


def answer_of(error, folder=PACKAGE):
    """Why `error` is no answer of specsim to its user; None if it is one.

    An answer is a ValueError, TypeError or error of import that a `raise` of the package made, so that its
    words are the package's and not NumPy's; or an error of the system with the name of a file."""
    if isinstance(error, OSError) and (error.filename is not None or isinstance(error, ConnectionError)):
        return None
    if isinstance(error, MemoryError):
        return None
    if not isinstance(error, ValueError | TypeError | OSError | ImportError | IndexError):
        return f"{type(error).__name__}: {error}"[:500]
    if not str(error).strip():
        return f"{type(error).__name__} without a message"
    frames = [*traceback.walk_tb(error.__traceback__)]
    last, _ = frames[-1]
    if not last.f_code.co_filename.startswith(folder) or not _raises(last, error.__traceback__):
        place = f"{Path(last.f_code.co_filename).name}:{frames[-1][1]}"
        return f"{type(error).__name__} of {place}, in its own words: {error}"[:500]
    return None


def _raises(frame, tb):
    """Whether the instruction at which the last frame of `tb` stopped raises an exception."""
    while tb.tb_next is not None:
        tb = tb.tb_next
    for one in dis.get_instructions(frame.f_code):
        if one.offset == tb.tb_lasti:
            return one.opname in ("RAISE_VARARGS", "RERAISE")
    return False
