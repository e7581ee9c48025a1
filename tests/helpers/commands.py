"""The command line in this process."""

import contextlib
import functools
import io
import os
import sys
import textwrap
from typing import NamedTuple
from unittest.mock import patch

from rich.console import Console

from specsim.__main__ import main
from specsim.cli._app import app

__all__ = ["Ran", "every_command", "help_of", "lacking", "on_screen", "parse", "run", "says"]


class Ran(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def run(*arguments, cwd=None, program=main):
    """Run `specsim *arguments`, or another program, in the folder `cwd` if one is given.

    Modules that a command imports from `cwd` are forgotten afterwards, so that another folder may have the
    same names."""
    out, err, known, path = io.StringIO(), io.StringIO(), {*sys.modules}, [*sys.path]
    with (
        contextlib.chdir(cwd or os.getcwd()),
        patch.object(sys, "argv", ["specsim", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            program()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.path[:] = path
            if cwd is not None:
                forget(known, cwd)
    return Ran(code, out.getvalue(), err.getvalue())


def says(what, *arguments, code=0, **how):
    """Run a command that must end with `code`, and say `what` where it is read; all that it says there."""
    ran = run(*arguments, **how)
    said = ran.err if code == 2 else ran.out
    assert (ran.code, what in said) == (code, True), ran
    return said


def lacking(said, text):
    """What a text lacks of `said`, or has though it begins with "no: "; spaces count once."""
    text = "".join(" ".join(line.split()) + "\n" for line in text.splitlines())
    return [one for one in said if (one.removeprefix("no: ") in text) == one.startswith("no: ")]


def on_screen(text):
    """How many lines of a terminal with 80 columns a text takes."""
    return sum(len(textwrap.wrap(line.rstrip(), 80) or [""]) for line in text.splitlines())


def forget(known, folder):
    """Drop the modules that were imported from `folder` and are not among the `known` ones."""
    for name in {*sys.modules} - {*known}:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep):
            del sys.modules[name]


def every_command(tree=app, path=()):
    """The words of `specsim` and of every command and subcommand: (), ("audit",), ("audit", "export"), …"""
    yield path
    for name in tree:
        if not name.startswith("-"):
            yield from every_command(tree[name], (*path, name))


@functools.cache
def help_of(path):
    """What `specsim *path --help` prints, 100 columns wide, without colour."""
    text = io.StringIO()
    app.help_print(path, console=Console(file=text, width=100, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def parse(arguments):
    """Parse the words of a command without running it: its function, and the arguments that it would get.

    Raises cyclopts.CycloptsError for a command or an option that does not exist, and for a value that does
    not convert."""
    function, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    return function, bound
