"""Where no known mistake fits, a diagnosis says what the tests show, and where to look."""

from types import SimpleNamespace

import numpy as np
import pytest
from cases import cases

from specsim import mistakes
from specsim.adapters._contract import Declared
from specsim.auditing._checks.counts import diagnostic_cases, path_of
from specsim.auditing._checks.shapes import CALLS_APART, DISTANCES, _pair_names
from specsim.auditing._diagnosis import families
from specsim.auditing._diagnosis.families import BONUS, NOTHING, OF_ROWS, RECOVERED, SHARED, TESTS
from specsim.auditing._diagnosis.reproduction import predict
from specsim.auditing._diagnosis.verifiers import EXACT

STEPS = 2**17


def expected(mistake):
    """The expected outcomes of the diagnostic cases whose law is enumerated for each path alone."""
    seen = []
    for case in diagnostic_cases(Declared()):
        law, context = predict(mistake, case).law, tuple(case.contexts[0].tolist())
        paths = [path_of(code, case.vocab_size, case.gamma) for code in range(len(law))]
        drafted = [
            np.prod([case.draft.row(context + path[:i])[x] for i, x in enumerate(path)]) for path in paths
        ]
        seen.append((case, np.rint(STEPS * np.array(drafted)[:, None] * law).astype(np.int64)))
    return seen


@pytest.mark.parametrize("exact", EXACT, ids=lambda one: one.name)
def test_nothing_is_said_of_an_exact_verifier(exact):
    assert families.of_steps(expected(exact), EXACT) == NOTHING


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lenience", [TESTS]),
        ("resamples_target", [RECOVERED]),
        ("bonus_temperature", [BONUS]),
        ("scaled_lenience", [TESTS, RECOVERED]),
        ("last_penalised", [RECOVERED, BONUS]),
    ],
)
def test_the_parts_of_a_step_that_are_wrong_are_told(name, wrong):
    said, where = families.of_steps(expected(mistakes.get(name)), EXACT)
    assert said.startswith(f"Wrong in small cases: {' and '.join(wrong)}. Right there: ")
    assert where == families.OF_PARTS[" and ".join(wrong)]


def test_what_else_is_shown_and_what_is_not():
    shown = {
        "test_uniform_draws": SHARED,
        "recovers_from_next_row": OF_ROWS[False],
        "block_tokenwise_residual": NOTHING,  # the tests of one exact rule, or the residual of another
        "penalty_twice": NOTHING,
    }
    assert {name: families.of_steps(expected(mistakes.get(name)), EXACT) for name in shown} == shown
    said, _ = families.of_steps(expected(mistakes.get("block_first_failure")), EXACT)
    assert said.endswith("Compared with block.")


def table(where, rejected=False, detectable=0.02):
    counts = {"observed": (600.0, 400.0), "expected": (500.0, 500.0), "n": 1000}
    return SimpleNamespace(where=where, rejected=rejected, detectable_tv=detectable, **counts)


def case_of(name, size, failed, tables=(), kernel="rows", uneven=False):
    findings = ("any",) if failed else ()
    made = {"vocab_size": size, "findings": findings, "tables": tables, "kernel": kernel, "uneven": uneven}
    return SimpleNamespace(case=name, powerful=True, largest_log10_e=9.0, **made)


def of_lengths(detectable):
    tables = [table("γ: 1; tokens", detectable=detectable), table("γ: 2; tokens", True)]
    return [case_of("a", 8, True, tables, "calls")]


RESULTS = [
    ([case_of("a", 8, False), case_of("b", 8, True, uneven=True)], "only where drafts of a call differ in"),
    ([case_of("a", 96, False), case_of("b", 1000, True)], "wrong from 1,000 ids on, right up to 96."),
    ([case_of("a", 96, False), case_of("b", 8, True)], None),
    (of_lengths(0.02), "Of 'γ' steps are wrong for these alone: 2."),
    (of_lengths(0.2), None),
]


@pytest.mark.parametrize(("results", "said"), RESULTS)
def test_what_is_right_in_small_cases_shows_where_the_audit_failed(results, said):
    """A value of an axis where as large a deviation would not have shown is not called right."""
    subject = SimpleNamespace(case={one.case: one for one in results}.get)
    failed = [one for one in results if one.findings]
    found = families.of_cases(SimpleNamespace(failed=failed, results=results, subject=subject))
    assert (said in found[0]) if said else found == NOTHING


def test_each_table_of_rows_and_calls_is_known_by_its_name():
    names = [one for one in _pair_names() if one.startswith(("the first tokens of", "the bonuses of"))]
    assert len(names) == 2 * (len(DISTANCES) + len(CALLS_APART))
    assert all(families.PAIRED.match(f"{one}, ordered by id")[1] in one for one in names)


def paired(apart, log10_e):
    where = f"the first tokens of rows {apart} with the same p and q, ordered by id"
    return SimpleNamespace(where=where, log10_e=log10_e)


@pytest.mark.parametrize(*cases(__file__, "dependent rows"))
def test_how_far_apart_dependent_rows_are_is_said(pairs, said):
    failed = [case_of("a", 8, True, [paired(*one) for one in pairs], "calls")]
    found = families.of_pairs(SimpleNamespace(failed=failed))
    assert found == ((said, families.OF_PAIRS[1]) if said else NOTHING)
