"""The parts of a drafting system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specsim.core._parameters import Parameter, Parametrised
from specsim.core.distributions import check_rows
from specsim.models import LookaheadDecoding, Model, Pair, PromptLookup
from specsim.models._drafts.dynamic import Draft
from specsim.traces._reader import Trace


@dataclass(frozen=True)
class Drafting:
    """What a system drafts on one pair.

    Parameters
    ----------
    pair : Pair
        The target, and the draft as the system has it.
    shape : Draft
        The shape of a step's draft, and how it is drawn.
    passes : tuple of int
        Tokens of each sequence that the drafter computes in each of its passes of a step, one after another.
    size : float
        The parameters that such a pass uses, as a share of the target's.
    beside : int
        Tokens that the target's pass computes besides the drafted ones and the text's last.
    """

    pair: Pair
    shape: Draft
    passes: tuple[int, ...]
    size: float
    beside: int = 0


@dataclass(frozen=True)
class Method(Parametrised):
    """A drafting system.

    Parameters
    ----------
    name, title, citation : str
    rule : str
        The rule that verifies its drafts, as `specsim.rules.get` reads it.
    modelled : str
        What is modelled, in a sentence.
    left_out : str
        What is not.
    make : callable
        `make(pair, **values)` gives the `Drafting` on a pair.
    parameters : tuple of Parameter
        One of them is `size`, from which the size of the drafter follows.
    values : mapping
        Values of the parameters.
    """

    name: str
    title: str
    citation: str
    rule: str
    modelled: str
    left_out: str
    make: Callable[..., Drafting]
    parameters: tuple[Parameter, ...]
    values: Mapping[str, float] = field(default_factory=dict)

    def drafting(self, pair: Pair) -> Drafting:
        """What the system drafts on `pair`. Raises ValueError for a pair that lacks what it needs."""
        if isinstance(pair.target, Trace) or (
            not isinstance(pair.target, Model) and check_rows(pair.target, "target").ndim == 2
        ):
            raise ValueError(
                f"{self.name}: the rows of a trace or of positions are along one text; a system drafts other "
                "tokens too, so give two models or two pmfs"
            )
        if pair.draft is None or isinstance(pair.draft, PromptLookup | LookaheadDecoding):
            raise ValueError(f"{self.name}: the pair has no draft with rows; give two models or two pmfs")
        whole = {one.name for one in self.parameters if one.whole}
        values = {name: int(value) if name in whole else value for name, value in self.values.items()}
        return self.make(pair, **values)
