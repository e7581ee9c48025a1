"""Whether checkpoints have the planted distributions: log-probabilities, as the weights give them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._json import rebuilding
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Piece, Table
from specsim.core._types import Floats, Ints, check_choice
from specsim.core._verdicts import Judged, Verdict
from specsim.engines._planted.checkpoints import READERS, check_installed
from specsim.engines._planted.folder import FORMATS, MANIFEST, open_planted
from specsim.engines._planted.law import MODELS, Law, digest_of, log_softmax
from specsim.engines._planted.weights import NEVER

DTYPES = ("float32", "float16", "bfloat16")
#: Largest |log p - log P| of a checkpoint that is right.
LIMITS = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
#: Least tolerance in log p, that of numbers written in float32.
LEAST_TOLERANCE = 1e-6
#: Tokens of the texts, the first as long as the context allows, and places of each that are compared.
LONGEST, TEXTS, LENGTH, PLACES = 1024, 4, 96, 64

#: log p [n, V] at places of a text.
Computed = Callable[[Ints, Ints], Floats]


@dataclass(frozen=True)
class Deviation:
    """One checkpoint in one arithmetic: the largest |log p - log P|, the tolerance that covers it, and the
    largest log-probability of an id that `never` comes."""

    checkpoint: str
    computed_by: str
    dtype: str
    places: int
    largest: float
    never: float
    tolerance: float
    within: bool


@dataclass(frozen=True, eq=False)
class PlantCheck(Judged):
    """The result of `check`."""

    folder: str
    digest: str  #: that of the distributions and weights
    deviations: tuple[Deviation, ...]
    root: int  #: the seed of the texts

    derived = ("passed",)
    findings = ()  # the table has them

    @property
    def passed(self) -> bool:
        """Whether all deviations are as small as rounding explains."""
        return all(one.within for one in self.deviations)

    @property
    def verdict(self) -> Verdict:
        """consistent if all checkpoints have their distributions, else deviates."""
        return Verdict.CONSISTENT if self.passed else Verdict.DEVIATES

    def tolerance(self, dtype: str) -> float:
        """The tolerance in log p of an engine in `dtype`: twice the largest deviation, or 1e-6."""
        found = [one.tolerance for one in self.deviations if one.dtype == dtype]
        if not found:
            raise ValueError(f"dtype: {dtype!r} was not checked; pass dtypes=[{dtype!r}]")
        return max(found)

    def records(self) -> list[dict[str, Any]]:
        """A row for each checkpoint and arithmetic."""
        return [asdict(one) for one in self.deviations]

    @property
    def subject(self) -> str:
        return f"planted checkpoints in {self.folder}, digest {self.digest[:16]}"

    def evidence(self) -> Iterable[Piece]:
        names = ("checkpoint", "computed by", "dtype", "places", "largest |log p - log P|", "tolerance", "")
        rows = [
            (one.checkpoint, one.computed_by, one.dtype, f"{one.places:,}", f"{one.largest:.1e}",
             f"{one.tolerance:.1e}", "fine" if one.within else "fails")
            for one in self.deviations
        ]  # fmt: skip
        return [Table(names, rows)]


def check(path: str | Path, dtypes: Sequence[str] = (), *, rng: RandomSource = None) -> PlantCheck:
    """Compare the log-probabilities of planted checkpoints with their distributions.

    All files are compared with their SHA-256 first. Then a forward pass in float64, which reads the weights
    and not the distribution, computes log-probabilities along random texts; with `dtypes`, transformers does
    so too. Other architectures than llama are computed by transformers alone, in float32 if not said.

    Parameters
    ----------
    path : path
        A folder of `plant`.
    dtypes : sequence of {"float32", "float16", "bfloat16"}
        What transformers computes in; needs checkpoints in the format hf.
    rng : int, Generator, SeedSequence or None
        The seed of the texts.

    Returns
    -------
    PlantCheck

    Raises
    ------
    ValueError
        If a file is not the one that was planted, a dtype is unknown or needs checkpoints that are not there,
        or a package that is needed is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from specsim.engines import check
    >>> from specsim import plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = plant(f"{folder}/pair", order=1, vocab_size=4, context=64, rng=1)
    ...     check(f"{folder}/pair").passed
    True
    """
    for dtype in dtypes:
        check_choice("dtype", dtype, DTYPES)
    planted = open_planted(path)
    if not dtypes and planted.architecture != "llama":
        dtypes = ("float32",)
    if dtypes and not (find_spec("torch") and find_spec("transformers")):
        raise ValueError(
            f"dtype: {planted.architecture} in {dtypes[0]} needs torch and transformers, which are not "
            "installed; pip install both"
        )
    for name in planted.files:
        planted.check_file(name)
    if "gguf" in planted.formats:
        check_installed()
    for format in planted.formats:
        places = (planted.folder / FORMATS[format].format(which) for which in planted.models)
        weights = (READERS[format](place)[1] for place in places)
        if digest_of((planted.target, planted.draft), weights) != planted.digest:
            raise ValueError(
                f"{planted.folder}: the distributions and weights in format {format} do not have the digest "
                f"{planted.digest[:16]} of {MANIFEST}; plant the folder again"
            )
    root = root_of(rng)
    generator = np.random.default_rng(root)
    lengths = [min(length, planted.context - 1) for length in (LONGEST, *[LENGTH] * (TEXTS - 1))]
    texts = [planted.prompts(1, length, rng=generator)[0] for length in lengths]
    found = []
    for which, law in zip(MODELS, (planted.target, planted.draft), strict=True):
        for format in planted.formats if planted.architecture == "llama" else ():
            place = planted.folder / FORMATS[format].format(which)
            own = partial(log_probabilities, *READERS[format](place))
            with rebuilding(place, "plant the folder again"):
                found.append(_compare(law, place.name, "specsim", "float64", own, texts))
        for dtype in dtypes:
            place = planted.checkpoint(which, "hf")
            theirs = _transformers(place, dtype)
            found.append(_compare(law, place.name, "transformers", dtype, theirs, texts))
    return PlantCheck(str(path), planted.digest, tuple(found), root)


def _compare(law: Law, name: str, by: str, dtype: str, computed: Computed, texts: list[Ints]) -> Deviation:
    largest, never, count = 0.0, -np.inf, 0
    for text in texts:
        first = max(1, law.start)
        places = np.unique(np.linspace(first, len(text) - 1, PLACES).astype(np.int64))
        expected = law.log_rows(law.contexts(text, first)[places - first])
        logs, comes = computed(text, places), expected > -np.inf
        largest = max(largest, float(np.abs(logs[comes] - expected[comes]).max()))
        never = max(never, float(logs[~comes].max()))
        count += len(places)
    within = largest <= LIMITS[dtype] and never <= NEVER / 2
    tolerance = max(LEAST_TOLERANCE, 2 * largest)
    return Deviation(name, by, dtype, count, largest, never, tolerance, within)


def _transformers(folder: Path, dtype: str) -> Computed:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    model.eval()

    def computed(text: Ints, places: Ints) -> Floats:
        with torch.no_grad():
            logits = model(torch.from_numpy(text)[None]).logits[0, torch.from_numpy(places) - 1]
        return torch.log_softmax(logits.float(), dim=-1).double().numpy()

    return computed


#: Columns of the vocabulary whose logits are computed at a time.
BLOCK = 8192


def log_probabilities(
    config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], text: Ints, places: Ints
) -> Floats:
    """log p [n, V] of the token at each of `places` of a text [T], given what comes before it."""
    stream = tensors["model.embed_tokens.weight"][text].astype(np.float64)

    def project(name: str, values: Floats) -> Floats:
        return values @ tensors[f"{name}.weight"].T.astype(np.float64)

    def norm(name: str, values: Floats) -> Floats:
        square = (values**2).mean(axis=1, keepdims=True) + config["rms_norm_eps"]
        return values / np.sqrt(square) * tensors[f"{name}.weight"]

    for layer in (f"model.layers.{i}" for i in range(config["num_hidden_layers"])):
        normed = norm(f"{layer}.input_layernorm", stream)
        queries, keys, values = (project(f"{layer}.self_attn.{name}_proj", normed) for name in "qkv")
        stream = stream + project(f"{layer}.self_attn.o_proj", _attend(config, queries, keys, values))
        normed = norm(f"{layer}.post_attention_layernorm", stream)
        gate, up = (project(f"{layer}.mlp.{name}_proj", normed) for name in ("gate", "up"))
        stream = stream + project(f"{layer}.mlp.down_proj", gate * (1 + np.tanh(gate / 2)) / 2 * up)
    last = norm("model.norm", stream)[places - 1]
    head = tensors["lm_head.weight"]
    blocks = [last @ head[i : i + BLOCK].T.astype(np.float64) for i in range(0, len(head), BLOCK)]
    return log_softmax(np.concatenate(blocks, axis=1))


def _attend(config: Mapping[str, Any], queries: Floats, keys: Floats, values: Floats) -> Floats:
    """Causal attention, head by head."""
    size = config["head_dim"]
    future = np.triu(np.ones((len(queries), len(queries)), dtype=bool), 1)
    mixed = np.empty_like(values)
    for start in range(0, values.shape[1], size):
        head = slice(start, start + size)
        query, key = (_rotated(matrix[:, head], config["rope_theta"]) for matrix in (queries, keys))
        scores = np.where(future, -np.inf, query @ key.T / np.sqrt(size))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed[:, head] = weights / weights.sum(axis=1, keepdims=True) @ values[:, head]
    return mixed


def _rotated(vectors: Floats, theta: float) -> Floats:
    """Rotary position embedding: dimensions i and i + d/2 are turned by position · θ^(-2i/d)."""
    half = vectors.shape[1] // 2
    angles = np.arange(len(vectors))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin, x, y = np.cos(angles), np.sin(angles), vectors[:, :half], vectors[:, half:]
    return np.concatenate([x * cos - y * sin, y * cos + x * sin], axis=1)
