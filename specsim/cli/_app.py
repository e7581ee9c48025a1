"""The tree of commands: `specsim`, with the groups audit and trace."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from cyclopts import App, Parameter

from specsim.core._files import read_table

#: Of the help of commands their options, and of commands and groups of them its end: examples, exit codes.
COMMANDS = read_table("commands")
#: The help of options that several commands share, mostly by their names.
TEXTS: dict[str, str] = read_table("options")
WORDS = {name: text.format_map(TEXTS) for name, text in TEXTS.items()}
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
        above, end = about(function), _ending_of(function.__name__)
        group.command(_checked(function), name=name, help=above, help_epilogue=end)
        return function

    return register


def default(group: App) -> Callable[[Function], Function]:
    """Register a function as what `group` does without a command, with its docstring as help."""

    def register(function: Function) -> Function:
        about(function)
        group.default(_checked(function))
        return function

    return register


def refuse(function: Callable[..., Any], values: Mapping[str, Any], case: str, kind: str = "refused") -> None:
    """Raise ValueError for the first option of a command that was given, and has no effect in a case of its
    table. `values` are its parameters', and its defaults those of options not given."""
    for rule in COMMANDS[function.__name__][kind][case]:
        for name, parameter in inspect.signature(function).parameters.items():
            for one, value, default in _fields(name, values[name], parameter.default):
                without_effect = one in rule["options"] if "options" in rule else one not in rule["but"]
                if value != default and without_effect:
                    raise ValueError(f"{typed(one, value)} {rule['why'].format(**values)}")


def _checked(function: Function) -> Function:
    """The function, which refuses what has no effect `with` an option that is given, or `without` one."""
    signature, table = inspect.signature(function), COMMANDS.get(function.__name__, {})

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        for kind in ("with", "without"):
            for case in table.get(kind, ()):
                if (bound.arguments[case] != signature.parameters[case].default) is (kind == "with"):
                    refuse(function, bound.arguments, case, kind)
        return function(*arguments, **named)

    return cast(Function, called)


def _fields(name: str, value: Any, default: Any) -> Iterator[tuple[str, Any, Any]]:
    """A parameter with its value and its default; of a group of options, each of them."""
    if name == "form" or not is_dataclass(value):
        yield name, value, default
    else:
        yield from ((one.name, getattr(value, one.name), getattr(default, one.name)) for one in fields(value))


def typed(name: str, value: Any = None) -> str:
    """The option that gave a parameter this value."""
    if name == "form":
        return next(iter(value.given), "--save")
    return f"--{'no-' if value is False else ''}{name.strip('_').replace('_', '-')}"


def about(function: Callable[..., Any]) -> str:
    """Return what a docstring says above its Args, and join their lines, which help would break. Without Args
    it gets those of the tables."""
    above, _, text = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    above = "\n\n".join(" ".join(one.split()) for one in above.split("\n\n"))
    options = [re.sub(r"\n {8}", " ", text)] * bool(text)
    if not options:
        said = {name: WORDS[name] for name in inspect.signature(function).parameters if name in WORDS}
        said |= COMMANDS.get(function.__name__, {}).get("options", {})
        options = [f"    {name}: {words.format_map(WORDS)}" for name, words in said.items()]
    function.__doc__ = "\n".join([above, *["", "Args:"] * bool(options), *options])
    return above
