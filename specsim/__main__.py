"""The command's entry: `specsim`, or `python -m specsim`. An interrupt exits with 3, also during imports."""

import contextlib
import os
import signal
import sys
import threading
from typing import Any


def main() -> None:
    before = sys.unraisablehook

    def hook(ignored: Any) -> None:
        """Repeat an interrupt that is ignored, as in functions that the compiler calls from C."""
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            before(ignored)

    sys.unraisablehook = hook
    try:
        from specsim.cli import main as command

        command()
    except KeyboardInterrupt:
        for stream, text in ((sys.stderr, "specsim: interrupted\n"), (sys.stdout, "")):
            if stream is not None:  # closed, and the interrupt came before the command line replaced it
                with contextlib.suppress(OSError, ValueError):
                    stream.write(text)
                    stream.flush()
        # not sys.exit: where the interrupt came through an exec, as in the making of a dataclass, Python
        # would not exit with any code but die of the signal
        os._exit(3)
    finally:
        sys.unraisablehook = before


if __name__ == "__main__":
    main()
