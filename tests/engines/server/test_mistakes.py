"""Mistakes of the decoder: each changes what it says, and nothing is changed without one."""

from functools import cache

import numpy as np
import pytest
from letters import WORDS, Letters, decoded, p_value

from specsim.engines._planted.law import Memory
from specsim.engines._planted.requests import Request, Sampling
from specsim.engines._server.mistakes import ACTS, PLACES, find_mistake, mistake_names

#: The parameters that a mistake is about.
SAMPLINGS = {
    "temperature": Sampling(temperature=0.5), "top_k": Sampling(top_k=2), "top_p": Sampling(top_p=0.6),
    "min_p": Sampling(min_p=0.4), "truncation": Sampling(temperature=2.0, top_p=0.6),
    "stop": Sampling(stop=("a",)), "logprobs_mixed": Sampling(temperature=0.5),
    "logit_bias": Sampling(logit_bias=((1, 2.0), (3, -100.0))), "min_tokens": Sampling(stop_ids=(1,), min_tokens=6),
    "prompt_not": Sampling(repetition_penalty=3.0), "prompt_pen": Sampling(presence_penalty=2.0),
    "typical_p": Sampling(typical_p=0.4), "top_n_sigma": Sampling(top_n_sigma=0.8),
    "xtc": Sampling(xtc_probability=0.8, xtc_threshold=0.15), "allowed": Sampling(allowed_token_ids=(0, 2)),
    "dry": Sampling(dry_multiplier=3.0, dry_base=2.0, dry_allowed_length=1),
    "bad_words": Sampling(bad_words=((0, 0), (1, 2), (3,))),
    "grammar": Sampling(grammar=(((0, 1), (1, 0), (3, 0)), ((1, 2), (2, 0)), ((0, 0), (2, 3)), ((5, 3),))),
    "penalties": Sampling(presence_penalty=3.0, penalty_last_n=3),
}  # fmt: skip
#: What is wrong although the tokens of each text follow the law.
REPORTED = {"log-probabilities", "counters", "stop"}
#: What is wrong at the first or the last tokens of a text only.
ENDS = {"greedy_first_token", "last_of_text_from_draft", "first_token_of_next", "prompt_of_next"}
SEEDS = {"seed_ignored", "one_seed", "copies_alike"}


MISTAKES = [find_mistake(name) for name in ACTS]


@cache
def asked(openers, long, short, n, sampling, state=False, heads=None):
    """A pair, of models with a state, and requests; of `long` prompts, or for `short` texts."""
    of_state = {"offsets": (1,), "memory": Memory("recall", WORDS), "experts": 0 if heads else 3}
    pair = Letters(openers=openers, **of_state if state else {})
    pair.heads = heads
    prompts = pair.prompts(200, 20 if long else 3, rng=np.random.default_rng(3)) * (12 if short else 1)
    tokens = 2 if short else 12
    return pair, [Request(i, prompt, tokens, i, n=n, sampling=sampling) for i, prompt in enumerate(prompts)]


def case(mistake):
    """The arguments of `asked` for requests that the mistake concerns."""
    sampling = next((s for name, s in SAMPLINGS.items() if name in mistake.name), Sampling())
    short = mistake.name in ENDS
    n = 1 if short else {"cache": 12, "state": 36}.get(mistake.where, 4)
    n *= 4 if mistake.name == "state_of_next" else 1  # one step of four is wrong
    state, heads = mistake.where in ("state", "expert", "head"), "mtp" if mistake.where == "head" else None
    long = state or mistake.name == "wrong_page"
    return 2 * (mistake.where == "admission"), long, short, n, sampling, state, heads


@cache
def right(given, gamma):
    """What is decoded without a mistake, and the p-value of its law."""
    pair, requests = asked(*given)
    found = decoded(pair, requests, gamma=gamma, seed=1)
    return found, p_value(pair, requests, found, given[4])


def essence(completions):
    return [(one.tokens, one.logprobs, one.drafted, one.accepted, one.finish) for one in completions]


#: Of each place of a step one; audits of engines find the others too.
FAST = {"draft_temperature", "wrong_page", "draft_numbers_in_check", "bonus_argmax", "recovered_not_cached",
        "one_seed", "penalties_not_in_recovered", "state_one_stale", "logprobs_zero", "bonus_counted", "stop_cuts_more", "greedy_draft"}  # fmt: skip


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(one, id=one.name, marks=[] if one.name in FAST else pytest.mark.slow) for one in MISTAKES],
)
def test_a_mistake_is_seen_where_it_acts(mistake):
    given, gamma = case(mistake), 1 if "bonus" in mistake.name else 3
    pair, requests = asked(*given)
    correct, p_correct = right(given, gamma)
    wrong = decoded(pair, requests, mistake=mistake.name, gamma=gamma, seed=1)
    assert essence(correct) != essence(wrong)
    tokens = [[one.tokens for one in completions] for completions in (correct, wrong)]
    if mistake.where in REPORTED - {"stop"}:
        assert tokens[0] == tokens[1]
    elif mistake.name in SEEDS:
        assert tokens[0] != tokens[1]
    elif mistake.where != "stop":
        assert p_correct > 1e-3
        assert (p_value(pair, requests, wrong, given[4]) < 1e-6) == (mistake.where != "head")


def test_copies_are_alike_by_mistake():
    pair, requests = asked(*case(find_mistake("copies_alike")))
    for name, alike in (("copies_alike", True), (None, False)):
        found = decoded(pair, requests[:4], mistake=name)
        assert [len({one.tokens for one in found[i : i + 4]}) == 1 for i in range(0, 16, 4)] == [alike] * 4


def test_an_ignored_seed_gives_another_text_each_time():
    pair, requests = asked(*case(find_mistake("seed_ignored")))
    first, second = (decoded(pair, requests[:4], mistake="seed_ignored", seed=1) for _ in range(2))
    assert essence(first) != essence(second)


def test_a_text_before_a_stop_string_is_missing_its_last_token():
    pair, requests = asked(*case(find_mistake("stop_cuts_more")))
    right, wrong = (decoded(pair, requests, mistake=name) for name in (None, "stop_cuts_more"))
    stopped = [(a, b) for a, b in zip(right, wrong, strict=True) if a.finish == "stop" and len(a.tokens) > 2]
    assert len(stopped) > 50
    assert all(b.tokens == a.tokens[:-2] for a, b in stopped)


def test_counters_are_wrong_by_mistake():
    pair, requests = asked(*case(find_mistake("bonus_counted")))
    right, more, less = (
        decoded(pair, requests[:9], mistake=m) for m in (None, "bonus_counted", "tested_counted")
    )
    for a, b, c in zip(right, more, less, strict=True):
        assert b.accepted == a.accepted + a.drafted // 4
        assert c.accepted <= c.drafted <= a.drafted
    assert essence(less) != essence(right)


def test_verifiers_are_mistakes_too():
    pair, requests = asked(*case(MISTAKES[0]))
    wrong = decoded(pair, requests, mistake="swapped_residual", seed=1)
    assert p_value(pair, requests, wrong, requests[0].sampling) < 1e-6


def test_the_catalogue():
    assert len(MISTAKES) >= 25
    assert len(set(mistake_names())) == len(mistake_names()) > 60
    assert {mistake.where for mistake in MISTAKES} == set(PLACES) - {"verification"}
    assert all(mistake.says.endswith(".") for mistake in MISTAKES)
    assert find_mistake(None) is None
    assert find_mistake("lenience:lenience=0.5").name == "lenience:lenience=0.5"
    with pytest.raises(ValueError, match="did you mean 'one_seed'"):
        find_mistake("one_sed")
