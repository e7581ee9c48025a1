"""Provenance of a result: what is needed to run it again and get the same counts."""

import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from specsim.core._kernels import sources_digest

LIBRARIES = ("numpy", "scipy", "numba")


@dataclass(frozen=True)
class Provenance:
    """The seed (`root`), and the versions, machine, threads, time (`seconds`) and `date` (UTC) of a run.

    Comparisons look at the seed and the version of specsim: nothing else changes a result."""

    root: int
    threads: int = field(compare=False)
    seconds: float = field(compare=False)
    specsim: str
    python: str = field(compare=False)
    machine: str = field(compare=False)
    libraries: dict[str, str] = field(compare=False)
    date: str = field(default="", compare=False)

    @classmethod
    def record(cls, root: int, threads: int, seconds: float, device: str | None = None) -> "Provenance":
        """Of this process, which computed on the GPU called `device`, if one is named."""
        return cls(
            root=root,
            threads=threads,
            seconds=seconds,
            specsim=specsim_version(),
            python=platform.python_version(),
            machine=f"{platform.system()} {platform.machine()}" + (f", {device}" if device else ""),
            libraries={name: installed_version(name) for name in LIBRARIES},
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def this_code() -> dict[str, str]:
    """The version and the digest of the sources, which all parts of one run must share."""
    return {"specsim": specsim_version(), "code": sources_digest()}


def specsim_version() -> str:
    return installed_version("specsim-decoding")


@cache
def installed_version(distribution: str, unknown: str = "unknown") -> str:
    """The version of an installed distribution, or `unknown`."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return unknown
