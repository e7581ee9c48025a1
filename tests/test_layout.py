"""The layout that docs/architecture.md shows is the layout of the code: packages, what may import what, and
nothing loaded early."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import specsim

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/architecture.md"
#: The packages of the checkout, lowest first.
PACKAGES = ("specsim", "experiments", "figures")
#: The files directly in specsim/: the public interface, which the command line uses, and what imports
#: both.
INTERFACE = {"", "_runs", "distributions", "stats", "testing"}
ENTRIES = {"__main__", "_pytest_plugin"}


@cache
def subpackages():
    """The packages in specsim, lowest first, as the table in docs/architecture.md lists them."""
    return re.findall(r"^\| `specsim/(\w+)/` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def module_of(path):
    """The dotted name of a Python file of the checkout."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


@cache
def lazy_names():
    """{(package, public name): where its `__init__.pyi` takes it from}."""
    found = {}
    for stub in (ROOT / "specsim").rglob("__init__.pyi"):
        package = module_of(stub)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                home = f"{package}.{node.module}" if node.module else package
                found |= {(package, alias.name): home for alias in node.names}
    return found


def home(module, name):
    """The file behind `from module import name`, as a dotted name: public names are followed to where they
    are defined."""
    lazy = lazy_names()
    while f"{module}.{name}" not in FILES and (module, name) in lazy:
        module = lazy[module, name]
    return f"{module}.{name}" if f"{module}.{name}" in FILES else module


@cache
def imported_names(source):
    """The (module, name) pairs that a source text imports, in whatever statement."""
    found, waiting = set(), [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements = getattr(node, part, ())
            waiting += statements if isinstance(statements, list) else ()  # not the expression of a lambda
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are written in full"
            found |= {(node.module, alias.name) for alias in node.names}
    return found


def imports_of(source):
    """The modules of this checkout that a source text imports."""
    return {home(*names) for names in imported_names(source) if names[0].split(".")[0] in PACKAGES}


@cache
def imports(module):
    """The other modules of this checkout that one of them imports."""
    return imports_of(source_of(module)) - {module}


def source_of(module):
    return FILES[module].read_text(encoding="utf-8")


def subpackage_of(module):
    package, _, rest = module.partition(".")
    return rest.split(".")[0] if package == "specsim" else package


@cache
def height_of(module):
    """How high a module stands: packages in the order of the page, the public interface below the command
    line."""
    *library, command_line = subpackages()
    order = [
        *map(set, zip(library, strict=True)), {"_named_pairs"}, INTERFACE, {command_line}, ENTRIES,
        *({name} for name in PACKAGES[1:]),
    ]  # fmt: skip
    return next(height for height, names in enumerate(order) if subpackage_of(module) in names)


def test_the_page_shows_the_packages_that_there_are():
    folders = {path.parent.name for path in (ROOT / "specsim").glob("*/__init__.py")}
    assert set(subpackages()) == folders
    assert len(subpackages()) == len(folders) <= 14
    files = {path.stem for path in (ROOT / "specsim").glob("*.py")}
    assert files == INTERFACE - {""} | ENTRIES | {"__init__", "_named_pairs"}


def test_the_audit_has_few_parts():
    assert len({name.split(".")[2] for name in FILES if name.startswith("specsim.auditing.")}) <= 15


def test_no_module_imports_from_above():
    assert not [
        (module, other)
        for module in sorted(FILES)
        for other in imports(module)
        if height_of(other) >= height_of(module) and subpackage_of(other) != subpackage_of(module)
    ]


def test_the_wing_of_engines_is_imported_through_its_doors():
    """Adapters and engines: by each other, by the command line and by the public interface; by the audit the
    contract and the names of engines alone."""
    wing = {"adapters", "engines"}
    inside = {"", "cli", "testing", "_runs"} | wing | ENTRIES
    for module in FILES:
        if module.startswith("specsim") and subpackage_of(module) not in inside:
            found = {other for other in imports(module) if subpackage_of(other) in wing}
            doors = {"specsim.adapters", "specsim.adapters._contract"}
            assert found <= (doors if subpackage_of(module) == "auditing" else set()), module


def circles(graph):
    """The sets of modules that import each other in a loop."""
    reached = {module: set(direct) for module, direct in graph.items()}
    for middle in graph:
        for module in graph:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    return {frozenset(other for other in reached[m] if m in reached[other]) for m in graph if m in reached[m]}


def test_no_modules_import_each_other_in_a_circle():
    assert circles({module: imports(module) for module in FILES}) == set()


def test_a_circle_would_be_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {frozenset({"b", "c"})}


def test_an_import_is_followed_to_where_the_name_is_defined():
    source = "import numpy\ndef f():\n    from specsim import simulate\n    import specsim.traces\n"
    assert imports_of(source) == {"specsim.simulation._simulate", "specsim.traces"}
    for head in (
        "try:\n pass\nexcept E:",
        "try:\n pass\nfinally:",
        "if a:\n pass\nelse:",
        "match a:\n case b:",
        "with a:",
    ):
        assert imports_of(f"{head}\n  import specsim.traces") == {"specsim.traces"}


def test_statistics_know_nothing_of_specsim_and_rules_nothing_of_statistics():
    assert imports("specsim.core.stats") == {"specsim.core._types"}
    for module in FILES:
        if subpackage_of(module) == "rules":
            assert "specsim.core.stats" not in imports(module)


def test_numba_is_imported_by_one_module_for_the_cpu_and_one_for_gpus():
    users = {
        module
        for module in FILES
        if any(name.split(".")[0] == "numba" for name, _ in imported_names(source_of(module)))
    }
    assert users == {"specsim.core._kernels", "specsim.core._cuda"}


#: Packages that list no public name: what users call of them, `specsim` lists.
HOUSE = {"cli", "core", "served", "simulation"}
PUBLIC = re.findall(r"^- `(specsim[\w.]*)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_a_module_is_public_where_its_path_has_no_underscore():
    """The public modules are those that the documentation names; all others are private, by file, by folder or
    in a package that lists no public name."""
    public = {
        name
        for name in FILES
        if name.startswith("specsim") and not any(part.startswith("_") for part in name.split("."))
    }
    assert {name for name in public if subpackage_of(name) not in HOUSE} == {*PUBLIC}


def test_the_public_interface_is_small_and_each_name_has_one_address():
    assert len(PUBLIC) <= 14
    names, homes = set(), {}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            value = getattr(module, name)
            if not (isinstance(value, ModuleType) and value.__name__ in PUBLIC):
                names.add(name)
                homes.setdefault(id(value), []).append(f"{module.__name__}.{name}")
    assert 100 < len(names) <= 170
    assert not [addresses for addresses in homes.values() if len(addresses) > 1]
    for package in HOUSE - {"cli"}:
        assert not hasattr(importlib.import_module(f"specsim.{package}"), "__all__"), package


#: The most lines of Python in a folder. Lower it with each merge; what is new pays for its lines.
CEILING = {"specsim": 58_000, "experiments": 8_000, "tests": 43_000}


@pytest.mark.parametrize("folder", CEILING)
def test_a_folder_stays_below_its_ceiling_of_lines(folder):
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py"))
    assert lines <= CEILING[folder]


#: What loads more and more: the package alone; the command line; no compiler still; the compiler.
LOADING = """
import specsim
print(*sys.modules)
import specsim.cli
print(*sys.modules)
import specsim.mistakes, specsim.rules
[specsim.rules.get(name) for name in specsim.rules.names()]
specsim.simulate, specsim.prove, specsim.verify, specsim.audit
specsim.distributions.synthetic_pair()
print(*sys.modules)
import specsim.core._streams
specsim.core._streams.uniforms((0, 0), 0, 0, 1, 1)
print(*sys.modules)
"""


def test_every_folder_of_tests_belongs_to_a_command():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"][
        "testpaths"
    ]
    commands = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pytest" in line]
    folders = {path.parent.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("*/test_*.py")}
    assert len(folders) > 10
    for folder in folders:
        own = f"tests/{folder}"
        assert (own in listed) != any(own in line.split() for line in commands), folder


def test_importing_loads_little_and_no_compiler():
    command = [sys.executable, "-c", f"import sys{LOADING}"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    package, commands, library, kernels = (set(line.split()) for line in listing.stdout.splitlines())
    assert not package & {"numpy", "scipy", "numba", "matplotlib", "safetensors", "rich"}
    assert not commands & {"scipy", "numba"}
    assert not library & {"numba", "scipy.special", "scipy.optimize"}
    assert "numba" in kernels


@pytest.mark.parametrize("module", PUBLIC)
def test_completion_offers_the_public_names_and_nothing_else(module):
    found = importlib.import_module(module)
    assert sorted(dir(found)) == sorted(found.__all__)
    assert not [name for name in found.__all__ if name.startswith("_")]
    if module == "specsim":
        packages = {name for name in dir(found) if isinstance(getattr(found, name), ModuleType)}
        assert {f"specsim.{name}" for name in packages} == {*PUBLIC} - {"specsim"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="simulat"):
        specsim.simulat  # noqa: B018


def test_the_files_that_the_page_names_exist():
    """By their path from the root, from specsim/, or by a name that a sentence has put into a package."""
    folders = [ROOT / name for name in (*PACKAGES, "tests", "paper")]
    files = [path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")]
    named = set(re.findall(r"`([\w./]+(?:\.py|/))`", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 50
    unknown = [
        name
        for name in named
        if not (ROOT / name).exists()
        and not (ROOT / "specsim" / name).exists()
        and not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not unknown
