"""The reader of pairs, and runs that are run again from their files."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from refused import refused, refuses
from safetensors.numpy import save_file

import specsim
from specsim.core.distributions import synthetic_pair, top_k
from specsim.decoding import _recording
from specsim.models import NGramModel, Processed, TableModel
from specsim.models._trained_pairs import build_pair

P, Q = synthetic_pair("zipf", 6, 0.7, rng=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the pair in every form."""
    here = tmp_path_factory.mktemp("pairs")
    np.savez(here / "pair.npz", p=P, q=Q)
    np.save(here / "p.npy", P)
    np.save(here / "q.npy", Q)
    np.save(here / "both.npy", np.array([P, Q]))
    np.save(here / "target.npy", np.log(P) + 3.0)
    np.save(here / "draft.npy", np.log(Q) - 1.0)
    (here / "target.txt").write_text(" ".join(map(repr, np.log(P).tolist())))
    (here / "draft.txt").write_text(",".join(map(repr, np.log(Q).tolist())))
    save_file({"p": P.astype(np.float32), "q": Q.astype(np.float32)}, here / "pair.safetensors")
    lines = [f"{token},{p!r},{q!r}" for token, (p, q) in enumerate(zip(P.tolist(), Q.tolist(), strict=True))]
    (here / "pair.csv").write_text("\n".join(["token,p,q", *lines]) + "\n")
    return here


def read_and_run_again(name, *rows, rtol=1e-7):
    """A pair has these rows, cut where it is asked for; and what is simulated on it is run again from a file."""
    pair, cut = specsim.read_pair(name), specsim.read_pair(f"{name}:top_k=2")
    assert pair.name == name
    np.testing.assert_allclose([*pair], rows, rtol=rtol)
    np.testing.assert_allclose(cut.target, top_k(rows[0], 2), rtol=rtol)
    run = specsim.simulate(cut, gamma=2, steps=50, rng=1)
    run.save("run.json")
    assert specsim.rerun("run.json") == run


@pytest.mark.parametrize(
    "name",
    ["pair.npz", "pair.safetensors", "pair.csv", "both.npy", "p.npy,q.npy", "logits:target.npy,draft.npy", "logits:target.txt,draft.txt"],
)  # fmt: skip
def test_a_pair_is_read_from_every_form(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    read_and_run_again(name, P, Q, rtol=1e-6)


#: Rows of 9 positions of a text, over 6 tokens.
ROWS = np.random.default_rng(1).dirichlet(np.ones(6), size=(2, 9))


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Files with rows of the same positions, in every form; in the current folder."""
    monkeypatch.chdir(tmp_path)
    p, q = ROWS
    np.savez("rows.npz", p=p, q=q)
    np.save("both.npy", ROWS)
    for name, one in (("p", p), ("q", q)):
        np.save(f"{name}.npy", one)
        np.save(f"logits_{name}.npy", np.log(one) + np.arange(9.0)[:, None])  # a constant in each row


@pytest.mark.parametrize("name", ["rows.npz", "both.npy", "p.npy,q.npy", "logits:logits_p.npy,logits_q.npy"])
@pytest.mark.usefixtures("rows")
def test_rows_of_positions_are_read_from_every_form(name):
    read_and_run_again(name, *ROWS)


@pytest.mark.usefixtures("rows")
def test_a_pmf_may_be_the_row_of_one_position_and_others_must_have_the_same_positions():
    np.save("one.npy", ROWS[:, :1])
    np.testing.assert_allclose(specsim.read_pair("one.npy").draft, ROWS[1, 0])
    np.save("fewer.npy", ROWS[1, :8])
    refuses(r"p has shape \(9, 6\), q \(8, 6\); give rows of the same", specsim.read_pair, "p.npy,fewer.npy")
    np.save("nothing.npy", np.where(np.arange(9)[:, None] == 3, -np.inf, np.log(ROWS[0])))
    refuses("at least one of each row finite", specsim.read_pair, "logits:nothing.npy,logits_q.npy")


def test_a_csv_file_may_begin_with_the_mark_of_its_encoding(tmp_path):
    rows = 'p,text,q\n0.5,"a\n",0.25\n0.5,\u2028,0.75\n'
    (tmp_path / "pair.csv").write_text(rows, encoding="utf-8-sig")
    assert specsim.read_pair(str(tmp_path / "pair.csv")).target.tolist() == [0.5, 0.5]


def test_models_and_traces_are_read(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("the cat sat on the mat " * 5)
    build_pair(tmp_path, tmp_path / "models.npz", n_target=2, n_draft=1, pattern="*.txt")
    target, draft = specsim.read_pair(str(tmp_path / "models.npz"))
    assert isinstance(target, NGramModel)
    assert (target.n, draft.n) == (2, 1)
    assert isinstance(specsim.read_pair(f"{tmp_path}/models.npz:temperature=0.5").draft, Processed)
    trace = specsim.decoding.record(tmp_path / "trace", target, draft, gamma=2, steps=20, rng=1)
    pair = specsim.read_pair(str(tmp_path / "trace"))
    assert (pair.target.path, pair.draft) == (trace.path, None)
    run = specsim.simulate(pair, gamma=2, steps=50, rng=1)
    assert specsim.simulate(trace, gamma=2, steps=50, rng=1) == run
    assert specsim.rerun(run) == run


def test_synthetic_pairs_take_their_options():
    found = specsim.read_pair("dirichlet:vocab_size=20,overlap=0.5,seed=3")
    for one, other in zip(found, synthetic_pair("dirichlet", 20, 0.5, rng=3), strict=True):
        assert np.array_equal(one, other)
    assert specsim.read_pair("zipf").target.size == 1000


#: What is refused, a line each: the name of a pair, and what is said of it.
NONE = (Path(__file__).parent / "pairs.txt").read_text(encoding="utf-8").splitlines()


@refused(*(line.split(" => ") for line in NONE))
def test_what_is_no_pair_is_told(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    np.savez("long.npz", p=P, q=np.append(Q, 0))
    np.savez("weights.npz", p=2 * P, q=Q)
    np.savez("steps.npz", p=[[P, P]], q=[[Q, Q]])
    np.savez("pickled.npz", p=np.array([{}], dtype=object), q=Q)
    np.savez("members.npz", p=P, q=Q)
    with zipfile.ZipFile("members.npz", "a") as archive, pytest.warns(match="Duplicate name"):
        archive.writestr("p.npy", archive.read("q.npy"))
    np.save("nan.npy", np.append(P[1:], np.nan))
    for file, text in {
        "only_p.csv": "p\n1\n", "bad.csv": "p,q\n0.5,0.5\n0.5,x\n", "short.csv": "p,q\n0.5,0.5\n0.5\n",
        "empty.csv": "", "twice.csv": "p,q,p\n0.5,0.5,0.1\n0.5,0.5,0.9\n",
        "digits.csv": "p,q\n0.5_0,0.5\n0.5,0.5\n", "script.csv": "p,q\n0.5,٠.٥\n0.5,0.5\n",
        "long.csv": "p,q\n0.5," + "1" * 200_000, "words.txt": "no numbers", "damaged.npz": "PK",
        "damaged.npy": "no",
    }.items():  # fmt: skip
        (folder / file).write_text(text)
    specsim.read_pair(name)


@pytest.mark.parametrize("name", ["nothing.npz", "nothing.csv", "nothing.npy", "a.npy,b.npy", "logits:a,b"])
def test_a_file_that_is_missing_is_named(name):
    with pytest.raises(FileNotFoundError):
        specsim.read_pair(name)


def test_rows_of_hugging_face_models_are_recorded_once_and_again_when_something_has_changed(
    tmp_path, monkeypatch
):
    """The recorder is replaced: the real one is tested where torch is installed (tests/engines)."""
    asked = []

    def record(folder, target, draft, prompts, *, rng, gamma=5, **options):
        asked.append((target, draft, prompts, gamma, options))
        models = TableModel(P), TableModel(Q)
        return specsim.decoding.record(folder, *models, gamma=gamma, steps=10, rng=rng)

    monkeypatch.setattr(_recording.huggingface, "record_hf", record)
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "weights").write_text("1")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo\n")
    name = f"hf:{tmp_path}/target,small@{prompts}:gamma=2,temperature=0.7,top_k=5"
    run = specsim.simulate(specsim.read_pair(name), gamma=2, steps=100, rng=1)
    assert specsim.simulate(specsim.read_pair(name), gamma=2, steps=100, rng=1) == run
    run.save(tmp_path / "run.json")
    assert specsim.rerun(tmp_path / "run.json") == run
    assert asked == [(f"{tmp_path}/target", "small", ["one", "two"], 2, {"temperature": 0.7, "top_k": 5})]
    (tmp_path / "target" / "weights").write_text("12")
    specsim.read_pair(name)
    prompts.write_text("one\nthree\n")
    specsim.read_pair(name)
    assert len(asked) == 3

    def fail(folder, *_, **__):
        (Path(folder) / "shard").touch()
        raise ValueError("no torch")

    monkeypatch.setattr(_recording.huggingface, "record_hf", fail)
    prompts.write_text("four\n")
    refuses("no torch", specsim.read_pair, name)
    kept = list((tmp_path / "cache").iterdir())
    assert len(kept) == 3, "what was begun and not finished is removed"
    assert all((folder / "manifest.json").exists() for folder in kept)


def test_a_run_on_arrays_is_run_again_from_its_file_alone(tmp_path):
    path = tmp_path / "run.json"
    for target, draft in ((P, Q), (P.tolist(), Q.tolist()), (TableModel(P), TableModel([Q] * 6))):
        run = specsim.simulate(target, draft, rule="block", gamma=3, steps=200, rng=5)
        run.save(path)
        again = specsim.rerun(path)
        assert again == run
        assert np.array_equal(again.tokens, run.tokens)


def test_models_that_no_file_can_hold_are_given_again_and_must_be_the_same(tmp_path):
    path, (target, draft) = tmp_path / "run.json", specsim.default_pair()
    run = specsim.simulate(target, draft.processed(temperature=0.5), steps=50, rng=1)
    run.save(path)
    refuses("target: missing; give the pair", specsim.rerun, path)
    assert specsim.rerun(path, target, draft.processed(temperature=0.5)) == run
    refuses("target: another pair than that of the result", specsim.rerun, path, target, draft)
    assert specsim.rerun(run) == run, "in memory it has its models"


def test_a_file_of_p_and_q_that_has_changed_is_noticed(tmp_path):
    file = tmp_path / "pair.npz"
    np.savez(file, p=P, q=Q)
    run = specsim.simulate(specsim.read_pair(str(file)), steps=50, rng=1)
    np.savez(file, p=Q, q=P)
    specsim.rerun(run)  # in memory
    run.save(tmp_path / "run.json")
    refuses("another pair than that of the result", specsim.rerun, tmp_path / "run.json")


def test_only_simulations_are_run_again(tmp_path):
    specsim.plan(0.8, 0.05).save(tmp_path / "plan.json")
    refuses("run: a Plan; give a Simulation", specsim.rerun, tmp_path / "plan.json")


def test_an_interrupted_run_is_run_again_to_its_end():
    def interrupt(done, total):
        raise KeyboardInterrupt

    options = {"gamma": 2, "steps": 3_000_000, "rng": 1}
    part = specsim.simulate(P, Q, **options, progress=interrupt)
    assert part.interrupted
    assert 0 < part.steps < part.planned == 3_000_000
    assert int(part.lengths.sum()) == part.steps
    assert f"interrupted after {part.steps:,} of 3,000,000 steps" in str(part)
    assert specsim.rerun(part) == specsim.simulate(P, Q, **options) != part
