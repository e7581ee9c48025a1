"""Rows after bias, penalties and truncation: those of a second implementation, token by token."""

import math
import re
import statistics
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from specsim.engines import Sampling
from specsim.engines._planted.processing import ORDERS, Seen, possible_orders, processed

PROMPT, TEXT = (0, 1, 1), (2, 1, 2, 2)
SCORES = np.array([1.0, -0.5, 2.0, 0.25, -np.inf])
PENALTIES = {"repetition_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}
BIAS = {"logit_bias": ((0, 1.5), (3, -100.0))}


def by_hand(sampling, repeated, subtracted, steps):
    """The row after a text, where penalties count the tokens `repeated` and `subtracted`."""
    found = {token: score for token, score in enumerate(SCORES) if score > -np.inf}
    for step in steps:
        for token in [*found]:
            if step == "temperature":
                found[token] /= sampling.temperature
            elif step == "bias":
                found[token] += dict(sampling.logit_bias).get(token, 0.0)
            elif step == "repetition" and token in repeated:
                up = found[token] > 0
                found[token] *= 1 / sampling.repetition_penalty if up else sampling.repetition_penalty
            elif step == "others":
                found[token] -= sampling.frequency_penalty * list(subtracted).count(token)
                found[token] -= sampling.presence_penalty * (token in subtracted)
    weights = np.array([np.exp(found.get(token, -np.inf)) for token in range(len(SCORES))])
    weights[[token for token, bias in sampling.logit_bias if bias == -100.0]] = 0.0
    return weights / weights.sum()


def row(sampling, order, last=None):
    """The row of specsim after the same text, which is the second of two."""
    tokens = np.array([(4,) * 7, (*PROMPT, *TEXT)])
    seen = Seen(tokens, np.array([1, len(PROMPT)]), np.array([1]), np.array([tokens.shape[1]]))
    return processed(SCORES[None], sampling, order, seen)[0]


@pytest.mark.parametrize("last", [None, 2, 5])
@pytest.mark.parametrize(
    ("head", "steps"),
    [
        ("bias, {}, temperature", "bias {} temperature"),
        ("{}, bias, temperature", "{} bias temperature"),
        ("bias, temperature, {}", "bias temperature {}"),
        ("{}, temperature, bias", "{} temperature bias"),
    ],
)
def test_penalties_count_what_the_name_of_the_order_says(head, steps, last):
    sampling = Sampling(temperature=0.7, penalty_last_n=last, **PENALTIES, **BIAS)
    window = (*PROMPT, *TEXT)[-last:] if last else (*PROMPT, *TEXT)
    new = TEXT[-last:] if last else TEXT
    readings = {
        "penalties": (window, new, "repetition others"),
        "penalties of prompt and text": (window, window, "repetition others"),
        "penalties of the text": (new, new, "repetition others"),
        "penalties with repetition last": (window, new, "others repetition"),
    }
    for name, (repeated, subtracted, parts) in readings.items():
        order = f"{head.format(name)}, top-k, top-p, min-p"
        assert order in possible_orders(sampling)
        expected = by_hand(sampling, repeated, subtracted, steps.format(parts).split())
        np.testing.assert_allclose(row(sampling, order), expected, atol=1e-12)


def test_a_least_length_bans_the_stop_id():
    late, soon = (Sampling(stop_ids=(2,), min_tokens=n) for n in (len(TEXT) + 1, len(TEXT)))
    assert row(late, ORDERS[0])[2] == 0.0 < row(soon, ORDERS[0])[2]


def test_banned_words_are_those_that_would_end_a_sequence():
    """The text ends in 2, 1, 2, 2 after a prompt that ends in 1, 1; of allowed ids alone tokens come."""
    for word, order, banned in [
        ((0,), "bad words", True), ((2, 2, 0), "bad words", True), ((1, 2, 0), "bad words", False),
        ((*TEXT, 0), "bad words of the text", True), ((1, *TEXT, 0), "bad words of the text", False),
        ((1, *TEXT, 0), "bad words", True), ((*PROMPT, *TEXT, 0), "bad words", True),
        ((4, *PROMPT, *TEXT, 0), "bad words", False),
    ]:  # fmt: skip
        sampling = Sampling(temperature=0.7, allowed_token_ids=(0, 2, 3), bad_words=((3,), word))
        names = [f"{one}, {ORDERS[0]}" for one in ("bad words", "bad words of the text")]
        assert possible_orders(sampling) == (names if len(word) > 1 else [ORDERS[0]])
        kept = np.exp(np.where([not banned, False, True, False, False], SCORES, -np.inf) / 0.7)
        np.testing.assert_allclose(row(sampling, f"{order}, {ORDERS[0]}"), kept / kept.sum(), atol=1e-12)


def test_a_grammar_lets_come_what_begins_one_of_its_texts():
    """Those of a regular expression, all of them enumerated: its end-of-text comes where one is whole."""
    grammar, form = (
        (((0, 0), (1, 1), (3, 0)), ((0, 0), (1, 2)), ((3, 0), (1, 3)), ((4, 3),)),
        "(a|d|ba|bbd)*bbb",
    )
    every = ["".join(text) for n in range(8) for text in product("abcd", repeat=n)]
    whole = {text for text in every if re.fullmatch(form, text)}
    begun = {text[:n] for text in whole for n in range(len(text) + 1)}
    for text in (one for one in every if len(one) < 4 and one in begun):
        tokens = np.array([[1, 1, *map("abcd".index, text)]])
        seen = Seen(tokens, np.array([2]), np.array([0]), np.array([tokens.shape[1]]))
        found = processed(SCORES[None], Sampling(temperature=0.7, grammar=grammar), seen=seen)[0]
        kept = np.array([text + one in begun for one in "abcd"] + [False])
        law = np.exp(np.where(kept, SCORES, -np.inf) / 0.7) if text not in whole else np.arange(5) == 4
        np.testing.assert_allclose(found, law / law.sum(), atol=1e-12)


def test_a_banned_token_is_drawn_again():
    """The two likeliest are kept, of those that are allowed where the first draw is banned."""
    sampling = Sampling(top_k=2, allowed_token_ids=(0, 2, 3))
    scores, order = np.log([[0.1, 0.4, 0.3, 0.2]]), f"banned tokens drawn again, {ORDERS[0]}"
    assert possible_orders(sampling) == [ORDERS[0], order]
    assert possible_orders(replace(sampling, top_k=None, temperature=0.5)) == [ORDERS[0]]
    found = processed(scores, sampling, order)
    np.testing.assert_allclose(found, [[0.0, 0.0, 3 / 7 + 4 / 7 * 0.6, 4 / 7 * 0.4]], atol=1e-12)
    np.testing.assert_allclose(processed(scores, sampling), [[0.0, 0.0, 0.6, 0.4]], atol=1e-12)


def continued_by_hand(text, token):
    """How many tokens at the end of a text came before the token already, at the most."""
    came = [at for at, one in enumerate(text) if one == token]
    return max((n for at in came for n in range(1, at + 1) if text[at - n : at] == text[-n:]), default=0)


@pytest.mark.parametrize("last", [None, 3, 5, 40])
def test_dry_penalises_what_would_repeat_more_of_the_text(last):
    rng = np.random.default_rng(4)
    texts = [rng.integers(2, size=n).tolist() for n in (1, 2, 7, 12, 30)] + [
        [0] * 9,
        [0, 1] * 6,
        [0, 1, 1] * 5,
    ]
    dry = {"dry_multiplier": 0.5, "dry_base": 1.5, "dry_allowed_length": 2, "dry_penalty_last_n": last}
    tokens = np.array([one + [3] * (30 - len(one)) for one in texts])
    every = np.arange(len(texts))
    seen = Seen(tokens, np.ones(len(texts), dtype=np.int64), every, np.array([*map(len, texts)]))
    found = processed(np.tile(SCORES, (len(texts), 1)), Sampling(**dry), f"penalties, {ORDERS[0]}", seen)
    for text, one in zip(texts, found, strict=True):
        lengths = [continued_by_hand(text[-(last or 99) :], token) for token in range(len(SCORES))]
        less = [0.5 * 1.5 ** (n - 2) if n >= 2 else 0.0 for n in lengths]
        expected = np.exp(SCORES - less)
        np.testing.assert_allclose(one, expected / expected.sum(), atol=1e-12)


def kept_by_hand(name, pmf, value):
    """The tokens of a pmf that a sampler keeps, one by one."""
    logs = {x: math.log(mass) for x, mass in enumerate(pmf) if mass}
    if name == "top_n_sigma":
        return {x for x in logs if logs[x] >= max(logs.values()) - value * statistics.pstdev(logs.values())}
    if name == "xtc_threshold":
        top = sorted((x for x in logs if pmf[x] >= value), key=lambda x: pmf[x])
        return set(logs) - {*top[1:]}
    entropy = -sum(pmf[x] * logs[x] for x in logs)
    kept, mass = set(), 0.0
    for x in sorted(logs, key=lambda x: abs(-logs[x] - entropy)):
        if mass < value:
            kept.add(x)
            mass += pmf[x]
    return kept


@pytest.mark.parametrize(
    ("name", "values"),
    [("typical_p", (0.2, 0.5, 0.9)), ("top_n_sigma", (0.3, 1.0, 3.0)), ("xtc_threshold", (0.05, 0.2, 0.5))],
)
def test_what_few_engines_have_keeps_the_tokens_of_its_definition(name, values):
    rng = np.random.default_rng(3)
    for value in values:
        for _ in range(50):
            pmf = rng.dirichlet(np.ones(9)) * (rng.random(9) < 0.8)
            pmf /= pmf.sum()
            with np.errstate(divide="ignore"):
                scores = np.log(pmf)[None]
            always = {"xtc_probability": 1.0} if name == "xtc_threshold" else {}
            found = processed(scores, Sampling(**{name: value}, **always))[0]
            expected = np.array([mass * (x in kept_by_hand(name, pmf, value)) for x, mass in enumerate(pmf)])
            np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-12)


def test_top_choices_are_excluded_by_chance_where_the_order_says():
    scores, often = np.log([[0.4, 0.3, 0.2, 0.1]]), Sampling(0.5, xtc_probability=0.25, xtc_threshold=0.15)
    late, soon = (processed(scores, often, order)[0] for order in (possible_orders(often)[i] for i in (0, 3)))
    hot, cut = np.array([0.4, 0.3, 0.2, 0.1]) ** 2, np.array([0.0, 0.0, 0.2, 0.1]) ** 2
    np.testing.assert_allclose(soon, 0.75 * hot / hot.sum() + 0.25 * cut / cut.sum(), atol=1e-12)
    warm = np.array([0.0, 0.3, 0.2, 0.1]) ** 2  # of the row at the temperature, only two are above
    np.testing.assert_allclose(late, 0.75 * hot / hot.sum() + 0.25 * warm / warm.sum(), atol=1e-12)
    assert possible_orders(often)[3] == "top-k, top-p, min-p, xtc, temperature"
    assert possible_orders(often)[0] == f"{ORDERS[0]}, xtc"


def test_only_orders_that_can_differ_are_possible():
    assert possible_orders(Sampling(temperature=0.5)) == [ORDERS[0]]
    assert possible_orders(Sampling(repetition_penalty=1.0, min_tokens=3)) == [ORDERS[0]]
    assert possible_orders(Sampling(**BIAS)) == [f"bias, {ORDERS[0]}"]
    assert len(possible_orders(Sampling(**PENALTIES))) == 4
    for names in (["repetition_penalty"], ["frequency_penalty", "presence_penalty"]):
        assert len(possible_orders(Sampling(**{name: PENALTIES[name] for name in names}))) == 2
    every = possible_orders(Sampling(0.7, 3, 0.9, 0.1, **PENALTIES, **BIAS))
    assert len({*every}) == len(every) == 4 * (4 * 4 + 2 * 2)
