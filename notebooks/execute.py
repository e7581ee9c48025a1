"""Execute the notebooks, NAME.py, and write them with their outputs as NAME.ipynb beside them.

Usage: python notebooks/execute.py [NAME ...], or make notebooks. Cells are numbered, and metadata and the
state of widgets are left out, so that a second run changes nothing but measured times.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"
#: Shown in place of widgets, which need a kernel.
NO_WIDGET = "(Run the notebook to use the sliders.)"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


def stripped(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """`notebook` without what differs from run to run, and with a note in place of widgets."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number:02}", nbformat.from_dict({})
        for output in cell.get("outputs", []):
            output.pop("metadata", None)
            if output.output_type in ("display_data", "execute_result"):
                output.metadata = nbformat.from_dict({})
                if WIDGET in output.data:
                    output.data = nbformat.from_dict({"text/plain": NO_WIDGET})
    return notebook


def execute(name: str) -> nbformat.NotebookNode:
    """The notebook `name` with the outputs of a run in an empty folder."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, "TQDM_DISABLE": "1"})  # no bars, which differ from run to run
    return stripped(notebook)


def main() -> None:
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("[0-9]_*.py")):
        path = FOLDER / f"{name}.ipynb"
        nbformat.write(execute(name), path)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
