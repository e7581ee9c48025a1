"""The notebooks: each runs from top to bottom, shows what it says, and leaves nothing behind; its .ipynb has
the same cells."""

import base64
import io
import json
import os
import re
from pathlib import Path
from runpy import run_path

import pytest
from PIL import Image

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "notebooks"
EXECUTE = FOLDER / "execute.py"
NAMES = sorted(path.stem for path in FOLDER.glob("[0-9]_*.py"))

#: What each must show, in this order.
SHOWN = {
    "1_first_look": ["VBox(", "(1 accepted)", "accept\n", "reject\n", "0, exactly", "as claimed", "TV 1/4", "α verified"],
    "2_a_rule": ["0, exactly", "half_hearted:share=0.5: consistent, wasteful", "TV 1/4", "biased; "],
    "3_audit_your_verifier": ["verify: biased", "Diagnosis: resamples_target", "0 accepted, then", "repaired: consistent"],
    "4_choose_gamma": ['bold"><td>8<', "keeps 99", "surely worse", "of context on, doubling", "VBox("],
    "5_your_own_logs": ["whole: True", "α verified", 'bold"><td>3<', '>oracle<', "possible: ", "impossible: "],
    "6_choose_a_method": ["eagle2: the pair has rows along one text alone", "eagle2:width=10,depth=6,nodes=30", "eagle3", "eagle3:nearer=0:", " -> ", "tokens per iteration"],
}  # fmt: skip

#: What differs from run to run and from machine to machine.
TIMES = re.compile(r"\d[\d.,]* ?(?:s|ms|µs|min)\b|\d+ threads?|seconds</th><td[^>]*>[^<]*")
NUMBERS = re.compile(r"\d[\d,]*(?:\.\d+)?")
#: What a committed notebook shows in place of what needs a kernel.
WITHOUT_KERNEL = {"VBox(": "use the sliders"}


def jupytext():
    """The package: what reads notebooks takes seconds to import, and this file is imported by every run."""
    import jupytext

    return jupytext


def executed(source, folder):
    """The notebook written as `source`, with its outputs, run in a kernel of its own whose files all go below
    `folder`.

    Raises CellExecutionError where a cell raises anything."""
    from nbclient import NotebookClient

    notebook = jupytext().reads(source, fmt="py:percent")
    places = {name: folder / name for name in ("IPYTHONDIR", "TMPDIR", "work")}
    for place in places.values():
        place.mkdir()
    environment = {**os.environ, "TQDM_DISABLE": "1", **{name: str(place) for name, place in places.items()}}
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(places["work"])}})
    client.execute(env=environment)
    for name in ("TMPDIR", "work"):
        assert not list(places[name].iterdir()), "files were left behind"
    return notebook


def committed(name):
    """The notebook in the repository. Raises ValidationError for one that is no notebook."""
    import nbformat

    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def text_of(output):
    """What a reader sees of an output, as HTML where it has that."""
    data = output.get("data", {})
    return output.get("text") or data.get("text/html") or data.get("text/plain") or ""


def shows(notebook, words):
    """Fails unless the outputs show `words` in this order, and a picture."""
    shown, at = "\n".join(map(text_of, outputs(notebook))), 0
    for word in words:
        assert word in shown[at:], f"{word!r} is not shown, or not in its place"
        at = shown.index(word, at)
    assert [*pictures(notebook)]


def said(notebook):
    """The text of each cell's outputs, without times and with a note in place of widgets."""
    cells = run_path(EXECUTE)["stripped"](notebook).cells
    return [TIMES.sub("…", "".join(map(text_of, cell.get("outputs", [])))) for cell in cells]


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBERS.findall(text)]


def pictures(notebook):
    for output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            yield Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"])))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_it_says(tmp_path, name):
    notebook = executed((FOLDER / f"{name}.py").read_text(encoding="utf-8"), tmp_path)
    assert not [output["text"] for output in outputs(notebook) if output.get("name") == "stderr"]
    shows(notebook, SHOWN[name])
    for picture in pictures(notebook):
        # on a dark page as on a light one
        assert picture.convert("RGBA").getextrema()[3] == (255, 255), "a picture has a ground of its own"
    for now, before in zip(said(notebook), said(committed(name)), strict=True):
        assert NUMBERS.sub("#", now) == NUMBERS.sub("#", before), "run make notebooks"
        # processors differ in last digits
        assert numbers(now) == pytest.approx(numbers(before), rel=0.01, abs=0.01), "run make notebooks"


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_outputs_belong_to_the_script(name):
    notebook = committed(name)
    cells = jupytext().read(FOLDER / f"{name}.py").cells
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in cells
    ], "run make notebooks"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == [*range(1, len(counts) + 1)], "run make notebooks"
    shows(notebook, [WITHOUT_KERNEL.get(word, word) for word in SHOWN[name]])
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_is_small_and_names_no_place(name):
    path = FOLDER / f"{name}.ipynb"
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 200_000
    assert set(json.loads(text)["metadata"]) == {"kernelspec", "language_info"}
    assert not re.findall(r"/tmp/|/home/|/root/|site-packages|widget-view", text)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_short(name):
    cells = jupytext().read(FOLDER / f"{name}.py").cells
    assert 8 <= sum(cell.cell_type == "code" for cell in cells) <= 15
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")


def test_git_stays_clean_after_a_notebook_was_run():
    lab = (
        (FOLDER.parent / "Makefile").read_text(encoding="utf-8").partition("\nlab: ")[2].partition("\n\n")[0]
    )
    assert lab.splitlines()[-1].endswith("jupyter lab results/lab")
    ignored = (FOLDER.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/results/", ".ipynb_checkpoints/"} <= {*ignored}


def test_the_readme_links_every_notebook():
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    assert sorted(SHOWN) == NAMES
    for name in NAMES:
        assert f"(notebooks/{name}.ipynb)" in readme


def test_what_goes_wrong_is_seen(tmp_path):
    from nbclient.exceptions import CellExecutionError

    (tmp_path / "raising").mkdir()
    with pytest.raises(CellExecutionError, match="no sum"):
        executed("# %%\nassert 1 + 1 == 3, 'no sum'", tmp_path / "raising")
    (tmp_path / "littering").mkdir()
    with pytest.raises(AssertionError, match="files were left behind"):
        executed("# %%\nopen('litter', 'w').close()", tmp_path / "littering")
