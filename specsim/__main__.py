"""`python -m specsim` is the command line."""

from specsim.cli import main

if __name__ == "__main__":
    main()
