"""The verification rules, one file each.

A rule turns a drafted tree of tokens, with the target's and the draft's rows at its nodes, into the tokens that a
step emits. `chain/` holds the lossless rules for a single draft, `tree/` those for several, `lossy/` the rules that
declare another law than the target's, `controls/` rules that are wrong on purpose, which every proof and test must
catch. `get("standard")` returns the `RULE` of `chain/standard.py`; adding a rule is adding a file.

What rules share: `anatomy.py` says what one is made of, `token_by_token.py` and `top_down.py` walk along a chain
and down a tree, `deferral.py` follows the target or the draft, `fixed_pairs.py` has the tables of a fixed pair.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from specsim.core._registry import nearest
from specsim.rules._common.base import FixedPair, Parameter, Rule, parse_parameters

__all__ = ["GROUPS", "FixedPair", "Parameter", "Rule", "get", "group_of", "names", "registered_spec"]

#: The folders, and what is claimed of the rules in them.
GROUPS: dict[str, str] = {
    "chain": "a single draft, lossless",
    "tree": "many drafts and trees, lossless",
    "lossy": "lossy, with a declared law",
    "controls": "wrong on purpose",
}


def names(*groups: str) -> list[str]:
    """The names of all rules, or of those in `groups`, read off the files; group by group, alphabetically.

    >>> "standard" in names("chain")
    True
    """
    return [name for group in groups or GROUPS for name in _files(group)]


@cache
def _files(group: str) -> tuple[str, ...]:
    """The names in one folder, read off it once."""
    return tuple(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / f"_{group}")]))


def group_of(name: str) -> str:
    """The folder of the rule called `name`."""
    return next(group for group in GROUPS if name in names(group))


def get(name: str | Rule) -> Rule:
    """The rule called `name`, with parameters if they follow a colon: "lenience:lenience=0.5". A `Rule` is itself.

    Raises ValueError, with the nearest name, for a rule that does not exist; naming rule, parameter and range
    for a parameter that is unknown or out of range.

    >>> get("lenience:lenience=0.5").values
    {'lenience': 0.5}
    """
    if isinstance(name, Rule):
        return name
    if not isinstance(name, str):
        raise TypeError(f"rule: expected a name such as 'standard', got {type(name).__name__}")
    name, colon, given = name.partition(":")
    if name not in names():
        near = nearest(name, names())
        raise ValueError(f"unknown rule {name!r}; did you mean {near!r}? Rules: {', '.join(names())}")
    rule: Rule = importlib.import_module(f"{__name__}._{group_of(name)}.{name}").RULE
    return rule.with_parameters(**parse_parameters(name, given)) if colon else rule


def registered_spec(rule: str | Rule) -> str:
    """The rule as `get` reads it back, here or in another process.

    Raises ValueError for a `Rule` that no file of this package defines, and as `get`.

    >>> registered_spec(get("lenience").with_parameters(lenience=0.5))
    'lenience:lenience=0.5'
    """
    chosen = get(rule)
    if chosen.name not in names() or get(str(chosen)) != chosen:
        raise ValueError(
            f"rule: {chosen.name!r} is not in the registry, where other processes and later runs look for it; write it as a "
            "file in specsim/rules (docs/adding-a-rule.md), or run it on threads, without checkpoint and shard"
        )
    return str(chosen)
