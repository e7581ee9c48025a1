"""The q that verification is given is not what the drafted tokens were drawn from.

All are decoders: a verifier alone cannot know."""

from typing import Any

from ml_dtypes import bfloat16

from specsim.core._types import Row
from specsim.mistakes import _laws as laws
from specsim.mistakes._decoding import Decoder, decoder
from specsim.mistakes._reference import round_to
from specsim.mistakes._rows import likeliest
from specsim.models._drafts.sampling import rank_tokens
from specsim.rules._chain.greedy_match import argmax


def best_of(row: Row, draws: Any) -> list[Any]:
    """The likeliest of several samples: P(none is likelier) to the power of their number, differenced."""
    law, left = [0 * a for a in row], sum(row)
    for y in rank_tokens(row):
        law[y] = left ** int(draws) - (left - row[y]) ** int(draws)
        left -= row[y]
    return [max(a, 0 * a) for a in law]


def among_likeliest(row: Row, k: Any) -> list[Any]:
    """The k likeliest tokens of a row, not normalised."""
    kept = set(rank_tokens(row)[: int(k)])
    return [a if y in kept else 0 * a for y, a in enumerate(row)]


def scaled_down(row: Row, count: Any, factor: Any) -> list[Any]:
    """The `count` likeliest tokens of a row at `factor` of their weights."""
    scaled = set(rank_tokens(row)[: int(count)])
    return laws.normalise([a * factor if y in scaled else a for y, a in enumerate(row)])


MISTAKES = (
    decoder("greedy_draft", Decoder(drafting=argmax)),
    decoder("greedy_draws", Decoder(drafting=argmax, verification=laws.law_of_last(argmax), processed=False)),
    decoder("draft_temperature", Decoder(drafting=laws.apply_temperature)),
    decoder("handed_temperature", Decoder(verified_q=laws.apply_temperature)),
    decoder("draft_top_k", Decoder(drafting=laws.by_rows(likeliest))),
    decoder(
        "candidates_not_normalised", Decoder(drafting=laws.by_rows(likeliest), verified_q=among_likeliest)
    ),
    decoder("scaled_candidates", Decoder(drafting=scaled_down)),
    decoder("best_of_draws", Decoder(drafting=best_of)),
    decoder(
        "bfloat16_draft",
        Decoder(drafting=lambda row: laws.as_given(round_to([float(a) for a in row], bfloat16), row)),
    ),
    # each id is one too high
    decoder("unmapped_ids", Decoder(verified_q=lambda row: [row[-1], *row[:-1]])),
    # two ids mean token 0, each with half of its mass
    decoder("merged_ids", Decoder(verified_q=lambda row: [row[0] / 2, *row[1:]])),
)
