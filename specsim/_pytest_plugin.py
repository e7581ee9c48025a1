"""The pytest fixture `specsim_audit`. Loading it loads nothing else of specsim."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `specsim_audit`."""
    group = parser.getgroup("specsim", "audits of speculative decoding")
    group.addoption(
        "--specsim-level", default="smoke", help="steps of an audit: smoke, quick, standard, deep"
    )
    group.addoption("--specsim-seed", default=0, type=int, help="seed of an audit; 0 unless given")


@pytest.fixture
def specsim_audit(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`specsim.testing.assert_exact`, with the level and the seed that pytest was given."""
    from specsim.testing import assert_exact

    level, seed = (request.config.getoption(f"--specsim-{name}") for name in ("level", "seed"))
    return partial(assert_exact, level=level, rng=seed)
