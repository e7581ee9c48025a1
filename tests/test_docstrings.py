"""Every public function says in its docstring what it takes, what it returns and how it is used; the page of the
API has every public name."""

import ast
import importlib
import inspect
import re
import textwrap
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest
from cases import cases

import specsim
from specsim.core._saving import CLASSES
from specsim.core._tables import Listing, Shown

DOCS = Path(__file__).parents[1] / "docs"
MODULES = re.findall(r"^- `(specsim[\w.]*)`$", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.M)


def public_functions():
    """{name, with the module that defines it: function}, of all public names of all public modules."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for value in (getattr(module, name) for name in module.__all__):
            if inspect.isfunction(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


FUNCTIONS = public_functions()


def sections(docstring):
    """{title: lines} of a numpydoc docstring; the lines before the first title stand under ""."""
    lines = docstring.splitlines()
    found = {"": []}
    title, skipped = "", False
    for line, below in zip(lines, [*lines, ""][1:], strict=True):
        if skipped:  # the line of hyphens
            skipped = False
        elif line and below == "-" * len(line):
            title, skipped = line, True
            found[title] = []
        else:
            found[title].append(line)
    return found


def described(lines):
    """{name: whether a description follows}, without the asterisks of *args and **kwargs, in a section of
    parameters."""
    found = {}
    for line, below in zip(lines, [*lines, ""][1:], strict=True):
        if line and not line.startswith(" "):
            for name in line.partition(" : ")[0].split(","):
                found[name.strip().lstrip("*")] = below.startswith("    ")
    return found


def own_statements(function):
    """The nodes of the syntax tree of a function, without those of functions and classes inside it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    waiting = [*tree.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def needed_sections(function):
    """Titles of sections that a function must have, by what its code does."""
    nodes = [*own_statements(function)]
    if inspect.isgeneratorfunction(function):
        yield "Yields"
    elif any(isinstance(node, ast.Return) and node.value is not None for node in nodes):
        yield "Returns"
    if any(isinstance(node, ast.Raise) for node in nodes):
        yield "Raises"


def faults(function):
    """What the docstring of a function lacks, or says of what is not there."""
    parts = sections(inspect.getdoc(function) or "")
    plain = inspect.unwrap(function)
    summary, *rest = [*parts[""], "", ""]
    if not summary.endswith((".", "?")) or rest[0]:
        yield "the summary is not one sentence on one line"
    names, told = inspect.signature(plain).parameters, described(parts.get("Parameters", []))
    yield from (f"{name}: not among the parameters" for name in names if name not in told)
    yield from (f"{name}: no such parameter" for name in told if name not in names)
    yield from (f"{name}: no description" for name, follows in told.items() if not follows)
    needed = {*needed_sections(plain)}
    yield from (f"no section {title}" for title in sorted(needed - parts.keys()))
    yield from (f"{title} of nothing" for title in sorted({"Returns", "Yields"} & parts.keys() - needed))
    if not any(line.startswith(">>> ") for line in parts.get("Examples", [])):
        yield "no example"


def test_public_functions_are_documented():
    found = {name: [*faults(FUNCTIONS[name])] for name in sorted(FUNCTIONS)}
    assert not {name: wrong for name, wrong in found.items() if wrong}


def test_parameters_follow_one_convention():
    modules = map(importlib.import_module, MODULES)
    values = [getattr(module, name) for module in modules for name in module.__all__]
    some = [value for value in values if inspect.isclass(value) and not issubclass(value, Enum | Exception)]
    methods = [member for value in some for member in inspect.getmembers(value, inspect.isfunction)]
    functions = [
        *FUNCTIONS.values(),
        *some,
        *(method for name, method in methods if not name.startswith("_")),
    ]
    taken = [(one, name, it) for one in functions for name, it in inspect.signature(one).parameters.items()]
    sources = {(it.kind.name, it.default) for _, name, it in taken if name == "rng"}
    assert sources == {("KEYWORD_ONLY", None)}
    assert {it.default for _, name, it in taken if name == "device"} == {None}
    words = {(name, one.__name__) for one, name, _ in taken}
    # a request has the seed that an engine takes
    assert {one for name, one in words if name == "seed"} == {"Request"}
    # the temperature and truncation of an engine, not how siblings are drawn
    assert {one for name, one in words if name == "sampling"} == {
        "Request",
        "audit_engine",
        "compare_servers",
    }
    # max_…, draft_sampling, path
    others = {"most", "least", "longest", "drawing", "names", "folder", "source"}
    assert not {name for name, _ in words} & others


def test_functions_of_all_packages_are_found():
    assert len(FUNCTIONS) > 100
    assert len({name.split(".")[1] for name in FUNCTIONS}) >= 14


def listed(heading, directive=""):
    """The dotted names that docs/api.md lists under a heading."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    part = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^{directive or '  '} (specsim[\w.]*)$", part, re.M)


def test_the_page_of_the_api_lists_the_public_names():
    modules = {name for name in specsim.__all__ if isinstance(getattr(specsim, name), ModuleType)}
    names = [f"specsim.{name}" for name in sorted({*specsim.__all__} - modules)]
    assert sorted(listed("Names in `specsim` itself")) == names
    assert sorted(listed("Names in `specsim` itself", ".. autofunction::")) == names
    assert sorted(["specsim", *listed("Public modules")]) == sorted(MODULES)
    assert {f"specsim.{name}" for name in modules} == {*MODULES} - {"specsim"}


def test_the_page_of_the_api_describes_what_functions_return():
    found = {resolve_name(path) for path in listed("Results", ".. autoclass::")}
    kept = {resolve_name(f"{module}.{name}") for module, names in CLASSES.items() for name in names}
    assert {kind for kind in kept if issubclass(kind, Shown) and kind is not Listing} <= found


def right(first, *others, last=None, **more):
    """Do nothing in particular.

    Parameters
    ----------
    first, *others : int
        At least 0.
    last : int, optional
        At least 0.
    **more
        Anything.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        For a negative number.

    Examples
    --------
    >>> right(1)
    1"""

    def inner():
        return None

    if first < 0:
        raise ValueError(f"first: {first} is negative")
    return first


@pytest.mark.parametrize(*cases(__file__, "faults"))
def test_a_fault_is_seen(monkeypatch, old, new, fault):
    assert not [*faults(right)]
    docstring = inspect.getdoc(right)
    assert old in docstring
    monkeypatch.setattr(right, "__doc__", docstring.replace(old, new, 1))
    assert fault in [*faults(right)]


def test_what_a_function_returns_is_found_in_its_code():
    def gives():
        yield 1

    def does():
        lambda: 1  # noqa: B018

        def inner():
            return 1

        if inner():
            return

    assert [[*needed_sections(one)] for one in (gives, does, right)] == [
        ["Yields"],
        [],
        ["Returns", "Raises"],
    ]
