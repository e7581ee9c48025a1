"""The command line. Each command parses its options, calls the library and prints the result.

Exit codes: 0 fine (or consistent), 1 biased or broken, 2 usage or bad input, 3 interrupted or inconclusive.
"""

import errno
import os
import sys
import warnings
from importlib import import_module

import cyclopts

from specsim.cli._app import COMMANDS, app
from specsim.cli._terminal import discard, prepare_streams
from specsim.core._files import modules_beside
from specsim.core._json import printable

__all__ = ["main", "run_app"]

__dir__ = __all__.copy  # for completion

for _name in modules_beside(__file__):  # each file registers its commands
    import_module(f"{__name__}.{_name}")


def main() -> None:
    """Run specsim's command line with the arguments of this process, and exit with a code of the module."""
    run_app(app)


def run_app(app: cyclopts.App) -> None:
    """Run a command line with this process's arguments, and exit with its code, 2 for a user's error."""
    prepare_streams()
    warnings.formatwarning = lambda said, *_, **__: (
        "specsim: " + printable(str(said).partition("\n")[0]) + "\n"
    )
    code = _run(app)
    try:
        sys.stdout.flush()  # here, where a closed pipe is no error
    except OSError as error:
        discard(sys.stdout)
        code = _complain(f"standard output: {error.strerror}")
    sys.exit(code)


def _run(app: cyclopts.App) -> int:
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        option = getattr(getattr(error, "token", None), "keyword", None)
        told = COMMANDS["elsewhere"].get(option)
        return _complain(f"{option}: unknown option; {told}" if told else str(error))
    except OSError as error:
        return _complain(_of_system(error))
    except (ValueError, TypeError, ImportError) as error:
        return _complain(_naming_option(str(error)))
    except MemoryError as error:
        return _complain(f"not enough memory ({error}); ask for less at once")
    except Exception as error:
        return _complain(f"unexpected {type(error).__name__}: {error}; report it as a bug")
    return code if isinstance(code, int) else 0


def _of_system(error: OSError) -> str:
    """An error of the system as a sentence about its file."""
    if error.filename is None or error.strerror is None:
        return str(error)
    missing = error.errno == errno.ENOENT and error.strerror == os.strerror(errno.ENOENT)
    return f"{error.filename}: {'no such file; check the path' if missing else error.strerror}"


def _naming_option(message: str) -> str:
    """What a function says of an argument, said of the option that the user gave for it."""
    argument, colon, rest = message.partition(":")
    for option in (f"--{argument.replace('_', '-')}", COMMANDS["arguments"].get(argument)):
        if colon and any(word == option or word.startswith(f"{option}=") for word in sys.argv[1:]):
            return f"{option}:{rest}"
    return message


def _complain(message: str) -> int:
    print("specsim:", printable(message, sys.maxsize, "\n"), file=sys.stderr)
    return 2
