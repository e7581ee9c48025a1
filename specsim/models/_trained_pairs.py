"""Pairs of a target and its draft, trained on the same text: building, reading, and the bundled pair."""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specsim.core._files import probe_file
from specsim.core._tensors import write_arrays
from specsim.core._types import checked
from specsim.models._ngram import NGramModel, bits_per_byte, read_models

ModelPair = tuple[NGramModel, NGramModel]

DEFAULT_FILE = Path(__file__).parents[1] / "data" / "stdlib-ngrams.npz"
#: Left out of the standard library's folder: tests, add-ons, and what each build generates.
NOT_SOURCE = ("test", "tests", "idle_test", "site-packages", "__pycache__", "_sysconfigdata*")

#: Of the files in sorted order, the first and every tenth after it are held out.
HELD_OUT_EVERY = 10
N_CONTEXTS = 16_384
CONTEXT_SEED = 2211_17192


class Corpus(NamedTuple):
    """The text of files, and where it is from."""

    source: str
    training: list[bytes]
    held_out: list[bytes]

    def facts(self) -> dict[str, str | int]:
        return {
            "source": self.source,
            "training_files": len(self.training),
            "training_bytes": sum(map(len, self.training)),
            "training_sha256": hashlib.sha256(b"".join(self.training)).hexdigest(),
            "held_out_files": len(self.held_out),
            "held_out_bytes": sum(map(len, self.held_out)),
        }


@cache
def default_pair() -> ModelPair:
    """Read the bundled pair: a 5-gram and a 2-gram of the source text of Python's standard library.

    Returns
    -------
    target, draft : NGramModel
        Read once. `target.provenance` records which Python, how much text, and how well each model predicts
        the held-out part.

    Examples
    --------
    >>> target, draft = default_pair()
    >>> target.n, draft.n, target.contexts.shape
    (5, 2, (16384, 4))
    """
    return load_pair(DEFAULT_FILE)


@checked
def load_pair(path: str | os.PathLike[str]) -> ModelPair:
    """Read a pair from a file of `build_pair`. Raises ValueError for another file, and OSError."""
    target, draft = read_models(path, ["target_", "draft_"])
    return target, draft


@checked
def build_pair(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    n_target: int = 5,
    n_draft: int = 2,
    pattern: str = "*.py",
    exclude: Sequence[str] = (),
) -> ModelPair:
    """Train a pair on text files and write it to one file.

    Of the files in sorted order, the first and every tenth after it are held out of training. Up to 16 384
    positions drawn from them, with a fixed seed, become the contexts of the pair.

    Parameters
    ----------
    path : path
        The folder with the text.
    out : path
        The `.npz` file to write.
    n_target, n_draft : int
        n-gram orders, 1 to 8.
    pattern : str
        Names of the files to read, below `path` at any depth.
    exclude : sequence of str
        Patterns of file and folder names that are left out.

    Returns
    -------
    target, draft : NGramModel
        Their `provenance` has the numbers of files and bytes, the SHA-256 of the training text, and the bits
        per byte of both models on the held-out text.

    Raises
    ------
    ValueError
        For a missing folder, fewer than two files, too little text, and an `out` among the files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in "abc":
    ...         _ = Path(folder, f"{name}.txt").write_text(f"This is text {name}.")
    ...     target, draft = build_pair(folder, f"{folder}/pair.npz", pattern="*.txt", exclude=["c.*"])
    >>> target.n, draft.n, target.provenance["training_bytes"]
    (5, 2, 15)
    """
    probe_file(out)
    files = _matching_files(Path(path), pattern, exclude)
    if Path(out).exists() and any(Path(out).samefile(file) for file in files):
        raise ValueError(f"out: {out} is a file of the text, and is not replaced; give another path")
    return _build(_split(files, f"files {pattern}"), Path(out), n_target, n_draft)


def standard_library() -> Corpus:
    """The source text of the standard library of the running Python."""
    files = _matching_files(Path(sysconfig.get_paths()["stdlib"]), "*.py", NOT_SOURCE)
    return _split(files, f"Python {platform.python_version()} standard library")


def _split(files: list[Path], source: str) -> Corpus:
    texts = [file.read_bytes() for file in files]
    training = [text for i, text in enumerate(texts) if i % HELD_OUT_EVERY]
    return Corpus(source, training, texts[::HELD_OUT_EVERY])


def _matching_files(folder: Path, pattern: str, exclude: Sequence[str]) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"folder: {folder} is not a folder; give one that holds text files")
    if Path(pattern).is_absolute() or not pattern:
        raise ValueError(f"pattern: {pattern!r} names nothing below the folder; give one such as '*.txt'")

    def wanted(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        return path.is_file() and not any(fnmatch(part, name) for part in parts for name in exclude)

    found = filter(wanted, folder.rglob(pattern))
    files = sorted(found, key=lambda path: path.relative_to(folder).as_posix())  # the same on every system
    if len(files) < 2:
        raise ValueError(
            f"folder: {folder} has {len(files)} files matching {pattern!r}; at least 2 are needed; "
            "give another folder or pattern"
        )
    return files


def _build(corpus: Corpus, out: Path, n_target: int, n_draft: int) -> ModelPair:
    training, held_out = corpus.training, corpus.held_out
    longest = max(n_target, n_draft) - 1
    symbols = np.frombuffer(b"".join(held_out), dtype=np.uint8)
    sizes = np.array([len(text) for text in held_out])
    position_in_text = np.arange(len(symbols)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    positions = np.flatnonzero(position_in_text >= longest)
    if positions.size == 0:
        raise ValueError(
            f"folder: the {len(held_out)} held-out files have no byte after {longest} others; give more text"
        )
    rng = np.random.default_rng(CONTEXT_SEED)
    drawn = rng.choice(positions, size=min(N_CONTEXTS, positions.size), replace=False)
    contexts = symbols[drawn[:, None] - np.arange(longest, 0, -1)]
    target = NGramModel.train(training, n_target, contexts[:, longest - n_target + 1 :])
    draft = NGramModel.train(training, n_draft, contexts[:, longest - n_draft + 1 :])
    target.provenance = draft.provenance = {
        **corpus.facts(),
        "held_out_bits_per_byte_target": bits_per_byte(target, held_out),
        "held_out_bits_per_byte_draft": bits_per_byte(draft, held_out),
    }
    write_arrays(out, target.to_arrays("target_") | draft.to_arrays("draft_"))
    return target, draft
