"""What the drafted tokens' own probabilities say of a rule: `survival`, and its bounds along a log."""

import json
import re
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from conftest import FALSE_ALARM, PAIR_FLAVOURS, log_of, rational_pair
from refused import refuses
from scipy import stats

from specsim import open_trace, rules
from specsim.core.distributions import capped_ratio
from specsim.models import TableModel, chain
from specsim.rules._chain import block
from specsim.rules._common import tokenwise
from specsim.rules._lossy import cactus, ensemble, judge, two_thresholds
from specsim.simulation._comparison import load_bundled
from specsim.theory._enumeration import prove
from specsim.traces import _analysis as expected
from specsim.traces import default_trace, writer
from specsim.traces._analysis import expect_tokens
from specsim.traces._truncated import Listed, truncate

REACHING = [name for name in rules.names() if rules.get(name).survival]
GIVEN = [
    *REACHING, "lenience:lenience=0.2", "scaled_lenience:lenience=1", "judge:overrule=0",
    "judge:overrule=0.75", "ensemble:weight=0", "ensemble:weight=0.875", "cactus:delta=0", "cactus:delta=2",
    "two_thresholds:threshold_single=0.25,threshold_acc=0.5",
    "two_thresholds:threshold_single=1,threshold_acc=1",
]  # fmt: skip
#: Rules of each kind of reach: token by token, of whole blocks, without q, lossy.
KINDS = {"standard", "block", "one_hot", "lenience", "cactus"}
standard_survival = tokenwise.survival(capped_ratio)


@pytest.fixture
def given(full):
    """The rules whose bounds are tried along a log."""
    return GIVEN if full else sorted(KINDS)


def plain(chance):
    """A chance that knows nothing of the rule's parameters."""
    return tokenwise.survival(lambda p, q, **values: chance(p, q))


#: What somebody might take for the rule's `survival`.
WRONG = [
    ("block", standard_survival), ("traversal", standard_survival),
    ("hierarchical", lambda p, q: capped_ratio(np.cumprod(p, axis=-1), np.cumprod(q, axis=-1))),
    ("standard", block.survival), ("standard", tokenwise.survival(lambda p, q: p)),
    ("sampler_match", standard_survival), ("naive_matching", lambda p, q: p),
    ("lenience", plain(capped_ratio)),
    ("scaled_lenience", tokenwise.survival(lambda p, q, lenience: capped_ratio(lenience * p, q))),
    ("judge", tokenwise.survival(lambda p, q, overrule: ensemble.chance(p, q, overrule))),
    ("ensemble:weight=0.875", tokenwise.survival(lambda p, q, weight: judge.chance(p, q, weight))),
    ("cactus", tokenwise.survival(lambda p, q, delta: cactus.chance(p, q, delta / 2))),
    ("two_thresholds", plain(lambda p, q: p)),
    ("two_thresholds", tokenwise.survival(lambda p, q, **values: two_thresholds.chance(p, q, 1, values["threshold_acc"]))),
]  # fmt: skip


# --- the law ---------------------------------------------------------------------------------------------


def gaps(rule, survival, models):
    """1 + E[Σ R_i] less the tokens that the law emits, over pairs of rational models and ways of drawing."""
    rng = np.random.default_rng(7)
    values = {name: Fraction(value) for name, value in rule.values.items()}
    for number in range(models):
        size, gamma = 2 + number % 3, 1 + number // 3 % 3
        flavour = PAIR_FLAVOURS[number % 5]
        order = 1 if number % 4 else 0
        target, draft = rational_pair(rng, size, order, order, flavour)
        tree = chain(gamma, rule.draft_sampling[number % len(rule.draft_sampling)])
        start = (0,) * order
        emitted = Fraction(1)
        for tokens, probability in tree.drafts(
            lambda seen, ahead, q=draft, start=start: row_after(q, start + seen)
        ):
            p, q = (own_probabilities(model, start, tokens) for model in (target, draft))
            emitted += probability * sum(survival(p, q, **values))
        yield emitted - prove(target, draft, rule=rule, gamma=tree, context=start).mean_tokens


def row_after(model, history):
    return model.row(history[len(history) - model.order :])


def own_probabilities(model, start, tokens):
    histories = (start + tokens[:i] for i in range(len(tokens)))
    return np.array(
        [row_after(model, seen)[x] for seen, x in zip(histories, tokens, strict=True)], dtype=object
    )


@pytest.mark.parametrize("name", GIVEN)
def test_reach_adds_up_to_the_tokens_that_the_law_emits(full, name):
    rule = rules.get(name)
    least = 1e-12 if rule.name == "cactus" else 0  # whose root is no fraction
    assert all(abs(gap) <= least for gap in gaps(rule, rule.survival, 60 if full else 9))


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_what_is_not_the_rules_reach_does_not_add_up(name, wrong):
    assert any(abs(gap) > 1e-3 for gap in gaps(rules.get(name), wrong, 20))


@pytest.mark.parametrize("name", rules.names("chain", "tree", "lossy"))
def test_a_rule_has_a_reach_unless_it_looks_at_other_tokens(name):
    """With p and q of the drafted token kept, what the others have matters to those rules that have none."""
    rule = rules.get(name)
    if rule.many_drafts:
        assert rule.survival is None
        return
    peaked, elsewhere = [1, *[0] * 22], [0, 1, *[0] * 21]
    others = (peaked, elsewhere, [Fraction(1, 23)] * 23)
    chances = set()
    for p_others, q_others in product(others, others):
        p = [Fraction(1, 20), *(Fraction(19, 20) * weight for weight in p_others)]
        q = [Fraction(1, 5), *(Fraction(4, 5) * weight for weight in q_others)]
        stop, _ = rule.law((0,), (0,), [p, p], [q, q][: rule.num_rows(chain(1))], **rule.values)
        chances.add(round(float(stop[1]), 12))
    assert (len(chances) == 1) == (rule.survival is not None)


# --- monotone --------------------------------------------------------------------------------------------


def falls(rule, survival):
    """By how much R falls at most where p rises and q falls, over random tokens and the ends of [0, 1]."""
    rng = np.random.default_rng(8)
    ends = np.sort(rng.random((4, 5000, 4)) ** 2, axis=0)
    ends[0][rng.random(ends[0].shape) < 0.1] = 0.0
    ends[3][rng.random(ends[3].shape) < 0.1] = 1.0
    order = rng.permuted(np.arange(4))
    p, q = np.sort(ends[order[:2]], axis=0), np.sort(ends[order[2:]], axis=0)
    less, more = survival(p[0], q[1], **rule.values), survival(p[1], q[0], **rule.values)
    assert np.isfinite(more).all()
    assert ((less >= 0) & (more <= 1)).all()
    return float((less - more).max())


@pytest.mark.parametrize("name", [*GIVEN, "cactus:delta=0.01", "cactus:delta=10"])
def test_reach_rises_with_p_and_falls_with_q(name):
    rule = rules.get(name)
    assert falls(rule, rule.survival) <= 1e-15


def test_a_chance_that_rises_with_q_is_seen():
    pruned = tokenwise.survival(lambda p, q: (q >= 0.3) * capped_ratio(p, q))
    assert falls(rules.get("standard"), pruned) > 0.1


# --- along a log -----------------------------------------------------------------------------------------

V, GAMMA, STEPS = 13, 3, 50


def rows_and_tokens(seed=1):
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.3, size=(2, STEPS, GAMMA + 1, V)) + 1e-6
    rows[1] += 0.5 * rows[0]
    p, q = rows / rows.sum(axis=-1, keepdims=True)
    return p, q, np.array([[rng.choice(V, p=q[s, i]) for i in range(GAMMA)] for s in range(STEPS)])


def truth(rule, p, q, tokens):
    """[γ] the mean over the steps, of whole rows."""
    own = (np.take_along_axis(rows[:, :-1], tokens[..., None], axis=-1)[..., 0] for rows in (p, q))
    p, q = (chances.astype(float) for chances in own)
    return 1 + np.cumsum(rule.survival(p, q, **rule.values).mean(axis=0))


def inside(ends, values, margin=0.0):
    return (ends[:, 0] - margin <= values).all() and (values <= ends[:, 1] + margin).all()


@pytest.mark.parametrize("keep", [True, False])
def test_the_truth_lies_between_the_ends_for_every_k(tmp_path, full, given, keep):
    p, q, tokens = rows_and_tokens()
    widths = []
    for top in (1, 2, 4, 8, V, None) if full else (1, 4, V, None):
        trace = log_of(tmp_path / f"{top}", p, q, tokens, top=top, keep=keep)
        for name in given:
            found = expect_tokens(trace, name, rng=0)
            assert inside(found.expected_tokens, truth(rules.get(name), p, q, tokens)), (top, name)
            assert (found.intervals[:, 0] <= found.expected_tokens[:, 0]).all()
            assert (found.expected_tokens[:, 1] <= found.intervals[:, 1]).all()
        widths.append(np.ptp(expect_tokens(trace, rng=0).expected_tokens[-1]))
    assert widths[-1] < 1e-5
    if keep:
        assert max(widths) < 1e-5, "the drafted tokens are listed, and nothing else is looked at"
    else:
        assert all(wide >= narrow for wide, narrow in pairwise(widths))
        assert widths[0] > 0.3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_is_allowed_for(tmp_path, given, dtype):
    p, q, tokens = rows_and_tokens(2)
    stored = {"float16": np.float16, "bfloat16": None}[dtype]
    for top in (3, None):
        trace = log_of(tmp_path / f"{top}", p, q, tokens, top=top, dtype=dtype)
        for name in given:
            found = expect_tokens(trace, name, rng=0).expected_tokens
            assert inside(found, truth(rules.get(name), p, q, tokens))
            if top is None and stored and name == "standard":  # the control: rounding misses by something
                rounded = truth(rules.get(name), p.astype(stored), q.astype(stored), tokens)
                assert np.abs(rounded - truth(rules.get(name), p, q, tokens)).max() > 1e-6


def completions(k=3, size=40):
    """Rows whose top k do not hold the drafted token 0; it has all of the tail that it can have, or none."""
    listed = np.array([0.5, 0.25, 0.1])
    rows = {}
    for most in (True, False):
        row = np.zeros(size)
        row[1 : k + 1] = listed
        row[0] = 0.1 if most else 0.0  # as much as the least that is listed; the tail is 0.15
        row[k + 1 :] = (1 - row.sum()) / (size - k - 1)
        rows[most] = row
    return Listed(np.arange(1, k + 1), listed), rows


@pytest.fixture(scope="module")
def adversarial(tmp_path_factory):
    listed, _ = completions()
    path = tmp_path_factory.mktemp("adversarial") / "t"
    with writer(path, vocab_size=40, gamma=2, top=3, flags=False) as out:
        out.append(0, [0, 0], None, [listed] * 3, [listed] * 3)
    return open_trace(path)


@pytest.mark.parametrize("name", GIVEN)
def test_the_ends_are_those_of_the_worst_completions(adversarial, name):
    rule = rules.get(name)
    found = expect_tokens(adversarial, rule, rng=0)
    _, rows = completions()
    for p_most, q_most in product((True, False), repeat=2):
        p, q = (np.full(2, rows[most][0]) for most in (p_most, q_most))
        emitted = 1 + np.cumsum(rule.survival(p, q, **rule.values))
        assert inside(found.expected_tokens, emitted, 1e-12)
        if p_most != q_most:
            end = found.expected_tokens[:, int(p_most)]
            assert end == pytest.approx(emitted, abs=2e-3 if rule.name == "cactus" else 1e-5)
    assert (found.documents, found.intervals) == (1, None)


def test_ends_that_take_what_is_not_listed_for_nothing_are_seen(tmp_path, monkeypatch):
    p, q, tokens = rows_and_tokens()
    trace = log_of(tmp_path / "t", p, q, tokens, top=3, keep=False)
    honest = expected.drafted_probabilities
    lowest = lambda *given: tuple(ends[[0, 0]] for ends in honest(*given))  # noqa: E731
    monkeypatch.setattr(expected, "drafted_probabilities", lowest)
    found = expect_tokens(trace, "one_hot", rng=0).expected_tokens
    assert not inside(found, truth(rules.get("one_hot"), p, q, tokens))


def test_what_is_stored_as_nothing_leaves_no_nan(tmp_path):
    """Both probabilities are below the least number that float16 has."""
    p, q = np.zeros((2, 1, 3, 3))
    p[...] = q[...] = [1e-12, 0.5, 0.5 - 1e-12]
    for top in (None, 2):
        trace = log_of(tmp_path / f"{top}", p, q, np.array([[0, 0]]), top=top, dtype="float16", documents=1)
        for name in GIVEN:
            found = expect_tokens(trace, name, rng=0)
            assert inside(found.expected_tokens, truth(rules.get(name), p, q, np.array([[0, 0]])), 1e-9)
            json.dumps(found.to_dict(), allow_nan=False)


P = np.array([[0.125, 0.5, 0.375], [0.625, 0.25, 0.125], [0.25, 0.25, 0.5]])
Q = np.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.625, 0.25, 0.125]])


@pytest.fixture(scope="module")
def sampled_log(tmp_path_factory, full):
    """Steps of γ = 3 after token 0, their drafts sampled from q, which like p goes by the token before."""
    rng, steps = np.random.default_rng(11), 4000 if full else 3000
    tokens = np.zeros((steps, 4), int)
    for i in range(3):
        rows = np.cumsum(Q[tokens[:, i]], axis=-1)
        tokens[:, i + 1] = (rng.random((steps, 1)) > rows).sum(axis=-1)
    path = tmp_path_factory.mktemp("log") / "t"
    return log_of(path, P[tokens], Q[tokens], tokens[:, 1:], documents=400, rows=6000)


@pytest.mark.parametrize(
    "name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.slow) for name in GIVEN]
)
def test_a_log_of_sampled_drafts_tells_what_enumeration_does(sampled_log, name):
    assert z_score(sampled_log, name, name) < stats.norm.isf(FALSE_ALARM / 2)


def test_a_log_tells_rules_apart(sampled_log):
    for name, other in (("standard", "block"), ("block", "standard"), ("lenience", "lenience:lenience=0.75")):
        assert z_score(sampled_log, name, other) > stats.norm.isf(FALSE_ALARM / 2)


def z_score(trace, name, other):
    """How far the log's value for one rule is from what another emits, in standard errors."""
    found = expect_tokens(trace, name, rng=0)
    emitted = float(prove(TableModel(P), TableModel(Q), rule=other, gamma=3, context=(0,)).mean_tokens)
    error = np.ptp(found.intervals[-1]) / (2 * stats.norm.isf(0.025))
    return abs(found.expected_tokens[-1].mean() - emitted) / max(error, 1e-9)


# --- what is refused, and printed ------------------------------------------------------------------------


def test_rules_that_need_rows_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"gumbel needs whole rows of p and q; give one of block, .*hierarchical,"):  # fmt: skip
        expect_tokens(default_trace(), "gumbel", rng=0)
    with pytest.raises(ValueError, match="k_seq chooses between several drafts"):
        expect_tokens(default_trace(), "k_seq", rng=0)
    row = truncate([0.5, 0.3, 0.2], 2)
    with writer(tmp_path / "text", vocab_size=3, gamma=0, top=2, flags=False) as out:
        out.append(0, [], None, [row], [row])
    refuses("no step has a draft", expect_tokens, open_trace(tmp_path / "text"), rng=0)
    with writer(tmp_path / "none", vocab_size=3, gamma=1, top=2):
        pass
    refuses("no step", expect_tokens, open_trace(tmp_path / "none"), rng=0)


def test_the_page_names_the_rules_that_have_a_reach():
    page = (Path(__file__).parents[2] / "docs/importing-logs.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    named = words.split("on those probabilities alone:")[1].split("The command refuses the others")[0]
    tabled = {entry.name for entry in load_bundled()}  # a rule just added comes later
    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(tabled & {*REACHING})


def test_the_result_shows_itself():
    found = expect_tokens(default_trace(), rules.get("lenience").with_parameters(lenience=0.5), rng=3)
    as_json = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (as_json["rule"], as_json["root"], as_json["documents"]) == ("lenience:lenience=0.5", 3, 24)
    assert np.shape(as_json["expected_tokens"]) == np.shape(as_json["intervals"]) == (4, 2)
    assert "<tr><td>4</td>" in found._repr_html_()
    assert (expect_tokens(default_trace(), "lenience:lenience=0.5", rng=3).intervals == found.intervals).all()
