"""The command's entry: `specsim`, or `python -m specsim`. An interrupt exits with 3, even while modules load."""

import sys


def main() -> None:
    try:
        from specsim.cli import main as command

        command()
    except KeyboardInterrupt:
        print("specsim: interrupted", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
