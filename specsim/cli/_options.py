"""Options that several commands share, and what they name: pairs of p and q, traces, drafts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import specsim
from specsim import models
from specsim.cli._app import WORDS
from specsim.core import _numbers
from specsim.core._parameters import check_parameters, read_options
from specsim.models import Pair

#: Of options that are numbers: integers such as 1e6 or 10M, and numbers such as 0.8 or 80%. What is wrong
#: with NaN and infinity the library says.
WHOLE = Parameter(converter=lambda _, tokens: _numbers.whole(tokens[0].value))
REAL = Parameter(converter=lambda _, tokens: _numbers.real(tokens[0].value))
Whole = Annotated[int | None, WHOLE]
Real = Annotated[float | None, REAL]
#: The help of an option that has none by its name.
HELP = {name: Parameter(help=text) for name, text in WORDS.items()}
#: An option without a value or a "no-" form, and one that may be repeated.
Flag = Annotated[bool, Parameter(negative="")]
Several = Annotated[list[str] | None, Parameter(negative="")]


def shard_of(text: str) -> tuple[int, int]:
    """Parse a shard: "2/8" is (2, 8)."""
    i, slash, n = text.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal()):
        raise ValueError(f"shard: {text!r} is not of the form i/n, such as 0/8")
    return int(i), int(n)


#: Steps that are drawn, where no other number is given.
STEPS = 100_000  # in options.toml too


def whole_numbers(name: str, text: str, example: str) -> list[int]:
    """The numbers that `text` has with commas between them. Raises ValueError for another text."""
    try:
        return [int(number) for number in text.split(",") if text]
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a list of whole numbers such as {example}") from None


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that have a value; the library has a default for the others."""
    return {name: value for name, value in options.items() if value is not None}


def settings_of(
    over: Sequence[str], read: Callable[[str, list[str]], list[Any]], example: str
) -> dict[str, list[Any]]:
    """The settings of --over and their values; `read` makes the values of "gamma=1,2" from its texts."""
    found = {}
    for text in over:
        name, equals, values = text.partition("=")
        if not (equals and name and values):
            raise ValueError(f"--over: {text!r} is not of the form setting=value,value, such as {example}")
        found[name] = read(name, values.split(","))
    if len(found) < len(over):
        raise ValueError(f"--over: {', '.join(over)}: give each setting once")
    return found


# What options name.

#: Drafted tokens of a chain, where no other number is given.
GAMMA = 5


def pair_of(
    name: str, vocab_size: int | None = None, overlap: float | None = None, *, default_size: int | None = None
) -> Pair:
    """The pair of that name, with `default_size` tokens if it is synthetic and nothing else is given. Raises
    ValueError for options that it does not have, and as `read_pair`."""
    from specsim.core.distributions import PAIR_KINDS

    kind, _, rest = name.partition(":")
    if vocab_size is None and kind in PAIR_KINDS and "vocab_size=" not in rest:
        vocab_size = default_size
    options = given({"vocab_size": vocab_size, "overlap": overlap})
    if options and kind not in PAIR_KINDS:
        option = next(iter(options)).replace("_", "-")
        raise ValueError(f"--{option} has no effect on {name!r}: only synthetic pairs have it")
    if options:
        name += (",", ":")[":" not in name] + ",".join(f"{key}={value!r}" for key, value in options.items())
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
    return min(GAMMA, len(pair.target) - 1) if getattr(pair.target, "ndim", 1) == 2 else GAMMA


def models_of(name: str) -> tuple[Any, Any]:
    target, draft = specsim.read_pair(name)
    if not isinstance(target, models.Model):
        raise ValueError(f"{name}: not a pair of models; give 'ngram' or a file of specsim.models.build_pair")
    return target, draft


def trace_of(path: Path | None) -> Any:
    """The trace in a folder, or a bundled one: that of the n-grams, or the one that the path names."""
    from specsim._named_pairs import TRACES

    name = "ngram-trace" if path is None else str(path)
    return specsim.traces.default_trace(TRACES[name]) if name in TRACES else specsim.open_trace(name)


def draft_of(pair: Pair, rule: str, gamma: int | None, widths: str | None, draft_sampling: str | None) -> Any:
    """What to draft: a chain of `gamma`, by default `gamma_for` the pair; the tree with these widths; or that
    of "dynamic:width=10,depth=6,nodes=60", each of them optional."""
    drawn = draft_sampling or specsim.rules.get(rule).draft_sampling[0]
    if widths is None:
        return models.chain(gamma_for(pair, gamma), drawn)
    if gamma is not None:
        raise ValueError("--gamma has no effect with --tree, which sets the depth; give only one")
    if widths.partition(":")[0] == "dynamic":
        if draft_sampling is not None:
            raise ValueError("--draft-sampling has no effect on a dynamic tree, of the most probable tokens")
        from specsim.simulation import methods

        _, colon, asked = widths.partition(":")
        parameters = [one for one in methods.get("eagle2").parameters if one.whole]
        readers = {one.name: _numbers.real for one in parameters}
        read = read_options("dynamic", asked, readers) if colon else {}
        values = check_parameters("dynamic", parameters, read)
        return models.DynamicTree(**{name: int(value) for name, value in values.items()})
    return models.branching(*whole_numbers("tree", widths, "4,2,1"), draft_sampling=drawn)
