"""The manifest of a trace: a JSON object with the SHA-256 of its own content, which is checked on reading.

Rows have checksums, and the manifest has the SHA-256 of each shard's header and checksums. V, γ, the dtype,
the flags and the list of shards are in the manifest alone, hence its own SHA-256. It is of the content, not
of the bytes, so the file may be reformatted. It guards against accidents, not against an adversary.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from specsim.core._files import atomic_write

FORMAT = "specsim-trace"
#: Version 1 had no SHA-256 of the manifest.
VERSION = 2
MANIFEST = "manifest.json"


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Replace the manifest in `folder` by one of format, version and `content`."""
    # as it will be read: JSON has no tuples, and only strings as keys
    manifest = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **content}))
    manifest["sha256"] = _digest(manifest)
    with atomic_write(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest in `folder`; ValueError if there is none, or it is damaged or of another version."""
    manifest, digest = _load(folder)
    file = folder / MANIFEST
    if _is_unprotected(manifest):
        raise ValueError(
            f"{file}: version 1 of the format, in which the manifest has no SHA-256 of its own; "
            f"'specsim trace upgrade {folder}' adds it"
        )
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


def read_unprotected(folder: Path) -> dict[str, Any]:
    """Read the manifest in `folder`, which must be of version 1; raises ValueError as `read_manifest`."""
    manifest, _ = _load(folder)
    if not _is_unprotected(manifest):
        raise ValueError(
            f"{folder / MANIFEST}: not of version 1 of the format, so there is nothing to upgrade"
        )
    return manifest


def _load(folder: Path) -> tuple[dict[str, Any], str]:
    """The JSON object in `folder`, and the SHA-256 that it should have."""
    file = folder / MANIFEST
    if not file.is_file():
        raise ValueError(f"{folder}: not a trace, it has no {MANIFEST}")
    try:
        manifest = json.loads(file.read_bytes())
        digest = _digest(manifest) if isinstance(manifest, dict) else ""
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: damaged, not JSON ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{file}: not the manifest of a trace, it does not say format {FORMAT!r}")
    return manifest, digest


def _is_unprotected(manifest: dict[str, Any]) -> bool:
    return manifest.get("version") == 1 and "sha256" not in manifest


def _digest(manifest: dict[str, Any]) -> str:
    """The SHA-256 of all entries but `sha256`, as JSON in ASCII with sorted keys and without blanks."""
    covered = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
