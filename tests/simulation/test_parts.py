"""Checkpoints and shards: counts that survive, add up and tell when they do not belong together."""

import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import run
from conftest import random_trace, smaller_audits_of
from refused import refused, refuses
from safetensors.numpy import load_file, save_file

import specsim
from specsim import mistakes, rules, simulate
from specsim.auditing import audit_shard, diagnose
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.findings import judge_case
from specsim.auditing._checks.subjects import RuleSubject
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.core.distributions import synthetic_pair
from specsim.models import DynamicTree, NGramModel, TableModel, branching
from specsim.simulation._checkpoints import Part, add_parts, shard_interval
from specsim.simulation._counting import EXAMPLES, Example, Failure, Partial, count_chunks, missing
from specsim.simulation._result import Simulation

pytestmark = pytest.mark.usefixtures("few_cases_in_module")
#: The last only for rules, so that a verifier that dies of wide rows dies at the end.
FEW_CASES = {"two-point", "asymmetric", "disjoint", "Zipf 1 000"}

P, Q = synthetic_pair("zipf", 300, 0.8, rng=0)
STEPS, CHUNK = 8_000_003, 2**20
RUN = {"gamma": 4, "steps": STEPS, "rng": 3, "threads": 1}


def steps_in(path):
    """How many steps of a simulation the file has."""
    found = Part.read(path).found
    return found["steps"].steps if found else 0


def counts_of(run):
    return {"lengths": run.lengths.tolist(), "tokens": run.tokens.tolist(), "steps": run.steps}


@pytest.fixture
def one_case():
    """Audits of one case."""
    with smaller_audits_of({"asymmetric"}):
        yield


@pytest.fixture(scope="module")
def whole():
    return simulate(P, Q, **RUN)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Five shards of the run, made in another order than theirs."""
    folder = tmp_path_factory.mktemp("shards")
    paths = [folder / f"{i}.part" for i in range(5)]
    for i in (3, 0, 4, 1, 2):
        simulate(P, Q, **RUN, shard=(i, 5), checkpoint=paths[i])
    return paths


# --- shards ----------------------------------------------------------------------------------------------


def test_shards_in_any_order_add_up_to_the_run(whole, shards):
    for seed in range(3):
        order = random.Random(seed).sample(shards, len(shards))
        merged = specsim.merge(order)
        assert isinstance(merged, Simulation)
        assert counts_of(merged) == counts_of(whole)
    told, merged = whole.to_dict(), merged.to_dict()
    for one in (told, merged):
        del one["provenance"]["seconds"], one["provenance"]["date"]
    assert merged == told


def test_a_shard_is_the_run_over_its_own_steps(shards, whole):
    runs = [simulate(P, Q, **RUN, shard=(i, 5)) for i in range(5)]
    assert sum(run.steps for run in runs) == STEPS
    assert (sum(run.lengths for run in runs) == whole.lengths).all()
    assert (sum(run.tokens for run in runs) == whole.tokens).all()
    assert len({run.lengths.tobytes() for run in runs}) == 5
    again = simulate(P, Q, **RUN, shard=(2, 5), checkpoint=shards[2])  # found done
    assert counts_of(again) == counts_of(runs[2])
    assert steps_in(shards[2]) == runs[2].steps
    assert f"seed {again.provenance.root}, part 2/5 of a run" in str(again)
    refuses(r"run: part 2/5 of a run, .* merge the parts", specsim.rerun, again)


@pytest.mark.parametrize(
    ("steps", "chunk", "n"), [(100, 10, 3), (7, 10, 7), (105, 10, 10), (10**12, 2**17, 997)]
)
def test_shards_are_all_steps_once_and_whole_chunks_where_there_are_enough(steps, chunk, n):
    cuts = [shard_interval(steps, chunk, (i, n)) for i in range(n)]
    assert (cuts[0][0], cuts[-1][1]) == (0, steps)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(cuts))
    assert all(first < end for first, end in cuts)
    if n * chunk <= steps:
        assert all(first % chunk == 0 for first, _ in cuts)
        assert max(end - first for first, end in cuts) - min(end - first for first, end in cuts) <= 2 * chunk


def test_a_shard_that_is_missing_or_doubled_is_noticed(shards):
    first, end = shard_interval(STEPS, CHUNK, (1, 5))
    lost = rf"{end - first:,} of .* steps are missing \({first:,} to {end - 1:,}\)"
    refuses(lost, specsim.merge, [path for path in shards if path is not shards[1]])
    with pytest.raises(ValueError, match=rf"1\.part: steps {first:,} to {end - 1:,} are counted twice"):
        specsim.merge([*shards, shards[1]])


@pytest.mark.parametrize("change", ["dropped", "doubled"])
def test_a_span_that_is_dropped_or_doubled_is_noticed(monkeypatch, tmp_path, change):
    """By the steps that it names: the sums of its counts alone would not tell."""

    def wrong(*arguments, **options):
        found = list(count_chunks(*arguments, **options))
        return found[1:] if change == "dropped" else [*found, found[3]]

    monkeypatch.setattr("specsim.simulation._simulate.count_chunks", wrong)
    error, message = (AssertionError, f"0, {CHUNK}") if change == "dropped" else (ValueError, "counted twice")
    refuses(message, simulate, P, Q, **RUN, error=error)


def test_shards_of_other_shards_and_of_other_code_are_refused(shards, monkeypatch):
    refuses(r"1\.part: has steps of another shard", simulate, P, Q, **RUN, shard=(0, 5), checkpoint=shards[1])
    monkeypatch.setattr("specsim.core._provenance.sources_digest", lambda: "another")
    with pytest.raises(
        ValueError, match=r"0\.part: is of another run \(code is '.*' there, 'another' here\)"
    ):
        simulate(P, Q, **RUN, shard=(0, 5), checkpoint=shards[0])


# --- parts of other runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "options", "message"),
    [
        ((P, Q), {"rng": 4}, "seed is 4 there, 3 in"),
        ((P, Q), {"rule": "block"}, "rule is 'block' there, 'standard' in"),
        ((P, Q), {"rule": "lenience:lenience=0.5"}, r"rule is 'lenience:lenience=0\.5' there"),
        ((P, Q), {"gamma": 3}, "draft is .* there, "),
        ((P, Q), {"steps": STEPS + 1}, "steps is 8000004 there, 8000003 in"),
        ((Q, P), {}, "p and q is '.*' there, '"),
        ((TableModel(P), TableModel(Q)), {"steps": STEPS}, "source is 'models' there, 'fixed pair' in"),
    ],
)
def test_parts_of_other_runs_are_refused_and_what_differs_named(shards, tmp_path, pair, options, message):
    other = tmp_path / "other.part"
    source = specsim.simulation._sources.make_source(
        *pair, rule=options.get("rule", "standard"), gamma=options.get("gamma", 4)
    )
    run = specsim.simulation._checkpoints.which_run(
        source, options.get("rule", "standard"), options.get("steps", STEPS), options.get("rng", 3)
    )
    Part(run, Part.read(shards[0]).about, {}).write(other)
    refuses(rf"other\.part: is of another run \({message}", specsim.merge, [*shards, other])
    refuses(r"other\.part: is of another run .*here\)", simulate, P, Q, **RUN, checkpoint=other)


def test_equal_models_are_one_run_and_others_are_not(tmp_path):
    text = b"to be or not to be, that is the question: to be is to do"
    table = np.random.default_rng(0).dirichlet(np.ones(3), 3)
    other = table.copy()
    other[2] = other[2][::-1]
    models = [
        lambda: (NGramModel.train([text], n=3), NGramModel.train([text], n=2)),
        lambda: (NGramModel.train([text[1:]], n=3), NGramModel.train([text], n=2)),
        lambda: (TableModel(table), TableModel(table)),
        lambda: (TableModel(table), TableModel(other)),
    ]
    found = []
    for make in models:
        first, second = make(), make()
        second[0].rows(second[0].contexts)  # what a model has made for itself in the meantime does not matter
        found.append({digest(*first), digest(*second)})
    shared = TableModel(table)
    assert digest(shared, shared) in found[2]
    assert [len(one) for one in found] == [1, 1, 1, 1]
    assert len(set.union(*found)) == 4


def digest(target, draft):
    return specsim.simulation._checkpoints.digest(
        specsim.simulation._sources.make_source(target, draft, rule="standard", gamma=2)
    )


def test_a_trace_is_the_same_wherever_it_lies(tmp_path):
    places = [
        digest(random_trace(tmp_path / name, 3, seed=seed), None)
        for name, seed in zip("abc", (0, 0, 1), strict=True)
    ]
    assert places[0] == places[1] != places[2]


@pytest.mark.parametrize(
    ("rule", "gamma"),
    [("k_seq", branching(2, 2)), ("deterministic_children", DynamicTree(width=2, depth=2, nodes=3))],
)
def test_trees_come_back_from_a_part(rule, gamma, tmp_path):
    pair = TableModel([0.5, 0.3, 0.2]), TableModel([0.2, 0.3, 0.5])
    path = tmp_path / "run.part"
    run = simulate(*pair, rule=rule, gamma=gamma, steps=500, rng=0, checkpoint=path)
    merged = specsim.merge([path])
    assert (merged.tree, merged.rule, merged.source) == (gamma, rule, run.source)
    assert counts_of(merged) == counts_of(run)


def test_a_rule_that_later_runs_could_not_find_is_refused(tmp_path):
    own = replace(rules.get("standard"), citation="mine")
    with pytest.raises(ValueError, match=r"not in the registry.* without checkpoint and shard"):
        simulate(P, Q, rule=own, steps=10, rng=0, checkpoint=tmp_path / "run.part")


# --- checkpoints -----------------------------------------------------------------------------------------


def test_a_run_interrupted_many_times_equals_the_uninterrupted_one(whole, tmp_path):
    path, seen = tmp_path / "run.part", []
    options = RUN | {"threads": 2, "checkpoint": path, "checkpoint_seconds": 0.0}

    def interrupt(done, total):
        seen.append((done, total))
        if len(seen) % 4 == 0:
            raise KeyboardInterrupt

    for _ in range(20):
        run = simulate(P, Q, **options, progress=interrupt)
        if not run.interrupted:
            break
        assert run.steps == steps_in(path) == seen[-1][0]
    assert counts_of(run) == counts_of(whole)
    done = [steps for steps, _ in seen]
    assert done == sorted(set(done))  # no chunk was counted again
    assert len(done) == -(-STEPS // CHUNK)
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_without_a_seed_goes_on_with_its_own(tmp_path):
    path = tmp_path / "run.part"
    first = simulate(P, Q, steps=1000, checkpoint=path)
    again = simulate(P, Q, steps=1000, checkpoint=path)
    assert again.provenance.root == first.provenance.root
    assert counts_of(again) == counts_of(first)


LONG = """
import sys
import time
from specsim import simulate
from specsim.core.distributions import synthetic_pair
P, Q = synthetic_pair("zipf", 300, 0.8, rng=0)
options = dict(gamma=4, steps=int(sys.argv[2]), rng=3, threads=1, checkpoint=sys.argv[1])
options["checkpoint_seconds"] = 0.1
simulate(P, Q, **options, progress=lambda *_: time.sleep(0.05))
"""


def test_a_run_killed_at_any_moment_goes_on_from_its_checkpoint(tmp_path, full):
    path, steps = tmp_path / "run.part", 160_000_000 if full else 16_000_000
    with subprocess.Popen([sys.executable, "-c", LONG, str(path), str(steps)]) as child:
        while not (path.exists() and steps_in(path)):
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    kept = steps_in(path)
    told = []
    options = RUN | {"steps": steps, "threads": 2}
    run = simulate(P, Q, **options, checkpoint=path, progress=lambda done, _: told.append(done))
    assert 0 < kept < steps
    assert kept < told[0] <= kept + CHUNK  # what was kept was not run again
    assert counts_of(run) == counts_of(simulate(P, Q, **options))


def test_every_flipped_byte_of_a_checkpoint_is_noticed(shards, tmp_path):
    """In the header one in twenty bytes, in its format, its metadata and its JSON; and in the counts."""
    content, path = shards[0].read_bytes(), tmp_path / "damaged.part"
    header = 8 + int.from_bytes(content[:8], "little")
    rng = random.Random(0)
    counts = [rng.randrange(header, len(content)) for _ in range(25)]
    for place in (*range(8), *range(8, header, 20), header - 1, header, len(content) - 1, *counts):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError,
            match=r"damaged\.part: (damaged, its checksum|is damaged, or not a part|is not a part of a run)",
        ):
            Part.read(path)
    for length in (0, 7, 10, header - 1, header, len(content) - 8):
        path.write_bytes(content[:length])
        refuses(r"damaged\.part: .*run its steps again", simulate, P, Q, **RUN, checkpoint=path)
    assert path.read_bytes() == content[: len(content) - 8]  # and left as it is


def test_other_formats_are_refused(shards, tmp_path):
    path = tmp_path / "later.part"
    path.write_bytes(shards[0].read_bytes().replace(b"specsim part 2", b"specsim part 3", 1))
    refuses(r"later\.part: is not a part of a run .*'specsim part 2'", add_parts, [path])
    save_file({"x": np.zeros(3)}, path)
    refuses(r"later\.part: is not a part of a run", add_parts, [path])
    with pytest.raises(FileNotFoundError):
        add_parts([tmp_path / "nowhere.part"])


def test_any_tool_can_read_a_part(shards, whole):
    assert sum(load_file(path)["steps: lengths"] for path in shards).tolist() == whole.lengths.tolist()


def test_a_place_that_cannot_be_written_is_known_before_the_work(tmp_path):
    told = []
    with pytest.raises(FileNotFoundError, match=r"there is no such folder: .*/nowhere'$"):
        simulate(
            P, Q, **RUN, checkpoint=tmp_path / "nowhere/run.part", progress=lambda *now: told.append(now)
        )
    assert not told


def test_a_part_goes_to_disk_and_back(tmp_path):
    counts = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.array([2**62], dtype=np.int64),
        "c": np.zeros((0, 4), np.int64),
    }
    found = {
        "zeros": Partial(counts, ((0, 4), (10, 12)), (Example(1, 2, 3),), seconds=1.5),
        "β: own": Partial({}, failures=(Failure("contract", 'raised ValueError: ∑ ≠ 1\n"quoted"' * 1000),)),
    }
    part = Part({"seed": 2**80, "name": "β"}, {"threads": 2}, found)
    part.write(tmp_path / "x.part")
    again = Part.read(tmp_path / "x.part")
    assert (again.run, again.about, again.seconds) == (part.run, part.about, 1.5)
    assert again.found["β: own"] == found["β: own"]
    one = again.found["zeros"]
    assert one == replace(found["zeros"], counts=one.counts)
    for name, array in counts.items():
        assert one.counts[name].shape == array.shape
        assert one.counts[name].dtype == np.int64
        assert (one.counts[name] == array).all()


def partials():
    """What was counted of 24 steps, cut into pieces of which some have counts narrower than a sum needs."""
    rng = np.random.default_rng(0)
    ends = [0, 2, 5, 6, 11, 17, 24]
    return [
        Partial(
            {"n": rng.integers(2**30, 2**31 - 1, size=3, dtype=np.int32), "wide": rng.integers(99, size=2)},
            ((first, end),),
            tuple(Example(step, 0, int(rng.integers(9))) for step in range(first, end)),
            seconds=float(end - first),
        )
        for first, end in itertools.pairwise(ends)
    ]


def test_partial_results_are_added_in_any_order_and_grouping():
    parts, rng = partials(), random.Random(0)
    expected = {name: sum(part.counts[name].astype(int) for part in parts).tolist() for name in ("n", "wide")}
    for _ in range(20):
        heap = rng.sample(parts, len(parts))
        while len(heap) > 1:  # any two of them
            rng.shuffle(heap)
            heap.append(heap.pop() + heap.pop())
        (total,) = heap
        assert {name: array.tolist() for name, array in total.counts.items()} == expected
        assert (total.intervals, total.steps, total.seconds) == (((0, 24),), 24, 24.0)
        assert [one.step for one in total.examples] == list(range(EXAMPLES))
    assert Partial({"n": np.ones(1, int)}, ((0, 1),)) + Partial(
        {}, failures=(Failure("path", "x"),)
    ) == Partial({"n": np.ones(1, int)}, ((0, 1),), failures=(Failure("path", "x"),))


def test_intervals_join_and_what_is_missing_is_named():
    total = Partial({"n": np.zeros(1, np.int64)})
    for first, end in ((5, 6), (0, 2), (2, 5), (8, 9)):
        total += Partial({"n": np.ones(1, np.int32)}, ((first, end),))
    assert total.intervals == ((0, 6), (8, 9))
    assert (total.counts["n"].tolist(), total.counts["n"].dtype) == ([4], np.int64)
    assert missing(total.intervals, 0, 10) == [(6, 8), (9, 10)]
    assert missing(total.intervals, 1, 5) == []
    assert missing((), 3, 5) == [(3, 5)]
    for overlap in ((5, 7), (0, 1), (7, 9), (1, 2)):
        with pytest.raises(ValueError, match="are counted twice"):
            total += Partial({"n": np.ones(1, np.int32)}, (overlap,))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="reads the peak memory of this system's processes")
def test_memory_does_not_grow_with_the_number_of_steps(tmp_path):
    code = (
        "import sys, resource\n"
        "from specsim import simulate\n"
        "for steps in sys.argv[1:]:\n"
        "    pair, options = ([0.5, 0.5], [0.25, 0.75]), {'gamma': 1, 'rng': 0, 'threads': 1}\n"
        "    simulate(*pair, **options, steps=int(steps), checkpoint=f'{steps}.part')\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    numbers = 10**6, 10**8
    command = [sys.executable, "-c", code, *map(str, numbers)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    few, many = map(int, ran.stdout.split())
    assert many < 1.05 * few
    sizes = [(tmp_path / f"{steps}.part").stat().st_size for steps in numbers]
    assert sizes[1] - sizes[0] < 100


# --- audits ----------------------------------------------------------------------------------------------


def audited(audit):
    told = audit.to_dict()
    del told["provenance"]
    told["origin"] = told["origin"] and told["origin"]["digest"]  # all that parts keep of it
    for case in told["cases"]:
        case.pop("seconds", None)
    return told


WRONG = "one_coin_real_q"  # so that there are findings


@pytest.fixture(scope="module")
def whole_audit(few_cases_in_module):
    return specsim.audit(WRONG, level="smoke", rng=0, wanted_tv=0.05)


def test_shards_of_an_audit_are_judged_as_the_whole(tmp_path, whole_audit):
    rule, whole = WRONG, whole_audit
    paths = [tmp_path / f"{i}.part" for i in range(3)]
    names = [audit_shard(rule, paths[i], (i, 3), "smoke", rng=0) for i in (2, 0, 1)]
    assert sorted(itertools.chain(*names)) == sorted(case.case for case in whole.cases)
    merged = specsim.merge([paths[1], paths[2], paths[0]])
    assert audited(merged) == audited(whole)
    for one, other in zip(merged.cases, whole.cases, strict=True):
        assert all((one.counts[name] == other.counts[name]).all() for name in other.counts)
    refuses(f"are missing: {whole.cases[1].case}", specsim.merge, [paths[0], paths[2]])
    before = paths[0].read_bytes()
    audit_shard(rule, paths[0], (0, 3), "smoke", rng=0)  # nothing is left to do
    assert paths[0].read_bytes() == before
    refuses("has cases of another shard", audit_shard, rule, paths[0], (1, 3), "smoke", rng=0)
    refuses(r"of another run \(seed is 0 there, 1 here", audit_shard, rule, paths[0], (0, 3), "smoke", rng=1)


def test_an_interrupted_shard_of_an_audit_goes_on(tmp_path, whole_audit):
    """It counts no case again; and examples of impossible tokens come back from the file."""
    path, told = tmp_path / "run.part", []

    def interrupt(done, total):
        told.append(done)
        if not Part.read(path).found and done > LEVELS["smoke"].rule:  # in the second case
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_shard(WRONG, path, (0, 1), "smoke", rng=0, threads=1, progress=interrupt)
    assert len(Part.read(path).found) == 1
    told.clear()
    audit_shard(WRONG, path, (0, 1), "smoke", rng=0, progress=lambda done, _: told.append(done))
    assert min(told) > LEVELS["smoke"].rule
    assert audited(specsim.merge([path])) == audited(whole_audit)


def test_shards_of_an_audit_of_a_users_verifier_are_judged_as_the_whole(tmp_path):
    """The cases that it dies of too, and what it promises."""
    name = "verifiers:wrong_and_dies_of_wide_rows"
    whole = specsim.audit(name, level="smoke", rng=0, diagnose=False, wanted_tv=0.05)
    paths = [tmp_path / f"{i}.part" for i in range(2)]
    for i in (1, 0):
        audit_shard(name, paths[i], (i, 2), "smoke", rng=0)
    found = [one for path in paths for one in Part.read(path).found.values()]
    assert any(one.failures and not one.steps for one in found)
    refuses(r"0\.part: .* counted twice, also in a file before it", specsim.merge, [*paths, paths[0]])
    assert audited(specsim.merge(paths, diagnose=False)) == audited(whole)
    refuses(r"are missing: .*promises", specsim.merge, [paths[1]])
    code = hashlib.sha256((Path(__file__).parents[1] / "helpers/verifiers.py").read_bytes()).hexdigest()
    part = Part.read(paths[0])
    assert part.run["verifier's code"] == code
    replace(part, run=part.run | {"verifier's code": "of yesterday"}).write(paths[0])
    refuses(r"of another run \(verifier's code is .* there, 'of yesterday' in", specsim.merge, paths)


@pytest.mark.slow
def test_a_merged_audit_is_diagnosed_as_the_whole_or_says_why_not(tmp_path, monkeypatch, full, one_case):
    if not full:
        known = [mistakes.get(name) for name in ("resamples_target", "inverted_ratio")]
        among = partial(diagnose_failed, known=known)
        monkeypatch.setattr("specsim.auditing._diagnosis.diagnose.diagnose_failed", among)
    code = (Path(__file__).parents[1] / "helpers/verifiers.py").read_text(encoding="utf-8")
    module = tmp_path / "merged_here.py"
    module.write_text(code.replace("def resamples_from_target(", "def wrong("), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    name = "merged_here:wrong"
    whole = specsim.audit(name, level="smoke", rng=0, wanted_tv=0.05)
    assert whole.diagnosis.named[0].name == "resamples_target"
    replace(whole, diagnosis=None).save(tmp_path / "audit.saved")
    for verifier, message in (
        (None, "not given, and it would"),
        ("merged_here:right", "not the audited one"),
    ):
        with pytest.raises(ValueError, match=f"verifier: .*{message}.*; name 'merged_here:wrong'"):
            diagnose(specsim.load(tmp_path / "audit.saved"), verifier)
    again = run("audit", "diagnose", tmp_path, name, "--json", "--out", tmp_path / "again")
    assert (again.code, json.loads(again.out)["diagnosis"]) == (1, whole.to_dict()["diagnosis"])
    assert specsim.load(tmp_path / "again/audit.saved") == whole
    whole.save(tmp_path / "audit.json")
    for report in ("again/audit.xml", "again/audit.html", "audit.json"):
        assert "not the audited one" in run("audit", "diagnose", tmp_path / report, "merged_here:right").err
    simulate([0.5, 0.5], [0.5, 0.5], steps=1, rng=1).save(tmp_path / "simulated")
    assert "simulated: not an audit; name a folder" in run("audit", "diagnose", tmp_path / "simulated").err
    paths = [tmp_path / "0.part"]
    audit_shard(name, *paths, (0, 1), "smoke", rng=0)
    merged = specsim.merge(paths, diagnose=name)
    assert merged.diagnosis == whole.diagnosis
    assert audited(merged) == audited(whole)
    with pytest.raises(
        ValueError, match="diagnose: 'merged_here:right' is not the audited verifier; name 'merged_here:w"
    ):
        specsim.merge(paths, diagnose="merged_here:right")
    ran = tmp_path / "ran"
    with module.open("a", encoding="utf-8") as more:
        more.write(f"\nopen({str(ran)!r}, 'w').close()\n")
    unnamed = specsim.merge(paths)
    assert unnamed.diagnosis.reason.endswith("imports only what you name: --diagnose merged_here:wrong.")
    changed = specsim.merge(paths, diagnose=name)
    assert not ran.exists()
    assert [case.findings for case in changed.cases] == [case.findings for case in merged.cases]
    assert changed.diagnosis.reason.endswith("the verifier's file is not the one that was audited.")
    module.unlink()
    gone = specsim.merge(paths, diagnose=name)
    assert (gone.verdict, gone.exit_code) == (whole.verdict, 1)
    assert "the verifier cannot be opened here: " in gone.diagnosis.reason
    assert "cannot import merged_here" in gone.diagnosis.reason
    assert specsim.merge(paths, diagnose=False).diagnosis is None


def test_merge_runs_no_code_that_a_file_names(tmp_path, monkeypatch, one_case):
    """Not even where the file has the digest of the code, and not from a folder in an engine's name."""
    part, module = tmp_path / "a.part", tmp_path / "theirs_here.py"
    audit_shard("verifiers:resamples_from_target", part, (0, 1), "smoke", rng=0)
    module.write_text("open('HARM', 'w').close()\n", encoding="utf-8")
    (tmp_path / "common").mkdir()
    shutil.copy(module, tmp_path / "common/verification.py")
    monkeypatch.chdir(tmp_path)
    kept = Part.read(part)
    for name in ("theirs_here:verify", "theirs_here.inner:verify", f"shreyansh:source={tmp_path}"):
        digest = hashlib.sha256(module.read_bytes()).hexdigest()
        forged = kept.run | {"audit of": name, "verifier's code": digest}
        replace(kept, run=forged).write(part)
        merged = specsim.merge([part])
        assert not Path("HARM").exists()
        assert merged.exit_code == 1
        assert "imports only what you name" in merged.diagnosis.reason


def test_examples_and_failures_of_an_audit_survive_the_file(tmp_path):
    plan = RuleSubject(rules.get("standard"), 1).plan(0, "smoke")
    counts = {name: array.copy() for name, array in plan.nothing.counts.items()}
    counts["impossible"][1] = 4
    counts["lengths"][0] = 8
    examples = tuple(Example(step, 1, 2) for step in (7, 9, 30, 50))
    failure = Partial({}, failures=(Failure("contract", "∑" * 5000),))
    kept = {"well": Partial(counts, ((0, 8),), examples), "broken": plan.nothing + failure}
    Part({}, {}, kept).write(tmp_path / "x.part")
    well, broken = (judge_case(plan, Part.read(tmp_path / "x.part").found[name], 1e-9) for name in kept)
    assert well.findings == judge_case(plan, kept["well"], 1e-9).findings
    assert "step 7, position 2: token 2; step 9" in well.findings[0].text
    assert (broken.broken, broken.steps) == (True, 0)
    assert broken.findings[0].text.startswith("∑" * 500)
    assert broken.findings[0].text.endswith(" …")


@refused(
    ("standard", (0, 2), None, "all shards of an audit need the same seed"),
    ("standard", (0, 99), 0, "cases cannot make 99 parts"),
    ("standrd", (0, 2), 0, "unknown rule"),
)
def test_wrong_shards_of_audits_are_named(rule, shard, seed, tmp_path):
    audit_shard(rule, tmp_path / "x.part", shard, "smoke", rng=seed)
