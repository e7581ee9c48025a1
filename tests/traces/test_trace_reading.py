"""Reading a trace: where α comes from, how sure it is, and whether flags and tokens follow from rows."""

import json
import math
import re

import numpy as np
import pytest
from commands import run, says
from conftest import FALSE_ALARM, log_of
from refused import refuses
from scipy import stats as distributions

from specsim import default_pair, open_trace
from specsim.decoding import record
from specsim.decoding._recording.models import STEPS_PER_TEXT
from specsim.traces import default_trace, summarise, truncate, writer
from specsim.traces._analysis import document_draws, expect_tokens, grouped_autocorrelation, read_alpha
from specsim.traces._consistency import _Flags, _log_ratios, audit_log

V, GAMMA = 16, 3


def rows_of(rng, steps, concentration=0.4):
    rows = rng.gamma(concentration, size=(2, steps, GAMMA + 1, V)) + 1e-4
    rows /= rows.sum(-1, keepdims=True)
    return rows[0], 0.6 * rows[0] + 0.4 * rows[1]


def drawn(rng, rows):
    return np.minimum((rng.random((*rows.shape[:-1], 1)) > np.cumsum(rows, -1)).sum(-1), V - 1)


def standard(u, p, q, tokens):
    p, q = (np.take_along_axis(rows, tokens[..., None], -1)[..., 0] for rows in (p, q))
    return u * q < p


def log(path, *, steps=3000, seed=1, accept=standard, draw=drawn, top=None, dtype="float32", flags=True, documents=30, p_q=None):  # fmt: skip
    """A trace of `steps` steps whose flags come from `accept`, and whose tokens from `draw`."""
    rng = np.random.default_rng(seed)
    p, q = p_q or rows_of(rng, steps)
    tokens = draw(rng, q[:, :-1])
    passed = accept(rng.random(tokens.shape), p[:, :-1], q[:, :-1], tokens)
    accepted = np.cumprod(passed, axis=1).sum(1)
    how = {"top": top, "dtype": dtype, "documents": documents, "rows": 4000}
    return log_of(path, p, q, tokens, accepted if flags else None, **how)


# --- the log's own flags and tokens ----------------------------------------------------------------------


@pytest.fixture
def steps(full):
    """How many steps an audited log has."""
    return 3000 if full else 2000


def lenient(u, p, q, tokens):
    return standard(0.8 * u, p, q, tokens)


def greedy(u, p, q, tokens):
    return tokens == p.argmax(-1)


def second_chance(u, p, q, tokens):
    return standard(u, p, q, tokens) | (u > 0.94)


def reused(u, p, q, tokens):
    """One uniform for all positions of a step: right at each of them alone, not given those before."""
    return standard(np.broadcast_to(u[:, :1], u.shape), p, q, tokens)


def ratio_upside_down(u, p, q, tokens):
    return standard(u, q, p, tokens)


def too_strict(u, p, q, tokens):
    return standard(np.minimum(u * 1.15, 1.0), p, q, tokens)


@pytest.mark.parametrize(
    "how",
    [
        {},
        pytest.param({"seed": 2, "dtype": "float16"}, marks=pytest.mark.slow),
        pytest.param({"seed": 3, "dtype": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param({"seed": 4, "top": 6}, marks=pytest.mark.slow),
        {"seed": 5, "top": 2, "dtype": "float16"},
        {"seed": 6, "flags": False},
    ],
)
def test_a_log_of_the_standard_rule_is_consistent(tmp_path, how, steps):
    found = audit_log(log(tmp_path / "t", steps=steps // 2, **how), rng=0)
    assert (found.verdict, found.exit_code, found.contradictions) == ("consistent", 0, 0)
    assert found.chi_square_p > FALSE_ALARM
    assert found.token_counts.sum() == steps // 2 * GAMMA
    assert (found.e_flags is None) == (how.get("flags") is False)
    for one in found.flags:
        assert abs(one.z) < 6
        assert one.expected[0] <= one.expected[1]


@pytest.mark.parametrize(
    ("accept", "findings"),
    [
        *((wrong, ("flags",)) for wrong in (lenient, reused)),
        pytest.param(standard, (), marks=pytest.mark.slow),
        *(pytest.param(wrong, ("flags",), marks=pytest.mark.slow)
          for wrong in (second_chance, too_strict, greedy, ratio_upside_down)),
    ],
)  # fmt: skip
def test_flags_of_another_rule_are_seen(tmp_path, accept, findings, steps):
    rng = np.random.default_rng(9)
    p_q = rows_of(rng, steps, 1.0)[0], rows_of(rng, steps, 1.0)[0]
    found = audit_log(log(tmp_path / "t", steps=steps, p_q=p_q, accept=accept), rng=0)
    assert tuple(one.kind for one in found.findings) == findings
    assert found.exit_code == bool(findings)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"top": 6}, {"dtype": "bfloat16"}])
def test_greedy_flags_are_seen_through_truncation_and_rounding(tmp_path, how, steps):
    found = audit_log(log(tmp_path / "t", steps=steps, accept=greedy, **how), rng=0)
    assert [one.kind for one in found.findings] == ["flags"]


@pytest.mark.parametrize(
    "how", [{"top": 6}, *(pytest.param(how, marks=pytest.mark.slow) for how in ({}, {"dtype": "bfloat16"}))]
)
def test_lenience_is_what_it_says(tmp_path, how, steps):
    """Through truncation and rounding too."""
    trace = log(tmp_path / "t", steps=steps, accept=lenient, **how)
    assert [one.kind for one in audit_log(trace, rng=0).findings] == ["flags"]
    assert audit_log(trace, lenience=0.8, rng=0).verdict == "consistent"
    assert audit_log(trace, lenience=0.6, rng=0).verdict == "deviates"
    for wrong in (0.0, 1.5):
        refuses("lenience", audit_log, trace, lenience=wrong, rng=0)


def greedily(rng, rows):
    return rows.argmax(-1)


def sharper(rng, rows):
    powers = rows**1.2
    return drawn(rng, powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"top": 6}, marks=pytest.mark.slow),
        {"flags": False},
    ],
)
@pytest.mark.parametrize("draw", [pytest.param(greedily, marks=pytest.mark.slow), sharper])
def test_drafted_tokens_that_are_not_draws_from_q_are_seen(tmp_path, draw, how, steps):
    """With flags that are right, given these tokens."""
    found = audit_log(log(tmp_path / "t", steps=steps, draw=draw, **how), rng=0)
    assert [one.kind for one in found.findings] == ["drafted tokens"]


def test_a_rejection_where_p_is_more_than_q_ends_the_matter(tmp_path):
    p = np.full((50, GAMMA + 1, V), 1 / V)
    q = np.full_like(p, 0.5 / (V - 1))
    q[..., 0] = 0.5
    rejects = lambda u, p, q, x: (x > 0) & (u > 0.5)  # noqa: E731
    found = audit_log(log(tmp_path / "t", steps=50, p_q=(p, q), accept=rejects), rng=0)
    assert found.contradictions > 0
    assert found.e_flags == math.inf
    assert [one.kind for one in found.findings] == ["flags"]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["log10_e_flags"] == "inf"


def test_the_evidence_has_expectation_at_most_one():
    """Exactly, for coins anywhere in their interval; and more for coins outside."""
    low, high = np.array([0.2, 0.5, 0.0, 0.9]), np.array([0.3, 0.5, 1e-9, 1.0])
    outcomes = [np.exp(list(_log_ratios(low, high, np.full(4, passed)))) for passed in (True, False)]
    for true in (low, high, (low + high) / 2):
        mean = true * outcomes[0] + (1 - true) * outcomes[1]
        assert (mean <= 1 + 1e-12).all()
    mean = 0.7 * outcomes[0] + 0.3 * outcomes[1]
    assert mean.max(axis=0)[:3].min() > 1
    assert _Flags(2).log_e() == pytest.approx(0.0)  # the mixture over alternatives is an average


# --- where α comes from ----------------------------------------------------------------------------------


def naive_contexts(trace):
    """(document, β, entropy of q, accepted or None) of the contexts, row by row."""
    for part in [shard.columns for shard in trace.shards]:
        reached = True
        for r in range(part.step.size):
            reached = reached or part.position[r] == 0
            if reached:
                p, q = (np.asarray(rows[r], float) for rows in (part.p, part.q))
                entropy = -sum(x * math.log(x) for x in q if x > 0)
                flag = int(part.accepted[r])
                yield int(part.context[r]), np.minimum(p, q).sum(), entropy, None if flag < 0 else flag
            reached = reached and part.accepted[r] == 1


def test_groups_are_those_of_plain_loops(tmp_path):
    trace = log(tmp_path / "t", steps=200, documents=7)
    found = read_alpha(trace, bins=4, rng=0)
    contexts = list(naive_contexts(trace))
    assert sum(group.contexts for group in found.by_entropy) == len(contexts)
    for group in found.documents:
        mine = [c for c in contexts if c[0] == group.min]
        assert group.contexts == len(mine)
        assert group.beta == pytest.approx((np.mean([c[1] for c in mine]),) * 2, abs=1e-6)
        assert group.tested == sum(c[3] is not None for c in mine)
        assert group.accepted == sum(c[3] == 1 for c in mine)
    edges = np.quantile([c[2] for c in contexts], np.linspace(0, 1, 5))
    for group, low, high in zip(found.by_entropy, edges[:-1], edges[1:], strict=True):
        assert (group.min, group.max) == pytest.approx((low, high), abs=5.1e-5)  # rounded
        mine = [c for c in contexts if low <= c[2] and (c[2] < high or high == edges[-1])]
        assert group.contexts == pytest.approx(len(mine), abs=2)
        assert np.mean(group.beta) == pytest.approx(np.mean([c[1] for c in mine]), abs=0.02)
    json.dumps(found.to_dict(), allow_nan=False)
    assert "<th>entropy of q</th><th>contexts</th><th>mean β</th>" in found._repr_html_()
    groups = [row for row in found.to_arrow().to_pylist() if row["group"] == "entropy"]
    assert [row["contexts"] for row in groups] == [group.contexts for group in found.by_entropy]
    whole = summarise(trace)
    shares = [np.mean(group.beta) * group.contexts for group in found.documents]
    assert sum(shares) / len(contexts) == pytest.approx(whole.alpha_context, abs=1e-6)


@pytest.mark.parametrize("flags", [True, False])
def test_truncated_groups_hold_the_dense_ones(tmp_path, flags):
    dense = read_alpha(log(tmp_path / "dense", steps=150, documents=5, flags=flags), rng=0)
    cut = read_alpha(log(tmp_path / "cut", steps=150, documents=5, flags=flags, top=5), rng=0)
    for mine, whole in zip(cut.documents, dense.documents, strict=True):
        assert mine.beta[0] <= np.mean(whole.beta) <= mine.beta[1]
        assert (mine.contexts, mine.accepted) == (whole.contexts, whole.accepted)
    assert cut.intervals["alpha_context"][0] < dense.intervals["alpha_context"][0]
    assert cut.intervals["alpha_context"][1] > dense.intervals["alpha_context"][1]
    assert set(cut.intervals) == ({"alpha_context", "alpha_verified", "alpha_drafted", "tokens_per_step"} if flags else {"alpha_context", "expected_tokens"})  # fmt: skip
    assert "β" not in cut.autocorrelation


def of_documents(seed, documents=40):
    """Rows whose overlap belongs to the document: all its steps are alike."""
    rng = np.random.default_rng(seed)
    p, q = rows_of(rng, documents * 20)[0], rows_of(rng, documents * 20)[0]
    kind = np.repeat(rng.random(documents) < 0.5, 20)
    q[kind] = p[kind]
    return p, q


def test_intervals_over_documents_cover_the_truth_as_often_as_they_say(tmp_path, full):
    """And those over tokens, for the same documents, do not: the control."""
    logs, documents = (40, 40) if full else (20, 10)
    covered = {"documents": 0, "tokens": 0}
    apart = (rows_of(np.random.default_rng(seed), 10_000)[0] for seed in (100, 101))
    truth = 0.5 + 0.5 * np.minimum(*apart).sum(-1).mean()
    for seed in range(logs):
        p, q = of_documents(seed, documents)
        betas, path = np.minimum(p, q).sum(-1)[:, 0], tmp_path / f"{seed}"
        with writer(path, vocab_size=V, gamma=0, flags=False) as out:
            for s in range(len(p)):
                out.append(s // 20, [], None, p[s, :1], q[s, :1])
        low, high = read_alpha(open_trace(path), rng=seed).intervals["alpha_context"]
        covered["documents"] += low <= truth <= high
        reach = 1.96 * betas.std() / len(betas) ** 0.5
        covered["tokens"] += abs(betas.mean() - truth) <= reach
    # as many as 95 % would give, and as few as would be a disaster: both are binomial
    assert distributions.binom.cdf(covered["documents"], logs, 0.95) > 1e-4
    assert distributions.binom.cdf(covered["tokens"], logs, 0.95) < FALSE_ALARM


def test_resamples_are_drawn_with_replacement():
    drawn = document_draws(4, 1)
    assert (drawn.sum(axis=1) == 4).all()
    assert not (drawn == document_draws(4, 2)).all()
    law = 2000 * distributions.binom.pmf(range(5), 4, 1 / 4)

    def evidence(counts):  # of each document alone: those of one resample depend on each other
        seen = [np.bincount(column, minlength=5) for column in counts.astype(int).T]
        return min(distributions.chisquare(one, law).pvalue for one in seen)

    assert evidence(drawn) > FALSE_ALARM / 4
    assert evidence(np.ones((2000, 4))) < FALSE_ALARM / 4


def test_acceptance_that_clings_together_is_seen(tmp_path):
    clinging = read_alpha(log(tmp_path / "a", steps=800, p_q=of_documents(3), documents=10), rng=0)
    apart = read_alpha(log(tmp_path / "b", steps=800), rng=0)
    for name in ("acceptance", "β"):
        (value, pairs), band = clinging.autocorrelation[name][0], 6
        assert value > band / pairs**0.5
        value, pairs = apart.autocorrelation[name][0]
        assert abs(value) < band / pairs**0.5


def test_grouped_autocorrelation_is_that_of_plain_loops():
    rng = np.random.default_rng(7)
    x = rng.random(60)
    x[rng.random(60) < 0.2] = np.nan
    groups = np.sort(rng.integers(0, 4, 60))
    y = x - np.nanmean(x)
    for lag, (value, pairs) in enumerate(grouped_autocorrelation(x, groups, range(1, 5)), 1):
        products = [y[t] * y[t + lag] for t in range(60 - lag) if groups[t] == groups[t + lag]]
        products = [product for product in products if not math.isnan(product)]
        assert pairs == len(products)
        assert value == pytest.approx(np.mean(products) / np.nanmean(y * y))
    assert grouped_autocorrelation([1.0, 1.0], [0, 0], [1, 5]) == [(0.0, 1), (0.0, 0)]


def test_arguments_out_of_range(tmp_path):
    trace = log(tmp_path / "t", steps=5)
    refuses("entropy_of: 'r'", read_alpha, trace, entropy_of="r", rng=0)
    refuses("bins: 0", read_alpha, trace, bins=0, rng=0)
    assert len(read_alpha(trace, entropy_of="p", bins=1, rng=0).by_entropy) == 1


# --- the shipped trace, and the command line -------------------------------------------------------------


def test_the_shipped_trace_is_what_its_program_records(tmp_path):
    shipped = default_trace()
    assert shipped.complete
    assert shipped.num_bytes < 1_500_000
    assert all(shard.ok for shard in shipped.verify())
    how = {"gamma": 4, "dtype": "float16", "top": 16, "rng": 1}
    again = record(tmp_path / "t", *default_pair(), steps=STEPS_PER_TEXT, **how)
    mine, theirs = again.shards[0].columns, shipped.shards[0].columns
    for name in mine._fields:
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name)[: mine.step.size])
    assert audit_log(shipped, rng=0).verdict == "consistent"


def test_commands_without_a_folder_read_the_shipped_trace():
    found = json.loads(run("trace", "alpha", "--json", "--entropy-of", "p", "--bins", "3").out)
    assert (found["steps"], found["top"], len(found["reading"]["by_entropy"])) == (768, 16, 3)
    code, out, _ = run("trace", "audit", "--lenience", "0.7", "--json")
    assert (code, json.loads(out)["findings"]) == (1, ["flags"])
    says("times as fast as the target alone", "plan", "ngram-trace", "--c", "0.05")
    says("the log allows 4 drafted tokens", "simulate", "ngram-trace", "--gamma", "5", code=2)


def test_documents_of_truncated_rows_are_between_bounds():
    _, out, _ = run("trace", "alpha")
    ends = re.search(r"documents: mean β from ([.\d]+) – ([.\d]+) to ([.\d]+) – ([.\d]+), median", out)
    least, above_least, below_most, most = map(float, ends.groups())
    betas = np.array([group.beta for group in read_alpha(default_trace(), rng=0).documents])
    assert [least, above_least] == pytest.approx(betas.min(axis=0), abs=1e-4)
    assert [below_most, most] == pytest.approx(betas.max(axis=0), abs=1e-4)


def test_truncated_rows_bound_what_a_rule_emits(tmp_path):
    shipped = default_trace()
    how = ("--rule", "block", "--gamma", "3", "--seed", "1")
    out = says("rule block: 768 steps", "simulate", "ngram-trace", *how)
    for gamma, (low, high) in enumerate(expect_tokens(shipped, "block", rng=0).expected_tokens[:3], 1):
        assert f"\n{gamma}  {low:.5f} – {high:.5f}  " in out
    assert "\n4  " not in out
    assert "24 documents resampled (seed 1)" in out
    options = ("simulate", "ngram-trace", "--rule", "judge", "--gamma", "2", "--seed", "1", "--json")
    found = json.loads(run(*options)[1])
    assert found["tokens_per_step"] == expect_tokens(shipped, "judge", rng=0).expected_tokens[1].tolist()
    assert (found["rule"], found["gamma"]) == ("judge:overrule=0.2", 2)
    assert found["intervals"] == expect_tokens(shipped, "judge", rng=1).intervals.tolist()
    says("No intervals: they need two", "simulate", log(tmp_path / "t", steps=5, top=4, documents=1).path)


def test_a_trace_is_simulated_and_planned_for(tmp_path):
    path = log(tmp_path / "t", steps=40).path
    options = ("--gamma", "2", "--rule", "block", "--steps", "500", "--seed", "1")
    assert "frozen rows" in run("simulate", path, *options)[1]
    says("exceeds the 3 drafted tokens of a logged step", "simulate", path, "--gamma", "4", code=2)
    found = json.loads(run("plan", path, "--c", "0.1", "--json")[1])
    assert found["alphas"] == summarise(open_trace(path)).alpha_by_position.tolist()


def test_policies_are_walked_along_a_log(tmp_path):
    path = log(tmp_path / "t", steps=400).path
    out = says("best constant: γ = ", "plan", path, "--c", "0.1", "--policies")
    assert out.splitlines()[2].startswith("oracle"), "nothing is faster"
    assert re.search(r"constant 3 .* –  █+ *$", out, re.MULTILINE), "what was logged is never cut"
    found = json.loads(run("plan", path, "--c", "0.1", "--policies", "--json")[1])
    assert len(found) == len(out.splitlines()) - 5
    assert all(one["speedup"] > 0 for one in found)
    says("record the trace with whole rows", "plan", "ngram-trace", "--c", "0.1", "--policies", code=2)


def test_commands_on_a_log_without_flags(tmp_path):
    path = log(tmp_path / "t", steps=60, flags=False, documents=1).path
    out = says("no accept flags were logged", "trace", "alpha", path)
    assert "γ = 3" in out
    assert "No intervals: they need two" in out
    assert says("no accept flags", "plan", path, "--c", "0.1").count("no accept flags") == 2
    assert says("α context at least ", "plan", path, "--c", "0.1", "-q").count("\n") == 1
    says("there is no picture of bounds", "plan", path, "--c", "0.1", "-o", tmp_path / "x.png", code=2)
    assert len(json.loads(run("plan", path, "--c", "0.1", "--json")[1])) == 2
    says("Accept flags: not logged", "trace", "audit", path)
    says("no accept flags", "plan", "--draft", f"a={path},0.1", code=2)


def test_commands_on_a_text_in_which_nothing_was_drafted(tmp_path):
    p, q = rows_of(np.random.default_rng(1), 40)
    how = {"top": 4, "flags": False, "provenance": {"text": "given"}}
    with writer(tmp_path / "t", vocab_size=V, gamma=0, **how) as out:
        for s in range(40):
            out.append(s // 10, [], None, [truncate(p[s, 0], 4)], [truncate(q[s, 0], 4)])
    low, high = summarise(open_trace(tmp_path / "t")).alpha_context
    says("40 places of a text", "trace", "info", tmp_path / "t")
    out = says("the text is given", "trace", "alpha", tmp_path / "t")
    assert re.search(rf"α context +{low:.4f} – {high:.4f} *\n", out)
    assert "4 documents resampled" in out
    assert json.loads(run("simulate", tmp_path / "t", "--json")[1])["tokens_per_step"] == [1 + low, 1 + high]
    says("only the standard rule can be bounded", "simulate", tmp_path / "t", "--rule", "block", code=2)
    assert run("plan", tmp_path / "t", "--c", "0.1")[0] == 0
    says("no step has a draft", "trace", "audit", tmp_path / "t", code=2)


def test_importing_at_the_command_line(tmp_path):
    rng = np.random.default_rng(1)
    p, q = rows_of(rng, 12)
    np.savez(tmp_path / "log.npz", draft_tokens=drawn(rng, q[:, :-1]), p=p, q=q)
    words = "trace", "import", tmp_path / "log.npz", "--out", tmp_path / "out"
    says("wrote 12 steps", *words, "--dtype", "float16")
    says("without accept flags", "trace", "info", tmp_path / "out")
    says("already holds a trace", *words, code=2)


def test_damaged_shards_can_be_left_out(tmp_path):
    path = tmp_path / "t"
    p, q = rows_of(np.random.default_rng(1), 30)
    with writer(path, vocab_size=V, gamma=GAMMA, rows_per_shard=80) as out:
        for s in range(30):
            out.append(0, [1] * GAMMA, 1, p[s], q[s])
    shard = open_trace(path).shards[0].path
    shard.write_bytes(shard.read_bytes()[:-9])
    assert run("trace", "alpha", path)[0] == 2
    assert "10 steps" in says("left out", "trace", "alpha", path, "--skip-damaged")
