"""The catalogue of known-wrong verifiers and decoders: each does what its law says, and each is wrong."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from conftest import FALSE_ALARM, rational_pair
from enumerated import conditional_laws, p_value, text_law, tv
from refused import refuses

from specsim import mistakes, rules
from specsim.core.stats import chi_square
from specsim.mistakes import _decoding as decoding
from specsim.mistakes._decoding import sequence_law
from specsim.mistakes._rows import OF_IDS, in_half_sums
from specsim.models import TableModel, chain
from specsim.theory._enumeration import step_law, target_law

GAMMA = 2
STEPS, SEQUENCES = 50_000, 4_000

#: Parameters with which a mistake whose default is next to invisible can be seen in that many steps.
SPELLED = (Path(__file__).parent / "visible.txt").read_text().splitlines()
VISIBLE = {spelled.partition(":")[0]: spelled for spelled in SPELLED}
#: No parameter makes these visible; they are looked at one by one below.
FAINT = {
    *("float16_ratio", "bfloat16_ratio", "float8_ratio", "byte_ratio", "bfloat16_draft"),
    "residual_top_k",  # of rows of three tokens the residual has two
    "half_sums",  # of few tokens
}

#: The threads that are marked as the best mistakes in the list of bugs, and what stands for them.
STARRED = (Path(__file__).parent / "starred.txt").read_text().splitlines()


def eighths(*rows):
    return TableModel([[Fraction(weight, 8) for weight in row] for row in rows])


#: (target, draft, context): dyadic, so that floats say the same.
PAIRS = {
    "order 1": (eighths((4, 1, 3), (3, 4, 1), (3, 1, 4)), eighths((3, 4, 1), (1, 5, 2), (5, 2, 1)), (0,)),
    "zeros": (
        TableModel([Fraction(weight, 16) for weight in (4, 0, 6, 5, 1)]),
        TableModel([Fraction(weight, 16) for weight in (9, 3, 0, 1, 3)]),
        (),
    ),
}
#: Rows that are no dyadic fractions, for enumeration only.
GENERIC = (*rational_pair(np.random.default_rng(3), 4, 1, 1, "plain"), (0,))


def seen(name):
    return mistakes.get(VISIBLE.get(name, name))


def lawful(kind):
    return [name for name in mistakes.names(kind) if mistakes.get(name).law and mistakes.get(name).verify]


def worst_tv(law, target, context):
    """The largest deviation of a next token, given its prefix, from the target's law."""
    return max(tv(nexts, next_law(target, context + prefix)) for prefix, nexts in conditional_laws(law))


@cache
def next_law(target, context):
    return target_law(target, 1, context)


@cache
def right_step_law(pair):
    target, draft, context = PAIRS[pair]
    return step_law(rules.get("standard"), target, draft, chain(GAMMA), context)


def drafted(target, draft, context, steps, rng):
    """draft_tokens, p, q of `steps` steps after `context`, drawn by NumPy."""
    text = np.tile(np.array(context, dtype=np.int64), (steps, 1)).reshape(steps, len(context))
    tokens, p, q = [], [target.rows(text)], []
    for _ in range(GAMMA):
        q.append(draft.rows(text))
        tokens.append((q[-1].cumsum(axis=1) <= rng.random((steps, 1))).sum(axis=1))
        text = np.column_stack([text, tokens[-1]])
        p.append(target.rows(text))
    return np.stack(tokens, axis=1), np.stack(p, axis=1), np.stack(q, axis=1)


def noncentrality(law, right):
    """Of a chi-square against `right`, for each draw from `law`."""
    if law.keys() - right.keys():
        return np.inf
    return float(sum((law.get(key, 0) - mass) ** 2 / mass for key, mass in right.items()))


def enough(law, right, full, most):
    """How many draws from `law` tell it from `right`: `most` with --all, the fewest if even `most` do not."""
    least, needed = max(800, most // 10), 250 / max(noncentrality(law, right), 1e-12)
    return most if full else least if needed > most else max(least, int(needed))


def steps_of(mistake, pair, seed, steps=STEPS):
    rng = np.random.default_rng(seed)
    output = mistake.function(*drafted(*pair, steps, rng), rng)
    codes = (output + 1) @ 100 ** np.arange(GAMMA + 1)
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return Counter(
        {tuple(row[row >= 0].tolist()): int(n) for row, n in zip(output[first], counts, strict=True)}
    )


# --- the catalogue ---------------------------------------------------------------------------------------


EVERY = mistakes.names() + mistakes.names("engine") + mistakes.names("exact control")


def test_there_are_enough_of_every_family_and_their_names_differ():
    assert len(mistakes.catalogue()) >= 40
    assert len(set(EVERY)) == len(EVERY)
    assert mistakes.names() == [mistake.name for mistake in mistakes.catalogue()]
    assert sorted(mistakes.names("verifier") + mistakes.names("decoder")) == sorted(mistakes.names())
    assert mistakes.names("exact control") == [mistake.name for mistake in mistakes.exact_controls()]
    families = [mistake.family for mistake in mistakes.catalogue()]
    assert len(set(families)) == len(list(groupby(families))) == 10
    assert {mistake.family for mistake in mistakes.exact_controls()} == {"exact but wasteful"}
    assert "exact but wasteful" not in families
    for thread, name in (line.split(" => ") for line in STARRED):
        assert thread in mistakes.get(name).threads


@pytest.mark.parametrize("name", ["resamples_target", "lenience"])
def test_the_law_of_first_tokens_is_that_of_texts_cut_short(name):
    loop = decoding.in_a_loop(mistakes.get(name))
    whole, first = sequence_law(loop, *STORY), sequence_law(loop, *STORY, length=2)
    cut = defaultdict(Fraction)
    for text, mass in whole.items():
        cut[text[:2]] += mass
    assert first.keys() == cut.keys()
    assert max(abs(first[text] - cut[text]) for text in cut) < 1e-12


def test_a_mistake_says_what_it_does():
    for mistake in map(mistakes.get, EVERY):
        assert mistake.mechanism.endswith(".")
        assert mistakes.get(str(mistake)) == mistake


def test_parameters_are_spelled_as_those_of_rules():
    mistake = mistakes.get("two_thresholds:single=0.25,summed=1")
    assert mistake.values == {"single": 0.25, "summed": 1.0}
    assert str(mistake) == "two_thresholds:single=0.25,summed=1"
    assert mistakes.get("lenience").with_parameters(lenience=0.7) == mistakes.get("lenience:lenience=0.7")


# --- verifiers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", lawful("verifier"))
def test_a_verifier_is_wrong_by_enumeration(name):
    found = []
    for target, draft, context in (*PAIRS.values(), GENERIC):
        law = step_law(seen(name), target, draft, chain(GAMMA), context)
        assert sum(law.values()) == pytest.approx(1, abs=1e-12)
        found.append(worst_tv(law, target, context))
    assert max(found) > 0
    target, draft, context = PAIRS["order 1"]
    for gamma in (1, 3):
        law = step_law(seen(name), target, draft, chain(gamma), context)
        assert sum(law.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", lawful("exact control"))
def test_an_exact_control_is_exact_by_enumeration(name, full):
    for target, draft, context in (*PAIRS.values(), GENERIC):
        for gamma in (1, 2, 3) if full else (1, 2):
            law = step_law(mistakes.get(name), target, draft, chain(gamma), context)
            assert sum(law.values()) == 1
            assert worst_tv(law, target, context) == 0


def test_the_law_of_rows_is_one_in_floats_too():
    target, draft, _ = GENERIC
    p, q = [list(target.row([token])) for token in (0, 1, 2)], [list(draft.row([token])) for token in (0, 1)]
    floats = [[float(a) for a in row] for row in p], [[float(a) for a in row] for row in q]
    for mistake in map(seen, lawful("verifier") + lawful("exact control")):
        values = {key: Fraction(value) for key, value in mistake.values.items()}
        stop, follow = mistake.law((0, 1), (1, 2), p, q, **values)
        stop_floats, follow_floats = mistake.law((0, 1), (1, 2), *floats, **mistake.values)
        assert sum(stop) == pytest.approx(1, abs=1e-12)
        assert [sum(row) for row in follow] == pytest.approx([1] * 3, abs=1e-12)
        assert stop_floats == pytest.approx([float(a) for a in stop], abs=1e-12)
        for row, row_floats in zip(follow, follow_floats, strict=True):
            assert row_floats == pytest.approx([float(a) for a in row], abs=1e-12)


@pytest.mark.parametrize(
    "name",
    [*lawful("verifier"), *lawful("exact control"), *(f"test_uniform_draws:only={only}" for only in "123")],
)
def test_a_verifier_follows_its_law_and_no_other(name, full):
    mistake, visible = seen(name), False
    for i, (key, pair) in enumerate(PAIRS.items()):
        law, right = step_law(mistake, *pair[:2], chain(GAMMA), pair[2]), right_step_law(key)
        outcomes = steps_of(mistake, pair, i, enough(law, right, full, STEPS))
        assert p_value(outcomes, law) > FALSE_ALARM
        if noncentrality(law, right) * STEPS > (400 if full else 500):
            visible = True
            assert p_value(outcomes, right) < FALSE_ALARM
    assert visible or name in FAINT


@pytest.mark.parametrize("name", mistakes.names("verifier") + lawful("exact control"))
def test_a_verifier_keeps_to_the_contract(name):
    rng = np.random.default_rng(5)
    for steps in (0, 1, 500):
        handed = drafted(*GENERIC, steps, rng)
        given = [array.copy() for array in handed]
        output = mistakes.get(name).function(*given, rng)
        assert output.shape == (steps, GAMMA + 1)
        assert output.dtype.kind == "i"
        assert all(np.array_equal(before, after) for before, after in zip(handed, given, strict=True))
        emitted = (output >= 0).sum(axis=1)
        assert (emitted >= 1).all()
        assert np.array_equal(output >= 0, np.arange(GAMMA + 1) < emitted[:, None])


@pytest.mark.parametrize(
    ("name", "x", "q"), [("float16_ratio", 1e-9, 2e-8), ("bfloat16_ratio", 0.3335, 0.3345)]
)
def test_low_precision_accepts_what_a_double_would_reject(name, x, q):
    steps = 20_000
    p_row, q_row = np.array([x, 1 - x]), np.array([q, 1 - q])
    tokens = np.zeros((steps, 1), dtype=np.int64)
    p, q_rows = np.tile(p_row, (steps, 2, 1)), np.tile(q_row, (steps, 1, 1))
    first = {
        verifier: mistakes.get(verifier).function(tokens, p, q_rows, np.random.default_rng(0))[:, 1] >= 0
        for verifier in (name, "lenience:lenience=1")
    }
    assert first[name].all()
    assert not first["lenience:lenience=1"].all()


def test_sums_in_half_precision_lose_flat_rows_of_many_ids():
    flat = np.full((1, 50_000), 1 / 50_000)
    drawn = in_half_sums(flat) / in_half_sums(flat).sum()
    assert np.abs(drawn - flat).sum() / 2 > 0.9
    assert in_half_sums(np.full((1, 64), 1 / 64)).tolist() == [[1 / 64] * 64]


@pytest.mark.parametrize("name", OF_IDS)
def test_something_is_left_to_draw_where_one_token_is_sure(name):
    assert OF_IDS[name](np.eye(5), **dict.fromkeys(mistakes.get(name).values, 2.0)).sum(axis=1).all()


def test_the_bias_of_known_examples():
    """TV of the first token, as in published counterexamples with p against its reverse."""
    p = [Fraction(percent, 100) for percent in (30, 20, 15, 10, 10, 5, 5, 5)]
    target, draft = TableModel(p), TableModel(p[::-1])
    found = {}
    for name, gamma in [
        ("resamples_target", 1),
        ("absolute_residual", 1),
        ("shared_gumbel", 1),
        ("block_product_of_uniforms", 3),
        ("block_first_failure", 3),
    ]:
        law = step_law(mistakes.get(name), target, draft, chain(gamma))
        first = defaultdict(Fraction)
        for emitted, mass in law.items():
            first[emitted[:1]] += mass
        found[name] = round(float(tv(first, target_law(target, 1))), 3)
    assert found == {
        "resamples_target": 0.175,
        "absolute_residual": 0.25,
        "shared_gumbel": 0.012,
        "block_product_of_uniforms": 0.169,
        "block_first_failure": 0.13,
    }


# --- errors between rows and calls -----------------------------------------------------------------------


def alike(steps):
    """Rows and drafted tokens that are the same in every step."""
    tokens, p, q = drafted(*PAIRS["order 1"], 1, np.random.default_rng(0))
    return tuple(np.repeat(array, steps, axis=0) for array in (tokens, p, q))


def outputs(name, handed, seed=1):
    return mistakes.get(name).function(*handed, np.random.default_rng(seed))


RIGHT = "lenience:lenience=1"


def test_rows_and_calls_that_share_uniforms_come_out_alike():
    handed = alike(400)
    assert len(np.unique(outputs("batch_shares_uniforms", handed), axis=0)) == 1
    assert len(np.unique(outputs(RIGHT, handed), axis=0)) > 1
    for name, same in (("pairs_share_uniforms", True), (RIGHT, False)):
        output = outputs(name, handed)
        assert np.array_equal(output[::2], output[1::2]) == same
    assert len(np.unique(outputs("pairs_share_uniforms", handed), axis=0)) > 1
    for name, same in (("reseeded", True), (RIGHT, False)):
        assert np.array_equal(outputs(name, handed, seed=1), outputs(name, handed, seed=2)) == same


def two_kinds(steps):
    """Steps whose target and draft alternate between the tokens 0, 1, 2 and 3, 4, 5."""
    tokens, p, q = drafted(*PAIRS["order 1"], steps, np.random.default_rng(0))
    odd = np.arange(steps) % 2 == 1
    wide = [np.concatenate([rows, np.zeros_like(rows)], axis=2) for rows in (p, q)]
    for rows in wide:
        rows[odd] = np.roll(rows[odd], 3, axis=2)
    return tokens + 3 * odd[:, None], *wide


@pytest.mark.parametrize(
    "name",
    ["neighbours_target_rows", "neighbours_token", "neighbours_draft", "rows_by_rank", "cartesian_write"],
)
def test_rows_that_leak_give_tokens_of_other_requests(name):
    def strangers(verifier):
        output = outputs(verifier, two_kinds(1000))
        return int(((output >= 0) & (output // 3 != np.arange(1000)[:, None] % 2)).sum())

    assert strangers(name) > 0
    assert strangers(RIGHT) == 0


def test_a_residual_with_a_neighbours_draft_is_the_whole_target():
    """The other request's q has no token in common with p, so that nothing is subtracted."""
    first = outputs("neighbours_draft_rows", two_kinds(STEPS))[:, 0]
    target, draft, context = PAIRS["order 1"]
    law = step_law(mistakes.get("resamples_target"), target, draft, chain(GAMMA), context)
    wrong = np.zeros(3)
    for emitted, mass in law.items():
        wrong[emitted[0]] += float(mass)
    counts = np.bincount(first % 3, minlength=3)
    assert chi_square(counts, wrong).p_value > FALSE_ALARM
    assert chi_square(counts, target.rows([context])[0]).p_value < FALSE_ALARM


def test_a_cartesian_write_leaves_one_token_for_each_length():
    handed = two_kinds(1000)
    for name, fewest in (("cartesian_write", True), (RIGHT, False)):
        output = outputs(name, handed)
        lengths = (output >= 0).sum(axis=1)
        last = output[np.arange(1000), lengths - 1]
        assert all(len(set(last[lengths == n].tolist())) == 1 for n in set(lengths.tolist())) == fewest


def test_the_rows_after_the_last_block_are_accepted_unseen_and_the_shortest_row_of_a_call_decides():
    handed = drafted(*PAIRS["order 1"], 40, np.random.default_rng(0))
    output, right = outputs("unverified_rest", handed), outputs(RIGHT, handed)
    assert np.array_equal(output[:32], right[:32])
    assert np.array_equal(output[32:, :GAMMA], handed[0][32:])
    assert not np.array_equal(right[32:, :GAMMA], handed[0][32:])
    lengths = [(outputs(name, handed) >= 0).sum(axis=1) for name in ("shortest_of_call", RIGHT)]
    assert set(lengths[0]) == {lengths[1].min()}
    assert len(set(lengths[1])) > 1


def test_padding_comes_out_where_the_residual_is_small():
    rng = np.random.default_rng(0)
    output = seen("padding_wins").function(*drafted(*PAIRS["order 1"], 1000, rng), rng)
    assert (output == 3).any()
    assert output.max() == 3


# --- decoders --------------------------------------------------------------------------------------------


def table(rng, evenness):
    """Rows after two tokens, all different: the more even, the greater `evenness`; token 2 has 1/8."""
    rows = np.empty((3, 3, 3), dtype=object)
    for place in np.ndindex(3, 3):
        first, second = 1 + rng.multinomial(12, rng.dirichlet([evenness] * 2))
        rows[place] = [Fraction(int(weight), 16) for weight in (first, second, 2)]
    return TableModel(rows)


def story(seed):
    """(target, draft, prompt, max_new_tokens, eos): both of order 2, so that a wrong state can be seen."""
    rng = np.random.default_rng(seed)
    return table(rng, 0.4), table(rng, 1.0), (0, 1), 5, 2


#: Of many seeds one with which the chi-square sees every decoder of the catalogue, but for the one in
#: `FAINT`.
STORY = story(432)


def sequences_of(decode, count=SEQUENCES):
    return Counter(tuple(decode(*STORY, np.random.default_rng([7, i]))) for i in range(count))


@pytest.fixture(scope="module")
def right_law():
    return text_law(STORY[0], *STORY[2:])


def test_the_decoder_without_a_mutation_is_exact(right_law):
    right = mistakes.Mistake("right", "none", "Nothing.", decode=decoding.Decoder())
    assert tv(sequence_law(right, *STORY), right_law) == 0
    assert p_value(sequences_of(right.function), right_law) > FALSE_ALARM


#: Decoders without a law of whole texts, whose steps depend on each other.
BETWEEN_STEPS = ("steps_share_uniforms", "tests_share_uniform")


@pytest.mark.parametrize("name", BETWEEN_STEPS)
def test_a_decoder_that_uses_random_numbers_again_is_wrong(name, right_law):
    mistake = mistakes.get(name)
    assert p_value(sequences_of(mistake.function, SEQUENCES // 2), right_law) < FALSE_ALARM
    refuses("its texts cannot be enumerated", sequence_law, mistake, *STORY)


@pytest.mark.parametrize("name", [name for name in mistakes.names("decoder") if name not in BETWEEN_STEPS])
def test_a_decoder_follows_its_law_and_not_the_targets(name, right_law, full):
    mistake = seen(name)
    law = sequence_law(mistake, *STORY)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    outcomes = sequences_of(mistake.function, enough(law, right_law, full, SEQUENCES))
    assert p_value(outcomes, law) > FALSE_ALARM
    assert name in FAINT or p_value(outcomes, right_law) < FALSE_ALARM


def test_the_longest_of_more_tries_is_further_from_the_target(right_law):
    laws = [sequence_law(mistakes.get(f"longest_of_tries:tries={n}"), *STORY) for n in (1, 2, 5)]
    once, twice, often = (tv(law, right_law) for law in laws)
    assert once == 0 < twice < often
    # of p = (1/2, 1/2) and q = (3/4, 1/4): 3/4 of tries are accepted, with token 0 in 2/3 of these
    p, q = TableModel([Fraction(1, 2)] * 2), TableModel([Fraction(3, 4), Fraction(1, 4)])
    one = mistakes.get("longest_of_tries")
    decode = replace(one.decode, gamma=1, overshoots=True)
    law = sequence_law(replace(one, decode=decode), p, q, (0,), 1, None)
    assert law == {(0,): Fraction(15, 16) * Fraction(2, 3), (1,): 1 - Fraction(15, 16) * Fraction(2, 3)}


def test_a_draft_in_bfloat16_is_wrong_by_little():
    """Sixteenths are exact in bfloat16; other rows are not."""
    target, draft, prompt = GENERIC
    law = sequence_law(mistakes.get("bfloat16_draft"), target, draft, prompt, 3, None)
    assert 0 < tv(law, target_law(target, 3, prompt)) < 0.01


@pytest.mark.parametrize(
    "name", [name for name in mistakes.names("exact control") if mistakes.get(name).decode]
)
def test_an_exact_control_that_decodes_is_exact(name, right_law):
    mistake = mistakes.get(name)
    assert tv(sequence_law(mistake, *STORY), right_law) == 0
    assert p_value(sequences_of(mistake.function), right_law) > FALSE_ALARM
