"""Tokens per step, and what is accepted, of systems that draft from the text: of a text decoded from its
beginning, every step counted, with or without a draft."""

from itertools import accumulate

import numpy as np
import pytest
from enumerated import looked_up

import specsim
from specsim.models import LookaheadDecoding, PromptLookup, TableModel

ZIPF = np.asarray(specsim.read_pair("zipf:vocab_size=300").target)[None].repeat(300, axis=0)
MARKOV = np.random.default_rng(5).dirichlet(np.full(80, 0.03), 80)
#: Targets, as the row after each token, and the length of a text.
TARGETS = {"zipf": (ZIPF, 300), "markov": (MARKOV, 250)}
#: Of each kind of draft: the parameters, W and N and G or γ and n, in two settings.
SETTINGS = {"lookahead": [(15, 5, 15), (3, 3, 4)], "prompt_lookup": [(10, 3), (3, 1)]}


def text_of(rows, length):
    rng, text = np.random.default_rng(3), [0]
    while len(text) < length:
        text.append(int(rng.choice(len(rows), p=rows[text[-1]])))
    return text


def prompt_lookup(_, gamma, most):
    return lambda history: [found] if (found := looked_up(history, gamma, most)) else []


def lookahead(rows, window, ngram, kept):
    """Goes through the window column by column, in lists; the pool has lists too."""
    columns, pool = [], {}

    def drafter(history):
        tails = list(pool.get(history[-1], []))
        if not columns:
            drawn = np.random.default_rng(0).choice(history, size=window + ngram - 2)
            columns.extend([int(token)] for token in drawn)
        columns[0][0] = history[-1]
        for column in columns:
            column.append(int(rows[column[-1]].argmax()))
        if len(columns[0]) < ngram:
            del columns[0]
            return tails
        for column in columns:
            known = pool.setdefault(column[0], [])
            if column[1:] in known:
                known.remove(column[1:])
            known.append(column[1:])
            del known[:-kept], column[0]
        return tails

    return drafter


def walk(rows, text, drafter):
    """Decode `text`, whose first token is the prompt, and return four numbers for each step.

    These are the drafted tokens, the expected emitted and rejected ones, and those that the text has it emit."""
    place, steps = 1, []
    while place < len(text):
        tails, going_on = drafter(text[:place]), text[place:]
        paths = {prefix for tail in tails for prefix in accumulate((token,) for token in tail)}
        chances = {path: np.prod(rows[[text[place - 1], *path[:-1]], path]) for path in paths}
        rejected = 1 - sum(chances[tail] for tail in set(map(tuple, tails))) if tails else 0
        shared = [len(path) for path in paths if list(path) == going_on[: len(path)]]
        emitted = 1 + max(shared, default=0)
        steps.append((len(paths), 1 + sum(chances.values()), rejected, emitted))
        place += emitted
    return np.array(steps).T


def simulated(kind, rows, text, given):
    target = TableModel(rows)
    if kind == "lookahead":
        window, ngram, kept = given
        return target, LookaheadDecoding(window, kept, text), {"rule": "naive_matching", "gamma": ngram - 1}
    return target, PromptLookup(text, given[1]), {"rule": "one_hot", "gamma": given[0]}


#: Of each kind one of its settings for each target; the others with --all.
RUNS = [
    pytest.param(kind, given, name, marks=() if (i + j) % 2 else pytest.mark.slow)
    for kind, settings in SETTINGS.items()
    for i, given in enumerate(settings)
    for j, name in enumerate(TARGETS)
]


@pytest.mark.parametrize(("kind", "given", "name"), RUNS)
def test_tokens_per_step_are_those_of_decoding_a_text_from_its_beginning(kind, given, name):
    rows, length = TARGETS[name]
    text = text_of(rows, length)
    drafted, expected, rejected, emitted = walk(rows, text, globals()[kind](rows, *given))
    target, draft, how = simulated(kind, rows, text, given)
    run = specsim.simulate(target, draft, steps=20_000, rng=3, **how)
    assert abs(run.tokens_per_step - expected.mean()) < 4 * run.tokens_per_step_error
    apart = emitted - expected  # a text of the target's: a step emits what is expected of it, on average
    assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(len(apart))
    assert 0 < (drafted > 0).mean() < 1
    accepted = expected.mean() - 1
    assert abs(run.alpha_verified - accepted / (accepted + rejected.mean())) < 4 * run.alpha_verified_error
    assert abs(run.drafted / run.steps - drafted.mean()) < 4 * drafted.std() / np.sqrt(run.steps)
    assert run.alpha_drafted == pytest.approx(run.accepted / run.drafted)


@pytest.mark.parametrize(("kind", "given"), [(kind, some[1]) for kind, some in SETTINGS.items()])
def test_the_passes_of_a_generated_text_are_those_of_going_through_it(kind, given):
    """The drafts follow from the text, and it accepts what it shares with them; the last draft is cut."""
    for seed in range(4):
        target, draft, how = simulated(kind, MARKOV, [], given)
        found = specsim.generate(target, draft, [0], max_new_tokens=60, rng=seed, **how)
        drafted, *_, emitted = walk(MARKOV, [0, *found.tokens], globals()[kind](MARKOV, *given))
        assert 0 in drafted
        assert found.iterations == len(emitted) < 60
        assert found.tokens_per_iteration == 60 / len(emitted)


@pytest.mark.parametrize("kind", SETTINGS)
def test_steps_without_a_draft_are_replayed(kind):
    target, draft, how = simulated(kind, ZIPF, text_of(ZIPF, 60), SETTINGS[kind][1])
    run = specsim.simulate(target, draft, steps=60, rng=1, **how)
    told = [specsim.replay(target, draft, step=step, rng=1, **how) for step in range(60)]
    assert np.bincount([one.num_accepted for one in told], minlength=len(run.lengths)).tolist() == list(
        run.lengths
    )
    assert np.bincount(np.concatenate([one.tokens for one in told]), minlength=300).tolist() == list(
        run.tokens
    )


@pytest.mark.parametrize(("kind", "given"), [("lookahead", (3, 3, 4)), ("prompt_lookup", (10, 3))])
def test_a_text_in_which_nothing_is_found_takes_a_step_for_each_token(kind, given):
    """Token 0, with which drafts are padded, is nearly certain here: it is no draft."""
    rows = np.tile([0.9, 0.02, 0.02, 0.02, 0.02, 0.02], (6, 1))
    target, draft, how = simulated(kind, rows, [5, 4, 3, 2, 1] if kind == "prompt_lookup" else [5, 4], given)
    run = specsim.simulate(target, draft, steps=500, rng=1, **how)
    assert (run.tokens_per_step, run.alpha_context) == (1.0, 0.0)
    assert 400 < run.tokens[0] < 480


def test_steps_whose_draft_is_cut_whole_count():
    draft = np.random.default_rng(6).dirichlet(np.full(80, 0.03), 80)
    cut = draft.max(axis=1) < 0.6
    emitted = np.ones(80)
    for _ in range(3):
        emitted = np.where(cut, 1.0, 1 + np.minimum(MARKOV, draft) @ emitted)
    rule = "confidence_scheduled:threshold=0.6"
    run = specsim.simulate(TableModel(MARKOV), TableModel(draft), gamma=3, rule=rule, steps=20_000, rng=2)
    assert 0 < cut.mean() < 1
    assert abs(run.tokens_per_step - emitted.mean()) < 4 * run.tokens_per_step_error
    assert abs(run.tokens_per_step - emitted[~cut].mean()) > 4 * run.tokens_per_step_error
