"""The checked claims: verdicts, the page, and negative controls for the checks and for what they rest on."""

import re
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments.literature.claims import (
    CLAIMS,
    DOCUMENTS,
    VERDICTS,
    exact_speedups,
    guide,
    guide_rules,
    guide_run,
    naive_speculate,
    notes,
    problem,
    run,
)
from experiments.literature.claims.claim import CONDITIONAL, RIGHT, UNCHECKED, WRONG, decide, only_if
from experiments.literature.claims.laws import DRAFT, TARGET, P, Q, pairs, standard_test, step
from experiments.literature.claims.page import page
from experiments.literature.claims.speed import accepted_share, alpha_of_share, speed, speed_of_share
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
    assert [row["id"] for row in found] == [claim.id for claim in CLAIMS]
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {row["document"] for row in found} == {document.title for document in DOCUMENTS}
    assert told == [(done, len(CLAIMS)) for done in range(1, len(CLAIMS) + 1)]


def test_rows_are_short_and_have_numbers(rows):
    for row in rows:
        assert 1 <= len(row["quote"].split()) <= 24, row["id"]
        assert row["found"].startswith("A check needs ") == (row["verdict"] == UNCHECKED), row["id"]
        assert row["verdict"] == UNCHECKED or re.search(r"\d", row["found"]), row["id"]


def test_the_correct_statement_agrees_with_the_computed_verdict(rows):
    """A statement with a condition begins with "Only"; it is absent if nothing was checked."""
    for row in rows:
        assert row["correct"].startswith("Only ") == (row["verdict"] == CONDITIONAL), row["id"]
        assert (row["correct"] == "") == (row["verdict"] == UNCHECKED), row["id"]


def test_kept_and_left_out_claims_are_those_listed():
    for document in DOCUMENTS:
        left_out = document.another_subject + document.repeated + document.unmeasured
        assert len(document.claims) + left_out == document.listed, document.title


EXPECTED = {
    CONDITIONAL: """
        problem.accept problem.governs naive.greedy_match naive.more_rejections naive.cache_some naive.wrong_cache
        notes.eagle notes.lookahead_law notes.corollary_3_6 exact.clamp exact.closed exact.clip exact.speed guide.others
        guide.temperatures code.temperature code.clock speed.third speed.k_6_8 speed.k_4_6 speed.k_3_4 speed.k_2_3
        speed.later speed.smaller speed.batch
    """,
    WRONG: """
        naive.ill_defined naive.always_rejects notes.lookup_empty notes.pointwise notes.greedy_lenience
        notes.lenience_raises exact.pseudocode exact.branches exact.mh exact.references guide.likelier guide.other_tokens
        guide.other_vocabulary guide.edges guide.temperature run.tokens run.bonus run.rejected run.estimated speed.formula
        speed.beta speed.bonus_pass speed.break_even speed.five_times guide.downsides speed.table speed.table_distil
        speed.table_medium speed.table_llama speed.step_five notes.improvement_factor run.length run.text run.ids
        run.drafted run.draft_pass run.ratio run.compatible run.gpt2_xl code.near_zero
    """,
    UNCHECKED: "notes.parallel exact.rates run.speed",
    RIGHT: """
        problem.example problem.identical naive.any_strategy naive.removed naive.cache_all notes.medusa notes.correct
        notes.theorem_3_5 notes.geometric notes.expected notes.theorem_3_8 notes.theorem_3_11 notes.corollary_3_4 notes.corollary_3_9
        exact.exact exact.stopping guide.exact run.saved
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
    changed = [{**row, "verdict": RIGHT} if row["id"] == "speed.formula" else row for row in rows]
    lines = page(changed).splitlines()
    right = sum(row["verdict"] == RIGHT for row in rows) + 1
    assert any(f"{right} are right" in line for line in lines)
    tables = lines[lines.index("## How to read the tables") :]
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in tables if line.startswith("| ")]
    assert cells == [6] * (len(rows) + 2 * len(DOCUMENTS))


# --- the checks can fail ---------------------------------------------------------------------------------

MADE_WRONG = {
    "example, another output": partial(problem.example, output=(5, 2)),
    "example, another ratio": partial(problem.example, ratios=("0.6/0.3", "0.4/0.5")),
    "p after a rejection": partial(problem.with_the_residual, recovered=lambda p, q: p),
    "caches, not ahead": partial(naive_speculate.all_tokens_accepted, ahead=0),
    "caches, three to read": partial(naive_speculate.all_tokens_accepted, read=3),
    "a lossless rule in place of Medusa's": partial(notes.medusa_loses_the_law, rule="standard"),
    "lenience in place of the standard rule": partial(notes.identically_distributed, rule="lenience"),
    "twice the acceptance": partial(notes.acceptance, factor=2),
    "one more accepted token": partial(notes.capped_geometric, extra=1),
    "tokens of γ + 1": partial(notes.mean_of_beta, extra=1),
    "theorem 3.8, γ + 2": partial(notes.wall_time, offset=2),
    "theorem 3.11, γ + 2": partial(notes.operations, offset=2),
    "article, a lenient test": partial(exact_speedups.exact, lenience=2),
    "rows that do not depend on the context": partial(
        exact_speedups.stopping_is_crucial, TableModel(P), TableModel(Q)
    ),
    "twice the divergence": partial(notes.is_a_distance, factor=2),
    "corollary 3.9, γ = 2": partial(notes.gains_above_c, gamma=2),
    "another time saved": partial(guide_run.saved, printed=("2.47", "1752.9")),
    "guide, a control": partial(guide.exact, rule="block_first_failure", gamma=3),
}


@pytest.mark.parametrize("name", MADE_WRONG)
def test_a_right_claim_made_wrong(name):
    assert MADE_WRONG[name]().verdict == WRONG
    assert MADE_WRONG[name].func().verdict == RIGHT


MADE_RIGHT = {
    "von Neumann's one envelope": partial(notes.pointwise_envelope, rule="von_neumann"),
    "a draft that is found": partial(notes.lookup_finds_nothing, tokens=6),
    "≥ in place of ≤": partial(notes.greedy_lenience_sign, sign="≥"),
    "l falls": partial(notes.lenience_raises_alpha, notes.LENIENCES),
    "each token once in the context": partial(exact_speedups.pseudocode_is_exact, doubled=False),
    "a uniform draft": partial(guide.likelier_is_accepted, q=(1, 1, 1)),
    "one temperature": partial(guide.temperature_has_no_effect, temperatures=(1.0,)),
    "27 tokens": partial(guide.counts, guide.RUN._replace(tokens=27)),
    "6 bonus tokens": partial(guide.bonus, guide.RUN._replace(bonus=6)),
    "one rejected": partial(guide.rejected, printed=1),
    "the correct estimate": partial(guide.estimated, printed="3.32"),
    "αK + 1": partial(guide.formula, printed=lambda a, k, r, beta: (a * k + 1) / (k * r + 1)),
    "K = 1": partial(guide.beta_for_large_k, ks=(1,)),
    "no second pass": partial(guide.bonus_pass, passes=0),
    "a gain that begins at r": partial(guide.break_even, printed=0.1),
    "α below r": partial(guide.five_times_faster, alpha=0.3),
    "a lower speed": partial(guide.table_row, printed=(1.9, 2.2)),
    "one γ and c": partial(notes.factor_determines, costs=((4, 0.1), (4, 0.1))),
    "equal rows": partial(exact_speedups.like_a_chain, P, P),
    "the titles of the works": partial(
        exact_speedups.references, tuple((a, d, c, d) for a, _, c, d in exact_speedups.REFERENCES)
    ),
    "a prompt of six tokens": partial(guide_run.prompt_length, printed=6),
    "a text of 27 tokens": partial(guide_run.text_length, printed=27),
    "ids of the text": partial(guide_run.first_words, emitted=(6016, 290, 11781)),
    "26 drafted": partial(guide_run.drafted, printed=26),
    "ten milliseconds": partial(guide_run.draft_pass, printed=10.0),
    "the implied ratios": partial(
        guide_run.implied_ratio, printed={"GPT-2 Small": 0.142, "DistilGPT-2": 0.082, "GPT-2 Medium": 0.262}
    ),
    "a draft with a pad token": partial(guide_run.pad_tokens, pad_of_draft=50256),
    "another size": partial(guide_run.gpt2_xl, size=50400),
    "a draft above the threshold": partial(guide_run.near_zero, threshold=Fraction(0)),
    "αK + 1, step five": partial(guide_rules.step_five, extra=1.0),
    "a row of speeds": partial(guide_rules.TABLE_ROWS["speed.table_distil"], printed=(1.9, 2.2)),
}


@pytest.mark.parametrize("name", MADE_RIGHT)
def test_a_wrong_claim_made_right(name):
    assert MADE_RIGHT[name]().verdict == RIGHT
    assert MADE_RIGHT[name].func().verdict == WRONG


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (problem.acceptance_decides_speed, {"costs": (0.02, 0.1)}, {"costs": (0.6, 0.9)}),
        (naive_speculate.some_tokens_accepted, None, {"read": 3}),
        (exact_speedups.clamped, {"epsilons": (0,)}, {"epsilons": (1,)}),
        (exact_speedups.two_to_four, {"low": 1.0, "high": 20.0}, {"low": 12.0, "high": 15.0}),
        (guide.six_to_eight, {"ks": (1, 40)}, {"ks": (1, 1)}),
        (guide_rules.BAND_CHECKS["speed.k_4_6"], {"ks": (1, 40)}, {"ks": (30, 31)}),
        (guide_rules.BAND_CHECKS["speed.k_2_3"], {"ks": (0, 10)}, {"ks": (30, 31)}),
        (guide_rules.smaller_is_faster, {"contexts": (128, 128), "batch": 1}, {"contexts": (10**6, 128)}),
        (guide_rules.batch_one, {"contexts": (512, 512)}, {"contexts": (32_768, 32_768)}),
        (guide_run.zero_temperature, None, {"logits": (1.0, 1.0)}),
        (guide.bonus_in_a_third, {"share": 0.33, "k": 1}, {"share": 0.5}),
    ],
)
def test_a_claim_with_a_condition_made_right_and_wrong(check, right, wrong):
    assert check().verdict == CONDITIONAL
    assert right is None or check(**right).verdict == RIGHT
    assert check(**wrong).verdict == WRONG


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
        share = accepted_share(alpha, k)
        assert speed_of_share(share, k, 0.1) == pytest.approx(speed(alpha, k, 0.1), rel=1e-12)
        assert alpha_of_share(share, k) == pytest.approx(alpha, abs=1e-9)


def test_texts_of_one_token_too_many_by_enumeration():
    """All ways in which a text of 5 tokens can come about, K = 2."""
    alpha, k = 0.6, 2

    def too_many(remaining):
        if remaining <= 0:
            return float(remaining < 0)
        drafted = min(k, remaining)
        law = [alpha**n * (1 - alpha) for n in range(drafted)] + [alpha**drafted]
        return sum(w * too_many(remaining - n - 1) for n, w in enumerate(law))

    assert guide.one_too_many(alpha, length=5, k=k) == pytest.approx(too_many(5), rel=1e-12)


def test_the_speed_with_a_second_pass_by_simulation():
    """Steps drawn one by one, with a pass more where all drafts are accepted."""
    rng, k, r, alpha = np.random.default_rng(1), 4, 0.1, 0.75
    accepted = rng.choice(k + 1, p=accepted_law(alpha, k), size=200_000)
    time = 1 + k * r + (accepted == k)
    found = guide.bonus_pass(alpha, k, r).found
    paid = float(re.search(r"(\d\.\d{3}) times as fast with the second pass", found)[1])
    assert (accepted + 1).sum() / time.sum() == pytest.approx(paid, abs=0.01)
    assert f"{expected_tokens(alpha, k) / (1 + k * r):.3f} without it" in found
