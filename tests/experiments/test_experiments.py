"""specsim's own experiments: their rows beside enumeration, closed forms and plain loops, and their
pictures."""

import math
from fractions import Fraction
from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import FALSE_ALARM
from scipy.stats import chi2, norm, t

import figures
from experiments import _kept
from experiments._kept import lacking
from experiments._tables import table
from experiments.literature import synthetic_acceptance
from experiments.simulation import iid_gap, lossy_speed, precision
from specsim import default_pair, draft_log
from specsim.core.distributions import dyadic, round_to, synthetic_pair
from specsim.core.stats import chi_square
from specsim.models import TableModel
from specsim.models._processed import process
from specsim.theory import acceptance_rate, expected_tokens, markov_steps
from specsim.traces import default_trace, summarise


@pytest.fixture(scope="module")
def fast(tmp_path_factory, bank, full):
    """The fast table of an experiment: fast("precision")."""
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        if not full:
            patch.setattr(lossy_speed, "LOSSY", lossy_speed.LOSSY[:3])
            patch.setattr(lossy_speed, "LOSSLESS", lossy_speed.LOSSLESS[:2])
        yield lambda name: bank(f"table-{name}", lambda: table(name, folder, fast=True))


def rows_of(found, **values):
    return [row for row in found.to_pylist() if all(row[name] == value for name, value in values.items())]


def only(found, **values):
    (row,) = rows_of(found, **values)
    return row


def of_settings(found, quantity):
    """{setting: {x: value}} of a quantity."""
    return {
        setting: {row["x"]: row["value"] for row in rows_of(found, setting=setting, quantity=quantity)}
        for setting in synthetic_acceptance.SETTINGS
    }


# --- two logs ---------------------------------------------------------------------------------------------


def test_two_logs_are_measured_with_both_rules_beside_the_formula(fast):
    found = fast("logged_models")
    for log, gammas in (("ngram", 4), ("transformers", 4)):
        standard, block = (rows_of(found, log=log, rule=rule) for rule in ("standard", "block"))
        assert [row["gamma"] for row in standard] == [*range(1, gammas + 1)]
        low, high = summarise(default_trace(log)).beta_by_position[0]
        assert low - 0.02 < standard[0]["alpha"] < high + 0.02
        assert standard[0]["formula"] == pytest.approx(standard[0]["tokens_per_step"])
        for one, other in zip(standard, block, strict=True):
            assert one["low"] < one["tokens_per_step"] < one["high"]
            assert other["tokens_per_step"] >= one["tokens_per_step"] - 1e-9
            geometric = sum(one["alpha"] ** k for k in range(one["gamma"] + 1))
            assert one["formula"] == pytest.approx(geometric)
        assert standard[-1]["tokens_per_step"] > standard[-1]["formula"], "acceptances cling together"


def test_measured_speeds_are_no_larger_than_free_verification_allows(fast):
    assert all(row["speedup"] < row["formula"] < row["free"] for row in fast("measured_speed").to_pylist())


# --- acceptance against temperature ----------------------------------------------------------------------


def overlap_by_hand(p, q, quantity, sides, value):
    """The mean of Σ min(p, q) over contexts."""
    betas = []
    for one, other in zip(p.tolist(), q.tolist(), strict=True):
        setting = {quantity.replace("-", "_"): value}
        a = process(one, **setting)
        b = process(other, **setting) if sides == "both" else other
        betas.append(math.fsum(map(min, a, b)))
    return math.fsum(betas) / len(betas)


def fast_pairs(name):
    if name != "n-gram":
        return (
            np.array(side)
            for side in zip(*(synthetic_pair(name, 256, 0.7, rng=k) for k in range(16)), strict=True)
        )
    target, draft = default_pair()
    return target.rows(target.contexts[::64]), draft.rows(target.contexts[::64])


@pytest.mark.parametrize("pair", [pytest.param("n-gram", marks=pytest.mark.slow), "zipf", "dirichlet"])
@pytest.mark.parametrize(
    ("quantity", "sides", "value"),
    [
        ("temperature", "both", 0.5), ("temperature", "target", 0.0), ("temperature", "target", 1.5),
        ("top-k", "both", 4), ("top-p", "both", 0.6),
    ],
)  # fmt: skip
def test_acceptance_is_that_of_plain_loops(fast, pair, quantity, sides, value):
    found = only(fast("acceptance_by_temperature"), pair=pair, quantity=quantity, sides=sides, value=value)
    right = overlap_by_hand(*fast_pairs(pair), quantity, sides, value)
    assert found["alpha"] == pytest.approx(right, abs=1e-12)
    other = "target" if sides == "both" else "both"
    assert found["alpha"] != pytest.approx(
        overlap_by_hand(*fast_pairs(pair), quantity, other, value), abs=1e-3
    )


def test_acceptance_where_nothing_is_reshaped_and_where_the_argmax_is_left(fast):
    found = fast("acceptance_by_temperature")
    for pair in ("n-gram", "zipf", "dirichlet"):
        ends = (
            ("temperature", "both", 1),
            ("temperature", "target", 1),
            ("top-k", "both", 256),
            ("top-p", "both", 1),
            ("lenience", "both", 1),
        )
        plain = [only(found, pair=pair, quantity=a, sides=b, value=c)["alpha"] for a, b, c in ends]
        assert plain == pytest.approx([np.minimum(*fast_pairs(pair)).sum(axis=1).mean()] * 5, abs=1e-12)
        p, q = fast_pairs(pair)
        greedy = (p.argmax(axis=1) == q.argmax(axis=1)).mean()
        assert only(found, pair=pair, quantity="top-k", value=1)["alpha"] == pytest.approx(greedy)
        assert only(found, pair=pair, quantity="temperature", sides="both", value=0)[
            "alpha"
        ] == pytest.approx(greedy)


def test_acceptance_with_lenience_is_computed_and_drawn(fast):
    found, (p, q) = fast("acceptance_by_temperature"), fast_pairs("zipf")
    alpha = only(found, pair="zipf", quantity="lenience", value=0.4)["alpha"]
    assert alpha == pytest.approx(np.minimum(p / 0.4, q).sum(axis=1).mean(), abs=1e-12)
    plain = only(found, pair="zipf", quantity="lenience", value=1.0)["alpha"]
    for axis, y in zip(figures.get("acceptance_by_lenience").draw(found).axes, (0, plain), strict=True):
        assert (0.4, alpha - y) in {
            point for line in axis.get_lines() for point in zip(*line.get_data(), strict=True)
        }


def test_acceptance_depends_on_temperature(fast):
    """By more than its errors."""
    for pair, sides in (("n-gram", "target"), *product(("zipf", "dirichlet"), ("both", "target"))):
        rows = rows_of(fast("acceptance_by_temperature"), pair=pair, quantity="temperature", sides=sides)
        low, high = (pick(rows, key=lambda row: row["alpha"]) for pick in (min, max))
        assert high["alpha"] - low["alpha"] > 4 * (high["error"] + low["error"])


# --- what independence gets wrong ------------------------------------------------------------------------

#: An easy context and a hard one, each mostly followed by itself; by the token before.
CLINGING_P = np.array([[0.90, 0.10], [0.15, 0.85]])
CLINGING_Q = np.array([[0.85, 0.15], [0.75, 0.25]])
FAR = t.isf(FALSE_ALARM / 2, iid_gap.BLOCKS - 1)


@pytest.fixture(scope="module")
def clinging():
    """The rows of `iid_gap` for one log of the pair above."""
    log = draft_log(TableModel(CLINGING_P), TableModel(CLINGING_Q), 2**14, rng=5, ahead=0)
    return list(iid_gap._rows_of(log)), log


def values(rows, quantity, of):
    return {
        row["x"] if row["c"] is None else row["c"]: (row["value"], row["error"])
        for row in rows
        if (row["quantity"], row["of"]) == (quantity, of)
    }


def off_exact(rows):
    """How many standard errors the rows are from the exact chain of steps, at most, quantity by quantity."""
    found = dict.fromkeys(
        ("measured", "anywhere", "alpha_context", "alpha_verified", "alpha_drafted", "formula"), 0.0
    )
    accept = np.minimum(CLINGING_P, CLINGING_Q)
    law = np.array([0.6, 0.4])  # of the text: .4·.15 = .6·.1
    for gamma in (1, 2, 3, 5, 8, 13, 24):
        exact = markov_steps(CLINGING_P, CLINGING_Q, gamma)
        anywhere = sum(float((law @ np.linalg.matrix_power(accept, k)).sum()) for k in range(gamma + 1))
        for key, quantity, of, right in (
            ("measured", "tokens per step", "measured", exact.tokens_per_step),
            ("anywhere", "tokens per step", "anywhere", anywhere),
            ("alpha_context", "alpha", "alpha_context", exact.alpha_context),
            ("alpha_verified", "alpha", "alpha_verified", exact.alpha_verified),
            ("alpha_drafted", "alpha", "alpha_drafted", exact.alpha_drafted),
            ("formula", "tokens per step", "alpha_context", exact.tokens_per_step),
        ):
            value, error = values(rows, quantity, of)[gamma]
            found[key] = max(found[key], abs(value - right) / error)
    return found


def test_tokens_and_alphas_along_a_text_are_those_of_the_exact_chain(clinging):
    off = off_exact(clinging[0])
    # the negative control: the formula is no such thing
    assert off.pop("formula") > FAR
    assert max(off.values()) < FAR


def test_a_measurement_that_is_a_little_off_is_seen(clinging):
    for quantity, of, key in (
        ("tokens per step", "measured", "measured"),
        ("tokens per step", "anywhere", "anywhere"),
        ("alpha", "alpha_verified", "alpha_verified"),
        ("alpha", "alpha_drafted", "alpha_drafted"),
    ):
        rows = [
            {**row, "value": 1.1 * row["value"]} if (row["quantity"], row["of"]) == (quantity, of) else row
            for row in clinging[0]
        ]
        assert off_exact(rows)[key] > FAR


def test_overstatement_follows_from_the_other_rows_and_is_positive_where_acceptances_cling(clinging):
    rows, _ = clinging
    tokens = values(rows, "tokens per step", "measured")
    for of in iid_gap.ALPHAS:
        alphas, over = values(rows, "alpha", of), values(rows, "overstatement", of)
        for gamma, (alpha, _) in alphas.items():
            formula = (1 - alpha ** (gamma + 1)) / (1 - alpha)
            assert values(rows, "tokens per step", of)[gamma][0] == pytest.approx(formula)
            assert over[gamma][0] == pytest.approx(formula / tokens[gamma][0] - 1)
    value, error = values(rows, "overstatement", "alpha_context")[2]
    assert value > 5 * error
    assert values(rows, "overstatement", "alpha_drafted")[2][0] < 0


def test_standard_errors_along_a_text_are_those_of_repeated_texts(full):
    found, texts = [], 40 if full else 20
    for seed in range(texts):
        log = draft_log(TableModel(CLINGING_P), TableModel(CLINGING_Q), 2**11, rng=seed, ahead=0)
        found.append(iid_gap.measure(log, 3))
    for key in (("tokens per step", "measured"), ("overstatement", "alpha_context")):
        value, error = np.array([each[key] for each in found]).T
        spread = ((value - value.mean()) ** 2).sum() / (error**2).mean()
        for scale, right in ((1.0, True), (0.4, False)):
            tail = 2 * min(one(spread / scale**2, texts - 1) for one in (chi2.sf, chi2.cdf))
            assert (tail > FALSE_ALARM) == right


def test_autocorrelation_is_that_of_plain_loops(clinging):
    rows, log = clinging
    for of, series in (("acceptance", (log.accepted == 1).tolist()), ("β", log.beta.tolist())):
        mean = math.fsum(series) / len(series)
        total = math.fsum((x - mean) ** 2 for x in series)
        for lag in (1, 2, 20):
            products = ((a - mean) * (b - mean) for a, b in zip(series, series[lag:], strict=False))
            value, error = values(rows, "autocorrelation", of)[lag]
            assert value == pytest.approx(math.fsum(products) / total, abs=1e-12)
            assert error == len(series) ** -0.5


def test_autocorrelation_leaves_the_band_for_text_and_stays_for_independent_values(clinging):
    series = clinging[1].beta
    band = norm.isf(FALSE_ALARM / 2) * len(series) ** -0.5
    assert iid_gap.autocorrelation(series, range(1, 2))[0] > band
    shuffled = np.random.default_rng(1).permutation(series)
    assert max(map(abs, iid_gap.autocorrelation(shuffled, range(1, 21)))) < band
    assert iid_gap.autocorrelation([1.0, 1.0, 1.0], range(1, 3)) == [0.0, 0.0]


def test_best_gamma_and_what_another_one_loses(clinging):
    rows, _ = clinging
    tokens = values(rows, "tokens per step", "measured")
    for c in iid_gap.COSTS:
        speed = {gamma: value / (gamma * c + 1) for gamma, (value, _) in tokens.items()} | {0: 1.0}
        for of in ("measured", *iid_gap.ALPHAS):
            gamma, lost = (
                values(rows, quantity, of)[c][0] for quantity in ("best gamma", "improvement lost")
            )
            assert lost == pytest.approx(1 - speed[gamma] / max(speed.values()))
            if of == "measured":
                assert lost == 0
            else:
                alpha = values(rows, "alpha", of)[iid_gap.RUN][0]
                by_formula = [expected_tokens(alpha, g) / (g * c + 1) for g in range(25)]
                assert gamma == int(np.argmax(by_formula))


def test_the_gap_of_the_n_gram_pair_has_both_drafts(fast):
    found = fast("iid_gap")
    for weight, alpha in ((0.0, 0.41), (0.7, 0.82)):
        assert only(found, weight=weight, quantity="alpha", of="alpha_context", x=1)[
            "value"
        ] == pytest.approx(alpha, abs=0.02)
        for gamma in (2, 5, 12):
            here = {"weight": weight, "quantity": "tokens per step", "x": gamma}
            row = {
                of: only(found, **here, of=of)["value"] for of in ("measured", "anywhere", "alpha_drafted")
            }
            assert row["alpha_drafted"] < row["measured"] < row["anywhere"]


# --- rounding --------------------------------------------------------------------------------------------


def exact_distance(p, q, dtype, drafts):
    """The total variation in fractions, token by token."""
    given_p, given_q = ([Fraction(float(x)) for x in round_to(row, dtype)] for row in (p, q))
    if drafts == "none":
        law = [a / sum(given_p) for a in given_p]
    else:
        origin = given_q if drafts == "from the rounded q" else [Fraction(x) for x in q.tolist()]
        drawn = [b / sum(origin) for b in origin]
        law = [Fraction(0)] * len(p)
        rejected = Fraction(0)
        for x, mass in enumerate(drawn):
            passes = min(Fraction(1), given_p[x] / given_q[x]) if given_q[x] else Fraction(given_p[x] > 0)
            law[x] += mass * passes
            rejected += mass * (1 - passes)
        residual = [max(a - b, Fraction(0)) for a, b in zip(given_p, given_q, strict=True)]
        law = [a + rejected * r / sum(residual) for a, r in zip(law, residual, strict=True)]
    return float(sum(abs(a - Fraction(b)) for a, b in zip(law, p.tolist(), strict=True)) / 2)


@pytest.mark.parametrize("tail", precision.TAILS)
@pytest.mark.parametrize("dtype", precision.DTYPES)
def test_distances_are_those_of_fractions(fast, tail, dtype):
    pairs = [precision._pair(tail, 32, seed) for seed in range(precision.FAST_PAIRS)]
    right = {drafts: [exact_distance(p, q, dtype, drafts) for p, q in pairs] for drafts in precision.DRAFTS}
    for drafts in precision.DRAFTS:
        row = only(fast("precision"), tail=tail, vocab_size=32, dtype=dtype, drafts=drafts)
        assert row["tv"] == pytest.approx(np.mean(right[drafts]), rel=1e-6)
        assert row["largest"] == pytest.approx(max(right[drafts]), rel=1e-6)
        # the negative control: another origin of drafts is another distance
        for other in set(precision.DRAFTS) - {drafts}:
            assert row["tv"] != pytest.approx(np.mean(right[other]), rel=1e-3)


def test_rows_that_need_no_rounding_give_the_target():
    p, q = (dyadic(row, bits=7) for row in synthetic_pair("zipf", 16, 0.7, rng=0))
    for dtype in precision.DTYPES:
        assert precision._distances(p, q, dtype) == pytest.approx([0.0, 0.0, 0.0], abs=1e-15)
    law = precision.first_token_law(p, q, np.roll(q, 1))
    assert np.abs(law - p).sum() > 0.1


def test_a_draft_of_probability_zero_and_a_residual_without_mass():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 0.0])
    drafts = np.array([0.5, 0.25, 0.25])
    # .25 of token 0 pass and all of token 1, the rest is token 1
    assert precision.first_token_law(p, q, drafts) == pytest.approx([0.25, 0.75, 0.0])
    low = np.array([0.4, 0.4])
    assert precision.first_token_law(low, np.array([0.5, 0.5]), np.array([0.5, 0.5])) == pytest.approx(
        [0.5, 0.5]
    )


def test_to_divide_a_rounded_row_by_its_sum_and_round_again_changes_nothing():
    for tail, size, dtype in product(precision.TAILS, precision.SIZES, precision.DTYPES):
        for row in precision._pair(tail, size, 0):
            rounded = round_to(row, dtype)
            assert np.array_equal(round_to(rounded / rounded.sum(), dtype), rounded)
            assert not np.array_equal(rounded, row)


def test_what_rounding_costs_by_dtype_and_size(fast):
    tv = {
        (row["tail"], row["dtype"], row["vocab_size"]): row["tv"]
        for row in rows_of(fast("precision"), drafts="from the rounded q")
    }
    for tail, size in product(precision.TAILS, precision.SIZES):
        assert tv[tail, "float32", size] < 1e-7 < 1e-5 < tv[tail, "bfloat16", size] < 2e-3
        assert (tv[tail, "float16", size] < tv[tail, "bfloat16", size]) == (size < 131_072)
    for row in rows_of(fast("precision"), drafts="from the unrounded q"):
        assert 0.9 < row["tv"] / tv[row["tail"], row["dtype"], row["vocab_size"]] < 1.5


# --- synthetic acceptance --------------------------------------------------------------------------------


def law_by_tests(rates):
    """The law of τ where position i is tested with rates[i]/rates[i - 1], over all outcomes of all tests."""
    law = [0.0] * (len(rates) + 1)
    for outcomes in product((True, False), repeat=len(rates)):
        probability, before = 1.0, 1.0
        for passed, rate in zip(outcomes, rates, strict=True):
            conditional = rate / before if before else 0.0
            probability *= conditional if passed else 1.0 - conditional
            before = rate
        law[(*outcomes, False).index(False)] += probability
    return law


def law(setting, length=3.4, gamma=5):
    return synthetic_acceptance.SETTINGS[setting].law(length, gamma)


def test_laws_of_rates_are_those_of_the_tests_at_each_position():
    for rates in ([0.9, 0.5, 0.2], [1.0, 0.6, 0.0], [0.3, 0.3, 0.3]):
        assert synthetic_acceptance.law_of_rates(rates) == pytest.approx(law_by_tests(rates), abs=1e-15)
    assert synthetic_acceptance.law_of_rates([0.9, 0.5, 0.2]) != pytest.approx(law_by_tests([0.9, 0.5, 0.3]))
    # vllm-project/vllm#40662: a length of 2.6 for three tokens
    assert law("vLLM, length", 2.6, 3) == pytest.approx(law_by_tests([1.0, 0.6, 0.0]))
    assert law("vLLM, equal rates") == pytest.approx(law_by_tests([0.48] * 5))
    # ggml-org/llama.cpp#27711: the rates of its own test
    rates = np.cumsum(law("llama.cpp, length", 3.4, 4)[::-1])[::-1][1:]
    assert rates == pytest.approx([0.80581, 0.64933, 0.52323, 0.42163], abs=1e-5)


def test_the_rounded_normal_is_that_of_draws():
    draws = np.random.default_rng(3).normal(2.3, 1.0, 200_000).clip(1.0, 6.0)
    exact = law("SGLang, multinomial", 2.3)
    for rounded, right in ((np.rint(draws), True), (np.floor(draws), False)):
        counts = np.bincount(rounded.astype(int) - 1, minlength=6)
        assert (chi_square(counts, exact).p_value > FALSE_ALARM) == right


def test_every_setting_has_its_mean_but_one(fast):
    found = fast("synthetic_acceptance")
    probabilities, means = (of_settings(found, quantity) for quantity in ("probability", "mean"))
    for setting in synthetic_acceptance.SETTINGS:
        assert sum(probabilities[setting].values()) == pytest.approx(1)
        assert min(probabilities[setting].values()) >= 0
        misses = [value - x for x, value in means[setting].items()]
        if setting == "SGLang, multinomial":
            assert (misses[0], misses[-1]) == pytest.approx((0.38179, -0.38179), abs=1e-5)
        else:
            assert misses == pytest.approx([0.0] * len(misses), abs=1e-9)


def test_the_extremes_of_variance(fast):
    """Neighbours have the least that a mean allows, all or nothing the most."""
    deviations = of_settings(fast("synthetic_acceptance"), "deviation")
    for length, deviation in deviations["llama.cpp, length"].items():
        share = length - math.floor(length)
        assert deviations["vLLM, length"][length] == pytest.approx((share * (1 - share)) ** 0.5, abs=1e-6)
        assert deviations["vLLM, equal rates"][length] == pytest.approx(
            ((length - 1) * (6 - length)) ** 0.5, abs=1e-6
        )
        assert deviations["vLLM, length"][length] <= deviation + 1e-9
        assert deviation <= deviations["vLLM, equal rates"][length] + 1e-9


def test_improvement_with_settings_left_as_they_were_fitted(fast):
    curves = of_settings(fast("synthetic_acceptance"), "improvement")
    for gamma in range(3, 17):
        for setting in ("vLLM, length", "llama.cpp, length", "SGLang, match-expected"):
            assert curves[setting][gamma] == pytest.approx(3.4 / (1 + 0.05 * gamma))
        assert curves["vLLM, equal rates"][gamma] == pytest.approx((1 + 0.48 * gamma) / (1 + 0.05 * gamma))
    assert min(curves["vLLM, length"]) == min(curves["llama.cpp, length"]) == 3
    assert curves["SGLang, match-expected"][1] == pytest.approx(2 / 1.05)
    independent = curves["independent acceptances"]
    assert max(independent, key=independent.get) == 7


def test_the_steps_of_a_request_are_those_of_enumeration():
    three = np.array([0.5, 0.2, 0.3])
    finished = synthetic_acceptance.finished_after(three, 4)
    for steps, probability in enumerate(finished):
        every = product(range(3), repeat=steps)
        right = sum(math.prod(three[list(each)]) for each in every if sum(each) + steps >= 4)
        assert probability == pytest.approx(right, abs=1e-15)
    assert finished != pytest.approx(synthetic_acceptance.finished_after(three[::-1], 4), abs=0.1)


def test_a_batch_waits_for_its_last_request(fast):
    """The mean of the largest of 16 numbers of steps, drawn."""
    rng = np.random.default_rng(2)
    for setting, shared in (("llama.cpp, length", False), ("SGLang, match-expected", True)):
        tokens = rng.choice(6, p=law(setting), size=(2000, 1 if shared else 16, 128)) + 1
        steps = (tokens.cumsum(axis=2) < 128).sum(axis=2).max(axis=1) + 1
        row = only(fast("synthetic_acceptance"), setting=setting, quantity="improvement of a batch", x=16)
        exact = 128 / (row["value"] * 1.25)
        error = steps.std(ddof=1) / 2000**0.5
        assert abs(steps.mean() - exact) < norm.isf(FALSE_ALARM / 2) * error
        assert abs(steps.mean() - 1.05 * exact) > norm.isf(FALSE_ALARM / 2) * error


# --- lossy rules -----------------------------------------------------------------------------------------


def lenience_of(row):
    return float(row["rule"].partition("=")[2])


def test_the_bias_of_lenience_is_what_it_accepts_more(fast):
    """TV = α(l) - α(1) for the residual (p - q)₊, over the very contexts; more for the other."""
    target, draft = default_pair()
    p, q = target.rows(target.contexts[::64]), draft.rows(target.contexts[::64])
    rows = rows_of(fast("lossy_speed"), line="lenience")
    scaled = rows_of(fast("lossy_speed"), line="scaled_lenience")
    assert len(rows) == 9
    for row, other in zip(rows, scaled, strict=True):
        right = float(np.mean(acceptance_rate(p, q, lenience_of(row)) - acceptance_rate(p, q)))
        assert row["tv"] == pytest.approx(right, abs=1e-12)
        assert row["tokens"] == other["tokens"]
        if lenience_of(row) < 1:
            assert other["tv"] > 1.04 * row["tv"]


def test_no_lenience_is_the_standard_rule(fast):
    found = fast("lossy_speed")
    standard = only(found, rule="standard", group="lossy")
    assert standard["tv"] == 0
    for line in ("lenience", "scaled_lenience"):
        row = only(found, rule=f"{line}:lenience=1")
        assert (row["tokens"], row["tv"]) == (standard["tokens"], pytest.approx(0, abs=1e-12))
    for row in found.to_pylist():
        assert row["improvement"] == pytest.approx(row["tokens"] / 1.25)


def test_tokens_of_lenience_for_one_pair_are_the_closed_form(monkeypatch):
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    monkeypatch.setattr(lossy_speed, "default_pair", lambda: (p, q))
    monkeypatch.setattr(lossy_speed, "LOSSY", ("standard", "lenience"))
    monkeypatch.setattr(lossy_speed, "LOSSLESS", ("standard",))
    monkeypatch.setattr(lossy_speed, "FAST_STEPS", 2**14)
    rows = lossy_speed.run(fast=True, rng=0, progress=None)
    assert [row["group"] for row in rows] == ["lossy"] * 10 + ["lossless"]
    for row in rows[1:10]:
        alpha = acceptance_rate(p, q, lenience_of(row))
        assert row["tv"] == pytest.approx(alpha - 0.7, abs=1e-12)
        closed = expected_tokens(alpha, 5)
        far = norm.isf(FALSE_ALARM / 2) * row["error"]
        assert abs(row["tokens"] - closed) <= far + 1e-12  # where all pass there is no error
        assert abs(1.1 * row["tokens"] - closed) > far


# --- pictures --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def points_drawn(fast):
    """The points in the picture of an experiment, which is drawn once: points_drawn("precision")."""

    @cache
    def points_of(name):
        return {
            (float(x), float(y))
            for axis in figures.get(name).draw(fast(name)).axes
            for line in axis.get_lines()
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        }

    return points_of


@pytest.mark.parametrize(
    ("name", "x", "y", "values"),
    [
        *(
            ("acceptance_by_temperature", "value", "alpha", {"quantity": one})
            for one in ("temperature", "top-k")
        ),
        ("iid_gap", "x", "value", {"quantity": "tokens per step"}),
        ("iid_gap", "x", "value", {"quantity": "autocorrelation", "weight": 0.0}),
        ("precision", "vocab_size", "tv", {}),
        ("synthetic_acceptance", "x", "value", {"quantity": "probability"}),
        ("synthetic_acceptance", "x", "value", {"quantity": "deviation"}),
        ("synthetic_acceptance", "x", "value", {"quantity": "improvement"}),
        ("synthetic_acceptance", "x", "value", {"quantity": "improvement of a batch"}),
        ("lossy_speed", "tv", "tokens", {"group": "lossy"}),
    ],
)
def test_what_is_drawn_is_the_table(fast, points_drawn, name, x, y, values):
    points = points_drawn(name)
    wanted = {
        (float(row[x]), row[y]) for row in rows_of(fast(name), **values) if row.get("line") != "standard"
    }
    assert wanted
    assert wanted <= points
    assert not {(a, b + 0.01) for a, b in wanted} <= points


def test_points_in_groups_are_the_table(fast):
    found = fast("iid_gap")
    *_, axis = figures.get("iid_gap").draw(found).axes
    drawn = sorted(float(y) for line in axis.get_lines() for y in line.get_ydata())
    assert drawn == sorted(row["value"] for row in rows_of(found, quantity="best gamma"))


def test_a_page_names_what_its_rows_lack():
    rows = [{"mistake": "a"}, {"mistake": "c"}]
    assert lacking([("a", "1"), ("a", "2"), ("c", "1")], rows, "mistake") == ""
    said = lacking([("a", "1"), ("b", "1"), ("b", "2"), ("c", "1"), ("d", "1")], rows, "mistake")
    assert said == "Added since, and not in this table: `b`, `d`."


def test_cells_are_run_again_by_the_beginning_of_their_names(monkeypatch):
    kept = [{"name": name, "at": "x"} for name in ("mlx", "mlx-lm", "vllm")]
    cells = [tuple(row.values()) for row in kept]
    module = SimpleNamespace(cells=lambda fast: cells, run_cell=lambda cell, **_: cell[0])
    monkeypatch.setattr(_kept.experiments, "get", lambda _: module)
    monkeypatch.setattr(_kept, "kept", lambda _: kept)
    assert _kept.renewed("engines", ["ml"], rng=0) == ["mlx", "mlx-lm", kept[2]]
    with pytest.raises(ValueError, match="engines: no cell begins with lm"):
        _kept.renewed("engines", ["vllm", "lm"], rng=0)
