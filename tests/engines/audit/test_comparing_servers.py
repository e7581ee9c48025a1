"""Comparisons of two servers: one law is the same, mistakes are changes, whatever a server answers."""

import json
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest
from cases import cases
from commands import says
from letters import Letters
from listening import answering, listening

from specsim.core._tables import to_rich
from specsim.engines import Sampling, compare_servers
from specsim.engines._audit import store
from specsim.engines._audit.two_servers_tests import Chains, PromptTexts, Text, all_tests
from specsim.engines._clients.http import FORMS, TextServer
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.http import Server

PAIR = Letters()
PROMPTS = ["ab", "cde", "ea"]
FAST, GREEDY = Sampling(logprobs=None), Sampling(temperature=0.0)


def serving(**options):
    """The address of a server of specsim."""
    return listening(Server(Decoder(PAIR, **options), port=0))


def compared(one, other, prompts=PROMPTS, **options):
    with ExitStack() as stack:
        urls = [stack.enter_context(server) for server in (one, other)]
        return compare_servers(*urls, prompts, **{"tokens": 2_000, "texts": 64, "rng": 1} | options)


def text(pieces, finish="length"):
    return {"choices": [{"index": 0, "text": " ".join(pieces), "finish_reason": finish}]}


def test_servers_of_one_law_are_the_same():
    found = compared(
        serving(speculative=False), serving(), PROMPTS[:1], tokens=14_000, length=2, sampling=FAST, texts=256
    )
    assert (found.verdict, found.exit_code, found.findings) == ("same", 0, ())
    assert (found.form, found.length) == ("token ids", 2)
    assert found.one.drafted == 0
    assert 0 < found.other.accepted < found.other.drafted
    assert found.detectable_tv < 0.15
    assert len(found.tests) == 6
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.to_arrow()) == len(found.tests)
    assert to_rich(found.parts())
    assert f"{100 * found.detectable_tv:.1f} percentage points" in str([*found.parts()])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_servers_of_one_law_are_never_called_changed(seed):
    found = compared(serving(rule="block", gamma=3), serving(), tokens=24_000, sampling=FAST, rng=seed)
    assert found.findings == ()


MISTAKES = ["resamples_target", "target_not_rolled_back", "bonus_argmax", "accepted_lost"]


@pytest.mark.parametrize(
    "mistake", [MISTAKES[0], *(pytest.param(m, marks=pytest.mark.slow) for m in MISTAKES[1:])]
)
def test_a_mistake_is_a_change(mistake, full):
    tokens = 400_000 if full else 200_000
    found = compared(
        serving(speculative=False), serving(mistake=mistake), tokens=tokens, sampling=FAST, texts=256
    )
    assert (found.verdict, found.exit_code) == ("changed", 1)
    assert "at the first server" in found.findings[0].text


def test_one_seed_for_all_is_a_change():
    assert compared(serving(speculative=False), serving(mistake="one_seed"), texts=1).verdict == "changed"


def test_few_texts_are_inconclusive():
    found = compared(serving(speculative=False), serving(speculative=False), PROMPTS[:1], tokens=200)
    assert (found.verdict, found.exit_code) == ("inconclusive", 3)
    assert "Ask for more tokens" in str([*found.parts()])


@pytest.mark.parametrize(
    ("mistake", "verdict", "code"), [(None, "same", 0), ("target_not_rolled_back", "texts differ", 3)]
)
def test_texts_at_temperature_zero(mistake, verdict, code):
    found = compared(serving(speculative=False), serving(mistake=mistake), sampling=GREEDY)
    assert (found.verdict, found.exit_code, found.findings) == (verdict, code, ())
    assert all((one.place is None) == (mistake is None) for one in found.greedy)
    assert all(one.repeated == (True, True) for one in found.greedy)
    assert len(found.records()) == len(PROMPTS)
    assert to_rich(found.parts())


def simulated(seed, count, shift=0.0):
    """Texts of 4 tokens, each likely to repeat the one before it, more so by `shift` at the third place."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(4, size=(count, 4))
    for place in range(1, 4):
        again = rng.random(count) < 0.3 + shift * (place == 2)
        tokens[again, place] = tokens[again, place - 1]
    return [Text(tuple(row), "length") for row in tokens.tolist()]


def in_blocks(shift, seed):
    one, other = simulated((seed, 0), 800), simulated((seed, 1), 800, shift)
    return [(one[a:b], other[a:b]) for a, b in pairwise([0, 200, 300, 500, 800])]


def test_chains_have_e_values():
    """Their expectation is at most 1 without a difference; one that acts after some tokens alone is found."""

    def e_value(shift, seed):
        blocks = in_blocks(shift, seed)
        chains = Chains([*blocks[0][0], *blocks[0][1]], 4)
        for block in blocks:
            chains.add(*block)
        return np.exp(chains.log_es).mean()

    same = [e_value(0.0, seed) for seed in range(20)]
    assert np.mean(same) < 1.0 + 3.0 * np.std(same) / 20**0.5
    assert max(same) < 1e3
    assert min(e_value(0.4, seed) for seed in range(5)) > 1e3


def test_prompts_add_up():
    """A difference too small for one prompt is found by all together, and by none without a difference."""

    def rejecting(shift):
        prompts = []
        for seed in range(8):
            blocks = in_blocks(shift, seed)
            prompts.append(PromptTexts([*blocks[0][0], *blocks[0][1]], 4))
            for block in blocks:
                prompts[-1].add(*block)
        return [test.name for test in all_tests(prompts, 1e-6) if test.rejected]

    assert rejecting(0.25) == ["all prompts, chains of tokens"]
    assert rejecting(0.0) == []


@pytest.mark.parametrize(*cases(__file__, "forms"))
def test_the_most_telling_form_is_compared(answer, form):
    def give(payload, *_):
        return {"choices": [{"index": 0, "text": "Hi, you", "finish_reason": "stop\x1b"} | answer]}

    found = compared(answering(give), answering(give), tokens=100, texts=1)
    assert found.form == form
    assert found.findings == ()
    assert to_rich(found.parts())


@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        {"choices": [{"text": 5}]},
        {"choices": [{"text": "a", "token_ids": [1] * 99}]},
        {"choices": [{"text": "a", "token_ids": [-1]}]},
        {"choices": [{"text": "a", "token_ids": {"0": 1}}]},
        {"choices": [{"text": "a", "logprobs": {"tokens": ["a"] * 99}}]},
        {"choices": []},
    ],
    ids=str,
)
def test_hostile_answers_are_broken(answer):
    found = compared(answering(lambda *_: answer), answering(lambda *_: text("abc")), tokens=100, texts=1)
    assert (found.verdict, found.exit_code) == ("broken", 1)
    assert found.one.failures["garbage"] >= 1
    assert "first server" in found.findings[0].text
    assert to_rich(found.parts())


def test_tokens_that_cannot_be_printed_are_escaped():
    found = compared(
        answering(lambda *_: text(["\x1b[31m<b>\ud800"])), answering(lambda *_: text("ab")), texts=1, rng=2
    )
    assert found.verdict == "changed"
    assert all(character.isprintable() for character in found.findings[0].text)


def test_a_form_that_goes_missing_is_garbage():
    calls = []

    def give(payload, *_):
        calls.append(payload)
        return {"choices": [{"text": "a"} | ({"token_ids": [1]} if len(calls) < 10 else {})]}

    found = compared(
        answering(lambda *_: {"choices": [{"text": "a", "token_ids": [1]}]}),
        answering(give),
        texts=1,
        tokens=600,
    )
    assert (found.form, found.verdict) == (FORMS[0], "broken")
    assert "token ids are missing" in found.findings[0].text


def test_a_server_that_does_not_answer_gives_no_verdict(monkeypatch):
    monkeypatch.setattr(store, "HOPELESS", 4)
    monkeypatch.setattr(
        TextServer, "_send_again", lambda self, path, payload, _: self._send("POST", path, payload)[1]
    )
    with answering(lambda *_: b"") as gone:
        pass
    with serving(speculative=False) as there:
        found = compare_servers(there, gone, PROMPTS, tokens=3_000, rng=1)
    assert (found.verdict, found.exit_code) == ("inconclusive", 3)
    assert found.other.failures == {"connection": 4}
    assert to_rich(found.parts())


def test_interrupted_comparisons_keep_whole_blocks(monkeypatch):
    complete, calls = TextServer.complete, []

    def interrupted(self, requests):
        calls.append(len(requests))
        for i, answer in enumerate(complete(self, requests)):
            if len(calls) == 6 and i == 3:
                raise KeyboardInterrupt
            yield answer

    monkeypatch.setattr(TextServer, "complete", interrupted)
    found = compared(serving(speculative=False), serving(speculative=False), tokens=1_000, texts=1)
    assert (found.interrupted, found.exit_code) == (True, 3)
    assert found.tests[0].n == sum(calls[:4])
    assert found.other.texts == sum(calls[1:4:2]) + 3


def test_a_comparison_goes_on_from_its_texts(tmp_path, monkeypatch):
    answer, asked = TextServer._answer, []

    def counted(self, request):
        asked.append(request.number)
        return answer(self, request)

    monkeypatch.setattr(TextServer, "_answer", counted)
    options = {"tokens": 500, "texts": 8, "length": 4, "sampling": FAST}
    with serving(speculative=False) as one, serving(speculative=False) as other:
        whole = compare_servers(one, other, PROMPTS, **options, rng=1)
        all_of_them = len(asked)
        part = compare_servers(one, other, PROMPTS, **options, rng=1, seconds=1e-6, out=tmp_path)
        assert part.tests == ()
        assert 0 < part.one.texts < whole.one.texts
        for _ in range(2):
            again = compare_servers(one, other, PROMPTS, **options, rng=1, out=tmp_path)
            assert again.tests == whole.tests
            assert (again.one.texts, again.other.texts) == (whole.one.texts, whole.other.texts)
        assert len(asked) == 2 * all_of_them
        with pytest.raises(ValueError, match=r"first.jsonl: the texts are of another run: its seed"):
            compare_servers(one, other, PROMPTS, **options, rng=2, out=tmp_path)


def test_a_limit_of_time_ends_it():
    found = compared(serving(speculative=False), serving(speculative=False), seconds=1e-6)
    assert (found.verdict, found.interrupted, found.tests) == ("inconclusive", False, ())


def test_the_command(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("ab\n\ncde\n", encoding="utf-8")
    with serving(speculative=False) as one, serving(speculative=False) as other:
        options = ["--prompts", str(file), "--temperature", "0", "--out", str(tmp_path / "out")]
        said = "At temperature 0 the texts of 2 of 2 prompts are equal."
        says(said, "audit", "servers", one, other, *options)
    assert json.loads((tmp_path / "out" / "engine.json").read_text())["verdict"] == "same"
    assert "of 2 prompts are equal" in (tmp_path / "out" / "engine.html").read_text()
    assert 'name="verdict" value="same"' in (tmp_path / "out" / "engine.xml").read_text()
