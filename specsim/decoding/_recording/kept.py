"""The rows of two Hugging Face models over a file of prompts, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from specsim.core._provenance import specsim_version
from specsim.decoding._recording.huggingface import record_hf
from specsim.decoding._recording.prompts import read_prompts
from specsim.traces import Trace, open_trace

#: The folder of the traces, where the variable is set; by default in that of the user's caches.
FOLDER = "SPECSIM_CACHE"


def kept_rows(target: str, draft: str, prompts: Path, **options: Any) -> Trace:
    """The trace that `record_hf` makes with these options and the seed 0, from disk where it was made before.

    It is made again if a file of the models or the prompts have changed. Raises as `record_hf`."""
    texts = read_prompts(prompts)
    what = [specsim_version(), _version(target), _version(draft), texts, sorted(options.items())]
    folder = _folder() / hashlib.sha256(repr(what).encode()).hexdigest()[:32]
    if not (folder / "manifest.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # whole or not at all, though another process may be doing the same
        made = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder.parent))
        try:
            record_hf(made, target, draft, texts, rng=0, **options)
            if not folder.exists():
                made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return open_trace(folder)


def _folder() -> Path:
    if chosen := os.environ.get(FOLDER):
        return Path(chosen)
    try:
        return Path.home() / ".cache" / "specsim" / "rows"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "specsim-rows"


def _version(model: str) -> list[Any]:
    """A model's name; of a folder its files as well, with their sizes and times."""
    files = sorted(Path(model).rglob("*")) if Path(model).is_dir() else []
    return [model, [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]]
