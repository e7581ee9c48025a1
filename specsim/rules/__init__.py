"""The verification rules, one file each.

A rule turns a drafted tree of tokens, with the target's and the draft's rows at its nodes, into the tokens
that a step emits. `get("standard")` returns the `Rule` of `specsim/rules/standard.py`; adding a rule is adding
a file that ends in a `RULE`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.jit import Kernel

__all__ = ["FixedPair", "Rule", "Test", "Walk", "get", "names"]


@dataclass(frozen=True)
class Test:
    """One accept test: was `token`, drafted at `position`, let through by the uniform `u`?"""

    __test__ = False  # not a test case, whatever pytest makes of the name

    position: int
    token: int
    p: float
    q: float
    u: float
    accepted: bool


@dataclass(frozen=True)
class Walk:
    """One step of a rule, told number by number: the tests made, and how the last token was drawn."""

    tests: tuple[Test, ...]
    source: str
    u: float
    token: int

    @property
    def num_accepted(self) -> int:
        return sum(test.accepted for test in self.tests)

    @property
    def tokens(self) -> list[int]:
        return [test.token for test in self.tests if test.accepted] + [self.token]


@dataclass(frozen=True)
class FixedPair:
    """A rule made fast for one pair of pmfs: tables built once, then a kernel of constant cost per step.

    `tables(p, q)` gives a tuple of arrays; `kernel(*tables, draft_uniforms, verify_uniforms, tokens,
    accepted)` fills int32 tokens[γ+1, steps], padded with -1, and int64 accepted[steps]. `walk(p, q,
    draft_uniforms, verify_uniforms)` is one step in plain Python, from its own uniforms: (drafted tokens, walk).
    """

    tables: Callable[[Any, Any], tuple[Any, ...]]
    kernel: Kernel
    walk: Callable[[Any, Any, Sequence[float], Sequence[float]], tuple[list[int], Walk]]


@dataclass(frozen=True)
class Rule:
    """A verification rule: its law, its kernels, and what is claimed of it.

    `law(parents, tokens, p, q)`: node by node of a draft tree, the probability of stopping there and the pmf
    of the token that follows, in whatever arithmetic p and q are written (Fraction or float).
    `rows(draft_tokens[B, γ], p[B, γ+1, V], q[B, γ, V], uniforms[n, B], tokens[γ+1, B], accepted[B])`: the row
    kernel, which fills its last two arguments; `walk(draft_tokens, p, q, uniforms)` is its plain twin for one
    step. `uniforms(γ)` is the number n of uniforms that a step needs.
    """

    name: str
    citation: str
    lossless_for: tuple[str, ...]
    law: Callable[..., Any]
    rows: Kernel
    walk: Callable[..., Walk]
    uniforms: Callable[[int], int]
    fixed_pair: FixedPair


def names() -> list[str]:
    """The names of all rules, alphabetically, read off the files beside this one.

    >>> "standard" in names()
    True
    """
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def get(name: str) -> Rule:
    """The rule called `name`. Raises ValueError, with the nearest name, for one that does not exist."""
    if not isinstance(name, str):
        raise TypeError(f"rule: expected a name such as 'standard', got {type(name).__name__}")
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown rule {name!r}; did you mean {near!r}? Rules: {', '.join(names())}")
    rule: Rule = importlib.import_module(f"{__name__}.{name}").RULE
    return rule
