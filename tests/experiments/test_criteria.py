"""The published criteria: a right verifier passes each, each rejects something, and their blind spots are
where they were found to be. The kill matrix: its numbers, its table, its picture."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import verifiers
from refused import refuses
from scipy.special import softmax

from experiments._kept import kept
from experiments.audit import kill_matrix
from experiments.audit._criteria import Criterion, criteria, deepspec, vllm
from experiments.audit._criteria import base as anatomy
from experiments.audit._criteria import smell as smell_test
from experiments.audit.kill_matrix import (
    AUDIT,
    Cell,
    KillMatrix,
    exact_tv,
    kept_matrix,
    measure,
    show_cell,
    show_tv,
)
from experiments.audit.kill_matrix import STANDARD as OWN_STANDARD
from figures import kill_matrix as picture
from specsim import mistakes, rules
from specsim.adapters._contract import declared
from specsim.mistakes import Mistake

CRITERIA = {criterion.name: criterion for criterion in criteria()}
#: All its four settings take half a minute; a right verifier is tried on one of them.
WIDE = "vLLM V2 wide"
KL, VALIDITY, COSINE = "TensorRT-LLM KL", "FlashInfer validity", "FlashInfer cosine"


def tried(names, slow):
    """Criteria as parameters of a test; those that are `slow` only with --all."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


double_chance = mistakes.get("double_chance").function


def least_likely(draft_tokens, p, q, rng):
    """Right but for the recovered token, which is drawn from the residual turned upside down."""
    turned = p.copy()
    turned[:, 2, [1, 7]] = p[:, 2, [7, 1]]
    return verifiers.verify(draft_tokens, turned, q, rng)


def passes(name, verifier, seed=1):
    return CRITERIA[name].passes(verifier, np.random.default_rng(seed))


def wide(verifier, size, seed=1):
    """One of the four settings of the wide test, where `size` is 4096: γ = 1, temperature 1, ten rounds a
    token."""
    rng = np.random.default_rng(seed)
    p, q = softmax(rng.standard_normal((2, size)), axis=1)
    return vllm.every_position_fits(verifier, p, q, 1, 10 * size, rng)


# --- the criteria ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", tried([name for name in CRITERIA if name != WIDE], {KL, VALIDITY}))
def test_a_right_verifier_passes(name):
    assert passes(name, verifiers.right)


def mixed(draft_tokens, p, q, rng, share=0.15):
    """Right for rows with a share of a uniform distribution mixed in."""
    possible = p > 0
    return verifiers.right(
        draft_tokens, (1 - share) * p + share * possible / possible.sum(-1, keepdims=True), q, rng
    )


def test_cosines_are_blind_to_a_share_of_a_uniform_distribution():
    assert passes(COSINE, mixed)
    assert not passes("vLLM TV", mixed)
    assert not passes(COSINE, partial(mixed, share=1.0))
    assert not passes(COSINE, lambda tokens, p, q, rng: verifiers.right(tokens, np.repeat(q, 2, 1), q, rng))
    row = softmax(5.0 * np.random.default_rng(1).standard_normal(111))
    assert 0.15 * np.abs(row - 1 / 111).sum() / 2 == pytest.approx(0.14, abs=0.001)  # its total variation


@pytest.mark.parametrize(
    "name",
    tried([name for name in CRITERIA if "HF" not in name and name not in (VALIDITY, COSINE)], {WIDE, KL}),
)
def test_a_recovered_token_from_the_target_itself_is_seen(name):
    assert not passes(name, verifiers.resamples_from_target)


@pytest.mark.parametrize(
    ("name", "verifier"),
    [
        (VALIDITY, verifiers.neighbours_tokens), (VALIDITY, verifiers.wrong_shape),
        (VALIDITY, verifiers.out_of_range), (VALIDITY, verifiers.ignores_drafts),
        ("HF unit", verifiers.always_argmax), ("HF unit", verifiers.accepts_everything),
        ("HF ordinal", verifiers.accepts_everything), ("HF ordinal", least_likely),
    ],
)  # fmt: skip
def test_the_others_see_what_is_broken(name, verifier):
    rng_error = verifier is verifiers.out_of_range  # spoils the fourth row, and the first batches have one
    if rng_error:
        with pytest.raises(IndexError):
            passes(name, verifier)
    else:
        assert not passes(name, verifier)


def test_blind_spots_of_the_wide_chi_square(monkeypatch, full):
    monkeypatch.setattr(anatomy, "CALL_ENTRIES", 2**22)  # faster: it stays in cache
    size = 4096 if full else 512
    assert wide(verifiers.right, size)
    assert wide(double_chance, size)
    assert not wide(verifiers.one_hot_residual, size)


@pytest.mark.parametrize("verifier", [pytest.param(double_chance, marks=pytest.mark.slow), verifiers.lenient])
def test_what_the_narrow_chi_square_rejects_passes_a_bound_on_kl(verifier):
    assert not passes("vLLM V2 narrow", verifier)
    assert passes(KL, verifier)


@pytest.mark.parametrize("name", tried([VALIDITY, "HF unit", "HF ordinal"], {VALIDITY}))
def test_tests_without_a_law_pass_wrong_laws(name):
    wrong = (verifiers.lenient, double_chance, verifiers.one_hot_residual)
    assert all(passes(name, one) for one in wrong)


def test_only_later_positions_show_a_uniform_used_twice(full):
    first_only = ("vLLM TV", "smell test", KL)[: None if full else 2]
    assert all(passes(name, verifiers.reuses_one_uniform) for name in first_only)
    assert not any(passes(name, verifiers.reuses_one_uniform) for name in ("vLLM V2 narrow", "DeepSpec"))


def test_a_case_of_the_smell_test_hardly_sees_double_chance_but_all_cases_together_do():
    rng = np.random.default_rng(1)
    seen = [not smell_test.pair_fits(double_chance, p, q, rng) for p, q in smell_test.pairs()]
    assert 1 <= sum(seen) <= 10  # 2.4 of 26 on average, by the exact law; none of them with probability 5e-6


def test_the_random_pairs_of_the_smell_test_are_pytorch_s():
    pairs = list(smell_test.pairs())
    assert [len(p) for p, _ in pairs[6:12]] == [5, 6, 9, 7, 1, 2]  # torch.randint(10, (1,)) + 1, seeds 0 to 5
    u = [0.7682218, 0.08847743, 0.13203049, 0.30742282, 0.63407868]  # torch.rand after it, seed 0
    assert pairs[6][0] == pytest.approx(softmax(3 * np.array(u)), abs=1e-7)


def test_a_test_that_loses_its_power_says_so(monkeypatch):
    assert deepspec.power() > 1 - 1e-9
    monkeypatch.setattr(deepspec, "UNDECLARED", 0.99 * deepspec.DRAFT + 0.01 * deepspec.UNDECLARED)
    refuses("lost its power", passes, "DeepSpec", verifiers.right, error=AssertionError)


def test_rounds_are_calls_of_at_most_so_many_entries(monkeypatch):
    sizes = []

    def counted(draft_tokens, p, q, rng):
        sizes.append(len(p))
        return verifiers.alters_p(draft_tokens, p, q, rng)

    p, q = np.full((3, 4), 0.25), np.full((2, 4), 0.25)
    monkeypatch.setattr(anatomy, "CALL_ENTRIES", 100)
    assert anatomy.rounds(counted, p, q, 12, np.random.default_rng(0)).shape == (12, 3)
    assert sizes == [5, 5, 2]
    assert (p == 0.25).all()


def test_a_chi_square_does_not_see_cells_that_are_left_out():
    law = np.array([0.5, 0.5 - 1e-6, 1e-6])
    tokens = np.repeat([0, 1], 50)
    assert anatomy.chi_square_below(np.append(tokens, 2), law, lambda df: 0.1)
    assert not anatomy.chi_square_below(np.append(tokens, [1] * 9), law, lambda df: 0.1)
    assert anatomy.chi_square_below(tokens[:5], law, lambda df: 0.0)


# --- the kill matrix -------------------------------------------------------------------------------------


LAW = rules.get("lenience").law
STANDARD = Mistake("right", "exact", "", verify=verifiers.right, law=rules.get("standard").law)
LENIENT = Mistake("lenient", "acceptance", "", verify=verifiers.lenient, law=partial(LAW, lenience=0.8))
RAISES = Mistake("raises", "index", "", verify=verifiers.raises)
DECODER = Mistake("greedy_draft", "proposal", "", decode=lambda *_: [0])
CHOSEN = [CRITERIA[name] for name in ("HF ordinal", "DeepSpec")]


@pytest.fixture(scope="module")
def rows(smaller_audits_in_module):
    own, seeds = kill_matrix.audit_criterion("smoke"), (3, 4)
    decoder = Criterion(AUDIT, "", "", lambda decode, rng: not declared(decode).decoder, 1)
    found = [
        measure(subject, criterion, seeds, exact=subject is STANDARD)
        for subject in (STANDARD, LENIENT, RAISES)
        for criterion in (*CHOSEN, own)
    ]
    return [*found, measure(DECODER, decoder, seeds)]


@pytest.fixture(scope="module")
def matrix(rows):
    return KillMatrix(rows, [*CHOSEN, kill_matrix.audit_criterion("smoke")])


def test_the_fraction_of_runs_that_pass(rows, matrix):
    assert matrix.cell("right", "DeepSpec") == Cell(2, 2)
    assert matrix.cell("lenient", "HF ordinal").fraction == 1.0
    assert matrix.cell("lenient", "DeepSpec").fraction == 0.0
    assert [row["passed"] for row in rows if row["verifier"] == "raises"] == [0, 0, 0]
    assert {row["verifier"]: row["passed"] for row in rows if row["criterion"] == AUDIT} == {
        "right": 1, "lenient": 0, "raises": 0, "greedy_draft": 0,
    }  # fmt: skip
    assert matrix.missed("HF ordinal") == ["lenient", "greedy_draft"]
    assert matrix.missed(AUDIT) == []


def test_the_exact_deviation_stands_beside_each_row(matrix):
    assert [row.tv for row in matrix.rows] == [0.0, pytest.approx(0.0375), None, None]
    assert exact_tv(LENIENT) == pytest.approx(0.0375)


def test_a_run_depends_on_criterion_and_seed_alone():
    drawn = []

    def passes(verifier, rng):
        drawn.append(rng.random())
        return True

    criteria = [Criterion(name, "", "", passes, 2) for name in ("one", "other")]
    found = [measure(one, criterion, (3, 4, 5)) for one in (RAISES, LENIENT) for criterion in criteria]
    assert drawn[:4] == drawn[4:]
    assert len(set(drawn)) == 4
    assert {row["runs"] for row in found} == {2}


def test_a_decoder_is_run_by_the_audit_alone_and_every_verifier_by_all():
    names = [*CRITERIA, AUDIT]
    applied = {}
    for verifier, criterion in kill_matrix.cells(fast=False):
        applied.setdefault(verifier, []).append(criterion)
    known = {mistake.name: mistake for mistake in (*mistakes.exact_controls(), *mistakes.catalogue())}
    assert applied == {"standard": names} | {
        name: [AUDIT] if mistake.decode else names for name, mistake in known.items()
    }
    fast = kill_matrix.cells(fast=True)
    assert set(fast) < set(kill_matrix.cells(fast=False))
    assert {verifier for verifier, _ in fast} == set(kill_matrix.FAST_VERIFIERS)


def test_the_matrix_as_a_table(matrix):
    lines = matrix.markdown().splitlines()
    assert lines[0] == "| | TV | specsim audit | HF ordinal | DeepSpec |"
    assert "| `right` | 0 | 1 | 1 | 1 |" in lines
    assert "| `lenient` | 0.037 | 0 | 1 | 0 |" in lines or "| `lenient` | 0.038 | 0 | 1 | 0 |" in lines
    assert "| `greedy_draft` | – | 0 | – | – |" in lines
    assert "| **wrong verifiers, missed** | | 0 of 2 | 1 of 2 | 0 of 2 |" in lines
    assert "| **wrong decoders, missed** | | 0 of 1 | – | – |" in lines
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert any(
        line.startswith("- –: not applicable: the criterion draws the drafts itself") for line in lines
    )
    assert show_cell(Cell(1, 3)) == "0.33"
    assert [show_tv(tv) for tv in (None, 0.0, 3e-5, 0.25)] == ["–", "0", "3e-05", "0.250"]


def test_the_picture_has_a_number_in_each_cell(rows):
    (axis,) = picture.draw(pa.Table.from_pylist(rows)).axes
    texts = [text.get_text() for text in axis.texts]
    assert texts[:12] == ["1", "1", "1", "1", "0", "0", "0", "0", "0", "–", "–", "0"]
    assert texts[12:] == ["exact", "acceptance", "index", "proposal"]
    ((image,),) = (axis.images,)
    assert image.get_array()[0].tolist() == [0, 0, 0]
    assert image.get_array()[1].tolist() == [1, 0, 0]


def test_the_reference_is_the_standard_rule():
    draft_tokens, p, q = np.array([[1]]), np.full((1, 2, 2), 0.5), np.full((1, 1, 2), 0.5)
    assert OWN_STANDARD.function(draft_tokens, p, q, np.random.default_rng(0))[0, 0] == 1
    assert exact_tv(OWN_STANDARD) == 0


def test_the_kept_rows_are_of_all_criteria_and_families():
    found = kept("kill_matrix")
    here = {row["verifier"] for row in found}
    computed = [cell for cell in kill_matrix.cells(fast=False) if cell[0] in here]
    assert [(row["verifier"], row["criterion"]) for row in found] == computed
    assert [column.name for column in kept_matrix().columns] == [*CRITERIA, AUDIT]
    assert all(row["passed"] == row["runs"] for row in found if row["exact"])
    families = {
        mistake.name: mistake.family for mistake in (*mistakes.exact_controls(), *mistakes.catalogue())
    }
    assert all(row["family"] == families.get(row["verifier"], "exact") for row in found)


@pytest.mark.parametrize(
    "cell", [("recovers_from_next_row", "HF unit"), pytest.param(("one_uniform", KL), marks=pytest.mark.slow)]
)
def test_a_kept_row_can_be_computed_again(cell):
    (stored,) = (row for row in kept("kill_matrix") if (row["verifier"], row["criterion"]) == cell)
    assert kill_matrix.run_cell(cell, fast=False, rng=0) == stored
