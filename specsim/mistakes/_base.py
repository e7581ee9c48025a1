"""The mistake: a verifier or decoder with a known defect, its description and its law."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from specsim.core._files import read_table
from specsim.core._parameters import Parameter, Parametrised
from specsim.core._types import StepLaw
from specsim.models._drafts.dynamic import Draft


@dataclass(frozen=True)
class Mistake(Parametrised):
    """A known defect of a verifier, of a decoder, or of a serving engine, and the distribution of its steps.

    `mechanism` describes the defect in one sentence, `threads` lists the reports. A verifier has the first of
    these, a decoder the second; a mistake of an engine around its verification has neither::

        verify(draft_tokens int[B, γ], p float[B, γ+1, V], q float[B, γ, V], rng, **values) -> int[B, γ+1]
        decode(target, draft, prompt, max_new_tokens, eos, rng, **values) -> list of new tokens

    `law(parents, tokens, p, q, **values)`, as `specsim.rules.Rule.law` on a chain, gives the probability of
    stopping at each node given the drafted tokens, and the pmf of the next token, in Fractions or floats. It
    is None where single steps are correct and the defect is between rows, calls or steps. For a decoder q is
    the draft's row, and `drafting(q, **values)` the pmf that its tokens are drawn from.

    `values` are the values of the `parameters`; ValueError for an unknown parameter or a value out of range.
    """

    name: str
    family: str
    mechanism: str
    threads: tuple[str, ...] = ()
    verify: Callable[..., Any] | None = None
    decode: Callable[..., Any] | None = None
    law: Callable[..., StepLaw] | None = None
    drafting: Callable[..., Any] | None = None
    parameters: tuple[Parameter, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verify is not None and self.decode is not None:
            raise ValueError(f"{self.name}: has verify and decode; give one of them")
        super().__post_init__()

    def __hash__(self) -> int:  # dataclass's own fails on `values`, a mapping
        return hash((self.name, *self.values.items()))

    @property
    def function(self) -> Callable[..., Any]:
        """`verify` or `decode`, with the parameters filled in."""
        if (function := self.verify or self.decode) is None:
            raise ValueError(f"{self.name}: a mistake of engines, without a function; take another")
        return partial(function, **self.values)

    def num_rows(self, tree: Draft) -> int:
        """Rows of q that the law reads, for `specsim.theory._enumeration.step_law`."""
        return tree.num_rows


#: The mistakes "of verification" and "of serving", family by family: the sentence of each, then its reports.
CATALOGUE = read_table("mistakes")
_PARAMETERS = {
    mistake: tuple(Parameter(name, **about) for name, about in members.items())
    for mistake, members in CATALOGUE.pop("parameters").items()
}
_ABOUT = {
    name: (family, says, tuple(reports))
    for families in CATALOGUE.values()
    for family, members in families.items()
    for name, (says, *reports) in members.items()
}


def named(name: str, **how: Any) -> Mistake:
    """The mistake of the catalogue called `name`."""
    return Mistake(name, *_ABOUT[name], parameters=_PARAMETERS.get(name, ()), **how)
