"""The verification rules, one file each, and those that are wrong on purpose.

A rule turns a drafted tree of tokens, with the target's and the draft's rows at its nodes, into the tokens
that a step emits. Rules are lossless for one draft (`chain`) or for several (`tree`), or follow a declared
distribution instead of the target's (`lossy`); `controls` are wrong on purpose, and every proof and test must
detect them. `get("standard")` returns the `RULE` of the file `_chain/standard.py`; `_controls.py` has the
controls. To add a rule, add a file: see docs/adding-a-rule.md.

`_common` has what rules share: `base` defines a rule, `tokenwise` and `nodewise` decide along a chain and
down a tree, `deferral` follows the target or the draft at each position, `fixed_pairs` has the tables of a
fixed pair."""

import importlib
from functools import cache
from pathlib import Path

from specsim.core._files import modules_beside
from specsim.core._kernels import kernel
from specsim.core._parameters import Parameter, split_name
from specsim.core._types import check_known, checked
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, Rule

__all__ = ["FixedPair", "Parameter", "Rule", "get", "kernel", "names", "tokenwise"]

__dir__ = __all__.copy  # for completion

#: The groups of rules, and what is claimed of each.
GROUPS: dict[str, str] = {
    "chain": "a single draft, lossless",
    "tree": "many drafts and trees, lossless",
    "lossy": "lossy, with a declared distribution",
    "controls": "wrong on purpose",
}


def names(*groups: str) -> list[str]:
    """List the names of the rules, which are those of their files.

    Parameters
    ----------
    *groups : str
        Keys of `GROUPS`; by default all.

    Returns
    -------
    list of str
        Group by group, sorted.

    Examples
    --------
    >>> "standard" in names("chain")
    True
    """
    return [name for group in groups or GROUPS for name in _members(group)]


@cache
def _members(group: str) -> tuple[str, ...]:
    if group == "controls":
        return tuple(_wrong())
    return tuple(modules_beside(Path(__file__).with_name(f"_{group}") / "__init__.py"))


def _wrong() -> dict[str, Rule]:
    """The controls by name, whose file imports many rules."""
    return importlib.import_module(f"{__name__}._controls").RULES


def group_of(name: str) -> str:
    """The group of a rule, without parameters in its name."""
    return next(group for group in GROUPS if name in _members(group))


@checked
def get(name: str | Rule) -> Rule:
    """Give the rule of a name.

    Parameters
    ----------
    name : str or Rule
        A name, with parameters after a colon: "lenience:lenience=0.5". A `Rule` is returned itself.

    Returns
    -------
    Rule

    Raises
    ------
    TypeError
        If `name` is neither.
    ValueError
        For an unknown rule, with the most similar name, and for a parameter that is unknown or out of range.

    Examples
    --------
    >>> get("lenience:lenience=0.5").values
    {'lenience': 0.5}
    """
    if isinstance(name, Rule):
        return name
    name, given = split_name(name, names())
    check_known("rule", name, names())
    if (group := group_of(name)) == "controls":
        return _wrong()[name].given(given)
    rule: Rule = importlib.import_module(f"{__name__}._{group}.{name}").RULE
    return rule.given(given)


def registered_spec(rule: str | Rule) -> str:
    """The name and parameters from which `get` makes the same rule, also in another process.

    Raises ValueError for a `Rule` that no file of this package defines.

    >>> registered_spec(get("lenience").with_parameters(lenience=0.5))
    'lenience:lenience=0.5'
    """
    chosen = get(rule)
    if chosen.name not in names() or get(str(chosen)) != chosen:
        raise ValueError(
            f"rule: {chosen.name!r} is not in the registry, where other processes and runs look for it; "
            "write a file in specsim/rules (docs/adding-a-rule.md), or run it on threads, without "
            "checkpoint and shard"
        )
    return str(chosen)
