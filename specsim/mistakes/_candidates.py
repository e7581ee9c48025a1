"""Several candidates or several draws where the law allows for one."""

from functools import partial
from typing import Any

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Row
from specsim.mistakes._decoding import Decoder, decoder_mistake
from specsim.mistakes._laws import law, likeliest_first, normalise
from specsim.mistakes._reference import at, mask_drafted, target, verifier_mistake
from specsim.rules._chain.one_hot import recovered as without_drafted

FAMILY = "many candidates"
mistake = partial(verifier_mistake, FAMILY)


def nucleus(p: Floats, mass: float) -> Floats:
    """top-p of rows [B, γ, V], renormalised: the likeliest tokens until their mass reaches `mass`."""
    order = np.argsort(-p, axis=2, kind="stable")
    ranked = np.take_along_axis(p, order, axis=2)
    before = np.cumsum(ranked, axis=2) - ranked
    kept = np.zeros_like(p)
    np.put_along_axis(kept, order, np.where(before < mass, ranked, 0.0), axis=2)
    return kept / kept.sum(axis=2, keepdims=True)


def nucleus_row(p: Row, mass: Any) -> list[Any]:
    kept, reached = [0 * a for a in p], 0 * p[0]
    for y in likeliest_first(p):
        if reached < mass:
            kept[y] = p[y]
        reached += p[y]
    return normalise(kept)


MISTAKES = (
    mistake(
        "any_draw_matches",
        "A draft is accepted if any of several samples of the target equals it.",
        threads=("foundation-model-stack/fms-extras#12",),
        passes=lambda u, x, p, q, draws: u < 1.0 - (1.0 - at(p, x)) ** draws,
        recover=mask_drafted,
        law=law(
            lambda p, q, x, draws: 1 - (1 - p[x]) ** int(draws),
            lambda p, q, x, draws: without_drafted(p, q, x),
        ),
        parameters=(Parameter("draws", 2, 1, np.inf, "samples; 1 is right", whole=True),),
    ),
    mistake(
        "match_redrawn",
        "A draft is accepted if a sample of the target equals it, else p is sampled again.",
        passes=lambda u, x, p, q: u < at(p, x),
        recover=target,
        law=law(lambda p, q, x: p[x], lambda p, q, x: p),
    ),
    mistake(
        "nucleus_match",
        "A draft is accepted if a sample of the target's top-p equals it, else p is sampled.",
        threads=("FasterDecoding/Medusa evaluate_posterior nucleus",),
        passes=lambda u, x, p, q, mass: u < at(nucleus(p, mass), x),
        recover=target,
        law=law(lambda p, q, x, mass: nucleus_row(p, mass)[x], lambda p, q, x, mass: p),
        parameters=(Parameter("mass", 0.8, 0.0, 1.0, "of the nucleus", above_low=True),),
    ),
    decoder_mistake(
        FAMILY,
        "longest_of_tries",
        "A step is drafted and verified several times, and the try with the most accepted tokens is kept.",
        Decoder(tries=lambda tries: int(tries)),
        parameters=(Parameter("tries", 2, 1, np.inf, "of a step; 1 is right", whole=True),),
    ),
)
