"""The pair of p and q, and the draft's shape, that options name."""

from pathlib import Path
from typing import Any

import specsim


def pair_of(source: str, vocab_size: int, overlap: float) -> tuple[Any, Any]:
    """The target and the draft that `source` names."""
    from specsim.core.distributions import PAIR_KINDS, synthetic_pair

    if source in PAIR_KINDS:
        return synthetic_pair(source, vocab_size, overlap)
    if Path(source).is_dir():
        return specsim.open_trace(source), None
    if source == "ngram" or Path(source).is_file():
        return models_of(source)
    raise ValueError(
        f"source {source!r}: neither 'ngram', nor a synthetic kind ({', '.join(PAIR_KINDS)}), nor a file or "
        "folder"
    )


def models_of(source: str) -> tuple[Any, Any]:
    """The shipped pair, or the one in a file."""
    if source == "ngram":
        return specsim.default_pair()
    from specsim.models import load_pair

    return load_pair(Path(source))


def trace_of(path: Path | None) -> Any:
    """The trace in a folder, or the shipped one."""
    if path is None:
        from specsim.traces import default_trace

        return default_trace()
    return specsim.open_trace(path)


def draft_of(rule: str, gamma: int, widths: str | None, drawing: str | None) -> Any:
    """What to draft: a chain of `gamma`, or the tree with these widths."""
    from specsim.drafts import branching, chain
    from specsim.rules import get

    drawn = drawing or get(rule).draft_sampling[0]
    if widths is None:
        return chain(gamma, drawn)
    try:
        numbers = [int(width) for width in widths.split(",")]
    except ValueError:
        raise ValueError(f"tree: {widths!r} is not a list of whole numbers such as 4,2,1") from None
    return branching(*numbers, sampling=drawn)
