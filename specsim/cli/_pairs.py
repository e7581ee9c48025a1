"""The pair of p and q, and the draft's shape, that options name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import specsim

if TYPE_CHECKING:
    from specsim.models import Pair

#: Drafted tokens of a chain, where no other number is given.
GAMMA = 5


def pair_of(name: str, vocab_size: int | None = None, overlap: float | None = None) -> Pair:
    """The pair of that name. Raises ValueError for options that it does not have, and as `read_pair`."""
    from specsim.core.distributions import PAIR_KINDS

    options = {"vocab_size": vocab_size, "overlap": overlap}
    given = {key: value for key, value in options.items() if value is not None}
    if given and name.partition(":")[0] not in PAIR_KINDS:
        option = next(iter(given)).replace("_", "-")
        raise ValueError(f"--{option} has no effect on {name!r}: it belongs to synthetic pairs")
    if given:
        name += (",", ":")[":" not in name] + ",".join(f"{key}={value!r}" for key, value in given.items())
    return specsim.read_pair(name)


def models_of(name: str) -> tuple[Any, Any]:
    """The target and the draft of a pair of models."""
    from specsim.models import Model

    target, draft = specsim.read_pair(name)
    if not isinstance(target, Model):
        raise ValueError(f"{name}: not a pair of models; give 'ngram', or a file of 'specsim models build'")
    return target, draft


def trace_of(path: Path | None) -> Any:
    """The trace in a folder, or the shipped one."""
    if path is None:
        from specsim.traces import default_trace

        return default_trace()
    return specsim.open_trace(path)


def draft_of(rule: str, gamma: int | None, widths: str | None, drawing: str | None) -> Any:
    """What to draft: a chain of `gamma`, or the tree with these widths."""
    from specsim.drafts import branching, chain
    from specsim.rules import get

    drawn = drawing or get(rule).draft_sampling[0]
    if widths is None:
        return chain(GAMMA if gamma is None else gamma, drawn)
    if gamma is not None:
        raise ValueError("--gamma has no effect on a tree, which is as deep as --tree says; give one")
    try:
        numbers = [int(width) for width in widths.split(",")]
    except ValueError:
        raise ValueError(f"tree: {widths!r} is not a list of whole numbers such as 4,2,1") from None
    return branching(*numbers, sampling=drawn)
