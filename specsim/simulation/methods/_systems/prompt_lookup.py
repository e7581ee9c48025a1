"""Prompt lookup: the draft is copied from earlier in the text."""

import numpy as np

from specsim.core._streams import Purpose, key_of, uniforms
from specsim.core._types import TokenArray
from specsim.core.distributions import cumulative_draw
from specsim.drafts import PromptLookup, chain
from specsim.models import Model, Pair
from specsim.simulation.methods._method import Drafting, Method, as_models, count, size_parameter

#: Tokens of the target's own text in which is searched, and its seed.
TEXT, SEED = 4096, 0


def make(pair: Pair, gamma: int, ngram: int, size: float) -> Drafting:
    target, _ = as_models(pair)
    return Drafting(Pair(target, PromptLookup(own_text(target), ngram)), chain(gamma, "top"), (), size)


def own_text(target: Model) -> TokenArray:
    """A text drawn from the target, from the first of its contexts on."""
    text = np.append(target.contexts[0], np.zeros(TEXT)).astype(np.int32)
    first = text.size - TEXT
    u = uniforms(key_of(SEED), Purpose.VERIFY, 0, 1, TEXT)[:, 0]
    for place in range(first, text.size):
        row = target.rows(text[None, place - target.order : place])[0]
        text[place] = cumulative_draw(row, u[place - first])
    return text


METHOD = Method(
    name="prompt_lookup",
    title="Prompt lookup decoding",
    citation="Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding",
    rule="one_hot",
    modelled="The tokens that followed the longest match of the last tokens, in a text of the target's own.",
    left_out="Prompts that the answer quotes: the text is drawn from the target, so matches are its habits.",
    make=make,
    parameters=(
        count("gamma", 10, "drafted tokens"),
        count("ngram", 3, "the most tokens that are matched", 16),
        size_parameter(0.0),
    ),
)
