"""What a rule is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel
from specsim.core._types import Floats, Row
from specsim.drafts import Draft, Tree


@dataclass(frozen=True)
class Parameter:
    """A number that a rule can be given: its default, and the range that it must lie in.

    The range is [low, high], without `low` itself if `above_low`; `whole` asks for an integer.
    """

    name: str
    default: float
    low: float
    high: float
    meaning: str
    above_low: bool = False
    whole: bool = False

    @property
    def range(self) -> str:
        return (
            f"{'(' if self.above_low else '['}{self.low:g}, {self.high:g}{']' if self.high < np.inf else ')'}"
        )

    def check(self, rule: str, value: Any) -> float:
        """`value` as a float. Raises ValueError naming rule, parameter and range."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{rule}: parameter {self.name} = {value!r} is not a number") from None
        inside = self.low < number if self.above_low else self.low <= number
        if not (inside and number <= self.high and np.isfinite(number)):
            raise ValueError(f"{rule}: parameter {self.name} = {value} is outside {self.range}")
        if self.whole and number != int(number):
            raise ValueError(f"{rule}: parameter {self.name} = {value} is not a whole number")
        return number


def check_parameters(
    owner: str, parameters: Sequence[Parameter], values: Mapping[str, float]
) -> dict[str, float]:
    """A number for each of the `parameters` of `owner`: the one in `values`, or its default.

    Raises ValueError naming `owner` and the parameter, for one that it does not have or that is out of range.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for name in values:
        if name not in known:
            raise ValueError(
                f"{owner}: no parameter {name!r}; "
                + (f"it has {', '.join(known)}" if known else "it has none")
            )
    return {
        name: parameter.check(owner, values.get(name, parameter.default)) for name, parameter in known.items()
    }


def parse_parameters(owner: str, given: str) -> dict[str, float]:
    """The numbers in "lenience=0.5,…", as they stand behind a name and a colon. Raises ValueError naming `owner`."""
    values: dict[str, float] = {}
    for part in given.split(","):
        parameter, _, value = part.partition("=")
        if parameter.strip() in values:
            raise ValueError(f"{owner}: parameter {parameter.strip()} is given twice")
        try:
            values[parameter.strip()] = float(value)
        except ValueError:
            raise ValueError(
                f"{owner}: {part!r} is not a parameter; write {owner}:parameter=number, separated by commas"
            ) from None
    return values


def format_spec(name: str, values: Mapping[str, float]) -> str:
    """The name with its numbers behind a colon, as `parse_parameters` reads them back."""
    given = ",".join(f"{parameter}={_shortest(value)}" for parameter, value in values.items())
    return f"{name}:{given}" if given else name


def _shortest(value: float) -> str:
    """The shortest way to write a number that reads back the same: 1 rather than 1.0."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


@dataclass(frozen=True)
class FixedPair:
    """A rule made fast for one pair of pmfs: tables built once, then a kernel whose cost does not grow with V.

    `tables(p, q, tree, **values)` gives a tuple of arrays; `kernel(*tables, draft_uniforms, verify_uniforms,
    tokens, accepted)` draws the draft and verifies it: it fills int32 tokens[depth+1, steps], padded with -1,
    and int64 accepted[steps]. Both kinds of uniforms come as [count, steps]: one to draw each node, and
    `uniforms(tree)` to verify.
    """

    tables: Callable[..., tuple[Any, ...]]
    kernel: Kernel
    uniforms: Callable[[Tree], int]


@dataclass(frozen=True)
class Rule:
    """A verification rule: its law, its kernels, and what is claimed of it.

    `law(parents, tokens, p, q, **values)`: node by node of a draft tree, the probability of stopping there and the
    pmf of the token that follows, in whatever arithmetic p and q are written (Fraction or float).
    `rows(parents[B, n], draft_tokens[B, n], p[B, n+1, V], q[B, m, V], uniforms[k, B], values[r], tokens[depth+1, B],
    accepted[B])` is the row kernel, which fills its last two arguments; k = `uniforms(tree, V)`.
    `fixed_pair` is the same rule for one pair of pmfs.
    `survival(p, q, **values)`: P(at least i are accepted | x_1 … x_i), i = 1 … γ, for a chain sampled from q, where p and q
    [..., γ] of the drafted tokens themselves tell it; it rises with every p and falls with every q (weakly), so that bounds
    on these bound it. None for rules that need whole rows, and for controls.

    The claim holds for drafts drawn in the ways `draft_sampling`: on a chain, or on any tree if `on_trees`, the rule is
    lossless; or, if it has a `declared` law, every token follows that, on a chain. `declared(p, q, position, **values)`: the
    pmf of the token at `position` (from 0) given that the step got there; q is None for the bonus, unless the
    rule needs the draft's row there too (`leaf_rows`); `declares` says it in a few words. `control` marks rules that are wrong on purpose.
    """

    name: str
    citation: str
    draft_sampling: tuple[str, ...]
    law: Callable[..., tuple[list[Any], list[Any]]]
    rows: Kernel
    uniforms: Callable[[Draft, int], int]
    fixed_pair: FixedPair
    survival: Callable[..., Floats] | None = None
    parameters: tuple[Parameter, ...] = ()
    declared: Callable[..., Row] | None = None
    declares: str = ""
    on_trees: bool = False
    many_drafts: bool = False
    distinct: bool = False
    leaf_rows: bool = False
    reads_draft: bool = True
    control: bool = False
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = check_parameters(self.name, self.parameters, self.values)
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        """The name, with what parameters it was given; `rules.get` reads it back."""
        return format_spec(self.name, self.values)

    @property
    def lossless(self) -> bool:
        return self.declared is None and not self.control

    @property
    def claim(self) -> str:
        """What it is lossless for, or the law that it declares."""
        if self.control:
            return "nothing: a negative control"
        if self.declared:
            return self.declares
        shape = "trees" if self.many_drafts else "chains and trees" if self.claimed_on_trees else "chains"
        return f"{', '.join(self.draft_sampling)} ({shape})"

    def with_parameters(self, **values: float) -> Rule:
        """The same rule with these parameters. Raises ValueError for an unknown one, or out of range."""
        return replace(self, values={**self.values, **values})

    @property
    def claimed_on_trees(self) -> bool:
        """Whether the claim holds on trees; what a lossy rule declares depends on siblings, so only on chains."""
        return self.on_trees and self.declared is None

    def num_rows(self, tree: Draft) -> int:
        """Rows of q that the rule reads."""
        return tree.size + 1 if self.leaf_rows else tree.num_rows

    def array(self) -> Floats:
        """The parameters as the kernels take them."""
        return np.array(list(self.values.values()), dtype=np.float64)

    def check(self, tree: Draft) -> None:
        """Raise ValueError unless the rule can verify drafts of this shape, drawn in this way."""
        if not self.on_trees and not tree.is_chain:
            raise ValueError(f"{self.name} verifies a chain of drafted tokens, not a {tree}")
        if self.many_drafts and tree.is_chain:
            raise ValueError(
                f"{self.name} chooses between several drafts, and a chain is a single one; hand over a tree with "
                "at least 2 siblings somewhere, such as drafts.branching(2, 2) or --tree 2,2, or take 'standard'"
            )
        if self.distinct and not tree.distinct:
            raise ValueError(
                f"{self.name} forbids siblings with the same token, which {tree.sampling!r} siblings can have; "
                f"sample them {' or '.join(map(repr, self.draft_sampling))}"
            )
