"""Lookahead decoding: the target guesses n-grams ahead of the text, and drafts those that fit."""

from specsim.models import LookaheadDecoding, Pair
from specsim.rules import Parameter
from specsim.simulation.methods._method import Drafting, Method, as_models, count, own_text, size_parameter


def make(pair: Pair, window: int, ngram: int, candidates: int, size: float) -> Drafting:
    target, _ = as_models(pair)
    lookahead = LookaheadDecoding(window, candidates, own_text(target))
    beside = window * (ngram - 1)
    return Drafting(Pair(target, lookahead), lookahead.tree(ngram - 1), (), size, beside)


METHOD = Method(
    name="lookahead",
    title="Lookahead decoding",
    citation="Fu et al. 2024, arXiv 2402.02057",
    rule="naive_matching",
    modelled="A window of the target's guesses, moved by a token in every step, and a pool of the n-grams "
    "found there; those that begin with the last token are drafted. Window and n-grams are computed in the "
    "target's pass.",
    left_out="The seed of the window is not varied: the steps, with and without a draft, are those of one "
    "text of the target's own, from its beginning. Another text's mean may differ by more than the standard "
    "error. Each step is charged for a whole tree.",
    make=make,
    parameters=(
        count("window", 15, "columns of the window"),
        Parameter("ngram", 5.0, 2.0, 16.0, "tokens of an n-gram", whole=True),
        count("candidates", 15, "n-grams kept for a token"),
        size_parameter(0.0),
    ),
)
