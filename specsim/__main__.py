"""The command's entry: `specsim`, or `python -m specsim`. An interrupt exits with 3, also during imports."""

import contextlib
import os
import sys


def main() -> None:
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


if __name__ == "__main__":
    main()
