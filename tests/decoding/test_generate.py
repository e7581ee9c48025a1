"""The decoder: its sequences have the target's law, its sessions see each token once, its numbers add up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import FALSE_ALARM
from enumerated import p_value, text_law
from refused import refuses

from specsim import default_pair, generate, rules, sample
from specsim.core._kernels import interpreted
from specsim.core.distributions import dyadic, normalise
from specsim.decoding import _drafters as sides
from specsim.decoding import _loop
from specsim.decoding._drafters import Session
from specsim.models import (
    DynamicTree,
    LookaheadDecoding,
    Mixture,
    Pair,
    PromptLookup,
    TableModel,
    Tree,
    branching,
    chains,
)
from specsim.simulation import methods

EOS = 2
PROMPT = (0, 1)
LENGTH = 6

LOSSLESS = [name for name in rules.names("chain", "tree") if rules.get(name).lossless]


def table(seed, order, size=3):
    """Rows of a random Markov chain, a few entries zero; the text may end, and is not too likely to."""
    rng = np.random.default_rng(seed)
    shape = (size,) * (order + 1)
    weights = rng.gamma(0.8, size=shape) * (rng.uniform(size=shape) < 0.8) + np.eye(size) * 0.05
    weights[..., EOS] = 0.15 * weights.sum(axis=-1)
    return TableModel(dyadic(normalise(weights)))


TARGET, DRAFT = table(1, 2), table(2, 1)


@pytest.fixture(scope="module")
def sequences(full):
    """How many sequences are held to their law."""
    return 3000 if full else 300


def decoded(count, target=TARGET, draft=DRAFT, **options):
    options = {"max_new_tokens": LENGTH, "gamma": 3, "eos": EOS} | options
    return [generate(target, draft, PROMPT, rng=seed, **options) for seed in range(count)]


def tokens_of(texts):
    return [text.tokens for text in texts]


def tree_for(rule):
    on_trees = rule.many_drafts or rule.claimed_on_trees
    return branching(2, 1, 2, draft_sampling=rule.draft_sampling[0]) if on_trees else 3


# --- the law ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "drafting"),
    [(rule, how) if (rule == "block") == (how == "sample") else pytest.param(rule, how, marks=pytest.mark.slow)
     for rule in ("standard", "block") for how in ("sample", "greedy")],
)  # fmt: skip
def test_sequences_have_the_targets_law(sequences, rule, drafting):
    texts = decoded(sequences, rule=rule, drafting=drafting)
    assert max(text.iterations for text in texts) >= 3
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, EOS)) > FALSE_ALARM


def test_without_an_end_every_sequence_is_whole(sequences):
    texts = decoded(sequences, eos=None)
    assert {len(text.tokens) for text in texts} == {LENGTH}
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, None)) > FALSE_ALARM


def test_the_target_alone_has_its_law(sequences):
    texts = [sample(TARGET, PROMPT, max_new_tokens=LENGTH, eos=EOS, rng=seed) for seed in range(sequences)]
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, EOS)) > FALSE_ALARM


#: Rules that differ in the uniforms, or in the tree, of a step: the others are in the same loop.
LOOPED = {"gumbel", "von_neumann", "without_replacement", "gumbel_list", "univer", "traversal"}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in LOOPED else pytest.mark.slow) for one in LOSSLESS]
)
def test_every_lossless_rule_keeps_the_law(sequences, name):
    texts = decoded(sequences, rule=name, gamma=tree_for(rules.get(name)))
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, EOS)) > FALSE_ALARM


@pytest.mark.parametrize("drawing", ["top", "sampled"])
def test_heads_and_trees_that_are_cut_at_the_end(sequences, drawing):
    for tree in (Tree((0, 1, 1, 3), drawing, block=2), Tree((0, 0, 2, 1, 3), drawing)):
        texts = decoded(sequences, rule="deterministic_children", gamma=tree)
        assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, EOS)) > FALSE_ALARM


FROM_TEXT = {
    "lookup": (PromptLookup([0, 1, 1, 2, 0, 1, 0], 2), {"rule": "one_hot"}),
    "lookup, no text": (PromptLookup([]), {"rule": "standard", "gamma": 2}),
    "lookahead": (LookaheadDecoding(window=3, candidates=4), {"rule": "naive_matching"}),
    "lookahead, one by one": (LookaheadDecoding(2, 3), {"rule": "deterministic_children", "gamma": 2}),
    "dynamic tree": (DRAFT, {"rule": "deterministic_children", "gamma": DynamicTree(2, 3, 6)}),
}


@pytest.mark.parametrize("kind", FROM_TEXT)
def test_drafts_that_the_text_or_the_draft_shapes(sequences, kind):
    draft, how = FROM_TEXT[kind]
    texts = decoded(sequences, draft=draft, max_new_tokens=8, **how)
    assert sum(text.accepted for text in texts) > 0
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, 8, EOS)) > FALSE_ALARM


def test_a_lossy_rule_on_drafts_from_the_text_is_seen(sequences):
    texts = decoded(sequences, draft=PromptLookup([0, 1, 1, 2, 0, 1, 0], 2), rule="lenience:lenience=0.3")
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, EOS)) < FALSE_ALARM


@pytest.mark.parametrize("name", methods.names())
def test_every_drafting_system_decodes(name):
    target, draft = default_pair()
    found = generate(target, draft, b"class Reader:\n    def ", max_new_tokens=40, method=name, rng=3)
    assert found.method == str(methods.get(name))
    assert found.rule == str(rules.get(methods.get(name).rule))
    assert len(found.tokens) == 40
    most = methods.get(name).drafting(Pair(target, draft)).shape.size
    assert max(step.drafted for step in found.steps) <= most
    assert found.accepted > 0
    assert found.table()["method"] == found.method


def test_a_system_by_hand_is_the_same_text():
    target, draft = default_pair()
    options = {"max_new_tokens": 50, "rng": 7}
    named = generate(target, draft, b"import ", method="eagle2:width=3,depth=4,nodes=10", **options)
    how = {"gamma": DynamicTree(3, 4, 10), "rule": "deterministic_children"}
    made = generate(target, draft, b"import ", **how, **options)
    assert (named.tokens, named.steps) == (made.tokens, made.steps)


def test_lookup_copies_what_followed():
    """The target only repeats: all that is found in the text is accepted, from the second round on."""
    cycle = TableModel(np.roll(np.eye(4), 1, axis=1))
    found = generate(cycle, PromptLookup([]), [0, 1, 2, 3, 0], max_new_tokens=9, gamma=4, rng=1)
    assert found.tokens == (1, 2, 3, 0, 1, 2, 3, 0, 1)
    assert [tuple(step) for step in found.steps] == [(4, 4, 4), (3, 3, 3)]
    found = generate(cycle, PromptLookup([0, 1, 2, 3]), [0], max_new_tokens=5, gamma=8, rng=1)
    assert [tuple(step) for step in found.steps] == [(4, 4, 4)]


@pytest.mark.parametrize(
    ("name", "gamma"),
    [
        ("block_first_failure", 3),
        ("sorted_siblings", chains(2, 3)),
        pytest.param("traversal_wrong_update", branching(2, 2), marks=pytest.mark.slow),
    ],
)
def test_a_wrong_rule_is_seen(sequences, name, gamma):
    texts = decoded(max(sequences, 500), rule=name, gamma=gamma)
    assert p_value(tokens_of(texts), text_law(TARGET, PROMPT, LENGTH, EOS)) < FALSE_ALARM


def test_greedy_text_is_the_targets_greedy_text():
    most_probable = np.argmax([[TARGET.row((a, b)) for b in range(3)] for a in range(3)], axis=2)
    sure = TableModel(np.eye(3)[most_probable])
    text = generate(sure, DRAFT, PROMPT, max_new_tokens=9, rule="greedy_match", drafting="greedy")
    assert text.tokens == sample(sure, PROMPT, max_new_tokens=9).tokens


def test_a_lossy_rule_keeps_its_law_to_the_last_token():
    """With exact matching every token is the target's argmax, also where nothing is left to be drafted."""
    sure, expected = [*PROMPT], []
    for _ in range(7):
        expected.append(int(np.argmax(TARGET.row(sure))))
        sure.append(expected[-1])
    for length in range(1, 8):
        text = generate(TARGET, DRAFT, PROMPT, max_new_tokens=length, rule="greedy_match", rng=length)
        assert list(text.tokens) == expected[:length]
        assert length == text.accepted + text.iterations - text.dropped


# --- sessions --------------------------------------------------------------------------------------------


class KeepsRejected(Session):
    """Forgets to roll back."""

    def rollback(self, length):
        pass


class LosesLast(Session):
    """Rolls back one token too far."""

    def rollback(self, length):
        super().rollback(length - 1)


def with_session(monkeypatch, wrong, of):
    """Let the sessions of the model `of` be `wrong`."""
    chosen = lambda model, text: (wrong if model is of else Session)(model, text)  # noqa: E731
    monkeypatch.setattr(sides, "Session", chosen)


@pytest.mark.parametrize("wrong", [KeepsRejected, LosesLast])
def test_a_target_with_a_wrong_state_is_seen(monkeypatch, sequences, wrong):
    with_session(monkeypatch, wrong, TARGET)
    assert p_value(tokens_of(decoded(sequences)), text_law(TARGET, PROMPT, LENGTH, EOS)) < FALSE_ALARM


ORDERED = np.broadcast_to([0.86, 0.10, 0.04], (3, 3, 3))
PEAKED = TableModel(dyadic(np.random.default_rng(3).permuted(ORDERED, axis=2)))
NEAR = Mixture(DRAFT, PEAKED, 0.8)


@pytest.fixture(scope="module")
def peaked_texts(full):
    """A function that decodes texts of `PEAKED` drafted by `NEAR`, and the α of such texts with right sessions."""
    count = 1000 if full else 500

    def texts():
        return decoded(count, target=PEAKED, draft=NEAR, eos=None, max_new_tokens=12)

    right = texts()
    return texts, sum(text.accepted for text in right) / sum(text.drafted for text in right)


@pytest.mark.parametrize("wrong", [pytest.param(KeepsRejected, marks=pytest.mark.slow), LosesLast])
def test_a_draft_with_a_wrong_state_costs_acceptance_not_the_law(monkeypatch, peaked_texts, wrong):
    """What is drafted is drawn from the q handed over, if from a worse one: 4 % less of 5000 tokens pass."""
    make, alpha = peaked_texts
    with_session(monkeypatch, wrong, NEAR)
    texts = make()
    starts = [tokens[:LENGTH] for tokens in tokens_of(texts)]
    assert p_value(starts, text_law(PEAKED, PROMPT, LENGTH, None)) > FALSE_ALARM
    accepted, drafted = (sum(getattr(text, name) for text in texts) for name in ("accepted", "drafted"))
    assert accepted < (alpha - 0.04) * drafted


@pytest.fixture
def fed(monkeypatch):
    """What every session is fed after its prompt, {model: [tokens of each call]}, and {model: session}."""
    calls, sessions = {}, {}

    class Recording(Session):
        def __init__(self, model, text):
            super().__init__(model, text)
            calls[model], sessions[model] = [], self

        def advance(self, tokens):
            calls[self.model].append(list(tokens))
            return super().advance(tokens)

    monkeypatch.setattr(sides, "Session", Recording)
    return calls, sessions


CYCLE = np.roll(np.eye(4), 1, axis=1)
#: Rows of the target and of the draft, the text, what the draft and what the target are fed.
FED = {
    # in the last step but one a single token is drafted
    "none accepted": ([1.0, 0.0], [0.0, 1.0], (0, 0, 0, 0), [[0], [1], [0], [1], [0]], [[0, 1, 1], [0, 1, 1], [0, 1], [0]]),
    # 2 was drafted, and is fed with the bonus 3
    "all accepted": (CYCLE, CYCLE, (1, 2, 3, 0, 1, 2), [[0], [1], [2, 3], [0]], [[0, 1, 2], [3, 0, 1]]),
    # 1 accepted, 1 rejected; then 3 and 0 accepted
    "some accepted": (CYCLE, CYCLE[[0, 0, 2, 3]], (1, 2, 3, 0, 1), [[0], [1], [2], [3]], [[0, 1, 1], [2, 3, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("accepted", FED)
def test_models_are_fed_what_they_have_not_seen(fed, accepted):
    (target, draft), (text, *expected) = map(TableModel, FED[accepted][:2]), FED[accepted][2:]
    found = generate(target, draft, [0], max_new_tokens=len(text), gamma=2)
    assert found.tokens == text
    assert [fed[0][draft], fed[0][target]] == expected
    if accepted == "all accepted":
        assert (found.bonus, found.rejected) == (2, 0)


def test_a_rule_that_reads_the_drafts_last_row_leaves_no_draft_behind(fed):
    target, draft = TableModel(CYCLE), TableModel(CYCLE)
    with interpreted():
        generate(target, draft, [0], max_new_tokens=6, gamma=2, rule="cascade_token")
    assert fed[0][draft] == [[0], [1], [2], [3], [0], [1]]


@pytest.mark.parametrize("gamma", [1, 3, branching(2, 2)])
def test_sessions_hold_the_text_and_nothing_else(fed, gamma):
    """Every token is consumed once, in its place, whatever was accepted."""
    _, sessions = fed
    rule = "standard" if isinstance(gamma, int) else "recursive_rejection"
    for seed in range(25):
        text = generate(TARGET, DRAFT, PROMPT, max_new_tokens=12, gamma=gamma, rule=rule, rng=seed)
        whole = [*PROMPT, *text.tokens]
        target, draft = (sessions[model]._consumed for model in (TARGET, DRAFT))
        assert target == whole[: len(target)]
        assert draft == whole[: len(draft)]
        assert len(whole) - len(target) <= (1 if isinstance(gamma, int) else gamma.depth + 1)


def test_a_session_says_what_it_lacks():
    session = Session(TARGET)
    refuses("the model reads 2", session.advance, [0])
    session = Session(TARGET, [0])
    assert np.array_equal(session.advance([1, 2]), TARGET.rows([[0, 1], [1, 2]]))
    assert np.array_equal(session.after([[0, 1], [2, 2]]), TARGET.rows([[0, 1], [2, 2]]))
    assert np.array_equal(session.after([[0]]), TARGET.rows([[2, 0]]))
    assert session.length == 3
    session.rollback(1)
    assert np.array_equal(session.advance([2]), TARGET.rows([[0, 2]]))
    for length in (-1, 3):
        refuses("outside \\[0, 2\\]", session.rollback, length)
    assert Session(TableModel([0.5, 0.5])).advance([0, 1]).tolist() == [[0.5, 0.5]] * 2


# --- what is reported ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eos", "gamma"), [(None, 3), (EOS, 3), (EOS, branching(2, 2))])
def test_the_numbers_add_up(eos, gamma):
    rule = "standard" if isinstance(gamma, int) else "traversal"
    for text in decoded(60, eos=eos, gamma=gamma, max_new_tokens=10, rule=rule):
        assert len(text.tokens) == text.accepted + text.iterations - text.dropped
        assert text.dropped == 0 or (eos is not None and text.tokens[-1] == eos)
        assert len(text.tokens) == 10 or text.tokens[-1] == eos
        assert eos is None or eos not in text.tokens[:-1]
        undrafted = sum(step.drafted == 0 for step in text.steps)
        assert text.iterations == text.rejected + text.bonus + undrafted
        assert text.drafted == sum(step.drafted for step in text.steps)
        assert text.tokens_per_iteration == len(text.tokens) / text.iterations
        assert set(text.seconds) == {"draft", "target", "verify"}
        assert all(spent >= 0 for spent in text.seconds.values())
        assert sum(text.seconds.values()) <= text.provenance.seconds


def test_accepted_and_alpha_by_hand():
    text = generate(TableModel(CYCLE), TableModel(CYCLE), [0], max_new_tokens=8, gamma=2, eos=1)
    assert text.tokens == (1,)
    assert (text.iterations, text.accepted, text.bonus, text.dropped) == (1, 2, 1, 2)
    text = generate(TableModel([1.0, 0.0]), TableModel([0.0, 1.0]), [0], max_new_tokens=3, gamma=2)
    assert [tuple(step) for step in text.steps] == [(2, 2, 0), (1, 1, 0), (0, 0, 0)]
    assert (text.alpha_drafted, text.alpha_verified, text.rejected) == (0.0, 0.0, 2)


def test_ctrl_c_gives_the_text_so_far(monkeypatch):
    whole = generate(*default_pair(), b"import ", max_new_tokens=40, rng=5)
    step = _loop._speculative_step

    def interrupted_at(last):
        def stepping(target, key, number, *given):
            if number == last:
                raise KeyboardInterrupt
            return step(target, key, number, *given)

        monkeypatch.setattr(_loop, "_speculative_step", stepping)

    interrupted_at(3)
    found = generate(*default_pair(), b"import ", max_new_tokens=40, rng=5)
    assert found.interrupted
    assert not whole.interrupted
    assert found.steps == whole.steps[:3]
    assert found.tokens == whole.tokens[: len(found.tokens)]
    assert "interrupted: the text so far" in str(found)
    interrupted_at(0)
    with pytest.raises(KeyboardInterrupt):
        generate(*default_pair(), b"import ", max_new_tokens=40, rng=5)


def test_the_same_seed_gives_the_same_text():
    def tokens(seed):
        text = generate(*default_pair(), b"import ", max_new_tokens=40, rng=seed)
        return text.tokens, text.provenance.root

    assert tokens(5) == tokens(5) != tokens(6)
    assert tokens(5)[1] == 5
    unseeded = tokens(None)
    assert tokens(unseeded[1]) == unseeded


def test_tokens_of_a_seed():
    """Golden: a change belongs into the changelog."""
    text = generate(*default_pair(), b"import ", max_new_tokens=24, rng=1)
    assert bytes(text.tokens) == b"wheneversion = skipUnord"


def test_a_result_can_be_shown_and_stored():
    text = generate(TARGET, DRAFT, PROMPT, max_new_tokens=5, rng=1)
    stored = json.loads(json.dumps(text.to_dict(), allow_nan=False))
    assert stored["tokens"] == list(text.tokens)
    assert stored["draft"]["parents"] == list(range(5))
    assert "tokens per iteration" in text._repr_html_()
    plain = sample(TARGET, PROMPT, max_new_tokens=5, rng=1)
    stored = json.loads(json.dumps(plain.to_dict(), allow_nan=False))
    assert (stored["rule"], stored["draft"], stored["alpha_drafted"], plain.alpha_verified) == (None,) * 4
    assert "the target alone" in plain._repr_html_()


def test_every_rule_runs():
    for name in rules.names():
        with interpreted():
            tree = tree_for(rules.get(name))
            text = generate(TARGET, DRAFT, PROMPT, max_new_tokens=8, gamma=tree, rule=name, rng=1)
        assert len(text.tokens) == 8, name
