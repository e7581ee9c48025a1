"""The pair of p and q, and the draft's shape, that options name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import specsim

if TYPE_CHECKING:
    from specsim.models import Pair

#: Drafted tokens of a chain, where no other number is given.
GAMMA = 5


def pair_of(
    name: str, vocab_size: int | None = None, overlap: float | None = None, *, default_size: int | None = None
) -> Pair:
    """The pair of that name. Raises ValueError for options that it does not have, and as `read_pair`.

    A synthetic pair has `default_size` tokens, if that is given and nothing else is."""
    from specsim.core.distributions import PAIR_KINDS

    kind, _, rest = name.partition(":")
    if vocab_size is None and kind in PAIR_KINDS and "vocab_size=" not in rest:
        vocab_size = default_size
    options = {"vocab_size": vocab_size, "overlap": overlap}
    given = {key: value for key, value in options.items() if value is not None}
    if given and kind not in PAIR_KINDS:
        option = next(iter(given)).replace("_", "-")
        raise ValueError(f"--{option} has no effect on {name!r}: only synthetic pairs have it")
    if given:
        name += (",", ":")[":" not in name] + ",".join(f"{key}={value!r}" for key, value in given.items())
    return specsim.read_pair(name)


def small_pair_of(name: str, command: str, **options: Any) -> Pair:
    """As `pair_of`, for commands that take no trace: raises ValueError for one, before models record it."""
    if not name.startswith("hf:"):
        pair = pair_of(name, **options)
        if pair.draft is not None:
            return pair
    raise ValueError(
        f"{name}: rows logged along a text, without the rows after other tokens; '{command}' takes two pmfs, "
        "such as zipf or mine.npz, or two models, such as ngram or a file of specsim.models.build_pair"
    )


def gamma_for(pair: Pair, gamma: int | None) -> int:
    """The drafted tokens of a chain: `gamma`, or as many as a trace logged, or 5 where rows allow it."""
    from specsim.traces._reader import Trace

    if gamma is not None:
        return gamma
    if isinstance(pair.target, Trace):
        return max(1, pair.target.gamma)
    if getattr(pair.target, "ndim", 1) == 2:
        return min(GAMMA, len(pair.target) - 1)
    return GAMMA


def models_of(name: str) -> tuple[Any, Any]:
    """The target and the draft of a pair of models."""
    from specsim.models import Model

    target, draft = specsim.read_pair(name)
    if not isinstance(target, Model):
        raise ValueError(
            f"{name}: not a pair of models; give 'ngram', or a file of specsim.models.build_pair"
        )
    return target, draft


def trace_of(path: Path | None) -> Any:
    """The trace in a folder, or a bundled one: that of the n-grams, or the one that the path names."""
    from specsim._named_pairs import TRACES
    from specsim.traces import default_trace

    name = "ngram-trace" if path is None else str(path)
    return default_trace(TRACES[name]) if name in TRACES else specsim.open_trace(name)


def draft_of(pair: Pair, rule: str, gamma: int | None, widths: str | None, draft_sampling: str | None) -> Any:
    """What to draft: a chain of `gamma`, by default `gamma_for` the pair, or the tree with these widths."""
    from specsim.models import branching, chain
    from specsim.rules import get

    drawn = draft_sampling or get(rule).draft_sampling[0]
    if widths is None:
        return chain(gamma_for(pair, gamma), drawn)
    if gamma is not None:
        raise ValueError("--gamma has no effect with --tree, which sets the depth; give only one")
    if widths.partition(":")[0] == "dynamic":
        if draft_sampling is not None:
            raise ValueError("--draft-sampling has no effect on a dynamic tree, of the most probable tokens")
        return dynamic_tree(widths)
    try:
        numbers = [int(width) for width in widths.split(",")]
    except ValueError:
        raise ValueError(f"tree: {widths!r} is not a list of whole numbers such as 4,2,1") from None
    return branching(*numbers, draft_sampling=drawn)


def dynamic_tree(text: str) -> Any:
    """The tree of "dynamic:width=10,depth=6,nodes=60", each of them optional."""
    from specsim.core._numbers import real
    from specsim.core._parameters import check_parameters, read_options
    from specsim.models import DynamicTree
    from specsim.simulation.methods import get

    _, colon, given = text.partition(":")
    parameters = [one for one in get("eagle2").parameters if one.whole]
    read = read_options("dynamic", given, {one.name: real for one in parameters}) if colon else {}
    values = check_parameters("dynamic", parameters, read)
    return DynamicTree(**{name: int(value) for name, value in values.items()})
