"""Laws under token masks: projected and conditioned, and what speculative decoding makes of them."""

from fractions import Fraction as F
from itertools import product

import pytest
from enumerated import first_token, tv

from specsim import prove
from specsim.models import TableModel
from specsim.theory import _constrained, conditioned_law, projected_law, target_law

#: Which tokens may follow each token.
AFTER = {0: (1, 2), 1: (0,), 2: (0, 1, 2)}
TARGET = [[F(n, 12) for n in row] for row in ((3, 4, 5), (2, 2, 8), (6, 1, 5))]
DRAFT = [[F(n, 12) for n in row] for row in ((6, 3, 3), (4, 4, 4), (1, 1, 10))]


def after_last(start):
    """The tokens that `AFTER` allows, in a text that begins after `start`."""
    return lambda text: AFTER[(start, *text)[-1]]


def masked(table):
    rows = [[weight * (x in AFTER[last]) for x, weight in enumerate(row)] for last, row in enumerate(table)]
    return [[weight / sum(row) for weight in row] for row in rows]


def brackets(text, length):
    depth = text.count(0) - text.count(1)
    return [0] * (depth < length - len(text)) + [1] * (depth > 0)


@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_both_laws_are_what_they_say(length):
    for start in range(3):
        texts = [
            x
            for x in product(range(3), repeat=length)
            if all(b in AFTER[a] for a, b in zip((start, *x), x, strict=False))
        ]
        raw = {x: target_law(TableModel(TARGET), length, (start,)).get(x, F(0)) for x in texts}
        given = {x: mass / sum(raw.values()) for x, mass in raw.items() if mass}
        allowed = after_last(start)
        assert conditioned_law(TableModel(TARGET), allowed, length, (start,)) == given
        by_rows = target_law(TableModel(masked(TARGET)), length, (start,))
        assert projected_law(TableModel(TARGET), allowed, length, (start,)) == by_rows
        assert length > 1 or given == by_rows
        assert length < 4 or tv(given, by_rows) > F(1, 100)


def test_a_mask_that_allows_everything_changes_nothing():
    model = TableModel(TARGET)
    for law in (projected_law, conditioned_law):
        assert law(model, lambda text: range(3), 3, (1,)) == target_law(model, 3, (1,))


def test_masks_may_be_as_far_from_the_language_as_laws_can_be():
    """Nie et al., arXiv 2605.07698, find .996 for balanced brackets and a language model."""
    found = []
    for length in (2, 6, 10, 14):
        laws = [
            law(TableModel([F(9999, 10000), F(1, 10000)]), lambda x, n=length: brackets(x, n), length)
            for law in (projected_law, conditioned_law)
        ]
        assert all(text.count(0) == text.count(1) for law in laws for text in law)
        found.append(float(tv(*laws)))
    assert found == pytest.approx([0.0, 0.7999, 0.9759, 0.9971], abs=1e-3)
    assert found[-1] > 0.99


def test_verification_with_both_rows_masked_is_lossless_for_the_projected_law():
    """And with the target's alone, at the price of the drafts that the mask forbids."""
    target, drafts = TableModel(masked(TARGET)), [TableModel(masked(DRAFT)), TableModel(DRAFT)]
    for start in range(3):
        both, one = (prove(target, draft, gamma=2, context=(start,)) for draft in drafts)
        assert both.exact
        assert one.exact
        assert both.mean_tokens > one.mean_tokens


def test_rows_that_are_masked_and_not_renormalised_are_biased():
    p, q = [F(0), F(1, 12), F(2, 12), F(6, 12)], [F(0), F(6, 12), F(3, 12), F(2, 12)]  # token 0 is masked
    right, drawn = ([weight / sum(row) for weight in row] for row in (p, q))
    assert first_token("standard", right, drawn)[0] == right
    for wrong in ((p, q), (p, drawn), (right, q)):
        law, _ = first_token("standard", *wrong, drawn)
        assert sum(law) == 1
        assert tv(dict(enumerate(law)), dict(enumerate(right))) > F(1, 100)


def test_what_cannot_be_had_is_named(monkeypatch):
    monkeypatch.setattr(_constrained, "MAX_TEXTS", 64)
    model = TableModel([F(1), F(0)])
    with pytest.raises(ValueError, match=r"allowed: the target has no allowed token after \(0,\)"):
        projected_law(model, lambda text: [1] if text else [0], 2)
    with pytest.raises(ValueError, match="allowed: the target has no text of 2 allowed tokens"):
        conditioned_law(model, lambda text: [1] if text else [0], 2)
    for law in (projected_law, conditioned_law):
        with pytest.raises(ValueError, match=r"allowed: token 2 after \(\) is outside \[0, 2\)"):
            law(model, lambda text: [0, 2], 1)
        with pytest.raises(ValueError, match="length: more than 64 allowed texts"):
            law(TableModel([F(1, 2), F(1, 2)]), lambda text: [0, 1], 7)
        with pytest.raises(ValueError, match="length"):
            law(model, lambda text: [0], -1)
