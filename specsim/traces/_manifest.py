"""The manifest of a trace: a JSON object with the SHA-256 of its own content, which is checked on reading.

Rows have checksums, and the manifest has the SHA-256 of each shard's header and checksums. V, γ, the dtype,
the flags and the list of shards are in the manifest alone, hence its own SHA-256. It is of the content, not
of the bytes, so the file may be reformatted. It guards against accidents, not against an adversary.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from specsim.core._files import write_text
from specsim.core._json import parse_json, seal_of, sealed
from specsim.traces._format import DENSE, DTYPES, TRUNCATED, Layout

FORMAT = "specsim-trace"
VERSION = 2
MANIFEST = "manifest.json"


class Entries(NamedTuple):
    """A manifest, or an object in it; `get` checks the type of an entry."""

    file: Path
    values: dict[str, Any]

    def get(
        self,
        name: str,
        kind: type,
        what: str,
        fits: Callable[[Any], bool] = lambda value: True,
        default: object = None,
    ) -> Any:
        value = self.values.get(name, default)
        if type(value) is not kind or not fits(value):
            raise ValueError(f"{self.file}: damaged, {name} is {value!r}, not {what}")
        return value

    def count(self, name: str, least: int = 1) -> int:
        value: int = self.get(name, int, f"a whole number ≥ {least}", lambda n: n >= least)
        return value

    def layout(self) -> Layout:
        values = self.values.get("values")
        if values not in (DENSE, TRUNCATED):
            raise ValueError(
                f"{self.file}: rows are {values!r}; only {DENSE!r} and {TRUNCATED!r} can be read"
            )
        flags, bonus = (self.get(name, bool, "true or false", default=True) for name in ("flags", "bonus"))
        return Layout(
            vocab_size=self.count("vocab_size"),
            gamma=self.count("gamma", int(flags)),  # without drafts there is nothing to flag
            dtype=self.get("dtype", str, f"one of {', '.join(DTYPES)}", DTYPES.__contains__),
            top=self.count("top") if values == TRUNCATED else None,
            flags=flags,
            bonus=bonus,
        )


def layout_entries(layout: Layout) -> dict[str, Any]:
    """What `Entries.layout` reads; `flags` and `bonus` are entries only if false, as in early traces."""
    shown = {"vocab_size": layout.vocab_size, "gamma": layout.gamma, "dtype": layout.dtype}
    rows = {"values": DENSE} if layout.top is None else {"values": TRUNCATED, "top": layout.top}
    return {**shown, **rows, **{n: False for n in ("flags", "bonus") if not getattr(layout, n)}}


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Replace the manifest in `folder` by one of format, version and `content`."""
    manifest = sealed({"format": FORMAT, "version": VERSION, **content})
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest in `folder`; ValueError if there is none, or it is damaged or of another version."""
    file = folder / MANIFEST
    if not folder.exists():
        raise ValueError(f"{folder}: there is no such file or folder")
    if not file.is_file():
        raise ValueError(f"{folder}: not a trace, it has no {MANIFEST}")
    try:
        manifest = parse_json(file.read_bytes())
        digest = seal_of(manifest) if isinstance(manifest, dict) else ""
    except ValueError as error:
        raise ValueError(f"{file}: damaged, not JSON ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{file}: not the manifest of a trace, it does not say format {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise ValueError(
            f"{file}: version {manifest.get('version')!r} of the format; this program reads {VERSION}"
        )
    if manifest.get("sha256") != digest:
        raise ValueError(
            f"{file}: damaged or edited, its content does not have the SHA-256 that it states; "
            "restore the file from a copy, or record or import the trace again"
        )
    return manifest
