"""The checked claims: the page, and negative controls for the checks and for what they rest on."""

import re
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from experiments.literature import claims
from experiments.literature.claims import CONDITIONAL, RIGHT, WRONG
from specsim.theory import expected_tokens

PAGE = Path(__file__).parents[2] / "docs/results/claims.md"


@pytest.fixture(scope="module")
def ran():
    """The rows, and what progress was told."""
    told = []
    return claims.run(progress=lambda done, total: told.append((done, total))), told


@pytest.fixture(scope="module")
def rows(ran):
    return ran[0]


# --- the table -------------------------------------------------------------------------------------------


def test_every_claim_has_a_row_and_progress_is_told(ran):
    found, told = ran
    assert [row["id"] for row in found] == list(claims.CLAIMS)
    assert {row["document"] for row in found} == set(claims.SOURCES)
    assert told == [(done, len(claims.CLAIMS)) for done in range(1, len(claims.CLAIMS) + 1)]


def test_rows_are_short_and_have_numbers(rows):
    for row in rows:
        assert 1 <= len(row["quote"].split()) <= 24, row["id"]
        assert re.search(r"\d", row["found"]), row["id"]


def test_the_correct_statement_agrees_with_the_computed_verdict(rows):
    """A statement with a condition begins with "Only"."""
    for row in rows:
        assert row["correct"].startswith("Only ") == (row["verdict"] == CONDITIONAL), row["id"]


def test_every_document_has_an_address():
    assert all("<https://" in source for source in claims.SOURCES.values())


# --- the page --------------------------------------------------------------------------------------------


def test_the_page_changes_with_a_verdict(rows):
    changed = [{**row, "verdict": RIGHT} if row["id"] == "lookahead" else row for row in rows]
    right = sum(row["verdict"] == RIGHT for row in rows) + 1
    lines = claims.page(changed).splitlines()
    assert f". {right} of {len(rows)} are right" in " ".join(lines)
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("| ")]
    assert cells == [6] * (len(rows) + 2 * len(claims.SOURCES))


# --- the checks can fail ---------------------------------------------------------------------------------

MADE_WRONG = {
    "p after a rejection": partial(claims.lossless, recovered=lambda p, q: p),
    "a lossless rule in place of Medusa's": partial(claims.medusa, rule="standard"),
    "tokens of γ + 1": partial(claims.mean_of_beta, extra=1),
}
MADE_RIGHT = {
    "typical acceptance of guesses": partial(claims.lookahead, rule="typical"),
    "von Neumann's one envelope": partial(claims.pointwise_envelope, rule="von_neumann"),
    "≥ in place of ≤": partial(claims.lenient_sign, sign="≥"),
    "l falls": partial(claims.lenience_raises, (1.0, 0.5, 0.3, 0.1)),
    "each token once in the context": partial(claims.pseudocode, doubled=False),
    "one draft": partial(claims.whole_batch, k=1),
    "sampling at a high temperature": partial(claims.greedy_breaks, sampling=5.0),
    "an impossible token": partial(claims.unlikely_token, p=0.0),
    "no other temperature": partial(claims.same_temperature, grid=(1.0, 1.2)),
    "one draft, of which α is the share": partial(claims.share_for_alpha, gamma=1),
    "the residual": partial(claims.own_sample, recovered=claims.tokenwise.positive_part),
    "αK + 1 over the time": partial(claims.rate_times_length, printed=claims.speed_of_share),
    "the token after a rejection counted": partial(claims.accepted_only, forgotten=0),
}


@pytest.mark.parametrize("name", [*MADE_RIGHT, *MADE_WRONG])
def test_a_wrong_claim_made_right_and_a_right_one_made_wrong(name):
    made = (MADE_RIGHT | MADE_WRONG)[name]
    assert [made().verdict, made.func().verdict] == ([RIGHT, WRONG] if name in MADE_RIGHT else [WRONG, RIGHT])


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (claims.acceptance_governs, {"high": 0.1}, {"low": 0.6, "high": 0.9}),
        (claims.parallel, {"tokens": 200}, None),
        (claims.wrong_cache, None, {"other": 0}),
        (claims.clamped, {"epsilons": (Fraction(0),)}, {"epsilons": (Fraction(1),)}),
        (claims.rates, {"low": 0.5}, {"low": 0.94}),
        (claims.two_to_four, {"low": 1.0, "high": 20.0}, {"low": 12.0, "high": 15.0}),
        (claims.like_a_chain, {"p": claims.P, "q": claims.P}, None),
        (claims.cold_draft, {"cold": 0.5, "grid": (0.5,)}, {"cold": 5.0}),
        (claims.hot_text, {"temperatures": (0.0, 0.5, 1.0)}, {"temperatures": (1.0, 2.0)}),
        (claims.three_to_five, {"most": 11}, {"most": 3}),
        (claims.below_half, {"costs": (0.5, 0.6)}, {"costs": (0.05, 0.1)}),
        (claims.three_in_one, None, {"emitted": 1}),
    ],
)
def test_a_claim_with_a_condition_made_right_and_wrong(check, right, wrong):
    assert check().verdict == CONDITIONAL
    assert right is None or check(**right).verdict == RIGHT
    assert wrong is None or check(**wrong).verdict == WRONG


def test_how_verdicts_are_reached():
    assert [claims.decide(x, {}).verdict for x in (True, False)] == [RIGHT, WRONG]
    found = [claims.only_if(a, b, {}).verdict for a, b in ((True, True), (True, False), (False, True))]
    assert found == [RIGHT, CONDITIONAL, WRONG]


# --- what the checks rest on -----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_rule_in_parts_is_the_standard_rule(gamma):
    assert claims.tv(claims.altered(), gamma=gamma) == 0
    assert claims.tv(claims.believing(lambda q: q), gamma=gamma) == 0
    emitted = [
        claims.prove(claims.TARGET, claims.DRAFT, rule=claims.altered(), gamma=gamma, context=(x,))
        for x in range(3)
    ]
    assert claims.tokens_a_step(claims.DRAFT, gamma) == float(sum(proof.mean_tokens for proof in emitted) / 3)


def test_a_rule_with_another_part_is_not():
    assert claims.tv(claims.altered(lambda p, q, x: min(1, 2 * claims.standard_test(p, q, x)))) > 0
    assert claims.tv(claims.altered(recovered=lambda p, q: q)) > 0
    assert claims.tv(claims.believing(lambda q: claims.row(claims.TARGET, 0))) > 0


def test_the_two_readings_of_the_acceptance_rate_agree():
    for alpha, k in product((0.2, 0.5, 0.9), (1, 4, 7)):
        share = (expected_tokens(alpha, k) - 1) / k
        assert claims.speed_of_share(share, k, 0.1) == pytest.approx(claims.speed(alpha, k, 0.1), rel=1e-12)
