"""Results as values: print, ==, pickle, save and load."""

import json
import pickle
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import get_args, get_type_hints

import numpy as np
import pytest
from refused import refuses

import specsim
from specsim.core._json import seal_of
from specsim.core._saving import CLASSES, FORMAT, decoded, encoded, equal, load
from specsim.core._tables import Shown
from specsim.models import Pair, TableModel
from specsim.planning import Constant
from specsim.planning._plan import Candidate
from specsim.traces import audit_log, default_trace, expect_tokens, read_alpha, summarise

CANDIDATE = Candidate.of_rate("a", 0.7, 0.1)
FEW_CASES = {"two-point", "asymmetric"}
P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
EXACT = [TableModel([Fraction(n, 6) for n in weights]) for weights in ((3, 2, 1), (1, 2, 3))]


def made():
    """A result of each kind that takes no time, by name."""
    trace, models = default_trace(), [TableModel(P), TableModel(Q)]
    yield specsim.simulate(P, Q, gamma=2, steps=500, rng=1)
    yield specsim.simulate(*models, rule="lenience:lenience=0.5", gamma=2, steps=500, rng=1)
    yield specsim.compare(P, Q, rules=["standard", "lenience"], steps=100, rng=1)
    yield specsim.sweep(P, Q, over={"gamma": [1, 2]}, steps=100, rng=1)
    yield specsim.prove(*EXACT, rule="pointwise_envelope", gamma=1)
    yield specsim.plan(0.8, 0.05)
    yield specsim.rank_drafts([CANDIDATE, Candidate.of_rate("b", 0.6, 0.01)])
    yield specsim.simulate_policies(specsim.draft_log(*models, 500, rng=1), [Constant(2)])
    batch, few = specsim.planning, {"requests": 400, "rng": 1}
    yield batch.simulate_batch(batch.preset("llama-8b"), **few)
    yield batch.sweep_batch(batch.preset("llama-8b"), over={"rate": [1.0]}, **few)
    yield specsim.generate(*models, [0], max_new_tokens=5, rng=1)
    yield specsim.check_metrics(gamma=4, accepted=20, emitted=30, steps=7)
    yield summarise(trace)
    yield read_alpha(trace, rng=0)
    yield expect_tokens(trace, rng=0)
    yield audit_log(trace, rng=0)
    yield specsim.audit("standard", "smoke", rng=1, cases=["two-point"])
    yield specsim.auditing.audit_against("standard", "standard", "smoke", rng=1)


@pytest.fixture(scope="module")
def results(few_cases_in_module):
    return list(made())


def test_every_result_is_saved_and_pickled_as_what_it_is(results, tmp_path):
    assert len({type(one) for one in results}) == len(results) - 1
    for one in results:
        one.save(tmp_path / "result.json")
        shown = str(one)
        for copy in (load(tmp_path / "result.json"), pickle.loads(pickle.dumps(one))):
            assert copy == one
            assert equal(copy.records(), one.records())
            assert str(copy) == shown
        assert all(one != other for other in results if other is not one)


def test_every_result_compares_in_the_same_way():
    def below(kind):
        return {kind, *(other for one in kind.__subclasses__() for other in below(one))}

    assert len(below(Shown)) > 15
    for kind in below(Shown):
        assert kind.__eq__ is Shown.__eq__, f"{kind.__name__}: write @dataclass(frozen=True, eq=False)"


def test_equal_runs_differ_in_time_and_nothing_else():
    options = {"gamma": 2, "steps": 500, "rng": 1}
    run = specsim.simulate(P, Q, **options, threads=1)
    assert run == specsim.simulate(P, Q, **options, threads=2)
    for other in ({"rng": 2}, {"gamma": 3}, {"steps": 501}, {"rule": "block"}):
        assert run != specsim.simulate(P, Q, **(options | other))
    assert run != specsim.simulate(Q, P, **options)
    assert run != "run"


def test_what_is_printed_is_short_and_begins_with_what_matters(results):
    for one in results:
        assert not str(one).startswith("\n")
        assert [line for line in str(one).splitlines() if len(line) > 240 or line != line.rstrip()] == []
    run, audited = results[0], results[-2]
    assert str(run).splitlines()[0].startswith(f"{run.tokens_per_step:.5f} ± ")
    assert len(str(run).splitlines()) == 3
    assert str(audited).splitlines()[0] == f"standard: {audited.verdict}"
    assert len(str(audited).splitlines()) <= 10
    assert str(results[-1]).startswith("standard against standard: same")


def test_a_biased_audit_prints_its_findings(few_cases_in_module):
    found = specsim.audit("pointwise_envelope", "smoke", rng=1, cases=["two-point", "asymmetric"])
    verdict, *lines = str(found).splitlines()
    assert verdict == "pointwise_envelope: biased"
    assert sum(line.startswith(("two-point: e = ", "asymmetric: e = ")) for line in lines) == 2


VALUES = [
    None, True, 3, "text", 0.1, float("inf"), Fraction(2, 3), (1, (2.5, "a")), [], {"a": (), 2: None},
    np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((1, 0), np.int64), np.array([0.5, np.nan]),
    np.array([Fraction(1, 2), 1], dtype=object), specsim.auditing.Verdict.LOSSY,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_read_as_it_was_written(value):
    found = decoded(json.loads(json.dumps(encoded(value), allow_nan=False)))
    assert type(found) is type(value)
    assert equal(found, value)
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None)
    assert equal(float("nan"), decoded(encoded(float("nan"))))


@pytest.mark.parametrize("other", [[1, 2], (1, 2, 3), np.array([1, 3]), {"a": 1}, 1, None])
def test_values_that_differ_are_not_equal(other):
    assert not equal((1, 2), other)
    assert not equal({"b": 1}, other)
    assert not equal(np.array([1, 2]), np.array([1, 3]))


def test_a_file_names_classes_by_their_package_and_reads_older_addresses(results):
    addresses = {
        "specsim.simulation.Simulation": results[0],
        "specsim.core.Provenance": results[0].provenance,
    }
    for name, value in addresses.items():
        assert encoded(value)["class"] == name
    assert decoded(encoded(results[0]) | {"class": "specsim.simulation._result.Simulation"}) == results[0]
    for name in ("specsim.core.Verdict", "specsim.auditing.Verdict", "specsim.core._verdicts.Verdict"):
        assert decoded({"class": name, "value": "lossy"}) is specsim.auditing.Verdict.LOSSY
    for name in ("specsim.planning.Candidate", "specsim.planning._plan.Candidate"):
        assert decoded(encoded(CANDIDATE) | {"class": name}) == CANDIDATE


def classes_in(annotation):
    """The classes of specsim in an annotation, protocols aside."""
    inside = get_args(annotation)
    if inside:
        return {kind for one in inside for kind in classes_in(one)}
    ours = getattr(annotation, "__module__", "").startswith("specsim.")
    return {annotation} if ours and not getattr(annotation, "_is_protocol", False) else set()


def test_every_class_of_a_result_has_an_address(results):
    known = {getattr(import_module(module), name) for module, names in CLASSES.items() for name in names}
    assert known >= {type(one) for one in results}
    for kind in filter(is_dataclass, known):
        hints = get_type_hints(kind)
        for field in fields(kind):
            assert not field.init or classes_in(hints[field.name]) <= known, f"{kind.__name__}.{field.name}"


FOREIGN = "os.system subprocess.Popen Simulation their.Simulation specsim.core._files.check_file specsim.nothing.Thing"


@pytest.mark.parametrize("name", FOREIGN.split())
def test_a_file_makes_nothing_but_values_of_specsim(tmp_path, name):
    document = {"format": FORMAT, "specsim": "0", "result": {"class": name, "fields": {}}}
    (tmp_path / "evil.json").write_text(json.dumps(document | {"sha256": seal_of(document)}))
    refuses(r"evil\.json: its values are wrong .*; it is by specsim 0, this is", load, tmp_path / "evil.json")


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "run.json"
    specsim.simulate(P, Q, gamma=2, steps=100, rng=1).save(path)
    text = path.read_text()
    for damaged, message in (
        (text.replace('"steps": 100', '"steps": 101'), "damaged or edited"),
        (text[:-20], "damaged, not JSON"),
        ("[" * 100_000, "damaged, not JSON"),
        ("{}", "does not say format"),
        ("3", "does not say format"),
    ):
        path.write_text(damaged)
        refuses(rf"run\.json: {message}", load, path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.json")


def test_a_pair_with_a_name_is_saved_as_its_name_and_other_models_are_left_out():
    named = Pair(np.array(P), np.array(Q), "somewhere.npz", "0123")
    given = Pair(TableModel(P), EXACT[1], None, "0123")
    model = Pair(specsim.default_pair()[0], EXACT[1], None, "0123")
    for pair, target in ((named, type(None)), (given, TableModel), (model, type(None))):
        copy = decoded(encoded(pair))
        assert copy == pair
        assert (copy.name, type(copy.target)) == (pair.name, target)
    assert decoded(encoded(given)).draft.row([]) == EXACT[1].row([])
    assert pickle.loads(pickle.dumps(named)).target is None
    assert named == model, "equal digests"
    assert named != Pair(*named, "somewhere.npz", "4567")


FORGED = [
    ("steps", "x"), ("steps", 10**400), ("planned", {"fraction": "1/0"}), ("tree", 3), ("pair", []),
    ("lengths", {"array": [300], "dtype": "int8", "shape": [1]}), ("shard", 3), ("alpha_context", {}),
    ("lengths", {"array": [], "dtype": "int64", "shape": [0]}), ("rule", {"float": "nan"}),
    ("lengths", {"array": ["x"], "dtype": "int64", "shape": [10**12]}), ("acceptance", {"tuple": ["x"]}), ("", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), FORGED, ids=str)
def test_values_that_no_result_can_have_are_refused_by_the_name_of_the_file(name, value, tmp_path):
    """Their checksum is right: whoever forges a file makes that too."""
    file, run = tmp_path / "run.json", specsim.simulate(P, Q, gamma=2, steps=500, rng=1)
    run.save(file)
    document = json.loads(file.read_text())
    holder, key = (document["result"]["fields"], name) if name else (document, "result")
    holder[key] = value
    file.write_text(json.dumps(document | {"sha256": seal_of(document)}))
    for read in (load, specsim.rerun):
        refuses(r"run\.json: its values are wrong .*; run it again", read, file)


def test_a_file_cannot_ask_for_any_number_of_steps(tmp_path):
    replace(specsim.simulate(P, Q, gamma=2, steps=500, rng=1), planned=2**62).save(tmp_path / "run.json")
    with pytest.raises(ValueError, match=r"run: 4,611,.* steps were planned; at most 1,099,511,627,776"):
        specsim.rerun(tmp_path / "run.json")
