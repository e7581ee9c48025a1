"""Audits of engines: right ones pass, each mistake is found and named, whatever an engine answers."""

import json
import re
import shlex
import threading
import time
from dataclasses import replace
from functools import cache, partial
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np
import pytest
from commands import run
from listening import answering, listening
from refused import refused, refuses

from specsim import audit_engine, plant
from specsim.auditing import Verdict
from specsim.core._tables import to_rich, to_text
from specsim.engines import Completion, Failure, Sampling, _audit, audit_matrix, judge_texts, open_engine
from specsim.engines._audit import diagnosis, matrix, places
from specsim.engines._audit.judge import judge, likely_orders
from specsim.engines._audit.matrix import BATTERIES, settings
from specsim.engines._audit.results import KnownMistake
from specsim.engines._audit.run import serve
from specsim.engines._audit.store import TextStore, _checksum, plan_requests
from specsim.engines._planted.processing import (
    DEFAULTS,
    FIRST_ORDER,
    ORDERS,
    Seen,
    possible_orders,
    processed,
)
from specsim.engines._planted.requests import PENALTIES
from specsim.engines._server.decoding import Decoder, LocalEngine
from specsim.engines._server.http import Server
from specsim.engines._server.mistakes import ACTS, WHERE
from specsim.engines._server.step import Text

#: Tokens that are enough for a verdict, and those that are enough to see a mistake.
TOKENS, FEWER = 20_000, 8_000
#: Tokens of a run that several tests share.
WRONG_TOKENS = 2_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("planted") / "pair", vocab_size=6, context=160, rng=1)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A pair that reads the first token of the prompt, and one a page back."""
    folder = tmp_path_factory.mktemp("planted") / "opened"
    return plant(folder, offsets=(1, 17), openers=3, vocab_size=6, context=160, rng=2)


@pytest.fixture(scope="module")
def made_as(tmp_path_factory):
    """A pair of each architecture, planted when it is first asked for."""
    options = {
        "sliding-window": {"offsets": (1, 16), "vocab_size": 6},
        "gated-delta": {"vocab_size": 12},
        "head": {"architecture": "gated-delta", "heads": "mtp", "formats": ["hf"]},
        "eagle3": {"architecture": "llama", "heads": "eagle3", "openers": 3, "formats": ["hf"]},
    }

    @cache
    def made(name):
        how = {"architecture": name} | options.get(name, {})
        return plant(tmp_path_factory.mktemp("planted") / name, context=160, rng=1, **how)

    return made


@pytest.fixture(scope="module")
def wrong(pair):
    """A run of an engine that recovers greedily, and what is found of it."""
    requests = plan_requests(pair, 1, Sampling(), WRONG_TOKENS)
    engine = open_engine("specsim", pair, mistake="greedy_residual")
    run = serve(engine, pair, requests, TextStore(None, {}), 1)
    return run, judge(run)


@pytest.mark.parametrize(
    ("row", "verdict"), [("p=row", "consistent"), ("p=row**2 / (row**2).sum()", "biased")]
)
def test_an_engine_of_ones_own_is_audited_as_the_docs_say(pair, row, verdict):
    page = (Path(__file__).parents[3] / "docs/engines/your-own.md").read_text(encoding="utf-8")
    engine, how = page.split("```python\n")[1:]
    made = {}
    exec(engine.partition("```")[0].replace("p=row", row), made)
    found = audit_engine(made["OurEngine"](pair), pair, tokens=TOKENS, rng=1)
    assert str(found.verdict) == verdict
    assert "result = audit_engine(OurEngine(planted), planted, tokens=" in how


class Answering:
    """The engine of specsim, with every completion changed by `change`."""

    def __init__(self, pair, change):
        self._engine, self._change = open_engine("specsim", pair), change
        self.name, self.version, self.pair = "changed", "1", pair

    def describe(self):
        return {}

    def complete(self, requests):
        for answer in self._engine.complete(requests):
            yield self._change(answer)

    def counters(self):
        return None

    def close(self):
        self._engine.close()


def test_a_right_engine_is_consistent(pair):
    found = audit_engine("specsim", pair, tokens=TOKENS, rng=1)
    assert (found.verdict, found.exit_code, found.findings) == (Verdict.CONSISTENT, 0, ())
    assert found.tokens >= TOKENS
    assert found.detectable_tv < 0.05
    assert (found.logprobs.returned, found.logprobs.wrong) == (found.tokens, 0)
    assert found.efficiency.ratio == pytest.approx(1.0, abs=0.05)
    assert found.efficiency.expected_share == pytest.approx(found.efficiency.accepted_share, abs=0.03)
    assert "in 8 of 8 repeated requests" in " ".join(found.notes)
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.to_arrow()) == len(found.tests)
    assert to_rich(found.parts())


def test_the_same_seed_gives_the_same_evidence(pair):
    one, other = (audit_engine("specsim", pair, tokens=2_000, rng=3) for _ in range(2))
    assert one.tests == other.tests
    assert one.tests != audit_engine("specsim", pair, tokens=2_000, rng=4).tests


def test_a_wrong_server_is_audited_like_the_engine_that_it_serves(pair, wrong):
    with listening(Server(Decoder(pair, mistake="greedy_residual"), port=0)) as url:
        found = audit_engine(f"{url}/v1", pair, tokens=WRONG_TOKENS, rng=1)
    here = wrong[1]
    assert found.verdict == here.verdict == Verdict.BIASED
    assert found.tests == here.tests
    assert (found.engine, found.efficiency.drafted) == ("specsim", here.efficiency.drafted)


def test_an_engine_that_serves_another_pair(pair, tmp_path):
    other = plant(tmp_path / "other", vocab_size=6, context=160, rng=2)
    with listening(Server(Decoder(other), port=0)) as url:
        found = audit_engine(url, pair, tokens=1_000, rng=1)
    assert {finding.kind for finding in found.findings} == {"deviation", "log-probabilities"}
    assert "may serve other weights than this pair" in to_text(found.parts())


def test_few_tokens_are_inconclusive(pair):
    found = audit_engine("specsim", pair, tokens=500, rng=1)
    assert (found.verdict, found.exit_code) == (Verdict.INCONCLUSIVE, 3)
    assert found.detectable_tv > 0.05


#: Settings in which a mistake acts.
PROCESSED = Sampling(temperature=1.5, top_k=4, top_p=0.9)
OFTEN = Sampling(frequency_penalty=1.5, presence_penalty=0.5)
BIASED = Sampling(logit_bias=((0, -100.0), (1, 1.5)))
RARELY = {
    "typical_p": Sampling(typical_p=0.5), "top_n_sigma": Sampling(top_n_sigma=0.8),
    "xtc_probability": Sampling(xtc_probability=1.0, xtc_threshold=0.2),
    "dry_multiplier": Sampling(dry_multiplier=3.0, dry_base=2.0, dry_allowed_length=1),
    "allowed_token_ids": Sampling(allowed_token_ids=(0, 1, 3)), "bad_words": Sampling(bad_words=((0, 0), (1, 2), (3,))),
    "grammar": Sampling(grammar=(((0, 0), (1, 1), (3, 0)), ((0, 0), (1, 2)), ((3, 0), (1, 3)), ((6, 3),))),
}  # fmt: skip
LATE = Sampling(stop_ids=(1,), min_tokens=20)
SETTINGS = {
    "draft_temperature": Sampling(temperature=0.6), "verified_at_temperature": Sampling(temperature=0.6),
    "bonus_temperature": Sampling(temperature=2.0), "residual_temperature": Sampling(temperature=0.6),
    "temperature_twice": Sampling(temperature=0.6), "top_k_not_in_recovered": Sampling(top_k=3),
    "top_k_not_in_bonus": Sampling(top_k=3), "top_p_not_in_recovered": Sampling(top_p=0.8),
    "top_p_not_in_bonus": Sampling(top_p=0.8), "bonus_min_p": Sampling(min_p=0.3),
    "min_p_not_in_recovered": Sampling(min_p=0.3), "min_p_not_in_bonus": Sampling(min_p=0.3),
    "truncation_first": Sampling(temperature=2.0, top_p=0.8), "stop_cuts_more": Sampling(stop=(" a",)),
    "logprobs_mixed": Sampling(temperature=0.6), "penalties_miss_drafts": OFTEN,
    "bad_words_miss_drafts": RARELY["bad_words"], "grammar_miss_drafts": RARELY["grammar"],
    "penalties_not_in_bonus": OFTEN, "penalties_not_in_recovered": OFTEN,
    "prompt_penalised": Sampling(frequency_penalty=0.5), "prompt_not_penalised": Sampling(repetition_penalty=3.0),
    **{f"{name}_not_in_{place}": sampling for name, sampling in RARELY.items() for place in ("bonus", "recovered")},
    **dict.fromkeys(("logit_bias_not_in_bonus", "logit_bias_not_in_recovered"), BIASED),
    **dict.fromkeys(("min_tokens_not_in_bonus", "min_tokens_not_in_recovered"), LATE),
}  # fmt: skip
#: What a law of tokens cannot tell, and the mistakes that an audit cannot distinguish, by the name of all.
UNNAMED = {
    "coarse_uniforms", "stop_cuts_more", "logprobs_one_late", "logprobs_of_draft",
    "logprobs_zero_if_accepted", "logprobs_zero", "logprobs_mixed", "bonus_counted",
}  # fmt: skip
ALIKE = {
    "wrong_token_in_cache": {
        "target_not_rolled_back", "accepted_lost", "target_one_short",
        "recovered_not_cached", "unshifted_padding", "rows_of_next",
    },
    "bonus_argmax": {"greedy_every_fourth"},
}  # fmt: skip
#: What follows the law all the same: texts without their seeds, and drafts that are counted otherwise.
RIGHT = {"seed_ignored", "tested_counted"}
#: Mistakes in the fast tier, of each kind one.
FEW = {
    "draft_temperature", "greedy_residual", "target_not_rolled_back", "one_seed", "logprobs_zero",
    "bonus_counted", "grammar_miss_drafts", "state_drops_accepted", "expert_of_token_before", "window_off_by_one", "head_stale",
}  # fmt: skip
#: The architecture that a mistake needs, by its name or by where it acts.
ARCHITECTURES = {
    "window_off_by_one": "sliding-window",
    "expert": "moe",
    "state": "gated-delta",
    "head": "head",
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in ACTS if n not in RIGHT]
)
def test_a_mistake_is_found_and_named(name, pair, opened, made_as, full):
    where = opened if name in ("wrong_page", "first_token_of_next") else pair
    if architecture := ARCHITECTURES.get(name) or ARCHITECTURES.get(WHERE.get(name)):
        where = made_as(architecture)
    tokens, sampling = 40_000 if full else FEWER, SETTINGS.get(name, Sampling())
    how = {"sampling": sampling, "texts": 2 if name == "copies_alike" else 1, "order": FIRST_ORDER, "rng": 1}
    how["shared_prompts"] = name == "prefix_one_long"
    found = audit_engine("specsim", where, tokens=tokens, mistake=name, **how)
    kind = {"logprobs": "log-probabilities", "bonus_counted": "counters", "head": "counters"}
    wanted = next((kind[start] for start in kind if name.startswith(start)), None)
    assert found.exit_code == 1
    assert wanted in (None, found.findings[0].kind)
    if name not in UNNAMED:
        nearest = found.diagnosis[0]
        common = next((one for one, names in ALIKE.items() if name in names), name)
        assert nearest.name == common
        assert name in (nearest.name, *nearest.alike)
        assert nearest.mechanism.endswith(".")
    if wanted == "log-probabilities":
        assert found.logprobs.named == name


class Changing(LocalEngine):
    """Decodes with other parameters than it is asked for."""

    def complete(self, requests):
        changed = [replace(one, sampling=replace(one.sampling, **self.values)) for one in requests]
        return super().complete(changed)


@pytest.mark.parametrize("speculative", [True, False])
@pytest.mark.parametrize(
    ("sampling", "values", "name"),
    [
        (Sampling(top_k=3), {"top_k": 4}, "other_top_k:k=4"),
        (Sampling(repetition_penalty=2.0), {"repetition_penalty": 0.5}, "repetition_divides"),
        (Sampling(frequency_penalty=1.0), {"frequency_penalty": -1.0}, "penalties_added"),
        (Sampling(temperature=0.5), {"temperature": 1.0}, None),
    ],
)
def test_other_parameters_are_named_without_drafts_too(sampling, values, name, speculative, pair):
    engine = Changing(pair, speculative=speculative, seed=1)
    engine.values = values
    found = audit_engine(engine, pair, tokens=4_000, sampling=sampling, rng=1)
    assert name in (found.diagnosis[0].name, None)
    assert speculative or not any("bonus" in one.name for one in found.diagnosis)


def test_tokens_after_a_stop_are_a_finding(pair):
    engine = Changing(pair, seed=1)
    engine.values = {"stop_ids": ()}
    found = audit_engine(engine, pair, tokens=2_000, sampling=Sampling(stop_ids=(1,)), rng=1)
    assert "texts have tokens after what stops them, the first of request" in found.findings[0].text


@pytest.mark.parametrize("speculative", [True, False])
def test_a_grammar_is_part_of_the_law_and_ends_texts_where_it_says(pair, speculative):
    """A text that goes on after its end has tokens that cannot come, as has one that ends before it."""
    how = {"tokens": 4_000, "sampling": RARELY["grammar"], "rng": 1}
    engine, (*states, _) = Changing(pair, speculative=speculative, seed=1), how["sampling"].grammar
    engine.values = {}
    assert audit_engine(engine, pair, **how).findings == ()
    engine.values = {"grammar": (*states, ((0, 3),))}
    early = Answering(pair, lambda one: replace(one, tokens=one.tokens[:2], logprobs=None, finish="stop"))
    for wrong in (engine, early):
        assert "support" in {one.kind for one in audit_engine(wrong, pair, **how).findings}


@pytest.mark.parametrize("name", ["moe", "short-conv", "sliding-window", "gated-delta", "head", "eagle3"])
def test_a_right_engine_of_any_architecture_is_not_accused(made_as, name):
    found = audit_engine("specsim", made_as(name), tokens=FEWER, rng=2)
    assert not found.findings
    assert not found.diagnosis


def test_rows_in_pieces_and_places_in_blocks_give_the_same(wrong, monkeypatch):
    run, whole = wrong
    monkeypatch.setattr(places, "ENTRIES", 512)
    monkeypatch.setattr(diagnosis, "BLOCK", 1_000)
    pieces = judge(run)
    for one, other in zip(whole.tests, pieces.tests, strict=True):
        assert one.log10_e == pytest.approx(other.log10_e, rel=1e-9)
    assert [one.name for one in pieces.diagnosis] == [one.name for one in whole.diagnosis]


def test_with_large_vocabularies_mistakes_are_tried_at_some_places(wrong, monkeypatch):
    run, whole = wrong
    monkeypatch.setattr(_audit.judge, "MOST_ENTRIES", whole.tokens * run.planted.target.vocab_size // 4)
    found = judge(run)
    tested = next(test for test in found.tests if test.name == "known mistakes")
    assert abs(tested.n - whole.tokens / 4) < 5 * (whole.tokens * 3 / 16) ** 0.5
    assert tested.rejected
    assert found.diagnosis[0].name == "greedy_residual"


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_what_follows_the_law_is_left_alone(name, pair, full):
    found = audit_engine("specsim", pair, tokens=TOKENS if full else FEWER, mistake=name, rng=1)
    assert found.findings == ()


#: Engines that are right, and how many audits of each find nothing.
RIGHT_ENGINES, AUDITS = ("standard", "block", "plain", "gamma 1", "processed", "penalised", "head"), 40


def test_the_page_says_what_was_audited():
    page = (Path(__file__).parents[3] / "docs/auditing-engines.md").read_text(encoding="utf-8")
    engines, audits = re.search(
        r"(\w+) right engines \(.*?\) gave no false alarm in (\d+) audits", " ".join(page.split())
    ).groups()
    assert engines == {7: "Seven"}[len(RIGHT_ENGINES)]
    assert int(audits) == len(RIGHT_ENGINES) * AUDITS


@pytest.mark.slow
@pytest.mark.parametrize("rule", RIGHT_ENGINES)
def test_right_engines_are_left_alone_many_times(rule, pair, made_as):
    options = {"plain": {"speculative": False}, "gamma 1": {"gamma": 1}, "block": {"rule": "block"}}
    sampling = {"processed": PROCESSED, "penalised": OFTEN}.get(rule, Sampling())
    for seed in range(AUDITS):
        where = made_as("head") if rule == "head" else pair
        found = audit_engine(
            "specsim", where, tokens=2_000, rng=seed, sampling=sampling, **options.get(rule, {})
        )
        assert found.findings == ()


def test_the_order_of_processing_is_inferred(pair):
    found = audit_engine("specsim", pair, tokens=2_000, sampling=PROCESSED, rng=1)
    assert found.order == FIRST_ORDER
    assert found.findings == ()
    other = [order for order in ORDERS if order != FIRST_ORDER][2]
    assert audit_engine("specsim", pair, tokens=2_000, sampling=PROCESSED, order=other, rng=1).exit_code == 1


def test_penalties_of_one_path_that_count_other_tokens_are_a_finding(pair):
    """What they count is named, not judged: only the difference from the other path is wrong."""
    sampling = Sampling(frequency_penalty=0.5, temperature=0.8)
    right, wrong = (
        audit_engine("specsim", pair, tokens=4_000, sampling=sampling, rng=1, mistake=mistake)
        for mistake in (None, "prompt_penalised")
    )
    assert right.findings == ()
    assert "of" not in right.order + wrong.order  # the prompt is counted by repetition alone
    assert wrong.diagnosis[0].name == "prompt_penalised"


def test_log_probabilities_tell_orders_apart_that_few_tokens_do_not(pair):
    """A right engine that returns those of penalised rows is not accused, whatever order is likeliest."""
    sampling = Sampling(repetition_penalty=2.0, penalty_last_n=6)
    requests = plan_requests(pair, 1, sampling, 300)
    run = serve(open_engine("specsim", pair), pair, requests, TextStore(None, {}), 1)
    asked = {one.number: one for one in requests}
    answered = places.Answered(pair, asked, run.texts)
    found = answered.places()
    for order in (names := possible_orders(sampling)):
        given = places.Given(pair, sampling, order, found.contexts, answered.padded())
        logs = iter(np.log(given.p[np.arange(len(found)), found.tokens]))
        texts = [replace(one, logprobs=tuple(islice(logs, len(one.tokens)))) for one in run.texts]
        assert judge(replace(run, texts=texts)).order == order
        wrong = judge(replace(run, texts=texts), orders=[one for one in names if one != order][:1])
        assert [one.kind for one in wrong.findings] == ["log-probabilities"]


@pytest.mark.parametrize("seed", range(3))
def test_raw_log_probabilities_tell_no_orders_apart(pair, seed):
    """Rows that are nearly raw under one order, where a penalty counts every word, do not make it the engine's."""
    sampling = Sampling(presence_penalty=2.0)
    requests = plan_requests(pair, seed, sampling, 300)
    run = serve(open_engine("specsim", pair), pair, requests, TextStore(None, {}), seed)
    answered = places.Answered(pair, {one.number: one for one in requests}, run.texts)
    found = answered.places()
    given = places.Given(pair, sampling, possible_orders(sampling)[0], found.contexts, answered.padded())
    logs = iter(np.log(given.raw.p[np.arange(len(found)), found.tokens]))
    texts = [replace(one, logprobs=tuple(islice(logs, len(one.tokens)))) for one in run.texts]
    judged = judge(replace(run, texts=texts))
    assert (judged.order, judged.findings) == (judge(run).order, ())
    assert judged.logprobs.wrong == 0


def test_every_parameter_is_the_same_over_http(pair):
    sampling = Sampling(
        0.8, 5, 0.95, 0.01, (), 2, 1.3, 0.2, 0.1, 9, ((0, 0.5), (1, -100.0)), stop_ids=(2,), min_tokens=3,
        allowed_token_ids=(0, 2, 3, 4), bad_words=((3,), (4, 0)), dry_multiplier=0.7, dry_base=1.5, dry_allowed_length=1, dry_penalty_last_n=12,
        grammar=(((0, 0), (2, 1), (4, 0)), ((0, 1), (4, 0), (6, 1))),
    )  # fmt: skip
    how = {"tokens": 1_000, "sampling": sampling, "order": None, "rng": 1}
    with listening(Server(Decoder(pair), port=0)) as url:
        there, here = (audit_engine(engine, pair, **how) for engine in (url, "specsim"))
    assert there.findings == here.findings == ()
    assert (there.tokens, there.failures) == (here.tokens, {})


def test_values_of_the_checkpoint_or_neutral_ones_are_named_and_others_are_a_finding(tmp_path, monkeypatch):
    def filling(**values):
        taken = property(lambda text: replace(text.request.sampling, defaults=(), **values))
        monkeypatch.setattr(Text, "sampling", taken)
        return audit_engine("specsim", made, **how)

    values = {"temperature": 0.6, "top_k": 4, "repetition_penalty": 1.5}
    made = plant(tmp_path / "pair", vocab_size=6, context=160, generation_config=values, rng=1)
    assert made.defaults == values
    config = json.loads((tmp_path / "pair/target/generation_config.json").read_text(encoding="utf-8"))
    assert values.items() <= config.items()
    left_out = Sampling(defaults=tuple(made.defaults.items()), logprobs=None)
    how = {"tokens": 3_000, "sampling": left_out, "rng": 1}
    with listening(Server(Decoder(made), port=0)) as url:
        followed, sent = (audit_engine(url, made, **how | {"sampling": s}) for s in (left_out, Sampling()))
    values = "values: temperature 0.6, top_k 4, repetition_penalty 1.5."
    assert followed.notes[1] == f"What requests leave out fits the checkpoint's {values}"
    assert sent.order == FIRST_ORDER
    wrong = audit_engine("specsim", made, mistake="temperature_twice", **how)
    assert wrong.diagnosis[0].name == "temperature_twice"
    words = ["--requests", "defaults", "--tokens", "3000", "--seed", "1", "--json"]
    found = json.loads(run("audit", "engine", "specsim", "--planted", made.folder, *words).out)
    assert found["order"] == followed.order
    neutral, other = filling(), filling(temperature=0.6)
    assert [one.order.startswith(DEFAULTS) for one in (followed, neutral)] == [True, False]
    assert neutral.notes[1].startswith("What requests leave out fits neutral values, not the checkpoint's: ")
    assert followed.findings == neutral.findings == sent.findings == ()
    assert (other.verdict, other.findings[0].kind) == ("biased", "deviation")


def test_defaults_must_be_there(pair, tmp_path):
    code, _, err = run("audit", "engine", "specsim", "--planted", str(pair.folder), "--requests", "defaults")
    assert (code, "has no defaults; plant it with --generation-config" in err) == (2, True)
    for values in ({"min_p": 0.1}, {"temperature": -1.0}):
        refuses(r"^(defaults|temperature): ", plant, tmp_path / "pair", generation_config=values)


def test_few_texts_leave_several_orders_possible(pair):
    """A narrower one is likelier until the first token that it rules out, and not the engine's for that."""
    sampling, engine = Sampling(temperature=1.5, top_p=0.9, min_p=0.05), open_engine("specsim", pair)
    requests = plan_requests(pair, 1, sampling, 1_000)
    run = serve(engine, pair, requests, TextStore(None, {}), 1)
    short = next(one for one in run.texts if len(one.tokens) < 8)
    few, all_of_them = (likely_orders(replace(run, texts=texts)) for texts in ([short], run.texts))
    assert FIRST_ORDER in all_of_them
    assert len(all_of_them) < len(few) == len(ORDERS)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda one: replace(one, tokens=one.tokens[:-1], logprobs=one.logprobs[:-1]), "contract"),
        (lambda one: replace(one, tokens=(*one.tokens[:-1], 99)), "contract"),
        (lambda one: replace(one, tokens=(*one.tokens[:-1], 6)), "support"),  # end-of-text
        (lambda one: Failure(one.number, "garbage", "not JSON"), "contract"),
        (lambda one: replace(one, finish="stop"), "contract"),
        (lambda one: replace(one, accepted=one.drafted + 1), "counters"),
        (lambda one: replace(one, logprobs=tuple(x - 1e-3 for x in one.logprobs)), "log-probabilities"),
        (lambda one: replace(one, top=({0: 0.5},) * len(one.tokens)), "log-probabilities"),
    ],
)
def test_wrong_answers_are_findings(change, kind, pair):
    found = audit_engine(Answering(pair, change), pair, tokens=1_000, rng=1)
    assert kind in {finding.kind for finding in found.findings}
    assert (found.exit_code, found.verdicts.get(kind, "biased")) == (1, "biased")
    assert ("texts inconclusive" in found.headline()) == (
        kind in ("log-probabilities", "counters", "contract")
    )


def test_failures_of_the_network_are_no_findings(pair):
    engine = Answering(pair, lambda one: Failure(one.number, "connection", "refused"))
    found = audit_engine(engine, pair, tokens=20_000, rng=1)
    assert (found.verdict, found.exit_code, found.tokens) == (Verdict.INCONCLUSIVE, 3, 0)
    assert found.failures["connection"] == 128  # then it is not asked further
    assert "refused" in " ".join(found.notes)


@pytest.mark.parametrize("drip", [b"", b" "], ids=["silent", "a byte at a time"])
@pytest.mark.parametrize(("seconds", "timeout"), [(0.5, 60.0), (None, 0.2)])
def test_a_server_that_does_not_answer_is_given_up(drip, seconds, timeout, pair, monkeypatch):
    monkeypatch.setattr("specsim.engines._clients.http.GET_SECONDS", 0.2)
    ended = threading.Event()

    def answer(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" if drip else b"")
        while not ended.wait(0.05):
            handler.wfile.write(drip)

    with answering(lambda payload, call, handler: answer(handler), get=answer) as url:
        started = time.monotonic()
        found = audit_engine(url, pair, tokens=TOKENS, seconds=seconds, timeout=timeout, rng=1)
        assert time.monotonic() - started < 8
        ended.set()
    assert (found.verdict, found.failures) == ("inconclusive", {"timeout": 16})


def test_answers_that_were_not_asked_for_are_not_counted(pair):
    engine = Answering(pair, lambda one: replace(one, number=one.number % 4))
    assert audit_engine(engine, pair, tokens=3_000, rng=1).texts == 4


def test_half_precision_is_allowed_for(pair):
    """Of log-probabilities that are rounded to multiples of 1/2: those that are off by less are accepted."""
    law = pair.target
    logits = replace(law.logits, table=np.round(2.0 * law.logits.table) / 2.0)
    coarse = Answering(replace(pair, target=replace(law, logits=logits)), lambda one: one)
    assert audit_engine(coarse, pair, tokens=WRONG_TOKENS, tolerance=0.3, rng=1).findings == ()
    assert audit_engine(coarse, pair, tokens=WRONG_TOKENS, rng=1).exit_code == 1


def test_a_run_goes_on_from_its_texts(pair, tmp_path):
    whole = audit_engine("specsim", pair, tokens=3_000, rng=1)

    class Stops(Answering):
        def complete(self, requests):
            for i, answer in enumerate(super().complete(requests)):
                if i == 20:
                    raise KeyboardInterrupt
                yield answer

    first = Stops(pair, lambda one: one)
    first.name, first.version, first.describe = "specsim", open_engine("specsim", pair).version, dict
    part = audit_engine(first, pair, tokens=3_000, rng=1, out=tmp_path)
    assert part.interrupted
    assert part.exit_code == 3
    assert part.texts == 20
    file = tmp_path / "texts.jsonl"
    file.write_bytes(file.read_bytes()[:-40])  # a crash in the middle of a line
    second = Answering(pair, lambda one: one)
    second.name, second.version, second.describe = first.name, first.version, dict
    again = audit_engine(second, pair, tokens=3_000, rng=1, out=tmp_path)
    assert again.tests == whole.tests
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + again.texts + 8  # the repeated ones are kept too
    with pytest.raises(ValueError, match=r"of another run: its seed differ \(seed 1, now 2\)"):
        audit_engine(second, pair, tokens=3_000, rng=2, out=tmp_path)


def test_a_run_begins_again_where_its_first_line_is_cut(pair, tmp_path):
    """In a cut header nothing is lost; another file's only line is not replaced."""
    again = partial(audit_engine, "specsim", pair, tokens=200, rng=1, out=tmp_path)
    whole, file = again(), tmp_path / "texts.jsonl"
    text = file.read_bytes()
    for length in (0, 1, 60, text.index(b"\n")):
        file.write_bytes(text[:length])
        assert again() == whole
        assert file.read_bytes().startswith(text[: text.index(b"\n")])
    file.write_bytes(b'{"mine": 1')
    refuses("line 1: not JSON", again)
    assert file.read_bytes() == b'{"mine": 1'


def test_texts_are_judged_again_without_the_engine(pair, tmp_path):
    sampling = Sampling(temperature=1.5, stop=(" a",), logprobs=2)
    options = {"tokens": 1_000, "texts": 2, "sampling": sampling, "mistake": "greedy_residual", "rng": 1}
    first = audit_engine("specsim", pair, out=tmp_path, unequal_prompts=True, **options)
    file = tmp_path / "texts.jsonl"
    before = file.read_bytes()
    again = judge_texts(file, pair)
    assert (again.tests, again.findings, again.logprobs) == (first.tests, first.findings, first.logprobs)
    assert (again.engine, again.efficiency, again.diagnosis) == ("specsim", first.efficiency, first.diagnosis)
    assert not again.interrupted
    found = run("audit", "engine", file, "--planted", pair.folder, "--json")
    assert (found.code, json.loads(found.out)["verdict"]) == (first.exit_code, str(first.verdict))
    lines = before.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:9]) + lines[9][:30])  # a run that was killed
    part = judge_texts(file, pair)
    assert (part.texts, part.interrupted) == (8, True)
    assert file.read_bytes() == b"".join(lines[:9]) + lines[9][:30]


def test_texts_that_cannot_be_judged_again(pair, opened, tmp_path):
    audit_engine("specsim", pair, tokens=200, out=tmp_path, rng=1)
    file = tmp_path / "texts.jsonl"
    refuses("texts are of another checkpoint", judge_texts, file, opened)
    refuses("tolerance: 2 is outside", judge_texts, file, pair, tolerance=2)
    list(TextStore(file, {}).add([Completion(999, 0, (1,))]))
    refuses("text 0 of request 999 was not asked for", judge_texts, file, pair)
    for text, said in (
        (line({"format": "specsim engine texts 2", "planted": pair.digest}), "its values are wrong"),
        ('{"choices": []}\n', "not the header of a file"),
        (line({}), "texts are of no planted checkpoint"),
    ):
        file.write_text(text, encoding="utf-8")
        refuses(said, judge_texts, file, pair)


def test_a_plan_is_no_longer_than_what_was_answered(pair, tmp_path):
    audit_engine("specsim", pair, tokens=200, out=tmp_path, rng=1)
    file = tmp_path / "texts.jsonl"
    header, *texts = file.read_text(encoding="utf-8").splitlines(keepends=True)
    header = {name: value for name, value in json.loads(header).items() if name != "crc32"} | {
        "tokens": 2**64
    }
    file.write_text(line(header) + "".join(texts), encoding="utf-8")
    endless = judge_texts(file, pair)
    assert (endless.texts, endless.interrupted) == (len(texts), True)


def line(entry):
    """A line of a file of texts; the header, if nothing is given."""
    entry = entry or {"format": "specsim engine texts 2"}
    return json.dumps(entry | {"crc32": _checksum(entry)}) + "\n"


@refused(
    ("{1", "line 1: not JSON"),
    ("[]\n", "line 1: expected the header"),
    (line({}) + '{"completion": 3}\n', "line 2: its checksum is wrong"),
    (line({}) + line({"completion": 3}), "line 2: its values are wrong"),
    (line({}) + line({"failure": {"nothing": 1}}), "line 2: its values are wrong"),
    (line({}) + "none\n", "line 2: not JSON"),
)
def test_files_that_hold_no_texts_are_refused(text, tmp_path):
    (tmp_path / "texts.jsonl").write_text(text, encoding="utf-8")
    TextStore(tmp_path / "texts.jsonl", {})


def test_a_text_is_kept_once(tmp_path):
    store = TextStore(tmp_path / "texts.jsonl", {"seed": 1})
    one = Completion(0, 0, (1, 2), (-0.1, None), ({1: -0.1}, {}))
    assert list(store.add([Failure(0, "timeout", "late"), one, replace(one, tokens=(3,))])) == [
        Failure(0, "timeout", "late"),
        one,
    ]
    again = TextStore(tmp_path / "texts.jsonl", {"seed": 1})
    assert (again.texts(), again.failures) == ([one], {})


@refused(
    ({"tokens": 0}, "tokens: 0 is not at least 1"),
    ({"texts": 0}, "texts: 0 is not at least 1"),
    ({"seconds": 0.0}, "seconds: 0.0 is outside"),
    ({"tolerance": -1.0}, "tolerance: -1.0 is outside"),
    ({"sampling": Sampling(stop=(" a b",))}, "is not the text of a token, such as ' a'"),
    ({"sampling": Sampling(stop=("hello",))}, "is not the text of a token, such as ' a'"),
    ({"sampling": Sampling(logit_bias=tuple((x, -100.0) for x in range(9)))}, "no word is left that may"),
    ({"mistake": "nothing"}, "nothing"),
    ({"mistake": "state_lost"}, "state_lost is of a state, experts or a head that this pair lacks"),
    ({"window": 3}, "window"),
)
def test_bad_arguments_are_named(options, pair):
    audit_engine("specsim", pair, **options)


def test_each_cell_has_the_command_that_repeats_it(pair, monkeypatch):
    """The command makes the requests of the cell, whatever they are."""
    made = []

    def noted(*_, **options):
        made.append(options)
        raise ValueError("noted")

    monkeypatch.setattr("specsim.audit_engine", noted)
    rows = settings(pair)
    assert {row.name: row for row in rows if row.options() == ""}.keys() == {"plain"}
    for row in rows:
        run("audit", "engine", "specsim", "--planted", pair.folder, *shlex.split(row.options()))
        asked = made[-1]
        assert asked["sampling"] == row.sampling
        assert asked["texts"] == row.n
        assert {name: asked[name] for name in row.form} == row.form
    assert len(made) == len({row.options() for row in rows}) == len(rows)


def test_requests_without_seeds_and_of_unequal_lengths(pair):
    options = {"tokens": 4_000, "texts": 2, "sampling": Sampling(**PENALTIES), "seed": 1}
    found = audit_engine("specsim", pair, **options, request_seeds=False, unequal_prompts=True, rng=1)
    assert found.findings == ()
    assert not any("same seed" in note for note in found.notes)
    planned = plan_requests(pair, 1, Sampling(), 4_000, request_seeds=False, unequal_prompts=True)
    assert {request.seed for request in planned} == {None}
    lengths = [len(request.prompt) for request in planned[:8]]
    assert min(lengths[1::2]) > max(lengths[::2]) + 32
    wrong = audit_engine("specsim", pair, **options, unequal_prompts=True, mistake="unshifted_padding", rng=1)
    assert wrong.exit_code == 1


def test_beginnings_that_prompts_share_show_a_cache_that_is_read_too_far(pair):
    run = partial(audit_engine, "specsim", pair, tokens=4_000, rng=1)
    wrong = run(shared_prompts=True, mistake="prefix_one_long")
    assert [one.name for one in wrong.diagnosis] == ["prefix_one_long"]
    assert run(mistake="prefix_one_long").findings == run(shared_prompts=True).findings == ()
    prompts = [request.prompt for request in plan_requests(pair, 1, Sampling(), 4_000, shared_prompts=True)]
    assert len({prompt[:16] for prompt in prompts[:16]}) == 1
    assert len({*prompts[:16]}) == 8


def test_engines_are_closed_if_another_one_cannot_be_opened(pair, monkeypatch):
    closed = []
    monkeypatch.setattr(LocalEngine, "close", lambda self: closed.append(self))
    refuses("is not an address", audit_matrix, "specsim", pair, without="http:nowhere://", tokens=100)
    assert len(closed) == 1


def test_the_page_has_every_setting_of_the_batteries(pair):
    page = (Path(__file__).parents[3] / "docs/batteries.md").read_text(encoding="utf-8")
    rows = settings(pair)
    for size, about in BATTERIES.items():
        some = settings(pair, size)
        assert rows[: len(some)] == some
        tokens, share = about["tokens"], 1e-6 / (2 * len(some))
        for row in some[-len(matrix.SETTINGS[size]) :]:
            assert re.search(
                rf"^\| {re.escape(row.name)} \| {size} \| .* \| {re.escape(row.finds)} \|$", page, re.M
            )
        minutes = 2 * len(some) * tokens / 2000 / 60
        assert minutes < {"small": 1, "mid": 10, "big": 120}[size]
        assert (
            f"| {size} | {about['version']} | {len(some)} | {tokens:,} | {minutes:.1f} min | "
            f"{about['detectable_tv']:g} | {share:.1e} |"
        ) in page


def test_a_battery_is_asked_of_open_engines(pair, two_settings):
    ours, plain = LocalEngine(pair, seed=1), LocalEngine(pair, speculative=False, seed=1)
    found = audit_matrix(ours, pair, without=plain, battery="small", tokens=300, rng=1)
    named = audit_matrix("specsim", pair, battery="small", tokens=300, rng=1)
    assert [cell.speculative.tests for cell in found.cells] == [
        cell.speculative.tests for cell in named.cells
    ]
    assert found.engine == "specsim"
    assert re.search(r"A text takes \S+ s with speculation, \S+ s without, [\d.]+ times as long", str(found))
    assert audit_matrix(ours, pair, battery="small", tokens=300, rng=1).cells[0].plain is None
    with pytest.raises(TypeError, match="gamma: an open engine takes no options"):
        audit_matrix(ours, pair, tokens=1, gamma=3)


def test_the_audits_of_a_battery_share_one_budget(pair, two_settings):
    found = audit_matrix("specsim", pair, battery="small", tokens=300, rng=1)
    audits = [audit for cell in found.cells for audit in (cell.speculative, cell.plain)]
    assert sum(audit.budget for audit in audits) == pytest.approx(1e-6)
    assert {audit.wanted_tv for audit in audits} == {BATTERIES["small"]["detectable_tv"]}
    assert "Battery small, version 3: 2 settings, 300 tokens each" in to_text(found.parts())
    refuses("battery: 'tiny' is unknown", audit_matrix, "specsim", pair, battery="tiny")


@pytest.mark.parametrize(("fits", "named"), [((1, 0), 1), ((1, 0, 0), 0), ((0, 0), 0), ((), 0)])
def test_a_mistake_that_fits_in_few_audits_of_many_is_not_named(pair, two_settings, fits, named):
    """What explains one setting and not the others explains it by chance."""
    found = audit_matrix("specsim", pair, battery="small", tokens=300, rng=1)
    audits = []
    for cell, fit in zip_longest(found.cells, fits[:2]):
        one = KnownMistake("lenience", (), "Too many.", "everywhere", 1.0, 50.0, 0.0, bool(fit))
        audits.append(cell.speculative if fit is None else replace(cell.speculative, diagnosis=(one,)))
    cells = [replace(cell, speculative=one) for cell, one in zip(found.cells, audits, strict=True)]
    if len(fits) == 3:  # the other path of a setting fits as little
        cells[1] = replace(cells[1], plain=replace(cells[1].plain, diagnosis=(one,)))
    found = replace(found, cells=tuple(cells))
    said = " ".join(map(str, found.remarks()))
    assert said.count("closest known mistake: lenience") == named
    few = "Known mistakes fit in {} of {} audits that deviate: too few to name one."
    assert (few.format(sum(fits), len(fits)) in said) is (bool(fits) and not named)


class CopiesBeginAlike(LocalEngine):
    """The copies of a request share the `shared` numbers of their first token, each drawn rightly."""

    shared = ""

    def complete(self, requests):
        for request in requests:
            drafts = np.random.default_rng([request.number, request.n])
            first = int(drafts.choice(len(self.row(request.prompt)[1]), p=self.row(request.prompt)[1]))
            for index in range(request.n):
                own, text = np.random.default_rng([request.number, index]), list(request.prompt)
                for place in range(request.max_tokens):
                    p, q = self.row(text)
                    alike = self.shared == "token" and not place
                    rng = np.random.default_rng([request.number, request.n]) if alike else own
                    if self.shared != "draft" or place:
                        text.append(int(rng.choice(len(p), p=p)))
                    elif own.random() < p[first] / q[first]:
                        text.append(first)
                    else:
                        left = np.maximum(p - q, 0.0)
                        text.append(int(own.choice(len(p), p=left / left.sum())))
                yield Completion(request.number, index, tuple(text[len(request.prompt) :]), finish="length")

    def row(self, text):
        context = self.pair.target.contexts([*text, 0], len(text))
        return self.pair.target.rows(context)[0], self.pair.draft.rows(context)[0]


class KeepsOtherTies(LocalEngine):
    """Of equally probable words at the end of a cut it keeps those that specsim does not."""

    def complete(self, requests):
        law = self.pair.target
        for request in requests:
            rng, text = np.random.default_rng(request.seed), np.array(request.prompt)
            for _ in range(request.max_tokens):
                scores = law.scores(law.contexts([*text, 0], len(text)))
                seen = Seen(text[None], *np.array([[len(request.prompt)], [0], [len(text)]]))
                ranks = np.linspace(0.0, self.apart, scores.shape[1])
                row = processed(scores + ranks, request.sampling, seen=seen)[0]
                text = np.append(text, rng.choice(len(row), p=row))
            tokens = tuple(map(int, text[len(request.prompt) :]))
            yield Completion(request.number, 0, tokens, finish="length")


def test_engines_may_keep_either_of_equally_probable_words(pair, monkeypatch):
    sampling = Sampling(temperature=0.6, top_p=0.8, frequency_penalty=1.0)
    for apart in (-1e-9, 1e-9):
        monkeypatch.setattr(KeepsOtherTies, "apart", apart, raising=False)
        found = audit_engine(KeepsOtherTies(pair), pair, tokens=6_000, sampling=sampling, rng=1)
        assert found.findings == ()
        (note,) = [note for note in found.notes if "engines may keep" in note]
        assert 10 < int(note.split()[0].replace(",", "")) < 0.2 * found.tokens
    monkeypatch.setattr(_audit.judge._Texts, "_decided", lambda texts, places: places)
    found = audit_engine(KeepsOtherTies(pair), pair, tokens=6_000, sampling=sampling, rng=1)
    assert "support" in [one.kind for one in found.findings]


class NeighboursParameters(LocalEngine):
    """Every fourth request is processed with the parameters of the one after it."""

    def complete(self, requests):
        after = [*requests[1:], requests[0]]
        moved = [one if i % 4 else two for i, (one, two) in enumerate(zip(requests, after, strict=True), 3)]
        asked = [replace(one, sampling=two.sampling) for one, two in zip(requests, moved, strict=True)]
        return super().complete(asked)


@pytest.mark.parametrize("mixed", [False, True])
def test_parameters_of_another_request_show_beside_requests_that_ask_for_something_else(pair, mixed):
    sampling = Sampling(temperature=0.6, frequency_penalty=1.0)
    asked = {"tokens": 4_000, "sampling": sampling, "mixed_requests": mixed, "rng": 1}
    found = audit_engine(NeighboursParameters(pair), pair, **asked)
    assert [one.kind for one in found.findings] == ["deviation"] * mixed
    right = audit_engine("specsim", pair, **asked)
    assert right.findings == ()
    assert right.tokens == found.tokens
    assert right.repeated == (8, 8)


def test_a_battery_says_that_texts_deviate_beside_other_requests_alone(pair):
    ours, plain = NeighboursParameters(pair), LocalEngine(pair, speculative=False)
    found = audit_matrix(ours, pair, without=plain, battery="small", tokens=3_600, rng=1)
    assert [cell.setting for cell in found.cells if cell.speculative.findings] == ["beside other requests"]
    said = " ".join(map(str, found.remarks()))
    assert "deviate only beside requests that ask for something else" in said
    assert "closest known mistake" not in said


@pytest.mark.parametrize("shared", ["", "token", "draft"])
def test_copies_that_share_their_first_step_alone_are_found(pair, shared, monkeypatch):
    monkeypatch.setattr(CopiesBeginAlike, "shared", shared)
    found = audit_engine(CopiesBeginAlike(pair), pair, tokens=18_000, texts=3, rng=1)
    assert [one.kind for one in found.findings] == ["dependence"] * bool(shared)
    assert not shared or "equal first tokens" in found.findings[0].text
    assert [one.name for one in found.diagnosis] == ["copies_alike"] * bool(shared)


@pytest.mark.parametrize(
    ("diagnosed", "named"),
    [
        (["lenience:lenience=0.8", "lenience:lenience=0.5", "", ""], ["plain", "temperature 0"]),
        (["greedy_draft", "lenience:lenience=0.5", "", ""], ["plain"]),
        (["", "lenience:lenience=0.5", "", ""], []),
        (["", "top_k_ignored", "", ""], ["temperature 0"]),
        (["", "top_k_ignored", "", "penalties_ignored"], []),
        (["", "top_k_ignored", "", "top_k_ignored"], ["temperature 0", "temperature 0, without speculation"]),
    ],
)
def test_one_cause_has_one_name_in_all_that_shows_it(pair, two_settings, diagnosed, named):
    """What shows whatever is asked for shows in the plain setting, and both paths of a setting agree."""
    found = audit_matrix("specsim", pair, battery="small", tokens=300, rng=1)
    one = KnownMistake("", (), "Too many.", "everywhere", 1.0, 50.0, 0.0, True)
    audits = [cell.speculative for cell in found.cells] + [cell.plain for cell in found.cells]
    audits = [
        replace(audit, diagnosis=(replace(one, name=name),) if name else ())
        for audit, name in zip(audits, diagnosed, strict=True)
    ]
    cells = zip(found.cells, audits[:2], audits[2:], strict=True)
    found = replace(found, cells=tuple(replace(cell, speculative=a, plain=b) for cell, a, b in cells))
    said = [line.partition(": closest")[0] for line in map(str, found.remarks()) if ": closest" in line]
    assert said == named


@pytest.mark.parametrize(("places", "share"), [(2, True), (1, True), (0, False)])
def test_a_token_that_is_not_the_text_s_is_named_without_the_one_that_is_read(
    pair, two_settings, places, share
):
    """Which token it is, the target's cache alone knows: nearest in half of the audits is enough."""
    found = audit_matrix("specsim", pair, battery="small", tokens=300, rng=1)
    one = KnownMistake("wrong_token_in_cache", (), "Another.", "everywhere", 0.3, 50.0, 0.0, False)
    names = ["wrong_token_in_cache"] * places + ["other_order"] * (2 - places)
    audits = [
        replace(cell.speculative, diagnosis=(replace(one, name=name),))
        for cell, name in zip(found.cells, names, strict=True)
    ]
    cells = zip(found.cells, audits, strict=True)
    found = replace(found, cells=tuple(replace(cell, speculative=audit) for cell, audit in cells))
    said = " ".join(map(str, found.remarks()))
    assert (f"Nearest in {places} of 2 audits that deviate: wrong_token_in_cache" in said) is share
    assert ("Known mistakes fit in 0 of 2" in said) is not share


@pytest.mark.parametrize(("plain", "wrong"), [((8, 8), True), ((7, 8), False), ((0, 0), False)])
def test_a_seed_that_gives_other_texts_with_speculation_alone_is_found(pair, two_settings, plain, wrong):
    found = audit_matrix("specsim", pair, battery="small", tokens=300, rng=1)
    assert {cell.speculative.repeated for cell in found.cells} == {(8, 8)}
    assert found.verdict is not Verdict.BIASED
    first, second = found.cells
    first = replace(
        first,
        speculative=replace(first.speculative, repeated=(3, 8)),
        plain=replace(first.plain, repeated=plain),
    )
    found = replace(found, cells=(first, second))
    text = "plain: the same seed gave the same text in 3 of 8 repeated requests, in all of them without speculation"
    assert [(one.kind, one.text) for one in found.findings] == [("dependence", text)] * wrong
    assert (text in " ".join(str(found).split())) is wrong
    assert [one.outcome for one in found.outcomes() if one.name == "seeds"] == ["failure"] * wrong
    assert (found.verdict is Verdict.BIASED) is wrong


@pytest.fixture
def two_settings(monkeypatch):
    monkeypatch.setattr(matrix, "settings", lambda planted, battery: settings(planted, "small")[:2])


def test_a_matrix_keeps_its_texts_and_goes_on_from_them(pair, two_settings, monkeypatch, tmp_path):
    asked = []
    complete = LocalEngine.complete

    def noted(self, requests):
        asked.append(len(requests))
        return complete(self, requests)

    monkeypatch.setattr(LocalEngine, "complete", noted)
    told = []
    how = {"tokens": 300, "out": tmp_path, "rng": 1}
    first = audit_matrix("specsim", pair, **how, progress=lambda *given: told.append(given))
    assert len(asked) == 4
    counts, planned = zip(*told, strict=True)
    assert sorted(counts) == list(counts)
    assert counts[-1] == planned[-1] == planned[0]
    names = ("plain", "temperature-0")
    files = {tmp_path / side / f"{name}.jsonl" for side in ("speculative", "plain") for name in names}
    assert {*tmp_path.rglob("*.*")} == files
    (tmp_path / "plain/temperature-0.jsonl").unlink()
    again = audit_matrix("specsim", pair, **how)
    assert len(asked) == 5  # of the file that was lost
    one, other = ([cell.speculative.tests for cell in found.cells] for found in (first, again))
    assert one == other
    with pytest.raises(ValueError, match=r"speculative/plain\.jsonl: the texts are of another run: its seed"):
        audit_matrix("specsim", pair, **how | {"rng": 2})
    assert len(asked) == 5


def test_a_matrix_says_what_is_refused_and_what_was_found(pair, two_settings, monkeypatch):
    """A setting that an engine refuses is no evidence for or against it."""
    complete = LocalEngine.complete

    def strict(self, requests):
        if requests[0].sampling.temperature == 0.0:
            yield from (Failure(one.number, "refused", "status 400: no [red]zeros") for one in requests)
        else:
            yield from complete(self, requests)

    monkeypatch.setattr(LocalEngine, "complete", strict)
    found = audit_matrix("specsim", pair, tokens=TOKENS, rng=1)
    assert (found.verdict, found.exit_code) == (Verdict.CONSISTENT, 0)
    said = to_text(found.parts())
    assert "temperature 0  refused" in said
    assert "the last one: refused, status 400: no [red]zeros" in said
    assert "--temperature 0.0" in said
    assert "2 audits were refused" in said
    assert [row["refused"] for row in found.records()] == [False, False, True, True]
    wrong = audit_matrix("specsim", pair, tokens=WRONG_TOKENS, rng=1, mistake="logprobs_zero")
    assert "biased (log-probabilities)" in to_text(wrong.parts())
    monkeypatch.setattr(matrix, "settings", lambda planted, battery: settings(planted, "small")[1:2])
    none = audit_matrix("specsim", pair, tokens=WRONG_TOKENS, rng=1)
    assert (none.verdict, none.exit_code) == (Verdict.INCONCLUSIVE, 3)


@pytest.mark.parametrize("stopped", [False, True])
def test_an_interrupted_matrix_ends(pair, two_settings, monkeypatch, stopped):
    """Also in a run without speculation."""
    complete = LocalEngine.complete

    def interrupted(self, requests):
        if stopped and self.describe()["speculative"] is False:
            raise KeyboardInterrupt
        return complete(self, requests)

    monkeypatch.setattr(LocalEngine, "complete", interrupted)
    found = audit_matrix("specsim", pair, tokens=300, rng=1)
    assert found.interrupted == stopped
    assert len(found.cells) == 2 - stopped
    assert found.exit_code == 3


def test_the_command_of_a_cell_repeats_it(pair, two_settings):
    found = audit_matrix("specsim", pair, tokens=300, rule="block", rng=1)
    for cell in found.cells:
        words = cell.command.split()
        assert words[:4] == ["specsim", "audit", "engine", "specsim:rule=block"]
        assert json.loads(run(*words[1:], "--json").out)["tokens"] == cell.speculative.tokens


@pytest.mark.slow
def test_the_matrix_shows_where_a_mistake_is(pair):
    found = audit_matrix("specsim", pair, tokens=1_500, mistake="top_k_not_in_bonus", rng=1)
    wrong = {cell.setting for cell in found.cells if cell.speculative.findings}
    assert wrong
    assert all("top-k" in setting or setting == "all of these" for setting in wrong)
    assert not any(cell.plain.findings for cell in found.cells)
    assert (found.verdict, found.exit_code) == (Verdict.BIASED, 1)
    assert all(f"--planted {pair.folder}" in cell.command for cell in found.cells)
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.to_arrow()) == 2 * len(found.cells)
    assert to_rich(found.parts())
