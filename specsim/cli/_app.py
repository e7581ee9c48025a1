"""The tree of commands: `specsim`, with the groups audit and trace."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from cyclopts import App, Parameter

from specsim.core._files import read_table

#: Of the help of commands their options, and of commands and groups of them its end: examples, exit codes.
COMMANDS = read_table("commands")
#: The help of options that several commands share, mostly by their names.
WORDS: dict[str, str] = read_table("options")
Function = TypeVar("Function", bound=Callable[..., Any])


def _version() -> str:
    from specsim.core._provenance import specsim_version  # loads numpy, which --help can do without

    return specsim_version()


def _shown(default: Any) -> str | None:
    """A default as the help of an option has it: nothing for a switch that is off."""
    return None if default is None or default is False else str(default)


def ending(*examples: str, codes: str = "usual", program: str = "specsim") -> str:
    """The end of a command's help: examples, and its exit codes, in words or by a name of the table."""
    lines = "\n".join(f"    {program} {example}".rstrip() for example in examples)
    return f"Examples:\n{lines}\n\nExit codes: {COMMANDS['codes'].get(codes, codes)}."


def _ending_of(name: str) -> str:
    """The end of the help of a group, or of the command that is the function of that name."""
    entry = COMMANDS[name]
    return ending(*entry["examples"], codes=entry.get("codes", "usual"))


app = App(
    name="specsim",
    help="Prove, test and measure the verification core of speculative decoding.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=_shown),
    version=_version,
    suppress_keyboard_interrupt=False,  # an interrupt exits with 3, in main
    help_epilogue=_ending_of("specsim"),
)
app.register_install_completion_command()
trace_app = App(
    name="trace",
    help="Record, import and analyse traces, logs of p and q.",
    help_epilogue=_ending_of("trace"),
)
audit_app = App(
    name="audit", help="Audit a verifier: verdict, evidence and power.", help_epilogue=_ending_of("audit")
)
app.command(audit_app)
app.command(trace_app)


def command(group: App, name: str | None = None) -> Callable[[Function], Function]:
    """Register a function as a command of `group`, with its docstring and its entry of the table as help."""

    def register(function: Function) -> Function:
        end = _ending_of(function.__name__)
        group.command(function, name=name, help=about(function), help_epilogue=end)
        return function

    return register


def default(group: App) -> Callable[[Function], Function]:
    """Register a function as what `group` does without a command, with its docstring as help."""

    def register(function: Function) -> Function:
        about(function)
        group.default(function)
        return function

    return register


def about(function: Callable[..., Any]) -> str:
    """Return what a docstring says above its Args, and join their lines, which help would break. Without Args
    it gets those of the tables."""
    above, _, text = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    above = "\n\n".join(" ".join(one.split()) for one in above.split("\n\n"))
    options = [re.sub(r"\n {8}", " ", text)] * bool(text)
    if not options:
        said = {name: WORDS[name] for name in inspect.signature(function).parameters if name in WORDS}
        said |= COMMANDS.get(function.__name__, {}).get("options", {})
        options = [f"    {name}: {words}" for name, words in said.items()]
    function.__doc__ = "\n".join([above, *["", "Args:"] * bool(options), *options])
    return above
