"""Reported numbers: true ones pass for every engine's definition; each identity broken alone is seen."""

import itertools
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import cases, data
from hypothesis import given, settings
from hypothesis import strategies as st

import specsim
from specsim import check_metrics
from specsim.core._kernels import interpreted
from specsim.core.distributions import synthetic_pair
from specsim.core.stats import accepted_tokens
from specsim.served._feasible import Range, read
from specsim.served._statements import DEFINITIONS, NOT_KNOWN, statements

PAGE = Path(__file__).parents[2] / "docs/checking-metrics.md"

#: What a guide prints of its example run: 20 accepted in 7 steps do not make 30 tokens.
GUIDE = {
    "gamma": 4, "acceptance_rate": "0.714", "tokens_per_step": "4.29", "accepted": 20, "drafted": 28, "emitted": 30,
    "steps": 7, "bonus": 2,
}  # fmt: skip

#: Logs that people posted, with where. They are true, whatever else they show.
LOGS = data(__file__)["logs"]


def failing(**numbers):
    return [check.name for check in check_metrics(**numbers).checks if not check.holds]


def numbers_of(lengths, engine):
    """What `engine` would report of a run whose steps accepted `lengths`; no text ended early."""
    gamma, steps, accepted = len(lengths) - 1, int(lengths.sum()), accepted_tokens(lengths)
    found = {
        "engine": engine, "gamma": gamma, "steps": steps, "accepted": accepted, "drafted": gamma * steps,
        "emitted": accepted + steps, "bonus": int(lengths[-1]), "tokens_per_step": 1 + accepted / steps,
        "acceptance_rate": accepted / (gamma * steps),
        "by_position": [float(lengths[i:].sum()) / steps for i in range(1, gamma + 1)],
    }  # fmt: skip
    if DEFINITIONS[engine].independent:  # some tests after a rejection were passed as well
        behind = int(lengths[:-1] @ (gamma - 1 - np.arange(gamma)))
        found |= {"emitted": accepted, "accepted": accepted + behind // 2}
    if DEFINITIONS[engine].outside != "none":  # the first tokens of the requests come from the prompt
        found |= {"emitted": accepted + steps + 3, "requests": 3}
    return found


@pytest.fixture(scope="module")
def run():
    with interpreted():  # a few steps are not worth compiling
        return specsim.simulate(*synthetic_pair("zipf", 20, 0.7, rng=0), gamma=4, steps=400, rng=5)


# --- true numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine",  # of the others there are logs below
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("plain", "flashinfer"))) for name in DEFINITIONS],
)  # fmt: skip
def test_a_simulated_run_is_possible(run, engine):
    found = check_metrics(**numbers_of(run.lengths, engine))
    assert found.possible, found.verdict
    assert {"rejected", "draft length", "tokens per step"} <= {check.name for check in found.checks}


@pytest.mark.parametrize("thread", LOGS)
def test_logs_from_the_field_are_possible(thread):
    assert check_metrics(**LOGS[thread]).possible


@pytest.mark.parametrize("size", [pytest.param(10**6, marks=pytest.mark.slow), 10**8])
def test_one_token_is_seen_in_many(size):
    numbers = numbers_of(np.array([3, 1, 4, 1, 5]) * size + np.array([1, 2, 3, 4, 5]), "plain")
    assert check_metrics(**numbers).possible
    for name in ("accepted", "drafted", "emitted"):
        assert not check_metrics(**numbers | {name: numbers[name] + 1}).possible


@pytest.mark.parametrize(*cases(__file__, "wrong digits"))
def test_a_digit_wrong_is_not(thread, wrong):
    assert not check_metrics(**LOGS[thread] | wrong).possible


# --- against every run -----------------------------------------------------------------------------------


@cache
def every_run(engine, gamma, requests):
    """Steps, drafted, accepted, bonus and the accepted at each position, of all runs of up to four steps.

    The last step of a request has a draft of any length, and perhaps no bonus."""
    kinds = {
        (1, length, accepted, bonus and accepted == length, *(accepted > i for i in range(gamma)), last)
        for last, length in itertools.product(range(requests + 1), range(gamma + 1))
        if last or length == gamma or not DEFINITIONS[engine].constant
        for accepted, bonus in itertools.product(range(length + 1), (True, not last))
    }
    layer, found = {(0,) * (5 + gamma)}, set()
    for _ in range(4):
        sums = {tuple(map(sum, zip(*two, strict=True))) for two in itertools.product(layer, kinds)}
        layer = {one for one in sums if one[-1] <= requests}
        found |= layer
    return np.array(sorted({one[:-1] for one in found})).T


def bounds_over_every_run(numbers):
    """The least and most of what follows over the runs that have `numbers`; empty if none has."""
    runs = every_run(numbers["engine"], numbers["gamma"], numbers.get("requests", 0))
    steps, drafted, accepted, bonus = runs[:4]
    counts = {"steps": steps, "drafted": drafted, "accepted": accepted, "bonus": bonus}
    rates = [("acceptance_rate", accepted, drafted), ("tokens_per_step", accepted + steps, steps)]
    given = [(read(name, numbers[name]), *forms) for name, *forms in rates if name in numbers]
    given += [
        (read("by_position", rate), runs[4 + i], steps)
        for i, rate in enumerate(numbers.get("by_position", ()))
    ]
    fits = np.all([counts[name] == numbers[name] for name in counts.keys() & numbers], axis=0)
    for (low, high), form, over in given:
        fits = fits & (form >= low * over - 1e-9) & (form <= high * over + 1e-9)
    ratios = {name: (form, np.ones_like(steps)) for name, form in counts.items() if name not in numbers}
    ratios |= {"α drafted": (accepted, drafted), "α verified": (accepted, accepted + steps - bonus)}
    ratios |= {"tokens per step": (accepted + steps, steps), "drafted per step": (drafted, steps)}
    some = {name: form[fits & (over > 0)] / over[fits & (over > 0)] for name, (form, over) in ratios.items()}
    found = {name: (values.min(), values.max()) for name, values in some.items() if len(values)}
    return {name: ends for name, ends in found.items() if name[0] != "α" or ends != (0, 1)}


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_bounds_are_the_least_and_the_most_of_every_run(count):
    rng, possible = np.random.default_rng(1000), 0
    for _ in range(count):
        engine, requests = [("vllm", 0), ("llama.cpp", 1), ("plain", 0), ("plain", 1)][rng.integers(4)]
        gamma, digits = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        steps, drafted, accepted, bonus, *reached = rng.choice(
            every_run(engine, gamma, requests), axis=1
        ).tolist()
        numbers = {
            "drafted": drafted, "accepted": accepted, "bonus": bonus + int(rng.random() < 0.2),
            "acceptance_rate": f"{accepted / max(drafted, 1):.{digits}f}",
            "by_position": [f"{one / steps:.{digits}f}" for one in reached],
        }  # fmt: skip
        if engine != "plain" or not requests:  # else the mean is of what was emitted, and some was dropped
            numbers["tokens_per_step"] = f"{1 + accepted / steps:.{digits}f}"
        numbers = {name: value for name, value in numbers.items() if rng.random() < 0.5}
        if requests or engine != "plain" or "drafted" not in numbers or rng.random() < 0.5:
            numbers["steps"] = steps  # else they are drafted / γ
        numbers |= {"engine": engine, "gamma": gamma} | ({"requests": requests} if requests else {})
        found, bounds = check_metrics(**numbers), bounds_over_every_run(numbers)
        assert found.possible == bool(bounds), numbers
        implied = {item.name: item.value for item in found.implied if item.name in bounds}
        assert implied == {name: pytest.approx(ends, abs=2e-8) for name, ends in bounds.items()}, numbers
        possible += found.possible
    assert 0.5 * count < possible < count


def test_drafts_of_full_length_settle_the_bonus():
    log = {
        "acceptance_rate": "88.8%",
        "tokens_per_step": "5.44",
        "by_position": "0.983,0.949,0.915,0.881,0.712",
    }
    found = check_metrics(engine="vllm", accepted=262, drafted=295, **log)  # 295 = 59 · 5
    assert {"steps": Range(59, 59), "bonus": Range(42, 42)}.items() <= {one[:2] for one in found.implied}


# --- false ones ------------------------------------------------------------------------------------------


def test_the_guides_run_is_impossible():
    found = check_metrics(**GUIDE)
    [wrong] = [check for check in found.checks if not check.holds]
    assert wrong.statement == "emitted = accepted + steps"
    assert (wrong.left, wrong.right, wrong.slack) == (Range(30, 30), Range(27, 27), -3)
    assert found.conflict == ("accepted 20", "emitted 30", "steps 7")
    assert found.implied == ()
    assert check_metrics(**GUIDE | {"emitted": 27, "tokens_per_step": "3.86"}).possible


def test_the_guides_speed_needs_its_thirty_tokens():
    times = {"draft_time": "9.56", "target_time": "98.1", "step_time": "170.2", "speedup": "2.47x"}
    assert failing(**GUIDE, **times) == ["emitted", "speed-up"]
    assert failing(emitted=30, steps=7, gamma=4, **times) == []


#: A statement's name: numbers that break it and no other, and the same set right.
BROKEN = data(__file__)["broken"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_statement_broken_alone_is_named(name):
    wrong, right = BROKEN[name]
    assert failing(**wrong) == [name]
    assert failing(**wrong | right) == []


def test_every_statement_is_broken_by_some():
    every = {"by_position": "1"} | dict.fromkeys(("speedup", "draft_time", "target_time", "step_time"), 1)
    numbers = {name: Range(1, 1) for name in (*GUIDE, *every, "position 1")}
    sets = numbers, {"bonus": Range(1, 1)}
    known = {one.name for engine in DEFINITIONS.values() for some in sets for one in statements(some, engine)}
    assert known == set(BROKEN)


@pytest.mark.parametrize(*cases(__file__, "consequences"))
def test_what_follows_of_several_numbers_is_seen(numbers, name):
    assert failing(**numbers) == [name]


def test_what_is_at_odds_is_named_and_nothing_else():
    found = check_metrics(**numbers_of(np.array([3, 2, 4]), "plain") | {"bonus": 5})
    assert not found.possible
    names = {re.split(r" [\d.]+$", item)[0] for item in found.conflict}
    assert "bonus" in names
    assert len(names) < 5
    assert not names & {"emitted", "tokens per step"}


# --- digits ----------------------------------------------------------------------------------------------


def test_fewer_digits_tolerate_more():
    numbers = {"gamma": 4, "tokens_per_step": "4.28"}
    assert check_metrics(**numbers, acceptance_rate="0.8").possible
    assert not check_metrics(**numbers, acceptance_rate="0.80").possible
    assert not check_metrics(**numbers, acceptance_rate=0.8).possible


def test_times_of_few_digits_leave_room_for_the_speed_up():
    """A draft of 0.5 and a target of 10.5 are as possible as 1 and 10: up to 4/(1 + 4·0.5/10.5) = 3.36."""
    numbers = {"steps": 100, "drafted": 400, "accepted": 300, "draft_time": "1", "target_time": "10"}
    assert check_metrics(**numbers, speedup="3.35").possible
    assert not check_metrics(**numbers, speedup="3.40").possible


def test_digits_cut_off_may_be_off_by_a_unit():
    numbers = {"accepted": 20, "drafted": 28, "acceptance_rate": "0.7142"}  # 0.714286
    assert not check_metrics(**numbers).possible
    assert check_metrics(**numbers, rounding=1).possible


def test_a_float_is_exact_to_nine_digits():
    exact = {"accepted": 200, "steps": 70, "engine": "vllm"}
    assert check_metrics(**exact, tokens_per_step=270 / 70).possible
    assert not check_metrics(**exact, tokens_per_step=270 / 70 + 1e-7).possible


@pytest.mark.parametrize(*cases(__file__, "as printed"))
def test_a_number_as_printed_is_an_interval(name, value, low, high):
    assert read(name, value) == pytest.approx((low, high), abs=1e-12)


def test_ranges_are_read_easily():
    ends = [(1, 1), (1, 2.5), (1, np.inf), (-np.inf, 1), (-np.inf, np.inf)]
    assert [str(Range(*pair)) for pair in ends] == ["1", "1 to 2.5", "at least 1", "at most 1", "any"]


# --- ends of texts, tokens from no step ------------------------------------------------------------------


def test_a_text_that_ended_within_a_step_needs_its_request():
    numbers = {"gamma": 4, "accepted": 20, "steps": 7, "emitted": 22}
    assert failing(**numbers | {"emitted": 26}) == ["emitted"]
    assert failing(**numbers, requests=1) == []
    assert failing(**numbers | {"emitted": 21}, requests=1) == ["emitted"]
    assert failing(**numbers | {"emitted": 28}, requests=1) == ["emitted"]


def test_a_last_draft_may_be_shorter():
    numbers = {"gamma": 4, "drafted": 26, "steps": 7}
    assert failing(**numbers) == ["draft length"]
    assert failing(**numbers, requests=1) == []


@pytest.mark.parametrize(
    ("engine", "more", "wrong"),
    [("plain", 1, ["emitted"]), ("hf", 1, ["emitted"]), ("sglang", 1, []), ("sglang", 2, ["emitted"]), ("vllm", 9, [])],
)  # fmt: skip
def test_tokens_from_no_counted_step(engine, more, wrong):
    numbers = {"engine": engine, "accepted": 20, "steps": 7, "emitted": 27 + more, "gamma": 4}
    assert failing(**numbers, requests=1) == wrong
    remarks = check_metrics(**numbers).remarks
    assert any("give requests" in remark for remark in remarks) == (DEFINITIONS[engine].outside != "none")


def test_the_mean_of_a_request_may_be_either_in_sglang():
    numbers = {"engine": "sglang", "accepted": 20, "steps": 7, "gamma": 4, "emitted": 28, "requests": 1}
    assert check_metrics(**numbers, tokens_per_step=27 / 7).possible
    assert check_metrics(**numbers, tokens_per_step=28 / 7).possible
    assert failing(**numbers, tokens_per_step=33 / 7) == ["tokens per step"]


# --- definitions, remarks --------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", DEFINITIONS)
def test_a_rate_whose_meaning_is_not_known_is_not_compared(engine):
    numbers = {"engine": engine, "acceptance_rate": "0.10", "accepted": 20, "drafted": 28}
    unknown = DEFINITIONS[engine].acceptance_rate == NOT_KNOWN
    found = check_metrics(**numbers)
    assert found.possible == unknown
    assert any("not known" in remark for remark in found.remarks) == unknown


def test_the_iid_formula_is_a_remark_and_names_its_alpha(run):
    found = check_metrics(**numbers_of(run.lengths, "plain"))
    assert found.possible
    assert any(remark.startswith("i.i.d. formula: with α drafted") for remark in found.remarks)
    steps = np.array([3000, 0, 0, 0, 2000]), np.array([16, 8, 4, 2, 2])  # unlike i.i.d., and as with α = 1/2
    for counted, said in zip(steps, (True, False), strict=True):
        remarks = check_metrics(**numbers_of(counted, "plain")).remarks
        assert any("with α verified" in remark for remark in remarks) == said


# --- whatever the run ------------------------------------------------------------------------------------

SOME_LENGTHS = st.lists(st.integers(0, 400), min_size=2, max_size=5).filter(any).map(np.array)


def printed(numbers, digits):
    """Rates and means with `digits` decimals, as text."""
    text = {name: f"{value:.{digits}f}" for name, value in numbers.items() if isinstance(value, float)}
    text["by_position"] = ", ".join(f"{rate:.{digits}f}" for rate in numbers["by_position"])
    return numbers | text


@pytest.mark.slow  # the simulated run and the logs are possible too
@settings(max_examples=12)
@given(SOME_LENGTHS, st.sampled_from(sorted(DEFINITIONS)), st.integers(1, 5))
def test_numbers_of_any_run_are_possible(lengths, engine, digits):
    found = check_metrics(**printed(numbers_of(lengths, engine), digits))
    assert found.possible, found.verdict


@settings(max_examples=4)
@given(
    SOME_LENGTHS,
    st.sampled_from(
        ["accepted", "drafted", "emitted", "steps", "bonus", "tokens_per_step", "acceptance_rate"]
    ),
)
def test_any_one_number_changed_is_seen(lengths, name):
    numbers = numbers_of(lengths, "plain")
    changed, value = printed(numbers, 6), numbers[name]
    if isinstance(value, int):
        changed[name] = value + 1
    else:
        off = 3e-6 if value < 0.5 or name == "tokens_per_step" else -3e-6
        changed[name] = f"{value + off:.6f}"
    assert not check_metrics(**changed).possible


# --- usage, command line ---------------------------------------------------------------------------------


def test_the_page_has_every_definition():
    page = PAGE.read_text(encoding="utf-8")
    for name, definition in DEFINITIONS.items():
        cells = (
            f"`{name}`", definition.acceptance_rate, definition.tokens_per_step, definition.emitted,
            definition.source,
        )  # fmt: skip
        assert f"| {' | '.join(cells)} |" in page
