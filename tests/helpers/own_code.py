"""Engines' own verification code, from wheels and from clones in results/clones/OWNER/NAME."""

import pytest

from experiments.engines.engine_code import BY_ENGINE, CLONES, _reference
from specsim.auditing._verifier.child import load


def own(name):
    """The code that the table of engines has under this name, or a skip."""
    subject = BY_ENGINE[name]
    if not subject.origin.is_here:  # importing it would need what it depends on
        pytest.skip(f"needs {subject.origin[0]}")
    return load(_reference(subject, CLONES))


def misled(verifier):
    """It is told that the drafts come from another q."""
    return lambda tokens, p, q, rng: verifier(tokens, p, q.roll(1, dims=-1), rng)
