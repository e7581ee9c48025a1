"""Planting: distributions drawn at random, and checkpoints that have them."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._files import check_new_folder, make_folder, sha256_of, write_text
from specsim.core._json import sealed
from specsim.core._provenance import specsim_version
from specsim.core._streams import RandomSource, root_of
from specsim.core._tensors import write_arrays
from specsim.core._types import check_between, check_choice, check_count, checked
from specsim.engines._planted import folder
from specsim.engines._planted.architectures import ARCHITECTURES, HEADS, OWN, build
from specsim.engines._planted.checkpoints import GGUF, WRITERS, check_installed
from specsim.engines._planted.law import MOST_ROWS, Memory, TableLogits, digest_of, draw_pair, law_arrays
from specsim.engines._planted.requests import Sampling

MOST_WORDS, MOST_OPENERS, MOST_OFFSETS = 131_072, 1024, 8
#: With heads: llama.cpp's draft from the 10 most probable ids, and the contexts of more words make no table,
#: without which several tokens may be the most probable ones.
WORDS_OF_HEADS = 9, 31


@checked
def plant(
    out: str | Path,
    *,
    order: int | None = None,
    offsets: Sequence[int] | None = None,
    openers: int = 0,
    vocab_size: int | None = None,
    kind: str = "zipf",
    overlap: float = 0.6,
    context: int = 2048,
    formats: Sequence[str] | None = None,
    architecture: str = "llama",
    heads: str | None = None,
    generation_config: Mapping[str, float] | None = None,
    rng: RandomSource = None,
) -> folder.Planted:
    """Make a target and a draft, real transformers with known next-token distributions.

    The distributions are drawn at random, with logits that half precision holds exactly. They are given as
    tables while there are at most 1024 contexts, else as sums of what each token that is read contributes.
    The weights are computed from the distributions and hold in float32, float16 and bfloat16.

    Parameters
    ----------
    out : path
        A new or empty folder.
    order : int, optional
        The distributions read the last `order` tokens, 0 to 8; by default 2, or 1 of
        gated-delta and mamba2.
    offsets : sequence of int, optional
        Instead of `order`: distances of the tokens that are read, at least 1, such as (1, 17, 64).
    openers : int
        Tokens that may begin a prompt: one of them does, and is read to the end of the text; 0, or 2 to 1024.
    vocab_size : int, optional
        Vocabulary size without end-of-text and openers, which have the ids above, 2 to 131072; by default 8,
        or 12 with `heads`, which need 9 to 31.
    kind : str
        The shape of the rows: a kind of `specsim.distributions.synthetic_pair`.
    overlap : float
        Σ min(p, q) of target and draft, up to the rounding of logits: from 0, disjoint, to 1, equal. Of
        distributions that are sums it is the mean over contexts.
    context : int
        Maximum sequence length.
    formats : sequence of {"hf", "gguf"}, optional
        Hugging Face transformers, the default, and llama.cpp, which needs the package gguf, the default with
        `heads` that it has.
    architecture : {"llama", "sliding-window", "moe", "short-conv", "gated-delta", "mamba2", "hybrid"}
        Of the checkpoints. In a window, the last token that is read is the oldest one. The newest token
        chooses one of 4 experts, each with a distribution. A state remembers, however long ago it was, what
        followed the last token like the newest one, or in mamba2 the last word with an even number.
    heads : {"mtp", "eagle", "eagle3", "dflash", "dspark"}, optional
        Give the target a head, which drafts from its hidden states, in place of the draft. That of
        multi-token prediction (mtp) is in the target, and the others have checkpoints of their own. The
        architecture is gated-delta, but for eagle; or for mtp, eagle and eagle3 llama, which then reads 2
        tokens or more.
    generation_config : mapping, optional
        Of temperature, top_k, top_p and repetition_penalty, values that the checkpoints have in their own
        configuration: some engines take them where a request has none.
    rng : int, Generator, SeedSequence or None
        Source of the distributions.

    Returns
    -------
    Planted

    Raises
    ------
    FileExistsError
        If the folder is not empty.
    ValueError, TypeError
        For arguments outside their ranges, a context that is too short for the distribution or in which
        attention cannot tell positions apart, or a format whose package is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pair = plant(f"{folder}/pair", order=1, vocab_size=4, context=64, rng=1)
    >>> pair.target.rows([[0], [3]]).round(3)  # the last of the 5 ids is end-of-text
    array([[0.041, 0.153, 0.686, 0.119, 0.   ],
           [0.158, 0.707, 0.084, 0.051, 0.   ]])
    >>> pair.decode([0, 3, 1])
    ' a d b'
    """
    check_choice("architecture", architecture, ARCHITECTURES)
    made_as = ARCHITECTURES[architecture]
    if order is None and offsets is None:
        order = 2 if made_as.reach is None else 1
    read = _offsets(order, offsets)
    if (made_as.memory or made_as.experts) and 1 not in read:
        raise ValueError(f"offsets: {read} lack the newest token, which {architecture} needs; add 1")
    if architecture == "sliding-window" and max(read, default=0) < 2:
        raise ValueError(f"offsets: {read} have no oldest token of a window; add one, of at least 2")
    if architecture == "sliding-window" and openers:
        raise ValueError(f"openers: {openers} are read to the end, and a window moves on; give 0")
    if made_as.reach is not None and (openers or max(read, default=0) > made_as.reach):
        raise ValueError(
            f"architecture: {architecture} reads offsets up to {made_as.reach} and no opener; give 'hybrid'"
        )
    if heads is not None:
        check_choice("heads", heads, HEADS)
        check_choice(f"heads {heads}: architecture", architecture, HEADS[heads])
        if read != tuple(range(1, len(read) + 1)) or not (read[1:] or made_as.memory):
            raise ValueError(f"offsets: {read} leave out one of the last tokens, and heads read 2; give 1,2")
    usual, least, most = (12, *WORDS_OF_HEADS) if heads else (8, 2, MOST_WORDS)
    words = check_count("vocab_size", usual if vocab_size is None else vocab_size, least, most)
    openers = check_count("openers", openers, 0, MOST_OPENERS)
    if openers == 1:
        raise ValueError("openers: 1 has no other to differ from; give 0, or at least 2")
    context = check_count("context", context)
    check_between("overlap", overlap, 0, 1, "Σ min(p, q)")
    usual_format = HEADS[heads][architecture] if heads else "hf"
    chosen = list(dict.fromkeys([usual_format] if formats is None else formats))
    for format in chosen:
        check_choice("format", format, folder.FORMATS)
    if not chosen:
        raise ValueError(f"format: the list is empty; choose from {', '.join(folder.FORMATS)}")
    if "gguf" in chosen:
        check_choice("format gguf: architecture", architecture, GGUF)
        if heads and usual_format == "hf":
            raise ValueError(f"format: gguf has no head {heads} of {architecture}; give hf")
        check_installed()
    defaults: dict[str, Any] = dict(generation_config or {})
    Sampling(defaults=tuple(defaults.items()), **defaults)  # raises for other names and values
    check_new_folder(out)  # before the distributions are drawn, which may take long
    root = root_of(rng)
    drawing, sampling = np.random.default_rng(root).spawn(2)
    memory = Memory(made_as.memory, words) if made_as.memory else None
    laws = draw_pair(words, read, openers, kind, float(overlap), drawing, memory, made_as.experts)
    if heads and not isinstance(laws[0].logits, TableLogits):
        needs = f"heads: {heads} needs a table of at most {MOST_ROWS} contexts"
        raise ValueError(f"{needs}; give a smaller vocab_size, or read fewer tokens")
    models = folder.models_of(heads)
    checkpoints = [build(law, context, architecture, heads if law is laws[0] else None) for law in laws]
    if heads in OWN:
        checkpoints.append(OWN[heads](laws[0], context))
    place = make_folder(out)
    write_arrays(place / folder.LAWS, law_arrays(laws))
    spelling = folder.Spelling(words, openers)
    for format in chosen:
        for model, checkpoint in zip(models, checkpoints, strict=True):
            checkpoint.defaults.update(defaults)
            WRITERS[format](place / folder.FORMATS[format].format(model), checkpoint, spelling)
    alpha, alpha_over = folder.mean_overlap(*laws, sampling)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    packages = ["numpy", "safetensors", *(["gguf"] if "gguf" in chosen else [])]
    content = {
        "format": folder.FORMAT,
        "version": folder.VERSION,
        "digest": digest_of(laws, (checkpoint.tensors for checkpoint in checkpoints)),
        "seed": root,
        "parameters": {
            "offsets": read,
            "openers": openers,
            "vocab_size": words,
            "kind": kind,
            "overlap": float(overlap),
            "architecture": architecture,
            **({"heads": heads} if heads else {}),
            **({"generation_config": defaults} if defaults else {}),
        },
        "context": context,
        "alpha": alpha,
        "alpha_over": alpha_over,
        "formats": chosen,
        "files": {path.relative_to(place).as_posix(): sha256_of(path) for path in files},
        "versions": {"specsim": specsim_version(), **{name: version(name) for name in packages}},
    }
    write_text(place / folder.GUIDE, guide(context, words, chosen, heads))
    write_text(place / folder.MANIFEST, json.dumps(sealed(content), indent=1) + "\n")
    return folder.open_planted(place)


def _offsets(order: int | None, offsets: Sequence[int] | None) -> tuple[int, ...]:
    if offsets is None:
        return tuple(range(1, 1 + check_count("order", order, 0, MOST_OFFSETS)))
    if order is not None:
        raise ValueError("order and offsets: give one of them; order N means offsets 1 … N")
    read = tuple(check_count("offsets", offset) for offset in offsets)
    if list(read) != sorted(set(read)):
        raise ValueError(f"offsets: {read} do not ascend; give each distance once, the smallest first")
    check_count("offsets: their number", len(read), 0, MOST_OFFSETS)
    return read


def guide(context: int, words: int, formats: Sequence[str], heads: str | None = None) -> str:
    """The text of `SERVE.md`: what to type to serve the checkpoints, for each of their formats."""
    from jinja2 import Template

    text = Path(__file__).with_name("serve.md.j2").read_text(encoding="utf-8")
    return Template(text).render(context=context, words=words, formats=formats, heads=heads)
