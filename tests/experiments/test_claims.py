"""The checked claims: verdicts, the page, and negative controls for the checks and for what they rest on."""

import re
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments.literature import claims
from experiments.literature.claims import (
    CLAIMS,
    CONDITIONAL,
    DRAFT,
    RIGHT,
    SOURCES,
    TARGET,
    VERDICTS,
    WRONG,
    P,
    Q,
    decide,
    only_if,
    page,
    pairs,
    run,
    speed,
    speed_of_share,
    standard_test,
    step,
)
from specsim.models import TableModel
from specsim.theory import accepted_law, expected_tokens
from specsim.theory._enumeration import prove

PAGE = Path(__file__).parents[2] / "docs/results/claims.md"


@pytest.fixture(scope="module")
def ran():
    """The rows, and what progress was told."""
    told = []
    return run(progress=lambda done, total: told.append((done, total))), told


@pytest.fixture(scope="module")
def rows(ran):
    return ran[0]


# --- the table -------------------------------------------------------------------------------------------


def test_every_claim_has_a_row_and_progress_is_told(ran):
    found, told = ran
    assert [row["id"] for row in found] == list(CLAIMS)
    assert {row["document"] for row in found} == set(SOURCES)
    assert told == [(done, len(CLAIMS)) for done in range(1, len(CLAIMS) + 1)]


def test_rows_are_short_and_have_numbers(rows):
    for row in rows:
        assert 1 <= len(row["quote"].split()) <= 24, row["id"]
        assert re.search(r"\d", row["found"]), row["id"]


def test_the_correct_statement_agrees_with_the_computed_verdict(rows):
    """A statement with a condition begins with "Only"."""
    for row in rows:
        assert row["correct"].startswith("Only ") == (row["verdict"] == CONDITIONAL), row["id"]


EXPECTED = {
    RIGHT: "lossless any_strategy medusa mean_of_beta stopping",
    CONDITIONAL: """
        closed_test acceptance_governs greedy_match more_rejections wrong_cache parallel untouched_target clamped
        rates two_to_four like_a_chain likelier unequal_temperatures six_to_eight printed_speeds
    """,
    WRONG: """
        always_rejects lookahead pointwise_envelope lenient_sign lenience_raises pseudocode other_tokens
        other_vocabulary no_relationship rejected formula bonus_pass break_even no_downsides
    """,
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdicts(verdict, rows):
    found = {row["id"] for row in rows if row["verdict"] == verdict}
    assert found == set(EXPECTED[verdict].split())


# --- the page --------------------------------------------------------------------------------------------


def test_the_page_is_made_of_the_rows(rows):
    assert page(rows) == PAGE.read_text(encoding="utf-8"), "run make results-pages"


def test_the_page_changes_with_a_verdict(rows):
    changed = [{**row, "verdict": RIGHT} if row["id"] == "formula" else row for row in rows]
    right = sum(row["verdict"] == RIGHT for row in rows) + 1
    lines = page(changed).splitlines()
    assert any(line.startswith(f"{right} of {len(rows)} are right") for line in lines)
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("| ")]
    assert cells == [6] * (len(rows) + 2 * len(SOURCES))


# --- the checks can fail ---------------------------------------------------------------------------------

MADE_WRONG = {
    "p after a rejection": partial(claims.lossless, recovered=lambda p, q: p),
    "a lossless rule in place of Medusa's": partial(claims.medusa, rule="standard"),
    "tokens of γ + 1": partial(claims.mean_of_beta, extra=1),
    "rows that do not depend on the context": partial(claims.stopping, TableModel(P), TableModel(Q)),
}


@pytest.mark.parametrize("name", MADE_WRONG)
def test_a_right_claim_made_wrong(name):
    assert MADE_WRONG[name]().verdict == WRONG
    assert MADE_WRONG[name].func().verdict == RIGHT


MADE_RIGHT = {
    "typical acceptance of guesses": partial(claims.lookahead, rule="typical"),
    "von Neumann's one envelope": partial(claims.pointwise_envelope, rule="von_neumann"),
    "≥ in place of ≤": partial(claims.lenient_sign, sign="≥"),
    "l falls": partial(claims.lenience_raises, claims.LENIENCES),
    "each token once in the context": partial(claims.pseudocode, doubled=False),
    "one temperature": partial(claims.no_relationship, temperatures=(1.0,)),
    "one rejected": partial(claims.rejected, printed=1),
    "αK + 1": partial(claims.formula, printed=speed_of_share),
    "no second pass": partial(claims.bonus_pass, passes=0),
    "a gain that begins at r": partial(claims.break_even, printed=0.1),
}


@pytest.mark.parametrize("name", MADE_RIGHT)
def test_a_wrong_claim_made_right(name):
    assert MADE_RIGHT[name]().verdict == RIGHT
    assert MADE_RIGHT[name].func().verdict == WRONG


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (claims.acceptance_governs, {"costs": (0.02, 0.1)}, {"costs": (0.6, 0.9)}),
        (claims.parallel, {"tokens": 200}, None),
        (claims.clamped, {"epsilons": (Fraction(0),)}, {"epsilons": (Fraction(1),)}),
        (claims.rates, {"low": 0.5}, {"low": 0.94}),
        (claims.two_to_four, {"low": 1.0, "high": 20.0}, {"low": 12.0, "high": 15.0}),
        (claims.like_a_chain, {"p": P, "q": P}, None),
        (claims.likelier, {"draft": (1, 1, 1)}, None),
        (claims.six_to_eight, {"ks": (1, 40)}, {"ks": (1, 1)}),
        (
            claims.printed_speeds,
            {"printed": [("", 0.12, (0.7, 0.8), (4, 6), (2.6, 3.0))]},
            {"printed": [("", 0.12, (0.7, 0.8), (4, 6), (5.0, 6.0))]},
        ),
    ],
)
def test_a_claim_with_a_condition_made_right_and_wrong(check, right, wrong):
    assert check().verdict == CONDITIONAL
    assert check(**right).verdict == RIGHT
    assert wrong is None or check(**wrong).verdict == WRONG


def test_how_verdicts_are_reached():
    assert [decide(x, "").verdict for x in (True, False)] == [RIGHT, WRONG]
    found = [only_if(a, b, "").verdict for a, b in ((True, True), (True, False), (False, True))]
    assert found == [RIGHT, CONDITIONAL, WRONG]


# --- what the checks rest on -----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_a_plain_step_is_the_standard_rule(gamma):
    found = step(TARGET, DRAFT, gamma=gamma)
    proofs = [prove(TARGET, DRAFT, gamma=gamma, context=(x,)) for x in range(3)]
    assert found.tv == 0 == max(proof.tv for proof in proofs)
    assert found.tokens == sum(proof.mean_tokens for proof in proofs) / 3


def test_a_step_with_another_test_is_not():
    lenient = step(TARGET, DRAFT, accept=lambda p, q, x: min(1, 2 * standard_test(p, q, x)))
    assert lenient.tv > 0
    assert step(TARGET, DRAFT, believed=TARGET).tv > 0


def test_the_pairs_have_zeros_ties_equal_and_disjoint_rows():
    found = list(pairs())
    assert any(p == q for p, q in found)
    assert any(not any(a and b for a, b in zip(p, q, strict=True)) for p, q in found)
    assert any(0 in p and p != q for p, q in found)


def test_the_two_readings_of_the_acceptance_rate_agree():
    for alpha, k in product((0.2, 0.5, 0.9), (1, 4, 7)):
        share = (expected_tokens(alpha, k) - 1) / k
        assert speed_of_share(share, k, 0.1) == pytest.approx(speed(alpha, k, 0.1), rel=1e-12)


def test_the_speed_with_a_second_pass_by_simulation():
    """Steps drawn one by one, with a pass more where all drafts are accepted."""
    rng, k, r, alpha = np.random.default_rng(1), 4, 0.1, 0.75
    accepted = rng.choice(k + 1, p=accepted_law(alpha, k), size=200_000)
    time = 1 + k * r + (accepted == k)
    found = claims.bonus_pass(alpha, k, r).found
    paid = float(re.search(r"(\d\.\d{3}) times as fast with the second pass", found)[1])
    assert (accepted + 1).sum() / time.sum() == pytest.approx(paid, abs=0.01)
    assert f"{expected_tokens(alpha, k) / (1 + k * r):.3f} without it" in found
