"""The q that verification is given is not what the drafted tokens were drawn from.

All are decoders: a verifier alone cannot know."""

from functools import partial
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from specsim.core._parameters import Parameter
from specsim.core._types import Row
from specsim.mistakes import _laws as laws
from specsim.mistakes._decoding import Decoder, decoder_mistake
from specsim.mistakes._laws import apply_temperature
from specsim.mistakes._reference import above_zero, round_to
from specsim.mistakes._rows import likeliest
from specsim.models._drafts.sampling import rank_tokens
from specsim.rules._chain.greedy_match import argmax

decoder = partial(decoder_mistake, "proposal is not the law drawn from")


def best_of(row: Row, draws: Any) -> list[Any]:
    """The likeliest of several samples: P(none is likelier) to the power of their number, differenced."""
    law, left = [0 * a for a in row], sum(row)
    for y in rank_tokens(row):
        law[y] = left ** int(draws) - (left - row[y]) ** int(draws)
        left -= row[y]
    return [max(a, 0 * a) for a in law]


MISTAKES = (
    decoder(
        "greedy_draft",
        "The draft is the argmax of q, and is verified as a sample of q.",
        Decoder(drafting=argmax),
        threads=(
            "huggingface/transformers#32867",
            "huggingface/transformers#33534",
            "jaymody#3",
            "rtp-llm#1295",
        ),
    ),
    decoder(
        "greedy_draws",
        "Tokens are argmaxes, of q, of the residual and of p, but drafts are tested with p/q as samples are.",
        Decoder(drafting=argmax, verification=laws.law_of_last(argmax), processed=False),
        threads=("romsto/Speculative-Decoding GreedyProcessor",),
    ),
    decoder(
        "draft_temperature",
        "The draft is sampled at a temperature, and is verified with the raw q.",
        Decoder(drafting=apply_temperature),
        threads=("mlx-node#65", "huggingface/transformers#40976", "huggingface/transformers#28166"),
        parameters=above_zero("temperature", 0.5, "T; 1 is right", 100.0),
    ),
    decoder(
        "handed_temperature",
        "The draft is sampled from q, and is verified with q at a temperature.",
        Decoder(verified_q=apply_temperature),
        parameters=above_zero("temperature", 1.5, "T; 1 is right", 100.0),
    ),
    decoder(
        "draft_top_k",
        "The draft is sampled from the k likeliest tokens, and is verified with the raw q.",
        Decoder(drafting=laws.by_rows(likeliest)),
        threads=("huggingface/transformers#47932", "huggingface/transformers#47961"),
        parameters=(Parameter("k", 2, 1, np.inf, "tokens kept", whole=True),),
    ),
    decoder(
        "best_of_draws",
        "The draft is the likeliest of several samples, as in beam search, and is verified as one sample.",
        Decoder(drafting=best_of),
        threads=("apple/ml-recurrent-drafter#6",),
        parameters=(Parameter("draws", 2, 1, np.inf, "candidates; 1 is right", whole=True),),
    ),
    decoder(
        "bfloat16_draft",
        "The draft is sampled from q in bfloat16, and is verified with q in full precision.",
        Decoder(drafting=lambda row: laws.as_given(round_to([float(a) for a in row], bfloat16), row)),
        threads=("DeepSpec#31",),
    ),
    decoder(
        "unmapped_ids",
        # each id is one too high
        "q is given in the draft's token ids, which are not mapped to the target's.",
        Decoder(verified_q=lambda row: [row[-1], *row[:-1]]),
        threads=("rtp-llm#1311", "rtp-llm#1295"),
    ),
    decoder(
        "merged_ids",
        # two ids mean token 0, each with half of its mass
        "Two ids of the draft map to one id of the target, and one's probability overwrites the other's.",
        Decoder(verified_q=lambda row: [row[0] / 2, *row[1:]]),
        threads=("rtp-llm#1311",),
    ),
)
