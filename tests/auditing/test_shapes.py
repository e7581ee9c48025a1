"""Cases whose calls change their shape: what they cover, what they count, and that each axis has power."""

import json
from collections import Counter
from dataclasses import replace
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from conftest import FALSE_ALARM
from scipy import stats
from verifiers import verified, verify

from specsim import audit
from specsim.adapters._contract import Declared
from specsim.auditing._cases.shapes import CALL_BYTES, KINDS, ShapesCase, bank, shape_cases
from specsim.auditing._checks.findings import judge_case
from specsim.auditing._checks.shapes import CALLS_APART, DISTANCES, PLACES, ROWS, ShapesTally, plan_shapes
from specsim.auditing._checks.subjects import Span, VerifierSubject, open_subject, try_span
from specsim.auditing._report.text import power_by_axis
from specsim.auditing._verifier.local import Local
from specsim.core._report import json_of
from specsim.core._streams import Purpose, uniforms
from specsim.mistakes import _reference as reference
from specsim.mistakes._indexing import least_of_call

KEY = (7, 11)
#: False-alarm probability of a test of this file: there are some hundred tests in a case.
LEVEL = 1e-10
FEW, THOUSAND, LARGE, LARGEST, *_ = (case.name for case in shape_cases(Declared()))


def case_of(name, **declared):
    return next(case for case in shape_cases(Declared(**declared)) if case.name == name)


def judged(verifier, name, rounds=1, changes=None, **declared):
    """The result of some rounds of a case, or of one with `changes`."""
    subject = VerifierSubject("own", Local(verifier, Declared(**declared)))
    case = replace(case_of(name, **declared), **changes or {})
    vars(subject)["cases"] = [case]
    steps = int(rounds * case.round_steps)
    found = try_span(subject, Span(name, KEY, 0, steps))
    return judge_case(plan_shapes(ShapesTally(case), steps), found, LEVEL)


def texts(result):
    return " ".join(finding.text for finding in result.findings)


# --- the design ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [FEW, THOUSAND, LARGE, LARGEST])
def test_a_round_has_every_size_and_each_call_fits(name):
    case = case_of(name)
    for number in range(3):
        blocks = case.round(KEY, number)
        assert Counter((block.rows, block.calls) for block in blocks) == Counter(case.sizes)
        assert [block.first for block in blocks] == [
            number * case.round_steps + sum(block.steps for block in blocks[:i]) for i in range(len(blocks))
        ]
        for block in blocks:
            assert block.vocab_size in case.vocab_sizes
            assert block.gamma in case.gammas
            assert 8 * block.rows * block.vocab_size * (2 * block.gamma + 1) <= CALL_BYTES
    assert [block.rows for block in case.round(KEY, 0)] != [block.rows for block in case.round(KEY, 1)]
    blocks = [block for number in range(8) for block in case.round(KEY, number)]
    assert {block.vocab_size for block in blocks} == set(case.vocab_sizes)
    assert {block.gamma for block in blocks} == set(case.gammas)


def test_the_cases_have_the_shapes_of_production():
    cases = shape_cases(Declared())
    sizes = {size for case in cases for size in case.vocab_sizes}
    assert {2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 32_000, 32_767, 65_536, 65_537, 131_072} <= sizes
    assert {gamma for case in cases for gamma in case.gammas} == {*range(1, 17), 20, 32, 33}
    rows = {rows for case in cases for rows, _ in case.sizes}
    assert {1, 2, 3, 7, 8, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 4104} <= rows


def test_steps_do_not_depend_on_how_a_run_is_split():
    case = case_of(THOUSAND)
    whole = {}
    for block, start, steps in case.blocks(KEY, 0, case.round_steps + 500):
        rows = case.rows(KEY, block, start, steps)
        whole |= {start + s: (block, *rows.draft_tokens[s], *rows.places[s]) for s in range(steps)}
    assert sorted(whole) == list(range(case.round_steps + 500))
    for first, steps in ((0, 3), (450, 900), (case.round_steps - 2, 77)):
        for block, start, n in case.blocks(KEY, first, steps):
            rows = case.rows(KEY, block, start, n)
            for s in range(n):
                assert whole[start + s] == (block, *rows.draft_tokens[s], *rows.places[s])


@pytest.mark.parametrize(
    ("declared", "rows", "gammas"), [({"batch": 1}, {1}, 33), ({"batch": 100, "gamma": 3}, 100, 3)]
)
def test_declared_limits_hold(declared, rows, gammas):
    for case in shape_cases(Declared(**declared)):
        blocks = case.round(KEY, 0)
        assert max(block.rows for block in blocks) <= declared["batch"]
        assert max(block.gamma for block in blocks) <= gammas
    assert [case.name for case in shape_cases(Declared(vocab_size=300))] == [FEW, THOUSAND]
    assert max(case_of(THOUSAND, vocab_size=300).vocab_sizes) == 257
    assert not shape_cases(Declared(tree=True))


def test_rows_of_a_bank_are_pmfs_and_every_order_is_one_of_all_tokens():
    for size, bits in ((2, 24), (33, 24), (129, 8), (1000, 11), (32_001, 24)):
        found = bank(size, bits, KINDS)
        assert np.array_equal(found.p.sum(axis=1), np.ones(len(found.p)))
        assert np.array_equal(found.q.sum(axis=1), np.ones(len(found.p)))
        for below in found.below.reshape(-1, size):
            assert below.min() == 0.0
        for order in range(4):  # the intervals of the possible tokens tile [0, 1)
            for p, below in zip(found.p, found.below[order], strict=True):
                possible = np.flatnonzero(p)
                ranked = possible[np.argsort(below[possible], kind="stable")]
                assert np.allclose(below[ranked][1:], (below + p)[ranked][:-1], atol=1e-12)
    half = bank(64, 24, KINDS)
    even = np.arange(64) % 2 == 0
    assert (half.below[3][:, even].max(axis=1) <= half.below[3][:, ~even].min(axis=1) + 1e-12).all()


# --- the counts ------------------------------------------------------------------------------------------


def test_images_and_pairs_are_those_of_a_plain_computation():
    case = ShapesCase("plain", "", (3, 33), (1, 2, 5), ((1, 3), (4, 6), (9, 3)))
    subject = VerifierSubject("own", Local(right))
    subject.cases = [case]  # a cached property
    source, tally = subject.counter("plain")
    counts, images, pairs, halves = tally.zeros(), Counter(), Counter(), Counter()
    names = tally.axes.values
    for batch in source.batches(KEY, 0, 2 * case.round_steps):
        before = {name: array.copy() for name, array in counts.items()}
        tally.count(counts, batch, KEY)
        rows, block = batch.rows, batch.rows.block
        v = uniforms(KEY, int(Purpose.COUNT), batch.first, len(batch.accepted), block.gamma + 2)
        firsts, bonuses, placed = [], [], []
        for s in range(len(batch.accepted)):
            ratio = 1.0
            bonuses.append(None)
            placed.append([])
            contested = [i for i in range(block.gamma) if rows.places[s, i] == KINDS.index("even odds")]
            others = set(rows.places[s]) - {KINDS.index("even odds")}
            for i, x in enumerate(batch.tokens[:, s][batch.tokens[:, s] >= 0]):
                k = rows.places[s, i]
                p, q = rows.bank.p[k], rows.bank.q[k]
                image = [below(p, q, x, order) + v[i, s] * p[x] for order in range(4)]
                if i == 0:
                    firsts.append(image)
                else:
                    placed[s].append(image)
                place, call = divmod(int(rows.inside[s]), block.rows)[::-1]
                values = [
                    ("vocabulary", f"{block.vocab_size:,}"),
                    ("γ", "5 to 7" if block.gamma == 5 else str(block.gamma)),
                    ("rows of a call", {1: "1", 4: "3 to 4", 9: "9 to 64"}[block.rows]),
                    ("place in the step", str(i + 1)),
                    ("kind of row", names[tally.axes.first("kind of row") + k][1]),
                    ("row of its call", "1 to 32"),
                    ("tokens", "all"),
                    (
                        "rows and γ",
                        f"{ {1: '1', 4: '2 to 8', 9: '9 to 64'}[block.rows] } rows, "
                        f"γ { {1: '1', 2: '2 to 4', 5: '5 to 8'}[block.gamma] }",
                    ),
                ]
                if block.rows == 9:
                    values += [("rows of a call", "one beside it"), ("rows of a call", "odd")]
                if place == 0:
                    values.append(("row of its call", "first"))
                if place == block.rows - 1:
                    values.append(("row of its call", "last"))
                of_gamma = "5 to 7" if block.gamma == 5 else str(block.gamma)
                if block.gamma == 5 and rows.apart[0, s]:
                    assert len(contested) == 2
                    assert others == {KINDS.index("near-equal")}
                    if i == contested[1]:
                        apart = str(contested[1] - contested[0])
                        values.append(("distance of two contested places", apart))
                if i == block.gamma:
                    bonuses[s] = image
                    values += [("place in the step", "bonus"), ("bonus of γ", of_gamma)]
                    values.append(("kind of row of a bonus", KINDS[k]))
                if i == block.gamma - 1:
                    values += [("place in the step", "last drafted"), ("last drafted of γ", of_gamma)]
                after = (
                    "others"
                    if call or block.larger is None
                    else "first after a larger one"
                    if block.larger
                    else "first after a smaller one"
                )
                values.append(("call", after))
                if 0 < i < block.gamma:
                    named = ("below 1/2", "1/2 to 1", "1 to 2", "2 or more")
                    values.append(
                        ("p/q of the tokens before", named[np.searchsorted((0.5, 1, 2), ratio, side="right")])
                    )
                ratio *= p[x] / q[x] if q[x] else 1.0
                for value in values:
                    for order in range(4):
                        images[tally.axes.code[value], order, int(image[order] * 16)] += 1
        of_calls = [distance * block.rows for distance in CALLS_APART]
        for d, distance in enumerate((*DISTANCES, *of_calls)):
            apart = distance or block.rows // 2
            for s in range(len(firsts) - apart):
                place, call = int(rows.inside[s]) % block.rows, int(rows.inside[s]) // block.rows
                if d < len(DISTANCES):
                    paired = (
                        apart > 0
                        and place + apart < block.rows
                        and (place // apart % 2 == 0 if distance else place < apart)
                    )
                else:
                    paired = call // (d - len(DISTANCES) + 1) % 2 == 0
                of_bonus = len(DISTANCES) + len(CALLS_APART) + 2 + len(PLACES)
                for images_of, i, begin in ((firsts, 0, 0), (bonuses, block.gamma, of_bonus)):
                    one, other = images_of[s], images_of[s + apart]
                    if paired and one is not None and other is not None:
                        alike = rows.places[s, i] == rows.places[s + apart, i]
                        for o, order in enumerate((0, 2)):
                            cell = 4 * int(one[order] * 4) + int(other[order] * 4)
                            pairs[begin + d, 0, o, cell] += 1
                            pairs[begin + d, 1, o, cell] += alike
        for s in range(len(firsts) - 1):
            ends = int(rows.inside[s]) % block.rows == block.rows - 1
            for i, image in enumerate(() if ends else placed[s]):
                alike = rows.places[s, i + 1] == rows.places[s + 1, 0]
                for o, order in enumerate((0, 2)):
                    cell = 4 * int(firsts[s + 1][order] * 4) + int(image[order] * 4)
                    d = len(DISTANCES) + len(CALLS_APART) + 2 + i
                    pairs[d, 0, o, cell] += 1
                    pairs[d, 1, o, cell] += alike
            if bonuses[s] is not None:
                alike = rows.places[s, block.gamma] == rows.places[s + 1, 0]
                for o, order in enumerate((0, 2)):
                    cell = 4 * int(firsts[s + 1][order] * 4) + int(bonuses[s][2] * 4)
                    d = len(DISTANCES) + len(CALLS_APART) + ends
                    pairs[d, 0, o, cell] += 1
                    pairs[d, 1, o, cell] += alike
        if block.rows > 1:
            calls = rows.inside // block.rows
            for call in np.unique(calls):
                here = np.flatnonzero(calls == call)
                w = v[block.gamma + 1, here[0]]
                for j, values in enumerate(
                    (
                        [firsts[s][0] for s in here],
                        [firsts[s][2] for s in here],
                        [bonuses[s][2] for s in here if bonuses[s] is not None],
                    )
                ):
                    if values:
                        law = stats.binom(len(values), 0.5)
                        low = sum(value < 0.5 for value in values)
                        image = law.cdf(low - 1) + w * law.pmf(low)
                        halves[{4: 1, 9: 3}[block.rows], j, int(image * 16)] += 1
        assert (counts["images"] >= before["images"]).all()
    assert ROWS[2:5] == (4, 8, 64)
    for name, expected in (("images", images), ("pairs", +pairs), ("halves", halves)):
        assert expected
        assert {
            tuple(map(int, at)): int(counts[name][tuple(at)]) for at in np.argwhere(counts[name])
        } == expected


def below(p, q, x, order):
    """The mass of the tokens before x, by brute force."""
    if order == 3:
        width = (len(p) - 1).bit_length()
        scores = [int(f"{y:0{width}b}"[::-1], 2) for y in range(len(p))]
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = (np.where(p > 0, p / q, 0.0), p, np.arange(len(p)))[order]
    return sum(p[y] for y in range(len(p)) if (scores[y], y) < (scores[x], x))


def right(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng)


def test_a_right_verifier_has_no_finding(shaped):
    (result,) = shaped.cases
    assert not result.findings
    assert result.largest_log10_e < 4
    assert result.steps == case_of(FEW).round_steps
    shapes = [table for table in result.tables if table.kind == "shape"]
    assert len({table.where for table in shapes}) == len(shapes)
    assert {table.where.partition(":")[0] for table in shapes} == {
        "rows of a call", "γ", "vocabulary", "row of its call", "call", "place in the step", "kind of row",
        "p/q of the tokens before", "last drafted of γ", "bonus of γ", "distance of two contested places",
        "rows and γ", "tokens", "drafted after the first 16", "kind of row of a bonus",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [THOUSAND, LARGE, LARGEST])
def test_a_right_verifier_has_no_finding_at_large_vocabularies(name):
    assert not judged(right, name).findings


@pytest.mark.parametrize(
    "declared",
    [
        {"dtypes": ("float32",)},
        pytest.param({"dtypes": ("float16",)}, marks=pytest.mark.slow),
        {"batch": 1, "gamma": 4},
        {"lengths": True, "seeds": True},
    ],
    ids=str,
)
def test_declarations_reach_the_calls(declared):
    seen = set()

    def own(draft_tokens, p, q, rng, lengths=None, seeds=None):
        assert p.shape[:2] == (len(draft_tokens), draft_tokens.shape[1] + 1)
        assert q.shape[:2] == draft_tokens.shape
        seen.add((p.dtype.name, len(p), draft_tokens.shape[1], lengths is not None, seeds is not None))
        if lengths is None:
            return verify(draft_tokens, p.astype(float), q.astype(float), rng)
        rngs = (rng if seed is None else np.random.default_rng(seed) for seed in seeds)
        return verified(draft_tokens, p, q, np.stack([one.random(p.shape[1]) for one in rngs]), lengths)

    result = judged(own, FEW, 0.2 if "batch" in declared else 0.1, **declared)
    assert not result.findings
    assert result.steps
    assert {one[0] for one in seen} == {declared.get("dtypes", ("float64",))[0]}
    assert len({one[2] for one in seen}) > 3
    assert all(one[3:] == ("lengths" in declared, "seeds" in declared) for one in seen)


def test_a_child_process_is_given_the_same_rows():
    steps = Span(THOUSAND, KEY, 0, 700)
    with open_subject("verifiers:right", 1, 60.0) as subject:
        there = try_span(subject, steps)
    here = try_span(VerifierSubject("own", Local(right)), steps)
    assert not there.failures
    for name, array in here.counts.items():
        assert np.array_equal(array, there.counts[name])


# --- power -----------------------------------------------------------------------------------------------


def spoiled(chosen, **how):
    """A verifier that is wrong in the rows for which chosen(place in the call, p, q) holds."""

    def own(draft_tokens, p, q, rng):
        output, wrong = (
            verify(draft_tokens, p, q, rng),
            np.broadcast_to(chosen(np.arange(len(p)), p, q), len(p)),
        )
        if wrong.any():
            output[wrong] = verify(draft_tokens[wrong], p[wrong], q[wrong], rng, **how)
        return output

    return own


RESAMPLED = {"residual": "target"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (spoiled(lambda place, p, q: len(p) > 2048, **RESAMPLED), "2,049 or more"),
        (spoiled(lambda place, p, q: q.shape[1] >= 8, lenience=0.6), ""),
        pytest.param(spoiled(lambda place, p, q: p.shape[2] % 32 != 0, **RESAMPLED), "", marks=pytest.mark.slow),
        pytest.param(spoiled(lambda place, p, q: place >= 1024, **RESAMPLED), "", marks=pytest.mark.slow),
        pytest.param(spoiled(lambda place, p, q: p[:, 0].max(axis=1) > 0.9, lenience=0.3), "", marks=pytest.mark.slow),
        pytest.param(spoiled(lambda place, p, q: len(p) & (len(p) - 1) == 0, **RESAMPLED), "", marks=pytest.mark.slow),
    ],
    ids=["calls above 2,048", "γ from 8", "V not a multiple of 32", "rows from 1,024", "peaked rows", "powers of two"],
)  # fmt: skip
def test_a_mistake_in_some_shapes_is_found(wrong, said):
    result = judged(wrong, FEW)
    assert any(finding.kind == "deviation" for finding in result.findings)
    assert any(said in table.where for table in result.tables if table.rejected)


def test_ids_that_do_not_fit_a_narrow_type_are_found():
    def narrow(draft_tokens, p, q, rng):
        output = verify(draft_tokens, p, q, rng)
        each, last = np.arange(len(p)), (output >= 0).sum(axis=1) - 1
        output[each, last] = output[each, last] // 2 * 2
        return output

    result = judged(narrow, FEW, 0.3)
    assert {"support", "deviation"} <= {finding.kind for finding in result.findings}
    assert any(table.rejected and "reversed bits of the id" in table.where for table in result.tables)


@pytest.mark.parametrize("apart", ["half", *(pytest.param(d, marks=pytest.mark.slow) for d in (1, 3, 6, 64))])
def test_rows_of_a_call_that_share_their_random_numbers_are_found(apart):
    def sharing(draft_tokens, p, q, rng):
        rows, own = len(p), int(rng.integers(2**60))
        distance = rows // 2 if apart == "half" else apart
        if distance == 0 or distance >= rows:
            return verify(draft_tokens, p, q, np.random.default_rng(own))
        u = np.random.default_rng(own).random((rows, p.shape[1]))
        first = np.arange(rows) // distance % 2 == 0
        both = np.flatnonzero(first[: rows - distance])
        u[both + distance] = u[both]
        return verified(draft_tokens, p, q, u)

    result = judged(sharing, FEW)
    assert {finding.kind for finding in result.findings} == {"dependent"}
    assert ("half a call apart" if apart == "half" else f"rows {apart} apart") in texts(result)


@pytest.mark.slow
def test_random_numbers_that_are_too_even_in_a_call_are_found():
    def stratified(draft_tokens, p, q, rng):
        rows, width = p.shape[:2]
        strata = rng.permuted(np.tile(np.arange(rows)[:, None], (1, width)), axis=0)
        return verified(draft_tokens, p, q, (strata + rng.random((rows, width))) / rows)

    result = judged(stratified, FEW, rounds=32)
    assert {finding.kind for finding in result.findings} == {"dependent"}
    assert "varies less from call to call" in texts(result)


@pytest.mark.parametrize("which", ["row", pytest.param("call", marks=pytest.mark.slow)])
def test_a_number_that_a_bonus_shares_with_the_next_test_is_found(which):
    """A stream's offset that is one too small: the last number is read twice."""
    kept = [None]

    def overlapping(draft_tokens, p, q, rng):
        u = rng.random(p.shape[:2])
        if which == "row":
            u[1:, 0] = u[:-1, -1]
        elif kept[0] is not None:
            u[0, 0] = kept[0]
        kept[0] = u[-1, -1]
        return verified(draft_tokens, p, q, u)

    result = judged(overlapping, FEW, rounds=2 if which == "row" else 8)
    assert {finding.kind for finding in result.findings} == {"dependent"}
    assert f"the bonus of a row and the first token of the {'next' if which == 'row' else 'first'}" in texts(
        result
    )


@pytest.mark.slow
def test_rows_that_end_together_are_right():
    """Whether a row goes on depends on the next row's first test, and not how it goes on."""

    def together(draft_tokens, p, q, rng):
        u = rng.random(p.shape[:2])
        passed = reference.ratio_test(u[:, :-1], draft_tokens, p[:, :-1], q)
        least = least_of_call(passed)
        last = reference.last_token(draft_tokens, p, q, least, u[:, -1])
        kept = np.flatnonzero(reference.first_failure(passed) > least)
        last[kept] = draft_tokens[kept, least[kept]]
        return reference.pack_output(draft_tokens, least, last)

    result = judged(together, FEW, rounds=8)
    assert not result.findings
    pairs = result.counts["pairs"][len(DISTANCES) + len(CALLS_APART) + 2, 0, 0].reshape(4, 4)
    assert stats.chisquare(pairs.sum(axis=1)).pvalue < FALSE_ALARM  # of the next row's first tokens
    assert stats.chisquare(pairs.sum(axis=0)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("apart", [1, *(pytest.param(d, marks=pytest.mark.slow) for d in (3, 8, 12))])
def test_a_uniform_that_two_places_share_is_found_at_any_distance(apart):
    def sharing(draft_tokens, p, q, rng):
        u = rng.random(p.shape[:2])
        places = np.arange(draft_tokens.shape[1])
        u[:, : len(places)] = u[:, places % apart if apart > 1 else places // 2 * 2]
        return verified(draft_tokens, p, q, u)

    result = judged(sharing, FEW, rounds=1 if apart == 1 else 2)
    assert any(
        table.rejected and f"distance of two contested places: {apart};" in table.where
        for table in result.tables
    )


@pytest.mark.slow
def test_random_numbers_kept_from_call_to_call_are_found():
    kept = {}

    def keeping(draft_tokens, p, q, rng):
        kept.setdefault(p.shape, rng.random((len(p), p.shape[1])))
        return verified(draft_tokens, p, q, kept[p.shape])

    result = judged(keeping, FEW, rounds=2)
    assert any(table.rejected and "successive calls" in table.where for table in result.tables)


def test_what_is_left_of_a_larger_call_is_found():
    seen = [0]

    def stale(draft_tokens, p, q, rng):
        output, before = verify(draft_tokens, p, q, rng), seen[0]
        seen[0] = len(p)
        if 0 < before < len(p):  # the buffers still have the size of the call before
            output[before:] = verify(draft_tokens[before:], p[before:], q[before:], rng, **RESAMPLED)
        return output

    result = judged(stale, FEW)
    assert any(table.rejected and "first after a smaller one" in table.where for table in result.tables)


@pytest.fixture(scope="module")
def shaped():
    """An audit of this case."""
    found = audit(right, "smoke", rng=0, cases=["two-point"], diagnose=False)
    return replace(found, cases=(judged(right, FEW),))


def test_the_report_says_what_each_axis_can_detect(shaped):
    rows = {row["axis"]: row["value: detectable TV"] for row in power_by_axis(shaped)}
    assert [*rows] == [
        "vocabulary", "row of its call", "call", "place in the step", "drafted after the first 16",
        "last drafted of γ", "bonus of γ", "kind of row", "kind of row of a bonus", "p/q of the tokens before", "distance of two contested places",
    ]  # fmt: skip
    said = dict(part.rsplit(": ", 1) for part in rows["call"].split(", ") if ": " in part)
    tables = {table.where: table for table in shaped.cases[0].tables}
    assert said["others"] == f"{tables['call: others; tokens ordered by p/q'].detectable_tv:.3f}"
    assert float(said["first after a larger one"]) > float(said["others"])
    assert "rows of a call" in shaped._repr_html_()


def test_the_json_of_such_a_case_follows_its_schema(shaped):
    schema = json.loads((files("specsim") / "data" / "audit.schema.json").read_text(encoding="utf-8"))
    document = json.loads(json_of(shaped))
    assert not [*jsonschema.Draft202012Validator(schema).iter_errors(document)]
    assert {table["kind"] for table in document["cases"][0]["tables"]} == {
        "PIT", "all", "shape", "pairs", "given", "halves",
    }  # fmt: skip
