"""The command line. Each command parses its options, calls the library and prints the result.

Exit codes: 0 fine (or consistent), 1 biased or broken, 2 usage or bad input, 3 interrupted or inconclusive.
"""

from __future__ import annotations

import sys
from importlib import import_module

import cyclopts

from specsim.cli._app import app
from specsim.cli._terminal import prepare_streams
from specsim.core._registry import modules_beside

__all__ = ["main", "run_app"]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__


for _name in modules_beside(__file__):  # each file registers its commands
    import_module(f"{__name__}.{_name}")


def main() -> None:
    """Run specsim's command line."""
    run_app(app)


def run_app(app: cyclopts.App) -> None:
    """Run a command line; errors of the user are printed in one line, with exit code 2."""
    prepare_streams()
    code = _run(app)
    sys.stdout.flush()  # here, where a closed pipe is no error
    sys.exit(code)


def _run(app: cyclopts.App) -> int:
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        return _complain(str(error))
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _complain(str(error))
    except MemoryError as error:
        return _complain(f"not enough memory for this ({error})")
    except Exception as error:
        return _complain(f"unexpected {type(error).__name__}: {error}; please report it")
    return code if isinstance(code, int) else 0


def _complain(message: str) -> int:
    print(f"specsim: {message}", file=sys.stderr)
    return 2
