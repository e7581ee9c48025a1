"""The wheel has the library alone, and works where nothing else of the checkout is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

SMOKE = """
import sys
from fractions import Fraction
from pathlib import Path

import specsim

assert Path(specsim.__file__).is_relative_to(sys.argv[1]), specsim.__file__
half, third = Fraction(1, 2), Fraction(1, 3)
pair = specsim.models.TableModel([half, half]), specsim.models.TableModel([third, 2 * third])
assert specsim.prove(*pair, gamma=2).exact
run = specsim.simulate(*specsim.default_pair(), gamma=4, steps=2_000, rng=1)
assert 0.3 < run.alpha_context < 0.6
run.plot().figure.savefig("run.png")
assert specsim.audit("standard", level="smoke", rng=1).verdict == "consistent"
assert "<table>" in run._repr_html_()
for pair in ("ngram", "transformers"):
    assert all(shard.ok for shard in specsim.traces.default_trace(pair).verify())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_the_library_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {path for path in (ROOT / "specsim").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert inside == {
        path.relative_to(ROOT).as_posix() for path in sources if "__pycache__" not in path.parts
    }


def test_the_wheel_works_by_itself(wheel, tmp_path):
    """Its dependencies are those of this environment; no file of the checkout is on the path."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (tmp_path / "work").mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    run = [sys.executable, "-P", "-c", SMOKE, str(tmp_path / "installed")]
    subprocess.run(run, check=True, cwd=tmp_path / "work", env=environment)
    command = [sys.executable, "-P", "-m", "specsim", "trace", "alpha"]
    printed = subprocess.run(command, check=True, cwd=tmp_path / "work", env=environment, capture_output=True)
    assert "α verified" in printed.stdout.decode()
