"""Exact controls: exact verifiers and decoders that accept less than they could."""

from collections.abc import Sequence

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.mistakes import _reference as ref
from specsim.mistakes._acceptance import block_verify
from specsim.mistakes._decoding import Decoder, decoder
from specsim.mistakes._indexing import whole_draft, without_last_drafted
from specsim.mistakes._laws import Rows, StepLaw, of_chain
from specsim.rules._chain import block
from specsim.rules._chain.one_hot import RULE as ONE_HOT
from specsim.rules._chain.sampler_match import RULE as SAMPLER_MATCH


def sampler_match(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    drawn = ref.draw(p, rng.random(p.shape[:2]))
    accepted = ref.first_failure(drawn[:, :-1] == draft_tokens)
    return ref.pack_output(draft_tokens, accepted, drawn[np.arange(len(p)), accepted])


def block_one_hot(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    q = (draft_tokens[..., None] == np.arange(q.shape[2])).astype(q.dtype)
    return block_verify(draft_tokens, p, q, rng)


@of_chain
def block_one_hot_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    certain = [[int(y == x) for y in range(len(row))] for row, x in zip(q, tokens, strict=False)]
    return block.RULE.law(range(len(tokens)), tokens, p, certain)


EXACT_CONTROLS = (
    ref.mistake(
        "one_hot_draft", passes=lambda u, x, p, q: u < ref.at(p, x), recover=ref.mask_drafted, law=ONE_HOT.law
    ),
    ref.mistake("sampler_match", verify=sampler_match, law=SAMPLER_MATCH.law),
    ref.mistake("block_one_hot", verify=block_one_hot, law=block_one_hot_law),
    decoder("draft_not_rolled_back", Decoder(draft_keeps=whole_draft)),
    decoder("draft_one_short", Decoder(draft_keeps=without_last_drafted)),
)
