"""The audit of decoders: ours passes, wrong ones are caught, and every breach of the contract is named."""

from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import pytest
from conftest import FALSE_ALARM
from refused import refused, refuses

from specsim import audit, generate, mistakes
from specsim.adapters import declares
from specsim.adapters._contract import BrokenVerifier, Declared
from specsim.auditing._cases.battery import DecoderCase, decoder_battery
from specsim.auditing._checks.decoder import DecoderSource, DecoderTally, Processing, plan_decoder_tables
from specsim.auditing._checks.findings import evidence, judge_case, judge_table
from specsim.auditing._checks.tables import Plan
from specsim.auditing._verifier.local import Local
from specsim.core.distributions import inverse_cdf
from specsim.core.stats import log_e_value
from specsim.mistakes._decoding import Decoder, in_a_loop
from specsim.models import TableModel
from specsim.simulation._counting import Partial, run


def slow(*given):
    return pytest.param(*given, marks=pytest.mark.slow)


CASES = {case.name: case for case in decoder_battery()}
#: Cases that a right loop, or one that is wrong elsewhere, passes.
SOME = ("one token", "second order", "end in the draft", "whole text")
KEY = (3, 4)
NONE = Processing()
SEQUENCES, FEW = 4096, 512


def counted(case, decode, count=SEQUENCES, processing=NONE, batch=None):
    """The tables of `case`, the counts of `count` sequences, and the impossible tokens among them."""
    source = DecoderSource(case, Local(decode, Declared(decoder=True, batch=batch)))
    found = run(source, DecoderTally(case, processing), KEY, 0, count, threads=1)
    return plan_decoder_tables(case, processing, count), found.counts, found.examples


def findings(case, steps, tables, counts, examples, level):
    plan = Plan(case, "sequences", steps, tables, Partial({}))
    return list(judge_case(plan, Partial(counts, ((0, steps),), tuple(examples)), level).findings)


def rejected(case, decode, count=SEQUENCES, processing=NONE, batch=None):
    """Whether an eighth of the sequences, or all of them, are evidence against `decode`."""
    source = DecoderSource(case, Local(decode, Declared(decoder=True, batch=batch)))
    counts, done = DecoderTally(case, processing).zeros(), 0
    for steps in (count // 8, count):
        found = run(source, DecoderTally(case, processing), KEY, done, steps - done, threads=1).counts
        counts = {name: counts[name] + found[name] for name in found}
        plan = Plan(case, "sequences", steps, plan_decoder_tables(case, processing, steps), Partial({}))
        if evidence(plan, counts, FALSE_ALARM / plan.tests / 2)[0] >= 1.0:
            return True
        done = steps
    return False


def ours(target, draft, prompt, max_new_tokens, eos, rng, **options):
    options = {"gamma": 3} | options
    text = generate(target, draft, prompt, max_new_tokens=max_new_tokens, eos=eos, rng=rng, **options)
    return list(text.tokens)


#: Standard decoding in plain Python, right, and drafting γ tokens near the end of a text too.
decode = Decoder(overshoots=True)


def processed(processing, *roles):
    """The same, whose `roles` read processed rows."""
    known = cache(lambda row: processing.rows(np.array(row)).tolist())
    return replace(decode, **dict.fromkeys(roles, lambda row: known(tuple(row))))


def wrong_decoder(name):
    return in_a_loop(mistakes.get(name)).function


#: What our decoder decodes; the plain one decodes every case.
DECODED = ("standard", "whole text"), ("block", "end in the draft")
EVERY = product(("standard", "block"), CASES)


@pytest.mark.parametrize(("rule", "name"), [one if one in DECODED else slow(*one) for one in EVERY])
def test_our_decoder_passes(name, rule, full):
    sequences = SEQUENCES if full else SEQUENCES // 4
    tables, counts, examples = counted(CASES[name], partial(ours, rule=rule), sequences)
    level = FALSE_ALARM / len(tables)
    assert max(log_e_value(table.counts(counts), table.law) for table in tables) < -np.log(level)
    assert findings(CASES[name], sequences, tables, counts, examples, level) == []
    of_one_prompt = -(-sequences // len(CASES[name].prompts))
    assert counts["lengths"].sum() == sequences
    assert tables[0].counts(counts).sum() == of_one_prompt
    # enough was tested: deviations of a tenth are seen at the first token and after every likely one
    enough = (0.1 if full else 0.2) * np.sqrt(len(CASES[name].prompts))
    assert judge_table(tables[0], 0.0, counts, level).detectable_tv < enough
    assert {table.position for table in tables} == set(range(CASES[name].max_new_tokens))
    assert len({table.where for table in tables if table.kind == "prefix"}) == len(CASES[name].prompts)


@pytest.mark.parametrize("name", CASES)
def test_the_plain_decoder_passes(name, full):
    assert not rejected(CASES[name], decode, 2048 if full else 256)


WRONG = [
    ("second order", "greedy_draft"), ("second order", "decoder_bonus_from_draft"),
    ("zeros", "decoder_bonus_from_draft"), ("second order", "target_not_rolled_back"),
    ("second order", "target_one_short"), slow("far", "target_not_rolled_back"), slow("near", "target_one_short"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "mistake"), WRONG)
def test_a_wrong_decoder_is_rejected(name, mistake):
    assert rejected(CASES[name], wrong_decoder(mistake))


COIN = TableModel([0.5, 0.25, 0.25])


def of_coins(decoder, first=0, eos=None):
    case = DecoderCase("coin", "", COIN, COIN, ((0,),), 3, eos)
    return DecoderSource(case, Local(decoder)).batches(KEY, first, 1)


def returning(tokens):
    return lambda *arguments: tokens


def test_an_end_noticed_too_late_or_that_nobody_asked_for_is_a_breach():
    with pytest.raises(BrokenVerifier, match="a token follows eos = 0, which ends the text"):
        counted(CASES["end in the draft"], wrong_decoder("token_after_eos"))
    with pytest.raises(BrokenVerifier, match=r"stopped after 1 of 3 tokens$"):
        next(of_coins(returning([2])))
    assert next(of_coins(returning((2, 2, 2)))).tokens[:, 0].tolist() == [2, 2, 2]


def test_an_impossible_token_is_shown():
    case = CASES["zeros"]
    wrong = wrong_decoder("decoder_bonus_from_draft")
    tables, counts, examples = counted(case, wrong, 512)
    assert findings(case, 512, tables, counts, examples, FALSE_ALARM)[0].kind == "support"
    for example in examples:
        source = DecoderSource(case, Local(wrong))
        sequence = next(source.batches(KEY, example.step, 1)).tokens[:, 0]
        assert sequence[example.position] == example.token
        before = (*case.prompts[0], *sequence[: example.position])
        assert case.target.row(before)[example.token] == 0.0


ONE_BY_ONE = [Processing(temperature=0.6), Processing(top_k=2), Processing(top_p=0.8)]


@pytest.mark.parametrize("processing", [*map(slow, ONE_BY_ONE), Processing(0.7, 2, 0.9)], ids=str)
def test_a_claimed_processing_is_held_to(processing):
    case = CASES["peaked"]
    right = processed(processing, "drafting", "verified_q", "verified_p", "bonus")
    assert not rejected(case, right, 1024, processing)
    assert rejected(case, right, 1024)  # the unprocessed law is another
    assert rejected(case, decode, 1024, processing)


@pytest.mark.parametrize(
    "name", ["decoder_bonus_temperature", slow("residual_temperature"), slow("verified_at_temperature")]
)
def test_processing_on_one_side_is_rejected(name):
    """Engines forget it in one place of three: EAGLE's bonus (commit bf10ac5), vllm-project/vllm#42744."""
    assert rejected(CASES["peaked"], wrong_decoder(f"{name}:temperature=0.4"))


def test_temperature_on_the_draft_alone_is_only_slower():
    """A draft may be drawn in any way, as long as its q is handed over."""
    cool = processed(Processing(temperature=0.6), "drafting", "verified_q")
    assert not rejected(CASES["peaked"], cool, 1024)


def decode_batch(target, draft, prompts, max_new_tokens, eos, rng, *, shared=False, moved=False):
    """Standard decoding of several requests, one step of each in turn.

    `shared`: all have the random numbers of the first; `moved`: the next one continues a text that ends."""
    seeds = rng.integers(2**60, size=len(prompts))
    streams = [np.random.default_rng(seeds[0] if shared else seed) for seed in seeds]
    texts, new = [list(prompt) for prompt in prompts], [[] for _ in prompts]
    alive = list(range(len(prompts)))
    while alive:
        for r in list(alive):
            left = max_new_tokens - len(new[r])
            step = Decoder(gamma=1)(target, draft, texts[r], min(left, 2), eos, streams[r])
            texts[r] += step
            new[r] += step
            if len(new[r]) == max_new_tokens or eos in step:
                alive.remove(r)
                for other in [other for other in alive if other > r][:moved]:
                    texts[other] = list(texts[r])
    return new


@pytest.mark.parametrize("name", ["changing requests", slow("second order")])
def test_requests_in_one_call_pass(name):
    assert not rejected(CASES[name], decode_batch, batch=4)


@pytest.mark.parametrize("mistake", ["shared", "moved"])
def test_requests_that_are_mixed_up_in_a_call_are_rejected(mistake):
    assert rejected(CASES["changing requests"], partial(decode_batch, **{mistake: True}), batch=4)


def test_a_call_has_one_request_or_several():
    sizes = []

    def decode(target, draft, prompts, max_new_tokens, eos, rng):
        sizes.append(len(prompts))
        return [[0]] * len(prompts)

    counted(CASES["one token"], decode, 32, batch=3)
    assert sizes[:6] == [3, 1, 3, 2, 3, 3]
    assert sum(sizes) == 32


@refused(
    ([[0]], "sequence 0: returned 1 texts for 2 prompts"),
    (None, "sequence 0: returned no list of texts"),
    ([[0], [0, 0]], "sequence 1: returned 2 tokens, more than max_new_tokens = 1"),
    ([0, 0], "sequence 0: returned shape \\(\\)"),
    error=BrokenVerifier,
)
def test_what_a_call_of_several_requests_returns_is_checked(returned):
    counted(CASES["one token"], lambda *arguments: returned, 2, batch=2)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases_are_what_they_say(case):
    assert case.target.vocab_size**case.max_new_tokens <= 512
    assert min(map(len, case.prompts)) >= max(case.target.order, case.draft.order)
    for model in (case.target, case.draft):
        rows = model.table.reshape(-1, 3) if case.reads_all else model.rows(model.contexts)
        assert (rows.sum(axis=1) == 1.0).all()
        assert (rows * 2**24 == np.round(rows * 2**24)).all()
    if case.max_new_tokens <= 2:
        return
    options = {"max_new_tokens": case.max_new_tokens, "gamma": 2, "eos": case.eos}
    texts = [
        generate(case.target, case.draft, case.prompt_of(seed), **options, rng=seed) for seed in range(100)
    ]
    assert np.mean([text.iterations >= 3 for text in texts]) > 0.2
    accepted = sum(text.accepted for text in texts) / sum(text.drafted for text in texts)
    assert (accepted > 0.85) == (case.name == "near")
    assert (accepted < 0.2) == (case.name == "far")
    assert any(text.dropped for text in texts) == (case.eos is not None)
    if case.reads_all:
        return
    assert ((case.target.rows(case.target.contexts) == 0.0).any()) == (case.name == "zeros")
    assert ((case.draft.rows(case.draft.contexts) == 0.0).any()) == (case.name == "zeros")


def test_the_tables_cover_every_prefix_and_counts_do_not_depend_on_the_pieces():
    case = CASES["end in the draft"]
    tables = plan_decoder_tables(case, NONE, 10**9)
    prefixes = {table.prefix for table in tables}
    assert tables.pop().kind == "pairs"
    assert len(prefixes) == len(tables) == sum(2**i for i in range(5))  # the end of the text goes no further
    assert not any(case.eos in prefix for prefix in prefixes)
    assert len(plan_decoder_tables(case, NONE, 100)) < len(tables)
    case = CASES["second order"]
    source, tally = DecoderSource(case, Local(decode)), DecoderTally(case, NONE)
    whole = run(source, tally, KEY, 0, 96, threads=1)
    parts = [run(source, tally, KEY, first, 32, threads=1) for first in (0, 32, 64)]
    for name, counts in whole.counts.items():
        assert np.array_equal(counts, sum(part.counts[name] for part in parts))


def raising(error):
    def decode(*arguments):
        raise error

    return decode


@refused(
    (raising(RuntimeError("out of cheese")), "raised RuntimeError: out of cheese"),
    (raising(SystemExit(0)), "raised SystemExit"),
    (returning(None), "returned shape \\(\\), expected a single row"),
    (returning([[0, 0, 2]]), "returned shape \\(1, 3\\)"),
    (returning([[0], [0, 2]]), "returned no row of tokens"),
    (returning([]), "returned no token"),
    (returning([0.0, 1.0, 2.0]), "returned float64, expected integer"),
    (returning([True, True, True]), "returned bool"),
    (returning([0, 3, 1]), "position 2: token 3 is outside \\[0, 3\\)"),
    (returning([0, 0, -1]), "position 3: token -1"),
    (returning([0, 0, 0, 0]), "returned 4 tokens, more than max_new_tokens = 3"),
    (returning([0, 2, 0]), "position 3: a token follows eos = 2"),
    (returning([0, 1]), "stopped after 2 of 3 tokens without eos = 2"),
    error=BrokenVerifier,
    pattern="sequence 7.*{}".format,
)
def test_a_breach_of_the_contract_says_where_and_what(decoder):
    next(of_coins(decoder, 7, 2))


def test_what_a_decoder_does_to_its_prompt_is_its_own_affair():
    def greedy_hands(target, draft, prompt, max_new_tokens, eos, rng):
        prompt.append(int(rng.integers(3)))
        return np.full(max_new_tokens, prompt[-1])

    case = DecoderCase("coin", "", COIN, COIN, ((0,),), 3)
    list(DecoderSource(case, Local(greedy_hands)).batches(KEY, 0, 2))
    assert case.prompts == ((0,),)


@pytest.fixture
def tried(full):
    """The names of cases that a loop is tried on."""
    return CASES if full else SOME


def looping(target, draft, prompt, max_new_tokens, eos, rng, *, rows=None, draw=None):
    """A loop without a draft; rows(target, text, prompt) may give another row, draw(row, rng) another token."""
    new = []
    while len(new) < max_new_tokens and (not new or new[-1] != eos):
        text = [*prompt, *new]
        row = np.asarray(rows(target, text, prompt) if rows else target.row(text))
        new.append(int((draw or (lambda p, rng: inverse_cdf(p, rng.random())))(row, rng)))
    return new


def test_a_cache_that_holds_the_text_twice_is_found_by_its_length_alone(tried):
    twice = partial(looping, rows=lambda target, text, prompt: target.row([*text, *text]))
    wrong = {name for name in tried if rejected(CASES[name], twice, FEW)}
    assert wrong == {"whole text"}
    assert not rejected(CASES["whole text"], looping, FEW)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (lambda target, text, prompt: target.row(text[-16:]), ["whole text"]),
        (lambda target, text, prompt: target.row(text[1:] if len(text) > 2 else text), ["whole text"]),
        (
            lambda target, text, prompt: target.row(text[1 - target.order or len(text) :]),
            ["second order", "zeros"],
        ),
    ],
    ids=["a window of sixteen tokens", "the first token is lost", "one token too few"],
)
def test_a_target_that_reads_too_little_is_found(rows, names):
    assert all(rejected(CASES[name], partial(looping, rows=rows)) for name in names)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_models_have_rows_for_texts_shorter_than_they_read(case):
    """Another one than after the whole text: what is lost is seen. Each call gives the same."""
    for model in (case.target, case.draft):
        for prompt in case.prompts:
            whole = np.asarray(model.row(prompt))
            for text in (prompt[len(prompt) - n :] for n in range(model.order)):
                short = np.asarray(model.row(text))
                assert short.sum() == 1.0
                assert case.reads_all or not short.flags.writeable
                assert not np.allclose(short, whole)
                assert np.array_equal(model.rows([text], out=np.empty((1, case.vocab_size)))[0], short)
        refuses(f"context, position 0: token {case.vocab_size} is outside", model.row, (case.vocab_size,))


@pytest.mark.parametrize("seen", [0, slow(1)])
def test_a_draft_may_read_less_than_its_model_does(seen, tried):
    """The tokens have the target's law whatever the draft has read, as long as q is what they were drawn from."""

    def forgetful(target, draft, prompt, max_new_tokens, eos, rng):
        new = []
        while len(new) < max_new_tokens and (not new or new[-1] != eos):
            text = [*prompt, *new]
            p, q = np.asarray(target.row(text)), np.asarray(draft.row(text[len(text) - seen :]))
            x = inverse_cdf(q, rng.random())
            if rng.random() * q[x] >= p[x]:
                x = inverse_cdf(np.maximum(p - q, 0.0), rng.random())
            new.append(int(x))
        return new

    assert not any(rejected(CASES[name], forgetful, FEW) for name in tried)


@pytest.mark.parametrize("name", ["one token", slow("two tokens")])
def test_a_loop_that_is_wrong_only_in_short_texts_is_found(name, tried):
    def short(target, draft, prompt, max_new_tokens, eos, rng):
        greedy = (lambda p, rng: p.argmax()) if max_new_tokens == CASES[name].max_new_tokens else None
        return looping(target, draft, prompt, max_new_tokens, eos, rng, draw=greedy)

    assert {one for one in tried if rejected(CASES[one], short, FEW)} == {name}


def test_what_is_kept_of_the_request_before_is_found_be_it_random_numbers():
    kept = {}

    def of_its_length(target, draft, prompt, max_new_tokens, eos, rng):
        """Continues the first prompt that it has seen, however other ones begin."""
        first = kept.setdefault(id(target), prompt)
        return looping(target, draft, [*first[-2:]], max_new_tokens, eos, rng)

    assert rejected(CASES["changing requests"], of_its_length, FEW)
    assert not rejected(CASES["second order"], of_its_length, FEW)
    last = []

    def replayed(target, draft, prompt, max_new_tokens, eos, rng):
        if last:
            own = np.random.default_rng(last.pop())
        else:
            last.append(int(rng.integers(2**40)))
            own = np.random.default_rng(last[0])
        return looping(target, draft, prompt, max_new_tokens, eos, own)

    tables, counts, examples = counted(CASES["one token"], replayed)
    (pairs,) = (table for table in tables if table.kind == "pairs")
    assert log_e_value(pairs.counts(counts), pairs.law) > 20
    found = findings(CASES["one token"], SEQUENCES, tables, counts, examples, FALSE_ALARM)
    assert "dependent" in {one.kind for one in found}


def test_a_decoder_at_temperature_0_is_held_to_the_argmax():
    greedy = Processing(temperature=0.0)
    case = CASES["second order"]
    right = partial(looping, draw=lambda p, rng: p.argmax())
    tables, counts, examples = counted(case, right, 1024, greedy)
    assert findings(case, 1024, tables, counts, examples, FALSE_ALARM) == []
    first = next(table for table in tables if table.kind == "prefix")
    assert len(first.law) == 1
    judged = judge_table(first, 0.0, counts, FALSE_ALARM)
    assert judged.detectable_tv == pytest.approx(1 - 0.001 ** (1 / 1024))

    def seldom(p, rng):
        return p.argmax() if rng.random() < 0.99 else p.argmin()

    assert rejected(case, partial(looping, draw=seldom), 1024, greedy)


def test_a_repetition_penalty_is_part_of_the_law():
    penalised = Processing(repetition_penalty=1.5)

    def with_penalty(target, text, prompt, seen_from=0):
        seen = text[seen_from:]
        return np.array([weight**1.5 if x in seen else weight for x, weight in enumerate(target.row(text))])

    right = partial(looping, rows=with_penalty)
    new_only = partial(looping, rows=lambda *given: with_penalty(*given, seen_from=len(given[2])))
    for name in ("second order", "whole text"):
        assert not rejected(CASES[name], right, FEW, penalised)
        assert rejected(CASES[name], looping, FEW, penalised)
    assert rejected(CASES["long prompt"], new_only, FEW, penalised)


def test_penalties_of_new_tokens_a_bias_and_a_least_length_are_part_of_the_law():
    """After the prompt (0, 1) and the new tokens (1, 1), token 3 being the end of a text."""
    p, text = np.array([[0.4, 0.3, 0.2, 0.1]]), np.array([[0, 1, 1, 1]], dtype=np.int32)
    penalties = {"repetition_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}
    some = Processing(**penalties, logit_bias=((2, 1.0), (9, 5.0)))
    weights = np.array([0.4**2, 0.3**2 * np.exp(-2 * 0.5 - 0.25), 0.2 * np.exp(1.0), 0.1])
    assert some.after(text, p, 2, 3) == pytest.approx(weights[None] / weights.sum())
    for least, end in ((2, 0.1), (3, 0.0)):
        assert Processing(min_tokens=least).after(text, p, 2, 3)[0, 3] == pytest.approx(end)
    assert Processing(min_tokens=9).after(text, p, 2) == pytest.approx(p)
    assert Processing(min_p=0.6).after(text, p).tolist() == [[4 / 7, 3 / 7, 0.0, 0.0]]


def test_a_grammar_is_part_of_the_law():
    """After token 1 come 0 and 2 alone, unless their probability is 0."""
    p, text = (
        np.array([[0.4, 0.3, 0.2, 0.1], [0, 0.5, 0, 0.5], [0.4, 0.3, 0.2, 0.1]]),
        np.array([[1], [1], [0]]),
    )
    some = Processing.of(Declared(decoder=True, grammar=[(1, [0, 2, 9])]))
    assert some.after(text, p) == pytest.approx(np.array([[2 / 3, 0, 1 / 3, 0], p[1], p[2]]))

    def in_grammar(target, text, prompt):
        return some.after(np.array([text]), target.row(text)[None])[0]

    for name in ("second order", "whole text"):
        assert not rejected(CASES[name], partial(looping, rows=in_grammar), FEW, some)
        assert rejected(CASES[name], looping, FEW, some)


def test_a_declared_temperature_of_0_and_a_penalty_reach_the_audit():
    @declares(decoder=True, temperature=0.0)
    def greedy(*request):
        return looping(*request, draw=lambda p, rng: p.argmax())

    found = audit(greedy, "smoke", rng=1, cases=["second order", "whole text"])
    assert (found.verdict, found.powerful) == ("consistent", found.planned)
