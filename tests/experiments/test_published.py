"""Published values against recomputed ones, and what they rest on; tests/figures has the page of the verdicts."""

import numpy as np
import pytest
from cases import cases

from experiments.literature.published import page, run
from experiments.literature.published import values as papers
from experiments.literature.published.recomputed import implied_alpha, lenience_misfit, published
from specsim.theory import acceptance_rate, block_range, expected_tokens

COMPUTED = {"reproduced", "within rounding", "not reproducible"}
BOUNDED = {"within bounds", "disjoint"}


@pytest.fixture(scope="module")
def rows():
    return published()


def test_there_is_a_row_for_every_figure_and_no_two_are_alike(rows):
    assert [(row.paper, row.where, row.quantity, row.published) for row in rows] == [
        (figure.paper, figure.where, figure.quantity, figure.printed) for figure in papers.FIGURES
    ]
    assert len({(figure.where, figure.quantity) for figure in papers.FIGURES}) == len(papers.FIGURES)


def test_a_row_has_a_value_exactly_where_there_were_inputs(rows):
    for row in rows:
        assert row.verdict in COMPUTED | BOUNDED | {"inputs unavailable"}
        missing = row.verdict not in COMPUTED
        assert (row.recomputed is None) == (row.difference is None) == missing


def test_a_bounded_value_has_a_note_of_what_bounds_it(rows):
    for row in rows:
        if row.verdict in BOUNDED:
            assert row.note
        if row.verdict == "disjoint":
            assert "disjoint with" in row.note


def test_a_reproduced_value_rounds_to_the_printed_one(rows):
    for row in rows:
        if row.verdict == "reproduced" and "/" not in row.published:
            assert abs(row.units) <= 0.5 + 1e-9
        if row.units is not None and row.paper in (papers.LEVIATHAN, papers.CHEN):
            assert row.difference == pytest.approx(row.recomputed - float(row.published))


def test_the_alphas_of_table_2_are_those_of_table_3():
    alphas = {
        pair.removeprefix("T5-XXL, "): given
        for pair, *given in papers.rows_at(papers.ALPHAS, "α, {}, t = 0", "α, {}, t = 1")
    }
    for pair, t, _, alpha, *_ in papers.SPEEDS_ROWS:
        assert alphas[pair][int(t)] == alpha


# --- EAGLE -----------------------------------------------------------------------------------------------


def test_eagle_and_eagle_2_print_the_same_but_for_one_number():
    """EAGLE-2's table has EAGLE's tasks in columns 2 to 4."""
    later = {system: words.split() for system, words, *_ in papers.EAGLE_2_ROWS}
    differences = []
    for target, words in papers.EAGLE_ROWS:
        if f"{target}, EAGLE" in later:
            pairs = zip(words.split(), later[f"{target}, EAGLE"][2:8], strict=True)
            differences += [(target, one, other) for one, other in pairs if one != other]
    assert [target for target, *_ in differences] == ["Vicuna 7B, temperature 0"]


def test_tokens_of_trees_are_those_of_the_other_tables():
    tokens = {system: words.split()[1] for system, words, *_ in papers.EAGLE_2_ROWS}
    for target, _, tree, _ in papers.EAGLE_TREE_ROWS:
        assert tokens.get(f"{target}, temperature 0, EAGLE", tree) == tree
    trees = {target: tree for target, _, tree, _ in papers.EAGLE_TREE_ROWS}
    assert papers.EAGLE_DATA_ROWS[0][1].split()[1] == trees["LLaMA2-Chat 7B"]


# --- block verification ----------------------------------------------------------------------------------


def test_the_token_by_token_column_has_one_alpha():
    alphas = [implied_alpha(tokens, gamma) for tokens, gamma in ((2.89, 4), (3.23, 6), (3.41, 8))]
    assert np.round(alphas, 4).tolist() == [0.7217, 0.7221, 0.7225]


@pytest.mark.parametrize(
    ("token", "block", "gamma", "high"), [(2.89, 2.99, 4, 3.33), (3.23, 3.43, 6, 4.09), (3.41, 3.70, 8, 4.71)]
)
def test_the_block_column_is_what_some_iid_pair_has(rows, token, block, gamma, high):
    found = block_range(implied_alpha(token, gamma), gamma)
    assert 1 + found.low == pytest.approx(token, abs=1e-9)
    assert 1 + found.low < block < 1 + found.high
    assert round(1 + found.high, 2) == high
    quantity = f"tokens a step, block verification, γ = {gamma}"
    (row,) = [row for row in rows if (row.paper, row.quantity) == ("2403.10444", quantity)]
    assert f"{token:.2f} to {high:.2f};" in row.note
    assert row.verdict == "within bounds"


@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_implied_alpha_inverts_expected_tokens(gamma):
    for alpha in (0.0, 0.01, 0.5, 0.722, 0.999, 1.0):
        assert implied_alpha(expected_tokens(alpha, gamma), gamma) == pytest.approx(alpha, abs=1e-12)


# --- lenience --------------------------------------------------------------------------------------------


def test_any_pair_of_rows_has_leniences_without_misfit():
    rng = np.random.default_rng(1)
    leniences = np.array([1, 0.5, 0.3, 0.1])
    for _ in range(50):
        p, q = rng.dirichlet(np.full(8, 0.3), (2, 20))
        alphas = np.minimum(p / leniences[:, None, None], q).sum(axis=-1).mean(axis=1)
        assert alphas[0] == pytest.approx(np.mean(acceptance_rate(p, q)))
        assert lenience_misfit(alphas, leniences) == pytest.approx(0, abs=1e-9)
        assert lenience_misfit(alphas[::-1], leniences[::-1]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(*cases(__file__, "impossible"))
def test_what_no_pair_can_have_is_a_misfit(alphas):
    assert lenience_misfit(alphas, (1, 0.5, 0.3, 0.1)) > 0.005


# --- the page --------------------------------------------------------------------------------------------


def test_the_page_counts_the_rows_of_each_verdict():
    rows = run(fast=False, rng=0, progress=None)
    assert page([{**rows[0], "published": "1|2"}]).count("1\\|2") == 1
    for verdict in COMPUTED | BOUNDED | {"inputs unavailable"}:
        assert page(rows).count(f"| {verdict}") == sum(row["verdict"] == verdict for row in rows) > 0
