"""The parts of a rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.core._files import read_table
from specsim.core._kernels import Kernel, Pointer, inner_kernel
from specsim.core._parameters import Parameter, Parametrised
from specsim.core._types import Floats, Row, StepLaw, Tokens
from specsim.models import Tree
from specsim.models._drafts.dynamic import Draft

#: What is said of the rules that come with specsim, by name.
RULES = read_table("rules")

#: The row of a model after the tokens of a step, as laws that look ahead read it.
RowAfter = Callable[[Tokens], Row]


def words(name: str) -> dict[str, Any]:
    """The name of a rule, and its citation, claims and parameters, if the table has them."""
    said = {"name": name, **RULES.get(name, {})}
    if "parameters" in said:
        said["parameters"] = tuple(Parameter(one, **about) for one, about in said["parameters"].items())
    if "draft_sampling" in said:
        said["draft_sampling"] = tuple(said["draft_sampling"])
    return said


def uniform_per_node(tree: Draft, vocab_size: int = 0) -> int:
    """Number of uniforms of most rules: one to test each drafted token, and one to draw the last token."""
    return tree.size + 1


@inner_kernel
def end_step(tokens, accepted, column, count, last):
    """Write of one step the number of accepted tokens and the token after them, and pad with -1."""
    tokens[count, column] = last
    tokens[count + 1 :, column] = -1
    accepted[column] = count


def with_part(loop: Kernel, part: Kernel, types: str) -> Kernel:
    """The row kernel that is `loop` with the kernel `part` as its first argument, called with `types`."""

    def verify(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
        loop(part, parents, draft_tokens, p, q, uniforms, values, tokens, accepted)

    return loop.bound(verify, Pointer(part, types))


@dataclass(frozen=True)
class FixedPair:
    """A rule for one fixed pair of pmfs: tables, and a kernel whose cost a step does not grow with V.

    Parameters
    ----------
    tables : callable
        `tables(p, q, tree, **values)` gives a tuple of arrays.
    kernel : callable
        `kernel(*tables, draft_uniforms, verify_uniforms, tokens, accepted)` draws drafts and verifies them.
        It fills int32 tokens[depth+1, steps], padded with -1, and int64 accepted[steps]. Uniforms are [count,
        steps]: one for each node to draw it, and `uniforms(tree)` to verify. With `count` it is
        `integers.draw_steps`.
    uniforms : callable
        uniforms(tree) gives the number of uniforms of a verification.
    acceptance : callable, optional
        `acceptance(p, q, tree, **values)` gives, for a chain, the probability [γ] that the i-th token is
        accepted, given that those before it were. None where it depends on which tokens these are.
    count : callable, optional
        `integers.count_steps`, for rules in integers.
    """

    tables: Callable[..., tuple[Any, ...]]
    kernel: Callable[..., Any]
    uniforms: Callable[[Tree], int] = uniform_per_node
    acceptance: Callable[..., Floats] | None = None
    count: Callable[..., None] | None = None


class Positions(NamedTuple):
    """A rule for chains, position by position of many steps, with rows from tables.

    `verify(going, place, context, tables, known, draft_uniforms[γ, S], verify_uniforms[γ+1, S], values,
    tokens[γ+1, S], accepted[S])` drafts and verifies the steps `going`, step s from position place[s] on,
    which rises along `going`. context[s] is where step s is in `tables`, see `_common/positions.py`. A step
    that comes to a context that is not known, or whose number is not below `known`, is set apart: the
    negative of the context before is left in context[s], and the position it has come to in place[s]. Returns
    how many steps were, and moves these to the front.

    `recovered(tables, first, end, values)` fills the weights of the recovered token, summed up, after the
    contexts from `first` on."""

    verify: Callable[..., int]
    recovered: Callable[..., None]


@dataclass(frozen=True)
class Rule(Parametrised):
    """A verification rule: its law, its kernels, and its claim.

    A lossless rule claims that its output has the target's distribution, on chains, or on any tree if
    `on_trees`, for drafts sampled by one of the methods `draft_sampling`. A rule with a `declared`
    distribution claims that every token follows it, on a chain.

    Parameters
    ----------
    name, citation : str
    draft_sampling : tuple of str
        The sampling methods for which the claim holds: "sampled", "without replacement", "top", "top and
        sample".
    law : callable
        `law(parents, tokens, p, q, **values)` gives, node by node of a drafted tree, the probability of
        stopping there and the pmf of the token that follows, in Fractions or floats as p and q are.
    rows : Kernel
        The row kernel, rows(parents[B, n], draft_tokens[B, n], p[B, n+1, V], q[B, m, V], uniforms[k, B],
        values[r], tokens[depth+1, B], accepted[B]). It fills its last two arguments; k = uniforms(tree, V).
    fixed_pair : FixedPair
        The same rule for one pair of pmfs.
    uniforms : callable
        uniforms(tree, vocab_size) gives the number of uniforms of the row kernel; by default one for each
        drafted token, and one for the last token.
    survival : callable, optional
        `survival(p, q, **values)` gives P(at least i are accepted | x_1 … x_i), i = 1 … γ, for a chain
        sampled from q, if the p and q [..., γ] of the drafted tokens themselves determine it. It must not
        fall with any p nor rise with any q, so that bounds on these bound it. None for rules that need whole
        rows, and for controls.
    parameters : tuple of Parameter
    declared : callable, optional
        `declared(p, q, position, **values)` gives the pmf of the token at `position` (from 0) given that the
        step got there. q is None for the bonus, unless the rule has `leaf_rows`. Of a rule that
        `looks_ahead` it is `declared(prefix, p, q, tree, **values)` after the emitted tokens `prefix`, where
        p(path) and q(path) give the rows after the tokens `path` of the step.
    declares : str
        The declared distribution in a few words.
    on_trees, many_drafts : bool
        The rule verifies trees; nothing but several drafts.
    distinct, leaf_rows, reads_draft : bool
        Siblings must have different tokens; the rule needs q after the last drafted token too; it depends on
        q.
    control, looks_ahead : bool
        The rule is wrong on purpose; what it declares of a token depends on rows ahead of it, so that it is
        proved and not audited.
    values : mapping
        Values of the parameters.
    positions : Positions, optional
        The row kernel for chains with rows from tables.
    """

    name: str
    citation: str
    law: Callable[..., StepLaw]
    rows: Kernel
    fixed_pair: FixedPair
    draft_sampling: tuple[str, ...] = ("sampled",)
    uniforms: Callable[[Draft, int], int] = uniform_per_node
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
    looks_ahead: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    positions: Positions | None = None

    @property
    def lossless(self) -> bool:
        return self.declared is None and not self.control

    @property
    def claim(self) -> str:
        """The drafts for which the rule is lossless, or the distribution that it declares."""
        if self.control:
            return "nothing: a negative control"
        if self.declared:
            return self.declares
        shape = "trees" if self.many_drafts else "chains and trees" if self.claimed_on_trees else "chains"
        return f"{', '.join(self.draft_sampling)} ({shape})"

    @property
    def claimed_on_trees(self) -> bool:
        """Whether the claim holds on trees; a declared distribution holds on chains only."""
        return self.on_trees and self.declared is None

    def num_rows(self, tree: Draft) -> int:
        """Number of rows of q that the rule reads."""
        return tree.size + 1 if self.leaf_rows else tree.num_rows

    def array(self) -> Floats:
        """The values of the parameters as the kernels take them."""
        return np.array(list(self.values.values()), dtype=np.float64)

    def check(self, tree: Draft) -> None:
        """Raise ValueError unless the rule verifies drafts of this shape and sampling method."""
        if not self.on_trees and not tree.is_chain:
            raise ValueError(f"{self.name} verifies a chain of drafted tokens, not a {tree}; draft a chain")
        if self.many_drafts and tree.is_chain:
            raise ValueError(
                f"{self.name} chooses between several drafts, and a chain is a single one; draft a tree, as "
                "branching(2, 2) (--tree 2,2), or take 'standard'"
            )
        if self.distinct and not tree.distinct:
            ways = " or ".join(map(repr, self.draft_sampling))
            raise ValueError(
                f"{self.name} forbids siblings with the same token, which {tree.draft_sampling!r} siblings "
                f"can have; sample them {ways}"
            )


def named(name: str, law: Callable[..., StepLaw], rows: Kernel, pair: FixedPair, **parts: Any) -> Rule:
    """The rule called `name`, with its `words`; `parts` are others of a `Rule`, as its citation without."""
    made: dict[str, Any] = {"law": law, "rows": rows, "fixed_pair": pair}
    return Rule(**words(name) | made | parts)
