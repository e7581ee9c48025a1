"""The claims ledger: every claim is checked, the verdicts are these, and each kind of check can fail."""

import importlib.util
import re
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments.claims import (
    CLAIMS,
    VERDICTS,
    Claim,
    Setting,
    as_markdown,
    exact_speedups,
    guide,
    naive_speculate,
    notes,
    problem,
    run,
)
from experiments.claims import guide_run as run_as_printed
from experiments.claims import guide_speed as rules_of_thumb
from experiments.claims.anatomy import (
    CONDITIONAL,
    FALSE,
    HOLDS,
    ROUNDING,
    UNCHECKED,
    decide,
    only_if,
    printed_as,
)
from experiments.claims.laws import DRAFT, TARGET, pairs, standard_test, step
from experiments.claims.speed import accepted_share, alpha_of_share, speed, speed_of_share
from specsim.theory import accepted_law, expected_tokens
from specsim.theory._enumeration import prove

ROOT = Path(__file__).parents[2]
CHECKED = [claim for claim in CLAIMS if not claim.needs]


@pytest.fixture(scope="module")
def rows():
    return run(fast=True)


@pytest.fixture(scope="module")
def verdicts(rows):
    return {row["id"]: row["verdict"] for row in rows}


# --- the table -------------------------------------------------------------------------------------------


def test_every_claim_has_a_row_with_one_of_the_verdicts(rows):
    assert [row["id"] for row in rows] == [claim.id for claim in CLAIMS]
    assert {row["verdict"] for row in rows} == set(VERDICTS)
    assert len({row["source"] for row in rows}) == 5


def test_ids_are_unique_and_quotes_are_short():
    assert max(Counter(claim.id for claim in CLAIMS).values()) == 1
    for claim in CLAIMS:
        assert 1 <= len(claim.quote.split()) <= 15, claim.id


def test_what_was_found_is_made_of_numbers(rows):
    for row in rows:
        if row["verdict"] == UNCHECKED:
            assert row["found"].startswith("needs "), row["id"]
        else:
            assert re.search(r"\d", row["found"]), row["id"]
            assert "nan" not in row["found"] or row["id"] == "exact.clip"


def test_a_condition_is_named_where_a_claim_needs_one(rows):
    for row in rows:
        assert row["found"].startswith("only ") == (row["verdict"] == CONDITIONAL), row["id"]


def test_only_what_has_no_check_is_not_checkable(verdicts):
    for claim in CLAIMS:
        assert (verdicts[claim.id] == UNCHECKED) == bool(claim.needs)


def test_the_same_seed_gives_the_same_rows_and_progress_is_told(rows):
    told = []
    assert run(fast=True, rng=0, progress=lambda done, total: told.append((done, total))) == rows
    assert told == [(done, len(CLAIMS)) for done in range(1, len(CLAIMS) + 1)]


NAMED = {
    # the guide's formula, break-even and rules for K
    "speed.formula": FALSE,
    "speed.numerator": FALSE,
    "speed.example": ROUNDING,
    "speed.break_even_0.1": FALSE,
    "speed.break_even_0.2": FALSE,
    "speed.break_even_0.5": FALSE,
    "speed.k_6_8": CONDITIONAL,
    "speed.k_4_6": CONDITIONAL,
    "speed.k_3_4": CONDITIONAL,
    "speed.k_2_3": CONDITIONAL,
    "speed.bonus_pass": FALSE,
    "speed.estimator": CONDITIONAL,
    # its other statements
    "guide.temperature": FALSE,
    "guide.near_zero": ROUNDING,
    "guide.fallback": ROUNDING,
    "guide.other_tokens": FALSE,
    "guide.temperatures": CONDITIONAL,
    "guide.exact": HOLDS,
    "guide.edges": FALSE,
    "guide.layers": FALSE,
    # its printed run
    "run.tokens": FALSE,
    "run.accepted": FALSE,
    "run.bonus": FALSE,
    "run.drafted": FALSE,
    "run.estimated": FALSE,
    "run.ratio": FALSE,
    "run.actual": ROUNDING,
    "run.total": HOLDS,
    # the notes
    "notes.keep_reject": HOLDS,
    "notes.greedy_lenience": FALSE,
    "notes.pointwise": FALSE,
    "notes.pointwise_rate": HOLDS,
    "notes.theorem_3_8": HOLDS,
    "notes.theorem_3_11": HOLDS,
    "notes.lenience_raises": FALSE,
    # a package's documentation
    "naive.always_rejects": FALSE,
    "naive.removed": HOLDS,
    "naive.cache_none": CONDITIONAL,
    "naive.cache_all": HOLDS,
    "naive.cache_some": CONDITIONAL,
    "naive.wrong_cache": FALSE,
    # the problem page
    "problem.accept": CONDITIONAL,
    "problem.example": HOLDS,
    # the article
    "exact.exact": HOLDS,
    "exact.pseudocode": FALSE,
    "exact.clamp": CONDITIONAL,
    "exact.stopping": HOLDS,
    "exact.rates": UNCHECKED,
    "exact.speed": CONDITIONAL,
    **{f"exact.reference_{number}": UNCHECKED for number in (1, 2, 3, 4)},
}


@pytest.mark.parametrize("name", NAMED)
def test_verdict(name, verdicts):
    assert verdicts[name] == NAMED[name]


def test_measured_verdicts_do_not_depend_on_the_seed_or_on_how_many_contexts(verdicts):
    for claim in CLAIMS:
        if claim.measure is not None:
            assert claim.outcome(Setting(contexts=1024, root=7)).verdict == verdicts[claim.id], claim.id


# --- the checks can fail ---------------------------------------------------------------------------------

PERTURBED = {
    "theorem 3.8, γ + 2": partial(notes.wall_time, offset=2),
    "theorem 3.11, γ + 2": partial(notes.operations, offset=2),
    "corollary 3.9, more": partial(notes.improvement_exists, gain=lambda a, c: 1.5 * (1 + a) / (1 + c)),
    "E[N], one more": partial(notes.proposals, extra=1),
    "losslessness, lenience": partial(notes.identically_distributed, rule="lenience"),
    "losslessness, a control": partial(guide.exact, rule="block_first_failure", gamma=3),
    "example, another output": partial(problem.example, output=(5, 2)),
    "example, another ratio": partial(problem.example, ratios=("0.6/0.3", "0.4/0.5")),
    "lengths, none more": partial(naive_speculate.lengths, most_extra=0),
    "caches, not ahead": partial(naive_speculate.all_tokens_accepted, ahead=0),
    "caches, three to read": partial(naive_speculate.all_tokens_accepted, read=3),
    "2.38": partial(rules_of_thumb.example, printed="2.38"),
    "0.317": partial(rules_of_thumb.fourth_power, printed="0.317"),
    "2.87": partial(rules_of_thumb.four_hundred, printed="2.87"),
    "seven tokens": partial(guide.six_tokens, printed=7),
    "other rows": partial(guide.one_row_more, example=(5, 8)),
    "eleven seconds": partial(guide.hundred_tokens, seconds=(11.0, 50.0)),
}


@pytest.mark.parametrize("name", PERTURBED)
def test_a_claim_made_wrong_is_false(name):
    assert PERTURBED[name]().verdict == FALSE
    assert PERTURBED[name].func().verdict in (HOLDS, ROUNDING)


def test_parameters_of_another_width_are_not_the_printed_ones():
    assert guide.parameters(124_439_808, 12, 768).verdict == HOLDS
    assert guide.parameters(124_439_808, 12, 1024).verdict == FALSE


RIGHT = {
    "≥ in place of ≤": partial(notes.greedy_lenience_sign, sign="≥"),
    "von Neumann's one envelope": partial(notes.pointwise_envelope, rule="von_neumann"),
    "joining in place of a product": partial(notes.fused_width, factor=1),
    "a draft that can be found": partial(notes.lookup_finds_nothing, tokens=6),
    "each token once in the context": partial(exact_speedups.pseudocode_is_exact, doubled=False),
    "36 layers": partial(guide.layers_of_large, layers=36),
    "all of the sentence": partial(guide.lists_every_token, listed="The| cat| is| running| quickly|."),
    "all tokens looked at": partial(guide.checks_every_token, vocabulary=256),
    "the guide's estimate, corrected": partial(run_as_printed.estimated, printed="3.32"),
    "the ratio, corrected": partial(run_as_printed.ratio, printed="0.380420"),
    "one rejected": partial(run_as_printed.rejected, printed=1),
    "ten milliseconds": partial(run_as_printed.draft_pass, printed=10.0),
    "a gain that begins at r": partial(rules_of_thumb.break_even, printed=0.1),
    "unequal vocabularies": partial(run_as_printed.vocabulary_mismatch, sizes=(50257, 32000)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_claim_made_right_holds(name):
    assert RIGHT[name]().verdict in (HOLDS, ROUNDING)
    assert RIGHT[name].func().verdict == FALSE


def test_a_run_that_is_consistent_passes_all_that_the_printed_one_fails():
    """Tokens 3 + 5 + 3 + 4 + 4 + 4 + 4 + 3 from a prompt of 8, the last step with 2 drafts, both accepted."""
    good = run_as_printed.Printed(
        iterations=8,
        tokens=30,
        drafted=30,
        accepted=22,
        bonus=2,
        second=(11, 4, 4, 41.2, 196.5),
        last=(35, 2, 2, 22.3, 190.1),
    )
    assert good.hidden == 5
    assert good.hidden_tokens == 19
    for check in (
        run_as_printed.accepted,
        run_as_printed.bonus,
        run_as_printed.drafted,
        run_as_printed.stops_at_thirty,
    ):
        assert check(good).verdict == HOLDS, check.__name__
    assert run_as_printed.identity(Setting(0, 0), good).verdict == HOLDS
    assert run_as_printed.mixed(good, low=0.75).verdict == HOLDS


def test_a_possible_evaluation_is_found_possible():
    assert run_as_printed.candidate("0.750", "4.00").verdict == HOLDS  # 60 tokens in 15 iterations, 45 of 60
    assert run_as_printed.candidate("0.900", "1.10").verdict == FALSE


def test_a_band_and_a_row_of_the_table_can_hold():
    assert rules_of_thumb.band(0.6, 0.8, 1, 40).verdict == HOLDS
    assert rules_of_thumb.band(0.8, 0.95, 1, 1).verdict == FALSE
    assert rules_of_thumb.table_row("0.12", (0.7, 0.8), (4, 6), (1.9, 2.2)).verdict == HOLDS
    assert rules_of_thumb.table_row("0.12", (0.7, 0.8), (4, 6), (2.6, 3.2)).verdict == CONDITIONAL


def test_a_speed_that_is_reached_everywhere_holds():
    assert exact_speedups.two_to_four(low=1.0, high=20.0).verdict == HOLDS
    assert exact_speedups.two_to_four(low=12.0, high=15.0, alphas=(0.7, 0.95)).verdict == FALSE


def test_verdicts_of_printed_numbers_and_conditions():
    assert printed_as("2.5", 2.5, "").verdict == HOLDS
    assert printed_as("2.5", 2.549, "").verdict == ROUNDING
    assert printed_as("2.5", 2.551, "").verdict == FALSE
    assert [decide(x, "").verdict for x in (True, False)] == [HOLDS, FALSE]
    found = [only_if(a, b, "").verdict for a, b in ((True, True), (True, False), (False, True))]
    assert found == [HOLDS, CONDITIONAL, FALSE]


def test_a_claim_is_checked_in_exactly_one_way():
    for extra in ({}, {"needs": "a model", "check": lambda: decide(True, "1")}):
        with pytest.raises(ValueError, match=r"claim x: give one of check, measure and needs"):
            Claim("x", "a page", "somewhere", "1", "one", **extra)


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
        share = accepted_share(alpha, k)
        assert speed_of_share(share, k, 0.1) == pytest.approx(speed(alpha, k, 0.1), rel=1e-12)
        assert alpha_of_share(share, k) == pytest.approx(alpha, abs=1e-9)


def test_texts_of_one_token_too_many_and_their_passes_by_enumeration():
    """All ways in which a text of 5 tokens can come about, K = 2."""
    alpha, k = 0.6, 2

    def walk(remaining, slack):
        """(probability that one is too many, passes of target and draft), drafting min(K, remaining - slack)."""
        if remaining <= 0:
            return np.array([float(remaining < 0), 0.0, 0.0])
        drafted = min(k, remaining - slack)
        law = [alpha**n * (1 - alpha) for n in range(drafted)] + [alpha**drafted]
        rest = sum(w * walk(remaining - n - 1, slack) for n, w in enumerate(law))
        return rest + np.array([0.0, 1.0, drafted])

    assert guide.one_too_many(alpha, length=5, k=k) == pytest.approx(walk(5, 0)[0], rel=1e-12)
    assert rules_of_thumb.passes_for(5, alpha, k) == pytest.approx(tuple(walk(5, 1)[1:]), rel=1e-12)
    assert walk(5, 1)[0] == 0


def test_the_guides_code_makes_a_pass_more_where_all_drafts_pass():
    """Speed from steps drawn one by one, with the second pass and without."""
    rng, k, r, alpha = np.random.default_rng(1), 4, 0.1, 0.75
    accepted = rng.choice(k + 1, p=accepted_law(alpha, k), size=200_000)
    time = 1 + k * r + (accepted == k)
    found = rules_of_thumb.without_second_pass(alpha, k, r).found
    told = float(re.search(r"bonus: (\d\.\d{3})", found)[1])
    assert (accepted + 1).sum() / time.sum() == pytest.approx(told, abs=0.01)
    assert f"{expected_tokens(alpha, k) / (1 + k * r):.3f}" in found


# --- the page --------------------------------------------------------------------------------------------


def program():
    """docs/claims.py as a module."""
    spec = importlib.util.spec_from_file_location("claims_program", ROOT / "docs/claims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_program_writes():
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    assert program().page(run()) == page, "run python docs/claims.py"


def test_the_page_counts_and_shows_every_claim(rows):
    page = as_markdown(rows)
    lines = page.splitlines()
    counts = Counter(row["verdict"] for row in rows)
    assert f"| all | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |" in lines
    assert sum("| **" in line for line in lines) == len(rows)
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if "| **" in line}
    assert cells == {6}
