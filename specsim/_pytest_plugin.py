"""The pytest fixture `specsim_audit`, and what its audits saw. Loading it loads nothing else of specsim."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

#: (test, audit) of the audits that passed.
AUDITS = pytest.StashKey[list[tuple[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `specsim_audit`."""
    group = parser.getgroup("specsim", "audits of speculative decoding")
    group.addoption("--specsim-level", default="smoke", help="steps of audits: smoke, quick, standard, deep")
    group.addoption("--specsim-seed", default=0, type=int, help="seed of an audit; 0 unless given")


@pytest.fixture
def specsim_audit(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`specsim.testing.assert_exact`, with the level and the seed that pytest was given."""
    level, seed = (request.config.getoption(f"--specsim-{name}") for name in ("level", "seed"))
    return partial(_audited, request, level=level, rng=seed)


def _audited(request: pytest.FixtureRequest, *arguments: Any, **options: Any) -> Any:
    __tracebackhide__ = True
    from specsim.testing import assert_exact

    found = assert_exact(*arguments, **options)
    request.config.stash.setdefault(AUDITS, []).append((request.node.nodeid, found))
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the audits that passed could see, and what not; not with -qq."""
    audits = terminalreporter.config.stash.get(AUDITS, [])
    if not audits or terminalreporter.verbosity < -1:
        return
    from specsim.auditing._report.text import unseen_lines

    terminalreporter.section("audits of specsim")
    for test, found in audits:
        of_kernel = hasattr(found, "level")  # an audit of an engine has none
        named = f"{test}: {found.subject}" + (f", level {found.level}" if of_kernel else "")
        for line in (named, found.meaning(), found.size(), *(unseen_lines(found) if of_kernel else ())):
            terminalreporter.write_line(line)
