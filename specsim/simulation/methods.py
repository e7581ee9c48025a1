"""The drafting systems of the literature: how each drafts.

To add one, add an entry to data/methods.toml of the package, and unless one drafts so already a function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specsim import models, theory
from specsim.core._files import read_table
from specsim.core._parameters import Parameter, Parametrised, split_name
from specsim.core._streams import Purpose, key_of, uniforms
from specsim.core._types import Floats, TokenArray, check_known, checked
from specsim.core.distributions import check_rows
from specsim.models import DynamicTree, LookaheadDecoding, Mixture, Model, Pair, PromptLookup, TableModel
from specsim.models._base import drawn_text, rows_ahead
from specsim.models._drafts.dynamic import Draft
from specsim.simulation._sources import context_rows
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


#: Dimensions of LLaMA-7B, the target (Touvron et al., arXiv 2302.13971); drafters have shares of its size.
WIDTH, INNER, VOCABULARY, LAYERS = 4096, 11008, 32_000, 32

#: Parameters of a decoder layer (attention, and a gated feed-forward network) and of the output layer.
LAYER = 4 * WIDTH**2 + 3 * WIDTH * INNER
HEAD = WIDTH * VOCABULARY
TARGET = LAYERS * LAYER + 2 * HEAD


#: Tokens of a text of the target's own, and its seed.
LENGTH, SEED = 4096, 0


def own_text(target: Model) -> TokenArray:
    """A text drawn from the target, from the first of its contexts on."""
    u = uniforms(key_of(SEED), Purpose.VERIFY, 0, 1, LENGTH)[:, 0]
    return drawn_text(target, target.contexts[0], u)


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
    """The passes of an autoregressive drafter of a tree of these `widths`: one a level."""
    return (1, *np.cumprod(widths)[:-1].tolist())


# What systems draft on a pair.


def one_by_one(pair: Pair, gamma: int, size: float, nearer: float = 0.0) -> Drafting:
    """A model that writes γ tokens one after another."""
    return Drafting(moved(pair, nearer), models.chain(gamma), (1,) * gamma, size)


def heads_at_once(pair: Pair, gamma: int, size: float) -> Drafting:
    """Heads that guess one token each, from the context alone."""
    return Drafting(pair, models.chain(gamma, "top", block=gamma), (1,), gamma * size)


def block_at_once(pair: Pair, gamma: int, size: float) -> Drafting:
    """A model that writes a block of γ tokens in one pass."""
    return Drafting(pair, models.chain(gamma, block=gamma), (gamma,), size)


def block_by_block(pair: Pair, gamma: int, block: int, size: float) -> Drafting:
    """A model that writes `block` tokens in each pass."""
    blocks = -(-gamma // block)
    return Drafting(pair, models.chain(gamma, block=block), (1, *[block] * (blocks - 1)), size)


def copied(pair: Pair, gamma: int, ngram: int, size: float) -> Drafting:
    """Tokens copied from earlier in the text."""
    target, _ = as_models(pair)
    return Drafting(Pair(target, PromptLookup(own_text(target), ngram)), models.chain(gamma, "top"), (), size)


def guessed(pair: Pair, window: int, ngram: int, candidates: int, size: float) -> Drafting:
    """The target's own guesses of n-grams ahead of the text, those that fit."""
    target, _ = as_models(pair)
    lookahead = LookaheadDecoding(window, candidates, own_text(target))
    beside = window * (ngram - 1)
    return Drafting(Pair(target, lookahead), lookahead.tree(ngram - 1), (), size, beside)


def side_by_side(pair: Pair, drafts: int, gamma: int, size: float) -> Drafting:
    return Drafting(pair, models.chains(drafts, gamma), (1, *[drafts] * (gamma - 1)), size)


def branching_once(pair: Pair, depth: int, at: int, width: int, size: float) -> Drafting:
    """A tree of sampled siblings that branches at one level."""
    if at > depth:
        raise ValueError(f"specinfer: at = {at} exceeds depth = {depth}; branch at one of the levels")
    widths = [width if level == at else 1 for level in range(1, depth + 1)]
    return Drafting(pair, models.branching(*widths), passes_of(widths), size)


def narrowing(pair: Pair, depth: int, top: int, size: float) -> Drafting:
    """The same tree in every step, of half as many children at each further level."""
    widths = widths_of(depth, top)
    return Drafting(pair, models.branching(*widths, draft_sampling="top"), passes_of(widths), size)


def most_confident(
    pair: Pair, width: int, depth: int, nodes: int, size: float, nearer: float = 0.0
) -> Drafting:
    """A tree of the draft's most confident paths, another in every step."""
    shape = DynamicTree(width, depth, nodes)
    return Drafting(Pair(*as_models(moved(pair, nearer))), shape, (1, *[width] * (depth - 1)), size)


def widths_of(heads: int, top: int) -> list[int]:
    """The children at each depth: `top`, and half as many at each further one."""
    return [max(1, top >> depth) for depth in range(heads)]


#: Sibling ranks that Sequoia's program knows.
SIBLINGS = 16


def best(pair: Pair, nodes: int, depth: int, size: float) -> Drafting:
    """The tree that a dynamic program finds best."""
    alpha = float(np.mean(theory.acceptance_rate(*context_rows(*pair))))
    ranks = [alpha * (1.0 - alpha) ** rank for rank in range(min(SIBLINGS, nodes))]
    tree = models.best_tree(ranks, nodes, depth)
    return Drafting(pair, tree, tuple(np.bincount(tree.depths)[:-1].tolist()), size)


#: Ranks of a head that are considered, and how many places of the text lie between two that are counted.
RANKS, PLACES = 10, 4


def heads_tree(pair: Pair, heads: int, top: int, nodes: int, size: float) -> Drafting:
    """The Cartesian tree of the most probable tokens of independent heads."""
    if nodes:
        tree = models.tree_of_heads(accuracies(pair, heads), nodes)
    else:
        tree = models.branching(*widths_of(heads, top), draft_sampling="top", block=heads)
    return Drafting(pair, tree, (1,), heads * size)


def accuracies(pair: Pair, heads: int) -> Floats:
    """How often the token of each rank of each head is the target's, [heads, ranks], along a text of its own,
    no rank more often than the one before it; of two pmfs the probabilities themselves."""
    if not isinstance(pair.target, Model):
        p, q = check_rows(pair.target, "target"), check_rows(pair.draft, "draft")
        return np.tile(np.minimum.accumulate(p[np.argsort(-q, kind="stable")][:RANKS]), (heads, 1))
    text, order = own_text(pair.target), max(pair.target.order, pair.draft.order)
    places = np.arange(order, len(text) - heads, PLACES)
    seen = text[places[:, None] + np.arange(-order, 0)]
    found = np.zeros((heads, min(RANKS, pair.target.vocab_size)))
    for head in range(heads):
        ranked = np.argsort(-rows_ahead(pair.draft, seen, head), axis=1, kind="stable")[:, :RANKS]
        found[head] = (ranked == text[places + head][:, None]).mean(axis=0)
    return np.minimum.accumulate(found, axis=1)


#: What the table leaves out of a parameter, a count, and of `size`, from which the drafter's cost follows.
COUNT = {"low": 1.0, "high": 128.0, "whole": True}
SHARE = {"low": 0.0, "high": 1.0, "meaning": "parameters of the drafter / those of the target"}


_TABLE = read_table("methods")
_SIZES = _TABLE.pop("sizes")


def _system(name: str, drafts: str, parameters: dict[str, Any], **words: Any) -> Method:
    made = []
    for own, given in parameters.items():
        default = float(_SIZES.get(given["default"], given["default"]))
        made.append(Parameter(own, **(SHARE if own == "size" else COUNT) | given | {"default": default}))
    return Method(name, **words, make=globals()[drafts], parameters=tuple(made))


#: Every system by its name.
SYSTEMS = {name: _system(name, **entry) for name, entry in _TABLE.items()}


def names() -> list[str]:
    """Names of the drafting systems, sorted.

    Returns
    -------
    list of str

    Examples
    --------
    >>> "medusa" in names()
    True
    """
    return sorted(SYSTEMS)


@checked
def get(name: str | Method) -> Method:
    """Return a drafting system.

    Parameters
    ----------
    name : str or Method
        A name, with parameters if any, such as "eagle2:nodes=30,depth=5", or a Method.

    Returns
    -------
    Method

    Raises
    ------
    ValueError
        For an unknown name, and for parameters that are unknown or out of range.

    Examples
    --------
    >>> str(get("autoregressive:gamma=3"))
    'autoregressive:gamma=3,size=0.0101'
    """
    if isinstance(name, Method):
        return name
    bare, given = split_name(name, names())
    check_known("method", bare, names())
    return SYSTEMS[bare].given(given)
