"""The decoder: the law of its texts, seeds, stops, log-probabilities and counters."""

import numpy as np
import pytest
from letters import Letters, decoded, p_value

from specsim.core._streams import Purpose, key_of, uniform
from specsim.engines._planted.requests import Request, Sampling
from specsim.engines._planted.served_pair import BytePair, ModelLaw, ngram_pair
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.step import text_uniforms

FALSE_ALARM = 1e-3
PLAIN = Sampling()
SAMPLINGS = (
    PLAIN,
    Sampling(temperature=0.6),
    Sampling(temperature=1.4, top_k=3),
    Sampling(top_p=0.7),
    Sampling(temperature=0.8, top_k=4, top_p=0.9, min_p=0.2),
)


def requests_of(pair, count=60, tokens=24, sampling=PLAIN, **more):
    prompts = pair.prompts(count, 3, rng=np.random.default_rng(3))
    return [Request(i, prompt, tokens, i, sampling=sampling, **more) for i, prompt in enumerate(prompts)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("options", [{}, {"speculative": False}], ids=str)
def test_texts_have_the_targets_law(sampling, options):
    pair = Letters(openers=2)
    requests = requests_of(pair, 250, sampling=sampling)
    assert p_value(pair, requests, decoded(pair, requests, **options), sampling) > FALSE_ALARM


@pytest.mark.parametrize(
    "rule",
    ["block", *(pytest.param(n, marks=pytest.mark.slow) for n in ("one_hot", "sampler_match", "gumbel"))],
)
def test_any_chain_rule_verifies(rule):
    pair = Letters()
    requests = requests_of(pair, 120)
    assert p_value(pair, requests, decoded(pair, requests, rule=rule, gamma=3)) > FALSE_ALARM


def test_a_wrong_rule_is_seen():
    pair = Letters()
    requests = requests_of(pair, 120)
    assert p_value(pair, requests, decoded(pair, requests, rule="lenience:lenience=0.3")) < 1e-9


@pytest.mark.parametrize("offsets", [(), (1,), (3,), (1, 17)])
def test_laws_of_any_offsets(offsets):
    pair = Letters(offsets)
    prompts = pair.prompts(120, 18, rng=np.random.default_rng(3))
    requests = [Request(i, prompt, 24, i) for i, prompt in enumerate(prompts)]
    assert p_value(pair, requests, decoded(pair, requests)) > FALSE_ALARM


def test_a_text_depends_on_its_seed_alone():
    pair = Letters(openers=2)
    requests = requests_of(pair, 20, n=2)
    together = decoded(pair, requests)
    for request in requests[::7]:
        alone = decoded(pair, [request])
        assert [one.tokens for one in alone] == [
            one.tokens for one in together if one.number == request.number
        ]
        assert alone[0].tokens != alone[1].tokens
    assert len({one.tokens for one in together}) == 40


def test_the_decoders_seed_is_for_requests_without_one():
    pair = Letters()
    requests = [Request(i, (0, 1), 8) for i in range(4)]
    first, second, other = (decoded(pair, requests, seed=seed) for seed in (1, 1, 2))
    assert [one.tokens for one in first] == [one.tokens for one in second] != [one.tokens for one in other]
    assert len({one.tokens for one in first}) == 4


def test_log_probabilities_are_those_of_the_law():
    pair = Letters(openers=2)
    requests = requests_of(pair, 6, sampling=Sampling(temperature=0.5, top_k=4, logprobs=2))
    for one in decoded(pair, requests):
        text = np.array(requests[one.number].prompt + one.tokens)
        start = len(text) - len(one.tokens)
        rows = pair.target.log_rows(pair.target.contexts(text, start))
        np.testing.assert_allclose(one.logprobs, rows[np.arange(len(rows)), one.tokens], atol=1e-12)
        for row, top in zip(rows, one.top, strict=True):
            assert sorted(top.values()) == pytest.approx(np.sort(row)[-2:])
            assert row[list(top)] == pytest.approx(list(top.values()))


def test_log_probabilities_that_are_not_asked_for_are_not_given():
    (one,) = decoded(Letters(), [Request(0, (0, 1), 4, 0, sampling=Sampling(logprobs=None))])
    assert one.logprobs is None
    assert one.top is None


def test_temperature_0_is_the_argmax():
    pair = Letters()
    for one in decoded(pair, requests_of(pair, 4, sampling=Sampling(temperature=0.0))):
        text = np.array(requests_of(pair, 4)[one.number].prompt + one.tokens)
        rows = pair.target.rows(pair.target.contexts(text, len(text) - len(one.tokens)))
        assert one.tokens == tuple(rows.argmax(axis=1))


def test_a_text_ends_with_its_stop_string():
    pair = Letters()
    free, stopped = (
        decoded(pair, requests_of(pair, 30, 40, Sampling(stop=stop))) for stop in ((), ("ab", "cc"))
    )
    ended = 0
    for one, whole in zip(stopped, free, strict=True):
        text, uncut = pair.decode(one.tokens), pair.decode(whole.tokens)
        assert uncut.startswith(text)
        places = [uncut.find(string) + 2 for string in ("ab", "cc") if string in uncut]
        assert one.finish == ("stop" if places else "length")
        assert len(text) == min(places, default=40) == len(one.logprobs)
        ended += bool(places)
    assert ended > 10


def test_counters_are_those_of_the_texts():
    pair = Letters()
    decoder = Decoder(pair, gamma=3)
    for request in requests_of(pair, 30, 25):
        decoder.add(request)
    found = []
    while decoder.busy:
        found += decoder.step()
    totals = decoder.totals
    assert totals["drafted"] == 3 * totals["steps"] == sum(one.drafted for one in found)
    assert totals["accepted"] == sum(one.accepted for one in found)
    emitted = sum(len(one.tokens) for one in found)
    assert 0 <= totals["accepted"] + totals["steps"] - emitted <= 3 * 30


def test_uniforms_are_those_of_the_streams():
    keys = np.array([key_of(1), key_of(2)], dtype=np.uint64)
    found = text_uniforms(keys, Purpose.VERIFY, np.array([5, 2**33]), 4)
    for b, step in enumerate((5, 2**33)):
        for index in range(4):
            assert found[index, b] == uniform(key_of(b + 1), Purpose.VERIFY, step, index)


def test_more_texts_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr("specsim.engines._server.decoding.MOST_TEXTS", 3)
    pair = Letters()
    requests = requests_of(pair, 10)
    few = decoded(pair, requests)
    monkeypatch.undo()
    assert [one.tokens for one in few] == [one.tokens for one in decoded(pair, requests)]


def test_the_bundled_models():
    pair = ngram_pair()
    assert isinstance(pair, BytePair)
    assert isinstance(pair.target, ModelLaw)
    (one,) = decoded(pair, [Request(0, tuple(pair.encode("import ")), 12, 1)])
    assert len(pair.decode(one.tokens)) == 12
    with pytest.raises(ValueError, match="character 1: 'λ' is not in Latin-1"):
        pair.encode("aλ")
