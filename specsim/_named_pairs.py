"""The reader of pairs for all functions and commands that take a target and a draft."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import open_file, read_columns, read_text
from specsim.core._numbers import real, whole
from specsim.core._parameters import read_options
from specsim.core._tensors import UNREADABLE, read_arrays, read_tensors
from specsim.core._types import checked, suggestion
from specsim.core.distributions import PAIR_KINDS, check_rows, synthetic_pair
from specsim.decoding._recording.huggingface import kept_rows
from specsim.models import Pair
from specsim.models._processed import SAMPLING, sampled
from specsim.models._trained_pairs import default_pair, load_pair
from specsim.traces import default_trace
from specsim.traces._reader import Trace, open_trace

#: The bundled traces.
TRACES = {"ngram-trace": "ngram", "transformers": "transformers"}
#: Options of a synthetic pair.
SYNTHETIC = {"vocab_size": 1000, "overlap": 0.8, "seed": 0}
WHOLE = ("vocab_size", "seed", "top_k", "gamma", "max_new_tokens")
LOGITS, HUGGING_FACE = "logits:", "hf:"
#: Options of Hugging Face models, next to those of sampling.
RECORDING = ("gamma", "max_new_tokens")
OPTIONS = (*SYNTHETIC, *SAMPLING, *RECORDING)
SOURCES = (
    "'ngram', a synthetic kind, a file (.npz, .npy, .safetensors, .csv) with p and q, two files of logits as "
    "logits:TARGET,DRAFT, a file of models, the folder of a trace, 'ngram-trace', 'transformers', or "
    "hf:TARGET,DRAFT@PROMPTS"
)


@checked
def read_pair(name: str) -> Pair:
    """Read the pair of target and draft that `name` names.

    Parameters
    ----------
    name : str
        "ngram", the bundled pair; "ngram-trace" and "transformers", the bundled traces of these n-grams and
        of two small transformers; a synthetic kind such as "zipf"; a file with the pmfs p and q: `.npz`,
        `.safetensors`, `.csv` with these columns, `.npy` of shape [2, V], or two such files with a comma
        between them; "logits:TARGET,DRAFT", two files of logits; all of these except `.csv` also with the
        rows [N, V] at N positions of a text, as for `specsim.simulate`; an `.npz` file of
        `specsim.models.build_pair`; the folder of a trace; or "hf:TARGET,DRAFT@PROMPTS", the rows of two
        Hugging Face models along the texts after the prompts in a file, recorded once and kept on disk
        (see `specsim.decoding.record_hf`). Options follow a colon: "zipf:vocab_size=1000,overlap=0.8,seed=0"
        for synthetic pairs, gamma and max_new_tokens for Hugging Face models, and for all but traces
        temperature, top_k, top_p and min_p.

    Returns
    -------
    Pair

    Raises
    ------
    ValueError
        For an unknown name, an option that does not exist or has no effect, and files that are damaged or
        hold no pmfs.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> p, q = read_pair("zipf:vocab_size=100,overlap=0.7")
    >>> round(float(np.minimum(p, q).sum()), 12)
    0.7
    >>> read_pair("ngram:temperature=0.5").draft.temperature
    0.5
    """
    source, options = _parse(name)
    sampling = {key: options.pop(key) for key in SAMPLING if key in options}
    hugging_face = source.startswith(HUGGING_FACE)
    own = SYNTHETIC if source in PAIR_KINDS else RECORDING if hugging_face else ()
    for key in options:
        if key not in own:
            owners = "synthetic pairs" if key in SYNTHETIC else "Hugging Face models"
            raise ValueError(f"pair {name!r}: {key} is an option of {owners} alone; leave it out")
    if hugging_face:
        return Pair(_hugging_face(source, options | sampling), None, name)
    made: tuple[Any, Any]
    if source in PAIR_KINDS:
        chosen: dict[str, Any] = SYNTHETIC | options
        made = synthetic_pair(source, chosen["vocab_size"], chosen["overlap"], rng=chosen["seed"])
    else:
        made = _read(source)
    if isinstance(made[0], Trace) and sampling:
        other = next(iter(sampling))
        raise ValueError(f"pair {name!r}: the rows of a trace cannot be sampled at another {other}; omit it")
    if sampling:
        made = sampled(made[0], **sampling), sampled(made[1], **sampling)
    return Pair(made[0], made[1], name)


def _parse(name: str) -> tuple[str, dict[str, float]]:
    """The source, and its options."""
    source, colon, rest = name.rpartition(":")
    if not colon or "=" not in rest or Path(name).exists():
        return name, {}
    readers = {key: whole if key in WHOLE else real for key in OPTIONS}
    return source, read_options(f"pair {name!r}", rest, readers)


def _hugging_face(source: str, options: dict[str, Any]) -> Trace:
    models, at, prompts = source.removeprefix(HUGGING_FACE).rpartition("@")
    if not at or models.count(",") != 1:
        raise ValueError(f"pair {source!r}: expected {HUGGING_FACE}TARGET,DRAFT@PROMPTS, a file of prompts")
    if "min_p" in options:
        raise ValueError(f"pair {source!r}: rows of Hugging Face models are not recorded with min_p; omit it")
    target, draft = models.split(",")
    return kept_rows(target, draft, Path(prompts), **options)


def _read(source: str) -> tuple[Any, Any]:
    if source == "ngram":
        return default_pair()
    if source in TRACES:
        return default_trace(TRACES[source]), None
    if source.startswith(LOGITS):
        files = source.removeprefix(LOGITS).split(",")
        if len(files) != 2:
            raise ValueError(f"pair {source!r}: give two files, {LOGITS}TARGET,DRAFT")
        return _both([_softmax(_vector(file), file) for file in files], source)
    if not source:
        raise ValueError(f"name: empty; give {SOURCES}")
    path = Path(source)
    if path.is_dir():
        return open_trace(path), None
    if source.count(",") == 1 and not path.exists():
        return _both([_vector(file) for file in source.split(",")], source)
    if path.exists() or path.suffix:
        return _read_file(path)
    known = ("ngram", *TRACES, *PAIR_KINDS)
    meant = suggestion(source, known, f"A pair is {SOURCES}. Bundled and synthetic ones")
    raise ValueError(f"unknown pair {source!r}{meant}")


def _read_file(path: Path) -> tuple[Any, Any]:
    """The pmfs p and q, or the models, in one file."""
    if path.suffix == ".csv":
        arrays = {name: np.array(column) for name, column in read_columns(path, "pq").items()}
    elif path.suffix == ".safetensors":
        arrays = read_tensors(path)[0]
    elif path.suffix == ".npy":
        both = _load(path)
        if both.ndim not in (2, 3) or len(both) != 2:
            shapes = "[2, V], the pmfs p and q, or [2, N, V], their rows at N positions"
            raise ValueError(f"{path}: shape {both.shape}; expected {shapes}")
        return _both([*both], str(path))
    else:
        try:
            arrays = read_arrays(path)
        except UNREADABLE as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{path}: neither arrays nor models ({error}); save it again") from None
        if "p" not in arrays or "q" not in arrays:
            return load_pair(path)
    if lost := [name for name in ("p", "q") if name not in arrays]:
        raise ValueError(f"{path}: has no {lost[0]}, only {', '.join(arrays)}; name the pmfs p and q")
    return _both([arrays["p"], arrays["q"]], str(path))


def _both(rows: list[NDArray[Any]], source: str) -> tuple[Any, Any]:
    """Two pmfs [V] of one vocabulary, or the rows [N, V] of the same positions, checked."""
    p, q = rows
    for name, row in zip("pq", rows, strict=True):
        if row.ndim not in (1, 2):
            raise ValueError(
                f"{source}: {name} has shape {row.shape}; expected one pmf [V], or the rows [N, V] of N "
                "positions of a text. Import rows of logged steps: specsim trace import"
            )
        check_rows(row, f"{source}: {name}")
    if p.shape[-1] != q.shape[-1]:
        sizes = f"p has {p.shape[-1]} tokens, q {q.shape[-1]}"
        raise ValueError(f"{source}: {sizes}; give rows over one vocabulary")
    if p.shape != q.shape:
        raise ValueError(f"{source}: p has shape {p.shape}, q {q.shape}; give rows of the same positions")
    return (p, q) if p.ndim == 1 or len(p) > 1 else (p[0], q[0])


def _vector(path: str) -> NDArray[Any]:
    """The only array in a file."""
    if Path(path).suffix == ".npy":
        return _load(Path(path))
    text = read_text(path).replace(",", " ").split()
    try:
        return np.array([float(number) for number in text])
    except ValueError:
        raise ValueError(f"{path}: neither .npy nor numbers in text; save it as one of them") from None


def _load(path: Path) -> NDArray[Any]:
    try:
        with open_file(path) as file:
            return np.asarray(np.load(file, allow_pickle=False))
    except UNREADABLE as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: not an array of NumPy ({error}); save it again") from None


def _softmax(logits: NDArray[Any], path: str) -> NDArray[Any]:
    values = np.asarray(logits, dtype=np.float64)
    wrong = np.isnan(values) | np.isposinf(values)
    if not values.size or wrong.any() or not np.isfinite(values).any(axis=-1).all():
        raise ValueError(f"{path}: not logits; give numbers below infinity, at least one of each row finite")
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
