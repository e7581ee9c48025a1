"""The parts of a drafting system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specsim.core._parameters import Parameter, Parametrised
from specsim.core._streams import Purpose, key_of, uniforms
from specsim.core._types import TokenArray
from specsim.core.distributions import check_rows, cumulative_draw
from specsim.models import Draft, LookaheadDecoding, Mixture, Model, Pair, PromptLookup, TableModel
from specsim.traces import Trace


def size_parameter(
    default: float, meaning: str = "parameters of the drafter / those of the target"
) -> Parameter:
    """The parameter `size`, which the cost of drafting hangs on."""
    return Parameter("size", default, 0.0, 1.0, meaning)


def count(name: str, default: int, meaning: str, most: int = 128) -> Parameter:
    """A parameter that counts something, from 1 to `most`."""
    return Parameter(name, float(default), 1.0, float(most), meaning, whole=True)


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


def as_models(pair: Pair) -> tuple[Model, Model]:
    """Target and draft of a pair as models; two pmfs as tables without a context."""
    made = [one if isinstance(one, Model) else TableModel(check_rows(one)) for one in pair]
    return made[0], made[1]


def moved(pair: Pair, weight: float) -> Pair:
    """The pair with its draft moved towards its target: (1 - weight)·q + weight·p."""
    if weight == 0:
        return pair
    if isinstance(pair.target, Model):
        return Pair(pair.target, Mixture(pair.draft, pair.target, weight))
    p, q = check_rows(pair.target, "target"), check_rows(pair.draft, "draft")
    return Pair(p, (1.0 - weight) * q + weight * p)


def passes_of(widths: Sequence[int]) -> tuple[int, ...]:
    """The passes of an autoregressive drafter of a tree whose nodes at depth i have widths[i] children: one a
    level, over the nodes above it."""
    return (1, *np.cumprod(widths)[:-1].tolist())


# Sizes of drafters beside a target with the dimensions of LLaMA-7B (Touvron et al., arXiv 2302.13971).

WIDTH, INNER, VOCABULARY, LAYERS = 4096, 11008, 32_000, 32

#: Parameters of a decoder layer (attention, and a gated feed-forward network) and of the output layer.
LAYER = 4 * WIDTH**2 + 3 * WIDTH * INNER
HEAD = WIDTH * VOCABULARY
TARGET = LAYERS * LAYER + 2 * HEAD

#: A separate model of 68 million parameters, which SpecInfer and Sequoia draft with.
SMALL_MODEL = round(68e6 / TARGET, 4)
#: One decoder layer over the target's features and a token, with the output layer.
ONE_LAYER = round((LAYER + 2 * WIDTH**2 + HEAD) / TARGET, 4)
#: A head: a residual block and an output layer.
ONE_HEAD = round((WIDTH**2 + HEAD) / TARGET, 4)


def layers(number: int) -> float:
    """The share of the first `number` decoder layers with the output layer."""
    return round((number * LAYER + HEAD) / TARGET, 4)


# Texts of a target, for systems that draft from the text.

#: Tokens of a text, and its seed.
LENGTH, SEED = 4096, 0


def own_text(target: Model) -> TokenArray:
    """A text drawn from the target, from the first of its contexts on."""
    text = np.append(target.contexts[0], np.zeros(LENGTH)).astype(np.int32)
    first = text.size - LENGTH
    u = uniforms(key_of(SEED), Purpose.VERIFY, 0, 1, LENGTH)[:, 0]
    for place in range(first, text.size):
        row = target.rows(text[None, place - target.order : place])[0]
        text[place] = cumulative_draw(row, u[place - first])
    return text
