"""Counters of drafts: what the standard rule is expected to accept, and what cannot be."""

import re
from dataclasses import replace

import numpy as np
import pytest
from cases import cases
from listening import answering, listening

from specsim import audit_engine, open_planted, plant
from specsim.core._tables import to_text
from specsim.engines import Completion, Sampling
from specsim.engines._audit.counters import (
    _counts,
    _mean_step,
    accepted_at,
    draft_length,
    impossible,
    reported,
    usable,
)
from specsim.engines._clients.opening import open_engine
from specsim.engines._planted.architectures import HEADS
from specsim.engines._planted.law import BLOCKS
from specsim.engines._planted.requests import Request
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.http import METRICS, Handler, Server
from specsim.theory import expected_tokens


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("planted") / "pair", vocab_size=6, context=160, rng=1)


@pytest.mark.parametrize("gamma", [0, 1, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_with_one_probability_the_steps_are_those_of_the_closed_form(alpha, gamma):
    found = _mean_step(np.full((3, 20), alpha), np.array([12, 1, 0]), gamma)
    assert found == pytest.approx(expected_tokens(alpha, gamma) if gamma else 1.0)


def test_the_steps_of_a_text_are_enumerated():
    rng, length, gamma = np.random.default_rng(1), 5, 2
    kept = rng.random((1, length + gamma))

    def counts(place):
        """Expected steps and tokens of the steps that begin at `place` or later."""
        if place >= length:
            return np.zeros(2)
        total, alive = np.zeros(2), 1.0
        for accepted in range(gamma + 1):
            ends = alive * (1.0 - kept[0, place + accepted] if accepted < gamma else 1.0)
            total += ends * (np.array([1, accepted + 1]) + counts(place + accepted + 1))
            alive -= ends
        return total

    steps, tokens = counts(0)
    assert _mean_step(kept, np.array([length]), gamma) == pytest.approx(tokens / steps, rel=1e-12)


@pytest.mark.parametrize(
    ("sampling", "gamma"),
    [
        (Sampling(), 5),
        (Sampling(2.0, 3), 1),
        pytest.param(Sampling(temperature=0.5), 5, marks=pytest.mark.slow),
        pytest.param(Sampling(2.0, 3), 5, marks=pytest.mark.slow),
    ],
)
def test_the_standard_rule_accepts_what_is_expected(sampling, gamma, pair):
    found = audit_engine("specsim", pair, tokens=20_000, sampling=sampling, gamma=gamma, rng=1).efficiency
    assert found.gamma == gamma
    assert found.expected_share == pytest.approx(found.accepted_share, abs=0.012)


def test_a_server_that_counts_too_many_is_found(pair):
    with listening(Server(Decoder(pair, mistake="bonus_counted"), port=0)) as url:
        found = audit_engine(url, pair, tokens=400, rng=1)
    assert found.findings[0].kind == "counters"
    assert "4 a step" in found.findings[0].text


def test_the_texts_of_a_request_are_counted_together(pair):
    with listening(Server(Decoder(pair), port=0)) as url:
        found = audit_engine(url, pair, tokens=3_000, texts=3, rng=1)
    assert (found.findings, found.efficiency.gamma) == ((), 4.0)
    assert found.efficiency.ratio == pytest.approx(1.0, abs=0.06)


def texts(*drafts, tokens=10):
    """Texts of `tokens` tokens; (drafted, accepted, steps) of each."""
    return [
        Completion(i, 0, (0,) * tokens, drafted=drafted, accepted=accepted, steps=steps)
        for i, (drafted, accepted, steps) in enumerate(drafts)
    ]


@pytest.mark.parametrize(*cases(__file__, "lengths"))
def test_the_length_of_drafts(drafts, server, gamma, length):
    assert draft_length(texts(*drafts), server, gamma) == length


def test_counters_of_several_texts_are_added_up():
    one, other = texts((20, 5, 5), (None, None, None))
    first = Completion(0, 1, (0,) * 3)
    (found,) = reported([one, first, other])
    assert (found.drafted, found.accepted, found.steps, found.emitted, found.texts) == (20, 5, 5, 13, 2)


@pytest.mark.parametrize(
    *cases(__file__, "impossible", (64, (10**400, 2, 1), "drafted tokens, more than 1,024"))
)
def test_counters_of_a_request_that_no_text_allows_whatever_the_drafts(tokens, drafts, text):
    found = texts((40, 30, None), drafts, tokens=tokens)
    assert text in impossible(found, draft_length(found, None, None)).text


@pytest.mark.parametrize(*cases(__file__, "right"))
def test_counters_that_right_engines_have(tokens, drafts):
    found = texts(drafts, tokens=tokens)
    assert impossible(found, draft_length(found, None, None)) is None


@pytest.mark.parametrize("counts", [lambda n: (3 * n, 2 * n), lambda n: (2**63, 2**62)])
def test_impossible_counters_of_a_server_are_not_printed_as_facts(counts, pair):
    """A server like llama.cpp's, which counts no steps."""
    right = open_engine("specsim", pair)

    def answer(payload, number, handler):
        request = Request(0, tuple(payload["prompt"]), payload["max_tokens"], payload["seed"])
        (text,) = right.complete([request])
        drafted, accepted = counts(len(text.tokens))
        timings = {"draft_n": drafted, "draft_n_accepted": accepted}
        return {"choices": [{"index": 0, "token_ids": text.tokens}], "timings": timings}

    with answering(answer) as url:
        found = audit_engine(url, pair, tokens=200, connections=1, rng=1)
    assert [one.kind for one in found.findings] == ["counters"]
    assert found.efficiency is None
    assert "Speculation" not in to_text(found.parts())


def test_what_no_run_can_have():
    assert impossible(texts(*[(40, 8, 10)] * 3, tokens=64), 4.0) is None
    assert "62 accepted of 40" in impossible(texts(*[(40, 62, 10)], tokens=64), 4.0).text
    surplus = texts(*[(64, 64, 16)] * 3, tokens=64)
    assert "make at least" in impossible(surplus, 4.0).text
    assert impossible(surplus, 4.1) is None  # no length of all drafts
    uncounted = texts(*[(160, 24, None)] * 3, tokens=64)  # 40 steps of 4
    assert impossible(uncounted, 4.0) is None
    assert impossible(texts(*[(160, 34, None)] * 3, tokens=64), 4.0)
    rooted = texts(*[(200, 24, 40)] * 3, tokens=64)  # the root of a tree is counted too
    assert impossible(rooted, 4.0) is None


COUNTED = {"drafted": 160, "accepted": 24, "steps": 40}


@pytest.mark.parametrize(*cases(__file__, "of a server"))
def test_counters_of_a_server_are_used_if_they_may_be_of_the_texts(drafts, server, gamma, told):
    found, text = usable(texts(drafts, tokens=64), server, gamma)
    used = told in ("", "at most 9 of 64 tokens")
    assert found is (server if used else None)
    assert text.startswith("The server's counters are not used: they ") != used
    assert told in text
    assert bool(told) == bool(text)


def test_the_counters_of_requests_come_before_those_of_their_server():
    worse = dict.fromkeys(COUNTED, -1)
    assert usable(texts((160, 24, 40), tokens=64), worse, None) == (None, "")
    assert usable(texts((160, 24, None), tokens=64), worse, 4) == (None, "")


@pytest.mark.parametrize(
    ("gained", "told"),
    [
        ((-(10**6),) * 3, "they fell, as after a restart"),
        ((10**6,) * 3, "they count 1,000,000 accepted of 1,000,000 drafted tokens, the requests"),
        ((40, 40, 40), "they count 40 accepted of 40 drafted tokens, the requests"),
    ],
)
def test_a_right_server_is_not_accused_for_its_other_requests(gained, told, pair, monkeypatch):
    answers = iter([(10**7,) * 3, [10**7 + one for one in gained]])

    def metrics(handler):
        return "".join(f"{name} {number}\n" for name, number in zip(METRICS, next(answers), strict=True))

    monkeypatch.setattr(Handler, "_metrics", metrics)
    with listening(Server(Decoder(pair), port=0)) as url:
        found = audit_engine(url, pair, tokens=400, rng=1)
    assert found.findings == ()
    assert [told in note for note in found.notes].count(True) == 1
    assert found.efficiency.gamma == pytest.approx(4.0, abs=0.5)  # from the counters of the requests


@pytest.fixture(scope="module", params=[(head, one) for head, made_as in HEADS.items() for one in made_as])
def planted(request, tmp_path_factory):
    folder, (heads, made_as) = tmp_path_factory.mktemp("planted") / "pair", request.param
    sizes = {"order": 3, "vocab_size": 9} if made_as == "llama" else {}
    return plant(folder, heads=heads, architecture=made_as, formats=("hf",), context=128, rng=1, **sizes)


@pytest.mark.parametrize(("stale", "late"), [(0, 0), (1, 0), (0, 1)])
def test_a_draft_is_the_likeliest_token_after_the_newest_one_and_what_the_hidden_state_has(
    planted, stale, late
):
    law, rng = planted.target, np.random.default_rng(2)
    text = rng.integers(3, size=90)  # of few words, so that drafts are accepted
    table = law.logits.table.copy()
    table[..., 3:] = -100.0
    law = replace(law, logits=type(law.logits)(table))
    found, block = accepted_at(planted.heads, law, text, 3, stale, late), planted.heads in BLOCKS
    for place in range(4, 90):
        seen = [*text[:place].tolist()]
        read = place - 2 - stale
        # what followed the last token like the one there, if any; or the last tokens
        word = next((seen[i + 1] for i in range(read - 1, -1, -1) if seen[i] == seen[read]), 12)
        hidden, drafts = [word] if law.memory else [seen[read], seen[read - 1]], []
        for i in range(3):
            given = [*seen, *drafts][place - 1 + (0 if planted.heads == "dflash" else i) - late]
            drafts.append(int(table[given, *hidden].argmax()))
            hidden = [12] if block else hidden if law.memory else [given, hidden[0]]
        same = [a == b for a, b in zip(drafts, text[place:].tolist(), strict=False)]
        assert found[place] == (same.index(False) if False in same else len(same))
    assert {1, 2, 3} <= set(found)


def test_the_folder_says_what_drafts(planted):
    assert open_planted(planted.folder).to_dict()["heads"] == planted.heads
    assert planted.models == ("target", "draft", "head")[: 2 + (planted.heads != "mtp")]


@pytest.mark.parametrize(
    ("accepted", "counts"),
    [
        ([0, 0, 0], [3, 0, 12, 0]),  # 4 drafts each time, or 2 and 1 and none
        ([1, 0, 0], [2, 1, 8, 1]),
        ([0, 2, 0], [3, 1, 8, 4]),  # what is drafted behind the end may be accepted
        ([2, 0, 0], [2, 2, 4, 2]),
        ([3, 0, 0], [2, 2, 4, 4]),
    ],
)
def test_the_counts_of_a_text(accepted, counts):
    assert _counts(np.array([9, *accepted]), 1, 4) == counts


def test_what_a_head_needs(planted, tmp_path):
    for options, message in [
        ({"heads": "dflash"}, "heads dflash: architecture: 'llama' is unknown; give one of gated-delta"),
        ({"formats": ["hf", "gguf"]}, "format: gguf has no head mtp of llama; give hf"),
        ({"architecture": "gated-delta", "vocab_size": 8}, "vocab_size: 8 is not at least 9"),
        ({"architecture": "gated-delta", "vocab_size": 32}, "vocab_size: 32 is not at most 31"),
        ({"heads": "eagle3", "order": 1}, "(1,) leave out one of the last tokens, and heads read 2"),
        ({"heads": "eagle3", "offsets": (1, 3)}, "(1, 3) leave out one of the last tokens"),
        ({"heads": "eagle3", "order": 3}, "heads: eagle3 needs a table of at most 1024 contexts; give a"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            plant(tmp_path / "new", **{"heads": "mtp"} | options)
    without = plant(tmp_path / "without", vocab_size=4, context=64, rng=1)
    with pytest.raises(ValueError, match="head_stale is of a state, experts or a head that this pair lacks"):
        Decoder(without, mistake="head_stale")


@pytest.mark.parametrize("mistake", [None, "head_stale", "head_without_token"])
def test_a_head_drafts_the_same_however_rows_are_processed(planted, mistake):
    """A banned token too, and tokens that penalties make improbable."""
    sampling = Sampling(temperature=1.5, top_k=6, repetition_penalty=2.0, logit_bias=((8, -100.0), (0, 2.0)))
    found = audit_engine("specsim", planted, tokens=1_000, sampling=sampling, mistake=mistake, rng=1)
    assert [one.kind for one in found.findings] == ["counters"] * bool(mistake)
    assert [one.name for one in found.diagnosis] == [mistake] * bool(mistake)
