"""Cases as files, and the tokens that somebody's engine made of them."""

import json
import shutil

import numpy as np
import pytest
import verifiers
from refused import refused, refuses
from safetensors.numpy import load_file, save_file

from specsim.adapters._contract import Declared
from specsim.auditing import _offline
from specsim.auditing._cases.battery import battery
from specsim.auditing._offline import MANIFEST, export, score
from specsim.auditing._report.text import limits_line
from specsim.auditing._results.audit import Verdict
from specsim.core._json import sealed

#: Cases that are written, besides one of uneven lengths.
FEW = ("asymmetric", "own rows", "Markov chain")


@pytest.fixture(scope="module", autouse=True)
def _few_cases():
    def few(declared):
        return [case for case in battery(declared) if case.name in (*FEW, "uneven lengths")]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_offline, "battery", few)
        yield


def exported(path, rng=7, **options):
    export(path, rng=rng, lengths=True, **options)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("cases") / "new")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """An export with another seed."""
    return exported(tmp_path_factory.mktemp("cases") / "other", 8)


def entries(folder):
    return json.loads((folder / MANIFEST).read_text())["cases"]


def rows_of_all(arrays, steps):
    """p and q of every step, as float64."""
    return (
        np.broadcast_to(array, (steps, *array.shape[-2:])).astype(np.float64)
        for array in (arrays["p"], arrays["q"])
    )


def answer(folder, tokens, verify=verifiers.right, seed=1, **spoiled):
    """What an engine does: read every file, verify, write the tokens."""
    tokens.mkdir()
    rng = np.random.default_rng(seed)
    for entry in entries(folder):
        arrays = load_file(folder / entry["file"])
        drafted = arrays["draft_tokens"]
        found = np.empty((len(drafted), drafted.shape[1] + 1), dtype=np.int64)
        lengths = arrays.get("lengths", np.full(len(drafted), drafted.shape[1]))
        p, q = rows_of_all(arrays, len(drafted))
        for length in np.unique(lengths):
            some = lengths == length
            found[some] = -1
            if length:
                found[some, : length + 1] = verify(
                    drafted[some, :length], p[some, : length + 1], q[some, :length], rng
                )
            else:
                found[some, :1] = bonus(p[some, 0], rng)
        save_file({"tokens": found}, tokens / entry["file"])
    return tokens


def bonus(p, rng):
    cdf = p.cumsum(axis=1)
    return (cdf <= rng.random((len(p), 1)) * cdf[:, -1:]).sum(axis=1)[:, None]


@pytest.fixture(scope="module")
def answers(folder, tmp_path_factory):
    return answer(folder, tmp_path_factory.mktemp("answers") / "tokens")


@pytest.fixture
def answered(answers, tmp_path):
    return shutil.copytree(answers, tmp_path / "tokens")


def altered(folder, tmp_path, change):
    """A copy of the export, its manifest changed, and sealed again if it is the same document."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    document = json.loads((copy / MANIFEST).read_text())
    found = change(document)
    text = found if isinstance(found, str) else json.dumps(sealed(document) if found is None else found)
    (copy / MANIFEST).write_text(text)
    return copy


def only_finding(result, name):
    (finding,) = next(case.findings for case in result.cases if case.case == name)
    return finding.text


def test_what_is_written_is_what_the_module_says_and_of_one_seed_the_same(folder, other, tmp_path):
    assert {entry["name"] for entry in entries(folder)} == {*FEW, "uneven lengths"}
    for entry in entries(folder):
        arrays = load_file(folder / entry["file"])
        steps, gamma, size = entry["steps"], entry["gamma"], entry["vocab_size"]
        shared = entry["name"] == "asymmetric"
        assert arrays["draft_tokens"].shape == (steps, gamma)
        assert arrays["draft_tokens"].dtype == np.int64
        assert arrays["p"].shape == ((gamma + 1, size) if shared else (steps, gamma + 1, size))
        assert arrays["q"].shape == ((gamma, size) if shared else (steps, gamma, size))
        assert arrays["p"].dtype == arrays["q"].dtype == np.float32
        assert (arrays["p"].astype(np.float64).sum(axis=-1) == 1).all()
        assert ("lengths" in arrays) == (entry["name"] == "uneven lengths")
        _, q = rows_of_all(arrays, steps)
        assert (np.take_along_axis(q, arrays["draft_tokens"][..., None], axis=2) > 0).all()
    paths = folder, exported(tmp_path / "again"), other
    for entry in entries(folder):
        once, again, differs = ((path / entry["file"]).read_bytes() for path in paths)
        assert once == again != differs


@pytest.mark.slow
def test_all_cases_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(_offline, "battery", battery)
    complete = [entry["name"] for entry in entries(exported(tmp_path / "cases"))]
    assert complete == [case.name for case in battery(Declared(dtypes=("float32",), lengths=True))]


def test_rows_of_float16_are_scored_as_such(tmp_path):
    export(tmp_path / "cases", rng=7, dtype="float16")
    dtypes = {load_file(path)["p"].dtype.name for path in (tmp_path / "cases").glob("*.safetensors")}
    assert dtypes == {"float16"}
    result = score(tmp_path / "cases", answer(tmp_path / "cases", tmp_path / "tokens"))
    assert result.verdict is Verdict.CONSISTENT


@refused(
    ({"level": "forever"}, "level: 'forever' is unknown"),
    ({"dtype": "float8"}, "'float8' cannot be written; choose from float64, float32, float16"),
    ({"dtype": "bfloat16"}, "bfloat16 cannot be written from NumPy; float32 holds its values exactly"),
)
def test_what_cannot_be_written_leaves_no_folder(options, nowhere):
    export(nowhere, **options)


def test_only_a_new_or_empty_folder_is_written_to(folder, tmp_path):
    refuses("is not empty; give a new folder", export, folder, error=FileExistsError)
    (tmp_path / "file").write_text("")
    refuses("a file, not a folder", export, tmp_path / "file", error=FileExistsError)


def test_right_tokens_are_consistent_in_smaller_integers_too(folder, answered):
    seen = []
    result = score(folder, answered, name="engine", progress=lambda done, total: seen.append((done, total)))
    assert result.verdict is Verdict.CONSISTENT
    assert result.exit_code == 0
    assert result.verifier == "engine"
    assert result.provenance.root == 7
    steps = [(entry["name"], entry["steps"], entry["steps"]) for entry in entries(folder)]
    assert [(case.case, case.steps, case.planned) for case in result.cases] == steps
    assert seen == [(k, 4) for k in range(1, 5)]
    assert not result.wasteful
    for file in answered.iterdir():
        save_file({"tokens": load_file(file)["tokens"].astype(np.int16)}, file)
    assert score(folder, answered).verdict is Verdict.CONSISTENT


def test_cases_that_are_not_in_the_export_are_left_out(folder, answered, tmp_path):
    """As where an older version had fewer: they count for the verdict."""

    def shorten(document):
        document["cases"] = [entry for entry in document["cases"] if entry["name"] == "asymmetric"]

    result = score(altered(folder, tmp_path, shorten), answered)
    assert (result.verdict, result.planned) == (Verdict.INCONCLUSIVE, 1)
    assert result.left_out == ("own rows", "Markov chain", "uneven lengths")
    assert "3 of 4 cases were not exported: own rows, Markov chain, uneven lengths." in limits_line(result)


@pytest.mark.parametrize("wrong", [verifiers.resamples_from_target, verifiers.reuses_one_uniform])
def test_wrong_tokens_are_biased(folder, tmp_path, wrong):
    result = score(folder, answer(folder, tmp_path / "tokens", wrong))
    assert result.verdict is Verdict.BIASED
    assert next(case for case in result.cases if case.case == "asymmetric").verdict is Verdict.BIASED


def test_tokens_of_another_export_or_beyond_a_drafts_length_are_refused(folder, other, answered, tmp_path):
    result = score(folder, answer(other, tmp_path / "others"))
    found = {case.case: [finding.kind for finding in case.findings] for case in result.cases}
    # drafts of other lengths
    assert found == {name: ["path"] for name in FEW} | {"uneven lengths": ["contract"]}
    entry = next(entry for entry in entries(folder) if entry["name"] == "uneven lengths")
    drafted = load_file(folder / entry["file"])["draft_tokens"]
    whole = np.column_stack([drafted, np.zeros(len(drafted), dtype=np.int64)])
    save_file({"tokens": whole}, answered / entry["file"])
    assert "tokens where only" in only_finding(score(folder, answered), "uneven lengths")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda tokens: None, "cannot be read"),
        (lambda tokens: {"output": tokens}, "has no tensor named tokens, but output"),
        (lambda tokens: {"tokens": tokens[:-1]}, "returned shape"),
        (lambda tokens: {"tokens": tokens[:, :-1]}, "returned shape"),
        (lambda tokens: {"tokens": tokens.astype(np.float32)}, "returned float32, expected integer tokens"),
        (lambda tokens: {"tokens": tokens + 100}, "is outside [0, 8)"),
        (lambda tokens: {"tokens": np.full_like(tokens, -1)}, "step 0: emitted no token"),
        (lambda tokens: b"\xff" * 64, "cannot be read"),
        (lambda tokens: b"\x08\0\0\0\0\0\0\0{}      " + b"\0" * 9, "cannot be read"),
    ],
)
def test_a_file_that_is_no_answer_breaks_its_case_alone(folder, answered, spoil, said):
    file = next(entry["file"] for entry in entries(folder) if entry["name"] == "asymmetric")
    spoiled = spoil(load_file(answered / file)["tokens"])
    (answered / file).unlink()
    if isinstance(spoiled, bytes):
        (answered / file).write_bytes(spoiled)
    elif spoiled is not None:
        save_file({name: np.ascontiguousarray(array) for name, array in spoiled.items()}, answered / file)
    result = score(folder, answered)
    assert result.verdict is Verdict.BROKEN
    assert said in only_finding(result, "asymmetric")
    right = {case.case for case in result.cases if not case.findings}
    assert right == {"own rows", "Markov chain", "uneven lengths"}


def test_no_tokens_at_all_are_broken_and_a_folder_without_a_manifest_is_refused(folder, tmp_path):
    refuses("nowhere: there is no such folder", score, folder, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    result = score(folder, tmp_path / "empty")
    assert result.verdict is Verdict.BROKEN
    assert all(case.broken for case in result.cases)
    refuses("there is no such file; give the folder that export wrote", score, tmp_path, tmp_path)


def test_ctrl_c_ends_the_scoring(folder, answered, monkeypatch):
    def interrupted(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(_offline, "read_tokens", interrupted)
    result = score(folder, answered)
    assert result.interrupted
    assert result.exit_code == 3
    assert len(result.cases) == 1


@refused(
    (lambda document: "not json", "not JSON"),
    (lambda document: [], "does not say format"),
    (lambda document: {"format": "specsim trace"}, "does not say format"),
    (lambda document: {"format": "specsim audit cases 1"}, "does not say format"),
    (lambda document: {"format": document["format"], "version": 3}, "this program reads 2; export again"),
    (lambda document: document | {"root": 8}, "damaged or edited"),
    (lambda document: document.update(level="forever"), "its values are wrong .*'forever'.*; export again"),
    (lambda document: document.update(cases=[]), "no case is listed"),
    (lambda document: document.update(cases=[3]), "its values are wrong .*; export again"),
    (lambda document: document.update(dtype="float8"), "manifest.json: .* 'float8' is unknown"),
    (lambda document: document.update(root=-1), "manifest.json: its values are wrong"),
    (lambda document: document.update(root=8), "made the case .* differently .*; export again"),
    (lambda document: document["cases"][0].update(steps=8), "differently .*; export again"),
    (lambda document: document["cases"][0].update(name="unheard of"), "differently .*; export again"),
    (lambda document: document["cases"][0].update(drafts=None), "differently .*; export again"),
    (
        lambda document: document["cases"][0].pop("drafts") and None,
        "its values are wrong .*'drafts'.*; export again",
    ),
    (lambda document: document["cases"].append(document["cases"][0]), "or one twice"),
)
def test_a_manifest_that_is_not_the_exports_is_refused(change, folder, tmp_path):
    score(altered(folder, tmp_path, change), tmp_path)
