"""The folder of a planted pair: `planted.json`, `law.npz`, and the checkpoints in their formats."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._arguments import checked
from specsim.core._checks import check_choice, check_count
from specsim.core._files import sha256_of
from specsim.core._json import read_sealed
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import as_dict
from specsim.core._types import Ints
from specsim.engines._planted.law import MODELS, Law, read_laws
from specsim.engines._planted.texts import random_prompts
from specsim.engines._planted.words import Spelling
from specsim.theory import expected_tokens
from specsim.traces._format import Entries

MANIFEST, LAWS, GUIDE = "planted.json", "law.npz", "SERVE.md"
FORMAT = "specsim-planted"
#: Version 1 had no SHA-256 of planted.json.
VERSION = 2
#: How each format names the checkpoint of a model: a folder, or a file.
FORMATS = {"hf": "{}", "gguf": "{}.gguf"}


@dataclass(frozen=True, eq=False)
class Planted:
    """A target and a draft with known distributions, which `plant` makes and `open_planted` reads."""

    folder: Path
    target: Law
    draft: Law
    context: int  #: the maximum sequence length
    digest: str  #: the SHA-256 of the distributions and the weights
    alpha: float  #: the mean of Σ min(p, q)
    alpha_over: str  #: what that mean is taken over
    formats: tuple[str, ...]  #: those in which the checkpoints are there
    seed: int  #: that of the distributions
    architecture: str  #: that of the checkpoints
    heads: str | None  #: what of the target reads hidden states and drafts, if anything does
    files: dict[str, str] = field(repr=False)  # SHA-256 by path in the folder
    defaults: dict[str, float] = field(default_factory=dict)  #: of sampling, in the configuration

    @property
    def eos(self) -> int:
        """The id of end-of-text, which never comes."""
        return self.target.words

    @cached_property
    def spelling(self) -> Spelling:
        return Spelling(self.target.words, len(self.target.openers))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text. Raises ValueError, naming the character, if it is not made of tokens."""
        return self.spelling.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; `encode` inverts it. Raises ValueError for an unknown id."""
        return self.spelling.decode(tokens)

    def prompts(self, n: int, length: int, *, rng: RandomSource = None) -> Ints:
        """Draw `n` ≥ 1 prompts of `length` tokens at random, [n, length]; `rng` is their seed.

        An opener comes first, where the distributions have some, then random words, and text of the target
        where its distribution is a table. Raises ValueError for a length after which the next token has no
        distribution or no room."""
        check_count("n", n)
        least = max(1, self.target.start)
        if not least <= check_count("length", length) < self.context:
            raise ValueError(
                f"length: {length} is outside {least} … {self.context - 1}, the lengths after which the next "
                "token has a distribution and room"
            )
        return random_prompts(self.target, n, length, np.random.default_rng(root_of(rng)))

    def tokens_per_step(self, gamma: int) -> float:
        """The expected tokens of a step with γ drafted ones, each accepted with probability `alpha`."""
        return float(expected_tokens(self.alpha, gamma))

    def checkpoint(self, which: str, format: str) -> Path:
        """The folder or file of the "target" or the "draft" in the `format` "hf" or "gguf".

        Raises ValueError if it is not there, or has another SHA-256 than the one that was planted."""
        check_choice("which", which, MODELS)
        check_choice("format", format, FORMATS)
        if format not in self.formats:
            raise ValueError(
                f"{self.folder}: no checkpoints in format {format}; plant them with 'specsim plant DIR "
                f"--format {','.join([*self.formats, format])}' and the same options and seed"
            )
        name = FORMATS[format].format(which)
        for file in self.files:
            if file == name or file.startswith(f"{name}/"):
                self.check_file(file)
        return self.folder / name

    def to_dict(self) -> dict[str, Any]:
        """What is known of the pair, as JSON can represent it."""
        law = self.target
        read = {
            "words": law.words,
            "vocab_size": law.vocab_size,
            "offsets": law.offsets,
            "openers": law.openers,
        }
        return as_dict(self, without=("target", "draft", "files"), folder=str(self.folder), **read)

    def check_file(self, name: str) -> None:
        """Raise ValueError unless a file of the folder has the SHA-256 that `planted.json` states."""
        _check_file(self.folder / name, self.files.get(name))


@checked
def open_planted(path: str | Path) -> Planted:
    """Open a folder that `plant` made.

    Parameters
    ----------
    path : path
        With the checkpoints of target and draft.

    Returns
    -------
    Planted

    Raises
    ------
    ValueError
        If it is no such folder, or its distributions are not those that were planted.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import open_planted, plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = plant(f"{folder}/pair", order=1, vocab_size=4, context=64, rng=1)
    ...     open_planted(f"{folder}/pair").target.offsets
    (1,)
    """
    place = Path(path)
    if not (place / MANIFEST).is_file():
        raise ValueError(f"{place}: not a folder of planted checkpoints, it has no {MANIFEST}")
    manifest = read_sealed(place / MANIFEST, FORMAT, VERSION, "plant the folder again")
    entries = Entries(place / MANIFEST, manifest)

    def known(names: list[Any]) -> bool:
        return all(name in [*FORMATS] for name in names)

    content = {
        "digest": entries.get("digest", str, "a SHA-256"),
        "context": entries.count("context"),
        "alpha": entries.get("alpha", float, "a number in [0, 1]", lambda value: 0 <= value <= 1),
        "alpha_over": entries.get("alpha_over", str, "a text"),
        "formats": tuple(entries.get("formats", list, f"a list of {', '.join(FORMATS)}", known)),
        "seed": entries.count("seed", 0),
        "architecture": (how := entries.get("parameters", dict, "how made")).get("architecture", "llama"),
        "heads": how.get("heads"),
        "files": entries.get("files", dict, "SHA-256 by path"),
        "defaults": how.get("generation_config", {}),
    }
    _check_file(place / LAWS, content["files"].get(LAWS))
    target, draft = read_laws(place / LAWS)
    return Planted(place, target, draft, **content)


def _check_file(path: Path, expected: str | None) -> None:
    if not path.is_file():
        raise ValueError(f"{path}: missing; plant the folder again")
    if sha256_of(path) != expected:
        raise ValueError(
            f"{path}: not the file that was planted, its SHA-256 differs from that in {MANIFEST}; plant the "
            "folder again"
        )
