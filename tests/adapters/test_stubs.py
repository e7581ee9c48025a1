"""A few files of a package, imported without the rest of it."""

import sys

import numpy as np
import pytest
from refused import refuses

from specsim import adapters
from specsim.adapters import EngineMissing
from specsim.adapters import _stubs as stubs

SAMPLER = """\
import sys

import numpy
from nowhere_at_all import Struct
from nowhere_at_all.kernels import launch

import madeup.config as config
from madeup.kernels import Base, decorated, jit, logger
from madeup.numbers import SEVEN, given
from . import envs

sys.path.append("madeup-folder")
log = logger(__name__)
SIZE: "config.Size | None" = None


class Sampler(Base[int], Struct, frozen=True):
    def __init__(self, offset=0):
        self.offset = offset

    @decorated
    def sample(self, x: Base | None) -> int:
        return SEVEN + self.offset + x


@jit(static=True)
def launched(x):
    return launch(x) + 1


def debugging():
    return bool(envs.DEBUG)


def handed():
    return given
"""


@pytest.fixture
def folder(tmp_path):
    package = tmp_path / "madeup"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('a GPU is needed')")
    (package / "deep" / "sampler.py").write_text(SAMPLER)
    (package / "numbers.py").write_text("from madeup.absent import nothing\n\nSEVEN = 7\ngiven = 1\n")
    return tmp_path


def sampler(folder, **settings):
    names = ("madeup.deep.sampler", "madeup.numbers")
    return stubs.part(folder, *names, absent=["nowhere_at_all"], **settings)


def test_the_files_are_real_and_the_rest_stands_in(folder):
    module = sampler(folder)
    assert module.__file__ == str(folder / "madeup" / "deep" / "sampler.py")
    assert module.Sampler(3).sample(1) == 11
    assert module.numpy is np
    assert not module.debugging()
    assert module.handed() == 1


def test_modules_are_given_names(folder):
    given = {"madeup.numbers": {"SEVEN": 70, "given": "other"}}
    module = stubs.part(folder, "madeup.deep.sampler", absent=["nowhere_at_all"], given=given)
    assert module.Sampler().sample(0) == 70
    assert module.handed() == "other"


def test_what_stands_in_cannot_be_counted_with(folder):
    module = sampler(folder)
    refuses("unsupported operand", module.launched, 1, error=TypeError)
    with pytest.raises(TypeError):
        len(module.config.items)
    with pytest.raises(TypeError):
        list(module.config.items)


def test_nothing_stays_behind(folder):
    known = type(sys)("madeup")
    sys.modules["madeup"] = known
    try:
        before, finders, path = set(sys.modules), list(sys.meta_path), list(sys.path)
        sampler(folder)
        assert set(sys.modules) == before
        assert sys.modules["madeup"] is known
        assert (sys.meta_path, sys.path) == (finders, path)
    finally:
        del sys.modules["madeup"]


def test_modules_are_there_until_the_end(folder):
    names = ("madeup.deep.sampler", "madeup.numbers")
    with stubs.parts(folder, *names, absent=["nowhere_at_all"]) as (module, numbers):
        assert sys.modules["madeup.deep.sampler"] is module
        assert numbers.SEVEN == 7
    assert "madeup.deep.sampler" not in sys.modules


def test_an_installed_package_is_preferred_to_a_stand_in(folder):
    (folder / "other.py").write_text("import fractions\n\nhalf = fractions.Fraction(1, 2)\n")
    assert stubs.part(folder, "other", absent=["fractions"]).half * 2 == 1


def test_files_that_are_missing_or_do_not_import(folder):
    with pytest.raises(EngineMissing, match=r"^madeup\.gone is not there \(.*gone\.py is missing\); install"):
        stubs.part(folder, "madeup.gone")
    with pytest.raises(EngineMissing, match=r"is not there \(ModuleNotFoundError: .*nowhere_at_all"):
        stubs.part(folder, "madeup.deep.sampler", "madeup.numbers")
    assert not [name for name in sys.modules if name.startswith("madeup")]


def test_folders(folder):
    assert stubs.installed_folder("numpy", "pip install numpy").joinpath("numpy", "__init__.py").is_file()
    with pytest.raises(EngineMissing, match=r"^no_such_engine is not there .*; pip install it"):
        stubs.installed_folder("no_such_engine", "pip install it")
    found = stubs.clone_folder(str(folder), "madeup", "some/repository", "madeup.numbers")
    assert found == folder.resolve()
    for source, why in (("", "clone of its repository"), (str(folder), "has no src/x.py")):
        with pytest.raises(
            EngineMissing, match=rf"^madeup is not there \(.*{why}.*\); install: clone some/re"
        ):
            stubs.clone_folder(source, "madeup", "some/repository", "src.x")


def test_an_engine_is_told_where_its_clone_is(tmp_path):
    with pytest.raises(
        EngineMissing, match=rf"tensorrt-llm is not there \({tmp_path} has no tensorrt_llm/_torch"
    ):
        adapters.get(f"tensorrt-llm:source={tmp_path}")


def test_pinned_memory_is_not_asked_for():
    torch = pytest.importorskip("torch")
    unpinned = stubs.Unpinned()
    assert torch.equal(unpinned.tensor([1, 2], pin_memory=True), torch.tensor([1, 2]))
    assert unpinned.full((2,), 3, pin_memory=True, dtype=torch.float32).tolist() == [3.0, 3.0]
    assert unpinned.cumprod is torch.cumprod
