"""The tree of commands: `specsim`, with the groups audit and trace."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from cyclopts import App, Parameter

Function = TypeVar("Function", bound=Callable[..., Any])


def _version() -> str:
    from specsim.core._provenance import specsim_version  # loads numpy, which --help can do without

    return specsim_version()


def _shown(default: Any) -> str | None:
    """A default as the help of an option has it: nothing for a switch that is off."""
    return None if default is None or default is False else str(default)


def ending(
    *examples: str, codes: str = "0 done, 2 usage or bad input, 3 interrupted", program: str = "specsim"
) -> str:
    """The end of a command's help: examples, and its exit codes."""
    lines = "\n".join(f"    {program} {example}".rstrip() for example in examples)
    return f"Examples:\n{lines}\n\nExit codes: {codes}."


#: Of commands that give a verdict.
VERDICT = (
    "0 consistent, or lossy as declared; 1 biased or broken; 2 usage or bad input; 3 no verdict, "
    "inconclusive or interrupted"
)

#: Of groups of commands, some of which give a verdict.
ANY = (
    "0 done or consistent, 1 a verdict against what was tested, 2 usage or bad input, 3 interrupted or "
    "inconclusive"
)
#: Of commands that are not worth an interrupt.
DONE = "0 done, 2 usage or bad input"

app = App(
    name="specsim",
    help="Prove, test and measure the verification core of speculative decoding.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=_shown),
    version=_version,
    suppress_keyboard_interrupt=False,  # an interrupt exits with 3, in main
    help_epilogue=ending("audit mine:verify", "simulate zipf --overlap 0.8 --steps 10M", codes=ANY),
)
app.register_install_completion_command()
trace_app = App(
    name="trace",
    help="Record, import and analyse traces, logs of p and q.",
    help_epilogue=ending(
        "trace record ours --models ngram --steps 10k", "trace alpha ours", "trace audit ours", codes=ANY
    ),
)
audit_app = App(
    name="audit",
    help="Audit a verifier: verdict, evidence and power.",
    help_epilogue=ending(
        "audit standard --level quick --seed 1",
        "audit mine:verify --out report",
        "audit mine:new --against mine:old --json",
        codes=VERDICT,
    ),
)
app.command(audit_app)
app.command(trace_app)


def command(
    group: App, *examples: str, name: str | None = None, **codes: str
) -> Callable[[Function], Function]:
    """Register a function as a command of `group`, with its docstring, examples and exit codes as help."""

    def register(function: Function) -> Function:
        group.command(function, name=name, help=about(function), help_epilogue=ending(*examples, **codes))
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
    """Return what a docstring says above its Args, and join their lines, which help would break."""
    above, args, options = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    above = "\n\n".join(" ".join(one.split()) for one in above.split("\n\n"))
    function.__doc__ = above + args + re.sub(r"\n {8}", " ", options)
    return above
