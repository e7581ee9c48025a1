"""The command's entry: `specsim`, or `python -m specsim`. An interrupt exits with 3, also during imports."""

import contextlib
import os
import sys


def main() -> None:
    try:
        from specsim.cli import main as command

        command()
    except KeyboardInterrupt:
        print("specsim: interrupted", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        # not sys.exit: where the interrupt came through an exec, as in the making of a dataclass, Python
        # would not exit with any code but die of the signal
        os._exit(3)


if __name__ == "__main__":
    main()
