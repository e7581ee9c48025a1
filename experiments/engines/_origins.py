"""Where the code of research comes from: wheels and clones, whose verifiers are made when they are asked for.

A module beside this one adapts one repository. Its `adapt` makes a verifier or decoder of any function of the
documented signature; `verify` and its other public functions are the repository's own, of the wheel that is
installed or of the clone in results/clones/OWNER/NAME:

    specsim audit experiments.engines.sequoia:verify

The others take `engines` and `stubs`, which the adapters of specsim share, from here.
"""

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import ROOT
from specsim.adapters import EngineMissing, Verifier, declares
from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs

__all__ = ["CLONES", "Clone", "Wheel", "engines", "made_by", "row_by_row", "seeded_random", "stubs"]

#: Where the clones are, OWNER/NAME each.
CLONES = ROOT / "results" / "clones"


class Wheel(NamedTuple):
    """A distribution package, and the package in it that must be importable."""

    package: str
    module: str

    @property
    def is_here(self) -> bool:
        """Whether it is installed."""
        return find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """The installed version."""
        return version(self.package)

    def part(self, *names: str, needs: str = "torch", **more: Any) -> Any:
        """The first of the modules `names`, as `stubs.part`. Raises EngineMissing."""
        install = f"pip install --no-deps {self.package}, and {needs}"
        return stubs.part(stubs.installed_folder(self.module, install), *names, **more)


class Clone(NamedTuple):
    """A repository, OWNER/NAME; where only files of it are there, the file COMMIT names their commit."""

    repository: str

    @property
    def is_here(self) -> bool:
        """Whether there is a clone."""
        return (CLONES / self.repository).is_dir()

    @property
    def version(self) -> str:
        """The clone's commit, abbreviated."""
        folder = CLONES / self.repository
        if (folder / "COMMIT").is_file():
            return (folder / "COMMIT").read_text(encoding="utf-8")[:7]
        command = ["git", "-C", str(folder), "rev-parse", "--short=7", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def folder(self, file: str) -> Path:
        """The folder of the clone, which holds `file`. Raises EngineMissing."""
        folder = CLONES / self.repository
        if not (folder / file).is_file():
            raise EngineMissing(
                f"{self.repository} is not there ({folder} has no {file}); install: "
                f"git clone https://github.com/{self.repository} {folder}"
            )
        return folder

    def part(self, *names: str, inside: str = "", **more: Any) -> Any:
        """The first of the modules `names`, `inside` a folder of the clone, as `stubs.part`. Raises
        EngineMissing."""
        folder = self.folder(f"{inside}{names[0].replace('.', '/')}.py")
        return stubs.part(folder / inside, *names, **more)


def made_by(module: str, /, **makers: Callable[[], Verifier]) -> Callable[[str], Verifier]:
    """The `__getattr__` of `module`, whose functions are made, each by its maker, when they are asked for.

    >>> made_by(__name__, verify=lambda: print)("verify") is print
    True
    """

    def found(name: str) -> Verifier:
        if name not in makers:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return engines.made(f"{module}:{name}", makers[name])

    return found


def row_by_row(
    step: Callable[[Any, Any, Any], Sequence[int]], dtypes: tuple[str, ...] = ("float32",)
) -> Verifier:
    """Make a verifier in PyTorch of `step(drafted[γ], p[γ+1, V], q[γ, V])`, which returns the tokens of one
    row."""

    @declares(arrays="torch", dtypes=dtypes)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        with engines.seeded_torch(rng):
            return engines.padded(map(step, draft_tokens, p, q), p.shape[1])

    return verify


@contextmanager
def seeded_random(rng: np.random.Generator) -> Iterator[None]:
    """Seed Python's global generator from `rng`, and restore it afterwards."""
    state = random.getstate()
    random.seed(engines.seed_of(rng))
    try:
        yield
    finally:
        random.setstate(state)
