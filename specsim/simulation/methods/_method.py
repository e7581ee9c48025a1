"""The parts of a drafting system."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specsim.core._parameters import Parameter, Parametrised
from specsim.core.distributions import check_rows
from specsim.models import LookaheadDecoding, Model, Pair, PromptLookup
from specsim.models._drafts.dynamic import Draft
from specsim.traces._reader import Trace

GIVE = "give two models or two pmfs"


@dataclass(frozen=True)
class Drafting:
    """What a system drafts on one pair."""

    pair: Pair  #: the target, and the draft as the system has it
    shape: Draft  #: of a step's draft, with how it is drawn
    passes: tuple[int, ...]  #: tokens of a sequence that each pass of the drafter computes, in order
    size: float  #: the parameters that such a pass uses / the target's
    beside: int = 0  #: tokens of the target's pass in addition to the drafted ones and the text's last


@dataclass(frozen=True)
class Method(Parametrised):
    """A drafting system."""

    name: str
    title: str
    citation: str
    rule: str  #: the rule that verifies its drafts, as `specsim.rules.get` reads it
    modelled: str  #: what the model has, in a sentence
    left_out: str  #: what it lacks
    make: Callable[..., Drafting]  #: `make(pair, **values)` is what the system drafts on a pair
    parameters: tuple[Parameter, ...]  #: one of them is `size`, which the drafter's cost follows from
    values: Mapping[str, float] = field(default_factory=dict)

    def drafting(self, pair: Pair) -> Drafting:
        """What the system drafts on `pair`. Raises ValueError for a pair that lacks what it needs."""
        if isinstance(pair.target, Trace) or (
            not isinstance(pair.target, Model) and check_rows(pair.target, "target").ndim == 2
        ):
            raise ValueError(f"{self.name}: the pair has rows along one text alone; {GIVE}")
        if pair.draft is None or isinstance(pair.draft, PromptLookup | LookaheadDecoding):
            raise ValueError(f"{self.name}: the pair has no draft with rows; {GIVE}")
        whole = {one.name for one in self.parameters if one.whole}
        values = {name: int(value) if name in whole else value for name, value in self.values.items()}
        return self.make(pair, **values)
