"""The folder of a planted pair: `planted.json`, `law.npz`, and the checkpoints in their formats."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np

from specsim.core._files import sha256_of
from specsim.core._json import read_sealed
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import as_dict
from specsim.core._types import Floats, Ints, check_choice, check_count, checked
from specsim.engines._planted.law import Law, TableLogits, models_of, read_laws
from specsim.theory import expected_tokens
from specsim.traces._format import Entries

END = "<|end|>"
_TOKEN = re.compile(r" ([a-z]+|[A-Z]+)|<\|end\|>")


class Spelling:
    """The texts of `words` words in lower case, of end-of-text, and of `openers` openers in upper case.

    They are in the order of their ids, a space before each. Tokenizers split text before such words and look
    up each whole, so text and tokens are one to one. `checkpoints.py` writes the same for engines."""

    def __init__(self, words: int, openers: int):
        letters = (part for size in count(1) for part in product(ascii_lowercase, repeat=size))
        names = [f" {''.join(part)}" for part in islice(letters, max(words, openers))]
        self.texts = [*names[:words], END, *map(str.upper, names[:openers])]
        self._ids = {text: number for number, text in enumerate(self.texts)}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, whose first word may lack its space, as engines strip it."""
        padded = text if text[:1] in ("", " ", END[0]) else f" {text}"
        found, place = [], 0
        while place < len(padded):
            match = _TOKEN.match(padded, place)
            token = self._ids.get(match[0]) if match else None
            if match is None or token is None:
                shown = padded[place : place + 12]
                raise ValueError(f"text, character {place}: {shown!r} does not begin with a token")
            found.append(token)
            place = match.end()
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        for place, token in enumerate(tokens):
            if not 0 <= token < len(self.texts):
                raise ValueError(
                    f"tokens, position {place}: {token} is outside the vocabulary [0, {len(self.texts)})"
                )
        return "".join(self.texts[token] for token in tokens)


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
    def models(self) -> tuple[str, ...]:
        """The checkpoints: target, draft, and a head that has one of its own."""
        return models_of(self.heads)

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

        An opener comes first, where there is one, then random words, and text of the target where its
        distribution is a table. ValueError for a length without room, or a distribution of the next token."""
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
        """The folder or file of one of `models` in the `format` "hf" or "gguf", if as planted."""
        check_choice("which", which, self.models)
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
        read = {name: getattr(self.target, name) for name in ("words", "vocab_size", "offsets", "openers")}
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


#: Limits of what is drawn at once: entries of rows, and texts.
MOST_ENTRIES, MOST_TEXTS = 2**20, 1024
#: Tokens of each text in the mean over texts, at least as many as the distribution reaches back.
LEAST_TOKENS = 16


def random_prompts(law: Law, n: int, length: int, rng: np.random.Generator) -> Ints:
    """Prompts [n, length]: an opener if there are some, random words as far as is read, then text."""
    opening = rng.integers(law.words, size=(n, max(1, law.start)))
    if law.openers:
        opening[:, 0] = rng.choice(law.openers, size=n)
    rest = length - opening.shape[1]
    if isinstance(law.logits, TableLogits):
        return continued(law, opening, rest, rng)
    return np.concatenate([opening, rng.integers(law.words, size=(n, rest))], axis=1)


def continued(law: Law, texts: Ints, count: int, rng: np.random.Generator) -> Ints:
    """`texts` [n, T], T ≥ `law.start`, each with `count` more tokens of the distribution."""
    n, length = texts.shape
    found = np.concatenate([texts, np.empty((n, count), dtype=np.int64)], axis=1)
    for place in range(length, length + count):
        sums = law.rows(law.contexts_at(found, place)).cumsum(axis=1)
        found[:, place] = (sums > rng.random((n, 1)) * sums[:, -1:]).argmax(axis=1)
    return found


def mean_overlap(target: Law, draft: Law, rng: np.random.Generator) -> tuple[float, str]:
    """The mean of Σ min(p, q) over contexts of the target's text, and which mean it is: of the stationary
    distribution where all contexts of the last tokens fit into a table, else of sampled texts."""
    last = target.offsets == tuple(range(1, target.order + 1)) and not (target.memory or target.experts)
    if isinstance(target.logits, TableLogits) and last:
        return _stationary_mean(target, draft), "the stationary distribution of contexts"
    n = max(8, min(MOST_TEXTS, MOST_ENTRIES // target.words))
    tokens = max(LEAST_TOKENS, target.order)
    texts = continued(target, random_prompts(target, n, max(1, target.start), rng), 2 * tokens, rng)
    found = [overlaps(target, draft, target.contexts_at(texts, -place)) for place in range(1, tokens + 1)]
    return min(1.0, float(np.mean(found))), f"{n * tokens:,} contexts of sampled texts"


def overlaps(target: Law, draft: Law, contexts: Ints) -> Floats:
    """Σ min(p, q) [N] in each of the contexts [N, k]."""
    return np.minimum(target.rows(contexts), draft.rows(contexts)).sum(axis=1)


def _stationary_mean(target: Law, draft: Law) -> float:
    """The mean over the stationary law after each opener, of a lazy chain, which always converges."""
    order, openers = target.order, np.array(target.openers, dtype=np.int64)
    sizes = (target.words,) * order + (len(openers),) * bool(len(openers))
    contexts = np.indices(sizes).reshape(len(sizes), int(np.prod(sizes))).T
    if len(openers):
        contexts[:, -1] = openers[contexts[:, -1]]
    rows = target.rows(contexts)[:, : target.words].reshape(*sizes, target.words)
    weights = np.full(sizes, 1 / len(contexts))
    for _ in range(10_000 if order else 0):
        after = np.moveaxis((weights[..., None] * rows).sum(axis=order - 1), -1, 0)
        change = np.abs(after - weights).max()
        weights = (weights + after) / 2
        if change < 1e-15:
            break
    # rows of equal distributions add up to 1 but for rounding
    return min(1.0, float(weights.ravel() @ overlaps(target, draft, contexts)))
