"""What may import what: numba only when something runs, and each module only from the floors below its own."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import specsim

PACKAGE = Path(specsim.__file__).parent

#: From the ground up. A module imports only from floors below its own; a package counts as one module.
FLOORS = [
    {"jit", "files", "registry", "showing"},
    {"streams", "distributions", "series", "stats", "plotting", "provenance"},
    {"models", "theory", "traces", "lengths"},
    {"drafts", "costs", "metrics"},
    {"rules", "readers", "planning", "lookahead"},
    {"exact", "expected", "sources"},
    {"counting"},
    {"executors", "parts"},
    {"engine", "verification"},
    {"recording", "replays", "comparing", "decoding"},
    {"auditing"},
    {"merging"},
    {"experiments"},
    {"figures"},
    {"cli", "testing"},
    {"__main__", "pytest_plugin"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def modules():
    """{module, as a package or a file directly in specsim: its files}."""
    found = {path.stem: [path] for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    return found | {
        path.parent.name: sorted(path.parent.rglob("*.py")) for path in PACKAGE.glob("*/__init__.py")
    }


def imported_names(source):
    """The dotted names that a source text imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_from_specsim(source):
    """The modules of specsim, by the first name after the dot; a lazily loaded public name counts as its home."""
    names = {name.split(".")[1] for name in imported_names(source) if name.startswith("specsim.")}
    homes = {name: home.split(".")[1] for name, home in specsim._HOMES.items()}
    return {homes.get(name, name) for name in names} - {"__version__"}


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_from_the_floors_below(module):
    assert module in FLOOR, f"give {module} a floor"
    for path in modules()[module]:
        for name in imports_from_specsim(path.read_text(encoding="utf-8")) - {module}:
            assert FLOOR[name] < FLOOR[module], f"{path.name} imports specsim.{name}"


def test_an_import_from_above_would_be_seen():
    source = (
        "import numpy\ndef f():\n    from specsim import rules, simulate\n    import specsim.traces.format\n"
    )
    assert imports_from_specsim(source) == {"rules", "engine", "traces"}


def test_stats_know_nothing_of_specsim_and_rules_nothing_of_statistics():
    for path in modules()["stats"]:
        assert imports_from_specsim(path.read_text(encoding="utf-8")) == set()
    for path in modules()["rules"]:
        names = set(imported_names(path.read_text(encoding="utf-8")))
        assert not any("stats" in name for name in names)


def test_only_one_module_imports_numba():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for paths in modules().values()
        for path in paths
        if any(name.split(".")[0] == "numba" for name in imported_names(path.read_text(encoding="utf-8")))
    }
    assert users == {"jit.py"}


def modules_loaded_by(code):
    listing = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(listing.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import specsim",
        "import specsim.rules; [specsim.rules.get(name) for name in specsim.rules.names()]",
        "import specsim; specsim.simulate, specsim.prove, specsim.verify, specsim.audit",
        "import specsim.cli",
        "import specsim.auditing.mutants",
    ],
)
def test_numba_is_not_loaded_by(code):
    assert "numba" not in modules_loaded_by(code)


def test_importing_the_package_loads_nothing_else():
    loaded = modules_loaded_by("import specsim")
    assert not loaded & {"numpy", "scipy", "numba", "matplotlib", "safetensors", "rich"}
    assert "numba" in modules_loaded_by("import specsim.streams as s; s.uniforms((0, 0), 0, 0, 1, 1)")


@pytest.mark.parametrize("name", specsim.__all__)
def test_every_public_name_is_there(name):
    assert getattr(specsim, name) is not None
    assert name in dir(specsim)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'specsim' has no attribute 'simulat'"):
        specsim.simulat  # noqa: B018
