"""Exact numbers: whichever type computes a proof, the proof is the same, and is given as Fractions."""

from fractions import Fraction

import pytest
from laws import generated

from specsim import rules
from specsim.core._numbers import as_fraction, rational
from specsim.theory import _enumeration


@pytest.mark.parametrize(
    "name",
    ["standard", "traversal", "cactus", "mentored"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("gumbel", "k_seq", "pruned_children")],
)
def test_proofs_by_the_standard_library_are_the_same(full, name, monkeypatch):
    if rational is Fraction:
        pytest.skip("gmpy2 is not installed")
    rule = rules.get(name)
    for target, draft, tree, context in generated(rule, 30 if full else 6, seed=6):
        arguments = {"rule": rule, "gamma": tree, "context": context}
        proof = _enumeration.prove(target, draft, **arguments)
        law = _enumeration.step_law(rule, target, draft, tree, context)
        with monkeypatch.context() as patch:
            patch.setattr(_enumeration, "rational", Fraction)
            assert _enumeration.prove(target, draft, **arguments) == proof
            assert _enumeration.step_law(rule, target, draft, tree, context) == law
        for given in (proof.mean_tokens, proof.tv, proof.worst_tv, *law.values()):
            assert type(given) is Fraction
            assert type(given.numerator) is type(given.denominator) is int


def test_a_number_is_taken_as_it_is():
    for value in (0.1, 3, Fraction(2, 3), 5e-324):
        assert as_fraction(rational(value)) == Fraction(value)
