"""Whether checkpoints have the planted distributions: log-probabilities, as the weights give them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
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
        if not (found := [one.tolerance for one in self.deviations if one.dtype == dtype]):
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
            found.append(_compare(law, place.name, "transformers", dtype, _transformers(place, dtype), texts))
    heads = planted.heads if planted.architecture == "llama" else None
    for format, after in product(planted.formats if heads else (), (0, 1)):
        which = "target" if heads == "mtp" else "head"
        target, place = (planted.folder / FORMATS[format].format(one) for one in ("target", which))
        read, name = READERS[format], f"{place.name}, draft {after + 1}"
        with rebuilding(place, "plant the folder again"):
            own = partial(log_probabilities_of_head, heads, read(target), read(place)[1], after)
            found.append(_compare(planted.target, name, "specsim", "float64", own, texts, after))
    return PlantCheck(str(path), planted.digest, tuple(found), root)


def _compare(
    law: Law, name: str, by: str, dtype: str, computed: Computed, texts: list[Ints], after: int = 0
) -> Deviation:
    """Of a head, what it drafts `after` other drafts, which are tokens of the text."""
    largest, never, count = 0.0, -np.inf, 0
    for text in texts:
        first = max(1, law.start) + after
        places = np.unique(np.linspace(first, len(text) - 1, PLACES).astype(np.int64))
        expected = law.log_rows(law.contexts(text, first)[places - first])
        logs, comes = computed(text, places), expected > -np.inf
        largest = max(largest, float(np.abs(logs[comes] - expected[comes]).max()))
        never = max(never, float(logs[~comes].max()))
        count += len(places)
    within = largest <= LIMITS[dtype] and never <= NEVER / 2
    return Deviation(name, by, dtype, count, largest, never, max(LEAST_TOLERANCE, 2 * largest), within)


def _transformers(folder: Path, dtype: str) -> Computed:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def computed(text: Ints, places: Ints) -> Floats:
        with torch.no_grad():
            logits = model(torch.from_numpy(text)[None]).logits[0, torch.from_numpy(places) - 1]
        return torch.log_softmax(logits.float(), dim=-1).double().numpy()

    return computed


#: Columns of the vocabulary whose logits are computed at a time.
BLOCK = 8192

Config = Mapping[str, Any]
Tensors = Mapping[str, NDArray[Any]]


def log_probabilities(config: Config, tensors: Tensors, text: Ints, places: Ints) -> Floats:
    """log p [n, V] of the token at each of `places` of a text [T], given what comes before it."""
    return _logs(tensors["lm_head.weight"], _streams(_Pass(config, tensors), text)[-1][places - 1])


def log_probabilities_of_head(
    heads: str | None, target: tuple[Config, Tensors], head: Tensors, after: int, text: Ints, places: Ints
) -> Floats:
    """The same of a Llama's head, of what it drafts after as many drafts of its step, which the text has."""
    (config, tensors), own = target, _Pass(target[0], head)
    streams, output = _streams(_Pass(config, tensors), text), tensors["lm_head.weight"].copy()
    hidden = streams[-1]
    if heads == "eagle3":
        hidden = own.project("fc", *streams[:3])
        output[np.arange(len(head["d2t"])) + head["d2t"]] = head["lm_head.weight"]
    for step in range(after + 1):
        hidden, last = _drafted(heads, own, streams[0][step + 1 :], hidden[:-1])
    return _logs(output, last[places - after - 2])


def _drafted(heads: str | None, own: "_Pass", token: Floats, hidden: Floats) -> tuple[Floats, Floats]:
    """A head's hidden state, and what its output layer reads, given a token and the hidden state before."""
    if heads == "eagle3":
        read = own.norm("midlayer.input_layernorm", token), own.norm("midlayer.hidden_norm", hidden)
        stream = own.layer("midlayer", hidden, np.concatenate(read, axis=1))
        return stream, own.norm("norm", stream)
    if heads == "eagle":
        stream = own.project("fc", token, hidden)
        stream = own.layer("layers.0", stream, stream)
    else:
        where = "model.mtp_layers.0"
        read = own.norm(f"{where}.hidden_layernorm", hidden), own.norm(f"{where}.token_layernorm", token)
        stream = own.layer(where, own.project(f"{where}.input_proj", *read))
        stream = own.norm(f"{where}.final_layernorm", stream)
    return stream, stream


def _streams(own: "_Pass", text: Ints) -> list[Floats]:
    """What each layer of a target begins from, and what follows the last norm."""
    found = [own.tensors["model.embed_tokens.weight"][text].astype(np.float64)]
    for layer in (f"model.layers.{i}" for i in range(own.config["num_hidden_layers"])):
        found.append(own.layer(layer, found[-1]))
    return [*found, own.norm("model.norm", found[-1])]


def _logs(output: NDArray[Any], last: Floats) -> Floats:
    blocks = [last @ output[i : i + BLOCK].T.astype(np.float64) for i in range(0, len(output), BLOCK)]
    return log_softmax(np.concatenate(blocks, axis=1))


@dataclass(frozen=True)
class _Pass:
    """Weights, and what they do to values [T, width]."""

    config: Config
    tensors: Tensors

    def project(self, name: str, *values: Floats) -> Floats:
        return np.concatenate(values, axis=1) @ self.tensors[f"{name}.weight"].T.astype(np.float64)

    def norm(self, name: str, values: Floats) -> Floats:
        square = (values**2).mean(axis=1, keepdims=True) + self.config["rms_norm_eps"]
        return values / np.sqrt(square) * self.tensors[f"{name}.weight"]

    def layer(self, name: str, stream: Floats, read: Floats | None = None) -> Floats:
        """A layer, whose attention is given what is `read`, if not the stream after a norm."""
        read = self.norm(f"{name}.input_layernorm", stream) if read is None else read
        queries, keys, values = (self.project(f"{name}.self_attn.{part}_proj", read) for part in "qkv")
        attended = _attend(self.config, queries, keys, values)
        stream = stream + self.project(f"{name}.self_attn.o_proj", attended)
        normed = self.norm(f"{name}.post_attention_layernorm", stream)
        gate, up = (self.project(f"{name}.mlp.{part}_proj", normed) for part in ("gate", "up"))
        return stream + self.project(f"{name}.mlp.down_proj", gate * (1 + np.tanh(gate / 2)) / 2 * up)


def _attend(config: Config, queries: Floats, keys: Floats, values: Floats) -> Floats:
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
