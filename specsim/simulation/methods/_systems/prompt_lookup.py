"""Prompt lookup: the draft is copied from earlier in the text."""

from specsim.models import Pair, PromptLookup, chain
from specsim.simulation.methods._method import Drafting, Method, as_models, count, own_text, size_parameter


def make(pair: Pair, gamma: int, ngram: int, size: float) -> Drafting:
    target, _ = as_models(pair)
    return Drafting(Pair(target, PromptLookup(own_text(target), ngram)), chain(gamma, "top"), (), size)


METHOD = Method(
    name="prompt_lookup",
    title="Prompt lookup decoding",
    citation="Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding",
    rule="one_hot",
    modelled="The tokens that followed the longest match of the last tokens, in a text of the target's own, "
    "decoded from its beginning; a step without a match emits one token.",
    left_out="Prompts that the answer quotes: the text is drawn from the target, so matches are its habits. "
    "Another text's mean may differ by more than the standard error. Each step is charged for a whole draft.",
    make=make,
    parameters=(
        count("gamma", 10, "drafted tokens"),
        count("ngram", 3, "the most tokens that are matched", 16),
        size_parameter(0.0),
    ),
)
